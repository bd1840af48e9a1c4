//! Workers with their own receive queues treat every flow as the serial model does, byte for byte and in order,
//! without state and through NAT, hairpins included; the counters are the same.

use std::collections::BTreeMap;
use std::path::Path;
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, NO_PORT, XorShift64Star, mix64};
use thalweg_config::RouterConfig;
use thalweg_exec::{Lane, ModelKind, ModelOptions, RunReport, Sink, Source};
use thalweg_node::plan::{RouterPlan, Scratch};
use thalweg_wire::testing;

const CONFIG: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/24"]
default_mac = "02:00:00:00:ff:01"

[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["10.0.0.1/16"]
default_mac = "02:00:00:00:ff:02"

[[routes]]
prefix = "0.0.0.0/0"
via = "203.0.113.1"
"#;

const NAT: &str = r#"
[nat]
outside = "wan"
inside = ["lan"]
addresses = ["203.0.113.2"]

[[nat.forwards]]
protocol = "udp"
port = 8080
to = "10.0.0.10:80"
"#;

const FLOWS: u32 = 240;

/// Packet `number` of a flow: from inside to the world, from the world to the forwarded port, or from inside to that.
fn packet(flow: u32, number: u32) -> Vec<u8> {
    let inside = [10, 0, 1 + (flow / 200) as u8, 10 + (flow % 200) as u8];
    let (outside, public) = ([198, 51, 100, flow as u8], [203, 0, 113, 2]);
    // Each flow has a port that no other wants, so that it keeps it in any order.
    let own_port = 3000 + flow as u16;
    let (src, dst, dst_port): (_, _, u16) = match flow % 8 {
        0 => (outside, public, 8080),
        1 => (inside, public, 8080),
        _ => (inside, outside, 53),
    };
    let payload = [flow.to_be_bytes(), number.to_be_bytes()].concat();
    let packet = testing::udp((src, own_port), (dst, dst_port), &payload);
    if mix64(u64::from(flow) << 32 | u64::from(number)).is_multiple_of(17) {
        return testing::with_ipv4_field(packet, 8, &[1]);
    }
    packet
}

/// The chunks of each lane: a flow has one, and lanes' clocks are microseconds apart.
fn traffic(seed: u64, lanes: usize, packets: u32) -> Vec<Vec<Chunk>> {
    let mut rng = XorShift64Star::new(seed);
    let mut numbers = [0; FLOWS as usize];
    let mut queues: Vec<Vec<(u64, Vec<u8>)>> = vec![Vec::new(); lanes];
    for i in 0..packets {
        let flow = rng.below(FLOWS);
        let lane = mix64(u64::from(flow) ^ seed) as usize % lanes;
        // Now and then a second and a half passes, for timers.
        let arrival_ns = 1_700_000_000_000_000_000 + u64::from(i / 512) * 1_500_000_000 + u64::from(i) * 1000;
        queues[lane].push((arrival_ns + u64::from(rng.below(30_000)), packet(flow, numbers[flow as usize])));
        numbers[flow as usize] += 1;
    }
    queues.iter().map(|queue| cut(&mut rng, queue)).collect()
}

fn cut(rng: &mut XorShift64Star, mut rest: &[(u64, Vec<u8>)]) -> Vec<Chunk> {
    let (mut chunks, mut clock_ns) = (Vec::new(), 0);
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + rng.below(100) as usize).min(rest.len()));
        let mut builder = ChunkBuilder::with_capacity(now.len() * 128);
        for (arrival_ns, bytes) in now {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            builder.push(at, bytes.len(), bytes.len() as u32, *arrival_ns, LinkType::RawIp, NO_PORT, 0);
        }
        let chunk = builder.finish(chunks.len() as u64, 1, clock_ns);
        clock_ns = chunk.clock_ns;
        chunks.push(chunk);
        rest = later;
    }
    chunks
}

struct Feed(std::vec::IntoIter<Chunk>, XorShift64Star);

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        // Lanes meet differently each time.
        (0..self.1.below(4)).for_each(|_| std::thread::yield_now());
        self.0.next()
    }
}

fn feed(chunks: Vec<Chunk>, seed: u64) -> Feed {
    Feed(chunks.into_iter(), XorShift64Star::new(seed))
}

/// By flow: each packet's number, and how it left or why it was dropped.
type Fates = BTreeMap<u32, Vec<(u32, Result<(u16, Vec<u8>), DropReason>)>>;

#[derive(Default)]
struct Collect(Fates);

impl Sink<Chunk> for Collect {
    fn accept(&mut self, chunk: Chunk) {
        for (i, packet) in chunk.packets().iter().enumerate() {
            let frame = chunk.frame(i);
            let word =
                |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
            let fate = match packet.drop_reason() {
                Some(reason) => Err(reason),
                None => Ok((packet.port_out, chunk.egress_frame(i).to_vec())),
            };
            self.0.entry(word(28)).or_default().push((word(32), fate));
        }
    }
}

fn plan(extra: &str, workers: usize) -> RouterPlan {
    let config = RouterConfig::from_text("test.toml", &format!("{CONFIG}{extra}"), Path::new("."));
    let config = config.unwrap_or_else(|e| panic!("{e}"));
    RouterPlan::from_config(&config, None).unwrap_or_else(|e| panic!("{e}")).for_workers(workers)
}

/// The counters, in words.
fn counters(plan: &RouterPlan, report: &RunReport<Scratch>) -> String {
    let account = plan.merged_account(report.scratches.iter());
    assert_eq!(account.packets_in, account.packets_out + account.dropped.iter().sum::<u64>());
    let dropped = account.dropped.to_vec();
    format!("{} {} {dropped:?} {:?}", account.packets_in, account.packets_out, plan.nat_counters())
}

fn serial(seed: u64, lanes: usize, packets: u32, extra: &str) -> (Fates, String) {
    let mut chunks: Vec<Chunk> = traffic(seed, lanes, packets).into_iter().flatten().collect();
    // Stable, and a lane's clock never goes back: its chunks stay in order.
    chunks.sort_by_key(|chunk| chunk.clock_ns);
    for (sequence, chunk) in (0..).zip(&mut chunks) {
        chunk.sequence = sequence;
    }
    let plan = plan(extra, 1);
    let mut sink = Collect::default();
    let options = ModelOptions::new(ModelKind::Serial, 1);
    let report = thalweg_exec::run(&plan, &mut feed(chunks, seed), &mut sink, &options).expect("it runs");
    (sink.0, counters(&plan, &report))
}

fn in_lanes(seed: u64, lanes: usize, packets: u32, extra: &str) -> (Fates, String) {
    let plan = plan(extra, lanes);
    let chunks = traffic(seed, lanes, packets).into_iter();
    let mut sources: Vec<Feed> = (seed..).zip(chunks).map(|(seed, chunks)| feed(chunks, seed)).collect();
    let mut sinks: Vec<Collect> = (0..lanes).map(|_| Collect::default()).collect();
    let ends = sources.iter_mut().zip(&mut sinks).map(|(source, sink)| Lane { source, sink });
    let report = thalweg_exec::run_lanes(&plan, ends.collect(), None, &|| ()).expect("it runs");
    let mut all = Fates::new();
    for sink in sinks {
        for (flow, fates) in sink.0 {
            assert!(all.insert(flow, fates).is_none(), "a flow came by two lanes");
        }
    }
    (all, counters(&plan, &report))
}

#[test]
fn flows_get_what_the_serial_model_gives_them() {
    for extra in ["", NAT] {
        for lanes in 1..=5 {
            for seed in 0..12 {
                let packets = 3000;
                let (expected, expected_counters) = serial(seed, lanes, packets, extra);
                let (fates, counters) = in_lanes(seed, lanes, packets, extra);
                let what = format!("seed {seed}, {lanes} lanes, NAT {}", !extra.is_empty());
                assert_eq!(counters, expected_counters, "{what}");
                assert_eq!(fates.len(), expected.len(), "{what}");
                for (flow, expected) in &expected {
                    assert_eq!(fates.get(flow), Some(expected), "flow {flow}, {what}");
                }
            }
        }
    }
}

/// Checks that the comparison covers sessions, hairpins and drops.
#[test]
fn the_traffic_reaches_what_it_should() {
    let (fates, counters) = serial(1, 2, 3000, NAT);
    let passed = fates.values().flatten().filter(|(_, fate)| fate.is_ok()).count();
    assert!(passed > 2500, "{counters}");
    assert!(!counters.contains("hairpins: 0") && !counters.contains("sessions_created: 0"), "{counters}");
    assert!(fates.values().flatten().any(|(_, fate)| *fate == Err(DropReason::TtlExpired)));
}
