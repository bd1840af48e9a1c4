//! Idle speakers: a driver of many speakers skips one until its next timer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Speaker;
use super::export_queue::{ExportQueue, GroupSlot};
use super::slot::PeerSlot;

impl Speaker {
    /// What it will send follows from its routes and from what arrives alone: no change is held back, for an interval or for
    /// a neighbor that reads slowly, no flap is on record, no restart goes on.
    pub fn holds_only_routes(&self) -> bool {
        let is_sent = |queue: &ExportQueue| queue.waiting() == 0 && !queue.work().has_pending();
        let is_plain = |group: &Arc<GroupSlot>| {
            !group.mrai.is_set()
                && !group.wants.load(Ordering::Acquire)
                && !group.has_dumps.load(Ordering::Acquire)
        };
        !self.restart.is_active()
            && self.export_queues().iter().all(is_sent)
            && !self.shard_facts.has_work()
            && self.shards.iter().all(|shard| shard.rib().next_deadline().is_none())
            && self.groups.lock().iter().all(is_plain)
    }

    /// Takes down a slot's deadline, which may have come nearer.
    #[inline]
    pub(super) fn note_deadline(&self, slot: &PeerSlot) {
        let deadline_ms = slot.deadline_ms.load(Ordering::Acquire);
        if deadline_ms < self.timers_from_ms.load(Ordering::Relaxed) {
            self.timers_from_ms.fetch_min(deadline_ms, Ordering::Relaxed);
        }
    }

    /// The earliest time at which a slot's timer may expire. Slots are visited only when the last answer has passed: most
    /// deadlines move away all the time, whenever a neighbor is heard, and a router may have hundreds of neighbors.
    fn next_timer_ms(&self) -> u64 {
        let known_ms = self.timers_from_ms.load(Ordering::Relaxed);
        if known_ms > self.now_ms.load(Ordering::Relaxed) {
            return known_ms;
        }
        let slots = self.slots.read();
        let deadlines = slots.iter().filter(|slot| !slot.is_free());
        let deadlines = deadlines.map(|slot| slot.deadline_ms.load(Ordering::Acquire));
        let next_ms = deadlines.min().unwrap_or(u64::MAX);
        self.timers_from_ms.store(next_ms, Ordering::Relaxed);
        next_ms
    }

    /// When to call [`tick`](thalweg_exec::control_plane::ControlPlane::tick) again, if nothing else is left to do: unless
    /// something arrives, it would find nothing before. `None` if something is left, so that only tick knows when. Call it
    /// when all possible work is done, from the thread that does all of it.
    pub fn rests_until_ms(&self) -> Option<u64> {
        let is_busy = self.restart.is_active()
            || !self.partings.is_empty()
            || !self.strangers.is_calm()
            || self.network.signature_faults().is_some()
            || !self.shares_interner
            || self.shard_facts.has_work()
            || self.shard_facts.has_tombstones();
        if is_busy {
            return None;
        }
        let mut next = u64::MAX;
        // Only damping gives shards deadlines.
        if self.config.read().damping.is_some() {
            let deadlines = self.shards.iter().filter_map(|shard| shard.rib().next_deadline());
            next = deadlines.map(|deadline| deadline.0).min().unwrap_or(next);
        }
        for queue in self.export_queues() {
            if queue.waiting() > 0 || queue.work().has_pending() {
                return None;
            }
            next = next.min(queue.delayed_until_ms().unwrap_or(u64::MAX));
        }
        let groups = self.groups.lock();
        let wanted = groups.iter().any(|group| group.wants.load(Ordering::Acquire));
        drop(groups);
        (!wanted).then(|| next.min(self.next_timer_ms()))
    }
}
