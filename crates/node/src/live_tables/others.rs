//! Routes of others: those that other programs put into the kernel's table.
//!
//! They rank behind configured routes and resolved neighbors of the same prefix, and before BGP's. Routes with the
//! same paths share a number, which is freed with the last of them. A route behind another one is kept and comes
//! into force when that one goes.

use std::collections::HashMap;
use std::net::IpAddr;

use thalweg_base::{DropReason, IpPrefix};
use thalweg_dataplane::lpm::NextHopId;

use super::{Group, LiveTables, Path, Place};

/// One path of such a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OtherWay {
    /// To a neighbor.
    Gateway {
        /// The number of the port.
        port: u16,
        address: IpAddr,
    },
    /// To the host that has the destination address.
    Connected {
        /// The number of the port.
        port: u16,
    },
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and informs the sender.
    Unreachable,
}

/// The paths of such a route by metric: the lowest metric is in use, the others are backups.
pub type OtherWays = Vec<Vec<OtherWay>>;

/// The state of others' routes.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// The number of each set of paths, and how many routes have it.
    groups: HashMap<OtherWays, (NextHopId, usize)>,
    by_number: HashMap<NextHopId, OtherWays>,
    /// Routes behind another one.
    behind: HashMap<Place, NextHopId>,
}

impl Others {
    /// Whether a number belongs to such routes.
    pub(super) fn has(&self, number: NextHopId) -> bool {
        self.by_number.contains_key(&number)
    }

    /// Keeps a route that a neighbor's route now replaces.
    pub(super) fn step_back(&mut self, place: Place, number: NextHopId) {
        self.behind.insert(place, number);
    }

    /// The route of others behind another one.
    pub(super) fn behind(&self, place: Place) -> Option<NextHopId> {
        self.behind.get(&place).copied()
    }

    /// Takes the route that comes into force now that the one before it goes.
    pub(super) fn step_forward(&mut self, place: Place) -> Option<NextHopId> {
        self.behind.remove(&place)
    }

    /// Gives up one route's use of the number; returns the number if that was the last.
    fn release(&mut self, number: NextHopId) -> Option<NextHopId> {
        let ways = self.by_number.get(&number)?;
        let (_, routes) = self.groups.get_mut(ways)?;
        *routes -= 1;
        if *routes > 0 {
            return None;
        }
        self.groups.remove(ways);
        self.by_number.remove(&number);
        Some(number)
    }
}

impl LiveTables {
    /// Applies changes of others' routes: new paths, or `None` for a removed route. Returns how many found no room
    /// in the table or among the numbers, and are not in force.
    pub fn set_others(&mut self, changes: &[(IpPrefix, Option<OtherWays>)]) -> usize {
        let (mut free, mut without_room) = (Vec::new(), 0);
        // Meanings of numbers are published once, before the first prefix.
        let mut numbers = Vec::with_capacity(changes.len());
        for (_, ways) in changes {
            let number = ways.as_ref().filter(|ways| !ways.is_empty()).map(|ways| self.number_of(ways));
            without_room += usize::from(number == Some(None));
            numbers.push(number.flatten());
        }
        for ((prefix, _), number) in changes.iter().zip(numbers) {
            let place = (0, *prefix);
            let in_force = self.base_route(place);
            let is_aside = self.is_aside(place);
            let before = match in_force {
                // The router's own route has priority, or will when its port is up.
                own if is_aside || own.is_some_and(|own| !self.others.has(own)) => {
                    let before = match number {
                        Some(number) => self.others.behind.insert(place, number),
                        None => self.others.behind.remove(&place),
                    };
                    if is_aside && !self.put_others(place) {
                        without_room += 1;
                    }
                    before
                }
                before => {
                    if !self.set_base(place, number) {
                        without_room += 1;
                    }
                    before
                }
            };
            free.extend(before.and_then(|number| self.others.release(number)));
        }
        self.publish();
        // From here on no prefix uses these numbers.
        for number in free {
            self.give_back(number);
        }
        without_room
    }

    /// The number of others' routes, and of those behind another one.
    pub fn others(&self) -> (usize, usize) {
        (self.others.groups.values().map(|(_, routes)| routes).sum(), self.others.behind.len())
    }

    /// Whether a number belongs to others' routes.
    pub fn is_others(&self, number: NextHopId) -> bool {
        self.others.has(number)
    }

    fn number_of(&mut self, ways: &OtherWays) -> Option<NextHopId> {
        if let Some((number, routes)) = self.others.groups.get_mut(ways) {
            *routes += 1;
            return Some(*number);
        }
        let path = |way: &OtherWay| match *way {
            OtherWay::Gateway { port, address } => Path::Neighbor { port, address },
            OtherWay::Connected { port } => Path::Glean { port },
            OtherWay::Blackhole => Path::Drop(DropReason::Blackhole),
            OtherWay::Unreachable => Path::Drop(DropReason::Unreachable),
        };
        let group = Group(ways.iter().map(|tier| tier.iter().map(path).collect()).collect());
        let number = self.take_number(group)?;
        self.others.groups.insert(ways.clone(), (number, 1));
        self.others.by_number.insert(number, ways.clone());
        Some(number)
    }
}

#[cfg(test)]
mod tests;
