//! Writes congestion experienced (CE) into IP headers.

use thalweg_wire::checksum::ChecksumDelta;
use thalweg_wire::ethernet::payload_at;

/// Not ECN-capable transport (RFC 3168 section 5).
const NOT_ECT: u8 = 0b00;
/// Congestion experienced.
const CE: u8 = 0b11;

/// Sets CE in the IPv4 or IPv6 packet at the start of `ip_packet`. Returns false, without any change, if its sender
/// is not ECN-capable (RFC 3168 section 5) or it is not an IP header.
///
/// Both ECN-capable codepoints are treated alike, as RFC 3168 requires of a queue that is not of RFC 9331's kind.
/// Only the outermost header is marked; a tunnel's end propagates the mark (RFC 6040). A packet already marked is
/// left as it is. The IPv4 checksum is updated, not recomputed (RFC 1624), so a header that arrived wrong leaves
/// wrong.
pub fn mark_ce(ip_packet: &mut [u8]) -> bool {
    match ip_packet.first().map(|byte| byte >> 4) {
        Some(4) => mark_ipv4(ip_packet),
        Some(6) => mark_ipv6(ip_packet),
        _ => false,
    }
}

/// The same for an Ethernet frame, with up to two VLAN tags. The frame's type decides what it carries, because the
/// first bits of a tag, or of ARP, can look like an IP version.
pub fn mark_frame_ce(frame: &mut [u8]) -> bool {
    match payload_at(frame) {
        Some((ether_type, at)) if ether_type.is_ip() => frame.get_mut(at..).is_some_and(mark_ce),
        _ => false,
    }
}

fn mark_ipv4(packet: &mut [u8]) -> bool {
    let Some(header) = packet.first_chunk_mut::<20>() else { return false };
    match header[1] & CE {
        NOT_ECT => return false,
        CE => return true,
        _ => {}
    }
    let marked = header[1] | CE;
    let mut delta = ChecksumDelta::default();
    delta.replace_u16(u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[0], marked]));
    header[1] = marked;
    let sum = delta.apply(u16::from_be_bytes([header[10], header[11]]));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The traffic class is the lower half of the first byte and the upper half of the second; its last two bits,
/// ECN, are therefore bits 4 and 5 of the second byte.
fn mark_ipv6(packet: &mut [u8]) -> bool {
    let Some(header) = packet.first_chunk_mut::<40>() else { return false };
    if (header[1] >> 4) & CE == NOT_ECT {
        return false;
    }
    header[1] |= CE << 4;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6Header};
    use proptest::prelude::*;

    proptest! {
        /// Another implementation reads the result, and recomputes the checksum.
        #[test]
        fn ipv4_is_marked_and_its_checksum_right(source: [u8; 4], destination: [u8; 4], ttl: u8, ecn in 0u8..4, dscp in 0u8..64, id: u16) {
            let mut header = Ipv4Header::new(0, ttl, IpNumber::UDP, source, destination).expect("a header");
            header.ecn = IpEcn::try_new(ecn).expect("two bits");
            header.dscp = dscp.try_into().expect("six bits");
            header.identification = id;
            header.header_checksum = header.calc_header_checksum();
            let mut bytes = header.to_bytes().to_vec();
            let before = bytes.clone();
            let marked = mark_ce(&mut bytes);
            prop_assert_eq!(marked, ecn != 0);
            let (read, _) = Ipv4Header::from_slice(&bytes).expect("still a header");
            prop_assert_eq!(read.ecn.value(), if marked { 3 } else { 0 });
            prop_assert_eq!(read.dscp.value(), dscp);
            prop_assert_eq!(read.header_checksum, read.calc_header_checksum());
            if !marked || ecn == 3 { prop_assert_eq!(bytes, before); }
        }

        #[test]
        fn ipv6_is_marked_and_nothing_else_changed(traffic_class: u8, flow in 0u32..1 << 20, payload: u16) {
            let mut header = Ipv6Header { traffic_class, payload_length: payload, ..Default::default() };
            header.flow_label = flow.try_into().expect("twenty bits");
            let mut bytes = header.to_bytes().to_vec();
            let marked = mark_ce(&mut bytes);
            prop_assert_eq!(marked, traffic_class & 3 != 0);
            if marked { header.traffic_class |= 3; }
            prop_assert_eq!(Ipv6Header::from_slice(&bytes).expect("still a header").0, header);
        }

        #[test]
        fn nothing_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let before = bytes.clone();
            if !mark_ce(&mut bytes) { prop_assert_eq!(&bytes, &before); }
            let before = bytes.clone();
            if !mark_frame_ce(&mut bytes) { prop_assert_eq!(bytes, before); }
        }
    }

    #[test]
    fn frames_are_marked_behind_their_tags_and_nowhere_else() {
        let ip = [0x45, 2, 0, 20, 0, 0, 0, 0, 64, 17, 0x66, 0xe9, 10, 0, 0, 1, 10, 0, 0, 2];
        // A tag whose priority makes its first bits look like IPv4: 2 << 5 and VLAN 2.
        let tag = [0x81, 0x00, 0x40, 2];
        for (tags, marks) in [(0, true), (1, true), (2, true), (3, false)] {
            let mut frame = vec![2u8; 12];
            (0..tags).for_each(|_| frame.extend(tag));
            frame.extend([0x08, 0x00]);
            let header = frame.len();
            frame.extend(ip);
            let before = frame.clone();
            assert_eq!(mark_frame_ce(&mut frame), marks, "{tags} tags");
            assert_eq!(frame[..header], before[..header]);
            assert_eq!(frame[header + 1], if marks { 3 } else { 2 });
        }
        // The same bytes with another type than IP.
        let mut other = [&[2u8; 12][..], &[0x88, 0xcc], &ip].concat();
        assert!(!mark_frame_ce(&mut other));
        (0..other.len()).for_each(|len| assert!(!mark_frame_ce(&mut other[..len].to_vec())));
    }

    #[test]
    fn an_ipv4_header_with_a_zero_sum_stays_right() {
        // The one sum with two forms: the updated one must be accepted too.
        for id in 0..=u16::MAX {
            let mut bytes = [0x45, 1, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            bytes[4..6].copy_from_slice(&id.to_be_bytes());
            let sum = thalweg_wire::checksum::finish(thalweg_wire::checksum::sum(&bytes, 0));
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(mark_ce(&mut bytes));
            assert_eq!(thalweg_wire::checksum::fold(thalweg_wire::checksum::sum(&bytes, 0)), 0xffff, "{id}");
        }
    }
}
