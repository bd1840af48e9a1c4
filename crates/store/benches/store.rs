//! How fast records are written and queried.
//!
//! ```text
//! cargo bench -p thalweg-store -- write [RECORDS] [FOLDER]   writing alone, and with queries running all the time
//! cargo bench -p thalweg-store -- make [RECORDS] [FOLDER]    a dataset for queries, unless it exists
//! cargo bench -p thalweg-store -- ask [RECORDS] [FOLDER] [KEYS]  queries on all cores: for all keys, or for these
//! cargo bench -p thalweg-store -- top FOLDER KEYS [FILTER]   one answer as JSON, for bench/flows/ask.py
//! ```
//!
//! Records are those of one day at a busy edge: 200,000 inside and 200,000 outside hosts, both by Zipf's law (the
//! n-th host has a share proportional to 1/n).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_base::XorShift64Star;
use thalweg_flow::{Counters, EndReason, FlowKey, FlowRecord};
use thalweg_store::query::{Key, Lines, Metric, Query, graph, list, top};
use thalweg_store::{Dataset, Filter, Window, Writer, WriterOptions};

/// 2026-11-22T05:00:00Z.
const START_NS: u64 = 1_795_323_600_000_000_000;
const BATCH: usize = 8192;

fn skewed(chance: &mut XorShift64Star, count: u32) -> u32 {
    let share = f64::from(chance.below(1 << 24)) / f64::from(1 << 24);
    // Log-uniform: each octave of hosts has the same share of the flows.
    (f64::from(count).powf(share) as u32).min(count - 1)
}

fn record(chance: &mut XorShift64Star, end_ns: u64) -> FlowRecord {
    let packets = 1 + u64::from(skewed(chance, 1000));
    let port = [443, 443, 443, 80, 53, 53, 123, 22, 8080, 25][chance.below(10) as usize];
    let key = FlowKey {
        src: Ipv4Addr::from(0x0a00_0000 + skewed(chance, 200_000)).into(),
        dst: Ipv4Addr::from(0x5000_0000 + skewed(chance, 200_000).wrapping_mul(7919)).into(),
        src_port: 1024 + chance.below(64_000) as u16,
        dst_port: port,
        protocol: if matches!(port, 53 | 123) { 17 } else { 6 },
        traffic_class: 0,
        ingress: 1 + chance.below(4),
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets,
        bytes: packets * (40 + u64::from(chance.below(1400))),
        first_ns: end_ns - u64::from(chance.below(60_000)) * 1_000_000,
        last_ns: end_ns - u64::from(chance.below(15_000)) * 1_000,
        tcp_flags: Some(0x1b),
        ttl_min: Some(50 + chance.below(15) as u8),
        ttl_max: Some(64),
    };
    let mut record = FlowRecord::new(key, counters, EndReason::ALL[chance.below(3) as usize]);
    record.application = [5, 4, 8, 15, 9][chance.below(5) as usize];
    record.egress = 1 + chance.below(4);
    record.next_hop = Some(Ipv4Addr::from(0xc0a8_0000 + chance.below(8)).into());
    record.src_as = 64_500;
    record.dst_as = 1000 + skewed(chance, 50_000);
    record
}

fn write(folder: &Path, records: &[FlowRecord], total: u64, queries: bool) {
    let mut options = WriterOptions::new(|| 0);
    options.upkeep_interval_s = 0;
    let (writer, _) = Writer::open(folder, options).expect("the dataset can be written");
    let done = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let began = Instant::now();
    let cpu = cpu_time();
    std::thread::scope(|scope| {
        if queries {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let view = writer.view(Window::ALL).expect("the dataset can be read");
                    let query = Query { threads: 1, ..Query::new(Window::ALL, Filter::default()) };
                    top(&view, &query, &["src".parse().expect("a key")], Metric::Bytes, 10)
                        .expect("an answer");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut left = total;
        for batch in records.chunks(BATCH).cycle() {
            let batch = &batch[..batch.len().min(left as usize)];
            writer.append(batch).expect("records are taken");
            left -= batch.len() as u64;
            if left == 0 {
                break;
            }
        }
        writer.flush().expect("records are written");
        done.store(true, Ordering::Relaxed);
    });
    let (wall, cpu) = (began.elapsed(), cpu_time().saturating_sub(cpu));
    let status = writer.close().expect("the dataset is closed");
    let asked = asked.into_inner();
    println!(
        "written {} records in {:.2} s: {:.0} k/s; CPU {:.2} s: {:.0} k per CPU second{}",
        status.records_written,
        wall.as_secs_f64(),
        total as f64 / wall.as_secs_f64() / 1e3,
        cpu.as_secs_f64(),
        total as f64 / cpu.as_secs_f64() / 1e3,
        if queries { format!("; answered meanwhile: {asked}") } else { String::new() },
    );
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Repetitions of each query.
const TIMES: usize = 5;
const DAY_NS: u64 = 24 * 3_600_000_000_000;

/// Makes the dataset unless it exists.
fn prepare(folder: &Path, total: u64) {
    if folder.is_dir() {
        return;
    }
    let mut options = WriterOptions::new(|| 0);
    options.upkeep_interval_s = 0;
    let (writer, _) = Writer::open(folder, options).expect("the dataset can be written");
    let mut chance = XorShift64Star::new(2);
    let mut batch = Vec::with_capacity(BATCH);
    for number in 0..total {
        let through = u128::from(number) * u128::from(DAY_NS) / u128::from(total);
        batch.push(record(&mut chance, START_NS + through as u64));
        if batch.len() == BATCH || number + 1 == total {
            writer.append(&batch).expect("records are taken");
            batch.clear();
        }
    }
    writer.close().expect("the dataset is closed");
}

fn ask(folder: &Path, only: Option<&str>) {
    let dataset = Dataset::open(folder).expect("the dataset can be read");
    let summary = dataset.view(Window::ALL).expect("the dataset can be read").summary();
    println!(
        "{} records in {} files, {} row groups, {:.1} bytes a record",
        summary.records,
        summary.files,
        summary.row_groups,
        summary.bytes as f64 / summary.records as f64
    );
    let to_ns = START_NS + DAY_NS;
    let hour = Window { from_ns: to_ns - DAY_NS / 24, to_ns };
    let cases: [(&str, &str, Window); 14] = [
        ("src", "", Window::ALL),
        ("dst", "", Window::ALL),
        ("host", "", Window::ALL),
        ("dst-port", "", Window::ALL),
        ("port", "", Window::ALL),
        ("dst-as", "", Window::ALL),
        ("app", "", Window::ALL),
        ("src,dst", "", Window::ALL),
        ("src,dst-port", "", Window::ALL),
        ("src", "dst port 53 and packets > 10", Window::ALL),
        ("dst", "src 10.0.0.77", Window::ALL),
        ("src", "", hour),
        ("src,dst", "", hour),
        ("src,dst,src-port,dst-port,proto", "", hour),
    ];
    for (keys, filter, window) in cases.into_iter().filter(|case| only.is_none_or(|only| only == case.0)) {
        let keys_of: Vec<Key> = keys.split(',').map(|key| key.parse().expect("a key")).collect();
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..TIMES {
            let began = Instant::now();
            let view = dataset.view(window).expect("the dataset can be read");
            let query = Query::new(window, Filter::parse(filter).expect("a filter"));
            let answer = top(&view, &query, &keys_of, Metric::Bytes, 10).expect("an answer");
            times.push(began.elapsed().as_secs_f64());
            found = answer.total.flows;
        }
        times.sort_by(f64::total_cmp);
        println!(
            "top {keys:32} {filter:30} {found:>9} records: {:.3} s ({:.3} to {:.3})",
            times[TIMES / 2],
            times[0],
            times[TIMES - 1]
        );
    }
    if only.is_some() {
        return;
    }
    let query = Query::new(Window::ALL, Filter::parse("udp and bytes > 10k").expect("a filter"));
    let view = dataset.view(Window::ALL).expect("the dataset can be read");
    let began = Instant::now();
    let (listed, _) = list(&view, &query, 1000).expect("a list");
    println!("list {:>58} records: {:.3} s", listed.len(), began.elapsed().as_secs_f64());
    let began = Instant::now();
    let key = ["dst-port".parse().expect("a key")];
    let graph =
        graph(&view, &query, &key, Metric::Bytes, Lines::Largest(5), Some(60_000_000_000)).expect("a graph");
    println!("graph {:>57} series:  {:.3} s", graph.series.len(), began.elapsed().as_secs_f64());
}

/// Answers as `thalweg flows --format json top` does.
fn answer(folder: &Path, keys: &str, filter: &str) {
    let keys: Vec<Key> = keys.split(',').map(|key| key.parse().expect("a key")).collect();
    let query = Query::new(Window::ALL, Filter::parse(filter).expect("a filter"));
    let view = Dataset::open(folder).and_then(|dataset| dataset.view(Window::ALL)).expect("a dataset");
    let top = top(&view, &query, &keys, Metric::Bytes, 10).expect("an answer");
    println!("{}", top.to_json(&keys, &[]));
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let what = arguments.next().unwrap_or_else(|| "write".to_owned());
    let total: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5_000_000);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dataset = parent.join(format!("thalweg-flows-{total}"));
    match what.as_str() {
        "write" => {
            let mut chance = XorShift64Star::new(1);
            let distinct = total.min(2_000_000);
            // Repeats the same records, because generating them is not measured.
            let records: Vec<FlowRecord> = (0..distinct)
                .map(|number| record(&mut chance, START_NS + number * 3_500_000_000_000 / distinct))
                .collect();
            for queries in [false, true] {
                let folder = tempfile::tempdir_in(&parent).expect("a folder");
                write(folder.path(), &records, total, queries);
            }
        }
        "make" => prepare(&dataset, total),
        "ask" => {
            prepare(&dataset, total);
            ask(&dataset, arguments.next().as_deref());
        }
        "top" => {
            let [folder, keys, filter] =
                [2, 3, 4].map(|place| std::env::args().nth(place).unwrap_or_default());
            answer(Path::new(&folder), &keys, &filter);
        }
        other => eprintln!("`{other}`: expected `write`, `make`, `ask` or `top`"),
    }
}
