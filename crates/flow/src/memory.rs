//! The machine-dependent part of the flow cache: memory that shards share, and the comparison of eight tags
//! at once. `cargo bench -p thalweg-flow --bench meter` measures the gain with a million random flows, where
//! each packet touches two lines and two pages at random.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;
use thalweg_base::{Refused, ZeroedMemory};

/// A cache line, to which items are aligned.
const LINE: usize = 64;
/// Huge pages are used from this size on.
const LARGE: usize = 6 << 20;

/// The layout of several shares in common memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Laid {
    /// One share behind the other.
    Apart,
    /// Items of the shares alternate. Shares that fill evenly then use the memory from its start, and pages
    /// may be large although shares are small.
    InTurn,
}

/// A list that never moves: room for a fixed number of items in memory shared with other lists.
#[derive(Debug)]
pub(crate) struct Share<T> {
    first: *mut T,
    /// Distance between items, in items.
    step: usize,
    len: usize,
    room: usize,
    _memory: Arc<ZeroedMemory>,
    items: PhantomData<T>,
}

// SAFETY: a share is the only way to its items, as a `Vec` is.
unsafe impl<T: Send> Send for Share<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Share<T> {}

impl<T: Copy> Share<T> {
    /// Makes `shares` empty shares with room for `room` items each, in one piece of memory.
    pub(crate) fn new(
        shares: usize,
        room: usize,
        laid: Laid,
        huge_pages: bool,
    ) -> Result<Vec<Self>, Refused> {
        const { assert!(align_of::<T>() <= LINE && size_of::<T>() > 0) };
        let items = shares.checked_mul(room).and_then(|items| items.checked_mul(size_of::<T>()));
        let bytes = items.ok_or(Refused(usize::MAX))?;
        let memory = Arc::new(ZeroedMemory::new(bytes, huge_pages && bytes >= LARGE)?);
        let first = memory.start().as_ptr().cast::<T>();
        let (from, step) = match laid {
            Laid::Apart => (room, 1),
            Laid::InTurn => (1, shares),
        };
        let share = |n: usize| Self {
            first: first.wrapping_add(n * from),
            step,
            len: 0,
            room,
            _memory: Arc::clone(&memory),
            items: PhantomData,
        };
        Ok((0..shares).map(share).collect())
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: inside the region, as `new` has cut it, and aligned, since the region starts at a huge page and items
        // follow one another; `at < len`, so it is initialized; only `get_mut` writes, and it borrows the share exclusively.
        (at < self.len).then(|| unsafe { &*self.first.add(at * self.step) })
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        // SAFETY: as above, and no other share has this item.
        (at < self.len).then(|| unsafe { &mut *self.first.add(at * self.step) })
    }

    /// Appends an item. Panics if there is no room: the caller knows the limit.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) {
        if self.len >= self.room {
            past_the_end(self.len, self.room);
        }
        // SAFETY: as above, but for what was there, which needs no dropping.
        unsafe { self.first.add(self.len * self.step).write(item) };
        self.len += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

impl<const N: usize> Share<[u32; N]> {
    /// Makes shares with all items present and zero; the system provides memory when it is touched.
    pub(crate) fn zeroed(
        shares: usize,
        room: usize,
        laid: Laid,
        huge_pages: bool,
    ) -> Result<Vec<Self>, Refused> {
        let mut all = Self::new(shares, room, laid, huge_pages)?;
        // Integers may be zero, and `new` gets zeroed memory.
        all.iter_mut().for_each(|share| share.len = share.room);
        Ok(all)
    }
}

impl<T: Copy> std::ops::Index<usize> for Share<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, at: usize) -> &T {
        match self.get(at) {
            Some(item) => item,
            None => past_the_end(at, self.len),
        }
    }
}

impl<T: Copy> std::ops::IndexMut<usize> for Share<T> {
    #[inline(always)]
    fn index_mut(&mut self, at: usize) -> &mut T {
        let len = self.len;
        match self.get_mut(at) {
            Some(item) => item,
            None => past_the_end(at, len),
        }
    }
}

/// As for a slice: a bug, never a matter of input.
#[cold]
fn past_the_end(at: usize, len: usize) -> ! {
    panic!("item {at} of {len}")
}

/// A bit for each tag that equals `tag`.
#[inline(always)]
pub(crate) fn places_of(tag: u32, tags: &[u32; 8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::*;
        // SAFETY: both loads are of 16 bytes inside the 32 of the array, and need no alignment; SSE2 is in the baseline.
        unsafe {
            let (wanted, at) = (_mm_set1_epi32(tag as i32), tags.as_ptr().cast::<__m128i>());
            let low = _mm_cmpeq_epi32(_mm_loadu_si128(at), wanted);
            let high = _mm_cmpeq_epi32(_mm_loadu_si128(at.add(1)), wanted);
            // Each lane is all ones or zeros. Narrowed twice, they are eight bytes, and the mask takes a bit
            // of each.
            let bytes = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
            _mm_movemask_epi8(bytes) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable_places_of(tag, tags)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable_places_of(tag: u32, tags: &[u32; 8]) -> u32 {
    (0..8).fold(0, |places, place| places | u32::from(tags[place] == tag) << place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::XorShift64Star;

    #[test]
    fn shares_have_all_items_once() {
        for (laid, huge_pages) in [(Laid::Apart, false), (Laid::InTurn, false), (Laid::InTurn, true)] {
            let mut shares = Share::<[u32; 16]>::zeroed(3, 50, laid, huge_pages).unwrap();
            for (n, share) in (0..).zip(&mut shares) {
                for at in 0..50 {
                    assert_eq!(share[at], [0; 16]);
                    share[at] = [n * 50 + at as u32 + 1; 16];
                }
                assert!(share.get(50).is_none() && share.get_mut(50).is_none());
                assert_eq!(std::ptr::from_ref(&share[7]) as usize % LINE, 0);
            }
            let mut rest = shares.split_off(1);
            drop(shares);
            for (n, share) in (1..).zip(&rest) {
                assert!((0..50).all(|at| share[at] == [n * 50 + at as u32 + 1; 16]));
            }
            rest[0].clear();
            assert!(rest[0].get(0).is_none());
            rest[0].push([9; 16]);
            assert_eq!((rest[0].len(), rest[0][0], rest[1][49]), (1, [9; 16], [150; 16]));
        }
        let items = isize::MAX as usize / 64;
        assert!(Share::<[u32; 16]>::new(1, items, Laid::Apart, false).is_err());
        assert!(Share::<[u32; 16]>::new(usize::MAX, 2, Laid::Apart, false).is_err());
    }

    #[test]
    #[should_panic(expected = "item 2 of 2")]
    fn a_full_share_takes_nothing() {
        let mut shares = Share::<u64>::new(2, 2, Laid::InTurn, false).unwrap();
        (0..3).for_each(|item| shares[0].push(item));
    }

    #[test]
    fn tags_are_found_where_they_are() {
        let mut rng = XorShift64Star::new(2);
        for _ in 0..2000 {
            // Tags that differ in few bits, some of them twice.
            let tags = std::array::from_fn(|_| rng.below(3) << rng.below(31));
            for tag in tags.into_iter().chain([0, 1, u32::MAX]) {
                assert_eq!(places_of(tag, &tags), portable_places_of(tag, &tags));
            }
        }
    }
}
