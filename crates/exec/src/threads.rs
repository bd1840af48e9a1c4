//! Starts the threads of a run and waits for all of them.

use crate::plan::Plan;
use crate::report::ExecError;
use crate::stop::Stopped;
use crate::worker::{Done, Shared, Worker, supervise};
use std::thread;

/// What one thread is to do.
type Body<'s, P> = Box<dyn for<'w> FnOnce(&mut Worker<'w, P>) -> Result<(), Stopped> + Send + 's>;

/// One thread to be.
pub(crate) struct Member<'s, P: Plan> {
    role: &'static str,
    index: usize,
    body: Body<'s, P>,
}

impl<'s, P: Plan> Member<'s, P> {
    pub(crate) fn new(
        role: &'static str,
        index: usize,
        body: impl for<'w> FnOnce(&mut Worker<'w, P>) -> Result<(), Stopped> + Send + 's,
    ) -> Self {
        Self { role, index, body: Box::new(body) }
    }
}

/// Runs all members, each in its own thread, to their ends. Those that failed are missing from the result,
/// and then the run has been given up.
pub(crate) fn run<P: Plan>(shared: &Shared<'_, P>, members: Vec<Member<'_, P>>) -> Vec<Done<P::Scratch>> {
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(members.len());
        for (slot, Member { role, index, body }) in members.into_iter().enumerate() {
            let builder = thread::Builder::new().name(format!("{role}-{index}"));
            match builder.spawn_scoped(scope, move || supervise(shared, role, index, slot, body)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // The members not started are dropped with the loop, and their ends of rings with them.
                    shared.control.abort(ExecError::Spawn(error));
                    break;
                }
            }
        }
        // `supervise` catches panics, so a join only fails if reporting one panicked in turn.
        handles.into_iter().filter_map(|handle| handle.join().ok().flatten()).collect()
    })
}
