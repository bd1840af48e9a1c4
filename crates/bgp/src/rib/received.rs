//! The routes of neighbors as they sent them, before import policy (RFC 7854's pre-policy Adj-RIB-In), for those
//! neighbors whose configuration keeps them.
//!
//! They are in tables of their own with the same structure as the RIB, in which selection never begins: no path is
//! ranked and no change reported. So the RIB's paths do not grow by a byte, and replacing, withdrawing and marking
//! routes as stale are the same code. The tables exist only while they have routes.
//!
//! A neighbor has at most [`PEER_PATHS_MAX`] routes of a family here in each part of the prefixes: 2 million in all,
//! twice the Internet's table. Further ones are refused and counted; the RIB has them nevertheless.

use super::counts::Work;
use super::decision::{Decision, DecisionConfig};
use super::family::{Context, FamilyRoutes};
use super::view::ScanCursor;
use super::{NextHopView, ShardConfig, Withdrawal};
use crate::peer::{PeerId, PeerTable};
use crate::route::{Changes, RouteBatch};
use std::ops::Range;
use thalweg_wire::bgp::Family;

/// The most routes of a family that one neighbor has in each part of the prefixes.
pub(super) const PEER_PATHS_MAX: usize = 1 << 17;

pub(super) struct Received {
    shard: usize,
    parts: Range<usize>,
    /// Without damping, neither is asked for anything.
    peers: PeerTable,
    next_hops: NextHopView,
    pub(super) v4: Box<FamilyRoutes<u32>>,
    pub(super) v6: Box<FamilyRoutes<u128>>,
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
        let $context = &mut Context { decision, depth: 1, parts: $self.parts.clone(), expected: 0 };
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
    /// For the same prefixes as the shard's, which are these parts of all.
    pub(super) fn new(shard: &ShardConfig, parts: Range<usize>) -> Self {
        let config = ShardConfig {
            shard: shard.shard,
            parts: shard.parts,
            seed: shard.seed,
            ..ShardConfig::default()
        };
        let (mut v4, mut v6) = (FamilyRoutes::new(&config, None), FamilyRoutes::new(&config, None));
        let max = Some(PEER_PATHS_MAX * shard.parts);
        (v4.counts.max, v6.counts.max) = (max, max);
        let (peers, next_hops) = (PeerTable::default(), NextHopView::default());
        Self { shard: shard.shard, parts, peers, next_hops, v4, v6 }
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
        let refused = |work: &Work| work.prefixes_refused + work.paths_refused;
        refused(&self.v4.work) + refused(&self.v6.work)
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
        let peer = which.peer();
        let changes = &mut self.changes();
        let done = self.peer_paths(peer, family) == 0
            || with_family!(self, family, |routes, context| {
                routes.open(changes);
                routes.walk(cursor, budget, |routes, number| which.apply(routes, number, context, changes))
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
        [self.v4.counts.get(peer), self.v6.counts.get(peer)][family.index()]
    }

    pub(super) fn paths(&self) -> [usize; 2] {
        [self.v4.path_count(), self.v6.path_count()]
    }

    pub(super) fn bytes(&self) -> usize {
        let tables = size_of_val(&*self.v4) + size_of_val(&*self.v6);
        size_of::<Self>() + tables + self.v4.bytes() + self.v6.bytes()
    }
}
