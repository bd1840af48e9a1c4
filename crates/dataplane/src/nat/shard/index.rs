//! Sessions by their endpoints, by way of the shard's index.

use super::super::endpoint::End;
use super::super::session::Session;
use super::{NatShard, Sought};

impl NatShard {
    /// The prefetched session, if it is still there: endpoints are unique, so a matching endpoint makes another
    /// search unnecessary. Returns `None` for a session that shares its port with the router, which takes the slow
    /// path.
    #[inline(always)]
    pub(super) fn recall(&self, end: End, sought: Sought) -> Option<usize> {
        let at = (sought.session as usize).wrapping_sub(1);
        let session = self.sessions.get(at)?;
        (session.life.is_of_nat_alone() & (session.key(end) == sought.key)).then_some(at)
    }

    pub(super) fn find(&self, end: End, key: u64, hash: u64) -> Option<usize> {
        self.index.find(hash, |at| self.sessions[at].key(end) == key)
    }

    /// Puts a session into a free record and the index. There is a free record: the caller has counted.
    pub(super) fn insert(&mut self, session: Session) -> usize {
        let at = if let Some(at) = self.free.checked_sub(1) {
            self.free = self.wheel.next(at as usize);
            at
        } else {
            self.fresh += 1;
            self.fresh - 1
        };
        for end in [End::Source, End::Destination] {
            let hash = self.layout.hash(session.key(end));
            debug_assert!(self.find(end, session.key(end), hash).is_none(), "endpoint mapped twice");
            self.index.insert(hash, at);
        }
        self.sessions[at as usize] = session;
        self.hosts6.hold(session.addresses[0]);
        at as usize
    }
}
