//! What became of every packet of a probe's run: the figures behind its tables and its JSON.
//!
//! One definition, two outputs. The law that ties the figures together is conservation, of packets and of bytes:
//! `seen = exported + cached + sum(dropped)`, checked by [`ProbeSummary::is_conserved`]. Its terms are counted in different
//! places by different threads: what was seen where packets are parsed, what was dropped in the meter and at the queue
//! behind it, what was exported where records are delivered.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_flow::export::{Amount, Unexportable};

/// The name under which packets count that sampling passed over.
pub const UNSAMPLED: &str = "unsampled";
/// The name under which packets count whose records reached none of those that were to get them.
pub const UNDELIVERED: &str = "undelivered";
/// The name under which records count that wait on disk for a collector.
pub const SPOOLED: &str = "spooled";
/// The name under which packets count whose records found the queue to the export thread full for too long.
pub const EXPORT_QUEUE: &str = "export-queue";

/// A finished run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeSummary {
    /// Packets taken from the inputs.
    pub packets_seen: u64,
    /// Their bytes as the meter counts: those of IP packets, or of frames. Of what is not IP always those of the frame.
    pub bytes_seen: u64,
    /// Their bytes on the wire.
    pub frame_bytes_seen: u64,
    /// Packets in the records that were delivered: to whom most were, if there are several. All of them if nobody was to get any.
    pub packets_exported: u64,
    /// Bytes in those records.
    pub bytes_exported: u64,
    /// Records that were delivered.
    pub records_exported: u64,
    /// Records by the reason why they were made; only reasons that occurred.
    pub records_by_reason: BTreeMap<String, u64>,
    /// Packets counted in flows that were not reported.
    pub packets_cached: u64,
    pub bytes_cached: u64,
    /// Packets in no record, by reason; only reasons that occurred.
    pub dropped: BTreeMap<String, u64>,
    pub dropped_bytes: BTreeMap<String, u64>,
    /// Flows that began.
    pub flows: u64,
    /// Flows that had to end because their place was needed.
    pub flows_evicted: u64,
    /// Flows that were ended because the clock of the packets went back.
    pub flows_set_back: u64,
    /// Whether the law holds.
    pub conserved: bool,
    /// Wall-clock time from the first packet to the last record delivered.
    pub elapsed_s: f64,
    /// `packets_seen / elapsed_s`.
    pub packets_per_second: f64,
    /// Processor time of all threads in that time, those that read and write too.
    pub cpu_s: f64,
    /// The most memory the process ever had resident.
    pub rss_peak_bytes: u64,
    /// Memory of the flow cache at the end.
    pub cache_bytes: u64,
    /// Pipelines, each with a capture queue of its own.
    pub pipelines: usize,
    /// Execution model of each.
    pub model: String,
    /// Reader threads of each, if the model has some.
    pub readers: usize,
    /// Worker threads of each.
    pub workers: usize,
    /// What synthetic work found, if there was any: the same for the same packets under every model.
    #[serde(skip_serializing_if = "is_zero")]
    pub queens_solutions: u64,
    /// Who was given the records.
    pub outlets: Vec<OutletSummary>,
    /// What was captured where, if packets came from interfaces.
    pub captured: Vec<CaptureSummary>,
    /// What was wrong with the input.
    pub input_issues: InputIssues,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ProbeSummary {
    /// Packets in no record, whatever the reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every packet and every byte is accounted for exactly once.
    pub fn is_conserved(&self) -> bool {
        let packets = self.packets_exported + self.packets_cached + self.dropped_total();
        let bytes = self.bytes_exported + self.bytes_cached + self.dropped_bytes.values().sum::<u64>();
        self.packets_seen == packets && self.bytes_seen == bytes
    }
}

impl ProbeSummary {
    /// Inputs of no use, and what was not delivered to whom, and why, in words; nothing if everybody got what he can be told.
    pub fn failures(&self) -> Vec<String> {
        let inputs = self.input_issues.useless.iter().cloned();
        inputs.chain(self.outlets.iter().filter_map(OutletSummary::failure)).collect()
    }
}

/// What somebody who was given records did with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutletSummary {
    /// Who: a file, a collector's address, a folder.
    pub to: String,
    /// Records that arrived, as far as is known: on disk, acknowledged, or taken by the network.
    pub records: u64,
    /// Packets in them.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Records that did not arrive as far as is known, by reason; only reasons that occurred.
    pub lost: BTreeMap<String, u64>,
    /// Datagrams that were answered with an ICMP error: nobody listens there.
    pub datagrams_refused: u64,
    /// Why records did not arrive, in the words of the system.
    pub error: Option<String>,
}

impl OutletSummary {
    /// Nothing was lost.
    pub(crate) fn all_taken(to: String, amount: Amount) -> Self {
        let Amount { records, packets, bytes } = amount;
        Self { to, records, packets, bytes, ..Self::default() }
    }

    /// What was not delivered, and why, in words. What a protocol cannot say is no failure, nor is what waits in a spool.
    pub fn failure(&self) -> Option<String> {
        let is_no_failure =
            |reason: &str| reason == SPOOLED || Unexportable::ALL.iter().any(|why| why.name() == reason);
        let failed = self.lost.iter().filter(|(reason, _)| !is_no_failure(reason));
        let words: Vec<String> = failed.map(|(reason, records)| format!("{records} {reason}")).collect();
        let what = match (words.is_empty(), self.datagrams_refused) {
            (true, 0) => return None,
            (true, 1) => format!("1 datagram to {} was refused", self.to),
            (true, refused) => format!("{refused} datagrams to {} were refused", self.to),
            (false, _) => format!("records that did not reach {}: {}", self.to, words.join(", ")),
        };
        Some(match &self.error {
            Some(error) => format!("{what} ({error})"),
            None => what,
        })
    }
}

/// The state of a receiver of records, while records come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutletStatus {
    /// Who: a collector's address, a folder.
    pub to: String,
    /// Records that arrived, as far as is known.
    pub records: u64,
    /// Records on their way: pending, in flight, spooled.
    pub waiting: u64,
    /// Records that will not arrive, by reason; only reasons that occurred.
    pub lost: BTreeMap<String, u64>,
    /// Why it takes nothing at present.
    pub error: Option<String>,
}

impl OutletStatus {
    /// Records that will not arrive.
    pub fn lost_in_all(&self) -> u64 {
        self.lost.values().sum()
    }
}

/// What an interface gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CaptureSummary {
    /// Its name.
    pub interface: String,
    /// The driver, and how it serves it.
    pub mode: String,
    /// Packets handed up.
    pub packets: u64,
    /// Packets that were there and could not be taken, because the ring was full. They were never seen.
    pub missed: u64,
    /// Packets that could not be taken as they were: too long, or cut.
    pub refused: u64,
    /// What went wrong with it meanwhile; the first ten.
    pub troubles: Vec<String>,
}

/// What was wrong with the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputIssues {
    /// All of it; what could not be read is no packet and counts nowhere else.
    pub total: u64,
    /// How often by kind.
    pub by_kind: BTreeMap<String, u64>,
    /// The first ten, each in one line: file, place, what was expected.
    pub first: Vec<String>,
    /// Inputs of no use, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub useless: Vec<String>,
}
