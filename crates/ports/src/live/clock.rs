//! The clock of live packets: moves as the kernel's monotonic clock, begins at the wall clock's time.
//!
//! Arrival times must be times since the epoch, for captures and flow records. The wall clock jumps, and timers that
//! follow it would fire early, late or never; it is therefore read once.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch that never go back. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct LiveClock {
    started: Instant,
    started_ns: u64,
}

impl LiveClock {
    /// A clock that starts with the wall clock's present time.
    pub fn start() -> Self {
        // Before 1970 the clock is wrong anyway; it then starts at the epoch.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_ns: since_epoch.as_nanos() as u64 }
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.started_ns + self.started.elapsed().as_nanos() as u64
    }
}
