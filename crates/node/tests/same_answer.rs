//! Every execution model gives the same answer: the same packets out, byte for byte, the same drops and
//! the same order within each flow, for any number of workers, with NAT, policers and priorities on.

mod helpers;
mod packets;
mod samples;

use packets::packet;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, XorShift64Star};
use thalweg_config::{ConfigSource, Places, RouterConfig};
use thalweg_dataplane::acl::RuleCount;
use thalweg_dataplane::nat::{NatCounters, NatLogging};
use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
use thalweg_flow::application::Labeling;
use thalweg_flow::export::NatEvent;
use thalweg_flow::testing::sort_records;
use thalweg_flow::{FlowRecord, MeterOptions, MeterTotals};
use thalweg_node::Routes;
use thalweg_node::plan::{RecordOutlet, RouterPlan};
use thalweg_wire::testing;

use crate::vrf::LEAKS;

const CONFIG: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
default_mac = "02:00:00:00:ff:01"
acl_in = "from-internet"
urpf = "loose-allow-default"

[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["10.0.0.1/16", "2001:db8:1::1/64"]
default_mac = "02:00:00:00:ff:02"
acl_in = "from-inside"
acl_out = "to-inside"

[ports.voice]
mac = "02:00:00:00:00:03"
addresses = ["10.1.0.1/16"]
default_mac = "02:00:00:00:ff:03"
acl_in = "from-inside"
urpf = "strict"

[[routes]]
prefix = "0.0.0.0/0"
via = ["203.0.113.1", "203.0.113.9"]

[[routes]]
prefix = "198.51.100.32/27"
action = "blackhole"

[[routes]]
prefix = "2001:db8::/32"
via = "2001:db8:ffff::1"

[nat]
outside = "wan"
inside = ["lan", "voice"]
addresses = ["203.0.113.2"]
ports = "2000-6095"
sessions_max = 3000
shards = 16
nat64 = "2001:db8:64::/96"

[nat.timeouts]
udp_s = 120
icmp_s = 60

[[nat.forwards]]
protocol = "tcp"
port = 8080
to = "10.0.0.10:80"

[[acl]]
name = "from-internet"
default = "permit"
[[acl.rules]]
action = "reject"
destination_ports = "2100-2110"
[[acl.rules]]
action = "deny"
protocol = "tcp"
tcp_flags = ["syn,!ack", "rst,!ack"]
[[acl.rules]]
action = "deny"
source = "198.51.100.64/29"
fragment = ["first", "later"]

[[acl]]
name = "from-inside"
default = "permit"
[[acl.rules]]
action = "deny"
source = ["10.0.0.16/28", "2001:db8:1::/64"]
protocol = "udp"
source_ports = "2000-2300"
[[acl.rules]]
action = "permit"
dscp = "ef"
[[acl.rules]]
action = "reject"
source = "10.0.130.16/30"

[[acl]]
name = "to-inside"
default = "permit"
[[acl.rules]]
action = "deny"
destination = "10.0.0.77/32"
protocol = "udp"
[[acl.rules]]
action = "reject"
protocol = "icmp"
icmp = "echo-reply"

[[qos.classes]]
name = "voice"
strict = 0
match = [{ dscp = ["ef"] }, { application = ["sip", "rtp"] }]

[[qos.classes]]
name = "web"
weight = 3
match = [{ protocol = "tcp", destination_ports = "80-443" }]
[qos.classes.policer]
kind = "trtcm"
cir = "20 kbit/s"
cbs = "2 KiB"
pir = "40 kbit/s"
pbs = "3 KiB"
yellow_dscp = "af12"

[[qos.classes]]
name = "bulk"
weight = 1
match = [{ source = "10.0.128.0/17" }]
"#;

/// A firewall for the same router; tables are last, so it follows the rest.
const FIREWALL: &str = r#"
[firewall]
outside = "wan"
states_max = 1600
half_open_max = 4

[firewall.zones]
wan = "wan"
lan = "lan"
voice = "voice"

[firewall.timeouts]
udp_s = 60

[[firewall.rules]]
name = "phones"
action = "permit"
from = "voice"
to = "lan"
protocol = "udp"
new_per_second = 20
[[firewall.rules]]
name = "no-sip"
action = "deny"
from = "lan"
to = "wan"
destination_ports = "2400-2500"
[[firewall.rules]]
name = "web"
action = "permit"
from = "wan"
to = "lan"
protocol = "tcp"
destination_ports = 80
log = true
[[firewall.rules]]
name = "within"
action = "reject"
from = "lan"
to = "lan"
protocol = "icmp"
[[firewall.rules]]
name = "service"
action = "permit"
from = "wan"
to = "router"
destination_ports = "2200-2300"
new_per_second = 50
[[firewall.rules]]
name = "protected"
action = "reject"
from = ["wan", "voice"]
to = "router"
protocol = "udp"
"#;

/// A second way out, and rules about who takes it.
const BACKUP: &str = r#"
[ports.backup]
mac = "02:00:00:00:00:04"
addresses = ["192.0.2.2/24"]
default_mac = "02:00:00:00:ff:04"

[[routes]]
prefix = "198.51.100.128/25"
via = "192.0.2.1"

# What comes by the forward is answered by its port.
[[routes]]
prefix = "0.0.0.0/0"
via = "192.0.2.1"
metric = 9

[[routing.rules]]
name = "phones"
from = "voice"
dscp = "ef"
via = "192.0.2.1"
[[routing.rules]]
name = "web"
protocol = "tcp"
destination_ports = [80, 8080]
via = ["203.0.113.1", "192.0.2.1"]
[[routing.rules]]
name = "never"
source = "10.1.130.0/27"
protocol = "udp"
action = "unreachable"
[[routing.rules]]
name = "ipv6"
source = "2001:db8:1::/64"
destination_ports = 12289
via = "2001:db8:ffff::1"

"#;

/// `chunks` chunks of random sizes; the same for the same seed.
fn traffic(seed: u64, chunks: u64) -> Vec<Chunk> {
    traffic_of(packet, seed, chunks)
}

fn traffic_of(packet: fn(&mut XorShift64Star) -> Vec<u8>, seed: u64, chunks: u64) -> Vec<Chunk> {
    let mut rng = XorShift64Star::new(seed);
    let mut clock_ns = 1_700_000_000_000_000_000;
    let mut number = 1;
    (0..chunks)
        .map(|sequence| {
            let packets = 1 + rng.below(600);
            let mut builder = ChunkBuilder::with_capacity(packets as usize * 300);
            let before_ns = clock_ns;
            for _ in 0..packets {
                let bytes = packet(&mut rng);
                clock_ns += u64::from(rng.below(400_000));
                if rng.below(5000) == 0 {
                    clock_ns += 70_000_000_000;
                }
                let at = builder.next_frame_offset();
                builder.buffer_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
                let port = thalweg_base::NO_PORT;
                builder.push(at, bytes.len(), bytes.len() as u32, clock_ns, LinkType::RawIp, port, 0);
            }
            let chunk = builder.finish(sequence, number, before_ns);
            number += u64::from(packets);
            chunk
        })
        .collect()
}

struct Feed(std::vec::IntoIter<Chunk>);

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        self.0.next()
    }
}

/// The output of a run: every packet with its position in the serial order.
#[derive(Default)]
struct Collect {
    packets: Vec<Out>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Out {
    place: (u64, u16),
    flow: u32,
    pub(crate) fate: Result<(u16, Vec<u8>), DropReason>,
}

impl Sink<Chunk> for Collect {
    fn accept(&mut self, chunk: Chunk) {
        for (i, p) in chunk.packets().iter().enumerate() {
            let fate = match p.drop_reason() {
                Some(reason) => Err(reason),
                None => Ok((p.port_out, chunk.egress_frame(i).to_vec())),
            };
            self.packets.push(Out { place: (chunk.sequence, p.position), flow: p.flow_hash, fate });
        }
    }
}

pub(crate) struct Run {
    pub(crate) outs: Vec<Out>,
    packets_in: u64,
    packets_out: u64,
    pub(crate) dropped: Vec<u64>,
    classes: Vec<u64>,
    pub(crate) nat: String,
    nat_counters: Option<NatCounters>,
    acl: Vec<Vec<RuleCount>>,
    /// The meter's records, if there is a meter, sorted.
    records: Vec<FlowRecord>,
    /// NAT's events, if logged, sorted.
    events: Vec<String>,
    /// The same before the events logged at the end: sessions begun minus sessions ended.
    sessions_told: i64,
    /// The meter's totals.
    metered: Option<MeterTotals>,
}

/// The stages of the router.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// All of them but the firewall.
    Full,
    /// All of them.
    Firewall,
    /// All of them, and helpers.
    Helpers,
    /// All of them, and NAT with two outside ports.
    Outsides,
    /// With the firewall, and one of the inside ports in a VRF instead of NAT.
    Vrfs,
    /// Without filters and with one class: packets are never reordered.
    NatOnly,
    /// The same, where sessions admit only the endpoints that they have sent to.
    Filtered,
    /// Without translation too.
    RoutesOnly,
}

impl Shape {
    /// The configuration, without the sections that this shape lacks.
    fn config(self) -> String {
        let section = |from: &str| CONFIG.find(from).expect("the section is in the configuration");
        let plain = |text: &str| -> String {
            let is_filter = |line: &&str| line.starts_with("acl_") || line.starts_with("urpf");
            text.lines().filter(|line| !is_filter(line)).flat_map(|line| [line, "\n"]).collect()
        };
        match self {
            Shape::Full => CONFIG.to_owned(),
            Shape::Firewall => format!("{CONFIG}{FIREWALL}"),
            Shape::Helpers => {
                let helps = "helpers = [\"ftp\", \"sip\", \"pptp\"]\n";
                let groups = "[[nat.groups]]\nname = \"few\"\ninside = \"10.0.0.12/30\"\naddresses = \"203.0.113.77\"\n";
                let nat = CONFIG.replace("shards = 16\n", &format!("shards = 16\n{helps}"));
                let nat = nat.replace("[[nat.forwards]]", &format!("{groups}[[nat.forwards]]"));
                format!("{nat}{}", FIREWALL.replace("states_max", &format!("{helps}states_max")))
            }
            Shape::Outsides => {
                let nat = CONFIG.replace("outside = \"wan\"", "outside = [\"backup\", \"wan\"]");
                let nat = nat.replace("addresses = [\"203.0.113.2\"]", "pools = { wan = [\"203.0.113.2\"] }");
                let routes = nat.find("[[routes]]").expect("there are routes");
                let zones = FIREWALL.replace("wan = \"wan\"\n", "wan = [\"wan\", \"backup\"]\n");
                format!("{}{BACKUP}{}{zones}", &nat[..routes], &nat[routes..])
            }
            Shape::Vrfs => {
                let phones = CONFIG.replace("[ports.voice]", "[ports.voice]\nvrf = \"phones\"");
                let inside = phones.replace("inside = [\"lan\", \"voice\"]", "inside = \"lan\"");
                format!("{LEAKS}{inside}{FIREWALL}")
            }
            Shape::NatOnly => plain(&CONFIG[..section("[[acl]]")]),
            Shape::Filtered => {
                let filters = "filtering = \"address-and-port-dependent\"\nshards = 16\n";
                Shape::NatOnly.config().replace("shards = 16\n", filters)
            }
            Shape::RoutesOnly => plain(&CONFIG[..section("[nat]")]),
        }
    }
}

fn run(seed: u64, options: &ModelOptions) -> Run {
    run_shape(Shape::Full, seed, options)
}

pub(crate) fn run_shape(shape: Shape, seed: u64, options: &ModelOptions) -> Run {
    let config = RouterConfig::from_text("test.toml", &shape.config(), Path::new("."))
        .unwrap_or_else(|e| panic!("{e}"));
    let plan = RouterPlan::from_config(&config, None).unwrap_or_else(|e| panic!("{e}"));
    let records = Arc::new(Records::default());
    let plan = match shape {
        Shape::Full | Shape::Firewall | Shape::Helpers | Shape::Outsides | Shape::Vrfs => {
            // Reading payloads must not depend on the model either.
            let options = MeterOptions { labeling: Labeling::Payload, ..MeterOptions::default() };
            let metered = plan.with_flows(&options, 1, records.clone()).expect("a meter");
            metered.with_nat_events(NatLogging::Sessions, records.clone())
        }
        Shape::NatOnly | Shape::Filtered | Shape::RoutesOnly => plan,
    };
    let plan = plan.for_workers(options.workers);
    let mut sink = Collect::default();
    let kind = if matches!(shape, Shape::Helpers) { helpers::talk } else { packet };
    let mut source = Feed(traffic_of(kind, seed, 12).into_iter());
    let report = thalweg_exec::run(&plan, &mut source, &mut sink, options).unwrap_or_else(|e| panic!("{e}"));
    let account = plan.merged_account(report.scratches.iter());
    if let Some(flows) = plan.flows() {
        flows.flush();
    }
    // Sessions that have expired by now are logged now, as they are counted.
    let nat = format!("{:?} {:?} {:?}", plan.nat_counters(), plan.fragment_counts(), plan.color_counts());
    let nat_counters = plan.nat_counters();
    let nat = format!("{nat} {:?} {:?}", plan.firewall_counters(), plan.counted_rules(&config));
    plan.send_nat_events();
    let sessions_told = records.sessions_told();
    plan.send_end_of_nat();
    Run {
        outs: sink.packets,
        events: records.sorted_events(),
        sessions_told,
        nat_counters,
        packets_in: account.packets_in,
        packets_out: account.packets_out,
        dropped: account.dropped.to_vec(),
        classes: account.classes.iter().map(|c| c.packets).collect(),
        acl: (0..config.acls.len())
            .map(|list| {
                plan.filters().acls.counts_of(list, &plan.acl_counts(report.scratches.iter())).to_vec()
            })
            .collect(),
        records: records.sorted(),
        metered: plan.flows().map(|flows| flows.meter.totals()),
        nat,
    }
}

/// Flow records, and events of NAT, as they come.
#[derive(Default)]
pub(crate) struct Records(Mutex<Vec<FlowRecord>>, Mutex<Vec<NatEvent>>);

impl RecordOutlet for Records {
    fn take(&self, records: &mut Vec<FlowRecord>) {
        self.0.lock().expect("no thread panicked with this lock").append(records);
    }

    fn take_nat_events(&self, events: &mut Vec<NatEvent>, dropped: u64) {
        assert_eq!(dropped, 0);
        self.1.lock().expect("no thread panicked with this lock").append(events);
    }

    fn flush(&self) {}
}

impl Records {
    pub(crate) fn sorted_events(&self) -> Vec<String> {
        let events = self.1.lock().expect("no thread panicked with this lock");
        let mut events: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
        events.sort();
        events
    }

    fn sessions_told(&self) -> i64 {
        let change = |event: &NatEvent| match event {
            NatEvent::Session { session, .. } if session.created => 1,
            NatEvent::Session { .. } => -1,
            _ => 0,
        };
        self.1.lock().expect("no thread panicked with this lock").iter().map(change).sum()
    }

    pub(crate) fn sorted(&self) -> Vec<FlowRecord> {
        let mut records = self.0.lock().expect("no thread panicked with this lock").clone();
        sort_records(&mut records);
        records
    }
}

fn by_flow(outs: &[Out]) -> HashMap<u32, Vec<(u64, u16)>> {
    let mut flows: HashMap<u32, Vec<(u64, u16)>> = HashMap::new();
    for out in outs.iter().filter(|o| o.fate.is_ok()) {
        flows.entry(out.flow).or_default().push(out.place);
    }
    flows
}

pub(crate) fn check(shape: Shape, seed: u64, options: &ModelOptions, serial: &Run) {
    let what = format!("{shape:?}, seed {seed}, {options:?}");
    let other = run_shape(shape, seed, options);
    assert_eq!(other.packets_in, other.packets_out + other.dropped.iter().sum::<u64>(), "{what}");
    assert_eq!(other.dropped, serial.dropped, "drops: {what}");
    assert_eq!((other.packets_in, other.packets_out), (serial.packets_in, serial.packets_out), "{what}");
    assert_eq!(other.classes, serial.classes, "classes: {what}");
    assert_eq!(other.nat, serial.nat, "state: {what}");
    assert_eq!(other.acl, serial.acl, "access lists: {what}");
    assert!(other.records == serial.records, "flow records: {what}");
    assert!(other.events == serial.events, "events of NAT: {what}");
    assert_eq!(other.sessions_told, serial.sessions_told, "{what}");
    let totals = |run: &Run| {
        let mut totals = run.metered?;
        totals.memory_bytes = 0;
        Some(totals)
    };
    assert_eq!(totals(&other), totals(serial), "metered: {what}");
    if options.kind != ModelKind::Farm || options.ordered {
        assert!(other.outs == serial.outs, "total order: {what}");
    }
    assert_eq!(by_flow(&other.outs), by_flow(&serial.outs), "order within flows: {what}");
    let mut sorted = other.outs;
    sorted.sort();
    let mut expected = serial.outs.clone();
    expected.sort();
    for (a, b) in sorted.iter().zip(&expected) {
        assert_eq!(a, b, "{what}");
    }
    assert_eq!(sorted.len(), expected.len(), "{what}");
}

#[test]
fn every_model_and_worker_count_gives_the_serial_answer() {
    for seed in 1..=6 {
        let serial = run(seed, &ModelOptions::new(ModelKind::Serial, 1));
        assert!(serial.packets_out * 5 > serial.packets_in, "most of the traffic must get through");
        let counters = serial.nat_counters.expect("it translates");
        assert!(counters.nat64_out > 20 && counters.nat64_in > 0, "{counters:?}");
        for workers in 1..=8 {
            for kind in ModelKind::ALL {
                let mut options = ModelOptions::new(kind, workers);
                options.ordered = workers % 2 == 0;
                options.readers = 1 + workers % 3;
                options.tokens = 1 + workers * 3;
                check(Shape::Full, seed, &options, &serial);
            }
        }
    }
}

/// Connections are in the shards of the packets that they consist of: NAT's, the flow's, and of hairpins the lower of
/// two.
#[test]
fn a_firewall_gives_the_serial_answer_under_every_model() {
    for seed in 1..=3 {
        let serial = run_shape(Shape::Firewall, seed, &ModelOptions::new(ModelKind::Serial, 1));
        let dropped = |reason: DropReason| serial.dropped[reason as usize];
        for reason in [
            DropReason::FirewallInvalid,
            DropReason::FirewallNotAsked,
            DropReason::FirewallDenied,
            DropReason::FirewallLimit,
        ] {
            assert!(dropped(reason) > 0, "{reason:?}: {}", serial.nat);
        }
        assert!(
            serial.packets_out * 8 > serial.packets_in,
            "{} of {}",
            serial.packets_out,
            serial.packets_in
        );
        for workers in 1..=6 {
            for kind in ModelKind::ALL {
                let mut options = ModelOptions::new(kind, workers);
                options.ordered = workers % 2 == 0;
                options.readers = 1 + workers % 3;
                options.tokens = 1 + workers * 3;
                check(Shape::Firewall, seed, &options, &serial);
            }
        }
    }
}

/// The way out decides which of two NATs translates a packet, whatever core decides it.
#[test]
fn two_outside_ports_give_the_serial_answer_under_every_model() {
    for seed in 1..=2 {
        let serial = run_shape(Shape::Outsides, seed, &ModelOptions::new(ModelKind::Serial, 1));
        let source = |ip: [u8; 4]| {
            let sent = serial.outs.iter().filter_map(|out| out.fate.as_ref().ok());
            sent.filter(|(_, frame)| frame.get(26..30) == Some(&ip[..]))
                .map(|(port, _)| *port)
                .collect::<Vec<_>>()
        };
        let (first, second) = (source([203, 0, 113, 2]), source([192, 0, 2, 2]));
        assert!(first.len() > 20 && second.len() > 20, "both are used: {} {}", first.len(), second.len());
        assert!(second.iter().all(|port| *port != 0), "no address of one leaves by the other");
        for rule in ["connected", "phones", "web", "never", "ipv6"] {
            let counted = format!("rule: \"{rule}\", action: \"choose\", count: RuleCount {{ packets: 0,");
            assert!(serial.nat.contains(&format!("rule: \"{rule}\"")), "{}", serial.nat);
            assert!(!serial.nat.contains(&counted), "{rule} matches: {}", serial.nat);
        }
        for workers in 1..=5 {
            for kind in ModelKind::ALL {
                let mut options = ModelOptions::new(kind, workers);
                options.ordered = workers % 2 == 0;
                options.readers = 1 + workers % 3;
                check(Shape::Outsides, seed, &options, &serial);
            }
        }
    }
}

/// Sessions begun minus sessions ended equals the existing sessions.
#[test]
fn sessions_told_to_begin_and_not_to_end_are_those_there_are() {
    let mut expired = 0;
    for seed in 1..=6 {
        let run = run(seed, &ModelOptions::new(ModelKind::RunToCompletion, 2));
        let counters = run.nat_counters.expect("it translates");
        assert_eq!(run.sessions_told, counters.sessions_active as i64);
        let begun = run.events.iter().filter(|event| event.contains("created: true")).count() as u64;
        let ended = run.events.iter().filter(|event| event.contains("created: false")).count() as u64;
        assert_eq!((begun, ended), (counters.sessions_created, begun), "at the end of all, all are over");
        assert!(counters.sessions_active > 0, "{counters:?}");
        expired += counters.sessions_expired;
    }
    assert!(expired > 0, "some are over before");
}

/// The meter's records describe the packets as they arrived, and their fate.
#[test]
fn every_packet_is_in_a_flow_record_or_could_not_be_read() {
    let run = run(2, &ModelOptions::new(ModelKind::Serial, 1));
    let totals = run.metered.expect("it meters");
    assert!(totals.holds() && totals.cached.packets == 0);
    let unmetered = totals.not_metered_sum().packets;
    let metered: u64 = run.records.iter().map(FlowRecord::packets).sum();
    assert!(unmetered * 10 < metered && unmetered > 0, "{unmetered} of {metered}: {totals:?}");
    assert_eq!(metered + unmetered, run.packets_in);
    let dropped: u64 = run.records.iter().map(|record| record.drops.packets()).sum();
    assert_eq!(dropped + unmetered, run.dropped.iter().sum::<u64>());
    let of_reason = |reason: DropReason| -> u64 {
        let drops = run.records.iter().flat_map(|record| record.drops.by_reason().collect::<Vec<_>>());
        drops.filter(|(other, _)| *other == reason).map(|(_, packets)| u64::from(packets)).sum()
    };
    for reason in [DropReason::Policed, DropReason::NatNoMapping, DropReason::TtlExpired] {
        assert!(of_reason(reason) <= run.dropped[reason as usize] && of_reason(reason) > 0, "{reason:?}");
    }

    let public: IpAddr = "203.0.113.2".parse().unwrap();
    let is_inside = |address: IpAddr| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
    let mut ways = [0; 3];
    for record in &run.records {
        let Some(after) = record.translation else { continue };
        let (key, passed) = (record.key, record.packets() > record.drops.packets());
        let is_hairpin = is_inside(key.src) && key.dst == public;
        if is_hairpin {
            assert!(after.src == public, "{record:?}");
        } else if is_inside(key.src) {
            assert!(after.src == public && after.dst == key.dst, "{record:?}");
        } else {
            assert!(key.dst == public && is_inside(after.dst) && after.src == key.src, "{record:?}");
        }
        assert!(!passed || (1..=3).contains(&record.egress), "{record:?}");
        ways[if is_hairpin { 0 } else { 1 + usize::from(is_inside(key.src)) }] += 1;
    }
    assert!(ways.iter().all(|count| *count > 0), "{ways:?}");
}

/// Stages without work are left out. The rest gives the same answer under every model too.
#[test]
fn routers_with_few_stages_give_the_serial_answer() {
    for shape in [Shape::NatOnly, Shape::Filtered, Shape::RoutesOnly] {
        let serial = run_shape(shape, 3, &ModelOptions::new(ModelKind::Serial, 1));
        assert!(serial.packets_out * 5 > serial.packets_in, "most of the traffic must get through");
        let dropped = |reason: DropReason| serial.dropped[reason as usize];
        assert!(dropped(DropReason::IpChecksum) > 0 && dropped(DropReason::TtlExpired) > 0);
        let nat = matches!(shape, Shape::NatOnly | Shape::Filtered);
        assert_eq!(dropped(DropReason::NatFiltered) > 0, matches!(shape, Shape::Filtered));
        assert_eq!(dropped(DropReason::FragmentWithoutFirst) > 0, nat);
        assert!(serial.outs.is_sorted_by_key(|out| out.place), "packets leave as they came");
        for workers in 1..=5 {
            for kind in ModelKind::ALL {
                let mut options = ModelOptions::new(kind, workers);
                options.ordered = workers % 2 == 0;
                options.readers = 1 + workers % 3;
                check(shape, 3, &options, &serial);
            }
        }
    }
}

/// Two routers whose NAT has different seeds choose different ports, and a successor keeps its predecessor's seed,
/// even if it is the first to translate.
#[test]
fn nat_is_keyed_with_the_seed_of_its_router() {
    let with_nat = Shape::NatOnly.config().replace("sessions_max", "port_selection = \"hash\"\nsessions_max");
    let config = |text: &str| RouterConfig::from_text("test.toml", text, Path::new(".")).unwrap();
    let (new, before) = (config(&with_nat), config(&Shape::RoutesOnly.config()));
    let routes = || Routes::build(&new).unwrap().router();
    let outs = |plan: &RouterPlan| {
        let (mut sink, mut source) = (Collect::default(), Feed(traffic(1, 2).into_iter()));
        thalweg_exec::run(plan, &mut source, &mut sink, &ModelOptions::new(ModelKind::Serial, 1)).unwrap();
        sink.packets
    };
    let keyed = |seed| outs(&RouterPlan::with_hash_seed(&new, routes(), seed).unwrap());
    let fixed = || outs(&RouterPlan::from_config(&new, None).unwrap());
    assert!(keyed(1) == keyed(1) && fixed() == fixed(), "the same seed gives the same answer");
    assert!(keyed(1) != keyed(2) && keyed(1) != fixed(), "another seed gives other ports");
    let first = RouterPlan::with_hash_seed(&before, routes(), 7).unwrap();
    let successor = first.successor(&before, &new, routes(), 1, None).unwrap();
    assert!(outs(&successor.migrate_state(&first).0) == keyed(7), "a successor keeps the seed");
}

/// A reload adds a port, and leaves the number of another vacant: others keep theirs, and in every model their
/// packets are treated as before.
#[test]
fn ports_that_come_and_go_change_nothing_for_others() {
    let text = Shape::NatOnly.config();
    let before = RouterConfig::from_text("test.toml", &text, Path::new(".")).unwrap();
    let mut places = Places::of(&before);
    places.ports.push("gone".to_owned());
    let more = "[ports.aaa]\nmac = \"02:00:00:00:0a:aa\"\naddresses = [\"100.127.255.1/30\"]\n";
    let source = ConfigSource::of_text("test.toml", &format!("{text}\n{more}"), Path::new("."));
    let after = source.config_in_places(&[], &places).unwrap();
    let kept = before.ports.len();
    assert!(after.ports[..kept] == before.ports[..] && after.ports[kept].is_vacant());
    assert_eq!((after.ports[kept + 1].name.as_str(), after.ports.len()), ("aaa", kept + 2));
    let routes = || Routes::build(&after).unwrap().router();
    let outs = |plan: &RouterPlan, options: &ModelOptions| {
        let (mut sink, mut source) = (Collect::default(), Feed(traffic(1, 2).into_iter()));
        thalweg_exec::run(plan, &mut source, &mut sink, options).unwrap();
        sink.packets
    };
    let serial = ModelOptions::new(ModelKind::Serial, 1);
    let expected = outs(&RouterPlan::from_config(&before, None).unwrap(), &serial);
    for kind in ModelKind::ALL {
        let first = RouterPlan::from_config(&before, None).unwrap();
        let options = ModelOptions { ordered: true, ..ModelOptions::new(kind, 2) };
        let successor = first.successor(&before, &after, routes(), 2, None).unwrap();
        assert!(outs(&successor.migrate_state(&first).0, &options) == expected, "{kind}");
    }
}

#[test]
fn the_traffic_reaches_every_corner() {
    let serial = run(1, &ModelOptions::new(ModelKind::Serial, 1));
    let hits: Vec<&str> =
        DropReason::ALL.iter().filter(|r| serial.dropped[**r as usize] > 0).map(|r| r.name()).collect();
    for name in [
        "ip-checksum",
        "ttl-expired",
        "policed",
        "nat-no-mapping",
        "blackhole",
        "fragment-without-first",
        "acl-denied",
        "reverse-path",
    ] {
        assert!(hits.contains(&name), "no packet was dropped as {name}: {hits:?}");
    }
    assert!(serial.classes.iter().all(|n| *n > 20), "{:?}", serial.classes);
    for rules in &serial.acl {
        assert!(rules.iter().all(|rule| rule.packets > 0 && rule.bytes > 0), "{:?}", serial.acl);
    }
    let chunks = traffic(1, 12);
    let hairpins = chunks
        .iter()
        .flat_map(|c| (0..c.packets().len()).map(|i| c.frame(i)))
        .filter(|f| f.len() > 20 && f[12] == 10 && f[16..20] == [203, 0, 113, 2])
        .count();
    assert!(hairpins > 50, "{hairpins}");
}
