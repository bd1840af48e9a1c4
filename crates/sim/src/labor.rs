//! Processing as virtual time: received UPDATEs keep a router busy.
//!
//! A table of costs holds processing times of UPDATEs. Each UPDATE draws one of them by the router's number
//! and its count of UPDATEs, so the same table gives the same run. A busy router receives nothing more, and
//! its messages leave when it is done. So everything that arrives meanwhile is received together, as a daemon
//! finds it in its sockets. Timers that expire wait too. Without a table, processing takes no virtual time.
//!
//! The table comes from a run of the same code: a router with a stopwatch records how long each of its
//! moments took and how many UPDATEs it received in it.

use std::sync::Arc;
use std::time::Duration;

use thalweg_base::mix64;

/// The number of moments that a stopwatch keeps.
const TIMED_MAX: usize = 1 << 16;

/// Costs of UPDATEs in nanoseconds, all equally likely.
pub type Costs = Arc<[u64]>;

/// A moment of a router: the number of UPDATEs received, and the processor time it took.
pub type Timed = (u64, Duration);

/// The load of a router.
#[derive(Default)]
pub(crate) struct Labor {
    pub(crate) costs: Option<Costs>,
    /// UPDATEs that were received and not yet begun.
    waiting: u64,
    /// The UPDATEs so far.
    drawn: u64,
    /// Nanoseconds beyond whole microseconds.
    rest_ns: u64,
    /// When the router is done.
    pub(crate) free_us: u64,
    /// The recorded moments, if a stopwatch runs.
    pub(crate) timed: Option<Vec<Timed>>,
}

impl Labor {
    /// Counts UPDATEs that arrived.
    pub(crate) fn take_in(&mut self, updates: u64) {
        self.waiting += updates;
    }

    /// Starts to process what was received.
    pub(crate) fn begin(&mut self, now_us: u64, router: u32) {
        let Some(costs) = self.costs.as_deref().filter(|costs| !costs.is_empty()) else {
            if self.timed.is_none() {
                self.waiting = 0;
            }
            return;
        };
        let updates = std::mem::take(&mut self.waiting);
        if updates == 0 {
            return;
        }
        let cost =
            |number: u64| costs[(mix64(number ^ u64::from(router) << 40) % costs.len() as u64) as usize];
        let ns = self.rest_ns + (self.drawn..self.drawn + updates).map(cost).sum::<u64>();
        self.drawn += updates;
        self.rest_ns = ns % 1000;
        self.free_us = self.free_us.max(now_us) + ns / 1000;
    }

    /// Records how long a moment took.
    pub(crate) fn time(&mut self, took: Duration) {
        let updates = std::mem::take(&mut self.waiting);
        if let Some(timed) = self.timed.as_mut().filter(|timed| updates > 0 && timed.len() < TIMED_MAX) {
            timed.push((updates, took));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_update_takes_its_time() {
        let mut labor = Labor { costs: Some(Arc::from([1500])), ..Labor::default() };
        labor.take_in(3);
        labor.begin(100, 1);
        assert_eq!(labor.free_us, 104);
        labor.begin(200, 1);
        assert_eq!(labor.free_us, 104, "nothing was taken in");
        labor.take_in(1);
        labor.begin(200, 1);
        assert_eq!(labor.free_us, 202, "half a microsecond was left");
    }

    #[test]
    fn without_costs_a_router_is_never_busy() {
        let mut labor = Labor::default();
        labor.take_in(1000);
        labor.begin(5, 1);
        assert_eq!(labor.free_us, 0);
    }
}
