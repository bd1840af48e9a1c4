//! Delivers records to a dataset on disk.
//!
//! Records of files wait for a slow or full disk until there is room; a signal ends the wait. Those that exporters send
//! wait while the disk is only slow, so that messages stay in the sockets' buffers: not while writing fails, nor for a disk
//! that writes nothing for [`PATIENCE`]. Records of live packets do not wait.
//!
//! Records that do not wait are lost and counted if too many are pending, or if they cannot be written before the end. For
//! live packets, a dataset that cannot even be opened because its disk takes nothing is no reason not to start: records
//! are lost and counted until it can be opened, which is tried every second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, RecordLoss};
use thalweg_store::live::{Cache, LiveServer};
use thalweg_store::{Notify, Recovery, StoreError, Upkeep, Writer, WriterOptions};
use thalweg_text::units::counted;

use super::{Finished, Outlet};
use crate::ProbeError;
use crate::summary::{OutletStatus, OutletSummary};

/// How often to check whether to stop waiting.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long exporters' records wait for a dataset of which nothing is written.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How often to try to open a dataset whose disk takes nothing.
const OPEN_EVERY: Duration = Duration::from_secs(1);

/// The outlet; see the module documentation.
pub(crate) struct Kept {
    folder: PathBuf,
    options: KeptOptions,
    dataset: Result<Dataset, NotOpen>,
    taken: Amount,
    refused: Amount,
}

/// A dataset that is open for writing.
struct Dataset {
    writer: Writer,
    /// Answers queries about records that are not on disk yet.
    live: Option<LiveServer>,
    name: String,
    /// Since when there has been no room for records that wait.
    full_since: Option<Instant>,
    /// Whether it was told that they wait no longer.
    is_told: bool,
}

/// A dataset whose disk takes nothing.
struct NotOpen {
    why: StoreError,
    tried: Instant,
}

/// Whether records wait for a disk that takes none.
pub(crate) enum Waiting {
    Never,
    /// While it is written to: for so long at most of which nothing is written.
    WhileWritten(Duration),
    /// Until this is set.
    Until(Arc<AtomicBool>),
}

/// The options of the outlet.
pub(crate) struct KeptOptions {
    /// With the receiver of problems. Before the end of records that can wait, all hours that are complete are archived, and
    /// everything is sent to the feed.
    pub(crate) writing: WriterOptions,
    pub(crate) waiting: Waiting,
    /// The flow cache for live queries.
    pub(crate) cache: Option<Arc<dyn Cache>>,
}

impl Kept {
    /// Opens the dataset in this folder for writing, beside other writers, and answers queries about records that are in no file
    /// yet: pending ones, and flows of the cache, if there is one. Errors as [`Writer::open_beside`], but if records never
    /// wait, a disk that takes nothing is told and waited for.
    pub(crate) fn open(folder: &Path, options: KeptOptions) -> Result<Self, ProbeError> {
        let dataset = match Dataset::open(folder, &options) {
            Err(why) if why.may_pass() && matches!(options.waiting, Waiting::Never) => {
                options.writing.notify.warn(&format!(
                    "no flow records are written to {}: {why}; they are lost until it can be opened; trying again every {} s",
                    folder.display(),
                    OPEN_EVERY.as_secs()
                ));
                Err(NotOpen { why, tried: Instant::now() })
            }
            opened => Ok(opened.map_err(ProbeError::Store)?),
        };
        let (taken, refused) = Default::default();
        Ok(Self { folder: folder.to_path_buf(), options, dataset, taken, refused })
    }

    /// Tries again to open a dataset that could not be opened.
    fn open_again(&mut self) {
        if !self.dataset.as_ref().is_err_and(|not_open| not_open.tried.elapsed() >= OPEN_EVERY) {
            return;
        }
        self.dataset = Dataset::open(&self.folder, &self.options)
            .map_err(|why| NotOpen { why, tried: Instant::now() })
            .inspect(|dataset| {
                let (name, lost) = (&dataset.name, counted(self.refused.records, "record"));
                let said = format!("flow records can be written to {name} now; lost before: {lost}");
                self.options.writing.notify.info(&said);
            });
    }
}

impl Dataset {
    fn open(folder: &Path, options: &KeptOptions) -> Result<Self, StoreError> {
        let KeptOptions { writing, cache, .. } = options;
        let notify = &writing.notify;
        let (writer, recovery) = Writer::open_beside(folder, writing.clone())?;
        let name = writer.root().display().to_string();
        if writer.root() != folder {
            notify.info(&format!(
                "others write to {}: the records of this program go to {name}",
                folder.display()
            ));
        }
        if let Some(what) = notice(&recovery) {
            notify.warn(&format!("{name}: {what}"));
        }
        let live = writer.serve(cache.clone());
        if let Err(error) = &live {
            notify.warn(&format!("answers from {name} will lack records that are not on disk: {error}"));
        }
        Ok(Self { writer, live: live.ok(), name, full_since: None, is_told: false })
    }

    /// Passes on records and waits as configured; returns how many were taken.
    fn append(&self, records: &[FlowRecord], stop: &AtomicBool) -> Result<usize, StoreError> {
        let mut taken = 0;
        while taken < records.len() {
            let rest = &records[taken..];
            if stop.load(Ordering::Relaxed) && self.writer.is_in_trouble() {
                return Ok(taken + self.writer.offer(rest));
            }
            taken += self.writer.append_within(rest, LOOK_EVERY)?;
        }
        Ok(taken)
    }

    /// Passes on records, and waits while there is no room because the writer is busy; returns how many were taken. A writer
    /// that fails or stands still refuses what finds no room, until it writes again.
    fn append_while_written(
        &mut self,
        records: &[FlowRecord],
        patience: Duration,
        notify: &Notify,
    ) -> Result<usize, StoreError> {
        let mut taken = 0;
        while taken < records.len() {
            let rest = &records[taken..];
            let is_stuck = self.writer.is_in_trouble() || self.stands_still(patience, notify);
            let count = if is_stuck {
                self.writer.offer(rest)
            } else {
                self.writer.append_within(rest, LOOK_EVERY)?
            };
            taken += count;
            if count > 0 {
                (self.full_since, self.is_told) = (None, false);
            } else if is_stuck {
                break;
            } else {
                self.full_since.get_or_insert_with(Instant::now);
            }
        }
        Ok(taken)
    }

    /// Whether nothing was written for too long; tells that, once.
    fn stands_still(&mut self, patience: Duration, notify: &Notify) -> bool {
        if self.full_since.is_none_or(|since| since.elapsed() < patience) {
            return false;
        }
        if !std::mem::replace(&mut self.is_told, true) {
            notify.warn(&format!(
                "{}: nothing was written for {} s: records that exporters send are lost until the disk answers",
                self.name,
                patience.as_secs()
            ));
        }
        true
    }

    /// Archives the hours that are complete, and sends all records to the feed, unless it is hurried; returns why not.
    fn send(&self, stop: &AtomicBool) -> [Option<String>; 2] {
        if stop.load(Ordering::Relaxed) {
            return [None, None];
        }
        let send = |sent: Result<Upkeep, StoreError>| sent.err().map(|error| error.to_string());
        match self.writer.flush() {
            Ok(()) => [send(self.writer.archive()), send(self.writer.feed())],
            // The dataset says why its records were not written.
            Err(_) => [None, None],
        }
    }

    /// Ends; returns its name, what could not be written, and why that or `refused` records were lost.
    fn close(self, refused: Amount) -> Result<(String, Amount, Option<String>), StoreError> {
        let Self { writer, live, name, .. } = self;
        let last_error = writer.status().last_error;
        // Answers end when everything is on disk, so they lack nothing until then.
        let (unwritten, error) = match writer.close() {
            Ok(_) => (Amount::default(), last_error.filter(|_| refused.records > 0)),
            Err(StoreError::Lost { amount, why }) => (amount, Some(why)),
            Err(error) => return Err(error),
        };
        drop(live);
        Ok((name, unwritten, error))
    }
}

impl Outlet for Kept {
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError> {
        self.open_again();
        let KeptOptions { waiting, writing, .. } = &self.options;
        let count = match (&mut self.dataset, waiting) {
            (Ok(dataset), Waiting::Until(stop)) => {
                dataset.append(records, stop).map_err(ProbeError::Store)?
            }
            (Ok(dataset), Waiting::WhileWritten(patience)) => dataset
                .append_while_written(records, *patience, &writing.notify)
                .map_err(ProbeError::Store)?,
            (Ok(dataset), Waiting::Never) => dataset.writer.offer(records),
            (Err(_), _) => 0,
        };
        self.taken += Amount::of_all(&records[..count]);
        self.refused += Amount::of_all(&records[count..]);
        Ok(())
    }

    fn keeps_nat_events(&self) -> bool {
        true
    }

    fn tick(&mut self) -> Result<(), ProbeError> {
        // An open writer has its own threads and timers.
        self.open_again();
        Ok(())
    }

    fn status(&mut self) -> Vec<OutletStatus> {
        let lost = reasons([(RecordLoss::StoreQueue, self.refused.records)]);
        let mut all = vec![match &self.dataset {
            Ok(Dataset { writer, name, .. }) => {
                let status = writer.status();
                OutletStatus {
                    to: name.clone(),
                    records: status.records_written,
                    waiting: status.records_pending,
                    lost,
                    error: status.last_error.filter(|_| writer.is_in_trouble()),
                    ..OutletStatus::default()
                }
            }
            Err(NotOpen { why, .. }) => OutletStatus {
                to: self.folder.display().to_string(),
                lost,
                error: Some(why.to_string()),
                ..OutletStatus::default()
            },
        }];
        let Ok(Dataset { writer, .. }) = &self.dataset else { return all };
        let status = writer.status();
        if let Some(archive) = &self.options.writing.archive {
            all.push(OutletStatus {
                to: archive.name().to_owned(),
                records: status.upkeep.records_archived,
                lost: reasons([(RecordLoss::NotArchived, status.upkeep.records_unarchived)]),
                error: status.archive_error,
                // What waits is safe in the folder, and most of it is of hours that are not complete.
                ..OutletStatus::default()
            });
        }
        if let Some(feed) = &self.options.writing.feed {
            all.push(OutletStatus {
                to: feed.name().to_owned(),
                records: status.upkeep.records_fed,
                lost: reasons([(RecordLoss::NotFed, status.upkeep.records_unfed)]),
                error: status.feed_error,
                ..OutletStatus::default()
            });
        }
        all
    }

    fn finish(self: Box<Self>, _hurried: bool) -> Result<Finished, ProbeError> {
        let Self { folder, options, dataset, mut taken, refused } = *self;
        let [not_archived, not_fed] = match (&dataset, &options.waiting) {
            (Ok(dataset), Waiting::Until(stop)) => dataset.send(stop),
            _ => [None, None],
        };
        let (name, unwritten, error) = match dataset {
            Ok(dataset) => dataset.close(refused).map_err(ProbeError::Store)?,
            Err(NotOpen { why, .. }) => {
                (folder.display().to_string(), Amount::default(), Some(why.to_string()))
            }
        };
        taken -= unwritten;
        let missed = [refused, unwritten].into_iter().sum();
        let lost =
            reasons([(RecordLoss::StoreQueue, refused.records), (RecordLoss::NotWritten, unwritten.records)]);
        let all_taken = OutletSummary::all_taken(name, taken);
        let summary = OutletSummary { lost, error, not_archived, not_fed, ..all_taken };
        Ok(Finished { summaries: vec![summary], missed })
    }
}

/// Lost records by reason; only reasons that occurred.
fn reasons<const N: usize>(lost: [(RecordLoss, u64); N]) -> BTreeMap<String, u64> {
    let lost = lost.into_iter().filter(|(_, records)| *records > 0);
    lost.map(|(why, records)| (why.name().to_owned(), records)).collect()
}

/// The part of a recovery that the operator should know.
fn notice(recovery: &Recovery) -> Option<String> {
    let mut words = Vec::new();
    words.extend(recovery.unclean.as_ref().map(|who| format!("the last writer did not end properly: {who}")));
    for (count, what) in [
        (recovery.torn_removed, "unfinished files were removed"),
        (recovery.replaced_removed, "files that had been joined into others were removed"),
        (recovery.skipped.count, "files are skipped: damaged, or not of this dataset"),
    ] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    (!words.is_empty()).then(|| words.join("; "))
}

#[cfg(test)]
mod tests;
