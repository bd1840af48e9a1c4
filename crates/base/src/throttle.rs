//! Limits how often a log repeats the same line.
//!
//! Anything that others can make us log, they can make us log a million times. A [`Throttle`] guards one kind
//! of line: it counts events and says when a line is due, and for how many of them. The first line is due at
//! once, later ones after an interval. Only lines are lost: the next one reports the rest of the count.

/// Counts the events between two lines of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    told_at_ms: Option<u64>,
    waiting: u64,
}

impl Throttle {
    /// Adds `times` events.
    pub fn note(&mut self, times: u64) {
        self.waiting = self.waiting.saturating_add(times);
    }

    /// The number of events to report now, at most once per `interval_ms`. `None` if nothing happened or the
    /// interval has not passed.
    pub fn due(&mut self, now_ms: u64, interval_ms: u64) -> Option<u64> {
        let early = self.told_at_ms.is_some_and(|at| now_ms.saturating_sub(at) < interval_ms);
        if self.waiting == 0 || early {
            return None;
        }
        self.told_at_ms = Some(now_ms);
        Some(std::mem::take(&mut self.waiting))
    }

    /// Notes one event and returns [`Self::due`].
    pub fn once(&mut self, now_ms: u64, interval_ms: u64) -> Option<u64> {
        self.note(1);
        self.due(now_ms, interval_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::Throttle;

    #[test]
    fn one_line_an_interval_and_no_event_lost() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.due(0, 1000), None, "nothing happened");
        assert_eq!(throttle.once(5, 1000), Some(1), "the first is told at once");
        let told: Vec<u64> = (6..5006).filter_map(|now| throttle.once(now, 1000)).collect();
        assert_eq!(told, [1000, 1000, 1000, 1000, 1000]);
        throttle.note(7);
        assert_eq!((throttle.due(5500, 1000), throttle.due(9000, 1000)), (None, Some(7)));
        assert_eq!(throttle.due(99_000, 1000), None);
        assert_eq!(throttle.once(u64::MAX, 1000), Some(1));
        assert_eq!(throttle.once(0, 1000), None, "a clock that went back tells nothing twice");
    }
}
