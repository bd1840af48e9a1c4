//! The router's plan with taps between its stages.
//!
//! Packets are copied right after a stage over batches or whole chunks. A stage over shards runs in pieces, and in
//! two passes for chunks that cross; so its packets are copied when the next stage begins, which sees the chunk
//! whole again.

use std::ops::Range;

use thalweg_base::{BATCH_PACKETS, Chunk};
use thalweg_exec::{Around, Piece, Plan, Scope};
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

impl Around for Tapped<'_> {
    type Inner = RouterPlan;
    type Scratch = Scratch;

    fn inner(&self) -> &RouterPlan {
        self.plan
    }

    fn scratch(&self) -> Scratch {
        self.plan.scratch()
    }

    fn stage(
        &self,
        stage: usize,
        piece: Piece,
        job: &mut Chunk,
        scratch: &mut Scratch,
        run: impl FnOnce(&mut Chunk, &mut Scratch),
    ) {
        let packets = |job: &Chunk| match piece {
            Piece::Batch(batch) => places(job, batch),
            _ => 0..job.live_len(),
        };
        let is_split = matches!(piece, Piece::Shards(_) | Piece::Crossing);
        if is_split || !self.taps.watch_stages() {
            return run(job, scratch);
        }
        self.look_before(stage, job, packets(job));
        run(job, scratch);
        self.look_behind(stage, job, packets(job));
    }

    fn admit(&self, job: &mut Chunk, now_ns: u64) {
        if self.taps.watch_stages() {
            self.taps.arrived(job);
        }
        self.plan.admit(job, now_ns);
    }
}
