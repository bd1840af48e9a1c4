//! The threads of a scheduling: each is announced, and then starts on this machine or on a virtual core.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use super::ControlPlane;
use super::machine::Machine;
use super::thread::{Poller, Wakers};
use crate::os;
use crate::virtual_cores::{Sleeper, VirtualCores};

/// A thread that was announced and has not started.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    machine: Machine,
    number: usize,
    name: String,
}

impl Seat {
    /// Announces a thread.
    pub(super) fn new(machine: &Machine, name: String) -> Self {
        let number = match machine {
            Machine::Real(_) => 0,
            Machine::Virtual { cores, .. } => cores.announce([name.clone()].into_iter()),
        };
        Self { machine: machine.clone(), number, name }
    }

    /// Begins a scheduling with one export queue, whose calling thread is the master: its poller has the listening
    /// sockets, and is among those woken.
    pub(super) fn master<C: ControlPlane>(
        machine: &Machine,
        control: &C,
    ) -> io::Result<(Self, Poller, Wakers)> {
        let seat = Self::new(machine, "master".to_owned());
        let (poller, wakers) = (seat.poller()?, Wakers::default());
        wakers.add(poller.waker());
        control.begin(1, wakers.clone());
        poller.sockets().listen(control)?;
        Ok((seat, poller, wakers))
    }

    /// The thread's poller.
    pub(super) fn poller(&self) -> io::Result<Poller> {
        match &self.machine {
            Machine::Real(_) => Poller::open(),
            Machine::Virtual { cores, poll_ns } => {
                let sleeper = Sleeper::Virtual(Arc::clone(cores), self.number);
                Ok(Poller::on_virtual_core(Arc::clone(cores), sleeper, *poll_ns))
            }
        }
    }

    /// Starts the thread.
    pub(super) fn spawn<'scope, R: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        builder: Builder,
        wake_all: impl Fn() + Send + 'scope,
        body: impl FnOnce() -> R + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, R>> {
        let seat = self.clone();
        builder.name(self.name).spawn_scoped(scope, move || seat.occupy(wake_all, body)).inspect_err(|_| {
            if let Machine::Virtual { cores, .. } = &self.machine {
                cores.will_not_come(self.number);
            }
        })
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
}

/// The first failure of threads that are waited for, after `result`.
pub(super) fn join_all(
    handles: Vec<ScopedJoinHandle<'_, io::Result<()>>>,
    result: io::Result<()>,
) -> io::Result<()> {
    handles.into_iter().fold(result, |result, handle| {
        result.and(handle.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked"))))
    })
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
