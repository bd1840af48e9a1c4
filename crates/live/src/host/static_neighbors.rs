//! Neighbors with a fixed MAC address: from the configuration, or permanent entries of the kernel's neighbor
//! tables.
//!
//! If both name an address, the configuration's entry counts. A kernel entry counts only if one of the port's
//! networks contains the address: the kernel accepts entries for any address, but here a neighbor is a route.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thalweg_dataplane::neighbor::{NeighborTable, PortIdentity};
use thalweg_wire::MacAddr;

use super::Host;

/// Port and address.
type Key = (u16, IpAddr);

/// Limit of kernel neighbors in force; the table has as many places again for configured ones.
const KERNEL_MAX: usize = 2048;

/// What became of the kernel's permanent neighbors; the four counts add up to all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelNeighborCounts {
    /// Neighbors of the router.
    pub in_force: u64,
    /// Entries whose address the configuration has, with the same or another MAC address.
    pub behind: u64,
    /// Entries outside the port's networks.
    pub not_on_link: u64,
    /// Entries beyond the limit.
    pub without_room: u64,
}

thalweg_base::words! {
    /// Where a neighbor's MAC address comes from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NeighborSource {
        /// The configuration.
        Configured => "configured",
        /// The kernel's neighbor table.
        Kernel => "kernel",
        /// ARP or Neighbor Discovery.
        Learned => "learned",
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StaticNeighbors {
    configured: BTreeMap<Key, MacAddr>,
    kernel: BTreeMap<Key, MacAddr>,
    in_force: BTreeMap<Key, MacAddr>,
    counts: KernelNeighborCounts,
}

impl StaticNeighbors {
    fn source(&self, key: Key) -> NeighborSource {
        match (self.in_force.contains_key(&key), self.configured.contains_key(&key)) {
            (true, true) => NeighborSource::Configured,
            (true, false) => NeighborSource::Kernel,
            (false, _) => NeighborSource::Learned,
        }
    }

    /// The entries that should be in force, and the counts of the kernel's.
    fn wanted(&self, is_on_link: impl Fn(Key) -> bool) -> (BTreeMap<Key, MacAddr>, KernelNeighborCounts) {
        let mut wanted = self.configured.clone();
        let mut counts = KernelNeighborCounts::default();
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

    /// Makes the neighbor table match; returns the configured entries that found no room.
    fn reconcile<P: AsRef<[u8]>>(
        &mut self,
        neighbors: &mut NeighborTable<P>,
        identities: &[PortIdentity],
        now_ns: u64,
    ) -> Vec<Key> {
        let is_on_link = |(port, address): Key| {
            // A port that is down has its identity only here.
            let known = neighbors.port(port).or(identities.get(usize::from(port)));
            known.is_some_and(|identity| identity.is_on_link(address))
        };
        let (wanted, mut counts) = self.wanted(is_on_link);
        let mut refused = Vec::new();
        // Removals first: they make room.
        for (port, address) in self.in_force.keys().filter(|key| !wanted.contains_key(key)) {
            neighbors.set_static(*port, *address, None, now_ns);
        }
        let mut in_force = BTreeMap::new();
        let (first, then): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(key, _)| self.configured.contains_key(key));
        for (key, mac) in first.into_iter().chain(then) {
            let (port, address) = key;
            let is_so = self.in_force.get(&key) == Some(&mac);
            if is_so || neighbors.set_static(port, address, Some(mac), now_ns) {
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
    /// Where a neighbor's MAC address comes from; [`NeighborSource::Learned`] also if it is unknown.
    pub fn neighbor_source(&self, port: u16, address: IpAddr) -> NeighborSource {
        self.static_neighbors.source((port, address))
    }

    pub(crate) fn configure_neighbors(
        &mut self,
        static_neighbors: impl IntoIterator<Item = (u16, IpAddr, MacAddr)>,
    ) {
        self.static_neighbors
            .configured
            .extend(static_neighbors.into_iter().map(|(port, address, mac)| ((port, address), mac)));
        self.reconcile_neighbors();
    }

    /// Replaces the neighbors that come from the kernel's tables.
    pub(crate) fn set_kernel_neighbors(
        &mut self,
        neighbors: impl Iterator<Item = (u16, IpAddr, MacAddr)>,
    ) -> KernelNeighborCounts {
        self.static_neighbors.kernel = neighbors.map(|(port, address, mac)| ((port, address), mac)).collect();
        self.reconcile_neighbors();
        self.work_off(self.parts.clock.now_ns());
        self.static_neighbors.counts
    }

    pub(super) fn forget_configured(&mut self, port: u16, address: IpAddr) {
        self.static_neighbors.configured.remove(&(port, address));
    }

    /// Called after ports or static neighbors have changed.
    pub(super) fn reconcile_neighbors(&mut self) {
        let now_ns = self.parts.clock.now_ns();
        for (port, address) in
            self.static_neighbors.reconcile(&mut self.neighbors, &self.parts.identities, now_ns)
        {
            let port = self.parts.counters.name(port);
            tracing::error!(port, %address, "the neighbor table has no room for this configured neighbor");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_dataplane::neighbor::{NeighborConfig, NeighborState};

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn table(wanted_max: usize) -> (NeighborTable, Vec<PortIdentity>) {
        let addresses = vec![("192.0.2.1".parse().unwrap(), 24), ("2001:db8::1".parse().unwrap(), 64)];
        let identities = vec![PortIdentity::new(MacAddr([2, 0, 0, 0, 0, 9]), addresses, 1500)];
        let config = NeighborConfig { wanted_max, ..NeighborConfig::default() };
        (NeighborTable::new(config, identities.clone(), 0), identities)
    }

    fn key(address: &str) -> Key {
        (0, address.parse().unwrap())
    }

    #[test]
    fn the_configuration_stands_before_the_kernel() {
        let (mut neighbors, identities) = table(16);
        let mut static_neighbors = StaticNeighbors::default();
        let (one, two) = (key("192.0.2.5"), key("fe80::5"));
        static_neighbors.configured.insert(one, A);
        static_neighbors.kernel.extend([(one, B), (two, B), (key("198.51.100.5"), B), (key("192.0.2.1"), B)]);
        static_neighbors.reconcile(&mut neighbors, &identities, 0);
        let counts = KernelNeighborCounts { in_force: 1, behind: 1, not_on_link: 2, without_room: 0 };
        assert_eq!(static_neighbors.counts, counts);
        assert_eq!((neighbors.lookup(0, one.1), neighbors.lookup(0, two.1)), (Some(A), Some(B)));
        assert_eq!(neighbors.lookup(0, "198.51.100.5".parse().unwrap()), None);
        assert_eq!(static_neighbors.source(one), NeighborSource::Configured);
        assert_eq!(static_neighbors.source(two), NeighborSource::Kernel);
        assert_eq!(static_neighbors.source(key("192.0.2.77")), NeighborSource::Learned);

        // What the configuration no longer has, the kernel still says.
        static_neighbors.configured.clear();
        static_neighbors.reconcile(&mut neighbors, &identities, 1);
        assert_eq!(
            (neighbors.lookup(0, one.1), static_neighbors.source(one)),
            (Some(B), NeighborSource::Kernel)
        );
        // Nobody sets it any more: it is believed until it was asked.
        static_neighbors.kernel.clear();
        static_neighbors.reconcile(&mut neighbors, &identities, 2);
        let view = neighbors.view().find(|view| view.address == one.1).unwrap();
        assert_eq!((view.mac, view.state), (Some(B), NeighborState::Delay));
        assert_eq!(static_neighbors.source(one), NeighborSource::Learned);
        neighbors.assert_consistent();
    }

    #[test]
    fn too_many_are_counted_and_configured_ones_come_first() {
        let (mut neighbors, identities) = table(3);
        let mut static_neighbors = StaticNeighbors::default();
        for host in 10..20 {
            static_neighbors.kernel.insert(key(&format!("192.0.2.{host}")), B);
        }
        static_neighbors.configured.insert(key("192.0.2.99"), A);
        static_neighbors.reconcile(&mut neighbors, &identities, 0);
        assert_eq!((static_neighbors.counts.in_force, static_neighbors.counts.without_room), (2, 8));
        assert_eq!(neighbors.lookup(0, key("192.0.2.99").1), Some(A));
        assert_eq!(neighbors.lookup(0, key("192.0.2.12").1), None);
        // Another configured one takes the place of one of the kernel's.
        static_neighbors.configured.insert(key("192.0.2.98"), A);
        static_neighbors.kernel.retain(|key, _| key.1 != key_address("192.0.2.10"));
        static_neighbors.reconcile(&mut neighbors, &identities, 1);
        assert_eq!(neighbors.lookup(0, key("192.0.2.98").1), Some(A));
        neighbors.assert_consistent();
    }

    fn key_address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_kernel_leaves_room_for_the_configuration() {
        let (mut neighbors, mut identities) = table(NeighborConfig::default().wanted_max);
        identities[0].addresses[0].1 = 8;
        neighbors.set_port(0, Some(identities[0].clone()), 0);
        let mut static_neighbors = StaticNeighbors::default();
        for number in 0..KERNEL_MAX as u32 + 5 {
            static_neighbors.kernel.insert((0, IpAddr::from((0xc000_0300 + number).to_be_bytes())), B);
        }
        static_neighbors.reconcile(&mut neighbors, &identities, 0);
        assert_eq!(
            (static_neighbors.counts.in_force, static_neighbors.counts.without_room),
            (KERNEL_MAX as u64, 5)
        );
    }
}
