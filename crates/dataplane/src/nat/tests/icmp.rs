//! ICMP by RFC 5508: echo identifiers, and errors in both directions with their quotes.

use super::*;
use crate::nat::testing::{any, config, echo, icmp, ipv4, tcp, udp};
use NatProtocol::{Icmp, Udp};

fn number(endpoint: SocketAddrV4) -> u32 {
    (*endpoint.ip()).into()
}

/// The packet an ICMP error quotes.
fn quoted(error: &[u8]) -> &[u8] {
    &error[28..]
}

#[test]
fn rfc5508_req1_and_2_echo_identifiers_are_mapped_and_live_60_s() {
    let mut router = Router::new(&config(1));
    let first = router.open(Icmp, host(1, 4321), remote(1, 0)).unwrap();
    let second = router.open(Icmp, host(2, 4321), remote(1, 0)).unwrap();
    assert_eq!(first.port(), 4321);
    assert_ne!(second.port(), 4321);
    router.wait_s(60);
    assert_eq!(router.enter(Icmp, remote(1, 0), second).unwrap(), host(2, 4321));
    router.wait_s(1);
    assert_eq!(router.enter(Icmp, remote(1, 0), second), Err(DropReason::NatNoMapping));
}

#[test]
fn rfc5508_req4_errors_from_outside_reach_the_host_with_what_it_had_sent() {
    for protocol in NatProtocol::ALL {
        for kind in [3, 4, 11, 12] {
            for padding in [0, 13] {
                let router = Router::new(&config(1));
                let sent = any(protocol, host(1, 4001), remote(1, 80), SYN);
                let left = router.leave(&sent).unwrap();
                let public = source(&left);
                // From a router on the path, with the whole packet quoted, and more bytes after it.
                let quote = [&left[..], &vec![0xee; padding]].concat();
                let error = icmp(number(remote(77, 0)), number(public), kind, [0; 4], &quote);
                let arrived = router.arrive(&error).unwrap();
                assert_eq!(arrived[12..16], number(remote(77, 0)).to_be_bytes());
                assert_eq!(arrived[16..20], number(host(1, 0)).to_be_bytes());
                assert_eq!(quoted(&arrived)[..sent.len()], sent, "as the host had sent it");
                // The usual quote: the IP header and 8 bytes.
                let error = icmp(number(remote(77, 0)), number(public), kind, [0; 4], &left[..28]);
                assert_eq!(quoted(&router.arrive(&error).unwrap()), &sent[..28]);
                assert_eq!(router.nat.counters().icmp_errors_in, 2);
            }
        }
    }
}

#[test]
fn rfc5508_req5_errors_from_inside_leave_under_the_mappings_address() {
    for protocol in NatProtocol::ALL {
        for reporter in [host(1, 0), host(200, 0)] {
            let router = Router::new(&config(2));
            let public = router.open(protocol, host(1, 4001), remote(1, 80)).unwrap();
            let sent = match protocol {
                Icmp => echo(number(remote(1, 0)), number(public), 0, public.port()),
                _ => any(protocol, remote(1, 80), public, ACK),
            };
            let arrived = router.arrive(&sent).unwrap();
            let error = icmp(number(reporter), number(remote(1, 0)), 3, [0; 4], &arrived);
            let left = router.leave(&error).unwrap();
            assert_eq!(left[12..16], number(public).to_be_bytes());
            assert_eq!(left[16..20], number(remote(1, 0)).to_be_bytes());
            assert_eq!(quoted(&left), sent, "as the remote host had sent it");
            assert_eq!(router.nat.counters().icmp_errors_out, 1);
        }
    }
}

#[test]
fn rfc5508_req7_errors_about_hairpins_go_back_the_same_way() {
    let router = Router::new(&config(1));
    let public = router.open(Udp, host(2, 7001), remote(1, 80)).unwrap();
    let sent = udp(host(1, 4000), public, b"hello");
    let arrived = router.leave(&sent).unwrap();
    let error = icmp(number(host(2, 0)), number(source(&arrived)), 3, [0; 4], &arrived);
    let back = router.leave(&error).unwrap();
    assert_eq!(back[12..16], number(public).to_be_bytes());
    assert_eq!(back[16..20], number(host(1, 0)).to_be_bytes());
    assert_eq!(quoted(&back), sent);
}

#[test]
fn rfc5508_req3_errors_with_wrong_checksums_are_dropped() {
    let router = Router::new(&config(1));
    let left = router.leave(&udp(host(1, 4000), remote(1, 80), b"hello")).unwrap();
    let error = icmp(number(remote(7, 0)), number(source(&left)), 3, [0; 4], &left);
    let drops = |bytes: &[u8], kept: usize| {
        let mut chunk = chunk(&[(OUTSIDE, &bytes[..kept], bytes.len() as u32)], router.now_ns);
        router.run(&mut chunk);
        chunk.packets()[0].drop_reason()
    };
    assert_eq!(drops(&error, error.len()), None);
    let mut wrong_message = error.clone();
    wrong_message[60] ^= 1;
    assert_eq!(drops(&wrong_message, error.len()), Some(DropReason::NatIcmp));
    assert_eq!(drops(&wrong_message, error.len() - 1), None, "cannot be judged");
    let mut quote = left.clone();
    quote[8] ^= 1;
    let wrong_quote = icmp(number(remote(7, 0)), number(source(&left)), 3, [0; 4], &quote);
    assert_eq!(drops(&wrong_quote, wrong_quote.len()), Some(DropReason::NatIcmp));
    assert_eq!(router.nat.counters().icmp_errors_rejected, 2);
}

#[test]
fn errors_about_nothing_known_are_dropped_and_refresh_nothing() {
    let mut router = Router::new(&config(1));
    let left = router.leave(&udp(host(1, 4000), remote(1, 80), b"hello")).unwrap();
    let public = source(&left);
    let about = |packet: &[u8]| icmp(number(remote(7, 0)), number(public), 3, [0; 4], packet);
    let (refused, for_router) = (Err(DropReason::NatIcmp), Err(DropReason::NatNoMapping));
    assert_eq!(router.arrive(&about(&udp(at(public.ip().octets(), 4002), remote(1, 80), b""))), for_router);
    assert_eq!(router.arrive(&about(&tcp(public, remote(1, 80), SYN))), for_router);
    assert_eq!(router.arrive(&about(&udp(host(1, 4000), remote(1, 80), b""))), refused, "not its address");
    let later = ipv4(number(public), number(remote(1, 0)), 17, 100, &left[20..]);
    assert_eq!(router.arrive(&about(&later)), refused, "quotes a later fragment");
    assert_eq!(router.arrive(&about(&about(&left))), refused, "an error about an error");
    assert_eq!(router.arrive(&icmp(1, number(public), 5, [0; 4], &left)), refused, "redirect");
    assert_eq!(router.leave(&icmp(number(host(1, 0)), number(remote(1, 0)), 13, [0; 4], &[0; 12])), refused);
    for _ in 0..4 {
        router.wait_s(100);
        let _ = router.arrive(&about(&left));
    }
    assert_eq!(router.nat.counters().sessions_active, 0, "REQ-6: errors do not keep a session alive");
}

#[test]
fn a_quote_with_ip_options_is_found_behind_them() {
    let router = Router::new(&config(1));
    let left = router.leave(&udp(host(1, 4000), remote(1, 80), b"hello")).unwrap();
    let with_options = |packet: &[u8]| {
        let mut quote = packet[..20].to_vec();
        quote.extend([1, 1, 1, 1]);
        quote[0] = 0x46;
        quote[2..4].copy_from_slice(&(packet.len() as u16 + 4).to_be_bytes());
        quote[10..12].fill(0);
        let checksum = thalweg_wire::checksum::finish(thalweg_wire::checksum::sum(&quote, 0));
        quote[10..12].copy_from_slice(&checksum.to_be_bytes());
        quote.extend(&packet[20..]);
        quote
    };
    let error = icmp(number(remote(7, 0)), number(source(&left)), 11, [0; 4], &with_options(&left));
    let arrived = router.arrive(&error).unwrap();
    assert_eq!(quoted(&arrived), with_options(&udp(host(1, 4000), remote(1, 80), b"hello")));
}
