//! Why bytes cannot be viewed as a header.

/// Why bytes are not the header that a view takes them for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end inside the header.
    #[error("the bytes end inside the header")]
    Truncated,
    /// Another version, or another kind of message.
    #[error("another version or kind of message")]
    Kind,
    /// The header's own length is shorter than a header can be, or longer than what is at hand.
    #[error("an impossible header length")]
    HeaderLength,
    /// A length field contradicts the header or what is at hand.
    #[error("a length that contradicts the header")]
    Length,
}
