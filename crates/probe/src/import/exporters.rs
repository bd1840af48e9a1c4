//! The summaries by exporter: what each sent, what was read of it, what is missing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;
use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;
use thalweg_flow::import::Importer;
use thalweg_wire::netflow::decode::{Fault, Report, Source};

/// Exporters with summaries of their own; those that come later share one.
const EXPORTERS_MAX: usize = 4096;
/// Whose the shared summaries are.
const OTHERS: &str = "others";

/// What an exporter sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExporterSummary {
    /// Its address and port; of a file of messages, its name.
    pub exporter: String,
    /// Messages by protocol: `NetFlow 5`, `NetFlow 9`, `IPFIX`.
    pub messages: BTreeMap<String, u64>,
    /// Messages that could not be read at all.
    pub refused: u64,
    /// Flow records.
    pub records: u64,
    /// Packets in them, not multiplied by sampling.
    pub packets: u64,
    /// Bytes in them, likewise.
    pub bytes: u64,
    /// Flow records of sampled packets.
    pub records_sampled: u64,
    /// Flow records that name a sampler which it has not described.
    pub samplers_unknown: u64,
    /// Records of events (NAT, firewalls), which are no flows.
    pub events: u64,
    /// Records with no address of IP.
    pub without_addresses: u64,
    /// Records of options data.
    pub options_records: u64,
    /// Templates, those that were sent again too.
    pub templates: u64,
    /// Data sets whose template never came.
    pub sets_without_template: u64,
    /// Faults in messages that were read otherwise.
    pub faults: u64,
    /// Times that something was missing, by sequence numbers.
    pub sequence_gaps: u64,
    /// What is missing: messages of NetFlow 9, flows of NetFlow 5, data records of IPFIX.
    pub units_missing: u64,
    /// Messages whose number had been taken.
    pub repeated: u64,
}

/// Everybody's summaries.
#[derive(Default)]
pub(super) struct Exporters {
    importer: Importer,
    summaries: Vec<ExporterSummary>,
    by_name: BTreeMap<String, usize>,
}

/// What importer and decoder have counted, of all exporters.
struct Marks {
    events: u64,
    samplers_unknown: u64,
    without_addresses: u64,
    options_records: u64,
    templates: u64,
    sets_unknown: u64,
    sets_recovered: u64,
    faults: u64,
    gaps: u64,
    units_missing: u64,
    repeated: u64,
}

impl Marks {
    fn of(importer: &Importer) -> Self {
        let (imported, decoded) = (importer.counters(), importer.decoder().counters());
        Self {
            events: imported.events,
            samplers_unknown: imported.samplers_unknown,
            without_addresses: imported.without_addresses,
            options_records: decoded.options_records,
            templates: decoded.templates,
            sets_unknown: decoded.sets_unknown,
            sets_recovered: decoded.sets_recovered,
            faults: decoded.faults,
            gaps: decoded.sequence.gaps,
            units_missing: decoded.sequence.units_missing,
            repeated: decoded.sequence.repeated,
        }
    }

    /// Adds what came since. What was missing or unknown may be there now, so these go down too.
    fn add_since(&self, before: &Marks, summary: &mut ExporterSummary) {
        summary.events += self.events - before.events;
        summary.samplers_unknown += self.samplers_unknown - before.samplers_unknown;
        summary.without_addresses += self.without_addresses - before.without_addresses;
        summary.options_records += self.options_records - before.options_records;
        summary.templates += self.templates - before.templates;
        let unknown = summary.sets_without_template + self.sets_unknown - before.sets_unknown;
        summary.sets_without_template = unknown.saturating_sub(self.sets_recovered - before.sets_recovered);
        summary.faults += self.faults - before.faults;
        summary.sequence_gaps += self.gaps - before.gaps;
        let missing = summary.units_missing + self.units_missing;
        summary.units_missing = missing.saturating_sub(before.units_missing);
        summary.repeated += self.repeated - before.repeated;
    }
}

impl Exporters {
    /// Reads a message; its records go behind those that are in the list. Errors with what refuses it.
    pub(super) fn read(
        &mut self,
        exporter: &str,
        is_stream: bool,
        message: &[u8],
        received_ns: u64,
        records: &mut Vec<FlowRecord>,
    ) -> Result<Report, Fault> {
        let number = number_of(exporter, is_stream);
        let source = if is_stream { Source::stream(number) } else { Source::datagrams(number) };
        let before = Marks::of(&self.importer);
        let first = records.len();
        let result = self.importer.handle_message(source, message, received_ns, records);
        let after = Marks::of(&self.importer);
        let summary = self.summary_of(exporter);
        after.add_since(&before, summary);
        match &result {
            Ok(report) => {
                let version = report.header.version.name();
                match summary.messages.get_mut(version) {
                    Some(count) => *count += 1,
                    None => drop(summary.messages.insert(version.to_owned(), 1)),
                }
            }
            Err(_) => summary.refused += 1,
        }
        for record in &records[first..] {
            let Amount { packets, bytes, .. } = Amount::of(record);
            summary.records += 1;
            summary.packets += packets;
            summary.bytes += bytes;
            summary.records_sampled += u64::from(record.sampling_interval > 1);
        }
        result
    }

    /// A message that did not come in one piece.
    pub(super) fn refuse(&mut self, exporter: &str) {
        self.summary_of(exporter).refused += 1;
    }

    /// A connection ended: its templates do not outlive it.
    pub(super) fn forget(&mut self, exporter: &str) {
        self.importer.forget(number_of(exporter, true));
    }

    /// Whether every record that was decoded is a flow's, an event's, or has no addresses.
    pub(super) fn balance(&self) -> bool {
        let imported = self.importer.counters();
        let sum = imported.flow_records + imported.events + imported.without_addresses;
        let told: u64 = self.summaries.iter().map(|summary| summary.records).sum();
        sum == self.importer.decoder().counters().records && told == imported.flow_records
    }

    /// Records of any kind that were decoded.
    pub(super) fn found(&self) -> u64 {
        self.importer.decoder().counters().records
    }

    /// The summaries, in the order in which exporters were first heard of.
    pub(super) fn into_summaries(self) -> Vec<ExporterSummary> {
        self.summaries
    }

    fn summary_of(&mut self, exporter: &str) -> &mut ExporterSummary {
        let is_known = self.by_name.contains_key(exporter);
        let name = if is_known || self.summaries.len() < EXPORTERS_MAX { exporter } else { OTHERS };
        let place = match self.by_name.get(name) {
            Some(place) => *place,
            None => {
                self.by_name.insert(name.to_owned(), self.summaries.len());
                self.summaries
                    .push(ExporterSummary { exporter: name.to_owned(), ..ExporterSummary::default() });
                self.summaries.len() - 1
            }
        };
        &mut self.summaries[place]
    }
}

/// What the decoder knows an exporter by. It keeps what exporters said of themselves, and bounds that.
fn number_of(exporter: &str, is_stream: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (exporter, is_stream).hash(&mut hasher);
    hasher.finish()
}
