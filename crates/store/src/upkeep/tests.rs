//! Compaction that stops between its steps.

use super::*;
use crate::dataset::{Dataset, Window};
use crate::filter::Filter;
use crate::query::{Query, list};
use crate::testing::{self, Chance};
use crate::writer::{Writer, WriterOptions};

struct Stopped {
    folder: tempfile::TempDir,
    records: Vec<FlowRecord>,
    changes: Changes,
    partition: PathBuf,
    files: Vec<Arc<FlowFile>>,
}

/// A dataset of six small files of one hour.
fn small_files() -> Stopped {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) =
        Writer::open(folder.path(), WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| 0) })
            .unwrap();
    let mut chance = Chance::new(1);
    let mut records = Vec::new();
    for _ in 0..6 {
        let some: Vec<FlowRecord> = (0..50)
            .map(|_| {
                let mut record = testing::any_record(&mut chance);
                record.counters.last_ns = testing::START_NS + chance.next_u64() % HOUR_NS;
                record
            })
            .collect();
        writer.append(&some).unwrap();
        writer.flush().unwrap();
        records.extend(some);
    }
    writer.close().unwrap();
    let partition = dataset::partitions(folder.path()).unwrap().remove(0).path;
    let files = dataset::open_all(&dataset::published(&partition).unwrap()).unwrap().files;
    assert_eq!(files.len(), 6);
    let changes = Changes::new(folder.path(), 7, Table::new(folder.path(), false, || 0));
    Stopped { folder, records, changes, partition, files }
}

impl Stopped {
    /// Asserts that `files` files hold exactly the written records, also after recovery has removed leftovers.
    fn check(&self, files: usize, torn: u64, replaced: u64) {
        let read = || {
            let view = Dataset::open(self.folder.path()).unwrap().view(Window::ALL).unwrap();
            let query = Query::new(Window::ALL, Filter::default());
            (view.files.len(), list(&view, &query, 1000).unwrap().0)
        };
        let by_time = |record: &FlowRecord| (record.counters.last_ns, record.counters.first_ns, record.key);
        let mut expected = self.records.clone();
        expected.sort_by_key(by_time);
        assert_eq!(read(), (files, expected.clone()));
        let (recovery, next_id) = recover(self.folder.path()).unwrap();
        assert_eq!((recovery.torn_removed, recovery.replaced_removed), (torn, replaced));
        assert_eq!(recovery.skipped.count, 0);
        assert!(next_id >= 7);
        assert_eq!(read(), (files, expected));
        assert_eq!(dataset::folder(&self.partition).unwrap().len(), files);
    }
}

#[test]
fn stopped_before_the_new_file_has_its_name() {
    let world = small_files();
    let compaction =
        Compaction::write(&world.changes, &world.partition, world.files.clone()).unwrap().unwrap();
    // A killed process removes nothing.
    std::mem::forget(compaction);
    world.check(6, 1, 0);
}

#[test]
fn stopped_before_the_old_files_are_removed() {
    let world = small_files();
    let mut compaction =
        Compaction::write(&world.changes, &world.partition, world.files.clone()).unwrap().unwrap();
    compaction.publish(&world.changes.publish).unwrap();
    world.check(1, 0, 6);
}

#[test]
fn stopped_while_the_old_files_are_removed() {
    let world = small_files();
    let mut compaction =
        Compaction::write(&world.changes, &world.partition, world.files.clone()).unwrap().unwrap();
    compaction.publish(&world.changes.publish).unwrap();
    fs::remove_file(&compaction.replaced[0]).unwrap();
    fs::remove_file(&compaction.replaced[3]).unwrap();
    world.check(1, 0, 4);
}

#[test]
fn not_stopped() {
    let world = small_files();
    let done = world.changes.compact().unwrap();
    assert_eq!((done.files_joined, done.files_made, done.records_joined), (6, 1, 300));
    world.check(1, 0, 0);
    assert_eq!(world.changes.compact().unwrap(), Upkeep::default());
}

#[test]
fn joining_ends_when_it_is_told_to_and_leaves_nothing() {
    let world = small_files();
    world.changes.ending.store(true, Ordering::Relaxed);
    assert_eq!(world.changes.compact().unwrap(), Upkeep::default());
    world.check(6, 0, 0);
}
