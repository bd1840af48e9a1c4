//! Common to the threads of every scheduling: a poller with its waker, and the list of sessions that want a turn.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Registry, Token, Waker};

use super::machine::Machine;
use super::{ControlPlane, Share};
use crate::virtual_cores::{Awaited, Sleeper, VirtualCores};

/// The token of listening sockets; a session's token is its number.
pub(super) const LISTENERS: Token = Token(usize::MAX - 1);
const WAKER: Token = Token(usize::MAX);

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// The longest sleep, so that a thread looks again even if nobody wakes it.
const SLEEP_MAX: Duration = Duration::from_millis(250);

/// Wakes one thread that sleeps in its poller; costs no system call if the thread is awake.
#[derive(Clone)]
pub(super) struct ThreadWaker(Arc<ThreadWakerInner>);

struct ThreadWakerInner {
    wakes: Wakes,
    asleep: AtomicBool,
    /// Set while the thread is awake, this prevents its next sleep.
    is_woken: AtomicBool,
}

enum Wakes {
    InPoller(Waker),
    OnVirtualCore(Sleeper),
}

impl ThreadWaker {
    fn new(wakes: Wakes) -> Self {
        let (asleep, is_woken) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(ThreadWakerInner { wakes, asleep, is_woken }))
    }

    pub(super) fn wake(&self) {
        self.0.is_woken.store(true, Ordering::SeqCst);
        if self.0.asleep.swap(false, Ordering::SeqCst) {
            match &self.0.wakes {
                // An error means that the poller is gone, and its thread with it.
                Wakes::InPoller(waker) => drop(waker.wake()),
                Wakes::OnVirtualCore(sleeper) => sleeper.unpark(),
            }
        }
    }
}

/// Wakes every thread of a scheduling, for other threads that changed something.
#[derive(Clone, Default)]
pub struct Wakers(Arc<Mutex<Vec<ThreadWaker>>>);

impl Wakers {
    /// Wakes all threads.
    pub fn wake_all(&self) {
        self.0.lock().iter().for_each(ThreadWaker::wake);
    }

    pub(super) fn add(&self, waker: ThreadWaker) {
        self.0.lock().push(waker);
    }

    pub(super) fn remove(&self, waker: &ThreadWaker) {
        self.0.lock().retain(|each| !Arc::ptr_eq(&each.0, &waker.0));
    }
}

/// Where a thread hears of sockets that are ready.
#[derive(Clone)]
pub(super) struct Sockets(SocketsKind);

#[derive(Clone)]
enum SocketsKind {
    Kernel(Arc<Registry>),
    /// Sessions that became ready.
    Virtual(Arc<Mutex<Vec<usize>>>),
}

impl Sockets {
    /// Registers those of the session's connections that are not registered yet. On virtual cores everything that
    /// will arrive on them is there at once.
    pub(super) fn attach<C: ControlPlane>(&self, control: &C, session: usize) -> io::Result<()> {
        match &self.0 {
            SocketsKind::Kernel(registry) => control.attach(session, registry, Token(session)),
            SocketsKind::Virtual(ready) => {
                ready.lock().push(session);
                Ok(())
            }
        }
    }

    /// Registers the listening sockets, of which virtual cores have none.
    pub(super) fn listen<C: ControlPlane>(&self, control: &C) -> io::Result<()> {
        match &self.0 {
            SocketsKind::Kernel(registry) => control.attach_listeners(registry, LISTENERS),
            SocketsKind::Virtual(_) => Ok(()),
        }
    }
}

/// A thread's poller, and its sessions that want a turn.
pub(super) struct Poller {
    events: EventSource,
    sockets: Sockets,
    waker: ThreadWaker,
    turns: Turns,
    /// Listening sockets have connections to accept.
    listeners_ready: bool,
}

enum EventSource {
    Kernel { poll: Poll, events: Events },
    Virtual { cores: Arc<VirtualCores>, poll_ns: u64, ready: Arc<Mutex<Vec<usize>>> },
}

impl Poller {
    pub(super) fn open() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Wakes::InPoller(Waker::new(poll.registry(), WAKER)?);
        let sockets = SocketsKind::Kernel(Arc::new(poll.registry().try_clone()?));
        let events = EventSource::Kernel { poll, events: Events::with_capacity(EVENTS_MAX) };
        Ok(Self::new(events, sockets, waker))
    }

    /// The poller of the thread that `sleeper` wakes.
    pub(super) fn on_virtual_core(cores: Arc<VirtualCores>, sleeper: Sleeper, poll_ns: u64) -> Self {
        let ready = Arc::<Mutex<Vec<usize>>>::default();
        let sockets = SocketsKind::Virtual(Arc::clone(&ready));
        Self::new(EventSource::Virtual { cores, poll_ns, ready }, sockets, Wakes::OnVirtualCore(sleeper))
    }

    fn new(events: EventSource, sockets: SocketsKind, wakes: Wakes) -> Self {
        Self {
            events,
            sockets: Sockets(sockets),
            waker: ThreadWaker::new(wakes),
            turns: Turns::default(),
            listeners_ready: false,
        }
    }

    pub(super) fn waker(&self) -> ThreadWaker {
        self.waker.clone()
    }

    pub(super) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    pub(super) fn turns(&mut self) -> &mut Turns {
        &mut self.turns
    }

    /// Asks for events once, and leaves them.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        self.events.wait(Duration::ZERO)
    }

    /// Does the work beside sessions: accepts waiting connections, runs due timers, does a piece of background
    /// work. Returns whether there is more background work; `due_ms` becomes the time of the next timer.
    pub(super) fn housekeeping<C: ControlPlane>(
        &mut self,
        control: &C,
        worker: &mut C::Worker,
        share: Share,
        due_ms: &mut u64,
        now_ms: u64,
    ) -> bool {
        if std::mem::take(&mut self.listeners_ready) {
            control.accept(worker, now_ms);
        }
        if now_ms >= *due_ms {
            *due_ms = control.tick(worker, share, now_ms);
        }
        control.background_work(worker, share, now_ms)
    }

    /// Takes events. Unless `busy`, sleeps until there is one, until `until_ms` or until somebody wakes the thread.
    pub(super) fn poll<C: ControlPlane>(
        &mut self,
        control: &C,
        machine: &Machine,
        busy: bool,
        until_ms: u64,
    ) -> io::Result<()> {
        let mut timeout = Duration::ZERO;
        if !busy && self.turns.is_empty() {
            self.waker.0.asleep.store(true, Ordering::SeqCst);
            if !self.waker.0.is_woken.load(Ordering::SeqCst) {
                timeout = Duration::from_millis(until_ms.saturating_sub(machine.now_ms())).min(SLEEP_MAX);
            }
        }
        let polled = self.events.wait(timeout);
        self.waker.0.asleep.store(false, Ordering::SeqCst);
        self.waker.0.is_woken.store(false, Ordering::SeqCst);
        match polled {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        match &self.events {
            EventSource::Kernel { events, .. } => {
                for event in events {
                    self.listeners_ready |= take_event(event, control, &mut self.turns);
                }
            }
            EventSource::Virtual { ready, .. } => {
                ready.lock().drain(..).for_each(|session| self.turns.want(session));
            }
        }
        Ok(())
    }
}

/// Notes what is ready; whether that is listening sockets.
fn take_event<C: ControlPlane>(event: &Event, control: &C, turns: &mut Turns) -> bool {
    match event.token() {
        WAKER => {}
        LISTENERS => return true,
        Token(session) => {
            let closed = event.is_read_closed() || event.is_error();
            let readable = event.is_readable() || closed;
            control.ready(session, readable, event.is_writable() || event.is_write_closed() || closed);
            turns.want(session);
        }
    }
    false
}

impl EventSource {
    /// Waits for events. On virtual cores nothing but a waker ends a sleep: there are no timers.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self {
            EventSource::Kernel { poll, events } => poll.poll(events, Some(timeout)),
            EventSource::Virtual { cores, poll_ns, ready } => {
                cores.spend(*poll_ns);
                if timeout.is_zero() || !ready.lock().is_empty() {
                    return Ok(());
                }
                cores.park(Awaited::Event).map_err(io::Error::other)
            }
        }
    }
}

/// Sessions that want a turn, each at most once.
#[derive(Default)]
pub(super) struct Turns {
    queue: VecDeque<usize>,
    queued: Vec<bool>,
}

impl Turns {
    pub(super) fn want(&mut self, session: usize) {
        if self.queued.len() <= session {
            self.queued.resize(session + 1, false);
        }
        if !std::mem::replace(&mut self.queued[session], true) {
            self.queue.push_back(session);
        }
    }

    pub(super) fn next(&mut self) -> Option<usize> {
        let session = self.queue.pop_front()?;
        self.queued[session] = false;
        Some(session)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

pub(super) fn stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Acquire)
}
