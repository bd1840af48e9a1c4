//! A looking glass in the form of birdwatcher, which Alice-LG and other looking glasses read; and in that of OpenBGPD's
//! bgplgd ([`openbgpd`]), whose paths are others.
//!
//! | path | answer |
//! |---|---|
//! | `/status` | the router |
//! | `/protocols/bgp`, `/protocols/short` | neighbors by name |
//! | `/routes/protocol/ID` | the routes of a neighbor |
//! | `/routes/table/master4`, `master6` | all routes of a family |
//! | `/routes/prefix?prefix=P`, `/route/net/P` | the routes of a prefix |
//! | `/routes/filtered/ID`, `/routes/table/T/filtered` | rejected routes, of neighbors with `keep_rejected` |
//! | `/routes/noexport/ID` | best routes of others that export keeps from a neighbor |
//!
//! Types are those that readers expect: numbers in `as_path` and preferences are texts. A neighbor that is unknown has
//! no routes, and that is no error.

mod openbgpd;
mod views;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::Value;
use thalweg_node::control::{
    self, BgpNeighborView, BgpRequest, Client, RibView, RouteFilter, RouteView, SentRouteView, StatusView,
};

use crate::answer::Outlet;
use crate::body::Body;
use crate::limits::{ANSWER_WAIT, ASK_AGAIN};
use crate::problem::{Problem, ProblemKind};
use crate::query::{match_path, read_query, text};
use crate::rights::Via;
use crate::router::connect;
use crate::server::{Reply, Server};

/// A question in the words of birdwatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    Status,
    Protocols,
    ProtocolsShort,
    /// The routes of the neighbor with this ID.
    OfNeighbor(String),
    OfFamily(&'static str),
    OfPrefix(String),
    /// Those that import rejects.
    RejectedOf(String),
    RejectedOfFamily(&'static str),
    /// Those that export keeps from it.
    NotExportedTo(String),
    OpenBgpd(openbgpd::Question),
}

/// The question of a path with this parameter.
type Asks = fn(String) -> Question;

/// The paths of birdwatcher, and the question of each. A path has no parameters that matter, but `/routes/prefix` has one.
const PATHS: [(&str, Asks); 11] = [
    ("/status", |_| Question::Status),
    ("/protocols/bgp", |_| Question::Protocols),
    ("/protocols/short", |_| Question::ProtocolsShort),
    ("/routes/table/master4", |_| Question::OfFamily("ipv4")),
    ("/routes/table/master6", |_| Question::OfFamily("ipv6")),
    ("/routes/table/master4/filtered", |_| Question::RejectedOfFamily("ipv4")),
    ("/routes/table/master6/filtered", |_| Question::RejectedOfFamily("ipv6")),
    ("/routes/protocol/{name}", Question::OfNeighbor),
    ("/routes/filtered/{name}", Question::RejectedOf),
    ("/routes/noexport/{name}", Question::NotExportedTo),
    ("/route/net/{rest}", Question::OfPrefix),
];

impl Question {
    fn read(path: &str, query: &str) -> Result<Self, Problem> {
        for (pattern, question) in PATHS {
            if let Some(place) = match_path(pattern, path)? {
                return Ok(question(place.unwrap_or_default()));
            }
        }
        if path == "/routes/prefix" {
            let values = read_query(query, &[text("prefix")])?;
            let prefix = values.get("prefix").and_then(Value::as_str);
            return Ok(Self::OfPrefix(prefix.ok_or_else(|| Problem::bad("prefix is missing"))?.to_owned()));
        }
        let theirs = openbgpd::Question::read(path, query)?;
        let unknown = || Problem::new(ProblemKind::NotFound, "there is no such path in this looking glass");
        theirs.map(Self::OpenBgpd).ok_or_else(unknown)
    }

    /// Whether the answer is a list of routes, of which a client gets one at a time.
    fn is_list(&self) -> bool {
        match self {
            Self::Status | Self::Protocols | Self::ProtocolsShort => false,
            Self::OpenBgpd(question) => question.routes().is_some(),
            _ => true,
        }
    }
}

/// What views are made of besides the router's answers.
#[derive(Clone, Debug)]
struct Glass {
    now_ns: u64,
    version: &'static str,
    hidden: Vec<String>,
}

impl Server {
    /// Answers a request to the looking glass.
    pub(crate) async fn serve_glass(self: Arc<Self>, via: Via, request: Request<Incoming>) -> Response<Body> {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let result = self.look(via, &request).await;
        self.respond(result)
    }

    async fn look(&self, via: Via, request: &Request<Incoming>) -> Result<Reply, Problem> {
        self.check_host(via, request.headers())?;
        if *request.method() != Method::GET {
            return Err(Problem::new(ProblemKind::WrongMethod, "expected GET"));
        }
        let question = Question::read(request.uri().path(), request.uri().query().unwrap_or_default())?;
        in_turn(|| self.check_rate(via)).await?;
        let listing = match via {
            Via::Tcp { client, .. } if question.is_list() => Some(in_turn(|| self.listing(client)).await?),
            _ => None,
        };
        let glass = Glass {
            now_ns: (self.options.wall_ns)(),
            version: self.options.version,
            hidden: self.hidden.clone(),
        };
        let socket = self.options.router.clone();
        let body = self.on_thread(move |mut outlet| {
            outlet.is_list(listing);
            let result = glass.answer(&socket, &question, &mut outlet);
            outlet.end(result);
        });
        Ok(Reply::new("application/json", body.await?))
    }
}

/// Waits while a client's limits refuse. Alice-LG asks for each neighbor of all its readers from one address, and does not
/// ask again.
async fn in_turn<T>(ask: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
    let until = Instant::now() + ANSWER_WAIT;
    loop {
        match ask() {
            Err(_) if Instant::now() < until => tokio::time::sleep(ASK_AGAIN).await,
            result => return result,
        }
    }
}

impl Glass {
    fn answer(&self, socket: &Path, question: &Question, outlet: &mut Outlet) -> Result<(), Problem> {
        let mut router = connect(socket)?;
        match question {
            Question::Status => {
                let status: Option<StatusView> = router.views(&control::Request::Status)?.into_iter().next();
                let rib = self.rib(&mut router)?;
                self.write(outlet, "status", &self.status(&status.unwrap_or_default(), &rib));
            }
            Question::Protocols => {
                let rib = self.rib(&mut router)?;
                let neighbors = self.neighbors(&mut router)?;
                let views = neighbors.iter().map(|(id, view)| (id.clone(), self.protocol(id, view, &rib)));
                self.write(outlet, "protocols", &Value::Object(views.collect()));
            }
            Question::ProtocolsShort => {
                let neighbors = self.neighbors(&mut router)?;
                let views = neighbors.iter().map(|(id, view)| (id.clone(), self.short(view)));
                self.write(outlet, "protocols", &Value::Object(views.collect()));
            }
            Question::OfNeighbor(id) | Question::RejectedOf(id) | Question::NotExportedTo(id) => {
                let neighbors = self.neighbors(&mut router)?;
                let filter = neighbors.get(id).and_then(|view| {
                    let neighbor = Some(view.name.clone());
                    match question {
                        Question::NotExportedTo(_) => view
                            .uptime_s
                            .map(|_| RouteFilter { not_advertised_to: neighbor, ..RouteFilter::default() }),
                        Question::RejectedOf(_) => view.kept_by_family.map(|_| RouteFilter {
                            neighbor,
                            rejected: true,
                            ..RouteFilter::default()
                        }),
                        _ => Some(RouteFilter { neighbor, ..RouteFilter::default() }),
                    }
                });
                match filter {
                    None => self.write(outlet, "routes", &Value::Array(Vec::new())),
                    Some(filter) => {
                        let request = BgpRequest::Routes(filter);
                        return self.routes(&mut router, request, &neighbors, outlet);
                    }
                }
            }
            Question::OfFamily(family) | Question::RejectedOfFamily(family) => {
                let rejected = matches!(question, Question::RejectedOfFamily(_));
                let family = Some((*family).to_owned());
                let filter = RouteFilter { family, rejected, ..RouteFilter::default() };
                let neighbors = self.neighbors(&mut router)?;
                return self.routes(&mut router, BgpRequest::Routes(filter), &neighbors, outlet);
            }
            Question::OfPrefix(prefix) => {
                let request = BgpRequest::Route { destination: prefix.clone(), exact: false, why: false };
                let neighbors = self.neighbors(&mut router)?;
                return self.routes(&mut router, request, &neighbors, outlet);
            }
            Question::OpenBgpd(question) => {
                let neighbors = self.neighbors(&mut router)?;
                let Some(request) = question.routes() else {
                    // Who is gone needs no answer.
                    let _ = outlet.write(openbgpd::neighbors(question, &neighbors).to_string());
                    return Ok(());
                };
                return self.openbgpd_routes(&mut router, request, &neighbors, outlet);
            }
        }
        Ok(())
    }

    /// [`Self::routes`] in the form of bgplgd.
    fn openbgpd_routes(
        &self,
        router: &mut Client,
        request: BgpRequest,
        neighbors: &BTreeMap<String, BgpNeighborView>,
        outlet: &mut Outlet,
    ) -> Result<(), Problem> {
        let rib = self.rib(router)?;
        let is_sent = matches!(&request, BgpRequest::Routes(RouteFilter { advertised_to: Some(_), .. }));
        let list = List { before: "{\"rib\":[".to_owned(), end: "]}", empty: "{}".to_owned() };
        stream(router, request, outlet, list, &|item| {
            if is_sent {
                let route: SentRouteView = serde_json::from_str(item).ok()?;
                let neighbor = neighbors.get(&views::id(&route.neighbor))?;
                return Some(openbgpd::sent_route(&route, Some(neighbor), &rib));
            }
            let route: RouteView = serde_json::from_str(item).ok()?;
            let neighbor = shown(neighbors, &route)?;
            Some(openbgpd::rib_route(&route, neighbor, &rib))
        })
    }

    fn rib(&self, router: &mut Client) -> Result<RibView, Problem> {
        Ok(router.views(&control::Request::Bgp(BgpRequest::Rib))?.into_iter().next().unwrap_or_default())
    }

    /// The neighbors that are shown, by ID.
    fn neighbors(&self, router: &mut Client) -> Result<BTreeMap<String, BgpNeighborView>, Problem> {
        let views: Vec<BgpNeighborView> = router.views(&control::Request::Bgp(BgpRequest::Neighbors))?;
        let shown = views.into_iter().filter(|view| !self.hidden.contains(&view.name.to_ascii_lowercase()));
        Ok(shown.map(|view| (views::id(&view.name), view)).collect())
    }

    /// Streams routes; those of neighbors that are not shown are left out.
    fn routes(
        &self,
        router: &mut Client,
        request: BgpRequest,
        neighbors: &BTreeMap<String, BgpNeighborView>,
        outlet: &mut Outlet,
    ) -> Result<(), Problem> {
        let before = self.beginning("routes") + "[";
        let list = List { empty: format!("{before}]}}"), before, end: "]}" };
        stream(router, request, outlet, list, &|item| {
            let route: RouteView = serde_json::from_str(item).ok()?;
            let neighbor = shown(neighbors, &route)?;
            Some(self.route(&route, neighbor))
        })
    }

    fn write(&self, outlet: &mut Outlet, name: &str, value: &Value) {
        // Who is gone needs no answer.
        let _ = outlet.write(format!("{}{value}}}", self.beginning(name)));
    }
}

/// The texts around a list.
struct List {
    before: String,
    end: &'static str,
    /// Instead of both, if nothing is in the list.
    empty: String,
}

/// The neighbor of a route, `None` for a route of this router. The outer `None`: it is not shown.
#[allow(clippy::option_option, reason = "the outer one says whether there is anything to show")]
fn shown<'n>(
    neighbors: &'n BTreeMap<String, BgpNeighborView>,
    route: &RouteView,
) -> Option<Option<&'n BgpNeighborView>> {
    let neighbor = neighbors.get(&views::id(&route.neighbor));
    (neighbor.is_some() || route.neighbor == "local").then_some(neighbor)
}

/// Streams those items of an answer that have a view.
fn stream(
    router: &mut Client,
    request: BgpRequest,
    outlet: &mut Outlet,
    list: List,
    view: &dyn Fn(&str) -> Option<Value>,
) -> Result<(), Problem> {
    let mut before = list.before.as_str();
    router.ask(&control::Request::Bgp(request), |item| {
        let Some(view) = view(item) else { return ControlFlow::Continue(()) };
        let result = outlet.write(before).and_then(|()| outlet.write(view.to_string()));
        before = ",";
        if result.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // Who is gone needs no answer.
    let _ = outlet.write(if before == "," { list.end } else { &list.empty });
    Ok(())
}

#[cfg(test)]
mod tests;
