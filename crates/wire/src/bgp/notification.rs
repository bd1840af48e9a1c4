//! NOTIFICATION: why a session ends.
//!
//! RFC 4271 4.5 and 6, RFC 4486 (subcodes of Cease), RFC 6608 (FSM errors), RFC 7313 (ROUTE-REFRESH errors),
//! RFC 8538 (hard reset), RFC 9003 (text of a shutdown), RFC 9234 (role mismatch), RFC 9384 (BFD down),
//! RFC 9687 (send hold timer).

use std::fmt;

use super::header::{HeaderError, MESSAGE_LENGTH_MAX, MessageKind, begin_message, finish_message};

/// Makes a module of codes, and their names in the registry by code.
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
    /// Message header error.
    HEADER 1 "Message Header Error";
    /// OPEN message error.
    OPEN 2 "OPEN Message Error";
    /// UPDATE message error.
    UPDATE 3 "UPDATE Message Error";
    /// Hold timer expired.
    HOLD_TIMER 4 "Hold Timer Expired";
    /// A message came in a state that does not expect it.
    FSM 5 "Finite State Machine Error";
    /// The session ends without an error.
    CEASE 6 "Cease";
    /// ROUTE-REFRESH message error (RFC 7313).
    ROUTE_REFRESH 7 "ROUTE-REFRESH Message Error";
    /// The neighbor does not read (RFC 9687).
    SEND_HOLD_TIMER 8 "Send Hold Timer Expired";
}

codes! {
    /// Subcodes of header errors.
    header_error:
    /// The marker is not all ones.
    NOT_SYNCHRONIZED 1 "Connection Not Synchronized";
    /// A length no message has; the data is the length.
    BAD_LENGTH 2 "Bad Message Length";
    /// A type that is not known; the data is the type.
    BAD_TYPE 3 "Bad Message Type";
}

codes! {
    /// Subcodes of OPEN errors.
    open_error:
    /// None of the others.
    UNSPECIFIC 0 "";
    /// Another version; the data is the highest that is spoken here.
    UNSUPPORTED_VERSION 1 "Unsupported Version Number";
    /// The AS is not the one that is configured.
    BAD_PEER_AS 2 "Bad Peer AS";
    /// The identifier is 0, or ours.
    BAD_IDENTIFIER 3 "Bad BGP Identifier";
    /// An optional parameter that is not known.
    UNSUPPORTED_PARAMETER 4 "Unsupported Optional Parameter";
    /// Deprecated (RFC 4271).
    AUTHENTICATION_FAILURE 5 "Authentication Failure";
    /// The hold time is 1 or 2 seconds, or too short for us.
    UNACCEPTABLE_HOLD_TIME 6 "Unacceptable Hold Time";
    /// A capability is needed that the neighbor lacks; the data is the capability.
    UNSUPPORTED_CAPABILITY 7 "Unsupported Capability";
    /// The roles do not fit (RFC 9234).
    ROLE_MISMATCH 11 "Role Mismatch";
}

codes! {
    /// Subcodes of UPDATE errors.
    update_error:
    /// The attributes do not add up.
    MALFORMED_ATTRIBUTE_LIST 1 "Malformed Attribute List";
    /// A well-known attribute that is not known.
    UNRECOGNIZED_WELL_KNOWN 2 "Unrecognized Well-known Attribute";
    /// A well-known attribute is missing.
    MISSING_WELL_KNOWN 3 "Missing Well-known Attribute";
    /// Flags that the attribute cannot have.
    ATTRIBUTE_FLAGS 4 "Attribute Flags Error";
    /// A length that the attribute cannot have.
    ATTRIBUTE_LENGTH 5 "Attribute Length Error";
    /// ORIGIN.
    INVALID_ORIGIN 6 "Invalid ORIGIN Attribute";
    /// Deprecated (RFC 4271).
    AS_ROUTING_LOOP 7 "AS Routing Loop";
    /// NEXT_HOP.
    INVALID_NEXT_HOP 8 "Invalid NEXT_HOP Attribute";
    /// An optional attribute.
    OPTIONAL_ATTRIBUTE 9 "Optional Attribute Error";
    /// A prefix.
    INVALID_NETWORK_FIELD 10 "Invalid Network Field";
    /// AS_PATH.
    MALFORMED_AS_PATH 11 "Malformed AS_PATH";
}

codes! {
    /// Subcodes of FSM errors (RFC 6608).
    fsm_error:
    /// In a state not listed.
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
    /// Someone shut the session down; the data may be a text.
    ADMINISTRATIVE_SHUTDOWN 2 "Administrative Shutdown";
    /// The neighbor was taken out of the configuration.
    PEER_DECONFIGURED 3 "Peer De-configured";
    /// Someone reset the session; the data may be a text.
    ADMINISTRATIVE_RESET 4 "Administrative Reset";
    /// The connection is not wanted.
    CONNECTION_REJECTED 5 "Connection Rejected";
    /// The configuration changed in some other way.
    OTHER_CONFIGURATION_CHANGE 6 "Other Configuration Change";
    /// The other of two connections was kept.
    CONNECTION_COLLISION 7 "Connection Collision Resolution";
    /// Out of memory or the like.
    OUT_OF_RESOURCES 8 "Out of Resources";
    /// No graceful restart, whatever was agreed on; the data is the real notification (RFC 8538).
    HARD_RESET 9 "Hard Reset";
    /// BFD says that the neighbor is gone (RFC 9384).
    BFD_DOWN 10 "BFD Down";
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
