//! A looking glass in the form of OpenBGPD's bgplgd: what `bgpctl -j` prints.
//!
//! | path | answer |
//! |---|---|
//! | `/summary` | neighbors in short |
//! | `/neighbors`, `?neighbor=N` | neighbors, one neighbor |
//! | `/rib`, by `prefix`, `neighbor`, `as`, `community`, `large-community`, `af`, `best` | routes |
//! | `/rib/in`, by the same | routes before import policy, of neighbors with `keep_rejected` |
//! | `/rib/out?neighbor=N`, by the same | what the neighbor is sent |
//!
//! Fields that this router does not have are left out: states of AS path validation, groups, the neighbor's side of a session.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thalweg_node::control::{
    BgpNeighborView, BgpRequest, MessagesView, RibView, RouteFilter, RouteView, SentRouteView,
};

use super::views::extended_community;
use crate::problem::Problem;
use crate::query::{Param, flag, number, read_query, text};

const NEIGHBOR: &[Param] = &[text("neighbor")];
const RIB: &[Param] = &[
    text("prefix"),
    text("neighbor"),
    number("as"),
    text("community"),
    text("large-community"),
    text("af"),
    flag("best"),
    // All paths are shown anyhow.
    flag("all"),
];

/// A question in the words of bgplgd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Summary,
    Neighbors(Option<String>),
    Rib(RouteFilter),
    /// The routes of the most specific prefix.
    Prefix(String),
}

impl Question {
    /// Reads a question; `None` if it is not one of bgplgd's.
    pub(super) fn read(path: &str, query: &str) -> Result<Option<Self>, Problem> {
        Ok(Some(match path {
            "/summary" => read_query(query, &[]).map(|_| Self::Summary)?,
            "/neighbors" => {
                let values = read_query(query, NEIGHBOR)?;
                Self::Neighbors(text_of(&values, "neighbor"))
            }
            "/rib" => {
                let (filter, values) = filter(query)?;
                match text_of(&values, "prefix") {
                    Some(prefix) if filter == RouteFilter::default() => Self::Prefix(prefix),
                    inside => Self::Rib(RouteFilter { inside, ..filter }),
                }
            }
            "/rib/in" => {
                let (filter, values) = filter(query)?;
                let inside = text_of(&values, "prefix");
                Self::Rib(RouteFilter { inside, pre_policy: true, best: false, ..filter })
            }
            "/rib/out" => {
                let (mut filter, values) = filter(query)?;
                filter.advertised_to = filter.neighbor.take();
                if filter.advertised_to.is_none() {
                    return Err(Problem::bad("neighbor is missing"));
                }
                Self::Rib(RouteFilter { inside: text_of(&values, "prefix"), best: false, ..filter })
            }
            _ => return Ok(None),
        }))
    }

    /// The routes to ask for; `None` if neighbors are asked for.
    pub(super) fn routes(&self) -> Option<BgpRequest> {
        match self {
            Self::Summary | Self::Neighbors(_) => None,
            Self::Rib(filter) => Some(BgpRequest::Routes(filter.clone())),
            Self::Prefix(prefix) => {
                Some(BgpRequest::Route { destination: prefix.clone(), exact: false, why: false })
            }
        }
    }
}

fn text_of(values: &Map<String, Value>, name: &str) -> Option<String> {
    values.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// All parameters but the prefix, as a filter.
fn filter(query: &str) -> Result<(RouteFilter, Map<String, Value>), Problem> {
    let values = read_query(query, RIB)?;
    let asn = values.get("as").and_then(Value::as_u64).map(u32::try_from).transpose();
    let filter = RouteFilter {
        neighbor: text_of(&values, "neighbor"),
        origin_as: asn.map_err(|_| Problem::bad("as: expected a number of four bytes"))?,
        community: text_of(&values, "community").or(text_of(&values, "large-community")),
        family: text_of(&values, "af"),
        best: values.get("best").and_then(Value::as_bool).unwrap_or(false),
        ..RouteFilter::default()
    };
    Ok((filter, values))
}

/// Seconds as bgpctl prints them.
fn timeframe(seconds: u64) -> String {
    let (minutes, hours, days, weeks) = (seconds / 60, seconds / 3600, seconds / 86_400, seconds / 604_800);
    match (weeks, days) {
        (1.., _) => format!("{weeks:02}w{}d{:02}h", days % 7, hours % 24),
        (_, 1..) => format!("{days}d{:02}h{:02}m", hours % 24, minutes % 60),
        _ => format!("{hours:02}:{:02}:{:02}", minutes % 60, seconds % 60),
    }
}

/// A neighbor in short.
fn summary(view: &BgpNeighborView) -> Value {
    // Of a neighbor that was never up, theirs knows no time.
    let changed_s = view.uptime_s.or(view.down_s.filter(|_| view.flaps > 0));
    let mut neighbor = json!({
        "remote_as": view.remote_as,
        "description": view.description.as_deref().unwrap_or(&view.name),
        "remote_addr": view.address.to_string(),
        "state": view.state,
        "last_updown": changed_s.map_or_else(|| "Never".to_owned(), timeframe),
        "last_updown_sec": changed_s.map_or(json!(-1), Value::from),
    });
    if let Some(negotiated) = &view.negotiated {
        neighbor["bgpid"] = negotiated.router_id.clone().into();
    }
    neighbor
}

fn messages(view: MessagesView, total: u64) -> Value {
    json!({
        "open": view.open,
        "notifications": view.notification,
        "updates": view.update,
        "keepalives": view.keepalive,
        "route_refresh": view.route_refresh,
        "total": total,
    })
}

fn neighbor(view: &BgpNeighborView) -> Value {
    let mut neighbor = summary(view);
    // Theirs counts what policy rejects too.
    let rejected = view.rejected_by_family.unwrap_or_default();
    let received = view.accepted + rejected.ipv4 + rejected.ipv6;
    let sent = view.sent_by_family.unwrap_or_default();
    neighbor["stats"] = json!({
        "prefixes": { "sent": sent.ipv4 + sent.ipv6, "received": received },
        "message": {
            "sent": messages(view.sent_by_type, view.messages_sent),
            "received": messages(view.received_by_type, view.messages_received),
        },
    });
    if let Some(negotiated) = &view.negotiated {
        let hold_time_s = negotiated.hold_time_s;
        neighbor["session"] = json!({ "holdtime": hold_time_s, "keepalive": hold_time_s / 3 });
    }
    neighbor
}

/// The answer about neighbors.
pub(super) fn neighbors(question: &Question, views: &BTreeMap<String, BgpNeighborView>) -> Value {
    let wanted = |view: &&BgpNeighborView| match question {
        Question::Neighbors(Some(name)) => {
            *name == view.name || *name == view.address.to_string() || view.description.as_ref() == Some(name)
        }
        _ => true,
    };
    let form = if *question == Question::Summary { summary } else { neighbor };
    let found: Vec<Value> = views.values().filter(wanted).map(form).collect();
    // An empty list is no list.
    if found.is_empty() { json!({}) } else { json!({ "neighbors": found }) }
}

/// What both kinds of routes have.
struct Path<'a> {
    prefix: &'a str,
    as_path: &'a str,
    next_hop: &'a str,
    origin: &'a str,
    med: Option<u32>,
    local_pref: u32,
    communities: &'a [String],
}

fn route(path: &Path<'_>, neighbor: Option<&BgpNeighborView>, rib: &RibView) -> Value {
    let (description, address, id) = match neighbor {
        None => ("LOCAL", "???".to_owned(), rib.router_id.as_str()),
        Some(view) => (
            view.description.as_deref().unwrap_or(&view.name),
            view.address.to_string(),
            view.negotiated.as_ref().map_or("0.0.0.0", |agreed| agreed.router_id.as_str()),
        ),
    };
    let is_external = neighbor.is_some_and(|view| view.remote_as != rib.local_as.to_string());
    let mut route = json!({
        "prefix": path.prefix,
        "aspath": path.as_path,
        "exit_nexthop": path.next_hop,
        "true_nexthop": path.next_hop,
        "neighbor": { "description": description, "remote_addr": address, "bgp_id": id },
        "source": if is_external { "external" } else { "internal" },
        "origin": if path.origin == "incomplete" { path.origin.to_owned() } else { path.origin.to_ascii_uppercase() },
        "metric": path.med.unwrap_or(0),
        "localpref": path.local_pref,
    });
    if neighbor.is_none() {
        route["announced"] = true.into();
    }
    let extended = path.communities.iter().filter_map(|each| each.strip_prefix("ext:"));
    let extended = extended
        .filter_map(extended_community)
        .map(|[kind, administrator, number]| Value::from(format!("{kind} {administrator}:{number}")));
    let with_colons = |wanted: usize| {
        let plain = path.communities.iter().filter(|each| !each.starts_with("ext:"));
        let found = plain.filter(move |each| each.matches(':').count() == wanted);
        found.map(|each| Value::from(each.as_str())).collect::<Vec<_>>()
    };
    let kinds = [
        ("communities", with_colons(1)),
        ("extended_communities", extended.collect()),
        ("large_communities", with_colons(2)),
    ];
    for (name, found) in kinds.into_iter().filter(|(_, found)| !found.is_empty()) {
        route[name] = found.into();
    }
    route
}

/// A route of the RIB, or one before import policy.
pub(super) fn rib_route(view: &RouteView, neighbor: Option<&BgpNeighborView>, rib: &RibView) -> Value {
    let path = Path {
        prefix: &view.prefix,
        as_path: &view.as_path,
        next_hop: &view.next_hop,
        origin: &view.origin,
        med: view.med,
        local_pref: view.local_pref,
        communities: &view.communities,
    };
    let mut route = route(&path, neighbor, rib);
    route["valid"] = view.rejected.is_none().into();
    if view.best {
        route["best"] = true.into();
    }
    route["weight"] = view.weight.into();
    if let Some(validity) = &view.validity {
        route["ovs"] = validity.as_str().into();
    }
    route["last_update"] = timeframe(view.age_s).into();
    route["last_update_sec"] = view.age_s.into();
    route
}

/// A route as a neighbor is sent it. How long ago is not known.
pub(super) fn sent_route(view: &SentRouteView, neighbor: Option<&BgpNeighborView>, rib: &RibView) -> Value {
    let path = Path {
        prefix: &view.prefix,
        as_path: &view.as_path,
        next_hop: &view.next_hop,
        origin: &view.origin,
        med: view.med,
        local_pref: view.local_pref.unwrap_or(100),
        communities: &view.communities,
    };
    let mut route = route(&path, neighbor, rib);
    route["valid"] = true.into();
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_bgpctl() {
        let times = [
            (36_672, "10:11:12"),
            (93_780, "1d02h03m"),
            (831_600, "01w2d15h"),
            (0, "00:00:00"),
            (86_399, "23:59:59"),
        ];
        for (seconds, words) in times {
            assert_eq!(timeframe(seconds), words);
        }
    }

    #[test]
    fn a_neighbor_that_was_never_up_has_no_time() {
        let view = |flaps: u64| {
            serde_json::from_value(json!({
                "name": "r1", "address": "192.0.2.1", "as": "64497", "description": null, "state": "Active", "uptime_s": null,
                "down_s": 36_672, "accepted": 0, "accepted_by_family": { "ipv4": 0, "ipv6": 0 }, "updates_received": 0,
                "messages_received": 0, "messages_sent": 0, "bytes_sent": 0, "flaps": flaps, "last_error": null,
                "negotiated": null, "counters": {}
            }))
            .expect("a neighbor")
        };
        let times = |flaps| {
            let summary = summary(&view(flaps));
            (summary["last_updown"].clone(), summary["last_updown_sec"].clone())
        };
        assert_eq!(times(0), ("Never".into(), (-1).into()));
        assert_eq!(times(1), ("10:11:12".into(), 36_672.into()));
    }

    #[test]
    fn questions_are_read_from_their_paths() {
        let question = |path: &str| {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            Question::read(path, query).map_err(|problem| problem.kind)
        };
        assert_eq!(question("/summary"), Ok(Some(Question::Summary)));
        assert_eq!(question("/neighbors?neighbor=r1"), Ok(Some(Question::Neighbors(Some("r1".to_owned())))));
        let filter = RouteFilter { origin_as: Some(64_500), best: true, ..RouteFilter::default() };
        assert_eq!(question("/rib?as=64500&best=1&all"), Ok(Some(Question::Rib(filter))));
        assert_eq!(question("/rib?prefix=10.0.0.1"), Ok(Some(Question::Prefix("10.0.0.1".to_owned()))));
        let filter = RouteFilter { advertised_to: Some("r1".to_owned()), ..RouteFilter::default() };
        assert_eq!(question("/rib/out?neighbor=r1"), Ok(Some(Question::Rib(filter))));
        let filter = RouteFilter { pre_policy: true, ..RouteFilter::default() };
        assert_eq!(question("/rib/in"), Ok(Some(Question::Rib(filter))));
        for bad in ["/rib/out", "/rib?ovs=valid", "/rib?as=4294967296", "/summary?x=1"] {
            assert!(question(bad).is_err(), "{bad}");
        }
        assert_eq!(question("/routes"), Ok(None));
    }
}
