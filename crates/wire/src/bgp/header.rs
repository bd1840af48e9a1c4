//! The header of every message, and how to cut a stream of bytes into messages.
//!
//! ```text
//! marker: 16 bytes of ones | length: 2 bytes, header included | type: 1 byte | body
//! ```
//!
//! RFC 4271 4.1 and 6.1, RFC 8654 (longer messages if both ends announce them; OPEN and KEEPALIVE stay
//! short).

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 19;
/// The longest message without RFC 8654.
pub const MESSAGE_LENGTH_MAX: usize = 4096;
/// The longest message with RFC 8654.
pub const EXTENDED_MESSAGE_LENGTH_MAX: usize = 65_535;

const MARKER: [u8; 16] = [0xff; 16];

thalweg_base::words! {
    /// The type of a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum MessageKind {
        Open = 1 => "OPEN",
        Update = 2 => "UPDATE",
        Notification = 3 => "NOTIFICATION",
        Keepalive = 4 => "KEEPALIVE",
        /// ROUTE-REFRESH (RFC 2918)
        RouteRefresh = 5 => "ROUTE-REFRESH",
    }
}

impl MessageKind {
    /// The kind with this type byte.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Open),
            2 => Some(Self::Update),
            3 => Some(Self::Notification),
            4 => Some(Self::Keepalive),
            5 => Some(Self::RouteRefresh),
            _ => None,
        }
    }

    /// The minimum length of a message including its header.
    /// [`RouteRefresh::parse`](super::RouteRefresh::parse) checks ROUTE-REFRESH, because RFC 7313 defines a
    /// separate error for it.
    const fn length_min(self) -> usize {
        match self {
            Self::Open => 29,
            Self::Update => 23,
            Self::Notification => 21,
            Self::Keepalive | Self::RouteRefresh => HEADER_LENGTH,
        }
    }

    /// The maximum length, if messages of up to `max` bytes were negotiated.
    const fn length_max(self, max: usize) -> usize {
        match self {
            Self::Keepalive => HEADER_LENGTH,
            Self::Open => MESSAGE_LENGTH_MAX,
            _ => max,
        }
    }
}

/// A whole message at the beginning of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: MessageKind,
    /// The bytes behind the header.
    pub body: &'a [u8],
    /// Bytes of the message including its header: the next message begins there.
    pub length: usize,
}

/// Why bytes cannot be a message. Nothing that follows on the connection can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The marker is not all ones.
    #[error("expected a marker of ones")]
    NotSynchronized,
    /// No message of the kind has this length.
    #[error("length {length} is wrong for this message type")]
    Length {
        /// What the header says.
        length: u16,
    },
    #[error("unknown message type {byte}")]
    Kind {
        /// The type byte.
        byte: u8,
    },
}

/// The first message of a stream; `None` if it is incomplete. A malformed header is detected as soon as it is
/// complete, whatever length it claims.
#[inline]
pub fn frame(bytes: &[u8], length_max: usize) -> Result<Option<Frame<'_>>, HeaderError> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
    if header[..16] != MARKER {
        return Err(HeaderError::NotSynchronized);
    }
    let claimed = u16::from_be_bytes([header[16], header[17]]);
    let length = usize::from(claimed);
    let Some(kind) = MessageKind::from_byte(header[18]) else {
        // The length is checked first (RFC 4271 6.1).
        return Err(match length {
            HEADER_LENGTH.. if length <= length_max => HeaderError::Kind { byte: header[18] },
            _ => HeaderError::Length { length: claimed },
        });
    };
    if length < kind.length_min() || length > kind.length_max(length_max) {
        return Err(HeaderError::Length { length: claimed });
    }
    Ok(bytes.get(HEADER_LENGTH..length).map(|body| Frame { kind, body, length }))
}

/// Appends the header of a message; the body follows, and [`finish_message`] fills in the length. Returns the
/// start of the message.
pub fn begin_message(out: &mut Vec<u8>, kind: MessageKind) -> usize {
    let start = out.len();
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&[0, 0, kind as u8]);
    start
}

/// Completes the message that began at `start` and fills in its length. The caller respects the negotiated
/// limit; a message that exceeds the length field is refused and removed.
pub fn finish_message(out: &mut Vec<u8>, start: usize) -> Result<usize, MessageTooLong> {
    let length = out.len() - start;
    match (u16::try_from(length), out.get_mut(start + 16..start + 18)) {
        (Ok(number), Some(field)) => {
            field.copy_from_slice(&number.to_be_bytes());
            Ok(length)
        }
        _ => {
            out.truncate(start);
            Err(MessageTooLong { length })
        }
    }
}

/// A message exceeds the length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes; the most is {EXTENDED_MESSAGE_LENGTH_MAX}")]
pub struct MessageTooLong {
    pub length: usize,
}

/// Appends a KEEPALIVE.
pub fn write_keepalive(out: &mut Vec<u8>) {
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&[0, HEADER_LENGTH as u8, MessageKind::Keepalive as u8]);
}
