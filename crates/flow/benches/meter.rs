//! The cost of metering per packet: `cargo bench -p thalweg-flow --bench meter` (or `--profile quick`).
//!
//! Chunks of 1600 packets of 64 bytes are built, parsed and labeled for every measurement outside the measured
//! time; only [`Meter::observe`] with its records is timed. Figures are items (packets) per second of one thread.

use divan::Bencher;
use divan::counter::ItemsCount;
use std::cell::RefCell;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk, XorShift64Star};
use thalweg_flow::testing::{self, Sample};
use thalweg_flow::{Meter, MeterOptions};

fn main() {
    divan::main();
}

const START_NS: u64 = 1_700_000_000_000_000_000;
/// Ten million packets per second.
const GAP_NS: u64 = 100;

/// The flow of each packet.
#[derive(Clone, Copy)]
enum Pick {
    /// Any of so many flows, with equal probability.
    Uniform(u32),
    /// Of so many flows, the n-th with probability proportional to 1/n (Zipf's law, exponent 1).
    Zipf(u32),
    /// A new flow each time.
    Unique,
}

struct Traffic {
    pick: Pick,
    ipv6: bool,
    rng: XorShift64Star,
    /// Sums of 1/n.
    sums: Vec<f64>,
    next: u32,
    sequence: u64,
    clock_ns: u64,
}

impl Traffic {
    fn new(pick: Pick, ipv6: bool) -> Self {
        let mut sums = Vec::new();
        if let Pick::Zipf(flows) = pick {
            let mut sum = 0.0;
            sums.extend((1..=flows).map(|n| {
                sum += 1.0 / f64::from(n);
                sum
            }));
        }
        Self { pick, ipv6, rng: XorShift64Star::new(1), sums, next: 0, sequence: 0, clock_ns: START_NS }
    }

    fn flow(&mut self) -> u32 {
        match self.pick {
            Pick::Uniform(flows) => self.rng.below(flows),
            Pick::Zipf(_) => {
                let share = self.rng.next_u64() as f64 / u64::MAX as f64 * self.sums[self.sums.len() - 1];
                self.sums.partition_point(|sum| *sum < share) as u32
            }
            Pick::Unique => {
                self.next += 1;
                self.next
            }
        }
    }

    fn sample(&self, flow: u32) -> Sample {
        let (host, port) = (flow / 1000, 1024 + (flow % 1000) as u16);
        let address = |net: u32, host: u32| -> IpAddr {
            if self.ipv6 {
                Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(net) << 64 | u128::from(host)).into()
            } else {
                Ipv4Addr::from(net << 24 | host).into()
            }
        };
        Sample::tcp((address(10, host), port), (address(11, flow % 65_536), 443))
    }

    fn chunk(&mut self, meter: &Meter) -> Chunk {
        let samples: Vec<_> = (0..CHUNK_PACKETS_DEFAULT)
            .map(|_| {
                self.clock_ns += GAP_NS;
                let flow = self.flow();
                Sample { arrival_ns: self.clock_ns, ..self.sample(flow) }
            })
            .collect();
        self.labeled(meter, &samples)
    }

    fn labeled(&mut self, meter: &Meter, samples: &[Sample]) -> Chunk {
        self.sequence += 1;
        let mut chunk = testing::chunk(self.sequence, self.clock_ns, samples);
        for (packet, frame) in chunk.whole().0.frames() {
            meter.label(packet, frame);
        }
        chunk
    }

    /// Every flow once.
    fn fill(&mut self, meter: &Meter, flows: u32) {
        for first in (0..flows).step_by(1600) {
            let samples: Vec<_> = (first..flows.min(first + 1600))
                .map(|flow| Sample { arrival_ns: self.clock_ns, ..self.sample(flow) })
                .collect();
            let mut chunk = self.labeled(meter, &samples);
            meter.observe(&mut chunk, 0..1, 1, &mut |_| ());
        }
    }
}

fn run(bencher: Bencher, pick: Pick, ipv6: bool, options: &MeterOptions) {
    let Ok(meter) = Meter::new(options) else { panic!("the options are valid") };
    let mut traffic = Traffic::new(pick, ipv6);
    match pick {
        Pick::Uniform(flows) | Pick::Zipf(flows) => traffic.fill(&meter, flows),
        Pick::Unique => {
            traffic.fill(&meter, options.flows_max + options.flows_max / 4);
            traffic.next = options.flows_max * 2;
        }
    }
    let traffic = RefCell::new(traffic);
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| traffic.borrow_mut().chunk(&meter))
        .bench_local_refs(|chunk| {
            meter.observe(chunk, 0..1, 1, &mut |record| {
                black_box(record);
            });
        });
    let totals = meter.totals();
    assert!(totals.holds());
    eprintln!(
        "flows {}, bytes a flow {:.1}, bucket evictions {}",
        totals.flows_cached,
        totals.memory_bytes as f64 / totals.flows_cached as f64,
        totals.evicted_bucket_full
    );
}

/// Room for slightly more than a million flows, because shards are not filled evenly.
fn million(shards: u16) -> MeterOptions {
    MeterOptions { flows_max: 1_050_000, shards, huge_pages: true, ..MeterOptions::default() }
}

const SHARDS: [u16; 2] = [1, 16];

#[divan::bench(args = SHARDS, sample_count = 1500, sample_size = 1)]
fn uniform_1m(bencher: Bencher, shards: u16) {
    run(bencher, Pick::Uniform(1_000_000), false, &million(shards));
}

#[divan::bench(args = SHARDS, sample_count = 1500, sample_size = 1)]
fn uniform_1m_ipv6(bencher: Bencher, shards: u16) {
    run(bencher, Pick::Uniform(1_000_000), true, &million(shards));
}

#[divan::bench(args = SHARDS, sample_count = 1500, sample_size = 1)]
fn uniform_1m_biflow(bencher: Bencher, shards: u16) {
    run(bencher, Pick::Uniform(1_000_000), false, &MeterOptions { biflow: true, ..million(shards) });
}

#[divan::bench(args = SHARDS, sample_count = 1500, sample_size = 1)]
fn zipf_200k(bencher: Bencher, shards: u16) {
    run(bencher, Pick::Zipf(200_000), false, &million(shards));
}

#[divan::bench(args = SHARDS, sample_count = 1500, sample_size = 1)]
fn one_flow(bencher: Bencher, shards: u16) {
    run(bencher, Pick::Uniform(1), false, &million(shards));
}

#[divan::bench(args = SHARDS, sample_count = 1500, sample_size = 1)]
fn unique_flood(bencher: Bencher, shards: u16) {
    run(bencher, Pick::Unique, false, &million(shards));
}

/// Labeling: the stateless half.
#[divan::bench(sample_count = 500, sample_size = 1)]
fn label(bencher: Bencher) {
    let Ok(meter) = Meter::new(&million(16)) else { panic!("the options are valid") };
    let traffic = RefCell::new(Traffic::new(Pick::Uniform(1_000_000), false));
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| traffic.borrow_mut().chunk(&meter))
        .bench_local_refs(|chunk| {
            for (packet, frame) in chunk.whole().0.frames() {
                meter.label(packet, frame);
            }
        });
}
