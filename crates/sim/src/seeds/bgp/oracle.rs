//! What the routers of a plan must have when they are at rest: from the plan alone, slowly and plainly.
//!
//! A router's routes are what its neighbors announce of their best ones. So from any table follows the next one, and
//! a plan whose paths can only grow, or whose links have relationships without a circle, comes to one table that
//! follows from itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::plan::Plan;
use super::text::{Other, asn, ipv6_address, mark, neighbor_name, prefixes};
use crate::policy::address;

/// LOCAL_PREF where no policy sets one.
const LOCAL_PREF: u32 = 100;

/// A route as a table has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    /// The router at the other end of the link it came over; none for its own.
    pub(super) from: Option<usize>,
    pub(super) path: Vec<u32>,
    pub(super) local_pref: u32,
    pub(super) med: Option<u32>,
    pub(super) marks: Vec<String>,
    pub(super) next_hop: String,
    pub(super) path_id: u32,
}

/// The routes of a router, by prefix, best first.
pub(super) type Table = BTreeMap<String, Vec<Row>>;

/// What follows from a plan.
pub(super) struct Oracle<'a> {
    plan: &'a Plan,
    own: Vec<Vec<(String, u8)>>,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let own = (0..plan.routers.len()).map(|router| prefixes(plan, router)).collect();
        Self { plan, own }
    }

    /// Whether each neighbor gets one path of a prefix.
    pub(super) fn sends_one_path(&self) -> bool {
        self.plan.features.paths < 2
    }

    /// The tables that follow from themselves; `None` if they do not come about in time.
    pub(super) fn tables(&self) -> Option<Vec<Table>> {
        let mut tables = vec![Table::new(); self.plan.routers.len()];
        for _ in 0..4 * self.plan.routers.len() + 8 {
            let next = self.next(&tables);
            if next == tables {
                return Some(tables);
            }
            tables = next;
        }
        None
    }

    /// The tables that neighbors' tables make.
    pub(super) fn next(&self, tables: &[Table]) -> Vec<Table> {
        (0..tables.len()).map(|router| self.table(router, tables)).collect()
    }

    fn table(&self, router: usize, tables: &[Table]) -> Table {
        let mut table = Table::new();
        for (prefix, _) in &self.own[router] {
            let row = Row {
                from: None,
                path: Vec::new(),
                local_pref: LOCAL_PREF,
                med: None,
                marks: Vec::new(),
                next_hop: "self".to_owned(),
                path_id: 0,
            };
            table.entry(prefix.clone()).or_default().push(row);
        }
        for (link, end, other) in self.plan.links_of(router) {
            for (prefix, rows) in &tables[other] {
                let sent = rows.iter().take(usize::from(self.plan.features.paths).max(1));
                for row in sent.filter_map(|row| self.announced(other, link, 1 - end, prefix, row)) {
                    if let Some(row) = self.accepted(router, link, end, row) {
                        table.entry(prefix.clone()).or_default().push(row);
                    }
                }
            }
        }
        for rows in table.values_mut() {
            self.rank(router, rows);
        }
        table
    }

    /// What a router announces of a route at one end of a link.
    fn announced(&self, router: usize, link: usize, end: usize, prefix: &str, row: &Row) -> Option<Row> {
        let plan = &self.plan.links[link];
        let (policy, relation) = (&plan.ends[end], Other::at(plan.is, end));
        let other = if end == 0 { plan.b } else { plan.a };
        let is_ours = |relation| match row.from {
            None => true,
            Some(from) => relation == Other::Customer || self.relation(router, from) == Some(Other::Customer),
        };
        let kind = prefix_kind(prefix);
        if row.from == Some(other) || policy.reject == Some(kind) || !relation.is_none_or(is_ours) {
            return None;
        }
        let own = asn(self.plan, router);
        let mut path = vec![own; 1 + usize::from(policy.prepend)];
        path.extend(&row.path);
        let mut marks = row.marks.clone();
        marks.retain(|mark| !mark.starts_with("64512:"));
        marks.extend(policy.mark.then(|| mark(router)));
        let next_hop = match prefix.contains(':') {
            true => ipv6_address(router).to_string(),
            false => address(router).to_string(),
        };
        Some(Row {
            from: Some(router),
            path,
            local_pref: LOCAL_PREF,
            med: policy.med,
            marks,
            next_hop,
            path_id: 0,
        })
    }

    /// What a router makes of what it is sent.
    fn accepted(&self, router: usize, link: usize, end: usize, mut row: Row) -> Option<Row> {
        if row.path.contains(&asn(self.plan, router)) {
            return None;
        }
        if let Some(relation) = Other::at(self.plan.links[link].is, end) {
            row.local_pref = relation.local_pref();
            row.marks.push(format!("64512:{}", row.local_pref));
        }
        row.marks.sort_unstable();
        row.marks.dedup();
        Some(row)
    }

    fn relation(&self, router: usize, other: usize) -> Option<Other> {
        let (link, end, _) = self.plan.links_of(router).find(|(.., at)| *at == other)?;
        Other::at(self.plan.links[link].is, end)
    }

    /// Brings routes of a prefix into the order of preference: the best one, the best of the others, and so on.
    pub(super) fn rank(&self, router: usize, rows: &mut [Row]) {
        for rank in 0..rows.len() {
            let best = rank + self.best(router, &rows[rank..]);
            rows[rank..=best].rotate_right(1);
        }
    }

    /// The place of the best route (RFC 4271 section 9.1.2); of none, 0.
    fn best(&self, router: usize, rows: &[Row]) -> usize {
        let metric = |row: &Row| {
            let link = self.plan.links_of(router).find(|(.., other)| Some(*other) == row.from);
            link.map_or(0, |(link, end, _)| self.plan.links[link].ends[end].metric)
        };
        let first_steps = |row: &Row| (Reverse(row.local_pref), row.from.is_some(), row.path.len());
        let Some(first) = rows.iter().map(first_steps).min() else { return 0 };
        let left: Vec<usize> = (0..rows.len()).filter(|at| first_steps(&rows[*at]) == first).collect();
        // MED counts between routes of one neighboring AS only.
        let is_beaten = |row: &Row| {
            left.iter().map(|at| &rows[*at]).any(|other| {
                other.path.first() == row.path.first() && other.med.unwrap_or(0) < row.med.unwrap_or(0)
            })
        };
        let unbeaten = left.iter().copied().filter(|at| !is_beaten(&rows[*at]));
        unbeaten.min_by_key(|at| (metric(&rows[*at]), rows[*at].from, rows[*at].path_id)).unwrap_or(0)
    }

    /// The name a router's neighbor has in its configuration.
    pub(super) fn source(router: usize, row: &Row) -> String {
        row.from.map_or("local".to_owned(), |other| neighbor_name(router, other))
    }
}

fn prefix_kind(prefix: &str) -> u8 {
    let length: u8 = prefix.rsplit('/').next().and_then(|length| length.parse().ok()).unwrap_or(0);
    length - if prefix.contains(':') { 64 } else { 24 }
}
