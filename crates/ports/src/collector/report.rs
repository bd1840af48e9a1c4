//! Counters of a collector's worker.

use super::spool::Lost;
use parking_lot::Mutex;
use std::time::Instant;
use thalweg_flow::export::{Amount, ExportTotals, RecordLoss};

/// Whether a collector can be reached, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Datagrams are sent, or the first connection is being established.
    #[default]
    Unknown,
    Up,
    /// Not connected, or without a way to send datagrams, for this reason.
    Down(String),
}

/// The counters of a collector; see the head of `collector.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorReport {
    pub connection: Connection,
    /// Taken from the queue.
    pub accepted: Amount,
    /// In datagrams that the kernel took, or acknowledged by the collector's kernel.
    pub sent: Amount,
    /// Encoded or sent, but not acknowledged; for datagrams, in the open message.
    pub in_flight: Amount,
    pub spooled: Amount,
    /// Indexed in the order of [`RecordLoss::ALL`].
    pub lost: [Amount; RecordLoss::ALL.len()],
    /// Sent again because a connection ended before they were acknowledged.
    pub resent: Amount,
    /// Content of an earlier process's spool at the start; included in `accepted`.
    pub inherited: Amount,
    /// Spool files of an earlier process that ended inside a record; whole records before that were kept.
    pub torn_files: u64,
    pub connects: u64,
    /// Failed connection attempts, or datagrams answered by an ICMP error.
    pub refused: u64,
    /// Datagrams answered by an ICMP error: nobody listens there.
    pub datagrams_refused: u64,
    /// Datagrams that the collector's socket, on this system, had no room for.
    pub datagrams_dropped: u64,
    /// Of the latest failed connection or datagram.
    pub last_error: Option<String>,
    /// Of the latest failure to write or read the spool.
    pub spool_error: Option<String>,
    pub export: ExportTotals,
}

impl CollectorReport {
    pub(super) fn lose(&mut self, why: RecordLoss, amount: Amount) {
        self.lost[why as usize] += amount;
    }

    pub(super) fn lose_in_spool(&mut self, lost: Lost) {
        self.lose(RecordLoss::SpoolFailed, lost.amount);
        self.spool_error = lost.error.map(|error| format!("spool: {error}")).or(self.spool_error.take());
    }

    /// Lost for any reason.
    pub fn lost_in_all(&self) -> Amount {
        sum(&self.lost)
    }

    /// Unexportable for any reason.
    pub fn unexportable_in_all(&self) -> Amount {
        sum(&self.export.unexportable)
    }
}

fn sum(amounts: &[Amount]) -> Amount {
    let mut sum = Amount::default();
    amounts.iter().for_each(|amount| sum += *amount);
    sum
}

/// The report and the deadline, shared between a worker and other threads.
#[derive(Default)]
pub(super) struct Shared {
    report: Mutex<CollectorReport>,
    end: Mutex<Option<Instant>>,
}

impl Shared {
    pub(super) fn report(&self) -> CollectorReport {
        self.report.lock().clone()
    }

    pub(super) fn set_report(&self, report: &CollectorReport) {
        self.report.lock().clone_from(report);
    }

    pub(super) fn end_by(&self, deadline: Instant) {
        *self.end.lock() = Some(deadline);
    }

    pub(super) fn end(&self) -> Option<Instant> {
        *self.end.lock()
    }
}
