//! Hosts of several VRFs with the same addresses, compared with hosts of one network that have different ones: the
//! reference has the hosts of VRF `n` in 192.168.n.0/24. Red and the main table share an outside port; blue has one of
//! its own, with the same public addresses.

use super::*;
use crate::nat::testing::{echo, icmp, ipv4};
use crate::nat::{AddressPair, HostLimits, NatCounters, NatException, NatGroup, OtherOutside};
use crate::vrf::table_of;
use proptest::prelude::*;
use thalweg_base::NO_SHARD;

const RED: u16 = 1;
const BLUE: u16 = 2;
/// The inside ports of the main table, red and blue.
const INSIDES: [u16; 3] = [INSIDE, 2, 3];
/// Blue's outside port.
const BLUES: u16 = 4;
/// By outside port.
const OUTSIDES: [u16; 2] = [OUTSIDE, BLUES];

/// An inside address, in the reference if `is_apart`.
fn inside(vrf: u16, host: u8, is_apart: bool) -> [u8; 4] {
    [192, 168, if is_apart { u8::try_from(vrf).unwrap() } else { 0 }, host]
}

/// The configuration of an outside port: what leads to the hosts of a VRF.
fn of_vrf(vrf: u16, outside: usize, is_apart: bool) -> (PortForward, AddressPair, NatGroup) {
    let forward = PortForward {
        vrf: if is_apart { 0 } else { vrf },
        ..forward(NatProtocol::Udp, 53, at(inside(vrf, 1, is_apart), 5001))
    };
    let of_one = |address: [u8; 4]| ipnet::Ipv4Net::from(std::net::Ipv4Addr::from(address));
    let pair = AddressPair {
        inside: of_one(inside(vrf, 8, is_apart)),
        vrf: forward.vrf,
        public: of_one([198, 18, 0, 8]),
        outside,
    };
    let network = ipnet::Ipv4Net::new(inside(vrf, 2, is_apart).into(), 31).unwrap();
    let group = NatGroup {
        name: format!("group {outside}"),
        inside: vec![network.into()],
        vrf: forward.vrf,
        addresses: 1..2,
        outside,
        limits: HostLimits::default(),
        ports_max: 0,
    };
    (forward, pair, group)
}

fn alone(vrf: u16, is_apart: bool) -> NatConfig {
    let (forward, pair, group) = of_vrf(vrf, 0, is_apart);
    NatConfig {
        shards: 4,
        sessions_max: 64,
        port_range: 5000..=5063,
        forwards: vec![forward],
        one_to_one: vec![pair],
        groups: vec![group],
        ..testing::config(2)
    }
}

fn config() -> NatConfig {
    let mut config = alone(RED, false);
    let (forward, pair, group) = of_vrf(BLUE, 1, false);
    config.one_to_one.push(pair);
    config.groups.push(group);
    let public_addresses = config.public_addresses.clone();
    config.others = vec![OtherOutside { port: BLUES, public_addresses, forwards: vec![forward] }];
    config.inside_ports = INSIDES.to_vec();
    config.vrfs = vec![0, 0, RED, BLUE, BLUE];
    config.untranslated = (0..3).map(|vrf| (vrf, "192.168.0.0/16".parse().unwrap())).collect();
    config
}

/// What a packet says: its ends and those of the packet that it quotes, each host in the network of its VRF.
fn said(bytes: &[u8], from: u16, to: u16) -> Vec<u8> {
    let header = usize::from(bytes[0] & 15) * 4;
    let mut said = bytes.to_vec();
    // Checksums were checked, and differ with addresses.
    said[10..12].fill(0);
    for (at, vrf) in [(12, from), (16, to)] {
        if said[at..at + 2] == [192, 168] && said[at + 2] == 0 {
            said[at + 2] = u8::try_from(vrf).unwrap();
        }
    }
    match bytes[9] {
        6 => said[header + 16..header + 18].fill(0),
        17 => said[header + 6..header + 8].fill(0),
        1 => {
            said[header + 2..header + 4].fill(0);
            if bytes[header] == 3 {
                // The quoted packet went the other way.
                let quote = self::said(&bytes[header + 8..], to, from);
                said.splice(header + 8.., quote);
            }
        }
        _ => {}
    }
    said
}

/// The NAT with VRFs, and the reference for each outside port.
struct Both {
    labeler: Labeler,
    nat: NatStage,
    references: [Router; 2],
}

impl Both {
    fn new() -> Self {
        let config = config();
        Self {
            labeler: Labeler::new(&config).unwrap(),
            nat: NatStage::new(&config).unwrap(),
            references: [RED, BLUE].map(|vrf| Router::new(&alone(vrf, true))),
        }
    }

    /// What comes out, and the VRF in which it is looked up if it goes inside.
    fn run(&self, port_in: u16, bytes: &[u8]) -> (Outcome, Option<u16>) {
        checksums(bytes).unwrap();
        let mut chunk = chunk(&[(port_in, bytes, bytes.len() as u32)], self.references[0].now_ns);
        let (mut batch, _) = chunk.whole();
        let (packet, l3) = batch.packet_and_l3(0);
        self.labeler.label_toward(packet, l3, |packet, _, home| {
            home.or(Some(usize::from(packet.port_in == INSIDES[2])))
        });
        chunk.crosses_shards = chunk.packets()[0].crossing_shard != NO_SHARD;
        self.nat.run_groups(&mut chunk, 0..2, 3);
        self.nat.run_groups(&mut chunk, 2..3, 3);
        self.nat.run_crossing(&mut chunk, &mut |_, _, _| ());
        let led_to = table_of(chunk.packets()[0].next_hop);
        match chunk.packets()[0].drop_reason() {
            Some(reason) => (Err(reason), None),
            None => (Ok(chunk.frame(0).to_vec()), led_to),
        }
    }

    /// Sends a packet through both: from a VRF inside, or to an outside port. Returns both outcomes.
    fn check(&self, way: Result<u16, usize>, ours: &[u8], theirs: &[u8]) -> Option<(u16, Vec<u8>, Vec<u8>)> {
        let (port_in, place, from) = match way {
            Ok(vrf) => (INSIDES[usize::from(vrf)], usize::from(vrf == BLUE), vrf),
            Err(place) => (OUTSIDES[place], place, 0),
        };
        let (outcome, led_to) = self.run(port_in, ours);
        let reference = &self.references[place];
        let expected = if way.is_ok() { reference.leave(theirs) } else { reference.arrive(theirs) };
        let reason = |outcome: &Outcome| outcome.as_ref().err().copied();
        assert_eq!(reason(&outcome), reason(&expected), "{way:?} {ours:02x?}");
        let (outcome, expected) = (outcome.ok()?, expected.ok()?);
        checksums(&outcome).unwrap();
        let is_inside = expected[16..18] == [192, 168] && expected != theirs;
        let to = is_inside.then(|| u16::from(expected[18]));
        assert_eq!(led_to, to, "{way:?} {ours:02x?}");
        let to = to.unwrap_or(from);
        assert_eq!(said(&outcome, from, to), said(&expected, 0, 0), "{way:?} {ours:02x?}");
        Some((to, outcome, expected))
    }

    fn wait_s(&mut self, seconds: u64) {
        self.references.iter_mut().for_each(|reference| reference.wait_s(seconds));
    }

    fn sessions(&self) -> Vec<SessionInfo> {
        let (mut all, mut next) = (Vec::new(), Some(Cursor::default()));
        while let Some(from) = next {
            next = self.nat.sessions(from, self.references[0].now_ns, |_| true, &mut all);
        }
        all
    }

    fn finish(self) {
        let mut sum = NatCounters::default();
        self.references.iter().for_each(|reference| sum.add(&reference.nat.counters()));
        assert_eq!(self.nat.counters(), sum);
        let apart = |session: &SessionInfo| {
            let IpAddr::V4(address) = session.inside.ip() else { panic!("an IPv6 host") };
            let host = address.octets()[3];
            let inside = SocketAddr::new(inside(session.vrf, host, true).into(), session.inside.port());
            format!("{:?}", SessionInfo { inside, vrf: 0, ..session.clone() })
        };
        let ours: Vec<String> = self.sessions().iter().map(apart).collect();
        let theirs = self.references.iter().flat_map(Router::sessions);
        let theirs: Vec<String> = theirs.map(|session| format!("{session:?}")).collect();
        let sorted = |mut all: Vec<String>| {
            all.sort();
            all
        };
        assert_eq!(sorted(ours), sorted(theirs));
    }
}

proptest! {
    #[test]
    fn hosts_of_two_vrfs_are_different_hosts(steps in proptest::collection::vec(any::<[u8; 5]>(), 1..150)) {
        let mut both = Both::new();
        // What left by an outside port, and what came to a VRF.
        let (mut left, mut came) = (Vec::new(), Vec::new());
        for [kind, who, whom, port, more] in steps {
            both.wait_s(u64::from(more & 7) * 20);
            let vrf = u16::from(who >> 4) % 3;
            let place = usize::from(vrf == BLUE);
            let of = |is_apart| {
                at(inside(vrf, [1, 2, 5, 8][usize::from(who & 3)], is_apart), 5000 + u16::from(port & 3))
            };
            let outside = remote(whom & 7, 80);
            let publics = [[198, 51, 100, 1], [198, 51, 100, 2], [198, 18, 0, 8]];
            let public = at(publics[usize::from(whom) % 3], [53, 5000, 5001, 5002][usize::from(port >> 2 & 3)]);
            let protocol = NatProtocol::ALL[usize::from(port >> 4) % 3];
            let flags = [SYN, ACK][usize::from(more >> 7)];
            let number = |address: &SocketAddrV4| u32::from(*address.ip());
            let earlier: Option<&(usize, Vec<u8>)> = left.get(usize::from(more) % left.len().max(1));
            let arrived: Option<&(u16, Vec<u8>, Vec<u8>)> = came.get(usize::from(more) % came.len().max(1));
            let (way, ours, theirs) = match (kind & 7, earlier, arrived) {
                (0 | 1, ..) => {
                    let build = |is_apart| testing::any(protocol, of(is_apart), outside, flags);
                    (Ok(vrf), build(false), build(true))
                }
                (2, ..) => {
                    let build = |is_apart| testing::any(protocol, of(is_apart), public, SYN);
                    (Ok(vrf), build(false), build(true))
                }
                (3, ..) => {
                    let packet = testing::any(protocol, outside, public, ACK);
                    (Err(place), packet.clone(), packet)
                }
                (4, ..) => {
                    let build = |is_apart| ipv4(number(&of(is_apart)), number(&outside), 47, 0, &[0; 8]);
                    (Ok(vrf), build(false), build(true))
                }
                (5, _, Some((vrf, ours, theirs))) => {
                    let refuse = |got: &[u8]| {
                        let [from, to] = [&got[12..16], &got[16..20]].map(|ip| u32::from_be_bytes(ip.try_into().unwrap()));
                        icmp(to, from, 3, [0; 4], got)
                    };
                    (Ok(*vrf), refuse(ours), refuse(theirs))
                }
                (6, Some((place, sent)), _) => {
                    let to = u32::from_be_bytes(sent[12..16].try_into().unwrap());
                    let error = icmp(u32::from_be_bytes([203, 0, 113, 77]), to, 3, [0; 4], sent);
                    (Err(*place), error.clone(), error)
                }
                (_, Some((place, sent)), _) => {
                    let answer = match sent[9] {
                        47 => {
                            let [a, b] = [&sent[12..16], &sent[16..20]].map(|ip| u32::from_be_bytes(ip.try_into().unwrap()));
                            ipv4(b, a, 47, 0, &[0; 8])
                        }
                        1 => {
                            let (from, to) = (destination(sent), source(sent));
                            echo(number(&from), number(&to), 0, to.port())
                        }
                        6 => testing::tcp(destination(sent), source(sent), SYN_ACK),
                        _ => testing::udp(destination(sent), source(sent), b"back"),
                    };
                    (Err(*place), answer.clone(), answer)
                }
                _ => continue,
            };
            let Some((to, ours, theirs)) = both.check(way, &ours, &theirs) else { continue };
            let is_error = ours[9] == 1 && ours[20] == 3;
            if ours[16..18] == [192, 168] && !is_error {
                came.push((to, ours, theirs));
            } else if let (Ok(_), false) = (way, is_error) {
                left.push((place, ours));
            }
        }
        both.finish();
    }
}

#[test]
fn one_host_of_each_vrf_has_its_own_ports_limits_and_exceptions() {
    let hosts = HostLimits { sessions_max: Some(1), ..HostLimits::default() };
    let exceptions = vec![NatException {
        vrf: Some(RED),
        sources: vec!["192.168.0.5/32".parse().unwrap()],
        destinations: vec!["203.0.113.9/32".parse().unwrap()],
    }];
    let config = NatConfig { shards: 1, hosts, exceptions, groups: Vec::new(), ..config() };
    let both =
        Both { labeler: Labeler::new(&config).unwrap(), nat: NatStage::new(&config).unwrap(), ..Both::new() };
    let from = |vrf: usize, port: u16, to: u8| {
        both.run(INSIDES[vrf], &testing::udp(host(5, port), remote(to, 80), b"?")).0
    };
    let publics = [0, 1, 2].map(|vrf| source(&from(vrf, 5005, 1).unwrap()));
    assert_ne!(publics[0], publics[1], "two hosts on one public address");
    assert_eq!(publics[0], publics[2], "two public addresses that look alike");
    for vrf in 0..3 {
        assert_eq!(from(vrf, 5006, 1), Err(DropReason::NatHostLimit), "of VRF {vrf}");
    }
    let plain = from(1, 5007, 9).unwrap();
    assert_eq!(source(&plain), host(5, 5007), "the exception is red's");
    assert_eq!(from(0, 5007, 9), Err(DropReason::NatHostLimit));
    for (place, vrf, public) in [(0, 0, publics[0]), (0, RED, publics[1]), (1, BLUE, publics[2])] {
        let (answer, led_to) = both.run(OUTSIDES[place], &testing::udp(remote(1, 80), public, b"!"));
        assert_eq!((destination(&answer.unwrap()), led_to), (host(5, 5005), Some(vrf)));
    }
}

#[test]
fn sessions_end_with_their_outside_ports_vrf() {
    let both = Both::new();
    let open = |vrf: usize| {
        both.run(INSIDES[vrf], &testing::udp(host(5, 5005), remote(1, 80), b"?")).0.unwrap();
    };
    (0..3).for_each(open);
    let moved = NatConfig { vrfs: vec![0, 0, RED, BLUE, 3], ..config() };
    assert!(!moved.has_table_of(&config()));
    let next = NatStage::<thalweg_base::OneThread>::new(&moved).unwrap();
    let migration = next.migrate_from(&both.nat);
    assert_eq!((migration.kept, migration.displaced), (2, 1), "blue's public address is another now");
}

#[test]
fn what_vrfs_share_and_what_not() {
    use crate::nat::NatConfigError::*;
    assert_eq!(config().validate(), Ok(()), "equal addresses in two VRFs");
    let first = config().public_addresses[0];
    let together = NatConfig { vrfs: vec![0, 0, RED, BLUE, 0], ..config() };
    assert_eq!(together.validate(), Err(PairTwice("198.18.0.8/32".parse().unwrap())));
    let together = NatConfig { one_to_one: Vec::new(), ..together };
    assert_eq!(together.validate(), Err(PublicAddressTwice(first)));
    let many = NatConfig { vrfs: vec![0, 0, 64], ..config() };
    assert_eq!(many.validate(), Err(Vrf(64)));
    let subscribers = crate::nat::SubscriberConfig {
        allocation: crate::nat::BlockAllocation::Deterministic(vec!["192.168.0.0/30".parse().unwrap()]),
        block_size: 16,
        ..crate::nat::SubscriberConfig::default()
    };
    let blocks = NatConfig { subscribers: Some(subscribers), ..config() };
    assert_eq!(blocks.validate(), Err(SubscriberVrfs));
}
