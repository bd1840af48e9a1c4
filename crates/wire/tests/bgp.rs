//! Encoded messages decode to the same, and another decoder reads UPDATEs in the same way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgpkit_parser::bgp::messages::parse_bgp_update_message;
use bgpkit_parser::models::{AsnLength, AttributeValue, Origin as TheirOrigin};
use proptest::collection::vec;
use proptest::prelude::*;
use thalweg_base::Prefix;
use thalweg_wire::bgp::{
    AddPath, AfiSafi, AsPath, Capabilities, Codec, ExtendedNextHop, Family, GracefulRestart, HeaderError,
    HostName, LongLivedFamily, MessageKind, MpNlri, NextHop, Notification, Open, PeerFacts, PeerSide,
    RefreshKind, RestartFamily, RouteRefresh, UnknownCapability, Update, Verdict, attribute as a,
    begin_attributes, begin_message, begin_mp_reach, begin_mp_unreach, begin_update, cease, error,
    finish_attribute, finish_attributes, finish_message, frame, header_error, narrow_as_path, nlri_length,
    open_error, write_attribute, write_keepalive, write_nlri,
};

fn body(bytes: &[u8], kind: MessageKind) -> &[u8] {
    let message = frame(bytes, 4096).expect("a valid message").expect("a complete message");
    assert_eq!((message.kind, message.length), (kind, bytes.len()));
    message.body
}

fn family() -> impl Strategy<Value = AfiSafi> {
    prop_oneof![Just((1, 1)), Just((2, 1)), (any::<u16>(), any::<u8>())]
        .prop_map(|(afi, safi)| AfiSafi { afi, safi })
}

fn families() -> impl Strategy<Value = Vec<AfiSafi>> {
    proptest::collection::btree_set(family(), 0..5).prop_map(|set| set.into_iter().collect())
}

prop_compose! {
    fn capabilities()(
        families in families(),
        flags in any::<[bool; 5]>(),
        asn in proptest::option::of(1u32..),
        add_path in families(),
        ways in vec(1u8..4, 5),
        next_hops in proptest::collection::btree_set(any::<[u16; 3]>(), 0..50),
        restart in proptest::option::of((any::<[bool; 2]>(), 0u16..4096, families())),
        role in proptest::option::of(any::<u8>()),
        long_lived in vec((family(), any::<bool>(), 0u32..1 << 24), 0..40),
        host in proptest::option::of((vec(any::<u8>(), 0..126), vec(any::<u8>(), 0..126))),
        version in proptest::option::of(vec(any::<u8>(), 0..255)),
        unknown in vec((128u8.., vec(any::<u8>(), 0..256)), 0..4),
    ) -> Capabilities {
        Capabilities {
            families,
            route_refresh: flags[0],
            enhanced_refresh: flags[1],
            extended_message: flags[2],
            four_octet_as: asn,
            add_path: add_path
                .into_iter()
                .zip(ways)
                .map(|(family, way)| AddPath { family, receive: way & 1 != 0, send: way & 2 != 0 })
                .collect(),
            extended_next_hop: next_hops
                .into_iter()
                .map(|[afi, safi, next_hop_afi]| ExtendedNextHop { afi, safi, next_hop_afi })
                .collect(),
            graceful_restart: restart.map(|([restarting, notification], time_s, families)| GracefulRestart {
                restarting,
                notification,
                time_s,
                families: families
                    .into_iter()
                    .map(|family| RestartFamily { family, forwarding: flags[3] })
                    .collect(),
            }),
            role,
            long_lived: long_lived
                .into_iter()
                .map(|(family, forwarding, time_s)| LongLivedFamily { family, forwarding, time_s })
                .collect(),
            host_name: host.map(|(host, domain)| HostName { host, domain }),
            software_version: version,
            unknown: unknown.into_iter().map(|(code, value)| UnknownCapability { code, value }).collect(),
        }
    }
}

fn prefix4() -> impl Strategy<Value = (u32, Prefix<u32>)> {
    (any::<u32>(), any::<u32>(), 0u8..=32)
        .prop_map(|(id, address, length)| (id, Prefix::new(address, length).expect("in range")))
}

fn prefix6() -> impl Strategy<Value = (u32, Prefix<u128>)> {
    (any::<u32>(), any::<u128>(), 0u8..=128)
        .prop_map(|(id, address, length)| (id, Prefix::new(address, length).expect("in range")))
}

/// The value of an AS_PATH with four-octet numbers.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let asn = prop_oneof![1u32..65536, 1u32..];
    let segment = (1u8..3, vec(asn, 1..6)).prop_map(|(kind, asns)| {
        let bytes: Vec<u8> = asns.iter().flat_map(|asn| asn.to_be_bytes()).collect();
        [&[kind, asns.len() as u8], &bytes[..]].concat()
    });
    vec(segment, 0..4).prop_map(|segments| segments.concat())
}

/// The parts of an UPDATE.
#[derive(Clone, Debug)]
struct Made {
    withdrawn: Vec<(u32, Prefix<u32>)>,
    reach: Vec<(u32, Prefix<u32>)>,
    unreach6: Vec<(u32, Prefix<u128>)>,
    reach6: Vec<(u32, Prefix<u128>)>,
    path: Vec<u8>,
    origin: u8,
    med: Option<u32>,
    local_pref: Option<u32>,
    communities: Vec<u32>,
    next_hop6: NextHop,
    path_ids: bool,
    four: bool,
}

prop_compose! {
    fn made()(
        (withdrawn, reach) in (vec(prefix4(), 0..6), vec(prefix4(), 0..6)),
        (unreach6, reach6) in (vec(prefix6(), 0..6), vec(prefix6(), 0..6)),
        path in path(),
        origin in 0u8..3,
        med in any::<Option<u32>>(),
        local_pref in any::<Option<u32>>(),
        communities in vec(any::<u32>(), 0..80),
        global in any::<u128>(),
        local in any::<Option<u64>>(),
        (path_ids, four) in any::<(bool, bool)>(),
    ) -> Made {
        // Neither unspecified nor multicast.
        let global = Ipv6Addr::from(global & (u128::MAX >> 8) | 0x20 << 120);
        let link_local = local.map(|low| Ipv6Addr::from(0xfe80 << 112 | u128::from(low)));
        let next_hop6 = NextHop::V6 { global, link_local };
        Made { withdrawn, reach, unreach6, reach6, path, origin, med, local_pref, communities, next_hop6, path_ids, four }
    }
}

const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn write(made: &Made, out: &mut Vec<u8>) {
    let id = |id: u32| made.path_ids.then_some(id);
    let message = begin_update(out);
    made.withdrawn.iter().for_each(|&(path, prefix)| write_nlri(out, id(path), prefix));
    let attributes = begin_attributes(out, message);
    if !made.unreach6.is_empty() {
        let start = begin_mp_unreach(out, Family::Ipv6);
        made.unreach6.iter().for_each(|&(path, prefix)| write_nlri(out, id(path), prefix));
        finish_attribute(out, start);
    }
    if !made.reach6.is_empty() {
        let start = begin_mp_reach(out, Family::Ipv6, made.next_hop6);
        made.reach6.iter().for_each(|&(path, prefix)| write_nlri(out, id(path), prefix));
        finish_attribute(out, start);
    }
    let (well_known, optional) = (a::FLAG_TRANSITIVE, a::FLAG_OPTIONAL);
    write_attribute(out, well_known, a::ORIGIN, &[made.origin]);
    let (mut two, mut as4) = (Vec::new(), Vec::new());
    if made.four {
        write_attribute(out, well_known, a::AS_PATH, &made.path);
    } else {
        let lossy = narrow_as_path(AsPath::new(&made.path), &mut two, &mut as4);
        write_attribute(out, well_known, a::AS_PATH, &two);
        if lossy {
            write_attribute(out, optional | well_known, a::AS4_PATH, &as4);
        }
    }
    write_attribute(out, well_known, a::NEXT_HOP, &NEXT_HOP.octets());
    if let Some(med) = made.med {
        write_attribute(out, optional, a::MED, &med.to_be_bytes());
    }
    if let Some(local_pref) = made.local_pref {
        write_attribute(out, well_known, a::LOCAL_PREF, &local_pref.to_be_bytes());
    }
    if !made.communities.is_empty() {
        let bytes: Vec<u8> = made.communities.iter().flat_map(|each| each.to_be_bytes()).collect();
        write_attribute(out, optional | well_known, a::COMMUNITIES, &bytes);
    }
    finish_attributes(out, attributes);
    made.reach.iter().for_each(|&(path, prefix)| write_nlri(out, id(path), prefix));
    finish_message(out, message).expect("the message fits");
}

/// The expected routes; without path identifiers these are 0.
fn routes<A: Copy>(list: &[(u32, Prefix<A>)], ids: bool) -> Vec<(u32, Prefix<A>)> {
    list.iter().map(|&(id, prefix)| (if ids { id } else { 0 }, prefix)).collect()
}

proptest! {
    #[test]
    fn an_open_comes_back(
        capabilities in capabilities(), my_as in 1u16.., hold in 3u16.., router_id in 1u32..,
    ) {
        let open = Open { my_as, hold_time_s: hold, router_id: router_id.into(), capabilities };
        let mut out = Vec::new();
        open.write(&mut out);
        prop_assert_eq!(Open::parse(body(&out, MessageKind::Open)), Ok(open));
    }

    #[test]
    fn a_notification_comes_back(code in any::<u8>(), subcode in any::<u8>(), data in vec(any::<u8>(), 0..300)) {
        let notification = Notification { code, subcode, data };
        let mut out = Vec::new();
        notification.write(&mut out);
        prop_assert_eq!(Notification::parse(body(&out, MessageKind::Notification)), Some(notification.clone()));
        let hard = notification.clone().into_hard_reset();
        prop_assert_eq!(hard.hard_reset_reason(), Some(notification));
    }

    #[test]
    fn an_update_comes_back(made in made()) {
        let mut out = Vec::new();
        write(&made, &mut out);
        let codec = Codec { four_octet_as: made.four, add_path_receive: [made.path_ids; 2], ..Codec::default() };
        let peer = PeerFacts { side: PeerSide::Internal, ..PeerFacts::default() };
        let update = Update::parse(body(&out, MessageKind::Update), &codec, &peer).expect("a valid message");
        prop_assert_eq!(update.verdict, Verdict::Good);
        prop_assert!(update.discards.is_empty());
        let ids = made.path_ids;
        prop_assert_eq!(update.withdrawn.iter().collect::<Vec<_>>(), routes(&made.withdrawn, ids));
        prop_assert_eq!(update.reach_v4.iter().collect::<Vec<_>>(), routes(&made.reach, ids));
        let unreach = match update.mp_unreach { Some(MpNlri::Ipv6(nlri)) => nlri.iter().collect(), _ => vec![] };
        prop_assert_eq!(unreach, routes(&made.unreach6, ids));
        if let Some(reach) = update.mp_reach {
            let MpNlri::Ipv6(nlri) = reach.routes else { panic!("IPv6") };
            prop_assert_eq!(nlri.iter().collect::<Vec<_>>(), routes(&made.reach6, ids));
            prop_assert_eq!(reach.next_hop, made.next_hop6);
        } else {
            prop_assert!(made.reach6.is_empty());
        }
        prop_assert_eq!((update.med, update.local_pref), (made.med, made.local_pref));
        prop_assert_eq!((update.origin as u8, update.next_hop), (made.origin, Some(NEXT_HOP)));
        // A path through a neighbor with two-octet AS numbers loses nothing.
        let mut scratch = Vec::new();
        prop_assert_eq!(update.as_path(&mut scratch), &made.path[..]);
        let size: usize = made.reach.iter().map(|&(_, prefix)| nlri_length(prefix) + if ids { 4 } else { 0 }).sum();
        prop_assert_eq!(update.reach_v4.as_bytes().len(), size);
    }

    /// Another decoder reads the same messages in the same way.
    #[test]
    fn another_decoder_reads_the_same(made in made()) {
        // It takes a prefix of no bits for the start of a path identifier that was not negotiated.
        let mut made = made;
        made.withdrawn.retain(|(_, prefix)| prefix.length() > 0);
        made.reach.retain(|(_, prefix)| prefix.length() > 0);
        made.unreach6.retain(|(_, prefix)| prefix.length() > 0);
        made.reach6.retain(|(_, prefix)| prefix.length() > 0);
        let mut out = Vec::new();
        write(&made, &mut out);
        let width = if made.four { AsnLength::Bits32 } else { AsnLength::Bits16 };
        let theirs = parse_bgp_update_message(out[19..].to_vec().into(), made.path_ids, &width).expect("bgpkit decodes the message");
        let text = |list: &[bgpkit_parser::models::NetworkPrefix]| -> Vec<(u32, String)> {
            list.iter().map(|each| (each.path_id.unwrap_or(0), each.prefix.to_string())).collect()
        };
        let ours = |list: Vec<(u32, Prefix<u32>)>| -> Vec<(u32, String)> {
            list.into_iter().map(|(id, prefix)| (id, prefix.to_string())).collect()
        };
        prop_assert_eq!(text(&theirs.withdrawn_prefixes), ours(routes(&made.withdrawn, made.path_ids)));
        prop_assert_eq!(text(&theirs.announced_prefixes), ours(routes(&made.reach, made.path_ids)));
        let codec = Codec { four_octet_as: made.four, add_path_receive: [made.path_ids; 2], ..Codec::default() };
        let peer = PeerFacts { side: PeerSide::Internal, ..PeerFacts::default() };
        let update = Update::parse(&out[19..], &codec, &peer).expect("a valid message");
        let mut seen = 0;
        for value in theirs.attributes.into_iter() {
            seen += 1;
            match value {
                AttributeValue::Origin(origin) => {
                    let number = match origin {
                        TheirOrigin::IGP => 0,
                        TheirOrigin::EGP => 1,
                        TheirOrigin::INCOMPLETE => 2,
                    };
                    prop_assert_eq!(update.origin as u8, number);
                }
                AttributeValue::NextHop(address) => {
                    prop_assert_eq!(update.next_hop.map(IpAddr::V4), Some(address));
                }
                AttributeValue::MultiExitDiscriminator(med) => prop_assert_eq!(update.med, Some(med)),
                AttributeValue::LocalPreference(value) => prop_assert_eq!(update.local_pref, Some(value)),
                AttributeValue::Communities(list) => prop_assert_eq!(list.len(), made.communities.len()),
                AttributeValue::AsPath(path) if made.four => {
                    let theirs: Vec<u32> = path.iter_segments().flat_map(|segment| {
                        segment.iter().map(|asn| asn.to_u32()).collect::<Vec<_>>()
                    }).collect();
                    let ours: Vec<u32> = AsPath::new(update.as_path(&mut Vec::new()))
                        .segments().flat_map(|segment| segment.asns().collect::<Vec<_>>()).collect();
                    prop_assert_eq!(ours, theirs);
                }
                AttributeValue::MpReachNlri(nlri) => {
                    prop_assert_eq!(nlri.prefixes.len(), made.reach6.len());
                    let reach = update.mp_reach.expect("our reader found the attribute");
                    let theirs = nlri.next_hop.map(|next_hop| next_hop.addr());
                    prop_assert_eq!(Some(reach.next_hop.address()), theirs);
                }
                AttributeValue::MpUnreachNlri(nlri) => prop_assert_eq!(nlri.prefixes.len(), made.unreach6.len()),
                _ => {}
            }
        }
        prop_assert!(seen >= 3, "they found the attributes");
    }

    #[test]
    fn bytes_in_any_order_do_no_harm(bytes in vec(any::<u8>(), 0..80), bits in any::<[bool; 4]>()) {
        let codec = Codec {
            four_octet_as: bits[0],
            add_path_receive: [bits[1], bits[2]],
            extended_next_hop: bits[3],
            ..Codec::default()
        };
        if let Ok(update) = Update::parse(&bytes, &codec, &PeerFacts::default()) {
            prop_assert_eq!(update.withdrawn.iter().count(), update.withdrawn.len());
            prop_assert_eq!(update.reach_v4.iter().count(), update.reach_v4.len());
            prop_assert!(!update.to_string().is_empty());
        }
        let _ = (Open::parse(&bytes), RouteRefresh::parse(&bytes), frame(&bytes, 4096));
    }
}

#[test]
fn headers() {
    let mut keepalive = Vec::new();
    write_keepalive(&mut keepalive);
    assert_eq!(body(&keepalive, MessageKind::Keepalive), b"");
    for cut in 0..19 {
        assert_eq!(frame(&keepalive[..cut], 4096), Ok(None));
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = keepalive.clone();
        bytes[at] = value;
        frame(&bytes, 4096).map(|found| found.is_some())
    };
    assert_eq!(changed(0, 0), Err(HeaderError::NotSynchronized));
    assert_eq!(changed(15, 0), Err(HeaderError::NotSynchronized));
    assert_eq!(changed(17, 18), Err(HeaderError::Length { length: 18 }));
    assert_eq!(changed(17, 20), Err(HeaderError::Length { length: 20 }), "a KEEPALIVE has no body");
    for (kind, least) in [(1, 29), (2, 23), (3, 21)] {
        let mut bytes = keepalive.clone();
        (bytes[17], bytes[18]) = (least - 1, kind);
        assert_eq!(frame(&bytes, 4096), Err(HeaderError::Length { length: u16::from(least) - 1 }));
        bytes[17] = least;
        assert_eq!(frame(&bytes, 4096), Ok(None));
    }
    assert_eq!(changed(18, 6), Err(HeaderError::Kind { byte: 6 }));
    assert_eq!(changed(18, 0), Err(HeaderError::Kind { byte: 0 }));
    let long = |kind: u8| {
        let mut bytes = keepalive.clone();
        (bytes[16], bytes[17], bytes[18]) = (0x10, 1, kind);
        [frame(&bytes, 4096), frame(&bytes, 65_535)].map(|result| result.is_ok())
    };
    assert_eq!(long(2), [false, true]);
    assert_eq!(long(1), [false, false], "RFC 8654: OPEN stays short");
    let told = HeaderError::Kind { byte: 9 }.notification();
    assert_eq!((told.code, told.subcode, &told.data[..]), (error::HEADER, header_error::BAD_TYPE, &[9][..]));
    let mut out = vec![0; 7];
    let start = begin_message(&mut out, MessageKind::Update);
    out.resize(70_000, 0);
    assert!(finish_message(&mut out, start).is_err());
    assert_eq!(out.len(), 7, "taken back");
}

fn open_subcode(change: impl Fn(&mut Vec<u8>)) -> Result<(), u8> {
    let mut bytes = vec![4, 0xfb, 0xf0, 0, 180, 192, 0, 2, 1, 0];
    change(&mut bytes);
    Open::parse(&bytes).map(|_| ()).map_err(|notification| {
        assert_eq!(notification.code, error::OPEN);
        notification.subcode
    })
}

#[test]
fn opens_that_are_refused() {
    assert_eq!(open_subcode(|_| {}), Ok(()));
    assert_eq!(open_subcode(|bytes| bytes[0] = 3), Err(open_error::UNSUPPORTED_VERSION));
    assert_eq!(open_subcode(|bytes| bytes[1..3].fill(0)), Err(open_error::BAD_PEER_AS));
    for seconds in [1, 2] {
        assert_eq!(open_subcode(|bytes| bytes[4] = seconds), Err(open_error::UNACCEPTABLE_HOLD_TIME));
    }
    assert_eq!(open_subcode(|bytes| bytes[4] = 0), Ok(()), "no hold time at all");
    assert_eq!(open_subcode(|bytes| bytes[5..9].fill(0)), Err(open_error::BAD_IDENTIFIER));
    let parameters = |sent: &'static [u8]| {
        open_subcode(move |bytes| {
            bytes.pop();
            bytes.extend_from_slice(sent);
        })
    };
    assert_eq!(parameters(&[2, 1, 0]), Err(open_error::UNSUPPORTED_PARAMETER));
    for malformed in
        [&[][..], &[1], &[3, 2, 2, 1], &[1, 2], &[3, 2, 1, 1], &[5, 2, 3, 65, 1, 0], &[4, 2, 2, 64, 0]]
    {
        assert_eq!(parameters(malformed), Err(open_error::UNSPECIFIC), "{malformed:?}");
    }
    assert_eq!(parameters(&[8, 2, 6, 65, 4, 0, 0, 0, 0]), Err(open_error::BAD_PEER_AS));
    assert_eq!(parameters(&[8, 2, 6, 9, 1, 0, 9, 1, 0]), Ok(()), "the same role twice");
    assert_eq!(parameters(&[8, 2, 6, 9, 1, 0, 9, 1, 3]), Err(open_error::ROLE_MISMATCH));
    // RFC 9072: one capability in the extended form, with either first length.
    for first in [255, 4] {
        let bytes = [4, 0xfb, 0xf0, 0, 180, 192, 0, 2, 1, first, 255, 0, 5, 2, 0, 2, 2, 0];
        assert!(Open::parse(&bytes).expect("a valid message").capabilities.route_refresh);
    }
    assert_eq!(parameters(&[255, 255, 0]), Err(open_error::UNSPECIFIC));
    assert_eq!(parameters(&[255, 255, 0, 9, 2, 0, 2, 2, 0]), Err(open_error::UNSPECIFIC));
}

#[test]
fn an_open_in_bytes() {
    let capabilities = Capabilities {
        families: vec![Family::Ipv4.into(), Family::Ipv6.into()],
        route_refresh: true,
        add_path: vec![AddPath { family: Family::Ipv4.into(), receive: true, send: false }],
        ..Capabilities::default()
    };
    let open = Open::new(70_000, 90, Ipv4Addr::new(192, 0, 2, 1), capabilities);
    let mut out = Vec::new();
    open.write(&mut out);
    let expected = [
        &[0xff; 16][..],
        &[0, 57, 1, 4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 1, 28, 2, 26],
        &[1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1, 2, 0, 65, 4, 0, 1, 0x11, 0x70, 69, 4, 0, 1, 1, 1],
    ];
    assert_eq!(out, expected.concat());
    assert_eq!(open.asn(), 70_000);
    assert!(open.capabilities.supports(Family::Ipv6) && Capabilities::default().supports(Family::Ipv4));
    assert!(!Capabilities::default().supports(Family::Ipv6));
}

#[test]
fn texts_of_shutdowns() {
    let long = "ü".repeat(200);
    let notification = Notification::with_text(cease::ADMINISTRATIVE_SHUTDOWN, &long);
    assert_eq!(notification.data.len(), 255, "127 characters of two bytes");
    assert_eq!(notification.text(), Some("ü".repeat(127)));
    let notification = Notification::with_text(cease::ADMINISTRATIVE_RESET, "back at noon");
    assert_eq!(notification.to_string(), "Cease (6), Administrative Reset (4): \"back at noon\"");
    let cut = Notification::with_data(error::CEASE, cease::ADMINISTRATIVE_SHUTDOWN, &[9, b'a']);
    assert_eq!(cut.text(), None);
    let hard = notification.into_hard_reset();
    assert!(hard.is_hard_reset());
    assert_eq!(
        hard.to_string(),
        "Cease (6), Hard Reset (9): Cease (6), Administrative Reset (4): \"back at noon\""
    );
}

#[test]
fn refreshes() {
    for kind in [RefreshKind::Request, RefreshKind::Begin, RefreshKind::End] {
        let refresh = RouteRefresh { family: Family::Ipv6.into(), kind };
        let mut out = Vec::new();
        refresh.write(&mut out);
        assert_eq!(out[19..], [0, 2, kind as u8, 1]);
        assert_eq!(RouteRefresh::parse(body(&out, MessageKind::RouteRefresh)), Ok(Some(refresh)));
    }
    assert_eq!(RouteRefresh::parse(&[0, 1, 3, 1]), Ok(None));
    assert!(
        RouteRefresh::parse(&[0, 1, 0, 1, 1, 64, 0, 0]).is_ok_and(|found| found.is_some()),
        "with filters"
    );
    let short = RouteRefresh::parse(&[0, 1, 0]).expect_err("too short");
    assert_eq!((short.code, short.subcode, &short.data[..]), (error::HEADER, 2, &[0, 22][..]));
    let mark = RouteRefresh::parse(&[0, 1, 1, 1, 0]).expect_err("a mark has no more");
    assert_eq!((mark.code, mark.subcode, mark.data.len()), (error::ROUTE_REFRESH, 1, 24));
}
