//! The active router's half: tells what changes, walks over its tables again and again, and answers for parts that the
//! other router lacks.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_wire::standby::{
    Change, Entry, LIST_BYTES_MAX, Message, PART_BITS_MAX, ShardId, change_bytes, entry_bytes,
};

use super::parts::{Division, Sums, bits_for};
use super::{Line, Tables};
use crate::records::number;

/// Between the beginnings of two walks.
pub(super) const WALK_EVERY_NS: u64 = 3_000_000_000;
/// Slices that a walk visits in one turn, or messages that it sends.
const STEPS: usize = 32;
/// Digests in a message.
const DIGESTS: usize = LIST_BYTES_MAX / 8;
/// Parts that wait for an answer.
const WANTED_MAX: usize = 65_536;

/// Where a walk is.
#[derive(Debug)]
struct Walk {
    sums: Sums,
    /// Where its next slice begins, if there is one.
    from: Option<usize>,
    /// Digests of the shard that were sent.
    sent: usize,
    messages: u32,
}

/// The parts of a shard that were asked for.
#[derive(Debug)]
struct Wanted {
    bits: u8,
    numbers: BTreeSet<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Shards note their changes.
    pub(super) is_on: bool,
    walk: Option<Walk>,
    /// The number of the present walk, or of the last.
    number: u32,
    begun_ns: Option<u64>,
    /// The last whole walk, and its messages.
    pub(super) last: (u32, u32),
    wanted: BTreeMap<ShardId, Wanted>,
    /// The shard after which changes are taken next.
    after: Option<ShardId>,
    /// Changes come last in this turn: a flood of them leaves room for the rest in every other turn.
    is_last: bool,
}

impl Sender {
    /// Begins or ends: shards note their changes exactly while somebody is told of them.
    pub(super) fn turn_on(&mut self, is_on: bool, tables: &Tables<'_>) {
        tables.each().for_each(|shards| shards.follow(is_on));
        self.is_on = is_on;
        self.restart();
    }

    /// Begins with a walk: another run of the standby has nothing.
    pub(super) fn restart(&mut self) {
        *self = Self { is_on: self.is_on, number: self.number, last: self.last, ..Self::default() };
    }

    /// Takes a request for parts of a shard. What finds no room is asked for again after the next walk.
    pub(super) fn want(&mut self, of: ShardId, bits: u8, numbers: &[u32]) {
        let known: usize = self.wanted.values().map(|wanted| wanted.numbers.len()).sum();
        let wanted = self.wanted.entry(of).or_insert(Wanted { bits, numbers: BTreeSet::new() });
        if wanted.bits != bits {
            *wanted = Wanted { bits, numbers: BTreeSet::new() };
        }
        let room = WANTED_MAX.saturating_sub(known);
        wanted.numbers.extend(numbers.iter().filter(|number| **number >> bits == 0).take(room));
    }

    /// Sends what the line has room for; returns how many changes were lost.
    pub(super) fn work(&mut self, line: &mut Line, tables: &Tables<'_>, secret: u64) -> u64 {
        self.is_last = !self.is_last;
        let lost = if self.is_last { 0 } else { self.send_changes(line, tables) };
        while line.has_room()
            && let Some((of, wanted)) = self.wanted.pop_first()
        {
            self.answer(line, tables, (of, wanted), secret);
        }
        self.go_on(line, tables, secret);
        lost + if self.is_last { self.send_changes(line, tables) } else { 0 }
    }

    /// Changes of all shards, beginning after the one that was last.
    fn send_changes(&mut self, line: &mut Line, tables: &Tables<'_>) -> u64 {
        let (mut lost, last) = (0, self.after);
        let later = tables.shards().filter(|id| last.is_none_or(|last| *id > last));
        let earlier = tables.shards().filter(|id| last.is_some_and(|last| *id <= last));
        for of in later.chain(earlier) {
            if !line.has_room() {
                break;
            }
            self.after = Some(of);
            let Some(shards) = tables.of(of.table) else { continue };
            let mut all: Vec<Change> = Vec::new();
            lost += shards.changes(of.shard, &mut |change| all.push(change));
            send_list(line, of, all);
        }
        lost
    }

    /// Sends the entries of parts, as many as the line has room for. The others wait.
    fn answer(
        &mut self,
        line: &mut Line,
        tables: &Tables<'_>,
        (of, mut wanted): (ShardId, Wanted),
        secret: u64,
    ) {
        let division = Division { of, bits: wanted.bits, secret };
        let now: Vec<u32> = wanted.numbers.iter().copied().take(line.room()).collect();
        now.iter().for_each(|number| _ = wanted.numbers.remove(number));
        for (number, entries) in division.entries(tables, now) {
            send_part(line, &division, number, entries);
        }
        if !wanted.numbers.is_empty() {
            self.wanted.insert(of, wanted);
        }
    }

    /// Goes on with the walk, or begins another if it is time.
    fn go_on(&mut self, line: &mut Line, tables: &Tables<'_>, secret: u64) {
        let begins = |of: ShardId, messages: u32| {
            let bits = bits_for(tables.of(of.table).map_or(0, |shards| shards.live(of.shard)));
            Walk { sums: Sums::new(Division { of, bits, secret }), from: Some(0), sent: 0, messages }
        };
        if self.walk.is_none() {
            let is_due = self.begun_ns.is_none_or(|begun_ns| tables.now_ns >= begun_ns + WALK_EVERY_NS);
            let Some(first) = tables.shards().next().filter(|_| is_due) else { return };
            (self.begun_ns, self.number) = (Some(tables.now_ns), self.number.wrapping_add(1));
            self.walk = Some(begins(first, 0));
        }
        for _ in 0..STEPS {
            let Some(walk) = self.walk.as_mut().filter(|_| line.has_room()) else { return };
            if let Some(from) = walk.from {
                walk.from = walk.sums.add_slice(tables, from, false);
                if walk.from.is_some() {
                    continue;
                }
            }
            let (division, rest) = (walk.sums.division, &walk.sums.digests[walk.sent..]);
            let digests = rest[..rest.len().min(DIGESTS)].to_vec();
            let first = division.part(number(walk.sent));
            walk.sent += digests.len();
            walk.messages += 1;
            line.send(&Message::Digests { walk: self.number, first, digests });
            if walk.sent < walk.sums.digests.len() {
                continue;
            }
            let (messages, next) = (walk.messages, tables.shards().find(|id| *id > division.of));
            if next.is_none() {
                self.last = (self.number, messages);
                line.says_hello = true;
            }
            self.walk = next.map(|next| begins(next, messages));
        }
    }
}

/// Sends the entries of a part. One that is too large for a message is sent as two.
fn send_part(line: &mut Line, division: &Division, number: u32, entries: Vec<Entry>) {
    let bytes: usize = entries.iter().map(entry_bytes).sum();
    if bytes <= LIST_BYTES_MAX {
        return line.send(&Message::Whole { part: division.part(number), entries });
    }
    if division.bits >= PART_BITS_MAX {
        let changes = entries.into_iter().map(|entry| Change { is_end: false, entry });
        return send_list(line, division.of, changes);
    }
    let finer = division.finer();
    let (low, high): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| finer.number(entry) == number);
    send_part(line, &finer, number, low);
    send_part(line, &finer, number | division.count(), high);
}

/// Sends changes, in as many messages as they need.
fn send_list(line: &mut Line, of: ShardId, all: impl IntoIterator<Item = Change>) {
    let (mut changes, mut bytes) = (Vec::new(), 0);
    for change in all {
        if bytes + change_bytes(&change) > LIST_BYTES_MAX {
            line.send(&Message::Changes { of, changes: std::mem::take(&mut changes) });
            bytes = 0;
        }
        bytes += change_bytes(&change);
        changes.push(change);
    }
    if !changes.is_empty() {
        line.send(&Message::Changes { of, changes });
    }
}
