//! The thread at the end: gives records to everybody who wants them.
//!
//! An outlet that fails (a full disk) ends the run: the input is asked to stop, what is on its way is let through without
//! being written, and the error is what the run comes to.
//!
//! From time to time, and last when all has been delivered, outlets are told the meters' books, which collectors are sent
//! as options data. They balance: what left the meters and has not come here yet counts as dropped by the queue.

mod collectors;
mod kept;
mod lines;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use thalweg_flow::export::{Amount, Statistics};
use thalweg_flow::{FlowRecord, MeterTotals};

use crate::ProbeError;
use crate::outbox::{Arrival, Arrivals, amount_of};
use crate::summary::{EXPORT_QUEUE, OutletSummary, UNSAMPLED};
pub(crate) use collectors::Collectors;
pub(crate) use kept::Kept;
pub(crate) use lines::Lines;

/// How often outlets are told that time passes.
const TICK: Duration = Duration::from_millis(100);
/// How often the meters are asked for their books: each of their shards is held up for a moment by it.
const BOOKS_EVERY: Duration = Duration::from_secs(10);

/// Whoever wants records.
pub(crate) trait Outlet: Send {
    /// Takes records, in the order in which their shards gave them.
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError>;

    /// The same for the last one that is given a batch: it may keep it.
    fn take_all(&mut self, batch: Vec<FlowRecord>) -> Result<Option<Vec<FlowRecord>>, ProbeError> {
        self.take(&batch).map(|()| Some(batch))
    }

    /// Time passes: called at least every [`TICK`] while few records come.
    fn tick(&mut self) -> Result<(), ProbeError>;

    /// The newest books.
    fn hear(&mut self, _statistics: &Statistics) {}

    /// There are no more records. Returns when all that can be said of them is known.
    fn finish(self: Box<Self>) -> Result<Vec<OutletSummary>, ProbeError>;
}

/// Tells the books of meters.
pub type Books = Box<dyn Fn() -> Vec<MeterTotals> + Send>;

/// Completes a record.
pub type Completion = Box<dyn FnMut(&mut FlowRecord) + Send>;

/// What was delivered.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Records that came here.
    pub(crate) amount: Amount,
    /// What each outlet did with them.
    pub(crate) outlets: Vec<OutletSummary>,
}

/// Who is given records, and whose.
pub(crate) struct Delivery {
    pub(crate) arrivals: Arrivals,
    pub(crate) outlets: Vec<Box<dyn Outlet>>,
    pub(crate) books: Books,
    /// Completes records by what is known elsewhere.
    pub(crate) complete: Option<Completion>,
    /// Set when an outlet fails.
    pub(crate) stop: Arc<AtomicBool>,
}

impl Delivery {
    /// Starts the thread. It ends when every way to the queue is gone.
    pub(crate) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<ScopedJoinHandle<'scope, Result<Delivered, ProbeError>>, ProbeError> {
        let thread = std::thread::Builder::new().name("export".to_owned());
        thread.spawn_scoped(scope, move || self.run()).map_err(ProbeError::Thread)
    }

    /// Delivers until every way to the queue is gone.
    pub(crate) fn run(mut self) -> Result<Delivered, ProbeError> {
        let mut delivered = Delivered::default();
        let mut failed = None;
        let mut told = Instant::now();
        loop {
            let done = match self.arrivals.next(TICK) {
                Arrival::End => break,
                Arrival::Nothing => self.outlets.iter_mut().try_for_each(|outlet| outlet.tick()),
                Arrival::Batch(mut batch) => {
                    if let Some(complete) = &mut self.complete {
                        batch.iter_mut().for_each(complete);
                    }
                    delivered.amount += amount_of(&batch);
                    self.hand_out(batch)
                }
            };
            if let Err(error) = done {
                self.stop.store(true, Ordering::Relaxed);
                self.outlets.clear();
                failed.get_or_insert(error);
            }
            if told.elapsed() >= BOOKS_EVERY {
                told = Instant::now();
                self.tell_books(delivered.amount);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.tell_books(delivered.amount);
        for outlet in self.outlets {
            delivered.outlets.extend(outlet.finish()?);
        }
        Ok(delivered)
    }

    fn hand_out(&mut self, batch: Vec<FlowRecord>) -> Result<(), ProbeError> {
        let Some((last, others)) = self.outlets.split_last_mut() else {
            self.arrivals.give_back(batch);
            return Ok(());
        };
        others.iter_mut().try_for_each(|outlet| outlet.take(&batch))?;
        if let Some(batch) = last.take_all(batch)? {
            self.arrivals.give_back(batch);
        }
        Ok(())
    }

    fn tell_books(&mut self, delivered: Amount) {
        if self.outlets.is_empty() {
            return;
        }
        let statistics = statistics(&(self.books)(), delivered);
        self.outlets.iter_mut().for_each(|outlet| outlet.hear(&statistics));
    }
}

/// The books of all meters together.
fn statistics(books: &[MeterTotals], delivered: Amount) -> Statistics {
    let mut statistics = Statistics { exported: delivered, ..Statistics::default() };
    let of = |records, amount: thalweg_flow::Amount| Amount {
        records,
        packets: amount.packets,
        octets: amount.octets,
    };
    let (mut left, mut unsampled) = (Amount::default(), Amount::default());
    let mut drop_for = |name: &'static str, amount: Amount| match statistics
        .dropped
        .iter_mut()
        .find(|(known, _)| *known == name)
    {
        Some((_, sum)) => *sum += amount,
        None => statistics.dropped.push((name, amount)),
    };
    for totals in books {
        statistics.seen += of(0, totals.seen);
        statistics.cached += of(0, totals.cached);
        left += of(totals.records_sum(), totals.exported);
        unsampled += of(0, totals.unsampled);
        for (reason, amount) in totals.not_metered() {
            drop_for(reason.name(), of(0, amount));
        }
    }
    let on_the_way = Amount {
        records: left.records.saturating_sub(delivered.records),
        packets: left.packets.saturating_sub(delivered.packets),
        octets: left.octets.saturating_sub(delivered.octets),
    };
    for (name, amount) in [(UNSAMPLED, unsampled), (EXPORT_QUEUE, on_the_way)] {
        if amount.packets > 0 {
            drop_for(name, amount);
        }
    }
    statistics
}
