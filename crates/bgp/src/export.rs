//! Update groups: carry the RIB's selections to the neighbors.
//!
//! ```text
//! Changes ─> Rules (who may have it) ─> Queue (by prefix, by attributes) ─> Encoder ─> GroupLog ─> Member ─> writev
//! scan of the RIB ──────────────────────────────> Dump ──────────────────────────> its own log ──┘
//! ```
//!
//! All neighbors that are sent the same bytes form one [`UpdateGroup`]; what they have in common is its
//! [`ExportView`]. The group filters, compares, packs and encodes once. A member only reads the group's
//! [`GroupLog`] at its own pace and skips segments that are not for it. A neighbor must not get its own routes, but
//! that does not split a group: each segment of the log has an [`Audience`].
//!
//! # No Adj-RIB-Out
//! Export is a pure function of (view, prefix, attributes, source). So the old path of a change tells what members
//! had, and no copy of what was sent is kept. Each entry of the log is the whole new state of a prefix for its
//! audience, an announcement or a withdrawal. So reading older changes after newer ones, as happens after a
//! [`Dump`], ends in the right state as long as the last change of each prefix comes last. A dump may show any
//! state that a prefix ever had. So when several changes of a prefix are merged, a member that any of them
//! concerned and that gets nothing in the end is sent a withdrawal.
//!
//! When the best path of a prefix moves from A's to B's, all members except B are sent B's, and B, which had A's,
//! gets a withdrawal. A route server gives B the next path that it may have instead (RFC 7947 2.3), from the
//! further ranks of the change. With add-path (RFC 7911), each of the first ranks is announced under its number.
//!
//! # Bounds
//! See [`ExportLimits`]. A member that reads too slowly loses its place in the log, is counted, and catches up by a
//! dump of what has changed since.
//!
//! # What is missing
//! Aggregation. The driver decides when to flush, and so implements MRAI (`Mrai` in the speaker of `thalweg-node`).
//!
//! A route that changed only in what is not sent (MULTI_EXIT_DISC or LOCAL_PREF toward another AS) is not sent
//! again (RFC 4271 9.2): if origin and path are unchanged, the old and the new outgoing attributes are built and
//! compared.
//!
//! RFC 4271 (5, 9.1.3, 9.2), 4456, 4724, 4760, 5065, 6793, 7313, 7911, 7947, 8654, 8950, 9234.

mod attributes;
mod audience;
mod dump;
mod encode;
mod log;
mod member;
mod origins;
mod preview;
mod queue;
mod rules;
mod view;

pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thalweg_base::Prefix;
use thalweg_wire::bgp::Family;

pub use audience::{Audience, PeerSet, Tally};
pub use dump::{Dump, DumpKind, DumpProgress, Earlier};
pub use log::{Block, GroupLog, LogCounters, Segment, Versions, earliest, is_later};
pub use member::{GATHER_BYTES_MAX, Member, MemberState, SLICES_MAX};
pub use preview::{Outgoing, Preview};
pub use view::{ExportLimits, ExportView, NextHopRule, RouteServerRules};

use audience::AudienceCode;
use encode::Encoder;
use queue::{QueueAddress, Queues};
use rules::{Offer, Rules};

use crate::peer::{PeerId, PeerInfo, PeerTable};
use crate::route::{Change, Changes, Chosen};

/// The largest path identifier that a group ever sent, by family.
type PathIds = [AtomicU32; 2];

/// A path of a prefix that is sent to some members.
#[derive(Debug)]
struct Exported {
    /// The identifier that is sent; 0 without add-path.
    path_id: u16,
    /// The attributes before policy, with the source: these identify the path.
    attrs_id: usize,
    source: PeerId,
    offer: Offer,
}

/// The totals of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Changes of prefixes that were examined.
    pub changes: u64,
    /// UPDATE messages encoded, without those of dumps.
    pub messages: u64,
    /// Routes withdrawn or not announced because their attributes do not fit into a message, counted at each
    /// change; without dumps.
    pub too_long: u64,
    pub log: LogCounters,
}

/// The neighbors with one export view, and the messages for them.
pub struct UpdateGroup {
    rules: Rules,
    limits: ExportLimits,
    queues: Queues,
    encoder: Encoder,
    log: Arc<GroupLog>,
    /// The versions up to which changes are queued or encoded, and up to which they are encoded.
    handled: Versions,
    flushed: Arc<Versions>,
    path_ids: Arc<PathIds>,
    changes: u64,
    /// The log has grown since [`Self::take_grew`] last reported it.
    grew: bool,
    had: Vec<Exported>,
    gets: Vec<Exported>,
}

/// The state of a member that moves to another group.
pub struct HandOver {
    needs: DumpKind,
    path_ids: [u32; 2],
    gathered: member::Gathered,
}

impl UpdateGroup {
    /// Creates a group without members. `representative` stands for all members where the policy examines the
    /// neighbor.
    pub fn new(view: Arc<ExportView>, representative: Arc<PeerInfo>, limits: ExportLimits) -> Self {
        let encoder = Encoder::new(view.codec, view.message_length_max());
        Self {
            rules: Rules::new(view, representative),
            queues: Queues::new(true),
            encoder,
            log: Arc::new(GroupLog::new(limits.log_bytes_max)),
            limits,
            handled: Versions::default(),
            flushed: Arc::default(),
            path_ids: Arc::default(),
            changes: 0,
            grew: false,
            had: Vec::new(),
            gets: Vec::new(),
        }
    }

    /// Enables [`Self::flush_withdrawals`], which sends withdrawals before waiting announcements.
    pub fn withdrawing_first(mut self) -> Self {
        self.queues.withdraws_first();
        self
    }

    /// What the members have in common.
    pub fn view(&self) -> &Arc<ExportView> {
        &self.rules.view
    }

    /// The members of the group.
    pub fn members(&self) -> &PeerSet {
        &self.rules.audiences.members
    }

    /// The log of encoded messages that members read.
    pub fn log(&self) -> Arc<GroupLog> {
        self.log.clone()
    }

    /// The totals so far, including those of the log.
    pub fn counters(&self) -> GroupCounters {
        GroupCounters {
            changes: self.changes,
            messages: self.encoder.messages,
            too_long: self.rules.too_long,
            log: self.log.counters(),
        }
    }

    /// Adds a member for changes from now on; a [`DumpKind::Initial`] dump must deliver the existing routes.
    pub fn join(&mut self, peer: PeerId, remote_as: u32) -> Member {
        self.flush();
        self.rules.join(peer, remote_as);
        self.rules.clear_sets();
        Member::new(peer, self.log.clone())
    }

    /// Returns what a member takes to another group. Pass it to [`Self::join_from`] there, then let the member
    /// leave here: in this order, shards keep the tombstones that it still needs. Do not gather from the old member
    /// in between. `wanted` are the dumps that it was to get and that have not begun.
    pub fn hand_over(&self, member: &mut Member, wanted: &[DumpKind]) -> HandOver {
        let (since, under_way) = member.has();
        let replaces = |kind: &DumpKind| matches!(kind, DumpKind::Replace { .. });
        let known = !under_way.iter().chain(wanted).any(replaces);
        let others = wanted.iter().filter_map(DumpKind::since);
        let since = others.fold(since, |since, other| Arc::new(earliest(&since, &other)));
        let earlier = Earlier::of(known.then_some(&self.rules), under_way, wanted);
        let largest = |family: Family| self.path_ids[family.index()].load(Ordering::Relaxed);
        HandOver {
            needs: DumpKind::Replace { since, earlier: Arc::new(earlier) },
            path_ids: Family::ALL.map(largest),
            gathered: member.hand_over(),
        }
    }

    /// Adds a member of another group while its session continues, perhaps in the middle of a message. It needs the
    /// dump that [`Member::needs`] names.
    pub fn join_from(&mut self, peer: PeerId, remote_as: u32, from: HandOver) -> Member {
        let mut member = self.join(peer, remote_as);
        for (mine, theirs) in self.path_ids.iter().zip(from.path_ids) {
            mine.fetch_max(theirs, Ordering::Relaxed);
        }
        member.migrate_state(from.gathered, from.needs);
        member
    }

    /// Removes a member; the owner of its [`Member`] drops that.
    pub fn leave(&mut self, peer: PeerId) {
        self.flush();
        self.rules.leave(peer);
        self.rules.clear_sets();
        self.log.unfollow(peer);
    }

    /// The number of prefixes that wait to be encoded.
    pub fn pending(&self) -> usize {
        self.queues.len()
    }

    /// Takes the changes of a shard, in the shard's order. Encodes by itself when too many wait.
    pub fn handle_changes(&mut self, changes: &Changes, peers: &PeerTable) {
        self.rules.forget_sources();
        if !self.rules.audiences.members.is_empty() {
            self.changes += (changes.v4.len() + changes.v6.len()) as u64;
            self.handle_family(&changes.v4, peers);
            self.handle_family(&changes.v6, peers);
        }
        for (versions, last) in self.handled.iter_mut().zip(changes.last_version) {
            if let Some(version) = versions.get_mut(changes.shard) {
                *version = last;
            }
        }
    }

    fn handle_family<A: QueueAddress>(&mut self, changes: &[Change<A>], peers: &PeerTable) {
        let view = &self.rules.view;
        if !view.families[A::FAMILY.index()] {
            return;
        }
        let simple = self.rules.simple && view.depth(A::FAMILY) == 1 && !view.add_path(A::FAMILY);
        for change in changes {
            if self.queues.len() >= self.limits.pending_max {
                self.encode();
            }
            if simple {
                self.handle_simple(change, peers);
            } else {
                let further = change.further.as_deref();
                let old = change.old.iter().chain(further.into_iter().flat_map(|further| &further.old));
                let new = change.new.iter().chain(further.into_iter().flat_map(|further| &further.new));
                self.handle_whole(change.prefix, old, new, peers);
            }
        }
    }

    /// Handles the simple case: only the best path is sent, to all but its source.
    #[inline]
    fn handle_simple<A: QueueAddress>(&mut self, change: &Change<A>, peers: &PeerTable) {
        let (old, new) = (&change.old, &change.new);
        let rules = &mut self.rules;
        if let (Some(old), Some(new)) = (old, new)
            && old.peer == new.peer
            && (old.attrs == new.attrs
                || rules.simple_same(A::FAMILY, &old.attrs, &new.attrs, new.peer, peers))
        {
            return;
        }
        let too_long = rules.too_long;
        let had = match old {
            Some(old) => rules.simple_audience(A::FAMILY, &old.attrs, old.peer, peers),
            None => AudienceCode::NOBODY,
        };
        rules.too_long = too_long;
        let queue = A::queue(&mut self.queues);
        let mut pack = None;
        if let Some(new) = new {
            pack = queue.last_pack(new.attrs.id(), new.peer);
            if pack.is_none() {
                let audience = rules.simple_audience(A::FAMILY, &new.attrs, new.peer, peers);
                if rules.audiences.tidy(audience) != AudienceCode::NOBODY {
                    let origins = rules.origins(new.peer, peers);
                    let found = queue.pack(&new.attrs, origins, audience);
                    queue.remember_pack(new.attrs.id(), new.peer, found);
                    pack = Some(found);
                }
            }
        }
        if pack.is_none() && rules.audiences.tidy(had) == AudienceCode::NOBODY {
            // No member had it and none gets it, unless an older change waits.
            if queue.find(change.prefix, 0).is_some() {
                queue.enter(change.prefix, 0, had, &mut rules.audiences);
            }
            return;
        }
        let entry = queue.enter(change.prefix, 0, had, &mut rules.audiences);
        if let Some(pack) = pack {
            queue.assign(entry, pack);
        }
    }

    /// Handles any view: several paths, several audiences.
    fn handle_whole<'a, A: QueueAddress>(
        &mut self,
        prefix: Prefix<A>,
        old: impl Iterator<Item = &'a Chosen>,
        new: impl Iterator<Item = &'a Chosen>,
        peers: &PeerTable,
    ) {
        let (mut had, mut gets) = (std::mem::take(&mut self.had), std::mem::take(&mut self.gets));
        let too_long = self.rules.too_long;
        exported(&mut self.rules, prefix, old, peers, &mut had);
        self.rules.too_long = too_long;
        exported(&mut self.rules, prefix, new, peers, &mut gets);
        self.enter(prefix, &had, &mut gets);
        had.clear();
        gets.clear();
        (self.had, self.gets) = (had, gets);
    }

    /// Puts the change into the queue: for each path identifier, the members that had something and those that get
    /// something. Members that keep the same path are left out, unless the prefix is waiting already (so it is not
    /// sent yet).
    fn enter<A: QueueAddress>(&mut self, prefix: Prefix<A>, had: &[Exported], gets: &mut [Exported]) {
        let queue = A::queue(&mut self.queues);
        let Rules { view, audiences, .. } = &mut self.rules;
        let mut ids: Vec<u16> = Vec::new();
        if view.add_path(A::FAMILY) {
            ids.extend(had.iter().chain(gets.iter()).map(|out| out.path_id));
            ids.sort_unstable();
            ids.dedup();
        } else if had.len() + gets.len() > 0 {
            ids.push(0);
        }
        for path_id in ids {
            self.path_ids[A::FAMILY.index()].fetch_max(u32::from(path_id), Ordering::Relaxed);
            let waits = queue.find(prefix, path_id).is_some();
            let mut before = AudienceCode::NOBODY;
            for old in had.iter().filter(|out| out.path_id == path_id) {
                let mut lost = old.offer.audience;
                let same = |new: &&mut Exported| {
                    let (from, to) = (&old.offer, &new.offer);
                    (new.path_id, new.source, to.origins) == (path_id, old.source, from.origins)
                        && (new.attrs_id == old.attrs_id
                            || attributes::same(view, A::FAMILY, &from.attrs, &to.attrs, to.origins))
                };
                if !waits && let Some(new) = gets.iter_mut().find(same) {
                    let kept = audiences.and(old.offer.audience, new.offer.audience);
                    lost = audiences.minus(lost, kept);
                    new.offer.audience = audiences.minus(new.offer.audience, kept);
                }
                before = audiences.or(before, lost);
            }
            let mut packs = gets
                .iter()
                .filter(|out| out.path_id == path_id && out.offer.audience != AudienceCode::NOBODY)
                .peekable();
            if !waits && before == AudienceCode::NOBODY && packs.peek().is_none() {
                continue;
            }
            let entry = queue.enter(prefix, path_id, before, audiences);
            for out in packs {
                let pack = queue.pack(&out.offer.attrs, out.offer.origins, out.offer.audience);
                queue.assign(entry, pack);
            }
        }
    }

    /// Encodes all waiting changes into the log; returns whether the log grew since this was last asked.
    pub fn flush(&mut self) -> bool {
        self.encode();
        self.take_grew()
    }

    /// Encodes waiting withdrawals but no announcements; returns whether the log grew since this was last asked.
    pub fn flush_withdrawals(&mut self) -> bool {
        let mut taken = self.queues.take_withdrawals(&mut self.rules.audiences);
        let mut done = false;
        while !done {
            done = taken.encode(&mut self.rules, &mut self.encoder);
            if let Some((bytes, segments)) = self.encoder.take() {
                self.grew = true;
                self.log.push(Block { bytes, segments, versions: self.flushed.clone() });
            }
        }
        self.take_grew()
    }

    /// Whether the log grew since this or [`Self::flush`] last returned it: members have messages to write, or fell
    /// behind.
    pub fn take_grew(&mut self) -> bool {
        std::mem::take(&mut self.grew)
    }

    fn encode(&mut self) {
        let mut done = false;
        while !done {
            done = self.queues.encode(&mut self.rules, &mut self.encoder);
            if done && *self.flushed != self.handled {
                self.flushed = Arc::new(self.handled);
            }
            match self.encoder.take() {
                Some((bytes, segments)) => {
                    self.grew = true;
                    self.log.push(Block { bytes, segments, versions: self.flushed.clone() });
                }
                None => self.log.pass(self.flushed.clone()),
            }
        }
        self.rules.clear_sets();
    }

    /// Begins a dump for some members. They get what waits for them in the log after it.
    pub fn dump(&mut self, kind: DumpKind, members: &mut [&mut Member]) -> Dump {
        self.encode();
        let peers = members.iter().map(|member| member.peer()).collect();
        let rules = self.rules.for_members(&peers);
        let (routes_max, bytes_max) = (self.limits.dump_routes_max, self.limits.dump_bytes_max);
        let dump = Dump::new(kind.clone(), rules, routes_max, bytes_max, self.path_ids.clone());
        for member in members {
            // An initial dump may be a repetition: only the log corrects what the first one sent.
            if matches!(kind, DumpKind::CatchUp { .. } | DumpKind::Replace { .. }) {
                member.skip_to_end();
            }
            member.attach(dump.log().clone(), kind.clone());
        }
        dump
    }
}

/// Whether both rules send members the same messages.
fn same_messages(
    old_rules: &Rules,
    had: &[Exported],
    rules: &Rules,
    gets: &[Exported],
    family: Family,
) -> bool {
    let (mut block, mut other) = (attributes::Block::default(), attributes::Block::default());
    had.len() == gets.len()
        && had.iter().zip(gets).all(|(old, new)| {
            let (from, to) = (&old.offer, &new.offer);
            attributes::attributes(&old_rules.view, family, &from.attrs, from.origins, &mut block);
            attributes::attributes(&rules.view, family, &to.attrs, to.origins, &mut other);
            old.path_id == new.path_id
                && block == other
                && old_rules.audiences.to_set(from.audience) == rules.audiences.to_set(to.audience)
        })
}

/// The paths of a prefix that are sent, and to whom: the best; with add-path each of the first ranks; for a route
/// server the best that each client may have.
fn exported<'a, A: QueueAddress>(
    rules: &mut Rules,
    prefix: Prefix<A>,
    paths: impl Iterator<Item = &'a Chosen>,
    peers: &PeerTable,
    out: &mut Vec<Exported>,
) {
    let family = A::FAMILY;
    let depth = rules.view.depth(family);
    let add_path = rules.view.add_path(family);
    let mut left = AudienceCode::ALL;
    for path in paths.take(depth) {
        let ip_prefix = A::to_ip_prefix(prefix);
        let Some(mut offer) = rules.offer(family, ip_prefix, &path.attrs, path.peer, peers) else { continue };
        if !add_path {
            offer.audience = rules.audiences.and(left, offer.audience);
            left = rules.audiences.minus(left, offer.audience);
        }
        let path_id = if add_path { path.local_id } else { 0 };
        for (prepend, members) in std::mem::take(&mut offer.prepended) {
            let mut part = offer.clone();
            part.origins.prepend = prepend;
            part.audience = rules.audiences.and(offer.audience, members);
            offer.audience = rules.audiences.minus(offer.audience, part.audience);
            part.audience = rules.audiences.tidy(part.audience);
            if part.audience != AudienceCode::NOBODY {
                out.push(Exported { path_id, attrs_id: path.attrs.id(), source: path.peer, offer: part });
            }
        }
        offer.audience = rules.audiences.tidy(offer.audience);
        if offer.audience != AudienceCode::NOBODY {
            out.push(Exported { path_id, attrs_id: path.attrs.id(), source: path.peer, offer });
        }
        if left == AudienceCode::NOBODY {
            break;
        }
    }
}
