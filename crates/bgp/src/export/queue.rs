//! Announcements and withdrawals that wait to be encoded: one entry for a prefix (and path identifier), however
//! often it changed, and one pack for the attributes that prefixes share.
//!
//! ```text
//! entry: prefix, path id, had (who may have it), pack ──> pack: attributes, origins, audience
//!   24 bytes for IPv4, 48 for IPv6                 \──> more packs, for other members (route server)
//! ```
//!
//! Encoding sorts entries by pack (a counting sort) and packs by audience, and writes withdrawals first, so that a
//! member never holds more than it will in the end. It can stop after any message and continue later.

use hashbrown::HashTable;
use thalweg_base::{Prefix, mix64};

use super::attributes::{self, Block};
use super::audience::{AudienceCode, Audiences};
use super::encode::{Encoder, Nlri, NlriAddress};
use super::origins::Origins;
use super::rules::Rules;
use crate::attrs::AttrRef;
use crate::peer::PeerId;
use crate::route::prefix_hash;

const NONE: u32 = u32::MAX;

struct Entry<A> {
    prefix: Prefix<A>,
    path_id: u16,
    had: AudienceCode,
    pack: u32,
    more: u32,
}

struct More {
    pack: u32,
    next: u32,
}

struct Pack {
    attrs: AttrRef,
    origins: Origins,
    audience: AudienceCode,
    /// During encoding: first the number of entries, then their end in the order.
    count: u32,
}

/// The progress of encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Collecting,
    Withdrawing { at: usize },
    Announcing { rank: usize, at: usize, ready: bool },
}

pub(super) struct Queues {
    pub(super) v4: Queue<u32>,
    pub(super) v6: Queue<u128>,
}

/// An address of a family that has a queue.
pub(super) trait QueueAddress: NlriAddress {
    fn queue(queues: &mut Queues) -> &mut Queue<Self>;
}

impl QueueAddress for u32 {
    fn queue(queues: &mut Queues) -> &mut Queue<u32> {
        &mut queues.v4
    }
}

impl QueueAddress for u128 {
    fn queue(queues: &mut Queues) -> &mut Queue<u128> {
        &mut queues.v6
    }
}

impl Queues {
    pub(super) fn new(coalesces: bool) -> Self {
        Self { v4: Queue::new(coalesces), v6: Queue::new(coalesces) }
    }

    /// Prepares for [`Self::take_withdrawals`].
    pub(super) fn withdraws_first(&mut self) {
        (self.v4.touched, self.v6.touched) = (Some(Vec::new()), Some(Vec::new()));
    }

    /// Takes what must be withdrawn; announcements stay.
    pub(super) fn take_withdrawals(&mut self, audiences: &mut Audiences) -> Self {
        Self { v4: self.v4.take_withdrawals(audiences), v6: self.v6.take_withdrawals(audiences) }
    }

    pub(super) fn len(&self) -> usize {
        self.v4.entries.len() + self.v6.entries.len()
    }

    /// Writes until the encoder is full or everything is written; returns whether everything is.
    pub(super) fn encode(&mut self, rules: &mut Rules, encoder: &mut Encoder) -> bool {
        self.v4.encode(rules, encoder) && self.v6.encode(rules, encoder)
    }
}

/// Waiting changes. `A` selects the family.
pub(super) struct Queue<A> {
    /// Whether a prefix may come twice, so that its entry must be found again.
    coalesces: bool,
    entries: Vec<Entry<A>>,
    index: HashTable<u32>,
    packs: Vec<Pack>,
    pack_table: HashTable<u32>,
    more: Vec<More>,
    /// Entries that changed since withdrawals were last taken out, if they are.
    touched: Option<Vec<u32>>,
    /// The pack of the last route, with that route's attributes before policy and its source.
    last: Option<(usize, PeerId, u32)>,
    phase: Phase,
    withdrawals: Vec<(AudienceCode, u32)>,
    order: Vec<u32>,
    ranks: Vec<u32>,
    block: Block,
}

impl<A: NlriAddress> Queue<A> {
    pub(super) fn new(coalesces: bool) -> Self {
        Self {
            coalesces,
            entries: Vec::new(),
            index: HashTable::new(),
            packs: Vec::new(),
            pack_table: HashTable::new(),
            more: Vec::new(),
            touched: None,
            last: None,
            phase: Phase::Collecting,
            withdrawals: Vec::new(),
            order: Vec::new(),
            ranks: Vec::new(),
            block: Block::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity().max(self.index.capacity()).max(self.order.capacity())
    }

    /// The entry of a prefix, if it exists.
    #[inline]
    pub(super) fn find(&self, prefix: Prefix<A>, path_id: u16) -> Option<u32> {
        let entries = &self.entries;
        let is_it = |&at: &u32| {
            let entry = &entries[at as usize];
            entry.prefix == prefix && entry.path_id == path_id
        };
        self.index.find(hash(prefix, path_id), is_it).copied()
    }

    /// Makes the entry of a prefix, without packs. `had` accumulates over all changes of the prefix: a dump may
    /// have shown members any of the states between.
    #[inline]
    pub(super) fn enter(
        &mut self,
        prefix: Prefix<A>,
        path_id: u16,
        had: AudienceCode,
        audiences: &mut Audiences,
    ) -> u32 {
        let new = Entry { prefix, path_id, had, pack: NONE, more: NONE };
        let at = self.entries.len() as u32;
        if self.coalesces {
            let entries = &self.entries;
            let found = self.index.entry(
                hash(prefix, path_id),
                |&at| {
                    let entry = &entries[at as usize];
                    entry.prefix == prefix && entry.path_id == path_id
                },
                |&at| {
                    let entry = &entries[at as usize];
                    hash(entry.prefix, entry.path_id)
                },
            );
            match found {
                hashbrown::hash_table::Entry::Occupied(found) => {
                    let at = *found.get();
                    let entry = &mut self.entries[at as usize];
                    entry.had = audiences.or(entry.had, had);
                    (entry.pack, entry.more) = (NONE, NONE);
                    self.touched.iter_mut().for_each(|touched| touched.push(at));
                    return at;
                }
                hashbrown::hash_table::Entry::Vacant(vacant) => vacant.insert(at),
            };
        }
        self.entries.push(new);
        self.touched.iter_mut().for_each(|touched| touched.push(at));
        at
    }

    /// The members that get something from an entry.
    fn gets(&self, entry: &Entry<A>, audiences: &mut Audiences) -> AudienceCode {
        let mut gets = self.packs.get(entry.pack as usize).map_or(AudienceCode::NOBODY, |pack| pack.audience);
        let mut more = entry.more;
        while let Some(next) = self.more.get(more as usize) {
            gets = audiences.or(gets, self.packs[next.pack as usize].audience);
            more = next.next;
        }
        gets
    }

    /// Takes what must be withdrawn, as a queue of its own; announcements stay. Requires
    /// [`Queues::withdraws_first`].
    pub(super) fn take_withdrawals(&mut self, audiences: &mut Audiences) -> Self {
        let mut taken = Self::new(false);
        let touched = self.touched.as_mut().map(std::mem::take).unwrap_or_default();
        for at in touched {
            let entry = &self.entries[at as usize];
            let gets = self.gets(entry, audiences);
            let loses = audiences.minus(entry.had, gets);
            if loses != AudienceCode::NOBODY {
                taken.enter(entry.prefix, entry.path_id, loses, audiences);
                self.entries[at as usize].had = audiences.minus(entry.had, loses);
            }
        }
        taken
    }

    /// Adds a pack to the entry.
    #[inline]
    pub(super) fn assign(&mut self, entry: u32, pack: u32) {
        let entry = &mut self.entries[entry as usize];
        if entry.pack == NONE {
            entry.pack = pack;
        } else {
            self.more.push(More { pack, next: entry.more });
            entry.more = self.more.len() as u32 - 1;
        }
    }

    /// The pack of the previous route, if that had the same attributes and source.
    #[inline]
    pub(super) fn last_pack(&self, attrs_id: usize, source: PeerId) -> Option<u32> {
        match self.last {
            Some((id, peer, pack)) if id == attrs_id && peer == source => Some(pack),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn remember_pack(&mut self, attrs_id: usize, source: PeerId, pack: u32) {
        self.last = Some((attrs_id, source, pack));
    }

    /// The pack of these attributes for this audience.
    pub(super) fn pack(&mut self, attrs: &AttrRef, origins: Origins, audience: AudienceCode) -> u32 {
        let packs = &self.packs;
        let found = self.pack_table.entry(
            pack_hash(attrs, audience),
            |&at| {
                let pack = &packs[at as usize];
                pack.attrs == *attrs && pack.audience == audience && pack.origins == origins
            },
            |&at| pack_hash(&packs[at as usize].attrs, packs[at as usize].audience),
        );
        match found {
            hashbrown::hash_table::Entry::Occupied(found) => *found.get(),
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                let at = self.packs.len() as u32;
                vacant.insert(at);
                self.packs.push(Pack { attrs: attrs.clone(), origins, audience, count: 0 });
                at
            }
        }
    }

    /// Writes until the encoder is full or everything is written; returns whether everything is.
    pub(super) fn encode(&mut self, rules: &mut Rules, encoder: &mut Encoder) -> bool {
        if self.phase == Phase::Collecting {
            if self.entries.is_empty() {
                return true;
            }
            self.sort(&mut rules.audiences);
            self.phase = Phase::Withdrawing { at: 0 };
        }
        while !encoder.is_full() {
            let done = match self.phase {
                Phase::Collecting => true,
                Phase::Withdrawing { at } => {
                    self.withdraw(at, &rules.audiences, encoder);
                    false
                }
                Phase::Announcing { rank, at, ready } => self.announce(rank, at, ready, rules, encoder),
            };
            if done {
                self.clear();
                return true;
            }
        }
        false
    }

    /// Sorts withdrawals by audience and the others by pack, with packs in order of audience.
    fn sort(&mut self, audiences: &mut Audiences) {
        for (at, entry) in self.entries.iter().enumerate() {
            let gets = self.gets(entry, audiences);
            let mut more = entry.more;
            if let Some(pack) = self.packs.get_mut(entry.pack as usize) {
                pack.count += 1;
            }
            while let Some(next) = self.more.get(more as usize) {
                self.packs[next.pack as usize].count += 1;
                more = next.next;
            }
            let loses = audiences.minus(entry.had, gets);
            if loses != AudienceCode::NOBODY {
                self.withdrawals.push((audiences.tidy(loses), at as u32));
            }
        }
        if !self.withdrawals.is_sorted_by_key(|each| each.0) {
            self.withdrawals.sort_by_key(|each| each.0);
        }
        self.ranks.clear();
        self.ranks.extend(0..self.packs.len() as u32);
        let packs = &mut self.packs;
        if !packs.is_sorted_by_key(|pack| pack.audience) {
            self.ranks.sort_by_key(|&at| packs[at as usize].audience);
        }
        let mut sum = 0;
        for &at in &self.ranks {
            let pack = &mut packs[at as usize];
            (pack.count, sum) = (sum, sum + pack.count);
        }
        self.order.clear();
        self.order.resize(sum as usize, 0);
        let order = &mut self.order;
        let mut place = |pack: u32, entry: usize| {
            let pack = &mut packs[pack as usize];
            order[pack.count as usize] = entry as u32;
            pack.count += 1;
        };
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.pack == NONE {
                continue;
            }
            place(entry.pack, at);
            let mut more = entry.more;
            while let Some(next) = self.more.get(more as usize) {
                place(next.pack, at);
                more = next.next;
            }
        }
    }

    /// Writes one message of withdrawals, or moves on to announcements.
    fn withdraw(&mut self, at: usize, audiences: &Audiences, encoder: &mut Encoder) {
        let Some(&(code, _)) = self.withdrawals.get(at) else {
            self.phase = Phase::Announcing { rank: 0, at: 0, ready: false };
            return;
        };
        let run = self.withdrawals[at..].partition_point(|each| each.0 == code);
        let Some(audience) = audiences.resolve(code) else {
            self.phase = Phase::Withdrawing { at: at + run };
            return;
        };
        let entries = &self.entries;
        let mut prefixes =
            self.withdrawals[at..at + run].iter().map(|each| nlri(&entries[each.1 as usize])).peekable();
        encoder.withdraw(&mut prefixes, &audience);
        self.phase = Phase::Withdrawing { at: at + run - prefixes.len() };
    }

    /// Writes one message of a pack, or moves on to the next; returns whether all is done.
    fn announce(
        &mut self,
        rank: usize,
        at: usize,
        ready: bool,
        rules: &Rules,
        encoder: &mut Encoder,
    ) -> bool {
        let Some(pack) = self.ranks.get(rank).and_then(|&pack| self.packs.get(pack as usize)) else {
            return true;
        };
        // Placing the entries turned the count into the pack's end.
        let end = pack.count as usize;
        let audience = if at < end { rules.audiences.resolve(pack.audience) } else { None };
        let Some(audience) = audience else {
            self.phase = Phase::Announcing { rank: rank + 1, at: end, ready: false };
            return false;
        };
        if !ready {
            attributes::attributes(&rules.view, A::FAMILY, &pack.attrs, pack.origins, &mut self.block);
        }
        let entries = &self.entries;
        let mut prefixes = self.order[at..end].iter().map(|&at| nlri(&entries[at as usize])).peekable();
        encoder.announce(&self.block, &mut prefixes, &audience);
        self.phase = Phase::Announcing { rank, at: end - prefixes.len(), ready: true };
        false
    }

    /// Empties the queue. Frees memory that far exceeds what was needed this time: there may be hundreds of groups.
    fn clear(&mut self) {
        const KEPT: usize = 256;
        let (used, packs) = (self.entries.len(), self.packs.len());
        self.entries.clear();
        self.index.clear();
        self.packs.clear();
        self.pack_table.clear();
        self.more.clear();
        self.withdrawals.clear();
        self.order.clear();
        self.touched.iter_mut().for_each(Vec::clear);
        self.last = None;
        self.phase = Phase::Collecting;
        if self.entries.capacity() > 8 * used.max(KEPT) {
            self.entries.shrink_to(2 * used);
            self.index.shrink_to(2 * used, |_| 0);
            self.withdrawals.shrink_to(2 * used);
            self.order.shrink_to(2 * used);
            self.touched.iter_mut().for_each(|touched| touched.shrink_to(2 * used));
        }
        if self.packs.capacity() > 8 * packs.max(KEPT) {
            self.packs.shrink_to(2 * packs);
            self.pack_table.shrink_to(2 * packs, |_| 0);
            self.more.shrink_to(2 * used);
            self.ranks.shrink_to(2 * packs);
        }
    }
}

#[inline]
fn hash<A: NlriAddress>(prefix: Prefix<A>, path_id: u16) -> u64 {
    prefix_hash(prefix) ^ u64::from(path_id).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn pack_hash(attrs: &AttrRef, audience: AudienceCode) -> u64 {
    mix64(attrs.id() as u64 ^ u64::from(audience.0) << 40)
}

fn nlri<A: NlriAddress>(entry: &Entry<A>) -> Nlri<A> {
    (entry.prefix, u32::from(entry.path_id))
}
