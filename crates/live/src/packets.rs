//! The packet threads: they run the plan with the model until a reload asks for an exchange, and then run the next
//! plan.
//!
//! ```text
//!  reload ── Exchange::swap ──> feed: end of input ──> the model finishes its packets ──> turn ──> the model, again
//!     ^                          (packets wait in the                                             │
//!     └──────── Swapped ───────── NICs' rings) <── first look at the ports ───────────────────────┘
//! ```
//!
//! A plan is exchanged while no packet is in it: the feed ends its input, every chunk reaches the sink, and the
//! model's threads end. Nothing is received meanwhile, and no packet is lost as long as the NICs' rings have room.
//! The model then starts again with the same feed and sink.
//!
//! If workers have lanes, each with a feed, and one feed has ended its input, all must end, even if the request is
//! withdrawn meanwhile: otherwise the lanes that ended would have no worker until the others ended too.
//!
//! The model's threads start anew for each plan, which takes some tens of microseconds. In return, models know
//! nothing of exchanges.

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

/// Makes the next plan from the old one; called while no packet is in either.
pub(crate) type Turn = Box<dyn FnOnce(&RouterPlan) -> RouterPlan + Send>;

/// How an exchange of plans went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swapped {
    /// Packets in the plan when the first feed stopped.
    pub in_flight: u64,
    /// Time until all of them were sent.
    pub drained: Duration,
    /// Time without receiving: from the last look at the ports by the feed that stopped first to the first look by
    /// the feed that resumed last.
    pub pause: Duration,
}

/// Where a reload meets the packet threads.
pub(crate) struct Exchange {
    feeds: usize,
    /// An exchange was requested: feeds end their input.
    wanted: AtomicBool,
    /// A feed has ended its input, so all must.
    ends: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the plan in force takes frames that merge segments whole.
    takes_merged: AtomicBool,
    /// Packets that feeds passed on and that sinks took.
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

/// Why plans were not exchanged; the old one stays in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSwapped {
    /// The packet thread has ended.
    Ended,
    /// The packet thread did not stop in time; the request is withdrawn.
    TimedOut,
}

impl Exchange {
    /// For a router with this many feeds.
    pub(crate) fn new(feeds: usize) -> Self {
        Self {
            feeds,
            wanted: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            takes_merged: AtomicBool::new(false),
            given: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Exchanges the plan and waits until packets pass the next one. `wake` ends the feeds' wait for packets.
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
            // If the turn was taken already, the exchange can no longer be withdrawn.
            if left.is_zero() && state.turn.take().is_some() {
                self.wanted.store(false, Ordering::Release);
                return Err(NotSwapped::TimedOut);
            }
            let wait = if left.is_zero() { timeout } else { left };
            self.changed.wait_for(&mut state, wait);
        }
    }

    /// Returns whether a feed must end its input; called before each look at the ports.
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

    /// Called when a worker failed: all feeds end their input, and packet processing ends.
    fn give_up(&self) {
        self.ends.store(true, Ordering::Release);
    }

    /// Called by a feed at its first look at the ports after an exchange.
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

    /// Whether frames that merge segments may stay whole in the next chunk.
    pub(crate) fn takes_merged(&self) -> bool {
        self.takes_merged.load(Ordering::Acquire)
    }

    /// Called by a feed for each chunk.
    pub(crate) fn gives(&self, packets: usize) {
        self.given.fetch_add(packets as u64, Ordering::AcqRel);
    }

    /// Called by a sink for each chunk or part of one.
    pub(crate) fn takes(&self, packets: usize) {
        self.taken.fetch_add(packets as u64, Ordering::AcqRel);
    }

    /// Called by the packet thread when the model has ended. `None` if no exchange was requested.
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
    /// The plan in force, for readers.
    pub(crate) plan: Arc<ArcSwap<RouterPlan>>,
    /// One feed and sink, or one pair per worker.
    pub(crate) lanes: Vec<(F, S)>,
    pub(crate) model: ModelOptions,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) workers: Arc<Workers>,
    /// Holds the taps of captures.
    pub(crate) counters: Arc<Counters>,
    /// Set when the router stops: the feeds' input has ended for good.
    pub(crate) stop: Arc<AtomicBool>,
}

impl<F: Source<Chunk>, S: Sink<Chunk>> Packets<F, S> {
    /// Runs until `stop` is set or the model fails.
    pub(crate) fn run(mut self) -> Result<(), ExecError> {
        let result = self.run_plans();
        self.exchange.end();
        result
    }

    fn run_plans(&mut self) -> Result<(), ExecError> {
        loop {
            let plan = self.plan.load_full();
            self.exchange.takes_merged.store(plan.takes_merged(), Ordering::Release);
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
