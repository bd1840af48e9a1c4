//! Runs many seeds, each a network with its own faults or a router with its packets ([`thalweg_sim::seeds`]):
//! reports which break an invariant, the smallest plan that still does, and which events all of them met.

pub mod render;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use thalweg_sim::seeds::{Case, Coverage, Moment, Side, Verdict, Violation};

use crate::cpu_time::process_cpu_s;
use crate::stats::Summary;

/// One in this many seeds is run again with two threads, and must send the same bytes at the same times.
const AGAIN_EVERY: u64 = 100;
/// Seeds whose durations are kept.
const TIMES: usize = 100_000;

/// Which seeds to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    pub first: u64,
    /// The most seeds.
    pub count: u64,
    /// What each seed draws.
    pub sides: Vec<Side>,
    /// The longest time.
    pub time: Option<Duration>,
    /// Threads, each with seeds of its own.
    pub threads: usize,
    /// The hunt ends after this many failures.
    pub failures: usize,
    /// Plans to try in order to shrink a failing one; 0: do not shrink.
    pub tries: usize,
}

/// A seed that broke an invariant.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub seed: u64,
    pub side: &'static str,
    pub invariant: String,
    /// The router that broke it, if it was one.
    pub router: Option<usize>,
    pub what: String,
    /// Size of the plan that the seed draws: routers and events, or ports and packets.
    pub drawn: (usize, usize),
    /// Size of the smallest plan that fails in the same way.
    pub shrunk: (usize, usize),
    /// Plans tried to shrink it.
    pub tried: usize,
    pub scenario: String,
    /// What happened in the smallest plan.
    #[serde(skip)]
    pub moments: Vec<(u64, Moment)>,
}

/// The results of a hunt.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub first: u64,
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds that were run again with two threads.
    pub again: u64,
    pub threads: usize,
    /// Elapsed seconds.
    pub elapsed_s: f64,
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// Virtual time of all networks together, in seconds.
    pub virtual_s: f64,
    pub updates: u64,
    pub packets: u64,
    /// Milliseconds per plan.
    pub seed_ms: Option<Summary>,
    /// The number of seeds that broke each invariant.
    pub broken: BTreeMap<String, u64>,
    pub failures: Vec<Failure>,
    /// The number of seeds that met each event.
    pub coverage: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Found {
    coverage: Coverage,
    broken: Vec<(u64, Side, Violation)>,
    virtual_us: u64,
    updates: u64,
    packets: u64,
    again: u64,
    times_ms: Vec<f64>,
}

/// Runs seeds. Calls `progress` with the seeds done and the failures so far.
pub fn hunt(options: &Options, progress: &(dyn Fn(u64, usize) + Sync)) -> Outcome {
    let (begun, cpu_begun_s) = (Instant::now(), process_cpu_s());
    let (next, done, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let found = Mutex::new(Found::default());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let late = options.time.is_some_and(|time| begun.elapsed() > time);
            if number >= options.count || late || is_over.load(Ordering::Relaxed) {
                return;
            }
            let mut failures = 0;
            for side in &options.sides {
                let seed = options.first.wrapping_add(number);
                failures = play(*side, seed, number % AGAIN_EVERY == 0, &found);
            }
            is_over.fetch_or(failures >= options.failures, Ordering::Relaxed);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, failures);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let (elapsed_s, cpu_s) = (begun.elapsed().as_secs_f64(), process_cpu_s() - cpu_begun_s);
    let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    found.broken.sort_unstable_by_key(|(seed, side, _)| (*seed, side.name()));
    let mut broken: BTreeMap<String, u64> = BTreeMap::new();
    for (.., violation) in &found.broken {
        *broken.entry(violation.invariant.to_owned()).or_default() += 1;
    }
    Outcome {
        first: options.first,
        seeds: done.into_inner(),
        again: found.again,
        threads: options.threads,
        elapsed_s,
        cpu_s,
        virtual_s: found.virtual_us as f64 / 1e6,
        updates: found.updates,
        packets: found.packets,
        seed_ms: Summary::of(&found.times_ms),
        broken,
        failures: found.broken.iter().map(|broken| failure(broken, options)).collect(),
        coverage: found.coverage.items().map(|(name, seeds)| (name.to_owned(), seeds)).collect(),
    }
}

/// Runs what a seed draws; returns the number of failures so far.
fn play(side: Side, seed: u64, again: bool, found: &Mutex<Found>) -> usize {
    let case = Case::draw(side, seed);
    let begun = Instant::now();
    let trial = case.run(1, None);
    let took_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut verdict = trial.verdict;
    if again && verdict == Verdict::Held {
        let other = case.run(2, None);
        if other.digest != trial.digest {
            let text = format!("{:032x} with one, {:032x} with two", trial.digest, other.digest);
            let invariant = "the same bytes with any number of threads";
            verdict = Verdict::Broken(Violation { invariant, router: None, at_us: trial.virtual_us, text });
        }
    }
    let mut found = found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    found.coverage.add(&trial.coverage);
    found.virtual_us += trial.virtual_us;
    found.updates += trial.updates;
    found.packets += trial.packets;
    found.again += u64::from(again);
    if found.times_ms.len() < TIMES {
        found.times_ms.push(took_ms);
    }
    if let Verdict::Broken(violation) = verdict {
        found.broken.push((seed, side, violation));
    }
    found.broken.len()
}

fn failure((seed, side, violation): &(u64, Side, Violation), options: &Options) -> Failure {
    let drawn = Case::draw(*side, *seed);
    let size = |case: &Case| (case.places(), case.events());
    let shrunk = if options.tries > 0 { drawn.shrink(options.tries) } else { None };
    let (case, violation, tried) = match &shrunk {
        Some(shrunk) => (&shrunk.plan, &shrunk.violation, shrunk.tried),
        None => (&drawn, violation, 0),
    };
    let (_, moments) = replay(case);
    Failure {
        seed: *seed,
        side: side.name(),
        invariant: violation.invariant.to_owned(),
        router: violation.router,
        what: violation.to_string(),
        drawn: size(&drawn),
        shrunk: size(case),
        tried,
        scenario: format!("# {violation}\n{}", case.to_text()),
        moments,
    }
}

/// Runs a plan; returns the verdict and what happened when.
pub fn replay(case: &Case) -> (Verdict, Vec<(u64, Moment)>) {
    let mut moments = Vec::new();
    let trial = case.run(1, Some(&mut |at_us, moment| moments.push((at_us, moment))));
    (trial.verdict, moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(count: u64) -> Options {
        let sides = vec![Side::Bgp, Side::Packets];
        Options { first: 0, count, sides, time: None, threads: 2, failures: 3, tries: 200 }
    }

    #[test]
    fn seeds_are_played_once_each_and_counted() {
        let calls = AtomicU64::new(0);
        let outcome = hunt(&options(30), &|_, _| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!((outcome.seeds, outcome.again, calls.into_inner()), (30, 2, 30));
        assert!(outcome.failures.is_empty(), "{:?}", outcome.broken);
        assert_eq!(outcome.coverage["log: started"], 30);
        assert!(outcome.virtual_s > 30.0 && outcome.updates > 100 && outcome.packets > 1000);
        let alone = hunt(&Options { threads: 1, ..options(30) }, &|_, _| {});
        assert_eq!(alone.coverage, outcome.coverage);
        assert_eq!((alone.updates, alone.packets), (outcome.updates, outcome.packets));
    }

    #[test]
    fn a_replay_says_what_happened() {
        let Case::Bgp(plan) = Case::draw(Side::Bgp, 3) else { panic!("not a network") };
        let (verdict, moments) = replay(&Case::Bgp(plan.clone()));
        assert_eq!(verdict, Verdict::Held);
        let checks = moments.iter().filter(|(_, moment)| *moment == Moment::Checked).count();
        assert_eq!(checks, 1 + plan.rounds.len());
        assert!(moments.is_sorted_by_key(|(at_us, _)| *at_us));
        let svg = render::diagram("seed 3", 6, &moments);
        assert!(svg.starts_with("<svg") && svg.contains("up: "), "{svg}");
    }
}
