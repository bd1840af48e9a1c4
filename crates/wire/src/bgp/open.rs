//! OPEN: the neighbor's identity and capabilities.
//!
//! ```text
//! version | AS (2) | hold time (2) | identifier (4) | length of parameters | parameters
//! ```
//!
//! RFC 4271 4.2 and 6.2, RFC 5492, RFC 6286 (any identifier but 0), RFC 6793 (AS_TRANS), RFC 7607 (no AS 0),
//! RFC 9072 (parameters of more than 255 bytes). The session checks whether the AS is the expected one and
//! whether identifiers collide.

use std::fmt;
use std::net::Ipv4Addr;

use super::capabilities::Capabilities;
use super::header::{MessageKind, begin_message, finish_message};
use super::notification::{Notification, error, open_error};

/// The version of BGP.
pub const VERSION: u8 = 4;

/// Replaces an AS number that needs four bytes (RFC 6793).
pub const AS_TRANS: u16 = 23456;

const PARAMETER_CAPABILITIES: u8 = 2;
/// In place of the first parameter's type: lengths take two bytes (RFC 9072).
const PARAMETER_EXTENDED_LENGTH: u8 = 255;

/// A decoded OPEN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    /// The AS in two bytes; see [`Self::asn`].
    pub my_as: u16,
    /// The proposed hold time; 0 or at least 3.
    pub hold_time_s: u16,
    /// Not 0.
    pub router_id: Ipv4Addr,
    pub capabilities: Capabilities,
}

impl Open {
    /// Makes an OPEN of this AS, which is also added to the capabilities.
    pub fn new(asn: u32, hold_time_s: u16, router_id: Ipv4Addr, capabilities: Capabilities) -> Self {
        let my_as = u16::try_from(asn).unwrap_or(AS_TRANS);
        let capabilities = Capabilities { four_octet_as: Some(asn), ..capabilities };
        Self { my_as, hold_time_s, router_id, capabilities }
    }

    /// The sender's AS.
    pub fn asn(&self) -> u32 {
        self.capabilities.four_octet_as.unwrap_or(u32::from(self.my_as))
    }

    /// Decodes and checks the body of a message.
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        let Some((&[version, as_high, as_low, hold_high, hold_low, a, b, c, d], parameters)) =
            body.split_first_chunk::<9>()
        else {
            return Err(Notification::new(error::OPEN, open_error::UNSPECIFIC));
        };
        if version != VERSION {
            let data = u16::from(VERSION).to_be_bytes();
            return Err(Notification::with_data(error::OPEN, open_error::UNSUPPORTED_VERSION, &data));
        }
        let mut capabilities = Capabilities::default();
        parse_parameters(parameters, &mut capabilities)?;
        let open = Self {
            my_as: u16::from_be_bytes([as_high, as_low]),
            hold_time_s: u16::from_be_bytes([hold_high, hold_low]),
            router_id: Ipv4Addr::new(a, b, c, d),
            capabilities,
        };
        if open.my_as == 0 || open.asn() == 0 {
            return Err(Notification::new(error::OPEN, open_error::BAD_PEER_AS));
        }
        if matches!(open.hold_time_s, 1 | 2) {
            return Err(Notification::new(error::OPEN, open_error::UNACCEPTABLE_HOLD_TIME));
        }
        if open.router_id.is_unspecified() {
            return Err(Notification::new(error::OPEN, open_error::BAD_IDENTIFIER));
        }
        Ok(open)
    }

    /// Appends the message; parameters use the longer format of RFC 9072 only if necessary.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = begin_message(out, MessageKind::Open);
        out.push(VERSION);
        out.extend_from_slice(&self.my_as.to_be_bytes());
        out.extend_from_slice(&self.hold_time_s.to_be_bytes());
        out.extend_from_slice(&self.router_id.octets());
        let mut capabilities = Vec::new();
        self.capabilities.write(&mut capabilities);
        // The message stays within 4096 bytes; the last capabilities are dropped first.
        capabilities.truncate(whole_capabilities(&capabilities, CAPABILITY_BYTES_MAX));
        match (u8::try_from(capabilities.len()), u8::try_from(capabilities.len() + 2)) {
            (Ok(0), _) => out.push(0),
            // 255 would announce the longer format.
            (Ok(length), Ok(all)) if all < PARAMETER_EXTENDED_LENGTH => {
                out.extend_from_slice(&[all, PARAMETER_CAPABILITIES, length]);
            }
            _ => {
                out.extend_from_slice(&[PARAMETER_EXTENDED_LENGTH; 2]);
                out.extend_from_slice(&(capabilities.len() as u16 + 3).to_be_bytes());
                out.push(PARAMETER_CAPABILITIES);
                out.extend_from_slice(&(capabilities.len() as u16).to_be_bytes());
            }
        }
        out.extend_from_slice(&capabilities);
        // Cannot be too long, see above.
        let _ = finish_message(out, start);
    }
}

/// Room for capabilities in 4096 bytes: minus header, fixed fields and the longer format's lengths.
const CAPABILITY_BYTES_MAX: usize = super::MESSAGE_LENGTH_MAX - 19 - 9 - 7;

/// The length of the whole capabilities within `max` bytes.
fn whole_capabilities(bytes: &[u8], max: usize) -> usize {
    let mut at = 0;
    while let Some(&length) = bytes.get(at + 1) {
        let next = at + 2 + usize::from(length);
        if next > max.min(bytes.len()) {
            break;
        }
        at = next;
    }
    at
}

fn parse_parameters(field: &[u8], capabilities: &mut Capabilities) -> Result<(), Notification> {
    let malformed = || Notification::new(error::OPEN, open_error::UNSPECIFIC);
    let Some((&length, rest)) = field.split_first() else { return Err(malformed()) };
    // RFC 9072 2: if the first length is not 0, only the second byte decides.
    let extended = length != 0 && rest.first() == Some(&PARAMETER_EXTENDED_LENGTH);
    let (length, mut rest) = match rest {
        [_, high, low, after @ ..] if extended => (usize::from(u16::from_be_bytes([*high, *low])), after),
        _ if extended => return Err(malformed()),
        _ => (usize::from(length), rest),
    };
    if length != rest.len() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let (kind, length, after) = match rest {
            [kind, high, low, after @ ..] if extended => (*kind, u16::from_be_bytes([*high, *low]), after),
            [kind, length, after @ ..] if !extended => (*kind, u16::from(*length), after),
            _ => return Err(malformed()),
        };
        let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
            return Err(malformed());
        };
        if kind != PARAMETER_CAPABILITIES {
            return Err(Notification::new(error::OPEN, open_error::UNSUPPORTED_PARAMETER));
        }
        capabilities.parse(value)?;
        rest = after;
    }
    Ok(())
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OPEN AS {}, hold time {} s, ", self.asn(), self.hold_time_s)?;
        write!(f, "identifier {}, can: {}", self.router_id, self.capabilities)
    }
}
