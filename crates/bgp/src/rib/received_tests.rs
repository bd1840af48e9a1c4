//! Routes before policy against a plain map, and their independence of the RIB.

use std::collections::BTreeMap;

use proptest::prelude::*;
use thalweg_base::Prefix;
use thalweg_wire::bgp::Family;

use super::received::PEER_PATHS_MAX;
use super::testing::{attribute_sets, peers};
use super::{RibShard, ScanCursor, ShardConfig, Withdrawal};
use crate::attrs::{AttrRef, Interner};
use crate::peer::{PeerId, PeerTable};
use crate::route::{Changes, RouteBatch, RouteBatchBuilder, WITHDRAWN, shard_of};

const SHARD: usize = 3;
/// Prefixes visited in one slice.
const SLICE: usize = 5;

/// What happens; the numbers select a neighbor, a prefix, an attribute set as sent and one after policy.
#[derive(Clone, Debug)]
enum Step {
    /// `None`: rejected.
    Announce(u16, usize, usize, Option<usize>),
    Withdraw(u16, usize),
    End(u16),
    Retain(u16),
    MarkStale(u16),
    Sweep(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let (peer, prefix, set) = (0u16..4, 0usize..24, 0usize..12);
    let announced = (peer.clone(), prefix.clone(), set.clone(), proptest::option::of(set));
    prop_oneof![
        8 => announced.prop_map(|(peer, prefix, sent, kept)| Step::Announce(peer, prefix, sent, kept)),
        3 => (peer.clone(), prefix).prop_map(|(peer, prefix)| Step::Withdraw(peer, prefix)),
        1 => peer.clone().prop_map(Step::End),
        1 => peer.clone().prop_map(Step::Retain),
        1 => peer.clone().prop_map(Step::MarkStale),
        1 => peer.prop_map(Step::Sweep),
    ]
}

/// A prefix of the shard.
fn prefixes(count: usize) -> Vec<Prefix<u32>> {
    let all = (0u32..).filter_map(|n| Prefix::new(0x0a00_0000 + (n << 8), 24).ok());
    all.filter(|prefix| shard_of(*prefix) == SHARD).take(count).collect()
}

fn batch(peer: u16, prefix: Prefix<u32>, sent: Option<&AttrRef>, kept: Option<&AttrRef>) -> RouteBatch {
    let mut routes = RouteBatchBuilder::default();
    let index = sent.map_or(WITHDRAWN, |attrs| routes.push_received_attrs(attrs.clone()));
    routes.push_received(prefix, 0, index);
    let index = kept.map_or(WITHDRAWN, |attrs| routes.push_attrs(attrs.clone()));
    routes.push(prefix, 0, index);
    routes.finish(PeerId(peer), 1)
}

/// A shard that keeps routes, one that does not, and what the first one should have kept: by prefix and neighbor,
/// with whether it is stale.
struct Pair {
    keeps: RibShard,
    plain: RibShard,
    model: BTreeMap<(Prefix<u32>, u16), (AttrRef, bool)>,
    peers: PeerTable,
}

impl Pair {
    fn new() -> Self {
        let shard = || RibShard::new(ShardConfig { shard: SHARD, ..ShardConfig::default() });
        Self { keeps: shard(), plain: shard(), model: BTreeMap::new(), peers: peers() }
    }

    /// Applies a batch to both; both must report the same.
    fn apply(&mut self, batch: &RouteBatch) {
        let changes = || Changes { shard: SHARD, ..Changes::default() };
        let (mut kept, mut plain) = (changes(), changes());
        self.keeps.apply(batch, &self.peers, &mut kept);
        self.plain.apply(&RouteBatch { received: None, ..batch.clone() }, &self.peers, &mut plain);
        assert_eq!((&kept.v4, kept.last_version), (&plain.v4, plain.last_version));
    }

    fn withdraw(&mut self, which: Withdrawal) {
        let changes = || Changes { shard: SHARD, ..Changes::default() };
        for shard in [&mut self.keeps, &mut self.plain] {
            let (mut cursor, mut received) = (ScanCursor::START, ScanCursor::START);
            let (peers, v4) = (&self.peers, Family::Ipv4);
            while !shard.withdraw(which, v4, &mut cursor, SLICE, peers, &mut changes()) {}
            while !shard.withdraw_received(which, v4, &mut received, SLICE) {}
        }
    }

    fn step(&mut self, step: &Step, prefixes: &[Prefix<u32>], sets: &[AttrRef]) {
        match *step {
            Step::Announce(peer, prefix, sent, kept) => {
                let (prefix, sent) = (prefixes[prefix], &sets[sent]);
                self.apply(&batch(peer, prefix, Some(sent), kept.map(|kept| &sets[kept])));
                self.model.insert((prefix, peer), (sent.clone(), false));
            }
            Step::Withdraw(peer, prefix) => {
                self.apply(&batch(peer, prefixes[prefix], None, None));
                self.model.remove(&(prefixes[prefix], peer));
            }
            Step::End(peer) => {
                self.withdraw(Withdrawal::All(PeerId(peer)));
                self.model.retain(|key, _| key.1 != peer);
            }
            Step::Retain(peer) => {
                self.withdraw(Withdrawal::Retain(PeerId(peer)));
                self.model.retain(|key, (_, stale)| key.1 != peer || !*stale);
                self.mark(peer);
            }
            Step::MarkStale(peer) => {
                for shard in [&mut self.keeps, &mut self.plain] {
                    let mut cursor = ScanCursor::START;
                    while !shard.mark_stale(PeerId(peer), Family::Ipv4, &mut cursor, SLICE) {}
                    shard.mark_received_stale(PeerId(peer), Family::Ipv4);
                }
                self.mark(peer);
            }
            Step::Sweep(peer) => {
                self.withdraw(Withdrawal::Stale(PeerId(peer)));
                self.model.retain(|key, (_, stale)| key.1 != peer || !*stale);
            }
        }
    }

    fn mark(&mut self, peer: u16) {
        self.model.iter_mut().filter(|(key, _)| key.1 == peer).for_each(|(_, (_, stale))| *stale = true);
    }

    fn check(&self) {
        let mut found = BTreeMap::new();
        let mut cursor = ScanCursor::START;
        while !self.keeps.scan_received::<u32>(&mut cursor, SLICE, &mut |route| {
            assert!(route.best().is_none(), "nothing kept is selected");
            found.extend(
                route.paths().map(|path| ((route.prefix, path.peer.0), (path.attrs.clone(), path.stale))),
            );
        }) {}
        assert_eq!(found, self.model);
        for peer in 0..4 {
            let count = self.model.keys().filter(|key| key.1 == peer).count();
            assert_eq!(self.keeps.peer_received(PeerId(peer), Family::Ipv4), count);
            assert_eq!(
                self.keeps.peer_paths(PeerId(peer), Family::Ipv4),
                self.plain.peer_paths(PeerId(peer), Family::Ipv4)
            );
        }
        let (kept, plain) = (self.keeps.counters(), self.plain.counters());
        assert_eq!(kept.received_paths, [self.model.len(), 0]);
        assert_eq!((kept.received_bytes > 0, plain.received_bytes), (self.keeps.received.is_some(), 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Kept routes are those of the map, and the RIB is that of a shard which keeps none.
    #[test]
    fn what_was_sent_is_kept_and_the_rib_does_not_notice(steps in proptest::collection::vec(step(), 0..120)) {
        let interner = Interner::new(1);
        let (prefixes, sets) = (prefixes(24), attribute_sets(&interner, 12));
        let sets: Vec<AttrRef> = sets.into_iter().cycle().take(12).collect();
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step, &prefixes, &sets);
            pair.check();
        }
        (0..4).for_each(|peer| pair.step(&Step::End(peer), &prefixes, &sets));
        pair.keeps.bury();
        prop_assert!(pair.keeps.received.is_none(), "what is gone takes no memory");
    }
}

#[test]
fn a_neighbor_cannot_fill_the_memory() {
    let interner = Interner::new(1);
    let set = &attribute_sets(&interner, 1)[0];
    let prefixes: Vec<Prefix<u32>> = {
        let all = (0u32..).filter_map(|n| Prefix::new(0x0100_0000 + n, 32).ok());
        all.filter(|prefix| shard_of(*prefix) == SHARD).take(PEER_PATHS_MAX + 10).collect()
    };
    let mut pair = Pair::new();
    let mut routes = RouteBatchBuilder::default();
    let index = routes.push_received_attrs(set.clone());
    for prefix in &prefixes {
        routes.push_received(*prefix, 0, index);
        routes.push(*prefix, 0, WITHDRAWN);
    }
    pair.apply(&routes.finish(PeerId(1), 1));
    let counters = pair.keeps.counters();
    assert_eq!((counters.received_paths[0], counters.received_refused), (PEER_PATHS_MAX, 10));
    // Another neighbor has its own room, and what is withdrawn makes room.
    pair.apply(&batch(2, prefixes[PEER_PATHS_MAX], Some(set), None));
    pair.apply(&batch(1, prefixes[0], None, None));
    pair.apply(&batch(1, prefixes[PEER_PATHS_MAX + 1], Some(set), None));
    let counters = pair.keeps.counters();
    assert_eq!((counters.received_paths[0], counters.received_refused), (PEER_PATHS_MAX + 1, 10));
}
