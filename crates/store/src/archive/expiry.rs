//! Removes hours in a store that are older than they are to be kept.
//!
//! An hour's end and the object itself must be that old, the latter by the store's clock: so what was imported late is kept
//! for as long as the rest, and a wrong clock of this machine removes nothing (a store refuses what is signed with it).
//! Only what has the name of a writer's file is removed.

use std::collections::BTreeMap;
use std::path::Path;

use thalweg_text::calendar::SECOND_NS;

use super::{HOURS_A_DAY, Kinds, Within, days, hour_of, level_below, level_of, part_of, span_of};
use crate::error::StoreError;
use crate::upkeep::{Retention, Upkeep};

/// What is old.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    now_ns: u64,
    age_s: u64,
    retention: Retention,
}

impl Limits {
    /// `None` if everything stays.
    pub(crate) fn new(now_ns: u64, retention: Retention) -> Option<Self> {
        retention.archive_age_max_s.map(|age_s| Self { now_ns, age_s, retention })
    }

    /// When what has this key, or is below it, must have ended to go. Rollups stay for at least as long as here: those that
    /// nobody keeps for some time stay, as they do here.
    fn before_ns(self, key: &str) -> u64 {
        let age_s = match level_below(key) {
            Some(level) => self.retention.rollups.age_max_s(level).unwrap_or(u64::MAX).max(self.age_s),
            None => self.age_s,
        };
        self.now_ns.saturating_sub(age_s.saturating_mul(SECOND_NS))
    }
}

/// The days that have what is old, by the folders of writers: empty for the dataset's own.
pub(crate) fn old_days(
    within: Within<'_>,
    limits: Limits,
) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
    let mut old: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for day in days(within.store.as_ref(), Kinds::RecordsAndRollups, within.goes_on)? {
        if span_of(&day, HOURS_A_DAY).is_some_and(|(from_ns, _)| from_ns < limits.before_ns(&day)) {
            old.entry(part_of(&day).to_owned()).or_default().push(day);
        }
    }
    Ok(old)
}

/// The old objects of these days, and their bytes.
pub(crate) fn old_objects(
    within: Within<'_>,
    limits: Limits,
    days: &[String],
) -> Result<Vec<(String, u64)>, StoreError> {
    let mut old = Vec::new();
    for day in days {
        let before_ns = limits.before_ns(day);
        let written = within.store.written_before(day, before_ns, within.goes_on);
        let mut written =
            written.map_err(StoreError::io("list", &Path::new(within.store.name()).join(day)))?;
        written.retain(|(key, _)| {
            let is_writers = hour_of(key).is_some() || level_of(key).is_some();
            is_writers && span_of(key, 1).is_some_and(|(_, last_ns)| last_ns < before_ns)
        });
        old.extend(written);
    }
    Ok(old)
}

/// Removes these objects.
pub(crate) fn remove(
    within: Within<'_>,
    objects: &[(String, u64)],
    done: &mut Upkeep,
) -> Result<(), StoreError> {
    for (key, bytes) in objects {
        if !(within.goes_on)() {
            return Ok(());
        }
        let removed = within.store.remove(key, within.goes_on);
        removed.map_err(StoreError::io("remove", &Path::new(within.store.name()).join(key)))?;
        done.objects_expired += 1;
        done.object_bytes_expired += bytes;
    }
    Ok(())
}
