//! IPv4 headers (RFC 791).
//!
//! ```text
//! byte  0         1    2       4     6                 8     9          10        12      16           20
//!      +---------+----+-------+-----+-----------------+-----+----------+---------+-------+------------+- - - - -+
//!      |4, words |TOS |length | id  |flags, offset / 8| TTL | protocol |checksum |source |destination | options |
//!      +---------+----+-------+-----+-----------------+-----+----------+---------+-------+------------+- - - - -+
//! ```

use crate::Malformed;
use crate::checksum::{finish, fold, sum};
use crate::header::{Field, header};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Flag: the packet must not be fragmented.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// Flag: this is not the last fragment.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits below the flags: the fragment's offset in the datagram, in units of eight bytes.
pub const OFFSET_MASK: u16 = 0x1fff;

/// A packet from its header on.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    header: &'a [u8; HEADER_BYTES],
    packet: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// Views a packet from its first byte. Link-layer padding is left out; a packet that was cut behind its
    /// header is valid. The header checksum is not checked.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        if header[0] >> 4 != 4 {
            return Err(Malformed::Kind);
        }
        let view = Self { header, packet: bytes };
        let (header_len, total_len) = (view.header_len(), view.total_len());
        if header_len < HEADER_BYTES || header_len > bytes.len() {
            return Err(Malformed::HeaderLength);
        }
        if total_len < header_len {
            return Err(Malformed::Length);
        }
        Ok(Self { header, packet: bytes.get(..total_len).unwrap_or(bytes) })
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header[0] & 15) * 4
    }

    /// Bytes of the packet, by its length field.
    #[inline]
    pub fn total_len(&self) -> usize {
        usize::from(u16::load(self.header, 2))
    }

    /// Whether it is a fragment, including the first one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Whether it is a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.flags_and_offset() & OFFSET_MASK != 0
    }

    /// Whether the header checksum is correct.
    pub fn checksum_holds(&self) -> bool {
        fold(sum(&self.packet[..self.header_len()], 0)) == 0xffff
    }

    /// The header's options.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        &self.packet[HEADER_BYTES..self.header_len()]
    }

    /// The captured bytes behind the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.packet[self.header_len()..]
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

    /// Bytes of the payload, by the length fields.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        (self.total_len() - self.header_len()) as u16
    }
}

header! {
    Ipv4View,
    /// A header without options to encode.
    Ipv4Repr, HEADER_BYTES;
    /// Type of service: DSCP and ECN.
    traffic_class: u8 = 1;
    /// The same in all fragments of a datagram.
    identification: u16 = 4;
    /// [`DONT_FRAGMENT`], [`MORE_FRAGMENTS`] and, under [`OFFSET_MASK`], the offset in units of eight bytes.
    flags_and_offset: u16 = 6;
    /// Time to live.
    ttl: u8 = 8;
    /// The protocol of the payload.
    protocol: u8 = 9;
    /// Source address.
    source: Ipv4Addr = 12;
    /// Destination address.
    destination: Ipv4Addr = 16;
    =>
    /// Bytes behind the header, at most 65,515.
    payload_len: u16;
}

impl Ipv4Repr {
    /// A plain header: TTL 64, not a fragment, everything else zero.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload_len: usize) -> Self {
        Self {
            source,
            destination,
            protocol,
            ttl: 64,
            traffic_class: 0,
            identification: 0,
            flags_and_offset: 0,
            payload_len: payload_len as u16,
        }
    }

    /// Encodes the header with its checksum.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = self.fields();
        header[0] = 0x45;
        header[2..4].copy_from_slice(&self.payload_len.wrapping_add(HEADER_BYTES as u16).to_be_bytes());
        write_checksum(&mut header);
        header
    }
}

/// Writes the correct checksum into a header with or without options; does nothing if the bytes are shorter
/// than a header.
pub fn write_checksum(header: &mut [u8]) {
    if header.len() >= HEADER_BYTES {
        header[10..12].fill(0);
        let checksum = finish(sum(header, 0));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            source: u32, destination: u32, protocol: u8, ttl: u8, traffic_class: u8, identification: u16,
            flags_and_offset: u16, payload in prop::collection::vec(any::<u8>(), 0..60), padding in 0usize..9,
        ) {
            let repr = Ipv4Repr {
                ttl, traffic_class, identification, flags_and_offset,
                ..Ipv4Repr::new(source.into(), destination.into(), protocol, payload.len())
            };
            let mut bytes = [&repr.encode()[..], &payload].concat();
            bytes.resize(bytes.len() + padding, 0xee);
            let view = Ipv4View::new(&bytes).unwrap();
            prop_assert_eq!(Ipv4Repr::from(view), repr);
            prop_assert!(view.is_whole() && view.checksum_holds() && view.options().is_empty());
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert_eq!(view.is_fragment(), flags_and_offset & 0x3fff != 0);
            bytes[12] ^= 1;
            prop_assert!(!Ipv4View::new(&bytes).unwrap().checksum_holds());
        }

        /// Every prefix of anything: no panic, and what is taken for a packet is what its fields say.
        #[test]
        fn what_is_read_is_there(mut bytes in prop::collection::vec(any::<u8>(), 0..80), words in 0u8..16, total in 0u8..80) {
            if let Some(head) = bytes.get_mut(..4) {
                (head[0], head[2], head[3]) = (0x40 | words, 0, total);
            }
            let (header_len, total) = (usize::from(words) * 4, usize::from(total));
            let why = match Ipv4View::new(&bytes) {
                Ok(view) => {
                    prop_assert_eq!(view.packet(), &bytes[..total.min(bytes.len())]);
                    prop_assert_eq!(view.options().len() + 20, header_len);
                    prop_assert_eq!(view.payload().len() + header_len, view.packet().len());
                    prop_assert_eq!(view.is_whole(), bytes.len() >= total);
                    view.checksum_holds();
                    return Ok(());
                }
                Err(why) => why,
            };
            match why {
                Malformed::Truncated => prop_assert!(bytes.len() < 20),
                Malformed::HeaderLength => prop_assert!(header_len < 20 || header_len > bytes.len()),
                Malformed::Length => prop_assert!(total < header_len),
                Malformed::Kind => prop_assert!(false, "it is version 4"),
            }
        }
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(Ipv4View::new(&[0x60; 40]).map(|_| ()), Err(Malformed::Kind));
    }
}
