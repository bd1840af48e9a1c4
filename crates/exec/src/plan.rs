//! The contract between a model and the work that it spreads.
//!
//! A [`Plan`] is a list of stages that every *job* (a chunk of packets) passes in order. Each stage declares the
//! scope of the state it touches, and that alone decides how a model may place it:
//!
//! | scope | may run | the model promises |
//! |---|---|---|
//! | `Batches` | any job, any batch of it, anywhere, at any time after the stage before | nothing |
//! | `Whole` | any job anywhere, but as one piece | nothing |
//! | `Ordered` | one job at a time | jobs come in sequence order |
//! | `PerShard` | one job at a time *per shard group* | jobs come in sequence order to each group |
//!
//! Every model fuses neighboring `Batches` stages: it runs all of them on one batch, then on the next. So a batch's
//! packets stay in the cache, and the first (most urgent) batch of a job is done first.
//!
//! A job that [`crosses`](Plan::crosses) shards is an exception: it runs its `PerShard` stage on all groups and
//! then `run_crossing`, and no other job's groups may run in between.
//!
//! These promises give the same answer under every model: state is only touched in sequence order, so it takes the
//! same values as in the serial run.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The state that a stage touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// None: batches of a job are independent.
    Batches,
    /// None outside the job, but the stage needs the job in one piece (sorting it, say).
    Whole,
    /// One piece of state for all jobs, in sequence order.
    Ordered,
    /// State cut into shard groups, each in sequence order.
    PerShard,
}

/// One stage of a plan.
#[derive(Clone, Debug)]
pub struct StageSpec {
    pub name: String,
    pub scope: Scope,
}

/// Stages over jobs. All workers share the plan, so its state is in locks, which the scopes keep free of
/// contention.
pub trait Plan: Sync {
    /// The unit of work that passes through the stages.
    type Job: Send;
    /// A worker's own state: counters, buffers, histograms.
    type Scratch: Send;

    /// The stages, in order; the same for the whole run.
    fn stages(&self) -> &[StageSpec];

    /// The number of groups that `PerShard` stages are cut into, at least 1.
    fn shard_groups(&self) -> usize;

    /// Makes the scratch of one worker.
    fn scratch(&self) -> Self::Scratch;

    /// The job's place in the input, counted from 0 without gaps.
    fn sequence(&self, job: &Self::Job) -> u64;

    /// Called once for each job that comes from the source, before its first stage. `now_ns` is the model's clock.
    fn admit(&self, job: &mut Self::Job, now_ns: u64);

    /// The number of batches of the job at `stage`. Models run a row of neighboring `Batches` stages batch by
    /// batch: all of them on one batch, then on the next. They call this for the whole row before its first stage
    /// runs, so no stage of the row may change how the job is cut for the others.
    fn batches(&self, stage: usize, job: &Self::Job) -> usize;

    /// Runs a `Batches` stage on one batch. `now_ns` is the model's clock, read for each call.
    fn run_batch(
        &self,
        stage: usize,
        job: &mut Self::Job,
        batch: usize,
        now_ns: u64,
        scratch: &mut Self::Scratch,
    );

    /// Runs a `Whole` or `Ordered` stage.
    fn run_whole(&self, stage: usize, job: &mut Self::Job, scratch: &mut Self::Scratch);

    /// Runs a `PerShard` stage for the packets of these groups.
    fn run_shards(
        &self,
        stage: usize,
        job: &mut Self::Job,
        groups: Range<usize>,
        scratch: &mut Self::Scratch,
    );

    /// Whether the job needs two shards at once in `stage`. Called after the stages before the plan's first
    /// `PerShard` stage have run, or later. The sharded stages must not change the answer, because the farm needs
    /// it before it splits.
    fn crosses(&self, stage: usize, job: &Self::Job) -> bool;

    /// The second half of a `PerShard` stage for a job that crosses, after all groups have run.
    fn run_crossing(&self, stage: usize, job: &mut Self::Job, scratch: &mut Self::Scratch);

    /// The first stage that may run on the parts of a job: from here on `split` knows every packet's owner. All
    /// stages between it and the first `PerShard` stage must be `Batches`; a farm's workers run them instead of its
    /// readers. The default is the first `PerShard` stage.
    fn first_split_stage(&self) -> usize {
        let stages = self.stages();
        stages.iter().position(|s| s.scope == Scope::PerShard).unwrap_or(stages.len())
    }

    /// Splits a job by the owner of each packet's shard group: `owners[group]` is the part, `0..parts`. Returns the
    /// parts in order, empty ones too, with the job's `sequence`. Only `Batches` and `PerShard` stages run on
    /// parts.
    fn split(&self, job: Self::Job, owners: &[usize], parts: usize) -> Vec<Self::Job>;

    /// Undoes `split`. `parts` is never empty.
    fn merge(&self, parts: Vec<Self::Job>) -> Self::Job;
}

/// Supplies jobs in sequence order.
pub trait Source<J>: Send {
    /// Waits for the next job and returns it; `None` at the end.
    fn next(&mut self) -> Option<J>;
}

/// Takes the finished jobs. One thread at a time calls it, in sequence order; if the model was told that order does
/// not matter, in sequence order for each shard group.
pub trait Sink<J>: Send {
    /// Takes a finished job, or a part of one.
    fn accept(&mut self, job: J);
}
