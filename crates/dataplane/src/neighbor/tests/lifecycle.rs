//! Effects of time, ports and configuration on neighbors.

use super::*;
use NeighborState::{Delay, Failed, Incomplete, Probe, Reachable, Stale, Static};

fn known(table: &mut Table, now: u64) {
    table
        .handle_arp(0, &arp_request((HOST_MAC, HOST4), OUR4), now)
        .expect("the frame is addressed to the router");
    table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), now).expect("the neighbor is known");
    assert_eq!(state(table, HOST4), Some(Reachable));
    outputs(table);
}

fn is_probe(output: &Output) -> bool {
    matches!(output, Output::Send { port: 0, frame } if frame[..6] == HOST_MAC)
}

#[test]
fn an_unused_neighbor_that_answers_stays() {
    let mut table = table();
    known(&mut table, START);
    let mut probes = 0;
    let mut now = START;
    while now < START + 3600 * SECOND {
        now = table.next_deadline().expect("a known neighbor has a timer");
        table.handle_timer(now);
        for output in outputs(&mut table) {
            assert!(is_probe(&output), "{output:?}");
            probes += 1;
            table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), now).expect("the neighbor is known");
            assert_eq!(state(&table, HOST4), Some(Reachable));
        }
    }
    assert!((80..=130).contains(&probes), "one in 20 to 50 s: {probes}");
}

#[test]
fn an_unused_neighbor_that_is_gone_is_found_out() {
    let mut table = table();
    known(&mut table, START);
    let seen = run_until(&mut table, START + 200 * SECOND);
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen[..3].iter().all(is_probe) && seen[3] == lost(HOST4));
    assert_eq!((table.view().count(), table.next_deadline()), (0, None));
}

#[test]
fn a_used_neighbor_goes_the_way_of_rfc_4861() {
    let mut table = table();
    known(&mut table, START);
    table.used(0, HOST4.into(), START + SECOND);
    assert_eq!(state(&table, HOST4), Some(Reachable));
    let stale = table.next_deadline().expect("it becomes stale");
    assert!((START + 15 * SECOND..=START + 45 * SECOND).contains(&stale));
    assert_eq!(run_until(&mut table, stale), []);
    assert_eq!(state(&table, HOST4), Some(Stale));
    table.resolve(0, HOST4.into(), b"packet".to_vec(), stale);
    assert_eq!(outputs(&mut table), [forward(HOST4, HOST_MAC, b"packet")], "STALE is good enough to send");
    assert_eq!(state(&table, HOST4), Some(Delay));
    assert_eq!(run_until(&mut table, stale + 5 * SECOND - 1), []);
    let probes = run_until(&mut table, stale + 5 * SECOND);
    assert!(probes.len() == 1 && is_probe(&probes[0]));
    assert_eq!(state(&table, HOST4), Some(Probe));
    let end = run_until(&mut table, stale + 8 * SECOND);
    assert!(end.len() == 3 && end[2] == lost(HOST4), "{end:?}");
}

#[test]
fn idle_neighbors_are_let_go_unasked_where_use_is_told() {
    let mut table = table_of(NeighborConfig { idle_ns: Some(50 * SECOND), ..NeighborConfig::default() });
    known(&mut table, START);
    assert_eq!(run_until(&mut table, START + 200 * SECOND), [lost(HOST4)]);
}

#[test]
fn a_port_that_goes_down_takes_its_neighbors_along() {
    let mut table = table();
    known(&mut table, START);
    let other = Ipv4Addr::new(10, 0, 0, 99);
    table.resolve(0, other.into(), b"packet".to_vec(), START);
    table.resolve(1, Ipv4Addr::new(10, 0, 1, 9).into(), b"elsewhere".to_vec(), START);
    outputs(&mut table);
    table.set_port(0, None, START);
    assert_eq!(outputs(&mut table), [lost(HOST4), unreachable(other, b"packet", Unreachable::PortDown)]);
    assert_eq!(table.view().count(), 1, "the other port's");
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    assert_eq!(outputs(&mut table), [unreachable(HOST4, b"packet", Unreachable::PortDown)]);
    table.set_port(0, Some(identity()), START);
    assert_eq!(outputs(&mut table).len(), 3, "its three addresses are announced");
    assert_eq!(
        run_until(&mut table, START + 60 * SECOND)
            .iter()
            .filter(|o| matches!(o, Output::Send { port: 0, .. }))
            .count(),
        3,
        "twice"
    );
}

#[test]
fn an_address_change_keeps_those_still_on_the_link() {
    let mut table = table();
    known(&mut table, START);
    table
        .handle_nd(0, &solicitation((HOST_MAC, HOST6), OUR6), START)
        .expect("the frame is addressed to the router");
    outputs(&mut table);
    table.set_port(0, Some(identity()), START);
    assert_eq!(outputs(&mut table), [], "nothing changed");
    let mut changed = identity();
    changed.addresses.remove(0);
    table.set_port(0, Some(changed), START);
    let seen = outputs(&mut table);
    assert!(seen.contains(&lost(HOST4)) && !seen.contains(&lost(HOST6)), "{seen:?}");
}

#[test]
fn a_new_mac_of_ours_is_announced_and_used() {
    let mut table = table();
    let mut moved = identity();
    moved.mac = MacAddr([2, 0, 0, 0, 0, 0x77]);
    table.set_port(0, Some(moved.clone()), START);
    let seen = outputs(&mut table);
    assert!(
        seen.iter().all(|o| matches!(o, Output::Send { frame, .. } if frame[6..12] == moved.mac)),
        "{seen:?}"
    );
    table
        .handle_arp(0, &arp_request((OUR_MAC, HOST4), OUR4), START)
        .expect("the MAC address belongs to another host");
}

#[test]
fn static_neighbors_stay_as_they_are_told() {
    let mut table = table();
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    only_frame(&mut table);
    assert!(table.set_static(0, HOST4.into(), Some(HOST_MAC), START));
    assert_eq!(outputs(&mut table), [resolved(HOST4, HOST_MAC), forward(HOST4, HOST_MAC, b"packet")]);
    let claim = arp_request((OTHER_MAC, HOST4), HOST4);
    assert_eq!(table.handle_arp(0, &claim, START), Err(Ignored::AddressConflict));
    assert_eq!((state(&table, HOST4), table.next_deadline()), (Some(Static), None));
    table.set_port(0, None, START);
    assert_eq!(outputs(&mut table), [lost(HOST4)]);
    table.set_port(0, Some(identity()), START);
    assert!(outputs(&mut table).contains(&resolved(HOST4, HOST_MAC)));
    assert!(table.set_static(0, HOST4.into(), Some(OTHER_MAC), START));
    assert_eq!(outputs(&mut table), [changed(HOST4, OTHER_MAC)]);
    assert!(table.set_static(0, HOST4.into(), None, START));
    assert_eq!(outputs(&mut table), [], "it is believed until it is asked");
    let seen = run_until(&mut table, START + 60 * SECOND);
    let is_question =
        |output: &&Output| matches!(output, Output::Send { frame, .. } if frame[..6] == OTHER_MAC);
    let questions = seen.iter().filter(is_question).count();
    assert_eq!((questions, seen.last()), (3, Some(&lost(HOST4))), "it does not answer: {seen:?}");
}

#[test]
fn a_wanted_gateway_is_asked_for_until_it_answers() {
    let mut table = table();
    assert!(table.want(0, HOST4.into(), START));
    only_frame(&mut table);
    assert_eq!(state(&table, HOST4), Some(Incomplete));
    let seen = run_until(&mut table, START + 600 * SECOND);
    let questions = seen.iter().filter(|output| matches!(output, Output::Send { .. })).count();
    let silent = Output::Silent { port: 0, address: HOST4.into() };
    assert_eq!(
        seen.iter().position(|output| *output == silent),
        Some(2),
        "told after the third question: {seen:?}"
    );
    // Three at a time, 3 s, then pauses of 1, 2, 4, 8, 16, 30, 30 ... s.
    assert!((50..=65).contains(&questions), "{questions}");
    let now = START + 600 * SECOND;
    while state(&table, HOST4) != Some(Failed) {
        let next = table.next_deadline().expect("it is asked for again");
        run_until(&mut table, next);
    }
    table.resolve(0, HOST4.into(), b"packet".to_vec(), now);
    only_frame(&mut table);
    table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), now).expect("the router had sent a request");
    assert_eq!(outputs(&mut table), [resolved(HOST4, HOST_MAC), forward(HOST4, HOST_MAC, b"packet")]);
    // It goes away and comes back.
    let seen = run_until(&mut table, now + 120 * SECOND);
    let gone = seen.iter().position(|output| *output == lost(HOST4)).expect("the loss is detected");
    assert!(matches!(seen[gone + 1], Output::Send { .. }), "and asked for at once");
    table.unwant(0, HOST4.into());
    run_until(&mut table, now + 200 * SECOND);
    assert_eq!((table.view().count(), table.next_deadline()), (0, None));
}

#[test]
fn what_is_no_neighbor_is_not_asked_for() {
    let mut table = table();
    let impossible: [IpAddr; 6] = [
        OUR4.into(),
        Ipv4Addr::BROADCAST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(224, 0, 0, 5).into(),
        "ff02::5".parse().expect("an address"),
        OUR6.into(),
    ];
    for address in impossible {
        table.resolve(0, address, b"packet".to_vec(), START);
        assert_eq!(outputs(&mut table), [unreachable(address, b"packet", Unreachable::NotANeighbor)]);
    }
    table.resolve(1, HOST6.into(), b"packet".to_vec(), START);
    let seen = outputs(&mut table);
    assert!(
        matches!(seen[..], [Output::Unreachable { why: Unreachable::NotANeighbor, .. }]),
        "no IPv6 there"
    );
}

/// A gateway changes its MAC address silently: packets are lost until it is solicited by broadcast. Linux takes up
/// to 45 s to suspect it, 5 s of delay and three probes.
#[test]
fn a_gateway_that_changes_its_mac_address_silently_is_found_out_within_33_seconds() {
    for seed in 0..50 {
        let mut table = table_of(NeighborConfig { seed, ..NeighborConfig::default() });
        assert!(table.want(0, HOST4.into(), START));
        only_frame(&mut table);
        table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), START).expect("the router had sent a request");
        assert_eq!(outputs(&mut table), [resolved(HOST4, HOST_MAC)]);
        let mut seen = Vec::new();
        let found = loop {
            let now = table.next_deadline().expect("it is probed");
            table.handle_timer(now);
            let outputs = outputs(&mut table);
            let asks_all =
                |output: &Output| matches!(output, Output::Send { frame, .. } if frame[..6] == [0xff; 6]);
            let is_asked = outputs.iter().any(asks_all);
            seen.extend(outputs);
            if is_asked {
                break now;
            }
        };
        assert!(seen[..3].iter().all(is_probe) && seen[3] == lost(HOST4), "by unicast first: {seen:?}");
        assert!(
            (START + 13 * SECOND..=START + 33 * SECOND).contains(&found),
            "{} s",
            (found - START) / SECOND
        );
        table.handle_arp(0, &arp_reply((OTHER_MAC, HOST4)), found).expect("the router had sent a request");
        assert_eq!(outputs(&mut table), [resolved(HOST4, OTHER_MAC)]);
    }
}

/// Nothing is lost while a gateway answers its probes, and a host is suspected after 20 to 50 s, as if it were
/// used.
#[test]
fn neighbors_are_probed_as_if_they_were_used() {
    let mut table = table();
    known(&mut table, START);
    let seen = run_until(&mut table, START + 53 * SECOND);
    assert_eq!(seen.last(), Some(&lost(HOST4)), "{seen:?}");
    assert!(table.want(0, HOST4.into(), START + 60 * SECOND));
    only_frame(&mut table);
    let mut now = START + 60 * SECOND;
    table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), now).expect("the router had sent a request");
    assert_eq!(outputs(&mut table), [resolved(HOST4, HOST_MAC)]);
    while now < START + 600 * SECOND {
        now = table.next_deadline().expect("a known neighbor has a timer");
        table.handle_timer(now);
        assert!(outputs(&mut table).iter().all(is_probe));
        table.handle_arp(0, &arp_reply((HOST_MAC, HOST4)), now).expect("the neighbor is known");
        assert_eq!(state(&table, HOST4), Some(Reachable));
    }
}

/// A link without MAC addresses: the far end gets everything, and nobody is asked.
#[test]
fn nobody_is_asked_on_a_link_with_two_ends() {
    let mut table = table();
    assert!(table.want(0, HOST4.into(), START));
    only_frame(&mut table);
    let bare = PortIdentity { far_end: Some(OTHER_MAC), ..identity() };
    table.set_port(0, Some(bare.clone()), START);
    assert!(table.want(0, HOST6.into(), START));
    assert_eq!(outputs(&mut table), [], "no announcement, no question");
    assert_eq!((table.next_deadline(), table.view().count()), (None, 0));
    table.resolve(0, HOST4.into(), b"packet".to_vec(), START);
    assert_eq!(outputs(&mut table), [forward(HOST4, OTHER_MAC, b"packet")]);
    // Somebody without a network here is there too.
    assert_eq!(table.lookup(0, Ipv4Addr::new(192, 0, 2, 1).into()), Some(OTHER_MAC));
    assert_eq!(table.lookup(1, HOST4.into()), None);
    // Ethernet again: the gateway is asked for.
    table.set_port(0, Some(identity()), START);
    let asked = outputs(&mut table);
    assert!(
        asked.len() >= 2 && asked.iter().all(|output| matches!(output, Output::Send { .. })),
        "{asked:?}"
    );
    assert_eq!(state(&table, HOST4), Some(NeighborState::Incomplete));
}
