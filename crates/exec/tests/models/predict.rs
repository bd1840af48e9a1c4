//! Laws that hold exactly on virtual time: the duration of a model's run, from the costs of its stages.

use std::time::Duration;
use thalweg_exec::{
    Costs, HandOver, JobCost, MachineCosts, ModelKind, ModelOptions, RunReport, Scope, imitate,
};

use Scope::{Batches as B, Ordered as O, PerShard as S, Whole as W};

/// `jobs` jobs of 100 packets with the given costs of stages.
fn costs(jobs: usize, stages: &[(Scope, u64)]) -> Costs {
    let job =
        JobCost { packets: 100, stages_ns: stages.iter().map(|(_, ns)| *ns).collect(), ..JobCost::default() };
    Costs {
        stages: stages.iter().enumerate().map(|(i, (scope, _))| (format!("stage-{i}"), *scope)).collect(),
        first_split_stage: stages.iter().position(|(scope, _)| *scope == S).unwrap_or(stages.len()),
        jobs: vec![job; jobs],
    }
}

fn run(costs: &Costs, kind: ModelKind, workers: usize, machine: &MachineCosts) -> RunReport<()> {
    let cores = workers + usize::from(kind.has_readers());
    run_on(costs, &ModelOptions::new(kind, workers), cores, machine)
}

fn run_on(costs: &Costs, options: &ModelOptions, cores: usize, machine: &MachineCosts) -> RunReport<()> {
    imitate(costs, machine, cores, 2 * options.workers, options).unwrap()
}

fn ns(report: &RunReport<()>) -> u64 {
    u64::try_from(report.elapsed.as_nanos()).unwrap()
}

const FREE: MachineCosts = MachineCosts {
    hand_over: HandOver {
        hop_ns: 0,
        spin_ns: 0,
        wake_ns: 0,
        wake_latency_ns: 0,
        switch_ns: 0,
        slice_ns: 0,
        contention_permille: Vec::new(),
    },
    move_ps_per_packet: 0,
};

#[test]
fn one_core_takes_the_sum_under_every_model() {
    let costs = costs(40, &[(B, 700), (O, 200), (W, 300), (S, 400)]);
    for kind in ModelKind::ALL {
        let report = run_on(&costs, &ModelOptions::new(kind, 1), 1, &FREE);
        assert_eq!(ns(&report), 40 * 1600, "{kind}");
        assert_eq!(costs.total_ns(), 40 * 1600);
    }
}

#[test]
fn equal_parallel_work_over_k_cores_is_k_times_as_fast() {
    for k in [2, 4, 8, 16, 64] {
        let costs = costs(64 * 3, &[(W, 1000), (B, 500)]);
        for kind in [ModelKind::RunToCompletion, ModelKind::Tokens] {
            let options = ModelOptions { tokens: 64, ..ModelOptions::new(kind, k) };
            let report = run_on(&costs, &options, k, &FREE);
            assert_eq!(ns(&report) * k as u64, costs.total_ns(), "{kind}, {k} cores");
        }
    }
}

#[test]
fn a_pipeline_of_k_equal_stages_over_k_cores_is_k_times_as_fast_once_it_is_full() {
    for k in 2..=8u64 {
        let stages = vec![(W, 1000); usize::try_from(k).unwrap()];
        let report = run(&costs(8 + 100, &stages), ModelKind::Pipeline, stages.len(), &FREE);
        // Eight jobs to measure, one after the other; then a job every 1000 ns, the first of them through all
        // stages.
        assert_eq!(ns(&report), 8 * k * 1000 + (100 + k - 1) * 1000, "{k} stages");
    }
}

/// Paper 004: pipelining is sensitive to stages of unequal length; copies of the slow one make up for it.
#[test]
fn copies_of_a_slow_stage_make_a_pipeline_as_fast_as_equal_stages() {
    let costs = costs(8 + 400, &[(W, 1000), (W, 3000)]);
    let of = |kind| ns(&run(&costs, kind, 4, &FREE));
    // Eight jobs to measure, one after the other.
    let measuring = 8 * 4000;
    assert_eq!(of(ModelKind::Pipeline), measuring + 400 * 3000 + 1000, "as slow as its slowest stage");
    assert_eq!(of(ModelKind::Replicated), measuring + 400 * 1000 + 3000, "three copies of it");
    let fewer = run(&costs, ModelKind::Replicated, 3, &FREE);
    assert_eq!(fewer.grouping, [0..1, 1..2, 1..2]);
}

#[test]
fn a_stage_in_order_is_a_ceiling() {
    for kind in [ModelKind::RunToCompletion, ModelKind::Tokens] {
        let costs = costs(100, &[(O, 1000), (W, 3000)]);
        let four = ns(&run(&costs, kind, 4, &FREE));
        let many = ns(&run(&costs, kind, 16, &FREE));
        // The last job waits for all turns before it, and then has its own work.
        assert_eq!(many, 100 * 1000 + 3000, "{kind}");
        assert_eq!(four, many, "{kind}: four cores are as many as the stage can feed");
        assert!(ns(&run(&costs, kind, 2, &FREE)) >= 200_000, "{kind}");
    }
}

#[test]
fn a_farm_is_as_fast_as_its_reader_or_its_workers() {
    let reader_bound = costs(100, &[(O, 1000), (S, 800)]);
    let report = run(&reader_bound, ModelKind::Farm, 4, &FREE);
    assert_eq!(ns(&report), 100 * 1000 + 200);
    let worker_bound = costs(100, &[(O, 100), (S, 8000)]);
    let report = run(&worker_bound, ModelKind::Farm, 4, &FREE);
    assert_eq!(ns(&report), 100 + 100 * 2000);
}

#[test]
fn predictions_move_with_the_cost_of_a_stage_and_of_handing_over() {
    let base = costs(50, &[(O, 100), (W, 1000), (S, 400)]);
    let dear = costs(50, &[(O, 100), (W, 1500), (S, 400)]);
    let hops =
        MachineCosts { hand_over: HandOver { hop_ns: 100, spin_ns: 10_000, ..FREE.hand_over }, ..FREE };
    let moved = MachineCosts { move_ps_per_packet: 10_000, ..FREE };
    let slowed = HandOver { contention_permille: vec![1000, 1250], ..FREE.hand_over };
    let slowed = MachineCosts { hand_over: slowed, ..FREE };
    for kind in ModelKind::ALL {
        let before = ns(&run(&base, kind, 3, &FREE));
        assert!(ns(&run(&dear, kind, 3, &FREE)) > before, "{kind}");
        if kind == ModelKind::Serial {
            continue;
        }
        assert!(ns(&run(&base, kind, 3, &hops)) > before, "{kind}: hops");
        assert!(ns(&run(&base, kind, 3, &slowed)) > before, "{kind}: contention");
        if matches!(kind, ModelKind::Pipeline | ModelKind::Farm | ModelKind::Chain) {
            assert!(ns(&run(&base, kind, 3, &moved)) > before, "{kind}: moves");
        }
    }
}

/// The clock is virtual: the number and the load of the machine's cores make no difference.
#[test]
fn predictions_do_not_depend_on_the_machine() {
    let costs = costs(60, &[(O, 100), (W, 1000), (S, 400), (B, 50)]);
    let machine = MachineCosts {
        hand_over: HandOver {
            hop_ns: 60,
            spin_ns: 3000,
            wake_ns: 1500,
            wake_latency_ns: 5000,
            switch_ns: 2000,
            slice_ns: 3_000_000,
            contention_permille: vec![1000, 1100],
        },
        move_ps_per_packet: 2000,
    };
    let predict = |kind| {
        let report = run(&costs, kind, 5, &machine);
        (ns(&report), report.threads.iter().map(|thread| thread.busy).sum::<Duration>())
    };
    for kind in ModelKind::ALL {
        let quiet = predict(kind);
        let busy = std::thread::scope(|scope| {
            let others: Vec<_> = (0..3).map(|_| scope.spawn(|| predict(kind))).collect();
            others.into_iter().map(|other| other.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(busy.iter().all(|one| *one == quiet), "{kind}: {quiet:?}, {busy:?}");
    }
}

/// More threads than cores share them: three threads of a farm on one core take as long as one.
#[test]
fn threads_beyond_the_cores_take_turns() {
    let costs = costs(50, &[(O, 100), (S, 800)]);
    let report = run_on(&costs, &ModelOptions::new(ModelKind::Farm, 2), 1, &FREE);
    assert_eq!(ns(&report), costs.total_ns());
    let two = ns(&run_on(&costs, &ModelOptions::new(ModelKind::Farm, 2), 2, &FREE));
    assert!(two >= costs.total_ns() / 2 && two < costs.total_ns(), "{two}");
}
