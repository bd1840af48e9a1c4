//! The routes of neighbors as they sent them, before import policy (RFC 7854's pre-policy Adj-RIB-In), for those
//! neighbors whose configuration keeps them.
//!
//! They are in tables of their own with the same structure as the RIB, in which selection never begins: no path is
//! ranked and no change reported. So the RIB's paths do not grow by a byte, and replacing, withdrawing and marking
//! routes as stale are the same code. The tables exist only while they have routes.
//!
//! A neighbor has at most [`PEER_PATHS_MAX`] routes of a family here in each shard: 2 million in all, twice the
//! Internet's table. Further ones are refused and counted; the RIB has them nevertheless.

use super::decision::{Decision, DecisionConfig};
use super::family::{Context, FamilyRoutes};
use super::view::ScanCursor;
use super::{NextHopView, PeerCounts, ShardConfig, Withdrawal, Work};
use crate::peer::{PeerId, PeerTable};
use crate::route::{Changes, RouteBatch};
use thalweg_wire::bgp::Family;

/// The most routes of a family that one neighbor has in a shard.
pub(super) const PEER_PATHS_MAX: usize = 1 << 17;

pub(super) struct Received {
    shard: usize,
    counts: PeerCounts,
    counters: Work,
    /// Without damping, neither is asked for anything.
    peers: PeerTable,
    next_hops: NextHopView,
    pub(super) v4: FamilyRoutes<u32>,
    pub(super) v6: FamilyRoutes<u128>,
}

/// Runs `$body` with the family's routes and a context in which nothing is selected.
macro_rules! with_family {
    ($self:ident, $which:expr, |$routes:ident, $context:ident| $body:expr) => {{
        let decision = Decision {
            config: DecisionConfig::default(),
            peers: &$self.peers,
            next_hops: &$self.next_hops,
            deferred: true,
        };
        let $context = &mut Context {
            decision,
            depth: 1,
            expected: 0,
            counts: &mut $self.counts,
            counters: &mut $self.counters,
        };
        match $which {
            Family::Ipv4 => {
                let $routes = &mut $self.v4;
                $body
            }
            Family::Ipv6 => {
                let $routes = &mut $self.v6;
                $body
            }
        }
    }};
}

impl Received {
    pub(super) fn new(shard: usize, seed: u64) -> Self {
        let config = ShardConfig { shard, seed, ..ShardConfig::default() };
        Self {
            shard,
            counts: PeerCounts { max: Some(PEER_PATHS_MAX), ..PeerCounts::default() },
            counters: Work::default(),
            peers: PeerTable::default(),
            next_hops: NextHopView::default(),
            v4: FamilyRoutes::new(&config),
            v6: FamilyRoutes::new(&config),
        }
    }

    /// Applies this shard's items; returns how many were refused.
    pub(super) fn apply(&mut self, batch: &RouteBatch) -> u64 {
        let before = self.refused();
        let changes = &mut self.changes();
        for family in Family::ALL {
            with_family!(self, family, |routes, context| {
                routes.open(changes);
                routes.apply(batch, context, changes);
            });
        }
        debug_assert!(changes.is_empty(), "nothing is selected here");
        self.refused() - before
    }

    fn refused(&self) -> u64 {
        self.counters.prefixes_refused + self.counters.paths_refused
    }

    fn changes(&self) -> Changes {
        Changes { shard: self.shard, ..Changes::default() }
    }

    /// See [`RibShard::withdraw`](super::RibShard::withdraw).
    pub(super) fn withdraw(
        &mut self,
        which: Withdrawal,
        family: Family,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> bool {
        let (peer, flags) = which.of();
        let changes = &mut self.changes();
        let done = self.peer_paths(peer, family) == 0
            || with_family!(self, family, |routes, context| {
                routes.open(changes);
                routes.walk(cursor, budget, |routes, number| {
                    routes.withdraw_matching(number, peer, flags, context, changes);
                    if matches!(which, Withdrawal::Retain(_)) && routes.has_paths(number) {
                        routes.mark_stale(number, peer);
                    }
                })
            });
        done || self.peer_paths(peer, family) == 0
    }

    /// Marks all routes of a neighbor as stale.
    pub(super) fn mark_stale(&mut self, peer: PeerId, family: Family) {
        let (mut cursor, all) = (ScanCursor::START, usize::MAX);
        match family {
            Family::Ipv4 => self.v4.walk(&mut cursor, all, |routes, number| routes.mark_stale(number, peer)),
            Family::Ipv6 => self.v6.walk(&mut cursor, all, |routes, number| routes.mark_stale(number, peer)),
        };
    }

    pub(super) fn peer_paths(&self, peer: PeerId, family: Family) -> usize {
        self.counts.get(peer, family)
    }

    pub(super) fn paths(&self) -> [usize; 2] {
        [self.v4.path_count(), self.v6.path_count()]
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.v4.bytes() + self.v6.bytes() + self.counts.bytes()
    }
}
