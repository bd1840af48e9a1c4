//! A slow and plain reader of NetFlow 5, 9 and IPFIX: everything by look-up, every rule checked, any fault a
//! panic.

use std::collections::BTreeMap;
use std::net::IpAddr;
use thalweg_wire::netflow::element::{REVERSE_ENTERPRISE, *};

/// A data record: values by enterprise number and element.
pub(crate) type Fields = BTreeMap<(u32, u16), Vec<u8>>;

/// The contents of one session.
#[derive(Default)]
pub(crate) struct Reader {
    /// By domain and number.
    templates: BTreeMap<(u32, u16), Template>,
    /// Data records of flows and NAT events, in order.
    pub(crate) flows: Vec<Fields>,
    /// Data records of options, with the number of their template.
    pub(crate) options: Vec<(u16, Fields)>,
    /// Template records seen, by number.
    pub(crate) announced: BTreeMap<u16, u32>,
    expected_sequences: BTreeMap<u32, u32>,
    /// Messages were lost, so any next sequence number is accepted in each domain.
    is_late: bool,
    /// Export times, seconds since the epoch.
    pub(crate) times_s: Vec<u32>,
    /// NetFlow 5 and 9: when uptime was 0, milliseconds since the epoch.
    pub(crate) start_ms: u64,
    /// Data records in each message.
    pub(crate) data_records: Vec<usize>,
    /// The session's domain.
    pub(crate) domain: u32,
    /// The domain of the current message; 0 stands for the exporter as a whole.
    spoken_for: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Template {
    fields: Vec<(u32, u16, u16)>,
    is_options: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

pub(crate) fn address(bytes: &[u8]) -> IpAddr {
    match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).unwrap()),
    }
}

impl Reader {
    /// A reader after reading these messages of one session.
    pub(crate) fn of<'a>(messages: impl IntoIterator<Item = &'a Vec<u8>>) -> Self {
        let mut reader = Self::default();
        messages.into_iter().for_each(|message| reader.read(message));
        reader
    }

    /// Reads a message; its sequence number must be the one expected, 0 at first.
    pub(crate) fn read(&mut self, message: &[u8]) {
        let before = self.flows.len() + self.options.len();
        let (sequence, domain) = match u16_at(message, 0) {
            5 => (u32_at(message, 16), u32::from(message[21])),
            9 => (u32_at(message, 12), u32_at(message, 16)),
            10 => (u32_at(message, 8), u32_at(message, 12)),
            version => panic!("version {version}"),
        };
        let begins_with = if self.is_late { sequence } else { 0 };
        let expected = *self.expected_sequences.get(&domain).unwrap_or(&begins_with);
        assert_eq!(sequence, expected, "sequence number of domain {domain}");
        self.spoken_for = domain;
        if domain != 0 {
            self.domain = domain;
        }
        match u16_at(message, 0) {
            5 => self.read_v5(message),
            9 => self.read_v9(message),
            _ => self.read_ipfix(message),
        }
        let data = self.flows.len() + self.options.len() - before;
        self.data_records.push(data);
        let step = if u16_at(message, 0) == 9 { 1 } else { data as u32 };
        self.expected_sequences.insert(domain, sequence.wrapping_add(step));
    }

    /// Messages were lost: accepts any next sequence numbers.
    pub(crate) fn lose_messages(&mut self) {
        self.expected_sequences.clear();
        self.is_late = true;
    }

    fn read_v5(&mut self, message: &[u8]) {
        let count = usize::from(u16_at(message, 2));
        assert!(count > 0 && count <= 30);
        assert_eq!(message.len(), 24 + 48 * count);
        self.times_s.push(u32_at(message, 8));
        let residual_ms = u64::from(u32_at(message, 12) / 1_000_000);
        self.start_ms = u64::from(u32_at(message, 8)) * 1000 + residual_ms - u64::from(u32_at(message, 4));
        let sampling = u16_at(message, 22);
        for record in message[24..].chunks(48) {
            assert!(number(&record[28..32]) <= u64::from(u32_at(message, 4)), "later than its message");
            let layout = [
                (SOURCE_IPV4_ADDRESS, 0, 4),
                (DESTINATION_IPV4_ADDRESS, 4, 4),
                (IP_NEXT_HOP_IPV4_ADDRESS, 8, 4),
                (INGRESS_INTERFACE, 12, 2),
                (EGRESS_INTERFACE, 14, 2),
                (PACKET_DELTA_COUNT, 16, 4),
                (OCTET_DELTA_COUNT, 20, 4),
                (SOURCE_TRANSPORT_PORT, 32, 2),
                (DESTINATION_TRANSPORT_PORT, 34, 2),
                (TCP_CONTROL_BITS, 37, 1),
                (PROTOCOL_IDENTIFIER, 38, 1),
                (IP_CLASS_OF_SERVICE, 39, 1),
                (BGP_SOURCE_AS_NUMBER, 40, 2),
                (BGP_DESTINATION_AS_NUMBER, 42, 2),
            ];
            let mut fields: Fields =
                layout.map(|(element, at, bytes)| ((0, element), record[at..at + bytes].to_vec())).into();
            // As absolute times, because each message of version 5 may have another start.
            for (element, at) in [(FLOW_START_MILLISECONDS, 24), (FLOW_END_MILLISECONDS, 28)] {
                let ms = self.start_ms + u64::from(u32_at(record, at));
                fields.insert((0, element), ms.to_be_bytes().to_vec());
            }
            fields.insert((0, SAMPLING_INTERVAL), (sampling & 0x3fff).to_be_bytes().to_vec());
            self.flows.push(fields);
        }
    }

    fn read_v9(&mut self, message: &[u8]) {
        self.times_s.push(u32_at(message, 8));
        let start_ms = u64::from(u32_at(message, 8)) * 1000 - u64::from(u32_at(message, 4));
        self.start_ms = start_ms;
        let (uptime_ms, first) = (u64::from(u32_at(message, 4)), self.flows.len());
        let records = self.read_sets(&message[20..], 9);
        for flow in &mut self.flows[first..] {
            for (uptime, absolute) in [
                (FLOW_START_SYS_UP_TIME, FLOW_START_MILLISECONDS),
                (FLOW_END_SYS_UP_TIME, FLOW_END_MILLISECONDS),
            ] {
                if let Some(value) = flow.remove(&(0, uptime)) {
                    assert!(number(&value) <= uptime_ms, "later than its message");
                    flow.insert((0, absolute), (start_ms + number(&value)).to_be_bytes().to_vec());
                }
            }
        }
        assert_eq!(usize::from(u16_at(message, 2)), records, "count of records");
    }

    fn read_ipfix(&mut self, message: &[u8]) {
        assert_eq!(usize::from(u16_at(message, 2)), message.len());
        self.times_s.push(u32_at(message, 4));
        self.read_sets(&message[16..], 10);
    }

    /// Reads sets up to the end of a message; returns the number of records of any kind.
    fn read_sets(&mut self, mut rest: &[u8], version: u16) -> usize {
        let mut records = 0;
        assert!(!rest.is_empty(), "a message without a set");
        while !rest.is_empty() {
            let (id, length) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
            assert!(length > 4, "an empty set");
            assert!(version == 10 || length.is_multiple_of(4), "FlowSets end at multiples of four bytes");
            let set = &rest[4..length];
            rest = &rest[length..];
            records += match (version, id) {
                (9, 0) | (10, 2) => self.read_templates(set),
                (9, 1) => self.read_netflow9_options(set),
                (10, 3) => self.read_ipfix_options(set),
                _ => self.read_data(id, set),
            };
        }
        records
    }

    fn keep(&mut self, id: u16, template: Template) {
        assert!(id >= 256);
        *self.announced.entry(id).or_default() += 1;
        if let Some(known) = self.templates.insert((self.spoken_for, id), template.clone()) {
            assert_eq!(known, template, "a template changed its meaning");
        }
    }

    fn field(rest: &[u8], with_enterprise: bool) -> ((u32, u16, u16), &[u8]) {
        let (element, bytes) = (u16_at(rest, 0), u16_at(rest, 2));
        if with_enterprise && element & 0x8000 != 0 {
            ((u32_at(rest, 4), element & 0x7fff, bytes), &rest[8..])
        } else {
            assert!(element < 0x8000);
            ((0, element, bytes), &rest[4..])
        }
    }

    fn read_templates(&mut self, mut rest: &[u8]) -> usize {
        let mut records = 0;
        // Padding is shorter than any template.
        while rest.len() >= 8 {
            let (id, count) = (u16_at(rest, 0), u16_at(rest, 2));
            rest = &rest[4..];
            let mut fields = Vec::new();
            for _ in 0..count {
                let (field, after) = Self::field(rest, true);
                check_length(field);
                fields.push(field);
                rest = after;
            }
            self.keep(id, Template { fields, is_options: false });
            records += 1;
        }
        records
    }

    fn read_ipfix_options(&mut self, mut rest: &[u8]) -> usize {
        let mut records = 0;
        while rest.len() >= 10 {
            let (id, count, scopes) = (u16_at(rest, 0), u16_at(rest, 2), u16_at(rest, 4));
            assert!(scopes > 0 && scopes <= count);
            rest = &rest[6..];
            let mut fields = Vec::new();
            for _ in 0..count {
                let (field, after) = Self::field(rest, true);
                check_length(field);
                fields.push(field);
                rest = after;
            }
            self.keep(id, Template { fields, is_options: true });
            records += 1;
        }
        assert!(rest.is_empty());
        records
    }

    fn read_netflow9_options(&mut self, mut rest: &[u8]) -> usize {
        let mut records = 0;
        while rest.len() >= 10 {
            let (id, scope_bytes, option_bytes) = (u16_at(rest, 0), u16_at(rest, 2), u16_at(rest, 4));
            let bytes = usize::from(scope_bytes + option_bytes);
            let mut fields = Vec::new();
            for (n, field) in rest[6..6 + bytes].chunks(4).enumerate() {
                // Scopes are not elements of the registry, so they get an enterprise number that does not exist.
                let enterprise = if 4 * n < usize::from(scope_bytes) { u32::MAX } else { 0 };
                fields.push((enterprise, u16_at(field, 0), u16_at(field, 2)));
            }
            self.keep(id, Template { fields, is_options: true });
            rest = &rest[6 + bytes..];
            records += 1;
        }
        records
    }

    fn read_data(&mut self, id: u16, mut rest: &[u8]) -> usize {
        let template = self.templates.get(&(self.spoken_for, id));
        let template = template.unwrap_or_else(|| panic!("data before its template {id}")).clone();
        let bytes_min: usize = template
            .fields
            .iter()
            .map(|&(_, _, bytes)| if bytes == 65_535 { 1 } else { usize::from(bytes) })
            .sum();
        let mut records = 0;
        while rest.len() >= bytes_min {
            let mut fields = Fields::new();
            for &(enterprise, element, bytes) in &template.fields {
                let mut bytes = usize::from(bytes);
                if bytes == 65_535 {
                    bytes = usize::from(rest[0]);
                    rest = &rest[1..];
                    assert!(bytes < 255);
                }
                fields.insert((enterprise, element), rest[..bytes].to_vec());
                rest = &rest[bytes..];
            }
            assert_eq!(fields.len(), template.fields.len(), "a field twice");
            if template.is_options {
                self.options.push((id, fields));
            } else {
                self.flows.push(fields);
            }
            records += 1;
        }
        assert!(rest.len() < 4 && rest.iter().all(|&byte| byte == 0), "padding {rest:?}");
        assert!(records > 0);
        records
    }
}

/// The element must be known, and its length possible.
fn check_length((enterprise, id, bytes): (u32, u16, u16)) {
    assert!(enterprise == 0 || enterprise == REVERSE_ENTERPRISE);
    let Some(element) = element(id) else { return };
    match (element.data_type, element.data_type.bytes()) {
        (DataType::Unsigned(_), Some(most)) => assert!((1..=most).contains(&bytes), "{}", element.name),
        (_, Some(exact)) => assert_eq!(bytes, exact, "{}", element.name),
        (_, None) => {}
    }
}
