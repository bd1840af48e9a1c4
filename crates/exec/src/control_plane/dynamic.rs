//! `dynamic`, the thesis's DTS. The master polls all sockets and runs timers. It deals the sessions that become
//! ready to the queues of a fixed pool of threads, in turn, and those threads work on any session under its lock. A
//! session is in at most one queue at a time, so its messages stay in order.

use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::serial::read_and_apply;
use super::thread::{Clock, LISTENERS, Poller, Wakers, stopped};
use super::{ControlPlane, Notice, Share};

/// One thread's queue of ready sessions. It holds each session at most once, so their number bounds it.
#[derive(Default)]
struct ReadyQueue {
    sessions: Mutex<VecDeque<usize>>,
    filled: Condvar,
}

impl ReadyQueue {
    fn push(&self, session: usize) {
        self.sessions.lock().push_back(session);
        self.filled.notify_one();
    }

    /// The next session, or `None` when the scheduling ends.
    fn pop(&self, stop: &AtomicBool) -> Option<usize> {
        let mut sessions = self.sessions.lock();
        loop {
            if stopped(stop) {
                return None;
            }
            if let Some(session) = sessions.pop_front() {
                return Some(session);
            }
            self.filled.wait(&mut sessions);
        }
    }
}

/// Whether a session is dealt to a thread, and whether it became ready again meanwhile.
#[derive(Default)]
struct Dealt {
    in_hand: AtomicBool,
    again: AtomicBool,
}

struct Pool<'c, C> {
    control: &'c C,
    stop: &'c AtomicBool,
    clock: Clock,
    wakers: Wakers,
    queues: Vec<ReadyQueue>,
    dealt: RwLock<Vec<Dealt>>,
}

pub(super) fn run<C: ControlPlane>(control: &C, threads: usize, stop: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::open()?;
    let wakers = Wakers::default();
    wakers.add(poller.waker());
    control.begin(1, wakers.clone());
    control.attach_listeners(poller.registry(), LISTENERS)?;
    let pool = Pool {
        control,
        stop,
        clock: Clock::start(),
        wakers,
        queues: (0..threads).map(|_| ReadyQueue::default()).collect(),
        dealt: RwLock::default(),
    };
    thread::scope(|scope| {
        let mut result = Ok(());
        for (index, queue) in pool.queues.iter().enumerate() {
            let spawned =
                thread::Builder::new().name(format!("pool-{index}")).spawn_scoped(scope, || pool.work(queue));
            if let Err(error) = spawned {
                result = Err(error);
            }
        }
        let result = result.and_then(|()| pool.master(&mut poller));
        stop.store(true, Ordering::Release);
        for queue in &pool.queues {
            // Under the lock, so that no thread is between looking at `stop` and waiting.
            let _held = queue.sessions.lock();
            queue.filled.notify_all();
        }
        result
    })
}

impl<C: ControlPlane> Pool<'_, C> {
    fn master(&self, poller: &mut Poller) -> io::Result<()> {
        let mut worker = self.control.worker();
        let (mut due_ms, mut busy, mut next) = (0, true, 0);
        while !stopped(self.stop) {
            poller.poll(self.control, self.clock, busy, due_ms)?;
            let now = self.clock.now_ms();
            while let Some(session) = poller.turns().next() {
                self.deal(session, &mut next);
            }
            busy = poller.housekeeping(self.control, &mut worker, Share::ALL, &mut due_ms, now);
            self.export(&mut worker, !busy, now, &mut busy);
            while let Some(notice) = self.control.poll_notice() {
                if let Notice::Opened(session) = notice {
                    self.make_room(session);
                    self.control.attach(session, poller.registry(), mio::Token(session))?;
                    due_ms = 0;
                }
            }
        }
        Ok(())
    }

    fn make_room(&self, session: usize) {
        let mut dealt = self.dealt.write();
        if dealt.len() <= session {
            dealt.resize_with(session + 1, Dealt::default);
        }
    }

    /// Gives a session to the next thread. If a thread has it already, that thread looks again.
    fn deal(&self, session: usize, next: &mut usize) {
        let dealt = self.dealt.read();
        let Some(mark) = dealt.get(session) else { return };
        mark.again.store(true, Ordering::SeqCst);
        if !mark.in_hand.swap(true, Ordering::SeqCst) {
            self.queues[*next % self.queues.len()].push(session);
            *next += 1;
        }
    }

    fn work(&self, queue: &ReadyQueue) {
        let mut worker = self.control.worker();
        while let Some(session) = queue.pop(self.stop) {
            self.again(session, |mark| mark.again.store(false, Ordering::SeqCst));
            let now = self.clock.now_ms();
            let more = read_and_apply(self.control, &mut worker, session, now);
            let mut busy = false;
            self.export(&mut worker, !more, now, &mut busy);
            self.control.write(&mut worker, session, now);
            if busy {
                self.wakers.wake_all();
            }
            let mut back = more;
            if !more {
                self.again(session, |mark| {
                    mark.in_hand.store(false, Ordering::SeqCst);
                    back = mark.again.load(Ordering::SeqCst) && !mark.in_hand.swap(true, Ordering::SeqCst);
                });
            }
            if back {
                queue.push(session);
            }
        }
    }

    fn again(&self, session: usize, act: impl FnOnce(&Dealt)) {
        if let Some(mark) = self.dealt.read().get(session) {
            act(mark);
        }
    }

    /// Exports. If update groups grew, writes to all sessions that no other thread is writing to.
    fn export(&self, worker: &mut C::Worker, now: bool, now_ms: u64, held: &mut bool) {
        let exported = self.control.export(worker, 0, now, now_ms);
        if exported.grew {
            self.control.write_share(worker, Share::ALL, now_ms);
        }
        *held |= exported.held;
    }
}
