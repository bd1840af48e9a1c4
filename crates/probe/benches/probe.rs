//! The cost of the whole probe per packet: `cargo bench -p thalweg-probe --bench probe` (or `--profile quick`).
//!
//! Captures of minimal frames are generated and passed through [`thalweg_probe::probe`], with IPFIX export to a
//! socket that a thread reads. Packets come from memory (`--preload`) or from the file. Either one worker does
//! everything (`serial`), or a reader and a worker share the work.
//!
//! After a warm-up, each case runs with the input once and with the input four times, each [`RUNS`] times in
//! turn; the fastest counts. `goes on` is the difference of the two, so it excludes the costs of starting and
//! ending: first access to memory, and a million flows exported at once. `whole` is the longer run with
//! everything included.
//!
//! Optional arguments: packets of a case, and names of cases: `... --bench probe -- 8000000 uniform flood`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use thalweg_base::XorShift64Star;
use thalweg_probe::{FileInput, Input, ModelKind, ProbeOptions, ProbeSummary, probe};
use thalweg_wire::tcp::ACK;
use thalweg_wire::testing;

/// Runs of each length.
const RUNS: usize = 2;
/// How often the longer runs repeat the input.
const LOOPS: u32 = 4;
/// One packet per microsecond, by the timestamps of the captures.
const GAP_US: u64 = 1;
/// Flows in the case with the most; the cache has slightly more room.
const FLOWS: u32 = 1_000_000;
const FLOWS_MAX: u32 = 1_050_000;

/// The flow of each packet.
#[derive(Clone, Copy)]
enum Pick {
    /// Any of so many flows, with equal probability.
    Uniform(u32),
    /// Of so many flows, the n-th with probability proportional to 1/n.
    Zipf(u32),
    /// A new flow each time.
    Unique,
}

struct Case {
    name: &'static str,
    pick: Pick,
    preload: bool,
    /// One worker does everything; otherwise a reader and a worker.
    serial: bool,
    shards: u16,
}

const CASES: [Case; 6] = [
    Case { name: "uniform", pick: Pick::Uniform(FLOWS), preload: true, serial: true, shards: 1 },
    Case { name: "uniform-16-shards", pick: Pick::Uniform(FLOWS), preload: true, serial: true, shards: 16 },
    Case { name: "flood", pick: Pick::Unique, preload: true, serial: true, shards: 1 },
    Case { name: "zipf-file", pick: Pick::Zipf(200_000), preload: false, serial: true, shards: 1 },
    Case { name: "zipf-file-16-shards", pick: Pick::Zipf(200_000), preload: false, serial: true, shards: 16 },
    Case { name: "zipf-file-1R1W", pick: Pick::Zipf(200_000), preload: false, serial: false, shards: 16 },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let packets = wanted.iter().find_map(|word| word.parse().ok()).unwrap_or(3_000_000);
    let names: Vec<_> = wanted.iter().filter(|word| word.parse::<u32>().is_err()).collect();
    let folder = tempfile::tempdir()?;
    println!(
        "{:20} {:>10} {:>10} {:>12} {:>12} {:>10} {:>8}",
        "case", "goes on", "whole", "wall ns", "CPU ns", "records", "MB"
    );
    for case in CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| *name == case.name)) {
        let capture = folder.path().join(case.name);
        write_capture(&capture, case.pick, packets)?;
        run(case, &capture, LOOPS)?;
        let (mut short, mut long) = (run(case, &capture, 1)?, run(case, &capture, LOOPS)?);
        for _ in 1..RUNS {
            short = faster(short, run(case, &capture, 1)?);
            long = faster(long, run(case, &capture, LOOPS)?);
        }
        let more = (long.packets_seen - short.packets_seen) as f64;
        let wall_s = (long.elapsed_s - short.elapsed_s).max(1e-9);
        println!(
            "{:20} {:>5.2} Mpps {:>5.2} Mpps {:>12.1} {:>12.1} {:>10} {:>8.0}",
            case.name,
            more / wall_s / 1e6,
            long.packets_per_second / 1e6,
            wall_s / more * 1e9,
            (long.cpu_s - short.cpu_s) / more * 1e9,
            long.records_exported,
            long.rss_peak_bytes as f64 / 1e6,
        );
        std::fs::remove_file(&capture)?;
    }
    Ok(())
}

fn faster(a: ProbeSummary, b: ProbeSummary) -> ProbeSummary {
    if a.elapsed_s <= b.elapsed_s { a } else { b }
}

/// Runs through the input `loops` times.
fn run(case: &Case, capture: &Path, loops: u32) -> Result<ProbeSummary, Box<dyn std::error::Error>> {
    let collector = Collector::start()?;
    let files = FileInput { loops, preload: case.preload, ..FileInput::new(vec![capture.to_owned()]) };
    let mut options = ProbeOptions::new(Input::Files(files));
    options.shape.model = if case.serial { ModelKind::Serial } else { ModelKind::Farm };
    options.meter.flows_max = FLOWS_MAX;
    options.meter.huge_pages = true;
    options.meter.shards = case.shards;
    options.export.addresses = vec![format!("ipfix://127.0.0.1:{}", collector.port)];
    options.export.observation_domain = 1;
    let summary = probe(&options, &Arc::new(AtomicBool::new(false)), &())?;
    assert!(summary.conserved, "every packet is in the totals");
    assert_eq!(summary.outlets[0].records, summary.records_exported, "all records were sent");
    assert!(collector.stop()? > 0, "the collector hears of it");
    Ok(summary)
}

/// A thread that reads and counts datagrams.
struct Collector {
    port: u16,
    datagrams: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    reader: thread::JoinHandle<io::Result<()>>,
}

impl Collector {
    fn start() -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let port = socket.local_addr()?.port();
        let (datagrams, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, is_done) = (Arc::clone(&datagrams), Arc::clone(&done));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 2048];
            while !is_done.load(Ordering::Relaxed) {
                match socket.recv(&mut bytes) {
                    Ok(_) => _ = count.fetch_add(1, Ordering::Relaxed),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        Ok(Self { port, datagrams, done, reader })
    }

    /// The number of datagrams that it has read.
    fn stop(self) -> io::Result<u64> {
        self.done.store(true, Ordering::Relaxed);
        self.reader.join().unwrap_or_else(|_| Err(io::Error::other("the collector panicked")))?;
        Ok(self.datagrams.load(Ordering::Relaxed))
    }
}

/// Frames of 60 bytes (64 with their check sequence): Ethernet, IPv4, UDP or, one flow in four, TCP.
fn write_capture(path: &Path, pick: Pick, packets: u32) -> io::Result<()> {
    let mut rng = XorShift64Star::new(88_172_645_463_325_252);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    for n in 0..packets {
        let flow = match pick {
            Pick::Uniform(flows) => rng.below(flows),
            Pick::Zipf(flows) => {
                let chance = rng.next_u64() as f64 / u64::MAX as f64;
                ((f64::from(flows).powf(chance) as u32).saturating_sub(1)).min(flows - 1)
            }
            Pick::Unique => n,
        };
        let us = u64::from(n) * GAP_US;
        let record = [1_700_000_000 + (us / 1_000_000) as u32, (us % 1_000_000) as u32, 60, 60];
        for word in record {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&frame(flow))?;
    }
    file.flush()
}

fn frame(flow: u32) -> Vec<u8> {
    // Neighboring numbers give unrelated flows.
    let mixed = thalweg_base::mix64(u64::from(flow) + 1);
    let protocol = if mixed & 3 == 0 { 6 } else { 17 };
    let from = (Ipv4Addr::from(10 << 24 | flow), (1024 + (mixed >> 16) % 60_000) as u16);
    let to = Ipv4Addr::from(0x6440_0000 | (mixed >> 40) as u32 & 0x3f_ffff);
    testing::frame(&match protocol {
        6 => testing::tcp(from, (to, 443), ACK, &[0; 6]),
        _ => testing::udp(from, (to, 53), &[0; 18]),
    })
}
