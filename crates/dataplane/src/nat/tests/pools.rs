//! Groups of inside hosts with public addresses and limits of their own. Which address of its pool a session gets is
//! compared with the slow reference in `reference.rs`.

use super::super::{BlockAllocation, HostLimits, NatGroup, NatLogging, PoolInfo, SubscriberConfig};
use super::*;
use crate::nat::{Happening, NatMigration};
use NatProtocol::{Tcp, Udp};
use std::net::Ipv4Addr;

fn public(n: u8) -> Ipv4Addr {
    [198, 51, 100, n].into()
}

fn group(name: &str, inside: &[&str], addresses: std::ops::Range<usize>) -> NatGroup {
    NatGroup {
        name: name.to_owned(),
        vrf: 0,
        inside: inside.iter().map(|net| net.parse().unwrap()).collect(),
        addresses,
        outside: 0,
        limits: HostLimits::default(),
        ports_max: 16,
    }
}

/// Two addresses for all, and one each for two groups.
fn grouped() -> NatConfig {
    let groups =
        vec![group("few", &["192.168.0.8/30"], 2..3), group("many", &["192.168.0.0/28", "10.0.0.0/8"], 3..4)];
    NatConfig { groups, ..testing::config(4) }
}

fn pool(router: &Router, name: &str) -> PoolInfo {
    router.nat.pools().into_iter().find(|pool| pool.name == name).unwrap()
}

#[test]
fn the_first_group_that_has_a_host_counts_and_the_rest_shares_the_rest() {
    let router = Router::new(&grouped());
    for n in 0..32 {
        let address = *router.open(Udp, host(n, 4000), remote(1, 80)).unwrap().ip();
        match n {
            8..=11 => assert_eq!(address, public(3)),
            0..=15 => assert_eq!(address, public(4)),
            _ => assert!([public(1), public(2)].contains(&address)),
        }
    }
    let used = ["default", "few", "many"].map(|name| pool(&router, name).used);
    assert_eq!(used, [[0, 16, 0], [0, 4, 0], [0, 12, 0]]);
    let few = pool(&router, "few");
    assert_eq!((few.addresses, few.ports, few.refused), (1, 64_512, 0));
    // Answers come back, and protocols without ports have the pool's addresses too.
    assert_eq!(
        router.enter(Udp, remote(1, 80), at([198, 51, 100, 3], 4000)).unwrap().ip().octets()[3] / 4,
        2
    );
    let gre = testing::ipv4(u32::from(*host(9, 0).ip()), u32::from(*remote(5, 0).ip()), 47, 0, &[0; 8]);
    assert_eq!(router.leave(&gre).unwrap()[12..16], public(3).octets());
}

#[test]
fn a_full_pool_refuses_its_hosts_and_no_others() {
    let config = NatConfig { shards: 1, port_range: 2000..=2003, ..grouped() };
    let router = Router::new(&config);
    for port in 0..4 {
        router.open(Tcp, host(8, 5000 + port), remote(1, 80)).unwrap();
    }
    assert_eq!(router.open(Tcp, host(9, 5000), remote(1, 80)), Err(DropReason::NatPortsExhausted));
    router.open(Tcp, host(1, 5000), remote(1, 80)).unwrap();
    router.open(Tcp, host(20, 5000), remote(1, 80)).unwrap();
    let refused = ["default", "few", "many"].map(|name| pool(&router, name).refused);
    assert_eq!((refused, pool(&router, "few").used), ([0, 1, 0], [4, 0, 0]));
}

#[test]
fn a_group_has_limits_of_its_own() {
    let mut config = NatConfig { shards: 1, ..grouped() };
    config.hosts.sessions_max = Some(3);
    config.groups[0].limits.sessions_max = Some(5);
    let router = Router::new(&config);
    let opened =
        |n| (0..10).filter(|port| router.open(Udp, host(n, 4000 + port), remote(1, 80)).is_ok()).count();
    assert_eq!([opened(8), opened(30), opened(1)], [5, 3, 10]);
    assert_eq!(router.open(Udp, host(8, 9), remote(1, 80)), Err(DropReason::NatHostLimit));
    assert_eq!(pool(&router, "few").refused, 6);
}

#[test]
fn a_reload_moves_new_sessions_alone() {
    let old = NatConfig { groups: Vec::new(), ..testing::config(2) };
    let router = Router::new(&old);
    let before = router.open(Udp, host(8, 4000), remote(1, 80)).unwrap();
    // The addresses are as before, so the table stays.
    let new = NatConfig { groups: vec![group("few", &["192.168.0.8/32"], 1..2)], ..old.clone() };
    assert!(new.has_table_of(&old));
    router.nat.set_behavior(&new);
    assert_eq!(router.open(Udp, host(8, 4000), remote(1, 80)).unwrap(), before);
    for port in 0..50 {
        assert_eq!(*router.open(Udp, host(8, 5000 + port), remote(1, 80)).unwrap().ip(), public(2));
        assert_eq!(*router.open(Udp, host(7, 5000 + port), remote(1, 80)).unwrap().ip(), public(1));
    }
}

#[test]
fn a_new_pool_ends_no_session_in_blocks_and_the_log_names_the_pool() {
    let subscribers = SubscriberConfig { block_size: 16, ports_max: 32, ..SubscriberConfig::default() };
    let old = NatConfig {
        shards: 1,
        port_range: 2048..=2175,
        subscribers: Some(subscribers),
        ..testing::config(1)
    };
    let router = Router::new(&old);
    router.nat.set_logging(Some(NatLogging::Blocks));
    let before: Vec<_> = (1..=4).map(|n| router.open(Udp, host(n, 4000), remote(1, 80)).unwrap()).collect();
    let new = NatConfig {
        groups: vec![NatGroup { ports_max: 32, ..group("few", &["192.168.0.2/31"], 1..2) }],
        public_addresses: vec![public(1), public(2)],
        ..old
    };
    let next = Router { now_ns: router.now_ns, ..Router::new(&new) };
    next.nat.set_logging(Some(NatLogging::Blocks));
    assert_eq!(next.nat.migrate_from(&router.nat), NatMigration { kept: 4, displaced: 0 });
    for (n, public) in (1..).zip(&before) {
        assert_eq!(next.open(Udp, host(n, 4000), remote(1, 80)).unwrap(), *public);
        assert_eq!(next.enter(Udp, remote(1, 80), *public).unwrap(), host(n, 4000));
    }
    // Nobody gets a block that is taken, and the group leaves the old address.
    for n in 1..=4 {
        let address = *next.open(Udp, host(n, 4001), remote(1, 80)).unwrap().ip();
        assert_eq!(address, public(if n == 2 || n == 3 { 2 } else { 1 }));
    }
    let mut blocks = Vec::new();
    next.nat.hand_out_events(&mut |event| match event.what {
        Happening::Block { allocated, subscriber, pool, .. } => {
            blocks.push((allocated, subscriber, pool));
        }
        other => panic!("{other:?}"),
    });
    let known = |n: u8| IpAddr::V4(*host(n, 0).ip());
    let given_back = (1..=4).map(|n| (false, known(n), 0));
    let adopted = (1..=4).map(|n| (true, known(n), 0));
    let mut expected: Vec<_> = (1..=4)
        .map(|n| (true, known(n), 0))
        .chain(given_back)
        .chain(adopted)
        .chain([(true, known(2), 1), (true, known(3), 1)])
        .collect();
    blocks.sort();
    expected.sort();
    assert_eq!(blocks, expected);
    assert_eq!((pool(&next, "few").blocks, pool(&next, "few").blocks_used), (8, 2));
    let counters = next.nat.counters();
    assert_eq!((counters.blocks_active, counters.subscribers_active), (6, 4));
}

#[test]
fn deterministic_blocks_of_a_group_are_on_its_addresses() {
    let networks = vec!["192.168.0.0/29".parse().unwrap()];
    let subscribers = SubscriberConfig {
        allocation: BlockAllocation::Deterministic(networks),
        block_size: 16,
        ports_max: 16,
        ..SubscriberConfig::default()
    };
    let config = NatConfig {
        shards: 1,
        port_range: 2048..=2175,
        subscribers: Some(subscribers),
        groups: vec![group("few", &["192.168.0.8/30"], 1..2)],
        ..testing::config(2)
    };
    let router = Router::new(&config);
    for n in 0..12 {
        let got = router.open(Udp, host(n, 4000), remote(1, 80)).unwrap();
        let (address, ports) = config.block_of(*host(n, 0).ip()).unwrap();
        assert!(*got.ip() == address && ports.contains(&got.port()), "{got}");
        assert_eq!(address, public(if n < 8 { 1 } else { 2 }));
        assert_eq!(config.subscriber_of(address, got.port()), Some(*host(n, 0).ip()));
    }
}

#[test]
fn wrong_groups_are_refused() {
    let with = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = grouped();
        change(&mut config);
        config.validate().map_err(|error| error.to_string().split(' ').take(2).collect::<Vec<_>>().join(" "))
    };
    let refused = |name: &str| Err(format!("group {name}"));
    assert_eq!(with(&|_| ()), Ok(()));
    assert_eq!(with(&|c| c.groups[1].addresses = 2..4), refused("many"));
    assert_eq!(with(&|c| c.groups[1].addresses = 3..5), refused("many"));
    assert_eq!(with(&|c| c.groups[0].addresses = 2..2), refused("few"));
    assert_eq!(with(&|c| c.groups[0].inside.clear()), refused("few"));
    assert_eq!(with(&|c| c.groups[0].limits.new_per_second = Some(0)), refused("few"));
}
