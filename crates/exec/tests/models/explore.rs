//! Thousands of schedules on virtual cores with random costs: all must give the same answer. A seed names a
//! schedule that breaks a promise, and replays it.
//!
//! `THALWEG_SCHEDULES=100000 cargo test -p thalweg-exec --test models explore::` tries that many of each model.

use crate::same_answer::compare_on;
use crate::toy::{Collect, Job, Jobs, Toy, jobs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thalweg_base::mix64;
use thalweg_exec::{ExecError, ModelKind, ModelOptions, Scope, VirtualCores};

use Scope::{Batches as B, Ordered as O, PerShard as S, Whole as W};

/// Schedules of each model, unless the environment says otherwise.
const SCHEDULES: u64 = 1500;

fn schedules() -> u64 {
    std::env::var("THALWEG_SCHEDULES").ok().map_or(SCHEDULES, |n| n.parse().unwrap())
}

/// Short queues and few jobs: errors between neighbors show within a few jobs.
fn options(kind: ModelKind, seed: u64) -> (ModelOptions, usize) {
    let of = |salt: u64, count: u64| usize::try_from(mix64(seed ^ (salt << 40)) % count).unwrap();
    let workers = 1 + of(1, 4);
    let options = ModelOptions {
        readers: 1 + of(2, 2),
        tokens: 1 + of(3, 5),
        ordered: of(4, 2) == 0,
        ring_jobs: 1 + of(5, 2),
        reorder_jobs: 1 + of(6, 3),
        ..ModelOptions::new(kind, workers)
    };
    (options, 1 + of(7, workers as u64 + 1))
}

fn explore(kind: ModelKind) {
    let plans: [&[Scope]; 4] = [&[O, W, S, B], &[B, S, O], &[O, S, S], &[S, W, S, B]];
    for seed in 0..schedules() {
        let scopes = plans[usize::try_from(seed).unwrap() % plans.len()];
        let (options, cores) = options(kind, seed);
        // Pipelines use the first eight to measure.
        let is_measured = matches!(kind, ModelKind::Pipeline | ModelKind::Replicated);
        let count = if is_measured { 13 } else { 6 };
        let cores = VirtualCores::exploring(cores, seed);
        compare_on(Some(&cores), scopes, &jobs(seed + 1, count, 4), 2, &options, &format!("seed {seed}"));
    }
}

#[test]
fn serial_gives_the_same_answer_under_every_schedule() {
    explore(ModelKind::Serial);
}

#[test]
fn run_to_completion_gives_the_same_answer_under_every_schedule() {
    explore(ModelKind::RunToCompletion);
}

#[test]
fn pipeline_gives_the_same_answer_under_every_schedule() {
    explore(ModelKind::Pipeline);
}

#[test]
fn a_replicated_pipeline_gives_the_same_answer_under_every_schedule() {
    explore(ModelKind::Replicated);
}

#[test]
fn tokens_give_the_same_answer_under_every_schedule() {
    explore(ModelKind::Tokens);
}

#[test]
fn farm_gives_the_same_answer_under_every_schedule() {
    explore(ModelKind::Farm);
}

#[test]
fn chain_gives_the_same_answer_under_every_schedule() {
    explore(ModelKind::Chain);
}

/// Runs a plan whose parallel stage remembers the last job in it, as if its scope were `Ordered`. Returns the jobs
/// in the order in which they came there.
fn order_without_a_promise(seed: u64) -> Vec<u64> {
    let cores = VirtualCores::exploring(3, seed);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut toy = Toy::new(&[W], 1, false);
    let log = Arc::clone(&seen);
    toy.hook = Some(Box::new(move |_, sequence, _| log.lock().unwrap().push(sequence)));
    run_on(&cores, &toy, &jobs(1, 6, 0), &ModelOptions::new(ModelKind::RunToCompletion, 3)).unwrap();
    seen.lock().unwrap().clone()
}

fn run_on(
    cores: &Arc<VirtualCores>,
    toy: &Toy,
    input: &[Job],
    options: &ModelOptions,
) -> Result<Vec<Job>, ExecError> {
    let mut source = Jobs { jobs: input.iter().cloned(), before: |_| {} };
    let mut sink = Collect { jobs: Vec::new(), before: |_| {} };
    thalweg_exec::run_on(Some(cores), toy, &mut source, &mut sink, options)?;
    Ok(sink.jobs)
}

/// A stage with ordered state and a wrong scope: the explorer finds a schedule that shows it, and the seed replays
/// it.
#[test]
fn a_planted_fault_is_found_and_its_seed_replays_it() {
    let in_order: Vec<u64> = (0..6).collect();
    let seed = (0..100).find(|&seed| order_without_a_promise(seed) != in_order);
    let seed = seed.expect("a hundred schedules, and never two jobs out of order");
    let order = order_without_a_promise(seed);
    assert_ne!(order, in_order, "seed {seed} does not replay what it showed");
    for _ in 0..20 {
        assert_eq!(order_without_a_promise(seed), order, "seed {seed} shows something else");
    }
    // With the right scope none of these schedules shows an error.
    for seed in 0..100 {
        let cores = VirtualCores::exploring(3, seed);
        let toy = Toy::new(&[O], 1, false);
        run_on(&cores, &toy, &jobs(1, 6, 0), &ModelOptions::new(ModelKind::RunToCompletion, 3)).unwrap();
    }
}

/// A stage that passes its turn on before its work is done: the ordered state panics, and the seed replays it.
#[test]
fn a_stage_that_lets_others_in_too_early_is_found() {
    let found = (0..200).find_map(|seed| {
        let cores = VirtualCores::exploring(2, seed);
        let mut toy = Toy::new(&[W], 1, false);
        let (inside, at_once) = (AtomicU64::new(0), Arc::clone(&cores));
        toy.hook = Some(Box::new(move |_, _, _| {
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "two jobs in a stage for one");
            at_once.shake();
            inside.fetch_sub(1, Relaxed);
        }));
        let options = ModelOptions::new(ModelKind::RunToCompletion, 2);
        run_on(&cores, &toy, &jobs(1, 6, 0), &options).err().map(|error| (seed, error))
    });
    let (seed, error) = found.expect("two hundred schedules, and never two jobs at once");
    assert!(matches!(error, ExecError::Panicked { .. }), "seed {seed}: {error}");
}

/// The same seed gives the same schedule, to the nanosecond.
#[test]
fn a_seed_is_a_schedule() {
    for kind in ModelKind::ALL {
        for seed in 0..20 {
            let times: Vec<u64> = (0..3)
                .map(|_| {
                    let cores = VirtualCores::exploring(2, seed);
                    let toy = Toy::new(&[O, W, S, B], 2, false);
                    run_on(&cores, &toy, &jobs(seed + 1, 12, 4), &options(kind, seed).0).unwrap();
                    cores.now_ns()
                })
                .collect();
            assert!(times.iter().all(|time| *time == times[0]), "{kind}, seed {seed}: {times:?}");
        }
    }
}
