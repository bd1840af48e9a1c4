//! What one host can take, what forged sources get, and who leaves early.

use super::super::HostLimits;
use super::*;
use crate::nat::testing::{config, tcp};

fn limited(hosts: HostLimits) -> NatConfig {
    NatConfig { shards: 1, sessions_max: 4000, hosts, ..config(1) }
}

/// SYNs of a host from so many ports; how many made a session.
fn flood(router: &Router, n: u8, ports: std::ops::Range<u16>) -> usize {
    ports.filter(|port| router.open(NatProtocol::Tcp, host(n, *port), remote(1, 80)).is_ok()).count()
}

#[test]
fn a_flood_of_one_host_leaves_others_their_sessions() {
    let hosts = HostLimits { sessions_max: Some(500), new_per_second: Some(300), drops_half_open: true };
    let mut router = Router::new(&limited(hosts));
    assert_eq!(flood(&router, 1, 2000..9000), 300, "so many in a second");
    let refused = router.open(NatProtocol::Tcp, host(1, 9000), remote(1, 80));
    assert_eq!(refused, Err(DropReason::NatHostRate));
    assert_eq!(flood(&router, 2, 2000..2100), 100, "another host has its own");
    router.wait_s(1);
    assert_eq!(flood(&router, 1, 10_000..19_000), 200, "so many in all");
    let refused = router.open(NatProtocol::Tcp, host(1, 9000), remote(1, 80));
    assert_eq!(refused, Err(DropReason::NatHostLimit));
    assert!(router.open(NatProtocol::Tcp, host(1, 2000), remote(2, 80)).is_ok(), "what it has goes on");
    let counters = router.nat.counters();
    assert_eq!(
        (counters.sessions_active, counters.host_limit > 8000, counters.host_rate > 6000),
        (600, true, true)
    );
    // What has ended counts no more.
    router.wait_s(300);
    router.nat.advance(router.now_ns);
    assert_eq!(flood(&router, 1, 2000..9000), 300);
}

#[test]
fn the_limits_of_hosts_change_while_sessions_go_on() {
    let none = limited(HostLimits::default());
    let router = Router::new(&none);
    assert_eq!(flood(&router, 1, 2000..3000), 1000);
    let hosts = HostLimits { sessions_max: Some(500), ..HostLimits::default() };
    router.nat.set_behaviour(&limited(hosts));
    assert_eq!(flood(&router, 1, 3000..3100), 0);
    assert_eq!(flood(&router, 2, 3000..3100), 100);
    // Another table counts what it takes over.
    let next = Router::new(&NatConfig { sessions_max: 5000, ..limited(hosts) });
    next.nat.inherit(&router.nat);
    assert_eq!((flood(&next, 1, 4000..4100), flood(&next, 2, 4000..5000)), (0, 400));
}

#[test]
fn refused_connections_leave_within_ten_seconds() {
    let mut router = Router::new(&config(1));
    for port in 2000..2100 {
        let public = router.open(NatProtocol::Tcp, host(1, port), remote(1, 80)).unwrap();
        router.arrive(&tcp(remote(1, 80), public, RST | 16)).unwrap();
    }
    // One that is open, and one that its host has reset: the other connections of the wheel's buckets stay whole.
    let open = router.open(NatProtocol::Tcp, host(2, 2000), remote(1, 80)).unwrap();
    router.arrive(&tcp(remote(1, 80), open, SYN_ACK)).unwrap();
    let reset = router.open(NatProtocol::Tcp, host(2, 2001), remote(1, 80)).unwrap();
    router.arrive(&tcp(remote(1, 80), reset, SYN_ACK)).unwrap();
    router.leave(&tcp(host(2, 2001), remote(1, 80), RST)).unwrap();
    let again = router.open(NatProtocol::Tcp, host(1, 2050), remote(1, 80)).unwrap();
    assert_eq!(again.port(), 2050, "asked again, the same session");
    router.wait_s(11);
    router.nat.advance(router.now_ns);
    let mut left: Vec<_> = router.sessions().iter().map(|session| session.inside).collect();
    left.sort_unstable();
    assert_eq!(left, [host(1, 2050), host(2, 2000)]);
    router.wait_s(240);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 1, "the open one alone");
    assert!(router.enter(NatProtocol::Tcp, remote(1, 80), open).is_ok());
}

#[test]
fn half_open_sessions_make_room_and_others_stay() {
    let hosts = HostLimits { drops_half_open: true, ..HostLimits::default() };
    let mut router = Router::new(&NatConfig { shards: 1, sessions_max: 100, hosts, ..config(1) });
    let mut open = Vec::new();
    for port in 2000..2040 {
        let public = router.open(NatProtocol::Tcp, host(1, port), remote(1, 80)).unwrap();
        router.arrive(&tcp(remote(1, 80), public, SYN_ACK)).unwrap();
        open.push(public);
    }
    assert_eq!(flood(&router, 2, 3000..3060), 60);
    assert_eq!(flood(&router, 3, 4000..4001), 0, "a handshake has some seconds");
    router.wait_s(5);
    assert_eq!(flood(&router, 3, 4000..4060), 60, "then it makes room");
    assert_eq!(flood(&router, 4, 5000..5001), 0);
    assert_eq!(router.nat.counters().half_open_dropped, 60);
    for public in &open {
        assert!(router.enter(NatProtocol::Tcp, remote(1, 80), *public).is_ok(), "those that are open stay");
    }
    // More than half of the table is in use: what is half-open does not live for four minutes.
    router.wait_s(31);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 40, "the open ones alone");
}

#[test]
fn half_open_sessions_live_as_long_as_ever_where_nothing_presses() {
    let hosts = HostLimits { drops_half_open: true, ..HostLimits::default() };
    let mut router = Router::new(&limited(hosts));
    assert_eq!(flood(&router, 1, 2000..2100), 100);
    router.wait_s(239);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 100);
}

#[test]
fn sessions_can_be_ended() {
    let mut router = Router::new(&config(1));
    for n in 1..=3u8 {
        assert_eq!(flood(&router, n, 2000..2050), 50);
    }
    router.wait_s(3);
    let end = |which: &dyn Fn(&SessionInfo) -> bool| {
        let (mut ended, mut next) = (0, Some(Cursor::default()));
        while let Some(from) = next {
            let (of_slice, rest) = router.nat.end_sessions(from, router.now_ns, which, |_| false);
            ended += of_slice;
            next = rest;
        }
        ended
    };
    assert_eq!(end(&|session| session.inside.ip() == host(2, 0).ip()), 50);
    assert_eq!(end(&|session| session.inside == host(1, 2007)), 1);
    assert_eq!(end(&|session| session.inside == host(1, 2007)), 0, "it is over");
    let counters = router.nat.counters();
    assert_eq!((counters.sessions_active, counters.sessions_cleared), (99, 51));
    let gone = router.enter(NatProtocol::Tcp, remote(1, 80), at([198, 51, 100, 1], 2007));
    assert_eq!(gone, Err(DropReason::NatNoMapping));
    // The port is free again, and what is left ends when its time comes.
    assert_eq!(router.open(NatProtocol::Tcp, host(2, 2007), remote(1, 80)), Ok(at([198, 51, 100, 1], 2007)));
    router.wait_s(300);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 0);
}
