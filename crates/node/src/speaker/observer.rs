//! Looking on while sessions read: what neighbors send, before anything is made of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use thalweg_bgp::session::Negotiated;

use super::Speaker;
use crate::control::AnswerError;

/// Those that look on at a time: each may keep copies of tables.
const OBSERVERS_MAX: usize = 4;

/// Sees what established sessions receive. Called by the threads that route, with the session's lock held: it takes
/// a copy, or drops and counts what it has no room for, and never waits.
pub trait SessionObserver: Send + Sync {
    /// Whole messages, one after the other, that a session took from its connection. The last of them may be what
    /// ended it.
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]);

    /// The session came up, or went down.
    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool);
}

/// Those that look on now.
#[derive(Default)]
pub(super) struct Observers {
    list: RwLock<Vec<Arc<dyn SessionObserver>>>,
    /// How many they are, so that sessions that nobody looks at take no lock.
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
    /// Has somebody look on from now on, if not too many do already.
    pub fn observe(&self, observer: Arc<dyn SessionObserver>) -> Result<(), AnswerError> {
        let mut result = Ok(());
        self.observers.change(|list| match list.len() {
            OBSERVERS_MAX.. => result = Err(AnswerError::Observers(OBSERVERS_MAX)),
            _ => list.push(observer),
        });
        result
    }

    /// Ends what [`Self::observe`] began. A thread that is telling the observer something finishes first.
    pub fn stop_observing(&self, observer: &Arc<dyn SessionObserver>) {
        self.observers.change(|list| list.retain(|each| !Arc::ptr_eq(each, observer)));
    }
}
