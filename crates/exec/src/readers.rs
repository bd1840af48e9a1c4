//! The threads before the workers of a farm or a chain. They take jobs from the source in turn, reader `r` those
//! with sequence `r` modulo R, and run the first stages on them, with tickets where those have state.

use crate::intake::Intake;
use crate::plan::Plan;
use crate::run_to_completion::{run_step, with_turns};
use crate::stop::Stopped;
use crate::turn::Turn;
use crate::worker::{Shared, Step, Worker};

/// The state that all readers share.
pub(crate) struct Readers {
    count: usize,
    head: Vec<(Step, Vec<Turn>)>,
    /// The next sequence to take from the source; only its reader may.
    turn: Turn,
}

impl Readers {
    pub(crate) fn new<P: Plan>(shared: &Shared<'_, P>, count: usize, head: Vec<Step>) -> Self {
        Self { count, head: with_turns(head, shared.groups), turn: Turn::default() }
    }

    /// Runs one reader until the source has ended. `hand_on` gets the reader's jobs in their order.
    pub(crate) fn read<P: Plan>(
        &self,
        worker: &mut Worker<'_, P>,
        reader: usize,
        intake: &Intake<'_, P::Job>,
        mut hand_on: impl FnMut(&mut Worker<'_, P>, u64, P::Job) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        for due in (reader as u64..).step_by(self.count) {
            worker.wait(&self.turn, due)?;
            let taken = intake.take(worker)?;
            self.turn.set(due + 1);
            let Some((sequence, mut job)) = taken else { break };
            for (step, turns) in &self.head {
                run_step(worker, step, turns, sequence, &mut job)?;
            }
            hand_on(worker, sequence, job)?;
        }
        Ok(())
    }

    /// The reader or worker of a sequence, of `count` that take turns.
    pub(crate) fn of(sequence: u64, count: usize) -> usize {
        (sequence % count as u64) as usize
    }
}
