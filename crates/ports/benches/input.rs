//! How fast input becomes chunks, on one thread, from files in the page cache: million packets (or lines)
//! per second of CPU time of that thread, the kernel's copying included, so that other work on the
//! machine disturbs little.
//!
//! `cargo bench -p thalweg-ports --profile quick --bench input [NAME]`

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;
use thalweg_base::XorShift64Star;
use thalweg_ports::{FileSource, InputOptions, InputSpec, PortNames};
use thalweg_wire::pcap::{FileHeader, RecordHeader};
use thalweg_wire::trace::{FieldOrder, Step, each_line};

const PACKETS: usize = 2_000_000;

const ROUNDS: usize = 15;

type Job = (String, Box<dyn Fn() -> u64>);

fn main() {
    // Cargo passes `--bench`; anything else selects by name.
    let wanted = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let mut jobs: Vec<Job> = vec![("trace, parser only".into(), Box::new(parse_only))];
    for (name, chunk_packets) in [
        ("trace.txt", 256),
        ("trace.txt", 1600),
        ("trace.txt", 16_384),
        ("min.pcap", 256),
        ("min.pcap", 1600),
        ("min.pcap", 16_384),
        ("mix.pcap", 1600),
        ("min.pcapng", 1600),
    ] {
        jobs.push((
            format!("{name} to chunks of {chunk_packets}"),
            Box::new(move || read_through(name, chunk_packets, true)),
        ));
    }
    jobs.push(("trace.txt, only cut".into(), Box::new(|| read_through("trace.txt", 1600, false))));
    jobs.retain(|(name, _)| name.contains(&wanted));
    let mut rates = vec![Vec::new(); jobs.len()];
    directory();
    // In rounds, so that other load on the machine affects all cases alike.
    for _ in 0..ROUNDS {
        for ((_, job), rates) in jobs.iter().zip(&mut rates) {
            let before = thread_cpu_ns();
            let items = black_box(job());
            rates.push(items as f64 * 1e3 / (thread_cpu_ns() - before).max(1) as f64);
        }
    }
    println!("{:32} {:>8} {:>8} {:>8}  M/CPU-s", "", "median", "least", "most");
    for ((name, _), rates) in jobs.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        println!("{name:32} {:8.1} {:8.1} {:8.1}", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    }
}

/// Lines in the shape of the article's trace: six ports, 2,000 inside and 500 outside hosts, two of three lines
/// outward.
fn trace_text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut rng = XorShift64Star::new(0);
        let nets = [("10.230", "eth0"), ("10.231", "eth1"), ("134.77", "eth2"), ("172.16", "eth4")];
        let inside: Vec<_> = (0..2000u32)
            .map(|i| {
                let (net, port) = nets[rng.below(4) as usize];
                (format!("{net}.{:02}.{:02}", rng.below(250) + 1, rng.below(250) + 1), port, 1024 + i * 4)
            })
            .collect();
        let outside: Vec<_> = (0..500)
            .map(|_| {
                let mut byte = |from| rng.below(250 - from) + from;
                format!("{}.{}.{}.{:02}", byte(20), byte(1), byte(1), byte(1))
            })
            .collect();
        let protocols = ["http", "http", "http", "ftp", "rtp", "sip", "dns", "smtp"];
        let ports = [80, 443, 21, 53, 25, 4003, 5003, 5060];
        let mut text = String::new();
        for _ in 0..PACKETS {
            let (ip, name, port) = &inside[rng.below(2000) as usize];
            let (out, p) = (&outside[rng.below(500) as usize], ports[rng.below(8) as usize]);
            let (protocol, port) = (protocols[rng.below(8) as usize], port + rng.below(4));
            // Writing to a string cannot fail.
            let _ = if rng.below(3) > 0 {
                writeln!(text, "{name} {out} {ip} {p} {port} {protocol}")
            } else {
                writeln!(text, "eth3 104.44.44.10 {out} {port} {p} {protocol}")
            };
        }
        text
    })
}

/// A capture of frames whose length `len` gives.
fn pcap_bytes(len: impl Fn(u32) -> u32) -> Vec<u8> {
    let header = FileHeader::nanoseconds(1);
    let mut rng = XorShift64Star::new(0);
    let mut bytes = header.encode().to_vec();
    for i in 0..PACKETS as u64 {
        let len = len(rng.below(1000));
        bytes.extend(RecordHeader::new(&header, i * 1000, len, len).encode(&header));
        bytes.resize(bytes.len() + len as usize, i as u8);
    }
    bytes
}

/// The same packets of 64 bytes as enhanced packet blocks of one interface.
fn pcapng_bytes() -> Vec<u8> {
    let words = |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let mut bytes = Vec::new();
    words(&mut bytes, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    words(&mut bytes, &[1, 20, 1, 0, 20]);
    for i in 0..PACKETS as u32 {
        words(&mut bytes, &[6, 96, 0, 0, i, 64, 64]);
        bytes.resize(bytes.len() + 64, i as u8);
        words(&mut bytes, &[96]);
    }
    bytes
}

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| {
            let directory = TempDir::new().expect("a temporary directory");
            let write = |name: &str, bytes: &[u8]| {
                std::fs::write(directory.path().join(name), bytes).expect("room for the inputs");
            };
            write("trace.txt", trace_text().as_bytes());
            write("min.pcapng", &pcapng_bytes());
            write("min.pcap", &pcap_bytes(|_| 64));
            // A simple mix: seven minimal frames, four of 576 and one of 1,500 bytes.
            let mix = |n| {
                if n < 583 {
                    64
                } else if n < 917 {
                    576
                } else {
                    1500
                }
            };
            write("mix.pcap", &pcap_bytes(mix));
            directory
        })
        .path()
}

fn file(name: &str) -> PathBuf {
    directory().join(name)
}

fn read_through(name: &str, chunk_packets: usize, parses: bool) -> u64 {
    let options = InputOptions { chunk_packets, ..InputOptions::default() };
    let names = PortNames::new(["eth0", "eth1", "eth2", "eth3", "eth4", "eth5"]);
    let mut source =
        FileSource::open(vec![InputSpec::path(file(name))], names, &options).expect("the input exists");
    while let Ok(Some(chunk)) = if parses { source.next_chunk() } else { source.next_cut() } {
        black_box(&chunk);
    }
    assert_eq!(source.packets(), PACKETS as u64);
    source.packets()
}

/// The parser alone, without reading files, packets or chunks.
fn parse_only() -> u64 {
    let text = trace_text().as_bytes();
    let mut lines = 0u64;
    each_line(text, 0..text.len(), FieldOrder::DestinationFirst, |step| {
        lines += u64::from(matches!(black_box(step), Step::Packet(_)));
        true
    });
    lines
}

/// Nanoseconds this thread has run.
fn thread_cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
