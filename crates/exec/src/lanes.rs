//! Run to completion where the input comes in several streams that owe each other no order: the receive queues of network
//! cards, which keep the packets of a flow together.
//!
//! ```text
//! source 0 ──> worker 0: every stage ──> sink 0          state: a gate each, held while one job is in it
//! source 1 ──> worker 1: every stage ──> sink 1
//! ```
//!
//! Each worker has a way in and a way out of its own and takes one job after the other through all stages. There are no
//! tickets, no reorder buffer, and no source to queue for; workers meet only at state that they share.
//!
//! **Order.** Jobs of a lane pass every stage, and the sink, one after the other. So whatever comes by one lane stays in order;
//! a flow that has one queue has one lane. Between lanes there is no order to keep: which of two queues was first, nobody
//! can say. What comes later because of what left earlier (an answer) finds all that the earlier has done, for a gate
//! that was left and is entered hands that on.
//!
//! **State.** An `Ordered` stage has one gate, a `PerShard` stage one for each shard group; one job is behind a gate at a
//! time. A job visits groups in any order, those that nobody is in first, since groups have nothing in common. A job that
//! crosses takes all gates of its stage and keeps them until its crossing half is done, so no other job is in any group
//! meanwhile. What scopes promise beyond that, *sequence order*, is kept within a lane only: each piece of state sees the
//! jobs of all lanes in some merge of their orders, not all pieces in the same. So what a piece holds is what it would
//! hold after a serial run over that merge, and an answer is the serial model's as far as flows of different lanes do
//! not touch the same state (or do so with no regard to order, as counters do).
//!
//! **No deadlock.** A worker that holds a gate waits only for later gates of the same stage, and holds none when it waits
//! for its source, its sink or another stage. So of the workers that hold gates of a stage, the one that holds the last
//! gate waits for nobody.
//!
//! **Ends.** A lane ends with its source; the others go on. Who panics or cannot start has the others' sources told to end
//! (`give_up`): unlike a source that all workers share, theirs might have nothing to say for ever.
//!
//! **In flight** is one job for each lane.

use crate::intake::Intake;
use crate::plan::{Plan, Sink, Source};
use crate::run_to_completion::pieces_of;
use crate::stop::Stopped;
use crate::threads::{self, Member};
use crate::worker::{Done, Place, Shared, Step, Worker};
use crossbeam_utils::CachePadded;
use std::sync::{Mutex, TryLockError};

/// A way in and a way out for one worker.
pub struct Lane<'a, J> {
    /// Where its jobs come from, numbered from 0 without gaps, whatever other lanes have.
    pub source: &'a mut dyn Source<J>,
    /// Where they go, in that order.
    pub sink: &'a mut dyn Sink<J>,
}

/// One job is behind it at a time.
type Gate = CachePadded<Mutex<()>>;

pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    intakes: &[Intake<'_, P::Job>],
    sinks: Vec<&mut dyn Sink<P::Job>>,
    give_up: &(dyn Fn() + Sync),
) -> Vec<Done<P::Scratch>> {
    let stages = shared.plan.stages();
    let steps: Vec<(Step, Vec<Gate>)> = Step::list(stages, 0..stages.len())
        .into_iter()
        .map(|step| {
            let gates = (0..pieces_of(&step, shared.groups)).map(|_| Gate::default()).collect();
            (step, gates)
        })
        .collect();
    let steps = &steps;
    let lanes = intakes.len();
    let members = intakes
        .iter()
        .zip(sinks)
        .enumerate()
        .map(|(index, (intake, sink))| {
            let alarm = Alarm(Some(give_up));
            Member::new("worker", index, move |worker| {
                let mut alarm = alarm;
                let mut visit = Visit { first_group: index * worker.shared.groups / lanes, busy: Vec::new() };
                while let Some((_, mut job)) = intake.take(worker)? {
                    for (step, gates) in steps {
                        visit.run_step(worker, step, gates, &mut job)?;
                    }
                    worker.at(Place::Sink, |_, _| sink.accept(job));
                }
                alarm.0 = None;
                Ok(())
            })
        })
        .collect();
    threads::run(shared, members)
}

/// Tells the sources to end when a worker is lost: it panicked, or never began.
struct Alarm<'a>(Option<&'a (dyn Fn() + Sync)>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(give_up) = self.0 {
            give_up();
        }
    }
}

/// How a worker goes through shard groups.
struct Visit {
    /// Workers begin at different groups, so that they seldom meet.
    first_group: usize,
    /// Groups that somebody was in.
    busy: Vec<usize>,
}

impl Visit {
    fn run_step<P: Plan>(
        &mut self,
        worker: &mut Worker<'_, P>,
        step: &Step,
        gates: &[Gate],
        job: &mut P::Job,
    ) -> Result<(), Stopped> {
        match *step {
            Step::Batches(_) | Step::Whole(_) => worker.run_step(step, job),
            Step::Ordered(_) => {
                let _held = worker.lock(&gates[0])?;
                worker.run_step(step, job);
            }
            Step::PerShard(stage) if worker.crosses(stage, job) => {
                // In ascending order, as everybody does who holds several.
                let _held = gates.iter().map(|gate| worker.lock(gate)).collect::<Result<Vec<_>, _>>()?;
                worker.run_step(step, job);
            }
            Step::PerShard(stage) => self.run_groups(worker, stage, gates, job)?,
        }
        Ok(())
    }

    fn run_groups<P: Plan>(
        &mut self,
        worker: &mut Worker<'_, P>,
        stage: usize,
        gates: &[Gate],
        job: &mut P::Job,
    ) -> Result<(), Stopped> {
        self.busy.clear();
        for place in 0..gates.len() {
            let group = (self.first_group + place) % gates.len();
            match gates[group].try_lock() {
                Ok(_held) => worker.run_shards(stage, job, group..group + 1),
                Err(TryLockError::WouldBlock) => self.busy.push(group),
                Err(TryLockError::Poisoned(_)) => return Err(Stopped),
            }
        }
        for &group in &self.busy {
            let _held = worker.lock(&gates[group])?;
            worker.run_shards(stage, job, group..group + 1);
        }
        Ok(())
    }
}
