//! Folders of writers that have ended: this writer looks after them, for nobody else would.

use std::path::Path;
use std::sync::Arc;

use super::Shared;
use super::lock::Lock;
use crate::dataset;
use crate::error::StoreError;
use crate::iceberg::Table;
use crate::upkeep::{Changes, recover};

/// Another writer's folder.
pub(super) enum Other<'c> {
    Ended(&'c Changes),
    /// That writer runs.
    Busy,
}

/// Whether folders are meant whose writers did not end properly. Only upkeep takes those, and tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Improper {
    Taken,
    Left,
}

impl Shared {
    /// Does something in the folder of each other writer; one that has ended is locked meanwhile.
    pub(super) fn in_others(
        &self,
        improper: Improper,
        mut work: impl FnMut(&Path, Other<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for folder in dataset::parts(dataset::home(self.root()))? {
            if folder == self.root() {
                continue;
            }
            let (mut lock, left) = match Lock::take(&folder) {
                Err(StoreError::Busy { .. }) => {
                    work(&folder, Other::Busy)?;
                    continue;
                }
                taken => taken?,
            };
            if !left.is_empty() {
                if improper == Improper::Left {
                    lock.release(false)?;
                    continue;
                }
                let part = folder.display();
                self.options.notify.warn(&format!("{part}: its last writer did not end properly: {left}"));
            }
            let worked = self.changes_of(&folder).and_then(|changes| work(&folder, Other::Ended(&changes)));
            lock.release(worked.is_ok())?;
            worked?;
        }
        Ok(())
    }

    /// For the folder of a writer that has ended.
    fn changes_of(&self, part: &Path) -> Result<Changes, StoreError> {
        let table = Table::new(part, self.options.iceberg, self.options.now_ns);
        let (_, next_id) = recover(part)?;
        let (ending, damaged) = (Arc::clone(&self.changes.ending), Arc::clone(&self.changes.damaged));
        Ok(Changes { ending, damaged, ..self.options.changes(part, next_id, table) })
    }
}
