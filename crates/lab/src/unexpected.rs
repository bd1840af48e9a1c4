//! Words of a command line that say nothing known.

/// A text, and what was expected in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: expected {expected}")]
pub struct Unexpected {
    text: String,
    expected: String,
}

impl Unexpected {
    pub(crate) fn new(text: &str, expected: impl Into<String>) -> Self {
        Self { text: text.to_owned(), expected: expected.into() }
    }
}
