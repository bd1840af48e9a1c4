//! A dataset as a whole: views while it is written, upkeep, leftovers of interrupted writers, and reading by
//! other engines.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_base::{Name, XorShift64Star};
use thalweg_flow::{Counters, EndReason, ExporterId, FlowKey, FlowRecord};
use thalweg_store::query::{Key, Metric, Query, list, top};
use thalweg_store::{Dataset, Filter, Retention, StoreError, View, Window, Writer, WriterOptions};
use thalweg_testdata::Stop;

#[path = "dataset/engines.rs"]
mod engines;

/// 2026-11-22T05:00:00Z.
const START_NS: u64 = 1_795_323_600_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

fn options() -> WriterOptions {
    // Writes only on request, or when a row group is full.
    WriterOptions { upkeep_interval_s: 0, flush_interval_s: 1 << 40, ..WriterOptions::new(|| START_NS) }
}

/// A record whose bytes are its number.
fn record(number: u64, last_ns: u64) -> FlowRecord {
    let key = FlowKey {
        src: Ipv4Addr::from(0x0a00_0000 + (number % 1000) as u32).into(),
        dst: Ipv4Addr::from(0xc000_0200 + (number % 7) as u32).into(),
        src_port: number as u16,
        dst_port: 443,
        protocol: 6,
        traffic_class: 0,
        ingress: 1,
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets: 1,
        bytes: number,
        first_ns: last_ns - 1000,
        last_ns,
        tcp_flags: Some(2),
        ttl_min: Some(64),
        ttl_max: Some(64),
    };
    FlowRecord::new(key, counters, EndReason::IdleTimeout)
}

fn records(numbers: std::ops::Range<u64>) -> Vec<FlowRecord> {
    numbers.map(|number| record(number, START_NS + number * 1_000_000)).collect()
}

fn totals(view: &View) -> (u64, u64) {
    let query = Query { threads: 1, ..Query::new(Window::ALL, Filter::default()) };
    let answer = top(view, &query, &[], Metric::Flows, 0).unwrap();
    assert_eq!(answer.scanned.skipped.count, 0, "{:?}", answer.scanned.skipped);
    (answer.total.flows, answer.total.bytes)
}

fn sum(numbers: u64) -> (u64, u64) {
    (numbers, numbers * numbers.saturating_sub(1) / 2)
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.retain(|path| !path.ends_with(".writer.lock"));
    found.sort();
    found
}

#[test]
fn records_lie_in_the_hour_of_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, recovery) = Writer::open(folder.path(), options()).unwrap();
    assert!(recovery.unclean.is_none());
    let times = [0, 59 * MINUTE_NS, 60 * MINUTE_NS, 25 * 60 * MINUTE_NS];
    let some: Vec<FlowRecord> =
        (0..).zip(times).map(|(number, time)| record(number, START_NS + time)).collect();
    writer.append(&some).unwrap();
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    let status = writer.close().unwrap();
    assert_eq!((status.records_written, status.files_published), (4, 3));
    let names: Vec<String> = files(folder.path())
        .iter()
        .map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string())
        .collect();
    assert_eq!(
        names,
        [
            "date=2026-11-22/hour=5/flows-20261122T050000-20261122T055900-000000000001.parquet",
            "date=2026-11-22/hour=6/flows-20261122T060000-20261122T060000-000000000002.parquet",
            "date=2026-11-23/hour=6/flows-20261123T060000-20261123T060000-000000000003.parquet",
        ]
    );
    let dataset = Dataset::open(folder.path()).unwrap();
    let window = Window { from_ns: START_NS + 1, to_ns: START_NS + 60 * MINUTE_NS + 1 };
    let query = Query::new(window, Filter::default());
    let (listed, _) = list(&dataset.view(window).unwrap(), &query, 10).unwrap();
    assert_eq!(listed, some[1..3]);
}

/// A dataset of the version before records had an exporter.
#[test]
fn files_without_the_latest_columns_are_read() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/before-exporters");
    let folder = tempfile::tempdir().unwrap();
    let hour = folder.path().join("date=2026-11-02/hour=09");
    fs::create_dir_all(&hour).unwrap();
    for file in files(&fixture) {
        fs::copy(&file, hour.join(file.file_name().unwrap())).unwrap();
    }
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    let mut new = record(1, START_NS);
    new.exporter = ExporterId { name: Name::of("edge1"), domain: Some(7), address: None };
    writer.append(&[new]).unwrap();
    writer.close().unwrap();
    let view = Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap();
    let by_exporter = |filter: &str| -> Vec<(String, u64, u64)> {
        let query = Query::new(Window::ALL, Filter::parse(filter).unwrap());
        let answer = top(&view, &query, &["exporter".parse().unwrap()], Metric::Bytes, 10).unwrap();
        assert_eq!(answer.scanned.skipped.count, 0, "{:?}", answer.scanned.skipped);
        answer.rows.iter().map(|row| (row.key[0].to_string(), row.sums.flows, row.sums.bytes)).collect()
    };
    let (old, new) = (("-".to_owned(), 124, 139_853), ("edge1".to_owned(), 1, 1));
    assert_eq!(by_exporter(""), [old.clone(), new.clone()]);
    assert_eq!(by_exporter("exporter edge*"), [new]);
    assert_eq!(by_exporter("not domain 7"), [old]);
    // Its times are nanoseconds, those of new files are not: written anew, all are the same.
    let (listed, _) = list(&view, &Query::new(Window::ALL, Filter::default()), 1000).unwrap();
    let again = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(again.path(), options()).unwrap();
    writer.append(&listed).unwrap();
    writer.flush().unwrap();
    let view = writer.view(Window::ALL).unwrap();
    assert_eq!(list(&view, &Query::new(Window::ALL, Filter::default()), 1000).unwrap().0, listed);
    let ends: Vec<u64> = listed.iter().map(|record| record.counters.last_ns / 1_000_000_000).collect();
    // 09:00:00 and 09:24:06, as the file's name says.
    assert_eq!((ends[0], ends[ends.len() - 2]), (1_793_610_000, 1_793_611_446));
}

/// Further writers have folders of their own, all are one view, and a writer looks after those that ended.
#[test]
fn writers_beside_each_other_are_one_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let writers: Vec<Writer> = (0..3).map(|_| Writer::open_beside(root, options()).unwrap().0).collect();
    let places: Vec<&Path> = writers.iter().map(Writer::root).collect();
    assert_eq!(places, [root, &root.join("writer-2"), &root.join("writer-3")]);
    let servers: Vec<_> = writers.iter().map(|writer| writer.serve(None).unwrap()).collect();
    for (number, writer) in (0..).zip(&writers) {
        writer.append(&records(number * 100..number * 100 + 60)).unwrap();
        writer.flush().unwrap();
        writer.append(&records(number * 100 + 60..number * 100 + 100)).unwrap();
    }
    let dataset = Dataset::open(root).unwrap();
    let (view, writing) = dataset.live_view(Window::ALL).unwrap();
    assert_eq!((totals(&view), view.summary().pending_records, writing.len()), (sum(300), 120, 3));
    let mut twice = dataset.clone();
    twice.add(Dataset::open(&root.join("writer-2")).unwrap());
    assert_eq!(totals(&twice.live_view(Window::ALL).unwrap().0), sum(300), "a folder counts once");
    assert_eq!(dataset.follow().unwrap().len(), 3);
    drop(servers);
    for writer in writers {
        writer.close().unwrap();
    }
    assert_eq!(totals(&dataset.view(Window::ALL).unwrap()), sum(300));
    // Two files each; the next writer does what is left to do.
    assert_eq!(files(root).len(), 6);
    let options = WriterOptions { upkeep_interval_s: 1, ..options() };
    let (writer, _) = Writer::open_beside(root, options).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while files(root).len() > 3 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(files(root).len(), 3);
    writer.close().unwrap();
    assert_eq!(totals(&dataset.view(Window::ALL).unwrap()), sum(300));
}

#[test]
fn one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    match Writer::open(folder.path(), options()) {
        Err(StoreError::Busy { owner, .. }) => assert!(owner.starts_with("process "), "{owner}"),
        other => panic!("{other:?}"),
    }
    writer.close().unwrap();
    let (writer, recovery) = Writer::open(folder.path(), options()).unwrap();
    assert!(recovery.unclean.is_none(), "{recovery:?}");
    writer.close().unwrap();
}

#[test]
fn what_finds_no_room_is_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    // A file in place of a folder, so nothing can be written.
    fs::write(folder.path().join("date=2026-11-22"), "").unwrap();
    let (writer, _) =
        Writer::open(folder.path(), WriterOptions { pending_records_max: 100, ..options() }).unwrap();
    assert_eq!(writer.offer(&records(0..90)), 90);
    assert!(writer.flush().is_err());
    assert_eq!(writer.offer(&records(90..110)), 0);
    let status = writer.status();
    assert_eq!((status.records_refused, status.records_pending), (20, 90));
    assert!(status.errors > 0 && status.last_error.is_some());
    assert_eq!(totals(&writer.view(Window::ALL).unwrap()), sum(90));
    fs::remove_file(folder.path().join("date=2026-11-22")).unwrap();
    writer.close().unwrap();
    assert_eq!(totals(&Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap()), sum(90));
}

/// A reader, in this process or as in another one, sees the first records up to some point, each once, while
/// files are published, joined and removed.
#[test]
fn views_are_whole_while_files_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    let done = AtomicBool::new(false);
    let (taken, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for inside in [true, false] {
            let (writer, done, taken, looks) = (&writer, &done, &taken, &looks);
            let dataset = Dataset::open(folder.path()).unwrap();
            scope.spawn(move || {
                let _stop = Stop(done);
                let mut before = 0;
                while !done.load(Ordering::SeqCst) {
                    let least = taken.load(Ordering::SeqCst);
                    let view = if inside { writer.view(Window::ALL) } else { dataset.view(Window::ALL) };
                    let (flows, bytes) = totals(&view.unwrap());
                    assert_eq!((flows, bytes), sum(flows), "a hole, or a record twice");
                    assert!(flows >= before, "{flows} after {before}");
                    assert!(!inside || flows >= least, "{flows} of {least}");
                    before = flows;
                    looks.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let _stop = Stop(&done);
        let mut number = 0;
        while !done.load(Ordering::SeqCst) && (number < 30_000 || looks.load(Ordering::SeqCst) < 20) {
            writer.append(&records(number..number + 500)).unwrap();
            number += 500;
            taken.store(number, Ordering::SeqCst);
            if number % 1000 == 0 {
                writer.flush().unwrap();
            }
            if number % 8000 == 0 {
                let done = writer.compact().unwrap();
                assert!(done.files_joined > 1 && done.files_made == 1, "{done:?}");
            }
        }
    });
    assert!(writer.close().unwrap().upkeep.files_joined > 0);
}

#[test]
fn what_is_old_or_too_much_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    for hour in 0..6 {
        let some: Vec<FlowRecord> =
            (0..100).map(|number| record(number, START_NS + hour * 60 * MINUTE_NS + number)).collect();
        writer.append(&some).unwrap();
        writer.flush().unwrap();
    }
    let count = || Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap().summary();
    // The clock is at START, so nothing is old.
    let done = writer.retain(Retention { age_max_s: Some(1), ..Retention::default() }).unwrap();
    assert_eq!(done.files_expired, 0);
    let summary = count();
    let keep = summary.bytes / 6 * 7 / 2;
    let done = writer.retain(Retention { bytes_max: Some(keep), ..Retention::default() }).unwrap();
    assert_eq!((done.files_expired, done.records_expired), (3, 300));
    assert_eq!(count().records, 300);
    assert_eq!(count().span_ns.unwrap().0, START_NS + 3 * 60 * MINUTE_NS);
    // The latest hour stays, however small the limit.
    writer.retain(Retention { bytes_max: Some(1), ..Retention::default() }).unwrap();
    assert_eq!(count().records, 100);
    assert_eq!(writer.close().unwrap().upkeep.files_expired, 5);
    let later = WriterOptions { now_ns: || START_NS + 8 * 60 * MINUTE_NS, ..options() };
    let (writer, _) = Writer::open(folder.path(), later).unwrap();
    let done = writer.retain(Retention { age_max_s: Some(3600), ..Retention::default() }).unwrap();
    assert_eq!((done.files_expired, count().files), (1, 0));
    writer.close().unwrap();
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn torn_and_foreign_files_are_skipped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    for part in 0..3 {
        writer.append(&records(part * 100..part * 100 + 100)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    let all = files(folder.path());
    let bytes = fs::read(&all[1]).unwrap();
    fs::write(&all[1], &bytes[..bytes.len() / 2]).unwrap();
    fs::write(all[0].with_file_name("notes.parquet"), "not Parquet").unwrap();
    fs::write(all[0].with_file_name(".flows-x-000000000099.parquet.tmp"), "half").unwrap();
    fs::write(all[0].with_file_name("README"), "is nobody's business").unwrap();
    let view = Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap();
    assert_eq!(view.skipped().count, 2, "{:?}", view.skipped());
    assert_eq!(view.summary().records, 200);
    let query = Query::new(Window::ALL, Filter::default());
    let answer = top(&view, &query, &[], Metric::Flows, 0).unwrap();
    assert_eq!((answer.total.flows, answer.scanned.skipped.count), (200, 2));
    let (writer, recovery) = Writer::open(folder.path(), options()).unwrap();
    assert_eq!((recovery.torn_removed, recovery.skipped.count), (1, 2));
    writer.append(&records(300..301)).unwrap();
    writer.close().unwrap();
    // Numbers continue after that of the removed file.
    assert!(
        files(folder.path()).iter().any(|path| path.to_string_lossy().ends_with("-00000000009a.parquet"))
    );
}

/// A bit flips on disk: the answer lacks the row group and names the file, and every other question is answered.
#[test]
fn a_flipped_bit_in_a_page_is_noticed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    for part in 0..3 {
        writer.append(&records(part * 1000..part * 1000 + 1000)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    let all = files(folder.path());
    let whole = fs::read(&all[1]).unwrap();
    let mut chance = XorShift64Star::new(9);
    let dataset = Dataset::open(folder.path()).unwrap();
    let keys = ["src", "dst-port"].map(|key| key.parse::<Key>().unwrap());
    let (mut skipped, mut answered) = (0, 0);
    for _ in 0..300 {
        let mut bytes = whole.clone();
        let at = chance.below(bytes.len() as u32) as usize;
        bytes[at] ^= 1 << chance.below(8);
        fs::write(&all[1], &bytes).unwrap();
        let view = dataset.view(Window::ALL).unwrap();
        let query = Query::new(Window::ALL, Filter::default());
        let answer = top(&view, &query, &keys, Metric::Bytes, 1).unwrap();
        match answer.scanned.skipped.count {
            // Another column, or a part of the footer that does not matter.
            0 => {
                assert_eq!((answer.total.flows, answer.total.bytes), sum(3000));
                answered += 1;
            }
            count => {
                assert_eq!((count, answer.total.flows), (1, 2000), "byte {at}");
                assert_eq!(answer.scanned.skipped.named[0].0, all[1]);
                skipped += 1;
            }
        }
    }
    assert!(skipped > 20 && answered > 20, "{skipped} skipped, {answered} answered");
}

/// Set for the copy of this test program that is killed while it writes.
const CHILD: &str = "THALWEG_STORE_TEST_CHILD";

/// Writes until killed; prints how many records are certainly on disk.
#[test]
fn child_that_writes() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let (writer, _) = Writer::open(Path::new(&folder), options()).unwrap();
    let start: u64 = totals(&writer.view(Window::ALL).unwrap()).0;
    for part in (start..).step_by(100) {
        writer.append(&records(part..part + 100)).unwrap();
        writer.flush().unwrap();
        println!("synced {}", part + 100);
        if part % 1000 == 900 {
            writer.compact().unwrap();
        }
    }
}

#[test]
fn a_killed_writer_loses_only_what_was_not_synced() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = XorShift64Star::new(std::process::id().into());
    let mut synced = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_that_writes", "--exact", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.by_ref().find_map(|line| line.unwrap().strip_prefix("synced ").map(str::to_owned));
        synced = first.expect("the child writes").parse::<u64>().unwrap().max(synced);
        std::thread::sleep(Duration::from_micros(u64::from(chance.below(60_000))));
        child.kill().unwrap();
        child.wait().unwrap();
        let rest: Vec<u64> =
            lines.filter_map(|line| line.ok()?.strip_prefix("synced ")?.parse().ok()).collect();
        synced = rest.into_iter().max().unwrap_or(0).max(synced);
        let read = totals(&Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap());
        assert_eq!(read, sum(read.0), "round {round}: a hole, or a record twice");
        assert!(read.0 >= synced, "round {round}: {} of {synced}", read.0);
        let (writer, recovery) = Writer::open(folder.path(), options()).unwrap();
        assert!(recovery.unclean.as_deref().is_some_and(|who| who.starts_with("process ")), "{recovery:?}");
        assert_eq!(recovery.skipped.count, 0);
        assert_eq!(totals(&writer.view(Window::ALL).unwrap()), read);
        writer.close().unwrap();
    }
}

#[test]
fn keys_of_equal_size_come_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options()).unwrap();
    writer.append(&records(0..7000)).unwrap();
    let view = writer.view(Window::ALL).unwrap();
    let query = Query::new(Window::ALL, Filter::default());
    let answer = top(&view, &query, &["dst".parse::<Key>().unwrap()], Metric::Flows, 3).unwrap();
    let rows: BTreeMap<String, u64> =
        answer.rows.iter().map(|row| (row.key[0].to_string(), row.sums.flows)).collect();
    let expected = [("192.0.2.0", 1000), ("192.0.2.1", 1000), ("192.0.2.2", 1000)];
    assert_eq!(rows, expected.into_iter().map(|(key, flows)| (key.to_owned(), flows)).collect());
}
