//! Failing runs must end; and the cost of an idle run.

use crate::toy::{Collect, Counts, Jobs, Toy, Trap, jobs};
use std::time::Duration;
use thalweg_exec::{ExecError, ModelKind, ModelOptions, RunReport, Scope};

use Scope::{Batches as B, Ordered as O, PerShard as S, Whole as W};

const ROUTER: [Scope; 6] = [B, O, W, S, B, O];

fn options(kind: ModelKind) -> ModelOptions {
    ModelOptions { readers: 2, ordered: true, ..ModelOptions::new(kind, 4) }
}

fn run(
    toy: &Toy,
    before_source: impl FnMut(u64) + Send,
    before_sink: impl FnMut(u64) + Send,
    options: &ModelOptions,
) -> Result<RunReport<Counts>, ExecError> {
    let mut source = Jobs { jobs: jobs(5, 100, 3).into_iter(), before: before_source };
    let mut sink = Collect { jobs: Vec::new(), before: before_sink };
    let result = thalweg_exec::run(toy, &mut source, &mut sink, options);
    // Whatever happened, the output is in order and without duplicates.
    assert!(sink.jobs.iter().map(|job| job.sequence).eq(0..sink.jobs.len() as u64));
    result
}

/// A job that crosses, and one that does not (and has packets), well inside the run.
fn crossing_and_other() -> (u64, u64) {
    let input = jobs(5, 100, 3);
    let crosses = |job: &&crate::toy::Job| job.packets.iter().any(|packet| packet.other_shard.is_some());
    let crossing = input.iter().skip(30).find(crosses).unwrap().sequence;
    let other = input.iter().skip(30).find(|job| !crosses(job) && !job.packets.is_empty()).unwrap().sequence;
    (crossing, other)
}

#[test]
fn a_panic_anywhere_ends_the_run_and_names_the_place() {
    let (crossing, other) = crossing_and_other();
    for kind in ModelKind::ALL {
        for (stage, scope) in ROUTER.iter().enumerate() {
            for sequence in [3, other] {
                check_trap(kind, Trap::Stage(stage, sequence), &format!("stage \"{:?}-{stage}\"", scope));
            }
        }
        check_trap(kind, Trap::Crossing(3, crossing), "stage \"PerShard-3\"");
        check_trap(kind, Trap::Admit(other), "the source");
    }
    check_trap(ModelKind::Farm, Trap::Split(other), "split");
    check_trap(ModelKind::Farm, Trap::Merge(other), "merge");
}

fn check_trap(kind: ModelKind, trap: Trap, expected: &str) {
    let mut toy = Toy::new(&ROUTER, 4, false);
    toy.trap = Some(trap);
    match run(&toy, |_| (), |_| (), &options(kind)) {
        Err(ExecError::Panicked { at, message, .. }) => {
            assert_eq!(at, expected, "{kind} {trap:?}: {message}");
            assert!(message.contains("trap"), "{message}");
        }
        other => panic!("{kind} {trap:?}: {other:?}", other = other.map(|report| report.jobs)),
    }
}

#[test]
fn a_panic_in_source_or_sink_ends_the_run() {
    for kind in ModelKind::ALL {
        for ordered in [false, true] {
            let toy = Toy::new(&ROUTER[..5], 4, false);
            let options = ModelOptions { ordered, ..options(kind) };
            let at = |result: Result<RunReport<Counts>, ExecError>| match result {
                Err(ExecError::Panicked { at, .. }) => at,
                other => panic!("{kind}: {:?}", other.map(|report| report.jobs)),
            };
            let source = thalweg_exec::run(
                &toy,
                &mut Jobs { jobs: jobs(5, 100, 3).into_iter(), before: |n| assert_ne!(n, 40) },
                &mut Collect { jobs: Vec::new(), before: |_| () },
                &options,
            );
            assert_eq!(at(source), "the source");
            let toy = Toy::new(&ROUTER[..5], 4, false);
            let sink = thalweg_exec::run(
                &toy,
                &mut Jobs { jobs: jobs(5, 100, 3).into_iter(), before: |_| () },
                &mut Collect { jobs: Vec::new(), before: |n| assert_ne!(n, 40) },
                &options,
            );
            assert_eq!(at(sink), "the sink");
        }
    }
}

#[test]
fn a_gap_in_the_sequence_is_an_error() {
    for kind in ModelKind::ALL {
        let mut input = jobs(5, 100, 3);
        input.remove(33);
        let toy = Toy::new(&ROUTER, 4, false);
        let result = thalweg_exec::run(
            &toy,
            &mut Jobs { jobs: input.into_iter(), before: |_| () },
            &mut Collect { jobs: Vec::new(), before: |_| () },
            &options(kind),
        );
        let error = result.map(|report| report.jobs).unwrap_err();
        assert_eq!(error.to_string(), "the source gave job 34, expected job 33", "{kind}");
    }
}

#[test]
fn senseless_options_are_errors() {
    let base = options(ModelKind::Farm);
    let cases = [
        (ModelOptions { workers: 0, ..base.clone() }, "0 workers: expected 1 to 1024"),
        (ModelOptions { workers: 1025, ..base.clone() }, "1025 workers: expected 1 to 1024"),
        (ModelOptions { readers: 0, ..base.clone() }, "0 readers: expected 1 to 1024"),
        (ModelOptions { tokens: 0, ..base.clone() }, "0 tokens: expected 1 to 65536"),
        (
            ModelOptions { ring_jobs: 0, ..base.clone() },
            "rings and the reorder buffer must hold at least one job",
        ),
        (
            ModelOptions { pin_cores: Some(Vec::new()), ..base.clone() },
            "no core to pin threads to: name at least one",
        ),
    ];
    for (options, expected) in cases {
        let error = run(&Toy::new(&ROUTER, 4, false), |_| (), |_| (), &options).map(|r| r.jobs).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = run(&Toy::new(&ROUTER, 0, false), |_| (), |_| (), &base).map(|r| r.jobs).unwrap_err();
    assert!(matches!(error, ExecError::NoShardGroups));
}

#[test]
fn threads_are_pinned_or_the_run_fails() {
    for kind in ModelKind::ALL {
        // A core that the kernel allows this process.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let core: usize = list.trim().split([',', '-']).next().unwrap().parse().unwrap();
        let good = ModelOptions { pin_cores: Some(vec![core]), ..options(kind) };
        let on_core = move |_| assert_eq!(allowed_cores(), core.to_string());
        run(&Toy::new(&ROUTER, 4, false), on_core, on_core, &good).unwrap();
        let bad = ModelOptions { pin_cores: Some(vec![core, 1023]), ..options(kind) };
        match run(&Toy::new(&ROUTER, 4, false), |_| (), |_| (), &bad) {
            Err(ExecError::Pin { core: 1023, .. }) => {}
            // One thread, which has the allowed core.
            Ok(_) if kind == ModelKind::Serial => {}
            other => panic!("{kind}: {:?}", other.map(|report| report.jobs)),
        }
    }
}

fn allowed_cores() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().to_owned()
}

/// Eight workers whose source blocks: a thread that polled or spun would show in both counts. Other users of the
/// machine do not add to processor time, so the bound is safe.
#[test]
fn waiting_for_input_costs_next_to_nothing() {
    const BLOCKED: Duration = Duration::from_millis(500);
    for kind in ModelKind::ALL {
        let options = ModelOptions { readers: 3, ..ModelOptions::new(kind, 8) };
        let block = |sequence| {
            if sequence == 20 {
                std::thread::sleep(BLOCKED);
            }
        };
        let report = run(&Toy::new(&ROUTER, 4, false), block, |_| (), &options).unwrap();
        let cpu: Duration = report.threads.iter().map(|thread| thread.cpu).sum();
        let (parks, waits) =
            report.threads.iter().fold((0, 0), |(p, w), thread| (p + thread.parks, w + thread.waits));
        assert!(cpu < BLOCKED / 2, "{kind}: {cpu:?}");
        assert!(parks <= 3 * waits + 100, "{kind}: {parks} parks in {waits} waits");
    }
}

#[test]
fn reports_add_up() {
    for kind in ModelKind::ALL {
        let report = run(&Toy::new(&ROUTER, 4, false), |_| (), |_| (), &options(kind)).unwrap();
        let count = |role: &str| report.threads.iter().filter(|thread| thread.role == role).count();
        let (calibration, workers, readers) = match kind {
            ModelKind::Serial => (0, 1, 0),
            ModelKind::Pipeline => (1, 4, 0),
            ModelKind::Replicated => (1, report.grouping.len(), 0),
            ModelKind::Farm | ModelKind::Chain => (0, 4, 2),
            _ => (0, 4, 0),
        };
        assert_eq!((count("calibration"), count("worker"), count("reader")), (calibration, workers, readers));
        assert_eq!(report.scratches.len(), report.threads.len());
        assert_eq!(report.jobs, 100);
        let is_pipeline = matches!(kind, ModelKind::Pipeline | ModelKind::Replicated);
        let mut groups = report.grouping.clone();
        groups.dedup();
        assert_eq!(groups.len() > 1 && report.grouping.len() <= 4, is_pipeline, "{kind}: {groups:?}");
        assert!(groups.into_iter().flatten().eq(0..if is_pipeline { ROUTER.len() } else { 0 }));
    }
}
