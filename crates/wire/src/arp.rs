//! ARP messages (RFC 826) for IPv4 over Ethernet.
//!
//! ```text
//! byte  0          2          4   5   6           8            14       18           24       28
//!      +----------+----------+---+---+-----------+------------+--------+------------+--------+
//!      | 1        | 0x0800   | 6 | 4 | operation | sender MAC | sender | target MAC | target |
//!      +----------+----------+---+---+-----------+------------+--------+------------+--------+
//! ```

use crate::{MacAddr, Malformed};
use std::net::Ipv4Addr;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 28;

/// Hardware and protocol with the lengths of their addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// Request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Who has the target's address?
    Request,
    /// The sender has it.
    Reply,
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct ArpView<'a> {
    message: &'a [u8; MESSAGE_BYTES],
    operation: ArpOperation,
}

impl<'a> ArpView<'a> {
    /// Views a message from its first byte; what pads the frame may follow. `Malformed::Kind` if it is about other sorts of
    /// addresses, or neither request nor reply.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let message: &[u8; MESSAGE_BYTES] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let operation = match message[6..8] {
            [0, 1] => ArpOperation::Request,
            [0, 2] => ArpOperation::Reply,
            _ => return Err(Malformed::Kind),
        };
        if message[..6] == ETHERNET_IPV4 { Ok(Self { message, operation }) } else { Err(Malformed::Kind) }
    }

    /// Request or reply.
    pub fn operation(&self) -> ArpOperation {
        self.operation
    }

    /// The sender's MAC address.
    pub fn sender_mac(&self) -> MacAddr {
        self.mac_at(8)
    }

    /// The sender's IP address.
    pub fn sender(&self) -> Ipv4Addr {
        self.address_at(14)
    }

    /// The target's MAC address; in a request it says nothing.
    pub fn target_mac(&self) -> MacAddr {
        self.mac_at(18)
    }

    /// The target's IP address.
    pub fn target(&self) -> Ipv4Addr {
        self.address_at(24)
    }

    fn mac_at(&self, at: usize) -> MacAddr {
        MacAddr(std::array::from_fn(|i| self.message[at + i]))
    }

    fn address_at(&self, at: usize) -> Ipv4Addr {
        std::array::from_fn::<u8, 4, _>(|i| self.message[at + i]).into()
    }
}

/// A message to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpRepr {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's MAC address.
    pub sender_mac: MacAddr,
    /// The sender's IP address.
    pub sender: Ipv4Addr,
    /// The target's MAC address.
    pub target_mac: MacAddr,
    /// The target's IP address.
    pub target: Ipv4Addr,
}

impl ArpRepr {
    /// The message.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut message = [0; MESSAGE_BYTES];
        message[..6].copy_from_slice(&ETHERNET_IPV4);
        message[7] = if self.operation == ArpOperation::Request { 1 } else { 2 };
        message[8..14].copy_from_slice(&self.sender_mac.0);
        message[14..18].copy_from_slice(&self.sender.octets());
        message[18..24].copy_from_slice(&self.target_mac.0);
        message[24..].copy_from_slice(&self.target.octets());
        message
    }
}

impl From<ArpView<'_>> for ArpRepr {
    fn from(view: ArpView<'_>) -> Self {
        Self {
            operation: view.operation(),
            sender_mac: view.sender_mac(),
            sender: view.sender(),
            target_mac: view.target_mac(),
            target: view.target(),
        }
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
