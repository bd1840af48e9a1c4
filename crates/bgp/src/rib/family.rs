//! The routes of one family in one shard: what happens when a path of a prefix comes, changes or goes.
//!
//! Two invariants hold between calls for every entry:
//!
//! - The first `entry.ranked` paths are in order of rank and are exactly what readers were last told: at least one
//!   if any path is eligible, and [`Context::depth`] of them (or all eligible ones) since the last change of the
//!   prefix.
//! - `entry.version` is the version of its last change. If that change is in the open [`Changes`], its index there
//!   is `version - first_version`, so a further change of the prefix finds it without a table and is merged into
//!   it: the old side stays, the new side is replaced.
//!
//! **Versions** count the changes of the family in this shard and wrap. Readers compare them by distance
//! ([`is_newer`]), which is right as long as no entry's version is more than [`VERSION_AGE_MAX`] plus one round
//! behind. With every change, [`RENEWALS_PER_CHANGE`] entries are visited in turn, and older versions are set to
//! that age. A reader that is further behind than [`VERSION_AGE_MAX`] must start over.
//!
//! **Tombstones.** An entry whose last path goes stays, without paths, while the open `Changes` may refer to it and
//! while a reader (`set_tombstone_floor`) has not seen its version. Tombstones wait in order of version, and each
//! call drops a few. There are at most as many as prefixes (but [`TOMBSTONES_MIN`] are always kept). Beyond that,
//! the oldest go early, and [`FamilyRoutes::complete_since`] says which readers must start over.

use std::collections::VecDeque;
use std::ops::Range;

use thalweg_base::{Prefix, prefetch};

use super::counts::{PeerCounts, Work};
use super::damping::{Damper, Flap, RouteKey};
use super::decision::{Candidate, Comparison, Decision, Key, candidate};
use super::paths::{Block, DAMPED, Moved, PATHS_MAX, PathMeta, PathStore, STALE, UNREACHABLE, free_local_id};
use super::table::{Entry, NONE, Table};
use super::versions::{VERSION_AGE_MAX, is_newer};
use super::view::{ScanCursor, ScannedRoute};
use crate::attrs::AttrRef;
use crate::peer::{PeerId, PeerKind};
use crate::route::{Change, Changes, Chosen, Further, RouteAddress, RouteBatch, RouteItem, WITHDRAWN};

/// Entries visited for each change: the largest table takes 2^28 changes.
const RENEWALS_PER_CHANGE: u32 = 1;

/// Tombstones that are kept whatever the number of prefixes.
const TOMBSTONES_MIN: usize = 4096;

/// The most tombstones that one call drops: enough to keep up, few enough to go unnoticed (about 0.1 ms).
const BURIALS_PER_CALL: usize = 2048;

/// The most changes that memory is reserved for at once: 12 KiB.
const CHANGES_RESERVED_MAX: usize = 256;

/// Items whose look-ups run together, so that their cache misses overlap.
const GROUP: usize = 16;

/// What the work on a family depends on.
pub(super) struct Context<'a> {
    pub decision: Decision<'a>,
    pub depth: usize,
    /// The parts of all prefixes that the shard has.
    pub parts: Range<usize>,
    /// The number of changes to reserve memory for with the first one.
    pub expected: usize,
}

/// The routes of one family.
pub struct FamilyRoutes<A> {
    table: Table<A>,
    paths: PathStore,
    version: u32,
    /// The number of prefixes with at least one path.
    live: usize,
    tombstones: VecDeque<(u32, u32)>,
    floor: Option<u32>,
    /// The version of the last tombstone that was dropped although a reader needed it.
    lost: Option<u32>,
    renewal: u32,
    pub(super) counts: PeerCounts,
    pub(super) work: Work,
    keys: Vec<Key>,
    /// Few routers damp, and those without keep no room for it.
    pub(super) damper: Option<Box<Damper<A>>>,
}

/// The reported paths of a prefix, by rank.
type Reported = Vec<Chosen>;

impl<A: RouteAddress> FamilyRoutes<A> {
    /// Nothing yet, in memory of its own: a shard has routes of a family or has none.
    pub(super) fn new(config: &super::ShardConfig, floor: Option<u32>) -> Box<Self> {
        Box::new(Self {
            table: Table::new(config.seed, config.shard),
            paths: PathStore::default(),
            version: config.first_version,
            live: 0,
            tombstones: VecDeque::new(),
            floor,
            lost: None,
            renewal: 0,
            counts: PeerCounts::default(),
            work: Work::default(),
            keys: Vec::new(),
            damper: config.damping.map(|damping| Box::new(Damper::new(damping))),
        })
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn prefixes(&self) -> usize {
        self.live
    }

    pub(super) fn tombstones(&self) -> usize {
        self.table.len() - self.live
    }

    pub(super) fn path_count(&self) -> usize {
        self.paths.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes()
            + self.paths.bytes()
            + self.tombstones.capacity() * size_of::<(u32, u32)>()
            + self.counts.bytes()
            + self.damper.as_ref().map_or(0, |damper| damper.bytes())
    }

    /// The version from which a scan still shows every withdrawal, if it does not show all.
    pub(super) fn complete_since(&self) -> Option<u32> {
        self.lost
    }

    pub(super) fn set_floor(&mut self, floor: Option<u32>) {
        self.floor = floor;
        if floor.is_none_or(|floor| self.lost.is_some_and(|lost| !is_newer(lost, floor))) {
            self.lost = None;
        }
    }

    /// Prepares `changes` for additions. They are empty, or continue where the last call ended.
    pub(super) fn open(&mut self, changes: &mut Changes) {
        let index = A::FAMILY.index();
        if A::changes(changes).is_empty() {
            changes.first_version[index] = self.version.wrapping_add(1);
        }
        debug_assert!(
            A::changes(changes).is_empty() || changes.last_version[index] == self.version,
            "changes of another shard, or others came in between"
        );
        self.bury(changes.first_version[index]);
    }

    /// [`Self::bury`] while no changes are open.
    pub(super) fn bury_idle(&mut self) {
        self.bury(self.version.wrapping_add(1));
    }

    /// Drops tombstones that neither the open changes nor a reader need.
    fn bury(&mut self, first_open: u32) {
        let mut too_many = (self.table.len() - self.live).saturating_sub(self.live.max(TOMBSTONES_MIN));
        for _ in 0..BURIALS_PER_CALL {
            let Some(&(number, version)) = self.tombstones.front() else {
                if self.tombstones.capacity() > TOMBSTONES_MIN / 4 {
                    self.tombstones = VecDeque::new();
                }
                return;
            };
            if !is_newer(first_open, version) {
                return;
            }
            let needed = self.floor.is_some_and(|floor| is_newer(version, floor));
            if needed && too_many == 0 {
                return;
            }
            self.tombstones.pop_front();
            if number < self.table.end() {
                let entry = self.table.entry(number);
                if entry.count == 0 && entry.version == version && entry.prefix().is_some() {
                    self.table.remove(number);
                    too_many = too_many.saturating_sub(1);
                    if needed {
                        self.lost = Some(version);
                    }
                }
            }
        }
    }

    pub(super) fn apply(&mut self, batch: &RouteBatch, context: &mut Context<'_>, changes: &mut Changes) {
        let items = A::items(batch).shards(context.parts.clone());
        let (peer, received_s) = (batch.peer, batch.received_s);
        context.expected = items.len();
        let damps = self.damper.is_some()
            && context.decision.peers.get(peer).is_some_and(|info| info.kind == PeerKind::External);
        let incoming = Incoming { peer, received_s, damps, attrs: &batch.attrs };
        for group in items.chunks(GROUP) {
            let (hashes, numbers) = self.look_up(group);
            for ((item, hash), number) in group.iter().zip(hashes).zip(numbers) {
                let number = match number {
                    // It did not exist when the group began; an item of the group may have created it since.
                    NONE => self.table.find(hash, item.prefix),
                    // Only `bury` removes entries, and it runs before the first item.
                    number => number,
                };
                if item.attrs == WITHDRAWN {
                    self.withdraw(number, item, &incoming, context, changes);
                } else {
                    self.announce(number, hash, item, &incoming, context, changes);
                }
            }
        }
    }

    /// Finds the entries of a group. Each pass prefetches for all items before the next one reads.
    fn look_up(&self, group: &[RouteItem<A>]) -> ([u64; GROUP], [u32; GROUP]) {
        let (mut hashes, mut numbers) = ([0; GROUP], [NONE; GROUP]);
        for (item, hash) in group.iter().zip(&mut hashes) {
            *hash = self.table.hash(item.prefix);
            self.table.prefetch_slot(*hash);
        }
        for (number, hash) in numbers.iter_mut().zip(hashes).take(group.len()) {
            *number = self.table.candidate(hash);
            if *number != NONE {
                prefetch(self.table.entry(*number));
            }
        }
        for (number, (item, hash)) in numbers.iter_mut().zip(group.iter().zip(hashes)) {
            if *number != NONE && !self.table.entry(*number).is(item.prefix) {
                *number = self.table.find(hash, item.prefix);
            }
            if *number != NONE {
                prefetch(self.block(*number).meta.as_ptr());
            }
        }
        for number in numbers.iter().filter(|number| **number != NONE) {
            if let Some(Some(best)) = self.block(*number).attrs.first() {
                prefetch(&best.weight);
            }
        }
        (hashes, numbers)
    }

    #[inline]
    fn block(&self, number: u32) -> Block<'_> {
        let entry = self.table.entry(number);
        match usize::from(entry.count) {
            0 => Block { meta: &[], attrs: &[] },
            count => self.paths.block(entry.head, count),
        }
    }

    fn announce(
        &mut self,
        number: u32,
        hash: u64,
        item: &RouteItem<A>,
        incoming: &Incoming<'_>,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        // A batch from its builder has every index; ignoring the item is better than a panic.
        let Some(attrs) = incoming.attrs.get(item.attrs as usize) else { return };
        let number = match number {
            NONE if self.counts.is_full(incoming.peer) => {
                self.work.paths_refused += 1;
                return;
            }
            NONE => match self.table.insert(hash, item.prefix, self.version) {
                Some(number) => number,
                None => {
                    self.work.prefixes_refused += 1;
                    return;
                }
            },
            number => number,
        };
        let mut flags = if context.decision.admits(attrs) { 0 } else { UNREACHABLE };
        let block = self.block(number);
        let found = block.meta.iter().position(|meta| meta.is(incoming.peer, item.path_id));
        let Some(at) = found else {
            if block.meta.len() >= PATHS_MAX || self.counts.is_full(incoming.peer) {
                self.work.paths_refused += 1;
                return;
            }
            if incoming.damps && self.is_suppressed(item.prefix, incoming.peer, item.path_id) {
                flags |= DAMPED;
            }
            let local_id = free_local_id(block.meta);
            let meta = PathMeta::new(incoming.peer, item.path_id, local_id, incoming.received_s, flags);
            self.work.announced += 1;
            self.counts.add(incoming.peer);
            self.insert_path(number, meta, attrs.clone(), context, changes);
            return;
        };
        if block.attrs[at].as_ref() == Some(attrs) {
            self.work.repeated += 1;
            self.block_meta_mut(number, at).set(STALE, false);
            return;
        }
        let local_id = block.meta[at].local_id;
        self.work.replaced += 1;
        if incoming.damps {
            let suppressed = self.flap(
                item.prefix,
                incoming.peer,
                item.path_id,
                Flap::AttributeChange,
                incoming.received_s,
            );
            flags |= if suppressed { DAMPED } else { 0 };
        }
        let meta = PathMeta::new(incoming.peer, item.path_id, local_id, incoming.received_s, flags);
        self.replace_path(number, at, meta, attrs.clone(), context, changes);
    }

    fn withdraw(
        &mut self,
        number: u32,
        item: &RouteItem<A>,
        incoming: &Incoming<'_>,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let found = match number {
            NONE => None,
            number => self.block(number).meta.iter().position(|meta| meta.is(incoming.peer, item.path_id)),
        };
        let Some(at) = found else {
            self.work.unknown_withdrawn += 1;
            return;
        };
        if incoming.damps {
            self.flap(item.prefix, incoming.peer, item.path_id, Flap::Withdrawal, incoming.received_s);
        }
        self.work.withdrawn += 1;
        self.remove_path(number, at, context, changes);
    }

    fn is_suppressed(&self, prefix: Prefix<A>, peer: PeerId, path_id: u32) -> bool {
        self.damper.as_ref().is_some_and(|damper| damper.is_suppressed(RouteKey { prefix, peer, path_id }))
    }

    fn flap(&mut self, prefix: Prefix<A>, peer: PeerId, path_id: u32, flap: Flap, now_s: u32) -> bool {
        let key = RouteKey { prefix, peer, path_id };
        self.damper.as_mut().is_some_and(|damper| damper.handle_flap(key, flap, now_s))
    }

    fn block_meta_mut(&mut self, number: u32, at: usize) -> &mut PathMeta {
        let entry = *self.table.entry(number);
        let block = self.paths.block_mut(entry.head, entry.count.into());
        &mut block.meta[at]
    }

    fn moved(&mut self, moved: Option<Moved>) {
        if let Some(moved) = moved {
            self.table.entry_mut(moved.owner).head = moved.head;
        }
    }

    /// The path of a reported rank.
    fn chosen(&self, number: u32, rank: usize) -> Option<Chosen> {
        let ranked = usize::from(self.table.entry(number).ranked);
        let block = self.block(number);
        let (meta, attrs) = (block.meta.get(rank).filter(|_| rank < ranked)?, block.attrs[rank].as_ref()?);
        Some(Chosen { attrs: attrs.clone(), peer: meta.peer, local_id: meta.local_id })
    }

    fn reported(&self, number: u32, depth: usize) -> Reported {
        (0..depth).map_while(|rank| self.chosen(number, rank)).collect()
    }

    /// Cuts the ranks of an entry to the depth: if fewer paths are reported than before, the others are no longer
    /// kept in order.
    #[inline]
    fn clamp(&mut self, number: u32, depth: usize) -> Entry<A> {
        let entry = self.table.entry_mut(number);
        entry.ranked = entry.ranked.min(depth.min(usize::from(u8::MAX)) as u8);
        *entry
    }

    fn rank(&mut self, number: u32, context: &Context<'_>) {
        let entry = *self.table.entry(number);
        let ranked = match usize::from(entry.count) {
            0 => 0,
            count => {
                let mut block = self.paths.block_mut(entry.head, count);
                context.decision.rank(&mut block, context.depth, &mut self.keys)
            }
        };
        self.table.entry_mut(number).ranked = ranked;
    }

    fn insert_path(
        &mut self,
        number: u32,
        meta: PathMeta,
        attrs: AttrRef,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let entry = self.clamp(number, context.depth);
        let count = usize::from(entry.count);
        if count == 0 {
            return self.insert_first(number, meta, attrs, context, changes);
        }
        let new = Candidate { attrs: &attrs, peer: meta.peer, path_id: meta.path_id };
        let selected = match self.best_and_last(number) {
            _ if !meta.is_eligible() => Comparison::BestStays,
            None => Comparison::NewWins,
            Some((best, _)) if context.depth == 1 => context.decision.challenge(best, new),
            Some((_, last)) => {
                let below =
                    usize::from(entry.ranked) >= context.depth && context.decision.is_below(last, new);
                if below { Comparison::BestStays } else { Comparison::Undecided }
            }
        };
        let old = match selected {
            Comparison::Undecided => self.reported(number, context.depth),
            _ => Vec::new(),
        };
        let (head, moved) = self.paths.push(number, entry.head, count, meta, attrs);
        self.moved(moved);
        let entry = self.table.entry_mut(number);
        (entry.head, entry.count) = (head, entry.count + 1);
        match selected {
            Comparison::BestStays => {}
            Comparison::NewWins => {
                let old = self.chosen(number, 0);
                self.paths.block_mut(head, count + 1).swap(0, count);
                self.table.entry_mut(number).ranked = 1;
                let new = self.chosen(number, 0);
                self.report(number, Report { old, new, further: None }, context, changes);
            }
            Comparison::Undecided => self.rank_and_report(number, old, context, changes),
        }
    }

    /// Inserts the first path of a prefix: there is nothing to compare with.
    fn insert_first(
        &mut self,
        number: u32,
        meta: PathMeta,
        attrs: AttrRef,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        self.live += 1;
        let new = meta.is_eligible().then(|| Chosen {
            attrs: attrs.clone(),
            peer: meta.peer,
            local_id: meta.local_id,
        });
        let head = self.paths.push_first(number, meta, attrs);
        let entry = self.table.entry_mut(number);
        (entry.head, entry.count, entry.ranked) = (head, 1, u8::from(new.is_some()));
        if new.is_some() {
            self.report(number, Report { old: None, new, further: None }, context, changes);
        }
    }

    /// The best path and the last reported one.
    #[inline]
    fn best_and_last(&self, number: u32) -> Option<(Candidate<'_>, Candidate<'_>)> {
        let ranked = usize::from(self.table.entry(number).ranked);
        let block = self.block(number);
        let at = |rank: usize| candidate(&block.meta[rank], &block.attrs[rank]);
        (ranked > 0).then(|| at(0).zip(at(ranked - 1))).flatten()
    }

    fn replace_path(
        &mut self,
        number: u32,
        at: usize,
        meta: PathMeta,
        attrs: AttrRef,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let entry = self.clamp(number, context.depth);
        let (count, ranked) = (usize::from(entry.count), usize::from(entry.ranked));
        let (decision, depth) = (context.decision, context.depth);
        let (was, is) = (self.block(number).meta[at].is_eligible(), meta.is_eligible());
        let plan = {
            let block = self.block(number);
            let old = candidate(&block.meta[at], &block.attrs[at]);
            match (old, self.best_and_last(number)) {
                _ if !was && !is => Plan::Leave,
                (Some(_), _) if at < ranked && !is => Plan::Rank,
                (Some(_), _) if at < ranked && count == 1 => Plan::ReportBest,
                (Some(old), _) if at < ranked && depth == 1 => {
                    match decision.replacement_keeps(old, &attrs) {
                        true => Plan::ReportBest,
                        false => Plan::Rank,
                    }
                }
                (Some(old), _) if at < ranked => match decision.is_same_order(old, &attrs) {
                    true => Plan::ReportSame,
                    false => Plan::Rank,
                },
                (Some(old), Some((best, last))) => {
                    let new = Candidate { attrs: &attrs, ..old };
                    let keeps = match depth {
                        _ if was && is && decision.is_same_order(old, &attrs) => true,
                        1 => {
                            (!was || decision.departure_keeps(best, old))
                                && (!is || decision.challenge(best, new) == Comparison::BestStays)
                        }
                        _ => {
                            ranked >= depth
                                && (!was || decision.is_below(last, old))
                                && (!is || decision.is_below(last, new))
                        }
                    };
                    if keeps { Plan::Leave } else { Plan::Rank }
                }
                _ => Plan::Rank,
            }
        };
        let old = match plan {
            Plan::Rank | Plan::ReportSame => self.reported(number, depth),
            _ => Vec::new(),
        };
        let block = self.paths.block_mut(entry.head, count);
        block.meta[at] = meta;
        let before = block.attrs[at].replace(attrs);
        match plan {
            Plan::Leave => {}
            Plan::ReportBest => {
                let old = before.map(|attrs| Chosen { attrs, peer: meta.peer, local_id: meta.local_id });
                let new = self.chosen(number, 0);
                self.report(number, Report { old, new, further: None }, context, changes);
            }
            Plan::ReportSame => self.report_difference(number, old, context, changes),
            Plan::Rank => self.rank_and_report(number, old, context, changes),
        }
    }

    fn remove_path(&mut self, number: u32, at: usize, context: &mut Context<'_>, changes: &mut Changes) {
        let entry = self.clamp(number, context.depth);
        let (count, ranked) = (usize::from(entry.count), usize::from(entry.ranked));
        let keeps = {
            let block = self.block(number);
            let gone = candidate(&block.meta[at], &block.attrs[at]);
            match (gone, self.best_and_last(number)) {
                _ if at < ranked => false,
                _ if !block.meta[at].is_eligible() => true,
                (Some(gone), Some((best, _))) if context.depth == 1 => {
                    count == 2 || context.decision.departure_keeps(best, gone)
                }
                (Some(gone), Some((_, last))) => {
                    ranked >= context.depth && context.decision.is_below(last, gone)
                }
                _ => false,
            }
        };
        let simple = context.depth == 1 && at == 0 && ranked == 1;
        let old = if keeps || simple { Vec::new() } else { self.reported(number, context.depth) };
        let (meta, attrs, head, moved) = self.paths.remove(number, entry.head, count, at);
        self.moved(moved);
        self.counts.remove(meta.peer);
        let entry = self.table.entry_mut(number);
        (entry.head, entry.count) = (head, entry.count - 1);
        if simple {
            self.rank(number, context);
            let old = attrs.map(|attrs| Chosen { attrs, peer: meta.peer, local_id: meta.local_id });
            let new = self.chosen(number, 0);
            self.report(number, Report { old, new, further: None }, context, changes);
        } else if !keeps {
            self.rank_and_report(number, old, context, changes);
        }
        if count == 1 {
            self.live -= 1;
            self.tombstones.push_back((number, self.table.entry(number).version));
        }
    }

    fn rank_and_report(
        &mut self,
        number: u32,
        old: Reported,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        self.rank(number, context);
        self.report_difference(number, old, context, changes);
    }

    fn report_difference(
        &mut self,
        number: u32,
        mut old: Reported,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let mut new = self.reported(number, context.depth);
        if old == new {
            return;
        }
        let first = |ranks: &mut Reported| (!ranks.is_empty()).then(|| ranks.remove(0));
        let (old_best, new_best) = (first(&mut old), first(&mut new));
        let further = (!old.is_empty() || !new.is_empty()).then(|| Box::new(Further { old, new }));
        self.report(number, Report { old: old_best, new: new_best, further }, context, changes);
    }

    /// Puts the result for a prefix into the open changes.
    fn report(&mut self, number: u32, report: Report, context: &mut Context<'_>, changes: &mut Changes) {
        let entry = *self.table.entry(number);
        let Some(prefix) = entry.prefix() else { return };
        let slot = entry.version.wrapping_sub(changes.first_version[A::FAMILY.index()]) as usize;
        let list = A::changes_mut(changes);
        let Report { old, new, further } = report;
        match list.get_mut(slot).filter(|change| change.prefix == prefix) {
            Some(change) => {
                change.new = new;
                change.further = match (change.further.take(), further) {
                    (Some(first), Some(last)) => Some(Box::new(Further { old: first.old, new: last.new })),
                    (Some(first), None) if first.old.is_empty() => None,
                    (Some(first), None) => Some(Box::new(Further { old: first.old, new: Vec::new() })),
                    (None, Some(last)) if last.new.is_empty() => None,
                    (None, Some(last)) => Some(Box::new(Further { old: Vec::new(), new: last.new })),
                    (None, None) => None,
                };
            }
            None => {
                if list.is_empty() {
                    list.reserve(context.expected.min(CHANGES_RESERVED_MAX));
                }
                list.push(Change { prefix, old, new, further });
                self.version = self.version.wrapping_add(1);
                self.table.entry_mut(number).version = self.version;
                self.renew_versions();
            }
        }
        self.work.changes += 1;
    }

    /// Visits the next entries in turn, so that no version gets too old to be compared.
    fn renew_versions(&mut self) {
        for _ in 0..RENEWALS_PER_CHANGE {
            self.renewal = if self.renewal + 1 < self.table.end() { self.renewal + 1 } else { 0 };
            let oldest = self.version.wrapping_sub(VERSION_AGE_MAX);
            let entry = self.table.entry(self.renewal);
            if entry.count > 0 && is_newer(oldest, entry.version) {
                self.table.entry_mut(self.renewal).version = oldest;
            }
        }
    }

    /// Calls `work` for `budget` entries from the cursor on; returns whether all are done. `work` may change the
    /// entry it is given.
    pub(super) fn walk(
        &mut self,
        cursor: &mut ScanCursor,
        budget: usize,
        mut work: impl FnMut(&mut Self, u32),
    ) -> bool {
        let end = self.table.end().min(cursor.next.saturating_add(budget.min(u32::MAX as usize) as u32));
        for number in cursor.next..end {
            if number < self.table.end() && self.table.entry(number).count > 0 {
                work(self, number);
            }
        }
        cursor.next = end.max(cursor.next);
        cursor.next >= self.table.end()
    }

    /// Removes the paths of a neighbor that have all of `flags`.
    pub(super) fn withdraw_matching(
        &mut self,
        number: u32,
        peer: PeerId,
        flags: u32,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        loop {
            let matches = |meta: &PathMeta| meta.peer == peer && (flags == 0 || meta.has_any(flags));
            let Some(at) = self.block(number).meta.iter().position(matches) else { return };
            self.work.withdrawn += 1;
            self.remove_path(number, at, context, changes);
        }
    }

    pub(super) fn has_paths(&self, number: u32) -> bool {
        self.table.entry(number).count > 0
    }

    pub(super) fn mark_stale(&mut self, number: u32, peer: PeerId) {
        let entry = *self.table.entry(number);
        let block = self.paths.block_mut(entry.head, entry.count.into());
        block.meta.iter_mut().filter(|meta| meta.peer == peer).for_each(|meta| meta.set(STALE, true));
    }

    /// Repeats the decision: next hops or the number of ranks have changed, or selection is no longer deferred.
    pub(super) fn reevaluate(&mut self, number: u32, context: &mut Context<'_>, changes: &mut Changes) {
        let entry = *self.table.entry(number);
        let is_unreachable =
            |attrs: &Option<AttrRef>| attrs.as_ref().is_some_and(|a| !context.decision.admits(a));
        if let ([only], [attrs]) = (self.block(number).meta, self.block(number).attrs)
            && only.has_any(UNREACHABLE) == is_unreachable(attrs)
        {
            // A single path needs no comparison: it is the best if it is eligible. Most prefixes have only one.
            return;
        }
        let old = self.reported(number, context.depth);
        self.clamp(number, context.depth);
        let block = self.paths.block_mut(entry.head, entry.count.into());
        for (meta, attrs) in block.meta.iter_mut().zip(&*block.attrs) {
            meta.set(UNREACHABLE, is_unreachable(attrs));
        }
        self.rank_and_report(number, old, context, changes);
    }

    /// Reuses a damped route.
    pub(super) fn readmit(&mut self, key: RouteKey<A>, context: &mut Context<'_>, changes: &mut Changes) {
        let number = self.table.find(self.table.hash(key.prefix), key.prefix);
        if number == NONE {
            return;
        }
        let found = self.block(number).meta.iter().position(|meta| meta.is(key.peer, key.path_id));
        if let Some(at) = found {
            let old = self.reported(number, context.depth);
            self.block_meta_mut(number, at).set(DAMPED, false);
            self.rank_and_report(number, old, context, changes);
        }
    }

    pub(super) fn route(&self, number: u32, depth: usize) -> Option<ScannedRoute<'_, A>> {
        let entry = self.table.entry(number);
        Some(ScannedRoute {
            prefix: entry.prefix()?,
            version: entry.version,
            ranked: usize::from(entry.ranked).min(depth),
            block: self.block(number),
        })
    }

    pub(super) fn scan(
        &self,
        cursor: &mut ScanCursor,
        budget: usize,
        depth: usize,
        visit: &mut dyn FnMut(ScannedRoute<'_, A>),
    ) -> bool {
        let end = self.table.end().min(cursor.next.saturating_add(budget.min(u32::MAX as usize) as u32));
        for number in cursor.next..end {
            if let Some(route) = self.route(number, depth) {
                visit(route);
            }
        }
        cursor.next = end.max(cursor.next);
        cursor.next >= self.table.end()
    }

    pub(super) fn find(&self, prefix: Prefix<A>) -> Option<u32> {
        let number = self.table.find(self.table.hash(prefix), prefix);
        (number != NONE && self.table.entry(number).count > 0).then_some(number)
    }

    pub(super) fn longest_match(&self, address: A) -> Option<u32> {
        self.table.longest_match(address, |number| self.table.entry(number).ranked > 0)
    }
}

/// The common part of a batch's items.
struct Incoming<'a> {
    peer: PeerId,
    received_s: u32,
    damps: bool,
    attrs: &'a [AttrRef],
}

/// The result for a prefix, on its way into a [`Change`].
struct Report {
    old: Option<Chosen>,
    new: Option<Chosen>,
    further: Option<Box<Further>>,
}

/// What replacing a path requires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Leave,
    /// The best path stays the best and is the only one reported; its attributes changed.
    ReportBest,
    /// The order stays; attributes changed.
    ReportSame,
    Rank,
}

#[cfg(test)]
#[path = "family_tests.rs"]
mod tests;
