//! Answers to echo requests (RFC 792, RFC 1812 4.3.3.6, RFC 4443 4.2).

use crate::ip_packet::{IpPacket, transport_checksum_holds};
use std::net::IpAddr;
use thalweg_wire::checksum::ChecksumDelta;
use thalweg_wire::icmp::{self, IcmpView};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6};
use thalweg_wire::ipv4::{Ipv4Repr, Ipv4View};
use thalweg_wire::ipv6::Ipv6Repr;

/// The reply to an echo request for one of the router's addresses, which the caller has checked.
///
/// `None` for anything but a complete, valid request from one host to one host. The reply copies the request's
/// payload, its identification (so that a reply longer than the MTU can be fragmented) and its class, so that ping
/// measures the class; but neither its options nor its flow label.
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let request = IpPacket::parse(packet)?;
    let message = IcmpView::new(request.transport()).ok()?;
    if message.code() != 0 || !request.complete || request.fragment || !request.header_checksum_holds() {
        return None;
    }
    let length = request.transport().len();
    let (ip, kind) = match (request.source, request.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let is_request = request.protocol == ICMP && message.kind() == icmp::v4::ECHO_REQUEST;
            let one_each = is_sender4(source.octets()) && is_sender4(destination.octets());
            if !(is_request && message.checksum_holds(0) && one_each) {
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
            let is_request = request.protocol == ICMPV6 && message.kind() == icmp::v6::ECHO_REQUEST;
            let many = source.is_multicast() || source.is_unspecified() || destination.is_multicast();
            if !is_request || many || !transport_checksum_holds(&request) {
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

/// Not "this network", loopback, multicast, reserved.
fn is_sender4(address: [u8; 4]) -> bool {
    address[0] != 0 && address[0] != 127 && address[0] < 224
}
