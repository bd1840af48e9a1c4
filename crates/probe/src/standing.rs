//! Delivery for somebody who meters for as long as the process lives: a router.
//!
//! Workers hand records over and never wait: what finds the queue full is lost and counted. Behind the queue records may be
//! completed, by what is known of their addresses elsewhere, before they go to collectors and to a store.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_flow::export::{Amount, NatEvent};
use thalweg_flow::{FlowRecord, MeterOptions};
use thalweg_store::{Notify, Retention};

use crate::cached::{MeterCaches, ShowMeters};
use crate::deliver::{
    AskInterfaces, AskMeters, Books, Collectors, Completing, Completion, Delivered, Delivery, EventCounts,
    EventWay, Kept, KeptOptions, Outlet, Waiting, event_queue,
};
use crate::interfaces::SharedInterfaces;
use crate::outbox::{BATCH_RECORDS, Way, queue};
use crate::packed::Packed;
use crate::pipelines::died;
use crate::summary::OutletSummary;
use crate::{ExportTargets, ProbeError};

/// How often the meter is asked for its books: each of its shards is held up for a moment by it.
const BOOKS_EVERY: Duration = Duration::from_secs(10);

/// Who gets the records of a router.
pub struct StandingOptions {
    /// Collectors.
    pub export: ExportTargets,
    /// The folder of a dataset.
    pub store: Option<PathBuf>,
    /// What of the dataset is kept.
    pub retention: Retention,
    /// Where troubles are told.
    pub notify: Notify,
    /// What the meter is told, as far as collectors are told.
    pub meter: MeterOptions,
    /// The interfaces of the ports; asked for again from time to time.
    pub interfaces: AskInterfaces,
    /// Asks the meter for its books.
    pub ask: AskMeters,
    /// Shows the meter, for answers from the dataset.
    pub meters: ShowMeters,
    /// Completes a record.
    pub complete: Completion,
}

/// A delivery that runs.
pub struct StandingDelivery {
    thread: JoinHandle<Result<Delivered, ProbeError>>,
    failed: Arc<AtomicBool>,
}

/// The way to it.
pub struct StandingWay {
    state: Mutex<State>,
    books: Arc<Books>,
    lost: [AtomicU64; 3],
    events: Arc<EventCounts>,
}

struct State {
    /// None when it is closed.
    way: Option<Way>,
    /// Fewer records than make a batch, of all workers.
    gathered: Packed,
    /// None when it is closed.
    events: Option<EventWay>,
    books_read: Instant,
}

impl StandingDelivery {
    /// Opens collectors and store, and starts the thread. Errors if one of them cannot be opened.
    pub fn start(options: StandingOptions) -> Result<(Self, StandingWay), ProbeError> {
        let mut outlets: Vec<Box<dyn Outlet>> = Vec::new();
        let (way, arrivals) = queue();
        let books = Arc::new(Books::new(options.ask));
        let elsewhere = Some(Arc::new(Mutex::new(options.complete)));
        let mut ask_interfaces = options.interfaces;
        let interfaces = SharedInterfaces::new(ask_interfaces());
        let labelling = options.meter.labelling;
        let completing = Completing { labelling, interfaces: interfaces.clone(), elsewhere };
        if let Some(folder) = &options.store {
            let cache = MeterCaches {
                meters: options.meters,
                passage: Arc::clone(way.passage()),
                completing: completing.clone(),
            };
            let kept = KeptOptions {
                retention: options.retention,
                waiting: Waiting::Never,
                cache: Some(Arc::new(cache)),
                notify: options.notify,
            };
            outlets.push(Box::new(Kept::open(folder, kept)?));
        }
        if !options.export.addresses.is_empty() {
            let collectors = Collectors::open(&options.export, &options.meter, &interfaces, false)?;
            outlets.push(Box::new(collectors));
        }
        let (event_way, events) = event_queue();
        let failed = Arc::new(AtomicBool::new(false));
        let (told, events, stop) = (Arc::clone(&books), Some(events), Arc::clone(&failed));
        let ask_interfaces = Some(ask_interfaces);
        let delivery = Delivery { arrivals, events, outlets, books: told, completing, ask_interfaces, stop };
        let thread = std::thread::Builder::new().name("export".to_owned());
        let thread = thread.spawn(move || delivery.run()).map_err(ProbeError::Thread)?;
        Ok((Self { thread, failed }, StandingWay::new(way, event_way, books)))
    }

    /// Whether an outlet failed: records go nowhere since.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits until all is delivered. The way to it must be closed. Errors with what an outlet failed of.
    pub fn finish(self) -> Result<Vec<OutletSummary>, ProbeError> {
        match self.thread.join() {
            Ok(delivered) => Ok(delivered?.outlets),
            Err(_) => Err(died("the export thread")),
        }
    }
}

impl StandingWay {
    fn new(way: Way, events: EventWay, books: Arc<Books>) -> Self {
        let counts = Arc::clone(events.counts());
        let (way, events) = (Some(way), Some(events));
        let state = State { way, gathered: Packed::default(), events, books_read: Instant::now() };
        Self { state: Mutex::new(state), books, lost: Default::default(), events: counts }
    }

    /// Takes all records out of the list. Waits for nobody but others that do the same.
    pub fn take(&self, records: &mut Vec<FlowRecord>) {
        let mut state = self.state();
        records.drain(..).for_each(|record| state.gathered.push(&record));
        if state.gathered.len() >= BATCH_RECORDS {
            self.send(&mut state);
        }
    }

    /// Takes all events of NAT out of the list; `dropped` more were lost where they were made.
    pub fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64) {
        self.events.lose(dropped);
        match &mut self.state().events {
            Some(way) => way.take(events),
            None => self.events.lose(events.drain(..).len() as u64),
        }
    }

    /// Events of NAT that were handed over, and those that were lost on the way or before.
    pub fn nat_events(&self) -> (u64, u64) {
        (self.events.handed_over(), self.events.lost())
    }

    /// Holds nothing back any longer, and asks the meter for its books if that was long ago. Not for who works on its shards.
    pub fn flush(&self) {
        let mut state = self.state();
        if !state.gathered.is_empty() {
            self.send(&mut state);
        }
        if let Some(events) = &mut state.events {
            events.send();
        }
        let is_due = state.books_read.elapsed() >= BOOKS_EVERY;
        if is_due {
            state.books_read = Instant::now();
        }
        drop(state);
        if is_due {
            self.books.read();
        }
    }

    /// No more records come: what does is lost. The delivery ends.
    pub fn close(&self) {
        self.flush();
        let mut state = self.state();
        (state.way, state.events) = (None, None);
    }

    /// What found the queue full, or closed.
    pub fn lost(&self) -> Amount {
        let [records, packets, octets] = [0, 1, 2].map(|n| self.lost[n].load(Ordering::Relaxed));
        Amount { records, packets, octets }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, state: &mut State) {
        let empty = state.way.as_ref().map(Way::empty_batch).unwrap_or_default();
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
            for (sum, lost) in self.lost.iter().zip([lost.records, lost.packets, lost.octets]) {
                sum.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }
}
