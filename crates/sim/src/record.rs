//! Writes what a router receives and holds as MRT files (RFC 6396): the UPDATEs of its sessions with their
//! times, and its table.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_bgp::session::Negotiated;
use thalweg_node::mrt::{DumpCounters, RibDump, write_session_messages, write_session_state};
use thalweg_node::speaker::{SessionObserver, Speaker};
use thalweg_wire::bgp::MessageKind;
use thalweg_wire::mrt::Timestamp;

use crate::network::Clock;

/// The start of virtual time, in seconds since the epoch: 2020-01-01 00:00 UTC. It is fixed, so files of the
/// same run have the same times.
pub const EPOCH_S: u64 = 1_577_836_800;

/// Records what the sessions of a router receive. A router gets it when it [starts](crate::Start::observer).
pub struct Recorder {
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
    heard: Heard,
    last: Option<IpAddr>,
    run: u64,
}

/// Counts of what a recorder saw.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub updates: u64,
    /// Runs of consecutive UPDATEs from the same neighbor: their number, by length.
    pub runs: BTreeMap<u64, u64>,
}

impl State {
    fn count(&mut self, neighbor: IpAddr, updates: u64) {
        if updates == 0 {
            return;
        }
        if self.last != Some(neighbor) {
            self.end_run();
            self.last = Some(neighbor);
        }
        self.run += updates;
        self.heard.updates += updates;
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            *self.heard.runs.entry(std::mem::take(&mut self.run)).or_default() += 1;
        }
        self.last = None;
    }
}

impl Recorder {
    /// A recorder that writes to `out` with the times of `clock`.
    pub fn new(clock: Clock, out: Box<dyn Write + Send>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::new(State {
                out,
                buffer: Vec::new(),
                error: None,
                heard: Heard::default(),
                last: None,
                run: 0,
            }),
        })
    }

    /// Writes what `encode` makes and returns its result; does nothing after an error.
    fn record<T: Default>(&self, encode: impl FnOnce(&mut Vec<u8>, Timestamp) -> T) -> T {
        let now_us = self.clock.now_us();
        let seconds = (EPOCH_S + now_us / 1_000_000) as u32;
        let time = Timestamp { seconds, microseconds: (now_us % 1_000_000) as u32 };
        let mut state = self.state.lock();
        let State { out, buffer, error, .. } = &mut *state;
        if error.is_some() {
            return T::default();
        }
        buffer.clear();
        let done = encode(buffer, time);
        *error = out.write_all(buffer).err();
        done
    }

    /// The counts so far.
    pub fn heard(&self) -> Heard {
        let mut state = self.state.lock();
        state.end_run();
        state.heard.clone()
    }

    /// Flushes the output; returns the first error since the start.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.error.take() {
            Some(error) => Err(error),
            None => state.out.flush(),
        }
    }
}

impl SessionObserver for Recorder {
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]) {
        let updates = self
            .record(|out, time| write_session_messages(out, time, session, messages, &[MessageKind::Update]));
        self.state.lock().count(session.remote_address, updates);
    }

    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool) {
        self.record(|out, time| write_session_state(out, time, session, is_up));
    }
}

/// Writes a router's table (TABLE_DUMP_V2) with the given virtual time.
pub fn dump_table(speaker: &Speaker, now_us: u64, out: &mut dyn Write) -> io::Result<DumpCounters> {
    let mut buffer = Vec::new();
    let dump = RibDump::begin(speaker, EPOCH_S + now_us / 1_000_000, &mut buffer);
    let mut dump = dump.map_err(io::Error::other)?;
    loop {
        let is_done = dump.step(speaker, &mut buffer);
        out.write_all(&buffer)?;
        buffer.clear();
        if is_done {
            return Ok(dump.counters());
        }
    }
}
