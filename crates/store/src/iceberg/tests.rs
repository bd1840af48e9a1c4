//! The table as an engine finds it, by its hint, beside the files: while it is written, and after a writer was stopped
//! at any step.

use std::process::{Command, Stdio};

use serde_json::{Map, Value};
use thalweg_flow::FlowRecord;
use thalweg_text::calendar::HOUR_NS;

use super::manifest::{DataFile, Entry, Status};
use super::metadata::Snapshot;
use super::*;
use crate::block::Spare;
use crate::file::FileWriter;
use crate::testing::{self, Chance, START_NS};
use crate::upkeep::{Changes, Compaction, Retention};
use crate::writer::{Writer, WriterOptions};
use crate::{Dataset, Window};

const CHILD: &str = "THALWEG_TEST_TABLE";

fn options() -> WriterOptions {
    WriterOptions { upkeep_interval_s: 0, iceberg: true, ..WriterOptions::new(|| START_NS + 100 * HOUR_NS) }
}

/// Records that end in this hour after the first.
fn records(chance: &mut Chance, hour: u64, count: usize) -> Vec<FlowRecord> {
    let some = (0..count).map(|_| {
        let mut record = testing::any_record(chance);
        record.counters.last_ns = START_NS / HOUR_NS * HOUR_NS + hour * HOUR_NS + chance.next_u64() % HOUR_NS;
        record
    });
    some.collect()
}

/// The table as its hint shows it.
struct Seen {
    document: Value,
    files: BTreeMap<PathBuf, Entry>,
}

/// Reads the table and checks what it promises: its files are there, and all counts are right.
fn look(root: &Path) -> Seen {
    let folder = root.join(FOLDER).join("metadata");
    let hint = fs::read_to_string(folder.join(HINT)).unwrap();
    let document: Value =
        serde_json::from_slice(&fs::read(folder.join(format!("v{hint}{METADATA}"))).unwrap()).unwrap();
    let mut files = BTreeMap::new();
    for snapshot in document["snapshots"].as_array().unwrap() {
        files.clear();
        let place = Folder::of(root).unwrap();
        let list = place.manifests(snapshot["manifest-list"].as_str().unwrap()).unwrap();
        for manifest in list {
            assert_eq!(fs::metadata(&manifest.path).unwrap().len() as i64, manifest.length);
            let live = place.entries(&manifest).unwrap();
            assert_eq!(live.len() as i64, manifest.files[0] + manifest.files[1]);
            for entry in live {
                let path = PathBuf::from(&entry.file.path);
                assert_eq!(fs::metadata(&path).unwrap().len() as i64, entry.file.bytes, "{path:?}");
                assert_eq!(manifest.hours, [entry.file.hour; 2]);
                assert!(files.insert(path, entry).is_none(), "a file twice");
            }
        }
        let records: i64 = files.values().map(|entry| entry.file.records).sum();
        let summary = |key: &str| snapshot["summary"][key].as_str().unwrap().parse::<i64>().unwrap();
        assert_eq!((summary("total-records"), summary("total-data-files")), (records, files.len() as i64));
    }
    Seen { document, files }
}

impl Seen {
    fn snapshots(&self) -> Vec<(String, i64, i64)> {
        let snapshots = self.document["snapshots"].as_array().unwrap().iter();
        let told = snapshots.map(|snapshot| {
            let summary = &snapshot["summary"];
            let count = |key: &str| summary[key].as_str().unwrap().parse().unwrap();
            (
                summary["operation"].as_str().unwrap().to_owned(),
                count("added-records"),
                count("deleted-records"),
            )
        });
        told.collect()
    }

    /// Asserts that the table has the files of the dataset, no more and no less.
    fn is_whole(&self, root: &Path) {
        let view = Dataset::open(root).unwrap().view(Window::ALL).unwrap();
        let paths: Vec<&PathBuf> = view.files.iter().map(|file| &file.path).collect();
        assert_eq!(self.files.keys().collect::<BTreeSet<_>>(), paths.into_iter().collect());
        let records: i64 = self.files.values().map(|entry| entry.file.records).sum();
        assert_eq!(records, view.files.iter().map(|file| file.rows() as i64).sum::<i64>());
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    (folder, root)
}

#[test]
fn a_flush_a_joining_and_a_removal_are_a_snapshot_each() {
    let (_folder, root) = folder();
    let mut chance = Chance::new(5);
    let (writer, _) = Writer::open(&root, options()).unwrap();
    assert_eq!(
        look(&root).document["snapshots"].as_array().unwrap().len(),
        0,
        "a table before its first record"
    );
    for hours in [vec![0, 1], vec![0], vec![1, 2]] {
        let some: Vec<FlowRecord> = hours.iter().flat_map(|hour| records(&mut chance, *hour, 50)).collect();
        writer.append(&some).unwrap();
        writer.flush().unwrap();
    }
    let append = |records| ("append".to_owned(), records, 0);
    let seen = look(&root);
    seen.is_whole(&root);
    assert_eq!(seen.snapshots(), [append(100), append(50), append(100)]);
    assert_eq!(writer.compact().unwrap().files_made, 2);
    let seen = look(&root);
    seen.is_whole(&root);
    assert_eq!(
        seen.snapshots(),
        [("replace".to_owned(), 100, 100)],
        "what was before needs files that are gone"
    );
    let keep = Retention { age_max_s: Some(99 * 3600), ..Retention::default() };
    assert_eq!(writer.retain(keep).unwrap().records_expired, 100);
    let seen = look(&root);
    seen.is_whole(&root);
    assert_eq!(seen.snapshots(), [("delete".to_owned(), 0, 100)]);
    // What came when is still known.
    let sequences: Vec<(i64, i64)> =
        seen.files.values().map(|entry| (entry.snapshot, entry.sequence)).collect();
    assert_eq!(sequences, [(5, 5), (3, 3)]);
    writer.close().unwrap();
    // A writer that does not ask for the table keeps the one that is there.
    let (writer, _) = Writer::open(&root, WriterOptions { iceberg: false, ..options() }).unwrap();
    writer.append(&records(&mut chance, 3, 7)).unwrap();
    writer.close().unwrap();
    look(&root).is_whole(&root);
}

#[test]
fn without_the_option_there_is_no_table() {
    let (_folder, root) = folder();
    let (writer, _) = Writer::open(&root, WriterOptions { iceberg: false, ..options() }).unwrap();
    writer.append(&records(&mut Chance::new(1), 0, 7)).unwrap();
    writer.close().unwrap();
    assert!(!root.join(FOLDER).exists());
}

/// Small files of an hour that the table has.
fn small_files(root: &Path) -> Vec<FlowRecord> {
    let mut chance = Chance::new(9);
    let (writer, _) = Writer::open(root, options()).unwrap();
    let all: Vec<Vec<FlowRecord>> = (0..4).map(|_| records(&mut chance, 0, 30)).collect();
    for some in &all {
        writer.append(some).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    all.concat()
}

#[test]
fn a_joining_that_stops_at_any_step_leaves_a_whole_table() {
    for steps in 0..5 {
        let (_folder, root) = folder();
        small_files(&root);
        let partition = dataset::partitions(&root).unwrap().remove(0);
        let files = dataset::open_all(&dataset::published(&partition.path).unwrap()).unwrap().files;
        let changes = Changes::new(&root, 9, Table::new(&root, true, || START_NS));
        let mut compaction = Compaction::write(&changes, &partition.path, files).unwrap().unwrap();
        if steps > 0 {
            compaction.publish(&changes.publish).unwrap();
        }
        let mut table = changes.table.lock();
        if steps > 1 {
            table.commit([partition.hour], &[]).unwrap();
        }
        if steps > 2 {
            let first = dataset::published(&partition.path)
                .unwrap()
                .into_iter()
                .min_by_key(|path| dataset::file_id(path));
            fs::remove_file(first.unwrap()).unwrap();
        }
        assert_eq!(look(&root).files.len(), if steps > 1 { 1 } else { 4 });
        if steps > 3 {
            // Somebody commits while some of the old files are still there.
            table.follow().unwrap();
            assert_eq!(look(&root).files.len(), 1);
        }
        drop(table);
        drop(compaction);
        let (writer, _) = Writer::open(&root, options()).unwrap();
        look(&root).is_whole(&root);
        writer.close().unwrap();
        look(&root).is_whole(&root);
    }
}

#[test]
fn a_commit_that_stops_at_any_step_leaves_the_table_before_it() {
    let (_folder, root) = folder();
    small_files(&root);
    let metadata = root.join(FOLDER).join("metadata");
    let before = fs::read(metadata.join(HINT)).unwrap();
    let records_before = look(&root).files.len();
    let (writer, _) = Writer::open(&root, options()).unwrap();
    writer.append(&records(&mut Chance::new(3), 1, 30)).unwrap();
    writer.close().unwrap();
    let (newest, _) = newest(&metadata);
    // The hint was not written; then the document was not either.
    for is_named in [true, false] {
        fs::write(metadata.join(HINT), &before).unwrap();
        if !is_named {
            fs::rename(&newest, metadata.join(format!(".{}{}", name_of(&newest), dataset::TEMPORARY)))
                .unwrap();
        }
        assert_eq!(look(&root).files.len(), records_before, "the table before");
        let (writer, _) = Writer::open(&root, options()).unwrap();
        let seen = look(&root);
        seen.is_whole(&root);
        assert_eq!(seen.files.len(), records_before + 1);
        writer.close().unwrap();
    }
}

fn newest(metadata: &Path) -> (PathBuf, u64) {
    let version =
        dataset::folder(metadata).unwrap().iter().filter_map(|path| version_of(name_of(path))).max();
    let version = version.unwrap();
    (metadata.join(format!("v{version}{METADATA}")), version)
}

#[test]
fn a_table_that_is_damaged_or_foreign_or_elsewhere_is_begun_again() {
    let (_folder, root) = folder();
    small_files(&root);
    let reopen = |root: &Path| drop(Writer::open(root, options()).unwrap());
    let metadata = root.join(FOLDER).join("metadata");
    let uuid = |root: &Path| look(root).document["table-uuid"].as_str().unwrap().to_owned();
    let old = uuid(&root);
    reopen(&root);
    assert_eq!(uuid(&root), old, "nothing was wrong");
    let damages: [&dyn Fn(&Path); 4] = [
        &|path| fs::write(path, "{").unwrap(),
        &|path| fs::write(path, "[1, 2]").unwrap(),
        &|_| {
            let is_list = |path: &&PathBuf| name_of(path).starts_with("snap-");
            let files = dataset::folder(&metadata).unwrap();
            files.iter().filter(is_list).for_each(|path| fs::write(path, "Obj\u{1}").unwrap());
        },
        &|_| {
            let is_manifest = |path: &&PathBuf| name_of(path).starts_with("writer-");
            let files = dataset::folder(&metadata).unwrap();
            files.iter().filter(is_manifest).for_each(|path| fs::remove_file(path).unwrap());
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        let before = uuid(&root);
        damage(&newest(&metadata).0);
        reopen(&root);
        look(&root).is_whole(&root);
        assert_ne!(uuid(&root), before, "damage {number}");
    }
    // A dataset that was moved.
    let elsewhere = tempfile::tempdir().unwrap();
    let moved = fs::canonicalize(elsewhere.path()).unwrap().join("flows");
    fs::rename(&root, &moved).unwrap();
    reopen(&moved);
    look(&moved).is_whole(&moved);
}

#[test]
fn several_writers_have_one_table() {
    let (_folder, root) = folder();
    let mut chance = Chance::new(7);
    // The first does not know of the table that the second makes.
    let (first, _) = Writer::open_beside(&root, WriterOptions { iceberg: false, ..options() }).unwrap();
    first.append(&records(&mut chance, 0, 20)).unwrap();
    first.flush().unwrap();
    let (second, _) = Writer::open_beside(&root, options()).unwrap();
    assert_ne!(first.root(), second.root());
    look(&root).is_whole(&root);
    std::thread::scope(|scope| {
        for writer in [&first, &second] {
            let some: Vec<_> = (0..12).map(|number| records(&mut chance, number % 3, 20)).collect();
            scope.spawn(move || {
                for (number, some) in some.iter().enumerate() {
                    writer.append(some).unwrap();
                    writer.flush().unwrap();
                    if number % 5 == 4 {
                        writer.compact().unwrap();
                    }
                }
            });
        }
    });
    let statuses = [first.close().unwrap(), second.close().unwrap()];
    assert_eq!(statuses.map(|status| status.last_error), [None, None]);
    let seen = look(&root);
    seen.is_whole(&root);
    assert_eq!(seen.files.values().map(|entry| entry.file.records).sum::<i64>(), 20 + 2 * 12 * 20);
}

#[test]
fn what_no_snapshot_needs_is_removed_and_nothing_else() {
    let (_folder, root) = folder();
    small_files(&root);
    let metadata = root.join(FOLDER).join("metadata");
    let foreign = metadata.join("notes.txt");
    fs::write(&foreign, "of somebody").unwrap();
    let names = || dataset::folder(&metadata).unwrap().len();
    let table = Table::new(&root, true, || START_NS);
    let before = names();
    table.remove_unused(KEEP_UNUSED).unwrap();
    assert_eq!(names(), before, "all of it is young");
    table.remove_unused(Duration::ZERO).unwrap();
    // Five documents were written; the manifests of all four snapshots are needed.
    assert_eq!(names(), before - 4);
    assert_eq!(look(&root).snapshots().len(), 4);
    let (writer, _) = Writer::open(&root, options()).unwrap();
    writer.compact().unwrap();
    writer.close().unwrap();
    table.remove_unused(Duration::ZERO).unwrap();
    // The document, its hint, a list, a manifest, and what is not ours.
    assert_eq!(names(), 5);
    look(&root).is_whole(&root);
}

#[test]
fn snapshots_are_bounded() {
    let mut table = Metadata::new("/flows/.iceberg");
    for number in 0..200 {
        let list = format!("/flows/.iceberg/metadata/snap-{}.avro", number + 1);
        // The clock is set back once.
        let time_ms = if number == 150 { 1 } else { 1000 + number };
        table.push(Snapshot { time_ms, list: list.clone(), summary: Map::new(), ends_earlier: number == 20 });
        let kept = table.lists().len() as i64;
        assert_eq!(kept, if number < 20 { number + 1 } else { (number - 19).min(64) });
        assert_eq!(table.lists().last(), Some(&list.as_str()));
    }
    let document: Value = serde_json::from_slice(&table.bytes()).unwrap();
    let times: Vec<i64> = document["snapshot-log"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["timestamp-ms"].as_i64().unwrap())
        .collect();
    assert!(times.is_sorted() && times.len() == 64, "{times:?}");
    assert_eq!(document["refs"]["main"]["snapshot-id"], 200);
}

#[test]
fn a_table_that_cannot_be_written_keeps_no_record_from_its_file() {
    let (_folder, root) = folder();
    fs::write(root.join(FOLDER), "not a folder").unwrap();
    let mut chance = Chance::new(2);
    let (writer, _) = Writer::open(&root, options()).unwrap();
    for _ in 0..3 {
        writer.append(&records(&mut chance, 0, 10)).unwrap();
        writer.flush().unwrap();
    }
    assert!(writer.compact().is_err());
    let status = writer.status();
    assert_eq!((status.records_written, status.upkeep.files_joined), (30, 0));
    assert!(status.last_error.unwrap().contains(FOLDER));
    let view = Dataset::open(&root).unwrap().view(Window::ALL).unwrap();
    assert_eq!((view.files.len(), view.summary().records), (3, 30), "nothing is half joined");
    // Once it can be, it has everything.
    fs::remove_file(root.join(FOLDER)).unwrap();
    writer.compact().unwrap();
    look(&root).is_whole(&root);
}

/// Bounds of a file are those of its records, over row groups and whatever the type.
#[test]
fn bounds_are_those_of_the_records() {
    let (_folder, root) = folder();
    let mut chance = Chance::new(11);
    let path = root.join("flows-a-b-000000000001.parquet");
    let some: Vec<FlowRecord> = (0..3).flat_map(|hour| records(&mut chance, hour, 100)).collect();
    let mut writer = FileWriter::create(&path, &[]).unwrap();
    some.chunks(100).for_each(|some| writer.append(some.iter(), &mut Spare::default()).unwrap());
    writer.finish().unwrap();
    let mut table = Metadata::new("/flows/.iceberg");
    let ids = table.columns();
    let file = crate::file::FlowFile::open(&path).unwrap();
    let mut of = DataFile::of(&file, "x".to_owned(), 0, &ids);
    let bound = |bounds: &[(i64, Vec<u8>)], name: &str| {
        bounds.iter().find(|(id, _)| *id == ids[name]).map(|(_, bound)| bound.clone()).unwrap()
    };
    let both = |name: &str| (bound(&of.smallest, name), bound(&of.largest, name));
    let ends = || some.iter().map(|record| (record.counters.last_ns / 1000) as i64);
    let ports = || some.iter().map(|record| i32::from(record.key.src_port));
    let hosts = || some.iter().map(|record| record.key.src.to_string().into_bytes());
    let bytes = |number: Option<i64>| number.unwrap().to_le_bytes().to_vec();
    assert_eq!(both("flow_end"), (bytes(ends().min()), bytes(ends().max())));
    assert_eq!(
        both("src_port"),
        (ports().min().unwrap().to_le_bytes().to_vec(), ports().max().unwrap().to_le_bytes().to_vec())
    );
    assert_eq!(both("src"), (hosts().min().unwrap(), hosts().max().unwrap()));
    assert_eq!((of.records, of.splits.len()), (300, 3));
    // And it comes back from a manifest.
    of.hour = 498_700;
    let entry = Entry { status: Status::Existing, snapshot: 7, sequence: 6, file: of };
    let bytes = manifest::write_entries(std::slice::from_ref(&entry), &table.header());
    assert_eq!(manifest::read_entries(&bytes, 9), Ok(vec![entry]));
}

#[test]
fn child_that_writes_a_table() {
    let Some(root) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let mut chance = Chance::new(std::process::id().into());
    let (writer, _) = Writer::open(&root, options()).unwrap();
    for round in 0u64.. {
        writer.append(&records(&mut chance, round % 2, 25)).unwrap();
        writer.flush().unwrap();
        println!("flushed");
        if round % 4 == 3 {
            writer.compact().unwrap();
        }
        if round % 8 == 7 {
            writer.retain(Retention { bytes_max: Some(1), ..Retention::default() }).unwrap();
        }
    }
}

#[test]
fn a_killed_writer_leaves_a_whole_table() {
    let (_folder, root) = folder();
    let mut chance = Chance::new(u64::from(std::process::id()));
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["iceberg::tests::child_that_writes_a_table", "--exact", "--nocapture"])
            .env(CHILD, &root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Some lines, and then some time of the next step.
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let flushed = lines.by_ref().filter(|line| line.as_ref().is_ok_and(|line| line.contains("flushed")));
        assert!(flushed.take(1 + chance.below(9) as usize).count() > 0);
        std::thread::sleep(Duration::from_micros(u64::from(chance.below(30_000))));
        child.kill().unwrap();
        child.wait().unwrap();
        eprintln!("round {round}");
        look(&root);
        let (writer, _) = Writer::open(&root, options()).unwrap();
        look(&root).is_whole(&root);
        writer.close().unwrap();
    }
}
