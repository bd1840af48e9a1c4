//! The progress of this router's own restart: which neighbors it still waits for, and in which families it has
//! selected routes. `restart` acts on it.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Negotiated;
use thalweg_wire::bgp::Family;

use crate::control::RestartView;
use thalweg_config::BgpConfig;

/// How long we wait for a neighbor that has restarted too, in milliseconds.
const RESTARTED_MS: u64 = 10_000;

/// What a restarting router knows of its predecessor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// Neighbors of the predecessor's sessions, and the families in which they send End-of-RIB. `None` if unknown:
    /// the router then waits for all neighbors configured with graceful restart.
    pub neighbors: Option<Vec<RestartNeighbor>>,
}

/// A neighbor that keeps our routes over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartNeighbor {
    pub address: IpAddr,
    /// The families of the session, indexed by [`Family::index`].
    pub families: [bool; 2],
}

/// Only the selection timer limits the wait.
const FOR_EVER: Millis = Millis(u64::MAX);

/// The progress of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Deferred,
    Selecting,
    Done,
}

/// Why selection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// All awaited neighbors have sent their tables.
    EndOfRib,
    /// The timer ran out.
    Timer,
}

pub(super) struct FamilyState {
    phase: Phase,
    /// Neighbors whose End-of-RIB is missing, with the latest time to wait for each.
    pub(super) awaited: BTreeMap<IpAddr, Millis>,
}

pub(super) struct State {
    pub(super) families: [FamilyState; 2],
    /// When selection begins at the latest; set at the first poll.
    until: Option<Millis>,
}

/// The progress of our restart; inactive if there was none.
pub(super) struct RestartProgress {
    /// Some family is not `Done`. Without a restart, only this flag is ever read.
    is_active: AtomicBool,
    /// Something happened that may begin or end selection.
    pub(super) is_dirty: AtomicBool,
    pub(super) state: Mutex<State>,
    pub(super) selections: Mutex<Vec<Arc<Selection>>>,
}

impl RestartProgress {
    /// Takes the neighbors to wait for; `None` without a restart.
    pub(super) fn new(awaited: Option<Vec<RestartNeighbor>>) -> Self {
        let is_active = awaited.is_some();
        let awaited = awaited.unwrap_or_default();
        let families = Family::ALL.map(|family| {
            let wants = awaited.iter().filter(|each| each.families[family.index()]);
            let phase = if is_active { Phase::Deferred } else { Phase::Done };
            FamilyState { phase, awaited: wants.map(|each| (each.address, FOR_EVER)).collect() }
        });
        Self {
            is_active: AtomicBool::new(is_active),
            is_dirty: AtomicBool::new(is_active),
            state: Mutex::new(State { families, until: None }),
            selections: Mutex::default(),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Families in which selection has not begun.
    pub(super) fn deferred(&self) -> [bool; 2] {
        let state = self.state.lock();
        [0, 1].map(|family| state.families[family].phase == Phase::Deferred)
    }

    /// Whether sessions with these families must wait for their tables.
    pub(super) fn holds(&self, families: [bool; 2]) -> bool {
        self.is_active() && {
            let state = self.state.lock();
            (0..2).any(|family| families[family] && state.families[family].phase != Phase::Done)
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.is_dirty.store(true, Ordering::Release);
    }

    /// Notes a session that came up: only now do we know whether it will send End-of-RIB.
    pub(super) fn handle_up(&self, address: IpAddr, negotiated: &Negotiated, now: Millis) {
        if !self.is_active() {
            return;
        }
        let limit = negotiated.graceful_restart.map(|restart| match restart.restarting {
            true => now.plus(RESTARTED_MS),
            false => FOR_EVER,
        });
        self.change(|state| {
            for (family, state) in Family::ALL.into_iter().zip(&mut state.families) {
                match limit.filter(|_| negotiated.family(family) && state.phase == Phase::Deferred) {
                    Some(limit) => _ = state.awaited.insert(address, limit),
                    None => _ = state.awaited.remove(&address),
                }
            }
        });
    }

    fn end_of_rib(&self, address: IpAddr, family: Family) {
        self.change(|state| _ = state.families[family.index()].awaited.remove(&address));
    }

    /// Stops waiting for this neighbor.
    pub(super) fn forget(&self, address: IpAddr) {
        if self.is_active() {
            self.change(|state| {
                state.families.iter_mut().for_each(|family| _ = family.awaited.remove(&address));
            });
        }
    }

    /// Families in which selection begins now, why, and the neighbors that were still awaited.
    pub(super) fn release(&self, now: Millis, defer_ms: u64) -> Vec<(Family, Released, Vec<IpAddr>)> {
        let mut state = self.state.lock();
        let until = *state.until.get_or_insert(now.plus(defer_ms));
        let mut released = Vec::new();
        for family in Family::ALL {
            let each = &mut state.families[family.index()];
            each.awaited.retain(|_, limit| *limit > now);
            let why = match each.awaited.is_empty() {
                true => Released::EndOfRib,
                false if until <= now => Released::Timer,
                false => continue,
            };
            if each.phase == Phase::Deferred {
                each.phase = Phase::Selecting;
                released.push((family, why, std::mem::take(&mut each.awaited).into_keys().collect()));
            }
        }
        released
    }

    /// Notes that every shard has selected in the family and that readers have the result.
    pub(super) fn selected(&self, family: Family) {
        let mut state = self.state.lock();
        state.families[family.index()].phase = Phase::Done;
        if state.families.iter().all(|family| family.phase == Phase::Done) {
            self.is_active.store(false, Ordering::Release);
        }
    }

    /// The next time at which a wait ends.
    pub(super) fn deadline(&self) -> Option<Millis> {
        let state = self.state.lock();
        let limits = state.families.iter().flat_map(|family| family.awaited.values().copied());
        limits.chain(state.until).min()
    }

    /// What `show` prints about the restart; `None` when it is complete.
    pub(super) fn view(&self, now: Millis) -> Option<RestartView> {
        if !self.is_active() {
            return None;
        }
        let state = self.state.lock();
        let of = |wanted: Phase| {
            let families = Family::ALL.iter().zip(&state.families).filter(|(_, each)| each.phase == wanted);
            families.map(|(family, _)| family.to_string()).collect()
        };
        let awaited: BTreeSet<_> = state.families.iter().flat_map(|family| family.awaited.keys()).collect();
        Some(RestartView {
            deferred: of(Phase::Deferred),
            selecting: of(Phase::Selecting),
            awaited: awaited.into_iter().copied().collect(),
            remaining_s: state.until.map_or(0, |until| until.0.saturating_sub(now.0) / 1000),
        })
    }
}

/// An End-of-RIB on its way through the shards, behind the routes that came before it.
pub(super) struct EndMark {
    pub(super) progress: Arc<RestartProgress>,
    pub(super) address: IpAddr,
    pub(super) family: Family,
    /// Shards that have not reached it.
    pub(super) left: AtomicUsize,
}

/// Selection in one family, in all shards.
pub(super) struct Selection {
    pub(super) family: Family,
    pub(super) progress: Arc<RestartProgress>,
    pub(super) left: AtomicUsize,
}

impl EndMark {
    /// A shard has applied everything that came before the mark.
    pub(super) fn passed(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.end_of_rib(self.address, self.family);
        }
    }
}

impl Selection {
    /// A shard has selected, and its changes are in the inboxes of the export queues.
    pub(super) fn finished(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.is_dirty.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// The neighbors that selection waits for: those of the predecessor's sessions, or all that may keep our routes.
pub(super) fn awaited(restart: Restart, config: &BgpConfig) -> Vec<RestartNeighbor> {
    restart.neighbors.unwrap_or_else(|| {
        let wanted = config
            .neighbors
            .iter()
            .filter(|neighbor| neighbor.enabled && neighbor.capabilities.graceful_restart.is_some());
        wanted
            .map(|neighbor| RestartNeighbor {
                address: neighbor.address,
                families: neighbor.capabilities.families,
            })
            .collect()
    })
}
