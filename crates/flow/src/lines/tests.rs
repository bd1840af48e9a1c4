//! Records as lines.

use super::*;
use crate::{Counters, EndReason, FlowKey, InterfaceName, Translation};
use thalweg_base::Name;

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
    let mut record = FlowRecord::new(key, counters, EndReason::IdleTimeout);
    record.ingress_name = InterfaceName { name: Name::of("a \"b\", c"), ..InterfaceName::default() };
    record
}

fn line(format: LineFormat, record: &FlowRecord) -> String {
    let mut line = Vec::new();
    format.write(record, Field::of_lines(true), &mut line);
    String::from_utf8(line).expect("text")
}

#[test]
fn json_says_what_is_known_and_nothing_else() {
    let text = line(LineFormat::Json, &record());
    let json: serde_json::Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(json["flow_start"], "2023-11-14T22:13:20.123456789Z");
    assert_eq!(json["src"], "2001:db8::1");
    assert_eq!((&json["ingress"], &json["ingress_name"]), (&2.into(), &"a \"b\", c".into()));
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
    record.ingress_name = InterfaceName::default();
    let json: serde_json::Value = serde_json::from_str(&line(LineFormat::Json, &record)).expect("JSON");
    for name in ["ttl_min", "ttl_max", "end_reason", "ingress", "ingress_name", "sampling_interval"] {
        assert_eq!(json.get(name), None, "{name}");
    }
    (record.key.protocol, record.key.dst_port, record.key.ingress) = (58, 135 << 8 | 3, 70_000);
    let json: serde_json::Value = serde_json::from_str(&line(LineFormat::Json, &record)).expect("JSON");
    assert_eq!((&json["icmp_type"], &json["icmp_code"]), (&135.into(), &3.into()));
    assert_eq!(json["ingress"], 70_000, "a number without a name");
}

#[test]
fn only_chosen_fields_are_written() {
    let fields = || [Field::Dst, Field::SrcAs].into_iter();
    let mut lines = Vec::new();
    for format in [LineFormat::Json, LineFormat::Csv] {
        lines.extend_from_slice(format.header(fields()).as_bytes());
        format.write(&record(), fields(), &mut lines);
    }
    LineFormat::Json.write(&record(), [Field::SrcAs].into_iter(), &mut lines);
    let text = String::from_utf8(lines).expect("text");
    assert_eq!(text, "{\"dst\":\"2001:db8::2\"}\ndst,src_as\n2001:db8::2,\n{}\n");
}

#[test]
fn csv_has_a_field_for_every_name() {
    let mut plain = record();
    plain.ingress_name.name = Name::of("lan");
    let header = LineFormat::Csv.header(Field::of_lines(true));
    let text = line(LineFormat::Csv, &plain);
    assert_eq!(header.trim_end().split(',').count(), Field::ALL.len());
    assert_eq!(text.trim_end().split(',').count(), Field::ALL.len());
    assert!(text.starts_with(
        "2023-11-14T22:13:21.000000000Z,2023-11-14T22:13:20.123456789Z,2001:db8::1,2001:db8::2,50000,53,17,2,120,"
    ));
    assert!(line(LineFormat::Csv, &record()).contains(",\"a \"\"b\"\", c\","));
}
