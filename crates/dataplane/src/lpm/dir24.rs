//! DIR-24-8: one array indexed by the first 24 bits, and blocks of 256 below it (Gupta, Lin, McKeown,
//! INFOCOM 1998).
//!
//! ```text
//! top[address >> 8]:  0nnn nnnn nnnn nnnn   next hop n
//!                     1bbb bbbb bbbb bbbb   tails[b * 256 + (address & 255)] is the next hop
//! ```
//!
//! One load in nearly all cases, of 32 MiB of `u16`: more than second-level caches hold, so addresses
//! without locality pay a third-level or memory access each. Kept as the yardstick for
//! [`Fib4`](super::Fib4), and because it is hard to beat where traffic is local.
//!
//! Updates store into the array in place, word by word. A tail block whose /24 keeps longer prefixes is
//! stored into in place as well; a block no longer needed goes through limbo (see `arena.rs`).
//! At most 32,768 /24s can have longer prefixes.

use super::address::blocks;
use super::arena::{Generation, Pool, Region, Touched};
use super::trie::BinaryTrie;
use super::writer::{DEEP, Runs, Table};
use super::{Address, Kernel, Lpm, LpmError, NEXT_HOP_MAX, NextHopId, Prefix};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

#[cfg(target_arch = "x86_64")]
mod x86;

const TOP_BITS: u8 = 24;
const TAILS_LOG2: u32 = 23;
const TAIL: u16 = 0x8000;

/// IPv4 look-ups with one load from 32 MiB. See the module's text; written by
/// [`Dir24Writer`](super::Dir24Writer).
pub struct Dir24 {
    top: Region<AtomicU16, { TOP_BITS as u32 }>,
    tails: Region<AtomicU16, TAILS_LOG2>,
    generation: Generation,
    tails_touched: Touched,
    kernel: Kernel,
}

impl Dir24 {
    /// [`Lpm::lookup_batch`] with a chosen kernel; one that the processor lacks falls back to [`Kernel::Portable`].
    /// AVX-512 would gain nothing over AVX2 here, because it is all loads.
    pub fn lookup_batch_with(&self, kernel: Kernel, addresses: &[u32], next_hops: &mut [NextHopId]) {
        let count = addresses.len().min(next_hops.len());
        let (addresses, next_hops) = (&addresses[..count], &mut next_hops[..count]);
        let kernel = if kernel == self.kernel || kernel.is_supported() { kernel } else { Kernel::Portable };
        self.generation.read(|| {
            let any = match kernel {
                #[cfg(target_arch = "x86_64")]
                Kernel::Avx2 | Kernel::Avx512 => x86::first_level_avx2(self, addresses, next_hops),
                _ => self.first_level(addresses, next_hops),
            };
            if any & TAIL != 0 {
                self.second_level(addresses, next_hops);
            }
        });
    }

    /// Answers from `top`; slots with a tail block get their marker. Returns the bitwise OR of all answers.
    #[inline(always)]
    fn first_level(&self, addresses: &[u32], next_hops: &mut [NextHopId]) -> NextHopId {
        let mut any = 0;
        for (&address, next_hop) in addresses.iter().zip(next_hops) {
            let value = self.top.at((address >> 8) as usize).load(Ordering::Acquire);
            *next_hop = value;
            any |= value;
        }
        any
    }

    /// Replaces the markers that [`Self::first_level`] left.
    #[cold]
    #[inline(never)]
    fn second_level(&self, addresses: &[u32], next_hops: &mut [NextHopId]) {
        for (&address, next_hop) in addresses.iter().zip(next_hops) {
            if *next_hop & TAIL != 0 {
                *next_hop = self.tail_value(*next_hop, address);
            }
        }
    }

    #[inline]
    fn tail_value(&self, marker: u16, address: u32) -> NextHopId {
        let block = usize::from(marker & NEXT_HOP_MAX);
        self.tails.at(block << 8 | (address & 255) as usize).load(Ordering::Relaxed)
    }
}

impl Lpm<u32> for Dir24 {
    fn lookup(&self, address: u32) -> NextHopId {
        self.generation.read(|| match self.top.at((address >> 8) as usize).load(Ordering::Acquire) {
            marker if marker & TAIL != 0 => self.tail_value(marker, address),
            next_hop => next_hop,
        })
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopId]) {
        self.lookup_batch_with(self.kernel, addresses, next_hops);
    }

    fn memory_bytes(&self) -> usize {
        (2 << TOP_BITS) + self.tails_touched.bytes()
    }
}

/// The writer's half of [`Dir24`].
pub struct Dir24Table {
    table: Arc<Dir24>,
    tails: Pool,
    slots: Runs,
    tail_slots: Runs,
}

impl Dir24Table {
    /// Sets `top[slot]` to `new`.
    fn set(&mut self, slot: usize, new: u16) {
        let word = self.table.top.at(slot);
        let old = word.load(Ordering::Relaxed);
        if old == new {
            return;
        }
        word.store(new, Ordering::Release);
        if old & TAIL != 0 {
            self.tails.release(u32::from(old & NEXT_HOP_MAX), 1, &self.table.generation);
        }
    }

    /// Fills the block of a /24 with longer prefixes, and points the slot to it.
    fn refresh_tail(
        &mut self,
        routes: &BinaryTrie<u32>,
        slot: usize,
        (node, inherited): (u32, NextHopId),
    ) -> Result<(), LpmError> {
        let old = self.table.top.at(slot).load(Ordering::Relaxed);
        let marker =
            if old & TAIL != 0 { old } else { TAIL | self.tails.allocate(1, &self.table.generation)? as u16 };
        self.tail_slots.paint(routes, node, inherited, 8);
        let first = usize::from(marker & NEXT_HOP_MAX) << 8;
        let ends = self.tail_slots.runs.iter().skip(1).map(|&(start, _)| start).chain([256]);
        for (&(start, value), end) in self.tail_slots.runs.iter().zip(ends) {
            for at in start..end {
                self.table.tails.at(first + at as usize).store(value as u16, Ordering::Relaxed);
            }
        }
        self.table.tails_touched.set(self.tails.top() * 512);
        self.set(slot, marker);
        Ok(())
    }
}

impl Table for Dir24Table {
    type Address = u32;
    type Shared = Dir24;

    fn create() -> Result<Self, LpmError> {
        let table = Dir24 {
            top: Region::new()?,
            tails: Region::new()?,
            generation: Generation::default(),
            tails_touched: Touched::default(),
            kernel: Kernel::best(),
        };
        Ok(Self {
            table: Arc::new(table),
            tails: Pool::new("/24s with longer prefixes", 1 << (TAILS_LOG2 - 8), 0),
            slots: Runs::default(),
            tail_slots: Runs::default(),
        })
    }

    fn shared(&self) -> &Arc<Dir24> {
        &self.table
    }

    fn refresh(&mut self, routes: &BinaryTrie<u32>, prefix: Prefix<u32>) -> Result<(), LpmError> {
        let depth = prefix.length().min(TOP_BITS);
        let (first, last) = blocks(prefix, TOP_BITS);
        let (node, inherited) = routes.descend(prefix.address().truncate(depth), depth);
        let mut slots = std::mem::take(&mut self.slots);
        slots.paint(routes, node, inherited, TOP_BITS - depth);
        let ends = slots.runs.iter().skip(1).map(|&(start, _)| start as usize).chain([last - first + 1]);
        let mut result = Ok(());
        for (&(start, value), end) in slots.runs.iter().zip(ends) {
            if value & DEEP != 0 {
                let deep = slots.deep[(value & !DEEP) as usize];
                result = self.refresh_tail(routes, first + start as usize, deep);
                if result.is_err() {
                    break;
                }
            } else {
                (start as usize..end).for_each(|slot| self.set(first + slot, value as u16));
            }
        }
        self.slots = slots;
        result
    }

    fn memory_bytes(&self) -> usize {
        self.tails.memory_bytes()
    }
}
