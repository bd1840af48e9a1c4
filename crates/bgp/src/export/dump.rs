//! Sends the table to members that lack it: new members, a ROUTE-REFRESH, members that fell behind.
//!
//! ```text
//! RibShard::scan ──handle_route──> queue (sorted by attributes) ──poll_block──> log of the dump ──> members
//! ```
//!
//! The driver passes in slices of shards while the dump is in [`DumpProgress::NeedsRoutes`], and otherwise calls
//! [`Dump::poll_block`]. Each call writes at most one block, so nothing blocks for long. All waiting members share
//! one encoding. During a dump, changes go to the group's log as usual; members read them after the dump
//! ([`super::member`] says why that ends right).
//!
//! The fastest reader sets the pace, but at most `dump_bytes_max` is kept for the others: a member that is further
//! behind is left out and needs its own dump. So each dump completes for some member, and a peer that does not read
//! delays nobody.
//!
//! Memory: `dump_routes_max` entries (see [`super::view::ExportLimits`]) and `dump_bytes_max` of messages. A larger
//! table is sent in parts, each sorted by itself: more messages, but the same routes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_base::{IpPrefix, Prefix};
use thalweg_wire::bgp::Family;

use super::audience::{Audience, AudienceCode, PeerSet};
use super::encode::{BLOCK_BYTES, Encoder};
use super::log::{Block, GroupLog, Versions, is_later};
use super::queue::{QueueAddress, Queues};
use super::rules::Rules;
use super::view::ExportView;
use super::{Exported, PathIds, exported, same_messages};
use crate::peer::{PeerInfo, PeerTable};
use crate::route::{Chosen, RouteAddress};

/// The purpose of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// The table for a new session; ends with End-of-RIB (RFC 4724).
    Initial,
    /// The response to a ROUTE-REFRESH of a family; between BoRR and EoRR if both ends support it (RFC 7313).
    Refresh {
        family: Family,
        /// The neighbor supports BoRR and EoRR.
        enhanced: bool,
    },
    /// Changes after these versions, including withdrawals. Shards keep later tombstones.
    CatchUp {
        /// The versions up to which the members have everything.
        since: Arc<Versions>,
    },
    /// For members that had the table by other rules (those of another group). Every prefix is announced, or
    /// withdrawn if it does not go to them; prefixes that went away after these versions are withdrawn too. If it
    /// is known what members have, only differences are sent.
    Replace {
        /// The versions up to which the members had everything.
        since: Arc<Versions>,
        /// What is known of the other rules.
        earlier: Arc<Earlier>,
    },
}

/// What members had before they came to their group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The members had nothing but what these rules export.
    rules: Option<EarlierRules>,
    /// The dump that was in progress for the members; its end must still be sent.
    interrupted: Option<DumpKind>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EarlierRules {
    view: Arc<ExportView>,
    representative: Arc<PeerInfo>,
    /// The members had everything that the rules export, not only a part.
    complete: bool,
}

impl Earlier {
    /// Describes a member that leaves a group with these rules, with a dump in progress or wanted.
    pub(super) fn of(rules: Option<&Rules>, under_way: Option<DumpKind>, wanted: &[DumpKind]) -> Self {
        let part = |kind: &DumpKind| !matches!(kind, DumpKind::CatchUp { .. });
        let complete = !under_way.iter().chain(wanted).any(part);
        let known = |rules: &Rules| EarlierRules {
            view: rules.view.clone(),
            representative: rules.representative.clone(),
            complete,
        };
        let interrupted = match under_way {
            Some(DumpKind::Replace { earlier, .. }) => earlier.interrupted.clone(),
            other => other,
        };
        // A refresh that has not begun may begin later.
        let initial = wanted.iter().any(DumpKind::is_initial).then_some(DumpKind::Initial);
        let interrupted = initial.or(interrupted);
        Self { rules: rules.map(known), interrupted }
    }
}

impl DumpKind {
    /// The versions after which shards must keep tombstones for this dump.
    pub fn since(&self) -> Option<Arc<Versions>> {
        match self {
            Self::Initial | Self::Refresh { .. } => None,
            Self::CatchUp { since } | Self::Replace { since, .. } => Some(since.clone()),
        }
    }

    /// The dump that a member needs after it was left out of this one: what it has of a replacement follows neither
    /// the earlier rules nor the new ones.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Replace { since, earlier } => {
                let interrupted = earlier.interrupted.clone();
                Self::Replace {
                    since: since.clone(),
                    earlier: Arc::new(Earlier { rules: None, interrupted }),
                }
            }
            _ => self.clone(),
        }
    }

    /// Whether the dump ends with End-of-RIB.
    pub fn is_initial(&self) -> bool {
        match self {
            Self::Replace { earlier, .. } => earlier.interrupted == Some(Self::Initial),
            kind => *kind == Self::Initial,
        }
    }

    /// Whether the dump includes routes of the family.
    pub fn has(&self, family: Family) -> bool {
        match self {
            Self::Refresh { family: only, .. } => *only == family,
            _ => true,
        }
    }
}

/// The least that a dump keeps. A whole block with its last message and its lists of segments must always fit for a
/// reader that waits for it.
const BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// The result of [`Dump::poll_block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpProgress {
    /// It wrote a block: call it again, and let members gather.
    Encoded,
    /// It needs more routes, or [`Dump::finish_scan`].
    NeedsRoutes,
    /// The log is full: call it again when a member has written something.
    WaitsForReaders,
    /// Everything is in the log, or no member waits for it any more: drop the dump.
    Done,
}

/// A table, or a part of it, on its way to some members of a group.
pub struct Dump {
    kind: DumpKind,
    rules: Rules,
    /// The rules by which the members have what is not later than their versions.
    earlier: Option<Rules>,
    routes_max: usize,
    queues: Queues,
    encoder: Encoder,
    log: Arc<GroupLog>,
    path_ids: Arc<PathIds>,
    outs: Vec<Exported>,
    earlier_outs: Vec<Exported>,
    encoding: bool,
    scanned: bool,
    done: bool,
    routes: u64,
}

impl Dump {
    pub(super) fn new(
        kind: DumpKind,
        rules: Rules,
        routes_max: usize,
        bytes_max: usize,
        path_ids: Arc<PathIds>,
    ) -> Self {
        let mut encoder = Encoder::new(rules.view.codec, rules.view.message_length_max());
        if let DumpKind::Refresh { family, enhanced: true } = kind {
            encoder.refresh(family, 1, &Audience::All);
        }
        let earlier = match &kind {
            DumpKind::Replace { earlier, .. } => earlier.rules.as_ref(),
            _ => None,
        };
        // Nothing is known about sameness under another encoding.
        let alike =
            |view: &ExportView| view.codec == rules.view.codec && view.families == rules.view.families;
        let earlier = earlier
            .filter(|earlier| alike(&earlier.view))
            .map(|earlier| rules.with_view(earlier.view.clone(), earlier.representative.clone()));
        Self {
            earlier,
            kind,
            routes_max: routes_max.max(1),
            queues: Queues::new(false),
            encoder,
            log: Arc::new(GroupLog::new(bytes_max.max(BYTES_MIN))),
            rules,
            path_ids,
            outs: Vec::new(),
            earlier_outs: Vec::new(),
            encoding: false,
            scanned: false,
            done: false,
            routes: 0,
        }
    }

    /// The purpose of the dump. Its [`DumpKind::since`] is a floor for tombstones while the dump lives.
    pub fn kind(&self) -> &DumpKind {
        &self.kind
    }

    /// The members that wait for the dump, or did when it began.
    pub fn members(&self) -> &PeerSet {
        &self.rules.audiences.members
    }

    /// The dump's log, for counters.
    pub fn log(&self) -> &Arc<GroupLog> {
        &self.log
    }

    /// The number of routes passed in.
    pub fn routes(&self) -> u64 {
        self.routes
    }

    /// The number of routes not sent because their attributes do not fit into a message.
    pub fn too_long(&self) -> u64 {
        self.rules.too_long
    }

    /// Adds a prefix of a shard: its version and its paths in order of rank, none for a tombstone.
    pub fn handle_route<A: RouteAddress>(
        &mut self,
        shard: usize,
        prefix: Prefix<A>,
        version: u32,
        paths: &[Chosen],
        peers: &PeerTable,
    ) {
        match A::to_ip_prefix(prefix) {
            IpPrefix::V4(prefix) => self.handle(shard, prefix, version, paths, peers),
            IpPrefix::V6(prefix) => self.handle(shard, prefix, version, paths, peers),
        }
    }

    fn handle<A: QueueAddress>(
        &mut self,
        shard: usize,
        prefix: Prefix<A>,
        version: u32,
        paths: &[Chosen],
        peers: &PeerTable,
    ) {
        let family = A::FAMILY;
        if !self.kind.has(family) || !self.rules.view.families[family.index()] {
            return;
        }
        let is_new = |versions: &Versions| {
            let since = versions[family.index()].get(shard).copied().unwrap_or(0);
            is_later(version, since)
        };
        let (withdraws, known) = match &self.kind {
            DumpKind::Initial | DumpKind::Refresh { .. } => (false, false),
            DumpKind::CatchUp { since } if !is_new(since) => return,
            DumpKind::CatchUp { .. } => (true, false),
            DumpKind::Replace { since, .. } if is_new(since) => (true, false),
            DumpKind::Replace { .. } if paths.is_empty() => return,
            DumpKind::Replace { .. } => (true, self.earlier.is_some()),
        };
        self.routes += 1;
        let mut outs = std::mem::take(&mut self.outs);
        exported(&mut self.rules, prefix, paths.iter(), peers, &mut outs);
        for out in &outs {
            self.path_ids[family.index()].fetch_max(u32::from(out.path_id), Ordering::Relaxed);
        }
        if known {
            self.replace(prefix, paths, &outs, peers);
        } else {
            self.enter(prefix, &outs, withdraws);
        }
        outs.clear();
        self.outs = outs;
    }

    /// Handles a prefix that has not changed since the members had everything by the earlier rules: only
    /// differences are sent.
    fn replace<A: QueueAddress>(
        &mut self,
        prefix: Prefix<A>,
        paths: &[Chosen],
        outs: &[Exported],
        peers: &PeerTable,
    ) {
        let Some(earlier) = &mut self.earlier else { return };
        let had = &mut self.earlier_outs;
        had.clear();
        exported(earlier, prefix, paths.iter(), peers, had);
        let complete = match &self.kind {
            DumpKind::Replace { earlier, .. } => earlier.rules.as_ref().is_some_and(|rules| rules.complete),
            _ => false,
        };
        if had.is_empty() && outs.is_empty()
            || complete && same_messages(earlier, had, &self.rules, outs, A::FAMILY)
        {
            had.clear();
            return;
        }
        let (queue, audiences) = (A::queue(&mut self.queues), &mut self.rules.audiences);
        let mut ids: Vec<u16> = had.iter().chain(outs).map(|out| out.path_id).collect();
        ids.sort_unstable();
        ids.dedup();
        for path_id in ids {
            let mut before = AudienceCode::NOBODY;
            for old in had.iter().filter(|old| old.path_id == path_id) {
                let members = audiences.code(earlier.audiences.to_set(old.offer.audience));
                before = audiences.or(before, members);
            }
            let entry = queue.enter(prefix, path_id, before, audiences);
            for out in outs.iter().filter(|out| out.path_id == path_id) {
                let pack = queue.pack(&out.offer.attrs, out.offer.origins, out.offer.audience);
                queue.assign(entry, pack);
            }
        }
        had.clear();
    }

    /// Ends the input: all slices of all shards were passed in.
    pub fn finish_scan(&mut self) {
        self.scanned = true;
    }

    /// Writes the next block, or returns what it waits for.
    pub fn poll_block(&mut self) -> DumpProgress {
        if self.done {
            return DumpProgress::Done;
        }
        if self.log.follower_count() == 0 {
            self.done = true;
            self.log.close();
            return DumpProgress::Done;
        }
        self.encoding |= self.scanned || self.queues.len() >= self.routes_max;
        if !self.encoding {
            return DumpProgress::NeedsRoutes;
        }
        if self.log.room() < BLOCK_BYTES && !self.log.someone_waits() {
            return DumpProgress::WaitsForReaders;
        }
        let written = self.queues.encode(&mut self.rules, &mut self.encoder);
        if written {
            self.encoding = false;
            self.rules.clear_sets();
            if let Some(earlier) = &mut self.earlier {
                earlier.clear_sets();
            }
            if self.scanned {
                self.write_end();
                self.done = true;
            }
        }
        if let Some((bytes, segments)) = self.encoder.take() {
            self.log.push(Block { bytes, segments, versions: Arc::default() });
        }
        if self.done {
            self.log.close();
        }
        DumpProgress::Encoded
    }

    fn write_end(&mut self) {
        let kind = match &self.kind {
            DumpKind::Replace { earlier, .. } => earlier.interrupted.clone(),
            kind => Some(kind.clone()),
        };
        match kind {
            Some(DumpKind::Initial) => {
                for family in Family::ALL {
                    if self.rules.view.families[family.index()] {
                        self.encoder.end_of_rib(family, &Audience::All);
                    }
                }
            }
            Some(DumpKind::Refresh { family, enhanced: true }) => {
                self.encoder.refresh(family, 2, &Audience::All);
            }
            _ => {}
        }
    }

    fn enter<A: QueueAddress>(&mut self, prefix: Prefix<A>, outs: &[Exported], withdraws: bool) {
        let last_id = match (withdraws, self.rules.view.add_path(A::FAMILY)) {
            (true, true) => self.path_ids[A::FAMILY.index()].load(Ordering::Relaxed) as u16,
            _ => 0,
        };
        let had = if withdraws { AudienceCode::ALL } else { AudienceCode::NOBODY };
        let first_id = u16::from(self.rules.view.add_path(A::FAMILY));
        let (queue, audiences) = (A::queue(&mut self.queues), &mut self.rules.audiences);
        if withdraws {
            // Which identifiers the members have is unknown; they may have any that this group ever used.
            for path_id in first_id..=last_id {
                if outs.iter().all(|out| out.path_id != path_id) {
                    queue.enter(prefix, path_id, had, audiences);
                }
            }
        }
        let mut entry = None;
        for out in outs {
            let at = match entry {
                Some((path_id, at)) if path_id == out.path_id => at,
                _ => queue.enter(prefix, out.path_id, had, audiences),
            };
            entry = Some((out.path_id, at));
            let pack = queue.pack(&out.offer.attrs, out.offer.origins, out.offer.audience);
            queue.assign(at, pack);
        }
    }
}
