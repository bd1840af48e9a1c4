//! Locks that nothing foreign runs under.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what no foreign code runs under, so that a poisoned lock holds nothing half done.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
