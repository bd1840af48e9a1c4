//! Helpers at NAT: messages of FTP, SIP and PPTP, and the connections that they announce.

use super::*;
use crate::helpers::{Helper, Helpers, pptp};
use crate::nat::{Filtering, PortSelection};
use NatProtocol::{Tcp, Udp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use thalweg_wire::checksum;
use thalweg_wire::testing::{tcp_segment, udp_segment};

fn helped() -> NatConfig {
    NatConfig { helpers: Helper::ALL.into_iter().collect(), ..testing::config(1) }
}

/// A server inside, at port 21 of the public address.
fn with_server() -> NatConfig {
    NatConfig { forwards: vec![forward(Tcp, 21, host(7, 21))], ..helped() }
}

fn packet(from: SocketAddrV4, to: SocketAddrV4, protocol: u8, segment: &[u8]) -> Vec<u8> {
    testing::ipv4((*from.ip()).into(), (*to.ip()).into(), protocol, 0, segment)
}

fn tcp(from: SocketAddrV4, to: SocketAddrV4, flags: u8, numbers: [u32; 2], data: &[u8]) -> Vec<u8> {
    packet(from, to, 6, &tcp_segment(from.into(), to.into(), flags, numbers, data))
}

fn udp(from: SocketAddrV4, to: SocketAddrV4, text: &str) -> Vec<u8> {
    packet(from, to, 17, &udp_segment(from.into(), to.into(), text.as_bytes()))
}

fn text(packet: &[u8]) -> String {
    let start = if packet[9] == 6 { 40 } else { 28 };
    String::from_utf8(packet[start..].to_vec()).unwrap()
}

fn numbers(packet: &[u8]) -> [u32; 2] {
    [24, 28].map(|at| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap()))
}

const CLIENT: (u8, u16) = (2, 4000);

fn client() -> SocketAddrV4 {
    host(CLIENT.0, CLIENT.1)
}

fn server() -> SocketAddrV4 {
    remote(1, 21)
}

/// A control connection of a client inside; returns its public endpoint.
fn control(router: &Router) -> SocketAddrV4 {
    let syn = router.leave(&tcp(client(), server(), SYN, [99, 0], b"")).unwrap();
    let public = source(&syn);
    router.arrive(&tcp(server(), public, SYN_ACK, [499, 100], b"")).unwrap();
    public
}

fn public_of(router: &Router, protocol: NatProtocol, inside: SocketAddrV4) -> Option<SocketAddrV4> {
    let all = router.sessions();
    all.iter()
        .find(|s| s.protocol == protocol && s.inside == SocketAddr::V4(inside))
        .map(|session| session.public)
}

#[test]
fn an_active_data_connection_is_let_in_and_numbers_follow() {
    let router = Router::new(&helped());
    let public = control(&router);
    let port = b"PORT 192,168,0,2,19,137\r\n";
    let sent = router.leave(&tcp(client(), server(), ACK, [100, 500], port)).unwrap();
    let data = public_of(&router, Tcp, host(2, 5001)).unwrap();
    assert_eq!((data.port(), data.ip()), (5001, public.ip()), "the port is preserved");
    assert_eq!(text(&sent), "PORT 198,51,100,1,19,137\r\n");
    // The server has got a byte more than the client has sent.
    let answer = router.arrive(&tcp(server(), public, ACK, [500, 126], b"200 ok\r\n")).unwrap();
    assert_eq!(numbers(&answer), [500, 125]);
    let next = router.leave(&tcp(client(), server(), ACK, [125, 508], b"LIST\r\n")).unwrap();
    assert_eq!((numbers(&next), text(&next).as_str()), ([126, 508], "LIST\r\n"));
    let syn = router.arrive(&tcp(remote(1, 20), data, SYN, [1, 0], b"")).unwrap();
    assert_eq!(destination(&syn), host(2, 5001));
    let answer = router.leave(&tcp(host(2, 5001), remote(1, 20), SYN_ACK, [7, 2], b"")).unwrap();
    assert_eq!(source(&answer), data);
    // Sent again, it is the same again.
    assert_eq!(text(&router.leave(&tcp(client(), server(), ACK, [100, 500], port)).unwrap()), text(&sent));
    let counters = router.nat.counters();
    assert_eq!((counters.helped, counters.help_unread, counters.help_refused), (1, 0, 0));
}

#[test]
fn selective_acknowledgments_follow_too() {
    let router = Router::new(&helped());
    let public = control(&router);
    router.leave(&tcp(client(), server(), ACK, [100, 500], b"PORT 192,168,0,2,19,137\r\n")).unwrap();
    let bytes = |edges: [u32; 2]| edges.map(u32::to_be_bytes).concat();
    // In an even place, and in an odd one: the second filler is behind instead of before.
    for turn in [0, 1] {
        let mut options = [&[1, 1, 5, 10][..], &bytes([126, 132])].concat();
        options.rotate_left(turn);
        let mut segment = tcp_segment(server().into(), public.into(), ACK, [500, 100], &options);
        segment[12] = 8 << 4;
        let sent = packet(server(), public, 6, &with_checksum(segment, server(), public));
        let got = router.arrive(&sent).unwrap();
        assert_eq!(got[44 - turn..52 - turn], bytes([125, 131]));
    }
}

fn with_checksum(mut segment: Vec<u8>, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    segment[16..18].fill(0);
    let (from, to) = (u32::from(*from.ip()), u32::from(*to.ip()));
    let pseudo = checksum::pseudo_ipv4(from, to, 6, segment.len() as u16);
    let sum = checksum::finish(checksum::sum(&segment, pseudo));
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

#[test]
fn nobody_announces_another_host() {
    let router = Router::new(&helped());
    control(&router);
    for (line, refused) in [
        ("PORT 192,168,0,3,19,137\r\n", 1),
        ("PORT 203,0,113,1,19,137\r\n", 2),
        ("PORT 192,168,0,2,0,25\r\n", 3),
        ("EPRT |1|10.1.1.1|5000|\r\n", 4),
        ("EPRT |2|2001:db8::1|5000|\r\n", 5),
    ] {
        let sequence = 100 + 100 * refused as u32;
        // Each on a line that begins where the last has ended.
        let control = remote(refused as u8, 21);
        router.leave(&tcp(client(), control, SYN, [sequence - 1, 0], b"")).unwrap();
        let sent = router.leave(&tcp(client(), control, ACK, [sequence, 500], line.as_bytes())).unwrap();
        assert_eq!((text(&sent).as_str(), router.nat.counters().help_refused), (line, refused));
    }
    assert_eq!(router.sessions().len(), 1, "no session was made");
}

#[test]
fn what_is_not_whole_passes_as_it_is_and_is_counted() {
    let router = Router::new(&helped());
    control(&router);
    for (sequence, part) in [(100, "PORT 192,168,"), (113, "0,2,19,137\r\n")] {
        let sent = router.leave(&tcp(client(), server(), ACK, [sequence, 500], part.as_bytes())).unwrap();
        assert_eq!((text(&sent).as_str(), numbers(&sent)[0]), (part, sequence));
    }
    let counters = router.nat.counters();
    assert_eq!((counters.helped, counters.help_unread), (0, 1));
}

#[test]
fn without_helpers_nothing_is_read() {
    let router = Router::new(&testing::config(1));
    control(&router);
    let line = "PORT 192,168,0,2,19,137\r\n";
    let sent = router.leave(&tcp(client(), server(), ACK, [100, 500], line.as_bytes())).unwrap();
    assert_eq!((text(&sent).as_str(), router.sessions().len()), (line, 1));
}

#[test]
fn a_server_inside_announces_its_public_endpoint() {
    for (reply, expected) in [
        (
            "227 Entering Passive Mode (192,168,0,7,200,1).\r\n",
            "227 Entering Passive Mode (198,51,100,1,200,1).\r\n",
        ),
        ("227 =198,51,100,1,200,1\r\n", "227 =198,51,100,1,200,1\r\n"),
        ("229 ok (|||51201|)\r\n", "229 ok (|||51201|)\r\n"),
    ] {
        let router = Router::new(&with_server());
        let (visitor, public) = (remote(9, 3000), at([198, 51, 100, 1], 21));
        router.arrive(&tcp(visitor, public, SYN, [0, 0], b"")).unwrap();
        router.leave(&tcp(host(7, 21), visitor, SYN_ACK, [99, 1], b"")).unwrap();
        let sent = router.leave(&tcp(host(7, 21), visitor, ACK, [100, 1], reply.as_bytes())).unwrap();
        assert_eq!(text(&sent), expected);
        let data =
            router.arrive(&tcp(remote(9, 3001), at([198, 51, 100, 1], 51_201), SYN, [0, 0], b"")).unwrap();
        assert_eq!(destination(&data), host(7, 51_201));
    }
}

#[test]
fn the_firewall_is_told_whom_to_expect() {
    let router = Router::new(&helped());
    let public = control(&router);
    let expected = |port_in: u16, bytes: &[u8]| {
        let mut chunk = chunk(&[(port_in, bytes, bytes.len() as u32)], router.now_ns);
        router.run(&mut chunk);
        assert!(chunk.crosses_shards);
        chunk
            .expected
            .iter()
            .map(|e| (e.from.map(|from| from as u32), e.to.0 as u32, e.to.1))
            .collect::<Vec<_>>()
    };
    let [inside, outside] = [client(), server()].map(|end| u32::from(*end.ip()));
    let port = tcp(client(), server(), ACK, [100, 500], b"PORT 192,168,0,2,19,137\r\n");
    assert_eq!(expected(INSIDE, &port), [(Some(outside), inside, 5001)]);
    let passive = tcp(server(), public, ACK, [500, 125], b"227 (203,0,113,1,19,137)\r\n");
    assert_eq!(expected(OUTSIDE, &passive), [(Some(inside), outside, 5001)]);
    let third = tcp(server(), public, ACK, [526, 125], b"227 (203,0,113,2,19,137)\r\n");
    assert_eq!(expected(OUTSIDE, &third), []);
}

#[test]
fn what_was_replaced_outlives_a_reload() {
    let router = Router::new(&helped());
    let public = control(&router);
    let port = tcp(client(), server(), ACK, [100, 500], b"PORT 192,168,0,2,19,137\r\n");
    let sent = router.leave(&port).unwrap();
    let next =
        Router { now_ns: router.now_ns, ..Router::new(&NatConfig { sessions_max: 1 << 17, ..helped() }) };
    next.nat.migrate_from(&router.nat);
    let answer = next.arrive(&tcp(server(), public, ACK, [500, 126], b"200 ok\r\n")).unwrap();
    assert_eq!(numbers(&answer), [500, 125]);
    assert_eq!(next.leave(&port).unwrap()[40..], sent[40..]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The control connection as the server puts it together, from segments of whole lines of which some are sent again:
    /// the reference replaces endpoints in the whole stream.
    #[test]
    fn the_server_gets_the_stream_of_the_reference(
        lines in prop::collection::vec((0u8..6, 1024u16..1100), 1..8),
        cuts: [bool; 8],
        again in prop::collection::vec(0usize..8, 0..6),
        hash: bool,
        first: u32,
    ) {
        let port_selection = if hash { PortSelection::Hash } else { PortSelection::Preserve };
        let router = Router::new(&NatConfig { port_selection, ..helped() });
        let syn = router.leave(&tcp(client(), server(), SYN, [first.wrapping_sub(1), 0], b"")).unwrap();
        let line = |address: &str, (kind, port): (u8, u16)| match kind {
            0 => format!("USER {port}\r\n"),
            1 => "LIST\r\n".to_owned(),
            2 => format!("EPRT |1|{address}|{port}|\r\n"),
            3 => format!("eprt +1+{address}+{port}+\r\n"),
            _ => format!("PORT {},{},{}\r\n", address.replace('.', ","), port >> 8, port & 255),
        };
        let mut segments: Vec<(usize, String)> = Vec::new();
        let mut stream = String::new();
        for (entry, is_cut) in lines.iter().zip(cuts) {
            if is_cut || segments.is_empty() {
                segments.push((stream.len(), String::new()));
            }
            let line = line("192.168.0.2", *entry);
            segments.last_mut().unwrap().1 += &line;
            stream += &line;
        }
        let mut received: BTreeMap<u32, u8> = BTreeMap::new();
        let mut send = |at: usize, text: &str| {
            let sent_as = [first.wrapping_add(at as u32), 500];
            let sent = router.leave(&tcp(client(), server(), ACK, sent_as, text.as_bytes())).unwrap();
            let start = numbers(&sent)[0].wrapping_sub(first);
            for (place, byte) in (start..).zip(&sent[40..]) {
                let before = received.insert(place, *byte);
                assert!(before.is_none_or(|before| before == *byte), "other bytes");
            }
        };
        for (n, (at, text)) in segments.iter().enumerate() {
            send(*at, text);
            again.iter().filter(|k| **k <= n).for_each(|k| send(segments[*k].0, &segments[*k].1));
        }
        let expected: String = lines.iter().map(|entry| {
            let public = public_of(&router, Tcp, host(2, entry.1));
            match (entry.0, public) {
                (0 | 1, _) => line("", *entry),
                (_, Some(public)) => line(&public.ip().to_string(), (entry.0, public.port())),
                (_, None) => panic!("no session for {entry:?}"),
            }
        }).collect();
        let received: Vec<u8> = received.into_values().collect();
        prop_assert_eq!(String::from_utf8(received).unwrap(), expected.clone());
        // What the server acknowledges is what the client has sent.
        let sent_as = [500, first.wrapping_add(expected.len() as u32)];
        let answer = router.arrive(&tcp(server(), source(&syn), ACK, sent_as, b"")).unwrap();
        prop_assert_eq!(numbers(&answer)[1], first.wrapping_add(stream.len() as u32));
    }
}

fn phone() -> SocketAddrV4 {
    host(3, 5060)
}

fn proxy() -> SocketAddrV4 {
    remote(5, 5060)
}

fn invite(rtp: u16, more: &str) -> String {
    let body = format!(
        "v=0\r\no=- 1 1 IN IP4 192.168.0.3\r\ns=-\r\nc=IN IP4 192.168.0.3\r\nt=0 0\r\nm=audio {rtp} RTP/AVP 0\r\n{more}"
    );
    format!(
        "INVITE sip:bob@203.0.113.5 SIP/2.0\r\nVia: SIP/2.0/UDP 192.168.0.3:5060;branch=z9hG4bK7\r\n\
         Contact: <sip:alice@192.168.0.3>\r\nCSeq: 1 INVITE\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_call_of_sip_has_public_endpoints_and_media_come_in() {
    let router = Router::new(&helped());
    let sent = text(&router.leave(&udp(phone(), proxy(), &invite(6000, ""))).unwrap());
    let expected = invite(6000, "").replace("192.168.0.3", "198.51.100.1");
    let (old, new) = (invite(6000, "").len(), expected.len());
    // Two addresses of the body are a byte longer each.
    let length = |text: &str| text.split_once("\r\n\r\n").unwrap().1.len();
    let expected = expected.replace(
        &format!("Content-Length: {}", length(&invite(6000, ""))),
        &format!("Content-Length: {}", length(&expected)),
    );
    assert_eq!((sent, new - old), (expected, 4));
    for port in [6000, 6001] {
        assert_eq!(router.enter(Udp, remote(8, 40_000), at([198, 51, 100, 1], port)), Ok(host(3, port)));
    }
    // The answer comes to the phone's own address.
    let answer =
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 198.51.100.1:5060;branch=z9hG4bK7\r\nCSeq: 1 INVITE\r\n\r\n";
    let got = router.arrive(&udp(proxy(), at([198, 51, 100, 1], 5060), answer)).unwrap();
    assert_eq!(text(&got), answer.replace("198.51.100.1", "192.168.0.3"));
}

#[test]
fn rtcp_keeps_to_rtp_or_has_its_port_written() {
    let router = Router::new(&helped());
    // Another host has both of these ports.
    router.open(Udp, host(9, 6000), remote(1, 1)).unwrap();
    router.open(Udp, host(9, 6001), remote(1, 1)).unwrap();
    let sent = text(&router.leave(&udp(phone(), proxy(), &invite(6000, ""))).unwrap());
    let rtp = public_of(&router, Udp, host(3, 6000)).unwrap().port();
    assert!(rtp.is_multiple_of(2) && rtp != 6000 && sent.contains(&format!("m=audio {rtp} RTP")), "{sent}");
    assert_eq!(public_of(&router, Udp, host(3, 6001)).map(|public| public.port()), Some(rtp + 1));
    assert!(!sent.contains("a=rtcp"));
    // A hash puts the two ports into two shards.
    let router = Router::new(&NatConfig { port_selection: PortSelection::Hash, ..helped() });
    let sent = text(&router.leave(&udp(phone(), proxy(), &invite(6000, ""))).unwrap());
    let rtcp = public_of(&router, Udp, host(3, 6001)).unwrap().port();
    assert!(sent.ends_with(&format!("a=rtcp:{rtcp}\r\n")), "{sent}");
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
}

#[test]
fn a_registered_phone_is_reached_for_as_long_as_that() {
    let mut router = Router::new(&helped());
    let register = "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.168.0.3:5060\r\n\
        Contact: <sip:alice@192.168.0.3:5060>\r\nExpires: 1800\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n";
    let sent = text(&router.leave(&udp(phone(), proxy(), register)).unwrap());
    assert_eq!(sent, register.replace("192.168.0.3", "198.51.100.1"));
    let public = at([198, 51, 100, 1], 5060);
    let invite = "INVITE sip:alice@198.51.100.1:5060 SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.5\r\n\r\n";
    for (wait_s, is_there) in [(1700, true), (99, true), (2, false)] {
        router.wait_s(wait_s);
        let got = router.arrive(&udp(proxy(), public, invite));
        match is_there {
            true => {
                let expected = invite.replace("198.51.100.1", "192.168.0.3");
                assert_eq!(text(&got.unwrap()), expected);
            }
            false => assert_eq!(got, Err(DropReason::NatNoMapping)),
        }
    }
    let counters = router.nat.counters();
    assert_eq!(counters.sessions_created, counters.sessions_expired);
}

#[test]
fn what_is_no_message_of_sip_passes() {
    let router = Router::new(&helped());
    for (data, unread) in [("\r\n\r\n", 0), ("INVITE sip:x SIP/2.0\r\nVia: x\r\n", 1)] {
        let sent = router.leave(&udp(phone(), proxy(), data)).unwrap();
        assert_eq!((text(&sent).as_str(), router.nat.counters().help_unread), (data, unread));
    }
}

fn gre(from: SocketAddrV4, to: SocketAddrV4, call: u16) -> Vec<u8> {
    let [high, low] = call.to_be_bytes();
    packet(from, to, 47, &[0x30, 0x81, 0x88, 0x0b, 0, 4, high, low, 0, 0, 0, 1, 1, 2, 3, 4])
}

fn call_in(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

#[test]
fn two_hosts_have_calls_with_one_peer() {
    let router = Router::new(&helped());
    let peer = remote(6, 1723);
    let mut public_calls = Vec::new();
    for n in [1, 2] {
        let from = host(n, 4000 + u16::from(n));
        router.leave(&tcp(from, peer, SYN, [0, 0], b"")).unwrap();
        let request = pptp::message(7, &[77]);
        let sent = router.leave(&tcp(from, peer, ACK, [1, 1], &request)).unwrap();
        let call = call_in(&sent, 40 + 12);
        public_calls.push(call);
        // The peer has a number of its own, and names ours.
        let reply = pptp::message(8, &[1000 + u16::from(n), call]);
        let got = router.arrive(&tcp(peer, source(&sent), ACK, [1, 33], &reply)).unwrap();
        assert_eq!((call_in(&got, 52), call_in(&got, 54)), (1000 + u16::from(n), 77));
        let sent = router.leave(&gre(from, peer, 1000 + u16::from(n))).unwrap();
        assert_eq!((call_in(&sent, 26), &sent[12..16]), (1000 + u16::from(n), &[198, 51, 100, 1][..]));
    }
    assert_eq!(public_calls, [77, 78], "each has another number outside");
    for (n, call) in [(1, 77), (2, 78)] {
        let got = router.arrive(&gre(peer, at([198, 51, 100, 1], 0), call)).unwrap();
        assert_eq!((call_in(&got, 26), &got[16..20]), (77, &host(n, 0).ip().octets()[..]));
    }
    assert_eq!(router.arrive(&gre(peer, at([198, 51, 100, 1], 0), 79)), Err(DropReason::NatNoMapping));
    let mut shown = Vec::new();
    router.nat.bare_sessions(router.now_ns, |_| true, &mut shown);
    shown.sort_by_key(|session| session.inside);
    assert_eq!(
        shown.iter().map(|s| (s.call, s.packets_out, s.packets_in)).collect::<Vec<_>>(),
        [(Some((77, 77)), 1, 1), (Some((77, 78)), 1, 1)]
    );
    assert_eq!(router.nat.counters().calls_active, 2);
    assert_eq!(
        router.nat.end_sessions(router.now_ns, EndedBy::Request, |_| false, |bare| bare.call.is_some()),
        2
    );
}

#[test]
fn calls_end_when_they_are_silent() {
    let mut router = Router::new(&helped());
    let (from, peer) = (host(1, 4001), remote(6, 1723));
    router.leave(&tcp(from, peer, SYN, [0, 0], b"")).unwrap();
    router.leave(&tcp(from, peer, ACK, [1, 1], &pptp::message(7, &[5]))).unwrap();
    for (wait_s, there) in [(600, Ok(())), (600, Ok(())), (601, Err(DropReason::NatNoMapping))] {
        router.wait_s(wait_s);
        let got = router.arrive(&gre(peer, at([198, 51, 100, 1], 0), 5));
        assert_eq!(got.map(|_| ()), there);
    }
}

#[test]
fn helpers_are_a_set_of_words() {
    let two: Helpers = [Helper::Ftp, Helper::Pptp].into_iter().collect();
    assert_eq!(Helper::ALL.map(|helper| two.has(helper)), [true, false, true]);
    assert!(Helpers::default().is_empty() && !two.is_empty());
}

#[test]
fn filters_admit_who_was_announced() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let router = Router::new(&NatConfig { filtering, ..helped() });
        control(&router);
        router.leave(&tcp(client(), server(), ACK, [100, 500], b"PORT 192,168,0,2,19,137\r\n")).unwrap();
        let data = public_of(&router, Tcp, host(2, 5001)).unwrap();
        assert_eq!(router.enter(Tcp, remote(2, 20), data), Err(DropReason::NatFiltered));
        assert_eq!(router.enter(Tcp, remote(1, 20), data), Ok(host(2, 5001)));
    }
}

#[test]
fn what_one_chunk_announces_is_bounded_and_the_rest_counted() {
    let router = Router::new(&helped());
    let public = control(&router);
    let text = b"227 Entering Passive Mode (203,0,113,1,19,137)\r\n".repeat(25);
    let sequence = |n: usize| u32::try_from(500 + n * text.len()).unwrap();
    let packets: Vec<_> = (0..50).map(|n| tcp(server(), public, ACK, [sequence(n), 100], &text)).collect();
    let frames: Vec<_> = packets.iter().map(|packet| (OUTSIDE, &packet[..], packet.len() as u32)).collect();
    let mut chunk = chunk(&frames, router.now_ns);
    router.run(&mut chunk);
    assert_eq!((chunk.expected.len(), router.nat.counters().help_unexpected), (1024, 50 * 25 - 1024));
}
