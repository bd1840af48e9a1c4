//! The packet threads: the model runs the plan until it is asked for another plan, and then runs that.
//!
//! ```text
//!  reload ── Exchange::swap ──> feed: "that was all" ──> the model finishes what it has ──> swap ──> the model, again
//!     ^                          (what comes waits                                            │
//!     └──────── Swapped ───────── in the rings of the NICs) <── first look at the ports ──────┘
//! ```
//!
//! A plan is exchanged where no packet is: the feed says that its input has ended, every chunk on its way comes to the
//! sink, and the threads of the model end. Nothing is received meanwhile, and nothing is lost as long as the NICs' rings
//! hold what comes. The model begins anew at once, with the same feed and the same sink.
//!
//! Where workers have lanes, each with a feed, the first feed that hears of it ends its input, and then all have to, even if
//! the request is withdrawn meanwhile: else those that ended would be without a worker until the others do.
//!
//! The threads of a model are started for every plan, which takes some tens of microseconds; that is the price for models
//! that need not know of exchanges.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use thalweg_base::Chunk;
use thalweg_exec::{ExecError, Lane, ModelOptions, RunReport, Sink, Source};
use thalweg_node::plan::{RouterPlan, Scratch};

use crate::capture::Tapped;
use crate::counters::Counters;
use crate::workers::Workers;

/// What makes the next plan out of the one that ran, while no packet is on its way.
pub(crate) type Turn = Box<dyn FnOnce(&RouterPlan) -> RouterPlan + Send>;

/// How an exchange went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swapped {
    /// Packets on their way when the first feed stopped.
    pub in_flight: u64,
    /// Until all on their way were sent.
    pub drained: Duration,
    /// From the last look at the ports, of the feed that stopped first, to the next one of the feed that resumed last.
    pub pause: Duration,
}

/// Where another thread asks for an exchange.
pub(crate) struct Exchange {
    /// How many feeds there are.
    feeds: usize,
    /// Somebody has asked: feeds end their input.
    wanted: AtomicBool,
    /// A feed has ended its input, so all have to.
    ends: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Packets that the feed gave, and that the sink took.
    given: AtomicU64,
    taken: AtomicU64,
}

#[derive(Default)]
struct State {
    turn: Option<Turn>,
    stopped: Option<(Instant, u64)>,
    drained: Duration,
    swapped: Option<Swapped>,
    /// Feeds that look at the ports again.
    resumed: usize,
    has_ended: bool,
}

/// Why plans were not exchanged; the old one goes on where the packet thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSwapped {
    /// Packets are not worked on any more.
    Ended,
    /// The packet thread did not come to it in time, and will not.
    TimedOut,
}

impl Exchange {
    /// For so many feeds.
    pub(crate) fn new(feeds: usize) -> Self {
        Self {
            feeds,
            wanted: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Has the plan exchanged, and waits until packets pass through the next one. `wake` ends the feed's wait for
    /// packets.
    pub(crate) fn swap(&self, turn: Turn, wake: impl Fn(), timeout: Duration) -> Result<Swapped, NotSwapped> {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(NotSwapped::Ended);
        }
        (state.turn, state.swapped) = (Some(turn), None);
        self.wanted.store(true, Ordering::Release);
        wake();
        loop {
            if let Some(swapped) = state.swapped.take() {
                return Ok(swapped);
            }
            if state.has_ended {
                return Err(NotSwapped::Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            // Once the turn is taken, the exchange is made whatever happens.
            if left.is_zero() && state.turn.take().is_some() {
                self.wanted.store(false, Ordering::Release);
                return Err(NotSwapped::TimedOut);
            }
            let wait = if left.is_zero() { timeout } else { left };
            self.changed.wait_for(&mut state, wait);
        }
    }

    /// For a feed: whether its input is to end here. It is asked before each look at the ports.
    pub(crate) fn is_wanted(&self) -> bool {
        if self.ends.load(Ordering::Acquire) {
            return true;
        }
        if !self.wanted.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        if state.turn.is_some() && state.stopped.is_none() {
            let in_flight = self.given.load(Ordering::Acquire) - self.taken.load(Ordering::Acquire);
            state.stopped = Some((Instant::now(), in_flight));
        }
        if state.turn.is_some() {
            self.ends.store(true, Ordering::Release);
        }
        state.turn.is_some()
    }

    /// A worker is lost, and packets will not be worked on any more: all feeds end their input.
    fn give_up(&self) {
        self.ends.store(true, Ordering::Release);
    }

    /// For a feed: the first look at the ports after an exchange.
    pub(crate) fn resumes(&self) {
        let mut state = self.state.lock();
        state.resumed += 1;
        if state.resumed < self.feeds {
            return;
        }
        if let Some((since, in_flight)) = state.stopped.take() {
            let drained = state.drained;
            state.swapped = Some(Swapped { in_flight, drained, pause: since.elapsed() });
            self.changed.notify_all();
        }
    }

    /// For a feed: a chunk is on its way.
    pub(crate) fn gives(&self, packets: usize) {
        self.given.fetch_add(packets as u64, Ordering::AcqRel);
    }

    /// For a sink: packets have come through.
    pub(crate) fn takes(&self, packets: usize) {
        self.taken.fetch_add(packets as u64, Ordering::AcqRel);
    }

    /// For the packet thread, when the model has ended: what to do next, if it was asked to.
    fn turn(&self) -> Option<Turn> {
        let mut state = self.state.lock();
        let turn = state.turn.take();
        if let (Some(_), Some((since, _))) = (&turn, state.stopped) {
            state.drained = since.elapsed();
        }
        if turn.is_none() {
            // The request was withdrawn.
            state.stopped = None;
        }
        state.resumed = 0;
        self.wanted.store(false, Ordering::Release);
        self.ends.store(false, Ordering::Release);
        turn
    }

    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }
}

/// What the packet threads work with.
pub(crate) struct Packets<F, S> {
    /// The plan in force, for display.
    pub(crate) plan: Arc<ArcSwap<RouterPlan>>,
    /// Ways in and out: one, or one for each worker.
    pub(crate) lanes: Vec<(F, S)>,
    pub(crate) model: ModelOptions,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) workers: Arc<Workers>,
    /// Where captures are.
    pub(crate) counters: Arc<Counters>,
    /// The feeds' input has ended for good.
    pub(crate) stop: Arc<AtomicBool>,
}

impl<F: Source<Chunk>, S: Sink<Chunk>> Packets<F, S> {
    /// The body of the thread: works until `stop` is set, or the model fails.
    pub(crate) fn run(mut self) -> Result<(), ExecError> {
        let result = self.run_plans();
        self.exchange.end();
        result
    }

    fn run_plans(&mut self) -> Result<(), ExecError> {
        loop {
            let plan = self.plan.load_full();
            let report = self.run_plan(&plan)?;
            self.workers.add_ended(&report.threads);
            if self.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(turn) = self.exchange.turn() {
                self.plan.store(Arc::new(turn(&plan)));
            }
        }
    }

    fn run_plan(&mut self, plan: &RouterPlan) -> Result<RunReport<Scratch>, ExecError> {
        let tapped = Tapped::new(plan, &self.counters.taps);
        if let [(feed, sink)] = self.lanes.as_mut_slice() {
            return thalweg_exec::run(&tapped, feed, sink, &self.model);
        }
        let lanes = self.lanes.iter_mut().map(|(source, sink)| Lane { source, sink }).collect();
        thalweg_exec::run_lanes(&tapped, lanes, self.model.placement(), &|| self.exchange.give_up())
    }
}

#[cfg(test)]
mod tests;
