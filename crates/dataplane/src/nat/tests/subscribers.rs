//! Blocks of ports and limits for each subscriber (RFC 6888, RFC 7422), also compared with a slow reference that
//! keeps a list of sessions and derives from it who has which block.

use super::*;
use crate::nat::testing::config;
use crate::nat::{BlockAllocation, NatTimeouts, SubscriberConfig};
use NatProtocol::{Icmp, Tcp, Udp};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn with(subscribers: SubscriberConfig) -> NatConfig {
    NatConfig { shards: 1, port_range: 2048..=2175, subscribers: Some(subscribers), ..config(1) }
}

fn dynamic(ports_max: u32, sessions_max: u32) -> NatConfig {
    with(SubscriberConfig { block_size: 16, ports_max, sessions_max, ..SubscriberConfig::default() })
}

fn deterministic() -> NatConfig {
    let networks = vec!["192.168.0.0/29".parse().unwrap()];
    with(SubscriberConfig {
        allocation: BlockAllocation::Deterministic(networks),
        block_size: 16,
        ..SubscriberConfig::default()
    })
}

fn blocks(router: &Router) -> Vec<(IpAddr, u16, [u16; 3])> {
    let mut all = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        next = router.nat.blocks(from, |_| true, &mut all);
    }
    all.sort_by_key(|block| (block.public, *block.ports.start()));
    all.iter().map(|block| (block.inside, *block.ports.start(), block.sessions)).collect()
}

#[test]
fn rfc6888_req4_a_subscriber_at_its_limit_is_refused_and_others_are_not() {
    let router = Router::new(&dynamic(20, 50));
    for port in 0..20 {
        router.open(Udp, host(1, 4000 + port), remote(1, 80)).unwrap();
    }
    assert_eq!(router.open(Udp, host(1, 5000), remote(1, 80)), Err(DropReason::NatPortLimit));
    assert!(router.open(Udp, host(1, 4003), remote(9, 80)).is_ok(), "REQ-11d: what exists goes on");
    for port in 0..20 {
        router.open(Tcp, host(1, 4000 + port), remote(1, 80)).unwrap();
    }
    for port in 0..10 {
        router.open(Icmp, host(1, 4000 + port), remote(1, 80)).unwrap();
    }
    assert_eq!(router.open(Icmp, host(1, 4010), remote(1, 80)), Err(DropReason::NatPortLimit), "of sessions");
    assert!(router.open(Udp, host(2, 4000), remote(1, 80)).is_ok());
    let counters = router.nat.counters();
    assert_eq!((counters.port_limit, counters.ports_exhausted, counters.table_full), (2, 0, 0));
    assert_eq!((counters.subscribers_active, counters.blocks_active), (2, 3));
}

#[test]
fn rfc6888_req11_without_a_free_block_new_subscribers_are_refused_and_known_ones_go_on() {
    let mut router = Router::new(&dynamic(16, 100));
    let mut public = Vec::new();
    for n in 1..=8 {
        public.push(router.open(Udp, host(n, 4000), remote(1, 80)).unwrap());
    }
    assert_eq!(router.open(Udp, host(9, 4000), remote(1, 80)), Err(DropReason::NatPortsExhausted));
    for n in 1..=8u8 {
        assert!(router.open(Udp, host(n, 4001), remote(1, 80)).is_ok(), "there is room in its block");
        assert!(router.enter(Udp, remote(7, 7), public[usize::from(n) - 1]).is_ok());
    }
    assert_eq!(router.nat.counters().ports_exhausted, 1);
    // REQ-8: a released block waits 120 s.
    router.wait_s(301 + 119);
    assert_eq!(router.open(Udp, host(9, 4000), remote(1, 80)), Err(DropReason::NatPortsExhausted));
    router.wait_s(1);
    assert!(router.open(Udp, host(9, 4000), remote(1, 80)).is_ok());
}

#[test]
fn rfc7422_ports_follow_from_the_address() {
    let config = deterministic();
    let router = Router::new(&config);
    for n in (1..8).rev() {
        for port in [4000, 4001, 77] {
            for protocol in NatProtocol::ALL {
                let public = router.open(protocol, host(n, port), remote(1, 80)).unwrap();
                let (address, ports) = config.block_of(*host(n, 0).ip()).unwrap();
                assert!(*public.ip() == address && ports.contains(&public.port()));
                assert_eq!(ports, 2048 + 16 * u16::from(n)..=2063 + 16 * u16::from(n));
                assert_eq!(config.subscriber_of(address, public.port()), Some(*host(n, 0).ip()));
                assert_eq!(public.port() & 1, port & 1);
            }
        }
    }
    assert_eq!(router.open(Udp, host(8, 4000), remote(1, 80)), Err(DropReason::NatPortLimit), "nobody's");
    for port in 0..13 {
        router.open(Tcp, host(1, 5000 + port), remote(1, 80)).unwrap();
    }
    assert_eq!(router.open(Tcp, host(1, 6000), remote(1, 80)), Err(DropReason::NatPortLimit));
    assert_eq!(blocks(&router)[0], (IpAddr::V4(*host(1, 0).ip()), 2064, [16, 3, 3]));
}

#[test]
fn blocks_come_from_the_subscribers_own_address_first() {
    let mut config = dynamic(64, 1000);
    config.public_addresses.push([198, 51, 100, 9].into());
    let router = Router::new(&config);
    let first = router.open(Udp, host(1, 4000), remote(1, 80)).unwrap();
    for port in 0..63 {
        assert_eq!(router.open(Udp, host(1, 5000 + port), remote(1, 80)).unwrap().ip(), first.ip());
    }
    let counters = router.nat.counters();
    assert_eq!((counters.unpaired, counters.blocks_active), (0, 4));
}

#[test]
fn wrong_subscribers_are_refused() {
    let with = |change: &dyn Fn(&mut NatConfig, &mut SubscriberConfig)| {
        let mut config = dynamic(16, 16);
        let mut subscribers = config.subscribers.clone().unwrap();
        change(&mut config, &mut subscribers);
        config.subscribers = Some(subscribers);
        config.validate().map_err(|error| error.to_string())
    };
    let told = |text: &str| Err(text.to_owned());
    assert_eq!(with(&|_, _| ()), Ok(()));
    assert_eq!(
        with(&|_, s| s.block_size = 24),
        told("blocks of 24 ports; expected a power of two from 16 to 16384")
    );
    assert_eq!(with(&|_, s| s.ports_max = 0), told("a subscriber needs at least one port and one session"));
    assert_eq!(with(&|c, _| c.shards = 16), told("8 port blocks leave some of 16 shards without one"));
    let networks =
        |nets: &[&str]| BlockAllocation::Deterministic(nets.iter().map(|net| net.parse().unwrap()).collect());
    assert_eq!(
        with(&|_, s| s.allocation = networks(&["10.0.0.0/28"])),
        told("16 subscribers share 8 port blocks; each needs its own")
    );
    assert_eq!(
        with(&|_, s| s.allocation = networks(&["10.0.0.0/30", "10.0.0.2/31"])),
        told("subscribers 10.0.0.2/31 are given twice")
    );
}

/// The reference's record of a session.
struct Known {
    protocol: NatProtocol,
    inside: SocketAddrV4,
    public: SocketAddrV4,
    ends_s: u64,
}

/// The reference: sessions in a list, from which blocks are derived.
#[derive(Default)]
struct Reference {
    sessions: Vec<Known>,
    /// When a released block may be assigned again.
    held: HashMap<(std::net::Ipv4Addr, u16), u64>,
}

const SIZE: u16 = 16;
const LIFE_S: u64 = 5;
const HOLD_S: u64 = 3;

fn block_of(public: SocketAddrV4) -> (std::net::Ipv4Addr, u16) {
    (*public.ip(), public.port() / SIZE)
}

impl Reference {
    fn expire(&mut self, now_s: u64) {
        let ended: Vec<_> = self
            .sessions
            .iter()
            .filter(|s| s.ends_s < now_s)
            .map(|s| (block_of(s.public), s.ends_s))
            .collect();
        self.sessions.retain(|s| s.ends_s >= now_s);
        for (block, ends_s) in ended {
            if self.sessions.iter().all(|s| block_of(s.public) != block) {
                let held = self.held.entry(block).or_default();
                *held = (*held).max(ends_s + 1 + HOLD_S);
            }
        }
    }

    fn blocks_of(&self, inside: std::net::Ipv4Addr) -> HashSet<(std::net::Ipv4Addr, u16)> {
        self.sessions.iter().filter(|s| *s.inside.ip() == inside).map(|s| block_of(s.public)).collect()
    }

    /// Whether the session may be created, and if not, why.
    fn judge(
        &self,
        config: &NatConfig,
        protocol: NatProtocol,
        inside: SocketAddrV4,
        now_s: u64,
    ) -> Option<DropReason> {
        let limits = config.subscribers.as_ref().unwrap();
        let own = || self.sessions.iter().filter(|s| s.inside.ip() == inside.ip());
        let of_protocol = own().filter(|s| s.protocol == protocol).count();
        if of_protocol >= limits.ports_max as usize || own().count() >= limits.sessions_max as usize {
            return Some(DropReason::NatPortLimit);
        }
        let blocks = self.blocks_of(*inside.ip());
        let room = |block: &(std::net::Ipv4Addr, u16)| {
            let used =
                self.sessions.iter().filter(|s| s.protocol == protocol && block_of(s.public) == *block);
            used.count() < usize::from(SIZE)
        };
        if blocks.iter().any(room) {
            return None;
        }
        match &limits.allocation {
            BlockAllocation::Deterministic(networks) => {
                let known = networks.iter().any(|net| net.contains(inside.ip()));
                (!known || !blocks.is_empty()).then_some(DropReason::NatPortLimit)
            }
            BlockAllocation::Dynamic
                if blocks.len() >= (limits.ports_max as usize).div_ceil(usize::from(SIZE)) =>
            {
                Some(DropReason::NatPortLimit)
            }
            BlockAllocation::Dynamic => {
                let taken: HashSet<_> = self.sessions.iter().map(|s| block_of(s.public)).collect();
                let all = config.public_addresses.iter().flat_map(|address| {
                    (config.port_range.start() / SIZE..=config.port_range.end() / SIZE).map(|n| (*address, n))
                });
                let mut free = all.filter(|block| {
                    !taken.contains(block) && self.held.get(block).is_none_or(|&held| held <= now_s)
                });
                free.next().is_none().then_some(DropReason::NatPortsExhausted)
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn limits_and_blocks_are_those_of_the_reference(
        is_deterministic: bool,
        addresses in 1u8..3,
        ports_max in 1u32..50,
        sessions_max in 1u32..80,
        events in proptest::collection::vec((0u64..3, 1u8..10, 0u8..3, 0u16..60), 1..300),
    ) {
        let allocation = if is_deterministic {
            BlockAllocation::Deterministic(vec!["192.168.0.0/29".parse().unwrap()])
        } else {
            BlockAllocation::Dynamic
        };
        let subscribers =
            SubscriberConfig { allocation, block_size: SIZE, ports_max, sessions_max, hold_s: HOLD_S as u32 };
        let life_s = LIFE_S as u32;
        let config = NatConfig {
            timeouts: NatTimeouts { udp_s: life_s, tcp_established_s: life_s, tcp_transitory_s: life_s, icmp_s: life_s, ..NatTimeouts::default() },
            public_addresses: (1..=addresses).map(|n| [198, 51, 100, n].into()).collect(),
            ..with(subscribers)
        };
        let mut router = Router::new(&config);
        let mut reference = Reference::default();
        for (n, &(wait, h, protocol, port)) in events.iter().enumerate() {
            if n % 8 == 0 {
                router.wait_s(wait);
            }
            let now_s = router.now_ns / SECOND_NS;
            reference.expire(now_s);
            let (protocol, inside) = (NatProtocol::from_code(protocol), host(h, 4000 + port));
            let opened = router.open(protocol, inside, remote(1, 80));
            if let Some(at) = reference.sessions.iter().position(|s| s.protocol == protocol && s.inside == inside) {
                prop_assert_eq!(opened, Ok(reference.sessions[at].public));
                reference.sessions[at].ends_s = now_s + LIFE_S;
                continue;
            }
            match (opened, reference.judge(&config, protocol, inside, now_s)) {
                (Err(reason), expected) => prop_assert_eq!(Some(reason), expected),
                (Ok(public), expected) => {
                    prop_assert_eq!(expected, None);
                    let mine = |s: &&Known| s.inside.ip() == inside.ip();
                    let strangers = reference.sessions.iter().filter(|s| !mine(s));
                    prop_assert!(strangers.clone().all(|s| block_of(s.public) != block_of(public)), "a block of two");
                    prop_assert!(reference.sessions.iter().all(|s| (s.protocol, s.public) != (protocol, public)));
                    prop_assert!(config.port_range.contains(&public.port()));
                    if is_deterministic {
                        prop_assert_eq!(config.subscriber_of(*public.ip(), public.port()), Some(*inside.ip()));
                    } else if !reference.blocks_of(*inside.ip()).contains(&block_of(public)) {
                        prop_assert!(reference.held.get(&block_of(public)).is_none_or(|&held| held <= now_s), "held");
                    }
                    reference.sessions.push(Known { protocol, inside, public, ends_s: now_s + LIFE_S });
                }
            }
        }
        router.nat.advance(router.now_ns);
        reference.expire(router.now_ns / SECOND_NS);
        let mut expected = HashMap::new();
        for s in &reference.sessions {
            let (_, used) = expected.entry(block_of(s.public)).or_insert((*s.inside.ip(), [0; 3]));
            used[s.protocol as usize] += 1;
        }
        let mut expected: Vec<_> = expected.into_iter().map(|((address, n), (owner, used))| (address, owner, n * SIZE, used)).collect();
        expected.sort_by_key(|block| (block.0, block.2));
        let expected: Vec<_> = expected.into_iter().map(|(_, owner, first, used)| (IpAddr::V4(owner), first, used)).collect();
        prop_assert_eq!(blocks(&router), expected);
        let counters = router.nat.counters();
        prop_assert_eq!(counters.sessions_active, reference.sessions.len() as u64);
        prop_assert_eq!(counters.blocks_active, blocks(&router).len() as u64);
    }
}
