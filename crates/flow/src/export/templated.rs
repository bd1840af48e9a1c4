//! NetFlow 9 and IPFIX: messages of sets, when to send templates, and sequence numbers.

use super::context::{self, Context};
use super::message_buffer::MessageBuffer;
use super::nat::{self, NatEvent};
use super::options::{ExportOptions, SECOND_NS, Times, Transport, Version};
use super::shape::{self, Rules, SHAPES, Shape, TemplateField};
use super::{Amount, ExportTotals, Interface, Statistics, is_set_back};
use crate::record::{FlowRecord, NO_INTERFACE, SAMPLING_UNKNOWN};
use thalweg_wire::netflow::element::REVERSE_ENTERPRISE;

const SET_HEADER_BYTES: usize = 4;
/// At a session's begin, and when the start of uptimes moves, the start is set this far back.
const UPTIME_BEFORE_MS: u64 = 24 * 3600 * 1000;
/// The start of uptimes moves when it is this far back: half of what 32 bits hold.
const UPTIME_MAX_MS: u64 = 1 << 31;
/// The most sampling intervals with samplers of their own; further ones share the last sampler.
const SAMPLERS_MAX: usize = 254;
/// The sampler of records with unknown sampling; it is never described.
const SAMPLER_UNKNOWN: u8 = 255;

/// One session's encoder; see the module documentation.
pub(super) struct Templated {
    rules: Rules,
    options: ExportOptions,
    /// The number of the open set, 0 if none is open.
    set: u16,
    set_start: usize,
    /// Bytes of a record of the open set if it holds flows.
    record_bytes: usize,
    /// Records of all kinds in the open message: NetFlow 9's count.
    message_records: u16,
    /// Data records in the open message, including options data.
    message_data: u32,
    /// The domain of the open message.
    domain: Domain,
    has_options: bool,
    /// For each domain. IPFIX: data records in closed messages. NetFlow 9: closed messages.
    sequences: [u32; 2],
    /// The latest time given by the caller.
    now_ns: u64,
    announced: Announced,
    samplers: Vec<u32>,
    repeats: Repeats,
    statistics_due_ns: u64,
    pub(super) statistics: Statistics,
    scratch: Vec<u8>,
}

/// The observation domain of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    /// The session's domain: flows, and what is needed to understand them.
    Own,
    /// Domain 0, the exporting process as a whole (RFC 7011, 3.1), with its own sequence numbers and
    /// templates.
    Whole,
}

/// What this session has announced to the collector.
struct Announced {
    by_shape: Box<[u64]>,
    shapes: Vec<Shape>,
    /// Options templates, for each domain.
    contexts: [u16; 2],
    nat: u16,
}

/// When all announcements are repeated.
struct Repeats {
    due_ns: u64,
    /// The next interval: it doubles up to the configured one.
    interval_ns: u64,
    /// Messages since the last repetition.
    messages: u32,
    under_way: bool,
}

impl Templated {
    pub(super) fn new(options: &ExportOptions) -> Self {
        Self {
            rules: Rules {
                version: options.version,
                times: options.times,
                reduced_sizes: options.reduced_sizes,
                start_ms: 0,
                latest_ms: 0,
            },
            options: options.clone(),
            set: 0,
            set_start: 0,
            record_bytes: 0,
            message_records: 0,
            message_data: 0,
            domain: Domain::Own,
            has_options: false,
            sequences: [0; 2],
            now_ns: 0,
            announced: Announced {
                by_shape: vec![0; SHAPES / 64].into_boxed_slice(),
                shapes: Vec::new(),
                contexts: [0; 2],
                nat: 0,
            },
            samplers: Vec::from_iter((options.sampling_interval != 1).then_some(options.sampling_interval)),
            repeats: Repeats { due_ns: 0, interval_ns: SECOND_NS, messages: 0, under_way: false },
            statistics_due_ns: 0,
            statistics: Statistics::default(),
            scratch: Vec::new(),
        }
    }

    fn is_ipfix(&self) -> bool {
        self.rules.version == Version::Ipfix
    }

    /// The domain for information about the exporter as a whole, and for repetitions.
    fn aside(&self) -> Domain {
        let has_one =
            self.is_ipfix() && !self.options.options_in_domain && self.options.observation_domain != 0;
        if has_one { Domain::Whole } else { Domain::Own }
    }

    /// Switches to a domain: a message of another domain is closed.
    fn speak_for(&mut self, domain: Domain, out: &mut MessageBuffer, totals: &mut ExportTotals, now_ns: u64) {
        if self.domain == domain {
            return;
        }
        if self.message_records > 0 {
            self.close_message(out, totals, now_ns);
        }
        self.domain = domain;
    }

    /// Prepares for flows: an IPFIX message has either flows or options data. nfdump checks sequence numbers
    /// from the first flow on and does not count options data, so it would report a gap behind a message that
    /// begins with options data and also has flows.
    fn speak_of_flows(&mut self, out: &mut MessageBuffer, totals: &mut ExportTotals, now_ns: u64) {
        self.speak_for(Domain::Own, out, totals, now_ns);
        if self.has_options && self.is_ipfix() {
            self.close_message(out, totals, now_ns);
        }
    }

    /// Forgets what the collector was told.
    pub(super) fn begin_session(&mut self, now_ns: u64) {
        self.set = 0;
        self.message_records = 0;
        self.has_options = false;
        self.domain = Domain::Own;
        self.sequences = [0; 2];
        self.announced.by_shape.fill(0);
        self.announced.shapes.clear();
        self.announced.contexts = [0; 2];
        self.announced.nat = 0;
        self.repeats = Repeats { due_ns: now_ns, interval_ns: SECOND_NS, messages: 0, under_way: false };
        self.statistics_due_ns = now_ns.saturating_add(self.options.statistics_interval_ns);
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        Some(self.repeats.due_ns.min(self.statistics_due_ns))
    }

    /// Follows the clock, and moves the start of uptimes before they overflow.
    fn advance(&mut self, out: &mut MessageBuffer, totals: &mut ExportTotals, now_ns: u64) {
        if is_set_back(self.now_ns, now_ns) {
            // Nothing may wait until the clock catches up: repetitions become due, and the start of uptimes
            // moves back.
            self.close_message(out, totals, self.now_ns);
            self.now_ns = now_ns;
            if self.options.transport == Transport::Datagram {
                self.repeats.due_ns = self.repeats.due_ns.min(now_ns);
            }
            self.statistics_due_ns = self.statistics_due_ns.min(now_ns);
            let start_ms = (now_ns / (SECOND_NS / 1000)).saturating_sub(UPTIME_BEFORE_MS);
            self.rules.start_ms = self.rules.start_ms.min(start_ms);
        }
        self.now_ns = self.now_ns.max(now_ns);
        if self.rules.times != Times::Uptime {
            return;
        }
        self.rules.latest_ms = self.now_ns.div_ceil(SECOND_NS) * 1000;
        if self.rules.latest_ms - self.rules.start_ms > UPTIME_MAX_MS {
            self.close_message(out, totals, now_ns);
            self.rules.start_ms = self.rules.latest_ms.saturating_sub(UPTIME_BEFORE_MS);
        }
    }

    pub(super) fn handle_time(&mut self, out: &mut MessageBuffer, totals: &mut ExportTotals, now_ns: u64) {
        self.advance(out, totals, now_ns);
        if self.repeats.due_ns <= now_ns {
            self.repeat(out, totals, now_ns);
        }
        if self.statistics_due_ns <= now_ns {
            self.send_statistics(out, totals, now_ns);
        }
    }

    pub(super) fn add(
        &mut self,
        records: &[FlowRecord],
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        self.advance(out, totals, now_ns);
        let mut sum = Amount::default();
        for record in records {
            let amount = Amount::of(record);
            sum += amount;
            match record.reverse.filter(|_| !self.is_ipfix()) {
                None => self.add_one(record, amount, out, totals, now_ns),
                Some(_) => {
                    totals.split += 1;
                    totals.exported.records += 1;
                    for way in both_ways(record) {
                        self.add_one(&way, Amount::of(&way), out, totals, now_ns);
                    }
                }
            }
        }
        totals.handled += sum;
        totals.exported += sum;
    }

    #[inline(always)]
    fn add_one(
        &mut self,
        record: &FlowRecord,
        amount: Amount,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        let shape = shape::shape_of(record, &self.rules);
        let sampler = match record.sampling_interval {
            1 => 0,
            SAMPLING_UNKNOWN => SAMPLER_UNKNOWN,
            interval => self.sampler(interval, out, totals, now_ns),
        };
        if self.set != shape.template_id() || out.left() < self.record_bytes {
            self.begin_records(shape, out, totals, now_ns);
        }
        shape::write(record, shape, sampler, &self.rules, out.take(self.record_bytes));
        out.counts += amount;
        self.message_records += 1;
        self.message_data += 1;
    }

    /// Makes room for a record of this shape in a set of its kind, and announces the template if necessary.
    #[cold]
    fn begin_records(
        &mut self,
        shape: Shape,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        self.speak_of_flows(out, totals, now_ns);
        let (word, bit) = (usize::from(shape.0) / 64, 1u64 << (shape.0 % 64));
        if self.announced.by_shape[word] & bit == 0 {
            self.put_template(shape.template_id(), &shape::fields(shape, &self.rules), out, totals, now_ns);
            self.announced.by_shape[word] |= bit;
            self.announced.shapes.push(shape);
            self.repeat_soon(now_ns);
        }
        let bytes = shape::length(shape, self.rules.version);
        self.make_room(shape.template_id(), bytes, out, totals, now_ns);
        self.record_bytes = bytes;
    }

    pub(super) fn add_nat_event(
        &mut self,
        event: &NatEvent,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        self.advance(out, totals, now_ns);
        self.speak_of_flows(out, totals, now_ns);
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        let layout = nat::write(event, &mut record);
        let bit = 1u16 << layout as u16;
        if self.announced.nat & bit == 0 {
            self.put_template(layout.template_id(), &layout.fields(), out, totals, now_ns);
            self.announced.nat |= bit;
            self.repeat_soon(now_ns);
        }
        self.put_data(layout.template_id(), &record, out, totals, now_ns);
        self.scratch = record;
        let amount = Amount { records: 1, ..Amount::default() };
        out.counts += amount;
        totals.exported += amount;
    }

    /// The number of the sampler with this interval; a new sampler is announced.
    fn sampler(
        &mut self,
        interval: u32,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) -> u8 {
        if let Some(place) = self.samplers.iter().position(|&known| known == interval) {
            return place as u8 + 1;
        }
        if self.samplers.len() < SAMPLERS_MAX {
            self.samplers.push(interval);
            self.put_context(Context::Samplers, Domain::Own, out, totals, now_ns);
            self.repeat_soon(now_ns);
        }
        self.samplers.len() as u8
    }

    /// Schedules an early repetition of a new announcement, which datagrams may lose.
    fn repeat_soon(&mut self, now_ns: u64) {
        if self.options.transport == Transport::Datagram && self.repeats.due_ns > now_ns {
            self.repeats.interval_ns = SECOND_NS;
            self.repeats.due_ns = self.repeats.due_ns.min(now_ns + SECOND_NS);
        }
    }

    /// Repeats all announcements.
    fn repeat(&mut self, out: &mut MessageBuffer, totals: &mut ExportTotals, now_ns: u64) {
        let repeats = &mut self.repeats;
        repeats.under_way = true;
        repeats.messages = 0;
        match self.options.transport {
            Transport::Datagram => {
                repeats.due_ns = now_ns + repeats.interval_ns;
                repeats.interval_ns = (repeats.interval_ns * 2).min(self.options.template_interval_ns);
            }
            Transport::Stream => repeats.due_ns = u64::MAX,
        }
        self.speak_for(Domain::Own, out, totals, now_ns);
        for at in 0..self.announced.shapes.len() {
            let shape = self.announced.shapes[at];
            self.put_template(shape.template_id(), &shape::fields(shape, &self.rules), out, totals, now_ns);
        }
        for layout in nat::Layout::ALL {
            if self.announced.nat & 1 << layout as u16 != 0 {
                self.put_template(layout.template_id(), &layout.fields(), out, totals, now_ns);
            }
        }
        let again = std::mem::take(&mut self.announced.contexts);
        let aside = self.aside();
        let was_said = |context: Context| (again[0] | again[1]) & context.bit() != 0;
        let known = [Context::Samplers, Context::Interfaces, Context::Applications];
        for (domain, said) in [(Domain::Own, false), (aside, true)] {
            for context in known.into_iter().filter(|context| was_said(*context) == said) {
                self.put_context(context, domain, out, totals, now_ns);
            }
        }
        for context in Context::STATISTICS {
            if was_said(context) {
                self.speak_for(aside, out, totals, now_ns);
                self.announce_context(context, out, totals, now_ns);
            }
        }
        self.repeats.under_way = false;
    }

    /// Replaces the interfaces and announces them where repetitions go.
    pub(super) fn set_interfaces(
        &mut self,
        interfaces: Vec<Interface>,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        self.options.interfaces = interfaces;
        self.put_context(Context::Interfaces, self.aside(), out, totals, now_ns);
    }

    pub(super) fn send_statistics(
        &mut self,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        self.statistics_due_ns = now_ns.saturating_add(self.options.statistics_interval_ns);
        for context in Context::STATISTICS {
            self.put_context(context, self.aside(), out, totals, now_ns);
        }
    }

    /// Sends options data in a domain, preceded by its template if that domain does not have it yet.
    fn put_context(
        &mut self,
        context: Context,
        domain: Domain,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        let told = context::Told {
            options: &self.options,
            samplers: &self.samplers,
            statistics: &self.statistics,
            totals,
        };
        let records = context.records(&told);
        if records.is_empty() {
            return;
        }
        self.speak_for(domain, out, totals, now_ns);
        if self.is_ipfix() && self.message_data > 0 && !self.has_options {
            self.close_message(out, totals, now_ns);
        }
        self.announce_context(context, out, totals, now_ns);
        for record in &records {
            self.put_data(context.template_id(), record, out, totals, now_ns);
            self.has_options = true;
        }
    }

    fn announce_context(
        &mut self,
        context: Context,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        let announced = &mut self.announced.contexts[self.domain as usize];
        if *announced & context.bit() != 0 {
            return;
        }
        *announced |= context.bit();
        let (set, template) = match self.is_ipfix() {
            true => (3, context.ipfix_template(self.options.variable_names)),
            false => (1, context.netflow9_template()),
        };
        // nfdump 1.7 and pmacct 1.7.7 read only the first template of a set.
        self.close_set(out);
        self.make_room(set, template.len(), out, totals, now_ns);
        out.put(&template);
        self.message_records += 1;
    }

    fn put_template(
        &mut self,
        id: u16,
        fields: &[TemplateField],
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        let mut template = Vec::with_capacity(4 + 8 * fields.len());
        template.extend_from_slice(&id.to_be_bytes());
        template.extend_from_slice(&(fields.len() as u16).to_be_bytes());
        for field in fields {
            let enterprise = if field.reverse { 0x8000 } else { 0 };
            template.extend_from_slice(&(field.element | enterprise).to_be_bytes());
            template.extend_from_slice(&field.bytes.to_be_bytes());
            if field.reverse {
                template.extend_from_slice(&REVERSE_ENTERPRISE.to_be_bytes());
            }
        }
        let set = if self.is_ipfix() { 2 } else { 0 };
        self.make_room(set, template.len(), out, totals, now_ns);
        out.put(&template);
        self.message_records += 1;
    }

    fn put_data(
        &mut self,
        set: u16,
        record: &[u8],
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        self.make_room(set, record.len(), out, totals, now_ns);
        out.put(record);
        self.message_records += 1;
        self.message_data += 1;
    }

    /// Ensures that the set with this number is open and has room for this many bytes, in a new message if
    /// necessary.
    ///
    /// Numbers of template sets are below 4 and include 0, so an open template set is stored as its number
    /// plus one, and a data set as its number.
    fn make_room(
        &mut self,
        set: u16,
        bytes: usize,
        out: &mut MessageBuffer,
        totals: &mut ExportTotals,
        now_ns: u64,
    ) {
        let open_as = if set < 4 { set + 1 } else { set };
        if self.set == open_as && out.left() >= bytes {
            return;
        }
        self.close_set(out);
        if out.is_open() && out.left() < SET_HEADER_BYTES + bytes {
            self.close_message(out, totals, now_ns);
        }
        if !out.is_open() {
            self.open_message(out, now_ns);
            let due =
                self.repeats.due_ns <= now_ns || self.repeats.messages >= self.options.template_messages;
            if due && !self.repeats.under_way && self.domain == Domain::Own {
                self.repeat(out, totals, now_ns);
                self.speak_of_flows(out, totals, now_ns);
                self.close_set(out);
                if out.is_open() && out.left() < SET_HEADER_BYTES + bytes {
                    self.close_message(out, totals, now_ns);
                }
                if !out.is_open() {
                    self.open_message(out, now_ns);
                }
            }
        }
        self.set = open_as;
        self.set_start = out.position();
        self.record_bytes = 0;
        let [high, low] = set.to_be_bytes();
        out.put(&[high, low, 0, 0]);
    }

    fn close_set(&mut self, out: &mut MessageBuffer) {
        if self.set == 0 {
            return;
        }
        if !self.is_ipfix() {
            // RFC 3954, 5.2: the next FlowSet begins at a multiple of four bytes.
            let padding = out.position().next_multiple_of(4) - out.position();
            out.put(&[0; 3][..padding]);
        }
        let bytes = (out.position() - self.set_start) as u16;
        out.patch(self.set_start + 2, &bytes.to_be_bytes());
        self.set = 0;
    }

    fn open_message(&mut self, out: &mut MessageBuffer, now_ns: u64) {
        let header_bytes = if self.is_ipfix() { 16 } else { 20 };
        out.open(header_bytes, if self.is_ipfix() { 1 } else { 4 }, now_ns);
        self.message_records = 0;
        self.message_data = 0;
        self.has_options = false;
    }

    pub(super) fn close_message(&mut self, out: &mut MessageBuffer, totals: &mut ExportTotals, now_ns: u64) {
        if !out.is_open() {
            return;
        }
        self.close_set(out);
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_ipfix() {
            let bytes = out.position() as u16;
            let observation_domain = match self.domain {
                Domain::Own => self.options.observation_domain,
                Domain::Whole => 0,
            };
            let sequence = &mut self.sequences[self.domain as usize];
            let header = [
                u32::from(10u16) << 16 | u32::from(bytes),
                (self.now_ns / SECOND_NS) as u32,
                *sequence,
                observation_domain,
            ];
            *sequence = sequence.wrapping_add(self.message_data);
            put_words(out, &header);
        } else {
            // Rounded up, including the uptime: see the head of `export.rs`.
            let seconds = self.now_ns.div_ceil(SECOND_NS);
            let uptime_ms = (seconds * 1000).wrapping_sub(self.rules.start_ms);
            let header = [
                9 << 16 | u32::from(self.message_records),
                uptime_ms as u32,
                seconds as u32,
                self.sequences[0],
                self.options.observation_domain,
            ];
            put_words(out, &header);
            self.sequences[0] = self.sequences[0].wrapping_add(1);
        }
        self.repeats.messages = self.repeats.messages.saturating_add(1);
        totals.messages += 1;
        totals.message_bytes += out.close() as u64;
        self.message_records = 0;
        self.has_options = false;
    }
}

fn put_words(out: &mut MessageBuffer, words: &[u32]) {
    for (n, word) in words.iter().enumerate() {
        out.patch(4 * n, &word.to_be_bytes());
    }
}

/// Splits a biflow into two records, for protocols without biflows. Routes are known for the first direction
/// only.
pub(super) fn both_ways(record: &FlowRecord) -> impl Iterator<Item = FlowRecord> + use<> {
    let forward = FlowRecord { reverse: None, ..*record };
    let backward = record.reverse.map(|counters| FlowRecord {
        src_as: record.dst_as,
        dst_as: record.src_as,
        application: record.application,
        egress: NO_INTERFACE,
        sampling_interval: record.sampling_interval,
        ..FlowRecord::new(record.key.reversed(), counters, record.end_reason)
    });
    std::iter::once(forward).chain(backward)
}
