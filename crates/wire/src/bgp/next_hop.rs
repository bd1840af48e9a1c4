//! Next hops in messages: 4, 16 or 32 bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A next hop. An IPv6 one may have a link-local address too (RFC 2545).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHop {
    V4(Ipv4Addr),
    /// The next hop of an IPv6 route or (RFC 8950) of an IPv4 one.
    V6 {
        global: Ipv6Addr,
        /// If the neighbor sent one.
        link_local: Option<Ipv6Addr>,
    },
}

impl NextHop {
    /// The address for comparison, resolution and display.
    pub fn address(self) -> IpAddr {
        match self {
            Self::V4(address) => address.into(),
            Self::V6 { global, .. } => global.into(),
        }
    }

    /// Decodes 4, 16 or 32 bytes; other lengths are invalid. A second address that is not link-local is
    /// ignored (RFC 2545 3).
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if let Ok(four) = <[u8; 4]>::try_from(bytes) {
            return Some(Self::V4(four.into()));
        }
        let (global, rest) = bytes.split_first_chunk::<16>()?;
        let global = Ipv6Addr::from(*global);
        if rest.is_empty() {
            return Some(Self::V6 { global, link_local: None });
        }
        let second = Ipv6Addr::from(<[u8; 16]>::try_from(rest).ok()?);
        Some(Self::V6 { global, link_local: second.is_unicast_link_local().then_some(second) })
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}
