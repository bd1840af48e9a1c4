//! Keeping a dataset tidy: compaction of small files, and retention.
//!
//! Compaction takes small files of one hour and writes their records as one file, whose footer names them. Its steps are
//! separate functions, and a crash after any of them leaves a dataset that reads the same:
//!
//! 1. `Compaction::write`: a temporary file, which nobody reads; removed at the next start.
//! 2. `Compaction::publish`: the new name appears; the files it names are left out by readers from now on.
//! 3. `Compaction::remove_replaced`: those are removed; what a crash leaves is removed at the next start.
//!
//! Memory is bounded by two row groups: records are read and written a row group at a time, sorted within each.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_flow::FlowRecord;

use crate::block::Block;
use crate::calendar::HOUR_NS;
use crate::dataset::{self, Skipped, View, name_of};
use crate::error::StoreError;
use crate::file::{FileWriter, FlowFile, ROW_GROUP_ROWS};
use crate::schema::ColumnId;

/// Files with fewer rows are worth joining.
const SMALL_ROWS: u64 = ROW_GROUP_ROWS as u64 / 2;
/// Rows of a file that compaction makes.
const COMPACTED_ROWS_MAX: u64 = 8 * ROW_GROUP_ROWS as u64;

/// What is kept. Hours go as a whole, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Hours that ended longer ago than this are removed.
    pub age_max_s: Option<u64>,
    /// Hours are removed until the files have at most so many octets together. The latest hour is always kept.
    pub bytes_max: Option<u64>,
}

/// What upkeep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Small files that were joined.
    pub files_joined: u64,
    /// Files they were joined to.
    pub files_made: u64,
    /// Records in those.
    pub records_joined: u64,
    /// Files removed because of their age or the dataset's size.
    pub files_expired: u64,
    /// Records in those, as far as they could be read.
    pub records_expired: u64,
    /// Octets of those.
    pub bytes_expired: u64,
}

impl Upkeep {
    pub(crate) fn add(&mut self, other: &Upkeep) {
        self.files_joined += other.files_joined;
        self.files_made += other.files_made;
        self.records_joined += other.records_joined;
        self.files_expired += other.files_expired;
        self.records_expired += other.records_expired;
        self.bytes_expired += other.bytes_expired;
    }
}

/// What changes to a dataset need: the right to change it, and numbers for files.
pub(crate) struct Changes {
    pub(crate) root: PathBuf,
    /// Held while names change, so that views taken in this process see all of a change or nothing.
    pub(crate) publish: Mutex<()>,
    pub(crate) next_id: AtomicU64,
}

impl Changes {
    pub(crate) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Joins small files of every hour.
    pub(crate) fn compact(&self) -> Result<Upkeep, StoreError> {
        let mut done = Upkeep::default();
        for partition in dataset::partitions(&self.root)? {
            let view = dataset::open_all(&dataset::published(&partition.path)?)?;
            for files in groups(&view) {
                let compaction = Compaction::write(self, &partition.path, files)?;
                {
                    let _names = self.publish.lock().unwrap_or_else(PoisonError::into_inner);
                    compaction.publish()?;
                    compaction.remove_replaced()?;
                }
                dataset::sync_folder(&partition.path)?;
                done.files_joined += compaction.replaced.len() as u64;
                done.files_made += 1;
                done.records_joined += compaction.rows;
            }
        }
        Ok(done)
    }

    /// Removes what need not be kept. `now_ns` is the wall clock's time.
    pub(crate) fn retain(&self, policy: Retention, now_ns: u64) -> Result<Upkeep, StoreError> {
        let mut done = Upkeep::default();
        let mut partitions = dataset::partitions(&self.root)?;
        if let Some(age_s) = policy.age_max_s {
            let keep_from_ns = now_ns.saturating_sub(age_s.saturating_mul(1_000_000_000));
            while let Some(first) = partitions.first()
                && (first.hour + 1).saturating_mul(HOUR_NS) <= keep_from_ns
            {
                self.expire(&partitions.remove(0).path, &mut done)?;
            }
        }
        if let Some(bytes_max) = policy.bytes_max {
            let sizes: Result<Vec<u64>, StoreError> =
                partitions.iter().map(|partition| size(&partition.path)).collect();
            let sizes = sizes?;
            let mut bytes: u64 = sizes.iter().sum();
            for (partition, size) in partitions.iter().zip(&sizes).rev().skip(1).rev() {
                if bytes <= bytes_max {
                    break;
                }
                self.expire(&partition.path, &mut done)?;
                bytes -= size;
            }
        }
        Ok(done)
    }

    fn expire(&self, partition: &Path, done: &mut Upkeep) -> Result<(), StoreError> {
        let _names = self.publish.lock().unwrap_or_else(PoisonError::into_inner);
        for path in dataset::published(partition)? {
            if let Ok(file) = FlowFile::open(&path) {
                done.records_expired += file.rows();
            }
            done.bytes_expired += fs::metadata(&path).map_or(0, |metadata| metadata.len());
            done.files_expired += 1;
            fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
        }
        // Somebody else's files may be left; then so are the folders.
        if fs::remove_dir(partition).is_ok()
            && let Some(day) = partition.parent()
        {
            let _ = fs::remove_dir(day);
        }
        Ok(())
    }
}

fn size(partition: &Path) -> Result<u64, StoreError> {
    let files = dataset::published(partition)?;
    Ok(files.iter().map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len())).sum())
}

/// Small files that belong together, each group as large as a file may get.
fn groups(view: &View) -> Vec<Vec<Arc<FlowFile>>> {
    let mut small: Vec<_> = view.files.iter().filter(|file| file.rows() < SMALL_ROWS).cloned().collect();
    small.sort_by_key(|file| (file.span(), file.path.clone()));
    let mut groups: Vec<Vec<Arc<FlowFile>>> = Vec::new();
    let mut rows = 0;
    for file in small {
        match groups.last_mut() {
            Some(group) if rows + file.rows() <= COMPACTED_ROWS_MAX => {
                rows += file.rows();
                group.push(file);
            }
            _ => {
                rows = file.rows();
                groups.push(vec![file]);
            }
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Files that become one.
pub(crate) struct Compaction {
    temporary: PathBuf,
    path: PathBuf,
    replaced: Vec<PathBuf>,
    rows: u64,
}

impl Compaction {
    /// Writes the records of these files of one folder to a temporary file.
    pub(crate) fn write(
        changes: &Changes,
        partition: &Path,
        files: Vec<Arc<FlowFile>>,
    ) -> Result<Self, StoreError> {
        let spans = || files.iter().filter_map(|file| file.span());
        let from_ns = spans().map(|(from, _)| from).min().unwrap_or(0);
        let to_ns = spans().map(|(_, to)| to).max().unwrap_or(0);
        let path = partition.join(dataset::file_name(from_ns, to_ns, changes.id()));
        let temporary = dataset::temporary_name(&path);
        let names: Vec<String> = files.iter().map(|file| name_of(&file.path).to_owned()).collect();
        let mut writer = FileWriter::create(&temporary, &names)?;
        let mut records: Vec<FlowRecord> = Vec::new();
        let mut rows = 0;
        for file in &files {
            for (number, group) in file.row_groups.iter().enumerate() {
                let mut block = Block::new(group.rows);
                file.load(number, ColumnId::ALL, &mut block)?;
                for row in 0..group.rows {
                    records.push(block.record(row)?);
                    if records.len() == ROW_GROUP_ROWS {
                        rows += append_sorted(&mut writer, &mut records)?;
                    }
                }
            }
        }
        rows += append_sorted(&mut writer, &mut records)?;
        writer.finish()?;
        let replaced = files.iter().map(|file| file.path.clone()).collect();
        Ok(Self { temporary, path, replaced, rows })
    }

    /// Gives the new file its name, for good.
    pub(crate) fn publish(&self) -> Result<(), StoreError> {
        fs::rename(&self.temporary, &self.path).map_err(StoreError::io("rename", &self.temporary))?;
        // The new name must be on disk before an old one goes.
        self.path.parent().map_or(Ok(()), dataset::sync_folder)
    }

    /// Removes the files that it was made of.
    pub(crate) fn remove_replaced(&self) -> Result<(), StoreError> {
        for path in &self.replaced {
            fs::remove_file(path).map_err(StoreError::io("remove", path))?;
        }
        Ok(())
    }
}

fn append_sorted(writer: &mut FileWriter, records: &mut Vec<FlowRecord>) -> Result<u64, StoreError> {
    let rows = records.len() as u64;
    if rows > 0 {
        records.sort_by_key(|record| record.counters.last_ns);
        writer.append(&Block::of(records.iter()))?;
        records.clear();
    }
    Ok(rows)
}

/// What was found and cleared when a writer began.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// What the last writer left in the lock file, if it did not end properly: who it was, and how much it may have lost.
    pub unclean: Option<String>,
    /// Unfinished files that were removed.
    pub torn_removed: u64,
    /// Files that were removed because compaction had already replaced them.
    pub replaced_removed: u64,
    /// Files that are skipped: damaged, or not the dataset's.
    pub skipped: Skipped,
}

/// Clears what an interrupted writer left; returns that and the next free number. Only for who holds the lock.
pub(crate) fn recover(root: &Path) -> Result<(Recovery, u64), StoreError> {
    let mut recovery = Recovery::default();
    let mut next_id = 1;
    for partition in dataset::partitions(root)? {
        let all = dataset::folder(&partition.path)?;
        for path in &all {
            next_id = next_id.max(dataset::file_id(path).map_or(0, |id| id.saturating_add(1)));
            if name_of(path).starts_with('.') && name_of(path).ends_with(dataset::TEMPORARY) {
                fs::remove_file(path).map_err(StoreError::io("remove", path))?;
                recovery.torn_removed += 1;
            }
        }
        let published = dataset::published(&partition.path)?;
        let view = dataset::open_all(&published)?;
        let live: HashSet<&Path> = view.files.iter().map(|file| file.path.as_path()).collect();
        let named = view.files.iter().flat_map(|file| file.replaces.iter());
        for path in named.map(|name| partition.path.join(name)) {
            if published.contains(&path) && !live.contains(path.as_path()) {
                fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
                recovery.replaced_removed += 1;
            }
        }
        recovery.skipped.join(view.skipped);
    }
    Ok((recovery, next_id))
}

#[cfg(test)]
mod tests;
