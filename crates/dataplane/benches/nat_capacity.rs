//! How many sessions NAT holds, how fast they are created and removed, and the memory of each (RFC 9693's
//! questions, in memory): `cargo bench -p thalweg-dataplane --bench nat_capacity [-- --sessions N]`; the default is
//! 10 million.
//!
//! Every session is created by its own packet, then looked up: every one must still have its public endpoint, and
//! no two share one. Only the stage is timed, not the making of packets. The benchmark fails if one is lost.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk};
use thalweg_dataplane::nat::testing::{self, INSIDE, OUTSIDE, SECOND_NS};
use thalweg_dataplane::nat::{Cursor, Labeler, NatConfig, NatStage, PortSelection};

const SESSIONS: u32 = 10_000_000;
/// Without `cargo bench`, only to see that it works.
const SESSIONS_IN_TESTS: u32 = 20_000;
/// Sessions of one inside host.
const PORTS_PER_HOST: u32 = 1024;
const START_NS: u64 = 1_700_000_000 * SECOND_NS;

struct Bench {
    labeler: Labeler,
    nat: NatStage,
    sessions: u32,
}

fn inside(n: u32) -> SocketAddrV4 {
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    SocketAddrV4::new((first + n / PORTS_PER_HOST).into(), 2000 + (n % PORTS_PER_HOST) as u16)
}

fn remote() -> SocketAddrV4 {
    SocketAddrV4::new([203, 0, 113, 1].into(), 443)
}

/// Resident memory, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kb| kb * 1024)
}

impl Bench {
    fn new(sessions: u32) -> Self {
        let addresses = sessions.div_ceil(40_000).clamp(1, 256);
        let config = NatConfig {
            port_selection: PortSelection::Hash,
            // Sessions spread over shards by hash: 2 % is ten times the random deviation.
            sessions_max: sessions + sessions / 50 + 64 * 64,
            public_addresses: (0..addresses).map(|n| (0xc633_6400 + n).into()).collect(),
            ..testing::config(1)
        };
        let (Ok(labeler), Ok(nat)) = (Labeler::new(&config), NatStage::new(&config)) else {
            panic!("the configuration is valid");
        };
        Self { labeler, nat, sessions }
    }

    /// Sends the packets that `packet` makes for all sessions; returns the time of the stage.
    fn send(
        &self,
        port_in: u16,
        packet: impl Fn(u32) -> Vec<u8>,
        mut see: impl FnMut(u32, &Chunk, usize),
    ) -> Duration {
        let mut took = Duration::ZERO;
        for first in (0..self.sessions).step_by(CHUNK_PACKETS_DEFAULT) {
            let numbers = first..(first + CHUNK_PACKETS_DEFAULT as u32).min(self.sessions);
            let packets: Vec<_> = numbers.clone().map(&packet).collect();
            let list: Vec<_> =
                packets.iter().map(|bytes| (port_in, &bytes[..], bytes.len() as u32)).collect();
            let mut chunk = testing::chunk(&list, START_NS);
            testing::label(&self.labeler, &mut chunk, 64);
            let begun = Instant::now();
            self.nat.run_groups(&mut chunk, 0..1, 1);
            took += begun.elapsed();
            numbers.enumerate().for_each(|(i, n)| see(n, &chunk, i));
        }
        took
    }

    fn rate(&self, what: &str, took: Duration) {
        let (sessions, seconds) = (f64::from(self.sessions), took.as_secs_f64());
        println!(
            "{what}: {:.2} million/s ({:.0} ns each)",
            sessions / seconds / 1e6,
            seconds / sessions * 1e9
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let named = arguments.iter().position(|argument| argument == "--sessions");
    let named = named.and_then(|at| arguments.get(at + 1)?.parse().ok());
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let sessions = named.unwrap_or(if is_bench { SESSIONS } else { SESSIONS_IN_TESTS });
    let before = resident_bytes();
    let bench = Bench::new(sessions);
    let mut public = vec![0u64; sessions as usize];
    public.fill(1);
    let tables = resident_bytes();
    let mut lost = 0u64;
    let out = |n| testing::udp(inside(n), remote(), b"first");
    let made = bench.send(INSIDE, out, |n, chunk, i| {
        let frame = chunk.frame(i);
        let address = u32::from_be_bytes([frame[12], frame[13], frame[14], frame[15]]);
        public[n as usize] = u64::from(address) << 16 | u64::from(chunk.packets()[i].src_port);
        lost += u64::from(!chunk.packets()[i].is_alive());
    });
    let after = resident_bytes();
    println!("{sessions} sessions asked for, {lost} refused");
    bench.rate("made", made);
    let mut wrong = 0u64;
    let back = |n: u32| {
        let endpoint = public[n as usize];
        testing::udp(
            remote(),
            SocketAddrV4::new(((endpoint >> 16) as u32).into(), endpoint as u16),
            b"answer",
        )
    };
    let found = bench.send(OUTSIDE, back, |n, chunk, i| {
        let frame = chunk.frame(i);
        let address = u32::from_be_bytes([frame[16], frame[17], frame[18], frame[19]]);
        let there = SocketAddrV4::new(address.into(), chunk.packets()[i].dst_port);
        wrong += u64::from(!chunk.packets()[i].is_alive() || there != inside(n));
    });
    bench.rate("answered, each once", found);
    println!("{wrong} answers did not reach their host");
    let begun = Instant::now();
    let (mut listed, mut slice, mut next) = (0, Vec::new(), Some(Cursor::default()));
    let mut longest = Duration::ZERO;
    while let Some(from) = next {
        let begun = Instant::now();
        next = bench.nat.sessions(from, START_NS, |_| true, &mut slice);
        longest = longest.max(begun.elapsed());
        listed += slice.len();
        slice.clear();
    }
    bench.rate("listed", begun.elapsed());
    println!("{listed} listed; the longest slice took {} us", longest.as_micros());
    if let (Some(before), Some(tables), Some(after)) = (before, tables, after) {
        // The list of public endpoints is ours.
        let each = (after - before) as f64 / f64::from(sessions) - 8.0;
        println!(
            "memory: {each:.1} bytes a session (resident; {:.1} of them before the first)",
            (tables - before) as f64 / f64::from(sessions) - 8.0
        );
    }
    let begun = Instant::now();
    bench.nat.advance(START_NS + 400 * SECOND_NS);
    bench.rate("torn down", begun.elapsed());
    let counters = bench.nat.counters();
    let all = u64::from(sessions);
    let kept = (lost, wrong, listed as u64, counters.sessions_created, counters.sessions_expired);
    assert_eq!(kept, (0, 0, all, all, all), "{counters:?}");
}
