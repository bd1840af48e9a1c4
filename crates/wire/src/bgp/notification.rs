//! NOTIFICATION: why a session ends.
//!
//! RFC 4271 4.5 and 6, RFC 4486 (subcodes of Cease), RFC 6608 (FSM errors), RFC 7313 (ROUTE-REFRESH errors),
//! RFC 8538 (hard reset), RFC 9003 (text of a shutdown), RFC 9234 (role mismatch), RFC 9384 (BFD down),
//! RFC 9687 (send hold timer).

use std::fmt;

use super::header::{HeaderError, MESSAGE_LENGTH_MAX, MessageKind, begin_message, finish_message};

/// Error codes.
pub mod error {
    /// Message header error.
    pub const HEADER: u8 = 1;
    /// OPEN message error.
    pub const OPEN: u8 = 2;
    /// UPDATE message error.
    pub const UPDATE: u8 = 3;
    /// Hold timer expired.
    pub const HOLD_TIMER: u8 = 4;
    /// A message came in a state that does not expect it.
    pub const FSM: u8 = 5;
    /// The session ends without an error.
    pub const CEASE: u8 = 6;
    /// ROUTE-REFRESH message error (RFC 7313).
    pub const ROUTE_REFRESH: u8 = 7;
    /// The neighbor does not read (RFC 9687).
    pub const SEND_HOLD_TIMER: u8 = 8;
}

/// Subcodes of header errors.
pub mod header_error {
    /// The marker is not all ones.
    pub const NOT_SYNCHRONIZED: u8 = 1;
    /// A length no message has; the data is the length.
    pub const BAD_LENGTH: u8 = 2;
    /// A type that is not known; the data is the type.
    pub const BAD_TYPE: u8 = 3;
}

/// Subcodes of OPEN errors.
pub mod open_error {
    /// None of the others.
    pub const UNSPECIFIC: u8 = 0;
    /// Another version; the data is the highest that is spoken here.
    pub const UNSUPPORTED_VERSION: u8 = 1;
    /// The AS is not the one that is configured.
    pub const BAD_PEER_AS: u8 = 2;
    /// The identifier is 0, or ours.
    pub const BAD_IDENTIFIER: u8 = 3;
    /// An optional parameter that is not known.
    pub const UNSUPPORTED_PARAMETER: u8 = 4;
    /// The hold time is 1 or 2 seconds, or too short for us.
    pub const UNACCEPTABLE_HOLD_TIME: u8 = 6;
    /// A capability is needed that the neighbor lacks; the data is the capability.
    pub const UNSUPPORTED_CAPABILITY: u8 = 7;
    /// The roles do not fit (RFC 9234).
    pub const ROLE_MISMATCH: u8 = 11;
}

/// Subcodes of UPDATE errors.
pub mod update_error {
    /// The attributes do not add up.
    pub const MALFORMED_ATTRIBUTE_LIST: u8 = 1;
    /// A well-known attribute that is not known.
    pub const UNRECOGNIZED_WELL_KNOWN: u8 = 2;
    /// A well-known attribute is missing.
    pub const MISSING_WELL_KNOWN: u8 = 3;
    /// Flags that the attribute cannot have.
    pub const ATTRIBUTE_FLAGS: u8 = 4;
    /// A length that the attribute cannot have.
    pub const ATTRIBUTE_LENGTH: u8 = 5;
    /// ORIGIN.
    pub const INVALID_ORIGIN: u8 = 6;
    /// NEXT_HOP.
    pub const INVALID_NEXT_HOP: u8 = 8;
    /// An optional attribute.
    pub const OPTIONAL_ATTRIBUTE: u8 = 9;
    /// A prefix.
    pub const INVALID_NETWORK_FIELD: u8 = 10;
    /// AS_PATH.
    pub const MALFORMED_AS_PATH: u8 = 11;
}

/// Subcodes of FSM errors (RFC 6608).
pub mod fsm_error {
    /// In a state not listed.
    pub const UNSPECIFIED: u8 = 0;
    /// In OpenSent.
    pub const OPEN_SENT: u8 = 1;
    /// In OpenConfirm.
    pub const OPEN_CONFIRM: u8 = 2;
    /// In Established.
    pub const ESTABLISHED: u8 = 3;
}

/// Subcodes of Cease (RFC 4486, 8538, 9384).
pub mod cease {
    /// More prefixes than allowed; the data may be family and limit.
    pub const MAXIMUM_PREFIXES: u8 = 1;
    /// Someone shut the session down; the data may be a text.
    pub const ADMINISTRATIVE_SHUTDOWN: u8 = 2;
    /// The neighbor was taken out of the configuration.
    pub const PEER_DECONFIGURED: u8 = 3;
    /// Someone reset the session; the data may be a text.
    pub const ADMINISTRATIVE_RESET: u8 = 4;
    /// The connection is not wanted.
    pub const CONNECTION_REJECTED: u8 = 5;
    /// The configuration changed in some other way.
    pub const OTHER_CONFIGURATION_CHANGE: u8 = 6;
    /// The other of two connections was kept.
    pub const CONNECTION_COLLISION: u8 = 7;
    /// Out of memory or the like.
    pub const OUT_OF_RESOURCES: u8 = 8;
    /// No graceful restart, whatever was agreed on; the data is the real notification (RFC 8538).
    pub const HARD_RESET: u8 = 9;
    /// BFD says that the neighbor is gone (RFC 9384).
    pub const BFD_DOWN: u8 = 10;
}

/// Bytes the text of a shutdown may have (RFC 9003).
pub const SHUTDOWN_TEXT_BYTES_MAX: usize = 255;

/// Bytes of data that fit into a message that every neighbor takes.
const DATA_BYTES_MAX: usize = MESSAGE_LENGTH_MAX - 21;

/// Why a session ends, or ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// One of [`error`].
    pub code: u8,
    /// What exactly; depends on the code.
    pub subcode: u8,
    /// More about it; depends on both.
    pub data: Vec<u8>,
}

impl Notification {
    /// Without data.
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// With data.
    pub fn with_data(code: u8, subcode: u8, data: &[u8]) -> Self {
        Self { code, subcode, data: data.to_vec() }
    }

    /// A shutdown or reset by someone who says why (RFC 9003). What is longer than
    /// [`SHUTDOWN_TEXT_BYTES_MAX`] is cut between characters.
    pub fn with_text(subcode: u8, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(SHUTDOWN_TEXT_BYTES_MAX)];
        let mut data = vec![text.len() as u8];
        data.extend_from_slice(text.as_bytes());
        Self { code: error::CEASE, subcode, data }
    }

    /// This one, wrapped so that the neighbor does not keep our routes (RFC 8538).
    pub fn into_hard_reset(self) -> Self {
        let mut data = vec![self.code, self.subcode];
        data.extend_from_slice(&self.data);
        Self { code: error::CEASE, subcode: cease::HARD_RESET, data }
    }

    /// Whether it forbids keeping routes for a graceful restart (RFC 8538).
    pub fn is_hard_reset(&self) -> bool {
        self.code == error::CEASE && self.subcode == cease::HARD_RESET
    }

    /// The notification that a hard reset carries; one without content is a mere Cease.
    pub fn hard_reset_reason(&self) -> Option<Self> {
        if !self.is_hard_reset() {
            return None;
        }
        Some(match self.data.split_first_chunk::<2>() {
            Some((&[code, subcode], data)) => Self::with_data(code, subcode, data),
            None => Self::new(error::CEASE, 0),
        })
    }

    /// What a person wrote about a shutdown or reset (RFC 9003). Text that is no UTF-8 is mended for display;
    /// a length that is wrong makes it no text at all.
    pub fn text(&self) -> Option<String> {
        let shutdown = matches!(self.subcode, cease::ADMINISTRATIVE_SHUTDOWN | cease::ADMINISTRATIVE_RESET);
        if self.code != error::CEASE || !shutdown {
            return None;
        }
        let (&length, text) = self.data.split_first()?;
        let text = text.get(..usize::from(length))?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Reads the body of a message; `None` if it is shorter than two bytes, which framing excludes.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (&[code, subcode], data) = body.split_first_chunk::<2>()?;
        Some(Self::with_data(code, subcode, data))
    }

    /// Appends the message. Data beyond what a message of 4096 bytes holds is left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = begin_message(out, MessageKind::Notification);
        out.extend_from_slice(&[self.code, self.subcode]);
        out.extend_from_slice(self.data.get(..DATA_BYTES_MAX).unwrap_or(&self.data));
        // Cannot be too long: the data was cut.
        let _ = finish_message(out, start);
    }

    /// Code and subcode in words; the latter is empty where there is none.
    pub fn names(&self) -> (&'static str, &'static str) {
        (code_name(self.code), subcode_name(self.code, self.subcode))
    }
}

fn code_name(code: u8) -> &'static str {
    match code {
        error::HEADER => "Message Header Error",
        error::OPEN => "OPEN Message Error",
        error::UPDATE => "UPDATE Message Error",
        error::HOLD_TIMER => "Hold Timer Expired",
        error::FSM => "Finite State Machine Error",
        error::CEASE => "Cease",
        error::ROUTE_REFRESH => "ROUTE-REFRESH Message Error",
        error::SEND_HOLD_TIMER => "Send Hold Timer Expired",
        _ => "Unknown Error",
    }
}

fn subcode_name(code: u8, subcode: u8) -> &'static str {
    match (code, subcode) {
        (error::HEADER, 1) => "Connection Not Synchronized",
        (error::HEADER, 2) => "Bad Message Length",
        (error::HEADER, 3) => "Bad Message Type",
        (error::OPEN, 1) => "Unsupported Version Number",
        (error::OPEN, 2) => "Bad Peer AS",
        (error::OPEN, 3) => "Bad BGP Identifier",
        (error::OPEN, 4) => "Unsupported Optional Parameter",
        (error::OPEN, 5) => "Authentication Failure",
        (error::OPEN, 6) => "Unacceptable Hold Time",
        (error::OPEN, 7) => "Unsupported Capability",
        (error::OPEN, 11) => "Role Mismatch",
        (error::UPDATE, 1) => "Malformed Attribute List",
        (error::UPDATE, 2) => "Unrecognized Well-known Attribute",
        (error::UPDATE, 3) => "Missing Well-known Attribute",
        (error::UPDATE, 4) => "Attribute Flags Error",
        (error::UPDATE, 5) => "Attribute Length Error",
        (error::UPDATE, 6) => "Invalid ORIGIN Attribute",
        (error::UPDATE, 7) => "AS Routing Loop",
        (error::UPDATE, 8) => "Invalid NEXT_HOP Attribute",
        (error::UPDATE, 9) => "Optional Attribute Error",
        (error::UPDATE, 10) => "Invalid Network Field",
        (error::UPDATE, 11) => "Malformed AS_PATH",
        (error::FSM, 1) => "Unexpected Message in OpenSent",
        (error::FSM, 2) => "Unexpected Message in OpenConfirm",
        (error::FSM, 3) => "Unexpected Message in Established",
        (error::CEASE, 1) => "Maximum Number of Prefixes Reached",
        (error::CEASE, 2) => "Administrative Shutdown",
        (error::CEASE, 3) => "Peer De-configured",
        (error::CEASE, 4) => "Administrative Reset",
        (error::CEASE, 5) => "Connection Rejected",
        (error::CEASE, 6) => "Other Configuration Change",
        (error::CEASE, 7) => "Connection Collision Resolution",
        (error::CEASE, 8) => "Out of Resources",
        (error::CEASE, 9) => "Hard Reset",
        (error::CEASE, 10) => "BFD Down",
        (error::ROUTE_REFRESH, 1) => "Invalid Message Length",
        (_, 0) => "",
        _ => "unknown subcode",
    }
}

impl HeaderError {
    /// What the neighbor is told.
    pub fn notification(self) -> Notification {
        let (subcode, data) = match self {
            Self::NotSynchronized => (header_error::NOT_SYNCHRONIZED, Vec::new()),
            Self::Length { length } => (header_error::BAD_LENGTH, length.to_be_bytes().to_vec()),
            Self::Kind { byte } => (header_error::BAD_TYPE, vec![byte]),
        };
        Notification { code: error::HEADER, subcode, data }
    }
}

impl fmt::Display for Notification {
    /// `Cease (6), Administrative Shutdown (2): "maintenance"`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, subcode) = self.names();
        write!(f, "{code} ({})", self.code)?;
        if !subcode.is_empty() {
            write!(f, ", {subcode} ({})", self.subcode)?;
        }
        if let Some(reason) = self.hard_reset_reason() {
            return write!(f, ": {reason}");
        }
        match self.text() {
            Some(text) => write!(f, ": {text:?}"),
            None if self.data.is_empty() => Ok(()),
            None => {
                f.write_str(": ")?;
                self.data.iter().take(32).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                if self.data.len() > 32 { write!(f, ".. ({} bytes)", self.data.len()) } else { Ok(()) }
            }
        }
    }
}

impl std::error::Error for Notification {}
