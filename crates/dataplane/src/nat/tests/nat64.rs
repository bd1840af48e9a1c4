//! NAT64. What comes out is compared with packets built anew from what the RFCs say, checksums included.

use super::*;
use crate::fragments::FragmentTracker;
use crate::helpers::Helper;
use crate::ingress::Ingress;
use crate::nat::{
    Happening, HostLimits, Nat64Config, Nat64Prefix, NatGroup, NatLogging, PortSelection, SubscriberConfig,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use thalweg_base::{ChunkBuilder, LinkType};
use thalweg_wire::icmp::IcmpRepr;
use thalweg_wire::ip_protocol::{FRAGMENT, GRE, ICMP, ICMPV6, ROUTING, TCP, UDP};
use thalweg_wire::ipv4::{DONT_FRAGMENT, Ipv4Repr, MORE_FRAGMENTS};
use thalweg_wire::ipv6::{FragmentRepr, Ipv6Repr};
use thalweg_wire::testing as build;

const PREFIX: &str = "2001:db8:64::/96";
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

fn prefix() -> Nat64Prefix {
    Nat64Prefix::new(PREFIX.parse().unwrap()).unwrap()
}

pub(super) fn config(publics: u8) -> NatConfig {
    let nat64 = Some(Nat64Config { prefix: prefix(), mtu_bytes: 1500 });
    NatConfig { nat64, ..testing::config(publics) }
}

/// The address that an IPv6 host uses for an IPv4 host.
pub(super) fn mapped(address: Ipv4Addr) -> Ipv6Addr {
    prefix().embed(address.into()).into()
}

fn host6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n)
}

fn end(address: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

/// A chunk of one packet, as the stages before NAT leave it.
pub(super) fn validated(port_in: u16, bytes: &[u8], now_ns: u64) -> Chunk {
    let mut builder = ChunkBuilder::with_capacity(bytes.len() + ChunkBuilder::HEADROOM);
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..].copy_from_slice(bytes);
    builder.push(at, bytes.len(), bytes.len() as u32, now_ns, LinkType::RawIp, port_in, 0);
    let mut chunk = builder.finish(0, 1, now_ns);
    Ingress { drop_martians: true, ..Ingress::default() }.process(&mut chunk.batch(0));
    chunk
}

/// A NAT with the stages before it.
pub(super) struct Edge {
    pub(super) router: Router,
    fragments: RefCell<FragmentTracker>,
}

impl Edge {
    pub(super) fn new(config: &NatConfig) -> Self {
        Self { router: Router::new(config), fragments: RefCell::default() }
    }

    /// Sends one packet; its descriptor must agree with what comes out.
    fn send(&self, port_in: u16, bytes: &[u8]) -> Outcome {
        let mut chunk = validated(port_in, bytes, self.router.now_ns);
        assert_eq!(chunk.packets()[0].drop_reason(), None, "{bytes:02x?}");
        self.fragments.borrow_mut().process(&mut chunk, true, |_| 0);
        self.router.run(&mut chunk);
        let (mut batch, _) = chunk.whole();
        let (packet, l3) = batch.packet_and_l3(0);
        if let Some(reason) = packet.drop_reason() {
            let packet = &batch.packets()[0];
            assert_eq!(packet.is_ipv6(), bytes[0] >> 4 == 6, "refused as it came");
            return Err(reason);
        }
        let after = l3[..packet.ip_len as usize].to_vec();
        if !packet.is_ipv6() {
            checksums(&after).unwrap();
        }
        let mut again = validated(port_in, &after, self.router.now_ns);
        let read = &mut again.packets_mut()[0];
        assert_eq!(read.drop_reason(), None, "{after:02x?}");
        assert_eq!(
            (packet.ip_len, packet.protocol, packet.is_ipv6()),
            (read.ip_len, read.protocol, read.is_ipv6())
        );
        assert_eq!(packet.l4_offset - packet.l3_offset, read.l4_offset);
        if read.flags.has(PacketFlags::HAS_PORTS) {
            assert_eq!((packet.src_port, packet.dst_port), (read.src_port, read.dst_port));
        }
        Ok(after)
    }

    pub(super) fn leave(&self, bytes: &[u8]) -> Outcome {
        self.send(INSIDE, bytes)
    }

    pub(super) fn arrive(&self, bytes: &[u8]) -> Outcome {
        self.send(OUTSIDE, bytes)
    }

    /// The public endpoint of a UDP session from here to the server.
    pub(super) fn open(&self, n: u16, port: u16) -> Result<SocketAddrV4, DropReason> {
        self.leave(&build::udp((host6(n), port), (mapped(SERVER), 53), b"?")).map(|bytes| source(&bytes))
    }
}

/// An IPv4 packet as NAT64 writes it, with the identification that it chose.
fn ipv4_like(out: &[u8], protocol: u8, ends: [Ipv4Addr; 2], segment: &[u8]) -> Vec<u8> {
    let [from, to] = ends;
    let is_long = 20 + segment.len() > 1260;
    let header = Ipv4Repr {
        identification: u16::from_be_bytes([out[4], out[5]]),
        flags_and_offset: if is_long { DONT_FRAGMENT } else { 0 },
        ..Ipv4Repr::new(from, to, protocol, segment.len())
    };
    build::ipv4(header, segment)
}

#[test]
fn udp_and_tcp_and_echo_go_out_and_come_back() {
    let edge = Edge::new(&config(1));
    let (inside, remote) = (end(host6(7), 5000), end(mapped(SERVER), 80));
    let (public, server) = (end(PUBLIC, 5000), end(SERVER, 80));
    for len in [0, 1, 100, 1232, 1233, 1400] {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let out = edge.leave(&build::udp(inside, remote, &payload)).unwrap();
        assert_eq!(
            out,
            ipv4_like(&out, UDP, [PUBLIC, SERVER], &build::udp_segment(public, server, &payload))
        );
        let back = edge.arrive(&build::udp(server, public, &payload)).unwrap();
        assert_eq!(back, build::udp(remote, inside, &payload));
        let out = edge.leave(&build::tcp(inside, remote, SYN, &payload)).unwrap();
        let segment = build::tcp_segment(public, server, SYN, [0; 2], &payload);
        assert_eq!(out, ipv4_like(&out, TCP, [PUBLIC, SERVER], &segment));
        let back = edge.arrive(&build::tcp(server, public, SYN_ACK, &payload)).unwrap();
        assert_eq!(back, build::tcp(remote, inside, SYN_ACK, &payload));
        let [ping, pong] = [128, 129].map(|kind| (kind, [0x13, 0x88, 0, 9]));
        let out = edge.leave(&build::icmp(inside.ip(), remote.ip(), ping.0, ping.1, &payload)).unwrap();
        let header = IcmpRepr { kind: 8, code: 0, rest: ping.1 };
        let message = build::icmp_message(public.ip(), server.ip(), header, &payload);
        assert_eq!(out, ipv4_like(&out, ICMP, [PUBLIC, SERVER], &message));
        let back = edge.arrive(&build::icmp(SERVER, PUBLIC, 0, pong.1, &payload)).unwrap();
        assert_eq!(back, build::icmp(remote.ip(), inside.ip(), pong.0, pong.1, &payload));
    }
    let counters = edge.router.nat.counters();
    assert_eq!((counters.sessions_active, counters.nat64_out, counters.nat64_in), (3, 18, 18));
}

#[test]
fn rfc7915_traffic_class_hop_limit_and_identification() {
    let edge = Edge::new(&config(1));
    let segment = build::udp_segment(end(host6(1), 4000), end(mapped(SERVER), 53), b"x");
    let header =
        Ipv6Repr { traffic_class: 0xb9, hop_limit: 17, ..Ipv6Repr::new(host6(1), mapped(SERVER), UDP, 9) };
    let packet = [&header.encode()[..], &segment].concat();
    let [first, second] = [0; 2].map(|_| edge.leave(&packet).unwrap());
    assert_eq!((first[1], first[8]), (0xb9, 17));
    assert_ne!(first[4..6], second[4..6], "identifications differ");
    let header = Ipv4Repr { traffic_class: 0x2e, ttl: 9, ..Ipv4Repr::new(SERVER, PUBLIC, UDP, 9) };
    let answer = build::udp_segment(end(SERVER, 53), end(PUBLIC, 4000), b"x");
    // Options are left out.
    for options in [&[][..], &[1, 1, 7, 7, 4, 0, 0, 0, 0][..]] {
        let back = edge.arrive(&build::ipv4_with_options(header, options, &answer)).unwrap();
        let expected =
            Ipv6Repr { traffic_class: 0x2e, hop_limit: 9, ..Ipv6Repr::new(mapped(SERVER), host6(1), UDP, 9) };
        let segment = build::udp_segment(end(mapped(SERVER), 53), end(host6(1), 4000), b"x");
        assert_eq!(back, [&expected.encode()[..], &segment].concat());
    }
    let source_route = build::ipv4_with_options(header, &[131, 7, 4, 1, 2, 3, 4], &answer);
    assert_eq!(edge.arrive(&source_route), Err(DropReason::Nat64Packet));
    let done = build::ipv4_with_options(header, &[131, 7, 8, 1, 2, 3, 4], &answer);
    assert!(edge.arrive(&done).is_ok(), "its end is reached");
}

/// An IPv6 packet with this extension header.
fn extended(kind: u8, extension: &[u8], protocol: u8, ends: [Ipv6Addr; 2], segment: &[u8]) -> Vec<u8> {
    let mut extension = extension.to_vec();
    extension[0] = protocol;
    let header = Ipv6Repr::new(ends[0], ends[1], kind, extension.len() + segment.len());
    [&header.encode()[..], &extension, segment].concat()
}

#[test]
fn rfc7915_5_1_extension_headers() {
    let edge = Edge::new(&config(1));
    let segment = build::udp_segment(end(host6(1), 4000), end(mapped(SERVER), 53), b"x");
    let with = |kind, extension: &[u8]| {
        edge.leave(&extended(kind, extension, UDP, [host6(1), mapped(SERVER)], &segment))
    };
    let plain = build::udp_segment(end(PUBLIC, 4000), end(SERVER, 53), b"x");
    for (kind, extension) in
        [(0, [0, 0, 1, 4, 0, 0, 0, 0]), (60, [0, 0, 1, 4, 0, 0, 0, 0]), (ROUTING, [0; 8])]
    {
        let out = with(kind, &extension).unwrap();
        assert_eq!(out, ipv4_like(&out, UDP, [PUBLIC, SERVER], &plain));
    }
    assert_eq!(with(ROUTING, &[0, 0, 0, 1, 0, 0, 0, 0]), Err(DropReason::Nat64Packet), "segments left");
}

#[test]
fn rfc7915_fragments_both_ways() {
    let edge = Edge::new(&config(1));
    let payload = [7; 40];
    let datagram = build::udp_segment(end(host6(1), 4000), end(mapped(SERVER), 53), &payload);
    let translated = build::udp_segment(end(PUBLIC, 4000), end(SERVER, 53), &payload);
    let six = |ends: [Ipv6Addr; 2], field: u16, part: &[u8]| {
        let fragment = FragmentRepr { next_header: UDP, field, identification: 0x0007_1234 };
        extended(FRAGMENT, &fragment.encode(), UDP, ends, part)
    };
    let four = |ends: [Ipv4Addr; 2], field: u16, part: &[u8]| {
        let (identification, flags_and_offset) = (0x1234, field);
        build::ipv4(
            Ipv4Repr { identification, flags_and_offset, ..Ipv4Repr::new(ends[0], ends[1], UDP, part.len()) },
            part,
        )
    };
    let (out6, out4) = ([host6(1), mapped(SERVER)], [PUBLIC, SERVER]);
    assert_eq!(
        edge.leave(&six(out6, 3 << 3, &datagram[24..])),
        Err(DropReason::FragmentWithoutFirst),
        "before its first"
    );
    for (field6, field4, part) in [(1, MORE_FRAGMENTS, 0..24), (3 << 3, 3, 24..48)] {
        let out = edge.leave(&six(out6, field6, &datagram[part.clone()])).unwrap();
        assert_eq!(out, four(out4, field4, &translated[part]));
    }
    // And back, with a fragment header.
    let answer = build::udp_segment(end(SERVER, 53), end(PUBLIC, 4000), &payload);
    let expected = build::udp_segment(end(mapped(SERVER), 53), end(host6(1), 4000), &payload);
    for (field4, field6, part) in [(MORE_FRAGMENTS, 1, 0..24), (3, 3 << 3, 24..48)] {
        let back = edge.arrive(&four([SERVER, PUBLIC], field4, &answer[part.clone()])).unwrap();
        let fragment = FragmentRepr { next_header: UDP, field: field6, identification: 0x1234 };
        let wanted = extended(FRAGMENT, &fragment.encode(), UDP, [mapped(SERVER), host6(1)], &expected[part]);
        assert_eq!(back, wanted);
    }
    // An atomic fragment (RFC 6946) is whole, and keeps its identification.
    let out = edge.leave(&six(out6, 0, &datagram)).unwrap();
    assert_eq!(out, four(out4, 0, &translated));
    // Checksums of ICMP and ICMPv6 differ by the length of all fragments.
    let echo = build::icmp_message(
        host6(1).into(),
        mapped(SERVER).into(),
        IcmpRepr { kind: 128, code: 0, rest: [1; 4] },
        &payload,
    );
    let fragment = FragmentRepr { next_header: ICMPV6, field: 1, identification: 9 };
    let part = extended(FRAGMENT, &fragment.encode(), ICMPV6, out6, &echo[..24]);
    assert_eq!(edge.leave(&part), Err(DropReason::Nat64Packet));
}

#[test]
fn rfc7915_4_5_udp_without_a_checksum() {
    let edge = Edge::new(&config(1));
    edge.open(1, 4000).unwrap();
    for payload in [&b"x"[..], b"xy", b"xyz"] {
        let mut segment = build::udp_segment(end(SERVER, 53), end(PUBLIC, 4000), payload);
        segment[6..8].fill(0);
        let back = edge.arrive(&build::ip(SERVER, PUBLIC, UDP, &segment)).unwrap();
        assert_eq!(back, build::udp((mapped(SERVER), 53), (host6(1), 4000), payload));
        let header = Ipv4Repr {
            flags_and_offset: MORE_FRAGMENTS,
            ..Ipv4Repr::new(SERVER, PUBLIC, UDP, segment.len())
        };
        assert_eq!(edge.arrive(&build::ipv4(header, &segment)), Err(DropReason::Nat64Packet));
    }
}

#[test]
fn rfc7915_4_packets_that_may_be_cut_say_so() {
    let edge = Edge::new(&config(1));
    edge.open(1, 4000).unwrap();
    for (len, flags, has_header) in
        [(1452, 0, false), (1453, 0, true), (1453, DONT_FRAGMENT, false), (1452, DONT_FRAGMENT, false)]
    {
        let segment = build::udp_segment(end(SERVER, 53), end(PUBLIC, 4000), &vec![1; len]);
        let header = Ipv4Repr {
            identification: 0xabcd,
            flags_and_offset: flags,
            ..Ipv4Repr::new(SERVER, PUBLIC, UDP, segment.len())
        };
        let back = edge.arrive(&build::ipv4(header, &segment)).unwrap();
        let expected = build::udp_segment(end(mapped(SERVER), 53), end(host6(1), 4000), &vec![1; len]);
        let ends = [mapped(SERVER), host6(1)];
        let wanted = match has_header {
            true => extended(FRAGMENT, &[0, 0, 0, 0, 0, 0, 0xab, 0xcd], UDP, ends, &expected),
            false => build::ip(ends[0], ends[1], UDP, &expected),
        };
        assert_eq!(back, wanted, "{len} {flags:x}");
    }
}

/// An ICMP error about a packet, from a router.
fn error(from: impl Into<IpAddr>, to: impl Into<IpAddr>, header: IcmpRepr, quote: &[u8]) -> Vec<u8> {
    let (from, to) = (from.into(), to.into());
    let message = build::icmp_message(from, to, header, quote);
    build::ip(from, to, if from.is_ipv6() { ICMPV6 } else { ICMP }, &message)
}

/// Type, code and the number behind them of an error, and of its translation.
type ErrorPair = ((u8, u8, u32), Option<(u8, u8, u32)>);

/// RFC 7915 4.2: type, code and the second word of ICMP, and those of ICMPv6.
const ERRORS_IN: &[ErrorPair] = &[
    ((3, 0, 0), Some((1, 0, 0))),
    ((3, 1, 0), Some((1, 0, 0))),
    ((3, 2, 0), Some((4, 1, 6))),
    ((3, 3, 0), Some((1, 4, 0))),
    ((3, 4, 1400), Some((2, 0, 1420))),
    ((3, 4, 600), Some((2, 0, 1280))),
    ((3, 4, 0), Some((2, 0, 1280))),
    ((3, 5, 0), Some((1, 0, 0))),
    ((3, 6, 0), Some((1, 0, 0))),
    ((3, 7, 0), Some((1, 0, 0))),
    ((3, 8, 0), Some((1, 0, 0))),
    ((3, 9, 0), Some((1, 1, 0))),
    ((3, 10, 0), Some((1, 1, 0))),
    ((3, 11, 0), Some((1, 0, 0))),
    ((3, 12, 0), Some((1, 0, 0))),
    ((3, 13, 0), Some((1, 1, 0))),
    ((3, 14, 0), None),
    ((3, 15, 0), Some((1, 1, 0))),
    ((3, 16, 0), None),
    ((4, 0, 0), None),
    ((11, 0, 0), Some((3, 0, 0))),
    ((11, 1, 0), Some((3, 1, 0))),
    ((12, 0, 0), Some((4, 0, 0))),
    ((12, 0, 1 << 24), Some((4, 0, 1))),
    ((12, 0, 2 << 24), Some((4, 0, 4))),
    ((12, 0, 3 << 24), Some((4, 0, 4))),
    ((12, 0, 4 << 24), None),
    ((12, 0, 7 << 24), None),
    ((12, 0, 8 << 24), Some((4, 0, 7))),
    ((12, 0, 9 << 24), Some((4, 0, 6))),
    ((12, 0, 10 << 24), None),
    ((12, 0, 12 << 24), Some((4, 0, 8))),
    ((12, 0, 15 << 24), Some((4, 0, 8))),
    ((12, 0, 16 << 24), Some((4, 0, 24))),
    ((12, 2, 19 << 24), Some((4, 0, 24))),
    ((12, 0, 20 << 24), None),
    ((12, 1, 0), None),
];

/// RFC 7915 5.2, in the other direction.
const ERRORS_OUT: &[ErrorPair] = &[
    ((1, 0, 0), Some((3, 1, 0))),
    ((1, 1, 0), Some((3, 10, 0))),
    ((1, 2, 0), Some((3, 1, 0))),
    ((1, 3, 0), Some((3, 1, 0))),
    ((1, 4, 0), Some((3, 3, 0))),
    ((1, 5, 0), None),
    ((2, 0, 1500), Some((3, 4, 1480))),
    ((2, 0, 1280), Some((3, 4, 1260))),
    ((2, 0, 0xffff_ffff), Some((3, 4, 0xffff))),
    ((3, 0, 0), Some((11, 0, 0))),
    ((3, 1, 0), Some((11, 1, 0))),
    ((4, 0, 0), Some((12, 0, 0))),
    ((4, 0, 1), Some((12, 0, 1 << 24))),
    ((4, 0, 2), None),
    ((4, 0, 4), Some((12, 0, 2 << 24))),
    ((4, 0, 5), Some((12, 0, 2 << 24))),
    ((4, 0, 6), Some((12, 0, 9 << 24))),
    ((4, 0, 7), Some((12, 0, 8 << 24))),
    ((4, 0, 8), Some((12, 0, 12 << 24))),
    ((4, 0, 24), Some((12, 0, 16 << 24))),
    ((4, 0, 39), Some((12, 0, 16 << 24))),
    ((4, 0, 40), None),
    ((4, 1, 6), Some((3, 2, 0))),
    ((4, 2, 0), None),
    ((100, 0, 0), None),
];

fn header((kind, code, rest): (u8, u8, u32)) -> IcmpRepr {
    IcmpRepr { kind, code, rest: rest.to_be_bytes() }
}

#[test]
fn rfc7915_icmp_errors_both_ways() {
    let edge = Edge::new(&config(1));
    let router = Ipv4Addr::new(203, 0, 113, 99);
    for protocol in [UDP, TCP, ICMP] {
        let (sent, seen, got, answer) = exchange(&edge, protocol);
        for (before, after) in ERRORS_IN {
            let back = edge.arrive(&error(router, PUBLIC, header(*before), &seen));
            let wanted = after.map(|after| error(mapped(router), host6(1), header(after), &sent));
            assert_eq!(back.ok(), wanted, "{protocol} {before:?}");
        }
        for (before, after) in ERRORS_OUT {
            // The error may come from a router on the way, too.
            for from in [host6(1), host6(99)] {
                let out = edge.leave(&error(from, mapped(SERVER), header(*before), &got));
                let wanted = after.map(|after| error(PUBLIC, SERVER, header(after), &answer));
                assert_eq!(out.ok().map(without_identification), wanted.map(without_identification));
            }
        }
    }
    assert_eq!(edge.router.nat.counters().sessions_active, 3, "errors make no sessions");
}

/// A packet out as the host and as the server knows it, and an answer as the host and as the server knows it. What
/// routers change, and the identification, is zero in headers that errors quote.
fn exchange(edge: &Edge, protocol: u8) -> (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>) {
    let (inside, remote) = (end(host6(1), 4000), end(mapped(SERVER), 4000));
    let (public, server) = (end(PUBLIC, 4000), end(SERVER, 4000));
    let packet = |from: SocketAddr, to: SocketAddr, is_answer: bool| match (protocol, from.is_ipv6()) {
        (UDP, _) => build::udp(from, to, &[1; 64]),
        (TCP, _) => build::tcp(from, to, ACK, &[1; 64]),
        (_, true) => build::icmp(from.ip(), to.ip(), 128 + u8::from(is_answer), [0x0f, 0xa0, 0, 1], &[1; 64]),
        (_, false) => {
            build::icmp(from.ip(), to.ip(), if is_answer { 0 } else { 8 }, [0x0f, 0xa0, 0, 1], &[1; 64])
        }
    };
    let sent = packet(inside, remote, false);
    edge.leave(&sent).unwrap();
    (sent, packet(public, server, false), packet(remote, inside, true), packet(server, public, true))
}

/// An ICMP error with zero as the identification of both headers, and what follows from that.
fn without_identification(mut packet: Vec<u8>) -> Vec<u8> {
    for at in [0, 28] {
        packet[at + 4..at + 6].fill(0);
        thalweg_wire::ipv4::write_checksum(&mut packet[at..at + 20]);
    }
    packet[22..24].fill(0);
    packet
}

#[test]
fn rfc7915_4_2_mtu_of_routers_that_name_none() {
    let edge = Edge::new(&config(1));
    edge.open(1, 4000).unwrap();
    let from_public = (end(PUBLIC, 4000), end(SERVER, 53));
    for (length, expected) in [(1500, 1512), (1492, 1280), (2100, 2022), (4352, 2022), (9000, 8186)] {
        let mut quote = build::udp(from_public.0, from_public.1, &vec![0; length - 28]);
        quote.truncate(500);
        let back = edge.arrive(&error(SERVER, PUBLIC, header((3, 4, 0)), &quote)).unwrap();
        assert_eq!(back[44..48], u32::to_be_bytes(expected), "{length}");
    }
}

#[test]
fn a_long_quote_is_cut_to_what_every_link_takes() {
    let edge = Edge::new(&config(1));
    edge.open(1, 4000).unwrap();
    let quote = build::udp(end(PUBLIC, 4000), end(SERVER, 53), &[5; 1300]);
    let back = edge.arrive(&error(SERVER, PUBLIC, header((3, 1, 0)), &quote)).unwrap();
    let sent = build::udp(end(host6(1), 4000), end(mapped(SERVER), 53), &[5; 1300]);
    assert_eq!(back, error(mapped(SERVER), host6(1), header((1, 0, 0)), &sent[..1232]));
    assert_eq!(back.len(), 1280);
}

#[test]
fn the_translator_speaks_for_routers_without_a_global_address() {
    let (public, server, router) =
        (Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(10, 0, 0, 1));
    let nat64 = Some(Nat64Config { prefix: Nat64Prefix::WELL_KNOWN, mtu_bytes: 1500 });
    let edge = Edge::new(&NatConfig { nat64, public_addresses: vec![public], ..config(1) });
    let known = |address: Ipv4Addr| Ipv6Addr::from(Nat64Prefix::WELL_KNOWN.embed(address.into()));
    let sent = build::udp((host6(1), 5000), (known(server), 53), b"x");
    edge.leave(&sent).unwrap();
    let seen = build::udp((public, 5000), (server, 53), b"x");
    let back = edge.arrive(&error(router, public, header((3, 4, 1400)), &seen)).unwrap();
    assert_eq!(back, error(known(public), host6(1), header((2, 0, 1420)), &sent));
}

#[test]
fn damaged_errors_and_those_about_nothing_are_dropped() {
    let edge = Edge::new(&config(1));
    let (sent, seen, got, _) = exchange(&edge, UDP);
    let mut damaged = error(host6(1), mapped(SERVER), header((1, 4, 0)), &got);
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(edge.leave(&damaged), Err(DropReason::NatIcmp));
    let mut damaged = error(SERVER, PUBLIC, header((3, 1, 0)), &seen);
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(edge.arrive(&damaged), Err(DropReason::NatIcmp));
    // What it quotes went the same way, or to another host.
    assert_eq!(
        edge.leave(&error(host6(1), mapped(SERVER), header((1, 4, 0)), &sent)),
        Err(DropReason::NatIcmp)
    );
    let of_another = build::udp(end(mapped(SERVER), 4000), end(host6(2), 4000), b"x");
    assert_eq!(
        edge.leave(&error(host6(1), mapped(SERVER), header((1, 4, 0)), &of_another)),
        Err(DropReason::NatIcmp)
    );
    let solicitation = build::icmp(host6(1), mapped(SERVER), 135, [0; 4], &[0; 16]);
    assert_eq!(edge.leave(&solicitation), Err(DropReason::NatIcmp));
}

#[test]
fn hosts_reach_each_other_by_public_endpoints() {
    let edge = Edge::new(&config(1));
    let udp = |from: SocketAddr, to: SocketAddr| build::udp(from, to, b"x");
    // Two IPv6 hosts and one with IPv4.
    let (a, b, c) = (end(host6(1), 4000), end(host6(2), 2000), end(Ipv4Addr::new(192, 168, 0, 3), 3000));
    for inside in [a, b] {
        assert_eq!(edge.leave(&udp(inside, end(mapped(SERVER), 53))).unwrap()[12..16], PUBLIC.octets());
    }
    edge.leave(&udp(c, end(SERVER, 53))).unwrap();
    let public6 = |port| end(mapped(PUBLIC), port);
    assert_eq!(edge.leave(&udp(a, public6(2000))).unwrap(), udp(public6(4000), b));
    assert_eq!(edge.leave(&udp(b, public6(4000))).unwrap(), udp(public6(2000), a));
    let to_ipv4 = edge.leave(&udp(a, public6(3000))).unwrap();
    let segment = build::udp_segment(end(PUBLIC, 4000), c, b"x");
    assert_eq!(to_ipv4, ipv4_like(&to_ipv4, UDP, [PUBLIC, Ipv4Addr::new(192, 168, 0, 3)], &segment));
    assert_eq!(edge.leave(&udp(c, end(PUBLIC, 4000))).unwrap(), udp(public6(3000), a));
    // An error about the first of them.
    let back =
        edge.leave(&error(host6(2), mapped(PUBLIC), header((1, 4, 0)), &udp(public6(4000), b))).unwrap();
    assert_eq!(back, error(mapped(PUBLIC), host6(1), header((1, 4, 0)), &udp(a, public6(2000))));
    assert_eq!(edge.leave(&udp(a, public6(5000))), Err(DropReason::NatNoMapping));
    let ping = build::icmp(host6(1), mapped(PUBLIC), 128, [1; 4], b"x");
    assert_eq!(edge.leave(&ping), Err(DropReason::NatNoMapping));
    let config = NatConfig { hairpin: false, ..config(1) };
    assert_eq!(Edge::new(&config).leave(&udp(a, public6(2000))), Err(DropReason::NatNoMapping));
}

#[test]
fn packets_that_nat64_does_not_translate_have_a_reason() {
    let edge = Edge::new(&config(1));
    let to = |address: Ipv4Addr| build::udp((host6(1), 1), (mapped(address), 2), b"x");
    assert_eq!(edge.leave(&to(Ipv4Addr::new(192, 168, 3, 4))), Err(DropReason::Nat64Address), "inside");
    let looped = build::udp((mapped(SERVER), 1), (mapped(Ipv4Addr::new(203, 0, 113, 2)), 2), b"x");
    assert_eq!(edge.leave(&looped), Err(DropReason::Nat64Address));
    let gre = build::ip(host6(1), mapped(SERVER), GRE, &[0; 8]);
    assert_eq!(edge.leave(&gre), Err(DropReason::NatProtocol));
    let expiring = [
        &Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(host6(1), mapped(SERVER), UDP, 9) }.encode()[..],
        &build::udp_segment(end(host6(1), 1), end(mapped(SERVER), 2), b"x"),
    ]
    .concat();
    assert_eq!(edge.leave(&expiring), Err(DropReason::TtlExpired));
    let elsewhere = build::udp((host6(1), 1), (host6(2), 2), b"x");
    assert_eq!(edge.leave(&elsewhere).unwrap(), elsewhere);
    assert_eq!(edge.arrive(&elsewhere).unwrap(), elsewhere);
    let from_outside = build::udp((host6(1), 1), (mapped(SERVER), 2), b"x");
    assert_eq!(edge.arrive(&from_outside).unwrap(), from_outside, "left to the routes");
    assert_eq!(edge.router.nat.counters().nat64_hosts, 0);
    let well_known = Nat64Config { prefix: Nat64Prefix::WELL_KNOWN, mtu_bytes: 1500 };
    let edge = Edge::new(&NatConfig { nat64: Some(well_known), ..config(1) });
    let to = |text: &str| build::udp((host6(1), 5000), (text.parse::<Ipv6Addr>().unwrap(), 2), b"x");
    assert!(edge.leave(&to("64:ff9b::8.8.8.8")).is_ok());
    assert_eq!(edge.leave(&to("64:ff9b::10.1.2.3")), Err(DropReason::Nat64Address));
    let private = build::udp((Ipv4Addr::new(10, 1, 2, 3), 2), (PUBLIC, 5000), b"x");
    assert_eq!(edge.arrive(&private), Err(DropReason::Nat64Address));
}

#[test]
fn a_number_from_the_wire_is_nobody() {
    let packet = testing::udp(at([240, 0, 0, 1], 1), remote(1, 2), b"x");
    let mut chunk = chunk(&[(INSIDE, &packet[..], packet.len() as u32)], 0);
    label(&Labeler::new(&config(1)).unwrap(), &mut chunk, 64);
    assert_eq!(chunk.packets()[0].drop_reason(), Some(DropReason::MartianSource));
}

#[test]
fn what_is_refused_is_the_packet_that_came() {
    let config = NatConfig { port_range: 1000..=1001, shards: 1, ..config(1) };
    let edge = Edge::new(&config);
    edge.open(1, 1000).unwrap();
    edge.open(2, 1000).unwrap();
    for payload in [0, 3, 60] {
        let packet = build::udp((host6(3), 1000), (mapped(SERVER), 53), &vec![9; payload]);
        let mut chunk = validated(INSIDE, &packet, edge.router.now_ns);
        edge.router.run(&mut chunk);
        assert_eq!(chunk.packets()[0].drop_reason(), Some(DropReason::NatPortsExhausted));
        let described = validated(INSIDE, &packet, edge.router.now_ns);
        let facts = |chunk: &Chunk| {
            let packet = &chunk.packets()[0];
            (packet.l3_offset, packet.l4_offset, packet.ip_len, packet.protocol, packet.is_ipv6())
        };
        assert_eq!((chunk.frame(0), facts(&chunk)), (&packet[..], facts(&described)));
    }
    assert_eq!(edge.router.nat.counters().nat64_hosts, 2);
}

#[test]
fn limits_are_those_of_hosts_and_subscribers() {
    let hosts = HostLimits { sessions_max: Some(3), ..HostLimits::default() };
    let edge = Edge::new(&NatConfig { hosts, shards: 1, ..config(1) });
    let opened =
        |edge: &Edge, n: u16| (0..9).map(|port| edge.open(n, 2000 + port)).take_while(Result::is_ok).count();
    assert_eq!([1, 2].map(|n| opened(&edge, n)), [3, 3]);
    assert_eq!(edge.open(1, 2100), Err(DropReason::NatHostLimit));
    let subscribers = SubscriberConfig { block_size: 16, ports_max: 5, ..SubscriberConfig::default() };
    let edge = Edge::new(&NatConfig { subscribers: Some(subscribers), ..config(1) });
    let ports: Vec<u16> = (0..5).map(|port| edge.open(1, 2000 + port).unwrap().port()).collect();
    assert!(ports.iter().all(|port| port / 16 == ports[0] / 16), "all of one block: {ports:?}");
    assert_eq!(edge.open(1, 2100), Err(DropReason::NatPortLimit));
    let mut blocks = Vec::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        next = edge.router.nat.blocks(from, |_| true, &mut blocks);
    }
    assert_eq!(blocks.iter().map(|block| block.inside).collect::<Vec<_>>(), [IpAddr::V6(host6(1))]);
}

#[test]
fn a_group_of_ipv6_hosts_has_its_own_addresses() {
    let group = |name: &str, inside: &str, addresses| NatGroup {
        name: name.to_owned(),
        vrf: 0,
        inside: vec![inside.parse().unwrap()],
        addresses,
        outside: 0,
        limits: HostLimits::default(),
        ports_max: 0,
    };
    let groups = vec![group("four", "0.0.0.0/0", 1..2), group("six", "2001:db8:1::8/125", 2..3)];
    let edge = Edge::new(&NatConfig { groups, ..config(3) });
    let publics = [1, 8, 15, 16].map(|n| edge.open(n, 4000).unwrap().ip().octets()[3]);
    assert_eq!(publics, [1, 3, 3, 1]);
    let used: Vec<_> = edge.router.nat.pools().into_iter().map(|pool| (pool.name, pool.used[1])).collect();
    assert_eq!(used, [("default".to_owned(), 2), ("four".to_owned(), 0), ("six".to_owned(), 2)]);
}

#[test]
fn what_ipv6_hosts_say_has_no_helper() {
    let edge = Edge::new(&NatConfig { helpers: Helper::ALL.into_iter().collect(), ..config(1) });
    let (inside, remote) = (end(host6(7), 5000), end(mapped(SERVER), 21));
    let (public, server) = (end(PUBLIC, 5000), end(SERVER, 21));
    let text = b"EPRT |2|2001:db8:1::7|5001|\r\n";
    let out = edge.leave(&build::tcp(inside, remote, ACK, text)).unwrap();
    let segment = build::tcp_segment(public, server, ACK, [0; 2], text);
    assert_eq!(out, ipv4_like(&out, TCP, [PUBLIC, SERVER], &segment));
    let text = b"229 Entering Extended Passive Mode (|||6446|)\r\n";
    let back = edge.arrive(&build::tcp(server, public, ACK, text)).unwrap();
    assert_eq!(back, build::tcp(remote, inside, ACK, text));
    let counters = edge.router.nat.counters();
    assert_eq!((counters.sessions_created, counters.helped, counters.help_unread), (1, 0, 0));
}

#[test]
fn sessions_end_and_so_do_their_hosts() {
    let mut edge = Edge::new(&config(1));
    for n in 0..50 {
        edge.open(n, 2000 + n).unwrap();
    }
    let counters = edge.router.nat.counters();
    assert_eq!((counters.nat64_hosts, counters.sessions_active), (50, 50));
    edge.router.wait_s(1000);
    edge.router.nat.advance(edge.router.now_ns);
    let counters = edge.router.nat.counters();
    assert_eq!((counters.nat64_hosts, counters.sessions_active), (0, 0));
    // A session that makes room for another of the same host, in a full table.
    let hosts = HostLimits { drops_half_open: true, ..HostLimits::default() };
    let mut edge = Edge::new(&NatConfig { sessions_max: 1, shards: 1, hosts, ..config(1) });
    for port in [1, 2, 3] {
        let syn = build::tcp((host6(1), port), (mapped(SERVER), 80), SYN, b"");
        assert!(edge.leave(&syn).is_ok());
        assert_eq!(edge.router.nat.counters().nat64_hosts, 1);
        edge.router.wait_s(10);
    }
}

#[test]
fn another_table_takes_sessions_over() {
    let old = Edge::new(&config(2));
    for n in 0..40 {
        old.open(n, 2000 + n).unwrap();
    }
    let publics: Vec<_> = (0..40).map(|n| old.open(n, 2000 + n).unwrap()).collect();
    let new = Edge::new(&NatConfig { shards: 16, ..config(2) });
    let new = Edge { router: Router { now_ns: old.router.now_ns, ..new.router }, ..new };
    assert_eq!(new.router.nat.migrate_from(&old.router.nat).kept, 40);
    for (n, public) in (0..40).zip(&publics) {
        let back = new.arrive(&build::udp((SERVER, 53), SocketAddr::from(*public), b"x")).unwrap();
        assert_eq!(back, build::udp((mapped(SERVER), 53), (host6(n), 2000 + n), b"x"));
        assert_eq!(new.open(n, 2000 + n).unwrap(), *public);
    }
    assert_eq!(new.router.nat.counters().sessions_created, 40, "those of the old table");
    let without = Edge::new(&NatConfig { nat64: None, shards: 16, ..config(2) });
    assert_eq!(without.router.nat.migrate_from(&old.router.nat).displaced, 40);
    assert_eq!(without.router.nat.counters().nat64_hosts, 0);
}

#[test]
fn sessions_and_events_name_the_host() {
    let edge = Edge::new(&config(1));
    edge.router.nat.set_logging(Some(NatLogging::Sessions));
    let public = edge.open(5, 1234).unwrap();
    let mut told = Vec::new();
    edge.router.nat.hand_out_events(&mut |event| told.push(event.what));
    edge.router.nat.log_end_of_all();
    edge.router.nat.hand_out_events(&mut |event| told.push(event.what));
    let event = |created| Happening::Session {
        vrf: 0,
        created,
        protocol: NatProtocol::Udp,
        inside: end(host6(5), 1234),
        public,
        remote: Some(SocketAddrV4::new(SERVER, 53)),
    };
    assert_eq!(told, [event(true), event(false)]);
    assert_eq!(edge.router.sessions()[0].inside, end(host6(5), 1234));
}

proptest! {
    /// The mapping is that of NAT44: each endpoint keeps one public endpoint, no two share one, and answers come back.
    #[test]
    fn endpoints_are_mapped_one_to_one(
        hash: bool, blocks: bool,
        steps in prop::collection::vec((0u16..12, 0u16..6, 0u8..3, 0u8..4), 1..120),
    ) {
        let subscribers = SubscriberConfig { block_size: 16, ..SubscriberConfig::default() };
        let config = NatConfig {
            port_selection: if hash { PortSelection::Hash } else { PortSelection::Preserve },
            subscribers: blocks.then_some(subscribers),
            shards: 8,
            ..config(3)
        };
        let edge = Edge::new(&config);
        let mut known = std::collections::HashMap::new();
        for (n, port, protocol, remote) in steps {
            let server = Ipv4Addr::new(203, 0, 113, remote);
            let (inside, port) = (host6(n), 4000 + port);
            let id = port.to_be_bytes();
            let packet = match protocol {
                0 => build::tcp((inside, port), (mapped(server), 80), SYN, b""),
                1 => build::udp((inside, port), (mapped(server), 80), b"x"),
                _ => build::icmp(inside, mapped(server), 128, [id[0], id[1], 0, 1], b"x"),
            };
            let public = source(&edge.leave(&packet).unwrap());
            let earlier = known.insert((inside, port, protocol), public);
            prop_assert!(earlier.is_none_or(|earlier| earlier == public));
            let others = known.iter().filter(|(key, other)| key.2 == protocol && **other == public);
            prop_assert_eq!(others.count(), 1);
            let id = public.port().to_be_bytes();
            let answer = match protocol {
                0 => build::tcp((server, 80), SocketAddr::from(public), SYN_ACK, b""),
                1 => build::udp((server, 80), SocketAddr::from(public), b"x"),
                _ => build::icmp(server, *public.ip(), 0, [id[0], id[1], 0, 1], b"x"),
            };
            let id = port.to_be_bytes();
            let wanted = match protocol {
                0 => build::tcp((mapped(server), 80), (inside, port), SYN_ACK, b""),
                1 => build::udp((mapped(server), 80), (inside, port), b"x"),
                _ => build::icmp(mapped(server), inside, 129, [id[0], id[1], 0, 1], b"x"),
            };
            prop_assert_eq!(edge.arrive(&answer).unwrap(), wanted);
        }
    }

    #[test]
    fn any_recipe_keeps_checksums_right(recipe in prop::collection::vec(any::<u8>(), 0..600)) {
        crate::nat::fuzz_nat64(&recipe);
    }

    #[test]
    fn no_bytes_make_it_panic(
        start in prop::collection::vec(any::<u8>(), 0..120), is_ipv6: bool, port_in in 0u16..2, damage in any::<(u8, u8)>(),
    ) {
        let edge = Edge::new(&config(1));
        let (_, seen, got, _) = exchange(&edge, [UDP, TCP, ICMP][usize::from(damage.0 % 3)]);
        let made = match (is_ipv6, damage.1 % 4) {
            (true, 0) => error(host6(1), mapped(SERVER), header((damage.0, damage.1, 0)), &got),
            (false, 0) => error(SERVER, PUBLIC, header((damage.0, damage.1, 0)), &seen),
            (true, 1) => got,
            (false, 1) => seen,
            (true, _) => build::ip(host6(1), mapped(SERVER), [UDP, TCP, ICMPV6, 0, 43, 44, 51, 60][usize::from(damage.0 % 8)], &start),
            (false, _) => build::ip(SERVER, PUBLIC, [UDP, TCP, ICMP, 47][usize::from(damage.0 % 4)], &start),
        };
        let mut bytes = made.clone();
        let at = usize::from(damage.0) % bytes.len();
        bytes[at] ^= damage.1;
        for bytes in [made, bytes, start] {
            if !bytes.is_empty() {
                let mut chunk = validated(port_in, &bytes, edge.router.now_ns);
                edge.fragments.borrow_mut().process(&mut chunk, true, |_| 0);
                edge.router.run(&mut chunk);
            }
        }
    }
}
