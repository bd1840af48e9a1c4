//! Common to the threads of every scheduling: a clock, a poller with its waker, and the list of sessions that want
//! a turn.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Registry, Token, Waker};

use super::{ControlPlane, Share};

/// The token of listening sockets; a session's token is its number.
pub(super) const LISTENERS: Token = Token(usize::MAX - 1);
const WAKER: Token = Token(usize::MAX);

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// The longest sleep, so that a thread looks again even if nobody wakes it.
const SLEEP_MAX: Duration = Duration::from_millis(250);

/// Counts milliseconds since the scheduling began.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Wakes one thread that sleeps in its poller; costs no system call if the thread is awake.
#[derive(Clone)]
pub(super) struct ThreadWaker(Arc<ThreadWakerInner>);

struct ThreadWakerInner {
    waker: Waker,
    asleep: AtomicBool,
    /// Set while the thread is awake, this prevents its next sleep.
    is_woken: AtomicBool,
}

impl ThreadWaker {
    pub(super) fn wake(&self) {
        self.0.is_woken.store(true, Ordering::SeqCst);
        if self.0.asleep.swap(false, Ordering::SeqCst) {
            // An error means that the poller is gone, and its thread with it.
            let _ = self.0.waker.wake();
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

/// A thread's poller, and its sessions that want a turn.
pub(super) struct Poller {
    poll: Poll,
    events: Events,
    waker: ThreadWaker,
    turns: Turns,
    /// Listening sockets have connections to accept.
    listeners_ready: bool,
}

impl Poller {
    pub(super) fn open() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let waker = ThreadWaker(Arc::new(ThreadWakerInner {
            waker,
            asleep: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
        }));
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            waker,
            turns: Turns::default(),
            listeners_ready: false,
        })
    }

    pub(super) fn waker(&self) -> ThreadWaker {
        self.waker.clone()
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    pub(super) fn turns(&mut self) -> &mut Turns {
        &mut self.turns
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

    /// Takes events from the kernel. Unless `busy`, sleeps until there is one, until `until_ms` or until somebody
    /// wakes the thread.
    pub(super) fn poll<C: ControlPlane>(
        &mut self,
        control: &C,
        clock: Clock,
        busy: bool,
        until_ms: u64,
    ) -> io::Result<()> {
        let mut timeout = Duration::ZERO;
        if !busy && self.turns.is_empty() {
            self.waker.0.asleep.store(true, Ordering::SeqCst);
            if !self.waker.0.is_woken.load(Ordering::SeqCst) {
                timeout = Duration::from_millis(until_ms.saturating_sub(clock.now_ms())).min(SLEEP_MAX);
            }
        }
        let polled = self.poll.poll(&mut self.events, Some(timeout));
        self.waker.0.asleep.store(false, Ordering::SeqCst);
        self.waker.0.is_woken.store(false, Ordering::SeqCst);
        match polled {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match event.token() {
                WAKER => {}
                LISTENERS => self.listeners_ready = true,
                Token(session) => {
                    let closed = event.is_read_closed() || event.is_error();
                    control.ready(
                        session,
                        event.is_readable() || closed,
                        event.is_writable() || event.is_write_closed() || closed,
                    );
                    self.turns.want(session);
                }
            }
        }
        Ok(())
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
