//! What tables of sessions and states are made of: a hash index, a wheel of seconds, memory that is mapped already,
//! and counters with names. The records themselves are their owner's, numbered from 0.

mod index;
mod wheel;

pub(crate) use index::HashIndex;
pub(crate) use wheel::{WHEEL_S, Wheel};

/// The last second that the clock of a table can show (in 2097); it leaves room to add any lifetime.
const CLOCK_MAX_S: u32 = 0xf000_0000;

/// The second of a packet clock.
#[inline]
pub(crate) fn seconds(now_ns: u64) -> u32 {
    (now_ns / 1_000_000_000).min(u64::from(CLOCK_MAX_S)) as u32
}

/// A record's number as a place in a table.
#[inline(always)]
pub(crate) const fn place(record: u32) -> usize {
    record as usize
}

/// A record's place as its number. Tables have fewer than 2^32 records.
#[inline(always)]
pub(crate) const fn number(place: usize) -> u32 {
    place as u32
}

/// The records of a slice that were ever used, those below `fresh`, and where the next slice begins, if there is one.
pub(crate) fn slice(from: usize, count: usize, fresh: u32) -> (std::ops::Range<usize>, Option<usize>) {
    let fresh = place(fresh);
    let end = from.saturating_add(count).min(fresh);
    (from.min(end)..end, (end < fresh).then_some(end))
}

/// A zeroed table whose pages are mapped already: a page fault at the first use would cost a packet as much as a
/// hundred others.
fn touched<T: Copy + Default>(len: usize) -> Box<[T]> {
    const PAGE_BYTES: usize = 4096;
    let mut table = vec![T::default(); len].into_boxed_slice();
    for entry in table.iter_mut().step_by((PAGE_BYTES / size_of::<T>()).max(1)) {
        *std::hint::black_box(entry) = T::default();
    }
    table
}

/// Defines the counters of a shard.
macro_rules! counters {
    ($(#[$doc:meta])* $type:ident { $($name:ident: $meaning:literal;)* }) => {
        thalweg_base::counters! { $(#[$doc])* $type { $($name: $meaning;)* } }

        impl $type {
            /// Counts what was counted since `before` so many times more.
            pub fn repeat(&mut self, before: &Self, times: u64) {
                $(self.$name += self.$name.saturating_sub(before.$name) * times;)*
            }
        }
    };
}
pub(crate) use counters;
