//! Controlled delay: when to tell senders that they send too much (RFC 8289).
//!
//! A queue should absorb bursts; a *standing* queue only adds delay. So the criterion is not how long a packet
//! waited but whether any packet within an interval waited less than the target. If none did, one signal is due (a
//! drop or a mark), the next an interval later, then interval/sqrt(2) later, interval/sqrt(3) and so on, until a
//! packet waits less than the target. A flow's rate is proportional to one over the square root of its loss, so
//! this lowers it in steady steps.
//!
//! ```text
//!            a packet waited less than the target, or hardly any is left
//!        +-------------------------------------------------------------+
//!        v                                                             |
//!   +---------+  all packets of an interval waited longer   +--------------+
//!   |  quiet  | ------------------------------------------> |  signaling   | --+ one signal each
//!   +---------+            first signal                     +--------------+ <-+ interval/sqrt(count)
//! ```
//!
//! After a short quiet time, `count` continues near its last value instead of at 1 (section 5.4).
//!
//! A packet's size does not affect its fate (RFC 7141). The delay counts only while the queue holds more than one
//! large packet; otherwise a slow line could never send one.

use super::config::Aqm;

/// `count` continues if the quiet time was shorter than this many intervals (RFC 8289 section 5.4).
const MEMORY_INTERVALS: u64 = 16;
/// Keeps the square of the interval in nanoseconds within 64 bits.
const INTERVAL_MS_MAX: u32 = 4_000;

/// The state of one queue.
#[derive(Clone, Debug)]
pub(super) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    ecn: bool,
    /// When the wait will have been above the target for an interval, if it stays so.
    too_long_at_ns: Option<u64>,
    signaling: bool,
    next_signal_ns: u64,
    count: u32,
    /// `count` when signaling last began.
    count_before: u32,
}

impl Codel {
    pub(super) fn new(aqm: Aqm) -> Self {
        let mut codel = Self {
            target_ns: 0,
            interval_ns: 0,
            ecn: aqm.ecn,
            too_long_at_ns: None,
            signaling: false,
            next_signal_ns: 0,
            count: 0,
            count_before: 0,
        };
        codel.change(aqm);
        codel
    }

    /// Changes the settings and keeps the state.
    pub(super) fn change(&mut self, aqm: Aqm) {
        self.target_ns = u64::from(aqm.target_us) * 1_000;
        self.interval_ns = u64::from(aqm.interval_ms.clamp(1, INTERVAL_MS_MAX)) * 1_000_000;
        self.ecn = aqm.ecn;
    }

    /// Whether a packet that leaves after waiting `sojourn_ns` must carry a signal. `behind_bytes` is what remains
    /// in the queue, `large_bytes` the largest packet so far.
    pub(super) fn signal(
        &mut self,
        now_ns: u64,
        sojourn_ns: u64,
        behind_bytes: u64,
        large_bytes: u64,
    ) -> bool {
        let stands = self.stands(now_ns, sojourn_ns, behind_bytes, large_bytes);
        if !self.signaling {
            if stands {
                self.begin(now_ns);
            }
            return stands;
        }
        if !stands {
            self.signaling = false;
            return false;
        }
        if now_ns < self.next_signal_ns {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.next_signal_ns = self.next_signal_ns.saturating_add(self.spacing_ns());
        true
    }

    /// Whether the wait has been above the target for a whole interval.
    fn stands(&mut self, now_ns: u64, sojourn_ns: u64, behind_bytes: u64, large_bytes: u64) -> bool {
        if sojourn_ns < self.target_ns || behind_bytes <= large_bytes {
            self.too_long_at_ns = None;
            return false;
        }
        let limit = *self.too_long_at_ns.get_or_insert(now_ns.saturating_add(self.interval_ns));
        now_ns >= limit
    }

    fn begin(&mut self, now_ns: u64) {
        let last_time = self.count.saturating_sub(self.count_before);
        let was_lately =
            now_ns.saturating_sub(self.next_signal_ns) < MEMORY_INTERVALS.saturating_mul(self.interval_ns);
        self.count = if last_time > 1 && was_lately { last_time } else { 1 };
        self.count_before = self.count;
        self.signaling = true;
        self.next_signal_ns = now_ns.saturating_add(self.spacing_ns());
    }

    /// interval / sqrt(count), in whole nanoseconds.
    fn spacing_ns(&self) -> u64 {
        (self.interval_ns * self.interval_ns / u64::from(self.count.max(1))).isqrt().max(1)
    }

    /// Whether a packet that must carry a signal may be marked instead of dropped.
    ///
    /// Senders that ignore marks would fill the queue to its limit and delay the whole class. RFC 3168 section 7
    /// and RFC 7567 section 4.2.1 therefore let routers drop instead of marking when the queue is far too long:
    /// here, longer than an interval.
    pub(super) fn may_mark(&self, sojourn_ns: u64) -> bool {
        self.ecn && sojourn_ns <= self.interval_ns
    }
}

#[cfg(test)]
mod tests;
