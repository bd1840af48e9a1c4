//! AS-path patterns: regular expressions over AS numbers, in the syntax that operators use, without its traps.
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
//! A pattern may match anywhere in the path. The unit is the AS number, not the character: `64500` never matches
//! 164500, `^64500_` and `_64500$` have their usual meaning, and `_64500_64501_` and `64500 64501` are the same.
//! `[0-9]+`, which means any number in text patterns, is accepted. Other ways to match single digits are refused
//! with advice, because their meaning would silently differ. Unlike in text, `_.*_` between two numbers also
//! matches if they are adjacent.
//!
//! An AS_SET is one position in the path, which matches if any of its members does. Confederation segments count
//! like others.
//!
//! A pattern is compiled to a non-deterministic automaton with at most [`POSITIONS_MAX`] positions that consume a
//! number. Matching keeps the set of live positions as 64 or 256 bits: for any pattern, its time is the path's
//! length times the live positions, without backtracking or allocation.

mod automaton;
mod parse;

use std::ops::Range;
use std::sync::Arc;

use thalweg_wire::bgp::AsPath;

use automaton::Automaton;

/// The most positions of a pattern that consume a number. A list of alternative numbers is one position.
pub const POSITIONS_MAX: usize = 256;

/// The most bytes of a pattern's text: enough for a list of 8,000 AS numbers.
pub const PATTERN_MAX_BYTES: usize = 64 << 10;

/// The deepest nesting of groups.
pub const GROUPS_MAX: usize = 50;

/// A compiled AS-path pattern.
#[derive(Clone, Debug)]
pub struct AsPathPattern {
    text: Arc<str>,
    automaton: Compiled,
}

/// Most patterns fit 64 positions; the others pay for four words.
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

    /// Whether the pattern matches the path.
    #[inline]
    pub fn matches(&self, path: AsPath<'_>) -> bool {
        match &self.automaton {
            Compiled::Small(automaton) => automaton.matches(path),
            Compiled::Large(automaton) => automaton.matches(path),
        }
    }

    /// The text that the pattern was compiled from.
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

/// An error in a pattern, and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (column {})", .at.start + 1)]
pub struct AsPathError {
    /// Byte offsets in the text.
    pub at: Range<usize>,
    pub problem: AsPathProblem,
}

/// The kinds of errors in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsPathProblem {
    /// An empty pattern would match everything.
    #[error("an empty AS-path pattern")]
    Empty,
    #[error("an AS-path pattern above {PATTERN_MAX_BYTES} bytes")]
    TooLong,
    #[error("`{0}` means nothing in an AS-path pattern")]
    Unexpected(char),
    #[error("AS numbers end at 4294967295")]
    NumberTooLarge,
    /// `*`, `+` or `?` follows nothing.
    #[error("there is nothing to repeat before this")]
    NothingToRepeat,
    #[error("this group has no `)`")]
    GroupOpen,
    #[error("this `)` has no `(`")]
    GroupNotOpen,
    #[error("this `[` has no `]`")]
    ClassOpen,
    #[error("a class without AS numbers")]
    ClassEmpty,
    #[error("the range ends before it begins")]
    RangeReversed,
    /// The pattern matches single digits of a number, as in `645[0-9]`.
    #[error("single digits of an AS number cannot be matched")]
    DigitByDigit,
    #[error("groups nested more than {GROUPS_MAX} deep")]
    TooDeep,
    #[error("the pattern has more than {POSITIONS_MAX} places for AS numbers")]
    TooManyPositions,
}

impl AsPathProblem {
    /// Advice on what to write instead, if there is any.
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
