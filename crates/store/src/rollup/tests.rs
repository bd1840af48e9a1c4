use std::collections::BTreeMap;

use thalweg_flow::Event;

use super::*;
use crate::query::{Key, KeyValue, graph};
use crate::testing::{Chance, START_NS, any_record};

const ALL: RollupOptions = RollupOptions { step_s: 3600, hosts: true, rows_max: 100_000, until_ns: u64::MAX };

fn write(root: &Path, records: &[FlowRecord]) {
    let options =
        WriterOptions { upkeep_interval_s: 0, flush_interval_s: 1 << 40, ..WriterOptions::new(|| START_NS) };
    let (writer, _) = Writer::open(root, options).unwrap();
    writer.append(records).unwrap();
    writer.close().unwrap();
}

/// Records with counters whose sums have room.
fn some(seed: u64, count: usize) -> Vec<FlowRecord> {
    let mut chance = Chance::new(seed);
    let mut records: Vec<FlowRecord> = (0..count).map(|_| any_record(&mut chance)).collect();
    for (number, record) in records.iter_mut().enumerate() {
        // No traffic, whatever its counters say.
        record.details.event = (number % 10 == 7).then_some(Event::NatSessionEnd);
        let reverse = record.reverse.as_mut();
        for counters in std::iter::once(&mut record.counters).chain(reverse) {
            counters.packets %= 1 << 20;
            counters.bytes %= 1 << 30;
        }
    }
    records
}

fn view(root: &Path) -> View {
    Dataset::open(root).unwrap().view(Window::ALL).unwrap()
}

type BySums = BTreeMap<Vec<KeyValue>, (u64, u64)>;

fn by(view: &View, keys: &[&str], raw: bool, filter: &str) -> BySums {
    let keys: Vec<Key> = keys.iter().map(|key| key.parse().unwrap()).collect();
    let query = Query { raw, ..Query::new(Window::ALL, Filter::parse(filter).unwrap()) };
    let answer = top(view, &query, &keys, Metric::Bytes, usize::MAX).unwrap();
    assert_eq!(answer.scanned.skipped.count, 0);
    answer.rows.into_iter().map(|row| (row.key, (row.sums.packets, row.sums.bytes))).collect()
}

fn totals_by_hand(records: &[FlowRecord]) -> (u64, u64) {
    let traffic = records.iter().filter(|record| record.details.event.is_none());
    let counters = traffic.flat_map(|record| std::iter::once(&record.counters).chain(&record.reverse));
    counters.fold((0, 0), |sum, counters| (sum.0 + counters.packets, sum.1 + counters.bytes))
}

fn total(root: &Path) -> (u64, u64) {
    let (sums, skipped) = totals(&view(root)).unwrap();
    assert_eq!(skipped.count, 0);
    (sums.packets, sums.bytes)
}

fn roll(source: &Path, target: &Path, options: RollupOptions) -> RolledUp {
    roll_up(&Dataset::open(source).unwrap(), target, options).unwrap()
}

#[test]
fn a_rollup_answers_as_its_records_do() {
    for (seed, step_s) in [(1, 3600), (2, 60), (3, 900)] {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let records = some(seed, 3000);
        write(source.path(), &records);
        let done = roll(source.path(), target.path(), RollupOptions { step_s, ..ALL });
        assert_eq!((done.records, done.records_in_rest), (2700, 0));
        assert_eq!(total(target.path()), totals_by_hand(&records));
        let (of_records, of_rollup) = (view(source.path()), view(target.path()));
        let keys = [
            &["src"] as &[&str],
            &["dst", "proto"],
            &["host"],
            &["src-as", "dst-as"],
            &["app"],
            &["ingress", "egress"],
            &["exporter", "exporter-address", "domain"],
            &["direction"],
        ];
        for keys in keys {
            for (raw, filter) in [(false, ""), (true, "src net 10.0.0.0/8 and not proto tcp")] {
                let asked = |view| by(view, keys, raw, filter);
                assert_eq!(asked(&of_records), asked(&of_rollup), "{keys:?} {filter}");
            }
        }
        let step_ns = step_s * SECOND_NS;
        let steps = |view: &View| {
            let query =
                Query::new(Window { from_ns: START_NS, to_ns: START_NS + 3 * HOUR_NS }, Filter::default());
            let answer =
                graph(view, &query, &[], Metric::Bytes, crate::query::Lines::Largest(0), Some(step_ns))
                    .unwrap();
            let steps = answer.steps().map(|(from_ns, _)| from_ns).zip(answer.series[0].steps.clone());
            let steps = steps.map(|(from_ns, sums)| (from_ns, sums.packets, sums.bytes));
            steps.filter(|step| step.1 > 0).collect::<Vec<_>>()
        };
        assert_eq!(steps(&of_records), steps(&of_rollup));
    }
}

#[test]
fn late_records_are_counted_once_and_lost_ones_stay() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = some(4, 500);
    write(source.path(), &records[..300]);
    let hours = roll(source.path(), target.path(), ALL).hours_made;
    assert!(hours >= 2);
    let again = roll(source.path(), target.path(), ALL);
    assert_eq!((again.hours_made, again.hours_unchanged), (0, hours));
    write(source.path(), &records[300..]);
    assert!(roll(source.path(), target.path(), ALL).hours_made > 0);
    assert_eq!(total(target.path()), totals_by_hand(&records));
    // Of each hour only few records are left.
    fs::remove_dir_all(source.path()).unwrap();
    write(source.path(), &records[..10]);
    let fewer = roll(source.path(), target.path(), ALL);
    assert_eq!(fewer.hours_made, 0, "{fewer:?}");
    assert!(fewer.hours_kept > 0);
    assert_eq!(total(target.path()), totals_by_hand(&records));
}

/// As after a crash between the new file's name and the end of the old one.
#[test]
fn a_file_that_a_rollup_replaced_does_not_count() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = some(5, 400);
    write(source.path(), &records[..200]);
    roll(source.path(), target.path(), ALL);
    let old: Vec<(PathBuf, Vec<u8>)> = dataset::list(target.path(), Window::ALL)
        .unwrap()
        .into_iter()
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    write(source.path(), &records[200..]);
    roll(source.path(), target.path(), ALL);
    old.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert_eq!(total(target.path()), totals_by_hand(&records));
    assert_eq!(roll(source.path(), target.path(), ALL).hours_made, 0);
    assert_eq!(total(target.path()), totals_by_hand(&records));
}

#[test]
fn rows_have_a_limit_and_totals_stay() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = some(6, 2000);
    write(source.path(), &records);
    // An hour has some 900 keys.
    let done = roll(source.path(), target.path(), RollupOptions { rows_max: 600, ..ALL });
    assert!(done.records_in_rest > 0);
    assert_eq!(total(target.path()), totals_by_hand(&records));
    let (of_records, of_rollup) = (view(source.path()), view(target.path()));
    for keys in [&["app"] as &[&str], &["proto", "exporter"], &["egress", "direction"]] {
        assert_eq!(by(&of_records, keys, false, ""), by(&of_rollup, keys, false, ""));
    }
    let without = tempfile::tempdir().unwrap();
    let done = roll(source.path(), without.path(), RollupOptions { hosts: false, ..ALL });
    assert_eq!((done.records, done.records_in_rest), (1800, 0));
    let of_rollup = view(without.path());
    for keys in [&["src-as", "dst-as"] as &[&str], &["app", "proto"]] {
        assert_eq!(by(&of_records, keys, false, ""), by(&of_rollup, keys, false, ""));
    }
    assert!(by(&of_rollup, &["src"], false, "").len() <= 2, "one of each family");
    let limit = RollupOptions { rows_max: 1, ..ALL };
    let (source, target) = (Dataset::open(source.path()).unwrap(), tempfile::tempdir().unwrap());
    let error = roll_up(&source, target.path(), limit).unwrap_err().to_string();
    assert!(error.contains("give more rows"), "{error}");
}

#[test]
fn the_largest_rows_are_kept() {
    let mut chance = Chance::new(10);
    let record = any_record(&mut chance);
    let kept = |n: u8| Kept { src: [10, 0, 0, n].into(), ..Kept::of(&record, HOUR_NS, true) };
    let amounts = |bytes: u64| Amounts { records: 1, forward: (1, bytes), reverse: None };
    // Of 20 rows of equal size some must go.
    let size = |n: u8| u64::from(n.clamp(50, 69));
    let mut sums: Rows = (1..=100).map(|n| (kept(n), amounts(size(n)))).collect();
    assert_eq!(keep_largest(&mut sums, 40).unwrap(), 60);
    let rest = sums.remove(&kept(1).rest()).unwrap();
    assert_eq!((rest.records, sums.len()), (60, 40));
    assert!(sums.values().all(|row| row.forward.1 >= 60), "{:?}", sums.values().collect::<Vec<_>>());
    let bytes: u64 = sums.values().map(|row| row.forward.1).sum();
    assert_eq!(bytes + rest.forward.1, (1..=100).map(size).sum::<u64>());
    let before = sums.len();
    assert_eq!(keep_largest(&mut sums, 40).unwrap(), 0);
    assert_eq!(sums.len(), before, "there is room");
}

#[test]
fn hours_that_go_on_and_damaged_ones_wait() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(source.path(), &some(7, 300));
    let done = roll(source.path(), target.path(), RollupOptions { until_ns: START_NS + HOUR_NS - 1, ..ALL });
    assert_eq!(done.hours_made, 0);
    let path = dataset::list(source.path(), Window::ALL).unwrap().remove(0);
    fs::write(&path, b"PAR1").unwrap();
    let done = roll(source.path(), target.path(), ALL);
    assert_eq!((done.hours_incomplete, done.skipped.count), (1, 1));
    assert!(done.hours_made > 0);
}

#[test]
fn other_folders_are_refused() {
    let (source, records) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(source.path(), &some(8, 10));
    write(records.path(), &some(9, 10));
    let dataset = Dataset::open(source.path()).unwrap();
    let refused = |target: &Path, step_s| {
        roll_up(&dataset, target, RollupOptions { step_s, ..ALL }).unwrap_err().to_string()
    };
    assert!(refused(source.path(), 60).contains("outside the dataset"));
    assert!(refused(&source.path().join("hours"), 60).contains("outside the dataset"));
    assert!(refused(records.path(), 60).contains("neither empty nor a rollup"));
    assert!(refused(records.path(), 7).contains("divide an hour"));
    let target = tempfile::tempdir().unwrap();
    roll(source.path(), target.path(), ALL);
    assert!(refused(target.path(), 60).contains("in steps of 3600 s"));
}
