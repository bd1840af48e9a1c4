//! What a router's best paths did: how often they changed, when last, and how many prefixes were reached meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_base::IpPrefix;
use thalweg_bgp::peer::PeerTable;
use thalweg_bgp::route::SharedChanges;
use thalweg_node::speaker::RouteReader;

use crate::meter::STEP_US;
use crate::network::Clock;

/// One prefix at one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How often its best path changed since the watch was last begun anew.
    pub changes: u32,
    /// When it changed last.
    pub last_us: u64,
}

/// What was seen since the watch was last begun anew.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// By prefix; those that did not change are not here.
    pub prefixes: HashMap<IpPrefix, Seen>,
    /// How many more (or less) prefixes had a best path, by step.
    pub reached: BTreeMap<u64, i64>,
}

/// Watches the best paths of a router. Handed to it when it [starts](crate::Start::watch).
#[derive(Clone)]
pub struct Watch {
    clock: Clock,
    watched: Arc<Mutex<Watched>>,
}

impl Watch {
    /// A watch on a router with this clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, watched: Arc::default() }
    }

    /// What was seen; begins anew.
    pub fn take(&self) -> Watched {
        std::mem::take(&mut self.watched.lock())
    }
}

impl RouteReader for Watch {
    fn handle_changes(&mut self, changes: &SharedChanges, _: &PeerTable) {
        let now_us = self.clock.now_us();
        let mut watched = self.watched.lock();
        let v4 =
            changes.v4.iter().map(|each| (IpPrefix::V4(each.prefix), each.old.is_some(), each.new.is_some()));
        let v6 =
            changes.v6.iter().map(|each| (IpPrefix::V6(each.prefix), each.old.is_some(), each.new.is_some()));
        for (prefix, had, has) in v4.chain(v6) {
            let seen = watched.prefixes.entry(prefix).or_insert(Seen { changes: 0, last_us: 0 });
            *seen = Seen { changes: seen.changes + 1, last_us: now_us };
            if had != has {
                *watched.reached.entry(now_us / STEP_US).or_default() += if has { 1 } else { -1 };
            }
        }
    }

    fn flush(&mut self) {}
}
