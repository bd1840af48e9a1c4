//! Received NetFlow 5, NetFlow 9 and IPFIX messages into flow records. No socket and no clock.
//!
//! ```text
//! bytes --wire::netflow::decode--> options records --> Context: samplers, interfaces, applications, start times
//!                               \-> data records ----> Draft --(Context)--> FlowRecord
//! ```
//!
//! A draft takes a record's fields in any order; where several say the same thing, the one that says it best wins
//! (nanoseconds before milliseconds). What a flow record has no place for is counted, element by element.
//!
//! `records in = flow records out + events + records without addresses` at every moment ([`Counters`]).
//!
//! What names mean across exporters, and what cannot be known, is in `docs/flow-import.md`.

mod context;
mod draft;

#[cfg(test)]
mod tests;

use thalweg_wire::netflow::decode::{
    Decoder, Fault, Limits, Record, Report, SessionKey, Source, TemplateKind,
};

use crate::FlowRecord;
use context::Context;
use draft::Draft;

pub use context::Interface;

/// What was imported and what was not, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Flow records given out.
    pub flow_records: u64,
    /// Records that count neither packets nor bytes: events of NAT and firewalls.
    pub events: u64,
    /// Records with neither a source nor a destination address of IP.
    pub without_addresses: u64,
    /// Fields of data records that a flow record has no place for.
    pub elements_ignored: u64,
    /// Flow records with no usable time: they get the message's.
    pub times_from_export: u64,
    /// Flow records that do not say why they ended.
    pub without_end_reason: u64,
    /// Flow records of a sampler that was not described: how many packets stand for one is not known.
    pub samplers_unknown: u64,
    /// Entries of samplers, interfaces, applications and start times that had to go because too many are known.
    pub context_evicted: u64,
}

/// Turns messages into flow records.
#[derive(Default)]
pub struct Importer {
    decoder: Decoder,
    context: Context,
    counters: Counters,
}

impl Importer {
    /// An importer that knows no templates yet.
    pub fn new(limits: Limits) -> Self {
        Self { decoder: Decoder::new(limits), ..Self::default() }
    }

    /// Reads one message: a datagram, or what [`stream_message_bytes`](thalweg_wire::netflow::decode::stream_message_bytes) cut from a stream. Appends its flow records to
    /// `flows`, after those of earlier messages that waited for a template which this one brought.
    ///
    /// # Errors
    /// What refuses the message as a whole, as of [`Decoder::handle_message`]. Faults further on are in the report.
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
                TemplateKind::Data => flows.extend(import(record, session, context, counters)),
            }
        })
    }

    /// Forgets an exporter whose connection is closed: its templates and what it said of itself.
    pub fn forget(&mut self, exporter: u64) {
        self.decoder.forget(exporter);
        self.context.forget(exporter);
    }

    /// What was imported.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was decoded, and in which order it came.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// What exporters said of their interfaces, by session and number.
    pub fn interfaces(&self) -> impl Iterator<Item = (SessionKey, u32, &Interface)> {
        self.context.interfaces()
    }
}

fn import(
    record: &Record<'_>,
    session: SessionKey,
    context: &Context,
    counters: &mut Counters,
) -> Option<FlowRecord> {
    let mut draft = Draft::default();
    for field in record.fields() {
        counters.elements_ignored += u64::from(!draft.take(&field, record.header));
    }
    draft.finish(record.header, session, context, counters)
}
