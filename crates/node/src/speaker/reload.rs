//! Applies another configuration while sessions run, and originates this router's networks.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::{AttrRef, AttrsBuilder, Interner, NextHop};
use thalweg_bgp::peer::{Millis, PeerId};
use thalweg_bgp::route::{RouteBatchBuilder, WITHDRAWN};
use thalweg_bgp::session::config::{ConfigDifference, KeepRejected};
use thalweg_bgp::session::{Connection, NeighborConfig, Session, StopReason};
use thalweg_text::units::{count, counted};
use thalweg_wire::bgp::{Family, Origin, attribute, community};

use super::Speaker;
use super::places::Reservation;
use super::shards::{ShardOp, Work};
use super::slot::{NewImport, PeerSlot, PeerState};
use thalweg_config::{BgpConfig, BgpDiff, OnStop, Refiltered, diff};

/// Why a speaker does not take another configuration. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BgpReloadError {
    /// The system does not take what a neighbor needs: a password, most likely.
    #[error("neighbor {neighbor}: {error}; nothing was changed")]
    Neighbor { neighbor: Arc<str>, error: io::Error },
    /// There are too many neighbors.
    #[error("{0}; nothing was changed")]
    Places(io::Error),
}

/// A configuration that a speaker can apply; meanwhile no other can be prepared. Dropping it changes nothing.
#[must_use]
pub struct PreparedBgp<'s> {
    speaker: &'s Speaker,
    diff: BgpDiff,
    new: Arc<BgpConfig>,
    reserved: Reservation<'s>,
    _one_at_a_time: MutexGuard<'s, ()>,
}

impl PreparedBgp<'_> {
    /// Applies the configuration. Only what differs is touched, and sessions whose settings are the same stay up.
    /// Returns what was done, in words.
    pub fn apply(self) -> Vec<String> {
        let Self { speaker, diff, new, reserved, _one_at_a_time } = self;
        let now = Millis(speaker.now_ms.load(Ordering::Relaxed));
        let sources = speaker.config().rpki.clone();
        *speaker.config.write() = new.clone();
        reserved.give_slots(&diff.added, now);
        let mut done = diff.restart.clone();
        if sources != new.rpki && !sources.is_empty() && new.has_rpki() {
            done.push("sources of VRPs begin anew".to_owned());
        }
        for neighbor in &diff.removed {
            speaker.for_neighbor(neighbor, now, |speaker, slot, state| speaker.retire(slot, state, now));
            done.push(format!("neighbor {} removed", neighbor.name));
        }
        done.extend(diff.added.iter().map(|neighbor| format!("neighbor {} added", neighbor.name)));
        for neighbor in &diff.reset {
            speaker.for_neighbor(neighbor, now, |_, slot, state| {
                slot.take_config(state, neighbor);
                match neighbor.enabled {
                    true => {
                        state.session.handle_stop(StopReason::ConfigChanged, now);
                        state.session.handle_start(now);
                    }
                    false => state.session.handle_stop(StopReason::Shutdown { text: String::new() }, now),
                }
            });
            done.push(format!("neighbor {} begins anew", neighbor.name));
        }
        for neighbor in &diff.quiet {
            speaker.for_neighbor(neighbor, now, |speaker, slot, state| {
                speaker.take_config(slot, state, neighbor, now);
            });
            done.push(format!("neighbor {} has new settings", neighbor.name));
        }
        for each in &diff.refiltered {
            speaker.for_neighbor(&each.neighbor, now, |speaker, slot, state| {
                speaker.refilter(slot, state, each, now, &mut done);
            });
        }
        for group in &diff.groups_changed {
            speaker.refilter_dynamic(&new, group, now, &mut done);
        }
        for group in &diff.groups_removed {
            speaker.retire_dynamic(group, now);
            done.push(format!("group {group} has no dynamic neighbors any more"));
        }
        if !(diff.networks_added.is_empty() && diff.networks_removed.is_empty()) {
            speaker.change_networks(&diff.networks_added, &diff.networks_removed);
            let (added, removed) = (diff.networks_added.len(), diff.networks_removed.len());
            done.push(format!(
                "{} announced, {} withdrawn",
                counted(added as u64, "network"),
                count(removed as u64)
            ));
        }
        speaker.wake();
        done
    }
}

impl Speaker {
    /// Announces the configured networks.
    pub(super) fn originate(&self) {
        self.change_networks(&self.config().networks, &[]);
    }

    fn change_networks(&self, added: &[IpPrefix], removed: &[IpPrefix]) {
        self.apply_local(origination(&self.interner, &[], added, removed));
    }

    /// Announces prefixes with the community BLACKHOLE (RFC 7999), and withdraws others. One that is a configured
    /// network too is announced as that again.
    pub fn change_blackholes(&self, added: &[IpPrefix], removed: &[IpPrefix]) {
        let networks = &self.config().networks;
        let (back, removed): (Vec<_>, Vec<_>) = removed.iter().partition(|prefix| networks.contains(prefix));
        self.apply_local(origination(&self.interner, &[community::BLACKHOLE], added, &removed));
        if !back.is_empty() {
            self.change_networks(&back, &[]);
        }
        self.wake();
    }

    fn apply_local(&self, mut routes: RouteBatchBuilder) {
        let now = self.last_time();
        self.apply_work(&Work::of_nobody(routes.finish(PeerId::LOCAL, now.seconds())));
    }

    /// Applies another configuration. Returns what was done, in words; after an error nothing has changed.
    pub fn reload(&self, new: Arc<BgpConfig>) -> Result<Vec<String>, BgpReloadError> {
        Ok(self.prepare_reload(new)?.apply())
    }

    /// Does everything of a reload that can be refused: reserves slots for added neighbors, and sets passwords.
    pub fn prepare_reload(&self, new: Arc<BgpConfig>) -> Result<PreparedBgp<'_>, BgpReloadError> {
        let one_at_a_time = self.reloading.lock();
        let diff = diff(&self.config(), &new);
        let mut reserved = self.reserve(&diff.added).map_err(BgpReloadError::Places)?;
        for neighbor in diff.added.iter().chain(&diff.reset) {
            reserved.expect(neighbor).map_err(|error| {
                let neighbor = neighbor.name.clone();
                BgpReloadError::Neighbor { neighbor, error }
            })?;
        }
        Ok(PreparedBgp { speaker: self, diff, new, reserved, _one_at_a_time: one_at_a_time })
    }

    fn for_neighbor(
        &self,
        neighbor: &NeighborConfig,
        now: Millis,
        act: impl FnOnce(&Self, &Arc<PeerSlot>, &mut PeerState),
    ) {
        self.with_slot(neighbor.address, now, |speaker, slot, state| {
            act(speaker, slot, state);
            // The new limit may be below the current count.
            slot.note_prefix_counts(state, now);
        });
    }

    /// Ends a neighbor's session for good. Its slot becomes free when its routes are gone.
    pub(super) fn retire(&self, slot: &Arc<PeerSlot>, state: &mut PeerState, now: Millis) {
        state.session.handle_stop(StopReason::Deconfigured, now);
        self.drive_alone(slot, state, now);
        self.give_up_address(slot, &state.config);
        slot.free.store(true, Ordering::Release);
    }

    /// Applies new policies to a session that stays up: judges its kept routes again or asks for the neighbor's
    /// routes, and evaluates again what it is sent.
    fn refilter(
        &self,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        each: &Refiltered,
        now: Millis,
        done: &mut Vec<String>,
    ) {
        // Attributes are discarded before routes are kept.
        let (was, is) = (&state.config.import.discard_attributes, &each.neighbor.import.discard_attributes);
        let reads_the_same = was == is;
        self.take_config(slot, state, &each.neighbor, now);
        let name = &each.neighbor.name;
        let Some(negotiated) = state.negotiated.clone() else {
            done.push(format!("neighbor {name} has new policies"));
            return;
        };
        if each.import {
            self.set_import_policy(state, &negotiated);
        }
        if each.import && reads_the_same && self.reimport(slot, state, now) {
            done.push(format!("neighbor {name} has a new import policy, applied to its kept routes"));
        } else if each.import {
            let families = Family::ALL.into_iter().filter(|family| negotiated.family(*family));
            let asked = families.filter(|family| state.session.refresh(*family)).count();
            done.push(match asked {
                0 => {
                    format!("neighbor {name} has a new import policy; it offers no route refresh: reset it")
                }
                _ => format!("neighbor {name} has a new import policy and is asked for its routes"),
            });
        }
        if each.export {
            if let Some(sending) = &mut state.sending {
                sending.moves = true;
            }
            self.regroup(slot, state);
            done.push(format!("neighbor {name} has a new export policy and is sent the difference"));
        }
    }

    /// Has the shards judge the neighbor's kept routes by its new policy. `false` if not all of them are kept.
    fn reimport(&self, slot: &Arc<PeerSlot>, state: &PeerState, now: Millis) -> bool {
        let keeps = state.importer.as_ref().map(|importer| importer.judge().keeps());
        let is_whole = keeps == Some(KeepRejected::All) && slot.paths.is_received_whole();
        if is_whole {
            self.post_import(slot, state, now);
        }
        is_whole
    }

    /// Applies a changed configuration of the neighbor to its session.
    fn take_config(
        &self,
        slot: &Arc<PeerSlot>,
        state: &mut PeerState,
        config: &Arc<NeighborConfig>,
        now: Millis,
    ) {
        let kept = state.config.import.keep_rejected;
        slot.take_config(state, config);
        let keeps = config.import.keep_rejected;
        if kept == keeps {
            return;
        }
        match keeps {
            // What the neighbor has sent so far is not there.
            KeepRejected::All => slot.paths.set_received_whole(false),
            KeepRejected::None | KeepRejected::Rpki if state.negotiated.is_some() => {
                self.post_import(slot, state, now);
            }
            KeepRejected::None | KeepRejected::Rpki => {}
        }
    }

    fn post_import(&self, slot: &Arc<PeerSlot>, state: &PeerState, now: Millis) {
        let Some(importer) = &state.importer else { return };
        let import = NewImport { judge: importer.judge().clone(), received_s: now.seconds() };
        // In this order: a shard that sees the new number finds the new import.
        *slot.new_import.lock() = Some(Arc::new(import));
        slot.policy.fetch_add(1, Ordering::AcqRel);
        self.post_to_shards(&ShardOp::Reimport(slot.clone()));
    }

    /// Updates the dynamic neighbors of a group whose range or template changed.
    fn refilter_dynamic(&self, new: &BgpConfig, group: &Arc<str>, now: Millis, done: &mut Vec<String>) {
        let Some(range) =
            new.groups.iter().find(|each| each.name == *group).and_then(|each| each.dynamic.clone())
        else {
            return;
        };
        for slot in self.slots_in_use() {
            let mut state = self.look(&slot);
            if !state.dynamic || state.config.group.as_ref() != Some(group) {
                continue;
            }
            if !range.contains(state.config.address) {
                self.retire(&slot, &mut state, now);
                continue;
            }
            let neighbor = Arc::new(range.neighbor(state.config.address));
            match neighbor.difference(&state.config) {
                ConfigDifference::Session => self.retire(&slot, &mut state, now),
                ConfigDifference::Quiet => self.take_config(&slot, &mut state, &neighbor, now),
                ConfigDifference::None | ConfigDifference::Routes => {
                    let each = Refiltered { neighbor, import: true, export: true };
                    self.refilter(&slot, &mut state, &each, now, done);
                    self.drive_alone(&slot, &mut state, now);
                }
            }
        }
    }

    fn retire_dynamic(&self, group: &Arc<str>, now: Millis) {
        for slot in self.slots_in_use() {
            let mut state = self.look(&slot);
            if state.dynamic && state.config.group.as_ref() == Some(group) {
                self.retire(&slot, &mut state, now);
            }
        }
    }

    /// Ends all sessions. Neighbors get a NOTIFICATION; with `KeepRoutes`, those that keep our routes over a
    /// restart get none.
    pub fn shut_down(&self, on_stop: OnStop) {
        let now = self.last_time();
        let reason = match on_stop {
            OnStop::RemoveRoutes => StopReason::Shutdown { text: String::new() },
            OnStop::KeepRoutes => StopReason::Restarting,
        };
        for slot in self.slots_in_use() {
            {
                let mut state = slot.lock();
                state.session.handle_stop(reason.clone(), now);
                self.drive_alone(&slot, &mut state, now);
            }
            self.write_slot(&slot, now);
        }
    }

    /// Serves connections that still have a NOTIFICATION to deliver; returns whether some are still open. Call it
    /// for a moment after [`Self::shut_down`].
    pub fn is_parting(&self) -> bool {
        self.partings.look(self.last_time())
    }

    /// Puts a new session in the place of one that panicked.
    pub(super) fn replace_session(&self, slot: &Arc<PeerSlot>, state: &mut PeerState, now: Millis) {
        let negotiated = state.negotiated.clone();
        self.down(slot, state, [false; 2]);
        // Routes kept for a restart have lost their deadline, so families outside the session are withdrawn too.
        for family in Family::ALL {
            if !negotiated.as_ref().is_some_and(|negotiated| negotiated.family(family)) {
                self.withdraw_all(slot, family);
            }
        }
        state.session = Session::new(state.config.clone(), slot.id, self.seed ^ now.0);
        // The panic may have left the importer in the middle of a change too.
        state.importer = None;
        state.session.handle_start(now);
        for connection in Connection::ALL {
            state.links[connection as usize] = None;
        }
        self.drive_alone(slot, state, now);
    }
}

/// Routes for added networks, and withdrawals for removed ones.
pub(crate) fn origination(
    interner: &Interner,
    communities: &[u32],
    added: &[IpPrefix],
    removed: &[IpPrefix],
) -> RouteBatchBuilder {
    let mut routes = RouteBatchBuilder::default();
    let v4 = routes.push_attrs(local_attrs(interner, communities, NextHop::V4(Ipv4Addr::UNSPECIFIED)));
    let v6 = NextHop::V6 { global: Ipv6Addr::UNSPECIFIED, link_local: None };
    let v6 = routes.push_attrs(local_attrs(interner, communities, v6));
    let both = removed.iter().map(|p| (p, true)).chain(added.iter().map(|p| (p, false)));
    for (prefix, withdraw) in both {
        match prefix {
            IpPrefix::V4(prefix) => routes.push_v4(*prefix, 0, if withdraw { WITHDRAWN } else { v4 }),
            IpPrefix::V6(prefix) => routes.push_v6(*prefix, 0, if withdraw { WITHDRAWN } else { v6 }),
        }
    }
    routes
}

fn local_attrs(interner: &Interner, communities: &[u32], next_hop: NextHop) -> AttrRef {
    let mut builder = AttrsBuilder::default();
    (builder.origin, builder.next_hop) = (Origin::Igp, next_hop);
    // Setting an empty AS_PATH, or one community, cannot fail: they are not too long.
    let _ = builder.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &[]);
    let _ = builder.set_communities(communities);
    interner.intern(&mut builder)
}
