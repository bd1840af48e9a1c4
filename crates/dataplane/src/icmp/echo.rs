//! Echo: answers to requests, and requests of the router's own (RFC 792, RFC 1812 4.3.3.6, RFC 4443 4.1 and 4.2).

use crate::ip_packet::{IpPacket, transport_checksum_holds};
use std::net::IpAddr;
use thalweg_wire::checksum::{ChecksumDelta, pseudo_sum};
use thalweg_wire::icmp::{self, HEADER_BYTES, IcmpRepr, IcmpView};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6};
use thalweg_wire::ipv4::{Ipv4Repr, Ipv4View};
use thalweg_wire::ipv6::Ipv6Repr;

/// The reply to an echo request for one of the router's addresses, which the caller has checked.
///
/// `None` for anything but a complete, valid request from one host to one host. The reply copies the request's
/// payload, its identification (so that a reply longer than the MTU can be fragmented) and its class, so that ping
/// measures the class; but neither its options nor its flow label.
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let (request, message) = echo_in(packet, [icmp::v4::ECHO_REQUEST, icmp::v6::ECHO_REQUEST])?;
    let length = request.transport().len();
    let (ip, kind) = match (request.source, request.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            if !(is_sender4(source.octets()) && is_sender4(destination.octets())) {
                return None;
            }
            let header = Ipv4Repr {
                traffic_class: request.traffic_class,
                identification: Ipv4View::new(packet).ok()?.identification(),
                ..Ipv4Repr::new(destination, source, ICMP, length)
            };
            (header.encode().to_vec(), icmp::v4::ECHO_REPLY)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            if source.is_multicast() || source.is_unspecified() || destination.is_multicast() {
                return None;
            }
            let header = Ipv6Repr {
                traffic_class: request.traffic_class,
                ..Ipv6Repr::new(destination, source, ICMPV6, length)
            };
            (header.encode().to_vec(), icmp::v6::ECHO_REPLY)
        }
        _ => return None,
    };
    // Addresses trade places, which does not affect the sum; only the type changes.
    let mut delta = ChecksumDelta::default();
    delta.replace_u16(u16::from_be_bytes([message.kind(), 0]), u16::from_be_bytes([kind, 0]));
    let [high, low] = delta.apply(message.checksum()).to_be_bytes();
    Some([&ip[..], &[kind, 0, high, low], &message.rest(), message.payload()].concat())
}

/// What a request of the router's own carries, and its reply brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub identifier: u16,
    pub sequence: u16,
    /// The payload.
    pub token: [u8; 8],
}

impl Echo {
    /// The sender of a valid echo reply, and what it carries; `None` for any other packet.
    pub fn of_reply(packet: &[u8]) -> Option<(IpAddr, Self)> {
        let (reply, message) = echo_in(packet, [icmp::v4::ECHO_REPLY, icmp::v6::ECHO_REPLY])?;
        let [first, second, third, fourth] = message.rest();
        let identifier = u16::from_be_bytes([first, second]);
        let sequence = u16::from_be_bytes([third, fourth]);
        Some((reply.source, Self { identifier, sequence, token: message.payload().try_into().ok()? }))
    }
}

/// An echo request; `None` if the addresses are of different families.
pub fn echo_request(source: IpAddr, target: IpAddr, echo: Echo) -> Option<Vec<u8>> {
    let ([first, second], [third, fourth]) = (echo.identifier.to_be_bytes(), echo.sequence.to_be_bytes());
    let rest = [first, second, third, fourth];
    let length = HEADER_BYTES + echo.token.len();
    let (ip, kind, pseudo) = match (source, target) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (Ipv4Repr::new(from, to, ICMP, length).encode().to_vec(), icmp::v4::ECHO_REQUEST, 0)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Repr::new(from, to, ICMPV6, length).encode().to_vec();
            (header, icmp::v6::ECHO_REQUEST, pseudo_sum(source, target, ICMPV6, length))
        }
        _ => return None,
    };
    let header = IcmpRepr { kind, code: 0, rest }.encode(&echo.token, pseudo);
    Some([&ip[..], &header, &echo.token].concat())
}

/// The message of a complete, valid packet, if it has one of these types: of ICMP, of ICMPv6.
fn echo_in(packet: &[u8], [v4, v6]: [u8; 2]) -> Option<(IpPacket<'_>, IcmpView<'_>)> {
    let read = IpPacket::parse(packet)?;
    let message = IcmpView::new(read.transport()).ok()?;
    let (protocol, kind) = if read.is_ipv6() { (ICMPV6, v6) } else { (ICMP, v4) };
    let is_plain = message.code() == 0 && read.complete && !read.fragment && read.header_checksum_holds();
    if !is_plain || (read.protocol, message.kind()) != (protocol, kind) {
        return None;
    }
    let holds = if read.is_ipv6() { transport_checksum_holds(&read) } else { message.checksum_holds(0) };
    holds.then_some((read, message))
}

/// Not "this network", loopback, multicast, reserved.
fn is_sender4(address: [u8; 4]) -> bool {
    address[0] != 0 && address[0] != 127 && address[0] < 224
}
