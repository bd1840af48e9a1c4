//! Many routers, each its own AS, on a random graph under all kinds of disturbance.
//!
//! The oracle: a router's path to a prefix is the shortest one to its origin; among equal ones, the path through
//! the neighbor with the lowest identifier, which is that neighbor's own best path. The paths of all routers
//! determine what each has received from each neighbor: the neighbor's path, unless it contains the router
//! itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::world::{World, address};
use crate::{check_counts, networks, router, with_seeds};
use thalweg_sim::LinkState;
use thalweg_sim::Random;

const ROUTERS: usize = 20;

fn asn(node: usize) -> u32 {
    65_001 + node as u32
}

struct Graph {
    links: Vec<(usize, usize)>,
    neighbors: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// A random tree with some more links.
    fn random(random: &mut Random, nodes: usize) -> Self {
        let mut links = BTreeSet::new();
        for node in 1..nodes {
            links.insert((random.below(node), node));
        }
        for _ in 0..nodes {
            let (a, b) = (random.below(nodes), random.below(nodes));
            if a != b {
                links.insert((a.min(b), a.max(b)));
            }
        }
        let mut neighbors = vec![BTreeSet::new(); nodes];
        for &(a, b) in &links {
            neighbors[a].insert(b);
            neighbors[b].insert(a);
        }
        Self { links: links.into_iter().collect(), neighbors }
    }

    /// Each router's path to the origin: the routers after itself.
    fn paths_to(&self, origin: usize) -> Vec<Vec<usize>> {
        let mut paths: Vec<Option<Vec<usize>>> = vec![None; self.neighbors.len()];
        let mut queue = VecDeque::from([origin]);
        paths[origin] = Some(Vec::new());
        while let Some(node) = queue.pop_front() {
            for &next in &self.neighbors[node] {
                if paths[next].is_none() {
                    // All nearer routers have their paths. Of these, the one with the lowest identifier wins,
                    // which is the one with the lowest number.
                    let near = |via: &&usize| paths[**via].as_ref().map(|path| (path.len(), **via));
                    let via = *self.neighbors[next]
                        .iter()
                        .filter(|via| near(via).is_some())
                        .min_by_key(near)
                        .expect("the one it was reached from");
                    let rest = paths[via].as_ref().expect("a path");
                    paths[next] = Some([&[via], rest.as_slice()].concat());
                    queue.push_back(next);
                }
            }
        }
        paths.into_iter().map(|path| path.expect("a connected graph")).collect()
    }
}

/// A router's expected table: by prefix and neighbor, whether the path is best, and its AS_PATH.
type Table = BTreeMap<(String, String), (bool, String)>;

fn expected(graph: &Graph, node: usize, prefixes: usize) -> Table {
    let mut table = Table::new();
    for origin in 0..graph.neighbors.len() {
        let paths = graph.paths_to(origin);
        for prefix in networks(origin, prefixes) {
            if origin == node {
                table.insert((prefix.clone(), "local".to_owned()), (true, String::new()));
            }
            for &neighbor in &graph.neighbors[node] {
                let path = [&[neighbor], paths[neighbor].as_slice()].concat();
                if path.contains(&node) {
                    continue;
                }
                let text: Vec<String> = path.iter().map(|hop| asn(*hop).to_string()).collect();
                let best = paths[node] == path;
                table.insert((prefix.clone(), address(neighbor).to_string()), (best, text.join(" ")));
            }
        }
    }
    table
}

fn actual(world: &World, node: usize) -> Table {
    let rows = world.routes(node).into_iter().map(|route| {
        assert!(!route.stale, "a stale route at router {node}: {route:?}");
        ((route.prefix, route.neighbor), (route.best, route.as_path))
    });
    rows.collect()
}

fn check(world: &World, graph: &Graph, prefixes: usize, seed: u64) {
    for node in 0..graph.neighbors.len() {
        for neighbor in world.neighbors(node) {
            assert_eq!(neighbor.state, "Established", "seed {seed}, router {node}: {neighbor:?}");
        }
        let (is, wanted) = (actual(world, node), expected(graph, node, prefixes));
        let wrong: Vec<_> = is.iter().filter(|(key, row)| wanted.get(key) != Some(row)).collect();
        let missing: Vec<_> = wanted.iter().filter(|(key, row)| is.get(key) != Some(row)).collect();
        assert!(
            wrong.is_empty() && missing.is_empty(),
            "seed {seed}, router {node}: wrong {wrong:#?}, wanted {missing:#?}"
        );
        check_counts(world, node);
    }
}

/// Disturbs the network at random; each disturbance is undone later.
fn disturb(world: &mut World, graph: &Graph) {
    let (a, b) = graph.links[world.random.below(graph.links.len())];
    match world.random.below(8) {
        0 | 1 => world.set_link(a, b, LinkState::Down),
        2 => world.set_link(a, b, LinkState::Silent),
        3 | 4 => world.set_link(a, b, LinkState::Up),
        5 => {
            let rate = [20, 200, 1 << 20][world.random.below(3)];
            world.set_speed(a, b, rate, rate.clamp(100, 64 << 10));
        }
        6 => world.stop(a),
        _ => {
            if !world.is_running(a) {
                world.start(a);
            }
        }
    }
}

fn put_right(world: &mut World, graph: &Graph) {
    for &(a, b) in &graph.links {
        world.set_link(a, b, LinkState::Up);
        world.set_speed(a, b, 1 << 20, 64 << 10);
    }
    for node in 0..graph.neighbors.len() {
        if !world.is_running(node) {
            world.start(node);
        }
    }
}

fn disturbed_network(seed: u64, more: &str, limits: thalweg_bgp::export::ExportLimits) {
    let prefixes = 12;
    let graph = Graph::random(&mut Random::new(seed), ROUTERS);
    let configs: Vec<String> = (0..ROUTERS)
        .map(|node| {
            let neighbors: Vec<_> =
                graph.neighbors[node].iter().map(|each| (*each, asn(*each), "")).collect();
            router(node, asn(node), &networks(node, prefixes), more, &neighbors)
        })
        .collect();
    let mut world = World::with_limits(seed, &configs, &graph.links, limits);
    world.run_s(20);
    check(&world, &graph, prefixes, seed);
    for _ in 0..3 {
        for _ in 0..30 {
            disturb(&mut world, &graph);
            let ms = world.random.below(1500) as u64;
            world.run_ms(ms);
        }
        put_right(&mut world, &graph);
        world.run_s(60);
        check(&world, &graph, prefixes, seed);
    }
}

#[test]
fn a_disturbed_network_ends_with_the_shortest_paths() {
    with_seeds(3, |seed| disturbed_network(seed, "", Default::default()));
}

/// The same with graceful restart, where routes outlive sessions.
#[test]
fn a_disturbed_network_with_graceful_restart_ends_with_the_shortest_paths() {
    let more = "graceful_restart = { time_s = 10, stale_path_s = 20 }";
    with_seeds(2, |seed| disturbed_network(100 + seed, more, Default::default()));
}

/// The same with very short logs, so that every member falls behind all the time.
#[test]
fn a_disturbed_network_with_short_logs_ends_with_the_shortest_paths() {
    let limits = thalweg_bgp::export::ExportLimits {
        log_bytes_max: 1,
        pending_max: 4,
        dump_routes_max: 16,
        dump_bytes_max: 1,
    };
    with_seeds(2, |seed| disturbed_network(200 + seed, "", limits));
}
