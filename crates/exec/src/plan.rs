//! All that a model knows of the work that it spreads.
//!
//! A [`Plan`] is a list of stages that every *job* (a chunk of packets) passes in order. Each stage
//! declares the scope of the state it touches, and that alone decides how a model may place it:
//!
//! | scope | may run | the model promises |
//! |---|---|---|
//! | `Batches` | any job, any batch of it, anywhere, at any time after the stage before | nothing |
//! | `Whole` | any job anywhere, but as one piece | nothing |
//! | `Ordered` | one job at a time | jobs come in sequence order |
//! | `PerShard` | one job at a time *per shard group* | jobs come in sequence order to each group |
//!
//! Neighboring `Batches` stages are fused in every model: for each batch, all of them in turn, so that the
//! batch's packets stay in the cache and the first (most urgent) batch of a job is done first.
//!
//! A job that [`crosses`](Plan::crosses) shards is the exception that keeps sharding honest: it runs its
//! `PerShard` stage on all groups and then `run_crossing`, and no other job's groups may run in between.
//!
//! These promises are enough for the same answer under every model: state is only ever touched in
//! sequence order, so it goes through the same values as in the serial run.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What state a stage touches.
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
    /// Name for reports.
    pub name: String,
    /// State it touches.
    pub scope: Scope,
}

/// The work: stages over jobs. Shared by all workers, so state inside is in locks that the scopes keep
/// free of contention.
pub trait Plan: Sync {
    /// What passes through the stages.
    type Job: Send;
    /// A worker's own state: counters, buffers, histograms.
    type Scratch: Send;

    /// The stages, in order. The same for the whole run.
    fn stages(&self) -> &[StageSpec];

    /// Groups that `PerShard` stages are cut into; at least 1.
    fn shard_groups(&self) -> usize;

    /// A scratch for one worker.
    fn scratch(&self) -> Self::Scratch;

    /// Place of the job in the input, from 0 without gaps.
    fn sequence(&self, job: &Self::Job) -> u64;

    /// The model takes the job on at `now_ns` by its own clock.
    fn admit(&self, job: &mut Self::Job, now_ns: u64);

    /// Batches the job has at `stage`. Asked for a whole row of neighboring `Batches` stages when the
    /// first of them is about to run, because models run such a row batch by batch: all of its stages on
    /// one batch, then the next batch. So no stage of the row may change how the others are cut.
    fn batches(&self, stage: usize, job: &Self::Job) -> usize;

    /// Runs a `Batches` stage on one batch. `now_ns` is the model's clock, read about once per batch.
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

    /// Whether the job needs two shards at once in `stage`. Asked once the stages before the plan's first
    /// `PerShard` stage have run, or later; what the sharded stages do must not change the answer (the
    /// farm has to know before it splits).
    fn crosses(&self, stage: usize, job: &Self::Job) -> bool;

    /// The second half of a `PerShard` stage for a job that crosses, after all groups had their first.
    fn run_crossing(&self, stage: usize, job: &mut Self::Job, scratch: &mut Self::Scratch);

    /// The first stage that may run on the parts of a job: from here on `split` knows every packet's owner.
    /// What lies between it and the first `PerShard` stage must be `Batches`; a farm's workers do it then
    /// instead of its readers. The first `PerShard` stage itself unless the plan says otherwise.
    fn first_split_stage(&self) -> usize {
        let stages = self.stages();
        stages.iter().position(|s| s.scope == Scope::PerShard).unwrap_or(stages.len())
    }

    /// Splits a job by the owner of each packet's shard group: `owners[group]` is the part, `0..parts`.
    /// Parts come back in order, empty ones too, and answer `sequence` as the job did. Only `Batches` and
    /// `PerShard` stages are ever run on parts.
    fn split(&self, job: Self::Job, owners: &[usize], parts: usize) -> Vec<Self::Job>;

    /// Undoes `split`. `parts` is never empty.
    fn merge(&self, parts: Vec<Self::Job>) -> Self::Job;
}

/// Where jobs come from, in sequence order.
pub trait Source<J>: Send {
    /// The next job, waiting for it if need be; `None` at the end.
    fn next(&mut self) -> Option<J>;
}

/// Where jobs go. Called by one thread at a time; in sequence order unless the model was told that order
/// does not matter, and then still in order per shard group.
pub trait Sink<J>: Send {
    /// Takes a finished job, or a part of one.
    fn accept(&mut self, job: J);
}
