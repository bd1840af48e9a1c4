//! A slow reference for the solver: every AS compares the routes of all its neighbors, again and again, until
//! no route changes. It uses whole paths, and neither phases nor an order.

use proptest::prelude::*;

use super::{Class, Deployment, Engine, Scenario, Solver, sweep};
use crate::topology::{AsGraph, GraphBuilder, Relation};

/// A path from an AS to an origin, both included, and its class.
type Held = Option<(Class, Vec<usize>)>;

fn class(relation: Relation) -> Class {
    match relation {
        Relation::Customer => Class::Customer,
        Relation::Peer => Class::Peer,
        Relation::Provider => Class::Provider,
    }
}

/// The textbook check: a path whose hops are stated by their lower ends climbs, crosses once at most, and
/// descends.
fn aspa_drops(graph: &AsGraph, scenario: &Scenario, relation: Relation, path: &[usize]) -> bool {
    let hops: Vec<(usize, usize)> = path.windows(2).rev().map(|hop| (hop[1], hop[0])).collect();
    let denied = |low: usize, high: usize| {
        scenario.aspa.has(low) && graph.relation(low, high) != Some(Relation::Provider)
    };
    if relation != Relation::Provider {
        return hops.iter().any(|(a, b)| denied(*a, *b));
    }
    // Some AS must be the top: no hop may be denied on the way up to it, nor on the way down from it or from
    // the next.
    let n = path.len();
    let fits = |up: usize, down: usize| {
        hops[..up].iter().all(|(a, b)| !denied(*a, *b)) && hops[down..].iter().all(|(a, b)| !denied(*b, *a))
    };
    !(0..n).any(|top| fits(top, top) || top + 1 < n && fits(top, top + 1))
}

fn naive(graph: &AsGraph, scenario: &Scenario) -> Vec<Held> {
    // A leaker keeps its earlier route: otherwise a leak may leave no single stable state.
    let kept = scenario.leaker.map(|leaker| {
        let without = Scenario { leaker: None, ..scenario.clone() };
        (leaker, naive(graph, &without)[leaker].clone())
    });
    let mut held: Vec<Held> = vec![None; graph.len()];
    for _ in 0..4 * graph.len() + 10 {
        let choose = |node: usize| {
            if let Some((_, route)) = kept.as_ref().filter(|(leaker, _)| *leaker == node) {
                return route.clone();
            }
            if scenario.origins.contains(&node) {
                return Some((Class::Own, vec![node]));
            }
            let offers = graph.links_of(node).filter_map(|(neighbor, relation, _)| {
                let (is, path) = held[neighbor].as_ref()?;
                let told = *is >= Class::Customer
                    || relation == Relation::Provider
                    || scenario.leaker == Some(neighbor);
                let origin = *path.last()?;
                let wrong = scenario.rov.has(node) && origin != scenario.origins[0];
                let drops = scenario.aspa.has(node) && aspa_drops(graph, scenario, relation, path);
                (told && !wrong && !drops && !path.contains(&node)).then_some((
                    class(relation),
                    neighbor,
                    path,
                ))
            });
            let best = offers.max_by_key(|(class, neighbor, path)| {
                (*class, std::cmp::Reverse((path.len(), graph.asn(*neighbor))))
            });
            best.map(|(class, _, path)| (class, [&[node], path.as_slice()].concat()))
        };
        let next: Vec<Held> = (0..graph.len()).map(choose).collect();
        if next == held {
            return held;
        }
        held = next;
    }
    panic!("no stable state");
}

/// A graph without a circle of providers, with shuffled AS numbers.
fn graphs() -> impl Strategy<Value = AsGraph> {
    (2usize..14).prop_flat_map(|n| {
        let links = prop::collection::vec((0..n, 0..n, any::<bool>()), 1..3 * n);
        let asns = Just((0..n as u32).collect::<Vec<_>>()).prop_shuffle();
        (links, asns).prop_map(move |(links, asns)| {
            let mut builder = GraphBuilder::new();
            asns.iter().for_each(|asn| builder.node(100 + asn, None));
            let mut pairs = std::collections::BTreeMap::new();
            for (a, b, peer) in links.into_iter().filter(|(a, b, _)| a != b) {
                pairs.entry((a.min(b), a.max(b))).or_insert(peer);
            }
            for ((high, low), peer) in pairs {
                let relation = if peer { Relation::Peer } else { Relation::Customer };
                builder.link(100 + asns[high], 100 + asns[low], relation, 1, 0);
            }
            builder.build().unwrap()
        })
    })
}

fn same(graph: &AsGraph, scenario: &Scenario) -> Result<(), TestCaseError> {
    let engine = Engine::new(graph).unwrap();
    let mut solver = Solver::new(&engine);
    solver.solve(scenario);
    let wanted = naive(graph, scenario);
    for (node, held) in wanted.iter().enumerate() {
        let is = solver.route(node).map(|route| (route.class, solver.path(node)));
        prop_assert_eq!(&is, held, "AS{}", graph.asn(node));
        if let (Some(route), Some((_, path))) = (solver.route(node), held) {
            prop_assert_eq!(route.length as usize + 1, path.len());
            prop_assert_eq!(scenario.origins[route.origin], *path.last().unwrap());
            let passes = path.windows(2).any(|hop| Some(hop[1]) == scenario.leaker);
            let up = |hop: &[usize]| graph.relation(hop[0], hop[1]) != Some(Relation::Provider);
            let against = path.windows(3).any(|hop| {
                Some(hop[1]) == scenario.leaker
                    && up(hop)
                    && !matches!(graph.relation(hop[1], hop[2]), Some(Relation::Customer))
            });
            prop_assert!(!against || route.leaked);
            prop_assert!(passes || !route.leaked);
        }
    }
    let summary = solver.summary();
    prop_assert_eq!(summary.reached as usize, wanted.iter().flatten().count());
    prop_assert_eq!(
        summary.links as usize,
        wanted.iter().flatten().map(|(_, path)| path.len() - 1).sum::<usize>()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn one_origin(graph in graphs(), origin in any::<prop::sample::Index>()) {
        same(&graph, &Scenario::announced_by(origin.index(graph.len())))?;
    }

    #[test]
    fn hijacks_leaks_and_checks(
        graph in graphs(),
        origins in prop::collection::btree_set(any::<prop::sample::Index>().prop_map(|i| i.index(1 << 20)), 1..4),
        leaker in prop::option::of(any::<prop::sample::Index>()),
        shares in (0usize..4, 0usize..4),
        seed in any::<u64>(),
    ) {
        let n = graph.len();
        let mut distinct: Vec<usize> = Vec::new();
        for origin in origins.into_iter().map(|origin| origin % n) {
            if !distinct.contains(&origin) {
                distinct.push(origin);
            }
        }
        let share = |which: usize, salt: u64| {
            Deployment::share(&graph, [0.0, 0.3, 0.7, 1.0][which], seed.wrapping_add(salt))
        };
        let scenario = Scenario {
            origins: distinct,
            leaker: leaker.map(|leaker| leaker.index(n)),
            rov: share(shares.0, 0),
            aspa: share(shares.1, 1),
        };
        same(&graph, &scenario)?;
    }
}

#[test]
fn many_origins_on_any_number_of_threads() {
    let graph = crate::topology::internet(300, 3).unwrap();
    let engine = Engine::new(&graph).unwrap();
    let origins: Vec<usize> = (0..graph.len()).collect();
    let one = sweep(&engine, &Scenario::default(), &origins, 1, &|_| {});
    assert_eq!(one, sweep(&engine, &Scenario::default(), &origins, 3, &|_| {}));
    let mut solver = Solver::new(&engine);
    for (origin, summary) in one.iter().enumerate() {
        solver.solve(&Scenario::announced_by(origin));
        assert_eq!(solver.summary(), *summary);
        assert_eq!((summary.reached, summary.by_class[Class::Own as usize]), (300, 1));
    }
}
