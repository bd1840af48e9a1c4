//! The meaning of fields, tested with small IPFIX messages.

use std::net::IpAddr;

use proptest::prelude::*;
use thalweg_base::{DropReason, Name};
use thalweg_wire::netflow::decode::Version;
use thalweg_wire::netflow::element::*;
use thalweg_wire::{MacAddr, application};

use super::*;
use crate::{
    Counters as FlowCounters, Details, Direction, EndReason, Event, FlowKey, NO_AS, NO_INTERFACE,
    SAMPLING_UNKNOWN,
};

const SECOND_NS: u64 = 1_000_000_000;
const EXPORT_S: u32 = 1_700_000_000;
const EXPORT_NS: u64 = EXPORT_S as u64 * SECOND_NS;
const EXPORTER: Source = Source { exporter: 1, is_stream: false };

type Fields<'a> = &'a [(u16, &'a [u8])];

/// Marks an element of the opposite direction.
const REVERSE: u16 = 0x8000;

fn set(id: u16, content: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &(content.len() as u16 + 4).to_be_bytes(), content].concat()
}

/// A message with one template of `fields`, of which the first `scopes` are scopes, and one record.
fn message(id: u16, scopes: usize, fields: Fields<'_>) -> Vec<u8> {
    let mut entry = [id.to_be_bytes(), (fields.len() as u16).to_be_bytes()].concat();
    if scopes > 0 {
        entry.extend((scopes as u16).to_be_bytes());
    }
    for (element, value) in fields {
        entry.extend(element.to_be_bytes());
        entry.extend((value.len() as u16).to_be_bytes());
        if element & REVERSE != 0 {
            entry.extend(REVERSE_ENTERPRISE.to_be_bytes());
        }
    }
    let record: Vec<u8> = fields.iter().flat_map(|(_, value)| value.iter().copied()).collect();
    let sets = [set(if scopes > 0 { 3 } else { 2 }, &entry), set(id, &record)].concat();
    let mut message = [&[0, 10][..], &(sets.len() as u16 + 16).to_be_bytes()].concat();
    message.extend(EXPORT_S.to_be_bytes());
    message.extend([0; 8]);
    [message, sets].concat()
}

fn flows(importer: &mut Importer, message: &[u8]) -> Vec<FlowRecord> {
    let mut flows = Vec::new();
    let report = importer.handle_message(EXPORTER, message, 0, &mut flows).unwrap();
    assert_eq!(report.first_fault, None);
    flows
}

/// An options record.
fn learn(importer: &mut Importer, scopes: usize, fields: Fields<'_>) {
    assert!(flows(importer, &message(400, scopes, fields)).is_empty());
}

/// The flow of these fields with two addresses and two counters.
fn flow(importer: &mut Importer, fields: Fields<'_>) -> FlowRecord {
    let common: Fields<'_> = &[
        (SOURCE_IPV4_ADDRESS, &[10, 0, 0, 1]),
        (DESTINATION_IPV4_ADDRESS, &[10, 0, 0, 2]),
        (PACKET_DELTA_COUNT, &[3]),
        (OCTET_DELTA_COUNT, &[0, 200]),
    ];
    let flows = flows(importer, &message(300, 0, &[common, fields].concat()));
    let [flow] = flows.try_into().unwrap();
    flow
}

fn one(fields: Fields<'_>) -> FlowRecord {
    flow(&mut Importer::default(), fields)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ms(ms: u64) -> [u8; 8] {
    (u64::from(EXPORT_S) * 1_000 - ms).to_be_bytes()
}

/// The time `before_ns` before the message's, in NTP format.
fn ntp(before_ns: u64) -> [u8; 8] {
    let ns = EXPORT_NS - before_ns;
    let fraction = ((ns % SECOND_NS) << 32).div_ceil(SECOND_NS);
    ((ns / SECOND_NS + 2_208_988_800) << 32 | fraction).to_be_bytes()
}

#[test]
fn a_flow_with_everything() {
    let found = one(&[
        (SOURCE_TRANSPORT_PORT, &[4, 0]),
        (DESTINATION_TRANSPORT_PORT, &[0, 53]),
        (PROTOCOL_IDENTIFIER, &[17]),
        (IP_CLASS_OF_SERVICE, &[0xb8]),
        (INGRESS_INTERFACE, &[0, 0, 0, 7]),
        (EGRESS_INTERFACE, &[0, 0, 0, 8]),
        (VLAN_ID, &[0x20, 9]),
        (MPLS_TOP_LABEL_STACK_SECTION, &[0, 4, 0x91]),
        (TCP_CONTROL_BITS, &[0x01, 0x12]),
        (MINIMUM_TTL, &[60]),
        (MAXIMUM_TTL, &[64]),
        (FLOW_START_MILLISECONDS, &ms(5_000)),
        (FLOW_END_MILLISECONDS, &ms(1_000)),
        (FLOW_END_REASON, &[3]),
        (IP_NEXT_HOP_IPV4_ADDRESS, &[10, 9, 9, 9]),
        (BGP_NEXT_HOP_IPV6_ADDRESS, &[0x20; 16]),
        (BGP_SOURCE_AS_NUMBER, &[0xfc, 0]),
        (BGP_DESTINATION_AS_NUMBER, &[0xff; 4]),
        (APPLICATION_NAME, b"DNS\0\0"),
        (SAMPLING_INTERVAL, &[100]),
    ]);
    let key = FlowKey {
        src: address("10.0.0.1"),
        dst: address("10.0.0.2"),
        src_port: 1_024,
        dst_port: 53,
        protocol: 17,
        traffic_class: 0xb8,
        ingress: 7,
        vlan: 9,
        mpls_label: Some(73),
    };
    let counters = FlowCounters {
        packets: 3,
        bytes: 200,
        first_ns: EXPORT_NS - 5 * SECOND_NS,
        last_ns: EXPORT_NS - SECOND_NS,
        tcp_flags: None,
        ttl_min: Some(60),
        ttl_max: Some(64),
    };
    let expected = FlowRecord {
        egress: 8,
        next_hop: Some(address("10.9.9.9")),
        bgp_next_hop: Some(address("2020:2020:2020:2020:2020:2020:2020:2020")),
        src_as: 64_512,
        dst_as: NO_AS,
        application: application::by_name("dns").unwrap().code,
        sampling_interval: 100,
        ..FlowRecord::new(key, counters, EndReason::EndDetected)
    };
    assert_eq!(found, expected);
}

#[test]
fn the_best_time_wins_in_any_order() {
    let (seconds, micro, nano) = ((EXPORT_S - 9).to_be_bytes(), ntp(3_000_000_000), ntp(2_000_000_007));
    let mut fields: Vec<(u16, &[u8])> = vec![
        (FLOW_START_SECONDS, &seconds),
        (FLOW_START_NANOSECONDS, &nano),
        (FLOW_START_MICROSECONDS, &micro),
        (FLOW_END_NANOSECONDS, &[0; 8]), // there, but empty
        (FLOW_END_DELTA_MICROSECONDS, &[0, 0, 0, 5]),
        (FLOW_END_SECONDS, &[0x70, 0, 0, 0]),
    ];
    for _ in 0..fields.len() {
        fields.rotate_left(1);
        let found = one(&fields).counters;
        assert_eq!(found.first_ns, EXPORT_NS - 2_000_000_007);
        assert_eq!(found.last_ns, EXPORT_NS - 5_000);
    }
}

#[test]
fn times_from_durations_events_and_the_message() {
    let times = |fields: Fields<'_>| {
        let found = one(fields).counters;
        (EXPORT_NS - found.first_ns, EXPORT_NS - found.last_ns)
    };
    let second = SECOND_NS;
    let duration: (u16, &[u8]) = (FLOW_DURATION_MILLISECONDS, &[3, 232]);
    assert_eq!(times(&[(FLOW_START_MILLISECONDS, &ms(5_000)), duration]), (5 * second, 4 * second));
    assert_eq!(times(&[(FLOW_END_MILLISECONDS, &ms(5_000)), duration]), (6 * second, 5 * second));
    assert_eq!(times(&[(FLOW_END_MILLISECONDS, &ms(5_000))]), (5 * second, 5 * second));
    let event: (u16, &[u8]) = (OBSERVATION_TIME_MILLISECONDS, &ms(2_000));
    assert_eq!(times(&[(FLOW_START_MILLISECONDS, &ms(5_000)), event]), (5 * second, 2 * second));
    assert_eq!(times(&[event]), (2 * second, 2 * second));
    // An end before the beginning is ignored.
    let swapped: Fields<'_> = &[(FLOW_START_MILLISECONDS, &ms(1_000)), (FLOW_END_MILLISECONDS, &ms(5_000))];
    assert_eq!(times(swapped), (second, second));

    let mut importer = Importer::default();
    let uptimes: Fields<'_> =
        &[(FLOW_START_SYS_UP_TIME, &[0, 0, 3, 232]), (FLOW_END_SYS_UP_TIME, &[0, 0, 11, 184])];
    let found = flow(&mut importer, uptimes).counters;
    assert_eq!((found.first_ns, found.last_ns), (EXPORT_NS - 2 * second, EXPORT_NS));
    assert_eq!(importer.counters().times_from_export, 1);
    // With the exporter's start from an options record, or from the record itself.
    let start = ms(10_000);
    learn(&mut importer, 1, &[(OBSERVATION_DOMAIN_ID, &[0; 4]), (SYSTEM_INIT_TIME_MILLISECONDS, &start)]);
    let expected = (EXPORT_NS - 9 * second, EXPORT_NS - 7 * second);
    let found = flow(&mut importer, uptimes).counters;
    assert_eq!((found.first_ns, found.last_ns), expected);
    let own: (u16, &[u8]) = (SYSTEM_INIT_TIME_MILLISECONDS, &start);
    let found = one(&[uptimes, &[own]].concat()).counters;
    assert_eq!((found.first_ns, found.last_ns), expected);
    assert_eq!(importer.counters().times_from_export, 1);
}

#[test]
fn biflows_by_reverse_elements_and_by_responders() {
    let found = one(&[
        (PROTOCOL_IDENTIFIER, &[6]),
        (REVERSE | PACKET_DELTA_COUNT, &[9]),
        (REVERSE | OCTET_DELTA_COUNT, &[90]),
        (REVERSE | TCP_CONTROL_BITS, &[0x18]),
        (REVERSE | MINIMUM_TTL, &[50]),
        (FLOW_START_MILLISECONDS, &ms(9_000)),
        (FLOW_END_MILLISECONDS, &ms(8_000)),
        (REVERSE | FLOW_START_MILLISECONDS, &ms(7_000)),
        (REVERSE | FLOW_END_MILLISECONDS, &ms(6_000)),
    ]);
    let reverse = found.reverse.unwrap();
    assert_eq!((reverse.packets, reverse.bytes, reverse.tcp_flags), (9, 90, Some(0x18)));
    assert_eq!((reverse.ttl_min, reverse.ttl_max), (Some(50), Some(50)));
    assert_eq!((reverse.first_ns, reverse.last_ns), (EXPORT_NS - 7 * SECOND_NS, EXPORT_NS - 6 * SECOND_NS));
    assert_eq!((found.counters.packets, found.counters.first_ns), (3, EXPORT_NS - 9 * SECOND_NS));

    let mut importer = Importer::default();
    let responder = message(
        256,
        0,
        &[
            (SOURCE_IPV4_ADDRESS, &[1; 4]),
            (DESTINATION_IPV4_ADDRESS, &[2; 4]),
            (INITIATOR_OCTETS, &[0, 7]),
            (RESPONDER_OCTETS, &[0, 8]),
        ],
    );
    let found = flows(&mut importer, &responder)[0];
    assert_eq!((found.counters.bytes, found.reverse.unwrap().bytes), (7, 8));
    assert_eq!(found.reverse.unwrap().first_ns, found.counters.first_ns);
    assert_eq!(one(&[(REVERSE | PACKET_DELTA_COUNT, &[0]), (RESPONDER_OCTETS, &[0])]).reverse, None);
}

#[test]
fn counts_of_what_came_before_those_of_what_left() {
    let found = one(&[(POST_OCTET_DELTA_COUNT, &[1]), (OCTET_TOTAL_COUNT, &[2]), (PACKET_TOTAL_COUNT, &[2])]);
    assert_eq!((found.counters.packets, found.counters.bytes), (3, 200));
    let addresses: Fields<'_> = &[(SOURCE_IPV6_ADDRESS, &[1; 16]), (DESTINATION_IPV6_ADDRESS, &[2; 16])];
    let post: Fields<'_> = &[(POST_OCTET_DELTA_COUNT, &[9]), (POST_PACKET_DELTA_COUNT, &[4])];
    let found = flows(&mut Importer::default(), &message(256, 0, &[addresses, post].concat()))[0];
    assert_eq!((found.counters.packets, found.counters.bytes), (4, 9));
    assert!(found.key.src.is_ipv6());
}

#[test]
fn the_family_is_said_or_seen() {
    let pair = |v4: &[u8; 4], v6: &[u8; 16], version: Option<&[u8]>| {
        let mut fields: Vec<(u16, &[u8])> = vec![
            (SOURCE_IPV6_ADDRESS, v6),
            (DESTINATION_IPV6_ADDRESS, v6),
            (SOURCE_IPV4_ADDRESS, v4),
            (DESTINATION_IPV4_ADDRESS, v4),
        ];
        fields.extend(version.map(|version| (IP_VERSION, version)));
        one(&fields).key.src.is_ipv6()
    };
    assert!(!pair(&[1; 4], &[0; 16], None));
    assert!(pair(&[0; 4], &[1; 16], None));
    assert!(!pair(&[1; 4], &[1; 16], None), "IPv4 where both are there and nothing says which");
    assert!(pair(&[1; 4], &[1; 16], Some(&[6])));
    assert!(!pair(&[0; 4], &[1; 16], Some(&[4])));
    assert!(!pair(&[0; 4], &[0; 16], None));
}

#[test]
fn translations_are_what_differs() {
    let found = one(&[
        (SOURCE_TRANSPORT_PORT, &[0, 9]),
        (POST_NAT_SOURCE_IPV4_ADDRESS, &[192, 0, 2, 1]),
        (POST_NAT_DESTINATION_IPV4_ADDRESS, &[0; 4]),
        (POST_NAPT_SOURCE_TRANSPORT_PORT, &[1, 0]),
    ]);
    let translation = found.translation.unwrap();
    assert_eq!((translation.src, translation.dst), (address("192.0.2.1"), found.key.dst));
    assert_eq!((translation.src_port, translation.dst_port), (256, 0));
    let same: Fields<'_> =
        &[(POST_NAT_SOURCE_IPV4_ADDRESS, &[10, 0, 0, 1]), (POST_NAPT_DESTINATION_TRANSPORT_PORT, &[0, 0])];
    assert_eq!(one(same).translation, None);
    // From IPv4 to IPv6: an IPv4-mapped address is still an IPv4 address.
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    let found =
        one(&[(POST_NAT_SOURCE_IPV6_ADDRESS, &mapped), (POST_NAT_DESTINATION_IPV6_ADDRESS, &[3; 16])]);
    assert_eq!(found.translation.unwrap().src, address("10.0.0.1"));
}

#[test]
fn samplers_are_looked_up_by_what_names_them() {
    let mut importer = Importer::default();
    let one_in = |importer: &mut Importer, fields: Fields<'_>| flow(importer, fields).sampling_interval;
    let seven: (u16, &[u8]) = (SELECTOR_ID, &[0, 0, 0, 7]);
    assert_eq!(one_in(&mut importer, &[]), 1);
    assert_eq!(importer.counters().samplers_unknown, 0);
    assert_eq!(one_in(&mut importer, &[seven]), SAMPLING_UNKNOWN);
    assert_eq!(importer.counters().samplers_unknown, 1);

    learn(
        &mut importer,
        1,
        &[seven, (SAMPLING_PACKET_INTERVAL, &[1]), (SAMPLING_SIZE, &[2]), (SAMPLING_POPULATION, &[1, 0])],
    );
    assert_eq!(one_in(&mut importer, &[(SAMPLER_ID, &[7])]), 128, "the same number in another element");
    learn(&mut importer, 1, &[seven, (SAMPLING_PACKET_INTERVAL, &[1]), (SAMPLING_PACKET_SPACE, &[99])]);
    assert_eq!(one_in(&mut importer, &[seven]), 100);
    learn(&mut importer, 1, &[seven, (SAMPLING_PROBABILITY, &0.002f64.to_be_bytes())]);
    assert_eq!(one_in(&mut importer, &[seven]), 500);
    learn(&mut importer, 1, &[seven, (SAMPLER_MODE, &[2]), (SAMPLER_RANDOM_INTERVAL, &[0, 50])]);
    assert_eq!(one_in(&mut importer, &[seven]), 50);
    // Contains no rate, so the known one stays.
    learn(&mut importer, 1, &[seven, (SAMPLING_PACKET_INTERVAL, &[1]), (SELECTOR_NAME, b"x")]);
    learn(&mut importer, 1, &[seven, (SAMPLING_PACKET_INTERVAL, &[0]), (SAMPLING_PACKET_SPACE, &[9])]);
    assert_eq!(one_in(&mut importer, &[seven]), 50);

    // Another rate from now on: earlier records keep theirs.
    learn(&mut importer, 1, &[seven, (SAMPLING_TIME_INTERVAL, &[10]), (SAMPLING_TIME_SPACE, &[3, 222])]);
    assert_eq!(one_in(&mut importer, &[seven]), 100, "10 ms of a second");
    learn(&mut importer, 1, &[seven, (SAMPLER_RANDOM_INTERVAL, &[0, 50])]);
    assert_eq!(one_in(&mut importer, &[seven]), 50);

    // The sampler of an interface, of the domain, of the record itself.
    learn(&mut importer, 1, &[(INGRESS_INTERFACE, &[3]), (SAMPLING_INTERVAL, &[30])]);
    learn(&mut importer, 1, &[(OBSERVATION_DOMAIN_ID, &[0; 4]), (SAMPLING_INTERVAL, &[40])]);
    assert_eq!(one_in(&mut importer, &[(INGRESS_INTERFACE, &[3])]), 30);
    assert_eq!(one_in(&mut importer, &[(INGRESS_INTERFACE, &[4])]), 40);
    let out: Fields<'_> = &[(INGRESS_INTERFACE, &[4]), (EGRESS_INTERFACE, &[3]), (FLOW_DIRECTION, &[1])];
    assert_eq!(one_in(&mut importer, out), 30, "metered where it left");
    assert_eq!(one_in(&mut importer, &[seven, (INGRESS_INTERFACE, &[3])]), 50);
    assert_eq!(one_in(&mut importer, &[seven, (SAMPLING_INTERVAL, &[60])]), 60);
    assert_eq!(importer.counters().samplers_unknown, 1);

    // Another domain has its own samplers; a removed one is unknown.
    let mut elsewhere = message(300, 0, &[(SOURCE_IPV4_ADDRESS, &[1; 4]), (PACKET_DELTA_COUNT, &[1])]);
    elsewhere[15] = 9;
    assert_eq!(flows(&mut importer, &elsewhere)[0].sampling_interval, 1);
    importer.forget(1);
    assert_eq!(one_in(&mut importer, &[(INGRESS_INTERFACE, &[4])]), 1);
}

#[test]
fn interfaces_and_applications_have_names() {
    let mut importer = Importer::default();
    learn(
        &mut importer,
        1,
        &[(INGRESS_INTERFACE, &[0, 3]), (INTERFACE_NAME, b"eth3\0\0"), (INTERFACE_DESCRIPTION, b"uplink")],
    );
    let session = SessionKey { exporter: 1, version: Version::Ipfix, domain: 0 };
    let names: Vec<_> = importer.interfaces().collect();
    let eth3 = InterfaceName { name: Name::of("eth3"), description: Name::of("uplink") };
    assert_eq!(names, [(session, 3, eth3)]);
    let named = flow(&mut importer, &[(INGRESS_INTERFACE, &[0, 3]), (EGRESS_INTERFACE, &[4])]);
    assert_eq!((named.ingress_name, named.egress_name), (eth3, InterfaceName::default()));

    let quic = application::by_name("quic").unwrap().code;
    learn(&mut importer, 1, &[(APPLICATION_ID, &[6, 0, 1]), (APPLICATION_NAME, b"QUIC")]);
    assert_eq!(flow(&mut importer, &[(APPLICATION_ID, &[6, 0, 1])]).application, quic);
    assert_eq!(flow(&mut importer, &[(APPLICATION_ID, &[6, 0, 2])]).application, 0);
    // By port and by protocol number, whose engines need no table.
    let ssh: Fields<'_> = &[(PROTOCOL_IDENTIFIER, &[6]), (APPLICATION_ID, &[3, 0, 0, 22])];
    assert_eq!(flow(&mut importer, ssh).application, application::by_name("ssh").unwrap().code);
    let gre = application::by_name("gre").unwrap().code;
    assert_eq!(flow(&mut importer, &[(APPLICATION_ID, &[1, 0, 0, 47])]).application, gre);
    importer.forget(1);
    assert_eq!(importer.interfaces().count(), 0);
}

#[test]
fn icmp_types_stand_in_for_ports() {
    let icmp: (u16, &[u8]) = (PROTOCOL_IDENTIFIER, &[1]);
    let ports = |fields: Fields<'_>| {
        let key = one(fields).key;
        (key.src_port, key.dst_port)
    };
    let port: (u16, &[u8]) = (DESTINATION_TRANSPORT_PORT, &[3, 1]);
    assert_eq!(ports(&[icmp, port, (SOURCE_TRANSPORT_PORT, &[0, 9])]), (0, 0x0301));
    assert_eq!(
        ports(&[icmp, port, (ICMP_TYPE_CODE_IPV4, &[8, 0]), (ICMP_TYPE_CODE_IPV6, &[0, 0])]),
        (0, 0x0800)
    );
    assert_eq!(
        ports(&[(PROTOCOL_IDENTIFIER, &[58]), (ICMP_TYPE_IPV6, &[135]), (ICMP_CODE_IPV6, &[0])]),
        (0, 135 << 8)
    );
    assert_eq!(ports(&[(PROTOCOL_IDENTIFIER, &[6]), port, (ICMP_TYPE_CODE_IPV4, &[8, 0])]), (0, 0x0301));
}

#[test]
fn drops_are_counted_by_the_routers_reason() {
    let drops = |fields: Fields<'_>| one(fields).drops;
    let counts: Fields<'_> = &[(DROPPED_PACKET_DELTA_COUNT, &[2]), (DROPPED_OCTET_DELTA_COUNT, &[99])];
    let found = drops(&[counts, &[(FORWARDING_STATUS, &[138])]].concat());
    assert_eq!(found.by_reason().collect::<Vec<_>>(), [(DropReason::Policed, 2)]);
    assert_eq!(found.bytes, 99);
    let found = drops(&[counts, &[(FORWARDING_STATUS, &[64])]].concat());
    assert_eq!((found.by_reason().count(), found.others(), found.bytes), (0, 2, 99));
    // Without counters all packets count as dropped; the status has four bytes.
    let found = drops(&[(FORWARDING_STATUS, &[0, 0, 0, 137])]);
    assert_eq!(found.by_reason().collect::<Vec<_>>(), [(DropReason::TtlExpired, 3)]);
    let found = drops(&[(FORWARDING_STATUS, &[128, 0, 0, 0])]);
    assert_eq!((found.packets(), found.bytes), (3, 200));
    assert!(drops(&[(FORWARDING_STATUS, &[64])]).is_empty());
    assert!(drops(&[(FORWARDING_STATUS, &[195])]).is_empty(), "consumed, not dropped");
}

#[test]
fn what_is_no_flow_or_has_no_place_is_counted() {
    let mut importer = Importer::default();
    let addresses: Fields<'_> = &[(SOURCE_IPV4_ADDRESS, &[1; 4]), (DESTINATION_IPV4_ADDRESS, &[2; 4])];
    let event = [addresses, &[(NAT_EVENT, &[1])]].concat();
    let told = flows(&mut importer, &message(256, 0, &event))[0];
    assert_eq!((told.details.event, told.counters.packets), (Some(Event::NatSessionBegin), 0));
    let macs: Fields<'_> = &[(SOURCE_MAC_ADDRESS, &[1; 6]), (OCTET_DELTA_COUNT, &[9])];
    assert!(flows(&mut importer, &message(257, 0, macs)).is_empty());
    let found =
        flow(&mut importer, &[(INGRESS_INTERFACE, &[0xff; 4]), (EGRESS_INTERFACE, &[0]), (USER_NAME, b"x")]);
    assert_eq!((found.key.ingress, found.egress), (u32::MAX, NO_INTERFACE), "as sent");
    let counters_of = found.counters;
    assert_eq!((counters_of.tcp_flags, counters_of.ttl_min, counters_of.ttl_max), (None, None, None));
    let counters = importer.counters();
    assert_eq!((counters.flow_records, counters.events, counters.without_addresses), (1, 1, 1));
    assert_eq!((counters.elements_ignored, counters.without_end_reason, found.end_reason), (1, 1, None));
    assert_eq!(importer.decoder().counters().records, 3);
}

/// Application Visibility and Control names clients and servers, by elements of Cisco's own or, in NetFlow 9, by
/// numbers above 32767.
#[test]
fn clients_and_servers_are_source_and_destination() {
    let message = |fields: &[(u32, u16, &[u8])]| {
        let mut template = [256u16.to_be_bytes(), (fields.len() as u16).to_be_bytes()].concat();
        for (enterprise, id, value) in fields {
            let bit = if *enterprise == 0 { 0 } else { 1 << 15 };
            template.extend((id | bit).to_be_bytes());
            template.extend((value.len() as u16).to_be_bytes());
            template.extend(enterprise.to_be_bytes().into_iter().filter(|_| *enterprise != 0));
        }
        let record: Vec<u8> = fields.iter().flat_map(|(.., value)| value.iter().copied()).collect();
        let sets = [set(2, &template), set(256, &record)].concat();
        let mut message = [&[0, 10][..], &(sets.len() as u16 + 16).to_be_bytes()].concat();
        message.extend(EXPORT_S.to_be_bytes());
        message.extend([0; 8]);
        [message, sets].concat()
    };
    let found = flows(
        &mut Importer::default(),
        &message(&[
            (9, 12_236, &[10, 0, 0, 1]),
            (9, 12_237, &[10, 0, 0, 2]),
            (9, 12_240, &[0x80, 0]),
            (9, 12_241, &[0, 53]),
            (0, PROTOCOL_IDENTIFIER, &[17]),
            (9, 8_337, &[1, 0]),
            (9, 8_338, &[60]),
            (0, INITIATOR_PACKETS, &[1]),
            (0, RESPONDER_PACKETS, &[2]),
            (9, 9_999, &[7]),
        ]),
    )[0];
    assert_eq!(
        (found.key.src.to_string(), found.key.dst.to_string()),
        ("10.0.0.1".into(), "10.0.0.2".into())
    );
    assert_eq!((found.key.src_port, found.key.dst_port, found.key.protocol), (0x8000, 53, 17));
    assert_eq!((found.counters.packets, found.counters.bytes), (1, 60));
    assert_eq!(found.reverse.map(|reverse| (reverse.packets, reverse.bytes)), Some((2, 256)));
}

#[test]
fn what_few_exporters_say_is_kept() {
    let found = one(&[
        (SOURCE_IPV4_PREFIX_LENGTH, &[24]),
        (SOURCE_IPV6_PREFIX_LENGTH, &[0]),
        (INGRESS_VRFID, &[0, 0, 0, 7]),
        (FLOW_DIRECTION, &[1]),
        (SOURCE_MAC_ADDRESS, &[2, 0, 0, 0, 0, 1]),
        (DESTINATION_MAC_ADDRESS, &[0; 6]),
        (EGRESS_PHYSICAL_INTERFACE, &[80, 0, 0, 11]),
    ]);
    let expected = Details {
        src_prefix_length: Some(24),
        ingress_vrf: Some(7),
        direction: Some(Direction::Egress),
        src_mac: Some(MacAddr([2, 0, 0, 0, 0, 1])),
        ..Details::default()
    };
    assert_eq!((found.details, found.egress), (expected, 0x5000_000b));
    // A block of 512 ports from 1024 on.
    let block: Fields<'_> = &[
        (SOURCE_IPV4_ADDRESS, &[10, 0, 0, 1]),
        (POST_NAT_SOURCE_IPV4_ADDRESS, &[192, 0, 2, 1]),
        (NAT_EVENT, &[16]),
        (PORT_RANGE_START, &[4, 0]),
        (PORT_RANGE_NUM_PORTS, &[2, 0]),
    ];
    let told = flows(&mut Importer::default(), &message(256, 0, block))[0];
    assert_eq!((told.details.event, told.details.nat_block_end), (Some(Event::NatBlockBegin), Some(1535)));
    assert_eq!(
        told.translation.map(|t| (t.src.to_string(), t.src_port)),
        Some(("192.0.2.1".to_owned(), 1024))
    );
}

proptest! {
    /// Any fields of any lengths: no panic, and every record is in the totals.
    #[test]
    fn records_are_counted(
        records in prop::collection::vec(
            prop::collection::vec(
                (prop::sample::select(ELEMENTS), any::<bool>(), prop::collection::vec(any::<u8>(), 0..17)),
                1..12,
            ),
            1..8,
        ),
        scopes in 0usize..2,
    ) {
        let mut importer = Importer::default();
        let mut given = 0;
        for record in &records {
            let name = |id: u16, reverse: bool| if reverse { id | REVERSE } else { id };
            let fields: Vec<(u16, &[u8])> = record
                .iter()
                .map(|(element, reverse, value)| (name(element.id, *reverse), value.as_slice()))
                .collect();
            let mut flows = Vec::new();
            let handled = importer.handle_message(EXPORTER, &message(256, scopes, &fields), 0, &mut flows);
            prop_assert!(handled.is_ok());
            for flow in &flows {
                prop_assert!(flow.counters.first_ns <= flow.counters.last_ns);
                prop_assert_eq!(flow.counters.ttl_min.is_some(), flow.counters.ttl_max.is_some());
                prop_assert_ne!(flow.counters.ttl_min, Some(0));
            }
            given += flows.len() as u64;
        }
        let counters = importer.counters();
        prop_assert_eq!(counters.flow_records + counters.events, given);
        prop_assert_eq!(importer.decoder().counters().records, given + counters.without_addresses);
    }
}
