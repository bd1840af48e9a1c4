//! The exporter's output, read by a slow reader that shares no code with it.

mod back;
mod laws;
mod options;
mod reader;
mod records;
mod times;

use proptest::prelude::*;
use std::net::IpAddr;
use thalweg_base::DropReason;
use thalweg_flow::export::{Amount, ExportOptions, Exporter};
use thalweg_flow::{Counters, Details, Drops, EndReason, FlowKey, FlowRecord, NO_INTERFACE, Translation};

/// 2023-11-14 22:13:20 UTC.
const NOW_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// All complete messages, with the exporter's own counts of their contents.
fn poll_all(exporter: &mut Exporter) -> Vec<(Vec<u8>, Amount)> {
    let mut messages = Vec::new();
    let mut message = Vec::new();
    while let Some(amount) = exporter.poll_message(&mut message) {
        messages.push((message.clone(), amount));
    }
    messages
}

/// One session with these records, from beginning to end.
fn session(options: &ExportOptions, records: &[FlowRecord], now_ns: u64) -> Vec<Vec<u8>> {
    let mut exporter = Exporter::new(options).unwrap();
    exporter.handle_connected(now_ns);
    exporter.handle_records(records, now_ns);
    exporter.flush(now_ns);
    poll_all(&mut exporter).into_iter().map(|(message, _)| message).collect()
}

fn simple(n: u32) -> FlowRecord {
    let key = FlowKey {
        src: IpAddr::from((0x0a00_0000 + n).to_be_bytes()),
        dst: IpAddr::from([192, 0, 2, 1]),
        src_port: n as u16,
        dst_port: 443,
        protocol: 6,
        traffic_class: 0x28,
        ingress: 2,
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets: u64::from(n) + 1,
        bytes: 100 * (u64::from(n) + 1),
        first_ns: NOW_NS - 10 * SECOND_NS - 123_456_789,
        last_ns: NOW_NS - SECOND_NS - 1_000_001,
        tcp_flags: Some(0x1b),
        ttl_min: Some(60),
        ttl_max: Some(64),
    };
    FlowRecord::new(key, counters, EndReason::IdleTimeout)
}

fn simple6(n: u32) -> FlowRecord {
    let record = simple(n);
    let address = |last: u32| IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(last)).to_be_bytes());
    FlowRecord { key: FlowKey { src: address(n), dst: address(1), ..record.key }, ..record }
}

fn any_counters() -> impl Strategy<Value = Counters> {
    let amount = prop_oneof![4 => 1..100_000u64, 1 => any::<u32>().prop_map(u64::from), 1 => 0..1u64 << 40];
    let time = (0..3_600_000_000_000u64, 0..120_000_000_000u64);
    let maybe = || proptest::option::weighted(0.8, any::<u8>());
    // No packet has a TTL of 0.
    let ttls = proptest::option::weighted(0.8, (1..=255u8, 1..=255u8));
    (amount.clone(), amount, time, maybe(), ttls).prop_map(
        |(packets, bytes, (ago, life), tcp_flags, ttls)| Counters {
            packets,
            bytes,
            first_ns: NOW_NS - ago - life,
            last_ns: NOW_NS - ago,
            tcp_flags,
            ttl_min: ttls.map(|(a, b)| a.min(b)),
            ttl_max: ttls.map(|(a, b)| a.max(b)),
        },
    )
}

fn any_address(ipv6: bool) -> BoxedStrategy<IpAddr> {
    if ipv6 {
        any::<[u8; 16]>().prop_map(IpAddr::from).boxed()
    } else {
        any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
    }
}

/// None, a small number, or one beyond 16 bits.
fn any_interface() -> impl Strategy<Value = u32> {
    prop_oneof![2 => 1..8u32, 1 => Just(NO_INTERFACE), 1 => any::<u32>()]
}

fn any_key(ipv6: bool) -> impl Strategy<Value = FlowKey> {
    let ports = (any::<u16>(), any::<u16>(), any::<u8>(), any::<u8>());
    let ingress = any_interface();
    let vlan = prop_oneof![2 => Just(0u16), 1 => 1..4095u16];
    let label = proptest::option::weighted(0.2, 0..1u32 << 20);
    (any_address(ipv6), any_address(ipv6), ports, ingress, vlan, label).prop_map(
        |(src, dst, (src_port, dst_port, protocol, traffic_class), ingress, vlan, mpls_label)| FlowKey {
            src,
            dst,
            src_port,
            dst_port,
            protocol,
            traffic_class,
            ingress,
            vlan,
            mpls_label,
        },
    )
}

fn any_drops() -> impl Strategy<Value = Drops> {
    proptest::collection::vec((0..DropReason::ALL.len(), 1..1000u32, 1..1000u64), 0..5).prop_map(|added| {
        let mut drops = Drops::default();
        for (reason, packets, bytes) in added {
            drops.add(DropReason::ALL[reason], packets, bytes);
        }
        drops
    })
}

fn any_translation(ipv6: bool) -> impl Strategy<Value = Translation> {
    (any_address(ipv6), any_address(ipv6), any::<u16>(), any::<u16>())
        .prop_map(|(src, dst, src_port, dst_port)| Translation { src, dst, src_port, dst_port })
}

fn any_vrfs() -> impl Strategy<Value = Details> {
    let vrf = || proptest::option::weighted(0.3, 0..u32::MAX);
    (vrf(), vrf()).prop_map(|(ingress_vrf, egress_vrf)| Details {
        ingress_vrf,
        egress_vrf,
        ..Details::default()
    })
}

/// A record with VRFs has TCP flags and TTLs, both ways.
fn headers_of(counters: Counters, details: Details) -> Counters {
    match details.ingress_vrf.or(details.egress_vrf) {
        Some(_) => Counters { tcp_flags: Some(2), ttl_min: Some(1), ttl_max: Some(9), ..counters },
        None => counters,
    }
}

fn any_record() -> impl Strategy<Value = FlowRecord> {
    any::<bool>().prop_flat_map(|ipv6| {
        let hop = || proptest::option::weighted(0.3, any::<bool>().prop_flat_map(any_address));
        let flow = (any_key(ipv6), any_counters(), proptest::option::weighted(0.3, any_counters()));
        let facts = (0..=EndReason::ALL.len(), any::<u8>(), any_interface());
        let route =
            (hop(), hop(), prop_oneof![Just(0u32), any::<u32>()], prop_oneof![Just(0u32), any::<u32>()]);
        let rest = (
            proptest::option::weighted(0.2, any_translation(ipv6)),
            prop_oneof![3 => Just(Drops::default()).boxed(), 1 => any_drops().boxed()],
            prop_oneof![3 => Just(1u32), 1 => prop_oneof![Just(10u32), Just(1000), Just(16_000)]],
            any_vrfs(),
        );
        (flow, facts, route, rest).prop_map(
            |(
                (key, counters, reverse),
                (reason, application, egress),
                (next_hop, bgp_next_hop, src_as, dst_as),
                (translation, drops, sampling_interval, details),
            )| FlowRecord {
                reverse: reverse.map(|reverse| headers_of(reverse, details)),
                application,
                egress,
                next_hop,
                src_as,
                dst_as,
                bgp_next_hop,
                translation,
                drops,
                sampling_interval,
                details,
                ..FlowRecord::new(key, headers_of(counters, details), EndReason::ALL.get(reason).copied())
            },
        )
    })
}
