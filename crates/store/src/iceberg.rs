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
//! An archive has a table of its own, of the objects there ([`archived`]). What a commit does is the same ([`commit`]).
//!
//! Apache Iceberg's specification, version 2 of tables in a file system (`HadoopTables`). Missing: field numbers in
//! files (the table has a name mapping), commits of other programs (the next commit would overrule them).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dataset::{self, Temporary, View, name_of};
use crate::error::StoreError;
use commit::{Base, Next, Place, text, writer_of};
use metadata::Metadata;

pub(crate) mod archived;
mod avro;
mod commit;
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
        let place = Folder::of(&home)?;
        let _lock = lock(&home.join(FOLDER).join(".lock"))?;
        let mut base = place.base()?;
        let committed = match self.commit_to(&base, &place, &going) {
            // Files of the table are damaged or gone.
            Err(error) if base.table.is_some() && error.is_unreadable() => {
                base.table = None;
                self.commit_to(&base, &place, &going)
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
    fn commit_to(&self, base: &Base, place: &Folder, going: &[PathBuf]) -> Result<bool, StoreError> {
        let mut next = Next::after(base, place)?;
        match base.table {
            Some(_) => place.compare(&mut next, &canonical(&self.part)?, self.stale.as_ref(), going)?,
            // A table that is begun again has the files of all writers.
            None => (dataset::parts(&place.home)?.iter())
                .try_for_each(|part| place.compare(&mut next, part, None, going))?,
        }
        if !next.differs() && base.table.is_some() {
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
        let place = Folder::of(&home)?;
        let _lock = lock(&home.join(FOLDER).join(".lock"))?;
        let base = place.base()?;
        let Some(table) = base.table else { return Ok(()) };
        let used = place.used(&table, base.version)?;
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

/// A dataset's folder with the table in it.
struct Folder {
    home: PathBuf,
    location: String,
    /// Of the table's files.
    metadata: PathBuf,
}

impl Folder {
    fn of(home: &Path) -> Result<Self, StoreError> {
        let folder = home.join(FOLDER);
        let location = text(&folder)?.to_owned();
        Ok(Self { home: home.to_path_buf(), location, metadata: folder.join("metadata") })
    }

    /// The newest document. The hint may be one behind, if a commit was interrupted.
    fn base(&self) -> Result<Base, StoreError> {
        let files = dataset::folder(&self.metadata)?;
        let version = files.iter().filter_map(|path| version_of(name_of(path))).max().unwrap_or(0);
        let hint =
            fs::read_to_string(self.metadata.join(HINT)).ok().and_then(|text| text.trim().parse().ok());
        let path = self.metadata.join(document(version));
        let table = match version {
            0 => None,
            _ => Metadata::read(&fs::read(&path).map_err(StoreError::io("read", &path))?, &self.location),
        };
        Ok(Base { version, table, hint })
    }

    /// Takes over the files of a writer in these hours, or in all.
    fn compare(
        &self,
        next: &mut Next<'_, Self>,
        part: &Path,
        hours: Option<&BTreeSet<u64>>,
        going: &[PathBuf],
    ) -> Result<(), StoreError> {
        let writer = writer_of(if part == self.home { "" } else { name_of(part) });
        let mut folders: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
        for partition in dataset::partitions(part)? {
            folders.entry(partition.hour).or_default().push(partition.path);
        }
        let all: BTreeSet<u64> = next.times(&writer).chain(folders.keys().copied()).collect();
        for hour in hours.unwrap_or(&all).iter().copied() {
            let mut there: BTreeMap<PathBuf, i64> = BTreeMap::new();
            for folder in folders.get(&hour).into_iter().flatten() {
                there.extend(dataset::published(folder)?.into_iter().map(|path| (path, hour as i64)));
            }
            going.iter().for_each(|path| {
                there.remove(path);
            });
            next.compare(&writer, hour, &there)?;
        }
        Ok(())
    }
}

impl Place for Folder {
    fn location(&self) -> &str {
        &self.location
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, StoreError> {
        fs::read(path).map_err(StoreError::io("read", Path::new(path)))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<String, StoreError> {
        let path = self.metadata.join(name);
        write_file(&path, bytes)?;
        text(&path).map(str::to_owned)
    }

    fn commit(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        // All of it is on disk before the table says so.
        dataset::sync_folder(&self.metadata)?;
        write_file(&self.metadata.join(document(version)), bytes)?;
        dataset::sync_folder(&self.metadata)
    }

    fn open(&self, paths: &[PathBuf]) -> Result<View, StoreError> {
        dataset::open_all(paths)
    }
}

/// The name of the document of this number.
fn document(version: u64) -> String {
    format!("v{version}{METADATA}")
}

/// The number of a document.
fn version_of(name: &str) -> Option<u64> {
    name.strip_prefix('v')?.strip_suffix(METADATA)?.parse().ok()
}

fn canonical(path: &Path) -> Result<PathBuf, StoreError> {
    fs::canonicalize(path).map_err(StoreError::io("look at", path))
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
