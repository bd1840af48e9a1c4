//! The experiment on forwarding: measures routers between two testers by RFC 2544 and RFC 9004.
//!
//! The experiment makes a network of namespaces ([`topology`]), sends and receives ([`tester`]), and puts different
//! routers ([`subject`]) in the middle: the kernel's forwarding as the native baseline, Thalweg with each driver
//! and model, and others if installed. [`method`] decides on trials and evaluates them, [`experiment`] orders
//! everything, [`render`] shows the results.
//!
//! ```text
//!   rounds x (set-ups, shuffled) x (cells of the set-up, shuffled)
//!     cell: verify -> throughput -> latency -> frame loss -> back-to-back -> cost
//!     set-up: a topology of its own, router started, after its cells the applications
//!     routers with several ports and flows in both directions ([`ports`])
//! ```
//!
//! First, the generator is measured alone over a direct link: that is the *ceiling*. If a router reaches it, the
//! report says that the generator was the limit. [`ablation`] measures our router beside itself with one thing
//! changed.
//!
//! Invariants: nothing outside the namespaces changes; they are removed at the end, also on errors and
//! interruptions ([`namespace`]). No more frames are received than were sent. A router that sends wrong frames (a
//! wrong checksum, a TTL not decremented) is reported and not measured.
//!
//! A virtual link stands in for a network card: it has no rate and no queue, and the sender's thread does its work.
//! So figures compare routers on this machine in one run; they say nothing about hardware.
//!
//! Missing: IPv6, the RFC's filters and management traffic.

pub mod ablation;
pub mod application;
pub(crate) mod attempts;
pub mod experiment;
pub mod frame;
pub mod latency;
pub mod links;
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why the experiment, or one router, has no result.
#[derive(Debug, thiserror::Error)]
pub enum ForwardingError {
    /// Namespaces and packet sockets require root.
    #[error(
        "this experiment creates network namespaces and sends raw frames: run it as root (it touches \
         nothing outside its namespaces)"
    )]
    NotRoot,
    /// A system call failed.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
    /// A program failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// How it was called.
        command: String,
        said: String,
    },
    /// No prefix of the file can be used to route frames.
    #[error("{0} has no IPv4 prefix to route by")]
    NoPrefixes(PathBuf),
    /// Frames do not arrive, or are wrong.
    #[error(
        "of {sent} frames {received} came through{}{}",
        .fault.map(|fault| format!(", with {fault}")).unwrap_or_default(),
        if .said.is_empty() { String::new() } else { format!("; it said: {said}") }
    )]
    NotForwarding {
        sent: u64,
        received: u64,
        /// What was wrong with those that arrived, if anything.
        fault: Option<&'static str>,
        /// The router's output.
        said: String,
    },
    /// A router was not where it should be in time.
    #[error("{what}, after {} s{}", .after.as_secs(), if .said.is_empty() { String::new() } else { format!("; it said: {said}") })]
    Late {
        what: String,
        after: Duration,
        /// The router's output.
        said: String,
    },
    /// The generator cannot send.
    #[error("the generator cannot send over its own link")]
    NoGenerator,
    /// Nothing could be measured.
    #[error("nothing was measured: {}", .0.join("; "))]
    Nothing(Vec<String>),
    /// The experiment was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Waits so long, unless interrupted.
pub(crate) fn wait(time: Duration, stop: &AtomicBool) -> Result<(), ForwardingError> {
    const LOOK: Duration = Duration::from_millis(10);
    let end = Instant::now() + time;
    while Instant::now() < end {
        if stop.load(Ordering::Relaxed) {
            return Err(ForwardingError::Interrupted);
        }
        std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Whether this process is root, which the experiment requires.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
