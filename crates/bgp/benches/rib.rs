//! The cost of a route in the RIB: `cargo bench -p thalweg-bgp --bench rib` (or `--profile quick`).
//!
//! All figures are for one thread and per item (prefix or attribute set). `fill` builds a table from nothing in
//! batches of 2,000, with all 16 shards in turn, as one core that owns all shards does; `last` adds only the last
//! 2,000 prefixes. Prefixes come in random order, twenty to an attribute set.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use thalweg_base::{IpPrefix, Prefix, XorShift64Star};
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, NextHop, SegmentKind};
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use thalweg_bgp::rib::{NextHopView, RibShard, ScanCursor, ShardConfig, Withdrawal};
use thalweg_bgp::route::{Changes, RouteBatch, RouteBatchBuilder, SHARDS, WITHDRAWN};
use thalweg_wire::bgp::{Family, attribute};

fn main() {
    divan::main();
}

const BATCH: usize = 2_000;
const SIZES: [usize; 2] = [50_000, 500_000];

fn peers(count: u16) -> PeerTable {
    let mut table = PeerTable::default();
    for number in 0..count {
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

/// Distinct prefixes in random order, /24s.
fn prefixes(count: usize) -> Vec<Prefix<u32>> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    let mut rng = XorShift64Star::new(5);
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, rng.below(at as u32 + 1) as usize);
    }
    numbers.into_iter().filter_map(|n| Prefix::new((n << 8) + 0x0100_0000, 24).ok()).collect()
}

/// A set of about 100 bytes: six ASes, six communities.
fn describe(builder: &mut AttrsBuilder, neighbor: u32, number: u32) {
    builder.clear();
    builder.next_hop = NextHop::V4(Ipv4Addr::from(0xc612_0001 + neighbor));
    builder.med = Some(0);
    let mut path = vec![SegmentKind::Sequence as u8, 6];
    let asns = [64_600 + neighbor, 3356, 1299 + number, 174, 2914, 64_496 + number % 1000];
    path.extend(asns.iter().flat_map(|asn| asn.to_be_bytes()));
    let communities: Vec<u8> =
        (0..6u32).flat_map(|n| ((3356 << 16) + number % 500 + n).to_be_bytes()).collect();
    let large: Vec<u8> = (0..6u32).flat_map(|n| (number + n).to_be_bytes()).collect();
    let all = attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE;
    let set = builder
        .set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path)
        .and_then(|()| builder.set(all, attribute::COMMUNITIES, &communities))
        .and_then(|()| builder.set(all, attribute::LARGE_COMMUNITIES, &large));
    assert!(set.is_ok());
}

fn set(interner: &Interner, neighbor: u32, number: u32) -> AttrRef {
    let mut builder = AttrsBuilder::default();
    describe(&mut builder, neighbor, number);
    interner.intern(&mut builder)
}

/// The announcements of one neighbor, in batches. `spread` makes the sets of two rounds differ.
fn batches(interner: &Interner, peer: u16, prefixes: &[Prefix<u32>], spread: u32) -> Vec<RouteBatch> {
    let mut builder = RouteBatchBuilder::default();
    let build = |(batch, part): (usize, &[Prefix<u32>])| {
        for (at, group) in part.chunks(20).enumerate() {
            let number = (batch * BATCH / 20 + at) as u32 + spread;
            let attrs = builder.push_attrs(set(interner, peer.into(), number));
            group.iter().for_each(|prefix| builder.push_v4(*prefix, 0, attrs));
        }
        builder.finish(PeerId(peer), 1)
    };
    prefixes.chunks(BATCH).enumerate().map(build).collect()
}

fn withdrawals(peer: u16, prefixes: &[Prefix<u32>]) -> Vec<RouteBatch> {
    let mut builder = RouteBatchBuilder::default();
    let build = |part: &[Prefix<u32>]| {
        part.iter().for_each(|prefix| builder.push_v4(*prefix, 0, WITHDRAWN));
        builder.finish(PeerId(peer), 1)
    };
    prefixes.chunks(BATCH).map(build).collect()
}

struct Rib {
    shards: Vec<RibShard>,
    peers: PeerTable,
}

impl Rib {
    fn new(peers: PeerTable) -> Self {
        let shard = |shard| RibShard::new(ShardConfig { shard, seed: 9, ..ShardConfig::default() });
        Self { shards: (0..SHARDS).map(shard).collect(), peers }
    }

    /// Applies batches to all shards in turn and drops the changes, as if all readers had read them.
    fn apply(&mut self, batches: &[RouteBatch]) -> usize {
        let mut changed = 0;
        for batch in batches {
            for shard in &mut self.shards {
                let mut changes = Changes::default();
                shard.apply(batch, &self.peers, &mut changes);
                changed += changes.v4.len();
            }
        }
        changed
    }
}

fn filled(peer_count: u16, prefixes: &[Prefix<u32>], interner: &Interner) -> Rib {
    let mut rib = Rib::new(peers(peer_count));
    for peer in 0..peer_count {
        rib.apply(&batches(interner, peer, prefixes, 0));
    }
    rib
}

#[divan::bench(args = SIZES, sample_count = 10)]
fn fill(bencher: Bencher<'_, '_>, size: usize) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let batches = batches(&interner, 0, &prefixes, 0);
    bencher
        .counter(ItemsCount::new(size))
        .with_inputs(|| Rib::new(peers(10)))
        .bench_local_refs(|rib| rib.apply(&batches));
}

#[divan::bench(args = SIZES, sample_count = 20)]
fn last(bencher: Bencher<'_, '_>, size: usize) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let batches = batches(&interner, 0, &prefixes, 0);
    let (last, first) = batches.split_last().unwrap_or_else(|| unreachable!());
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| {
            let mut rib = Rib::new(peers(10));
            rib.apply(first);
            rib
        })
        .bench_local_refs(|rib| rib.apply(std::slice::from_ref(last)));
}

/// The tenth path of each prefix is added; it is not the best.
#[divan::bench(args = [50_000, 500_000], sample_count = 5)]
fn tenth_path(bencher: Bencher<'_, '_>, size: usize) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let batches = batches(&interner, 9, &prefixes, 0);
    let keep = std::cell::RefCell::new(None);
    bencher
        .counter(ItemsCount::new(size))
        .with_inputs(|| {
            // One table, built once: the tenth neighbor's routes are removed before each round.
            let mut rib = keep.borrow_mut().take().unwrap_or_else(|| filled(9, &prefixes, &interner));
            rib.peers = peers(10);
            for shard in &mut rib.shards {
                let mut cursor = ScanCursor::START;
                let mut changes = Changes::default();
                while !shard.withdraw(
                    Withdrawal::All(PeerId(9)),
                    Family::Ipv4,
                    &mut cursor,
                    4096,
                    &rib.peers,
                    &mut changes,
                ) {}
            }
            rib
        })
        .bench_local_values(|mut rib| {
            let changed = rib.apply(&batches);
            *keep.borrow_mut() = Some(rib);
            changed
        });
}

/// Replaces the attributes of the second of two paths, which stays the second.
#[divan::bench(args = SIZES, sample_count = 20)]
fn replace_second(bencher: Bencher<'_, '_>, size: usize) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let mut rib = filled(2, &prefixes, &interner);
    let rounds = [batches(&interner, 1, &prefixes, 7), batches(&interner, 1, &prefixes, 0)];
    let mut round = 0;
    bencher.counter(ItemsCount::new(size)).bench_local(|| {
        round ^= 1;
        rib.apply(&rounds[round])
    });
}

/// Replaces the attributes of the only path.
#[divan::bench(args = SIZES, sample_count = 20)]
fn replace_best(bencher: Bencher<'_, '_>, size: usize) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let mut rib = filled(1, &prefixes, &interner);
    let rounds = [batches(&interner, 0, &prefixes, 7), batches(&interner, 0, &prefixes, 0)];
    let mut round = 0;
    bencher.counter(ItemsCount::new(size)).bench_local(|| {
        round ^= 1;
        rib.apply(&rounds[round])
    });
}

/// Withdraws the only path of each prefix, one by one.
#[divan::bench(args = SIZES, sample_count = 10)]
fn withdraw(bencher: Bencher<'_, '_>, size: usize) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let batches = withdrawals(0, &prefixes);
    bencher
        .counter(ItemsCount::new(size))
        .with_inputs(|| filled(1, &prefixes, &interner))
        .bench_local_refs(|rib| rib.apply(&batches));
}

#[divan::bench(sample_count = 10)]
fn scan(bencher: Bencher<'_, '_>) {
    let (interner, prefixes) = (Interner::new(1), prefixes(500_000));
    let rib = filled(1, &prefixes, &interner);
    bencher.counter(ItemsCount::new(prefixes.len())).bench_local(|| {
        let mut seen = 0u64;
        for shard in &rib.shards {
            let mut cursor = ScanCursor::START;
            let mut visit = |route: thalweg_bgp::rib::ScannedRoute<'_, u32>| {
                seen += route.best().map_or(0, |path| path.attrs.id() as u64 & 1);
            };
            while !shard.scan(&mut cursor, 4096, &mut visit) {}
        }
        seen
    });
}

/// Interns sets of about 100 bytes that exist already.
#[divan::bench(sample_count = 50)]
fn intern_hit(bencher: Bencher<'_, '_>) {
    let interner = Interner::new(1);
    let mut builders: Vec<AttrsBuilder> = Vec::new();
    for number in 0..1000 {
        let mut builder = AttrsBuilder::default();
        describe(&mut builder, 1, number);
        builders.push(builder);
    }
    let held: Vec<AttrRef> = builders.iter_mut().map(|builder| interner.intern(builder)).collect();
    bencher
        .counter(ItemsCount::new(held.len()))
        .bench_local(|| builders.iter_mut().map(|builder| interner.intern(builder).id() & 1).sum::<usize>());
}

/// A view with this many routes of other protocols, each with its own metric, that covers all neighbors' next
/// hops.
fn view(routes: usize) -> NextHopView {
    let host = |n: u32| Prefix::new(0xc612_0001 + n, 32).ok().map(|prefix| (IpPrefix::V4(prefix), Some(n)));
    let others = prefixes(routes).into_iter().zip(0..).map(|(prefix, n)| (IpPrefix::V4(prefix), Some(n)));
    NextHopView::new(others.chain((0..10).filter_map(host)))
}

/// The metric of a next hop, for ten next hops in turn.
#[divan::bench(args = [20, 10_000, 1_000_000])]
fn next_hop_metric(bencher: Bencher<'_, '_>, routes: usize) {
    let (interner, view) = (Interner::new(1), view(routes));
    let sets: Vec<_> = (0..1000).map(|n| set(&interner, n * 7 % 10, n)).collect();
    bencher
        .counter(ItemsCount::new(sets.len()))
        .bench_local(|| sets.iter().map(|attrs| u64::from(view.metric(attrs).unwrap_or(0))).sum::<u64>());
}

/// Decides again after metrics of next hops have changed: `size` prefixes with `paths` paths each.
#[divan::bench(args = [(500_000, 1), (200_000, 2), (50_000, 10)], sample_count = 10)]
fn reevaluate(bencher: Bencher<'_, '_>, (size, paths): (usize, u16)) {
    let (interner, prefixes) = (Interner::new(1), prefixes(size));
    let mut rib = filled(paths, &prefixes, &interner);
    let views = [Arc::new(view(20)), Arc::new(NextHopView::default())];
    let mut round = 0;
    bencher.counter(ItemsCount::new(size)).bench_local(|| {
        round += 1;
        let mut changed = 0;
        for shard in &mut rib.shards {
            shard.set_next_hops(views[round % 2].clone());
            let (mut cursor, mut changes) = (ScanCursor::START, Changes::default());
            while !shard.reevaluate(Family::Ipv4, &mut cursor, 4096, &rib.peers, &mut changes) {}
            changed += changes.v4.len();
        }
        changed
    });
}
