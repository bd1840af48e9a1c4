use super::*;
use crate::test_support::*;
use proptest::prelude::*;
use thalweg_base::Chunk;
use thalweg_wire::ipv4::{Ipv4Repr, Ipv4View, write_checksum};
use thalweg_wire::ipv6::Ipv6View;
use thalweg_wire::tcp::TcpView;
use thalweg_wire::udp::UdpView;
use thalweg_wire::{MacAddr, Malformed, testing};

const A: [u8; 4] = [10, 1, 2, 3];
const B: [u8; 4] = [198, 51, 100, 7];
const V6A: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const V6B: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn ingress() -> Ingress {
    Ingress { drop_martians: true, ..Default::default() }
}

fn run(frames: Vec<Frame>) -> Chunk {
    let mut chunk = chunk(frames);
    for k in 0..chunk.batch_count() {
        ingress().process(&mut chunk.batch(k));
    }
    chunk
}

fn verdict(frame: Frame) -> Option<&'static str> {
    run(vec![frame]).packets()[0].drop_reason().map(DropReason::name)
}

#[test]
fn a_udp_packet_under_every_link_layer() {
    let ip = udp4(A, B, 5060, 5061, b"hello");
    let cooked = |len: usize, at: usize| {
        let mut bytes = vec![0u8; len];
        bytes[at..at + 2].copy_from_slice(&[8, 0]);
        bytes.extend(&ip);
        bytes
    };
    let cases = [
        (LinkType::RawIp, 0, ip.clone()),
        (LinkType::Ethernet, 14, ethernet(&[], 0x0800, &ip)),
        (LinkType::Ethernet, 18, ethernet(&[7], 0x0800, &ip)),
        (LinkType::Ethernet, 22, ethernet(&[7, 8], 0x0800, &ip)),
        (LinkType::LinuxCooked, 16, cooked(16, 14)),
        (LinkType::LinuxCooked2, 20, cooked(20, 0)),
        (LinkType::BsdLoopback, 4, [&[2, 0, 0, 0], &ip[..]].concat()),
        (LinkType::BsdLoopback, 4, [&[0, 0, 0, 2], &ip[..]].concat()),
    ];
    for (link, l3, bytes) in cases {
        let chunk = run(vec![Frame::new(bytes, link)]);
        let p = &chunk.packets()[0];
        assert_eq!(p.drop_reason(), None, "{link:?}");
        assert_eq!((p.l3_offset, p.l4_offset, p.ip_len), (l3, l3 + 20, 33), "{link:?}");
        assert_eq!((p.src_port, p.dst_port, p.protocol), (5060, 5061, 17));
    }
}

#[test]
fn every_malformation_has_its_name() {
    let ip = || udp4(A, B, 5060, 5061, b"hello");
    let cut = |n: usize| Frame::raw(ip()[..n].to_vec());
    let field = |at: usize, value: &[u8]| Frame::raw(with_ipv4_field(ip(), at, value));
    let byte = |at: usize, value: u8| {
        let mut bytes = ip();
        bytes[at] = value;
        Frame::raw(bytes)
    };
    let cases = [
        (Frame::new(ip(), LinkType::Unsupported), "unsupported-link"),
        (Frame::raw(vec![]), "frame-too-short"),
        (Frame::new(vec![0; 13], LinkType::Ethernet), "frame-too-short"),
        (Frame::new(ethernet(&[1], 0x0800, &[])[..16].to_vec(), LinkType::Ethernet), "frame-too-short"),
        (Frame::new(ethernet(&[], 0x0806, &ip()), LinkType::Ethernet), "not-ip"),
        (Frame::new(ethernet(&[], 0x86dd, &ip()), LinkType::Ethernet), "ip-header-length"),
        (Frame::new(ethernet(&[], 0x86dd, &[0x45; 60]), LinkType::Ethernet), "ip-version"),
        (Frame::new(ethernet(&[1, 2, 3], 0x0800, &ip()), LinkType::Ethernet), "vlan-depth"),
        (byte(0, 0x55), "ip-version"),
        (cut(19), "ip-header-length"),
        (byte(0, 0x44), "ip-header-length"),
        (byte(0, 0x4f), "ip-header-length"),
        (field(2, &[0, 19]), "ip-total-length"),
        (field(2, &[0, 34]), "ip-total-length"),
        (byte(9, 6), "ip-checksum"),
        (field(12, &[127, 0, 0, 1]), "martian-source"),
        (field(12, &[0, 1, 2, 3]), "martian-source"),
        (field(12, &[224, 0, 0, 5]), "martian-source"),
        (field(12, &B), "martian-source"),
        (field(16, &[127, 0, 0, 1]), "martian-destination"),
        (field(16, &[0, 0, 0, 0]), "martian-destination"),
        (field(16, &[250, 0, 0, 1]), "martian-destination"),
        (field(16, &[239, 1, 1, 1]), "not-unicast"),
        (field(16, &[255, 255, 255, 255]), "not-unicast"),
        (field(16, &[169, 254, 0, 9]), "link-local"),
        (field(8, &[0]), "ttl-expired"),
        (field(2, &[0, 24]), "transport-truncated"),
        (field(9, &[6]), "transport-truncated"),
        (byte(25, 200), "transport-truncated"),
    ];
    for (frame, name) in cases {
        assert_eq!(verdict(frame), Some(name));
    }
    assert_eq!(verdict(Frame::raw(ip())), None);
}

#[test]
fn a_packet_cut_by_the_capture_is_not_malformed() {
    let ip = udp4(A, B, 1000, 2000, &[0; 400]);
    let mut frame = Frame::raw(ip[..60].to_vec());
    assert_eq!(verdict(Frame::raw(ip[..60].to_vec())), Some("ip-total-length"));
    frame.wire_len = Some(ip.len() as u32);
    let chunk = run(vec![frame]);
    let p = &chunk.packets()[0];
    assert_eq!((p.drop_reason(), p.ip_len, p.l3_captured_len()), (None, 428, 60));
}

#[test]
fn ports_exist_only_in_the_first_fragment_and_all_fragments_hash_alike() {
    let whole = udp4(A, B, 1000, 2000, &[0; 24]);
    let first = with_ipv4_field(whole.clone(), 6, &[0x20, 0]);
    let later = with_ipv4_field(whole.clone(), 6, &[0x00, 4]);
    let chunk = run(vec![Frame::raw(whole), Frame::raw(first), Frame::raw(later)]);
    let [whole, first, later] = chunk.packets() else { panic!() };
    assert!(whole.flags.has(PacketFlags::HAS_PORTS) && !whole.flags.has(PacketFlags::FRAGMENT));
    assert!(first.flags.has(PacketFlags::HAS_PORTS | PacketFlags::FRAGMENT));
    assert!(later.flags.has(PacketFlags::LATER_FRAGMENT) && !later.flags.has(PacketFlags::HAS_PORTS));
    assert_eq!(first.flow_hash, later.flow_hash);
    assert_ne!(first.flow_hash, whole.flow_hash);
}

#[test]
fn ipv6_with_extension_headers() {
    let plain = udp6(V6A, V6B, 1000, 2000, b"hello");
    let with = |next: u8, header: &[u8]| {
        let mut out = plain.clone();
        out[6] = next;
        let payload_len = (plain.len() - 40 + header.len()) as u16;
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        out.splice(40..40, header.iter().copied());
        Frame::raw(out)
    };
    let chunk = run(vec![
        Frame::raw(plain.clone()),
        with(0, &[17, 0, 0, 0, 0, 0, 0, 0]),
        with(44, &[17, 0, 0, 1, 0, 0, 0, 9]),
        with(44, &[17, 0, 0, 8, 0, 0, 0, 9]),
        with(44, &[17, 0, 0, 0, 0, 0, 0, 9]),
        with(0, &[17, 200, 0, 0, 0, 0, 0, 0]),
    ]);
    let p = chunk.packets();
    assert_eq!((p[0].l4_offset, p[0].src_port, p[0].flow_hash), (40, 1000, p[1].flow_hash));
    assert_eq!((p[1].l4_offset, p[1].dst_port, p[1].protocol), (48, 2000, 17));
    assert!(p[2].flags.has(PacketFlags::FRAGMENT) && p[2].flags.has(PacketFlags::HAS_PORTS));
    assert!(p[3].flags.has(PacketFlags::LATER_FRAGMENT) && p[3].src_port == 0);
    assert!(!p[4].flags.has(PacketFlags::FRAGMENT), "an atomic fragment is whole");
    assert_eq!(p[5].drop_reason(), Some(DropReason::Ipv6Extension));
}

#[test]
fn ipv6_addresses_that_are_not_forwarded() {
    let multicast = {
        let mut a = V6B;
        a[0] = 0xff;
        a
    };
    let link_local = {
        let mut a = V6B;
        a[0] = 0xfe;
        a[1] = 0x80;
        a
    };
    let loopback = {
        let mut a = [0; 16];
        a[15] = 1;
        a
    };
    let case = |src, dst| verdict(Frame::raw(udp6(src, dst, 1, 2, b"")));
    assert_eq!(case(V6A, multicast), Some("not-unicast"));
    assert_eq!(case(multicast, V6A), Some("martian-source"));
    assert_eq!(case(loopback, V6A), Some("martian-source"));
    assert_eq!(case(V6A, loopback), Some("martian-destination"));
    assert_eq!(case(link_local, V6A), Some("link-local"));
    assert_eq!(case(V6A, V6B), None);
}

#[test]
fn the_port_is_guessed_by_longest_source_network() {
    let net = |s: &str| s.parse::<IpNet>().unwrap();
    let guess =
        PortGuess::new([(net("10.0.0.0/8"), 1), (net("10.1.0.0/16"), 2), (net("2001:db8::/48"), 3)], Some(0));
    for (source, port) in [([10, 1, 2, 3], 2), ([10, 9, 2, 3], 1), ([192, 0, 2, 1], 0)] {
        assert_eq!(guess.port_for_v4(u32::from_be_bytes(source)), Some(port));
    }
    assert_eq!(guess.port_for_v6(0x2001_0db8 << 96 | 9), Some(3));
    let stage = Ingress { drop_martians: true, port_guess: guess, ..Default::default() };
    let mut chunk = chunk(vec![Frame::raw(udp4(A, B, 1, 2, b"")).on_port(NO_PORT)]);
    stage.process(&mut chunk.batch(0));
    assert_eq!(chunk.packets()[0].port_in, 2);
    let mut chunk = crate::test_support::chunk(vec![Frame::raw(udp4(A, B, 1, 2, b"")).on_port(NO_PORT)]);
    ingress().process(&mut chunk.batch(0));
    assert_eq!(chunk.packets()[0].drop_reason(), Some(DropReason::UnknownPort));
}

/// A stage with two networks that drops martians or not.
fn with_networks(drop_martians: bool) -> Ingress {
    let addresses = [Ipv4Addr::new(10, 1, 2, 255), Ipv4Addr::new(192, 168, 3, 127)];
    let broadcasts = BroadcastSet::new(addresses.map(|address| (address, 0)), Vec::new());
    Ingress { drop_martians, broadcasts, ..ingress() }
}

fn verdict_of(stage: &Ingress, frame: Vec<u8>) -> Option<&'static str> {
    let mut chunk = chunk(vec![Frame::new(frame, LinkType::Ethernet)]);
    stage.process(&mut chunk.batch(0));
    chunk.packets()[0].drop_reason().map(DropReason::name)
}

#[test]
fn what_is_for_all_is_recognized_before_its_source_is_judged() {
    const ANYBODY: [u8; 4] = [0; 4];
    let all = [[255; 4], [224, 0, 0, 5], [239, 255, 255, 250], [10, 1, 2, 255], [192, 168, 3, 127]];
    for (stage, bad_source) in
        [(with_networks(true), "martian-source"), (with_networks(false), "not-unicast")]
    {
        let case = |src, dst| verdict_of(&stage, ethernet(&[], 0x0800, &udp4(src, dst, 68, 67, b"")));
        for to in all {
            for from in [ANYBODY, A, B, [169, 254, 7, 7]] {
                assert_eq!(case(from, to), Some("not-unicast"), "{from:?} > {to:?}");
            }
            for from in [[127, 0, 0, 1], [224, 0, 0, 1], [255; 4], [0, 1, 2, 3]] {
                assert_eq!(case(from, to), Some(bad_source), "{from:?} > {to:?}");
            }
        }
        // Their neighbors are hosts.
        for to in [[10, 1, 2, 254], [10, 1, 3, 255], [192, 168, 3, 126], [192, 168, 3, 255]] {
            assert_eq!(case(A, to), None, "{to:?}");
        }
        let case = |src, dst| verdict_of(&stage, ethernet(&[], 0x86dd, &udp6(src, dst, 546, 547, b"")));
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2];
        assert_eq!((case([0; 16], group), case(V6A, group)), (Some("not-unicast"), Some("not-unicast")));
        assert_eq!(case(group, group), Some(bad_source));
    }
    assert_eq!(verdict(Frame::raw(udp4(ANYBODY, B, 68, 67, b""))), Some("martian-source"), "to one host");
}

#[test]
fn a_frame_to_a_group_is_not_forwarded_to_one_host() {
    let packets = [(0x0800, udp4(A, B, 1, 2, b"")), (0x86dd, udp6(V6A, V6B, 1, 2, b""))];
    for stage in [with_networks(true), with_networks(false)] {
        for (ethertype, ip) in &packets {
            for tags in [&[][..], &[0]] {
                let to = |first: u8| {
                    let mut frame = ethernet(tags, *ethertype, ip);
                    frame[0] = first;
                    verdict_of(&stage, frame)
                };
                assert_eq!((to(0x02), to(0x00)), (None, None));
                for first in [0xff, 0x01, 0x33, 0x03] {
                    assert_eq!(to(first), Some("link-broadcast"));
                }
            }
        }
    }
    let cooked = |link, len: usize, protocol: usize, kind: usize, value: u8| {
        let mut bytes = vec![0; len];
        bytes[protocol] = 8;
        bytes[kind] = value;
        bytes.extend(&packets[0].1);
        verdict(Frame::new(bytes, link))
    };
    for (kind, expected) in [(0, None), (1, Some("link-broadcast")), (2, Some("link-broadcast")), (3, None)] {
        assert_eq!(cooked(LinkType::LinuxCooked, 16, 14, 1, kind), expected);
        assert_eq!(cooked(LinkType::LinuxCooked2, 20, 0, 10, kind), expected);
    }
}

#[test]
fn a_dhcp_answer_to_the_router_is_the_routers() {
    let frame = |op: u8, client: MacAddr, length: usize| {
        let mut message = vec![0; 240];
        (message[DHCP_OP], message[DHCP_HLEN]) = (op, 6);
        message[DHCP_CHADDR..DHCP_CHADDR + 6].copy_from_slice(&client.0);
        message.truncate(length);
        ethernet(&[], 0x0800, &udp4(A, B, 67, 68, &message))
    };
    let answer = |op, client, length| verdict_of(&ingress(), frame(op, client, length));
    // The destination of frames in these tests, and another neighbor.
    let (ours, other) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 9]));
    assert_eq!(answer(2, ours, 240), Some("local"));
    assert_eq!(answer(2, other, 240), None, "an answer to a client behind a relay is routed");
    assert_eq!((answer(1, ours, 240), answer(2, ours, 20)), (None, None));
    // To all on the link, although the IP destination is the offered address. The client here is unknown: the
    // router's own client may ask with another MAC address, and nothing forwards the answer further.
    let to_all = |op, client, length| {
        let mut frame = frame(op, client, length);
        frame[..6].fill(0xff);
        verdict_of(&ingress(), frame)
    };
    assert_eq!((to_all(2, ours, 240), to_all(2, other, 240)), (Some("not-unicast"), Some("not-unicast")));
    assert_eq!((to_all(1, ours, 240), to_all(2, ours, 20)), (Some("link-broadcast"), Some("link-broadcast")));
    let swapped = ethernet(&[], 0x0800, &udp4(A, B, 68, 67, &[2; 240]));
    assert_eq!(verdict_of(&ingress(), swapped), None);
}

proptest! {
    /// An independent parser agrees on all offsets, and no bytes cause a panic.
    #[test]
    fn agrees_with_etherparse(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), repair: bool, version in 4u8..7) {
        if repair && bytes.len() > 20 {
            bytes[0] = version << 4 | (bytes[0] & 1) | 5;
            let len = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            bytes[6..8].fill(0);
            bytes[9] = [6, 17, 1][usize::from(bytes[9]) % 3];
            if usize::from(bytes[0] & 15) * 4 <= bytes.len() {
                bytes = with_ipv4_field(bytes, 8, &[64]);
            }
        }
        let stage = Ingress { drop_martians: false, ..Default::default() };
        let mut chunk = chunk(vec![Frame::raw(bytes.clone())]);
        stage.process(&mut chunk.batch(0));
        let p = &chunk.packets()[0];
        if p.is_alive() {
            let sliced = etherparse::IpSlice::from_slice(&bytes);
            prop_assert!(sliced.is_ok(), "we forward what etherparse refuses: {:?}", sliced);
            let sliced = sliced.unwrap();
            match &sliced {
                etherparse::IpSlice::Ipv4(v4) => {
                    prop_assert_eq!(u32::from(v4.header().total_len()), p.ip_len);
                    prop_assert_eq!(u16::from(v4.header().ihl()) * 4, p.l4_offset);
                    prop_assert_eq!(v4.header().is_fragmenting_payload(), p.flags.has(PacketFlags::FRAGMENT));
                }
                etherparse::IpSlice::Ipv6(v6) => {
                    prop_assert_eq!(u32::from(v6.header().payload_length()) + 40, p.ip_len);
                }
            }
            if p.protocol == 17 && !p.flags.has(PacketFlags::LATER_FRAGMENT) {
                let l4 = &bytes[usize::from(p.l4_offset)..];
                prop_assert_eq!(p.src_port, u16::from_be_bytes([l4[0], l4[1]]));
            }
        }
    }

    /// The fast path and the general path give the same result, down to the last field.
    #[test]
    fn the_usual_way_agrees_with_the_careful_one(
        tcp: bool, ethernet_link: bool, guess: bool,
        addresses in (any::<[u8; 4]>(), any::<[u8; 4]>()), near: bool,
        payload in 0usize..40, changes in proptest::collection::vec((0usize..44, any::<u8>()), 0..3), repair: bool,
        kept in 0usize..90, cut: bool, group: bool, dhcp: bool, broadcast: bool,
    ) {
        let (mut src, mut dst) = addresses;
        if near {
            // Around addresses that must not be forwarded.
            (src[0], dst[0]) = ([10, 127, 169, 224, 0, 169][usize::from(src[0] % 6)], dst[0] | 64);
            src[1] = [254, 1][usize::from(src[1] & 1)];
        }
        let ports = if dhcp { (67, 68) } else { (1000, 2000) };
        let mut ip = udp4(src, dst, ports.0, ports.1, &vec![7; payload + 12]);
        if tcp {
            ip[32] = 0x50;
            ip = with_ipv4_field(ip, 9, &[6]);
        }
        for (at, value) in changes {
            ip[at % 40] = value;
        }
        if repair && (5..=10).contains(&(ip[0] & 15)) {
            let ttl = ip[8];
            ip = with_ipv4_field(ip, 8, &[ttl]);
        }
        let mut bytes = if ethernet_link { ethernet(&[], 0x0800, &ip) } else { ip };
        if ethernet_link && group {
            bytes[0] |= 1;
        }
        let wire_len = bytes.len() as u32;
        if cut {
            bytes.truncate(kept);
        }
        let link = if ethernet_link { LinkType::Ethernet } else { LinkType::RawIp };
        let frame = || {
            let mut frame = Frame::new(bytes.clone(), link).on_port(if guess { NO_PORT } else { 3 });
            frame.wire_len = Some(wire_len);
            frame
        };
        let net = |s: &str| s.parse::<IpNet>().unwrap();
        let port_guess = PortGuess::new([(net("10.0.0.0/8"), 1), (net("64.0.0.0/2"), 2)], None);
        let broadcasts = BroadcastSet::new(broadcast.then_some((Ipv4Addr::from(dst), 0)), Vec::new());
        let stage = Ingress { drop_martians: !near || guess, port_guess, vlans: Default::default(), broadcasts };
        let mut chunk = chunk(vec![frame(), frame()]);
        let mut batch = chunk.batch(0);
        let (packet, bytes) = batch.packet_and_frame(0);
        let usual = stage.validate_usual(packet, bytes);
        let at = |at: usize| u32::from_be_bytes(*bytes[usize::from(packet.l3_offset) + at..].first_chunk().unwrap());
        let addresses = usual.map(|_| Addresses { source: at(12), destination: at(16) });
        let (packet, bytes) = batch.packet_and_frame(1);
        stage.validate_any(packet, bytes);
        let [a, b] = batch.packets() else { panic!() };
        prop_assert_eq!(usual, addresses);
        if usual.is_some() {
            let all = |p: &Packet| (
                (p.drop_reason(), p.l3_offset, p.l4_offset, p.ip_len, p.protocol, p.traffic_class),
                (p.flags, p.src_port, p.dst_port, p.port_in, p.flow_hash, p.shard, p.class),
            );
            prop_assert_eq!(all(a), all(b));
        } else {
            prop_assert_eq!((a.l3_offset, a.ip_len, a.flags, a.is_alive()), (0, 0, PacketFlags::default(), true));
        }
    }

    #[test]
    fn sums_that_are_all_ones_are_found_by_their_inverse(words in proptest::collection::vec(any::<u32>(), 1..6), sound: bool) {
        let mut sum: u64 = words.into_iter().map(u64::from).sum::<u64>() + 1;
        if sound {
            sum += 0xffff - sum % 0xffff;
        }
        prop_assert_eq!(is_all_ones(sum), sum.is_multiple_of(0xffff));
    }
}

/// A packet of either version, perhaps with options or extension headers, perhaps damaged.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![6u8, 17, 1, 58, 59, 50, 0, 43, 44, 51, 60]);
    let extensions = prop::collection::vec((prop::sample::select(vec![0u8, 43, 44, 51, 60]), 0u8..3), 0..11);
    let damage = prop::collection::vec((0usize..100, any::<u8>()), 0..3);
    let payload = prop::collection::vec(any::<u8>(), 0..60);
    (any::<bool>(), kind, 0usize..4, extensions, payload, any::<u16>(), damage, any::<bool>()).prop_map(
        |(v6, protocol, options, extensions, payload, fragment, damage, mend)| {
            let mut packet = if v6 {
                let mut chain = payload;
                let mut next = protocol;
                for (kind, units) in extensions.into_iter().rev() {
                    let len =
                        if kind == 51 { 8 + usize::from(units) * 4 } else { 8 + usize::from(units) * 8 };
                    let mut header = vec![next, units, 0, if kind == 44 { units & 1 } else { 9 }];
                    header.resize(if kind == 44 { 8 } else { len }, 0);
                    chain = [header, chain].concat();
                    next = kind;
                }
                testing::ip(V6A, V6B, next, &chain)
            } else {
                let fragment = if fragment & 3 == 0 { fragment & 0x3fff } else { 0 };
                let header = Ipv4Repr {
                    flags_and_offset: fragment,
                    ..Ipv4Repr::new(A.into(), B.into(), protocol, payload.len())
                };
                testing::ipv4_with_options(header, &vec![1; options * 4], &payload)
            };
            for (at, value) in damage {
                if let Some(byte) = packet.get_mut(at) {
                    *byte = value;
                }
            }
            let header_len = usize::from(packet[0] & 15) * 4;
            match packet.get_mut(..header_len) {
                Some(header) if mend && !v6 => write_checksum(header),
                _ => {}
            }
            packet
        },
    )
}

/// The fault that the views find in the header of a packet of `wire_len` bytes.
fn fault_by_view(l3: &[u8], wire_len: usize) -> Option<DropReason> {
    let (total_len, is_right) = match l3[0] >> 4 {
        4 => match Ipv4View::new(l3) {
            Ok(view) => (view.total_len(), view.checksum_holds()),
            Err(Malformed::Length) => return Some(DropReason::IpTotalLength),
            Err(_) => return Some(DropReason::IpHeaderLength),
        },
        6 => match Ipv6View::new(l3) {
            Ok(view) => (view.total_len(), true),
            Err(_) => return Some(DropReason::IpHeaderLength),
        },
        _ => return Some(DropReason::IpVersion),
    };
    match is_right {
        _ if total_len > wire_len => Some(DropReason::IpTotalLength),
        false => Some(DropReason::IpChecksum),
        true => None,
    }
}

/// A validated packet agrees with the views.
fn assert_is_as_viewed(packet: &Packet, l3: &[u8]) {
    let has = |flag: u8| packet.flags.has(flag);
    let (facts, transport) = match l3[0] >> 4 {
        4 => {
            let view = Ipv4View::new(l3).expect("it was validated");
            let fragment = (view.is_fragment(), view.is_later_fragment());
            (
                (view.total_len(), view.header_len(), view.protocol(), view.traffic_class(), fragment),
                view.payload(),
            )
        }
        _ => {
            let view = Ipv6View::new(l3).expect("it was validated");
            let mut walk = Extensions::new(l3, view.total_len(), view.next_header());
            let mut fragment = (false, false);
            for extension in walk.by_ref() {
                fragment.0 |= extension.is_fragment();
                fragment.1 |= extension.is_later_fragment();
            }
            assert!(walk.is_complete());
            let facts = (view.total_len(), walk.at(), walk.protocol(), view.traffic_class(), fragment);
            (facts, view.packet().get(walk.at()..).unwrap_or_default())
        }
    };
    let fragment = (has(PacketFlags::FRAGMENT), has(PacketFlags::LATER_FRAGMENT));
    let l4 = usize::from(packet.l4_offset);
    assert_eq!(facts, (packet.ip_len as usize, l4, packet.protocol, packet.traffic_class, fragment));
    if fragment != (false, false) {
        return;
    }
    let ports = match packet.protocol {
        ip_protocol::TCP => TcpView::new(transport).map(|tcp| (tcp.source_port(), tcp.destination_port())),
        ip_protocol::UDP => UdpView::new(transport).map(|udp| (udp.source_port(), udp.destination_port())),
        _ => return,
    };
    // The capture may have cut off the transport header after its ports.
    if let Ok(ports) = ports {
        assert_eq!(ports, (packet.src_port, packet.dst_port));
    }
}

proptest! {
    /// The stage loads fields itself; for whole, truncated and damaged packets it agrees with the views of `wire`.
    #[test]
    fn headers_are_what_their_views_say(
        l3 in prop_oneof![8 => any_packet(), 1 => prop::collection::vec(any::<u8>(), 1..100)],
        kept in prop::option::weighted(0.3, 1usize..100), longer in 0usize..3,
    ) {
        let wire_len = l3.len() + longer;
        let mut l3 = l3;
        l3.truncate(kept.unwrap_or(usize::MAX));
        let mut frame = Frame::raw(l3.clone());
        frame.wire_len = Some(wire_len as u32);
        let mut chunk = chunk(vec![frame]);
        Ingress::default().process(&mut chunk.batch(0));
        let packet = &chunk.packets()[0];
        let of_header = [
            DropReason::IpVersion, DropReason::IpHeaderLength, DropReason::IpTotalLength, DropReason::IpChecksum,
        ];
        let found = packet.drop_reason().filter(|reason| of_header.contains(reason));
        prop_assert_eq!(found, fault_by_view(&l3, wire_len.max(l3.len())));
        if packet.is_alive() {
            assert_is_as_viewed(packet, &l3);
        }
    }
}
