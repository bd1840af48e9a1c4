//! Counters of a collector's worker.

use super::spool::Lost;
use parking_lot::Mutex;
use std::time::Instant;
use thalweg_flow::export::{Amount, ExportTotals};

macro_rules! losses {
    ($($variant:ident $name:literal $meaning:literal;)*) => {
        /// Why records did not reach a collector, as far as that can be known.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Loss {
            $(#[doc = $meaning] $variant,)*
        }

        impl Loss {
            /// Every reason.
            pub const ALL: &'static [Loss] = &[$(Loss::$variant,)*];

            /// The name in tables and JSON.
            pub fn name(self) -> &'static str {
                match self { $(Loss::$variant => $name,)* }
            }

            /// One sentence for a person who sees the name for the first time.
            pub fn meaning(self) -> &'static str {
                match self { $(Loss::$variant => $meaning,)* }
            }
        }
    };
}

losses! {
    SendFailed "send-failed" "The kernel did not take a datagram.";
    CollectorDown "collector-down" "No connection for too long, and no spool to wait in.";
    SpoolFull "spool-full" "No connection, and the spool is at its bound.";
    SpoolFailed "spool-failed" "The spool could not be written or read back.";
    MessageRefused "message-refused" "A broker does not take such a message: it is too long, or breaks its rules.";
    Ended "ended" "The session was ended before the collector took them.";
}

/// Whether a collector can be reached, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Datagrams are sent, or the first connection is being made.
    #[default]
    Unknown,
    /// There is a connection.
    Up,
    /// There is none, for this reason.
    Down(String),
}

/// What was done so far. See the counters at the head of `collector.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorReport {
    /// Whether it can be reached.
    pub connection: Connection,
    /// Taken from the queue.
    pub accepted: Amount,
    /// In datagrams that the kernel took, or acknowledged by the collector's kernel.
    pub sent: Amount,
    /// Encoded or sent, but not acknowledged; of datagrams: in a message that is not full yet.
    pub in_flight: Amount,
    /// In the spool.
    pub spooled: Amount,
    /// Lost by reason, in the order of [`Loss::ALL`].
    pub lost: [Amount; Loss::ALL.len()],
    /// Sent again because a connection ended before they were acknowledged.
    pub resent: Amount,
    /// What the spool of a former process held when this began; counted as accepted.
    pub inherited: Amount,
    /// Spool files of a former process that ended inside a record: what came before was kept.
    pub torn_files: u64,
    /// Connections made.
    pub connects: u64,
    /// Attempts to connect that failed, or datagrams answered by an ICMP error.
    pub refused: u64,
    /// Datagrams answered by an ICMP error: nobody listens there.
    pub datagrams_refused: u64,
    /// Why the latest connection or datagram failed.
    pub last_error: Option<String>,
    /// Why the spool could not be written or read back, the latest time.
    pub spool_error: Option<String>,
    /// What the encoder did.
    pub export: ExportTotals,
}

impl CollectorReport {
    pub(super) fn lose(&mut self, why: Loss, amount: Amount) {
        self.lost[why as usize] += amount;
    }

    pub(super) fn lose_in_spool(&mut self, lost: Lost) {
        self.lose(Loss::SpoolFailed, lost.amount);
        self.spool_error = lost.error.map(|error| format!("spool: {error}")).or(self.spool_error.take());
    }

    /// Lost for any reason.
    pub fn lost_in_all(&self) -> Amount {
        sum(&self.lost)
    }

    /// Not representable in the protocol, for any reason.
    pub fn unexportable_in_all(&self) -> Amount {
        sum(&self.export.unexportable)
    }
}

fn sum(amounts: &[Amount]) -> Amount {
    let mut sum = Amount::default();
    amounts.iter().for_each(|amount| sum += *amount);
    sum
}

/// The report, and word that the end is near, between a worker and those that ask.
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
