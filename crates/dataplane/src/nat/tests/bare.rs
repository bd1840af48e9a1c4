//! Protocols without ports.

use super::*;
use crate::nat::testing::{config, ipv4};

const GRE: u8 = 47;
const SCTP: u8 = 132;

fn packet(protocol: u8, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    ipv4(u32::from(*from.ip()), u32::from(*to.ip()), protocol, 0, &[0xa5; 24])
}

fn addresses(bytes: &[u8]) -> ([u8; 4], [u8; 4]) {
    (bytes[12..16].try_into().unwrap(), bytes[16..20].try_into().unwrap())
}

#[test]
fn one_inside_host_speaks_a_protocol_with_a_peer() {
    let router = Router::new(&config(1));
    let public = at([198, 51, 100, 1], 0);
    for protocol in [GRE, 50, 51, SCTP, 41, 255] {
        let out = router.leave(&packet(protocol, host(1, 0), remote(1, 0))).unwrap();
        assert_eq!(addresses(&out), (public.ip().octets(), remote(1, 0).ip().octets()));
        assert_eq!(out[20..], [0xa5; 24], "nothing but addresses");
        let back = router.arrive(&packet(protocol, remote(1, 0), public)).unwrap();
        assert_eq!(addresses(&back).1, host(1, 0).ip().octets());
        let second = router.leave(&packet(protocol, host(2, 0), remote(1, 0)));
        assert_eq!(second, Err(DropReason::NatPeerTaken));
        assert!(router.leave(&packet(protocol, host(2, 0), remote(2, 0))).is_ok(), "another peer");
        let stranger = router.arrive(&packet(protocol, remote(3, 0), public));
        assert_eq!(stranger, Err(DropReason::NatNoMapping));
    }
    let counters = router.nat.counters();
    assert_eq!((counters.bare_active, counters.bare_created, counters.peer_taken), (12, 12, 6));
    assert_eq!(counters.bare_translated, 18);
}

#[test]
fn another_public_address_takes_the_second_host() {
    let router = Router::new(&config(2));
    let publics: std::collections::HashSet<_> = (1..=2)
        .map(|n| addresses(&router.leave(&packet(GRE, host(n, 0), remote(1, 0))).unwrap()).0)
        .collect();
    assert_eq!(publics.len(), 2);
    assert_eq!(router.leave(&packet(GRE, host(3, 0), remote(1, 0))), Err(DropReason::NatPeerTaken));
}

#[test]
fn sessions_without_ports_end_and_go_on_in_another_table() {
    let mut router = Router::new(&config(1));
    let public = at([198, 51, 100, 1], 0);
    router.leave(&packet(GRE, host(1, 0), remote(1, 0))).unwrap();
    let next = Router { now_ns: router.now_ns, ..Router::new(&NatConfig { shards: 16, ..config(1) }) };
    assert_eq!(next.nat.migrate_from(&router.nat).kept, 1);
    assert!(next.arrive(&packet(GRE, remote(1, 0), public)).is_ok());
    for _ in 0..3 {
        router.wait_s(500);
        assert!(router.arrive(&packet(GRE, remote(1, 0), public)).is_ok(), "kept by its peer");
    }
    router.wait_s(602);
    assert_eq!(router.arrive(&packet(GRE, remote(1, 0), public)), Err(DropReason::NatNoMapping));
    assert!(router.leave(&packet(GRE, host(2, 0), remote(1, 0))).is_ok(), "its place is another's");
    let mut shown = Vec::new();
    router.nat.bare_sessions(router.now_ns, |_| true, &mut shown);
    assert_eq!((shown.len(), shown[0].inside), (1, *host(2, 0).ip()));
    let ended = router.nat.end_sessions(router.now_ns, EndedBy::Configuration, |_| false, |_| true);
    let counters = router.nat.counters();
    assert_eq!((ended, counters.bare_active, counters.sessions_displaced), (1, 0, 1));
}

#[test]
fn errors_about_packets_without_ports_find_their_way() {
    let router = Router::new(&config(1));
    let out = router.leave(&packet(50, host(1, 0), remote(1, 0))).unwrap();
    let error = |about: &[u8], to: SocketAddrV4| {
        testing::icmp(u32::from(*remote(9, 0).ip()), u32::from(*to.ip()), 3, [0, 0, 5, 0], about)
    };
    let back = router.arrive(&error(&out, at([198, 51, 100, 1], 0))).unwrap();
    assert_eq!(addresses(&back).1, host(1, 0).ip().octets());
    assert_eq!(addresses(&back[28..]), (host(1, 0).ip().octets(), remote(1, 0).ip().octets()));
    checksums(&back).unwrap();
}

#[test]
fn fragments_need_no_first_and_the_router_has_its_own() {
    let router = Router::new(&config(1));
    router.leave(&packet(GRE, host(1, 0), remote(1, 0))).unwrap();
    let later = ipv4(u32::from(*host(1, 0).ip()), u32::from(*remote(1, 0).ip()), GRE, 100, &[1; 8]);
    assert!(router.leave(&later).is_ok());
    let public = at([198, 51, 100, 1], 0);
    router.nat.claim_bare(50, *public.ip(), *remote(1, 0).ip(), router.now_ns);
    assert_eq!(router.arrive(&packet(50, remote(1, 0), public)), Err(DropReason::NatNoMapping));
    assert_eq!(router.leave(&packet(50, host(1, 0), remote(1, 0))), Err(DropReason::NatPeerTaken));
    router.nat.claim_bare(GRE, *public.ip(), *remote(1, 0).ip(), router.now_ns);
    assert_eq!(router.nat.counters().router_displaced, 1);
}

#[test]
fn one_host_does_not_take_the_whole_table() {
    let router = Router::new(&NatConfig { shards: 1, sessions_max: 1600, ..config(1) });
    let opened = |n: u8| {
        (1..=250u8).filter(|peer| router.leave(&packet(GRE, host(n, 0), remote(*peer, 0))).is_ok()).count()
    };
    assert_eq!(opened(1), 25);
    assert_eq!(router.leave(&packet(GRE, host(1, 0), remote(251, 0))), Err(DropReason::NatHostLimit));
    assert_eq!(router.leave(&packet(GRE, host(2, 0), remote(251, 0))).map(|_| ()), Ok(()));
}
