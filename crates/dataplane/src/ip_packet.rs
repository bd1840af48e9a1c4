//! A view of an IP packet, for packets that the router writes itself: errors, answers, fragments. The fast path has
//! its own loads ([`crate::ingress`]); here packets come one at a time.

use std::net::IpAddr;
use thalweg_wire::checksum::{fold, pseudo_sum, sum};
use thalweg_wire::ip_protocol::{FRAGMENT, NO_NEXT_HEADER};
use thalweg_wire::ipv4::Ipv4View;
use thalweg_wire::ipv6::Ipv6View;

/// An address of either family as a number; one of IPv4 has the lowest 32 bits.
pub(crate) fn number_of_address(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The parsed header of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// The packet without link-layer padding. Shorter than its length field says if it was cut off.
    pub bytes: &'a [u8],
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The transport protocol, after all extension headers; 59 if the chain cannot be read.
    pub protocol: u8,
    /// Offset of the transport header.
    pub transport_at: usize,
    /// A fragment other than the first of its datagram.
    pub later_fragment: bool,
    /// A fragment, first or later.
    pub fragment: bool,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// Whether all bytes are present that the length field promises.
    pub complete: bool,
}

impl<'a> IpPacket<'a> {
    /// Parses the header; `None` if it is invalid or truncated. Does not verify the IPv4 header checksum.
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Ipv4View::new(packet).ok().map(Self::of_v4),
            6 => Ipv6View::new(packet).ok().map(Self::of_v6),
            _ => None,
        }
    }

    fn of_v4(view: Ipv4View<'a>) -> Self {
        Self {
            bytes: view.packet(),
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: view.protocol(),
            transport_at: view.header_len(),
            later_fragment: view.is_later_fragment(),
            fragment: view.is_fragment(),
            traffic_class: view.traffic_class(),
            hop_limit: view.ttl(),
            complete: view.is_whole(),
        }
    }

    fn of_v6(view: Ipv6View<'a>) -> Self {
        let mut extensions = view.extensions();
        let (mut fragment, mut later_fragment) = (false, false);
        for extension in extensions.by_ref() {
            fragment |= extension.kind == FRAGMENT;
            later_fragment |= extension.is_later_fragment();
        }
        Self {
            bytes: view.packet(),
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: if extensions.is_complete() { extensions.protocol() } else { NO_NEXT_HEADER },
            transport_at: extensions.at(),
            later_fragment,
            fragment,
            traffic_class: view.traffic_class(),
            hop_limit: view.hop_limit(),
            complete: view.is_whole(),
        }
    }

    /// The bytes from the transport header on.
    pub fn transport(&self) -> &'a [u8] {
        self.bytes.get(self.transport_at..).unwrap_or_default()
    }

    /// Whether it is IPv6, else IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// Whether the checksum of the IPv4 header holds; IPv6 has none.
    pub fn header_checksum_holds(&self) -> bool {
        self.is_ipv6() || self.bytes.get(..self.transport_at).is_some_and(|h| fold(sum(h, 0)) == 0xffff)
    }
}

/// Whether the checksum over a transport's bytes, pseudo header included, holds.
pub(crate) fn transport_checksum_holds(packet: &IpPacket<'_>) -> bool {
    let transport = packet.transport();
    let start = pseudo_sum(packet.source, packet.destination, packet.protocol, transport.len());
    fold(sum(transport, start)) == 0xffff
}

/// Decrements TTL or hop limit, for a packet that does not leave by the fast path. Returns `false`, without any
/// change, if it expires here: the caller sends an ICMP error.
#[must_use]
pub fn count_down(packet: &mut [u8]) -> bool {
    match packet {
        [first, .., _] if *first >> 4 == 4 && packet.len() >= 20 => {
            if packet[8] <= 1 {
                return false;
            }
            packet[8] -= 1;
            // RFC 1624 for a word that falls by 0x0100: its complement rises by as much, with end-around carry, and
            // is never all ones.
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let raised = sum.wrapping_add(0x0100 + u16::from(sum >= 0xfeff));
            packet[10..12].copy_from_slice(&raised.to_be_bytes());
            true
        }
        [first, .., _] if *first >> 4 == 6 && packet.len() >= 40 => {
            if packet[7] <= 1 {
                return false;
            }
            packet[7] -= 1;
            true
        }
        _ => false,
    }
}

/// Increments TTL or hop limit, for a packet of the router's own that is injected like an incoming one: the fast
/// path decrements it, so it leaves with its author's value (RFC 1122 3.2.1.7). Undoes [`count_down`]; leaves the
/// maximum unchanged.
pub fn count_up(packet: &mut [u8]) {
    match packet {
        [first, .., _] if *first >> 4 == 4 && packet.len() >= 20 && packet[8] < u8::MAX => {
            packet[8] += 1;
            let (sum, borrow) = u16::from_be_bytes([packet[10], packet[11]]).overflowing_sub(0x0100);
            packet[10..12].copy_from_slice(&(sum.wrapping_sub(u16::from(borrow))).to_be_bytes());
        }
        [first, .., _] if *first >> 4 == 6 && packet.len() >= 40 && packet[7] < u8::MAX => packet[7] += 1,
        _ => {}
    }
}

#[cfg(test)]
mod tests;
