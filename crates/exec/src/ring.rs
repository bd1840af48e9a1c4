//! A bounded ring from one thread to one other whose ends can sleep.
//!
//! The ring itself is `rtrb`, wait-free for exactly one producer and one consumer; what it lacks is waiting.
//! Each end therefore has a wakeup: who finds nothing to do tries for a while, then says so at its wakeup, looks
//! once more and sleeps; the other end, after every change, looks at that wakeup.
//!
//! A producer that sleeps is woken only when half the ring is free. With more threads than cores, waking it
//! for every place would make the two take turns job by job, a change of context each; so it fills half a ring
//! at a time. A consumer that sleeps is woken for the first job, because there may be no second. An empty
//! ring is half free, so the producer always goes on once the consumer has emptied it.
//!
//! **No wake-up is lost.** Who goes to sleep raises the wakeup's flag, passes a sequentially consistent fence and
//! looks at the ring; who changes the ring passes such a fence and looks at the flag. One of them sees the
//! other.

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
    /// Who sleeps is on virtual cores, where it may only [seem to](Sleeper::spins).
    is_virtual: AtomicBool,
    thread: Mutex<Option<Sleeper>>,
}

impl Wakeup {
    /// Sleeps until `ready`; the ringing thread changes the condition before it rings. Counts sleeps in `parks`.
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
                // It may have been spinning, which waits for less than `ready`: the caller looks.
                break control.check();
            }
        };
        self.asleep.store(false, Relaxed);
        result
    }

    /// Wakes who sleeps here, if `ready` for it. To be called after the change.
    fn ring(&self, ready: impl FnOnce() -> bool) {
        fence(SeqCst);
        if !self.asleep.load(Relaxed) {
            return;
        }
        let is_ready = ready();
        if is_ready || self.is_virtual.load(Relaxed) {
            // Not under the lock: on virtual cores waking hands over to others.
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

/// The end that fills.
pub(crate) struct Sender<T> {
    /// `None` only while dropping.
    ring: Option<Producer<T>>,
    wakeups: Arc<Wakeups>,
    half: usize,
}

/// The end that empties.
pub(crate) struct Receiver<T> {
    /// `None` only while dropping.
    ring: Option<Consumer<T>>,
    wakeups: Arc<Wakeups>,
    capacity: usize,
    half: usize,
}

/// A ring for `capacity` things, at least one.
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
    /// Puts a thing in at once, or gives it back when there is no room.
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

    /// Waits until there is room. Errors when the other end is gone, or the run given up.
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
    /// Takes a thing out, if there is one.
    pub(crate) fn try_receive(&mut self) -> Option<T> {
        let ring = self.ring.as_mut()?;
        let thing = ring.pop().ok()?;
        self.wakeups.producer.ring(|| self.capacity - ring.slots() >= self.half);
        Some(thing)
    }

    /// Waits until there is something (true), or the other end is gone and nothing left (false).
    pub(crate) fn wait_for_item(&self, control: &RunControl, parks: &mut u64) -> Result<bool, Stopped> {
        let Some(ring) = &self.ring else { return Ok(false) };
        let mut backoff = control.backoff();
        loop {
            // Abandoned first: what was put in before the other end went is seen after this.
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

    /// Sends numbers through a ring with both sides dawdling now and then; all must come, in order.
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
