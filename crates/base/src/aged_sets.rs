//! A table of fixed size for short-lived entries: sets of four, chosen by a hash. A full set evicts its
//! oldest entry.

const WAYS: usize = 4;
/// The insertion time of an empty place.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    put_ns: u64,
}

/// The table; the first insertion allocates its memory. Only differences of times matter, and a time that
/// goes back ages nothing.
#[derive(Clone, Debug)]
pub struct AgedSets<K, V> {
    sets: Vec<[Entry<K, V>; WAYS]>,
    sets_max: usize,
    lifetime_ns: u64,
}

impl<K: Copy + Default + Eq, V: Copy + Default> AgedSets<K, V> {
    /// Makes a table with this many sets, whose entries live this long.
    pub fn new(sets_max: usize, lifetime_ns: u64) -> Self {
        Self { sets: Vec::new(), sets_max, lifetime_ns }
    }

    /// Inserts an entry and replaces one with the same key. Returns whether it evicted another entry that was
    /// still alive.
    pub fn insert(&mut self, hash: u64, key: K, value: V, now_ns: u64) -> bool {
        if self.sets.is_empty() {
            let none = Entry { key: K::default(), value: V::default(), put_ns: NEVER };
            self.sets = vec![[none; WAYS]; self.sets_max];
        }
        let (at, lifetime_ns) = (self.place(hash), self.lifetime_ns);
        let Some(set) = self.sets.get_mut(at) else { return true };
        let same = set.iter().position(|entry| entry.put_ns != NEVER && entry.key == key);
        let free = || set.iter().position(|entry| !lives(entry, lifetime_ns, now_ns));
        let known = same.or_else(free);
        let way = known.or_else(|| (0..WAYS).min_by_key(|way| set[*way].put_ns)).unwrap_or(0);
        set[way] = Entry { key, value, put_ns: now_ns };
        known.is_none()
    }

    /// The value of a key that was inserted within the last lifetime.
    pub fn get(&self, hash: u64, key: &K, now_ns: u64) -> Option<&V> {
        let set = self.sets.get(self.place(hash))?;
        let found = set.iter().find(|entry| lives(entry, self.lifetime_ns, now_ns) && entry.key == *key)?;
        Some(&found.value)
    }

    /// The memory that the table occupies.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    fn place(&self, hash: u64) -> usize {
        hash as usize % self.sets_max.max(1)
    }
}

fn lives<K, V>(entry: &Entry<K, V>, lifetime_ns: u64, now_ns: u64) -> bool {
    entry.put_ns != NEVER && now_ns.saturating_sub(entry.put_ns) <= lifetime_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list in the order in which entries were put in.
        #[test]
        fn remembers_as_a_list_does(
            steps in prop::collection::vec((any::<bool>(), 0u8..24, any::<u16>(), 0u64..20), 0..300),
        ) {
            let (sets, lifetime_ns) = (3, 60);
            let mut table = AgedSets::new(sets, lifetime_ns);
            let mut list: Vec<(u8, u16, u64)> = Vec::new();
            let mut now_ns = 1000;
            for (is_put, key, value, wait_ns) in steps {
                now_ns += wait_ns;
                list.retain(|(_, _, put_ns)| now_ns - put_ns <= lifetime_ns);
                if is_put {
                    list.retain(|(known, ..)| *known != key);
                    let others = list.iter().filter(|(other, ..)| other % 3 == key % 3);
                    let is_full = others.count() == WAYS;
                    if is_full {
                        // The longest ago; of those of one moment any may go, so each moment is its own below.
                        let oldest = list.iter().position(|(other, ..)| other % 3 == key % 3);
                        oldest.map(|at| list.remove(at));
                    }
                    prop_assert_eq!(table.insert(u64::from(key), key, value, now_ns), is_full);
                    list.push((key, value, now_ns));
                    now_ns += 1;
                } else {
                    let known = list.iter().find(|(known, ..)| *known == key).map(|(_, value, _)| value);
                    prop_assert_eq!(table.get(u64::from(key), &key, now_ns), known);
                }
                prop_assert!(table.memory_bytes() <= sets * WAYS * size_of::<Entry<u8, u16>>());
            }
        }
    }
}
