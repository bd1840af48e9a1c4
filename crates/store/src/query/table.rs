//! Sums by packed key: a hash table for millions of keys.
//!
//! ```text
//! slots    tag 32 | place + 1, 32     open addressing, at most half full
//! entries  key 8 or 16 | sums 24      contiguous, in order of the keys' first appearance
//! ```
//!
//! With millions of keys, every row needs two memory accesses that miss all caches. The table overlaps them:
//! for a run of rows it reads first all slots, then all entries, and only then adds, so that a core has many
//! accesses in flight. Rows whose key is not at its first slot (mostly new keys) take the slow path at the
//! end. Memory comes in huge pages, because page faults of small ones would take longer than everything else.
//!
//! Hashes have a random seed, so that senders of packets cannot know which keys collide.

use std::hash::BuildHasher;

use thalweg_base::prefer_huge_pages;

use super::sums::Sums;

/// Rows that are looked up together.
pub(super) const RUN: usize = 64;
const SLOTS_MIN: usize = 1 << 10;
const ENTRIES_MIN: usize = 1 << 9;
/// The growth factor. Doubling would move millions of keys once more.
const GROWTH: usize = 4;

/// A key with several packed values; the last is lowest.
pub(super) trait Packed: Copy + Eq + Default + Send + Sync {
    /// Appends a value to the key.
    fn with(self, value: u64, bits: u32) -> Self;
    /// The whole key.
    fn wide(self) -> u128;
    fn of_wide(wide: u128) -> Self;
    /// The halves of the key.
    fn words(self) -> (u64, u64);
}

impl Packed for u64 {
    #[inline(always)]
    fn with(self, value: u64, bits: u32) -> Self {
        self << bits | value
    }

    fn wide(self) -> u128 {
        self.into()
    }

    fn of_wide(wide: u128) -> Self {
        wide as u64
    }

    #[inline(always)]
    fn words(self) -> (u64, u64) {
        (self, 0)
    }
}

impl Packed for u128 {
    #[inline(always)]
    fn with(self, value: u64, bits: u32) -> Self {
        self << bits | Self::from(value)
    }

    fn wide(self) -> u128 {
        self
    }

    fn of_wide(wide: u128) -> Self {
        wide
    }

    #[inline(always)]
    fn words(self) -> (u64, u64) {
        (self as u64, (self >> 64) as u64)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) sums: Sums,
}

/// The seed of a hash.
#[derive(Clone, Copy)]
pub(super) struct Seed([u64; 2]);

impl Seed {
    pub(super) fn random() -> Self {
        let state = foldhash::fast::RandomState::default();
        Self([state.hash_one(1u64) | 1, state.hash_one(2u64)])
    }

    #[inline(always)]
    pub(super) fn hash<K: Packed>(self, key: K) -> u64 {
        let (low, high) = key.words();
        let first = u128::from(low ^ self.0[1]) * u128::from(0x9E37_79B9_7F4A_7C15 ^ self.0[0]);
        let first = first as u64 ^ (first >> 64) as u64;
        let second = u128::from(first ^ high) * u128::from(0xD1B5_4A32_D192_ED03_u64);
        second as u64 ^ (second >> 64) as u64
    }
}

pub(super) struct Table<K> {
    seed: Seed,
    slots: Vec<u64>,
    entries: Vec<Entry<K>>,
    /// The most keys in the table.
    keys_max: usize,
    /// Sums of keys for which there was no room.
    pub(super) rest: Sums,
}

impl<K: Packed> Table<K> {
    pub(super) fn new(seed: Seed, keys_max: usize) -> Self {
        // A place has 32 bits, and zero means none.
        let keys_max = keys_max.min(u32::MAX as usize - 1);
        Self { seed, slots: Vec::new(), entries: Vec::new(), keys_max, rest: Sums::default() }
    }

    pub(super) fn entries(&self) -> &[Entry<K>] {
        &self.entries
    }

    pub(super) fn into_entries(self) -> Vec<Entry<K>> {
        self.entries
    }

    /// Appends an entry for a key that the caller keeps distinct; `None` if there is no room.
    pub(super) fn append(&mut self, key: K) -> Option<u32> {
        if self.entries.len() >= self.keys_max {
            return None;
        }
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve(ENTRIES_MIN);
            prefer_huge_pages(self.entries.spare_capacity_mut());
        }
        self.entries.push(Entry { key, sums: Sums::default() });
        Some((self.entries.len() - 1) as u32)
    }

    /// Adds to the entries that [`Self::append`] returned, or to the rest.
    pub(super) fn add_run(&mut self, run: &[(Option<u32>, Sums)]) {
        // Prefetches all entries before the first addition.
        let flows = |place: u32| self.entries.get(place as usize).map_or(0, |entry| entry.sums.flows);
        std::hint::black_box(
            run.iter().filter_map(|(place, _)| *place).fold(0, |all, place| all | flows(place)),
        );
        run.iter().for_each(|(place, sums)| self.add_at(*place, *sums));
    }

    #[inline]
    fn add_at(&mut self, place: Option<u32>, sums: Sums) {
        match place.and_then(|place| self.entries.get_mut(place as usize)) {
            Some(entry) => entry.sums.add(sums),
            None => self.rest.add(sums),
        }
    }

    /// Adds one record to each of these keys. All three lists have the same length.
    pub(super) fn add_rows(&mut self, keys: &[K], packets: &[u64], bytes: &[u64]) {
        let amounts = packets.chunks(RUN).zip(bytes.chunks(RUN));
        for (keys, (packets, bytes)) in keys.chunks(RUN).zip(amounts) {
            self.make_room();
            let mask = self.slots.len() - 1;
            let mut hashes = [0u64; RUN];
            let mut places = [0u32; RUN];
            for ((key, hash), place) in keys.iter().zip(&mut hashes).zip(&mut places) {
                *hash = self.seed.hash(*key);
                let slot = self.slots[*hash as usize & mask];
                // Another key's slot counts as empty: its tag differs except in one of four billion cases.
                *place = if (slot ^ *hash) >> 32 == 0 { slot as u32 } else { 0 };
            }
            for (key, place) in keys.iter().zip(&mut places) {
                let there = self.entries.get((*place as usize).wrapping_sub(1));
                *place = if there.is_some_and(|entry| entry.key == *key) { *place } else { 0 };
            }
            let rows = keys.iter().zip(hashes).zip(places).zip(packets.iter().zip(bytes));
            for (((key, hash), place), (packets, bytes)) in rows {
                let sums = Sums { packets: *packets, bytes: *bytes, flows: 1 };
                match self.entries.get_mut((place as usize).wrapping_sub(1)) {
                    Some(entry) => entry.sums.add(sums),
                    None => self.add_hashed(*key, hash, sums),
                }
            }
        }
    }

    pub(super) fn add(&mut self, key: K, sums: Sums) {
        self.make_room();
        self.add_hashed(key, self.seed.hash(key), sums);
    }

    fn add_hashed(&mut self, key: K, hash: u64, sums: Sums) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            if (slot ^ hash) >> 32 == 0
                && let Some(entry) = self.entries.get_mut((slot as u32 - 1) as usize)
                && entry.key == key
            {
                return entry.sums.add(sums);
            }
            at = (at + 1) & mask;
        }
        let place = self.append(key);
        if let Some(place) = place {
            self.slots[at] = hash >> 32 << 32 | u64::from(place + 1);
        }
        self.add_at(place, sums);
    }

    /// Makes room for a run of new keys. A table of the maximum size stays unchanged.
    fn make_room(&mut self) {
        let wanted = (self.entries.len() + RUN).min(self.keys_max + 1) * 2;
        if wanted <= self.slots.len() {
            return;
        }
        let count = wanted.next_power_of_two().max(SLOTS_MIN).max(self.slots.len() * GROWTH);
        self.slots = Vec::with_capacity(count);
        prefer_huge_pages(self.slots.spare_capacity_mut());
        self.slots.resize(count, 0);
        for (place, entry) in (1u64..).zip(&self.entries) {
            let hash = self.seed.hash(entry.key);
            let mut at = hash as usize & (count - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (count - 1);
            }
            self.slots[at] = hash >> 32 << 32 | place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn sums_are_those_of_a_plain_map() {
        let mut chance = thalweg_base::XorShift64Star::new(5);
        for keys_max in [1 << 20, 700, 1, 0] {
            let mut table = Table::<u128>::new(Seed::random(), keys_max);
            let mut narrow = Table::<u64>::new(Seed::random(), keys_max);
            let mut plain: HashMap<u64, Sums> = HashMap::new();
            let mut rest = Sums::default();
            for _ in 0..300 {
                let keys: Vec<u64> = (0..1 + chance.below(200)).map(|_| chance.below(5000).into()).collect();
                let packets: Vec<u64> = keys.iter().map(|_| chance.next_u64() >> 30).collect();
                let bytes: Vec<u64> = keys.iter().map(|_| chance.next_u64() >> 30).collect();
                let wide: Vec<u128> = keys.iter().map(|key| u128::from(*key) << 70).collect();
                table.add_rows(&wide, &packets, &bytes);
                narrow.add_rows(&keys, &packets, &bytes);
                for ((key, packets), bytes) in keys.iter().zip(&packets).zip(&bytes) {
                    let sums = Sums { packets: *packets, bytes: *bytes, flows: 1 };
                    match plain.len() < keys_max || plain.contains_key(key) {
                        true => plain.entry(*key).or_default().add(sums),
                        false => rest.add(sums),
                    }
                }
            }
            assert_eq!(narrow.entries().len(), plain.len());
            assert_eq!((narrow.rest, table.rest), (rest, rest));
            assert!(narrow.entries().iter().all(|entry| plain[&entry.key] == entry.sums));
            assert!(table.entries().iter().all(|entry| plain[&((entry.key >> 70) as u64)] == entry.sums));
        }
    }
}
