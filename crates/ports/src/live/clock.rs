//! The clock of live packets: starts at the wall clock's time and then advances with the kernel's monotonic clock.
//!
//! Captures and flow records need arrival times since the epoch. The wall clock jumps (someone sets it, a time
//! server becomes reachable, the machine was asleep), and timers that follow it would fire early, late or never. So
//! the process reads the wall clock once, and everything inside uses this clock. Times that leave the process,
//! above all in flow records, are shifted by what [`WallShift`] finds: they are wall clock times, and their
//! differences are those that were measured.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A smaller difference may come from reading two clocks one after the other; a larger one means that the wall
/// clock was set.
const STEP_MIN_NS: u64 = 100_000_000;
/// If more time than this passes while both clocks are read, the comparison is worthless.
const APART_MAX: Duration = Duration::from_millis(10);

/// Nanoseconds since the epoch that never go back. All instances in a process agree.
#[derive(Clone, Copy, Debug)]
pub struct LiveClock {
    started: Instant,
    started_ns: u64,
}

impl LiveClock {
    /// The clock of this process. The first call starts it at the wall clock's time.
    pub fn start() -> Self {
        static CLOCK: OnceLock<LiveClock> = OnceLock::new();
        *CLOCK.get_or_init(|| Self { started: Instant::now(), started_ns: wall_ns() })
    }

    /// The present time in nanoseconds since the epoch.
    pub fn now_ns(&self) -> u64 {
        self.started_ns + self.started.elapsed().as_nanos() as u64
    }
}

/// The wall clock in nanoseconds since the epoch. It jumps when it is set.
pub fn wall_ns() -> u64 {
    // Before 1970 the clock is wrong anyway; it then starts at the epoch.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// The distance of the wall clock from the [`LiveClock`], which changes when the wall clock is set.
#[derive(Debug, Default)]
pub struct WallShift {
    shift_ns: AtomicI64,
    steps: AtomicU64,
}

impl WallShift {
    /// Compares both clocks. If the wall clock was set since the last call, returns by how many nanoseconds,
    /// forward or back.
    pub fn look(&self, clock: LiveClock) -> Option<i64> {
        let began = Instant::now();
        let (live_ns, wall_ns) = (clock.now_ns(), wall_ns());
        // The thread may have been interrupted between the two; the next call is as good.
        if began.elapsed() > APART_MAX { None } else { self.compare(live_ns, wall_ns) }
    }

    fn compare(&self, live_ns: u64, wall_ns: u64) -> Option<i64> {
        let shift_ns = wall_ns.wrapping_sub(live_ns).cast_signed();
        let step_ns = shift_ns.saturating_sub(self.shift_ns.load(Ordering::Relaxed));
        if step_ns.unsigned_abs() < STEP_MIN_NS {
            return None;
        }
        self.shift_ns.store(shift_ns, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        Some(step_ns)
    }

    /// How often the wall clock was set.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The nanoseconds to add to a time of the [`LiveClock`] for wall clock time.
    pub fn shift_ns(&self) -> i64 {
        self.shift_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_NS: i64 = 3600 * SECOND_NS as i64;

    #[test]
    fn a_wall_clock_that_is_set_moves_times_and_is_told_once() {
        let (shift, start_ns) = (WallShift::default(), 1_795_000_000 * SECOND_NS);
        // Seconds passed, the wall clock's lead, and the expected result.
        let looks = [
            (0, 0, None),
            (1, 50_000_000, None),
            (2, 5 * HOUR_NS, Some(5 * HOUR_NS)),
            (3, 5 * HOUR_NS - 99_000_000, None),
            (4, -2 * HOUR_NS, Some(-7 * HOUR_NS)),
            (5, 0, Some(2 * HOUR_NS)),
        ];
        for (seconds, ahead_ns, told) in looks {
            let live_ns = start_ns + seconds * SECOND_NS;
            assert_eq!(shift.compare(live_ns, live_ns.saturating_add_signed(ahead_ns)), told, "{seconds} s");
        }
        assert_eq!((shift.shift_ns(), shift.steps()), (0, 3));
    }

    #[test]
    fn a_machine_that_began_in_1970_gets_the_date() {
        let (shift, live_ns, wall_ns) = (WallShift::default(), 90 * SECOND_NS, 1_795_000_000 * SECOND_NS);
        assert!(shift.compare(live_ns, wall_ns).is_some());
        assert_eq!(live_ns.saturating_add_signed(shift.shift_ns()), wall_ns);
    }

    #[test]
    fn all_clocks_of_a_process_agree() {
        let (one, other) = (LiveClock::start(), LiveClock::start());
        assert_eq!((one.started, one.started_ns), (other.started, other.started_ns));
        assert_eq!(WallShift::default().look(one), None, "nobody sets the clock of this machine");
    }
}
