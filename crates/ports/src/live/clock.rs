//! The clock of live packets: moves as the kernel's monotonic clock, begins at the wall clock's time.
//!
//! Arrival times must be times since the epoch, for captures and flow records. The wall clock jumps (somebody sets it, a time
//! server is reached at last, the machine was asleep), and timers that follow it would fire early, late or never. So it is
//! read once in a process, and everything inside goes by that. Times that leave the process, in flow records above all, are
//! moved by what [`WallShift`] finds: they are the wall clock's, and as far apart as they were measured.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock was set if it is off by this much. Less is what reading two clocks one after the other comes to.
const STEP_MIN_NS: u64 = 100_000_000;
/// Two clocks that were read further apart than this say nothing about each other.
const APART_MAX: Duration = Duration::from_millis(10);

/// Nanoseconds since the epoch that never go back. All clocks of a process agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct LiveClock {
    started: Instant,
    started_ns: u64,
}

impl LiveClock {
    /// The clock of this process, which started with the wall clock's time when it was first asked for.
    pub fn start() -> Self {
        static CLOCK: OnceLock<LiveClock> = OnceLock::new();
        *CLOCK.get_or_init(|| Self { started: Instant::now(), started_ns: wall_ns() })
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        self.started_ns + self.started.elapsed().as_nanos() as u64
    }
}

/// The wall clock: nanoseconds since the epoch, which jump when it is set.
pub fn wall_ns() -> u64 {
    // Before 1970 the clock is wrong anyway; it then starts at the epoch.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// How far the wall clock is from the [`LiveClock`], because it was set since.
#[derive(Debug, Default)]
pub struct WallShift {
    shift_ns: AtomicI64,
    steps: AtomicU64,
}

impl WallShift {
    /// Looks at both clocks. By how much the wall clock was set since the last look, if it was: nanoseconds, forward or back.
    pub fn look(&self, clock: LiveClock) -> Option<i64> {
        let began = Instant::now();
        let (live_ns, wall_ns) = (clock.now_ns(), wall_ns());
        // This thread may have been held up in between; the next look is as good.
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

    /// How often it was set.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// What to add to times of the [`LiveClock`] for those of the wall clock.
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
        // Seconds that passed, where the wall clock is ahead, and what is said.
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
