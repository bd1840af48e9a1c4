//! Versions and tombstones at their bounds.

use super::*;
use crate::attrs::Interner;
use crate::peer::PeerTable;
use crate::rib::testing::{attribute_sets, peers};
use crate::rib::{RibShard, ShardConfig};
use crate::route::{RouteBatchBuilder, shard_of};
use thalweg_wire::bgp::Family;

const SHARD: usize = 2;

struct World {
    shard: RibShard,
    peers: PeerTable,
    sets: Vec<AttrRef>,
    prefixes: Vec<Prefix<u32>>,
}

impl World {
    fn new() -> Self {
        let all = (0..).map_while(|n: u32| Prefix::new(n << 8, 24).ok());
        Self {
            shard: RibShard::new(ShardConfig { shard: SHARD, ..ShardConfig::default() }),
            peers: peers(),
            sets: attribute_sets(&Interner::new(1), 2),
            prefixes: all.filter(|prefix| shard_of(*prefix) == SHARD).take(10_000).collect(),
        }
    }

    /// Announces one of the sets, or withdraws.
    fn apply(&mut self, prefixes: std::ops::Range<usize>, set: Option<usize>) {
        let mut builder = RouteBatchBuilder::default();
        let index = set.map_or(WITHDRAWN, |set| builder.push_attrs(self.sets[set].clone()));
        self.prefixes[prefixes].iter().for_each(|prefix| builder.push_v4(*prefix, 0, index));
        self.shard.apply(&builder.finish(PeerId(0), 0), &self.peers, &mut Changes::default());
    }
}

#[test]
fn old_versions_are_renewed() {
    let mut world = World::new();
    world.apply(0..3, Some(0));
    // As if there had been that many changes of other prefixes.
    let routes = world.shard.v4.as_mut().unwrap();
    routes.version = routes.version.wrapping_add(VERSION_AGE_MAX + 1000);
    for round in 0..5 {
        world.apply(0..1, Some(1 - round % 2));
    }
    let now = world.shard.version(Family::Ipv4);
    let ages: Vec<_> = world.prefixes[..3]
        .iter()
        .map(|prefix| now.wrapping_sub(world.shard.lookup(*prefix).unwrap().version))
        .collect();
    assert_eq!(ages[0], 0);
    assert!(ages[1..].iter().all(|age| (VERSION_AGE_MAX..VERSION_AGE_MAX + 5).contains(age)), "{ages:?}");
}

#[test]
fn too_many_tombstones_go_and_say_so() {
    let mut world = World::new();
    world.apply(0..10_000, Some(0));
    let seen = world.shard.version(Family::Ipv4);
    world.shard.set_tombstone_floor(Family::Ipv4, Some(seen));
    world.apply(0..1000, None);
    (0..20).for_each(|_| world.apply(0..0, None));
    // A thousand of ten thousand: all are kept.
    assert_eq!(
        (world.shard.counters().tombstones[0], world.shard.complete_since(Family::Ipv4)),
        (1000, None)
    );
    world.apply(1000..10_000, None);
    (0..20).for_each(|_| world.apply(0..0, None));
    assert_eq!(world.shard.counters().tombstones[0], TOMBSTONES_MIN);
    // The oldest went.
    let lost = (10_000 - TOMBSTONES_MIN) as u32;
    assert_eq!(world.shard.complete_since(Family::Ipv4), Some(seen + lost));
    // Nobody needs the others any more.
    world.shard.set_tombstone_floor(Family::Ipv4, None);
    (0..20).for_each(|_| world.apply(0..0, None));
    assert_eq!((world.shard.counters().tombstones[0], world.shard.complete_since(Family::Ipv4)), (0, None));
}
