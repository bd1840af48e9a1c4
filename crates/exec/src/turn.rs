//! A number that only grows, and threads that wait for it to reach a target. Besides rings, models wait for nothing
//! else.
//!
//! As the ticket of a serial stage it is the sequence number whose turn it is; as the window of a reorder buffer,
//! the next sequence to deliver; as a fence, a count of arrivals.
//!
//! A waiter tries for a while (see `backoff`) and then sleeps (`thread::park`) until the number reaches its own
//! target. So no crowd wakes for one turn, and a long wait costs nothing.
//!
//! **No wake-up is lost.** A waiter enters itself in the list, raises `waiting`, and only then looks at `value` for
//! the last time. A thread that changes `value` stores it and only then looks at `waiting`. All four are
//! sequentially consistent, so either the waiter sees the new value or the other thread sees the waiter. The
//! thread's token keeps a wake-up that comes before the park.

use crate::stop::{RunControl, Stopped};
use crate::virtual_cores::{Awaited, Sleeper};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::SeqCst};

#[derive(Default)]
pub(crate) struct Turn {
    value: CachePadded<AtomicU64>,
    waiting: AtomicUsize,
    sleepers: Mutex<Vec<(u64, Sleeper)>>,
}

impl Turn {
    pub(crate) fn reached(&self, target: u64) -> bool {
        self.value.load(Acquire) >= target
    }

    /// Waits until the value has reached `target`. Returns how often the thread slept; fails if the run is given
    /// up.
    pub(crate) fn wait(&self, target: u64, control: &RunControl) -> Result<u64, Stopped> {
        let mut backoff = control.backoff();
        while !self.reached(target) {
            control.check()?;
            if !backoff.try_again() {
                return self.sleep(target, control);
            }
        }
        Ok(0)
    }

    /// Whether a thread sleeps until some target is reached, or is about to.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Sets the value, which must not go back. Only the thread whose turn it is may call this.
    pub(crate) fn set(&self, value: u64) {
        self.value.store(value, SeqCst);
        self.wake(value);
    }

    /// Adds one. Any thread may call this.
    pub(crate) fn increment(&self) {
        let value = self.value.fetch_add(1, SeqCst) + 1;
        self.wake(value);
    }

    fn sleep(&self, target: u64, control: &RunControl) -> Result<u64, Stopped> {
        let me = control.me();
        self.sleepers.lock().push((target, me.clone()));
        self.waiting.fetch_add(1, SeqCst);
        let mut parks = 0;
        let result = loop {
            if self.value.load(SeqCst) >= target {
                break Ok(parks);
            }
            if let Err(stopped) = control.check() {
                break Err(stopped);
            }
            control.park(Awaited::Turn { target, value: self.value.load(SeqCst) });
            parks += 1;
        };
        self.waiting.fetch_sub(1, SeqCst);
        self.sleepers.lock().retain(|(_, sleeper)| !sleeper.is(&me));
        result
    }

    fn wake(&self, value: u64) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        self.sleepers.lock().retain(|(target, sleeper)| {
            let stays = *target > value;
            if !stays {
                sleeper.unpark();
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn turns_are_taken_in_order_by_any_number_of_threads() {
        const THREADS: u64 = 8;
        const ROUNDS: u64 = 2000;
        let (turn, control, order) = (Turn::default(), RunControl::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for t in 0..THREADS {
                let (turn, control, order) = (&turn, &control, &order);
                scope.spawn(move || {
                    for ticket in (t..THREADS * ROUNDS).step_by(THREADS as usize) {
                        turn.wait(ticket, control).unwrap();
                        order.lock().push(ticket);
                        turn.set(ticket + 1);
                    }
                });
            }
        });
        assert!(order.into_inner().into_iter().eq(0..THREADS * ROUNDS));
        assert!(turn.sleepers.lock().is_empty());
    }

    #[test]
    fn a_sleeper_wakes_when_the_run_is_given_up() {
        let (turn, control, gave_up) = (Turn::default(), RunControl::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                control.register();
                gave_up.store(turn.wait(1, &control).is_err(), SeqCst);
            });
            while turn.waiting.load(SeqCst) == 0 {
                thread::yield_now();
            }
            control.abort(crate::ExecError::NoCores);
        });
        assert!(gave_up.into_inner());
    }

    #[test]
    fn arrivals_of_many_threads_are_counted() {
        let (turn, control) = (Turn::default(), RunControl::default());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| turn.increment()));
            }
            turn.wait(2000, &control).unwrap();
        });
        assert!(turn.reached(2000) && !turn.reached(2001));
    }
}
