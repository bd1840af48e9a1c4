//! Starts the threads of a run and waits for all of them.

use crate::os;
use crate::plan::Plan;
use crate::report::ExecError;
use crate::stop::Stopped;
use crate::virtual_cores::VirtualCores;
use crate::worker::{Done, Shared, Worker, supervise};
use std::thread;

type Body<'s, P> = Box<dyn for<'w> FnOnce(&mut Worker<'w, P>) -> Result<(), Stopped> + Send + 's>;

/// A thread to start.
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

/// Runs each member in its own thread and waits for all of them. Members that failed are missing from the result;
/// the run has then been given up.
pub(crate) fn run<P: Plan>(shared: &Shared<'_, P>, members: Vec<Member<'_, P>>) -> Vec<Done<P::Scratch>> {
    let cores = shared.control.cores.as_ref();
    let names = members.iter().map(|member| format!("{} {}", member.role, member.index));
    let first = cores.map_or(0, |cores| cores.announce(names));
    let home = cores.and_then(|_| os::current_core());
    let count = members.len();
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(members.len());
        for (slot, Member { role, index, body }) in members.into_iter().enumerate() {
            let builder = thread::Builder::new().name(format!("{role}-{index}"));
            match builder.spawn_scoped(scope, move || match cores {
                None => supervise(shared, role, index, slot, body),
                Some(cores) => on_virtual_core(shared, cores, home, first + slot, || {
                    supervise(shared, role, index, slot, body)
                }),
            }) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    // The loop drops the members not started, and with them their ends of rings.
                    shared.control.abort(ExecError::Spawn(error));
                    if let Some(cores) = cores {
                        (first + slot..first + count).for_each(|number| cores.will_not_come(number));
                    }
                    break;
                }
            }
        }
        // `supervise` catches panics, so a join fails only if reporting one panicked in turn.
        handles.into_iter().filter_map(|handle| handle.join().ok().flatten()).collect()
    })
}

/// Runs `body` as a thread of virtual cores. These threads hand over at every step, which is fast if all are on one
/// core of the machine, `home`. A thread that cannot be pinned there is only slower.
fn on_virtual_core<P: Plan, R>(
    shared: &Shared<'_, P>,
    cores: &VirtualCores,
    home: Option<usize>,
    number: usize,
    body: impl FnOnce() -> R,
) -> R {
    let _bound = home.map(os::pin_current_thread);
    cores.enter(number);
    let result = body();
    while let Err(deadlock) = cores.leave() {
        shared.control.abort(deadlock);
    }
    result
}
