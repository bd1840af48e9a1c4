//! The common part of all threads of all models: how they run stages, how they wait, and how a panic ends the run.

use crate::options::Placement;
use crate::os;
use crate::plan::{Plan, Scope, StageSpec};
use crate::rank::{Priority, Rank};
use crate::report::{ExecError, ThreadReport};
use crate::ring::{Receiver, Sender};
use crate::stop::{Fragile, RunControl, Stopped};
use crate::turn::Turn;
use crate::virtual_cores::{Awaited, VirtualCores};
use std::any::Any;
use std::cell::Cell;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// A stage, or a row of neighboring `Batches` stages, as a model runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Neighboring `Batches` stages, run batch by batch.
    Batches(Range<usize>),
    Whole(usize),
    Ordered(usize),
    PerShard(usize),
}

impl Step {
    pub(crate) fn list(stages: &[StageSpec], range: Range<usize>) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for stage in range {
            match (stages[stage].scope, steps.last_mut()) {
                (Scope::Batches, Some(Step::Batches(row))) => row.end = stage + 1,
                (Scope::Batches, _) => steps.push(Step::Batches(stage..stage + 1)),
                (Scope::Whole, _) => steps.push(Step::Whole(stage)),
                (Scope::Ordered, _) => steps.push(Step::Ordered(stage)),
                (Scope::PerShard, _) => steps.push(Step::PerShard(stage)),
            }
        }
        steps
    }
}

/// The code that a thread runs, to be named if it panics there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Scratch,
    Source,
    Stage(usize),
    Split,
    Merge,
    Sink,
    Model,
}

impl Place {
    fn name(self, stages: &[StageSpec]) -> String {
        match self {
            Place::Scratch => "making its scratch".to_owned(),
            Place::Source => "the source".to_owned(),
            Place::Stage(i) => format!("stage {:?}", stages.get(i).map_or("?", |s| s.name.as_str())),
            Place::Split => "split".to_owned(),
            Place::Merge => "merge".to_owned(),
            Place::Sink => "the sink".to_owned(),
            Place::Model => "the execution model".to_owned(),
        }
    }
}

/// The state that all threads of a run share, whatever the model.
pub(crate) struct Shared<'a, P: Plan> {
    pub(crate) plan: &'a P,
    pub(crate) groups: usize,
    pub(crate) control: RunControl,
    started: Instant,
    pin_cores: Option<&'a [usize]>,
    priority: Priority,
}

impl<'a, P: Plan> Shared<'a, P> {
    pub(crate) fn new(
        plan: &'a P,
        Placement { pin_cores, priority }: Placement<'a>,
        cores: Option<Arc<VirtualCores>>,
    ) -> Result<Self, ExecError> {
        let (groups, control) = (plan.shard_groups(), RunControl::on(cores));
        if groups == 0 {
            return Err(ExecError::NoShardGroups);
        }
        Ok(Self { plan, groups, control, started: Instant::now(), pin_cores, priority })
    }

    /// The model's clock: nanoseconds since the run began.
    pub(crate) fn now_ns(&self) -> u64 {
        match &self.control.cores {
            None => u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Some(cores) => cores.now_ns(),
        }
    }

    pub(crate) fn since(&self, then_ns: u64) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(then_ns))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// The processor time of the calling thread. On virtual cores it includes waits, which the caller subtracts.
    pub(crate) fn cpu_time(&self) -> Duration {
        if self.control.cores.is_some() { self.elapsed() } else { os::thread_cpu_time() }
    }
}

pub(crate) struct Done<S> {
    pub(crate) scratch: S,
    pub(crate) report: ThreadReport,
}

/// Runs `body` as a worker on the calling thread and adds the thread to the run. A panic gives the run up. `slot`
/// chooses the core if threads are pinned.
pub(crate) fn supervise<P: Plan>(
    shared: &Shared<'_, P>,
    role: &'static str,
    index: usize,
    slot: usize,
    body: impl FnOnce(&mut Worker<'_, P>) -> Result<(), Stopped>,
) -> Option<Done<P::Scratch>> {
    shared.control.register();
    let place = Cell::new(Place::Scratch);
    // Unwind safety: after a panic the run fails, and none of its threads looks again at anything that the panic
    // may have left half done (job, scratch, the plan's state).
    let outcome = catch_unwind(AssertUnwindSafe(|| -> Result<_, Stopped> {
        if let (Some(cores), None) = (shared.pin_cores, &shared.control.cores) {
            let core = cores[slot % cores.len()];
            os::pin_current_thread(core)
                .map_err(|reason| shared.control.abort(ExecError::Pin { core, reason }))?;
        }
        let mut worker = Worker {
            shared,
            scratch: shared.plan.scratch(),
            rank: Rank::take(shared.priority),
            place: &place,
            jobs: 0,
            waits: 0,
            parks: 0,
            waited: Duration::ZERO,
            in_source: Duration::ZERO,
        };
        place.set(Place::Model);
        let (started, cpu_before) = (shared.now_ns(), shared.cpu_time());
        body(&mut worker)?;
        let mut cpu = shared.cpu_time().saturating_sub(cpu_before);
        if shared.control.cores.is_some() {
            cpu = cpu.saturating_sub(worker.waited);
        }
        Ok(worker.done(role, index, shared.since(started), cpu))
    }));
    match outcome {
        Ok(done) => done.ok(),
        Err(payload) => {
            let message = panic_message(&*payload);
            let at = place.get().name(shared.plan.stages());
            shared.control.abort(ExecError::Panicked { role, index, at, message });
            None
        }
    }
}

pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

pub(crate) struct Worker<'a, P: Plan> {
    pub(crate) shared: &'a Shared<'a, P>,
    scratch: P::Scratch,
    rank: Rank,
    place: &'a Cell<Place>,
    pub(crate) jobs: u64,
    waits: u64,
    parks: u64,
    waited: Duration,
    in_source: Duration,
}

impl<P: Plan> Worker<'_, P> {
    /// Runs neighboring `Batches` stages: all of them on one batch, then on the next.
    pub(crate) fn run_batches(&mut self, stages: Range<usize>, job: &mut P::Job) {
        self.run_batches_observed(stages, job, |_| {});
    }

    /// As [`Self::run_batches`]; also calls `after` with each stage after each batch.
    pub(crate) fn run_batches_observed(
        &mut self,
        stages: Range<usize>,
        job: &mut P::Job,
        mut after: impl FnMut(usize),
    ) {
        let plan = self.shared.plan;
        self.before_step();
        self.place.set(Place::Stage(stages.start));
        let batches = stages.clone().map(|stage| plan.batches(stage, job)).max().unwrap_or(0);
        for batch in 0..batches {
            for stage in stages.clone() {
                self.place.set(Place::Stage(stage));
                // Read for each stage: a stage that counts residence times must not see the time from before the
                // others. A clock costs a thousandth of what a batch does.
                let now_ns = self.shared.now_ns();
                plan.run_batch(stage, job, batch, now_ns, &mut self.scratch);
                after(stage);
            }
        }
        self.after_step();
    }

    /// Runs a `Whole` or `Ordered` stage; the caller keeps the order.
    pub(crate) fn run_whole(&mut self, stage: usize, job: &mut P::Job) {
        self.at(Place::Stage(stage), |plan, scratch| plan.run_whole(stage, job, scratch));
    }

    /// Runs a `PerShard` stage on some groups; the caller keeps the order.
    pub(crate) fn run_shards(&mut self, stage: usize, job: &mut P::Job, groups: Range<usize>) {
        self.at(Place::Stage(stage), |plan, scratch| plan.run_shards(stage, job, groups, scratch));
    }

    pub(crate) fn crosses(&mut self, stage: usize, job: &P::Job) -> bool {
        self.at(Place::Stage(stage), |plan, _| plan.crosses(stage, job))
    }

    pub(crate) fn run_crossing(&mut self, stage: usize, job: &mut P::Job) {
        self.at(Place::Stage(stage), |plan, scratch| plan.run_crossing(stage, job, scratch));
    }

    /// Runs a step as the serial model does, without waiting for other threads.
    pub(crate) fn run_step(&mut self, step: &Step, job: &mut P::Job) {
        match *step {
            Step::Batches(ref stages) => self.run_batches(stages.clone(), job),
            Step::Whole(stage) | Step::Ordered(stage) => self.run_whole(stage, job),
            Step::PerShard(stage) => {
                self.run_shards(stage, job, 0..self.shared.groups);
                if self.crosses(stage, job) {
                    self.run_crossing(stage, job);
                }
            }
        }
    }

    /// Runs foreign code and notes where, for the error message if it panics.
    pub(crate) fn at<R>(&mut self, place: Place, run: impl FnOnce(&P, &mut P::Scratch) -> R) -> R {
        self.before_step();
        self.place.set(place);
        let result = run(self.shared.plan, &mut self.scratch);
        self.after_step();
        result
    }

    fn before_step(&mut self) {
        self.rank.look();
        if let Some(cores) = &self.shared.control.cores {
            cores.shake();
        }
    }

    fn after_step(&mut self) {
        self.place.set(Place::Model);
        if let Some(cores) = &self.shared.control.cores {
            cores.shake();
        }
    }

    /// Waits for the lock, and counts that. Fails if foreign code has panicked under it. The lock is tried for a while,
    /// as turns and rings are: a source's chunk takes little longer to read than a thread takes to sleep and wake.
    pub(crate) fn enter<'l, T: ?Sized>(&mut self, lock: &'l Fragile<T>) -> Result<Held<'l, T>, Stopped> {
        let control = &self.shared.control;
        let cores = &control.cores;
        let at = std::ptr::from_ref(lock).cast::<()>().addr();
        let (mut backoff, mut since) = (control.backoff(), None);
        let guard = loop {
            match lock.try_lock() {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(_)) => return Err(Stopped),
                Err(TryLockError::WouldBlock) => {}
            }
            since.get_or_insert_with(|| self.shared.now_ns());
            if backoff.try_again() {
                continue;
            }
            if cores.is_none() {
                break lock.lock().map_err(|_| Stopped)?;
            }
            control.park(Awaited::Lock(at));
            control.check()?;
        };
        since.into_iter().for_each(|since| self.wait_was(since));
        Ok(Held { guard, _unlock: cores.clone().map(|cores| Unlock { cores, at }) })
    }

    pub(crate) fn wait(&mut self, turn: &Turn, target: u64) -> Result<(), Stopped> {
        if turn.reached(target) {
            return Ok(());
        }
        let control = &self.shared.control;
        self.parks += self.waiting(|| turn.wait(target, control))?;
        Ok(())
    }

    /// Takes the next item out of a ring, waiting for it; `None` when the producer has left.
    pub(crate) fn receive<T>(&mut self, ring: &mut Receiver<T>) -> Result<Option<T>, Stopped> {
        if let Some(thing) = ring.try_receive() {
            return Ok(Some(thing));
        }
        let (control, since) = (&self.shared.control, self.shared.now_ns());
        let more = ring.wait_for_item(control, &mut self.parks)?;
        self.wait_was(since);
        Ok(if more { ring.try_receive() } else { None })
    }

    /// Puts an item into a ring, waiting for room. Fails when the consumer has left, which happens only when the
    /// run is being given up.
    pub(crate) fn send<T>(&mut self, ring: &mut Sender<T>, thing: T) -> Result<(), Stopped> {
        let Err(thing) = ring.try_send(thing) else { return Ok(()) };
        let (control, since) = (&self.shared.control, self.shared.now_ns());
        ring.wait_for_room(control, &mut self.parks)?;
        self.wait_was(since);
        ring.try_send(thing).map_err(|_| Stopped)
    }

    pub(crate) fn park(&mut self, awaited: Awaited) {
        self.parks += 1;
        self.shared.control.park(awaited);
    }

    /// Counts the duration of `wait` as waiting.
    pub(crate) fn waiting<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        let since = self.shared.now_ns();
        let result = wait();
        self.wait_was(since);
        result
    }

    /// Counts the time since `since_ns` of the model's clock as waiting.
    pub(crate) fn wait_was(&mut self, since_ns: u64) {
        self.waits += 1;
        self.waited += self.shared.since(since_ns);
    }

    /// Counts the time since `since_ns` of the model's clock as spent in the source.
    pub(crate) fn source_was(&mut self, since_ns: u64) {
        self.in_source += self.shared.since(since_ns);
    }

    fn done(self, role: &'static str, index: usize, life: Duration, cpu: Duration) -> Done<P::Scratch> {
        let report = ThreadReport {
            role,
            index,
            jobs: self.jobs,
            busy: life.saturating_sub(self.waited + self.in_source),
            in_source: self.in_source,
            waited: self.waited,
            cpu,
            waits: self.waits,
            parks: self.parks,
        };
        Done { scratch: self.scratch, report }
    }
}

/// A held lock. Tells virtual cores when it is released.
pub(crate) struct Held<'l, T: ?Sized> {
    guard: MutexGuard<'l, T>,
    /// Dropped after the guard.
    _unlock: Option<Unlock>,
}

struct Unlock {
    cores: Arc<VirtualCores>,
    at: usize,
}

impl Drop for Unlock {
    fn drop(&mut self) {
        self.cores.unlocked(self.at);
    }
}

impl<T: ?Sized> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighboring_batch_stages_become_one_step() {
        use Scope::{Batches, Ordered, PerShard, Whole};
        let stages: Vec<StageSpec> = [Batches, Batches, Ordered, Whole, Batches, PerShard, Batches, Batches]
            .map(|scope| StageSpec { name: String::new(), scope })
            .into();
        assert_eq!(
            Step::list(&stages, 0..8),
            [
                Step::Batches(0..2),
                Step::Ordered(2),
                Step::Whole(3),
                Step::Batches(4..5),
                Step::PerShard(5),
                Step::Batches(6..8)
            ]
        );
        assert_eq!(Step::list(&stages, 1..2), [Step::Batches(1..2)]);
        assert_eq!(Step::list(&stages, 3..3), []);
    }
}
