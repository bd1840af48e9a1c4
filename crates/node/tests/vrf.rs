//! A router with VRFs does with each packet what a router with the packet's VRF alone does: the same addresses,
//! connections and fragments in two VRFs never meet. Under every model.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, XorShift64Star};
use thalweg_config::{ConfigSource, Places, RouterConfig};
use thalweg_dataplane::standby::{self, Shards, Tables};
use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
use thalweg_flow::{FlowRecord, KeyFields, MeterOptions};
use thalweg_node::Routes;
use thalweg_node::live_tables::LiveTables;
use thalweg_node::plan::RouterPlan;
use thalweg_wire::tcp::{ACK, SYN};
use thalweg_wire::testing;

use crate::same_answer::{Records, Shape, check, run_shape};

const VRFS: [&str; 2] = ["red", "blue"];

/// What a router has beside routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct With {
    firewall: bool,
    nat: bool,
}

/// Ports, neighbors, routes and rules of a VRF; they name it if `is_named`.
fn part(vrf: &str, is_named: bool, with_ipv6: bool) -> String {
    let (number, inner) = if vrf == "red" { (1, "") } else { (2, "\"10.2.0.1/16\", ") };
    let named = if is_named { format!("vrf = \"{vrf}\"\n") } else { String::new() };
    let more = |address: &str| if with_ipv6 { format!(", \"{address}\"") } else { String::new() };
    let (more0, more1) = (more("2001:db8:1::1/64"), more("2001:db8:2::1/64"));
    // What differs: where the same prefixes lead.
    let routes = match vrf {
        "red" => {
            [("198.51.100.0/24", "via = \"10.1.0.9\""), ("0.0.0.0/0", "via = [\"10.1.0.5\", \"10.1.0.6\"]")]
        }
        _ => [("198.51.100.0/24", "via = \"10.0.0.9\""), ("203.0.113.0/24", "action = \"unreachable\"")],
    };
    let routes = routes.map(|(prefix, leads)| format!("[[routes]]\nprefix = \"{prefix}\"\n{leads}\n{named}"));
    format!(
        "[ports.{vrf}0]\nmac = \"02:00:00:00:0{number}:00\"\naddresses = [\"10.0.0.1/24\"{more0}]\n\
         default_mac = \"02:00:00:00:0{number}:f0\"\nurpf = \"loose\"\n{named}\
         [ports.{vrf}1]\nmac = \"02:00:00:00:0{number}:01\"\naddresses = [{inner}\"10.1.0.1/24\"{more1}]\n{named}\
         [[neighbors]]\nport = \"{vrf}0\"\naddress = \"10.0.0.7\"\nmac = \"02:00:00:00:0{number}:07\"\n\
         [[neighbors]]\nport = \"{vrf}1\"\naddress = \"10.1.0.9\"\nmac = \"02:00:00:00:0{number}:19\"\n{}\
         [[routing.rules]]\nfrom = \"{vrf}0\"\ndestination = \"198.51.100.64/26\"\ndestination_ports = 1002\nvia = \"10.1.0.9\"\n",
        routes.concat()
    )
}

const FIREWALL: &str = "[firewall]\noutside = \"out\"\nhalf_open_max = 0\n[firewall.zones]\n";

/// NAT between the ports of these VRFs, with a forward and an exception of each; they name the VRF if `is_named`.
fn nat(vrfs: &[&str], is_named: bool) -> String {
    let ports = |n: u8| vrfs.iter().map(|vrf| format!("\"{vrf}{n}\"")).collect::<Vec<_>>().join(", ");
    let of_vrf = |vrf: &&str| {
        let named = if is_named { format!("vrf = \"{vrf}\"\n") } else { String::new() };
        let last = if *vrf == "red" { 7 } else { 8 };
        format!(
            "[[nat.forwards]]\nprotocol = \"udp\"\nport = 1002\naddress = \"10.1.0.1\"\noutside = \"{vrf}1\"\n\
             to = \"10.0.0.{last}:1002\"\n\
             [[nat.exceptions]]\nsource = \"10.0.0.{last}/32\"\ndestination = \"203.0.113.0/24\"\n{named}"
        )
    };
    let each: String = vrfs.iter().map(of_vrf).collect();
    format!("[nat]\noutside = [{}]\ninside = [{}]\nports = \"1000-65535\"\n{each}", ports(1), ports(0))
}

/// With NAT all packets have a way: without VRFs it translates those without one too.
fn with_ways(text: String, with: With) -> String {
    let is_long = text.replace(
        "prefix = \"203.0.113.0/24\"\naction = \"unreachable\"",
        "prefix = \"0.0.0.0/0\"\nvia = \"10.1.0.9\"",
    );
    if with.nat { is_long } else { text }
}

/// Two VRFs in one router.
fn both(with: With) -> RouterConfig {
    let parts: String = VRFS.map(|vrf| part(vrf, true, !with.firewall)).concat();
    let zones = "in = [\"red0\", \"blue0\"]\nout = [\"red1\", \"blue1\"]\n";
    let firewall = if with.firewall { format!("{FIREWALL}{zones}") } else { String::new() };
    let nat = if with.nat { nat(&VRFS, true) } else { String::new() };
    let text = with_ways(format!("{parts}[vrfs.red]\n[vrfs.blue]\n{nat}{firewall}"), with);
    RouterConfig::from_text("both.toml", &text, Path::new("")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A router with one of them, whose ports have the same numbers.
fn alone(vrf: &str, with: With) -> RouterConfig {
    let firewall = format!("{FIREWALL}in = \"{vrf}0\"\nout = \"{vrf}1\"\n");
    let nat = if with.nat { nat(&[vrf], false) } else { String::new() };
    let text = part(vrf, false, !with.firewall) + &nat + if with.firewall { &firewall } else { "" };
    let text = with_ways(text, with);
    let ports = ["red0", "red1", "blue0", "blue1"].map(str::to_owned).to_vec();
    let source = ConfigSource::of_text("alone.toml", &text, Path::new(""));
    let places = Places { ports, ..Places::default() };
    source.config_in_places(&[], &places).unwrap_or_else(|errors| panic!("{errors}"))
}

const HOSTS: [[&str; 9]; 2] = [
    [
        "10.0.0.7",
        "10.0.0.8",
        "10.0.0.1",
        "10.0.0.255",
        "10.1.0.9",
        "10.2.3.255",
        "198.51.100.5",
        "198.51.100.77",
        "203.0.113.9",
    ],
    [
        "2001:db8:1::7",
        "2001:db8:1::1",
        "2001:db8:2::9",
        "2001:db8:2::1",
        "2001:db8:9::1",
        "2001:db8:1::8",
        "2600::1",
        "2600::2",
        "2600::3",
    ],
];

/// A packet and the port where it arrives.
type Arrival = (u16, Vec<u8>);

fn arrivals(seed: u64, count: usize, with: With) -> Vec<Arrival> {
    let with_ipv6 = !with.firewall;
    let mut random = XorShift64Star::new(seed);
    let mut below = |most: u32| random.below(most) as usize;
    let mut arrivals = Vec::with_capacity(count);
    let mut datagrams = [0u16; 2];
    while arrivals.len() < count {
        let mut hosts = HOSTS[if with_ipv6 { below(2) } else { 0 }];
        if with.nat && hosts[0] == "10.0.0.7" {
            // The public address of both.
            hosts[3] = "10.1.0.1";
        }
        let (source, destination) = (hosts[below(9)], hosts[below(9)]);
        let [source, destination]: [IpAddr; 2] = [source, destination].map(|host| host.parse().unwrap());
        // Inside hosts send from the inside most of the time, and others answer.
        let port = below(4) as u16;
        let ports = [1000 + below(3) as u16, 1000 + below(3) as u16];
        let (from, to) = (SocketAddr::new(source, ports[0]), SocketAddr::new(destination, ports[1]));
        let packet = match below(6) {
            0 => testing::tcp(from, to, [2, 18, 16, 17, 4][below(5)], b"text"),
            1 if source.is_ipv4() => {
                // Datagrams of both VRFs have the same identifiers.
                let id = &mut datagrams[usize::from(port / 2)];
                *id += 1;
                let id = id.to_be_bytes();
                let whole = testing::udp(from, to, &[7; 24]);
                let first = testing::with_ipv4_field(whole, 6, &[0x20, 0]);
                let rest =
                    testing::with_ipv4_field(testing::ip(source, destination, 17, &[7; 8]), 6, &[0, 4]);
                let pieces = [first, rest].map(|piece| testing::with_ipv4_field(piece, 4, &id));
                arrivals.extend(pieces.into_iter().map(|piece| (port, piece)));
                continue;
            }
            2 if source.is_ipv4() => {
                testing::with_ipv4_field(testing::udp(from, to, b"last hop"), 8, &[1 + below(2) as u8])
            }
            _ => testing::udp(from, to, b"text"),
        };
        arrivals.push((port, packet));
    }
    arrivals
}

struct Feed(std::vec::IntoIter<Chunk>);

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        self.0.next()
    }
}

/// What became of a packet: its port, its way out and its bytes, or why it went no further.
type Fate = (u16, Result<(u16, Vec<u8>), DropReason>);

/// Each fate with the place of its packet.
#[derive(Default)]
struct Collect(Vec<((u64, u16), Fate)>);

impl Sink<Chunk> for Collect {
    fn accept(&mut self, chunk: Chunk) {
        for (i, packet) in chunk.packets().iter().enumerate() {
            let fate = match packet.drop_reason() {
                Some(reason) => Err(reason),
                None => Ok((packet.port_out, chunk.egress_frame(i).to_vec())),
            };
            self.0.push(((chunk.sequence, packet.index), (packet.port_in, fate)));
        }
    }
}

const PER_CHUNK: usize = 300;
const START_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The fates of packets in their order of arrival.
fn fates(plan: &RouterPlan, arrivals: &[Arrival], options: &ModelOptions) -> Vec<Fate> {
    fates_among(plan, arrivals, |_| true, options)
}

/// The fates of the packets that arrive on some ports, cut into chunks as if all did: hairpins wait for their chunk.
fn fates_among(
    plan: &RouterPlan,
    arrivals: &[Arrival],
    which: impl Fn(u16) -> bool,
    options: &ModelOptions,
) -> Vec<Fate> {
    fates_from(START_NS, plan, arrivals, which, options)
}

/// The same, of packets that arrive from then on.
fn fates_from(
    from_ns: u64,
    plan: &RouterPlan,
    arrivals: &[Arrival],
    which: impl Fn(u16) -> bool,
    options: &ModelOptions,
) -> Vec<Fate> {
    let chunk = |(sequence, arrivals): (u64, &[Arrival])| {
        let mut builder = ChunkBuilder::with_capacity(PER_CHUNK * 256);
        let now_ns = from_ns + sequence;
        for (port, packet) in arrivals.iter().filter(|(port, _)| which(*port)) {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + packet.len()].copy_from_slice(packet);
            builder.push(at, packet.len(), packet.len() as u32, now_ns, LinkType::RawIp, *port, 0);
        }
        builder.finish(sequence, 1 + sequence * PER_CHUNK as u64, now_ns)
    };
    let chunks: Vec<Chunk> = (0..).zip(arrivals.chunks(PER_CHUNK)).map(chunk).collect();
    let (mut source, mut sink) = (Feed(chunks.into_iter()), Collect::default());
    thalweg_exec::run(plan, &mut source, &mut sink, options).unwrap();
    sink.0.sort_by_key(|(place, _)| *place);
    sink.0.into_iter().map(|(_, fate)| fate).collect()
}

#[test]
fn two_vrfs_are_two_routers() {
    for firewall in [false, true] {
        two_are_one(With { firewall, nat: false }, &[3]);
    }
}

#[test]
fn nat_in_two_vrfs_is_nat_in_two_routers() {
    for firewall in [false, true] {
        two_are_one(With { firewall, nat: true }, &[1, 2, 3, 4, 5]);
    }
}

/// A router with two VRFs, under all models with so many workers, and two routers.
fn two_are_one(with: With, workers: &[usize]) {
    let serial = ModelOptions::new(ModelKind::Serial, 1);
    let config = both(with);
    let arrivals = arrivals(7 + u64::from(with.firewall), 3_000, with);
    let mut expected = [Vec::new(), Vec::new()];
    for (vrf, expected) in VRFS.iter().zip(&mut expected) {
        let is_of = |port: u16| usize::from(port / 2) == usize::from(*vrf == "blue");
        let plan = RouterPlan::from_config(&alone(vrf, with), None).unwrap();
        *expected = fates_among(&plan, &arrivals, is_of, &serial);
        let counters = plan.nat_counters().unwrap_or_default();
        if with.nat {
            let least = counters.translated_out.min(counters.translated_in).min(counters.hairpins);
            assert!(least > 20, "{counters:?}");
        }
    }
    let sent = |fates: &Vec<Fate>| fates.iter().filter(|(_, fate)| fate.is_ok()).count();
    assert!(expected.iter().all(|fates| sent(fates) > 150), "{:?}", expected.each_ref().map(sent));
    for (kind, workers) in ModelKind::ALL.into_iter().flat_map(|kind| workers.iter().map(move |n| (kind, *n)))
    {
        let options = ModelOptions { ordered: true, ..ModelOptions::new(kind, workers) };
        let plan = RouterPlan::from_config(&config, None).unwrap();
        let fates = fates(&plan, &arrivals, &options);
        for (n, expected) in expected.iter().enumerate() {
            let ours: Vec<&Fate> = fates.iter().filter(|(port, _)| usize::from(port / 2) == n).collect();
            let differs = ours.iter().zip(expected).position(|(ours, theirs)| *ours != theirs);
            assert_eq!(ours.len(), expected.len());
            let at = differs.map(|at| (at, ours[at], &expected[at]));
            assert!(at.is_none(), "{} under {kind}, {workers} workers, {with:?}: {at:?}", VRFS[n]);
        }
    }
    // The tables of a live router route as those of a replay.
    let live = LiveTables::new(&config).unwrap();
    let plan = RouterPlan::with_router(&config, live.router(), None).unwrap();
    let replay = RouterPlan::with_routes(&config, &Routes::build(&config).unwrap(), None).unwrap();
    assert!(fates(&plan, &arrivals, &serial) == fates(&replay, &arrivals, &serial));
}

/// Has a router stand by for another until it has all sessions and states; returns the time then.
fn stand_by(plans: [&RouterPlan; 2]) -> u64 {
    let stages = plans.map(|plan| (plan.nat_stage(), plan.firewall().unwrap()));
    let copies = stages.each_ref().map(|(nat, firewall)| {
        (nat.as_ref().map(|nat| nat.copies()), firewall.stage.copies(&firewall.rules, true))
    });
    let tables = copies.each_ref().map(|(sessions, states)| Tables {
        sessions: sessions.as_ref().map(|sessions| sessions as &dyn Shards),
        states: Some(states),
        now_ns: START_NS + SECOND_NS,
    });
    standby::testing::stand_by(tables)
}

/// A router that takes over does with each packet what the router before it would have done, for both VRFs, under every
/// model.
#[test]
fn a_standby_goes_on_where_the_active_router_of_two_vrfs_was() {
    let serial = ModelOptions::new(ModelKind::Serial, 1);
    for nat in [false, true] {
        let with = With { firewall: true, nat };
        let config = both(with);
        let arrivals = arrivals(11, 4_000, with);
        // Fragments of one datagram come to one router.
        let is_rest = |(_, packet): &Arrival| packet[6..8] == [0, 4];
        let half = (2_000..).find(|at| !is_rest(&arrivals[*at])).unwrap();
        let (before, after) = arrivals.split_at(half);
        let reference = RouterPlan::from_config(&config, None).unwrap();
        fates(&reference, before, &serial);
        let mut expected = None;
        for (kind, workers) in ModelKind::ALL.into_iter().flat_map(|kind| [1, 4].map(|n| (kind, n))) {
            let options = ModelOptions { ordered: true, ..ModelOptions::new(kind, workers) };
            let routers = [0, 1].map(|_| RouterPlan::from_config(&config, None).unwrap());
            fates(&routers[0], before, &options);
            let then_ns = stand_by(routers.each_ref());
            let expected =
                expected.get_or_insert_with(|| fates_from(then_ns, &reference, after, |_| true, &serial));
            let ours = fates_from(then_ns, &routers[1], after, |_| true, &options);
            let differs = ours.iter().zip(&*expected).position(|(ours, theirs)| ours != theirs);
            let at = differs.map(|at| (at, &after[at], &ours[at], &expected[at]));
            assert!(at.is_none(), "under {kind}, {workers} workers, {with:?}: {at:?}");
            let begun = routers[1].firewall_counters().unwrap();
            assert!(begun.established > 20 && begun.not_asked > 20, "{begun:?}");
        }
        // It is the first router's connections that pass.
        let alone = RouterPlan::from_config(&config, None).unwrap();
        let alone = fates_from(START_NS, &alone, after, |_| true, &serial);
        let lost = alone.iter().zip(expected.iter().flatten());
        let lost = lost.filter(|(alone, with)| alone.1.is_err() && with.1.is_ok()).count();
        assert!(lost > 10, "{lost}");
    }
}

/// Red and blue, whose hosts have the same addresses, reach the outside of the main table by leaks, under its one public
/// address. Port 53 of that leads to red.
fn shared(nat: &str) -> RouterConfig {
    let port = |name: &str, n: u8, address: &str, more: &str| {
        format!("[ports.{name}]\nmac = \"02:00:00:00:00:0{n}\"\naddresses = [\"{address}\"]\n{more}\n")
    };
    let tenant = |vrf: &str, n: u8| {
        let more = format!("default_mac = \"02:00:00:00:0{n}:07\"\nvrf = \"{vrf}\"");
        let neighbor = format!(
            "[[neighbors]]\nport = \"{vrf}\"\naddress = \"10.0.0.7\"\nmac = \"02:00:00:00:0{n}:07\"\n"
        );
        let leak = format!("[[vrfs.{vrf}.leaks]]\nfrom = \"main\"\nprefixes = \"0.0.0.0/0\"\n");
        format!("[vrfs.{vrf}]\n{leak}{}{neighbor}", port(vrf, n, "10.0.0.1/24", &more))
    };
    let text = format!(
        "{}[[routes]]\nprefix = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n{}{}\
         [nat]\noutside = \"wan\"\ninside = [\"red\", \"blue\"]\n{nat}\
         [[nat.forwards]]\nprotocol = \"udp\"\nport = 53\nto = \"10.0.0.7:5353\"\nvrf = \"red\"\n",
        port("wan", 1, "203.0.113.2/24", "default_mac = \"02:00:00:00:01:01\""),
        tenant("red", 2),
        tenant("blue", 3),
    );
    let config = RouterConfig::from_text("shared.toml", &text, Path::new(""));
    config.unwrap_or_else(|errors| panic!("{errors}"))
}

/// Answers find their VRF, and a forward leads to red, from blue too.
#[test]
fn tenants_share_an_outside_port_of_another_vrf() {
    let config = shared("");
    let (wan, red, blue) = (0, 1, 2);
    let at = |host: &str, port: u16| SocketAddr::new(host.parse().unwrap(), port);
    let (host, server) = (at("10.0.0.7", 4000), at("198.51.100.9", 80));
    for kind in ModelKind::ALL {
        let options = ModelOptions { ordered: true, ..ModelOptions::new(kind, 3) };
        let plan = RouterPlan::from_config(&config, None).unwrap();
        let pass = |port: u16, packet: Vec<u8>| {
            let fate = fates(&plan, &[(port, packet)], &options).remove(0).1;
            fate.map(|(port, frame)| (port, frame[14..].to_vec())).map_err(DropReason::name)
        };
        let ends = |packet: &[u8], at: usize| {
            let address: [u8; 4] = packet[at..at + 4].try_into().unwrap();
            let place = 20 + (at - 12) / 2;
            SocketAddr::from((address, u16::from_be_bytes([packet[place], packet[place + 1]])))
        };
        for tenant in [red, blue] {
            let (out, packet) = pass(tenant, testing::udp(host, server, b"?")).unwrap();
            let public = ends(&packet, 12);
            assert_eq!((out, public.ip()), (wan, "203.0.113.2".parse().unwrap()), "{kind}");
            let (out, packet) = pass(wan, testing::udp(server, public, b"!")).unwrap();
            assert_eq!((out, ends(&packet, 16)), (tenant, host), "{kind}");
            let error = testing::icmp(
                at("192.0.2.1", 0).ip(),
                public.ip(),
                3,
                [0; 4],
                &testing::udp(public, server, b"?"),
            );
            assert_eq!(pass(wan, error).map(|(out, _)| out), Ok(tenant), "{kind}");
        }
        let forwarded = at("203.0.113.2", 53);
        let (out, packet) = pass(wan, testing::udp(server, forwarded, b"?")).unwrap();
        assert_eq!((out, ends(&packet, 16)), (red, at("10.0.0.7", 5353)), "{kind}");
        let (out, packet) = pass(blue, testing::udp(host, forwarded, b"?")).unwrap();
        assert_eq!((out, ends(&packet, 16)), (red, at("10.0.0.7", 5353)), "{kind}");
        let (out, packet) = pass(red, testing::udp(at("10.0.0.7", 5353), ends(&packet, 12), b"!")).unwrap();
        assert_eq!((out, ends(&packet, 16)), (blue, host), "{kind}");
    }
}

const SERVER: &str = "[[firewall.rules]]\nname = \"server\"\naction = \"permit\"\nto = \"red\"\nprotocol = \"udp\"\n\
                      destination_ports = 5353\n";

/// The same through a firewall, by a router that takes over: answers, errors and what a server gets lead to the tenant whose
/// they are, and to nobody else.
#[test]
fn a_standby_knows_the_tenants_of_a_shared_outside_port() {
    let zones = format!("{FIREWALL}out = \"wan\"\nred = \"red\"\nblue = \"blue\"\n{SERVER}");
    let config = shared(&zones);
    let (wan, red, blue) = (0, 1, 2);
    let at = |host: &str, port: u16| SocketAddr::new(host.parse().unwrap(), port);
    let (host, server) = (at("10.0.0.7", 4000), at("198.51.100.9", 80));
    for kind in ModelKind::ALL {
        let options = ModelOptions { ordered: true, ..ModelOptions::new(kind, 3) };
        let routers = [0, 1].map(|_| RouterPlan::from_config(&config, None).unwrap());
        let pass = |router: usize, port: u16, packet: Vec<u8>| {
            let fate =
                fates_from(START_NS, &routers[router], &[(port, packet)], |_| true, &options).remove(0).1;
            fate.map(|(port, frame)| (port, frame[14..].to_vec())).map_err(DropReason::name)
        };
        let ends = |packet: &[u8], at: usize| {
            let address: [u8; 4] = packet[at..at + 4].try_into().unwrap();
            let place = 20 + (at - 12) / 2;
            SocketAddr::from((address, u16::from_be_bytes([packet[place], packet[place + 1]])))
        };
        let publics = [red, blue].map(|tenant| {
            let (out, packet) = pass(0, tenant, testing::tcp(host, server, SYN, b"")).unwrap();
            assert_eq!(out, wan, "{kind}");
            ends(&packet, 12)
        });
        // Blue asks red's server by its public address: between the VRFs.
        let (out, packet) = pass(0, blue, testing::udp(host, at("203.0.113.2", 53), b"?")).unwrap();
        assert_eq!(out, red, "{kind}");
        let visitor = ends(&packet, 12);
        stand_by(routers.each_ref());
        let (out, packet) = pass(1, red, testing::udp(at("10.0.0.7", 5353), visitor, b"!")).unwrap();
        assert_eq!((out, ends(&packet, 16)), (blue, host), "{kind}");
        let refused = pass(1, red, testing::udp(at("10.0.0.7", 5354), visitor, b"!"));
        assert_eq!(refused.map(|(out, _)| out), Err("firewall-not-asked"), "{kind}");
        for (tenant, public) in [red, blue].into_iter().zip(publics) {
            let quoted = testing::tcp(public, server, SYN, b"");
            let error = testing::icmp(at("192.0.2.1", 0).ip(), public.ip(), 3, [0; 4], &quoted);
            assert_eq!(pass(1, wan, error).map(|(out, _)| out), Ok(tenant), "{kind}");
            let (out, packet) = pass(1, wan, testing::tcp(server, public, SYN | ACK, b"")).unwrap();
            assert_eq!((out, ends(&packet, 16)), (tenant, host), "{kind}");
            let stranger = testing::tcp(at("198.51.100.9", 81), public, SYN, b"");
            assert_eq!(pass(1, wan, stranger).map(|(out, _)| out), Err("firewall-not-asked"), "{kind}");
        }
        let counters = routers[1].firewall_counters().unwrap();
        assert_eq!((counters.states_created, counters.states_active), (0, 3), "{kind}");
    }
}

/// Both tenants send the same packets: each has its flows, whatever the key, and nothing is counted twice or not at all.
/// Fragments too, of datagrams with one identifier.
#[test]
fn the_same_packets_of_two_tenants_are_two_flows() {
    let config = shared("");
    let at = |host: &str, port: u16| SocketAddr::new(host.parse().unwrap(), port);
    let (host, server) = (at("10.0.0.7", 4000), at("198.51.100.9", 80));
    let first = testing::with_ipv4_field(testing::udp(host, server, &[7; 24]), 6, &[0x20, 0]);
    let rest = testing::with_ipv4_field(testing::ip(host.ip(), server.ip(), 17, &[7; 8]), 6, &[0, 4]);
    let packet = testing::udp(host, server, b"?");
    // Red's datagram is whole; of blue's only the rest comes.
    let arrivals: Vec<Arrival> =
        [(1, &packet), (2, &packet), (2, &packet), (1, &first), (2, &rest), (1, &rest)]
            .into_iter()
            .cycle()
            .take(60)
            .map(|(port, packet)| (port, packet.clone()))
            .collect();
    let bytes = |of: &[&Vec<u8>]| of.iter().map(|packet| 10 * packet.len() as u64).sum::<u64>();
    let every = KeyFields::default();
    for (key, biflow) in [(every, false), (every, true), (KeyFields { ingress: false, ..every }, false)] {
        let options = MeterOptions { key, biflow, ..MeterOptions::default() };
        for (kind, workers) in ModelKind::ALL.into_iter().flat_map(|kind| [1, 3].map(|n| (kind, n))) {
            let records = Arc::new(Records::default());
            let plan = RouterPlan::from_config(&config, None).unwrap();
            let plan = plan.with_flows(&options, 1, records.clone()).unwrap();
            fates(&plan, &arrivals, &ModelOptions { ordered: true, ..ModelOptions::new(kind, workers) });
            let flows = plan.flows().unwrap();
            flows.flush();
            let row = |record: &FlowRecord| {
                let counters = &record.counters;
                (record.details.ingress_vrf, record.key.src_port, counters.packets, counters.bytes)
            };
            let mut found: Vec<_> = records.sorted().iter().map(row).collect();
            found.sort_unstable();
            let expected = [
                (Some(1), 4000, 30, bytes(&[&packet, &first, &rest])),
                (Some(2), 0, 10, bytes(&[&rest])),
                (Some(2), 4000, 20, bytes(&[&packet, &packet])),
            ];
            assert_eq!(found, expected, "{kind}, {workers} workers, {options:?}");
            assert_eq!(flows.totals().seen.packets, arrivals.len() as u64);
        }
    }
}

/// Red's packets for a prefix and those of a rule are looked up in blue's table and leave by blue's ports; blue's do
/// not leak back, and what leaks both ways is in no circle.
#[test]
fn leaks_lead_out_of_the_other_vrfs_ports() {
    let text = format!(
        "{}{}[vrfs.blue]\n\
         [[vrfs.red.leaks]]\nfrom = \"blue\"\nprefixes = [\"10.2.0.0/16\", \"192.0.2.0/24\"]\n\
         [[vrfs.blue.leaks]]\nfrom = \"red\"\nprefixes = \"192.0.2.0/24\"\n\
         [[routing.rules]]\nname = \"to blue\"\nfrom = \"red0\"\ndestination_ports = 1001\nvrf = \"blue\"\n",
        part("red", true, false),
        part("blue", true, false)
    );
    let config = RouterConfig::from_text("leaks.toml", &text, Path::new(""));
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    let to = |port: u16, host: &str, udp_port: u16| {
        let from = SocketAddr::new("10.0.0.8".parse().unwrap(), 1000);
        (port, testing::udp(from, SocketAddr::new(host.parse().unwrap(), udp_port), b""))
    };
    let arrivals = [
        to(0, "10.2.3.4", 1000),
        to(0, "10.2.0.1", 1000),
        to(2, "10.2.0.1", 1000),
        to(0, "192.0.2.1", 1000),
        to(2, "192.0.2.1", 1000),
        to(0, "198.51.100.5", 1001),
        to(0, "198.51.100.5", 1000),
        to(0, "10.1.0.9", 1001),
        to(2, "10.0.0.7", 1001),
        to(2, "8.8.8.8", 1000),
    ];
    let serial = ModelOptions::new(ModelKind::Serial, 1);
    let live = LiveTables::new(&config).unwrap();
    for plan in [
        RouterPlan::from_config(&config, None).unwrap(),
        RouterPlan::with_router(&config, live.router(), None).unwrap(),
    ] {
        let ways = fates(&plan, &arrivals, &serial).into_iter();
        let ways: Vec<_> =
            ways.map(|(_, fate)| fate.map(|(port, _)| port).map_err(DropReason::name)).collect();
        let expected = [
            Err("neighbor-unresolved"),
            Err("local"),
            Err("local"),
            Err("no-route"),
            Err("no-route"),
            Ok(2),
            Ok(1),
            Ok(1),
            Ok(2),
            Err("no-route"),
        ];
        assert_eq!(ways, expected);
    }
}

/// Phones in a table of their own, which leaks to the others of [`Shape::Vrfs`] and back.
pub(crate) const LEAKS: &str = r#"
[vrfs.phones]
[[vrfs.phones.leaks]]
from = "main"
prefixes = ["198.51.100.0/25", "10.0.0.0/16", "203.0.113.0/24"]
[[vrfs.main.leaks]]
from = "phones"
prefixes = "10.1.0.0/16"

[[routing.rules]]
name = "calls"
from = "voice"
destination = "0.0.0.0/0"
dscp = "ef"
vrf = "main"

"#;

/// Packets of a VRF leak by their destination and by a rule, and others leak back.
#[test]
fn vrfs_that_leak_give_the_serial_answer_under_every_model() {
    for seed in 1..=2 {
        let serial = run_shape(Shape::Vrfs, seed, &ModelOptions::new(ModelKind::Serial, 1));
        let sent = serial.outs.iter().filter_map(|out| out.fate.as_ref().ok());
        let sent = |port: u16, at: usize, net: [u8; 2]| {
            sent.clone().filter(|(by, frame)| *by == port && frame.get(at..at + 2) == Some(&net[..])).count()
        };
        let (wan, voice, source, destination) = (0, 2, 26, 30);
        let leaked = [sent(wan, source, [10, 1]), sent(voice, destination, [10, 1])];
        assert!(leaked.iter().all(|count| *count > 20), "{leaked:?}");
        assert!(serial.dropped[DropReason::NoRoute as usize] > 20, "what neither leaks nor matches the rule");
        assert!(serial.nat.contains("rule: \"calls\""), "{}", serial.nat);
        for workers in 1..=5 {
            for kind in ModelKind::ALL {
                let mut options = ModelOptions::new(kind, workers);
                options.ordered = workers % 2 == 0;
                options.readers = 1 + workers % 3;
                check(Shape::Vrfs, seed, &options, &serial);
            }
        }
    }
}
