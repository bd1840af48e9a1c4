//! Parses frames for the meter: where the IP packet is, its header fields, and its transport ports.
//!
//! A meter measures what is there. It counts packets with wrong checksums, addresses that must not be
//! forwarded, multicast, or a TTL of 0, because they all passed. It drops only what it cannot read, with a
//! reason: an unknown link layer, a protocol other than IP, a missing or contradictory header. The router's
//! ingress stage is stricter. Both give the same answer for packets that both accept (a test checks this),
//! except for ports: ICMP has none here; SCTP, DCCP and UDP-Lite have none there.
//!
//! | fact | from |
//! |---|---|
//! | `l3_offset` | the link layer: tags, labels, PPPoE, LLC ([`link`]); with tunnels, the innermost readable packet |
//! | `ip_len` | the header's length field, but never more than was on the wire |
//! | `protocol`, `l4_offset` | the end of the header chain, or where reading it had to stop |
//! | `src_port`, `dst_port` | TCP, UDP, SCTP, DCCP, UDP-Lite, if their four bytes were captured; `HAS_PORTS` says so |
//! | `FRAGMENT`, `LATER_FRAGMENT` | IPv4's fragment field or IPv6's fragment header; an atomic fragment (RFC 6946) is whole |
//!
//! Lengths: a packet that the capture cut (`wire_len` larger than the frame) counts with its length field. A
//! length field that exceeds the bytes on the wire is reduced to them, so counters never include bytes that
//! did not exist. A length of zero marks a packet that the sender's NIC segments later, or one that is too
//! long for the field (RFC 2675): its length is that of the frame.
//!
//! Tunnels ([`tunnel`]), if enabled: the inner packet counts if it is readable, otherwise the outer one.
//! Fragments are not searched for inner packets: later fragments could not be, and the bytes of one packet
//! would count twice.
//!
//! Cost: the usual packet (Ethernet with at most one tag, IP without options, TCP or UDP, no fragment) takes
//! one pass without a loop; figures are in `docs/probe-bench.md`, benchmark `parse`.
//!
//! Missing: MACsec, 802.1ah, A-MSDU, encrypted 802.11, ERSPAN.

pub mod link;
pub mod tunnel;

use std::net::IpAddr;

use link::{LinkFacts, Network, Protocol};
use thalweg_base::{DropReason, LinkType, Packet, PacketFlags};
use thalweg_wire::ipv6::Extensions;
use thalweg_wire::{EtherType, ip_protocol};

/// How [`parse`] treats packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Whether a tunnel's inner packet counts instead of the tunnel's own.
    pub tunnels: bool,
}

/// Fills in the fields of a packet that a meter needs, or drops the packet with the reason why it cannot be
/// read. `frame` has the captured bytes from the link-layer header on. A packet that is dropped already stays
/// unchanged.
#[inline(always)]
pub fn parse(packet: &mut Packet, frame: &[u8], options: &ParseOptions) {
    if packet.is_alive() && !parse_usual(packet, frame, options) {
        parse_any(packet, frame, options);
    }
}

/// The VLAN identifier of a parsed packet's outermost tag; 0 for no tag or a priority tag.
#[inline(always)]
pub fn vlan_of(frame: &[u8], packet: &Packet) -> u16 {
    if is_bare(packet) {
        return 0;
    }
    match one_tag(frame, packet) {
        Some(tag) => tag & 0x0fff,
        None => link_facts(frame, packet).vlan,
    }
}

/// Source and destination of a packet that has a header.
pub fn addresses_of(packet: &Packet, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let l3 = frame.get(usize::from(packet.l3_offset)..)?;
    Some(match packet.is_ipv6() {
        true => {
            let address = |at: usize| l3.get(at..)?.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes));
            (address(8)?, address(24)?)
        }
        false => {
            let address = |at: usize| l3.get(at..)?.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes));
            (address(12)?, address(16)?)
        }
    })
}

/// The label at the top of a parsed packet's MPLS stack.
#[inline(always)]
pub fn mpls_label_of(frame: &[u8], packet: &Packet) -> Option<u32> {
    if is_bare(packet) || one_tag(frame, packet).is_some() {
        None
    } else {
        link_facts(frame, packet).mpls_label
    }
}

/// The captured bytes behind the transport header, up to the end of the IP packet. Only TCP and UDP have any;
/// the result is empty for other protocols, for later fragments, and where the capture was cut before.
pub fn payload_of<'a>(frame: &'a [u8], packet: &Packet) -> &'a [u8] {
    let end = (usize::from(packet.l3_offset) + packet.ip_len as usize).min(frame.len());
    let transport = frame.get(usize::from(packet.l4_offset)..end).unwrap_or_default();
    if !packet.flags.has(PacketFlags::HAS_PORTS) || packet.flags.has(PacketFlags::LATER_FRAGMENT) {
        return &[];
    }
    let header = match packet.protocol {
        ip_protocol::UDP => 8,
        ip_protocol::TCP => transport.get(12).map_or(usize::MAX, |byte| usize::from(byte >> 4).max(5) * 4),
        _ => usize::MAX,
    };
    transport.get(header..).unwrap_or_default()
}

/// Whether no tag or label can precede the IP packet.
#[inline(always)]
fn is_bare(packet: &Packet) -> bool {
    match packet.link {
        LinkType::Ethernet => packet.l3_offset == 14,
        LinkType::RawIp | LinkType::BsdLoopback | LinkType::NetfilterLog => true,
        _ => false,
    }
}

/// The tag of an Ethernet frame with one tag and nothing else before the packet.
#[inline(always)]
fn one_tag(frame: &[u8], packet: &Packet) -> Option<u16> {
    let header = frame.first_chunk::<18>()?;
    let is_tag =
        packet.link == LinkType::Ethernet && packet.l3_offset == 18 && be16(header, 12) == EtherType::VLAN.0;
    is_tag.then(|| be16(header, 14))
}

#[inline(never)]
fn link_facts(frame: &[u8], packet: &Packet) -> LinkFacts {
    link::network_of(packet.link, frame).map(|network| network.facts).unwrap_or_default()
}

/// Parses a packet of the usual kind: complete, behind an Ethernet header with at most one tag or behind
/// nothing, without options or extensions, with TCP or UDP, and no fragment. Returns `false` and writes
/// nothing if the packet is of another kind, malformed, or possibly a tunnel to look into; [`parse_any`] then
/// decides, and gives the same answer for usual packets.
#[inline(always)]
fn parse_usual(packet: &mut Packet, frame: &[u8], options: &ParseOptions) -> bool {
    match usual_network(packet.link, frame) {
        Some((l3_offset, Protocol::Ipv4)) => parse_usual_v4(packet, frame, l3_offset, options),
        Some((l3_offset, Protocol::Ipv6)) => parse_usual_v6(packet, frame, l3_offset, options),
        _ => false,
    }
}

#[inline(always)]
fn usual_network(link: LinkType, frame: &[u8]) -> Option<(usize, Protocol)> {
    match link {
        LinkType::Ethernet => {
            let header = frame.first_chunk::<18>()?;
            let (at, ether_type) = match EtherType(be16(header, 12)) {
                EtherType::VLAN => (18, EtherType(be16(header, 16))),
                ether_type => (14, ether_type),
            };
            match ether_type {
                EtherType::IPV4 => Some((at, Protocol::Ipv4)),
                EtherType::IPV6 => Some((at, Protocol::Ipv6)),
                _ => None,
            }
        }
        LinkType::RawIp => match frame.first()? >> 4 {
            4 => Some((0, Protocol::Ipv4)),
            6 => Some((0, Protocol::Ipv6)),
            _ => None,
        },
        _ => None,
    }
}

// Both variants make all checks and branch once, on their combined result: TCP and UDP alternate at random,
// and a branch on the protocol would be mispredicted.

#[inline(always)]
fn parse_usual_v4(packet: &mut Packet, frame: &[u8], l3_offset: usize, options: &ParseOptions) -> bool {
    let Some(header) = frame.get(l3_offset..).and_then(|l3| l3.first_chunk::<24>()) else {
        return false;
    };
    let total_len = usize::from(be16(header, 2));
    let protocol = header[9];
    let is_transport = (protocol == ip_protocol::TCP) | (protocol == ip_protocol::UDP);
    let is_whole = be16(header, 6) & 0x3fff == 0;
    let fits = (total_len >= 24) & (total_len <= frame.len() - l3_offset);
    if !(fits & is_transport & is_whole & (header[0] == 0x45)) {
        return false;
    }
    let ports = (be16(header, 20), be16(header, 22));
    if options.tunnels && protocol == ip_protocol::UDP && tunnel::is_tunnel(ports.0, ports.1) {
        return false;
    }
    packet.l3_offset = l3_offset as u16;
    packet.l4_offset = l3_offset as u16 + 20;
    packet.ip_len = total_len as u32;
    packet.protocol = protocol;
    packet.traffic_class = header[1];
    packet.flags.set(PacketFlags::HAS_PORTS);
    (packet.src_port, packet.dst_port) = ports;
    true
}

#[inline(always)]
fn parse_usual_v6(packet: &mut Packet, frame: &[u8], l3_offset: usize, options: &ParseOptions) -> bool {
    let Some(header) = frame.get(l3_offset..).and_then(|l3| l3.first_chunk::<44>()) else {
        return false;
    };
    let payload_len = usize::from(be16(header, 4));
    let protocol = header[6];
    let is_transport = (protocol == ip_protocol::TCP) | (protocol == ip_protocol::UDP);
    let fits = (payload_len >= 4) & (40 + payload_len <= frame.len() - l3_offset);
    if !(fits & is_transport & (header[0] >> 4 == 6)) {
        return false;
    }
    let ports = (be16(header, 40), be16(header, 42));
    if options.tunnels && protocol == ip_protocol::UDP && tunnel::is_tunnel(ports.0, ports.1) {
        return false;
    }
    packet.l3_offset = l3_offset as u16;
    packet.l4_offset = l3_offset as u16 + 40;
    packet.ip_len = 40 + payload_len as u32;
    packet.protocol = protocol;
    packet.traffic_class = (header[0] << 4) | (header[1] >> 4);
    packet.flags.set(PacketFlags::HAS_PORTS | PacketFlags::IPV6);
    (packet.src_port, packet.dst_port) = ports;
    true
}

#[inline(never)]
fn parse_any(packet: &mut Packet, frame: &[u8], options: &ParseOptions) {
    let wire_end = (packet.wire_len as usize).max(frame.len());
    let read = link::network_of(packet.link, frame).and_then(|network| {
        // The host and frame lists need to know where a payload other than IP begins.
        packet.l3_offset = u16::try_from(network.at).unwrap_or(u16::MAX);
        IpFacts::read(frame, network, wire_end)
    });
    match read {
        Ok(facts) if options.tunnels => tunnel::innermost(frame, facts).write(packet),
        Ok(facts) => facts.write(packet),
        Err(reason) => packet.drop_for(reason),
    }
}

/// The facts of an IP packet. Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, Default)]
struct IpFacts {
    l3: usize,
    l4: usize,
    /// The end of the packet on the wire.
    end: usize,
    flags: u8,
    protocol: u8,
    traffic_class: u8,
    ports: Option<(u16, u16)>,
}

impl IpFacts {
    /// Reads the packet at `network`, which ends before `wire_end`.
    fn read(frame: &[u8], network: Network, wire_end: usize) -> Result<Self, DropReason> {
        let l3 = frame.get(network.at..).ok_or(DropReason::FrameTooShort)?;
        let wire_len = wire_end.saturating_sub(network.at);
        let version = l3.first().map(|byte| byte >> 4);
        let mut facts = match (network.protocol.version(), version) {
            (None, _) => return Err(DropReason::NotIp),
            (_, None) => return Err(DropReason::FrameTooShort),
            (Some(promised), Some(found)) if promised != found => return Err(DropReason::IpVersion),
            (_, Some(4)) => Self::read_v4(l3, wire_len)?,
            _ => Self::read_v6(l3, wire_len)?,
        };
        facts.read_ports(l3);
        facts.l3 = network.at;
        facts.l4 += network.at;
        facts.end += network.at;
        // Only the longest header chains in the deepest tunnels exceed this.
        if facts.l4 > usize::from(u16::MAX) { Err(DropReason::IpHeaderLength) } else { Ok(facts) }
    }

    /// RFC 791. The offsets in the result count from the header.
    fn read_v4(l3: &[u8], wire_len: usize) -> Result<Self, DropReason> {
        let header: &[u8; 20] = l3.first_chunk().ok_or(DropReason::IpHeaderLength)?;
        let header_len = usize::from(header[0] & 15) * 4;
        if header_len < 20 || header_len > wire_len {
            return Err(DropReason::IpHeaderLength);
        }
        let end = match usize::from(be16(header, 2)) {
            0 => wire_len,
            claimed if claimed < header_len => return Err(DropReason::IpTotalLength),
            claimed => claimed.min(wire_len),
        };
        let fragment = be16(header, 6) & 0x3fff;
        Ok(Self {
            l3: 0,
            l4: header_len,
            end,
            flags: fragment_flags(fragment != 0, fragment & 0x1fff != 0),
            protocol: header[9],
            traffic_class: header[1],
            ports: None,
        })
    }

    /// RFC 8200. The offsets in the result count from the header.
    fn read_v6(l3: &[u8], wire_len: usize) -> Result<Self, DropReason> {
        let header: &[u8; 40] = l3.first_chunk().ok_or(DropReason::IpHeaderLength)?;
        let end = match (be16(header, 4), header[6]) {
            // None of these is ever empty, so the length is elsewhere (RFC 2675) or missing.
            (0, ip_protocol::HOP_BY_HOP | ip_protocol::TCP | ip_protocol::UDP) => wire_len,
            (claimed, _) => (40 + usize::from(claimed)).min(wire_len),
        };
        let mut facts = Self {
            l3: 0,
            l4: 40,
            end,
            flags: PacketFlags::IPV6,
            protocol: header[6],
            traffic_class: (header[0] << 4) | (header[1] >> 4),
            ports: None,
        };
        facts.follow_extensions(&l3[..l3.len().min(end)]);
        Ok(facts)
    }

    /// Advances to the last header of the chain, or to the first unreadable one.
    fn follow_extensions(&mut self, l3: &[u8]) {
        let mut extensions = Extensions::new(l3, self.end, self.protocol);
        for extension in extensions.by_ref() {
            self.flags |= fragment_flags(extension.is_fragment(), extension.is_later_fragment());
        }
        self.protocol = extensions.protocol();
        self.l4 = extensions.at();
    }

    fn read_ports(&mut self, l3: &[u8]) {
        if self.flags & PacketFlags::LATER_FRAGMENT != 0 || !ip_protocol::has_ports(self.protocol) {
            return;
        }
        let at_hand = l3.get(self.l4..l3.len().min(self.end));
        if let Some(&[a, b, c, d]) = at_hand.and_then(|transport| transport.first_chunk()) {
            self.ports = Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
            self.flags |= PacketFlags::HAS_PORTS;
        }
    }

    fn write(self, packet: &mut Packet) {
        packet.l3_offset = self.l3 as u16;
        packet.l4_offset = self.l4 as u16;
        packet.ip_len = (self.end - self.l3) as u32;
        packet.protocol = self.protocol;
        packet.traffic_class = self.traffic_class;
        packet.flags.set(self.flags);
        if let Some((src_port, dst_port)) = self.ports {
            packet.src_port = src_port;
            packet.dst_port = dst_port;
        }
    }
}

fn fragment_flags(is_fragment: bool, is_later: bool) -> u8 {
    (if is_fragment { PacketFlags::FRAGMENT } else { 0 })
        | (if is_later { PacketFlags::LATER_FRAGMENT } else { 0 })
}

#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests;
