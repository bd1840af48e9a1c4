//! NOTIFICATION: why a session ends.
//!
//! RFC 4271 4.5 and 6, RFC 4486 (subcodes of Cease), RFC 6608 (FSM errors), RFC 7313 (ROUTE-REFRESH errors),
//! RFC 8538 (hard reset), RFC 9003 (shutdown communication), RFC 9234 (role mismatch), RFC 9384 (BFD down),
//! RFC 9687 (send hold timer).

use std::fmt;

use super::header::{HeaderError, MESSAGE_LENGTH_MAX, MessageKind, begin_message, finish_message};

/// Defines a module of codes, and their registered names by code.
macro_rules! codes {
    ($(#[$about:meta])* $module:ident: $($(#[$doc:meta])* $constant:ident $code:literal $name:literal;)*) => {
        $(#[$about])*
        pub mod $module {
            $($(#[$doc])* pub const $constant: u8 = $code;)*
            pub(super) const NAMES: &[(u8, &str)] = &[$(($code, $name)),*];
        }
    };
}

codes! {
    /// Error codes.
    error:
    HEADER 1 "Message Header Error";
    OPEN 2 "OPEN Message Error";
    UPDATE 3 "UPDATE Message Error";
    HOLD_TIMER 4 "Hold Timer Expired";
    /// A message arrived in a state that does not expect it.
    FSM 5 "Finite State Machine Error";
    /// The session ends without an error.
    CEASE 6 "Cease";
    ROUTE_REFRESH 7 "ROUTE-REFRESH Message Error";
    /// The neighbor does not read (RFC 9687).
    SEND_HOLD_TIMER 8 "Send Hold Timer Expired";
}

codes! {
    header_error:
    /// The marker is not all ones.
    NOT_SYNCHRONIZED 1 "Connection Not Synchronized";
    /// An impossible length; the data is the length.
    BAD_LENGTH 2 "Bad Message Length";
    /// An unknown type; the data is the type.
    BAD_TYPE 3 "Bad Message Type";
}

codes! {
    open_error:
    /// None of the others.
    UNSPECIFIC 0 "";
    /// Another version; the data is the highest supported version.
    UNSUPPORTED_VERSION 1 "Unsupported Version Number";
    /// The AS is not the configured one.
    BAD_PEER_AS 2 "Bad Peer AS";
    /// The identifier is 0 or ours.
    BAD_IDENTIFIER 3 "Bad BGP Identifier";
    UNSUPPORTED_PARAMETER 4 "Unsupported Optional Parameter";
    /// Deprecated (RFC 4271).
    AUTHENTICATION_FAILURE 5 "Authentication Failure";
    /// The hold time is 1 or 2 seconds, or too short for us.
    UNACCEPTABLE_HOLD_TIME 6 "Unacceptable Hold Time";
    /// We require a capability that the neighbor lacks; the data is the capability.
    UNSUPPORTED_CAPABILITY 7 "Unsupported Capability";
    /// The roles do not match (RFC 9234).
    ROLE_MISMATCH 11 "Role Mismatch";
}

codes! {
    update_error:
    /// The attributes are inconsistent.
    MALFORMED_ATTRIBUTE_LIST 1 "Malformed Attribute List";
    /// A well-known attribute that we do not know.
    UNRECOGNIZED_WELL_KNOWN 2 "Unrecognized Well-known Attribute";
    MISSING_WELL_KNOWN 3 "Missing Well-known Attribute";
    /// Flags that are invalid for the attribute.
    ATTRIBUTE_FLAGS 4 "Attribute Flags Error";
    /// A length that is invalid for the attribute.
    ATTRIBUTE_LENGTH 5 "Attribute Length Error";
    INVALID_ORIGIN 6 "Invalid ORIGIN Attribute";
    /// Deprecated (RFC 4271).
    AS_ROUTING_LOOP 7 "AS Routing Loop";
    INVALID_NEXT_HOP 8 "Invalid NEXT_HOP Attribute";
    OPTIONAL_ATTRIBUTE 9 "Optional Attribute Error";
    INVALID_NETWORK_FIELD 10 "Invalid Network Field";
    MALFORMED_AS_PATH 11 "Malformed AS_PATH";
}

codes! {
    /// Subcodes of FSM errors (RFC 6608).
    fsm_error:
    /// In another state.
    UNSPECIFIED 0 "";
    /// In OpenSent.
    OPEN_SENT 1 "Unexpected Message in OpenSent";
    /// In OpenConfirm.
    OPEN_CONFIRM 2 "Unexpected Message in OpenConfirm";
    /// In Established.
    ESTABLISHED 3 "Unexpected Message in Established";
}

codes! {
    /// Subcodes of Cease (RFC 4486, 8538, 9384).
    cease:
    /// More prefixes than allowed; the data may be family and limit.
    MAXIMUM_PREFIXES 1 "Maximum Number of Prefixes Reached";
    /// An operator shut the session down; the data may be a text.
    ADMINISTRATIVE_SHUTDOWN 2 "Administrative Shutdown";
    /// The neighbor was removed from the configuration.
    PEER_DECONFIGURED 3 "Peer De-configured";
    /// An operator reset the session; the data may be a text.
    ADMINISTRATIVE_RESET 4 "Administrative Reset";
    CONNECTION_REJECTED 5 "Connection Rejected";
    /// The configuration changed in some other way.
    OTHER_CONFIGURATION_CHANGE 6 "Other Configuration Change";
    /// Another connection with the neighbor was kept.
    CONNECTION_COLLISION 7 "Connection Collision Resolution";
    OUT_OF_RESOURCES 8 "Out of Resources";
    /// No graceful restart, whatever was negotiated; the data is the real notification (RFC 8538).
    HARD_RESET 9 "Hard Reset";
    /// BFD says that the neighbor is gone (RFC 9384).
    BFD_DOWN 10 "BFD Down";
}

/// The most bytes of a shutdown communication (RFC 9003).
pub const SHUTDOWN_TEXT_BYTES_MAX: usize = 255;

/// The most data that fits a message every neighbor accepts.
const DATA_BYTES_MAX: usize = MESSAGE_LENGTH_MAX - 21;

/// The reason for ending a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// One of [`error`].
    pub code: u8,
    /// Depends on the code.
    pub subcode: u8,
    /// Depends on code and subcode.
    pub data: Vec<u8>,
}

impl Notification {
    /// A notification without data.
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// A notification with data.
    pub fn with_data(code: u8, subcode: u8, data: &[u8]) -> Self {
        Self { code, subcode, data: data.to_vec() }
    }

    /// A shutdown or reset with an operator's text (RFC 9003). A text beyond [`SHUTDOWN_TEXT_BYTES_MAX`] is
    /// cut between characters.
    pub fn with_text(subcode: u8, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(SHUTDOWN_TEXT_BYTES_MAX)];
        let mut data = vec![text.len() as u8];
        data.extend_from_slice(text.as_bytes());
        Self { code: error::CEASE, subcode, data }
    }

    /// Wraps the notification so that the neighbor does not keep our routes (RFC 8538).
    pub fn into_hard_reset(self) -> Self {
        let mut data = vec![self.code, self.subcode];
        data.extend_from_slice(&self.data);
        Self { code: error::CEASE, subcode: cease::HARD_RESET, data }
    }

    /// Whether it forbids keeping routes for a graceful restart (RFC 8538).
    pub fn is_hard_reset(&self) -> bool {
        self.code == error::CEASE && self.subcode == cease::HARD_RESET
    }

    /// The notification inside a hard reset; one without content is a plain Cease.
    pub fn hard_reset_reason(&self) -> Option<Self> {
        if !self.is_hard_reset() {
            return None;
        }
        Some(match self.data.split_first_chunk::<2>() {
            Some((&[code, subcode], data)) => Self::with_data(code, subcode, data),
            None => Self::new(error::CEASE, 0),
        })
    }

    /// The operator's text of a shutdown or reset (RFC 9003). Invalid UTF-8 is replaced; with a wrong length
    /// there is no text.
    pub fn text(&self) -> Option<String> {
        let shutdown = matches!(self.subcode, cease::ADMINISTRATIVE_SHUTDOWN | cease::ADMINISTRATIVE_RESET);
        if self.code != error::CEASE || !shutdown {
            return None;
        }
        let (&length, text) = self.data.split_first()?;
        let text = text.get(..usize::from(length))?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Decodes the body of a message; `None` if it is shorter than two bytes, which framing excludes.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (&[code, subcode], data) = body.split_first_chunk::<2>()?;
        Some(Self::with_data(code, subcode, data))
    }

    /// Appends the message. Data that exceeds a message of 4096 bytes is left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = begin_message(out, MessageKind::Notification);
        out.extend_from_slice(&[self.code, self.subcode]);
        out.extend_from_slice(self.data.get(..DATA_BYTES_MAX).unwrap_or(&self.data));
        // Cannot be too long: the data was cut.
        let _ = finish_message(out, start);
    }

    /// Code and subcode in words; the latter is empty if it has no name.
    pub fn names(&self) -> (&'static str, &'static str) {
        (code_name(self.code), subcode_name(self.code, self.subcode))
    }
}

fn code_name(code: u8) -> &'static str {
    name_in(error::NAMES, code).unwrap_or("Unknown Error")
}

fn subcode_name(code: u8, subcode: u8) -> &'static str {
    let names = match code {
        error::HEADER => header_error::NAMES,
        error::OPEN => open_error::NAMES,
        error::UPDATE => update_error::NAMES,
        error::FSM => fsm_error::NAMES,
        error::CEASE => cease::NAMES,
        error::ROUTE_REFRESH => &[(1, "Invalid Message Length")],
        _ => &[],
    };
    name_in(names, subcode).unwrap_or(if subcode == 0 { "" } else { "unknown subcode" })
}

fn name_in(names: &[(u8, &'static str)], code: u8) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

impl HeaderError {
    /// The notification for the neighbor.
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
