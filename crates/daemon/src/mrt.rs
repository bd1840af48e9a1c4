//! `[bgp.mrt]`: a thread that writes the RIB at intervals, and what neighbors send, to MRT files.
//!
//! What sessions read waits in a bounded queue ([`WAITING_BYTES_MAX`]). What finds no room is dropped, counted and
//! logged, because a slow disk must not slow down routing. Dumps are written a slice at a time between updates, at
//! multiples of their interval since the epoch, so that dumps of several routers are of the same time.
//!
//! When the router ends, it completes a dump in progress and the file of updates.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thalweg_bgp::session::Negotiated;
use thalweg_config::MrtConfig;
use thalweg_node::mrt::{RibDump, write_session_messages, write_session_state};
use thalweg_node::speaker::{SessionObserver, Speaker};
use thalweg_ports::{MrtWriteError, MrtWriter, MrtWriterOptions};
use thalweg_wire::bgp::MessageKind;
use thalweg_wire::mrt::Timestamp;

/// Bytes of messages that may wait for the disk: about a table of 500,000 routes.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The weight of a queue entry besides its messages.
const ENTRY_BYTES: usize = 128;

/// How long the thread waits for messages before it checks the clock.
const WAIT: Duration = Duration::from_millis(200);

/// Write errors and losses are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// What a session received, and when.
pub(crate) struct Seen {
    session: Arc<Negotiated>,
    time: Timestamp,
    what: What,
}

enum What {
    Messages(Box<[u8]>),
    State { is_up: bool },
}

/// The queue between sessions and the writing thread.
pub(crate) struct UpdateRecorder {
    state: Mutex<RecorderState>,
    ready: Condvar,
    waiting_bytes_max: usize,
    /// Restricts recording to sessions with these neighbors.
    only: Option<Vec<IpAddr>>,
}

#[derive(Default)]
struct RecorderState {
    queue: VecDeque<Seen>,
    bytes: usize,
    /// Reads dropped since the last [`Self::take`](UpdateRecorder::take).
    dropped: u64,
    is_closed: bool,
}

impl SessionObserver for UpdateRecorder {
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]) {
        self.push(session, messages.len(), || What::Messages(messages.into()));
    }

    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool) {
        self.push(session, 0, || What::State { is_up });
    }
}

impl UpdateRecorder {
    /// A recorder of all sessions, for files.
    pub(crate) fn of_all() -> Self {
        Self::new(None, WAITING_BYTES_MAX)
    }

    /// A recorder of the sessions with these neighbors, or of all. At most `waiting_bytes_max` bytes wait.
    pub(crate) fn new(only: Option<Vec<IpAddr>>, waiting_bytes_max: usize) -> Self {
        Self { state: Mutex::default(), ready: Condvar::new(), waiting_bytes_max, only }
    }

    fn push(&self, session: &Arc<Negotiated>, bytes: usize, what: impl FnOnce() -> What) {
        if self.only.as_ref().is_some_and(|only| !only.contains(&session.remote_address)) {
            return;
        }
        let time = timestamp();
        let mut state = self.state.lock();
        if state.bytes + bytes + ENTRY_BYTES > self.waiting_bytes_max {
            state.dropped += 1;
            return;
        }
        state.bytes += bytes + ENTRY_BYTES;
        let was_empty = state.queue.is_empty();
        state.queue.push_back(Seen { session: session.clone(), time, what: what() });
        drop(state);
        if was_empty {
            self.ready.notify_one();
        }
    }

    /// Everything that waits, how many reads were dropped, and whether the recorder is closed.
    pub(crate) fn take(&self, timeout: Duration) -> (VecDeque<Seen>, u64, bool) {
        let mut state = self.state.lock();
        if state.queue.is_empty() && !state.is_closed {
            self.ready.wait_for(&mut state, timeout);
        }
        state.bytes = 0;
        (std::mem::take(&mut state.queue), std::mem::take(&mut state.dropped), state.is_closed)
    }

    /// Has the thread finish its files and end.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.ready.notify_all();
    }
}

/// The thread's files.
struct Files {
    updates: Option<MrtWriter>,
    dumps: Option<MrtWriter>,
    dump: Option<RibDump>,
    /// The interval, counted from the epoch, of the latest dump.
    dumped: u64,
    interval_s: u64,
    buffer: Vec<u8>,
    logged_at: Option<Instant>,
}

/// Writes until the recorder is closed: the body of a thread.
pub(crate) fn write(config: &MrtConfig, recorder: &UpdateRecorder, speaker: &Speaker) {
    let mut files = Files::new(config);
    loop {
        let timeout = if files.dump.is_some() { Duration::ZERO } else { WAIT };
        let (seen, dropped, is_closed) = recorder.take(timeout);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "MRT: messages are missing from the recording, because the disk is too slow"
            );
        }
        files.write_updates(seen);
        files.step(speaker);
        if is_closed {
            return files.finish(speaker);
        }
    }
}

impl Files {
    fn new(config: &MrtConfig) -> Self {
        let writer = |pattern: &std::path::PathBuf, period_s| {
            let pattern = pattern.clone();
            MrtWriter::new(MrtWriterOptions { pattern, period_s, gzip: config.compress })
        };
        let interval_s = u64::from(config.dump_interval_s.max(1));
        Self {
            updates: config.updates.as_ref().map(|path| writer(path, Some(config.rotate_s.into()))),
            dumps: config.dump.as_ref().map(|path| writer(path, None)),
            dump: None,
            dumped: u64::from(timestamp().seconds) / interval_s,
            interval_s,
            buffer: Vec::new(),
            logged_at: None,
        }
    }

    fn write_updates(&mut self, seen: VecDeque<Seen>) {
        let Some(writer) = &mut self.updates else { return };
        let mut result = writer.handle_time(timestamp().seconds.into());
        for each in seen {
            self.buffer.clear();
            each.encode(&mut self.buffer, &[MessageKind::Update]);
            if !self.buffer.is_empty() {
                result = result.and(writer.write(each.time.seconds.into(), &self.buffer));
            }
        }
        self.log(result);
    }

    /// Begins a dump when it is due, and continues one in progress.
    fn step(&mut self, speaker: &Speaker) {
        if self.dumps.is_none() {
            return;
        }
        let now_s = u64::from(timestamp().seconds);
        self.buffer.clear();
        if self.dump.is_none() {
            if now_s / self.interval_s == self.dumped {
                return;
            }
            self.dumped = now_s / self.interval_s;
            match RibDump::begin(speaker, now_s, &mut self.buffer) {
                Ok(dump) => self.dump = Some(dump),
                Err(error) => return tracing::error!("MRT: cannot dump the routing table: {error}"),
            }
        }
        let (Some(dump), Some(writer)) = (&mut self.dump, &mut self.dumps) else { return };
        let is_done = dump.step(speaker, &mut self.buffer);
        let mut result = Ok(());
        if !self.buffer.is_empty() {
            result = writer.write(now_s, &self.buffer);
        }
        if is_done {
            result = result.and_then(|()| writer.publish());
            let counters = dump.counters();
            for path in writer.take_published() {
                tracing::info!(
                    file = %path.display(),
                    prefixes = counters.prefixes,
                    routes = counters.routes,
                    left_out = counters.unknown_peer + counters.refused,
                    "MRT: dumped the routing table"
                );
            }
        }
        // An incomplete dump is useless.
        if is_done || result.is_err() {
            self.dump = None;
        }
        self.log(result);
    }

    fn log(&mut self, result: Result<(), MrtWriteError>) {
        for path in self.updates.iter_mut().flat_map(MrtWriter::take_published) {
            tracing::debug!(file = %path.display(), "MRT: a file of updates is complete");
        }
        let Err(error) = result else { return };
        if self.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            self.logged_at = Some(Instant::now());
            tracing::error!("MRT: {error}");
        }
    }

    fn finish(mut self, speaker: &Speaker) {
        while self.dump.is_some() {
            self.step(speaker);
        }
        if let Some(Err(error)) = self.updates.take().map(MrtWriter::finish) {
            tracing::error!("MRT: {error}");
        }
    }
}

impl Seen {
    /// Appends records of its messages of the wanted kinds, or of its change of state.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, wanted: &[MessageKind]) {
        match &self.what {
            What::State { is_up } => write_session_state(out, self.time, &self.session, *is_up),
            What::Messages(bytes) => {
                write_session_messages(out, self.time, &self.session, bytes, wanted);
            }
        }
    }
}

pub(crate) fn timestamp() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs() as u32, microseconds: now.subsec_micros() }
}
