//! The same seed gives the same bytes at the same times.

use std::hash::{DefaultHasher, Hash, Hasher};

use thalweg_sim::{Interleaving, LinkState, NetworkOptions, Random};

use crate::world::World;
use crate::{networks, router};

/// The links: each router has links to three routers before it, so some routers have many.
fn links(random: &mut Random, routers: usize) -> Vec<(usize, usize)> {
    let mut links = Vec::new();
    for node in 1..routers {
        let mut others: Vec<usize> = (0..node).collect();
        random.shuffle(&mut others);
        links.extend(others.into_iter().take(3).map(|other| (other, node)));
    }
    links
}

/// The digest, the number of sent UPDATEs, and a hash of all tables.
type Outcome = (u128, u64, u64);

/// Converges, loses some links and a router, gets them back, and returns the outcome.
fn run(seed: u64, threads: usize, interleaving: Interleaving, shares_attributes: bool) -> Outcome {
    const ROUTERS: usize = 24;
    let asn = |node: usize| 65_001 + node as u32;
    let links = links(&mut Random::new(7), ROUTERS);
    let neighbors = |node: usize| {
        let others = links.iter().filter(move |(a, b)| *a == node || *b == node);
        others.map(move |(a, b)| a + b - node).map(move |other| (other, asn(other), "")).collect::<Vec<_>>()
    };
    let config = |node: usize| router(node, asn(node), &networks(node, 3), "", &neighbors(node));
    let configs: Vec<String> = (0..ROUTERS).map(config).collect();
    let options = NetworkOptions { seed, threads, interleaving, shares_attributes, ..Default::default() };
    let mut world = World::with_options(options, &configs, &links);
    world.run_s(10);
    let (a, b) = links[5];
    world.set_link(a, b, LinkState::Down);
    world.stop(3);
    world.run_s(3);
    world.set_link(a, b, LinkState::Up);
    world.start(3);
    world.run_s(10);
    let quiet = world.network.run_until_quiet(2_000_000, 60_000_000).expect("a run");
    assert!(quiet.is_quiet, "seed {seed}: {quiet:?}");
    let mut tables = DefaultHasher::new();
    (0..ROUTERS).for_each(|node| world.table(node).hash(&mut tables));
    (world.network.digest(), world.network.traffic().updates, tables.finish())
}

#[test]
fn the_digest_is_the_same_for_any_number_of_threads() {
    for (seed, interleaving) in [(1, Interleaving::Fixed), (2, Interleaving::Random)] {
        let serial = run(seed, 1, interleaving, true);
        assert!(serial.1 > 1000, "{} UPDATEs", serial.1);
        for threads in [1, 2, 4] {
            assert_eq!(run(seed, threads, interleaving, true), serial, "seed {seed}, {threads} threads");
        }
    }
}

/// Another seed changes times but no table. Polls that the simulator skips would have found nothing: without
/// skipping, the outcome is the same.
#[test]
fn only_what_should_matter_matters() {
    let fixed = run(1, 1, Interleaving::Fixed, true);
    let other = run(3, 1, Interleaving::Fixed, true);
    assert_ne!(other.0, fixed.0);
    assert_eq!(other.2, fixed.2);
    assert_eq!(run(1, 2, Interleaving::Fixed, false), fixed);
}
