//! Delivery of records for a router, which meters as long as its process lives.
//!
//! Workers pass on records without waiting: records that find the queue full are lost and counted. Behind the
//! queue, records may be completed with facts about their addresses before they go to collectors and a store.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_base::PacketSample;
use thalweg_flow::alarm::{AlarmAction, AlarmReport};
use thalweg_flow::export::{Amount, NatEvent};
use thalweg_flow::{FlowRecord, MeterOptions, Watch};
use thalweg_ports::live::WallShift;
use thalweg_store::{Notify, WriterOptions};

use crate::alarm_rules::AlarmOptions;
use crate::alarms::Alarms;
use crate::cached::{MeterCaches, ShowMeters};
use crate::deliver::{
    AskInterfaces, AskMeters, Collectors, Completing, Completion, Delivered, Delivery, EventCounts, EventWay,
    Kept, KeptOptions, Outlet, Statuses, TotalsReader, Waiting, event_queue,
};
use crate::interfaces::SharedInterfaces;
use crate::options::this_exporter;
use crate::packed::Packed;
use crate::pipelines::died;
use crate::record_queue::{BATCH_RECORDS, RecordQueue, queue};
use crate::sflow::{Agent, AgentOptions, CompleteSample, CountersInterval, ReadCounters, SampleQueue};
use crate::summary::{OutletStatus, OutletSummary};
use crate::{ExportTargets, KeepOptions, ProbeError};

/// How often the meter's totals are read, which holds each shard for a moment.
const TOTALS_INTERVAL: Duration = Duration::from_secs(10);

/// The receivers of a router's records.
pub struct RouterDeliveryOptions {
    pub export: ExportTargets,
    /// The router's name in records; by default that of the host.
    pub exporter: Option<String>,
    /// The folder of a dataset.
    pub store: Option<PathBuf>,
    pub keep: KeepOptions,
    /// Receives problems.
    pub notify: Notify,
    /// The meter's options, as far as collectors receive them.
    pub meter: MeterOptions,
    /// The interfaces of the ports; read again from time to time.
    pub interfaces: AskInterfaces,
    /// Reads the meter's totals.
    pub ask: AskMeters,
    /// Gives queries of the dataset access to the meter.
    pub meters: ShowMeters,
    /// Completes a record.
    pub complete: Completion,
    /// Finds the route of a sampled packet, on the thread that sends samples.
    pub complete_sample: CompleteSample,
    /// Reads counters of interfaces, on the same thread.
    pub counters: ReadCounters,
    pub alarms: AlarmOptions,
    /// What is done about alarms besides telling them.
    pub action: Option<Box<dyn AlarmAction>>,
}

/// A running delivery.
pub struct RouterDelivery {
    thread: JoinHandle<Result<Delivered, ProbeError>>,
    statuses: Statuses,
    /// Sends samples.
    agent: Option<(JoinHandle<Vec<OutletSummary>>, Statuses)>,
    /// How often it sends counters of interfaces.
    counters_interval: CountersInterval,
    wall: Arc<WallShift>,
}

/// The entry to a delivery, for workers.
pub struct RouterWay {
    state: Mutex<State>,
    totals: Arc<TotalsReader>,
    lost: [AtomicU64; 3],
    events: Arc<EventCounts>,
    /// With what completes the flows that they judge.
    alarms: Option<(Alarms, Completing)>,
    /// `None` without collectors of sFlow, and when closed.
    samples: RwLock<Option<SampleQueue>>,
}

struct State {
    /// `None` when closed.
    way: Option<RecordQueue>,
    /// Records of all workers that do not fill a batch yet.
    gathered: Packed,
    /// `None` when closed.
    events: Option<EventWay>,
    /// When the meter's totals were last read; `None` if they are due.
    totals_read: Option<Instant>,
}

impl RouterDelivery {
    /// Opens collectors and store, and starts the thread. Fails if one of them cannot be opened.
    pub fn start(options: RouterDeliveryOptions) -> Result<(Self, RouterWay), ProbeError> {
        let mut outlets: Vec<Box<dyn Outlet>> = Vec::new();
        let (way, arrivals) = queue();
        let totals = Arc::new(TotalsReader::new(options.ask));
        let elsewhere = Some(Arc::new(Mutex::new(options.complete)));
        let mut ask_interfaces = options.interfaces;
        let interfaces = SharedInterfaces::new(ask_interfaces());
        let labeling = options.meter.labeling;
        let wall = Arc::<WallShift>::default();
        let exporter = this_exporter(options.exporter.as_deref(), options.export.observation_domain);
        let completing = Completing {
            labeling,
            interfaces: interfaces.clone(),
            exporter,
            elsewhere,
            wall: Some(Arc::clone(&wall)),
        };
        if let Some(folder) = &options.store {
            let cache = MeterCaches {
                meters: options.meters,
                passage: Arc::clone(way.passage()),
                completing: completing.clone(),
            };
            let writing = options.keep.writer(options.meter.community_id)?;
            let kept = KeptOptions {
                writing: WriterOptions { notify: options.notify.clone(), ..writing },
                waiting: Waiting::Never,
                cache: Some(Arc::new(cache)),
            };
            outlets.push(Box::new(Kept::open(folder, kept)?));
        }
        let export = options.export.of_records();
        if !export.addresses.is_empty() {
            let collectors =
                Collectors::open(&export, &options.meter, &interfaces, false, options.notify.clone())?;
            outlets.push(Box::new(collectors));
        }
        let alarms = match options.alarms.rules.is_empty() {
            true => None,
            false => {
                let alarms = Alarms::start(&options.alarms, options.action, false, &options.notify)?;
                Some((alarms, completing.clone()))
            }
        };
        let counters_interval = CountersInterval::new(options.export.sflow.counters);
        let sflow = AgentOptions {
            waits: false,
            interfaces: interfaces.clone(),
            notify: options.notify.clone(),
            complete: Some(options.complete_sample),
            counters: Some((options.counters, counters_interval.clone())),
        };
        let (agent, samples) = Agent::open(&options.export, sflow)?.unzip();
        let (event_way, events) = event_queue();
        let statuses = Statuses::default();
        let delivery = Delivery {
            arrivals,
            events: Some(events),
            outlets,
            totals: Arc::clone(&totals),
            completing,
            ask_interfaces: Some(ask_interfaces),
            // It only ends because the router was told to.
            stop: Arc::new(AtomicBool::new(true)),
            notify: options.notify,
            statuses: Arc::clone(&statuses),
        };
        let thread = std::thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(move || delivery.run()).map_err(ProbeError::Thread)?;
        let agent_statuses = agent.as_ref().map(Agent::statuses);
        let agent = agent.map(Agent::start_alone).transpose()?.zip(agent_statuses);
        let way =
            RouterWay { alarms, samples: RwLock::new(samples), ..RouterWay::new(way, event_way, totals) };
        Ok((Self { thread, statuses, agent, counters_interval, wall }, way))
    }

    /// The recent status of collectors and store.
    pub fn statuses(&self) -> Vec<OutletStatus> {
        let mut statuses = self.statuses.lock().clone();
        statuses.extend(self.agent.iter().flat_map(|(_, of_samples)| of_samples.lock().clone()));
        statuses
    }

    /// Sends counters of interfaces to collectors of sFlow this often from now on; `None` is never.
    pub fn set_counters_interval(&self, interval: Option<Duration>) {
        self.counters_interval.set(interval);
    }

    /// How often the wall clock was set since the start.
    pub fn clock_steps(&self) -> u64 {
        self.wall.steps()
    }

    /// Waits until everything is delivered; the entry must be closed. Returns the error of a failed outlet.
    pub fn finish(self) -> Result<Vec<OutletSummary>, ProbeError> {
        let delivered = self.thread.join().unwrap_or_else(|_| Err(died("the export thread")));
        let sampled = self.agent.map(|(agent, _)| agent.join().map_err(|_| died("the sFlow thread")));
        let mut outlets = delivered?.outlets;
        outlets.extend(sampled.transpose()?.into_iter().flatten());
        Ok(outlets)
    }
}

impl RouterWay {
    fn new(way: RecordQueue, events: EventWay, totals: Arc<TotalsReader>) -> Self {
        let counts = Arc::clone(events.counts());
        let (way, events) = (Some(way), Some(events));
        let state = State { way, gathered: Packed::default(), events, totals_read: Some(Instant::now()) };
        Self {
            state: Mutex::new(state),
            totals,
            lost: Default::default(),
            events: counts,
            alarms: None,
            samples: RwLock::default(),
        }
    }

    /// A watcher for a shard of a meter, if there are rules for alarms.
    pub fn watcher(&self) -> Option<Box<dyn Watch>> {
        self.alarms.as_ref().and_then(|(alarms, completing)| alarms.watcher(completing))
    }

    /// What alarms there are.
    pub fn alarms(&self) -> AlarmReport {
        self.alarms.as_ref().map(|(alarms, _)| alarms.report()).unwrap_or_default()
    }

    /// Takes all records from the list. Waits only for other workers that do the same.
    pub fn take(&self, records: &mut Vec<FlowRecord>) {
        let mut state = self.state();
        records.drain(..).for_each(|record| state.gathered.push(&record));
        if state.gathered.len() >= BATCH_RECORDS {
            self.send(&mut state);
        }
    }

    /// Takes all NAT events from the list; `dropped` more were lost at their source.
    pub fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64) {
        self.events.lose(dropped);
        match &mut self.state().events {
            Some(way) => way.take(events),
            None => self.events.lose(events.drain(..).len() as u64),
        }
    }

    /// Takes all samples from the list. Waits for nobody: those that find the queue full are lost.
    pub fn take_samples(&self, samples: &mut Vec<PacketSample>) {
        match &*self.samples.read() {
            Some(queue) => samples.drain(..).for_each(|sample| queue.send(sample)),
            None => samples.clear(),
        }
    }

    /// Adds packets to the pool of a port that no sample tells.
    pub fn add_to_pool(&self, port: u16, packets: u32) {
        if let Some(queue) = &*self.samples.read() {
            queue.add_pool(port, packets);
        }
    }

    /// NAT events that were passed on, and those that were lost.
    pub fn nat_events(&self) -> (u64, u64) {
        (self.events.handed_over(), self.events.lost())
    }

    /// Passes on everything gathered, and reads the meter's totals if due. Not for a thread that works on the
    /// meter's shards.
    pub fn flush(&self) {
        let mut state = self.state();
        if !state.gathered.is_empty() {
            self.send(&mut state);
        }
        if let Some(events) = &mut state.events {
            events.send();
        }
        let is_due = state.totals_read.is_none_or(|at| at.elapsed() >= TOTALS_INTERVAL);
        if is_due {
            state.totals_read = Some(Instant::now());
        }
        drop(state);
        if is_due {
            self.totals.read();
        }
    }

    /// The ports changed: the next flush reads totals and interfaces.
    pub fn ask_again(&self) {
        self.state().totals_read = None;
    }

    /// Closes the entry: later records are lost. The delivery ends.
    pub fn close(&self) {
        self.flush();
        let mut state = self.state();
        (state.way, state.events) = (None, None);
        *self.samples.write() = None;
    }

    /// Records that found the queue full or closed.
    pub fn lost(&self) -> Amount {
        let [records, packets, bytes] = [0, 1, 2].map(|n| self.lost[n].load(Ordering::Relaxed));
        Amount { records, packets, bytes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn send(&self, state: &mut State) {
        let empty = state.way.as_ref().map(RecordQueue::empty_batch).unwrap_or_default();
        let batch = std::mem::replace(&mut state.gathered, empty);
        let sent = match &state.way {
            Some(way) => way.try_send(batch),
            None => Err(batch),
        };
        if let Err(refused) = sent {
            if let Some(way) = &state.way {
                way.passage().add(refused.len());
            }
            let lost = refused.amount();
            for (sum, lost) in self.lost.iter().zip([lost.records, lost.packets, lost.bytes]) {
                sum.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }
}
