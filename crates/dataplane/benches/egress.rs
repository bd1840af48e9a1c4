//! Enqueues packets in an egress queue and dequeues them.
//!
//! `cargo bench -p thalweg-dataplane --bench egress`. Items are 64 bytes, like a packet's descriptor; 64 are
//! enqueued, then 64 dequeued, as a sink hands over a chunk and the port takes a burst. Figures are for both
//! together, per packet. Shaped queues get exactly the time they need, so that no packet waits and only the
//! buckets' arithmetic is added; in `held`, each packet waits for its class's own bucket.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use thalweg_dataplane::egress::{Aqm, EgressClass, EgressConfig, EgressQueue, Next};
use thalweg_dataplane::schedule::Service;

const BURST: u64 = 64;
const LEN: u32 = 1_000;
/// 1000 bytes at 8 Gbit/s.
const PACKET_NS: u64 = 1_000;

type Item = [u64; 8];

fn class(number: u8, aqm: Option<Aqm>) -> EgressClass {
    let service = match number {
        0 | 1 => Service::Strict(number),
        _ => Service::Weight(u16::from(number)),
    };
    EgressClass { name: number.to_string(), service, aqm, ..EgressClass::default() }
}

fn port(classes: std::ops::Range<u8>, rate_bps: Option<u64>, aqm: Option<Aqm>) -> EgressConfig {
    let classes = classes.map(|number| class(number, aqm)).collect();
    EgressConfig { rate_bps, burst_bytes: 128_000, classes, ..EgressConfig::default() }
}

/// Rounds of one burst in and out; packets go to the classes in turn.
fn rounds(bencher: Bencher<'_, '_>, config: EgressConfig) {
    let classes = config.classes.len() as u64;
    let mut queue: EgressQueue<Item> = EgressQueue::new(config);
    let mut now_ns = 1_000_000u64;
    let mut mark = |item: &mut Item| {
        item[7] |= 1;
        true
    };
    bencher.counter(ItemsCount::new(BURST)).bench_local(move || {
        for number in 0..BURST {
            let item = [number; 8];
            let _ = black_box(queue.enqueue((number % classes) as u8, item, LEN, now_ns));
        }
        now_ns += BURST * PACKET_NS;
        let mut taken = 0;
        while taken < BURST {
            match queue.dequeue(now_ns, &mut mark, &mut |item, _, _| {
                black_box(item);
            }) {
                Next::Packet { item, .. } => {
                    black_box(item);
                }
                Next::Wait { until_ns } => {
                    now_ns = until_ns;
                    continue;
                }
                Next::Empty => break,
            }
            taken += 1;
        }
        taken
    });
}

#[divan::bench]
fn one_class(bencher: Bencher<'_, '_>) {
    rounds(bencher, port(7..8, None, None));
}

#[divan::bench]
fn one_class_managed(bencher: Bencher<'_, '_>) {
    rounds(bencher, port(7..8, None, Some(Aqm::default())));
}

#[divan::bench]
fn one_class_shaped(bencher: Bencher<'_, '_>) {
    rounds(bencher, port(7..8, Some(8_000_000_000), None));
}

#[divan::bench]
fn eight_classes(bencher: Bencher<'_, '_>) {
    rounds(bencher, port(0..8, None, None));
}

#[divan::bench]
fn eight_classes_shaped_and_managed(bencher: Bencher<'_, '_>) {
    rounds(bencher, port(0..8, Some(8_000_000_000), Some(Aqm::default())));
}

#[divan::bench]
fn eight_classes_held(bencher: Bencher<'_, '_>) {
    let mut config = port(0..8, Some(8_000_000_000), Some(Aqm::default()));
    for class in &mut config.classes {
        (class.rate_bps, class.burst_bytes) = (Some(900_000_000), 1_000);
    }
    rounds(bencher, config);
}

fn main() {
    divan::main();
}
