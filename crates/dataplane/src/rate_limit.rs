//! A rate limit: N events a second, with a burst after a pause.
//!
//! It is a token bucket stored as one time, the "theoretical arrival time" of ITU-T I.371's generic cell rate
//! algorithm: when the next event would come if all came evenly. That takes eight bytes of state and no refill.

/// The interval between events, and the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The average interval between events, in nanoseconds; zero is no limit.
    pub interval_ns: u64,
    /// Events that may come at once after a pause; zero counts as one.
    pub burst: u32,
}

impl Rate {
    /// A rate of `events` a second, with at most `burst` at once. Zero a second is no limit.
    pub const fn per_second(events: u32, burst: u32) -> Self {
        let interval_ns = if events == 0 { 0 } else { 1_000_000_000 / events as u64 };
        Self { interval_ns, burst }
    }
}

/// The state of one limit. A new one lets a whole burst pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    due_ns: u64,
}

impl TokenBucket {
    /// Takes a token if one is available.
    #[must_use]
    pub fn take(&mut self, rate: Rate, now_ns: u64) -> bool {
        if self.ready_at(rate) > now_ns {
            return false;
        }
        self.due_ns = self.due_ns.max(now_ns).saturating_add(rate.interval_ns);
        true
    }

    /// When the next token is available; a past time if one is available now.
    pub fn ready_at(&self, rate: Rate) -> u64 {
        let ahead = rate.interval_ns.saturating_mul(u64::from(rate.burst.max(1)) - 1);
        self.due_ns.saturating_sub(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_then_one_per_interval() {
        let rate = Rate { interval_ns: 100, burst: 3 };
        let mut bucket = TokenBucket::default();
        let passed: Vec<u64> = (1000..1500).filter(|&now| bucket.take(rate, now)).collect();
        assert_eq!(passed, [1000, 1001, 1002, 1100, 1200, 1300, 1400]);
        assert_eq!(bucket.ready_at(rate), 1500);
    }

    #[test]
    fn no_interval_is_no_limit() {
        let mut bucket = TokenBucket::default();
        assert!((0..1000).all(|_| bucket.take(Rate::per_second(0, 0), 5)));
    }

    proptest! {
        /// Whatever the times, no period sees more events than its share and one burst.
        #[test]
        fn never_more_than_rate_and_burst(gaps in proptest::collection::vec(0u64..300, 1..200), burst in 0u32..5) {
            let rate = Rate { interval_ns: 100, burst };
            let mut bucket = TokenBucket::default();
            let mut now = 0;
            let mut passed = Vec::new();
            for gap in gaps {
                now += gap;
                let ready = bucket.ready_at(rate) <= now;
                prop_assert_eq!(bucket.take(rate, now), ready);
                if ready { passed.push(now); }
            }
            for (i, &from) in passed.iter().enumerate() {
                for (n, &to) in passed[i..].iter().enumerate() {
                    prop_assert!(n as u64 <= (to - from) / 100 + u64::from(burst.max(1)), "{passed:?}");
                }
            }
        }
    }
}
