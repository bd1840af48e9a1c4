//! The way in: the source behind a lock, and a check of its sequence numbers.
//!
//! If a source left out a sequence number, every ticket and the reorder buffer would wait for it forever. So a gap
//! is an error here.

use crate::plan::{Plan, Source};
use crate::report::ExecError;
use crate::stop::{Fragile, Stopped};
use crate::worker::{Place, Worker};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct Intake<'a, J> {
    state: Fragile<State<'a, J>>,
    taken: AtomicU64,
}

struct State<'a, J> {
    source: &'a mut (dyn Source<J> + 'a),
    next: u64,
    ended: bool,
}

impl<'a, J: Send> Intake<'a, J> {
    pub(crate) fn new(source: &'a mut (dyn Source<J> + 'a)) -> Self {
        Self { state: Fragile::new(State { source, next: 0, ended: false }), taken: AtomicU64::new(0) }
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Takes the next job, checks its sequence and admits it; `None` at the end.
    pub(crate) fn take<P: Plan<Job = J>>(
        &self,
        worker: &mut Worker<'_, P>,
    ) -> Result<Option<(u64, J)>, Stopped> {
        // A poisoned lock means that the source has panicked: it must not be called again.
        let mut held = worker.enter(&self.state)?;
        let state = &mut *held;
        worker.shared.control.check()?;
        if state.ended {
            return Ok(None);
        }
        let since = worker.shared.now_ns();
        let job = worker.at(Place::Source, |_, _| state.source.next());
        worker.source_was(since);
        let Some(mut job) = job else {
            state.ended = true;
            return Ok(None);
        };
        let now_ns = worker.shared.now_ns();
        let (expected, found) = (state.next, worker.at(Place::Source, |plan, _| plan.sequence(&job)));
        if found != expected {
            return Err(worker.shared.control.abort(ExecError::OutOfSequence { expected, found }));
        }
        state.next += 1;
        drop(held);
        self.taken.fetch_add(1, Relaxed);
        worker.jobs += 1;
        worker.at(Place::Source, |plan, _| plan.admit(&mut job, now_ns));
        Ok(Some((expected, job)))
    }
}
