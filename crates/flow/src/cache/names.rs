//! The names of a shard's flows: searches payloads of young flows for them, and keeps what was found beside their
//! entries.

use super::Shard;
use super::arena::{Family, is_ipv6, place};
use crate::key::Key;
use crate::names::Payload;
use crate::record::FlowNames;
use thalweg_base::Name;

impl Shard {
    /// Whether payloads are still searched for the names of the flow in this slot.
    #[inline(always)]
    pub(crate) fn wants_names(&self, slot: u32) -> bool {
        let at = place(slot);
        if is_ipv6(slot) {
            self.arenas.v6.entry(at).key.wants_names()
        } else {
            self.arenas.v4.entry(at).key.wants_names()
        }
    }

    /// Searches a payload for names of the flow in this slot. With the first, `resolved` is asked for what is known of
    /// its addresses.
    #[inline(never)]
    pub(crate) fn look(&mut self, slot: u32, payload: &Payload<'_>, resolved: &dyn Fn() -> Name) {
        if is_ipv6(slot) {
            self.look_for::<6>(slot, payload, resolved);
        } else {
            self.look_for::<3>(slot, payload, resolved);
        }
    }

    fn look_for<const WORDS: usize>(&mut self, slot: u32, payload: &Payload<'_>, resolved: &dyn Fn() -> Name)
    where
        Key<WORDS>: Family,
    {
        let at = place(slot);
        let before = self.names::<WORDS>(at);
        let mut names = before;
        let arena = Key::<WORDS>::arena_mut(&mut self.arenas);
        let notes = arena.entry(at).key.name_notes();
        if notes.is_first {
            names.resolved = resolved();
        }
        let next = self.looks.look(slot, notes, payload, &mut names);
        if names != before {
            self.looks.counts.found += u64::from(before == FlowNames::default());
            arena.set_names(at, names);
        }
        arena.entry_mut(at).key.note_names(next, names != FlowNames::default());
    }

    pub(super) fn names<const WORDS: usize>(&self, at: usize) -> FlowNames
    where
        Key<WORDS>: Family,
    {
        let arena = Key::<WORDS>::arena(&self.arenas);
        let is_named = arena.entry(at).key.is_named();
        arena.names(at).filter(|_| is_named).copied().unwrap_or_default()
    }
}
