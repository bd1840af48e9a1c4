//! Every field of a record arrives in each protocol that has it.

use super::reader::{Fields, Reader, address, number};
use super::*;
use thalweg_flow::NO_AS;
use thalweg_flow::export::{ExportOptions, Times, Transport, Version, read_image, write_image};
use thalweg_wire::netflow::element::*;

fn value(fields: &Fields, element: u16) -> Option<u64> {
    fields.get(&(0, element)).map(|bytes| number(bytes))
}

fn place(fields: &Fields, elements: [u16; 2]) -> Option<IpAddr> {
    elements.iter().find_map(|&element| fields.get(&(0, element))).map(|bytes| address(bytes))
}

fn counters(fields: &Fields, enterprise: u32) -> Option<Counters> {
    let get = |element| fields.get(&(enterprise, element)).map(|bytes| number(bytes));
    let (first_ns, last_ns) = match get(FLOW_START_NANOSECONDS) {
        Some(first) => (unix_ns(first), unix_ns(get(FLOW_END_NANOSECONDS)?)),
        None => (get(FLOW_START_MILLISECONDS)? * 1_000_000, get(FLOW_END_MILLISECONDS)? * 1_000_000),
    };
    Some(Counters {
        packets: get(PACKET_DELTA_COUNT)?,
        bytes: get(OCTET_DELTA_COUNT)?,
        first_ns,
        last_ns,
        tcp_flags: get(TCP_CONTROL_BITS).map(|flags| flags as u8),
        ttl_min: get(MINIMUM_TTL).map(|ttl| ttl as u8),
        ttl_max: get(MAXIMUM_TTL).map(|ttl| ttl as u8),
    })
}

fn unix_ns(ntp: u64) -> u64 {
    let seconds = (ntp >> 32) - 2_208_988_800;
    seconds * SECOND_NS + (((ntp & 0xffff_ffff) * SECOND_NS) >> 32)
}

/// A record made from received fields. Drop reasons are not exported; their sums are checked separately.
fn record_of(fields: &Fields, samplers: &[(u64, u32)]) -> FlowRecord {
    let get = |element| value(fields, element).unwrap();
    let key = FlowKey {
        src: place(fields, [SOURCE_IPV4_ADDRESS, SOURCE_IPV6_ADDRESS]).unwrap(),
        dst: place(fields, [DESTINATION_IPV4_ADDRESS, DESTINATION_IPV6_ADDRESS]).unwrap(),
        src_port: get(SOURCE_TRANSPORT_PORT) as u16,
        dst_port: get(DESTINATION_TRANSPORT_PORT) as u16,
        protocol: get(PROTOCOL_IDENTIFIER) as u8,
        traffic_class: get(IP_CLASS_OF_SERVICE) as u8,
        ingress: value(fields, INGRESS_INTERFACE).map_or(NO_INTERFACE, |number| number as u32),
        vlan: value(fields, VLAN_ID).unwrap_or(0) as u16,
        mpls_label: value(fields, MPLS_TOP_LABEL_STACK_SECTION).map(|section| (section >> 4) as u32),
    };
    let hop = |elements: [u16; 2]| {
        let hops = elements.map(|element| fields.get(&(0, element)).map(|bytes| address(bytes)));
        hops.into_iter().flatten().find(|hop| !hop.is_unspecified())
    };
    let post = place(fields, [POST_NAT_SOURCE_IPV4_ADDRESS, POST_NAT_SOURCE_IPV6_ADDRESS]);
    let translation = post.map(|src| Translation {
        src,
        dst: place(fields, [POST_NAT_DESTINATION_IPV4_ADDRESS, POST_NAT_DESTINATION_IPV6_ADDRESS]).unwrap(),
        src_port: get(POST_NAPT_SOURCE_TRANSPORT_PORT) as u16,
        dst_port: get(POST_NAPT_DESTINATION_TRANSPORT_PORT) as u16,
    });
    let sampler = value(fields, SELECTOR_ID).or(value(fields, SAMPLER_ID));
    let sampling_interval = match (sampler, value(fields, SAMPLING_INTERVAL)) {
        (Some(id), _) => samplers.iter().find(|(known, _)| *known == id).expect("an unknown sampler").1,
        (None, Some(interval)) if interval > 0 => interval as u32,
        _ => 1,
    };
    let vrf = |element| value(fields, element).map(|vrf| vrf as u32).filter(|vrf| *vrf != u32::MAX);
    FlowRecord {
        reverse: counters(fields, REVERSE_ENTERPRISE),
        application: value(fields, APPLICATION_ID).unwrap_or(0) as u8,
        egress: value(fields, EGRESS_INTERFACE).map_or(NO_INTERFACE, |number| number as u32),
        next_hop: hop([IP_NEXT_HOP_IPV4_ADDRESS, IP_NEXT_HOP_IPV6_ADDRESS]),
        bgp_next_hop: hop([BGP_NEXT_HOP_IPV4_ADDRESS, BGP_NEXT_HOP_IPV6_ADDRESS]),
        src_as: value(fields, BGP_SOURCE_AS_NUMBER).unwrap_or(0) as u32,
        dst_as: value(fields, BGP_DESTINATION_AS_NUMBER).unwrap_or(0) as u32,
        translation,
        sampling_interval,
        details: Details {
            ingress_vrf: vrf(INGRESS_VRFID),
            egress_vrf: vrf(EGRESS_VRFID),
            ..Details::default()
        },
        ..FlowRecord::new(
            key,
            counters(fields, 0).unwrap(),
            value(fields, FLOW_END_REASON).and_then(|code| EndReason::from_code(code as u8)),
        )
    }
}

/// Announced samplers: number and interval.
fn samplers(reader: &Reader) -> Vec<(u64, u32)> {
    let sampler = |(_, fields): &(u16, Fields)| {
        let ipfix = value(fields, SELECTOR_ID).map(|id| {
            let (interval, space) = (
                value(fields, SAMPLING_PACKET_INTERVAL).unwrap(),
                value(fields, SAMPLING_PACKET_SPACE).unwrap(),
            );
            assert_eq!(interval, 1);
            (id, space as u32 + 1)
        });
        ipfix.or_else(|| Some((value(fields, SAMPLER_ID)?, value(fields, SAMPLER_RANDOM_INTERVAL)? as u32)))
    };
    reader.options.iter().filter_map(sampler).collect()
}

fn in_milliseconds(record: &FlowRecord) -> FlowRecord {
    let cut = |counters: Counters| Counters {
        first_ns: counters.first_ns / 1_000_000 * 1_000_000,
        last_ns: counters.last_ns / 1_000_000 * 1_000_000,
        ..counters
    };
    FlowRecord { counters: cut(record.counters), reverse: record.reverse.map(cut), ..*record }
}

/// Flags and TTLs are exported together: an unknown one beside a known one becomes 0.
fn with_zeros(counters: Counters) -> Counters {
    let told = |value: Option<u8>| value.or(Some(0));
    let Counters { tcp_flags, ttl_min, ttl_max, .. } = counters;
    Counters { tcp_flags: told(tcp_flags), ttl_min: told(ttl_min), ttl_max: told(ttl_max), ..counters }
}

/// A record without its drops, and with unspecified next hops as none.
fn without_drops(record: &FlowRecord) -> FlowRecord {
    let Counters { tcp_flags, ttl_min, ttl_max, .. } = record.counters;
    let is_said = tcp_flags.or(ttl_min).or(ttl_max).is_some();
    let hop = |hop: Option<IpAddr>| hop.filter(|hop| !hop.is_unspecified());
    FlowRecord {
        counters: if is_said { with_zeros(record.counters) } else { record.counters },
        reverse: record.reverse.map(with_zeros),
        drops: Drops::default(),
        next_hop: hop(record.next_hop),
        bgp_next_hop: hop(record.bgp_next_hop),
        ..*record
    }
}

/// Both directions of a biflow, as separate records.
fn ways(record: &FlowRecord) -> Vec<FlowRecord> {
    let mut ways = vec![FlowRecord { reverse: None, ..*record }];
    if let Some(counters) = record.reverse {
        ways.push(FlowRecord {
            key: record.key.reversed(),
            counters,
            reverse: None,
            egress: NO_INTERFACE,
            next_hop: None,
            bgp_next_hop: None,
            src_as: record.dst_as,
            dst_as: record.src_as,
            translation: None,
            drops: Drops::default(),
            details: Details { ingress_vrf: record.details.ingress_vrf, ..Details::default() },
            ..*record
        });
    }
    ways
}

fn check_drops(fields: &Fields, record: &FlowRecord) {
    let drops = &record.drops;
    let told = (!drops.is_empty()).then_some((drops.bytes, drops.packets()));
    let bytes = value(fields, DROPPED_OCTET_DELTA_COUNT);
    assert_eq!(bytes.map(|bytes| (bytes, value(fields, DROPPED_PACKET_DELTA_COUNT).unwrap())), told);
    let status = value(fields, FORWARDING_STATUS).map(|status| status >> 6);
    let expected = told.map(|(_, packets)| if packets < record.counters.packets { 1 } else { 2 });
    assert_eq!(status, expected);
}

/// Unknown fields are left out, and ICMP has its own.
fn check_what_is_left_out(fields: &Fields, record: &FlowRecord) {
    let has = |element| value(fields, element).is_some();
    let counters = &record.counters;
    let headers = counters.tcp_flags.or(counters.ttl_min).or(counters.ttl_max).is_some();
    let vrfs = record.details.ingress_vrf.or(record.details.egress_vrf).is_some();
    for (element, is_known) in [
        (INGRESS_INTERFACE, vrfs || record.key.ingress != NO_INTERFACE),
        (EGRESS_INTERFACE, vrfs || record.egress != NO_INTERFACE),
        (INGRESS_VRFID, vrfs),
        (EGRESS_VRFID, record.details.egress_vrf.is_some()),
        (TCP_CONTROL_BITS, headers),
        (MINIMUM_TTL, headers),
        (MAXIMUM_TTL, headers),
        (ICMP_TYPE_CODE_IPV4, record.key.src.is_ipv4() && record.key.protocol == 1),
        (ICMP_TYPE_CODE_IPV6, record.key.src.is_ipv6() && record.key.protocol == 58),
    ] {
        assert_eq!(has(element), is_known, "{element} of {record:?}");
    }
    let icmp = value(fields, ICMP_TYPE_CODE_IPV4).or(value(fields, ICMP_TYPE_CODE_IPV6));
    assert!(icmp.is_none_or(|said| said == u64::from(record.key.dst_port)));
}

fn check_templated(options: &ExportOptions, records: &[FlowRecord]) {
    let reader = Reader::of(&session(options, records, NOW_NS));
    let samplers = samplers(&reader);
    let expected: Vec<FlowRecord> = match options.version {
        Version::Ipfix => records.to_vec(),
        _ => records.iter().flat_map(ways).collect(),
    };
    assert_eq!(reader.flows.len(), expected.len());
    for (fields, record) in reader.flows.iter().zip(&expected) {
        check_drops(fields, record);
        check_what_is_left_out(fields, record);
        let told = if options.times == Times::Nanoseconds { *record } else { in_milliseconds(record) };
        assert_eq!(record_of(fields, &samplers), without_drops(&told));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ipfix_says_all_of_a_record(
        records in proptest::collection::vec(any_record(), 1..60),
        nanoseconds: bool,
        reduced_sizes: bool,
        transport in prop_oneof![Just(Transport::Datagram), Just(Transport::Stream)],
    ) {
        let times = if nanoseconds { Times::Nanoseconds } else { Times::Milliseconds };
        check_templated(&ExportOptions { times, reduced_sizes, ..ExportOptions::new(Version::Ipfix, transport) }, &records);
    }

    #[test]
    fn netflow9_says_all_of_a_record(
        records in proptest::collection::vec(any_record(), 1..60),
        absolute: bool,
        reduced_sizes: bool,
    ) {
        let times = if absolute { Times::Milliseconds } else { Times::Uptime };
        let options = ExportOptions::new(Version::NetFlow9, Transport::Datagram);
        check_templated(&ExportOptions { times, reduced_sizes, ..options }, &records);
    }

    #[test]
    fn netflow5_says_what_it_can(records in proptest::collection::vec(any_record(), 1..60)) {
        let reader = Reader::of(&session(
            &ExportOptions::new(Version::NetFlow5, Transport::Datagram), &records, NOW_NS));
        let expected: Vec<FlowRecord> =
            records.iter().flat_map(ways).filter(|way| way.key.src.is_ipv4()).collect();
        // Parts of one record are consecutive, so those of the same key are added up.
        let mut told = reader.flows.iter().map(|fields| record_of(fields, &[])).peekable();
        for way in &expected {
            let mut sum = told.next().expect("a record is missing");
            while sum.counters.bytes < way.counters.bytes || sum.counters.packets < way.counters.packets {
                let part = told.next().expect("a part is missing");
                prop_assert_eq!(part.key, sum.key);
                sum.counters.packets += part.counters.packets;
                sum.counters.bytes += part.counters.bytes;
            }
            let in16 = |number: u32| if number > 65_535 { NO_INTERFACE } else { number };
            let as16 = |number: u32| if number > 65_535 { 23_456 } else { number };
            let wanted = in_milliseconds(&FlowRecord {
                key: FlowKey { vlan: 0, mpls_label: None, ingress: in16(way.key.ingress), ..way.key },
                counters: Counters {
                    tcp_flags: way.counters.tcp_flags.or(Some(0)),
                    ttl_min: None,
                    ttl_max: None,
                    ..way.counters
                },
                egress: in16(way.egress),
                end_reason: None,
                application: 0,
                src_as: as16(way.src_as),
                dst_as: as16(way.dst_as),
                next_hop: way.next_hop.filter(|hop| hop.is_ipv4() && !hop.is_unspecified()),
                bgp_next_hop: None,
                translation: None,
                drops: Drops::default(),
                details: Details::default(),
                ..*way
            });
            prop_assert_eq!(sum, wanted);
        }
        prop_assert!(told.next().is_none());
    }

    #[test]
    fn images_are_read_back(records in proptest::collection::vec(any_record(), 1..20)) {
        let mut bytes = Vec::new();
        for record in &records {
            let before = bytes.len();
            write_image(record, &mut bytes);
            prop_assert!(bytes.len() - before <= thalweg_flow::export::IMAGE_BYTES_MAX);
        }
        let mut rest = &bytes[..];
        for record in &records {
            let (read, after) = read_image(rest).unwrap();
            // The record itself keeps no reasons beyond the third.
            prop_assert_eq!(&read, record);
            rest = after;
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn torn_and_flipped_images_are_told(record in any_record(), at: proptest::sample::Index, bit in 0..8u8) {
        let mut bytes = Vec::new();
        write_image(&record, &mut bytes);
        prop_assert!(read_image(&bytes[..at.index(bytes.len())]).is_err());
        let place = at.index(bytes.len());
        bytes[place] ^= 1 << bit;
        prop_assert!(read_image(&bytes).is_err());
    }
}

#[test]
fn what_is_not_known_is_left_out_or_zero_beside_what_is() {
    let record = FlowRecord {
        next_hop: Some("10.0.0.1".parse().unwrap()),
        src_as: NO_AS,
        dst_as: 64_500,
        ..simple(1)
    };
    let options = ExportOptions::new(Version::Ipfix, Transport::Datagram);
    let reader = Reader::of(&session(&options, &[record], NOW_NS));
    let fields = &reader.flows[0];
    assert_eq!(value(fields, BGP_SOURCE_AS_NUMBER), Some(0));
    assert_eq!(value(fields, BGP_DESTINATION_AS_NUMBER), Some(64_500));
    assert_eq!(value(fields, BGP_NEXT_HOP_IPV4_ADDRESS), Some(0));
    assert_eq!(value(fields, EGRESS_INTERFACE), None, "left out");
    assert_eq!(value(fields, INGRESS_INTERFACE), Some(2));
}
