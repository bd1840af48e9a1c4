//! Measures the age of each hour's records by the writer's own clock.
//!
//! The wall clock may be wrong, and it jumps when it is set: a machine without a battery begins in 1970, and
//! an instant later everything that it wrote seems decades old. So retention by age never relies on the wall
//! clock alone. An hour must also be as old by a monotonic clock: measured since the writer last wrote
//! records of that hour or, for hours that it has not written, since it began, plus their distance from the
//! newest hour at that time. Time without a writer does not count.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dataset;
use crate::error::StoreError;

const HOUR_S: u64 = 3600;

/// Ages of hours; see the module documentation.
#[derive(Debug)]
pub(crate) struct Ages {
    began: Instant,
    /// The newest hour when the writer began.
    newest: u64,
    /// When the writer last wrote records of an hour.
    written: Mutex<BTreeMap<u64, Instant>>,
}

impl Ages {
    /// For a writer that begins now.
    pub(crate) fn of(root: &Path) -> Result<Self, StoreError> {
        let newest = dataset::partitions(root)?.last().map_or(0, |partition| partition.hour);
        Ok(Self { began: Instant::now(), newest, written: Mutex::default() })
    }

    /// Notes that records of this hour are written now.
    pub(crate) fn note(&self, hour: u64, now: Instant) {
        self.written.lock().insert(hour, now);
    }

    /// The minimum age of an hour's records.
    pub(crate) fn measured(&self, hour: u64, now: Instant) -> Duration {
        let written = self.written.lock();
        match written.get(&hour) {
            Some(at) => now.saturating_duration_since(*at),
            None => {
                let before_s = self.newest.saturating_sub(hour).saturating_mul(HOUR_S);
                now.saturating_duration_since(self.began).saturating_add(Duration::from_secs(before_s))
            }
        }
    }

    /// Forgets an hour whose records are gone.
    pub(crate) fn forget(&self, hour: u64) {
        self.written.lock().remove(&hour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_measured_whatever_the_hours_are_called() {
        let began = Instant::now();
        let after = |hours: u64| began + Duration::from_secs(hours * HOUR_S);
        // The newest hour is 500,000 hours after the epoch, in 2027.
        let ages = Ages { began, newest: 500_000, written: Mutex::default() };
        let age = |hour: u64, now: Instant| ages.measured(hour, now).as_secs() / HOUR_S;
        assert_eq!([500_000, 499_990].map(|hour| age(hour, after(3))), [3, 13]);
        // A wrong clock: records of 1970 are as old as they are, and so are those of a time to come.
        ages.note(0, after(1));
        assert_eq!([0, 1, 600_000].map(|hour| age(hour, after(3))), [2, 500_002, 3]);
        ages.note(0, after(3));
        assert_eq!(age(0, after(4)), 1, "the newest of them count");
        ages.forget(0);
        assert_eq!(age(0, after(4)), 500_004);
    }
}
