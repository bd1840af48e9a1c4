//! How a trial ends.

use std::fmt;

/// What was not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub invariant: &'static str,
    /// Which router broke it, if it was one.
    pub router: Option<usize>,
    /// When, in virtual time.
    pub at_us: u64,
    /// What was wrong.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms", self.invariant, self.at_us / 1000)?;
        self.router.map_or(Ok(()), |router| write!(f, ", router {router}"))?;
        write!(f, ": {}", self.text)
    }
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All invariants held.
    Held,
    /// One did not.
    Broken(Violation),
}
