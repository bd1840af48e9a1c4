//! Networks of speakers on simulated links and virtual time: whatever happened before, every router ends with
//! exactly the routes that the protocol requires.
//!
//! [`graph`] has many routers and an oracle for every route; the other modules have small networks for one
//! subject each; [`world`] drives the simulator. Everything follows from a seed, which a failing test names. To
//! see what a router sent, tests look into the RIB of the router that received it.

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

/// Common configuration of the small networks' routers: short timers, and policies that accept everything in both
/// directions.
const SHORT_TIMERS: &str = "listen = []\ninstall = \"none\"\nimport = \"accept\"\nexport = \"accept\"\n\
    hold_time_s = 9\nconnect_retry_s = 3\nidle_hold_max_s = 8\n";

/// A router's configuration. `more` goes into `[bgp]`; a neighbor is its number, its AS and its own keys.
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

/// Prefixes that a router originates.
fn networks(node: usize, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("10.{node}.{}.{}/30", n / 64, n % 64 * 4)).collect()
}

/// Runs a test with several seeds; THALWEG_SEEDS=N multiplies their number by N.
fn with_seeds(count: u64, test: impl Fn(u64)) {
    let times = std::env::var("THALWEG_SEEDS").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    for seed in 1..=count * times {
        // Printed only if the test fails.
        println!("seed {seed}");
        test(seed);
    }
}

/// For each of a router's sessions, how many times it went down.
fn flaps(world: &World, node: usize) -> Vec<u64> {
    world.neighbors(node).iter().map(|each| each.flaps).collect()
}

/// Checks that a router's counters of its neighbors' routes agree with its tables.
fn check_counts(world: &World, node: usize) {
    let routes = world.routes(node);
    for neighbor in world.neighbors(node) {
        let count = routes.iter().filter(|route| route.neighbor == neighbor.name).count() as u64;
        assert_eq!(neighbor.accepted, count, "routes of {} at router {node}", neighbor.name);
    }
}
