//! A control plane that spends recorded costs on virtual cores instead of working.
//!
//! The schedulings are the shipped ones: their threads wait, wake, take locks and deal out sessions as usual. What the
//! control plane itself would do is imitated as far as it makes threads wait for each other: each shard has a lock that
//! is held while a batch is applied; the export queue is left alone by a thread that finds it taken; changes are held
//! back for a moment, to go out together; a session that is being written to is skipped.
//!
//! An export costs its share of all exports in the serial run, by the time that the changes took in the shards. The
//! serial run sends a route only once that changes many times in a moment, and a scheduling that exports more often
//! sends it more often: that is missing. So are several update groups (there is one, in the first export queue), the
//! sessions' locks and the attribute table's, and the fetching of another core's cache lines.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::recorder::{ControlCosts, ReadCost, SessionCosts};
use super::thread::Poller;
use super::{
    ControlPlane, Exported, HOLD_MAX_MS, Notice, Reading, Registry, SchedulingOptions, Share, Token, Wakers,
    schedule_on,
};
use crate::virtual_cores::{Awaited, HandOver, VirtualCores};

/// No machine asks its kernel in less. Threads that have nothing to do but may not sleep ask again and again, and
/// each time costs the imitation a hand-over.
const POLL_NS_MIN: u64 = 200;
/// Looks for events, to measure one.
const POLLS: u32 = 1000;

/// What a machine's cores cost a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMachine {
    pub cores: usize,
    /// Waking and switching. Threads that wait for sockets do not spin.
    pub hand_over: HandOver,
    /// Asking the kernel for events when there are none.
    pub poll_ns: u64,
}

impl ControlMachine {
    /// Measures what it costs to ask this machine for events.
    pub fn measure_poll_ns() -> io::Result<u64> {
        let mut poller = Poller::open()?;
        let began = Instant::now();
        (0..POLLS).try_for_each(|_| poller.ask())?;
        Ok(u64::try_from(began.elapsed().as_nanos() / u128::from(POLLS)).unwrap_or(u64::MAX))
    }
}

/// Runs a scheduling over recorded costs: how long it takes until all is done.
pub fn imitate_control(
    costs: &ControlCosts,
    machine: &ControlMachine,
    options: SchedulingOptions,
) -> io::Result<Duration> {
    let hand_over = HandOver { spin_ns: 0, ..machine.hand_over.clone() };
    run_on(costs, &VirtualCores::new(machine.cores, hand_over), machine.poll_ns, options)
}

/// The same with random costs of waking: each seed gives another schedule. Fails if a schedule loses work.
pub fn explore_control(
    costs: &ControlCosts,
    cores: usize,
    seed: u64,
    options: SchedulingOptions,
) -> io::Result<Duration> {
    run_on(costs, &VirtualCores::exploring(cores, seed), 0, options)
}

fn run_on(
    costs: &ControlCosts,
    cores: &Arc<VirtualCores>,
    poll_ns: u64,
    options: SchedulingOptions,
) -> io::Result<Duration> {
    let stop = AtomicBool::new(false);
    let control = Imitation::new(costs, cores, &stop);
    let machine = Machine::Virtual { cores: Arc::clone(cores), poll_ns: poll_ns.max(POLL_NS_MIN) };
    // A thread of its own, because those on virtual cores stay bound to one of the machine's.
    let scheduling = || schedule_on(&machine, &control, options, &stop);
    thread::scope(|scope| {
        let ended = scope.spawn(scheduling).join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the scheduling panicked")))
    })?;
    let finished_ns = control.state.lock().finished_ns;
    finished_ns
        .map(Duration::from_nanos)
        .ok_or_else(|| io::Error::other("the scheduling ended before the work"))
}

/// See the module. Work is counted by the time that it took in the shards.
struct Imitation<'a> {
    costs: &'a ControlCosts,
    cores: &'a Arc<VirtualCores>,
    stop: &'a AtomicBool,
    wakers: OnceLock<Wakers>,
    shards: usize,
    applied_ns: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sessions whose notice was given.
    opened: usize,
    /// The next read of each session.
    next: Vec<usize>,
    held: HashSet<Held>,
    applied: u64,
    /// Applied, and not yet taken by an export.
    inbox: u64,
    /// Taken, and held back.
    pending: u64,
    pending_since_ms: Option<u64>,
    exported: u64,
    /// What each session was told of that.
    written: Vec<u64>,
    finished_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    Shard(usize),
    Export,
    Writing(usize),
}

/// A read of a session.
#[derive(Debug)]
struct Imitated<'a>(&'a ReadCost);

impl<'a> Imitation<'a> {
    fn new(costs: &'a ControlCosts, cores: &'a Arc<VirtualCores>, stop: &'a AtomicBool) -> Self {
        let reads = || costs.sessions.iter().flat_map(|session| &session.reads);
        let shards = reads().flat_map(|read| &read.shards_ns).map(|(shard, _)| shard + 1).max().unwrap_or(1);
        let sessions = costs.sessions.len();
        let state = State { next: vec![0; sessions], written: vec![0; sessions], ..State::default() };
        Self {
            costs,
            cores,
            stop,
            wakers: OnceLock::new(),
            shards,
            applied_ns: costs.applied_ns(),
            state: Mutex::new(state),
        }
    }

    fn try_hold(&self, what: Held) -> bool {
        self.state.lock().held.insert(what)
    }

    fn release(&self, what: Held) {
        self.state.lock().held.remove(&what);
        if let Held::Shard(shard) = what {
            self.cores.unlocked(shard);
        }
    }

    /// Waits for a shard's lock. Its holder never waits, so somebody can always run.
    fn hold_shard(&self, shard: usize) {
        while !self.try_hold(Held::Shard(shard)) {
            if self.cores.park(Awaited::Lock(shard)).is_err() {
                return;
            }
        }
    }

    /// Spends the part of `total_ns` that belongs to so much of all that is applied.
    fn spend_part(&self, total_ns: u64, of: u64) {
        let all = u128::from(self.applied_ns.max(1));
        let part = u128::from(total_ns) * u128::from(of) / all;
        self.cores.spend(u64::try_from(part).unwrap_or(u64::MAX));
    }

    /// Ends the scheduling if all is done.
    fn look_at_end(&self) {
        let mut state = self.state.lock();
        let told =
            |(session, written): (&SessionCosts, &u64)| session.write_ns == 0 || *written == self.applied_ns;
        let all_read = || {
            let reads = self.costs.sessions.iter().map(|session| session.reads.len());
            reads.zip(&state.next).all(|(all, next)| all == *next)
        };
        let done = state.applied == self.applied_ns
            && all_read()
            && (self.costs.ends_when_applied
                || state.exported == self.applied_ns
                    && self.costs.sessions.iter().zip(&state.written).all(told));
        if done && state.finished_ns.is_none() {
            state.finished_ns = Some(self.cores.now_ns());
            drop(state);
            self.stop.store(true, Ordering::Release);
            self.wakers.get().iter().for_each(|wakers| wakers.wake_all());
        }
    }

    /// What was exported and not written to a session yet, and all that was exported.
    fn due(&self, session: usize) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let due = state.exported - state.written[session];
        (due > 0).then_some((due, state.exported))
    }

    /// Exports what waits, if the time has come; whether it was sent to the sessions.
    fn export_pending(&self, now: bool, now_ms: u64) -> Exported {
        let due = {
            let mut state = self.state.lock();
            let arrived = std::mem::take(&mut state.inbox);
            state.pending += arrived;
            if arrived > 0 {
                state.pending_since_ms.get_or_insert(now_ms);
            }
            let waited = state.pending_since_ms.is_some_and(|since| now_ms >= since + HOLD_MAX_MS);
            if !now && !waited {
                return Exported { grew: false, held: state.pending > 0 };
            }
            state.pending_since_ms = None;
            std::mem::take(&mut state.pending)
        };
        self.spend_part(self.costs.export_ns, due);
        self.state.lock().exported += due;
        Exported { grew: due > 0, held: false }
    }
}

impl<'a> ControlPlane for Imitation<'a> {
    type Worker = ();
    type Batch = Imitated<'a>;

    fn worker(&self) {}

    fn shards(&self) -> usize {
        self.shards
    }

    fn begin(&self, _: usize, wakers: Wakers) {
        // A control plane runs once.
        let _ = self.wakers.set(wakers);
    }

    fn attach_listeners(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn attach(&self, _: usize, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn accept(&self, (): &mut (), _: u64) {}

    fn ready(&self, _: usize, _: bool, _: bool) {}

    fn read(&self, (): &mut (), session: usize, _: u64) -> Reading<Imitated<'a>> {
        let reads = self.costs.sessions.get(session).map_or(&[][..], |session| &session.reads);
        let next = self.state.lock().next.get(session).and_then(|next| reads.get(*next));
        let Some(read) = next else { return Reading { batch: None, more: false } };
        self.cores.spend(read.read_ns);
        // One thread at a time reads a session. What it reads counts when it is read.
        self.state.lock().next[session] += 1;
        let batch = (!read.shards_ns.is_empty()).then_some(Imitated(read));
        if batch.is_none() {
            self.look_at_end();
        }
        let more = self.state.lock().next[session] < reads.len();
        Reading { batch, more }
    }

    fn touches(&self, batch: &Imitated<'a>, shard: usize) -> bool {
        batch.0.shards_ns.iter().any(|(touched, _)| *touched == shard)
    }

    fn apply(&self, (): &mut (), shard: usize, batch: &Imitated<'a>, _: u64) {
        let of_shard = batch.0.shards_ns.iter().filter(|(touched, _)| *touched == shard);
        let ns = of_shard.map(|(_, ns)| ns).sum();
        self.hold_shard(shard);
        self.cores.spend(ns);
        self.release(Held::Shard(shard));
        {
            let mut state = self.state.lock();
            state.applied += ns;
            state.inbox += ns;
        }
        self.look_at_end();
    }

    fn export(&self, (): &mut (), queue: usize, now: bool, now_ms: u64) -> Exported {
        self.cores.spend(self.costs.export_call_ns);
        let mut exported = Exported::default();
        while queue == 0 && self.try_hold(Held::Export) {
            let Exported { grew, held } = self.export_pending(now, now_ms);
            exported = Exported { grew: exported.grew | grew, held };
            self.release(Held::Export);
            // Another thread may have added changes and left because the queue was taken.
            if self.state.lock().inbox == 0 {
                break;
            }
        }
        if exported.grew {
            self.look_at_end();
        }
        exported
    }

    fn write(&self, (): &mut (), session: usize, _: u64) {
        self.cores.spend(self.costs.write_call_ns);
        let write_ns = self.costs.sessions.get(session).map_or(0, |session| session.write_ns);
        if write_ns == 0 || !self.try_hold(Held::Writing(session)) {
            return;
        }
        // Another thread may have exported meanwhile, and left this session because it was being written to.
        while let Some((due, exported)) = self.due(session) {
            self.spend_part(write_ns, due);
            self.state.lock().written[session] = exported;
        }
        self.release(Held::Writing(session));
        self.look_at_end();
    }

    fn write_share(&self, (): &mut (), share: Share, now_ms: u64) {
        let sessions = (0..self.costs.sessions.len()).filter(|session| share.has(*session));
        sessions.for_each(|session| self.write(&mut (), session, now_ms));
    }

    fn tick(&self, (): &mut (), _: Share, _: u64) -> u64 {
        u64::MAX
    }

    fn background_work(&self, (): &mut (), _: Share, _: u64) -> bool {
        self.cores.spend(self.costs.round_ns);
        false
    }

    fn poll_notice(&self) -> Option<Notice> {
        let mut state = self.state.lock();
        let session = state.opened;
        (session < state.next.len()).then(|| {
            state.opened += 1;
            Notice::Opened(session)
        })
    }
}
