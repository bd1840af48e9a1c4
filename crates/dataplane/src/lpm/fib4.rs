//! IPv4 in eight-byte nodes: a bitmap of runs, the look-up structure the router uses.
//!
//! # Layout
//!
//! The table is thought of as 2^24 slots, one per /24, each with its answer. Neighbors are mostly
//! equal, so only *runs* of equal slots are kept. A [`node`](Fib4) covers 32 slots (a /19) and is one
//! atomic word:
//!
//! ```text
//! 63            32 31 30                              0
//! +---------------+--+--------------------------------+
//! | base          | 0| bit i-1: slot i begins a run   |
//! +---------------+--+--------------------------------+
//! answer of slot s = values[base + popcount(bitmap & (2^s - 1))]
//! ```
//!
//! - `root`: 2^19 nodes, 4 MiB.
//! - `values`: `u16` answers. The first 32,768 are the numbers 0..=32767 themselves: a node whose slots
//!   are all equal points at its answer there, so uniform space costs nothing and shares lines.
//! - A slot with longer prefixes in it holds `0x8000 | k`; behind the run values of its node lies, as
//!   two halves, the number of the k-th *tail*: eight nodes of the same form over the 256 addresses.
//!
//! The full table (901,899 prefixes) needs 4 MiB of root and about 1.5 MiB of values: two loads per
//! look-up, most of them from the second-level cache or near it, where DIR-24-8's one load from
//! 32 MiB misses caches and, with small pages, the TLB. The idea of bitmap and population count is
//! Poptrie's (Asai & Ohara, SIGCOMM 2015), with one level, direct pointing to bit 19 and runs as its
//! leaf vectors; the node is cut to one word so that a plain atomic store publishes it.
//!
//! # Updates
//!
//! A change repaints the /19 nodes it touches: one for a /19 or longer, 2,048 for a /8. If the bitmap
//! stays, values are stored in place; otherwise a new run is written aside and the node swapped. Where no
//! longer prefix exists, nodes are filled without a walk through the routes. Changes that come together repaint a node
//! once ([`Writer::apply`](super::Writer::apply)).
//!
//! # Limits
//!
//! 2^26 values and 2^20 tails of address space are reserved (192 MiB, untouched until used); a table
//! that needs more gets [`LpmError::Full`].

use super::address::blocks;
use super::arena::{Generation, Pool, Region, Touched};
use super::trie::{BinaryTrie, NONE};
use super::writer::{DEEP, Runs, Table};
use super::{Kernel, Lpm, LpmError, NEXT_HOP_MAX, NextHopId, Prefix};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use thalweg_base::prefetch;

#[cfg(target_arch = "x86_64")]
mod x86;

const ROOT_BITS: u8 = 19;
const VALUES_LOG2: u32 = 26;
const TAILS_LOG2: u32 = 23;
/// The values at the start of `values` that equal their own index.
const IDENTITY: usize = NEXT_HOP_MAX as usize + 1;
/// Set in a value that names a tail instead of a next hop.
const TAIL: u16 = 0x8000;
/// Nodes of one tail.
const TAIL_NODES: u32 = 8;
const BITMAP: u64 = 0x7fff_ffff;
/// Look-ups whose positions are found together.
const GROUP: usize = 64;

/// IPv4 look-ups with two loads from about 6 MB. Layout and costs in the module's text; written by
/// [`Fib4Writer`](super::Fib4Writer).
pub struct Fib4 {
    root: Region<AtomicU64, { ROOT_BITS as u32 }>,
    values: Region<AtomicU16, VALUES_LOG2>,
    tails: Region<AtomicU64, TAILS_LOG2>,
    generation: Generation,
    values_touched: Touched,
    tails_touched: Touched,
    kernel: Kernel,
}

/// The index in `values` of a slot's answer.
#[inline(always)]
fn position(node: u64, slot: u32) -> usize {
    let before = node as u32 & ((1_u32 << slot) - 1);
    (node >> 32) as usize + before.count_ones() as usize
}

impl Fib4 {
    fn new() -> Result<Self, LpmError> {
        let fib = Self {
            root: Region::new()?,
            values: Region::new()?,
            tails: Region::new()?,
            generation: Generation::default(),
            values_touched: Touched::default(),
            tails_touched: Touched::default(),
            kernel: Kernel::best(),
        };
        for value in 0..=NEXT_HOP_MAX {
            fib.values.at(usize::from(value)).store(value, Ordering::Relaxed);
        }
        Ok(fib)
    }

    /// [`Lpm::lookup_batch`] with a chosen kernel; one that the processor lacks falls back to
    /// [`Kernel::Portable`]. For tests and measurements.
    pub fn lookup_batch_with(&self, kernel: Kernel, addresses: &[u32], next_hops: &mut [NextHopId]) {
        let count = addresses.len().min(next_hops.len());
        let (addresses, next_hops) = (&addresses[..count], &mut next_hops[..count]);
        let kernel = if kernel == self.kernel || kernel.is_supported() { kernel } else { Kernel::Portable };
        self.generation.read(|| {
            let any = match kernel {
                #[cfg(target_arch = "x86_64")]
                Kernel::Avx2 => x86::first_level_bmi2(self, addresses, next_hops),
                #[cfg(target_arch = "x86_64")]
                Kernel::Avx512 => x86::first_level_avx512(self, addresses, next_hops),
                _ => self.first_level(addresses, next_hops),
            };
            if any & TAIL != 0 {
                self.second_level(addresses, next_hops);
            }
        });
    }

    /// Prefetches the first word that the look-up of an address reads.
    #[inline(always)]
    pub fn prefetch(&self, address: u32) {
        prefetch(self.root.at((address >> 13) as usize));
    }

    /// Answers from root and values; slots with a tail get their marker. Returns the bitwise OR of all answers.
    ///
    /// All positions of a group are computed before the first value is read, and each value is prefetched as soon
    /// as its position is known: that keeps many more loads in flight than a processor looks ahead.
    #[inline(always)]
    fn first_level(&self, addresses: &[u32], next_hops: &mut [NextHopId]) -> NextHopId {
        let mut any = 0;
        let mut positions = [0u32; GROUP];
        for (addresses, next_hops) in addresses.chunks(GROUP).zip(next_hops.chunks_mut(GROUP)) {
            for (&address, found) in addresses.iter().zip(&mut positions) {
                let node = self.root.at((address >> 13) as usize).load(Ordering::Acquire);
                let at = position(node, address >> 8 & 31);
                prefetch(self.values.at(at));
                *found = at as u32;
            }
            for (&position, next_hop) in positions.iter().zip(next_hops) {
                let value = self.values.at(position as usize).load(Ordering::Relaxed);
                *next_hop = value;
                any |= value;
            }
        }
        any
    }

    /// Replaces the markers that [`Self::first_level`] left.
    #[cold]
    #[inline(never)]
    fn second_level(&self, addresses: &[u32], next_hops: &mut [NextHopId]) {
        for (&address, next_hop) in addresses.iter().zip(next_hops) {
            if *next_hop & TAIL != 0 {
                *next_hop = self.resolve(address);
            }
        }
    }

    /// One complete look-up.
    fn resolve(&self, address: u32) -> NextHopId {
        let node = self.root.at((address >> 13) as usize).load(Ordering::Acquire);
        let value = self.values.at(position(node, address >> 8 & 31)).load(Ordering::Relaxed);
        if value & TAIL == 0 {
            return value;
        }
        let tail = self.tail_number(node, value);
        let node = self.tails.at((tail * TAIL_NODES + (address >> 5 & 7)) as usize).load(Ordering::Acquire);
        self.values.at(position(node, address & 31)).load(Ordering::Relaxed) & NEXT_HOP_MAX
    }

    /// The tail of a marker in a node's run.
    fn tail_number(&self, node: u64, marker: u16) -> u32 {
        let behind_runs = (node >> 32) as usize + run_count(node) as usize;
        let at = behind_runs + 2 * usize::from(marker & 31);
        let low = self.values.at(at).load(Ordering::Relaxed);
        let high = self.values.at(at + 1).load(Ordering::Relaxed);
        // The mask matters only to a batch that will be repeated anyway because it read reused memory.
        (u32::from(high) << 16 | u32::from(low)) & ((1 << (TAILS_LOG2 - 3)) - 1)
    }
}

impl Lpm<u32> for Fib4 {
    fn lookup(&self, address: u32) -> NextHopId {
        self.generation.read(|| self.resolve(address))
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopId]) {
        self.lookup_batch_with(self.kernel, addresses, next_hops);
    }

    fn memory_bytes(&self) -> usize {
        (8 << ROOT_BITS) + self.values_touched.bytes() + self.tails_touched.bytes()
    }
}

/// The number of values of a node's slots.
fn run_count(node: u64) -> u32 {
    (node & BITMAP).count_ones() + 1
}

/// The writer's half of [`Fib4`].
pub struct Fib4Table {
    fib: Arc<Fib4>,
    values: Pool,
    tails: Pool,
    /// Scratch space of the painter: the slots of a root node, and those of a tail.
    slots: Runs,
    tail_slots: Runs,
}

impl Fib4Table {
    /// Makes one root node answer like the routes below a node of theirs.
    fn refresh_node(
        &mut self,
        routes: &BinaryTrie<u32>,
        index: usize,
        (trie_node, inherited): (u32, NextHopId),
    ) -> Result<(), LpmError> {
        self.slots.paint(routes, trie_node, inherited, 5);
        let fib = Arc::clone(&self.fib);
        let word = fib.root.at(index);
        let old = word.load(Ordering::Relaxed);
        let deep = std::mem::take(&mut self.slots.deep);
        let result = if deep.is_empty() {
            self.refresh_flat(word, old)
        } else {
            self.tails_of(routes, &deep).and_then(|tails| {
                let new = self.write_runs(&self.slots.runs.clone(), &tails).inspect_err(|_| {
                    tails.iter().for_each(|&tail| self.release_tail(tail));
                })?;
                word.store(new, Ordering::Release);
                self.release_node(old);
                Ok(())
            })
        };
        self.slots.deep = deep;
        fib.values_touched.set(self.values.top() * 2);
        fib.tails_touched.set(self.tails.top() * TAIL_NODES as usize * 8);
        result
    }

    /// Makes root nodes answer the same for all their addresses.
    fn fill(&mut self, nodes: RangeInclusive<usize>, answer: NextHopId) {
        let fib = Arc::clone(&self.fib);
        let new = u64::from(answer) << 32;
        for word in nodes.map(|index| fib.root.at(index)) {
            let old = word.load(Ordering::Relaxed);
            if old != new {
                word.store(new, Ordering::Release);
                self.release_node(old);
            }
        }
    }

    /// A node without tails: updated in place if the runs have not moved.
    fn refresh_flat(&mut self, word: &AtomicU64, old: u64) -> Result<(), LpmError> {
        let bitmap = bitmap_of(&self.slots.runs);
        if bitmap != 0 && bitmap == old & BITMAP && !self.has_tails(old) {
            for (&(_, value), at) in self.slots.runs.iter().zip(base_of(old)..) {
                // Each address reads one of these words, so each sees the old or the new answer.
                self.fib.values.at(at).store(value as u16, Ordering::Relaxed);
            }
            return Ok(());
        }
        let runs = std::mem::take(&mut self.slots.runs);
        let new = self.write_runs(&runs, &[]);
        self.slots.runs = runs;
        let new = new?;
        if new != old {
            word.store(new, Ordering::Release);
            self.release_node(old);
        }
        Ok(())
    }

    /// Writes tails for the deep slots of the node being painted.
    fn tails_of(&mut self, routes: &BinaryTrie<u32>, deep: &[(u32, u16)]) -> Result<Vec<u32>, LpmError> {
        let mut tails = Vec::with_capacity(deep.len());
        for &(node, inherited) in deep {
            self.tail_slots.paint(routes, node, inherited, 8);
            match self.write_tail() {
                Ok(tail) => tails.push(tail),
                Err(error) => {
                    tails.iter().for_each(|&tail| self.release_tail(tail));
                    return Err(error);
                }
            }
        }
        Ok(tails)
    }

    fn write_tail(&mut self) -> Result<u32, LpmError> {
        let tail = self.tails.allocate(1, &self.fib.generation)?;
        let runs = std::mem::take(&mut self.tail_slots.runs);
        let mut result = Ok(tail);
        for group in 0..TAIL_NODES {
            let first = group * 32;
            // The run that covers the group's first slot, and those that begin inside the group.
            let covering = runs.partition_point(|&(start, _)| start <= first) - 1;
            let inside = runs[covering..].iter().take_while(|&&(start, _)| start < first + 32);
            let part: Vec<_> = inside.map(|&(start, value)| (start.saturating_sub(first), value)).collect();
            let node = self.write_runs(&part, &[]).unwrap_or_else(|error| {
                result = Err(error);
                0
            });
            self.fib.tails.at((tail * TAIL_NODES + group) as usize).store(node, Ordering::Relaxed);
        }
        self.tail_slots.runs = runs;
        if result.is_err() {
            self.release_tail(tail);
        }
        result
    }

    /// Writes the values of a node to memory that readers do not reach, and returns the node.
    fn write_runs(&mut self, runs: &[(u32, u32)], tails: &[u32]) -> Result<u64, LpmError> {
        if let ([(_, value)], []) = (runs, tails) {
            return Ok(u64::from(*value) << 32);
        }
        let size = runs.len() + 2 * tails.len();
        let base = self.values.allocate(size as u32, &self.fib.generation)?;
        let mut at = base as usize;
        let mut put = |value: u16| {
            self.fib.values.at(at).store(value, Ordering::Relaxed);
            at += 1;
        };
        for &(_, value) in runs {
            put(if value & DEEP != 0 { TAIL | (value & 31) as u16 } else { value as u16 });
        }
        for &tail in tails {
            put(tail as u16);
            put((tail >> 16) as u16);
        }
        Ok(u64::from(base) << 32 | bitmap_of(runs))
    }

    /// Releases the memory of a node that readers cannot reach any more.
    fn release_node(&mut self, node: u64) {
        let runs = run_count(node);
        if base_of(node) < IDENTITY {
            return;
        }
        let mut size = runs;
        for at in (base_of(node)..).take(runs as usize) {
            let value = self.fib.values.at(at).load(Ordering::Relaxed);
            if value & TAIL != 0 {
                size += 2;
                self.release_tail(self.fib.tail_number(node, value));
            }
        }
        self.values.release((node >> 32) as u32, size, &self.fib.generation);
    }

    fn release_tail(&mut self, tail: u32) {
        for group in 0..TAIL_NODES {
            let node = self.fib.tails.at((tail * TAIL_NODES + group) as usize).load(Ordering::Relaxed);
            self.release_node(node);
        }
        self.tails.release(tail, 1, &self.fib.generation);
    }

    fn has_tails(&self, node: u64) -> bool {
        (base_of(node)..)
            .take(run_count(node) as usize)
            .any(|at| self.fib.values.at(at).load(Ordering::Relaxed) & TAIL != 0)
    }
}

fn base_of(node: u64) -> usize {
    (node >> 32) as usize
}

fn bitmap_of(runs: &[(u32, u32)]) -> u64 {
    runs[1..].iter().fold(0, |bitmap, &(start, _)| bitmap | 1 << (start - 1))
}

impl Table for Fib4Table {
    type Address = u32;
    type Shared = Fib4;

    const PIECE_BITS: Option<u8> = Some(ROOT_BITS);

    fn create() -> Result<Self, LpmError> {
        Ok(Self {
            fib: Arc::new(Fib4::new()?),
            values: Pool::new("answer values", (1 << VALUES_LOG2) - 128, IDENTITY),
            tails: Pool::new("/24s with longer prefixes", 1 << (TAILS_LOG2 - 3), 0),
            slots: Runs::default(),
            tail_slots: Runs::default(),
        })
    }

    fn shared(&self) -> &Arc<Fib4> {
        &self.fib
    }

    fn refresh(&mut self, routes: &BinaryTrie<u32>, prefix: Prefix<u32>) -> Result<(), LpmError> {
        let (mut index, last) = blocks(prefix, ROOT_BITS);
        while index <= last {
            let (node, inherited, depth) = routes.descend_or_gap((index as u32) << 13, ROOT_BITS);
            // Below short prefixes, the default route above all, most of the address space is such a gap.
            let end = if node == NONE { last.min(index | ((1 << (ROOT_BITS - depth)) - 1)) } else { index };
            match node {
                NONE => self.fill(index..=end, inherited),
                node => self.refresh_node(routes, index, (node, inherited))?,
            }
            index = end + 1;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.values.memory_bytes() + self.tails.memory_bytes()
    }
}
