//! The execution models: which core runs what. A [`Plan`] lists the stages that every job (a chunk of packets)
//! passes, each with the [`Scope`] of its state. [`run`] runs any plan under any model with the same answer: a
//! model keeps the promises of the scopes, and a plan depends on nothing else.
//!
//! - `plan`: the contract. `options`, `report`: the other inputs of a run, and its result.
//! - `serial`, `run_to_completion`, `lanes` ([`run_lanes`]), `pipeline`, `tokens`, `farm`, `chain`: a file for each
//!   model, with its limit of jobs in flight and the reason why it cannot deadlock. `readers` are part of the last
//!   two.
//! - `virtual_cores`, `costs` ([`imitate`]), `hand_over`: models on virtual time.
//! - `worker`, `threads`: the threads of any model; a panic ends the run. `turn`, `ring`, `backoff`: waiting.
//!   `intake`, `completion`: source and sink. `rank`, `os`: priority, pinning, processor time.
//! - `divide` ([`divide_and_conquer`]): a farm with feedback, for tasks that are divided instead of a stream of
//!   jobs.
//! - [`control_plane`]: the schedulings of a control plane, for sessions instead of jobs.
//! - [`Locks`]: the cells of state that stages share.
//!
//! Nothing here knows a packet or a protocol. Every queue is bounded, nothing polls, and nothing times out: a run
//! ends with its source, or with an [`ExecError`]. Missing: work that moves between runs, cores of different speed.

mod around;
mod backoff;
mod chain;
mod completion;
pub mod control_plane;
mod costs;
mod divide;
mod farm;
mod hand_over;
mod intake;
mod lanes;
mod locks;
mod options;
mod os;
mod pipeline;
mod plan;
mod rank;
mod readers;
mod report;
mod ring;
mod run_to_completion;
mod serial;
mod stop;
mod threads;
mod tokens;
mod turn;
mod virtual_cores;
mod worker;

pub use around::{Around, Piece};
pub use costs::{Costs, JobCost, MachineCosts, imitate, record};
pub use divide::{Divide, Divided, divide_and_conquer};
pub use hand_over::measure_machine;
pub use lanes::Lane;
pub use locks::{Lock, Locks};
pub use options::{
    GROUPS_PER_WORKER, ModelKind, ModelOptions, Placement, THREADS_MAX, TOKENS_DEFAULT, TOKENS_MAX,
    UnknownModel,
};
pub use os::{core_is_usable, give_back_large_tables, monotonic_time, release_free_memory, thread_cpu_time};
pub use plan::{Plan, Scope, Sink, Source, StageSpec};
pub use rank::{Priority, Rank};
pub use report::{ExecError, RunReport, ThreadReport};

pub use virtual_cores::{HandOver, VirtualCores};

use completion::Completion;
use intake::Intake;
use std::sync::Arc;
use worker::{Done, Shared};

/// Runs all jobs of `source` through `plan` into `sink`.
///
/// Returns when the source has ended and the sink has everything. Fails if the options make no sense, a thread
/// cannot be started or pinned, the source's sequence has a gap, or code of the plan, the source or the sink
/// panics. After a failure the sink has seen some of the jobs, in order, and the plan's state is worthless.
pub fn run<P: Plan>(
    plan: &P,
    source: &mut dyn Source<P::Job>,
    sink: &mut dyn Sink<P::Job>,
    options: &ModelOptions,
) -> Result<RunReport<P::Scratch>, ExecError> {
    run_on(None, plan, source, sink, options)
}

/// Runs as [`run`] does, on virtual cores if there are any. Then the report has virtual times, the cores to pin
/// threads to are ignored, and the run also fails when every thread waits.
pub fn run_on<P: Plan>(
    cores: Option<&Arc<VirtualCores>>,
    plan: &P,
    source: &mut dyn Source<P::Job>,
    sink: &mut dyn Sink<P::Job>,
    options: &ModelOptions,
) -> Result<RunReport<P::Scratch>, ExecError> {
    check(options)?;
    let shared = Shared::new(plan, options.placement(), cores.cloned())?;
    let intake = Intake::new(source);
    let mut grouping = Vec::new();
    let (done, reorder_high_water) = match options.kind {
        ModelKind::Serial => (serial::run(&shared, &intake, sink), 0),
        ModelKind::RunToCompletion => {
            let completion = Completion::new(sink, options.reorder_jobs, Vec::new());
            let done = run_to_completion::run(&shared, options.workers, &intake, &completion);
            (done, completion.high_water())
        }
        ModelKind::Pipeline | ModelKind::Replicated => {
            let (done, groups) = pipeline::run(&shared, options, &intake, sink);
            grouping = groups;
            (done, 0)
        }
        ModelKind::Tokens => tokens::run(&shared, options, &intake, sink),
        ModelKind::Farm => farm::run(&shared, options, &intake, sink),
        ModelKind::Chain => (chain::run(&shared, options, &intake, sink), 0),
    };
    let report = report(shared, options.kind, intake.taken(), done)?;
    Ok(RunReport { grouping, reorder_high_water, ..report })
}

/// Runs several lanes to completion at once, each with its own worker, until all sources have ended.
///
/// Order is kept within each lane (see the module `lanes`). If a worker is lost, `give_up` is called, perhaps more
/// than once and from any thread: it must make every waiting source report its end soon. `placement` is as in
/// [`ModelOptions`].
///
/// # Errors
///
/// As [`run`]. After a failure each sink has seen the first jobs of its lane.
pub fn run_lanes<'p, P: Plan>(
    plan: &P,
    lanes: Vec<Lane<'_, P::Job>>,
    placement: impl Into<Placement<'p>>,
    give_up: &(dyn Fn() + Sync),
) -> Result<RunReport<P::Scratch>, ExecError> {
    if !(1..=THREADS_MAX).contains(&lanes.len()) {
        return Err(ExecError::Workers(lanes.len()));
    }
    let placement = placement.into();
    if placement.pin_cores.is_some_and(<[usize]>::is_empty) {
        return Err(ExecError::NoCores);
    }
    let shared = Shared::new(plan, placement, None)?;
    let (intakes, sinks): (Vec<_>, Vec<_>) =
        lanes.into_iter().map(|Lane { source, sink }| (Intake::new(source), sink)).unzip();
    let done = lanes::run(&shared, &intakes, sinks, give_up);
    let jobs = intakes.iter().map(Intake::taken).sum();
    report(shared, ModelKind::RunToCompletion, jobs, done)
}

/// What the threads of a run report together, or why it failed.
fn report<P: Plan>(
    shared: Shared<'_, P>,
    kind: ModelKind,
    jobs: u64,
    done: Vec<Done<P::Scratch>>,
) -> Result<RunReport<P::Scratch>, ExecError> {
    let elapsed = shared.elapsed();
    if let Some(error) = shared.control.into_error() {
        return Err(error);
    }
    let (scratches, threads) = done.into_iter().map(|done| (done.scratch, done.report)).unzip();
    Ok(RunReport { kind, elapsed, jobs, scratches, threads, grouping: Vec::new(), reorder_high_water: 0 })
}

fn check(options: &ModelOptions) -> Result<(), ExecError> {
    if !(1..=THREADS_MAX).contains(&options.workers) {
        return Err(ExecError::Workers(options.workers));
    }
    if !(1..=THREADS_MAX).contains(&options.readers) {
        return Err(ExecError::Readers(options.readers));
    }
    if !(1..=TOKENS_MAX).contains(&options.tokens) {
        return Err(ExecError::Tokens(options.tokens));
    }
    if options.ring_jobs == 0 || options.reorder_jobs == 0 {
        return Err(ExecError::NoCapacity);
    }
    if options.pin_cores.as_ref().is_some_and(Vec::is_empty) {
        return Err(ExecError::NoCores);
    }
    Ok(())
}
