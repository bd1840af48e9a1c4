//! UDP headers (RFC 768).

use crate::Malformed;
use crate::checksum::{finish, fold, sum};
use crate::header::header;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;

/// A datagram from its header on.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    header: &'a [u8; HEADER_BYTES],
    datagram: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// Views a datagram from its first byte. Bytes beyond its length are left out; a datagram that was cut
    /// behind its header is valid.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if len < HEADER_BYTES {
            return Err(Malformed::Length);
        }
        Ok(Self { header, datagram: bytes.get(..len).unwrap_or(bytes) })
    }

    /// The captured payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.datagram[HEADER_BYTES..]
    }

    /// Whether there is a correct checksum; `pseudo` is the sum of the pseudo header.
    pub fn checksum_holds(&self, pseudo: u32) -> bool {
        self.header[6..8] != [0, 0] && fold(sum(self.datagram, pseudo)) == 0xffff
    }
}

header! {
    UdpView,
    /// A header to encode.
    UdpRepr, HEADER_BYTES;
    /// Source port.
    source_port: u16 = 0;
    /// Destination port.
    destination_port: u16 = 2;
}

impl UdpRepr {
    /// Encodes the header of a datagram with this payload, including its checksum; `pseudo` is the sum of the
    /// pseudo header ([`pseudo_sum`](crate::checksum::pseudo_sum)).
    pub fn encode(&self, payload: &[u8], pseudo: u32) -> [u8; HEADER_BYTES] {
        let mut header = self.fields();
        header[4..6].copy_from_slice(&((HEADER_BYTES + payload.len()) as u16).to_be_bytes());
        // RFC 768: zero means no checksum, so a sum of zero is sent as its other representation.
        let checksum = match finish(sum(payload, sum(&header, pseudo))) {
            0 => 0xffff,
            checksum => checksum,
        };
        header[6..].copy_from_slice(&checksum.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(source_port: u16, destination_port: u16, payload: Vec<u8>, pseudo in 0u32..0x40000) {
            let repr = UdpRepr { source_port, destination_port };
            let mut bytes = [&repr.encode(&payload, pseudo)[..], &payload, &[0xee; 3]].concat();
            let view = UdpView::new(&bytes).unwrap();
            prop_assert_eq!((view.source_port(), view.destination_port()), (source_port, destination_port));
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_holds(pseudo));
            bytes[0] ^= 1;
            prop_assert!(!UdpView::new(&bytes).unwrap().checksum_holds(pseudo));
        }

        #[test]
        fn what_is_read_is_there(bytes in prop::collection::vec(any::<u8>(), 0..20), len in 0u16..30) {
            let mut bytes = bytes;
            if let Some(field) = bytes.get_mut(4..6) {
                field.copy_from_slice(&len.to_be_bytes());
            }
            match UdpView::new(&bytes) {
                Ok(view) => prop_assert_eq!(view.payload().len() + 8, bytes.len().min(len.into())),
                Err(Malformed::Truncated) => prop_assert!(bytes.len() < 8),
                Err(why) => prop_assert!(why == Malformed::Length && len < 8),
            }
        }
    }

    #[test]
    fn a_checksum_of_zero_is_none() {
        assert!(!UdpView::new(&[0, 0, 0, 0, 0, 8, 0, 0]).unwrap().checksum_holds(0xfff7));
    }
}
