//! States copied to a standby router, and taken over from an active one.

use super::StateShard;
use super::list::Begun;
use crate::firewall::state::State;
use crate::records::slice;
use crate::standby::{Changes, Copied, Here};
use thalweg_wire::standby::{Change, Entry, StateEntry};

impl StateShard {
    /// Notes a state that is new or in another phase.
    pub(super) fn note(&mut self, at: usize) {
        let (state, zones) = (&self.states[at], self.begun[at].zones);
        self.changes.note(|| Change { is_end: false, entry: Entry::State(state.copy(zones)) });
    }

    /// Notes the end of a state.
    pub(super) fn note_end(&mut self, at: usize) {
        let (state, zones) = (&self.states[at], self.begun[at].zones);
        self.changes.note(|| Change { is_end: true, entry: Entry::State(state.copy(zones)) });
    }

    /// The record of the state that an entry is a copy of, if it is one.
    fn original(&self, entry: &Entry) -> Option<(State, Option<usize>)> {
        let Entry::State(copy) = entry else { return None };
        let state = State::copied(copy)?;
        let key = state.key();
        Some((state, self.find(&key, key.hash(self.secret))))
    }
}

impl Here {
    /// Whether both ends are in VRFs of this router.
    fn has(&self, copy: &StateEntry) -> bool {
        copy.vrfs.iter().all(|vrf| self.vrfs.checked_shr((*vrf).into()).is_some_and(|bits| bits & 1 != 0))
    }
}

impl Copied for StateShard {
    fn pass_time(&mut self, now_s: u32) {
        self.advance_to(now_s);
    }

    fn live(&self) -> u64 {
        self.counters.states_active
    }

    fn walk_records(
        &mut self,
        from: usize,
        count: usize,
        renews: bool,
        here: Here,
        show: &mut dyn FnMut(Entry),
    ) -> Option<usize> {
        let (records, rest) = slice(from, count, self.fresh);
        let begun = &self.begun[records.clone()];
        for (state, begun) in self.states[records].iter_mut().zip(begun).filter(|(state, _)| state.is_live())
        {
            let copy = state.copy(begun.zones);
            // No packet is in a VRF that a reload has removed.
            if !here.has(&copy) {
                continue;
            }
            if renews {
                let lifetime_s = self.settings.lifetime_s(state.key().protocol, state.phase);
                state.expires_s = self.now_s.saturating_add(lifetime_s);
            }
            show(Entry::State(copy));
        }
        rest
    }

    fn put(&mut self, entry: &Entry, here: Here) -> bool {
        let (Some((mut state, known)), Entry::State(copy)) = (self.original(entry), entry) else {
            return false;
        };
        if !here.has(copy) {
            return false;
        }
        let at_s = known.map_or(self.now_s, |at| self.begun[at].at_s);
        if let Some(at) = known {
            self.end_now(at);
        }
        state.generation = here.generation;
        let lifetime_s = self.settings.lifetime_s(copy.protocol, state.phase);
        state.expires_s = self.now_s.saturating_add(lifetime_s);
        let taken = self.insert(state, Begun { at_s, zones: copy.zones });
        taken.map(|at| self.file(at)).is_some()
    }

    fn end_copy(&mut self, entry: &Entry) {
        if let Some((_, Some(at))) = self.original(entry) {
            self.end_now(at);
        }
    }

    fn noted(&mut self) -> &mut Changes {
        &mut self.changes
    }
}
