//! Removes hours in a store that are older than they are to be kept.
//!
//! An hour's end and the object itself must be that old, the latter by the store's clock: so what was imported late is kept
//! for as long as the rest, and a wrong clock of this machine removes nothing (a store refuses what is signed with it).
//! Only what has the name of a writer's file is removed.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_text::calendar::SECOND_NS;

use super::{days, is_file, key_of, span_of};
use crate::dataset::{self, name_of};
use crate::error::StoreError;
use crate::object::ObjectStore;
use crate::upkeep::Upkeep;

/// Removes what ended before this, of the writers whose folders `may` names: empty for the dataset's own. `goes_on` ends a
/// request early, with an error.
pub(crate) fn expire(
    store: &dyn ObjectStore,
    before_ns: u64,
    may: &dyn Fn(&str) -> Result<bool, StoreError>,
    goes_on: &dyn Fn() -> bool,
    done: &mut Upkeep,
) -> Result<(), StoreError> {
    let failed = |doing: &'static str, key: &str| {
        let path = PathBuf::from(store.name()).join(key);
        move |source: io::Error| StoreError::Io { doing, path, source }
    };
    for day in days(store, goes_on)? {
        let part = day.split_once('/').map_or("", |(first, rest)| if rest.is_empty() { "" } else { first });
        if span_of(&day, 24).is_none_or(|(from_ns, _)| from_ns >= before_ns) || !may(part)? {
            continue;
        }
        let mut old = store.written_before(&day, before_ns, goes_on).map_err(failed("list", &day))?;
        old.retain(|(key, _)| is_expired(key, before_ns));
        for (key, bytes) in old {
            if !goes_on() {
                return Ok(());
            }
            store.remove(&key, goes_on).map_err(failed("remove", &key))?;
            done.objects_expired += 1;
            done.object_bytes_expired += bytes;
        }
    }
    Ok(())
}

/// When what is older than this must have ended.
pub(crate) fn before_ns(now_ns: u64, age_s: u64) -> u64 {
    now_ns.saturating_sub(age_s.saturating_mul(SECOND_NS))
}

fn is_expired(key: &str, before_ns: u64) -> bool {
    let path = Path::new(key);
    let is_own = name_of(path).starts_with("flows-") && dataset::file_id(path).is_some();
    is_file(key)
        && is_own
        && key_of(path) == key
        && span_of(key, 1).is_some_and(|(_, last_ns)| last_ns < before_ns)
}
