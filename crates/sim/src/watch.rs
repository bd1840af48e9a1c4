//! Records what a router's best paths did: how often they changed, when last, and how many prefixes became
//! reachable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use thalweg_base::{Address, IpPrefix, Prefix};
use thalweg_bgp::peer::PeerTable;
use thalweg_bgp::route::{Change, SharedChanges};
use thalweg_node::speaker::RouteReader;

use crate::meter::STEP_US;
use crate::network::Clock;

/// The number of kept changes of a followed prefix; older ones are dropped.
const FOLLOWED_MAX: usize = 4096;

/// The changes of one prefix at one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Since the watch was last reset.
    pub changes: u32,
    pub last_us: u64,
}

/// What a watch saw since it was last reset.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Only the prefixes that changed, by family: every router has such tables, so they are small.
    v4: HashMap<Prefix<u32>, Seen>,
    v6: HashMap<Prefix<u128>, Seen>,
    /// By how much the number of prefixes with a best path grew or shrank, by step.
    pub reached: BTreeMap<u64, i64>,
}

impl Watched {
    /// The prefixes that changed, in no order.
    pub fn prefixes(&self) -> impl Iterator<Item = (IpPrefix, Seen)> + '_ {
        let v4 = self.v4.iter().map(|(prefix, seen)| (IpPrefix::V4(*prefix), *seen));
        v4.chain(self.v6.iter().map(|(prefix, seen)| (IpPrefix::V6(*prefix), *seen)))
    }

    fn take_in<A: Address>(
        seen: &mut HashMap<Prefix<A>, Seen>,
        reached: &mut BTreeMap<u64, i64>,
        changes: &[Change<A>],
        now_us: u64,
    ) {
        for change in changes {
            let seen = seen.entry(change.prefix).or_insert(Seen { changes: 0, last_us: 0 });
            *seen = Seen { changes: seen.changes + 1, last_us: now_us };
            if change.old.is_some() != change.new.is_some() {
                *reached.entry(now_us / STEP_US).or_default() += if change.new.is_some() { 1 } else { -1 };
            }
        }
    }
}

/// Watches the best paths of a router. A router gets it when it [starts](crate::Start::watch).
#[derive(Clone)]
pub struct Watch {
    clock: Clock,
    watched: Arc<Mutex<Watched>>,
    followed: Arc<Mutex<Followed>>,
}

/// Each change of one prefix.
#[derive(Default)]
struct Followed {
    prefix: Option<IpPrefix>,
    /// The time, and the AS_PATH from then on.
    changes: VecDeque<(u64, Option<String>)>,
}

impl Watch {
    /// A watch on a router with this clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, watched: Arc::default(), followed: Arc::default() }
    }

    /// Returns what was seen, and resets the watch.
    pub fn take(&self) -> Watched {
        std::mem::take(&mut self.watched.lock())
    }

    /// The prefixes whose best path changed since a time.
    pub(crate) fn changed_since(&self, at_us: u64) -> Vec<IpPrefix> {
        let watched = self.watched.lock();
        let changed = watched.prefixes().filter(|(_, seen)| seen.last_us >= at_us);
        changed.map(|(prefix, _)| prefix).collect()
    }

    /// From now on, records each change of this prefix; of no prefix for `None`.
    pub(crate) fn follow(&self, prefix: Option<IpPrefix>) {
        *self.followed.lock() = Followed { prefix, changes: VecDeque::new() };
    }

    /// The changes of the followed prefix: the time, and the AS_PATH from then on.
    pub(crate) fn followed(&self) -> Vec<(u64, Option<String>)> {
        self.followed.lock().changes.iter().cloned().collect()
    }
}

impl Followed {
    fn take<A: Address>(
        &mut self,
        now_us: u64,
        changes: &[Change<A>],
        prefix_of: impl Fn(&Change<A>) -> IpPrefix,
    ) {
        for change in changes.iter().filter(|change| self.prefix == Some(prefix_of(change))) {
            if self.changes.len() == FOLLOWED_MAX {
                self.changes.pop_front();
            }
            let path = change.new.as_ref().map(|chosen| chosen.attrs.as_path().to_string());
            self.changes.push_back((now_us, path));
        }
    }
}

impl RouteReader for Watch {
    fn handle_changes(&mut self, changes: &SharedChanges, _: &PeerTable) {
        let now_us = self.clock.now_us();
        let mut followed = self.followed.lock();
        if followed.prefix.is_some() {
            followed.take(now_us, &changes.v4, |change| IpPrefix::V4(change.prefix));
            followed.take(now_us, &changes.v6, |change| IpPrefix::V6(change.prefix));
        }
        drop(followed);
        let Watched { v4, v6, reached } = &mut *self.watched.lock();
        Watched::take_in(v4, reached, &changes.v4, now_us);
        Watched::take_in(v6, reached, &changes.v6, now_us);
    }

    fn flush(&mut self) {}
}
