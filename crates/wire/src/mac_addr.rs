//! MAC addresses (IEEE 802, clause 8): one type and one text format.

use std::fmt;
use std::str::FromStr;

/// A MAC address. Its text is six pairs of lower-case hexadecimal digits with colons; hyphens and capitals
/// are accepted too.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All neighbors on a link.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// Used where an address is unknown.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether it is a multicast or broadcast address.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it addresses all neighbors.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == Self::BROADCAST.to_u64()
    }

    /// Whether one neighbor may have it: it is neither a group address nor zero.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        !self.is_group() && self.to_u64() != 0
    }

    /// The address as a number, for atomics; the first byte is the highest.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The inverse of [`to_u64`](Self::to_u64).
    #[inline]
    pub const fn from_u64(number: u64) -> Self {
        let [_, _, bytes @ ..] = number.to_be_bytes();
        Self(bytes)
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for MacAddr {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Compares with a field of a frame.
impl PartialEq<MacAddr> for [u8] {
    fn eq(&self, address: &MacAddr) -> bool {
        *self == address.0
    }
}

impl TryFrom<&[u8]> for MacAddr {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a MAC address, such as \"02:00:00:00:00:01\"")]
pub struct MacAddrError;

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            // `from_str_radix` would accept a sign.
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or(MacAddrError)?, 16).map_err(|_| MacAddrError)?;
        }
        if parts.next().is_some() { Err(MacAddrError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_of_addresses() {
        let unicast = MacAddr([2, 0, 0x5e, 0, 0, 0xff]);
        assert!(unicast.is_unicast() && !unicast.is_group() && !unicast.is_broadcast());
        let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
        assert!(group.is_group() && !group.is_unicast() && !group.is_broadcast());
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_group());
        assert!(!MacAddr::ZERO.is_unicast() && !MacAddr::ZERO.is_group());
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        assert_eq!("02:00:5e:00:00:Ff".parse(), Ok(MacAddr([2, 0, 0x5e, 0, 0, 0xff])));
        assert_eq!("02-00-5e-00-00-ff".parse(), Ok(MacAddr([2, 0, 0x5e, 0, 0, 0xff])));
        for bad in [
            "",
            "02:00:5e:00:00",
            "02:00:5e:00:00:01:02",
            "02:00:5e:00:00:1",
            "02:00:5e:00:00:+1",
            "020:0:5e:00:00:01",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(MacAddrError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_and_number_come_back(bytes: [u8; 6]) {
            let address = MacAddr(bytes);
            prop_assert_eq!(address.to_string(), bytes.map(|byte| format!("{byte:02x}")).join(":"));
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            prop_assert_eq!(MacAddr::from_u64(address.to_u64()), address);
        }
    }
}
