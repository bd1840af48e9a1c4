//! A record as a line: JSON for programs that want names, CSV for those that want columns.
//!
//! One row of [`COLUMNS`] gives a value its name in both. A line of JSON has only what is known; a line of CSV has every
//! column, empty where nothing is known. Numbers are whole numbers: times are nanoseconds since the epoch, which JSON's
//! readers must take as 64-bit integers. Names are in docs/probe.md. Messages have the same columns: JSON without the end of
//! the line, or protocol buffers (`protobuf.rs`).

use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;

use thalweg_flow::{Counters, FlowRecord, NO_AS, NO_INTERFACE, SAMPLING_UNKNOWN};

use crate::interfaces::Interfaces;

/// What stands in a column.
pub(crate) enum Value<'a> {
    Number(u64),
    Address(IpAddr),
    Text(&'a str),
    Unknown,
}

/// A column: its name and how its value is had.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) value: for<'a> fn(&FlowRecord, &'a Interfaces) -> Value<'a>,
}

/// Every column, in the order of CSV.
pub(crate) const COLUMNS: &[Column] = &[
    column("first_ns", |r, _| Value::Number(r.counters.first_ns)),
    column("last_ns", |r, _| Value::Number(r.counters.last_ns)),
    column("src", |r, _| Value::Address(r.key.src)),
    column("dst", |r, _| Value::Address(r.key.dst)),
    column("src_port", |r, _| Value::Number(r.key.src_port.into())),
    column("dst_port", |r, _| Value::Number(r.key.dst_port.into())),
    column("protocol", |r, _| Value::Number(r.key.protocol.into())),
    column("traffic_class", |r, _| Value::Number(r.key.traffic_class.into())),
    column("ingress", |r, interfaces| interface(r.key.ingress, interfaces)),
    column("egress", |r, interfaces| interface(r.egress, interfaces)),
    column("vlan", |r, _| unless(r.key.vlan.into(), 0)),
    column("mpls_label", |r, _| number(r.key.mpls_label)),
    column("packets", |r, _| Value::Number(r.counters.packets)),
    column("bytes", |r, _| Value::Number(r.counters.bytes)),
    column("tcp_flags", |r, _| number(r.counters.tcp_flags)),
    column("ttl_min", |r, _| number(r.counters.ttl_min)),
    column("ttl_max", |r, _| number(r.counters.ttl_max)),
    column("reverse_packets", |r, _| reverse(r, |c| Some(c.packets))),
    column("reverse_bytes", |r, _| reverse(r, |c| Some(c.bytes))),
    column("reverse_first_ns", |r, _| reverse(r, |c| Some(c.first_ns))),
    column("reverse_last_ns", |r, _| reverse(r, |c| Some(c.last_ns))),
    column("reverse_tcp_flags", |r, _| reverse(r, |c| c.tcp_flags.map(u64::from))),
    column("reverse_ttl_min", |r, _| reverse(r, |c| c.ttl_min.map(u64::from))),
    column("reverse_ttl_max", |r, _| reverse(r, |c| c.ttl_max.map(u64::from))),
    column("end_reason", |r, _| match r.end_reason {
        Some(reason) => Value::Text(reason.name()),
        None => Value::Unknown,
    }),
    column("application", |r, _| match thalweg_wire::application::by_code(r.application) {
        Some(application) => Value::Text(application.name),
        None => Value::Unknown,
    }),
    column("next_hop", |r, _| address(r.next_hop)),
    column("src_as", |r, _| unless(r.src_as, NO_AS)),
    column("dst_as", |r, _| unless(r.dst_as, NO_AS)),
    column("bgp_next_hop", |r, _| address(r.bgp_next_hop)),
    column("nat_src", |r, _| address(r.translation.map(|nat| nat.src))),
    column("nat_dst", |r, _| address(r.translation.map(|nat| nat.dst))),
    column("nat_src_port", |r, _| number(r.translation.map(|nat| nat.src_port))),
    column("nat_dst_port", |r, _| number(r.translation.map(|nat| nat.dst_port))),
    column("dropped_packets", |r, _| Value::Number(r.drops.packets())),
    column("dropped_bytes", |r, _| Value::Number(r.drops.bytes)),
    column("sampling_interval", |r, _| unless(r.sampling_interval, SAMPLING_UNKNOWN)),
    column("icmp_type", |r, _| number(r.key.icmp().map(|(icmp_type, _)| icmp_type))),
    column("icmp_code", |r, _| number(r.key.icmp().map(|(_, code)| code))),
];

const fn column(name: &'static str, value: for<'a> fn(&FlowRecord, &'a Interfaces) -> Value<'a>) -> Column {
    Column { name, value }
}

fn interface(number: u32, interfaces: &Interfaces) -> Value<'_> {
    interfaces.name(number).map_or_else(|| unless(number, NO_INTERFACE), Value::Text)
}

fn reverse(record: &FlowRecord, of: impl Fn(&Counters) -> Option<u64>) -> Value<'static> {
    number(record.reverse.as_ref().and_then(of))
}

fn number(value: Option<impl Into<u64>>) -> Value<'static> {
    value.map_or(Value::Unknown, |value| Value::Number(value.into()))
}

fn address(value: Option<IpAddr>) -> Value<'static> {
    value.map_or(Value::Unknown, Value::Address)
}

fn unless(value: u32, unknown: u32) -> Value<'static> {
    if value == unknown { Value::Unknown } else { Value::Number(value.into()) }
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineFormat {
    Json,
    Csv,
}

impl LineFormat {
    /// What stands before the first record.
    pub(crate) fn header(self) -> String {
        match self {
            Self::Json => String::new(),
            Self::Csv => {
                let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
                names.join(",") + "\n"
            }
        }
    }

    /// Appends a record's line.
    pub(crate) fn write(self, record: &FlowRecord, interfaces: &Interfaces, line: &mut Vec<u8>) {
        match self {
            Self::Json => write_json(record, interfaces, line),
            Self::Csv => write_csv(record, interfaces, line),
        }
    }
}

fn write_json(record: &FlowRecord, interfaces: &Interfaces, line: &mut Vec<u8>) {
    let mut before = b'{';
    for column in COLUMNS {
        let value = (column.value)(record, interfaces);
        if matches!(value, Value::Unknown) {
            continue;
        }
        line.push(before);
        before = b',';
        put(line, format_args!("\"{}\":", column.name));
        match value {
            Value::Number(number) => put(line, number),
            Value::Address(address) => put(line, format_args!("\"{address}\"")),
            Value::Text(text) => put_json_text(line, text),
            Value::Unknown => {}
        }
    }
    line.extend_from_slice(b"}\n");
}

fn write_csv(record: &FlowRecord, interfaces: &Interfaces, line: &mut Vec<u8>) {
    for (place, column) in COLUMNS.iter().enumerate() {
        if place > 0 {
            line.push(b',');
        }
        match (column.value)(record, interfaces) {
            Value::Number(number) => put(line, number),
            Value::Address(address) => put(line, address),
            Value::Text(text) => put_csv_text(line, text),
            Value::Unknown => {}
        }
    }
    line.push(b'\n');
}

fn put(line: &mut Vec<u8>, value: impl Display) {
    // Writing to memory cannot fail.
    let _ = write!(line, "{value}");
}

/// RFC 8259, 7.
fn put_json_text(line: &mut Vec<u8>, text: &str) {
    line.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => put(line, format_args!("\\{character}")),
            control if control < ' ' => put(line, format_args!("\\u{:04x}", u32::from(control))),
            other => put(line, other),
        }
    }
    line.push(b'"');
}

/// RFC 4180, 2.
fn put_csv_text(line: &mut Vec<u8>, text: &str) {
    if text.contains(['"', ',', '\n', '\r']) {
        put(line, format_args!("\"{}\"", text.replace('"', "\"\"")));
    } else {
        line.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_flow::{EndReason, FlowKey, Translation};

    fn record() -> FlowRecord {
        let key = FlowKey {
            src: "2001:db8::1".parse().expect("an address"),
            dst: "2001:db8::2".parse().expect("an address"),
            src_port: 50_000,
            dst_port: 53,
            protocol: 17,
            traffic_class: 0xb8,
            ingress: 2,
            vlan: 7,
            mpls_label: None,
        };
        let counters = Counters {
            packets: 2,
            bytes: 120,
            first_ns: 1_700_000_000_123_456_789,
            last_ns: 1_700_000_001_000_000_000,
            tcp_flags: None,
            ttl_min: Some(63),
            ttl_max: Some(64),
        };
        FlowRecord::new(key, counters, EndReason::IdleTimeout)
    }

    fn line(format: LineFormat, record: &FlowRecord) -> String {
        let interfaces = Interfaces::counted(["lan".to_owned(), "a \"b\", c".to_owned()]);
        let mut line = Vec::new();
        format.write(record, &interfaces, &mut line);
        String::from_utf8(line).expect("text")
    }

    #[test]
    fn json_says_what_is_known_and_nothing_else() {
        let text = line(LineFormat::Json, &record());
        let json: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(json["first_ns"], 1_700_000_000_123_456_789_u64);
        assert_eq!(json["src"], "2001:db8::1");
        assert_eq!(json["ingress"], "a \"b\", c");
        assert_eq!(json["vlan"], 7);
        assert_eq!(json["end_reason"], "idle-timeout");
        let unknown = [
            "tcp_flags",
            "icmp_type",
            "egress",
            "mpls_label",
            "reverse_packets",
            "application",
            "src_as",
            "nat_src",
        ];
        assert!(unknown.iter().all(|name| json.get(name).is_none()), "{text}");
        assert!(text.ends_with("}\n") && text.lines().count() == 1);
    }

    #[test]
    fn json_of_a_translated_biflow_has_all_of_it() {
        let mut record = record();
        record.reverse = Some(Counters { packets: 9, ..record.counters });
        record.translation =
            Some(Translation { src: record.key.dst, dst: record.key.src, src_port: 1, dst_port: 2 });
        record.application = 8;
        let json: serde_json::Value = serde_json::from_str(&line(LineFormat::Json, &record)).expect("JSON");
        assert_eq!((&json["reverse_packets"], &json["nat_dst_port"]), (&9.into(), &2.into()));
        assert_eq!(json["application"], "dns");
    }

    #[test]
    fn what_is_not_known_is_left_out_and_icmp_has_type_and_code() {
        let mut record = record();
        record.counters = Counters { ttl_min: None, ttl_max: None, ..record.counters };
        (record.end_reason, record.key.ingress, record.sampling_interval) = (None, 0, 0);
        let json: serde_json::Value = serde_json::from_str(&line(LineFormat::Json, &record)).expect("JSON");
        for name in ["ttl_min", "ttl_max", "end_reason", "ingress", "sampling_interval"] {
            assert_eq!(json.get(name), None, "{name}");
        }
        (record.key.protocol, record.key.dst_port, record.key.ingress) = (58, 135 << 8 | 3, 70_000);
        let json: serde_json::Value = serde_json::from_str(&line(LineFormat::Json, &record)).expect("JSON");
        assert_eq!((&json["icmp_type"], &json["icmp_code"]), (&135.into(), &3.into()));
        assert_eq!(json["ingress"], 70_000, "a number without a name");
    }

    #[test]
    fn csv_has_a_field_for_every_name() {
        let mut plain = record();
        plain.key.ingress = 1;
        let header = LineFormat::Csv.header();
        let text = line(LineFormat::Csv, &plain);
        assert_eq!(header.trim_end().split(',').count(), COLUMNS.len());
        assert_eq!(text.trim_end().split(',').count(), COLUMNS.len());
        assert!(text.starts_with(
            "1700000000123456789,1700000001000000000,2001:db8::1,2001:db8::2,50000,53,17,184,lan,,7,,2,120,"
        ));
        assert!(line(LineFormat::Csv, &record()).contains(",\"a \"\"b\"\", c\","));
    }

    #[test]
    fn every_column_is_in_the_manual() {
        let manual = include_str!("../../../docs/probe.md");
        for column in COLUMNS {
            assert!(
                manual.contains(&format!("`{}`", column.name)),
                "{} is not in docs/probe.md",
                column.name
            );
        }
    }
}
