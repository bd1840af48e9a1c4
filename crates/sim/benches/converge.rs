//! How fast a network converges, and the cost: `cargo bench -p thalweg-sim --bench converge -- [ROUTERS]
//! [LINKS_EACH] [THREADS] [GRAIN_US] [relationships]`.
//!
//! Each router is an AS with one prefix, and has links to earlier routers, preferably to those with many links.
//! Policies accept and announce everything, or what relationships permit. Prints time and UPDATEs until quiet,
//! and the cost of one link's failure and of 20 s without events. With one thread, times are processor time, so
//! other load on the machine does not matter; with more, they are elapsed time.

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

/// Processor seconds of this thread; with several threads, elapsed seconds.
fn seconds(threads: usize, begun: Instant) -> f64 {
    let worked = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let worked_ns: Option<f64> = worked.split(' ').next().and_then(|ns| ns.parse().ok());
    worked_ns.filter(|_| threads == 1).map_or_else(|| begun.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn main() {
    thalweg_sim::restart_with_huge_pages();
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let number = |at: usize, default: usize| numbers.get(at).copied().unwrap_or(default);
    let (routers, each, threads) = (number(0, 200), number(1, 3), number(2, 1));
    let graph = grown(Growth::Preferential { links: each }, routers, 1).expect("a graph");
    let (links, middle) = (graph.links(), routers / 2);
    let (neighbor, ..) = graph.links_of(middle).next().expect("a neighbor");
    let is_about_relationships = std::env::args().any(|arg| arg == "relationships");
    let policy = if is_about_relationships { Policy::Relationships } else { Policy::Everything };
    let prefixes = PrefixPlan::Each(1);
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
    let idle = resident_mb();
    println!("{routers} routers, {links} links, {threads} threads; {idle} MB before anything happens");
    let clock = Instant::now();
    let now_s = || seconds(threads, clock);
    let begun_s = now_s();
    let quiet = network.run_until_quiet(5_000_000, 600_000_000).expect("a run");
    let (took, traffic) = (now_s() - begun_s, network.traffic());
    let paths = |node| network.ask::<RibView>(node, &BgpRequest::Rib).expect("a view")[0].paths.ipv4;
    let held: u64 = (0..routers).map(paths).sum();
    let resident = resident_mb();
    println!(
        "{took:8.3} s until quiet ({quiet:?}): {} UPDATEs, {:.0} a second, {held} paths, {} MB, digest {:032x}",
        traffic.updates,
        traffic.updates as f64 / took,
        resident,
        network.digest()
    );
    println!(
        "{:8.1} kB for an idle router, {:.0} B for a path",
        idle as f64 * 1000.0 / routers as f64,
        (resident - idle) as f64 * 1e6 / held as f64
    );
    let begun_s = now_s();
    network.run_us(20_000_000).expect("a run");
    println!("{:8.3} s for 20 s without an event", now_s() - begun_s);
    let begun_s = now_s();
    network.set_link_state(middle, neighbor, LinkState::Down).expect("a link");
    network.run_until_quiet(5_000_000, 600_000_000).expect("a run");
    let updates = network.traffic().updates - traffic.updates;
    println!("{:8.3} s for the failure of a link: {updates} UPDATEs", now_s() - begun_s);
}
