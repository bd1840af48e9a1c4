//! When UPDATEs were processed: a point in time for each batch that all shards have applied. Kept with the times of
//! functions and, like them, off by default.
//!
//! An UPDATE is processed when all shards have its routes, whether or not a best route changed; one without routes,
//! when it was read. Points use the monotonic clock, so another process on the machine can relate them to its own.
//! Their number is bounded: at [`POINTS_MAX`], every second point is removed, and from then on half as many batches
//! leave one. The last point is always kept.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

const POINTS_MAX: usize = 4096;

/// The UPDATEs of a batch, and the shards that have not applied them yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    updates: u32,
    shards: AtomicU32,
}

impl Pending {
    /// `updates` on their way to `shards` shards.
    pub(super) fn new(updates: u32, shards: usize) -> Self {
        Self { updates, shards: AtomicU32::new(u32::try_from(shards).unwrap_or(u32::MAX)) }
    }

    /// Notes that a shard has applied the batch. Returns how many UPDATEs that completes: all from the last shard,
    /// else none.
    pub(super) fn reached_shard(&self) -> u32 {
        if self.shards.fetch_sub(1, Ordering::AcqRel) == 1 { self.updates } else { 0 }
    }
}

/// How many UPDATEs were processed by when.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<Points>);

#[derive(Debug)]
struct Points {
    updates: u64,
    /// Monotonic nanoseconds, and UPDATEs processed by then.
    kept: Vec<(u64, u64)>,
    last: (u64, u64),
    /// One batch in `every` leaves a point.
    every: u64,
    batches: u64,
}

impl Default for Points {
    fn default() -> Self {
        Self { updates: 0, kept: Vec::new(), last: (0, 0), every: 1, batches: 0 }
    }
}

impl Progress {
    /// Adds `updates` that were processed at `now_ns`.
    pub(super) fn add(&self, updates: u32, now_ns: u64) {
        if updates > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).add(updates, now_ns);
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = points.kept.clone();
        if points.updates > 0 && all.last() != Some(&points.last) {
            all.push(points.last);
        }
        json!({ "updates": points.updates, "points": all })
    }
}

impl Points {
    fn add(&mut self, updates: u32, now_ns: u64) {
        self.updates += u64::from(updates);
        // Threads may arrive in a slightly different order than they read the clock.
        self.last = (now_ns.max(self.last.0), self.updates);
        self.batches += 1;
        if !self.batches.is_multiple_of(self.every) {
            return;
        }
        self.kept.push(self.last);
        if self.kept.len() >= POINTS_MAX {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.every *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_count_when_the_last_shard_has_them() {
        let pending = Pending::new(7, 3);
        assert_eq!([pending.reached_shard(), pending.reached_shard(), pending.reached_shard()], [0, 0, 7]);
    }

    #[test]
    fn points_are_bounded_and_the_last_is_exact() {
        let progress = Progress::default();
        assert_eq!(progress.to_json()["updates"], 0);
        progress.add(0, 5);
        assert_eq!(progress.to_json(), json!({ "updates": 0, "points": [] }));
        let batches = 10 * POINTS_MAX as u64 + 3;
        (1..=batches).for_each(|at| progress.add(2, at * 10));
        let shown = progress.to_json();
        let points = shown["points"].as_array().unwrap();
        assert!((POINTS_MAX / 4..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert_eq!(points.last(), Some(&json!([batches * 10, batches * 2])));
        // Each remaining point is an original one.
        assert!(points.iter().all(|point| point[0].as_u64() == point[1].as_u64().map(|n| n * 5)));
    }

    #[test]
    fn time_does_not_run_backwards() {
        let progress = Progress::default();
        progress.add(1, 100);
        progress.add(1, 90);
        assert_eq!(progress.to_json()["points"], json!([[100, 1], [100, 2]]));
    }
}
