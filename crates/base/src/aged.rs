//! A bounded map that evicts the entry that was renewed longest ago.
//!
//! It consists of two ordered maps: entries by key, and keys by the tick of their last renewal. Every
//! operation takes time logarithmic in the number of entries, even when the map is full.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

struct Entry<V> {
    tick: u64,
    bytes: usize,
    value: V,
}

/// A bounded map; the caller says how many bytes each entry costs.
pub struct Aged<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    order: BTreeMap<u64, K>,
    ticks: u64,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

impl<K: Ord + Clone, V> Aged<K, V> {
    /// Makes an empty map with limits on the number of entries and on their total cost.
    pub fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), ticks: 0, bytes: 0, entries_max, bytes_max }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The total cost of the entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks up an entry without renewing it.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Looks up an entry and makes it the youngest.
    pub fn renew(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.tick);
        entry.tick = self.ticks;
        self.order.insert(self.ticks, key.clone());
        self.ticks += 1;
        Some(&mut entry.value)
    }

    /// Inserts an entry and replaces one with the same key. Returns how many other entries it evicted. An
    /// entry that alone exceeds the byte limit is not inserted and counts as evicted.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) -> u64 {
        self.remove(&key);
        if bytes > self.bytes_max || self.entries_max == 0 {
            return 1;
        }
        let mut gone = 0;
        while self.entries.len() >= self.entries_max || self.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.bytes -= self.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
            gone += 1;
        }
        self.bytes += bytes;
        self.order.insert(self.ticks, key.clone());
        self.entries.insert(key, Entry { tick: self.ticks, bytes, value });
        self.ticks += 1;
        gone
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.tick);
        self.bytes -= entry.bytes;
        Some(entry.value)
    }

    /// The keys in a range, in order.
    pub fn keys_in(&self, range: RangeInclusive<K>) -> Vec<K> {
        self.entries.range(range).map(|(key, _)| key.clone()).collect()
    }

    /// All entries, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list in the order of renewal.
        #[test]
        fn the_oldest_goes_first(
            steps in prop::collection::vec((0u8..3, 0u8..12, 1usize..40), 0..200),
            entries_max in 0usize..8,
            bytes_max in 0usize..120,
        ) {
            let mut map = Aged::new(entries_max, bytes_max);
            let mut reference: Vec<(u8, usize)> = Vec::new();
            for (what, key, bytes) in steps {
                match what {
                    0 => {
                        let gone = map.insert(key, bytes, bytes);
                        reference.retain(|(known, _)| *known != key);
                        let before = reference.len();
                        if bytes > bytes_max || entries_max == 0 {
                            prop_assert_eq!(gone, 1);
                            continue;
                        }
                        while reference.len() >= entries_max
                            || reference.iter().map(|(_, bytes)| bytes).sum::<usize>() + bytes > bytes_max
                        {
                            reference.remove(0);
                        }
                        prop_assert_eq!(gone, (before - reference.len()) as u64);
                        reference.push((key, bytes));
                    }
                    1 => {
                        let found = map.renew(&key).copied();
                        let place = reference.iter().position(|(known, _)| *known == key);
                        prop_assert_eq!(found, place.map(|place| reference[place].1));
                        if let Some(place) = place {
                            let entry = reference.remove(place);
                            reference.push(entry);
                        }
                    }
                    _ => {
                        prop_assert_eq!(map.remove(&key).is_some(), reference.iter().any(|(known, _)| *known == key));
                        reference.retain(|(known, _)| *known != key);
                    }
                }
                prop_assert_eq!(map.len(), reference.len());
                prop_assert_eq!(map.bytes(), reference.iter().map(|(_, bytes)| bytes).sum::<usize>());
            }
            let mut keys: Vec<u8> = reference.iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            prop_assert_eq!(map.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
        }
    }
}
