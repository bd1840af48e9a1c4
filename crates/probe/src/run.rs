//! Puts the parts together, runs them, and adds up what they counted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_base::{Chunk, ChunkBuilder};
use thalweg_exec::{ExecError, ModelKind, ModelOptions, RunReport, Sink, Source, THREADS_MAX};
use thalweg_flow::{EndReason, Meter, MeterOptions};
use thalweg_ports::{InputOptions, InputReport, InputSpec, PortNames};

use crate::columns::LineFormat;
use crate::deal::deal;
use crate::deliver::{self, Delivered, Lines, Outlet};
use crate::outbox::{Way, queue};
use crate::plan::{Free, Handing, Keep, ProbePlan, Scratch};
use crate::source::{Captures, Reading, Seen};
use crate::summary::{EXPORT_QUEUE, InputIssues, ProbeSummary, UNSAMPLED};
use crate::{Deal, FileInput, Input, ProbeError, ProbeOptions, ProbeProgress, Shape, Volume, usage};

/// Slabs beyond those that models can hold at once, so that the reader is not held up.
const SLABS_SPARE: usize = 8;
/// What slabs may hold in all; very large chunks circulate fewer.
const SLAB_BYTES_MAX: usize = 128 << 20;
/// Slabs for a pipeline at least: one waiting, one in hand.
const SLABS_MIN: usize = 2;
/// At a given rate chunks are no longer than this part of a second.
const CHUNKS_PER_S: u64 = 100;
/// How often to tell how far it is.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// Meters what the inputs have, delivers the records, and says what became of every packet. Ends early, but in order, when
/// `stop` is set.
///
/// # Errors
///
/// What is wrong with options, inputs or outputs. A packet that cannot be read is no error but a drop.
pub fn probe(
    options: &ProbeOptions,
    stop: &Arc<AtomicBool>,
    progress: &dyn ProbeProgress,
) -> Result<ProbeSummary, ProbeError> {
    check(options)?;
    let Input::Files(files) = &options.input;
    let names = port_names(files);
    let seen = Arc::new(Seen::default());
    let mut clock = Clock::start();
    let captures = open(options, files, &names, (stop, &seen))?;
    if files.preload {
        clock = Clock::start();
    }
    let outlets = outlets(options, &names)?;
    let (way, arrivals) = queue();
    let outcome = thread::scope(|scope| {
        let delivery = deliver::start(scope, arrivals, outlets, Arc::clone(stop))?;
        let outcome = watched(&seen, progress, || run(options, files, captures, way));
        let delivered = delivery.join().unwrap_or_else(|_| {
            Err(ProbeError::Thread(std::io::Error::other("the export thread panicked")))
        });
        outcome.and_then(|outcome| Ok((outcome, delivered?)))
    });
    let (outcome, delivered) = outcome?;
    Ok(summary(options, outcome, delivered, &clock))
}

/// What time a run takes.
struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu: usage::process_cpu() }
    }
}

/// What the pipelines leave.
struct Outcome {
    books: Vec<Book>,
    meters: Vec<Meter>,
    input: InputReport,
}

/// What workers have counted.
#[derive(Default)]
struct Book {
    packets: u64,
    frame_octets: u64,
    lost: Volume,
}

impl Book {
    /// Closes a worker's: what is in its outbox is sent on.
    fn of(mut scratch: Scratch) -> Self {
        scratch.outbox.send();
        let Scratch { packets, frame_octets, ref outbox, .. } = scratch;
        Self { packets, frame_octets, lost: outbox.lost() }
    }
}

fn check(options: &ProbeOptions) -> Result<(), ProbeError> {
    let wrong = |what: String| Err(ProbeError::Options(what));
    let Input::Files(files) = &options.input;
    let Shape { pipelines, model, workers, .. } = options.shape;
    if !(1..=THREADS_MAX).contains(&pipelines) {
        return wrong(format!("{pipelines} pipelines: expected 1 to {THREADS_MAX}"));
    }
    if model == ModelKind::Serial && workers != 1 {
        return wrong(format!("the serial model has one worker, not {workers}"));
    }
    if !(1..=ChunkBuilder::PACKETS_MAX).contains(&options.chunk_packets) {
        return wrong(format!(
            "chunks of {} packets: expected 1 to {}",
            options.chunk_packets,
            ChunkBuilder::PACKETS_MAX
        ));
    }
    if files.inputs.is_empty() {
        return wrong("no input: expected a capture, or `-` for standard input".to_owned());
    }
    if files.deal == Deal::Files && files.inputs.len() != pipelines {
        let inputs = files.inputs.len();
        return wrong(format!("{inputs} inputs for {pipelines} pipelines: expected one for each"));
    }
    let stdins = files.inputs.iter().filter(|input| is_stdin(input)).count();
    if stdins > 1 || (stdins == 1 && files.loops > 1) {
        return wrong("standard input (`-`) can be read only once".to_owned());
    }
    let to_stdout = [&options.json, &options.csv].into_iter().flatten();
    if to_stdout.filter(|path| path.as_os_str() == "-").count() > 1 {
        return wrong("standard output can be JSON or CSV, not both".to_owned());
    }
    Ok(())
}

fn is_stdin(input: &std::path::Path) -> bool {
    let text = input.to_string_lossy();
    text == "-" || (text.ends_with("=-") && !text.contains('/'))
}

/// The ports that inputs name, in the order in which they do.
fn port_names(files: &FileInput) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for input in &files.inputs {
        if let Some(port) = InputSpec::parse(&input.to_string_lossy()).port
            && !names.contains(&port)
        {
            names.push(port);
        }
    }
    names
}

fn outlets(options: &ProbeOptions, ports: &[String]) -> Result<Vec<Box<dyn Outlet>>, ProbeError> {
    let files = [(LineFormat::Json, &options.json), (LineFormat::Csv, &options.csv)];
    let mut outlets: Vec<Box<dyn Outlet>> = Vec::new();
    for (format, path) in files {
        if let Some(path) = path {
            outlets.push(Box::new(Lines::create(format, path, ports.to_vec())?));
        }
    }
    Ok(outlets)
}

/// The sources: one for all pipelines, or one for each.
fn open(
    options: &ProbeOptions,
    files: &FileInput,
    names: &[String],
    (stop, seen): (&Arc<AtomicBool>, &Arc<Seen>),
) -> Result<Vec<Captures>, ProbeError> {
    let shares: Vec<Vec<_>> = match files.deal {
        Deal::Hash => vec![files.inputs.clone()],
        Deal::Files => files.inputs.iter().map(|input| vec![input.clone()]).collect(),
    };
    let sources = shares.len() as u64;
    let rate_pps = files.rate_pps.map(|rate| rate.div_ceil(sources).max(1));
    let pipelines = options.shape.pipelines / shares.len();
    let open = |inputs| {
        let reading = Reading {
            inputs,
            ports: PortNames::new(names.iter().cloned()),
            options: input_options(options, files, pipelines, rate_pps),
            loops: files.loops,
            rate_pps,
        };
        let (stop, seen) = (Arc::clone(stop), Arc::clone(seen));
        let opened = if files.preload { Captures::load(reading, stop, seen) } else { Captures::open(reading, stop, seen) };
        opened.map_err(ProbeError::Input)
    };
    shares.into_iter().map(open).collect()
}

/// How a source that serves so many pipelines reads.
fn input_options(
    options: &ProbeOptions,
    files: &FileInput,
    pipelines: usize,
    rate_pps: Option<u64>,
) -> InputOptions {
    let Shape { model, workers, tokens, .. } = options.shape;
    let held = match model {
        ModelKind::Serial => 1,
        ModelKind::RunToCompletion => 3 * workers,
        ModelKind::Tokens => tokens,
        ModelKind::Pipeline => 5 * workers,
        ModelKind::Farm => 6 * workers,
    };
    let longest = rate_pps.map_or(u64::MAX, |rate| (rate / CHUNKS_PER_S).max(1));
    let mut input = InputOptions {
        chunk_packets: options.chunk_packets.min(usize::try_from(longest).unwrap_or(usize::MAX)),
        strict: files.strict,
        ..InputOptions::default()
    };
    let affordable = (SLAB_BYTES_MAX / input.slab_bytes()).max(SLABS_MIN * pipelines + SLABS_MIN);
    input.slabs = (held * pipelines + SLABS_SPARE).min(affordable);
    input
}

fn run(
    options: &ProbeOptions,
    files: &FileInput,
    mut captures: Vec<Captures>,
    way: Way,
) -> Result<Outcome, ProbeError> {
    let plans = plans(options, &way)?;
    let ran = if files.preload {
        run_pipelines(&plans, &mut captures, &options.shape, Keep::default)
    } else {
        run_pipelines(&plans, &mut captures, &options.shape, || Free)
    };
    // The input's own error explains more than what follows from it.
    let mut input = InputReport::default();
    for capture in captures {
        merge(&mut input, capture.finish()?);
    }
    let mut books: Vec<Book> =
        ran?.into_iter().flat_map(|report| report.scratches).map(Book::of).collect();
    let meters: Vec<Meter> = plans.into_iter().map(ProbePlan::into_meter).collect();
    let mut outbox = way.outbox(None);
    for meter in &meters {
        for shard in 0..meter.shard_count() {
            meter.flush(shard, EndReason::ForcedEnd, &mut |record| outbox.put(record));
        }
    }
    outbox.send();
    books.push(Book { lost: outbox.lost(), ..Book::default() });
    Ok(Outcome { books, meters, input })
}

fn plans(options: &ProbeOptions, way: &Way) -> Result<Vec<ProbePlan>, ProbeError> {
    let Shape { pipelines, model, workers, .. } = options.shape;
    let flows_max = options.meter.flows_max.div_ceil(pipelines as u32);
    // Packets of files can wait.
    let handing = Handing { patience: None, at_once: false };
    let plan = |_| {
        let meter = Meter::new(&MeterOptions { flows_max, ..options.meter.clone() })?;
        Ok(ProbePlan::new(meter, options.parsing, (model, workers), way.clone(), handing))
    };
    (0..pipelines).map(plan).collect()
}

/// Runs every plan to the end of its input.
fn run_pipelines<K: Sink<Chunk>>(
    plans: &[ProbePlan],
    captures: &mut [Captures],
    shape: &Shape,
    sink: impl Fn() -> K + Sync,
) -> Result<Vec<RunReport<Scratch>>, ProbeError> {
    let run = |number: usize, source: &mut dyn Source<Chunk>| -> Result<_, ExecError> {
        thalweg_exec::run(&plans[number], source, &mut sink(), &model_options(shape, number))
    };
    let run = &run;
    match captures {
        [only] if plans.len() == 1 => Ok(vec![run(0, only)?]),
        [only] => thread::scope(|scope| {
            let (queues, dealer) = deal(scope, only, plans.len()).map_err(ProbeError::Thread)?;
            let reports = side_by_side(queues, run);
            // It ends with its input, or when a pipeline has failed and its queue is gone.
            dealer.join().map_err(|_| ProbeError::Thread(std::io::Error::other("the dealer panicked")))?;
            reports
        }),
        each => side_by_side(each.iter_mut().collect(), run),
    }
}

/// Runs pipelines at the same time, each with its own source.
fn side_by_side<S: Source<Chunk> + Send>(
    sources: Vec<S>,
    run: &(impl Fn(usize, &mut dyn Source<Chunk>) -> Result<RunReport<Scratch>, ExecError> + Sync),
) -> Result<Vec<RunReport<Scratch>>, ProbeError> {
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(sources.len());
        for (number, mut source) in sources.into_iter().enumerate() {
            let pipeline = thread::Builder::new().name(format!("pipeline-{number}"));
            let handle = pipeline.spawn_scoped(scope, move || run(number, &mut source));
            handles.push(handle.map_err(ProbeError::Thread)?);
        }
        let join = |handle: thread::ScopedJoinHandle<'_, Result<_, ExecError>>| match handle.join() {
            Ok(report) => report.map_err(ProbeError::Model),
            Err(_) => Err(ProbeError::Thread(std::io::Error::other("a pipeline panicked"))),
        };
        // All of them are waited for, whatever the first one says.
        let reports: Vec<_> = handles.into_iter().map(join).collect();
        reports.into_iter().collect()
    })
}

fn model_options(shape: &Shape, pipeline: usize) -> ModelOptions {
    let mut model = ModelOptions::new(shape.model, shape.workers);
    model.readers = shape.readers;
    model.tokens = shape.tokens;
    if !shape.pin_cores.is_empty() {
        let readers = if shape.model == ModelKind::Farm { shape.readers } else { 0 };
        let mut cores = shape.pin_cores.clone();
        let before = pipeline * (shape.workers + readers);
        cores.rotate_left(before % shape.pin_cores.len());
        model.pin_cores = Some(cores);
    }
    model
}

fn merge(all: &mut InputReport, other: InputReport) {
    all.packets += other.packets;
    for (kind, count) in other.issues {
        *all.issues.entry(kind).or_default() += count;
    }
    let room = thalweg_ports::ISSUES_KEPT.saturating_sub(all.first_issues.len());
    all.first_issues.extend(other.first_issues.into_iter().take(room));
}

/// Runs `work` and says now and then how far it is, from a thread beside it.
fn watched<R>(seen: &Seen, listener: &dyn ProbeProgress, work: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(TELL_EVERY) {
                listener.advanced(seen.packets(), seen.fraction());
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn summary(options: &ProbeOptions, outcome: Outcome, delivered: Delivered, clock: &Clock) -> ProbeSummary {
    let elapsed_s = clock.wall.elapsed().as_secs_f64();
    let cpu_s = usage::process_cpu().saturating_sub(clock.cpu).as_secs_f64();
    let Shape { pipelines, model, workers, readers, .. } = options.shape;
    let Volume { records, packets, octets } = delivered.volume;
    let mut summary = ProbeSummary {
        packets_exported: packets,
        bytes_exported: octets,
        records_exported: records,
        elapsed_s,
        cpu_s,
        rss_peak_bytes: usage::rss_peak_bytes(),
        pipelines,
        model: model.name().to_owned(),
        readers: if model == ModelKind::Farm { readers } else { 0 },
        workers,
        outlets: delivered.outlets,
        input_issues: issues(&outcome.input),
        ..ProbeSummary::default()
    };
    let mut drop_for = |reason: &str, packets: u64, octets: u64| {
        if packets > 0 {
            *summary.dropped.entry(reason.to_owned()).or_default() += packets;
            *summary.dropped_bytes.entry(reason.to_owned()).or_default() += octets;
        }
    };
    for totals in outcome.meters.iter().map(Meter::totals) {
        summary.bytes_seen += totals.seen.octets;
        summary.packets_cached += totals.cached.packets;
        summary.bytes_cached += totals.cached.octets;
        summary.flows += totals.flows_created;
        summary.flows_evicted += totals.evicted_cache_full + totals.evicted_bucket_full;
        summary.cache_bytes += totals.memory_octets;
        for (reason, amount) in totals.not_metered() {
            drop_for(reason.name(), amount.packets, amount.octets);
        }
        drop_for(UNSAMPLED, totals.unsampled.packets, totals.unsampled.octets);
        for reason in EndReason::ALL {
            let count = totals.records(reason);
            if count > 0 {
                *summary.records_by_reason.entry(reason.name().to_owned()).or_default() += count;
            }
        }
    }
    for book in outcome.books {
        summary.packets_seen += book.packets;
        summary.frame_bytes_seen += book.frame_octets;
        drop_for(EXPORT_QUEUE, book.lost.packets, book.lost.octets);
    }
    summary.packets_per_second = summary.packets_seen as f64 / elapsed_s.max(1e-9);
    summary.conserved = summary.is_conserved();
    summary
}

fn issues(report: &InputReport) -> InputIssues {
    InputIssues {
        total: report.issue_count(),
        by_kind: report.issues.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        first: report.first_issues.iter().map(ToString::to_string).collect(),
    }
}
