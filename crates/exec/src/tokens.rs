//! Tokens, after the parallel pipelines of TBB: at most T jobs are in flight, and any free worker takes the next
//! runnable stage of any of them.
//!
//! Stages become a row of *stage queues*. A row of `Batches` stages, or a `Whole` stage, is a parallel stage queue,
//! which any token may enter at any time. An `Ordered` stage is a stage queue in order, which only the token may
//! enter whose turn it is. A `PerShard` stage is a row of such stage queues, one for each shard group. The last
//! stage queue is the sink, in order.
//!
//! A token that comes before its turn is parked in the stage queue; its worker does not wait but takes other work.
//! A worker that leaves the stage queue makes the next token ready if it is parked there, and continues with its
//! own token, whose packets are in its cache. A token that crosses passes no turn of the row on until its crossing
//! half is done.
//!
//! A worker takes, in this order: the token it has; the ready token with the lowest sequence; a new job from the
//! source if fewer than T are in flight and no other worker reads. Otherwise it spins, yields and sleeps until a
//! token becomes ready or a read ends.
//!
//! **No deadlock.** The token with the lowest sequence in flight has every turn it comes to, so it is never parked.
//! Either a worker has it or it is ready, and workers take ready tokens before they wait for anything.
//!
//! **In flight** are at most T jobs, wherever they are. Tokens retire in sequence order, so sequences in flight
//! span less than T and a parked token's place in its stage queue is its sequence modulo T.

use crate::intake::Intake;
use crate::options::ModelOptions;
use crate::plan::{Plan, Sink};
use crate::stop::{Fragile, RunControl, Stopped};
use crate::threads::{self, Member};
use crate::virtual_cores::{Awaited, Sleeper};
use crate::worker::{Done, Place, Shared, Step, Worker};
use parking_lot::Mutex;
use std::ops::Range;

/// A job in flight and the stage queue it enters next.
struct Token<J> {
    sequence: u64,
    job: J,
    at: usize,
    /// The job crosses in the row of groups it is in.
    crosses: bool,
}

enum Work {
    /// A step that any token may run at any time.
    Free(Step),
    /// An `Ordered` stage.
    Ordered(Step),
    /// One group of a `PerShard` stage, whose stage queues are `row`.
    Group { stage: usize, group: usize, row: Range<usize> },
    /// The end of every token's way.
    Sink,
}

struct StageQueue<J> {
    work: Work,
    /// Unused where tokens may enter at any time.
    gate: Mutex<Gate<J>>,
}

struct Gate<J> {
    next: u64,
    parked: Vec<Option<Token<J>>>,
    parked_now: usize,
    high_water: usize,
}

impl<J> StageQueue<J> {
    fn new(work: Work, tokens: usize) -> Self {
        let slots = if matches!(work, Work::Free(_)) { 0 } else { tokens };
        let mut parked = Vec::new();
        parked.resize_with(slots, || None);
        Self { work, gate: Mutex::new(Gate { next: 0, parked, parked_now: 0, high_water: 0 }) }
    }

    /// Returns the token if it may enter; otherwise parks it.
    fn enter(&self, token: Token<J>) -> Option<Token<J>> {
        if matches!(self.work, Work::Free(_)) {
            return Some(token);
        }
        let mut gate = self.gate.lock();
        if gate.next == token.sequence {
            return Some(token);
        }
        let slot = slot(token.sequence, gate.parked.len());
        debug_assert!(gate.next < token.sequence && gate.parked[slot].is_none());
        gate.parked[slot] = Some(token);
        gate.parked_now += 1;
        gate.high_water = gate.high_water.max(gate.parked_now);
        None
    }

    /// Passes the turn on, and returns the token that was parked for it.
    fn leave(&self, sequence: u64) -> Option<Token<J>> {
        let mut gate = self.gate.lock();
        debug_assert_eq!(gate.next, sequence);
        gate.next = sequence + 1;
        let slot = slot(sequence + 1, gate.parked.len());
        let next = gate.parked[slot].take_if(|token| token.sequence == sequence + 1);
        gate.parked_now -= usize::from(next.is_some());
        next
    }
}

/// The result is below `tokens`, so the conversions lose nothing.
fn slot(sequence: u64, tokens: usize) -> usize {
    (sequence % tokens as u64) as usize
}

/// The work that workers choose from.
struct Schedule<J> {
    tokens: usize,
    state: Mutex<State<J>>,
}

struct State<J> {
    ready: Vec<Token<J>>,
    in_flight: usize,
    /// A worker is at the source, for a token already counted as in flight.
    reading: bool,
    ended: bool,
    idle: Vec<Sleeper>,
}

impl<J> State<J> {
    fn take_ready(&mut self) -> Option<Token<J>> {
        let (at, _) = self.ready.iter().enumerate().min_by_key(|(_, token)| token.sequence)?;
        Some(self.ready.swap_remove(at))
    }

    fn may_read(&self, tokens: usize) -> bool {
        !self.reading && !self.ended && self.in_flight < tokens
    }

    /// Whether a worker without a token has something to do, which may be to end.
    fn has_work(&self, tokens: usize) -> bool {
        !self.ready.is_empty() || self.may_read(tokens) || (self.ended && self.in_flight == 0)
    }

    fn wake_one(&mut self) {
        if let Some(worker) = self.idle.pop() {
            worker.unpark();
        }
    }

    fn finished(&mut self) -> bool {
        let finished = self.ended && self.in_flight == 0;
        if finished {
            self.idle.drain(..).for_each(|worker| worker.unpark());
        }
        finished
    }
}

impl<J: Send> Schedule<J> {
    fn push(&self, token: Token<J>) {
        let mut state = self.state.lock();
        state.ready.push(token);
        state.wake_one();
    }

    fn retire(&self) {
        // This wakes no worker: the caller looks for work next and finds the free place.
        self.state.lock().in_flight -= 1;
    }

    /// The next token to work on; `None` when all jobs are done.
    fn next<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        intake: &Intake<'_, J>,
    ) -> Result<Option<Token<J>>, Stopped> {
        let control: &RunControl = &worker.shared.control;
        let mut backoff = control.backoff();
        let mut idle_since = None;
        loop {
            control.check()?;
            let mut state = self.state.lock();
            if let Some(token) = state.take_ready() {
                idle_since.into_iter().for_each(|since| worker.wait_was(since));
                return Ok(Some(token));
            }
            if state.may_read(self.tokens) {
                state.reading = true;
                state.in_flight += 1;
                drop(state);
                idle_since.take().into_iter().for_each(|since| worker.wait_was(since));
                if let Some(token) = self.read(worker, intake)? {
                    return Ok(Some(token));
                }
                continue;
            }
            if state.finished() {
                return Ok(None);
            }
            idle_since.get_or_insert_with(|| worker.shared.now_ns());
            drop(state);
            if !backoff.try_again() {
                self.sleep(worker);
            }
        }
    }

    /// Sleeps until there may be work.
    fn sleep<P: Plan<Job = J>>(&self, worker: &mut Worker<'_, P>) {
        let me = worker.shared.control.me();
        let mut state = self.state.lock();
        if state.has_work(self.tokens) {
            return;
        }
        state.idle.push(me.clone());
        drop(state);
        if worker.shared.control.check().is_ok() {
            worker.park(Awaited::Work);
        }
        // A worker that makes work removes the entry; a spurious wake-up must not leave it.
        self.state.lock().idle.retain(|idle| !idle.is(&me));
    }

    /// Takes a job from the source. The caller has set `reading`.
    fn read<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        intake: &Intake<'_, J>,
    ) -> Result<Option<Token<J>>, Stopped> {
        let taken = intake.take(worker)?;
        let mut state = self.state.lock();
        state.reading = false;
        let Some((sequence, job)) = taken else {
            state.ended = true;
            state.in_flight -= 1;
            return Ok(None);
        };
        if state.in_flight < self.tokens {
            state.wake_one();
        }
        Ok(Some(Token { sequence, job, at: 0, crosses: false }))
    }
}

struct Line<'a, J> {
    stage_queues: Vec<StageQueue<J>>,
    schedule: Schedule<J>,
    sink: Fragile<&'a mut (dyn Sink<J> + 'a)>,
}

impl<J: Send> Line<'_, J> {
    /// Moves a token from stage queue to stage queue until it is parked or retires.
    fn advance<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
        mut token: Token<J>,
    ) -> Result<(), Stopped> {
        loop {
            let stage_queue = &self.stage_queues[token.at];
            let Some(entered) = stage_queue.enter(token) else { return Ok(()) };
            token = entered;
            let sequence = token.sequence;
            match stage_queue.work {
                Work::Free(ref step) => worker.run_step(step, &mut token.job),
                Work::Ordered(ref step) => {
                    worker.run_step(step, &mut token.job);
                    self.leave(stage_queue, sequence);
                }
                Work::Group { stage, group, ref row } => {
                    if group == 0 {
                        token.crosses = worker.crosses(stage, &token.job);
                    }
                    worker.run_shards(stage, &mut token.job, group..group + 1);
                    if !token.crosses {
                        self.leave(stage_queue, sequence);
                    } else if token.at + 1 == row.end {
                        worker.run_crossing(stage, &mut token.job);
                        self.stage_queues[row.clone()].iter().for_each(|one| self.leave(one, sequence));
                    }
                }
                Work::Sink => {
                    {
                        // Never contended: only the token in turn comes here.
                        let mut sink = worker.enter(&self.sink)?;
                        worker.at(Place::Sink, |_, _| sink.accept(token.job));
                    }
                    self.leave(stage_queue, sequence);
                    self.schedule.retire();
                    return Ok(());
                }
            }
            token.at += 1;
        }
    }

    fn leave(&self, stage_queue: &StageQueue<J>, sequence: u64) {
        if let Some(next) = stage_queue.leave(sequence) {
            self.schedule.push(next);
        }
    }
}

fn stage_queues<J>(steps: Vec<Step>, groups: usize, tokens: usize) -> Vec<StageQueue<J>> {
    let mut stage_queues = Vec::new();
    for step in steps {
        match step {
            Step::Batches(_) | Step::Whole(_) => stage_queues.push(StageQueue::new(Work::Free(step), tokens)),
            Step::Ordered(_) => stage_queues.push(StageQueue::new(Work::Ordered(step), tokens)),
            Step::PerShard(stage) => {
                let row = stage_queues.len()..stage_queues.len() + groups;
                stage_queues
                    .extend((0..groups).map(|group| {
                        StageQueue::new(Work::Group { stage, group, row: row.clone() }, tokens)
                    }));
            }
        }
    }
    stage_queues.push(StageQueue::new(Work::Sink, tokens));
    stage_queues
}

/// Runs the model. Also returns the most jobs that ever waited at the sink.
pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    options: &ModelOptions,
    intake: &Intake<'_, P::Job>,
    sink: &mut dyn Sink<P::Job>,
) -> (Vec<Done<P::Scratch>>, usize) {
    let stages = shared.plan.stages();
    let line = Line {
        stage_queues: stage_queues(Step::list(stages, 0..stages.len()), shared.groups, options.tokens),
        schedule: Schedule {
            tokens: options.tokens,
            state: Mutex::new(State {
                ready: Vec::new(),
                in_flight: 0,
                reading: false,
                ended: false,
                idle: Vec::new(),
            }),
        },
        sink: Fragile::new(sink),
    };
    let members = (0..options.workers)
        .map(|index| {
            let line = &line;
            Member::new("worker", index, move |worker| {
                let mut taken_up = 0;
                while let Some(token) = line.schedule.next(worker, intake)? {
                    taken_up += 1;
                    line.advance(worker, token)?;
                }
                worker.jobs = taken_up;
                Ok(())
            })
        })
        .collect();
    let done = threads::run(shared, members);
    let high_water = line.stage_queues.last().map_or(0, |sink| sink.gate.lock().high_water);
    (done, high_water)
}
