//! How fast MRT files are read: million routes (or messages) per second of CPU time of the whole process, the
//! decompressing thread included, from files in the page cache.
//!
//! `cargo bench -p thalweg-ports --profile quick --bench mrt`
//!
//! Real files are used where the test data is (see thalweg-testdata), and a generated table always.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use thalweg_base::{Prefix, XorShift64Star};
use thalweg_ports::{MrtReader, MrtWriter, MrtWriterOptions};
use thalweg_wire::mrt::{Content, Peer, PeerIndex, RibRecord, Style, write_lines, write_peer_index_table};

const ROUNDS: usize = 5;
/// The process's clock advances in hundredths of a second.
const READS_PER_ROUND: usize = 8;
const PREFIXES: u32 = 100_000;
const PEERS: u16 = 5;

#[derive(Clone, Copy)]
enum Work {
    /// Decodes every record and iterates over its entries or messages.
    Iterate,
    /// The same, with attributes.
    Attributes,
    /// Prints lines.
    Print,
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut files = vec![
        ("generated table, plain".to_owned(), made_up(directory.path(), false)),
        ("generated table, gzip".to_owned(), made_up(directory.path(), true)),
    ];
    for name in ["rib.ris-rrc00.20000111.0032.td2.gz", "bgpdump-pairs/updates.20160811.1600.gz"] {
        files.extend(thalweg_testdata::shared(&format!("mrt/{name}")).map(|path| (name.to_owned(), path)));
    }
    let works = [("iterate", Work::Iterate), ("attributes", Work::Attributes), ("print", Work::Print)];
    println!("{:50} {:>8} {:>8} {:>8}  M/CPU-s", "", "median", "least", "most");
    for (name, path) in &files {
        let mut rates = vec![Vec::new(); works.len()];
        // In rounds, so that other load on the machine affects all cases alike.
        for _ in 0..ROUNDS {
            for ((_, work), rates) in works.iter().zip(&mut rates) {
                let before = cpu_ns();
                let items: u64 = (0..READS_PER_ROUND).map(|_| black_box(read(path, *work))).sum();
                rates.push(items as f64 * 1e3 / (cpu_ns() - before).max(1) as f64);
            }
        }
        for ((work, _), rates) in works.iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            let label = format!("{name}, {work}");
            println!("{label:50} {:8.2} {:8.2} {:8.2}", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
        }
    }
}

fn read(path: &Path, work: Work) -> u64 {
    let mut reader = MrtReader::open(path).expect("the file is there");
    let (mut items, mut out) = (0, Vec::new());
    while let Some(result) = reader.next() {
        let item = result.expect("the file is whole");
        match (work, &item.content) {
            (Work::Print, content) => {
                out.clear();
                write_lines(&mut out, &item.record, content, Style::Unix).expect("records are whole");
                items += black_box(&out).iter().filter(|&&b| b == b'\n').count() as u64;
            }
            (_, Content::Rib(rib)) => {
                for entry in rib.entries() {
                    if matches!(work, Work::Attributes) {
                        black_box(entry.path());
                    }
                    black_box(&entry);
                    items += 1;
                }
            }
            (_, Content::Message(message)) => {
                black_box(message.whole());
                items += 1;
            }
            _ => {}
        }
    }
    items
}

/// A table in the shape of the public one: paths of four ASes, some communities.
fn made_up(directory: &Path, gzip: bool) -> PathBuf {
    let mut random = XorShift64Star::new(7);
    let peer = |n: u16| Peer {
        id: Ipv4Addr::LOCALHOST,
        address: Ipv4Addr::new(198, 18, 0, n as u8).into(),
        asn: 64_496 + u32::from(n),
    };
    let peers = (0..PEERS).map(peer).collect();
    let table = PeerIndex { collector: Ipv4Addr::LOCALHOST, view: String::new(), peers };
    let pattern = directory.join(if gzip { "rib.gz" } else { "rib" });
    let mut writer = MrtWriter::new(MrtWriterOptions { pattern, period_s: None, gzip });
    let mut record = Vec::new();
    write_peer_index_table(&mut record, 1, &table).expect("peers fit");
    writer.write(1, &record).expect("it can be written");
    for number in 0..PREFIXES {
        record.clear();
        let prefix = Prefix::new(0x0100_0000 + (number << 10), 22).expect("a valid prefix length").into();
        let mut rib = RibRecord::begin(&mut record, 1, number, prefix, false);
        for index in 0..PEERS {
            let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 18, 2, 4];
            for _ in 0..4 {
                attributes.extend((random.next_u64() as u32 % 400_000).to_be_bytes());
            }
            attributes.extend([0x40, 3, 4, 198, 18, 0, index as u8, 0xc0, 8, 8]);
            attributes.extend(random.next_u64().to_be_bytes());
            rib.push(index, 1, 0, &attributes).expect("it fits");
        }
        rib.finish();
        writer.write(1, &record).expect("it can be written");
    }
    writer.finish().expect("it can be written").remove(0)
}

/// CPU time of all threads of this process, also of ended ones, in nanoseconds.
fn cpu_ns() -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let (user, system) = (ticks(11), ticks(12));
    (user + system) * TICK_NS
}
