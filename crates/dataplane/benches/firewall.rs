//! The cost of the firewall per packet: `cargo bench -p thalweg-dataplane --bench firewall` (or `--profile quick`).
//!
//! Chunks of 1600 packets are made and described outside the measured time; only the stage is timed. Connections are
//! visited at random, half of the packets in each direction. `rules` is the number of rules between the zones, of which
//! the last permits. The figures are items (packets) per second of one thread.

use divan::Bencher;
use divan::counter::ItemsCount;
use std::cell::RefCell;
use std::net::SocketAddrV4;
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk, OneThread, XorShift64Star};
use thalweg_dataplane::acl::{Action, Rule};
use thalweg_dataplane::firewall::{
    FirewallConfig, FirewallRules, FirewallStage, Policy, StateTimeouts, ZoneRule, state_hash,
};
use thalweg_dataplane::helpers::Helpers;
use thalweg_dataplane::nat::testing::{self, SECOND_NS};
use thalweg_dataplane::nat::{Labeler, NatConfig, NatStage, PortSelection};

fn main() {
    divan::main();
}

const SHARDS: u16 = 64;
const INSIDE: u16 = 0;
const OUTSIDE: u16 = 1;
const RULES: [u32; 2] = [10, 10_000];
const STATES: [u32; 3] = [4_000, 100_000, 1_000_000];

struct Site {
    stage: FirewallStage<OneThread>,
    rules: FirewallRules,
    counts: thalweg_dataplane::acl::AclCounts,
}

impl Site {
    fn new(rules: u32, states: u32) -> Self {
        let rule = |n: u32| {
            let net = ipnet::Ipv4Net::new_assert((0x6400_0000 | n << 8).into(), 24);
            let destinations = if n == 0 { Vec::new() } else { vec![ipnet::IpNet::V4(net)] };
            let action = if n == 0 { Action::Permit } else { Action::Deny };
            ZoneRule {
                rule: Rule { destinations, ..Rule::all(action) },
                from: vec![1],
                to: vec![2],
                states: Vec::new(),
                limit: None,
                logs: false,
            }
        };
        let config = FirewallConfig {
            zones: vec![1, 2],
            outside: vec![2],
            policy: Policy::Deny,
            rules: (0..rules).rev().map(rule).collect(),
            states_max: states + states / 2 + 4096,
            half_open_max: None,
            checks_windows: false,
            picks_up: true,
            timeouts: StateTimeouts::DEFAULT,
            helpers: Helpers::default(),
        };
        let Ok(rules) = FirewallRules::compile(&config, 0) else { panic!("the rules fit") };
        Self { stage: FirewallStage::new(&config, SHARDS, 7), counts: rules.counts(), rules }
    }

    fn chunk(packets: &[(bool, Vec<u8>)], now_ns: u64) -> Chunk {
        let ports = |is_outbound: bool| if is_outbound { (INSIDE, OUTSIDE) } else { (OUTSIDE, INSIDE) };
        let list: Vec<_> =
            packets.iter().map(|(out, bytes)| (ports(*out).0, &bytes[..], bytes.len() as u32)).collect();
        let mut chunk = testing::chunk(&list, now_ns);
        let (mut batch, _) = chunk.whole();
        for (i, (out, _)) in packets.iter().enumerate() {
            let (packet, l3) = batch.packet_and_l3(i);
            packet.port_out = ports(*out).1;
            packet.shard = state_hash(packet, l3) as u16 & (SHARDS - 1);
        }
        chunk
    }

    fn run(&self, chunk: &mut Chunk) {
        self.stage.run_groups(&self.rules, chunk, 0..1, 1, &self.counts);
    }
}

/// The inside endpoint of connection `n`.
fn inside(n: u32) -> SocketAddrV4 {
    SocketAddrV4::new((0x0a00_0000 + n / 1024).into(), 2000 + (n % 1024) as u16)
}

fn remote() -> SocketAddrV4 {
    SocketAddrV4::new([203, 0, 113, 1].into(), 443)
}

/// Packets of connections that there are.
#[divan::bench(args = STATES, consts = RULES, sample_count = 1000, sample_size = 1)]
fn established<const RULES: u32>(bencher: Bencher, states: u32) {
    let site = Site::new(RULES, states);
    let now_ns = 1_700_000_000 * SECOND_NS;
    for first in (0..states).step_by(1000) {
        let numbers = first..(first + 1000).min(states);
        let packets: Vec<_> = numbers.map(|n| (true, testing::udp(inside(n), remote(), b"first"))).collect();
        site.run(&mut Site::chunk(&packets, now_ns));
    }
    assert_eq!(site.stage.counters().states_active, u64::from(states));
    let rng = RefCell::new(XorShift64Star::new(1));
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| {
            let mut rng = rng.borrow_mut();
            let packets: Vec<_> = (0..CHUNK_PACKETS_DEFAULT)
                .map(|_| {
                    let (n, out) = (rng.below(states), rng.below(2) == 0);
                    let (from, to) = if out { (inside(n), remote()) } else { (remote(), inside(n)) };
                    (out, testing::udp(from, to, b"more"))
                })
                .collect();
            Site::chunk(&packets, now_ns)
        })
        .bench_local_refs(|chunk| site.run(chunk));
}

/// Every packet begins a connection, and one expires for each: the clock advances so that about the given number is
/// alive.
#[divan::bench(args = STATES, consts = RULES, sample_count = 1000, sample_size = 1)]
fn set_up<const RULES: u32>(bencher: Bencher, states: u32) {
    let site = Site::new(RULES, states + 20_000);
    let (mut n, mut now_ns) = (0, 1_700_000_000 * SECOND_NS);
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| {
            let packets: Vec<_> = (0..CHUNK_PACKETS_DEFAULT as u32)
                .map(|i| (true, testing::udp(inside((n + i) % (1 << 26)), remote(), b"first")))
                .collect();
            n += CHUNK_PACKETS_DEFAULT as u32;
            now_ns += 120 * SECOND_NS / u64::from(states) * CHUNK_PACKETS_DEFAULT as u64;
            Site::chunk(&packets, now_ns)
        })
        .bench_local_refs(|chunk| site.run(chunk));
    assert_eq!(site.stage.counters().table_full, 0, "{:?}", site.stage.counters());
}

/// Packets of connections that NAT translates: its sessions name their states, or the firewall seeks them itself. Only
/// the firewall is timed.
#[divan::bench(args = STATES, consts = [false, true], sample_count = 1000, sample_size = 1)]
fn behind_nat<const NAMES: bool>(bencher: Bencher, states: u32) {
    let site = Site::new(10, states);
    let config = NatConfig {
        port_selection: PortSelection::Hash,
        sessions_max: states + states / 2 + 4096,
        shards: SHARDS,
        ..testing::config((states / 60_000 + 1).min(64) as u8)
    };
    let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), NatStage::<OneThread>::new(&config)) else {
        panic!("the configuration is valid");
    };
    let now_ns = 1_700_000_000 * SECOND_NS;
    let translated = |packets: &[(bool, Vec<u8>)]| {
        let ports = |is_outbound: bool| {
            if is_outbound {
                (testing::INSIDE, testing::OUTSIDE)
            } else {
                (testing::OUTSIDE, testing::INSIDE)
            }
        };
        let list: Vec<_> =
            packets.iter().map(|(out, bytes)| (ports(*out).0, &bytes[..], bytes.len() as u32)).collect();
        let mut chunk = testing::chunk(&list, now_ns);
        testing::label(&labeler, &mut chunk, SHARDS);
        chunk.keep_origins(|_| true);
        nat.run_groups(&mut chunk, 0..1, 1);
        for (packet, (out, _)) in chunk.packets_mut().iter_mut().zip(packets) {
            (packet.port_in, packet.port_out) = if *out { (INSIDE, OUTSIDE) } else { (OUTSIDE, INSIDE) };
        }
        chunk
    };
    let mut flows = Vec::new();
    for first in (0..states).step_by(1000) {
        let numbers = first..(first + 1000).min(states);
        let out: Vec<_> = numbers.map(|n| (true, testing::udp(inside(n), remote(), b"first"))).collect();
        let mut chunk = translated(&out);
        site.stage.run_groups_and_name(
            &site.rules,
            &mut chunk,
            0..1,
            1,
            &site.counts,
            &mut |shard, session, state| {
                if NAMES {
                    nat.name_state(shard, session, state);
                }
            },
        );
        for (i, packet) in out.into_iter().enumerate() {
            let left = chunk.frame(i);
            let address = u32::from_be_bytes([left[12], left[13], left[14], left[15]]);
            let public = SocketAddrV4::new(address.into(), chunk.packets()[i].src_port);
            flows.extend([packet, (false, testing::udp(remote(), public, b"more"))]);
        }
    }
    assert_eq!(site.stage.counters().states_active, u64::from(states));
    let rng = RefCell::new(XorShift64Star::new(1));
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| {
            let (mut rng, count) = (rng.borrow_mut(), flows.len() as u32);
            let pick = |_| flows[rng.below(count) as usize].clone();
            translated(&(0..CHUNK_PACKETS_DEFAULT).map(pick).collect::<Vec<_>>())
        })
        .bench_local_refs(|chunk| site.run(chunk));
    let sought = site.stage.look_ups() > u64::from(states);
    assert_eq!(sought, !NAMES, "{} look-ups", site.stage.look_ups());
}
