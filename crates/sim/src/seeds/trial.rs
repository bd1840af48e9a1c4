//! The result of running a plan.

use std::any::Any;
use std::fmt;

use super::bgp::Fault;
use super::coverage::Coverage;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    /// The router that broke it, if it was one.
    pub router: Option<usize>,
    /// In virtual time.
    pub at_us: u64,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms", self.invariant, self.at_us / 1000)?;
        self.router.map_or(Ok(()), |router| write!(f, ", router {router}"))?;
        write!(f, ": {}", self.text)
    }
}

/// The result of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Held,
    Broken(Violation),
}

/// A finished trial.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub verdict: Verdict,
    pub coverage: Coverage,
    /// The virtual time it took.
    pub virtual_us: u64,
    /// The number of UPDATEs sent.
    pub updates: u64,
    /// The number of packets that arrived.
    pub packets: u64,
    /// A digest of all bytes sent and their times.
    pub digest: u128,
}

/// An event of a trial, for a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    Fault(Fault),
    /// All faults are repaired.
    Mended,
    /// The network has converged and passed all checks.
    Checked,
    /// The fate of a chunk of packets, or a reload.
    Packets(String),
    /// A router logged a line about a neighbor.
    Logged {
        router: usize,
        /// The neighbor.
        other: usize,
        text: String,
    },
}

/// Called for each event with its virtual time in microseconds.
pub type Voice<'a> = &'a mut dyn FnMut(u64, Moment);

/// Reports a panic as a broken invariant.
pub(super) fn panicked(panic: &(dyn Any + Send), at_us: u64) -> Violation {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Violation { invariant: "no panic", router: None, at_us, text: text.unwrap_or_default() }
}
