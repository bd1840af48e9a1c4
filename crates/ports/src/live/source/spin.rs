//! How long a source that has run dry polls its ports before it sleeps.
//!
//! A sleeping thread learns of a packet some microseconds late, on a virtual machine some tens. Polling instead
//! takes a core, and pays if the next packet comes soon. So the source polls for a time that has paid lately, up to
//! a bound, as the halt polling of a hypervisor does:
//!
//! ```text
//! the next packet came      while polling   asleep, within the bound   later than the bound
//! the window                stays           doubles                    halves, and ends below an eighth of the bound
//! ```
//!
//! So a source that seldom receives packets has no window and costs nothing. A window costs at most the bound for
//! each packet, and a source polls only until it was awake for half of a [`PERIOD`]: a thread that never slept would
//! spend the budget of its real-time priority, and then wait for cores when it has work. Nor does a source poll while
//! more threads can run than there are cores: it would take the core from those who send the packets and receive them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// Polls between two checks of all descriptors.
const ASKED_BETWEEN: u32 = 16;

/// The time of which a source is asleep for half if it would otherwise poll.
const PERIOD: Duration = Duration::from_millis(20);

/// How often to ask whether others want the cores.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The machine's load: averages, then how many threads can run.
const LOAD: &str = "/proc/loadavg";
/// Room for its line.
const LOAD_BYTES: usize = 80;

/// The first window is this fraction of the bound.
const FIRST_PART: u32 = 8;

/// The next action of a source that has run dry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Poll the ports.
    Ask,
    /// Check all descriptors without waiting.
    Glance,
    /// Wait for a descriptor.
    Sleep,
}

#[derive(Debug)]
pub(super) struct Spin {
    /// The bound; zero never polls.
    most: Duration,
    window: Duration,
    /// When the source ran dry, and the number of turns since then.
    idle: Option<(Instant, u32)>,
    /// When it went to sleep, if that sleep is not in `period` yet.
    asleep: Option<Instant>,
    /// Whether it has slept since it ran dry.
    has_slept: bool,
    /// The beginning of this period, and the sleep in it.
    period: Option<(Instant, Duration)>,
    /// How often packets came while it polled.
    found: u64,
    others: Others,
}

/// Whether others want the cores.
#[derive(Debug)]
struct Others {
    /// `None` if the source never polls, or the system does not say.
    load: Option<File>,
    cores: usize,
    looked: Option<Instant>,
    are_waiting: bool,
}

impl Others {
    fn new(polls: bool) -> Self {
        let load = if polls { File::open(LOAD).ok() } else { None };
        // Those that this process may use.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self { load, cores, looked: None, are_waiting: false }
    }

    fn are_waiting(&mut self, now: Instant) -> bool {
        let Some(load) = &self.load else { return false };
        if self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY) {
            self.looked = Some(now);
            let mut text = [0; LOAD_BYTES];
            let can_run = load.read_at(&mut text, 0).ok().and_then(|bytes| can_run_of(&text[..bytes]));
            self.are_waiting = can_run.is_some_and(|threads| threads > self.cores);
        }
        self.are_waiting
    }
}

/// The number of threads that can run: the fourth word is `RUNNABLE/ALL`.
fn can_run_of(text: &[u8]) -> Option<usize> {
    let word = std::str::from_utf8(text).ok()?.split_whitespace().nth(3)?;
    word.split_once('/')?.0.parse().ok()
}

impl Spin {
    pub(super) fn new(most: Duration) -> Self {
        let others = Others::new(!most.is_zero());
        let (idle, asleep, period) = (None, None, None);
        Self { most, window: Duration::ZERO, idle, asleep, has_slept: false, period, found: 0, others }
    }

    /// On a machine where nobody else wants a core.
    #[cfg(test)]
    pub(super) fn alone(most: Duration) -> Self {
        Self { others: Others::new(false), ..Self::new(most) }
    }

    /// Whether to poll ports that could be waited for.
    pub(super) fn is_wanted(&self) -> bool {
        !self.window.is_zero()
    }

    /// The next action while no packet is there. `at_least` is the window of ports that cannot be waited for.
    pub(super) fn turn(&mut self, now: Instant, at_least: Duration) -> Turn {
        self.add_sleep(now);
        let may_poll = self.is_wanted() && self.has_time(now) && !self.others.are_waiting(now);
        let window = if may_poll { self.window } else { Duration::ZERO };
        let (since, turns) = self.idle.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) >= window.max(at_least) {
            (self.asleep, self.has_slept) = (Some(now), true);
            return Turn::Sleep;
        }
        *turns += 1;
        if turns.is_multiple_of(ASKED_BETWEEN) { Turn::Glance } else { Turn::Ask }
    }

    /// Notes that packets have arrived.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Some((since, _)) = self.idle.take()
            && !self.most.is_zero()
        {
            let now = Instant::now();
            self.add_sleep(now);
            self.found += u64::from(!std::mem::take(&mut self.has_slept));
            self.learn(now.saturating_duration_since(since));
        }
    }

    /// Adds the last sleep to the period's.
    fn add_sleep(&mut self, now: Instant) {
        if let (Some(since), Some((_, slept))) = (self.asleep.take(), &mut self.period) {
            *slept += now.saturating_duration_since(since);
        }
    }

    /// Whether the source was awake for so short a part of this period that it may poll.
    fn has_time(&mut self, now: Instant) -> bool {
        let (began, slept) = self.period.get_or_insert((now, Duration::ZERO));
        let elapsed = now.saturating_duration_since(*began);
        if elapsed >= PERIOD {
            self.period = Some((now, Duration::ZERO));
            return true;
        }
        elapsed.saturating_sub(*slept) < PERIOD / 2
    }

    /// How often packets came while it polled ports that could be waited for.
    pub(super) fn found(&self) -> u64 {
        self.found
    }

    /// Adjusts the window to a gap between packets.
    fn learn(&mut self, gap: Duration) {
        let first = self.most / FIRST_PART;
        if gap > self.most {
            self.window = if self.window / 2 < first { Duration::ZERO } else { self.window / 2 };
        } else if gap >= self.window {
            self.window = (self.window * 2).clamp(first, self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn nobody_is_kept_from_a_core_by_polling() {
        assert_eq!(can_run_of(b"1.49 1.60 1.58 4/156 11943\n"), Some(4));
        for wrong in [&b""[..], b"1 1 1", b"1 1 1 4 156", b"1 1 1 x/156 1", &[0xff, 0x20]] {
            assert_eq!(can_run_of(wrong), None);
        }
        let mut spin = Spin::new(80 * US);
        spin.learn(50 * US);
        let now = Instant::now();
        // The thread that asks can run.
        for (cores, turn) in [(0, Turn::Sleep), (usize::MAX, Turn::Ask)] {
            (spin.others.cores, spin.others.looked) = (cores, None);
            assert_eq!(spin.turn(now, Duration::ZERO), turn, "{cores} cores");
        }
        spin.others.cores = 0;
        assert_eq!(spin.turn(now, Duration::ZERO), Turn::Ask, "it looks now and then");
        assert_eq!(
            spin.turn(now + LOOK_EVERY, Duration::from_secs(1)),
            Turn::Ask,
            "for those that cannot be waited for"
        );
    }

    #[test]
    fn a_source_sleeps_for_half_of_each_period() {
        let mut spin = Spin::alone(PERIOD);
        (0..5).for_each(|_| spin.learn(PERIOD));
        let began = Instant::now();
        let mut at = |percent: u32| spin.turn(began + PERIOD * percent / 100, Duration::ZERO);
        assert_eq!([0, 20, 49].map(&mut at), [Turn::Ask; 3]);
        assert_eq!(at(50), Turn::Sleep);
        assert_eq!(at(70), Turn::Sleep, "it slept for a fifth and was awake for a half");
        assert_eq!(at(99), Turn::Sleep);
        spin.idle = None;
        let mut at = |percent: u32| spin.turn(began + PERIOD * percent / 100, Duration::ZERO);
        assert_eq!([100, 149].map(&mut at), [Turn::Ask; 2], "another period");
        assert_eq!(at(150), Turn::Sleep);
    }

    #[test]
    fn the_window_follows_what_has_paid() {
        let mut spin = Spin::new(80 * US);
        let mut after = |gap: u32| {
            spin.learn(gap * US);
            spin.window.as_micros()
        };
        assert_eq!([5, 9, 20, 41, 81].map(&mut after), [10, 10, 20, 40, 20]);
        assert_eq!([79, 80, 3].map(&mut after), [40, 80, 80], "it never passes the bound");
        assert_eq!([1_000_000; 4].map(&mut after), [40, 20, 10, 0], "silence ends it");
    }

    #[test]
    fn nothing_is_asked_without_a_window_and_everything_looked_at_now_and_then_within() {
        let mut spin = Spin::alone(80 * US);
        let began = Instant::now();
        assert_eq!(spin.turn(began, Duration::ZERO), Turn::Sleep);
        spin.learn(50 * US);
        let turns: Vec<Turn> = (0..ASKED_BETWEEN).map(|_| spin.turn(began, Duration::ZERO)).collect();
        assert_eq!(turns.iter().filter(|turn| **turn == Turn::Glance).count(), 1);
        assert!(turns[..15].iter().all(|turn| *turn == Turn::Ask), "{turns:?}");
        assert_eq!(spin.turn(began + 10 * US, Duration::ZERO), Turn::Sleep);
        assert_eq!(spin.turn(began + 10 * US, 50 * US), Turn::Ask, "for those that cannot be waited for");
        let mut off = Spin::new(Duration::ZERO);
        off.turn(began, Duration::ZERO);
        off.end();
        assert!(!off.is_wanted() && off.found() == 0);
    }

    #[test]
    fn what_polling_finds_is_counted() {
        let mut spin = Spin::alone(Duration::from_secs(4000));
        let mut packet = |learned_s: u64| {
            spin.learn(Duration::from_secs(learned_s));
            spin.turn(Instant::now(), Duration::ZERO);
            spin.end();
            spin.found()
        };
        assert_eq!(packet(5000), 0, "without a window it sleeps at once");
        assert_eq!([1, 1].map(packet), [1, 2]);
    }
}
