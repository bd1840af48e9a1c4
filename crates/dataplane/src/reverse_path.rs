//! Reverse path check: may a packet with this source arrive on this port (RFC 2827, RFC 3704, RFC 8704)?
//!
//! The source is looked up like a destination, a batch at a time, in the same tables:
//!
//! | mode | the packet passes if | RFC 3704 |
//! |---|---|---|
//! | strict | one of the equal paths to its source leads out of its ingress port | 2.2 |
//! | loose, default allowed | some route leads to its source | 2.4 |
//! | loose | the same, but a default route does not count | 2.5 |
//! | new sessions | as strict, but only for packets that would create a NAT session ([`SourceCheck`]) | 2.2 |
//!
//! Connected networks and neighbors count whether or not they are resolved, and the router's own addresses count
//! for the port that has them. A blackhole, a prohibition or the broadcast address of a connected network is no
//! path to a source: a blackhole for an attacker's address also drops what the attacker sends (RFC 5635). Failing
//! packets are dropped as `reverse-path`.
//!
//! The check precedes access lists, so that a list that rejects does not answer forged sources.
//!
//! Missing: feasible paths (RFC 3704 2.3, RFC 8704), which need the routes that were not chosen; a multihomed
//! neighbor therefore needs equal paths in strict mode, or loose mode.

use crate::ingress::be128;
use crate::lpm::Lpm;
use crate::route::{NextHops, Router};
use std::fmt;
use std::net::IpAddr;
use thalweg_base::{BATCH_PACKETS, Batch, DropReason};

thalweg_base::words! {
    /// The check that a port applies to sources of incoming packets.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum ReversePathMode {
        #[default]
        Off => "off",
        /// The path back leads out of the same port.
        Strict => "strict",
        /// There is a path back that is not a default route.
        Loose => "loose",
        /// There is a path back.
        LooseAllowDefault => "loose-allow-default",
        /// As strict, but only for packets that would create a NAT session.
        NewSessions => "new-sessions",
    }
}

impl ReversePathMode {
    /// Whether the mode checks every packet.
    pub fn asks_packets(self) -> bool {
        !matches!(self, ReversePathMode::Off | ReversePathMode::NewSessions)
    }

    /// Whether a packet passes that arrived on a port and to whose source this next hop leads.
    #[inline(always)]
    fn admits(self, next_hops: &NextHops, hop: u16, port_in: u16) -> bool {
        match self {
            ReversePathMode::Off => true,
            ReversePathMode::Strict | ReversePathMode::NewSessions => next_hops.leads_out_of(hop, port_in),
            ReversePathMode::Loose => next_hops.leads_out(hop, false),
            ReversePathMode::LooseAllowDefault => next_hops.leads_out(hop, true),
        }
    }
}

/// The check that NAT applies to packets that would create a session, on ports in the mode for that.
pub struct SourceCheck {
    modes: Vec<ReversePathMode>,
    router: Router,
}

impl SourceCheck {
    /// A check for ports in these modes; `None` if no port needs it.
    pub fn new(modes: impl IntoIterator<Item = ReversePathMode>, router: Router) -> Option<Self> {
        let modes: Vec<_> = modes.into_iter().collect();
        modes.contains(&ReversePathMode::NewSessions).then_some(Self { modes, router })
    }

    /// Whether a packet with this source may create a session through this port.
    pub fn admits(&self, port_in: u16, source: IpAddr) -> bool {
        let mode = self.modes.get(usize::from(port_in)).copied().unwrap_or_default();
        let hop = || match source {
            IpAddr::V4(source) => self.router.fib4.lookup(u32::from(source)),
            IpAddr::V6(source) => self.router.fib6.lookup(u128::from(source)),
        };
        mode != ReversePathMode::NewSessions || mode.admits(&self.router.next_hops.load(), hop(), port_in)
    }
}

impl fmt::Debug for SourceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceCheck").field("modes", &self.modes).finish_non_exhaustive()
    }
}

/// The check as a stage. It has no state of its own: it reads the router's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReversePath {
    /// Indexed by port; empty if no port is checked.
    modes: Vec<ReversePathMode>,
}

impl ReversePath {
    /// Takes the modes of the ports, in their order. Ports past the end are not checked.
    pub fn new(modes: impl IntoIterator<Item = ReversePathMode>) -> Self {
        let modes: Vec<_> = modes.into_iter().collect();
        let idle = modes.iter().all(|mode| !mode.asks_packets());
        Self { modes: if idle { Vec::new() } else { modes } }
    }

    /// Whether no port is checked.
    pub fn is_idle(&self) -> bool {
        self.modes.is_empty()
    }

    /// The mode of a port; `Off` for unknown ports.
    #[inline(always)]
    pub fn mode(&self, port: u16) -> ReversePathMode {
        self.modes.get(usize::from(port)).copied().unwrap_or_default()
    }

    /// Checks the live packets of a batch (at most [`BATCH_PACKETS`]).
    pub fn process(&self, router: &Router, batch: &mut Batch<'_>) {
        if self.is_idle() {
            return;
        }
        let mut sources = [0u32; BATCH_PACKETS];
        let mut members = [0u16; BATCH_PACKETS];
        let mut count = 0;
        let mut any_ipv6 = false;
        for i in 0..batch.len() {
            let (packet, l3) = batch.packet_and_l3(i);
            if !packet.is_alive() || !self.mode(packet.port_in).asks_packets() {
                continue;
            }
            if packet.is_ipv6() {
                any_ipv6 = true;
            } else if let Some(header) = l3.first_chunk::<20>() {
                sources[count] = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
                members[count] = i as u16;
                count += 1;
            }
        }
        let mut hops = [0u16; BATCH_PACKETS];
        router.fib4.lookup_batch(&sources[..count], &mut hops[..count]);
        self.judge(router, batch, &members[..count], &hops);
        if any_ipv6 {
            self.process_ipv6(router, batch);
        }
    }

    fn process_ipv6(&self, router: &Router, batch: &mut Batch<'_>) {
        let mut sources = [0u128; BATCH_PACKETS];
        let mut members = [0u16; BATCH_PACKETS];
        let mut count = 0;
        for i in 0..batch.len() {
            let (packet, l3) = batch.packet_and_l3(i);
            let checked = packet.is_alive() && self.mode(packet.port_in).asks_packets();
            if let (true, true, Some(header)) = (checked, packet.is_ipv6(), l3.first_chunk::<40>()) {
                sources[count] = be128(header, 8);
                members[count] = i as u16;
                count += 1;
            }
        }
        let mut hops = [0u16; BATCH_PACKETS];
        router.fib6.lookup_batch(&sources[..count], &mut hops[..count]);
        self.judge(router, batch, &members[..count], &hops);
    }

    #[inline(always)]
    fn judge(&self, router: &Router, batch: &mut Batch<'_>, members: &[u16], hops: &[u16]) {
        let next_hops = router.next_hops.load();
        let packets = batch.packets_mut();
        for (&i, &hop) in members.iter().zip(hops) {
            let packet = &mut packets[usize::from(i)];
            let passes = self.mode(packet.port_in).admits(&next_hops, hop, packet.port_in);
            if !passes {
                packet.drop_for(DropReason::ReversePath);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::Ingress;
    use crate::lpm::{Fib4Writer, Fib6Writer};
    use crate::route::{Adjacency, NextHops};
    use crate::test_support::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use std::sync::Arc;
    use thalweg_wire::MacAddr;

    const MODES: [ReversePathMode; 4] = [
        ReversePathMode::Off,
        ReversePathMode::Strict,
        ReversePathMode::Loose,
        ReversePathMode::LooseAllowDefault,
    ];

    /// A router of ports 0 to 3, whose default routes lead out of port 1.
    fn router() -> Router {
        let to = |port: u16| Adjacency::Forward {
            port,
            destination_mac: MacAddr([2, 0, 0, 0, 9, port as u8]),
            source_mac: MacAddr([2, 0, 0, 0, 1, port as u8]),
            mtu_bytes: 1500,
        };
        let mut hops = NextHops::new();
        let world = hops.add_default(&[to(1)]).unwrap();
        let mut id = |paths: &[Adjacency]| hops.add(paths).unwrap();
        let world_too = id(&[to(1)]);
        let spread = id(&[to(2), to(3), Adjacency::Drop(DropReason::Blackhole)]);
        let glean = id(&[Adjacency::Glean { port: 2 }]);
        let local = id(&[Adjacency::Local { port: 2 }]);
        let hole = id(&[Adjacency::Drop(DropReason::Blackhole)]);
        let v4 = [
            ("0.0.0.0/0", world),
            ("198.51.100.0/24", world_too),
            ("10.2.0.0/16", glean),
            ("10.2.0.1/32", local),
            ("10.2.255.255/32", hole),
            ("10.3.0.0/16", spread),
        ];
        let v6 = [("::/0", world), ("2001:db8:2::/48", glean), ("2001:db8:3::/48", spread)];
        let fib4 =
            Fib4Writer::from_routes(v4.map(|(net, id)| (net.parse::<Ipv4Net>().unwrap(), id))).unwrap();
        let fib6 =
            Fib6Writer::from_routes(v6.map(|(net, id)| (net.parse::<Ipv6Net>().unwrap(), id))).unwrap();
        Router {
            targets: Arc::default(),
            fib4: Arc::clone(fib4.table()),
            fib6: Arc::clone(fib6.table()),
            next_hops: hops.into(),
        }
    }

    /// Through which of four ports of one mode each source may come.
    fn admitted(mode: ReversePathMode, sources: &[&str]) -> Vec<Vec<u16>> {
        let mut frames = Vec::new();
        for source in sources {
            for port in 0..4 {
                let ip = match source.parse().unwrap() {
                    std::net::IpAddr::V4(a) => udp4(a.octets(), [192, 0, 2, 9], 1, 2, b"x"),
                    std::net::IpAddr::V6(a) => udp6(a.octets(), [0x20; 16], 1, 2, b"x"),
                };
                frames.push(Frame::raw(ip).on_port(port));
            }
        }
        let mut chunk = chunk(frames);
        Ingress { drop_martians: true, ..Default::default() }.process(&mut chunk.batch(0));
        ReversePath::new([mode; 4]).process(&router(), &mut chunk.batch(0));
        let alive = |p: &thalweg_base::Packet| match p.drop_reason() {
            None => Some(p.port_in),
            Some(reason) => {
                assert_eq!(reason, DropReason::ReversePath);
                None
            }
        };
        chunk.packets().chunks(4).map(|four| four.iter().filter_map(alive).collect()).collect()
    }

    #[test]
    fn every_kind_of_route_under_every_mode() {
        let sources = [
            "8.8.8.8",      // the default route
            "198.51.100.7", // a route beside it, the same way
            "10.2.0.77",    // a connected network, unresolved
            "10.2.0.1",     // the router itself
            "10.2.255.255", // a blackhole
            "10.3.0.1",     // equal paths
            "2600::1",      // and the same in IPv6
            "2001:db8:2::77",
            "2001:db8:3::1",
        ];
        let (all, none) = (vec![0, 1, 2, 3], Vec::<u16>::new());
        let expected: [[&[u16]; 9]; 4] = [
            [&all; 9],
            [&[1], &[1], &[2], &[2], &none, &[2, 3], &[1], &[2], &[2, 3]],
            [&none, &all, &all, &all, &none, &all, &none, &all, &all],
            [&all, &all, &all, &all, &none, &all, &all, &all, &all],
        ];
        for (mode, expected) in MODES.into_iter().zip(expected) {
            assert_eq!(admitted(mode, &sources), expected, "{mode}");
        }
    }

    #[test]
    fn without_a_default_route_strangers_fail() {
        let mut router = router();
        let mut hops = NextHops::new();
        for _ in 0..6 {
            hops.add(&[Adjacency::Drop(DropReason::NoRoute)]);
        }
        router.next_hops = hops.into();
        let mut chunk = chunk(vec![Frame::raw(udp4([8, 8, 8, 8], [192, 0, 2, 9], 1, 2, b"x"))]);
        Ingress { drop_martians: true, ..Default::default() }.process(&mut chunk.batch(0));
        ReversePath::new([ReversePathMode::LooseAllowDefault]).process(&router, &mut chunk.batch(0));
        assert_eq!(chunk.packets()[0].drop_reason(), Some(DropReason::ReversePath));
    }

    #[test]
    fn ports_without_a_mode_are_not_checked() {
        let check = ReversePath::new([ReversePathMode::Off, ReversePathMode::Strict]);
        assert!(!check.is_idle());
        let modes = [0, 1, 2, 65535].map(|port| check.mode(port));
        let off = ReversePathMode::Off;
        assert_eq!(modes, [off, ReversePathMode::Strict, off, off]);
        assert!(ReversePath::new([off; 3]).is_idle());
        let names: std::collections::HashSet<String> = MODES.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), MODES.len());
    }
}
