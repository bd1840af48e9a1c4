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

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_bgp::peer::Millis;
use thalweg_wire::bgp::Family;

use super::restart_progress::{EndMark, RestartNeighbor, Selection};
use super::shards::ShardOp;
use super::slot::PeerState;
use super::{Speaker, lock, log};

/// How often export queues are looked at until they have handed out what was selected, in milliseconds.
const EXPORT_AGAIN_MS: u64 = 5;

impl Speaker {
    /// Whether this router has restarted and has not yet selected its routes, or not handed out what it selected.
    pub fn is_restarting(&self) -> bool {
        self.restart.is_active() || !self.export_queues_are_empty()
    }

    /// Whether readers and groups have all that shards have changed so far.
    fn export_queues_are_empty(&self) -> bool {
        let is_empty = self.export_queues().iter().all(|queue| queue.waiting() == 0);
        // What an export queue took out before is with its readers when nobody processes it.
        is_empty
            && self.export_queues().iter().map(|queue| drop(queue.work())).count()
                == self.export_queues().len()
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
            // The export queues have to be looked at again.
            self.restart.is_dirty.store(true, Ordering::Release);
            return now.0 + EXPORT_AGAIN_MS;
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
