//! Sends rollups. Each is an object of its own, as it is a file here; one that replaces others takes their place there too.
//!
//! Marks in the folder of the hour name those that are there, as with records. A writer that dies after it sent a rollup
//! finds the store has it, and removes what it replaces; until then readers know from its footer what that is. A store may
//! lack the sums of an hour, or have older ones: then records answer, or sums of the folder do.

use std::fs;
use std::path::{Path, PathBuf};

use super::key_of;
use crate::dataset::{self, Partition};
use crate::error::StoreError;
use crate::file::FlowFile;
use crate::object::ObjectStore;
use crate::rollup::Level;
use crate::upkeep::{Changes, Upkeep};

impl Changes {
    /// Sends the rollups that are not there yet. An hour that fails for reasons of its own stops no other.
    pub(crate) fn archive_rollups(
        &self,
        store: &dyn ObjectStore,
        done: &mut Upkeep,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        for level in Level::ALL {
            for partition in dataset::partitions(&level.folder(&self.root))? {
                for path in self.unsent(&partition)? {
                    if self.is_ending() {
                        return failed.map_or(Ok(()), Err);
                    }
                    match self.archive_rollup(store, &path) {
                        Ok(false) => {}
                        Ok(true) => {
                            done.rollups_archived += 1;
                            done.bytes_archived += fs::metadata(&path).map_or(0, |metadata| metadata.len());
                            self.note_archived(&partition, &path)?;
                        }
                        Err(error) if error.is_taken() => failed = Some(error),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn unsent(&self, partition: &Partition) -> Result<Vec<PathBuf>, StoreError> {
        let mut files = dataset::published(&partition.path)?;
        let _upkeep = self.upkeep.lock();
        let marks = self.marks(&partition.path)?;
        files.retain(|file| !marks.is_archived(file));
        Ok(files)
    }

    /// Returns whether it is there now: one that is gone here is not, and no damaged one, of which those tell who read it.
    fn archive_rollup(&self, store: &dyn ObjectStore, path: &Path) -> Result<bool, StoreError> {
        let rollup = match FlowFile::open(path) {
            Err(error) if error.is_unreadable() => return Ok(false),
            opened => opened?,
        };
        if !self.send(store, path)? {
            return Ok(false);
        }
        for old in rollup.replaced() {
            let key = key_of(&old);
            let removed = store.remove(&key, &|| !self.is_ending());
            removed.map_err(StoreError::io("remove", &Path::new(store.name()).join(&key)))?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
