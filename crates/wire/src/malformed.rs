//! Why bytes cannot be viewed as a header.

/// Why a view refuses bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the bytes end inside the header")]
    Truncated,
    /// Another version, or another kind of message.
    #[error("another version or kind of message")]
    Kind,
    /// The header's length field is below the minimum or exceeds the captured bytes.
    #[error("an impossible header length")]
    HeaderLength,
    /// A length field contradicts the header or the captured bytes.
    #[error("a length that contradicts the header")]
    Length,
}
