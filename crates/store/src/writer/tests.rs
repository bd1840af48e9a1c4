//! Full disks, removed folders, and the writer's reports about them.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::*;
use crate::dataset::{self, Dataset};
use crate::filter::Filter;
use crate::notify::Severity;
use crate::query::{Metric, Query, top};
use crate::testing::{self, Chance};

type Told = Arc<Mutex<Vec<(Severity, String)>>>;

/// Options of a writer that writes only on request, and the receiver of its reports.
fn options() -> (WriterOptions, Told) {
    let told = Told::default();
    let sink = Arc::clone(&told);
    let notify = Notify::new(move |severity, text| sink.lock().push((severity, text.to_owned())));
    let options = WriterOptions {
        upkeep_interval_s: 0,
        flush_interval_s: 1 << 40,
        notify,
        ..WriterOptions::new(|| testing::START_NS)
    };
    (options, told)
}

/// `count` records whose last packet is `hour` hours after the start.
fn records(chance: &mut Chance, count: usize, hour: u64) -> Vec<FlowRecord> {
    let mut one = || {
        let mut record = testing::any_record(chance);
        record.counters.packets = 3;
        record.counters.last_ns = testing::START_NS + hour * thalweg_text::calendar::HOUR_NS;
        record
    };
    (0..count).map(|_| one()).collect()
}

fn stored(root: &Path) -> u64 {
    let view = Dataset::open(root).unwrap().view(Window::ALL).unwrap();
    let query = Query::new(Window::ALL, Filter::default());
    top(&view, &query, &[], Metric::Flows, 0).unwrap().total.flows
}

/// Everything below a folder that is not a file of the dataset.
fn others(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for path in dataset::folder(&folder).unwrap() {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension() != Some(OsStr::new("parquet")) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn a_failed_attempt_leaves_nothing_and_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (options, told) = options();
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    let mut chance = Chance::new(3);
    // Two hours. The first file is written and renamed; the second's name is taken by a folder: neither counts.
    let first = dataset::partition_path(folder.path(), testing::START_NS / thalweg_text::calendar::HOUR_NS);
    let second =
        dataset::partition_path(folder.path(), testing::START_NS / thalweg_text::calendar::HOUR_NS + 1);
    let at = testing::START_NS + thalweg_text::calendar::HOUR_NS;
    let taken = second.join(dataset::file_name(at, at, 2)).join("x");
    std::fs::create_dir_all(&taken).unwrap();
    writer.append(&records(&mut chance, 10, 0)).unwrap();
    writer.append(&records(&mut chance, 5, 1)).unwrap();
    let error = writer.flush().unwrap_err().to_string();
    assert!(error.contains("rename"), "{error}");
    assert!(writer.is_in_trouble());
    assert_eq!(dataset::folder(&first).unwrap(), Vec::<PathBuf>::new(), "nothing is left of the first file");
    assert_eq!(others(folder.path()), [folder.path().join(".writer.lock")], "no temporary file is left");
    let said = told.lock().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == Severity::Warning && said[0].1.contains("15 of at most"), "{said:?}");
    // The next attempt uses other names.
    writer.flush().unwrap();
    assert!(!writer.is_in_trouble());
    let said = told.lock().clone();
    assert!(said.len() == 2 && said[1].1.contains("written to") && said[1].1.contains("again"), "{said:?}");
    std::fs::remove_dir_all(second.join(dataset::file_name(at, at, 2))).unwrap();
    writer.close().unwrap();
    assert_eq!(stored(folder.path()), 15);
}

#[test]
fn what_cannot_be_written_at_the_end_is_lost_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("date=2026-11-22"), "").unwrap();
    let (options, told) = options();
    let options = WriterOptions { pending_records_max: 100, ..options };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    let mut chance = Chance::new(4);
    writer.append(&records(&mut chance, 90, 0)).unwrap();
    assert!(writer.flush().is_err());
    // No call waits for ever.
    assert_eq!(writer.append_within(&records(&mut chance, 20, 0), Duration::from_millis(20)).unwrap(), 0);
    let StoreError::Lost { amount, why } = writer.close().unwrap_err() else { panic!("lost") };
    let reverse = amount.packets - 3 * 90;
    assert_eq!(amount.records, 90, "{reverse} packets of reverse directions");
    assert!(why.contains("date=2026-11-22"), "{why}");
    assert_eq!(told.lock().len(), 1);
    // The next writer learns that this one ended badly.
    std::fs::remove_file(folder.path().join("date=2026-11-22")).unwrap();
    let (writer, recovery) = Writer::open(folder.path(), WriterOptions::new(|| 0)).unwrap();
    assert!(recovery.unclean.is_some());
    writer.close().unwrap();
}

#[test]
fn nothing_is_written_below_the_reserve_and_the_oldest_go_for_it_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = Chance::new(5);
    let (writer, _) = Writer::open(folder.path(), options().0).unwrap();
    for hour in 0..3 {
        writer.append(&records(&mut chance, 10, hour)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    for (makes_room, left) in [(false, 30), (true, 10)] {
        let (options, told) = options();
        // No disk has this much room.
        let retention = Retention { free_min: Some(u64::MAX), makes_room, ..Retention::default() };
        let (writer, _) = Writer::open(folder.path(), WriterOptions { retention, ..options }).unwrap();
        writer.append(&records(&mut chance, 7, 3)).unwrap();
        assert!(writer.flush().is_err());
        let StoreError::Lost { amount, why } = writer.close().unwrap_err() else { panic!("lost") };
        assert_eq!(amount.records, 7);
        assert!(why.contains("keep_free"), "{why}");
        assert_eq!(stored(folder.path()), left, "the newest file stays");
        let told = told.lock();
        let removed = told.iter().filter(|(_, text)| text.contains("were removed")).count();
        assert_eq!(removed, usize::from(makes_room), "{told:?}");
    }
}

#[test]
fn the_writer_itself_keeps_to_what_may_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = Chance::new(6);
    let (options, _) = options();
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    for hour in 0..4 {
        writer.append(&records(&mut chance, 50, hour)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    let now_ns = || testing::START_NS + 4 * thalweg_text::calendar::HOUR_NS;
    let retention = Retention { age_max_s: Some(2 * 3600), ..Retention::default() };
    let (writer, _) =
        Writer::open(folder.path(), WriterOptions { retention, ..WriterOptions::new(now_ns) }).unwrap();
    let upkeep = writer.close().unwrap().upkeep;
    assert_eq!((stored(folder.path()), upkeep.records_expired), (100, 100));
    // By size: files are written until there are too many bytes, which wakes the upkeep; its interval is far longer.
    let retention = Retention { bytes_max: Some(40_000), ..Retention::default() };
    let options = WriterOptions { retention, flush_interval_s: 1 << 40, ..WriterOptions::new(now_ns) };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    for _ in 0..30 {
        writer.append(&records(&mut chance, 50, 4)).unwrap();
        writer.flush().unwrap();
    }
    let until = Instant::now() + Duration::from_secs(60);
    while writer.status().upkeep.files_expired < 5 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(writer.status().upkeep.files_expired >= 5, "{:?}", writer.status());
    writer.close().unwrap();
    let view = Dataset::open(folder.path()).unwrap().view(Window::ALL).unwrap();
    assert!(view.summary().bytes <= 40_000 && view.summary().records > 0, "{:?}", view.summary());
}

#[test]
fn a_folder_that_was_removed_is_made_anew_and_still_has_one_writer() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("flows");
    let (options, told) = options();
    let (writer, _) = Writer::open(&root, options.clone()).unwrap();
    let mut chance = Chance::new(7);
    writer.append(&records(&mut chance, 10, 0)).unwrap();
    writer.flush().unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    writer.append(&records(&mut chance, 4, 0)).unwrap();
    writer.flush().unwrap();
    assert_eq!(stored(&root), 4);
    assert!(matches!(Writer::open(&root, options), Err(StoreError::Busy { .. })));
    let said = told.lock().clone();
    assert!(said.iter().any(|(_, text)| text.contains("was removed or replaced")), "{said:?}");
    writer.close().unwrap();
}

#[test]
fn names_that_are_no_parquet_begin_with_a_dot() {
    let folder = tempfile::tempdir().unwrap();
    // Left by a killed writer.
    let lock = folder.path().join(".writer.lock");
    std::fs::write(&lock, "process 7, flush interval 60 s\n").unwrap();
    let (writer, recovery) = Writer::open(folder.path(), options().0).unwrap();
    assert_eq!(recovery.unclean.as_deref(), Some("process 7, flush interval 60 s"));
    let server = writer.serve(None).unwrap();
    writer.append(&records(&mut Chance::new(8), 10, 0)).unwrap();
    writer.flush().unwrap();
    let names = others(folder.path());
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|path| dataset::name_of(path).starts_with('.')), "{names:?}");
    drop(server);
    writer.close().unwrap();
    // A running writer is not disturbed.
    let held = std::fs::File::create(&lock).unwrap();
    held.try_lock().unwrap();
    assert!(matches!(Writer::open(folder.path(), options().0), Err(StoreError::Busy { .. })));
}

#[test]
fn a_full_disk_is_told_before_anything_comes() {
    let folder = tempfile::tempdir().unwrap();
    let (options, told) = options();
    let retention = Retention { free_min: Some(u64::MAX), ..Retention::default() };
    let (writer, _) = Writer::open(folder.path(), WriterOptions { retention, ..options }).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !writer.is_in_trouble() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    writer.close().unwrap();
    let said = told.lock().clone();
    assert!(said.len() == 1 && said[0].1.contains("0 of at most"), "{said:?}");
}

#[test]
fn the_end_waits_for_no_pause() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("date=2026-11-22"), "").unwrap();
    let pause = Duration::from_secs(1 << 30);
    let options = WriterOptions { retry: pause..=pause, ..options().0 };
    let (writer, _) = Writer::open(folder.path(), options).unwrap();
    writer.append(&records(&mut Chance::new(9), 10, 0)).unwrap();
    assert!(writer.flush().is_err());
    let StoreError::Lost { amount, .. } = writer.close().unwrap_err() else { panic!("lost") };
    assert_eq!(amount.records, 10);
}

#[test]
fn a_clock_that_is_set_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut chance = Chance::new(10);
    let in_a_century = || testing::START_NS + 876_600 * thalweg_text::calendar::HOUR_NS;
    let retention = Retention { age_max_s: Some(3600), ..Retention::default() };
    let open = || {
        let options =
            WriterOptions { retention, flush_interval_s: 1 << 40, ..WriterOptions::new(in_a_century) };
        Writer::open(folder.path(), options).unwrap().0
    };
    let writer = open();
    for hour in 0..4 {
        writer.append(&records(&mut chance, 10, hour)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    assert_eq!(stored(folder.path()), 40, "all was written a moment ago");
    // The next writer knows only that they are hours older than the newest.
    open().close().unwrap();
    assert_eq!(stored(folder.path()), 10);
    // The caller reads the wall clock.
    let (writer, _) = Writer::open(
        folder.path(),
        WriterOptions { upkeep_interval_s: 0, ..WriterOptions::new(in_a_century) },
    )
    .unwrap();
    assert_eq!(writer.retain(retention).unwrap().records_expired, 10);
    writer.close().unwrap();
}

/// Memory of batches that are on disk takes later ones, unless somebody still reads it.
#[test]
fn a_batch_goes_to_the_memory_of_one_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), options().0).unwrap();
    let mut chance = Chance::new(43);
    let [one, two, three] = [0, 1, 2].map(|hour| records(&mut chance, 100, hour));
    let pending = || writer.view(Window::ALL).unwrap().batches.pop().unwrap().records;
    let mut rounds = 0;
    // The writer gives unused memory back every few seconds, which may be just now.
    let (first, read) = loop {
        writer.append(&one).unwrap();
        let first = pending().as_ptr();
        writer.flush().unwrap();
        writer.append(&two).unwrap();
        let read = pending();
        assert_eq!(&*read, &*two);
        writer.flush().unwrap();
        rounds += 1;
        if read.as_ptr() == first {
            break (first, read);
        }
        assert!(rounds < 20, "never to the same memory");
    };
    // `read` is a view's.
    writer.append(&three).unwrap();
    assert_ne!(pending().as_ptr(), first);
    assert_eq!((&*read, &*pending()), (&*two, &*three));
    writer.close().unwrap();
    assert_eq!(stored(folder.path()), 200 * rounds + 100);
}
