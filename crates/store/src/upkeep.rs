//! Maintains a dataset: compaction of small files, and retention.
//!
//! Compaction writes the records of an hour's small files as one file, whose footer names them. Its steps are
//! separate functions, and after a crash between any two of them the dataset reads the same:
//!
//! 1. `Compaction::write`: writes a temporary file, which readers ignore; the next start removes it.
//! 2. `Compaction::publish`: gives it its name; from now on readers ignore the files that it names.
//! 3. `Table::commit`: the Iceberg table, if there is one, has the new file in their place.
//! 4. `Compaction::remove_replaced`: removes those files; the next start removes any that a crash left.
//!
//! Two row groups bound the memory: records are read and written a row group at a time, sorted within each.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg_flow::FlowRecord;

use crate::archive::marks::Marks;
use crate::block::{Block, Spare};
use crate::dataset::{self, Partition, Skipped, Temporary, View, Window, name_of};
use crate::error::{StoreError, megabytes};
use crate::feed::state::Fed;
use crate::file::{FileWriter, FlowFile, ROW_GROUP_ROWS};
use crate::iceberg::Table;
use crate::rollup::{self, Level, RollupRetention};
use crate::space::Space;
use thalweg_flow::fields::Field;
use thalweg_text::calendar::HOUR_NS;

mod ages;
mod sums;

pub(crate) use ages::Ages;
#[cfg(test)]
pub(crate) use sums::GRACE_NS;

/// Files with fewer rows are worth joining.
const SMALL_ROWS: u64 = ROW_GROUP_ROWS as u64 / 2;
/// Rows between checks whether compaction should stop.
const LOOK_ROWS: usize = 4096;
/// The most rows of a compacted file.
const COMPACTED_ROWS_MAX: u64 = 8 * ROW_GROUP_ROWS as u64;

/// The retention policy. Whole hours are removed, oldest first; of the latest hour single files are removed,
/// and the newest file stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Hours that ended longer ago than this are removed. Both the wall clock and the writer's own
    /// measurement must agree, so that setting a clock removes nothing.
    pub age_max_s: Option<u64>,
    /// The oldest records are removed until all files together have at most this many bytes.
    pub bytes_max: Option<u64>,
    /// Bytes of the file system to keep free: nothing is written while less is free. By default a twentieth
    /// of the file system, at most a gigabyte.
    pub free_min: Option<u64>,
    /// Remove the oldest records when less than `free_min` is free.
    pub makes_room: bool,
    /// The sums that are kept for longer than records.
    pub rollups: RollupRetention,
    /// Hours that ended longer ago than this are removed in the archive.
    pub archive_age_max_s: Option<u64>,
}

impl Retention {
    /// Whether the policy can remove anything.
    pub fn removes(&self) -> bool {
        self.age_max_s.is_some() || self.bytes_max.is_some() || self.makes_room || self.rollups.is_wanted()
    }
}

thalweg_base::counters! {
    /// What maintenance did.
    Upkeep {
        files_joined: "Files that were joined with others.";
        records_joined: "Records in the joined files.";
        files_made: "Files made from joined ones.";
        files_expired: "Files removed because of age or size.";
        records_expired: "Records in the removed files, as far as they were readable.";
        bytes_expired: "Bytes of the removed files.";
        rollups_made: "Rollups of hours that were made, or made again.";
        files_archived: "Files that are in the archive since.";
        records_archived: "Records in these files.";
        bytes_archived: "Bytes of these files.";
        rollups_archived: "Rollups that are there since.";
        objects_expired: "Objects of the archive that were removed because of their age.";
        object_bytes_expired: "Bytes of these objects.";
        records_unarchived: "Of the removed records, those that an archive should have and has not.";
        files_fed: "Files whose records the feed's place has since.";
        records_fed: "Records in these files.";
        records_unfed: "Of the removed records, those that the feed had not sent.";
    }
}

impl Upkeep {
    /// What was removed, for the operator; `None` if nothing was.
    pub(crate) fn removed(&self) -> Option<String> {
        (self.files_expired > 0).then(|| {
            let size = megabytes(self.bytes_expired);
            let lost = |count: u64, what: &str| match count {
                0 => String::new(),
                count => format!("; {count} of these records were not {what} yet and are lost there"),
            };
            let lost =
                lost(self.records_unarchived, "archived") + &lost(self.records_unfed, "sent by the feed");
            format!(
                "{} records in {} files ({size}) were removed, the oldest first{lost}",
                self.records_expired, self.files_expired
            )
        })
    }
}

/// The state for changes to a dataset: the right to change it, and the next file number.
pub(crate) struct Changes {
    pub(crate) root: PathBuf,
    /// Held while names change, so that views in this process see a whole change or none of it.
    pub(crate) publish: Mutex<()>,
    /// Held while files are joined or removed: one thread does that at a time.
    pub(crate) upkeep: Mutex<()>,
    /// The Iceberg table. Held from before files come or go until the table says so; taken before `publish`.
    pub(crate) table: Mutex<Table>,
    pub(crate) next_id: AtomicU64,
    /// Files are to be in an archive before they may be too old.
    pub(crate) archives: bool,
    /// Files are to be sent by the feed before they may be too old.
    pub(crate) feeds: bool,
    /// Where the feed is, if there ever was one, or why that is unknown.
    pub(crate) fed: Mutex<Result<Option<Fed>, String>>,
    /// Marks of an archive that were damaged, each told once.
    pub(crate) damaged: Arc<Mutex<Skipped>>,
    /// Set to stop compaction early, so that nobody waits for it.
    pub(crate) ending: Arc<AtomicBool>,
}

impl Changes {
    /// For the holder of the dataset's lock; numbers of new files begin here.
    pub(crate) fn new(root: &Path, next_id: u64, table: Table) -> Self {
        let fed = Fed::read(root);
        // Files that were sent may all be gone, and their numbers are not to come back.
        let sent = fed.as_ref().ok().and_then(Option::as_ref).map_or(0, |fed| fed.sent.saturating_add(1));
        let next_id = next_id.max(sent);
        let (publish, upkeep, ending, damaged) = Default::default();
        Self {
            root: root.to_path_buf(),
            publish,
            upkeep,
            table: Mutex::new(table),
            next_id: AtomicU64::new(next_id),
            archives: false,
            feeds: false,
            fed: Mutex::new(fed),
            damaged,
            ending,
        }
    }

    /// Whether files must be elsewhere before they may be too old.
    fn sends(&self) -> bool {
        self.archives || self.feeds
    }

    pub(crate) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Joins small files of every hour, unless stopped; then looks whether the table is as the files are.
    pub(crate) fn compact(&self) -> Result<Upkeep, StoreError> {
        let _upkeep = self.upkeep.lock();
        let mut done = Upkeep::default();
        for partition in dataset::partitions(&self.root)? {
            if !self.join(&partition, &mut done)? {
                return Ok(done);
            }
        }
        self.table.lock().follow()?;
        Ok(done)
    }

    /// Joins small files of an hour, but for those that are in a rollup, those that an archive has or gets, and those that a
    /// feed has not sent; returns whether it was not stopped. For the holder of `upkeep`.
    pub(crate) fn join(&self, partition: &Partition, done: &mut Upkeep) -> Result<bool, StoreError> {
        let mut view = dataset::open_all(&dataset::published(&partition.path)?)?;
        // Of a damaged rollup nobody knows what it covers: making the next one tells that.
        let Ok(covered) = rollup::covered(&self.root, partition.hour) else { return Ok(true) };
        let marks = self.marks(&partition.path)?;
        view.files.retain(|file| !covered.contains(name_of(&file.path)) && !marks.is_frozen(&file.path));
        view.files.retain(|file| self.may_join(file));
        for files in groups(&view) {
            let Some(mut compaction) = Compaction::write(self, &partition.path, files)? else {
                return Ok(false);
            };
            self.put(&mut compaction, partition)?;
            done.files_joined += compaction.replaced.len() as u64;
            done.files_made += 1;
            done.records_joined += compaction.rows;
        }
        Ok(true)
    }

    /// Puts a new file in the place of those that it replaces.
    fn put(&self, compaction: &mut Compaction, partition: &Partition) -> Result<(), StoreError> {
        {
            let mut table = self.table.lock();
            compaction.publish(&self.publish)?;
            if let Err(error) = table.commit([partition.hour], &[]) {
                compaction.withdraw()?;
                return Err(error);
            }
            let _names = self.publish.lock();
            compaction.remove_replaced()?;
        }
        dataset::sync_folder(&partition.path)
    }

    /// Applies the retention policy. `now_ns` is the wall clock's time; with `ages`, records must also be old
    /// by the writer's own measurement.
    pub(crate) fn retain(
        &self,
        policy: Retention,
        now_ns: u64,
        ages: Option<&Ages>,
    ) -> Result<Upkeep, StoreError> {
        let _upkeep = self.upkeep.lock();
        let mut done = Upkeep::default();
        let clock = Clock { now_ns, ages };
        let mut failed = None;
        if let Some(age_s) = policy.age_max_s {
            let mut old = clock.old(&self.root, age_s)?;
            // What is old waits until its sums are on disk.
            old.retain(|(partition, _)| match self.cover(partition, policy, clock, &mut done) {
                Ok(()) => true,
                Err(error) => {
                    failed.get_or_insert(error);
                    false
                }
            });
            if self.sends() {
                for (partition, files) in &mut old {
                    self.keep_sent(partition, files)?;
                }
            }
            self.expire(&old, &mut done)?;
            if let Some(ages) = ages {
                old.iter().for_each(|(partition, _)| ages.forget(partition.hour));
            }
        }
        for level in Level::ALL {
            if let Some(age_s) = policy.rollups.age_max_s(level) {
                let mut old = clock.old(&level.folder(&self.root), age_s)?;
                if self.sends() {
                    for (partition, files) in &mut old {
                        self.keep_sent(partition, files)?;
                    }
                }
                self.remove_all(&old, &mut done)?;
            }
        }
        if let Some(bytes_max) = policy.bytes_max {
            let bytes = self.bytes()?;
            self.remove_oldest(bytes.saturating_sub(bytes_max), policy, clock, &mut done)?;
        }
        if policy.makes_room {
            self.free_up(policy, clock, &mut done)?;
        }
        failed.map_or(Ok(done), Err)
    }

    /// The bytes of all files, with those of rollups.
    fn bytes(&self) -> Result<u64, StoreError> {
        let mut files = dataset::list(&self.root, Window::ALL)?;
        for level in Level::ALL {
            files.extend(dataset::list(&level.folder(&self.root), Window::ALL)?);
        }
        Ok(files.iter().map(|path| size(path)).sum())
    }

    /// Removes the oldest records until the reserve is free. Does nothing while another thread joins or
    /// removes files.
    pub(crate) fn make_room(
        &self,
        policy: Retention,
        now_ns: u64,
        ages: &Ages,
    ) -> Result<Upkeep, StoreError> {
        let mut done = Upkeep::default();
        if let Some(_upkeep) = self.upkeep.try_lock() {
            self.free_up(policy, Clock { now_ns, ages: Some(ages) }, &mut done)?;
        }
        Ok(done)
    }

    fn free_up(&self, policy: Retention, clock: Clock<'_>, done: &mut Upkeep) -> Result<(), StoreError> {
        let Some(space) = Space::of(&self.root) else { return Ok(()) };
        // Frees half as much again, so that not every written file triggers another removal.
        let reserve = space.reserve(policy.free_min);
        if space.free >= reserve {
            return Ok(());
        }
        self.remove_oldest((reserve - space.free).saturating_add(reserve / 2), policy, clock, done)
    }

    /// Removes at least this many bytes if possible: with an archive or a feed, first of what was sent, then of what was not.
    /// Then sums go, those by minutes first.
    fn remove_oldest(
        &self,
        bytes: u64,
        policy: Retention,
        clock: Clock<'_>,
        done: &mut Upkeep,
    ) -> Result<(), StoreError> {
        let mut left = bytes;
        let mut summed = Ok(());
        let passes: &[bool] = if self.sends() { &[true, false] } else { &[false] };
        for only_sent in passes {
            let going = self.oldest(&mut left, *only_sent)?;
            // Room is made even if there is none for sums; the error is told.
            for (partition, _) in &going {
                summed = summed.and(self.cover(partition, policy, clock, done));
            }
            self.expire(&going, done)?;
        }
        let mut sums = Vec::new();
        for level in Level::ALL {
            take_oldest(filled(&level.folder(&self.root))?, &mut left, &mut sums);
        }
        self.remove_all(&sums, done)?;
        summed
    }

    /// Hours, the oldest first, then files of the latest hour, as many as have the bytes that are left to remove. The newest
    /// file stays.
    fn oldest(&self, left: &mut u64, only_sent: bool) -> Result<Vec<(Partition, Vec<PathBuf>)>, StoreError> {
        let mut partitions = filled(&self.root)?;
        let latest_hour = partitions.last_mut().map(|(partition, files)| {
            files.pop();
            partition.hour
        });
        if only_sent {
            for (partition, files) in &mut partitions {
                self.keep_sent(partition, files)?;
            }
        }
        partitions.retain(|(_, files)| !files.is_empty());
        let mut going = Vec::new();
        let latest = partitions.pop_if(|(partition, _)| Some(partition.hour) == latest_hour);
        take_oldest(partitions, left, &mut going);
        if let Some((partition, mut files)) = latest {
            let mut goes = |path: &PathBuf| {
                let goes = *left > 0;
                *left = left.saturating_sub(size(path));
                goes
            };
            files.retain(&mut goes);
            if !files.is_empty() {
                going.push((partition, files));
            }
        }
        Ok(going)
    }

    /// Of the files of an hour, or its rollups, those that the archive has and the feed has sent.
    fn keep_sent(&self, partition: &Partition, files: &mut Vec<PathBuf>) -> Result<(), StoreError> {
        let marks = if self.archives { Some(self.marks(&partition.path)?) } else { None };
        files.retain(|file| marks.as_ref().is_none_or(|marks| marks.is_archived(file)) && self.is_fed(file));
        Ok(())
    }

    /// Removes these files of hours, and folders that nothing is left in.
    fn expire(&self, going: &[(Partition, Vec<PathBuf>)], done: &mut Upkeep) -> Result<(), StoreError> {
        if going.is_empty() {
            return Ok(());
        }
        let mut table = self.table.lock();
        let all: Vec<PathBuf> = going.iter().flat_map(|(_, files)| files.iter().cloned()).collect();
        let told = table.commit(going.iter().map(|(partition, _)| partition.hour), &all);
        // Room is made even if the table cannot be told, for lack of room perhaps; a later commit mends it.
        self.remove_all(going, done)?;
        told
    }

    /// [`Self::expire`] for files that no table has.
    fn remove_all(&self, going: &[(Partition, Vec<PathBuf>)], done: &mut Upkeep) -> Result<(), StoreError> {
        for (partition, files) in going {
            let _names = self.publish.lock();
            let marks = if self.archives { Some(self.marks(&partition.path)?) } else { None };
            for path in files {
                let (before, is_fed) = (done.records_expired, self.is_fed(path));
                remove(path, done)?;
                let removed = done.records_expired - before;
                if marks.as_ref().is_some_and(|marks| !marks.is_archived(path)) {
                    done.records_unarchived += removed;
                }
                if !is_fed {
                    done.records_unfed += removed;
                }
            }
            if dataset::published(&partition.path)?.is_empty() {
                Marks::forget(&partition.path);
            }
            // Files of others may be left; then the folders stay.
            if fs::remove_dir(&partition.path).is_ok()
                && let Some(day) = partition.path.parent()
            {
                let _ = fs::remove_dir(day);
            }
        }
        Ok(())
    }
}

/// What says how old an hour is.
#[derive(Clone, Copy)]
struct Clock<'a> {
    now_ns: u64,
    ages: Option<&'a Ages>,
}

impl Clock<'_> {
    fn is_old(self, hour: u64, age_s: u64) -> bool {
        let keep_from_ns = self.now_ns.saturating_sub(age_s.saturating_mul(1_000_000_000));
        let age = Duration::from_secs(age_s);
        (hour + 1).saturating_mul(HOUR_NS) <= keep_from_ns
            && self.ages.is_none_or(|ages| ages.measured(hour, Instant::now()) >= age)
    }

    /// The hours of a folder that are old, with their files.
    fn old(self, root: &Path, age_s: u64) -> Result<Vec<(Partition, Vec<PathBuf>)>, StoreError> {
        let mut old = Vec::new();
        for partition in dataset::partitions(root)? {
            if self.is_old(partition.hour, age_s) {
                let files = dataset::published(&partition.path)?;
                old.push((partition, files));
            }
        }
        Ok(old)
    }

    /// The rollups that an hour is to have.
    fn levels(self, keep: RollupRetention, hour: u64) -> Vec<Level> {
        let mut levels = Level::ALL.to_vec();
        levels.retain(|level| keep.age_max_s(*level).is_some_and(|age_s| !self.is_old(hour, age_s)));
        levels
    }
}

/// The hours of a folder that have files, oldest first.
fn filled(root: &Path) -> Result<Vec<(Partition, Vec<PathBuf>)>, StoreError> {
    let mut partitions = Vec::new();
    for partition in dataset::partitions(root)? {
        let files = dataset::published(&partition.path)?;
        // Ignore folders of others, and hours whose records are gone.
        if !files.is_empty() {
            partitions.push((partition, files));
        }
    }
    Ok(partitions)
}

/// Takes the oldest hours, as many as have the bytes that are left to remove.
fn take_oldest(
    partitions: Vec<(Partition, Vec<PathBuf>)>,
    left: &mut u64,
    going: &mut Vec<(Partition, Vec<PathBuf>)>,
) {
    for (partition, files) in partitions {
        if *left == 0 {
            break;
        }
        *left = left.saturating_sub(files.iter().map(|path| size(path)).sum());
        going.push((partition, files));
    }
}

/// Removes a file and counts its content. A file that is gone already does not count.
fn remove(path: &Path, done: &mut Upkeep) -> Result<(), StoreError> {
    let rows = FlowFile::open(path).map_or(0, |file| if file.rollup.is_some() { 0 } else { file.rows() });
    let bytes = size(path);
    match fs::remove_file(path).map_err(StoreError::io("remove", path)) {
        Ok(()) => {
            done.records_expired += rows;
            done.bytes_expired += bytes;
            done.files_expired += 1;
            Ok(())
        }
        Err(error) if error.is_gone() => Ok(()),
        Err(error) => Err(error),
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Groups of small files to join, each up to the limit of a file.
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

/// A group of files that become one.
pub(crate) struct Compaction {
    file: Temporary,
    replaced: Vec<PathBuf>,
    rows: u64,
}

impl Compaction {
    /// Writes the records of these files of one folder to a temporary file; `None` if compaction must stop.
    pub(crate) fn write(
        changes: &Changes,
        partition: &Path,
        files: Vec<Arc<FlowFile>>,
    ) -> Result<Option<Self>, StoreError> {
        let spans = || files.iter().filter_map(|file| file.span());
        let from_ns = spans().map(|(from, _)| from).min().unwrap_or(0);
        let to_ns = spans().map(|(_, to)| to).max().unwrap_or(0);
        let new = Temporary::of(partition.join(dataset::file_name(from_ns, to_ns, changes.id())));
        let names: Vec<String> = files.iter().map(|file| name_of(&file.path).to_owned()).collect();
        let mut writer = FileWriter::create(new.path(), &names)?;
        let mut records: Vec<FlowRecord> = Vec::new();
        let (mut rows, mut spare) = (0, Spare::default());
        for file in &files {
            for (number, group) in file.row_groups.iter().enumerate() {
                let mut block = Block::new(group.rows);
                file.load(number, Field::STORED, &mut block)?;
                for row in 0..group.rows {
                    records.push(block.record(row)?);
                    if records.len() == ROW_GROUP_ROWS {
                        rows += append(&mut writer, &mut records, &mut spare)?;
                    }
                    if row % LOOK_ROWS == 0 && changes.is_ending() {
                        return Ok(None);
                    }
                }
            }
        }
        rows += append(&mut writer, &mut records, &mut spare)?;
        writer.finish()?;
        let replaced = files.iter().map(|file| file.path.clone()).collect();
        Ok(Some(Self { file: new, replaced, rows }))
    }

    /// Gives the new file its name, durably. Names are held for the change alone: views would wait for the disk.
    pub(crate) fn publish(&mut self, names: &Mutex<()>) -> Result<(), StoreError> {
        let changing = names.lock();
        let path = self.file.publish()?;
        drop(changing);
        // The new name must be on disk before an old file is removed.
        path.parent().map_or(Ok(()), dataset::sync_folder)
    }

    /// Removes the new file, before any that it replaces is gone.
    fn withdraw(&self) -> Result<(), StoreError> {
        let path = self.file.name();
        fs::remove_file(path).map_err(StoreError::io("remove", path))
    }

    /// Removes the replaced files.
    pub(crate) fn remove_replaced(&self) -> Result<(), StoreError> {
        for path in &self.replaced {
            fs::remove_file(path).map_err(StoreError::io("remove", path))?;
        }
        Ok(())
    }
}

fn append(
    writer: &mut FileWriter,
    records: &mut Vec<FlowRecord>,
    spare: &mut Spare,
) -> Result<u64, StoreError> {
    let rows = records.len() as u64;
    if rows > 0 {
        writer.append(records.iter(), spare)?;
        records.clear();
    }
    Ok(rows)
}

/// What the writer found and cleaned up at its start.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The last writer's text in the lock file, if it did not end cleanly: who it was, and how much may be
    /// lost.
    pub unclean: Option<String>,
    pub torn_removed: u64,
    /// Files removed because a compacted one had already replaced them.
    pub replaced_removed: u64,
    /// Files that are damaged or not the dataset's.
    pub skipped: Skipped,
}

/// Cleans up after an interrupted writer; returns the report and the next file number. Only for the holder of
/// the lock.
pub(crate) fn recover(root: &Path) -> Result<(Recovery, u64), StoreError> {
    let mut recovery = Recovery::default();
    let mut next_id = 1;
    let mut partitions = dataset::partitions(root)?;
    for level in Level::ALL {
        partitions.extend(dataset::partitions(&level.folder(root))?);
    }
    for partition in partitions {
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
