//! An exact token bucket: the shaper of a port and of a class.
//!
//! Tokens are counted in bits times nanoseconds (a byte is 8 * 10^9 of them, as in [`crate::police`]), so a rate in
//! bits per second times a time in nanoseconds is a whole number of tokens. Nothing is rounded: after a week of odd
//! intervals the bucket holds what it would hold after a single long one, and the time at which it will hold enough
//! is exact to the nanosecond.
//!
//! A packet needs its own size in tokens, or a full bucket if it is larger than that; it then leaves the bucket in
//! debt. So in any time t, bytes <= burst + rate * t + the excess of the largest packet over the burst, and no
//! packet waits for ever because a burst was configured too small.

/// Tokens of a byte.
const BYTE: i64 = 8_000_000_000;
/// The deepest bucket: 1 GiB. Larger ones do not fit the counter and no port needs them.
pub const BURST_BYTES_MAX: u32 = 1 << 30;

/// One bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rate_bps: u64,
    depth: i64,
    level: i64,
    filled_at_ns: u64,
}

impl Bucket {
    /// A full bucket. A rate of zero counts as one bit per second: a port that must not send is a port that is
    /// down.
    pub(super) fn new(rate_bps: u64, burst_bytes: u32, now_ns: u64) -> Self {
        let depth = tokens(u64::from(burst_bytes).max(1));
        Self { rate_bps: rate_bps.max(1), depth, level: depth, filled_at_ns: now_ns }
    }

    /// Changes rate and burst. Debt remains, and tokens remain up to the new depth.
    pub(super) fn change(&mut self, rate_bps: u64, burst_bytes: u32, now_ns: u64) {
        self.fill(now_ns);
        self.rate_bps = rate_bps.max(1);
        self.depth = tokens(u64::from(burst_bytes).max(1));
        self.level = self.level.min(self.depth);
    }

    /// Adds the tokens of the time since the last call.
    fn fill(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.filled_at_ns);
        if elapsed == 0 {
            return;
        }
        self.filled_at_ns = now_ns;
        // The level is never above the depth, so the room is not negative; the limit on the depth keeps it below
        // 2^64.
        let room = self.depth.abs_diff(self.level);
        let added = self.rate_bps.saturating_mul(elapsed).min(room);
        self.level = self.level.saturating_add_unsigned(added);
    }

    /// Whether `bytes` may leave now; if not, the first nanosecond at which they may.
    #[inline]
    pub(super) fn ready(&mut self, bytes: u64, now_ns: u64) -> Result<(), u64> {
        self.fill(now_ns);
        let need = tokens(bytes).min(self.depth);
        if self.level >= need {
            return Ok(());
        }
        let missing = need.abs_diff(self.level);
        Err(self.filled_at_ns.saturating_add(missing.div_ceil(self.rate_bps)))
    }

    /// Pays for `bytes` that were ready.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) {
        // This cannot overflow: at most one packet's tokens below a bucket that was ready.
        self.level = self.level.saturating_sub(tokens(bytes));
    }
}

fn tokens(bytes: u64) -> i64 {
    bytes.min(u64::from(BURST_BYTES_MAX)) as i64 * BYTE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_time_told_is_the_first_that_does() {
        // 3 bit/s: a byte takes 2.67 s.
        let mut bucket = Bucket::new(3, 10, 0);
        assert_eq!(bucket.ready(10, 0), Ok(()));
        bucket.take(10);
        let until = bucket.ready(1, 0).expect_err("the bucket is empty");
        assert_eq!(until, 2_666_666_667);
        assert_eq!(bucket.ready(1, until - 1), Err(until));
        assert_eq!(bucket.ready(1, until), Ok(()));
    }

    #[test]
    fn a_packet_above_the_burst_passes_and_is_paid_for() {
        let mut bucket = Bucket::new(8_000, 100, 0);
        assert_eq!(bucket.ready(1500, 0), Ok(()));
        bucket.take(1500);
        // 1400 bytes owed and 1 needed, at 1000 bytes a second.
        assert_eq!(bucket.ready(1, 0), Err(1_401_000_000));
    }

    #[test]
    fn ten_hours_of_odd_intervals_lose_nothing() {
        // 1.000001 Mbit/s polled every 104,729 ns or thereabouts, always kept short of tokens.
        let (rate, burst) = (1_000_001u64, 2_000u32);
        let mut bucket = Bucket::new(rate, burst, 0);
        let (mut now, mut sent) = (0u64, 0u64);
        let end = 10 * 3600 * 1_000_000_000u64;
        let mut step = 104_729u64;
        while now < end {
            while bucket.ready(100, now).is_ok() {
                bucket.take(100);
                sent += 100;
            }
            step = if step > 15_000_000 { 104_729 } else { step + 7_919 };
            now += step;
        }
        let last = bucket.filled_at_ns;
        let may = u128::from(burst) + u128::from(rate) * u128::from(last) / 8_000_000_000;
        assert!(u128::from(sent) <= may && may < u128::from(sent) + 100, "{sent} of {may}");
    }

    proptest! {
        /// In every interval between two packets, not only from the start.
        #[test]
        fn no_interval_carries_more_than_burst_and_rate(
            rate in 1u64..10_000_000_000, burst in 0u32..100_000,
            arrivals in proptest::collection::vec((0u64..3_000_000, 1u64..3_000), 1..120),
        ) {
            let mut bucket = Bucket::new(rate, burst, 5);
            let mut now = 5u64;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (gap, bytes) in arrivals {
                now += gap;
                if let Err(until) = bucket.ready(bytes, now) {
                    prop_assert!(until > now);
                    // Wait for it every other time, else drop the packet.
                    if gap % 2 == 0 { continue; }
                    prop_assert_eq!(bucket.ready(bytes, until - 1), Err(until));
                    now = until;
                    prop_assert_eq!(bucket.ready(bytes, now), Ok(()));
                }
                bucket.take(bytes);
                sent.push((now, bytes));
            }
            let largest = sent.iter().map(|s| s.1).max().unwrap_or(0);
            for first in 0..sent.len() {
                let mut total = 0u128;
                for (at, bytes) in &sent[first..] {
                    total += u128::from(*bytes);
                    let flowed = u128::from(rate) * u128::from(at - sent[first].0);
                    let may = 8_000_000_000 * u128::from(u64::from(burst.max(1)).max(largest)) + flowed;
                    prop_assert!(8_000_000_000 * total <= may);
                }
            }
        }

        #[test]
        fn no_number_overflows(rate: u64, burst: u32, steps in proptest::collection::vec((any::<u64>(), any::<u32>()), 0..20)) {
            let mut bucket = Bucket::new(rate, burst, 0);
            for (now, bytes) in steps {
                if bucket.ready(u64::from(bytes), now).is_ok() { bucket.take(u64::from(bytes)); }
                bucket.change(rate, bytes, now);
            }
        }
    }
}
