//! The whole router with any bytes as frames of every link type: validation, classes with applications, policers,
//! fragments, NAT, scheduling, routes, the firewall, counters. Stages run as in the serial model, and once more with each chunk
//! split by shard, as in the farm.
//!
//! - Every packet is forwarded, or dropped for exactly one reason.
//! - A forwarded packet has a right IPv4 header, a TTL that is one lower, and the EtherType of its version. If
//!   all its checksums were right on arrival, they are right when it leaves.
//! - Splitting changes nothing.
#![no_main]

use ipnet::{Ipv4Net, Ipv6Net};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, OnceLock};
use thalweg_base::{
    BATCH_PACKETS, Chunk, ChunkBuilder, DropReason, LinkType, NO_PORT, PacketFlags, UNKNOWN_PORT,
};
use thalweg_dataplane::classify::{Classifier, Match};
use thalweg_dataplane::firewall::{FirewallConfig, Policy, StateTimeouts};
use thalweg_dataplane::helpers::Helper;
use thalweg_dataplane::ingress::{BroadcastSet, Ingress, PortGuess};
use thalweg_dataplane::lpm::{Fib4, Fib4Writer, Fib6, Fib6Writer};
use thalweg_dataplane::nat::testing::checksums;
use thalweg_dataplane::nat::{Labeler, NatConfig, NatProtocol, PortForward};
use thalweg_dataplane::police::{ColorAction, Marker, Police, PolicerConfig};
use thalweg_dataplane::route::{Adjacency, NextHops, Router, SharedNextHops};
use thalweg_dataplane::schedule::{Scheduler, Service};
use thalweg_dataplane::vlan::VlanTable;
use thalweg_exec::{Plan, Scope};
use thalweg_node::plan::{Filters, Firewall, Nat, RouterParts, RouterPlan, Scratch, WayRules};
use thalweg_wire::MacAddr;
use thalweg_wire::checksum::{finish, sum};

const LINKS: [LinkType; 6] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::LinuxCooked,
    LinkType::LinuxCooked2,
    LinkType::BsdLoopback,
    LinkType::Unsupported,
];
/// The offset of the IP header in an untagged frame of each link type.
const L3_OFFSETS: [usize; 6] = [14, 0, 16, 20, 4, 0];
/// Interesting addresses: inside hosts, outside hosts, the public one, one for each kind of route.
const ADDRESSES: [[u8; 4]; 8] = [
    [10, 0, 0, 10],
    [10, 0, 0, 20],
    [10, 1, 0, 5],
    [198, 51, 100, 7],
    [198, 51, 100, 200],
    [203, 0, 113, 2],
    [203, 0, 113, 1],
    [10, 9, 9, 9],
];

type Tables = (Arc<Fib4>, Arc<Fib6>);

/// The look-up tables take milliseconds to build and do not change, so all inputs share one pair.
fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let v4 = [
            ("0.0.0.0/0", 1),
            ("10.0.0.0/16", 2),
            ("10.1.0.0/16", 3),
            ("198.51.100.192/26", 4),
            ("10.9.0.0/16", 5),
        ];
        let v6 = [("2001:db8::/32", 1), ("2001:db8:1::/64", 2), ("fd00::/8", 4)];
        let v4 = v4.map(|(p, hop)| (p.parse::<Ipv4Net>().expect(p), hop));
        let v6 = v6.map(|(p, hop)| (p.parse::<Ipv6Net>().expect(p), hop));
        let v4 = Fib4Writer::from_routes(v4).expect("valid routes");
        let v6 = Fib6Writer::from_routes(v6).expect("valid routes");
        (Arc::clone(v4.table()), Arc::clone(v6.table()))
    })
}

/// Port 0 is outside.
fn firewall(shards: u16) -> Firewall {
    let firewall = FirewallConfig {
        zones: vec![1, 2, 2],
        outside: vec![1],
        policy: Policy::OutgoingOnly,
        rules: Vec::new(),
        states_max: 64,
        half_open_max: Some(16),
        checks_windows: true,
        picks_up: true,
        timeouts: StateTimeouts::DEFAULT,
        helpers: Helper::ALL.into_iter().collect(),
    };
    let zone_names = ["outside", "inside"].map(str::to_owned).to_vec();
    let named = thalweg_config::FirewallConfig { firewall, zone_names, rule_names: Vec::new() };
    Firewall::new(&named, shards, 0).expect("no rules")
}

fn plan() -> RouterPlan {
    let (fib4, fib6) = tables();
    let mut next_hops = NextHops::new();
    let out = |port: u16, mtu_bytes| Adjacency::Forward {
        port,
        destination_mac: MacAddr([2, 0, 0, 0, 0xff, port as u8]),
        source_mac: MacAddr([2, 0, 0, 0, 0, port as u8]),
        mtu_bytes,
    };
    for paths in [
        vec![out(0, 1500), out(0, 200), out(2, 1500)],
        vec![out(1, 1500)],
        vec![out(2, 576)],
        vec![Adjacency::Drop(DropReason::Blackhole)],
        vec![Adjacency::Drop(DropReason::NeighborUnresolved)],
    ] {
        next_hops.add(&paths).expect("room for five");
    }
    let nat = NatConfig {
        outside_port: 0,
        inside_ports: vec![1, 2],
        public_addresses: vec![[203, 0, 113, 2].into()],
        untranslated: [(0, "10.0.0.0/15".parse().expect("a network"))].to_vec(),
        port_range: 5000..=5063,
        shards: 8,
        sessions_max: 32,
        forwards: vec![PortForward {
            protocol: NatProtocol::Tcp,
            public_address: 0,
            public_port: 80,
            inside_address: [10, 0, 0, 10].into(),
            vrf: 0,
            inside_port: 8080,
            count: 1,
        }],
        helpers: Helper::ALL.into_iter().collect(),
        ..NatConfig::default()
    };
    let voice = Match { applications: vec![1, 2, 3], ..Match::default() };
    let marked = Match { dscp: vec![46, 10], ..Match::default() };
    let web = Match {
        protocols: vec![6],
        destination_ports: vec![80..=443],
        sources: vec!["10.0.0.0/8".parse().expect("a network")],
        ports_in: vec![1, 2],
        ..Match::default()
    };
    let bulk = Match { destinations: vec!["2001:db8::/32".parse().expect("a network")], ..Match::default() };
    let marker = Marker::TwoRate { cir_bps: 8_000, cbs_bytes: 600, pir_bps: 16_000, pbs_bytes: 1200 };
    let policer =
        |marker, red| PolicerConfig { marker, color_aware: true, yellow: ColorAction::Remark(12), red };
    let single = Marker::SingleRate { cir_bps: 8_000, cbs_bytes: 600, ebs_bytes: 600 };
    let connected = [("10.0.0.0/16", 1), ("10.1.0.0/16", 2), ("2001:db8:1::/64", 1)];
    let connected = connected.map(|(net, port)| (net.parse().expect(net), port));
    RouterPlan::new(RouterParts {
        ingress: Ingress {
            drop_martians: true,
            port_guess: PortGuess::new(connected, Some(0)),
            vlans: VlanTable::default(),
            broadcasts: BroadcastSet::new([([10, 0, 255, 255].into(), 0)], Vec::new()),
        },
        filters: Filters::default(),
        classifier: Classifier::new([(voice, 0), (marked, 1), (web, 2), (bulk, 3)], 3),
        police: Police::new(&[
            None,
            Some(policer(marker, ColorAction::Drop)),
            Some(policer(single, ColorAction::Remark(14))),
            None,
        ]),
        scheduler: Scheduler::new(&[
            Service::Strict(0),
            Service::Strict(1),
            Service::Weight(3),
            Service::Weight(1),
        ]),
        nat: Some(Nat {
            labeler: Labeler::new(&nat).expect("valid NAT"),
            stage: Arc::new(thalweg_node::plan::NatStage::new(&nat).expect("valid NAT")),
            outsides: Box::default(),
        }),
        way_rules: WayRules::default(),
        router: Router {
            targets: Arc::default(),
            fib4: Arc::clone(fib4),
            fib6: Arc::clone(fib6),
            vrfs: None,
            next_hops: SharedNextHops::from(next_hops),
        },
        firewall: Some(firewall(nat.shards)),
        router_addresses: Vec::new(),
        session_sources: None,
        hash_seed: 0,
        ports: 3,
        classes: 4,
        work_queens: None,
    })
}

/// A frame and how it arrived.
struct Arrival {
    frame: Vec<u8>,
    wire_len: u32,
    link: LinkType,
    port_in: u16,
    application: u8,
    gap_ns: u64,
}

/// Reads one arrival: six bytes of recipe, then the frame. The recipe may choose the addresses and correct the
/// length and the header checksum, which random bytes never have right.
fn arrival(input: &mut &[u8]) -> Option<Arrival> {
    let (&[what, how, len, addresses, extra, gap], rest) = input.split_first_chunk::<6>()?;
    let (frame, rest) = rest.split_at(usize::from(len).min(rest.len()));
    *input = rest;
    let mut frame = frame.to_vec();
    let link = usize::from(what & 7) % LINKS.len();
    if how & 4 != 0 {
        frame.resize(frame.len() + 5 * usize::from(extra), extra);
    }
    let l3 = L3_OFFSETS[link];
    if how & 1 != 0 && frame.len() >= l3 + 20 {
        let l3_len = (frame.len() - l3) as u16;
        let ip = &mut frame[l3..];
        if how & 2 != 0 {
            ip[12..16].copy_from_slice(&ADDRESSES[usize::from(addresses & 7)]);
            ip[16..20].copy_from_slice(&ADDRESSES[usize::from(addresses >> 3 & 7)]);
        }
        if how & 8 != 0 {
            ip[2..4].copy_from_slice(&l3_len.to_be_bytes());
        }
        let header_len = (usize::from(ip[0] & 15) * 4).clamp(20, ip.len());
        ip[10..12].fill(0);
        let checksum = finish(sum(&ip[..header_len], 0));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let port_in = [NO_PORT, NO_PORT, NO_PORT, 0, 1, 2, UNKNOWN_PORT, NO_PORT][usize::from(what >> 3 & 7)];
    let snapped = if how & 0x10 != 0 { u32::from(extra) } else { 0 };
    Some(Arrival {
        wire_len: frame.len() as u32 + snapped,
        frame,
        link: LINKS[link],
        port_in,
        application: if how & 0x20 != 0 { extra & 15 } else { 0 },
        gap_ns: u64::from(gap) << (u32::from(how >> 6) * 10),
    })
}

fn build(sequence: u64, number: u64, clock_ns: &mut u64, arrivals: &[Arrival]) -> Chunk {
    let bytes: usize = arrivals.iter().map(|a| a.frame.len() + ChunkBuilder::HEADROOM).sum();
    let mut builder = ChunkBuilder::with_capacity(bytes);
    let starts_ns = *clock_ns;
    for a in arrivals {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + a.frame.len()].copy_from_slice(&a.frame);
        *clock_ns += a.gap_ns;
        builder.push(at, a.frame.len(), a.wire_len, *clock_ns, a.link, a.port_in, a.application);
    }
    builder.finish(sequence, number, starts_ns)
}

/// Runs a chunk through all stages in one thread; `split` splits it where a farm would.
fn run(plan: &RouterPlan, mut chunk: Chunk, split: bool, scratch: &mut Scratch) -> Chunk {
    plan.admit(&mut chunk, 0);
    let mut stages = plan.stages().iter().enumerate().peekable();
    while let Some((stage, spec)) = stages.next() {
        match spec.scope {
            Scope::Batches => run_batches(plan, stage, &mut chunk, scratch),
            Scope::Whole | Scope::Ordered => plan.run_whole(stage, &mut chunk, scratch),
            Scope::PerShard => {
                let groups = plan.shard_groups();
                if !split || plan.crosses(stage, &chunk) {
                    plan.run_shards(stage, &mut chunk, 0..groups, scratch);
                    if plan.crosses(stage, &chunk) {
                        plan.run_crossing(stage, &mut chunk, scratch);
                    }
                    continue;
                }
                let half = groups.div_ceil(2);
                let owners: Vec<usize> = (0..groups).map(|g| g / half).collect();
                let mut parts = plan.split(chunk, &owners, 2);
                let sharded = |stage, parts: &mut [Chunk], scratch: &mut Scratch| {
                    plan.run_shards(stage, &mut parts[0], 0..half, scratch);
                    plan.run_shards(stage, &mut parts[1], half..groups, scratch);
                };
                sharded(stage, &mut parts, scratch);
                for (stage, spec) in stages.by_ref() {
                    match spec.scope {
                        Scope::PerShard => sharded(stage, &mut parts, scratch),
                        _ => parts.iter_mut().for_each(|part| run_batches(plan, stage, part, scratch)),
                    }
                }
                return plan.merge(parts);
            }
        }
    }
    chunk
}

fn run_batches(plan: &RouterPlan, stage: usize, chunk: &mut Chunk, scratch: &mut Scratch) {
    for batch in 0..plan.batches(stage, chunk) {
        plan.run_batch(stage, chunk, batch, 1, scratch);
    }
}

fn check_forwarded(chunk: &Chunk, i: usize, arrival: &Arrival) {
    let packet = &chunk.packets()[i];
    let out = chunk.egress_frame(i);
    assert!(packet.port_out < 3 && packet.class < 4, "{packet:?}");
    assert!(packet.port_in < 3, "{packet:?}");
    let l3_before = &arrival.frame[usize::from(packet.l3_offset)..];
    let l3 = &out[14..];
    if packet.is_ipv6() {
        assert_eq!(out[12..14], [0x86, 0xdd]);
        assert_eq!(l3[7], l3_before[7] - 1);
        assert_eq!(l3[8..40], l3_before[8..40], "addresses");
        return;
    }
    assert_eq!(out[12..14], [8, 0]);
    assert_eq!(l3[8], l3_before[8] - 1, "one hop less");
    let header_len = usize::from(l3[0] & 15) * 4;
    assert_eq!(finish(sum(&l3[..header_len], 0)), 0, "header checksum of {l3:02x?}");
    // If the capture truncated the packet, its own checksum cannot be checked.
    let whole = &l3_before[..l3.len()];
    if checksums(whole).is_ok() && !packet.flags.has(PacketFlags::FRAGMENT) {
        assert!(checksums(l3).is_ok(), "{:?}, was {whole:02x?}", checksums(l3));
    }
}

type Fate = Result<(u16, Vec<u8>), DropReason>;

fn play(chunks: &[Vec<Arrival>], split: bool) -> (Vec<Fate>, String) {
    let plan = plan();
    let mut scratch = plan.scratch();
    let mut fates = Vec::new();
    let (mut number, mut clock_ns) = (1, 1 << 40);
    for (sequence, arrivals) in (0..).zip(chunks) {
        let chunk = build(sequence, number, &mut clock_ns, arrivals);
        number += arrivals.len() as u64;
        let chunk = run(&plan, chunk, split, &mut scratch);
        assert_eq!(chunk.packets().len(), arrivals.len());
        for (i, packet) in chunk.packets().iter().enumerate() {
            assert_eq!(usize::from(packet.position), i);
            fates.push(match packet.drop_reason() {
                Some(reason) => Err(reason),
                None => {
                    check_forwarded(&chunk, i, &arrivals[usize::from(packet.index)]);
                    Ok((packet.port_out, chunk.egress_frame(i).to_vec()))
                }
            });
        }
    }
    let counters = plan.merged_account(std::iter::once(&scratch));
    assert_eq!(counters.packets_in, number - 1);
    assert_eq!(counters.packets_in, counters.packets_out + counters.dropped_total());
    assert_eq!(counters.packets_out, fates.iter().filter(|f| f.is_ok()).count() as u64);
    assert_eq!(counters.packets_in, counters.ports.iter().map(|p| p.packets_in).sum::<u64>());
    assert_eq!(counters.packets_out, counters.classes.iter().map(|c| c.packets).sum::<u64>());
    let state = format!("{:?} {:?} {:?}", plan.nat_counters(), plan.fragment_counts(), plan.color_counts());
    (fates, state)
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, mut rest)) = input.split_first() else { return };
    let mut arrivals = Vec::new();
    while let Some(arrival) = arrival(&mut rest) {
        arrivals.push(arrival);
    }
    // From one packet to more than a batch.
    let size = [1, 2, 7, BATCH_PACKETS + 1][usize::from(cut & 3)];
    let mut chunks = Vec::new();
    while !arrivals.is_empty() {
        let left = arrivals.split_off(size.min(arrivals.len()));
        chunks.push(std::mem::replace(&mut arrivals, left));
    }
    let whole = play(&chunks, false);
    let split = play(&chunks, true);
    assert_eq!(whole, split);
});
