//! Where the threads of a scheduling run: on this machine, or on virtual cores.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::thread::Poller;
use crate::os;
use crate::virtual_cores::{Awaited, Sleeper, VirtualCores};

/// What the threads of a scheduling run on, and its clock.
#[derive(Clone, Debug)]
pub(super) enum Machine {
    /// This machine; the time when the scheduling began.
    Real(Instant),
    Virtual {
        cores: Arc<VirtualCores>,
        /// The cost of asking the kernel for events.
        poll_ns: u64,
    },
}

impl Machine {
    pub(super) fn real() -> Self {
        Machine::Real(Instant::now())
    }

    /// Milliseconds since the scheduling began.
    pub(super) fn now_ms(&self) -> u64 {
        match self {
            Machine::Real(began) => u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            Machine::Virtual { cores, .. } => cores.now_ns() / 1_000_000,
        }
    }

    /// Announces a thread.
    pub(super) fn seat(&self, name: &str) -> Seat {
        let number = match self {
            Machine::Real(_) => 0,
            Machine::Virtual { cores, .. } => cores.announce([name.to_owned()].into_iter()),
        };
        Seat { machine: self.clone(), number }
    }

    /// A handle that wakes the calling thread.
    pub(super) fn sleeper(&self) -> Sleeper {
        match self {
            Machine::Real(_) => Sleeper::here(None),
            Machine::Virtual { cores, .. } => Sleeper::here(Some(cores)),
        }
    }

    /// Sleeps until woken, perhaps spuriously. On virtual cores it fails if no thread is left to wake another.
    pub(super) fn park(&self) -> io::Result<()> {
        match self {
            Machine::Real(_) => {
                thread::park();
                Ok(())
            }
            Machine::Virtual { cores, .. } => cores.park(Awaited::Event).map_err(io::Error::other),
        }
    }
}

/// A thread that was announced and has not started.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    machine: Machine,
    number: usize,
}

impl Seat {
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
