//! The prefixes of one family: entries that never move, and an index that finds them.
//!
//! ```text
//! index     [tag 8 | entry 24] ...          4 B a slot, 54 % to 81 % full, linear probing
//! entries   address | head | version | count | length | ranked     16 B (IPv4), 32 B (IPv6), in pages of 256
//! ```
//!
//! An entry keeps its number as long as the prefix exists. So a cursor over entries stays valid while the table
//! changes and grows: it meets every prefix that is present throughout exactly once; one that comes or goes
//! meanwhile may or may not be met. Growing touches only the index, of which there are never two: it is dropped and
//! rebuilt from the entries.
//!
//! The first page grows as it fills, so that a table of few prefixes is small; the others are allocated whole. A
//! page without entries returns to the allocator until its numbers are needed again, and the index shrinks when it
//! is nearly empty. So memory follows the content, except for pages that few entries share.
//!
//! The indexes of shards start with different sizes and all grow by half, so that they do not grow at the same
//! time. The index has its own hash with a secret seed, so others cannot choose prefixes that collide. A prefix
//! costs 16 + 4 / 0.68 bytes on average.

use thalweg_base::{Address, Prefix, prefetch_at};

/// The most prefixes of a table: an entry's number has 24 bits, so 16 shards hold 268 million. Further prefixes are
/// refused and counted.
pub(super) const PREFIXES_MAX: u32 = (1 << 24) - 2;

pub(super) const NONE: u32 = u32::MAX;

const PAGE_SHIFT: u32 = 8;
const PAGE: usize = 1 << PAGE_SHIFT;
/// The initial size of the first page, in entries.
const PAGE_MIN: usize = 4;
/// The length of a free entry, whose `head` is the next free one.
const FREE: u8 = u8::MAX;
const EMPTY_SLOT: u32 = u32::MAX;
const DELETED_SLOT: u32 = u32::MAX - 1;
const NUMBER: u32 = (1 << 24) - 1;
/// Slots of the smallest index.
const INDEX_MIN: usize = 64;

/// A prefix, and where its paths are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<A> {
    pub address: A,
    /// The block of its paths, if `count` is not 0.
    pub head: u32,
    /// The version of the last change.
    pub version: u32,
    /// The number of paths.
    pub count: u16,
    pub length: u8,
    /// The number of leading paths that are in order of rank.
    pub ranked: u8,
}

impl<A: Address> Entry<A> {
    #[inline]
    pub(super) fn is(&self, prefix: Prefix<A>) -> bool {
        self.address == prefix.address() && self.length == prefix.length()
    }

    /// `None` if the entry is free.
    pub(super) fn prefix(&self) -> Option<Prefix<A>> {
        Prefix::new(self.address, self.length).ok()
    }
}

/// Entries with consecutive numbers.
struct Page<A> {
    /// Empty while all are free.
    entries: Box<[Entry<A>]>,
    /// The first free entry among those that were used before.
    free: u32,
    live: u32,
}

pub(super) struct Table<A> {
    pages: Vec<Page<A>>,
    /// Pages without memory, or with free entries among those that were used.
    open: Vec<u32>,
    /// The entry that reads of pages without memory return.
    nothing: Entry<A>,
    /// The number of entries ever used, including free ones.
    used: u32,
    entries: usize,
    slots: Vec<u32>,
    /// The number of slots that are not empty, including deleted ones.
    filled: usize,
    seed: [u64; 2],
    shard: usize,
    /// The number of prefixes by length, for the longest match; empty before the first prefix.
    by_length: Box<[u32]>,
}

impl<A: Address> Table<A> {
    pub(super) fn new(seed: u64, shard: usize) -> Self {
        let seed = [thalweg_base::mix64(seed ^ 0x9e37_79b9_7f4a_7c15), thalweg_base::mix64(!seed) | 1];
        Self {
            pages: Vec::new(),
            open: Vec::new(),
            nothing: Entry {
                address: A::from_u128(0),
                head: NONE,
                version: 0,
                count: 0,
                length: FREE,
                ranked: 0,
            },
            used: 0,
            entries: 0,
            slots: Vec::new(),
            filled: 0,
            seed,
            shard,
            by_length: Box::default(),
        }
    }

    /// The number of entries, including those without paths.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// One more than the highest entry number.
    pub(super) fn end(&self) -> u32 {
        self.used
    }

    pub(super) fn bytes(&self) -> usize {
        const ALLOCATION: usize = 16;
        let pages = self.pages.iter().filter(|page| !page.entries.is_empty());
        pages.map(|page| size_of_val(&*page.entries) + ALLOCATION).sum::<usize>()
            + self.pages.capacity() * size_of::<Page<A>>()
            + self.open.capacity() * size_of::<u32>()
            + self.slots.capacity() * size_of::<u32>()
            + size_of_val(&*self.by_length)
    }

    #[inline]
    pub(super) fn entry(&self, number: u32) -> &Entry<A> {
        let page = &self.pages[(number >> PAGE_SHIFT) as usize];
        page.entries.get(number as usize % PAGE).unwrap_or(&self.nothing)
    }

    /// An entry that is not free.
    #[inline]
    pub(super) fn entry_mut(&mut self, number: u32) -> &mut Entry<A> {
        &mut self.pages[(number >> PAGE_SHIFT) as usize].entries[number as usize % PAGE]
    }

    /// The position where the index search starts (lower half), and the tag (upper byte).
    #[inline]
    pub(super) fn hash(&self, prefix: Prefix<A>) -> u64 {
        let address = prefix.address().to_u128();
        let (high, low) = ((address >> 64) as u64, address as u64);
        if A::BITS == 32 {
            fold((low | u64::from(prefix.length()) << 32) ^ self.seed[0], self.seed[1])
        } else {
            let length = u64::from(prefix.length()) << 56;
            fold(fold(high ^ self.seed[0], self.seed[1]) ^ low, (self.seed[0] ^ length) | 1)
        }
    }

    #[inline]
    fn first_slot(&self, hash: u64) -> usize {
        (((hash & 0xffff_ffff) * self.slots.len() as u64) >> 32) as usize
    }

    /// Prefetches the slot where the search for the hash starts.
    #[inline]
    pub(super) fn prefetch_slot(&self, hash: u64) {
        prefetch_at(&self.slots, self.first_slot(hash));
    }

    /// The entry of the first slot with the hash's tag, most likely the right one.
    #[inline]
    pub(super) fn candidate(&self, hash: u64) -> u32 {
        self.probe(hash, |_| true)
    }

    /// The entry of the prefix, or [`NONE`].
    #[inline]
    pub(super) fn find(&self, hash: u64, prefix: Prefix<A>) -> u32 {
        self.probe(hash, |number| self.entry(number).is(prefix))
    }

    #[inline]
    fn probe(&self, hash: u64, mut matches: impl FnMut(u32) -> bool) -> u32 {
        let tag = (hash >> 56) as u32;
        let first = self.first_slot(hash);
        let (before, after) = self.slots.split_at(first);
        for &slot in after.iter().chain(before) {
            if slot == EMPTY_SLOT {
                break;
            }
            if slot >> 24 == tag && slot != DELETED_SLOT && matches(slot & NUMBER) {
                return slot & NUMBER;
            }
        }
        NONE
    }

    /// Adds a new prefix without paths; `None` if the table is full.
    pub(super) fn insert(&mut self, hash: u64, prefix: Prefix<A>, version: u32) -> Option<u32> {
        let entry = Entry {
            address: prefix.address(),
            head: NONE,
            version,
            count: 0,
            length: prefix.length(),
            ranked: 0,
        };
        let number = match self.open.last().copied() {
            None if self.used >= PREFIXES_MAX => return None,
            None => self.push_entry(entry),
            Some(page) => self.reuse_entry(page, entry),
        };
        self.entries += 1;
        if self.by_length.is_empty() {
            self.by_length = vec![0; usize::from(A::BITS) + 1].into();
        }
        self.by_length[usize::from(prefix.length())] += 1;
        if (self.filled + 1) * 16 > self.slots.len() * 13 {
            self.rebuild();
        } else {
            self.link(hash, number);
        }
        Some(number)
    }

    fn push_entry(&mut self, entry: Entry<A>) -> u32 {
        let number = self.used;
        let (index, at) = ((number >> PAGE_SHIFT) as usize, number as usize % PAGE);
        if at == 0 {
            let entries = vec![self.nothing; if index == 0 { PAGE_MIN } else { PAGE }].into();
            self.pages.push(Page { entries, free: NONE, live: 0 });
        }
        let page = &mut self.pages[index];
        if at == page.entries.len() {
            let mut entries = std::mem::take(&mut page.entries).into_vec();
            entries.reserve_exact(at);
            entries.resize(2 * at, self.nothing);
            page.entries = entries.into();
        }
        page.live += 1;
        self.used += 1;
        *self.entry_mut(number) = entry;
        number
    }

    /// Puts an entry in the place of a free one.
    fn reuse_entry(&mut self, index: u32, entry: Entry<A>) -> u32 {
        let first = index << PAGE_SHIFT;
        let page = &mut self.pages[index as usize];
        if page.entries.is_empty() {
            page.entries = vec![self.nothing; PAGE].into();
            for (each, next) in page.entries.iter_mut().zip(first + 1..) {
                each.head = next;
            }
            page.entries[PAGE - 1].head = NONE;
            page.free = first;
        }
        let number = page.free;
        let place = &mut page.entries[number as usize % PAGE];
        page.free = std::mem::replace(place, entry).head;
        page.live += 1;
        if page.free == NONE {
            self.open.pop();
        }
        number
    }

    /// Removes an entry without paths.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(prefix) = self.entry(number).prefix() else { return };
        let hash = self.hash(prefix);
        self.unlink(hash, number);
        self.by_length[usize::from(prefix.length())] -= 1;
        self.entries -= 1;
        if self.entries == 0 {
            (self.pages, self.open, self.slots) = (Vec::new(), Vec::new(), Vec::new());
            (self.used, self.filled, self.by_length) = (0, 0, Box::default());
            return;
        }
        self.free_entry(number);
        if self.slots.len() > 4 * self.slots_min() && self.entries * 8 < self.slots.len() {
            self.build(self.entries * 2);
        }
    }

    /// Frees an entry, and with the last entry of a page its memory. The page whose end was never used keeps it.
    fn free_entry(&mut self, number: u32) {
        let index = number >> PAGE_SHIFT;
        let is_filled = (index + 1) << PAGE_SHIFT <= self.used;
        let page = &mut self.pages[index as usize];
        if page.free == NONE {
            self.open.push(index);
        }
        let free = std::mem::replace(&mut page.free, number);
        page.entries[number as usize % PAGE] = Entry { head: free, ..self.nothing };
        page.live -= 1;
        if page.live == 0 && is_filled {
            page.entries = Box::default();
        }
    }

    fn link(&mut self, hash: u64, number: u32) {
        let mut at = self.first_slot(hash);
        while self.slots[at] < DELETED_SLOT {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        self.filled += usize::from(self.slots[at] == EMPTY_SLOT);
        self.slots[at] = slot_of(hash, number);
    }

    fn unlink(&mut self, hash: u64, number: u32) {
        let wanted = slot_of(hash, number);
        let mut at = self.first_slot(hash);
        for _ in 0..self.slots.len() {
            let next = if at + 1 == self.slots.len() { 0 } else { at + 1 };
            if self.slots[at] == wanted {
                let last = self.slots[next] == EMPTY_SLOT;
                self.slots[at] = if last { EMPTY_SLOT } else { DELETED_SLOT };
                self.filled -= usize::from(last);
                return;
            }
            at = next;
        }
        debug_assert!(false, "entry {number} is not in the index");
    }

    fn slots_min(&self) -> usize {
        INDEX_MIN + INDEX_MIN * self.shard / 32
    }

    /// Rebuilds the index: half as large again as the entries need, or the old size if deleted slots filled it.
    fn rebuild(&mut self) {
        let mut size = self.slots.len().max(self.slots_min());
        if self.entries * 8 > size * 5 {
            size += size / 2;
        }
        self.build(size);
    }

    fn build(&mut self, size: usize) {
        let size = size.max(self.slots_min());
        // Frees the old index before allocating the new one.
        self.slots = Vec::new();
        self.slots = vec![EMPTY_SLOT; size];
        self.filled = 0;
        for number in 0..self.used {
            if let Some(prefix) = self.entry(number).prefix() {
                self.link(self.hash(prefix), number);
            }
        }
    }

    /// The longest prefix that contains `address` and that `accept` accepts.
    pub(super) fn longest_match(&self, address: A, mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        (0..=A::BITS)
            .rev()
            .filter(|length| self.by_length.get(usize::from(*length)).is_some_and(|count| *count > 0))
            .find_map(|length| {
                let prefix = Prefix::new(address, length).ok()?;
                let number = self.find(self.hash(prefix), prefix);
                (number != NONE && accept(number)).then_some(number)
            })
    }
}

/// The index slot for an entry.
#[inline]
fn slot_of(hash: u64, number: u32) -> u32 {
    ((hash >> 56) as u32) << 24 | number
}

/// Folds the halves of a 128-bit product: each bit of the result depends on all bits of both factors.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn entries_are_as_small_as_they_say() {
        assert_eq!((size_of::<Entry<u32>>(), size_of::<Entry<u128>>()), (16, 32));
    }

    proptest! {
        #[test]
        fn finds_what_is_there(steps in proptest::collection::vec((any::<bool>(), 0u32..300), 0..2000), shard in 0usize..16) {
            let mut table = Table::<u32>::new(7, shard);
            let mut model: HashMap<u32, u32> = HashMap::new();
            for (add, key) in steps {
                let prefix = Prefix::new(key << 8, 24).unwrap();
                let hash = table.hash(prefix);
                let found = table.find(hash, prefix);
                prop_assert_eq!(model.get(&key).copied().unwrap_or(NONE), found);
                match (add, found) {
                    (true, NONE) => { model.insert(key, table.insert(hash, prefix, 0).unwrap()); }
                    (false, number) if number != NONE => { table.remove(number); model.remove(&key); }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for key in 0..300u32 {
                let prefix = Prefix::new(key << 8, 24).unwrap();
                prop_assert_eq!(model.get(&key).copied().unwrap_or(NONE), table.find(table.hash(prefix), prefix));
                let longest = table.longest_match((key << 8) + 77, |_| true);
                prop_assert_eq!(model.get(&key).copied(), longest);
            }
        }
    }

    /// What prefixes took is given back when they go, also while others stay.
    #[test]
    fn pages_and_index_are_given_back() {
        let mut table = Table::<u32>::new(7, 3);
        let prefix = |key: u32| Prefix::new(key << 8, 24).unwrap();
        let add =
            |table: &mut Table<u32>, key| table.insert(table.hash(prefix(key)), prefix(key), 0).unwrap();
        let empty = table.bytes();
        let numbers: Vec<u32> = (0..100_000).map(|key| add(&mut table, key)).collect();
        let full = table.bytes();
        assert!(full > 2_000_000, "{full}");
        // One in a thousand stays.
        for key in (0..100_000).filter(|key| key % 1000 != 0) {
            table.remove(numbers[key as usize]);
        }
        assert!(table.bytes() < full / 3, "{} of {full}", table.bytes());
        for key in 0..100_000u32 {
            let wanted = if key % 1000 == 0 { numbers[key as usize] } else { NONE };
            assert_eq!(table.find(table.hash(prefix(key)), prefix(key)), wanted);
            assert_eq!(table.entry(numbers[key as usize]).prefix().is_some(), key % 1000 == 0);
        }
        // Numbers are used again before there are new ones.
        let end = table.end();
        for key in (0..100_000).filter(|key| key % 1000 != 0) {
            let number = add(&mut table, key);
            assert!(number < end && table.entry(number).is(prefix(key)));
        }
        assert!(table.bytes() <= full + full / 4, "{} after {full}", table.bytes());
        (0..100_000).for_each(|key| table.remove(table.find(table.hash(prefix(key)), prefix(key))));
        assert_eq!((table.bytes(), table.len(), table.end()), (empty, 0, 0));
    }

    /// The longest run of slots that are not empty says how long a search can take.
    fn longest_run<A: Address>(prefixes: impl Iterator<Item = Prefix<A>>) -> usize {
        let mut table = Table::<A>::new(99, 3);
        for prefix in prefixes {
            table.insert(table.hash(prefix), prefix, 0);
        }
        table.slots.split(|slot| *slot == EMPTY_SLOT).map(<[u32]>::len).max().unwrap_or(0)
    }

    #[test]
    fn regular_prefixes_do_not_crowd() {
        let v4 = |shift: u32, length| (0..20_000u32).map(move |n| Prefix::new(n << shift, length).unwrap());
        assert!(longest_run(v4(8, 24)) < 150);
        assert!(longest_run(v4(0, 32)) < 150);
        assert!(longest_run(v4(16, 16).take(60_000)) < 150);
        assert!(longest_run((0..20_000u128).map(|n| Prefix::new(n << 80, 48).unwrap())) < 150);
        assert!(longest_run((0..20_000u128).map(|n| Prefix::new(n, 128).unwrap())) < 150);
    }
}
