//! The table of an archive: of the objects that a store has, with the table's own files beside them.
//!
//! ```text
//! PREFIX/.iceberg/metadata/v12.metadata.json                   the table; the writer that writes v13 first has committed
//! PREFIX/.iceberg/metadata/version-hint.text                   12
//! PREFIX/.iceberg/metadata/snap-11-8c0e..avro                  the manifests of a snapshot
//! PREFIX/.iceberg/metadata/writer-1-20779-11-03fa..avro        the files of a day of a writer, since snapshot 11
//! ```
//!
//! As in a folder, files of records are the truth and the table follows them: a commit lists the days that this writer sent
//! or is about to remove something of, and makes a snapshot of what differs. When a writer begins it lists all days, which
//! mends what one that was killed has left. What is removed is first taken out of the table.
//!
//! A store has no lock and no rename. Of two writers who write the document of a number at once, one is refused
//! (`If-None-Match: *`, which S3, MinIO, Ceph and others know); it takes the other's table as a basis and tries again. Names of
//! other files have a checksum of their content, so nobody overwrites what another snapshot refers to. Some stores ignore
//! the condition. That is found out at first; with them each round compares all days, which mends a commit that was lost.
//!
//! Each writer looks only at its own objects, at those of writers whose lock it holds, and at those of folders that are no
//! more. A day has one manifest, not each hour, because each costs engines a request.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_text::calendar::SECOND_NS;
use xxhash_rust::xxh3::xxh3_128;

use super::commit::{Base, Next, Place, writer_of};
use super::metadata::Metadata;
use super::{AVRO, FOLDER, HINT, document, version_of};
use crate::archive::{self, Within};
use crate::dataset::{self, View, name_of};
use crate::error::StoreError;
use crate::object::{Content, ObjectStore};

const METADATA_FOLDER: &str = ".iceberg/metadata/";
/// How often a commit is tried when others are first: there may be so many writers.
const TRIES_MAX: usize = 64;
/// Files of the table that no snapshot needs are kept this long, for readers and writers that have begun. Clocks may differ
/// by a quarter of an hour, or the store refuses requests.
const KEEP_UNUSED_S: u64 = 3600;
/// How often these are looked for: that reads the list of each snapshot.
const CLEAN_EVERY_S: u64 = 86_400;
/// An object that shows whether the store refuses to write a name twice.
const PROBE: &str = ".iceberg/metadata/.written-once";

/// Objects of days, with their hours.
type Days = BTreeMap<u64, BTreeMap<PathBuf, i64>>;

/// A writer's hold on the table of its archive.
#[derive(Debug)]
pub(crate) struct ArchivedTable {
    /// The dataset's folder.
    home: PathBuf,
    /// The table is to be made if there is none. One that is there is always followed.
    is_wanted: bool,
    now_ns: fn() -> u64,
    /// Days whose objects may differ from those of the table, by writers' folders; all of those that are not named.
    stale: BTreeMap<String, BTreeSet<u64>>,
    /// Whether the store refuses to write a name twice.
    refuses: Option<bool>,
    cleaned_ns: u64,
}

impl ArchivedTable {
    /// For a writer of the dataset in this folder.
    pub(crate) fn new(home: &Path, is_wanted: bool, now_ns: fn() -> u64) -> Self {
        let home = home.to_path_buf();
        Self { home, is_wanted, now_ns, stale: BTreeMap::new(), refuses: None, cleaned_ns: 0 }
    }

    /// Notes that something of these days was sent from a writer's folder: its name, empty for the dataset's own.
    pub(crate) fn note(&mut self, part: &str, days: BTreeSet<u64>) {
        if let Some(stale) = self.stale.get_mut(part) {
            stale.extend(days);
        }
    }

    /// Notes that another writer sends from this folder: what it leaves one day is not known.
    pub(crate) fn forget(&mut self, part: &str) {
        self.stale.remove(part);
    }

    /// Makes the table's files of this folder those of the store, except for objects that are about to go.
    pub(crate) fn commit(
        &mut self,
        within: Within<'_>,
        part: &str,
        going: &[String],
    ) -> Result<(), StoreError> {
        self.note(part, going.iter().filter_map(|key| archive::day_of(key)).collect());
        if self.stale.get(part).is_some_and(BTreeSet::is_empty) {
            return Ok(());
        }
        let going = going.iter().map(String::as_str).collect();
        for _ in 0..TRIES_MAX {
            let place = Bucket::of(within);
            let mut base = place.base()?;
            if base.version == 0 && !self.is_wanted {
                self.stale.insert(part.to_owned(), BTreeSet::new());
                return Ok(());
            }
            let mut committed = self.commit_to(&base, &place, part, &going);
            // Files of the table are damaged or gone.
            if base.table.is_some() && matches!(committed, Err(StoreError::Unreadable { .. })) {
                base.table = None;
                committed = self.commit_to(&base, &place, part, &going);
            }
            match committed {
                Ok(is_new) => return self.finish(&place, &base, part, is_new),
                // Another writer was first, or it removed an object.
                Err(error) if is_taken(&error) || error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        let owner = "other writers commit all the time".to_owned();
        Err(StoreError::Busy { path: Path::new(within.store.name()).join(FOLDER), owner })
    }

    /// Commits to the table that was found, or to a new one; returns whether anything differed.
    fn commit_to(
        &mut self,
        base: &Base,
        place: &Bucket<'_>,
        part: &str,
        going: &HashSet<&str>,
    ) -> Result<bool, StoreError> {
        let refuses = match self.refuses {
            Some(refuses) => refuses,
            None => place.refuses_twice()?,
        };
        self.refuses = Some(refuses);
        let mut next = Next::after(base, place)?;
        let stale = self.stale.get(part).filter(|_| base.table.is_some());
        for (folder, days) in self.objects(place, &next, part, stale, base.table.is_none())? {
            let writer = writer_of(&folder);
            for (day, mut there) in days {
                there.retain(|path, _| place.key_of(path).is_none_or(|key| !going.contains(key.as_str())));
                next.compare(&writer, day, &there)?;
            }
        }
        if !next.differs() && base.table.is_some() {
            return Ok(false);
        }
        next.write(base.version + 1, ((self.now_ns)() / 1_000_000) as i64)?;
        Ok(true)
    }

    /// What is there, with hours, by folders and days: of this folder in these days; or in all days, then also of folders
    /// that are no more. A table that is begun again has the objects of all.
    fn objects(
        &self,
        place: &Bucket<'_>,
        next: &Next<'_, Bucket<'_>>,
        part: &str,
        days: Option<&BTreeSet<u64>>,
        of_all: bool,
    ) -> Result<BTreeMap<String, Days>, StoreError> {
        let mut found: BTreeMap<String, Days> = BTreeMap::new();
        let Some(days) = days else {
            let is_meant =
                |other: &str| of_all || other == part || !other.is_empty() && !self.home.join(other).is_dir();
            // What the table has and the store has not goes.
            for writer in next.writers() {
                let folder = if writer == writer_of("") { "" } else { &writer };
                if is_meant(folder) {
                    let days = next.times(&writer).map(|day| (day, BTreeMap::new()));
                    found.entry(folder.to_owned()).or_default().extend(days);
                }
            }
            for (path, key, hour) in place.list("")? {
                if is_meant(archive::part_of(&key)) {
                    let days = found.entry(archive::part_of(&key).to_owned()).or_default();
                    days.entry(hour / archive::HOURS_A_DAY).or_default().insert(path, hour as i64);
                }
            }
            return Ok(found);
        };
        let found_days = found.entry(part.to_owned()).or_default();
        for day in days {
            let there = place.list(&archive::day_key(part, *day))?;
            found_days.insert(*day, there.into_iter().map(|(path, _, hour)| (path, hour as i64)).collect());
        }
        Ok(found)
    }

    /// Tells engines of the commit, and tidies up from time to time.
    fn finish(
        &mut self,
        place: &Bucket<'_>,
        base: &Base,
        part: &str,
        is_new: bool,
    ) -> Result<(), StoreError> {
        let mut version = base.version + u64::from(is_new);
        let mut hint = base.hint;
        // The writer that writes it last has seen the last document.
        while hint != Some(version) {
            place.put(HINT, version.to_string().as_bytes())?;
            hint = Some(version);
            version = version.max(place.newest()?);
        }
        self.stale.insert(part.to_owned(), BTreeSet::new());
        if self.refuses == Some(false) {
            self.forget(part);
        }
        let now_ns = (self.now_ns)();
        if is_new && now_ns.saturating_sub(self.cleaned_ns) >= CLEAN_EVERY_S * SECOND_NS {
            self.cleaned_ns = now_ns;
            place.remove_unused(now_ns.saturating_sub(KEEP_UNUSED_S * SECOND_NS))?;
        }
        Ok(())
    }
}

fn is_taken(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}

/// A store with the table in it, for one commit.
struct Bucket<'a> {
    within: Within<'a>,
    location: String,
    /// Bytes of the objects that were listed.
    sizes: RefCell<HashMap<PathBuf, (String, u64)>>,
}

impl<'a> Bucket<'a> {
    fn of(within: Within<'a>) -> Self {
        let location = format!("{}/{FOLDER}", within.store.name());
        Self { within, location, sizes: RefCell::default() }
    }

    fn store(&self) -> &Arc<dyn ObjectStore> {
        self.within.store
    }

    fn path(&self, key: &str) -> PathBuf {
        Path::new(self.store().name()).join(key)
    }

    fn key_of(&self, path: &Path) -> Option<String> {
        self.sizes.borrow().get(path).map(|(key, _)| key.clone())
    }

    /// Adds what failed to an error of the store.
    fn failed(&self, doing: &'static str, key: &str) -> impl FnOnce(io::Error) -> StoreError + use<> {
        StoreError::io(doing, &self.path(key))
    }

    /// The files of writers whose names begin so: path, key, hour.
    fn list(&self, under: &str) -> Result<Vec<(PathBuf, String, u64)>, StoreError> {
        let listed = self.store().list(under, true, self.within.goes_on);
        let mut found = Vec::new();
        for (key, size) in listed.map_err(self.failed("list", under))?.objects {
            if let Some(hour) = archive::hour_of(&key) {
                let path = self.path(&key);
                self.sizes.borrow_mut().insert(path.clone(), (key.clone(), size));
                found.push((path, key, hour));
            }
        }
        Ok(found)
    }

    /// The number of the newest document; 0 if there is none.
    fn newest(&self) -> Result<u64, StoreError> {
        let under = format!("{METADATA_FOLDER}v");
        let listed = self.store().list(&under, true, self.within.goes_on);
        let listed = listed.map_err(self.failed("list", &under))?;
        let versions = listed.objects.iter().filter_map(|(key, _)| version_of(name_of(Path::new(key))));
        Ok(versions.max().unwrap_or(0))
    }

    fn base(&self) -> Result<Base, StoreError> {
        let version = self.newest()?;
        if version == 0 {
            return Ok(Base { version, table: None, hint: None });
        }
        let get = |name: &str| {
            let key = format!("{METADATA_FOLDER}{name}");
            self.store().read_all(&key, self.within.goes_on).map_err(self.failed("read", &key))
        };
        let hint = match get(HINT) {
            Err(error) if error.is_gone() => None,
            read => std::str::from_utf8(&read?).ok().and_then(|text| text.trim().parse().ok()),
        };
        let table = Metadata::read(&get(&document(version))?, &self.location);
        Ok(Base { version, table, hint })
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let key = format!("{METADATA_FOLDER}{name}");
        self.store().put(&key, bytes, self.within.goes_on).map_err(self.failed("write", &key))
    }

    /// Whether the store refuses to write a name twice.
    fn refuses_twice(&self) -> Result<bool, StoreError> {
        let put = |bytes| self.store().put_new(PROBE, Content::Bytes(bytes), self.within.goes_on);
        let is_refused = |written: &io::Result<()>| matches!(written, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
        // One of the two is there already, or is now.
        let [first, second] = [put(b"1"), put(b"2")];
        let refuses = is_refused(&first) || is_refused(&second);
        for written in [first, second].into_iter().filter(|written| !is_refused(written)) {
            written.map_err(self.failed("write", PROBE))?;
        }
        Ok(refuses)
    }

    /// Removes files of the table that no snapshot needs and that were written before this.
    fn remove_unused(&self, before_ns: u64) -> Result<(), StoreError> {
        let base = self.base()?;
        let Some(table) = base.table else { return Ok(()) };
        let used = self.used(&table, base.version)?;
        let old = self.store().written_before(METADATA_FOLDER, before_ns, self.within.goes_on);
        for (key, _) in old.map_err(self.failed("list", METADATA_FOLDER))? {
            let name = name_of(Path::new(&key));
            let is_ours = version_of(name).is_some() || name.ends_with(AVRO);
            if is_ours && !used.contains(name) {
                self.store().remove(&key, self.within.goes_on).map_err(self.failed("remove", &key))?;
            }
        }
        Ok(())
    }
}

impl Place for Bucket<'_> {
    fn location(&self) -> &str {
        &self.location
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, StoreError> {
        let key = format!("{METADATA_FOLDER}{}", name_of(Path::new(path)));
        self.store().read_all(&key, self.within.goes_on).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                return StoreError::Unreadable { path: PathBuf::from(path), what: source.to_string() };
            }
            self.failed("read", &key)(source)
        })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<String, StoreError> {
        let stem = name.strip_suffix(AVRO).unwrap_or(name);
        let name = format!("{stem}-{:032x}{AVRO}", xxh3_128(bytes));
        self.put(&name, bytes)?;
        Ok(format!("{}/metadata/{name}", self.location))
    }

    fn commit(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let key = format!("{METADATA_FOLDER}{}", document(version));
        let written = self.store().put_new(&key, Content::Bytes(bytes), self.within.goes_on);
        written.map_err(self.failed("write", &key))
    }

    fn open(&self, paths: &[PathBuf]) -> Result<View, StoreError> {
        let sizes = self.sizes.borrow();
        let found = paths.iter().filter_map(|path| sizes.get(path));
        let found: Vec<_> = found.map(|(key, size)| (self.store(), &**key, *size)).collect();
        dataset::view_of(archive::open_each(&found))
    }
}

#[cfg(test)]
mod tests;
