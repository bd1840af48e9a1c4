//! A frame that merges segments of a TCP flow is treated like these segments: cut behind the stages, it gives the
//! packets, byte for byte, that the stages make of the cut frame, in the same order, with the same drops, counters,
//! NAT sessions and flow records.

use std::path::Path;
use std::sync::Arc;

use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, XorShift64Star};
use thalweg_config::RouterConfig;
use thalweg_dataplane::account::PortCounts;
use thalweg_dataplane::acl::RuleCount;
use thalweg_dataplane::nat::NatLogging;
use thalweg_exec::{ModelKind, ModelOptions, Sink, Source};
use thalweg_flow::application::Labeling;
use thalweg_flow::{FlowRecord, MeterOptions, MeterTotals};
use thalweg_node::plan::RouterPlan;
use thalweg_ports::live::segment::{Segments, link_header_bytes};
use thalweg_wire::{ip_protocol, tcp};

use crate::same_answer::Records;

const WAN: u16 = 0;
const LAN: u16 = 1;
const NARROW: u16 = 2;

const CONFIG: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
default_mac = "02:00:00:00:ff:01"
acl_in = "from-internet"

[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["10.0.0.1/16", "2001:db8:1::1/64"]
default_mac = "02:00:00:00:ff:02"
acl_in = "from-inside"

[ports.narrow]
mac = "02:00:00:00:00:03"
mtu = 1300
addresses = ["10.1.0.1/16"]
default_mac = "02:00:00:00:ff:03"

[[routes]]
prefix = "0.0.0.0/0"
via = "203.0.113.1"

[[routes]]
prefix = "2001:db8::/32"
via = "2001:db8:ffff::1"

[nat]
outside = "wan"
inside = ["lan"]
addresses = ["203.0.113.2"]
ports = "2000-6095"
sessions_max = 300
shards = 16
nat64 = "2001:db8:64::/96"

[[nat.forwards]]
protocol = "tcp"
port = 8080
to = "10.0.0.10:80"

[[acl]]
name = "from-internet"
default = "permit"
[[acl.rules]]
action = "deny"
protocol = "tcp"
tcp_flags = ["syn,!ack", "rst,!ack"]
[[acl.rules]]
action = "reject"
destination_ports = "2100-2110"

[[acl]]
name = "from-inside"
default = "permit"
[[acl.rules]]
action = "deny"
source = "10.0.0.16/30"
[[acl.rules]]
action = "permit"
dscp = "ef"

[[qos.classes]]
name = "voice"
strict = 0
match = [{ dscp = ["ef"] }]

[[qos.classes]]
name = "bulk"
strict = 1
match = [{ protocol = "tcp" }]
"#;

/// A frame as the kernel would merge it, with the payload bytes of its segments.
struct Made {
    frame: Vec<u8>,
    segment_bytes: u16,
    port: u16,
}

/// A frame of a random conversation across the router. Its transport checksum is not set.
fn made(rng: &mut XorShift64Star) -> Made {
    let mut below = |n: usize| rng.below(n as u32) as usize;
    let options = below(4);
    let segment_bytes = 1 + below(1400);
    let count = if below(3) == 0 { 1 } else { 1 + below(40) };
    let (inside, outside) = ([10, 0, 0, 10 + below(12) as u8], [198, 51, 100, 20 + below(30) as u8]);
    let public = [203, 0, 113, 2];
    let (mut port, source, destination) = match below(8) {
        0..4 => (LAN, inside, outside),
        4..6 => (WAN, outside, public),
        6 => (LAN, inside, public),
        _ => (LAN, inside, [10, 1, 0, 9]),
    };
    let v6 = below(5) == 0;
    let to_ipv4 = v6 && below(2) == 0;
    // Segments to the narrow port fit, or none does. Those of IPv6 to IPv4 may all be cut, or none.
    let segment_bytes = if to_ipv4 { segment_bytes.min(1200) } else { segment_bytes };
    let (segment_bytes, payload_bytes) = match (destination, below(3)) {
        _ if to_ipv4 => (segment_bytes, (count - 1) * segment_bytes + 1 + below(segment_bytes)),
        ([10, 1, 0, 9], 0) => (1350, count * 1350),
        ([10, 1, 0, 9], _) => (segment_bytes.min(1200), count * segment_bytes.min(1200)),
        _ => (segment_bytes, (count - 1) * segment_bytes + 1 + below(segment_bytes)),
    };
    let flags = match count {
        1 => [tcp::SYN, tcp::SYN | tcp::ACK, tcp::ACK, tcp::FIN | tcp::ACK, tcp::RST][below(5)],
        _ => tcp::ACK | [0, tcp::PSH][below(2)],
    };
    let ports = [[80, 8080, 2000 + below(200)][below(3)], [443, 8080, 2000 + below(200)][below(3)]];
    let mut segment = Vec::new();
    ports.iter().for_each(|port| segment.extend((*port as u16).to_be_bytes()));
    segment.extend((below(1 << 30) as u32).to_be_bytes());
    segment.extend((below(1 << 30) as u32).to_be_bytes());
    segment.extend([(5 + options as u8) << 4, flags, 1, 2, below(256) as u8, below(256) as u8, 0, 0]);
    segment.extend(std::iter::repeat_n(1, options * 4));
    segment.extend((0..payload_bytes).map(|at| (at * 7) as u8));

    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    (0..below(3)).for_each(|_| frame.extend([0x81, 0, 0, 9]));
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    let (ttl, class) = (if below(20) == 0 { 1 } else { 64 }, [0, 46 << 2, 1][below(3)]);
    if v6 {
        frame.extend([0x60 | class >> 4, class << 4, 0, 0]);
        frame.extend((segment.len() as u16).to_be_bytes());
        frame.extend([
            ip_protocol::TCP,
            ttl,
            0x20,
            1,
            0x0d,
            0xb8,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            inside[3],
        ]);
        match to_ipv4 {
            true => frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0, 198, 51, 100, outside[3]]),
            false => frame.extend([0x20, 1, 0x0d, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, outside[3]]),
        }
        port = LAN;
    } else {
        let at = frame.len();
        frame.extend([0x45, class]);
        frame.extend((20 + segment.len() as u16).to_be_bytes());
        frame.extend([below(256) as u8, below(256) as u8, 0x40, 0, ttl, ip_protocol::TCP, 0, 0]);
        frame.extend(source);
        frame.extend(destination);
        thalweg_wire::ipv4::write_checksum(&mut frame[at..at + 20]);
    }
    frame.extend(segment);
    Made { frame, segment_bytes: segment_bytes as u16, port }
}

/// The segments of a frame, as a wire would carry them.
fn cut(frame: &[u8], segment_bytes: u16) -> Vec<Vec<u8>> {
    let mut segments = Segments::of_tcp(frame, link_header_bytes(frame), segment_bytes).unwrap();
    let mut all = Vec::new();
    while let Some(bytes) = segments.next_bytes() {
        let mut segment = vec![0; bytes];
        segments.write_next(frame, &mut segment);
        all.push(segment);
    }
    all
}

fn push(builder: &mut ChunkBuilder, frame: &[u8], port: u16, now_ns: u64) {
    let at = builder.next_frame_offset();
    builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
    builder.push(at, frame.len(), frame.len() as u32, now_ns, LinkType::Ethernet, port, 0);
}

/// The same chunks merged or cut.
fn traffic(seed: u64, merged: bool) -> Vec<Chunk> {
    let mut rng = XorShift64Star::new(seed);
    let (mut clock_ns, mut number) = (1_700_000_000_000_000_000, 1);
    (0..10)
        .map(|sequence| {
            let before_ns = clock_ns;
            let mut builder = ChunkBuilder::with_capacity(8 << 20);
            for _ in 0..1 + rng.below(60) {
                clock_ns += u64::from(rng.below(400_000_000));
                let Made { frame, segment_bytes, port } = made(&mut rng);
                let segments = cut(&frame, segment_bytes);
                if merged && segments.len() > 1 {
                    push(&mut builder, &frame, port, clock_ns);
                    let headers = segments[0].len() - usize::from(segment_bytes);
                    builder.merge_last(headers as u8, segment_bytes);
                } else {
                    segments.iter().for_each(|segment| push(&mut builder, segment, port, clock_ns));
                }
            }
            let packets = builder.len() as u64;
            let chunk = builder.finish(sequence, number, before_ns);
            number += packets;
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

/// What leaves, each merged frame cut, and the reasons of drops.
#[derive(Default)]
struct Cut(Vec<Result<(u16, Vec<u8>), DropReason>>);

impl Sink<Chunk> for Cut {
    fn accept(&mut self, chunk: Chunk) {
        for (place, packet) in chunk.packets().iter().enumerate() {
            match (packet.drop_reason(), packet.segment_bytes()) {
                (Some(reason), _) => {
                    self.0.extend((0..packet.wire_packets()).map(|_| Err(reason)));
                }
                (None, None) => self.0.push(Ok((packet.port_out, chunk.egress_frame(place).to_vec()))),
                (None, Some(segment_bytes)) => {
                    let segments = cut(chunk.egress_frame(place), segment_bytes);
                    assert_eq!(segments.len(), packet.wire_packets() as usize);
                    self.0.extend(segments.into_iter().map(|segment| Ok((packet.port_out, segment))));
                }
            }
        }
    }
}

struct Answer {
    outs: Vec<Result<(u16, Vec<u8>), DropReason>>,
    packets: (u64, u64),
    dropped: Vec<u64>,
    ports: Vec<PortCounts>,
    classes: Vec<(u64, u64, u64)>,
    residence: Vec<u64>,
    nat: String,
    acl: Vec<Vec<RuleCount>>,
    records: Vec<FlowRecord>,
    events: Vec<String>,
    metered: MeterTotals,
}

impl Answer {
    fn assert_is(&self, other: &Self, what: &str) {
        assert_eq!(self.packets, other.packets, "{what}");
        assert_eq!(self.dropped, other.dropped, "{what}");
        assert_eq!(self.ports, other.ports, "{what}");
        assert_eq!((&self.classes, &self.residence), (&other.classes, &other.residence), "{what}");
        assert_eq!(self.nat, other.nat, "{what}");
        assert_eq!(self.acl, other.acl, "{what}");
        assert_eq!(self.metered, other.metered, "{what}");
        assert_eq!(self.events, other.events, "{what}");
        assert!(self.records == other.records, "flow records differ: {what}");
        let differ = self.outs.iter().zip(&other.outs).position(|(one, other)| one != other);
        if let Some(at) = differ {
            assert_eq!(self.outs[at], other.outs[at], "packet {at}: {what}");
        }
        assert_eq!(self.outs.len(), other.outs.len(), "{what}");
    }
}

fn answer(seed: u64, merged: bool, options: &ModelOptions) -> Answer {
    let config =
        RouterConfig::from_text("test.toml", CONFIG, Path::new(".")).unwrap_or_else(|e| panic!("{e}"));
    let plan = RouterPlan::from_config(&config, None).unwrap_or_else(|e| panic!("{e}"));
    let records = Arc::new(Records::default());
    let metering = MeterOptions { labeling: Labeling::Ports, ..MeterOptions::default() };
    let plan = plan.with_flows(&metering, 1, records.clone()).unwrap();
    let plan = plan.with_nat_events(NatLogging::Sessions, records.clone()).for_workers(options.workers);
    assert!(plan.takes_merged());
    let mut sink = Cut::default();
    let mut source = Feed(traffic(seed, merged).into_iter());
    let report = thalweg_exec::run(&plan, &mut source, &mut sink, options).unwrap_or_else(|e| panic!("{e}"));
    let account = plan.merged_account(report.scratches.iter());
    let acl = plan.acl_counts(report.scratches.iter());
    let flows = plan.flows().unwrap();
    flows.flush();
    let nat = format!("{:?}", plan.nat_counters());
    plan.send_nat_events();
    let mut metered = flows.meter.totals();
    assert!(metered.holds(), "{metered:?}");
    metered.memory_bytes = 0;
    Answer {
        outs: sink.0,
        packets: (account.packets_in, account.packets_out),
        dropped: account.dropped.to_vec(),
        ports: account.ports,
        classes: account.classes.iter().map(|class| (class.packets, class.bytes, class.dropped)).collect(),
        residence: account.classes.iter().map(|class| class.residence_ns.len()).collect(),
        nat,
        acl: (0..config.acls.len()).map(|list| plan.filters().acls.counts_of(list, &acl).to_vec()).collect(),
        records: records.sorted(),
        events: records.sorted_events(),
        metered,
    }
}

#[test]
fn a_merged_frame_is_treated_like_its_segments() {
    let mut dropped = vec![0; DropReason::CODES];
    let mut out = [0; 3];
    for seed in 1..=20 {
        let of_segments = answer(seed, false, &ModelOptions::new(ModelKind::Serial, 1));
        let (packets_in, packets_out) = of_segments.packets;
        assert_eq!(packets_in, packets_out + of_segments.dropped.iter().sum::<u64>());
        for kind in ModelKind::ALL {
            // A farm passes chunks on in their order only if asked to.
            let options = ModelOptions { ordered: true, ..ModelOptions::new(kind, 3) };
            let of_merged = answer(seed, true, &options);
            of_merged.assert_is(&of_segments, &format!("seed {seed}, {:?}", options.kind));
        }
        dropped.iter_mut().zip(&of_segments.dropped).for_each(|(sum, more)| *sum += more);
        for (port, _) in of_segments.outs.iter().flatten() {
            out[usize::from(*port)] += 1;
        }
    }
    // All kinds of fates were among them.
    for reason in
        [DropReason::TtlExpired, DropReason::AclDenied, DropReason::NatNoMapping, DropReason::MtuExceeded]
    {
        assert!(dropped[reason as usize] > 0, "{}", reason.name());
    }
    assert!(out[usize::from(WAN)] > 1000 && out[usize::from(LAN)] > 100, "{out:?}");
    assert!(out[usize::from(NARROW)] > 100, "{out:?}");
}

/// A plan that treats packets of one merged frame differently does not take it.
#[test]
fn some_plans_need_single_packets() {
    let plan = |config: &str| {
        let config = RouterConfig::from_text("test.toml", config, Path::new(".")).unwrap();
        RouterPlan::from_config(&config, None).unwrap()
    };
    assert!(plan(CONFIG).takes_merged());
    let policer = "[qos.classes.policer]\nkind = \"trtcm\"\ncir = \"20 kbit/s\"\ncbs = \"2 KiB\"\npir = \"40 kbit/s\"\npbs = \"3 KiB\"\n";
    assert!(!plan(&format!("{CONFIG}{policer}")).takes_merged());
    assert!(!plan(&CONFIG.replace("rst,!ack", "psh,!ack")).takes_merged());
    let outlet = || Arc::new(Records::default());
    let metered = |options: MeterOptions| plan(CONFIG).with_flows(&options, 1, outlet()).unwrap();
    let payload = MeterOptions { labeling: Labeling::Payload, ..MeterOptions::default() };
    assert!(!metered(payload).takes_merged());
    let sampled =
        MeterOptions { sampling: thalweg_flow::Sampling::Count { interval: 10 }, ..MeterOptions::default() };
    assert!(!metered(sampled).takes_merged());
}
