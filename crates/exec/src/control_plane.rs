//! Scheduling of a control plane: work of sessions, not a stream of jobs.
//!
//! A [`ControlPlane`] has *sessions* on which bytes arrive, *shards* of state to which routes are applied, and *export
//! queues* that carry changes back to the sessions. A scheduling decides which thread does what and when, and knows
//! nothing else: no protocol, no socket beyond its readiness.
//!
//! ```text
//! read(session) ──batch──> apply(shard) ──changes──> export(queue) ──> write(session)
//! ```
//!
//! | scheduling | threads | who reads | who applies | who exports | after |
//! |---|---|---|---|---|---|
//! | `serial` | one | it | it | it | Quagga |
//! | `per-peer` | a master and one a session | the session's thread | the same, under shard locks | the same, under the export queue's lock | PBTS |
//! | `dynamic` | a master and a fixed pool | any of the pool | the same, under shard locks | the same | DTS |
//! | `sharded` | workers | the session's worker | the shard's worker | the export queue's worker | ours |
//!
//! The four call the same functions of the same [`ControlPlane`] and so give the same answer. Where two threads may
//! want the same part, the part's own lock decides; under `serial` and `sharded` only its owner ever asks.
//!
//! Bounds: a session has at most one batch on its way in `serial`, `per-peer` and `dynamic`; in `sharded` all
//! sessions together have at most [`BATCHES_IN_FLIGHT_MAX`], and a session that would exceed it is read later,
//! which its neighbor notices as TCP's window closing. No thread waits for another one's queue to empty.

mod dynamic;
mod per_peer;
mod serial;
mod sharded;
mod thread;

use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use mio::{Registry, Token};

pub use thread::Wakers;

/// Batches that may be between reading and having been applied, all sessions together.
pub const BATCHES_IN_FLIGHT_MAX: usize = 64;

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

/// A name that names no scheduling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no scheduling is called {0:?}; expected serial, per-peer, dynamic or sharded")]
pub struct UnknownScheduling(pub String);

/// A part of the sessions: those whose number leaves `index` when divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which part.
    pub index: usize,
    pub of: usize,
}

impl Share {
    /// All of them.
    pub const ALL: Share = Share { index: 0, of: 1 };

    /// Whether the session belongs to the part.
    pub fn has(self, session: usize) -> bool {
        session % self.of == self.index
    }
}

/// What reading a session brought.
#[derive(Debug)]
pub struct Reading<B> {
    /// Work for the shards, if there is any.
    pub batch: Option<B>,
    /// There may be more to read: call again when others had their turn.
    pub more: bool,
}

/// What an export did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Sessions have something new to write.
    pub grew: bool,
    /// Changes are held back for a moment, to go out together with others.
    pub held: bool,
}

/// What a scheduling must know about connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The session has a new connection, which must be [attached](ControlPlane::attach).
    Opened(usize),
    /// The session has no connection any more.
    Closed(usize),
}

/// The work of a control plane. All functions may be called from any thread; those that take a lock hold it
/// for a bounded time. `now_ms` counts from when the scheduling began.
pub trait ControlPlane: Send + Sync {
    /// What a thread keeps for its work: buffers, counters.
    type Worker: Send;
    /// What arrived on a session, for the shards.
    type Batch: Send + Sync;

    /// Makes a thread's own things.
    fn worker(&self) -> Self::Worker;

    /// How many shards there are.
    fn shards(&self) -> usize;

    /// Called once before anything else: how many export queues share the update groups and route readers, and
    /// how to wake the threads when something changed from outside.
    fn begin(&self, export_queues: usize, wakers: Wakers);

    /// Registers the listening sockets.
    fn attach_listeners(&self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Registers the session's connections that are not registered yet.
    fn attach(&self, session: usize, registry: &Registry, token: Token) -> io::Result<()>;

    /// Takes in connections that wait.
    fn accept(&self, worker: &mut Self::Worker, now_ms: u64);

    /// Notes that a session's socket became readable or writable.
    fn ready(&self, session: usize, readable: bool, writable: bool);

    /// Reads and decodes what a session's socket has, up to a bound.
    fn read(&self, worker: &mut Self::Worker, session: usize, now_ms: u64) -> Reading<Self::Batch>;

    /// Whether the shard has anything to do for the batch.
    fn touches(&self, batch: &Self::Batch, shard: usize) -> bool;

    /// Applies a batch to a shard; its changes are appended to every export queue.
    fn apply(&self, worker: &mut Self::Worker, shard: usize, batch: &Self::Batch, now_ms: u64);

    /// Hands the changes to an export queue's update groups and route readers. Holding back for a moment, so that changes go out together, is
    /// allowed unless `now` is said.
    fn export(&self, worker: &mut Self::Worker, queue: usize, now: bool, now_ms: u64) -> Exported;

    /// Writes what the session has to write, as far as its socket takes it.
    fn write(&self, worker: &mut Self::Worker, session: usize, now_ms: u64);

    /// The same for all sessions of a share that have something.
    fn write_share(&self, worker: &mut Self::Worker, share: Share, now_ms: u64);

    /// Runs timers of a share's sessions; when to call again.
    fn tick(&self, worker: &mut Self::Worker, share: Share, now_ms: u64) -> u64;

    /// Long work in small pieces: a table for a new neighbor, the routes of one that is gone. Whether there
    /// is more.
    fn background_work(&self, worker: &mut Self::Worker, share: Share, now_ms: u64) -> bool;

    /// What happened to connections, one at a time.
    fn poll_notice(&self) -> Option<Notice>;
}

/// How a control plane is spread over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingOptions {
    /// Which way.
    pub kind: SchedulingKind,
    /// Threads of the pool or workers; `serial` has one and `per-peer` one a session, whatever is said here.
    pub threads: usize,
}

/// Runs a control plane until `stop` is set (and the threads are woken). Errors if a thread or a poller cannot be
/// created.
pub fn schedule<C: ControlPlane>(
    control: &C,
    options: SchedulingOptions,
    stop: &Arc<AtomicBool>,
) -> io::Result<()> {
    let threads = options.threads.clamp(1, crate::THREADS_MAX);
    match options.kind {
        SchedulingKind::Serial => serial::run(control, stop),
        SchedulingKind::PerPeer => per_peer::run(control, false, stop),
        SchedulingKind::Dynamic => dynamic::run(control, threads, stop),
        SchedulingKind::Sharded => sharded::run(control, threads, stop),
    }
}

/// As `per-peer`, but one poller for the sockets of all sessions: an ablation to measure, not a way to run a router.
pub fn schedule_with_common_poller<C: ControlPlane>(control: &C, stop: &Arc<AtomicBool>) -> io::Result<()> {
    per_peer::run(control, true, stop)
}
