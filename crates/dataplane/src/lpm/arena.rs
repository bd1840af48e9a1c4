//! Memory that readers may hold stale indices into: it never moves, never shrinks, and keeps its type.
//!
//! A [`Region`] is a fixed range of atomic words, reserved in full when the table is made. The operating system
//! provides pages only when they are touched, and zeroes them, so a large reserve costs address space, not memory.
//! Every index is masked to the region's size, which is a power of two: whatever number a reader computes from
//! stale data, it stays inside.
//!
//! A [`Pool`] is the writer's bookkeeping of such a region: what is allocated, what is free, and what is in
//! *limbo*: replaced and unreachable for look-ups that start now, but perhaps still used by one that started
//! earlier. Limbo becomes free all at once, when the [`Generation`] is raised.
//!
//! # Why the generation is enough
//!
//! Writer, in program order: (a) stores the word that leads to the new piece, (b) puts the old piece in limbo, (c)
//! raises the generation (release) and passes a release fence, (d) writes new content into the old piece. Reader:
//! loads the generation (acquire), looks up, passes an acquire fence, loads the generation again.
//!
//! - If the reader sees anything of (d), then, fence to fence, its second load sees (c), and unless its first load
//!   did so too it repeats the batch.
//! - If its first load saw (c), it also sees (a), and cannot reach the old piece by the old path.
//!
//! So a batch with equal generations never used a word that was rewritten for another purpose.
#![allow(unsafe_code)] // reserved memory and unchecked indices: what every look-up does, paid for by `thalweg lab lpm`

use super::LpmError;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use thalweg_base::{HUGE_PAGE, Refused, ZeroedMemory};

/// Slack after the last word, so that a vector load at any index stays inside the allocation, and so does one that
/// `Fib6` makes in the last line's subtrees: 32 steps of two lines.
const SLACK: usize = 8192;

/// Pieces in limbo before the generation is raised.
const LIMBO_PIECES: usize = 4096;

/// A word for which all bits zero is a value.
///
/// # Safety
/// The type is valid when all its bytes are zero, has no drop glue, and may be shared among threads.
pub(super) unsafe trait Word: Sync + Send + 'static {}

// SAFETY: an atomic integer is valid when zero and needs no drop.
unsafe impl Word for AtomicU16 {}
// SAFETY: as above.
unsafe impl Word for AtomicU32 {}
// SAFETY: as above.
unsafe impl Word for AtomicU64 {}

/// `2^LOG2` words, initially zero. See the module's text.
pub(super) struct Region<T: Word, const LOG2: u32> {
    memory: ZeroedMemory,
    words: PhantomData<T>,
}

impl<T: Word, const LOG2: u32> Region<T, LOG2> {
    const LEN: usize = 1 << LOG2;
    const MASK: usize = Self::LEN - 1;

    pub(super) fn new() -> Result<Self, LpmError> {
        let memory = ZeroedMemory::new(Self::LEN * size_of::<T>() + SLACK, true);
        let memory = memory.map_err(|Refused(bytes)| LpmError::OutOfMemory { bytes })?;
        Ok(Self { memory, words: PhantomData })
    }

    /// The word at `index`, masked to the region's size.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> &T {
        // SAFETY: the masked index is below LEN, and LEN words were allocated, zeroed, which is a value
        // of T, aligned to far more than T needs; they live as long as the region.
        unsafe { self.memory.start().cast::<T>().add(index & Self::MASK).as_ref() }
    }

    /// The start of the words, for vector loads: `SLACK` bytes after the last word are readable too.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *const T {
        self.memory.start().as_ptr().cast()
    }
}

/// Counts how often limbo became free. See the module's text.
#[derive(Default)]
pub(super) struct Generation(AtomicU64);

impl Generation {
    /// Repeats a look-up until no memory was reused during it.
    #[inline(always)]
    pub(super) fn read<R>(&self, mut look_up: impl FnMut() -> R) -> R {
        loop {
            let before = self.0.load(Ordering::Acquire);
            let found = look_up();
            fence(Ordering::Acquire);
            if self.0.load(Ordering::Relaxed) == before {
                return found;
            }
        }
    }

    /// Only the writer calls this.
    fn raise(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::Release);
    }
}

/// Tracks which parts of a region are in use. Sizes are exact, and each has its own free list.
pub(super) struct Pool {
    part: &'static str,
    capacity: usize,
    top: usize,
    free: BTreeMap<u32, Vec<u32>>,
    limbo: Vec<(u32, u32)>,
}

impl Pool {
    /// A pool of `capacity` units, of which the first `reserved` are never allocated.
    pub(super) fn new(part: &'static str, capacity: usize, reserved: usize) -> Self {
        Self { part, capacity, top: reserved, free: BTreeMap::new(), limbo: Vec::new() }
    }

    /// The start of `size` consecutive unused units.
    pub(super) fn allocate(&mut self, size: u32, generation: &Generation) -> Result<u32, LpmError> {
        if let Some(start) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(start);
        }
        if self.top + size as usize <= self.capacity {
            let start = self.top as u32;
            self.top += size as usize;
            return Ok(start);
        }
        self.recycle(generation);
        self.split_free(size).ok_or(LpmError::Full { part: self.part, capacity: self.capacity })
    }

    /// Puts a piece that new look-ups cannot reach in limbo.
    pub(super) fn release(&mut self, start: u32, size: u32, generation: &Generation) {
        self.limbo.push((start, size));
        if self.limbo.len() >= LIMBO_PIECES {
            self.recycle(generation);
        }
    }

    /// The end of all units ever allocated, which shows how much memory was touched.
    pub(super) fn top(&self) -> usize {
        self.top
    }

    /// Bytes of the bookkeeping itself.
    pub(super) fn memory_bytes(&self) -> usize {
        self.free.values().map(|list| list.capacity() * 4).sum::<usize>() + self.limbo.capacity() * 8
    }

    fn recycle(&mut self, generation: &Generation) {
        if self.limbo.is_empty() {
            return;
        }
        generation.raise();
        for (start, size) in self.limbo.drain(..) {
            self.free.entry(size).or_default().push(start);
        }
    }

    /// The start of a free piece of at least this size; the rest stays free.
    fn split_free(&mut self, size: u32) -> Option<u32> {
        let (&found, list) = self.free.range_mut(size..).find(|(_, list)| !list.is_empty())?;
        let start = list.pop()?;
        if found > size {
            self.free.entry(found - size).or_default().push(start + size);
        }
        Some(start)
    }
}

/// Bytes touched at the start of a region, as last reported by the writer.
#[derive(Default)]
pub(super) struct Touched(AtomicUsize);

impl Touched {
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Rounded up to whole huge pages, which is what the system provides.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed).next_multiple_of(HUGE_PAGE)
    }
}
