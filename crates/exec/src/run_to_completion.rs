//! Run to completion, after the PowerNP: each worker of a pool of equals takes the next job and carries it through
//! all stages to the end.
//!
//! Tickets keep the order of state. An `Ordered` stage has one turn, a `PerShard` stage one for each shard group;
//! the value of a turn is the sequence number that may enter. A job visits the groups in ascending order and passes
//! each group's turn on when it is done there, so several workers are in one stage at once, on different groups,
//! one behind the other. A job that crosses takes the turns as they come but passes none on until its crossing half
//! is done. Then no other job can be in any group of the stage: those before it have left all groups, and those
//! behind it have not entered the first.
//!
//! The completion unit puts finished jobs back in order.
//!
//! **No deadlock.** Jobs are taken in sequence order, so some worker has the undelivered job with the lowest
//! sequence. Every wait is for lower sequences: for a turn until they have passed, in the completion unit until
//! they have been delivered or the front has moved. So that worker never waits, the job is done, and another job
//! becomes the lowest.
//!
//! **In flight** are at most `workers` jobs in hands and `reorder_jobs` finished ones.

use crate::completion::Completion;
use crate::intake::Intake;
use crate::plan::Plan;
use crate::stop::Stopped;
use crate::threads::{self, Member};
use crate::turn::Turn;
use crate::worker::{Done, Shared, Step, Worker};

/// How many pieces the state of a step has: none, one, or one for each group.
pub(crate) fn pieces_of(step: &Step, groups: usize) -> usize {
    match step {
        Step::Batches(_) | Step::Whole(_) => 0,
        Step::Ordered(_) => 1,
        Step::PerShard(_) => groups,
    }
}

/// One turn for each piece of the step's state.
fn turns_for(step: &Step, groups: usize) -> Vec<Turn> {
    (0..pieces_of(step, groups)).map(|_| Turn::default()).collect()
}

pub(crate) fn with_turns(steps: Vec<Step>, groups: usize) -> Vec<(Step, Vec<Turn>)> {
    let with_its = |step| {
        let turns = turns_for(&step, groups);
        (step, turns)
    };
    steps.into_iter().map(with_its).collect()
}

/// Runs a step on a job, in sequence order where the step has state.
pub(crate) fn run_step<P: Plan>(
    worker: &mut Worker<'_, P>,
    step: &Step,
    turns: &[Turn],
    sequence: u64,
    job: &mut P::Job,
) -> Result<(), Stopped> {
    match *step {
        Step::Batches(_) | Step::Whole(_) => worker.run_step(step, job),
        Step::Ordered(_) => {
            worker.wait(&turns[0], sequence)?;
            worker.run_step(step, job);
            turns[0].set(sequence + 1);
        }
        Step::PerShard(stage) => {
            let crosses = worker.crosses(stage, job);
            for (group, turn) in turns.iter().enumerate() {
                worker.wait(turn, sequence)?;
                worker.run_shards(stage, job, group..group + 1);
                if !crosses {
                    turn.set(sequence + 1);
                }
            }
            if crosses {
                worker.run_crossing(stage, job);
                turns.iter().for_each(|turn| turn.set(sequence + 1));
            }
        }
    }
    Ok(())
}

pub(crate) fn run<P: Plan>(
    shared: &Shared<'_, P>,
    workers: usize,
    intake: &Intake<'_, P::Job>,
    completion: &Completion<'_, P::Job>,
) -> Vec<Done<P::Scratch>> {
    let stages = shared.plan.stages();
    let steps = &with_turns(Step::list(stages, 0..stages.len()), shared.groups);
    let members = (0..workers)
        .map(|index| {
            Member::new("worker", index, move |worker| {
                while let Some((sequence, mut job)) = intake.take(worker)? {
                    for (step, turns) in steps {
                        run_step(worker, step, turns, sequence, &mut job)?;
                    }
                    completion.put(sequence, job, worker)?;
                }
                Ok(())
            })
        })
        .collect();
    threads::run(shared, members)
}
