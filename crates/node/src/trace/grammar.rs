//! The notation for packets, and the packet that a description denotes.
//!
//! ```text
//! PORT ip SOURCE -> DESTINATION [TRANSPORT] [OPTION]...
//!   PORT        the ingress port, or its interface
//!   TRANSPORT   udp [SOURCE_PORT ->] PORT | tcp [SOURCE_PORT ->] PORT | icmp [TYPE[/CODE]] | protocol NUMBER
//!   OPTION      ttl N | dscp NAME_OR_N | length BYTES | df | flags syn,ack,.. | fragment first|later
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use thalweg_wire::checksum::pseudo_sum;
use thalweg_wire::icmp::{self, IcmpRepr};
use thalweg_wire::ip_protocol;
use thalweg_wire::ipv4::{self, Ipv4Repr};
use thalweg_wire::ipv6::{self, FragmentRepr, Ipv6Repr};
use thalweg_wire::tcp::{self, TcpRepr};
use thalweg_wire::udp::{self, UdpRepr};

use crate::words::{SpecError, Words};

/// The default source port: the first dynamic one (RFC 6335).
const SOURCE_PORT: u16 = 49_152;
const TTL: u8 = 64;
/// The longest IPv4 packet; for IPv6, longer ones are jumbograms.
const LENGTH_MAX: usize = 65_535;
/// The offset of a later fragment, in units of eight bytes: after a first fragment of 1500 bytes.
const LATER_OFFSET: u16 = 185;
/// The default protocol, "any private encryption scheme", which has no ports.
const NO_TRANSPORT: u8 = 99;

/// Which fragment of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    First,
    Later,
}

/// An incoming packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    /// Name of the port or of its interface.
    pub port: String,
    pub source: IpAddr,
    /// The destination, of the same family as the source.
    pub destination: IpAddr,
    /// The IP protocol number.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP.
    pub ports: Option<(u16, u16)>,
    /// Type and code of ICMP.
    pub icmp: Option<(u8, u8)>,
    /// TCP flags.
    pub flags: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    pub dscp: u8,
    /// Length of the IP packet in bytes.
    pub length: usize,
    pub dont_fragment: bool,
    /// The kind of fragment; `None` for a whole datagram.
    pub part: Option<Part>,
}

impl PacketSpec {
    /// Parses a description.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Words::of("the packet", text).packet()
    }

    /// The bytes of the packet from its IP header on.
    pub fn to_packet(&self) -> Vec<u8> {
        let room = |headers: usize| self.length.saturating_sub(headers);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4Repr {
                    ttl: self.ttl,
                    traffic_class: self.dscp << 2,
                    identification: 1,
                    flags_and_offset: match self.part {
                        Some(Part::First) => ipv4::MORE_FRAGMENTS,
                        Some(Part::Later) => LATER_OFFSET,
                        None if self.dont_fragment => ipv4::DONT_FRAGMENT,
                        None => 0,
                    },
                    ..Ipv4Repr::new(source, destination, self.protocol, room(ipv4::HEADER_BYTES))
                };
                [&header.encode()[..], &self.transport(room(ipv4::HEADER_BYTES))].concat()
            }
            (source, destination) => {
                let fragment = self.part.map(|part| FragmentRepr {
                    next_header: self.protocol,
                    field: if part == Part::First { 1 } else { LATER_OFFSET << 3 },
                    identification: 1,
                });
                let fragment = fragment.map(|fragment| fragment.encode());
                let extension = fragment.as_ref().map_or(&[][..], |bytes| &bytes[..]);
                let next_header = if fragment.is_some() { ip_protocol::FRAGMENT } else { self.protocol };
                let (source, destination) = (v6_of(source), v6_of(destination));
                let header = Ipv6Repr {
                    hop_limit: self.ttl,
                    traffic_class: self.dscp << 2,
                    ..Ipv6Repr::new(source, destination, next_header, room(ipv6::HEADER_BYTES))
                };
                let transport = self.transport(room(ipv6::HEADER_BYTES + extension.len()));
                [&header.encode()[..], extension, &transport].concat()
            }
        }
    }

    /// `length` bytes that follow the IP headers.
    fn transport(&self, length: usize) -> Vec<u8> {
        if self.part == Some(Part::Later) {
            return vec![0; length];
        }
        let payload = |header: usize| vec![0; length.saturating_sub(header)];
        let pseudo = pseudo_sum(self.source, self.destination, self.protocol, length);
        let (source_port, destination_port) = self.ports.unwrap_or_default();
        match (self.protocol, self.icmp) {
            (protocol, Some((kind, code))) => {
                let payload = payload(icmp::HEADER_BYTES);
                let header = IcmpRepr { kind, code, rest: [0, 1, 0, 1] };
                let pseudo = if protocol == ip_protocol::ICMPV6 { pseudo } else { 0 };
                [&header.encode(&payload, pseudo)[..], &payload].concat()
            }
            (ip_protocol::UDP, None) => {
                let payload = payload(udp::HEADER_BYTES);
                let header = UdpRepr { source_port, destination_port };
                [&header.encode(&payload, pseudo)[..], &payload].concat()
            }
            (ip_protocol::TCP, None) => {
                let payload = payload(tcp::HEADER_BYTES);
                let (sequence, acknowledgment, window) = (0, 0, u16::MAX);
                let header = TcpRepr {
                    source_port,
                    destination_port,
                    sequence,
                    acknowledgment,
                    flags: self.flags,
                    window,
                };
                [&header.encode(&payload, pseudo)[..], &payload].concat()
            }
            _ => payload(0),
        }
    }

    /// The shortest valid length.
    fn length_min(&self) -> usize {
        let header = match (self.source, self.part) {
            (IpAddr::V4(_), _) => ipv4::HEADER_BYTES,
            (IpAddr::V6(_), None) => ipv6::HEADER_BYTES,
            (IpAddr::V6(_), Some(_)) => ipv6::HEADER_BYTES + FragmentRepr::BYTES,
        };
        let transport = match (self.part, self.protocol, self.icmp) {
            (Some(Part::Later), ..) => 8,
            (_, _, Some(_)) => 8,
            (_, ip_protocol::TCP, _) => 20,
            (_, ip_protocol::UDP, _) => 8,
            _ => 0,
        };
        header + transport
    }
}

fn v6_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

impl fmt::Display for PacketSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ip {} -> {}", self.port, self.source, self.destination)?;
        match (self.protocol, self.ports, self.icmp) {
            (_, Some((source, destination)), _) => {
                let name = if self.protocol == ip_protocol::TCP { "tcp" } else { "udp" };
                write!(f, " {name} {source} -> {destination}")?;
            }
            (_, _, Some((kind, code))) => write!(f, " icmp {kind}/{code}")?,
            (number, ..) => write!(f, " protocol {number}")?,
        }
        if self.protocol == ip_protocol::TCP {
            let names =
                tcp::FLAG_NAMES.iter().filter(|(_, bit)| self.flags & bit != 0).map(|(name, _)| *name);
            let names: Vec<_> = names.collect();
            if !names.is_empty() {
                write!(f, " flags {}", names.join(","))?;
            }
        }
        write!(f, " ttl {} dscp {} length {}", self.ttl, self.dscp, self.length)?;
        match self.part {
            Some(Part::First) => f.write_str(" fragment first"),
            Some(Part::Later) => f.write_str(" fragment later"),
            None if self.dont_fragment => f.write_str(" df"),
            None => Ok(()),
        }
    }
}

impl Words<'_> {
    fn packet(mut self) -> Result<PacketSpec, SpecError> {
        let port = self.take("a port, such as `lan`")?;
        if port == "->" || port.parse::<IpAddr>().is_ok() {
            return Err(self.error(1, "a port, such as `lan`, before the word `ip`"));
        }
        self.expect("ip", "the word `ip` and then source -> destination")?;
        let source = self.address()?;
        self.expect("->", "`->` and the destination")?;
        let destination = self.address()?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(self.error(1, "an address of the source's family"));
        }
        let mut spec = PacketSpec {
            port,
            source,
            destination,
            protocol: NO_TRANSPORT,
            ports: None,
            icmp: None,
            flags: 0,
            ttl: TTL,
            dscp: 0,
            length: 0,
            dont_fragment: false,
            part: None,
        };
        self.transport(&mut spec)?;
        let mut length = None;
        while self.peek().is_some() {
            self.option(&mut spec, &mut length)?;
        }
        spec.length = spec.length_min();
        if let Some((place, bytes)) = length {
            if bytes < spec.length {
                self.next = place + 1;
                return Err(self.error(1, format!("at least {} bytes for its headers", spec.length)));
            }
            spec.length = bytes;
        }
        Ok(spec)
    }

    fn transport(&mut self, spec: &mut PacketSpec) -> Result<(), SpecError> {
        let icmp = if spec.source.is_ipv4() { (ip_protocol::ICMP, 8) } else { (ip_protocol::ICMPV6, 128) };
        match self.peek() {
            Some(word @ ("udp" | "tcp")) => {
                let is_tcp = word == "tcp";
                spec.protocol = if is_tcp { ip_protocol::TCP } else { ip_protocol::UDP };
                spec.flags = if is_tcp { 2 } else { 0 };
                self.next += 1;
                let first = self.number(0, 65_535, "a port")? as u16;
                spec.ports = Some((SOURCE_PORT, first));
                if self.peek() == Some("->") {
                    self.next += 1;
                    spec.ports = Some((first, self.number(0, 65_535, "a port")? as u16));
                }
            }
            Some("icmp" | "icmpv6") => {
                self.next += 1;
                (spec.protocol, spec.icmp) = (icmp.0, Some((icmp.1, 0)));
                if self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                    let expected = "an ICMP type, such as 8 or 3/4";
                    let word = self.take(expected)?;
                    let (kind, code) = word.split_once('/').unwrap_or((&word, "0"));
                    let kind = kind.parse().map_err(|_| self.error(1, expected))?;
                    spec.icmp = Some((kind, code.parse().map_err(|_| self.error(1, expected))?));
                }
            }
            Some("protocol") => {
                self.next += 1;
                spec.protocol = self.number(0, 255, "a protocol number")? as u8;
                if matches!(spec.protocol, ip_protocol::TCP | ip_protocol::UDP) {
                    return Err(self.error(1, "`tcp` or `udp` with a port for these"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn option(
        &mut self,
        spec: &mut PacketSpec,
        length: &mut Option<(usize, usize)>,
    ) -> Result<(), SpecError> {
        let expected = match spec.protocol {
            NO_TRANSPORT => {
                "udp, tcp, icmp or protocol, or an option: ttl, dscp, length, df, fragment (flags with tcp)"
            }
            ip_protocol::TCP => "an option: ttl, dscp, length, df, flags, fragment",
            _ => "an option: ttl, dscp, length, df, fragment",
        };
        match self.take(expected)?.as_str() {
            "ttl" => spec.ttl = self.number(0, 255, "a number")? as u8,
            "dscp" => spec.dscp = self.dscp()?,
            "length" => {
                let bytes = self.number(0, LENGTH_MAX as u64, "bytes of the IP packet")? as usize;
                *length = Some((self.next - 1, bytes));
            }
            "df" if spec.source.is_ipv4() => spec.dont_fragment = true,
            "df" => return Err(self.error(1, "no `df`: routers never cut IPv6")),
            "flags" if spec.protocol == ip_protocol::TCP => spec.flags = self.flags()?,
            "fragment" => {
                spec.part = Some(match self.take("`first` or `later`")?.as_str() {
                    "first" => Part::First,
                    "later" => Part::Later,
                    _ => return Err(self.error(1, "`first` or `later`")),
                });
            }
            _ => return Err(self.error(1, expected)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_dataplane::ip_packet::IpPacket;

    #[test]
    fn what_is_said_and_what_is_not() {
        let all = [
            (
                "eth0 ip 10.0.0.1 -> 8.8.8.8 udp 53",
                "eth0 ip 10.0.0.1 -> 8.8.8.8 udp 49152 -> 53 ttl 64 dscp 0 length 28",
            ),
            (
                "lan ip 10.0.0.1->8.8.8.8 tcp 1000->80 ttl 1 dscp ef df flags syn,ack length 1500",
                "lan ip 10.0.0.1 -> 8.8.8.8 tcp 1000 -> 80 flags syn,ack ttl 1 dscp 46 length 1500 df",
            ),
            ("lan ip 10.0.0.1 -> 8.8.8.8", "lan ip 10.0.0.1 -> 8.8.8.8 protocol 99 ttl 64 dscp 0 length 20"),
            (
                "lan ip 10.0.0.1 -> 8.8.8.8 icmp 3/4",
                "lan ip 10.0.0.1 -> 8.8.8.8 icmp 3/4 ttl 64 dscp 0 length 28",
            ),
            (
                "lan ip 2001:db8::1 -> 2001:db8::2 icmp fragment first",
                "lan ip 2001:db8::1 -> 2001:db8::2 icmp 128/0 ttl 64 dscp 0 length 56 fragment first",
            ),
            (
                "lan ip 10.0.0.1 -> 8.8.8.8 udp 53 fragment later",
                "lan ip 10.0.0.1 -> 8.8.8.8 udp 49152 -> 53 ttl 64 dscp 0 length 28 fragment later",
            ),
        ];
        for (text, meant) in all {
            let spec = PacketSpec::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spec.to_string(), meant);
            assert_eq!(PacketSpec::parse(meant).unwrap_or_else(|error| panic!("{error}")), spec, "read back");
            let packet = spec.to_packet();
            let parsed = IpPacket::parse(&packet).expect("an IP packet");
            assert_eq!((parsed.source, parsed.destination), (spec.source, spec.destination));
            assert_eq!(
                (parsed.protocol, parsed.hop_limit, packet.len()),
                (spec.protocol, spec.ttl, spec.length)
            );
            assert_eq!(parsed.fragment, spec.part.is_some());
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        let all = [
            ("", 1, "a port"),
            ("10.0.0.1 -> 8.8.8.8", 1, "before the word `ip`"),
            ("lan 10.0.0.1 -> 8.8.8.8", 5, "the word `ip`"),
            ("lan ip 10.0.0 -> 8.8.8.8", 8, "an IPv4 or IPv6 address"),
            ("lan ip 10.0.0.1 8.8.8.8", 17, "`->` and the destination"),
            ("lan ip 10.0.0.1 ->", 19, "an IPv4 or IPv6 address"),
            ("lan ip 10.0.0.1 -> 2001:db8::1", 20, "an address of the source's family"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 udp", 31, "a port from 0 to 65535"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 udp 70000", 32, "a port from 0 to 65535"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 sctp 9", 28, "udp, tcp, icmp or protocol"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 udp 53 flags syn", 35, "an option"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 tcp 53 flags syn,bad", 41, "flags, such as"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 udp 53 length 20 ttl 3", 42, "at least 28 bytes"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 udp 53 dscp 64", 40, "a code point"),
            ("lan ip ::1 -> ::2 udp 53 df", 26, "routers never cut IPv6"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 icmp 8/x", 33, "an ICMP type"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 protocol 6", 37, "`tcp` or `udp`"),
            ("lan ip 10.0.0.1 -> 8.8.8.8 udp 53 fragment middle", 44, "`first` or `later`"),
        ];
        for (text, column, expected) in all {
            let error = PacketSpec::parse(text).expect_err(text);
            assert_eq!(error.column, column, "{error}");
            assert!(error.expected.contains(expected), "{error}");
            let shown = error.to_string();
            let mark = shown.lines().last().and_then(|line| line.find('^')).expect("a mark");
            assert_eq!(mark, "  | ".len() + column - 1, "{shown}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[ a-z0-9.:>/-]{0,60}") {
            if let Ok(spec) = PacketSpec::parse(&text) {
                prop_assert_eq!(spec.to_packet().len(), spec.length);
            }
        }

        #[test]
        fn nothing_panics_behind_a_good_beginning(text in "( (udp|tcp|icmp|protocol|ttl|dscp|length|df|flags|fragment|->|first|later|syn|[0-9]{1,5}|é)){0,8}", v6 in any::<bool>()) {
            let head = if v6 { "lan ip 2001:db8::1 -> 2001:db8::2" } else { "lan ip 10.0.0.1 -> 8.8.8.8" };
            if let Ok(spec) = PacketSpec::parse(&format!("{head}{text}")) {
                prop_assert_eq!(spec.to_packet().len(), spec.length);
            }
        }
    }
}
