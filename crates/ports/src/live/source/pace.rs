//! How many bytes a chunk may have, so that those who use it need no more than a given time.
//!
//! A byte in a frame of its own costs several times one in a merged segment, and machines differ, so no constant
//! suits. The time from when a chunk is begun until the next one is asked for tells how fast bytes go now, copying them
//! from the ports included.

/// How long a chunk may take.
pub(super) const SPAN_NS: u64 = 150_000;
/// The most bytes of a chunk, however fast they go: more would not make it any cheaper.
pub(super) const BYTES_MAX: usize = 256 << 10;
/// The limit falls by this part of itself at most after a chunk: a thread that had to wait for its core says nothing
/// about the next.
const FALLS_BY: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    bytes: usize,
    bytes_min: usize,
    /// When the last chunk was begun, and its bytes; 0 until it ends.
    last: Option<(u64, usize)>,
}

impl Pace {
    /// A chunk of `bytes_min` bytes is always allowed.
    pub(super) fn new(bytes_min: usize) -> Self {
        Self { bytes: BYTES_MAX.max(bytes_min), bytes_min, last: None }
    }

    /// A chunk is begun.
    pub(super) fn begins(&mut self, now_ns: u64) {
        self.last = Some((now_ns, 0));
    }

    /// The chunk ends with so many bytes.
    pub(super) fn ends(&mut self, bytes: usize) {
        self.last = self.last.map(|(began_ns, _)| (began_ns, bytes));
    }

    /// The next chunk is asked for: returns how many bytes it may have.
    pub(super) fn asked(&mut self, now_ns: u64) -> usize {
        // A chunk with few bytes says more about what each chunk costs.
        if let Some((began_ns, bytes)) = self.last.take().filter(|(_, bytes)| *bytes >= self.bytes_min / 2) {
            let took_ns = now_ns.saturating_sub(began_ns).max(1);
            let in_span = (bytes as u64).saturating_mul(SPAN_NS) / took_ns;
            let in_span = usize::try_from(in_span).unwrap_or(BYTES_MAX);
            let least = self.bytes - self.bytes / FALLS_BY;
            self.bytes = in_span.max(least).min(BYTES_MAX).max(self.bytes_min);
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: usize = 64 << 10;

    /// The limit after `chunks` full chunks whose bytes go at this speed.
    fn after(pace: &mut Pace, chunks: usize, bytes_per_us: u64) -> usize {
        let mut now_ns = 0;
        let mut limit = pace.asked(now_ns);
        for _ in 0..chunks {
            pace.begins(now_ns);
            pace.ends(limit);
            now_ns += limit as u64 * 1000 / bytes_per_us;
            limit = pace.asked(now_ns);
        }
        limit
    }

    #[test]
    fn the_limit_is_what_goes_in_the_span() {
        let mut pace = Pace::new(MIN);
        assert_eq!(after(&mut pace, 1, 10_000), BYTES_MAX, "fast enough");
        let limit = after(&mut pace, 100, 1_000);
        // A limit within a hundredth of it, since times are whole nanoseconds.
        assert!(limit.abs_diff(150_000) <= 1_500, "{limit}");
        assert_eq!(after(&mut pace, 1, 10_000), BYTES_MAX, "it rises at once");
        assert_eq!(after(&mut pace, 100, 10), MIN);
    }

    #[test]
    fn one_late_call_says_little_and_a_small_chunk_nothing() {
        let mut pace = Pace::new(MIN);
        pace.begins(0);
        pace.ends(BYTES_MAX);
        assert_eq!(pace.asked(1_000_000_000), BYTES_MAX - BYTES_MAX / FALLS_BY);
        let limit = pace.asked(1_000_000_000);
        pace.begins(1_000_000_000);
        pace.ends(1_000);
        assert_eq!(pace.asked(3_000_000_000), limit);
    }
}
