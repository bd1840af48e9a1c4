//! ARP messages (RFC 826) for IPv4 over Ethernet.
//!
//! ```text
//! byte  0          2          4   5   6           8            14       18           24       28
//!      +----------+----------+---+---+-----------+------------+--------+------------+--------+
//!      | 1        | 0x0800   | 6 | 4 | operation | sender MAC | sender | target MAC | target |
//!      +----------+----------+---+---+-----------+------------+--------+------------+--------+
//! ```

use crate::header::{Field, header};
use crate::{MacAddr, Malformed};
use std::net::Ipv4Addr;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 28;

/// Hardware and protocol types with their address lengths.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// The operations of ARP; those of RARP and InARP are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    Request,
    Reply,
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct ArpView<'a> {
    header: &'a [u8; MESSAGE_BYTES],
}

impl<'a> ArpView<'a> {
    /// Views a message from its first byte; padding may follow. Returns `Malformed::Kind` for other types of
    /// addresses, or for a message that is neither request nor reply.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let header: &[u8; MESSAGE_BYTES] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let is_known = header[..6] == ETHERNET_IPV4 && matches!(header[6..8], [0, 1 | 2]);
        if is_known { Ok(Self { header }) } else { Err(Malformed::Kind) }
    }
}

impl Field for ArpOperation {
    #[inline]
    fn load(header: &[u8], at: usize) -> Self {
        if u16::load(header, at) == 1 { Self::Request } else { Self::Reply }
    }

    #[inline]
    fn store(self, header: &mut [u8], at: usize) {
        let number: u16 = if self == Self::Request { 1 } else { 2 };
        number.store(header, at);
    }
}

header! {
    ArpView,
    /// A message to encode.
    ArpRepr, MESSAGE_BYTES;
    /// Request or reply.
    operation: ArpOperation = 6;
    /// The sender's MAC address.
    sender_mac: MacAddr = 8;
    /// The sender's IP address.
    sender: Ipv4Addr = 14;
    /// The target's MAC address; meaningless in a request.
    target_mac: MacAddr = 18;
    /// The target's IP address.
    target: Ipv4Addr = 24;
}

impl ArpRepr {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut message = self.fields();
        message[..6].copy_from_slice(&ETHERNET_IPV4);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(is_request: bool, a: [u8; 6], b: [u8; 6], sender: u32, target: u32, padding in 0usize..20) {
            let repr = ArpRepr {
                operation: if is_request { ArpOperation::Request } else { ArpOperation::Reply },
                sender_mac: MacAddr(a),
                sender: sender.into(),
                target_mac: MacAddr(b),
                target: target.into(),
            };
            let mut bytes = repr.encode().to_vec();
            bytes.resize(bytes.len() + padding, 0);
            prop_assert_eq!(ArpView::new(&bytes).map(ArpRepr::from), Ok(repr));
        }

        #[test]
        fn what_is_read_is_written(mut bytes in prop::collection::vec(any::<u8>(), 0..40), operation in 0u8..4, sorts: bool) {
            if let (true, Some(head)) = (sorts, bytes.get_mut(..8)) {
                head.copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
            }
            match ArpView::new(&bytes) {
                Ok(view) => prop_assert_eq!(&ArpRepr::from(view).encode()[..], &bytes[..MESSAGE_BYTES]),
                Err(why) => prop_assert_eq!(why == Malformed::Truncated, bytes.len() < MESSAGE_BYTES),
            }
        }
    }
}
