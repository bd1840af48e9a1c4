//! The notations inside configuration strings: addresses, rates, sizes, DSCP names, port ranges.
//!
//! The error of every parser is what it expected, phrased to follow "expected".

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use thalweg_base::IpPrefix;

use thalweg_wire::MacAddr;

type Expected = &'static str;

/// `02:00:00:00:00:01`, of a single neighbor.
pub(crate) fn mac(text: &str) -> Result<MacAddr, Expected> {
    const EXPECTED: Expected = "a unicast MAC address, such as \"02:00:00:00:00:01\"";
    text.parse().ok().filter(|address: &MacAddr| address.is_unicast()).ok_or(EXPECTED)
}

pub(crate) fn address(text: &str) -> Result<IpAddr, Expected> {
    text.parse().map_err(|_| "an IPv4 or IPv6 address")
}

pub(crate) fn address_v4(text: &str) -> Result<Ipv4Addr, Expected> {
    text.parse().map_err(|_| "an IPv4 address")
}

pub(crate) fn socket_v4(text: &str) -> Result<SocketAddrV4, Expected> {
    const EXPECTED: Expected = "an IPv4 address and port, such as \"192.168.1.10:80\"";
    text.parse().ok().filter(|to: &SocketAddrV4| to.port() != 0).ok_or(EXPECTED)
}

/// A router's own address with the prefix length of its network.
pub(crate) fn interface_address(text: &str) -> Result<IpNet, Expected> {
    let net: IpNet = text.parse().map_err(|_| "an address with prefix length, such as \"192.0.2.1/24\"")?;
    let is_reserved = |address: Ipv4Addr| address.octets()[0] == 0 || address.octets()[0] >= 240;
    if !is_unicast(net.addr()) || matches!(net, IpNet::V4(v4) if is_reserved(v4.addr())) {
        return Err("a unicast address, not loopback, multicast, unspecified or reserved");
    }
    if net.prefix_len() == 0 {
        return Err("the prefix length of the connected network, from 1");
    }
    if let IpNet::V4(v4) = net
        && v4.prefix_len() < 31
        && (v4.addr() == v4.network() || v4.addr() == v4.broadcast())
    {
        return Err("a host's address, not the network or broadcast address");
    }
    Ok(net)
}

/// Whether a single host can have this address.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_loopback() || address.is_multicast() || address.is_unspecified() || broadcast)
}

/// A prefix without bits beyond its length.
pub(crate) fn prefix(text: &str) -> Result<IpNet, Expected> {
    let net: IpNet = text.parse().map_err(|_| "a prefix, such as \"10.0.0.0/8\" or \"2001:db8::/32\"")?;
    if net.trunc() == net { Ok(net) } else { Err("a prefix without bits set beyond its length") }
}

/// A prefix in BGP's type.
pub(crate) fn bgp_prefix(text: &str) -> Result<IpPrefix, Expected> {
    text.parse().map_err(|_| "a prefix without bits set beyond its length, such as \"192.0.2.0/24\"")
}

/// `80` or `8080-8090`.
pub(crate) fn port_range(text: &str) -> Result<RangeInclusive<u16>, Expected> {
    const EXPECTED: Expected = "a port from 1 to 65535 or a range, such as \"8080-8090\"";
    let port = |part: &str| part.trim().parse::<u16>().ok().filter(|p| *p != 0).ok_or(EXPECTED);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = port(first)?..=port(last)?;
    if range.start() <= range.end() {
        Ok(range)
    } else {
        Err("a range whose first port is not above its last")
    }
}

/// Formats a range of ports.
pub fn ports_text(ports: &RangeInclusive<u16>) -> String {
    let (first, last) = (ports.start(), ports.end());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// The number of ports in a range.
pub(crate) fn count(ports: &RangeInclusive<u16>) -> u32 {
    (u32::from(*ports.end()) + 1).saturating_sub(u32::from(*ports.start()))
}

/// `2 Mbit/s` in bits per second; decimal prefixes.
pub(crate) fn rate(text: &str) -> Result<u64, Expected> {
    const EXPECTED: Expected = "a rate above zero, such as \"2 Mbit/s\", or bits per second as a number";
    const UNITS: &[(&str, u64)] = &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
    ];
    quantity(text, UNITS).filter(|rate| *rate > 0).ok_or(EXPECTED)
}

/// `64 KiB` in bytes.
pub(crate) fn size(text: &str) -> Result<u64, Expected> {
    const EXPECTED: Expected = "a size, such as \"64 KiB\", or bytes as a number";
    const UNITS: &[(&str, u64)] = &[
        ("B", 1),
        ("byte", 1),
        ("bytes", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    quantity(text, UNITS).ok_or(EXPECTED)
}

/// A decimal number and one of the units; `None` if it is not a whole number of the base unit.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let scale = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 12 {
        return None;
    }
    let power = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let parts = u128::from(whole.parse::<u64>().ok()?) * power + u128::from(fraction.parse::<u64>().ok()?);
    let scaled = parts.checked_mul(u128::from(scale))?;
    if scaled % power == 0 { u64::try_from(scaled / power).ok() } else { None }
}

/// DSCP names: class selectors (RFC 2474), assured forwarding (RFC 2597), expedited forwarding
/// (RFC 3246), voice admit (RFC 5865), lower effort (RFC 8622).
pub const DSCP_NAMES: &[(&str, u8)] = &[
    ("default", 0),
    ("be", 0),
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("va", 44),
];

pub(crate) fn dscp(text: &str) -> Option<u8> {
    DSCP_NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, value)| *value)
}

/// IP protocols by name (IANA assigned Internet protocol numbers).
pub(crate) const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("sctp", 132),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        assert_eq!(mac("02:00:5e:00:00:Ff"), Ok(MacAddr([2, 0, 0x5e, 0, 0, 0xff])));
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "01:00:00:00:00:00",
            "2:0:0:0:0:1",
            "00:00:00:00:00:00",
            "+2:00:00:00:00:01",
        ] {
            assert!(mac(bad).is_err(), "{bad}");
        }
        assert_eq!(rate("2 Mbit/s"), Ok(2_000_000));
        assert_eq!(rate("1.5Gbit/s"), Ok(1_500_000_000));
        for bad in [
            "",
            "0 bit/s",
            "1.5 bit/s",
            "2 MB/s",
            "-1 bit/s",
            "99999999999999999999 bit/s",
            "20000000 Tbit/s",
        ] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(size("64 KiB"), Ok(65536));
        assert_eq!(size("0.5 KiB"), Ok(512));
        assert_eq!(port_range("1024-65535"), Ok(1024..=65535));
        for bad in ["", "0", "5-4", "1-65536", "-5", "a"] {
            assert!(port_range(bad).is_err(), "{bad}");
        }
        assert!(interface_address("192.0.2.0/24").is_err());
        assert!(interface_address("192.0.2.255/24").is_err());
        assert!(interface_address("192.0.2.0/31").is_ok());
        for bad in
            ["127.0.0.1/8", "0.0.0.5/24", "240.1.1.1/24", "224.0.0.5/24", "10.0.0.1/0", "2001:db8::1/0"]
        {
            assert!(interface_address(bad).is_err(), "{bad}");
        }
        assert!(interface_address("192.0.2.1/32").is_ok());
        assert!(prefix("10.0.0.1/8").is_err());
        assert_eq!(dscp("EF"), Some(46));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = (mac(&text), rate(&text), size(&text), port_range(&text), prefix(&text), dscp(&text));
        }

        #[test]
        fn whole_units_are_exact(n in 1u64..1_000_000) {
            prop_assert_eq!(rate(&format!("{n} kbit/s")), Ok(n * 1000));
            prop_assert_eq!(rate(&format!("{}.{:03} Mbit/s", n / 1000, n % 1000)), Ok(n * 1000));
        }
    }
}
