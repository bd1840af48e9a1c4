//! Observers of what neighbors send, before import.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use thalweg_bgp::session::Negotiated;

use super::Speaker;
use crate::control::AnswerError;

/// Observers at a time: each may keep copies of tables.
const OBSERVERS_MAX: usize = 4;

/// Sees what established sessions receive. Threads that route call it with the session's lock held, so it must not
/// wait: it takes a copy, or drops and counts what it has no room for.
pub trait SessionObserver: Send + Sync {
    /// Receives whole consecutive messages that a session has read. The last may be the one that ended the session.
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]);

    /// Learns that the session came up or went down.
    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool);
}

#[derive(Default)]
pub(super) struct Observers {
    list: RwLock<Vec<Arc<dyn SessionObserver>>>,
    /// The length of the list: without observers, sessions take no lock.
    count: AtomicUsize,
}

impl Observers {
    pub(super) fn new(first: Option<Arc<dyn SessionObserver>>) -> Self {
        let list: Vec<_> = first.into_iter().collect();
        Self { count: AtomicUsize::new(list.len()), list: RwLock::new(list) }
    }

    pub(super) fn each(&self, tell: impl Fn(&dyn SessionObserver)) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.list.read().iter().for_each(|observer| tell(&**observer));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<dyn SessionObserver>>)) {
        let mut list = self.list.write();
        change(&mut list);
        self.count.store(list.len(), Ordering::Release);
    }
}

impl Speaker {
    /// Adds an observer; an error says that there are too many.
    pub fn observe(&self, observer: Arc<dyn SessionObserver>) -> Result<(), AnswerError> {
        let mut result = Ok(());
        self.observers.change(|list| match list.len() {
            OBSERVERS_MAX.. => result = Err(AnswerError::Observers(OBSERVERS_MAX)),
            _ => list.push(observer),
        });
        result
    }

    /// Removes an observer. Calls to it that are under way finish first.
    pub fn stop_observing(&self, observer: &Arc<dyn SessionObserver>) {
        self.observers.change(|list| list.retain(|each| !Arc::ptr_eq(each, observer)));
    }
}
