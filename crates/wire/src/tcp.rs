//! TCP headers (RFC 9293).
//!
//! ```text
//! byte  0      2           4        8              12          13    14     16       18     20
//!      +------+-----------+--------+--------------+-----------+-----+------+--------+------+- - - - -+
//!      |source|destination|sequence|acknowledgment|words, 4 bit|flags|window|checksum|urgent| options |
//!      +------+-----------+--------+--------------+-----------+-----+------+--------+------+- - - - -+
//! ```

use crate::Malformed;
use crate::checksum::{finish, fold, sum};
use crate::header::header;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;
/// The offset of the flags.
pub const FLAGS_AT: usize = 13;

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const URG: u8 = 0x20;

/// Names of the flags in text, and their bits.
pub const FLAG_NAMES: [(&str, u8); 6] =
    [("fin", FIN), ("syn", SYN), ("rst", RST), ("psh", PSH), ("ack", ACK), ("urg", URG)];

/// A segment from its header on.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    header: &'a [u8; HEADER_BYTES],
    segment: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// Views a segment from its first byte to the end of the IP packet.
    #[inline]
    pub fn new(segment: &'a [u8]) -> Result<Self, Malformed> {
        let header: &[u8; HEADER_BYTES] = segment.first_chunk().ok_or(Malformed::Truncated)?;
        let view = Self { header, segment };
        let header_len = view.header_len();
        if header_len < HEADER_BYTES || header_len > segment.len() {
            return Err(Malformed::HeaderLength);
        }
        Ok(view)
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header[12] >> 4) * 4
    }

    /// The bytes behind the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.segment[self.header_len()..]
    }

    /// Whether the checksum is correct; `pseudo` is the sum of the pseudo header.
    pub fn checksum_holds(&self, pseudo: u32) -> bool {
        fold(sum(self.segment, pseudo)) == 0xffff
    }
}

header! {
    TcpView,
    /// A header without options to encode.
    TcpRepr, HEADER_BYTES;
    /// Source port.
    source_port: u16 = 0;
    /// Destination port.
    destination_port: u16 = 2;
    /// Sequence number of the first byte of the payload.
    sequence: u32 = 4;
    /// Sequence number that the sender expects next.
    acknowledgment: u32 = 8;
    /// [`FIN`] and others.
    flags: u8 = FLAGS_AT;
    /// The receive window, unscaled.
    window: u16 = 14;
}

impl TcpRepr {
    /// Encodes the header of a segment with this payload, including its checksum; `pseudo` is the sum of the
    /// pseudo header ([`pseudo_sum`](crate::checksum::pseudo_sum)).
    pub fn encode(&self, payload: &[u8], pseudo: u32) -> [u8; HEADER_BYTES] {
        let mut header = self.fields();
        header[12] = (HEADER_BYTES as u8 / 4) << 4;
        let checksum = finish(sum(payload, sum(&header, pseudo)));
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
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
            ports: (u16, u16), sequence: u32, acknowledgment: u32, flags: u8, window: u16, payload: Vec<u8>,
            pseudo in 0u32..0x40000,
        ) {
            let repr = TcpRepr {
                source_port: ports.0, destination_port: ports.1, sequence, acknowledgment, flags, window,
            };
            let mut bytes = [&repr.encode(&payload, pseudo)[..], &payload].concat();
            let view = TcpView::new(&bytes).unwrap();
            prop_assert_eq!(TcpRepr::from(view), repr);
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_holds(pseudo));
            bytes[0] ^= 1;
            prop_assert!(!TcpView::new(&bytes).unwrap().checksum_holds(pseudo));
        }

        #[test]
        fn what_is_read_is_there(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let header_len = bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
            match TcpView::new(&bytes) {
                Ok(view) => prop_assert_eq!(view.payload().len() + header_len, bytes.len()),
                Err(Malformed::Truncated) => prop_assert!(bytes.len() < 20),
                Err(why) => prop_assert!(why == Malformed::HeaderLength && !(20..=bytes.len()).contains(&header_len)),
            }
        }
    }
}
