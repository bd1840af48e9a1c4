//! Hosts with public addresses of their own, and exceptions. The reference makes each packet again as if its host had the
//! other address: that, and nothing else, is what translation is to come to.

use super::*;
use crate::nat::testing::{echo, icmp, ipv4};
use crate::nat::{AddressPair, Filtering, NatConfigError, NatException, OtherOutside};
use ipnet::Ipv4Net;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use thalweg_base::NO_SHARD;

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

/// Hosts 8 to 15 are 198.18.0.0 to 198.18.0.7, and host 20 is 198.51.100.9.
fn config() -> NatConfig {
    let pair = |inside, public| AddressPair { vrf: 0, inside: net(inside), public: net(public), outside: 0 };
    NatConfig {
        shards: 4,
        one_to_one: vec![pair("192.168.0.8/29", "198.18.0.0/29"), pair("192.168.0.20/32", "198.51.100.9/32")],
        ..testing::config(1)
    }
}

fn public_of(host: u8) -> Option<Ipv4Addr> {
    match host {
        8..16 => Some([198, 18, 0, host - 8].into()),
        20 => Some([198, 51, 100, 9].into()),
        _ => None,
    }
}

fn with_ip(end: SocketAddrV4, ip: Option<Ipv4Addr>) -> SocketAddrV4 {
    SocketAddrV4::new(ip.unwrap_or(*end.ip()), end.port())
}

/// A packet of some kind between two ends.
fn made(kind: u8, from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Vec<u8> {
    let [source, destination] = [from, to].map(|end| u32::from(*end.ip()));
    match kind {
        0 => testing::tcp_numbered(from, to, ACK, [u32::from(from.port()), 7]),
        1 => testing::udp(from, to, data),
        2 => {
            // Without a checksum.
            let mut packet = testing::udp(from, to, data);
            packet[26..28].fill(0);
            packet
        }
        3 => echo(source, destination, 8, from.port()),
        // A timestamp request, which has no session in NAT.
        4 => icmp(source, destination, 13, [1, 2, 3, 4], data),
        5 => ipv4(source, destination, 47, 0, data),
        6 => {
            let whole = testing::udp(from, to, data);
            ipv4(source, destination, 17, 0x2000, &whole[20..])
        }
        7 => ipv4(source, destination, 17, 3, data),
        _ => unreachable!("there are eight kinds"),
    }
}

/// An ICMP error about such a packet, from a router or from the host that got it.
fn error_about(kind: u8, from: Ipv4Addr, quoted: (SocketAddrV4, SocketAddrV4), data: &[u8]) -> Vec<u8> {
    let quote = made(kind, quoted.0, quoted.1, data);
    icmp(from.into(), (*quoted.0.ip()).into(), 3, [0, 0, 5, 220], &quote)
}

proptest! {
    #[test]
    fn a_packet_is_the_same_with_the_other_address(
        kind in 0u8..8, host_number in 0u8..24, far in 1u8..9, ports: (u16, u16), is_error: bool, is_routers: bool,
        mut data in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        data.truncate(data.len() / 8 * 8);
        let router = Router::new(&config());
        let (near, far) = (host(host_number, ports.0.max(1)), remote(far, ports.1.max(1)));
        let Some(ip) = public_of(host_number) else {
            // Other hosts have sessions.
            let sent = router.leave(&testing::udp(near, far, &data)).unwrap();
            prop_assert_eq!(source_ip(&sent), testing::config(1).public_addresses[0]);
            return Ok(());
        };
        let public = with_ip(near, Some(ip));
        let reporter = |address: &SocketAddrV4| if is_routers { [10, 9, 8, 7].into() } else { *address.ip() };
        // Errors quote what the NAT knows by the first bytes of a packet.
        let quotable = [0, 1, 2, 3, 5][usize::from(kind) % 5];
        let [out, out_expected, into, into_expected] = match is_error {
            false => [
                made(kind, near, far, &data), made(kind, public, far, &data),
                made(kind, far, public, &data), made(kind, far, near, &data),
            ],
            true => [
                error_about(quotable, reporter(&near), (far, near), &data),
                error_about(quotable, ip, (far, public), &data),
                error_about(quotable, reporter(&far), (public, far), &data),
                error_about(quotable, reporter(&far), (near, far), &data),
            ],
        };
        prop_assert_eq!(router.leave(&out), Ok(out_expected));
        prop_assert_eq!(router.arrive(&into), Ok(into_expected));
        let counters = router.nat.counters();
        prop_assert_eq!((counters.one_to_one_out, counters.one_to_one_in), (1, 1));
        prop_assert_eq!((counters.sessions_created, counters.bare_created), (0, 0));
    }

    /// Both directions of a connection, its fragments and its errors have one shard: the firewall's state is there.
    #[test]
    fn a_connection_has_one_shard(kind in 0u8..8, host_number in 8u8..16, far in 1u8..9, port in 1u16..9) {
        let router = Router::new(&config());
        let (near, far) = (host(host_number, port), remote(far, 80));
        let public = with_ip(near, public_of(host_number));
        let shard_of = |port_in, bytes: Vec<u8>| {
            let mut chunk = chunk(&[(port_in, &bytes, bytes.len() as u32)], router.now_ns);
            label(&router.labeler, &mut chunk, router.shards);
            let packet = &chunk.packets()[0];
            (packet.shard, packet.crossing_shard, packet.drop_reason())
        };
        let there = shard_of(INSIDE, made(kind, near, far, b"12345678"));
        prop_assert_eq!((there.1, there.2), (NO_SHARD, None));
        prop_assert_eq!(shard_of(OUTSIDE, made(kind, far, public, b"12345678")), there);
        let (quotable, of_kind) = ([0, 1, 3, 5], [6, 17, 1, 47]);
        let quoted = quotable.iter().position(|quotable| *quotable == kind);
        if let Some(place) = quoted {
            let error = error_about(kind, [10, 9, 8, 7].into(), (public, far), b"12345678");
            prop_assert_eq!(shard_of(OUTSIDE, error), there, "protocol {}", of_kind[place]);
            prop_assert_eq!(shard_of(INSIDE, error_about(kind, *near.ip(), (far, near), b"12345678")), there);
        }
    }
}

#[test]
fn hairpins_of_hosts_with_and_without_a_public_address() {
    let filtered = NatConfig { filtering: Filtering::AddressDependent, ..config() };
    for config in [config(), filtered] {
        let router = Router::new(&config);
        let pool = config.public_addresses[0];
        let (client, server) = (host(1, 5000), host(9, 80));
        let public = with_ip(server, public_of(9));
        for protocol in NatProtocol::ALL {
            // From a host of the pool to one with a public address, and back.
            let client = if protocol == NatProtocol::Icmp { host(1, 80) } else { client };
            let sent = router.leave(&testing::any(protocol, client, public, SYN)).unwrap();
            let seen = source(&sent);
            assert_eq!((seen.ip(), destination(&sent).ip()), (&pool, server.ip()), "{protocol:?}");
            let answer = match protocol {
                NatProtocol::Icmp => echo((*server.ip()).into(), (*seen.ip()).into(), 0, seen.port()),
                _ => testing::any(protocol, server, seen, ACK),
            };
            let back = router.leave(&answer).unwrap();
            assert_eq!((source(&back).ip(), destination(&back)), (public.ip(), client), "{protocol:?}");
        }
        // What the server says about it reaches the client, which knows the public address.
        let sent = router.leave(&testing::udp(client, public, b"?")).unwrap();
        let refused = icmp((*server.ip()).into(), (*source(&sent).ip()).into(), 3, [0; 4], &sent);
        let told = router.leave(&refused).unwrap();
        assert_eq!((source_ip(&told), told[16..20].to_vec()), (*public.ip(), client.ip().octets().to_vec()));
        assert_eq!(told[28..], testing::udp(client, public, b"?"), "the client's own packet");
        // Between two with addresses of their own, whatever the protocol.
        let other = host(20, 7);
        let gre = |from: Ipv4Addr, to: Ipv4Addr| ipv4(from.into(), to.into(), 47, 0, b"12345678");
        let [own, others] = [public, with_ip(other, public_of(20))].map(|end| *end.ip());
        assert_eq!(router.leave(&gre(*server.ip(), others)), Ok(gre(own, *other.ip())));
        assert_eq!(router.leave(&gre(*other.ip(), own)), Ok(gre(others, *server.ip())));
        // One without cannot use a protocol without ports: nothing would tell answers apart from the router's own.
        assert_eq!(router.leave(&gre(*client.ip(), own)), Ok(gre(*client.ip(), own)));
        assert_eq!(router.nat.counters().hairpins, 10);
    }
    let router = Router::new(&NatConfig { hairpin: false, ..config() });
    let packet = testing::udp(host(1, 5000), with_ip(host(9, 80), public_of(9)), b"?");
    assert_eq!(router.leave(&packet), Ok(packet));
}

fn source_ip(bytes: &[u8]) -> Ipv4Addr {
    <[u8; 4]>::try_from(&bytes[12..16]).unwrap().into()
}

#[test]
fn exceptions_come_before_pairs_and_pairs_before_pools() {
    let exception = |sources: &[&str], destinations: &[&str]| NatException {
        vrf: None,
        sources: sources.iter().map(|text| net(text)).collect(),
        destinations: destinations.iter().map(|text| net(text)).collect(),
    };
    let exceptions = vec![
        exception(&["192.168.0.1/32", "192.168.0.8/32"], &["203.0.113.4/32"]),
        exception(&["192.168.7.0/24"], &[]),
        exception(&[], &["203.0.113.128/25"]),
    ];
    let router = Router::new(&NatConfig { exceptions, ..config() });
    let pool = config().public_addresses[0];
    let source_of = |from: SocketAddrV4, to| {
        let packet = testing::udp(from, to, b"data");
        source_ip(&router.leave(&packet).unwrap())
    };
    for (from, to, expected) in [
        (host(1, 9), remote(4, 80), *host(1, 0).ip()),
        (host(8, 9), remote(4, 80), *host(8, 0).ip()),
        (host(1, 9), remote(5, 80), pool),
        (host(8, 9), remote(5, 80), public_of(8).unwrap()),
        (host(2, 9), remote(4, 80), pool),
        (at([192, 168, 7, 7], 9), remote(5, 80), [192, 168, 7, 7].into()),
        (host(2, 9), remote(200, 80), *host(2, 0).ip()),
        (host(8, 9), remote(200, 80), *host(8, 0).ip()),
        // To a public address: answers could not come back otherwise.
        (at([192, 168, 7, 7], 9), with_ip(host(9, 80), public_of(9)), pool),
    ] {
        assert_eq!(source_of(from, to), expected, "{from} to {to}");
    }
    // The other side's packets come as they are, and errors about them leave so, from any router.
    let packet = testing::udp(remote(4, 80), host(8, 9), b"data");
    assert_eq!(router.arrive(&packet), Ok(packet.clone()));
    for reporter in [*host(8, 0).ip(), [192, 168, 0, 254].into()] {
        let error = icmp(u32::from(reporter), (*remote(4, 0).ip()).into(), 3, [0; 4], &packet);
        assert_eq!(router.leave(&error), Ok(error));
    }
}

#[test]
fn errors_that_cannot_be_translated_are_dropped() {
    let router = Router::new(&config());
    let (near, far) = (host(9, 80), remote(1, 80));
    let public = with_ip(near, public_of(9));
    let quote = testing::udp(public, far, b"data");
    // To another host than the one that sent the quoted packet, and a redirect.
    let elsewhere = icmp(7, u32::from(public_of(10).unwrap()), 3, [0; 4], &quote);
    let redirect = icmp(7, (*public.ip()).into(), 5, [0; 4], &quote);
    // One with a wrong checksum in the header that it quotes.
    let mut bad_quote = quote.clone();
    bad_quote[10] ^= 1;
    let damaged = icmp(7, (*public.ip()).into(), 3, [0; 4], &bad_quote);
    for (count, packet) in (1..).zip([elsewhere, redirect]) {
        assert_eq!(router.arrive(&packet), Err(DropReason::NatIcmp));
        assert_eq!(router.nat.counters().icmp_errors_rejected, count);
    }
    let mut chunk = chunk(&[(OUTSIDE, &damaged, damaged.len() as u32)], router.now_ns);
    router.run(&mut chunk);
    assert_eq!(chunk.packets()[0].drop_reason(), Some(DropReason::NatIcmp));
}

/// With several outside ports a pair belongs to one; a host has a pool's address elsewhere.
#[test]
fn a_pair_belongs_to_its_outside_port() {
    let other =
        OtherOutside { port: 2, public_addresses: vec![[198, 18, 9, 1].into()], forwards: Vec::new() };
    let mut config = NatConfig { others: vec![other], ..config() };
    config.one_to_one[1].outside = 1;
    let (labeler, nat): (_, NatStage) = (Labeler::new(&config).unwrap(), NatStage::new(&config).unwrap());
    let run = |port_in: u16, bytes: &[u8], leaves_by: Option<usize>| {
        let mut chunk = chunk(&[(port_in, bytes, bytes.len() as u32)], 9 * SECOND_NS);
        let (mut batch, _) = chunk.whole();
        let (packet, l3) = batch.packet_and_l3(0);
        labeler.label_toward(packet, l3, |_, _, _| leaves_by);
        nat.run_groups(&mut chunk, 0..1, 2);
        nat.run_groups(&mut chunk, 1..2, 2);
        chunk.frame(0).to_vec()
    };
    for (number, home) in [(9, 0), (20, 1)] {
        let (near, far) = (host(number, 5000), remote(1, 80));
        let public = public_of(number).unwrap();
        let pools: [Ipv4Addr; 2] = [[198, 51, 100, 1].into(), [198, 18, 9, 1].into()];
        for (place, pool) in pools.into_iter().enumerate() {
            let expected = if place == home { public } else { pool };
            assert_eq!(source_ip(&run(INSIDE, &testing::udp(near, far, b"?"), Some(place))), expected);
        }
        let packet = testing::udp(near, far, b"?");
        assert_eq!(run(INSIDE, &packet, None), packet, "it leaves by no outside port");
        for port in [OUTSIDE, 2] {
            let into = testing::udp(far, with_ip(near, Some(public)), b"!");
            assert_eq!(destination(&run(port, &into, None)), near);
        }
    }
}

#[test]
fn an_address_has_one_translation() {
    use NatConfigError::*;
    let with = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = config();
        change(&mut config);
        config.validate()
    };
    let pair =
        |inside, public, outside| AddressPair { vrf: 0, inside: net(inside), public: net(public), outside };
    assert_eq!(with(&|_| ()), Ok(()));
    let add = |pair: AddressPair| with(&|config| config.one_to_one.push(pair));
    assert_eq!(
        add(pair("10.0.0.0/24", "198.18.1.0/25", 0)),
        Err(PairLengths(net("10.0.0.0/24"), net("198.18.1.0/25")))
    );
    assert_eq!(add(pair("10.0.0.1/32", "198.18.0.3/32", 0)), Err(PairTwice(net("198.18.0.3/32"))));
    assert_eq!(add(pair("192.168.0.9/32", "198.18.1.3/32", 0)), Err(PairTwice(net("198.18.1.3/32"))));
    assert_eq!(
        add(pair("10.0.0.1/32", "198.51.100.1/32", 0)),
        Err(PairTwice(net("198.51.100.1/32"))),
        "a pool's"
    );
    assert_eq!(add(pair("10.0.0.1/32", "198.18.1.3/32", 1)), Err(PairOutside(1)));
    let forward = forward(NatProtocol::Tcp, 80, host(9, 80));
    assert_eq!(with(&|config| config.forwards.push(forward)), Err(PairTwice(net("198.18.0.0/29"))));
}

/// A reload changes pairs in place: sessions stay.
#[test]
fn pairs_change_without_a_new_table() {
    let before = NatConfig { one_to_one: Vec::new(), ..config() };
    let router = Router::new(&before);
    router.open(NatProtocol::Udp, host(9, 5000), remote(1, 80)).unwrap();
    assert!(config().has_table_of(&before));
    router.nat.set_behavior(&config());
    let router = Router { labeler: Labeler::new(&config()).unwrap(), ..router };
    let public = router.open(NatProtocol::Udp, host(9, 5000), remote(1, 80)).unwrap();
    assert_eq!(public, with_ip(host(9, 5000), public_of(9)));
    assert_eq!(router.sessions().len(), 1);
}
