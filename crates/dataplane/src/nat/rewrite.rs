//! Rewrites the bytes that translation changes, and updates the checksums that cover them (RFC 1624, incremental).
//!
//! All functions work on an IPv4 packet from its header on, cut to the bytes at hand: a truncated capture is
//! translated as far as its bytes go. Nothing here panics; a missing field is skipped.

use super::config::NatProtocol;
use super::endpoint::End;
use std::hint::select_unpredictable;
use thalweg_wire::checksum::ChecksumDelta;

/// The smallest IPv4 header.
pub(crate) const IPV4_HEADER: usize = 20;
const IP_TTL: usize = 8;
const IP_CHECKSUM: usize = 10;
const IP_SOURCE: usize = 12;
const IP_DESTINATION: usize = 16;
const ICMP_CHECKSUM: usize = 2;
const ICMP_IDENTIFIER: usize = 4;

/// Offset of an end's address in the IP header. Arithmetic instead of a branch: packets of both directions come
/// mixed, so a branch would be mispredicted every other time.
#[inline(always)]
fn address_at(end: End) -> usize {
    IP_SOURCE + 4 * end as usize
}

/// Offset of an end's port in a TCP or UDP header.
#[inline(always)]
fn port_at(end: End) -> usize {
    2 * end as usize
}

/// The 16-bit word at `at`.
#[inline(always)]
pub(crate) fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([word[0], word[1]]))
}

/// The 32-bit word at `at`.
#[inline(always)]
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

/// Source and destination address of an IPv4 header.
#[inline(always)]
pub(crate) fn addresses(l3: &[u8]) -> Option<(u32, u32)> {
    let header: &[u8; IPV4_HEADER] = l3.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Some((word(IP_SOURCE), word(IP_DESTINATION)))
}

/// The address of one end of an IPv4 header.
#[inline(always)]
pub(crate) fn address(header: &[u8; IPV4_HEADER], end: End) -> u32 {
    u32::from_be_bytes(header.as_chunks::<4>().0[address_at(end) / 4])
}

/// The TTL of an IPv4 header; 0 if the packet is too short.
pub(crate) fn ttl(l3: &[u8]) -> u8 {
    l3.get(IP_TTL).copied().unwrap_or(0)
}

#[inline(always)]
fn replace_u16(bytes: &mut [u8], at: usize, new: u16, delta: &mut ChecksumDelta) {
    if let Some(old) = get_u16(bytes, at) {
        delta.replace_u16(old, new);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
}

#[inline(always)]
fn replace_u32(bytes: &mut [u8], at: usize, new: u32, delta: &mut ChecksumDelta) {
    if let Some(old) = get_u32(bytes, at) {
        delta.replace_u32(old, new);
        bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
    }
}

/// Updates the checksum at `at` by `delta`, and adds its own change to `covering`.
#[inline(always)]
pub(super) fn update(
    bytes: &mut [u8],
    at: usize,
    delta: ChecksumDelta,
    udp: bool,
    covering: &mut ChecksumDelta,
) {
    let Some(old) = get_u16(bytes, at) else { return };
    if old == 0 && udp {
        return; // RFC 768: the sender computed none
    }
    let mut new = delta.apply(old);
    if new == 0 && udp {
        new = 0xffff;
    }
    replace_u16(bytes, at, new, covering);
}

/// Rewrites address and checksum of the IP header; returns the address's change.
#[inline(always)]
fn rewrite_address(l3: &mut [u8], end: End, address: u32, covering: &mut ChecksumDelta) -> ChecksumDelta {
    let mut delta = ChecksumDelta::default();
    replace_u32(l3, address_at(end), address, &mut delta);
    update(l3, IP_CHECKSUM, delta, false, covering);
    delta
}

/// Rewrites port (or identifier) and checksum of a transport header.
#[inline(always)]
fn rewrite_port(
    segment: &mut [u8],
    protocol: u8,
    end: End,
    port: u16,
    address: ChecksumDelta,
    covering: &mut ChecksumDelta,
) {
    let mut delta = ChecksumDelta::default();
    if protocol == NatProtocol::Icmp.number() {
        // There is no pseudo header, so the address does not count.
        replace_u16(segment, ICMP_IDENTIFIER, port, &mut delta);
        *covering = covering.and(delta);
        update(segment, ICMP_CHECKSUM, delta, false, covering);
    } else {
        replace_u16(segment, port_at(end), port, &mut delta);
        *covering = covering.and(delta);
        let udp = protocol == NatProtocol::Udp.number();
        update(segment, if udp { 6 } else { 16 }, delta.and(address), udp, covering);
    }
}

/// Rewrites one end of a packet. `l4` is the offset of its transport header, `None` for a fragment without one (RFC
/// 4787 REQ-14: it is translated like the first fragment).
pub(crate) fn rewrite_packet(
    l3: &mut [u8],
    l4: Option<usize>,
    protocol: u8,
    end: End,
    address: u32,
    port: u16,
) {
    let mut unused = ChecksumDelta::default();
    let delta = rewrite_address(l3, end, address, &mut unused);
    if let Some(segment) = l4.and_then(|l4| l3.get_mut(l4..)) {
        rewrite_port(segment, protocol, end, port, delta, &mut unused);
    }
}

/// Bytes of the headers of a usual packet: an IPv4 header without options, and as much as a TCP header has.
pub(crate) const USUAL_HEADERS: usize = IPV4_HEADER + 20;
/// The least length of a usual packet, which has them all.
pub(crate) const USUAL_LEN_MIN: u32 = 40;
const _: () = assert!(USUAL_HEADERS == 40);

/// [`rewrite_packet`] for TCP (or, if `udp`, UDP) behind an IPv4 header without options: without a branch or a length
/// to check.
///
/// Sums are over words in memory order: by RFC 1071 2(B), a sum is the same in either byte order except for the
/// order of its own bytes. They are folded once, when a checksum is written.
#[inline(always)]
pub(crate) fn rewrite_usual(l3: &mut [u8; USUAL_HEADERS], udp: bool, end: End, address: u32, port: u16) {
    let word = &mut l3.as_chunks_mut::<4>().0[address_at(end) / 4];
    let new = address.to_be();
    let of_address = plus(!u32::from_ne_bytes(*word), new);
    *word = new.to_ne_bytes();
    let halves = l3.as_chunks_mut::<2>().0;
    let half = &mut halves[(IPV4_HEADER + port_at(end)) / 2];
    let new = port.to_be();
    let of_port = u32::from(!u16::from_ne_bytes(*half)) + u32::from(new);
    *half = new.to_ne_bytes();
    let checksum = &mut halves[IP_CHECKSUM / 2];
    *checksum = changed(u16::from_ne_bytes(*checksum), of_address).to_ne_bytes();
    let checksum = &mut halves[IPV4_HEADER / 2 + select_unpredictable(udp, 3, 8)];
    let old = u16::from_ne_bytes(*checksum);
    let new = changed(old, plus(of_address, of_port));
    // RFC 768: zero says that the sender computed none, and a computed zero is sent as all ones.
    let of_udp = select_unpredictable(old == 0, 0, select_unpredictable(new == 0, 0xffff, new));
    *checksum = select_unpredictable(udp, of_udp, new).to_ne_bytes();
}

/// The sum of two words, with end-around carry.
#[inline(always)]
fn plus(a: u32, b: u32) -> u32 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u32::from(carry)
}

/// A checksum after a change, where `sum` adds up the complements of the old words and the new words (RFC 1624,
/// equation 3).
#[inline(always)]
fn changed(checksum: u16, sum: u32) -> u16 {
    let sum = plus(sum, u32::from(!checksum));
    // Both halves are added at once: the carry out of the lower one ends in the upper one.
    !(sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Rewrites an ICMP error: the `outer` end of the error itself to `address`, the `inner` end of the quoted packet
/// to `address` and `port` (RFC 5508 section 4.2).
pub(crate) fn rewrite_error(l3: &mut [u8], quote: &Quote, outer: End, inner: End, address: u32, port: u16) {
    let mut unused = ChecksumDelta::default();
    rewrite_address(l3, outer, address, &mut unused);
    let mut payload = ChecksumDelta::default();
    if let Some(quoted) = l3.get_mut(quote.l3..) {
        // The ICMP checksum covers the quoted address and header checksum too.
        let delta = rewrite_address(quoted, inner, address, &mut payload);
        payload = payload.and(delta);
        if let (Some(_), Some(segment)) = (quote.transport, quoted.get_mut(quote.l4..)) {
            rewrite_port(segment, quote.protocol, inner, port, delta, &mut payload);
        }
    }
    update(l3, quote.icmp + ICMP_CHECKSUM, payload, false, &mut unused);
}

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// Offset of the ICMP header in the outer packet.
    icmp: usize,
    /// Offset of the quoted IP header in the outer packet.
    l3: usize,
    /// Offset of the quoted transport header in the quoted packet.
    l4: usize,
    pub(crate) protocol: u8,
    /// The protocol, if it has ports.
    pub(crate) transport: Option<NatProtocol>,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    /// For ICMP echo, the identifier.
    pub(crate) source_port: u16,
    /// For ICMP echo, the identifier.
    pub(crate) destination_port: u16,
}

impl Quote {
    /// Parses the packet quoted by the ICMP error at `icmp`. `None` if it is not an error that NAT translates
    /// (destination unreachable, source quench, time exceeded, parameter problem), or quotes an ICMP message other
    /// than echo.
    pub(crate) fn parse(l3: &[u8], icmp: usize) -> Option<Quote> {
        let message = l3.get(icmp..)?;
        if !matches!(message.first()?, 3 | 4 | 11 | 12) {
            return None;
        }
        let quoted = message.get(8..)?;
        let (source, destination) = addresses(quoted)?;
        let l4 = usize::from(quoted[0] & 15) * 4;
        let fragment_offset = get_u16(quoted, 6)? & 0x1fff;
        if quoted[0] >> 4 != 4 || l4 < IPV4_HEADER || fragment_offset != 0 {
            return None;
        }
        let protocol = quoted[9];
        let transport = NatProtocol::from_ip(protocol);
        let segment = quoted.get(l4..)?;
        let (source_port, destination_port) = match transport {
            None => (0, 0),
            Some(NatProtocol::Icmp) => {
                if !matches!(segment.first()?, 0 | 8) {
                    return None;
                }
                let identifier = get_u16(segment, ICMP_IDENTIFIER)?;
                (identifier, identifier)
            }
            Some(_) => (get_u16(segment, 0)?, get_u16(segment, 2)?),
        };
        let l3 = icmp + 8;
        Some(Quote { icmp, l3, l4, protocol, transport, source, destination, source_port, destination_port })
    }

    /// Whether the checksums hold that RFC 5508 REQ-3 requires to be verified: that of the ICMP message, if `whole`
    /// says that it is complete, and that of the quoted IP header.
    pub(crate) fn checksums_hold(&self, l3: &[u8], whole: bool) -> bool {
        let holds = |bytes: Option<&[u8]>| {
            bytes.is_some_and(|b| thalweg_wire::checksum::finish(thalweg_wire::checksum::sum(b, 0)) == 0)
        };
        (!whole || holds(l3.get(self.icmp..))) && holds(l3.get(self.l3..self.l3 + self.l4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any bytes, with checksums that are right, wrong or absent.
        #[test]
        fn usual_headers_are_rewritten_as_any_are(
            bytes in prop::collection::vec(any::<u8>(), USUAL_HEADERS),
            (udp, outbound, checksum) in any::<(bool, bool, Option<bool>)>(),
            (address, port) in any::<(u32, u16)>(),
        ) {
            let mut usual: [u8; USUAL_HEADERS] = bytes.try_into().unwrap();
            // Of the two zeros, one means that there is no checksum.
            if let Some(ones) = checksum {
                usual[26..28].fill(if ones { 0xff } else { 0 });
            }
            let mut general = usual;
            let end = if outbound { End::Source } else { End::Destination };
            let protocol = if udp { NatProtocol::Udp } else { NatProtocol::Tcp };
            rewrite_usual(&mut usual, udp, end, address, port);
            rewrite_packet(&mut general, Some(IPV4_HEADER), protocol.number(), end, address, port);
            prop_assert_eq!(usual, general);
        }
    }
}
