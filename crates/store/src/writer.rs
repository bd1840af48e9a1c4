//! The writer: takes records from any number of threads and brings them to disk on a thread of its own.
//!
//! ```text
//! append, offer --> pending batches --> sorted, cut by hour, encoded, synced --> renamed, and no longer pending
//!                   (bounded)           (writer's thread)                        (at once, for views of this process)
//! ```
//!
//! A record is in a file on disk at most `flush_interval_s` after it was handed over, or as soon as a row group is full. What
//! is pending when the process dies is lost, and nothing else; the next writer says so. If a file cannot be written (a full
//! disk), the records stay pending and it is tried again each second: the queue fills, `append` waits and `offer` refuses and
//! counts.
//!
//! A second thread does the upkeep now and then, so that joining files never holds up writing them.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_flow::FlowRecord;

use crate::block::Block;
use crate::calendar::HOUR_NS;
use crate::dataset::{self, Dataset, View, Window};
use crate::error::StoreError;
use crate::file::{FileWriter, ROW_GROUP_ROWS};
use crate::live::{Cache, LiveServer};
use crate::upkeep::{Changes, Recovery, Retention, Upkeep, recover};

mod taps;

use taps::Tap;

/// Records of a pending batch, at most.
const BATCH_RECORDS: usize = 16_384;
/// How long the writer waits before it tries again to write what it could not.
const RETRY: Duration = Duration::from_secs(1);
const LOCK_FILE: &str = "writer.lock";

/// How a dataset is written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Seconds after which what is pending is brought to disk: what a crash may lose.
    pub flush_interval_s: u64,
    /// Records that may be pending.
    pub pending_records_max: usize,
    /// Seconds between looks for files to join or to remove; 0 never looks.
    pub upkeep_interval_s: u64,
    /// What is kept.
    pub retention: Retention,
    /// The wall clock, nanoseconds since the epoch: retention by age goes by it.
    pub now_ns: fn() -> u64,
}

impl WriterOptions {
    /// The defaults, with this clock.
    pub fn new(now_ns: fn() -> u64) -> Self {
        Self {
            flush_interval_s: 60,
            pending_records_max: 2 * ROW_GROUP_ROWS,
            upkeep_interval_s: 300,
            retention: Retention::default(),
            now_ns,
        }
    }
}

/// What a writer did so far.
#[derive(Clone, Debug, Default)]
pub struct WriterStatus {
    /// Records taken.
    pub records_taken: u64,
    /// Records that `offer` refused, because too many were pending.
    pub records_refused: u64,
    /// Records on disk.
    pub records_written: u64,
    /// Records pending.
    pub records_pending: u64,
    /// Files published.
    pub files_published: u64,
    /// Times something could not be written.
    pub errors: u64,
    /// The latest of them.
    pub last_error: Option<String>,
    /// What upkeep did.
    pub upkeep: Upkeep,
}

/// Writes a dataset. There is one at a time, whatever the process.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    lock: File,
    lock_path: PathBuf,
}

pub(crate) struct Shared {
    changes: Changes,
    options: WriterOptions,
    state: Mutex<State>,
    /// There is something to do for the threads.
    work: Condvar,
    /// Something was written.
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
    /// When the oldest pending record came.
    oldest: Option<Instant>,
    /// Everything taken until this count is to be written at once.
    flush_until: u64,
    closing: bool,
    status: WriterStatus,
    taps: Vec<Tap>,
    next_tap: u64,
}

impl Writer {
    /// Begins to write the dataset in this folder, which is made if it is not there. Clears what an interrupted writer left
    /// behind, and says what that was. Fails with [`StoreError::Busy`] if somebody writes it already.
    pub fn open(root: &Path, options: WriterOptions) -> Result<(Self, Recovery), StoreError> {
        fs::create_dir_all(root).map_err(StoreError::io("create the dataset", root))?;
        let lock_path = root.join(LOCK_FILE);
        let (mut lock, left) = lock(root, &lock_path)?;
        let (mut recovery, next_id) = recover(root)?;
        recovery.unclean = (!left.is_empty()).then_some(left);
        let owner = format!("process {}, flush interval {} s", std::process::id(), options.flush_interval_s);
        rewrite(&mut lock, &owner).map_err(StoreError::io("write", &lock_path))?;
        let changes =
            Changes { root: root.to_path_buf(), publish: Mutex::new(()), next_id: AtomicU64::new(next_id) };
        let shared = Arc::new(Shared {
            changes,
            options,
            state: Mutex::default(),
            work: Condvar::new(),
            written: Condvar::new(),
        });
        let mut writer = Self { shared, threads: Vec::new(), lock, lock_path };
        writer.start("flow-store", Shared::write)?;
        if options.upkeep_interval_s > 0 {
            writer.start("flow-upkeep", Shared::upkeep)?;
        }
        Ok((writer, recovery))
    }

    fn start(&mut self, name: &str, run: fn(&Shared)) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(thread.map_err(StoreError::io("start a thread for", &self.shared.changes.root))?);
        Ok(())
    }

    /// Takes records, and waits for room as long as too many are pending.
    pub fn append(&self, records: &[FlowRecord]) -> Result<(), StoreError> {
        for batch in records.chunks(BATCH_RECORDS) {
            let batch: Arc<[FlowRecord]> = batch.into();
            let mut state = self.shared.state();
            while !self.shared.has_room(&state, batch.len()) && !state.closing {
                state = wait(&self.shared.written, state, None);
            }
            if state.closing {
                return Err(StoreError::Closed);
            }
            self.shared.take(&mut state, batch);
        }
        Ok(())
    }

    /// Takes records as far as there is room, without waiting for more; returns how many it took. The others are counted.
    pub fn offer(&self, records: &[FlowRecord]) -> usize {
        let mut taken = 0;
        for batch in records.chunks(BATCH_RECORDS) {
            let mut state = self.shared.state();
            if state.closing || !self.shared.has_room(&state, batch.len()) {
                state.status.records_refused += (records.len() - taken) as u64;
                break;
            }
            self.shared.take(&mut state, batch.into());
            taken += batch.len();
        }
        taken
    }

    /// Brings everything taken so far to disk. Fails with what could not be written, while that stays pending.
    pub fn flush(&self) -> Result<(), StoreError> {
        let mut state = self.shared.state();
        let (until, errors) = (state.status.records_taken, state.status.errors);
        state.flush_until = until;
        self.shared.work.notify_all();
        while state.status.records_written < until {
            if state.status.errors > errors {
                return Err(StoreError::Query(state.status.last_error.clone().unwrap_or_default()));
            }
            if state.closing {
                return Err(StoreError::Closed);
            }
            state = wait(&self.shared.written, state, None);
        }
        Ok(())
    }

    /// What is on disk and what is pending, each record once.
    pub fn view(&self, window: Window) -> Result<View, StoreError> {
        let dataset = Dataset::open(&self.shared.changes.root)?;
        let _names = self.shared.changes.publish.lock().unwrap_or_else(PoisonError::into_inner);
        let mut view = dataset.view(window)?;
        self.shared.state().pending.iter().for_each(|batch| view.add_batch(Arc::clone(batch)));
        Ok(view)
    }

    /// Answers whoever asks, on a socket in the dataset's folder, what is in no file yet: what is pending here, and what is in
    /// the flow cache from which records come. For as long as the server is kept.
    pub fn serve(&self, cache: Option<Arc<dyn Cache>>) -> Result<LiveServer, StoreError> {
        LiveServer::start(Arc::clone(&self.shared), &self.shared.changes.root, cache)
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Joins small files now.
    pub fn compact(&self) -> Result<Upkeep, StoreError> {
        let done = self.shared.changes.compact()?;
        self.shared.state().status.upkeep.add(&done);
        Ok(done)
    }

    /// Removes now what need not be kept.
    pub fn retain(&self, policy: Retention) -> Result<Upkeep, StoreError> {
        let done = self.shared.changes.retain(policy, (self.shared.options.now_ns)())?;
        self.shared.state().status.upkeep.add(&done);
        Ok(done)
    }

    /// What was done so far.
    pub fn status(&self) -> WriterStatus {
        let state = self.shared.state();
        WriterStatus { records_pending: state.pending_records as u64, ..state.status.clone() }
    }

    /// Writes what is pending and ends. Fails if not all could be written.
    pub fn close(mut self) -> Result<WriterStatus, StoreError> {
        self.stop();
        let status = self.status();
        match (status.records_pending, &status.last_error) {
            (0, _) => Ok(status),
            (lost, why) => {
                let why = why.as_deref().unwrap_or("the writer's thread ended");
                Err(StoreError::Query(format!("{lost} flow records are lost, they cannot be written: {why}")))
            }
        }
    }

    fn stop(&mut self) {
        self.shared.state().closing = true;
        self.shared.work.notify_all();
        self.shared.written.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // An empty lock file says that this writer ended properly.
        if self.shared.state().pending_records == 0 {
            let emptied = self.lock.set_len(0).and_then(|()| self.lock.sync_all());
            if let Err(error) = emptied {
                let what = StoreError::io("write", &self.lock_path)(error).to_string();
                self.shared.state().status.last_error = Some(what);
            }
        }
        // Closing the file is not enough: a child process that is just being started has it too, until it is another program.
        if let Err(error) = self.lock.unlock() {
            let what = StoreError::io("unlock", &self.lock_path)(error).to_string();
            self.shared.state().status.last_error = Some(what);
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

/// Takes the lock; returns what the last owner left in it.
fn lock(root: &Path, path: &Path) -> Result<(File, String), StoreError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(StoreError::io("open", path))?;
    let mut left = Vec::new();
    let locked = file.try_lock();
    Read::by_ref(&mut file).take(1024).read_to_end(&mut left).map_err(StoreError::io("read", path))?;
    let left = String::from_utf8_lossy(&left).trim().to_owned();
    match locked {
        Ok(()) => Ok((file, left)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path: root.to_path_buf(), owner: left }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", path)(error)),
    }
}

fn rewrite(file: &mut File, text: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    timeout: Option<Duration>,
) -> MutexGuard<'a, State> {
    match timeout {
        None => condition.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(timeout) => condition.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0,
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch larger than the bound is taken when nothing else is pending.
    fn has_room(&self, state: &State, records: usize) -> bool {
        state.pending_records == 0 || state.pending_records + records <= self.options.pending_records_max
    }

    fn take(&self, state: &mut State, batch: Arc<[FlowRecord]>) {
        state.pending_records += batch.len();
        state.status.records_taken += batch.len() as u64;
        state.oldest.get_or_insert_with(Instant::now);
        state.taps.iter_mut().for_each(|tap| tap.hear(&batch));
        state.pending.push_back(batch);
        if state.pending_records >= self.threshold() || state.pending.len() == 1 {
            self.work.notify_all();
        }
    }

    /// Pending records that are worth a file at once.
    fn threshold(&self) -> usize {
        ROW_GROUP_ROWS.min(self.options.pending_records_max / 2).max(1)
    }

    /// How long to wait until what is pending is due; `None` for as long as nothing comes, zero for now.
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

    /// The writer's thread.
    fn write(&self) {
        loop {
            let mut state = self.state();
            loop {
                match self.due(&state) {
                    Some(Duration::ZERO) => break,
                    timeout => state = wait(&self.work, state, timeout),
                }
            }
            if state.pending.is_empty() {
                return;
            }
            let mut records = 0;
            let batches: Vec<Arc<[FlowRecord]>> = state
                .pending
                .iter()
                .take_while(|batch| {
                    let first = records == 0;
                    records += batch.len();
                    first || records <= ROW_GROUP_ROWS
                })
                .cloned()
                .collect();
            drop(state);
            if let Err(error) = self.publish(&batches) {
                let mut state = self.state();
                state.status.errors += 1;
                state.status.last_error = Some(error.to_string());
                self.written.notify_all();
                if state.closing {
                    return;
                }
                drop(wait(&self.work, state, Some(RETRY)));
            }
        }
    }

    /// Brings batches, which are the first that are pending, to disk.
    fn publish(&self, batches: &[Arc<[FlowRecord]>]) -> Result<(), StoreError> {
        let files = self.write_files(batches)?;
        {
            let _names = self.changes.publish.lock().unwrap_or_else(PoisonError::into_inner);
            for (temporary, path) in &files {
                fs::rename(temporary, path).map_err(StoreError::io("rename", temporary))?;
            }
            let mut state = self.state();
            for _ in batches {
                if let Some(batch) = state.pending.pop_front() {
                    state.pending_records -= batch.len();
                }
            }
            // Those that are left came while a file was being written; an interval from now is soon enough for a crash to
            // lose no more than one interval and the time that writing takes.
            state.oldest = (!state.pending.is_empty()).then(Instant::now);
            state.status.files_published += files.len() as u64;
        }
        // They have their names now, and are not written again, even if the names may not have come to disk.
        let mut folders = files.iter().filter_map(|(_, path)| path.parent());
        let synced = folders.try_for_each(dataset::sync_folder);
        let mut state = self.state();
        state.status.records_written += batches.iter().map(|batch| batch.len() as u64).sum::<u64>();
        drop(state);
        self.written.notify_all();
        synced
    }

    /// Writes temporary files, one for each hour; returns their names and those they shall have.
    fn write_files(&self, batches: &[Arc<[FlowRecord]>]) -> Result<Vec<(PathBuf, PathBuf)>, StoreError> {
        let mut hours: BTreeMap<u64, Vec<(u64, &FlowRecord)>> = BTreeMap::new();
        for record in batches.iter().flat_map(|batch| batch.iter()) {
            let last_ns = record.counters.last_ns;
            hours.entry(last_ns / HOUR_NS).or_default().push((last_ns, record));
        }
        let mut files = Vec::with_capacity(hours.len());
        for (hour, mut records) in hours {
            records.sort_by_key(|(last_ns, _)| *last_ns);
            let span = records.first().map_or(0, |first| first.0)..=records.last().map_or(0, |last| last.0);
            let partition = dataset::partition_path(&self.changes.root, hour);
            self.make_partition(&partition)?;
            let path = partition.join(dataset::file_name(*span.start(), *span.end(), self.changes.id()));
            let temporary = dataset::temporary_name(&path);
            let mut writer = FileWriter::create(&temporary, &[])?;
            writer.append(&Block::of(records.iter().map(|(_, record)| *record)))?;
            writer.finish()?;
            files.push((temporary, path));
        }
        Ok(files)
    }

    /// Makes an hour's folder, for good: the names of new folders are brought to disk, too.
    fn make_partition(&self, partition: &Path) -> Result<(), StoreError> {
        if partition.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(partition).map_err(StoreError::io("create", partition))?;
        if let Some(day) = partition.parent() {
            dataset::sync_folder(day)?;
        }
        dataset::sync_folder(&self.changes.root)
    }

    /// The upkeep's thread.
    fn upkeep(&self) {
        let interval = Duration::from_secs(self.options.upkeep_interval_s);
        let mut last = Instant::now();
        loop {
            let mut state = self.state();
            while !state.closing && last.elapsed() < interval {
                let left = interval.saturating_sub(last.elapsed());
                state = wait(&self.work, state, Some(left));
            }
            if state.closing {
                return;
            }
            drop(state);
            let done = self.changes.compact().and_then(|mut done| {
                done.add(&self.changes.retain(self.options.retention, (self.options.now_ns)())?);
                Ok(done)
            });
            let mut state = self.state();
            match done {
                Ok(done) => state.status.upkeep.add(&done),
                Err(error) => {
                    state.status.errors += 1;
                    state.status.last_error = Some(error.to_string());
                }
            }
            drop(state);
            last = Instant::now();
        }
    }
}
