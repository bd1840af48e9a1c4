//! How far a restart of ours has come: which neighbors are waited for, and in which families routes are selected by now. See
//! `restart` for what is done about it.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Negotiated;
use thalweg_wire::bgp::Family;

use super::lock;
use crate::control::RestartView;
use thalweg_config::BgpConfig;

/// How long a neighbor is waited for that has restarted itself, in milliseconds.
const RESTARTED_MS: u64 = 10_000;

/// What a router that comes back knows of its predecessor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// Neighbors it had a session with, and in which families they send End-of-RIB. `None`: that is not known, and all
    /// neighbors that are configured with graceful restart are waited for.
    pub neighbors: Option<Vec<RestartNeighbor>>,
}

/// A neighbor that keeps our routes over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartNeighbor {
    pub address: IpAddr,
    /// The families of the session, by [`Family::index`].
    pub families: [bool; 2],
}

/// No limit but the timer's.
const FOR_EVER: Millis = Millis(u64::MAX);

/// How far a family has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Deferred,
    Selecting,
    Done,
}

/// Why selection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// All neighbors have sent what they have.
    EndOfRib,
    /// The timer ran out.
    Timer,
}

pub(super) struct FamilyState {
    phase: Phase,
    /// Neighbors whose End-of-RIB has not come, and until when each is waited for at the longest.
    pub(super) awaited: BTreeMap<IpAddr, Millis>,
}

pub(super) struct State {
    pub(super) families: [FamilyState; 2],
    /// When selection begins at the latest; known once the clock runs.
    until: Option<Millis>,
}

/// The restart, as far as it goes on.
pub(super) struct RestartProgress {
    /// Some family is not `Done`: without a restart, all that is ever looked at.
    is_active: AtomicBool,
    /// Something happened that may begin or end selection.
    pub(super) is_dirty: AtomicBool,
    pub(super) state: Mutex<State>,
    pub(super) selections: Mutex<Vec<Arc<Selection>>>,
}

impl RestartProgress {
    /// Neighbors to wait for; `None` without a restart.
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

    /// Families in which nothing is selected yet.
    pub(super) fn deferred(&self) -> [bool; 2] {
        let state = lock(&self.state);
        [0, 1].map(|family| state.families[family].phase == Phase::Deferred)
    }

    /// Whether tables of sessions with these families have to wait.
    pub(super) fn holds(&self, families: [bool; 2]) -> bool {
        self.is_active() && {
            let state = lock(&self.state);
            (0..2).any(|family| families[family] && state.families[family].phase != Phase::Done)
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.is_dirty.store(true, Ordering::Release);
    }

    /// A session came up: whether its End-of-RIB is to be waited for is known now.
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

    /// Nobody waits for this neighbor any more.
    pub(super) fn forget(&self, address: IpAddr) {
        if self.is_active() {
            self.change(|state| {
                state.families.iter_mut().for_each(|family| _ = family.awaited.remove(&address));
            });
        }
    }

    /// Families to begin selecting in now, and why.
    pub(super) fn release(&self, now: Millis, defer_ms: u64) -> Vec<(Family, Released, Vec<IpAddr>)> {
        let mut state = lock(&self.state);
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

    /// Every shard has selected in the family, and readers know it.
    pub(super) fn selected(&self, family: Family) {
        let mut state = lock(&self.state);
        state.families[family.index()].phase = Phase::Done;
        if state.families.iter().all(|family| family.phase == Phase::Done) {
            self.is_active.store(false, Ordering::Release);
        }
    }

    /// When somebody is not waited for any longer.
    pub(super) fn deadline(&self) -> Option<Millis> {
        let state = lock(&self.state);
        let limits = state.families.iter().flat_map(|family| family.awaited.values().copied());
        limits.chain(state.until).min()
    }

    /// What `show` says, while there is something to say.
    pub(super) fn view(&self, now: Millis) -> Option<RestartView> {
        if !self.is_active() {
            return None;
        }
        let state = lock(&self.state);
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
    /// Shards that have not come to it.
    pub(super) left: AtomicUsize,
}

/// Selection in a family, in all shards.
pub(super) struct Selection {
    pub(super) family: Family,
    pub(super) progress: Arc<RestartProgress>,
    pub(super) left: AtomicUsize,
}

impl EndMark {
    /// A shard has applied everything that came before.
    pub(super) fn passed(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.end_of_rib(self.address, self.family);
        }
    }
}

impl Selection {
    /// A shard has selected, and its changes are before the export queues.
    pub(super) fn finished(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.is_dirty.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// Whom selection waits for: those the predecessor had sessions with, or all that may keep our routes.
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
