//! A record as a message of protocol buffers: the columns of lines, numbered and typed by `proto/flow_record.proto`.
//!
//! That file is the schema for everybody, us included: numbers and types are read from it, so the two cannot say different
//! things. Fields are written in the order of their numbers, and only where something is known.
//!
//! Encoding: <https://protobuf.dev/programming-guides/encoding/>, of which varints and bytes with a length are used.

use std::io::Write;
use std::net::IpAddr;

use thalweg_flow::FlowRecord;

use crate::columns::{COLUMNS, Column, Value};
use crate::interfaces::Interfaces;

const SCHEMA: &str = include_str!("../proto/flow_record.proto");

/// Wire types.
const VARINT: u32 = 0;
const WITH_LENGTH: u32 = 2;

/// See the module.
pub(crate) struct Protobuf {
    fields: Vec<Field>,
}

struct Field {
    number: u32,
    kind: Kind,
    column: &'static Column,
}

/// Types of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `uint32`, `uint64`: the same on the wire.
    Number,
    /// `bytes`: an address, 4 or 16 bytes.
    Address,
    /// `string`; numbers in decimal.
    Text,
}

impl Protobuf {
    /// The fields as the schema has them.
    pub(crate) fn new() -> Self {
        let of_column = |column: &'static Column| {
            let (kind, number) = declared(column.name)?;
            Some(Field { number, kind, column })
        };
        let mut fields: Vec<Field> = COLUMNS.iter().filter_map(of_column).collect();
        fields.sort_unstable_by_key(|field| field.number);
        Self { fields }
    }

    /// Appends a record.
    pub(crate) fn write(&self, record: &FlowRecord, interfaces: &Interfaces, message: &mut Vec<u8>) {
        for field in &self.fields {
            match ((field.column.value)(record, interfaces), field.kind) {
                (Value::Number(number), Kind::Number) => {
                    put_varint(message, u64::from(field.number << 3 | VARINT));
                    put_varint(message, number);
                }
                (Value::Number(number), _) => {
                    let mut text = [0; 20];
                    let mut rest = &mut text[..];
                    // Twenty digits are the longest that 64 bits give.
                    let _ = write!(rest, "{number}");
                    let length = 20 - rest.len();
                    put_bytes(message, field.number, &text[..length]);
                }
                (Value::Address(IpAddr::V4(address)), _) => {
                    put_bytes(message, field.number, &address.octets());
                }
                (Value::Address(IpAddr::V6(address)), _) => {
                    put_bytes(message, field.number, &address.octets());
                }
                (Value::Text(text), _) => put_bytes(message, field.number, text.as_bytes()),
                (Value::Unknown, _) => {}
            }
        }
    }
}

/// What the schema says of a field: its line is `optional TYPE NAME = NUMBER;`.
fn declared(name: &str) -> Option<(Kind, u32)> {
    SCHEMA.lines().find_map(|line| {
        let (declaration, _) = line.split_once(';')?;
        let mut words = declaration.split_whitespace();
        let is_field = words.next() == Some("optional");
        let kind = match words.next()? {
            "uint32" | "uint64" => Kind::Number,
            "bytes" => Kind::Address,
            "string" => Kind::Text,
            _ => return None,
        };
        let is_it = is_field && words.next() == Some(name) && words.next() == Some("=");
        let number = words.next()?.parse().ok()?;
        is_it.then_some((kind, number))
    })
}

fn put_bytes(message: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(message, u64::from(number << 3 | WITH_LENGTH));
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use thalweg_base::DropReason;
    use thalweg_flow::{Counters, EndReason, FlowKey, Translation};

    /// A record of which everything is known.
    fn full() -> FlowRecord {
        let key = FlowKey {
            src: "2001:db8::1".parse().expect("an address"),
            dst: "2001:db8::2".parse().expect("an address"),
            src_port: 50_000,
            dst_port: 53,
            protocol: 17,
            traffic_class: 0xb8,
            ingress: 2,
            vlan: 7,
            mpls_label: Some(0),
        };
        let counters = Counters {
            packets: 2,
            bytes: u64::MAX,
            first_ns: 1_700_000_000_123_456_789,
            last_ns: 1_700_000_001_000_000_000,
            tcp_flags: Some(0x12),
            ttl_min: Some(63),
            ttl_max: Some(64),
        };
        let mut record = FlowRecord::new(key, counters, EndReason::IdleTimeout);
        record.reverse = Some(Counters { packets: 300, bytes: 127, ttl_min: Some(1), ..counters });
        record.application = 8;
        record.egress = 40;
        record.next_hop = "192.0.2.1".parse().ok();
        record.bgp_next_hop = "2001:db8::9".parse().ok();
        (record.src_as, record.dst_as) = (64_500, u32::MAX);
        let nat = "198.51.100.7".parse().expect("an address");
        record.translation = Some(Translation { src: nat, dst: nat, src_port: 128, dst_port: 0 });
        record.drops.add(DropReason::ALL[0], 1, 60);
        record.sampling_interval = 16_384;
        record
    }

    #[test]
    fn the_schema_has_every_column_once() {
        let fields = Protobuf::new().fields;
        assert_eq!(
            fields.len(),
            COLUMNS.len(),
            "a column is not in proto/flow_record.proto, or its type is new"
        );
        let numbers: BTreeSet<u32> = fields.iter().map(|field| field.number).collect();
        assert_eq!(numbers.len(), fields.len(), "a number stands for two fields");
        let declared = SCHEMA.lines().filter(|line| line.trim_start().starts_with("optional ")).count();
        assert_eq!(declared, fields.len(), "a field of the schema is no column");
        let record = full();
        let icmp = FlowRecord { key: FlowKey { protocol: 1, ..record.key }, ..record };
        for field in &fields {
            let record = if field.column.name.starts_with("icmp") { &icmp } else { &record };
            let fits = match (field.column.value)(record, &Interfaces::counted(["lan".to_owned()])) {
                Value::Number(_) => matches!(field.kind, Kind::Number | Kind::Text),
                Value::Address(_) => field.kind == Kind::Address,
                Value::Text(_) => field.kind == Kind::Text,
                Value::Unknown => panic!("{} is not known", field.column.name),
            };
            assert!(fits, "{}: {:?}", field.column.name, field.kind);
        }
    }

    #[test]
    fn bytes_are_those_of_the_encoding() {
        let mut message = Vec::new();
        put_varint(&mut message, 150);
        put_bytes(&mut message, 2, b"testing");
        // Both from the manual of protocol buffers.
        assert_eq!(message, b"\x96\x01\x12\x07testing");
        message.clear();
        put_varint(&mut message, u64::MAX);
        assert_eq!(message, [&[0xff; 9][..], &[1]].concat());
    }

    #[test]
    fn protoc_reads_what_is_written() {
        let mut message = Vec::new();
        Protobuf::new().write(
            &full(),
            &Interfaces::counted(["lan".to_owned(), "wan \"x\"".to_owned()]),
            &mut message,
        );
        let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let protoc = Command::new("protoc")
            .arg(format!("--proto_path={}", proto.display()))
            .args(["--decode=thalweg.FlowRecord", "flow_record.proto"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut protoc) = protoc else {
            println!("SKIPPED protoc_reads_what_is_written: no protoc (Debian: protobuf-compiler)");
            return;
        };
        protoc.stdin.take().expect("piped").write_all(&message).expect("it reads");
        let output = protoc.wait_with_output().expect("it ends");
        assert!(output.status.success());
        let expected = r#"first_ns: 1700000000123456789
last_ns: 1700000001000000000
src: " \001\r\270\000\000\000\000\000\000\000\000\000\000\000\001"
dst: " \001\r\270\000\000\000\000\000\000\000\000\000\000\000\002"
src_port: 50000
dst_port: 53
protocol: 17
traffic_class: 184
ingress: "wan \"x\""
egress: "40"
vlan: 7
mpls_label: 0
packets: 2
bytes: 18446744073709551615
tcp_flags: 18
ttl_min: 63
ttl_max: 64
reverse_packets: 300
reverse_bytes: 127
reverse_first_ns: 1700000000123456789
reverse_last_ns: 1700000001000000000
reverse_tcp_flags: 18
reverse_ttl_min: 1
reverse_ttl_max: 64
end_reason: "idle-timeout"
application: "dns"
next_hop: "\300\000\002\001"
src_as: 64500
dst_as: 4294967295
bgp_next_hop: " \001\r\270\000\000\000\000\000\000\000\000\000\000\000\t"
nat_src: "\3063d\007"
nat_dst: "\3063d\007"
nat_src_port: 128
nat_dst_port: 0
dropped_packets: 1
dropped_bytes: 60
sampling_interval: 16384
"#;
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}
