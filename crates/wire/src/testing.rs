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
