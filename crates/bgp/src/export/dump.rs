//! The table for members that do not have it: new members, a ROUTE-REFRESH, members that fell behind.
//!
//! ```text
//! RibShard::scan ──handle_route──> queue (sorted by attributes) ──poll_block──> log of the dump ──> members
//! ```
//!
//! The driver feeds it slices of shards while it [`DumpProgress::NeedsRoutes`], and calls
//! [`Dump::poll_block`] otherwise; each call writes at most one block, so nothing blocks for long. All members
//! that wait share one encoding. While a dump goes on, changes go to the group's log as ever; members read them
//! after the dump (see [`super::member`] for why that ends right).
//!
//! The reader that is furthest ahead sets the pace, but `dump_bytes_max` is all that is kept for the others: who
//! is further behind is left out and needs a dump of its own. So each dump completes for somebody, and a peer
//! that does not read delays nobody.
//!
//! Memory: `dump_routes_max` entries (see [`super::view::ExportLimits`]) and `dump_bytes_max` of messages. A table
//! larger than that is sent in parts, each sorted by itself: more messages, but the same routes.

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

/// What a dump is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// The table of a session that came up; ends with End-of-RIB (RFC 4724).
    Initial,
    /// The answer to a ROUTE-REFRESH of a family; between BoRR and EoRR if both ends agreed on it (RFC 7313).
    Refresh {
        family: Family,
        /// Whether the neighbor understands BoRR and EoRR.
        enhanced: bool,
    },
    /// What changed after these versions, withdrawals too. Shards keep tombstones that are later.
    CatchUp {
        /// Up to where the members have everything.
        since: Arc<Versions>,
    },
    /// The members had the table by other rules (another group's): everything is announced, or withdrawn if it
    /// does not go to them. Prefixes that went away after these versions are withdrawn too. Where it is known what
    /// members have, only differences go out.
    Replace {
        /// Up to where the members had everything.
        since: Arc<Versions>,
        /// What is known of those rules.
        earlier: Arc<Earlier>,
    },
}

/// What members had before they came to their group. The default knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// They had nothing but what these rules let out.
    rules: Option<EarlierRules>,
    /// The dump that was under way to them, whose end has to be said.
    interrupted: Option<DumpKind>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct EarlierRules {
    view: Arc<ExportView>,
    representative: Arc<PeerInfo>,
    /// They had all of it, not only a part.
    complete: bool,
}

impl Earlier {
    /// What a member has that leaves a group with these rules, with a dump under way or wanted.
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
        // A refresh that did not begin may begin later.
        let initial = wanted.iter().any(DumpKind::is_initial).then_some(DumpKind::Initial);
        let interrupted = initial.or(interrupted);
        Self { rules: rules.map(known), interrupted }
    }
}

impl DumpKind {
    /// From which versions on shards have to keep tombstones for it.
    pub fn since(&self) -> Option<Arc<Versions>> {
        match self {
            Self::Initial | Self::Refresh { .. } => None,
            Self::CatchUp { since } | Self::Replace { since, .. } => Some(since.clone()),
        }
    }

    /// Everything goes out that may differ from what a member had at these versions by unknown rules.
    pub(super) fn replace_all(since: Arc<Versions>) -> Self {
        Self::Replace { since, earlier: Arc::default() }
    }

    /// What a member needs that was left out of such a dump. Perhaps because the view was replaced, so catching up
    /// has to cover every prefix now, and what the member has is neither the old nor the new.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::CatchUp { since } => Self::replace_all(since.clone()),
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

    /// Whether End-of-RIB is at its end.
    pub fn is_initial(&self) -> bool {
        match self {
            Self::Replace { earlier, .. } => earlier.interrupted == Some(Self::Initial),
            kind => *kind == Self::Initial,
        }
    }

    /// Whether routes of the family are in it.
    pub fn has(&self, family: Family) -> bool {
        match self {
            Self::Refresh { family: only, .. } => *only == family,
            _ => true,
        }
    }
}

/// Less is not kept of a dump, so that a whole block, its last message and the lists of its segments are never too
/// much for a reader that waits for them.
const BYTES_MIN: usize = 4 * BLOCK_BYTES;

/// What [`Dump::poll_block`] did, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpProgress {
    /// Something was written: call it again, and let members gather.
    Encoded,
    /// Feed it more routes, or [`Dump::finish_scan`].
    NeedsRoutes,
    /// Its log is full: call it again when a member has written something.
    WaitsForReaders,
    /// All is in its log, or nobody waits for it any more: drop it.
    Done,
}

/// A table, or a part of it, on the way to some members of a group.
pub struct Dump {
    kind: DumpKind,
    rules: Rules,
    /// By which rules the members have what is not later than their versions.
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
    /// Routes it was given.
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
        // Of other encodings nothing is known to be the same.
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

    /// What it is for; its [`DumpKind::since`] is a floor for tombstones as long as it lives.
    pub fn kind(&self) -> &DumpKind {
        &self.kind
    }

    /// Who waits for it, or did when it began.
    pub fn members(&self) -> &PeerSet {
        &self.rules.audiences.members
    }

    /// Its log, for counters.
    pub fn log(&self) -> &Arc<GroupLog> {
        &self.log
    }

    /// Routes it was given.
    pub fn routes(&self) -> u64 {
        self.routes
    }

    /// Routes that did not go out because their attributes do not fit into a message.
    pub fn too_long(&self) -> u64 {
        self.rules.too_long
    }

    /// A prefix as a shard has it: its version and its paths in order of rank; none for a tombstone.
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

    /// The prefix did not change since the members had everything by the earlier rules: only what differs goes out.
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

    /// All slices of all shards were there.
    pub fn finish_scan(&mut self) {
        self.scanned = true;
    }

    /// Writes the next block, or says what it waits for.
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
            // Which identifiers the members have is not known; those that this group ever used may be.
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
