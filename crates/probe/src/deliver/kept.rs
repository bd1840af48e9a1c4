//! Records to a dataset on disk.
//!
//! Records of files wait for a disk that is slow, or full, until there is room; a signal ends that. Records of interfaces do not
//! wait: what finds too many before it is lost and counted, and so is what cannot be written before the end.

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

/// The name under which records count that found too many before them.
const STORE_QUEUE: &str = "store-queue";
/// The name under which records count that could not be written before the end.
const NOT_WRITTEN: &str = "not-written";
/// How often to check whether to wait any longer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Kept {
    writer: Writer,
    /// Tells others what is not on disk yet.
    live: Option<LiveServer>,
    name: String,
    taken: Amount,
    refused: Amount,
    waiting: Waiting,
}

/// Whether records wait for a disk that takes none.
pub(crate) enum Waiting {
    /// They do not.
    Never,
    /// They do, until this is set.
    Until(Arc<AtomicBool>),
}

/// How a dataset is kept.
pub(crate) struct KeptOptions {
    /// What of it is kept.
    pub(crate) retention: Retention,
    pub(crate) waiting: Waiting,
    /// Flows that answers have too.
    pub(crate) cache: Option<Arc<dyn Cache>>,
    /// Where troubles are told.
    pub(crate) notify: Notify,
}

impl Kept {
    /// Begins to write the dataset in this folder, and to answer what is in no file yet: records that wait, and flows of
    /// the cache, if there is one. Errors as [`Writer::open`].
    pub(crate) fn open(folder: &Path, options: KeptOptions) -> Result<Self, ProbeError> {
        let KeptOptions { retention, waiting, cache, notify } = options;
        let writing = WriterOptions { retention, notify: notify.clone(), ..WriterOptions::new(wall_ns) };
        let (writer, recovery) = Writer::open(folder, writing).map_err(ProbeError::Store)?;
        let name = folder.display().to_string();
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

    /// Hands over records, and waits as long as that is wanted; how many were taken.
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
        // The writer has threads of its own that know what time it is.
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
        // Answers end when all is on disk: they lack nothing meanwhile.
        let (unwritten, error) = match writer.close() {
            Ok(_) => (Amount::default(), last_error.filter(|_| refused.records > 0)),
            Err(StoreError::Lost { amount, why }) => (amount, Some(why)),
            Err(error) => return Err(ProbeError::Store(error)),
        };
        drop(live);
        taken -= unwritten;
        let mut missed = refused;
        missed += unwritten;
        let lost = [(STORE_QUEUE, refused.records), (NOT_WRITTEN, unwritten.records)];
        let lost = lost.into_iter().filter(|(_, records)| *records > 0);
        let lost: BTreeMap<String, u64> = lost.map(|(why, records)| (why.to_owned(), records)).collect();
        let summary = OutletSummary { lost, error, ..OutletSummary::all_taken(name, taken) };
        Ok(Finished { summaries: vec![summary], missed })
    }
}

/// What of a recovery somebody should know.
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
