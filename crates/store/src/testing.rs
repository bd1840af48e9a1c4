//! Records for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_base::{DropReason, Name};
use thalweg_flow::{
    Counters, Details, Direction, EndReason, ExporterId, FlowKey, FlowRecord, NO_INTERFACE, SAMPLING_UNKNOWN,
    Translation,
};
use thalweg_wire::MacAddr;

pub(crate) mod memory;

pub(crate) use thalweg_base::XorShift64Star as Chance;

/// 2026-11-22T05:00:00Z.
pub(crate) const START_NS: u64 = 1_795_323_600_000_000_000;

fn one_in(chance: &mut Chance, n: u32) -> bool {
    chance.below(n) == 0
}

fn address(chance: &mut Chance, v6: bool) -> IpAddr {
    if v6 {
        let low = u128::from(chance.next_u64() >> chance.below(64));
        return Ipv6Addr::from(0x2001_0db8_u128 << 96 | low).into();
    }
    let hosts = if one_in(chance, 4) { 1 << 24 } else { 64 };
    Ipv4Addr::from(0x0a00_0000 | chance.below(hosts)).into()
}

/// Small numbers, and some that vendors use.
fn interface(chance: &mut Chance) -> u32 {
    match chance.below(6) {
        0 | 1 => NO_INTERFACE,
        2 => 0x0100_0000 + chance.below(4),
        _ => 1 + chance.below(8),
    }
}

fn counters(chance: &mut Chance) -> Counters {
    let first_ns = START_NS + chance.next_u64() % 7_200_000_000_000;
    Counters {
        packets: chance.next_u64() >> chance.below(63) >> 1,
        bytes: chance.next_u64() >> chance.below(63) >> 1,
        first_ns,
        last_ns: first_ns + (chance.next_u64() % 60_000_000_000),
        tcp_flags: (!one_in(chance, 3)).then(|| chance.next_u64() as u8),
        ttl_min: (!one_in(chance, 3)).then(|| chance.next_u64() as u8),
        ttl_max: (!one_in(chance, 3)).then(|| chance.next_u64() as u8),
    }
}

/// A record with any combination of values.
pub(crate) fn any_record(chance: &mut Chance) -> FlowRecord {
    let v6 = one_in(chance, 3);
    let key = FlowKey {
        src: address(chance, v6),
        dst: address(chance, v6),
        src_port: chance.next_u64() as u16,
        dst_port: chance.below(1024) as u16,
        protocol: if one_in(chance, 2) {
            6
        } else if one_in(chance, 4) {
            1
        } else {
            chance.next_u64() as u8
        },
        traffic_class: chance.next_u64() as u8,
        ingress: interface(chance),
        vlan: if one_in(chance, 2) { 0 } else { chance.below(4095) as u16 },
        mpls_label: one_in(chance, 3).then(|| chance.below(1 << 20)),
    };
    let reason = EndReason::ALL.get(chance.below(6) as usize).copied();
    let mut record = FlowRecord::new(key, counters(chance), reason);
    record.reverse = one_in(chance, 3).then(|| counters(chance));
    record.application = chance.next_u64() as u8;
    record.egress = interface(chance);
    record.next_hop = one_in(chance, 2).then(|| address(chance, v6));
    record.bgp_next_hop = one_in(chance, 2).then(|| address(chance, v6));
    record.src_as = if one_in(chance, 2) { 0 } else { chance.next_u64() as u32 };
    record.dst_as = if one_in(chance, 2) { 0 } else { 64_500 + chance.below(10) };
    record.translation = one_in(chance, 3).then(|| Translation {
        src: address(chance, false),
        dst: address(chance, false),
        src_port: chance.next_u64() as u16,
        dst_port: chance.next_u64() as u16,
    });
    for _ in 0..chance.below(5) {
        let reason = DropReason::ALL[chance.below(DropReason::ALL.len() as u32) as usize];
        record.drops.add(reason, 1 + chance.below(1000), u64::from(chance.below(100_000)));
    }
    if one_in(chance, 2) {
        let name = ["edge1", "edge2", "core1", ""][chance.below(4) as usize];
        record.exporter = ExporterId {
            address: one_in(chance, 2).then(|| address(chance, v6)),
            domain: one_in(chance, 2).then(|| chance.below(5)),
            name: Name::of(name),
        };
    }
    for interface in [&mut record.ingress_name, &mut record.egress_name] {
        interface.name = Name::of(["", "", "xe-0/0/1", "xe-0/0/2", "wan"][chance.below(5) as usize]);
        interface.description = Name::of(["", "", "", "Transit A"][chance.below(4) as usize]);
    }
    record.next_as = if one_in(chance, 2) { 0 } else { 64_500 + chance.below(4) };
    for place in [&mut record.src_place, &mut record.dst_place] {
        place.country = Name::of(["", "CH", "DE", "US"][chance.below(4) as usize]);
        place.network = Name::of(["", "", "office", "office-guests", "servers"][chance.below(5) as usize]);
    }
    if one_in(chance, 3) {
        let number = |chance: &mut Chance| one_in(chance, 2).then(|| chance.below(4));
        let mac =
            |chance: &mut Chance| one_in(chance, 2).then(|| MacAddr::from_u64(chance.below(100).into()));
        record.details = Details {
            src_prefix_length: number(chance).map(|length| 24 + length as u8),
            dst_prefix_length: number(chance).map(|length| length as u8),
            ingress_vrf: number(chance),
            egress_vrf: number(chance),
            direction: Direction::ALL.get(chance.below(3) as usize).copied(),
            src_mac: mac(chance),
            dst_mac: mac(chance),
            event: None,
            nat_block_end: number(chance).map(|port| 1023 + port as u16),
        };
    }
    if one_in(chance, 3) {
        let mut name = || {
            let texts = ["", "www.example.org", "example.net", "a.b.example.org"];
            Name::passing(texts[chance.below(4) as usize])
        };
        record.names.server = name();
        record.names.resolved = name();
        record.names.dns_question = name();
        record.names.dns_code = one_in(chance, 2).then(|| chance.below(4) as u8);
    }
    record.sampling_interval = match chance.below(8) {
        0 => SAMPLING_UNKNOWN,
        1 => 1 + chance.below(1000),
        _ => 1,
    };
    record
}

/// A record typical of a router without NAT and with a BGP table.
pub(crate) fn likely_record(chance: &mut Chance) -> FlowRecord {
    let skewed = |chance: &mut Chance, bits: u32| chance.below(1 << bits) & chance.below(1 << bits);
    let first_ns = START_NS + chance.next_u64() % 3_600_000_000_000;
    let packets = 1 + u64::from(skewed(chance, 8));
    let key = FlowKey {
        src: Ipv4Addr::from(0x0a00_0000 + skewed(chance, 18)).into(),
        dst: Ipv4Addr::from(0xc000_0000 + skewed(chance, 18)).into(),
        src_port: 1024 + chance.below(60_000) as u16,
        dst_port: [443, 80, 53, 22, 8080][chance.below(5) as usize],
        protocol: if one_in(chance, 3) { 17 } else { 6 },
        traffic_class: 0,
        ingress: 1 + chance.below(4),
        vlan: 0,
        mpls_label: None,
    };
    let counters = Counters {
        packets,
        bytes: packets * (40 + u64::from(chance.below(1460))),
        first_ns,
        last_ns: first_ns + chance.next_u64() % 60_000_000_000,
        tcp_flags: Some(0x1b),
        ttl_min: Some(60),
        ttl_max: Some(64),
    };
    let mut record = FlowRecord::new(key, counters, EndReason::ALL[chance.below(3) as usize]);
    record.application = [5, 4, 8, 9, 0][chance.below(5) as usize];
    record.egress = 1 + chance.below(4);
    record.src_as = 64_500 + skewed(chance, 10);
    record.dst_as = 64_500 + skewed(chance, 12);
    record.next_hop = Some(Ipv4Addr::from(0xc0a8_0000 + chance.below(16)).into());
    record
}
