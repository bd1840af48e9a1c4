//! Restores the sender's own addresses in a packet that NAT has changed, so that an error about it reaches the
//! sender and quotes what the sender knows (RFC 5508 REQ-4).
//!
//! The fast path translates before it routes, so a packet that dies in routing (TTL, no route, too long) may be
//! translated. Only the session's shard knows the original endpoint; the caller asks it.

use crate::ip_packet::IpPacket;
use crate::nat::{End, rewrite_packet};
use std::net::SocketAddrV4;
use thalweg_wire::icmp::v4::{ECHO_REPLY, ECHO_REQUEST};
use thalweg_wire::ip_protocol::{ICMP, TCP, UDP};

/// One end of a packet before NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Original {
    /// The packet left the inside; this was its source.
    Source(SocketAddrV4),
    /// The packet came from outside; this was its destination.
    Destination(SocketAddrV4),
}

/// Restores one end of an IPv4 packet, checksums included; the port is the identifier of an ICMP echo. Returns
/// `false`, without any change, for packets that NAT does not translate. A hairpin takes two calls.
pub fn untranslate(packet: &mut [u8], original: Original) -> bool {
    let Some(read) = IpPacket::parse(packet).filter(|read| !read.is_ipv6()) else { return false };
    let is_echo =
        || read.later_fragment || matches!(read.transport().first(), Some(&(ECHO_REPLY | ECHO_REQUEST)));
    let translated = match read.protocol {
        TCP | UDP => true,
        ICMP => is_echo(),
        _ => false,
    };
    if translated {
        let transport_at = (!read.later_fragment).then_some(read.transport_at);
        let (end, to) = match original {
            Original::Source(to) => (End::Source, to),
            Original::Destination(to) => (End::Destination, to),
        };
        let protocol = read.protocol;
        rewrite_packet(packet, transport_at, protocol, end, u32::from(*to.ip()), to.port());
    }
    translated
}
