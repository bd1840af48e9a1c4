//! Looks at a neighbor's state outside its turn.
//!
//! A thread that wants to write to a neighbor whose state is locked leaves that to the thread that has the lock
//! ([`PeerSlot::write`]). In a turn of the neighbor that thread writes anyway. Any other does so here, so that nothing
//! lies there until the next event because somebody looked.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::Speaker;
use super::slot::{PeerSlot, PeerState};

/// A neighbor's locked state. When it is dropped, what others wanted to write meanwhile is written.
pub(super) struct Look<'s> {
    // Dropped in this order: the lock is free when the write begins.
    state: MutexGuard<'s, PeerState>,
    _after: WriteAfter<'s>,
}

struct WriteAfter<'s> {
    speaker: &'s Speaker,
    slot: &'s Arc<PeerSlot>,
}

impl Speaker {
    /// Locks a neighbor's state. The caller holds no lock that comes after it.
    pub(super) fn look<'s>(&'s self, slot: &'s Arc<PeerSlot>) -> Look<'s> {
        Look { state: slot.lock(), _after: WriteAfter { speaker: self, slot } }
    }
}

impl Deref for Look<'_> {
    type Target = PeerState;

    fn deref(&self) -> &PeerState {
        &self.state
    }
}

impl DerefMut for Look<'_> {
    fn deref_mut(&mut self) -> &mut PeerState {
        &mut self.state
    }
}

impl Drop for WriteAfter<'_> {
    fn drop(&mut self) {
        if self.slot.wants_write() {
            self.speaker.write_slot(self.slot, self.speaker.last_time());
        }
    }
}
