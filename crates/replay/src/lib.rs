//! Replay: packets from files through a router and into files.
//!
//! ```text
//! files -> source -> model (workers: parse, route) -> sink -> files
//!            |                                          |
//!            +--<----------- slabs come back -----------+
//! ```
//!
//! The thread that asks the source for a chunk reads it: a worker, or a reader of the farm. It cuts off whole packets
//! or lines while others wait for the source; lines are parsed by the first stage, so by any number of threads.
//!
//! `ports` reads and writes files, `node` builds the router, `exec` runs it; they do not know each other and
//! are combined here. The slabs in circulation bound the memory. With `preload` all input is read before the
//! clock starts and kept until it has stopped, so that neither reading nor freeing is measured. Nothing here
//! depends on interfaces, BGP or the command line.

mod options;
mod progress;
mod sink;
mod summarize;
pub mod summary;

pub use options::{Output, ReplayError, ReplayOptions, ReplayProgress, UnknownWork, Work};
pub use summary::ReplaySummary;
pub use thalweg_exec::ModelKind;
pub use thalweg_wire::trace::FieldOrder;

use crate::sink::{FileSink, KeepSink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::Chunk;
use thalweg_config::RouterConfig;
use thalweg_exec::{Costs, ModelOptions, Plan, RunReport, Sink, Source};
use thalweg_node::plan::{RouterPlan, Scratch};
use thalweg_node::{BuildError, Routes};
use thalweg_ports::{FileSource, InputError, InputOptions, InputReport, InputSpec, PortNames};

/// Slabs in addition to those that the model holds at once, so that the sink does not block the source.
const SLABS_SPARE: usize = 4;
/// The most slabs, however many the model could hold.
const SLABS_MAX: usize = 40;
/// The most memory of all slabs; very large chunks have fewer slabs.
const SLAB_BYTES_MAX: usize = 128 << 20;
/// The fewest slabs beside one for each worker: one being read, one waiting.
const SLABS_MIN: usize = 2;

/// Runs the inputs through a router with this configuration and accounts for every packet.
///
/// Fails if inputs, outputs or options are invalid; a malformed packet is not an error but a drop.
pub fn replay(
    config: &RouterConfig,
    options: &ReplayOptions,
    progress: &dyn ReplayProgress,
) -> Result<ReplaySummary, ReplayError> {
    Prepared::new(config)?.replay(options, progress)
}

/// A configuration with its look-up tables built, for any number of replays. State about packets (NAT
/// sessions, policers, counters) is new for each, so replays are independent.
#[derive(Debug)]
pub struct Prepared<'c> {
    config: &'c RouterConfig,
    routes: Routes,
}

impl<'c> Prepared<'c> {
    /// Builds the tables.
    pub fn new(config: &'c RouterConfig) -> Result<Self, ReplayError> {
        Ok(Self { config, routes: Routes::build(config).map_err(build_error)? })
    }

    /// Measures the cost of each chunk in each stage, in the source and in the sink, in a serial run with the
    /// input in memory. Also returns the processor time of that run.
    pub fn record(&self, options: &ReplayOptions) -> Result<(Duration, Costs), ReplayError> {
        let plan = self.plan(options)?.for_workers(1);
        let (mut source, _) = preloaded(self.config, options)?;
        let packets = |chunk: &Chunk| chunk.packets().len() as u64;
        let (report, costs) = thalweg_exec::record(&plan, &mut source, &mut KeepSink::default(), packets)
            .map_err(ReplayError::Model)?;
        Ok((report.threads.iter().map(|thread| thread.cpu).sum(), costs))
    }

    /// The number of shard groups in a run with this many workers.
    pub fn shard_groups(&self, options: &ReplayOptions, workers: usize) -> Result<usize, ReplayError> {
        Ok(self.plan(options)?.for_workers(workers).shard_groups())
    }

    /// [`replay`] without building the tables again.
    pub fn replay(
        &self,
        options: &ReplayOptions,
        progress: &dyn ReplayProgress,
    ) -> Result<ReplaySummary, ReplayError> {
        let plan = self.plan(options)?.for_workers(options.workers);
        let plan = if options.preload { plan } else { plan.with_parsing() };
        run(self.config, &plan, options, progress)
    }

    fn plan(&self, options: &ReplayOptions) -> Result<RouterPlan, ReplayError> {
        let boards = options.work.boards();
        RouterPlan::with_routes(self.config, &self.routes, boards).map_err(build_error)
    }

    /// The router of a replay and its input, for callers that drive the stages without a model.
    pub fn router_and_input(&self, options: &ReplayOptions) -> Result<(RouterPlan, Vec<Chunk>), ReplayError> {
        let (Preloaded(chunks), _) = preloaded(self.config, options)?;
        Ok((self.plan(options)?, chunks.collect()))
    }
}

fn build_error(error: BuildError) -> ReplayError {
    ReplayError::Options(error.to_string())
}

fn run(
    config: &RouterConfig,
    plan: &RouterPlan,
    options: &ReplayOptions,
    progress: &dyn ReplayProgress,
) -> Result<ReplaySummary, ReplayError> {
    let run = if options.preload {
        run_preloaded(plan, config, options, progress)?
    } else {
        run_streaming(plan, config, options, open(config, options)?, progress)?
    };
    let mut summary = summarize::summary(config, plan, &run.scratches);
    summary.elapsed_s = run.elapsed.as_secs_f64();
    summary.cpu_s = run.cpu.as_secs_f64();
    summary.packets_per_second = summary.packets_in as f64 / summary.elapsed_s.max(1e-9);
    summary.model = options.model.name().to_string();
    summary.workers = run.workers;
    summary.input_issues = summarize::input_issues(&run.input);
    summary.outputs = run.outputs;
    Ok(summary)
}

/// The result of a run.
struct Run {
    scratches: Vec<Scratch>,
    elapsed: Duration,
    cpu: Duration,
    workers: usize,
    input: InputReport,
    outputs: Vec<String>,
}

impl Run {
    fn new(report: RunReport<Scratch>, elapsed: Duration, input: InputReport, outputs: Vec<String>) -> Self {
        // The pipeline runs its first jobs on one thread to measure its stages; a short input uses no other.
        let workers = report.threads.iter().filter(|t| t.role == "worker").count().max(1);
        let cpu = report.threads.iter().map(|t| t.cpu).sum();
        Self { scratches: report.scratches, elapsed, cpu, workers, input, outputs }
    }
}

/// Ports by their names in files.
fn port_names(config: &RouterConfig) -> PortNames {
    PortNames::new(config.ports.iter().map(|p| p.trace_name.clone()))
}

/// The inputs, repeated as requested. `port=PATH` may use either name of the port.
fn input_specs(config: &RouterConfig, options: &ReplayOptions) -> Vec<InputSpec> {
    let spec = |path: &PathBuf| {
        let mut spec = InputSpec::parse(&path.to_string_lossy());
        let by_name = |name: &String| config.ports.iter().find(|p| p.name == *name);
        if let Some(port) = spec.port.as_ref().and_then(by_name) {
            spec.port = Some(port.trace_name.clone());
        }
        spec
    };
    (0..options.loops.max(1)).flat_map(|_| options.inputs.iter().map(spec)).collect()
}

fn open(config: &RouterConfig, options: &ReplayOptions) -> Result<FileSource, ReplayError> {
    FileSource::open(input_specs(config, options), port_names(config), &input_options(options))
        .map_err(input_error)
}

fn input_options(options: &ReplayOptions) -> InputOptions {
    let held = options.model.jobs_in_flight(options.workers, options.tokens);
    let mut input = InputOptions {
        chunk_packets: options.chunk_packets,
        strict: options.strict,
        field_order: options.field_order,
        ..InputOptions::default()
    };
    let affordable = (SLAB_BYTES_MAX / input.slab_bytes()).min(SLABS_MAX);
    input.slabs = (held + SLABS_SPARE).min(affordable).max(options.workers + SLABS_MIN);
    input
}

fn packets_max(options: &ReplayOptions) -> u64 {
    options.packets_max.unwrap_or(u64::MAX)
}

fn model_options(options: &ReplayOptions) -> ModelOptions {
    let mut model = ModelOptions::new(options.model, options.workers);
    model.readers = options.readers;
    model.tokens = options.tokens;
    model.ordered = options.ordered;
    model.pin_cores = (!options.pin_cores.is_empty()).then(|| options.pin_cores.clone());
    model
}

struct Preloaded(std::vec::IntoIter<Chunk>);

impl Source<Chunk> for Preloaded {
    fn next(&mut self) -> Option<Chunk> {
        self.0.next()
    }
}

struct Streaming {
    files: FileSource,
    stop: Arc<AtomicBool>,
    packets_max: u64,
    error: Option<InputError>,
}

impl Source<Chunk> for Streaming {
    fn next(&mut self) -> Option<Chunk> {
        if self.files.packets() >= self.packets_max || self.stop.load(Ordering::Relaxed) {
            return None;
        }
        self.files.next_cut().unwrap_or_else(|error| {
            self.error = Some(error);
            None
        })
    }
}

fn preloaded(
    config: &RouterConfig,
    options: &ReplayOptions,
) -> Result<(Preloaded, InputReport), ReplayError> {
    let (chunks, report) = open(config, options)?.load_first(packets_max(options)).map_err(input_error)?;
    Ok((Preloaded(chunks.into_iter()), report))
}

fn run_preloaded(
    plan: &RouterPlan,
    config: &RouterConfig,
    options: &ReplayOptions,
    progress: &dyn ReplayProgress,
) -> Result<Run, ReplayError> {
    let (mut source, report) = preloaded(config, options)?;
    match FileSink::create(config, &options.output)? {
        None => {
            let mut sink = KeepSink::default();
            let (run, elapsed) = timed_run(plan, &mut source, &mut sink, options, progress)?;
            Ok(Run::new(run, elapsed, report, Vec::new()))
        }
        Some(mut sink) => {
            let (run, elapsed) = timed_run(plan, &mut source, &mut sink, options, progress)?;
            Ok(Run::new(run, elapsed, report, sink.finish()?))
        }
    }
}

fn run_streaming(
    plan: &RouterPlan,
    config: &RouterConfig,
    options: &ReplayOptions,
    files: FileSource,
    progress: &dyn ReplayProgress,
) -> Result<Run, ReplayError> {
    let mut file_sink = FileSink::create(config, &options.output)?;
    let stop = file_sink.as_ref().map(FileSink::stop_flag).unwrap_or_default();
    let counters = files.progress();
    let mut source = Streaming { files, stop, packets_max: packets_max(options), error: None };
    let started = Instant::now();
    let run = progress::watched(&counters, progress, || match &mut file_sink {
        None => timed_run(plan, &mut source, &mut sink::DropSink, options, progress),
        Some(sink) => timed_run(plan, &mut source, sink, options, progress),
    });
    // The input's own error explains more than its consequences.
    if let Some(error) = source.error {
        return Err(input_error(error));
    }
    let (run, _) = run?;
    let outputs = file_sink.map(FileSink::finish).transpose()?.unwrap_or_default();
    Ok(Run::new(run, started.elapsed(), source.files.report(), outputs))
}

fn timed_run(
    plan: &RouterPlan,
    source: &mut dyn Source<Chunk>,
    sink: &mut dyn Sink<Chunk>,
    options: &ReplayOptions,
    progress: &dyn ReplayProgress,
) -> Result<(RunReport<Scratch>, Duration), ReplayError> {
    progress.measuring(true);
    let started = Instant::now();
    let report = thalweg_exec::run(plan, source, sink, &model_options(options));
    let elapsed = started.elapsed();
    progress.measuring(false);
    Ok((report.map_err(ReplayError::Model)?, elapsed))
}

fn input_error(error: InputError) -> ReplayError {
    match error {
        InputError::Open { input, error } => ReplayError::Input { path: input.into(), source: error },
        InputError::Strict(issue) => ReplayError::Strict(summarize::input_issue(&issue)),
        other @ InputError::NoSuchPort { .. } => ReplayError::Options(other.to_string()),
        other @ InputError::LargerThanMemory { .. } => ReplayError::Memory(other),
    }
}
