//! Makes the summary from the counters of all parts.

use std::sync::Arc;
use std::time::Duration;

use crate::Meter;
use thalweg_base::Name;
use thalweg_flow::export::Amount;
use thalweg_flow::{EndReason, NameCounts};
use thalweg_ports::InputReport;

use crate::deliver::Delivered;
use crate::inputs::Read;
use crate::plan::Scratch;
use crate::record_queue::RecordSender;
use crate::summary::{EXPORT_QUEUE, InputIssues, NamesSummary, ProbeSummary, UNDELIVERED, UNSAMPLED};
use crate::{ProbeOptions, Shape, usage};

/// The results of the pipelines.
pub(crate) struct Outcome {
    pub(crate) totals: Vec<WorkerTotals>,
    pub(crate) meters: Vec<Arc<Meter>>,
    pub(crate) read: Read,
}

/// The counters of a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerTotals {
    packets: u64,
    frame_bytes: u64,
    queens_sum: u64,
    /// In records that found no room.
    lost: Amount,
}

impl WorkerTotals {
    /// Ends a worker: sends its gathered records.
    pub(crate) fn close(mut scratch: Scratch) -> Self {
        scratch.sender.send();
        let Scratch { packets, frame_bytes, queens_sum, ref sender, .. } = scratch;
        Self { packets, frame_bytes, queens_sum, lost: sender.lost() }
    }

    /// For a sender without packets of its own.
    pub(crate) fn close_sender(mut sender: RecordSender) -> Self {
        sender.send();
        Self { lost: sender.lost(), ..Self::default() }
    }
}

pub(crate) fn summary(
    options: &ProbeOptions,
    outcome: Outcome,
    delivered: Delivered,
    elapsed: Duration,
    cpu: Duration,
) -> ProbeSummary {
    let Shape { pipelines, model, workers, readers, .. } = options.shape;
    let missed = delivered.missed;
    let mut reached = delivered.amount;
    reached -= missed;
    let Amount { records, packets, bytes } = reached;
    let mut summary = ProbeSummary {
        packets_exported: packets,
        bytes_exported: bytes,
        records_exported: records,
        elapsed_s: elapsed.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        rss_peak_bytes: usage::rss_peak_bytes(),
        pipelines,
        model: model.name().to_owned(),
        readers: if model.has_readers() { readers } else { 0 },
        workers,
        outlets: delivered.outlets,
        captured: outcome.read.captured,
        input_issues: issues(&outcome.read.report),
        names: options
            .meter
            .names
            .any()
            .then(|| NamesSummary { forgotten: Name::forgotten(), ..NamesSummary::default() }),
        ..ProbeSummary::default()
    };
    summary.drop_for(UNDELIVERED, missed.packets, missed.bytes);
    outcome.meters.iter().for_each(|meter| summary.add_meter(meter));
    for totals in outcome.totals {
        summary.packets_seen += totals.packets;
        summary.frame_bytes_seen += totals.frame_bytes;
        summary.queens_solutions += totals.queens_sum;
        summary.drop_for(EXPORT_QUEUE, totals.lost.packets, totals.lost.bytes);
    }
    summary.packets_per_second = summary.packets_seen as f64 / summary.elapsed_s.max(1e-9);
    summary.conserved = summary.is_conserved();
    summary
}

impl ProbeSummary {
    fn add_meter(&mut self, meter: &Meter) {
        let totals = meter.totals();
        self.bytes_seen += totals.seen.bytes;
        self.packets_cached += totals.cached.packets;
        self.bytes_cached += totals.cached.bytes;
        self.flows += totals.flows_created;
        self.flows_evicted += totals.evicted();
        self.flows_set_back += totals.flows_set_back;
        if let Some(names) = &mut self.names {
            let NameCounts { looked_at, found, given_up, resolved_evicted } = totals.names;
            names.payloads += looked_at;
            names.flows += found;
            names.given_up += given_up;
            names.resolved_evicted += resolved_evicted;
        }
        self.cache_bytes += totals.memory_bytes;
        for (reason, amount) in totals.not_metered() {
            self.drop_for(reason.name(), amount.packets, amount.bytes);
        }
        self.drop_for(UNSAMPLED, totals.unsampled.packets, totals.unsampled.bytes);
        for reason in EndReason::ALL {
            let count = totals.records(reason);
            if count > 0 {
                *self.records_by_reason.entry(reason.name().to_owned()).or_default() += count;
            }
        }
    }

    fn drop_for(&mut self, reason: &str, packets: u64, bytes: u64) {
        if packets > 0 {
            *self.dropped.entry(reason.to_owned()).or_default() += packets;
            *self.dropped_bytes.entry(reason.to_owned()).or_default() += bytes;
        }
    }
}

fn issues(report: &InputReport) -> InputIssues {
    InputIssues {
        total: report.issue_count(),
        by_kind: report.issues.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        first: report.first_issues.iter().map(ToString::to_string).collect(),
        useless: report.useless.clone(),
        cut: report.cut.clone(),
    }
}
