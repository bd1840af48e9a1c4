//! The cost of export: `cargo bench -p thalweg-bgp --bench export` (or `--profile quick`).
//!
//! Figures are for one thread and per prefix. `announce`: new prefixes, several to each attribute set of about
//! 100 bytes, from `handle_changes` to the log. `withdraw`: the same prefixes are withdrawn. `write`: of ten
//! members, nine read the log into a buffer, as for a socket; per prefix and member.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use thalweg_base::Prefix;
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, NextHop, SegmentKind};
use thalweg_bgp::export::{ExportLimits, ExportView, Member, UpdateGroup};
use thalweg_bgp::peer::{PeerId, PeerInfo, PeerKind, PeerTable};
use thalweg_bgp::route::{Change, Changes, Chosen};

fn main() {
    divan::main();
}

const PREFIXES: usize = 50_000;
const PER_CHANGES: usize = 500;
const PER_SET: [usize; 3] = [1, 5, 50];

fn peers() -> PeerTable {
    let mut table = PeerTable::default();
    for number in 0..10u16 {
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

fn sets(count: usize) -> Vec<AttrRef> {
    let (interner, mut builder) = (Interner::new(1), AttrsBuilder::default());
    let set = |number: usize| {
        builder.clear();
        builder.next_hop = NextHop::V4(Ipv4Addr::new(198, 18, 0, 1));
        for hop in 0..5u32 {
            let _ = builder.prepend(64_700 + hop * 131 + number as u32, 1, SegmentKind::Sequence);
        }
        let communities: Vec<u32> = (0..6).map(|each| 0xfdea_0000 + each + number as u32 % 400).collect();
        let _ = builder.set_communities(&communities);
        interner.intern(&mut builder)
    };
    (0..count).map(set).collect()
}

fn changes(per_set: usize, withdrawn: bool) -> Vec<Changes> {
    let sets = sets(PREFIXES.div_ceil(per_set));
    let change = |number: usize| {
        let attrs = sets[number / per_set].clone();
        let chosen = Some(Chosen { attrs, peer: PeerId(0), local_id: 1 });
        let prefix = Prefix::new(0x0a00_0000 + ((number as u32) << 8), 24).ok()?;
        let (old, new) = if withdrawn { (chosen, None) } else { (None, chosen) };
        Some(Change { prefix, old, new, further: None })
    };
    let numbers: Vec<usize> = (0..PREFIXES).collect();
    let part = |part: &[usize]| Changes {
        v4: part.iter().filter_map(|&n| change(n)).collect(),
        ..Changes::default()
    };
    numbers.chunks(PER_CHANGES).map(part).collect()
}

fn group(peers: &PeerTable) -> (UpdateGroup, Vec<Member>) {
    let view = ExportView {
        own_ipv4: Some(Ipv4Addr::new(198, 18, 0, 100)),
        ..ExportView::new(PeerKind::External, 65_000)
    };
    let representative = peers.iter().next().cloned();
    let mut group =
        UpdateGroup::new(Arc::new(view), representative.expect("ten peers"), ExportLimits::default());
    let members = peers.iter().map(|peer| group.join(peer.id, peer.remote_as)).collect();
    (group, members)
}

fn run(bencher: Bencher, per_set: usize, withdrawn: bool) {
    let (peers, changes) = (peers(), changes(per_set, withdrawn));
    bencher.counter(ItemsCount::new(PREFIXES)).with_inputs(|| group(&peers)).bench_local_refs(
        |(group, _)| {
            for each in &changes {
                group.handle_changes(each, &peers);
            }
            group.flush()
        },
    );
}

#[divan::bench(args = PER_SET, sample_count = 30)]
fn announce(bencher: Bencher, per_set: usize) {
    run(bencher, per_set, false);
}

#[divan::bench(sample_count = 30)]
fn withdraw(bencher: Bencher) {
    run(bencher, 5, true);
}

#[divan::bench(args = PER_SET, sample_count = 30)]
fn write(bencher: Bencher, per_set: usize) {
    let (peers, changes) = (peers(), changes(per_set, false));
    let filled = || {
        let (mut group, members) = group(&peers);
        changes.iter().for_each(|each| group.handle_changes(each, &peers));
        group.flush();
        (group, members, vec![0u8; 1 << 20])
    };
    bencher.counter(ItemsCount::new(PREFIXES * 9)).with_inputs(filled).bench_local_refs(
        |(_, members, socket)| {
            for member in members.iter_mut() {
                loop {
                    let bytes = member.gather(256 << 10);
                    if bytes == 0 {
                        break;
                    }
                    let mut at = 0;
                    for slice in member.slices() {
                        socket[at..at + slice.len()].copy_from_slice(&slice);
                        at += slice.len();
                    }
                    member.advance(bytes);
                }
            }
            divan::black_box(&socket);
        },
    );
}
