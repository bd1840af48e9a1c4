use super::*;
use crate::ip_packet::transport_checksum_holds;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use thalweg_base::DropReason;
use thalweg_wire::checksum::{fold, sum};

const SECOND: u64 = 1_000_000_000;
const ROUTER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HOST4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 16);
const FAR4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 7);

fn udp4(source: Ipv4Addr, destination: Ipv4Addr, payload: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(source.octets(), destination.octets(), 9).udp(40000, 33434);
    builder.write(&mut packet, &vec![0xab; payload]).expect("writing to a vector cannot fail");
    packet
}

fn udp6(source: Ipv6Addr, destination: Ipv6Addr, payload: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv6(source.octets(), destination.octets(), 9).udp(40000, 33434);
    builder.write(&mut packet, &vec![0xab; payload]).expect("writing to a vector cannot fail");
    packet
}

fn icmp4(kind: u8, source: Ipv4Addr, destination: Ipv4Addr, rest: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0], rest].concat();
    let checksum = !fold(sum(&message, 0));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(source.octets(), destination.octets(), 9);
    builder
        .write(&mut packet, etherparse::IpNumber::ICMP, &message)
        .expect("writing to a vector cannot fail");
    packet
}

fn icmp6(kind: u8, source: Ipv6Addr, destination: Ipv6Addr, rest: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let (bytes, payload) = rest.split_first_chunk::<4>().expect("four bytes at least");
    let builder = PacketBuilder::ipv6(source.octets(), destination.octets(), 9).icmpv6_raw(kind, 0, *bytes);
    builder.write(&mut packet, payload).expect("writing to a vector cannot fail");
    packet
}

/// Type, code, the four bytes after the checksum, and the quote; etherparse verifies all checksums.
fn read(packet: &[u8]) -> (u8, u8, u32, Vec<u8>) {
    let sliced = SlicedPacket::from_ip(packet).expect("it is IP");
    let message = match (sliced.net, sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
            let header = ip.header();
            assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
            assert_eq!(fold(sum(icmp.slice(), 0)), 0xffff);
            icmp.slice().to_vec()
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
            assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
            icmp.slice().to_vec()
        }
        _ => panic!("no ICMP"),
    };
    let rest = u32::from_be_bytes([message[4], message[5], message[6], message[7]]);
    (message[0], message[1], rest, message[8..].to_vec())
}

fn error4(error: IcmpError, packet: &[u8]) -> Result<Vec<u8>, NotWritten> {
    write_error(error, packet, ROUTER4.into(), true).map(|(written, _)| written)
}

fn error6(error: IcmpError, packet: &[u8]) -> Result<Vec<u8>, NotWritten> {
    write_error(error, packet, ROUTER6.into(), true).map(|(written, _)| written)
}

#[test]
fn a_time_exceeded_octet_for_octet() {
    // By hand: RFC 792, p. 6; the header's sum 0x45c0 + 0x0039 + 0x4001 + 0x0a00 * 2 + 0x0001 + 0x0010 =
    // 0x9a0b, its complement 0x65f4.
    let about = udp4(HOST4, FAR4, 1);
    let (written, receiver) =
        write_error(IcmpError::TimeExceeded, &about, ROUTER4.into(), true).expect("written");
    let header = [0x45, 0xc0, 0, 57, 0, 0, 0, 0, 64, 1, 0x65, 0xf4, 10, 0, 0, 1, 10, 0, 0, 16];
    assert_eq!(written[..20], header);
    assert_eq!(
        (written[20], written[21], &written[24..28], &written[28..]),
        (11, 0, &[0; 4][..], &about[..])
    );
    assert_eq!(receiver, IpAddr::from(HOST4));
}

#[test]
fn each_error_has_its_type_and_code() {
    use IcmpError::*;
    let (about4, about6) = (udp4(HOST4, FAR4, 8), udp6(HOST6, FAR6, 8));
    let rows = [
        (TimeExceeded, Some((11, 0, 0)), (3, 0, 0)),
        (ReassemblyTimeExceeded, Some((11, 1, 0)), (3, 1, 0)),
        (NoRoute, Some((3, 0, 0)), (1, 0, 0)),
        (Rejected, Some((3, 1, 0)), (1, 6, 0)),
        (HostUnreachable, Some((3, 1, 0)), (1, 3, 0)),
        (PortUnreachable, Some((3, 3, 0)), (1, 4, 0)),
        (ProtocolUnreachable { next_header_at: 6 }, Some((3, 2, 0)), (4, 1, 6)),
        (Prohibited, Some((3, 13, 0)), (1, 1, 0)),
        (SourceProhibited, Some((3, 13, 0)), (1, 5, 0)),
        (PacketTooBig { mtu_bytes: 1400 }, Some((3, 4, 1400)), (2, 0, 1400)),
        (PacketTooBig { mtu_bytes: 70_000 }, Some((3, 4, 65_535)), (2, 0, 70_000)),
        (PacketTooBig { mtu_bytes: 600 }, Some((3, 4, 600)), (2, 0, 1280)),
        (ParameterProblem { at: 20 }, Some((12, 0, 20 << 24)), (4, 0, 20)),
        (UnknownOption { at: 42, even_to_many: false }, None, (4, 2, 42)),
    ];
    for (error, ipv4, ipv6) in rows {
        let written = error4(error, &about4).map(|packet| read(&packet));
        assert_eq!(
            written.ok(),
            ipv4.map(|(kind, code, rest)| (kind, code, rest, about4.clone())),
            "{error:?}"
        );
        let written = error6(error, &about6).map(|packet| read(&packet));
        let (kind, code, rest) = ipv6;
        assert_eq!(written, Ok((kind, code, rest, about6.clone())), "{error:?}");
    }
}

#[test]
fn quotes_are_as_long_as_every_link_takes() {
    for payload in [0, 519, 520, 521, 1400, 9000] {
        let about = udp4(HOST4, FAR4, payload);
        let written = error4(IcmpError::TimeExceeded, &about).expect("written");
        assert_eq!(written.len(), (28 + about.len()).min(576));
        assert!(about.starts_with(&read(&written).3));
        let about = udp6(HOST6, FAR6, payload);
        let written = error6(IcmpError::TimeExceeded, &about).expect("written");
        assert_eq!(written.len(), (48 + about.len()).min(1280));
        assert!(about.starts_with(&read(&written).3));
    }
    let mut padded = udp4(HOST4, FAR4, 0);
    padded.resize(46, 0);
    assert_eq!(error4(IcmpError::TimeExceeded, &padded).expect("written").len(), 28 + 28, "no padding");
}

#[test]
fn nothing_is_written_about_errors() {
    for kind in 0..=255 {
        let about = icmp4(kind, HOST4, FAR4, &[0; 12]);
        let expected = matches!(kind, 3 | 4 | 5 | 11 | 12);
        let refused = error4(IcmpError::TimeExceeded, &about) == Err(NotWritten::AboutAnError);
        assert_eq!(refused, expected, "ICMP type {kind}");
        let about = icmp6(kind, HOST6, FAR6, &[0; 12]);
        let refused = error6(IcmpError::TimeExceeded, &about) == Err(NotWritten::AboutAnError);
        assert_eq!(refused, kind < 128 || kind == 137, "ICMPv6 type {kind}");
    }
    // Behind an extension header too, and if the type is truncated.
    let mut behind = icmp6(1, HOST6, FAR6, &[0; 12]);
    behind.splice(40..40, [58, 0, 1, 4, 0, 0, 0, 0]);
    (behind[5], behind[6]) = (behind[5] + 8, 60);
    assert_eq!(error6(IcmpError::TimeExceeded, &behind), Err(NotWritten::AboutAnError));
    let cut = &icmp4(8, HOST4, FAR4, &[0; 4])[..20];
    assert_eq!(error4(IcmpError::TimeExceeded, cut), Err(NotWritten::AboutAnError));
}

#[test]
fn nothing_is_written_about_what_rfc_1122_and_4443_exclude() {
    let exceeded = IcmpError::TimeExceeded;
    let mut later = udp4(HOST4, FAR4, 8);
    later[7] = 1;
    assert_eq!(error4(exceeded, &later), Err(NotWritten::LaterFragment));
    later[6..8].copy_from_slice(&[0x20, 0]);
    assert!(error4(exceeded, &later).is_ok(), "of the first it is");
    let group6: Ipv6Addr = "ff0e::5".parse().expect("an address");
    for destination in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 9)] {
        assert_eq!(error4(exceeded, &udp4(HOST4, destination, 8)), Err(NotWritten::SentToMany));
        let big = IcmpError::PacketTooBig { mtu_bytes: 100 };
        assert_eq!(error4(big, &udp4(HOST4, destination, 8)), Err(NotWritten::SentToMany));
    }
    let many6 = udp6(HOST6, group6, 8);
    assert_eq!(error6(exceeded, &many6), Err(NotWritten::SentToMany));
    assert!(error6(IcmpError::PacketTooBig { mtu_bytes: 1280 }, &many6).is_ok());
    assert!(error6(IcmpError::UnknownOption { at: 40, even_to_many: true }, &many6).is_ok());
    let quiet = IcmpError::UnknownOption { at: 40, even_to_many: false };
    assert_eq!(error6(quiet, &many6), Err(NotWritten::SentToMany));
    let by_broadcast = write_error(exceeded, &udp4(HOST4, FAR4, 8), ROUTER4.into(), false);
    assert_eq!(by_broadcast, Err(NotWritten::SentToMany), "the link layer brought it to many");
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "10.0.0.1"]
    {
        let source = source.parse().expect("an address");
        assert_eq!(error4(exceeded, &udp4(source, FAR4, 8)), Err(NotWritten::InvalidSource), "{source}");
    }
    for source in ["::", "::1", "ff02::1", "2001:db8::1"] {
        let source = source.parse().expect("an address");
        assert_eq!(error6(exceeded, &udp6(source, FAR6, 8)), Err(NotWritten::InvalidSource), "{source}");
    }
    assert_eq!(error4(exceeded, &udp6(HOST6, FAR6, 8)), Err(NotWritten::WrongFamily));
    for bytes in [&[][..], &[0x45; 19], &[0x60; 39], &[0x50; 60]] {
        assert_eq!(error4(exceeded, bytes), Err(NotWritten::NotIp));
    }
}

#[test]
fn limits_hold_for_all_and_for_each() {
    let config = IcmpConfig {
        errors: Rate::per_second(100, 50),
        errors_per_destination: Rate::per_second(1, 6),
        ..IcmpConfig::default()
    };
    let mut writer = IcmpWriter::new(config);
    let one = udp4(HOST4, FAR4, 8);
    let mut count = |about: &[u8], error, times: usize, now| {
        (0..times).filter(|_| writer.error(error, about, ROUTER4.into(), true, now).is_ok()).count()
    };
    let exceeded = IcmpError::TimeExceeded;
    assert_eq!(count(&one, exceeded, 20, SECOND), 6, "a burst for one receiver");
    assert_eq!(count(&one, exceeded, 20, 2 * SECOND), 1, "then one a second");
    let big = IcmpError::PacketTooBig { mtu_bytes: 1400 };
    assert_eq!(count(&one, big, 20, 2 * SECOND), 20, "but all that say how long packets may be");
    let others: usize =
        (0..200u8).map(|n| count(&udp4(Ipv4Addr::new(10, 0, 1, n), FAR4, 8), exceeded, 1, 2 * SECOND)).sum();
    assert_eq!(others, 29, "50 in a burst to all, 21 are gone");
    let counters = writer.counters();
    assert_eq!(counters.errors_written, 6 + 1 + 20 + 29);
    assert_eq!(counters.errors_not_written[NotWritten::LimitedForReceiver.index()], 14 + 19);
    assert_eq!(counters.errors_not_written[NotWritten::Limited.index()], 171);
}

#[test]
fn addresses_of_one_ipv6_network_share_a_bucket() {
    let mut writer = IcmpWriter::new(IcmpConfig::default());
    let written = (0..100u16)
        .filter(|&n| {
            let source = Ipv6Addr::new(0x2001, 0xdb8, 5, 5, n, 1, 2, 3);
            writer
                .error(IcmpError::TimeExceeded, &udp6(source, FAR6, 8), ROUTER6.into(), true, SECOND)
                .is_ok()
        })
        .count();
    assert_eq!(written, 6);
}

#[test]
fn echo_is_answered() {
    let request = icmp4(8, HOST4, ROUTER4, b"\x12\x34\x00\x07some data");
    let reply = echo_reply(&request).expect("a valid request");
    assert_eq!(read(&reply), (0, 0, 0x1234_0007, b"some data".to_vec()));
    assert_eq!((&reply[12..16], &reply[16..20]), (&ROUTER4.octets()[..], &HOST4.octets()[..]));
    assert_eq!((reply[8], &reply[4..6]), (64, &request[4..6]));
    let mut request = icmp6(128, HOST6, ROUTER6, b"\x12\x34\x00\x07some data");
    (request[0], request[1]) = (0x6b, 0x8f);
    let reply = echo_reply(&request).expect("a valid request");
    assert_eq!(read(&reply), (129, 0, 0x1234_0007, b"some data".to_vec()));
    assert_eq!((&reply[8..24], &reply[24..40]), (&ROUTER6.octets()[..], &HOST6.octets()[..]));
    assert_eq!((reply[0], reply[1], reply[7]), (0x6b, 0x80, 64), "its class, not its label");
}

#[test]
fn what_is_no_whole_request_is_not_answered() {
    let echo4 = |from, to| icmp4(8, from, to, &[0; 12]);
    let echo6 = |from, to| icmp6(128, from, to, &[0; 12]);
    let good = echo4(HOST4, ROUTER4);
    let altered = |at: usize, to: u8, fix: bool| {
        let mut packet = good.clone();
        packet[at] = to;
        if fix {
            packet[10..12].fill(0);
            let checksum = !fold(sum(&packet[..20], 0));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        packet
    };
    let nobody = Ipv6Addr::UNSPECIFIED;
    let group = "ff02::1".parse().expect("an address");
    let mut bad6 = echo6(HOST6, ROUTER6);
    bad6[50] ^= 1;
    let cases = [
        altered(30, 1, false),
        altered(8, 1, false),
        altered(7, 1, true),
        altered(6, 0x20, true),
        altered(21, 1, false),
        good[..good.len() - 1].to_vec(),
        icmp4(0, HOST4, ROUTER4, &[0; 12]),
        icmp4(13, HOST4, ROUTER4, &[0; 12]),
        icmp4(8, HOST4, ROUTER4, &[]),
        echo4(HOST4, Ipv4Addr::BROADCAST),
        echo4(Ipv4Addr::BROADCAST, ROUTER4),
        echo4(Ipv4Addr::UNSPECIFIED, ROUTER4),
        echo4(Ipv4Addr::LOCALHOST, ROUTER4),
        echo4(HOST4, Ipv4Addr::new(224, 0, 0, 1)),
        echo6(nobody, ROUTER6),
        echo6(HOST6, group),
        echo6(group, ROUTER6),
        icmp6(129, HOST6, ROUTER6, &[0; 12]),
        bad6,
        udp4(HOST4, ROUTER4, 12),
        vec![],
    ];
    assert!(echo_reply(&good).is_some() && echo_reply(&altered(8, 1, true)).is_some());
    for (i, packet) in cases.iter().enumerate() {
        assert_eq!(echo_reply(packet), None, "case {i}");
    }
}

#[test]
fn a_router_without_a_host_answers_ping_and_traceroute() {
    let config = IcmpConfig { echo_replies: Rate::per_second(1, 2), ..IcmpConfig::default() };
    let mut writer = IcmpWriter::new(config);
    let echo = icmp4(8, HOST4, ROUTER4, &[0; 12]);
    let answered = (0..5).filter(|_| writer.answer(&echo, true, SECOND).is_some()).count();
    assert_eq!((answered, writer.counters().echo_replies_limited), (2, 3));
    let last_hop = writer.answer(&udp4(HOST4, ROUTER4, 12), true, SECOND).expect("traceroute's end");
    assert_eq!((read(&last_hop).0, read(&last_hop).1, &last_hop[12..16]), (3, 3, &ROUTER4.octets()[..]));
    let last_hop = writer.answer(&udp6(HOST6, ROUTER6, 12), true, SECOND).expect("traceroute's end");
    assert_eq!((read(&last_hop).0, read(&last_hop).1), (1, 4));
    assert!(writer.answer(&udp4(HOST4, ROUTER4, 12), false, SECOND).is_none(), "not what came to many");
}

#[test]
fn drops_that_are_told_have_their_error() {
    let told: Vec<_> = DropReason::ALL
        .iter()
        .filter_map(|&reason| IcmpError::for_drop(reason, 1400).map(|error| (reason, error)))
        .collect();
    let expected = [
        (DropReason::TtlExpired, IcmpError::TimeExceeded),
        (DropReason::NoRoute, IcmpError::NoRoute),
        (DropReason::Unreachable, IcmpError::Rejected),
        (DropReason::NeighborUnresolved, IcmpError::HostUnreachable),
        (DropReason::MtuExceeded, IcmpError::PacketTooBig { mtu_bytes: 1400 }),
        (DropReason::AclDenied, IcmpError::Prohibited),
        (DropReason::FirewallDenied, IcmpError::Prohibited),
        (DropReason::PrefixAddress, IcmpError::NoRoute),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_translated_packet_gets_its_own_addresses_back() {
    let inside = "192.168.0.10:5000".parse().expect("an endpoint");
    let public = "203.0.113.1:61000".parse().expect("an endpoint");
    let echo = |from: Ipv4Addr, to, id: u16| {
        let [high, low] = id.to_be_bytes();
        icmp4(8, from, to, &[high, low, 0, 1, 9, 9])
    };
    let tcp = |from: SocketAddrV4| {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4(from.ip().octets(), FAR4.octets(), 9).tcp(from.port(), 80, 1, 2);
        builder.write(&mut packet, b"data").expect("writing to a vector cannot fail");
        packet
    };
    let udp = |to: SocketAddrV4| {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4(FAR4.octets(), to.ip().octets(), 9).udp(53, to.port());
        builder.write(&mut packet, b"data").expect("writing to a vector cannot fail");
        packet
    };
    let cases = [
        (tcp(public), tcp(inside), Original::Source(inside)),
        (udp(public), udp(inside), Original::Destination(inside)),
        (echo(*public.ip(), FAR4, 61000), echo(*inside.ip(), FAR4, 5000), Original::Source(inside)),
    ];
    for (mut packet, original, end) in cases {
        assert!(untranslate(&mut packet, end));
        assert_eq!(packet, original);
    }
    // A later fragment has no ports to restore.
    let mut later = tcp(public);
    later[7] = 5;
    let payload = later[20..].to_vec();
    assert!(untranslate(&mut later, Original::Source(inside)));
    assert_eq!((&later[12..16], &later[20..]), (&inside.ip().octets()[..], &payload[..]));
    for mut other in [icmp4(3, HOST4, FAR4, &[0; 12]), udp6(HOST6, FAR6, 8), vec![], vec![0x45; 10]] {
        let before = other.clone();
        assert!(!untranslate(&mut other, Original::Source(inside)));
        assert_eq!(other, before);
    }
}

proptest! {
    #[test]
    fn echo_keeps_all_it_carries(data in proptest::collection::vec(any::<u8>(), 0..200), tail: u32, tail6: u64) {
        let rest = [&[1, 2, 3, 4], &data[..]].concat();
        let host = Ipv4Addr::from(0x0a00_0000 | tail & 0x00ff_ffff);
        let reply = echo_reply(&icmp4(8, host, ROUTER4, &rest)).expect("a valid request");
        prop_assert_eq!(read(&reply), (0, 0, 0x0102_0304, data.clone()));
        let host = Ipv6Addr::from(0x2001_0db8_0000_0000u128 << 64 | u128::from(tail6));
        let reply = echo_reply(&icmp6(128, host, ROUTER6, &rest)).expect("a valid request");
        prop_assert_eq!(read(&reply), (129, 0, 0x0102_0304, data));
    }

    /// Whatever the packet, the error is valid, short enough, goes to its source and quotes it.
    #[test]
    fn errors_about_anything_are_valid(mut about in proptest::collection::vec(any::<u8>(), 0..1500), six: bool, sent_to_one: bool) {
        if let Some(first) = about.first_mut() { *first = if six { 0x60 } else { 0x45 } }
        let source = if six { IpAddr::from(ROUTER6) } else { IpAddr::from(ROUTER4) };
        if let Ok((written, receiver)) = write_error(IcmpError::NoRoute, &about, source, sent_to_one) {
            let read_back = IpPacket::parse(&written).expect("it is IP");
            prop_assert!(read_back.complete && read_back.header_checksum_holds());
            prop_assert_eq!((read_back.source, read_back.destination), (source, receiver));
            let longest = if six { 1280 } else { 576 };
            prop_assert!(written.len() <= longest);
            prop_assert!(about.starts_with(&read_back.transport()[8..]));
            let plain = fold(sum(read_back.transport(), 0)) == 0xffff;
            prop_assert!(if six { transport_checksum_holds(&read_back) } else { plain }, "the checksum");
            prop_assert!(write_error(IcmpError::NoRoute, &written, source, true).is_err(), "no error about an error");
        }
    }
}
