//! The writer's threads: one writes pending records to disk, another joins and removes files. Others archive them and
//! send them on (`archiving`, `feeding`).

use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_flow::FlowRecord;

use super::others::{Improper, Other};
use super::{Shared, State, owner};
use crate::block::Spare;
use crate::dataset::{self, Temporary};
use crate::error::StoreError;
use crate::file::{FileWriter, ROW_GROUP_ROWS};
use crate::space;
use crate::upkeep::{Changes, Upkeep};
use thalweg_text::calendar::HOUR_NS;

/// How often to check for free space while nothing is written.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Retention by size is applied whenever one in this many parts of the limit was written.
const RETENTION_PARTS: u64 = 50;

type Batch = Arc<[FlowRecord]>;

impl Shared {
    /// The body of the writing thread.
    pub(super) fn write(&self) {
        let (first, longest) = self.options.retry.clone().into_inner();
        let mut retry = first;
        let mut spare = Spare::default();
        self.look_for_room();
        loop {
            let state = self.wait_for_work();
            if state.pending.is_empty() {
                return;
            }
            let batches = next_batches(&state);
            drop(state);
            match self.publish(batches, &mut spare) {
                Ok(()) => retry = first,
                Err(error) => {
                    let is_closing = self.note_failure(&error);
                    if error.is_full() && self.makes_room() {
                        continue;
                    }
                    if is_closing {
                        return;
                    }
                    self.wait_to_retry(retry);
                    // Doubles the pause.
                    retry = (retry * 2).min(longest);
                }
            }
        }
    }

    /// Waits until something must be written or the writer ends. Checks for free space from time to time.
    fn wait_for_work(&self) -> MutexGuard<'_, State> {
        let mut looked = Instant::now();
        let mut state = self.state();
        loop {
            let timeout = match self.due(&state) {
                Some(Duration::ZERO) => return state,
                timeout => timeout.map_or(LOOK_EVERY, |timeout| timeout.min(LOOK_EVERY)),
            };
            self.work.wait_for(&mut state, timeout);
            if looked.elapsed() >= LOOK_EVERY {
                drop(state);
                self.look_for_room();
                looked = Instant::now();
                state = self.state();
                // Without records to come, no memory is needed.
                if state.pending.is_empty() {
                    state.spare.clear();
                }
            }
        }
    }

    /// Warns early that files cannot be written, and reports when they can again.
    fn look_for_room(&self) {
        match space::check(&self.changes.root, self.options.retention.free_min) {
            Ok(()) => self.end_trouble("can be written"),
            Err(error) if error.is_full() && self.makes_room() => {}
            Err(error) => drop(self.note_failure(&error)),
        }
    }

    /// Ends a problem with writing; reports this if the problem was reported.
    fn end_trouble(&self, what: &str) {
        let mut state = self.state();
        let trouble = state.trouble.end(Instant::now());
        let refused = state.status.records_refused;
        drop(state);
        if let Some(lasted) = trouble {
            let (root, lasted) = (self.changes.root.display(), lasted.as_secs());
            self.options.notify.info(&format!(
                "flow records {what} to {root} again, after {lasted} s; {refused} records found no room so far"
            ));
        }
    }

    /// Counts a failed write and tells the operator; returns whether the writer is closing.
    fn note_failure(&self, error: &StoreError) -> bool {
        let mut state = self.state();
        state.failures += 1;
        state.status.errors += 1;
        state.status.last_error = Some(error.to_string());
        let tells = state.trouble.note(Instant::now());
        let (pending, refused) = (state.pending_records, state.status.records_refused);
        let is_closing = state.closing;
        drop(state);
        if tells {
            let (root, max) = (self.changes.root.display(), self.options.pending_records_max);
            self.options.notify.warn(&format!(
                "no flow records are written to {root}: {error}; {pending} of at most {max} records wait, {refused} found no \
                 room so far; trying again every {} s",
                self.options.retry.end().as_secs()
            ));
        }
        // Wake threads that wait for this write, so that they see the failure.
        self.written.notify_all();
        is_closing
    }

    /// If configured, removes the oldest records for lack of space; returns whether that helped.
    fn makes_room(&self) -> bool {
        let retention = self.options.retention;
        if !retention.makes_room {
            return false;
        }
        match self.changes.make_room(retention, (self.options.now_ns)(), &self.ages) {
            Ok(done) => {
                self.note_upkeep(&done);
                done.files_expired > 0
            }
            Err(error) => {
                self.note_upkeep_failure(&error);
                false
            }
        }
    }

    /// Waits before the next attempt; a flush request ends the wait early.
    fn wait_to_retry(&self, retry: Duration) {
        let until = Instant::now() + retry;
        let mut state = self.state();
        let asked = state.flushes;
        while !state.closing && state.flushes == asked {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.work.wait_for(&mut state, left);
        }
    }

    /// Writes the first pending batches to disk. Their memory takes records that come later.
    fn publish(&self, batches: Vec<Batch>, spare: &mut Spare) -> Result<(), StoreError> {
        self.keep_lock()?;
        space::check(&self.changes.root, self.options.retention.free_min)?;
        let mut files = self.write_files(&batches, spare)?;
        let mut table = self.changes.table.lock();
        let bytes =
            files.iter().map(|file| fs::metadata(file.path()).map_or(0, |metadata| metadata.len())).sum();
        {
            let _names = self.changes.publish.lock();
            Temporary::publish_all(&mut files)?;
            let mut state = self.state();
            for _ in &batches {
                if let Some(batch) = state.pending.pop_front() {
                    state.pending_records -= batch.len();
                }
            }
            // The remaining records arrived while files were written. With one interval from now, a crash
            // loses no more than one interval plus the time of writing.
            state.oldest = (!state.pending.is_empty()).then(Instant::now);
            state.status.files_published += files.len() as u64;
        }
        // The files have their names now and are not written again, even if the names are not on disk yet.
        let mut folders = files.iter().filter_map(|file| file.path().parent());
        let synced = folders.try_for_each(dataset::sync_folder);
        let ends = batches.iter().flat_map(|batch| batch.iter()).map(|record| record.counters.last_ns);
        if let Err(error) = table.commit(ends.map(|end_ns| end_ns / HOUR_NS), &[]) {
            // Only the table lacks these records, until a later commit.
            self.note_upkeep_failure(&error);
        }
        let records = batches.iter().map(|batch| batch.len() as u64).sum();
        self.state().spare = batches;
        self.note_written(records, bytes);
        synced
    }

    fn note_written(&self, records: u64, bytes: u64) {
        let mut state = self.state();
        state.status.records_written += records;
        state.bytes_since_retention += bytes;
        let wakes = self.retention_is_due(&state) || self.options.feed.is_some();
        drop(state);
        self.end_trouble("are written");
        self.written.notify_all();
        if wakes {
            self.work.notify_all();
        }
    }

    fn retention_is_due(&self, state: &State) -> bool {
        let retention = self.options.retention;
        retention.bytes_max.is_some_and(|max| state.bytes_since_retention > max / RETENTION_PARTS)
    }

    /// Takes the lock again if the folder was removed: files then go to a new one.
    fn keep_lock(&self) -> Result<(), StoreError> {
        let mut lock = self.lock.lock();
        if lock.is_in_place() {
            return Ok(());
        }
        lock.take_again(&owner(&self.options))?;
        let root = self.changes.root.display();
        self.options.notify.warn(&format!(
            "{root} was removed or replaced while flow records were written to it: it is made anew; until a restart, what is \
             not on disk yet is missing from answers of `thalweg flows`"
        ));
        Ok(())
    }

    /// Writes temporary files, one per hour. Dropping them removes them unless they are published.
    fn write_files(&self, batches: &[Batch], spare: &mut Spare) -> Result<Vec<Temporary>, StoreError> {
        let hour_of = |record: &FlowRecord| record.counters.last_ns / HOUR_NS;
        let mut hours: BTreeMap<u64, (Vec<&FlowRecord>, u64, u64)> = BTreeMap::new();
        for batch in batches {
            for same in batch.chunk_by(|one, next| hour_of(one) == hour_of(next)) {
                let (records, first_ns, last_ns) =
                    hours.entry(hour_of(&same[0])).or_insert_with(|| (Vec::new(), u64::MAX, 0));
                for end_ns in same.iter().map(|record| record.counters.last_ns) {
                    (*first_ns, *last_ns) = (end_ns.min(*first_ns), end_ns.max(*last_ns));
                }
                records.extend(same);
            }
        }
        let mut files = Vec::with_capacity(hours.len());
        for (hour, (records, first_ns, last_ns)) in hours {
            let partition = dataset::partition_path(&self.changes.root, hour);
            self.make_partition(&partition)?;
            self.ages.note(hour, Instant::now());
            let name = partition.join(dataset::file_name(first_ns, last_ns, self.changes.id()));
            let file = Temporary::of(name);
            let mut writer = FileWriter::create(file.path(), &[])?;
            writer.append(records.iter().copied(), spare)?;
            writer.finish()?;
            files.push(file);
        }
        Ok(files)
    }

    /// Makes an hour's folder and syncs the names of new folders.
    pub(super) fn make_partition(&self, partition: &Path) -> Result<(), StoreError> {
        if partition.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(partition).map_err(StoreError::io("create", partition))?;
        if let Some(day) = partition.parent() {
            dataset::sync_folder(day)?;
        }
        dataset::sync_folder(&self.changes.root)
    }

    /// The body of the maintenance thread: it applies retention, first when the writer begins and last when
    /// it ends, and joins files in between.
    pub(super) fn upkeep(&self) {
        let interval = Duration::from_secs(self.options.upkeep_interval_s);
        self.do_upkeep(false);
        let mut last = Instant::now();
        loop {
            let mut state = self.state();
            while !state.closing && last.elapsed() < interval && !self.retention_is_due(&state) {
                let left = interval.saturating_sub(last.elapsed());
                self.work.wait_for(&mut state, left);
            }
            if state.closing {
                return;
            }
            drop(state);
            let is_due = last.elapsed() >= interval;
            self.do_upkeep(is_due);
            if is_due {
                last = Instant::now();
            }
        }
    }

    /// Applies retention and, if requested, joins small files.
    fn do_upkeep(&self, joins: bool) {
        self.apply_retention();
        if joins {
            match self.changes.compact().and_then(|mut done| {
                self.look_after_others(&mut done)?;
                done.add(&self.sum_hours(&self.changes)?);
                Ok(done)
            }) {
                Ok(done) => self.note_upkeep(&done),
                Err(error) => self.note_upkeep_failure(&error),
            }
        }
    }

    fn sum_hours(&self, changes: &Changes) -> Result<Upkeep, StoreError> {
        changes.sum_hours(self.options.retention.rollups, (self.options.now_ns)(), Some(&self.ages))
    }

    /// Does the same in the folders of writers that have ended.
    fn look_after_others(&self, done: &mut Upkeep) -> Result<(), StoreError> {
        self.in_others(Improper::Taken, |_, other| {
            let Other::Ended(changes) = other else { return Ok(()) };
            changes.table.lock().follow()?;
            let now_ns = (self.options.now_ns)();
            done.add(&changes.retain(self.options.retention, now_ns, Some(&self.ages))?);
            done.add(&changes.compact()?);
            done.add(&self.sum_hours(changes)?);
            Ok(())
        })
    }

    pub(super) fn apply_retention(&self) {
        let retention = self.options.retention;
        self.state().bytes_since_retention = 0;
        if !retention.removes() {
            return;
        }
        match self.changes.retain(retention, (self.options.now_ns)(), Some(&self.ages)) {
            Ok(done) => self.note_upkeep(&done),
            Err(error) => self.note_upkeep_failure(&error),
        }
    }

    /// Tells of marks that were found damaged since.
    pub(super) fn tell_damaged(&self) {
        let damaged = self.changes.damaged.lock().named.clone();
        let mut state = self.state();
        let told = state.damaged_told;
        state.damaged_told = told.max(damaged.len());
        drop(state);
        for (path, what) in damaged.iter().skip(told) {
            self.options.notify.warn(&format!("{}: {what}", path.display()));
        }
    }

    fn note_upkeep(&self, done: &Upkeep) {
        self.tell_damaged();
        let mut state = self.state();
        state.status.upkeep.add(done);
        state.upkeep_trouble.end(Instant::now());
        drop(state);
        if let Some(removed) = done.removed() {
            let said = format!("{}: {removed}", self.changes.root.display());
            match done.records_unarchived + done.records_unfed {
                0 => self.options.notify.info(&said),
                _ => self.options.notify.warn(&said),
            }
        }
    }

    pub(super) fn note_upkeep_failure(&self, error: &StoreError) {
        self.tell_damaged();
        let mut state = self.state();
        state.status.errors += 1;
        state.status.last_error = Some(error.to_string());
        let tells = state.upkeep_trouble.note(Instant::now());
        drop(state);
        if tells {
            let root = self.changes.root.display();
            self.options.notify.warn(&format!(
                "files of {root} cannot be joined, summed, removed or put into its table: {error}"
            ));
        }
    }
}

/// The next batches to write: as many as fill a row group. After a failure, a single batch shows quickly
/// whether writing works again, so that closing does not take long.
fn next_batches(state: &State) -> Vec<Batch> {
    if state.trouble.lasts() {
        return state.pending.front().cloned().into_iter().collect();
    }
    let mut records = 0;
    let batches = state.pending.iter().take_while(|batch| {
        let first = records == 0;
        records += batch.len();
        first || records <= ROW_GROUP_ROWS
    });
    batches.cloned().collect()
}
