//! RFC 7606 rule by rule, and the merging of RFC 6793. The reference and the properties are in tests/.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::bgp::as_path::AsPathError;
use crate::bgp::notification::update_error as e;
use crate::bgp::{AsPath, begin_attributes, begin_update, finish_attributes, finish_message, write_nlri};
use thalweg_base::Prefix;

const FOUR: Codec = Codec {
    four_octet_as: true,
    extended_messages: false,
    add_path_receive: [false; 2],
    add_path_send: [false; 2],
    extended_next_hop: false,
};
const TWO: Codec = Codec { four_octet_as: false, ..FOUR };

const EXTERNAL: PeerFacts =
    PeerFacts { side: PeerSide::External, in_confederation: false, discard: CodeSet::EMPTY };
const INTERNAL: PeerFacts = PeerFacts { side: PeerSide::Internal, ..EXTERNAL };

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf0];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 192, 0, 2, 1];
/// 198.51.100.0/24
const ROUTE: &[u8] = &[24, 198, 51, 100];

/// A body with these attributes and announced prefixes.
fn body(attributes: &[&[u8]], reach: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    [&[0, 0], &(attributes.len() as u16).to_be_bytes()[..], &attributes, reach].concat()
}

/// The verdict for typical attributes with this one.
fn with(
    extra: &[u8],
    codec: &Codec,
    peer: &PeerFacts,
) -> Result<(Verdict, Vec<AttributeProblem>), Notification> {
    let path: &[u8] = if codec.four_octet_as { AS_PATH } else { &[0x40, 2, 4, 2, 1, 0xfb, 0xf0] };
    let body = body(&[ORIGIN, path, NEXT_HOP, extra], ROUTE);
    let update = Update::parse(&body, codec, peer)?;
    let kept = update.attributes().any(|each| each.code == extra[1]);
    let repeated = update.discards.iter().any(|each| each.fault == Fault::Duplicate);
    assert!(!kept || repeated || update.discards.is_empty(), "what is discarded is not seen");
    Ok((update.verdict, update.discards.iter().collect()))
}

fn good(extra: &[u8], peer: &PeerFacts) {
    assert_eq!(with(extra, &FOUR, peer), Ok((Verdict::Good, vec![])), "{extra:02x?}");
}

fn withdrawn(extra: &[u8], peer: &PeerFacts, fault: Fault) {
    let problem = AttributeProblem { code: extra[1], fault };
    assert_eq!(with(extra, &FOUR, peer), Ok((Verdict::TreatAsWithdraw(problem), vec![])), "{extra:02x?}");
}

fn discarded(extra: &[u8], codec: &Codec, peer: &PeerFacts, fault: Fault) {
    let problem = AttributeProblem { code: extra[1], fault };
    assert_eq!(with(extra, codec, peer), Ok((Verdict::Good, vec![problem])), "{extra:02x?}");
}

fn reset(extra: &[u8], subcode: u8) {
    let error = with(extra, &FOUR, &EXTERNAL).expect_err("a reset");
    assert_eq!((error.code, error.subcode), (error::UPDATE, subcode), "{extra:02x?}");
}

/// The verdict for exactly these attributes, with one announced route.
fn exactly(attributes: &[&[u8]]) -> Verdict {
    Update::parse(&body(attributes, ROUTE), &FOUR, &EXTERNAL).expect("no reset").verdict
}

fn problem(code: u8, fault: Fault) -> Verdict {
    Verdict::TreatAsWithdraw(AttributeProblem { code, fault })
}

#[test]
fn lengths_of_fields_that_do_not_add_up_reset() {
    for body in [&[][..], &[0], &[0, 1, 0], &[0, 0, 0], &[0, 0, 0, 1], &[0, 4, 0, 0]] {
        let error = Update::parse(body, &FOUR, &EXTERNAL).expect_err("a reset");
        assert_eq!((error.code, error.subcode), (error::UPDATE, e::MALFORMED_ATTRIBUTE_LIST), "{body:?}");
    }
}

#[test]
fn prefixes_that_are_too_long_or_cut_reset() {
    let usual = [ORIGIN, AS_PATH, NEXT_HOP];
    for reach in [&[33, 1, 2, 3, 4, 5][..], &[24, 1, 2], &[32], &[24, 1, 2, 3, 8]] {
        for body in [body(&usual, reach), [&[0, reach.len() as u8], reach, &[0, 0]].concat()] {
            let error = Update::parse(&body, &FOUR, &EXTERNAL).expect_err("a reset");
            assert_eq!(error.subcode, e::INVALID_NETWORK_FIELD, "{body:?}");
        }
    }
}

#[test]
fn flags_that_conflict_withdraw_and_others_do_not() {
    withdrawn(&[0xc0, 4, 4, 0, 0, 0, 1], &EXTERNAL, Fault::Flags(0xc0));
    withdrawn(&[0x80, 8, 4, 0, 0, 0, 1], &EXTERNAL, Fault::Flags(0x80));
    withdrawn(&[0xc0, 6, 0], &EXTERNAL, Fault::Flags(0xc0));
    withdrawn(&[0x80, 35, 4, 0, 0, 0, 1], &EXTERNAL, Fault::Flags(0x80));
    assert_eq!(exactly(&[&[0xc0, 1, 1, 0], AS_PATH, NEXT_HOP]), problem(1, Fault::Flags(0xc0)));
    // PARTIAL, an unnecessary two-byte length, and undefined bits.
    good(&[0xe0, 8, 4, 0, 0, 0, 1], &EXTERNAL);
    good(&[0x9f, 4, 0, 4, 0, 0, 0, 1], &EXTERNAL);
    reset(&[0x40, 14, 5, 0, 1, 1, 0, 0], e::ATTRIBUTE_FLAGS);
    reset(&[0xc0, 15, 3, 0, 2, 1], e::ATTRIBUTE_FLAGS);
}

#[test]
fn what_is_missing_withdraws_only_what_is_announced() {
    assert_eq!(exactly(&[AS_PATH, NEXT_HOP]), problem(a::ORIGIN, Fault::Missing));
    assert_eq!(exactly(&[ORIGIN, NEXT_HOP]), problem(a::AS_PATH, Fault::Missing));
    assert_eq!(exactly(&[ORIGIN, AS_PATH]), problem(a::NEXT_HOP, Fault::Missing));
    let body = body(&[ORIGIN], &[]);
    assert_eq!(Update::parse(&body, &FOUR, &EXTERNAL).expect("nothing to withdraw").verdict, Verdict::Good);
}

#[test]
fn lengths_and_values_by_attribute() {
    assert_eq!(exactly(&[&[0x40, 1, 2, 0, 0], AS_PATH, NEXT_HOP]), problem(1, Fault::Length(2)));
    assert_eq!(exactly(&[&[0x40, 1, 1, 3], AS_PATH, NEXT_HOP]), problem(1, Fault::Origin(3)));
    for (address, fault) in [
        (&[5, 192, 0, 2, 1, 0][..], Fault::Length(5)),
        (&[0], Fault::Length(0)),
        (&[4, 0, 0, 0, 0], Fault::NextHop),
        (&[4, 224, 0, 0, 1], Fault::NextHop),
        (&[4, 255, 255, 255, 255], Fault::NextHop),
    ] {
        let next_hop = [&[0x40, 3], address].concat();
        assert_eq!(exactly(&[ORIGIN, AS_PATH, &next_hop]), problem(3, fault));
    }
    withdrawn(&[0x80, 4, 3, 0, 0, 1], &EXTERNAL, Fault::Length(3));
    withdrawn(&[0x40, 5, 3, 0, 0, 1], &INTERNAL, Fault::Length(3));
    discarded(&[0x40, 6, 1, 0], &FOUR, &EXTERNAL, Fault::Length(1));
    discarded(&[0xc0, 7, 6, 0, 1, 1, 2, 3, 4], &FOUR, &EXTERNAL, Fault::Length(6));
    discarded(&[0xc0, 7, 8, 0, 0, 0, 1, 1, 2, 3, 4], &TWO, &EXTERNAL, Fault::Length(8));
    discarded(&[0xc0, 7, 8, 0, 0, 0, 0, 1, 2, 3, 4], &FOUR, &EXTERNAL, Fault::AsZero);
    for (code, step) in [(8, 4), (16, 8), (25, 20), (32, 12)] {
        withdrawn(&[0xc0, code, 0], &EXTERNAL, Fault::Length(0));
        withdrawn(&[&[0xc0, code, step + 1], &vec![1; usize::from(step) + 1][..]].concat(), &EXTERNAL, {
            Fault::Length(u16::from(step) + 1)
        });
        good(&[&[0xc0, code, step * 2], &vec![1; usize::from(step) * 2][..]].concat(), &EXTERNAL);
    }
    withdrawn(&[0x80, 9, 3, 1, 2, 3], &INTERNAL, Fault::Length(3));
    withdrawn(&[0x80, 10, 0], &INTERNAL, Fault::Length(0));
    withdrawn(&[0x80, 10, 5, 1, 2, 3, 4, 5], &INTERNAL, Fault::Length(5));
    withdrawn(&[0xc0, 35, 5, 0, 0, 0, 0, 1], &EXTERNAL, Fault::Length(5));
    good(&[0xc0, 35, 4, 0, 0, 0, 1], &EXTERNAL);
}

#[test]
fn what_only_counts_inside_is_discarded_from_outside() {
    for extra in [&[0x40, 5, 4, 0, 0, 0, 1][..], &[0x40, 5, 0], &[0x80, 9, 4, 1, 2, 3, 4], &[0x80, 10, 1, 0]]
    {
        discarded(extra, &FOUR, &EXTERNAL, Fault::FromOutside);
    }
    good(&[0x40, 5, 4, 0, 0, 0, 1], &INTERNAL);
    good(&[0x80, 9, 4, 1, 2, 3, 4], &INTERNAL);
    good(&[0x80, 10, 4, 1, 2, 3, 4], &INTERNAL);
}

#[test]
fn repetitions_are_discarded_but_not_of_prefixes() {
    discarded(ORIGIN, &FOUR, &EXTERNAL, Fault::Duplicate);
    let twice: &[u8] = &[0xc0, 99, 1, 1];
    let both = body(&[ORIGIN, AS_PATH, NEXT_HOP, twice, &[0xc0, 99, 1, 2]], ROUTE);
    let update = Update::parse(&both, &FOUR, &EXTERNAL).expect("a valid message");
    assert_eq!((update.verdict, update.discards.len()), (Verdict::Good, 1));
    let unknown: Vec<_> = update.attributes().filter(|each| each.code == 99).map(|each| each.value).collect();
    assert_eq!(unknown, [[1]], "the first one counts");
    let reach: &[u8] = &[0x80, 14, 9, 0, 1, 1, 4, 192, 0, 2, 1, 0];
    for repeated in [[reach, reach].concat(), [0x80, 15, 3, 0, 2, 1].repeat(2)] {
        reset(&repeated, e::MALFORMED_ATTRIBUTE_LIST);
    }
}

#[test]
fn an_attribute_beyond_the_field_withdraws_or_resets() {
    let overruns: [&[u8]; 5] = [&[0xc0], &[0xc0, 8], &[0xc0, 8, 5, 0], &[0xd0, 8, 0], &[0x40, 1, 2, 0]];
    for overrun in overruns {
        let code = overrun.get(1).copied().unwrap_or(0);
        assert_eq!(exactly(&[ORIGIN, AS_PATH, NEXT_HOP, overrun]), problem(code, Fault::Overrun));
        // RFC 7606 5.2: with nothing to withdraw.
        let alone = body(&[ORIGIN, overrun], &[]);
        assert!(Update::parse(&alone, &FOUR, &EXTERNAL).is_err(), "{overrun:?}");
    }
}

#[test]
fn malformed_attributes_without_routes_reset_unless_discarded() {
    let error = Update::parse(&body(&[&[0x40, 1, 1, 9]], &[]), &FOUR, &EXTERNAL).expect_err("a reset");
    assert_eq!((error.subcode, &error.data[..]), (e::INVALID_ORIGIN, &[0x40, 1, 1, 9][..]));
    let discarded = body(&[&[0x40, 6, 1, 9]], &[]);
    let update = Update::parse(&discarded, &FOUR, &EXTERNAL).expect("no reset");
    assert_eq!((update.verdict, update.discards.len()), (Verdict::Good, 1));
    // Prefixes announced in an unsupported family count as routes to withdraw.
    let foreign = body(&[&[0x40, 1, 1, 9], &[0x80, 14, 9, 0, 25, 70, 4, 192, 0, 2, 1, 0]], &[]);
    assert!(Update::parse(&foreign, &FOUR, &EXTERNAL).is_ok());
}

#[test]
fn unknown_attributes() {
    reset(&[0x40, 99, 1, 1], e::UNRECOGNIZED_WELL_KNOWN);
    good(&[0xc0, 99, 0], &EXTERNAL);
    good(&[0x80, 26, 1, 1], &EXTERNAL);
    let unwanted = PeerFacts { discard: CodeSet::EMPTY.with(40).with(8).with(a::ORIGIN), ..EXTERNAL };
    discarded(&[0xc0, 40, 1, 1], &FOUR, &unwanted, Fault::Unwanted);
    discarded(&[0xc0, 8, 1, 1], &FOUR, &unwanted, Fault::Unwanted);
    good(&[0xc0, 41, 1, 1], &unwanted);
}

fn path_fault(value: &[u8], codec: &Codec, peer: &PeerFacts) -> Option<AsPathError> {
    let path = [&[0x40, 2, value.len() as u8], value].concat();
    let body = body(&[ORIGIN, &path, NEXT_HOP], ROUTE);
    match Update::parse(&body, codec, peer).expect("no reset").verdict {
        Verdict::Good => None,
        Verdict::TreatAsWithdraw(AttributeProblem { code: a::AS_PATH, fault: Fault::AsPath(error) }) => {
            Some(error)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn paths() {
    let external = |value: &[u8]| path_fault(value, &FOUR, &EXTERNAL);
    assert_eq!(external(&[]), None);
    assert_eq!(external(&[5, 1, 0, 0, 0, 1]), Some(AsPathError::SegmentType(5)));
    assert_eq!(external(&[0, 1, 0, 0, 0, 1]), Some(AsPathError::SegmentType(0)));
    assert_eq!(external(&[2, 0]), Some(AsPathError::EmptySegment));
    assert_eq!(external(&[2, 2, 0, 0, 0, 1]), Some(AsPathError::Overrun));
    assert_eq!(external(&[2, 1, 0, 0, 0, 1, 2]), Some(AsPathError::Underrun));
    assert_eq!(external(&[2, 2, 0, 0, 0, 1, 0, 0, 0, 0]), Some(AsPathError::AsZero));
    assert_eq!(external(&[1, 1, 0, 0, 0, 1, 2, 1, 0, 0, 0, 1]), None);
    assert_eq!(path_fault(&[2, 1, 0, 0], &TWO, &EXTERNAL), Some(AsPathError::AsZero));
    assert_eq!(path_fault(&[2, 1, 0, 1], &TWO, &EXTERNAL), None);
}

#[test]
fn confederations() {
    let inside = [3, 1, 0, 0, 0xfd, 0xe9, 2, 1, 0, 0, 0, 1];
    let behind = [2, 1, 0, 0, 0, 1, 3, 1, 0, 0, 0xfd, 0xe9];
    let set_first = [4, 1, 0, 0, 0xfd, 0xe9, 3, 1, 0, 0, 0xfd, 0xe9];
    let member = PeerFacts { in_confederation: true, ..INTERNAL };
    let other = PeerFacts { side: PeerSide::Confederation, ..member };
    let outside = PeerFacts { in_confederation: true, ..EXTERNAL };
    for peer in [&EXTERNAL, &outside, &INTERNAL] {
        assert_eq!(path_fault(&inside, &FOUR, peer), Some(AsPathError::Confederation));
    }
    assert_eq!(path_fault(&inside, &FOUR, &member), None);
    assert_eq!(path_fault(&[], &FOUR, &member), None);
    assert_eq!(path_fault(&inside, &FOUR, &other), None);
    for value in [&[][..], &behind, &set_first] {
        assert_eq!(path_fault(value, &FOUR, &other), Some(AsPathError::NoConfederationFirst));
    }
}

#[test]
fn a_path_beyond_the_bound_withdraws() {
    let segment = [&[2, 250][..], &[0, 0, 0, 1].repeat(250)].concat();
    for (segments, fault) in [(8, None), (9, Some(AsPathError::TooLong(2250)))] {
        let value = segment.repeat(segments);
        let path = [&[0x50, 2], &(value.len() as u16).to_be_bytes()[..], &value].concat();
        let verdict = exactly(&[ORIGIN, &path, NEXT_HOP]);
        let expected = fault.map_or(Verdict::Good, |error| problem(a::AS_PATH, Fault::AsPath(error)));
        assert_eq!(verdict, expected);
    }
}

fn mp_reach(afi: u16, next_hop: &[u8], prefixes: &[u8]) -> Vec<u8> {
    let afi = afi.to_be_bytes();
    let value = [&afi[..], &[1, next_hop.len() as u8], next_hop, &[0], prefixes].concat();
    [&[0x80, 14, value.len() as u8], &value[..]].concat()
}

#[test]
fn reach_and_unreach() {
    let global: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let local: Ipv6Addr = "fe80::1".parse().unwrap();
    let both = [global.octets(), local.octets()].concat();
    let route = [32, 0x20, 1, 0xd, 0xb8];
    let body = body(&[&mp_reach(2, &both, &route), ORIGIN, AS_PATH], &[]);
    let update = Update::parse(&body, &FOUR, &EXTERNAL).expect("a valid message");
    let reach = update.mp_reach.expect("it is there");
    assert_eq!(reach.next_hop, NextHop::V6 { global, link_local: Some(local) });
    assert_eq!((update.verdict, reach.routes.len(), reach.routes.family()), (Verdict::Good, 1, Family::Ipv6));
    assert!(update.announces() && update.next_hop.is_none());

    for length in [0, 4, 12, 15, 17, 24, 31, 33, 48] {
        reset(&mp_reach(2, &vec![1; length], &route), e::OPTIONAL_ATTRIBUTE);
    }
    reset(&mp_reach(1, &both, &[8, 10]), e::OPTIONAL_ATTRIBUTE);
    reset(&mp_reach(2, &both, &[129]), e::OPTIONAL_ATTRIBUTE);
    reset(&mp_reach(2, &both, &[32, 1]), e::OPTIONAL_ATTRIBUTE);
    reset(&mp_reach(1, &[192, 0, 2, 1], &[33, 1, 1, 1, 1, 1]), e::OPTIONAL_ATTRIBUTE);
    reset(&[0x80, 14, 4, 0, 1, 1, 0], e::ATTRIBUTE_LENGTH);
    reset(&[0x80, 14, 5, 0, 1, 1, 4, 0], e::OPTIONAL_ATTRIBUTE);
    reset(&[0x80, 15, 2, 0, 1], e::ATTRIBUTE_LENGTH);
    reset(&[0x80, 15, 5, 0, 1, 1, 33, 1], e::OPTIONAL_ATTRIBUTE);
    withdrawn(&mp_reach(2, &[0; 16], &route), &EXTERNAL, Fault::NextHop);
    withdrawn(&mp_reach(2, &[0xff; 16], &route), &EXTERNAL, Fault::NextHop);

    let extended = Codec { extended_next_hop: true, ..FOUR };
    let v4_by_v6 = mp_reach(1, &global.octets(), &[8, 10]);
    assert_eq!(with(&v4_by_v6, &extended, &EXTERNAL), Ok((Verdict::Good, vec![])));
}

#[test]
fn families_that_are_not_kept_are_passed_over() {
    let evpn: &[u8] = &[0x80, 14, 9, 0, 25, 70, 4, 192, 0, 2, 1, 0];
    let gone: &[u8] = &[0x80, 15, 5, 0, 25, 70, 200, 1];
    let body = body(&[evpn, gone, ORIGIN, AS_PATH], &[]);
    let update = Update::parse(&body, &FOUR, &EXTERNAL).expect("a valid message");
    let family = Some(AfiSafi { afi: 25, safi: 70 });
    assert_eq!((update.foreign_reach, update.foreign_unreach), (family, family));
    assert!(!update.announces() && update.mp_reach.is_none() && update.end_of_rib().is_none());
    assert_eq!(update.to_string().split(';').next(), Some("UPDATE withdraw of family 25/70"));
}

#[test]
fn the_view_of_a_usual_update() {
    let mut out = Vec::new();
    let message = begin_update(&mut out);
    write_nlri(&mut out, None, Prefix::new(0x0a00_00ffu32, 8).unwrap());
    let attributes = begin_attributes(&mut out, message);
    for each in [ORIGIN, AS_PATH, NEXT_HOP, &[0x80, 4, 4, 0, 0, 0, 7], &[0xf0, 8, 0, 4, 0xfb, 0xf0, 0, 9]] {
        out.extend_from_slice(each);
    }
    finish_attributes(&mut out, attributes);
    write_nlri(&mut out, None, Prefix::new(0xc633_6400u32, 24).unwrap());
    finish_message(&mut out, message).unwrap();
    let update = Update::parse(&out[19..], &FOUR, &EXTERNAL).expect("a valid message");
    assert_eq!(update.next_hop, Some(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!((update.med, update.local_pref, update.origin), (Some(7), None, Origin::Igp));
    let flags: Vec<(u8, u8)> = update.attributes().map(|each| (each.code, each.flags)).collect();
    assert_eq!(flags, [(1, 0x40), (2, 0x40), (3, 0x40), (4, 0x80), (8, 0xe0)]);
    assert_eq!(
        update.to_string(),
        "UPDATE withdraw 10.0.0.0/8; announce 198.51.100.0/24 via 192.0.2.1; ORIGIN igp, AS_PATH 64496, \
         NEXT_HOP 192.0.2.1, MULTI_EXIT_DISC 7, COMMUNITIES 64496:9"
    );
}

#[test]
fn host_bits_and_path_identifiers() {
    let codec = Codec { add_path_receive: [true, false], ..FOUR };
    let body = body(&[ORIGIN, AS_PATH, NEXT_HOP], &[0, 0, 0, 5, 20, 10, 1, 0xff, 0, 0, 0, 6, 0]);
    let update = Update::parse(&body, &codec, &EXTERNAL).expect("a valid message");
    let routes: Vec<_> = update.reach_v4.iter().map(|(id, prefix)| (id, prefix.to_string())).collect();
    assert_eq!(routes, [(5, "10.1.240.0/20".to_owned()), (6, "0.0.0.0/0".to_owned())]);
    assert_eq!(update.reach_v4.iter().len(), 2);
}

#[test]
fn ends_of_ribs() {
    let end = |bytes: &[u8]| Update::parse(bytes, &FOUR, &EXTERNAL).expect("a valid message").end_of_rib();
    assert_eq!(end(&[0, 0, 0, 0]), Some(Family::Ipv4));
    assert_eq!(end(&body(&[&[0x80, 15, 3, 0, 2, 1]], &[])), Some(Family::Ipv6));
    assert_eq!(end(&body(&[&[0x80, 15, 3, 0, 1, 1]], &[])), Some(Family::Ipv4));
    assert_eq!(end(&body(&[&[0x80, 15, 3, 0, 1, 128]], &[])), None);
    assert_eq!(end(&body(&[&[0x80, 15, 4, 0, 2, 1, 0]], &[])), None);
    assert_eq!(end(&body(&[ORIGIN, &[0x80, 15, 3, 0, 2, 1]], &[])), None);
    assert_eq!(end(&[0, 2, 8, 10, 0, 0]), None);
    for family in Family::ALL {
        let mut out = Vec::new();
        crate::bgp::write_end_of_rib(&mut out, family);
        assert_eq!(end(&out[19..]), Some(family));
    }
}

/// The path that a neighbor with two-octet AS numbers meant by AS_PATH and AS4_PATH.
fn merged(two_octet: &[u8], as4_path: &[u8], extra: &[u8]) -> String {
    let path = [&[0x40, 2, two_octet.len() as u8], two_octet].concat();
    let real = [&[0xc0, 17, as4_path.len() as u8], as4_path].concat();
    let peer = PeerFacts { in_confederation: true, ..INTERNAL };
    // AS4_PATH before AS_PATH: the order has no meaning.
    let body = body(&[&real, extra, ORIGIN, &path, NEXT_HOP], ROUTE);
    let update = Update::parse(&body, &TWO, &peer).expect("a valid message");
    assert_eq!(update.verdict, Verdict::Good);
    AsPath::new(update.as_path(&mut Vec::new())).to_string()
}

#[test]
fn as4_path_takes_the_place_of_as_trans() {
    const T: [u8; 2] = [0x5b, 0xa0];
    let two = |asns: &[[u8; 2]]| [&[2, asns.len() as u8], asns.as_flattened()].concat();
    let four = |asns: &[u32]| {
        let bytes: Vec<u8> = asns.iter().flat_map(|asn| asn.to_be_bytes()).collect();
        [&[2, asns.len() as u8], &bytes[..]].concat()
    };
    assert_eq!(merged(&two(&[[0, 9], T, T]), &four(&[70000, 70001]), &[]), "9 70000 70001");
    assert_eq!(merged(&two(&[T, T]), &four(&[70000, 70001]), &[]), "70000 70001");
    assert_eq!(merged(&two(&[T]), &four(&[70000, 70001]), &[]), "23456", "shorter than AS4_PATH");
    // A set counts one; a sequence can be cut, a set cannot.
    let set = [1, 2, 0, 7, 0, 8];
    let path = [&two(&[[0, 9], T])[..], &set].concat();
    assert_eq!(merged(&path, &[2, 1, 0, 1, 0, 0], &[]), "9 23456 65536");
    // Confederation segments at the start of AS_PATH are kept, those in AS4_PATH are not.
    let confederation = [3, 1, 0xfd, 0xe9];
    let path = [&confederation[..], &two(&[[0, 9], T])].concat();
    assert_eq!(merged(&path, &four(&[70000]), &[]), "(65001) 9 70000");
    assert_eq!(merged(&path, &four(&[9, 70000]), &[]), "(65001) 9 70000");
    let with_confederation = [&[3, 1, 0, 0, 0xfd, 0xe9][..], &four(&[70000])].concat();
    assert_eq!(merged(&path, &with_confederation, &[]), "(65001) 9 70000");
    // An AGGREGATOR other than AS_TRANS beside AS4_AGGREGATOR: the four-octet attributes are obsolete.
    let known: &[u8] = &[0xc0, 7, 6, 0, 9, 1, 2, 3, 4];
    let trans: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 1, 2, 3, 4];
    let real: &[u8] = &[0xc0, 18, 8, 0, 1, 0x11, 0x70, 5, 6, 7, 8];
    let path = two(&[[0, 9], T]);
    assert_eq!(merged(&path, &four(&[70000]), &[known, real].concat()), "9 23456");
    assert_eq!(merged(&path, &four(&[70000]), &[trans, real].concat()), "9 70000");
    assert_eq!(merged(&path, &four(&[70000]), real), "9 70000", "AS4_AGGREGATOR alone says nothing");
}

#[test]
fn aggregators_of_two_bytes() {
    let parse = |extra: &[&[u8]]| {
        let path: &[u8] = &[0x40, 2, 4, 2, 1, 0xfb, 0xf0];
        let body = body(&[&[ORIGIN, path, NEXT_HOP], extra].concat(), ROUTE);
        Update::parse(&body, &TWO, &EXTERNAL).expect("a valid message").aggregator()
    };
    let trans: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 1, 2, 3, 4];
    let known: &[u8] = &[0xc0, 7, 6, 0, 9, 1, 2, 3, 4];
    let real: &[u8] = &[0xc0, 18, 8, 0, 1, 0x11, 0x70, 5, 6, 7, 8];
    let made = |asn, address: [u8; 4]| Some(Aggregator { asn, address: address.into() });
    assert_eq!(parse(&[known, real]), made(9, [1, 2, 3, 4]));
    assert_eq!(parse(&[real, trans]), made(70000, [5, 6, 7, 8]));
    assert_eq!(parse(&[trans]), made(23456, [1, 2, 3, 4]));
    assert_eq!(parse(&[real]), None);
    assert_eq!(made(70000, [5, 6, 7, 8]).unwrap().to_bytes(), [0, 1, 0x11, 0x70, 5, 6, 7, 8]);
}

#[test]
fn four_bytes_twice_and_malformed_are_discarded() {
    let as4_path: &[u8] = &[0xc0, 17, 6, 2, 1, 0, 1, 0, 0];
    discarded(as4_path, &FOUR, &EXTERNAL, Fault::FromFourOctetSpeaker);
    discarded(&[0xc0, 18, 8, 0, 1, 0, 0, 1, 2, 3, 4], &FOUR, &EXTERNAL, Fault::FromFourOctetSpeaker);
    discarded(&[0xc0, 17, 5, 2, 1, 0, 1, 0], &TWO, &EXTERNAL, Fault::Length(5));
    discarded(&[0xc0, 17, 6, 9, 1, 0, 1, 0, 0], &TWO, &EXTERNAL, Fault::AsPath(AsPathError::SegmentType(9)));
    discarded(&[0xc0, 17, 6, 2, 1, 0, 0, 0, 0], &TWO, &EXTERNAL, Fault::AsPath(AsPathError::AsZero));
    discarded(&[0xc0, 18, 7, 0, 1, 0, 0, 1, 2, 3], &TWO, &EXTERNAL, Fault::Length(7));
    discarded(&[0xc0, 18, 8, 0, 0, 0, 0, 1, 2, 3, 4], &TWO, &EXTERNAL, Fault::AsZero);
}
