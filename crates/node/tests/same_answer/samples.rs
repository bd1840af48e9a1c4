//! Samples of packets: the same under every model where each packet is sampled, and pools that count every packet.

use std::collections::BTreeMap;

use thalweg_base::{PacketFate, PacketSample, StartLink, mix64};
use thalweg_flow::PacketSampling;

use super::*;

const SEED: u64 = 77;

/// Takes samples, and packets that no sample tells.
#[derive(Default)]
struct Samples(Mutex<Vec<PacketSample>>, Mutex<BTreeMap<u16, u32>>);

impl RecordOutlet for Samples {
    fn take(&self, records: &mut Vec<FlowRecord>) {
        records.clear();
    }

    fn take_nat_events(&self, _events: &mut Vec<NatEvent>, _dropped: u64) {}

    fn take_samples(&self, samples: &mut Vec<PacketSample>) {
        self.0.lock().expect("no thread panicked with this lock").append(samples);
    }

    fn add_to_pool(&self, port: u16, packets: u32) {
        *self.1.lock().expect("no thread panicked with this lock").entry(port).or_default() += packets;
    }

    fn flush(&self) {}
}

struct Sampled {
    samples: Vec<PacketSample>,
    /// By port, of samples and of what none tells.
    pools: BTreeMap<u16, u32>,
    dropped: Vec<u64>,
}

fn sampled(shape: Shape, rate: u32, options: &ModelOptions) -> Sampled {
    let config = RouterConfig::from_text("test.toml", &shape.config(), Path::new(".")).expect("a router");
    let plan = RouterPlan::from_config(&config, None).expect("a plan");
    let outlet = Arc::new(Samples::default());
    let plan = plan.with_flows(&MeterOptions::default(), 1, outlet.clone()).expect("a meter");
    let sampling = PacketSampling { rate, ..PacketSampling::default() };
    let plan = plan.with_samples(Some(sampling), SEED).for_workers(options.workers);
    let mut source = Feed(traffic(4, 8).into_iter());
    let report = thalweg_exec::run(&plan, &mut source, &mut Collect::default(), options).expect("it runs");
    let dropped = plan.merged_account(report.scratches.iter()).dropped.to_vec();
    // What the workers have left is told when they end.
    drop(report);
    let samples = outlet.0.lock().expect("no thread panicked with this lock").clone();
    let mut pools = outlet.1.lock().expect("no thread panicked with this lock").clone();
    samples.iter().for_each(|sample| *pools.entry(sample.port_in).or_default() += sample.pool);
    Sampled { samples, pools, dropped }
}

/// How the packets begin, in order of arrival, with their link layers.
fn starts() -> Vec<(LinkType, Vec<u8>)> {
    let chunks = traffic(4, 8);
    let start = |frame: &[u8]| frame[..frame.len().min(128)].to_vec();
    let of = |chunk: &Chunk| -> Vec<_> {
        let packets = chunk.packets().iter().enumerate();
        packets.map(|(i, packet)| (packet.link, start(chunk.frame(i)))).collect()
    };
    chunks.iter().flat_map(of).collect()
}

fn bytes_of(sample: &PacketSample) -> Vec<u8> {
    sample.start.as_ref().expect("it has a header").bytes.clone()
}

const SERIAL: fn() -> ModelOptions = || ModelOptions::new(ModelKind::Serial, 1);

#[test]
fn one_in_one_is_every_packet_as_it_came_with_its_fate() {
    for shape in [Shape::Full, Shape::NatOnly, Shape::RoutesOnly] {
        let serial = sampled(shape, 1, &SERIAL());
        let all = starts();
        assert_eq!(serial.samples.len(), all.len(), "{shape:?}");
        // Of other links, those that cannot be read have no header that sFlow knows.
        let is_ethernet = |sample: &&PacketSample| {
            sample.start.as_ref().is_some_and(|start| start.link == StartLink::Ethernet)
        };
        let mut got: Vec<_> = serial.samples.iter().filter(is_ethernet).map(bytes_of).collect();
        let ethernet = all.into_iter().filter(|(link, _)| *link == LinkType::Ethernet);
        let mut came: Vec<_> = ethernet.map(|(_, start)| start).collect();
        got.sort();
        came.sort();
        assert!(got == came, "{shape:?}: {} of {}", got.len(), came.len());
        for reason in DropReason::ALL {
            // The host thread sends these on.
            if matches!(reason, DropReason::NeighborUnresolved | DropReason::MtuExceeded) {
                continue;
            }
            let of = |sample: &&PacketSample| sample.fate == Some(PacketFate::Dropped(*reason));
            let told = serial.samples.iter().filter(of).count() as u64;
            assert_eq!(told, serial.dropped[*reason as usize], "{shape:?}: {reason:?}");
        }
        let leaves = |sample: &&PacketSample| {
            matches!(sample.fate, Some(PacketFate::Leaves { addresses: Some(_), .. }))
        };
        assert!(serial.samples.iter().filter(leaves).count() > 100, "{shape:?}");
        let sorted = |sampled: &Sampled| {
            let mut all: Vec<String> = sampled.samples.iter().map(|sample| format!("{sample:?}")).collect();
            all.sort();
            all
        };
        for kind in ModelKind::ALL {
            let options = ModelOptions::new(kind, if kind == ModelKind::Serial { 1 } else { 3 });
            let other = sampled(shape, 1, &options);
            assert!(sorted(&other) == sorted(&serial), "{shape:?}, {kind:?}");
        }
    }
}

#[test]
fn the_sampled_packets_are_those_of_a_slow_reference() {
    let rate = 20;
    let serial = sampled(Shape::RoutesOnly, rate, &SERIAL());
    // Each packet is asked whether its number is the next one.
    let mut rng = XorShift64Star::new(mix64(SEED));
    let mut skip = || {
        let chance = ((rng.next_u64() >> 32) as f64 + 1.0) / 4_294_967_296.0;
        (chance.ln() / (-1.0 / f64::from(rate)).ln_1p()) as usize
    };
    let (mut next, mut expected) = (skip(), Vec::new());
    for (number, (_, start)) in starts().into_iter().enumerate() {
        if number == next {
            expected.push(start);
            next += 1 + skip();
        }
    }
    let got: Vec<Vec<u8>> = serial.samples.iter().map(bytes_of).collect();
    assert!(got == expected, "{} and {}", got.len(), expected.len());
}

#[test]
fn the_pools_of_all_workers_count_every_packet() {
    let all = sampled(Shape::Full, 1, &SERIAL()).pools;
    let packets: u32 = all.values().sum();
    for kind in ModelKind::ALL {
        let options = ModelOptions::new(kind, if kind == ModelKind::Serial { 1 } else { 3 });
        let some = sampled(Shape::Full, 20, &options);
        assert_eq!(some.pools, all, "{kind:?}");
        let (count, mean) = (some.samples.len() as f64, f64::from(packets) / 20.0);
        assert!((count - mean).abs() < 6.0 * mean.sqrt(), "{kind:?}: {count}, not about {mean}");
    }
}
