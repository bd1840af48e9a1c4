//! How a run is given up: one that panics takes the run down instead of leaving the others waiting for it.
//!
//! A thread that panics, or finds that it cannot go on, records the first error, sets a flag
//! and unparks every thread of the run. Every wait looks at the flag after waking; a thread that leaves drops its
//! ends of rings, which wakes the other ends. A source that blocks is not interrupted: the run ends
//! when it returns.

use crate::report::ExecError;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// The run has been given up; the reason is with [`Control`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// Locks what no foreign code runs under, so that a poisoned lock holds nothing half done.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the run goes on, and whom to wake when it does not.
#[derive(Default)]
pub(crate) struct Control {
    aborted: AtomicBool,
    error: Mutex<Option<ExecError>>,
    threads: Mutex<Vec<Thread>>,
}

impl Control {
    /// Errors once the run has been given up.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if self.aborted.load(SeqCst) { Err(Stopped) } else { Ok(()) }
    }

    /// Makes the calling thread one of those that are woken when the run is given up.
    pub(crate) fn register(&self) {
        lock(&self.threads).push(thread::current());
    }

    /// Gives the run up. The first reason stays.
    pub(crate) fn abort(&self, error: ExecError) -> Stopped {
        lock(&self.error).get_or_insert(error);
        self.aborted.store(true, SeqCst);
        lock(&self.threads).iter().for_each(Thread::unpark);
        Stopped
    }

    /// The reason, if the run was given up.
    pub(crate) fn into_error(self) -> Option<ExecError> {
        self.error.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
