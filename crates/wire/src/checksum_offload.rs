//! Completes transport checksums that a sender left to hardware.
//!
//! When a kernel sends through an interface with checksum offload, it writes only the sum of the pseudo
//! header into the field, folded and not inverted, and marks the packet; the hardware adds the rest and
//! inverts. Between two virtual interfaces there is no hardware: the packet arrives unfinished, and a program
//! that sees only bytes misses the mark.
//!
//! So the field itself decides: it is unfinished if it equals the folded sum of the pseudo header *and* is
//! not the correct checksum. This never changes a packet with a correct checksum, and it completes every
//! unfinished one. It wrongly repairs a damaged packet only if the damage makes the field equal to the pseudo
//! header's sum: one damaged packet in 65,536, as many as the checksum itself misses. Packets from a wire are
//! never unfinished, so do not call this for them.
//!
//! A UDP checksum of zero means that there is none; a pseudo header's sum is never zero, because the protocol
//! is not.
//!
//! Fragments are left alone: a kernel finishes the checksum before it fragments. So are SCTP, which has
//! another checksum, and encapsulated packets.

use crate::checksum::{finish, fold, sum};
use crate::ethernet::payload_at;
use crate::ip_protocol::{DESTINATION_OPTIONS, HOP_BY_HOP, TCP, UDP};
use crate::ipv4::Ipv4View;
use crate::ipv6::Ipv6View;

/// Completes the transport checksum of an Ethernet frame with at most two VLAN tags if it was left
/// unfinished; returns whether it was.
#[inline]
pub fn complete_frame(frame: &mut [u8]) -> bool {
    match payload_at(frame) {
        Some((ether_type, at)) if ether_type.is_ip() => complete_packet(&mut frame[at..]),
        _ => false,
    }
}

/// [`complete_frame`] for an IP packet.
#[inline]
fn complete_packet(packet: &mut [u8]) -> bool {
    let Some(Transport { start, end, field, pseudo, is_udp }) = transport(packet) else { return false };
    let stored = u16::from_be_bytes([packet[field], packet[field + 1]]);
    if stored != fold(pseudo) {
        return false;
    }
    complete(&mut packet[start..end], field - start, pseudo, is_udp)
}

/// Separate because it is rarely needed.
#[cold]
fn complete(segment: &mut [u8], field: usize, pseudo: u32, is_udp: bool) -> bool {
    if fold(sum(segment, pseudo)) == 0xffff {
        return false;
    }
    segment[field..field + 2].fill(0);
    let checksum = match finish(sum(segment, pseudo)) {
        // RFC 768: zero means no checksum, so a zero is sent as its other representation.
        0 if is_udp => 0xffff,
        checksum => checksum,
    };
    segment[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The transport segment of a packet, its checksum field, and the sum of its pseudo header.
struct Transport {
    start: usize,
    end: usize,
    field: usize,
    pseudo: u32,
    is_udp: bool,
}

#[inline]
fn transport(packet: &[u8]) -> Option<Transport> {
    let (start, end, protocol, addresses) = match packet.first()? >> 4 {
        4 => {
            let view = Ipv4View::new(packet).ok().filter(|view| !view.is_fragment())?;
            (view.header_len(), view.total_len(), view.protocol(), 12..20)
        }
        6 => {
            let view = Ipv6View::new(packet).ok()?;
            let mut extensions = view.extensions();
            // A later fragment has no checksum field, and a routing header changes the destination in the
            // pseudo header.
            if extensions.any(|extension| !matches!(extension.kind, HOP_BY_HOP | DESTINATION_OPTIONS)) {
                return None;
            }
            (extensions.at(), view.total_len(), extensions.protocol(), 8..40)
        }
        _ => return None,
    };
    let offset = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let field = start + offset;
    if end > packet.len() || field + 2 > end {
        return None;
    }
    // RFC 8200 8.1 has a length of 32 bits; its upper half is zero except for jumbograms.
    let pseudo = sum(&packet[addresses], (end - start) as u32 + u32::from(protocol));
    Some(Transport { start, end, field, pseudo, is_udp: protocol == UDP })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of either version with options or extension headers, its segment without a checksum, and padding.
    #[derive(Clone, Debug)]
    struct Made {
        packet: Vec<u8>,
        segment: std::ops::Range<usize>,
        field: usize,
        protocol: u8,
        pseudo: Vec<u8>,
    }

    fn made() -> impl Strategy<Value = Made> {
        let bytes = |range| prop::collection::vec(any::<u8>(), range);
        (any::<bool>(), any::<bool>(), 0usize..4, bytes(20..200), bytes(32..33), bytes(0..20)).prop_map(
            |(v6, udp, options, mut segment, addresses, padding)| {
                let protocol = if udp { UDP } else { TCP };
                let offset = if udp { 6 } else { 16 };
                segment[offset..offset + 2].fill(0);
                let mut packet = Vec::new();
                let mut pseudo = Vec::new();
                if v6 {
                    let extensions = options * 8;
                    packet.extend([0x60, 0, 0, 0]);
                    packet.extend(((extensions + segment.len()) as u16).to_be_bytes());
                    packet.extend([if options > 0 { 0 } else { protocol }, 64]);
                    packet.extend(&addresses);
                    for i in 0..options {
                        packet.extend([if i + 1 < options { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
                    }
                    pseudo.extend(&addresses);
                } else {
                    packet.extend([0x45 + options as u8, 0]);
                    packet.extend(((20 + options * 4 + segment.len()) as u16).to_be_bytes());
                    packet.extend([1, 2, 0x40, 0, 64, protocol, 0, 0]);
                    packet.extend(&addresses[..8]);
                    packet.extend(vec![1; options * 4]);
                    pseudo.extend(&addresses[..8]);
                }
                pseudo.extend([0, protocol]);
                pseudo.extend((segment.len() as u16).to_be_bytes());
                let start = packet.len();
                packet.extend(&segment);
                let end = packet.len();
                packet.extend(&padding);
                Made { packet, segment: start..end, field: start + offset, protocol, pseudo }
            },
        )
    }

    /// The sum the slow way.
    fn words(parts: &[&[u8]]) -> u16 {
        let mut total = 0u32;
        for part in parts {
            for pair in part.chunks(2) {
                total += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            }
        }
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    impl Made {
        fn with(&self, checksum: u16) -> Vec<u8> {
            let mut packet = self.packet.clone();
            packet[self.field..self.field + 2].copy_from_slice(&checksum.to_be_bytes());
            packet
        }

        fn finished(&self) -> Vec<u8> {
            let checksum = !words(&[&self.pseudo, &self.packet[self.segment.clone()]]);
            self.with(if self.protocol == UDP && checksum == 0 { 0xffff } else { checksum })
        }
    }

    proptest! {
        #[test]
        fn an_unfinished_checksum_is_finished(made in made(), tags in 0usize..3) {
            let mut packet = made.with(words(&[&made.pseudo]));
            let is_right = words(&[&made.pseudo, &packet[made.segment.clone()]]) == 0xffff;
            let expected = if is_right { packet.clone() } else { made.finished() };
            let kind: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            let mut frame = vec![2; 12];
            for _ in 0..tags {
                frame.extend([0x81, 0, 0, 9]);
            }
            frame.extend(kind);
            frame.extend(&packet);
            prop_assert_eq!(complete_frame(&mut frame), !is_right);
            prop_assert_eq!(&frame[14 + 4 * tags..], &expected[..]);
            prop_assert_eq!(complete_packet(&mut packet), !is_right);
            prop_assert_eq!(&packet, &expected);
            // Done once, it is done.
            prop_assert!(!complete_packet(&mut packet));
        }

        #[test]
        fn any_other_checksum_is_left(made in made(), checksum: u16) {
            for before in [made.finished(), made.with(checksum), made.with(0)] {
                let field = u16::from_be_bytes([before[made.field], before[made.field + 1]]);
                let right = words(&[&made.pseudo, &before[made.segment.clone()]]) == 0xffff;
                if right || field != words(&[&made.pseudo]) {
                    let mut after = before.clone();
                    prop_assert!(!complete_packet(&mut after));
                    prop_assert_eq!(after, before);
                }
            }
        }

        #[test]
        fn fragments_and_cut_packets_are_left(made in made(), cut in any::<prop::sample::Index>()) {
            let unfinished = made.with(words(&[&made.pseudo]));
            let mut short = unfinished.clone();
            short.truncate(cut.index(made.segment.end));
            let before = short.clone();
            prop_assert!(!complete_packet(&mut short));
            prop_assert_eq!(short, before);
            if unfinished[0] >> 4 == 4 {
                for flags in [[0x20u8, 0], [0, 1], [0x1f, 0xff]] {
                    let mut fragment = unfinished.clone();
                    fragment[6..8].copy_from_slice(&flags);
                    prop_assert!(!complete_packet(&mut fragment));
                }
            }
        }

        #[test]
        fn nothing_makes_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..3) {
            if let Some(field) = bytes.get_mut(12..14) {
                field.copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0]][kind]);
            }
            complete_frame(&mut bytes);
            complete_packet(&mut bytes);
        }
    }
}
