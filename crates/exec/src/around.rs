//! A plan around another one, which does something beside the inner plan's stages and leaves the rest to it.

use std::ops::Range;

use crate::plan::{Plan, StageSpec};

/// The part of a stage that a model asks for at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A batch with this number.
    Batch(usize),
    Whole,
    /// These groups of shards.
    Shards(Range<usize>),
    /// What follows all groups of shards in a job that crosses.
    Crossing,
}

/// Something beside the stages of a plan; by that a plan itself.
pub trait Around: Sync + Sized {
    type Inner: Plan;
    /// A worker's own state, the inner plan's with it.
    type Scratch: Send;

    /// The plan whose stages run.
    fn inner(&self) -> &Self::Inner;

    /// Makes the scratch of one worker.
    fn scratch(&self) -> Self::Scratch;

    /// Runs a piece of a stage, which is `run`.
    fn stage(
        &self,
        stage: usize,
        piece: Piece,
        job: &mut Job<Self>,
        scratch: &mut Self::Scratch,
        run: impl FnOnce(&mut Job<Self>, &mut <Self::Inner as Plan>::Scratch),
    );

    /// See [`Plan::admit`].
    fn admit(&self, job: &mut Job<Self>, now_ns: u64) {
        self.inner().admit(job, now_ns);
    }

    /// See [`Plan::crosses`].
    fn crosses(&self, stage: usize, job: &Job<Self>) -> bool {
        self.inner().crosses(stage, job)
    }
}

type Job<A> = <<A as Around>::Inner as Plan>::Job;

impl<A: Around> Plan for A {
    type Job = Job<A>;
    type Scratch = A::Scratch;

    fn stages(&self) -> &[StageSpec] {
        self.inner().stages()
    }

    fn shard_groups(&self) -> usize {
        self.inner().shard_groups()
    }

    fn scratch(&self) -> A::Scratch {
        Around::scratch(self)
    }

    fn sequence(&self, job: &Job<A>) -> u64 {
        self.inner().sequence(job)
    }

    fn admit(&self, job: &mut Job<A>, now_ns: u64) {
        Around::admit(self, job, now_ns);
    }

    fn batches(&self, stage: usize, job: &Job<A>) -> usize {
        self.inner().batches(stage, job)
    }

    fn run_batch(&self, stage: usize, job: &mut Job<A>, batch: usize, now_ns: u64, scratch: &mut A::Scratch) {
        self.stage(stage, Piece::Batch(batch), job, scratch, |job, scratch| {
            self.inner().run_batch(stage, job, batch, now_ns, scratch);
        });
    }

    fn run_whole(&self, stage: usize, job: &mut Job<A>, scratch: &mut A::Scratch) {
        self.stage(stage, Piece::Whole, job, scratch, |job, scratch| {
            self.inner().run_whole(stage, job, scratch);
        });
    }

    fn run_shards(&self, stage: usize, job: &mut Job<A>, groups: Range<usize>, scratch: &mut A::Scratch) {
        self.stage(stage, Piece::Shards(groups.clone()), job, scratch, |job, scratch| {
            self.inner().run_shards(stage, job, groups, scratch);
        });
    }

    fn crosses(&self, stage: usize, job: &Job<A>) -> bool {
        Around::crosses(self, stage, job)
    }

    fn run_crossing(&self, stage: usize, job: &mut Job<A>, scratch: &mut A::Scratch) {
        self.stage(stage, Piece::Crossing, job, scratch, |job, scratch| {
            self.inner().run_crossing(stage, job, scratch);
        });
    }

    fn first_split_stage(&self) -> usize {
        self.inner().first_split_stage()
    }

    fn split(&self, job: Job<A>, owners: &[usize], parts: usize) -> Vec<Job<A>> {
        self.inner().split(job, owners, parts)
    }

    fn merge(&self, parts: Vec<Job<A>>) -> Job<A> {
        self.inner().merge(parts)
    }
}
