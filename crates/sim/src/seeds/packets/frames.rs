//! Makes the frames of a plan's packets, and reads what the judge needs of a frame. It shares no code with
//! the router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use thalweg_wire::icmp::{self, IcmpRepr};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::ipv6::Ipv6Repr;
use thalweg_wire::{EtherType, ip_protocol, tcp, testing};

use super::plan::{Item, Kind, Piece, Protocol};

/// Ports of the router, by number.
pub(super) const WAN: u16 = 0;
pub(super) const DARK: u16 = 1;
pub(super) const FIRST_LAN: u16 = 2;

pub(super) const ETHERNET: usize = 14;
/// The offset at which a datagram is cut in two.
const CUT: usize = 32;
/// The payload of datagrams that are cut.
const CUT_PAYLOAD: usize = 64;
/// The public port that always leads to the first host, and that host's port.
pub(super) const FORWARD: (u16, u16) = (5000, 5353);
/// The inside port that stands for a forwarded one in unsolicited packets.
pub(super) const WELL_KNOWN: u16 = 80;
/// Damaged packets come from hosts of their own, so that damaged addresses belong to no other flow.
const DAMAGED: u8 = 200;

/// Whether the host of this address sends damaged packets.
pub(super) fn is_of_damaged(address: Ipv4Addr) -> bool {
    address.octets()[3] >= DAMAGED
}

/// A packet that arrives.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) frame: Vec<u8>,
    pub(super) port_in: u16,
    pub(super) at_ns: u64,
    pub(super) kind: Kind,
    /// Whether its bytes are undamaged.
    pub(super) is_whole: bool,
}

impl Arrival {
    pub(super) fn l3(&self) -> &[u8] {
        self.frame.get(ETHERNET..).unwrap_or_default()
    }
}

/// The port and address of an inside host.
pub(super) fn inside(host: u8, lans: u8) -> (u16, Ipv4Addr) {
    let lan = host % lans.max(1);
    (FIRST_LAN + u16::from(lan), Ipv4Addr::new(10, 0, lan, 10 + host))
}

pub(super) fn remote(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 10 + number)
}

pub(super) fn public(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 10 + number)
}

fn remote_port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Udp => 53,
        _ => 443,
    }
}

pub(super) fn number_of(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Udp => ip_protocol::UDP,
        Protocol::Echo => ip_protocol::ICMP,
        Protocol::Gre => ip_protocol::GRE,
        _ => ip_protocol::TCP,
    }
}

/// An endpoint and its protocol. The port is the identifier of an echo, and 0 for a protocol without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub(super) protocol: u8,
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

impl Endpoint {
    pub(super) fn new(protocol: u8, at: SocketAddrV4) -> Self {
        Self { protocol, address: *at.ip(), port: at.port() }
    }
}

/// A public endpoint that was seen, and its peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) public: Endpoint,
    pub(super) inside: Endpoint,
    pub(super) remote: SocketAddrV4,
}

/// Makes the frame of one of an item's packets. `seen` is the public endpoint to which the item refers, if
/// any; `number` is in the payload.
pub(super) fn arrival(
    item: &Item,
    nth: u16,
    lans: u8,
    seen: Option<Seen>,
    number: u32,
    at_ns: u64,
) -> Arrival {
    let item = &undamaged_names(item);
    let host = item.host;
    let (lan, address) = inside(host, lans);
    let port = item.port.wrapping_add(nth);
    let from = SocketAddrV4::new(address, port);
    let to = SocketAddrV4::new(remote(item.remote), remote_port(item.protocol));
    let back = SocketAddrV4::new(remote(item.remote), seen.map_or(to, |seen| seen.remote).port());
    let at_public = seen.map_or(SocketAddrV4::new(public(0), port), |seen| {
        SocketAddrV4::new(seen.public.address, seen.public.port)
    });
    let v4 = |from, to| packet(item, from, to, number, false);
    let toward = |address: [u8; 4]| v4(from, SocketAddrV4::new(address.into(), to.port()));
    let (port_in, l3) = match item.kind {
        Kind::Out => (lan, v4(from, to)),
        Kind::Back => (WAN, answer(item, back, at_public, seen, number)),
        Kind::Knock => {
            let port = if item.port == WELL_KNOWN { FORWARD.0 } else { port };
            (WAN, v4(SocketAddrV4::new(*to.ip(), 6000), SocketAddrV4::new(public(0), port)))
        }
        Kind::Hairpin => (lan, v4(from, at_public)),
        Kind::ErrorIn => (WAN, error(item, *to.ip(), quoted(at_public, seen, to, item))),
        Kind::ErrorOut => {
            // It quotes a packet that came from outside to the inside endpoint.
            let inside = seen.map_or(from, |seen| SocketAddrV4::new(seen.inside.address, seen.inside.port));
            let lan = FIRST_LAN + u16::from(inside.ip().octets()[2].min(lans - 1));
            let came = quoted(seen.map_or(to, |seen| seen.remote), seen, inside, item);
            (lan, error(item, *inside.ip(), came))
        }
        Kind::Across => {
            (lan, v4(from, SocketAddrV4::new(inside(item.remote.wrapping_add(1), lans).1, to.port())))
        }
        Kind::Blackhole => (lan, toward([10, 9, 0, 1])),
        Kind::Unreachable => (lan, toward([10, 10, 0, 1])),
        Kind::Unresolved => (lan, toward([10, 11, 0, 7])),
        Kind::Local => (lan, toward([10, 0, lan as u8 - FIRST_LAN as u8, 1])),
        Kind::Multicast => (lan, toward([224, 0, 0, 5])),
        Kind::Martian => (lan, v4(SocketAddrV4::new([127, 0, 0, 1].into(), port), to)),
        Kind::Forged => (lan, v4(SocketAddrV4::new([172, 16, 0, 10 + host].into(), port), to)),
        Kind::Six | Kind::SixNowhere => (lan, six(item, lan, host, port, number)),
        Kind::Garbage => (lan, (0..item.bytes).map(|at| (number >> (at % 4 * 8)) as u8 ^ at as u8).collect()),
        Kind::NotIp => (lan, vec![0; 28]),
    };
    let kind = match item.kind {
        Kind::NotIp => EtherType::ARP,
        Kind::Six | Kind::SixNowhere => EtherType::IPV6,
        _ => EtherType::IPV4,
    };
    let mut frame = [&testing::ethernet_header(&[], kind)[..], &l3].concat();
    let mut is_whole = !matches!(item.kind, Kind::Garbage | Kind::NotIp);
    if let Some(byte) = item.flip.and_then(|at| frame.get_mut(ETHERNET + usize::from(at))) {
        *byte ^= 1;
        is_whole = false;
    }
    Arrival { frame, port_in, at_ns, kind: item.kind, is_whole }
}

/// Assigns damaged packets to hosts of their own. An error quotes its host's own packet, and is never
/// damaged.
fn undamaged_names(item: &Item) -> Item {
    match item.flip {
        Some(_) if item.kind == Kind::ErrorOut => Item { flip: None, ..*item },
        Some(_) => Item { host: DAMAGED, remote: DAMAGED, ..*item },
        None => *item,
    }
}

/// The number of the packet, then padding.
fn payload(item: &Item, number: u32) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    let more = if item.piece == Piece::Whole { usize::from(item.bytes) } else { CUT_PAYLOAD - 4 };
    bytes.resize(4 + more, 0x5a);
    bytes
}

/// An answer has the identifier of the echo, or is a segment of an open connection.
fn answer(item: &Item, from: SocketAddrV4, to: SocketAddrV4, seen: Option<Seen>, number: u32) -> Vec<u8> {
    let Some(seen) = seen else { return packet(item, from, to, number, true) };
    let protocol = match (seen.public.protocol, item.protocol) {
        (ip_protocol::UDP, _) => Protocol::Udp,
        (ip_protocol::ICMP, _) => Protocol::Echo,
        (ip_protocol::TCP, Protocol::TcpFin | Protocol::TcpRst) => item.protocol,
        (ip_protocol::TCP, _) => Protocol::TcpAck,
        _ => Protocol::Gre,
    };
    let piece = if protocol == Protocol::Udp { item.piece } else { Piece::Whole };
    packet(&Item { protocol, piece, ..*item }, from, to, number, true)
}

fn packet(item: &Item, from: SocketAddrV4, to: SocketAddrV4, number: u32, is_answer: bool) -> Vec<u8> {
    let payload = payload(item, number);
    let (source, destination) = (SocketAddr::V4(from), SocketAddr::V4(to));
    let flags = match item.protocol {
        Protocol::TcpSyn => tcp::SYN,
        Protocol::TcpFin => tcp::FIN | tcp::ACK,
        Protocol::TcpRst => tcp::RST,
        _ => tcp::ACK,
    };
    let segment = match item.protocol {
        Protocol::Udp => testing::udp_segment(source, destination, &payload),
        Protocol::Echo => {
            let (kind, port) = match is_answer {
                true => (icmp::v4::ECHO_REPLY, to.port()),
                false => (icmp::v4::ECHO_REQUEST, from.port()),
            };
            let [a, b] = port.to_be_bytes();
            let header = IcmpRepr { kind, code: 0, rest: [a, b, 0, 1] };
            testing::icmp_message(source.ip(), destination.ip(), header, &payload)
        }
        Protocol::Gre => [&[0, 0, 8, 0][..], &payload].concat(),
        _ => testing::tcp_segment(source, destination, flags, [1, 1], &payload),
    };
    // Both parts of a datagram share a port and an identification.
    let (fragment, part) = match item.piece {
        Piece::Whole => (0, &segment[..]),
        Piece::First => (0x2000, &segment[..CUT]),
        Piece::Last => ((CUT / 8) as u16, &segment[CUT..]),
    };
    let header = Ipv4Repr {
        ttl: item.ttl,
        traffic_class: item.dscp << 2,
        identification: from.port() ^ to.port().rotate_left(5),
        flags_and_offset: fragment,
        ..Ipv4Repr::new(*from.ip(), *to.ip(), number_of(item.protocol), part.len())
    };
    testing::ipv4(header, part)
}

/// The packet that an error quotes.
fn quoted(from: SocketAddrV4, seen: Option<Seen>, to: SocketAddrV4, item: &Item) -> Vec<u8> {
    let to = match item.kind {
        Kind::ErrorIn => seen.map_or(to, |seen| seen.remote),
        _ => to,
    };
    let protocol = match seen.map_or(ip_protocol::UDP, |seen| seen.public.protocol) {
        ip_protocol::UDP => Protocol::Udp,
        ip_protocol::ICMP => Protocol::Echo,
        ip_protocol::TCP => Protocol::TcpAck,
        _ => Protocol::Gre,
    };
    let plain = Item { protocol, piece: Piece::Whole, bytes: 8, ttl: 7, ..*item };
    packet(&plain, from, to, 0, item.kind == Kind::ErrorOut)
}

fn error(item: &Item, from: Ipv4Addr, quote: Vec<u8>) -> Vec<u8> {
    let to: Ipv4Addr = [quote[12], quote[13], quote[14], quote[15]].into();
    let header = IcmpRepr { kind: icmp::v4::UNREACHABLE, code: 1, rest: [0; 4] };
    let message = testing::icmp_message(IpAddr::V4(from), IpAddr::V4(to), header, &quote);
    let ip = Ipv4Repr { ttl: item.ttl, ..Ipv4Repr::new(from, to, ip_protocol::ICMP, message.len()) };
    testing::ipv4(ip, &message)
}

fn six(item: &Item, lan: u16, host: u8, port: u16, number: u32) -> Vec<u8> {
    let source = Ipv6Addr::new(0xfd00, 0, 0, lan - FIRST_LAN, 0, 0, 0, 10 + u16::from(host));
    let far = if item.kind == Kind::Six { 0x2001 } else { 0x2a00 };
    let destination = Ipv6Addr::new(far, 0xdb8, 0, 0, 0, 0, 0, 10 + u16::from(item.remote));
    let payload = payload(&Item { piece: Piece::Whole, ..*item }, number);
    let segment = testing::udp_segment(
        SocketAddr::new(source.into(), port),
        SocketAddr::new(destination.into(), 53),
        &payload,
    );
    let header = Ipv6Repr {
        hop_limit: item.ttl,
        traffic_class: item.dscp << 2,
        ..Ipv6Repr::new(source, destination, ip_protocol::UDP, segment.len())
    };
    [&header.encode()[..], &segment].concat()
}

/// The header fields that the judge reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Header {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) length: usize,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
    pub(super) identification: u16,
    /// It is a fragment, and not the first one.
    pub(super) is_later: bool,
    pub(super) is_fragment: bool,
    /// The ports of UDP and TCP; for an echo twice the identifier; otherwise none.
    pub(super) ports: Option<(u16, u16)>,
    pub(super) flags: u8,
    /// The ICMP type and code.
    pub(super) icmp: Option<(u8, u8)>,
}

impl Header {
    /// Reads an undamaged packet.
    pub(super) fn of(l3: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*l3.get(at)?, *l3.get(at + 1)?]));
        let is_v6 = l3.first()? >> 4 == 6;
        let address = |at: usize| -> Option<IpAddr> {
            Some(match is_v6 {
                false => IpAddr::from(<[u8; 4]>::try_from(l3.get(at..at + 4)?).ok()?),
                true => IpAddr::from(<[u8; 16]>::try_from(l3.get(at..at + 16)?).ok()?),
            })
        };
        let (source, destination) =
            if is_v6 { (address(8)?, address(24)?) } else { (address(12)?, address(16)?) };
        let (protocol, l4) = if is_v6 { (l3[6], 40) } else { (*l3.get(9)?, usize::from(l3[0] & 15) * 4) };
        let fragment = if is_v6 { 0 } else { word(6)? };
        let is_later = fragment & 0x1fff != 0;
        let icmp = (protocol == ip_protocol::ICMP && !is_later).then_some((*l3.get(l4)?, *l3.get(l4 + 1)?));
        let ports = match (protocol, icmp) {
            _ if is_later => None,
            (ip_protocol::UDP | ip_protocol::TCP, _) => Some((word(l4)?, word(l4 + 2)?)),
            (_, Some((icmp::v4::ECHO_REQUEST | icmp::v4::ECHO_REPLY, _))) => {
                Some((word(l4 + 4)?, word(l4 + 4)?))
            }
            _ => None,
        };
        let has_flags = protocol == ip_protocol::TCP && !is_later;
        Some(Self {
            source,
            destination,
            protocol,
            length: usize::from(if is_v6 { word(4)? + 40 } else { word(2)? }),
            ttl: if is_v6 { l3[7] } else { l3[8] },
            dscp: if is_v6 { (word(0)? >> 6 & 0x3f) as u8 } else { l3[1] >> 2 },
            identification: if is_v6 { 0 } else { word(4)? },
            is_later,
            is_fragment: fragment & 0x3fff != 0,
            ports,
            flags: if has_flags { *l3.get(l4 + 13)? } else { 0 },
            icmp,
        })
    }

    fn endpoint(&self, address: IpAddr, port: Option<u16>) -> Option<Endpoint> {
        let IpAddr::V4(address) = address else { return None };
        Some(Endpoint { protocol: self.protocol, address, port: port? })
    }

    /// The source, if it has ports.
    pub(super) fn from(&self) -> Option<Endpoint> {
        self.endpoint(self.source, self.ports.map(|ports| ports.0))
    }

    /// The destination, if it has ports.
    pub(super) fn to(&self) -> Option<Endpoint> {
        self.endpoint(self.destination, self.ports.map(|ports| ports.1))
    }
}
