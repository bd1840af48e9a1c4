//! Seeds: the first ones hold and meet every expected event; plans survive being written to files; failures are
//! shrunk.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_sim::seeds::bgp::{Event, Fault, LinkPlan, Plan, Relationship};
use thalweg_sim::seeds::{Case, Coverage, PlanError, Side, Verdict, Violation, packets};

/// The number of seeds to run, of networks and of routers with packets; THALWEG_SEEDS sets another.
const SEEDS: u64 = 2000;
const SEEDS_OF_PACKETS: u64 = 1000;

/// The events that this many seeds meet, one per line. If a change makes one of these impossible, the seeds no
/// longer test it.
const MET: &str = include_str!("met.txt");
const MET_BY_PACKETS: &str = include_str!("met-by-packets.txt");

struct Played {
    coverage: Coverage,
    broken: Option<(u64, Violation)>,
}

/// Runs seeds on all cores until one fails.
fn play(side: Side, count: u64) -> Played {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let played = Mutex::new(Played { coverage: Coverage::default(), broken: None });
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count || is_over.load(Ordering::Relaxed) {
                return;
            }
            let trial = Case::draw(side, seed).run(1, None);
            let mut played = played.lock().expect("no thread panics");
            played.coverage.add(&trial.coverage);
            if let Verdict::Broken(violation) = trial.verdict {
                is_over.store(true, Ordering::Relaxed);
                if played.broken.as_ref().is_none_or(|(first, _)| seed < *first) {
                    played.broken = Some((seed, violation));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    played.into_inner().expect("no thread panics")
}

/// Checks that the first seeds of a side hold, and meet the same events as before.
fn hold(side: Side, usual: u64, met: &str) {
    let count = std::env::var("THALWEG_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual);
    let played = play(side, count);
    let side = side.name();
    if let Some((seed, violation)) = played.broken {
        // `cargo xtask planted` reads this line.
        println!("seed {seed} broke: {}", violation.invariant);
        panic!("seed {seed}: {violation}\nAgain: thalweg lab seeds --side {side} --seed {seed} --shrink");
    }
    let missed: Vec<&str> = met.lines().filter(|name| played.coverage.of(name) == 0).collect();
    assert!(count < usual || missed.is_empty(), "no seed met {missed:#?}");
}

#[test]
fn the_first_seeds_hold() {
    hold(Side::Bgp, SEEDS, MET);
}

#[test]
fn the_first_seeds_of_packets_hold() {
    hold(Side::Packets, SEEDS_OF_PACKETS, MET_BY_PACKETS);
}

/// Small networks that once showed a fault.
#[test]
fn kept_scenarios_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a file");
        let case = Case::from_text(&text).unwrap_or_else(|error| panic!("{:?}: {error}", entry.path()));
        let verdict = case.run(1, None).verdict;
        assert_eq!(verdict, Verdict::Held, "{:?}", entry.path());
        count += 1;
    }
    assert!(count >= 2, "{count} scenarios");
}

#[test]
fn plans_survive_their_files() {
    for (side, seed) in
        [Side::Bgp, Side::Packets].into_iter().flat_map(|side| (0..150).map(move |seed| (side, seed)))
    {
        let case = Case::draw(side, seed);
        let text = case.to_text();
        assert_eq!(Case::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), case);
    }
}

/// The same plan gives the same bytes at the same times, run again and run with two threads.
#[test]
fn a_trial_follows_from_its_plan() {
    for (side, seed) in
        [Side::Bgp, Side::Packets].into_iter().flat_map(|side| (0..30).map(move |seed| (side, seed)))
    {
        let case = Case::draw(side, seed);
        let digests = [1, 1, 2].map(|threads| case.run(threads, None).digest);
        assert!(
            digests[0] != 0 && digests.iter().all(|digest| *digest == digests[0]),
            "seed {seed}, {side:?}"
        );
    }
}

#[test]
fn files_that_make_no_sense_are_refused_with_the_place() {
    let text = Case::draw(Side::Bgp, 1).to_text();
    let broken = text.replace("latency_us", "latency");
    let error = Case::from_text(&broken).expect_err("an unknown key").to_string();
    assert!(error.contains("latency") && error.contains("line"), "{error}");
    let of = |change: &dyn Fn(&mut Plan)| {
        let mut plan = Plan::draw(1);
        change(&mut plan);
        match Case::from_text(&Case::Bgp(plan).to_text()) {
            Err(PlanError::Bgp(fault)) => fault.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(of(&|plan| plan.links[0].b = 99).contains("link 0 is between routers"));
    assert!(of(&|plan| plan.links.push(plan.links[0])).contains("is the second between"));
    let far = Event { after_ms: 1, what: Fault::Down(77) };
    assert!(of(&|plan| plan.rounds.push(vec![far])).contains("link down: link 77"));
    let circle = of(&|plan| {
        plan.links.truncate(0);
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let is = Some(Relationship::Provider);
            plan.links.push(LinkPlan { a, b, is, ..Plan::draw(1).links[0] });
        }
        plan.rounds.clear();
    });
    assert!(circle.contains("in a circle"), "{circle}");
    let mut plan = packets::Plan::draw(1);
    let what = packets::Act::Reload(9);
    plan.steps.push(packets::Step { after_ms: 0, what });
    let nowhere = Case::from_text(&Case::Packets(plan).to_text())
        .expect_err("more than there are is an error")
        .to_string();
    assert!(nowhere.contains("no configuration 9"), "{nowhere}");
}

/// Two linked routers of one AS have an internal session, which the oracle does not know: that plan fails, and
/// shrinking leaves little of it.
#[test]
fn what_fails_is_shrunk() {
    let mut plan = Plan::draw(7);
    let link = plan.links[0];
    plan.routers[link.b].site_of = Some(link.a);
    plan.routers[link.a].prefixes = 9;
    let case = Case::Bgp(plan);
    let before = case.run(1, None).verdict;
    let Verdict::Broken(violation) = before else { panic!("the plan breaks no invariant") };
    let shrunk = case.shrink(2000).expect("the plan fails");
    assert_eq!(shrunk.violation.invariant, violation.invariant);
    assert!(shrunk.plan.places() <= 3 && shrunk.plan.events() == 0, "{}", shrunk.plan.to_text());
    assert_eq!(shrunk.plan.run(1, None).verdict, Verdict::Broken(shrunk.violation));
    assert!(Case::draw(Side::Bgp, 0).shrink(10).is_none(), "a plan that holds is not shrunk");
}
