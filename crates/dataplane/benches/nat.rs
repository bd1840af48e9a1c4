//! The cost of NAT per packet: `cargo bench -p thalweg-dataplane --bench nat` (or `--profile quick`).
//!
//! Chunks of 1600 packets are made and described for every measurement outside the measured time; only the stage
//! itself (or, under `labels`, the labeler) is timed. Sessions are visited at random, half of the packets in each
//! direction. The figures are items (packets) per second of one thread.

use divan::Bencher;
use divan::counter::ItemsCount;
use std::net::SocketAddrV4;
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk, XorShift64Star};
use thalweg_dataplane::nat::testing::{self, INSIDE, OUTSIDE, SECOND_NS};
use thalweg_dataplane::nat::{Labeler, NatConfig, NatProtocol, NatStage, PortSelection};

fn main() {
    divan::main();
}

const SESSIONS: [u32; 3] = [4_000, 100_000, 1_000_000];

/// A NAT with `sessions` TCP and UDP sessions, and the packets of both directions of each.
struct Established {
    labeler: Labeler,
    nat: NatStage,
    packets: Vec<(u16, Vec<u8>)>,
    rng: XorShift64Star,
    sequence: u64,
}

fn config(sessions: u32) -> NatConfig {
    NatConfig {
        port_selection: PortSelection::Hash,
        sessions_max: sessions + sessions / 2 + 4096,
        ..testing::config((sessions / 60_000 + 1).min(64) as u8)
    }
}

/// The inside endpoint of session `n`: 1024 ports a host.
fn inside(n: u32) -> SocketAddrV4 {
    SocketAddrV4::new((u32::from_be_bytes([192, 168, 0, 0]) + n / 1024).into(), 2000 + (n % 1024) as u16)
}

fn remote() -> SocketAddrV4 {
    SocketAddrV4::new([203, 0, 113, 1].into(), 443)
}

const ACK: u8 = 16;

impl Established {
    fn new(sessions: u32) -> Self {
        let config = config(sessions);
        let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), NatStage::new(&config)) else {
            panic!("the configuration is valid");
        };
        let mut this = Self { labeler, nat, packets: Vec::new(), rng: XorShift64Star::new(1), sequence: 0 };
        let protocol = |n: u32| if n & 1 == 0 { NatProtocol::Tcp } else { NatProtocol::Udp };
        for first in (0..sessions).step_by(1000) {
            let numbers = first..(first + 1000).min(sessions);
            let out: Vec<_> =
                numbers.clone().map(|n| testing::any(protocol(n), inside(n), remote(), ACK)).collect();
            let mut chunk = this.chunk(out.iter().map(|bytes| (INSIDE, &bytes[..])));
            testing::label(&this.labeler, &mut chunk, 64);
            this.nat.run_groups(&mut chunk, 0..1, 1);
            for (i, n) in numbers.enumerate() {
                assert!(chunk.packets()[i].is_alive(), "every session fits");
                let left = chunk.frame(i);
                let address = u32::from_be_bytes([left[12], left[13], left[14], left[15]]);
                let public = SocketAddrV4::new(address.into(), chunk.packets()[i].src_port);
                this.packets.push((INSIDE, out[i].clone()));
                this.packets.push((OUTSIDE, testing::any(protocol(n), remote(), public, ACK)));
            }
        }
        this
    }

    fn chunk<'a>(&self, packets: impl Iterator<Item = (u16, &'a [u8])>) -> Chunk {
        let list: Vec<_> = packets.map(|(port, bytes)| (port, bytes, bytes.len() as u32)).collect();
        testing::chunk(&list, 1_700_000_000 * SECOND_NS)
    }

    /// The next chunk of random packets, described but not labeled.
    fn random(&mut self) -> Chunk {
        self.sequence += 1;
        let len = self.packets.len() as u32;
        let picks: Vec<usize> = (0..CHUNK_PACKETS_DEFAULT).map(|_| self.rng.below(len) as usize).collect();
        self.chunk(picks.iter().map(|&n| (self.packets[n].0, &self.packets[n].1[..])))
    }
}

/// Labeling: the stateless half.
#[divan::bench(args = SESSIONS, sample_count = 300, sample_size = 1)]
fn labels(bencher: Bencher, sessions: u32) {
    let established = std::cell::RefCell::new(Established::new(sessions));
    let labeler = established.borrow().labeler.clone();
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| established.borrow_mut().random())
        .bench_local_refs(|chunk| {
            let (mut batch, _) = chunk.whole();
            for i in 0..batch.len() {
                let (packet, l3) = batch.packet_and_l3(i);
                labeler.label(packet, l3);
            }
        });
}

/// Translation of packets of existing sessions.
#[divan::bench(args = SESSIONS, sample_count = 1000, sample_size = 1)]
fn established(bencher: Bencher, sessions: u32) {
    let established = std::cell::RefCell::new(Established::new(sessions));
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| {
            let mut established = established.borrow_mut();
            let mut chunk = established.random();
            testing::label(&established.labeler, &mut chunk, 64);
            chunk
        })
        .bench_local_refs(|chunk| established.borrow().nat.run_groups(chunk, 0..1, 1));
}

/// Every packet creates a session, and one expires for each created: the clock advances so that about the given
/// number is alive.
#[divan::bench(args = SESSIONS, sample_count = 1000, sample_size = 1)]
fn set_up(bencher: Bencher, sessions: u32) {
    let config = config(sessions + 20_000);
    let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), <NatStage>::new(&config)) else {
        panic!("the configuration is valid");
    };
    let mut n = 0;
    let mut now_ns = 1_700_000_000 * SECOND_NS;
    bencher
        .counter(ItemsCount::new(CHUNK_PACKETS_DEFAULT))
        .with_inputs(|| {
            let packets: Vec<_> = (0..CHUNK_PACKETS_DEFAULT as u32)
                .map(|i| testing::udp(inside((n + i) % (1 << 26)), remote(), b"first"))
                .collect();
            n += CHUNK_PACKETS_DEFAULT as u32;
            // A session lives 300 s; `sessions` of them arrive in that time.
            now_ns += 300 * SECOND_NS / u64::from(sessions) * CHUNK_PACKETS_DEFAULT as u64;
            let list: Vec<_> = packets.iter().map(|p| (INSIDE, &p[..], p.len() as u32)).collect();
            let mut chunk = testing::chunk(&list, now_ns);
            testing::label(&labeler, &mut chunk, 64);
            chunk
        })
        .bench_local_refs(|chunk| nat.run_groups(chunk, 0..1, 1));
    let counters = nat.counters();
    assert_eq!((counters.table_full, counters.ports_exhausted), (0, 0), "{counters:?}");
}
