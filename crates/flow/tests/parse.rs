//! From frame to flow facts: every link layer and tunnel, unreadable packets, and two independent oracles:
//! etherparse and the router's own ingress stage.

use etherparse::{PacketBuilder, SlicedPacket};
use proptest::prelude::*;
use thalweg_base::{Chunk, ChunkBuilder, LinkType, Packet, PacketFlags};
use thalweg_dataplane::ingress::Ingress;
use thalweg_flow::parse::{ParseOptions, mpls_label_of, parse, payload_of, vlan_of};

const A: [u8; 4] = [10, 1, 2, 3];
const B: [u8; 4] = [198, 51, 100, 7];
const V6A: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const V6B: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const PLAIN: ParseOptions = ParseOptions { tunnels: false };
const TUNNELS: ParseOptions = ParseOptions { tunnels: true };

fn chunk(link: LinkType, frame: &[u8], wire_len: usize) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(frame.len() + 256);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
    builder.push(at, frame.len(), wire_len as u32, 0, link, 0, 0);
    builder.finish(0, 1, 0)
}

fn parsed_of(link: LinkType, frame: &[u8], wire_len: usize, options: &ParseOptions) -> Chunk {
    let mut chunk = chunk(link, frame, wire_len);
    let mut batch = chunk.batch(0);
    let (packet, bytes) = batch.packet_and_frame(0);
    parse(packet, bytes, options);
    chunk
}

fn parsed(link: LinkType, frame: &[u8]) -> Chunk {
    parsed_of(link, frame, frame.len(), &PLAIN)
}

fn refused(link: LinkType, frame: &[u8]) -> &'static str {
    parsed(link, frame).packets()[0].drop_reason().map_or("none", |reason| reason.name())
}

fn udp4(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ipv4(A, B, 64).udp(src_port, dst_port).write(&mut out, payload).expect("built");
    out
}

fn udp6(src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    PacketBuilder::ipv6(V6A, V6B, 64).udp(src_port, dst_port).write(&mut out, payload).expect("built");
    out
}

/// An IPv4 header with this protocol before a payload.
fn ip4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = udp4(0, 0, payload);
    out[9] = protocol;
    out.drain(20..28);
    let len = out.len() as u16;
    out[2..4].copy_from_slice(&len.to_be_bytes());
    out
}

fn ip6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = udp6(0, 0, payload);
    out[6] = next_header;
    out.drain(40..48);
    let len = (out.len() - 40) as u16;
    out[4..6].copy_from_slice(&len.to_be_bytes());
    out
}

fn ethernet(types: &[u8], payload: &[u8]) -> Vec<u8> {
    [&[2; 12], types, payload].concat()
}

#[test]
fn a_packet_is_found_behind_every_link_layer() {
    use LinkType::*;
    let llc = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let data = |control: [u8; 2], more: usize| [&control[..], &vec![0; 22 + more], &llc].concat();
    let cases: Vec<(LinkType, Vec<u8>)> = vec![
        (RawIp, vec![]),
        (Ethernet, ethernet(&[8, 0], &[])),
        (Ethernet, ethernet(&[0x81, 0, 0xe0, 7, 8, 0], &[])),
        (Ethernet, ethernet(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0], &[])),
        (Ethernet, ethernet(&[&[0x91, 0, 0, 7].repeat(8), &[8, 0][..]].concat(), &[])),
        (Ethernet, ethernet(&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64], &[])),
        (Ethernet, ethernet(&[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 1, 0, 99, 0, 0x21], &[])),
        (Ethernet, ethernet(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 99, 2, 0x81, 0, 2, 1, 64], &[])),
        (Ethernet, ethernet(&[0, 50], &llc)),
        (LinuxCooked, [&[0; 14][..], &[8, 0]].concat()),
        (LinuxCooked, [&[0; 14][..], &[0x81, 0, 0, 9, 8, 0]].concat()),
        (LinuxCooked2, [&[8, 0][..], &[0; 18]].concat()),
        (BsdLoopback, vec![2, 0, 0, 0]),
        (BsdLoopback, vec![0, 0, 0, 2]),
        (Ppp, vec![0xff, 3, 0, 0x21]),
        (Ppp, vec![0, 0x21]),
        (Ppp, vec![0x21]),
        (Ppp, vec![0x0f, 0, 8, 0]),
        (CiscoHdlc, vec![0x0f, 0, 8, 0]),
        (CiscoHdlc, vec![0x8f, 0, 0x88, 0x47, 0, 2, 1, 64]),
        (FrameRelay, vec![0x18, 0x41, 3, 0xcc]),
        (FrameRelay, vec![0x18, 0x40, 1, 3, 0, 0x80, 0, 0, 0, 8, 0]),
        (FrameRelay, vec![0x18, 0x41, 8, 0]),
        (Fddi, [&[0x50; 13][..], &llc].concat()),
        (Ieee80211, data([8, 1], 0)),
        (Ieee80211, data([8, 3], 6)),
        (Ieee80211, data([0x88, 0x82], 6)),
        (Radiotap, [&[0, 0, 8, 0, 0, 0, 0, 0][..], &data([8, 2], 0)].concat()),
        // A timer, and flags that say that the header (of QoS data, 26 bytes) is padded to a multiple of four.
        (Radiotap, [&[0, 0, 17, 0, 3, 0, 0, 0], &[9; 8][..], &[0x20], &data([0x88, 1], 4)].concat()),
        // The same with a second presence word.
        (
            Radiotap,
            [&[0, 0, 25, 0, 3, 0, 0, 0x80], &[0; 8][..], &[9; 8], &[0x20], &data([0x88, 1], 4)].concat(),
        ),
        (NetfilterLog, vec![2, 0, 0, 0, 5, 0, 10, 0, 7, 0, 0, 0, 40, 0, 9, 0]),
        (NetfilterLog, vec![2, 0, 0, 0, 0, 5, 0, 10, 7, 0, 0, 0, 0, 40, 0, 9]),
    ];
    for (link, front) in cases {
        for padding in [0, 6] {
            let frame = [&front[..], &udp4(5060, 5061, b"hello"), &vec![0xee; padding]].concat();
            let chunk = parsed(link, &frame);
            let (packet, at) = (&chunk.packets()[0], front.len() as u16);
            assert_eq!(packet.drop_reason(), None, "{link:?} {front:x?}");
            assert_eq!(
                (packet.l3_offset, packet.l4_offset, packet.ip_len),
                (at, at + 20, 33),
                "{link:?} {front:x?}"
            );
            assert_eq!((packet.src_port, packet.dst_port, packet.protocol), (5060, 5061, 17));
            assert_eq!(packet.flags.0, PacketFlags::HAS_PORTS);
            assert_eq!(payload_of(&frame, packet), b"hello");
            // Truncated anywhere before the transport header, nothing is readable, and it is no other packet
            // either.
            for end in 0..front.len() + 20 {
                let chunk = parsed(link, &frame[..end]);
                assert!(!chunk.packets()[0].is_alive(), "{link:?} {front:x?} cut at {end}");
            }
        }
    }
}

#[test]
fn ipv6_is_found_too() {
    use LinkType::*;
    let cases: Vec<(LinkType, Vec<u8>)> = vec![
        (RawIp, vec![]),
        (Ethernet, ethernet(&[0x86, 0xdd], &[])),
        (Ethernet, ethernet(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 99, 0, 0x57], &[])),
        (Ethernet, ethernet(&[0x88, 0x47, 0, 2, 1, 64], &[])),
        (BsdLoopback, vec![30, 0, 0, 0]),
        (Ppp, vec![0x57]),
        (FrameRelay, vec![0x18, 0x41, 3, 0x8e]),
        (NetfilterLog, vec![10, 0, 0, 0, 40, 0, 9, 0]),
    ];
    for (link, front) in cases {
        let chunk = parsed(link, &[&front[..], &udp6(1, 2, b"hello")].concat());
        let (packet, at) = (&chunk.packets()[0], front.len() as u16);
        assert_eq!(packet.drop_reason(), None, "{link:?} {front:x?}");
        assert_eq!((packet.l3_offset, packet.l4_offset, packet.ip_len), (at, at + 40, 53));
        assert_eq!(packet.flags.0, PacketFlags::HAS_PORTS | PacketFlags::IPV6);
    }
}

#[test]
fn tags_and_labels_can_be_asked_for() {
    let cases: [(&[u8], u16, Option<u32>); 6] = [
        (&[8, 0], 0, None),
        (&[0x81, 0, 0xef, 0xfe, 8, 0], 0xffe, None),
        (&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0], 7, None),
        (&[0x81, 0, 0xe0, 0, 0x81, 0, 0, 8, 8, 0], 0, None),
        (&[0x88, 0x47, 0x12, 0x34, 0x50, 64, 0, 2, 1, 64], 0, Some(0x12345)),
        (&[0x81, 0, 0, 9, 0x88, 0x48, 0, 0, 1, 64], 9, Some(0)),
    ];
    for (types, vlan, label) in cases {
        let frame = ethernet(types, &udp4(1, 2, b""));
        let chunk = parsed(LinkType::Ethernet, &frame);
        let packet = &chunk.packets()[0];
        assert_eq!((vlan_of(&frame, packet), mpls_label_of(&frame, packet)), (vlan, label), "{types:x?}");
    }
    let frame = [&[0; 14][..], &[0x81, 0, 0, 9, 8, 0], &udp4(1, 2, b"")].concat();
    let chunk = parsed(LinkType::LinuxCooked, &frame);
    assert_eq!(vlan_of(&frame, &chunk.packets()[0]), 9);
}

#[test]
fn what_cannot_be_read_has_a_name() {
    use LinkType::*;
    let ip = |at: usize, value: u8| {
        let mut out = udp4(1, 2, b"hello");
        out[at] = value;
        out
    };
    let cases = [
        (Unsupported, ip(0, 0x45), "unsupported-link"),
        (RawIp, vec![], "frame-too-short"),
        (RawIp, ip(0, 0x55), "ip-version"),
        (RawIp, ip(0, 0x44), "ip-header-length"),
        (RawIp, ip(0, 0x4f), "ip-header-length"),
        (RawIp, udp4(1, 2, b"")[..19].to_vec(), "ip-header-length"),
        (RawIp, udp6(1, 2, b"")[..39].to_vec(), "ip-header-length"),
        (RawIp, ip(3, 19), "ip-total-length"),
        (Ethernet, vec![0; 13], "frame-too-short"),
        (Ethernet, ethernet(&[8, 0], &[]), "frame-too-short"),
        (Ethernet, ethernet(&[8, 6], &[0; 28]), "not-ip"),
        (Ethernet, ethernet(&[8, 0], &udp6(1, 2, b"")), "ip-version"),
        (Ethernet, ethernet(&[0x81, 0, 0], &[]), "frame-too-short"),
        (Ethernet, ethernet(&[&[0x81, 0, 0, 7].repeat(9), &[8, 0][..]].concat(), &ip(0, 0x45)), "vlan-depth"),
        (
            Ethernet,
            ethernet(&[&[0x88, 0x47][..], &[0, 0, 0, 64].repeat(17)].concat(), &ip(0, 0x45)),
            "not-ip",
        ),
        (Ethernet, ethernet(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0xc0, 0x21], &[0; 20]), "not-ip"),
        (Ethernet, ethernet(&[0, 38], &[0x42, 0x42, 3, 0, 0]), "not-ip"),
        (BsdLoopback, vec![7, 0, 0, 0, 0x45], "not-ip"),
        (FrameRelay, vec![0; 40], "not-ip"),
        // A beacon, encrypted data, data without a payload, several packets in one.
        (Ieee80211, [&[0x80, 0][..], &[0; 60]].concat(), "not-ip"),
        (Ieee80211, [&[0x08, 0x41][..], &[0; 60]].concat(), "not-ip"),
        (Ieee80211, [&[0x48, 1][..], &[0; 60]].concat(), "not-ip"),
        (Ieee80211, [&[0x88, 1][..], &[0; 22], &[0x80, 0], &[0; 60]].concat(), "not-ip"),
        (Radiotap, vec![0, 0, 200, 0, 0, 0, 0, 0], "frame-too-short"),
        (
            Radiotap,
            [&[0, 0, 12, 0, 0, 0, 0, 0x80][..], &[0, 0, 0, 0x80], &[8; 40]].concat(),
            "frame-too-short",
        ),
        (NetfilterLog, vec![2, 0, 0, 0, 3, 0, 1, 0], "frame-too-short"),
        (NetfilterLog, [&[2, 0, 0, 0][..], &[4, 0, 1, 0].repeat(40)].concat(), "not-ip"),
    ];
    for (link, frame, reason) in cases {
        assert_eq!(refused(link, &frame), reason, "{link:?} {frame:x?}");
    }
}

#[test]
fn a_meter_counts_what_a_router_refuses() {
    let ip = |at: usize, value: &[u8]| {
        let mut out = udp4(1, 2, b"hello");
        out[at..at + value.len()].copy_from_slice(value);
        out
    };
    for frame in [
        ip(10, &[0, 0]),
        ip(8, &[0]),
        ip(12, &[127, 0, 0, 1]),
        ip(16, &[239, 1, 1, 1]),
        ip(12, &B),
        ip(24, &[0, 2]),
    ] {
        assert_eq!(refused(LinkType::RawIp, &frame), "none");
    }
}

#[test]
fn lengths_are_those_of_the_header_and_never_more_than_there_was() {
    let ip_len = |frame: &[u8], wire_len: usize| {
        parsed_of(LinkType::RawIp, frame, wire_len, &PLAIN).packets()[0].ip_len
    };
    let whole = udp4(1, 2, &[7; 400]);
    assert_eq!(ip_len(&whole, whole.len()), 428);
    assert_eq!(ip_len(&whole[..60], 428), 428, "cut by the capture");
    assert_eq!(ip_len(&whole[..60], 60), 60, "claims more than there was");
    assert_eq!(ip_len(&[&whole[..], &[0; 20]].concat(), 448), 428, "padded");
    let mut unsaid = whole.clone();
    unsaid[2..4].fill(0);
    assert_eq!(ip_len(&unsaid, 428), 428, "cut up by the card later");
    let mut jumbo = ip6(0, &[[17, 0, 0xc2, 4, 0, 1, 0, 8], [0, 1, 0, 2, 0, 0, 0, 0]].concat());
    jumbo[4..6].fill(0);
    let chunk = parsed_of(LinkType::RawIp, &jumbo, 65_576, &PLAIN);
    let packet = &chunk.packets()[0];
    assert_eq!((packet.ip_len, packet.protocol, packet.dst_port), (65_576, 17, 2));
    // Only a header, with padding behind it.
    let mut nothing = ip6(59, &[]);
    nothing.extend([0; 6]);
    assert_eq!(ip_len(&nothing, 46), 40);
}

#[test]
fn ports_need_their_four_bytes_and_no_more() {
    let facts = |frame: &[u8], wire_len: usize| {
        let chunk = parsed_of(LinkType::RawIp, frame, wire_len, &PLAIN);
        let packet = &chunk.packets()[0];
        (packet.flags.has(PacketFlags::HAS_PORTS), packet.src_port, packet.dst_port)
    };
    let udp = udp4(5, 6, b"hello");
    assert_eq!(facts(&udp[..24], udp.len()), (true, 5, 6));
    assert_eq!(facts(&udp[..23], udp.len()), (false, 0, 0));
    for (protocol, has_ports) in [(6, true), (33, true), (132, true), (136, true), (1, false), (47, false)] {
        let frame = ip4(protocol, &[0, 5, 0, 6]);
        assert_eq!(facts(&frame, frame.len()).0, has_ports, "protocol {protocol}");
    }
    // The frame's padding is not a transport header.
    let frame = [ip4(17, &[0, 5]), vec![0; 30]].concat();
    assert_eq!(facts(&frame, frame.len()), (false, 0, 0));
}

#[test]
fn fragments_are_known_in_both_families() {
    let flags = |frame: &[u8]| parsed(LinkType::RawIp, frame).packets()[0].flags.0;
    let v4 = |high: u8, low: u8| {
        let mut out = udp4(1, 2, b"hello");
        (out[6], out[7]) = (high, low);
        flags(&out)
    };
    let udp = &udp6(1, 2, b"hello")[40..];
    let v6 = |field: u16| {
        let field = field.to_be_bytes();
        flags(&ip6(44, &[&[17, 0, field[0], field[1], 0, 0, 0, 9], udp].concat()))
    };
    let (first, later) = (PacketFlags::FRAGMENT, PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT);
    assert_eq!(v4(0x40, 0), PacketFlags::HAS_PORTS);
    assert_eq!(v4(0x20, 0), PacketFlags::HAS_PORTS | first);
    assert_eq!((v4(0x20, 1), v4(0, 1)), (later, later));
    assert_eq!(v6(0), PacketFlags::IPV6 | PacketFlags::HAS_PORTS);
    assert_eq!(v6(1), PacketFlags::IPV6 | PacketFlags::HAS_PORTS | first);
    assert_eq!((v6(9), v6(8)), (PacketFlags::IPV6 | later, PacketFlags::IPV6 | later));
}

#[test]
fn reading_a_chain_ends_where_it_must() {
    let end = |frame: &[u8]| {
        let chunk = parsed(LinkType::RawIp, frame);
        (chunk.packets()[0].protocol, chunk.packets()[0].l4_offset, chunk.packets()[0].drop_reason())
    };
    let udp = &udp6(1, 2, b"")[40..];
    let chain =
        |headers: usize| ip6(0, &[&[0; 8].repeat(headers - 1)[..], &[17, 0, 0, 0, 0, 0, 0, 0], udp].concat());
    assert_eq!(end(&chain(8)), (17, 40 + 64, None));
    assert_eq!(end(&chain(9)), (0, 40 + 64, None), "too many");
    assert_eq!(end(&ip6(43, &[17, 200, 0, 0])), (43, 40, None), "longer than the packet");
    assert_eq!(end(&ip6(60, &[])), (60, 40, None), "announced, and not there");
    assert_eq!(end(&ip6(51, &[&[17, 1, 0, 0], &[0; 8][..], udp].concat())), (17, 52, None));
}

/// Tunnels with an inner packet, in raw IP.
fn tunnels(inner: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let v6 = inner[0] >> 4 == 6;
    let ether_type: [u8; 2] = if v6 { [0x86, 0xdd] } else { [8, 0] };
    let framed = ethernet(&ether_type, inner);
    let mut all = vec![
        ("ip in ipv4", ip4(if v6 { 41 } else { 4 }, inner)),
        ("ip in ipv6", ip6(if v6 { 41 } else { 4 }, inner)),
        ("gre", ip4(47, &[&[0, 0], &ether_type[..], inner].concat())),
        ("gre with all fields", ip6(47, &[&[0xb0, 0], &ether_type[..], &[0; 12], inner].concat())),
        ("nvgre", ip4(47, &[&[0x20, 0, 0x65, 0x58, 0, 0, 1, 0][..], &framed].concat())),
        ("gre with mpls", ip4(47, &[&[0, 0, 0x88, 0x47, 0, 2, 1, 64][..], inner].concat())),
        (
            "pptp",
            ip4(
                47,
                &[
                    &[0x30, 0x81, 0x88, 0x0b, 0, 0, 0, 0],
                    &[0; 8][..],
                    &[0xff, 3, 0, 0x21 + u8::from(v6) * 0x36],
                    inner,
                ]
                .concat(),
            ),
        ),
        ("mpls in ip", ip4(137, &[&[0, 1, 0, 64, 0, 2, 1, 64][..], inner].concat())),
        ("mpls in udp", udp4(9999, 6635, &[&[0, 2, 1, 64][..], inner].concat())),
        ("vxlan", udp4(9999, 4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &framed].concat())),
        (
            "vxlan in ipv6, tagged",
            udp6(
                9999,
                4789,
                &[
                    &[8, 0, 0, 0, 0, 0, 1, 0][..],
                    &ethernet(&[&[0x81, 0, 0, 5], &ether_type[..]].concat(), inner),
                ]
                .concat(),
            ),
        ),
        ("geneve", udp4(9999, 6081, &[&[0x02, 0, 0x65, 0x58, 0, 0, 1, 0], &[0; 8][..], &framed].concat())),
        ("geneve with ip", udp4(9999, 6081, &[&[0, 0], &ether_type[..], &[0, 0, 1, 0], inner].concat())),
        ("gtp", udp4(2152, 2152, &[&[0x30, 255, 0, 99, 0, 0, 0, 1][..], inner].concat())),
        ("gtp back", udp4(2152, 9999, &[&[0x30, 255, 0, 99, 0, 0, 0, 1][..], inner].concat())),
        (
            "gtp with extensions",
            udp4(
                2152,
                2152,
                &[&[0x36, 255, 0, 99, 0, 0, 0, 1, 0, 0, 0, 0x85][..], &[1, 0, 0, 0xc0], &[1, 0, 0, 0], inner]
                    .concat(),
            ),
        ),
        ("capwap", udp4(9999, 5247, &[&[0, 0x10, 0x02, 0, 0, 0, 0, 0][..], &framed].concat())),
        (
            "capwap with 802.11",
            udp4(
                5247,
                9999,
                &[
                    &[0, 0x10, 0x03, 0, 0, 0, 0, 0, 8, 1][..],
                    &[0; 22],
                    &[0xaa, 0xaa, 3, 0, 0, 0],
                    &ether_type,
                    inner,
                ]
                .concat(),
            ),
        ),
        (
            "capwap with 802.11 the other way round",
            udp4(
                5247,
                9999,
                &[
                    &[0, 0x10, 0x03, 0, 0, 0, 0, 0, 1, 8][..],
                    &[0; 22],
                    &[0xaa, 0xaa, 3, 0, 0, 0],
                    &ether_type,
                    inner,
                ]
                .concat(),
            ),
        ),
    ];
    if v6 {
        all.push(("teredo", udp4(9999, 3544, inner)));
        all.push((
            "teredo, authenticated",
            udp4(3544, 9999, &[&[0, 1, 0, 0], &[0; 9][..], &[0; 8], inner].concat()),
        ));
    }
    all
}

#[test]
fn inner_packets_count_if_asked_for() {
    for inner in [udp4(53, 99, b"hello"), udp6(53, 99, b"hello")] {
        for (name, frame) in tunnels(&inner) {
            let at = frame.len() - inner.len();
            let chunk = parsed_of(LinkType::RawIp, &frame, frame.len(), &TUNNELS);
            let packet = &chunk.packets()[0];
            assert_eq!(usize::from(packet.l3_offset), at, "{name}");
            assert_eq!(
                (packet.ip_len as usize, packet.src_port, packet.dst_port),
                (inner.len(), 53, 99),
                "{name}"
            );
            assert_eq!(packet.is_ipv6(), inner[0] >> 4 == 6, "{name}");
            assert_eq!(payload_of(&frame, packet), b"hello", "{name}");
            let outside = parsed(LinkType::RawIp, &frame);
            assert_eq!(
                (outside.packets()[0].l3_offset, outside.packets()[0].ip_len as usize),
                (0, frame.len()),
                "{name}"
            );
        }
    }
}

#[test]
fn a_tunnel_that_cannot_be_looked_into_counts_itself() {
    let inner = udp4(53, 99, b"hello");
    for (name, frame) in tunnels(&inner) {
        let header = if frame[0] >> 4 == 6 { 40 } else { 20 };
        let inner_at = frame.len() - inner.len();
        // The inner header is truncated by the capture or by the sender, or it is invalid.
        let mut other = frame.clone();
        other[inner_at] = 0x75;
        for (frame, wire_len) in [
            (&frame[..inner_at + 19], frame.len()),
            (&frame[..inner_at + 19], inner_at + 19),
            (&other[..], other.len()),
        ] {
            let chunk = parsed_of(LinkType::RawIp, frame, wire_len, &TUNNELS);
            let packet = &chunk.packets()[0];
            assert_eq!(
                (packet.drop_reason(), packet.l3_offset, packet.l4_offset),
                (None, 0, header),
                "{name}"
            );
        }
        // Fragments of it are not parsed.
        if header == 20 {
            let mut piece = frame.clone();
            piece[6] = 0x20;
            let chunk = parsed_of(LinkType::RawIp, &piece, piece.len(), &TUNNELS);
            assert_eq!(chunk.packets()[0].l3_offset, 0, "{name}");
        }
    }
}

#[test]
fn tunnels_in_tunnels_have_a_depth() {
    let mut frame = udp4(1, 2, b"");
    for depth in 1..=6 {
        frame = ip4(4, &frame);
        let chunk = parsed_of(LinkType::RawIp, &frame, frame.len(), &TUNNELS);
        assert_eq!(usize::from(chunk.packets()[0].l3_offset), depth.min(4) * 20);
    }
}

/// Facts that the router's ingress and the meter's parser both have.
fn facts(packet: &Packet) -> impl PartialEq + std::fmt::Debug {
    const SHARED: u8 =
        PacketFlags::IPV6 | PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT | PacketFlags::HAS_PORTS;
    let ports = match packet.protocol {
        // The router has the identifier of an echo; the meter has none.
        1 | 58 => (packet.flags.0 & SHARED & !PacketFlags::HAS_PORTS, 0, 0),
        // The router has no ports of SCTP, DCCP and UDP-Lite.
        33 | 132 | 136 => (packet.flags.0 & SHARED & !PacketFlags::HAS_PORTS, 0, 0),
        _ => (packet.flags.0 & SHARED, packet.src_port, packet.dst_port),
    };
    (packet.l3_offset, packet.l4_offset, packet.ip_len, packet.protocol, packet.traffic_class, ports)
}

fn holds_together(link: LinkType, frame: &[u8], wire_len: usize, options: &ParseOptions) {
    let chunk = parsed_of(link, frame, wire_len, options);
    let packet = &chunk.packets()[0];
    if !packet.is_alive() {
        return;
    }
    let (l3, l4) = (usize::from(packet.l3_offset), usize::from(packet.l4_offset));
    let header = if packet.is_ipv6() { 40 } else { 20 };
    assert!(l3 + header <= frame.len(), "the addresses are at hand");
    assert!(l3 + header <= l4 && l4 <= l3 + packet.ip_len as usize);
    assert!(l3 + packet.ip_len as usize <= wire_len.max(frame.len()));
    if packet.flags.has(PacketFlags::HAS_PORTS) {
        let ports = u32::from(packet.src_port) << 16 | u32::from(packet.dst_port);
        assert_eq!(frame[l4..l4 + 4], ports.to_be_bytes());
    }
    assert!(vlan_of(frame, packet) < 4096);
    assert!(mpls_label_of(frame, packet).is_none_or(|label| label < 1 << 20));
    assert!(payload_of(frame, packet).len() <= packet.ip_len as usize);
}

const LINKS: [LinkType; 12] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::LinuxCooked,
    LinkType::LinuxCooked2,
    LinkType::BsdLoopback,
    LinkType::Ppp,
    LinkType::CiscoHdlc,
    LinkType::FrameRelay,
    LinkType::Fddi,
    LinkType::Ieee80211,
    LinkType::Radiotap,
    LinkType::NetfilterLog,
];

/// A frame as etherparse builds it: family, tags, extensions, transport, payload.
fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    let shape = (any::<bool>(), 0..3u8, 0..5u8, any::<u16>(), any::<u16>());
    (shape, 0..40usize, any::<u8>(), any::<u8>(), 0..4u8).prop_map(
        |((v6, tags, transport, src_port, dst_port), payload, traffic_class, options, padding)| {
            let mut ip = match v6 {
                false => etherparse::Ipv4Header::new(0, 64, etherparse::IpNumber::UDP, A, B)
                    .map(|mut header| {
                        header.dscp = etherparse::IpDscp::try_new(traffic_class >> 2).expect("six bits");
                        header.options = [0; 40][..usize::from(options % 11) * 4]
                            .try_into()
                            .expect("a multiple of four bytes");
                        etherparse::IpHeaders::Ipv4(header, Default::default())
                    })
                    .expect("the message fits"),
                true => {
                    let header = etherparse::Ipv6Header {
                        traffic_class,
                        source: V6A,
                        destination: V6B,
                        hop_limit: 64,
                        ..Default::default()
                    };
                    let mut extensions = etherparse::Ipv6Extensions::default();
                    let generic = || {
                        etherparse::Ipv6RawExtHeader::new_raw(etherparse::IpNumber::UDP, &[0; 14])
                            .expect("a multiple of eight bytes")
                    };
                    if options & 1 != 0 {
                        extensions.hop_by_hop_options = Some(generic());
                    }
                    if options & 2 != 0 {
                        extensions.destination_options = Some(generic());
                    }
                    if options & 4 != 0 {
                        let more = options & 8 != 0;
                        let offset =
                            etherparse::IpFragOffset::try_new(u16::from(options >> 5)).expect("small");
                        extensions.fragment = Some(etherparse::Ipv6FragmentHeader::new(
                            etherparse::IpNumber::UDP,
                            offset,
                            more,
                            7,
                        ));
                    }
                    etherparse::IpHeaders::Ipv6(header, extensions)
                }
            };
            let tag = |id: u16| etherparse::VlanId::try_new(id).expect("twelve bits");
            let start = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let mut out = Vec::new();
            let payload = vec![0x55; payload];
            if let etherparse::IpHeaders::Ipv6(header, _) = &mut ip {
                header.flow_label =
                    etherparse::Ipv6FlowLabel::try_new(u32::from(src_port)).expect("twenty bits");
            }
            let step = match tags {
                0 => start.ip(ip),
                1 => start.single_vlan(tag(src_port & 0xfff)).ip(ip),
                _ => start.double_vlan(tag(7), tag(dst_port & 0xfff)).ip(ip),
            };
            match transport {
                0 => step.tcp(src_port, dst_port, 1, 1024).write(&mut out, &payload),
                1 => step.icmpv4_echo_request(src_port, 1).write(&mut out, &payload),
                2 if v6 => step.icmpv6_echo_request(src_port, 1).write(&mut out, &payload),
                _ => step.udp(src_port, dst_port).write(&mut out, &payload),
            }
            .expect("built");
            out.extend(vec![0; usize::from(padding)]);
            out
        },
    )
}

proptest! {
    #[test]
    fn agrees_with_etherparse(frame in well_formed()) {
        let chunk = parsed(LinkType::Ethernet, &frame);
        let packet = &chunk.packets()[0];
        prop_assert_eq!(packet.drop_reason(), None);
        let sliced = SlicedPacket::from_ethernet(&frame).expect("etherparse reads what it wrote");
        let at = |slice: &[u8]| slice.as_ptr() as usize - frame.as_ptr() as usize;
        let (l3, len, traffic_class, payload) = match sliced.net.as_ref().expect("IP") {
            etherparse::NetSlice::Ipv4(v4) => {
                let header = v4.header();
                let class = header.dcp().value() << 2 | header.ecn().value();
                (at(header.slice()), usize::from(header.total_len()), class, v4.payload())
            }
            etherparse::NetSlice::Ipv6(v6) => {
                let header = v6.header();
                (at(header.slice()), usize::from(header.payload_length()) + 40, header.traffic_class(), v6.payload())
            }
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(usize::from(packet.l3_offset), l3);
        prop_assert_eq!(usize::from(packet.l4_offset), at(payload.payload));
        prop_assert_eq!(packet.ip_len as usize, len);
        prop_assert_eq!(packet.protocol, payload.ip_number.0);
        prop_assert_eq!(packet.traffic_class, traffic_class);
        prop_assert_eq!(packet.flags.has(PacketFlags::FRAGMENT), payload.fragmented);
        let vlan = sliced.vlan_ids().first().map_or(0, |id| id.value());
        prop_assert_eq!(vlan_of(&frame, packet), vlan);
        let later = packet.flags.has(PacketFlags::LATER_FRAGMENT);
        let ports = match (&sliced.transport, payload.payload) {
            (Some(etherparse::TransportSlice::Udp(udp)), _) => Some((udp.source_port(), udp.destination_port())),
            (Some(etherparse::TransportSlice::Tcp(tcp)), _) => Some((tcp.source_port(), tcp.destination_port())),
            // etherparse does not slice the transport header of a first fragment.
            (None, [a, b, c, d, ..]) if !later && matches!(packet.protocol, 6 | 17) =>
                Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))),
            _ => None,
        };
        prop_assert_eq!(packet.flags.has(PacketFlags::HAS_PORTS).then_some((packet.src_port, packet.dst_port)), ports);
    }

    /// The meter accepts every packet that the router accepts, and both give the same facts.
    #[test]
    fn agrees_with_the_routers_ingress(
        frame in well_formed(), changes in proptest::collection::vec((0usize..110, any::<u8>()), 0..4),
        link in 0usize..3, kept in 20usize..160, cut: bool,
    ) {
        let mut frame = frame;
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        let link = LINKS[link];
        let front = match link {
            LinkType::RawIp => frame.split_off(14),
            LinkType::LinuxCooked => [&[0; 14][..], &frame[12..]].concat(),
            _ => frame.clone(),
        };
        let wire_len = front.len();
        let at_hand = if cut { &front[..kept.min(wire_len)] } else { &front[..] };
        let mut theirs = chunk(link, at_hand, wire_len);
        let stage = Ingress { drop_martians: false, ..Default::default() };
        stage.process(&mut theirs.batch(0));
        let ours = parsed_of(link, at_hand, wire_len, &PLAIN);
        if theirs.packets()[0].is_alive() {
            prop_assert_eq!(ours.packets()[0].drop_reason(), None);
            prop_assert_eq!(facts(&ours.packets()[0]), facts(&theirs.packets()[0]));
        }
    }

    #[test]
    fn facts_hold_together_whatever_the_bytes(
        link in 0usize..12, bytes in proptest::collection::vec(any::<u8>(), 0..200), more in 0usize..100, tunnels: bool,
    ) {
        holds_together(LINKS[link], &bytes, bytes.len() + more, &ParseOptions { tunnels });
    }

    #[test]
    fn facts_hold_together_inside_of_broken_tunnels(
        which in 0usize..20, v6: bool, changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
        kept in 0usize..200, more in 0usize..100,
    ) {
        let inner = if v6 { udp6(53, 99, b"hello") } else { udp4(53, 99, b"hello") };
        let all = tunnels(&inner);
        let mut frame = all[which % all.len()].1.clone();
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(kept);
        holds_together(LinkType::RawIp, &frame, frame.len() + more, &TUNNELS);
    }
}
