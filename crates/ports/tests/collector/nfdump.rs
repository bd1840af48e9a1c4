//! nfcapd as collector, and nfdump to read its files.

use super::*;
use thalweg_flow::export::{NatEvent, NatSession, Times};
use thalweg_testdata::collectors::nfdump::{Nfcapd, check_log, deliver, summary};

/// Totals by nfdump, which stores both directions of a biflow in one record.
fn collect(options: &ExportOptions, records: &[FlowRecord]) -> Option<(String, String, String)> {
    let nfcapd = program("nfcapd", "nfdump")?;
    let nfdump = program("nfdump", "nfdump")?;
    let mut collector = Nfcapd::start(&nfcapd);
    deliver(collector.port, &messages(options, records, NOW_NS));
    let (log, data) = collector.end();
    let totals = run(Command::new(&nfdump).arg("-R").arg(&data).arg("-I"));
    let json = run(Command::new(&nfdump).arg("-R").arg(&data).args(["-o", "json"]));
    Some((log, totals, json))
}

#[test]
fn totals_are_equal() {
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        // Sampled records, which nfdump multiplies, have a test of their own. Biflows are excluded too.
        let told = |record: &&FlowRecord| {
            record.sampling_interval == 1
                && record.reverse.is_none()
                && (version != Version::NetFlow5 || record.key.src.is_ipv4())
        };
        let records: Vec<_> = all_kinds(900).iter().filter(told).copied().collect();
        let Some((log, totals, json)) = collect(&datagram_options(version), &records) else { return };
        check_log(&log);
        let expected = amount(&records);
        assert_eq!(summary(&totals, "Flows"), expected.records, "{version:?}\n{totals}");
        assert_eq!(summary(&totals, "Packets"), expected.packets, "{version:?}");
        assert_eq!(summary(&totals, "Bytes"), expected.bytes, "{version:?}");
        assert_eq!(summary(&totals, "Sequence failures"), 0, "{version:?}");
        let first = NOW_NS / 1_000_000
            - records.iter().map(|record| (NOW_NS - record.counters.first_ns) / 1_000_000).max().unwrap();
        assert_eq!(summary(&totals, "First"), first / 1000, "{version:?}\n{totals}");
        if version != Version::NetFlow5 {
            let field = |name: &str, value: &str| format!("\"{name}\" : {value}");
            for wanted in [
                field("src4_xlt_ip", "\"203.0.113.7\""),
                field("src_xlt_port", "\"2000\""),
                field("src_as", "64500"),
                field("dst_as", "4200000000"),
            ] {
                assert!(
                    json.contains(&wanted),
                    "{version:?}: no {wanted} in\n{}",
                    &json[..json.len().min(8000)]
                );
            }
        }
    }
}

#[test]
fn sampled_records_are_multiplied() {
    // Debian's nfdump 1.7.1 reads no samplers from options data, not even Cisco's.
    let version = Version::NetFlow5;
    let records: Vec<_> = (1..=300).map(|n| FlowRecord { sampling_interval: 100, ..record(n) }).collect();
    let Some((log, totals, _)) = collect(&datagram_options(version), &records) else { return };
    check_log(&log);
    assert_eq!(summary(&totals, "Packets"), 100 * amount(&records).packets, "{version:?}\n{log}\n{totals}");
    assert_eq!(summary(&totals, "Bytes"), 100 * amount(&records).bytes, "{version:?}");
    assert_eq!(summary(&totals, "Sequence failures"), 0, "{version:?}");
}

#[test]
fn absolute_times_are_read() {
    // nfdump 1.7.1 does not read nanoseconds.
    for (version, times) in [(Version::Ipfix, Times::Milliseconds), (Version::NetFlow9, Times::Milliseconds)]
    {
        let records: Vec<_> = (1..=100).map(record).collect();
        let options = ExportOptions { times, ..datagram_options(version) };
        let Some((log, totals, json)) = collect(&options, &records) else { return };
        check_log(&log);
        assert_eq!(summary(&totals, "Flows"), 100, "{version:?}");
        // The earliest first packet is 59 seconds before 22:13:20.
        assert!(json.contains("2023-11-14T22:12:21.000"), "{version:?}\n{}", &json[..json.len().min(3000)]);
    }
}

#[test]
fn nat_events_are_read() {
    let (Some(nfcapd), Some(nfdump)) = (program("nfcapd", "nfdump"), program("nfdump", "nfdump")) else {
        return;
    };
    for version in [Version::NetFlow9, Version::Ipfix] {
        let mut exporter = Exporter::new(&datagram_options(version)).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_nat_events(&nat_sessions(), NOW_NS);
        exporter.handle_end(NOW_NS);
        let mut collector = Nfcapd::start(&nfcapd);
        deliver(collector.port, &polled(&mut exporter));
        let (log, data) = collector.end();
        check_log(&log);
        let json = run(Command::new(&nfdump).arg("-R").arg(&data).args(["-o", "json"]));
        assert_eq!(
            json.matches("\"src4_xlt_ip\" : \"198.51.100.1\"").count(),
            200,
            "{version:?}\n{}",
            &json[..json.len().min(3000)]
        );
    }
}

/// A hundred NAT sessions that begin and end, half of them in a VRF.
pub(crate) fn nat_sessions() -> Vec<NatEvent> {
    let session = |n: u16, created| NatSession {
        created,
        protocol: 17,
        vrf: (n >= 50).then_some(3),
        src: IpAddr::from([10, 0, 0, 7]),
        src_port: 5000 + n,
        post_src: [198, 51, 100, 1].into(),
        post_src_port: 1024 + n,
        dst: IpAddr::from([192, 0, 2, 9]),
        dst_port: 53,
        post_dst: [192, 0, 2, 9].into(),
        post_dst_port: 53,
    };
    let events = |created| {
        move |n: u16| NatEvent::Session {
            time_ns: NOW_NS - 1_000_000 * u64::from(n),
            session: session(n, created),
        }
    };
    (0..100).map(events(true)).chain((0..100).map(events(false))).collect()
}
