//! The compiled lists compared with the slow reference, on packets built from known facts.

use super::*;
use crate::ingress::Ingress;
use crate::test_support::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use thalweg_base::{Chunk, DropReason};
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::ipv6::{FragmentRepr, Ipv6Repr};
use thalweg_wire::{ip_protocol, testing};

/// A packet with these facts, without an Ethernet header.
fn packet(facts: &Facts) -> Vec<u8> {
    let (sport, dport) = facts.ports.unwrap_or_default();
    let mut l4 = match facts.protocol {
        6 => {
            let mut header = [&sport.to_be_bytes()[..], &dport.to_be_bytes(), &[0; 16]].concat();
            header[12] = 0x50;
            header[13] = facts.tcp_flags.unwrap_or(0);
            header
        }
        17 => [&sport.to_be_bytes()[..], &dport.to_be_bytes(), &[0, 16, 0, 0]].concat(),
        _ => {
            let (kind, code) = facts.icmp.unwrap_or_default();
            vec![kind, code, 0, 0, 0, 7, 0, 1]
        }
    };
    l4.extend([0; 8]);
    let field: u16 = match facts.fragment {
        Fragment::Whole => 0,
        Fragment::First => 0x2000,
        Fragment::Later => 0x0004,
    };
    match (facts.source, facts.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = Ipv4Repr {
                traffic_class: facts.dscp << 2,
                identification: 9,
                flags_and_offset: field,
                ..Ipv4Repr::new(source, destination, facts.protocol, l4.len())
            };
            testing::ipv4(header, &l4)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let field = match facts.fragment {
                Fragment::Whole => None,
                Fragment::First => Some(1),
                Fragment::Later => Some(32),
            };
            let fragment =
                |field| FragmentRepr { next_header: facts.protocol, field, identification: 9 }.encode();
            let extension = field.map(fragment);
            let payload = [extension.as_ref().map_or(&[][..], |bytes| bytes), &l4].concat();
            let next = if extension.is_none() { facts.protocol } else { ip_protocol::FRAGMENT };
            let header = Ipv6Repr {
                traffic_class: facts.dscp << 2,
                ..Ipv6Repr::new(source, destination, next, payload.len())
            };
            [&header.encode()[..], &payload].concat()
        }
        mixed => unreachable!("{mixed:?}"),
    }
}

fn validated(packets: impl IntoIterator<Item = Vec<u8>>) -> Chunk {
    let mut chunk = chunk(packets.into_iter().map(Frame::raw).collect());
    let ingress = Ingress { drop_martians: false, ..Default::default() };
    for k in 0..chunk.batch_count() {
        ingress.process(&mut chunk.batch(k));
    }
    chunk
}

/// Addresses and prefixes of a small world, in which rules match packets.
fn address(v6: bool) -> impl Strategy<Value = IpAddr> {
    (0u8..4, prop_oneof![0u8..4, 254u8..=255], any::<bool>()).prop_map(move |(a, b, high)| {
        if !v6 {
            return IpAddr::from(Ipv4Addr::new(if high { 255 } else { 10 }, a, 0, b));
        }
        // No multicast destination: such packets do not pass the first check.
        let top = if high { 0xfeff } else { 0x2001 };
        IpAddr::from(Ipv6Addr::new(top, u16::from(a), 0, 0, 0, 0, 0, u16::from(b)))
    })
}

fn prefix() -> impl Strategy<Value = IpNet> {
    (any::<bool>(), 0usize..5).prop_flat_map(|(v6, n)| {
        let length = if v6 { [0u8, 16, 32, 64, 128][n] } else { [0u8, 8, 16, 31, 32][n] };
        address(v6).prop_map(move |a| IpNet::new(a, length).unwrap().trunc())
    })
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..4, 1022u16..1026, 65534u16..=65535]
}

fn some<T: std::fmt::Debug>(of: impl Strategy<Value = T> + 'static) -> impl Strategy<Value = Vec<T>> {
    // Often empty, so that rules match packets at all.
    prop_oneof![3 => Just(0usize..1), 1 => Just(1usize..4)].prop_map(|range| range.start).prop_flat_map({
        let of = of.boxed();
        move |least| prop::collection::vec(of.clone(), least..least * 4 + 1)
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![Just(Action::Permit), Just(Action::Deny), Just(Action::Reject)]
}

fn fragment() -> impl Strategy<Value = Fragment> {
    prop_oneof![3 => Just(Fragment::Whole), 1 => Just(Fragment::First), 1 => Just(Fragment::Later)]
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![Just(6u8), Just(17), Just(1), Just(58)]
}

fn rule() -> impl Strategy<Value = Rule> {
    let ports = || some((port(), port()).prop_map(|(a, b)| a..=b));
    let flags = (0u8..64, 0u8..64).prop_map(|(mask, value)| TcpFlags { mask, value: value & mask });
    let icmp = (0u8..4, prop::option::of(0u8..3)).prop_map(|(kind, code)| IcmpKind { kind, code });
    let first = (action(), some(prefix()), some(prefix()), some(protocol()), ports(), ports());
    let second = (some(0u8..4), some(flags), some(icmp), some(fragment()));
    (first, second).prop_map(|(first, (dscp, tcp_flags, icmp, fragments))| {
        let (action, sources, destinations, protocols, source_ports, destination_ports) = first;
        Rule {
            action,
            sources,
            destinations,
            protocols,
            source_ports,
            destination_ports,
            dscp,
            tcp_flags,
            icmp,
            fragments,
        }
    })
}

fn facts() -> impl Strategy<Value = Facts> {
    let numbers = (protocol(), (port(), port()), (0u8..4, 0u8..3), 0u8..64, 0u8..4, fragment());
    (any::<bool>(), numbers).prop_flat_map(|(v6, numbers)| {
        let (protocol, ports, icmp, tcp_flags, dscp, fragment) = numbers;
        let starts = fragment != Fragment::Later;
        (address(v6), address(v6)).prop_map(move |(source, destination)| Facts {
            source,
            destination,
            protocol,
            ports: (starts && matches!(protocol, 6 | 17)).then_some(ports),
            icmp: (starts && protocol == if v6 { 58 } else { 1 }).then_some(icmp),
            tcp_flags: (starts && protocol == 6).then_some(tcp_flags),
            dscp,
            fragment,
        })
    })
}

fn agree(list: &AccessList, packets: &[Facts]) {
    let bindings = AclBindings { inbound: vec![Some(0)], outbound: Vec::new() };
    let set = AclSet::compile(std::slice::from_ref(list), &bindings, 1).unwrap();
    let mut counts = AclCounts::default();
    let mut chunk = validated(packets.iter().map(packet));
    let mut expected = vec![RuleCount::default(); list.rules.len() + 1];
    for k in 0..chunk.batch_count() {
        let mut batch = chunk.batch(k);
        for i in 0..batch.len() {
            let facts = &packets[k * thalweg_base::BATCH_PACKETS + i];
            let (packet, l3) = batch.packet_and_l3(i);
            assert_eq!(packet.drop_reason(), None, "{facts:?}");
            assert_eq!(Facts::of(packet, l3).as_ref(), Some(facts));
            let decided = list.decide(facts);
            assert_eq!(set.decide(0, packet, l3), Some(decided), "{facts:?}");
            let count = &mut expected[decided.0.unwrap_or(list.rules.len())];
            count.packets += 1;
            count.bytes += u64::from(packet.ip_len);
        }
        set.process_in(&mut batch, &mut counts);
    }
    assert_eq!(set.counts_of(0, &counts), expected);
    for (facts, packet) in packets.iter().zip(chunk.packets()) {
        let denied = match list.decide(facts).1 {
            Action::Permit => (None, false),
            Action::Deny => (Some(DropReason::AclDenied), false),
            Action::Reject => (Some(DropReason::AclDenied), true),
        };
        assert_eq!((packet.drop_reason(), packet.flags.has(PacketFlags::REJECT)), denied);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn few_rules_agree_with_going_through_them(
        rules in prop::collection::vec(rule(), 0..12),
        default in action(),
        packets in prop::collection::vec(facts(), 100),
    ) {
        agree(&AccessList { rules, default }, &packets);
    }

    #[test]
    fn many_rules_agree_with_going_through_them(
        kinds in prop::collection::vec(rule(), 30),
        order in prop::collection::vec(0usize..30, 60..300),
        narrow in prop::collection::vec(facts(), 300),
        default in action(),
        packets in prop::collection::vec(facts(), 100),
    ) {
        // Mostly rules that match few packets, so that the deciding one may be anywhere.
        let rules = order.iter().zip(&narrow).map(|(kind, facts)| {
            let mut rule = kinds[*kind].clone();
            rule.sources = vec![IpNet::from(facts.source)];
            rule
        });
        agree(&AccessList { rules: rules.collect(), default }, &packets);
    }
}

fn udp(source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
    udp4(source, destination, 4000, port, b"x")
}

#[test]
fn the_greatest_list_still_finds_its_last_rule() {
    let host = |n: u32| IpNet::from(IpAddr::from(Ipv4Addr::from(0x0a00_0000 | n)));
    let rules: Vec<Rule> = (0..AclSet::RULES_MAX as u32)
        .map(|n| Rule { sources: vec![host(n)], ..Rule::all(Action::Permit) })
        .collect();
    let mut list = AccessList { rules, default: Action::Deny };
    let set = AclSet::compile(std::slice::from_ref(&list), &AclBindings::default(), 0).unwrap();
    let mut chunk = validated(
        [0u32, 1, 63, 64, 4095, 4096, 16_382, 16_383, 16_384]
            .map(|n| udp((0x0a00_0000 | n).to_be_bytes(), [192, 0, 2, 1], 53)),
    );
    let mut batch = chunk.batch(0);
    let mut rule = |i: usize| {
        let (packet, l3) = batch.packet_and_l3(i);
        set.decide(0, packet, l3).unwrap()
    };
    for (i, place) in [0, 1, 63, 64, 4095, 4096, 16_382, 16_383].into_iter().enumerate() {
        assert_eq!(rule(i), (Some(place), Action::Permit));
    }
    assert_eq!(rule(8), (None, Action::Deny));
    assert!(set.memory_bytes() < 2 << 20, "{}", set.memory_bytes());

    list.rules.push(Rule::all(Action::Deny));
    let error = AclSet::compile(&[list], &AclBindings::default(), 0).unwrap_err();
    assert_eq!(error, AclError::TooManyRules { list: 0, rules: 16_385 });
}

#[test]
fn a_large_set_of_prefixes_is_small() {
    let nets: Vec<IpNet> =
        (0..20_000u32).map(|n| IpNet::new(IpAddr::from(Ipv4Addr::from(n << 12)), 24).unwrap()).collect();
    let rules = vec![Rule { sources: nets, ..Rule::all(Action::Deny) }];
    let list = AccessList { rules, default: Action::Permit };
    let set = AclSet::compile(&[list], &AclBindings::default(), 0).unwrap();
    assert!(set.memory_bytes() < 2 << 20, "{}", set.memory_bytes());
}

/// A network of any length near others, which contain it or not.
fn network() -> impl Strategy<Value = IpNet> {
    (any::<bool>(), 0u8..4, any::<u32>(), 0u8..=24).prop_map(|(v6, near, host, length)| {
        let (v4, host6) = ([10, near, 0, 0].map(u32::from), u128::from(host));
        let v4 = Ipv4Addr::from(v4[0] << 24 | v4[1] << 16 | host & 0xffff);
        let v6_host = Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(near) << 64 | host6);
        match v6 {
            true => IpNet::new(IpAddr::V6(v6_host), 32 + length * 4),
            false => IpNet::new(IpAddr::V4(v4), 8 + length),
        }
        .unwrap()
        .trunc()
    })
}

fn rule_of_networks() -> impl Strategy<Value = Rule> {
    let networks = || {
        let set = prop::collection::vec(network(), 2..60);
        prop_oneof![3 => Just(Vec::new()), 4 => network().prop_map(|net| vec![net]), 1 => set]
    };
    let ranges = || some((any::<u16>(), 0u16..2000).prop_map(|(a, more)| a..=a.saturating_add(more)));
    (action(), networks(), networks(), some(protocol()), ranges(), ranges(), some(0u8..4)).prop_map(
        |(action, sources, destinations, protocols, source_ports, destination_ports, dscp)| Rule {
            sources,
            destinations,
            protocols,
            source_ports,
            destination_ports,
            dscp,
            ..Rule::all(action)
        },
    )
}

/// Addresses at the borders of networks, on both sides.
fn borders<'a>(nets: impl Iterator<Item = &'a IpNet>, v6: bool) -> Vec<IpAddr> {
    let ends = nets.filter(|net| net.addr().is_ipv6() == v6).flat_map(|net| {
        match (net.network(), net.broadcast()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let (first, last) = (u32::from(first), u32::from(last));
                [first.wrapping_sub(1), first, last, last.wrapping_add(1)].map(|n| Ipv4Addr::from(n).into())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let (first, last) = (u128::from(first), u128::from(last));
                [first.wrapping_sub(1), first, last, last.wrapping_add(1)].map(|n| Ipv6Addr::from(n).into())
            }
            mixed => unreachable!("{mixed:?}"),
        }
    });
    let other: IpAddr = if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    ends.chain([other]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn networks_in_networks_ranges_and_sets_agree_with_going_through_the_rules(
        rules in prop::collection::vec(rule_of_networks(), 1..250),
        default in action(),
        packets in prop::collection::vec((any::<[prop::sample::Index; 4]>(), facts()), 200),
    ) {
        let sources = [false, true].map(|v6| borders(rules.iter().flat_map(|rule| &rule.sources), v6));
        let destinations = [false, true].map(|v6| borders(rules.iter().flat_map(|rule| &rule.destinations), v6));
        let ports = |of: fn(&Rule) -> &Vec<RangeInclusive<u16>>| -> Vec<u16> {
            let ends = |range: &RangeInclusive<u16>| [*range.start(), range.end().saturating_add(1)];
            rules.iter().flat_map(of).flat_map(ends).chain([0]).collect()
        };
        let (from, to) = (ports(|rule| &rule.source_ports), ports(|rule| &rule.destination_ports));
        let facts: Vec<Facts> = packets.iter().map(|([source, destination, first, last], facts)| {
            let v6 = usize::from(facts.source.is_ipv6());
            Facts {
                source: *source.get(&sources[v6]),
                destination: *destination.get(&destinations[v6]),
                ports: facts.ports.map(|_| (*first.get(&from), *last.get(&to))),
                ..*facts
            }
        }).collect();
        agree(&AccessList { rules, default }, &facts);
    }
}

#[test]
fn ports_have_their_own_lists_each_way() {
    let all = |action| AccessList { rules: vec![Rule::all(action)], default: Action::Permit };
    let bindings = AclBindings { inbound: vec![None, Some(0), Some(1)], outbound: vec![Some(1), None] };
    let set = AclSet::compile(&[all(Action::Permit), all(Action::Reject)], &bindings, 7).unwrap();
    assert!(!set.is_idle());
    let mut chunk = validated(vec![udp([10, 0, 0, 1], [10, 0, 0, 2], 53); 8]);
    for (packet, port) in chunk.packets_mut().iter_mut().zip([0, 1, 2, 3, 0, 1, 65534, 65535]) {
        packet.port_in = port;
        packet.port_out = port;
    }
    let mut counts = [AclCounts::new(&set), AclCounts::default()];
    set.process_in(&mut chunk.batch(0), &mut counts[0]);
    let dead = |chunk: &Chunk| -> Vec<usize> { (0..8).filter(|i| !chunk.packets()[*i].is_alive()).collect() };
    assert_eq!(dead(&chunk), [2]);
    set.process_out(&mut chunk.batch(0), &mut counts[1]);
    assert_eq!(dead(&chunk), [0, 2, 4]);
    let [mut sum, other] = counts;
    sum.merge(&other.shared());
    let packets = |list| set.counts_of(list, &sum).iter().map(|c| c.packets).collect::<Vec<_>>();
    assert_eq!((packets(0), packets(1)), (vec![2, 0], vec![3, 0]));
    assert!(set.counts_of(2, &sum).is_empty());
}

#[test]
fn a_batch_may_meet_as_many_lists_as_it_has_packets() {
    // List n denies packets to port n; the packet on ports 0, 1, ... is addressed to 7.
    let lists: Vec<AccessList> = (0..200u16)
        .map(|n| AccessList {
            rules: vec![Rule { destination_ports: vec![n..=n], ..Rule::all(Action::Deny) }],
            default: Action::Permit,
        })
        .collect();
    for span in [1usize, 2, 3, 9, 40, 200] {
        let bound = |p: usize| (p % 5 != 4).then_some((p % span) as u16);
        let bindings = AclBindings { inbound: (0..256).map(bound).collect(), outbound: Vec::new() };
        let set = AclSet::compile(&lists, &bindings, 0).unwrap();
        let v6 = |i: u16| udp6([0x20; 16], [0x21; 16], 1, i % 8, b"x");
        let v4 = |i: u16| udp([10, 0, 0, 1], [10, 0, 0, 2], i % 8);
        let mut chunk = validated((0..256).map(|i| if i % 3 == 0 { v6(i) } else { v4(i) }));
        for (port, packet) in (0..).zip(chunk.packets_mut()) {
            packet.port_in = port;
        }
        let mut counts = AclCounts::new(&set);
        set.process_in(&mut chunk.batch(0), &mut counts);
        for (i, packet) in chunk.packets().iter().enumerate() {
            let denied = bound(i).is_some_and(|list| usize::from(list) == i % 8);
            assert_eq!(!packet.is_alive(), denied, "packet {i} of {span} lists");
        }
        let counted: u64 = (0..200).flat_map(|l| set.counts_of(l, &counts)).map(|c| c.packets).sum();
        assert_eq!(counted, (0..256).filter_map(bound).count() as u64);
    }
}

#[test]
fn counters_of_another_version_begin_anew_and_do_not_mix() {
    let list = AccessList { rules: Vec::new(), default: Action::Permit };
    let bindings = AclBindings { inbound: vec![Some(0)], outbound: Vec::new() };
    let set = |version| AclSet::compile(std::slice::from_ref(&list), &bindings, version).unwrap();
    let (old, new) = (set(1), set(2));
    let mut chunk = validated(vec![udp([10, 0, 0, 1], [10, 0, 0, 2], 53); 3]);
    let mut counts = AclCounts::default();
    old.process_in(&mut chunk.batch(0), &mut counts);
    assert_eq!(old.counts_of(0, &counts)[0].packets, 3);
    assert!(new.counts_of(0, &counts).is_empty());
    let stale = counts.shared();
    new.process_in(&mut chunk.batch(0), &mut counts);
    counts.merge(&stale);
    assert_eq!(new.counts_of(0, &counts)[0], RuleCount { packets: 3, bytes: 3 * 29 });
}

#[test]
fn what_cannot_be_compiled_is_refused() {
    let bindings = AclBindings { inbound: vec![Some(3)], outbound: Vec::new() };
    let refused = |lists: &[AccessList], b: &AclBindings| AclSet::compile(lists, b, 0).unwrap_err();
    assert_eq!(refused(&[], &bindings), AclError::NoSuchList { list: 3 });
    let lists = vec![AccessList { rules: Vec::new(), default: Action::Deny }; AclSet::LISTS_MAX + 1];
    let too_many = AclError::TooManyLists { lists: lists.len() };
    assert_eq!(refused(&lists, &AclBindings::default()), too_many);
    assert!(AclSet::default().is_idle());
    for error in [refused(&[], &bindings), too_many, AclError::TooLarge { list: 1 }] {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn what_the_capture_cut_off_meets_no_rule_that_asks_for_it() {
    let rules = vec![
        Rule { tcp_flags: TcpFlags::ESTABLISHED.to_vec(), ..Rule::all(Action::Permit) },
        Rule { icmp: vec![IcmpKind { kind: 8, code: None }], ..Rule::all(Action::Permit) },
    ];
    let list = AccessList { rules, default: Action::Deny };
    let set = AclSet::compile(&[list], &AclBindings::default(), 0).unwrap();
    let tcp = Facts {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 6,
        ports: Some((1, 2)),
        icmp: None,
        tcp_flags: Some(tcp::ACK),
        dscp: 0,
        fragment: Fragment::Whole,
    };
    let whole = packet(&tcp);
    let mut cut = Frame::raw(whole[..32].to_vec());
    cut.wire_len = Some(whole.len() as u32);
    let mut chunk = chunk(vec![Frame::raw(whole), cut]);
    Ingress { drop_martians: false, ..Default::default() }.process(&mut chunk.batch(0));
    let mut batch = chunk.batch(0);
    for (i, expected) in [(0, (Some(0), Action::Permit)), (1, (None, Action::Deny))] {
        let (packet, l3) = batch.packet_and_l3(i);
        assert_eq!(packet.drop_reason(), None);
        assert_eq!(set.decide(0, packet, l3), Some(expected));
    }
}
