//! Complete hours in a store of objects, S3 for one, beside the folder where records are written.
//!
//! ```text
//! hour ends --> files are joined --> frozen --> sent, looked at --> archived --> `keep` may remove them here
//!               (upkeep)             (a mark, synced)               (a mark, synced)
//! ```
//!
//! An object has the name of its file behind the dataset's folder: `date=../hour=../flows-...parquet`, and that of a
//! further writer's folder before it. What is sent was frozen before: files with a mark are joined with no others, so an
//! object is never replaced, and an hour's late records are further objects. Marks are lines of `.archive` in the hour's
//! folder. A writer that dies sends frozen files again; the store says that they are there, and has the same content,
//! or it is another dataset's and that is told.
//!
//! While a store does not answer, files stay. If the disk's limit comes first (`keep_bytes`, `keep_free`), what is archived is
//! removed first, and then what is not, which is counted.
//!
//! Rollups go there under the same names as here, `.rollups/hour/date=../..` (`rollups`).
//!
//! Readers list the store and read footers and columns by range. A file that is here and there counts once: it has the
//! same name and size, and the folder is one that was sent there (`pairs`). Footers of records for which a rollup answers
//! are not read (`rollup::choose`).
//!
//! What is there may be a table of Apache Iceberg, too (`iceberg::archived`).

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_text::calendar::{HOUR_NS, SECOND_NS, parse_time};

use crate::dataset::{self, Dataset, Partition, View, Window, name_of};
use crate::error::StoreError;
use crate::file::FlowFile;
use crate::object::{Content, ObjectStore, Objects};
use crate::rollup::{self, Level};
use crate::upkeep::{Changes, Upkeep};

pub(crate) mod expiry;
pub(crate) mod marks;
mod pairs;
mod rollups;
#[cfg(test)]
mod tests;

use marks::Marks;
use pairs::Pairs;

/// How long after its end an hour is complete: flows are reported a while after their last packet.
const SETTLED_NS: u64 = 600 * SECOND_NS;
pub(crate) const HOURS_A_DAY: u64 = 24;
/// Footers that are read at a time.
const OPENED_AT_A_TIME: usize = 16;
/// Of so many days each is listed by itself; otherwise everything is.
const DAYS_MAX: usize = 16;
/// How often a reader starts over because objects came or went.
const TRIES_MAX: usize = 20;

/// A store, for as long as a task goes on.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    /// Ends requests early, with an error.
    pub(crate) goes_on: &'a dyn Fn() -> bool,
}

/// The name of a file's object: what is behind the dataset's folder.
pub(crate) fn key_of(path: &Path) -> String {
    let mut parts: Vec<&str> = path.iter().rev().take(6).filter_map(|part| part.to_str()).collect();
    let mut own = if parts.get(4).is_some_and(|part| *part == rollup::FOLDER) { 5 } else { 3 };
    own += usize::from(parts.get(own).is_some_and(|part| part.starts_with(dataset::PART)));
    parts.truncate(own);
    parts.reverse();
    parts.join("/")
}

/// The folder of the writer of a file, here or in a store.
fn folder_of(path: &Path) -> Option<&Path> {
    path.ancestors().nth(if level_of(&key_of(path)).is_some() { 5 } else { 3 })
}

impl Changes {
    /// Sends what is not archived of hours that are complete, and says of which days that is. An hour that cannot be frozen,
    /// and an object of another content, end nothing but are returned.
    pub(crate) fn archive(
        &self,
        store: &dyn ObjectStore,
        now_ns: u64,
        done: &mut Upkeep,
        days: &mut BTreeSet<u64>,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        pairs::note(&self.root, store.name())?;
        for partition in dataset::partitions(&self.root)? {
            if (partition.hour + 1).saturating_mul(HOUR_NS).saturating_add(SETTLED_NS) > now_ns {
                break;
            }
            let frozen = self.freeze(&partition, done).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                Vec::new()
            });
            for (path, records) in frozen {
                if self.is_ending() {
                    return failed.map_or(Ok(()), Err);
                }
                // It may be there even if nobody hears of it.
                days.insert(partition.hour / HOURS_A_DAY);
                match self.send(store, &path) {
                    Ok(true) => {
                        done.files_archived += 1;
                        done.records_archived += records;
                        done.bytes_archived += fs::metadata(&path).map_or(0, |metadata| metadata.len());
                        self.note_archived(&partition, &path)?;
                    }
                    Ok(false) => {}
                    Err(error) if error.is_taken() => failed = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes a file an object; `false` if it is gone: it had to make room, or another took its place.
    fn send(&self, store: &dyn ObjectStore, path: &Path) -> Result<bool, StoreError> {
        let key = key_of(path);
        match store.put_new(&key, Content::File(path), &|| !self.is_ending()) {
            Ok(()) => Ok(true),
            Err(_) if !path.exists() => Ok(false),
            Err(error) => Err(StoreError::io("archive", &Path::new(store.name()).join(key))(error)),
        }
    }

    /// The files of an hour that are to be sent, which no longer change, and their records; joins small ones before.
    fn freeze(&self, partition: &Partition, done: &mut Upkeep) -> Result<Vec<(PathBuf, u64)>, StoreError> {
        let path = &partition.path;
        let files = dataset::published(path)?;
        if Marks::read(path).is_ok_and(|marks| files.iter().all(|file| marks.is_archived(file))) {
            return Ok(Vec::new());
        }
        let _upkeep = self.upkeep.lock();
        // A disk that has no room for joining has all the more need of the archive.
        match self.join(partition, done) {
            Ok(true) | Err(_) => {}
            Ok(false) => return Ok(Vec::new()),
        }
        let mut marks = self.marks(path)?;
        let view = dataset::open_all(&dataset::published(path)?)?;
        let sent: Vec<(PathBuf, u64)> = (view.files.iter())
            .filter(|file| !marks.is_archived(&file.path))
            .map(|file| (file.path.clone(), file.rows()))
            .collect();
        if sent.iter().any(|(file, _)| !marks.is_frozen(file)) {
            marks.0.extend(sent.iter().map(|(file, _)| (name_of(file).to_owned(), false)));
            marks.save(path)?;
        }
        Ok(sent)
    }

    /// What is marked in an hour's folder. Damaged marks are made anew, and told. For the holder of `upkeep`.
    pub(crate) fn marks(&self, partition: &Path) -> Result<Marks, StoreError> {
        let why = match Marks::read(partition) {
            Ok(marks) => return Ok(marks),
            Err(why) => why,
        };
        let marks = Marks::of_unknown(partition)?;
        let mut what = format!("{why}: the files of this hour stay until they were archived again");
        if let Err(error) = marks.save(partition) {
            what += &format!(" ({error})");
        }
        let path = partition.join(marks::MARKS);
        let mut damaged = self.damaged.lock();
        // One that cannot be made anew is met again and again.
        if damaged.named.iter().all(|(known, _)| *known != path) {
            damaged.add(path, what);
        }
        Ok(marks)
    }

    fn note_archived(&self, partition: &Partition, file: &Path) -> Result<(), StoreError> {
        let _upkeep = self.upkeep.lock();
        if !file.exists() {
            return Ok(());
        }
        let mut marks = self.marks(&partition.path)?;
        marks.0.insert(name_of(file).to_owned(), true);
        marks.save(&partition.path)
    }
}

impl Dataset {
    /// The dataset in this store of objects.
    pub fn of_archive(store: Arc<dyn ObjectStore>) -> Self {
        Self { roots: Vec::new(), archives: vec![store] }
    }

    /// What the folders have, to which `add` adds what an archive has. A file that is sent, and removed here, while both are
    /// looked at would be missed, and one that was joined before it was sent would count twice: so archives are listed before
    /// and after, until nothing was sent in between.
    ///
    /// `kinds` is what is listed. `finish` may still read objects.
    pub(crate) fn with_archives<T, U>(
        &self,
        (window, kinds): (Window, Kinds),
        mut folders: impl FnMut() -> Result<T, StoreError>,
        add: impl Fn(&mut T, &Archived<'_>) -> Result<(), StoreError>,
        finish: impl Fn(T) -> Result<U, StoreError>,
    ) -> Result<U, StoreError> {
        if self.archives.is_empty() {
            return finish(folders()?);
        }
        let list = || -> Result<Vec<Vec<(String, u64)>>, StoreError> {
            self.archives.iter().map(|store| objects(store.as_ref(), window, kinds)).collect()
        };
        let mut before = list()?;
        for _ in 0..TRIES_MAX {
            let mut all = folders()?;
            let now = if self.roots.is_empty() { before.clone() } else { list()? };
            let is_settled = now == before;
            before = now;
            if is_settled {
                let pairs = Pairs::of(&self.parts()?, &self.archives);
                let mut found = self.archives.iter().zip(&before);
                let added = found
                    .try_for_each(|(store, found)| add(&mut all, &Archived { store, found, pairs: &pairs }));
                match added.and_then(|()| finish(all)) {
                    // It was removed there.
                    Err(error) if error.is_gone() => before = list()?,
                    finished => return finished,
                }
            }
        }
        Err(StoreError::Moving(PathBuf::from(self.archives[0].name())))
    }

    /// [`Self::with_archives`] without rollups.
    pub(crate) fn with_archived_records<T>(
        &self,
        window: Window,
        folders: impl FnMut() -> Result<T, StoreError>,
        add: impl Fn(&mut T, &Archived<'_>) -> Result<(), StoreError>,
    ) -> Result<T, StoreError> {
        self.with_archives((window, Kinds::Records), folders, add, Ok)
    }

    /// Whether each archive has anything of a dataset.
    pub(crate) fn has_archives(&self) -> Result<bool, StoreError> {
        for store in &self.archives {
            let folders = listed(store.as_ref(), "", false, &|| true)?.folders;
            let of_dataset = ["date=", dataset::PART, rollup::FOLDER];
            if !folders.iter().any(|folder| of_dataset.iter().any(|begin| folder.starts_with(begin))) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What is listed of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    Records,
    RecordsAndRollups,
}

/// An object of which nothing was read.
#[derive(Debug)]
pub(crate) struct Unopened {
    store: Arc<dyn ObjectStore>,
    pub(crate) key: String,
    size: u64,
}

impl Unopened {
    /// Opens these, as [`dataset::view_of`] takes them.
    pub(crate) fn open_all(objects: &[Self]) -> Result<View, StoreError> {
        let objects: Vec<_> =
            objects.iter().map(|object| (&object.store, &*object.key, object.size)).collect();
        dataset::view_of(open_each(&objects))
    }

    /// Hours since the epoch.
    pub(crate) fn hour(&self) -> Option<u64> {
        span_of(&self.key, 1).map(|(from_ns, _)| from_ns / HOUR_NS)
    }
}

/// The files of an archive, by name and size.
pub(crate) struct Archived<'a> {
    store: &'a Arc<dyn ObjectStore>,
    found: &'a [(String, u64)],
    pairs: &'a Pairs,
}

impl Archived<'_> {
    /// Its name, and where it answers.
    pub(crate) fn place(&self) -> (String, String) {
        self.store.place()
    }

    /// Whether a writer's folder is of the same dataset.
    pub(crate) fn is_of(&self, folder: &Path) -> bool {
        self.pairs.has(folder, self.store.name())
    }

    /// Those of records that are not among these files.
    pub(crate) fn records_beside<'a>(&self, files: impl Iterator<Item = &'a Arc<FlowFile>>) -> Vec<Unopened> {
        self.beside(files, |key| level_of(key).is_none())
    }

    /// The rollups that are not among these.
    pub(crate) fn rollups_beside<'a>(
        &self,
        rollups: impl Iterator<Item = &'a Arc<FlowFile>>,
    ) -> Result<View, StoreError> {
        Unopened::open_all(&self.beside(rollups, |key| level_of(key).is_some()))
    }

    fn beside<'a>(
        &self,
        files: impl Iterator<Item = &'a Arc<FlowFile>>,
        is_meant: impl Fn(&str) -> bool,
    ) -> Vec<Unopened> {
        let files = files.filter(|file| folder_of(&file.path).is_some_and(|folder| self.is_of(folder)));
        let known: HashSet<(String, u64)> = files.map(|file| (key_of(&file.path), file.size)).collect();
        let new = self.found.iter().filter(|found| is_meant(&found.0) && !known.contains(*found));
        let unopened = |(key, size): &(String, u64)| Unopened {
            store: Arc::clone(self.store),
            key: key.clone(),
            size: *size,
        };
        new.map(unopened).collect()
    }

    /// Adds those of records that the view has not, and that touch the window.
    pub(crate) fn add_to(&self, view: &mut View, window: Window) -> Result<(), StoreError> {
        let mut new = Unopened::open_all(&self.records_beside(view.files.iter()))?;
        new.files.retain(|file| file.span().is_some_and(|(from, to)| window.touches(from, to)));
        view.join(new);
        Ok(())
    }
}

fn listed(
    store: &dyn ObjectStore,
    under: &str,
    is_deep: bool,
    goes_on: &dyn Fn() -> bool,
) -> Result<Objects, StoreError> {
    store.list(under, is_deep, goes_on).map_err(StoreError::io("list", Path::new(store.name())))
}

/// The files of a window's hours. Of a few days each is listed by itself.
fn objects(store: &dyn ObjectStore, window: Window, kinds: Kinds) -> Result<Vec<(String, u64)>, StoreError> {
    let mut found = Vec::new();
    let mut days = days(store, kinds, &|| true)?;
    days.retain(|day| touches(day, 24, window));
    let dates: HashSet<Option<&str>> = days.iter().map(|day| day.rsplit('/').nth(1)).collect();
    if dates.len() > DAYS_MAX {
        found = listed(store, "", true, &|| true)?.objects;
    } else {
        for day in days {
            found.extend(listed(store, &day, true, &|| true)?.objects);
        }
    }
    let with_rollups = kinds == Kinds::RecordsAndRollups;
    found.retain(|(key, _)| {
        (is_file(key) || with_rollups && level_of(key).is_some()) && touches(key, 1, window)
    });
    Ok(found)
}

/// The folders of days, those of further writers too.
fn days(
    store: &dyn ObjectStore,
    kinds: Kinds,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<String>, StoreError> {
    let mut days = Vec::new();
    let mut above = vec![String::new()];
    while let Some(under) = above.pop() {
        for folder in listed(store, &under, false, goes_on)?.folders {
            let name = folder[under.len()..].trim_end_matches('/');
            let is_of_rollups = name == rollup::FOLDER || under.ends_with(&format!("{}/", rollup::FOLDER));
            let is_above = if is_of_rollups {
                kinds == Kinds::RecordsAndRollups
            } else {
                under.is_empty() && name.starts_with(dataset::PART)
            };
            if is_above {
                above.push(folder);
            } else {
                days.push(folder);
            }
        }
    }
    Ok(days)
}

/// How fine a key's rollup is, if it is of one that a writer made.
pub(crate) fn level_of(key: &str) -> Option<Level> {
    let path = Path::new(key);
    let is_own = dataset::is_rollup(path) && has_writers_name(path) && key_of(path) == key;
    level_below(key).filter(|_| is_own && span_of(key, 1).is_some())
}

/// Whose folder a key is in.
fn level_below(key: &str) -> Option<Level> {
    let below = |level: &Level| Path::new(key).starts_with(level.folder(Path::new(part_of(key))));
    Level::ALL.into_iter().find(below)
}

/// Whether a writer gave a file this name.
fn has_writers_name(path: &Path) -> bool {
    name_of(path).starts_with("flows-") && dataset::file_id(path).is_some()
}

/// The hour of a key, if it is of a writer's file.
pub(crate) fn hour_of(key: &str) -> Option<u64> {
    let path = Path::new(key);
    let is_own = has_writers_name(path);
    let is_writers = part_of(key).strip_prefix(dataset::PART).is_none_or(|part| part.parse::<u64>().is_ok());
    let is_own = is_own && is_writers && is_file(key) && key_of(path) == key;
    let (from_ns, _) = span_of(key, 1).filter(|_| is_own)?;
    Some(from_ns / HOUR_NS)
}

pub(crate) fn day_of(key: &str) -> Option<u64> {
    hour_of(key).map(|hour| hour / HOURS_A_DAY)
}

/// The writer's folder that a key is of: its name, empty for the dataset's own.
pub(crate) fn part_of(key: &str) -> &str {
    key.split_once('/').map(|(first, _)| first).filter(|first| first.starts_with(dataset::PART)).unwrap_or("")
}

/// How keys of a day begin.
pub(crate) fn day_key(part: &str, day: u64) -> String {
    let folder = dataset::partition_path(Path::new(part), day * HOURS_A_DAY);
    folder.parent().unwrap_or(&folder).display().to_string() + "/"
}

fn is_file(key: &str) -> bool {
    key.ends_with(dataset::EXTENSION) && !name_of(Path::new(key)).starts_with('.')
}

/// Whether a key is of a day or an hour of the window; with `hours` 1 it must name the hour.
fn touches(key: &str, hours: u64, window: Window) -> bool {
    span_of(key, hours).is_some_and(|(from_ns, last_ns)| window.touches(from_ns, last_ns))
}

/// The first and the last nanosecond of a key's day, or hour.
fn span_of(key: &str, hours: u64) -> Option<(u64, u64)> {
    let part = |name: &str| key.split('/').find_map(|part| part.strip_prefix(name));
    let midnight = part("date=").and_then(parse_time)?;
    let hour = match (hours, part("hour=").and_then(|hour| hour.parse::<u64>().ok())) {
        (1, None | Some(24..)) => return None,
        (_, hour) => hour.unwrap_or(0),
    };
    let from_ns = midnight.saturating_add(hour.saturating_mul(HOUR_NS));
    Some((from_ns, from_ns.saturating_add(hours * HOUR_NS - 1)))
}

/// Opens each object of these stores, several at a time, because each takes at least one request.
pub(crate) fn open_each(objects: &[(&Arc<dyn ObjectStore>, &str, u64)]) -> Vec<Result<FlowFile, StoreError>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut opened = Vec::new();
        while let Some((store, key, size)) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
            opened.push(FlowFile::open_object(store, key, *size));
        }
        opened
    };
    std::thread::scope(|scope| {
        let threads = OPENED_AT_A_TIME.min(objects.len());
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // Opening does not panic; if it did, the panic continues here.
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect()
    })
}
