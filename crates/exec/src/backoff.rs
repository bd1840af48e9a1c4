//! How long a thread tries before it sleeps.
//!
//! It first spins for a few microseconds, because most waits end that soon. Then it yields the core a few times,
//! which costs nothing if another thread wants the core and some microseconds if none does. Then its caller sleeps.
//! With more threads than cores the spinning is too short to matter.

use std::{hint, thread};

/// Rounds of spinning, each twice as long as the one before: 127 pauses in all.
const SPINS: u32 = 7;

/// Rounds of yielding.
const YIELDS: u32 = 16;

#[derive(Default)]
pub(crate) struct Backoff {
    round: u32,
}

impl Backoff {
    /// The backoff of threads that sleep at once: virtual cores account for the spinning themselves.
    pub(crate) fn none() -> Self {
        Self { round: SPINS + YIELDS }
    }

    /// Waits a little and returns true, or returns false when it is time to sleep.
    pub(crate) fn try_again(&mut self) -> bool {
        if self.round >= SPINS + YIELDS {
            return false;
        }
        if self.round < SPINS {
            (0..1 << self.round).for_each(|_| hint::spin_loop());
        } else {
            thread::yield_now();
        }
        self.round += 1;
        true
    }
}
