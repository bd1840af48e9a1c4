//! Assembles the parts of a probe and runs them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Meter;
use parking_lot::Mutex;
use thalweg_base::ChunkBuilder;
use thalweg_exec::{ModelKind, Source, THREADS_MAX};
use thalweg_flow::{EndReason, MeterOptions};
use thalweg_store::live::Cache;
use thalweg_store::{Notify, WriterOptions};

use crate::account::{Outcome, WorkerTotals, summary};
use crate::alarms::Alarms;
use crate::cached::MeterCaches;
use crate::deliver::{
    Collectors, Completing, Completion, Delivery, Kept, KeptOptions, Lines, Outlet, TotalsReader, Waiting,
};
use crate::enrich::{EnrichFiles, Enrichment};
use crate::inputs::{self, Opened, Read};
use crate::interfaces::SharedInterfaces;
use crate::notices::passing_on;
use crate::pipelines::{Pipelines, died};
use crate::plan::{Handing, ProbePlan};
use crate::record_queue::{RecordQueue, queue};
use crate::sflow::{Agent, AgentOptions, CountersInterval, Samplers, kernel_counters};
use crate::source::Seen;
use crate::{Input, OptionsError, ProbeError, ProbeOptions, ProbeProgress, ProbeSummary, Shape, usage};

/// How often progress is reported.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// How often the meters' totals are read, which holds each shard for a moment.
const TOTALS_INTERVAL: Duration = Duration::from_secs(10);
/// How long a worker waits for room in the record queue while packets arrive: less than the 7 ms in which 0.6
/// million packets per second fill a capture ring of 4,096 frames.
const TIMEOUT: Duration = Duration::from_millis(5);

/// Meters the input, delivers the records, and accounts for every packet. Ends early but cleanly when `stop`
/// is set.
///
/// # Errors
///
/// Invalid options, and failing inputs or outputs. An unreadable packet is not an error but a drop.
pub fn probe(
    options: &ProbeOptions,
    stop: &Arc<AtomicBool>,
    progress: &dyn ProbeProgress,
) -> Result<ProbeSummary, ProbeError> {
    check(options)?;
    passing_on(progress, |notify| probe_with_notices(options, stop, progress, notify))
}

fn probe_with_notices(
    options: &ProbeOptions,
    stop: &Arc<AtomicBool>,
    progress: &dyn ProbeProgress,
    notify: Notify,
) -> Result<ProbeSummary, ProbeError> {
    let names = inputs::port_names(&options.input);
    let seen = Arc::new(Seen::default());
    let mut clock = Clock::start();
    let opened = inputs::open(options, &names, stop, &seen)?;
    if options.preloads() {
        clock = Clock::start();
    }
    let meters = meters(options)?;
    let (way, arrivals) = queue();
    let (metered, shown) = (meters.clone(), meters.clone());
    let totals = TotalsReader::new(Box::new(move || metered.iter().map(|meter| meter.totals()).collect()));
    let totals = Arc::new(totals);
    let interfaces = SharedInterfaces::new(inputs::interfaces(&opened, &names));
    let elsewhere = completion(&options.enrich, &notify)?;
    let completing = Completing {
        labeling: options.meter.labeling,
        interfaces: interfaces.clone(),
        exporter: options.exporter(),
        elsewhere,
        // Files have their own times.
        wall: matches!(options.input, Input::Live(_)).then(Arc::default),
    };
    let cache = MeterCaches {
        meters: Box::new(move || shown.clone()),
        passage: Arc::clone(way.passage()),
        completing: completing.clone(),
    };
    let alarms = watch(options, &meters, &cache.completing, &notify)?;
    let outlets = outlets(options, &interfaces, (stop, cache), &notify)?;
    let waits = matches!(options.input, Input::Files(_));
    let sflow = AgentOptions {
        waits,
        interfaces: interfaces.clone(),
        notify: notify.clone(),
        complete: None,
        counters: (!waits).then(|| (kernel_counters(), CountersInterval::new(options.export.sflow.counters))),
    };
    let (agent, queue) = Agent::open(&options.export, sflow)?.unzip();
    let samplers = queue.map(|queue| Samplers::new(queue, options.export.sflow.sampling));
    let delivery = Delivery {
        arrivals,
        events: None,
        outlets,
        totals: Arc::clone(&totals),
        completing,
        ask_interfaces: None,
        stop: Arc::clone(stop),
        notify,
        statuses: Arc::default(),
    };
    let (outcome, delivered) = thread::scope(|scope| {
        let delivery = delivery.start(scope)?;
        let agent = agent.map(|agent| agent.start(scope)).transpose()?;
        let outcome =
            watched(&seen, &totals, progress, || run(options, opened, meters, (way, samplers), stop));
        let delivered = delivery.join().unwrap_or_else(|_| Err(died("the export thread")));
        let sampled = agent.map(|agent| agent.join().map_err(|_| died("the sFlow thread"))).transpose();
        let (outcome, mut delivered) = (outcome?, delivered?);
        delivered.outlets.extend(sampled?.into_iter().flatten());
        Ok::<_, ProbeError>((outcome, delivered))
    })?;
    let (elapsed, cpu) = clock.read();
    let alarms = alarms.map(|alarms| alarms.finish());
    Ok(ProbeSummary { alarms, ..summary(options, outcome, delivered, elapsed, cpu) })
}

/// Begins to watch the meters, if there are rules for alarms.
fn watch(
    options: &ProbeOptions,
    meters: &[Arc<Meter>],
    completing: &Completing,
    notify: &Notify,
) -> Result<Option<Alarms>, ProbeError> {
    if options.alarms.rules.is_empty() {
        return Ok(None);
    }
    let waits = matches!(options.input, Input::Files(_));
    let alarms = Alarms::start(&options.alarms, None, waits, notify)?;
    meters.iter().for_each(|meter| meter.watch(|| alarms.watcher(completing)));
    Ok(Some(alarms))
}

/// Adds what files say about addresses, if there are any.
fn completion(files: &EnrichFiles, notify: &Notify) -> Result<Option<Arc<Mutex<Completion>>>, ProbeError> {
    if files.is_empty() {
        return Ok(None);
    }
    let complete: Completion = Box::new(Enrichment::start(files, notify)?.completion());
    Ok(Some(Arc::new(Mutex::new(complete))))
}

/// Measures the time of a run.
struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu: usage::process_cpu() }
    }

    /// Wall-clock time, and processor time of all threads.
    fn read(&self) -> (Duration, Duration) {
        (self.wall.elapsed(), usage::process_cpu().saturating_sub(self.cpu))
    }
}

fn check(options: &ProbeOptions) -> Result<(), OptionsError> {
    let Shape { pipelines, model, workers, .. } = options.shape;
    if !(1..=THREADS_MAX).contains(&pipelines) {
        return Err(OptionsError::Pipelines(pipelines));
    }
    if model == ModelKind::Serial && workers != 1 {
        return Err(OptionsError::SerialWorkers(workers));
    }
    if let Some(chunk) = options.chunk_packets
        && !(1..=ChunkBuilder::PACKETS_MAX).contains(&chunk)
    {
        return Err(OptionsError::Chunk(chunk));
    }
    let to_stdout = [&options.json, &options.csv].into_iter().flatten();
    if to_stdout.filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(OptionsError::StandardOutputTwice);
    }
    inputs::check(options)
}

fn outlets(
    options: &ProbeOptions,
    interfaces: &SharedInterfaces,
    (stop, cache): (&Arc<AtomicBool>, MeterCaches),
    notify: &Notify,
) -> Result<Vec<Box<dyn Outlet>>, ProbeError> {
    let mut outlets = Lines::outlets(&options.json, &options.csv, options.meter.community_id)?;
    let waits = matches!(options.input, Input::Files(_));
    if let Some(folder) = &options.store {
        let waiting = if waits { Waiting::Until(Arc::clone(stop)) } else { Waiting::Never };
        let cache: Option<Arc<dyn Cache>> = Some(Arc::new(cache));
        let kept = KeptOptions {
            writing: WriterOptions {
                notify: notify.clone(),
                ..options.keep.writer(options.meter.community_id)?
            },
            waiting,
            cache,
        };
        outlets.push(Box::new(Kept::open(folder, kept)?));
    }
    let export = options.export.of_records();
    if !export.addresses.is_empty() {
        outlets.push(Box::new(Collectors::open(&export, &options.meter, interfaces, waits, notify.clone())?));
    }
    Ok(outlets)
}

fn run(
    options: &ProbeOptions,
    opened: Opened,
    meters: Vec<Arc<Meter>>,
    (way, samplers): (RecordQueue, Option<Samplers>),
    stop: &AtomicBool,
) -> Result<Outcome, ProbeError> {
    let plans: Vec<_> =
        meters.iter().map(|meter| plan(options, meter, &way).with_samples(samplers.clone())).collect();
    let pipelines = Pipelines { plans: &plans, shape: &options.shape, keep: options.preloads(), stop };
    let (ran, read) = match opened {
        Opened::Captures(mut captures) => {
            let ran = pipelines.run_captures(&mut captures);
            // The input's own error explains more than its consequences.
            (ran, inputs::finish(captures)?)
        }
        Opened::Live { feeds, facts, told } => {
            let boxed =
                |feeds: Vec<_>| feeds.into_iter().map(|feed| -> Box<dyn Source<_>> { Box::new(feed) });
            let ran = pipelines.run(feeds.into_iter().map(|feeds| boxed(feeds).collect()).collect());
            (ran, Read { captured: told.summaries(&facts), ..Read::default() })
        }
    };
    let mut totals: Vec<WorkerTotals> =
        ran?.into_iter().flat_map(|report| report.scratches).map(WorkerTotals::close).collect();
    let mut sender = way.sender(None);
    for meter in &meters {
        meter.end_watch();
        for shard in 0..meter.shard_count() {
            meter.flush(shard, EndReason::ForcedEnd, &mut |record| sender.put(record));
        }
    }
    totals.push(WorkerTotals::close_sender(sender));
    Ok(Outcome { totals, meters, read })
}

fn meters(options: &ProbeOptions) -> Result<Vec<Arc<Meter>>, ProbeError> {
    let pipelines = options.shape.pipelines;
    let flows_max = options.meter.flows_max.div_ceil(pipelines as u32);
    let watched = !options.alarms.rules.is_empty();
    let mut meter = MeterOptions { flows_max, watched, ..options.meter.clone() };
    if let Input::Live(_) = options.input {
        // Senders of packets must not be able to predict where flows are placed.
        meter.hash_key = [(); 2].map(|()| RandomState::new().build_hasher().finish());
    }
    (0..pipelines).map(|_| Ok(Arc::new(Meter::new(&meter)?))).collect()
}

fn plan(options: &ProbeOptions, meter: &Arc<Meter>, way: &RecordQueue) -> ProbePlan {
    let handing = match options.input {
        // Packets of files can wait.
        Input::Files(_) => Handing { timeout: None, at_once: false },
        Input::Live(_) => Handing { timeout: Some(TIMEOUT), at_once: true },
    };
    let Shape { model, workers, .. } = options.shape;
    let plan = ProbePlan::new(Arc::clone(meter), options.parsing, (model, workers), way.clone(), handing);
    plan.with_labeling(options.meter.labeling).with_work(options.work)
}

/// Runs `work`, while a second thread reports progress and reads the totals.
fn watched<R>(
    seen: &Seen,
    totals: &TotalsReader,
    listener: &dyn ProbeProgress,
    work: impl FnOnce() -> R,
) -> R {
    thread::scope(|scope| {
        let (done, waiting) = channel::<()>();
        scope.spawn(move || {
            let mut read = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(TELL_EVERY) {
                listener.advanced(seen.packets(), seen.fraction());
                if read.elapsed() >= TOTALS_INTERVAL {
                    read = Instant::now();
                    totals.read();
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}
