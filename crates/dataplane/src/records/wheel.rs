//! Finds the records that are due: a wheel of one-second buckets, each a doubly linked list, so that a record can
//! leave early. The links of a free record are the owner's list of free records.

use super::{number, place, touched};
use thalweg_base::prefetch_at;

/// Buckets of the wheel, one per second; a power of two. A record is filed less than this far ahead.
pub(crate) const WHEEL_S: u32 = 512;

/// Marks the first record of a bucket, whose number is in the other bits of `before`.
const FIRST: u32 = 1 << 31;

/// A record's position in its bucket's list.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The next record plus one, or 0; in a free record, the next free one.
    next: u32,
    /// The previous record plus one, or [`FIRST`] and the bucket.
    before: u32,
}

/// The wheel: 2 KiB, and 8 bytes a record.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// By second, the first record plus one.
    buckets: Box<[u32]>,
    links: Box<[Link]>,
}

impl Wheel {
    /// An empty wheel for this many records.
    pub(crate) fn new(records: usize) -> Self {
        Self { buckets: touched(place(WHEEL_S)), links: touched(records) }
    }

    /// Prefetches the bucket of a second.
    #[inline(always)]
    pub(crate) fn prefetch(&self, second: u32) {
        prefetch_at(&self.buckets, place(second % WHEEL_S));
    }

    /// Files a record under a second.
    pub(crate) fn file(&mut self, at: usize, second: u32) {
        let bucket = second % WHEEL_S;
        let first = &mut self.buckets[place(bucket)];
        self.links[at] = Link { next: *first, before: FIRST | bucket };
        if let Some(next) = first.checked_sub(1) {
            self.links[place(next)].before = number(at) + 1;
        }
        *first = number(at) + 1;
    }

    /// Takes a record out of its bucket.
    pub(crate) fn unfile(&mut self, at: usize) {
        let Link { next, before } = self.links[at];
        if before & FIRST != 0 {
            self.buckets[place(before & !FIRST)] = next;
        } else if let Some(before) = before.checked_sub(1) {
            self.links[place(before)].next = next;
        }
        if let Some(next) = next.checked_sub(1) {
            self.links[place(next)].before = before;
        }
    }

    /// Empties the bucket of a second; returns its first record plus one, or 0. [`Self::next`] leads to the others.
    pub(crate) fn take(&mut self, second: u32) -> u32 {
        std::mem::take(&mut self.buckets[place(second % WHEEL_S)])
    }

    /// The record after this one plus one, or 0: in its bucket, or in the list of free records.
    #[inline(always)]
    pub(crate) fn next(&self, at: usize) -> u32 {
        self.links[at].next
    }

    /// Puts a record that is in no bucket before `next` (plus one, or 0) in the list of free records.
    pub(crate) fn set_free(&mut self, at: usize, next: u32) {
        self.links[at].next = next;
    }

    /// Empties all buckets.
    pub(crate) fn clear(&mut self) {
        self.buckets.fill(0);
    }
}
