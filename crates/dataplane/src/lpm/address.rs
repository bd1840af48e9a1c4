//! What the tables need to know of an address: its width and its bits, most significant first.

use super::LpmError;
use ipnet::{Ipv4Net, Ipv6Net};
use std::fmt::Debug;
use std::hash::Hash;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An address as a number in host byte order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: sealed::Sealed + Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// Width in bits.
    const BITS: u8;

    /// The bit at `index`, counted from the most significant; `index` is below [`Self::BITS`].
    fn bit(self, index: u8) -> usize;

    /// The address with all but its first `length` bits zero.
    fn truncate(self, length: u8) -> Self;

    /// The address as a number of 128 bits, right-aligned.
    fn to_u128(self) -> u128;

    /// The lower bits of a number.
    fn from_u128(value: u128) -> Self;
}

impl Address for u32 {
    const BITS: u8 = 32;

    #[inline]
    fn bit(self, index: u8) -> usize {
        (self >> (31 - index) & 1) as usize
    }

    #[inline]
    fn truncate(self, length: u8) -> Self {
        self & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
    }

    #[inline]
    fn to_u128(self) -> u128 {
        u128::from(self)
    }

    #[inline]
    fn from_u128(value: u128) -> Self {
        value as u32
    }
}

impl Address for u128 {
    const BITS: u8 = 128;

    #[inline]
    fn bit(self, index: u8) -> usize {
        (self >> (127 - index) & 1) as usize
    }

    #[inline]
    fn truncate(self, length: u8) -> Self {
        self & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
    }

    #[inline]
    fn to_u128(self) -> u128 {
        self
    }

    #[inline]
    fn from_u128(value: u128) -> Self {
        value
    }
}

/// A prefix: an address whose bits behind `length` are zero. Made from `ipnet`'s types with `into()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of `length` bits that `address` lies in.
    pub fn new(address: A, length: u8) -> Result<Self, LpmError> {
        if length > A::BITS {
            return Err(LpmError::LengthOutOfRange { length, max: A::BITS });
        }
        Ok(Self { address: address.truncate(length), length })
    }

    /// The first address of the prefix.
    #[inline]
    pub fn address(self) -> A {
        self.address
    }

    /// How many bits are fixed.
    #[inline]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether `address` lies in the prefix.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        address.truncate(self.length) == self.address
    }

    /// The first and last number of the `bits`-bit blocks that the prefix touches: for a long prefix
    /// the one block it lies in.
    #[inline]
    pub(super) fn blocks(self, bits: u8) -> (usize, usize) {
        let first = (self.address.to_u128() >> (A::BITS - bits)) as usize;
        (first, first + (1_usize << bits.saturating_sub(self.length)) - 1)
    }
}

impl From<Ipv4Net> for Prefix<u32> {
    fn from(net: Ipv4Net) -> Self {
        Self { address: u32::from(net.network()), length: net.prefix_len() }
    }
}

impl From<Ipv6Net> for Prefix<u128> {
    fn from(net: Ipv6Net) -> Self {
        Self { address: u128::from(net.network()), length: net.prefix_len() }
    }
}
