//! Converts received NetFlow 5, NetFlow 9 and IPFIX messages, and sFlow 5 datagrams ([`SflowImporter`]), into flow
//! records, without a socket or clock.
//!
//! ```text
//! bytes --wire::netflow::decode--> options records --> Context: samplers, interfaces, applications, start times
//!                               \-> data records ----> Draft --(Context)--> FlowRecord
//! ```
//!
//! A draft takes a record's fields in any order; if several give the same fact, the most precise one wins
//! (nanoseconds before milliseconds). Elements without a place in a flow record are counted.
//!
//! `records in = flow records + events + records without addresses` at every moment ([`Counters`]); flow records and
//! events go out.
//!
//! `docs/flow-import.md` says how names map across exporters, and what cannot be known.

mod context;
mod counted;
mod draft;
mod plan;
mod section;
mod sflow;

#[cfg(test)]
mod tests;

use thalweg_wire::netflow::decode::{
    Decoder, Fault, Limits, Record, Report, SessionKey, Source, TemplateKind,
};

use crate::{FlowRecord, InterfaceName};
use context::Context;
use draft::Draft;

pub use sflow::{SflowCounters, SflowImporter};

/// Counters of the import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub flow_records: u64,
    /// Records without packets and bytes: events of NAT and firewalls. They are handed on too.
    pub events: u64,
    /// Records with neither a source nor a destination IP address.
    pub without_addresses: u64,
    /// Fields of data records without a place in a flow record.
    pub elements_ignored: u64,
    /// Flow records without a usable time; they get the message's time.
    pub times_from_export: u64,
    /// Flow records that do not say why they ended.
    pub without_end_reason: u64,
    /// Flow records whose sampler was not described, so their sampling interval is unknown.
    pub samplers_unknown: u64,
    /// Entries of samplers, interfaces, applications and start times that were evicted at their limits.
    pub context_evicted: u64,
}

/// Converts messages to flow records.
#[derive(Default)]
pub struct Importer {
    decoder: Decoder,
    context: Context,
    counters: Counters,
}

impl Importer {
    /// Makes an importer without templates.
    pub fn new(limits: Limits) -> Self {
        Self { decoder: Decoder::new(limits), ..Self::default() }
    }

    /// Reads one message: a datagram, or a message that
    /// [`stream_message_bytes`](thalweg_wire::netflow::decode::stream_message_bytes) cut from a stream.
    /// Appends its flow records to `flows`, preceded by those of earlier messages that waited for a template
    /// in this one.
    ///
    /// # Errors
    /// Returns the errors of [`Decoder::handle_message`], which refuse the message as a whole. Later faults
    /// are in the report.
    pub fn handle_message(
        &mut self,
        source: Source,
        message: &[u8],
        received_ns: u64,
        flows: &mut Vec<FlowRecord>,
    ) -> Result<Report, Fault> {
        let Self { decoder, context, counters } = self;
        decoder.handle_message(source, message, received_ns, |record| {
            let session = SessionKey {
                exporter: source.exporter,
                version: record.header.version,
                domain: record.header.domain,
            };
            match record.template.kind {
                TemplateKind::Options => counters.context_evicted += context.learn(session, record),
                TemplateKind::Data => import(record, session, context, counters, flows),
            }
        })
    }

    /// Forgets an exporter whose connection closed: its templates and its options data.
    pub fn forget(&mut self, exporter: u64) {
        self.decoder.forget(exporter);
        self.context.forget(exporter);
    }

    /// The counters of the import.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The decoder, for its counters.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Interfaces that exporters described, by session and number.
    pub fn interfaces(&self) -> impl Iterator<Item = (SessionKey, u32, InterfaceName)> {
        self.context.interfaces()
    }
}

fn import(
    record: &Record<'_>,
    session: SessionKey,
    context: &Context,
    counters: &mut Counters,
    flows: &mut Vec<FlowRecord>,
) {
    let mut draft = Draft::default();
    counters.elements_ignored += plan::take(&mut draft, record);
    draft.finish(record.header, session, context, counters, flows);
}
