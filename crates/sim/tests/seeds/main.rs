//! Seeds: the first ones hold and meet what there is to meet; plans survive their files; what fails is shrunk.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_sim::seeds::{
    Coverage, Event, Fault, Plan, PlanError, Relationship, Verdict, Violation, run, shrink,
};

/// Seeds that are played; THALWEG_SEEDS says another number.
const SEEDS: u64 = 2000;

/// What so many seeds meet; a line for each. A change that makes one of these impossible makes a hole in the net.
const MET: &str = include_str!("met.txt");

struct Played {
    coverage: Coverage,
    broken: Option<(u64, Violation)>,
}

/// Plays seeds on all cores until one fails.
fn play(count: u64) -> Played {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let played = Mutex::new(Played { coverage: Coverage::default(), broken: None });
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count || is_over.load(Ordering::Relaxed) {
                return;
            }
            let trial = run(&Plan::draw(seed), 1, None);
            let mut played = played.lock().expect("nobody panics");
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
    played.into_inner().expect("nobody panics")
}

#[test]
fn the_first_seeds_hold() {
    let count = std::env::var("THALWEG_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    let played = play(count);
    if let Some((seed, violation)) = played.broken {
        // `cargo xtask planted` reads this line.
        println!("seed {seed} broke: {}", violation.invariant);
        panic!("seed {seed}: {violation}\nAgain: thalweg lab seeds --seed {seed} --shrink");
    }
    let missed: Vec<&str> = MET.lines().filter(|name| played.coverage.of(name) == 0).collect();
    assert!(count < SEEDS || missed.is_empty(), "no seed met {missed:#?}");
}

/// Small networks in which something failed once.
#[test]
fn kept_scenarios_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a file");
        let plan = Plan::from_text(&text).unwrap_or_else(|error| panic!("{:?}: {error}", entry.path()));
        let verdict = run(&plan, 1, None).verdict;
        assert_eq!(verdict, Verdict::Held, "{:?}", entry.path());
        count += 1;
    }
    assert!(count >= 2, "{count} scenarios");
}

#[test]
fn plans_survive_their_files() {
    for seed in 0..300 {
        let plan = Plan::draw(seed);
        let text = plan.to_text();
        assert_eq!(Plan::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), plan);
    }
}

/// The same bytes at the same times, again and with two threads.
#[test]
fn a_trial_follows_from_its_plan() {
    for plan in (0..40).map(Plan::draw) {
        let digests = [1, 1, 2].map(|threads| run(&plan, threads, None).digest);
        assert!(digests[0] != 0 && digests.iter().all(|digest| *digest == digests[0]), "seed {}", plan.seed);
    }
}

#[test]
fn files_that_make_no_sense_are_refused_with_the_place() {
    let text = Plan::draw(1).to_text();
    let broken = text.replace("latency_us", "latency");
    let error = Plan::from_text(&broken).expect_err("an unknown key").to_string();
    assert!(error.contains("latency") && error.contains("line"), "{error}");
    let of = |change: &dyn Fn(&mut Plan)| {
        let mut plan = Plan::draw(1);
        change(&mut plan);
        match Plan::from_text(&plan.to_text()) {
            Err(PlanError::Meaning(why)) => why,
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
            plan.links.push(thalweg_sim::seeds::LinkPlan { a, b, is, ..Plan::draw(1).links[0] });
        }
        plan.rounds.clear();
    });
    assert!(circle.contains("in a circle"), "{circle}");
}

/// Two linked routers of one AS have an internal session, of which the oracle knows nothing: that plan fails, and what is
/// left of it is small.
#[test]
fn what_fails_is_shrunk() {
    let mut plan = Plan::draw(7);
    let link = plan.links[0];
    plan.routers[link.b].site_of = Some(link.a);
    plan.routers[link.a].prefixes = 9;
    let before = run(&plan, 1, None).verdict;
    let Verdict::Broken(violation) = before else { panic!("it holds") };
    let shrunk = shrink(&plan, 2000).expect("it fails");
    assert_eq!(shrunk.violation.invariant, violation.invariant);
    assert!(shrunk.plan.routers.len() <= 3 && shrunk.plan.events() == 0, "{}", shrunk.plan.to_text());
    assert_eq!(run(&shrunk.plan, 1, None).verdict, Verdict::Broken(shrunk.violation));
    assert!(shrink(&Plan::draw(0), 10).is_none(), "what holds is not shrunk");
}
