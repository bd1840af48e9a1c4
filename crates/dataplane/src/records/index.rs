//! Finds the record of a key: open addressing, 8 bytes an entry, two thirds full at most. The index knows hashes;
//! whether a record has the key, its owner says.

use super::{number, place, touched};
use thalweg_base::prefetch_at;

/// Upper half of each key's hash, then the record plus one; 0 is empty.
#[derive(Clone, Debug)]
pub(crate) struct HashIndex(Box<[u64]>);

impl HashIndex {
    /// An empty index for at most this many entries.
    pub(crate) fn new(entries: usize) -> Self {
        Self(touched(entries + entries / 2 + 1))
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        // The upper half of the hash as a fraction of the table, so that any length will do; entries store that
        // half.
        (((hash >> 32) * self.0.len() as u64) >> 32) as usize
    }

    /// The slot after this one, with wraparound.
    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.0.len() { 0 } else { at + 1 }
    }

    /// The number of slots from `from` to `to`, with wraparound.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.0.len() - from }
    }

    /// Prefetches the line where a search for this hash begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch_at(&self.0, self.home(hash));
    }

    /// The first record with the upper half of this hash: nearly always the one that is sought.
    #[inline(always)]
    pub(crate) fn likely(&self, hash: u64) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let entry = self.0[at];
            if entry == 0 {
                return None;
            }
            if entry >> 32 == hash >> 32 {
                return Some(record_of(entry) - 1);
            }
            at = self.after(at);
        }
    }

    /// The record with this hash for which `is_it` holds.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        // At most two thirds of the index are in use, so an empty slot ends every search.
        while self.0[at] != 0 {
            if self.0[at] >> 32 == hash >> 32 {
                let found = place(record_of(self.0[at]) - 1);
                if is_it(found) {
                    return Some(found);
                }
            }
            at = self.after(at);
        }
        None
    }

    /// Adds a record. The caller has counted: there is room.
    pub(crate) fn insert(&mut self, hash: u64, record: u32) {
        let mut at = self.home(hash);
        while self.0[at] != 0 {
            at = self.after(at);
        }
        self.0[at] = (hash >> 32) << 32 | u64::from(record + 1);
    }

    /// Removes a record and closes the gap, so that no search ends too early: entries behind the gap move into it
    /// unless their home lies after it.
    pub(crate) fn remove(&mut self, hash: u64, record: usize) {
        let mut gap = self.home(hash);
        while record_of(self.0[gap]) != number(record) + 1 {
            if self.0[gap] == 0 {
                debug_assert!(false, "record {record} is not in the index");
                return;
            }
            gap = self.after(gap);
        }
        let mut next = self.after(gap);
        while self.0[next] != 0 {
            let home = self.home(self.0[next]);
            if self.distance(home, next) >= self.distance(gap, next) {
                self.0[gap] = self.0[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.0[gap] = 0;
    }
}

/// The record of an entry plus one.
#[inline(always)]
fn record_of(entry: u64) -> u32 {
    entry as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Against a map. Few hashes, so that chains form, wrap around and close gaps.
        #[test]
        fn finds_what_was_inserted_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), 0u32..24, 0u64..6), 0..200),
        ) {
            let mut index = HashIndex::new(24);
            let mut there: HashMap<u32, u64> = HashMap::new();
            for (adds, record, hash) in steps {
                let hash = hash << 62 | hash << 33;
                match (adds, there.contains_key(&record)) {
                    (true, false) => {
                        index.insert(hash, record);
                        there.insert(record, hash);
                    }
                    (false, true) => {
                        let hash = there.remove(&record).unwrap_or_default();
                        index.remove(hash, record as usize);
                    }
                    _ => {}
                }
                for record in 0..24u32 {
                    let hash = there.get(&record).copied();
                    let found = index.find(hash.unwrap_or(hash_of_none()), |at| at == record as usize);
                    prop_assert_eq!(found, hash.map(|_| record as usize));
                    prop_assert!(hash.is_none_or(|hash| index.likely(hash).is_some()));
                }
            }
        }
    }

    fn hash_of_none() -> u64 {
        0x1234_5678_0000_0000
    }
}
