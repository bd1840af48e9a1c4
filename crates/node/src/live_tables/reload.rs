//! Configured routes that change while packets pass.
//!
//! Only prefixes that differ are touched, a slice at a time, so that other writers of the tables never wait long:
//!
//! 1. New targets get numbers; their meanings are published before the first prefix that uses them.
//! 2. New and changed prefixes are set, and then removed ones are taken out. So an address with a route before and
//!    after always has one.
//! 3. Numbers of removed targets become free when no packet can still carry one. The caller knows when.
//!
//! If the tables have no room for a change, everything is restored.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_dataplane::lpm::NextHopId;
use thalweg_dataplane::vrf::table_of;

use super::{Group, LiveTables, Place, number_of, routes_v4, routes_v6, unused_addresses};
use crate::BuildError;
use thalweg_config::{RouteTarget, RouterConfig, TargetIndex, VrfIndex};

/// Stands for the target of network and broadcast addresses.
const NOBODY: TargetIndex = TargetIndex::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item<A> {
    /// The table and the prefix.
    place: (VrfIndex, Prefix<A>),
    before: Option<TargetIndex>,
    after: Option<TargetIndex>,
}

/// The difference between the routes of two configurations.
#[derive(Clone, Debug, Default)]
pub struct RouteDifference {
    targets: Vec<RouteTarget>,
    /// For each target, its index in the configuration before, if it was there.
    same: Vec<Option<TargetIndex>>,
    /// Sets first, then removals.
    v4: Vec<Item<u32>>,
    v6: Vec<Item<u128>>,
}

/// How many routes differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteCounts {
    pub added: usize,
    /// Routes with another target.
    pub changed: usize,
    pub removed: usize,
}

/// A change of routes in progress.
#[derive(Debug)]
pub struct RouteChange {
    difference: RouteDifference,
    /// Numbers of the targets before and after.
    before: Vec<NextHopId>,
    after: Vec<NextHopId>,
    done: usize,
}

impl RouteChange {
    /// The numbers of the new configuration's targets.
    pub fn targets(&self) -> Arc<[NextHopId]> {
        self.after.as_slice().into()
    }
}

impl RouteDifference {
    /// Computes what must change so that the routes of `after` are in force.
    pub fn between(before: &RouterConfig, after: &RouterConfig) -> Self {
        let known: HashMap<&RouteTarget, TargetIndex> = before.routing.targets.iter().zip(0..).collect();
        let same: Vec<_> = after.routing.targets.iter().map(|target| known.get(target).copied()).collect();
        let is_same = |old: TargetIndex, new: TargetIndex| match new {
            NOBODY => old == NOBODY,
            new => same[new as usize] == Some(old),
        };
        let v4 = |config| in_order(routes_v4(config), unused_addresses(config));
        let v6 = |config| in_order(routes_v6(config), std::iter::empty());
        let (v4, v6) =
            (difference(v4(before), v4(after), is_same), difference(v6(before), v6(after), is_same));
        Self { targets: after.routing.targets.clone(), same, v4, v6 }
    }

    /// The number of routes of each kind of change.
    pub fn counts(&self) -> RouteCounts {
        let kinds = (0..self.len()).map(|at| {
            let (_, before, after) = self.item(at);
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

    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// The prefix at an index, with its target before and after.
    fn item(&self, at: usize) -> (Place, Option<TargetIndex>, Option<TargetIndex>) {
        match at.checked_sub(self.v4.len()) {
            None => {
                let Item { place: (vrf, prefix), before, after } = self.v4[at];
                ((vrf, IpPrefix::V4(prefix)), before, after)
            }
            Some(at) => {
                let Item { place: (vrf, prefix), before, after } = self.v6[at];
                ((vrf, IpPrefix::V6(prefix)), before, after)
            }
        }
    }
}

/// Routes, those to addresses that no host has included, in order and each place once.
fn in_order<A: Copy + Ord>(
    routes: impl Iterator<Item = ((VrfIndex, Prefix<A>), TargetIndex)>,
    unused: impl Iterator<Item = (VrfIndex, Prefix<A>)>,
) -> Vec<((VrfIndex, Prefix<A>), TargetIndex)>
where
    Prefix<A>: Ord,
{
    // Stable: a configured route to such an address comes first.
    let mut routes: Vec<_> = routes.chain(unused.map(|place| (place, NOBODY))).collect();
    routes.sort_by_key(|(place, _)| *place);
    routes.dedup_by_key(|(place, _)| *place);
    routes
}

/// Merges both lists, which are sorted by place.
fn difference<A: Copy + Ord>(
    before: Vec<((VrfIndex, Prefix<A>), TargetIndex)>,
    after: Vec<((VrfIndex, Prefix<A>), TargetIndex)>,
    is_same: impl Fn(TargetIndex, TargetIndex) -> bool,
) -> Vec<Item<A>>
where
    Prefix<A>: Ord,
{
    let (mut set, mut removed) = (Vec::new(), Vec::new());
    let mut old = before.into_iter().peekable();
    for (place, target) in after {
        while let Some((gone, before)) = old.next_if(|(known, _)| *known < place) {
            removed.push(Item { place: gone, before: Some(before), after: None });
        }
        let before = old.next_if(|(known, _)| *known == place).map(|(_, before)| before);
        if !before.is_some_and(|before| is_same(before, target)) {
            set.push(Item { place, before, after: Some(target) });
        }
    }
    removed.extend(old.map(|(place, before)| Item { place, before: Some(before), after: None }));
    set.extend(removed);
    set
}

impl LiveTables {
    /// Begins to change routes: new targets get numbers and their gateways are registered, but no prefix is
    /// touched. Errors, without any change, if there are too few numbers.
    pub fn begin_routes(&mut self, difference: RouteDifference) -> Result<RouteChange, BuildError> {
        let mut after = Vec::with_capacity(difference.targets.len());
        let mut fresh = Vec::new();
        for (target, same) in difference.targets.iter().zip(&difference.same) {
            let kept = same.and_then(|same| self.targets.get(same as usize).copied());
            let number = match kept.or_else(|| number_of(target)) {
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

    /// Changes at most `limit` prefixes; returns whether all are done. After an error (no room) the caller must
    /// [undo](Self::undo_routes) the change.
    pub fn change_routes(&mut self, change: &mut RouteChange, limit: usize) -> Result<bool, BuildError> {
        let end = change.difference.len().min(change.done + limit);
        while change.done < end {
            let (place, _, after) = change.difference.item(change.done);
            if !self.set_configured(place, self.number_of_target(&change.after, after)) {
                let (_, prefix) = place;
                return Err(BuildError::Routes(format!("the table has no room for {prefix}")));
            }
            change.done += 1;
        }
        Ok(change.done == change.difference.len())
    }

    /// Restores at most `limit` prefixes; returns whether the whole change is undone.
    pub fn undo_routes(&mut self, change: &mut RouteChange, limit: usize) -> bool {
        let places: Range<usize> = change.done.saturating_sub(limit)..change.done;
        for done in places.rev() {
            let (place, before, _) = change.difference.item(done);
            // This cannot fail: the former route had room.
            self.set_configured(place, self.number_of_target(&change.before, before));
            change.done = done;
        }
        if change.done == 0 {
            self.update_networks();
            self.release(&only_in(&change.after, &change.before));
        }
        change.done == 0
    }

    /// Completes the change. No packet may still carry a number from before it.
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

    /// Sets or removes a configured route; returns whether the table had room.
    fn set_configured(&mut self, (vrf, prefix): Place, number: Option<NextHopId>) -> bool {
        let host = (vrf, prefix.address());
        if prefix != IpPrefix::host(prefix.address()) {
            return self.put((vrf, prefix), number);
        }
        match number {
            Some(number) => self.configured_hosts.insert(host, number),
            None => self.configured_hosts.remove(&host),
        };
        self.update_host_route(host)
    }

    fn release(&mut self, numbers: &[NextHopId]) {
        for number in numbers.iter().filter(|number| table_of(**number).is_none()) {
            self.give_back(*number);
        }
    }

    /// Installs the route of a single address: the configured one, or else that of the neighbor with the address. A
    /// neighbor that really uses a network or broadcast address gets its route.
    pub(super) fn update_host_route(&mut self, host: (VrfIndex, IpAddr)) -> bool {
        let configured = self.configured_hosts.get(&host).copied();
        let neighbor = self.neighbor_hosts.get(&host).copied();
        let number = configured.filter(|number| *number != self.nobody).or(neighbor).or(configured);
        self.put((host.0, IpPrefix::host(host.1)), number)
    }

    /// Installs or removes one of the router's own routes; a route of others for the same prefix stands behind it.
    fn put(&mut self, place: Place, number: Option<NextHopId>) -> bool {
        if let Some(had_room) = self.replace_aside(place, number) {
            return had_room;
        }
        let before = self.base_route(place);
        let others = before.filter(|before| self.others.has(*before));
        let number = match (number, others) {
            (Some(number), Some(others)) => {
                self.others.step_back(place, others);
                Some(number)
            }
            (None, Some(_)) => return true,
            (None, None) if before.is_some() => self.others.step_forward(place),
            (number, _) => number,
        };
        self.set_base(place, number)
    }
}

/// Numbers of `these` that are not among `those`.
fn only_in(these: &[NextHopId], those: &[NextHopId]) -> Vec<NextHopId> {
    let those: std::collections::HashSet<_> = those.iter().collect();
    these.iter().filter(|number| !those.contains(number)).copied().collect()
}

#[cfg(test)]
mod tests;
