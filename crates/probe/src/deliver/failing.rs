//! Whether a receiver fails at present, as far as counters tell: those of datagrams tell of failures alone.

use std::time::{Duration, Instant};

/// How long a receiver counts as failing after its last failure.
const LASTS: Duration = Duration::from_secs(60);

/// The failures of a receiver when they were last read.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    known: u64,
    last: Option<Instant>,
}

impl Failing {
    /// Whether it has failed lately; `failures` is the number so far.
    pub(crate) fn lately(&mut self, failures: u64, now: Instant) -> bool {
        if failures > std::mem::replace(&mut self.known, failures) {
            self.last = Some(now);
        }
        self.last.is_some_and(|last| now.saturating_duration_since(last) < LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_fails_until_a_minute_has_passed_without_a_failure() {
        let start = Instant::now();
        let mut failing = Failing::default();
        let mut fails = |failures, second| failing.lately(failures, start + Duration::from_secs(second));
        assert!(!fails(0, 0));
        assert!(fails(3, 1) && fails(3, 60));
        assert!(!fails(3, 61), "no further failure since");
        assert!(fails(4, 62) && fails(5, 100) && fails(5, 159));
        assert!(!fails(5, 160));
    }
}
