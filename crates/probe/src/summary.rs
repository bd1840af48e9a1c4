//! The summary of a probe's run, for its tables and JSON: what happened to every packet.
//!
//! The figures must satisfy conservation of packets and of bytes: `seen = exported + cached + sum(dropped)`,
//! checked by [`ProbeSummary::is_conserved`]. Different threads count its terms: `seen` where packets are
//! parsed, `dropped` in the meter and at the queue behind it, `exported` where records are delivered.

use std::collections::BTreeMap;

use serde::Serialize;
use thalweg_flow::SampleLoss;
use thalweg_flow::alarm::AlarmReport;
use thalweg_flow::export::{Amount, Unexportable};

/// The drop name of packets that sampling skipped.
pub const UNSAMPLED: &str = "unsampled";
/// The drop name of packets whose records reached none of their receivers.
pub const UNDELIVERED: &str = "undelivered";
/// The loss name of records that wait on disk for a collector.
pub const SPOOLED: &str = "spooled";
/// The drop name of packets whose records found the export queue full for too long.
pub const EXPORT_QUEUE: &str = "export-queue";

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeSummary {
    /// Packets read from the inputs.
    pub packets_seen: u64,
    /// Their bytes as the meter counts: of IP packets or of frames. Other packets always count their frames.
    pub bytes_seen: u64,
    /// Their bytes on the wire.
    pub frame_bytes_seen: u64,
    /// Packets in delivered records; with several receivers, those of the one that got most. All packets if
    /// there is no receiver.
    pub packets_exported: u64,
    /// Bytes in these records.
    pub bytes_exported: u64,
    /// Delivered records.
    pub records_exported: u64,
    /// Records by end reason; only reasons that occurred.
    pub records_by_reason: BTreeMap<String, u64>,
    /// Packets in flows that were not reported.
    pub packets_cached: u64,
    pub bytes_cached: u64,
    /// Packets in no record, by reason; only reasons that occurred.
    pub dropped: BTreeMap<String, u64>,
    pub dropped_bytes: BTreeMap<String, u64>,
    /// Flows created.
    pub flows: u64,
    /// Flows that ended early because their place was needed.
    pub flows_evicted: u64,
    /// Flows that ended because the packets' clock went back.
    pub flows_set_back: u64,
    /// What came of searching payloads for names, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<NamesSummary>,
    /// Whether packets and bytes are conserved.
    pub conserved: bool,
    /// Wall-clock time from the first packet to the last delivered record.
    pub elapsed_s: f64,
    /// `packets_seen / elapsed_s`.
    pub packets_per_second: f64,
    /// Processor time of all threads in that time, including reading and writing.
    pub cpu_s: f64,
    /// The peak resident memory of the process.
    pub rss_peak_bytes: u64,
    /// Memory of the flow cache at the end.
    pub cache_bytes: u64,
    /// Pipelines, each with its own capture queue.
    pub pipelines: usize,
    /// Execution model of each pipeline.
    pub model: String,
    /// Reader threads per pipeline, if the model has any.
    pub readers: usize,
    /// Worker threads per pipeline.
    pub workers: usize,
    /// What synthetic work found, if there was any: the same for the same packets under every model.
    #[serde(skip_serializing_if = "is_zero")]
    pub queens_solutions: u64,
    pub outlets: Vec<OutletSummary>,
    /// By interface, for live packets.
    pub captured: Vec<CaptureSummary>,
    pub input_issues: InputIssues,
    /// With rules for alarms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarms: Option<AlarmReport>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ProbeSummary {
    /// Packets in no record, for any reason.
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
    /// Inputs that are useless or cut short, and undelivered records with the reason, in words; empty if all receivers got
    /// everything they can express.
    pub fn failures(&self) -> Vec<String> {
        let inputs = self.input_issues.useless.iter().chain(&self.input_issues.cut).cloned();
        inputs.chain(self.outlets.iter().filter_map(OutletSummary::failure)).collect()
    }
}

/// What came of searching payloads for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamesSummary {
    /// Payloads that were looked at.
    pub payloads: u64,
    /// Flows that got names.
    pub flows: u64,
    /// Flows whose message did not become whole, so that some names may be missing.
    pub given_up: u64,
    /// Names of DNS responses that had to go early for lack of room.
    pub resolved_evicted: u64,
    /// Names that had to go for others before their records were written, or after.
    pub forgotten: u64,
}

/// What a receiver of records did with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutletSummary {
    /// A file, a collector's address, a folder.
    pub to: String,
    /// Records that arrived, as far as known: on disk, acknowledged, or taken by the network.
    pub records: u64,
    pub packets: u64,
    pub bytes: u64,
    /// Records that did not arrive, as far as known, by reason; only reasons that occurred.
    pub lost: BTreeMap<String, u64>,
    /// Datagrams answered by an ICMP error: nobody listens there.
    pub datagrams_refused: u64,
    /// Datagrams that the collector's socket, on this system, had no room for.
    pub datagrams_dropped: u64,
    /// Samples of interfaces' counters that a collector of sFlow got besides.
    #[serde(skip_serializing_if = "is_zero")]
    pub counter_samples: u64,
    /// Ports whose interface had no counters when they were last read.
    #[serde(skip_serializing_if = "is_zero")]
    pub interfaces_uncounted: u64,
    /// The system's error.
    pub error: Option<String>,
    /// Why complete hours of a dataset are not in its archive. Their files stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_archived: Option<String>,
    /// Why the feed of a dataset lacks records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_fed: Option<String>,
}

impl OutletSummary {
    pub(crate) fn all_taken(to: String, amount: Amount) -> Self {
        let Amount { records, packets, bytes } = amount;
        Self { to, records, packets, bytes, ..Self::default() }
    }

    /// Undelivered records with the reason, in words. Neither unexportable nor spooled records count as
    /// failures, nor do samples that sFlow cannot express.
    pub fn failure(&self) -> Option<String> {
        let is_no_failure = |reason: &str| {
            reason == SPOOLED
                || reason == SampleLoss::NoHeader.name()
                || Unexportable::ALL.iter().any(|why| why.name() == reason)
        };
        let failed = self.lost.iter().filter(|(reason, _)| !is_no_failure(reason));
        let words: Vec<String> = failed.map(|(reason, records)| format!("{records} {reason}")).collect();
        let datagrams = |count: u64, fate: &str| match count {
            1 => format!("1 datagram to {} was {fate}", self.to),
            count => format!("{count} datagrams to {} were {fate}", self.to),
        };
        let what = match (words.is_empty(), self.datagrams_refused, self.datagrams_dropped) {
            (true, 0, 0) => {
                let of_archive =
                    self.not_archived.iter().map(|why| format!("not everything is archived: {why}"));
                let of_feed = self.not_fed.iter().map(|why| format!("not everything is sent: {why}"));
                let why: Vec<String> = of_archive.chain(of_feed).collect();
                return (!why.is_empty())
                    .then(|| format!("{}; the files stay in {}", why.join("; "), self.to));
            }
            (true, 0, dropped) => datagrams(dropped, "dropped, since its receive buffer was full"),
            (true, refused, _) => datagrams(refused, "refused"),
            (false, ..) => format!("records that did not reach {}: {}", self.to, words.join(", ")),
        };
        Some(match &self.error {
            Some(error) => format!("{what} ({error})"),
            None => what,
        })
    }
}

/// The current status of a receiver of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutletStatus {
    /// A collector's address, a folder, or a bucket.
    pub to: String,
    /// Records that arrived, as far as known.
    pub records: u64,
    /// Records on their way: pending, in flight, spooled.
    pub waiting: u64,
    /// Records that will not arrive, by reason; only reasons that occurred.
    pub lost: BTreeMap<String, u64>,
    /// Whether it gets samples by sFlow: its records are samples of packets.
    pub sflow: bool,
    /// As in [`OutletSummary`].
    pub counter_samples: u64,
    pub interfaces_uncounted: u64,
    pub datagrams_refused: u64,
    pub datagrams_dropped: u64,
    /// Why it takes nothing at present.
    pub error: Option<String>,
}

impl OutletStatus {
    /// Records that will not arrive.
    pub fn lost_in_all(&self) -> u64 {
        self.lost.values().sum()
    }
}

/// The capture on one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CaptureSummary {
    pub interface: String,
    /// The driver and its mode.
    pub mode: String,
    /// Packets received.
    pub packets: u64,
    /// Packets lost because the ring was full; they were never seen.
    pub missed: u64,
    /// Packets that could not be used: too long, or cut.
    pub refused: u64,
    /// The first ten problems.
    pub troubles: Vec<String>,
}

/// The issues of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputIssues {
    /// All issues; unreadable parts count as no packets.
    pub total: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// The first ten, one line each: file, position, what was expected.
    pub first: Vec<String>,
    /// Useless inputs, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub useless: Vec<String>,
    /// Inputs whose rest could not be read, each with the place and the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}
