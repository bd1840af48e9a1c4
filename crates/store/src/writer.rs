//! The writer takes records from any number of threads and writes them to disk on its own thread.
//!
//! ```text
//! append, offer --> pending batches --> sorted, cut by hour, encoded, synced --> renamed, and no longer pending
//!                   (bounded)           (writer's thread)                        (at once, for views of this process)
//! ```
//!
//! A record is in a file on disk at most `flush_interval_s` after it was handed over, or as soon as a row
//! group is full. If the process dies, only pending records are lost; the next writer reports that.
//!
//! If a file cannot be written (full disk, exhausted quota, read-only file system), its beginning is removed,
//! the operator is told ([`Notify`]), the records stay pending, and the writer retries at growing intervals
//! of up to ten seconds. It checks for free space every few seconds, so that it can warn before anything is
//! lost. Meanwhile the queue fills: `append` waits, `append_within` gives up in time, `offer` refuses and
//! counts. When the writer ends, it tries once more; records still pending are then lost and counted
//! ([`StoreError::Lost`]). If less than the reserve of the file system ([`Retention::free_min`]) is free, the
//! disk counts as full, so that a dataset never takes the last space from others.
//!
//! A second thread does the maintenance, so that joining files never delays writing them. Closing the writer
//! waits for no interval and stops a running compaction.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;

use crate::dataset::{self, Skipped, View, Window};
use crate::error::StoreError;
use crate::feed::{Feed, FeedSession};
use crate::file::ROW_GROUP_ROWS;
use crate::iceberg::Table;
use crate::iceberg::archived::ArchivedTable;
use crate::notify::{Notify, Trouble};
use crate::object::ObjectStore;
use crate::rollup::RollupRetention;
use crate::upkeep::{Ages, Changes, Recovery, Retention, Upkeep, recover};

mod archiving;
mod feeding;
mod listeners;
mod lock;
mod others;
#[cfg(test)]
mod tests;
mod threads;

use listeners::Listener;
use lock::Lock;

/// The most records of a pending batch.
const BATCH_RECORDS: usize = 16_384;

/// The most writers of a dataset at a time.
const WRITERS_MAX: usize = 64;

/// The configuration of a writer.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// The longest time that a record stays pending, in seconds: this much a crash may lose.
    pub flush_interval_s: u64,
    /// The most records that may be pending.
    pub pending_records_max: usize,
    /// Seconds between compaction and retention; 0 disables them.
    pub upkeep_interval_s: u64,
    pub retention: Retention,
    /// Keep an Iceberg table of the dataset. One that is there is kept in any case.
    pub iceberg: bool,
    /// Where hours go when they are complete; retention by age then removes only what is there.
    pub archive: Option<Arc<dyn ObjectStore>>,
    /// Where all records go as soon as they are on disk; retention by age then removes only what was sent.
    pub feed: Option<Arc<dyn Feed>>,
    /// The wall clock, in nanoseconds since the epoch: retention by age never removes anything that is not
    /// old by it.
    pub now_ns: fn() -> u64,
    /// The first and the longest pause before a failed write is retried.
    pub retry: RangeInclusive<Duration>,
    /// Receives problems, and what retention removes.
    pub notify: Notify,
}

impl WriterOptions {
    /// The defaults, with this clock.
    pub fn new(now_ns: fn() -> u64) -> Self {
        Self {
            flush_interval_s: 60,
            pending_records_max: 2 * ROW_GROUP_ROWS,
            upkeep_interval_s: 300,
            retention: Retention::default(),
            iceberg: false,
            archive: None,
            feed: None,
            now_ns,
            retry: Duration::from_secs(1)..=Duration::from_secs(10),
            notify: Notify::default(),
        }
    }
}

impl WriterOptions {
    /// The right to change a folder, as it is used with these options.
    fn changes(&self, root: &Path, next_id: u64, table: Table) -> Changes {
        let (archives, feeds) = (self.archive.is_some(), self.feed.is_some());
        Changes { archives, feeds, ..Changes::new(root, next_id, table) }
    }
}

/// What a writer has done so far.
#[derive(Clone, Debug, Default)]
pub struct WriterStatus {
    pub records_taken: u64,
    /// Records that `offer` refused because too many were pending.
    pub records_refused: u64,
    /// Records on disk.
    pub records_written: u64,
    pub records_pending: u64,
    pub files_published: u64,
    /// Failed writes.
    pub errors: u64,
    pub last_error: Option<String>,
    pub upkeep: Upkeep,
    /// Failed attempts to archive.
    pub archive_errors: u64,
    /// Why nothing is archived now.
    pub archive_error: Option<String>,
    /// Failed attempts to send to the feed.
    pub feed_errors: u64,
    /// Why nothing is sent there now.
    pub feed_error: Option<String>,
    /// Marks of what is archived that were damaged, and made anew.
    pub marks_damaged: Skipped,
}

/// Writes a dataset. Only one writer of a folder exists at a time, in any process.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct Shared {
    changes: Changes,
    ages: Ages,
    options: WriterOptions,
    lock: Mutex<Lock>,
    /// The table of the archive; held during each round of archiving.
    archived: Mutex<ArchivedTable>,
    /// The right to send to the feed; held while that is done.
    session: Mutex<Option<Box<dyn FeedSession>>>,
    state: Mutex<State>,
    /// Wakes the threads for work.
    work: Condvar,
    /// Signals that something was written.
    written: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("root", &self.changes.root).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    pending: VecDeque<Arc<[FlowRecord]>>,
    pending_records: usize,
    /// The batches of the last write. Later ones of the same length go to their memory, because getting as much from the
    /// system takes longer than copying records.
    spare: Vec<Arc<[FlowRecord]>>,
    /// When the oldest pending record arrived.
    oldest: Option<Instant>,
    /// Everything taken up to this count must be written at once.
    flush_until: u64,
    /// The number of flush requests.
    flushes: u64,
    /// Failed attempts to write files.
    failures: u64,
    closing: bool,
    /// Files cannot be written.
    trouble: Trouble,
    /// Files cannot be joined, removed or put into the Iceberg table.
    upkeep_trouble: Trouble,
    /// Hours cannot be archived.
    archive_trouble: Trouble,
    /// Records cannot be sent to the feed.
    feed_trouble: Trouble,
    /// Damaged marks that were told.
    damaged_told: usize,
    /// Bytes of files since retention was last applied.
    bytes_since_retention: u64,
    status: WriterStatus,
    listeners: Vec<Listener>,
    next_tap: u64,
}

impl Writer {
    /// Opens the dataset in this folder for writing and creates the folder if necessary. Cleans up after an
    /// interrupted writer and reports that. Fails with [`StoreError::Busy`] if another writer is active.
    pub fn open(root: &Path, options: WriterOptions) -> Result<(Self, Recovery), StoreError> {
        let (mut lock, left) = Lock::take(root)?;
        let mut table = Table::new(root, options.iceberg, options.now_ns);
        // Recovery removes files that the table may still have.
        let followed = table.follow();
        let (mut recovery, next_id) = recover(root)?;
        recovery.unclean = (!left.is_empty()).then_some(left);
        lock.sign(&owner(&options))?;
        let archived = ArchivedTable::new(dataset::home(root), options.iceberg, options.now_ns);
        let looks_after_itself = options.upkeep_interval_s > 0;
        let changes = options.changes(root, next_id, table);
        // Before anything is joined.
        let fed = options.feed.as_deref().map_or(Ok(()), |feed| changes.fed_to(feed).map(drop));
        let shared = Arc::new(Shared {
            changes,
            ages: Ages::of(root)?,
            options,
            archived: Mutex::new(archived),
            session: Mutex::default(),
            lock: Mutex::new(lock),
            state: Mutex::default(),
            work: Condvar::new(),
            written: Condvar::new(),
        });
        followed.unwrap_or_else(|error| shared.note_upkeep_failure(&error));
        if let Err(error) = &fed {
            shared.note_fed(Some(error));
        }
        let mut writer = Self { shared, threads: Vec::new() };
        writer.start("flow-store", Shared::write)?;
        if looks_after_itself {
            writer.start("flow-upkeep", Shared::upkeep)?;
            if writer.shared.options.archive.is_some() {
                writer.start("flow-archive", Shared::archive)?;
            }
            if writer.shared.options.feed.is_some() {
                writer.start("flow-feed", Shared::feed)?;
            }
        }
        Ok((writer, recovery))
    }

    /// [`Self::open`], or beside the writers that are active there: then in a folder of its own in it.
    pub fn open_beside(root: &Path, options: WriterOptions) -> Result<(Self, Recovery), StoreError> {
        let mut opened = Self::open(root, options.clone());
        for number in 2..=WRITERS_MAX {
            if !matches!(opened, Err(StoreError::Busy { .. })) {
                break;
            }
            opened = Self::open(&dataset::part(root, number), options.clone());
        }
        opened
    }

    /// The folder of its files.
    pub fn root(&self) -> &Path {
        self.shared.root()
    }

    fn start(&mut self, name: &str, run: fn(&Shared)) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(StoreError::io("start a thread for", &self.shared.changes.root))?);
        Ok(())
    }

    /// Takes records; waits for room while too many are pending.
    pub fn append(&self, records: &[FlowRecord]) -> Result<(), StoreError> {
        self.append_until(records, None).map(|_| ())
    }

    /// Takes records and waits at most this long for room; returns how many it took.
    pub fn append_within(&self, records: &[FlowRecord], timeout: Duration) -> Result<usize, StoreError> {
        self.append_until(records, Some(Instant::now() + timeout))
    }

    fn append_until(&self, records: &[FlowRecord], until: Option<Instant>) -> Result<usize, StoreError> {
        let mut taken = 0;
        for batch in records.chunks(BATCH_RECORDS) {
            let mut state = self.shared.state();
            while !self.shared.has_room(&state, batch.len()) && !state.closing {
                match until {
                    None => self.shared.written.wait(&mut state),
                    Some(until) if until <= Instant::now() => return Ok(taken),
                    Some(until) => {
                        self.shared.written.wait_until(&mut state, until);
                    }
                }
            }
            if state.closing {
                return Err(StoreError::Closed);
            }
            self.shared.take(&mut state, batch);
            taken += batch.len();
        }
        Ok(taken)
    }

    /// Whether the last attempt to write a file failed.
    pub fn is_in_trouble(&self) -> bool {
        self.shared.state().trouble.lasts()
    }

    /// Takes records as far as there is room, without waiting; returns how many it took. The others are
    /// counted.
    pub fn offer(&self, records: &[FlowRecord]) -> usize {
        let mut taken = 0;
        for batch in records.chunks(BATCH_RECORDS) {
            let mut state = self.shared.state();
            if state.closing || !self.shared.has_room(&state, batch.len()) {
                state.status.records_refused += (records.len() - taken) as u64;
                break;
            }
            self.shared.take(&mut state, batch);
            taken += batch.len();
        }
        taken
    }

    /// Writes everything taken so far to disk. Fails with the error of a failed write; the records then stay
    /// pending.
    pub fn flush(&self) -> Result<(), StoreError> {
        let mut state = self.shared.state();
        let (until, failures) = (state.status.records_taken, state.failures);
        state.flush_until = until;
        state.flushes += 1;
        self.shared.work.notify_all();
        while state.status.records_written < until {
            if state.failures > failures {
                return Err(StoreError::Query(state.status.last_error.clone().unwrap_or_default()));
            }
            if state.closing {
                return Err(StoreError::Closed);
            }
            self.shared.written.wait(&mut state);
        }
        Ok(())
    }

    /// Files on disk and pending records; each record appears once.
    pub fn view(&self, window: Window) -> Result<View, StoreError> {
        let _names = self.shared.changes.publish.lock();
        let mut view = dataset::view_of_part(self.root(), window)?;
        self.shared.state().pending.iter().for_each(|batch| view.add_batch(Arc::clone(batch)));
        Ok(view)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Joins small files now.
    pub fn compact(&self) -> Result<Upkeep, StoreError> {
        let done = self.shared.changes.compact()?;
        self.shared.state().status.upkeep.add(&done);
        Ok(done)
    }

    /// Archives complete hours now, if there is an archive.
    pub fn archive(&self) -> Result<Upkeep, StoreError> {
        self.shared.archive_once()
    }

    /// Sends to the feed what it lacks of all files, if there is a feed.
    pub fn feed(&self) -> Result<Upkeep, StoreError> {
        self.shared.feed_once()
    }

    /// Makes the rollups of hours that have ended now, by the wall clock alone.
    pub fn roll_up(&self, keep: RollupRetention) -> Result<Upkeep, StoreError> {
        let done = self.shared.changes.sum_hours(keep, (self.shared.options.now_ns)(), None)?;
        self.shared.state().status.upkeep.add(&done);
        Ok(done)
    }

    /// Applies a retention policy now, by the wall clock alone.
    pub fn retain(&self, policy: Retention) -> Result<Upkeep, StoreError> {
        let done = self.shared.changes.retain(policy, (self.shared.options.now_ns)(), None)?;
        self.shared.state().status.upkeep.add(&done);
        Ok(done)
    }

    /// What was done so far.
    pub fn status(&self) -> WriterStatus {
        let marks_damaged = self.shared.changes.damaged.lock().clone();
        let state = self.shared.state();
        let records_pending = state.pending_records as u64;
        WriterStatus { records_pending, marks_damaged, ..state.status.clone() }
    }

    /// Writes pending records and ends. Fails with [`StoreError::Lost`] if some could not be written.
    pub fn close(mut self) -> Result<WriterStatus, StoreError> {
        self.stop();
        let status = self.status();
        if status.records_pending == 0 {
            return Ok(status);
        }
        let state = self.shared.state();
        let amount = Amount::of_all(state.pending.iter().flat_map(|batch| batch.iter()));
        let why = status.last_error.unwrap_or_else(|| "the writer's thread ended".to_owned());
        Err(StoreError::Lost { amount, why })
    }

    fn stop(&mut self) {
        self.shared.state().closing = true;
        self.shared.changes.ending.store(true, Ordering::Relaxed);
        self.shared.work.notify_all();
        self.shared.written.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if self.shared.options.upkeep_interval_s > 0 {
            self.shared.apply_retention();
        }
        let is_clean = self.shared.state().pending_records == 0;
        let released = self.shared.lock.lock().release(is_clean);
        if let Err(error) = released {
            self.shared.state().status.last_error = Some(error.to_string());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop();
        }
    }
}

impl State {
    /// These records as a batch, in memory of an earlier one if that fits and nobody reads it any more.
    fn batch_of(&mut self, records: &[FlowRecord]) -> Arc<[FlowRecord]> {
        let fits = self.spare.iter().position(|batch| batch.len() == records.len());
        if let Some(mut batch) = fits.map(|place| self.spare.swap_remove(place))
            && let Some(room) = Arc::get_mut(&mut batch)
        {
            room.copy_from_slice(records);
            return batch;
        }
        records.into()
    }
}

/// The text of the lock file.
fn owner(options: &WriterOptions) -> String {
    format!("process {}, flush interval {} s", std::process::id(), options.flush_interval_s)
}

impl Shared {
    pub(crate) fn root(&self) -> &Path {
        &self.changes.root
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A batch larger than the limit is taken when nothing else is pending.
    fn has_room(&self, state: &State, records: usize) -> bool {
        state.pending_records == 0 || state.pending_records + records <= self.options.pending_records_max
    }

    fn take(&self, state: &mut State, records: &[FlowRecord]) {
        let batch = state.batch_of(records);
        state.pending_records += batch.len();
        state.status.records_taken += batch.len() as u64;
        state.oldest.get_or_insert_with(Instant::now);
        state.listeners.iter_mut().for_each(|listener| listener.take(&batch));
        state.pending.push_back(batch);
        if state.pending_records >= self.threshold() || state.pending.len() == 1 {
            self.work.notify_all();
        }
    }

    /// The number of pending records that are written at once.
    fn threshold(&self) -> usize {
        ROW_GROUP_ROWS.min(self.options.pending_records_max / 2).max(1)
    }

    /// How long to wait until pending records are due; `None` if none are pending, zero for now.
    fn due(&self, state: &State) -> Option<Duration> {
        if state.pending.is_empty() {
            return state.closing.then_some(Duration::ZERO);
        }
        let asked = state.status.records_written < state.flush_until;
        if state.closing || asked || state.pending_records >= self.threshold() {
            return Some(Duration::ZERO);
        }
        let interval = Duration::from_secs(self.options.flush_interval_s);
        state.oldest.map(|oldest| interval.saturating_sub(oldest.elapsed()))
    }
}
