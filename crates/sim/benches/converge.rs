//! How fast a network converges, and what it takes: `cargo bench -p thalweg-sim -- [ROUTERS] [LINKS_EACH] [THREADS] [GRAIN_US]`.
//!
//! Each router is an AS of its own with one prefix, linked to routers before it, those with many links first; everything is
//! accepted and announced. Prints time and UPDATEs until quiet, the cost of one link's failure and of 20 s without
//! any event.

use std::time::Instant;

use thalweg_node::control::{BgpRequest, RibView};
use thalweg_sim::policy::{Policy, Timers};
use thalweg_sim::prefixes::PrefixPlan;
use thalweg_sim::topology::{Growth, grown};
use thalweg_sim::{LinkState, NetworkOptions, Scenario, Simulation};

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096 / 1_000_000
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let number = |at: usize, default: usize| numbers.get(at).copied().unwrap_or(default);
    let (routers, each, threads) = (number(0, 200), number(1, 3), number(2, 1));
    let graph = grown(Growth::Preferential { links: each }, routers, 1).expect("a graph");
    let (links, middle) = (graph.links(), routers / 2);
    let (neighbor, ..) = graph.links_of(middle).next().expect("a neighbor");
    let (policy, prefixes) = (Policy::Everything, PrefixPlan::Each(1));
    let scenario = Scenario {
        graph,
        policy,
        timers: Timers::default(),
        keys: String::new(),
        configurations: Default::default(),
        prefixes,
        seed: 1,
    };
    let options = NetworkOptions { threads, grain_us: number(3, 1000) as u64, ..Default::default() };
    let mut simulation = Simulation::new(scenario, options).expect("a network");
    simulation.start(|_, _| None).expect("routers");
    let network = &mut simulation.network;
    println!(
        "{routers} routers, {links} links, {threads} threads; {} MB before anything happens",
        resident_mb()
    );
    let begun = Instant::now();
    let quiet = network.run_until_quiet(5_000_000, 600_000_000).expect("a run");
    let (took, traffic) = (begun.elapsed().as_secs_f64(), network.traffic());
    let paths = |node| network.ask::<RibView>(node, &BgpRequest::Rib).expect("a view")[0].paths.ipv4;
    let held: u64 = (0..routers).map(paths).sum();
    println!(
        "{took:8.3} s until quiet ({quiet:?}): {} UPDATEs, {:.0} a second, {held} paths, {} MB, digest {:032x}",
        traffic.updates,
        traffic.updates as f64 / took,
        resident_mb(),
        network.digest()
    );
    let begun = Instant::now();
    network.run_us(20_000_000).expect("a run");
    println!("{:8.3} s for 20 s without an event", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    network.set_link_state(middle, neighbor, LinkState::Down).expect("a link");
    network.run_until_quiet(5_000_000, 600_000_000).expect("a run");
    let updates = network.traffic().updates - traffic.updates;
    println!("{:8.3} s for the failure of a link: {updates} UPDATEs", begun.elapsed().as_secs_f64());
}
