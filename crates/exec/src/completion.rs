//! The way out: a reorder buffer, like the completion unit of a network processor.
//!
//! Finished jobs (in a farm: parts of jobs) come in any order and leave in sequence order, each whole. The thread
//! that brings what the front was missing becomes the deliverer. It merges the parts, runs the last stages
//! (`tail`), gives the job to the sink, and continues with the next job until one is missing. Meanwhile other
//! threads add their jobs and return to work.
//!
//! The buffer holds `capacity` jobs. A thread with a later job waits until the front has moved. The job with the
//! lowest sequence is always inside the window, so its worker never waits here.

use crate::plan::{Plan, Sink};
use crate::stop::{Fragile, Stopped};
use crate::turn::Turn;
use crate::worker::{Place, Step, Worker};
use parking_lot::Mutex;
use std::collections::VecDeque;

pub(crate) struct Completion<'a, J> {
    delivered: Turn,
    capacity: u64,
    tail: Vec<Step>,
    state: Mutex<State<J>>,
    sink: Fragile<&'a mut (dyn Sink<J> + 'a)>,
}

struct State<J> {
    /// Sequence of the first slot.
    first: u64,
    slots: VecDeque<Slot<J>>,
    /// A thread delivers, and will look at the front again before it stops.
    delivering: bool,
    occupied: usize,
    high_water: usize,
}

struct Slot<J> {
    /// The parts in order; empty until the first has come.
    parts: Vec<Option<J>>,
    missing: usize,
}

impl<J> State<J> {
    fn put(&mut self, sequence: u64, part: usize, parts: usize, job: J) {
        let at = usize::try_from(sequence - self.first).unwrap_or(usize::MAX);
        while self.slots.len() <= at {
            self.slots.push_back(Slot { parts: Vec::new(), missing: 0 });
        }
        let slot = &mut self.slots[at];
        if slot.parts.is_empty() {
            slot.parts.resize_with(parts, || None);
            slot.missing = parts;
            self.occupied += 1;
        }
        debug_assert!(slot.parts[part].is_none(), "a part came twice");
        slot.parts[part] = Some(job);
        slot.missing -= 1;
    }

    fn take_front(&mut self) -> Option<Vec<J>> {
        let front = self.slots.front()?;
        if front.parts.is_empty() || front.missing > 0 {
            return None;
        }
        self.first += 1;
        self.occupied -= 1;
        self.slots.pop_front().map(|slot| slot.parts.into_iter().flatten().collect())
    }
}

impl<'a, J: Send> Completion<'a, J> {
    /// A unit that reorders `capacity` jobs and runs `tail` on each before the sink gets it.
    pub(crate) fn new(sink: &'a mut (dyn Sink<J> + 'a), capacity: usize, tail: Vec<Step>) -> Self {
        Self {
            delivered: Turn::default(),
            capacity: capacity.max(1) as u64,
            tail,
            state: Mutex::new(State {
                first: 0,
                slots: VecDeque::new(),
                delivering: false,
                occupied: 0,
                high_water: 0,
            }),
            sink: Fragile::new(sink),
        }
    }

    /// Takes a finished job from its worker, which may have to deliver it.
    pub(crate) fn put<P: Plan<Job = J>>(
        &self,
        sequence: u64,
        job: J,
        worker: &mut Worker<'_, P>,
    ) -> Result<(), Stopped> {
        self.put_part(sequence, 0, 1, job, worker)
    }

    /// Takes part `part` of the `parts` parts of a finished job.
    pub(crate) fn put_part<P: Plan<Job = J>>(
        &self,
        sequence: u64,
        part: usize,
        parts: usize,
        job: J,
        worker: &mut Worker<'_, P>,
    ) -> Result<(), Stopped> {
        worker.wait(&self.delivered, (sequence + 1).saturating_sub(self.capacity))?;
        let mut state = self.state.lock();
        state.put(sequence, part, parts, job);
        if state.delivering {
            state.high_water = state.high_water.max(state.occupied);
            return Ok(());
        }
        while let Some(parts) = state.take_front() {
            state.delivering = true;
            state.high_water = state.high_water.max(state.occupied);
            let delivered = state.first;
            drop(state);
            self.deliver(parts, worker)?;
            self.delivered.set(delivered);
            state = self.state.lock();
        }
        state.delivering = false;
        state.high_water = state.high_water.max(state.occupied);
        Ok(())
    }

    fn deliver<P: Plan<Job = J>>(
        &self,
        mut parts: Vec<J>,
        worker: &mut Worker<'_, P>,
    ) -> Result<(), Stopped> {
        let single = if parts.len() == 1 { parts.pop() } else { None };
        let mut job = match single {
            Some(job) => job,
            None => worker.at(Place::Merge, |plan, _| plan.merge(parts)),
        };
        for step in &self.tail {
            worker.run_step(step, &mut job);
        }
        // Never contended: only the deliverer comes here.
        let mut sink = worker.enter(&self.sink)?;
        worker.at(Place::Sink, |_, _| sink.accept(job));
        Ok(())
    }

    /// The most jobs that ever waited for an earlier one.
    pub(crate) fn high_water(&self) -> usize {
        self.state.lock().high_water
    }
}
