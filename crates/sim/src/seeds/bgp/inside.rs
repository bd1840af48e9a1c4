//! One AS of several routers in a plan: internal sessions, route reflectors, or a confederation.
//!
//! Such an AS may have two stable states, or none, if its routers rank its exits differently (RFC 3345, Griffin and Wilfong
//! 2002). So all of its routers have the same cost to the same next hop, MED from an AS counts only where that AS has one
//! session with it, and the sessions of a confederation, where the neighbor's identifier decides instead of the
//! originator's, make a tree.

use std::collections::BTreeMap;

use super::plan::{End, Fault, Plan, PlanFault, Relationship};
use super::text::number;
use crate::chance::Random;

/// A power of two above the number of any router, so that costs differ.
const ROUTERS: u32 = 64;

/// Puts some routers that hang together into one AS, if that leaves the plan one stable state.
pub(super) fn draw(random: &mut Random, plan: &mut Plan) {
    let mut drawn = plan.clone();
    drawn.features.confederation = random.happens(0.4);
    let reflects = random.happens(0.8);
    let first = random.below(drawn.routers.len());
    let mut tree = Vec::new();
    let mut inside = vec![first];
    for _ in 0..1 + random.below(4) {
        let next: Vec<(usize, usize)> = inside
            .iter()
            .flat_map(|at| drawn.links_of(*at).map(move |(.., other)| (*at, other)))
            .filter(|(_, other)| !inside.contains(other))
            .collect();
        let Some(&(parent, child)) = next.get(random.below(next.len())) else { break };
        inside.push(child);
        tree.push((parent.min(child), parent.max(child)));
        drawn.routers[child].inside = Some(first);
        let is_client = reflects && !drawn.features.confederation && random.happens(0.9);
        drawn.routers[child].client_of = is_client.then_some(parent);
    }
    if drawn.features.confederation {
        drawn = as_tree(drawn, &tree);
    }
    plain_inside(&mut drawn);
    if drawn.check().is_ok() && tree_is_there(&drawn) {
        *plan = drawn;
    }
}

fn tree_is_there(plan: &Plan) -> bool {
    (0..plan.links.len()).any(|link| plan.is_internal(link))
}

/// The links between routers inside are those of a tree, and nobody outside has two links to them.
fn as_tree(mut plan: Plan, tree: &[(usize, usize)]) -> Plan {
    for link in (0..plan.links.len()).rev() {
        let (a, b) = (plan.links[link].a, plan.links[link].b);
        let (inner, outer) = if plan.is_inside(a) { (a, b) } else { (b, a) };
        let is_second = |plan: &Plan| {
            let first = plan.within(inner);
            plan.links_of(outer).filter(|(.., other)| plan.within(*other) == first).count() > 1
        };
        let goes = match plan.is_internal(link) {
            true => !tree.contains(&(a.min(b), a.max(b))),
            false => plan.is_inside(inner) && is_second(&plan),
        };
        if goes {
            plan = plan.without_link(link);
        }
    }
    plan
}

/// Links inside have no relationship and no policy, and no MED from outside is compared that some routers do not see.
fn plain_inside(plan: &mut Plan) {
    let inner: Vec<bool> = (0..plan.links.len()).map(|link| plan.is_internal(link)).collect();
    let mut sessions: BTreeMap<usize, usize> = BTreeMap::new();
    for link in plan.links.iter() {
        for (at, other) in [(link.a, link.b), (link.b, link.a)] {
            if plan.is_inside(other) && !plan.is_inside(at) {
                *sessions.entry(plan.as_of(at)).or_default() += 1;
            }
        }
    }
    let loses_med = |plan: &Plan, link: usize, end: usize| {
        let (at, other) = (plan.router_at(link, end), plan.router_at(link, 1 - end));
        plan.is_inside(other) && sessions.get(&plan.as_of(at)).is_some_and(|count| *count > 1)
    };
    for (link, is_inner) in inner.iter().enumerate() {
        for end in 0..2 {
            if *is_inner {
                plan.links[link].ends[end] = End::default();
            } else if loses_med(plan, link, end) {
                plan.links[link].ends[end].med = None;
            }
        }
        if *is_inner {
            plan.links[link].is = None;
        }
    }
    let mut rounds = std::mem::take(&mut plan.rounds);
    for event in rounds.iter_mut().flatten() {
        match &mut event.what {
            Fault::Policy { link, now, .. } if inner[*link] => *now = End::default(),
            Fault::Policy { link, end, now } if loses_med(plan, *link, *end) => now.med = None,
            _ => {}
        }
    }
    plan.rounds = rounds;
}

impl Plan {
    /// What each router inside an AS pays for a next hop: no two cost the same, and their order is not that of addresses.
    pub(super) fn cost_inside(to: usize) -> u32 {
        (number(to) * 11 + 5) % ROUTERS
    }

    /// Routers inside one AS, those beside them, and those behind a route server beside them.
    pub(super) fn inside_and_beside(&self, router: usize) -> Vec<usize> {
        let first = self.within(router);
        let linked = |at: usize| self.links_of(at).map(|(.., other)| other);
        let mut all: Vec<usize> = (0..self.routers.len()).filter(|at| self.within(*at) == first).collect();
        let beside: Vec<usize> = all.iter().flat_map(|at| linked(*at)).collect();
        let servers = beside.iter().filter(|at| self.routers[**at].route_server);
        all.extend(servers.flat_map(|at| linked(*at)));
        all.extend(&beside);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// At most one AS has several routers with sessions between them, and these have no policy.
    pub(super) fn check_inside(&self) -> Result<(), PlanFault> {
        let firsts: Vec<usize> = self.routers.iter().filter_map(|router| router.inside).collect();
        let is_one = firsts.iter().all(|first| *first == firsts[0] && *first < self.routers.len());
        if !is_one || firsts.iter().any(|first| self.routers[*first].inside.is_some()) {
            return Err(PlanFault::Inside);
        }
        for (at, router) in self.routers.iter().enumerate() {
            let is_apart = router.site_of.is_some() || router.route_server;
            let is_first_of_site = self.routers.iter().any(|other| other.site_of == Some(at));
            if self.is_inside(at) && (is_apart || is_first_of_site) {
                return Err(PlanFault::InsideAndSite(at));
            }
            if let Some(reflector) = router.client_of {
                let is_linked =
                    self.links_of(at).any(|(link, _, other)| other == reflector && self.is_internal(link));
                let is_mutual = self.routers.get(reflector).is_none_or(|other| other.client_of == Some(at));
                if !is_linked || is_mutual || self.features.confederation {
                    return Err(PlanFault::Reflector { reflector, router: at });
                }
            }
        }
        for (number, link) in self.links.iter().enumerate().filter(|(number, _)| self.is_internal(*number)) {
            let changes = |fault: &Fault| matches!(*fault, Fault::Policy { link, now, .. } if link == number && now != End::default());
            let is_changed = self.rounds.iter().flatten().any(|event| changes(&event.what));
            if link.is.is_some() || link.ends != [End::default(); 2] || is_changed {
                return Err(PlanFault::InternalLink(number));
            }
        }
        if self.features.confederation && !self.is_tree_inside() {
            return Err(PlanFault::Confederation);
        }
        Ok(())
    }

    fn is_tree_inside(&self) -> bool {
        let mut left: Vec<(usize, usize)> = (0..self.links.len())
            .filter(|link| self.is_internal(*link))
            .map(|link| (self.links[link].a, self.links[link].b))
            .collect();
        loop {
            let links_of = |at: usize| left.iter().filter(|link| link.0 == at || link.1 == at).count();
            let rest: Vec<_> =
                left.iter().copied().filter(|(a, b)| links_of(*a) > 1 && links_of(*b) > 1).collect();
            match rest.len() {
                0 => return true,
                same if same == left.len() => return false,
                _ => left = rest,
            }
        }
    }

    /// What the plan's AS of several routers is, for coverage.
    pub(super) fn kinds_inside(&self) -> [(&'static str, bool); 4] {
        let internal = (0..self.links.len()).any(|link| self.is_internal(link));
        let clients = self.routers.iter().filter(|router| router.client_of.is_some());
        let nested = clients.clone().any(|client| {
            client.client_of.is_some_and(|reflector| self.routers[reflector].client_of.is_some())
        });
        let is_provider = |link: usize| self.links[link].is == Some(Relationship::Provider);
        let sells = (0..self.links.len()).any(|link| is_provider(link) && self.is_inside(self.links[link].a));
        [
            ("route reflector", clients.count() > 0),
            ("reflector behind a reflector", nested),
            ("confederation", internal && self.features.confederation),
            ("provider of several routers", sells),
        ]
    }
}
