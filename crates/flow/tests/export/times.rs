//! Times are right, whatever the exporter's uptime and the packets' age.

use super::reader::{Reader, number};
use super::*;
use thalweg_flow::export::{Times, Transport, Unexportable, Version};
use thalweg_wire::netflow::element::*;

const DAY_NS: u64 = 24 * 3600 * SECOND_NS;

fn at(first_ns: u64, last_ns: u64) -> FlowRecord {
    let record = simple(1);
    FlowRecord { counters: Counters { first_ns, last_ns, ..record.counters }, ..record }
}

/// First and last times of all flows, in milliseconds since the epoch, as a collector computes them.
fn told(reader: &Reader) -> Vec<(u64, u64)> {
    let get = |fields: &super::reader::Fields, element| number(&fields[&(0, element)]);
    let times = |fields| (get(fields, FLOW_START_MILLISECONDS), get(fields, FLOW_END_MILLISECONDS));
    reader.flows.iter().map(times).collect()
}

#[test]
fn a_year_of_uptime() {
    for version in [Version::NetFlow5, Version::NetFlow9] {
        let mut exporter = Exporter::new(&ExportOptions::new(version, Transport::Datagram)).unwrap();
        exporter.handle_connected(NOW_NS);
        let (mut reader, mut expected) = (Reader::default(), Vec::new());
        for hours in 0..365 * 24 {
            let now_ns = NOW_NS + hours * 3600 * SECOND_NS + 123_456_789;
            let record = at(now_ns - 1800 * SECOND_NS - 7_000_000, now_ns);
            exporter.handle_records(&[record], now_ns);
            exporter.flush(now_ns);
            let first_ms = record.counters.first_ns / 1_000_000;
            expected.push((first_ms, record.counters.last_ns / 1_000_000));
            for (message, _) in poll_all(&mut exporter) {
                reader.read(&message);
                let time_s = u64::from(*reader.times_s.last().unwrap());
                assert!(time_s.abs_diff(now_ns / SECOND_NS) <= 1, "export time");
            }
        }
        assert_eq!(told(&reader), expected);
    }
}

#[test]
fn a_clock_that_is_set_is_followed() {
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let mut exporter = Exporter::new(&ExportOptions::new(version, Transport::Datagram)).unwrap();
        exporter.handle_connected(NOW_NS);
        let (mut reader, mut expected) = (Reader::default(), Vec::new());
        let mut announced = 0;
        for (turn, days) in [0, 5, -40, -39, 4000, 0].into_iter().enumerate() {
            let now_ns = NOW_NS.saturating_add_signed(days * DAY_NS.cast_signed()) + turn as u64 * SECOND_NS;
            let record = at(now_ns - 60 * SECOND_NS, now_ns - SECOND_NS);
            exporter.handle_records(&[record], now_ns);
            exporter.handle_time(now_ns + 1_000_000);
            exporter.flush(now_ns + 1_000_000);
            expected.push((record.counters.first_ns / 1_000_000, record.counters.last_ns / 1_000_000));
            for (message, _) in poll_all(&mut exporter) {
                reader.read(&message);
            }
            let time_s = u64::from(*reader.times_s.last().unwrap());
            assert!(time_s.abs_diff(now_ns / SECOND_NS) <= 1, "{version:?}: export time");
            // Nothing waits for the clock to reach its old value again.
            let now_announced: u32 = reader.announced.values().sum();
            assert!(version == Version::NetFlow5 || now_announced > announced, "{version:?}, {days} days");
            announced = now_announced;
        }
        assert_eq!(told(&reader), expected, "{version:?}");
    }
}

#[test]
fn an_old_capture_exported_today() {
    // Four hours of ten years ago, then the present.
    let old_ns = NOW_NS - 3650 * DAY_NS;
    let mut records: Vec<_> =
        (0..200).map(|n| at(old_ns + n * 72 * SECOND_NS, old_ns + (n * 72 + 60) * SECOND_NS)).collect();
    records.push(simple(3));
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        let options = ExportOptions::new(version, Transport::Datagram);
        let mut exporter = Exporter::new(&options).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_records(&records, NOW_NS);
        exporter.flush(NOW_NS);
        let messages: Vec<_> = poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect();
        let reader = Reader::of(&messages);
        let expected: Vec<_> = records
            .iter()
            .map(|record| (record.counters.first_ns / 1_000_000, record.counters.last_ns / 1_000_000))
            .collect();
        assert_eq!(told(&reader), expected, "{version:?}");
    }
}

#[test]
fn the_clock_of_packets_may_be_ahead() {
    let ahead = at(NOW_NS + 3600 * SECOND_NS, NOW_NS + 3601 * SECOND_NS);
    for version in [Version::NetFlow5, Version::NetFlow9] {
        let reader = Reader::of(&session(
            &ExportOptions::new(version, Transport::Datagram),
            &[simple(1), ahead, simple(2)],
            NOW_NS,
        ));
        assert_eq!(told(&reader)[1], (NOW_NS / 1_000_000 + 3_600_000, NOW_NS / 1_000_000 + 3_601_000));
        assert_eq!(reader.flows.len(), 3);
    }
}

#[test]
fn a_flow_longer_than_version_5_can_say_is_counted() {
    let mut exporter = Exporter::new(&ExportOptions::new(Version::NetFlow5, Transport::Datagram)).unwrap();
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(&[at(NOW_NS - 60 * DAY_NS, NOW_NS), simple(1), simple6(1)], NOW_NS);
    let unexportable = exporter.totals().unexportable;
    assert_eq!(unexportable[Unexportable::Duration as usize].records, 1);
    assert_eq!(unexportable[Unexportable::Ipv6 as usize].packets, simple6(1).packets());
    assert_eq!(exporter.totals().exported.records, 1);
}

#[test]
fn nanoseconds_are_ntp_times() {
    let options = ExportOptions {
        times: Times::Nanoseconds,
        ..ExportOptions::new(Version::Ipfix, Transport::Datagram)
    };
    let reader = Reader::of(&session(&options, &[at(NOW_NS + 500_000_000, NOW_NS + 750_000_000)], NOW_NS));
    let first = number(&reader.flows[0][&(0, FLOW_START_NANOSECONDS)]);
    assert_eq!(first, (1_700_000_000 + 2_208_988_800) << 32 | 1 << 31);
    let last = number(&reader.flows[0][&(0, FLOW_END_NANOSECONDS)]);
    assert_eq!(last as u32, 3 << 30);
}

/// Received records may have any time.
#[test]
fn the_end_of_time_is_told_or_refused() {
    for version in [Version::NetFlow5, Version::NetFlow9, Version::Ipfix] {
        for times in [Times::Uptime, Times::Milliseconds, Times::Nanoseconds] {
            let options = ExportOptions { times, ..ExportOptions::new(version, Transport::Datagram) };
            let Ok(mut exporter) = Exporter::new(&options) else { continue };
            exporter.handle_connected(NOW_NS);
            exporter.handle_records(&[at(u64::MAX, u64::MAX), at(0, u64::MAX), simple(1)], NOW_NS);
            exporter.flush(NOW_NS);
            let messages: Vec<_> = poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect();
            let told = Reader::of(&messages).flows.len();
            assert!((1..=3).contains(&told), "{version:?} {times:?}: {told}");
        }
    }
}
