//! The forwarding stage in memory: validate, look up, TTL, checksum, MAC addresses; no port, no NAT.
//!
//! `cargo bench -p thalweg-dataplane --bench forward`. Each sample gets 16,000 fresh 64-byte UDP frames (1 MB, in
//! chunks of 1600), laid out before the clock starts; it is comparable with DPDK's l3fwd over 16,384 frames. The
//! table comes from the prefix file in `THALWEG_PREFIXES` (one prefix a line, may be gzipped), else it has 10,000
//! random prefixes.

use divan::Bencher;
use divan::counter::ItemsCount;
use flate2::read::MultiGzDecoder;
use ipnet::Ipv4Net;
use std::io::Read;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use thalweg_base::{Chunk, ChunkBuilder, LinkType, XorShift64Star};
use thalweg_dataplane::account::Account;
use thalweg_dataplane::classify::Classifier;
use thalweg_dataplane::ingress::Ingress;
use thalweg_dataplane::lpm::{Fib4Writer, Fib6Writer};
use thalweg_dataplane::route::{Adjacency, NextHops, Router};
use thalweg_wire::{MacAddr, testing};

const CHUNKS: usize = 10;
const CHUNK_PACKETS: usize = 1600;

struct Bed {
    router: Router,
    prefixes: Vec<Ipv4Net>,
}

fn prefixes() -> Vec<Ipv4Net> {
    let Ok(path) = std::env::var("THALWEG_PREFIXES") else {
        let mut rng = XorShift64Star::new(1);
        let random = |_| Ipv4Net::new_assert(Ipv4Addr::from(rng.next_u64() as u32), 24).trunc();
        return (0..10_000).map(random).collect();
    };
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut text = String::new();
    let read = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text),
        false => (&bytes[..]).read_to_string(&mut text),
    };
    read.unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().filter_map(|l| l.trim().parse().ok()).collect()
}

fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| {
        let prefixes = prefixes();
        let mut next_hops = NextHops::new();
        let ids: Vec<u16> = (0..254u16)
            .filter_map(|n| {
                let destination_mac = MacAddr([2, 0, 0, 0, 0, n as u8]);
                let forward = Adjacency::Forward {
                    port: n % 4,
                    destination_mac,
                    source_mac: MacAddr([2, 0, 0, 0, 1, 0]),
                    mtu_bytes: 1500,
                };
                next_hops.add(&[forward])
            })
            .collect();
        let routes = prefixes.iter().zip(ids.iter().cycle()).map(|(p, id)| (*p, *id));
        let fib4 = Fib4Writer::from_routes(routes).unwrap_or_else(|e| panic!("{e}"));
        let fib6 = Fib6Writer::new().unwrap_or_else(|e| panic!("{e}"));
        let router = Router {
            targets: Arc::default(),
            fib4: Arc::clone(fib4.table()),
            fib6: Arc::clone(fib6.table()),
            vrfs: None,
            next_hops: next_hops.into(),
        };
        Bed { router, prefixes }
    })
}

/// 64-byte frames to addresses inside the table.
fn chunks() -> Vec<Chunk> {
    let prefixes = &bed().prefixes;
    let mut rng = XorShift64Star::new(0);
    let mut chunk = |sequence: usize| {
        let mut builder = ChunkBuilder::with_capacity(CHUNK_PACKETS * 80 + 64);
        for _ in 0..CHUNK_PACKETS {
            let net = prefixes[rng.below(prefixes.len() as u32) as usize];
            let host = rng.next_u64() as u32 & u32::from(net.hostmask());
            let dst = u32::from(net.network()) | host;
            let frame = testing::frame(&testing::udp(([10, 0, 0, 1], 0), (Ipv4Addr::from(dst), 0), &[0; 22]));
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + 64].copy_from_slice(&frame);
            builder.push(at, 64, 64, 0, LinkType::Ethernet, 0, 0);
        }
        builder.finish(sequence as u64, 1, 0)
    };
    (0..CHUNKS).map(&mut chunk).collect()
}

fn each_batch(bencher: Bencher<'_, '_>, work: impl Fn(&mut Chunk, usize) + Sync) {
    bed();
    bencher.counter(ItemsCount::new(CHUNKS * CHUNK_PACKETS)).with_inputs(chunks).bench_local_values(
        |mut chunks| {
            for chunk in &mut chunks {
                for k in 0..chunk.batch_count() {
                    work(chunk, k);
                }
            }
            chunks
        },
    );
}

fn ingress() -> Ingress {
    Ingress { drop_martians: false, ..Default::default() }
}

#[divan::bench]
fn validate(bencher: Bencher<'_, '_>) {
    let ingress = ingress();
    each_batch(bencher, |chunk, k| {
        ingress.process(&mut chunk.batch(k));
    });
}

#[divan::bench]
fn validate_and_route(bencher: Bencher<'_, '_>) {
    let ingress = ingress();
    let router = &bed().router;
    each_batch(bencher, |chunk, k| {
        ingress.process(&mut chunk.batch(k));
        router.process(&mut chunk.batch(k));
    });
}

#[divan::bench]
fn validate_classify_route_and_book(bencher: Bencher<'_, '_>) {
    let ingress = ingress();
    let classifier = Classifier::new([], 0);
    let router = &bed().router;
    let account = std::cell::RefCell::new(Account::new(4, 1));
    bed();
    bencher.counter(ItemsCount::new(CHUNKS * CHUNK_PACKETS)).with_inputs(chunks).bench_local_values(
        |mut chunks| {
            for chunk in &mut chunks {
                for k in 0..chunk.batch_count() {
                    let mut batch = chunk.batch(k);
                    ingress.process(&mut batch);
                    classifier.process(&mut batch);
                    router.process(&mut batch);
                    account.borrow_mut().count(&batch, 1000);
                }
            }
            chunks
        },
    );
}

fn main() {
    divan::main();
}
