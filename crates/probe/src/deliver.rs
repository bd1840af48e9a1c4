//! The thread at the end: gives records to everybody who wants them.
//!
//! An outlet that fails (a full disk) ends the run: the input is asked to stop, what is on its way is let through without
//! being written, and the error is what the run comes to.

mod lines;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use thalweg_flow::FlowRecord;

use crate::ProbeError;
use crate::outbox::{Arrival, Arrivals, Volume};
use crate::summary::OutletSummary;
pub(crate) use lines::Lines;

/// How often outlets are told that time passes.
const TICK: Duration = Duration::from_millis(100);

/// Whoever wants records.
pub(crate) trait Outlet: Send {
    /// Takes records, in the order in which their shards gave them.
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError>;

    /// Time passes: called at least every [`TICK`] while few records come.
    fn tick(&mut self) -> Result<(), ProbeError>;

    /// There are no more records. Returns when all that can be said of them is known.
    fn finish(self: Box<Self>) -> Result<OutletSummary, ProbeError>;
}

/// What was delivered.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Records that came here.
    pub(crate) volume: Volume,
    /// What each outlet did with them.
    pub(crate) outlets: Vec<OutletSummary>,
}

/// Starts the thread. It ends when every way to the queue is gone.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    arrivals: Arrivals,
    outlets: Vec<Box<dyn Outlet>>,
    stop: Arc<AtomicBool>,
) -> Result<ScopedJoinHandle<'scope, Result<Delivered, ProbeError>>, ProbeError> {
    let delivery = std::thread::Builder::new().name("export".to_owned());
    delivery.spawn_scoped(scope, move || deliver(&arrivals, outlets, &stop)).map_err(ProbeError::Thread)
}

fn deliver(
    arrivals: &Arrivals,
    mut outlets: Vec<Box<dyn Outlet>>,
    stop: &AtomicBool,
) -> Result<Delivered, ProbeError> {
    let mut delivered = Delivered::default();
    let mut failed = None;
    loop {
        let done = match arrivals.next(TICK) {
            Arrival::End => break,
            Arrival::Nothing => outlets.iter_mut().try_for_each(|outlet| outlet.tick()),
            Arrival::Batch(batch) => {
                delivered.volume.merge(Volume::of(&batch));
                let done = outlets.iter_mut().try_for_each(|outlet| outlet.take(&batch));
                arrivals.give_back(batch);
                done
            }
        };
        if let Err(error) = done {
            stop.store(true, Ordering::Relaxed);
            outlets.clear();
            failed.get_or_insert(error);
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    for outlet in outlets {
        delivered.outlets.push(outlet.finish()?);
    }
    Ok(delivered)
}
