//! The decision against its definition: [`Definition`] in `testing` ranks without shortcuts.

use super::super::paths::PathMeta;
use super::super::testing::{Definition, ModelPath, attribute_sets, peers};
use super::*;
use crate::attrs::{AttrsBuilder, Interner, NextHop, SegmentKind};
use crate::route::Chosen;
use proptest::prelude::*;

const DEPTH: usize = 255;

/// A set of paths: source and attribute set of each, no source twice with one identifier.
fn paths(choices: &[(u8, u8)]) -> Vec<ModelPath> {
    let interner = Interner::new(1);
    let sets = attribute_sets(&interner, 200);
    let mut paths: Vec<ModelPath> = Vec::new();
    for (peer, set) in choices {
        let path_id = u32::from(*peer / 7);
        let peer = match peer % 7 {
            6 => PeerId::LOCAL,
            number => PeerId(number.into()),
        };
        if !paths.iter().any(|path| path.peer == peer && path.path_id == path_id) {
            let attrs = sets[usize::from(*set) % sets.len()].clone();
            paths.push(ModelPath { peer, path_id, local_id: paths.len() as u16 + 1, attrs, stale: false });
        }
    }
    paths
}

fn config(bits: u8) -> DecisionConfig {
    DecisionConfig {
        always_compare_med: bits & 1 != 0,
        med_missing_as_worst: bits & 2 != 0,
        compare_med_in_confederation: bits & 4 != 0,
    }
}

fn metrics() -> NextHopView {
    let routes = [("0.0.0.0/0", Some(0)), ("192.0.2.2/32", Some(10))];
    NextHopView::new(routes.map(|(prefix, metric)| (prefix.parse().unwrap(), metric)))
}

/// The ranks as the shard makes them.
fn rank(decision: &Decision<'_>, paths: &[ModelPath], depth: usize) -> Vec<Chosen> {
    let mut meta: Vec<_> =
        paths.iter().map(|path| PathMeta::new(path.peer, path.path_id, path.local_id, 0, 0)).collect();
    let mut attrs: Vec<_> = paths.iter().map(|path| Some(path.attrs.clone())).collect();
    let ranked = decision.rank(&mut BlockMut { meta: &mut meta, attrs: &mut attrs }, depth, &mut Vec::new());
    let rows = meta.iter().zip(attrs).take(ranked.into());
    rows.filter_map(|(meta, attrs)| Some(Chosen { attrs: attrs?, peer: meta.peer, local_id: meta.local_id }))
        .collect()
}

fn as_candidate(path: &ModelPath) -> Candidate<'_> {
    Candidate { attrs: &path.attrs, peer: path.peer, path_id: path.path_id }
}

fn sets(max: usize) -> impl Strategy<Value = Vec<(u8, u8)>> {
    proptest::collection::vec((0u8..70, any::<u8>()), 1..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Every set of paths has one order, each path has one place in it, and it does not depend on how they came.
    #[test]
    fn ranks_are_a_function_of_the_set(choices in sets(50), bits: u8, shuffle in any::<prop::sample::Index>()) {
        let (peers, next_hops, config) = (peers(), metrics(), config(bits));
        let decision = Decision { config, peers: &peers, next_hops: &next_hops, deferred: false };
        let paths = paths(&choices);
        let ranks = rank(&decision, &paths, DEPTH);
        prop_assert_eq!(ranks.len(), paths.len());
        let places: std::collections::BTreeSet<_> = ranks.iter().map(|each| each.local_id).collect();
        prop_assert_eq!(places.len(), paths.len());
        let mut other = paths.clone();
        other.rotate_left(shuffle.index(paths.len()));
        other.reverse();
        prop_assert_eq!(&rank(&decision, &other, DEPTH), &ranks);
        let definition = Definition { config, peers: &peers, next_hops: &next_hops };
        prop_assert_eq!(&definition.ranks(&paths, DEPTH), &ranks);
        prop_assert_eq!(&rank(&decision, &paths, 3)[..], &ranks[..ranks.len().min(3)]);
    }

    /// Transitive: what stands behind in the order stands behind in each rest of the set that begins there; and
    /// where MED is compared always, the order of two does not depend on the others at all.
    #[test]
    fn order_is_total(choices in sets(12), bits: u8) {
        let (peers, next_hops, config) = (peers(), metrics(), config(bits));
        let decision = Decision { config, peers: &peers, next_hops: &next_hops, deferred: false };
        let paths = paths(&choices);
        let ranks = rank(&decision, &paths, DEPTH);
        let find = |chosen: &Chosen| paths.iter().find(|path| path.local_id == chosen.local_id).cloned();
        let ordered: Vec<ModelPath> = ranks.iter().filter_map(find).collect();
        for from in 0..ordered.len() {
            prop_assert_eq!(&rank(&decision, &ordered[from..], DEPTH), &ranks[from..]);
            if config.always_compare_med {
                for later in from + 1..ordered.len() {
                    let pair = [ordered[later].clone(), ordered[from].clone()];
                    prop_assert_eq!(rank(&decision, &pair, 1)[0].local_id, ordered[from].local_id);
                }
            }
        }
    }

    /// What the shortcuts say is what ranking says.
    #[test]
    fn shortcuts_agree(choices in sets(12), bits: u8) {
        let (peers, next_hops, config) = (peers(), metrics(), config(bits));
        let decision = Decision { config, peers: &peers, next_hops: &next_hops, deferred: false };
        let all = paths(&choices);
        let best_of = |paths: &[ModelPath]| rank(&decision, paths, 1)[0].local_id;
        let by_id = |id: u16| all.iter().find(|path| path.local_id == id);
        for (at, one) in all.iter().enumerate() {
            let mut rest = all.clone();
            rest.remove(at);
            if rest.is_empty() {
                continue;
            }
            let (with, without) = (best_of(&all), best_of(&rest));
            let (Some(best), Some(best_with)) = (by_id(without), by_id(with)) else { unreachable!() };
            match decision.challenge(as_candidate(best), as_candidate(one)) {
                Comparison::BestStays => prop_assert_eq!(with, without),
                Comparison::NewWins => prop_assert_eq!(with, one.local_id),
                Comparison::Undecided => {}
            }
            if with != one.local_id && decision.departure_keeps(as_candidate(best_with), as_candidate(one)) {
                prop_assert_eq!(with, without);
            }
        }
    }

    /// Each loser is told a step in which it is indeed worse.
    #[test]
    fn reasons_are_true(choices in sets(12), bits: u8) {
        let (peers, next_hops) = (peers(), metrics());
        let decision = Decision { config: config(bits), peers: &peers, next_hops: &next_hops, deferred: false };
        let all = paths(&choices);
        let candidates: Vec<_> = all.iter().map(as_candidate).collect();
        let best = rank(&decision, &all, 1)[0].local_id;
        let best_path = all.iter().find(|path| path.local_id == best).map(as_candidate).unwrap();
        for loser in all.iter().filter(|path| path.local_id != best) {
            let (step, peer, path_id) = decision.why(best_path, as_candidate(loser), &candidates);
            let winner = all.iter().find(|path| path.peer == peer && path.path_id == path_id).unwrap();
            let (w, l) = (&winner.attrs, &loser.attrs);
            let worse = match step {
                Step::Weight => w.weight > l.weight,
                Step::LocalPref => w.local_pref > l.local_pref,
                Step::LocallyOriginated => winner.peer == PeerId::LOCAL && loser.peer != PeerId::LOCAL,
                Step::PathLength => w.path_length < l.path_length,
                Step::Origin => w.origin < l.origin,
                Step::Med => decision.med(w) < decision.med(l) && decision.comparable(w, l),
                _ => decision.after(as_candidate(winner)) < decision.after(as_candidate(loser)),
            };
            prop_assert!(worse, "{step}");
        }
    }
}

/// The set for which comparing path by path depends on the order: RFC 3345's oscillation in one router.
#[test]
fn med_is_deterministic() {
    let interner = Interner::new(1);
    let mut builder = AttrsBuilder::default();
    let mut set = |asn: u32, med: u32| {
        builder.clear();
        builder.next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 1));
        builder.med = Some(med);
        builder.prepend(asn, 1, SegmentKind::Sequence).unwrap();
        interner.intern(&mut builder)
    };
    // Router identifiers: peer 0 and 1 have 7, peer 2 and 3 have 6. Peer 3 is internal.
    let mut path = |peer: u16, asn, med| ModelPath {
        peer: PeerId(peer),
        path_id: 0,
        local_id: peer + 1,
        attrs: set(asn, med),
        stale: false,
    };
    let (a, b, c) = (path(2, 64501, 20), path(0, 64501, 10), path(1, 64502, 0));
    let peers = peers();
    let next_hops = NextHopView::default();
    let decision = |config| Decision { config, peers: &peers, next_hops: &next_hops, deferred: false };
    let order = |config, paths: &[&ModelPath]| -> Vec<u16> {
        let paths: Vec<_> = paths.iter().map(|path| (*path).clone()).collect();
        rank(&decision(config), &paths, 9).iter().map(|chosen| chosen.peer.0).collect()
    };
    let config = DecisionConfig::default();
    // a beats c by router identifier, c... b beats a by MED, b beats c by address: a must not win.
    for paths in [[&a, &b, &c], [&a, &c, &b], [&b, &a, &c], [&b, &c, &a], [&c, &a, &b], [&c, &b, &a]] {
        assert_eq!(order(config, &paths), [0, 2, 1]);
    }
    assert_eq!(order(config, &[&a, &c]), [2, 1]);
    let always = DecisionConfig { always_compare_med: true, ..config };
    assert_eq!(order(always, &[&a, &b, &c]), [1, 0, 2]);
    let reason = decision(config).why(as_candidate(&b), as_candidate(&a), &[&a, &b, &c].map(as_candidate));
    assert_eq!(reason, (Step::Med, PeerId(0), 0));
}
