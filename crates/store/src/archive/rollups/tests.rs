//! Rollups beside, and in, an archive.

use super::super::tests::{SUMMED, SUMS, archive_of, asked, asked_of, hours_of_sums, open, records, sums};
use super::*;
use crate::archive::level_of;
use crate::dataset::{Dataset, Rolled};
use crate::rollup::{RollupRetention, Step};
use crate::testing::Chance;
use crate::testing::memory::{Failure, Memory};
use crate::upkeep::Retention;
use crate::writer::Writer;
use std::sync::Arc;
use thalweg_text::calendar::SECOND_NS;

/// A folder and a bucket, and what was ever written.
struct Place {
    folder: tempfile::TempDir,
    store: Arc<Memory>,
    all: (u64, u64),
    chance: Chance,
}

impl Place {
    fn new(seed: u64) -> Self {
        let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
        Self { folder, store, all: (0, 0), chance: Chance::new(seed) }
    }

    fn writer(&self, retention: Retention) -> Writer {
        open(self.folder.path(), &self.store, retention)
    }

    /// A file of each of two hours.
    fn write(&mut self, writer: &Writer) {
        let new = records(&mut self.chance);
        let bytes: u64 = new.iter().map(|record| record.counters.bytes).sum();
        self.all = (self.all.0 + new.len() as u64, self.all.1 + bytes);
        writer.append(&new).unwrap();
        writer.flush().unwrap();
    }

    fn both(&self, step: Step) -> ((u64, u64), Rolled) {
        asked(self.folder.path(), Some(&self.store), step)
    }

    fn bucket(&self, step: Step) -> ((u64, u64), Rolled) {
        asked_of(&archive_of(&self.store), step)
    }

    /// The keys of rollups.
    fn rollups(&self) -> Vec<String> {
        self.store.keys().into_iter().filter(|key| level_of(key).is_some()).collect()
    }

    fn records(&self) -> Vec<String> {
        self.store.keys().into_iter().filter(|key| key.starts_with("date=")).collect()
    }
}

#[test]
fn sums_of_the_bucket_answer_without_its_records_and_when_these_are_gone() {
    let mut place = Place::new(21);
    let writer = place.writer(SUMMED);
    place.write(&writer);
    place.write(&writer);
    writer.roll_up(SUMS).unwrap();
    let done = writer.archive().unwrap();
    assert_eq!((done.files_archived, done.rollups_archived), (4, 4));
    let done = writer.archive().unwrap();
    assert_eq!((done.files_archived, done.rollups_archived), (0, 0), "they are there");
    let all = place.all;
    assert_eq!(place.bucket(Step::Records), (all, Rolled::default()));
    // Nothing of the records is read, not even footers.
    for key in place.records() {
        place.store.objects.lock().get_mut(&key).unwrap().fill(0);
    }
    assert_eq!(place.bucket(Step::None), (all, hours_of_sums()));
    let by_minutes = Rolled { step_s: 60, ..Rolled::default() };
    assert_eq!(place.bucket(Step::Of(Some(60 * SECOND_NS))), (all, by_minutes));
    // The steps are chosen from the names of files.
    assert_eq!(place.bucket(Step::Of(None)).0, all);
    // Records go from the bucket, and the folder is lost.
    for key in place.records() {
        place.store.objects.lock().remove(&key);
    }
    writer.close().unwrap();
    assert_eq!(place.bucket(Step::None), (all, hours_of_sums()));
    assert_eq!(place.bucket(Step::Records), ((0, 0), Rolled { hours_missing: 2, ..Rolled::default() }));
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(asked(empty.path(), Some(&place.store), Step::None), (all, hours_of_sums()));
    assert!(archive_of(&place.store).is_one().unwrap());
    // `stats` counts what is here and there once.
    let mut dataset = Dataset::open(place.folder.path()).unwrap();
    let here = rollups_of(&dataset);
    assert_eq!(here, rollups_of(&archive_of(&place.store)));
    dataset.add(archive_of(&place.store));
    assert_eq!(here, rollups_of(&dataset));
}

/// Step and number of files.
fn rollups_of(dataset: &Dataset) -> Vec<(u64, u64)> {
    let mut summary = crate::dataset::Summary::default();
    dataset.add_rollups(&mut summary).unwrap();
    assert_eq!(summary.skipped.count, 0);
    summary.rollups.iter().map(|rollup| (rollup.step_s, rollup.files)).collect()
}

#[test]
fn sums_with_late_records_take_the_place_of_those_before_wherever_the_writer_is_killed() {
    for failure in [Failure::Refused, Failure::Unheard] {
        for changes in 1..=10 {
            let mut place = Place::new(22);
            let writer = place.writer(SUMMED);
            place.write(&writer);
            writer.roll_up(SUMS).unwrap();
            writer.archive().unwrap();
            let before = place.rollups();
            place.write(&writer);
            writer.roll_up(SUMS).unwrap();
            // Two files, and two levels of two hours, each with one that goes.
            *place.store.changes_left.lock() = Some((changes, failure));
            assert!(writer.archive().is_err());
            writer.close().unwrap();
            let (all, what) = (place.all, format!("{failure:?} {changes}"));
            assert_eq!(place.both(Step::None), (all, hours_of_sums()), "{what}");
            assert_eq!(place.both(Step::Records), (all, Rolled::default()), "{what}");
            let rest = place.bucket(Step::Records).0;
            assert_eq!(place.bucket(Step::None).0, rest, "{what}: what the bucket has of either");
            *place.store.changes_left.lock() = None;
            let next = place.writer(SUMMED);
            next.archive().unwrap();
            assert_eq!(place.bucket(Step::None), (all, hours_of_sums()), "{what}");
            assert_eq!(place.rollups().len(), 4, "{what}");
            assert!(place.rollups().iter().all(|key| !before.contains(key)), "{what}");
            next.close().unwrap();
        }
    }
}

#[test]
fn sums_stay_in_the_bucket_for_as_long_as_records_and_as_here() {
    let mut place = Place::new(23);
    // The first of the two hours ended 49 hours ago, the second 48.
    let hours = |hours: u64| Some(hours * 3600);
    let retention = |minutes_s: Option<u64>| {
        let rollups = RollupRetention { minutes_s, hours_s: hours(49) };
        Retention { archive_age_max_s: hours(48), rollups, ..Retention::default() }
    };
    let writer = place.writer(SUMMED);
    place.write(&writer);
    writer.roll_up(SUMS).unwrap();
    writer.archive().unwrap();
    writer.close().unwrap();
    *place.store.old.lock() = place.store.keys().into_iter().collect();
    let writer = place.writer(retention(None));
    assert_eq!(
        writer.archive().unwrap().objects_expired,
        3,
        "records, and the sums by hours of the first hour"
    );
    writer.close().unwrap();
    let writer = place.writer(retention(hours(1)));
    assert_eq!(writer.archive().unwrap().objects_expired, 2, "sums by minutes");
    let left = place.store.keys();
    assert!(
        matches!(&left[..], [key] if key.starts_with(".rollups/hour/date=2026-11-22/hour=6/")),
        "{left:?}"
    );
    writer.close().unwrap();
    // Nothing goes without an age.
    let writer = place.writer(Retention { archive_age_max_s: None, ..retention(hours(1)) });
    assert_eq!(writer.archive().unwrap().objects_expired, 0);
    writer.close().unwrap();
}

#[test]
fn sums_here_stay_until_they_are_there() {
    let mut place = Place::new(24);
    let writer = place.writer(SUMMED);
    place.write(&writer);
    writer.roll_up(SUMS).unwrap();
    let rollups = RollupRetention { minutes_s: Some(1), hours_s: Some(1) };
    let retention = Retention { rollups, ..Retention::default() };
    assert_eq!(writer.retain(retention).unwrap().files_expired, 0, "nothing is archived");
    writer.archive().unwrap();
    assert_eq!(writer.retain(retention).unwrap().files_expired, 4);
    assert_eq!(place.both(Step::None), (place.all, hours_of_sums()));
    writer.close().unwrap();
}

#[test]
fn whatever_happens_here_and_there_sums_are_those_of_all_records_ever_written() {
    for seed in 1..40 {
        let mut place = Place::new(seed);
        let mut writer = place.writer(SUMMED);
        for step in 0..12 {
            match place.chance.below(7) {
                0 | 1 => place.write(&writer),
                2 => drop(writer.roll_up(SUMS).unwrap()),
                3 => drop(writer.archive().unwrap()),
                4 => drop(writer.retain(SUMMED).unwrap()),
                5 => drop(writer.compact().unwrap()),
                // The bucket removes records that are in sums: here, or there.
                _ => {
                    writer.retain(SUMMED).unwrap();
                    let gone = place.records();
                    gone.into_iter().for_each(|key| drop(place.store.objects.lock().remove(&key)));
                    writer.close().unwrap();
                    writer = place.writer(SUMMED);
                }
            }
            if place.all.0 > 0 {
                assert_eq!(place.both(Step::None).0, place.all, "{seed} {step}");
            }
        }
        writer.roll_up(SUMS).unwrap();
        writer.archive().unwrap();
        assert_eq!(place.bucket(Step::None).0, place.all, "{seed}: the folder is lost");
        assert_eq!(sums(&Dataset::open(place.folder.path()).unwrap()).0 % 50, 0);
        writer.close().unwrap();
    }
}

#[test]
fn a_record_that_sums_and_an_archive_have_counts_once() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let mut chance = Chance::new(9);
    let writer = open(folder.path(), &store, SUMMED);
    let mut all = (0, 0);
    let mut write = |parts: u64| {
        for _ in 0..parts {
            let new = records(&mut chance);
            all = (all.0 + 100, all.1 + new.iter().map(|record| record.counters.bytes).sum::<u64>());
            writer.append(&new).unwrap();
            writer.flush().unwrap();
        }
        all
    };
    let (here, both) =
        (|step| asked(folder.path(), None, step), |step| asked(folder.path(), Some(&store), step));
    let all = write(2);
    writer.roll_up(SUMS).unwrap();
    let done = writer.archive().unwrap();
    assert_eq!((done.files_archived, done.rollups_archived), (4, 4), "what sums cover is not joined");
    assert_eq!((here(Step::None), both(Step::None)), ((all, hours_of_sums()), (all, hours_of_sums())));
    let all_with_late = write(1);
    assert_ne!(all, all_with_late);
    let all = all_with_late;
    assert_eq!((here(Step::None), both(Step::None)), ((all, hours_of_sums()), (all, hours_of_sums())));
    let done = writer.archive().unwrap();
    assert_eq!((done.files_archived, done.rollups_archived), (2, 0));
    // Late records are summed before they go.
    let done = writer.retain(SUMMED).unwrap();
    assert_eq!((done.rollups_made, done.files_expired, done.records_unarchived), (4, 6, 0));
    assert_eq!(here(Step::None), (all, hours_of_sums()));
    assert_eq!(here(Step::Records).1.hours_missing, 2);
    assert_eq!(both(Step::None), (all, hours_of_sums()));
    for step in [Step::Of(Some(SECOND_NS)), Step::Records] {
        assert_eq!(both(step), (all, Rolled::default()), "{step:?}: records from the archive");
    }
    // Later ones are here only.
    let all = write(1);
    assert_eq!((both(Step::None), both(Step::Records)), ((all, hours_of_sums()), (all, Rolled::default())));
    // The bucket removes an object of the first hour: what it has of that hour is among the sums.
    let key = store.keys().into_iter().find(|key| key.starts_with("date=")).unwrap();
    store.objects.lock().remove(&key);
    assert_eq!(both(Step::None), (all, hours_of_sums()));
    let (some, rolled) = both(Step::Records);
    assert_eq!((some.0, rolled.hours_missing), (all.0 - 50, 1));
    writer.close().unwrap();
}

#[test]
fn the_same_of_a_further_writer() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::<Memory>::default());
    let first = open(folder.path(), &store, SUMMED);
    let second = open(&dataset::part(folder.path(), 2), &store, SUMMED);
    for (writer, seed) in [(&first, 10), (&second, 11)] {
        writer.append(&records(&mut Chance::new(seed))).unwrap();
        writer.flush().unwrap();
    }
    let all = sums(&Dataset::open(folder.path()).unwrap());
    for writer in [&first, &second] {
        writer.archive().unwrap();
        assert_eq!(writer.retain(SUMMED).unwrap().rollups_made, 4);
    }
    assert_eq!(asked(folder.path(), None, Step::None), (all, hours_of_sums()));
    assert_eq!(asked(folder.path(), Some(&store), Step::Records), (all, Rolled::default()));
    for writer in [&first, &second] {
        assert_eq!(writer.archive().unwrap().rollups_archived, 4);
    }
    assert_eq!(asked_of(&archive_of(&store), Step::None), (all, hours_of_sums()));
    // The bucket removes one of the second writer's files.
    let key = store.keys().into_iter().find(|key| key.starts_with("writer-2/date=")).unwrap();
    store.objects.lock().remove(&key);
    assert_eq!(asked(folder.path(), Some(&store), Step::None), (all, hours_of_sums()));
}
