//! Export queues pass changes of the shards to update groups, which make UPDATEs of them, and to the other readers
//! of routes.
//!
//! A shard appends its changes to every export queue while its lock is held, so each queue sees the changes of a
//! shard in order. The first thread that finds a queue free empties it: it hands the changes to every group of the
//! queue and, when enough have gathered or no more are coming, lets the groups encode.
//!
//! Gathering matters: prefixes that share attributes come from several shards, and a prefix that changes several
//! times in a moment needs to be sent only once. [`PENDING_MAX`] changes and [`HOLD_MAX_MS`] bound it.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use thalweg_bgp::export::{Dump, ExportLimits, ExportView, GroupLog, UpdateGroup};
use thalweg_bgp::peer::{PeerInfo, PeerTable};
use thalweg_bgp::rib::ScanCursor;
use thalweg_bgp::route::SharedChanges;
use thalweg_bgp::session::NeighborConfig;
use thalweg_exec::control_plane::{Exported, HOLD_MAX_MS};

/// Changes held back at most.
const PENDING_MAX: usize = 8192;

/// A consumer of route changes: the FIB, the kernel, a file of updates.
pub trait RouteReader: Send {
    /// Receives changes of one shard, in order. Threads that route call it: a reader keeps the changes and lets
    /// another thread do the work.
    fn handle_changes(&mut self, changes: &SharedChanges, peers: &PeerTable);

    /// Ends a burst of changes: the reader may pass on what it has.
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
    /// The earliest time at which a group that has something to send may send again (MRAI).
    delayed_until_ms: Option<u64>,
}

/// The minimum time between two UPDATEs about a prefix (MinRouteAdvertisementInterval), kept for all prefixes at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mrai {
    /// 0: no interval.
    ms: u64,
    /// Withdrawals wait too.
    withdrawals: bool,
}

impl Mrai {
    pub(super) fn of(config: &NeighborConfig) -> Self {
        let timers = &config.timers;
        // Without an interval nothing waits, so groups must not differ in this flag.
        Self { ms: timers.mrai_ms.into(), withdrawals: timers.mrai_withdrawals || timers.mrai_ms == 0 }
    }

    /// Whether there is an interval.
    pub(super) fn is_set(self) -> bool {
        self.ms > 0
    }
}

/// An update group, its log, and the dumps of its members.
pub(super) struct GroupSlot {
    pub(super) index: usize,
    pub(super) queue: usize,
    pub(super) log: Arc<GroupLog>,
    pub(super) mrai: Mrai,
    pub(super) members: AtomicUsize,
    /// Some member wants a dump.
    pub(super) wants: AtomicBool,
    /// Whether there are dumps, and whether their readers let them continue.
    pub(super) has_dumps: AtomicBool,
    pub(super) dumps_can_go_on: AtomicBool,
    state: Mutex<GroupState>,
}

pub(super) struct GroupState {
    pub(super) group: UpdateGroup,
    flushed_at_ms: Option<u64>,
    /// Tables for members that joined or fell behind.
    pub(super) dumps: Vec<RunningDump>,
}

/// A dump and the position of its scan.
pub(super) struct RunningDump {
    pub(super) dump: Dump,
    pub(super) shard: usize,
    pub(super) family: usize,
    pub(super) cursor: ScanCursor,
    /// Too many withdrawn prefixes were forgotten that this dump would have to withdraw.
    pub(super) incomplete: bool,
}

impl ExportQueue {
    pub(super) fn push(&self, changes: SharedChanges) {
        self.inbox.lock().push_back(changes);
    }

    /// Sets of changes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.lock().len()
    }

    pub(super) fn work(&self) -> MutexGuard<'_, ExportWork> {
        self.work.lock()
    }

    /// The earliest time at which a delayed group may send.
    pub(super) fn delayed_until_ms(&self) -> Option<u64> {
        self.work().delayed_until_ms
    }

    /// Processes all waiting changes. Returns at once if another thread holds the queue: that thread processes
    /// them.
    pub(super) fn export(&self, peers: impl Fn() -> Arc<PeerTable>, now: bool, now_ms: u64) -> Exported {
        let mut exported = Exported::default();
        loop {
            let Some(mut work) = self.work.try_lock() else { return exported };
            loop {
                let next = self.inbox.lock().pop_front();
                let Some(changes) = next else { break };
                // The table is fetched after the changes: their neighbor may just have come up.
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
            // Another thread may have added changes and left because we held the queue.
            if self.inbox.lock().is_empty() {
                return exported;
            }
        }
    }
}

impl ExportWork {
    /// Whether changes are held back.
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

    /// Has the groups encode that may send now. Returns whether some log grew.
    fn flush(&mut self, now_ms: u64) -> bool {
        let mut grew = false;
        self.delayed_until_ms = None;
        for slot in &self.groups {
            let mut state = slot.lock();
            // With many changes a group encodes by itself, and may have nothing left to flush.
            grew |= state.group.take_grew();
            if state.group.pending() == 0 {
                // Flushing records that the group needs none of these changes: shards then stop keeping withdrawn
                // prefixes for it.
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
        self.state.lock()
    }
}
