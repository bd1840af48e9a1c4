//! Looking on while sessions read: what neighbors send, before anything is made of it.

use std::sync::Arc;

use thalweg_bgp::session::Negotiated;

/// Sees what established sessions receive. Called by the threads that route, with the session's lock held: it takes
/// a copy, or drops and counts what it has no room for, and never waits.
pub trait SessionObserver: Send + Sync {
    /// Whole messages, one after the other, that a session took from its connection. The last of them may be what
    /// ended it.
    fn received(&self, session: &Arc<Negotiated>, messages: &[u8]);

    /// The session came up, or went down.
    fn state_changed(&self, session: &Arc<Negotiated>, is_up: bool);
}
