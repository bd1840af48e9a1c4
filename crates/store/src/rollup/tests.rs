//! Rollups beside a slow reference: all records ever written, in memory.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use thalweg_flow::Event;
use thalweg_text::calendar::HOUR_NS;

use super::*;
use crate::block::Spare;
use crate::dataset::{Rolled, Temporary, View, Window};
use crate::file::FileWriter;
use crate::filter::Filter;
use crate::iceberg::Table;
use crate::query::{Key, KeyValue, Lines, Metric, Query, graph, top};
use crate::testing::{Chance, START_NS, any_record};
use crate::upkeep::{Changes, GRACE_NS, Retention, recover};
use crate::writer::{Writer, WriterOptions};
use crate::{Dataset, Needs, Step};

/// Long after all records.
const NOW_NS: u64 = START_NS + 1000 * HOUR_NS;
const FOREVER: RollupRetention = RollupRetention { minutes_s: Some(u64::MAX), hours_s: Some(u64::MAX) };
const BOTH: [Level; 2] = Level::ALL;

/// Records with counters whose sums have room, that end in three hours.
fn some(chance: &mut Chance, count: usize) -> Vec<FlowRecord> {
    let mut records: Vec<FlowRecord> = (0..count).map(|_| any_record(chance)).collect();
    for record in &mut records {
        // No traffic, whatever its counters say.
        record.details.event = (chance.below(10) == 7).then_some(Event::NatSessionEnd);
        let reverse = record.reverse.as_mut();
        for counters in std::iter::once(&mut record.counters).chain(reverse) {
            counters.packets %= 1 << 20;
            counters.bytes %= 1 << 30;
        }
    }
    records
}

fn options() -> WriterOptions {
    WriterOptions { upkeep_interval_s: 0, flush_interval_s: 1 << 40, ..WriterOptions::new(|| NOW_NS) }
}

struct World {
    folder: tempfile::TempDir,
    /// All records ever written.
    written: Vec<FlowRecord>,
    chance: Chance,
}

type BySums = BTreeMap<Vec<KeyValue>, (u64, u64, u64)>;

fn by(view: &View, query: &Query, keys: &[Key]) -> BySums {
    let answer = top(view, query, keys, Metric::Bytes, usize::MAX).unwrap();
    assert_eq!(answer.scanned.skipped.count, 0);
    let sums = |row: &crate::query::TopRow| (row.sums.packets, row.sums.bytes, row.sums.flows);
    answer.rows.iter().map(|row| (row.key.clone(), sums(row))).collect()
}

fn keys_of(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

impl World {
    fn new(seed: u64) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), written: Vec::new(), chance: Chance::new(seed) }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn writer(&self) -> Writer {
        let (writer, recovery) = Writer::open(self.root(), options()).unwrap();
        assert_eq!(recovery.skipped.count, 0);
        writer
    }

    fn write(&mut self, count: usize) {
        let writer = self.writer();
        let records = some(&mut self.chance, count);
        writer.append(&records).unwrap();
        writer.close().unwrap();
        self.written.extend(records);
    }

    fn roll_up(&self) -> u64 {
        self.writer().roll_up(FOREVER).unwrap().rollups_made
    }

    fn changes(&self) -> Changes {
        let (_, next_id) = recover(self.root()).unwrap();
        Changes::new(self.root(), next_id, Table::new(self.root(), false, || NOW_NS))
    }

    fn view(&self, query: &Query, keys: &[Key], step: Step, rollups: bool) -> View {
        let needs = Needs { query, keys, step, live: false, rollups };
        Dataset::open(self.root()).unwrap().view_for(&needs).unwrap().0
    }

    fn reference_view(&self) -> View {
        let mut view = View::default();
        view.add_batch(self.written.clone().into());
        view
    }

    fn rollups(&self, level: Level) -> Vec<PathBuf> {
        dataset::list(&level.folder(self.root()), Window::ALL).unwrap()
    }

    fn records_files(&self) -> Vec<PathBuf> {
        dataset::list(self.root(), Window::ALL).unwrap()
    }

    /// Asks questions that rollups can answer, and compares with all records ever written. Without records only steps that rollups have.
    fn check(&self) -> Rolled {
        let by_hand = self
            .written
            .iter()
            .filter(|record| record.details.event.is_none())
            .fold((0, 0, 0), |sum, record| (sum.0 + record.packets(), sum.1 + record.bytes(), sum.2 + 1));
        let all = Query { raw: true, ..Query::new(Window::ALL, Filter::default()) };
        let view = self.view(&all, &[], Step::None, true);
        let rolled = view.rolled;
        let total = top(&view, &all, &[], Metric::Bytes, 0).unwrap().total;
        assert_eq!((total.packets, total.bytes, total.flows), by_hand);
        let windows = [
            Window::ALL,
            Window { from_ns: START_NS + 7 * 60 * SECOND_NS, to_ns: START_NS + 95 * 60 * SECOND_NS },
        ];
        let asked = [
            (&["src"] as &[&str], ""),
            (&["host", "proto"], "not src-as 0"),
            (&["src-as", "dst-as"], "src net 10.0.0.0/8 and not proto tcp"),
            (&["app"], "ipv6 or exporter edge*"),
            (&["ingress", "egress"], ""),
            (&["exporter", "exporter-address", "domain"], "sampling > 1"),
            (&["direction"], "host 10.0.0.1 or ingress 1-3"),
        ];
        for (keys, filter) in asked {
            let keys = keys_of(keys);
            for (window, raw) in windows.iter().flat_map(|window| [(*window, false), (*window, true)]) {
                let query = Query { raw, ..Query::new(window, Filter::parse(filter).unwrap()) };
                let view = self.view(&query, &keys, Step::None, true);
                assert_eq!(view.rolled.hours_coarse + view.rolled.hours_missing, 0, "{filter}");
                assert_eq!(by(&view, &query, &keys), by(&self.reference_view(), &query, &keys), "{filter}");
            }
        }
        for step in [Some(60 * SECOND_NS), Some(HOUR_NS), Some(1800 * SECOND_NS)] {
            let steps = |view: &View| {
                let lines = Lines::Largest(2);
                let answer = graph(view, &all, &keys_of(&["src"]), Metric::Bytes, lines, step).unwrap();
                (answer.steps().collect::<Vec<_>>(), answer.series)
            };
            let (ours, theirs) = (
                steps(&self.view(&all, &keys_of(&["src"]), Step::Of(step), true)),
                steps(&self.reference_view()),
            );
            assert_eq!(ours, theirs);
        }
        rolled
    }
}

#[test]
fn rollups_answer_as_their_records_do_and_when_these_are_gone() {
    let mut world = World::new(1);
    world.write(2000);
    assert_eq!(world.check(), Rolled::default());
    assert!(world.roll_up() >= 4);
    assert_eq!(world.check().step_s, 3600);
    assert_eq!(world.roll_up(), 0, "nothing is new");
    // Late records.
    world.write(300);
    assert_eq!(world.check().step_s, 3600);
    assert!(world.roll_up() > 0);
    world.check();
    let policy = Retention { age_max_s: Some(0), rollups: FOREVER, ..Retention::default() };
    world.write(100);
    let done = world.writer().retain(policy).unwrap();
    assert_eq!(done.records_expired, 2400);
    assert!(done.rollups_made > 0, "what is late is summed before it goes");
    assert!(world.records_files().is_empty());
    world.check();
    // Later than all removal; a writer has begun anew.
    world.write(200);
    world.check();
    world.roll_up();
    world.check();
}

/// An hour whose records are all events has sums of nothing: they say that it was, and that records of it are gone.
#[test]
fn an_hour_of_events_alone_has_a_rollup_too() {
    let mut world = World::new(9);
    world.write(100);
    let writer = world.writer();
    let mut event = some(&mut world.chance, 1)[0];
    event.details.event = Some(Event::NatSessionEnd);
    event.counters.last_ns = START_NS + 5 * HOUR_NS;
    writer.append(&[event]).unwrap();
    writer.close().unwrap();
    world.written.push(event);
    assert!(world.roll_up() > 0);
    assert_eq!(world.roll_up(), 0, "nothing is new");
    let policy = Retention { age_max_s: Some(0), rollups: FOREVER, ..Retention::default() };
    world.writer().retain(policy).unwrap();
    assert!(world.records_files().is_empty());
    world.check();
    let events = Window { from_ns: START_NS + 5 * HOUR_NS, to_ns: START_NS + 6 * HOUR_NS };
    let query = Query::new(events, Filter::parse("event nat-session-end").unwrap());
    assert_eq!(world.view(&query, &[], Step::None, true).rolled.hours_missing, 1);
}

#[test]
fn a_question_that_rollups_cannot_answer_gets_records() {
    let mut world = World::new(2);
    world.write(500);
    world.roll_up();
    let ask = |world: &World, keys: &[&str], filter: &str, window, step| {
        let query = Query::new(window, Filter::parse(filter).unwrap());
        let keys = keys_of(keys);
        let view = world.view(&query, &keys, step, true);
        let is_equal = by(&view, &query, &keys) == by(&world.reference_view(), &query, &keys);
        (view.rolled, is_equal)
    };
    let odd = Window { from_ns: START_NS + 61 * SECOND_NS, to_ns: START_NS + 2 * HOUR_NS };
    let whole = [
        (&["dst-port"] as &[&str], "", Window::ALL, Step::None),
        (&["src"], "port 443", Window::ALL, Step::None),
        (&["src"], "packets > 10 or src 10.0.0.1", Window::ALL, Step::None),
        (&["src"], "event nat-session-end", Window::ALL, Step::None),
        (&["src"], "", Window::ALL, Step::Of(Some(30 * SECOND_NS))),
        (&["src"], "", Window::ALL, Step::Records),
    ];
    for (keys, filter, window, step) in whole {
        assert_eq!(ask(&world, keys, filter, window, step), (Rolled::default(), true), "{keys:?} {filter}");
    }
    assert_eq!(ask(&world, &["src"], "", Window::ALL, Step::Of(Some(60 * SECOND_NS))).0.step_s, 60);
    // A graph without a step has the one that sums were chosen for, whatever the first file of the time is.
    for minutes in [1, 29, 61, 119] {
        let window = Window { from_ns: START_NS + minutes * 60 * SECOND_NS, to_ns: u64::MAX };
        let query = Query::new(window, Filter::default());
        let view = world.view(&query, &[], Step::Of(None), true);
        let drawn = graph(&view, &query, &[], Metric::Bytes, Lines::Largest(1), None).unwrap();
        assert!(drawn.step_ns.is_multiple_of(view.rolled.step_s.max(1) * SECOND_NS), "{}", drawn.step_ns);
    }
    // The hour that the window cuts is of records, the others are of sums.
    let (rolled, is_equal) = ask(&world, &["src"], "", odd, Step::None);
    assert_eq!((rolled.step_s, rolled.hours_coarse, is_equal), (3600, 0, true));
    world
        .writer()
        .retain(Retention { age_max_s: Some(0), rollups: FOREVER, ..Retention::default() })
        .unwrap();
    for (keys, filter, window, step) in whole {
        let (rolled, _) = ask(&world, keys, filter, window, step);
        let hours = rolled.hours_missing + rolled.hours_coarse;
        assert!(hours >= 2, "{keys:?} {filter}: {rolled:?}");
        assert_eq!(rolled.hours_coarse > 0, step == Step::Of(Some(30 * SECOND_NS)));
    }
    assert_eq!(ask(&world, &["src"], "", odd, Step::None).0.hours_coarse, 1);
    let query = Query::new(Window::ALL, Filter::default());
    assert_eq!(world.view(&query, &[], Step::None, false).rolled, Rolled::default(), "nobody asked for sums");
}

#[test]
fn a_crash_between_a_rollup_and_the_end_of_the_one_before_changes_nothing() {
    let mut world = World::new(3);
    world.write(400);
    world.roll_up();
    let old: Vec<(PathBuf, Vec<u8>)> = BOTH
        .iter()
        .flat_map(|level| world.rollups(*level))
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    world.write(100);
    assert!(world.roll_up() > 0);
    old.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    // An unfinished one.
    let torn = Temporary::of(old[0].0.with_file_name(dataset::rollup_name((START_NS, START_NS), 99)));
    fs::write(torn.path(), b"PAR1").unwrap();
    let torn_path = torn.path().to_path_buf();
    std::mem::forget(torn);
    world.check();
    let (writer, recovery) = Writer::open(world.root(), options()).unwrap();
    assert_eq!((recovery.torn_removed, recovery.replaced_removed), (1, old.len() as u64));
    assert!(!torn_path.exists() && old.iter().all(|(path, _)| !path.exists()));
    drop(writer);
    world.check();
    assert_eq!(world.roll_up(), 0);
}

#[test]
fn files_in_a_rollup_are_not_joined_and_others_are() {
    let mut world = World::new(4);
    world.write(50);
    world.write(50);
    world.roll_up();
    let before = world.records_files();
    assert_eq!(world.writer().compact().unwrap().files_joined, 0);
    world.write(50);
    world.write(50);
    assert!(world.writer().compact().unwrap().files_joined >= 4);
    assert!(before.iter().all(|path| path.exists()));
    world.check();
    world.roll_up();
    world.check();
}

#[test]
fn sums_stay_longer_than_records_and_have_an_end() {
    let mut world = World::new(5);
    world.write(300);
    let age_of_all = 990 * 3600;
    let keep = |minutes_s, hours_s| Retention {
        age_max_s: Some(age_of_all),
        rollups: RollupRetention { minutes_s: Some(minutes_s), hours_s: Some(hours_s) },
        ..Retention::default()
    };
    world.writer().retain(keep(age_of_all, u64::MAX)).unwrap();
    assert!(world.records_files().is_empty());
    assert!(world.rollups(Level::Minute).is_empty(), "they would go at once");
    assert!(world.rollups(Level::Hour).len() >= 2);
    let expired = world.writer().retain(keep(u64::MAX, age_of_all)).unwrap();
    assert_eq!((expired.files_expired >= 2, expired.records_expired), (true, 0));
    assert!(world.rollups(Level::Hour).is_empty());
}

#[test]
fn records_go_before_sums_for_want_of_room() {
    let mut world = World::new(6);
    world.write(1000);
    world.roll_up();
    let size = |paths: Vec<PathBuf>| paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    let sums = BOTH.map(|level| size(world.rollups(level)));
    let all = size(world.records_files()) + sums[0] + sums[1];
    let limit = |bytes| Retention { bytes_max: Some(bytes), rollups: FOREVER, ..Retention::default() };
    world.writer().retain(limit(all - 1)).unwrap();
    assert!(world.records_files().len() < 3);
    assert_eq!(BOTH.map(|level| size(world.rollups(level))), sums);
    world.check();
    let newest = world.records_files().split_off(world.records_files().len() - 1);
    world.writer().retain(limit(size(newest) + sums[1])).unwrap();
    assert_eq!((size(world.rollups(Level::Minute)), size(world.rollups(Level::Hour))), (0, sums[1]));
    assert_eq!(world.records_files().len(), 1, "the newest file stays");
}

#[test]
fn a_damaged_file_is_in_no_rollup_and_a_damaged_rollup_is_not_made_again() {
    let mut world = World::new(7);
    world.write(300);
    let damaged = world.records_files().remove(0);
    let whole = fs::read(&damaged).unwrap();
    fs::write(&damaged, b"PAR1").unwrap();
    let made = world.changes().roll_up(NOW_NS, |_| BOTH.to_vec()).unwrap();
    assert!(made >= 2 && made.is_multiple_of(2));
    // It is mended.
    fs::write(&damaged, whole).unwrap();
    world.check();
    world.roll_up();
    world.check();
    world.write(100);
    let rollup = world.rollups(Level::Hour).remove(0);
    fs::write(&rollup, b"PAR1").unwrap();
    let failed = world.changes().roll_up(NOW_NS, |_| BOTH.to_vec());
    assert!(matches!(failed, Err(StoreError::Unreadable { path, .. }) if path == rollup));
    let policy = Retention { age_max_s: Some(0), rollups: FOREVER, ..Retention::default() };
    let failed = world.changes().retain(policy, NOW_NS, None);
    assert!(failed.is_err() && !world.records_files().is_empty(), "records wait");
}

#[test]
fn an_hour_waits_until_it_is_over() {
    let mut world = World::new(8);
    world.write(100);
    let rolled = |now_ns| world.changes().roll_up(now_ns, |_| vec![Level::Hour]).unwrap();
    assert_eq!(rolled(START_NS + HOUR_NS + GRACE_NS - 1), 0);
    assert_eq!(rolled(START_NS + HOUR_NS + GRACE_NS), 1);
}

#[test]
fn a_writer_makes_them_by_itself() {
    let mut world = World::new(12);
    let retention = Retention { rollups: FOREVER, ..Retention::default() };
    let (writer, _) =
        Writer::open(world.root(), WriterOptions { upkeep_interval_s: 1, retention, ..options() }).unwrap();
    world.written = some(&mut world.chance, 200);
    writer.append(&world.written).unwrap();
    writer.flush().unwrap();
    while writer.status().upkeep.rollups_made < 4 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(world.check().step_s, 3600);
    writer.close().unwrap();
}

#[test]
fn a_writer_that_ends_sums_what_it_removes() {
    let mut world = World::new(14);
    world.write(200);
    let changes = world.changes();
    changes.ending.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(changes.roll_up(NOW_NS, |_| BOTH.to_vec()).unwrap(), 0);
    let policy = Retention { age_max_s: Some(0), rollups: FOREVER, ..Retention::default() };
    assert_eq!(changes.retain(policy, NOW_NS, None).unwrap().records_expired, 200);
    assert_eq!(world.check().step_s, 3600);
}

/// Who asks meanwhile, in another process, counts each record once.
#[test]
fn answers_stay_the_same_while_sums_are_made_and_records_go() {
    let mut world = World::new(13);
    (0..6).for_each(|_| world.write(40));
    let total = || {
        let all = Query { raw: true, ..Query::new(Window::ALL, Filter::default()) };
        top(&world.view(&all, &[], Step::None, true), &all, &[], Metric::Bytes, 0).unwrap().total
    };
    let before = total();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let writer = world.writer();
            writer.compact().unwrap();
            for levels in [RollupRetention { hours_s: None, ..FOREVER }, FOREVER] {
                writer.roll_up(levels).unwrap();
            }
            let policy = Retention { age_max_s: Some(998 * 3600), rollups: FOREVER, ..Retention::default() };
            writer.retain(policy).unwrap();
            writer.retain(Retention { age_max_s: Some(0), ..policy }).unwrap();
        });
        while !work.is_finished() {
            assert_eq!(total(), before);
        }
    });
    assert_eq!(total(), before);
    assert!(world.records_files().is_empty());
}

fn summed(records: &[FlowRecord], rows_max: usize) -> Summed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.parquet");
    let mut writer = FileWriter::create(&path, &[]).unwrap();
    writer.append(records.iter(), &mut Spare::default()).unwrap();
    writer.finish().unwrap();
    let facts = RollupFacts { step_s: 3600, ..RollupFacts::default() };
    let mut summed = Summed { rows: Rows::default(), facts };
    assert!(summed.add(&FlowFile::open(&path).unwrap(), 0, rows_max, &|| false).unwrap());
    summed.fold(rows_max);
    summed
}

#[test]
fn rows_have_a_limit_and_totals_stay() {
    let records = some(&mut Chance::new(9), 3000);
    let total = |summed: &Summed| {
        summed.rows.values().fold((0, 0), |sum, row| (sum.0 + row.records, sum.1 + row.forward.1))
    };
    let whole = summed(&records, 100_000);
    assert_eq!(whole.facts.folded, 0);
    for (rows_max, folded) in [(2600, 1), (10, 2)] {
        let few = summed(&records, rows_max);
        assert_eq!((few.facts.folded, total(&few)), (folded, total(&whole)));
        assert!(few.rows.len() <= whole.rows.len());
    }
}

#[test]
fn the_largest_rows_are_kept() {
    let record = any_record(&mut Chance::new(10));
    let kept = |n: u8| Kept { src: [10, 0, 0, n].into(), ..Kept::of(&record, HOUR_NS) };
    let amounts = |bytes: u64| Amounts { records: 1, forward: (1, bytes), reverse: None };
    // Of 20 rows of equal size some must go.
    let size = |n: u8| u64::from(n.clamp(50, 69));
    let mut sums: Rows = (1..=100).map(|n| (kept(n), amounts(size(n)))).collect();
    keep_largest(&mut sums, 40);
    let rest = sums.remove(&kept(1).folded(1)).unwrap();
    assert_eq!((rest.records, sums.len()), (60, 40));
    assert!(sums.values().all(|row| row.forward.1 >= 60), "{:?}", sums.values().collect::<Vec<_>>());
    let bytes: u64 = sums.values().map(|row| row.forward.1).sum();
    assert_eq!(bytes + rest.forward.1, (1..=100).map(size).sum::<u64>());
    let before = sums.len();
    keep_largest(&mut sums, 40);
    assert_eq!(sums.len(), before, "there is room");
}

#[test]
fn sums_that_were_folded_answer_only_for_what_they_have() {
    let mut world = World::new(11);
    world.write(400);
    let changes = world.changes();
    for partition in dataset::partitions(world.root()).unwrap() {
        let files = dataset::open_all(&dataset::published(&partition.path).unwrap()).unwrap().files;
        let mut summed = sum(Level::Hour, &[], &files, &|| false).unwrap().unwrap();
        summed.fold(summed.rows.len() * 9 / 10);
        assert_eq!(summed.facts.folded, 1);
        changes.put_rollup(Level::Hour, partition.hour, summed, &[]).unwrap();
    }
    let all = Query::new(Window::ALL, Filter::default());
    let step = |keys: &[&str]| {
        let keys = keys_of(keys);
        let view = world.view(&all, &keys, Step::None, true);
        assert_eq!(by(&view, &all, &keys), by(&world.reference_view(), &all, &keys));
        view.rolled.step_s
    };
    assert_eq!((step(&["src"]), step(&["exporter", "direction"])), (0, 3600));
    world.check();
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Write(usize),
    Join,
    RollUp,
    /// Remove records of hours by age, or the oldest beyond a part of the bytes.
    RemoveOld(u64),
    RemoveBytes(u64),
    /// Files that a rollup replaced come back, as after a crash.
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1..120_usize).prop_map(Act::Write),
        2 => Just(Act::Join),
        3 => Just(Act::RollUp),
        1 => (996..1001_u64).prop_map(Act::RemoveOld),
        1 => (1..100_u64).prop_map(Act::RemoveBytes),
        1 => Just(Act::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_sums_are_those_of_all_records_ever_written(
        seed in 1..u64::MAX,
        acts in prop::collection::vec(act(), 1..10),
    ) {
        let mut world = World::new(seed);
        world.write(60);
        for act in acts {
            match act {
                Act::Write(count) => world.write(count),
                Act::Join => drop(world.writer().compact().unwrap()),
                Act::RollUp => drop(world.roll_up()),
                Act::RemoveOld(hours) => {
                    let policy =
                        Retention { age_max_s: Some(hours * 3600), rollups: FOREVER, ..Retention::default() };
                    world.writer().retain(policy).unwrap();
                }
                Act::RemoveBytes(percent) => {
                    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
                    let sums: u64 =
                        BOTH.iter().flat_map(|level| world.rollups(*level)).map(|path| size(&path)).sum();
                    let mut files = world.records_files();
                    let newest = files.pop().map_or(0, |path| size(&path));
                    let bytes = sums + newest + files.iter().map(size).sum::<u64>() * percent / 100;
                    let policy =
                        Retention { bytes_max: Some(bytes), rollups: FOREVER, ..Retention::default() };
                    // There is room for the sums, so that only records have to go.
                    world.changes().retain(policy, NOW_NS, None).unwrap();
                }
                Act::Crash => {
                    let read = |path: PathBuf| (path.clone(), fs::read(&path).unwrap());
                    let before: Vec<_> = BOTH.iter().flat_map(|level| world.rollups(*level)).map(read).collect();
                    world.roll_up();
                    before.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
                }
            }
            world.check();
        }
    }
}
