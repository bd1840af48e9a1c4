//! Why bytes cannot be viewed as a header.

use std::fmt;

/// Why bytes are not the header that a view takes them for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They end inside the header.
    Truncated,
    /// Another version, or another kind of message.
    Kind,
    /// The header's own length is shorter than a header can be, or longer than what is at hand.
    HeaderLength,
    /// A length field contradicts the header or what is at hand.
    Length,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the bytes end inside the header",
            Self::Kind => "another version or kind of message",
            Self::HeaderLength => "a header length that cannot be",
            Self::Length => "a length that contradicts the header",
        })
    }
}

impl std::error::Error for Malformed {}
