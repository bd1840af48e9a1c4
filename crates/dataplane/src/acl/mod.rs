//! Access lists: which packets may enter by a port, and which may leave by one.
//!
//! A list is an ordered set of rules and a default. The first rule that matches a packet decides; if none does, the
//! default decides. A denied packet is dropped as `acl-denied`; a *rejected* one too, but it carries
//! [`PacketFlags::REJECT`](thalweg_base::PacketFlags::REJECT), so that the host side informs its sender by ICMP
//! (RFC 1812 5.2.7.1 code 13, RFC 4443 3.1 code 1: administratively prohibited).
//!
//! # How a rule is found
//!
//! Testing a thousand rules one by one takes microseconds. Instead a tree of cuts (`cuts.rs`) leads a packet to the few
//! rules that may match it: some bits of one of its parts (an address, a port, the protocol) are the number of a slot,
//! and a slot has the rules for packets with these bits. They are tested in full, in order, so the first one that
//! matches decides. Rules that are too wide for the slots are cut by themselves. Up to four rules are a plain list.
//!
//! A rule with a set of ten thousand networks is in the tree once for each, so a set costs no search of its own. IPv4
//! and IPv6 have separate trees.
//!
//! # Invariants
//!
//! - The compiled list and [`AccessList::decide`], which tests the rules one by one, always agree (property tests).
//! - A compiled [`AclSet`] never changes; a reload compiles another one. Each worker has its own counters, which
//!   are added up by a query, so workers share no cache line.
//!
//! # Fragments
//!
//! Only the first fragment has ports, flags and ICMP types; a rule with one of them never matches a later fragment,
//! in either direction, even if NAT knows its ports. A list that permits by ports and denies the rest therefore
//! needs a rule with `fragment: later` for the rest of a datagram (RFC 1858 and RFC 3128 say why guessing would be
//! worse).
//!
//! # Missing
//!
//! No state: "established" depends on the flags alone; [`crate::firewall`] keeps state and asks lists for new
//! connections, and [`crate::routing_rules`] for ways. No matching on IPv4 options, IPv6 extension headers or
//! packet lengths. No rate limits on rules (classes have policers).

mod cuts;
mod lists;
mod stage;
mod table;

#[cfg(test)]
mod tests;

pub use lists::RuleLists;
pub use stage::{AclBindings, AclCells, AclCounts, AclError, AclSet, RuleCount};

use ipnet::IpNet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use thalweg_base::{Packet, PacketFlags};
use thalweg_wire::{ip_protocol, tcp};

thalweg_base::words! {
    /// What happens to a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Action {
        Permit => "permit",
        /// It is dropped silently.
        Deny => "deny",
        /// It is dropped, and its sender is informed.
        Reject => "reject",
    }
}

/// TCP flags (the 14th byte of the header) under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// The flags to compare.
    pub mask: u8,
    /// Their required values.
    pub value: u8,
}

impl TcpFlags {
    /// The meaning of "established", where either matches: every segment of a connection but the first.
    pub const ESTABLISHED: [TcpFlags; 2] =
        [TcpFlags { mask: tcp::ACK, value: tcp::ACK }, TcpFlags { mask: tcp::RST, value: tcp::RST }];
}

/// An ICMP or ICMPv6 type, and optionally a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpKind {
    pub kind: u8,
    /// Any code if `None`.
    pub code: Option<u8>,
}

/// A packet's part of its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fragment {
    /// The whole datagram.
    Whole = 0,
    /// The first fragment, with the transport header.
    First = 1,
    /// A later fragment, without it.
    Later = 3,
}

impl Fragment {
    fn of(packet: &Packet) -> Self {
        if packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            Fragment::Later
        } else if packet.flags.has(PacketFlags::FRAGMENT) {
            Fragment::First
        } else {
            Fragment::Whole
        }
    }
}

/// One rule. Empty parts match every packet; of a part with entries, one must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens to matching packets.
    pub action: Action,
    pub sources: Vec<IpNet>,
    pub destinations: Vec<IpNet>,
    /// Transport protocols (the last header of an IPv6 chain).
    pub protocols: Vec<u8>,
    /// TCP or UDP source ports.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// TCP or UDP destination ports.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Code points.
    pub dscp: Vec<u8>,
    pub tcp_flags: Vec<TcpFlags>,
    /// ICMP types (of the family's own ICMP).
    pub icmp: Vec<IcmpKind>,
    pub fragments: Vec<Fragment>,
}

impl Rule {
    /// A rule that matches every packet.
    pub fn all(action: Action) -> Self {
        Self {
            action,
            sources: Vec::new(),
            destinations: Vec::new(),
            protocols: Vec::new(),
            source_ports: Vec::new(),
            destination_ports: Vec::new(),
            dscp: Vec::new(),
            tcp_flags: Vec::new(),
            icmp: Vec::new(),
            fragments: Vec::new(),
        }
    }

    /// Whether the answer depends on TCP's PSH.
    pub(crate) fn asks_for_push(&self) -> bool {
        self.tcp_flags.iter().any(|flags| flags.mask & tcp::PSH != 0)
    }

    /// Whether the rule matches a packet with these facts.
    pub fn holds(&self, facts: &Facts) -> bool {
        fn any<T>(entries: &[T], holds: impl Fn(&T) -> bool) -> bool {
            entries.is_empty() || entries.iter().any(holds)
        }
        any(&self.sources, |n| n.contains(&facts.source))
            && any(&self.destinations, |n| n.contains(&facts.destination))
            && any(&self.protocols, |p| *p == facts.protocol)
            && any(&self.source_ports, |r| facts.ports.is_some_and(|p| r.contains(&p.0)))
            && any(&self.destination_ports, |r| facts.ports.is_some_and(|p| r.contains(&p.1)))
            && any(&self.dscp, |d| *d == facts.dscp)
            && any(&self.tcp_flags, |f| facts.tcp_flags.is_some_and(|flags| flags & f.mask == f.value))
            && any(&self.icmp, |i| {
                facts.icmp.is_some_and(|(kind, code)| kind == i.kind && i.code.is_none_or(|c| c == code))
            })
            && any(&self.fragments, |f| *f == facts.fragment)
    }
}

/// Rules in order, and the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    /// The first matching rule decides.
    pub rules: Vec<Rule>,
    /// The action if no rule matches.
    pub default: Action,
}

impl AccessList {
    /// The index of the deciding rule (`None`: the default) and its action, found by testing the rules one by one.
    /// This is the reference for tests of the compiled list, and explains single packets.
    pub fn decide(&self, facts: &Facts) -> (Option<usize>, Action) {
        match self.rules.iter().position(|rule| rule.holds(facts)) {
            Some(place) => (Some(place), self.rules[place].action),
            None => (None, self.default),
        }
    }
}

/// The properties of a packet that rules test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Source and destination port of TCP and UDP, unless it is a later fragment.
    pub ports: Option<(u16, u16)>,
    /// Type and code of ICMP in IPv4 and of ICMPv6 in IPv6, unless it is a later fragment.
    pub icmp: Option<(u8, u8)>,
    /// Flags of TCP, unless it is a later fragment.
    pub tcp_flags: Option<u8>,
    pub dscp: u8,
    pub fragment: Fragment,
}

impl Facts {
    /// The facts of a validated packet; `l3` is its bytes from the IP header on.
    pub fn of(packet: &Packet, l3: &[u8]) -> Option<Self> {
        let (ports, icmp, tcp_flags) = (ports(packet), icmp(packet, l3), tcp_flags(packet, l3));
        Some(Self {
            source: crate::classify::address(packet, l3, true)?,
            destination: crate::classify::address(packet, l3, false)?,
            protocol: packet.protocol,
            ports,
            icmp,
            tcp_flags,
            dscp: packet.traffic_class >> 2,
            fragment: Fragment::of(packet),
        })
    }
}

/// Whether the packet has this protocol and is not a later fragment.
#[inline(always)]
fn starts(packet: &Packet, protocol: u8) -> bool {
    packet.protocol == protocol && !packet.flags.has(PacketFlags::LATER_FRAGMENT)
}

#[inline(always)]
fn ports(packet: &Packet) -> Option<(u16, u16)> {
    let has = packet.flags.0 & (PacketFlags::HAS_PORTS | PacketFlags::LATER_FRAGMENT);
    // The identifier of an ICMP echo is in the same fields, but is not a port.
    let transport = (packet.protocol == ip_protocol::TCP) | (packet.protocol == ip_protocol::UDP);
    (transport & (has == PacketFlags::HAS_PORTS)).then_some((packet.src_port, packet.dst_port))
}

/// Byte `at` of the transport header, if the capture holds it.
#[inline(always)]
fn transport_byte(packet: &Packet, l3: &[u8], at: usize) -> Option<u8> {
    l3.get(usize::from(packet.l4_offset.wrapping_sub(packet.l3_offset)) + at).copied()
}

#[inline(always)]
fn icmp(packet: &Packet, l3: &[u8]) -> Option<(u8, u8)> {
    let protocol = if packet.is_ipv6() { ip_protocol::ICMPV6 } else { ip_protocol::ICMP };
    if !starts(packet, protocol) {
        return None;
    }
    Some((transport_byte(packet, l3, 0)?, transport_byte(packet, l3, 1)?))
}

#[inline(always)]
fn tcp_flags(packet: &Packet, l3: &[u8]) -> Option<u8> {
    if starts(packet, ip_protocol::TCP) { transport_byte(packet, l3, 13) } else { None }
}
