//! How fast a network converges, and what it takes: `cargo bench -p thalweg-sim -- [ROUTERS] [LINKS_EACH] [THREADS] [GRAIN_US]`.
//!
//! Each router is an AS of its own with one prefix, linked to routers before it, those with many links first; everything is
//! accepted and announced. Prints time and UPDATEs until quiet, the cost of one link's failure and of 20 s without
//! any event.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use thalweg_config::RouterConfig;
use thalweg_node::control::{BgpRequest, RibView};
use thalweg_sim::{Link, LinkState, Network, NetworkOptions, Random, Start};

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, (node / 250) as u8, (node % 250 + 1) as u8)
}

/// Links to routers before each, in proportion to the links these have.
fn preferential(random: &mut Random, routers: usize, each: usize) -> Vec<(usize, usize)> {
    let (mut links, mut ends) = (Vec::new(), vec![0]);
    for node in 1..routers {
        let mut chosen = BTreeSet::new();
        while chosen.len() < each.min(node) {
            chosen.insert(ends[random.below(ends.len())]);
        }
        for other in chosen {
            links.push((other, node));
            ends.extend([other, node]);
        }
    }
    links
}

fn config(node: usize, neighbors: &[usize]) -> String {
    let mut text = format!(
        "[bgp]\nas = {}\nrouter_id = \"{}\"\nlisten = []\ninstall = \"none\"\nimport = \"accept\"\nexport = \"accept\"\n\
         networks = [\"10.{}.{}.0/24\"]\n",
        64_512 + node,
        address(node),
        node / 256,
        node % 256
    );
    for neighbor in neighbors {
        text +=
            &format!("[[bgp.neighbor]]\naddress = \"{}\"\nas = {}\n", address(*neighbor), 64_512 + neighbor);
    }
    text
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096 / 1_000_000
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let number = |at: usize, default: usize| numbers.get(at).copied().unwrap_or(default);
    let (routers, each, threads) = (number(0, 200), number(1, 3), number(2, 1));
    let mut random = Random::new(1);
    let links = preferential(&mut random, routers, each);
    let mut network =
        Network::new(NetworkOptions { threads, grain_us: number(3, 1000) as u64, ..Default::default() })
            .expect("a network");
    for node in 0..routers {
        network.add_router(address(node));
    }
    let mut neighbors = vec![Vec::new(); routers];
    for &(a, b) in &links {
        let latency_us = 1000 * (1 + random.below(20) as u64);
        network.set_link(a, b, Link { latency_us, ..Link::default() });
        neighbors[a].push(b);
        neighbors[b].push(a);
    }
    for (node, neighbors) in neighbors.iter().enumerate() {
        let text = config(node, neighbors);
        let config = RouterConfig::from_text("router.toml", &text, Path::new("")).expect("a configuration");
        network.start(node, Arc::new(config.bgp.expect("[bgp]")), Start::default()).expect("a router");
    }
    println!(
        "{routers} routers, {} links, {threads} threads; {} MB before anything happens",
        links.len(),
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
    let (a, b) = links[links.len() / 2];
    let begun = Instant::now();
    network.set_link_state(a, b, LinkState::Down).expect("a link");
    network.run_until_quiet(5_000_000, 600_000_000).expect("a run");
    let updates = network.traffic().updates - traffic.updates;
    println!("{:8.3} s for the failure of a link: {updates} UPDATEs", begun.elapsed().as_secs_f64());
}
