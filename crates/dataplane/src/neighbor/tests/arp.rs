//! ARP: requests, answers, and what is accepted.

use super::*;
use etherparse::{ArpHardwareId, ArpOperation, NetSlice, SlicedPacket};
use thalweg_wire::MacAddr;

/// What etherparse reads: operation, sender, target.
fn read(frame: &[u8]) -> (u16, MacAddr, Ipv4Addr, MacAddr, Ipv4Addr) {
    let sliced = SlicedPacket::from_ethernet(frame).expect("it is a frame");
    let Some(NetSlice::Arp(arp)) = sliced.net else { panic!("no ARP: {sliced:?}") };
    assert_eq!(arp.hw_addr_type(), ArpHardwareId::ETHERNET);
    let mac = |bytes: &[u8]| MacAddr::try_from(bytes).expect("six bytes");
    let ip = |bytes: &[u8]| Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("four bytes"));
    let ArpOperation(operation) = arp.operation();
    let (sender, target) = (mac(arp.sender_hw_addr()), mac(arp.target_hw_addr()));
    (operation, sender, ip(arp.sender_protocol_addr()), target, ip(arp.target_protocol_addr()))
}

#[test]
fn a_packet_waits_for_the_answer_and_goes_on() {
    let mut table = table();
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    let question = only_frame(&mut table);
    assert_eq!((&question[..6], &question[6..12], question.len()), (&[0xff; 6][..], &OUR_MAC.0[..], 60));
    assert_eq!(read(&question), (1, OUR_MAC, OUR4, MacAddr::ZERO, HOST4));
    assert_eq!(state(&table, HOST4), Some(NeighborState::Incomplete));
    table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), START + MS).expect("the router had sent a request");
    assert_eq!(outputs(&mut table), [resolved(HOST4, HOST_MAC), forward(HOST4, HOST_MAC, b"packet")]);
    assert_eq!(state(&table, HOST4), Some(NeighborState::Reachable));
    assert_eq!(table.lookup(0, HOST4.into()), Some(HOST_MAC));
    table.resolve(0, HOST4.into(), b"next".to_vec(), START + MS);
    assert_eq!(outputs(&mut table), [forward(HOST4, HOST_MAC, b"next")]);
}

#[test]
fn nobody_answers_three_questions() {
    let mut table = table();
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    only_frame(&mut table);
    let later = run_until(&mut table, START + 3 * SECOND - 1);
    assert_eq!(later.len(), 2, "{later:?}");
    assert!(later.iter().all(|output| matches!(output, Output::Send { .. })));
    let end = run_until(&mut table, START + 3 * SECOND);
    assert_eq!(end, [unreachable(HOST4, b"packet", Unreachable::NoAnswer)]);
    assert_eq!((state(&table, HOST4), table.next_deadline()), (None, None));
    assert_eq!(table.counters().solicitations_sent, 3);
}

#[test]
fn the_newest_three_packets_wait() {
    let mut table = table();
    for packet in [b"1", b"2", b"3", b"4"] {
        table.resolve(0, HOST4.into(), packet.to_vec(), START);
    }
    let seen = outputs(&mut table);
    assert_eq!(seen[1..], [unreachable(HOST4, b"1", Unreachable::Displaced)], "and one question");
    table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), START).expect("the router had sent a request");
    let forwarded = [b"2", b"3", b"4"].map(|packet| forward(HOST4, HOST_MAC, packet));
    assert_eq!(outputs(&mut table)[1..], forwarded);
}

#[test]
fn who_asks_for_us_is_answered_and_known() {
    let mut table = table();
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), OUR4), START)
        .expect("the frame is addressed to the router");
    let [Output::Send { port: 0, frame }, learnt] = &outputs(&mut table)[..] else { panic!("an answer") };
    assert_eq!(frame[..6], HOST_MAC);
    assert_eq!(read(frame), (2, OUR_MAC, OUR4, HOST_MAC, HOST4));
    assert_eq!(*learnt, resolved(HOST4, HOST_MAC));
    assert_eq!(state(&table, HOST4), Some(NeighborState::Stale), "told, not confirmed");
}

#[test]
fn addresses_that_nat_gives_out_are_answered_for_and_never_asked_from() {
    let public = Ipv4Addr::new(OUR4.octets()[0], OUR4.octets()[1], OUR4.octets()[2], 200);
    let mut table = table();
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), public), START)
        .expect_err("the address belongs to no one yet");
    let identity = PortIdentity { translated: vec![public.into()], ..identity() };
    assert!(!identity.owns(public.into()), "it is not the router's own");
    table.set_port(0, Some(identity), START);
    outputs(&mut table);
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), public), START)
        .expect("the frame is addressed to the router");
    let [Output::Send { frame, .. }, _] = &outputs(&mut table)[..] else { panic!("an answer") };
    assert_eq!(read(frame), (2, OUR_MAC, public, HOST_MAC, HOST4));
    // Another host claims it.
    let claim = arp_request((OTHER_MAC, public), public);
    assert_eq!(table.handle_arp(0, &claim, START + SECOND), Err(Ignored::AddressConflict));
    assert_eq!(read(&only_frame(&mut table)).2, public, "it is defended");
    table.resolve(
        0,
        Ipv4Addr::new(OUR4.octets()[0], OUR4.octets()[1], OUR4.octets()[2], 99).into(),
        vec![],
        START,
    );
    assert_eq!(read(&only_frame(&mut table)).2, OUR4, "questions come from its own");
    table.resolve(0, public.into(), b"packet".to_vec(), START);
    assert_eq!(outputs(&mut table), [unreachable(public, b"packet", Unreachable::NotANeighbor)]);
}

#[test]
fn a_question_for_us_releases_what_waits() {
    let mut table = table();
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    only_frame(&mut table);
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), OUR4), START)
        .expect("the frame is addressed to the router");
    assert_eq!(outputs(&mut table)[1..], [resolved(HOST4, HOST_MAC), forward(HOST4, HOST_MAC, b"packet")]);
}

#[test]
fn gratuitous_arp_changes_the_known_and_adds_nobody() {
    let mut table = table();
    let announced = |mac| arp_request((mac, HOST4), HOST4);
    assert_eq!(table.handle_arp(0, &announced(HOST_MAC), START), Err(Ignored::NotForUs));
    assert_eq!(outputs(&mut table), []);
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), OUR4), START)
        .expect("the frame is addressed to the router");
    outputs(&mut table);
    table.handle_arp(0, &announced(OTHER_MAC), START + 1).expect("the neighbor is known");
    assert_eq!(outputs(&mut table), [changed(HOST4, OTHER_MAC)]);
    // And as a gratuitous reply, to all.
    let reply = arp(2, (HOST_MAC, HOST4), (HOST_MAC, HOST4), MacAddr::BROADCAST);
    table.handle_arp(0, &reply, START + 2 * SECOND).expect("the neighbor is known");
    assert_eq!(outputs(&mut table), [changed(HOST4, HOST_MAC)]);
}

#[test]
fn two_that_claim_one_address_do_not_churn_the_table() {
    let mut table = table();
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), OUR4), START)
        .expect("the frame is addressed to the router");
    for n in 0..1000 {
        let mac = [OTHER_MAC, HOST_MAC][n % 2];
        let _ = table.handle_arp(0, &arp_request((mac, HOST4), HOST4), START + MS * n as u64);
    }
    assert_eq!(table.counters().changed, 1);
    assert_eq!(table.counters().ignored[Ignored::ChangedTooOften.index()], 500);
    assert_eq!(state(&table, HOST4), Some(NeighborState::Delay), "who it is will be asked");
    outputs(&mut table);
    let asked = run_until(&mut table, START + 5 * SECOND + 2 * MS);
    let [Output::Send { frame, .. }] = &asked[..] else { panic!("a probe: {asked:?}") };
    assert_eq!(frame[..6], OTHER_MAC);
}

#[test]
fn probes_for_our_address_are_answered() {
    let mut table = table();
    let probe = arp_request((HOST_MAC, Ipv4Addr::UNSPECIFIED), OUR4);
    table.handle_arp(0, &probe, START).expect("the frame is addressed to the router");
    assert_eq!(read(&only_frame(&mut table)), (2, OUR_MAC, OUR4, HOST_MAC, Ipv4Addr::UNSPECIFIED));
    let probe = arp_request((HOST_MAC, Ipv4Addr::UNSPECIFIED), HOST4);
    assert_eq!(table.handle_arp(0, &probe, START), Err(Ignored::NotForUs));
    assert_eq!(table.view().count(), 0);
}

/// Linux asks in the name of whatever address the waiting packet comes from, be it one of its loopback interface.
#[test]
fn who_asks_in_the_name_of_another_network_is_answered_but_not_learned() {
    let mut table = table();
    for from in [Ipv4Addr::new(203, 0, 113, 9), Ipv4Addr::new(10, 0, 0, 255)] {
        let question = arp_request((HOST_MAC, from), OUR4);
        assert_eq!(table.handle_arp(0, &question, START), Err(Ignored::NotOnLink));
        assert_eq!(read(&only_frame(&mut table)), (2, OUR_MAC, OUR4, HOST_MAC, from));
    }
    assert_eq!(table.view().count(), 0);
}

#[test]
fn our_address_is_defended_but_not_all_the_time() {
    let mut table = table();
    for n in 0..20 {
        let claim = arp_request((HOST_MAC, OUR4), OUR4);
        assert_eq!(table.handle_arp(0, &claim, START + n * SECOND), Err(Ignored::AddressConflict));
    }
    let seen = outputs(&mut table);
    assert_eq!(seen.len(), 2, "one in ten seconds: {seen:?}");
    let Output::Send { frame, .. } = &seen[0] else { panic!("an announcement") };
    assert_eq!(read(frame), (1, OUR_MAC, OUR4, MacAddr::ZERO, OUR4));
}

#[test]
fn what_cannot_be_is_not_believed() {
    let mut table = table();
    let off_link = Ipv4Addr::new(10, 0, 9, 9);
    let ask = |sender: (MacAddr, Ipv4Addr)| arp_request(sender, OUR4);
    let mut wrong_sorts = ask((HOST_MAC, HOST4));
    wrong_sorts[15] = 6;
    let mut wrong_operation = ask((HOST_MAC, HOST4));
    wrong_operation[21] = 3;
    let mut to_group = ask((HOST_MAC, HOST4));
    to_group[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    let mut sender_group = ask((HOST_MAC, HOST4));
    sender_group[22] |= 1;
    let mut says_ours = ask((HOST_MAC, HOST4));
    says_ours[22..28].copy_from_slice(&OUR_MAC.0);
    let mut not_arp = ask((HOST_MAC, HOST4));
    not_arp[13] = 0;
    let mut other_vlan = ask((HOST_MAC, HOST4));
    other_vlan.splice(12..12, [0x81, 0, 0, 9]);
    let cases = [
        (arp(2, (HOST_MAC, off_link), (OUR_MAC, OUR4), OUR_MAC), Ignored::NotOnLink),
        (ask((HOST_MAC, Ipv4Addr::BROADCAST)), Ignored::NotOnLink),
        (ask((HOST_MAC, Ipv4Addr::LOCALHOST)), Ignored::NotOnLink),
        (ask((HOST_MAC, Ipv4Addr::new(224, 0, 0, 1))), Ignored::NotOnLink),
        (ask((MacAddr::BROADCAST, HOST4)), Ignored::InvalidMac),
        (ask((MacAddr::ZERO, HOST4)), Ignored::InvalidMac),
        (sender_group, Ignored::InvalidMac),
        (ask((OUR_MAC, HOST4)), Ignored::OwnFrame),
        (says_ours, Ignored::OwnFrame),
        (wrong_sorts, Ignored::NotArp),
        (wrong_operation, Ignored::NotArp),
        (not_arp, Ignored::NotArp),
        (ask((HOST_MAC, HOST4))[..41].to_vec(), Ignored::NotArp),
        (ask((HOST_MAC, HOST4))[..13].to_vec(), Ignored::Malformed),
        (to_group, Ignored::NotForUs),
        (other_vlan, Ignored::WrongVlan),
        (arp_request((HOST_MAC, HOST4), Ipv4Addr::new(10, 0, 0, 77)), Ignored::NotForUs),
        (arp_reply((HOST_MAC, HOST4)), Ignored::Unasked),
    ];
    for (i, (frame, why)) in cases.iter().enumerate() {
        assert_eq!(table.handle_arp(0, frame, START), Err(*why), "case {i}");
        assert_eq!(outputs(&mut table), [], "case {i}");
    }
    assert_eq!(table.view().count(), 0);
    assert_eq!(table.handle_arp(9, &arp_reply((HOST_MAC, HOST4)), START), Err(Ignored::PortDown));
    assert_eq!(table.counters().ignored.iter().sum::<u64>(), cases.len() as u64 + 1);
}

#[test]
fn a_port_of_a_vlan_speaks_with_its_tag() {
    let mut table = table();
    let host = Ipv4Addr::new(10, 0, 1, 5);
    table.resolve(1, host.into(), b"packet".to_vec(), START);
    let question = only_frame(&mut table);
    assert_eq!(question[12..18], [0x81, 0, 0, 7, 0x08, 0x06]);
    assert_eq!(read(&question).4, host);
    let mut reply = arp(2, (HOST_MAC, host), (OUR_MAC, Ipv4Addr::new(10, 0, 1, 1)), OUR_MAC);
    reply.splice(12..12, [0x81, 0, 0xe0, 7]);
    table.handle_arp(1, &reply, START).expect("priority bits are not part of the VLAN");
    assert_eq!(outputs(&mut table).len(), 2);
}

/// While a virtual router is Active here, its address has its MAC address, in questions, answers and announcements;
/// afterwards it is a host's like any other.
#[test]
fn the_address_of_a_virtual_router_has_its_own_mac_address() {
    let shared = Ipv4Addr::new(10, 0, 0, 9);
    let shared_mac = MacAddr([0, 0, 0x5e, 0, 1, 51]);
    let mut table = table();
    assert_eq!(table.handle_arp(0, &arp_request((HOST_MAC, HOST4), shared), START), Err(Ignored::NotForUs));
    let active = PortIdentity { virtual_addresses: vec![(shared.into(), shared_mac)], ..identity() };
    table.set_port(0, Some(active), START);
    let announced: Vec<_> = outputs(&mut table)
        .into_iter()
        .filter_map(|output| match output {
            Output::Send { frame, .. } if frame[12..14] == [8, 6] => Some(frame),
            _ => None,
        })
        .collect();
    assert_eq!(announced.len(), 2, "ours and the shared one");
    let of_shared = announced.iter().find(|frame| frame[6..12] == shared_mac.0).expect("from its address");
    assert_eq!(read(of_shared), (1, shared_mac, shared, MacAddr::ZERO, shared));
    // An answer, also to a question to the address itself.
    for to in [MacAddr::BROADCAST, shared_mac] {
        let question = arp(1, (HOST_MAC, HOST4), (MacAddr::ZERO, shared), to);
        table.handle_arp(0, &question, START + MS).expect("it is for us");
        let answer = outputs(&mut table).into_iter().find_map(|output| match output {
            Output::Send { frame, .. } => Some(frame),
            _ => None,
        });
        let answer = answer.expect("an answer");
        assert_eq!(answer[..12], [HOST_MAC.0, shared_mac.0].concat());
        assert_eq!(read(&answer), (2, shared_mac, shared, HOST_MAC, HOST4));
    }
    // Another router that believes it is Active is not our neighbor.
    let rival = arp_request((shared_mac, shared), shared);
    assert_eq!(table.handle_arp(0, &rival, START + 2 * MS), Err(Ignored::OwnFrame));
    table.set_port(0, Some(identity()), START + 3 * MS);
    outputs(&mut table);
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), shared), START + 4 * MS)
        .expect("a neighbor says where it is");
    assert_eq!(outputs(&mut table), [], "and gets no answer");
    table.resolve(0, shared.into(), b"packet".to_vec(), START + 4 * MS);
    assert_eq!(state(&table, shared), Some(NeighborState::Incomplete));
}

/// The owner of the addresses uses their MAC address for what it asks from them, too.
#[test]
fn the_owner_asks_from_the_mac_address_of_its_virtual_router() {
    let shared_mac = MacAddr([0, 0, 0x5e, 0, 1, 51]);
    let owner = PortIdentity { virtual_addresses: vec![(OUR4.into(), shared_mac)], ..identity() };
    let mut table = Table::new(NeighborConfig::default(), vec![owner], START - 10 * SECOND);
    table.handle_timer(START - 5 * SECOND);
    outputs(&mut table);
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    assert_eq!(read(&only_frame(&mut table)), (1, shared_mac, OUR4, MacAddr::ZERO, HOST4));
    let answer = arp(2, (HOST_MAC, HOST4), (shared_mac, OUR4), shared_mac);
    table.handle_arp(0, &answer, START + MS).expect("it answers");
    assert_eq!(outputs(&mut table), [resolved(HOST4, HOST_MAC), forward(HOST4, HOST_MAC, b"packet")]);
}
