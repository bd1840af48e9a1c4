//! AS-path patterns: regular expressions over AS numbers, as operators write them, without their traps.
//!
//! ```text
//! pattern     = choice              choice = row { "|" row }        row = { piece [ "*" | "+" | "?" ] }
//! piece       = NUMBER              this AS number, the whole of it
//!             | "."                 any one AS number
//!             | "[" ranges "]"      any of these: [64512-65534 65551], with ^ in front any but these
//!             | "(" choice ")"
//!             | "^" | "$"           the beginning, the end of the path
//!             | "_" | " "           nothing: a boundary between AS numbers, which is everywhere
//! ```
//!
//! A pattern is looked for anywhere in the path. The unit is the AS number, not the letter: `64500` never finds
//! 164500, `^64500_` and `_64500$` mean what they mean elsewhere, and `_64500_64501_` and `64500 64501` are the
//! same. What text patterns write as `[0-9]+` (any number) is understood; other ways to match single digits are
//! refused with advice, because they would silently mean something else. Unlike in text, `_.*_` between two
//! numbers also fits when they are neighbors.
//!
//! An AS_SET is one place in the path that fits if any of its members does. Confederation segments count like
//! others.
//!
//! The pattern becomes a non-deterministic automaton with at most [`POSITIONS_MAX`] places where a number is
//! consumed. Matching keeps the set of live places as 64 or 256 bits: its time is the path's length times the
//! live places, whatever the pattern; nothing goes back and nothing is allocated.

mod automaton;
mod parse;

use std::ops::Range;
use std::sync::Arc;

use thalweg_wire::bgp::AsPath;

use automaton::Automaton;

/// Places where a pattern consumes a number, at most. A list of alternative numbers is one place.
pub const POSITIONS_MAX: usize = 256;

/// Bytes of a pattern's text at most: room for a list of 8,000 AS numbers.
pub const PATTERN_MAX_BYTES: usize = 64 << 10;

/// How deep groups may be nested.
pub const GROUPS_MAX: usize = 50;

/// A compiled AS-path pattern.
#[derive(Clone, Debug)]
pub struct AsPathPattern {
    text: Arc<str>,
    automaton: Compiled,
}

/// Most patterns fit 64 places; the others pay for four words.
#[derive(Clone, Debug)]
enum Compiled {
    Small(Arc<Automaton<1>>),
    Large(Arc<Automaton<4>>),
}

impl AsPathPattern {
    /// Compiles a pattern.
    pub fn new(text: &str) -> Result<Self, AsPathError> {
        let (tree, positions) = parse::parse(text)?;
        let automaton = if positions <= 64 {
            Compiled::Small(Arc::new(Automaton::new(&tree)))
        } else {
            Compiled::Large(Arc::new(Automaton::new(&tree)))
        };
        Ok(Self { text: text.into(), automaton })
    }

    /// Whether the path fits.
    #[inline]
    pub fn matches(&self, path: AsPath<'_>) -> bool {
        match &self.automaton {
            Compiled::Small(automaton) => automaton.matches(path),
            Compiled::Large(automaton) => automaton.matches(path),
        }
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for AsPathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for AsPathPattern {}

/// What is wrong with a pattern, and where in its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (column {})", .at.start + 1)]
pub struct AsPathError {
    /// Bytes of the text.
    pub at: Range<usize>,
    /// What is wrong there.
    pub problem: AsPathProblem,
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsPathProblem {
    /// It is empty, which would match everything.
    #[error("an empty AS-path pattern")]
    Empty,
    /// Too many bytes.
    #[error("an AS-path pattern above {PATTERN_MAX_BYTES} bytes")]
    TooLong,
    /// A character that means nothing here.
    #[error("`{0}` means nothing in an AS-path pattern")]
    Unexpected(char),
    /// A number above 4294967295.
    #[error("AS numbers end at 4294967295")]
    NumberTooLarge,
    /// `*`, `+` or `?` with nothing before it.
    #[error("there is nothing to repeat before this")]
    NothingToRepeat,
    /// A group that does not end.
    #[error("this group has no `)`")]
    GroupOpen,
    /// An end of a group that did not begin.
    #[error("this `)` has no `(`")]
    GroupNotOpen,
    /// A class that does not end.
    #[error("this `[` has no `]`")]
    ClassOpen,
    /// A class without numbers.
    #[error("a class without AS numbers")]
    ClassEmpty,
    /// A range whose first number is above its last.
    #[error("the range ends before it begins")]
    RangeReversed,
    /// Single digits of a number, as in `645[0-9]`.
    #[error("single digits of an AS number cannot be matched")]
    DigitByDigit,
    /// Groups within groups within groups.
    #[error("groups nested more than {GROUPS_MAX} deep")]
    TooDeep,
    /// Too many places.
    #[error("the pattern has more than {POSITIONS_MAX} places for AS numbers")]
    TooManyPositions,
}

impl AsPathProblem {
    /// What to write instead, where there is something to say.
    pub fn help(self) -> Option<&'static str> {
        match self {
            Self::Empty => Some("`^$` is the empty path, `.*` is any"),
            Self::DigitByDigit => Some(
                "patterns match whole AS numbers: write a range, such as [64500-64599]; any one number is `.`",
            ),
            Self::TooManyPositions => Some("long lists of AS numbers belong in an AS set"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
