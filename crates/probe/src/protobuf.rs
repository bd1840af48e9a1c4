//! Encodes a record as a protocol buffers message, by the table of fields. `proto/flow_record.proto` is the
//! schema for others; a test compares the two. Fields are written in the order of their numbers, and only if
//! known.
//!
//! Encoding: <https://protobuf.dev/programming-guides/encoding/>; only varints and length-delimited bytes are
//! used.

use std::net::IpAddr;

use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{Field, Value};

/// Wire types.
const VARINT: u32 = 0;
const WITH_LENGTH: u32 = 2;

/// The fields in order of their numbers.
pub(crate) struct Protobuf {
    fields: Vec<Field>,
}

impl Protobuf {
    pub(crate) fn new(with_community_id: bool) -> Self {
        let mut fields: Vec<Field> = Field::of_lines(with_community_id).collect();
        fields.sort_unstable_by_key(|field| field.row().number);
        Self { fields }
    }

    pub(crate) fn write(&self, record: &FlowRecord, message: &mut Vec<u8>) {
        for field in &self.fields {
            let number = field.row().number;
            match field.value(record) {
                Some(Value::Number(value) | Value::Time(value)) => {
                    put_varint(message, u64::from(number << 3 | VARINT));
                    put_varint(message, value);
                }
                Some(Value::Address(IpAddr::V4(address))) => put_bytes(message, number, &address.octets()),
                Some(Value::Address(IpAddr::V6(address))) => put_bytes(message, number, &address.octets()),
                Some(Value::Text(text)) => put_bytes(message, number, text.as_bytes()),
                None => {}
            }
        }
    }
}

fn put_bytes(message: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(message, u64::from(number << 3 | WITH_LENGTH));
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Seven bits per byte, lowest first; the highest bit means that more follow.
pub(crate) fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use thalweg_base::{DropReason, Name};
    use thalweg_flow::fields::{Access, Kind, unknown_record};
    use thalweg_flow::{Counters, EndReason, ExporterId, FlowKey, InterfaceName, Translation};

    /// A record of which everything is known.
    pub(crate) fn full() -> FlowRecord {
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
        record.exporter =
            ExporterId { address: "192.0.2.7".parse().ok(), domain: Some(0), name: Name::of("edge1") };
        record.ingress_name =
            InterfaceName { name: Name::of("wan \"x\""), description: Name::of("Transit A") };
        record
    }

    /// What proto/flow_record.proto has to say.
    fn schema() -> String {
        let mut text = "\
// A flow record, or a part of a flow's life: what it did since it began or was last reported. The sum of all records of a
// flow is the flow. This is the value of a message in Kafka with `format=protobuf`; see docs/export.md.
//
// A field that is absent is not known. Times are nanoseconds since the Unix epoch. Addresses are 4 bytes of IPv4 or 16 of
// IPv6, in network order. Numbers are never used again for something else.
//
// This file is made from the table of fields (crates/flow/src/fields/table.rs).
syntax = \"proto3\";

package thalweg;

message FlowRecord {
"
        .to_owned();
        for field in Protobuf::new(true).fields {
            let row = field.row();
            let kind = match row.kind {
                Kind::Time | Kind::Wide => "uint64",
                Kind::Number(_) => "uint32",
                Kind::Word(_) | Kind::Mac | Kind::Text => "string",
                Kind::Address => "bytes",
            };
            text += &format!("  // {}\n  optional {kind} {} = {};\n", row.help, row.name, row.number);
        }
        text + "}\n"
    }

    /// `THALWEG_BLESS=1` writes it.
    #[test]
    fn the_schema_has_every_column_once() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/flow_record.proto");
        let current = schema();
        if std::env::var_os("THALWEG_BLESS").is_some() {
            std::fs::write(&path, &current).expect("it can be written");
        }
        let there = std::fs::read_to_string(&path).expect("the schema");
        assert!(there == current, "proto/flow_record.proto is not current: run this with THALWEG_BLESS=1");
        // Each field of a record of which everything is known is written, by its type.
        let mut record = unknown_record();
        for field in Field::STORED {
            match field.row().access {
                Access::Wide(_, set) => set(&mut record, 1),
                Access::Number(_, set) => set(&mut record, 1),
                Access::Address(_, set) => set(&mut record, "192.0.2.1".parse().expect("an address")),
                Access::Text(_) => panic!("{} is stored", field.name()),
            }
        }
        for field in Field::ALL {
            let known = field.value(&record);
            let fits = match known {
                Some(Value::Time(_)) => field.row().kind == Kind::Time,
                Some(Value::Number(_)) => matches!(field.row().kind, Kind::Wide | Kind::Number(_)),
                Some(Value::Address(_)) => field.row().kind == Kind::Address,
                Some(Value::Text(_)) => matches!(field.row().kind, Kind::Word(_) | Kind::Mac | Kind::Text),
                None => false,
            };
            assert!(fits, "{}: {known:?}", field.name());
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
        Protobuf::new(false).write(&full(), &mut message);
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
        let expected = r#"flow_start: 1700000000123456789
flow_end: 1700000001000000000
src: " \001\r\270\000\000\000\000\000\000\000\000\000\000\000\001"
dst: " \001\r\270\000\000\000\000\000\000\000\000\000\000\000\002"
src_port: 50000
dst_port: 53
protocol: 17
traffic_class: 184
ingress_name: "wan \"x\""
vlan: 7
mpls_label: 0
packets: 2
bytes: 18446744073709551615
tcp_flags: 18
ttl_min: 63
ttl_max: 64
reverse_packets: 300
reverse_bytes: 127
reverse_start: 1700000000123456789
reverse_end: 1700000001000000000
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
scaled_packets: 4947968
scaled_bytes: 2064384
ingress: 2
egress: 40
drop_reason_1: "unsupported-link"
drop_packets_1: 1
exporter: "edge1"
exporter_address: "\300\000\002\007"
exporter_domain: 0
ingress_description: "Transit A"
"#;
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}
