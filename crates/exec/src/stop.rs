//! How a run is given up: one that panics takes the run down instead of leaving the others waiting for it.
//!
//! A thread that panics, or finds that it cannot go on, records the first error, sets a flag
//! and unparks every thread of the run. Every wait looks at the flag after waking; a thread that leaves drops its
//! ends of rings, which wakes the other ends. A source that blocks is not interrupted: the run ends
//! when it returns.

use crate::backoff::Backoff;
use crate::report::ExecError;
use crate::virtual_cores::{Awaited, Sleeper, VirtualCores};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// The run has been given up; the reason is with [`RunControl`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// A lock under which code of the plan, the source or the sink runs. A panic there poisons it, because what is inside may be half
/// done: it must not be used again, and the run ends. No other lock of this crate is held while foreign code runs.
pub(crate) use std::sync::Mutex as Fragile;

/// Whether the run continues, and the threads to wake when it stops.
#[derive(Default)]
pub(crate) struct RunControl {
    aborted: AtomicBool,
    error: Mutex<Option<ExecError>>,
    threads: Mutex<Vec<Sleeper>>,
    /// What the run's threads run on, if not on the machine.
    pub(crate) cores: Option<Arc<VirtualCores>>,
}

impl RunControl {
    /// The control of a run on virtual cores, or on the machine's.
    pub(crate) fn on(cores: Option<Arc<VirtualCores>>) -> Self {
        Self { cores, ..Self::default() }
    }

    /// Errors once the run has been given up.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if self.aborted.load(SeqCst) { Err(Stopped) } else { Ok(()) }
    }

    /// Makes the calling thread one of those that are woken when the run is given up.
    pub(crate) fn register(&self) {
        self.threads.lock().push(self.me());
    }

    /// Gives the run up. The first reason stays.
    pub(crate) fn abort(&self, error: ExecError) -> Stopped {
        self.error.lock().get_or_insert(error);
        self.aborted.store(true, SeqCst);
        self.threads.lock().iter().for_each(Sleeper::unpark);
        Stopped
    }

    /// The calling thread, to be woken.
    pub(crate) fn me(&self) -> Sleeper {
        Sleeper::here(self.cores.as_ref())
    }

    /// How the calling thread tries before it sleeps.
    pub(crate) fn backoff(&self) -> Backoff {
        if self.cores.is_some() { Backoff::none() } else { Backoff::default() }
    }

    /// Sleeps until woken, perhaps for nothing. On virtual cores the run ends if nobody is left to wake anybody.
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

    /// The reason, if the run was given up.
    pub(crate) fn into_error(self) -> Option<ExecError> {
        self.error.into_inner()
    }
}
