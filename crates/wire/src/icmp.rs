//! ICMP (RFC 792) and ICMPv6 (RFC 4443) headers: type, code, checksum, and four bytes that depend on the
//! type.

use crate::Malformed;
use crate::checksum::{finish, fold, sum};
use crate::header::header;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;

/// Types of ICMP for IPv4.
pub mod v4 {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    /// Deprecated (RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    pub const REDIRECT: u8 = 5;
    pub const ECHO_REQUEST: u8 = 8;
    /// The TTL or the reassembly time expired.
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;

    /// Whether a type is an error or a redirect (RFC 1122 3.2.2), which must not cause an error.
    pub fn is_error(kind: u8) -> bool {
        matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }
}

/// Types of ICMPv6.
pub mod v6 {
    pub const UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    /// The hop limit or the reassembly time expired.
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const REDIRECT: u8 = 137;

    /// Whether a type is an error (RFC 4443 2.1: the highest bit is clear) or a redirect, which must not
    /// cause an error.
    pub fn is_error(kind: u8) -> bool {
        kind < 128 || kind == REDIRECT
    }
}

/// A message from its header on.
#[derive(Clone, Copy, Debug)]
pub struct IcmpView<'a> {
    header: &'a [u8; HEADER_BYTES],
    message: &'a [u8],
}

impl<'a> IcmpView<'a> {
    /// Views a message from its first byte to the end of the IP packet.
    #[inline]
    pub fn new(message: &'a [u8]) -> Result<Self, Malformed> {
        let header = message.first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { header, message })
    }

    /// The checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The bytes behind the header; for an error, the packet that caused it.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.message[HEADER_BYTES..]
    }

    /// Whether the checksum is correct; `pseudo` is the sum of the pseudo header, 0 for IPv4.
    pub fn checksum_holds(&self, pseudo: u32) -> bool {
        fold(sum(self.message, pseudo)) == 0xffff
    }
}

header! {
    IcmpView,
    /// A header to encode.
    IcmpRepr, HEADER_BYTES;
    /// The type.
    kind: u8 = 0;
    /// The code.
    code: u8 = 1;
    /// The four bytes behind the checksum; for an echo, identifier and sequence number.
    rest: [u8; 4] = 4;
}

impl IcmpRepr {
    /// Encodes the header of a message with this payload, including its checksum; `pseudo` is the sum of the
    /// pseudo header ([`pseudo_sum`](crate::checksum::pseudo_sum)), 0 for IPv4.
    pub fn encode(&self, payload: &[u8], pseudo: u32) -> [u8; HEADER_BYTES] {
        let mut header = self.fields();
        let checksum = finish(sum(payload, sum(&header, pseudo)));
        header[2..4].copy_from_slice(&checksum.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(kind: u8, code: u8, rest: [u8; 4], payload: Vec<u8>, pseudo in 0u32..0x40000) {
            let repr = IcmpRepr { kind, code, rest };
            let mut bytes = [&repr.encode(&payload, pseudo)[..], &payload].concat();
            let view = IcmpView::new(&bytes).unwrap();
            prop_assert_eq!(IcmpRepr::from(view), repr);
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_holds(pseudo));
            bytes[0] ^= 1;
            prop_assert!(!IcmpView::new(&bytes).unwrap().checksum_holds(pseudo));
            for cut in 0..8 {
                prop_assert_eq!(IcmpView::new(&bytes[..cut]).map(|_| ()), Err(Malformed::Truncated));
            }
        }
    }
}
