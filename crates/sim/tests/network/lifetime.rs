//! The lifetime of routes: withdrawals, limits, refresh, graceful restart.

use thalweg_node::control::{BgpRequest, MemoryView, RibView};

use crate::world::{World, address};
use crate::{check_counts, flaps, networks, router, with_seeds};
use thalweg_sim::LinkState;

/// Prefixes that a router has received from a neighbor.
fn received(world: &World, node: usize, neighbor: usize) -> Vec<String> {
    let name = address(neighbor).to_string();
    let routes = world.routes(node).into_iter().filter(|route| route.neighbor == name);
    let mut prefixes: Vec<String> = routes.map(|route| route.prefix).collect();
    prefixes.sort_unstable();
    prefixes
}

fn sorted(mut prefixes: Vec<String>) -> Vec<String> {
    prefixes.sort_unstable();
    prefixes
}

/// Three routers in a row, each its own AS. The first announces `own`; the second has `keys` in its configuration
/// of the first.
fn row(own: &[String], more: &str, keys: &str) -> [String; 3] {
    [
        router(0, 65_001, own, more, &[(1, 65_002, "")]),
        router(1, 65_002, &[], more, &[(0, 65_001, keys), (2, 65_003, "")]),
        router(2, 65_003, &[], more, &[(1, 65_002, "")]),
    ]
}

const ROW: [(usize, usize); 2] = [(0, 1), (1, 2)];

#[test]
fn withdrawing_everything_leaves_empty_tables() {
    with_seeds(5, |seed| {
        let mut world = World::new(seed, &row(&networks(0, 500), "", ""), &ROW);
        world.run_s(10);
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 500)));
        world.reload(0, &row(&[], "", "")[0]);
        world.run_s(5);
        for node in 0..3 {
            assert!(world.routes(node).is_empty(), "seed {seed}: {:?}", world.table(node));
            check_counts(&world, node);
        }
        assert_eq!(flaps(&world, 1), [0, 0]);
    });
}

/// A neighbor removed from the configuration takes its routes along, and can be added again.
#[test]
fn a_neighbor_that_is_removed_leaves_nothing() {
    with_seeds(5, |seed| {
        let mut world = World::new(seed, &row(&networks(0, 100), "", ""), &ROW);
        world.run_s(10);
        let without = router(1, 65_002, &[], "", &[(2, 65_003, "")]);
        world.reload(1, &without);
        world.run_s(15);
        assert!(world.routes(1).is_empty() && world.routes(2).is_empty(), "seed {seed}");
        world.reload(1, &row(&[], "", "")[1]);
        world.run_s(30);
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 100)), "seed {seed}");
    });
}

/// A neighbor that first matches a range, then has its own section, then matches the range again: its address
/// always has exactly one session, and that session works.
#[test]
fn a_neighbor_of_a_range_gets_a_place_of_its_own() {
    with_seeds(5, |seed| {
        let range = "[[bgp.group]]\nname = \"range\"\ndynamic = [\"198.18.0.0/24\"]\nas = \"any\"\n";
        let own = row(&networks(0, 100), "", "");
        let [of_range, of_its_own] =
            [&[(2, 65_003, "")][..], &[(0, 65_001, ""), (2, 65_003, "")]].map(|neighbors| {
                let with_neighbors = router(1, 65_002, &[], "", neighbors);
                format!("{with_neighbors}{range}")
            });
        let mut world = World::new(seed, &[own[0].clone(), of_range.clone(), own[2].clone()], &ROW);
        world.run_s(10);
        for text in [&of_its_own, &of_range, &of_its_own] {
            assert_eq!(received(&world, 2, 1), sorted(networks(0, 100)), "seed {seed}");
            world.reload(1, text);
            world.run_s(30);
            assert!(world.is_established(1, 0) && world.is_established(1, 2), "seed {seed}");
            assert_eq!(world.neighbors(1).len(), 2, "seed {seed}");
            check_counts(&world, 1);
        }
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 100)), "seed {seed}");
        assert_eq!(flaps(&world, 2), [0], "seed {seed}");
    });
}

#[test]
fn a_neighbor_above_its_limit_is_stopped() {
    with_seeds(5, |seed| {
        let keys = "max_prefixes = { ipv4 = 50, action = \"stop\" }";
        let mut world = World::new(seed, &row(&networks(0, 51), "", keys), &ROW);
        world.run_s(30);
        assert!(!world.is_established(1, 0), "seed {seed}");
        assert!(world.routes(1).is_empty() && world.routes(2).is_empty(), "seed {seed}");
        world.reload(0, &row(&networks(0, 50), "", "")[0]);
        world.ask(1, &BgpRequest::Start { neighbor: address(0).to_string() });
        world.run_s(30);
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 50)), "seed {seed}");
        check_counts(&world, 1);
    });
}

#[test]
fn a_neighbor_above_its_limit_comes_back_after_its_rest() {
    with_seeds(5, |seed| {
        let keys = "max_prefixes = { ipv4 = 50, action = \"restart\", restart_s = 40 }";
        let mut world = World::new(seed, &row(&networks(0, 60), "", keys), &ROW);
        world.run_s(20);
        assert!(!world.is_established(1, 0) && world.routes(2).is_empty(), "seed {seed}");
        world.reload(0, &row(&networks(0, 10), "", "")[0]);
        world.run_s(60);
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 10)), "seed {seed}");
    });
}

/// A refresh of both families at the same time: each is answered, nothing is withdrawn in between, and no route
/// stays marked as stale.
#[test]
fn a_refresh_brings_everything_again() {
    let more = "families = [\"ipv4\", \"ipv6\"]\nnext_hop = [\"2001:db8::1\"]";
    for enhanced in [true, false] {
        with_seeds(5, |seed| {
            let mut own = networks(0, 300);
            own.extend((0..300).map(|n| format!("2001:db8:{n:x}::/48")));
            let more = format!("{more}\nenhanced_refresh = {enhanced}");
            let mut world = World::new(seed, &row(&own, &more, ""), &ROW);
            world.run_s(10);
            let (before, updates) = (world.table(1), world.neighbors(1)[0].updates_received);
            assert_eq!(before.len(), 600, "seed {seed}");
            let passed_on = world.neighbors(2)[0].updates_received;
            world.ask(1, &BgpRequest::Refresh { neighbor: address(0).to_string() });
            // A second request during the answer to the first.
            world.run_ms(25);
            world.ask(1, &BgpRequest::Refresh { neighbor: address(0).to_string() });
            world.run_s(5);
            assert_eq!(world.table(1), before, "seed {seed}");
            assert!(world.neighbors(1)[0].updates_received >= updates + 2, "seed {seed}: both families");
            assert_eq!(world.neighbors(2)[0].updates_received, passed_on, "seed {seed}: nothing changed");
            assert_eq!(flaps(&world, 1), [0, 0]);
        });
    }
}

/// A refresh request during the first table does not lose the rest of that table.
#[test]
fn a_refresh_during_the_first_table_costs_nothing() {
    with_seeds(5, |seed| {
        let configs = row(&networks(0, 3000), "families = [\"ipv4\", \"ipv6\"]", "");
        let mut world = World::new(seed, &configs, &ROW);
        {
            world.set_speed(0, 1, 3, 200);
        }
        world.run_until("the session", 20, |world| world.is_established(1, 0));
        world.run_ms(300);
        assert!(received(&world, 1, 0).len() < 3000);
        world.ask(1, &BgpRequest::Refresh { neighbor: address(0).to_string() });
        world.run_s(60);
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 3000)), "seed {seed}");
        assert!(world.routes(1).iter().all(|route| !route.stale), "seed {seed}");
        assert_eq!(flaps(&world, 1), [0, 0]);
    });
}

const GRACEFUL: &str = "graceful_restart = { time_s = 20, stale_path_s = 20 }";

#[test]
fn graceful_restart_keeps_routes_over_a_lost_session() {
    with_seeds(5, |seed| {
        let mut world = World::new(seed, &row(&networks(0, 200), GRACEFUL, ""), &ROW);
        world.run_s(10);
        let updates = world.neighbors(2)[0].updates_received;
        world.set_link(0, 1, LinkState::Down);
        world.run_s(5);
        assert_eq!(received(&world, 1, 0), sorted(networks(0, 200)), "seed {seed}");
        assert!(world.routes(1).iter().all(|route| route.stale), "seed {seed}");
        world.set_link(0, 1, LinkState::Up);
        world.run_s(40);
        assert!(world.is_established(1, 0));
        assert_eq!(received(&world, 1, 0), sorted(networks(0, 200)), "seed {seed}");
        assert!(world.routes(1).iter().all(|route| !route.stale), "seed {seed}");
        assert_eq!(world.neighbors(2)[0].updates_received, updates, "seed {seed}: a neighbor noticed");
        check_counts(&world, 1);
    });
}

/// The End-of-RIB after the restart removes routes that were not announced again.
#[test]
fn graceful_restart_forgets_what_did_not_come_back() {
    with_seeds(5, |seed| {
        let mut world = World::new(seed, &row(&networks(0, 200), GRACEFUL, ""), &ROW);
        world.run_s(10);
        world.set_link(0, 1, LinkState::Down);
        world.run_s(2);
        world.reload(0, &row(&networks(0, 30), GRACEFUL, "")[0]);
        world.set_link(0, 1, LinkState::Up);
        world.run_until("the session", 20, |world| world.is_established(1, 0));
        world.run_s(2);
        assert_eq!(received(&world, 2, 1), sorted(networks(0, 30)), "seed {seed}");
        check_counts(&world, 1);
    });
}

#[test]
fn graceful_restart_ends_when_nobody_comes_back() {
    with_seeds(3, |seed| {
        let mut world = World::new(seed, &row(&networks(0, 200), GRACEFUL, ""), &ROW);
        world.run_s(10);
        world.stop(0);
        world.run_s(15);
        assert_eq!(received(&world, 2, 1).len(), 200, "seed {seed}");
        world.run_s(10);
        assert!(world.routes(1).is_empty() && world.routes(2).is_empty(), "seed {seed}");
        check_counts(&world, 1);
    });
}

/// The session is lost again before End-of-RIB: routes that were already stale are not kept a second time (RFC
/// 4724 4.2).
#[test]
fn routes_are_not_kept_over_two_lost_sessions() {
    with_seeds(3, |seed| {
        let keys = "graceful_restart = { time_s = 60, stale_path_s = 60 }\nextended_messages = false";
        let mut world = World::new(seed, &row(&networks(0, 6000), keys, ""), &ROW);
        world.run_s(10);
        assert_eq!(received(&world, 1, 0).len(), 6000, "seed {seed}");
        world.set_link(0, 1, LinkState::Down);
        world.run_s(2);
        // The neighbor returns slowly and is lost again in the middle of its table.
        {
            world.set_speed(0, 1, 20, 2000);
        }
        world.set_link(0, 1, LinkState::Up);
        let comes_back = |world: &mut World| {
            world.run_ms(20);
            world.routes(1).iter().any(|route| !route.stale)
        };
        assert!((0..500).any(|_| comes_back(&mut world)), "seed {seed}: some routes");
        let came_back: Vec<String> = {
            world.set_link(0, 1, LinkState::Down);
            world.run_s(12);
            received(&world, 1, 0)
        };
        assert!(!world.is_established(1, 0) && !came_back.is_empty(), "seed {seed}");
        assert!(came_back.len() < 6000, "seed {seed}: {} kept twice", came_back.len());
        assert!(world.routes(1).iter().all(|route| route.stale), "seed {seed}");
        check_counts(&world, 1);
    });
}

/// The memory of withdrawn routes is freed although no later change triggers a clean-up.
#[test]
fn memory_is_given_back_after_the_last_withdrawal() {
    with_seeds(3, |seed| {
        let mut world = World::new(seed, &row(&networks(0, 16_000), "", ""), &ROW);
        world.run_s(20);
        let memory = |world: &World| {
            let view = world.items::<MemoryView>(1, &BgpRequest::Memory).remove(0);
            (view.rib, view.attributes, world.items::<RibView>(1, &BgpRequest::Rib).remove(0).attribute_sets)
        };
        assert_eq!(received(&world, 1, 0).len(), 16_000, "seed {seed}");
        let full = memory(&world);
        world.stop(0);
        world.run_s(60);
        assert!(world.routes(1).is_empty(), "seed {seed}");
        let (rib, _, sets) = memory(&world);
        assert!(full.0 > 500_000 && rib * 5 < full.0, "seed {seed}: {rib} bytes of {}", full.0);
        // The attribute sets of the router's own announcements always exist.
        assert!(sets <= 2, "seed {seed}: {sets} of {} attribute sets", full.2);
    });
}
