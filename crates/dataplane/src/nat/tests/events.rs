//! The events of a NAT compared with its state.

use super::*;
use crate::nat::testing::config;
use crate::nat::{
    BlockAllocation, Filtering, Happening, NatEvent, NatLogging, NatTimeouts, SubscriberConfig, TOLD_AGAIN_S,
};
use NatProtocol::{Tcp, Udp};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// A router with logging.
fn logged(config: &NatConfig, logging: NatLogging) -> Router {
    let router = Router::new(config);
    router.nat.set_logging(Some(logging));
    router
}

fn drained(router: &Router) -> Vec<NatEvent> {
    let mut events = Vec::new();
    assert_eq!(router.nat.hand_out_events(&mut |event| events.push(event)), 0);
    events
}

fn happened(router: &Router) -> Vec<Happening> {
    drained(router).iter().map(|event| event.what).collect()
}

/// The owner of each public endpoint or block according to the events alone, and since when.
#[derive(Default)]
struct Ledger {
    sessions: HashMap<(NatProtocol, SocketAddrV4), (SocketAddr, Option<SocketAddrV4>, u64)>,
    blocks: HashMap<(Ipv4Addr, u16), (IpAddr, u64)>,
    /// When its last owner released it.
    free_since: HashMap<(NatProtocol, SocketAddrV4), u64>,
}

impl Ledger {
    fn count(&mut self, event: &NatEvent, now_ns: u64) {
        assert!(event.time_ns <= now_ns, "nothing is told before it happens");
        match event.what {
            Happening::Session { created: true, protocol, inside, public, remote, .. } => {
                let before = self.sessions.insert((protocol, public), (inside, remote, event.time_ns));
                assert_eq!(before, None, "an endpoint of two");
                let free_since = self.free_since.get(&(protocol, public)).copied().unwrap_or(0);
                assert!(free_since <= event.time_ns, "two owners at a time");
            }
            Happening::Session { created: false, protocol, inside, public, remote, .. } => {
                let (owner, whom, since) =
                    self.sessions.remove(&(protocol, public)).expect("an earlier event created it");
                assert_eq!((owner, whom), (inside, remote));
                assert!(since <= event.time_ns);
                self.free_since.insert((protocol, public), event.time_ns);
            }
            Happening::Block { allocated: true, subscriber, public, ports, .. } => {
                let before = self.blocks.insert((public, ports.0), (subscriber, event.time_ns));
                assert_eq!(before, None, "a block of two");
            }
            Happening::Block { allocated: false, subscriber, public, ports, .. } => {
                let (owner, since) =
                    self.blocks.remove(&(public, ports.0)).expect("an earlier event created it");
                assert!(owner == subscriber && since <= event.time_ns);
            }
            _ => {}
        }
    }

    fn count_all(&mut self, router: &Router) {
        drained(router).iter().for_each(|event| self.count(event, router.now_ns));
    }
}

fn held_blocks(router: &Router) -> HashMap<(Ipv4Addr, u16), IpAddr> {
    let (mut all, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = next {
        next = router.nat.blocks(from, |_| true, &mut all);
    }
    all.into_iter().map(|block| ((block.public, *block.ports.start()), block.inside)).collect()
}

#[test]
fn a_session_is_told_with_whom_it_began_and_when_it_was_over() {
    let mut router = logged(&config(1), NatLogging::Sessions);
    router.now_ns += 123_456_789;
    let begun_ns = router.now_ns;
    let public = router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
    router.open(Udp, host(1, 4000), remote(2, 80)).unwrap();
    let told = |created, remote| Happening::Session {
        vrf: 0,
        created,
        protocol: Udp,
        inside: host(1, 4000).into(),
        public,
        remote,
    };
    let whom = Some(remote(1, 80));
    assert_eq!(drained(&router), [NatEvent { time_ns: begun_ns, what: told(true, whom) }]);
    // Noticed late, but with the right time: 300 s after the second of its last packet.
    router.wait_s(1000);
    router.nat.advance(router.now_ns);
    let ended_ns = (begun_ns / SECOND_NS + 301) * SECOND_NS;
    assert_eq!(drained(&router), [NatEvent { time_ns: ended_ns, what: told(false, whom) }]);

    // Without the remote endpoint, because it is not requested or NAT does not store it.
    let filtered = |filtering| (NatConfig { filtering, ..config(1) }, NatLogging::Sessions);
    let filters = [Filtering::AddressDependent, Filtering::AddressAndPortDependent].map(filtered);
    for (config, logging) in filters.into_iter().chain([(config(1), NatLogging::Bindings)]) {
        let mut router = logged(&config, logging);
        router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
        router.wait_s(1000);
        router.nat.advance(router.now_ns);
        assert_eq!(happened(&router), [told(true, None), told(false, None)], "{logging:?}");
    }
    let router = logged(&config(1), NatLogging::Blocks);
    router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
    assert_eq!(happened(&router), []);
}

#[test]
fn limits_are_told_once_in_a_while() {
    let subscribers =
        SubscriberConfig { block_size: 16, ports_max: 16, sessions_max: 20, ..SubscriberConfig::default() };
    let config =
        NatConfig { shards: 1, port_range: 2048..=2079, subscribers: Some(subscribers), ..config(1) };
    let mut router = logged(&config, NatLogging::Blocks);
    for port in 0..16 {
        router.open(Udp, host(1, 4000 + port), remote(1, 80)).unwrap();
    }
    let block = |allocated, subscriber: SocketAddrV4, first| Happening::Block {
        vrf: 0,
        allocated,
        subscriber: IpAddr::V4(*subscriber.ip()),
        public: config.public_addresses[0],
        ports: (first, first + 15),
        pool: 0,
    };
    assert_eq!(happened(&router), [block(true, host(1, 0), 2048)]);
    let limit =
        |limit| Happening::SubscriberLimit { vrf: 0, subscriber: IpAddr::V4(*host(1, 0).ip()), limit };
    for port in 0..100 {
        router.open(Udp, host(1, 5000 + port), remote(1, 80)).unwrap_err();
    }
    assert_eq!(happened(&router), [limit(16)]);
    router.wait_s(u64::from(TOLD_AGAIN_S) - 1);
    router.open(Udp, host(1, 5000), remote(1, 80)).unwrap_err();
    assert_eq!(happened(&router), []);
    router.wait_s(1);
    for port in 0..4 {
        router.open(Tcp, host(1, 4000 + port), remote(1, 80)).unwrap();
    }
    router.open(Tcp, host(1, 4004), remote(1, 80)).unwrap_err();
    assert_eq!(happened(&router), [limit(20)], "of sessions");
    router.open(Udp, host(2, 4000), remote(1, 80)).unwrap();
    for n in 3..9 {
        router.open(Udp, host(n, 4000), remote(1, 80)).unwrap_err();
    }
    assert_eq!(happened(&router), [block(true, host(2, 0), 2064), Happening::BlocksExhausted { pool: 0 }]);
    router.wait_s(1000);
    router.nat.advance(router.now_ns);
    let mut given_back = happened(&router);
    given_back.sort_by_key(|what| matches!(what, Happening::Block { ports: (2064, _), .. }));
    assert_eq!(given_back, [block(false, host(1, 0), 2048), block(false, host(2, 0), 2064)]);
}

#[test]
fn exhausted_ports_and_a_full_table_are_told() {
    let small = NatConfig { shards: 1, port_range: 2048..=2051, sessions_max: 6, ..config(1) };
    let router = logged(&small, NatLogging::Bindings);
    for port in 0..9 {
        let _ = router.open(Udp, host(1, 2048 + port), remote(1, 80));
    }
    let public = small.public_addresses[0];
    let of_udp = |what: &Happening| matches!(what, Happening::Session { protocol: Udp, created: true, .. });
    let mut events = happened(&router);
    assert_eq!(events.iter().filter(|what| of_udp(what)).count(), 4);
    events.retain(|what| !of_udp(what));
    assert_eq!(events, [Happening::PortsExhausted { public, protocol: Udp }]);
    for port in 0..9 {
        let _ = router.open(Tcp, host(1, 2048 + port), remote(1, 80));
    }
    assert_eq!(happened(&router).last(), Some(&Happening::TableFull { limit: 6 }));
    let counters = router.nat.counters();
    assert_eq!((counters.events, counters.events_dropped), (4 + 1 + 2 + 1, 0));
}

#[test]
fn what_finds_no_room_is_counted() {
    let mut router = logged(&NatConfig { shards: 1, sessions_max: 10, ..config(1) }, NatLogging::Bindings);
    for round in 0..2000 {
        for port in 0..10 {
            router
                .open(Udp, host(1, 4000 + port), remote(1, 80))
                .unwrap_or_else(|why| panic!("{round}: {why:?}"));
        }
        router.wait_s(400);
    }
    router.nat.advance(router.now_ns);
    let counters = router.nat.counters();
    assert_eq!(counters.events + counters.events_dropped, 40_000);
    let mut handed_out = 0;
    let dropped = router.nat.hand_out_events(&mut |_| handed_out += 1);
    assert_eq!((handed_out, dropped), (counters.events, counters.events_dropped));
    assert_eq!(handed_out, 8192 + 10);
    assert_eq!(router.nat.hand_out_events(&mut |_| ()), 0, "it is told once");
}

#[test]
fn another_configuration_ends_what_has_no_place_in_it() {
    let old = config(2);
    for (logging, subscribers) in [
        (NatLogging::Sessions, None),
        (NatLogging::Bindings, Some(SubscriberConfig::default())),
        (NatLogging::Blocks, Some(SubscriberConfig::default())),
    ] {
        let old = NatConfig { subscribers, ..old.clone() };
        let mut router = logged(&old, logging);
        let mut ledger = Ledger::default();
        for n in 0..200u16 {
            router.now_ns += 7_000_000;
            router.open(Udp, host(1 + (n % 20) as u8, 5000 + n), remote(1, 80)).unwrap();
        }
        let new = NatConfig { public_addresses: vec![old.public_addresses[0]], ..old.clone() };
        let next = Router { now_ns: router.now_ns, ..logged(&new, logging) };
        let inherited = next.nat.migrate_from(&router.nat);
        assert!(inherited.displaced > 0);
        // Events that the old one had not handed out come from the new one.
        ledger.count_all(&next);
        if logging == NatLogging::Blocks {
            let there = next.nat.counters().blocks_active;
            assert!(there > 0 && ledger.blocks.len() as u64 == there, "blocks go along with their sessions");
        } else {
            assert_eq!(ledger.sessions.len() as u64, inherited.kept);
        }
        next.nat.log_end_of_all();
        ledger.count_all(&next);
        assert!(ledger.sessions.is_empty() && ledger.blocks.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The law: what began and did not end, according to the events, is what exists.
    #[test]
    fn begun_less_ended_is_what_there_is(
        kind in 0u8..4,
        filtering in prop::sample::select(Filtering::ALL.to_vec()),
        events in proptest::collection::vec((0u64..3, 0u64..1_000_000_000, 1u8..10, 0u8..3, 0u16..60, 0usize..5), 1..300),
    ) {
        let allocation = if kind == 3 {
            BlockAllocation::Deterministic(vec!["192.168.0.0/29".parse().unwrap()])
        } else {
            BlockAllocation::Dynamic
        };
        let (block_size, ports_max) = (16, 24);
        let subscribers =
            SubscriberConfig { allocation, block_size, ports_max, sessions_max: 30, hold_s: 4 };
        let config = NatConfig {
            shards: 2,
            port_range: 2048..=2175,
            sessions_max: 60,
            subscribers: (kind >= 2).then_some(subscribers),
            filtering,
            timeouts: NatTimeouts { udp_s: 3, tcp_established_s: 8, tcp_transitory_s: 4, icmp_s: 2, ..NatTimeouts::default() },
            ..config(2)
        };
        let logging =
            [NatLogging::Sessions, NatLogging::Bindings, NatLogging::Blocks, NatLogging::Blocks][usize::from(kind)];
        let mut router = logged(&config, logging);
        let mut ledger = Ledger::default();
        let flags = [SYN, SYN_ACK, FIN, RST, ACK];
        for (n, &(wait_s, wait_ns, h, protocol, port, flag)) in events.iter().enumerate() {
            if n % 6 == 0 {
                router.now_ns += wait_s * SECOND_NS + wait_ns;
            }
            let protocol = NatProtocol::from_code(protocol);
            let packet = testing::any(protocol, host(h, 4000 + port), remote(1 + h % 3, 80), flags[flag]);
            let _ = router.leave(&packet);
            ledger.count_all(&router);
        }
        router.nat.advance(router.now_ns);
        ledger.count_all(&router);
        if logging == NatLogging::Blocks {
            let told: HashMap<_, _> = ledger.blocks.iter().map(|(at, (owner, _))| (*at, *owner)).collect();
            prop_assert_eq!(told, if kind == 3 { HashMap::new() } else { held_blocks(&router) });
            prop_assert!(ledger.sessions.is_empty());
        } else {
            let held: HashMap<_, _> =
                router.sessions().iter().map(|s| ((s.protocol, s.public), s.inside)).collect();
            let told: HashMap<_, _> = ledger.sessions.iter().map(|(at, (inside, ..))| (*at, *inside)).collect();
            prop_assert_eq!(told, held);
            prop_assert!(ledger.blocks.is_empty());
        }
        let counters = router.nat.counters();
        prop_assert_eq!(counters.events_dropped, 0);
        router.nat.log_end_of_all();
        for event in drained(&router) {
            // It may end with a second that is not complete.
            ledger.count(&event, router.now_ns);
        }
        prop_assert!(ledger.sessions.is_empty() && ledger.blocks.is_empty());
    }
}
