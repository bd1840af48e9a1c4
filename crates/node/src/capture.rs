//! Packet filters of captures: clauses that must all hold.
//!
//! ```text
//! [[not] CLAUSE]...
//!   CLAUSE   ip | ipv6 | arp | udp | tcp | icmp | protocol NUMBER
//!            src PREFIX | dst PREFIX | host PREFIX          host: either of both
//!            sport PORTS | dport PORTS | port PORTS         port: either; PORTS is 53 or 8000-8099
//!            dscp NAME_OR_N | flags syn,ack,.. | fragment   flags: all of these
//! ```
//!
//! The vocabulary is that of `trace packet`. The filter sees a frame as it is at the capture point: after NAT,
//! addresses and ports are the translated ones. A clause about ports or flags never holds for a later fragment,
//! which has none. Missing: `or`; use two captures instead.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use thalweg_dataplane::ip_packet::IpPacket;
use thalweg_wire::ethernet::payload_of;
use thalweg_wire::{EtherType, ip_protocol, tcp};

use crate::words::{SpecError, Words};

/// Which end must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Source,
    Destination,
    Either,
}

impl End {
    fn holds<T>(self, (source, destination): (T, T), test: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Source => test(source),
            Self::Destination => test(destination),
            Self::Either => test(source) || test(destination),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    Type(EtherType),
    Protocol(u8),
    Icmp,
    Address(End, IpNet),
    Ports(End, RangeInclusive<u16>),
    Dscp(u8),
    Flags(u8),
    Fragment,
}

/// Clauses that must all hold; without any, every packet matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketFilter {
    clauses: Vec<(bool, Clause)>,
}

impl PacketFilter {
    /// Parses a filter.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut words = Words::of("the filter", text);
        let mut clauses = Vec::new();
        while words.peek().is_some() {
            let is_wanted = words.peek() != Some("not");
            words.next += usize::from(!is_wanted);
            clauses.push((is_wanted, words.clause()?));
        }
        Ok(Self { clauses })
    }

    /// Whether a frame matches. `is_ip` says that it has no link layer.
    pub fn wants(&self, frame: &[u8], is_ip: bool) -> bool {
        if self.clauses.is_empty() {
            return true;
        }
        let view = FrameView::of(frame, is_ip);
        self.clauses.iter().all(|(is_wanted, clause)| view.is(clause) == *is_wanted)
    }
}

/// The parts of a frame that clauses examine.
struct FrameView<'f> {
    ether_type: Option<EtherType>,
    packet: Option<IpPacket<'f>>,
}

impl<'f> FrameView<'f> {
    fn of(frame: &'f [u8], is_ip: bool) -> Self {
        let (ether_type, payload) = match is_ip {
            true => (Some(EtherType::of_packet(frame)), frame),
            false => payload_of(frame).map_or((None, frame), |(kind, payload)| (Some(kind), payload)),
        };
        let has_packet = ether_type.is_some_and(EtherType::is_ip);
        Self { ether_type, packet: has_packet.then(|| IpPacket::parse(payload)).flatten() }
    }

    fn is(&self, clause: &Clause) -> bool {
        if let Clause::Type(wanted) = clause {
            return self.ether_type == Some(*wanted);
        }
        let Some(packet) = &self.packet else { return false };
        match clause {
            Clause::Type(_) => false,
            Clause::Protocol(number) => packet.protocol == *number,
            Clause::Icmp => matches!(packet.protocol, ip_protocol::ICMP | ip_protocol::ICMPV6),
            Clause::Address(end, net) => {
                end.holds((packet.source, packet.destination), |address| net.contains(&address))
            }
            Clause::Ports(end, range) => {
                ports_of(packet).is_some_and(|ports| end.holds(ports, |port| range.contains(&port)))
            }
            Clause::Dscp(wanted) => packet.traffic_class >> 2 == *wanted,
            Clause::Flags(wanted) => flags_of(packet).is_some_and(|flags| flags & wanted == *wanted),
            Clause::Fragment => packet.fragment,
        }
    }
}

fn ports_of(packet: &IpPacket<'_>) -> Option<(u16, u16)> {
    let has_ports = matches!(packet.protocol, ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP);
    match packet.transport() {
        [a, b, c, d, ..] if has_ports && !packet.later_fragment => {
            Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])))
        }
        _ => None,
    }
}

fn flags_of(packet: &IpPacket<'_>) -> Option<u8> {
    let has_flags = packet.protocol == ip_protocol::TCP && !packet.later_fragment;
    packet.transport().get(tcp::FLAGS_AT).copied().filter(|_| has_flags)
}

impl Words<'_> {
    fn clause(&mut self) -> Result<Clause, SpecError> {
        let expected = "ip, ipv6, arp, udp, tcp, icmp, protocol, src, dst, host, sport, dport, port, dscp, flags or \
                        fragment";
        Ok(match self.take(expected)?.as_str() {
            "ip" => Clause::Type(EtherType::IPV4),
            "ipv6" => Clause::Type(EtherType::IPV6),
            "arp" => Clause::Type(EtherType::ARP),
            "udp" => Clause::Protocol(ip_protocol::UDP),
            "tcp" => Clause::Protocol(ip_protocol::TCP),
            "icmp" => Clause::Icmp,
            "protocol" => Clause::Protocol(self.number(0, 255, "a protocol number")? as u8),
            "src" => Clause::Address(End::Source, self.prefix()?),
            "dst" => Clause::Address(End::Destination, self.prefix()?),
            "host" => Clause::Address(End::Either, self.prefix()?),
            "sport" => Clause::Ports(End::Source, self.ports()?),
            "dport" => Clause::Ports(End::Destination, self.ports()?),
            "port" => Clause::Ports(End::Either, self.ports()?),
            "dscp" => Clause::Dscp(self.dscp()?),
            "flags" => Clause::Flags(self.flags()?),
            "fragment" => Clause::Fragment,
            _ => return Err(self.error(1, expected)),
        })
    }

    fn prefix(&mut self) -> Result<IpNet, SpecError> {
        let expected = "an address or a prefix, such as 10.0.0.0/8";
        let word = self.take(expected)?;
        let address = word.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| word.parse()).map_err(|_| self.error(1, expected))
    }

    fn ports(&mut self) -> Result<RangeInclusive<u16>, SpecError> {
        let expected = "a port or a range, such as 8000-8099";
        let word = self.take(expected)?;
        let (first, last) = word.split_once('-').unwrap_or((&word, &word));
        let range = first.parse().ok().zip(last.parse().ok()).filter(|(first, last)| first <= last);
        range.map(|(first, last)| first..=last).ok_or_else(|| self.error(1, expected))
    }
}

#[cfg(test)]
mod tests;
