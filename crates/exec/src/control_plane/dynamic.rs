//! `dynamic`, the thesis's DTS. The master polls all sockets and runs timers. It deals the sessions that become
//! ready to the queues of a fixed pool of threads, in turn, and those threads work on any session under its lock. A
//! session is in at most one queue at a time, so its messages stay in order.

use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use super::machine::Machine;
use super::seat::{Seat, join_all};
use super::serial::read_and_apply;
use super::thread::{Poller, Wakers, stopped};
use super::{ControlPlane, Notice, Share};
use crate::virtual_cores::Sleeper;

/// One thread's queue of ready sessions. It holds each session at most once, so their number bounds it.
#[derive(Default)]
struct ReadyQueue {
    sessions: Mutex<VecDeque<usize>>,
    /// Wakes the thread, once it has started.
    thread: OnceLock<Sleeper>,
}

impl ReadyQueue {
    fn push(&self, session: usize) {
        self.sessions.lock().push_back(session);
        self.wake();
    }

    fn wake(&self) {
        self.thread.get().iter().for_each(|thread| thread.unpark());
    }

    /// The next session, or `None` when the scheduling ends.
    fn pop(&self, machine: &Machine, stop: &AtomicBool) -> io::Result<Option<usize>> {
        self.thread.get_or_init(|| machine.sleeper());
        while !stopped(stop) {
            let next = self.sessions.lock().pop_front();
            if next.is_some() {
                return Ok(next);
            }
            // A session that comes in between ends the sleep at once.
            machine.park()?;
        }
        Ok(None)
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
    machine: &'c Machine,
    wakers: Wakers,
    queues: Vec<ReadyQueue>,
    dealt: RwLock<Vec<Dealt>>,
}

pub(super) fn run<C: ControlPlane>(
    control: &C,
    threads: usize,
    machine: &Machine,
    stop: &AtomicBool,
) -> io::Result<()> {
    let (masters, mut poller, wakers) = Seat::master(machine, control)?;
    let queues = (0..threads).map(|_| ReadyQueue::default()).collect();
    let pool = Pool { control, stop, machine, wakers, queues, dealt: RwLock::default() };
    let seats: Vec<_> = (0..threads).map(|index| Seat::new(machine, format!("pool-{index}"))).collect();
    thread::scope(|scope| {
        let (pool, mut result, mut handles) = (&pool, Ok(()), Vec::new());
        for (queue, seat) in pool.queues.iter().zip(seats) {
            match seat.spawn(scope, Builder::new(), || pool.end(), || pool.work(queue)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    result = Err(error);
                    pool.end();
                }
            }
        }
        let master = || {
            let mastered = pool.master(&mut poller);
            pool.end();
            mastered
        };
        join_all(handles, result.and(masters.occupy(|| pool.end(), master)))
    })
}

impl<C: ControlPlane> Pool<'_, C> {
    /// Ends all threads.
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.wake_all();
        self.queues.iter().for_each(ReadyQueue::wake);
    }

    fn master(&self, poller: &mut Poller) -> io::Result<()> {
        let mut worker = self.control.worker();
        let (mut due_ms, mut busy, mut next) = (0, true, 0);
        while !stopped(self.stop) {
            poller.poll(self.control, self.machine, busy, due_ms)?;
            let now = self.machine.now_ms();
            while let Some(session) = poller.turns().next() {
                self.deal(session, &mut next);
            }
            busy = poller.housekeeping(self.control, &mut worker, Share::ALL, &mut due_ms, now);
            self.export(&mut worker, !busy, now, &mut busy);
            while let Some(notice) = self.control.poll_notice() {
                match notice {
                    Notice::Opened(session) => {
                        self.make_room(session);
                        poller.sockets().attach(self.control, session)?;
                    }
                    Notice::Closed(_) => continue,
                    Notice::Sooner(_) => {}
                }
                due_ms = 0;
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

    fn work(&self, queue: &ReadyQueue) -> io::Result<()> {
        let mut worker = self.control.worker();
        while let Some(session) = queue.pop(self.machine, self.stop)? {
            self.again(session, |mark| mark.again.store(false, Ordering::SeqCst));
            let now = self.machine.now_ms();
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
        Ok(())
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
