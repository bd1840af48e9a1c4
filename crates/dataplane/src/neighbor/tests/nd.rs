//! Neighbor Discovery: solicitations, answers, and what is accepted.

use super::*;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use thalweg_wire::MacAddr;

const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// The ICMPv6 message of a frame, checked by etherparse.
fn read(frame: &[u8]) -> (Ipv6Addr, Ipv6Addr, Vec<u8>) {
    let sliced = SlicedPacket::from_ethernet(frame).expect("it is a frame");
    let Some(NetSlice::Ipv6(ip)) = sliced.net else { panic!("no IPv6") };
    let Some(TransportSlice::Icmpv6(icmp)) = sliced.transport else { panic!("no ICMPv6") };
    let header = ip.header();
    assert_eq!(header.hop_limit(), 255);
    assert!(icmp.is_checksum_valid(header.source(), header.destination()));
    (header.source_addr(), header.destination_addr(), icmp.slice().to_vec())
}

#[test]
fn a_packet_waits_for_the_answer_and_goes_on() {
    let mut table = table();
    table.resolve(0, HOST6.into(), b"packet".to_vec(), START);
    let question = only_frame(&mut table);
    assert_eq!(question[..6], [0x33, 0x33, 0xff, 0, 0, 0x10]);
    let (source, destination, message) = read(&question);
    assert_eq!((source, destination), (OUR6, "ff02::1:ff00:10".parse().expect("an address")));
    let mut expected = nd_message(135, 0, HOST6, Some((1, OUR_MAC)));
    expected[2..4].copy_from_slice(&message[2..4]);
    assert_eq!(message, expected);
    table
        .handle_nd(0, &advertisement((HOST_MAC, HOST6), SOLICITED | OVERRIDE), START)
        .expect("the router had sent a solicitation");
    assert_eq!(outputs(&mut table), [resolved(HOST6, HOST_MAC), forward(HOST6, HOST_MAC, b"packet")]);
    assert_eq!(state(&table, HOST6), Some(NeighborState::Reachable));
}

#[test]
fn link_local_neighbors_are_asked_for_by_link_local_addresses() {
    let mut table = table();
    table.resolve(0, HOST_LINK_LOCAL.into(), b"packet".to_vec(), START);
    let (source, ..) = read(&only_frame(&mut table));
    assert_eq!(
        source,
        "fe80::ff:fe00:1".parse::<Ipv6Addr>().expect("an address"),
        "made from 02:00:00:00:00:01"
    );
    assert!(table.port(0).expect("the port is up").owns(source.into()));
}

#[test]
fn who_asks_for_us_is_answered_and_known() {
    let mut table = table();
    table
        .handle_nd(0, &solicitation((HOST_MAC, HOST6), OUR6), START)
        .expect("the frame is addressed to the router");
    let [Output::Send { frame, .. }, learnt] = &outputs(&mut table)[..] else { panic!("an answer") };
    assert_eq!(frame[..6], HOST_MAC);
    let (source, destination, message) = read(frame);
    assert_eq!((source, destination), (OUR6, HOST6));
    let mut expected = nd_message(136, 0xe0, OUR6, Some((2, OUR_MAC)));
    expected[2..4].copy_from_slice(&message[2..4]);
    assert_eq!(message, expected, "router, solicited, override");
    assert_eq!(*learnt, resolved(HOST6, HOST_MAC));
    assert_eq!(state(&table, HOST6), Some(NeighborState::Stale));
}

#[test]
fn a_probe_without_the_option_is_answered_to_its_sender() {
    let mut table = table();
    let probe = nd_message(135, 0, OUR6, None);
    let frame = icmp6((HOST_MAC, OUR_MAC), (HOST6, OUR6), 255, &probe);
    table.handle_nd(0, &frame, START).expect("the frame is addressed to the router");
    assert_eq!(only_frame(&mut table)[..6], HOST_MAC);
    assert_eq!(table.view().count(), 0, "nothing was said of its MAC address");
}

#[test]
fn duplicate_address_detection_of_our_address_is_answered_to_all() {
    let mut table = table();
    let (mac, group) = group_of(OUR6);
    let probe = nd_message(135, 0, OUR6, None);
    let frame = icmp6((HOST_MAC, mac), (Ipv6Addr::UNSPECIFIED, group), 255, &probe);
    table.handle_nd(0, &frame, START).expect("the frame is addressed to the router");
    let frame = only_frame(&mut table);
    assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
    let (source, destination, message) = read(&frame);
    assert_eq!((source, destination), (OUR6, "ff02::1".parse().expect("an address")));
    assert_eq!(message[4], 0xa0, "router and override, not solicited");
}

/// The state after an advertisement, and the MAC address if it changes.
type After = (NeighborState, Option<MacAddr>);

/// RFC 4861 appendix C, the rows for advertisements: state before, flags, other MAC or not, state after.
#[test]
fn advertisements_follow_appendix_c() {
    use NeighborState::{Delay, Probe, Reachable, Stale};
    let (s, o) = (SOLICITED, OVERRIDE);
    let rows: [(u8, bool, [After; 4]); 7] = [
        // flags, another MAC; then the state after Reachable, Stale, Delay, Probe; the MAC if it changes.
        (s, false, [(Reachable, None); 4]),
        (s | o, false, [(Reachable, None); 4]),
        (s, true, [(Stale, None), (Stale, None), (Delay, None), (Probe, None)]),
        (s | o, true, [(Reachable, Some(OTHER_MAC)); 4]),
        (0, false, [(Reachable, None), (Stale, None), (Delay, None), (Probe, None)]),
        (o, false, [(Reachable, None), (Stale, None), (Delay, None), (Probe, None)]),
        (o, true, [(Stale, Some(OTHER_MAC)); 4]),
    ];
    for (flags, other, after) in rows {
        for (before, (expected, mac)) in [Reachable, Stale, Delay, Probe].into_iter().zip(after) {
            let mut table = table();
            let now = in_state(&mut table, before);
            let from = if other { OTHER_MAC } else { HOST_MAC };
            table.handle_nd(0, &advertisement((from, HOST6), flags), now).expect("the neighbor is known");
            let what = format!("{before:?}, flags {flags:#x}, other MAC: {other}");
            assert_eq!(state(&table, HOST6), Some(expected), "{what}");
            assert_eq!(table.lookup(0, HOST6.into()), Some(mac.unwrap_or(HOST_MAC)), "{what}");
            assert_eq!(
                outputs(&mut table),
                mac.map(|mac| changed(HOST6, mac)).into_iter().collect::<Vec<_>>()
            );
        }
    }
}

/// Brings the host into a state; returns the time then.
fn in_state(table: &mut Table, wanted: NeighborState) -> u64 {
    table
        .handle_nd(0, &solicitation((HOST_MAC, HOST6), OUR6), START)
        .expect("the frame is addressed to the router");
    let mut now = START;
    match wanted {
        NeighborState::Reachable => {
            table
                .handle_nd(0, &advertisement((HOST_MAC, HOST6), SOLICITED), now)
                .expect("the neighbor is known");
        }
        NeighborState::Delay => table.used(0, HOST6.into(), now),
        NeighborState::Probe => {
            table.used(0, HOST6.into(), now);
            now += 5 * SECOND;
            table.handle_timer(now);
        }
        _ => {}
    }
    assert_eq!(state(table, HOST6), Some(wanted));
    outputs(table);
    now
}

#[test]
fn an_unsolicited_answer_makes_the_incomplete_stale() {
    let mut table = table();
    table.resolve(0, HOST6.into(), b"packet".to_vec(), START);
    only_frame(&mut table);
    table
        .handle_nd(0, &advertisement((HOST_MAC, HOST6), 0x80), START)
        .expect("the router had sent a solicitation");
    assert_eq!(outputs(&mut table), [resolved(HOST6, HOST_MAC), forward(HOST6, HOST_MAC, b"packet")]);
    assert_eq!(state(&table, HOST6), Some(NeighborState::Stale));
    assert!(table.view().all(|view| view.is_router));
}

#[test]
fn what_cannot_be_is_not_believed() {
    let mut table = table();
    let (mac, group) = group_of(OUR6);
    let (to_group, macs) = ((HOST6, group), (HOST_MAC, mac));
    let ns = |option| nd_message(135, 0, OUR6, option);
    let sll = Some((1, HOST_MAC));
    let ask = |hop_limit, message: &[u8]| icmp6(macs, to_group, hop_limit, message);
    let mut code = ns(sll);
    code[1] = 1;
    let mut empty_option = ns(sll);
    empty_option[25] = 0;
    let mut long_option = ns(sll);
    long_option[25] = 2;
    let mut checksum = ask(255, &ns(sll));
    checksum[60] ^= 1;
    let truncated = ask(255, &ns(sll));
    let nobody = Ipv6Addr::UNSPECIFIED;
    let elsewhere = "2001:db8:1::5".parse().expect("an address");
    let answer = |message: &[u8], to| icmp6((HOST_MAC, OUR_MAC), (HOST6, to), 255, message);
    let na = |flags, option| nd_message(136, flags, HOST6, option);
    let all = ndp::ALL_NODES;
    let to_all =
        |message: &[u8]| icmp6((HOST_MAC, MacAddr([0x33, 0x33, 0, 0, 0, 1])), (HOST6, all), 255, message);
    let cases = [
        (ask(254, &ns(sll)), Ignored::HopLimit),
        (checksum, Ignored::Checksum),
        (ask(255, &code), Ignored::Malformed),
        (ask(255, &ns(sll)[..23]), Ignored::Malformed),
        (ask(255, &ns(sll)[..30]), Ignored::Malformed),
        (truncated[..truncated.len() - 1].to_vec(), Ignored::Malformed),
        (ask(255, &empty_option), Ignored::Malformed),
        (ask(255, &long_option), Ignored::Malformed),
        (ask(255, &nd_message(135, 0, group, sll)), Ignored::Malformed),
        (icmp6(macs, (nobody, group), 255, &ns(sll)), Ignored::Malformed),
        (icmp6((HOST_MAC, OUR_MAC), (nobody, OUR6), 255, &ns(None)), Ignored::Malformed),
        (icmp6(macs, (group, group), 255, &ns(sll)), Ignored::Malformed),
        (icmp6(macs, (elsewhere, group), 255, &ns(sll)), Ignored::NotOnLink),
        (ask(255, &nd_message(135, 0, HOST6, sll)), Ignored::NotForUs),
        (ask(255, &ns(Some((1, MacAddr::BROADCAST)))), Ignored::InvalidMac),
        (ask(255, &ns(Some((1, OUR_MAC)))), Ignored::OwnFrame),
        (icmp6(macs, (OUR6, group), 255, &ns(sll)), Ignored::AddressConflict),
        (answer(&na(SOLICITED, Some((2, HOST_MAC))), OUR6), Ignored::Unasked),
        (to_all(&na(SOLICITED, Some((2, HOST_MAC)))), Ignored::Malformed),
        (to_all(&nd_message(136, 0, OUR6, Some((2, HOST_MAC)))), Ignored::AddressConflict),
        (to_all(&[134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Ignored::NotForRouters),
        (answer(&nd_message(137, 0, HOST6, None), OUR6), Ignored::NotForRouters),
        (answer(&[128, 0, 0, 0, 0, 1, 0, 1], OUR6), Ignored::NotNeighborDiscovery),
        (ask(255, &[133, 0, 0, 0, 0, 0, 0, 0]), Ignored::Malformed),
        (answer(&[133, 0, 0, 0, 0, 0, 0, 0], OUR6), Ignored::NotForUs),
    ];
    for (i, (frame, why)) in cases.iter().enumerate() {
        assert_eq!(table.handle_nd(0, frame, START), Err(*why), "case {i}");
        let sent = outputs(&mut table);
        // A host with a false MAC address is answered at the frame's source only if that is right.
        assert!(sent.is_empty() || *why == Ignored::AddressConflict, "case {i}: {sent:?}");
    }
    assert_eq!(table.view().count(), 0);
    // An answer without a MAC address: RFC 4861 7.2.5.
    table.resolve(0, HOST6.into(), b"packet".to_vec(), START);
    assert_eq!(table.handle_nd(0, &answer(&na(SOLICITED, None), OUR6), START), Err(Ignored::Malformed));
    assert_eq!(state(&table, HOST6), Some(NeighborState::Incomplete));
}

#[test]
fn router_advertisements_are_sent_and_asked_for() {
    let mut advertising = identity();
    advertising.router_advertisements = true;
    advertising.addresses.push((Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0, 0, 1).into(), 56));
    let mut table = Table::new(NeighborConfig::default(), vec![advertising], START);
    let is_advertisement = |output: &Output| match output {
        Output::Send { frame, .. } if frame[12..14] == [0x86, 0xdd] => read(frame).2[0] == 134,
        _ => false,
    };
    let first = outputs(&mut table);
    let [Output::Send { frame, .. }] = &first.into_iter().filter(is_advertisement).collect::<Vec<_>>()[..]
    else {
        panic!("one at once")
    };
    let (source, destination, message) = read(frame);
    assert!(source.is_unicast_link_local() && destination == ndp::ALL_NODES);
    assert_eq!(message[4..16], [64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0], "64 hops, 1800 s");
    assert_eq!(message[16..24], [1, 1, 2, 0, 0, 0, 0, 1]);
    assert_eq!(message[24..32], [5, 1, 0, 0, 0, 0, 0x05, 0xdc]);
    let prefix = |bytes: &[u8]| {
        (bytes[2], bytes[3], Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[16..]).expect("16 bytes")))
    };
    assert_eq!(prefix(&message[32..64]), (64, 0xc0, "2001:db8::".parse().expect("an address")));
    assert_eq!(prefix(&message[64..96]), (56, 0x80, "2001:db8:5::".parse().expect("an address")));
    assert_eq!(message.len(), 96, "link-local prefixes are not told");
    let early = run_until(&mut table, START + 40 * SECOND);
    assert_eq!(
        early.iter().filter(|output| is_advertisement(output)).count(),
        2,
        "the first three are close"
    );
    let later = run_until(&mut table, START + 10_000 * SECOND).iter().filter(|o| is_advertisement(o)).count();
    assert!((15..60).contains(&later), "then one in 200 to 600 s: {later}");

    // Hosts ask: one delayed answer for all, and no other within three seconds.
    let now = START + 10_001 * SECOND;
    let ask = icmp6(
        (HOST_MAC, MacAddr([0x33, 0x33, 0, 0, 0, 2])),
        (HOST_LINK_LOCAL, "ff02::2".parse().expect("an address")),
        255,
        &[133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0x10],
    );
    for n in 0..100 {
        table.handle_nd(0, &ask, now + n).expect("it is for routers");
    }
    assert_eq!(outputs(&mut table), [resolved(HOST_LINK_LOCAL, HOST_MAC)]);
    let answers = run_until(&mut table, now + 3 * SECOND).iter().filter(|o| is_advertisement(o)).count();
    assert_eq!(answers, 1);
}

#[test]
fn frames_of_ours_are_valid_to_ourselves() {
    let mut table = table();
    table.resolve(0, HOST6.into(), b"packet".to_vec(), START);
    let frame = only_frame(&mut table);
    let packet = Frame::parse(&frame).expect("a frame").payload;
    assert!(Received::parse(packet).is_ok());
}

#[test]
fn the_address_of_a_virtual_router_has_its_own_mac_address() {
    let shared: Ipv6Addr = "fe80::9".parse().expect("an address");
    let shared_mac = MacAddr([0, 0, 0x5e, 0, 2, 51]);
    let mut table = table();
    let question = solicitation((HOST_MAC, HOST_LINK_LOCAL), shared);
    assert_eq!(table.handle_nd(0, &question, START), Err(Ignored::NotForUs));
    let active = PortIdentity { virtual_addresses: vec![(shared.into(), shared_mac)], ..identity() };
    table.set_port(0, Some(active), START);
    outputs(&mut table);
    table.handle_nd(0, &question, START + MS).expect("it is for us");
    let answer = outputs(&mut table).into_iter().find_map(|output| match output {
        Output::Send { frame, .. } => Some(frame),
        _ => None,
    });
    let answer = answer.expect("an answer");
    assert_eq!(answer[6..12], shared_mac.0);
    let (source, destination, message) = read(&answer);
    assert_eq!((source, destination), (shared, HOST_LINK_LOCAL));
    assert_eq!(
        (message[0], &message[8..24], &message[26..32]),
        (136, &shared.octets()[..], &shared_mac.0[..])
    );
}

/// A host beyond the link could not answer a link-local address.
#[test]
fn what_goes_beyond_the_link_has_a_source_that_reaches_beyond() {
    let port = identity().completed();
    let beyond: IpAddr = "2001:db8:ffff::1".parse().expect("an address");
    assert_eq!(port.source_for(beyond), port.link_local().map(IpAddr::V6));
    assert_eq!(port.source_beyond(beyond), Some(OUR6.into()));
    assert_eq!(port.source_beyond(HOST6.into()), Some(OUR6.into()));
    assert_eq!(port.source_beyond(HOST_LINK_LOCAL.into()), Some(OUR6.into()));
    assert_eq!(port.source_beyond("192.0.2.1".parse().expect("an address")), Some(OUR4.into()));
}
