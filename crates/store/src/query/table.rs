//! Sums by packed key: a hash table.
//!
//! ```text
//! slots    tag 32 | place + 1, 32     open addressing, at most half full
//! entries  key 8 or 16 | sums 24      contiguous, in order of the keys' first appearance
//! ```
//!
//! Every row needs two memory accesses that miss the nearest cache. The table overlaps them: for a run of rows it reads
//! first all slots, then all entries, and only then adds, so that a core has many accesses in flight. Rows whose key is
//! not at its first slot (mostly new keys) take the slow path at the end. Tables stay small: see [`super::parts`].
//!
//! Hashes have a random seed, so that senders of packets cannot know which keys collide.

use std::hash::BuildHasher;

use super::sums::Sums;

/// Rows that are looked up together.
pub(super) const RUN: usize = 64;
const SLOTS_MIN: usize = 1 << 10;
/// The growth factor. Doubling would move keys once more.
const GROWTH: usize = 4;

/// A key with several packed values; the last is lowest.
pub(super) trait Packed: Copy + Eq + Default + Send + Sync {
    /// Appends a value to the key.
    fn with(self, value: u64, bits: u32) -> Self;
    /// The halves of the key.
    fn words(self) -> (u64, u64);
}

impl Packed for u64 {
    #[inline(always)]
    fn with(self, value: u64, bits: u32) -> Self {
        self << bits | value
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
}

impl<K: Packed> Table<K> {
    pub(super) fn new(seed: Seed) -> Self {
        Self { seed, slots: Vec::new(), entries: Vec::new() }
    }

    pub(super) fn entries(&self) -> &[Entry<K>] {
        &self.entries
    }

    /// Removes all keys, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
        self.entries.clear();
    }

    /// Adds one record to each of these keys. All three lists have the same length.
    pub(super) fn add_rows(&mut self, keys: &[K], packets: &[u64], bytes: &[u64]) {
        let amounts = packets.chunks(RUN).zip(bytes.chunks(RUN));
        for (keys, (packets, bytes)) in keys.chunks(RUN).zip(amounts) {
            let amounts = packets.iter().zip(bytes);
            let sums = amounts.map(|(packets, bytes)| Sums { packets: *packets, bytes: *bytes, flows: 1 });
            self.add_run(keys.iter().copied().zip(sums));
        }
    }

    /// Adds the sums of another table.
    pub(super) fn add_entries(&mut self, entries: &[Entry<K>]) {
        for entries in entries.chunks(RUN) {
            self.add_run(entries.iter().map(|entry| (entry.key, entry.sums)));
        }
    }

    /// Adds to at most [`RUN`] keys.
    #[inline(always)]
    fn add_run(&mut self, run: impl Iterator<Item = (K, Sums)> + Clone) {
        self.make_room();
        let mask = self.slots.len() - 1;
        let mut hashes = [0u64; RUN];
        let mut places = [0u32; RUN];
        for (((key, _), hash), place) in run.clone().zip(&mut hashes).zip(&mut places) {
            *hash = self.seed.hash(key);
            let slot = self.slots[*hash as usize & mask];
            // Another key's slot counts as empty: its tag differs except in one of four billion cases.
            *place = if (slot ^ *hash) >> 32 == 0 { slot as u32 } else { 0 };
        }
        for ((key, _), place) in run.clone().zip(&mut places) {
            let there = self.entries.get((*place as usize).wrapping_sub(1));
            *place = if there.is_some_and(|entry| entry.key == key) { *place } else { 0 };
        }
        for (((key, sums), hash), place) in run.zip(hashes).zip(places) {
            match self.entries.get_mut((place as usize).wrapping_sub(1)) {
                Some(entry) => entry.sums.add(sums),
                None => self.add_hashed(key, hash, sums),
            }
        }
    }

    pub(super) fn add(&mut self, key: K, sums: Sums) {
        self.make_room();
        self.add_hashed(key, self.seed.hash(key), sums);
    }

    /// Adds to a key that the table has, and returns whether it has it.
    pub(super) fn add_known(&mut self, key: K, sums: Sums) -> bool {
        self.make_room();
        let known = self.find(key, self.seed.hash(key)).ok();
        let entry = known.and_then(|place| self.entries.get_mut(place));
        entry.map(|entry| entry.sums.add(sums)).is_some()
    }

    fn add_hashed(&mut self, key: K, hash: u64, sums: Sums) {
        match self.find(key, hash) {
            Ok(place) => self.entries[place].sums.add(sums),
            Err(slot) => {
                self.entries.push(Entry { key, sums });
                self.slots[slot] = hash >> 32 << 32 | self.entries.len() as u64;
            }
        }
    }

    /// The place of a key, or the slot for a new one.
    #[inline(always)]
    fn find(&self, key: K, hash: u64) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            let place = (slot as u32 - 1) as usize;
            if (slot ^ hash) >> 32 == 0 && self.entries.get(place).is_some_and(|entry| entry.key == key) {
                return Ok(place);
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes room for a run of new keys.
    fn make_room(&mut self) {
        let wanted = (self.entries.len() + RUN) * 2;
        if wanted <= self.slots.len() {
            return;
        }
        let count = wanted.next_power_of_two().max(SLOTS_MIN).max(self.slots.len() * GROWTH);
        self.slots.clear();
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
        let seed = Seed::random();
        let (mut narrow, mut wide, mut joined) =
            (Table::<u64>::new(seed), Table::new(seed), Table::new(seed));
        for _ in 0..3 {
            let mut plain: HashMap<u64, Sums> = HashMap::new();
            for _ in 0..300 {
                let keys: Vec<u64> = (0..1 + chance.below(200)).map(|_| chance.below(5000).into()).collect();
                let packets: Vec<u64> = keys.iter().map(|_| chance.next_u64() >> 30).collect();
                let bytes: Vec<u64> = keys.iter().map(|_| chance.next_u64() >> 30).collect();
                let wide_keys: Vec<u128> = keys.iter().map(|key| u128::from(*key) << 70).collect();
                wide.add_rows(&wide_keys, &packets, &bytes);
                narrow.add_rows(&keys, &packets, &bytes);
                for ((key, packets), bytes) in keys.iter().zip(&packets).zip(&bytes) {
                    let sums = Sums { packets: *packets, bytes: *bytes, flows: 1 };
                    plain.entry(*key).or_default().add(sums);
                }
            }
            assert_eq!((narrow.entries().len(), wide.entries().len()), (plain.len(), plain.len()));
            assert!(narrow.entries().iter().all(|entry| plain[&entry.key] == entry.sums));
            assert!(wide.entries().iter().all(|entry| plain[&((entry.key >> 70) as u64)] == entry.sums));
            joined.clear();
            narrow.entries().chunks(777).for_each(|entries| joined.add_entries(entries));
            let one = Sums { packets: 1, bytes: 2, flows: 3 };
            assert!(!joined.add_known(9999, one) && joined.add_known(narrow.entries()[5].key, one));
            joined.add(narrow.entries()[5].key, one);
            assert_eq!(joined.entries().len(), plain.len());
            for (entry, both) in narrow.entries().iter().zip(joined.entries()).skip(6) {
                assert_eq!((entry.key, entry.sums), (both.key, both.sums));
            }
            assert_eq!(joined.entries()[5].sums.flows, narrow.entries()[5].sums.flows + 6);
            narrow.clear();
            wide.clear();
        }
    }
}
