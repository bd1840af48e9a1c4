//! Stores the paths of each prefix side by side, without holes.
//!
//! ```text
//! class 0   blocks of 1 path     page: 256 x PathMeta (12 B) | 256 x AttrRef (8 B) | 256 owners (4 B)
//! class 1   blocks of 2          page: 128 blocks
//! class 2   blocks of 3          page:  64 blocks
//! class 3   4    class 4   6    class 5   8    class 6  12 ... class 31  65,536
//! ```
//!
//! The paths of a prefix are one *block*: finding a neighbor's path among ten reads two cache lines, where a list
//! would follow ten pointers. A prefix whose count outgrows its class moves to the next one. The last block of a
//! class fills the place of a released one, and its owner (the prefix's entry) learns its new place. So a class has
//! no holes, no free list and no fragmentation, and its last pages return to the allocator. Memory comes in pages
//! of about 6 KiB; only the first page of a class grows as it fills, so a table of few prefixes is small.
//!
//! A path costs 20 bytes, its share of the owner's four, and the slack of its class (none up to four paths, at most
//! a third above).

use crate::attrs::AttrRef;
use crate::peer::PeerId;

/// The most paths of a prefix. A path's number ([`PathMeta::local_id`]) has 16 bits, and so has a neighbor's.
/// Further paths are refused and counted.
pub(super) const PATHS_MAX: usize = u16::MAX as usize;

/// Slots of a page, as near as the class allows.
const PAGE_SLOTS: u32 = 256;

/// The initial size of a class's first page, in blocks.
const BLOCKS_MIN: usize = 4;

/// The neighbor is gone or is repeating its routes, and has not repeated this one yet.
pub(super) const STALE: u32 = 1 << 29;
/// The next hop is unreachable.
pub(super) const UNREACHABLE: u32 = 1 << 30;
/// Suppressed by flap damping.
pub(super) const DAMPED: u32 = 1 << 31;
/// Kept, but not ranked.
pub(super) const INELIGIBLE: u32 = UNREACHABLE | DAMPED;
/// Seconds since the beginning wrap after 17 years, so that the flags fit beside them.
const SECONDS: u32 = STALE - 1;

/// A path without its attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMeta {
    pub path_id: u32,
    /// The time of arrival, with [`STALE`], [`UNREACHABLE`], [`DAMPED`].
    seconds_and_flags: u32,
    pub peer: PeerId,
    /// The path's number within the prefix, from 1.
    pub local_id: u16,
}

impl PathMeta {
    const NONE: Self = Self { path_id: 0, seconds_and_flags: 0, peer: PeerId(0), local_id: 0 };

    pub(super) fn new(peer: PeerId, path_id: u32, local_id: u16, received_s: u32, flags: u32) -> Self {
        Self { path_id, seconds_and_flags: received_s & SECONDS | flags, peer, local_id }
    }

    pub(super) fn received_s(&self) -> u32 {
        self.seconds_and_flags & SECONDS
    }

    #[inline]
    pub(super) fn has_any(&self, flags: u32) -> bool {
        self.seconds_and_flags & flags != 0
    }

    pub(super) fn set(&mut self, flags: u32, on: bool) {
        self.seconds_and_flags = self.seconds_and_flags & !flags | if on { flags } else { 0 };
    }

    #[inline]
    pub(super) fn is_eligible(&self) -> bool {
        !self.has_any(INELIGIBLE)
    }

    #[inline]
    pub(super) fn is(&self, peer: PeerId, path_id: u32) -> bool {
        self.peer == peer && self.path_id == path_id
    }
}

/// The paths of one prefix: two columns of equal length.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub meta: &'a [PathMeta],
    pub attrs: &'a [Option<AttrRef>],
}

/// The mutable form of [`Block`].
pub(super) struct BlockMut<'a> {
    pub meta: &'a mut [PathMeta],
    pub attrs: &'a mut [Option<AttrRef>],
}

impl BlockMut<'_> {
    pub(super) fn swap(&mut self, a: usize, b: usize) {
        self.meta.swap(a, b);
        self.attrs.swap(a, b);
    }
}

/// A block that had to move: the entry `owner` must refer to `head` from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub owner: u32,
    pub head: u32,
}

#[derive(Default)]
struct Page {
    meta: Box<[PathMeta]>,
    attrs: Box<[Option<AttrRef>]>,
    owners: Box<[u32]>,
}

impl Page {
    /// Changes the number of blocks; those beyond it are dropped.
    fn resize(&mut self, blocks: usize, capacity: usize) {
        fn resized<T>(all: &mut Box<[T]>, length: usize, new: impl FnMut() -> T) {
            let mut grown = std::mem::take(all).into_vec();
            grown.reserve_exact(length.saturating_sub(grown.len()));
            grown.resize_with(length, new);
            *all = grown.into();
        }
        resized(&mut self.meta, blocks * capacity, || PathMeta::NONE);
        resized(&mut self.attrs, blocks * capacity, || None);
        resized(&mut self.owners, blocks, || 0);
    }
}

struct Class {
    capacity: usize,
    /// The number of blocks of a page, as a power of two.
    shift: u32,
    pages: Vec<Page>,
    blocks: u32,
}

impl Class {
    fn new(class: usize) -> Self {
        let capacity = capacity_of(class);
        let shift = (PAGE_SLOTS / (capacity as u32).min(PAGE_SLOTS)).ilog2();
        Self { capacity, shift, pages: Vec::new(), blocks: 0 }
    }

    #[inline]
    fn place(&self, head: u32) -> (usize, usize) {
        ((head >> self.shift) as usize, (head & ((1 << self.shift) - 1)) as usize)
    }

    fn allocate(&mut self, owner: u32) -> u32 {
        let head = self.blocks;
        let (page, block) = self.place(head);
        let whole = 1 << self.shift;
        if page == self.pages.len() {
            let mut new = Page::default();
            new.resize(if page == 0 { BLOCKS_MIN.min(whole) } else { whole }, self.capacity);
            self.pages.push(new);
        } else if block == self.pages[page].owners.len() {
            self.pages[page].resize(2 * block, self.capacity);
        }
        self.pages[page].owners[block] = owner;
        self.blocks += 1;
        head
    }

    /// Releases a block whose attributes have been taken out.
    fn release(&mut self, head: u32) -> Option<Moved> {
        let last = self.blocks - 1;
        let moved = (head != last).then(|| self.relocate(last, head));
        self.blocks = last;
        let needed = (last >> self.shift) as usize + usize::from(last & ((1 << self.shift) - 1) != 0);
        // One empty page stays, so that a count that hovers around a page boundary does not allocate each time.
        let keep = if last == 0 { 0 } else { needed + 1 };
        if self.pages.len() > keep {
            self.pages.truncate(keep);
            if self.pages.capacity() > 64 && self.pages.capacity() > 4 * keep {
                self.pages.shrink_to(2 * keep);
            }
        }
        if let [page] = &mut self.pages[..]
            && last as usize * 4 <= page.owners.len()
            && page.owners.len() > BLOCKS_MIN
        {
            page.resize(page.owners.len() / 2, self.capacity);
        }
        moved
    }

    fn relocate(&mut self, from: u32, to: u32) -> Moved {
        let capacity = self.capacity;
        let ((from_page, from_block), (to_page, to_block)) = (self.place(from), self.place(to));
        let owner = self.pages[from_page].owners[from_block];
        for slot in 0..capacity {
            let source = &mut self.pages[from_page];
            let meta = source.meta[from_block * capacity + slot];
            let attrs = source.attrs[from_block * capacity + slot].take();
            let target = &mut self.pages[to_page];
            target.meta[to_block * capacity + slot] = meta;
            target.attrs[to_block * capacity + slot] = attrs;
        }
        self.pages[to_page].owners[to_block] = owner;
        Moved { owner, head: to }
    }

    fn bytes(&self) -> usize {
        const PAGE_ALLOCATIONS: usize = 3 * 16;
        let slot = size_of::<PathMeta>() + size_of::<Option<AttrRef>>();
        let block = slot * self.capacity + size_of::<u32>();
        let pages = self.pages.iter().map(|page| page.owners.len() * block + PAGE_ALLOCATIONS);
        pages.sum::<usize>() + self.pages.capacity() * size_of::<Page>()
    }
}

#[inline]
fn class_of(count: usize) -> usize {
    if count <= 2 {
        return count.saturating_sub(1);
    }
    let exponent = (count - 1).ilog2() as usize;
    2 * exponent + usize::from(count > 3 << (exponent - 1))
}

fn capacity_of(class: usize) -> usize {
    match (class, class / 2) {
        (0 | 1, _) => class + 1,
        (_, exponent) if class.is_multiple_of(2) => 3 << (exponent - 1),
        (_, exponent) => 2 << exponent,
    }
}

/// The smallest number from 1 that no path of the prefix has.
pub(super) fn free_local_id(paths: &[PathMeta]) -> u16 {
    let highest = paths.iter().map(|path| path.local_id).max().unwrap_or(0);
    if usize::from(highest) == paths.len() {
        return highest.saturating_add(1);
    }
    let mut first = 1u16;
    loop {
        let mut taken = 0u64;
        for path in paths {
            let bit = path.local_id.wrapping_sub(first);
            taken |= if bit < 64 { 1 << bit } else { 0 };
        }
        if taken != u64::MAX {
            return first.saturating_add(taken.trailing_ones() as u16);
        }
        first = first.saturating_add(64);
    }
}

/// All paths of a family.
#[derive(Default)]
pub(super) struct PathStore {
    classes: Vec<Class>,
    paths: usize,
}

impl PathStore {
    pub(super) fn len(&self) -> usize {
        self.paths
    }

    pub(super) fn bytes(&self) -> usize {
        self.classes.iter().map(Class::bytes).sum::<usize>() + self.classes.capacity() * size_of::<Class>()
    }

    /// The block of a prefix with `count` paths, at least one.
    #[inline]
    pub(super) fn block(&self, head: u32, count: usize) -> Block<'_> {
        let class = &self.classes[class_of(count)];
        let (page, block) = class.place(head);
        let (page, start) = (&class.pages[page], block * class.capacity);
        Block { meta: &page.meta[start..start + count], attrs: &page.attrs[start..start + count] }
    }

    /// The mutable form of [`Self::block`].
    #[inline]
    pub(super) fn block_mut(&mut self, head: u32, count: usize) -> BlockMut<'_> {
        let class = &mut self.classes[class_of(count)];
        let (page, block) = class.place(head);
        let (page, start) = (&mut class.pages[page], block * class.capacity);
        BlockMut { meta: &mut page.meta[start..start + count], attrs: &mut page.attrs[start..start + count] }
    }

    /// Stores the first path of `owner`; returns its block.
    pub(super) fn push_first(&mut self, owner: u32, meta: PathMeta, attrs: AttrRef) -> u32 {
        let head = self.class_mut(0).allocate(owner);
        let block = self.block_mut(head, 1);
        (block.meta[0], block.attrs[0]) = (meta, Some(attrs));
        self.paths += 1;
        head
    }

    /// Appends a path to the `count` existing ones (at least one, below [`PATHS_MAX`]); returns the block's new
    /// place.
    pub(super) fn push(
        &mut self,
        owner: u32,
        head: u32,
        count: usize,
        meta: PathMeta,
        attrs: AttrRef,
    ) -> (u32, Option<Moved>) {
        let (head, moved) = self.resize(owner, head, count, count, count + 1);
        let block = self.block_mut(head, count + 1);
        (block.meta[count], block.attrs[count]) = (meta, Some(attrs));
        self.paths += 1;
        (head, moved)
    }

    /// Removes the path at `at` of `count`; the last one takes its place. Removing the only one releases the block.
    pub(super) fn remove(
        &mut self,
        owner: u32,
        head: u32,
        count: usize,
        at: usize,
    ) -> (PathMeta, Option<AttrRef>, u32, Option<Moved>) {
        let mut block = self.block_mut(head, count);
        block.swap(at, count - 1);
        let (meta, attrs) = (block.meta[count - 1], block.attrs[count - 1].take());
        self.paths -= 1;
        let (head, moved) = match count {
            1 => (0, self.classes[0].release(head)),
            _ => self.resize(owner, head, count, count - 1, count - 1),
        };
        (meta, attrs, head, moved)
    }

    /// Moves a block from the class for `from` paths to the class for `to`, if they differ, with its first `used`
    /// paths.
    fn resize(&mut self, owner: u32, head: u32, from: usize, used: usize, to: usize) -> (u32, Option<Moved>) {
        let (old, new) = (class_of(from), class_of(to));
        if old == new {
            return (head, None);
        }
        let new_head = self.class_mut(new).allocate(owner);
        let capacities = (self.classes[old].capacity, self.classes[new].capacity);
        let ((old_page, old_block), (new_page, new_block)) =
            (self.classes[old].place(head), self.classes[new].place(new_head));
        let (low, high) = self.classes.split_at_mut(old.max(new));
        let (source, target) =
            if old < new { (&mut low[old], &mut high[0]) } else { (&mut high[0], &mut low[new]) };
        let (source, target) = (&mut source.pages[old_page], &mut target.pages[new_page]);
        let (start, to_start) = (old_block * capacities.0, new_block * capacities.1);
        target.meta[to_start..to_start + used].copy_from_slice(&source.meta[start..start + used]);
        target.attrs[to_start..to_start + used].swap_with_slice(&mut source.attrs[start..start + used]);
        (new_head, self.classes[old].release(head))
    }

    fn class_mut(&mut self, class: usize) -> &mut Class {
        while self.classes.len() <= class {
            self.classes.push(Class::new(self.classes.len()));
        }
        &mut self.classes[class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for() {
        assert_eq!((0..9).map(capacity_of).collect::<Vec<_>>(), [1, 2, 3, 4, 6, 8, 12, 16, 24]);
        for count in 1..=PATHS_MAX {
            let class = class_of(count);
            assert!(capacity_of(class) >= count);
            assert!(class == 0 || capacity_of(class - 1) < count);
        }
        assert_eq!(size_of::<PathMeta>() + size_of::<Option<AttrRef>>(), 20);
    }
}
