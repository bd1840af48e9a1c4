//! Builds complete packets with correct checksums for tests and benchmarks; a test damages them afterwards if
//! it wants.

use crate::checksum::{finish, pseudo_sum, sum};
use crate::ethernet::EthernetRepr;
use crate::icmp::{self, IcmpRepr};
use crate::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use crate::ipv4::{self, Ipv4Repr};
use crate::ipv6::Ipv6Repr;
use crate::tcp::{self, TcpRepr};
use crate::udp::{self, UdpRepr};
use crate::vlan::VlanRepr;
use crate::{EtherType, MacAddr};
use std::net::{IpAddr, SocketAddr};

/// The destination of test frames: the router.
pub const NEAR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The source of test frames.
pub const FAR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// An IP packet with a plain header. `payload` must include the transport checksum, if there is one.
///
/// # Panics
/// If the addresses are of different families.
pub fn ip(
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    match (source.into(), destination.into()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4(Ipv4Repr::new(source, destination, protocol, payload.len()), payload)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            [&Ipv6Repr::new(source, destination, protocol, payload.len()).encode()[..], payload].concat()
        }
        (source, destination) => panic!("{source} and {destination} are of two families"),
    }
}

/// An IPv4 packet.
pub fn ipv4(header: Ipv4Repr, payload: &[u8]) -> Vec<u8> {
    [&header.encode()[..], payload].concat()
}

/// An IPv4 packet with options, padded to whole words.
pub fn ipv4_with_options(header: Ipv4Repr, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut packet = [&header.encode()[..], options].concat();
    packet.resize(packet.len().next_multiple_of(4), 0);
    let header_len = packet.len();
    packet[0] = 0x40 | (header_len / 4) as u8;
    packet[2..4].copy_from_slice(&((header_len + payload.len()) as u16).to_be_bytes());
    ipv4::write_checksum(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// Changes a field of an IPv4 packet and corrects the header checksum.
pub fn with_ipv4_field(mut packet: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    packet[at..at + value.len()].copy_from_slice(value);
    let header_len = usize::from(packet[0] & 15) * 4;
    ipv4::write_checksum(&mut packet[..header_len]);
    packet
}

/// A UDP datagram from its header on.
pub fn udp_segment(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let header = UdpRepr { source_port: from.port(), destination_port: to.port() };
    let pseudo = pseudo_sum(from.ip(), to.ip(), UDP, udp::HEADER_BYTES + payload.len());
    [&header.encode(payload, pseudo)[..], payload].concat()
}

/// An IP packet with UDP.
pub fn udp(from: impl Into<SocketAddr>, to: impl Into<SocketAddr>, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (from.into(), to.into());
    ip(from.ip(), to.ip(), UDP, &udp_segment(from, to, payload))
}

/// A TCP segment from its header on, with these flags and numbers (sequence, acknowledgment).
pub fn tcp_segment(
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    numbers: [u32; 2],
    payload: &[u8],
) -> Vec<u8> {
    let [sequence, acknowledgment] = numbers;
    let header = TcpRepr {
        source_port: from.port(),
        destination_port: to.port(),
        sequence,
        acknowledgment,
        flags,
        window: 0x0100,
    };
    let pseudo = pseudo_sum(from.ip(), to.ip(), TCP, tcp::HEADER_BYTES + payload.len());
    [&header.encode(payload, pseudo)[..], payload].concat()
}

/// The same with options, which are filled up to whole words by ends of their list.
pub fn tcp_segment_with_options(
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let mut segment = tcp_segment(from, to, flags, [1, 1], &[&options, payload].concat());
    segment[12] = (((tcp::HEADER_BYTES + options.len()) / 4) << 4) as u8;
    segment[16..18].fill(0);
    let checksum = finish(sum(&segment, pseudo_sum(from.ip(), to.ip(), TCP, segment.len())));
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// An IP packet with TCP.
pub fn tcp(from: impl Into<SocketAddr>, to: impl Into<SocketAddr>, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (from.into(), to.into());
    ip(from.ip(), to.ip(), TCP, &tcp_segment(from, to, flags, [0; 2], payload))
}

/// An ICMP or ICMPv6 message from its header on.
pub fn icmp_message(source: IpAddr, destination: IpAddr, header: IcmpRepr, payload: &[u8]) -> Vec<u8> {
    let length = icmp::HEADER_BYTES + payload.len();
    let pseudo = if source.is_ipv6() { pseudo_sum(source, destination, ICMPV6, length) } else { 0 };
    [&header.encode(payload, pseudo)[..], payload].concat()
}

/// An IP packet with an ICMP or ICMPv6 message of code 0.
pub fn icmp(
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
    kind: u8,
    rest: [u8; 4],
    payload: &[u8],
) -> Vec<u8> {
    let (source, destination) = (source.into(), destination.into());
    let message = icmp_message(source, destination, IcmpRepr { kind, code: 0, rest }, payload);
    ip(source, destination, if source.is_ipv6() { ICMPV6 } else { ICMP }, &message)
}

/// An Ethernet header with these VLAN tags, outermost first; with several, all but the last are 802.1ad.
pub fn ethernet_header(tags: &[u16], ether_type: EtherType) -> Vec<u8> {
    let kind_of = |i: usize| match tags.len() - i {
        0 => ether_type,
        1 => EtherType::VLAN,
        _ => EtherType::QINQ,
    };
    let header = EthernetRepr { destination: NEAR_MAC, source: FAR_MAC, ether_type: kind_of(0) };
    let mut bytes = header.encode().to_vec();
    for (i, control) in tags.iter().enumerate() {
        bytes.extend(VlanRepr { control: *control, ether_type: kind_of(i + 1) }.encode());
    }
    bytes
}

/// An Ethernet frame around an IP packet.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    [&ethernet_header(&[], EtherType::of_packet(packet))[..], packet].concat()
}

/// A message of a TLS client: the example of JA4's specification, with this name and these protocols.
pub fn client_hello(server: Option<&str>, protocols: &[&str]) -> Vec<u8> {
    let list = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let numbers = |all: &[u16]| all.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let ciphers = numbers(&[
        0x8a8a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x9c,
        0x9d, 0x2f, 0x35,
    ]);
    let algorithms = numbers(&[0x403, 0x804, 0x401, 0x503, 0x805, 0x501, 0x806, 0x601]);
    let mut extensions = Vec::new();
    let mut put = |number: u16, content: &[u8]| {
        extensions.extend(number.to_be_bytes());
        extensions.extend(list(content));
    };
    put(0x7a7a, &[]);
    put(0x1b, &[2, 0, 2]);
    if let Some(server) = server {
        put(0, &list(&[&[0][..], &list(server.as_bytes())].concat()));
    }
    put(0x33, &list(&[&[0, 0x1d][..], &list(&[9; 32])].concat()));
    if !protocols.is_empty() {
        let names = protocols.iter().flat_map(|name| [&[name.len() as u8][..], name.as_bytes()].concat());
        put(0x10, &list(&names.collect::<Vec<u8>>()));
    }
    put(0x4469, &[0, 3, 2, b'h', b'2']);
    put(0x17, &[]);
    put(0x2d, &[1, 1]);
    put(0x0d, &list(&algorithms));
    put(0x05, &[1, 0, 0, 0, 0]);
    put(0x23, &[]);
    put(0x12, &[]);
    put(0x2b, &[6, 0xda, 0xda, 3, 4, 3, 3]);
    put(0xff01, &[0]);
    put(0x0b, &[1, 0]);
    put(0x0a, &list(&numbers(&[0xeaea, 0x1d, 0x17, 0x18])));
    put(0x9a9a, &[0]);
    put(0x15, &[0; 100]);
    let session = [&[32][..], &[8; 32]].concat();
    let body = [&[3, 3][..], &[7; 32], &session, &list(&ciphers), &[1, 0], &list(&extensions)].concat();
    let [_, high, middle, low] = (body.len() as u32).to_be_bytes();
    [&[1, high, middle, low][..], &body].concat()
}

/// A TLS message in records of at most this many bytes.
pub fn in_records(message: &[u8], bytes: usize) -> Vec<u8> {
    let header = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes()].concat();
    message.chunks(bytes).flat_map(|part| [header(part), part.to_vec()].concat()).collect()
}
