//! The routes that the routers of a plan must have after convergence, computed from the plan alone, slowly
//! and simply.
//!
//! A router's routes are its neighbors' announcements of their best routes. So each set of tables determines
//! the next one. If a plan's paths can only grow, or its relationships have no circle, the sequence reaches a
//! fixed point. Prefixes are independent: those of one kind that the same routers originate have the same
//! routes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use thalweg_base::IpPrefix;

use super::plan::Plan;
use super::text::{
    CUSTOMER, LEARNED, Other, PASSED, asn, inner_asn, ipv6_address, kind, neighbor_name, prefixes,
};
use crate::policy::address;

/// LOCAL_PREF if no policy sets one.
const LOCAL_PREF: u32 = 100;

/// How many of its routes a route server tries for a client.
const SERVER_RANKS: usize = 4;

/// A route in a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    /// The router at the other end of the link on which it was received; none for the router's own.
    pub(super) from: Option<usize>,
    pub(super) path: Vec<u32>,
    pub(super) local_pref: u32,
    /// ORIGIN is INCOMPLETE and not IGP.
    pub(super) incomplete: bool,
    pub(super) med: Option<u32>,
    pub(super) marks: Vec<Mark>,
    /// None for the router's own.
    pub(super) next_hop: Option<IpAddr>,
    /// Of a route that was reflected, who brought it into the AS, and who reflected it, the last one first.
    pub(super) originator: Option<Ipv4Addr>,
    pub(super) clusters: Vec<Ipv4Addr>,
    pub(super) path_id: u32,
}

/// A community: a standard one after a 0, an extended one after the highest number, a large one unchanged.
pub(super) type Mark = [u32; 3];

/// The routes of a router, by prefix, best first.
pub(super) type Table = BTreeMap<IpPrefix, Vec<Row>>;

/// Derives routes from a plan.
pub(super) struct Oracle<'a> {
    plan: &'a Plan,
    /// The originators of each prefix.
    origins: BTreeMap<IpPrefix, Vec<usize>>,
    /// The router of each address.
    routers: BTreeMap<IpAddr, usize>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let mut origins: BTreeMap<IpPrefix, Vec<usize>> = BTreeMap::new();
        for router in 0..plan.routers.len() {
            prefixes(plan, router)
                .into_iter()
                .for_each(|prefix| origins.entry(prefix).or_default().push(router));
        }
        let addresses = |router| [IpAddr::from(address(router)), ipv6_address(router).into()];
        let routers = (0..plan.routers.len()).flat_map(|router| addresses(router).map(|own| (own, router)));
        Self { plan, origins, routers: routers.collect() }
    }

    /// The router that is a route's next hop; none for the router's own.
    pub(super) fn leads_to(&self, row: &Row) -> Option<usize> {
        self.routers.get(&row.next_hop?).copied()
    }

    /// Whether each neighbor receives at most one path of a prefix.
    pub(super) fn sends_one_path(&self) -> bool {
        self.plan.features.paths < 2
    }

    /// The tables at the fixed point; `None` if it is not reached in time.
    pub(super) fn tables(&self) -> Option<Vec<Table>> {
        let mut alike: BTreeMap<_, Vec<IpPrefix>> = BTreeMap::new();
        for (prefix, origins) in &self.origins {
            let is_ipv4 = matches!(prefix, IpPrefix::V4(_));
            alike.entry((is_ipv4, kind(*prefix), origins)).or_default().push(*prefix);
        }
        let mut tables = vec![Table::new(); self.plan.routers.len()];
        for prefixes in alike.values() {
            for (table, rows) in tables.iter_mut().zip(self.stable(prefixes[0])?) {
                if !rows.is_empty() {
                    table.extend(prefixes.iter().map(|prefix| (*prefix, rows.clone())));
                }
            }
        }
        Some(tables)
    }

    /// Every router's routes of a prefix at the fixed point.
    fn stable(&self, prefix: IpPrefix) -> Option<Vec<Vec<Row>>> {
        let routers = self.plan.routers.len();
        let mut all = vec![Vec::new(); routers];
        for _ in 0..4 * routers + 8 {
            let next: Vec<_> = (0..routers).map(|router| self.rows(router, prefix, |at| &all[at])).collect();
            if next == all {
                return Some(all);
            }
            all = next;
        }
        None
    }

    /// The tables that follow from those of the neighbors.
    pub(super) fn next(&self, tables: &[Table]) -> Vec<Table> {
        let known: BTreeSet<IpPrefix> = tables.iter().flat_map(|table| table.keys().copied()).collect();
        let mut next = vec![Table::new(); tables.len()];
        for prefix in self.origins.keys().copied().chain(known) {
            for (router, table) in next.iter_mut().enumerate() {
                let rows = self.rows(router, prefix, |at| tables[at].get(&prefix).map_or(&[], Vec::as_slice));
                if !rows.is_empty() {
                    table.insert(prefix, rows);
                }
            }
        }
        next
    }

    /// A router's routes of a prefix, best first: its own and its neighbors' announcements.
    fn rows<'t>(&self, router: usize, prefix: IpPrefix, of: impl Fn(usize) -> &'t [Row]) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.origins.get(&prefix).is_some_and(|origins| origins.contains(&router)) {
            rows.push(Row {
                from: None,
                path: Vec::new(),
                local_pref: LOCAL_PREF,
                incomplete: false,
                med: None,
                marks: Vec::new(),
                next_hop: None,
                originator: None,
                clusters: Vec::new(),
                path_id: 0,
            });
        }
        for (link, end, other) in self.plan.links_of(router) {
            // A route server tries its next best route for a client that may not receive the best (RFC 7947
            // 2.3).
            let is_served = self.plan.routers[other].route_server && self.sends_one_path();
            let ranks = if is_served { SERVER_RANKS } else { usize::from(self.plan.features.paths).max(1) };
            let sent = of(other).iter().take(ranks);
            let sent = sent.filter_map(|row| self.announced(other, link, 1 - end, prefix, row));
            let sent = sent.take(if is_served { 1 } else { ranks });
            rows.extend(sent.filter_map(|row| self.accepted(router, link, end, row)));
        }
        self.rank(router, &mut rows);
        rows
    }

    /// What a router announces of a route at one end of a link.
    fn announced(&self, router: usize, link: usize, end: usize, prefix: IpPrefix, row: &Row) -> Option<Row> {
        let plan = &self.plan.links[link];
        let (policy, relation) = (&plan.ends[end], Other::at(self.plan, link, end));
        let other = if end == 0 { plan.b } else { plan.a };
        if self.plan.is_internal(link) {
            return self.announced_inside(router, other, prefix, row);
        }
        let is_ours = |relation| match row.from {
            None => true,
            Some(_) if relation == Other::Customer => true,
            Some(from) if self.are_one_as(router, from) => row.marks.contains(&[0, LEARNED, CUSTOMER]),
            Some(from) => self.relation(router, from) == Some(Other::Customer),
        };
        if row.from == Some(other) || policy.reject == Some(kind(prefix)) || !relation.is_none_or(is_ours) {
            return None;
        }
        let is_server = self.plan.routers[router].route_server;
        let prepend = if is_server { 0 } else { 1 + usize::from(policy.prepend) };
        let mut path = vec![asn(self.plan, router); prepend];
        path.extend(self.outer(row));
        let mut marks = row.marks.clone();
        marks.retain(|mark| mark[..2] != [0, LEARNED]);
        marks.extend(policy.mark.then_some([0, PASSED, router as u32]));
        let next_hop = if is_server { row.next_hop? } else { own_address(router, prefix) };
        Some(Row {
            from: Some(router),
            path,
            local_pref: LOCAL_PREF,
            incomplete: row.incomplete || policy.incomplete,
            med: policy.med.or(row.med.filter(|_| is_server)),
            marks,
            next_hop: Some(next_hop),
            originator: None,
            clusters: Vec::new(),
            path_id: 0,
        })
    }

    /// What a router passes on to another one of its AS (RFC 4271 9.2.1, RFC 4456, RFC 5065).
    fn announced_inside(&self, router: usize, other: usize, prefix: IpPrefix, row: &Row) -> Option<Row> {
        let mut sent = Row { from: Some(router), path_id: 0, ..row.clone() };
        match row.from {
            None => {
                sent.marks.push([0, LEARNED, CUSTOMER]);
                sent.next_hop = Some(own_address(router, prefix));
            }
            Some(from) if from == other => return None,
            Some(from) if self.are_one_as(router, from) && !self.plan.is_member(router) => {
                let serves = |at: usize| self.plan.routers[at].client_of == Some(router);
                if !serves(from) && !serves(other) {
                    return None;
                }
                sent.originator = row.originator.or(Some(address(from)));
                sent.clusters.insert(0, address(router));
            }
            Some(_) => {}
        }
        if self.plan.is_member(router) {
            sent.path.insert(0, inner_asn(self.plan, router));
        }
        (sent.next_hop != Some(own_address(other, prefix))).then_some(sent)
    }

    fn are_one_as(&self, a: usize, b: usize) -> bool {
        self.plan.within(a) == self.plan.within(b)
    }

    /// A path without members of a confederation.
    fn outer<'r>(&self, row: &'r Row) -> impl Iterator<Item = u32> + 'r {
        let members = (0..self.plan.routers.len()).filter(|at| self.plan.is_member(*at));
        let members: Vec<u32> = members.map(|at| inner_asn(self.plan, at)).collect();
        row.path.iter().copied().filter(move |asn| !members.contains(asn))
    }

    /// The result of a router's import policy.
    fn accepted(&self, router: usize, link: usize, end: usize, mut row: Row) -> Option<Row> {
        let own = [asn(self.plan, router), inner_asn(self.plan, router)];
        let is_own = |id: &Ipv4Addr| *id == address(router);
        if own.iter().any(|asn| row.path.contains(asn))
            || row.originator.iter().chain(&row.clusters).any(is_own)
        {
            return None;
        }
        if let Some(relation) = Other::at(self.plan, link, end) {
            row.local_pref = relation.local_pref();
            row.marks.push([0, LEARNED, row.local_pref]);
        }
        row.marks.sort_unstable();
        row.marks.dedup();
        Some(row)
    }

    fn relation(&self, router: usize, other: usize) -> Option<Other> {
        let (link, end, _) = self.plan.links_of(router).find(|(.., at)| *at == other)?;
        Other::at(self.plan, link, end)
    }

    /// Sorts routes of a prefix by preference: the best one, the best of the others, and so on.
    pub(super) fn rank(&self, router: usize, rows: &mut [Row]) {
        for rank in 0..rows.len() {
            let best = rank + self.best(router, &rows[rank..]);
            rows[rank..=best].rotate_right(1);
        }
    }

    /// The index of the best route (RFC 4271 section 9.1.2); 0 without routes.
    fn best(&self, router: usize, rows: &[Row]) -> usize {
        let metric = |row: &Row| {
            if self.plan.is_inside(router) {
                return self.leads_to(row).map_or(0, Plan::cost_inside);
            }
            // A route server's clients are reached through it, unless there is a shorter path.
            let to = |at: Option<usize>| self.plan.links_of(router).find(|(.., other)| Some(*other) == at);
            to(self.leads_to(row))
                .or_else(|| to(row.from))
                .map_or(0, |(link, end, _)| self.plan.links[link].ends[end].metric)
        };
        let first_steps = |row: &Row| {
            (Reverse(row.local_pref), row.from.is_some(), self.outer(row).count(), row.incomplete)
        };
        let Some(first) = rows.iter().map(first_steps).min() else { return 0 };
        let left: Vec<usize> = (0..rows.len()).filter(|at| first_steps(&rows[*at]) == first).collect();
        // MED counts only between routes of the same neighboring AS.
        let is_beaten = |row: &Row| {
            left.iter().map(|at| &rows[*at]).any(|other| {
                self.outer(other).next() == self.outer(row).next()
                    && other.med.unwrap_or(0) < row.med.unwrap_or(0)
            })
        };
        let unbeaten = left.iter().copied().filter(|at| !is_beaten(&rows[*at]));
        let last_steps = |row: &Row| {
            let is_inner = row.from.is_some_and(|from| self.are_one_as(router, from));
            let identifier = row.originator.or(row.from.map(address));
            (is_inner, metric(row), identifier, row.clusters.len(), row.from, row.path_id)
        };
        unbeaten.min_by_key(|at| last_steps(&rows[*at])).unwrap_or(0)
    }

    /// The neighbor's name in the router's configuration.
    pub(super) fn source(router: usize, row: &Row) -> String {
        row.from.map_or("local".to_owned(), |other| neighbor_name(router, other))
    }
}

/// The address that a router is reached at by packets to a prefix.
fn own_address(router: usize, prefix: IpPrefix) -> IpAddr {
    match prefix {
        IpPrefix::V4(_) => address(router).into(),
        IpPrefix::V6(_) => ipv6_address(router).into(),
    }
}
