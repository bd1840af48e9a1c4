//! IPv6 headers (RFC 8200), and the walk over extension headers ([`Extensions`]).
//!
//! ```text
//! byte  0                        4       6            7          8       24           40
//!      +------------------------+-------+------------+----------+-------+------------+- - - - - -
//!      |6, traffic class, label |length |next header |hop limit |source |destination | extensions
//!      +------------------------+-------+------------+----------+-------+------------+- - - - - -
//! ```

mod extensions;

pub use extensions::{EXTENSIONS_MAX, Extension, Extensions, FragmentRepr};

use crate::Malformed;
use crate::header::header;
use std::net::Ipv6Addr;

/// Bytes of a header without extensions.
pub const HEADER_BYTES: usize = extensions::CHAIN_AT;

/// A packet from its header on.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    header: &'a [u8; HEADER_BYTES],
    packet: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// Views a packet from its first byte. Link-layer padding is left out; a packet that was cut behind its
    /// header is valid.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        if header[0] >> 4 != 6 {
            return Err(Malformed::Kind);
        }
        let view = Self { header, packet: bytes };
        Ok(Self { header, packet: bytes.get(..view.total_len()).unwrap_or(bytes) })
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }

    /// Bytes of the packet with this header, by its length field.
    #[inline]
    pub fn total_len(&self) -> usize {
        HEADER_BYTES + usize::from(self.payload_len())
    }

    /// The extension headers that were captured whole.
    #[inline]
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions::new(self.packet, self.packet.len(), self.next_header())
    }

    /// The captured bytes behind the header, including extension headers.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.packet[HEADER_BYTES..]
    }

    /// The captured packet without padding.
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// Whether the packet was captured up to its length.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.packet.len() == self.total_len()
    }
}

header! {
    Ipv6View,
    /// A header to encode; its flow label is zero.
    Ipv6Repr, HEADER_BYTES;
    /// Bytes behind the header.
    payload_len: u16 = 4;
    /// An extension header or the transport.
    next_header: u8 = 6;
    /// Hop limit.
    hop_limit: u8 = 7;
    /// Source address.
    source: Ipv6Addr = 8;
    /// Destination address.
    destination: Ipv6Addr = 24;
    =>
    /// DSCP and ECN.
    traffic_class: u8;
}

impl Ipv6Repr {
    /// A plain header: hop limit 64, traffic class 0.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload_len: usize) -> Self {
        let payload_len = payload_len as u16;
        Self { source, destination, next_header, hop_limit: 64, traffic_class: 0, payload_len }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = self.fields();
        header[0] = 0x60 | self.traffic_class >> 4;
        header[1] = self.traffic_class << 4;
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            source: u128, destination: u128, next_header: u8, hop_limit: u8, traffic_class: u8,
            payload in prop::collection::vec(any::<u8>(), 0..60), padding in 0usize..9,
        ) {
            let repr = Ipv6Repr {
                hop_limit, traffic_class,
                ..Ipv6Repr::new(source.into(), destination.into(), next_header, payload.len())
            };
            let mut bytes = [&repr.encode()[..], &payload].concat();
            bytes.resize(bytes.len() + padding, 0xee);
            let view = Ipv6View::new(&bytes).unwrap();
            prop_assert_eq!(Ipv6Repr::from(view), repr);
            prop_assert!(view.is_whole());
            prop_assert_eq!(view.payload(), &payload[..]);
        }

        #[test]
        fn what_is_read_is_there(mut bytes in prop::collection::vec(any::<u8>(), 0..80), payload_len in 0u8..60) {
            if let Some(head) = bytes.get_mut(..6) {
                (head[0], head[4], head[5]) = (0x60, 0, payload_len);
            }
            match Ipv6View::new(&bytes) {
                Ok(view) => {
                    let total = 40 + usize::from(payload_len);
                    prop_assert_eq!(view.packet(), &bytes[..total.min(bytes.len())]);
                    prop_assert_eq!(view.is_whole(), bytes.len() >= total);
                }
                Err(why) => prop_assert!(why == Malformed::Truncated && bytes.len() < 40),
            }
        }
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(Ipv6View::new(&[0x45; 40]).map(|_| ()), Err(Malformed::Kind));
    }
}
