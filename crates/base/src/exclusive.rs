//! Exclusive access to the state of stages. The code that spreads stages over threads chooses the lock.
//!
//! A stage keeps its shards in cells. It enters one, or several in ascending order, works, and leaves. On one thread a [`RefCell`]
//! does; among several threads it is a lock, which belongs to the crate that has the threads. Stages need not know.

use std::cell::{RefCell, RefMut};
use std::fmt::Debug;
use std::ops::DerefMut;

/// A kind of cells.
pub trait Exclusion: Debug + 'static {
    /// The cell of a value.
    type Cell<T: Send + Debug>: Exclusive<T>;
}

/// A cell that one at a time can be in.
pub trait Exclusive<T>: Debug {
    /// The value, until it is dropped.
    type Entered<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// A cell with a value.
    fn new(value: T) -> Self;

    /// Enters, once nobody else is inside.
    fn enter(&self) -> Self::Entered<'_>;

    /// Enters, unless somebody is inside.
    fn try_enter(&self) -> Option<Self::Entered<'_>>;
}

/// One thread has everything: who enters twice at a time has a mistake in it, and panics.
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
