//! The delivery thread: passes records to all outlets.
//!
//! A failing outlet (lines to a full disk, a closed pipe) ends the run: the input is stopped, the other
//! outlets get the remaining records and end cleanly, and the error becomes the result of the run. A full
//! disk of a store is not such a failure: the store waits for space, or loses records and counts them.
//!
//! Periodically, and after everything was delivered, outlets receive the meters' totals, which collectors get
//! as options data. While workers run, another thread reads the meters ([`TotalsReader::read`]): a worker
//! that waits for room in the queue holds its shards, and the thread that makes room must not wait for them.
//!
//! Records of live packets get times of the wall clock, even if that was set since ([`WallShift`]).

mod collectors;
mod events;
mod failing;
mod kept;
mod lines;
pub(crate) mod messages;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use thalweg_flow::application::{Labeling, by_ports};
use thalweg_flow::export::{Amount, NatEvent, Statistics};
use thalweg_flow::{ExporterId, FlowKey, FlowRecord, MeterTotals};
use thalweg_ports::live::{LiveClock, WallShift};
use thalweg_store::{Notify, Trouble};

use crate::ProbeError;
use crate::interfaces::{Interfaces, SharedInterfaces};
use crate::record_queue::{Arrival, Arrivals};
use crate::summary::{OutletStatus, OutletSummary, UNSAMPLED};
pub(crate) use collectors::{Collectors, status};
pub(crate) use events::{EventArrivals, EventCounts, EventWay, event_queue};
pub(crate) use failing::Failing;
pub(crate) use kept::{Kept, KeptOptions, PATIENCE, Waiting};
pub(crate) use lines::Lines;

/// The longest interval between calls of [`Outlet::tick`].
const TICK: Duration = Duration::from_millis(100);
/// How often the status of outlets is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A consumer of records.
pub(crate) trait Outlet: Send {
    /// Takes records in the order of their shards.
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError>;

    /// [`Self::take`] for the last outlet of a batch, which may keep it.
    fn take_all(&mut self, batch: Vec<FlowRecord>) -> Result<Option<Vec<FlowRecord>>, ProbeError> {
        self.take(&batch).map(|()| Some(batch))
    }

    /// Called at least every [`TICK`] while few records arrive.
    fn tick(&mut self) -> Result<(), ProbeError>;

    /// Takes NAT events, if it has a format for them.
    fn take_nat_events(&mut self, _events: Vec<NatEvent>) {}

    /// Whether it takes NAT events as records.
    fn keeps_nat_events(&self) -> bool {
        false
    }

    /// Receives the newest totals.
    fn handle_statistics(&mut self, _statistics: &Statistics) {}

    /// Receives changed numbers or names of interfaces.
    fn handle_interfaces(&mut self, _interfaces: &Interfaces) {}

    /// The current status; also reports new losses.
    fn status(&mut self) -> Vec<OutletStatus> {
        Vec::new()
    }

    /// Ends the outlet; returns when everything about its records is known. `hurried` means that the run was
    /// told to end: then unreachable receivers are not waited for.
    fn finish(self: Box<Self>, hurried: bool) -> Result<Finished, ProbeError>;
}

/// What happened to all records of an outlet.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// By receiver.
    pub(crate) summaries: Vec<OutletSummary>,
    /// Records that reached none of its receivers, as far as known.
    pub(crate) missed: Amount,
}

/// Reads the totals of the meters.
pub type AskMeters = Box<dyn Fn() -> Vec<MeterTotals> + Send + Sync>;

/// Returns the current interfaces of the ports.
pub type AskInterfaces = Box<dyn FnMut() -> Interfaces + Send>;

/// Completes a record.
pub type Completion = Box<dyn FnMut(&mut FlowRecord) + Send>;

/// The result of a delivery.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Records that arrived here.
    pub(crate) amount: Amount,
    /// Records that reached no outlet, as far as known.
    pub(crate) missed: Amount,
    pub(crate) outlets: Vec<OutletSummary>,
}

/// The parts of a delivery.
pub(crate) struct Delivery {
    pub(crate) arrivals: Arrivals,
    /// The queue of NAT events, if there are any.
    pub(crate) events: Option<EventArrivals>,
    pub(crate) outlets: Vec<Box<dyn Outlet>>,
    pub(crate) totals: Arc<TotalsReader>,
    pub(crate) completing: Completing,
    /// Called whenever totals are passed on.
    pub(crate) ask_interfaces: Option<AskInterfaces>,
    /// Set when an outlet fails, or by another thread to end the run.
    pub(crate) stop: Arc<AtomicBool>,
    /// Receives messages about steps of the wall clock.
    pub(crate) notify: Notify,
    /// The outlets' status, for other threads.
    pub(crate) statuses: Statuses,
}

/// The recent status of all outlets.
pub(crate) type Statuses = Arc<Mutex<Vec<OutletStatus>>>;

impl Delivery {
    /// Starts the thread. It ends when all senders of the queue are gone.
    pub(crate) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<ScopedJoinHandle<'scope, Result<Delivered, ProbeError>>, ProbeError> {
        let thread = std::thread::Builder::new().name("export".to_owned());
        thread.spawn_scoped(scope, move || self.run()).map_err(ProbeError::Thread)
    }

    /// Delivers until all senders of the queue are gone.
    pub(crate) fn run(mut self) -> Result<Delivered, ProbeError> {
        let mut delivered = Delivered::default();
        let mut failed = None;
        let mut records = Vec::new();
        let mut looked: Option<Instant> = None;
        let mut clock = Trouble::default();
        loop {
            self.look_at_clock(&mut clock);
            if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                looked = Some(Instant::now());
                self.look();
            }
            let done = match self.arrivals.next(TICK) {
                Arrival::End => break,
                Arrival::Nothing => self.each_outlet(|outlet| outlet.tick()),
                Arrival::Batch(batch) => {
                    records.clear();
                    batch.unpack(&mut records);
                    self.arrivals.give_back(batch);
                    self.completing.complete(&mut records);
                    delivered.amount += Amount::of_all(&records);
                    let count = records.len();
                    let done = self.hand_out(&mut records);
                    self.arrivals.delivered(count);
                    done
                }
            };
            if let Err(error) = done.and(self.hand_out_events()) {
                self.stop.store(true, Ordering::Relaxed);
                failed.get_or_insert(error);
            }
            if let Some(statistics) = self.totals.take() {
                self.renew_interfaces();
                let statistics = self.with_lost_events(statistics);
                self.outlets.iter_mut().for_each(|outlet| outlet.handle_statistics(&statistics));
            }
        }
        if let Err(error) = self.hand_out_events() {
            failed.get_or_insert(error);
        }
        // No worker uses the meters any more.
        let last = self.with_lost_events(self.totals.last(delivered.amount));
        self.outlets.iter_mut().for_each(|outlet| outlet.handle_statistics(&last));
        let mut missed: Option<Amount> = None;
        let hurried = self.stop.load(Ordering::Relaxed);
        for outlet in self.outlets {
            match outlet.finish(hurried) {
                Ok(finished) => {
                    missed = Some(missed.map_or(finished.missed, |least| least_of(least, finished.missed)));
                    delivered.outlets.extend(finished.summaries);
                }
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        delivered.missed = missed.unwrap_or_default();
        match failed {
            Some(error) => Err(error),
            None => Ok(delivered),
        }
    }

    /// Calls `work` for each outlet. An outlet that fails gets nothing more.
    fn each_outlet(
        &mut self,
        mut work: impl FnMut(&mut dyn Outlet) -> Result<(), ProbeError>,
    ) -> Result<(), ProbeError> {
        let mut done = Ok(());
        self.outlets.retain_mut(|outlet| match work(outlet.as_mut()) {
            Ok(()) => true,
            Err(error) => {
                done = Err(error);
                false
            }
        });
        done
    }

    fn look(&mut self) {
        let statuses = self.outlets.iter_mut().flat_map(|outlet| outlet.status()).collect();
        *self.statuses.lock() = statuses;
    }

    /// Follows the wall clock. Frequent steps are reported once a minute.
    fn look_at_clock(&self, told: &mut Trouble) {
        let Some(wall) = &self.completing.wall else { return };
        let Some(step_ns) = wall.look(LiveClock::start()) else { return };
        if told.note(Instant::now()) {
            let (seconds, way) = (step_ns as f64 / 1e9, if step_ns < 0 { "back" } else { "forward" });
            self.notify.warn(&format!(
                "the wall clock was set {way} by {:.1} s (times it was set so far: {}): flow records have its time from now on, \
                 and last as long as was measured",
                seconds.abs(),
                wall.steps()
            ));
        }
    }

    fn renew_interfaces(&mut self) {
        let Some(ask) = &mut self.ask_interfaces else { return };
        if self.completing.interfaces.set(ask()) {
            let interfaces = self.completing.interfaces.get();
            self.outlets.iter_mut().for_each(|outlet| outlet.handle_interfaces(&interfaces));
        }
    }

    /// Passes events to all outlets; the last one gets the original.
    fn hand_out_events(&mut self) -> Result<(), ProbeError> {
        let batches: Vec<_> = self.events.iter().flat_map(EventArrivals::batches).collect();
        let shift_ns = self.completing.shift_ns();
        let mut done = Ok(());
        for mut batch in batches {
            batch.iter_mut().for_each(|event| event.shift_time(shift_ns));
            if self.outlets.iter().any(|outlet| outlet.keeps_nat_events()) {
                let exporter = self.completing.exporter;
                let record = |event: &NatEvent| FlowRecord { exporter, ..event.record() };
                let records: Vec<FlowRecord> = batch.iter().map(record).collect();
                done = done.and(self.each_outlet(|outlet| match outlet.keeps_nat_events() {
                    true => outlet.take(&records),
                    false => Ok(()),
                }));
            }
            let Some((last, others)) = self.outlets.split_last_mut() else { break };
            others.iter_mut().for_each(|outlet| outlet.take_nat_events(batch.clone()));
            last.take_nat_events(batch);
        }
        done
    }

    /// Counts lost events as records that were not sent.
    fn with_lost_events(&self, mut statistics: Statistics) -> Statistics {
        statistics.not_sent.records += self.events.as_ref().map_or(0, EventArrivals::lost);
        statistics
    }

    /// Passes records to all outlets; the last one may keep the list.
    fn hand_out(&mut self, records: &mut Vec<FlowRecord>) -> Result<(), ProbeError> {
        let mut left = self.outlets.len();
        self.each_outlet(|outlet| {
            left -= 1;
            if left > 0 {
                return outlet.take(records);
            }
            if let Some(given_back) = outlet.take_all(std::mem::take(records))? {
                *records = given_back;
            }
            Ok(())
        })
    }
}

/// The minimum of each number: what surely reached neither of two outlets.
fn least_of(one: Amount, other: Amount) -> Amount {
    Amount {
        records: one.records.min(other.records),
        packets: one.packets.min(other.packets),
        bytes: one.bytes.min(other.bytes),
    }
}

/// Adds facts that are unknown where records are made.
#[derive(Clone)]
pub(crate) struct Completing {
    /// Whether ports identify applications that are otherwise unknown.
    pub(crate) labeling: Labeling,
    /// The interfaces of the meter's ports.
    pub(crate) interfaces: SharedInterfaces,
    /// This program as the one that metered.
    pub(crate) exporter: ExporterId,
    /// Adds facts from elsewhere, such as routes.
    pub(crate) elsewhere: Option<Arc<Mutex<Completion>>>,
    /// The offset of the wall clock from the packets' clock, for live packets.
    pub(crate) wall: Option<Arc<WallShift>>,
}

impl Completing {
    fn shift_ns(&self) -> i64 {
        self.wall.as_ref().map_or(0, |wall| wall.shift_ns())
    }

    pub(crate) fn complete(&self, records: &mut [FlowRecord]) {
        let shift_ns = self.shift_ns();
        if shift_ns != 0 {
            records.iter_mut().for_each(|record| record.shift_times(shift_ns));
        }
        if self.labeling != Labeling::None {
            records.iter_mut().for_each(label);
        }
        let interfaces = self.interfaces.get();
        for record in records.iter_mut() {
            interfaces.number(record);
            record.exporter = self.exporter;
        }
        if let Some(elsewhere) = &self.elsewhere {
            let mut complete = elsewhere.lock();
            records.iter_mut().for_each(&mut *complete);
        }
    }
}

/// Sets a record's application by its ports, if it is unknown.
pub(crate) fn label(record: &mut FlowRecord) {
    if record.application == 0 {
        let FlowKey { protocol, src_port, dst_port, .. } = record.key;
        record.application = by_ports(protocol, src_port, dst_port).unwrap_or(0);
    }
}

/// The totals of all meters, on their way to the exporter.
pub(crate) struct TotalsReader {
    ask: AskMeters,
    latest: Mutex<Option<Statistics>>,
}

impl TotalsReader {
    /// `ask` reads the totals of the meters.
    pub(crate) fn new(ask: AskMeters) -> Self {
        Self { ask, latest: Mutex::new(None) }
    }

    /// Reads the meters and waits for each shard; not for the delivery thread.
    pub(crate) fn read(&self) {
        let statistics = statistics(&(self.ask)());
        *self.latest.lock() = Some(statistics);
    }

    /// The totals that were read last, unless already taken.
    fn take(&self) -> Option<Statistics> {
        self.latest.lock().take()
    }

    /// The final totals, for this much delivered: other records of the meters found the queue full.
    fn last(&self, delivered: Amount) -> Statistics {
        let statistics = statistics(&(self.ask)());
        let Amount { records, packets, bytes } = statistics.exported;
        let not_sent = Amount {
            records: records.saturating_sub(delivered.records),
            packets: packets.saturating_sub(delivered.packets),
            bytes: bytes.saturating_sub(delivered.bytes),
        };
        Statistics { not_sent, ..statistics }
    }
}

fn statistics(totals: &[MeterTotals]) -> Statistics {
    let mut statistics = Statistics::default();
    let of = |records, amount: thalweg_flow::Amount| Amount {
        records,
        packets: amount.packets,
        bytes: amount.bytes,
    };
    let mut drop_for = |name: &'static str, amount: thalweg_flow::Amount| {
        let amount = of(0, amount);
        match statistics.dropped.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += amount,
            None => statistics.dropped.push((name, amount)),
        }
    };
    for totals in totals {
        statistics.seen += of(0, totals.seen);
        statistics.exported += of(totals.records_sum(), totals.exported);
        statistics.cached += of(totals.flows_cached, totals.cached);
        totals.not_metered().for_each(|(reason, amount)| drop_for(reason.name(), amount));
        if totals.unsampled.packets > 0 {
            drop_for(UNSAMPLED, totals.unsampled);
        }
    }
    statistics
}
