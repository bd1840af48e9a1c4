//! The index of a shard, which finds the session of an endpoint: open addressing, 8 bytes an endpoint, two thirds
//! full.

use super::super::layout::End;
use super::super::session::Session;
use super::{NatShard, Sought};

impl NatShard {
    #[inline(always)]
    pub(super) fn home(&self, hash: u64) -> usize {
        // The upper half of the hash as a fraction of the table, so that any length will do; entries store that
        // half.
        (((hash >> 32) * self.index.len() as u64) >> 32) as usize
    }

    /// The slot after this one, with wraparound.
    #[inline(always)]
    pub(super) fn after(&self, at: usize) -> usize {
        if at + 1 == self.index.len() { 0 } else { at + 1 }
    }

    /// The number of slots from `from` to `to`, with wraparound.
    pub(super) fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.index.len() - from }
    }

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
        let mut at = self.home(hash);
        // At most two thirds of the index are in use, so an empty slot ends every search.
        while self.index[at] != 0 {
            if self.index[at] >> 32 == hash >> 32 {
                let found = self.index[at] as u32 as usize - 1;
                if self.sessions[found].key(end) == key {
                    return Some(found);
                }
            }
            at = self.after(at);
        }
        None
    }

    /// Puts a session into a free record and the index. There is a free record: the caller has counted.
    pub(super) fn insert(&mut self, session: Session) -> usize {
        let at = if let Some(at) = self.free.checked_sub(1) {
            self.free = self.links[at as usize].next;
            at
        } else {
            self.fresh += 1;
            self.fresh - 1
        };
        for end in [End::Source, End::Destination] {
            let hash = self.layout.hash(session.key(end));
            debug_assert!(self.find(end, session.key(end), hash).is_none(), "endpoint mapped twice");
            let mut place = self.home(hash);
            while self.index[place] != 0 {
                place = self.after(place);
            }
            self.index[place] = (hash >> 32) << 32 | u64::from(at + 1);
        }
        self.sessions[at as usize] = session;
        at as usize
    }

    /// Removes a session from the index and closes the gap, so that no search ends too early: entries behind the
    /// gap move into it unless their home lies after it.
    pub(super) fn unindex(&mut self, at: usize, hash: u64) {
        let mut gap = self.home(hash);
        while self.index[gap] as u32 as usize != at + 1 {
            if self.index[gap] == 0 {
                debug_assert!(false, "session {at} is not in the index");
                return;
            }
            gap = self.after(gap);
        }
        let mut next = self.after(gap);
        while self.index[next] != 0 {
            let home = self.home(self.index[next]);
            if self.distance(home, next) >= self.distance(gap, next) {
                self.index[gap] = self.index[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.index[gap] = 0;
    }
}
