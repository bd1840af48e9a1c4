//! The threads of a scheduling: each is announced, and then starts on this machine or on a virtual core.

use std::io;
use std::sync::Arc;

use super::machine::Machine;
use super::thread::Poller;
use crate::os;
use crate::virtual_cores::{Sleeper, VirtualCores};

/// A thread that was announced and has not started.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    machine: Machine,
    number: usize,
}

impl Seat {
    /// Announces a thread.
    pub(super) fn new(machine: &Machine, name: &str) -> Self {
        let number = match machine {
            Machine::Real(_) => 0,
            Machine::Virtual { cores, .. } => cores.announce([name.to_owned()].into_iter()),
        };
        Self { machine: machine.clone(), number }
    }

    /// The thread's poller.
    pub(super) fn poller(&self) -> io::Result<Poller> {
        match &self.machine {
            Machine::Real(_) => Poller::open(),
            Machine::Virtual { cores, poll_ns } => {
                let sleeper = Sleeper::Virtual(Arc::clone(cores), self.number);
                Ok(Poller::on_virtual_core(self.machine.clone(), sleeper, *poll_ns))
            }
        }
    }

    /// Runs `body` as this thread. `wake_all` ends the scheduling if all others wait when the thread ends.
    pub(super) fn occupy<R>(self, wake_all: impl Fn(), body: impl FnOnce() -> R) -> R {
        let Machine::Virtual { cores, .. } = &self.machine else { return body() };
        // Virtual cores hand over at every step, which is fast on one core of the machine. Without it is only slower.
        let _bound = os::current_core().map(os::pin_current_thread);
        cores.enter(self.number);
        let _left = Leave { cores, wake_all };
        body()
    }

    /// The thread could not be started.
    pub(super) fn stays_empty(&self) {
        if let Machine::Virtual { cores, .. } = &self.machine {
            cores.will_not_come(self.number);
        }
    }
}

/// Takes the thread off its core, after a panic too.
struct Leave<'a, F: Fn()> {
    cores: &'a VirtualCores,
    wake_all: F,
}

impl<F: Fn()> Drop for Leave<'_, F> {
    fn drop(&mut self) {
        while self.cores.leave().is_err() {
            (self.wake_all)();
        }
    }
}
