//! The router's plan with taps between its stages.
//!
//! Packets are copied right after a stage over batches or whole chunks. A stage over shards runs in pieces, and in
//! two passes for chunks that cross; so its packets are copied when the next stage begins, which sees the chunk
//! whole again.

use std::ops::Range;

use thalweg_base::{BATCH_PACKETS, Chunk};
use thalweg_exec::{Plan, Scope, StageSpec};
use thalweg_node::plan::{RouterPlan, Scratch};

use super::Taps;

/// See the module.
pub(crate) struct Tapped<'p> {
    plan: &'p RouterPlan,
    taps: &'p Taps,
}

impl<'p> Tapped<'p> {
    pub(crate) fn new(plan: &'p RouterPlan, taps: &'p Taps) -> Self {
        Self { plan, taps }
    }

    /// Copies packets before a stage if they were not copied after the one before.
    fn look_before(&self, stage: usize, chunk: &Chunk, packets: Range<usize>) {
        let before = stage.checked_sub(1).and_then(|before| self.plan.stages().get(before));
        if let Some(before) = before.filter(|before| before.scope == Scope::PerShard) {
            self.taps.left_stage(&before.name, chunk, packets);
        }
    }

    fn look_behind(&self, stage: usize, chunk: &Chunk, packets: Range<usize>) {
        if let Some(stage) = self.plan.stages().get(stage) {
            self.taps.left_stage(&stage.name, chunk, packets);
        }
    }
}

/// The range of a batch's packets in its chunk.
fn places(chunk: &Chunk, batch: usize) -> Range<usize> {
    let first = (batch * BATCH_PACKETS).min(chunk.live_len());
    first..(first + BATCH_PACKETS).min(chunk.live_len())
}

impl Plan for Tapped<'_> {
    type Job = Chunk;
    type Scratch = Scratch;

    fn stages(&self) -> &[StageSpec] {
        self.plan.stages()
    }

    fn shard_groups(&self) -> usize {
        self.plan.shard_groups()
    }

    fn scratch(&self) -> Scratch {
        self.plan.scratch()
    }

    fn sequence(&self, job: &Chunk) -> u64 {
        self.plan.sequence(job)
    }

    fn admit(&self, job: &mut Chunk, now_ns: u64) {
        if self.taps.watch_stages() {
            self.taps.arrived(job);
        }
        self.plan.admit(job, now_ns);
    }

    fn batches(&self, stage: usize, job: &Chunk) -> usize {
        self.plan.batches(stage, job)
    }

    fn run_batch(&self, stage: usize, job: &mut Chunk, batch: usize, now_ns: u64, scratch: &mut Scratch) {
        let is_watched = self.taps.watch_stages();
        if is_watched {
            self.look_before(stage, job, places(job, batch));
        }
        self.plan.run_batch(stage, job, batch, now_ns, scratch);
        if is_watched {
            self.look_behind(stage, job, places(job, batch));
        }
    }

    fn run_whole(&self, stage: usize, job: &mut Chunk, scratch: &mut Scratch) {
        let is_watched = self.taps.watch_stages();
        if is_watched {
            self.look_before(stage, job, 0..job.live_len());
        }
        self.plan.run_whole(stage, job, scratch);
        if is_watched {
            self.look_behind(stage, job, 0..job.live_len());
        }
    }

    fn run_shards(&self, stage: usize, job: &mut Chunk, groups: Range<usize>, scratch: &mut Scratch) {
        self.plan.run_shards(stage, job, groups, scratch);
    }

    fn crosses(&self, stage: usize, job: &Chunk) -> bool {
        self.plan.crosses(stage, job)
    }

    fn run_crossing(&self, stage: usize, job: &mut Chunk, scratch: &mut Scratch) {
        self.plan.run_crossing(stage, job, scratch);
    }

    fn first_split_stage(&self) -> usize {
        self.plan.first_split_stage()
    }

    fn split(&self, job: Chunk, owners: &[usize], parts: usize) -> Vec<Chunk> {
        self.plan.split(job, owners, parts)
    }

    fn merge(&self, parts: Vec<Chunk>) -> Chunk {
        self.plan.merge(parts)
    }
}
