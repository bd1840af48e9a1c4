//! Stations whose MAC address somebody has set: in the configuration, or by hand in the kernel's neighbour tables.
//!
//! Of both the configuration counts. The kernel's count where the port's networks hold them: in the kernel an entry for any
//! address is only a note, here a neighbour is a route.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thalweg_dataplane::neighbour::{NeighbourTable, PortIdentity};

use super::Host;
use crate::router::LiveRouter;

/// The port a station is on, and its address.
type Key = (u16, IpAddr);
type Mac = [u8; 6];

/// Stations of the kernel that may be in force; as many again are left for the configuration.
const KERNEL_MAX: usize = 2048;

/// What became of the kernel's stations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStationCounts {
    /// They are neighbours of the router.
    pub in_force: u64,
    /// The configuration says something else of their addresses, or the same.
    pub behind: u64,
    /// No network of the port holds them.
    pub not_on_link: u64,
    /// There are too many.
    pub without_room: u64,
}

/// Where it is known from that a station has its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StationSource {
    /// The configuration.
    Configured,
    /// The kernel's neighbour table.
    Kernel,
    /// ARP or Neighbour Discovery.
    Learned,
}

impl StationSource {
    /// Name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Kernel => "kernel",
            Self::Learned => "learned",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stations {
    configured: BTreeMap<Key, Mac>,
    kernel: BTreeMap<Key, Mac>,
    in_force: BTreeMap<Key, Mac>,
    counts: KernelStationCounts,
}

impl Stations {
    fn source(&self, key: Key) -> StationSource {
        match (self.in_force.contains_key(&key), self.configured.contains_key(&key)) {
            (true, true) => StationSource::Configured,
            (true, false) => StationSource::Kernel,
            (false, _) => StationSource::Learned,
        }
    }

    /// What is to be in force, and the counts of that.
    fn wanted(&self, is_on_link: impl Fn(Key) -> bool) -> (BTreeMap<Key, Mac>, KernelStationCounts) {
        let mut wanted = self.configured.clone();
        let mut counts = KernelStationCounts::default();
        for (key, mac) in &self.kernel {
            let count = if self.configured.contains_key(key) {
                &mut counts.behind
            } else if !is_on_link(*key) {
                &mut counts.not_on_link
            } else if counts.in_force == KERNEL_MAX as u64 {
                &mut counts.without_room
            } else {
                wanted.insert(*key, *mac);
                &mut counts.in_force
            };
            *count += 1;
        }
        (wanted, counts)
    }

    /// Brings the table of neighbours in line.
    fn settle<P: AsRef<[u8]>>(
        &mut self,
        neighbours: &mut NeighbourTable<P>,
        identities: &[PortIdentity],
        now_ns: u64,
    ) -> Vec<Key> {
        let is_on_link = |(port, address): Key| {
            // Who the router is on a port that is down is what it was.
            let known = neighbours.port(port).or(identities.get(usize::from(port)));
            known.is_some_and(|identity| identity.is_on_link(address))
        };
        let (wanted, mut counts) = self.wanted(is_on_link);
        let mut refused = Vec::new();
        // Whoever goes makes room.
        for (port, address) in self.in_force.keys().filter(|key| !wanted.contains_key(key)) {
            neighbours.set_static(*port, *address, None, now_ns);
        }
        let mut in_force = BTreeMap::new();
        let (first, then): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(key, _)| self.configured.contains_key(key));
        for (key, mac) in first.into_iter().chain(then) {
            let (port, address) = key;
            let is_so = self.in_force.get(&key) == Some(&mac);
            if is_so || neighbours.set_static(port, address, Some(mac), now_ns) {
                in_force.insert(key, mac);
            } else if self.configured.contains_key(&key) {
                refused.push(key);
            } else {
                counts.in_force -= 1;
                counts.without_room += 1;
            }
        }
        (self.in_force, self.counts) = (in_force, counts);
        refused
    }
}

impl Host {
    /// Where it is known from that a neighbour has its MAC address.
    pub fn station_source(&self, port: u16, address: IpAddr) -> StationSource {
        self.stations.source((port, address))
    }

    /// Keeps neighbours whose addresses the configuration gives.
    pub(crate) fn configure_stations(&mut self, stations: impl IntoIterator<Item = (u16, IpAddr, Mac)>) {
        self.stations
            .configured
            .extend(stations.into_iter().map(|(port, address, mac)| ((port, address), mac)));
        self.settle_stations();
    }

    pub(super) fn forget_configured(&mut self, port: u16, address: IpAddr) {
        self.stations.configured.remove(&(port, address));
    }

    /// Ports or stations are others than before.
    pub(super) fn settle_stations(&mut self) {
        let now_ns = self.clock.now_ns();
        for (port, address) in self.stations.settle(&mut self.neighbours, &self.identities, now_ns) {
            let port = self.counters.name(port);
            tracing::error!(port, %address, "the neighbor table is full: this configured neighbor has no place in it");
        }
    }
}

impl LiveRouter {
    /// Takes what the kernel's neighbour tables say of stations on ports for as good as configured, instead of what was
    /// said before. `None` if the host thread does not come to it.
    pub fn set_kernel_stations(
        &self,
        stations: impl IntoIterator<Item = (u16, IpAddr, Mac)>,
    ) -> Option<KernelStationCounts> {
        let stations = stations.into_iter().map(|(port, address, mac)| ((port, address), mac)).collect();
        self.order(move |host| {
            host.stations.kernel = stations;
            host.settle_stations();
            host.work_off(host.clock.now_ns());
            host.stations.counts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_dataplane::neighbour::{NeighbourConfig, NeighbourState};

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    fn table(wanted_max: usize) -> (NeighbourTable, Vec<PortIdentity>) {
        let addresses = vec![("192.0.2.1".parse().unwrap(), 24), ("2001:db8::1".parse().unwrap(), 64)];
        let identities = vec![PortIdentity::new([2, 0, 0, 0, 0, 9], addresses, 1500)];
        let config = NeighbourConfig { wanted_max, ..NeighbourConfig::default() };
        (NeighbourTable::new(config, identities.clone(), 0), identities)
    }

    fn key(address: &str) -> Key {
        (0, address.parse().unwrap())
    }

    #[test]
    fn the_configuration_stands_before_the_kernel() {
        let (mut neighbours, identities) = table(16);
        let mut stations = Stations::default();
        let (one, two) = (key("192.0.2.5"), key("fe80::5"));
        stations.configured.insert(one, A);
        stations.kernel.extend([(one, B), (two, B), (key("198.51.100.5"), B), (key("192.0.2.1"), B)]);
        stations.settle(&mut neighbours, &identities, 0);
        let counts = KernelStationCounts { in_force: 1, behind: 1, not_on_link: 2, without_room: 0 };
        assert_eq!(stations.counts, counts);
        assert_eq!((neighbours.lookup(0, one.1), neighbours.lookup(0, two.1)), (Some(A), Some(B)));
        assert_eq!(neighbours.lookup(0, "198.51.100.5".parse().unwrap()), None);
        assert_eq!(stations.source(one), StationSource::Configured);
        assert_eq!(stations.source(two), StationSource::Kernel);
        assert_eq!(stations.source(key("192.0.2.77")), StationSource::Learned);

        // What the configuration no longer has, the kernel still says.
        stations.configured.clear();
        stations.settle(&mut neighbours, &identities, 1);
        assert_eq!((neighbours.lookup(0, one.1), stations.source(one)), (Some(B), StationSource::Kernel));
        // Nobody sets it any more: it is believed until it was asked.
        stations.kernel.clear();
        stations.settle(&mut neighbours, &identities, 2);
        let view = neighbours.view().find(|view| view.address == one.1).unwrap();
        assert_eq!((view.mac, view.state), (Some(B), NeighbourState::Delay));
        assert_eq!(stations.source(one), StationSource::Learned);
        neighbours.assert_consistent();
    }

    #[test]
    fn too_many_are_counted_and_configured_ones_come_first() {
        let (mut neighbours, identities) = table(3);
        let mut stations = Stations::default();
        for host in 10..20 {
            stations.kernel.insert(key(&format!("192.0.2.{host}")), B);
        }
        stations.configured.insert(key("192.0.2.99"), A);
        stations.settle(&mut neighbours, &identities, 0);
        assert_eq!((stations.counts.in_force, stations.counts.without_room), (2, 8));
        assert_eq!(neighbours.lookup(0, key("192.0.2.99").1), Some(A));
        assert_eq!(neighbours.lookup(0, key("192.0.2.12").1), None);
        // Another configured one takes the place of one of the kernel's.
        stations.configured.insert(key("192.0.2.98"), A);
        stations.kernel.retain(|key, _| key.1 != key_address("192.0.2.10"));
        stations.settle(&mut neighbours, &identities, 1);
        assert_eq!(neighbours.lookup(0, key("192.0.2.98").1), Some(A));
        neighbours.assert_consistent();
    }

    fn key_address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_kernel_leaves_room_for_the_configuration() {
        let (mut neighbours, mut identities) = table(NeighbourConfig::default().wanted_max);
        identities[0].addresses[0].1 = 8;
        neighbours.set_port(0, Some(identities[0].clone()), 0);
        let mut stations = Stations::default();
        for number in 0..KERNEL_MAX as u32 + 5 {
            stations.kernel.insert((0, IpAddr::from((0xc000_0300 + number).to_be_bytes())), B);
        }
        stations.settle(&mut neighbours, &identities, 0);
        assert_eq!((stations.counts.in_force, stations.counts.without_room), (KERNEL_MAX as u64, 5));
    }
}
