//! Archiving that fails or stops at any step, and what is read then.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use parking_lot::Mutex;

use super::*;
use crate::dataset::{Dataset, Rolled};
use crate::filter::Filter;
use crate::notify::Notify;
use crate::query::{Metric, Query, top};
use crate::rollup::{Level, Needs, RollupRetention, Step};
use crate::testing::memory::{Failure, Memory};
use crate::testing::{self, Chance, START_NS};
use crate::upkeep::Retention;
use crate::writer::{Writer, WriterOptions};
use thalweg_flow::FlowRecord;

const LATER_NS: u64 = START_NS + 50 * HOUR_NS;

pub(super) fn open(folder: &Path, store: &Arc<Memory>, retention: Retention) -> Writer {
    let archive: Option<Arc<dyn ObjectStore>> = Some(Arc::<Memory>::clone(store));
    let options =
        WriterOptions { upkeep_interval_s: 0, archive, retention, ..WriterOptions::new(|| LATER_NS) };
    Writer::open(folder, options).unwrap().0
}

/// Fifty records of each of two hours.
pub(super) fn records(chance: &mut Chance) -> Vec<FlowRecord> {
    let mut record = |hour: u64| {
        let mut record = testing::any_record(chance);
        record.counters.last_ns = START_NS + hour * HOUR_NS + chance.next_u64() % HOUR_NS;
        record.details.event = None;
        record.reverse = None;
        record.sampling_interval = 1;
        record.counters.bytes %= 1 << 30;
        record
    };
    (0..100).map(|number| record(number / 50)).collect()
}

/// Records, and their bytes.
pub(super) fn sums(dataset: &Dataset) -> (u64, u64) {
    let view = dataset.view(Window::ALL).unwrap();
    let answer = top(&view, &Query::new(Window::ALL, Filter::default()), &[], Metric::Bytes, 0).unwrap();
    assert_eq!(answer.scanned.skipped.count, 0, "{:?}", answer.scanned.skipped);
    (answer.total.flows, answer.total.bytes)
}

pub(super) fn archive_of(store: &Arc<Memory>) -> Dataset {
    Dataset::of_archive(Arc::<Memory>::clone(store))
}

/// What is in the folder and the archive.
fn both(folder: &Path, store: &Arc<Memory>) -> (u64, u64) {
    let mut dataset = Dataset::open(folder).unwrap();
    dataset.add(archive_of(store));
    sums(&dataset)
}

#[test]
fn wherever_archiving_stops_nothing_is_lost_or_counted_twice() {
    for first in [None, Some(Failure::Refused), Some(Failure::Unheard)] {
        for second in [None, Some(Failure::Refused), Some(Failure::Unheard)] {
            let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
            let mut chance = Chance::new(3);
            let mut written = 0;
            let mut bytes = Vec::new();
            for failure in [first, second, None] {
                // A writer that begins after another one was killed, with late records of hours that are archived.
                let writer = open(folder.path(), &store, Retention::default());
                for _ in 0..3 {
                    writer.append(&records(&mut chance)).unwrap();
                    writer.flush().unwrap();
                    written += 100;
                }
                writer.compact().unwrap();
                store.failures.lock().extend(failure);
                assert_eq!(writer.archive().is_err(), failure.is_some(), "{first:?} {second:?}");
                assert_eq!(writer.status().archive_error.is_some(), failure.is_some());
                writer.compact().unwrap();
                writer.close().unwrap();
                let here = sums(&Dataset::open(folder.path()).unwrap());
                assert_eq!(here.0, written, "{first:?} {second:?}");
                assert_eq!(both(folder.path(), &store), here, "{first:?} {second:?}");
                bytes.push(here);
            }
            assert_eq!(Some(&sums(&archive_of(&store))), bytes.last(), "{first:?} {second:?}");
        }
    }
}

#[test]
fn age_removes_only_what_is_archived_and_lack_of_room_counts_what_is_lost() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let retention = Retention { age_max_s: Some(3600), ..Retention::default() };
    let writer = open(folder.path(), &store, retention);
    writer.append(&records(&mut Chance::new(5))).unwrap();
    writer.flush().unwrap();
    let all = sums(&Dataset::open(folder.path()).unwrap());
    assert_eq!(writer.retain(retention).unwrap().files_expired, 0, "nothing is archived");
    store.failures.lock().extend([Failure::Refused]);
    assert!(writer.archive().is_err());
    assert_eq!(writer.retain(retention).unwrap().files_expired, 0, "nothing is archived yet");
    let done = writer.archive().unwrap();
    assert_eq!((done.files_archived, store.objects.lock().len()), (2, 2));
    assert!(done.bytes_archived > 0);
    assert_eq!(writer.archive().unwrap().files_archived, 0, "it is done");
    let done = writer.retain(retention).unwrap();
    assert_eq!((done.files_expired, done.records_unarchived), (2, 0));
    assert_eq!(dataset::partitions(folder.path()).unwrap(), [], "marks go with their hour");
    assert_eq!((both(folder.path(), &store), sums(&archive_of(&store))), (all, all));
    // What is not archived goes last, and counts.
    writer.append(&records(&mut Chance::new(6))).unwrap();
    writer.flush().unwrap();
    writer.archive().unwrap();
    writer.append(&records(&mut Chance::new(7))).unwrap();
    writer.flush().unwrap();
    let files = dataset::list(folder.path(), Window::ALL).unwrap();
    let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    let of = |bytes_max: u64| Retention { bytes_max: Some(bytes_max), ..Retention::default() };
    let done = writer.retain(of(bytes - 1)).unwrap();
    assert_eq!((done.files_expired, done.records_unarchived), (1, 0));
    let done = writer.retain(of(1)).unwrap();
    assert_eq!(done.records_unarchived, 50, "{done:?}");
    assert!(done.removed().unwrap().contains("50 of these records were not archived"));
    writer.close().unwrap();
}

#[test]
fn damaged_marks_stop_one_hour_until_its_files_were_sent_again() {
    let damaged = ["archived flows", "archived flows\nx\n", "", "\u{fffd}\n"];
    let garbage = damaged.map(str::as_bytes).into_iter().chain([[0xff, b'\n'].as_slice()]);
    for (nth, text) in garbage.enumerate() {
        let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
        let archive: Option<Arc<dyn ObjectStore>> = Some(Arc::<Memory>::clone(&store));
        let said = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&said);
        let notify = Notify::new(move |_, text| told.lock().push(text.to_owned()));
        let options =
            WriterOptions { upkeep_interval_s: 0, archive, notify, ..WriterOptions::new(|| LATER_NS) };
        let (writer, _) = Writer::open(folder.path(), options).unwrap();
        let retention = Retention { age_max_s: Some(3600), ..Retention::default() };
        let mut chance = Chance::new(9);
        let mut write = || {
            writer.append(&records(&mut chance)).unwrap();
            writer.flush().unwrap();
        };
        write();
        writer.archive().unwrap();
        write();
        write();
        let all = sums(&Dataset::open(folder.path()).unwrap());
        let hours = dataset::partitions(folder.path()).unwrap();
        let marks = hours[0].path.join(".archive");
        fs::write(&marks, text).unwrap();
        let files = || [0, 1].map(|hour: usize| dataset::published(&hours[hour].path).unwrap().len());
        assert_eq!(writer.compact().unwrap().files_joined, 2, "{nth}: only of the other hour");
        assert_eq!(files(), [3, 2], "{nth}");
        // What is known to be archived goes, and nothing else.
        assert_eq!(writer.retain(retention).unwrap().files_expired, 1, "{nth}");
        assert_eq!(files(), [3, 1], "{nth}");
        assert_eq!(both(folder.path(), &store), all, "{nth}");
        assert_eq!(writer.archive().unwrap().files_archived, 4, "{nth}: one of them was there");
        assert_eq!(store.objects.lock().len(), 5, "{nth}");
        assert_eq!(sums(&archive_of(&store)), all, "{nth}");
        let done = writer.retain(retention).unwrap();
        assert_eq!((done.files_expired, done.records_unarchived), (4, 0), "{nth}");
        let status = writer.close().unwrap();
        assert_eq!(status.marks_damaged.count, 1, "{nth}");
        let names = |text: &&String| text.contains(&marks.display().to_string());
        assert_eq!(said.lock().iter().filter(names).count(), 1, "{nth}: {said:?}");
    }
}

#[test]
fn marks_that_cannot_be_made_anew_stop_no_other_hour() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let writer = open(folder.path(), &store, Retention::default());
    for seed in 5..7 {
        writer.append(&records(&mut Chance::new(seed))).unwrap();
        writer.flush().unwrap();
    }
    let hours = dataset::partitions(folder.path()).unwrap();
    // A folder of this name cannot be replaced.
    fs::create_dir(hours[0].path.join(".archive")).unwrap();
    for joined in [2, 0] {
        assert_eq!(writer.compact().unwrap().files_joined, joined);
    }
    assert!(writer.archive().is_err());
    assert_eq!(store.objects.lock().len(), 1, "the other hour");
    let of = Retention { bytes_max: Some(1), ..Retention::default() };
    assert_eq!(writer.retain(of).unwrap().records_unarchived, 100, "room is made");
    assert_eq!(writer.close().unwrap().marks_damaged.count, 1);
}

#[test]
fn hours_are_archived_when_they_are_complete() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let archive: Option<Arc<dyn ObjectStore>> = Some(Arc::<Memory>::clone(&store));
    // The first of the two hours ended eleven minutes ago.
    let now_ns = || START_NS + HOUR_NS + 660 * SECOND_NS;
    let options = WriterOptions { upkeep_interval_s: 0, archive, ..WriterOptions::new(now_ns) };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    writer.append(&records(&mut Chance::new(5))).unwrap();
    writer.flush().unwrap();
    writer.archive().unwrap();
    writer.close().unwrap();
    let keys: Vec<String> = store.objects.lock().keys().cloned().collect();
    assert_eq!(keys.len(), 1);
    assert!(keys[0].starts_with("date=2026-11-22/hour=5/flows-20261122T05"), "{keys:?}");
}

#[test]
fn an_object_of_another_dataset_is_told_and_stops_no_others() {
    let (folder, other, store) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    for (folder, seed) in [(&folder, 5), (&other, 6)] {
        let writer = open(folder.path(), &store, Retention::default());
        let mut some = records(&mut Chance::new(seed));
        // Both begin and end at the same second, in one of the hours.
        for record in some.iter_mut().filter(|record| record.counters.last_ns < START_NS + HOUR_NS) {
            record.counters.last_ns = START_NS;
        }
        writer.append(&some).unwrap();
        writer.flush().unwrap();
        let archived = writer.archive();
        assert_eq!(archived.is_err(), seed == 6);
        assert!(both(folder.path(), &store).0 >= 100);
        writer.close().unwrap();
    }
    assert_eq!(store.objects.lock().len(), 3);
}

#[test]
fn a_question_reads_the_columns_that_it_needs_of_the_hours_that_it_is_about() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let writer = open(folder.path(), &store, Retention::default());
    let mut chance = Chance::new(5);
    for _ in 0..200 {
        writer.append(&records(&mut chance)).unwrap();
    }
    writer.flush().unwrap();
    writer.archive().unwrap();
    writer.close().unwrap();
    let here = Dataset::open(folder.path()).unwrap();
    let there = archive_of(&store);
    let window = Window { from_ns: START_NS + HOUR_NS, to_ns: START_NS + 2 * HOUR_NS };
    let ask = |dataset: &Dataset| {
        let view = dataset.view(window).unwrap();
        let footers = *store.read.lock();
        let query = Query::new(window, Filter::parse("proto tcp").unwrap());
        let answer = top(&view, &query, &["proto".parse().unwrap()], Metric::Flows, 9).unwrap();
        (answer.rows, answer.total, footers)
    };
    let expected = ask(&here);
    let answered = ask(&there);
    assert_eq!((&answered.0, answered.1), (&expected.0, expected.1));
    let (read, footers) = (*store.read.lock() - answered.2, answered.2);
    let stored: usize = store.objects.lock().values().map(Vec::len).sum();
    assert!(footers <= 128 << 10, "one footer: {footers}");
    assert!(read * 5 < stored as u64, "{read} of {stored} bytes");
    // A part of a folder's hours counts once.
    assert_eq!(both(folder.path(), &store), sums(&here));
    assert!(there.is_one().unwrap() && !archive_of(&Arc::default()).is_one().unwrap());
}

#[test]
fn a_store_that_fails_for_a_while_is_told_and_tried_again() {
    use std::time::Duration;

    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    store.failures.lock().extend([Failure::Refused, Failure::Unheard, Failure::Refused]);
    let archive: Option<Arc<dyn ObjectStore>> = Some(Arc::<Memory>::clone(&store));
    let said = Arc::<Mutex<Vec<String>>>::default();
    let told = Arc::clone(&said);
    let notify = Notify::new(move |_, text| told.lock().push(text.to_owned()));
    let pause = Duration::from_millis(1);
    let retry = pause..=pause;
    let options =
        WriterOptions { archive, upkeep_interval_s: 1, notify, retry, ..WriterOptions::new(|| LATER_NS) };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    writer.append(&records(&mut Chance::new(5))).unwrap();
    writer.flush().unwrap();
    while writer.status().upkeep.files_archived < 2 || writer.status().archive_error.is_some() {
        std::thread::yield_now();
    }
    assert_eq!(writer.status().archive_errors, 3);
    writer.close().unwrap();
    let said = said.lock();
    let is = |words: &[&str]| said.iter().filter(|text| words.iter().all(|word| text.contains(word))).count();
    assert_eq!(is(&["not everything is archived", "s3://memory/a", "the test refuses"]), 1, "{said:?}");
    assert_eq!(is(&["is archived to s3://memory/a again"]), 1, "{said:?}");
    assert_eq!(sums(&archive_of(&store)), sums(&Dataset::open(folder.path()).unwrap()));
}

#[test]
fn a_file_that_is_joined_sent_and_removed_during_a_question_counts_once() {
    // The archive is listed by two lists before the folder is looked at, and by two behind it.
    for lists in 0..5 {
        for removes in [false, true] {
            let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
            let mut chance = Chance::new(8);
            let writer = open(folder.path(), &store, Retention::default());
            writer.append(&records(&mut chance)).unwrap();
            writer.flush().unwrap();
            writer.archive().unwrap();
            for _ in 0..2 {
                writer.append(&records(&mut chance)).unwrap();
                writer.flush().unwrap();
            }
            let all = sums(&Dataset::open(folder.path()).unwrap());
            let sends = move || {
                writer.archive().unwrap();
                if removes {
                    writer.retain(Retention { age_max_s: Some(3600), ..Retention::default() }).unwrap();
                }
            };
            let mut meanwhile: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(sends)];
            meanwhile.extend((0..lists).map(|_| Box::new(|| ()) as Box<dyn FnOnce() + Send>));
            *store.meanwhile.lock() = meanwhile;
            assert_eq!(both(folder.path(), &store), all, "after {lists} lists, removed: {removes}");
            store.meanwhile.lock().clear();
        }
    }
}

/// Sums that are kept, of records that go after an hour.
pub(super) const SUMS: RollupRetention =
    RollupRetention { minutes_s: Some(u64::MAX), hours_s: Some(u64::MAX) };
pub(super) const SUMMED: Retention = Retention {
    age_max_s: Some(3600),
    bytes_max: None,
    free_min: None,
    makes_room: false,
    rollups: SUMS,
    archive_age_max_s: None,
};

/// The answer to a question that sums have, unless it is about single records, and what they had to do with it.
pub(super) fn asked(folder: &Path, store: Option<&Arc<Memory>>, step: Step) -> ((u64, u64), Rolled) {
    let mut dataset = Dataset::open(folder).unwrap();
    store.into_iter().for_each(|store| dataset.add(archive_of(store)));
    asked_of(&dataset, step)
}

pub(super) fn asked_of(dataset: &Dataset, step: Step) -> ((u64, u64), Rolled) {
    let query = Query::new(Window::ALL, Filter::default());
    let needs = Needs { query: &query, keys: &[], step, live: false, rollups: true };
    let (view, _) = dataset.view_for(&needs).unwrap();
    let answer = top(&view, &query, &[], Metric::Bytes, 0).unwrap();
    assert_eq!(answer.scanned.skipped.count, 0, "{:?}", answer.scanned.skipped);
    ((answer.total.flows, answer.total.bytes), view.rolled)
}

pub(super) fn hours_of_sums() -> Rolled {
    Rolled { step_s: 3600, ..Rolled::default() }
}

#[test]
fn old_hours_of_the_bucket_are_removed_and_nothing_else_is() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    // The first of the two hours ended 49 hours ago, the second 48.
    let retention = Retention { archive_age_max_s: Some(49 * 3600), ..Retention::default() };
    let first = open(folder.path(), &store, retention);
    let second = open(&dataset::part(folder.path(), 2), &store, Retention::default());
    for (writer, seed) in [(&first, 14), (&second, 15)] {
        writer.append(&records(&mut Chance::new(seed))).unwrap();
        writer.flush().unwrap();
    }
    second.archive().unwrap();
    assert_eq!(first.archive().unwrap().objects_expired, 0, "what was just sent is young");
    let keys = || store.objects.lock().keys().cloned().collect::<Vec<String>>();
    let sent = keys();
    assert_eq!(sent.len(), 4);
    let [hour, last] = ["date=2026-11-22/hour=5/", "date=2026-11-22/hour=6/"];
    let of_others = [
        "note.txt".to_owned(),
        format!("{hour}note.txt"),
        format!("{hour}part-0.parquet"),
        format!("{hour}.flows-20261122T050000-20261122T055959-000000000001.parquet"),
        format!("x/{hour}flows-20261122T050000-20261122T055959-000000000001.parquet"),
        format!("writer-x/{hour}flows-20261122T050000-20261122T055959-000000000001.parquet"),
        "date=2026-11-22/flows-20261122T050000-20261122T055959-000000000001.parquet".to_owned(),
    ];
    store.objects.lock().extend(of_others.iter().map(|key| (key.clone(), vec![0])));
    let gone = format!("writer-9/{hour}flows-20261122T050000-20261122T055959-000000000001.parquet");
    store.objects.lock().insert(gone.clone(), vec![0]);
    let all = keys();
    *store.old.lock() = all.iter().cloned().collect();
    store.failures.lock().push(Failure::Refused);
    let failed = first.archive().unwrap_err().to_string();
    assert!(failed.contains("cannot remove s3://memory/a/"), "{failed}");
    assert_eq!((keys(), first.status().archive_error), (all.clone(), None), "what is to go is there");
    // The second writer has another policy; that of the ninth is no more.
    let done = first.archive().unwrap();
    assert_eq!(done.objects_expired, 2);
    assert!(done.object_bytes_expired > 1);
    let left: Vec<String> =
        all.iter().filter(|key| !key.starts_with(hour) || of_others.contains(key)).cloned().collect();
    let left: Vec<String> = left.into_iter().filter(|key| *key != gone).collect();
    assert_eq!(keys(), left);
    assert!(left.iter().any(|key| key.starts_with(last)));
    second.close().unwrap();
    assert_eq!(first.archive().unwrap().objects_expired, 1, "its writer has ended");
    // What went there is still here, and is not sent again.
    let done = first.archive().unwrap();
    assert_eq!((done.objects_expired, done.files_archived), (0, 0));
    assert_eq!(first.close().unwrap().upkeep.objects_expired, 3);
    assert_eq!(sums(&Dataset::open(folder.path()).unwrap()).0, 200);
}

/// The two datasets of a site, whose files have the same names and sizes.
struct Alike {
    folders: [tempfile::TempDir; 2],
    stores: [Arc<Memory>; 2],
    writers: [Writer; 2],
    /// What is in both.
    all: (u64, u64),
}

fn alike() -> Alike {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let stores = [0, 1].map(|number| Arc::new(Memory { number, ..Memory::default() }));
    let mut all = (0, 0);
    let writers = [0, 1].map(|number: usize| {
        let writer = open(folders[number].path(), &stores[number], SUMMED);
        let mut some = records(&mut Chance::new(13));
        for record in &mut some {
            record.counters.bytes = 1000 + number as u64;
            all = (all.0 + 1, all.1 + record.counters.bytes);
        }
        writer.append(&some).unwrap();
        writer.flush().unwrap();
        writer.archive().unwrap();
        writer
    });
    let listed = [0, 1].map(|number: usize| stores[number].list("", true, &|| true).unwrap().objects);
    assert_eq!(listed[0], listed[1], "only their content differs");
    Alike { folders, stores, writers, all }
}

#[test]
fn files_of_two_datasets_that_have_a_name_and_a_size_are_two() {
    for order in [[0, 1], [1, 0]] {
        for gone in [&[][..], &[0], &[1], &[0, 1]] {
            let Alike { folders, stores, writers, all } = alike();
            for number in gone {
                assert_eq!(writers[*number].retain(SUMMED).unwrap().files_expired, 2);
            }
            let mut dataset = Dataset::open(folders[order[0]].path()).unwrap();
            dataset.add(Dataset::open(folders[order[1]].path()).unwrap());
            // One archive that is named twice counts once.
            for number in [0, 1, 0] {
                dataset.add(archive_of(&stores[number]));
            }
            assert_eq!(sums(&dataset), all, "{order:?} {gone:?}");
            let query = Query::new(Window::ALL, Filter::default());
            for step in [Step::None, Step::Records] {
                let needs = Needs { query: &query, keys: &[], step, live: false, rollups: true };
                let (view, _) = dataset.view_for(&needs).unwrap();
                let answer = top(&view, &query, &[], Metric::Bytes, 0).unwrap();
                assert_eq!((answer.total.flows, answer.total.bytes), all, "{order:?} {gone:?} {step:?}");
            }
        }
    }
}

#[test]
fn a_copy_of_a_folder_or_an_archive_is_of_the_same_dataset() {
    let Alike { folders, stores, writers: _writers, all } = alike();
    let of_first = sums(&Dataset::open(folders[0].path()).unwrap());
    // A bucket that is replicated under another name.
    let copy = Memory { number: 1, ..Memory::default() };
    copy.objects.lock().extend(stores[0].objects.lock().clone());
    assert_eq!(both(folders[0].path(), &Arc::new(copy)), of_first);
    // Another one beside it, which was never sent, and has what the first archive has.
    fs::remove_file(folders[1].path().join(".archive")).unwrap();
    let mut dataset = Dataset::open(folders[0].path()).unwrap();
    dataset.add(Dataset::open(folders[1].path()).unwrap());
    dataset.add(archive_of(&stores[0]));
    assert_eq!(sums(&dataset), all);
}

#[test]
fn room_is_made_of_what_is_archived_then_of_the_rest_then_of_sums() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let writer = open(folder.path(), &store, SUMMED);
    let mut chance = Chance::new(12);
    for archives in [true, false] {
        let mut new = records(&mut chance);
        for record in &mut new {
            // What is not archived is newer.
            let last_ns = &mut record.counters.last_ns;
            *last_ns =
                *last_ns / HOUR_NS * HOUR_NS + *last_ns % HOUR_NS / 2 + u64::from(!archives) * HOUR_NS / 2;
        }
        writer.append(&new).unwrap();
        writer.flush().unwrap();
        if archives {
            writer.archive().unwrap();
        }
    }
    let all = sums(&Dataset::open(folder.path()).unwrap());
    writer.roll_up(SUMS).unwrap();
    let files = |level: Option<Level>| {
        let root = level.map_or(folder.path().to_path_buf(), |level| level.folder(folder.path()));
        dataset::list(&root, Window::ALL).unwrap()
    };
    let bytes = || -> u64 {
        let all = [None, Some(Level::Minute), Some(Level::Hour)].into_iter().flat_map(files);
        all.map(|path| fs::metadata(path).unwrap().len()).sum()
    };
    let removes = |less: u64| {
        let policy = Retention { age_max_s: None, bytes_max: Some(bytes() - less), ..SUMMED };
        let done = writer.retain(policy).unwrap();
        (done.files_expired, done.records_unarchived)
    };
    let counts = || [None, Some(Level::Minute), Some(Level::Hour)].map(|level| files(level).len());
    assert_eq!((removes(1), counts()), ((1, 0), [3, 2, 2]));
    assert_eq!((removes(1), counts()), ((1, 0), [2, 2, 2]), "archived, in the latest hour");
    assert_eq!((removes(1), counts()), ((1, 50), [1, 2, 2]));
    assert_eq!(asked(folder.path(), None, Step::None), (all, hours_of_sums()), "what is lost was summed");
    assert_eq!((removes(1), counts()), ((1, 0), [1, 1, 2]));
    assert_eq!((removes(1), counts()), ((1, 0), [1, 0, 2]));
    assert_eq!((removes(1), counts()), ((1, 0), [1, 0, 1]));
    writer.close().unwrap();
}
