//! Received messages are sent on to another collector: importer, exporter, and an importer again. Whatever the
//! first importer understood, the second must too: the same records with the same counts, in every protocol that
//! can express them.
//!
//! The first byte chooses the protocol and the options of the exporter. Then messages follow, each behind two
//! bytes of length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, ExportOptions, Exporter, MESSAGE_BYTES_MIN, Times, Transport, Version};
use thalweg_flow::import::Importer;
use thalweg_wire::netflow::decode::{Limits, Source};

/// 2023-11-14 22:13:20 UTC.
const NOW_NS: u64 = 1_700_000_000_000_000_000;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let records = received(rest);
    let (version, times) = match choice & 3 {
        0 => (Version::NetFlow5, Times::Uptime),
        1 => (Version::NetFlow9, Times::Uptime),
        2 => (Version::Ipfix, Times::Milliseconds),
        _ => (Version::Ipfix, Times::Nanoseconds),
    };
    let options = ExportOptions {
        times,
        message_bytes_max: MESSAGE_BYTES_MIN + usize::from(choice >> 2 & 3) * 400,
        reduced_sizes: choice & 0x10 == 0,
        options_in_domain: choice & 0x20 != 0,
        ..ExportOptions::new(version, Transport::Datagram)
    };
    let mut exporter = Exporter::new(&options).expect("options that fit");
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(&records, NOW_NS);
    exporter.handle_end(NOW_NS);
    let mut importer = Importer::new(Limits::default());
    let (mut message, mut again) = (Vec::new(), Vec::new());
    while exporter.poll_message(&mut message).is_some() {
        assert!(message.len() <= options.message_bytes_max);
        let source = Source { exporter: 2, is_stream: false };
        let report = importer.handle_message(source, &message, NOW_NS, &mut again).expect("a message");
        assert_eq!(report.first_fault, None);
    }
    let totals = exporter.totals();
    assert_eq!(totals.exported.records, again.len() as u64);
    let out = totals.unexportable.iter().fold(totals.exported, |mut sum, unexportable| {
        sum += *unexportable;
        sum
    });
    let mut handled = totals.handled;
    handled.records += totals.split;
    assert_eq!(handled, out);
    assert_eq!(amount(&again), (totals.exported.packets, totals.exported.bytes));
    if version == Version::Ipfix {
        assert_eq!(records.len(), again.len());
        for (before, after) in records.iter().zip(&again) {
            assert_eq!((before.key.src, before.key.dst), (after.key.src, after.key.dst));
            let ports = |record: &FlowRecord| (record.key.ingress, record.egress, record.key.vlan);
            assert_eq!(ports(before), ports(after));
            assert_eq!(before.sampling_interval, after.sampling_interval);
            assert_eq!(before.end_reason, after.end_reason);
        }
    }
});

/// The flows of these messages, from one exporter over datagrams.
fn received(mut rest: &[u8]) -> Vec<FlowRecord> {
    let mut importer = Importer::new(Limits::default());
    let mut records = Vec::new();
    while let Some((bytes, behind)) = rest.split_first_chunk::<2>() {
        let (message, behind) = behind.split_at(behind.len().min(usize::from(u16::from_be_bytes(*bytes))));
        rest = behind;
        let source = Source { exporter: 1, is_stream: false };
        // Invalid messages yield no records.
        let _ = importer.handle_message(source, message, NOW_NS, &mut records);
    }
    records
}

/// The sums of packets and bytes.
fn amount(records: &[FlowRecord]) -> (u64, u64) {
    let mut sum = Amount::default();
    records.iter().for_each(|record| sum += Amount::of(record));
    (sum.packets, sum.bytes)
}
