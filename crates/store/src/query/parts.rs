//! Sums by packed key of a thread that may meet many millions of keys.
//!
//! ```text
//! near   a small table, in the near cache           rows are added here
//! far    blocks of runs; a run is a full small table, its entries in the order of their parts
//! ```
//!
//! One table of all keys would miss all caches with every row. So a table that is full is moved away, its entries
//! ordered by a part of the hash, and begins anew. A key that comes again later is there twice. At the end, the
//! entries of each part, of all threads, are added up in a table that fits into a cache again; each part is the work
//! of one thread, so sums of threads need not be joined.
//!
//! Moved entries are written and read once, in order. Their memory is bounded: when there are too many, those of equal
//! keys are joined, and then each part keeps its share of keys; records of further keys are summed together.

use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_base::prefer_huge_pages;

use super::sums::Sums;
use super::table::{Entry, Packed, Seed, Table};
use crate::block::{at, number};

/// Parts of the keys, by the highest bits of the hash.
const PARTS: usize = 256;
const PART_SHIFT: u32 = u64::BITS - PARTS.trailing_zeros();
/// The most keys of the small table, which then leaves room in the second-level cache; and of one that is worth more,
/// because most rows find their key in it.
const NEAR_MAX: usize = 1 << 14;
const NEAR_REUSED_MAX: usize = 1 << 16;
/// So many rows a key: most rows.
const REUSED: usize = 2;
/// Entries that share a piece of memory: enough for huge pages.
const BLOCK: usize = 1 << 17;

/// Moved entries.
struct Block<K> {
    entries: Vec<Entry<K>>,
    /// Where each part of each run begins, and the end.
    starts: Vec<u32>,
}

impl<K: Packed> Block<K> {
    fn with_room(room: usize) -> Self {
        Self { entries: with_room(room), starts: vec![0] }
    }

    /// The entries of a part, a slice of each run.
    fn part(&self, part: usize) -> impl Iterator<Item = &[Entry<K>]> {
        let runs = self.starts.windows(2).skip(part).step_by(PARTS);
        runs.map(|bounds| &self.entries[at(bounds[0])..at(bounds[1])])
    }

    /// Ends a part of a run.
    fn end_part(&mut self) {
        self.starts.push(number(self.entries.len()));
    }
}

/// An empty list in huge pages: page faults of small ones would take longer than everything else.
fn with_room<T>(room: usize) -> Vec<T> {
    let mut list = Vec::with_capacity(room);
    prefer_huge_pages(list.spare_capacity_mut());
    list
}

/// The sums of one thread.
pub(super) struct Parted<K> {
    seed: Seed,
    near: Table<K>,
    near_max: usize,
    /// Rows that were added to it.
    near_rows: usize,
    far: Vec<Block<K>>,
    /// Entries in blocks.
    moved: usize,
    /// The most keys when equal ones have been joined.
    keys_max: usize,
    /// Sums of keys for which there was no room.
    pub(super) rest: Sums,
}

impl<K: Packed> Parted<K> {
    pub(super) fn new(seed: Seed, keys_max: usize) -> Self {
        Self {
            seed,
            near: Table::new(seed),
            near_max: NEAR_MAX,
            near_rows: 0,
            far: Vec::new(),
            moved: 0,
            keys_max,
            rest: Sums::default(),
        }
    }

    /// Adds one record to each of these keys. All three lists have the same length.
    pub(super) fn add_rows(&mut self, keys: &[K], packets: &[u64], bytes: &[u64]) {
        self.make_room(keys.len());
        self.near.add_rows(keys, packets, bytes);
    }

    pub(super) fn add(&mut self, key: K, sums: Sums) {
        self.make_room(1);
        self.near.add(key, sums);
    }

    /// Makes room for so many rows in the small table.
    fn make_room(&mut self, rows: usize) {
        let keys = self.near.entries().len();
        if keys + rows > self.near_max {
            if self.near_max < NEAR_REUSED_MAX && self.near_rows >= REUSED * keys {
                self.near_max *= 2;
            } else {
                self.move_away();
            }
        }
        self.near_rows += rows;
    }

    /// Empties the small table.
    fn move_away(&mut self) {
        let entries = self.near.entries();
        let part = |entry: &Entry<K>| (self.seed.hash(entry.key) >> PART_SHIFT) as usize;
        let mut starts = [0; PARTS];
        entries.iter().for_each(|entry| starts[part(entry)] += 1);
        let has_room = |block: &Block<K>| block.entries.capacity() - block.entries.len() >= entries.len();
        if !self.far.last().is_some_and(has_room) {
            // A thread of few keys needs no more room than they do.
            let room = if self.far.is_empty() { entries.len() } else { BLOCK.max(entries.len()) };
            self.far.push(Block::with_room(room));
        }
        let Some(block) = self.far.last_mut() else { return };
        let mut end = block.entries.len();
        for start in &mut starts {
            end += std::mem::replace(start, end);
            block.starts.push(number(end));
        }
        block.entries.resize(end, Entry::default());
        for entry in entries {
            let place = &mut starts[part(entry)];
            block.entries[*place] = *entry;
            *place += 1;
        }
        self.moved += entries.len();
        self.near.clear();
        (self.near_max, self.near_rows) = (NEAR_MAX, 0);
        if self.moved > self.keys_max.saturating_mul(2).max(NEAR_REUSED_MAX) {
            self.join_equal();
        }
    }

    /// Joins moved entries of equal keys, and leaves each part its share of keys: those that came first.
    fn join_equal(&mut self) {
        let share = self.keys_max.div_ceil(PARTS);
        let mut joined = Block::with_room(share.saturating_mul(PARTS).min(self.moved));
        let mut table = Table::new(self.seed);
        for part in 0..PARTS {
            table.clear();
            for entry in self.far.iter().flat_map(|block| block.part(part)).flatten() {
                if table.entries().len() < share {
                    table.add(entry.key, entry.sums);
                } else if !table.add_known(entry.key, entry.sums) {
                    self.rest.add(entry.sums);
                }
            }
            joined.entries.extend_from_slice(table.entries());
            joined.end_part();
        }
        self.moved = joined.entries.len();
        self.far = vec![joined];
    }
}

/// All keys of all threads, in lists.
pub(super) fn join<K: Packed>(seed: Seed, mut threads: Vec<Parted<K>>) -> Vec<Vec<Entry<K>>> {
    threads.iter_mut().for_each(Parted::move_away);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut table = Table::new(seed);
        let mut lists: Vec<Vec<Entry<K>>> = Vec::new();
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= PARTS {
                return lists;
            }
            table.clear();
            let blocks = threads.iter().flat_map(|thread| &thread.far);
            blocks.flat_map(|block| block.part(part)).for_each(|entries| table.add_entries(entries));
            let count = table.entries().len();
            match lists.last_mut().filter(|list| list.capacity() - list.len() >= count) {
                Some(list) => list.extend_from_slice(table.entries()),
                None => {
                    // Parts have about the same number of keys.
                    let mut list = with_room((count + count / 8).max(count.saturating_mul(16).min(BLOCK)));
                    list.extend_from_slice(table.entries());
                    lists.push(list);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = threads.iter().skip(1).map(|_| scope.spawn(work)).collect();
        let mut lists = work();
        // A joiner does not panic; if it did, the panic continues here.
        lists.extend(others.into_iter().flat_map(|thread| match thread.join() {
            Ok(lists) => lists,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        lists
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Rows of some threads, with few heavy keys and many others; the sums of a plain map, and what the threads have.
    fn threads(keys_max: usize, rows: u32, numbers: u32) -> (HashMap<u64, Sums>, Vec<Parted<u64>>, Seed) {
        let mut chance = thalweg_base::XorShift64Star::new(11);
        let seed = Seed::random();
        let mut plain: HashMap<u64, Sums> = HashMap::new();
        let mut all: Vec<Parted<u64>> = (0..3).map(|_| Parted::new(seed, keys_max)).collect();
        for turn in 0..rows / 1000 {
            let key = |number| u64::from(if number % 4 == 0 { number % 10 } else { number }) << 20;
            let keys: Vec<u64> = (0..1000).map(|_| key(chance.below(numbers))).collect();
            let packets: Vec<u64> = keys.iter().map(|_| chance.below(1000).into()).collect();
            let bytes: Vec<u64> = keys.iter().map(|_| chance.below(1_000_000).into()).collect();
            for ((key, packets), bytes) in keys.iter().zip(&packets).zip(&bytes) {
                plain.entry(*key).or_default().add(Sums { packets: *packets, bytes: *bytes, flows: 1 });
            }
            let thread = &mut all[at(turn % 3)];
            if turn % 5 == 0 {
                for ((key, packets), bytes) in keys.iter().zip(packets).zip(bytes) {
                    thread.add(*key, Sums { packets, bytes, flows: 1 });
                }
            } else {
                thread.add_rows(&keys, &packets, &bytes);
            }
        }
        (plain, all, seed)
    }

    #[test]
    fn sums_of_all_threads_are_those_of_a_plain_map() {
        // The smaller bound has room for all keys, but makes threads join equal ones on the way.
        let few = 60_000;
        for rows in [0, 2000, 1_200_000] {
            for keys_max in [few, 8 << 20] {
                let (plain, threads, seed) = threads(keys_max, rows, 45_000);
                let has_joined = threads.iter().all(|thread| thread.moved <= 2 * few);
                assert_eq!(has_joined, rows < 1_200_000 || keys_max == few);
                assert!(threads.iter().all(|thread| thread.rest == Sums::default()));
                let lists = join(seed, threads);
                let entries: HashMap<u64, Sums> =
                    lists.iter().flatten().map(|entry| (entry.key, entry.sums)).collect();
                assert_eq!(entries.len(), lists.iter().map(Vec::len).sum::<usize>(), "each key once");
                assert!(entries == plain, "{rows} rows, {keys_max} keys");
            }
        }
    }

    /// Writing away and adding up again takes longer than a larger table, if that has the key of most rows.
    #[test]
    fn keys_that_come_again_soon_stay_in_the_table() {
        for (numbers, stay) in [(10_000, true), (28_000, true), (4_000_000, false)] {
            let (_, threads, _) = threads(8 << 20, 600_000, numbers);
            assert!(threads.iter().all(|thread| thread.far.is_empty() == stay), "{numbers} keys");
        }
    }

    /// Memory is bounded; nothing is lost, and the keys that come often keep their sums.
    #[test]
    fn keys_beyond_the_bound_are_summed_up_together() {
        let keys_max = 10_000;
        let (plain, mut threads, seed) = threads(keys_max, 600_000, 200_000);
        let mut rest = Sums::default();
        for thread in &mut threads {
            thread.move_away();
            assert!(thread.moved <= NEAR_REUSED_MAX.max(2 * keys_max), "{} entries", thread.moved);
            assert!(thread.rest.flows > 0);
            rest.add(thread.rest);
        }
        let lists = join(seed, threads);
        let mut shown = rest;
        lists.iter().flatten().for_each(|entry| shown.add(entry.sums));
        let mut total = Sums::default();
        plain.values().for_each(|sums| total.add(*sums));
        assert_eq!(shown, total);
        for (key, sums) in plain.iter().filter(|(_, sums)| sums.flows > 5000) {
            let entry = lists.iter().flatten().find(|entry| entry.key == *key);
            assert_eq!(entry.map(|entry| entry.sums), Some(*sums));
        }
    }
}
