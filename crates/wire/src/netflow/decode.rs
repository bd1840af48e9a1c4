//! Decodes received NetFlow 5, NetFlow 9 (RFC 3954) and IPFIX (RFC 7011) messages, without a socket or clock:
//! the caller passes the bytes with their exporter and arrival time.
//!
//! ```text
//! bytes --Header--> NetFlow 5 ----------------------> fixed layout \
//!               \--> NetFlow 9, IPFIX --sets--> templates --known?--> Record --> visitor
//!                                          \--> data -----^   \-- unknown: waits for the template
//! ```
//!
//! A [`Record`] is a view of the message: nothing is copied, except sets that wait for their template.
//! NetFlow 5 records look as if a template had described them, so readers of records need not know the
//! version.
//!
//! # State
//! All state belongs to a session: exporter, version and observation domain (NetFlow 9: source ID). Per
//! session: the next sequence number, the newest export time, up to 16 gaps. Per session and number:
//! templates, and waiting sets. Each of the three is bounded ([`Limits`]); entries not renewed for the
//! longest time are evicted and counted ([`Counters`]). Each is two ordered maps, so an exporter that floods
//! us costs a logarithm per message.
//!
//! # Faults stay local
//! A malformed header refuses the message. A later fault ends its set; a set with an impossible length ends
//! the message, because the position of the next set is unknown. Records read before stay valid.
//!
//! # Quirks that are accepted
//! - Zeros behind the last set (Cisco ACI), and padding in any set.
//! - NetFlow 9 record counts that count sets, templates or flows only: they are not used.
//! - NetFlow 9 fields longer than the registry's type, and elements above 127 by their IPFIX numbers.
//! - Data before its template, also within one message.
//! - Options templates without scopes, and fields of no bytes (up to 16, so that a record's cost is bounded
//!   by its bytes).
//!
//! Missing: NetFlow 1, 7 and 8; the content of lists (RFC 6313).

mod bytes;
mod counters;
mod fault;
mod header;
mod record;
mod sequence;
mod template;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_base::Aged;

use bytes::u16_at;
use header::V5_RECORD_BYTES;
use sequence::Sequence;
use template::{Definition, Definitions};

pub use counters::{Counters, SequenceCounters};
pub use fault::{Fault, FaultKind};
pub use header::{Header, Version, first_message_bytes, stream_message_bytes};
pub use record::{Field, Fields, Record};
pub use sequence::Order;
pub use template::{FieldName, FieldSpecifier, Memo, Template, TemplateKind, VARIABLE};

/// The sender and transport of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// A number that the caller assigns to each transport session (address and port, or connection).
    pub exporter: u64,
    /// The message came over TCP, TLS or from a file: nothing is lost or reordered, and templates can be
    /// withdrawn.
    pub is_stream: bool,
}

impl Source {
    /// A source of UDP messages.
    pub fn datagrams(exporter: u64) -> Self {
        Self { exporter, is_stream: false }
    }

    /// A source of messages over TCP, TLS or from a file.
    pub fn stream(exporter: u64) -> Self {
        Self { exporter, is_stream: true }
    }
}

/// Limits of the decoder's state. Beyond them, the oldest entries are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub sessions_max: usize,
    /// Templates of all sessions.
    pub templates_max: usize,
    /// Their memory.
    pub template_bytes_max: usize,
    pub waiting_sets_max: usize,
    pub waiting_bytes_max: usize,
    /// A template from datagrams is no longer used this long after it was last repeated (RFC 7011, 8.4).
    /// `None` keeps it.
    pub template_lifetime_ns: Option<u64>,
}

impl Default for Limits {
    /// Room for some thousand exporters, in at most about 24 MiB. Few sets may wait, because all of them may
    /// have to be decoded at once.
    fn default() -> Self {
        Self {
            sessions_max: 16_384,
            templates_max: 65_536,
            template_bytes_max: 16 << 20,
            waiting_sets_max: 4_096,
            waiting_bytes_max: 1 << 20,
            template_lifetime_ns: None,
        }
    }
}

/// The session that sequence numbers and templates belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    pub exporter: u64,
    pub version: Version,
    /// Observation domain or source ID.
    pub domain: u32,
}

type TemplateKey = (SessionKey, u16);
/// Includes the number of the set, so that sets of one template stay in order of arrival.
type WaitingKey = (TemplateKey, u64);

struct KnownTemplate {
    template: Arc<Template>,
    renewed_ns: u64,
}

struct WaitingSet {
    header: Header,
    bytes: Box<[u8]>,
    /// Of the bytes in their message.
    offset: usize,
}

/// What a message contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub header: Header,
    /// Flow and event records.
    pub records: u32,
    pub options_records: u32,
    pub templates: u32,
    /// Data sets whose template is not known yet.
    pub sets_unknown: u32,
    /// Records of earlier messages that this message's templates made readable; they are not in the other
    /// counts.
    pub records_recovered: u32,
    /// How its sequence number relates to earlier ones.
    pub order: Order,
    pub faults: u32,
    pub first_fault: Option<Fault>,
}

/// A decoder for any number of exporters.
pub struct Decoder {
    limits: Limits,
    sessions: Aged<SessionKey, Sequence>,
    templates: Aged<TemplateKey, KnownTemplate>,
    waiting: Aged<WaitingKey, WaitingSet>,
    sets_numbered: u64,
    netflow5: Arc<Template>,
    counters: Counters,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// A message that is being decoded.
struct Reading {
    session: SessionKey,
    is_stream: bool,
    received_ns: u64,
    report: Report,
    /// Data records so far; `None` once some could not be counted.
    units: Option<u32>,
}

impl Reading {
    fn fault(&mut self, fault: Fault) {
        self.report.faults += 1;
        self.report.first_fault.get_or_insert(fault);
    }
}

impl Decoder {
    /// Makes a decoder without templates.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: Aged::new(limits.sessions_max, usize::MAX),
            templates: Aged::new(limits.templates_max, limits.template_bytes_max),
            waiting: Aged::new(limits.waiting_sets_max, limits.waiting_bytes_max),
            sets_numbered: 0,
            netflow5: Arc::new(Template::netflow5()),
            counters: Counters::default(),
        }
    }

    /// The counters of all messages so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The number of waiting sets and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting.len(), self.waiting.bytes())
    }

    /// The known templates, by session and number.
    pub fn templates(&self) -> impl Iterator<Item = (SessionKey, &Template)> {
        self.templates.iter().map(|(key, known)| (key.0, known.template.as_ref()))
    }

    /// Reads one message: a datagram, or a message that [`stream_message_bytes`] cut from a stream. Calls
    /// `visit` for every record, including records of earlier messages that waited for a template of this
    /// one.
    ///
    /// `received_ns` is only used for the lifetime of templates.
    ///
    /// # Errors
    /// Returns an error if the message as a whole is refused: the header is short, has another version or a
    /// wrong length. Later faults are in the report.
    pub fn handle_message(
        &mut self,
        source: Source,
        message: &[u8],
        received_ns: u64,
        mut visit: impl FnMut(&Record<'_>),
    ) -> Result<Report, Fault> {
        let (header, bytes) = Header::parse(message).inspect_err(|_| self.counters.messages_refused += 1)?;
        self.counters.messages[header.version as usize] += 1;
        let session =
            SessionKey { exporter: source.exporter, version: header.version, domain: header.domain };
        let order = self.observe(session, &header);
        let report = Report {
            header,
            records: 0,
            options_records: 0,
            templates: 0,
            sets_unknown: 0,
            records_recovered: 0,
            order,
            faults: 0,
            first_fault: None,
        };
        let mut reading =
            Reading { session, is_stream: source.is_stream, received_ns, report, units: Some(0) };
        if bytes.len() < message.len() {
            reading.fault(Fault::new(bytes.len(), FaultKind::Trailing(message.len() - bytes.len())));
        }
        match header.version {
            Version::NetFlow5 => self.read_netflow5(&mut reading, bytes, &mut visit),
            Version::NetFlow9 | Version::Ipfix => self.read_sets(&mut reading, bytes, &mut visit),
        }
        self.count(&reading);
        Ok(reading.report)
    }

    /// Forgets an exporter whose connection closed; templates do not outlive it (RFC 7011, 8.1).
    pub fn forget(&mut self, exporter: u64) {
        let first = SessionKey { exporter, version: Version::NetFlow5, domain: 0 };
        let last = SessionKey { exporter, version: Version::Ipfix, domain: u32::MAX };
        for session in self.sessions.keys_in(first..=last) {
            self.sessions.remove(&session);
        }
        self.forget_templates(first, last);
    }

    /// Forgets the templates of some sessions and the sets that wait for others. Returns the number of
    /// templates.
    fn forget_templates(&mut self, first: SessionKey, last: SessionKey) -> u64 {
        let mut forgotten = 0;
        for key in self.templates.keys_in((first, 0)..=(last, u16::MAX)) {
            self.templates.remove(&key);
            forgotten += 1;
        }
        for key in self.waiting.keys_in(((first, 0), 0)..=((last, u16::MAX), u64::MAX)) {
            self.waiting.remove(&key);
            self.counters.sets_given_up += 1;
        }
        forgotten
    }

    /// Compares the sequence number, and forgets the templates of an exporter that restarted: its numbers may
    /// have a new meaning (RFC 3954, 9).
    fn observe(&mut self, session: SessionKey, header: &Header) -> Order {
        let Some(sequence) = self.sessions.renew(&session) else {
            self.counters.sessions_evicted += self.sessions.insert(session, Sequence::default(), 0);
            return Order::Unchecked;
        };
        let order = sequence.observe(header.sequence, header.export_ns);
        let is_reboot = sequence.is_reboot(header.export_ns, header.uptime_ms);
        if order != Order::InOrder && is_reboot {
            self.counters.templates_rebooted += self.forget_templates(session, session);
            return Order::Restart;
        }
        order
    }

    fn count(&mut self, reading: &Reading) {
        let report = &reading.report;
        let units = match report.header.version {
            Version::NetFlow5 => Some(u32::from(report.header.count)),
            Version::NetFlow9 => Some(1),
            Version::Ipfix => reading.units,
        };
        let header = &report.header;
        let filled = self.sessions.renew(&reading.session).map_or(0, |sequence| {
            sequence.advance(report.order, header.sequence, units, header.export_ns, header.uptime_ms)
        });
        let counters = &mut self.counters;
        counters.records += u64::from(report.records);
        counters.options_records += u64::from(report.options_records);
        counters.faults += u64::from(report.faults);
        let sequence = &mut counters.sequence;
        sequence.units_missing -= u64::from(filled).min(sequence.units_missing);
        match report.order {
            Order::Unchecked => sequence.unchecked += 1,
            Order::InOrder => sequence.in_order += 1,
            Order::Gap(units) => {
                sequence.gaps += 1;
                sequence.units_missing += u64::from(units);
            }
            Order::Late => sequence.late += 1,
            Order::Repeated => sequence.repeated += 1,
            Order::Restart => sequence.restarts += 1,
        }
    }

    fn read_netflow5(&self, reading: &mut Reading, message: &[u8], visit: &mut dyn FnMut(&Record<'_>)) {
        let offset = Version::NetFlow5.header_bytes();
        let body = &message[offset..];
        let says = usize::from(reading.report.header.count);
        let has = body.len() / V5_RECORD_BYTES;
        let bytes = says.min(has) * V5_RECORD_BYTES;
        if says > has {
            reading.fault(Fault::new(2, FaultKind::RecordCount { says, has }));
        } else if bytes < body.len() {
            reading.fault(Fault::new(offset + bytes, FaultKind::Trailing(body.len() - bytes)));
        }
        let cut = record::cut(&reading.report.header, &self.netflow5, &body[..bytes], offset, visit);
        reading.report.records += cut.records;
    }

    /// Walks the sets of a NetFlow 9 or IPFIX message.
    fn read_sets(&mut self, reading: &mut Reading, message: &[u8], visit: &mut dyn FnMut(&Record<'_>)) {
        let mut at = reading.session.version.header_bytes();
        while let Some(rest) = message.get(at..).filter(|rest| !rest.is_empty()) {
            let (id, says) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
            if says < 4 || says > rest.len() {
                // Zeros to the end are padding, which some exporters add behind the last set.
                if rest.iter().any(|byte| *byte != 0) {
                    let has = rest.len();
                    let kind =
                        if has < 4 { FaultKind::Trailing(has) } else { FaultKind::SetLength { says, has } };
                    reading.fault(Fault::new(at, kind));
                    reading.units = None;
                }
                return;
            }
            self.read_set(reading, id, &rest[4..says], at + 4, visit);
            at += says;
        }
    }

    fn read_set(
        &mut self,
        reading: &mut Reading,
        id: u16,
        set: &[u8],
        offset: usize,
        visit: &mut dyn FnMut(&Record<'_>),
    ) {
        let kind = match (reading.session.version, id) {
            (_, 256..) => return self.read_data(reading, id, set, offset, visit),
            (Version::NetFlow9, 0) | (Version::Ipfix, 2) => TemplateKind::Data,
            (Version::NetFlow9, 1) | (Version::Ipfix, 3) => TemplateKind::Options,
            _ => return reading.fault(Fault::new(offset - 4, FaultKind::SetId(id))),
        };
        for definition in Definitions::new(reading.session.version, kind, set, offset) {
            match definition {
                Ok(Definition::Template(template)) => self.learn(reading, template, visit),
                Ok(Definition::Withdrawal(withdrawn)) => self.withdraw(reading, kind, id, withdrawn),
                Err(fault) => reading.fault(fault),
            }
        }
    }

    fn read_data(
        &mut self,
        reading: &mut Reading,
        id: u16,
        set: &[u8],
        offset: usize,
        visit: &mut dyn FnMut(&Record<'_>),
    ) {
        let key = (reading.session, id);
        let Some(template) = self.template(key, reading) else {
            self.counters.sets_unknown += 1;
            reading.report.sets_unknown += 1;
            reading.units = None;
            let waiting = WaitingSet { header: reading.report.header, bytes: set.into(), offset };
            // An empty set takes memory too.
            let cost = set.len() + size_of::<WaitingSet>();
            self.counters.sets_given_up += self.waiting.insert((key, self.sets_numbered), waiting, cost);
            self.sets_numbered += 1;
            return;
        };
        let header = reading.report.header;
        let cut = record::cut(&header, &template, set, offset, visit);
        match template.kind {
            TemplateKind::Data => reading.report.records += cut.records,
            TemplateKind::Options => reading.report.options_records += cut.records,
        }
        reading.units = reading.units.map(|units| units.wrapping_add(cut.records));
        self.counters.sets_with_tail += u64::from(cut.has_tail);
        if let Some(fault) = cut.fault {
            reading.fault(fault);
            reading.units = None;
        }
    }

    /// The template with this number, unless its lifetime has passed.
    fn template(&mut self, key: TemplateKey, reading: &Reading) -> Option<Arc<Template>> {
        let known = self.templates.get(&key)?;
        let age_ns = reading.received_ns.saturating_sub(known.renewed_ns);
        if !reading.is_stream
            && self.limits.template_lifetime_ns.is_some_and(|lifetime_ns| age_ns > lifetime_ns)
        {
            self.templates.remove(&key);
            self.counters.templates_expired += 1;
            return None;
        }
        Some(Arc::clone(&known.template))
    }

    /// Stores a template and decodes the sets that waited for it.
    fn learn(&mut self, reading: &mut Reading, template: Template, visit: &mut dyn FnMut(&Record<'_>)) {
        self.counters.templates += 1;
        reading.report.templates += 1;
        let key = (reading.session, template.id);
        if let Some(known) = self.templates.renew(&key) {
            known.renewed_ns = reading.received_ns;
            if *known.template == template {
                return; // and no set waits for a known template
            }
            self.counters.templates_changed += 1;
        }
        let bytes = template.memory_bytes();
        let template = Arc::new(template);
        let known = KnownTemplate { template: Arc::clone(&template), renewed_ns: reading.received_ns };
        self.counters.templates_evicted += self.templates.insert(key, known, bytes);
        for waiting_key in self.waiting.keys_in((key, 0)..=(key, u64::MAX)) {
            let Some(waiting) = self.waiting.remove(&waiting_key) else { continue };
            let cut = record::cut(&waiting.header, &template, &waiting.bytes, waiting.offset, visit);
            reading.report.records_recovered += cut.records;
            self.counters.sets_recovered += 1;
            self.counters.sets_with_tail += u64::from(cut.has_tail);
            self.counters.faults += u64::from(cut.fault.is_some());
            match template.kind {
                TemplateKind::Data => self.counters.records += u64::from(cut.records),
                TemplateKind::Options => self.counters.options_records += u64::from(cut.records),
            }
        }
    }

    /// RFC 7011, 8.1: withdraws a template or, with the set's own number, all of its kind. Ignored over
    /// datagrams (8.4), because it may have overtaken data.
    fn withdraw(&mut self, reading: &Reading, kind: TemplateKind, set_id: u16, withdrawn: u16) {
        let session = reading.session;
        let keys = if withdrawn == set_id {
            self.templates.keys_in((session, 0)..=(session, u16::MAX))
        } else {
            vec![(session, withdrawn)]
        };
        let mut gone = 0;
        for key in keys.into_iter().filter(|_| reading.is_stream) {
            if self.templates.get(&key).is_some_and(|known| known.template.kind == kind) {
                self.templates.remove(&key);
                gone += 1;
            }
        }
        self.counters.withdrawals += gone;
        self.counters.withdrawals_ignored += u64::from(gone == 0);
    }
}
