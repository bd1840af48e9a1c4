//! tshark dissects every message without an error.

use super::*;
use thalweg_flow::export::{Interface, NatEvent, Quota, SamplingMethod, Statistics, Times};
use thalweg_testdata::collectors::tshark::{check, dissect};

/// Messages with every kind of record that an exporter can send.
fn everything(version: Version, times: Times) -> (Vec<Vec<u8>>, u64) {
    let options = ExportOptions {
        times,
        interfaces: vec![Interface {
            number: 1,
            name: "eth1".to_owned(),
            description: "to the world".to_owned(),
        }],
        sampling: SamplingMethod::Random,
        ..datagram_options(version)
    };
    let mut exporter = Exporter::new(&options).unwrap();
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(&all_kinds(900), NOW_NS);
    exporter.handle_nat_events(&nfdump::nat_sessions(), NOW_NS);
    let (inside, public) = ([10, 0, 0, 7].into(), [198, 51, 100, 1].into());
    exporter.handle_nat_events(
        &[
            NatEvent::QuotaExceeded { time_ns: NOW_NS, quota: Quota::Sessions, limit: 1000 },
            NatEvent::Binding {
                time_ns: NOW_NS,
                created: true,
                protocol: 17,
                vrf: None,
                src: (inside, 5000),
                post_src: (public, 1024),
            },
            NatEvent::PortBlock {
                time_ns: NOW_NS,
                allocated: false,
                vrf: Some(3),
                subscriber: inside,
                public,
                ports: (1024, 2047),
                pool: 1,
            },
            NatEvent::PortsExhausted { time_ns: NOW_NS, public, protocol: 6 },
            NatEvent::AddressesExhausted { time_ns: NOW_NS, pool: 0 },
        ],
        NOW_NS,
    );
    let amount = |packets| Amount { records: 0, packets, bytes: 100 * packets };
    exporter.handle_statistics(Statistics {
        seen: amount(30),
        exported: amount(10),
        cached: amount(15),
        dropped: vec![("not-ip", amount(5))],
        not_sent: Amount::default(),
    });
    exporter.handle_end(NOW_NS);
    let messages = polled(&mut exporter);
    (messages, exporter.totals().exported.records)
}

#[test]
fn nothing_is_malformed_missing_or_unknown() {
    for (version, times) in [
        (Version::NetFlow5, Times::Uptime),
        (Version::NetFlow9, Times::Uptime),
        (Version::NetFlow9, Times::Milliseconds),
        (Version::Ipfix, Times::Milliseconds),
        (Version::Ipfix, Times::Nanoseconds),
    ] {
        let (messages, records) = everything(version, times);
        let Some(text) = dissect(&messages) else { return };
        check(&text, &format!("{version:?} {times:?}"));
        // tshark shows options data as flows too.
        let shown = text
            .lines()
            .filter(|line| {
                line.trim_start().starts_with("Flow ")
                    && line.trim_end().ends_with(|c: char| c.is_ascii_digit())
            })
            .count() as u64;
        let pdus = text.lines().filter(|line| line.trim_start().starts_with("pdu ")).count() as u64;
        assert!(shown.max(pdus) >= records, "{version:?}: {shown} or {pdus} of {records}");
    }
}
