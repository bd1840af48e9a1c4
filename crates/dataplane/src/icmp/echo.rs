//! Answers to echo requests (RFC 792, RFC 1812 4.3.3.6, RFC 4443 4.2).

use crate::ip_packet::{IpPacket, ipv4_header, ipv6_header, transport_checksum_holds};
use std::net::IpAddr;
use thalweg_wire::application::ip_protocol::{ICMP, ICMPV6};
use thalweg_wire::checksum::{ChecksumDelta, fold, sum};

const IPV4_ECHO_REQUEST: u8 = 8;
const IPV4_ECHO_REPLY: u8 = 0;
const IPV6_ECHO_REQUEST: u8 = 128;
const IPV6_ECHO_REPLY: u8 = 129;

/// The answer to an echo request for an address of the router; the caller knows that it is one.
///
/// `None` for whatever is not a whole, valid request from one host to one host. The reply carries what
/// the request carried, its identification (so that one longer than the MTU can be fragmented) and its
/// class, but not its options.
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let request = IpPacket::parse(packet)?;
    let [kind, 0, high, low, rest @ ..] = request.transport() else { return None };
    if !request.complete || request.fragment || rest.len() < 4 || !request.header_checksum_holds() {
        return None;
    }
    let (mut reply, reply_kind) = match (request.source, request.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let is_request = request.protocol == ICMP && *kind == IPV4_ECHO_REQUEST;
            let holds = fold(sum(request.transport(), 0)) == 0xffff;
            let one_each = is_sender4(source.octets()) && is_sender4(destination.octets());
            if !(is_request && holds && one_each) {
                return None;
            }
            let header = request.bytes.first_chunk::<20>()?;
            let id = u16::from_be_bytes([header[4], header[5]]);
            let length = request.transport().len();
            (ipv4_header(destination, source, ICMP, header[1], id, length).to_vec(), IPV4_ECHO_REPLY)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let is_request = request.protocol == ICMPV6 && *kind == IPV6_ECHO_REQUEST;
            let many = source.is_multicast() || source.is_unspecified() || destination.is_multicast();
            if !is_request || many || !transport_checksum_holds(&request) {
                return None;
            }
            let mut header = ipv6_header(destination, source, ICMPV6, 64, request.transport().len());
            // The class of the request, so that ping shows what the class gets; and its flow label not.
            header[0] |= request.bytes.first()? & 0x0f;
            header[1] |= request.bytes.get(1)? & 0xf0;
            (header.to_vec(), IPV6_ECHO_REPLY)
        }
        _ => return None,
    };
    // Addresses change places, which no sum notices; the type is all that changes.
    let mut delta = ChecksumDelta::default();
    delta.replace_u16(u16::from_be_bytes([*kind, 0]), u16::from_be_bytes([reply_kind, 0]));
    let checksum = delta.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
    reply.extend_from_slice(&[reply_kind, 0, checksum[0], checksum[1]]);
    reply.extend_from_slice(rest);
    Some(reply)
}

/// Not "this network", loopback, multicast, reserved.
fn is_sender4(address: [u8; 4]) -> bool {
    address[0] != 0 && address[0] != 127 && address[0] < 224
}
