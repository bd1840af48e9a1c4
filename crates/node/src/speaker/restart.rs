//! Our own restart (RFC 4724 section 4.1): no routes are selected before the neighbors have sent their tables.
//!
//! ```text
//!            End-of-RIB from all, or the timer          all shards have selected
//!  Deferred ────────────────────────────────> Selecting ────────────────────────> Done
//! ```
//!
//! Each family has its own phase. While it is `Deferred`, shards keep routes and select none, so nothing reaches
//! forwarding or other neighbors: the predecessor's routes in the kernel keep forwarding. In `Selecting`, every
//! shard processes a [`ShardOp::Select`]; the phase ends when readers have the changes. A neighbor gets its table,
//! with the End-of-RIB at its end, when all families of the session are `Done`; until then it is in no group.
//!
//! Selection waits for neighbors of the predecessor's sessions, and for those that come up meanwhile, as long as an
//! End-of-RIB can be expected. It does not wait for a neighbor without the capability, nor for one whose session
//! was stopped or that is no longer configured. A neighbor that has restarted itself (R bit) may wait for us, so
//! RFC 4724 leaves it out. We give it [`RESTARTED_MS`], because FRR sets the bit for two minutes after every start
//! and waits for no one.
//!
//! An End-of-RIB counts when every shard has applied what came before it: it travels with the routes, as
//! [`ShardOp::EndOfRib`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_bgp::peer::Millis;
use thalweg_wire::bgp::Family;

use super::restart_progress::{EndMark, RestartNeighbor, Selection};
use super::shards::ShardOp;
use super::slot::PeerState;
use super::{Speaker, log};

/// Interval at which we check whether export queues have handed out the selected routes, in milliseconds.
const EXPORT_AGAIN_MS: u64 = 5;

impl Speaker {
    /// Whether this router has restarted and has not yet selected its routes or handed them out.
    pub fn is_restarting(&self) -> bool {
        self.restart.is_active() || !self.export_queues_are_empty()
    }

    /// Whether readers and groups have received all changes of the shards so far.
    fn export_queues_are_empty(&self) -> bool {
        let is_empty = self.export_queues().iter().all(|queue| queue.waiting() == 0);
        // An empty inbox is not enough: taking each queue's lock waits until the changes taken out have reached the
        // readers.
        is_empty
            && self.export_queues().iter().map(|queue| drop(queue.work())).count()
                == self.export_queues().len()
    }

    /// Neighbors that now keep our routes over a restart, for this process's successor.
    pub fn restart_neighbors(&self) -> Vec<RestartNeighbor> {
        let each = |state: &PeerState| {
            state.config.capabilities.graceful_restart.filter(|restart| restart.forwarding_preserved)?;
            let negotiated = state.negotiated.as_ref().filter(|each| each.graceful_restart.is_some())?;
            Some(RestartNeighbor { address: state.config.address, families: negotiated.families })
        };
        self.slots_in_use().iter().filter_map(|slot| each(&self.look(slot))).collect()
    }

    /// Whether sessions came up or went down since the last call.
    pub fn take_sessions_changed(&self) -> bool {
        self.sessions_changed.swap(false, Ordering::AcqRel)
    }

    /// The mark that follows an End-of-RIB through the shards, if our restart is still active.
    pub(super) fn end_mark(&self, address: IpAddr, family: Family) -> Option<ShardOp> {
        let left = AtomicUsize::new(self.shards.len());
        let mark = || EndMark { progress: self.restart.clone(), address, family, left };
        self.restart.is_active().then(|| ShardOp::EndOfRib(Arc::new(mark())))
    }

    /// Begins and ends selection when it is time. Returns the next deadline.
    pub(super) fn restart_step(&self, now: Millis) -> u64 {
        if !self.restart.is_active() {
            return u64::MAX;
        }
        let deadline_ms = self.restart.deadline().map_or(0, |at| at.0);
        if !self.restart.is_dirty.swap(false, Ordering::AcqRel) && now.0 < deadline_ms {
            return deadline_ms;
        }
        let defer_ms = u64::from(self.config().selection_deferral_s) * 1000;
        let mut selections = self.restart.selections.lock();
        for (family, why, missing) in self.restart.release(now, defer_ms) {
            log::selecting(family, why, &missing);
            let left = AtomicUsize::new(self.shards.len());
            let selection = Arc::new(Selection { family, progress: self.restart.clone(), left });
            self.post_to_shards(&ShardOp::Select(selection.clone()));
            selections.push(selection);
        }
        let over =
            selections.extract_if(.., |selection| selection.is_over() && self.export_queues_are_empty());
        let over: Vec<_> = over.collect();
        let waits = !selections.is_empty();
        drop(selections);
        if !over.is_empty() {
            over.iter().for_each(|selection| self.restart.selected(selection.family));
            self.begin_sending();
        }
        if waits {
            // The export queues must be checked again.
            self.restart.is_dirty.store(true, Ordering::Release);
            return now.0 + EXPORT_AGAIN_MS;
        }
        self.restart.deadline().map_or(u64::MAX, |at| at.0.max(now.0))
    }

    /// Sends tables to neighbors whose sessions waited for them. After the last family, new OPENs no longer set the
    /// R bit.
    fn begin_sending(&self) {
        let is_over = !self.restart.is_active();
        for slot in self.slots_in_use() {
            let mut state = self.look(&slot);
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

    /// Stops waiting for neighbors that will send nothing: stopped and removed ones.
    pub(super) fn restart_upkeep(&self) {
        if !self.restart.is_active() {
            return;
        }
        let awaited: BTreeSet<IpAddr> = {
            let state = self.restart.state.lock();
            state.families.iter().flat_map(|family| family.awaited.keys().copied()).collect()
        };
        for address in awaited {
            let known = self.by_address.lock().get(&address).copied();
            let slot = known.and_then(|id| self.slot(id.index()));
            let is_dynamic = || {
                self.config()
                    .groups
                    .iter()
                    .any(|group| group.dynamic.as_ref().is_some_and(|range| range.contains(address)))
            };
            let is_gone = match slot {
                Some(slot) => self.look(&slot).session.is_stopped(),
                None => !is_dynamic(),
            };
            if is_gone {
                self.restart.forget(address);
            }
        }
    }
}
