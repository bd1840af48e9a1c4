//! Our own restart (RFC 4724 section 4.1): the router selects nothing and sends no End-of-RIB before its
//! neighbors have sent their tables, so no helper drops a route that still exists.

use std::net::IpAddr;

use thalweg_node::control::{BgpRequest, RibView};
use thalweg_node::speaker::{Restart, RestartNeighbor};

use crate::world::{World, address};
use crate::{check_counts, networks, router, with_seeds};
use thalweg_sim::LinkState;

const LINKS: [(usize, usize); 2] = [(0, 1), (1, 2)];
const KEYS: &str = "graceful_restart = { time_s = 60, stale_path_s = 60 }\nselection_deferral_s = 30";

/// Three routers in a row; the middle one restarts. Its own AS is in no path of its neighbors' routes.
fn row(own: [&[String]; 3], keys: [&str; 3]) -> [String; 3] {
    [
        router(0, 65_001, own[0], keys[0], &[(1, 65_002, "")]),
        router(1, 65_002, own[1], keys[1], &[(0, 65_001, ""), (2, 65_003, "")]),
        router(2, 65_003, own[2], keys[2], &[(1, 65_002, "")]),
    ]
}

fn neighbor(node: usize) -> RestartNeighbor {
    RestartNeighbor { address: address(node).into(), families: [true, false] }
}

fn of(nodes: &[usize]) -> Option<Restart> {
    Some(Restart { neighbors: Some(nodes.iter().map(|node| neighbor(*node)).collect()) })
}

/// How many routes a router has from its neighbor in the middle, and how many of them it uses.
fn from_middle(world: &World, node: usize) -> (usize, usize) {
    let name = address(1).to_string();
    let routes: Vec<_> = world.routes(node).into_iter().filter(|route| route.neighbor == name).collect();
    (routes.len(), routes.iter().filter(|route| route.best).count())
}

fn rib(world: &World, node: usize) -> RibView {
    world.items::<RibView>(node, &BgpRequest::Rib).remove(0)
}

fn sent_updates(world: &World, node: usize) -> u64 {
    world.neighbors(node)[0].updates_received
}

/// Runs for some time; returns the fewest routes that each of both neighbors had meanwhile.
fn least_kept(world: &mut World, seconds: u64) -> [usize; 2] {
    let mut least = [usize::MAX; 2];
    for _ in 0..seconds * 10 {
        world.run_ms(100);
        for (at, node) in [0, 2].into_iter().enumerate() {
            least[at] = least[at].min(from_middle(world, node).1);
        }
    }
    least
}

#[test]
fn no_neighbor_ever_drops_a_route_over_a_restart() {
    with_seeds(4, |seed| {
        let own = [networks(0, 200), networks(1, 20), networks(2, 100)];
        let own = [&own[0][..], &own[1], &own[2]];
        let mut world = World::new(seed, &row(own, [KEYS; 3]), &LINKS);
        world.run_s(10);
        assert_eq!((from_middle(&world, 0).1, from_middle(&world, 2).1), (120, 220), "seed {seed}");
        let before = [world.table(0), world.table(2)];
        let mut neighbors = world.speaker(1).restart_neighbors();
        neighbors.sort_by_key(|each| each.address);
        assert_eq!(neighbors, [neighbor(0), neighbor(2)]);
        world.stop(1);
        world.run_s(3);
        world.start_with(1, of(&[0, 2]));
        // One neighbor becomes reachable much later: until then nothing is selected, and the other neighbor
        // receives nothing.
        world.set_link(1, 2, LinkState::Down);
        world.run_until("the first neighbor", 20, |world| world.is_established(1, 0));
        assert_eq!(least_kept(&mut world, 5), [120, 220], "seed {seed}");
        let view = rib(&world, 1);
        let restart = view.restart.expect("the restart goes on");
        assert_eq!(restart.awaited, [IpAddr::from(address(2))], "seed {seed}");
        assert!(restart.deferred == ["ipv4"] && restart.remaining_s > 0, "seed {seed}: {restart:?}");
        assert!(view.paths.ipv4 >= 200 && world.routes(1).iter().all(|route| !route.best), "seed {seed}");
        assert!(world.routes(0).iter().filter(|route| route.neighbor != "local").all(|route| route.stale));
        world.set_link(1, 2, LinkState::Up);
        assert_eq!(least_kept(&mut world, 15), [120, 220], "seed {seed}");
        assert_eq!(rib(&world, 1).restart, None, "seed {seed}");
        assert_eq!([world.table(0), world.table(2)], before, "seed {seed}: nothing is stale any more");
        check_counts(&world, 1);
    });
}

/// The router's End-of-RIB removes routes that did not return, and the table is sent only once.
#[test]
fn what_is_gone_goes_with_end_of_rib() {
    with_seeds(5, |seed| {
        let own = [networks(0, 400), Vec::new(), Vec::new()];
        let configs = row([&own[0], &own[1], &own[2]], [KEYS; 3]);
        let mut world = World::new(seed, &configs, &LINKS);
        world.run_s(10);
        world.stop(1);
        world.reload(0, &row([&own[0][..100], &own[1], &own[2]], [KEYS; 3])[0]);
        world.run_s(2);
        let updates = sent_updates(&world, 2);
        world.start_with(1, of(&[0, 2]));
        world.run_s(20);
        assert_eq!(from_middle(&world, 2), (100, 100), "seed {seed}");
        // Four hundred prefixes with the same attributes fit into two messages; End-of-RIB is one more.
        assert!(
            sent_updates(&world, 2) - updates <= 4,
            "seed {seed}: {updates} UPDATEs: the table was sent more than once"
        );
    });
}

/// A neighbor that does not return delays selection for the configured time, no longer.
#[test]
fn the_timer_ends_the_wait() {
    with_seeds(5, |seed| {
        let own = [networks(0, 100), Vec::new(), networks(2, 10)];
        let mut world = World::new(seed, &row([&own[0], &own[1], &own[2]], [KEYS; 3]), &LINKS);
        world.run_s(10);
        world.stop(1);
        world.stop(2);
        world.run_s(1);
        let begun_ms = world.now_ms();
        world.start_with(1, of(&[0, 2]));
        world.run_until("selection", 60, |world| world.routes(1).iter().any(|route| route.best));
        let after_ms = world.now_ms() - begun_ms;
        assert!((29_000..33_000).contains(&after_ms), "seed {seed}: {after_ms}");
        world.run_s(5);
        assert_eq!(
            from_middle(&world, 0),
            (0, 0),
            "seed {seed}: what the other neighbor had announced is gone"
        );
    });
}

/// The router does not wait for a neighbor that has restarted too, that does not support graceful restart, or
/// that is shut down.
#[test]
fn nobody_waits_for_those_that_send_no_end() {
    with_seeds(5, |seed| {
        let own = [networks(0, 100), Vec::new(), networks(2, 10)];
        let own = [&own[0][..], &own[1], &own[2]];
        let selected = |world: &World| rib(world, 1).restart.is_none();
        // The neighbor has restarted too: both would wait for each other for ever.
        let mut world = World::new(seed, &row(own, [KEYS; 3]), &LINKS);
        world.run_s(10);
        [1, 2].into_iter().for_each(|node| world.stop(node));
        world.start_with(1, of(&[0, 2]));
        world.start_with(2, of(&[1]));
        world.run_s(20);
        assert!(selected(&world) && from_middle(&world, 2).1 == 100, "seed {seed}: both restarted");
        // Not capable. The predecessor's neighbors are unknown, so all neighbors configured for graceful restart
        // are awaited.
        let mut world = World::new(seed, &row(own, [KEYS, KEYS, ""]), &LINKS);
        world.run_s(10);
        world.stop(1);
        world.start_with(1, Some(Restart::default()));
        world.run_s(20);
        assert!(selected(&world) && from_middle(&world, 2).1 == 100, "seed {seed}: without the capability");
        // Shut down in our configuration.
        let mut world = World::new(seed, &row(own, [KEYS; 3]), &LINKS);
        world.run_s(10);
        world.stop(1);
        world.stop(2);
        world.start_with(1, of(&[0, 2]));
        world.run_s(10);
        assert!(!selected(&world), "seed {seed}");
        world.ask(1, &BgpRequest::Shutdown { neighbor: address(2).to_string(), text: String::new() });
        world.run_s(2);
        assert!(selected(&world), "seed {seed}: shut down");
    });
}

/// After a cold start nothing is deferred, the router announces no restart, and neighbors drop the predecessor's
/// routes.
#[test]
fn a_cold_start_is_no_restart() {
    with_seeds(5, |seed| {
        let own = [networks(0, 100), Vec::new(), networks(2, 10)];
        let mut world = World::new(seed, &row([&own[0], &own[1], &own[2]], [KEYS; 3]), &LINKS);
        world.run_s(10);
        world.stop(1);
        world.stop(2);
        world.run_s(2);
        assert_eq!(from_middle(&world, 0), (10, 10), "seed {seed}");
        world.start(1);
        world.run_until("the session", 20, |world| world.is_established(0, 1));
        world.run_ms(500);
        assert_eq!(from_middle(&world, 0), (0, 0), "seed {seed}");
        assert_eq!(rib(&world, 1).restart, None, "seed {seed}");
        assert!(world.routes(1).iter().all(|route| route.best), "seed {seed}");
    });
}
