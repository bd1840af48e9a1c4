//! `per-peer`, the thesis's PBTS. The master listens, connects and runs timers. Each session with a connection has
//! its own thread, which reads, decodes, filters, updates the shards under their locks, exports and writes. The
//! master starts a session's thread when its first connection opens, hands it further connections (two neighbors
//! may connect to each other at once), and ends it when the last one closes.
//!
//! One thread at a time exports. A thread that finds the export queue taken leaves its changes to the thread that
//! has it. When sessions have something new to write, every session's thread is woken to write.
//!
//! With a *common poller* the master polls the sockets of all sessions and wakes the thread of each that is ready:
//! the thesis's PBTS before it gave up the common `select`. It exists for comparison; no router runs like that.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use super::machine::Machine;
use super::seat::Seat;
use super::serial::read_and_apply;
use super::thread::{Poller, Sockets, ThreadWaker, Wakers, stopped};
use super::{ControlPlane, Notice, Share};

/// Sessions need no deep stack, and there may be thousands.
const STACK_BYTES: usize = 512 << 10;

/// What the master knows about a session's thread.
struct SessionThread {
    waker: ThreadWaker,
    sockets: Sockets,
    end: Arc<AtomicBool>,
}

struct PeerThreads<'c, C> {
    control: &'c C,
    stop: &'c AtomicBool,
    machine: &'c Machine,
    wakers: Wakers,
    common_poller: bool,
    /// Why a thread could not continue.
    failure: Mutex<Option<io::Error>>,
}

pub(super) fn run<C: ControlPlane>(
    control: &C,
    common_poller: bool,
    machine: &Machine,
    stop: &AtomicBool,
) -> io::Result<()> {
    let (seat, mut poller, wakers) = Seat::master(machine, control)?;
    let peer_threads =
        PeerThreads { control, stop, machine, wakers, common_poller, failure: Mutex::new(None) };
    let result = thread::scope(|scope| {
        let master = || {
            let result = peer_threads.master(&mut poller, scope);
            peer_threads.end();
            result
        };
        seat.occupy(|| peer_threads.end(), master)
    });
    match peer_threads.failure.into_inner() {
        Some(error) => Err(error),
        None => result,
    }
}

impl<C: ControlPlane> PeerThreads<'_, C> {
    /// Ends all threads.
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.wake_all();
    }

    /// Listens, runs timers and background work, and starts and ends the sessions' threads.
    fn master<'scope>(
        &'scope self,
        poller: &mut Poller,
        scope: &'scope thread::Scope<'scope, '_>,
    ) -> io::Result<()> {
        let mut threads: HashMap<usize, SessionThread> = HashMap::new();
        let mut worker = self.control.worker();
        let (mut due_ms, mut busy) = (0, true);
        while !stopped(self.stop) {
            poller.poll(self.control, self.machine, busy, due_ms)?;
            // Sessions are ready here only with a common poller.
            while let Some(session) = poller.turns().next() {
                threads.get(&session).iter().for_each(|thread| thread.waker.wake());
            }
            let now = self.machine.now_ms();
            busy = poller.housekeeping(self.control, &mut worker, Share::ALL, &mut due_ms, now);
            let exported = self.control.export(&mut worker, 0, !busy, now);
            if exported.grew {
                self.wakers.wake_all();
            }
            busy |= exported.held;
            while let Some(notice) = self.control.poll_notice() {
                match notice {
                    Notice::Opened(session) => self.opened(scope, &mut threads, poller, session)?,
                    Notice::Closed(session) => {
                        if let Some(old) = threads.remove(&session) {
                            old.end.store(true, Ordering::Release);
                            old.waker.wake();
                        }
                    }
                    Notice::Sooner(_) => {}
                }
                due_ms = 0;
            }
        }
        Ok(())
    }

    fn opened<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        threads: &mut HashMap<usize, SessionThread>,
        masters: &Poller,
        session: usize,
    ) -> io::Result<()> {
        if let Some(running) = threads.get(&session) {
            running.sockets.attach(self.control, session)?;
            running.waker.wake();
            return Ok(());
        }
        let seat = Seat::new(self.machine, format!("peer-{session}"));
        let poller = seat.poller()?;
        let sockets = if self.common_poller { masters.sockets() } else { poller.sockets() }.clone();
        sockets.attach(self.control, session)?;
        let end = Arc::new(AtomicBool::new(false));
        let known = SessionThread { waker: poller.waker(), sockets, end: end.clone() };
        let body = move || {
            if let Err(error) = self.session(session, poller, &end) {
                *self.failure.lock() = Some(error);
                self.end();
            }
        };
        seat.spawn(scope, Builder::new().stack_size(STACK_BYTES), || self.end(), body)?;
        threads.insert(session, known);
        Ok(())
    }

    /// The body of a session's thread.
    fn session(&self, session: usize, mut poller: Poller, end: &AtomicBool) -> io::Result<()> {
        let waker = poller.waker();
        self.wakers.add(waker.clone());
        let mut worker = self.control.worker();
        let mut busy = true;
        let result = loop {
            if stopped(self.stop) || end.load(Ordering::Acquire) {
                break Ok(());
            }
            if let Err(error) = poller.poll(self.control, self.machine, busy, u64::MAX) {
                break Err(error);
            }
            let now = self.machine.now_ms();
            while poller.turns().next().is_some() {}
            busy = read_and_apply(self.control, &mut worker, session, now);
            let exported = self.control.export(&mut worker, 0, !busy, now);
            if exported.grew {
                self.wakers.wake_all();
            }
            busy |= exported.held;
            self.control.write(&mut worker, session, now);
        };
        self.wakers.remove(&waker);
        result
    }
}
