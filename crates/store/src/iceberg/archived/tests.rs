//! The table of an archive as an engine finds it: after each round, between two writers, and when one was killed at any step.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use serde_json::Value;
use thalweg_flow::FlowRecord;
use thalweg_text::calendar::HOUR_NS;

use super::*;
use crate::dataset::{Dataset, Window};
use crate::filter::Filter;
use crate::query::{Metric, Query, top};
use crate::testing::memory::{Failure, Memory};
use crate::testing::{self, Chance, START_NS};
use crate::upkeep::Retention;
use crate::writer::{Writer, WriterOptions};

const LATER_NS: u64 = START_NS + 100 * HOUR_NS;

fn open_with(folder: &Path, store: &Arc<Memory>, iceberg: bool, keep_hours: Option<u64>) -> Writer {
    let archive: Option<Arc<dyn ObjectStore>> = Some(Arc::<Memory>::clone(store));
    let retention =
        Retention { archive_age_max_s: keep_hours.map(|hours| hours * 3600), ..Retention::default() };
    let options = WriterOptions {
        upkeep_interval_s: 0,
        iceberg,
        archive,
        retention,
        ..WriterOptions::new(|| LATER_NS)
    };
    Writer::open_beside(folder, options).unwrap().0
}

fn open(folder: &Path, store: &Arc<Memory>) -> Writer {
    open_with(folder, store, true, None)
}

/// Writes records that end in this hour after the first, as a file.
fn write(writer: &Writer, chance: &mut Chance, hour: u64, count: usize) {
    let some: Vec<FlowRecord> = (0..count)
        .map(|_| {
            let mut record = testing::any_record(chance);
            record.counters.last_ns = START_NS + hour * HOUR_NS + chance.next_u64() % HOUR_NS;
            record.details.event = None;
            record
        })
        .collect();
    writer.append(&some).unwrap();
    writer.flush().unwrap();
}

/// The table as its hint shows it.
struct Seen {
    document: Value,
    /// Records of files.
    files: BTreeMap<PathBuf, i64>,
}

/// Reads the table, if there is one, and checks what it promises: its files are there, and all counts are right.
fn look(store: &Arc<Memory>) -> Option<Seen> {
    let as_store: Arc<dyn ObjectStore> = Arc::<Memory>::clone(store);
    let place = Bucket::of(Within { store: &as_store, goes_on: &|| true });
    let get = |name: &str| store.objects.lock().get(&format!("{METADATA_FOLDER}{name}")).cloned();
    let hint = String::from_utf8(get(HINT)?).unwrap();
    let document: Value = serde_json::from_slice(&get(&format!("v{hint}.metadata.json")).unwrap()).unwrap();
    assert_eq!(document["location"], format!("{}/.iceberg", store.name()));
    let mut files = BTreeMap::new();
    for snapshot in document["snapshots"].as_array().unwrap() {
        files.clear();
        for manifest in place.manifests(snapshot["manifest-list"].as_str().unwrap()).unwrap() {
            assert_eq!(place.read(&manifest.path).unwrap().len() as i64, manifest.length);
            for entry in place.entries(&manifest).unwrap() {
                let key = entry.file.path.strip_prefix(store.name()).unwrap()[1..].to_owned();
                let size = store.objects.lock().get(&key).map(Vec::len);
                assert_eq!(size, Some(entry.file.bytes as usize), "{key} is not there");
                assert_eq!(archive::hour_of(&key), Some(entry.file.hour as u64));
                assert!(manifest.hours[0] <= entry.file.hour && entry.file.hour <= manifest.hours[1]);
                assert_eq!(files.insert(entry.file.path.into(), entry.file.records), None, "a file twice");
            }
        }
        let summary = |key: &str| snapshot["summary"][key].as_str().unwrap().parse::<i64>().unwrap();
        let records = files.values().sum::<i64>();
        assert_eq!((summary("total-records"), summary("total-data-files")), (records, files.len() as i64));
    }
    Some(Seen { document, files })
}

/// Asserts that the table has what the archive has, no more and no less; returns what its snapshots did.
fn whole(store: &Arc<Memory>) -> Vec<(String, i64, i64)> {
    let seen = look(store).unwrap();
    let is_file = |key: &&String| archive::hour_of(key).is_some();
    let keys = store.keys();
    let paths: Vec<PathBuf> =
        keys.iter().filter(is_file).map(|key| Path::new(store.name()).join(key)).collect();
    assert_eq!(seen.files.keys().cloned().collect::<Vec<_>>(), paths);
    assert_eq!(seen.files.values().sum::<i64>(), records(store));
    let snapshots = seen.document["snapshots"].as_array().unwrap().iter();
    let told = snapshots.map(|snapshot| {
        let summary = &snapshot["summary"];
        let count = |key: &str| summary[key].as_str().unwrap().parse().unwrap();
        (summary["operation"].as_str().unwrap().to_owned(), count("added-records"), count("deleted-records"))
    });
    told.collect()
}

/// Records that `thalweg flows` finds in the archive.
fn records(store: &Arc<Memory>) -> i64 {
    let view = Dataset::of_archive(Arc::<Memory>::clone(store)).view(Window::ALL).unwrap();
    let answer = top(&view, &Query::new(Window::ALL, Filter::default()), &[], Metric::Bytes, 0).unwrap();
    answer.total.flows as i64
}

fn append(count: i64) -> (String, i64, i64) {
    ("append".to_owned(), count, 0)
}

/// Makes all objects as old as their hours.
fn age(store: &Memory) {
    *store.old.lock() = store.keys().into_iter().collect();
}

#[test]
fn a_round_of_sending_and_a_removal_are_a_snapshot_each() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let mut chance = Chance::new(5);
    // The first of the hours ended 99 hours ago.
    let writer = open_with(folder.path(), &store, true, Some(99));
    writer.archive().unwrap();
    assert_eq!(whole(&store), [], "a table before its first record");
    for hours in [vec![0, 1, 30], vec![1], vec![2, 3]] {
        hours.iter().for_each(|hour| write(&writer, &mut chance, *hour, 50));
        writer.archive().unwrap();
    }
    let before = store.keys().len();
    assert_eq!(whole(&store), [append(150), append(50), append(100)]);
    let manifests = |store: &Memory| store.keys().iter().filter(|key| key.contains("/writer-1-")).count();
    assert_eq!(manifests(&store), 4, "two days, one of which was written three times");
    writer.archive().unwrap();
    assert_eq!(store.keys().len(), before, "nothing differs");
    age(&store);
    assert_eq!(writer.archive().unwrap().objects_expired, 1);
    assert_eq!(whole(&store), [("delete".to_owned(), 0, 50)]);
    writer.close().unwrap();
}

#[test]
fn without_the_option_there_is_no_table_and_one_that_is_there_is_kept() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let mut chance = Chance::new(6);
    let writer = open_with(folder.path(), &store, false, Some(99));
    write(&writer, &mut chance, 0, 10);
    writer.archive().unwrap();
    assert!(store.keys().iter().all(|key| key.starts_with("date=")), "{:?}", store.keys());
    // Another writer wants one: it has the objects of both.
    let other = open(folder.path(), &store);
    write(&other, &mut chance, 1, 10);
    other.archive().unwrap();
    assert_eq!(whole(&store), [append(20)]);
    write(&writer, &mut chance, 2, 10);
    writer.archive().unwrap();
    assert_eq!(whole(&store), [append(20), append(10)]);
    age(&store);
    assert_eq!(writer.archive().unwrap().objects_expired, 1);
    assert_eq!(whole(&store), [("delete".to_owned(), 0, 10)]);
}

/// Two writers of a dataset, of which the second archives while the first is about to commit.
fn at_once(overwrites: bool) -> (tempfile::TempDir, Arc<Memory>, Writer, Arc<Writer>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Memory { overwrites, ..Memory::default() });
    let mut chance = Chance::new(7);
    let (first, second) = (open(folder.path(), &store), Arc::new(open(folder.path(), &store)));
    assert_ne!(first.root(), second.root());
    for writer in [&first, &second] {
        writer.archive().unwrap();
        write(writer, &mut chance, 0, 20);
    }
    let other = Arc::clone(&second);
    // The first list finds the table; the second one, which is of objects, is before the commit.
    store.meanwhile.lock().push(Box::new(move || {
        other.archive().unwrap();
    }));
    store.meanwhile.lock().push(Box::new(|| {}));
    first.archive().unwrap();
    assert!(store.meanwhile.lock().is_empty());
    (folder, store, first, second)
}

#[test]
fn of_two_commits_at_once_none_is_lost() {
    let (_folder, store, first, second) = at_once(false);
    assert_eq!(whole(&store), [append(20), append(20)]);
    drop((first, second));
    // And without order.
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let writers = [(); 4].map(|()| open(folder.path(), &store));
    for writer in &writers {
        writer.archive().unwrap();
    }
    std::thread::scope(|scope| {
        for (number, writer) in writers.iter().enumerate() {
            scope.spawn(move || {
                let mut chance = Chance::new(number as u64 + 1);
                for hour in 0..10 {
                    write(writer, &mut chance, hour % 3 * 20, 10);
                    writer.archive().unwrap();
                }
            });
        }
    });
    let told = whole(&store);
    assert_eq!(told.iter().map(|(_, added, _)| added).sum::<i64>(), 400);
    assert_eq!(told.len(), 40);
}

#[test]
fn a_store_that_writes_a_name_twice_has_all_after_the_next_round() {
    let (_folder, store, first, second) = at_once(true);
    assert_eq!(look(&store).unwrap().files.len(), 1, "one of the commits is lost");
    second.archive().unwrap();
    assert_eq!(whole(&store), [append(20), append(20)]);
    drop((first, second));
}

/// A round that sends two hours and removes another one.
fn round(folder: &Path, store: &Arc<Memory>) -> Result<(), StoreError> {
    let writer = open_with(folder, store, true, Some(99));
    writer.archive().map(drop)
}

#[test]
fn a_writer_that_is_killed_at_any_step_leaves_a_whole_table_and_the_next_one_mends_it() {
    let mut steps = [0; 2];
    for (steps, how) in steps.iter_mut().zip([Failure::Refused, Failure::Unheard]) {
        for is_first in [true, false] {
            for step in 1.. {
                let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
                let mut chance = Chance::new(8);
                let writer = open(folder.path(), &store);
                if !is_first {
                    write(&writer, &mut chance, 0, 10);
                    write(&writer, &mut chance, 30, 10);
                    writer.archive().unwrap();
                    age(&store);
                }
                write(&writer, &mut chance, 1, 10);
                write(&writer, &mut chance, 31, 10);
                writer.close().unwrap();
                let before = look(&store).map_or(0, |seen| seen.files.len());
                *store.changes_left.lock() = Some((step, how));
                let stopped = round(folder.path(), &store);
                // As engines find it.
                let seen = look(&store).map_or(0, |seen| seen.files.len());
                assert!(seen == before || seen == 2 || seen == 4 || seen == 3, "step {step}: {seen}");
                let is_done = matches!(*store.changes_left.lock(), Some((1.., _)));
                *store.changes_left.lock() = None;
                round(folder.path(), &store).unwrap();
                whole(&store);
                assert_eq!(records(&store), if is_first { 20 } else { 30 }, "step {step} {how:?}");
                if is_done {
                    stopped.unwrap();
                    *steps += step - 1;
                    break;
                }
                assert!(stopped.is_err(), "step {step}");
            }
        }
    }
    // Two objects, two of the probe, two manifests, a list, a document, a hint; and with the removal a manifest, a list, a
    // document, a hint and the object.
    assert_eq!(steps, [9 + 13, 9 + 13]);
}

#[test]
fn a_table_that_is_damaged_or_of_another_bucket_is_begun_again() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let mut chance = Chance::new(9);
    let writer = open(folder.path(), &store);
    write(&writer, &mut chance, 0, 10);
    writer.archive().unwrap();
    writer.close().unwrap();
    let uuid = |store: &Arc<Memory>| look(store).unwrap().document["table-uuid"].as_str().unwrap().to_owned();
    let reopened = |store: &Arc<Memory>| open(folder.path(), store).archive().map(drop);
    let old = uuid(&store);
    reopened(&store).unwrap();
    assert_eq!(uuid(&store), old, "nothing was wrong");
    for (part, content) in
        [("/v", Some("{")), ("/v", Some("[]")), ("/snap-", Some("Obj\u{1}")), ("/writer-", None)]
    {
        let before = uuid(&store);
        let named: Vec<String> =
            store.keys().into_iter().filter(|key| key.contains(&format!("metadata{part}"))).collect();
        for key in named.iter().filter(|key| !key.ends_with(HINT)) {
            store.objects.lock().remove(key);
            if let Some(content) = content {
                store.objects.lock().insert(key.clone(), content.as_bytes().to_vec());
            }
        }
        reopened(&store).unwrap();
        assert_eq!(whole(&store), [append(10)]);
        assert_ne!(uuid(&store), before, "{part}");
    }
    // A bucket that was copied under another name.
    let copy = Arc::new(Memory { number: 1, ..Memory::default() });
    copy.objects.lock().extend(store.objects.lock().clone());
    reopened(&copy).unwrap();
    assert_eq!(whole(&copy), [append(10)]);
    // An object that is no file of flows is left out.
    let key = "date=2026-11-22/hour=7/flows-20261122T070000-20261122T070000-0000000000ff.parquet";
    store.objects.lock().insert(key.to_owned(), b"PAR1".to_vec());
    reopened(&store).unwrap();
    assert_eq!(look(&store).unwrap().files.len(), 1);
}

#[test]
fn a_new_folder_keeps_the_table_of_writers_that_are_no_more() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let mut chance = Chance::new(10);
    {
        let writers = [(); 2].map(|()| open(folder.path(), &store));
        for writer in &writers {
            write(writer, &mut chance, 0, 10);
            writer.archive().unwrap();
        }
        // The second one is killed when its object was sent.
        write(&writers[1], &mut chance, 1, 10);
        *store.changes_left.lock() = Some((1, Failure::Unheard));
        writers[1].archive().unwrap_err();
        *store.changes_left.lock() = None;
    }
    assert_eq!(look(&store).unwrap().files.len(), 2);
    let new = tempfile::tempdir().unwrap();
    let writer = open(new.path(), &store);
    writer.archive().unwrap();
    assert_eq!(whole(&store), [append(10), append(10), append(10)]);
}

#[test]
fn what_no_snapshot_needs_is_removed_and_nothing_else() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let mut chance = Chance::new(11);
    let foreign = format!("{METADATA_FOLDER}notes.txt");
    store.objects.lock().insert(foreign.clone(), b"of somebody".to_vec());
    for hour in 0..3 {
        let writer = open(folder.path(), &store);
        write(&writer, &mut chance, hour, 10);
        writer.archive().unwrap();
    }
    let count = |store: &Memory| store.keys().iter().filter(|key| key.starts_with(METADATA_FOLDER)).count();
    // Of each round a document, a list and a manifest; the hint, the probe, and what is not ours.
    assert_eq!(count(&store), 12);
    age(&store);
    let writer = open_with(folder.path(), &store, true, Some(97));
    writer.archive().unwrap();
    assert_eq!(whole(&store).len(), 1);
    // What the removal of hours has just left is not old yet.
    let names = store.keys();
    assert!(names.contains(&foreign));
    let documents = names.iter().filter(|key| key.contains("/v") && key.ends_with("json"));
    assert_eq!(documents.count(), 1, "{names:?}");
    assert_eq!(count(&store), 6, "{names:?}");
}
