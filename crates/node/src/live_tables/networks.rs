//! Networks of ports that are down.
//!
//! A connected network leaves the table while all its ports are down, together with its network and broadcast
//! addresses. Another route then comes into force: of another program, of BGP, or of a shorter prefix. The port's
//! own addresses stay, as they do in Linux. There are as many such networks as ports have addresses, so checking
//! all of them when a link changes costs next to nothing.

use std::collections::HashMap;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_dataplane::lpm::NextHopId;

use super::{Group, LiveTables, Path, Place};

/// Connected networks, and the routes that are out of the table.
#[derive(Debug, Default)]
pub(super) struct Networks {
    connected: HashMap<Place, NextHopId>,
    aside: HashMap<Place, NextHopId>,
}

impl Networks {
    /// The connected networks among `routes`.
    pub(super) fn among<'g>(
        routes: impl Iterator<Item = (Place, NextHopId)>,
        group: impl Fn(NextHopId) -> Option<&'g Group>,
    ) -> Self {
        let connected = routes.filter(|(_, number)| group(*number).is_some_and(is_connected));
        Self { connected: connected.collect(), aside: HashMap::new() }
    }
}

/// Whether every path of the group is a glean.
fn is_connected(group: &Group) -> bool {
    !group.0.is_empty() && group.paths().all(|path| matches!(path, Path::Glean { .. }))
}

impl LiveTables {
    /// Whether one of the router's own routes is out of the table because its port is down.
    pub(in crate::live_tables) fn is_aside(&self, place: Place) -> bool {
        self.networks.aside.contains_key(&place)
    }

    /// Installs the route of others, if it has a link, in place of one that is aside. Otherwise BGP's comes into
    /// force.
    pub(in crate::live_tables) fn put_others(&mut self, place: Place) -> bool {
        let others = self.others.behind(place).filter(|number| self.has_link(*number));
        self.set_base(place, others)
    }

    /// Notes that one of the router's own routes is set, changed or removed. `Some` if the route was aside; the
    /// value says whether the table had room.
    pub(super) fn replace_aside(&mut self, place: Place, number: Option<NextHopId>) -> Option<bool> {
        self.networks.connected.remove(&place);
        if let Some(number) = number.filter(|number| self.group_of(*number).is_some_and(is_connected)) {
            self.networks.connected.insert(place, number);
        }
        self.networks.aside.remove(&place)?;
        let number = number.or_else(|| self.others.step_forward(place));
        Some(self.set_base(place, number))
    }

    /// Removes networks whose ports are down, and restores those whose ports are up.
    pub(super) fn update_networks(&mut self) {
        let connected: Vec<_> =
            self.networks.connected.iter().map(|(place, number)| (*place, *number)).collect();
        for ((vrf, network), number) in connected {
            let is_down = !self.has_link(number);
            let ends = ends(network).map(|end| (vrf, end)).filter(|end| self.is_unused(*end));
            let unused = ends.map(|end| (end, self.nobody));
            let routes: Vec<_> = std::iter::once(((vrf, network), number)).chain(unused).collect();
            for (place, number) in routes {
                match (is_down, self.is_aside(place)) {
                    (true, _) => {
                        self.networks.aside.insert(place, number);
                        self.put_others(place);
                    }
                    (false, true) => {
                        self.networks.aside.remove(&place);
                        self.set_base(place, Some(number));
                    }
                    (false, false) => {}
                }
            }
        }
        self.publish();
    }

    fn is_unused(&self, end: Place) -> bool {
        self.base_route(end) == Some(self.nobody) || self.networks.aside.get(&end) == Some(&self.nobody)
    }

    fn group_of(&self, number: NextHopId) -> Option<&Group> {
        self.groups.get(usize::from(number).checked_sub(1)?)
    }

    fn has_link(&self, number: NextHopId) -> bool {
        let neighbors = self.neighbors.lock();
        self.group_of(number).is_some_and(|group| group.paths().any(|path| neighbors.has_link(path)))
    }
}

/// The first and the last address of an IPv4 network.
fn ends(network: IpPrefix) -> impl Iterator<Item = IpPrefix> {
    let ends = match network {
        IpPrefix::V4(network) if network.length() <= 30 => {
            let first = network.address();
            vec![first, first | u32::MAX.checked_shr(network.length().into()).unwrap_or(0)]
        }
        _ => Vec::new(),
    };
    ends.into_iter().filter_map(|address| Some(Prefix::new(address, 32).ok()?.into()))
}
