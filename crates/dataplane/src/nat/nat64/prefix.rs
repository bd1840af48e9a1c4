//! IPv6 addresses that stand for IPv4 addresses (RFC 6052).

use ipnet::Ipv6Net;

/// A prefix under which IPv6 hosts reach IPv4 hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat64Prefix {
    bits: u128,
    length: u8,
}

/// The byte of an address that stays zero (RFC 6052 2.2).
const ZERO_BYTE: usize = 8;

impl Nat64Prefix {
    /// The well-known prefix.
    pub const WELL_KNOWN: Self = Self { bits: 0x0064_ff9b << 96, length: 96 };

    /// The prefix, if its length is one of the six and bits 64 to 71 are zero.
    pub fn new(net: Ipv6Net) -> Option<Self> {
        let (bits, length) = (u128::from(net.network()), net.prefix_len());
        let is_one_of_six = matches!(length, 32 | 40 | 48 | 56 | 64 | 96);
        (is_one_of_six && bits >> 56 & 0xff == 0).then_some(Self { bits, length })
    }

    /// The prefix as a network.
    pub fn network(&self) -> Ipv6Net {
        Ipv6Net::new(self.bits.into(), self.length).unwrap_or_default()
    }

    /// The address that stands for an IPv4 address.
    pub fn embed(&self, address: u32) -> u128 {
        let mut bytes = self.bits.to_be_bytes();
        for (at, byte) in self.places().zip(address.to_be_bytes()) {
            bytes[at] = byte;
        }
        u128::from_be_bytes(bytes)
    }

    /// The IPv4 address that an address stands for, if it has the prefix.
    pub fn extract(&self, address: u128) -> Option<u32> {
        if (address ^ self.bits) >> (128 - self.length) != 0 {
            return None;
        }
        let bytes = address.to_be_bytes();
        Some(self.places().fold(0, |address, at| address << 8 | u32::from(bytes[at])))
    }

    /// Whether an IPv4 address may not be translated: the well-known prefix stands for global addresses only (RFC 6052
    /// 3.1).
    pub fn forbids(&self, address: u32) -> bool {
        *self == Self::WELL_KNOWN && !is_global(address)
    }

    /// The bytes of an address that hold the IPv4 address.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        (usize::from(self.length / 8)..).filter(|at| *at != ZERO_BYTE).take(4)
    }
}

/// Networks whose addresses are not global: RFC 1918, RFC 5735 section 3 and, since, RFC 6598.
const NOT_GLOBAL: [(u32, u8); 15] = [
    (0x0000_0000, 8),
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0x7f00_0000, 8),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc000_0200, 24),
    (0xc058_6300, 24),
    (0xc0a8_0000, 16),
    (0xc612_0000, 15),
    (0xc633_6400, 24),
    (0xcb00_7100, 24),
    (0xe000_0000, 4),
    (0xf000_0000, 4),
];

fn is_global(address: u32) -> bool {
    NOT_GLOBAL.iter().all(|(network, length)| (address ^ network) >> (32 - length) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn prefix(text: &str) -> Nat64Prefix {
        Nat64Prefix::new(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn rfc6052_2_4_text_representation() {
        for (net, expected) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let (prefix, address) = (prefix(net), u32::from(Ipv4Addr::new(192, 0, 2, 33)));
            let expected: Ipv6Addr = expected.parse().unwrap();
            assert_eq!(Ipv6Addr::from(prefix.embed(address)), expected, "{net}");
            assert_eq!(prefix.extract(expected.into()), Some(address), "{net}");
            assert_eq!(prefix.network().to_string(), net);
        }
        assert_eq!(prefix("64:ff9b::/96"), Nat64Prefix::WELL_KNOWN);
    }

    #[test]
    fn rfc6052_2_2_prefixes() {
        for refused in ["2001:db8::/33", "2001:db8::/128", "::/0", "2001:db8:0:0:100::/96"] {
            assert_eq!(Nat64Prefix::new(refused.parse().unwrap()), None, "{refused}");
        }
    }

    #[test]
    fn rfc6052_3_1_the_well_known_prefix_stands_for_global_addresses() {
        for (address, is_forbidden) in [
            ([10, 1, 2, 3], true),
            ([172, 31, 255, 255], true),
            ([172, 32, 0, 0], false),
            ([192, 168, 1, 1], true),
            ([192, 0, 2, 33], true),
            ([198, 19, 0, 1], true),
            ([224, 0, 0, 1], true),
            ([255, 255, 255, 255], true),
            ([8, 8, 8, 8], false),
            ([1, 1, 1, 1], false),
        ] {
            let address = u32::from_be_bytes(address);
            assert_eq!(Nat64Prefix::WELL_KNOWN.forbids(address), is_forbidden);
            assert!(!prefix("2001:db8:64::/96").forbids(address));
        }
    }

    proptest! {
        #[test]
        fn what_is_embedded_is_extracted(network: u128, length in 0usize..6, address: u32, other: u128) {
            let length = [32, 40, 48, 56, 64, 96][length];
            let network = network & !(0xff << 56);
            let prefix = Nat64Prefix::new(ipnet::Ipv6Net::new(network.into(), length).unwrap().trunc()).unwrap();
            let embedded = prefix.embed(address);
            prop_assert_eq!(prefix.extract(embedded), Some(address));
            prop_assert_eq!(embedded >> 56 & 0xff, 0);
            prop_assert_eq!(prefix.extract(other).is_some(), prefix.network().contains(&std::net::Ipv6Addr::from(other)));
        }
    }
}
