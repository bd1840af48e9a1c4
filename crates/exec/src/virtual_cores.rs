//! Virtual cores: the shipped models on virtual time, which is added up instead of passing.
//!
//! A run on virtual cores has its usual threads, but only one of them runs at a time: the one with the smallest
//! clock. Work adds its cost to the thread's clock ([`VirtualCores::spend`]), and the thread then hands over to
//! those behind. So all interactions of threads (turns, rings, tokens) happen in the order of virtual time,
//! whatever cores the machine has, and a run with the same costs takes the same time to the nanosecond.
//!
//! ```text
//! spend ──> clock moves on ──> hand over to the smallest clock
//! park  ──> the core is free ──> a thread that wants a core has it
//! unpark ─> the waiter's clock is the waker's, and a hop or a wake-up
//! ```
//!
//! **Waiting.** A waiting thread appears to spin for `spin_ns`. If it is woken within that time, it continues one
//! hop later. After that time the waker pays for a system call, and the waiter for returning from one. **Cores.** A
//! thread keeps its core until it waits. With more threads than cores, the threads that want a core stand in a
//! queue, and a thread that has had a core for a slice moves to the end of that queue. **Contention.** Work that
//! begins while k threads run takes `contention_permille[k - 1]` thousandths of its cost.
//!
//! With a `seed`, costs are random: before and after every step of a model, and for every wake-up. That explores
//! schedules; the seed replays one. When every thread waits, no core can run: the run ends with an error that says
//! which threads wait for what.
//!
//! Missing: the places of cores (caches, sockets), time in locks that are held for a few instructions, and
//! interleavings within a step or within one operation on a turn, a ring or a lock; the tests on real threads cover
//! those.

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, Thread};

use crate::report::ExecError;
use thalweg_base::{XorShift64Star, mix64};

/// The cost of handing over on the imitated machine.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HandOver {
    /// From a store to the moment when another core that spins on it continues.
    pub hop_ns: u64,
    /// How long a thread spins before it sleeps.
    pub spin_ns: u64,
    /// The cost of waking a sleeping thread, for the thread that wakes it.
    pub wake_ns: u64,
    /// From then to the moment when the woken thread runs.
    pub wake_latency_ns: u64,
    /// The time a core takes to switch threads.
    pub switch_ns: u64,
    /// How long a thread keeps a core that others want; 0: until it waits.
    pub slice_ns: u64,
    /// Thousandths of its cost that work takes while 1, 2, .. threads run; the last value also stands for more
    /// threads.
    pub contention_permille: Vec<u64>,
}

/// Cores on virtual time. Several runs may use them one after the other; time continues.
pub struct VirtualCores {
    hand_over: HandOver,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Turn { target: u64, value: u64 },
    Room,
    Thing,
    Work,
    Event,
    Lock(usize),
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaited::Turn { target, value } => write!(f, "turn {target}, which is at {value}"),
            Awaited::Room => f.write_str("room in a ring"),
            Awaited::Thing => f.write_str("something in a ring"),
            Awaited::Work => f.write_str("a token"),
            Awaited::Event => f.write_str("an event"),
            Awaited::Lock(_) => f.write_str("a lock"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Has a core.
    Runs,
    /// Waits for a core.
    Ready,
    Parked(Awaited),
    Ended,
}

struct Member {
    name: String,
    os: Option<Thread>,
    phase: Phase,
    clock: u64,
    /// When it got its core, or began to wait.
    since: u64,
    /// A wake-up came before the wait.
    token: bool,
}

struct State {
    members: Vec<Member>,
    /// Announced members whose threads have not entered yet.
    missing: usize,
    running: Option<usize>,
    cores_free: usize,
    ready: VecDeque<usize>,
    /// The largest clock of a member that has ended.
    elapsed: u64,
    chance: Option<XorShift64Star>,
}

impl fmt::Debug for VirtualCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualCores").field("hand_over", &self.hand_over).finish_non_exhaustive()
    }
}

impl VirtualCores {
    /// Cores on which work costs what it spends. `cores` is at least 1.
    pub fn new(cores: usize, hand_over: HandOver) -> Arc<Self> {
        Self::with_chance(cores, hand_over, None)
    }

    /// Cores with random costs: each seed gives another schedule.
    pub fn exploring(cores: usize, seed: u64) -> Arc<Self> {
        // So that a random cost is often longer than the spinning, and often shorter.
        let hand_over = HandOver { spin_ns: 300, slice_ns: 2000, ..HandOver::default() };
        Self::with_chance(cores, hand_over, Some(XorShift64Star::new(mix64(seed))))
    }

    fn with_chance(cores: usize, hand_over: HandOver, chance: Option<XorShift64Star>) -> Arc<Self> {
        let state = State {
            members: Vec::new(),
            missing: 0,
            running: None,
            cores_free: cores.max(1),
            ready: VecDeque::new(),
            elapsed: 0,
            chance,
        };
        Arc::new(Self { hand_over, state: Mutex::new(state) })
    }

    /// Adds `ns` of work to the running thread's clock. A plan, source or sink of a run on these cores calls this.
    pub fn spend(&self, ns: u64) {
        let mut state = self.state.lock();
        let Some(me) = state.running else { return };
        let runs = state.members.iter().filter(|member| member.phase == Phase::Runs).count();
        let permille = &self.hand_over.contention_permille;
        let permille = permille.get(runs.max(1) - 1).or(permille.last()).copied().unwrap_or(1000);
        let ns = u64::try_from(u128::from(ns) * u128::from(permille) / 1000).unwrap_or(u64::MAX);
        state.members[me].clock = state.members[me].clock.saturating_add(ns);
        self.hand_on(state, me);
    }

    /// With a seed, adds a random time to the running thread's clock.
    pub fn shake(&self) {
        let mut state = self.state.lock();
        let (Some(me), Some(drawn)) = (state.running, state.draw()) else { return };
        state.members[me].clock += drawn;
        self.hand_on(state, me);
    }

    /// The number of the running thread, counted from 0 over all threads so far.
    pub fn thread(&self) -> usize {
        self.state.lock().running.unwrap_or(0)
    }

    /// The running thread's clock; between runs, the duration of all runs so far.
    pub fn now_ns(&self) -> u64 {
        self.state.lock().now()
    }

    /// Announces threads before they enter: all of a run before the first of them does, or another one later, by the
    /// running thread. Returns the first one's number.
    pub(crate) fn announce(&self, names: impl Iterator<Item = String>) -> usize {
        let mut state = self.state.lock();
        let (first, clock) = (state.members.len(), state.now());
        for name in names {
            let number = state.members.len();
            let phase = if state.cores_free > 0 { Phase::Runs } else { Phase::Ready };
            match phase {
                Phase::Runs => state.cores_free -= 1,
                _ => state.ready.push_back(number),
            }
            state.members.push(Member { name, os: None, phase, clock, since: clock, token: false });
            state.missing += 1;
        }
        first
    }

    /// Makes the calling thread the announced thread `me`, and returns when it is its turn to run.
    pub(crate) fn enter(&self, me: usize) {
        let mut state = self.state.lock();
        state.members[me].os = Some(thread::current());
        self.has_come(&mut state);
        self.until_running(state, me);
    }

    /// Removes an announced thread that could not be started.
    pub(crate) fn will_not_come(&self, number: usize) {
        let mut state = self.state.lock();
        self.end(&mut state, number);
        self.has_come(&mut state);
    }

    fn has_come(&self, state: &mut State) {
        state.missing -= 1;
        // A thread that another one has started runs when that one hands over.
        if state.missing == 0 && state.running.is_none() {
            state.run_next();
        }
    }

    /// Ends the running thread. If all other threads wait, it does not end but fails and says which threads wait
    /// for what.
    pub(crate) fn leave(&self) -> Result<(), ExecError> {
        let mut state = self.state.lock();
        let Some(me) = state.running else { return Ok(()) };
        let others = || state.members.iter().enumerate().filter(|(number, _)| *number != me);
        let can_run = others().any(|(_, other)| matches!(other.phase, Phase::Runs | Phase::Ready));
        if !can_run && others().any(|(_, other)| matches!(other.phase, Phase::Parked(_))) {
            return Err(ExecError::Deadlock(state.waiting()));
        }
        self.end(&mut state, me);
        state.run_next();
        Ok(())
    }

    fn end(&self, state: &mut State, number: usize) {
        let member = &mut state.members[number];
        let clock = member.clock;
        let had_core = member.phase == Phase::Runs;
        member.phase = Phase::Ended;
        state.elapsed = state.elapsed.max(clock);
        state.ready.retain(|waiting| *waiting != number);
        if had_core {
            self.free_core(state, clock);
        }
    }

    /// Lets the running thread wait until it is woken. If no thread could ever wake it, it continues instead and
    /// fails with a text that says which threads wait for what.
    pub(crate) fn park(&self, awaited: Awaited) -> Result<(), ExecError> {
        let mut state = self.state.lock();
        let Some(me) = state.running else { return Ok(()) };
        if std::mem::take(&mut state.members[me].token) {
            return Ok(());
        }
        let now = state.members[me].clock;
        state.members[me].phase = Phase::Parked(awaited);
        state.members[me].since = now;
        let can_run = state.members.iter().any(|member| matches!(member.phase, Phase::Runs | Phase::Ready));
        if !can_run {
            let waiting = state.waiting();
            state.members[me].phase = Phase::Runs;
            return Err(ExecError::Deadlock(waiting));
        }
        self.free_core(&mut state, now);
        state.run_next();
        self.until_running(state, me);
        Ok(())
    }

    /// Wakes a thread on behalf of the running one.
    fn unpark(&self, number: usize) {
        let mut state = self.state.lock();
        let Phase::Parked(_) = state.members[number].phase else {
            state.members[number].token = true;
            return;
        };
        let drawn = state.draw();
        let now = state.now();
        let costs = &self.hand_over;
        let clock = if let Some(drawn) = drawn {
            now + drawn
        } else if self.spins(&state, number, now) {
            now + costs.hop_ns
        } else {
            if let Some(me) = state.running {
                state.members[me].clock += costs.wake_ns;
            }
            now + costs.wake_ns + costs.wake_latency_ns
        };
        let free = state.cores_free > 0;
        let member = &mut state.members[number];
        member.clock = clock;
        member.since = clock;
        if free {
            member.phase = Phase::Runs;
            state.cores_free -= 1;
        } else {
            member.phase = Phase::Ready;
            state.ready.push_back(number);
        }
    }

    fn spins(&self, state: &State, number: usize, now: u64) -> bool {
        now.saturating_sub(state.members[number].since) < self.hand_over.spin_ns
    }

    /// Wakes the thread that has waited longest for this lock.
    pub(crate) fn unlocked(&self, lock_at: usize) {
        let waiting = {
            let state = self.state.lock();
            let waits = |member: &Member| member.phase == Phase::Parked(Awaited::Lock(lock_at));
            let waiting = state.members.iter().enumerate().filter(|(_, member)| waits(member));
            waiting.min_by_key(|(number, member)| (member.since, *number)).map(|(number, _)| number)
        };
        waiting.into_iter().for_each(|number| self.unpark(number));
    }

    /// Gives the core that becomes free at `now` to the next thread in the queue.
    fn free_core(&self, state: &mut State, now: u64) {
        let Some(next) = state.ready.pop_front() else {
            state.cores_free += 1;
            return;
        };
        let member = &mut state.members[next];
        member.phase = Phase::Runs;
        member.clock = member.clock.max(now) + self.hand_over.switch_ns;
        member.since = member.clock;
    }

    /// Lets threads run whose clocks are behind the running thread's, or that have waited for its core for a slice.
    fn hand_on<'a>(&'a self, mut state: MutexGuard<'a, State>, me: usize) {
        let (now, since) = (state.members[me].clock, state.members[me].since);
        let slice_ns = self.hand_over.slice_ns;
        if slice_ns > 0 && now.saturating_sub(since) >= slice_ns && !state.ready.is_empty() {
            state.members[me].phase = Phase::Ready;
            state.ready.push_back(me);
            self.free_core(&mut state, now);
        }
        state.run_next();
        self.until_running(state, me);
    }

    fn until_running<'a>(&'a self, mut state: MutexGuard<'a, State>, me: usize) {
        while state.running != Some(me) {
            drop(state);
            thread::park();
            state = self.state.lock();
        }
    }
}

impl State {
    fn now(&self) -> u64 {
        self.running.map_or(self.elapsed, |me| self.members[me].clock)
    }

    /// Mostly short, sometimes zero, sometimes long; a long time lets other threads run far ahead.
    fn draw(&mut self) -> Option<u64> {
        let chance = self.chance.as_mut()?;
        Some(match chance.below(8) {
            0 | 1 => 0,
            2 => u64::from(chance.below(10_000)),
            _ => u64::from(chance.below(400)),
        })
    }

    /// Chooses the thread that runs: the one with the smallest clock; of equal ones the first, or with a seed any.
    fn run_next(&mut self) {
        let runs = |member: &&Member| member.phase == Phase::Runs;
        let least = self.members.iter().filter(runs).map(|member| member.clock).min();
        let first = |member: &Member| member.phase == Phase::Runs && Some(member.clock) == least;
        let equal = self.members.iter().filter(|member| first(member)).count();
        let skipped = match &mut self.chance {
            Some(chance) if equal > 1 => chance.below(u32::try_from(equal).unwrap_or(u32::MAX)),
            _ => 0,
        };
        let candidates = self.members.iter().enumerate().filter(|(_, member)| first(member));
        let next = candidates.map(|(number, _)| number).nth(usize::try_from(skipped).unwrap_or(0));
        if next == self.running {
            return;
        }
        self.running = next;
        if let Some(os) = next.and_then(|next| self.members[next].os.as_ref()) {
            os.unpark();
        }
    }

    fn waiting(&self) -> String {
        let waits = |member: &Member| match member.phase {
            Phase::Parked(awaited) => Some(format!("{} for {awaited}", member.name)),
            _ => None,
        };
        self.members.iter().filter_map(waits).collect::<Vec<_>>().join("; ")
    }
}

/// A thread that can be woken, on the machine or on virtual cores.
#[derive(Clone, Debug)]
pub(crate) enum Sleeper {
    Thread(Thread),
    Virtual(Arc<VirtualCores>, usize),
}

impl Sleeper {
    pub(crate) fn here(cores: Option<&Arc<VirtualCores>>) -> Self {
        match cores {
            None => Sleeper::Thread(thread::current()),
            Some(cores) => Sleeper::Virtual(Arc::clone(cores), cores.thread()),
        }
    }

    pub(crate) fn unpark(&self) {
        match self {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Virtual(cores, number) => cores.unpark(*number),
        }
    }

    /// Whether the thread only seems to sleep: on virtual cores a spinning thread is parked, too.
    pub(crate) fn spins(&self) -> bool {
        match self {
            Sleeper::Thread(_) => false,
            Sleeper::Virtual(cores, number) => {
                let state = cores.state.lock();
                cores.spins(&state, *number, state.now())
            }
        }
    }

    pub(crate) fn is(&self, other: &Sleeper) -> bool {
        match (self, other) {
            (Sleeper::Thread(one), Sleeper::Thread(other)) => one.id() == other.id(),
            (Sleeper::Virtual(_, one), Sleeper::Virtual(_, other)) => one == other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::RunControl;
    use crate::turn::Turn;

    /// Runs the bodies as threads of two virtual cores that share a control.
    fn together(
        cores: &Arc<VirtualCores>,
        bodies: &[&(dyn Fn(&RunControl) + Sync)],
    ) -> Option<crate::ExecError> {
        let control = RunControl::on(Some(Arc::clone(cores)));
        let first = cores.announce((0..bodies.len()).map(|number| format!("worker {number}")));
        thread::scope(|scope| {
            for (number, body) in bodies.iter().enumerate() {
                let control = &control;
                scope.spawn(move || {
                    cores.enter(first + number);
                    control.register();
                    body(control);
                    while let Err(deadlock) = cores.leave() {
                        control.abort(deadlock);
                    }
                });
            }
        });
        control.into_error()
    }

    #[test]
    fn threads_that_wait_for_each_other_are_named() {
        let (a, b) = (Turn::default(), Turn::default());
        let cores = VirtualCores::new(2, HandOver::default());
        let error = together(
            &cores,
            &[
                &|control| {
                    cores.spend(10);
                    drop(a.wait(3, control).map(|_| b.set(1)));
                },
                &|control| drop(b.wait(1, control).map(|_| a.set(3))),
            ],
        );
        let error = error.expect("nobody can run").to_string();
        assert_eq!(
            error,
            "no core can run: worker 0 for turn 3, which is at 0; worker 1 for turn 1, which is at 0"
        );
    }

    #[test]
    fn one_that_ends_and_leaves_another_waiting_is_a_deadlock_too() {
        let turn = Turn::default();
        let cores = VirtualCores::new(2, HandOver::default());
        let error = together(&cores, &[&|control| drop(turn.wait(1, control)), &|_| cores.spend(5)]);
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some("no core can run: worker 0 for turn 1, which is at 0")
        );
    }

    #[test]
    fn a_wake_up_costs_a_hop_or_what_the_kernel_takes() {
        let hand_over =
            HandOver { hop_ns: 7, spin_ns: 1000, wake_ns: 100, wake_latency_ns: 3000, ..HandOver::default() };
        for (work, end) in [(999, 999 + 7), (1000, 1000 + 100 + 3000)] {
            let turn = Turn::default();
            let cores = VirtualCores::new(2, hand_over.clone());
            let wake = |_: &RunControl| {
                cores.spend(work);
                turn.set(1);
            };
            assert!(together(&cores, &[&|control| drop(turn.wait(1, control)), &wake]).is_none());
            assert_eq!(cores.now_ns(), end);
        }
    }
}
