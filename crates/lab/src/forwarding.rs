//! The experiment on forwarding: routers between two testers, measured as RFC 2544 and RFC 9004 say.
//!
//! The tool makes its own network of namespaces ([`topology`]), sends and receives itself ([`tester`]) and lets
//! different routers ([`subject`]) stand in the middle: the kernel's own forwarding as the native baseline,
//! our router with each driver and model, others where they are to be had. What the trials are and what follows from
//! them is arithmetic ([`method`]); [`experiment`] says in which order all of it happens, [`render`] shows it.
//!
//! ```text
//!   rounds x (set-ups, shuffled) x (cells of the set-up, shuffled)
//!     cell: verify -> throughput -> latency -> frame loss -> back-to-back -> cost
//!     set-up: a topology of its own, router started, after its cells the applications
//! ```
//!
//! The generator is measured first, alone, over a direct link: that is the *ceiling*, and where a router reaches it, the
//! report says that the generator was the limit.
//!
//! Invariants: nothing is touched outside the namespaces; they go at the end, on errors and when interrupted
//! ([`namespace`]). No more frames are received than were sent. A router whose frames come out wrong (a wrong
//! checksum, a time to live that did not fall) is not measured but named.
//!
//! A virtual link stands in for a network card: it has no rate, no queue of its own and its work is done in the
//! sender's time. So figures compare routers on this machine in one run; they say nothing about hardware.
//!
//! Missing: IPv6, frames both ways at once, more than two ports, the RFC's filters and management traffic.

pub mod application;
pub mod experiment;
pub mod frame;
pub mod latency;
pub mod load;
pub mod method;
pub mod namespace;
pub(crate) mod packet_socket;
pub mod render;
pub mod subject;
pub mod tester;
pub mod topology;

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there is no experiment, or no result of a router.
#[derive(Debug)]
pub enum ForwardingError {
    /// Namespaces and packet sockets are for root.
    NotRoot,
    /// The system refused something.
    System {
        /// What.
        what: String,
        /// How.
        source: io::Error,
    },
    /// A program did not succeed.
    Command {
        /// How it was called.
        command: String,
        /// What it said.
        said: String,
    },
    /// The file has no prefix that frames can be routed by.
    NoPrefixes(PathBuf),
    /// Frames do not come through, or not as they should.
    NotForwarding {
        /// How many were sent.
        sent: u64,
        /// How many came.
        received: u64,
        /// What was wrong with those, if anything.
        fault: Option<&'static str>,
        /// What the router said.
        said: String,
    },
    /// The generator sends nothing.
    NoGenerator,
    /// Nothing could be measured.
    Nothing(Vec<String>),
    /// Somebody wants us to end.
    Interrupted,
}

impl fmt::Display for ForwardingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str(
                "this experiment makes network namespaces and sends raw frames, for which it must be root \
                 (it touches nothing outside its namespaces)",
            ),
            Self::System { what, source } => write!(f, "{what}: {source}"),
            Self::Command { command, said } => write!(f, "`{command}` failed: {said}"),
            Self::NoPrefixes(path) => write!(f, "{} has no IPv4 prefix to route by", path.display()),
            Self::NotForwarding { sent, received, fault, said } => {
                write!(f, "of {sent} frames {received} came through")?;
                fault.iter().try_for_each(|fault| write!(f, ", with {fault}"))?;
                if said.is_empty() { Ok(()) } else { write!(f, "; it said: {said}") }
            }
            Self::NoGenerator => f.write_str("the generator cannot send over a link of its own"),
            Self::Nothing(why) => write!(f, "nothing could be measured: {}", why.join("; ")),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for ForwardingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Whether this process is root, without whom there is nothing to measure.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
