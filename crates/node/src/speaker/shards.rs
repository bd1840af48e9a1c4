//! The shards of the RIB, with the work that waits for them.
//!
//! Some work concerns all routes of a neighbor (its session ended, its restart finished) or all routes (next hops
//! changed) and is too long for one turn. Such a [`ShardOp`] starts when the batch that carries it is applied, and
//! runs in slices of [`SLICE_ROUTES`] routes between other work.
//!
//! A batch of an ended session must not be applied after the neighbor's routes were withdrawn. Each batch therefore
//! carries the number of its session. Ending a session raises the neighbor's number before it posts the withdrawal,
//! and the shard checks both under its lock. It also fetches the table of neighbors under that lock, so a neighbor
//! with routes in the shard is in the table.
//!
//! A new view of next hops is in force from the moment the shard takes it up; the work after it visits every prefix
//! once. If another view arrives after that work has begun, a second round follows; if it has not begun, the same
//! round serves both. So a network that never comes to rest starves nobody, and a shard has at most two rounds
//! before it.
//!
//! A new import policy judges kept routes again ([`ShardOp::Reimport`]), as new VRPs do. A batch that was read before may arrive after that
//! work has passed its prefixes. So batches carry the number of the import policy too, and the work begins again in a
//! shard that applies one with another number than the neighbor's. A neighbor whose routes are not all kept is then asked
//! for them once more, if their validity matters.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thalweg_bgp::peer::{Millis, PeerId, PeerTable};
use thalweg_bgp::rib::{NextHopView, RibShard, ScanCursor, ShardConfig, Withdrawal};
use thalweg_bgp::route::{Changes, RouteBatch};
use thalweg_bgp::session::config::KeepRejected;
use thalweg_wire::bgp::Family;

use super::peer_counts::Counted;
use super::progress::Pending;
use super::reimport::{Revalidation, reimport};
use super::restart_progress::{EndMark, Selection};
use super::slot::PeerSlot;

/// Routes visited in one slice of long work: well below a millisecond.
const SLICE_ROUTES: usize = 4096;

/// Work in a shard that concerns all routes of a neighbor, or all routes.
#[derive(Clone)]
pub(super) enum ShardOp {
    /// The neighbor's routes are invalid.
    Withdraw(Arc<PeerSlot>, Family),
    /// The session is lost and the neighbor restarts: its routes become stale, and those that were stale before are
    /// removed.
    Retain(Arc<PeerSlot>, Family),
    /// The routes may be outdated: `Sweep` removes those that are not announced again before it.
    MarkStale(PeerId, Family),
    /// Removes the routes still marked.
    Sweep(Arc<PeerSlot>, Family),
    /// Judges the kept routes of a neighbor again, or forgets them if they are no longer kept.
    Reimport(Arc<PeerSlot>),
    /// Judges routes again whose validity has changed: kept ones, then those in the RIB.
    Revalidate(Arc<Revalidation>, Kept),
    /// Report more ranks than before.
    Deepen(usize),
    /// A new view of next hops.
    NextHops(Arc<NextHopView>),
    /// Neighbors have sent their tables after our restart: select routes now.
    Select(Arc<Selection>),
    /// A neighbor's End-of-RIB, while selection waits for it.
    EndOfRib(Arc<EndMark>),
}

/// Which routes are judged again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}

/// What a session read, on its way to the shards.
pub struct Work {
    /// The neighbor that sent it; `None` for routes that this router originates.
    pub(super) slot: Option<Arc<PeerSlot>>,
    /// The session's number.
    pub(super) epoch: u32,
    /// The number of the import policy.
    pub(super) policy: u32,
    pub(super) routes: RouteBatch,
    /// Work that follows the routes.
    pub(super) after: Vec<ShardOp>,
    /// Counts the UPDATEs of the batch for the profile.
    pub(super) pending: Pending,
}

impl Work {
    /// Wraps routes that this router originates.
    pub(super) fn of_nobody(routes: RouteBatch) -> Self {
        Self { slot: None, epoch: 0, policy: 0, routes, after: Vec::new(), pending: Pending::default() }
    }

    /// Whether a shard with these parts of all prefixes has anything to do for it.
    pub(super) fn touches(&self, parts: Range<usize>) -> bool {
        !self.after.is_empty() || Family::ALL.iter().any(|family| self.routes.has(*family, parts.clone()))
    }
}

/// Long work in progress.
struct Running {
    op: ShardOp,
    cursors: [ScanCursor; 2],
}

/// What is known of all shards without looking at each: a bit for each shard.
#[derive(Default)]
pub(super) struct ShardFacts {
    /// It has posted or long work.
    work: AtomicU32,
    /// It may keep withdrawn prefixes for readers.
    tombstones: AtomicU32,
}

impl ShardFacts {
    /// Whether a shard has posted or long work.
    pub(super) fn has_work(&self) -> bool {
        self.work.load(Ordering::Acquire) != 0
    }

    /// Whether a shard may keep withdrawn prefixes for readers.
    pub(super) fn has_tombstones(&self) -> bool {
        self.tombstones.load(Ordering::Acquire) != 0
    }
}

/// One shard.
pub(super) struct ShardSlot {
    rib: Mutex<RibShard>,
    posted: Mutex<VecDeque<ShardOp>>,
    running: Mutex<Vec<Running>>,
    facts: Arc<ShardFacts>,
    /// The shard's bit in the facts.
    bit: u32,
}

impl ShardSlot {
    fn new(config: ShardConfig, facts: Arc<ShardFacts>) -> Self {
        Self {
            bit: 1 << config.shard,
            rib: Mutex::new(RibShard::new(config)),
            posted: Mutex::default(),
            running: Mutex::default(),
            facts,
        }
    }

    /// Locks the shard; the caller holds it for a bounded time.
    pub(super) fn rib(&self) -> MutexGuard<'_, RibShard> {
        self.rib.lock()
    }

    /// Queues work that no batch carries.
    pub(super) fn post(&self, op: ShardOp) {
        self.posted.lock().push_back(op);
        self.set_has_work(true);
    }

    /// Whether [`Self::slice`] has something to do.
    pub(super) fn has_work(&self) -> bool {
        self.facts.work.load(Ordering::Acquire) & self.bit != 0
    }

    fn set_has_work(&self, has_work: bool) {
        match has_work {
            true => self.facts.work.fetch_or(self.bit, Ordering::AcqRel),
            false => self.facts.work.fetch_and(!self.bit, Ordering::AcqRel),
        };
    }

    /// Drops some withdrawn prefixes that no reader needs.
    pub(super) fn bury(&self) {
        let mut rib = self.rib();
        rib.bury();
        self.note_tombstones(&rib);
    }

    /// Called after each change of the shard, while its lock is held.
    fn note_tombstones(&self, rib: &RibShard) {
        let (has, had) =
            (rib.has_tombstones(), self.facts.tombstones.load(Ordering::Acquire) & self.bit != 0);
        if has && !had {
            self.facts.tombstones.fetch_or(self.bit, Ordering::AcqRel);
        } else if had && !has {
            self.facts.tombstones.fetch_and(!self.bit, Ordering::AcqRel);
        }
    }

    /// Applies a batch, unless its session has ended, and passes the changes to `deliver` before another thread can
    /// change the shard.
    pub(super) fn apply(
        &self,
        index: usize,
        work: &Work,
        peers: impl FnOnce() -> Arc<PeerTable>,
        deliver: impl FnOnce(Changes),
    ) {
        let mut rib = self.rib();
        let peers = &*peers();
        // Work posted before the batch was read comes first: a mark must not touch the batch's routes.
        self.take_up_posted(&mut rib);
        let mut changes = Changes { shard: index, ..Changes::default() };
        match &work.slot {
            None => rib.apply(&work.routes, peers, &mut changes),
            Some(slot) if work.epoch == slot.epoch.load(Ordering::Acquire) => {
                let before = Counted::of(&rib, slot.id);
                rib.apply(&work.routes, peers, &mut changes);
                before.note(&rib, slot);
                if work.policy != slot.policy.load(Ordering::Acquire) {
                    self.take_up(&mut rib, ShardOp::Reimport(slot.clone()));
                    slot.ask_unless_kept();
                }
            }
            Some(_) => return,
        }
        for op in &work.after {
            self.take_up(&mut rib, op.clone());
        }
        self.note_tombstones(&rib);
        if !changes.is_empty() {
            deliver(changes);
        }
    }

    /// Reuses suppressed routes that were quiet long enough; returns the next deadline.
    pub(super) fn handle_timer(
        &self,
        index: usize,
        now: Millis,
        peers: impl FnOnce() -> Arc<PeerTable>,
        deliver: impl FnOnce(Changes),
    ) -> Option<Millis> {
        let mut rib = self.rib();
        if rib.next_deadline().is_some_and(|deadline| deadline <= now) {
            let mut changes = Changes { shard: index, ..Changes::default() };
            rib.handle_timer(now, &peers(), &mut changes);
            if !changes.is_empty() {
                deliver(changes);
            }
        }
        rib.next_deadline()
    }

    /// Runs a slice of long work; returns whether there is more.
    pub(super) fn slice(
        &self,
        index: usize,
        peers: impl FnOnce() -> Arc<PeerTable>,
        deliver: impl FnOnce(Changes),
    ) -> bool {
        let mut rib = self.rib();
        let peers = &*peers();
        self.take_up_posted(&mut rib);
        let mut changes = Changes { shard: index, ..Changes::default() };
        let mut running = self.running.lock();
        let is_finished = running.first_mut().is_some_and(|first| first.slice(&mut rib, peers, &mut changes));
        let finished = is_finished.then(|| running.remove(0).op);
        let more = !running.is_empty();
        self.set_has_work(more);
        drop(running);
        self.note_tombstones(&rib);
        if !changes.is_empty() {
            deliver(changes);
        }
        match finished {
            Some(ShardOp::Withdraw(slot, _) | ShardOp::Retain(slot, _)) => slot.withdrawal_finished(),
            Some(ShardOp::Select(selection)) => selection.finished(),
            _ => {}
        }
        // Posted after the loop above and before the flag was lowered.
        if !self.posted.lock().is_empty() {
            self.set_has_work(true);
        }
        self.has_work()
    }

    fn take_up_posted(&self, rib: &mut RibShard) {
        // Who posts raises the flag, and it is lowered only under the lock that the caller holds.
        while self.has_work() {
            let posted = self.posted.lock().pop_front();
            let Some(op) = posted else { return };
            self.take_up(rib, op);
        }
    }

    fn take_up(&self, rib: &mut RibShard, op: ShardOp) {
        match op {
            // Not in slices: a route that the neighbor announces from now on must not be marked.
            ShardOp::MarkStale(peer, family) => {
                // An unfinished sweep would remove what is marked now. What it has not reached is marked too and
                // goes with the next sweep.
                let other = |each: &Running| match &each.op {
                    ShardOp::Sweep(slot, swept) => (slot.id, *swept) != (peer, family),
                    _ => true,
                };
                self.running.lock().retain(other);
                let mut cursor = ScanCursor::START;
                while !rib.mark_stale(peer, family, &mut cursor, SLICE_ROUTES) {}
                rib.mark_received_stale(peer, family);
            }
            ShardOp::NextHops(view) => {
                rib.set_next_hops(view.clone());
                let waits = |each: &Running| {
                    matches!(each.op, ShardOp::NextHops(_)) && each.cursors == [ScanCursor::START; 2]
                };
                if !self.running.lock().iter().any(waits) {
                    self.begin(ShardOp::NextHops(view));
                }
            }
            ShardOp::Deepen(depth) => {
                rib.set_depth(depth.max(rib.depth()));
                self.begin(op);
            }
            ShardOp::Select(selection) => {
                rib.set_deferred(selection.family, false);
                self.begin(ShardOp::Select(selection));
            }
            ShardOp::EndOfRib(mark) => mark.passed(),
            ShardOp::Reimport(slot) => {
                // It visits every kept route, so an unfinished one before it is in vain.
                let other = |each: &Running| match &each.op {
                    ShardOp::Reimport(before) => before.id != slot.id,
                    _ => true,
                };
                self.running.lock().retain(other);
                self.begin(ShardOp::Reimport(slot));
            }
            ShardOp::Withdraw(..) | ShardOp::Retain(..) | ShardOp::Sweep(..) | ShardOp::Revalidate(..) => {
                self.begin(op)
            }
        }
    }

    fn begin(&self, op: ShardOp) {
        self.running.lock().push(Running { op, cursors: [ScanCursor::START; 2] });
        self.set_has_work(true);
    }
}

impl Running {
    fn slice(&mut self, rib: &mut RibShard, peers: &PeerTable, changes: &mut Changes) -> bool {
        match &self.op {
            ShardOp::Withdraw(slot, family)
            | ShardOp::Retain(slot, family)
            | ShardOp::Sweep(slot, family) => {
                let before = Counted::of(rib, slot.id);
                let which = match &self.op {
                    ShardOp::Sweep(..) => Withdrawal::Stale(slot.id),
                    ShardOp::Retain(..) => Withdrawal::Retain(slot.id),
                    _ => Withdrawal::All(slot.id),
                };
                let [selected, received] = &mut self.cursors;
                let done = rib.withdraw(which, *family, selected, SLICE_ROUTES, peers, changes)
                    && rib.withdraw_received(which, *family, received, SLICE_ROUTES);
                before.note(rib, slot);
                done
            }
            ShardOp::Reimport(slot) => {
                // The session may have ended.
                let Some(import) = slot.new_import.lock().clone() else { return true };
                let before = Counted::of(rib, slot.id);
                let [v4, v6] = &mut self.cursors;
                let done = if import.judge.keeps() != KeepRejected::None {
                    reimport::<u32>(&import, slot.id, rib, v4, SLICE_ROUTES, peers, changes)
                        && reimport::<u128>(&import, slot.id, rib, v6, SLICE_ROUTES, peers, changes)
                } else {
                    let all = Withdrawal::All(slot.id);
                    rib.withdraw_received(all, Family::Ipv4, v4, SLICE_ROUTES)
                        && rib.withdraw_received(all, Family::Ipv6, v6, SLICE_ROUTES)
                };
                before.note(rib, slot);
                done
            }
            ShardOp::Deepen(_) | ShardOp::NextHops(_) => Family::ALL.iter().all(|family| {
                rib.reevaluate(*family, &mut self.cursors[family.index()], SLICE_ROUTES, peers, changes)
            }),
            ShardOp::Select(selection) => {
                let family = selection.family;
                rib.reevaluate(family, &mut self.cursors[family.index()], SLICE_ROUTES, peers, changes)
            }
            ShardOp::Revalidate(new, kept) => {
                let [v4, v6] = &mut self.cursors;
                match kept {
                    Kept::Yes => {
                        new.kept::<u32>(rib, v4, SLICE_ROUTES, peers, changes)
                            && new.kept::<u128>(rib, v6, SLICE_ROUTES, peers, changes)
                    }
                    Kept::No => {
                        new.not_kept::<u32>(rib, v4, SLICE_ROUTES, peers, changes)
                            && new.not_kept::<u128>(rib, v6, SLICE_ROUTES, peers, changes)
                    }
                }
            }
            ShardOp::MarkStale(..) | ShardOp::EndOfRib(_) => true,
        }
    }
}

/// All shards of a RIB, and what is known of them together.
pub(super) fn all(count: usize, config: impl Fn(usize) -> ShardConfig) -> (Vec<ShardSlot>, Arc<ShardFacts>) {
    let (facts, next_hops) = (Arc::new(ShardFacts::default()), Arc::default());
    let new = |shard| {
        let slot = ShardSlot::new(config(shard), facts.clone());
        slot.rib().set_next_hops(Arc::clone(&next_hops));
        slot
    };
    ((0..count).map(new).collect(), facts)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use thalweg_base::Prefix;
    use thalweg_bgp::attrs::{AttrsBuilder, Interner, NextHop, SegmentKind};
    use thalweg_bgp::policy::Policy;
    use thalweg_bgp::route::{RouteBatchBuilder, shard_of};
    use thalweg_bgp::session::{Importer, NeighborConfig, Session};

    use super::super::slot::{NewImport, PeerState};
    use super::*;

    /// If next hops change all the time, the shard still gets through its table, and ends with the last view.
    #[test]
    fn next_hops_that_change_all_the_time_starve_nobody() {
        const ROUTES: usize = 3 * SLICE_ROUTES;
        let slot = ShardSlot::new(ShardConfig::default(), Arc::default());
        let mut attrs = AttrsBuilder::default();
        attrs.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 1));
        let mut routes = RouteBatchBuilder::default();
        let attrs = routes.push_attrs(Interner::new(1).intern(&mut attrs));
        let all = (0..).filter_map(|n: u32| Prefix::new(n << 8, 24).ok());
        let ours: Vec<_> = all.filter(|prefix| shard_of(*prefix) == 0).take(ROUTES).collect();
        ours.iter().for_each(|prefix| routes.push_v4(*prefix, 0, attrs));
        let work = Work::of_nobody(routes.finish(PeerId::LOCAL, 0));
        slot.apply(0, &work, Arc::default, |_| {});

        let say = |metric| {
            let host = Prefix::new(u32::from(Ipv4Addr::new(192, 0, 2, 1)), 32).expect("a length").into();
            slot.post(ShardOp::NextHops(Arc::new(NextHopView::new([(host, metric)]))));
        };
        let best = || {
            let (mut cursor, mut best) = (ScanCursor::START, 0);
            let rib = slot.rib();
            while !rib
                .scan::<u32>(&mut cursor, ROUTES, &mut |route| best += usize::from(route.best().is_some()))
            {
            }
            best
        };
        assert_eq!(best(), ROUTES);
        say(None);
        let (mut slices, mut looked_at) = (0, 0);
        while looked_at < ROUTES {
            slot.slice(0, Arc::default, |changes| looked_at += changes.v4.len());
            say(None);
            slices += 1;
            assert!(slot.running.lock().len() <= 2 && slices <= 4, "{looked_at} after {slices} slices");
        }
        assert_eq!(best(), 0);
        for metric in [Some(1), None, Some(2)] {
            say(metric);
            slot.slice(0, Arc::default, |_| {});
            say(metric);
        }
        while slot.slice(0, Arc::default, |_| {}) {}
        assert_eq!((best(), slot.has_work()), (ROUTES, false));
    }
    /// A batch that was read before import changed, and arrives after kept routes were judged again, is judged again
    /// too.
    #[test]
    fn a_batch_read_under_the_old_policy_is_judged_by_the_new_one() {
        let mut config =
            NeighborConfig::new([192, 0, 2, 1].into(), 64_500, 64_501, Ipv4Addr::new(192, 0, 2, 2));
        config.import.keep_rejected = KeepRejected::All;
        let mut importer = Importer::new(Arc::new(Interner::new(1)));
        importer.set_config(&config);
        importer.set_policy(Some(Arc::new(Policy::reject_all())));
        let judge = importer.judge().clone();
        let config = Arc::new(config);
        let state = PeerState {
            session: Session::new(config.clone(), PeerId(0), 1),
            importer: Some(Box::new(importer)),
            links: [None, None],
            negotiated: None,
            sending: None,
            written_bytes: 0,
            dynamic: false,
            config,
        };
        let neighbor = Arc::new(PeerSlot::new(PeerId(0), state));
        let mut attrs = AttrsBuilder::default();
        attrs.prepend(64_500, 1, SegmentKind::Sequence).expect("a short path");
        let attrs = Interner::new(1).intern(&mut attrs);
        let prefix = (0x0a00_0000..).filter_map(|address: u32| Prefix::new(address, 32).ok());
        let prefix = prefix.filter(|prefix| shard_of(*prefix) == 0).take(1);
        let mut routes = RouteBatchBuilder::default();
        let (index, received) = (routes.push_attrs(attrs.clone()), routes.push_received_attrs(attrs));
        for prefix in prefix {
            routes.push(prefix, 0, index);
            routes.push_received(prefix, 0, received);
        }
        let routes = routes.finish(PeerId(0), 0);
        let (slot, pending) = (Some(neighbor.clone()), Pending::default());
        let work = Work { slot, epoch: 0, policy: 0, routes, after: Vec::new(), pending };

        let shard = ShardSlot::new(ShardConfig::default(), Arc::default());
        let run = || while shard.slice(0, Arc::default, |_| {}) {};
        *neighbor.new_import.lock() = Some(Arc::new(NewImport { judge, received_s: 1 }));
        neighbor.policy.store(1, Ordering::Release);
        shard.post(ShardOp::Reimport(neighbor.clone()));
        run();
        shard.apply(0, &work, Arc::default, |_| {});
        let counts = || (neighbor.paths.get(Family::Ipv4), neighbor.paths.received(Family::Ipv4));
        assert_eq!(counts(), (1, 1), "as it was judged when it was read");
        run();
        assert_eq!(counts(), (0, 1));
    }
}
