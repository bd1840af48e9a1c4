//! IPv4 packets are fragmented for any MTU, and their fragments again. Fragments fit, have valid headers, and
//! reassembled in any order give the original packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_dataplane::fragmentation::fragment;
use thalweg_dataplane::ip_packet::IpPacket;

/// What a receiver reassembles from the fragments.
fn put_together(fragments: &[Vec<u8>]) -> (usize, bool, Vec<u8>) {
    let mut parts: Vec<(usize, bool, &[u8])> = fragments
        .iter()
        .map(|fragment| {
            let header_len = usize::from(fragment[0] & 15) * 4;
            let place = u16::from_be_bytes([fragment[6], fragment[7]]);
            (usize::from(place & 0x1fff) * 8, place & 0x2000 != 0, &fragment[header_len..])
        })
        .collect();
    parts.sort_by_key(|&(at, ..)| at);
    let start = parts.first().map_or(0, |part| part.0);
    let mut whole = Vec::new();
    for (i, &(at, more, part)) in parts.iter().enumerate() {
        assert_eq!(at, start + whole.len(), "a hole or an overlap");
        assert!(i + 1 == parts.len() || (more && part.len() % 8 == 0 && !part.is_empty()));
        whole.extend_from_slice(part);
    }
    (start, parts.last().is_some_and(|part| part.1), whole)
}

fuzz_target!(|input: &[u8]| {
    let Some(([high, low, again], packet)) = input.split_first_chunk::<3>() else { return };
    let mtu = usize::from(u16::from_be_bytes([*high, *low]));
    let Ok(fragments) = fragment(packet, mtu) else { return };
    let original = fragment(packet, usize::MAX).expect("it was cut");
    assert_eq!(put_together(&fragments), put_together(&original));
    assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
    if fragments.len() == 1 {
        return;
    }
    for fragment in &fragments {
        let read = IpPacket::parse(fragment).expect("it is IP");
        assert!(read.complete && read.header_checksum_holds() && read.bytes.len() == fragment.len());
    }
    let again = 68 + usize::from(*again);
    let pieces: Vec<Vec<u8>> = fragments
        .iter()
        .flat_map(|piece| fragment(piece, again).expect("a fragment may be cut again"))
        .collect();
    assert_eq!(put_together(&pieces), put_together(&original));
});
