//! Options data in mid-session: samplers, names and statistics repeated between flows, as in a session of five
//! minutes. No collector may report a missing message.

use super::pmacct::KEYS;
use super::*;
use thalweg_flow::export::{Interface, Statistics};
use thalweg_testdata::collectors::pmacct::{check_log, collect, sum};
use thalweg_testdata::collectors::{nfdump, tshark};

const SECONDS: u64 = 300;
const RECORDS_PER_SECOND: usize = 10;

fn options(version: Version) -> ExportOptions {
    let interface =
        |number, name: &str| Interface { number, name: name.to_owned(), description: String::new() };
    ExportOptions {
        sampling_interval: 100,
        interfaces: vec![interface(1, "eth1"), interface(2, "eth2")],
        statistics_interval_ns: 10 * SECOND_NS,
        ..datagram_options(version)
    }
}

/// Flows, some of them sampled. Without biflows, which nfdump stores as one record and other programs as two.
fn flows() -> Vec<FlowRecord> {
    let records = all_kinds(2 * SECONDS * RECORDS_PER_SECOND as u64);
    let one_way = records.into_iter().filter(|record| record.reverse.is_none());
    one_way.take(SECONDS as usize * RECORDS_PER_SECOND).collect()
}

/// The messages of a session, with growing counters.
fn session(options: &ExportOptions, records: &[FlowRecord]) -> Vec<Vec<u8>> {
    let mut exporter = Exporter::new(options).unwrap();
    exporter.handle_connected(NOW_NS);
    let mut messages = Vec::new();
    for (second, batch) in (0..).zip(records.chunks(RECORDS_PER_SECOND)) {
        let now_ns = NOW_NS + second * SECOND_NS;
        let seen = Amount { records: 0, packets: second, bytes: 64 * second };
        let dropped = vec![("not-ip", seen)];
        exporter.handle_statistics(Statistics { seen, dropped, ..Statistics::default() });
        exporter.handle_records(batch, now_ns);
        exporter.handle_time(now_ns);
        messages.extend(polled(&mut exporter));
    }
    exporter.handle_end(NOW_NS + SECONDS * SECOND_NS);
    messages.extend(polled(&mut exporter));
    messages
}

#[test]
fn nfcapd_misses_nothing() {
    let (Some(nfcapd), Some(nfdump)) = (program("nfcapd", "nfdump"), program("nfdump", "nfdump")) else {
        return;
    };
    let records = flows();
    for version in [Version::NetFlow9, Version::Ipfix] {
        let mut collector = nfdump::Nfcapd::start(&nfcapd);
        nfdump::deliver(collector.port, &session(&options(version), &records));
        let (log, data) = collector.end();
        nfdump::check_log(&log);
        let totals = run(Command::new(&nfdump).arg("-R").arg(&data).arg("-I"));
        assert_eq!(nfdump::summary(&totals, "Flows"), records.len() as u64, "{version:?}\n{log}\n{totals}");
        assert_eq!(nfdump::summary(&totals, "Sequence failures"), 0, "{version:?}\n{log}");
    }
    // With options data in the flows' own domain, RFC 7011 counts it in the sequence numbers, and nfdump 1.7.1
    // does not. Hence the default, domain 0.
    let options = ExportOptions { options_in_domain: true, ..options(Version::Ipfix) };
    let mut collector = nfdump::Nfcapd::start(&nfcapd);
    nfdump::deliver(collector.port, &session(&options, &records));
    let (_, data) = collector.end();
    let totals = run(Command::new(&nfdump).arg("-R").arg(&data).arg("-I"));
    assert_eq!(nfdump::summary(&totals, "Flows"), records.len() as u64);
    println!("in the session's own domain: {} failures", nfdump::summary(&totals, "Sequence failures"));
}

#[test]
fn nfacctd_misses_nothing_and_multiplies() {
    // nfacctd applies an exporter's only sampler to all its flows.
    let sampled = |record: FlowRecord| FlowRecord { sampling_interval: 100, ..record };
    let records: Vec<_> = flows().into_iter().map(sampled).collect();
    for version in [Version::NetFlow9, Version::Ipfix] {
        let messages = session(&options(version), &records);
        let more = "nfacctd_disable_checks: false\nnfacctd_renormalize: true";
        let Some((rows, log)) = collect(&messages, KEYS, more) else { return };
        check_log(&log);
        assert!(!log.contains("expecting flow") && !log.contains("malformed"), "{version:?}\n{log}");
        assert_eq!(sum(&rows, "PACKETS"), 100 * amount(&records).packets, "{version:?}\n{log}");
        // A collector that starts in mid-session multiplies as well once samplers have been repeated; with IPFIX,
        // as domain 0.
        let from = messages.len() / 2;
        let more = "nfacctd_renormalize: true\nnfacctd_disable_opt_scope_check: true";
        let Some((rows, log)) = collect(&messages[from..], KEYS, more) else { return };
        let last = records.last().unwrap();
        let row = rows.iter().find(|row| row["SRC_IP"] == last.key.src.to_string());
        let packets = row.map(|row| row["PACKETS"].clone());
        assert_eq!(packets, Some((100 * last.counters.packets).to_string()), "{version:?}\n{log}");
    }
}

#[test]
fn tshark_finds_nothing_unexpected() {
    for version in [Version::NetFlow9, Version::Ipfix] {
        let Some(text) = tshark::dissect(&session(&options(version), &flows())) else { return };
        tshark::check(&text, &format!("{version:?}"));
        assert!(text.contains("eth2") && text.contains("dns"), "names are there");
    }
}
