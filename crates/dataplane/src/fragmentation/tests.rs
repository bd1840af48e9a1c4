use super::*;
use proptest::prelude::*;
use thalweg_wire::checksum::{fold, sum};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::testing::ipv4_with_options;

const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
const RECORD_ROUTE: [u8; 7] = [7, 7, 4, 0, 0, 0, 0];
const LOOSE_ROUTE: [u8; 3] = [0x83, 3, 4];

fn packet(options: &[u8], flags: u16, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        traffic_class: 0x2e,
        identification: 0x1234,
        flags_and_offset: flags,
        ..Ipv4Repr::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 17, payload.len())
    };
    ipv4_with_options(header, options, payload)
}

fn flags_of(fragment: &[u8]) -> u16 {
    u16::from_be_bytes([fragment[6], fragment[7]])
}

fn split(fragment: &[u8]) -> (&[u8], &[u8]) {
    fragment.split_at(usize::from(fragment[0] & 15) * 4)
}

/// The slow reference: a datagram's bytes at the offset of each fragment, and which fragment wrote each.
fn reassemble(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes: Vec<Option<u8>> = Vec::new();
    let mut end = None;
    let mut header = None;
    for fragment in fragments {
        let (head, body) = split(fragment);
        let at = usize::from(flags_of(fragment) & 0x1fff) * 8;
        if at == 0 {
            header = Some(head.to_vec());
        }
        if flags_of(fragment) & MORE_FRAGMENTS == 0 {
            assert!(end.replace(at + body.len()).is_none(), "two last fragments");
        } else {
            assert!(!body.is_empty() && body.len() % 8 == 0, "{} bytes in the middle", body.len());
        }
        if bytes.len() < at + body.len() {
            bytes.resize(at + body.len(), None);
        }
        for (place, &byte) in bytes[at..].iter_mut().zip(body) {
            assert!(place.replace(byte).is_none(), "fragments overlap");
        }
    }
    assert_eq!(end, Some(bytes.len()), "the last fragment ends the datagram");
    let payload: Vec<u8> = bytes.into_iter().map(|byte| byte.expect("fragments cover every byte")).collect();
    let header = header.expect("there is a first fragment");
    packet(&header[20..], flags_of(&fragments[0]) & 0x8000, &payload)
}

#[test]
fn the_example_of_rfc_791_a_length_of_472_through_280() {
    // RFC 791, appendix A, examples 2 and 3: 452 bytes of data leave as 256 and 196.
    let original = packet(&[], 0, &[123; 452]);
    let fragments = fragment(&original, 280).expect("the packet may be fragmented");
    let seen: Vec<(usize, u16, usize)> =
        fragments.iter().map(|f| (f.len(), flags_of(f), split(f).1.len())).collect();
    assert_eq!(seen, [(276, MORE_FRAGMENTS, 256), (216, 32, 196)]);
    assert_eq!(reassemble(&fragments), original);
}

#[test]
fn options_are_copied_by_their_bit() {
    let options = [&[NO_OPERATION][..], &RECORD_ROUTE, &ROUTER_ALERT, &LOOSE_ROUTE].concat();
    let original = packet(&options, 0, &[7; 200]);
    let fragments = fragment(&original, 100).expect("the packet may be fragmented");
    assert_eq!(split(&fragments[0]).0.len(), 36);
    assert_eq!(&split(&fragments[0]).0[20..], &original[20..36], "the first keeps all");
    for later in &fragments[1..] {
        let copied = [&ROUTER_ALERT[..], &LOOSE_ROUTE, &[0]].concat();
        assert_eq!(&split(later).0[20..], copied, "the others keep what is to be copied");
    }
    assert_eq!(reassemble(&fragments), original);
}

#[test]
fn what_cannot_be_cut_is_not() {
    let forbidden = packet(&[], DONT_FRAGMENT, &[1; 100]);
    assert_eq!(fragment(&forbidden, 100), Err(FragmentationError::DontFragment));
    assert_eq!(fragment(&forbidden, 120), Ok(vec![forbidden.clone()]), "but it fits there");
    let plain = packet(&[], 0, &[1; 100]);
    assert_eq!(fragment(&plain, 67), Err(FragmentationError::MtuTooSmall { mtu_bytes: 67 }));
    let mut padded = plain.clone();
    padded.extend([0; 30]);
    assert_eq!(fragment(&padded, 120), Ok(vec![plain.clone()]), "padding is no part of it");
    let beyond = packet(&[], 0x1fff, &[1; 100]);
    let malformed = [
        &[][..],
        &plain[..19],
        &plain[..119],
        &[0x60; 120],
        &beyond,
        &packet(&[0x94, 1, 0, 0], 0, &[1; 100]),
        &packet(&[0x94, 5, 0, 0], 0, &[1; 100]),
        &packet(&[1, 1, 1, 0x94], 0, &[1; 100]),
    ];
    for (i, bytes) in malformed.iter().enumerate() {
        assert_eq!(fragment(bytes, 68), Err(FragmentationError::Malformed), "{i}");
    }
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(vec![NO_OPERATION]),
        Just(ROUTER_ALERT.to_vec()),
        Just(RECORD_ROUTE.to_vec()),
        Just(LOOSE_ROUTE.to_vec()),
    ];
    proptest::collection::vec(one, 0..5).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn a_slow_reference_puts_them_together_again(options in options(), length in 0usize..6000, mtu in 68usize..2000,
                                            again in 68usize..2000, reserved: bool) {
        let payload: Vec<u8> = (0..length).map(|i| (i * 7 + i / 256) as u8).collect();
        let original = packet(&options, if reserved { 0x8000 } else { 0 }, &payload);
        let fragments = fragment(&original, mtu).expect("the packet may be fragmented");
        prop_assert_eq!(reassemble(&fragments), original.clone());
        let pieces: Vec<Vec<u8>> =
            fragments.iter().flat_map(|f| fragment(f, again).expect("a fragment may be fragmented again")).collect();
        prop_assert_eq!(reassemble(&pieces), original);
        for piece in &pieces {
            prop_assert!(piece.len() <= mtu.min(again));
            prop_assert_eq!(fold(sum(split(piece).0, 0)), 0xffff);
            prop_assert_eq!(usize::from(u16::from_be_bytes([piece[2], piece[3]])), piece.len());
        }
    }

    #[test]
    fn anything_is_cut_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), mtu in 0usize..300) {
        if let [first, _, high, low, ..] = &mut bytes[..] {
            (*first, *high, *low) = (0x40 | *first & 15, 0, *low);
        }
        if let Ok(fragments) = fragment(&bytes, mtu) {
            prop_assert!(fragments.iter().all(|f| f.len() <= mtu));
            let whole = usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) - usize::from(bytes[0] & 15) * 4;
            prop_assert_eq!(fragments.iter().map(|f| split(f).1.len()).sum::<usize>(), whole);
        }
    }
}

mod translated {
    use super::super::*;
    use proptest::prelude::*;
    use thalweg_wire::ipv6::Ipv6Repr;

    /// An IPv6 packet with a fragment header.
    fn packet(field: u16, payload: &[u8]) -> Vec<u8> {
        let ends = [1u128, 2].map(|n| (0x2001_0db8 << 96 | n).into());
        let fragment = FragmentRepr { next_header: 17, field, identification: 0x1234 };
        let header = Ipv6Repr::new(ends[0], ends[1], FRAGMENT, 8 + payload.len());
        [&header.encode()[..], &fragment.encode(), payload].concat()
    }

    #[test]
    fn only_what_has_a_fragment_header_is_cut() {
        let cut = |packet: &[u8], mtu| fragment_translated(packet, mtu);
        let long = packet(0, &[1; 1453]);
        assert_eq!(cut(&long, 1500), Ok(vec![packet(1, &[1; 1448]), packet(181 << 3, &[1; 5])]));
        assert_eq!(cut(&long, 1501), Ok(vec![long.clone()]));
        assert_eq!(cut(&long, 1279), Err(FragmentationError::MtuTooSmall { mtu_bytes: 1279 }));
        let mut whole = long.clone();
        whole[6] = 17;
        assert_eq!(cut(&whole, 1500), Err(FragmentationError::DontFragment));
        assert_eq!(cut(&long[..1000], 1280), Err(FragmentationError::Malformed));
        assert_eq!(cut(&packet(0xffe0, &[0; 1400]), 1280), Err(FragmentationError::Malformed));
    }

    proptest! {
        #[test]
        fn pieces_fit_and_are_the_whole(start in 0u16..400, more: bool, len in 1233usize..6000, mtu in 1280usize..2000) {
            let payload: Vec<u8> = (0..len).map(|n| (n / 8) as u8).collect();
            let field = start << 3 | u16::from(more);
            let pieces = fragment_translated(&packet(field, &payload), mtu).unwrap();
            let mut together = Vec::new();
            for (i, piece) in pieces.iter().enumerate() {
                let last = i + 1 == pieces.len();
                let offset = (usize::from(start) * 8 + together.len()) as u16;
                prop_assert!(piece.len() <= mtu);
                prop_assert_eq!(piece, &packet(offset | u16::from(more || !last), &piece[48..]));
                prop_assert!(last || piece[48..].len() % 8 == 0);
                together.extend_from_slice(&piece[48..]);
            }
            prop_assert_eq!(together, payload);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), mtu in 0usize..2000) {
            let _ = fragment_translated(&bytes, mtu);
        }
    }
}
