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
//!     routers with several ports and flows in both directions ([`ports`])
//! ```
//!
//! [`ablation`] makes routers of ours that differ in one thing each, to be measured beside one another.
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
//! Missing: IPv6, the RFC's filters and management traffic.

pub mod ablation;
pub mod application;
pub mod experiment;
pub mod frame;
pub mod latency;
pub mod load;
pub mod method;
pub mod namespace;
pub(crate) mod packet_socket;
pub mod ports;
pub mod render;
pub mod subject;
pub mod tester;
pub mod topology;

use std::io;
use std::path::PathBuf;

/// Why there is no experiment, or no result of a router.
#[derive(Debug, thiserror::Error)]
pub enum ForwardingError {
    /// Namespaces and packet sockets are for root.
    #[error(
        "this experiment creates network namespaces and sends raw frames: run it as root (it touches \
         nothing outside its namespaces)"
    )]
    NotRoot,
    /// The system refused something.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
    /// A program did not succeed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// How it was called.
        command: String,
        said: String,
    },
    /// The file has no prefix that frames can be routed by.
    #[error("{0} has no IPv4 prefix to route by")]
    NoPrefixes(PathBuf),
    /// Frames do not come through, or not as they should.
    #[error(
        "of {sent} frames {received} came through{}{}",
        .fault.map(|fault| format!(", with {fault}")).unwrap_or_default(),
        if .said.is_empty() { String::new() } else { format!("; it said: {said}") }
    )]
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
    #[error("the generator cannot send over its own link")]
    NoGenerator,
    /// Nothing could be measured.
    #[error("nothing was measured: {}", .0.join("; "))]
    Nothing(Vec<String>),
    /// Somebody wants us to end.
    #[error("interrupted")]
    Interrupted,
}

/// Whether this process is root, without whom there is nothing to measure.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
