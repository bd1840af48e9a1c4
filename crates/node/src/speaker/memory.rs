//! Gives back memory that routes have left behind, a little at a time.
//!
//! Tables and stores shrink as routes go. Two things need a later pass, because the next announcement or withdrawal
//! would do them and after the last one there is none: tombstones, kept until every neighbor has been told of the
//! withdrawal, and attribute sets without a holder. The pass runs every half second; it sweeps attribute sets only
//! after routes have gone and come to rest, or when many have gone.
//!
//! Memory freed this way stays with the allocator, in the arenas of the threads that applied the routes. When much
//! has gone and routes are at rest, the system gets it back: never while routes converge.

use super::Speaker;
use super::shards::ShardSlot;

/// Stripes of the attribute table swept at a time: with a million sets, a millisecond or two.
const STRIPES_PER_LOOK: usize = 4;

/// A round begins without waiting for rest when one route in `PART` has gone or changed.
const PART: u64 = 4;

/// Pages are given back when at least this many paths have gone, and at least one in [`PART`].
const PATHS_GONE: u64 = 10_000;

/// The progress of giving memory back.
#[derive(Debug, Default)]
pub(super) struct GiveBack {
    /// Routes that had gone or changed when the last round of the attribute table began, and at the last pass.
    round_at: u64,
    seen: u64,
    /// The next stripe to sweep, during a round.
    stripe: Option<usize>,
    /// The largest number of paths since pages were given back, and how many had come, changed or gone at the last
    /// pass.
    paths_max: u64,
    moved: u64,
}

impl GiveBack {
    /// Whether the allocator should give pages back now: much has gone, nothing moves, and all stripes are swept.
    fn is_due(&mut self, paths: u64, moved: u64) -> bool {
        let is_at_rest = moved == std::mem::replace(&mut self.moved, moved);
        self.paths_max = self.paths_max.max(paths);
        let gone = self.paths_max - paths;
        let is_much = gone >= PATHS_GONE.max(self.paths_max / PART);
        let is_due = is_much && is_at_rest && self.stripe.is_none() && self.round_at == self.seen;
        if is_due {
            self.paths_max = paths;
        }
        is_due
    }
}

/// Returns freed memory to the system, where the load is low.
pub fn release_memory() {
    if let Err(error) = thalweg_exec::release_free_memory() {
        tracing::warn!("cannot start the thread that returns free memory to the system: {error}");
    }
}

impl Speaker {
    /// Runs one pass.
    pub(super) fn give_back(&self) {
        self.shards.iter().for_each(ShardSlot::bury);
        if self.shares_interner {
            return;
        }
        let (mut announced, mut gone, mut paths) = (0, 0, 0);
        for shard in &self.shards {
            let rib = shard.rib();
            let counters = rib.counters();
            announced += counters.announced;
            gone += counters.withdrawn + counters.replaced;
            paths += counters.paths.iter().sum::<usize>() as u64;
        }
        let mut state = self.give_back.lock();
        let is_at_rest = gone == std::mem::replace(&mut state.seen, gone);
        let since = gone - state.round_at;
        if state.stripe.is_none() && since > 0 && (is_at_rest || since * PART >= paths) {
            (state.round_at, state.stripe) = (gone, Some(0));
        }
        if let Some(first) = state.stripe {
            let stripes = self.interner.stripes();
            let end = stripes.min(first + STRIPES_PER_LOOK);
            (first..end).for_each(|stripe| self.interner.sweep_stripe(stripe));
            state.stripe = Some(end).filter(|end| *end < stripes);
        }
        if state.is_due(paths, announced + gone) {
            release_memory();
        }
    }
}
