//! Longest-prefix match: finds the next hop of an address.
//!
//! One interface, [`Lpm`], and several structures behind it, each with its own purpose:
//!
//! | structure | addresses | idea | loads per look-up |
//! |---|---|---|---|
//! | [`BinaryTrie`] | both | one node per prefix bit; the source from which the others are painted | up to 32 / 128 |
//! | [`Dir24`] | IPv4 | one array indexed by the top 24 bits, 256-slot blocks below it | 1, rarely 2 |
//! | [`Fib4`] | IPv4 | 8-byte nodes, each 32 /24s as a bitmap and a run of values | 2 |
//! | [`Fib6`] | IPv6 | two arrays to /32, then trees whose nodes are cache lines of sorted keys | 2 to 5 |
//!
//! The router uses [`Fib4`] and [`Fib6`]; [`Dir24`] is the classic structure for comparison, and faster than
//! [`Fib4`] if a few destinations have most of the traffic.
//!
//! # Readers and the writer
//!
//! Any number of readers share a table by reference, and one [`Writer`] changes it. Readers take no lock and write
//! nothing. This is correct because:
//!
//! 1. Everything a reader follows is an atomic word in memory that stays mapped and keeps its type as long as the
//!    table lives, so a stale index leads to stale data, never outside.
//! 2. A changed piece is written to unused memory and published by one atomic store. A look-up passes through each
//!    such word once, so it sees the piece before or after the change.
//! 3. Replaced pieces go to a limbo list. Before the writer reuses them it raises the table's *reuse generation*;
//!    readers load it before and after each batch and repeat the batch if it changed. The writer collects at least
//!    a thousand pieces first, so a repeat is rare, and its cost is one batch.
//!
//! Point 3 is an inverted sequence lock: it does not guard changes (those are atomic by point 2) but only the reuse
//! of memory. See `arena.rs` for the orderings.
//!
//! Each look-up returns the route before or after an update. A batch does not see all of an update at once: while
//! `10.0.0.0/8` is inserted, parts of it are switched one after another.
//!
//! # Missing
//!
//! One writer per table, which holds the routes ([`BinaryTrie`]) as well. Next hops are numbers; their meaning
//! (interface, gateway, ECMP group) is the caller's. No VRFs: make more tables.

mod address;
mod arena;
mod dir24;
mod fib4;
mod fib6;
mod trie;
pub mod workload;
mod writer;

#[cfg(test)]
mod tests;

pub use dir24::{Dir24, Dir24Table};
pub use fib4::{Fib4, Fib4Table};
pub use fib6::{Fib6, Fib6Table};
pub use thalweg_base::{Address, Prefix};
pub use trie::BinaryTrie;
pub use writer::{Table, Writer};

/// Writes a [`Fib4`].
pub type Fib4Writer = Writer<Fib4Table>;
/// Writes a [`Fib6`].
pub type Fib6Writer = Writer<Fib6Table>;
/// Writes a [`Dir24`].
pub type Dir24Writer = Writer<Dir24Table>;

use thalweg_base::LengthOutOfRange;

/// The number of a next hop; [`NO_ROUTE`] says that no prefix covers the address.
pub type NextHopId = u16;

/// The answer for an address that no prefix covers.
pub const NO_ROUTE: NextHopId = 0;

/// The greatest next hop number a route may carry. The upper half is used inside the structures.
pub const NEXT_HOP_MAX: NextHopId = 0x7fff;

/// A table that finds the most specific prefix of an address.
pub trait Lpm<A: Address>: Send + Sync {
    /// The next hop of the longest prefix that covers `address`, or [`NO_ROUTE`].
    fn lookup(&self, address: A) -> NextHopId;

    /// Looks up many addresses: `next_hops[i]` becomes the answer for `addresses[i]`, up to the length of the
    /// shorter slice. Any length works; 64 to 256 is efficient.
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [NextHopId]) {
        for (address, next_hop) in addresses.iter().zip(next_hops) {
            *next_hop = self.lookup(*address);
        }
    }

    /// Bytes of memory the structure occupies, without the writer's routes.
    fn memory_bytes(&self) -> usize;
}

thalweg_base::words! {
    /// The code with which a table processes batches. All kernels give the same answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kernel {
        /// Plain Rust for any processor.
        Portable => "portable",
        /// The same, compiled for processors with BMI2, POPCNT and AVX2; key compares use AVX2.
        Avx2 => "avx2",
        /// AVX-512 (F, BW, DQ, VL, VPOPCNTDQ).
        Avx512 => "avx512",
    }
}

impl Kernel {
    /// The last of [`Self::ALL`] that this processor can run.
    pub fn best() -> Kernel {
        let kernel = Self::ALL.into_iter().rev().find(|kernel| kernel.is_supported());
        kernel.unwrap_or(Kernel::Portable)
    }

    /// Whether this processor can run the kernel.
    pub fn is_supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("popcnt");
            match self {
                Kernel::Portable => true,
                Kernel::Avx2 => avx2,
                Kernel::Avx512 => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                        && is_x86_feature_detected!("avx512vpopcntdq")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Kernel::Portable
        }
    }
}

/// Why a route was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LpmError {
    /// The next hop is [`NO_ROUTE`] or above [`NEXT_HOP_MAX`].
    #[error("next hop {next_hop} is outside 1..={NEXT_HOP_MAX}")]
    NextHopOutOfRange {
        /// The number given.
        next_hop: NextHopId,
    },
    /// The prefix is longer than the addresses are.
    #[error("prefix length {length} is above {max}")]
    LengthOutOfRange {
        /// The length given.
        length: u8,
        /// The greatest length there is.
        max: u8,
    },
    /// The named part of the structure is full; the table is unchanged.
    #[error("no room left in the table's {capacity} {part}")]
    Full {
        part: &'static str,
        /// Its size in units.
        capacity: usize,
    },
    /// The operating system refused memory.
    #[error("no memory for {bytes} bytes of table")]
    OutOfMemory {
        /// The amount requested.
        bytes: usize,
    },
}

impl From<LengthOutOfRange> for LpmError {
    fn from(LengthOutOfRange { length, max }: LengthOutOfRange) -> Self {
        Self::LengthOutOfRange { length, max }
    }
}
