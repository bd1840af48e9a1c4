//! NetFlow 9 and IPFIX: messages of sets, when to send templates, and sequence numbers.

use super::context::{self, Context};
use super::message_buffer::MessageBuffer;
use super::nat::{self, NatEvent};
use super::options::{ExportOptions, SECOND_NS, Times, Transport, Version};
use super::shape::{self, Rules, Shape, TemplateField};
use super::{Amount, Interface, Statistics, is_set_back};
use crate::record::{FlowRecord, SAMPLING_UNKNOWN};
use std::collections::BTreeMap;

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
    /// Templates of flows, with the bytes of a record.
    shapes: BTreeMap<Shape, usize>,
    /// Options templates, for each domain.
    contexts: [u16; 2],
    /// Templates of NAT events, by number.
    nat: BTreeMap<u16, Vec<TemplateField>>,
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
            announced: Announced { shapes: BTreeMap::new(), contexts: [0; 2], nat: BTreeMap::new() },
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
    fn speak_for(&mut self, domain: Domain, out: &mut MessageBuffer) {
        if self.domain == domain {
            return;
        }
        if self.message_records > 0 {
            self.close_message(out);
        }
        self.domain = domain;
    }

    /// Prepares for flows: an IPFIX message has either flows or options data. nfdump checks sequence numbers
    /// from the first flow on and does not count options data, so it would report a gap behind a message that
    /// begins with options data and also has flows.
    fn speak_of_flows(&mut self, out: &mut MessageBuffer) {
        self.speak_for(Domain::Own, out);
        if self.has_options && self.is_ipfix() {
            self.close_message(out);
        }
    }

    /// Forgets what the collector was told.
    pub(super) fn begin_session(&mut self, now_ns: u64) {
        self.set = 0;
        self.message_records = 0;
        self.has_options = false;
        self.domain = Domain::Own;
        self.sequences = [0; 2];
        self.announced.shapes.clear();
        self.announced.contexts = [0; 2];
        self.announced.nat.clear();
        self.repeats = Repeats { due_ns: now_ns, interval_ns: SECOND_NS, messages: 0, under_way: false };
        self.statistics_due_ns = now_ns.saturating_add(self.options.statistics_interval_ns);
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        Some(self.repeats.due_ns.min(self.statistics_due_ns))
    }

    /// Follows the clock, and moves the start of uptimes before they overflow.
    fn advance(&mut self, out: &mut MessageBuffer) {
        if is_set_back(self.now_ns, out.now_ns) {
            // Nothing may wait until the clock catches up: repetitions become due, and the start of uptimes
            // moves back.
            self.close_message(out);
            self.now_ns = out.now_ns;
            if self.options.transport == Transport::Datagram {
                self.repeats.due_ns = self.repeats.due_ns.min(out.now_ns);
            }
            self.statistics_due_ns = self.statistics_due_ns.min(out.now_ns);
            let start_ms = (out.now_ns / (SECOND_NS / 1000)).saturating_sub(UPTIME_BEFORE_MS);
            self.rules.start_ms = self.rules.start_ms.min(start_ms);
        }
        self.now_ns = self.now_ns.max(out.now_ns);
        if self.rules.times != Times::Uptime {
            return;
        }
        self.rules.latest_ms = self.now_ns.div_ceil(SECOND_NS) * 1000;
        if self.rules.latest_ms - self.rules.start_ms > UPTIME_MAX_MS {
            self.close_message(out);
            self.rules.start_ms = self.rules.latest_ms.saturating_sub(UPTIME_BEFORE_MS);
        }
    }

    pub(super) fn handle_time(&mut self, out: &mut MessageBuffer) {
        self.advance(out);
        if self.repeats.due_ns <= out.now_ns {
            self.repeat(out);
        }
        if self.statistics_due_ns <= out.now_ns {
            self.send_statistics(out);
        }
    }

    pub(super) fn add(&mut self, records: &[FlowRecord], out: &mut MessageBuffer) {
        self.advance(out);
        let mut sum = Amount::default();
        for record in records {
            let amount = Amount::of(record);
            sum += amount;
            match record.reverse.filter(|_| !self.is_ipfix()) {
                None => self.add_one(record, amount, out),
                Some(_) => {
                    out.totals.split += 1;
                    out.totals.exported.records += 1;
                    for way in record.both_ways() {
                        self.add_one(&way, Amount::of(&way), out);
                    }
                }
            }
        }
        out.totals.handled += sum;
        out.totals.exported += sum;
    }

    #[inline(always)]
    fn add_one(&mut self, record: &FlowRecord, amount: Amount, out: &mut MessageBuffer) {
        let shape = shape::shape_of(record, &self.rules);
        let sampler = match record.sampling_interval {
            1 => 0,
            SAMPLING_UNKNOWN => SAMPLER_UNKNOWN,
            interval => self.sampler(interval, out),
        };
        let texts = if shape.has_texts() { shape::texts(record) } else { Vec::new() };
        if self.set != shape.template_id() || out.left() < self.record_bytes + texts.len() {
            self.begin_records(shape, texts.len(), out);
        }
        let place = out.take(self.record_bytes + texts.len());
        shape::write(record, shape, (sampler, &texts), &self.rules, place);
        out.counts += amount;
        self.message_records += 1;
        self.message_data += 1;
    }

    /// Makes room for a record of this shape, with this many bytes of texts, in a set of its kind, and announces the
    /// template if necessary.
    #[cold]
    fn begin_records(&mut self, shape: Shape, text_bytes: usize, out: &mut MessageBuffer) {
        self.speak_of_flows(out);
        let bytes = match self.announced.shapes.get(&shape) {
            Some(bytes) => *bytes,
            None => {
                let fields = shape::fields(shape, &self.rules);
                self.put_template(shape.template_id(), &fields, out);
                self.announced.shapes.insert(shape, shape::record_bytes(&fields));
                self.repeat_soon(out.now_ns);
                shape::record_bytes(&fields)
            }
        };
        self.make_room(shape.template_id(), bytes + text_bytes, out);
        self.record_bytes = bytes;
    }

    pub(super) fn add_nat_event(&mut self, event: &NatEvent, out: &mut MessageBuffer) {
        self.advance(out);
        self.speak_of_flows(out);
        let mut record = std::mem::take(&mut self.scratch);
        record.clear();
        let template = nat::write(event, &mut record);
        if !self.announced.nat.contains_key(&template) {
            let fields = nat::template(event);
            self.put_template(template, &fields, out);
            self.announced.nat.insert(template, fields);
            self.repeat_soon(out.now_ns);
        }
        self.put_data(template, &record, out);
        self.scratch = record;
        let amount = Amount { records: 1, ..Amount::default() };
        out.counts += amount;
        out.totals.exported += amount;
    }

    /// The number of the sampler with this interval; a new sampler is announced.
    fn sampler(&mut self, interval: u32, out: &mut MessageBuffer) -> u8 {
        if let Some(place) = self.samplers.iter().position(|&known| known == interval) {
            return place as u8 + 1;
        }
        if self.samplers.len() < SAMPLERS_MAX {
            self.samplers.push(interval);
            self.put_context(Context::Samplers, Domain::Own, out);
            self.repeat_soon(out.now_ns);
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
    fn repeat(&mut self, out: &mut MessageBuffer) {
        let repeats = &mut self.repeats;
        repeats.under_way = true;
        repeats.messages = 0;
        match self.options.transport {
            Transport::Datagram => {
                repeats.due_ns = out.now_ns + repeats.interval_ns;
                repeats.interval_ns = (repeats.interval_ns * 2).min(self.options.template_interval_ns);
            }
            Transport::Stream => repeats.due_ns = u64::MAX,
        }
        self.speak_for(Domain::Own, out);
        let shapes = std::mem::take(&mut self.announced.shapes);
        for shape in shapes.keys() {
            self.put_template(shape.template_id(), &shape::fields(*shape, &self.rules), out);
        }
        self.announced.shapes = shapes;
        let nat = std::mem::take(&mut self.announced.nat);
        nat.iter().for_each(|(template, fields)| self.put_template(*template, fields, out));
        self.announced.nat = nat;
        let again = std::mem::take(&mut self.announced.contexts);
        let aside = self.aside();
        let was_said = |context: Context| (again[0] | again[1]) & context.bit() != 0;
        let known = [Context::Samplers, Context::Interfaces, Context::Applications];
        for (domain, said) in [(Domain::Own, false), (aside, true)] {
            for context in known.into_iter().filter(|context| was_said(*context) == said) {
                self.put_context(context, domain, out);
            }
        }
        for context in Context::STATISTICS {
            if was_said(context) {
                self.speak_for(aside, out);
                self.announce_context(context, out);
            }
        }
        self.repeats.under_way = false;
    }

    /// Replaces the interfaces and announces them where repetitions go.
    pub(super) fn set_interfaces(&mut self, interfaces: Vec<Interface>, out: &mut MessageBuffer) {
        self.options.interfaces = interfaces;
        self.put_context(Context::Interfaces, self.aside(), out);
    }

    pub(super) fn send_statistics(&mut self, out: &mut MessageBuffer) {
        self.statistics_due_ns = out.now_ns.saturating_add(self.options.statistics_interval_ns);
        for context in Context::STATISTICS {
            self.put_context(context, self.aside(), out);
        }
    }

    /// Sends options data in a domain, preceded by its template if that domain does not have it yet.
    fn put_context(&mut self, context: Context, domain: Domain, out: &mut MessageBuffer) {
        let told = context::Told {
            options: &self.options,
            samplers: &self.samplers,
            statistics: &self.statistics,
            totals: &out.totals,
        };
        let records = context.records(&told);
        if records.is_empty() {
            return;
        }
        self.speak_for(domain, out);
        if self.is_ipfix() && self.message_data > 0 && !self.has_options {
            self.close_message(out);
        }
        self.announce_context(context, out);
        for record in &records {
            self.put_data(context.template_id(), record, out);
            self.has_options = true;
        }
    }

    fn announce_context(&mut self, context: Context, out: &mut MessageBuffer) {
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
        self.make_room(set, template.len(), out);
        out.put(&template);
        self.message_records += 1;
    }

    fn put_template(&mut self, id: u16, fields: &[TemplateField], out: &mut MessageBuffer) {
        let mut template = Vec::with_capacity(4 + 8 * fields.len());
        template.extend_from_slice(&id.to_be_bytes());
        template.extend_from_slice(&(fields.len() as u16).to_be_bytes());
        for field in fields {
            let has_enterprise = if field.enterprise == 0 { 0 } else { 0x8000 };
            template.extend_from_slice(&(field.element | has_enterprise).to_be_bytes());
            template.extend_from_slice(&field.bytes.to_be_bytes());
            if field.enterprise != 0 {
                template.extend_from_slice(&field.enterprise.to_be_bytes());
            }
        }
        let set = if self.is_ipfix() { 2 } else { 0 };
        self.make_room(set, template.len(), out);
        out.put(&template);
        self.message_records += 1;
    }

    fn put_data(&mut self, set: u16, record: &[u8], out: &mut MessageBuffer) {
        self.make_room(set, record.len(), out);
        out.put(record);
        self.message_records += 1;
        self.message_data += 1;
    }

    /// Ensures that the set with this number is open and has room for this many bytes, in a new message if
    /// necessary.
    ///
    /// Numbers of template sets are below 4 and include 0, so an open template set is stored as its number
    /// plus one, and a data set as its number.
    fn make_room(&mut self, set: u16, bytes: usize, out: &mut MessageBuffer) {
        let open_as = if set < 4 { set + 1 } else { set };
        if self.set == open_as && out.left() >= bytes {
            return;
        }
        self.close_set(out);
        if out.is_open() && out.left() < SET_HEADER_BYTES + bytes {
            self.close_message(out);
        }
        if !out.is_open() {
            self.open_message(out);
            let due =
                self.repeats.due_ns <= out.now_ns || self.repeats.messages >= self.options.template_messages;
            if due && !self.repeats.under_way && self.domain == Domain::Own {
                self.repeat(out);
                self.speak_of_flows(out);
                self.close_set(out);
                if out.is_open() && out.left() < SET_HEADER_BYTES + bytes {
                    self.close_message(out);
                }
                if !out.is_open() {
                    self.open_message(out);
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

    fn open_message(&mut self, out: &mut MessageBuffer) {
        let header_bytes = if self.is_ipfix() { 16 } else { 20 };
        out.open(header_bytes, if self.is_ipfix() { 1 } else { 4 });
        self.message_records = 0;
        self.message_data = 0;
        self.has_options = false;
    }

    pub(super) fn close_message(&mut self, out: &mut MessageBuffer) {
        if !out.is_open() {
            return;
        }
        self.close_set(out);
        self.now_ns = self.now_ns.max(out.now_ns);
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
        out.totals.messages += 1;
        out.totals.message_bytes += out.close() as u64;
        self.message_records = 0;
        self.has_options = false;
    }
}

fn put_words(out: &mut MessageBuffer, words: &[u32]) {
    for (n, word) in words.iter().enumerate() {
        out.patch(4 * n, &word.to_be_bytes());
    }
}
