//! The dataset as a table of Apache Iceberg, beside its files: by choice, for engines that read such tables.
//!
//! ```text
//! DIR/.iceberg/metadata/v12.metadata.json                  the table: its schema, its snapshots
//! DIR/.iceberg/metadata/version-hint.text                  12
//! DIR/.iceberg/metadata/snap-11.avro                       the manifests of a snapshot
//! DIR/.iceberg/metadata/writer-1-498700-11.avro            the files of an hour of a writer, since snapshot 11
//! ```
//!
//! The files are the truth, and the table follows them: a commit compares the files of some hours with those that
//! the table has, and makes a snapshot of the difference. So whatever was interrupted, the next commit mends it.
//! Files that come have their names before the commit, files that go lose theirs after it. So every file of the
//! current snapshot is there, whenever the writer dies; the last step of a commit is a rename.
//!
//! Old snapshots would need files that are gone. So a snapshot that removes files ends those before it.
//!
//! All writers of a dataset have one table. A lock (`.iceberg/.lock`) orders their commits, and each looks only at
//! its own files. A table that is not like ours, or at another place than it says, is begun again from all files.
//!
//! Apache Iceberg's specification, version 2 of tables in a file system (`HadoopTables`). Missing: field numbers in
//! files (the table has a name mapping), commits of other programs (the next commit would overrule them).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::dataset::{self, Temporary, name_of};
use crate::error::StoreError;
use avro::Fault;
use manifest::{DataFile, Entry, Manifest, Status};
use metadata::{Ids, Metadata, Snapshot};

mod avro;
mod manifest;
mod metadata;
#[cfg(test)]
mod tests;

const FOLDER: &str = ".iceberg";
const METADATA: &str = ".metadata.json";
const HINT: &str = "version-hint.text";
const AVRO: &str = ".avro";
/// How often, and after which pause, a lock that another writer holds is tried again. Commits are short.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(40);
/// Files of the table that no snapshot needs are kept this long, for readers that have begun.
const KEEP_UNUSED: Duration = Duration::from_secs(600);

/// A writer's hold on the table of its dataset.
#[derive(Debug)]
pub(crate) struct Table {
    /// The folder of the writer's files.
    part: PathBuf,
    /// The table is to be made if there is none. One that is there is always followed.
    is_wanted: bool,
    now_ns: fn() -> u64,
    /// Hours whose files may differ from those of the table; `None` for all.
    stale: Option<BTreeSet<u64>>,
}

/// What a commit finds.
struct Base {
    /// The number of the document; 0 if there is none.
    version: u64,
    table: Option<Metadata>,
    hint: Option<u64>,
}

/// The difference between the files and the table.
#[derive(Default)]
struct Difference {
    /// Files, records.
    added: [i64; 2],
    removed: [i64; 2],
    bytes_added: i64,
    hours: i64,
    /// The removed files are replaced by the added ones.
    is_replacement: bool,
}

impl Table {
    /// For the writer of this folder.
    pub(crate) fn new(part: &Path, is_wanted: bool, now_ns: fn() -> u64) -> Self {
        Self { part: part.to_path_buf(), is_wanted, now_ns, stale: None }
    }

    fn folder(&self) -> PathBuf {
        dataset::home(&self.part).join(FOLDER).join("metadata")
    }

    /// Makes the table's files of these hours those of the folder, except for files that are about to go.
    pub(crate) fn commit(
        &mut self,
        hours: impl IntoIterator<Item = u64>,
        going: &[PathBuf],
    ) -> Result<(), StoreError> {
        let folder = self.folder();
        if !self.is_wanted && !folder.is_dir() {
            self.stale = None;
            return Ok(());
        }
        if let Some(stale) = &mut self.stale {
            stale.extend(hours);
        }
        fs::create_dir_all(&folder).map_err(StoreError::io("create", &folder))?;
        let home = canonical(dataset::home(&self.part))?;
        let part = canonical(&self.part)?;
        let going: Vec<PathBuf> =
            going.iter().filter_map(|path| Some(part.join(path.strip_prefix(&self.part).ok()?))).collect();
        let _lock = lock(&home.join(FOLDER).join(".lock"))?;
        let mut base = Base::load(&folder, text(&home.join(FOLDER))?)?;
        let committed = match self.commit_to(&base, &home, &going) {
            // Files of the table are damaged or gone.
            Err(error) if base.table.is_some() && error.is_unreadable() => {
                base.table = None;
                self.commit_to(&base, &home, &going)
            }
            committed => committed,
        };
        // From here on the commit counts. A hint that is behind is mended by the next one.
        let version = base.version + u64::from(committed?);
        if base.hint != Some(version) {
            let _ = write_file(&folder.join(HINT), version.to_string().as_bytes());
        }
        self.stale = Some(BTreeSet::new());
        Ok(())
    }

    /// Compares all hours, and removes what no snapshot needs any more.
    pub(crate) fn follow(&mut self) -> Result<(), StoreError> {
        self.stale = None;
        self.commit([], &[])?;
        self.remove_unused(KEEP_UNUSED)
    }

    /// Commits to the table that was found, or to a new one; returns whether anything differed.
    fn commit_to(&self, base: &Base, home: &Path, going: &[PathBuf]) -> Result<bool, StoreError> {
        let mut next = Next::after(base.table.as_ref(), home)?;
        match base.table {
            Some(_) => next.compare(home, &canonical(&self.part)?, self.stale.as_ref(), going)?,
            // A table that is begun again has the files of all writers.
            None => {
                dataset::parts(home)?.iter().try_for_each(|part| next.compare(home, part, None, going))?
            }
        }
        if next.difference.hours == 0 && base.table.is_some() {
            return Ok(false);
        }
        next.write(base.version + 1, ((self.now_ns)() / 1_000_000) as i64)?;
        Ok(true)
    }

    /// Removes files of the table that no snapshot needs and that are older than this.
    fn remove_unused(&self, age: Duration) -> Result<(), StoreError> {
        let folder = self.folder();
        if !folder.is_dir() {
            return Ok(());
        }
        let home = canonical(dataset::home(&self.part))?;
        let _lock = lock(&home.join(FOLDER).join(".lock"))?;
        let base = Base::load(&folder, text(&home.join(FOLDER))?)?;
        let Some(table) = base.table else { return Ok(()) };
        let mut used: HashSet<String> = [format!("v{}{METADATA}", base.version), HINT.to_owned()].into();
        for list in table.lists() {
            used.insert(name_of(Path::new(list)).to_owned());
            used.extend(
                read_list(list)?.iter().map(|manifest| name_of(Path::new(&manifest.path)).to_owned()),
            );
        }
        // Ages are told from the newest file, so that a clock that is set removes nothing in use.
        let files = dataset::folder(&folder)?;
        let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let newest = files.iter().filter_map(|path| modified(path)).max();
        for path in &files {
            let name = name_of(path);
            let is_ours = [METADATA, AVRO, dataset::TEMPORARY].iter().any(|end| name.ends_with(end));
            let passed = newest.zip(modified(path)).and_then(|(newest, at)| newest.duration_since(at).ok());
            if is_ours && !used.contains(name) && passed.is_some_and(|passed| passed >= age) {
                fs::remove_file(path).map_err(StoreError::io("remove", path))?;
            }
        }
        Ok(())
    }
}

impl Base {
    /// The newest document. The hint may be one behind, if a commit was interrupted.
    fn load(folder: &Path, location: &str) -> Result<Self, StoreError> {
        let number = |name: &str| name.strip_prefix('v')?.strip_suffix(METADATA)?.parse::<u64>().ok();
        let files = dataset::folder(folder)?;
        let version = files.iter().filter_map(|path| number(name_of(path))).max().unwrap_or(0);
        let hint = fs::read_to_string(folder.join(HINT)).ok().and_then(|text| text.trim().parse().ok());
        let path = folder.join(format!("v{version}{METADATA}"));
        let table = match version {
            0 => None,
            _ => Metadata::read(&fs::read(&path).map_err(StoreError::io("read", &path))?, location),
        };
        Ok(Self { version, table, hint })
    }
}

/// The table as it will be.
struct Next {
    folder: PathBuf,
    table: Metadata,
    /// The number of the new snapshot.
    commit: i64,
    ids: Ids,
    manifests: Vec<Manifest>,
    difference: Difference,
}

impl Next {
    /// What is not changed stays as it is in this table; without one, a new one is begun.
    fn after(table: Option<&Metadata>, home: &Path) -> Result<Self, StoreError> {
        let mut table = match table {
            Some(table) => table.clone(),
            None => Metadata::new(text(&home.join(FOLDER))?),
        };
        let mut manifests = match table.lists().last() {
            Some(list) => read_list(list)?,
            None => Vec::new(),
        };
        // What has only deleted files was for the snapshot that deleted them.
        manifests.retain(|manifest| manifest.files[0] + manifest.files[1] > 0);
        Ok(Self {
            folder: home.join(FOLDER).join("metadata"),
            commit: table.sequence() + 1,
            ids: table.columns(),
            table,
            manifests,
            difference: Difference { is_replacement: true, ..Difference::default() },
        })
    }

    /// Takes over the files of a writer in these hours, or in all.
    fn compare(
        &mut self,
        home: &Path,
        part: &Path,
        hours: Option<&BTreeSet<u64>>,
        going: &[PathBuf],
    ) -> Result<(), StoreError> {
        let writer = writer_of(home, part);
        let mut folders: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
        for partition in dataset::partitions(part)? {
            folders.entry(partition.hour).or_default().push(partition.path);
        }
        let known = self.manifests.iter().filter_map(|manifest| hour_in_name(&manifest.path, &writer));
        let all: BTreeSet<u64> = known.chain(folders.keys().copied()).collect();
        for hour in hours.unwrap_or(&all).iter().copied() {
            let is_hours = |manifest: &Manifest| hour_in_name(&manifest.path, &writer) == Some(hour);
            let known =
                self.manifests.iter().find(|manifest| is_hours(manifest)).map_or(Ok(Vec::new()), entries)?;
            let mut there: BTreeSet<PathBuf> = BTreeSet::new();
            for folder in folders.get(&hour).into_iter().flatten() {
                there.extend(dataset::published(folder)?);
            }
            going.iter().for_each(|path| {
                there.remove(path);
            });
            let Some(now) = self.compare_hour(hour as i64, known, &there)? else { continue };
            let path = self.folder.join(format!("{writer}-{hour}-{}{AVRO}", self.commit));
            let bytes = manifest::write_entries(&now, &self.table.header());
            write_file(&path, &bytes)?;
            self.manifests.retain(|manifest| !is_hours(manifest));
            let manifest = Manifest::of(text(&path)?, &now, bytes.len() as i64, self.commit, hour as i64);
            self.manifests.push(manifest);
        }
        Ok(())
    }

    /// The files of an hour as entries of a new manifest; `None` if the table has just these.
    fn compare_hour(
        &mut self,
        hour: i64,
        known: Vec<Entry>,
        there: &BTreeSet<PathBuf>,
    ) -> Result<Option<Vec<Entry>>, StoreError> {
        let paths: HashSet<&Path> = known.iter().map(|entry| Path::new(&entry.file.path)).collect();
        let fresh: HashSet<&PathBuf> = there.iter().filter(|path| !paths.contains(path.as_path())).collect();
        // A new file may replace others. So may a known one, if a file that it replaced could not be removed: such a
        // file has a smaller number.
        let from = fresh.iter().filter_map(|path| dataset::file_id(path)).min();
        let is_asked =
            |path: &&PathBuf| fresh.contains(path) || from.is_some() && dataset::file_id(path) > from;
        let asked: Vec<PathBuf> = there.iter().filter(is_asked).cloned().collect();
        let view = dataset::open_all(&asked)?;
        let replaced: HashSet<PathBuf> = view.files.iter().flat_map(|file| file.replaced()).collect();
        let difference = &mut self.difference;
        let before = (difference.added, difference.removed);
        let mut entries = known.clone();
        for entry in &mut entries {
            let path = Path::new(&entry.file.path);
            entry.status = Status::Existing;
            if !there.contains(path) || replaced.contains(path) {
                (entry.status, entry.snapshot) = (Status::Deleted, self.commit);
                difference.removed[0] += 1;
                difference.removed[1] += entry.file.records;
                difference.is_replacement &= replaced.contains(path);
            }
        }
        // Iceberg has no nanoseconds: files that have are left out until they are joined.
        for file in view.files.iter().filter(|file| fresh.contains(&file.path) && file.has_microseconds()) {
            let file_of = DataFile::of(file, text(&file.path)?.to_owned(), hour, &self.ids);
            difference.added[0] += 1;
            difference.added[1] += file_of.records;
            difference.bytes_added += file_of.bytes;
            difference.is_replacement &= !file.replaces.is_empty();
            let (snapshot, sequence) = (self.commit, self.commit);
            entries.push(Entry { status: Status::Added, snapshot, sequence, file: file_of });
        }
        let changes = (difference.added, difference.removed) != before;
        difference.hours += i64::from(changes);
        Ok(changes.then_some(entries))
    }

    /// Writes the snapshot, if there is one, and then the document of this number, which is the commit.
    fn write(mut self, version: u64, time_ms: i64) -> Result<(), StoreError> {
        if self.difference.hours > 0 {
            let path = self.folder.join(format!("snap-{}{AVRO}", self.commit));
            let header = list_header(self.commit, self.table.current());
            write_file(&path, &manifest::write_list(&self.manifests, &header))?;
            self.table.push(Snapshot {
                time_ms,
                list: text(&path)?.to_owned(),
                summary: self.difference.summary(&self.manifests),
                ends_earlier: self.difference.removed[0] > 0,
            });
        }
        // All of it is on disk before the table says so.
        dataset::sync_folder(&self.folder)?;
        write_file(&self.folder.join(format!("v{version}{METADATA}")), &self.table.bytes())?;
        dataset::sync_folder(&self.folder)
    }
}

impl Difference {
    /// What a snapshot says of itself.
    fn summary(&self, manifests: &[Manifest]) -> Map<String, Value> {
        let operation = match (self.added[0], self.removed[0]) {
            (_, 0) => "append",
            (0, _) => "delete",
            _ if self.is_replacement => "replace",
            _ => "overwrite",
        };
        let live = |of: fn(&Manifest) -> [i64; 3]| manifests.iter().map(|one| of(one)[0] + of(one)[1]).sum();
        let counts = [
            ("added-data-files", self.added[0]),
            ("added-records", self.added[1]),
            ("added-files-size", self.bytes_added),
            ("deleted-data-files", self.removed[0]),
            ("deleted-records", self.removed[1]),
            ("changed-partition-count", self.hours),
            ("total-data-files", live(|manifest| manifest.files)),
            ("total-records", live(|manifest| manifest.records)),
        ];
        let counts = counts.map(|(key, count)| (key.to_owned(), count.to_string().into()));
        counts.into_iter().chain([("operation".to_owned(), operation.into())]).collect()
    }
}

fn list_header(commit: i64, parent: Option<i64>) -> [(&'static str, String); 4] {
    [
        ("snapshot-id", commit.to_string()),
        ("parent-snapshot-id", parent.map_or("null".to_owned(), |parent| parent.to_string())),
        ("sequence-number", commit.to_string()),
        ("format-version", "2".to_owned()),
    ]
}

fn read_list(path: &str) -> Result<Vec<Manifest>, StoreError> {
    read(path, manifest::read_list)
}

fn entries(manifest: &Manifest) -> Result<Vec<Entry>, StoreError> {
    read(&manifest.path, |bytes| manifest::read_entries(bytes, manifest.sequence))
}

fn read<T>(path: &str, take: impl FnOnce(&[u8]) -> Result<T, Fault>) -> Result<T, StoreError> {
    let path = Path::new(path);
    let bytes = fs::read(path).map_err(StoreError::io("read", path))?;
    take(&bytes).map_err(|what| StoreError::Unreadable { path: path.to_path_buf(), what: what.to_owned() })
}

/// The name of a writer in those of manifests; the first one's files are in the dataset's folder itself.
fn writer_of(home: &Path, part: &Path) -> String {
    if part == home { "writer-1".to_owned() } else { name_of(part).to_owned() }
}

/// The hour of a manifest, if it is of this writer.
fn hour_in_name(path: &str, writer: &str) -> Option<u64> {
    let rest = name_of(Path::new(path)).strip_prefix(writer)?.strip_prefix('-')?;
    rest.split_once('-')?.0.parse().ok()
}

fn canonical(path: &Path) -> Result<PathBuf, StoreError> {
    fs::canonicalize(path).map_err(StoreError::io("look at", path))
}

fn text(path: &Path) -> Result<&str, StoreError> {
    let what = "an Iceberg table has only names in UTF-8";
    path.to_str().ok_or_else(|| StoreError::Unreadable { path: path.to_path_buf(), what: what.to_owned() })
}

/// Writes a file that gets its name when it is complete.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let mut new = Temporary::of(path.to_path_buf());
    let written = File::create(new.path()).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(StoreError::io("write", new.path()))?;
    new.publish().map(|_| ())
}

/// Takes the lock of the table; dropping the file releases it.
fn lock(path: &Path) -> Result<File, StoreError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(StoreError::io("open", path))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", path)(error)),
        }
    }
    Err(StoreError::Busy { path: path.to_path_buf(), owner: "another writer's commit takes long".to_owned() })
}
