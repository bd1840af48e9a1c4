//! Tenants with the same addresses and ports, red, blue and the main table, and two routers that take over from each other.
//! The reference is one firewall that nobody takes over from, without VRFs: there the hosts of table `n` are in
//! 10.n.0.0/16. Both must decide the same about every packet.

use super::standby::{copy, states};
use super::*;
use crate::standby::Shards;
use proptest::prelude::*;
use thalweg_base::XorShift64Star;
use thalweg_wire::standby::{Change, Entry, StateEntry};

/// By port: red in the lan, the main table in the wan, blue in the dmz.
const VRFS: [u16; 3] = [1, 0, 2];
const RED: u16 = 0;
const MAIN: u16 = 1;
const BLUE: u16 = 2;

/// Red and blue reach the outside in the main table, and red reaches blue. Nothing ends by time: the copies of a standby
/// live on as if they had just been used.
fn tenants() -> FirewallConfig {
    let long_s = 1_000_000;
    let timeouts = StateTimeouts {
        udp_s: long_s,
        tcp_established_s: long_s,
        tcp_transitory_s: long_s,
        tcp_aborted_s: long_s,
        icmp_s: long_s,
        other_s: long_s,
    };
    FirewallConfig { rules: vec![rule(Action::Permit, &[LAN], &[DMZ])], timeouts, ..config() }
}

/// A router with these VRFs of its ports.
fn site(vrfs: &[u16]) -> Site {
    let mut site = Site::new(&tenants());
    site.rules = FirewallRules::compile(&tenants(), 0).expect("rules").with_vrfs(vrfs.to_vec());
    site
}

/// A host behind a port, in the reference if `is_apart`.
fn host(port: u16, n: u8, is_apart: bool) -> String {
    format!("10.{}.0.{n}", if is_apart { VRFS[usize::from(port)] } else { 0 })
}

#[derive(Clone, Copy, Debug)]
enum What {
    Udp,
    Tcp(u8),
    Echo { is_request: bool },
    Gre,
}

/// A packet from a port to another.
#[derive(Clone, Copy, Debug)]
struct Sent {
    way: (u16, u16),
    hosts: (u8, u8),
    ports: (u16, u16),
    what: What,
}

impl Sent {
    fn drawn([from, turn, hosts, ports, what, flags]: [u8; 6]) -> Self {
        let from = u16::from(from) % 3;
        let first = 2 + (hosts & 1);
        let port = |bit: u8| 4000 + u16::from(ports >> bit & 1);
        let flags = [SYN, SYN_ACK, ACK, ACK, FIN_ACK, RST][usize::from(flags) % 6];
        Self {
            way: (from, (from + 1 + u16::from(turn & 1)) % 3),
            // No host of one address: what says that it comes from its destination is no packet for a firewall.
            hosts: (first, if hosts & 2 == 0 { 5 - first } else { 4 }),
            ports: (port(0), port(1)),
            what: match what % 8 {
                0..4 => What::Tcp(flags),
                4 | 5 => What::Udp,
                6 => What::Echo { is_request: flags & SYN != 0 },
                _ => What::Gre,
            },
        }
    }

    fn bytes(&self, is_apart: bool) -> Vec<u8> {
        let [from, to] = [host(self.way.0, self.hosts.0, is_apart), host(self.way.1, self.hosts.1, is_apart)];
        let [source, destination] = [format!("{from}:{}", self.ports.0), format!("{to}:{}", self.ports.1)];
        match self.what {
            What::Udp => udp(&source, &destination),
            What::Tcp(flags) => tcp(&source, &destination, flags, [100, 200]),
            What::Echo { is_request } => echo(&from, &to, is_request, self.ports.0),
            What::Gre => testing::ip(at(&source).ip(), at(&destination).ip(), 47, &[0; 12]),
        }
    }
}

/// Two routers, one of which is active, and the reference.
struct Pair {
    routers: [Site; 2],
    reference: Site,
    /// The last packets that passed.
    passed: Vec<Sent>,
    counts: [u32; 3],
}

impl Pair {
    fn new() -> Self {
        let (routers, reference) = ([0, 1].map(|_| site(&VRFS)), site(&[]));
        Self { routers, reference, passed: Vec::new(), counts: [0; 3] }
    }

    /// The second router takes over.
    fn take_over(&mut self) {
        let [active, standby] = &mut self.routers;
        copy(active, standby, true);
        assert_eq!(states(active), states(standby));
        self.reference.now_ns = active.now_ns;
        self.routers.swap(0, 1);
    }

    fn send(&mut self, sent: Sent) {
        let is_error = matches!(sent.what, What::Udp) && sent.ports == (4000, 4001);
        let quoted = self.passed.last().copied().filter(|_| is_error);
        let packet = |is_apart: bool| match quoted {
            // A router on its way says that it cannot go on.
            Some(quoted) => error(&host(quoted.way.1, 9, is_apart), &quoted.bytes(is_apart)),
            None => sent.bytes(is_apart),
        };
        let way = quoted.map_or(sent.way, |quoted| (quoted.way.1, quoted.way.0));
        let ours = self.routers[0].between(way, packet(false));
        assert_eq!(ours, self.reference.between(way, packet(true)), "{sent:?} {quoted:?}");
        let place = if ours.is_some() { 0 } else { 1 + usize::from(quoted.is_some()) };
        self.counts[place] += 1;
        if ours.is_none() && quoted.is_none() {
            self.passed.push(sent);
        }
    }

    fn step(&mut self, [again, rest @ ..]: [u8; 7]) {
        match again {
            0..3 => self.take_over(),
            // The answer to a packet that passed, from its destination or from the same host of another table.
            3..100 if !self.passed.is_empty() => {
                let first = self.passed[usize::from(rest[0]) % self.passed.len()];
                let answer = Sent {
                    way: (first.way.1, first.way.0),
                    hosts: (first.hosts.1, first.hosts.0),
                    ports: (first.ports.1, first.ports.0),
                    what: match first.what {
                        What::Tcp(SYN) => What::Tcp(SYN_ACK),
                        What::Echo { is_request } => What::Echo { is_request: !is_request },
                        what => what,
                    },
                };
                let others = (answer.way.0, (answer.way.1 + 1) % 3);
                let is_astray = rest[1] & 3 == 0 && others.0 != others.1;
                self.send(if is_astray { Sent { way: others, ..answer } } else { answer });
            }
            _ => self.send(Sent::drawn(rest)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_standby_decides_for_tenants_as_one_router_does(steps in prop::collection::vec(any::<[u8; 7]>(), 1..200)) {
        let mut pair = Pair::new();
        steps.into_iter().for_each(|step| pair.step(step));
    }
}

/// What is drawn above is refused, passes, and is quoted by errors that pass.
#[test]
fn tenants_are_heard_and_refused_after_each_change_of_routers() {
    let (mut pair, mut chance) = (Pair::new(), XorShift64Star::new(5));
    for _ in 0..2000 {
        let [step @ .., _] = chance.next_u64().to_be_bytes();
        pair.step(step);
    }
    assert!(pair.counts.iter().all(|count| *count > 20), "{:?}", pair.counts);
    pair.take_over();
}

/// Red's connection is not blue's, though addresses and ports are the same, on both routers.
#[test]
fn no_tenant_has_the_others_connection_at_a_standby() {
    let [mut active, mut standby] = [0, 1].map(|_| site(&VRFS));
    let (client, server) = ("10.0.0.2:4000", "10.0.0.3:443");
    assert_eq!(active.between((RED, MAIN), tcp(client, server, SYN, [1, 0])), None);
    assert_eq!(active.between((BLUE, MAIN), udp(client, server)), None);
    assert_eq!(active.between((RED, BLUE), tcp(client, server, SYN, [1, 0])), None);
    copy(&mut active, &mut standby, true);
    assert_eq!(standby.stage.counters().states_active, 3);
    let answer = || tcp(server, client, SYN_ACK, [7, 2]);
    let not_asked = Some(DropReason::FirewallNotAsked);
    let invalid = Some(DropReason::FirewallInvalid);
    assert_eq!(standby.between((MAIN, BLUE), answer()), invalid, "blue has not asked");
    assert_eq!(standby.between((MAIN, RED), udp(server, client)), not_asked, "red has not asked");
    assert_eq!(standby.between((BLUE, RED), udp(server, client)), not_asked);
    let unreachable = || error("10.0.0.9", &tcp(client, server, SYN, [1, 0]));
    assert_eq!(standby.between((MAIN, BLUE), unreachable()), invalid);
    assert_eq!(standby.between((MAIN, RED), unreachable()), None);
    assert_eq!(standby.between((MAIN, RED), answer()), None);
    assert_eq!(standby.between((BLUE, RED), answer()), None);
    assert_eq!(standby.between((MAIN, BLUE), udp(server, client)), None);
}

/// The states of a site, with their shards.
fn entries(shards: &dyn Shards, now_ns: u64) -> Vec<(u16, StateEntry)> {
    let mut all = Vec::new();
    for shard in 0..shards.count() {
        let mut next = Some(0);
        while let Some(from) = next {
            next = shards.walk(shard, from, false, now_ns, &mut |entry| match entry {
                Entry::State(state) => all.push((shard, state)),
                Entry::Session(session) => panic!("{session:?}"),
            });
        }
    }
    all
}

/// A copy from a router with other VRFs, should one come, is not taken for one of another tenant.
#[test]
fn a_copy_of_an_unknown_vrf_is_refused() {
    let [mut active, standby] = [site(&VRFS), site(&[1, 0, 0])];
    assert_eq!(active.between((BLUE, MAIN), udp("10.0.0.2:4000", "10.0.0.3:53")), None);
    let copies = active.stage.copies(&active.rules, true);
    let [(shard, copy)] = entries(&copies, active.now_ns)[..] else { panic!("one state") };
    assert_eq!(copy.vrfs, [0, 2], "in the order of its ends");
    let there = standby.stage.copies(&standby.rules, true);
    for vrf in [2, 63, 64, 65, 255] {
        for vrfs in [[0, vrf], [vrf, 0], [1, vrf]] {
            let copy = Entry::State(StateEntry { vrfs, ..copy });
            assert!(!there.put(shard, &copy, standby.now_ns), "{vrfs:?}");
            there.end(shard, &copy, standby.now_ns);
        }
    }
    assert_eq!(standby.stage.counters().states_active, 0);
    assert!(there.put(shard, &Entry::State(StateEntry { vrfs: [0, 1], ..copy }), standby.now_ns));
}

/// States of a VRF that a reload has removed are nobody's: they are told to no standby, which would refuse them again and
/// again.
#[test]
fn states_of_a_removed_vrf_are_not_copied() {
    let [mut active, mut standby] = [0, 1].map(|_| site(&VRFS));
    for port in [RED, BLUE] {
        assert_eq!(active.between((port, MAIN), udp("10.0.0.2:4000", "10.0.0.3:53")), None);
    }
    for site in [&mut active, &mut standby] {
        site.rules = FirewallRules::compile(&tenants(), 0).expect("rules").with_vrfs(vec![1, 0, 0]);
    }
    copy(&mut active, &mut standby, true);
    let counts = [&active, &standby].map(|site| site.stage.counters().states_active);
    assert_eq!(counts, [2, 1]);
}

/// The end of one tenant's connection is not that of the other's, and says whose it is.
#[test]
fn changes_name_the_vrfs() {
    let [mut active, standby] = [0, 1].map(|_| site(&VRFS));
    let (here, there) =
        (active.stage.copies(&active.rules, true), standby.stage.copies(&standby.rules, true));
    here.follow(true);
    drop(here);
    let (client, server) = ("10.0.0.2:4000", "10.0.0.3:443");
    for port in [RED, BLUE] {
        assert_eq!(active.between((port, MAIN), tcp(client, server, SYN, [1, 0])), None);
    }
    assert_eq!(active.between((MAIN, RED), tcp(server, client, RST | ACK, [0, 2])), None);
    active.wait_s(2_000_000);
    active.stage.advance(active.now_ns);
    let here = active.stage.copies(&active.rules, true);
    let mut told = Vec::new();
    for shard in 0..SHARDS {
        here.changes(shard, &mut |Change { is_end, entry }| match entry {
            Entry::State(state) => {
                let red_is_told = state.vrfs == [0, 1];
                told.push((is_end, red_is_told));
                match is_end {
                    true => there.end(shard, &entry, standby.now_ns),
                    false => assert!(there.put(shard, &entry, standby.now_ns)),
                }
            }
            Entry::Session(session) => panic!("{session:?}"),
        });
    }
    told.sort_unstable();
    assert_eq!(told, [(false, false), (false, true), (false, true), (true, false), (true, true)]);
    assert_eq!(standby.stage.counters().states_active, 0);
}
