//! Exclusive access to the state of stages, with a lock that the caller chooses.
//!
//! A stage keeps its shards in cells. It enters one cell, or several in ascending order, works, and leaves. A
//! single thread uses a [`RefCell`]; for several threads, the crate that owns the threads provides a lock.
//! Stages need not know which.

use std::cell::{RefCell, RefMut};
use std::fmt::Debug;
use std::ops::DerefMut;

/// Chooses the kind of cell.
pub trait Exclusion: Debug + 'static {
    type Cell<T: Send + Debug>: Exclusive<T>;
}

/// A cell that admits one user at a time.
pub trait Exclusive<T>: Debug {
    /// Gives access to the value; dropping it leaves the cell.
    type Entered<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    fn new(value: T) -> Self;

    /// Waits until the cell is free.
    fn enter(&self) -> Self::Entered<'_>;

    /// Returns `None` if the cell is in use.
    fn try_enter(&self) -> Option<Self::Entered<'_>>;
}

/// Everything runs on one thread. Entering a cell twice at a time is a bug and panics.
#[derive(Clone, Copy, Debug)]
pub struct OneThread;

impl Exclusion for OneThread {
    type Cell<T: Send + Debug> = RefCell<T>;
}

impl<T: Debug> Exclusive<T> for RefCell<T> {
    type Entered<'a>
        = RefMut<'a, T>
    where
        Self: 'a;

    fn new(value: T) -> Self {
        RefCell::new(value)
    }

    fn enter(&self) -> RefMut<'_, T> {
        self.borrow_mut()
    }

    fn try_enter(&self) -> Option<RefMut<'_, T>> {
        self.try_borrow_mut().ok()
    }
}
