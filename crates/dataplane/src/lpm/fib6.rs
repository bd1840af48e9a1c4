//! IPv6: two direct arrays down to /32, below that search trees whose nodes are single cache lines.
//!
//! # Layout
//!
//! ```text
//! bits   0..20   root[2^20]            a slot: next hop, or the number of a middle block
//! bits  20..32   middle[block][4096]   a slot: next hop, or a tree
//! bits  32..48   tree                  answers, or deeper trees: 48..64, 64..80, ... 112..128
//! ```
//!
//! A *slot* is 32 bits: bit 31 clear: a next hop. Set: in the root, the number of a block; elsewhere a
//! tree: bits 30..29 its height, bit 28 "wide", bits 27..0 the number of its first cache line.
//!
//! A *tree* answers for 16 address bits. Their 65,536 values are cut into runs of equal answers, and
//! the runs' first values are the keys. Height 0 is one line with up to 16 runs:
//!
//! ```text
//! bytes  0..32   15 keys (u16), each one less than the first value of a run, 0xffff behind the last
//! bytes 32..64   16 answers (u16); the answer of x is the one at count(key < x)
//! ```
//!
//! Height h is a line of 31 such keys that choose one of up to 32 subtrees of height h - 1, which lie
//! behind it at a fixed distance: one compare of 32 keys and one population count per step, no
//! pointers. In a *wide* tree each bottom line is followed by one with 16 slots, and an answer
//! `0x8000 | k` means: go on in the k-th of them.
//!
//! So an address needs: root, middle, one line (up to 16 runs below its /32) or two (512) or three
//! (16,384). Of the full table's 160,147 prefixes all but 350 end at /48 or before. Memory: 4 MiB root,
//! 10 MiB of middle blocks, of which traffic touches the lines in use, and 1.6 MiB of trees.
//!
//! # Updates
//!
//! Slots change in place. A prefix longer than /32 rebuilds the one 16-bit tree that holds it and
//! swaps the slot that leads there.
//!
//! # Missing
//!
//! A tree is rebuilt whole, which is slow where a /32 has thousands of prefixes (docs/lpm.md).

use super::arena::{Generation, Region, Touched};
use super::{Kernel, Lpm, LpmError, NEXT_HOP_MAX, NO_ROUTE, NextHopId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use thalweg_base::prefetch;

mod table;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use table::Fib6Table;

const ROOT_BITS: u8 = 20;
const MIDDLE_BITS: u8 = 12;
/// 2^14 blocks of 2^12 slots of 4 bytes: 256 MiB of address space.
const MIDDLE_LOG2: u32 = 26;
/// 2^22 lines of 8 words: 256 MiB of address space.
const LINES_LOG2: u32 = 25;
/// In a slot: not a next hop.
const CHILD: u32 = 1 << 31;
/// In a tree's slot: each bottom line is followed by a line of slots.
const WIDE: u32 = 1 << 28;
const HEIGHT_SHIFT: u32 = 29;
const LINE: u32 = WIDE - 1;
/// In a bottom line: go on in a slot of the next line.
const DEEPER: u16 = 0x8000;
/// Runs of a bottom line, subtrees of any other.
const BOTTOM_RUNS: usize = 16;
const FAN_OUT: usize = 32;
/// Lanes in which a batch is processed.
const LANES: usize = 64;

/// IPv6 look-ups in two to five cache lines. Layout and costs in the module's text; written by
/// [`Fib6Writer`](super::Fib6Writer).
pub struct Fib6 {
    root: Region<AtomicU32, { ROOT_BITS as u32 }>,
    middle: Region<AtomicU32, MIDDLE_LOG2>,
    lines: Region<AtomicU64, LINES_LOG2>,
    generation: Generation,
    middle_touched: Touched,
    lines_touched: Touched,
    kernel: Kernel,
}

/// Lines between the subtrees of a tree, by its slot's bits 30..28: twice the height, and wide or not.
const DISTANCE: [u32; 8] = [0, 0, 1, 2, 1 + 32, 1 + 32 * 2, 33 + 1024, 33 + 1024 * 2];

#[inline(always)]
fn height_of(slot: u32) -> u32 {
    slot >> HEIGHT_SHIFT & 3
}

/// The index in the middle array of an address's slot, in the block that a root slot names.
#[inline(always)]
fn middle_index(root_slot: u32, high: u64) -> usize {
    ((root_slot & !CHILD) as usize) << MIDDLE_BITS | (high >> 32 & 0xfff) as usize
}

impl Fib6 {
    fn new() -> Result<Self, LpmError> {
        Ok(Self {
            root: Region::new()?,
            middle: Region::new()?,
            lines: Region::new()?,
            generation: Generation::default(),
            middle_touched: Touched::default(),
            lines_touched: Touched::default(),
            kernel: Kernel::best(),
        })
    }

    /// [`Lpm::lookup_batch`] with a chosen kernel; one that the processor lacks falls back to
    /// [`Kernel::Portable`]. For tests and measurements.
    pub fn lookup_batch_with(&self, kernel: Kernel, addresses: &[u128], next_hops: &mut [NextHopId]) {
        let kernel = if kernel == self.kernel || kernel.is_supported() { kernel } else { Kernel::Portable };
        for (addresses, next_hops) in addresses.chunks(LANES).zip(next_hops.chunks_mut(LANES)) {
            self.generation.read(|| match kernel {
                #[cfg(target_arch = "x86_64")]
                Kernel::Avx2 => x86::lanes_avx2(self, addresses, next_hops),
                #[cfg(target_arch = "x86_64")]
                Kernel::Avx512 => x86::lanes_avx512(self, addresses, next_hops),
                _ => self.lanes::<Portable>(addresses, next_hops),
            });
        }
    }

    /// Up to [`LANES`] look-ups in steps, each for all lanes that need it, so that their loads overlap and no lane
    /// waits for a mispredicted branch of another. Lists of lanes are compacted without branches: a lane is always
    /// written, and the length grows if it stays.
    #[inline(always)]
    fn lanes<C: Compare>(&self, addresses: &[u128], next_hops: &mut [NextHopId]) {
        let mut work = Work { lane_of: [0; LANES + 16], slots: [0; LANES + 16] };
        let live = self.direct_steps(addresses, next_hops, &mut work);
        self.trees::<C>(addresses, next_hops, &mut work, live);
    }

    /// The part of [`Self::lanes`] after the direct arrays.
    #[inline(always)]
    fn trees<C: Compare>(
        &self,
        addresses: &[u128],
        next_hops: &mut [NextHopId],
        work: &mut Work,
        live: usize,
    ) {
        if live > 0 {
            let any = self.tree_steps::<C>(addresses, next_hops, work, live);
            if any & DEEPER != 0 {
                self.deeper_lanes(addresses, next_hops);
            }
        }
    }

    /// Root and middle: stores answers, and in `work` the lanes whose slot names a tree. Returns their number.
    #[inline(always)]
    fn direct_steps(&self, addresses: &[u128], next_hops: &mut [NextHopId], work: &mut Work) -> usize {
        let mut live = 0;
        for (lane, (&address, next_hop)) in addresses.iter().zip(next_hops.iter_mut()).enumerate() {
            let high = (address >> 64) as u64;
            let slot = self.root.at((high >> (64 - ROOT_BITS)) as usize).load(Ordering::Acquire);
            *next_hop = slot as u16;
            work.put(live, lane as u8, slot);
            live += (slot >> 31) as usize;
        }
        let mut left = 0;
        for index in 0..live.min(LANES) {
            let lane = usize::from(work.lane_of[index]);
            let (Some(&address), Some(next_hop)) = (addresses.get(lane), next_hops.get_mut(lane)) else {
                continue;
            };
            let high = (address >> 64) as u64;
            let slot = self.middle.at(middle_index(work.slots[index], high)).load(Ordering::Acquire);
            *next_hop = slot as u16;
            work.put(left, lane as u8, slot);
            left += (slot >> 31) as usize;
            // For a next hop this prefetches line 0, uselessly.
            let line = if slot & CHILD != 0 { slot & LINE } else { 0 };
            prefetch(self.lines.at(line as usize * 8));
        }
        left
    }

    /// Descends the trees of bits 32..48: splitter lines while any lane has some, then the bottom lines. Returns
    /// the bitwise OR of all answers.
    #[inline(always)]
    fn tree_steps<C: Compare>(
        &self,
        addresses: &[u128],
        next_hops: &mut [NextHopId],
        work: &mut Work,
        live: usize,
    ) -> NextHopId {
        let Work { lane_of, slots } = work;
        let live = live.min(LANES);
        // Indices into `lane_of` of lanes that still have splitter lines.
        let mut tall = [0_u8; LANES];
        let mut left = 0;
        for (index, &slot) in slots[..live].iter().enumerate() {
            tall[left % LANES] = index as u8;
            left += usize::from(height_of(slot) != 0);
        }
        while left > 0 {
            let mut still = 0;
            for at in 0..left.min(LANES) {
                let index = usize::from(tall[at]) % LANES;
                let lane = usize::from(lane_of[index]);
                let Some(&address) = addresses.get(lane) else { continue };
                let slot = self.split::<C>(slots[index], (address >> 80) as u16);
                slots[index] = slot;
                prefetch(self.lines.at((slot & LINE) as usize * 8));
                tall[still % LANES] = index as u8;
                still += usize::from(height_of(slot) != 0);
            }
            left = still;
        }
        let mut any = 0;
        for index in 0..live {
            let lane = usize::from(lane_of[index]) % LANES;
            let (Some(&address), Some(next_hop)) = (addresses.get(lane), next_hops.get_mut(lane)) else {
                continue;
            };
            *next_hop = self.bottom::<C>(slots[index], (address >> 80) as u16);
            any |= *next_hop;
        }
        any
    }

    /// One step down a tree of height 1 or more.
    #[inline(always)]
    fn split<C: Compare>(&self, slot: u32, x: u16) -> u32 {
        let child = C::less_of_32(self.line(slot & LINE), x);
        let child_at = (slot & LINE) + 1 + child * DISTANCE[(slot >> 28 & 7) as usize];
        ((slot & !LINE) - (1 << HEIGHT_SHIFT)) | (child_at & LINE)
    }

    /// The answer in a bottom line.
    #[inline(always)]
    fn bottom<C: Compare>(&self, slot: u32, x: u16) -> u16 {
        let rank = C::less_of_16(self.line(slot & LINE), x) as usize & 15;
        let word = self.lines.at((slot & LINE) as usize * 8 + 4 + rank / 4).load(Ordering::Relaxed);
        (word >> (rank % 4 * 16)) as u16
    }

    /// The slot that a marker in a bottom line leads to.
    fn deeper(&self, slot: u32, marker: u16) -> u32 {
        let k = usize::from(marker & 15);
        let word = self.lines.at((slot & LINE) as usize * 8 + 8 + k / 2).load(Ordering::Acquire);
        (word >> (k % 2 * 32)) as u32
    }

    /// Replaces the markers that the steps left.
    #[cold]
    #[inline(never)]
    fn deeper_lanes(&self, addresses: &[u128], next_hops: &mut [NextHopId]) {
        for (&address, next_hop) in addresses.iter().zip(next_hops) {
            if *next_hop & DEEPER != 0 {
                *next_hop = self.resolve(address);
            }
        }
    }

    /// One complete look-up.
    fn resolve(&self, address: u128) -> NextHopId {
        let high = (address >> 64) as u64;
        let mut slot = self.root.at((high >> (64 - ROOT_BITS)) as usize).load(Ordering::Acquire);
        if slot & CHILD != 0 {
            slot = self.middle.at(middle_index(slot, high)).load(Ordering::Acquire);
        }
        for shift in [80, 64, 48, 32, 16, 0] {
            if slot & CHILD == 0 {
                return slot as u16 & NEXT_HOP_MAX;
            }
            let x = (address >> shift) as u16;
            while height_of(slot) != 0 {
                slot = self.split::<Portable>(slot, x);
            }
            let value = self.bottom::<Portable>(slot, x);
            if value & DEEPER == 0 {
                return value;
            }
            slot = self.deeper(slot, value);
        }
        // Only a batch that read reused memory, and will be repeated, gets here.
        NO_ROUTE
    }

    /// The eight words of a line.
    #[inline(always)]
    fn line(&self, line: u32) -> Line<'_> {
        Line { lines: &self.lines, first: line as usize * 8 }
    }
}

/// The lanes of a batch that still have a tree to descend, and its slots. The space after the last lane is for
/// vector stores.
struct Work {
    lane_of: [u8; LANES + 16],
    slots: [u32; LANES + 16],
}

impl Work {
    /// Writes an entry; `index` is below [`LANES`].
    #[inline(always)]
    fn put(&mut self, index: usize, lane: u8, slot: u32) {
        self.lane_of[index % LANES] = lane;
        self.slots[index % LANES] = slot;
    }
}

/// A cache line of the trees.
#[derive(Clone, Copy)]
struct Line<'a> {
    lines: &'a Region<AtomicU64, LINES_LOG2>,
    first: usize,
}

/// How a line's keys are compared.
trait Compare {
    /// How many of the line's first 16 keys are less than `x`.
    fn less_of_16(line: Line<'_>, x: u16) -> u32;
    /// How many of the line's 32 keys are less than `x`.
    fn less_of_32(line: Line<'_>, x: u16) -> u32;
}

/// Key compares in plain Rust.
struct Portable;

impl Portable {
    #[inline(always)]
    fn less(line: Line<'_>, x: u16, words: usize) -> u32 {
        let mut less = 0;
        for word in 0..words {
            let keys = line.lines.at(line.first + word).load(Ordering::Relaxed);
            for key in 0..4 {
                less += u32::from(((keys >> (key * 16)) as u16) < x);
            }
        }
        less
    }
}

impl Compare for Portable {
    #[inline(always)]
    fn less_of_16(line: Line<'_>, x: u16) -> u32 {
        Self::less(line, x, 4)
    }

    #[inline(always)]
    fn less_of_32(line: Line<'_>, x: u16) -> u32 {
        Self::less(line, x, 8)
    }
}

impl Lpm<u128> for Fib6 {
    fn lookup(&self, address: u128) -> NextHopId {
        self.generation.read(|| self.resolve(address))
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [NextHopId]) {
        self.lookup_batch_with(self.kernel, addresses, next_hops);
    }

    fn memory_bytes(&self) -> usize {
        (4 << ROOT_BITS) + self.middle_touched.bytes() + self.lines_touched.bytes()
    }
}
