//! Delivers records to a dataset on disk.
//!
//! Records of files wait for a slow or full disk until there is room; a signal ends the wait. Records of live
//! packets do not wait: they are lost and counted if too many are pending, or if they cannot be written
//! before the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;
use thalweg_ports::live::wall_ns;
use thalweg_store::live::{Cache, LiveServer};
use thalweg_store::{Notify, Recovery, Retention, StoreError, Writer, WriterOptions};

use super::{Finished, Outlet};
use crate::ProbeError;
use crate::summary::{OutletStatus, OutletSummary};

/// The loss name of records that found too many pending.
const STORE_QUEUE: &str = "store-queue";
/// The loss name of records that could not be written before the end.
const NOT_WRITTEN: &str = "not-written";
/// How often to check whether to stop waiting.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The outlet; see the module documentation.
pub(crate) struct Kept {
    writer: Writer,
    /// Answers queries about records that are not on disk yet.
    live: Option<LiveServer>,
    name: String,
    taken: Amount,
    refused: Amount,
    waiting: Waiting,
}

/// Whether records wait for a disk that takes none.
pub(crate) enum Waiting {
    Never,
    /// Until this is set.
    Until(Arc<AtomicBool>),
}

/// The options of the outlet.
pub(crate) struct KeptOptions {
    pub(crate) retention: Retention,
    pub(crate) iceberg: bool,
    pub(crate) waiting: Waiting,
    /// The flow cache for live queries.
    pub(crate) cache: Option<Arc<dyn Cache>>,
    /// Receives problems.
    pub(crate) notify: Notify,
}

impl Kept {
    /// Opens the dataset in this folder for writing, beside other writers, and answers queries about records that are in no file
    /// yet: pending ones, and flows of the cache, if there is one. Errors as [`Writer::open_beside`].
    pub(crate) fn open(folder: &Path, options: KeptOptions) -> Result<Self, ProbeError> {
        let KeptOptions { retention, iceberg, waiting, cache, notify } = options;
        let writing =
            WriterOptions { retention, iceberg, notify: notify.clone(), ..WriterOptions::new(wall_ns) };
        let (writer, recovery) = Writer::open_beside(folder, writing).map_err(ProbeError::Store)?;
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
        let live = writer.serve(cache);
        if let Err(error) = &live {
            notify.warn(&format!("answers from {name} will lack records that are not on disk: {error}"));
        }
        let (taken, refused) = Default::default();
        Ok(Self { writer, live: live.ok(), name, taken, refused, waiting })
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
}

impl Outlet for Kept {
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError> {
        let count = match &self.waiting {
            Waiting::Until(stop) => self.append(records, stop).map_err(ProbeError::Store)?,
            Waiting::Never => self.writer.offer(records),
        };
        self.taken += Amount::of_all(&records[..count]);
        self.refused += Amount::of_all(&records[count..]);
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ProbeError> {
        // The writer has its own threads and timers.
        Ok(())
    }

    fn status(&mut self) -> Vec<OutletStatus> {
        let status = self.writer.status();
        let lost = [(STORE_QUEUE.to_owned(), self.refused.records)];
        let error = status.last_error.filter(|_| self.writer.is_in_trouble());
        vec![OutletStatus {
            to: self.name.clone(),
            records: status.records_written,
            waiting: status.records_pending,
            lost: lost.into_iter().filter(|(_, records)| *records > 0).collect(),
            error,
        }]
    }

    fn finish(self: Box<Self>, _hurried: bool) -> Result<Finished, ProbeError> {
        let Self { writer, live, name, mut taken, refused, waiting: _ } = *self;
        let last_error = writer.status().last_error;
        // Answers end when everything is on disk, so they lack nothing until then.
        let (unwritten, error) = match writer.close() {
            Ok(_) => (Amount::default(), last_error.filter(|_| refused.records > 0)),
            Err(StoreError::Lost { amount, why }) => (amount, Some(why)),
            Err(error) => return Err(ProbeError::Store(error)),
        };
        drop(live);
        taken -= unwritten;
        let missed = [refused, unwritten].into_iter().sum();
        let lost = [(STORE_QUEUE, refused.records), (NOT_WRITTEN, unwritten.records)];
        let lost = lost.into_iter().filter(|(_, records)| *records > 0);
        let lost: BTreeMap<String, u64> = lost.map(|(why, records)| (why.to_owned(), records)).collect();
        let summary = OutletSummary { lost, error, ..OutletSummary::all_taken(name, taken) };
        Ok(Finished { summaries: vec![summary], missed })
    }
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
