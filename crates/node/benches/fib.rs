//! The cost of the FIB outlet per prefix, without installing and into the data plane's tables; and how long others wait for
//! the tables at most, if changes that come together are installed at once, or in pieces as a router does.
//!
//! ```text
//! cargo bench -p thalweg-node --bench fib --profile quick
//! ```

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use thalweg_base::{DropReason, Prefix};
use thalweg_bgp::attrs::{AttrsBuilder, Interner, NextHop};
use thalweg_bgp::peer::PeerId;
use thalweg_bgp::route::{Change, Changes, Chosen};
use thalweg_dataplane::route::Adjacency;
use thalweg_node::fib::{
    BaseRoutes, Batch, FibTables, HopNumber, Install, Outlet, OutletConfig, PIECE_CHANGES, RouteInstaller,
    Underlay, Way,
};

const PREFIXES: u32 = 500_000;
/// Routes that share their attributes, as in an UPDATE of the full table.
const RUN: u32 = 5;
const NEXT_HOPS: u32 = 30;

struct Nowhere;

impl RouteInstaller for Nowhere {
    fn moves_prefixes(&self) -> bool {
        true
    }
    fn set_hop(&mut self, _: HopNumber, _: Way, _: Option<Way>) {}
    fn install_v4(&mut self, items: &[Install<u32>]) {
        std::hint::black_box(items);
    }
    fn install_v6(&mut self, items: &[Install<u128>]) {
        std::hint::black_box(items);
    }
    fn finish(&mut self) {}
}

/// Processor time of this thread, in nanoseconds.
fn processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

fn batches(shift: u32) -> Vec<Changes> {
    let interner = Interner::new(7);
    let mut builder = AttrsBuilder::default();
    let mut attrs = Vec::new();
    for n in 0..PREFIXES / RUN {
        builder.next_hop = NextHop::V4(Ipv4Addr::from(0x0a00_0000 + (n + shift) % NEXT_HOPS));
        builder.med = Some(n);
        attrs.push(interner.intern(&mut builder));
    }
    let change = |n: u32| {
        let chosen = Chosen { attrs: attrs[(n / RUN) as usize].clone(), peer: PeerId(1), local_id: 1 };
        let jumping = n.wrapping_mul(0x9e37_79b1) >> 8;
        let prefix = Prefix::new(0x1000_0000 + (jumping << 8), 24).expect("24 is a valid prefix length");
        Change { prefix, old: None, new: Some(chosen), further: None }
    };
    let all: Vec<_> = (0..PREFIXES).collect();
    all.chunks(4096)
        .map(|part| Changes { v4: part.iter().map(|n| change(*n)).collect(), ..Changes::default() })
        .collect()
}

/// Changes that come together, in lists of 4096.
const TOGETHER: usize = 8;

fn measure(name: &str, changes_max: usize, installer: &mut dyn RouteInstaller) {
    let config = OutletConfig { first_hop: BaseRoutes::default().first_hop(), ..OutletConfig::default() };
    let mut outlet = Outlet::new(config, Underlay::everything_on(0));
    let mut withdrawn = batches(1);
    for change in withdrawn.iter_mut().flat_map(|batch| &mut batch.v4) {
        change.new = None;
    }
    for (step, batches) in [("announce", batches(0)), ("move", batches(1)), ("withdraw", withdrawn)] {
        let (begun, processor) = (Instant::now(), processor_ns());
        let mut longest = Duration::ZERO;
        for together in batches.chunks(TOGETHER) {
            let batch = Batch::of(together);
            for piece in batch.pieces(changes_max) {
                let begun = Instant::now();
                outlet.handle_piece(piece, installer);
                longest = longest.max(begun.elapsed());
            }
        }
        let count = f64::from(PREFIXES);
        println!(
            "{name:<12} {changes_max:>5} {step:<9} {:>6.0} ns a prefix, {:>6.0} ns of processor time, at most {:>5.1} ms",
            begun.elapsed().as_nanos() as f64 / count,
            (processor_ns() - processor) / count,
            longest.as_secs_f64() * 1000.0
        );
    }
}

fn main() {
    let forward = |_| Adjacency::Drop(DropReason::NeighborUnresolved);
    for _ in 0..2 {
        measure("nowhere", PIECE_CHANGES, &mut Nowhere);
        for changes_max in [TOGETHER * 4096, PIECE_CHANGES, 1024] {
            let mut tables = FibTables::new(BaseRoutes::default(), Box::new(forward)).expect("memory");
            measure("data plane", changes_max, &mut tables);
        }
    }
}
