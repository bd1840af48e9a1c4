//! Prefixes that no network has. RFC 4271 6.3 wants them logged and ignored, because nothing may be routed to them
//! (RFC 1122 3.2.1.3, RFC 5735, RFC 4291).
//!
//! These are `0.0.0.0/8`, `127.0.0.0/8`, `224.0.0.0/3` (multicast and the reserved class E); `::/96` (unspecified,
//! loopback, IPv4-compatible), `::ffff:0:0/96`, `fe80::/10`, `ff00::/8`; and all prefixes within them. A shorter
//! prefix that includes some of their addresses, such as the default route, is not a martian.

use thalweg_base::{IpPrefix, Prefix};

/// Whether no network may have the prefix.
pub fn is_martian(prefix: IpPrefix) -> bool {
    match prefix {
        IpPrefix::V4(prefix) => is_martian_v4(prefix),
        IpPrefix::V6(prefix) => is_martian_v6(prefix),
    }
}

#[inline]
pub(super) fn is_martian_v4(prefix: Prefix<u32>) -> bool {
    // The first byte alone clears nearly all prefixes.
    let first = prefix.address() >> 24;
    match first {
        1..=126 | 128..=223 => false,
        0 | 127 => prefix.length() >= 8,
        _ => prefix.length() >= 3,
    }
}

#[inline]
pub(super) fn is_martian_v6(prefix: Prefix<u128>) -> bool {
    let (address, length) = (prefix.address(), prefix.length());
    match (address >> 120) as u8 {
        0x01..=0xfd => false,
        0x00 => length >= 96 && matches!(address >> 32, 0 | 0xffff),
        0xfe => length >= 10 && address >> 118 == 0xfe80 >> 6,
        0xff => length >= 8,
    }
}

#[cfg(test)]
mod tests {
    use super::is_martian;

    #[test]
    fn what_lies_within_and_what_only_touches() {
        let martians = [
            "0.0.0.0/8",
            "0.1.0.0/16",
            "127.0.0.0/8",
            "127.0.0.1/32",
            "224.0.0.0/3",
            "224.0.0.0/4",
            "239.1.1.0/24",
            "240.0.0.0/4",
            "255.255.255.255/32",
            "::/96",
            "::/128",
            "::1/128",
            "::7f00:1/128",
            "::ffff:0:0/96",
            "::ffff:192.0.2.0/120",
            "fe80::/10",
            "fe80::1/128",
            "febf::/16",
            "ff00::/8",
            "ff02::1/128",
        ];
        for text in martians {
            assert!(is_martian(text.parse().expect(text)), "{text}");
        }
        let networks = [
            "0.0.0.0/0",
            "0.0.0.0/1",
            "0.0.0.0/7",
            "1.0.0.0/8",
            "126.0.0.0/7",
            "128.0.0.0/1",
            "192.0.0.0/2",
            "223.255.255.0/24",
            "10.0.0.0/8",
            "169.254.0.0/16",
            "::/0",
            "::/3",
            "::/95",
            "64:ff9b::/96",
            "100::/64",
            "2000::/3",
            "2001:db8::/32",
            "fc00::/7",
            "fec0::/10",
            "fe00::/9",
            "fe00::/7",
        ];
        for text in networks {
            assert!(!is_martian(text.parse().expect(text)), "{text}");
        }
    }
}
