//! Tests of the shard as a whole.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn agrees_with_the_model(recipe in proptest::collection::vec(any::<u8>(), 0..1500)) {
        testing::fuzz_one(&recipe);
    }
}

use crate::attrs::{AttrRef, AttrsBuilder, Interner};
use crate::route::{Chosen, RouteBatchBuilder, SHARDS, WITHDRAWN, shard_of};
use testing::{attribute_sets, peers};

/// All shards of a RIB, and the state of a reader of changes.
struct Rib {
    shards: Vec<RibShard>,
    peers: PeerTable,
    best: std::collections::BTreeMap<Prefix<u32>, Chosen>,
}

impl Rib {
    fn new(config: ShardConfig) -> Self {
        let shard = |shard| RibShard::new(ShardConfig { shard, ..config.clone() });
        Self { shards: (0..SHARDS).map(shard).collect(), peers: peers(), best: Default::default() }
    }

    fn apply(&mut self, peer: PeerId, now_s: u32, items: &[(Prefix<u32>, Option<&AttrRef>)]) {
        let mut builder = RouteBatchBuilder::default();
        for (prefix, attrs) in items {
            let index = attrs.map_or(WITHDRAWN, |attrs| builder.push_attrs(attrs.clone()));
            builder.push_v4(*prefix, 0, index);
        }
        let batch = builder.finish(peer, now_s);
        for shard in 0..self.shards.len() {
            let mut changes = Changes::default();
            self.shards[shard].apply(&batch, &self.peers, &mut changes);
            self.read(changes);
        }
    }

    fn read(&mut self, changes: Changes) {
        for change in changes.v4 {
            match change.new {
                Some(new) => self.best.insert(change.prefix, new),
                None => self.best.remove(&change.prefix),
            };
        }
    }

    fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.counters().bytes).sum()
    }
}

fn prefix(number: u32) -> Prefix<u32> {
    Prefix::new(0x0a00_0000 + (number << 8), 24).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// If each neighbor's last message is the same, best paths are the same, for any order and batches.
    #[test]
    fn order_and_batches_do_not_matter(
        routes in proptest::collection::btree_map((0u16..6, 0u32..40), 0usize..64, 1..150),
        noise in proptest::collection::vec((0u16..6, 0u32..40, 0usize..64), 0..150),
        cut in 1usize..40,
        turn in any::<prop::sample::Index>(),
    ) {
        let interner = Interner::new(1);
        let sets = attribute_sets(&interner, 64);
        let mut plain = Rib::new(ShardConfig::default());
        for ((peer, number), set) in &routes {
            plain.apply(PeerId(*peer), 0, &[(prefix(*number), Some(&sets[*set]))]);
        }
        let mut other = Rib::new(ShardConfig { seed: 77, ..ShardConfig::default() });
        for (peer, number, set) in &noise {
            other.apply(PeerId(*peer), 0, &[(prefix(*number), Some(&sets[*set]))]);
        }
        for (peer, number, _) in noise.iter().filter(|(peer, number, _)| !routes.contains_key(&(*peer, *number))) {
            other.apply(PeerId(*peer), 0, &[(prefix(*number), None)]);
        }
        let mut mixed: Vec<_> = routes.iter().collect();
        let at = turn.index(mixed.len());
        mixed.rotate_left(at);
        mixed.reverse();
        for peer in [5u16, 2, 0, 4, 1, 3] {
            let items: Vec<_> = mixed.iter().filter(|((from, _), _)| *from == peer)
                .map(|((_, number), set)| (prefix(*number), Some(&sets[**set]))).collect();
            items.chunks(cut).for_each(|part| other.apply(PeerId(peer), 0, part));
        }
        let best = |rib: &Rib| rib.best.iter().map(|(prefix, best)| (*prefix, best.peer, best.attrs.id())).collect::<Vec<_>>();
        prop_assert_eq!(best(&plain), best(&other));
    }
}

proptest! {
    /// One shard with all parts has the routes of sixteen with one part each.
    #[test]
    fn one_shard_is_sixteen(
        batches in proptest::collection::vec(
            (0u16..4, proptest::collection::vec((0u32..60, proptest::option::of(0usize..8)), 1..20)),
            1..40,
        ),
    ) {
        let sets = attribute_sets(&Interner::new(1), 8);
        let (mut split, mut whole) = (Rib::new(ShardConfig::default()), Rib::new(ShardConfig::default()));
        whole.shards = vec![RibShard::new(ShardConfig { parts: SHARDS, ..ShardConfig::default() })];
        for (peer, routes) in &batches {
            let routes = routes.iter().map(|(number, set)| (prefix(*number), set.map(|set| &sets[set])));
            let routes: Vec<_> = routes.collect();
            [&mut split, &mut whole].into_iter().for_each(|rib| rib.apply(PeerId(*peer), 0, &routes));
            prop_assert_eq!(&split.best, &whole.best);
        }
        let paths = |rib: &Rib| rib.shards.iter().map(|shard| shard.counters().paths[0]).sum::<usize>();
        prop_assert_eq!(paths(&split), paths(&whole));
    }
}

fn any_set(interner: &Interner) -> AttrRef {
    interner.intern(&mut AttrsBuilder::default())
}

#[test]
fn a_route_costs_what_the_documentation_says() {
    let interner = Interner::new(1);
    let attrs = any_set(&interner);
    let measure = |prefixes: u32, paths: u16| {
        let mut rib = Rib::new(ShardConfig::default());
        let empty = rib.bytes();
        let items: Vec<_> = (0..prefixes).map(|number| (prefix(number), Some(&attrs))).collect();
        (0..paths).for_each(|peer| rib.apply(PeerId(peer), 0, &items));
        (rib.bytes() - empty) as f64 / f64::from(prefixes)
    };
    // 16 entry + 4.9 to 7.4 index + 4 owner + 20 path, and the unused rest of the last pages.
    let one = measure(60_000, 1);
    assert!((44.0..50.0).contains(&one), "{one} bytes a prefix with one path");
    // 16 + 4.9 to 7.4 + 4 + 6 x 20 (six is a class of its own).
    let six = measure(60_000, 6);
    assert!((144.0..155.0).contains(&six), "{six} bytes a prefix with six paths");
}

#[test]
fn shards_without_routes_are_small() {
    let bytes = Rib::new(ShardConfig::default()).bytes();
    assert!(bytes <= SHARDS * 160, "{bytes} bytes before the first route");
}

#[test]
fn memory_comes_back() {
    let interner = Interner::new(1);
    let attrs = any_set(&interner);
    let mut rib = Rib::new(ShardConfig::default());
    let empty = rib.bytes();
    let all = |attrs| (0..50_000).map(|number| (prefix(number), attrs)).collect::<Vec<_>>();
    for peer in 0..4 {
        rib.apply(PeerId(peer), 0, &all(Some(&attrs)));
    }
    let full = rib.bytes();
    for peer in 0..4 {
        rib.apply(PeerId(peer), 0, &all(None));
    }
    // Later calls remove the entries of withdrawn prefixes.
    for _ in 0..20 {
        rib.apply(PeerId(0), 0, &[]);
    }
    assert!(full - empty > 50_000 * 100, "{full}");
    assert_eq!(rib.shards.iter().map(|shard| shard.counters().tombstones[0]).sum::<usize>(), 0);
    assert!(rib.bytes() - empty < full / 10, "{} of {full}", rib.bytes() - empty);
}

#[test]
fn longest_match_and_explanations() {
    let interner = Interner::new(1);
    let sets = attribute_sets(&interner, 8);
    let mut shard = RibShard::new(ShardConfig { shard: 3, ..ShardConfig::default() });
    // Prefixes of this shard around one address.
    let address = 0x0a01_0203;
    let mine: Vec<_> = (8..=32)
        .filter_map(|length| Prefix::new(address, length).ok())
        .filter(|prefix| shard_of(*prefix) == 3)
        .collect();
    let peers = peers();
    let mut changes = Changes::default();
    for number in 0..3 {
        let mut builder = RouteBatchBuilder::default();
        for prefix in &mine {
            let index = builder.push_attrs(sets[usize::from(number)].clone());
            builder.push_v4(*prefix, 0, index);
        }
        shard.apply(&builder.finish(PeerId(number), 5), &peers, &mut changes);
    }
    assert!(!mine.is_empty());
    assert_eq!(shard.longest_match(address).map(|route| route.prefix), mine.last().copied());
    assert!(shard.longest_match(0xdead_beef_u32).is_none());
    let explained = shard.explain(mine[0], &peers);
    assert_eq!(explained.len(), 3);
    assert!(explained.iter().all(|each| each.path.received_s == 5 && !each.verdict.to_string().is_empty()));
    assert!(explained.iter().skip(1).all(|each| matches!(each.verdict, Verdict::LostAt { .. })));
}

#[test]
fn a_flapping_route_is_set_aside_and_comes_back() {
    let interner = Interner::new(1);
    let sets = attribute_sets(&interner, 4);
    let config = ShardConfig { damping: Some(DampingConfig::default()), ..ShardConfig::default() };
    let mut rib = Rib::new(config);
    let (external, internal, target) = (PeerId(0), PeerId(3), prefix(1));
    let shard = shard_of(target);
    for round in 0..7 {
        for peer in [external, internal] {
            rib.apply(peer, round * 10, &[(target, Some(&sets[0]))]);
            rib.apply(peer, round * 10 + 5, &[(target, None)]);
        }
    }
    // Seven withdrawals in a minute: 6,900. Only the external neighbor's counts.
    rib.apply(external, 70, &[(target, Some(&sets[0]))]);
    assert!(rib.best.is_empty());
    let verdicts: Vec<_> =
        rib.shards[shard].explain(target, &rib.peers).iter().map(|each| each.verdict).collect();
    assert_eq!(verdicts, [Verdict::Damped]);
    rib.apply(internal, 70, &[(target, Some(&sets[0]))]);
    assert_eq!(rib.best[&target].peer, internal);
    rib.apply(internal, 71, &[(target, None)]);
    let (mut handled, mut back_at) = (0, None);
    while let Some(at) = rib.shards[shard].next_deadline() {
        let mut changes = Changes::default();
        rib.shards[shard].handle_timer(at, &rib.peers.clone(), &mut changes);
        rib.read(changes);
        back_at = back_at.or(rib.best.contains_key(&target).then_some(at.seconds()));
        handled += 1;
        assert!(handled < 20);
    }
    assert_eq!(rib.best[&target].peer, external);
    // The last flap was at 65 s; log2(6,900 / 750) = 3.2 half-lives of 15 minutes.
    assert!(back_at.is_some_and(|at| (2865..2975).contains(&at)), "{back_at:?}");
    assert_eq!(rib.shards[shard].counters().damping_records, 0);
}

#[test]
fn records_of_flaps_are_bounded() {
    let interner = Interner::new(1);
    let set = any_set(&interner);
    let damping = DampingConfig { records_max: 3, ..DampingConfig::default() };
    let mut rib = Rib::new(ShardConfig { damping: Some(damping), ..ShardConfig::default() });
    for number in 0..500 {
        rib.apply(PeerId(0), 1, &[(prefix(number), Some(&set)), (prefix(number), None)]);
    }
    let counters: Vec<_> = rib.shards.iter().map(RibShard::counters).collect();
    assert!(counters.iter().all(|each| each.damping_records == 3));
    assert_eq!(counters.iter().map(|each| each.damping_untracked).sum::<u64>(), 500 - 3 * 16);
}

#[test]
fn thousands_of_paths_of_one_prefix() {
    let interner = Interner::new(1);
    let sets = attribute_sets(&interner, 64);
    let target = prefix(7);
    let mut shard =
        RibShard::new(ShardConfig { shard: shard_of(target), depth: 2, ..ShardConfig::default() });
    let peers = peers();
    let mut changes = Changes::default();
    let mut builder = RouteBatchBuilder::default();
    for path_id in 0..3000 {
        let index = builder.push_attrs(sets[path_id as usize % sets.len()].clone());
        builder.push_v4(target, path_id, index);
    }
    shard.apply(&builder.finish(PeerId(0), 0), &peers, &mut changes);
    assert_eq!(changes.v4.len(), 1);
    let numbers: std::collections::BTreeSet<_> =
        shard.lookup(target).unwrap().paths().map(|path| path.local_id).collect();
    assert_eq!((numbers.len(), numbers.first(), numbers.last()), (3000, Some(&1), Some(&3000)));
    // Every other path is withdrawn; the others keep their numbers, and new paths get the free ones.
    (0..1500).for_each(|half| builder.push_v4(target, 2 * half, WITHDRAWN));
    let index = builder.push_attrs(sets[0].clone());
    builder.push_v4(target, 9999, index);
    shard.apply(&builder.finish(PeerId(0), 0), &peers, &mut changes);
    let route = shard.lookup(target).unwrap();
    assert_eq!(route.paths().len(), 1501);
    assert_eq!(route.paths().find(|path| path.path_id == 9999).unwrap().local_id, 1);
    assert!(route.paths().all(|path| path.path_id == 9999 || u32::from(path.local_id) == path.path_id + 1));
}

#[test]
fn versions_compare_across_the_wrap() {
    assert!(is_newer(1, 0) && is_newer(0, u32::MAX) && is_newer(5, u32::MAX - 5));
    assert!(!is_newer(0, 0) && !is_newer(0, 1) && !is_newer(u32::MAX, 0));
}
