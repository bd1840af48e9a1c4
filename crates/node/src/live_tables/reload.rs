//! Configured routes that change while packets pass.
//!
//! Only prefixes that differ are touched, a slice at a time, so that other writers of the tables never wait long:
//!
//! 1. Targets that are new get numbers; what these mean is published before the first prefix that leads to one.
//! 2. Prefixes that are new or lead elsewhere are set; then those that are gone are taken out. So an address never is
//!    without a route that has one before and after.
//! 3. Numbers of targets that are gone are free when no packet can be on its way with one any more. The caller knows
//!    when that is.
//!
//! Where the tables have no room for a change, everything is put back as it was.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_dataplane::lpm::NextHopId;

use super::{Group, LiveTables, prefix_of_v4, unused_addresses};
use crate::BuildError;
use thalweg_config::{RouteTarget, RouterConfig, TargetIndex};

/// Stands for the target of addresses that are no host's.
const NOBODY: TargetIndex = TargetIndex::MAX;

/// A prefix that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item<A> {
    prefix: Prefix<A>,
    before: Option<TargetIndex>,
    after: Option<TargetIndex>,
}

/// What is different between the routes of two configurations.
#[derive(Clone, Debug, Default)]
pub struct RouteDifference {
    targets: Vec<RouteTarget>,
    /// By target, the one of the configuration before that is the same.
    same: Vec<Option<TargetIndex>>,
    /// What is set comes first, then what is taken out.
    v4: Vec<Item<u32>>,
    v6: Vec<Item<u128>>,
}

/// How many routes are different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// New.
    pub added: usize,
    /// Lead elsewhere.
    pub changed: usize,
    /// Gone.
    pub removed: usize,
}

/// A change of routes that is under way.
#[derive(Debug)]
pub struct RouteChange {
    difference: RouteDifference,
    /// Numbers of the targets before and after.
    before: Vec<NextHopId>,
    after: Vec<NextHopId>,
    done: usize,
}

impl RouteDifference {
    /// What has to change so that the routes of `after` are those in force.
    pub fn between(before: &RouterConfig, after: &RouterConfig) -> Self {
        let known: HashMap<&RouteTarget, TargetIndex> = before.routing.targets.iter().zip(0..).collect();
        let same: Vec<_> = after.routing.targets.iter().map(|target| known.get(target).copied()).collect();
        let is_same = |old: TargetIndex, new: TargetIndex| match new {
            NOBODY => old == NOBODY,
            new => same[new as usize] == Some(old),
        };
        let v4 = difference(routes_v4(before), routes_v4(after), is_same);
        let v6 = difference(routes_v6(before), routes_v6(after), is_same);
        Self { targets: after.routing.targets.clone(), same, v4, v6 }
    }

    /// How much it is.
    pub fn counts(&self) -> RouteCounts {
        let kinds = (0..self.len()).map(|place| {
            let (_, before, after) = self.item(place);
            (before.is_some(), after.is_some())
        });
        let mut counts = RouteCounts::default();
        for kind in kinds {
            match kind {
                (false, _) => counts.added += 1,
                (true, true) => counts.changed += 1,
                (true, false) => counts.removed += 1,
            }
        }
        counts
    }

    /// Prefixes that change.
    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The prefix in this place, with its target before and after.
    fn item(&self, place: usize) -> (IpPrefix, Option<TargetIndex>, Option<TargetIndex>) {
        match place.checked_sub(self.v4.len()) {
            None => {
                let Item { prefix, before, after } = self.v4[place];
                (IpPrefix::V4(prefix), before, after)
            }
            Some(place) => {
                let Item { prefix, before, after } = self.v6[place];
                (IpPrefix::V6(prefix), before, after)
            }
        }
    }
}

fn routes_v4(config: &RouterConfig) -> Vec<(Prefix<u32>, TargetIndex)> {
    let routes = config.routing.v4.iter();
    let mut routes: Vec<_> = routes.filter_map(|(net, target)| Some((prefix_of_v4(net)?, *target))).collect();
    let order = |route: &(Prefix<u32>, TargetIndex)| (route.0.address(), route.0.length());
    let unused: Vec<_> = unused_addresses(config)
        .filter(|prefix| {
            let place = (prefix.address(), prefix.length());
            routes.binary_search_by_key(&place, order).is_err()
        })
        .map(|prefix| (prefix, NOBODY))
        .collect();
    routes.extend(unused);
    routes.sort_by_key(order);
    routes.dedup_by_key(|route| route.0);
    routes
}

fn routes_v6(config: &RouterConfig) -> Vec<(Prefix<u128>, TargetIndex)> {
    let prefix = |net: &ipnet::Ipv6Net| Prefix::new(u128::from(net.network()), net.prefix_len()).ok();
    config.routing.v6.iter().filter_map(|(net, target)| Some((prefix(net)?, *target))).collect()
}

/// Walks both lists, which are sorted by prefix.
fn difference<A: Copy + Ord>(
    before: Vec<(Prefix<A>, TargetIndex)>,
    after: Vec<(Prefix<A>, TargetIndex)>,
    is_same: impl Fn(TargetIndex, TargetIndex) -> bool,
) -> Vec<Item<A>>
where
    Prefix<A>: Ord + Copy,
{
    let (mut set, mut removed) = (Vec::new(), Vec::new());
    let mut old = before.into_iter().peekable();
    for (prefix, target) in after {
        while let Some((gone, before)) = old.next_if(|(known, _)| *known < prefix) {
            removed.push(Item { prefix: gone, before: Some(before), after: None });
        }
        let before = old.next_if(|(known, _)| *known == prefix).map(|(_, before)| before);
        if !before.is_some_and(|before| is_same(before, target)) {
            set.push(Item { prefix, before, after: Some(target) });
        }
    }
    removed.extend(old.map(|(prefix, before)| Item { prefix, before: Some(before), after: None }));
    set.extend(removed);
    set
}

impl LiveTables {
    /// Begins to change routes: numbers for new targets are taken and their gateways known, no prefix is touched.
    /// Errors if there are too few numbers, and changes nothing then.
    pub fn begin_routes(&mut self, difference: RouteDifference) -> Result<RouteChange, BuildError> {
        let mut after = Vec::with_capacity(difference.targets.len());
        let mut fresh = Vec::new();
        for (target, same) in difference.targets.iter().zip(&difference.same) {
            let kept = same.and_then(|same| self.targets.get(same as usize).copied());
            let number = match kept {
                Some(number) => Some(number),
                None => self.take_number(Group::of_target(target)).inspect(|number| fresh.push(*number)),
            };
            let Some(number) = number else {
                self.release(&fresh);
                return Err(BuildError::TooManyNextHops { limit: usize::from(self.last) });
            };
            after.push(number);
        }
        self.publish();
        Ok(RouteChange { difference, before: self.targets.clone(), after, done: 0 })
    }

    /// Changes at most so many prefixes; whether that was all. With an error there is no room for one of them: the
    /// change is to be [undone](Self::undo_routes).
    pub fn change_routes(&mut self, change: &mut RouteChange, limit: usize) -> Result<bool, BuildError> {
        let end = change.difference.len().min(change.done + limit);
        while change.done < end {
            let (prefix, _, after) = change.difference.item(change.done);
            if !self.set_configured(prefix, self.number_of_target(&change.after, after)) {
                return Err(BuildError::Routes(format!("the table has no room for {prefix}")));
            }
            change.done += 1;
        }
        Ok(change.done == change.difference.len())
    }

    /// Puts at most so many prefixes back as they were; whether that was all, and the change is undone.
    pub fn undo_routes(&mut self, change: &mut RouteChange, limit: usize) -> bool {
        let places: Range<usize> = change.done.saturating_sub(limit)..change.done;
        for place in places.rev() {
            let (prefix, before, _) = change.difference.item(place);
            // What was there had room.
            self.set_configured(prefix, self.number_of_target(&change.before, before));
            change.done = place;
        }
        if change.done == 0 {
            self.update_networks();
            self.release(&only_in(&change.after, &change.before));
        }
        change.done == 0
    }

    /// The change is complete, and no packet is on its way that met a route before it.
    pub fn finish_routes(&mut self, change: RouteChange) {
        self.release(&only_in(&change.before, &change.after));
        self.targets = change.after;
        self.update_networks();
    }

    fn number_of_target(&self, numbers: &[NextHopId], target: Option<TargetIndex>) -> Option<NextHopId> {
        match target? {
            NOBODY => Some(self.nobody),
            target => numbers.get(target as usize).copied(),
        }
    }

    /// Sets or takes out a configured route; whether the table had room.
    fn set_configured(&mut self, prefix: IpPrefix, number: Option<NextHopId>) -> bool {
        let address = prefix.address();
        if prefix != IpPrefix::host(address) {
            return self.put(prefix, number);
        }
        match number {
            Some(number) => self.configured_hosts.insert(address, number),
            None => self.configured_hosts.remove(&address),
        };
        self.update_host_route(address)
    }

    /// Gives numbers back.
    fn release(&mut self, numbers: &[NextHopId]) {
        for number in numbers {
            self.give_back(*number);
        }
    }

    /// Puts the route in force that a single address has: the configured one, or else that of the neighbor that has the
    /// address. Network and broadcast addresses are neighbors' where somebody really uses them.
    pub(super) fn update_host_route(&mut self, address: IpAddr) -> bool {
        let configured = self.configured_hosts.get(&address).copied();
        let neighbor = self.neighbor_hosts.get(&address).copied();
        let number = configured.filter(|number| *number != self.nobody).or(neighbor).or(configured);
        self.put(IpPrefix::host(address), number)
    }

    /// Puts a route of the router's own in force, or takes it out: those of others stand behind it.
    fn put(&mut self, prefix: IpPrefix, number: Option<NextHopId>) -> bool {
        if let Some(had_room) = self.replace_aside(prefix, number) {
            return had_room;
        }
        let before = self.base_route(prefix);
        let others = before.filter(|before| self.others.has(*before));
        let number = match (number, others) {
            (Some(number), Some(others)) => {
                self.others.step_back(prefix, others);
                Some(number)
            }
            (None, Some(_)) => return true,
            (None, None) if before.is_some() => self.others.step_forward(prefix),
            (number, _) => number,
        };
        self.set_base(prefix, number)
    }
}

/// Numbers of `these` that are not among `those`.
fn only_in(these: &[NextHopId], those: &[NextHopId]) -> Vec<NextHopId> {
    let those: std::collections::HashSet<_> = those.iter().collect();
    these.iter().filter(|number| !those.contains(number)).copied().collect()
}

#[cfg(test)]
mod tests;
