//! Small handmade messages, and a tiny encoder whose messages must be decoded unchanged.

use proptest::prelude::*;

use super::*;
use crate::netflow::element::*;

const SECOND_NS: u64 = 1_000_000_000;
const UDP: Source = Source { exporter: 1, is_stream: false };
const TCP: Source = Source { exporter: 1, is_stream: true };

/// A set with its header.
fn set(id: u16, content: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &(content.len() as u16 + 4).to_be_bytes(), content].concat()
}

fn ipfix(sequence: u32, second: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let sets = sets.concat();
    let mut message = vec![0, 10];
    message.extend((sets.len() as u16 + 16).to_be_bytes());
    for word in [second, sequence, 77] {
        message.extend(word.to_be_bytes());
    }
    [message, sets].concat()
}

fn netflow9(sequence: u32, second: u32, uptime_ms: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let mut message = vec![0, 9, 0, 1];
    for word in [uptime_ms, second, sequence, 77] {
        message.extend(word.to_be_bytes());
    }
    [message, sets.concat()].concat()
}

fn netflow5(sequence: u32, second: u32, records: u16) -> Vec<u8> {
    let mut message = vec![0, 5];
    message.extend(records.to_be_bytes());
    for word in [5_000, second, 7, sequence, 0x0102_03e8] {
        message.extend(word.to_be_bytes());
    }
    message.extend((0..records).flat_map(|record| [record as u8; 48]));
    message
}

/// A template of elements and their lengths.
fn template(id: u16, fields: &[(u16, u16)]) -> Vec<u8> {
    let mut entry = [id.to_be_bytes(), (fields.len() as u16).to_be_bytes()].concat();
    for (element, bytes) in fields {
        entry.extend(element.to_be_bytes());
        entry.extend(bytes.to_be_bytes());
    }
    entry
}

/// Template 256 of most tests: records of one and two bytes.
fn short_template() -> Vec<u8> {
    template(256, &[(PROTOCOL_IDENTIFIER, 1), (SOURCE_TRANSPORT_PORT, 2)])
}

/// The contents of a message's records, as names and bytes.
type Seen = Vec<Vec<(FieldName, Vec<u8>)>>;

fn take(decoder: &mut Decoder, source: Source, message: &[u8], now_ns: u64) -> (Report, Seen) {
    let mut seen = Vec::new();
    let handled = decoder.handle_message(source, message, now_ns, |record| {
        seen.push(record.fields().map(|field| (field.name, field.bytes.to_vec())).collect());
    });
    (handled.unwrap(), seen)
}

/// The number of records in a message.
fn records(decoder: &mut Decoder, source: Source, message: &[u8]) -> usize {
    take(decoder, source, message, 0).1.len()
}

fn kind_of(report: &Report) -> FaultKind {
    report.first_fault.unwrap().kind
}

#[test]
fn headers_that_make_no_sense_refuse_the_message() {
    let mut decoder = Decoder::default();
    let mut refused = |message: &[u8]| {
        let fault = decoder.handle_message(UDP, message, 0, |_| panic!("no record")).unwrap_err();
        (fault.offset, fault.kind)
    };
    assert_eq!(refused(&[]), (0, FaultKind::HeaderShort { needs: 2, has: 0 }));
    assert_eq!(refused(&[0, 10, 0, 16]), (0, FaultKind::HeaderShort { needs: 16, has: 4 }));
    assert_eq!(refused(&netflow9(0, 0, 0, &[])[..19]), (0, FaultKind::HeaderShort { needs: 20, has: 19 }));
    assert_eq!(refused(&[0, 7, 0, 0]), (0, FaultKind::Version(7)));
    assert_eq!(refused(&[0x16, 0x03, 0x01, 0x00]), (0, FaultKind::Version(0x1603)));
    let whole = ipfix(0, 0, &[set(2, &short_template())]);
    let has = whole.len() - 1;
    assert_eq!(refused(&whole[..has]), (2, FaultKind::MessageLength { says: whole.len(), has }));
    assert_eq!(refused(&netflow5(0, 0, 31)), (2, FaultKind::RecordCount { says: 31, has: 31 }));
    assert_eq!(refused(&netflow5(0, 0, 0)), (2, FaultKind::RecordCount { says: 0, has: 0 }));
    assert_eq!(decoder.counters().messages_refused, 8);
    assert_eq!(decoder.counters().messages, [0; 3]);
}

#[test]
fn a_stream_is_cut_by_the_length_field() {
    let message = ipfix(0, 0, &[set(2, &short_template())]);
    assert_eq!(stream_message_bytes(&message[..3]), Ok(None));
    assert_eq!(stream_message_bytes(&message), Ok(Some(message.len())));
    assert_eq!(stream_message_bytes(&[0, 9, 0, 0]).unwrap_err().kind, FaultKind::Version(9));
    let short = stream_message_bytes(&[0, 10, 0, 15]).unwrap_err();
    assert_eq!(short.kind, FaultKind::MessageLength { says: 15, has: 4 });
    assert_eq!(short.to_string(), "byte 2: the length field says 15 bytes, 4 are here");
}

#[test]
fn netflow_5_has_a_layout_a_sampler_and_an_engine() {
    let mut decoder = Decoder::default();
    let (report, seen) = take(&mut decoder, UDP, &netflow5(0, 100, 2), 0);
    assert_eq!((report.records, seen.len(), seen[0].len()), (2, 2, 20));
    assert_eq!(seen[1][0], (FieldName::Element(SOURCE_IPV4_ADDRESS), vec![1; 4]));
    assert_eq!(report.header.domain, 0x0102);
    assert_eq!(report.header.sampling_interval, Some(1000));
    assert_eq!(report.header.export_ns, 100 * SECOND_NS + 7);
    // Truncated: complete records count.
    let (report, seen) = take(&mut decoder, UDP, &netflow5(2, 100, 3)[..24 + 48 + 47], 0);
    assert_eq!(seen.len(), 1);
    assert_eq!(kind_of(&report), FaultKind::RecordCount { says: 3, has: 1 });
    // The header counts three, so the next number is 5.
    let (report, _) = take(&mut decoder, UDP, &[netflow5(5, 100, 1), vec![0; 2]].concat(), 0);
    assert_eq!((kind_of(&report), report.order), (FaultKind::Trailing(2), Order::InOrder));
}

#[test]
fn times_count_from_the_start_across_the_wrap() {
    let header = Header {
        uptime_ms: Some(1_000),
        export_ns: 100 * SECOND_NS,
        ..take(&mut Decoder::default(), UDP, &netflow9(0, 0, 0, &[]), 0).0.header
    };
    assert_eq!(header.uptime_to_ns(0), Some(99 * SECOND_NS));
    assert_eq!(header.uptime_to_ns(1_500), Some(100 * SECOND_NS + SECOND_NS / 2));
    assert_eq!(header.uptime_to_ns(u32::MAX - 999), Some(98 * SECOND_NS));
    assert_eq!(Header { uptime_ms: None, ..header }.uptime_to_ns(0), None);
}

#[test]
fn data_waits_for_its_template_and_keeps_its_order() {
    let mut decoder = Decoder::default();
    let early = ipfix(0, 1, &[set(256, &[1, 0, 1, 2, 0, 2]), set(257, &[9])]);
    let (report, seen) = take(&mut decoder, UDP, &early, 0);
    assert_eq!((report.sets_unknown, seen.len()), (2, 0));
    records(&mut decoder, UDP, &ipfix(3, 1, &[set(256, &[3, 0, 3])]));
    assert_eq!(decoder.waiting().0, 3);
    // Another domain's template with the same number does not apply.
    let mut elsewhere = ipfix(0, 1, &[set(2, &short_template())]);
    elsewhere[15] = 78;
    assert_eq!(records(&mut decoder, UDP, &elsewhere), 0);
    assert_eq!(records(&mut decoder, Source::datagrams(2), &ipfix(0, 1, &[set(2, &short_template())])), 0);
    // Before its template in the same message, and behind it.
    let both = ipfix(4, 1, &[set(256, &[4, 0, 4]), set(2, &short_template()), set(256, &[5, 0, 5])]);
    let (report, seen) = take(&mut decoder, UDP, &both, 0);
    let firsts: Vec<u8> = seen.iter().map(|record| record[0].1[0]).collect();
    assert_eq!(firsts, [1, 2, 3, 4, 5]);
    assert_eq!((report.records, report.records_recovered, report.sets_unknown), (1, 4, 1));
    let counters = decoder.counters();
    assert_eq!((counters.sets_unknown, counters.sets_recovered, counters.sets_given_up), (4, 3, 0));
    assert_eq!((counters.records, decoder.waiting().0), (5, 1));
}

#[test]
fn what_waits_is_bounded_and_the_oldest_goes() {
    let limits = Limits { waiting_sets_max: 2, ..Limits::default() };
    let mut decoder = Decoder::new(limits);
    for number in 0..5 {
        records(&mut decoder, UDP, &ipfix(u32::from(number), 1, &[set(256, &[number, 0, 0])]));
    }
    assert_eq!((decoder.waiting().0, decoder.counters().sets_given_up), (2, 3));
    let (_, seen) = take(&mut decoder, UDP, &ipfix(5, 1, &[set(2, &short_template())]), 0);
    assert_eq!(seen.iter().map(|record| record[0].1[0]).collect::<Vec<_>>(), [3, 4]);

    let mut decoder = Decoder::new(Limits { waiting_bytes_max: 1_000, ..Limits::default() });
    records(&mut decoder, UDP, &ipfix(0, 1, &[set(256, &[0; 2_000])]));
    assert_eq!((decoder.waiting(), decoder.counters().sets_given_up), ((0, 0), 1));
}

#[test]
fn templates_are_bounded_expire_and_change() {
    let limits = Limits { templates_max: 2, template_lifetime_ns: Some(10 * SECOND_NS), ..Limits::default() };
    let mut decoder = Decoder::new(limits);
    let entry = |id| set(2, &template(id, &[(PROTOCOL_IDENTIFIER, 1)]));
    take(&mut decoder, UDP, &ipfix(0, 1, &[entry(256), entry(257), entry(256), entry(258)]), 0);
    let known: Vec<u16> = decoder.templates().map(|(_, template)| template.id).collect();
    assert_eq!(known, [256, 258], "257 was renewed longest ago");
    assert_eq!((decoder.counters().templates, decoder.counters().templates_evicted), (4, 1));
    // Within its lifetime, then after.
    assert_eq!(take(&mut decoder, UDP, &ipfix(0, 1, &[set(258, &[6])]), 10 * SECOND_NS).1.len(), 1);
    assert_eq!(take(&mut decoder, UDP, &ipfix(1, 1, &[set(258, &[6])]), 11 * SECOND_NS).1.len(), 0);
    assert_eq!(decoder.counters().templates_expired, 1);
    // Once the template is renewed, the data that waited is read.
    assert_eq!(take(&mut decoder, UDP, &ipfix(2, 1, &[entry(258)]), 11 * SECOND_NS).1.len(), 1);
    // Another layout under the same number.
    let other = set(2, &template(258, &[(SOURCE_TRANSPORT_PORT, 2)]));
    let (_, seen) = take(&mut decoder, UDP, &ipfix(2, 1, &[other, set(258, &[1, 2])]), 11 * SECOND_NS);
    assert_eq!(seen, [[(FieldName::Element(SOURCE_TRANSPORT_PORT), vec![1, 2])]]);
    assert_eq!(decoder.counters().templates_changed, 1);
    // A stream's templates live as long as the stream.
    let mut decoder = Decoder::new(limits);
    take(&mut decoder, TCP, &ipfix(0, 1, &[entry(256)]), 0);
    assert_eq!(take(&mut decoder, TCP, &ipfix(0, 1, &[set(256, &[6])]), 99 * SECOND_NS).1.len(), 1);
}

#[test]
fn templates_are_withdrawn_over_streams_only() {
    let define = ipfix(
        0,
        1,
        &[
            set(2, &[short_template(), template(257, &[(IP_VERSION, 1)])].concat()),
            set(3, &[1, 2, 0, 1, 0, 1, 0, 149, 0, 4]),
        ],
    );
    let known = |decoder: &Decoder| decoder.templates().map(|(_, template)| template.id).collect::<Vec<_>>();
    let mut decoder = Decoder::default();
    records(&mut decoder, TCP, &define);
    assert_eq!(known(&decoder), [256, 257, 258]);
    records(&mut decoder, TCP, &ipfix(0, 1, &[set(2, &[1, 0, 0, 0])]));
    assert_eq!(known(&decoder), [257, 258]);
    // Of another kind, and unknown.
    records(&mut decoder, TCP, &ipfix(0, 1, &[set(2, &[1, 2, 0, 0, 9, 9, 0, 0])]));
    assert_eq!((known(&decoder), decoder.counters().withdrawals_ignored), (vec![257, 258], 2));
    // All templates of a kind: the set's number.
    records(&mut decoder, TCP, &ipfix(0, 1, &[set(2, &[0, 2, 0, 0])]));
    assert_eq!(known(&decoder), [258]);
    records(&mut decoder, TCP, &ipfix(0, 1, &[set(3, &[0, 3, 0, 0])]));
    assert_eq!((known(&decoder), decoder.counters().withdrawals), (vec![], 3));

    let mut decoder = Decoder::default();
    records(&mut decoder, UDP, &define);
    records(&mut decoder, UDP, &ipfix(0, 1, &[set(2, &[1, 0, 0, 0]), set(2, &[0, 2, 0, 0])]));
    assert_eq!((known(&decoder).len(), decoder.counters().withdrawals_ignored), (3, 2));
}

#[test]
fn an_exporter_that_is_gone_leaves_nothing() {
    let mut decoder = Decoder::default();
    let message = ipfix(0, 1, &[set(2, &short_template()), set(300, &[1])]);
    records(&mut decoder, TCP, &message);
    records(&mut decoder, Source::stream(2), &message);
    decoder.forget(1);
    assert_eq!((decoder.templates().count(), decoder.waiting().0), (1, 1));
    assert_eq!(decoder.counters().sets_given_up, 1);
    assert_eq!(take(&mut decoder, TCP, &ipfix(9, 1, &[]), 0).0.order, Order::Unchecked);
    assert_eq!(take(&mut decoder, Source::stream(2), &ipfix(9, 1, &[]), 0).0.order, Order::Unchecked);
}

#[test]
fn a_reboot_forgets_templates_of_netflow_9() {
    let mut decoder = Decoder::default();
    records(&mut decoder, UDP, &netflow9(500, 1_000, 500_000, &[set(0, &short_template())]));
    assert_eq!(records(&mut decoder, UDP, &netflow9(501, 1_001, 501_000, &[set(256, &[1, 0, 1])])), 1);
    let (report, seen) = take(&mut decoder, UDP, &netflow9(0, 1_060, 3_000, &[set(256, &[1, 0, 1])]), 0);
    assert_eq!((report.order, report.sets_unknown, seen.len()), (Order::Restart, 1, 0));
    assert_eq!(decoder.counters().templates_rebooted, 1);
    assert_eq!(records(&mut decoder, UDP, &netflow9(1, 1_061, 4_000, &[set(0, &short_template())])), 1);
}

#[test]
fn each_version_counts_its_own_units() {
    let mut decoder = Decoder::default();
    let mut order = |message: &[u8]| take(&mut decoder, UDP, message, 0).0.order;
    // Flows.
    assert_eq!(order(&netflow5(10, 1, 3)), Order::Unchecked);
    assert_eq!(order(&netflow5(13, 1, 2)), Order::InOrder);
    assert_eq!(order(&netflow5(17, 1, 1)), Order::Gap(2));
    assert_eq!(order(&netflow5(15, 1, 2)), Order::Late);
    // Messages.
    assert_eq!(order(&netflow9(10, 1, 9, &[set(0, &short_template())])), Order::Unchecked);
    assert_eq!(order(&netflow9(11, 1, 9, &[set(256, &[1, 0, 1, 1, 0, 1])])), Order::InOrder);
    assert_eq!(order(&netflow9(12, 1, 9, &[])), Order::InOrder);
    assert_eq!(order(&netflow9(12, 1, 9, &[])), Order::Repeated);
    // Data records, including options, without templates.
    let options = set(3, &[1, 2, 0, 2, 0, 1, 0, 149, 0, 1, 0, 41, 0, 1]);
    assert_eq!(order(&ipfix(u32::MAX, 1, &[set(2, &short_template()), options])), Order::Unchecked);
    assert_eq!(order(&ipfix(u32::MAX, 1, &[set(256, &[1, 0, 1]), set(258, &[1, 1])])), Order::InOrder);
    assert_eq!(order(&ipfix(1, 1, &[set(999, &[1])])), Order::InOrder);
    assert_eq!(
        order(&ipfix(5, 1, &[])),
        Order::Unchecked,
        "records of an unknown template cannot be counted"
    );
    let sequence = decoder.counters().sequence;
    assert_eq!((sequence.gaps, sequence.units_missing, sequence.late, sequence.repeated), (1, 0, 1, 1));
    assert_eq!((sequence.unchecked, sequence.in_order, sequence.restarts), (4, 5, 0));
}

#[test]
fn sessions_are_bounded() {
    let mut decoder = Decoder::new(Limits { sessions_max: 3, ..Limits::default() });
    for exporter in 0..10 {
        records(&mut decoder, Source::datagrams(exporter), &ipfix(0, 1, &[]));
    }
    assert_eq!(decoder.counters().sessions_evicted, 7);
    assert_eq!(decoder.sessions.len(), 3);
}

#[test]
fn faults_end_their_set_and_no_more() {
    let mut decoder = Decoder::default();
    let good = set(2, &short_template());
    let fault = |decoder: &mut Decoder, sets: &[Vec<u8>]| {
        let (report, seen) = take(decoder, UDP, &ipfix(0, 1, sets), 0);
        (report.first_fault.map(|fault| (fault.offset, fault.kind)), seen.len())
    };
    let data = set(256, &[1, 0, 1]);
    // Reserved numbers, of sets and of templates.
    assert_eq!(
        fault(&mut decoder, &[good.clone(), set(4, &[1]), data.clone()]),
        (Some((32, FaultKind::SetId(4))), 1)
    );
    let low = set(2, &template(255, &[(IP_VERSION, 1)]));
    assert_eq!(fault(&mut decoder, &[low, data.clone()]), (Some((20, FaultKind::TemplateId(255))), 1));
    // More fields than the set has room for.
    let mut short = template(257, &[(IP_VERSION, 1)]);
    short[3] = 2;
    assert_eq!(
        fault(&mut decoder, &[set(2, &short), data.clone()]),
        (Some((28, FaultKind::TemplateShort { id: 257 })), 1)
    );
    // A missing enterprise number.
    let cut = set(2, &template(257, &[(0x8001, 1)]));
    assert_eq!(
        fault(&mut decoder, &[cut, data.clone()]),
        (Some((24, FaultKind::TemplateShort { id: 257 })), 1)
    );
    let empty = set(2, &template(257, &[(IP_VERSION, 0)]));
    assert_eq!(fault(&mut decoder, &[empty, data.clone()]), (Some((20, FaultKind::TemplateEmpty(257))), 1));
    let hollow: Vec<(u16, u16)> = (0..18).map(|field| (field + 1, u16::from(field == 0))).collect();
    let hollow = set(2, &template(257, &hollow));
    assert_eq!(fault(&mut decoder, &[hollow, data.clone()]), (Some((20, FaultKind::TemplateEmpty(257))), 1));
    let scopes = set(3, &[1, 1, 0, 1, 0, 2, 0, 149, 0, 4]);
    assert_eq!(fault(&mut decoder, &[scopes, data.clone()]), (Some((20, FaultKind::TemplateScopes(257))), 1));
    // A set longer than the message: the start of the next one is unknown.
    let mut long = data.clone();
    long[3] = 200;
    let lost = FaultKind::SetLength { says: 200, has: 14 };
    assert_eq!(fault(&mut decoder, &[data.clone(), long, data.clone()]), (Some((23, lost)), 1));
    assert_eq!(fault(&mut decoder, &[data.clone(), vec![7]]), (Some((23, FaultKind::Trailing(1))), 1));
    assert_eq!(fault(&mut decoder, &[data.clone(), vec![0; 9]]), (None, 1));
    assert_eq!(decoder.counters().faults, 9);
}

#[test]
fn fields_of_variable_length() {
    let mut decoder = Decoder::default();
    let names = set(2, &template(256, &[(INTERFACE_NAME, VARIABLE), (IP_VERSION, 1), (USER_NAME, VARIABLE)]));
    let long = vec![b'x'; 300];
    let record = [&[2, b'a', b'b', 4, 255][..], &300u16.to_be_bytes(), &long, &[0, 6, 0]].concat();
    let (report, seen) = take(&mut decoder, UDP, &ipfix(0, 1, &[names, set(256, &record)]), 0);
    assert_eq!(report.first_fault, None);
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].iter().map(|field| field.1.len()).collect::<Vec<_>>(), [2, 1, 300]);
    assert_eq!(seen[1].iter().map(|field| field.1.len()).collect::<Vec<_>>(), [0, 1, 0]);
    // A record that ends behind its set: those before it stay.
    let (report, seen) = take(&mut decoder, UDP, &ipfix(2, 1, &[set(256, &[0, 6, 0, 5, b'a', b'b', 1])]), 0);
    assert_eq!(seen.len(), 1);
    assert_eq!(
        report.first_fault.unwrap(),
        Fault { offset: 23, kind: FaultKind::FieldLength { says: 5, has: 3 } }
    );
    assert_eq!(take(&mut decoder, UDP, &ipfix(9, 1, &[]), 0).0.order, Order::Unchecked);
}

#[test]
fn enterprises_reverses_and_scopes_are_told_apart() {
    let mut decoder = Decoder::default();
    let enterprise =
        |id: u16, pen: u32| [&(id | 0x8000).to_be_bytes()[..], &[0, 1], &pen.to_be_bytes()].concat();
    let fields =
        [enterprise(1, REVERSE_ENTERPRISE), enterprise(1, 6_871), enterprise(1, 0), vec![0, 1, 0, 1]];
    let entry = [&[1, 0, 0, 4][..], &fields.concat()].concat();
    let (_, seen) = take(&mut decoder, UDP, &ipfix(0, 1, &[set(2, &entry), set(256, &[1, 2, 3, 4])]), 0);
    let names: Vec<FieldName> = seen[0].iter().map(|field| field.0).collect();
    let vendor = FieldName::Enterprise { enterprise: 6_871, id: 1 };
    assert_eq!(names, [FieldName::Reverse(1), vendor, FieldName::Element(1), FieldName::Element(1)]);
    assert_eq!(names[0].element().unwrap().name, "octetDeltaCount");
    assert_eq!(names[1].element(), None);

    // NetFlow 9: lengths of scopes and options in bytes, its own scopes, vendors' elements without an enterprise
    // number.
    let options = [1, 0, 0, 4, 0, 8, 0, 2, 0, 4, 0, 34, 0, 2, 0x80, 0xe8, 0, 1];
    let data = set(256, &[0, 0, 0, 9, 0, 100, 5]);
    let mut decoder = Decoder::default();
    let mut scopes = Vec::new();
    let message = netflow9(0, 1, 1, &[set(1, &options), data]);
    let report = decoder
        .handle_message(UDP, &message, 0, |record| {
            assert_eq!((record.template.kind, record.template.scopes), (TemplateKind::Options, 1));
            scopes = record.fields().map(|field| (field.name, field.is_scope, field.unsigned())).collect();
        })
        .unwrap();
    assert_eq!((report.records, report.options_records), (0, 1));
    let vendor = FieldName::Element(0x80e8);
    assert_eq!(
        scopes,
        [
            (FieldName::Scope(2), true, Some(9)),
            (FieldName::Element(34), false, Some(100)),
            (vendor, false, Some(5))
        ]
    );
}

#[test]
fn tails_are_noticed_and_padding_is_not() {
    let mut decoder = Decoder::default();
    records(&mut decoder, UDP, &ipfix(0, 1, &[set(2, &short_template()), set(256, &[1, 0, 1, 0, 0])]));
    assert_eq!(decoder.counters().sets_with_tail, 0);
    records(&mut decoder, UDP, &ipfix(1, 1, &[set(256, &[1, 0, 1, 0, 9])]));
    assert_eq!((decoder.counters().sets_with_tail, decoder.counters().records), (1, 2));
}

/// A field of a random template: name, length in the template, and its value in a record.
fn arbitrary_field() -> impl Strategy<Value = (FieldName, u16)> {
    let name = prop_oneof![
        (0u16..0x8000).prop_map(FieldName::Element),
        (0u16..0x8000).prop_map(FieldName::Reverse),
        (1u32..=u32::MAX, 0u16..0x8000)
            .prop_filter("another name", |(enterprise, _)| *enterprise != REVERSE_ENTERPRISE)
            .prop_map(|(enterprise, id)| FieldName::Enterprise { enterprise, id }),
    ];
    (name, prop_oneof![4 => 0u16..20, 1 => Just(VARIABLE)])
}

/// An options or data template with records of values.
#[derive(Clone, Debug)]
struct Written {
    id: u16,
    scopes: usize,
    fields: Vec<(FieldName, u16)>,
    records: Vec<Vec<Vec<u8>>>,
}

fn arbitrary_written() -> impl Strategy<Value = Written> {
    let fields = prop::collection::vec(arbitrary_field(), 1..8)
        .prop_filter("records have bytes", |fields| fields.iter().any(|(_, bytes)| *bytes != 0));
    (256u16.., 0usize..4, fields).prop_flat_map(|(id, scopes, fields)| {
        let value = |bytes: u16| match bytes {
            VARIABLE => prop_oneof![prop::collection::vec(any::<u8>(), 0..300)].boxed(),
            bytes => prop::collection::vec(any::<u8>(), usize::from(bytes)).boxed(),
        };
        let record: Vec<_> = fields.iter().map(|(_, bytes)| value(*bytes)).collect();
        let scopes = scopes.min(fields.len());
        prop::collection::vec(record, 0..5).prop_map(move |records| Written {
            id,
            scopes,
            fields: fields.clone(),
            records,
        })
    })
}

impl Written {
    fn template_set(&self) -> Vec<u8> {
        let mut entry = [self.id.to_be_bytes(), (self.fields.len() as u16).to_be_bytes()].concat();
        if self.scopes > 0 {
            entry.extend((self.scopes as u16).to_be_bytes());
        }
        for (name, bytes) in &self.fields {
            let (id, enterprise) = match *name {
                FieldName::Element(id) | FieldName::Scope(id) => (id, None),
                FieldName::Reverse(id) => (id | 0x8000, Some(REVERSE_ENTERPRISE)),
                FieldName::Enterprise { enterprise, id } => (id | 0x8000, Some(enterprise)),
            };
            entry.extend(id.to_be_bytes());
            entry.extend(bytes.to_be_bytes());
            entry.extend(enterprise.iter().flat_map(|enterprise| enterprise.to_be_bytes()));
        }
        set(if self.scopes > 0 { 3 } else { 2 }, &entry)
    }

    fn data_set(&self, padding: usize) -> Vec<u8> {
        let mut content = Vec::new();
        for ((_, bytes), value) in self.records.iter().flat_map(|record| self.fields.iter().zip(record)) {
            match (*bytes, value.len()) {
                (VARIABLE, 255..) => {
                    content.push(255);
                    content.extend((value.len() as u16).to_be_bytes());
                }
                (VARIABLE, short) => content.push(short as u8),
                _ => {}
            }
            content.extend(value);
        }
        // Padding must be shorter than any record.
        let bytes_min: usize = self
            .fields
            .iter()
            .map(|(_, bytes)| if *bytes == VARIABLE { 1 } else { usize::from(*bytes) })
            .sum();
        content.extend(vec![0; padding.min(bytes_min - 1)]);
        set(self.id, &content)
    }

    fn seen(&self) -> Seen {
        let named = |record: &Vec<Vec<u8>>| {
            self.fields.iter().zip(record).map(|((name, _), value)| (*name, value.clone())).collect()
        };
        self.records.iter().map(named).collect()
    }
}

proptest! {
    /// Everything written is decoded, whether the template comes before or after.
    #[test]
    fn what_is_written_is_read(written in arbitrary_written(), padding in 0usize..4, template_first: bool) {
        let mut sets = vec![written.template_set(), written.data_set(padding)];
        if !template_first {
            sets.reverse();
        }
        let mut decoder = Decoder::default();
        let (report, seen) = take(&mut decoder, UDP, &ipfix(0, 1, &sets), 0);
        prop_assert_eq!(report.first_fault, None);
        prop_assert_eq!(seen, written.seen());
        let counters = decoder.counters();
        prop_assert_eq!(counters.records + counters.options_records, written.records.len() as u64);
        prop_assert_eq!(counters.options_records > 0, written.scopes > 0 && !written.records.is_empty());
        prop_assert_eq!(counters.sets_with_tail, 0);
        let (_, template) = decoder.templates().next().unwrap();
        prop_assert_eq!(template.scopes, written.scopes);
    }

    /// Bytes changed anywhere: no panic, records lie within the message, sets are counted.
    #[test]
    fn damaged_messages_do_no_harm(
        written in prop::collection::vec(arbitrary_written(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        version in prop::sample::select(vec![5u8, 9, 10]),
    ) {
        let sets: Vec<Vec<u8>> = written.iter().flat_map(|w| [w.data_set(0), w.template_set(), w.data_set(0)]).collect();
        let mut message = ipfix(0, 1, &sets);
        message[1] = version;
        for (place, byte) in damage {
            let place = place.index(message.len());
            message[place] = byte;
        }
        let bytes = message.len() - cut.index(message.len()) / 8;
        let mut decoder = Decoder::default();
        let mut visited = 0u64;
        for _ in 0..2 {
            let handled = decoder.handle_message(UDP, &message[..bytes], 0, |record| {
                visited += 1;
                let bytes: usize = record.fields().map(|field| field.bytes.len()).sum();
                assert!(bytes <= record.bytes().len());
                for field in record.fields() {
                    let _ = (field.unsigned(), field.float(), field.address(), field.text());
                    let _ = field.time_ns(record.header);
                }
            });
            if let Ok(report) = handled {
                prop_assert_eq!(report.faults > 0, report.first_fault.is_some());
                prop_assert!(report.first_fault.is_none_or(|fault| fault.offset <= message.len()));
            }
        }
        let counters = decoder.counters();
        prop_assert_eq!(counters.records + counters.options_records, visited);
        prop_assert_eq!(
            counters.sets_unknown,
            counters.sets_recovered + counters.sets_given_up + decoder.waiting().0 as u64
        );
    }
}
