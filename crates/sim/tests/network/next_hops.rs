//! Reachability of next hops: the nearer one is preferred, and routes with an unreachable one are withdrawn from
//! neighbors, too.

use thalweg_bgp::rib::NextHopView;
use thalweg_node::control::{BgpRequest, RouteView};

use crate::world::{World, address};
use crate::{check_counts, networks, router, with_seeds};

/// Routers 1 and 2 announce the shared prefixes to router 0, which passes them on to router 3.
fn configs(sharing: [bool; 2]) -> Vec<String> {
    let shared = networks(9, 40);
    let announced = |which: usize| if sharing[which] { shared.clone() } else { Vec::new() };
    vec![
        router(0, 65_000, &networks(0, 3), "", &[(1, 65_001, ""), (2, 65_002, ""), (3, 65_003, "")]),
        router(1, 65_001, &announced(0), "", &[(0, 65_000, "")]),
        router(2, 65_002, &announced(1), "", &[(0, 65_000, "")]),
        router(3, 65_003, &[], "", &[(0, 65_000, "")]),
    ]
}

/// The cost to reach routers 1 and 2.
fn view(metrics: [Option<u32>; 2]) -> NextHopView {
    let host = |node: usize| format!("{}/32", address(node)).parse().expect("a prefix");
    NextHopView::new([(host(1), metrics[0]), (host(2), metrics[1])])
}

fn why(world: &World, prefix: &str) -> Vec<String> {
    let request = BgpRequest::Route { destination: prefix.to_owned(), exact: true, why: true };
    let views: Vec<RouteView> = world.items(0, &request);
    let mut lines: Vec<_> = views
        .into_iter()
        .map(|view| format!("{}: {}", view.neighbor, view.why.unwrap_or_default()))
        .collect();
    lines.sort_unstable();
    lines
}

/// The table of router 3 depends only on the announcements and on the current reachability, not on history.
#[test]
fn the_nearer_next_hop_is_chosen_and_one_without_a_way_is_not() {
    with_seeds(8, |seed| {
        let mut sharing = [true, true];
        let mut metrics = [Some(0), Some(0)];
        let mut world = World::new(seed, &configs(sharing), &[(0, 1), (0, 2), (0, 3)]);
        for _ in 0..25 {
            for _ in 0..=world.random.below(2) {
                let which = world.random.below(2);
                metrics[which] = [None, Some(5), Some(10), Some(u32::MAX)][world.random.below(4)];
                world.set_next_hops(0, view(metrics));
            }
            if world.random.below(3) == 0 {
                let which = world.random.below(2);
                sharing[which] = !sharing[which];
                world.reload(1 + which, &configs(sharing)[1 + which]);
            }
            // Sometimes the next change comes before this one is processed.
            if world.random.below(2) == 0 {
                world.run_ms(5);
                continue;
            }
            world.run_s(15);
            let ways = (0..2).filter_map(|which| Some((metrics[which].filter(|_| sharing[which])?, which)));
            let best = ways.min().map(|(_, which)| format!("65000 {}", 65_001 + which));
            let routes = world.routes(3);
            for prefix in networks(9, 40) {
                let found = routes.iter().find(|route| route.prefix == prefix).map(|route| &route.as_path);
                assert_eq!(found, best.as_ref(), "seed {seed}, {prefix}, {metrics:?}, {sharing:?}");
            }
            // Router 0's own prefixes need no next hop.
            assert_eq!(routes.iter().filter(|route| route.as_path == "65000").count(), 3, "seed {seed}");
            (0..4).for_each(|node| check_counts(&world, node));
        }
    });
}

#[test]
fn reasons_name_next_hops_and_their_costs() {
    let mut world = World::new(7, &configs([true, true]), &[(0, 1), (0, 2), (0, 3)]);
    world.run_s(10);
    let prefix = &networks(9, 1)[0];
    let [first, second] = [address(1), address(2)];
    let tie = format!("{second}: higher router identifier than {first}");
    assert_eq!(why(&world, prefix), [format!("{first}: best"), tie]);
    assert!(world.set_next_hops(0, view([Some(30), Some(20)])));
    world.run_s(1);
    let farther = format!("{first}: next hop farther away than {second} (cost 30, not 20)");
    assert_eq!(why(&world, prefix), [farther, format!("{second}: best")]);
    world.set_next_hops(0, view([None, Some(20)]));
    world.run_s(1);
    let unreachable = format!("{first}: next hop {first} unreachable");
    assert_eq!(why(&world, prefix), [unreachable, format!("{second}: best")]);
    assert!(!world.set_next_hops(0, view([None, Some(20)])), "repeating a view changes nothing");
}
