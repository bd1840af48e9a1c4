//! How a run is given up: a thread that panics ends the run instead of leaving the others to wait for it.
//!
//! A thread that panics, or cannot continue, records the first error, sets a flag and unparks every thread of the
//! run. Every wait checks the flag after waking. A thread that leaves drops its ends of rings, which wakes the
//! other ends. A source that blocks is not interrupted: the run ends when it returns.

use crate::backoff::Backoff;
use crate::report::ExecError;
use crate::virtual_cores::{Awaited, Sleeper, VirtualCores};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// The run was given up; [`RunControl`] has the reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// A lock under which code of the plan, the source or the sink runs. A panic there poisons it, because the contents
/// may be half changed: nothing uses them again, and the run ends. No other lock of this crate is held while
/// foreign code runs.
pub(crate) use std::sync::Mutex as Fragile;

/// Whether the run continues, and the threads to wake when it stops.
#[derive(Default)]
pub(crate) struct RunControl {
    aborted: AtomicBool,
    error: Mutex<Option<ExecError>>,
    threads: Mutex<Vec<Sleeper>>,
    /// Set if the run is on virtual cores.
    pub(crate) cores: Option<Arc<VirtualCores>>,
}

impl RunControl {
    pub(crate) fn on(cores: Option<Arc<VirtualCores>>) -> Self {
        Self { cores, ..Self::default() }
    }

    /// Fails once the run has been given up.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if self.aborted.load(SeqCst) { Err(Stopped) } else { Ok(()) }
    }

    /// Adds the calling thread to those that wake when the run is given up.
    pub(crate) fn register(&self) {
        self.threads.lock().push(self.me());
    }

    /// Gives the run up. Only the first reason is kept.
    pub(crate) fn abort(&self, error: ExecError) -> Stopped {
        self.error.lock().get_or_insert(error);
        self.aborted.store(true, SeqCst);
        self.threads.lock().iter().for_each(Sleeper::unpark);
        Stopped
    }

    /// A handle that wakes the calling thread.
    pub(crate) fn me(&self) -> Sleeper {
        Sleeper::here(self.cores.as_ref())
    }

    pub(crate) fn backoff(&self) -> Backoff {
        if self.cores.is_some() { Backoff::none() } else { Backoff::default() }
    }

    /// Sleeps until woken, perhaps spuriously. On virtual cores the run ends if no thread is left to wake another.
    pub(crate) fn park(&self, awaited: Awaited) {
        match &self.cores {
            None => thread::park(),
            Some(cores) => {
                if let Err(deadlock) = cores.park(awaited) {
                    self.abort(deadlock);
                }
            }
        }
    }

    pub(crate) fn into_error(self) -> Option<ExecError> {
        self.error.into_inner()
    }
}
