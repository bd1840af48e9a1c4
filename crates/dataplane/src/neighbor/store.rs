//! Entries, their timers, and the use of each budget. Every change of an entry goes through [`Store::update`],
//! which keeps timers and budgets consistent.

use super::entry::{Budget, Entry, NeighborState};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The key of a neighbor: its port and its address.
pub(super) type Key = (u16, IpAddr);

/// Entries per budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) resolved: usize,
    pub(super) unresolved: usize,
}

impl Count {
    fn of(&mut self, budget: Budget) -> Option<&mut usize> {
        match budget {
            Budget::Unlimited => None,
            Budget::Resolved => Some(&mut self.resolved),
            Budget::Unresolved => Some(&mut self.unresolved),
        }
    }
}

/// All neighbors. Ordered maps have no hash that an attacker could exploit, and always iterate in the same order.
#[derive(Clone, Debug)]
pub(super) struct Store<P> {
    entries: BTreeMap<Key, Entry<P>>,
    timers: BTreeSet<(u64, Key)>,
    total: Count,
    ports: BTreeMap<u16, Count>,
}

impl<P> Default for Store<P> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            total: Count::default(),
            ports: BTreeMap::new(),
        }
    }
}

impl<P> Store<P> {
    pub(super) fn get(&self, key: Key) -> Option<&Entry<P>> {
        self.entries.get(&key)
    }

    pub(super) fn state(&self, key: Key) -> Option<NeighborState> {
        self.entries.get(&key).map(|entry| entry.state)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Entry<P>)> {
        self.entries.iter().map(|(&key, entry)| (key, entry))
    }

    pub(super) fn keys_of_port(&self, port: u16) -> Vec<Key> {
        let all = (port, IpAddr::V4([0; 4].into()))..=(port, IpAddr::V6([0xff; 16].into()));
        self.entries.range(all).map(|(&key, _)| key).collect()
    }

    pub(super) fn total(&self) -> Count {
        self.total
    }

    pub(super) fn of_port(&self, port: u16) -> Count {
        self.ports.get(&port).copied().unwrap_or_default()
    }

    /// The earliest deadline and its neighbor.
    pub(super) fn next_timer(&self) -> Option<(u64, Key)> {
        self.timers.first().copied()
    }

    /// Inserts a new entry; its key must be unused.
    pub(super) fn insert(&mut self, key: Key, entry: Entry<P>) {
        self.enter(key, entry.budget(), entry.deadline_ns);
        let before = self.entries.insert(key, entry);
        debug_assert!(before.is_none(), "{key:?} was there already");
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Entry<P>> {
        let entry = self.entries.remove(&key)?;
        self.leave(key, entry.budget(), entry.deadline_ns);
        Some(entry)
    }

    /// Changes an entry; `None` if there is none.
    pub(super) fn update<R>(&mut self, key: Key, change: impl FnOnce(&mut Entry<P>) -> R) -> Option<R> {
        let entry = self.entries.get_mut(&key)?;
        let before = (entry.budget(), entry.deadline_ns);
        let result = change(entry);
        let after = (entry.budget(), entry.deadline_ns);
        if before != after {
            self.leave(key, before.0, before.1);
            self.enter(key, after.0, after.1);
        }
        Some(result)
    }

    /// The neighbor that has been STALE longest, on a port or in all. It visits every entry, but only an answer to
    /// one of our solicitations triggers that, and those have a limited rate.
    pub(super) fn longest_stale(&self, port: Option<u16>) -> Option<Key> {
        let stale = self.entries.iter().filter(|(key, entry)| {
            entry.state == NeighborState::Stale && !entry.is_wanted && port.is_none_or(|port| port == key.0)
        });
        stale.min_by_key(|(_, entry)| entry.deadline_ns).map(|(&key, _)| key)
    }

    fn enter(&mut self, key: Key, budget: Budget, deadline_ns: u64) {
        for count in [&mut self.total, self.ports.entry(key.0).or_default()] {
            if let Some(count) = count.of(budget) {
                *count += 1;
            }
        }
        if deadline_ns != u64::MAX {
            self.timers.insert((deadline_ns, key));
        }
    }

    fn leave(&mut self, key: Key, budget: Budget, deadline_ns: u64) {
        for count in [&mut self.total, self.ports.entry(key.0).or_default()] {
            if let Some(count) = count.of(budget) {
                *count -= 1;
            }
        }
        if deadline_ns != u64::MAX {
            self.timers.remove(&(deadline_ns, key));
        }
    }

    /// Recounts everything and compares, for tests.
    pub(super) fn assert_consistent(&self) {
        let mut total = Count::default();
        let mut ports: BTreeMap<u16, Count> = BTreeMap::new();
        let mut timers = BTreeSet::new();
        for (&key, entry) in &self.entries {
            for count in [&mut total, ports.entry(key.0).or_default()] {
                if let Some(count) = count.of(entry.budget()) {
                    *count += 1;
                }
            }
            if entry.deadline_ns != u64::MAX {
                timers.insert((entry.deadline_ns, key));
            }
            let waits = !entry.state.is_resolved();
            assert!(waits || entry.queue.is_empty(), "{key:?} is known and packets wait for it");
        }
        assert_eq!((total, &timers), (self.total, &self.timers));
        for (port, count) in &self.ports {
            assert_eq!(ports.get(port).copied().unwrap_or_default(), *count, "port {port}");
        }
    }
}
