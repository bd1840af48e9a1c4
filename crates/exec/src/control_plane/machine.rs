//! What the threads of a scheduling run on: this machine, or virtual cores.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::virtual_cores::{Awaited, Sleeper, VirtualCores};

/// What the threads of a scheduling run on, and its clock.
#[derive(Clone, Debug)]
pub(super) enum Machine {
    /// This machine; the time when the scheduling began.
    Real(Instant),
    Virtual {
        cores: Arc<VirtualCores>,
        /// The cost of asking the kernel for events.
        poll_ns: u64,
    },
}

impl Machine {
    pub(super) fn real() -> Self {
        Machine::Real(Instant::now())
    }

    /// Milliseconds since the scheduling began.
    pub(super) fn now_ms(&self) -> u64 {
        match self {
            Machine::Real(began) => u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            Machine::Virtual { cores, .. } => cores.now_ns() / 1_000_000,
        }
    }

    /// A handle that wakes the calling thread.
    pub(super) fn sleeper(&self) -> Sleeper {
        match self {
            Machine::Real(_) => Sleeper::here(None),
            Machine::Virtual { cores, .. } => Sleeper::here(Some(cores)),
        }
    }

    /// Sleeps until woken, perhaps spuriously. On virtual cores it fails if no thread is left to wake another.
    pub(super) fn park(&self) -> io::Result<()> {
        match self {
            Machine::Real(_) => {
                thread::park();
                Ok(())
            }
            Machine::Virtual { cores, .. } => cores.park(Awaited::Event).map_err(io::Error::other),
        }
    }
}
