//! Records to a dataset on disk.

use std::path::Path;
use std::sync::Arc;

use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;
use thalweg_ports::live::LiveClock;
use thalweg_store::live::{Cache, LiveServer};
use thalweg_store::{Recovery, Writer, WriterOptions};

use super::Outlet;
use crate::ProbeError;
use crate::outbox::amount_of;
use crate::summary::OutletSummary;

/// The name under which records count that found too many before them.
const STORE_QUEUE: &str = "store-queue";

/// See the module.
pub(crate) struct Kept {
    writer: Writer,
    /// Tells others what is not on disk yet.
    live: Option<LiveServer>,
    name: String,
    taken: Amount,
    refused: Amount,
    /// Whether records wait for a disk that is slow.
    waits: bool,
}

impl Kept {
    /// Begins to write the dataset in this folder, and to answer what is in no file yet: records that wait, and flows of
    /// this cache, if there is one. Says what should be known of how it began. Errors as [`Writer::open`].
    pub(crate) fn open(
        folder: &Path,
        waits: bool,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<(Self, Vec<String>), ProbeError> {
        let (writer, recovery) =
            Writer::open(folder, WriterOptions::new(now_ns)).map_err(ProbeError::Store)?;
        let (taken, refused) = Default::default();
        let name = folder.display().to_string();
        let mut notices: Vec<String> =
            notice(&recovery).map(|what| format!("{name}: {what}")).into_iter().collect();
        let live = writer.serve(cache);
        if let Err(error) = &live {
            notices.push(format!("answers from {name} will lack what is not on disk: {error}"));
        }
        Ok((Self { writer, live: live.ok(), name, taken, refused, waits }, notices))
    }
}

impl Outlet for Kept {
    fn take(&mut self, records: &[FlowRecord]) -> Result<(), ProbeError> {
        let count = match self.waits {
            true => self.writer.append(records).map(|()| records.len()).map_err(ProbeError::Store)?,
            false => self.writer.offer(records),
        };
        self.taken += amount_of(&records[..count]);
        self.refused += amount_of(&records[count..]);
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ProbeError> {
        // The writer has threads of its own that know what time it is.
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<OutletSummary>, ProbeError> {
        // Answers end when all is on disk: they lack nothing meanwhile.
        self.writer.close().map_err(ProbeError::Store)?;
        drop(self.live);
        let Amount { records, packets, octets: bytes } = self.taken;
        let lost = (self.refused.records > 0).then(|| (STORE_QUEUE.to_owned(), self.refused.records));
        Ok(vec![OutletSummary { to: self.name, records, packets, bytes, lost: lost.into_iter().collect() }])
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

/// The wall clock, by which old records are removed.
fn now_ns() -> u64 {
    LiveClock::start().now_ns()
}
