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

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;
/// Where the flags are.
pub const FLAGS_AT: usize = 13;

/// The sender has no more data.
pub const FIN: u8 = 0x01;
/// Sequence numbers begin.
pub const SYN: u8 = 0x02;
/// The connection ends at once.
pub const RST: u8 = 0x04;
/// Data is to be handed up.
pub const PSH: u8 = 0x08;
/// The acknowledgment counts.
pub const ACK: u8 = 0x10;
/// The urgent pointer counts.
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

    /// Source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Sequence number of the first byte of the payload.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// Sequence number that the sender expects next.
    #[inline]
    pub fn acknowledgment(&self) -> u32 {
        u32::from_be_bytes([self.header[8], self.header[9], self.header[10], self.header[11]])
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header[12] >> 4) * 4
    }

    /// [`FIN`] and the others.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.header[FLAGS_AT]
    }

    /// The receive window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.header[14], self.header[15]])
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.segment[self.header_len()..]
    }

    /// Whether the checksum is right; `pseudo` is the sum of the pseudo header.
    pub fn checksum_holds(&self, pseudo: u32) -> bool {
        fold(sum(self.segment, pseudo)) == 0xffff
    }
}

/// A header without options to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpRepr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first byte of the payload.
    pub sequence: u32,
    /// Sequence number that the sender expects next.
    pub acknowledgment: u32,
    /// [`FIN`] and the others.
    pub flags: u8,
    /// The receive window, unscaled.
    pub window: u16,
}

impl TcpRepr {
    /// The header of a segment with this payload, its checksum in place; `pseudo` is the sum of the pseudo header
    /// ([`pseudo_sum`](crate::checksum::pseudo_sum)).
    pub fn encode(&self, payload: &[u8], pseudo: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        header[12] = (HEADER_BYTES as u8 / 4) << 4;
        header[FLAGS_AT] = self.flags;
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        let checksum = finish(sum(payload, sum(&header, pseudo)));
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        header
    }
}

impl From<TcpView<'_>> for TcpRepr {
    fn from(view: TcpView<'_>) -> Self {
        Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            sequence: view.sequence(),
            acknowledgment: view.acknowledgment(),
            flags: view.flags(),
            window: view.window(),
        }
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
