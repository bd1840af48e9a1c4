//! VRRP version 3 advertisements (RFC 9568 section 5).
//!
//! ```text
//! byte  0      1      2          3       4                      6          8
//!      +------+------+----------+-------+----+-----------------+----------+------------ ..
//!      | 0x31 | VRID | priority | count | 0  | interval, 10 ms | checksum | addresses
//!      +------+------+----------+-------+----+-----------------+----------+------------ ..
//! ```
//!
//! RFC 5798 left open whether the IPv4 checksum covers a pseudo header; RFC 9568 says that it does not, and senders of
//! both kinds are in use.

use crate::checksum::{finish, fold, pseudo_sum, sum};
use crate::header::header;
use crate::{MacAddr, Malformed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes before the addresses.
pub const HEADER_BYTES: usize = 8;
/// The longest interval between advertisements, in hundredths of a second.
pub const INTERVAL_MAX_CS: u16 = 0x0fff;
/// The IP protocol.
pub const PROTOCOL: u8 = 112;
/// The TTL and hop limit of every advertisement.
pub const HOP_LIMIT: u8 = 255;
/// The groups that advertisements are sent to.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);

/// Version 3, advertisement.
const KIND: u8 = 0x31;

/// The MAC address of a virtual router (section 7.3).
pub fn virtual_mac(id: u8, is_ipv6: bool) -> MacAddr {
    MacAddr([0, 0, 0x5e, 0, if is_ipv6 { 2 } else { 1 }, id])
}

/// An advertisement.
#[derive(Clone, Copy, Debug)]
pub struct VrrpView<'a> {
    header: &'a [u8; HEADER_BYTES],
    message: &'a [u8],
    is_ipv6: bool,
}

impl<'a> VrrpView<'a> {
    /// Views the payload of an IP packet. `Malformed::Kind` for another version or type.
    pub fn new(payload: &'a [u8], is_ipv6: bool) -> Result<Self, Malformed> {
        let header: &[u8; HEADER_BYTES] = payload.first_chunk().ok_or(Malformed::Truncated)?;
        if header[0] != KIND {
            return Err(Malformed::Kind);
        }
        let each = if is_ipv6 { 16 } else { 4 };
        let message =
            payload.get(..HEADER_BYTES + usize::from(header[3]) * each).ok_or(Malformed::Truncated)?;
        Ok(Self { header, message, is_ipv6 })
    }

    /// The interval between advertisements, in hundredths of a second.
    pub fn interval_cs(&self) -> u16 {
        self.interval() & INTERVAL_MAX_CS
    }

    /// The virtual router's addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + 'a {
        let (v4, v6) = match self.is_ipv6 {
            true => (&[][..], self.message[HEADER_BYTES..].as_chunks::<16>().0),
            false => (self.message[HEADER_BYTES..].as_chunks::<4>().0, &[][..]),
        };
        v4.iter().map(|bytes| IpAddr::from(*bytes)).chain(v6.iter().map(|bytes| IpAddr::from(*bytes)))
    }

    /// Whether the checksum is correct for a packet between these addresses, of either kind for IPv4.
    pub fn checksum_holds(&self, source: IpAddr, destination: IpAddr) -> bool {
        let pseudo = pseudo_sum(source, destination, PROTOCOL, self.message.len());
        let holds = |start| fold(sum(self.message, start)) == 0xffff;
        holds(pseudo) || !self.is_ipv6 && holds(0)
    }
}

header! {
    VrrpView,
    /// The header of an advertisement to encode.
    VrrpRepr, HEADER_BYTES;
    /// The number of the virtual router (VRID).
    id: u8 = 1;
    /// 255 for the owner of the addresses, 0 for one who stops.
    priority: u8 = 2;
    /// The number of addresses.
    count: u8 = 3;
    /// The interval in hundredths of a second, below four reserved bits.
    interval: u16 = 4;
}

impl VrrpRepr {
    /// Encodes the payload of an advertisement between these addresses. `self.count` is that of `addresses`, which are
    /// of the same family. IPv6's checksum always covers a pseudo header, IPv4's if `pseudo_header` says so.
    pub fn encode(
        &self,
        addresses: &[IpAddr],
        (source, destination): (IpAddr, IpAddr),
        pseudo_header: bool,
    ) -> Vec<u8> {
        let mut message = self.fields().to_vec();
        message[0] = KIND;
        for address in addresses {
            match address {
                IpAddr::V4(address) => message.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => message.extend_from_slice(&address.octets()),
            }
        }
        let pseudo = match source {
            IpAddr::V4(_) if !pseudo_header => 0,
            _ => pseudo_sum(source, destination, PROTOCOL, message.len()),
        };
        let checksum = finish(sum(&message, pseudo));
        message[6..8].copy_from_slice(&checksum.to_be_bytes());
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            id: u8, priority: u8, interval in 0u16..=INTERVAL_MAX_CS, v4 in prop::collection::vec(any::<u32>(), 1..6),
            v6 in prop::collection::vec(any::<u128>(), 1..6), is_ipv6: bool, source: u128, padding in 0usize..9, bit in 0usize..64,
            pseudo_header: bool,
        ) {
            let (addresses, source, destination): (Vec<IpAddr>, IpAddr, IpAddr) = match is_ipv6 {
                true => (v6.iter().map(|a| Ipv6Addr::from(*a).into()).collect(), Ipv6Addr::from(source).into(), GROUP_V6.into()),
                false => (v4.iter().map(|a| Ipv4Addr::from(*a).into()).collect(), Ipv4Addr::from(source as u32).into(), GROUP_V4.into()),
            };
            let repr = VrrpRepr { id, priority, count: addresses.len() as u8, interval };
            let mut bytes = repr.encode(&addresses, (source, destination), pseudo_header);
            let length = bytes.len();
            bytes.resize(length + padding, 0);
            let view = VrrpView::new(&bytes, is_ipv6).unwrap();
            prop_assert_eq!(VrrpRepr::from(view), repr);
            prop_assert_eq!(view.interval_cs(), interval);
            prop_assert_eq!(view.addresses().collect::<Vec<_>>(), addresses);
            prop_assert!(view.checksum_holds(source, destination));
            let pseudo = pseudo_sum(source, destination, PROTOCOL, length);
            let covers = |start| fold(sum(&bytes[..length], start)) == 0xffff;
            let expected = if is_ipv6 || pseudo_header { pseudo } else { 0 };
            prop_assert!(covers(expected));
            bytes[8 + bit / 8 % (length - 8)] ^= 1 << (bit % 8);
            prop_assert!(!VrrpView::new(&bytes, is_ipv6).unwrap().checksum_holds(source, destination));
            for cut in 0..length {
                prop_assert!(VrrpView::new(&bytes[..cut], is_ipv6).is_err());
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..80), is_ipv6: bool, kind: bool) {
            let bytes = if kind { [&[KIND][..], &bytes].concat() } else { bytes };
            if let Ok(view) = VrrpView::new(&bytes, is_ipv6) {
                prop_assert_eq!(view.addresses().count(), usize::from(view.count()));
                view.checksum_holds(GROUP_V4.into(), GROUP_V4.into());
            }
        }
    }
}
