use super::*;
use thalweg_wire::MacAddr;

use std::path::Path;

use crate::live_tables::{LiveTables, PortLink};
use crate::trace::NextNeighbor;

const CONFIG: &str = r#"
[ports.lan]
interface = "eth1"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
acl_in = "from-lan"
urpf = "strict"
[ports.wan]
interface = "eth0"
addresses = ["198.51.100.1/24", "2001:db8:9::1/64"]
mtu = 1400
acl_out = "to-wan"
[ports."wan.7"]
parent = "wan"
vlan = 7
addresses = ["203.0.113.1/24"]

[[neighbors]]
port = "wan"
address = "198.51.100.2"
mac = "02:00:00:00:00:99"

[[routes]]
prefix = "0.0.0.0/0"
via = "198.51.100.2"
[[routes]]
prefix = "192.0.2.0/24"
action = "blackhole"

[nat]
outside = "wan"
inside = ["lan"]
addresses = ["198.51.100.1"]
[[nat.forwards]]
protocol = "tcp"
port = 8080
to = "10.1.0.80:80"

[[acl]]
name = "from-lan"
default = "permit"
[[acl.rules]]
name = "no-smtp"
action = "reject"
protocol = "tcp"
destination_ports = 25
[[acl]]
name = "to-wan"
default = "permit"
[[acl.rules]]
action = "deny"
destination = "198.51.100.66/32"

[[qos.classes]]
name = "voice"
strict = 0
match = [{ dscp = "ef" }]
[qos.classes.policer]
kind = "srtcm"
cir = "1 Mbit/s"
cbs = 1000
ebs = 0
[[qos.egress]]
port = "wan"
rate = "100 Mbit/s"
"#;

struct Tables<'t>(&'t LiveTables);

impl Surroundings for Tables<'_> {
    fn prefix(&self, vrf: u16, destination: IpAddr) -> Option<String> {
        self.0.fib().lookup(vrf, destination).1.map(|prefix| prefix.to_string())
    }

    fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(u16, IpAddr)> {
        self.0.next_of(number, flow_hash, destination)
    }

    fn link(&self, port: u16) -> Option<PortLink> {
        self.0.port(port)
    }

    fn neighbor(&self, _: u16, address: IpAddr) -> Option<NextNeighbor> {
        let known = address == IpAddr::from([198, 51, 100, 2]);
        known.then(|| NextNeighbor {
            state: "reachable".to_owned(),
            mac: Some(MacAddr([2, 0, 0, 0, 0, 0x99])),
        })
    }

    fn waiting(&self, _: u16, _: u8) -> Option<u64> {
        Some(3)
    }
}

fn router() -> (RouterConfig, LiveTables, RouterPlan) {
    let config = match RouterConfig::from_text("test.toml", CONFIG, Path::new("")) {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    let tables = LiveTables::new(&config).expect("tables");
    let plan = RouterPlan::with_router(&config, tables.router(), None).expect("a plan");
    (config, tables, plan)
}

fn trace(text: &str) -> TraceView {
    let (config, tables, plan) = router();
    let spec = PacketSpec::parse(text).unwrap_or_else(|error| panic!("{error}"));
    explain(&config, &plan, &Tables(&tables), &spec, 5_000_000_000).unwrap_or_else(|error| panic!("{error}"))
}

fn verdicts(view: &TraceView) -> Vec<(&str, &str)> {
    view.steps.iter().map(|step| (step.stage.as_str(), step.verdict.as_str())).collect()
}

fn why<'v>(view: &'v TraceView, stage: &str) -> &'v str {
    view.steps.iter().find(|step| step.stage == stage).map_or("", |step| &step.why)
}

#[test]
fn every_stage_says_what_it_does() {
    let view = trace("eth1 ip 10.1.0.7 -> 8.8.8.8 udp 5000 -> 53 dscp ef");
    assert_eq!(
        verdicts(&view),
        [
            ("ingress", "pass"),
            ("source", "pass"),
            ("access list in", "pass"),
            ("class", "voice"),
            ("policer", "pass"),
            ("nat", "translate"),
            ("route", "pass"),
            ("neighbor", "reachable"),
            ("mtu", "fits"),
            ("access list out", "pass"),
            ("queue", "voice"),
        ],
        "{view:#?}"
    );
    assert!(why(&view, "source").contains("10.1.0.0/24"));
    assert_eq!(why(&view, "access list in"), "list from-lan, no rule matches, default: permit");
    assert!(why(&view, "nat").contains("new session: source 10.1.0.7 becomes 198.51.100.1:5000"));
    assert!(why(&view, "route").contains("0.0.0.0/0, via 198.51.100.2 on wan"));
    assert!(why(&view, "neighbor").contains("02:00:00:00:00:99"));
    assert!(
        why(&view, "queue").contains("wan: 100 Mbit/s") && why(&view, "queue").contains("3 packets waiting")
    );
    assert_eq!((view.outcome.as_str(), view.reason), ("sent", None));
    assert_eq!(view.summary, "sent by wan to 02:00:00:00:00:99, 42 bytes, TTL 63");
}

#[test]
fn drops_end_the_way_and_say_why() {
    let all = [
        (
            "lan ip 10.1.0.7 -> 8.8.8.8 tcp 25",
            "access list in",
            "acl-denied",
            "rule no-smtp: reject",
            "prohibited",
        ),
        (
            "lan ip 172.16.0.1 -> 8.8.8.8 udp 53",
            "source",
            "reverse-path",
            "does not leave by lan",
            "told nothing",
        ),
        (
            "lan ip 10.1.0.7 -> 8.8.8.8 udp 53 dscp ef length 1200",
            "policer",
            "policed",
            "red",
            "told nothing",
        ),
        ("lan ip 10.1.0.7 -> 192.0.2.1 udp 53", "route", "blackhole", "192.0.2.0/24", "told nothing"),
        (
            "lan ip 10.1.0.7 -> 198.51.100.67 udp 53",
            "route",
            "neighbor-unresolved",
            "on the link of wan",
            "held until the neighbor answers",
        ),
        ("lan ip 10.1.0.7 -> 8.8.8.8 udp 53 ttl 1", "nat", "ttl-expired", "TTL or", "time exceeded"),
        (
            "lan ip 10.1.0.7 -> 8.8.8.8 udp 53 length 1450",
            "route",
            "mtu-exceeded",
            "via",
            "cut into fragments",
        ),
        ("lan ip 127.0.0.1 -> 8.8.8.8 udp 53", "ingress", "martian-source", "loopback", "told nothing"),
        ("lan ip 10.1.0.7 -> 10.1.0.1 icmp", "route", "local", "10.1.0.1/32", "for the router itself"),
        (
            "wan ip 8.8.8.8 -> 198.51.100.1 udp 9",
            "nat",
            "nat-no-mapping",
            "no session",
            "for the router itself",
        ),
        (
            "lan ip 10.1.0.7 -> 8.8.8.8 udp 53 fragment later",
            "nat",
            "fragment-without-first",
            "first fragment",
            "told nothing",
        ),
        ("lan ip 2001:db8:1::7 -> 2600::1 tcp 443", "route", "no-route", "no prefix", "unreachable"),
    ];
    for (text, stage, reason, because, then) in all {
        let view = trace(text);
        assert_eq!(view.reason.as_deref(), Some(reason), "{text}: {view:#?}");
        let step = view.steps.iter().find(|step| step.verdict.contains("drop")).expect("one drops it");
        assert_eq!((step.stage.as_str(), step.verdict.as_str()), (stage, format!("drop: {reason}").as_str()));
        assert!(step.why.contains(because), "{text}: {step:?}");
        assert!(view.summary.contains(then), "{text}: {}", view.summary);
    }
}

#[test]
fn forwards_vlans_and_sixes() {
    let forwarded = trace("wan ip 8.8.8.8 -> 198.51.100.1 tcp 8080");
    assert!(why(&forwarded, "nat").contains("198.51.100.1 becomes 10.1.0.80:80"), "{forwarded:#?}");
    assert_eq!(forwarded.reason.as_deref(), Some("neighbor-unresolved"));
    assert!(
        why(&forwarded, "neighbor")
            .contains("10.1.0.80 on lan is not resolved: the router asks for it by ARP")
    );
    let tagged = trace("wan.7 ip 203.0.113.9 -> 8.8.8.8 udp 53");
    assert!(why(&tagged, "ingress").contains("arrives on wan.7"), "{tagged:#?}");
    assert!(why(&tagged, "nat").contains("not translated"));
    assert_eq!(tagged.outcome, "sent");
    let six = trace("lan ip 2001:db8:1::7 -> 2001:db8:9::9 udp 53");
    assert_eq!(six.reason.as_deref(), Some("neighbor-unresolved"), "{six:#?}");
    let hairpin = trace("lan ip 10.1.0.7 -> 198.51.100.1 tcp 8080");
    assert!(why(&hairpin, "nat").contains("hairpin"), "{hairpin:#?}");
}

#[test]
fn a_port_that_is_none_is_named() {
    let (config, tables, plan) = router();
    let spec = PacketSpec::parse("dmz ip 10.1.0.7 -> 8.8.8.8").expect("a packet");
    let error = explain(&config, &plan, &Tables(&tables), &spec, 0).expect_err("there is no such port");
    assert_eq!((error.column, error.found.as_str()), (1, "dmz"));
    assert_eq!(error.expected, "a port: lan, wan, wan.7");
}

/// A thousand traces change nothing: no session, counter or token.
#[test]
fn nothing_is_left_behind() {
    let (config, tables, plan) = router();
    let spec = PacketSpec::parse("lan ip 10.1.0.7 -> 8.8.8.8 udp 5000 -> 53 dscp ef").expect("a packet");
    let first = explain(&config, &plan, &Tables(&tables), &spec, 5).expect("a port");
    for n in 0..1000 {
        assert_eq!(explain(&config, &plan, &Tables(&tables), &spec, 5 + n).expect("a port"), first);
    }
    assert_eq!(plan.nat_counters().map(|counters| counters.sessions_created), Some(0));
    assert!(plan.color_counts().iter().flatten().all(|counts| counts.green + counts.red == 0));
}

/// The explanation says what happens, not what may happen, and knows mirrors.
#[test]
fn nothing_hedges() {
    let all = [
        "lan ip 10.1.0.7 -> 10.1.0.1 icmp",
        "lan ip 10.1.0.7 -> 10.1.0.1 udp 53",
        "lan ip 10.1.0.7 -> 10.1.0.1 tcp 22",
        "lan ip 10.1.0.7 -> 224.0.0.5 udp 53",
        "wan ip 8.8.8.8 -> 198.51.100.1 udp 9",
        "lan ip 10.1.0.7 -> 8.8.8.8 udp 53 length 1450 df",
        "lan ip 10.1.0.7 -> 198.51.100.66 udp 53",
    ];
    let said: Vec<String> = all.iter().map(|packet| format!("{:#?}", trace(packet))).collect();
    for text in &said {
        let words: Vec<&str> = text.split(|c: char| !c.is_alphabetic()).collect();
        for hedge in ["would", "may", "might", "perhaps", "such"] {
            assert!(!words.contains(&hedge), "{hedge}: {text}");
        }
    }
    for (text, ends) in said.iter().zip(["echo reply", "port unreachable", "told nothing"]) {
        assert!(text.contains(ends), "{ends}: {text}");
    }
    assert!(said[5].contains("fragmentation needed"), "{}", said[5]);
}

/// Outgoing lists decide before the router waits for a neighbor or answers what is too large.
#[test]
fn a_list_decides_about_packets_that_would_wait_or_be_cut() {
    for packet in [
        "lan ip 10.1.0.7 -> 198.51.100.66 udp 53",
        "lan ip 10.1.0.7 -> 198.51.100.66 udp 53 length 1450 df",
        "wan ip 198.51.100.9 -> 198.51.100.66 udp 53",
    ] {
        let view = trace(packet);
        assert_eq!(
            (view.outcome.as_str(), view.reason.as_deref()),
            ("dropped", Some("acl-denied")),
            "{view:#?}"
        );
        assert_eq!(why(&view, "access list out"), "list to-wan, rule 1: deny", "{view:#?}");
    }
}
