//! The configuration of the table: its limits, and the router's own addresses on each port.

use crate::rate_limit::Rate;
use ipnet::Ipv4Net;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_wire::MacAddr;
use thalweg_wire::ndp::link_local;

const SECOND_NS: u64 = 1_000_000_000;

/// Limits and times. The defaults are RFC 4861's constants (section 10) where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Resolved neighbors on all ports.
    pub entries_max: usize,
    /// Resolved neighbors on one port, so that one link cannot fill the table.
    pub entries_per_port_max: usize,
    /// Unresolved neighbors on all ports.
    pub unresolved_max: usize,
    /// Unresolved neighbors on one port.
    pub unresolved_per_port_max: usize,
    /// Wanted neighbors at most, and static ones at most.
    pub wanted_max: usize,
    /// Packets that wait for one neighbor.
    pub queue_packets_max: usize,
    /// Bytes of all waiting packets.
    pub queue_bytes_max: usize,
    /// Rate of multicast and broadcast solicitations on one port. It does not delay wanted neighbors.
    pub solicitations: Rate,
    /// Solicitations before a neighbor is given up (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
    pub solicitations_max: u8,
    /// Time between two solicitations for one neighbor (RETRANS_TIMER).
    pub retransmit_ns: u64,
    /// How long a confirmation is valid, times a random factor from 0.5 to 1.5 (REACHABLE_TIME).
    pub reachable_ns: u64,
    /// The same for wanted neighbors (gateways), which are probed right after it. Traffic uses them all the time,
    /// and is lost while one is dead or has another MAC address.
    pub wanted_reachable_ns: u64,
    /// How long a neighbor is STALE before it is probed without being used.
    pub stale_ns: u64,
    /// Time from the use of a STALE neighbor to its first probe (DELAY_FIRST_PROBE_TIME).
    pub delay_ns: u64,
    /// If set, the caller reports every use of neighbors, and those unused for this long are removed.
    pub idle_ns: Option<u64>,
    /// A neighbor's MAC address changes at most once in this time (like Linux's `locktime`).
    pub change_lock_ns: u64,
    /// The longest pause before a silent wanted neighbor is solicited again.
    pub wanted_pause_max_ns: u64,
    /// Interval of unsolicited router advertisements (MaxRtrAdvInterval).
    pub router_advertisement_ns: u64,
    /// How long hosts use the router after an advertisement (AdvDefaultLifetime).
    pub router_lifetime_s: u16,
    /// Seeds the random spread of times.
    pub seed: u64,
}

impl Default for NeighborConfig {
    fn default() -> Self {
        Self {
            entries_max: 16_384,
            entries_per_port_max: 4096,
            unresolved_max: 512,
            unresolved_per_port_max: 128,
            wanted_max: 4096,
            queue_packets_max: 3,
            queue_bytes_max: 1 << 20,
            solicitations: Rate::per_second(200, 100),
            solicitations_max: 3,
            retransmit_ns: SECOND_NS,
            reachable_ns: 30 * SECOND_NS,
            wanted_reachable_ns: 20 * SECOND_NS,
            stale_ns: 5 * SECOND_NS,
            delay_ns: 5 * SECOND_NS,
            idle_ns: None,
            change_lock_ns: SECOND_NS,
            wanted_pause_max_ns: 30 * SECOND_NS,
            router_advertisement_ns: 600 * SECOND_NS,
            router_lifetime_s: 1800,
            seed: 0,
        }
    }
}

/// The router's identity on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortIdentity {
    pub mac: MacAddr,
    /// Its addresses and their prefix lengths. If any is IPv6, a link-local address derived from the MAC address is
    /// added unless one is given.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Addresses of virtual routers that are Active here, each with its MAC address. They may be among `addresses`.
    pub virtual_addresses: Vec<(IpAddr, MacAddr)>,
    /// NAT's addresses here: they are answered for and defended too, but never used as a source.
    pub translated: Vec<Ipv4Net>,
    /// The largest IP packet on the link; announced in router advertisements.
    pub mtu_bytes: u32,
    /// The VLAN of the port's frames. The caller has assigned frames to ports; a frame with another tag is refused,
    /// one without is accepted, because its tag may have been removed.
    pub vlan: Option<u16>,
    /// Whether to advertise the router to hosts on this link.
    pub router_advertisements: bool,
    /// The MAC address of all neighbors, if the link has two ends and no MAC addresses: nobody is asked for one, and
    /// ours is not announced.
    pub far_end: Option<MacAddr>,
}

impl PortIdentity {
    /// An untagged port that does not advertise the router.
    pub fn new(mac: MacAddr, addresses: Vec<(IpAddr, u8)>, mtu_bytes: u32) -> Self {
        Self {
            mac,
            addresses,
            virtual_addresses: Vec::new(),
            translated: Vec::new(),
            mtu_bytes,
            vlan: None,
            router_advertisements: false,
            far_end: None,
        }
    }

    /// Adds the link-local address that IPv6 needs, if there is none.
    pub(super) fn completed(mut self) -> Self {
        if self.speaks_ipv6() && self.link_local().is_none() {
            self.addresses.push((link_local(self.mac).into(), 64));
        }
        self
    }

    fn speaks_ipv6(&self) -> bool {
        self.addresses.iter().any(|(address, _)| address.is_ipv6())
    }

    /// Its link-local address.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        self.ipv6().find(Ipv6Addr::is_unicast_link_local)
    }

    pub(super) fn ipv4(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.addresses.iter().filter_map(|&(a, _)| if let IpAddr::V4(a) = a { Some(a) } else { None })
    }

    pub(super) fn ipv6(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.addresses.iter().filter_map(|&(a, _)| if let IpAddr::V6(a) = a { Some(a) } else { None })
    }

    /// Whether it is one of the router's addresses on this port.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|&(own, _)| own == address)
            || self.virtual_addresses.iter().any(|&(own, _)| own == address)
    }

    /// The MAC address that belongs to one of the router's addresses here.
    pub(super) fn mac_of(&self, address: IpAddr) -> MacAddr {
        self.virtual_addresses.iter().find(|(own, _)| *own == address).map_or(self.mac, |(_, mac)| *mac)
    }

    /// Whether a MAC address is one of the router's here.
    pub(super) fn has_mac(&self, mac: MacAddr) -> bool {
        mac == self.mac || self.virtual_addresses.iter().any(|(_, own)| *own == mac)
    }

    /// All addresses to announce: the router's own, and those of virtual routers.
    pub(super) fn announced(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let own = self.addresses.iter().map(|&(address, _)| address);
        let shared = self.virtual_addresses.iter().map(|&(address, _)| address);
        own.chain(shared.filter(|address| !self.addresses.iter().any(|(own, _)| own == address)))
    }

    /// Whether the router answers for an address: its own, or one of NAT's.
    pub(super) fn answers_for(&self, address: IpAddr) -> bool {
        self.owns(address)
            || matches!(address, IpAddr::V4(v4) if self.translated.iter().any(|net| net.contains(&v4)))
    }

    /// Whether a neighbor on this link may have the address: a host address in one of the port's networks.
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        is_neighbor_address(address)
            && !self.answers_for(address)
            && (self.addresses.iter().any(|&(own, length)| in_network(own, length, address))
                || (is_link_local(address) && self.speaks_ipv6()))
    }

    /// The source of solicitations for `target`: an address of the same network if there is one, else any of the
    /// family.
    pub fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        let same_network = self.addresses.iter().find(|&&(own, length)| in_network(own, length, target));
        let any = || match target {
            IpAddr::V4(_) => self.ipv4().next().map(IpAddr::V4),
            IpAddr::V6(_) => self.link_local().map(IpAddr::V6),
        };
        same_network.map(|&(own, _)| own).or_else(any)
    }

    /// The source of packets to `target` wherever it is: an address of the same network if there is one, else any of
    /// the family, but none that is valid on this link only.
    pub fn source_beyond(&self, target: IpAddr) -> Option<IpAddr> {
        let wide = |(own, _): &&(IpAddr, u8)| own.is_ipv4() == target.is_ipv4() && !is_link_local(*own);
        let mut near = self.addresses.iter().filter(|&&(own, length)| in_network(own, length, target));
        near.find(wide).or_else(|| self.addresses.iter().find(wide)).map(|&(own, _)| own)
    }
}

/// Whether a single host can have the address on a link; networks are not considered.
pub(super) fn is_neighbor_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let first = address.octets()[0];
            first != 0 && first != 127 && first < 224
        }
        IpAddr::V6(address) => !(address.is_unspecified() || address.is_loopback() || address.is_multicast()),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether the network of `own` contains a host `address`. IPv4's network and broadcast addresses are not hosts'
/// (except in networks of two, RFC 3021).
fn in_network(own: IpAddr, length: u8, address: IpAddr) -> bool {
    match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => {
            let hosts = u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            let host = u32::from(address) & hosts;
            let names_all = hosts > 1 && (host == 0 || host == hosts);
            (u32::from(own) ^ u32::from(address)) & !hosts == 0 && !names_all
        }
        (IpAddr::V6(own), IpAddr::V6(address)) => {
            let hosts = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            (u128::from(own) ^ u128::from(address)) & !hosts == 0
        }
        _ => false,
    }
}
