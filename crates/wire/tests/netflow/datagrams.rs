//! The Logstash project's collection of exporters' messages.
//!
//! Counts and sums are those of `tshark -d udp.port==2055,cflow -T json` (4.0) on the same bytes in one capture
//! per exporter: flows, `cflow.bytes`, `cflow.packets`. Differences are explained beside the row.

use std::collections::BTreeSet;
use std::path::Path;

use thalweg_wire::netflow::decode::{
    Decoder, FaultKind, Field, FieldName, Report, Source, TemplateKind, Version, stream_message_bytes,
};
use thalweg_wire::netflow::element::*;

use super::value::Value;

struct Exporter {
    files: &'static [&'static str],
    records: u64,
    options_records: u64,
    bytes: u64,
    packets: u64,
    /// Sets whose template was never sent.
    unknown: u64,
    /// Sets with bytes behind their last record that are not zeros.
    tails: u64,
}

const fn exporter(files: &'static [&'static str], records: u64, bytes: u64, packets: u64) -> Exporter {
    Exporter { files, records, options_records: 0, bytes, packets, unknown: 0, tails: 0 }
}

#[rustfmt::skip]
const EXPORTERS: &[Exporter] = &[
    Exporter { options_records: 1, ..exporter(&["ipfix_test_juniper_mx240_junos151r6s3_opttpl512", "ipfix_test_juniper_mx240_junos151r6s3_data512"], 0, 0, 0) },
    // RouterOS leaves old bytes in its padding.
    Exporter { tails: 1, ..exporter(&["ipfix_test_mikrotik_tpl", "ipfix_test_mikrotik_data258", "ipfix_test_mikrotik_data259"], 46, 103_235, 253) },
    exporter(&["ipfix_test_openbsd_pflow_tpl", "ipfix_test_openbsd_pflow_data"], 26, 99_323, 209),
    exporter(&["ipfix_test_vmware_vds_tpl", "ipfix_test_vmware_vds_data264", "ipfix_test_vmware_vds_data266", "ipfix_test_vmware_vds_data266_267"], 5, 806, 8),
    // The templates of both flows have total counts (85, 86) only; the third record is YAF's statistics.
    Exporter { options_records: 1, ..exporter(&["ipfix_test_yaf_tpls_option_tpl", "ipfix_test_yaf_tpl45841", "ipfix_test_yaf_data45841", "ipfix_test_yaf_data45873", "ipfix_test_yaf_data53248"], 2, 0, 0) },
    exporter(&["netflow5_test_juniper_mx80"], 29, 3_989, 31),
    exporter(&["netflow5_test_microtik"], 30, 40_812, 160),
    exporter(&["netflow9_cisco_asr1001x_tpl259"], 25, 38_255, 124),
    exporter(&["netflow9_test_cisco_1941K9"], 29, 70_258, 370),
    exporter(&["netflow9_test_cisco_aci_tpl256-258", "netflow9_test_cisco_aci_data256"], 3, 297, 6),
    // ASA: bytes of initiator and responder (231, 232) only.
    exporter(&["netflow9_test_cisco_asa_1_tpl", "netflow9_test_cisco_asa_1_data"], 14, 0, 0),
    exporter(&["netflow9_test_cisco_asa_2_tpl_26x", "netflow9_test_cisco_asa_2_tpl_27x", "netflow9_test_cisco_asa_2_data"], 19, 0, 0),
    Exporter { options_records: 19, ..exporter(&["netflow9_test_cisco_asr9k_opttpl256", "netflow9_test_cisco_asr9k_data256"], 0, 0, 0) },
    exporter(&["netflow9_test_cisco_asr9k_opttpl257", "netflow9_test_cisco_asr9k_opttpl334", "netflow9_test_cisco_asr9k_tpl260", "netflow9_test_cisco_asr9k_tpl266", "netflow9_test_cisco_asr9k_data260"], 21, 208_031, 531),
    Exporter { options_records: 15, ..exporter(&["netflow9_test_cisco_nbar_opttpl260", "netflow9_test_cisco_nbar_tpl262", "netflow9_test_cisco_nbar_data262"], 5, 3_064, 40) },
    exporter(&["netflow9_test_cisco_wlc_8510_tpl_262"], 0, 0, 0),
    exporter(&["netflow9_test_cisco_wlc_tpl", "netflow9_test_cisco_wlc_data261"], 19, 142_991_108, 133_708),
    Exporter { options_records: 1, ..exporter(&["netflow9_test_fortigate_fortios_521_tpl", "netflow9_test_fortigate_fortios_521_data256", "netflow9_test_fortigate_fortios_521_data257"], 1, 152, 3) },
    exporter(&["netflow9_test_fortigate_fortios_542_appid_tpl258-269", "netflow9_test_fortigate_fortios_542_appid_data258_262"], 17, 29_492, 105),
    // tshark stops at the options template, whose set is not padded; the rest is complete.
    Exporter { options_records: 1, ..exporter(&["netflow9_test_invalid01"], 2, 194, 2) },
    // The templates 259 and 262 of five and one sets are not in the collection.
    Exporter { unknown: 6, ..exporter(&["netflow9_test_iptnetflow_reduced_size_encoding_tpldata260"], 12, 7_598, 74) },
    Exporter { options_records: 1, ..exporter(&["netflow9_test_juniper_srx_tplopt"], 0, 0, 0) },
    // nProbe too.
    Exporter { options_records: 1, tails: 1, ..exporter(&["netflow9_test_nprobe_tpl", "netflow9_test_nprobe_data"], 1, 200, 2) },
    // Its record is longer than its template says.
    Exporter { tails: 1, ..exporter(&["netflow9_test_nprobe_dpi"], 1, 82, 1) },
    exporter(&["netflow9_test_softflowd_tpl_data"], 7, 1_128, 13),
    exporter(&["netflow9_test_valid01"], 7, 1_128, 13),
];

/// Files of several messages, split here: the collection has them in one piece.
const SEVERAL: [&str; 2] = ["ipfix", "netflow5"];

/// Files without a valid message.
const REFUSED: [&str; 2] = ["netflow5_test_invalid01", "netflow5_test_invalid02"];

fn read(root: &Path, name: &str) -> Vec<u8> {
    let path = root.join(format!("{name}.dat"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All records of one exporter's messages, in the order of visits, with the fields of each.
fn decoded(
    decoder: &mut Decoder,
    messages: &[&[u8]],
    mut visit: impl FnMut(TemplateKind, &[Field<'_>]),
) -> Vec<Report> {
    let mut reports = Vec::new();
    for message in messages {
        let handled = decoder.handle_message(Source::datagrams(7), message, 0, |record| {
            visit(record.template.kind, &record.fields().collect::<Vec<_>>());
        });
        reports.push(handled.unwrap());
    }
    reports
}

fn sum(fields: &[Field<'_>], id: u16) -> u64 {
    fields.iter().filter(|field| field.name == FieldName::Element(id)).filter_map(Field::unsigned).sum()
}

#[test]
fn every_exporter_is_understood() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    for exporter in EXPORTERS {
        let name = exporter.files[0];
        let messages: Vec<Vec<u8>> = exporter.files.iter().map(|file| read(&root, file)).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let mut decoder = Decoder::default();
        let (mut bytes, mut packets) = (0, 0);
        let reports = decoded(&mut decoder, &messages, |kind, fields| {
            if kind == TemplateKind::Data {
                bytes += sum(fields, OCTET_DELTA_COUNT);
                packets += sum(fields, PACKET_DELTA_COUNT);
            }
        });
        assert!(reports.iter().all(|report| report.first_fault.is_none()), "{name}: {reports:?}");
        let counters = decoder.counters();
        assert_eq!(counters.records, exporter.records, "{name}: records");
        assert_eq!(counters.options_records, exporter.options_records, "{name}: options records");
        assert_eq!((bytes, packets), (exporter.bytes, exporter.packets), "{name}: bytes, packets");
        assert_eq!(counters.sets_unknown, exporter.unknown, "{name}: unknown sets");
        assert_eq!(counters.sets_with_tail, exporter.tails, "{name}: sets with tails");
        // In the opposite order the data waits for the templates, and only the order changes.
        let mut backwards = Decoder::default();
        let (mut bytes, mut packets) = (0, 0);
        let messages: Vec<&[u8]> = messages.iter().rev().copied().collect();
        decoded(&mut backwards, &messages, |kind, fields| {
            if kind == TemplateKind::Data {
                bytes += sum(fields, OCTET_DELTA_COUNT);
                packets += sum(fields, PACKET_DELTA_COUNT);
            }
        });
        assert_eq!((bytes, packets), (exporter.bytes, exporter.packets), "{name}, templates last");
        assert_eq!(backwards.counters().records, exporter.records, "{name}, templates last");
        assert_eq!(backwards.waiting().0 as u64, exporter.unknown, "{name}, templates last");
    }
}

#[test]
fn no_datagram_is_left_out() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    let here: BTreeSet<String> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let tested = EXPORTERS.iter().flat_map(|exporter| exporter.files);
    let tested: BTreeSet<String> =
        tested.chain(&SEVERAL).chain(&REFUSED).map(|name| (*name).to_owned()).collect();
    assert_eq!(here, tested);
}

#[test]
fn values_of_an_ipfix_file_of_two_messages() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    let file = read(&root, "ipfix");
    let first = stream_message_bytes(&file).unwrap().unwrap();
    let messages = [&file[..first], &file[first..first + 64], &file[first + 64..]];
    let mut decoder = Decoder::default();
    let mut flows = Vec::new();
    let reports = decoded(&mut decoder, &messages, |kind, fields| {
        flows.push((kind, sum(fields, OCTET_DELTA_COUNT), sum(fields, SYSTEM_INIT_TIME_MILLISECONDS)));
    });
    assert_eq!(reports.iter().map(|report| report.templates).collect::<Vec<_>>(), [3, 0, 0]);
    assert_eq!(flows[0], (TemplateKind::Options, 0, 1_431_516_013_506));
    // 266, 44 and 220 bytes of data, 44 each.
    assert_eq!(reports.iter().map(|report| report.records).collect::<Vec<_>>(), [6, 1, 5]);
    assert!(reports.iter().all(|report| report.first_fault.is_none()), "{reports:?}");

    // In one piece, bytes beyond the first message's length do not belong to it.
    let mut decoder = Decoder::default();
    let reports = decoded(&mut decoder, &[&file], |_, _| {});
    assert_eq!(reports[0].first_fault.unwrap().kind, FaultKind::Trailing(file.len() - first));
    assert_eq!(reports[0].records, 6);
}

#[test]
fn values_of_netflow_5() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    let file = read(&root, "netflow5");
    // 2, 4, ... records: one datagram after another, each with its header.
    let (mut rest, mut messages) = (file.as_slice(), Vec::new());
    while !rest.is_empty() {
        let (message, behind) = rest.split_at(24 + 48 * usize::from(rest[3]));
        messages.push(message);
        rest = behind;
    }
    let mut decoder = Decoder::default();
    let mut first = Vec::new();
    let reports = decoded(&mut decoder, &messages, |_, fields| {
        first.push((sum(fields, PACKET_DELTA_COUNT), sum(fields, OCTET_DELTA_COUNT)));
    });
    assert_eq!(first[..2], [(5, 230), (4, 304)]);
    assert_eq!(reports[0].header.export_ns, 1_430_591_888_280_328_000);
    // Its first flow began at 0xffffffff, a millisecond before the exporter did.
    assert_eq!(reports[0].header.uptime_to_ns(u32::MAX), Some(1_430_591_888_280_328_000 - 3_382_000_000));
    let sequence = decoder.counters().sequence;
    assert_eq!((sequence.in_order, sequence.gaps), (messages.len() as u64 - 1, 0), "{sequence:?}");
    assert_eq!(decoder.counters().messages, [messages.len() as u64, 0, 0]);

    for name in REFUSED {
        let fault = decoder.handle_message(Source::datagrams(7), &read(&root, name), 0, |_| {}).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::RecordCount { has: 30, .. }), "{fault}");
        assert_eq!(fault.offset, 2);
    }
    assert_eq!(decoder.counters().messages_refused, 2);
}

/// The first record of a file's data set, by the names of its elements.
fn first_record(root: &Path, files: &[&str], want: TemplateKind) -> Vec<(String, String)> {
    let mut decoder = Decoder::default();
    let mut first = Vec::new();
    for file in files {
        let visited = decoder.handle_message(Source::datagrams(7), &read(root, file), 0, |record| {
            if first.is_empty() && record.template.kind == want {
                let named = |field: Field<'_>| {
                    let name =
                        field.name.element().map_or(format!("{:?}", field.name), |row| row.name.to_owned());
                    (name, text(&Value::of(&field, record.header)))
                };
                first = record.fields().map(named).collect();
            }
        });
        visited.unwrap();
    }
    first
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Unsigned(number) => number.to_string(),
        Value::Address(address) => address.to_string(),
        Value::TimeNs(ns) => format!("{ns} ns"),
        Value::Text(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("{bytes:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn values_of_some_exporters() {
    let Some(root) = thalweg_testdata::shared("flow-export/datagrams") else { return };
    let said = |files: &[&str], kind, name: &str| {
        let record = first_record(&root, files, kind);
        record
            .iter()
            .find(|(known, _)| known == name)
            .unwrap_or_else(|| panic!("{name} in {record:?}"))
            .1
            .clone()
    };
    let nbar = ["netflow9_test_cisco_nbar_opttpl260"];
    assert_eq!(said(&nbar, TemplateKind::Options, "applicationName"), "\"egp\"");
    assert_eq!(said(&nbar, TemplateKind::Options, "applicationId"), "[1, 0, 0, 8]");
    // A scope of zero bytes.
    let srx = ["netflow9_test_juniper_srx_tplopt"];
    assert_eq!(said(&srx, TemplateKind::Options, "Scope(1)"), "[]");
    assert_eq!(said(&srx, TemplateKind::Options, "samplingAlgorithm"), "2");
    let asr = ["netflow9_cisco_asr1001x_tpl259"];
    assert_eq!(said(&asr, TemplateKind::Data, "flowStartMilliseconds"), "1507580540637000000 ns");
    assert_eq!(said(&asr, TemplateKind::Data, "ipNextHopIPv4Address"), "10.10.5.100");
    // tcpOptions in four bytes instead of eight.
    let ipt = ["netflow9_test_iptnetflow_reduced_size_encoding_tpldata260"];
    assert_eq!(said(&ipt, TemplateKind::Data, "tcpOptions"), "4026531840");
    // Enterprise numbers and variable length.
    let yaf = ["ipfix_test_yaf_tpl45841", "ipfix_test_yaf_data45841"];
    assert!(
        first_record(&root, &yaf, TemplateKind::Data).iter().any(|(name, _)| name.starts_with("Enterprise"))
    );
    let interfaces = ["netflow9_test_cisco_asr9k_opttpl256", "netflow9_test_cisco_asr9k_data256"];
    assert_eq!(said(&interfaces, TemplateKind::Options, "interfaceDescription"), "\"TenGigE0_0_1_0\"");
    assert_eq!(Version::NetFlow9.name(), "NetFlow 9");
}
