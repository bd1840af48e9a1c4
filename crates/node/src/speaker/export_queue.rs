//! Export queues: changes of the shards become UPDATEs of groups, and go to the other readers of routes.
//!
//! A shard appends its changes to every export queue while its lock is held, so that each queue sees the changes of a
//! shard in order. The first thread that finds a queue free empties it: it hands the changes to every group of the queue
//! and, when enough have gathered or no more are coming, lets the groups encode.
//!
//! Gathering matters: prefixes that share attributes come from several shards, and a prefix that changes
//! several times in a moment needs to be sent once. It is bounded by [`PENDING_MAX`] changes and
//! [`HOLD_MAX_MS`].

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use thalweg_bgp::export::{Dump, ExportLimits, ExportView, GroupLog, UpdateGroup};
use thalweg_bgp::peer::{PeerInfo, PeerTable};
use thalweg_bgp::rib::ScanCursor;
use thalweg_bgp::route::SharedChanges;
use thalweg_bgp::session::NeighborConfig;
use thalweg_exec::control_plane::Exported;

use super::lock;

/// Changes that are held back at most.
const PENDING_MAX: usize = 8192;

/// How long changes are held back at most, in milliseconds.
const HOLD_MAX_MS: u64 = 10;

/// Somebody who wants to know what changed: the FIB, the kernel, a file of updates.
pub trait RouteReader: Send {
    /// Changes of one shard, in order. Called by the threads that route: a reader keeps what it is given and lets
    /// another thread do the work.
    fn handle_changes(&mut self, changes: &SharedChanges, peers: &PeerTable);

    /// Everything that is known has been handed over: pass it on.
    fn flush(&mut self);
}

/// An export queue and its inbox.
#[derive(Default)]
pub(super) struct ExportQueue {
    inbox: Mutex<VecDeque<SharedChanges>>,
    work: Mutex<ExportWork>,
}

#[derive(Default)]
pub(super) struct ExportWork {
    pub(super) groups: Vec<Arc<GroupSlot>>,
    pub(super) readers: Vec<Box<dyn RouteReader>>,
    pending: usize,
    pending_since_ms: Option<u64>,
    /// When the next group may send again that has something and may not yet (MRAI).
    delayed_until_ms: Option<u64>,
}

/// Least time between two UPDATEs about a prefix (MinRouteAdvertisementInterval), kept for all prefixes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mrai {
    /// 0: none.
    ms: u64,
    /// Withdrawals wait too.
    withdrawals: bool,
}

impl Mrai {
    pub(super) fn of(config: &NeighborConfig) -> Self {
        let timers = &config.timers;
        // Without an interval there is nothing to wait for, and neighbors that differ in nothing else share a group.
        Self { ms: timers.mrai_ms.into(), withdrawals: timers.mrai_withdrawals || timers.mrai_ms == 0 }
    }

    /// Whether there is an interval.
    pub(super) fn is_set(self) -> bool {
        self.ms > 0
    }
}

/// An update group's place.
pub(super) struct GroupSlot {
    pub(super) index: usize,
    pub(super) queue: usize,
    pub(super) log: Arc<GroupLog>,
    pub(super) mrai: Mrai,
    pub(super) members: AtomicUsize,
    /// Some member wants a dump.
    pub(super) wants: AtomicBool,
    /// There are dumps, and whether they have to wait for readers.
    pub(super) has_dumps: AtomicBool,
    pub(super) dumps_can_go_on: AtomicBool,
    state: Mutex<GroupState>,
}

pub(super) struct GroupState {
    pub(super) group: UpdateGroup,
    flushed_at_ms: Option<u64>,
    /// Tables for members that came, or fell behind.
    pub(super) dumps: Vec<RunningDump>,
}

/// A dump and how far its scan has come.
pub(super) struct RunningDump {
    pub(super) dump: Dump,
    pub(super) shard: usize,
    pub(super) family: usize,
    pub(super) cursor: ScanCursor,
    /// Prefixes that went away and that it would have to withdraw are forgotten: there were too many.
    pub(super) incomplete: bool,
}

impl ExportQueue {
    /// Appends changes.
    pub(super) fn push(&self, changes: SharedChanges) {
        lock(&self.inbox).push_back(changes);
    }

    /// Changes that wait, as shards put them.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.inbox).len()
    }

    /// What the export queue works on.
    pub(super) fn work(&self) -> MutexGuard<'_, ExportWork> {
        lock(&self.work)
    }

    /// When a group may send again that may not yet.
    pub(super) fn delayed_until_ms(&self) -> Option<u64> {
        self.work().delayed_until_ms
    }

    /// Works off what waits. If another thread is at it, that one does it.
    pub(super) fn export(&self, peers: impl Fn() -> Arc<PeerTable>, now: bool, now_ms: u64) -> Exported {
        let mut exported = Exported::default();
        loop {
            let Some(mut work) = self.work.try_lock() else { return exported };
            loop {
                let next = lock(&self.inbox).pop_front();
                let Some(changes) = next else { break };
                // Asked for when the changes are there: a neighbor whose routes these are may just have come.
                work.take_in(&changes, &peers(), now_ms);
                if work.pending >= PENDING_MAX {
                    exported.grew |= work.flush(now_ms);
                }
            }
            let waited = work.pending_since_ms.is_some_and(|since| now_ms >= since + HOLD_MAX_MS);
            let delayed = work.delayed_until_ms.is_some_and(|until| until <= now_ms);
            if (work.pending > 0 && (now || waited)) || delayed {
                exported.grew |= work.flush(now_ms);
            }
            exported.held = work.pending > 0;
            drop(work);
            // Somebody put more there while we held the export queue and went away when it was taken.
            if lock(&self.inbox).is_empty() {
                return exported;
            }
        }
    }
}

impl ExportWork {
    /// Changes are held back.
    pub(super) fn has_pending(&self) -> bool {
        self.pending > 0
    }

    fn take_in(&mut self, changes: &SharedChanges, peers: &PeerTable, now_ms: u64) {
        for slot in &self.groups {
            slot.lock().group.handle_changes(changes, peers);
        }
        for reader in &mut self.readers {
            reader.handle_changes(changes, peers);
        }
        self.pending += changes.v4.len() + changes.v6.len();
        self.pending_since_ms.get_or_insert(now_ms);
    }

    /// Has the groups encode that may send now. Whether some log grew.
    fn flush(&mut self, now_ms: u64) -> bool {
        let mut grew = false;
        self.delayed_until_ms = None;
        for slot in &self.groups {
            let mut state = slot.lock();
            // With many changes it begins to encode by itself, and the rest may be of no concern to anybody.
            grew |= state.group.take_grew();
            if state.group.pending() == 0 {
                // What was of no concern to it is behind it: shards keep withdrawn prefixes for it no longer.
                state.group.flush();
                continue;
            }
            let next = state.flushed_at_ms.map_or(0, |at| at + slot.mrai.ms);
            if next > now_ms {
                if !slot.mrai.withdrawals {
                    grew |= state.group.flush_withdrawals();
                }
                self.delayed_until_ms = Some(self.delayed_until_ms.map_or(next, |until| until.min(next)));
                continue;
            }
            grew |= state.group.flush();
            state.flushed_at_ms = Some(now_ms);
        }
        self.readers.iter_mut().for_each(|reader| reader.flush());
        self.pending = 0;
        self.pending_since_ms = None;
        grew
    }
}

impl GroupSlot {
    pub(super) fn new(
        index: usize,
        queue: usize,
        view: Arc<ExportView>,
        representative: Arc<PeerInfo>,
        limits: ExportLimits,
        mrai: Mrai,
    ) -> Self {
        let group = UpdateGroup::new(view, representative, limits);
        let group = if mrai.withdrawals { group } else { group.withdrawing_first() };
        Self {
            index,
            queue,
            log: group.log(),
            mrai,
            members: AtomicUsize::new(0),
            wants: AtomicBool::new(false),
            has_dumps: AtomicBool::new(false),
            dumps_can_go_on: AtomicBool::new(false),
            state: Mutex::new(GroupState { group, flushed_at_ms: None, dumps: Vec::new() }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, GroupState> {
        lock(&self.state)
    }
}
