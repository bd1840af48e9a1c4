//! Removes hours in a store that are older than they are to be kept.
//!
//! An hour's end and the object itself must be that old, the latter by the store's clock: so what was imported late is kept
//! for as long as the rest, and a wrong clock of this machine removes nothing (a store refuses what is signed with it).
//! Only what has the name of a writer's file is removed.

use std::collections::BTreeMap;
use std::path::Path;

use thalweg_text::calendar::{HOUR_NS, SECOND_NS};

use super::{HOURS_A_DAY, Within, days, hour_of, part_of, span_of};
use crate::error::StoreError;
use crate::upkeep::Upkeep;

/// The days that have what ended before this, by the folders of writers: empty for the dataset's own.
pub(crate) fn old_days(
    within: Within<'_>,
    before_ns: u64,
) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
    let mut old: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for day in days(within.store.as_ref(), within.goes_on)? {
        if span_of(&day, HOURS_A_DAY).is_some_and(|(from_ns, _)| from_ns < before_ns) {
            old.entry(part_of(&day).to_owned()).or_default().push(day);
        }
    }
    Ok(old)
}

/// The objects of these days that ended before this, and their bytes.
pub(crate) fn old_objects(
    within: Within<'_>,
    before_ns: u64,
    days: &[String],
) -> Result<Vec<(String, u64)>, StoreError> {
    let mut old = Vec::new();
    for day in days {
        let written = within.store.written_before(day, before_ns, within.goes_on);
        old.extend(written.map_err(StoreError::io("list", &Path::new(within.store.name()).join(day)))?);
    }
    old.retain(|(key, _)| hour_of(key).is_some_and(|hour| (hour + 1).saturating_mul(HOUR_NS) <= before_ns));
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

/// When what is older than this must have ended.
pub(crate) fn before_ns(now_ns: u64, age_s: u64) -> u64 {
    now_ns.saturating_sub(age_s.saturating_mul(SECOND_NS))
}
