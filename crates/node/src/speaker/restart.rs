//! Our own restart (RFC 4724 section 4.1): nothing is selected before the neighbors have sent their tables.
//!
//! ```text
//!            End-of-RIB from all, or the timer          all shards have selected
//!  Deferred ────────────────────────────────> Selecting ────────────────────────> Done
//! ```
//!
//! Each family goes this way by itself. While it is `Deferred`, shards keep routes and select none, so nothing reaches
//! forwarding or other neighbors: what the predecessor left in the kernel keeps forwarding. `Selecting` is the
//! [`ShardOp::Select`] that every shard works off, until readers have what it changed. A session's neighbor is sent its
//! table, with the End-of-RIB at its end, when all families of the session are `Done`; until then it is in no group.
//!
//! Selection waits for neighbors that the predecessor had a session with, and for those that come up meanwhile: as long
//! as they can be expected to send an End-of-RIB. One without the capability is not waited for, nor one whose session was
//! stopped, or that is no longer configured. One that has restarted itself (R bit) may wait for us, so RFC 4724 leaves it
//! out; we give it [`RESTARTED_MS`], because FRR sets the bit in the first two minutes after every start and waits for
//! nobody.
//!
//! An End-of-RIB counts when every shard has applied what came before it: it travels with the routes, as
//! [`ShardOp::EndOfRib`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use thalweg_bgp::peer::Millis;
use thalweg_bgp::session::Negotiated;
use thalweg_wire::bgp::Family;

use super::shards::ShardOp;
use super::slot::PeerState;
use super::{Speaker, lock, log};
use crate::control::RestartView;

/// How long a neighbor is waited for that has restarted itself, in milliseconds.
const RESTARTED_MS: u64 = 10_000;

/// How often lanes are looked at until they have handed out what was selected, in milliseconds.
const LANES_AGAIN_MS: u64 = 5;

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
    /// Its address.
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

struct FamilyState {
    phase: Phase,
    /// Neighbors whose End-of-RIB has not come, and until when each is waited for at the longest.
    awaited: BTreeMap<IpAddr, Millis>,
}

struct State {
    families: [FamilyState; 2],
    /// When selection begins at the latest; known once the clock runs.
    until: Option<Millis>,
}

/// The restart, as far as it goes on.
pub(super) struct RestartProgress {
    /// Some family is not `Done`: without a restart, all that is ever looked at.
    is_active: AtomicBool,
    /// Something happened that may begin or end selection.
    is_dirty: AtomicBool,
    state: Mutex<State>,
    selections: Mutex<Vec<Arc<Selection>>>,
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
    fn release(&self, now: Millis, defer_ms: u64) -> Vec<(Family, Released, Vec<IpAddr>)> {
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
    fn selected(&self, family: Family) {
        let mut state = lock(&self.state);
        state.families[family.index()].phase = Phase::Done;
        if state.families.iter().all(|family| family.phase == Phase::Done) {
            self.is_active.store(false, Ordering::Release);
        }
    }

    /// When somebody is not waited for any longer.
    fn deadline(&self) -> Option<Millis> {
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
            left_s: state.until.map_or(0, |until| until.0.saturating_sub(now.0) / 1000),
        })
    }
}

/// An End-of-RIB on its way through the shards, behind the routes that came before it.
pub(super) struct EndMark {
    progress: Arc<RestartProgress>,
    address: IpAddr,
    family: Family,
    /// Shards that have not come to it.
    left: AtomicUsize,
}

/// Selection in a family, in all shards.
pub(super) struct Selection {
    pub(super) family: Family,
    progress: Arc<RestartProgress>,
    left: AtomicUsize,
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
    /// A shard has selected, and its changes are before the lanes.
    pub(super) fn finished(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.is_dirty.store(true, Ordering::Release);
        }
    }

    fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

impl Speaker {
    /// Whether this router has restarted and has not yet selected its routes, or not handed out what it selected.
    pub fn is_restarting(&self) -> bool {
        self.restart.is_active() || !self.lanes_are_empty()
    }

    /// Whether readers and groups have all that shards have changed so far.
    fn lanes_are_empty(&self) -> bool {
        let is_empty = self.lanes().iter().all(|lane| lane.waiting() == 0);
        // What a lane took out before is with its readers when nobody works it off.
        is_empty && self.lanes().iter().map(|lane| drop(lane.work())).count() == self.lanes().len()
    }

    /// Neighbors that keep our routes over a restart now, for who comes after this process.
    pub fn restart_neighbors(&self) -> Vec<RestartNeighbor> {
        let each = |state: &PeerState| {
            state.config.capabilities.graceful_restart.filter(|restart| restart.forwarding_preserved)?;
            let negotiated = state.negotiated.as_ref().filter(|each| each.graceful_restart.is_some())?;
            Some(RestartNeighbor { address: state.config.address, families: negotiated.families })
        };
        self.slots_in_use().iter().filter_map(|slot| each(&slot.lock())).collect()
    }

    /// Whether sessions came up or went since the last call.
    pub fn take_sessions_changed(&self) -> bool {
        self.sessions_changed.swap(false, Ordering::AcqRel)
    }

    /// An End-of-RIB came: the mark that the shards pass on, if anybody waits for it.
    pub(super) fn end_mark(&self, address: IpAddr, family: Family) -> Option<ShardOp> {
        let left = AtomicUsize::new(self.shards.len());
        let mark = || EndMark { progress: self.restart.clone(), address, family, left };
        self.restart.is_active().then(|| ShardOp::EndOfRib(Arc::new(mark())))
    }

    /// Begins and ends selection when it is time; when to look again.
    pub(super) fn restart_step(&self, now: Millis) -> u64 {
        if !self.restart.is_active() {
            return u64::MAX;
        }
        let deadline_ms = self.restart.deadline().map_or(0, |at| at.0);
        if !self.restart.is_dirty.swap(false, Ordering::AcqRel) && now.0 < deadline_ms {
            return deadline_ms;
        }
        let defer_ms = u64::from(self.config().selection_deferral_s) * 1000;
        let mut selections = lock(&self.restart.selections);
        for (family, why, missing) in self.restart.release(now, defer_ms) {
            log::selecting(family, why, &missing);
            let left = AtomicUsize::new(self.shards.len());
            let selection = Arc::new(Selection { family, progress: self.restart.clone(), left });
            self.post_to_shards(&ShardOp::Select(selection.clone()));
            selections.push(selection);
        }
        let over = selections.extract_if(.., |selection| selection.is_over() && self.lanes_are_empty());
        let over: Vec<_> = over.collect();
        let waits = !selections.is_empty();
        drop(selections);
        if !over.is_empty() {
            over.iter().for_each(|selection| self.restart.selected(selection.family));
            self.begin_sending();
        }
        if waits {
            // The lanes have to be looked at again.
            self.restart.is_dirty.store(true, Ordering::Release);
            return now.0 + LANES_AGAIN_MS;
        }
        self.restart.deadline().map_or(u64::MAX, |at| at.0.max(now.0))
    }

    /// Sends tables to neighbors whose sessions waited for them. After the last family, OPENs speak of the restart only
    /// to those that were not there yet.
    fn begin_sending(&self) {
        let is_over = !self.restart.is_active();
        for slot in self.slots_in_use() {
            let mut state = slot.lock();
            let Some(negotiated) = state.negotiated.clone() else { continue };
            if is_over {
                state.session.set_restarting(false);
            }
            if state.sending.is_none() && !self.restart.holds(negotiated.families) {
                self.start_sending(&slot, &mut state, &negotiated);
            }
        }
        if is_over {
            log::restart_is_over();
        }
        self.wake();
    }

    /// Stops waiting for neighbors that will send nothing: stopped ones, and those that are gone.
    pub(super) fn restart_upkeep(&self) {
        if !self.restart.is_active() {
            return;
        }
        let awaited: BTreeSet<IpAddr> = {
            let state = lock(&self.restart.state);
            state.families.iter().flat_map(|family| family.awaited.keys().copied()).collect()
        };
        for address in awaited {
            let known = lock(&self.by_address).get(&address).copied();
            let slot = known.and_then(|id| self.slot(id.index()));
            let is_dynamic = || {
                self.config()
                    .groups
                    .iter()
                    .any(|group| group.dynamic.as_ref().is_some_and(|range| range.contains(address)))
            };
            let is_gone = match slot {
                Some(slot) => slot.lock().session.is_stopped(),
                None => !is_dynamic(),
            };
            if is_gone {
                self.restart.forget(address);
            }
        }
    }
}

/// Whom selection waits for: those the predecessor had sessions with, or all that may keep our routes.
pub(super) fn awaited(restart: Restart, config: &thalweg_config::BgpConfig) -> Vec<RestartNeighbor> {
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
