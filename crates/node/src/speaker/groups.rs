//! Update groups: neighbors that receive the same messages, and the dumps that new or slow members still need.
//!
//! A member that came up, asked for a refresh or fell behind wants a dump. The group's export queue starts one dump
//! for all members that want the same at that time. Shards feed a dump, which is encoded in small steps between
//! other work and waits while its readers do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_base::IpPrefix;
use thalweg_bgp::export::{
    DumpKind, DumpProgress, ExportView, NextHopRule, PeerSet, RouteServerRules, Versions, earliest, is_later,
};
use thalweg_bgp::peer::{PeerInfo, PeerKind};
use thalweg_bgp::policy::Policy;
use thalweg_bgp::rib::{RibAddress, ScanCursor};
use thalweg_bgp::route::Chosen;
use thalweg_bgp::session::{Negotiated, NeighborConfig, StopReason};
use thalweg_exec::control_plane::Share;
use thalweg_wire::bgp::Family;

use super::Speaker;
use super::export_queue::{GroupSlot, GroupState, Mrai, RunningDump};
use super::profile::Function;
use super::slot::{PeerSlot, PeerState, Sending};
use crate::control::UpdateGroupView;

/// Prefixes read from a shard in one step of a dump.
const STEP_PREFIXES: usize = 2048;

/// Steps of a dump before other work gets its turn.
const STEPS_PER_TURN: usize = 4;

impl Speaker {
    /// Adds a neighbor that came up to the group that fits it.
    pub(super) fn join_group(
        &self,
        slot: &Arc<PeerSlot>,
        config: &NeighborConfig,
        negotiated: &Negotiated,
        info: &Arc<PeerInfo>,
    ) -> Sending {
        let group = self.group_of(config, negotiated, info);
        let member = group.lock().group.join(slot.id, info.remote_as);
        Sending { connection: negotiated.connection, group, member, wants: VecDeque::new(), moves: false }
    }

    /// The group that fits this neighbor, with its member count already raised.
    fn group_of(
        &self,
        config: &NeighborConfig,
        negotiated: &Negotiated,
        info: &Arc<PeerInfo>,
    ) -> Arc<GroupSlot> {
        let view = Arc::new(self.export_view(config, negotiated, info));
        self.group_for(view, info, Mrai::of(config))
    }

    /// Everything that decides what a neighbor is sent.
    pub(super) fn export_view(
        &self,
        config: &NeighborConfig,
        negotiated: &Negotiated,
        info: &PeerInfo,
    ) -> ExportView {
        let policy = self.config().policy(config.export.rules.as_deref(), negotiated.kind);
        let shared = shares(config, negotiated)
            .then(|| self.network.shared_network(info.local_address, info.address))
            .flatten();
        view_of(config, negotiated, info, policy, shared)
    }

    /// Moves a neighbor to the group that fits its new configuration. Its pending messages continue there, followed
    /// by the difference; dumps that it was promised still come.
    pub(super) fn regroup(&self, slot: &Arc<PeerSlot>, state: &mut PeerState) {
        let Some(negotiated) = state.negotiated.clone() else { return };
        let Some(mut old) = state.sending.take_if(|sending| sending.moves) else { return };
        let info = Arc::new(negotiated.peer_info(slot.id, &state.config));
        let group = self.group_of(&state.config, &negotiated, &info);
        if Arc::ptr_eq(&group, &old.group) {
            group.members.fetch_sub(1, Ordering::AcqRel);
            old.moves = false;
            state.sending = Some(old);
            return;
        }
        let mut promised: Vec<DumpKind> = std::mem::take(&mut old.wants).into();
        let left = old.group.lock().group.hand_over(&mut old.member, &promised);
        let member = group.lock().group.join_from(slot.id, info.remote_as, left);
        let connection = old.connection;
        self.leave_group(slot, *old);
        let needs = member.needs();
        let mut sending = Sending { connection, group, member, wants: VecDeque::new(), moves: false };
        promised.retain(|kind| matches!(kind, DumpKind::Refresh { .. }));
        needs.into_iter().chain(promised).for_each(|kind| sending.want(kind));
        state.sending = Some(Box::new(sending));
    }

    pub(super) fn leave_group(&self, slot: &PeerSlot, sending: Sending) {
        let Sending { group, member, .. } = sending;
        group.lock().group.leave(slot.id);
        drop(member);
        group.members.fetch_sub(1, Ordering::AcqRel);
    }

    /// Finds or makes the group with this view, and raises its member count so that it is not removed as unused.
    fn group_for(&self, view: Arc<ExportView>, info: &Arc<PeerInfo>, mrai: Mrai) -> Arc<GroupSlot> {
        let mut groups = self.groups.lock();
        groups.retain(|slot| {
            let used = slot.members.load(Ordering::Acquire) > 0 || slot.has_dumps.load(Ordering::Acquire);
            if !used {
                self.export_queues()[slot.queue].work().groups.retain(|each| !Arc::ptr_eq(each, slot));
            }
            used
        });
        if let Some(found) = groups.iter().find(|slot| slot.mrai == mrai && *slot.lock().group.view() == view)
        {
            found.members.fetch_add(1, Ordering::AcqRel);
            return found.clone();
        }
        let depth = Family::ALL.iter().map(|family| view.depth(*family)).max().unwrap_or(1);
        self.report_ranks(depth);
        let index = groups.iter().map(|slot| slot.index + 1).max().unwrap_or(0);
        let queue = index % self.export_queues().len().max(1);
        let slot = Arc::new(GroupSlot::new(index, queue, view, info.clone(), self.limits, mrai));
        slot.members.fetch_add(1, Ordering::AcqRel);
        groups.push(slot.clone());
        self.export_queues()[queue].work().groups.push(slot.clone());
        slot
    }

    /// Begins the dumps that members of the share's groups want, and continues running ones. Returns whether there
    /// is more to do.
    pub(super) fn dump_background_work(&self, share: Share) -> bool {
        let mut more = false;
        let has_work = |group: &&Arc<GroupSlot>| {
            let is_wanted = group.wants.load(Ordering::Acquire);
            share.has(group.queue) && (is_wanted || group.dumps_can_go_on.load(Ordering::Acquire))
        };
        // This runs after every step of other work, and there is nearly always nothing to do.
        let groups: Vec<_> = self.groups.lock().iter().filter(has_work).cloned().collect();
        for group in &groups {
            if group.wants.swap(false, Ordering::AcqRel) {
                self.profile.time(Function::Export, || self.begin_dumps(group));
            }
            if group.dumps_can_go_on.swap(false, Ordering::AcqRel) {
                more |= self.profile.time(Function::Export, || self.get_on(group));
            }
        }
        more
    }

    /// Begins one dump for each wanted kind, for all members that want it.
    fn begin_dumps(&self, group: &Arc<GroupSlot>) {
        let slots = self.slots_in_use();
        let mut states: Vec<_> = slots.iter().map(|slot| slot.lock()).collect();
        let mut wanting: Vec<_> = states
            .iter_mut()
            .filter_map(|state| state.sending.as_mut())
            .filter(|sending| Arc::ptr_eq(&sending.group, group))
            .filter_map(|sending| {
                // The member's next write begins the dumps that it wants after this one.
                let kind = sending.next_dump()?;
                Some((kind, &mut sending.member))
            })
            .collect();
        let mut state = group.lock();
        while let Some((kind, _)) = wanting.first() {
            let kind = kind.clone();
            let (mut same, others): (Vec<_>, Vec<_>) = wanting.into_iter().partition(|each| each.0 == kind);
            let mut members: Vec<_> = same.iter_mut().map(|(_, member)| &mut **member).collect();
            let dump = state.group.dump(kind, &mut members);
            let (cursor, incomplete) = (ScanCursor::START, false);
            state.dumps.push(RunningDump { dump, shard: 0, family: 0, cursor, incomplete });
            wanting = others;
        }
        // Changes that waited went into the log first, so other members have them to write.
        self.grew.fetch_or(state.group.take_grew(), Ordering::AcqRel);
        group.has_dumps.store(!state.dumps.is_empty(), Ordering::Release);
        group.dumps_can_go_on.store(true, Ordering::Release);
    }

    /// Runs some steps of the group's dumps. Returns whether there is more to do now.
    fn get_on(&self, group: &GroupSlot) -> bool {
        let mut state = group.lock();
        let GroupState { dumps, .. } = &mut *state;
        let (mut more, mut encoded) = (false, false);
        let mut abandoned = PeerSet::default();
        dumps.retain_mut(|running| {
            for _ in 0..STEPS_PER_TURN {
                match running.dump.poll_block() {
                    DumpProgress::Encoded => encoded = true,
                    DumpProgress::NeedsRoutes => self.feed(running),
                    DumpProgress::WaitsForReaders => return true,
                    DumpProgress::Done => return false,
                }
                if running.incomplete {
                    abandoned = abandoned.or(running.dump.members());
                    return false;
                }
            }
            more = true;
            true
        });
        group.has_dumps.store(!dumps.is_empty(), Ordering::Release);
        if more {
            group.dumps_can_go_on.store(true, Ordering::Release);
        }
        drop(state);
        self.begin_anew(group, &abandoned);
        if encoded {
            self.grew.store(true, Ordering::Release);
            self.wake();
        }
        more || encoded
    }

    /// Ends the sessions of neighbors that fell so far behind that the withdrawals they need are no longer known.
    /// They reconnect and get the whole table.
    fn begin_anew(&self, group: &GroupSlot, abandoned: &PeerSet) {
        let now = self.last_time();
        for slot in abandoned.iter().filter_map(|peer| self.slot(peer.index())) {
            {
                let mut state = slot.lock();
                let sending = state.sending.as_ref();
                if !sending.is_some_and(|each| std::ptr::eq(&*each.group, group) && each.member.has_dump()) {
                    continue;
                }
                state.session.handle_stop(StopReason::OutOfResources, now);
                self.drive_alone(&slot, &mut state, now);
            }
            self.write_slot(&slot, now);
        }
    }

    fn feed(&self, running: &mut RunningDump) {
        if running.shard >= self.shards.len() {
            running.dump.finish_scan();
            return;
        }
        let family = Family::ALL[running.family];
        let done = !running.dump.kind().has(family)
            || match family {
                Family::Ipv4 => self.feed_family::<u32>(running),
                Family::Ipv6 => self.feed_family::<u128>(running),
            };
        if done {
            running.cursor = ScanCursor::START;
            running.family += 1;
            if running.family == Family::ALL.len() {
                running.family = 0;
                running.shard += 1;
            }
        }
    }

    fn feed_family<A: RibAddress>(&self, running: &mut RunningDump) -> bool {
        let mut ranked: Vec<Chosen> = Vec::new();
        let RunningDump { dump, shard, cursor, incomplete, .. } = running;
        let rib = self.shards[*shard].rib();
        let peers = self.peers();
        let done = rib.scan::<A>(cursor, STEP_PREFIXES, &mut |route| {
            ranked.clear();
            ranked.extend(route.ranked().map(|path| path.chosen()));
            dump.handle_route(*shard, route.prefix, route.version, &ranked, &peers);
        });
        if let (Some(since), Some(lost)) = (dump.kind().since(), rib.complete_since(A::FAMILY)) {
            *incomplete |= is_later(lost, since[A::FAMILY.index()][*shard]);
        }
        done
    }

    /// Tells the shards which tombstones some member may still need.
    pub(super) fn update_tombstone_floors(&self) {
        let mut floor = self.rib_versions();
        let mut lower = |versions: Versions| floor = earliest(&floor, &versions);
        let groups = self.groups.lock().clone();
        // A member's need moves from its log to its wants to a dump and back to a log. Reading in this order sees
        // it in at least one place, whatever moves meanwhile.
        for group in &groups {
            group.log.floor().into_iter().for_each(&mut lower);
        }
        for slot in self.slots_in_use() {
            let state = self.look(&slot);
            let wants = state.sending.iter().flat_map(|sending| &sending.wants);
            wants.filter_map(DumpKind::since).for_each(|since| lower(*since));
        }
        for group in &groups {
            if group.has_dumps.load(Ordering::Acquire) {
                let since = |running: &RunningDump| running.dump.kind().since();
                group.lock().dumps.iter().filter_map(since).for_each(|since| lower(*since));
            }
        }
        for group in &groups {
            group.log.floor().into_iter().for_each(&mut lower);
        }
        for (index, shard) in self.shards.iter().enumerate() {
            let mut rib = shard.rib();
            for family in Family::ALL {
                rib.set_tombstone_floor(family, Some(floor[family.index()][index]));
            }
        }
    }

    /// The shards' current versions. This is the floor if no member is behind, because a member that joins before
    /// the next update can fall behind too.
    fn rib_versions(&self) -> Versions {
        let mut versions = Versions::default();
        for (index, shard) in self.shards.iter().enumerate() {
            let rib = shard.rib();
            for family in Family::ALL {
                versions[family.index()][index] = rib.version(family);
            }
        }
        versions
    }

    pub(super) fn group_views(&self) -> Vec<UpdateGroupView> {
        let groups = self.groups.lock().clone();
        let views = groups.iter().map(|slot| {
            let counters = slot.lock().group.counters();
            UpdateGroupView {
                group: slot.index,
                view: describe(slot.lock().group.view()),
                members: slot.members.load(Ordering::Acquire),
                log_bytes: counters.log.bytes_held as u64,
                changes: counters.changes,
                messages: counters.messages,
                log_bytes_max: counters.log.bytes_held_max as u64,
                lagging: counters.log.lagging,
            }
        });
        views.collect()
    }
}

/// Whether the neighbor is told of other routers on a network that it shares with us (RFC 4271 5.1.3): it is
/// external, directly connected, and has no next-hop option configured.
fn shares(config: &NeighborConfig, negotiated: &Negotiated) -> bool {
    let export = &config.export;
    let says = export.next_hop_self || export.next_hop_ipv4.is_some() || export.next_hop_ipv6.is_some();
    negotiated.kind == PeerKind::External && config.transport.multihop_ttl.is_none() && !says
}

/// The view of a neighbor: everything that decides what it is sent.
pub(crate) fn view_of(
    config: &NeighborConfig,
    negotiated: &Negotiated,
    info: &PeerInfo,
    policy: Arc<Policy>,
    shared: Option<IpPrefix>,
) -> ExportView {
    let export = &config.export;
    let external = negotiated.kind == PeerKind::External;
    let next_hop = match (export.next_hop_unchanged || export.route_server_client, external) {
        (true, _) => NextHopRule::Keep,
        (false, true) => shared.map_or(NextHopRule::Own, NextHopRule::KeepWithin),
        (false, false) if export.next_hop_self => NextHopRule::OwnUnlessInternal,
        (false, false) => NextHopRule::Keep,
    };
    let (own_ipv4, own_ipv6) = match info.local_address {
        std::net::IpAddr::V4(address) => (Some(address), None),
        std::net::IpAddr::V6(address) => (None, Some(address)),
    };
    ExportView {
        remote_as: None,
        neighbor: policy.depends_on_neighbor().then_some(info.id),
        cluster_id: config.cluster_id(),
        codec: negotiated.codec,
        families: negotiated.families,
        next_hop,
        own_ipv4: export.next_hop_ipv4.or(own_ipv4),
        own_ipv6: export.next_hop_ipv6.or(own_ipv6),
        policy,
        role: info.role,
        route_server: export
            .route_server_client
            .then(|| RouteServerRules { control_as: Some(info.local_as), ..RouteServerRules::default() }),
        add_path_depth: negotiated.send_paths.map(|paths| u16::from(paths.max(1))),
        private_as: export.private_as,
        send_communities: export.send_communities,
        ..ExportView::new(negotiated.kind, info.local_as)
    }
}

fn describe(view: &ExportView) -> String {
    let families = Family::ALL.iter().filter(|family| view.families[family.index()]);
    let families: Vec<String> = families.map(|family| family.to_string()).collect();
    let server = if view.route_server.is_some() { ", route server client" } else { "" };
    format!("{:?}{server}, {}, policy {}", view.kind, families.join(" "), view.policy.name())
}
