//! One look at an IP packet from its first byte, for what the router writes itself: errors, answers,
//! fragments. The fast path has its own eyes ([`crate::ingress`]); here packets come one at a time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_wire::checksum::{finish, fold, pseudo_ipv4, sum};

/// Extension headers followed; as at ingress.
const IPV6_EXTENSIONS_MAX: usize = 8;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
/// "No next header" (RFC 8200, 4.7): also what stands for a chain that cannot be read.
pub(crate) const NO_PROTOCOL: u8 = 59;

/// What the header of an IP packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// The packet without what the link layer padded behind it. Shorter than its length field says if it
    /// was cut off.
    pub bytes: &'a [u8],
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// What the transport is, behind all extension headers; 59 if the chain cannot be read.
    pub protocol: u8,
    /// Where the transport begins.
    pub transport_at: usize,
    /// Neither a whole datagram nor its first fragment.
    pub later_fragment: bool,
    /// A fragment, first or later.
    pub fragment: bool,
    /// Time to live, hop limit.
    pub hop_limit: u8,
    /// All bytes are there that the length field promises.
    pub complete: bool,
}

impl<'a> IpPacket<'a> {
    /// Reads the header; `None` if it is none or ends early. The IPv4 header's checksum is not looked at.
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_ipv4(packet),
            6 => Self::parse_ipv6(packet),
            _ => None,
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Option<Self> {
        let header: &[u8; 20] = packet.first_chunk()?;
        let header_len = usize::from(header[0] & 15) * 4;
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_len < 20 || total_len < header_len || packet.len() < header_len {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        Some(Self {
            bytes: packet.get(..total_len).unwrap_or(packet),
            source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
            destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
            protocol: header[9],
            transport_at: header_len,
            later_fragment: fragment & 0x1fff != 0,
            fragment: fragment != 0,
            hop_limit: header[8],
            complete: packet.len() >= total_len,
        })
    }

    fn parse_ipv6(packet: &'a [u8]) -> Option<Self> {
        let header: &[u8; 40] = packet.first_chunk()?;
        let total_len = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let bytes = packet.get(..total_len).unwrap_or(packet);
        let mut found = Self {
            bytes,
            source: ipv6_at(header, 8)?.into(),
            destination: ipv6_at(header, 24)?.into(),
            protocol: header[6],
            transport_at: 40,
            later_fragment: false,
            fragment: false,
            hop_limit: header[7],
            complete: packet.len() >= total_len,
        };
        found.follow_chain();
        Some(found)
    }

    /// Walks IPv6 extension headers up to the transport; leaves "no protocol" where it cannot.
    fn follow_chain(&mut self) {
        for _ in 0..IPV6_EXTENSIONS_MAX {
            let at = self.transport_at;
            let length = match self.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    self.bytes.get(at + 1).map(|&units| (usize::from(units) + 1) * 8)
                }
                FRAGMENT => Some(8),
                AUTHENTICATION => self.bytes.get(at + 1).map(|&words| (usize::from(words) + 2) * 4),
                _ => return,
            };
            let extension = length.and_then(|length| self.bytes.get(at..at + length));
            let (Some(extension), false) = (extension, self.later_fragment) else {
                break;
            };
            if let (FRAGMENT, [_, _, high, low, ..]) = (self.protocol, extension) {
                self.fragment = true;
                self.later_fragment = u16::from_be_bytes([*high, *low]) & 0xfff8 != 0;
            }
            self.protocol = extension.first().copied().unwrap_or(NO_PROTOCOL);
            self.transport_at = at + extension.len();
            if self.later_fragment {
                // What follows is the middle of something; its first header is all that is known.
                return;
            }
        }
        self.protocol = NO_PROTOCOL;
    }

    /// From the transport's first byte on.
    pub fn transport(&self) -> &'a [u8] {
        self.bytes.get(self.transport_at..).unwrap_or_default()
    }

    /// IPv6, else IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// Whether the checksum of the IPv4 header holds; IPv6 has none.
    pub fn header_checksum_holds(&self) -> bool {
        self.is_ipv6() || self.bytes.get(..self.transport_at).is_some_and(|h| fold(sum(h, 0)) == 0xffff)
    }
}

/// The IPv6 address at an offset.
pub(crate) fn ipv6_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let address: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(address.into())
}

/// The sum over the pseudo header (RFC 9293 3.1, RFC 8200 8.1). Addresses of two families sum to nothing
/// useful; callers have packets whose addresses are of one.
pub(crate) fn pseudo_sum(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u32 {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo_ipv4(source.into(), destination.into(), protocol, length as u16)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let start = length as u32 + u32::from(protocol);
            sum(&destination.octets(), sum(&source.octets(), start))
        }
        _ => 0,
    }
}

/// Whether the checksum over a transport's bytes, pseudo header included, holds.
pub(crate) fn transport_checksum_holds(packet: &IpPacket<'_>) -> bool {
    let transport = packet.transport();
    let start = pseudo_sum(packet.source, packet.destination, packet.protocol, transport.len());
    fold(sum(transport, start)) == 0xffff
}

/// A plain IPv4 header, its checksum in place. `id` identifies the datagram should it be fragmented.
pub(crate) fn ipv4_header(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    traffic_class: u8,
    id: u16,
    payload_len: usize,
) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[1] = traffic_class;
    header[2..4].copy_from_slice(&((20 + payload_len) as u16).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let checksum = finish(sum(&header, 0));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// A plain IPv6 header.
pub(crate) fn ipv6_header(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    hop_limit: u8,
    payload_len: usize,
) -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
    header[6] = protocol;
    header[7] = hop_limit;
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&destination.octets());
    header
}

/// Counts TTL or hop limit down by one, for a packet that leaves by another way than the fast path.
/// `false`, and nothing changed, if it runs out here: a matter for ICMP.
#[must_use]
pub fn count_down(packet: &mut [u8]) -> bool {
    match packet {
        [first, .., _] if *first >> 4 == 4 && packet.len() >= 20 => {
            if packet[8] <= 1 {
                return false;
            }
            packet[8] -= 1;
            // RFC 1624 for a word that falls by 0x0100: its complement rises by as much, carry brought round.
            let (sum, carry) = u16::from_be_bytes([packet[10], packet[11]]).overflowing_add(0x0100);
            packet[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
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

/// Counts TTL or hop limit up by one, for a packet of the router's own that is put in where others arrive: the fast path
/// counts it down like those, and it leaves with what its author gave it (RFC 1122 3.2.1.7). Undoes [`count_down`];
/// nothing happens to one that has the most.
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
