//! Run to completion, after the PowerNP: a pool of equal workers, each of which takes the next job and
//! carries it through all stages to the end.
//!
//! State is kept in order by tickets. An `Ordered` stage has one turn, a `PerShard` stage one per shard
//! group; a turn is the sequence number that may enter. A job goes through the groups in ascending order and
//! passes each group's turn on as soon as it is done there, so several workers are in the same stage at once,
//! on different groups, one behind the other. A job that crosses takes the turns as they come but passes none
//! on until its crossing half is done: then no other job can be in any group of the stage, because those
//! before it have left them all and those behind it have not entered the first.
//!
//! The completion unit puts finished jobs back in order.
//!
//! **No deadlock.** Jobs are taken in sequence order, so of all jobs not yet delivered the one with the
//! lowest sequence is in some worker's hands. Every wait is for lower sequences only: for a turn until they
//! have passed, in the completion unit until they have been delivered (or moved up). So that worker never
//! waits, the job gets done, and then another is the lowest.
//!
//! **In flight** are at most `workers` jobs in hands and `reorder_jobs` finished ones.

use crate::completion::Completion;
use crate::intake::Intake;
use crate::plan::Plan;
use crate::stop::Stopped;
use crate::threads::{self, Member};
use crate::turn::Turn;
use crate::worker::{Done, Shared, Step, Worker};

/// How many pieces the state of a step has: none, one, or one per group.
pub(crate) fn pieces_of(step: &Step, groups: usize) -> usize {
    match step {
        Step::Batches(_) | Step::Whole(_) => 0,
        Step::Ordered(_) => 1,
        Step::PerShard(_) => groups,
    }
}

/// The turns of one step: one for each piece of its state.
fn turns_for(step: &Step, groups: usize) -> Vec<Turn> {
    (0..pieces_of(step, groups)).map(|_| Turn::default()).collect()
}

/// Steps with their turns.
pub(crate) fn with_turns(steps: Vec<Step>, groups: usize) -> Vec<(Step, Vec<Turn>)> {
    let with_its = |step| {
        let turns = turns_for(&step, groups);
        (step, turns)
    };
    steps.into_iter().map(with_its).collect()
}

/// Runs a step in turn.
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
