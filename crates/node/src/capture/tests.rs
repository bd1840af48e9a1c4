use super::*;
use crate::trace::PacketSpec;
use proptest::prelude::*;

/// The packet of a description for `trace packet`, in a frame with these tags.
fn frame(packet: &str, tags: &[u8]) -> Vec<u8> {
    let spec = PacketSpec::parse(&format!("lan ip {packet}")).unwrap_or_else(|error| panic!("{error}"));
    let packet = spec.to_packet();
    [&[2; 12], tags, &EtherType::of_packet(&packet).to_be_bytes(), &packet].concat()
}

fn wants(filter: &str, frame: &[u8]) -> bool {
    PacketFilter::parse(filter).unwrap_or_else(|error| panic!("{error}")).wants(frame, false)
}

#[test]
fn clauses_say_what_they_mean() {
    let query = "10.1.2.3 -> 192.0.2.53 udp 4000 -> 53 dscp ef";
    let call = "2001:db8::1 -> 2001:db8:9::2 tcp 5000 -> 443 flags syn,ack dscp af41";
    let later = "10.1.2.3 -> 192.0.2.53 udp 4000 -> 53 fragment later";
    // A filter, and which of query, call, later and an ARP frame it admits.
    let all = [
        ("", [true; 4]),
        ("ip", [true, false, true, false]),
        ("ipv6", [false, true, false, false]),
        ("arp", [false, false, false, true]),
        ("udp", [true, false, true, false]),
        ("tcp", [false, true, false, false]),
        ("icmp", [false; 4]),
        ("protocol 17", [true, false, true, false]),
        ("src 10.0.0.0/8", [true, false, true, false]),
        ("dst 10.0.0.0/8", [false; 4]),
        ("host 192.0.2.53", [true, false, true, false]),
        ("host 2001:db8:9::/48", [false, true, false, false]),
        ("dport 53", [true, false, false, false]),
        ("sport 53", [false; 4]),
        ("port 4000-5000", [true, true, false, false]),
        ("dscp ef", [true, false, false, false]),
        ("dscp 34", [false, true, false, false]),
        ("flags syn", [false, true, false, false]),
        ("flags syn,ack,fin", [false; 4]),
        ("fragment", [false, false, true, false]),
        ("not fragment", [true, true, false, true]),
        ("udp not src 10.0.0.0/8", [false; 4]),
        ("src 10.0.0.0/8 udp dport 53 not dscp be", [true, false, false, false]),
        ("not ip not ipv6", [false, false, false, true]),
    ];
    let arp = [&[2; 12], &EtherType::ARP.to_be_bytes()[..], &[0; 28]].concat();
    for tags in [&[][..], &[0x81, 0, 0, 10]] {
        let frames = [frame(query, tags), frame(call, tags), frame(later, tags), arp.clone()];
        for (filter, wanted) in all {
            assert_eq!(frames.each_ref().map(|frame| wants(filter, frame)), wanted, "{filter}");
        }
    }
    // Bare IP packets, as the router injects its own.
    let bare = frame(query, &[])[14..].to_vec();
    let filter = PacketFilter::parse("ip udp dport 53").expect("a filter");
    assert!(filter.wants(&bare, true) && !filter.wants(&bare, false));
}

#[test]
fn mistakes_have_a_place() {
    let all = [
        ("src", 4, "an address or a prefix"),
        ("src 10.0.0.0/33", 5, "an address or a prefix"),
        ("udp prot 17", 5, "protocol"),
        ("not", 4, "fragment"),
        ("port 70000", 6, "a port or a range"),
        ("port 20-10", 6, "a port or a range"),
        ("flags syn,bad", 7, "flags, such as"),
        ("dscp 64", 6, "a code point"),
        ("protocol 256", 10, "a protocol number"),
    ];
    for (text, column, expected) in all {
        let error = PacketFilter::parse(text).expect_err(text);
        assert_eq!(error.column, column, "{error}");
        assert!(error.expected.contains(expected), "{error}");
    }
    assert!(PacketFilter::parse("src").expect_err("unfinished").to_string().contains("the filter ends"));
}

proptest! {
    #[test]
    fn nothing_panics(text in "((not|ip|udp|tcp|src|dst|port|flags|dscp|fragment|protocol|10.0.0.0/8|::1|53|1-9|syn|é) ?){0,8}",
                      frame in proptest::collection::vec(any::<u8>(), 0..80), is_ip: bool) {
        if let Ok(filter) = PacketFilter::parse(&text) {
            filter.wants(&frame, is_ip);
        }
    }
}
