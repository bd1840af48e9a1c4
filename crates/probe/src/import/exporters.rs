//! Summaries by exporter: what each sent, what was read, what is missing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Serialize;
use thalweg_flow::export::Amount;
use thalweg_flow::import::{self, Importer, SflowCounters, SflowImporter};
use thalweg_flow::{FlowRecord, InterfaceName};
use thalweg_ports::snmp::{InterfaceNames, Interfaces};
use thalweg_wire::netflow::decode::{self, Fault, Source};
use thalweg_wire::sflow::{SflowFault, is_sflow};

use super::names::{ExporterNames, Peer};

/// The most exporters with their own summary; later ones share one.
const EXPORTERS_MAX: usize = 4096;
/// The name of the shared summary.
const OTHERS: &str = "others";

/// The import from one exporter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExporterSummary {
    /// Address and port; for a file of messages, its name.
    pub exporter: String,
    /// Messages by protocol: `NetFlow 5`, `NetFlow 9`, `IPFIX`, `sFlow 5`.
    pub messages: BTreeMap<String, u64>,
    /// Messages that could not be read at all.
    pub refused: u64,
    /// Flow records.
    pub records: u64,
    /// Packets in them, not multiplied by sampling.
    pub packets: u64,
    /// Bytes in them, not multiplied by sampling.
    pub bytes: u64,
    /// Flow records of sampled packets.
    pub records_sampled: u64,
    /// Flow records whose sampler was not described.
    pub samplers_unknown: u64,
    /// Records of events (NAT, firewalls), which are stored too but are no flows.
    pub events: u64,
    /// Records without an IP address.
    pub without_addresses: u64,
    /// Samples of sFlow that are no packets: counters of interfaces, and kinds that are not read.
    pub counter_samples: u64,
    pub other_samples: u64,
    /// Records of options data.
    pub options_records: u64,
    /// Templates, including repeated ones.
    pub templates: u64,
    /// Data sets whose template never arrived.
    pub sets_without_template: u64,
    /// Faults in messages that were otherwise read.
    pub faults: u64,
    /// Gaps in sequence numbers.
    pub sequence_gaps: u64,
    /// Missing messages (NetFlow 9, sFlow), flows (NetFlow 5) or data records (IPFIX).
    pub units_missing: u64,
    /// Messages whose number was used before.
    pub repeated: u64,
}

/// The summaries of all exporters.
#[derive(Default)]
pub(super) struct Exporters {
    importer: Importer,
    sflow: SflowImporter,
    names: ExporterNames,
    /// What exporters say by SNMP, if they are asked.
    snmp: Option<InterfaceNames>,
    summaries: Vec<ExporterSummary>,
    by_name: BTreeMap<String, usize>,
}

/// The importer's counters, its decoder's, and those of sFlow.
type Counters = (import::Counters, decode::Counters, SflowCounters);

/// What a message was.
struct Read {
    protocol: &'static str,
    domain: u32,
    fault: Option<MessageFault>,
}

/// Why a message, or a part of it, was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub(super) enum MessageFault {
    Netflow(#[from] Fault),
    Sflow(#[from] SflowFault),
}

impl ExporterSummary {
    fn add(&mut self, before: &Counters, after: &Counters) {
        let (imported, decoded, sampled) = before;
        let sflow = &after.2;
        self.counter_samples += sflow.counter_samples - sampled.counter_samples;
        self.other_samples += sflow.other_samples - sampled.other_samples;
        self.without_addresses += sflow.without_addresses - sampled.without_addresses;
        self.sequence_gaps += sflow.gaps - sampled.gaps;
        let missing = self.units_missing + sflow.datagrams_missing;
        self.units_missing = missing.saturating_sub(sampled.datagrams_missing);
        self.events += after.0.events - imported.events;
        self.samplers_unknown += after.0.samplers_unknown - imported.samplers_unknown;
        self.without_addresses += after.0.without_addresses - imported.without_addresses;
        let after = &after.1;
        self.options_records += after.options_records - decoded.options_records;
        self.templates += after.templates - decoded.templates;
        let unknown = self.sets_without_template + after.sets_unknown - decoded.sets_unknown;
        self.sets_without_template = unknown.saturating_sub(after.sets_recovered - decoded.sets_recovered);
        self.faults += after.faults - decoded.faults;
        self.sequence_gaps += after.sequence.gaps - decoded.sequence.gaps;
        let missing = self.units_missing + after.sequence.units_missing;
        self.units_missing = missing.saturating_sub(decoded.sequence.units_missing);
        self.repeated += after.sequence.repeated - decoded.sequence.repeated;
    }
}

impl Exporters {
    /// With these names for exporters, and those that they say by SNMP.
    pub(super) fn new(names: ExporterNames, snmp: Option<InterfaceNames>) -> Self {
        Self { names, snmp, ..Self::default() }
    }

    /// Reads a message and appends its records to the list. Fails if the message is refused; returns the first fault
    /// of one that is not.
    pub(super) fn read(
        &mut self,
        peer: Peer<'_>,
        is_stream: bool,
        message: &[u8],
        received_ns: u64,
        records: &mut Vec<FlowRecord>,
    ) -> Result<Option<MessageFault>, MessageFault> {
        let exporter = peer.to_string();
        let number = number_of(&exporter, is_stream);
        let before = self.counters();
        let first = records.len();
        let read = match is_sflow(message) {
            true => self.read_sflow(number, message, received_ns, records),
            false => self.read_message(number, is_stream, message, received_ns, records),
        };
        let after = self.counters();
        if let Ok(read) = &read {
            // Records that waited for a template of this message are of the same domain.
            let exporter = self.names.exporter(peer, read.domain);
            let by_snmp =
                self.snmp.as_ref().zip(exporter.address).and_then(|(snmp, address)| snmp.of(address));
            for record in &mut records[first..] {
                record.exporter = exporter;
                self.names.name_interfaces(record);
                by_snmp.iter().for_each(|interfaces| name_unnamed(interfaces, record));
            }
        }
        let summary = self.summary_of(&exporter);
        summary.add(&before, &after);
        match &read {
            Ok(read) => {
                summary.faults += u64::from(matches!(read.fault, Some(MessageFault::Sflow(_))));
                match summary.messages.get_mut(read.protocol) {
                    Some(count) => *count += 1,
                    None => drop(summary.messages.insert(read.protocol.to_owned(), 1)),
                }
            }
            Err(_) => summary.refused += 1,
        }
        for record in records[first..].iter().filter(|record| record.details.event.is_none()) {
            let Amount { packets, bytes, .. } = Amount::of(record);
            summary.records += 1;
            summary.packets += packets;
            summary.bytes += bytes;
            summary.records_sampled += u64::from(record.sampling_interval > 1);
        }
        read.map(|read| read.fault)
    }

    fn read_message(
        &mut self,
        exporter: u64,
        is_stream: bool,
        message: &[u8],
        received_ns: u64,
        records: &mut Vec<FlowRecord>,
    ) -> Result<Read, MessageFault> {
        let source = if is_stream { Source::stream(exporter) } else { Source::datagrams(exporter) };
        let report = self.importer.handle_message(source, message, received_ns, records)?;
        let fault = report.first_fault.map(MessageFault::from);
        Ok(Read { protocol: report.header.version.name(), domain: report.header.domain, fault })
    }

    fn read_sflow(
        &mut self,
        exporter: u64,
        datagram: &[u8],
        received_ns: u64,
        records: &mut Vec<FlowRecord>,
    ) -> Result<Read, MessageFault> {
        let (header, fault) = self.sflow.handle_datagram(exporter, datagram, received_ns, records)?;
        Ok(Read { protocol: "sFlow 5", domain: header.sub_agent, fault: fault.map(MessageFault::from) })
    }

    fn counters(&self) -> Counters {
        (*self.importer.counters(), *self.importer.decoder().counters(), *self.sflow.counters())
    }

    /// Counts a message that did not arrive completely.
    pub(super) fn refuse(&mut self, exporter: &str) {
        self.summary_of(exporter).refused += 1;
    }

    /// Forgets a connection: its templates do not outlive it.
    pub(super) fn forget(&mut self, exporter: &str) {
        self.importer.forget(number_of(exporter, true));
    }

    /// Whether every decoded record is a flow, an event, or has no addresses.
    pub(super) fn balance(&self) -> bool {
        let imported = self.importer.counters();
        let sum = imported.flow_records + imported.events + imported.without_addresses;
        let told: u64 = self.summaries.iter().map(|summary| summary.records).sum();
        let sampled = self.sflow.counters().flow_records;
        sum == self.importer.decoder().counters().records && told == imported.flow_records + sampled
    }

    /// All decoded records and samples.
    pub(super) fn found(&self) -> u64 {
        let SflowCounters { flow_records, without_addresses, counter_samples, .. } = *self.sflow.counters();
        self.importer.decoder().counters().records + flow_records + without_addresses + counter_samples
    }

    /// The summaries, in the order of first appearance.
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

/// Names the interfaces that have no name yet.
fn name_unnamed(interfaces: &Interfaces, record: &mut FlowRecord) {
    let ends = [(record.key.ingress, &mut record.ingress_name), (record.egress, &mut record.egress_name)];
    for (number, interface) in ends {
        if *interface == InterfaceName::default() {
            *interface = interfaces.get(&number).copied().unwrap_or_default();
        }
    }
}

/// The decoder's number for an exporter. The decoder bounds its state per exporter.
fn number_of(exporter: &str, is_stream: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (exporter, is_stream).hash(&mut hasher);
    hasher.finish()
}
