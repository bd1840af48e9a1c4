//! What the firewall sees of a packet: the two ends as the inside sees them, and whether the packet can have a state.
//!
//! NAT changes one end of a packet. The firewall takes the source from before and the destination from after NAT: the
//! real hosts, in both directions and for hairpins too. Rules and states know only these. Between the families there are
//! no such ends; the firewall then takes both from the IPv4 packet, and knows an IPv6 host by its public endpoint.

use crate::ingress::{be128, flow_hash_between, flow_hash_of_fragment};
use crate::ip_packet::{IpPacket, number_of_address};
use crate::records::place;
use std::net::Ipv4Addr;
use thalweg_base::{Origin, Packet, PacketFlags, mix64};
use thalweg_wire::{icmp, ip_protocol, ndp};

/// An address of either family, and a port; 0 for protocols without ports, the identifier for an ICMP echo.
pub(crate) type Endpoint = (u128, u16);

/// The IPv4 address in the lowest 32 bits.
pub fn ipv4_of(address: u128) -> Ipv4Addr {
    Ipv4Addr::from(address as u32)
}

/// Protocol and family (whether it is IPv6) of the connection of a packet; `origin` is the packet before NAT, if NAT
/// changed it.
#[inline(always)]
pub(crate) fn family_of(packet: &Packet, origin: Option<&Origin>) -> (u8, bool) {
    match (packet.is_ipv6(), origin, packet.protocol) {
        (true, Some(_), ip_protocol::ICMPV6) => (ip_protocol::ICMP, false),
        (true, Some(_), protocol) => (protocol, false),
        (is_ipv6, _, protocol) => (protocol, is_ipv6),
    }
}

/// How a packet relates to states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Belongs to a state of its endpoints.
    Flow,
    /// An ICMP echo, whose state also knows who asks.
    Echo { is_request: bool },
    /// A later fragment of an ICMP echo: who asks is not known.
    EchoRest,
    /// An ICMP error: it belongs to the state of the packet that it quotes.
    Error,
    /// Another ICMP message: nothing is remembered of it.
    Plain,
    /// A later fragment whose first fragment was not seen.
    Orphan,
}

impl Kind {
    pub(crate) fn of(packet: &Packet, l3: &[u8]) -> Self {
        let has_ports = packet.flags.has(PacketFlags::HAS_PORTS);
        let is_later = packet.flags.has(PacketFlags::LATER_FRAGMENT);
        let of_ports = matches!(packet.protocol, ip_protocol::TCP | ip_protocol::UDP);
        if packet.protocol != icmp_of(packet.is_ipv6()) {
            return if of_ports && !has_ports { Kind::Orphan } else { Kind::Flow };
        }
        if is_later {
            return if has_ports { Kind::EchoRest } else { Kind::Orphan };
        }
        let message = transport(packet, l3).and_then(|message| message.first()).copied();
        match message {
            Some(kind) if has_ports => Kind::Echo { is_request: is_request(packet.is_ipv6(), kind) },
            Some(kind) if is_error(packet.is_ipv6(), kind) => Kind::Error,
            _ => Kind::Plain,
        }
    }
}

fn icmp_of(is_ipv6: bool) -> u8 {
    if is_ipv6 { ip_protocol::ICMPV6 } else { ip_protocol::ICMP }
}

fn is_request(is_ipv6: bool, kind: u8) -> bool {
    kind == if is_ipv6 { icmp::v6::ECHO_REQUEST } else { icmp::v4::ECHO_REQUEST }
}

fn is_error(is_ipv6: bool, kind: u8) -> bool {
    use icmp::v4::{PARAMETER_PROBLEM, SOURCE_QUENCH, TIME_EXCEEDED, UNREACHABLE};
    match is_ipv6 {
        true => (1..128).contains(&kind),
        false => matches!(kind, UNREACHABLE | SOURCE_QUENCH | TIME_EXCEEDED | PARAMETER_PROBLEM),
    }
}

/// Whether the packet is a message of Neighbor Discovery, without which there is no link (RFC 4890 section 4.4.1).
pub(crate) fn is_neighbor_discovery(packet: &Packet, l3: &[u8]) -> bool {
    packet.is_ipv6()
        && packet.protocol == ip_protocol::ICMPV6
        && transport(packet, l3)
            .and_then(<[u8]>::first)
            .is_some_and(|kind| (ndp::ROUTER_SOLICITATION..=ndp::REDIRECT).contains(kind))
}

/// The bytes from the transport header on, without what follows the packet.
pub(crate) fn transport<'a>(packet: &Packet, l3: &'a [u8]) -> Option<&'a [u8]> {
    l3[..l3.len().min(place(packet.ip_len))]
        .get(usize::from(packet.l4_offset.checked_sub(packet.l3_offset)?)..)
}

/// The ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
}

/// Where an IPv4 address of a state has its VRF: hosts of two VRFs may have one address. Addresses of IPv6 have no
/// room, so at most one VRF routes IPv6 where there is a firewall.
const VRF_AT: u32 = 32;

/// An IPv4 address in its VRF.
pub(crate) fn in_vrf(address: u128, vrf: u16) -> u128 {
    address | u128::from(vrf) << VRF_AT
}

/// An address of IPv4 out of its VRF, and the VRF.
pub(super) fn out_of_vrf(address: u128) -> (u128, u8) {
    (address & ((1 << VRF_AT) - 1), u8::try_from(address >> VRF_AT).unwrap_or(u8::MAX))
}

impl Ends {
    /// The ends of a packet of IPv4 in their VRFs.
    fn in_vrfs(self, [from, to]: [u16; 2]) -> Self {
        let within = |(address, port): Endpoint, vrf: u16| (in_vrf(address, vrf), port);
        Self { source: within(self.source, from), destination: within(self.destination, to) }
    }

    /// `origin` is the packet before NAT, if NAT changed it; `vrfs` are those of the ends.
    pub(crate) fn of(packet: &Packet, l3: &[u8], origin: Option<&Origin>, vrfs: [u16; 2]) -> Option<Self> {
        let ports = match packet.flags.has(PacketFlags::HAS_PORTS) {
            true => (packet.src_port, packet.dst_port),
            false => (0, 0),
        };
        if let Some(origin) = origin.filter(|_| packet.is_ipv6()) {
            let ports = if ports == (0, 0) { ports } else { (origin.src_port, origin.dst_port) };
            let address = |bytes| u128::from(u32::from_be_bytes(bytes));
            return Some(Self {
                source: (address(origin.src), ports.0),
                destination: (address(origin.dst), ports.1),
            })
            .map(|ends| ends.in_vrfs(vrfs));
        }
        if packet.is_ipv6() {
            let header: &[u8; 40] = l3.first_chunk()?;
            return Some(Self {
                source: (be128(header, 8), ports.0),
                destination: (be128(header, 24), ports.1),
            });
        }
        let header: &[u8; 20] = l3.first_chunk()?;
        let address = |at: usize| {
            u128::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
        };
        let mut ends = Self { source: (address(12), ports.0), destination: (address(16), ports.1) };
        if let Some(origin) = origin.filter(|_| packet.flags.has(PacketFlags::NAT_OUT)) {
            let is_echo = packet.protocol == ip_protocol::ICMP;
            // A protocol without ports keeps its zeros. An echo keeps one identifier for both ends: the inside host's.
            let port = if packet.flags.has(PacketFlags::HAS_PORTS) { origin.src_port } else { 0 };
            ends.source = (u128::from(u32::from_be_bytes(origin.src)), port);
            ends.destination.1 = if is_echo { port } else { ends.destination.1 };
        }
        Some(ends.in_vrfs(vrfs))
    }
}

/// Both endpoints are IPv6; an address of IPv4 could look like one.
pub(crate) const IPV6: u8 = 1;
/// ICMP echo: the upper endpoint asks.
pub(crate) const UPPER_ASKS: u8 = 2;
/// The marks of a state that are part of its key.
pub(crate) const KEY_MARKS: u8 = IPV6 | UPPER_ASKS;

/// What identifies a state: the endpoints in ascending order, so both directions have one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) addresses: [u128; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
    /// [`KEY_MARKS`].
    pub(crate) marks: u8,
}

impl FlowKey {
    /// The key of a packet between these ends, and the place of its source. `is_request` matters for an ICMP echo.
    #[inline(always)]
    pub(crate) fn between(
        ends: &Ends,
        protocol: u8,
        is_ipv6: bool,
        is_request: Option<bool>,
    ) -> (Self, usize) {
        let from = usize::from(ends.source > ends.destination);
        let (low, high) =
            if from == 0 { (ends.source, ends.destination) } else { (ends.destination, ends.source) };
        let upper_asks = is_request.is_some_and(|is_request| is_request == (from == 1));
        let marks = (u8::from(is_ipv6) * IPV6) | (u8::from(upper_asks) * UPPER_ASKS);
        (Self { addresses: [low.0, high.0], ports: [low.1, high.1], protocol, marks }, from)
    }

    /// The key of a packet of this kind, protocol and family.
    #[inline(always)]
    pub(crate) fn of(ends: &Ends, kind: Kind, (protocol, is_ipv6): (u8, bool)) -> (Self, usize) {
        let is_request = match kind {
            Kind::Echo { is_request } => Some(is_request),
            Kind::EchoRest => Some(true),
            _ => None,
        };
        Self::between(ends, protocol, is_ipv6, is_request)
    }

    /// The key of the other echo with these ends and this identifier: the one that the other end asks.
    pub(crate) fn asked_by_the_other(self) -> Self {
        Self { marks: self.marks ^ UPPER_ASKS, ..self }
    }

    /// One of the endpoints, without its VRF.
    pub(crate) fn end(&self, at: usize) -> Endpoint {
        let address = self.addresses[at];
        (if self.marks & IPV6 != 0 { address } else { out_of_vrf(address).0 }, self.ports[at])
    }

    /// The VRF of one of the endpoints; `None` with IPv6, which says none.
    pub(crate) fn vrf(&self, at: usize) -> Option<u16> {
        (self.marks & IPV6 == 0).then(|| out_of_vrf(self.addresses[at]).1.into())
    }

    /// The flow hash of the connection's packets.
    pub(crate) fn flow_hash(&self) -> u32 {
        flow_hash_between(self.end(0), self.end(1), self.marks & IPV6 != 0, self.protocol)
    }

    /// A hash with a secret, so that nobody can choose endpoints that collide.
    #[inline(always)]
    pub(crate) fn hash(&self, secret: u64) -> u64 {
        let endpoint = |at: usize, secret: u64| {
            let (address, port) = (self.addresses[at], u64::from(self.ports[at]));
            mix64(mix64((address >> 64) as u64 ^ secret) ^ address as u64 ^ port << 48)
        };
        let kind = u64::from(self.protocol) << 8 | u64::from(self.marks);
        mix64(endpoint(0, secret).wrapping_add(endpoint(1, !secret).rotate_left(32)) ^ kind)
    }
}

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted {
    pub(crate) key: FlowKey,
    /// The address of its sender, to whom the error goes.
    pub(crate) sender: u128,
}

impl Quoted {
    /// `None` if nothing with a state is quoted. `vrfs` are those of the ends of the error, which goes back.
    pub(crate) fn of(packet: &Packet, l3: &[u8], [from, to]: [u16; 2]) -> Option<Self> {
        let quoted = IpPacket::parse(transport(packet, l3)?.get(icmp::HEADER_BYTES..)?)?;
        if quoted.is_ipv6() != packet.is_ipv6() || quoted.later_fragment {
            return None;
        }
        let segment = quoted.transport();
        let word = |at: usize| segment.get(at..at + 2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        let (ports, is_request) = match quoted.protocol {
            ip_protocol::TCP | ip_protocol::UDP => ((word(0)?, word(2)?), None),
            protocol if protocol == icmp_of(packet.is_ipv6()) => {
                let kind = *segment.first()?;
                let replies = if packet.is_ipv6() { icmp::v6::ECHO_REPLY } else { icmp::v4::ECHO_REPLY };
                let is_request = is_request(packet.is_ipv6(), kind);
                (is_request || kind == replies).then_some(())?;
                ((word(4)?, word(4)?), Some(is_request))
            }
            _ => ((0, 0), None),
        };
        let ends = Ends {
            source: (number_of_address(quoted.source), ports.0),
            destination: (number_of_address(quoted.destination), ports.1),
        };
        let ends = if quoted.is_ipv6() { ends } else { ends.in_vrfs([to, from]) };
        let (key, _) = FlowKey::between(&ends, quoted.protocol, packet.is_ipv6(), is_request);
        Some(Self { key, sender: ends.source.0 })
    }
}

/// The flow hash of the packets whose state this packet belongs to, NAT aside. It equals the packet's own, except
/// for fragments and ICMP errors. Stateless, so it can run anywhere.
pub fn state_hash(packet: &Packet, l3: &[u8]) -> u32 {
    if packet.flags.has(PacketFlags::FRAGMENT) {
        return flow_hash_of_fragment(packet, l3);
    }
    if packet.flags.has(PacketFlags::HAS_PORTS) || Kind::of(packet, l3) != Kind::Error {
        return packet.flow_hash;
    }
    Quoted::of(packet, l3, [0; 2]).map_or(packet.flow_hash, |quoted| quoted.key.flow_hash())
}
