//! Access lists and reverse path checks: nanoseconds per packet, over packets already validated.
//!
//! `cargo bench -p thalweg-dataplane --bench acl`. Each sample gets 16,000 fresh packets (UDP, TCP and some ICMP
//! between random hosts). In the router a list directly follows validation and finds the headers in the
//! first-level cache. The benchmark does the same, so the cost of a list is its row minus `validate`.
//!
//! `rules` benchmarks a firewall-like list of that many rules: source and destination networks, protocols, port
//! ranges. Few packets match a rule, anywhere in the list; the others match the default, which is the slow case.
//! `linear` is the slow reference, for scale.

use divan::Bencher;
use divan::counter::ItemsCount;
use ipnet::{IpNet, Ipv4Net};
use std::net::Ipv4Addr;
use std::sync::Arc;
use thalweg_base::{BATCH_PACKETS, Batch, Chunk, ChunkBuilder, LinkType, XorShift64Star};
use thalweg_dataplane::acl::{AccessList, AclBindings, AclCounts, AclSet, Action, Facts, Rule, TcpFlags};
use thalweg_dataplane::ingress::Ingress;
use thalweg_dataplane::lpm::{Fib4Writer, Fib6Writer};
use thalweg_dataplane::reverse_path::{ReversePath, ReversePathMode};
use thalweg_dataplane::route::{Adjacency, NextHops, Router};
use thalweg_wire::{MacAddr, tcp, testing};

const CHUNKS: usize = 10;
const CHUNK_PACKETS: usize = 1600;

/// A random host of 4096 networks of 256 addresses.
fn host(rng: &mut XorShift64Star) -> u32 {
    0x0a00_0000 | rng.below(1 << 20)
}

const SERVICES: [u16; 8] = [22, 25, 53, 80, 123, 443, 3306, 8080];

fn frame(rng: &mut XorShift64Star) -> Vec<u8> {
    let protocol = [6, 6, 17, 17, 17, 17, 17, 1][rng.below(8) as usize];
    let (source, destination) = (Ipv4Addr::from(host(rng)), Ipv4Addr::from(host(rng)));
    let packet = match protocol {
        1 => testing::icmp(source, destination, 8, [0; 4], &[0; 22]),
        _ => {
            let from = (source, 32768 + rng.below(28000) as u16);
            let to = (destination, SERVICES[rng.below(8) as usize]);
            if protocol == 6 {
                testing::tcp(from, to, tcp::ACK, &[0; 10])
            } else {
                testing::udp(from, to, &[0; 22])
            }
        }
    };
    testing::frame(&packet)
}

/// Chunks of packets.
fn chunks() -> Vec<Chunk> {
    let mut rng = XorShift64Star::new(3);
    let mut chunk = |sequence: usize| {
        let mut builder = ChunkBuilder::with_capacity(CHUNK_PACKETS * 80 + 64);
        for _ in 0..CHUNK_PACKETS {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + 64].copy_from_slice(&frame(&mut rng));
            builder.push(at, 64, 64, 0, LinkType::Ethernet, 0, 0);
        }
        builder.finish(sequence as u64, 1, 0)
    };
    (0..CHUNKS).map(&mut chunk).collect()
}

fn rule(rng: &mut XorShift64Star) -> Rule {
    let net = |rng: &mut XorShift64Star, lengths: &[u8]| {
        let length = lengths[rng.below(lengths.len() as u32) as usize];
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from(host(rng)), length).trunc())
    };
    let mut rule = Rule::all(if rng.below(4) == 0 { Action::Deny } else { Action::Permit });
    if rng.below(5) > 0 {
        rule.destinations = (0..1 + rng.below(3)).map(|_| net(rng, &[24, 28, 32])).collect();
    }
    if rule.destinations.is_empty() || rng.below(2) == 0 {
        rule.sources = vec![net(rng, &[22, 24, 27, 32])];
    }
    match rng.below(4) {
        0 => rule.protocols = vec![17],
        1 => (rule.protocols, rule.tcp_flags) = (vec![6], TcpFlags::ESTABLISHED.to_vec()),
        2 => rule.protocols = vec![6],
        _ => {}
    }
    if !rule.protocols.is_empty() && rng.below(3) > 0 {
        let port = SERVICES[rng.below(8) as usize];
        rule.destination_ports = vec![port..=port + rng.below(3) as u16];
    }
    rule
}

fn list(rules: usize) -> AccessList {
    let mut rng = XorShift64Star::new(5);
    AccessList { rules: (0..rules).map(|_| rule(&mut rng)).collect(), default: Action::Permit }
}

fn set(list: &AccessList, bound: bool) -> AclSet {
    let bindings = AclBindings { inbound: vec![bound.then_some(0)], outbound: Vec::new() };
    AclSet::compile(std::slice::from_ref(list), &bindings, 1).unwrap_or_else(|e| panic!("{e}"))
}

/// Validates each batch, then runs `work` on it.
fn each_batch(bencher: Bencher<'_, '_>, mut work: impl FnMut(&mut Batch<'_>)) {
    let ingress = Ingress { drop_martians: false, ..Default::default() };
    bencher.counter(ItemsCount::new(CHUNKS * CHUNK_PACKETS)).with_inputs(chunks).bench_local_values(
        |mut chunks| {
            for chunk in &mut chunks {
                for k in 0..chunk.batch_count() {
                    let mut batch = chunk.batch(k);
                    ingress.process(&mut batch);
                    work(&mut batch);
                }
            }
            chunks
        },
    );
}

#[divan::bench]
fn validate(bencher: Bencher<'_, '_>) {
    each_batch(bencher, |_| {});
}

#[divan::bench]
fn no_list(bencher: Bencher<'_, '_>) {
    let set = set(&list(10), false);
    let mut counts = AclCounts::new(&set);
    each_batch(bencher, |batch| set.process_in(batch, &mut counts));
}

#[divan::bench(args = [1, 10, 64, 100, 1000, 4000, 8000])]
fn rules(bencher: Bencher<'_, '_>, rules: usize) {
    let set = set(&list(rules), true);
    let mut counts = AclCounts::new(&set);
    each_batch(bencher, |batch| set.process_in(batch, &mut counts));
}

#[divan::bench(args = [10, 100, 1000])]
fn linear(bencher: Bencher<'_, '_>, rules: usize) {
    let list = list(rules);
    each_batch(bencher, |batch| {
        for i in 0..batch.len().min(BATCH_PACKETS) {
            let (packet, l3) = batch.packet_and_l3(i);
            divan::black_box(Facts::of(packet, l3).map(|facts| list.decide(&facts)));
        }
    });
}

#[divan::bench(args = [1000, 8000])]
fn compile(bencher: Bencher<'_, '_>, rules: usize) {
    let list = list(rules);
    bencher.bench_local(|| set(&list, true));
}

#[divan::bench(args = [ReversePathMode::Off, ReversePathMode::Strict, ReversePathMode::Loose])]
fn reverse_path(bencher: Bencher<'_, '_>, mode: ReversePathMode) {
    let mut next_hops = NextHops::new();
    let ids: Vec<u16> = (0..250u16)
        .filter_map(|n| {
            let destination_mac = MacAddr([2, 0, 0, 0, 0, n as u8]);
            let source_mac = MacAddr([2, 0, 0, 0, 1, 0]);
            next_hops.add(&[Adjacency::Forward { port: n % 4, destination_mac, source_mac, mtu_bytes: 1500 }])
        })
        .collect();
    let nets = (0..4096u32).map(|n| Ipv4Net::new_assert(Ipv4Addr::from(0x0a00_0000 | n << 8), 24));
    let routes = nets.zip(ids.iter().copied().cycle());
    let fib4 = Fib4Writer::from_routes(routes).unwrap_or_else(|e| panic!("{e}"));
    let fib6 = Fib6Writer::new().unwrap_or_else(|e| panic!("{e}"));
    let router = Router {
        targets: Arc::default(),
        fib4: Arc::clone(fib4.table()),
        fib6: Arc::clone(fib6.table()),
        vrfs: None,
        next_hops: next_hops.into(),
    };
    let check = ReversePath::new([mode]);
    each_batch(bencher, |batch| check.process(&router, batch));
}

fn main() {
    divan::main();
}
