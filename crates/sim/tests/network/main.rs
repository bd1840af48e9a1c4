//! Networks of speakers on simulated links and virtual time: what every router ends up with is exactly what the
//! protocol says, whatever happened before.
//!
//! [`graph`] has many routers and an oracle for every route, and the other modules small networks for one matter each;
//! [`world`] is what they do with the simulator. Everything follows from a seed, which a failing test names. What one
//! router sent is looked at in the RIB of the router that received it.

mod exchange;
mod graph;
mod internet;
mod intervals;
mod lifetime;
mod next_hops;
mod restart;
mod same;
mod slow;
mod topology;
mod whatif;
mod world;

use world::{World, address};

/// What the small networks' routers have in common: short timers, and everything goes both ways.
const SHORT_TIMERS: &str = "listen = []\ninstall = \"none\"\nimport = \"accept\"\nexport = \"accept\"\n\
    hold_time_s = 9\nconnect_retry_s = 3\nidle_hold_max_s = 8\n";

/// A router's configuration. `more` goes to `[bgp]`; a neighbor is its number, its AS and its own keys.
fn router(
    node: usize,
    asn: u32,
    networks: &[String],
    more: &str,
    neighbors: &[(usize, u32, &str)],
) -> String {
    let mut text = format!("[bgp]\nas = {asn}\nrouter_id = \"{}\"\n{SHORT_TIMERS}{more}\n", address(node));
    text += &format!("networks = {networks:?}\n");
    for (neighbor, asn, keys) in neighbors {
        text += &format!("[[bgp.neighbor]]\naddress = \"{}\"\nas = {asn}\n{keys}\n", address(*neighbor));
    }
    text
}

/// Prefixes of a router's own.
fn networks(node: usize, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("10.{node}.{}.{}/30", n / 64, n % 64 * 4)).collect()
}

/// Runs a test with several seeds; with THALWEG_SEEDS=N with N times as many, to hunt.
fn with_seeds(count: u64, test: impl Fn(u64)) {
    let times = std::env::var("THALWEG_SEEDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    for seed in 1..=count * times {
        // Shown if the test fails.
        println!("seed {seed}");
        test(seed);
    }
}

/// Sessions between two routers, as numbers of times each went down.
fn flaps(world: &World, node: usize) -> Vec<u64> {
    world.neighbors(node).iter().map(|each| each.flaps).collect()
}

/// What the counters of a router say of its neighbors' routes is what is in its tables.
fn check_counts(world: &World, node: usize) {
    let routes = world.routes(node);
    for neighbor in world.neighbors(node) {
        let count = routes.iter().filter(|route| route.neighbor == neighbor.name).count() as u64;
        assert_eq!(neighbor.accepted, count, "routes of {} at router {node}", neighbor.name);
    }
}
