//! The report of a run, and its errors.

use crate::options::{ModelKind, THREADS_MAX, TOKENS_MAX};
use std::io;
use std::time::Duration;

/// The result of a run.
#[derive(Debug)]
pub struct RunReport<S> {
    pub kind: ModelKind,
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// Jobs taken from the source, all of which the sink has.
    pub jobs: u64,
    /// The scratches of all threads that ran stages, in no particular order; the caller merges them.
    pub scratches: Vec<S>,
    pub threads: Vec<ThreadReport>,
    /// Pipelines only: the stages of each thread.
    pub grouping: Vec<std::ops::Range<usize>>,
    /// The most finished jobs that ever waited for an earlier one.
    pub reorder_high_water: usize,
}

/// The times and counters of one thread.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// `worker`, `reader` or `calibration`.
    pub role: &'static str,
    /// Number within the role, from 0.
    pub index: usize,
    /// Jobs that it took up (in the farm, parts of jobs). A token that was parked in between counts again.
    pub jobs: u64,
    /// Time not spent waiting for others or in the source. Includes time that other processes had the core.
    pub busy: Duration,
    /// Time in the source, including its waits for input.
    pub in_source: Duration,
    /// Time spent waiting for a turn, a ring or work.
    pub waited: Duration,
    pub cpu: Duration,
    pub waits: u64,
    /// How many of the waits were sleeps; waits at locks not counted.
    pub parks: u64,
}

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// Zero workers or too many.
    #[error("{0} workers: expected 1 to {THREADS_MAX}")]
    Workers(usize),
    /// Zero readers or too many.
    #[error("{0} readers: expected 1 to {THREADS_MAX}")]
    Readers(usize),
    /// Zero tokens or too many.
    #[error("{0} tokens: expected 1 to {TOKENS_MAX}")]
    Tokens(usize),
    /// `ring_jobs` or `reorder_jobs` is zero.
    #[error("rings and the reorder buffer must hold at least one job")]
    NoCapacity,
    /// The list of cores to bind threads to is empty.
    #[error("no core to pin threads to: name at least one")]
    NoCores,
    /// The plan has no shard group.
    #[error("the plan has no shard group: expected at least 1")]
    NoShardGroups,
    /// A thread could not be bound to a core.
    #[error("cannot pin a thread to core {core}: {reason}")]
    Pin {
        core: usize,
        /// What the kernel says.
        #[source]
        reason: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Spawn(#[source] io::Error),
    /// The source left out a sequence number or gave one twice.
    #[error("the source gave job {found}, expected job {expected}")]
    OutOfSequence {
        /// The sequence number due.
        expected: u64,
        found: u64,
    },
    /// Every thread of a run on virtual cores waits. This is a bug of a model.
    #[error("no core can run: {0}")]
    Deadlock(String),
    /// Code of the plan, the source or the sink panicked, which is a bug there; jobs in flight are lost.
    #[error("{role} {index} panicked in {at}: {message}")]
    Panicked {
        role: &'static str,
        index: usize,
        /// The stage's name, or another place in the run.
        at: String,
        message: String,
    },
}
