//! Protocol numbers of IPv4 and next headers of IPv6 (IANA) that this router treats specially.

/// IPv6 hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
pub const ICMP: u8 = 1;
/// IPv4 in IP.
pub const IPV4: u8 = 4;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const DCCP: u8 = 33;
/// IPv6 in IP.
pub const IPV6: u8 = 41;
/// IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
pub const GRE: u8 = 47;
/// IPsec ESP.
pub const ESP: u8 = 50;
/// IPsec authentication header.
pub const AUTHENTICATION: u8 = 51;
pub const ICMPV6: u8 = 58;
/// IPv6: nothing follows.
pub const NO_NEXT_HEADER: u8 = 59;
/// IPv6 destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
pub const SCTP: u8 = 132;
pub const UDP_LITE: u8 = 136;
/// MPLS in IP.
pub const MPLS: u8 = 137;

/// Whether a transport header begins with source and destination port.
#[inline(always)]
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE)
}
