//! Histories of a dataset with a feed: whatever fails or dies, its place has each record once.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::dataset::{Dataset, Window};
use crate::filter::Filter;
use crate::notify::Notify;
use crate::query::{Query, list};
use crate::testing::memory::Failure;
use crate::testing::{self, Chance, START_NS};
use crate::upkeep::Retention;
use crate::writer::{Writer, WriterOptions};
use thalweg_text::calendar::HOUR_NS;

const LATER_NS: u64 = START_NS + 50 * HOUR_NS;

/// A place that fails when a test wants it.
#[derive(Debug, Default)]
struct Place {
    taken: Arc<Mutex<Taken>>,
    identity: &'static str,
}

#[derive(Debug, Default)]
struct Taken {
    records: Vec<FlowRecord>,
    positions: BTreeMap<String, Position>,
    /// After so many batches one fails like this.
    failure: Option<(usize, Failure)>,
}

struct Session {
    taken: Arc<Mutex<Taken>>,
    writer: String,
    /// As it was at the beginning, and after each batch.
    position: Option<Position>,
}

impl Feed for Place {
    fn name(&self) -> &str {
        "place"
    }

    fn identity(&self) -> &str {
        self.identity
    }

    fn begin(&self, writer: &str, _goes_on: &dyn Fn() -> bool) -> io::Result<Box<dyn FeedSession>> {
        let position = self.taken.lock().positions.get(writer).copied();
        Ok(Box::new(Session { taken: Arc::clone(&self.taken), writer: writer.to_owned(), position }))
    }
}

impl FeedSession for Session {
    fn position(&self) -> Option<Position> {
        self.position
    }

    fn send(&mut self, records: &[FlowRecord], to: Position, _goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        let mut taken = self.taken.lock();
        let failure = match &mut taken.failure {
            Some((0, failure)) => Some(*failure),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if failure.is_some() {
            taken.failure = None;
        }
        if failure != Some(Failure::Refused) {
            assert!(Some(to) > taken.positions.get(&self.writer).copied(), "{to:?} goes back");
            taken.records.extend(records);
            taken.positions.insert(self.writer.clone(), to);
            self.position = Some(to);
        }
        match failure {
            Some(_) => Err(io::Error::other("the test fails")),
            None => Ok(()),
        }
    }
}

impl Place {
    fn fail(&self, after: usize, failure: Failure) {
        self.taken.lock().failure = Some((after, failure));
    }

    fn sorted(&self) -> Vec<FlowRecord> {
        sorted(self.taken.lock().records.clone())
    }
}

fn sorted(mut records: Vec<FlowRecord>) -> Vec<FlowRecord> {
    records.sort_by_cached_key(|record| format!("{record:?}"));
    records
}

fn records(chance: &mut Chance, count: u32) -> Vec<FlowRecord> {
    let mut record = || {
        let mut record = testing::any_record(chance);
        record.counters.last_ns = START_NS + chance.next_u64() % (2 * HOUR_NS);
        record
    };
    (0..count).map(|_| record()).collect()
}

/// A writer that does what it is told only.
fn options(place: &Arc<Place>) -> WriterOptions {
    let feed: Option<Arc<dyn Feed>> = Some(Arc::<Place>::clone(place));
    WriterOptions { upkeep_interval_s: 0, feed, ..WriterOptions::new(|| LATER_NS) }
}

fn open(folder: &Path, place: &Arc<Place>) -> Writer {
    Writer::open(folder, options(place)).unwrap().0
}

fn in_dataset(folder: &Path) -> Vec<FlowRecord> {
    let view = Dataset::open(folder).unwrap().view(Window::ALL).unwrap();
    assert_eq!(view.skipped().count, 0);
    sorted(list(&view, &Query::new(Window::ALL, Filter::default()), 100_000).unwrap().0)
}

#[test]
fn whatever_fails_or_dies_each_record_arrives_once() {
    for seed in 1..60 {
        let (folder, place) = (tempfile::tempdir().unwrap(), Arc::<Place>::default());
        let mut chance = Chance::new(seed);
        let mut all = Vec::new();
        // Files from before the feed, some of them joined.
        let writer = Writer::open(
            folder.path(),
            WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(|| LATER_NS) },
        );
        let mut writer = writer.unwrap().0;
        for _ in 0..chance.below(4) {
            let some = records(&mut chance, 20);
            writer.append(&some).unwrap();
            writer.flush().unwrap();
            all.extend(some);
            if chance.below(2) == 0 {
                writer.compact().unwrap();
            }
        }
        writer.close().unwrap();
        writer = open(folder.path(), &place);
        for _ in 0..15 {
            match chance.below(6) {
                0 | 1 => {
                    let count = 1 + chance.below(40);
                    let some = records(&mut chance, count);
                    writer.append(&some).unwrap();
                    writer.flush().unwrap();
                    all.extend(some);
                }
                2 => drop(writer.compact().unwrap()),
                3 => {
                    let failure = if chance.below(2) == 0 { Failure::Refused } else { Failure::Unheard };
                    place.fail(chance.below(4) as usize, failure);
                    let fed = writer.feed();
                    assert_eq!(fed.is_err(), writer.status().feed_error.is_some());
                    place.taken.lock().failure = None;
                }
                4 => {
                    // It dies between a batch and its mark: the file says what it said before.
                    let before = fs::read(folder.path().join(STATE)).unwrap();
                    place.fail(chance.below(3) as usize, Failure::Unheard);
                    let has_died = writer.feed().is_err();
                    place.taken.lock().failure = None;
                    drop(writer);
                    if has_died {
                        fs::write(folder.path().join(STATE), before).unwrap();
                    }
                    writer = open(folder.path(), &place);
                }
                _ => {
                    writer.close().unwrap();
                    writer = open(folder.path(), &place);
                }
            }
        }
        writer.feed().unwrap();
        assert_eq!(writer.feed().unwrap(), Upkeep::default(), "seed {seed}: nothing is left");
        writer.compact().unwrap();
        assert_eq!(writer.feed().unwrap(), Upkeep::default(), "seed {seed}: joined files are nothing new");
        writer.close().unwrap();
        let all = sorted(all);
        assert!(in_dataset(folder.path()) == all, "seed {seed}: the dataset");
        assert!(place.sorted() == all, "seed {seed}: the place");
    }
}

#[test]
fn a_file_of_many_batches_goes_on_where_it_stopped() {
    for failure in [Failure::Refused, Failure::Unheard] {
        let (folder, place) = (tempfile::tempdir().unwrap(), Arc::<Place>::default());
        let count = 3 * BATCH_RECORDS as u32 - 5;
        let all: Vec<FlowRecord> = (records(&mut Chance::new(1), count).into_iter())
            .map(|mut record| {
                record.counters.last_ns = START_NS + record.counters.last_ns % HOUR_NS;
                record
            })
            .collect();
        let writer = open(folder.path(), &place);
        writer.append(&all).unwrap();
        writer.flush().unwrap();
        assert_eq!(dataset::list(folder.path(), Window::ALL).unwrap().len(), 1);
        place.fail(1, failure);
        writer.feed().unwrap_err();
        let has = place.taken.lock().records.len();
        assert_eq!(has, if failure == Failure::Refused { 1 } else { 2 } * BATCH_RECORDS);
        writer.close().unwrap();
        let writer = open(folder.path(), &place);
        assert_eq!(writer.feed().unwrap().records_fed as usize, all.len() - has);
        writer.close().unwrap();
        let view = Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap();
        let in_order = list(&view, &Query::new(Window::ALL, Filter::default()), all.len()).unwrap().0;
        assert_eq!(place.taken.lock().records.len(), all.len());
        assert!(sorted(in_order) == place.sorted());
    }
}

#[test]
fn only_what_was_sent_is_joined_or_too_old_and_lack_of_room_is_counted() {
    let (folder, place) = (tempfile::tempdir().unwrap(), Arc::<Place>::default());
    let writer = open(folder.path(), &place);
    let write = |seed: u64| {
        writer.append(&records(&mut Chance::new(seed), 50)).unwrap();
        writer.flush().unwrap();
    };
    (1..4).for_each(write);
    assert_eq!(writer.compact().unwrap().files_joined, 0, "nothing was sent");
    let old = Retention { age_max_s: Some(3600), ..Retention::default() };
    assert_eq!(writer.retain(old).unwrap().files_expired, 0, "nothing was sent");
    assert_eq!(writer.feed().unwrap().records_fed, 150);
    let done = writer.compact().unwrap();
    assert_eq!((done.files_joined, done.files_made), (6, 2));
    write(4);
    let files = dataset::list(folder.path(), Window::ALL).unwrap();
    assert_eq!(files.len(), 4);
    let bytes = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    // A limit that one file less satisfies.
    let done = writer.retain(Retention { bytes_max: Some(bytes - 1), ..Retention::default() }).unwrap();
    assert_eq!((done.records_unfed, done.records_expired > 0), (0, true), "what was sent goes first");
    let done = writer.retain(Retention { bytes_max: Some(1), ..Retention::default() }).unwrap();
    assert!(done.records_unfed > 0 && done.records_unfed < 50, "{done:?}");
    assert!(done.removed().unwrap().contains("were not sent by the feed yet"), "{done:?}");
    writer.feed().unwrap();
    assert_eq!(place.taken.lock().records.len() as u64, 200 - done.records_unfed);
    assert!(writer.retain(old).unwrap().files_expired > 0);
    writer.close().unwrap();
    assert_eq!(dataset::list(folder.path(), Window::ALL).unwrap(), [] as [PathBuf; 0]);
    // Numbers of files that are gone do not come back.
    let writer = open(folder.path(), &place);
    writer.append(&records(&mut Chance::new(5), 10)).unwrap();
    writer.flush().unwrap();
    assert_eq!(writer.feed().unwrap().records_fed, 10);
    writer.close().unwrap();
}

#[test]
fn a_damaged_state_and_another_place_stop_the_feed_and_nothing_else() {
    let whole = "thalweg feed 1\nto a\nwriter w\nfirst 1\nsent 0\n";
    let damaged =
        ["", "x\n", &whole[..whole.len() - 1], &whole.replace("sent 0", "sent x"), "thalweg feed 2\n"];
    assert!(Fed::parse(whole).is_some());
    for text in damaged.into_iter().chain([whole]) {
        let (folder, place) = (tempfile::tempdir().unwrap(), Arc::<Place>::default());
        fs::write(folder.path().join(STATE), text).unwrap();
        let said = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&said);
        let notify = Notify::new(move |_, text| told.lock().push(text.to_owned()));
        let (writer, _) = Writer::open(folder.path(), WriterOptions { notify, ..options(&place) }).unwrap();
        let expected = if text == whole { "go to a" } else { "damaged" };
        for seed in 1..3 {
            writer.append(&records(&mut Chance::new(seed), 30)).unwrap();
            writer.flush().unwrap();
        }
        assert!(writer.feed().unwrap_err().to_string().contains(expected), "{text:?}");
        assert!(writer.status().feed_error.unwrap().contains(expected));
        assert_eq!(writer.compact().unwrap().files_joined, 0, "nobody knows what was sent");
        assert!(said.lock().iter().any(|said| said.contains(expected)), "{:?}", said.lock());
        writer.close().unwrap();
        assert_eq!((in_dataset(folder.path()).len(), place.taken.lock().records.len()), (60, 0));
        fs::remove_file(folder.path().join(STATE)).unwrap();
        let writer = open(folder.path(), &place);
        assert_eq!(writer.feed().unwrap().records_fed, 60);
        writer.close().unwrap();
        assert!(place.sorted() == in_dataset(folder.path()));
    }
}

#[test]
fn a_writer_sends_by_itself_what_is_on_disk_and_what_others_left() {
    let (folder, place) = (tempfile::tempdir().unwrap(), Arc::<Place>::default());
    let mut all = Vec::new();
    // Two at a time, both of which end before anything was sent.
    {
        let first = open(folder.path(), &place);
        let (second, _) = Writer::open_beside(folder.path(), options(&place)).unwrap();
        for (writer, seed) in [(&first, 1), (&second, 2)] {
            let some = records(&mut Chance::new(seed), 40);
            writer.append(&some).unwrap();
            all.extend(some);
        }
        first.close().unwrap();
        second.close().unwrap();
    }
    let retry = std::time::Duration::from_millis(1)..=std::time::Duration::from_millis(10);
    let options = WriterOptions { upkeep_interval_s: 3600, retry, ..options(&place) };
    place.fail(1, Failure::Unheard);
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    for seed in 3..6 {
        let some = records(&mut Chance::new(seed), 40);
        writer.append(&some).unwrap();
        writer.flush().unwrap();
        all.extend(some);
        while place.taken.lock().records.len() < all.len() || writer.status().feed_error.is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert_eq!(writer.status().feed_errors, 1);
    writer.close().unwrap();
    let all = sorted(all);
    assert!(place.sorted() == all && in_dataset(folder.path()) == all);
}
