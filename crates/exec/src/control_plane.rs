//! Scheduling of a control plane: work of sessions, not a stream of jobs.
//!
//! A [`ControlPlane`] has *sessions* on which bytes arrive, *shards* of state to which routes are applied, and
//! *export queues* that carry changes back to the sessions. A scheduling decides which thread does what and when.
//! It knows no protocol, and of sockets only whether they are ready.
//!
//! ```text
//! read(session) ──batch──> apply(shard) ──changes──> export(queue) ──> write(session)
//! ```
//!
//! | scheduling | threads | who reads | who applies | who exports | after |
//! |---|---|---|---|---|---|
//! | `serial` | one | it | it | it | Quagga |
//! | `per-peer` | a master and one for each session | the session's thread | the same, under shard locks | the same, under the export queue's lock | PBTS |
//! | `dynamic` | a master and a fixed pool | any thread of the pool | the same, under shard locks | the same | DTS |
//! | `sharded` | workers | the session's worker | the shard's worker | the export queue's worker | ours |
//!
//! All four call the same functions of the same [`ControlPlane`] and so give the same answer. Each part has a lock
//! for the case that two threads want it; under `serial` and `sharded` only the part's owner takes it.
//!
//! Bounds: in `serial`, `per-peer` and `dynamic` a session has at most one batch in flight. In `sharded` all
//! sessions together have at most [`BATCHES_IN_FLIGHT_MAX`], plus one for each other worker that checks the bound
//! at the same moment. A session beyond that is read later, which its neighbor notices as TCP's window closing. No
//! thread waits for another one's queue to empty.
//!
//! The schedulings also run on virtual cores, over the recorded costs of a serial run: [`ControlRecorder`],
//! [`imitate_control`].

mod dynamic;
mod imitation;
mod machine;
mod per_peer;
mod recorder;
mod seat;
mod serial;
mod sharded;
mod thread;

use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use mio::{Registry, Token};

pub use imitation::{ControlMachine, explore_control, imitate_control};
pub use recorder::{ControlCosts, ControlRecorder, ReadCost, SessionCosts};
pub use thread::Wakers;

use machine::Machine;

/// Batches of all sessions together that may have been read and not yet applied.
pub const BATCHES_IN_FLIGHT_MAX: usize = 64;

/// How long a control plane holds changes back at most, in milliseconds: [`ControlPlane::export`].
pub const HOLD_MAX_MS: u64 = 10;

thalweg_base::words! {
    /// The ways to spread a control plane over threads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum SchedulingKind {
        /// One thread does everything.
        Serial => "serial",
        /// A thread for each session, which does everything for what arrives on it.
        PerPeer => "per-peer",
        /// A pool of threads takes sessions that are ready, in turn.
        Dynamic => "dynamic",
        /// Sessions, shards and export queues each have a worker that owns them.
        Sharded => "sharded",
    }
}

impl FromStr for SchedulingKind {
    type Err = UnknownScheduling;

    fn from_str(text: &str) -> Result<Self, UnknownScheduling> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownScheduling(text.to_owned()))
    }
}

/// The name of no scheduling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no scheduling is called {0:?}; expected serial, per-peer, dynamic or sharded")]
pub struct UnknownScheduling(pub String);

/// A share of the sessions: those whose number modulo `of` is `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub index: usize,
    pub of: usize,
}

impl Share {
    /// All sessions.
    pub const ALL: Share = Share { index: 0, of: 1 };

    /// Whether the session belongs to the share.
    pub fn has(self, session: usize) -> bool {
        session % self.of == self.index
    }
}

/// The result of reading a session.
#[derive(Debug)]
pub struct Reading<B> {
    /// Work for the shards, if there is any.
    pub batch: Option<B>,
    /// There may be more to read: call again after other sessions had their turn.
    pub more: bool,
}

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Sessions have something new to write.
    pub grew: bool,
    /// Changes are held back for a moment, to go out together with others.
    pub held: bool,
}

/// A change of a session's connections or timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The session has a new connection, which must be [attached](ControlPlane::attach).
    Opened(usize),
    /// The session has lost its last connection.
    Closed(usize),
    /// A timer of the session expires earlier than the last [tick](ControlPlane::tick) said.
    Sooner(usize),
}

/// The work of a control plane. Any thread may call any function; those that take a lock hold it for a bounded
/// time. `now_ms` counts from the start of the scheduling.
pub trait ControlPlane: Send + Sync {
    /// The buffers and counters of one thread.
    type Worker: Send;
    /// What arrived on a session, for the shards.
    type Batch: Send + Sync;

    /// Makes the state of one thread.
    fn worker(&self) -> Self::Worker;

    /// The number of shards.
    fn shards(&self) -> usize;

    /// Called once before anything else. The update groups and route readers are divided among `export_queues`
    /// queues; `wakers` wakes the threads when something changed from outside.
    fn begin(&self, export_queues: usize, wakers: Wakers);

    /// Registers the listening sockets.
    fn attach_listeners(&self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Registers those of the session's connections that are not registered yet.
    fn attach(&self, session: usize, registry: &Registry, token: Token) -> io::Result<()>;

    /// Accepts the connections that wait.
    fn accept(&self, worker: &mut Self::Worker, now_ms: u64);

    /// Notes that a session's socket became readable or writable.
    fn ready(&self, session: usize, readable: bool, writable: bool);

    /// Reads and decodes what a session's socket has, up to a bound.
    fn read(&self, worker: &mut Self::Worker, session: usize, now_ms: u64) -> Reading<Self::Batch>;

    /// Whether the batch concerns the shard.
    fn touches(&self, batch: &Self::Batch, shard: usize) -> bool;

    /// Applies a batch to a shard and appends the changes to every export queue.
    fn apply(&self, worker: &mut Self::Worker, shard: usize, batch: &Self::Batch, now_ms: u64);

    /// Hands the changes of an export queue to its update groups and route readers. Unless `now` is set, it may
    /// hold changes back for a moment, so that they go out together.
    fn export(&self, worker: &mut Self::Worker, queue: usize, now: bool, now_ms: u64) -> Exported;

    /// Writes what the session has to write, as far as its socket takes it.
    fn write(&self, worker: &mut Self::Worker, session: usize, now_ms: u64);

    /// Writes all sessions of a share that have something to write.
    fn write_share(&self, worker: &mut Self::Worker, share: Share, now_ms: u64);

    /// Runs the timers of a share's sessions. Returns when to call again.
    fn tick(&self, worker: &mut Self::Worker, share: Share, now_ms: u64) -> u64;

    /// Does a small piece of long work: sends a table to a new neighbor, removes the routes of one that is gone.
    /// Returns whether there is more.
    fn background_work(&self, worker: &mut Self::Worker, share: Share, now_ms: u64) -> bool;

    /// The oldest change of a session that has not been returned yet.
    fn poll_notice(&self) -> Option<Notice>;
}

/// The scheduling of a control plane and its number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingOptions {
    pub kind: SchedulingKind,
    /// Threads of the pool, or workers. Ignored by `serial`, which has one, and by `per-peer`, which has one for
    /// each session.
    pub threads: usize,
}

/// Runs a control plane until `stop` is set and the threads are woken. Fails if a thread or a poller cannot be
/// created.
pub fn schedule<C: ControlPlane>(
    control: &C,
    options: SchedulingOptions,
    stop: &Arc<AtomicBool>,
) -> io::Result<()> {
    schedule_on(&Machine::real(), control, options, stop)
}

fn schedule_on<C: ControlPlane>(
    machine: &Machine,
    control: &C,
    options: SchedulingOptions,
    stop: &AtomicBool,
) -> io::Result<()> {
    let threads = options.threads.clamp(1, crate::THREADS_MAX);
    match options.kind {
        SchedulingKind::Serial => serial::run(control, machine, stop),
        SchedulingKind::PerPeer => per_peer::run(control, false, machine, stop),
        SchedulingKind::Dynamic => dynamic::run(control, threads, machine, stop),
        SchedulingKind::Sharded => sharded::run(control, threads, machine, stop),
    }
}

/// Runs `per-peer` with one poller for the sockets of all sessions: for comparison only, not to run a router.
pub fn schedule_with_common_poller<C: ControlPlane>(control: &C, stop: &Arc<AtomicBool>) -> io::Result<()> {
    per_peer::run(control, true, &Machine::real(), stop)
}
