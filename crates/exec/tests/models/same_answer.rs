//! Every model, with any number of threads, gives the serial model's answer: the same state, the same packets, the
//! same order (at least per shard).
//!
//! `PROPTEST_CASES=100000 cargo test -p thalweg-exec --release --test models any_plan` is the stress run.

use crate::toy::{Job, Outcome, SHARDS, Toy, jobs, merge, run, run_on};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_exec::{ModelKind, ModelOptions, Plan, Scope, VirtualCores};

use Scope::{Batches as B, Ordered as O, PerShard as S, Whole as W};

/// The shape of the packet router: validate, police and schedule, translate, route.
const ROUTER: [Scope; 6] = [B, O, W, S, B, B];

/// Packets by job, as (id, value) in order.
fn packets(jobs: &[Job]) -> Vec<(u64, Vec<(u64, u64)>)> {
    jobs.iter().map(|j| (j.sequence, j.packets.iter().map(|p| (p.id, p.value)).collect())).collect()
}

/// Packet ids by shard, in the order in which they reached the sink.
fn by_shard(jobs: &[Job]) -> Vec<Vec<u64>> {
    let mut shards = vec![Vec::new(); SHARDS];
    for packet in jobs.iter().flat_map(|job| &job.packets) {
        shards[packet.shard].push(packet.id);
    }
    shards
}

/// Runs under `options` and compares with the serial model's answer.
fn compare(scopes: &[Scope], input: &[Job], groups: usize, jitter: bool, options: &ModelOptions) {
    compare_toys(None, &Toy::new(scopes, groups, jitter), scopes, input, options, "");
}

/// The same on virtual cores.
pub(crate) fn compare_on(
    cores: Option<&Arc<VirtualCores>>,
    scopes: &[Scope],
    input: &[Job],
    groups: usize,
    options: &ModelOptions,
    name: &str,
) {
    compare_toys(cores, &Toy::new(scopes, groups, false), scopes, input, options, name);
}

fn compare_toys(
    cores: Option<&Arc<VirtualCores>>,
    toy: &Toy,
    scopes: &[Scope],
    input: &[Job],
    options: &ModelOptions,
    name: &str,
) {
    let oracle = Toy::new(scopes, 1, false);
    let expected = run(&oracle, input, &ModelOptions::new(ModelKind::Serial, 1));
    let context = format!("{name} {scopes:?}, {} groups, {options:?}", toy.shard_groups());
    let Outcome { report, delivered } = run_on(cores, toy, input, options, &context);

    assert_eq!(toy.state(), oracle.state(), "state: {context}");
    assert_eq!(by_shard(&delivered), by_shard(&expected.delivered), "order per shard: {context}");
    if options.kind != ModelKind::Farm || options.ordered {
        assert_eq!(packets(&delivered), packets(&expected.delivered), "total order: {context}");
    } else {
        let mut by_job: BTreeMap<u64, Vec<Job>> = BTreeMap::new();
        for job in delivered {
            by_job.entry(job.sequence).or_default().push(job);
        }
        let merged: Vec<Job> = by_job.into_values().map(merge).collect();
        assert_eq!(packets(&merged), packets(&expected.delivered), "packets: {context}");
    }
    let sum = |outcome: &[crate::toy::Counts]| {
        let sharded: u64 = outcome.iter().map(|counts| counts.packets_sharded).sum();
        (sharded, outcome.iter().map(|counts| counts.crossings).sum::<u64>())
    };
    assert_eq!(sum(&report.scratches), sum(&expected.report.scratches), "scratches: {context}");
    assert!(report.reorder_high_water <= options.reorder_jobs.max(options.tokens), "{context}");
}

#[test]
fn run_to_completion_every_size() {
    for workers in 1..=8 {
        for groups in 1..=8 {
            let input = jobs((workers * 10 + groups) as u64, 40, 5);
            let options = ModelOptions::new(ModelKind::RunToCompletion, workers);
            compare(&ROUTER, &input, groups, true, &options);
            let tight = ModelOptions { reorder_jobs: 1, ..options };
            compare(&[S, O, B, S], &input, groups, true, &tight);
        }
    }
}

#[test]
fn pipeline_every_size() {
    for workers in 1..=8 {
        for ring_jobs in 1..=3 {
            let input = jobs((workers * 10 + ring_jobs) as u64, 40, 5);
            let options = ModelOptions { ring_jobs, ..ModelOptions::new(ModelKind::Pipeline, workers) };
            compare(&ROUTER, &input, 4, true, &options);
        }
    }
}

#[test]
fn tokens_every_size() {
    for workers in 1..=8 {
        for tokens in [1, 2, 3, 5, 8, 13, 24] {
            for groups in [1, 3, 8] {
                let input = jobs((workers * 100 + tokens * 10 + groups) as u64, 40, 5);
                let options = ModelOptions { tokens, ..ModelOptions::new(ModelKind::Tokens, workers) };
                compare(&ROUTER, &input, groups, true, &options);
            }
        }
    }
}

#[test]
fn farm_every_size() {
    for workers in 1..=8 {
        for readers in 1..=3 {
            for groups in [1, 2, 5, 8] {
                for ordered in [false, true] {
                    let input = jobs((workers * 100 + readers * 10 + groups) as u64, 40, 5);
                    let options = ModelOptions {
                        readers,
                        ordered,
                        ring_jobs: 1 + groups % 3,
                        reorder_jobs: 1 + workers % 4,
                        ..ModelOptions::new(ModelKind::Farm, workers)
                    };
                    compare(&ROUTER, &input, groups, true, &options);
                }
            }
        }
    }
}

#[test]
fn odd_plans_under_every_model() {
    let plans: [&[Scope]; 9] =
        [&[], &[B], &[W], &[O], &[S], &[O, W], &[B, O, B, W, B], &[S, B, O, S, B, W, B], &[S, S, O, O]];
    for scopes in plans {
        for kind in ModelKind::ALL {
            for count in [0, 1, 5, 30] {
                let options = ModelOptions { readers: 2, ..ModelOptions::new(kind, 3) };
                compare(scopes, &jobs(count + 1, count, 3), 4, true, &options);
            }
        }
    }
}

fn any_scope() -> impl Strategy<Value = Scope> {
    prop_oneof![3 => Just(B), 1 => Just(W), 1 => Just(O), 2 => Just(S)]
}

fn any_options() -> impl Strategy<Value = ModelOptions> {
    (0..5usize, 1..=8usize, 1..=3usize, 1..=24usize, any::<bool>(), 1..=4usize, 1..=6usize).prop_map(
        |(kind, workers, readers, tokens, ordered, ring_jobs, reorder_jobs)| ModelOptions {
            readers,
            tokens,
            ordered,
            ring_jobs,
            reorder_jobs,
            ..ModelOptions::new(ModelKind::ALL[kind], workers)
        },
    )
}

proptest! {
    #[test]
    fn any_plan_any_options(
        scopes in prop::collection::vec(any_scope(), 0..8),
        options in any_options(),
        groups in 1..=8usize,
        seed in any::<u64>(),
        count in 0..60u64,
        crossing_one_in in 0..8u32,
        jitter in any::<bool>(),
    ) {
        compare(&scopes, &jobs(seed, count, crossing_one_in), groups, jitter, &options);
    }
}

#[test]
fn neighboring_batch_stages_run_batch_by_batch() {
    for kind in ModelKind::ALL {
        let toy = Toy::new(&[B, B, O, B], 1, false);
        let input = jobs(3, 40, 0);
        // One worker, so that the pipeline does not cut the row.
        let Outcome { delivered, .. } = run(&toy, &input, &ModelOptions::new(kind, 1));
        for job in delivered {
            let batches = job.packets.len().div_ceil(4);
            let row = (0..batches).flat_map(|batch| [(0, batch), (1, batch)]);
            let expected: Vec<_> = row.chain((0..batches).map(|batch| (3, batch))).collect();
            assert_eq!(job.log, expected, "{kind}");
        }
    }
}
