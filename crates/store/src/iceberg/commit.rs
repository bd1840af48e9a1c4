//! A commit: the difference between files of records and a table, as a snapshot.
//!
//! Wherever the table is ([`Place`]), its own files are written first, under names that nothing refers to yet, and the
//! document that refers to them last.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::avro::Fault;
use super::manifest::{self, DataFile, Entry, Manifest, Status};
use super::metadata::{Ids, Metadata, Snapshot};
use super::{AVRO, document};
use crate::dataset::{self, View, name_of};
use crate::error::StoreError;

/// Where a table and the files of records are.
pub(super) trait Place {
    /// The table's name for where it is.
    fn location(&self) -> &str;

    /// Reads a file of the table, by the table's name for it.
    fn read(&self, path: &str) -> Result<Vec<u8>, StoreError>;

    /// Writes a file of the table that nothing refers to yet; returns the table's name for it.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<String, StoreError>;

    /// Writes the document of this number, which is the commit.
    fn commit(&self, version: u64, document: &[u8]) -> Result<(), StoreError>;

    /// Opens files of records.
    fn open(&self, paths: &[PathBuf]) -> Result<View, StoreError>;

    /// The manifests of a snapshot.
    fn manifests(&self, list: &str) -> Result<Vec<Manifest>, StoreError> {
        taken(list, manifest::read_list(&self.read(list)?))
    }

    /// The files of a manifest.
    fn entries(&self, manifest: &Manifest) -> Result<Vec<Entry>, StoreError> {
        let bytes = self.read(&manifest.path)?;
        taken(&manifest.path, manifest::read_entries(&bytes, manifest.sequence))
    }

    /// The names of the files that the snapshots of a table need, and of its document.
    fn used(&self, table: &Metadata, version: u64) -> Result<HashSet<String>, StoreError> {
        let name = |path: &str| name_of(Path::new(path)).to_owned();
        let mut used: HashSet<String> = [document(version)].into();
        for list in table.lists() {
            used.insert(name(list));
            used.extend(self.manifests(list)?.iter().map(|manifest| name(&manifest.path)));
        }
        Ok(used)
    }
}

fn taken<T>(path: &str, read: Result<T, Fault>) -> Result<T, StoreError> {
    read.map_err(|what| StoreError::Unreadable { path: PathBuf::from(path), what: what.to_owned() })
}

/// What a commit finds.
pub(super) struct Base {
    /// The number of the document; 0 if there is none.
    pub(super) version: u64,
    /// What is not changed stays as it is in this table; without one, a new one is begun.
    pub(super) table: Option<Metadata>,
    /// The number that engines are told.
    pub(super) hint: Option<u64>,
}

/// The difference between the files and the table.
struct Difference {
    /// Files, records.
    added: [i64; 2],
    removed: [i64; 2],
    bytes_added: i64,
    hours: BTreeSet<i64>,
    /// The removed files are replaced by the added ones.
    is_replacement: bool,
}

/// The table as it will be.
pub(super) struct Next<'a, P> {
    place: &'a P,
    table: Metadata,
    /// The number of the new snapshot.
    commit: i64,
    ids: Ids,
    manifests: Vec<Manifest>,
    difference: Difference,
}

impl<'a, P: Place> Next<'a, P> {
    pub(super) fn after(base: &Base, place: &'a P) -> Result<Self, StoreError> {
        let mut table = base.table.clone().unwrap_or_else(|| Metadata::new(place.location()));
        let mut manifests = match table.lists().last() {
            Some(list) => place.manifests(list)?,
            None => Vec::new(),
        };
        // What has only deleted files was for the snapshot that deleted them.
        manifests.retain(|manifest| manifest.files[0] + manifest.files[1] > 0);
        let difference = Difference {
            added: [0; 2],
            removed: [0; 2],
            bytes_added: 0,
            hours: BTreeSet::new(),
            is_replacement: true,
        };
        Ok(Self { place, commit: table.sequence() + 1, ids: table.columns(), table, manifests, difference })
    }

    /// The times that this writer has manifests of.
    pub(super) fn times(&self, writer: &str) -> impl Iterator<Item = u64> {
        self.manifests.iter().filter_map(move |manifest| time_in_name(&manifest.path, writer))
    }

    /// All writers that have manifests.
    pub(super) fn writers(&self) -> BTreeSet<String> {
        self.manifests.iter().filter_map(|manifest| writer_in_name(&manifest.path)).collect()
    }

    /// Whether anything differed so far.
    pub(super) fn differs(&self) -> bool {
        !self.difference.hours.is_empty()
    }

    /// Makes the files of a writer at a time, an hour or a day, those that are there, with their hours.
    pub(super) fn compare(
        &mut self,
        writer: &str,
        time: u64,
        there: &BTreeMap<PathBuf, i64>,
    ) -> Result<(), StoreError> {
        let is_of = |manifest: &Manifest| time_in_name(&manifest.path, writer) == Some(time);
        let known = self.manifests.iter().find(|manifest| is_of(manifest));
        let known = known.map_or(Ok(Vec::new()), |manifest| self.place.entries(manifest))?;
        let Some(now) = self.compare_files(known, there)? else { return Ok(()) };
        let bytes = manifest::write_entries(&now, &self.table.header());
        let path = self.place.write(&format!("{writer}-{time}-{}{AVRO}", self.commit), &bytes)?;
        self.manifests.retain(|manifest| !is_of(manifest));
        self.manifests.push(Manifest::of(&path, &now, bytes.len() as i64, self.commit));
        Ok(())
    }

    /// The files as entries of a new manifest; `None` if the table has just these.
    fn compare_files(
        &mut self,
        known: Vec<Entry>,
        there: &BTreeMap<PathBuf, i64>,
    ) -> Result<Option<Vec<Entry>>, StoreError> {
        let paths: HashSet<&Path> = known.iter().map(|entry| Path::new(&entry.file.path)).collect();
        let fresh: HashSet<&PathBuf> = there.keys().filter(|path| !paths.contains(path.as_path())).collect();
        // A new file may replace others. So may a known one, if a file that it replaced could not be removed: such a
        // file has a smaller number.
        let from = fresh.iter().filter_map(|path| dataset::file_id(path)).min();
        let is_asked =
            |path: &&PathBuf| fresh.contains(path) || from.is_some() && dataset::file_id(path) > from;
        let asked: Vec<PathBuf> = there.keys().filter(is_asked).cloned().collect();
        let view = self.place.open(&asked)?;
        let replaced: HashSet<PathBuf> = view.files.iter().flat_map(|file| file.replaced()).collect();
        let difference = &mut self.difference;
        let before = (difference.added, difference.removed);
        let mut entries = known.clone();
        for entry in &mut entries {
            let path = Path::new(&entry.file.path);
            entry.status = Status::Existing;
            if !there.contains_key(path) || replaced.contains(path) {
                (entry.status, entry.snapshot) = (Status::Deleted, self.commit);
                difference.removed[0] += 1;
                difference.removed[1] += entry.file.records;
                difference.is_replacement &= replaced.contains(path);
                difference.hours.insert(entry.file.hour);
            }
        }
        // Iceberg has no nanoseconds: files that have are left out until they are joined.
        for file in view.files.iter().filter(|file| fresh.contains(&file.path) && file.has_microseconds()) {
            let Some(hour) = there.get(&file.path).copied() else { continue };
            let file_of = DataFile::of(file, text(&file.path)?.to_owned(), hour, &self.ids);
            difference.added[0] += 1;
            difference.added[1] += file_of.records;
            difference.bytes_added += file_of.bytes;
            difference.is_replacement &= !file.replaces.is_empty();
            difference.hours.insert(hour);
            let (snapshot, sequence) = (self.commit, self.commit);
            entries.push(Entry { status: Status::Added, snapshot, sequence, file: file_of });
        }
        Ok(((difference.added, difference.removed) != before).then_some(entries))
    }

    /// Writes the snapshot, if there is one, and then the document of this number, which is the commit.
    pub(super) fn write(mut self, version: u64, time_ms: i64) -> Result<(), StoreError> {
        if self.differs() {
            let header = list_header(self.commit, self.table.current());
            let list = manifest::write_list(&self.manifests, &header);
            self.table.push(Snapshot {
                time_ms,
                list: self.place.write(&format!("snap-{}{AVRO}", self.commit), &list)?,
                summary: self.difference.summary(&self.manifests),
                ends_earlier: self.difference.removed[0] > 0,
            });
        }
        self.place.commit(version, &self.table.bytes())
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
            ("changed-partition-count", self.hours.len() as i64),
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

/// The name of a writer in those of manifests, by that of its folder: empty for the dataset's own.
pub(super) fn writer_of(part: &str) -> String {
    if part.is_empty() { format!("{}1", dataset::PART) } else { part.to_owned() }
}

/// The hour or day of a manifest, if it is of this writer.
fn time_in_name(path: &str, writer: &str) -> Option<u64> {
    let rest = name_of(Path::new(path)).strip_prefix(writer)?.strip_prefix('-')?;
    rest.split_once('-')?.0.parse().ok()
}

/// The writer of a manifest.
fn writer_in_name(path: &str) -> Option<String> {
    let number = name_of(Path::new(path)).strip_prefix(dataset::PART)?.split_once('-')?.0;
    number.parse::<u64>().ok().map(|number| format!("{}{number}", dataset::PART))
}

/// A path as a table has it.
pub(super) fn text(path: &Path) -> Result<&str, StoreError> {
    let what = "an Iceberg table has only names in UTF-8";
    path.to_str().ok_or_else(|| StoreError::Unreadable { path: path.to_path_buf(), what: what.to_owned() })
}
