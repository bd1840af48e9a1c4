//! Fills a RIB and says what it took: `cargo run --profile quick -p thalweg-bgp --example rib_load [PREFIXES PEERS [ROUNDS]]`.
//!
//! Without arguments, a million prefixes with one path each, and 100,000 with ten. Time is processor time of this thread
//! (`/proc/thread-self/schedstat`), memory is what the process holds (`/proc/self/statm`) and what the counters
//! say. Batches of 2,000 routes, all 16 shards in turn, twenty prefixes to an attribute set, prefixes in random order.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use thalweg_base::{Prefix, XorShift64Star};
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, NextHop, SegmentKind};
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use thalweg_bgp::rib::{RibShard, ShardConfig};
use thalweg_bgp::route::{Changes, RouteBatch, RouteBatchBuilder, SHARDS, WITHDRAWN};

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [prefixes, peers] => load(prefixes, peers, 1),
        [prefixes, peers, rounds] => load(prefixes, peers, rounds),
        _ => {
            load(1_000_000, 1, 1);
            load(100_000, 10, 1);
        }
    }
}

fn load(prefix_count: usize, peer_count: usize, rounds: usize) {
    println!("{prefix_count} prefixes x {peer_count} paths");
    let (interner, prefixes, peers) = (Interner::new(1), prefixes(prefix_count), peers(peer_count));
    // All sets are there before, so that their memory does not count.
    let sets = |peer: usize, batch: usize| -> Vec<AttrRef> {
        (0..100).map(|n| attribute_set(&interner, peer as u32, (batch % 50 * 100 + n) as u32)).collect()
    };
    let held: Vec<_> =
        (0..peer_count).map(|peer| (0..50).map(|n| sets(peer, n)).collect::<Vec<_>>()).collect();
    let shard = |shard| RibShard::new(ShardConfig { shard, seed: 9, ..ShardConfig::default() });
    let mut shards: Vec<RibShard> = (0..SHARDS).map(shard).collect();
    let (before, items) = (resident_bytes(), prefix_count * peer_count);
    for round in 0..rounds {
        let mut took = 0;
        for (peer, held) in held.iter().enumerate() {
            for (number, part) in prefixes.chunks(2000).enumerate() {
                let batch = announcements(peer, part, &held[(number + round) % 50]);
                took += apply(&mut shards, &batch, &peers);
            }
        }
        println!("  round {round}: {} ns a path", took / items as u64);
        let resident = resident_bytes().saturating_sub(before);
        let counted: usize = shards.iter().map(|shard| shard.counters().bytes).sum();
        println!(
            "  counted {} KiB, {:.1} B a path; resident {} KiB, {:.1} B a path",
            counted / 1024,
            counted as f64 / items as f64,
            resident / 1024,
            resident as f64 / items as f64,
        );
    }
    let mut took = 0;
    for peer in 0..peer_count {
        for part in prefixes.chunks(2000) {
            took += apply(&mut shards, &withdrawals(peer, part), &peers);
        }
    }
    println!("  withdrawn: {} ns a path", took / items as u64);
}

fn apply(shards: &mut [RibShard], batch: &RouteBatch, peers: &PeerTable) -> u64 {
    let start = cpu_ns();
    for shard in shards {
        let mut changes = Changes::default();
        shard.apply(batch, peers, &mut changes);
        std::hint::black_box(&changes);
    }
    cpu_ns() - start
}

fn announcements(peer: usize, prefixes: &[Prefix<u32>], sets: &[AttrRef]) -> RouteBatch {
    let mut builder = RouteBatchBuilder::default();
    for (group, set) in prefixes.chunks(20).zip(sets) {
        let attrs = builder.push_attrs(set.clone());
        group.iter().for_each(|prefix| builder.push_v4(*prefix, 0, attrs));
    }
    builder.finish(PeerId(peer as u16), 1)
}

fn withdrawals(peer: usize, prefixes: &[Prefix<u32>]) -> RouteBatch {
    let mut builder = RouteBatchBuilder::default();
    prefixes.iter().for_each(|prefix| builder.push_v4(*prefix, 0, WITHDRAWN));
    builder.finish(PeerId(peer as u16), 2)
}

fn attribute_set(interner: &Interner, neighbor: u32, number: u32) -> AttrRef {
    let mut builder = AttrsBuilder::default();
    builder.next_hop = NextHop::V4(Ipv4Addr::from(0xc612_0001 + neighbor));
    for asn in [64_496 + number % 1000, 2914, 174, 1299 + number, 64_600 + neighbor] {
        assert!(builder.prepend(asn, 1, SegmentKind::Sequence).is_ok());
    }
    interner.intern(&mut builder)
}

fn prefixes(count: usize) -> Vec<Prefix<u32>> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    let mut rng = XorShift64Star::new(5);
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, rng.below(at as u32 + 1) as usize);
    }
    numbers.into_iter().filter_map(|n| Prefix::new((n << 8).wrapping_add(0x0100_0000), 24).ok()).collect()
}

fn peers(count: usize) -> PeerTable {
    let mut table = PeerTable::default();
    for number in 0..count as u16 {
        let address = IpAddr::V4(Ipv4Addr::from(0xc612_0001 + u32::from(number)));
        table.insert(Arc::new(PeerInfo {
            id: PeerId(number),
            name: format!("peer{number}").into(),
            address,
            local_address: address,
            remote_as: 64_600 + u32::from(number),
            local_as: 65_000,
            kind: PeerKind::External,
            router_id: Ipv4Addr::from(0x0a00_0001 + u32::from(number)),
            role: None,
            route_server_client: false,
        }));
    }
    table
}

/// Nanoseconds this thread has run; 0 where the system does not say.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse::<usize>().ok()).unwrap_or(0) * 4096
}
