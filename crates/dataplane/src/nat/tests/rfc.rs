//! Behavior by RFC requirement: 4787 (UDP), 5382 and 7857 (TCP), and the limits of the tables.

use super::*;
use crate::nat::testing::{config, ipv4, tcp, udp};
use crate::nat::{BlockAllocation, Filtering, NatConfigError, PortSelection, SessionState, SubscriberConfig};
use NatProtocol::{Icmp, Tcp, Udp};

fn both_selections() -> [NatConfig; 2] {
    [PortSelection::Preserve, PortSelection::Hash]
        .map(|port_selection| NatConfig { port_selection, ..config(1) })
}

#[test]
fn rfc4787_req1_mapping_does_not_depend_on_the_destination() {
    for config in both_selections() {
        let router = Router::new(&config);
        for protocol in NatProtocol::ALL {
            let public = router.open(protocol, host(1, 4000), remote(1, 80)).unwrap();
            assert_eq!(public.ip().octets(), [198, 51, 100, 1]);
            assert_eq!(router.open(protocol, host(1, 4000), remote(2, 81)).unwrap(), public);
            assert_eq!(router.enter(protocol, remote(9, 99), public).unwrap(), host(1, 4000));
            assert_ne!(router.open(protocol, host(2, 4000), remote(1, 80)).unwrap(), public);
        }
        assert_eq!(router.nat.counters().sessions_active, 6);
    }
}

#[test]
fn rfc4787_req2_a_host_keeps_to_one_public_address() {
    let router = Router::new(&config(8));
    let mut used = std::collections::HashSet::new();
    for n in 1..=60 {
        let first = router.open(Udp, host(n, 4000), remote(1, 80)).unwrap();
        used.insert(*first.ip());
        for port in 4001..4020 {
            assert_eq!(router.open(Tcp, host(n, port), remote(1, 80)).unwrap().ip(), first.ip());
        }
    }
    assert_eq!(used.len(), 8, "hosts spread over the addresses");
    assert_eq!(router.nat.counters().unpaired, 0);
}

#[test]
fn rfc4787_req3_ports_are_preserved_when_free_and_never_shared() {
    let router = Router::new(&config(1));
    let mut taken = std::collections::HashSet::new();
    for n in 1..=200 {
        let public = router.open(Udp, host(n, 5060), remote(1, 5060)).unwrap();
        assert!(taken.insert(public));
        assert_eq!(public.port() == 5060, n == 1);
        assert!(public.port() >= 1024);
    }
    // Another protocol has its own ports; a port below the range cannot be preserved.
    assert_eq!(router.open(Tcp, host(7, 5060), remote(1, 5060)).unwrap().port(), 5060);
    assert!(router.open(Udp, host(7, 500), remote(1, 500)).unwrap().port() >= 1024);
}

#[test]
fn rfc4787_req4_port_parity_is_preserved() {
    for config in both_selections() {
        let router = Router::new(&config);
        for n in 1..=100 {
            for port in [7000, 7001, 33, 34, 65535] {
                let public = router.open(Udp, host(n, port), remote(1, 80)).unwrap();
                assert_eq!(public.port() % 2, port % 2);
            }
        }
        assert_eq!(router.nat.counters().odd_parity, 0);
    }
}

#[test]
fn rfc4787_req5_a_udp_session_lives_its_timeout_and_no_longer() {
    let mut router = Router::new(&config(1));
    let public = router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
    router.wait_s(300);
    assert!(router.enter(Udp, remote(1, 80), public).is_ok());
    router.wait_s(1);
    assert_eq!(router.enter(Udp, remote(1, 80), public), Err(DropReason::NatNoMapping));
    assert_eq!(router.nat.counters().sessions_expired, 1);
}

#[test]
fn rfc4787_req6_packets_from_inside_refresh_those_from_outside_only_if_told() {
    for inbound_refresh in [false, true] {
        let mut router = Router::new(&NatConfig { inbound_refresh, ..config(1) });
        let public = router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
        for _ in 0..5 {
            router.wait_s(299);
            assert_eq!(router.open(Udp, host(1, 4000), remote(2, 80)).unwrap(), public);
        }
        router.wait_s(299);
        assert!(router.enter(Udp, remote(1, 80), public).is_ok());
        router.wait_s(299);
        assert_eq!(router.enter(Udp, remote(1, 80), public).is_ok(), inbound_refresh);
    }
}

#[test]
fn rfc4787_req8_filtering_endpoint_independent_or_by_address() {
    let config = NatConfig { filtering: Filtering::AddressDependent, ..config(1) };
    let router = Router::new(&config);
    for protocol in NatProtocol::ALL {
        let public = router.open(protocol, host(1, 4000), remote(1, 80)).unwrap();
        assert!(router.enter(protocol, remote(1, 99), public).is_ok());
        assert_eq!(router.enter(protocol, remote(2, 80), public), Err(DropReason::NatFiltered));
        router.open(protocol, host(1, 4000), remote(2, 80)).unwrap();
        assert!(router.enter(protocol, remote(2, 80), public).is_ok());
    }
    assert_eq!(router.nat.counters().filtered, 3);
}

#[test]
fn rfc4787_req8_filtering_by_address_and_port() {
    let config = NatConfig { filtering: Filtering::AddressAndPortDependent, ..config(1) };
    let router = Router::new(&config);
    for protocol in NatProtocol::ALL {
        let public = router.open(protocol, host(1, 4000), remote(1, 80)).unwrap();
        assert!(router.enter(protocol, remote(1, 80), public).is_ok());
        assert_eq!(router.enter(protocol, remote(2, 80), public), Err(DropReason::NatFiltered));
        // An echo has no port: its identifier is the inside host's.
        let other_port = router.enter(protocol, remote(1, 99), public);
        assert_eq!(other_port.err(), (protocol != Icmp).then_some(DropReason::NatFiltered));
        router.open(protocol, host(1, 4000), remote(1, 99)).unwrap();
        assert!(router.enter(protocol, remote(1, 99), public).is_ok());
    }
    assert_eq!(router.nat.counters().filtered, 5);
}

#[test]
fn rfc4787_req9_hairpin_with_the_public_source() {
    for config in both_selections() {
        let router = Router::new(&config);
        for (protocol, counted) in [(Tcp, 2), (Udp, 4)] {
            let public = router.open(protocol, host(2, 7000), remote(1, 80)).unwrap();
            let bytes = router.leave(&testing::any(protocol, host(1, 4000), public, SYN)).unwrap();
            assert_eq!(destination(&bytes), host(2, 7000));
            let caller = source(&bytes);
            assert_eq!(*caller.ip(), *public.ip(), "REQ-9a: external source");
            let back = router.leave(&testing::any(protocol, host(2, 7000), caller, SYN_ACK)).unwrap();
            assert_eq!((source(&back), destination(&back)), (public, host(1, 4000)));
            assert_eq!(router.nat.counters().hairpins, counted);
        }
        // Without a session it is dropped, in the crossing shard.
        let nobody = at([198, 51, 100, 1], 50_000);
        assert_eq!(router.open(Udp, host(1, 4000), nobody), Err(DropReason::NatNoMapping));
    }
}

#[test]
fn rfc4787_req9_hairpin_can_be_switched_off_and_echo_is_left_to_the_router() {
    let router = Router::new(&NatConfig { hairpin: false, ..config(1) });
    let public = router.open(Udp, host(2, 7000), remote(1, 80)).unwrap();
    let packet = udp(host(1, 4000), public, b"");
    assert_eq!(router.leave(&packet).unwrap(), packet, "untouched");
    let router = Router::new(&config(1));
    let echo = testing::any(Icmp, host(1, 4000), public, 0);
    assert_eq!(router.leave(&echo).unwrap(), echo, "untouched");
}

#[test]
fn rfc4787_req14_later_fragments_follow_the_first() {
    for config in both_selections() {
        let router = Router::new(&config);
        let first = router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
        // The payload looks like ports, and must not be taken for them.
        let later = ipv4(u32::from(*host(1, 0).ip()), u32::from(*remote(1, 0).ip()), 17, 185, &[9; 40]);
        let mut chunk = chunk(&[(INSIDE, &later, 60)], router.now_ns);
        let packet = &mut chunk.packets_mut()[0];
        assert!(packet.flags.has(PacketFlags::LATER_FRAGMENT));
        packet.flags.set(PacketFlags::HAS_PORTS);
        (packet.src_port, packet.dst_port) = (4000, 80);
        router.run(&mut chunk);
        let bytes = chunk.frame(0);
        assert_eq!(bytes[20..], [9; 40]);
        assert_eq!(source(bytes).ip(), first.ip());
        assert_eq!(chunk.packets()[0].src_port, first.port());
        checksums(bytes).unwrap();
    }
}

#[test]
fn a_first_fragment_keeps_its_checksum_right_for_the_whole_datagram() {
    let router = Router::new(&config(1));
    let whole = udp(host(1, 4000), remote(1, 80), &[7; 64]);
    let mut first =
        ipv4(u32::from(*host(1, 0).ip()), u32::from(*remote(1, 0).ip()), 17, 0x2000, &whole[20..60]);
    first = router.leave(&first).unwrap();
    let mut joined = router.leave(&whole).unwrap();
    assert_eq!(joined[20..60], first[20..60]);
    joined[20..60].copy_from_slice(&first[20..60]);
    checksums(&joined).unwrap();
}

#[test]
fn a_udp_checksum_of_zero_stays_and_none_becomes_zero() {
    let router = Router::new(&config(1));
    let mut none = udp(host(1, 4000), remote(1, 80), b"abc");
    none[26..28].fill(0);
    assert_eq!(router.leave(&none).unwrap()[26..28], [0, 0]);
    // Try payloads until the translated sum would come out as zero: one in 65536 does.
    let mut seen = false;
    for payload in 0..=u16::MAX {
        let bytes = router.leave(&udp(host(1, 4000), remote(1, 80), &payload.to_be_bytes())).unwrap();
        assert_ne!(bytes[26..28], [0, 0]);
        seen |= bytes[26..28] == [255, 255];
    }
    assert!(seen);
}

#[test]
fn rfc5382_req5_tcp_timeouts() {
    let open = |flags: &[(bool, u8)]| {
        let router = Router::new(&config(1));
        let public = router.open(Tcp, host(1, 4000), remote(1, 80)).unwrap();
        for &(outbound, flags) in flags {
            let result = if outbound {
                router.leave(&tcp(host(1, 4000), remote(1, 80), flags))
            } else {
                router.arrive(&tcp(remote(1, 80), public, flags))
            };
            assert!(result.is_ok());
        }
        (router, public)
    };
    // Direction and flags of what follows the SYN, then lifetime and state.
    type Case = (&'static [(bool, u8)], u64, SessionState);
    let cases: [Case; 6] = [
        (&[], 240, SessionState::SynSent),
        (&[(false, SYN_ACK), (true, ACK)], 7440, SessionState::Established),
        (&[(false, SYN_ACK), (true, FIN)], 7440, SessionState::FinOut),
        (&[(false, SYN_ACK), (true, FIN), (false, FIN), (true, ACK)], 240, SessionState::Closing),
        (&[(false, SYN_ACK), (false, RST)], 240, SessionState::Reset),
        (&[(false, SYN_ACK), (false, RST), (true, ACK)], 7440, SessionState::Established),
    ];
    for (flags, lifetime_s, state) in cases {
        for (wait_s, alive) in [(lifetime_s, true), (lifetime_s + 1, false)] {
            let (mut router, public) = open(flags);
            assert_eq!(router.sessions()[0].state, state);
            router.wait_s(wait_s);
            let entered = router.enter(Tcp, remote(1, 80), public);
            assert_eq!(entered.is_ok(), alive, "{state:?} after {wait_s} s");
        }
    }
}

#[test]
fn a_port_forward_works_both_ways_and_never_expires() {
    for mut config in both_selections() {
        config.public_addresses.push([198, 51, 100, 77].into());
        config.filtering = Filtering::AddressDependent;
        config.forwards = vec![PortForward { public_address: 1, ..forward(Tcp, 80, host(9, 8081)) }];
        let mut router = Router::new(&config);
        let public = at([198, 51, 100, 77], 80);
        for _ in 0..2 {
            assert_eq!(router.enter(Tcp, remote(5, 1234), public).unwrap(), host(9, 8081));
            assert_eq!(router.open(Tcp, host(9, 8081), remote(5, 1234)).unwrap(), public);
            let hairpin = router.leave(&tcp(host(1, 4000), public, SYN)).unwrap();
            assert_eq!(destination(&hairpin), host(9, 8081));
            router.wait_s(100_000);
        }
        assert_eq!(router.enter(Udp, remote(5, 1234), public), Err(DropReason::NatNoMapping));
        router.nat.advance(router.now_ns);
        let sessions = router.sessions();
        assert_eq!((sessions.len(), sessions[0].state), (1, SessionState::Forward));
        assert_eq!(router.nat.counters().sessions_active, 0);
    }
}

#[test]
fn without_a_public_address_nobody_gets_a_session() {
    let with = |allocation| {
        let subscribers = SubscriberConfig { allocation, ..SubscriberConfig::default() };
        NatConfig { subscribers: Some(subscribers), ..config(0) }
    };
    let deterministic = BlockAllocation::Deterministic(vec!["192.168.0.0/27".parse().unwrap()]);
    for config in [config(0), with(BlockAllocation::Dynamic), with(deterministic)] {
        let router = Router::new(&config);
        for protocol in [Udp, Tcp] {
            let opened = router.open(protocol, host(1, 3000), remote(1, 80));
            assert_eq!(opened, Err(DropReason::NatPortsExhausted));
        }
        assert_eq!(router.nat.counters().sessions_active, 0);
    }
}

#[test]
fn exhausted_ports_are_counted_drops_until_sessions_expire() {
    // One shard of two owns 20 ports of each parity in this range.
    let config = NatConfig { shards: 2, port_range: 2000..=2079, sessions_max: 1000, ..config(1) };
    let mut router = Router::new(&config);
    for n in 1..=41 {
        let opened = router.open(Udp, host(n, 3000), remote(1, 80));
        assert_eq!(opened.is_ok(), n <= 40);
        if n == 41 {
            assert_eq!(opened, Err(DropReason::NatPortsExhausted));
        }
    }
    let counters = router.nat.counters();
    assert_eq!((counters.ports_exhausted, counters.odd_parity, counters.sessions_active), (1, 20, 40));
    assert!(
        router.open(Tcp, host(41, 3000), remote(1, 80)).is_ok(),
        "other protocols have ports of their own"
    );
    router.wait_s(301);
    assert!(router.open(Udp, host(41, 3000), remote(1, 80)).is_ok());
}

#[test]
fn another_public_address_helps_out_when_a_hosts_own_is_exhausted() {
    let config = NatConfig { shards: 2, port_range: 2000..=2079, ..config(2) };
    let router = Router::new(&config);
    let publics: std::collections::HashSet<_> =
        (1..=60).map(|port| router.open(Udp, host(1, port * 4), remote(1, 80)).unwrap()).collect();
    assert_eq!(publics.len(), 60);
    let counters = router.nat.counters();
    assert_eq!((counters.unpaired, counters.odd_parity), (20, 20));
}

#[test]
fn a_full_table_is_counted_drops_until_sessions_expire() {
    let config = NatConfig { shards: 1, sessions_max: 10, ..config(1) };
    let mut router = Router::new(&config);
    for n in 1..=10 {
        assert!(router.open(Tcp, host(n, 3000), remote(1, 80)).is_ok());
    }
    assert_eq!(router.open(Tcp, host(11, 3000), remote(1, 80)), Err(DropReason::NatTableFull));
    assert!(router.open(Tcp, host(3, 3000), remote(1, 80)).is_ok(), "known sessions go on");
    assert_eq!(router.nat.counters().table_full, 1);
    router.wait_s(241);
    assert!(router.open(Tcp, host(11, 3000), remote(1, 80)).is_ok());
    assert_eq!(router.nat.counters().sessions_expired, 10);
}

#[test]
fn what_nat_has_no_business_with_is_untouched() {
    let router = Router::new(&config(1));
    let inside = udp(host(1, 4000), host(2, 80), b"");
    assert_eq!(router.leave(&inside).unwrap(), inside);
    let transit = udp(remote(1, 4000), remote(2, 80), b"");
    assert_eq!(router.arrive(&transit).unwrap(), transit);
    assert_eq!(router.send(7, &udp(host(1, 1), remote(1, 1), b"")).unwrap()[12], 192, "a third port");
    assert_eq!(router.nat.counters().sessions_created, 0);
}

#[test]
fn a_snapped_capture_is_translated_as_far_as_it_goes() {
    let router = Router::new(&config(1));
    let packet = tcp(host(1, 4000), remote(1, 80), SYN);
    let whole = router.leave(&packet).unwrap();
    // Half a checksum (at 37 bytes) cannot be updated.
    for kept in (24..packet.len()).filter(|&kept| kept != 37) {
        assert_eq!(router.send_snapped(INSIDE, &packet, kept).unwrap()[..], whole[..kept]);
    }
}

#[test]
fn a_packet_whose_ttl_runs_out_here_makes_no_session() {
    let router = Router::new(&config(1));
    for ttl in [0, 1] {
        let mut packet = udp(host(1, 4000), remote(1, 80), b"");
        packet[8] = ttl;
        packet[10..12].fill(0);
        let checksum = thalweg_wire::checksum::finish(thalweg_wire::checksum::sum(&packet[..20], 0));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(router.leave(&packet), Err(DropReason::TtlExpired));
        assert_eq!(router.nat.counters().sessions_created, 0);
    }
}

#[test]
fn sessions_can_be_inspected() {
    let mut router = Router::new(&config(1));
    let public = router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
    router.wait_s(10);
    router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
    router.enter(Udp, remote(1, 80), public).unwrap();
    router.wait_s(20);
    router.nat.advance(router.now_ns);
    let expected = SessionInfo {
        vrf: 0,
        protocol: Udp,
        inside: host(1, 4000).into(),
        public,
        state: SessionState::Udp,
        remote: Some(remote(1, 80)),
        idle_s: 20,
        remaining_s: Some(280),
        packets_out: 2,
        packets_in: 1,
    };
    assert_eq!(router.sessions(), [expected]);
}

#[test]
fn wrong_configurations_are_refused_with_their_values() {
    let forward = forward(Tcp, 80, host(1, 80));
    let with = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = config(1);
        change(&mut config);
        config.validate()
    };
    assert_eq!(with(&|_| {}), Ok(()));
    assert_eq!(with(&|c| c.public_addresses.clear()), Ok(()), "they may come later");
    assert_eq!(with(&|c| c.inside_ports.clear()), Err(NatConfigError::NoInsidePort));
    assert_eq!(with(&|c| c.inside_ports.push(OUTSIDE)), Err(NatConfigError::InsideIsOutside(OUTSIDE)));
    for shards in [0, 3, 512] {
        assert_eq!(with(&|c| c.shards = shards), Err(NatConfigError::Shards(shards)));
    }
    let (from, to) = (60_000, 60_126);
    assert_eq!(with(&|c| c.port_range = from..=to), Err(NatConfigError::PortRange { from, to, shards: 64 }));
    assert_eq!(with(&|c| c.port_range = from..=to + 1), Ok(()));
    assert_eq!(with(&|c| c.sessions_max = 0), Err(NatConfigError::SessionsMax(0)));
    assert_eq!(with(&|c| c.timeouts.udp_s = 0), Err(NatConfigError::Timeout { name: "udp", seconds: 0 }));
    let forwards = |list: Vec<PortForward>| with(&|c| c.forwards.clone_from(&list));
    assert_eq!(forwards(vec![forward]), Ok(()));
    assert_eq!(
        forwards(vec![forward, PortForward { inside_port: 81, ..forward }]),
        Err(NatConfigError::ForwardPublicTwice(Tcp, [198, 51, 100, 1].into(), 80))
    );
    assert_eq!(
        forwards(vec![forward, PortForward { public_port: 81, ..forward }]),
        Err(NatConfigError::ForwardInsideTwice(Tcp, *host(1, 0).ip(), 80))
    );
    assert_eq!(
        forwards(vec![PortForward { public_address: 1, ..forward }]),
        Err(NatConfigError::ForwardAddress { index: 1, addresses: 1 })
    );
}
