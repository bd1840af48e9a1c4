//! Successive configurations, and trial packets.

use super::super::{Filtering, NatMigration, NatTimeouts, PortSelection};
use super::*;

const HOST: &str = "192.168.1.2:5000";
const SERVER: &str = "203.0.113.9:53";

fn endpoint(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn udp(from: SocketAddrV4, to: &str) -> Vec<u8> {
    testing::udp(from, endpoint(to), b"data")
}

/// The public endpoint of an inside host's datagram.
fn opened(router: &Router, from: SocketAddrV4) -> SocketAddrV4 {
    router.open(NatProtocol::Udp, from, endpoint(SERVER)).unwrap()
}

/// The router under another configuration, and the fate of its sessions.
fn turn(router: Router, config: &NatConfig) -> (Router, NatMigration) {
    let next = Router { now_ns: router.now_ns, ..Router::new(config) };
    let inherited = next.nat.migrate_from(&router.nat);
    (next, inherited)
}

fn sessions(router: &Router) -> Vec<SessionInfo> {
    let mut all = router.sessions();
    all.sort_by_key(|session| session.inside);
    all
}

#[test]
fn sessions_that_fit_go_on_and_others_are_counted() {
    let old = testing::config(2);
    let router = Router::new(&old);
    let mut publics = Vec::new();
    for n in 0..200u16 {
        let from = SocketAddrV4::new([192, 168, 1, (n % 20) as u8].into(), 5000 + n);
        publics.push((from, opened(&router, from)));
    }
    let before = sessions(&router);
    // The second address is replaced by another; the table is larger; a forward takes over an endpoint.
    let (taken, kept_host) =
        (publics[3].0, publics.iter().find(|p| *p.1.ip() == old.public_addresses[0]).unwrap());
    let new = NatConfig {
        public_addresses: vec![[198, 51, 100, 9].into(), old.public_addresses[0]],
        sessions_max: 1 << 17,
        forwards: vec![forward(NatProtocol::Udp, 99, taken)],
        ..old.clone()
    };
    let fits = |session: &SessionInfo| {
        *session.public.ip() == old.public_addresses[0] && session.inside != SocketAddr::V4(taken)
    };
    let (kept, displaced): (Vec<_>, Vec<_>) = before.into_iter().partition(fits);
    let (router, inherited) = turn(router, &new);
    assert_eq!((inherited.kept, inherited.displaced), (kept.len() as u64, displaced.len() as u64));
    assert!(!kept.is_empty() && !displaced.is_empty(), "there are both");
    let mut now = sessions(&router);
    now.retain(|session| session.public.port() != 99);
    assert!(now == kept, "as they were, with what they had counted and how long they idle");
    let counters = router.nat.counters();
    assert_eq!(counters.sessions_created, 200);
    assert_eq!(
        (counters.sessions_active, counters.sessions_displaced),
        (inherited.kept, inherited.displaced)
    );
    // Packets of a session that continues find it in both directions, and no other session gets its port.
    let (from, public) = *kept_host;
    if from != taken {
        assert_eq!(opened(&router, from), public);
        router.arrive(&testing::udp(endpoint(SERVER), public, b"back")).unwrap();
    }
    let mut all: Vec<_> = publics.iter().map(|(from, _)| opened(&router, *from)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), publics.len(), "no public endpoint twice");
}

#[test]
fn other_numbers_of_shards_keep_what_still_belongs_together() {
    for (from, to) in [(64u16, 16u16), (16, 64)] {
        let old = NatConfig { shards: from, ..testing::config(1) };
        let router = Router::new(&old);
        for n in 0..500u16 {
            opened(&router, SocketAddrV4::new([192, 168, 2, 1].into(), 2000 + n));
        }
        let before = sessions(&router);
        // Ports were preserved, so both ends are in one shard whatever the number of shards.
        let (router, inherited) = turn(router, &NatConfig { shards: to, ..old.clone() });
        assert_eq!(inherited, NatMigration { kept: 500, displaced: 0 });
        assert!(sessions(&router) == before, "none is older or younger for it");
        // With another port selection most of them belong elsewhere.
        let hashed = NatConfig { port_selection: PortSelection::Hash, ..old.clone() };
        let (router, inherited) = turn(router, &hashed);
        assert_eq!(inherited.kept + inherited.displaced, 500);
        assert_eq!(router.nat.counters().sessions_active, inherited.kept);
    }
}

#[test]
fn a_smaller_table_keeps_as_many_as_it_holds() {
    let old = NatConfig { shards: 1, sessions_max: 100, ..testing::config(1) };
    let router = Router::new(&old);
    for n in 0..100u16 {
        opened(&router, SocketAddrV4::new([192, 168, 2, 1].into(), 2000 + n));
    }
    let (router, inherited) = turn(router, &NatConfig { sessions_max: 40, ..old });
    assert_eq!(inherited, NatMigration { kept: 40, displaced: 60 });
    assert_eq!(router.send(INSIDE, &udp(endpoint(HOST), SERVER)), Err(DropReason::NatTableFull));
}

#[test]
fn lifetimes_and_filters_change_in_place() {
    let old = testing::config(1);
    let mut router = Router::new(&old);
    let public = opened(&router, endpoint(HOST));
    let shorter = NatConfig {
        timeouts: NatTimeouts { udp_s: 30, ..old.timeouts },
        filtering: Filtering::AddressDependent,
        ..old.clone()
    };
    router.nat.set_behavior(&shorter);
    // It was open to strangers and stays so; a new one is not.
    let stranger = endpoint("203.0.113.77:53");
    router.arrive(&testing::udp(stranger, public, b"hello")).unwrap();
    let other = opened(&router, endpoint("192.168.1.3:7000"));
    assert_eq!(router.arrive(&testing::udp(stranger, other, b"hello")), Err(DropReason::NatFiltered));
    // Both expire after the new lifetime, to the second.
    router.wait_s(30);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 2);
    router.wait_s(1);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 0);
}

/// Each way of filtering, changed to each other one: who could answer before still can, in place and in a new table.
#[test]
fn a_change_of_filtering_refuses_nobody_who_could_answer() {
    let (friend, other_port) = (endpoint(SERVER), SocketAddrV4::new(*endpoint(SERVER).ip(), 999));
    let stranger = endpoint("203.0.113.77:53");
    let admits = |router: &Router, public| {
        [friend, other_port, stranger]
            .map(|sender| router.arrive(&testing::udp(sender, public, b"hello")).is_ok())
    };
    let all = Filtering::ALL.into_iter().zip([[true; 3], [true, true, false], [true, false, false]]);
    for (before, could) in all.clone() {
        for (after, as_new) in all.clone() {
            let old = NatConfig { filtering: before, ..testing::config(1) };
            let new = NatConfig { filtering: after, ..old.clone() };
            let begun = || {
                let router = Router::new(&old);
                let public = opened(&router, endpoint(HOST));
                assert_eq!(admits(&router, public), could, "{before:?}");
                (router, public)
            };
            let (in_place, public) = begun();
            in_place.nat.set_behavior(&new);
            let (moved, _) = turn(begun().0, &NatConfig { sessions_max: new.sessions_max / 2, ..new });
            for router in [in_place, moved] {
                let can = admits(&router, public);
                assert!(
                    could.iter().zip(can).all(|(could, can)| !could || can),
                    "{before:?} to {after:?}: {can:?}"
                );
                // What begins now is filtered as the configuration says.
                let fresh = opened(&router, endpoint("192.168.1.3:7000"));
                assert_eq!(admits(&router, fresh), as_new, "{before:?} to {after:?}");
            }
        }
    }
}

#[test]
fn a_packet_that_is_tried_leaves_no_trace() {
    let config = testing::config(1);
    let router = Router::new(&config);
    let attempt = |port_in: u16, bytes: &[u8]| {
        let mut chunk = chunk(&[(port_in, bytes, bytes.len() as u32)], router.now_ns);
        label(&router.labeler, &mut chunk, router.shards);
        let mut batch = chunk.batch(0);
        let trial = router.nat.try_packet(&mut batch, 0, router.now_ns, &mut |_, _, _| ());
        let reason = batch.packets()[0].drop_reason();
        (trial, reason, chunk.frame(0).to_vec())
    };
    let state = |router: &Router| (sessions(router), router.nat.counters());
    let empty = state(&router);
    let out = udp(endpoint(HOST), SERVER);
    let (trial, reason, after) = attempt(INSIDE, &out);
    assert!(trial.is_some_and(|trial| trial.makes_session) && reason.is_none());
    assert_eq!(state(&router), empty);
    assert_eq!(router.leave(&out).unwrap(), after, "what it would do is what it does");
    let one = state(&router);
    let (trial, _, again) = attempt(INSIDE, &out);
    assert!(trial.is_some_and(|trial| !trial.makes_session));
    assert_eq!(again, after);
    assert_eq!(attempt(OUTSIDE, &udp(endpoint(SERVER), "198.51.100.1:9")).1, Some(DropReason::NatNoMapping));
    // From another inside host to the public endpoint of this one.
    let hairpin = udp(endpoint("192.168.1.9:6000"), "198.51.100.1:5000");
    let (trial, reason, after) = attempt(INSIDE, &hairpin);
    assert!(trial.is_some_and(|trial| trial.is_hairpin && trial.makes_session) && reason.is_none());
    assert_eq!(state(&router), one);
    assert_eq!(router.leave(&hairpin).unwrap(), after);
    assert_eq!(attempt(OUTSIDE, &udp(endpoint(SERVER), "192.0.2.1:9")).0, None, "not for NAT");
}
