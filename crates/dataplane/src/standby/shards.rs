//! What a table offers to be copied: its shards' entries, and what happens to them.

use crate::records::seconds;
use std::fmt::Debug;
use thalweg_base::{Exclusion, Exclusive};
use thalweg_wire::standby::{Change, Entry};

/// Records visited before other threads may enter a shard: 64 KiB.
const SLICE: usize = 1024;
/// Changes of a shard that wait to be taken.
const CHANGES_MAX: usize = 1024;

/// The shards of a table, as the protocol uses them.
pub trait Shards {
    /// How many there are.
    fn count(&self) -> u16;
    /// The entries of a shard that are alive, or a few more.
    fn live(&self, shard: u16) -> u64;
    /// Shows the entries of a slice of a shard; returns where the next one begins, if there is one. With `renews` each
    /// lives on as if a packet had just used it.
    fn walk(
        &self,
        shard: u16,
        from: usize,
        renews: bool,
        now_ns: u64,
        show: &mut dyn FnMut(Entry),
    ) -> Option<usize>;
    /// Adds an entry, or changes the one with its key; whether there was room.
    fn put(&self, shard: u16, entry: &Entry, now_ns: u64) -> bool;
    /// Ends the entry with the key of this one.
    fn end(&self, shard: u16, entry: &Entry, now_ns: u64);
    /// Notes changes from now on, or no longer.
    fn follow(&self, is_on: bool);
    /// Passes on a shard's changes since the last call; returns how many found no room.
    fn changes(&self, shard: u16, take: &mut dyn FnMut(Change)) -> u64;
}

/// What a firewall's state means in this router.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Here {
    /// The generation of the rules that count as those which admitted a copy.
    pub(crate) generation: u16,
    /// The VRFs of ports, a bit each.
    pub(crate) vrfs: u64,
}

/// A shard whose entries can be copied.
pub(crate) trait Copied {
    /// Removes what has expired.
    fn pass_time(&mut self, now_s: u32);
    fn live(&self) -> u64;
    /// See [`Shards::walk`].
    fn walk_records(
        &mut self,
        from: usize,
        count: usize,
        renews: bool,
        here: Here,
        show: &mut dyn FnMut(Entry),
    ) -> Option<usize>;
    /// See [`Shards::put`].
    fn put(&mut self, entry: &Entry, here: Here) -> bool;
    fn end_copy(&mut self, entry: &Entry);
    fn noted(&mut self) -> &mut Changes;
}

/// Shards in cells.
pub(crate) struct Cells<'s, E: Exclusion, S: Copied + Send + Debug> {
    pub(crate) shards: &'s [E::Cell<S>],
    pub(crate) here: Here,
}

impl<E: Exclusion, S: Copied + Send + Debug> Cells<'_, E, S> {
    fn with<T>(&self, shard: u16, now_ns: u64, act: impl FnOnce(&mut S) -> T) -> Option<T> {
        let mut shard = self.shards.get(usize::from(shard))?.enter();
        shard.pass_time(seconds(now_ns));
        Some(act(&mut shard))
    }
}

impl<E: Exclusion, S: Copied + Send + Debug> Shards for Cells<'_, E, S> {
    fn count(&self) -> u16 {
        u16::try_from(self.shards.len()).unwrap_or(u16::MAX)
    }

    fn live(&self, shard: u16) -> u64 {
        self.shards.get(usize::from(shard)).map_or(0, |shard| shard.enter().live())
    }

    fn walk(
        &self,
        shard: u16,
        from: usize,
        renews: bool,
        now_ns: u64,
        show: &mut dyn FnMut(Entry),
    ) -> Option<usize> {
        self.with(shard, now_ns, |shard| shard.walk_records(from, SLICE, renews, self.here, show))?
    }

    fn put(&self, shard: u16, entry: &Entry, now_ns: u64) -> bool {
        self.with(shard, now_ns, |shard| shard.put(entry, self.here)).unwrap_or(false)
    }

    fn end(&self, shard: u16, entry: &Entry, now_ns: u64) {
        self.with(shard, now_ns, |shard| shard.end_copy(entry));
    }

    fn follow(&self, is_on: bool) {
        self.shards.iter().for_each(|shard| shard.enter().noted().follow(is_on));
    }

    fn changes(&self, shard: u16, take: &mut dyn FnMut(Change)) -> u64 {
        self.shards.get(usize::from(shard)).map_or(0, |shard| shard.enter().noted().hand_out(take))
    }
}

/// What happens to a shard's entries, if somebody follows. Bounded: a walk over the shard finds what was lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    list: Option<Vec<Change>>,
    lost: u64,
}

impl Changes {
    fn follow(&mut self, is_on: bool) {
        self.list = is_on.then(Vec::new);
    }

    /// Notes what `change` returns, if somebody follows.
    #[inline(always)]
    pub(crate) fn note(&mut self, change: impl FnOnce() -> Change) {
        let Some(list) = &mut self.list else { return };
        if list.len() >= CHANGES_MAX {
            self.lost += 1;
            return;
        }
        list.push(change());
    }

    fn hand_out(&mut self, take: &mut dyn FnMut(Change)) -> u64 {
        self.list.iter_mut().flat_map(|list| list.drain(..)).for_each(take);
        std::mem::take(&mut self.lost)
    }
}
