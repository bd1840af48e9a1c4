//! The standby's half: takes over what the active router tells it, and finds out what it lacks.

use std::collections::BTreeMap;

use thalweg_wire::standby::{Change, Entry, Message, Part, ShardId};

use super::parts::{Division, is_same};
use super::{Line, Shards, Tables};
use crate::records::place;

/// Parts that were asked for and have not come, and own entries in them.
const PARTS_MAX: usize = 65_536;
const ENTRIES_MAX: usize = 262_144;

#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// Our own digests of the shard that is being compared.
    own: Option<(Division, Vec<u64>)>,
    /// The walk that is being compared, its messages so far, and parts that there was no room to ask for.
    walk: u32,
    messages: u32,
    unasked: u32,
    /// Messages of the last whole walk that did not come.
    missed: u32,
    is_whole: bool,
    /// Parts that were asked for, with our own entries in them when they were.
    awaited: BTreeMap<Part, Vec<Entry>>,
    /// The number of those entries.
    held: usize,
    /// All that a whole walk found to differ has come.
    pub(super) has_caught_up: bool,
    /// Entries that found no room.
    pub(super) refused: u64,
}

impl Receiver {
    /// Forgets what it knows of the other router, which may be another now.
    pub(super) fn learn_anew(&mut self) {
        *self = Self { refused: self.refused, ..Self::default() };
    }

    /// Parts that are known to be missing; messages of digests that did not come count too.
    pub(super) fn behind(&self) -> u32 {
        let awaited = u32::try_from(self.awaited.len()).unwrap_or(u32::MAX);
        awaited.saturating_add(self.unasked).saturating_add(self.missed)
    }

    /// Compares digests with our own, and asks for the parts that differ. Our own entries live on: who uses them tells
    /// the other router, not us.
    pub(super) fn compare(
        &mut self,
        (walk, first): (u32, Part),
        digests: &[u64],
        line: &mut Line,
        tables: &Tables<'_>,
        secret: u64,
    ) {
        if walk != self.walk {
            (self.walk, self.messages, self.unasked, self.is_whole) = (walk, 0, 0, false);
            self.own = None;
        }
        self.messages = self.messages.saturating_add(1);
        if tables.shard(first.of).is_none() {
            return;
        }
        let division = Division { of: first.of, bits: first.bits, secret };
        let known = self.own.take().filter(|(known, _)| *known == division);
        let own = known.map(|(_, own)| own).unwrap_or_else(|| {
            // What was asked for after the walk before is compared anew.
            self.forget(first.of);
            division.digests(tables, true)
        });
        let numbers = (first.number..division.count()).zip(digests);
        let differs = |(number, digest): &(u32, &u64)| own.get(place(*number)) != Some(*digest);
        let differing: Vec<u32> = numbers.filter(differs).map(|(number, _)| number).collect();
        self.own = Some((division, own));
        if !differing.is_empty() {
            self.ask(line, tables, &division, differing);
        }
    }

    fn ask(&mut self, line: &mut Line, tables: &Tables<'_>, division: &Division, differing: Vec<u32>) {
        let mut numbers = Vec::new();
        for (number, entries) in division.entries(tables, differing) {
            if self.awaited.len() >= PARTS_MAX || self.held + entries.len() > ENTRIES_MAX {
                self.unasked = self.unasked.saturating_add(1);
                continue;
            }
            numbers.push(number);
            self.await_part(division.part(number), entries);
        }
        if !numbers.is_empty() {
            line.send(&Message::Want { of: division.of, bits: division.bits, numbers });
        }
    }

    fn await_part(&mut self, part: Part, entries: Vec<Entry>) {
        self.held += entries.len();
        self.awaited.insert(part, entries);
    }

    /// Our own entries in a part when we asked for it, if we did.
    fn take_awaited(&mut self, part: Part, secret: u64) -> Option<Vec<Entry>> {
        let coarser = |bits: u8| Part { bits, number: part.number & ((1 << bits) - 1), ..part };
        let mut at = (0..=part.bits).rev().map(coarser).find(|part| self.awaited.contains_key(part))?;
        let mut entries = self.awaited.remove(&at)?;
        self.held -= entries.len();
        // The other router has sent it in pieces.
        while at.bits < part.bits {
            let division = Division { of: at.of, bits: at.bits, secret }.finer();
            at = Part { bits: division.bits, number: part.number & (division.count() - 1), ..at };
            let sibling = Part { number: at.number ^ (division.count() >> 1), ..at };
            let (ours, others) = entries.into_iter().partition(|entry| division.number(entry) == at.number);
            self.await_part(sibling, others);
            entries = ours;
        }
        Some(entries)
    }

    /// A part has these entries. Others of ours in it end.
    pub(super) fn replace(&mut self, part: Part, entries: &[Entry], tables: &Tables<'_>, secret: u64) {
        let Some(shards) = tables.shard(part.of) else { return };
        let own = self.take_awaited(part, secret).unwrap_or_default();
        for mine in own.iter().filter(|mine| !entries.iter().any(|entry| is_same(mine, entry))) {
            shards.end(part.of.shard, mine, tables.now_ns);
        }
        for entry in entries {
            self.put(shards, part.of, entry, tables);
        }
        self.look_whether_caught_up();
    }

    /// What happened in a shard.
    pub(super) fn apply(&mut self, of: ShardId, changes: &[Change], tables: &Tables<'_>) {
        let Some(shards) = tables.shard(of) else { return };
        for Change { is_end, entry } in changes {
            match is_end {
                true => shards.end(of.shard, entry, tables.now_ns),
                false => self.put(shards, of, entry, tables),
            }
        }
    }

    fn put(&mut self, shards: &dyn Shards, of: ShardId, entry: &Entry, tables: &Tables<'_>) {
        self.refused += u64::from(!shards.put(of.shard, entry, tables.now_ns));
    }

    /// The other router's last whole walk had so many messages. Of one that has begun since, it says nothing.
    pub(super) fn note_walk(&mut self, walk: u32, messages: u32) {
        if walk == 0 || self.walk == walk.wrapping_add(1) {
            return;
        }
        let seen = if walk == self.walk { self.messages } else { 0 };
        self.missed = messages.saturating_sub(seen);
        self.is_whole = self.missed == 0;
        self.look_whether_caught_up();
    }

    fn look_whether_caught_up(&mut self) {
        self.has_caught_up |= self.is_whole && self.behind() == 0;
    }

    fn forget(&mut self, of: ShardId) {
        self.awaited.retain(|part, _| part.of != of);
        self.held = self.awaited.values().map(Vec::len).sum();
    }
}
