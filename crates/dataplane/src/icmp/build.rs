//! The ICMP error for each problem, in each family, and the conditions under which none may be written.

use crate::ip_packet::IpPacket;
use std::net::IpAddr;
use thalweg_base::DropReason;
use thalweg_wire::checksum::pseudo_sum;
use thalweg_wire::icmp::{self, IcmpRepr};
use thalweg_wire::ip_protocol::{ICMP, ICMPV6};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::ipv6::Ipv6Repr;

/// The longest error for IPv4 (RFC 1812 4.3.2.3): every host can reassemble it.
const IPV4_ERROR_BYTES_MAX: usize = 576;
/// The longest error for IPv6 (RFC 4443 2.4 c): the minimum MTU.
const IPV6_ERROR_BYTES_MAX: usize = 1280;
/// "Internetwork control", which RFC 1812 4.3.2.5 recommends for errors.
const IPV4_ERROR_CLASS: u8 = 0xc0;

/// A problem, in terms that both families share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// TTL or hop limit expired in transit.
    TimeExceeded,
    /// Some fragments did not arrive in time, where the router reassembles.
    ReassemblyTimeExceeded,
    NoRoute,
    /// The route rejects the destination.
    Rejected,
    /// The next hop or the host does not answer on its link.
    HostUnreachable,
    /// No program listens on the port here.
    PortUnreachable,
    /// The router does not speak the protocol. `next_header_at` is where IPv6 named it, from the packet's first
    /// byte.
    ProtocolUnreachable {
        /// Offset of the field, for IPv6.
        next_header_at: u32,
    },
    /// An access list forbids it.
    Prohibited,
    /// The reverse path check forbids its source.
    SourceProhibited,
    /// Larger than the next link's MTU, and may not be fragmented.
    PacketTooBig {
        /// The MTU of that link.
        mtu_bytes: u32,
    },
    /// A header field is invalid.
    ParameterProblem {
        /// Offset of the field from the packet's first byte.
        at: u32,
    },
    /// IPv6: an unknown option whose highest bits are 10 or 11.
    UnknownOption {
        /// Offset of the option.
        at: u32,
        /// Its highest bits are 10: an error is due even for a multicast packet (RFC 8200 4.2).
        even_to_many: bool,
    },
}

thalweg_base::words! {
    /// Why no error was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NotWritten {
        /// The packet is not IP.
        NotIp => "not-ip",
        /// Source address and packet are of different families, or the family has no such error.
        WrongFamily => "wrong-family",
        /// The packet is an ICMP error or a redirect.
        AboutAnError => "about-an-error",
        /// The packet is a later fragment.
        LaterFragment => "later-fragment",
        /// The packet was addressed to multicast or broadcast, or arrived by it.
        SentToMany => "sent-to-many",
        /// The source is not a single host: unspecified, loopback, multicast, broadcast, the router itself.
        InvalidSource => "invalid-source",
        /// The limit for all errors.
        Limited => "limited",
        /// The limit for this receiver.
        LimitedForReceiver => "limited-for-receiver",
    }
}

impl NotWritten {
    /// Index in arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl IcmpError {
    /// The error that informs a packet's sender of a drop; `None` if none is due: overload, malformed packets,
    /// silent policies. `mtu_bytes` is the MTU of the egress link.
    pub fn for_drop(reason: DropReason, mtu_bytes: u32) -> Option<Self> {
        match reason {
            DropReason::TtlExpired => Some(Self::TimeExceeded),
            DropReason::NoRoute | DropReason::PrefixAddress => Some(Self::NoRoute),
            DropReason::Unreachable => Some(Self::Rejected),
            DropReason::NeighborUnresolved => Some(Self::HostUnreachable),
            DropReason::MtuExceeded => Some(Self::PacketTooBig { mtu_bytes }),
            DropReason::AclDenied | DropReason::FirewallDenied => Some(Self::Prohibited),
            _ => None,
        }
    }

    /// The IPv4 message (RFC 792, RFC 1812 5.2.7.1, RFC 1191 4).
    fn ipv4(self) -> Option<IcmpRepr> {
        use icmp::v4::{PARAMETER_PROBLEM, TIME_EXCEEDED, UNREACHABLE};
        Some(match self {
            Self::TimeExceeded => head(TIME_EXCEEDED, 0, 0),
            Self::ReassemblyTimeExceeded => head(TIME_EXCEEDED, 1, 0),
            Self::NoRoute => head(UNREACHABLE, 0, 0),
            Self::Rejected | Self::HostUnreachable => head(UNREACHABLE, 1, 0),
            Self::ProtocolUnreachable { .. } => head(UNREACHABLE, 2, 0),
            Self::PortUnreachable => head(UNREACHABLE, 3, 0),
            Self::PacketTooBig { mtu_bytes } => head(UNREACHABLE, 4, mtu_bytes.min(0xffff)),
            Self::Prohibited | Self::SourceProhibited => head(UNREACHABLE, 13, 0),
            Self::ParameterProblem { at } => head(PARAMETER_PROBLEM, 0, at.min(0xff) << 24),
            Self::UnknownOption { .. } => return None,
        })
    }

    /// The IPv6 message (RFC 4443 3).
    fn ipv6(self) -> IcmpRepr {
        use icmp::v6::{PACKET_TOO_BIG, PARAMETER_PROBLEM, TIME_EXCEEDED, UNREACHABLE};
        match self {
            Self::NoRoute => head(UNREACHABLE, 0, 0),
            Self::Prohibited => head(UNREACHABLE, 1, 0),
            Self::HostUnreachable => head(UNREACHABLE, 3, 0),
            Self::PortUnreachable => head(UNREACHABLE, 4, 0),
            Self::SourceProhibited => head(UNREACHABLE, 5, 0),
            Self::Rejected => head(UNREACHABLE, 6, 0),
            // RFC 8200 5: no link has a smaller MTU, and no smaller one may be reported.
            Self::PacketTooBig { mtu_bytes } => head(PACKET_TOO_BIG, 0, mtu_bytes.max(1280)),
            Self::TimeExceeded => head(TIME_EXCEEDED, 0, 0),
            Self::ReassemblyTimeExceeded => head(TIME_EXCEEDED, 1, 0),
            Self::ParameterProblem { at } => head(PARAMETER_PROBLEM, 0, at),
            Self::ProtocolUnreachable { next_header_at } => head(PARAMETER_PROBLEM, 1, next_header_at),
            Self::UnknownOption { at, .. } => head(PARAMETER_PROBLEM, 2, at),
        }
    }

    /// Whether the error may be about a multicast packet (RFC 4443 2.4 e.3 and e.4).
    fn even_to_many(self) -> bool {
        matches!(self, Self::PacketTooBig { .. } | Self::UnknownOption { even_to_many: true, .. })
    }
}

/// An error about `packet` from `source`, and its destination, without a rate limit.
pub fn write_error(
    error: IcmpError,
    packet: &[u8],
    source: IpAddr,
    sent_to_one: bool,
) -> Result<(Vec<u8>, IpAddr), NotWritten> {
    let about = IpPacket::parse(packet).ok_or(NotWritten::NotIp)?;
    if about.later_fragment && (!about.is_ipv6() || about.protocol == ICMPV6) {
        return Err(NotWritten::LaterFragment);
    }
    if is_icmp_error(&about) {
        return Err(NotWritten::AboutAnError);
    }
    if about.source == source || !is_one_host(about.source) {
        return Err(NotWritten::InvalidSource);
    }
    let to_many = !sent_to_one || !is_one_host(about.destination);
    if to_many && !(about.is_ipv6() && error.even_to_many()) {
        return Err(NotWritten::SentToMany);
    }
    let written = match (source, about.source) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let message = error.ipv4().ok_or(NotWritten::WrongFamily)?;
            let quote = about.bytes.get(..IPV4_ERROR_BYTES_MAX - 28).unwrap_or(about.bytes);
            let length = icmp::HEADER_BYTES + quote.len();
            // RFC 6864 4.1: never fragmented, so its identification may be anything.
            let ip = Ipv4Repr { traffic_class: IPV4_ERROR_CLASS, ..Ipv4Repr::new(from, to, ICMP, length) };
            [&ip.encode()[..], &message.encode(quote, 0), quote].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let quote = about.bytes.get(..IPV6_ERROR_BYTES_MAX - 48).unwrap_or(about.bytes);
            let length = icmp::HEADER_BYTES + quote.len();
            let message = error.ipv6().encode(quote, pseudo_sum(source, about.source, ICMPV6, length));
            [&Ipv6Repr::new(from, to, ICMPV6, length).encode()[..], &message, quote].concat()
        }
        _ => return Err(NotWritten::WrongFamily),
    };
    Ok((written, about.source))
}

fn head(kind: u8, code: u8, rest: u32) -> IcmpRepr {
    IcmpRepr { kind, code, rest: rest.to_be_bytes() }
}

/// Errors and redirects, which are never answered. A packet without its type may be one.
fn is_icmp_error(packet: &IpPacket<'_>) -> bool {
    let kind = packet.transport().first();
    match packet.protocol {
        ICMP if !packet.is_ipv6() => kind.is_none_or(|&kind| icmp::v4::is_error(kind)),
        ICMPV6 if packet.is_ipv6() => kind.is_none_or(|&kind| icmp::v6::is_error(kind)),
        _ => false,
    }
}

/// Whether a single host may have the address.
fn is_one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let first = address.octets()[0];
            // "This network", loopback, multicast, reserved and limited broadcast.
            !(first == 0 || first == 127 || first >= 224)
        }
        IpAddr::V6(address) => !(address.is_unspecified() || address.is_loopback() || address.is_multicast()),
    }
}
