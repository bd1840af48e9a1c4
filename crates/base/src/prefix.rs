//! IP addresses as numbers, and prefixes of them, for forwarding tables, routing tables and wire formats.

use std::fmt::{self, Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};

mod sealed {
    /// Limits the address traits to these two types.
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An address as a number in host byte order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: sealed::Sealed + Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    const BITS: u8;

    /// The bit at `index`, counted from the most significant; `index` is below [`Self::BITS`].
    fn bit(self, index: u8) -> usize;

    /// The address with all but its first `length` bits zero.
    fn truncate(self, length: u8) -> Self;

    /// The address right-aligned in 128 bits.
    fn to_u128(self) -> u128;

    /// Keeps the low bits.
    fn from_u128(value: u128) -> Self;

    fn to_ip(self) -> IpAddr;
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

    fn to_ip(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(self))
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

    fn to_ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self))
    }
}

/// A prefix longer than its address family has bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prefix length {length} is above {max}")]
pub struct LengthOutOfRange {
    pub length: u8,
    pub max: u8,
}

/// A prefix of one family: an address whose bits beyond `length` are zero. Prefixes sort by address, then
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix of `length` bits that contains `address`.
    #[inline]
    pub fn new(address: A, length: u8) -> Result<Self, LengthOutOfRange> {
        if length > A::BITS {
            return Err(LengthOutOfRange { length, max: A::BITS });
        }
        Ok(Self { address: address.truncate(length), length })
    }

    /// The first address of the prefix.
    #[inline]
    pub fn address(self) -> A {
        self.address
    }

    /// The number of fixed bits.
    #[inline]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether the prefix contains `address`.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        address.truncate(self.length) == self.address
    }

    /// Whether `other` is this prefix or lies inside it.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        other.length >= self.length && self.contains(other.address)
    }
}

impl<A: Address> Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.to_ip(), self.length)
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

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    V4(Prefix<u32>),
    V6(Prefix<u128>),
}

impl IpPrefix {
    /// The host prefix of an address: /32 or /128.
    pub fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(Prefix { address: address.into(), length: 32 }),
            IpAddr::V6(address) => Self::V6(Prefix { address: address.into(), length: 128 }),
        }
    }

    /// Whether this prefix contains `address`; false across families.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.into()),
            (Self::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.into()),
            _ => false,
        }
    }

    /// Whether this prefix contains every address of `other`.
    pub fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::V4(outer), Self::V4(inner)) => outer.covers(inner),
            (Self::V6(outer), Self::V6(inner)) => outer.covers(inner),
            _ => false,
        }
    }

    /// The number of fixed bits.
    pub fn length(self) -> u8 {
        match self {
            Self::V4(prefix) => prefix.length(),
            Self::V6(prefix) => prefix.length(),
        }
    }

    /// The first address of the prefix.
    pub fn address(self) -> IpAddr {
        match self {
            Self::V4(prefix) => prefix.address().to_ip(),
            Self::V6(prefix) => prefix.address().to_ip(),
        }
    }
}

impl From<Prefix<u32>> for IpPrefix {
    fn from(prefix: Prefix<u32>) -> Self {
        Self::V4(prefix)
    }
}

impl From<Prefix<u128>> for IpPrefix {
    fn from(prefix: Prefix<u128>) -> Self {
        Self::V6(prefix)
    }
}

impl Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => Display::fmt(prefix, f),
            Self::V6(prefix) => Display::fmt(prefix, f),
        }
    }
}

/// What is wrong with the text of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixTextError {
    /// No `/`, no address before it, or no number behind it.
    #[error("expected a prefix, such as 192.0.2.0/24 or 2001:db8::/32")]
    Shape,
    #[error(transparent)]
    Length(LengthOutOfRange),
    /// Bits beyond the length are set; carries the prefix that contains the address.
    #[error("bits beyond the prefix length are set; the prefix is {0}")]
    HostBits(IpPrefix),
}

impl FromStr for IpPrefix {
    type Err = PrefixTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, length) = text.split_once('/').ok_or(PrefixTextError::Shape)?;
        let address: IpAddr = address.parse().map_err(|_| PrefixTextError::Shape)?;
        if length.is_empty() || length.len() > 3 || !length.bytes().all(|b| b.is_ascii_digit()) {
            return Err(PrefixTextError::Shape);
        }
        let length = length.parse::<u16>().map_err(|_| PrefixTextError::Shape)?.min(255) as u8;
        let prefix = match address {
            IpAddr::V4(v4) => Prefix::new(u32::from(v4), length).map(IpPrefix::V4),
            IpAddr::V6(v6) => Prefix::new(u128::from(v6), length).map(IpPrefix::V6),
        }
        .map_err(PrefixTextError::Length)?;
        if prefix.address() != address {
            return Err(PrefixTextError::HostBits(prefix));
        }
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_prefix_say_the_same(address: u128, length in 0u8..=128, four: bool) {
            let prefix: IpPrefix = if four {
                Prefix::new(address as u32, length.min(32)).unwrap().into()
            } else {
                Prefix::new(address, length).unwrap().into()
            };
            prop_assert_eq!(prefix.to_string().parse::<IpPrefix>(), Ok(prefix));
        }

        #[test]
        fn covering_is_containing_both_ends(a: u32, b: u32, la in 0u8..=32, lb in 0u8..=32) {
            let (outer, inner) = (Prefix::new(a, la).unwrap(), Prefix::new(b, lb).unwrap());
            let last = inner.address() | !u32::MAX.checked_shl(32 - u32::from(lb)).unwrap_or(0);
            prop_assert_eq!(outer.covers(inner), lb >= la && outer.contains(inner.address()) && outer.contains(last));
        }
    }

    #[test]
    fn wrong_text_is_named() {
        assert_eq!("192.0.2.0".parse::<IpPrefix>(), Err(PrefixTextError::Shape));
        assert_eq!("192.0.2.0/+4".parse::<IpPrefix>(), Err(PrefixTextError::Shape));
        assert_eq!(
            "192.0.2.0/33".parse::<IpPrefix>(),
            Err(PrefixTextError::Length(LengthOutOfRange { length: 33, max: 32 }))
        );
        let inside = Prefix::new(0xc000_0200_u32, 24).unwrap().into();
        assert_eq!("192.0.2.1/24".parse::<IpPrefix>(), Err(PrefixTextError::HostBits(inside)));
    }
}
