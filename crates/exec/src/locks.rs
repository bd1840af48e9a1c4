//! The cells of state that several threads share.

use parking_lot::{Mutex, MutexGuard};
use std::fmt::Debug;
use thalweg_base::{Exclusion, Exclusive};

/// Makes each cell a lock. Models run a group of shards in one place at a time, so threads hardly ever wait for it.
///
/// If a thread panics inside a cell, others may still enter it: state is whole between packets, and the panic ends
/// the run.
#[derive(Clone, Copy, Debug)]
pub struct Locks;

impl Exclusion for Locks {
    type Cell<T: Send + Debug> = Lock<T>;
}

/// A cell of [`Locks`].
#[derive(Debug)]
pub struct Lock<T>(Mutex<T>);

impl<T: Debug> Exclusive<T> for Lock<T> {
    type Entered<'a>
        = MutexGuard<'a, T>
    where
        Self: 'a;

    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    fn enter(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    fn try_enter(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}
