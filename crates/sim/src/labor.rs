//! Computing as virtual time: what a router takes in keeps it busy.
//!
//! A table of costs says how long an UPDATE takes, and each draws one of them, by the router's number and its count of
//! UPDATEs, so the same table gives the same run. While a router is busy nothing more is taken in, and what it sends leaves
//! when it is done; so whatever arrives meanwhile is taken in together, as a daemon finds it in its sockets. Timers that are
//! due wait too. Without a table computing takes no virtual time.
//!
//! The table comes from a run of the same code: a router with a stopwatch keeps how long each of its moments took and how
//! many UPDATEs it took in.

use std::sync::Arc;
use std::time::Duration;

use thalweg_base::mix64;

/// Moments that a stopwatch keeps.
const TIMED_MAX: usize = 1 << 16;

/// What UPDATEs cost, in nanoseconds, each as likely as the others.
pub type Costs = Arc<[u64]>;

/// A moment of a router: the UPDATEs that it took in, and how long the machine took.
pub type Timed = (u64, Duration);

/// How busy a router is.
#[derive(Default)]
pub(crate) struct Labor {
    pub(crate) costs: Option<Costs>,
    /// UPDATEs that were taken in and not begun.
    waiting: u64,
    /// UPDATEs so far.
    drawn: u64,
    /// Nanoseconds beyond whole microseconds.
    rest_ns: u64,
    /// When it is done.
    pub(crate) free_us: u64,
    /// Moments, where they are timed.
    pub(crate) timed: Option<Vec<Timed>>,
}

impl Labor {
    /// UPDATEs arrived.
    pub(crate) fn take_in(&mut self, updates: u64) {
        self.waiting += updates;
    }

    /// Begins with what was taken in.
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

    /// A moment took so long.
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
