//! The layout of a dataset's files, and a consistent view of them.
//!
//! ```text
//! DIR/.writer.lock                                                  who writes, and whether it ended cleanly
//! DIR/.live.sock                                                    where the writer answers queries
//! DIR/.iceberg                                                      by choice: a table of these files (`iceberg`)
//! DIR/.rollups/hour/date=2026-11-22/hour=5/flows-...-00000000002b.rollup
//!                                                                   by choice: sums of an hour's files (`rollup`)
//! DIR/date=2026-11-22/hour=5/flows-20261122T050000-20261122T055959-00000000002a.parquet
//!                             .flows-....tmp                        incomplete: readers ignore it
//! ```
//!
//! A second writer has a folder of its own there, `DIR/writer-2`, of the same form, and so on: locks, sockets,
//! joining and numbers of files belong to a writer, and readers join what all of them have.
//!
//! Names of everything but Parquet files begin with a dot, so that other engines skip them when they read the
//! whole folder.
//!
//! A record is in the partition of the hour (UTC) of its last packet. A file is written under a name that
//! begins with a dot, synced, and renamed, so a file with a proper name is complete. Two cases remain, which
//! readers detect when they open files: they skip and count a file that is foreign or damaged, and they
//! ignore a file that another one names as replaced (compaction was interrupted or is running).
//!
//! Readers in other processes take no lock. They list until two listings agree: a file that replaces others
//! gets its name before these lose theirs, so the second listing has it. Readers open all listed files, and
//! open files stay readable.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_flow::FlowRecord;

use crate::error::StoreError;
use crate::file::FlowFile;
use crate::object::ObjectStore;
use thalweg_text::calendar::{HOUR_NS, Moment, SECOND_NS, parse_time};

/// How often a reader starts over because files changed.
const TRIES_MAX: usize = 50;
/// Files for which a thread pays.
const FILES_PER_THREAD: usize = 8;
/// The most skipped files whose names are kept.
const SKIPPED_NAMED_MAX: usize = 20;
pub(crate) const EXTENSION: &str = ".parquet";
/// Of the same form, but not for engines that read all `*.parquet` of a folder.
const ROLLUP_EXTENSION: &str = ".rollup";
pub(crate) const TEMPORARY: &str = ".tmp";
/// The beginning of the names of further writers' folders.
pub(crate) const PART: &str = "writer-";

/// Records of a time span: `from_ns <= end of the flow < to_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ns: u64,
    /// The nanosecond after the last one.
    pub to_ns: u64,
}

impl Window {
    pub const ALL: Self = Self { from_ns: 0, to_ns: u64::MAX };

    pub(crate) fn contains(&self, time_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&time_ns)
    }

    /// Whether it overlaps this span, ends included.
    pub(crate) fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        from_ns < self.to_ns && to_ns >= self.from_ns
    }

    /// Whether it contains this whole span, ends included.
    pub(crate) fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        self.from_ns <= from_ns && to_ns < self.to_ns
    }
}

/// Files that were not read.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    pub count: u64,
    /// The first of them, each with what is wrong.
    pub named: Vec<(PathBuf, String)>,
}

impl Skipped {
    pub(crate) fn add(&mut self, path: PathBuf, what: String) {
        self.count += 1;
        if self.named.len() < SKIPPED_NAMED_MAX {
            self.named.push((path, what));
        }
    }

    /// Adds those of another place.
    pub fn join(&mut self, other: Skipped) {
        self.count += other.count;
        let room = SKIPPED_NAMED_MAX - self.named.len();
        self.named.extend(other.named.into_iter().take(room));
    }
}

/// The data of a query: files at one moment, and records that are in no file yet.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub(crate) files: Vec<Arc<FlowFile>>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) skipped: Skipped,
    pub(crate) rolled: Rolled,
    /// The length of steps that sums were chosen for.
    pub(crate) step_ns: Option<u64>,
}

/// What rollups have to do with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rolled {
    /// The coarsest step of sums that answer, in seconds; 0 for records alone.
    pub step_s: u64,
    /// Hours whose records are gone, and whose sums are coarser than the question.
    pub hours_coarse: u64,
    /// Hours whose records are gone, and whose sums do not have what is asked.
    pub hours_missing: u64,
}

impl Rolled {
    fn join(&mut self, other: Self) {
        self.step_s = self.step_s.max(other.step_s);
        self.hours_coarse += other.hours_coarse;
        self.hours_missing += other.hours_missing;
    }
}

/// Records that are in no file.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) records: Arc<[FlowRecord]>,
    /// They are flows of a cache, which continue.
    pub(crate) is_cached: bool,
}

impl View {
    /// Adds records that wait to be written.
    pub fn add_batch(&mut self, records: Arc<[FlowRecord]>) {
        self.batches.push(Batch { records, is_cached: false });
    }

    /// Adds the current flows of a cache.
    pub fn add_cached(&mut self, records: Arc<[FlowRecord]>) {
        self.batches.push(Batch { records, is_cached: true });
    }

    /// Adds what another writer has.
    pub(crate) fn join(&mut self, other: Self) {
        self.files.extend(other.files);
        self.batches.extend(other.batches);
        self.skipped.join(other.skipped);
        self.rolled.join(other.rolled);
    }

    /// Files that were skipped because they are damaged or not the dataset's.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The contents in numbers.
    pub fn summary(&self) -> Summary {
        let live = |is_cached: bool| {
            let batches = self.batches.iter().filter(move |batch| batch.is_cached == is_cached);
            batches.map(|batch| batch.records.len() as u64).sum()
        };
        let mut summary = Summary {
            files: self.files.len() as u64,
            pending_records: live(false),
            cached_records: live(true),
            skipped: self.skipped.clone(),
            ..Summary::default()
        };
        let mut partitions = HashSet::new();
        for file in &self.files {
            partitions.insert(file.path.parent());
            summary.row_groups += file.row_groups.len() as u64;
            summary.records += file.rows();
            summary.bytes += file.size;
            if let Some((from, to)) = file.span() {
                let span = summary.span_ns.get_or_insert((from, to));
                *span = (span.0.min(from), span.1.max(to));
            }
        }
        for record in self.batches.iter().flat_map(|batch| batch.records.iter()) {
            let end = record.counters.last_ns;
            let span = summary.span_ns.get_or_insert((end, end));
            *span = (span.0.min(end), span.1.max(end));
        }
        summary.partitions = partitions.len() as u64;
        summary
    }
}

/// The contents of a dataset in numbers.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Hours with files.
    pub partitions: u64,
    /// Files that are read.
    pub files: u64,
    pub row_groups: u64,
    /// Records in files.
    pub records: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Records that wait to be written.
    pub pending_records: u64,
    /// Flows in a cache.
    pub cached_records: u64,
    /// First and last end of a flow, in nanoseconds since the epoch.
    pub span_ns: Option<(u64, u64)>,
    /// Sums of records, by their step; see [`Dataset::add_rollups`].
    pub rollups: Vec<RollupSummary>,
    pub skipped: Skipped,
}

/// Sums of one step in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollupSummary {
    pub step_s: u64,
    /// One for each hour of a writer.
    pub files: u64,
    pub rows: u64,
    pub bytes: u64,
    /// First and last end of a flow.
    pub span_ns: (u64, u64),
}

/// Datasets opened for reading, as one.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub(crate) roots: Vec<PathBuf>,
    /// Stores with hours that may no longer be in the folders.
    pub(crate) archives: Vec<Arc<dyn ObjectStore>>,
}

impl Dataset {
    /// Opens the dataset in this folder, which must exist.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        match fs::metadata(root).map_err(StoreError::io("open the dataset", root))?.is_dir() {
            true => Ok(Self { roots: vec![root.to_path_buf()], archives: Vec::new() }),
            false => {
                let what = "it is not a folder: expected one with a dataset of flow records".to_owned();
                Err(StoreError::Unreadable { path: root.to_path_buf(), what })
            }
        }
    }

    /// Adds the folders and archives of another dataset; each counts once, and so does a file that is in a folder and the
    /// archive that it was sent to.
    pub fn add(&mut self, other: Self) {
        self.roots.extend(other.roots);
        for store in other.archives {
            if self.archives.iter().all(|known| known.place() != store.place()) {
                self.archives.push(store);
            }
        }
    }

    /// Whether a writer ever used each of these folders. Queries over any other folder return nothing.
    pub fn is_one(&self) -> Result<bool, StoreError> {
        if !self.has_archives()? {
            return Ok(false);
        }
        for root in &self.roots {
            let mut is_used = false;
            for part in parts(root)? {
                is_used |= folder(&part)?.iter().any(|path| name_of(path) == ".writer.lock");
                is_used |= !partitions(&part)?.is_empty();
            }
            if !is_used {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The folders of all writers.
    pub fn parts(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut all = Vec::new();
        let mut seen = HashSet::new();
        for root in &self.roots {
            // A folder may be named twice, or be a part of another.
            let new = |part: &PathBuf| seen.insert(fs::canonicalize(part).unwrap_or_else(|_| part.clone()));
            all.extend(parts(root)?.into_iter().filter(new));
        }
        Ok(all)
    }

    /// The current files that may have records in this window.
    pub fn view(&self, window: Window) -> Result<View, StoreError> {
        let folders = || {
            let mut view = View::default();
            for part in self.parts()? {
                view.join(view_of_part(&part, window)?);
            }
            Ok(view)
        };
        self.with_archived_records(window, folders, |view, archived| archived.add_to(view, window))
    }
}

/// The folder of a dataset and those of further writers in it.
pub(crate) fn parts(root: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut parts = vec![root.to_path_buf()];
    parts.extend(folder(root)?.into_iter().filter(|path| name_of(path).starts_with(PART) && path.is_dir()));
    Ok(parts)
}

/// The folder of the writer with this number.
pub(crate) fn part(root: &Path, number: usize) -> PathBuf {
    if number == 1 { root.to_path_buf() } else { root.join(format!("{PART}{number}")) }
}

/// The name of a further writer's folder, here or in an archive; empty for the dataset's own.
pub(crate) fn writer_of(part: &Path) -> &str {
    Some(name_of(part)).filter(|name| name.starts_with(PART)).unwrap_or("")
}

/// The dataset that a writer's folder belongs to.
pub(crate) fn home(part: &Path) -> &Path {
    part.parent().filter(|_| !writer_of(part).is_empty()).unwrap_or(part)
}

/// The current files of one writer that may have records in this window.
pub(crate) fn view_of_part(part: &Path, window: Window) -> Result<View, StoreError> {
    for _ in 0..TRIES_MAX {
        let names = stable_listing(|| list(part, window))?;
        match view_of_files(&names, window) {
            Err(error) if error.is_gone() => {}
            result => return result,
        }
    }
    Err(StoreError::Moving(part.to_path_buf()))
}

/// These files, if they may have records in this window. Fails if one is gone.
pub(crate) fn view_of_files(paths: &[PathBuf], window: Window) -> Result<View, StoreError> {
    let mut view = open_all(paths)?;
    view.files.retain(|file| file.span().is_some_and(|(from, to)| window.touches(from, to)));
    Ok(view)
}

/// Repeats a listing until two agree.
fn stable_listing(
    mut list: impl FnMut() -> Result<Vec<PathBuf>, StoreError>,
) -> Result<Vec<PathBuf>, StoreError> {
    let mut before = list()?;
    for _ in 0..TRIES_MAX {
        let now = list()?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    // Files appear faster than they can be listed. The last listing is correct for a moment, except for a
    // compaction in progress.
    Ok(before)
}

/// Opens all files, as [`view_of`] takes them.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<View, StoreError> {
    view_of(open_each(paths))
}

/// Counts files that could not be opened and ignores replaced ones.
pub(crate) fn view_of(files: Vec<Result<FlowFile, StoreError>>) -> Result<View, StoreError> {
    let mut view = View::default();
    let mut replaced: HashSet<PathBuf> = HashSet::new();
    for opened in files {
        match opened {
            Ok(file) => {
                replaced.extend(file.replaced());
                view.files.push(Arc::new(file));
            }
            Err(StoreError::Unreadable { path, what }) => view.skipped.add(path, what),
            Err(error) => return Err(error),
        }
    }
    view.files.retain(|file| !replaced.contains(&file.path));
    Ok(view)
}

/// Opens each file. The footers of many are read on several threads, because that takes longer than a short question.
fn open_each(paths: &[PathBuf]) -> Vec<Result<FlowFile, StoreError>> {
    let open = |paths: &[PathBuf]| paths.iter().map(|path| FlowFile::open(path)).collect::<Vec<_>>();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = paths.len().div_ceil(threads).max(FILES_PER_THREAD);
    let Some((first, others)) = paths.split_at_checked(part) else { return open(paths) };
    std::thread::scope(|scope| {
        let others: Vec<_> = others.chunks(part).map(|part| scope.spawn(move || open(part))).collect();
        let mut opened = open(first);
        for thread in others {
            // Opening does not panic; if it did, the panic continues here.
            opened.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        opened
    })
}

/// The folder of an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Partition {
    /// Hours since the epoch.
    pub(crate) hour: u64,
    pub(crate) path: PathBuf,
}

/// The folder of an hour. The hour has no leading zero, with which DuckDB takes it for a text.
pub(crate) fn partition_path(root: &Path, hour: u64) -> PathBuf {
    let m = Moment::of(hour.saturating_mul(HOUR_NS));
    root.join(format!("date={:04}-{:02}-{:02}", m.year, m.month, m.day)).join(format!("hour={}", m.hour))
}

/// All hours with a folder, oldest first.
pub(crate) fn partitions(root: &Path) -> Result<Vec<Partition>, StoreError> {
    let mut found = Vec::new();
    for day in folder(root)? {
        let date = name_of(&day).strip_prefix("date=").map(str::to_owned);
        let Some(midnight) = date.as_deref().and_then(parse_time) else { continue };
        for path in folder(&day)? {
            let hour = name_of(&path).strip_prefix("hour=").and_then(|hour| hour.parse::<u64>().ok());
            if let Some(hour) = hour.filter(|hour| *hour < 24) {
                found.push(Partition { hour: midnight / HOUR_NS + hour, path });
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The published files of all hours that overlap the window, sorted.
pub(crate) fn list(root: &Path, window: Window) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = Vec::new();
    for partition in partitions(root)? {
        let from_ns = partition.hour.saturating_mul(HOUR_NS);
        if window.touches(from_ns, from_ns.saturating_add(HOUR_NS - 1)) {
            files.extend(published(&partition.path)?);
        }
    }
    Ok(files)
}

/// The published files of a folder, sorted. Foreign files with the same extension are included, so that they
/// are noticed.
pub(crate) fn published(partition: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = folder(partition)?;
    files.retain(|path| !name_of(path).starts_with('.') && without_extension(path).is_some());
    Ok(files)
}

/// The entries of a folder, sorted; empty if it is gone.
pub(crate) fn folder(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(StoreError::io("list", path)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(StoreError::io("list", path))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The last part of a path; empty if it is not UTF-8, which our names always are.
pub(crate) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

/// The name of a file with flows that ended in this span.
pub(crate) fn file_name(from_ns: u64, to_ns: u64, id: u64) -> String {
    let stamp = |time_ns| {
        let m = Moment::of(time_ns);
        format!("{:04}{:02}{:02}T{:02}{:02}{:02}", m.year, m.month, m.day, m.hour, m.minute, m.second)
    };
    format!("flows-{}-{}-{id:012x}{EXTENSION}", stamp(from_ns), stamp(to_ns))
}

/// The name of a rollup with flows that ended in this span.
pub(crate) fn rollup_name(span_ns: (u64, u64), id: u64) -> String {
    let name = file_name(span_ns.0, span_ns.1, id);
    name.strip_suffix(EXTENSION).unwrap_or(&name).to_owned() + ROLLUP_EXTENSION
}

/// Whether a file has the name of a rollup.
pub(crate) fn is_rollup(path: &Path) -> bool {
    name_of(path).ends_with(ROLLUP_EXTENSION)
}

/// When the first and the last flow of a file ended, to the second, as its name says.
pub(crate) fn named_span(path: &Path) -> Option<(u64, u64)> {
    let time = |stamp: &str| {
        let digits = |range| stamp.get(range).filter(|_| stamp.len() == 15);
        let (date, time) = ((digits(0..4)?, digits(4..6)?, digits(6..8)?), (digits(9..11)?, digits(11..13)?));
        let seconds = digits(13..15)?;
        parse_time(&format!("{}-{}-{}T{}:{}:{seconds}", date.0, date.1, date.2, time.0, time.1))
    };
    let mut words = name_of(path).split('-').skip(1);
    Some((time(words.next()?)?, time(words.next()?)?.saturating_add(SECOND_NS - 1)))
}

fn without_extension(path: &Path) -> Option<&str> {
    let name = name_of(path);
    name.strip_suffix(EXTENSION).or_else(|| name.strip_suffix(ROLLUP_EXTENSION))
}

/// The number in a file's name.
pub(crate) fn file_id(path: &Path) -> Option<u64> {
    let name = name_of(path);
    let name = without_extension(Path::new(name.strip_suffix(TEMPORARY).unwrap_or(name)))?;
    u64::from_str_radix(name.rsplit_once('-')?.1, 16).ok()
}

/// An incomplete file under a name that readers ignore. Dropping it removes it unless it was published.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    name: PathBuf,
    is_published: bool,
}

impl Temporary {
    /// For a file that will have this name.
    pub(crate) fn of(name: PathBuf) -> Self {
        let path = name.with_file_name(format!(".{}{TEMPORARY}", name_of(&name)));
        Self { path, name, is_published: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its proper name.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Gives the file its proper name.
    pub(crate) fn publish(&mut self) -> Result<&Path, StoreError> {
        fs::rename(&self.path, &self.name).map_err(StoreError::io("rename", &self.path))?;
        self.is_published = true;
        Ok(&self.name)
    }

    /// Publishes all files, or none.
    pub(crate) fn publish_all(files: &mut [Self]) -> Result<(), StoreError> {
        for at in 0..files.len() {
            if let Err(error) = files[at].publish() {
                // These records will be written again: a name that cannot be removed now would count them
                // twice.
                for file in &files[..at] {
                    fs::remove_file(&file.name).map_err(StoreError::io("remove", &file.name))?;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_published {
            // If it cannot be removed, the next writer does it, as after a crash.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives a small file in this folder another content, durably.
pub(crate) fn replace(folder: &Path, name: &str, text: &str) -> Result<(), StoreError> {
    let mut new = Temporary::of(folder.join(name));
    let mut file = fs::File::create(new.path()).map_err(StoreError::io("create", new.path()))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(StoreError::io("write", new.path()))?;
    new.publish()?;
    sync_folder(folder)
}

/// Syncs a folder's names to disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = fs::File::open(path).map_err(StoreError::io("open", path))?;
    folder.sync_all().map_err(StoreError::io("sync", path))
}
