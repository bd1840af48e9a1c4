//! Options data and NAT events arrive.

use super::reader::{Fields, Reader, address, number};
use super::*;
use std::net::Ipv4Addr;
use thalweg_flow::export::{
    Interface, NatEvent, NatSession, Quota, SamplingMethod, Statistics, Transport, Unexportable, Version,
};
use thalweg_wire::netflow::element::*;

fn text(fields: &Fields, element: u16) -> Option<String> {
    let bytes = fields.get(&(0, element))?;
    Some(String::from_utf8(bytes.clone()).unwrap().trim_end_matches('\0').to_owned())
}

fn get(fields: &Fields, element: u16) -> Option<u64> {
    fields.get(&(0, element)).map(|bytes| number(bytes))
}

fn named(version: Version) -> ExportOptions {
    let interface = |number, name: &str, description: &str| Interface {
        number,
        name: name.to_owned(),
        description: description.to_owned(),
    };
    ExportOptions {
        interfaces: vec![
            interface(1, "eth0", ""),
            interface(70_002, "näme", &"Übergang zum Nachbarn ".repeat(20)),
        ],
        variable_names: true,
        ..ExportOptions::new(version, Transport::Datagram)
    }
}

#[test]
fn names_arrive() {
    for version in [Version::NetFlow9, Version::Ipfix] {
        let reader = Reader::of(&session(&named(version), &[simple(1)], NOW_NS));
        let names: Vec<_> = reader
            .options
            .iter()
            .filter_map(|(_, fields)| {
                let interface =
                    get(fields, INGRESS_INTERFACE).or(fields.get(&(u32::MAX, 2)).map(|bytes| number(bytes)));
                Some((interface?, text(fields, INTERFACE_NAME)?, text(fields, INTERFACE_DESCRIPTION)?))
            })
            .collect();
        assert_eq!(names[0], (1, "eth0".to_owned(), String::new()));
        assert_eq!((names[1].0, names[1].1.as_str()), (70_002, "näme"));
        assert!(names[1].2.starts_with("Übergang") && names[1].2.len() <= 200, "{}", names[1].2);
        let dns = reader
            .options
            .iter()
            .find(|(_, fields)| text(fields, APPLICATION_NAME).as_deref() == Some("dns"));
        assert_eq!(dns.unwrap().1[&(0, APPLICATION_ID)], [6, 0, 0, 8]);
    }
}

#[test]
fn samplers_are_told_before_their_records() {
    for (method, algorithm, mode) in [(SamplingMethod::Systematic, 1, 1), (SamplingMethod::Random, 3, 2)] {
        for version in [Version::NetFlow9, Version::Ipfix] {
            let records = [simple(1), FlowRecord { sampling_interval: 100, ..simple(2) }];
            let options =
                ExportOptions { sampling: method, ..ExportOptions::new(version, Transport::Datagram) };
            let reader = Reader::of(&session(&options, &records, NOW_NS));
            let sampler = reader.options.iter().find_map(|(_, fields)| {
                let ipfix = get(fields, SELECTOR_ALGORITHM).map(|algorithm| {
                    let probability = f64::from_bits(get(fields, SAMPLING_PROBABILITY).unwrap());
                    (get(fields, SELECTOR_ID).unwrap(), algorithm, (1.0 / probability).round() as u64)
                });
                let netflow9 = || {
                    Some((
                        get(fields, SAMPLER_ID)?,
                        get(fields, SAMPLER_MODE)?,
                        get(fields, SAMPLER_RANDOM_INTERVAL)?,
                    ))
                };
                ipfix.or_else(netflow9)
            });
            let expected = if version == Version::Ipfix { algorithm } else { mode };
            assert_eq!(sampler, Some((1, expected, 100)));
            let element = if version == Version::Ipfix { SELECTOR_ID } else { SAMPLER_ID };
            assert_eq!(get(&reader.flows[0], element), None);
            assert_eq!(get(&reader.flows[1], element), Some(1));
        }
    }
}

#[test]
fn statistics_arrive_and_add_up() {
    let amount = |records, packets, bytes| Amount { records, packets, bytes };
    let statistics = Statistics {
        seen: amount(0, 100, 10_000),
        exported: amount(5, 50, 5000),
        cached: amount(3, 30, 3000),
        dropped: vec![("not-ip", amount(0, 15, 1500)), ("flow-limit", amount(2, 5, 500))],
        not_sent: amount(1, 2, 3),
    };
    let mut exporter = Exporter::new(&ExportOptions::new(Version::Ipfix, Transport::Datagram)).unwrap();
    exporter.handle_connected(NOW_NS);
    exporter.handle_records(&[simple(1), simple(2)], NOW_NS);
    exporter.flush(NOW_NS);
    exporter.handle_statistics(statistics);
    exporter.handle_time(NOW_NS + 60 * SECOND_NS);
    exporter.handle_end(NOW_NS + 61 * SECOND_NS);
    let messages: Vec<_> = poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect();
    let reader = Reader::of(&messages);
    let totals: Vec<_> = reader
        .options
        .iter()
        .filter_map(|(_, fields)| Some((text(fields, 335)?, get(fields, 86)?, get(fields, 85)?)))
        .take(5)
        .collect();
    let expected = [
        ("seen", 100, 10_000),
        ("exported", 50, 5000),
        ("cached", 30, 3000),
        ("not-ip", 15, 1500),
        ("flow-limit", 5, 500),
    ];
    assert_eq!(totals, expected.map(|(name, packets, bytes)| (name.to_owned(), packets, bytes)));
    assert_eq!(totals[0].1, totals[1..].iter().map(|(_, packets, _)| packets).sum::<u64>());
    let find = |element| reader.options.iter().find_map(|(_, fields)| get(fields, element));
    assert_eq!(find(EXPORTED_FLOW_RECORD_TOTAL_COUNT), Some(2));
    assert_eq!(find(IGNORED_PACKET_TOTAL_COUNT), Some(20));
    assert_eq!(find(NOT_SENT_FLOW_TOTAL_COUNT), Some(1));
    assert_eq!(find(NOT_SENT_OCTET_TOTAL_COUNT), Some(3));
}

#[test]
fn nat_events_arrive() {
    let session = NatSession {
        created: true,
        protocol: 17,
        vrf: None,
        src: "10.0.0.7".parse().unwrap(),
        src_port: 5000,
        post_src: Ipv4Addr::new(198, 51, 100, 1),
        post_src_port: 1024,
        dst: "192.0.2.9".parse().unwrap(),
        dst_port: 53,
        post_dst: Ipv4Addr::new(192, 0, 2, 9),
        post_dst_port: 53,
    };
    let six: IpAddr = "2001:db8::7".parse().unwrap();
    let time_ns = NOW_NS;
    let events = [
        NatEvent::Session { time_ns, session },
        NatEvent::Session { time_ns, session: NatSession { created: false, ..session } },
        NatEvent::Session {
            time_ns,
            session: NatSession { src: six, dst: "64:ff9b::c000:209".parse().unwrap(), ..session },
        },
        NatEvent::PortBlock {
            time_ns,
            allocated: true,
            vrf: None,
            subscriber: session.src,
            public: session.post_src,
            ports: (1024, 2047),
            pool: 1,
        },
        NatEvent::PortBlock {
            time_ns,
            allocated: false,
            vrf: None,
            subscriber: six,
            public: session.post_src,
            ports: (1024, 2047),
            pool: 1,
        },
        NatEvent::PortsExhausted { time_ns, public: session.post_src, protocol: 6 },
        NatEvent::AddressesExhausted { time_ns, pool: 3 },
        NatEvent::QuotaExceeded { time_ns, quota: Quota::Sessions, limit: 1000 },
        NatEvent::QuotaExceeded { time_ns, quota: Quota::Subscriber(session.src, None), limit: 10 },
    ];
    for version in [Version::NetFlow9, Version::Ipfix] {
        let mut exporter = Exporter::new(&ExportOptions::new(version, Transport::Datagram)).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_nat_events(&events, NOW_NS);
        exporter.handle_records(&[simple(1)], NOW_NS);
        exporter.flush(NOW_NS);
        let messages: Vec<_> = poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect();
        let reader = Reader::of(&messages);
        let codes: Vec<_> = reader.flows.iter().filter_map(|fields| get(fields, NAT_EVENT)).collect();
        assert_eq!(codes, [4, 5, 6, 16, 17, 12, 3, 13, 13]);
        assert_eq!(reader.flows.len(), events.len() + 1);
        let first = &reader.flows[0];
        assert_eq!(get(first, OBSERVATION_TIME_MILLISECONDS), Some(NOW_NS / 1_000_000));
        assert_eq!(address(&first[&(0, POST_NAT_SOURCE_IPV4_ADDRESS)]), IpAddr::V4(session.post_src));
        assert_eq!(get(first, POST_NAPT_SOURCE_TRANSPORT_PORT), Some(1024));
        assert_eq!(address(&reader.flows[2][&(0, SOURCE_IPV6_ADDRESS)]), six);
        assert_eq!(get(&reader.flows[8], 466), Some(3));
        assert_eq!(get(&reader.flows[8], 473), Some(10));
        assert_eq!(exporter.totals().exported.records, events.len() as u64 + 1);
    }
    let mut exporter = Exporter::new(&ExportOptions::new(Version::NetFlow5, Transport::Datagram)).unwrap();
    exporter.handle_nat_events(&events, NOW_NS);
    assert_eq!(exporter.totals().unexportable[Unexportable::NatEvent as usize].records, events.len() as u64);
}

/// An interface that returns with another number is announced with its name, on streams too.
#[test]
fn other_interfaces_are_told_in_mid_session() {
    for (version, transport) in [
        (Version::NetFlow9, Transport::Datagram),
        (Version::Ipfix, Transport::Datagram),
        (Version::Ipfix, Transport::Stream),
    ] {
        let options = ExportOptions { interfaces: Vec::new(), ..ExportOptions::new(version, transport) };
        let mut exporter = Exporter::new(&options).unwrap();
        exporter.handle_connected(NOW_NS);
        exporter.handle_records(&[simple(1)], NOW_NS);
        let eth0 = |number| Interface { number, name: "eth0".to_owned(), description: String::new() };
        exporter.handle_interfaces(vec![eth0(7)], NOW_NS);
        exporter.handle_records(&[simple(2)], NOW_NS);
        exporter.handle_interfaces(vec![eth0(9)], NOW_NS);
        exporter.flush(NOW_NS);
        let messages: Vec<_> = poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect();
        let reader = Reader::of(&messages);
        let number = |fields: &Fields| {
            get(fields, INGRESS_INTERFACE).or(fields.get(&(u32::MAX, 2)).map(|bytes| number(bytes)))
        };
        let told = reader.options.iter().filter(|(_, fields)| text(fields, INTERFACE_NAME).is_some());
        let told: Vec<_> = told.filter_map(|(_, fields)| number(fields)).collect();
        assert_eq!((told, reader.flows.len()), (vec![7, 9], 2), "{version:?} {transport:?}");
    }
}
