//! Memory that routes have left behind, given back a little at a time.
//!
//! Tables and stores shrink while routes go. Two things need a later look, because they are done with the next
//! announcement or withdrawal and after the last one there is none: prefixes that are kept until every neighbor has been
//! told that they are gone, and attribute sets that nobody holds any more. The look is taken every half second; the
//! second one only when routes have gone and come to rest, or when they are many.
//!
//! What is freed so stays with the allocator, in the arenas of the threads that applied the routes. When much has gone and
//! routes are at rest, the system gets it back: never while routes converge.

use super::{Speaker, lock};

/// Stripes of the attribute table swept at a time: with a million sets, a millisecond or two.
const STRIPES_PER_LOOK: usize = 4;

/// A round begins without waiting for rest when routes have gone or changed that are this part of all.
const PART: u64 = 4;

/// So many paths less than there were are worth giving pages back for, if they are also [`PART`] of all.
const PATHS_GONE: u64 = 10_000;

/// How far giving back has come.
#[derive(Debug, Default)]
pub(super) struct GiveBack {
    /// Routes that had gone or changed when the last round of the attribute table began, and at the last look.
    round_at: u64,
    seen: u64,
    /// The next stripe, while a round goes on.
    stripe: Option<usize>,
    /// The most paths there were since pages were given back, and how many had come, changed or gone at the last look.
    paths_max: u64,
    moved: u64,
}

impl GiveBack {
    /// Whether the allocator should give pages back now: much has gone, nothing moves, and everything is swept.
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

impl Speaker {
    /// Takes the look.
    pub(super) fn give_back(&self) {
        self.shards.iter().for_each(|shard| shard.rib().bury());
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
        let mut state = lock(&self.give_back);
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
        if state.is_due(paths, announced + gone)
            && let Err(error) = thalweg_exec::release_free_memory()
        {
            tracing::warn!("cannot start the thread that returns free memory to the system: {error}");
        }
    }
}
