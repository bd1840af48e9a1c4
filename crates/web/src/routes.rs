//! The table of the API: a row for each method and path, with its parameters, the right it needs, and what it does.
//! `openapi.json` describes the same; a test compares the two.

use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thalweg_config::WebRight::{self, LookingGlass, Operate, Read};
use thalweg_node::control::{
    BgpRequest, CaptureRequest, FibFilter, FirewallFilter, FirewallStateFilter, NatClear, NatSessionFilter,
    PacketRequest, Request, RouteFilter,
};

use crate::problem::{Problem, ProblemKind};
use crate::query::{Param, flag, match_path, number, text};

/// What a client asks: what its path and parameters say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// The variable part of the path.
    pub(crate) place: String,
    /// Of the query, or of the body.
    pub(crate) values: Map<String, Value>,
}

impl Call {
    /// The parameters as the fields of a request.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_value(Value::Object(self.values.clone()))
            .map_err(|error| Problem::bad(error.to_string()))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(Value::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.values.get(name).and_then(Value::as_u64)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.values.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

type Ask = fn(&Call) -> Result<Request, Problem>;

/// What a row does.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    /// Asks the router for one view.
    One(Ask),
    /// Asks it for a list.
    List(Ask),
    /// The same; the list can go on behind a prefix.
    Paged(Ask),
    /// Asks it for one view, of which a field is a list.
    Part(Ask, &'static str),
    /// Asks it for a list, which becomes a field of the answer.
    Named(Ask, &'static str),
    /// Asks it to do something.
    Done(Ask),
    /// What this server knows by itself.
    Own(Own),
}

/// What the server does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Capture,
    ConfigCheck,
    DropReasons,
    Events,
    FlowsGraph,
    FlowsList,
    FlowsStats,
    FlowsTop,
    FlowsWords,
    Health,
    Metrics,
    OpenApi,
    Ready,
    Report,
    ReportResults,
    Reports,
    Session,
    SessionBegin,
    SessionEnd,
}

/// A method and a path.
pub(crate) struct Row {
    pub(crate) method: Method,
    /// With `{name}` for one part and `{rest}` for all further ones.
    pub(crate) path: &'static str,
    /// Of the query of a GET, of the body of a POST.
    pub(crate) params: &'static [Param],
    /// The least right; `None`: anybody.
    pub(crate) needs: Option<WebRight>,
    pub(crate) does: Does,
}

const fn get(path: &'static str, needs: WebRight, params: &'static [Param], does: Does) -> Row {
    Row { method: Method::GET, path, params, needs: Some(needs), does }
}

const fn post(path: &'static str, params: &'static [Param], does: Does) -> Row {
    Row { method: Method::POST, path, params, needs: Some(WebRight::Operate), does }
}

const fn free(method: Method, path: &'static str, params: &'static [Param], own: Own) -> Row {
    Row { method, path, params, needs: None, does: Does::Own(own) }
}

const NONE: &[Param] = &[];
const SESSIONS: &[Param] =
    &[text("inside"), text("vrf"), text("public"), number("port"), text("protocol"), number("limit")];
const STATES: &[Param] = &[
    text("source"),
    number("source_port"),
    text("destination"),
    number("destination_port"),
    text("vrf"),
    text("from"),
    text("to"),
    text("family"),
    text("protocol"),
    number("limit"),
];
/// Without the limit.
const CLEAR_STATES: &[Param] = STATES.split_at(STATES.len() - 1).0;
const BLOCKS: &[Param] = &[text("inside"), text("vrf"), text("public"), number("port"), number("limit")];
const FIB_OF_ONE: &[Param] = &[text("vrf")];
const FIB: &[Param] =
    &[text("vrf"), text("inside"), text("family"), text("source"), number("limit"), text("cursor")];
const ROUTES_PARAMS: &[Param] = &[
    text("inside"),
    text("neighbor"),
    number("through_as"),
    number("origin_as"),
    text("community"),
    text("family"),
    flag("best"),
    flag("pre_policy"),
    flag("rejected"),
    text("advertised_to"),
    text("not_advertised_to"),
    number("limit"),
    text("cursor"),
];
const VRPS: &[Param] = &[number("origin_as")];
const ROUTE: &[Param] = &[flag("exact"), flag("why")];
/// What is asked of stored flows; graphs take all of it, the others what is below their names.
const GRAPH: &[Param] = &[
    text("step"),
    flag("both"),
    text("key"),
    text("by"),
    text("filter"),
    text("last"),
    text("from"),
    text("to"),
    number("n"),
    flag("raw"),
    flag("dedup"),
    flag("no_rollups"),
];
const TOP: &[Param] = GRAPH.split_at(2).1;
const WHEN: &[Param] = TOP.split_at(2).1;
const CAPTURE: &[Param] = &[
    text("point"),
    text("port"),
    text("reason"),
    text("filter"),
    number("count"),
    number("seconds"),
    number("snaplen"),
    number("rate"),
];
const CLEAR: &[Param] = &[
    text("inside"),
    number("inside_port"),
    text("vrf"),
    text("public"),
    number("port"),
    text("remote"),
    number("remote_port"),
    text("protocol"),
];

/// Where the assets of the console are; everything else of the API is in [`ROWS`].
pub(crate) const ASSETS: &str = "/assets/";

/// The API.
pub(crate) static ROWS: &[Row] = &[
    get("/api/v1/status", Read, NONE, Does::One(|_| Ok(Request::Status))),
    get("/api/v1/config", Read, NONE, Does::One(|_| Ok(Request::Config))),
    get("/api/v1/config/compare", Read, NONE, Does::Named(|_| Ok(Request::CompareConfig), "changes")),
    get("/api/v1/ports", Read, NONE, Does::List(|_| packets(PacketRequest::Ports))),
    get("/api/v1/counters", Read, NONE, Does::One(|_| packets(PacketRequest::Counters))),
    get("/api/v1/drop-reasons", Read, NONE, Does::Own(Own::DropReasons)),
    get("/api/v1/workers", Read, NONE, Does::Part(|_| packets(PacketRequest::Counters), "workers")),
    get("/api/v1/queues", Read, NONE, Does::List(|_| packets(PacketRequest::Queues))),
    get("/api/v1/policers", Read, NONE, Does::List(|_| packets(PacketRequest::Policers))),
    get("/api/v1/acl", Read, NONE, Does::List(|_| packets(PacketRequest::AccessLists))),
    get("/api/v1/arp", Read, NONE, Does::List(|_| packets(PacketRequest::Neighbors))),
    get("/api/v1/checks", Read, NONE, Does::List(|_| packets(PacketRequest::GatewayChecks))),
    get("/api/v1/vrrp", Read, NONE, Does::List(|_| packets(PacketRequest::VirtualRouters))),
    get("/api/v1/standby", Read, NONE, Does::List(|_| packets(PacketRequest::Standby))),
    get("/api/v1/forwarding", Read, NONE, Does::One(|_| Ok(Request::Forwarding))),
    get("/api/v1/fib", Read, FIB, Does::Paged(|call| Ok(Request::FibRoutes(paged::<FibFilter>(call)?)))),
    get(
        "/api/v1/fib/{rest}",
        Read,
        FIB_OF_ONE,
        Does::One(|call| {
            let vrf = call.text("vrf").map(str::to_owned);
            Ok(Request::Fib { destination: call.place.clone(), vrf })
        }),
    ),
    get("/api/v1/vrfs", Read, NONE, Does::List(|_| Ok(Request::Vrfs))),
    get(
        "/api/v1/nat/sessions",
        Read,
        SESSIONS,
        Does::List(|call| packets(PacketRequest::NatSessions(sessions(call)?))),
    ),
    get(
        "/api/v1/nat/blocks",
        Read,
        BLOCKS,
        Does::List(|call| packets(PacketRequest::NatBlocks(sessions(call)?))),
    ),
    get("/api/v1/nat/counters", Read, NONE, Does::One(|_| packets(PacketRequest::NatCounters))),
    get(
        "/api/v1/firewall/states",
        Read,
        STATES,
        Does::List(|call| packets(PacketRequest::FirewallStates(states(call)?))),
    ),
    get("/api/v1/firewall/rules", Read, NONE, Does::List(|_| packets(PacketRequest::FirewallRules))),
    get("/api/v1/firewall/sets", Read, NONE, Does::List(|_| packets(PacketRequest::FirewallSets))),
    get("/api/v1/firewall/counters", Read, NONE, Does::One(|_| packets(PacketRequest::FirewallCounters))),
    get("/api/v1/bgp/neighbors", LookingGlass, NONE, Does::List(|_| bgp(BgpRequest::Neighbors))),
    get(
        "/api/v1/bgp/neighbors/{name}",
        LookingGlass,
        NONE,
        Does::One(|call| bgp(BgpRequest::Neighbor { neighbor: call.place.clone() })),
    ),
    get("/api/v1/bgp/rib", LookingGlass, NONE, Does::One(|_| bgp(BgpRequest::Rib))),
    get("/api/v1/bgp/rpki", LookingGlass, NONE, Does::One(|_| bgp(BgpRequest::Rpki))),
    get("/api/v1/bgp/rpki/{rest}", LookingGlass, VRPS, Does::One(|call| bgp(vrps(call)?))),
    get("/api/v1/bgp/memory", LookingGlass, NONE, Does::One(|_| bgp(BgpRequest::Memory))),
    get("/api/v1/bgp/update-groups", LookingGlass, NONE, Does::List(|_| bgp(BgpRequest::UpdateGroups))),
    get(
        "/api/v1/bgp/routes",
        LookingGlass,
        ROUTES_PARAMS,
        Does::Paged(|call| bgp(BgpRequest::Routes(paged::<RouteFilter>(call)?))),
    ),
    get("/api/v1/bgp/routes/{rest}", LookingGlass, ROUTE, Does::List(|call| bgp(route(call)))),
    get("/api/v1/flows/cache", Read, NONE, Does::One(|_| packets(PacketRequest::FlowCache))),
    get("/api/v1/flows/top", Read, TOP, Does::Own(Own::FlowsTop)),
    get("/api/v1/flows/list", Read, WHEN, Does::Own(Own::FlowsList)),
    get("/api/v1/flows/graph", Read, GRAPH, Does::Own(Own::FlowsGraph)),
    get("/api/v1/flows/stats", Read, NONE, Does::Own(Own::FlowsStats)),
    get("/api/v1/flows/words", Read, NONE, Does::Own(Own::FlowsWords)),
    get("/api/v1/trace", Read, &[text("packet")], Does::One(trace)),
    get("/api/v1/events", Read, &[text("topics")], Does::Own(Own::Events)),
    get("/api/v1/capture", Operate, CAPTURE, Does::Own(Own::Capture)),
    get("/api/v1/reports", Read, NONE, Does::Own(Own::Reports)),
    get("/api/v1/reports/{name}", Read, NONE, Does::Own(Own::Report)),
    get("/api/v1/reports/{name}/results", Read, NONE, Does::Own(Own::ReportResults)),
    get("/metrics", Read, NONE, Does::Own(Own::Metrics)),
    free(Method::GET, "/openapi.json", NONE, Own::OpenApi),
    free(Method::GET, "/healthz", NONE, Own::Health),
    free(Method::GET, "/readyz", NONE, Own::Ready),
    free(Method::GET, "/api/v1/session", NONE, Own::Session),
    free(Method::POST, "/api/v1/session", &[text("token")], Own::SessionBegin),
    free(Method::DELETE, "/api/v1/session", NONE, Own::SessionEnd),
    Row {
        method: Method::POST,
        path: "/api/v1/trace",
        params: &[text("packet")],
        needs: Some(Read),
        does: Does::One(trace),
    },
    post(
        "/api/v1/bgp/neighbors/{name}/refresh",
        NONE,
        Does::Done(|call| bgp(BgpRequest::Refresh { neighbor: call.place.clone() })),
    ),
    post(
        "/api/v1/bgp/neighbors/{name}/start",
        NONE,
        Does::Done(|call| bgp(BgpRequest::Start { neighbor: call.place.clone() })),
    ),
    post(
        "/api/v1/bgp/neighbors/{name}/reset",
        &[text("text")],
        Does::Done(|call| {
            bgp(BgpRequest::Reset {
                neighbor: call.place.clone(),
                text: call.text("text").unwrap_or_default().to_owned(),
            })
        }),
    ),
    post(
        "/api/v1/bgp/neighbors/{name}/shutdown",
        &[text("text")],
        Does::Done(|call| {
            bgp(BgpRequest::Shutdown {
                neighbor: call.place.clone(),
                text: call.text("text").unwrap_or_default().to_owned(),
            })
        }),
    ),
    post("/api/v1/config/check", &[text("text")], Does::Own(Own::ConfigCheck)),
    post("/api/v1/config/reload", NONE, Does::Named(|_| Ok(Request::Reload), "changes")),
    post(
        "/api/v1/nat/clear",
        CLEAR,
        Does::One(|call| packets(PacketRequest::NatClear(call.read::<NatClear>()?))),
    ),
    post(
        "/api/v1/firewall/clear",
        CLEAR_STATES,
        Does::One(|call| packets(PacketRequest::FirewallClear(call.read::<FirewallFilter>()?))),
    ),
];

/// The row of a request, and what its path says.
pub(crate) fn find(method: &Method, path: &str) -> Result<(&'static Row, String), Problem> {
    let mut others = Vec::new();
    // Only the body of an answer to HEAD differs, and the server leaves that out.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    for row in ROWS {
        let Some(place) = match_path(row.path, path)? else { continue };
        if row.method == *method {
            return Ok((row, place.unwrap_or_default()));
        }
        others.push(row.method.as_str());
    }
    match others.is_empty() {
        true => Err(Problem::new(ProblemKind::NotFound, "there is no such path; /openapi.json lists all")),
        false => Err(Problem::new(ProblemKind::WrongMethod, format!("expected {}", others.join(" or ")))),
    }
}

fn packets(request: PacketRequest) -> Result<Request, Problem> {
    Ok(Request::Packets(request))
}

fn bgp(request: BgpRequest) -> Result<Request, Problem> {
    Ok(Request::Bgp(request))
}

fn trace(call: &Call) -> Result<Request, Problem> {
    let packet = call
        .text("packet")
        .ok_or_else(|| Problem::bad("packet is missing: what `thalweg trace packet` takes"))?;
    packets(PacketRequest::TracePacket { packet: packet.to_owned() })
}

fn sessions(call: &Call) -> Result<NatSessionFilter, Problem> {
    let filter: NatSessionFilter = call.read()?;
    // One more than wanted would only be counted.
    Ok(NatSessionFilter { limit: None, ..filter })
}

fn states(call: &Call) -> Result<FirewallStateFilter, Problem> {
    Ok(FirewallStateFilter { which: call.read()?, limit: None })
}

/// A filter of a list with a cursor, without its limit: the end of a page is between two prefixes.
fn paged<T: DeserializeOwned>(call: &Call) -> Result<T, Problem> {
    let mut values = call.values.clone();
    values.remove("limit");
    if let Some(cursor) = values.remove("cursor") {
        if !has_cursor(call) {
            return Err(Problem::bad(
                "only the RIB's routes have a cursor: take all lines with Accept: application/x-ndjson",
            ));
        }
        values.insert("after".to_owned(), cursor);
    }
    Call { place: String::new(), values }.read()
}

/// Whether a list can go on behind a prefix: if it is one of the RIB's routes.
pub(crate) fn has_cursor(call: &Call) -> bool {
    let other_tables = ["advertised_to", "not_advertised_to"];
    other_tables.iter().all(|name| call.text(name).is_none())
        && !call.flag("pre_policy")
        && !call.flag("rejected")
}

fn route(call: &Call) -> BgpRequest {
    BgpRequest::Route { destination: call.place.clone(), exact: call.flag("exact"), why: call.flag("why") }
}

fn vrps(call: &Call) -> Result<BgpRequest, Problem> {
    let origin_as = call.number("origin_as").map(u32::try_from).transpose();
    let origin_as = origin_as.map_err(|_| Problem::bad("origin_as: expected a number of four bytes"))?;
    Ok(BgpRequest::Vrps { prefix: call.place.clone(), origin_as })
}

/// The longest capture, and the most packets of one.
pub(crate) const CAPTURE_SECONDS: (u64, u64) = (10, 60);
const CAPTURE_PACKETS_MAX: u64 = 100_000;

/// A capture, which always has an end.
pub(crate) fn capture(call: &Call) -> Result<Request, Problem> {
    let mut capture: CaptureRequest = call.read()?;
    let (default, most) = CAPTURE_SECONDS;
    let seconds = call.number("seconds").unwrap_or(default);
    if !(1..=most).contains(&seconds) {
        return Err(Problem::bad(format!("seconds: expected 1 to {most}")));
    }
    capture.seconds = u32::try_from(seconds).ok();
    let count = capture.count.unwrap_or(CAPTURE_PACKETS_MAX);
    if !(1..=CAPTURE_PACKETS_MAX).contains(&count) {
        return Err(Problem::bad(format!("count: expected 1 to {CAPTURE_PACKETS_MAX}")));
    }
    capture.count = Some(count);
    Ok(Request::Capture(capture))
}

#[cfg(test)]
mod tests;
