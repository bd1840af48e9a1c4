//! A bounded ring between two threads whose ends can sleep.
//!
//! The ring itself is `rtrb`, wait-free for exactly one producer and one consumer; this module adds waiting. Each
//! end has a wakeup. A thread that finds nothing to do tries for a while, raises the flag of its wakeup, looks once
//! more and sleeps. The other end checks that wakeup after every change.
//!
//! A sleeping producer is woken only when half the ring is free. With more threads than cores, waking it for every
//! free place would make the two take turns job by job, with a context switch each; so it fills half a ring at a
//! time. A sleeping consumer is woken for the first job, because there may be no second. An empty ring is half
//! free, so the producer always continues once the consumer has emptied it.
//!
//! **No wake-up is lost.** A thread that goes to sleep raises the wakeup's flag, passes a sequentially consistent
//! fence and looks at the ring; a thread that changes the ring passes such a fence and looks at the flag. At least
//! one of them sees the other's write.

use crate::stop::{RunControl, Stopped};
use crate::virtual_cores::{Awaited, Sleeper};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

#[derive(Default)]
struct Wakeup {
    asleep: CachePadded<AtomicBool>,
    /// The sleeper is on virtual cores, where it may only [seem to sleep](Sleeper::spins).
    is_virtual: AtomicBool,
    thread: Mutex<Option<Sleeper>>,
}

impl Wakeup {
    /// Sleeps until `ready`; the other end changes the ring before it rings. Counts sleeps in `parks`.
    fn sleep(
        &self,
        control: &RunControl,
        awaited: Awaited,
        parks: &mut u64,
        ready: impl Fn() -> bool,
    ) -> Result<(), Stopped> {
        *self.thread.lock() = Some(control.me());
        self.is_virtual.store(control.cores.is_some(), Relaxed);
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
        let result = loop {
            if ready() {
                break Ok(());
            }
            if let Err(stopped) = control.check() {
                break Err(stopped);
            }
            *parks += 1;
            control.park(awaited);
            if control.cores.is_some() {
                // The thread may have been spinning, which ends before `ready` holds: the caller checks.
                break control.check();
            }
        };
        self.asleep.store(false, Relaxed);
        result
    }

    /// Wakes the thread that sleeps here if `ready`. Must be called after the change.
    fn ring(&self, ready: impl FnOnce() -> bool) {
        fence(SeqCst);
        if !self.asleep.load(Relaxed) {
            return;
        }
        let is_ready = ready();
        if is_ready || self.is_virtual.load(Relaxed) {
            // Not under the lock: on virtual cores waking hands over to another thread.
            let thread = self.thread.lock().clone();
            thread.iter().filter(|thread| is_ready || thread.spins()).for_each(Sleeper::unpark);
        }
    }
}

#[derive(Default)]
struct Wakeups {
    producer: Wakeup,
    consumer: Wakeup,
}

pub(crate) struct Sender<T> {
    /// `None` only while dropping.
    ring: Option<Producer<T>>,
    wakeups: Arc<Wakeups>,
    half: usize,
}

pub(crate) struct Receiver<T> {
    /// `None` only while dropping.
    ring: Option<Consumer<T>>,
    wakeups: Arc<Wakeups>,
    capacity: usize,
    half: usize,
}

/// A ring for `capacity` items, at least one.
pub(crate) fn ring<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1);
    let (producer, consumer) = RingBuffer::new(capacity);
    let (wakeups, half) = (Arc::new(Wakeups::default()), capacity.div_ceil(2));
    (
        Sender { ring: Some(producer), wakeups: Arc::clone(&wakeups), half },
        Receiver { ring: Some(consumer), wakeups, capacity, half },
    )
}

impl<T> Sender<T> {
    /// Puts an item in without waiting, or gives it back when there is no room.
    pub(crate) fn try_send(&mut self, thing: T) -> Result<(), T> {
        let Some(ring) = &mut self.ring else { return Err(thing) };
        match ring.push(thing) {
            Ok(()) => {
                self.wakeups.consumer.ring(|| true);
                Ok(())
            }
            Err(PushError::Full(thing)) => Err(thing),
        }
    }

    /// Waits for room. Fails when the other end is gone or the run was given up.
    pub(crate) fn wait_for_room(&self, control: &RunControl, parks: &mut u64) -> Result<(), Stopped> {
        let Some(ring) = &self.ring else { return Err(Stopped) };
        let mut backoff = control.backoff();
        while ring.is_full() && !ring.is_abandoned() {
            control.check()?;
            if !backoff.try_again() {
                let ready = || ring.slots() >= self.half || ring.is_abandoned();
                self.wakeups.producer.sleep(control, Awaited::Room, parks, ready)?;
            }
        }
        if ring.is_abandoned() { Err(Stopped) } else { Ok(()) }
    }
}

impl<T> Receiver<T> {
    pub(crate) fn try_receive(&mut self) -> Option<T> {
        let ring = self.ring.as_mut()?;
        let thing = ring.pop().ok()?;
        self.wakeups.producer.ring(|| self.capacity - ring.slots() >= self.half);
        Some(thing)
    }

    /// Waits for an item and returns true, or false when the other end is gone and the ring is empty.
    pub(crate) fn wait_for_item(&self, control: &RunControl, parks: &mut u64) -> Result<bool, Stopped> {
        let Some(ring) = &self.ring else { return Ok(false) };
        let mut backoff = control.backoff();
        loop {
            // This first: if the other end is gone, the check below then sees everything it put in.
            let abandoned = ring.is_abandoned();
            if !ring.is_empty() {
                return Ok(true);
            }
            if abandoned {
                return Ok(false);
            }
            control.check()?;
            if !backoff.try_again() {
                let ready = || !ring.is_empty() || ring.is_abandoned();
                self.wakeups.consumer.sleep(control, Awaited::Thing, parks, ready)?;
            }
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.ring = None;
        self.wakeups.consumer.ring(|| true);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.ring = None;
        self.wakeups.producer.ring(|| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Sends numbers through a ring while both ends pause now and then; all must arrive in order.
    #[test]
    fn everything_comes_in_order_at_any_capacity() {
        for capacity in [1, 2, 3, 8] {
            let (mut sender, mut receiver) = ring(capacity);
            let control = RunControl::default();
            let control = &control;
            thread::scope(|scope| {
                scope.spawn(move || {
                    for n in 0..3000u64 {
                        let mut thing = n;
                        while let Err(back) = sender.try_send(thing) {
                            thing = back;
                            sender.wait_for_room(control, &mut 0).unwrap();
                        }
                        if n % 500 == 0 {
                            thread::sleep(std::time::Duration::from_millis(1));
                        }
                    }
                });
                let mut expected = 0;
                while receiver.wait_for_item(control, &mut 0).unwrap() {
                    while let Some(n) = receiver.try_receive() {
                        assert_eq!(n, expected);
                        expected += 1;
                        if n % 700 == 0 {
                            thread::sleep(std::time::Duration::from_millis(1));
                        }
                    }
                }
                assert_eq!(expected, 3000);
            });
        }
    }

    #[test]
    fn a_sleeping_end_wakes_when_the_other_goes() {
        let control = &RunControl::default();
        let (sender, receiver) = ring::<u8>(1);
        thread::scope(|scope| {
            let wakeups = Arc::clone(&receiver.wakeups);
            let waiter = scope.spawn(move || receiver.wait_for_item(control, &mut 0));
            while !wakeups.consumer.asleep.load(SeqCst) {
                thread::yield_now();
            }
            drop(sender);
            assert_eq!(waiter.join().unwrap(), Ok(false));
        });
        let (mut sender, receiver) = ring::<u8>(1);
        sender.try_send(1).unwrap();
        thread::scope(|scope| {
            let wakeups = Arc::clone(&receiver.wakeups);
            let waiter = scope.spawn(move || sender.wait_for_room(control, &mut 0));
            while !wakeups.producer.asleep.load(SeqCst) {
                thread::yield_now();
            }
            drop(receiver);
            assert_eq!(waiter.join().unwrap(), Err(Stopped));
        });
    }

    #[test]
    fn a_sleeping_end_wakes_when_the_run_is_given_up() {
        let control = &RunControl::default();
        let (sender, receiver) = ring::<u8>(1);
        thread::scope(|scope| {
            let wakeups = Arc::clone(&receiver.wakeups);
            let waiter = scope.spawn(move || {
                control.register();
                receiver.wait_for_item(control, &mut 0)
            });
            while !wakeups.consumer.asleep.load(SeqCst) {
                thread::yield_now();
            }
            control.abort(crate::ExecError::NoCores);
            assert_eq!(waiter.join().unwrap(), Err(Stopped));
        });
        drop(sender);
    }
}
