//! Makes the rollups of hours: of those that have ended, and of what is about to be removed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use thalweg_text::calendar::{HOUR_NS, SECOND_NS};

use super::{Ages, Changes, Clock, Retention, Upkeep};
use crate::block::Spare;
use crate::dataset::{self, Partition, Temporary, name_of};
use crate::error::StoreError;
use crate::file::{FileWriter, FlowFile, ROW_GROUP_ROWS};
use crate::rollup::{self, Level, RollupRetention, Summed, is_covered};

/// How long after its end an hour gets its rollup: records come when a flow ends or is reported, and wait to be written.
pub(crate) const GRACE_NS: u64 = 600 * SECOND_NS;

impl Changes {
    /// Sums the hours that have ended and are to have rollups. `ages` as for [`Self::retain`].
    pub(crate) fn sum_hours(
        &self,
        keep: RollupRetention,
        now_ns: u64,
        ages: Option<&Ages>,
    ) -> Result<Upkeep, StoreError> {
        let mut done = Upkeep::default();
        if keep.is_wanted() {
            let clock = Clock { now_ns, ages };
            done.rollups_made = self.roll_up(now_ns, |hour| clock.levels(keep, hour))?;
        }
        Ok(done)
    }

    /// Sums an hour that is about to go, to the end.
    pub(super) fn cover(
        &self,
        partition: &Partition,
        policy: Retention,
        clock: Clock<'_>,
        done: &mut Upkeep,
    ) -> Result<(), StoreError> {
        let levels = clock.levels(policy.rollups, partition.hour);
        done.rollups_made += self.roll_up_hour(partition, &levels, &|| false)?;
        Ok(())
    }

    /// Sums records that are in no rollup yet, of hours that have ended; returns how many rollups were made. An hour that
    /// fails does not stop the others.
    pub(crate) fn roll_up(&self, now_ns: u64, levels: impl Fn(u64) -> Vec<Level>) -> Result<u64, StoreError> {
        let _upkeep = self.upkeep.lock();
        let (mut made, mut failed) = (0, None);
        for partition in dataset::partitions(&self.root)? {
            let end_ns = (partition.hour + 1).saturating_mul(HOUR_NS);
            if self.is_ending() || end_ns.saturating_add(GRACE_NS) > now_ns {
                break;
            }
            match self.roll_up_hour(&partition, &levels(partition.hour), &|| self.is_ending()) {
                Ok(more) => made += more,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(made), Err)
    }

    /// Brings the rollups of an hour up to date with its files. For who holds the right to change files.
    fn roll_up_hour(
        &self,
        partition: &Partition,
        levels: &[Level],
        stops: &dyn Fn() -> bool,
    ) -> Result<u64, StoreError> {
        let mut made = 0;
        if levels.is_empty() {
            return Ok(made);
        }
        let all = dataset::open_all(&dataset::published(&partition.path)?)?.files;
        for level in levels {
            let mut files = all.clone();
            let earlier = rollup::of_hour(&self.root, *level, partition.hour)?;
            files.retain(|file| !earlier.iter().any(|rollup| is_covered(file, rollup)));
            while !files.is_empty() {
                match rollup::sum(*level, &earlier, &files, stops) {
                    Ok(None) => return Ok(made),
                    Ok(Some(summed)) => {
                        self.put_rollup(*level, partition.hour, summed, &earlier)?;
                        made += 1;
                        break;
                    }
                    // Readers leave a damaged file out, and say so.
                    Err(StoreError::Unreadable { path, .. })
                        if files.iter().any(|file| file.path == path) =>
                    {
                        files.retain(|file| file.path != path);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(made)
    }

    /// Writes the rollup of an hour in the place of earlier ones. One of events alone has no rows, and says of which time.
    pub(crate) fn put_rollup(
        &self,
        level: Level,
        hour: u64,
        summed: Summed,
        earlier: &[Arc<FlowFile>],
    ) -> Result<(), StoreError> {
        let facts = summed.facts.clone();
        let rows = summed.into_records();
        let partition = dataset::partition_path(&level.folder(&self.root), hour);
        make_folders(&self.root, &partition)?;
        let mut file = Temporary::of(partition.join(dataset::rollup_name(facts.span_ns, self.id())));
        let names: Vec<String> = earlier.iter().map(|file| name_of(&file.path).to_owned()).collect();
        let mut writer = FileWriter::create_rollup(file.path(), &names, &facts)?;
        let mut spare = Spare::default();
        for group in rows.chunks(ROW_GROUP_ROWS) {
            writer.append(group.iter(), &mut spare)?;
        }
        writer.finish()?;
        let names = self.publish.lock();
        file.publish()?;
        drop(names);
        // The new name must be on disk before an old file is removed, be it a rollup or one of records.
        dataset::sync_folder(&partition)?;
        let _names = self.publish.lock();
        for old in earlier {
            fs::remove_file(&old.path).map_err(StoreError::io("remove", &old.path))?;
        }
        Ok(())
    }
}

/// Makes a folder below another, with the names of all on disk.
fn make_folders(root: &Path, folder: &Path) -> Result<(), StoreError> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(StoreError::io("create", folder))?;
    let made = folder.ancestors().skip(1).take_while(|above| above.starts_with(root));
    made.into_iter().try_for_each(dataset::sync_folder)
}
