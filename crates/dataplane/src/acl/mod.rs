//! Access lists: which packets may come in by a port, and which may leave by one.
//!
//! A list is rules in order and a default. The first rule that a packet meets decides; where none does, the
//! default decides. A packet that is denied is dropped as `acl-denied`; one that is *rejected* is too, and
//! carries [`PacketFlags::REJECT`](thalweg_base::PacketFlags::REJECT), so that the stage that writes ICMP errors
//! tells its sender (RFC 1812 5.2.7.1 code 13, RFC 4443 3.1 code 1: administratively prohibited).
//!
//! # How a rule is found
//!
//! Going through a thousand rules takes microseconds. Instead each part of a packet (source, destination,
//! ports, protocol ...) is looked up by itself, which yields a *row*: one bit for each rule that this part
//! meets. The rows of all parts and-ed together leave the rules that the packet meets; the first bit is the
//! first rule (Lakshman & Stiliadis, SIGCOMM 1998). Rows of more than 64 rules begin with a summary, one
//! bit for each of their words that is not zero, so that most words are never read (Baboescu & Varghese,
//! SIGCOMM 2001).
//!
//! ```text
//!   source 10.1.2.3 ----[steps]----> row 17   0 1 1 0 1 ...
//!   dst port 443 -------[steps]----> row  3   1 1 0 0 1 ...   and
//!   protocol 6 ---------[table]----> row  9   0 1 0 1 1 ...
//!                                             ---------
//!                                             0 1 0 0 1 ...   rule 1 decides
//! ```
//!
//! Numbers with large ranges (addresses, ports) change their row only at the borders of what rules name:
//! `steps` finds the border below a number in three reads for two thousand of them. Parts that no rule
//! of the list asks for are not looked at. Equal rows are kept once, so a rule that names ten thousand
//! prefixes costs borders, not rows. IPv4 and IPv6 have tables of their own.
//!
//! # Invariants
//!
//! - The compiled list and [`AccessList::decide`], which goes through the rules one by one, always agree
//!   (property tests).
//! - A compiled [`AclSet`] never changes; a reload compiles another one. Counters belong to the worker that
//!   counts and are put together when asked for, so workers share no cache line.
//!
//! # Fragments
//!
//! Only the first fragment has ports, flags and ICMP types; a rule that asks for one of them is never met by
//! a later fragment, whatever direction and whether or not NAT knows its ports. A list that permits by
//! ports and denies the rest therefore needs a rule with `fragment: later` to let the rest of a datagram in
//! (RFC 1858 and RFC 3128 say why guessing would be worse).
//!
//! # Missing
//!
//! No state: "established" is what the flags say. No matching on IPv4 options, IPv6 extension headers or
//! packet lengths. No rate limits on rules (classes have policers).

mod stage;
mod steps;
mod table;

#[cfg(test)]
mod tests;

pub use stage::{AclBindings, AclCells, AclCounts, AclError, AclSet, RuleCount};

use ipnet::IpNet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use thalweg_base::{Packet, PacketFlags};
use thalweg_wire::{ip_protocol, tcp};

thalweg_base::words! {
    /// What becomes of a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Action {
        /// It passes.
        Permit => "permit",
        /// It is dropped without a word.
        Deny => "deny",
        /// It is dropped, and its sender is told.
        Reject => "reject",
    }
}

/// TCP flags (the 14th byte of the header) under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// The flags that matter.
    pub mask: u8,
    /// What they must be.
    pub value: u8,
}

impl TcpFlags {
    /// Either of these is what "established" means: every segment of a connection but the first.
    pub const ESTABLISHED: [TcpFlags; 2] =
        [TcpFlags { mask: tcp::ACK, value: tcp::ACK }, TcpFlags { mask: tcp::RST, value: tcp::RST }];
}

/// An ICMP or ICMPv6 type, and a code if that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpKind {
    /// Type.
    pub kind: u8,
    /// Code; any if `None`.
    pub code: Option<u8>,
}

/// How a packet relates to its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fragment {
    /// It is all of it.
    Whole = 0,
    /// The first fragment, with the transport header.
    First = 1,
    /// A later one, without.
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

/// One rule. Parts left empty are met by every packet; of a part with entries, one must be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of packets that meet it.
    pub action: Action,
    /// Networks the source is in.
    pub sources: Vec<IpNet>,
    /// Networks the destination is in.
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
    /// Places in a fragmented datagram.
    pub fragments: Vec<Fragment>,
}

impl Rule {
    /// A rule that every packet meets.
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

    /// Whether a packet with these facts meets it.
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

/// Rules in order, and what becomes of packets that meet none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    /// The rules; the first that is met decides.
    pub rules: Vec<Rule>,
    /// For packets that meet none.
    pub default: Action,
}

impl AccessList {
    /// The place of the rule that decides (`None`: the default does) and what it says, found by going through
    /// the rules one by one. The slow reference of the compiled list: the oracle of its tests, and for explaining
    /// one packet to a person.
    pub fn decide(&self, facts: &Facts) -> (Option<usize>, Action) {
        match self.rules.iter().position(|rule| rule.holds(facts)) {
            Some(place) => (Some(place), self.rules[place].action),
            None => (None, self.default),
        }
    }
}

/// What rules ask about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Transport protocol.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP, unless it is a later fragment.
    pub ports: Option<(u16, u16)>,
    /// Type and code of ICMP in IPv4 and of ICMPv6 in IPv6, unless it is a later fragment.
    pub icmp: Option<(u8, u8)>,
    /// Flags of TCP, unless it is a later fragment.
    pub tcp_flags: Option<u8>,
    /// Code point.
    pub dscp: u8,
    /// Place in a fragmented datagram.
    pub fragment: Fragment,
}

impl Facts {
    /// Those of a validated packet; `l3` is its bytes from the IP header on.
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

/// Whether the packet is not a later fragment and of this protocol.
#[inline(always)]
fn starts(packet: &Packet, protocol: u8) -> bool {
    packet.protocol == protocol && !packet.flags.has(PacketFlags::LATER_FRAGMENT)
}

#[inline(always)]
fn ports(packet: &Packet) -> Option<(u16, u16)> {
    let has = packet.flags.0 & (PacketFlags::HAS_PORTS | PacketFlags::LATER_FRAGMENT);
    // The identifier of an ICMP echo stands where ports do, and is none.
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
