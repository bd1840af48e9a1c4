//! NetFlow and IPFIX messages, and sFlow datagrams, through decoder and importer: no panic, bounds hold, and the
//! counters have every record and every waiting set, whatever the order of templates and data.
//!
//! The first byte chooses datagrams or a stream, and the bounds. Then messages follow, each behind two bytes of
//! length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_flow::import::{Importer, SflowImporter};
use thalweg_wire::netflow::decode::{Decoder, Limits, Source};

const WAITING_BYTES_MAX: usize = 4_096;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, mut rest)) = input.split_first() else { return };
    let limits = Limits {
        sessions_max: 1 + usize::from(choice >> 1 & 3),
        templates_max: 1 + usize::from(choice >> 3 & 7),
        template_bytes_max: 2_048,
        waiting_sets_max: 4,
        waiting_bytes_max: WAITING_BYTES_MAX,
        template_lifetime_ns: (choice & 0x40 != 0).then_some(3),
    };
    let source = Source { exporter: 1, is_stream: choice & 1 == 1 };
    let mut importer = Importer::new(limits);
    let mut decoder = Decoder::new(limits);
    let mut flows = Vec::new();
    let mut visited = 0;
    let mut received_ns = 0;
    while let Some((bytes, behind)) = rest.split_first_chunk::<2>() {
        let (message, behind) = behind.split_at(behind.len().min(usize::from(u16::from_be_bytes(*bytes))));
        rest = behind;
        received_ns += 1;
        let imported = importer.handle_message(source, message, received_ns, &mut flows);
        let decoded = decoder.handle_message(source, message, received_ns, |record| {
            visited += 1;
            let bytes: usize = record.fields().map(|field| field.bytes.len()).sum();
            assert!(bytes <= record.bytes().len());
            assert_eq!(record.fields().count(), record.template.fields.len());
            for field in record.fields() {
                let _ = (field.unsigned(), field.float(), field.address(), field.text(), field.time_ns(record.header));
            }
        });
        assert_eq!(imported, decoded);
        let (mut sflow, mut sampled) = (SflowImporter::default(), Vec::new());
        let _ = sflow.handle_datagram(1, message, received_ns, &mut sampled);
        assert_eq!(sflow.counters().flow_records, sampled.len() as u64);
    }
    let counters = decoder.counters();
    assert_eq!(counters, importer.decoder().counters());
    assert_eq!(counters.records + counters.options_records, visited);
    let (waiting, waiting_bytes) = decoder.waiting();
    assert!(waiting <= limits.waiting_sets_max && waiting_bytes <= WAITING_BYTES_MAX);
    assert!(decoder.templates().count() <= limits.templates_max);
    assert_eq!(counters.sets_unknown, counters.sets_recovered + counters.sets_given_up + waiting as u64);
    let sorted = importer.counters();
    assert_eq!(sorted.flow_records + sorted.events, flows.len() as u64);
    assert_eq!(counters.records, sorted.flow_records + sorted.events + sorted.without_addresses);
    importer.forget(1);
    assert_eq!(importer.decoder().templates().count(), 0);
});
