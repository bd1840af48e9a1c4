//! A trial: a plan that was played, and how it ended.

use std::any::Any;
use std::fmt;

use super::bgp::Fault;
use super::coverage::Coverage;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// All invariants held.
    #[default]
    Held,
    /// One did not.
    Broken(Violation),
}

/// A trial that has ended.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub verdict: Verdict,
    /// What it met.
    pub coverage: Coverage,
    /// Virtual time it took.
    pub virtual_us: u64,
    /// UPDATEs that were sent.
    pub updates: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// A number that follows from all bytes that were sent, and when.
    pub digest: u128,
}

/// Something that happened, for those who want to see a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A fault or a change of the plan.
    Fault(Fault),
    /// Everything is mended.
    Mended,
    /// The network is at rest and as it must be.
    Checked,
    /// What became of a chunk of packets, or another configuration was put in force.
    Packets(String),
    /// A router logged something about a neighbor.
    Logged {
        router: usize,
        /// The router it is about.
        other: usize,
        /// In its words.
        text: String,
    },
}

/// Hears what happens, with its virtual time in microseconds.
pub type Voice<'a> = &'a mut dyn FnMut(u64, Moment);

/// A panic is a broken invariant.
pub(super) fn panicked(panic: &(dyn Any + Send), at_us: u64) -> Violation {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Violation { invariant: "no panic", router: None, at_us, text: text.unwrap_or_default() }
}
