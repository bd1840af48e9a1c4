//! Round trip: the importer reads what the exporter wrote.

use super::*;
use thalweg_base::Name;
use thalweg_flow::export::{Interface, Statistics, Times, Transport, Version};
use thalweg_flow::import::Importer;
use thalweg_flow::{FlowNames, SAMPLING_UNKNOWN};
use thalweg_wire::application::by_code;
use thalweg_wire::netflow::decode::{Limits, Source};

const COLLECTED: Source = Source { exporter: 1, is_stream: false };

fn import(messages: &[Vec<u8>]) -> (Vec<FlowRecord>, Importer) {
    let mut importer = Importer::new(Limits::default());
    let mut records = Vec::new();
    for message in messages {
        let report = importer.handle_message(COLLECTED, message, NOW_NS, &mut records).unwrap();
        assert_eq!(report.first_fault, None);
    }
    (records, importer)
}

/// Only TCP has flags; a record with TTLs has flags too.
fn without_zeros(counters: Counters, is_tcp: bool) -> Counters {
    let said = counters.tcp_flags.or(counters.ttl_min.and(Some(0)));
    Counters { tcp_flags: said.filter(|_| is_tcp), ..counters }
}

/// The part of a record that survives export: times in that unit, without fields that the protocols cannot carry.
fn said(record: &FlowRecord, unit_ns: u64) -> FlowRecord {
    let counters = |counters: Counters| Counters {
        first_ns: counters.first_ns / unit_ns * unit_ns,
        last_ns: counters.last_ns / unit_ns * unit_ns,
        ..counters
    };
    let is_icmp = matches!(record.key.protocol, 1 | 58);
    let key = FlowKey {
        src_port: if is_icmp { 0 } else { record.key.src_port },
        // A label stack entry of zeros is no label.
        mpls_label: record.key.mpls_label.filter(|label| *label != 0),
        ..record.key
    };
    let as_number = |number: u32| if number == u32::MAX { 0 } else { number };
    let post_port = |port: u16, before: u16| if port == 0 { before } else { port };
    let mut drops = Drops::default();
    drops.add_without_reason(record.drops.packets() as u32, record.drops.bytes);
    let counters = |of| without_zeros(counters(of), key.protocol == 6);
    FlowRecord {
        key,
        counters: counters(record.counters),
        reverse: record.reverse.map(|reverse| {
            let flags = reverse.tcp_flags.or(Some(0));
            counters(Counters { tcp_flags: flags, ..reverse })
        }),
        application: by_code(record.application).map_or(0, |known| known.code),
        src_as: as_number(record.src_as),
        dst_as: as_number(record.dst_as),
        translation: record.translation.map(|to| Translation {
            src_port: post_port(to.src_port, key.src_port),
            dst_port: post_port(to.dst_port, key.dst_port),
            ..to
        }),
        drops,
        ..*record
    }
}

/// The reason of a drop is exported only if the whole flow was dropped.
fn without_reasons(record: &FlowRecord) -> FlowRecord {
    let mut drops = Drops::default();
    drops.add_without_reason(record.drops.packets() as u32, record.drops.bytes);
    FlowRecord { drops, ..*record }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn records_come_back(
        records in proptest::collection::vec(any_record(), 1..60),
        (version, times, unit_ns) in prop_oneof![
            Just((Version::Ipfix, Times::Nanoseconds, 1)),
            Just((Version::Ipfix, Times::Milliseconds, 1_000_000)),
            Just((Version::NetFlow9, Times::Uptime, 1_000_000)),
        ],
        in_domain: bool,
    ) {
        let one_way = |record: &FlowRecord| FlowRecord { reverse: None, ..*record };
        let records: Vec<_> = match version {
            Version::NetFlow9 => records.iter().map(one_way).collect(),
            _ => records,
        };
        let options = ExportOptions {
            times,
            options_in_domain: in_domain,
            ..ExportOptions::new(version, Transport::Datagram)
        };
        let (back, importer) = import(&session(&options, &records, NOW_NS));
        let expected: Vec<_> = records.iter().map(|record| said(record, unit_ns)).collect();
        let back: Vec<_> = back.iter().map(without_reasons).collect();
        prop_assert_eq!(back, expected);
        let counters = importer.counters();
        prop_assert_eq!(counters.samplers_unknown, 0);
    }

    /// In one session with records that have none.
    #[test]
    fn names_come_back_by_ipfix(records in proptest::collection::vec(any_record(), 1..60)) {
        let records: Vec<FlowRecord> = records.into_iter().enumerate().map(with_names).collect();
        let options = ExportOptions { times: Times::Nanoseconds, ..ExportOptions::new(Version::Ipfix, Transport::Datagram) };
        let messages = session(&options, &records, NOW_NS);
        let (back, importer) = import(&messages);
        let expected: Vec<_> = records.iter().map(|record| said(record, 1)).collect();
        let back: Vec<_> = back.iter().map(without_reasons).collect();
        prop_assert_eq!(back, expected);
        prop_assert_eq!(importer.counters().samplers_unknown, 0);
    }
}

/// Names for two records of three; such a record has headers.
fn with_names((n, record): (usize, FlowRecord)) -> FlowRecord {
    let text = |length: usize| Name::passing(&format!("{n}.{}", "x".repeat(length)));
    let names = match n % 3 {
        0 => FlowNames::default(),
        1 => FlowNames { server: text(n), resolved: text(3), ja4: text(30), ..FlowNames::default() },
        _ => FlowNames {
            dns_question: text(Name::BYTES_MAX),
            dns_answers: text(9),
            dns_type: 28,
            dns_code: Some(0),
            ..FlowNames::default()
        },
    };
    let counters = Counters { tcp_flags: Some(2), ttl_min: Some(1), ttl_max: Some(9), ..record.counters };
    FlowRecord {
        names,
        counters: if names == FlowNames::default() { record.counters } else { counters },
        ..record
    }
}

#[test]
fn interfaces_come_back_in_every_version() {
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let mut ports = vec![(1, 2), (2, 1), (65_535, NO_INTERFACE), (NO_INTERFACE, 65_535)];
        if version != Version::NetFlow5 {
            ports.extend([(65_536, u32::MAX), (u32::MAX, 7)]);
        }
        let record = |&(ingress, egress)| FlowRecord {
            key: FlowKey { ingress, ..simple(1).key },
            egress,
            ..simple(1)
        };
        let records: Vec<_> = ports.iter().map(record).collect();
        let (back, _) = import(&session(&ExportOptions::new(version, Transport::Datagram), &records, NOW_NS));
        let back: Vec<_> = back.iter().map(|record| (record.key.ingress, record.egress)).collect();
        assert_eq!(back, ports, "{version:?}");
    }
}

/// Unknown values stay unknown: a sampler without a description does not become "all packets".
#[test]
fn unknown_sampling_stays_unknown() {
    for version in [Version::NetFlow9, Version::Ipfix] {
        let records =
            [100, SAMPLING_UNKNOWN, 1].map(|sampling_interval| FlowRecord { sampling_interval, ..simple(1) });
        let (back, importer) =
            import(&session(&ExportOptions::new(version, Transport::Datagram), &records, NOW_NS));
        let back: Vec<_> = back.iter().map(|record| record.sampling_interval).collect();
        assert_eq!(back, [100, SAMPLING_UNKNOWN, 1], "{version:?}");
        assert_eq!(importer.counters().samplers_unknown, 1);
    }
}

/// Names and samplers are sent in the session's domain first and in domain 0 later, so a collector that starts in
/// mid-session has them.
#[test]
fn a_late_importer_knows_samplers_and_names() {
    for in_domain in [false, true] {
        let options = ExportOptions {
            sampling_interval: 100,
            interfaces: vec![Interface { number: 2, name: "eth2".to_owned(), description: String::new() }],
            options_in_domain: in_domain,
            ..ExportOptions::new(Version::Ipfix, Transport::Datagram)
        };
        let record = FlowRecord { sampling_interval: 100, application: 8, ..simple(1) };
        let mut exporter = Exporter::new(&options).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_statistics(Statistics::default());
        let mut messages = Vec::new();
        for second in 0..70 {
            let now_ns = NOW_NS + second * SECOND_NS;
            exporter.handle_records(&[record], now_ns);
            exporter.handle_time(now_ns);
            exporter.flush(now_ns);
            messages
                .push(poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect::<Vec<_>>());
        }
        let (back, importer) = import(&messages[40..].concat());
        let last = back.last().unwrap();
        assert_eq!((last.sampling_interval, last.application, last.key.ingress), (100, 8, 2));
        let names: Vec<_> =
            importer.interfaces().map(|(_, number, names)| (number, names.name.text())).collect();
        assert_eq!(names, [(2, "eth2".into())]);
        let domains: std::collections::BTreeSet<_> =
            messages.concat().iter().map(|message| message[12..16].to_vec()).collect();
        assert_eq!(domains.len(), if in_domain { 1 } else { 2 });
    }
}
