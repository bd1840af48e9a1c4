//! The deadlines of a flow; see the head of `cache.rs`.

use super::arena::{Half, state};
use crate::record::EndReason;

#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) idle_ns: u64,
    pub(super) active_ns: u64,
    pub(super) linger_ns: u64,
}

/// The state of a flow, over both directions.
pub(super) struct Lifetime {
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) packets: u64,
    pub(super) full: bool,
    pub(super) state: u8,
}

impl Half {
    /// Whether a flow of one direction is certainly alive: TCP has not ended it, and both deadlines are
    /// ahead. A flow with nothing to report has its first packet at the end of time ([`Half::EMPTY`]), so its
    /// report is not due.
    #[inline(always)]
    pub(super) fn surely_goes_on(&self, arrival_ns: u64, timeouts: &Timeouts) -> bool {
        (self.state & state::ENDED == 0)
            & (self.packets != u32::MAX)
            & (arrival_ns < self.last_ns.saturating_add(timeouts.idle_ns))
            & (arrival_ns < self.first_ns.saturating_add(timeouts.active_ns))
            & (arrival_ns.saturating_add(timeouts.active_ns) > self.last_ns)
    }
}

impl Lifetime {
    #[inline]
    pub(super) fn new(half: &Half, reverse: Option<&Half>) -> Self {
        let mut lifetime = Self {
            first_ns: half.first_ns,
            last_ns: half.last_ns,
            packets: u64::from(half.packets),
            full: half.packets == u32::MAX,
            state: half.state,
        };
        if let Some(reverse) = reverse {
            lifetime.first_ns = lifetime.first_ns.min(reverse.first_ns);
            lifetime.last_ns = lifetime.last_ns.max(reverse.last_ns);
            lifetime.packets += u64::from(reverse.packets);
            lifetime.full |= reverse.packets == u32::MAX;
        }
        lifetime
    }

    #[inline]
    pub(super) fn is_ended(&self) -> bool {
        self.state & state::ENDED != 0
    }

    /// When the flow is removed.
    #[inline]
    pub(super) fn quiet_ns(&self, timeouts: &Timeouts) -> u64 {
        self.last_ns.saturating_add(if self.is_ended() { timeouts.linger_ns } else { timeouts.idle_ns })
    }

    /// When the flow is reported and goes on; never, if there is nothing to report.
    #[inline]
    pub(super) fn report_ns(&self, timeouts: &Timeouts) -> u64 {
        if self.packets == 0 { u64::MAX } else { self.first_ns.saturating_add(timeouts.active_ns) }
    }

    /// Whether the flow is reported before it is removed.
    #[inline]
    pub(super) fn reports_first(&self, timeouts: &Timeouts) -> bool {
        self.packets > 0 && self.report_ns(timeouts) <= self.quiet_ns(timeouts)
    }

    #[inline]
    pub(super) fn deadline_ns(&self, timeouts: &Timeouts) -> u64 {
        self.quiet_ns(timeouts).min(self.report_ns(timeouts))
    }

    /// Whether the last packet came so long after this time that the clock must have gone back.
    #[inline]
    pub(super) fn is_ahead_of(&self, time_ns: u64, timeouts: &Timeouts) -> bool {
        time_ns.saturating_add(timeouts.active_ns) <= self.last_ns
    }

    #[inline]
    pub(super) fn reason(&self) -> EndReason {
        if self.is_ended() { EndReason::EndDetected } else { EndReason::IdleTimeout }
    }
}
