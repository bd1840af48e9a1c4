//! How soon a thread gets a core that others want too: real-time priority with a budget, a nice value, or neither.
//!
//! Threads that forward packets sleep most of the time and wake for every packet. At ordinary priority a woken
//! thread waits until the scheduler takes the core from the thread that runs, which is milliseconds on a busy
//! machine, and the packet waits with it. At real-time priority (SCHED_RR, the lowest) a thread runs as soon as it
//! wakes.
//!
//! A real-time thread that never sleeps would keep its core from everything else: routing sessions, the control
//! socket, the shell. So it has a budget. A thread that used more than [`SPENT`] of a [`WINDOW`] continues at
//! ordinary priority, and gets its rank back when it wanted less than [`RESTED`] of one. Under a flood,
//! therefore, all threads share cores fairly, as they would without any of this; packets then wait in queues,
//! whatever the priority. The kernel's own limit for real-time threads (`kernel.sched_rt_runtime_us`, 95 % of a
//! second) remains as a backstop, for threads that hang.
//!
//! ```text
//!                      used > 85 % of 50 ms
//!   real-time  ────────────────────────────────────>  ordinary
//!              <────────────────────────────────────
//!                 used and waited < 80 % of 50 ms
//! ```
//!
//! What an ordinary thread wanted is what it used and how long it waited for a core. By its use alone a thread that
//! shares its core would seem rested because the other one had its half, take the core from it, lose its rank again, and
//! so on every few milliseconds.
//!
//! A thread with a fair share, with or without a nice value, has short slices ([`SLICE`]). They do not change its share,
//! but since Linux 6.12 a thread that wakes with a shorter slice than the running one has, and with time left of its
//! share, runs at once.

use crate::os;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// The period of a budget: long enough that chance does not spend it for a thread that needs two thirds of a core.
const WINDOW: Duration = Duration::from_millis(50);

/// The budget, in percent of a window.
const SPENT: u32 = 85;

/// A thread that lost its rank gets it back when it wants less than this percentage of a window.
const RESTED: u32 = 80;

/// The shortest slice that the kernel takes.
const SLICE: Duration = Duration::from_micros(100);

/// Processor time of the thread that opens it, and its waiting for a core.
const STATISTICS: &str = "/proc/thread-self/schedstat";
/// Room for three numbers.
const STATISTICS_BYTES: usize = 80;

/// The lowest real-time priority: the kernel's own real-time threads stay above it.
const REAL_TIME: i32 = 1;

/// Where most system services that must not wait run, too.
const NICE: i32 = -10;

thalweg_base::words! {
    /// The priority of a thread.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Priority {
        /// The same as any thread.
        #[default]
        Normal => "normal",
        /// A larger share of a contended core.
        Nice => "nice",
        /// Runs at once, within a budget.
        RealTime => "realtime",
    }
}

impl Priority {
    /// The best priority up to this one that threads of this process may have, and why it is not this one. Tries
    /// them on a short-lived thread.
    pub fn allowed(self) -> (Self, Option<io::Error>) {
        let probe = move || {
            let mut refused = None;
            for lower in Self::ALL.into_iter().rev().skip_while(|each| *each != self) {
                match lower.take() {
                    Ok(()) => return (lower, refused),
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
            (Priority::Normal, refused)
        };
        match thread::Builder::new().spawn(probe) {
            Ok(thread) => thread.join().unwrap_or((Priority::Normal, None)),
            Err(error) => (Priority::Normal, Some(error)),
        }
    }

    /// Applies it to the calling thread.
    fn take(self) -> io::Result<()> {
        match self {
            Priority::Normal => Ok(()),
            Priority::Nice => os::set_fair(NICE, SLICE),
            Priority::RealTime => os::set_real_time(REAL_TIME),
        }
    }
}

/// The rank of the calling thread. It must stay on the thread that took it.
#[derive(Debug)]
pub struct Rank {
    /// Real-time, and the kernel has not refused a change.
    has_budget: bool,
    is_ordinary: bool,
    began: Instant,
    used: Duration,
    waited: Duration,
    /// Opened when the thread first needs it; `None` where the kernel does not say how long threads wait.
    statistics: Option<File>,
}

impl Rank {
    /// Gives the calling thread a priority, or the best one below it that is allowed.
    pub fn take(priority: Priority) -> Self {
        let allowed =
            priority.take().is_ok() || priority == Priority::RealTime && Priority::Nice.take().is_ok();
        let has_budget = allowed && priority == Priority::RealTime && os::is_real_time();
        let (began, used) = (Instant::now(), os::thread_cpu_time());
        let statistics = if has_budget { File::open(STATISTICS).ok() } else { None };
        Self { has_budget, is_ordinary: false, began, used, waited: Duration::ZERO, statistics }
    }

    /// Checks the budget. The thread that took the rank calls it often.
    #[inline]
    pub fn look(&mut self) {
        if self.has_budget && self.began.elapsed() >= WINDOW {
            self.adjust();
        }
    }

    #[cold]
    fn adjust(&mut self) {
        let (now, used, waited) = (Instant::now(), os::thread_cpu_time(), self.has_waited());
        let spent = used.saturating_sub(self.used);
        let wanted = spent + waited.saturating_sub(self.waited);
        let elapsed = now - self.began;
        (self.began, self.used, self.waited) = (now, used, waited);
        let changed = match turn(self.is_ordinary, if self.is_ordinary { wanted } else { spent }, elapsed) {
            None => return,
            Some(is_ordinary) => is_ordinary,
        };
        let done = if changed { os::set_fair(0, SLICE) } else { os::set_real_time(REAL_TIME) };
        match done {
            Ok(()) => self.is_ordinary = changed,
            // An administrator took the right away on purpose.
            Err(_) => self.has_budget = false,
        }
    }
}

impl Rank {
    /// How long the thread has waited for a core since it began.
    fn has_waited(&self) -> Duration {
        let mut text = [0; STATISTICS_BYTES];
        let read = self.statistics.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        read.and_then(|bytes| waited_of(&text[..bytes])).unwrap_or(self.waited)
    }
}

/// The second number: nanoseconds waiting for a core.
fn waited_of(text: &[u8]) -> Option<Duration> {
    let number = std::str::from_utf8(text).ok()?.split_whitespace().nth(1)?;
    Some(Duration::from_nanos(number.parse().ok()?))
}

/// Whether the thread must be ordinary from now on; `None` if nothing changes.
fn turn(is_ordinary: bool, wanted: Duration, elapsed: Duration) -> Option<bool> {
    let limit = if is_ordinary { RESTED } else { SPENT };
    let is_over = wanted * 100 > elapsed * limit;
    (is_over != is_ordinary).then_some(is_over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_spends_its_budget_is_ordinary_until_it_has_rested() {
        let ms = Duration::from_millis;
        assert_eq!(turn(false, ms(17), ms(20)), None, "85 % is within");
        assert_eq!(turn(false, ms(18), ms(20)), Some(true));
        assert_eq!(turn(true, ms(18), ms(20)), None);
        assert_eq!(turn(true, ms(17), ms(20)), None, "85 %: not rested yet");
        assert_eq!(turn(true, ms(16), ms(20)), Some(false));
        assert_eq!(turn(false, ms(1), ms(500)), None);
        assert_eq!(turn(false, Duration::ZERO, Duration::ZERO), None);
    }

    #[test]
    fn waiting_is_the_second_number() {
        assert_eq!(waited_of(b"73 1500 4\n"), Some(Duration::from_nanos(1500)));
        for wrong in [&b""[..], b"73", b"73 x 4", b"73 -1 4", &[0xff]] {
            assert_eq!(waited_of(wrong), None);
        }
        let rank = Rank {
            has_budget: true,
            statistics: File::open(STATISTICS).ok(),
            ..Rank::take(Priority::Normal)
        };
        let before = rank.has_waited();
        assert!(rank.has_waited() >= before);
    }

    /// Where real-time priority is allowed, a thread that never sleeps loses it, and gets it back when it sleeps.
    #[test]
    fn a_runaway_does_not_stay_real_time() {
        let (allowed, why) = Priority::RealTime.allowed();
        if allowed != Priority::RealTime {
            println!("SKIPPED: no real-time priority here: {why:?}");
            return;
        }
        let runaway = || {
            let mut rank = Rank::take(Priority::RealTime);
            assert!(os::is_real_time());
            let begun = os::thread_cpu_time();
            let mut turns = 0u64;
            while os::is_real_time() {
                rank.look();
                turns += 1;
                assert!(turns < 1 << 40, "it stays real-time");
            }
            let used = os::thread_cpu_time().saturating_sub(begun);
            assert!(used >= WINDOW * SPENT / 100 / 2, "not before it has used its budget: {used:?}");
            while !os::is_real_time() {
                thread::sleep(WINDOW / 2);
                rank.look();
            }
            // Threads that it starts are ordinary.
            assert!(!thread::spawn(os::is_real_time).join().expect("it ends"));
        };
        thread::spawn(runaway).join().expect("it ends");
    }

    #[test]
    fn a_priority_that_is_refused_is_replaced_by_the_next() {
        for wanted in Priority::ALL {
            let (allowed, why) = wanted.allowed();
            assert!(allowed == wanted && why.is_none() || why.is_some(), "{wanted}: {allowed}, {why:?}");
        }
        assert_eq!(Priority::Normal.allowed().0, Priority::Normal);
    }
}
