//! Run to completion for input in several streams that need no order among each other: the receive queues of
//! network cards, each of which keeps the packets of a flow together.
//!
//! ```text
//! source 0 ──> worker 0: every stage ──> sink 0          state: a gate each, held while one job is in it
//! source 1 ──> worker 1: every stage ──> sink 1
//! ```
//!
//! Each worker has its own source and sink and takes one job after the other through all stages. There are no
//! tickets, no reorder buffer and no common source; workers meet only at shared state.
//!
//! **Order.** The jobs of a lane pass every stage, and the sink, one after the other. So each lane keeps its order,
//! and so does a flow that arrives in one queue. Between lanes there is no order to keep, because queues do not say
//! which packet came first. If a packet is an answer to one that has left, it sees all state that the earlier one
//! changed: entering a gate synchronizes with the job that left it before.
//!
//! **State.** An `Ordered` stage has one gate, a `PerShard` stage has one for each shard group; one job at a time
//! is behind a gate. A job visits the groups in any order, free ones first, since groups share nothing. A job that
//! crosses takes all gates of its stage and keeps them until its crossing half is done, so no other job is in any
//! group meanwhile. Scopes also promise *sequence order*; that holds within a lane only. Each piece of state sees
//! the jobs of all lanes in some merge of their orders, and different pieces may see different merges. So a piece
//! holds what a serial run over its merge would leave in it. The answer equals the serial model's if flows of
//! different lanes do not share state, or share only state that ignores order, such as counters.
//!
//! **No deadlock.** A worker that holds a gate waits only for later gates of the same stage, and it holds none
//! while it waits for its source, its sink or another stage. So of the workers that hold gates of a stage, the one
//! with the last gate waits for none.
//!
//! **Ends.** A lane ends with its source; the others continue. If a worker panics or cannot start, `give_up` tells
//! all other sources to end, because a source of another lane might stay silent forever.
//!
//! **In flight** is one job for each lane.

use crate::intake::Intake;
use crate::plan::{Plan, Sink, Source};
use crate::run_to_completion::pieces_of;
use crate::stop::{Fragile, Stopped};
use crate::threads::{self, Member};
use crate::worker::{Done, Place, Shared, Step, Worker};
use crossbeam_utils::CachePadded;
use std::sync::TryLockError;

/// The source and the sink of one worker.
pub struct Lane<'a, J> {
    /// Its jobs are numbered from 0 without gaps, independently of other lanes.
    pub source: &'a mut dyn Source<J>,
    /// Receives the jobs in the source's order.
    pub sink: &'a mut dyn Sink<J>,
}

/// Admits one job at a time.
type Gate = CachePadded<Fragile<()>>;

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

/// Tells the sources to end if a worker is lost: it panicked, or never began.
struct Alarm<'a>(Option<&'a (dyn Fn() + Sync)>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(give_up) = self.0 {
            give_up();
        }
    }
}

/// How a worker visits the shard groups.
struct Visit {
    /// Workers begin at different groups, so that they seldom meet.
    first_group: usize,
    /// Groups found taken, to be visited last.
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
                let _held = worker.enter(&gates[0])?;
                worker.run_step(step, job);
            }
            Step::PerShard(stage) if worker.crosses(stage, job) => {
                // In ascending order, as every worker does that holds several: otherwise two could wait for each
                // other.
                let _held = gates.iter().map(|gate| worker.enter(gate)).collect::<Result<Vec<_>, _>>()?;
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
            let _held = worker.enter(&gates[group])?;
            worker.run_shards(stage, job, group..group + 1);
        }
        Ok(())
    }
}
