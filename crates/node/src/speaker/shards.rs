//! The shards of the RIB with the work that waits for them.
//!
//! What concerns all routes of a neighbour (its session ended, its restart is over) is too long for one turn.
//! Such an [`ShardOp`] is taken up when the batch that carries it is applied, and then worked off in slices of
//! [`SLICE_ROUTES`] routes between other work.
//!
//! A batch of a session that has ended must not be applied after the neighbour's routes were withdrawn. Each
//! batch therefore carries the number of its session; ending a session raises the neighbour's number before the
//! withdrawal is posted, and both are looked at under the shard's lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_bgp::peer::{Millis, PeerId, PeerTable};
use thalweg_bgp::rib::{RibShard, ScanCursor, ShardConfig};
use thalweg_bgp::route::{Changes, RouteBatch, SHARDS};
use thalweg_wire::bgp::Family;

use super::slot::PeerSlot;

/// Routes looked at in one slice of long work: well below a millisecond.
const SLICE_ROUTES: usize = 4096;

/// Something that concerns all routes of a neighbour in a shard.
#[derive(Clone)]
pub(super) enum ShardOp {
    /// The neighbour's routes are not valid any more.
    Withdraw(Arc<PeerSlot>, Family),
    /// They may be outdated: what is not announced again until `Sweep` goes then.
    MarkStale(PeerId, Family),
    /// Those still marked go.
    Sweep(Arc<PeerSlot>, Family),
    /// More ranks are to be reported than before.
    Deepen(usize),
}

/// What a session read, on its way to the shards.
pub struct Work {
    /// Who read it; `None` for what this router originates.
    pub(super) slot: Option<Arc<PeerSlot>>,
    /// Number of the session it belongs to.
    pub(super) epoch: u32,
    pub(super) routes: RouteBatch,
    /// To be done after the routes are applied.
    pub(super) after: Vec<ShardOp>,
}

/// Long work that was begun.
struct Running {
    op: ShardOp,
    cursors: [ScanCursor; 2],
}

/// One shard.
pub(super) struct ShardSlot {
    rib: Mutex<RibShard>,
    posted: Mutex<VecDeque<ShardOp>>,
    running: Mutex<Vec<Running>>,
    has_work: AtomicBool,
}

impl ShardSlot {
    fn new(config: ShardConfig) -> Self {
        Self {
            rib: Mutex::new(RibShard::new(config)),
            posted: Mutex::default(),
            running: Mutex::default(),
            has_work: AtomicBool::new(false),
        }
    }

    /// The shard itself, for a bounded time.
    pub(super) fn rib(&self) -> MutexGuard<'_, RibShard> {
        self.rib.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work before the shard that no batch carries.
    pub(super) fn post(&self, op: ShardOp) {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push_back(op);
        self.has_work.store(true, Ordering::Release);
    }

    /// Whether [`Self::slice`] has something to do.
    pub(super) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// Applies a batch, unless its session has ended, and hands what changed to `deliver` before another
    /// thread can change the shard.
    pub(super) fn apply(&self, index: usize, work: &Work, peers: &PeerTable, deliver: impl FnOnce(Changes)) {
        let mut rib = self.rib();
        // What was posted before the batch was read comes before it: a mark must not touch its routes.
        self.take_up_posted(&mut rib);
        let mut changes = Changes { shard: index, ..Changes::default() };
        match &work.slot {
            None => rib.apply(&work.routes, peers, &mut changes),
            Some(slot) if work.epoch == slot.epoch.load(Ordering::Acquire) => {
                let before = Family::ALL.map(|family| rib.peer_paths(slot.id, family));
                rib.apply(&work.routes, peers, &mut changes);
                for family in Family::ALL {
                    slot.count_paths(family, before[family.index()], rib.peer_paths(slot.id, family));
                }
            }
            Some(_) => return,
        }
        for op in &work.after {
            self.take_up(&mut rib, op.clone());
        }
        if !changes.is_empty() {
            deliver(changes);
        }
    }

    /// Takes suppressed routes in again that were quiet long enough; when to look again.
    pub(super) fn handle_timer(
        &self,
        index: usize,
        now: Millis,
        peers: &PeerTable,
        deliver: impl FnOnce(Changes),
    ) -> Option<Millis> {
        let mut rib = self.rib();
        if rib.next_deadline().is_some_and(|deadline| deadline <= now) {
            let mut changes = Changes { shard: index, ..Changes::default() };
            rib.handle_timer(now, peers, &mut changes);
            if !changes.is_empty() {
                deliver(changes);
            }
        }
        rib.next_deadline()
    }

    /// A slice of long work; whether there is more.
    pub(super) fn slice(&self, index: usize, peers: &PeerTable, deliver: impl FnOnce(Changes)) -> bool {
        let mut rib = self.rib();
        self.take_up_posted(&mut rib);
        let mut changes = Changes { shard: index, ..Changes::default() };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = running.first_mut() {
            let finished = first.slice(&mut rib, peers, &mut changes);
            if finished {
                let Running { op, .. } = running.remove(0);
                if let ShardOp::Withdraw(slot, _) = op {
                    slot.withdrawal_finished();
                }
            }
        }
        let more = !running.is_empty();
        self.has_work.store(more, Ordering::Release);
        drop(running);
        if !changes.is_empty() {
            deliver(changes);
        }
        // Posted after the loop above and before the flag was lowered.
        if !self.posted.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            self.has_work.store(true, Ordering::Release);
        }
        self.has_work()
    }

    fn take_up_posted(&self, rib: &mut RibShard) {
        loop {
            let posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(op) = posted else { return };
            self.take_up(rib, op);
        }
    }

    fn take_up(&self, rib: &mut RibShard, op: ShardOp) {
        match op {
            // At once: what the neighbour announces from now on must not be marked.
            ShardOp::MarkStale(peer, family) => {
                // A sweep that is not finished would take what is marked now; what it has left is marked too,
                // and goes with the next one.
                let other = |each: &Running| match &each.op {
                    ShardOp::Sweep(slot, swept) => (slot.id, *swept) != (peer, family),
                    _ => true,
                };
                self.running.lock().unwrap_or_else(PoisonError::into_inner).retain(other);
                let mut cursor = ScanCursor::START;
                while !rib.mark_stale(peer, family, &mut cursor, SLICE_ROUTES) {}
            }
            ShardOp::Withdraw(..) | ShardOp::Sweep(..) | ShardOp::Deepen(_) => {
                if let ShardOp::Deepen(depth) = op {
                    rib.set_depth(depth.max(rib.depth()));
                }
                let running = Running { op, cursors: [ScanCursor::START; 2] };
                self.running.lock().unwrap_or_else(PoisonError::into_inner).push(running);
                self.has_work.store(true, Ordering::Release);
            }
        }
    }
}

impl Running {
    fn slice(&mut self, rib: &mut RibShard, peers: &PeerTable, changes: &mut Changes) -> bool {
        match &self.op {
            ShardOp::Withdraw(slot, family) => {
                let before = rib.peer_paths(slot.id, *family);
                let done =
                    rib.withdraw_peer(slot.id, *family, &mut self.cursors[0], SLICE_ROUTES, peers, changes);
                slot.count_paths(*family, before, rib.peer_paths(slot.id, *family));
                done
            }
            ShardOp::Sweep(slot, family) => {
                let before = rib.peer_paths(slot.id, *family);
                let done =
                    rib.withdraw_stale(slot.id, *family, &mut self.cursors[0], SLICE_ROUTES, peers, changes);
                slot.count_paths(*family, before, rib.peer_paths(slot.id, *family));
                done
            }
            ShardOp::Deepen(_) => Family::ALL.iter().all(|family| {
                rib.reevaluate(*family, &mut self.cursors[family.index()], SLICE_ROUTES, peers, changes)
            }),
            ShardOp::MarkStale(..) => true,
        }
    }
}

/// All shards.
pub(super) fn all(config: impl Fn(usize) -> ShardConfig) -> Vec<ShardSlot> {
    (0..SHARDS).map(|shard| ShardSlot::new(config(shard))).collect()
}
