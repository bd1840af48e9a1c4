//! Limits of one host, forged sources, and sessions that end early.

use super::super::{Filtering, HostLimits};
use super::*;
use crate::nat::testing::{config, tcp, tcp_numbered};

fn limited(hosts: HostLimits) -> NatConfig {
    NatConfig { shards: 1, sessions_max: 4000, hosts, ..config(1) }
}

/// SYNs of a host from this many ports; returns how many created a session.
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
    // Ended sessions do not count.
    router.wait_s(300);
    router.nat.advance(router.now_ns);
    assert_eq!(flood(&router, 1, 2000..9000), 300);
}

/// By default, at a large site and at small ones: all hosts can browse while one floods with all its ports.
#[test]
fn by_default_a_flood_costs_no_ordinary_host_a_session() {
    for (sessions_max, hosts, sessions_each) in [(65_536, 1000, 40), (4096, 60, 30), (1024, 8, 30)] {
        let limits = HostLimits::fair(sessions_max);
        let mut router = Router::new(&NatConfig { sessions_max, hosts: limits, ..config(1) });
        let (mut refused, flooder) = (Vec::new(), [192, 168, 255, 1]);
        for second in 0..4u16 {
            for port in 0..5000 {
                let _ =
                    router.open(NatProtocol::Tcp, at(flooder, 1024 + 5000 * second + port), remote(1, 80));
            }
            for n in (0..hosts * sessions_each).filter(|n| n % 4 == second) {
                let (host, session) = (n % hosts, n / hosts);
                let port =
                    1024 + (thalweg_base::mix64(u64::from(host) << 16 | u64::from(session)) % 60_000) as u16;
                let from = at([192, 168, (host >> 8) as u8, host as u8], port);
                refused.extend(router.open(NatProtocol::Udp, from, remote(2, 443)).err());
            }
            router.wait_s(1);
        }
        assert_eq!(refused, [], "of {sessions_max}");
        let taken =
            router.sessions().iter().filter(|session| session.inside.ip() == IpAddr::from(flooder)).count();
        let limit = limits.sessions_max.unwrap() as usize;
        assert!((limit..=limit * 5).contains(&taken), "{taken} of {limit}");
        assert!(taken * 3 < sessions_max as usize, "{taken} of {sessions_max}");
    }
}

#[test]
fn the_limits_of_hosts_change_while_sessions_go_on() {
    let none = limited(HostLimits::default());
    let router = Router::new(&none);
    assert_eq!(flood(&router, 1, 2000..3000), 1000);
    let hosts = HostLimits { sessions_max: Some(500), ..HostLimits::default() };
    router.nat.set_behavior(&limited(hosts));
    assert_eq!(flood(&router, 1, 3000..3100), 0);
    assert_eq!(flood(&router, 2, 3000..3100), 100);
    // A new table counts what it takes over.
    let next = Router::new(&NatConfig { sessions_max: 5000, ..limited(hosts) });
    next.nat.migrate_from(&router.nat);
    assert_eq!((flood(&next, 1, 4000..4100), flood(&next, 2, 4000..5000)), (0, 400));
}

#[test]
fn refused_connections_leave_within_ten_seconds() {
    let mut router = Router::new(&config(1));
    for port in 2000..2100 {
        let public = router.open(NatProtocol::Tcp, host(1, port), remote(1, 80)).unwrap();
        router.arrive(&tcp_numbered(remote(1, 80), public, RST | 16, [0, 1])).unwrap();
    }
    // One that is open, and one that its host has reset: the other sessions in the wheel's buckets are unaffected.
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
    assert_eq!(left, [host(1, 2050), host(2, 2000)].map(SocketAddr::from));
    router.wait_s(240);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 1, "the open one alone");
    assert!(router.enter(NatProtocol::Tcp, remote(1, 80), open).is_ok());
}

/// Opens a connection of host 1 from this port, which then expects number 1001. Returns its public endpoint.
fn open(router: &Router, port: u16) -> SocketAddrV4 {
    let syn = router.leave(&tcp_numbered(host(1, port), remote(1, 80), SYN, [500, 0])).unwrap();
    let public = source(&syn);
    router.arrive(&tcp_numbered(remote(1, 80), public, SYN_ACK, [1000, 501])).unwrap();
    router.leave(&tcp_numbered(host(1, port), remote(1, 80), ACK, [501, 1001])).unwrap();
    public
}

/// A RST from outside; returns how many sessions are left eleven seconds later.
fn left_after_reset(router: &mut Router, public: SocketAddrV4, flags: u8, numbers: [u32; 2]) -> u64 {
    router.arrive(&tcp_numbered(remote(1, 80), public, flags, numbers)).unwrap();
    router.wait_s(11);
    router.nat.advance(router.now_ns);
    router.nat.counters().sessions_active
}

#[test]
fn a_connection_reset_from_outside_leaves_within_ten_seconds_if_the_reset_is_proven() {
    for filtering in Filtering::ALL {
        let config = NatConfig { filtering, ..config(1) };
        // The number, and whether the connection is over: only with the exact one, whether the host is idle or not.
        for (sequence, left) in [(1001, 0), (1000, 1), (1002, 1), (0, 1), (501, 1)] {
            let mut router = Router::new(&config);
            let public = open(&router, 4000);
            router.wait_s(3000);
            assert_eq!(left_after_reset(&mut router, public, RST, [sequence, 0]), left, "{sequence}");
            router.wait_s(231);
            router.nat.advance(router.now_ns);
            assert_eq!(router.nat.counters().sessions_active, 0, "four minutes after the others");
        }
    }
    // Data that the host acknowledges moves the number; a connection that both have closed can be reset too.
    let mut router = Router::new(&config(1));
    let public = open(&router, 4000);
    router.leave(&tcp_numbered(host(1, 4000), remote(1, 80), FIN, [501, 3001])).unwrap();
    router.arrive(&tcp_numbered(remote(1, 80), public, FIN, [3001, 502])).unwrap();
    router.leave(&tcp_numbered(host(1, 4000), remote(1, 80), ACK, [502, 3002])).unwrap();
    assert_eq!(left_after_reset(&mut router, public, RST, [3001, 0]), 1);
    assert_eq!(left_after_reset(&mut router, public, RST, [3002, 0]), 0);
}

#[test]
fn a_reset_that_the_host_survives_does_no_harm() {
    let mut router = Router::new(&config(1));
    let public = open(&router, 4000);
    router.arrive(&tcp_numbered(remote(1, 80), public, RST, [1001, 0])).unwrap();
    router.wait_s(9);
    router.leave(&tcp_numbered(host(1, 4000), remote(1, 80), ACK, [501, 1001])).unwrap();
    router.arrive(&tcp_numbered(remote(1, 80), public, ACK, [1001, 501])).unwrap();
    router.wait_s(7000);
    router.nat.advance(router.now_ns);
    assert_eq!(router.sessions()[0].state, crate::nat::SessionState::Established);
}

#[test]
fn a_refusal_has_to_answer_the_syn() {
    for (numbers, left) in [([0, 501], 0), ([0, 500], 1), ([501, 0], 1)] {
        let mut router = Router::new(&config(1));
        let syn = router.leave(&tcp_numbered(host(1, 4000), remote(1, 80), SYN, [500, 0])).unwrap();
        assert_eq!(left_after_reset(&mut router, source(&syn), RST | ACK, numbers), left, "{numbers:?}");
    }
}

#[test]
fn a_reset_of_one_connection_leaves_another_of_the_same_endpoint() {
    let mut router = Router::new(&config(1));
    let public = open(&router, 4000);
    assert_eq!(open(&router, 4000), public, "the same mapping carries both");
    assert_eq!(left_after_reset(&mut router, public, RST, [1001, 0]), 1);
    router.leave(&tcp_numbered(host(1, 4000), remote(2, 80), RST, [501, 0])).unwrap();
    router.wait_s(200);
    assert!(router.enter(NatProtocol::Tcp, remote(2, 80), public).is_ok());
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
    // More than half of the table is in use, so half-open sessions do not live for four minutes.
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
        router.nat.end_sessions(router.now_ns, EndedBy::Request, which, |_| false)
    };
    assert_eq!(end(&|session| session.inside.ip() == *host(2, 0).ip()), 50);
    assert_eq!(end(&|session| session.inside == SocketAddr::V4(host(1, 2007))), 1);
    assert_eq!(end(&|session| session.inside == SocketAddr::V4(host(1, 2007))), 0, "it is over");
    let counters = router.nat.counters();
    assert_eq!((counters.sessions_active, counters.sessions_cleared), (99, 51));
    let gone = router.enter(NatProtocol::Tcp, remote(1, 80), at([198, 51, 100, 1], 2007));
    assert_eq!(gone, Err(DropReason::NatNoMapping));
    // The port is free again, and the rest ends in due time.
    assert_eq!(router.open(NatProtocol::Tcp, host(2, 2007), remote(1, 80)), Ok(at([198, 51, 100, 1], 2007)));
    router.wait_s(300);
    router.nat.advance(router.now_ns);
    assert_eq!(router.nat.counters().sessions_active, 0);
}
