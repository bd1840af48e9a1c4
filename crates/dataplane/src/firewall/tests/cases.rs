use super::*;
use crate::rate_limit::Rate;
use thalweg_base::PacketFlags;
use thalweg_wire::ipv4::Ipv4Repr;

const HOST: &str = "10.0.0.1:4000";
const SERVER: &str = "198.51.100.7:80";
const HOST6: &str = "[2001:db8:1::1]:4000";
const SERVER6: &str = "[2001:db8:9::7]:80";

/// A handshake, after which the client has sent up to 11 and the server up to 101.
fn handshake(site: &mut Site, client: &str, server: &str) {
    assert!(site.passes(tcp(client, server, SYN, [10, 0])));
    assert!(site.passes(tcp(server, client, SYN_ACK, [100, 11])));
    assert!(site.passes(tcp(client, server, ACK, [11, 101])));
}

#[test]
fn nothing_reaches_a_host_that_did_not_ask() {
    let mut site = Site::new(&config());
    for (host, server) in [(HOST, SERVER), (HOST6, SERVER6)] {
        assert_eq!(site.one(udp(server, host)), Some(DropReason::FirewallNotAsked));
        assert_eq!(site.one(tcp(server, host, SYN, [0; 2])), Some(DropReason::FirewallNotAsked));
        assert_eq!(site.one(tcp(server, host, SYN_ACK, [0; 2])), Some(DropReason::FirewallInvalid));
        assert_eq!(site.one(tcp(server, host, ACK, [0; 2])), Some(DropReason::FirewallNotAsked));
        assert_eq!(site.one(tcp(server, host, RST, [0; 2])), Some(DropReason::FirewallInvalid));
        assert!(site.passes(udp(host, server)));
        assert!(site.passes(udp(server, host)), "now it has asked");
        handshake(&mut site, host, server);
    }
    assert_eq!(site.one(echo("198.51.100.7", "10.0.0.1", true, 1)), Some(DropReason::FirewallNotAsked));
    assert_eq!(site.one(echo("198.51.100.7", "10.0.0.1", false, 1)), Some(DropReason::FirewallInvalid));
    assert!(site.passes(echo("10.0.0.1", "198.51.100.7", true, 1)));
    assert!(site.passes(echo("198.51.100.7", "10.0.0.1", false, 1)));
    assert_eq!(
        site.one(echo("198.51.100.7", "10.0.0.1", true, 1)),
        Some(DropReason::FirewallNotAsked),
        "who was asked may not ask with the same identifier"
    );
    assert_eq!(site.stage.counters().states_active, 5);
}

#[test]
fn an_error_belongs_to_the_connection_that_it_is_about() {
    let mut site = Site::new(&config());
    for (host, server, router) in [(HOST, SERVER, "192.0.2.9"), (HOST6, SERVER6, "2001:db8:9::1")] {
        let asked = udp(host, server);
        assert_eq!(site.one(error(router, &asked)), Some(DropReason::FirewallInvalid));
        assert!(site.passes(asked.clone()));
        assert!(site.passes(error(router, &asked)), "any router on the way may tell");
        let other = udp(host, &server.replace(":80", ":81"));
        assert_eq!(site.one(error(router, &other)), Some(DropReason::FirewallInvalid));
        // To another host than the one that sent the quoted packet.
        let to_another = match addresses_of(&asked).0 {
            IpAddr::V4(_) => {
                testing::icmp(router.parse::<IpAddr>().unwrap(), at("10.0.0.2:0").ip(), 3, [0; 4], &asked)
            }
            IpAddr::V6(_) => testing::icmp(
                router.parse::<IpAddr>().unwrap(),
                at("[2001:db8:1::2]:0").ip(),
                1,
                [0; 4],
                &asked,
            ),
        };
        assert_eq!(site.one(to_another), Some(DropReason::FirewallInvalid));
    }
    // RFC 4890: packet too big needs no rule.
    let asked = tcp(HOST6, SERVER6, SYN, [1, 0]);
    assert!(site.passes(asked.clone()));
    let big = testing::icmp(at(SERVER6).ip(), at(HOST6).ip(), 2, [0, 0, 5, 0], &asked);
    assert!(site.passes(big));
}

#[test]
fn fragments_belong_to_their_connection() {
    let mut site = Site::new(&config());
    let fragment = |from: &str, to: &str, offset: u16, payload: &[u8]| {
        let (from, to) = (at(from), at(to));
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else { unreachable!() };
        let datagram = testing::udp_segment(from, to, payload);
        let part = if offset == 0 { &datagram[..24] } else { &datagram[24..] };
        let mut header = Ipv4Repr::new(source, destination, 17, part.len());
        header.identification = 7;
        header.flags_and_offset = if offset == 0 { 0x2000 } else { offset };
        testing::ipv4(header, part)
    };
    let data = [0; 64];
    assert_eq!(
        site.judge(vec![fragment(SERVER, HOST, 3, &data), fragment(SERVER, HOST, 0, &data)]),
        [Some(DropReason::FirewallInvalid), Some(DropReason::FirewallNotAsked)]
    );
    assert!(site.passes(udp(HOST, SERVER)), "a whole packet: its fragments are in the same shard");
    assert_eq!(
        site.judge(vec![fragment(SERVER, HOST, 3, &data), fragment(SERVER, HOST, 0, &data)]),
        [None; 2]
    );
    let mut alone = Site::new(&config());
    assert_eq!(alone.one(fragment(SERVER, HOST, 3, &data)), Some(DropReason::FragmentWithoutFirst));
}

#[test]
fn later_fragments_of_ipv6_have_the_ports_of_their_first() {
    let mut site = Site::new(&config());
    let (from, to) = (at(SERVER6), at(HOST6));
    let datagram = testing::udp_segment(from, to, &[0; 64]);
    let fragment = |offset: u16, part: &[u8]| {
        let more = u16::from(offset == 0);
        let [high, low] = (offset << 3 | more).to_be_bytes();
        testing::ip(from.ip(), to.ip(), 44, &[&[17, 0, high, low, 0, 0, 0, 9][..], part].concat())
    };
    let parts = || vec![fragment(0, &datagram[..32]), fragment(4, &datagram[32..])];
    assert_eq!(site.judge(parts()), [Some(DropReason::FirewallNotAsked), Some(DropReason::FirewallInvalid)]);
    assert!(site.passes(udp(HOST6, SERVER6)));
    assert_eq!(site.judge(parts()), [None; 2]);
}

#[test]
fn rfc5961_windows_and_resets() {
    let mut site = Site::new(&FirewallConfig { checks_windows: true, ..config() });
    handshake(&mut site, HOST, SERVER);
    let mut to_host = |flags: u8, sequence: u32| site.one(tcp(SERVER, HOST, flags, [sequence, 11]));
    let invalid = Some(DropReason::FirewallInvalid);
    // The host expects 101 and offers 256 bytes.
    assert_eq!(to_host(ACK, 101), None);
    assert_eq!(to_host(ACK, 101 + 256), None, "at the right edge: a window probe");
    assert_eq!(to_host(ACK, 101 + 257), invalid);
    assert_eq!(to_host(ACK, 101u32.wrapping_sub(65_535)), None, "an old duplicate");
    assert_eq!(to_host(ACK, 101u32.wrapping_sub(65_536)), invalid);
    assert_eq!(to_host(ACK, 101 + (1 << 31)), invalid);
    assert_eq!(to_host(RST, 102), invalid, "in the window, but not the number that the host expects");
    assert_eq!(to_host(ACK, 101), None);
    assert_eq!(to_host(RST, 101), None);
    site.wait_s(11);
    site.stage.advance(site.now_ns);
    assert_eq!(site.stage.counters().states_active, 0, "a proven reset ends it within seconds");
}

#[test]
fn without_windows_a_doubtful_reset_only_shortens_the_life() {
    let mut site = Site::new(&config());
    handshake(&mut site, HOST, SERVER);
    assert!(site.passes(tcp(SERVER, HOST, RST, [102, 0])));
    assert!(site.passes(tcp(HOST, SERVER, ACK, [11, 101])), "the host restores it");
    site.wait_s(7000);
    assert!(site.passes(tcp(SERVER, HOST, ACK, [101, 11])));
    assert!(site.passes(tcp(SERVER, HOST, RST, [102, 0])));
    site.wait_s(242);
    site.stage.advance(site.now_ns);
    assert_eq!(site.stage.counters().states_active, 0);
}

#[test]
fn a_full_table_refuses_new_connections_and_established_ones_live_on() {
    let mut site = Site::new(&FirewallConfig { states_max: 16, ..config() });
    handshake(&mut site, HOST, SERVER);
    let flood = |port: u16| -> Vec<Vec<u8>> {
        (0..200).map(|n| tcp(&format!("10.0.0.2:{}", port + n), SERVER, SYN, [1, 0])).collect()
    };
    let fates = site.judge(flood(5000));
    let full = fates.iter().filter(|fate| **fate == Some(DropReason::FirewallTableFull)).count();
    assert_eq!(full, 200 - 15);
    assert_eq!(site.stage.counters().table_full, full as u64);
    site.wait_s(5);
    let passed = site.judge(flood(6000)).iter().filter(|fate| fate.is_none()).count();
    assert_eq!(passed, 15, "those that nobody has answered make room");
    assert_eq!(site.stage.counters().half_open_dropped, 15);
    assert!(site.passes(tcp(SERVER, HOST, ACK, [101, 11])));
}

#[test]
fn one_host_cannot_take_the_table_with_connections_that_nobody_answers() {
    let mut site = Site::new(&FirewallConfig { half_open_max: Some(40), ..config() });
    let flood = |host: &str| -> Vec<Vec<u8>> {
        (0..400).map(|n| udp(&format!("{host}:{}", 5000 + n), SERVER)).collect()
    };
    let passed = |fates: Vec<Option<DropReason>>| fates.iter().filter(|fate| fate.is_none()).count();
    let first = passed(site.judge(flood("10.0.0.2")));
    // Its share of each of four shards, and two deviations.
    assert!((40..=4 * 18).contains(&first), "{first}");
    assert_eq!(site.stage.counters().host_limit, 400 - first as u64);
    assert!(passed(site.judge(flood("10.0.0.3"))) >= 40, "another host has its own");
    let answers: Vec<Vec<u8>> = (0..400).map(|n| udp(SERVER, &format!("10.0.0.2:{}", 5000 + n))).collect();
    assert_eq!(passed(site.judge(answers)), first, "answered ones");
    assert!(passed(site.judge(flood("10.0.0.2"))) > first, "count no longer");
}

#[test]
fn a_rule_limits_the_connections_that_it_permits() {
    let limited = ZoneRule { limit: Some(Rate::per_second(40, 40)), ..rule(Action::Permit, &[WAN], &[DMZ]) };
    let mut site = Site::new(&FirewallConfig { rules: vec![limited], ..config() });
    let flood = |port: u16| -> Vec<Vec<u8>> {
        (0..200).map(|n| udp(&format!("198.51.100.7:{}", port + n), "172.16.0.1:53")).collect()
    };
    let passed = |fates: Vec<Option<DropReason>>| fates.iter().filter(|fate| fate.is_none()).count();
    assert_eq!(passed(site.judge(flood(2000))), 40);
    assert_eq!(site.stage.counters().limited, 160);
    site.wait_s(10);
    assert_eq!(passed(site.judge(flood(4000))), 40);
    let counts = site.counts.all();
    assert_eq!(counts[0].packets, 80, "the rule counts what it permitted");
}

#[test]
fn other_rules_are_asked_about_the_connections_of_earlier_ones() {
    let mut site = Site::new(&config());
    handshake(&mut site, HOST, SERVER);
    assert!(site.passes(udp(HOST, SERVER)));
    let mut deny = rule(Action::Deny, &[LAN], &[WAN]);
    deny.rule.protocols = vec![17];
    site.reload(&FirewallConfig { rules: vec![deny], ..config() });
    assert!(site.passes(tcp(HOST, SERVER, ACK, [11, 101])), "still permitted");
    assert_eq!(site.one(udp(HOST, SERVER)), Some(DropReason::FirewallDenied));
    assert_eq!(site.one(udp(SERVER, HOST)), Some(DropReason::FirewallNotAsked), "its connection has ended");
    assert_eq!(site.stage.counters().states_ended, 1);
}

#[test]
fn rules_about_states_and_rejections() {
    let mut related = rule(Action::Deny, &[], &[]);
    related.states = vec![PacketState::Related];
    let mut invalid = rule(Action::Permit, &[WAN], &[DMZ]);
    invalid.states = vec![PacketState::Invalid];
    let mut rejected = rule(Action::Reject, &[LAN], &[DMZ]);
    rejected.logs = true;
    let mut site = Site::new(&FirewallConfig { rules: vec![related, invalid, rejected], ..config() });
    let asked = udp(HOST, SERVER);
    assert!(site.passes(asked.clone()));
    assert_eq!(site.one(error("192.0.2.9", &asked)), Some(DropReason::FirewallDenied));
    assert!(site.passes(tcp(SERVER, "172.16.0.1:80", SYN_ACK, [0; 2])));
    let mut chunk = site.arrive(vec![udp(HOST, "172.16.0.1:80")]);
    site.stage.run_groups(&site.rules, &mut chunk, 0..1, 1, &site.counts);
    assert!(chunk.packets()[0].flags.has(PacketFlags::REJECT));
    let mut events = Vec::new();
    site.stage.hand_out_events(&mut |event| events.push(event));
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].rule, events[0].action, events[0].port_out), (2, Action::Reject, 2));
    assert_eq!(events[0].source, (0x0a00_0001, 4000));
}

#[test]
fn within_a_zone_nothing_is_remembered_unless_a_rule_asks() {
    let mut site = Site::new(&config());
    assert!(site.passes(tcp("10.0.0.1:1", "10.0.0.2:2", ACK, [0; 2])));
    assert!(site.passes(tcp("10.0.0.1:1", "10.0.0.2:2", SYN | FIN, [0; 2])));
    assert_eq!(site.stage.counters().states_created, 0);
}

/// A packet that waits for its neighbor leaves later, so it is judged now.
#[test]
fn packets_for_the_host_thread_are_judged_too() {
    let mut site = Site::new(&config());
    for reason in [DropReason::NeighborUnresolved, DropReason::MtuExceeded] {
        let mut chunk = site.arrive(vec![udp(SERVER, HOST), udp(HOST, SERVER), udp(SERVER, HOST)]);
        chunk.packets_mut().iter_mut().for_each(|packet| packet.drop_for(reason));
        site.stage.run_groups(&site.rules, &mut chunk, 0..1, 1, &site.counts);
        let fates: Vec<_> = chunk.packets().iter().map(|packet| packet.drop_reason()).collect();
        assert_eq!(fates[1..], [Some(reason); 2]);
        site.wait_s(1000);
        assert_eq!(fates[0], Some(DropReason::FirewallNotAsked));
    }
    let mut chunk = site.arrive(vec![udp(SERVER, HOST)]);
    chunk.packets_mut()[0].drop_for(DropReason::TtlExpired);
    site.stage.run_groups(&site.rules, &mut chunk, 0..1, 1, &site.counts);
    assert_eq!(chunk.packets()[0].drop_reason(), Some(DropReason::TtlExpired), "this one leaves no more");
}

#[test]
fn groups_together_decide_as_all_at_once() {
    let packets = || -> Vec<Vec<u8>> {
        let pair = |n: u16| {
            let host = format!("10.0.0.{}:{}", n % 5 + 1, 4000 + n);
            [udp(&host, SERVER), udp(SERVER, &host), tcp(SERVER, &host, SYN, [0; 2])]
        };
        (0..60).flat_map(pair).collect()
    };
    let (mut whole, mut parts) = (Site::new(&config()), Site::new(&config()));
    let expected = whole.judge(packets());
    let mut chunk = parts.arrive(packets());
    for group in [1, 0] {
        parts.stage.run_groups(&parts.rules, &mut chunk, group..group + 1, 2, &parts.counts);
    }
    let found: Vec<_> = chunk.packets().iter().map(|packet| packet.drop_reason()).collect();
    assert_eq!(found, expected);
    assert_eq!(parts.stage.counters(), whole.stage.counters());
}

#[test]
fn a_trial_decides_the_same_and_remembers_nothing() {
    let mut site = Site::new(&config());
    assert!(site.passes(udp(HOST, SERVER)));
    let before = site.stage.counters();
    for (packet, expected) in [
        (udp(SERVER, HOST), (Some(0), PacketState::Established)),
        (udp(SERVER, "10.0.0.2:9"), (Some(0), PacketState::New)),
        (tcp(HOST, SERVER, SYN, [0; 2]), (Some(0), PacketState::New)),
        (tcp(SERVER, HOST, SYN_ACK, [0; 2]), (Some(0), PacketState::Invalid)),
    ] {
        let mut chunk = site.arrive(vec![packet.clone()]);
        assert_eq!(site.stage.try_packet(&site.rules, &mut chunk, site.now_ns), Some(expected));
        let tried = chunk.packets()[0].drop_reason();
        assert_eq!(site.stage.counters(), before);
        assert_eq!(
            tried.is_none(),
            expected.1 == PacketState::Established || packet[9] == 6 && packet[33] == SYN
        );
    }
}

#[test]
fn a_table_of_another_size_takes_over_what_fits() {
    let mut site = Site::new(&config());
    let packets: Vec<Vec<u8>> = (0..100).map(|n| udp(&format!("10.0.0.1:{}", 4000 + n), SERVER)).collect();
    assert!(site.judge(packets).iter().all(Option::is_none));
    for (shards, states_max, fit) in [(4, 8192, 100), (16, 8192, 100), (1, 30, 30)] {
        let config = FirewallConfig { states_max, ..config() };
        let larger: FirewallStage<OneThread> = FirewallStage::new(&config, shards, 7);
        assert_eq!(larger.migrate_from(&site.stage), 100 - fit);
        assert_eq!((larger.counters().states_active, larger.counters().states_created), (fit, 100));
        let mut states = Vec::new();
        let mut next = Some((0, 0));
        while let Some(from) = next {
            next = larger.states(from, site.now_ns, |_| true, &mut states);
        }
        assert_eq!(states.len() as u64, fit);
        assert!(states.iter().all(|state| state.other == (0xc633_6407, 80) && state.phase == Phase::Open));
    }
}

/// The router's addresses are 203.0.113.2 and 2001:db8:9::2.
#[test]
fn the_router_is_judged_where_rules_name_it() {
    let (local, denied) = (Some(DropReason::Local), Some(DropReason::FirewallDenied));
    let syn = |from: &str, to: &str| tcp(from, to, SYN, [1, 0]);
    let (neighbor, stranger, service) = ("203.0.113.1:4000", "198.51.100.7:4000", "203.0.113.2:179");
    // Neither the policy nor a rule that names no router is about it.
    let deny_all =
        FirewallConfig { policy: Policy::Deny, rules: vec![rule(Action::Deny, &[], &[])], ..config() };
    let mut site = Site::new(&deny_all);
    assert_eq!(site.for_router(syn(stranger, service)), local);
    assert_eq!(site.by_router(syn(service, stranger)), None);
    assert_eq!(site.stage.counters().states_active, 0, "nothing is remembered of the router's own");

    let bgp = Rule {
        sources: vec!["203.0.113.1/32".parse().unwrap()],
        destination_ports: vec![179..=179],
        ..Rule::all(Action::Permit)
    };
    let bgp = ZoneRule { rule: bgp, ..rule(Action::Permit, &[WAN], &[ROUTER]) };
    let no_mail = Rule { destination_ports: vec![25..=25], ..Rule::all(Action::Deny) };
    let no_mail = ZoneRule { rule: no_mail, ..rule(Action::Deny, &[ROUTER], &[WAN]) };
    let rules = vec![bgp, no_mail, rule(Action::Deny, &[WAN], &[ROUTER]), rule(Action::Deny, &[WAN], &[])];
    let mut site = Site::new(&FirewallConfig { policy: Policy::Deny, rules, ..config() });
    assert_eq!(site.for_router(syn(neighbor, service)), local);
    assert_eq!(site.by_router(tcp(service, neighbor, SYN_ACK, [100, 2])), None);
    assert_eq!(site.for_router(tcp(neighbor, service, ACK, [2, 101])), local);
    assert_eq!(site.for_router(syn(stranger, service)), denied);
    assert_eq!(site.for_router(syn("10.0.0.1:4000", "10.0.0.254:22")), local, "no rule is about the lan");
    for (own, server) in
        [("203.0.113.2:5353", "198.51.100.7:53"), ("[2001:db8:9::2]:5353", "[2001:db8:9::7]:53")]
    {
        assert_eq!(site.for_router(udp(server, own)), denied);
        assert_eq!(site.by_router(udp(own, server)), None);
        assert_eq!(site.for_router(udp(server, own)), local, "the router has asked");
        let teller = if own.starts_with('[') { "2001:db8:9::1" } else { "192.0.2.9" };
        assert_eq!(site.for_router(error(teller, &udp(own, server))), local, "an error about what it sent");
    }
    assert_eq!(site.by_router(syn("203.0.113.2:5000", "198.51.100.7:25")), denied);
    // Without Neighbor Discovery there is no link.
    let solicitation = testing::icmp(at(SERVER6).ip(), at("[2001:db8:9::2]:0").ip(), 135, [0; 4], &[0; 16]);
    assert_eq!(site.for_router(solicitation), local);
    assert_eq!(site.for_router(echo("2001:db8:9::7", "2001:db8:9::2", true, 1)), denied);
}

/// A site whose helpers are on, and a connection of a client inside to port 21.
fn with_helpers() -> Site {
    let helpers = Helper::ALL.into_iter().collect();
    Site::new(&FirewallConfig { helpers, ..config() })
}

/// Passes packets as a chunk that crosses, and returns why each was dropped.
fn cross(site: &mut Site, packets: Vec<Vec<u8>>) -> Vec<Option<DropReason>> {
    let mut chunk = site.arrive(packets);
    site.stage.run_groups(&site.rules, &mut chunk, 0..1, 1, &site.counts);
    site.stage.run_crossing(&site.rules, &mut chunk, &site.counts);
    chunk.packets().iter().map(thalweg_base::Packet::drop_reason).collect()
}

#[test]
fn what_was_announced_is_let_in_and_nothing_else() {
    for (client, server, stranger, port) in [
        ("10.0.0.5", "198.51.100.7", "198.51.100.8", "PORT 10,0,0,5,19,137\r\n"),
        ("2001:db8:1::5", "2001:db8:9::7", "2001:db8:9::8", "EPRT |2|2001:db8:1::5|5001|\r\n"),
    ] {
        let end = |host: &str, port| SocketAddr::new(host.parse().unwrap(), port);
        let mut site = with_helpers();
        let data = |from: &str| testing::tcp(end(from, 20), end(client, 5001), SYN, b"");
        let not_asked = Some(DropReason::FirewallNotAsked);
        assert_eq!(cross(&mut site, vec![data(server)]), [not_asked]);
        let control =
            |flags, text: &str| testing::tcp(end(client, 4000), end(server, 21), flags, text.as_bytes());
        assert_eq!(cross(&mut site, vec![control(SYN, "")]), [None]);
        let answer = testing::tcp(end(server, 21), end(client, 4000), SYN_ACK, b"");
        assert_eq!(cross(&mut site, vec![answer, control(ACK, port)]), [None, None]);
        let wrong = testing::tcp(end(server, 20), end(client, 5002), SYN, b"");
        assert_eq!(cross(&mut site, vec![data(stranger), wrong, data(server)]), [not_asked, not_asked, None]);
        let counters = site.stage.counters();
        assert_eq!((counters.announced, counters.related, counters.help_refused), (1, 1, 0));
        // Other rules do not end it: they are asked about a related one.
        site.reload(&FirewallConfig { policy: Policy::Deny, helpers: Helpers::default(), ..config() });
        assert_eq!(cross(&mut site, vec![data(server)]), [None]);
        site.wait_s(1000);
        assert_eq!(cross(&mut site, vec![data(server)]), [not_asked], "nobody is expected for ever");
    }
}

#[test]
fn an_announcement_leads_to_its_sender_alone() {
    let end = |host: &str, port| SocketAddr::new(host.parse().unwrap(), port);
    let mut site = with_helpers();
    let line =
        |text: &str| testing::tcp(end("10.0.0.5", 4000), end("198.51.100.7", 21), ACK, text.as_bytes());
    cross(
        &mut site,
        vec![line("PORT 10,0,0,6,19,137\r\n"), line("PORT 10,0,0,5,0,25\r\n"), line("PORT 10,0,0,5\r\n")],
    );
    let counters = site.stage.counters();
    assert_eq!((counters.announced, counters.help_refused, counters.help_unread), (0, 2, 1));
    let deny = rule(Action::Deny, &[WAN], &[LAN]);
    let deny = ZoneRule { states: vec![PacketState::Related], ..deny };
    site.reload(&FirewallConfig {
        rules: vec![deny],
        helpers: [Helper::Ftp].into_iter().collect(),
        ..config()
    });
    cross(&mut site, vec![line("PORT 10,0,0,5,19,137\r\n")]);
    let data = testing::tcp(end("198.51.100.7", 20), end("10.0.0.5", 5001), SYN, b"");
    assert_eq!(
        cross(&mut site, vec![data]),
        [Some(DropReason::FirewallDenied)],
        "by a rule about related ones"
    );
}

#[test]
fn media_of_sip_and_packets_of_pptp_come_in() {
    let end = |host: &str, port| SocketAddr::new(host.parse().unwrap(), port);
    let (phone, proxy) = ("10.0.0.5", "198.51.100.7");
    let mut site = with_helpers();
    let body = "v=0\r\nc=IN IP4 10.0.0.5\r\nm=audio 6000 RTP/AVP 0\r\n";
    let invite = format!("INVITE sip:b@198.51.100.7 SIP/2.0\r\n\r\n{body}");
    cross(&mut site, vec![testing::udp(end(phone, 5060), end(proxy, 5060), invite.as_bytes())]);
    let media = |port| testing::udp(end("198.51.100.99", 7000), end(phone, port), b"rtp");
    let not_asked = Some(DropReason::FirewallNotAsked);
    assert_eq!(cross(&mut site, vec![media(6000), media(6001), media(6002)]), [None, None, not_asked]);
    let request = crate::helpers::pptp::message(7, &[5]);
    cross(&mut site, vec![testing::tcp(end(phone, 4000), end(proxy, 1723), ACK, &request)]);
    let gre = |from: &str| testing::ip(end(from, 0).ip(), end(phone, 0).ip(), 47, &[0x30, 0x81, 0x88, 0x0b]);
    assert_eq!(cross(&mut site, vec![gre(proxy), gre("198.51.100.8")]), [None, not_asked]);
}
