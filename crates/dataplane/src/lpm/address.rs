//! The blocks of a table that a prefix covers.

use thalweg_base::{Address, Prefix};

/// The first and last number of the `bits`-bit blocks that the prefix touches: for a long prefix, the one block
/// that contains it.
#[inline]
pub(super) fn blocks<A: Address>(prefix: Prefix<A>, bits: u8) -> (usize, usize) {
    let first = (prefix.address().to_u128() >> (A::BITS - bits)) as usize;
    (first, first + (1_usize << bits.saturating_sub(prefix.length())) - 1)
}
