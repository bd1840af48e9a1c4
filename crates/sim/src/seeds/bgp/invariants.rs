//! The invariants of routers, at any moment and after convergence.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::Attrs;
use thalweg_bgp::session::State;
use thalweg_node::control::{BgpRequest, RouteView};
use thalweg_node::speaker::{SessionFacts, Speaker};
use thalweg_wire::bgp::Origin;

use super::oracle::{Mark, Oracle, Row, Table};
use super::plan::Plan;
use super::text::routers_of_name;
use crate::error::SimError;
use crate::network::Network;
use crate::seeds::coverage::Coverage;
use crate::seeds::trial::Violation;

/// The number of differences that a violation lists.
const DIFFERENCES: usize = 4;

/// A path that a router holds.
struct Held {
    prefix: IpPrefix,
    /// The neighbor's name in the router's configuration; none for its own routes.
    neighbor: Option<Arc<str>>,
    is_best: bool,
    is_stale: bool,
    is_damped: bool,
    row: Row,
}

impl Held {
    fn neighbor(&self) -> &str {
        self.neighbor.as_deref().unwrap_or("local")
    }
}

struct Bench<'a> {
    network: &'a Network,
    router: usize,
}

impl Bench<'_> {
    fn broken(&self, invariant: &'static str, text: String) -> Violation {
        Violation { invariant, router: Some(self.router), at_us: self.network.now_us(), text }
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: &BgpRequest) -> Result<Vec<T>, Violation> {
        let broken = |error: SimError| self.broken("requests are accepted", error.to_string());
        self.network.ask(self.router, request).map_err(broken)
    }

    fn speaker(&self) -> Result<Arc<Speaker>, Violation> {
        self.network.speaker(self.router).map_err(|error| self.broken("a router runs", error.to_string()))
    }

    fn routes(&self) -> Result<Vec<Held>, Violation> {
        let mut routes = Vec::new();
        self.speaker()?.each_path(&mut |prefix, path, is_best, neighbor| {
            let neighbor = neighbor.map(|info| info.name.clone());
            let from = neighbor.as_deref().and_then(routers_of_name).map(|(_, other)| other);
            let row = Row {
                from,
                path: path.attrs.as_path().segments().flat_map(|segment| segment.asns()).collect(),
                local_pref: path.attrs.local_pref,
                incomplete: path.attrs.origin != Origin::Igp,
                med: path.attrs.med(),
                marks: marks(path.attrs),
                next_hop: from.is_some().then(|| path.attrs.next_hop().address()),
                originator: path.attrs.originator_id(),
                clusters: path.attrs.cluster_list().collect(),
                path_id: path.path_id,
            };
            let (is_stale, is_damped) = (path.stale, path.damped);
            routes.push(Held { prefix, neighbor, is_best, is_stale, is_damped, row });
        });
        Ok(routes)
    }

    /// Counters agree with the tables.
    fn counters(&self, routes: &[Held], neighbors: &[SessionFacts]) -> Result<(), Violation> {
        let mut held: HashMap<&str, u64> = HashMap::new();
        for route in routes {
            *held.entry(route.neighbor()).or_default() += 1;
        }
        for neighbor in neighbors {
            let held = held.get(&*neighbor.name).copied().unwrap_or(0);
            if held != neighbor.accepted {
                let text = format!("{}: {} routes counted, {held} held", neighbor.name, neighbor.accepted);
                return Err(self.broken("counters are what tables hold", text));
            }
        }
        let paths = self.speaker()?.rib_view().paths;
        let counted = paths.ipv4 + paths.ipv6;
        if counted != routes.len() as u64 {
            let text = format!("{counted} routes counted, {} held", routes.len());
            return Err(self.broken("counters are what tables hold", text));
        }
        Ok(())
    }

    /// The routes, after the checks that hold at any moment.
    fn checked_routes(&self) -> Result<Vec<Held>, Violation> {
        let (routes, neighbors) = (self.routes()?, self.speaker()?.sessions());
        self.counters(&routes, &neighbors)?;
        self.one_best(&routes)?;
        self.no_route_outlives_its_session(&routes, &neighbors)?;
        Ok(routes)
    }

    /// A prefix has at most one best route, which is not suppressed.
    fn one_best(&self, routes: &[Held]) -> Result<(), Violation> {
        if let Some(route) = routes.iter().find(|route| route.is_best && route.is_damped) {
            let text = format!("{} by {}", route.prefix, route.neighbor());
            return Err(self.broken("no route is used while it is suppressed", text));
        }
        let mut best: HashMap<IpPrefix, &str> = HashMap::new();
        for route in routes.iter().filter(|route| route.is_best) {
            if let Some(other) = best.insert(route.prefix, route.neighbor()) {
                let text = format!("{} by {other} and by {}", route.prefix, route.neighbor());
                return Err(self.broken("a prefix has one best route", text));
            }
        }
        Ok(())
    }

    /// When a session has ended, its routes are gone or kept for the neighbor's restart.
    fn no_route_outlives_its_session(
        &self,
        routes: &[Held],
        neighbors: &[SessionFacts],
    ) -> Result<(), Violation> {
        let is_up = |each: &&SessionFacts| each.state == State::Established;
        let down: Vec<&str> = neighbors.iter().filter(|each| !is_up(each)).map(|each| &*each.name).collect();
        let left = routes.iter().find(|route| !route.is_stale && down.contains(&route.neighbor()));
        match left {
            None => Ok(()),
            Some(route) => {
                let text = format!("{} by {}, whose session has ended", route.prefix, route.neighbor());
                Err(self.broken("no route outlives its session", text))
            }
        }
    }
}

/// Checks what holds for a router at any moment. The sessions with the neighbors in `shut` were shut down for
/// good, so no restart is expected of them.
pub(super) fn always(
    network: &Network,
    router: usize,
    shut: &[String],
    coverage: &mut Coverage,
) -> Result<(), Violation> {
    if !network.is_running(router) {
        return Ok(());
    }
    let bench = Bench { network, router };
    let routes = bench.checked_routes()?;
    if let Some(left) = routes.iter().find(|route| shut.iter().any(|name| name == route.neighbor())) {
        let text = format!("{} by {}", left.prefix, left.neighbor());
        return Err(bench.broken("a session that is shut down leaves no routes", text));
    }
    meet_states(&bench, coverage)
}

/// Records the states of sessions, and the states that they passed since the router started.
fn meet_states(bench: &Bench<'_>, coverage: &mut Coverage) -> Result<(), Violation> {
    for session in bench.speaker()?.sessions() {
        coverage.meet("state", &session.state.to_string());
        for (from, to) in session.transitions.pairs() {
            coverage.meet("transition", &format!("{from} to {to}"));
        }
    }
    Ok(())
}

/// Names a session that is not established.
pub(super) fn session_down(network: &Network, after_us: u64) -> Violation {
    let mut text = format!("some are not after {} s", after_us / 1_000_000);
    let mut router = None;
    for at in 0..network.len() {
        let neighbors = network.speaker(at).map(|speaker| speaker.neighbors()).unwrap_or_default();
        if let Some(down) = neighbors.into_iter().find(|each| each.state != "Established") {
            let why = down.last_error.unwrap_or_default();
            text = format!("{} is {} after {} s; {why}", down.name, down.state, after_us / 1_000_000);
            router = Some(at);
            break;
        }
    }
    Violation { invariant: "sessions come up", router, at_us: network.now_us(), text }
}

/// Checks what holds for all routers after convergence.
pub(super) fn at_rest(network: &Network, plan: &Plan, coverage: &mut Coverage) -> Result<(), Violation> {
    let oracle = Oracle::new(plan);
    let mut tables = Vec::with_capacity(network.len());
    for router in 0..network.len() {
        let bench = Bench { network, router };
        let routes = bench.checked_routes()?;
        if let Some(stale) = routes.iter().find(|route| route.is_stale) {
            let text = format!("{} by {}", stale.prefix, stale.neighbor());
            return Err(bench.broken("nothing is stale at rest", text));
        }
        for neighbor in bench.speaker()?.neighbors() {
            coverage.meet_counters("", &neighbor.counters);
        }
        meet_states(&bench, coverage)?;
        meet_decisions(&bench, &routes, coverage)?;
        tables.push(table(&bench, &oracle, routes)?);
    }
    compare(network, &oracle, &tables)?;
    walk(network, &oracle, &tables)
}

/// Records the steps that decided about a prefix.
fn meet_decisions(bench: &Bench<'_>, routes: &[Held], coverage: &mut Coverage) -> Result<(), Violation> {
    let mut several: BTreeMap<IpPrefix, usize> = BTreeMap::new();
    for route in routes {
        *several.entry(route.prefix).or_default() += 1;
    }
    // The prefix with the most routes has the most decisions.
    let Some((prefix, _)) = several.into_iter().filter(|(_, routes)| *routes > 1).max_by_key(|each| each.1)
    else {
        return Ok(());
    };
    let request = BgpRequest::Route { destination: prefix.to_string(), exact: true, why: true };
    for route in bench.ask::<RouteView>(&request)? {
        if let Some(why) = route.why.filter(|_| !route.best) {
            let words = why.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
            coverage.meet("decided", &words.collect::<Vec<_>>().join(" "));
        }
    }
    Ok(())
}

/// A router's routes in the oracle's form, best first; the first must be the one in use.
fn table(bench: &Bench<'_>, oracle: &Oracle<'_>, routes: Vec<Held>) -> Result<Table, Violation> {
    let mut table = Table::new();
    let mut used = BTreeMap::new();
    for Held { prefix, is_best, row, .. } in routes {
        if is_best {
            used.insert(prefix, row.clone());
        }
        table.entry(prefix).or_default().push(row);
    }
    for (prefix, rows) in &mut table {
        oracle.rank(bench.router, rows);
        if used.get(prefix) != rows.first() {
            let used = used.get(prefix).map(|row| Oracle::source(bench.router, row));
            let better = rows.first().map(|row| Oracle::source(bench.router, row));
            let text = format!("{prefix}: {used:?} is used, {better:?} is better");
            return Err(bench.broken("the best route is used", text));
        }
    }
    Ok(table)
}

/// Compares the tables with those that follow from the plan; if several paths are sent, with those that
/// follow from each other.
fn compare(network: &Network, oracle: &Oracle<'_>, tables: &[Table]) -> Result<(), Violation> {
    let wanted = match oracle.sends_one_path() {
        true => oracle.tables(),
        false => None,
    };
    let wanted = wanted.unwrap_or_else(|| oracle.next(tables));
    for (router, (has, wanted)) in tables.iter().zip(&wanted).enumerate() {
        let mut differences = Vec::new();
        for prefix in has.keys().chain(wanted.keys().filter(|prefix| !has.contains_key(*prefix))) {
            let [has, wanted] = [has, wanted].map(|table| table.get(prefix).map_or(&[][..], Vec::as_slice));
            if has != wanted && plain(has) != plain(wanted) {
                let (has, wanted) = (plain(has), plain(wanted));
                differences.push(format!("{prefix} is {has:?} and must be {wanted:?}"));
            }
        }
        if !differences.is_empty() {
            let count = differences.len();
            differences.truncate(DIFFERENCES);
            let text = format!("{count} prefixes; {}", differences.join("; "));
            return Err(Bench { network, router }.broken("tables are what neighbors announce", text));
        }
    }
    Ok(())
}

/// The rows without path identifiers, which the sender chooses, and in an order that does not depend on them.
fn plain(rows: &[Row]) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.iter().map(|row| Row { path_id: 0, ..row.clone() }).collect();
    rows.sort_unstable();
    rows
}

fn marks(attrs: &Attrs) -> Vec<Mark> {
    let standard = attrs.communities().map(|each| [0, each >> 16, each & 0xffff]);
    let extended = attrs.extended_communities().map(|each| [u32::MAX, (each >> 32) as u32, each as u32]);
    let mut marks: Vec<Mark> = standard.chain(extended).chain(attrs.large_communities()).collect();
    marks.sort_unstable();
    marks
}

/// A packet that follows best routes arrives: it never loops and never meets a router without a route.
fn walk(network: &Network, oracle: &Oracle<'_>, tables: &[Table]) -> Result<(), Violation> {
    for (start, table) in tables.iter().enumerate() {
        for prefix in table.keys() {
            let mut at = start;
            for hop in 0.. {
                let next = tables[at].get(prefix).and_then(|rows| rows.first());
                let what = match next {
                    Some(Row { from: None, .. }) => break,
                    Some(_) if hop > tables.len() => "goes in a circle",
                    Some(row) => match oracle.leads_to(row) {
                        Some(next) => {
                            at = next;
                            continue;
                        }
                        None => "is sent to an address that nobody has",
                    },
                    None => "ends at a router without a route",
                };
                let text = format!("{prefix} from router {start} {what}");
                return Err(Bench { network, router: at }.broken("packets arrive", text));
            }
        }
    }
    Ok(())
}
