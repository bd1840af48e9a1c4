//! Compares the meter with a reference that keeps flows in a map, scans all of them each time and has the same
//! rules.

mod limits;
mod reference;
mod told;
mod vrfs;

use super::*;
use crate::record::{Counters, FlowKey};
use crate::sampling::Sampling;
use crate::testing::{self, Sample};
use crate::{Amount, Bytes, KeyFields};
use proptest::prelude::*;
use reference::Reference;
use std::net::IpAddr;
use thalweg_base::{DropReason, XorShift64Star};

const SECOND_NS: u64 = 1_000_000_000;
const START_NS: u64 = 1_700_000_000 * SECOND_NS;

fn options() -> MeterOptions {
    MeterOptions { flows_max: 10_000, shards: 5, ..MeterOptions::default() }
}

/// How the shards of a chunk are observed.
#[derive(Clone, Copy, Debug)]
enum Grouping {
    /// All at once.
    Whole,
    /// `count` groups, one after another, the last one first; with an index of the chunk or by walking it.
    Groups { count: usize, with_index: bool },
    /// The chunk is split into this number of parts, each with its own shards.
    Split(usize),
}

/// A meter, its input, and its records.
struct Run {
    meter: Meter,
    grouping: Grouping,
    /// The VRFs of ports, if there are several.
    vrfs: Vec<u16>,
    sequence: u64,
    clock_ns: u64,
    records: Vec<FlowRecord>,
    /// The sum and number of records that are no longer kept.
    before: (Amount, u64),
}

impl Run {
    fn new(options: &MeterOptions, grouping: Grouping) -> Self {
        let meter: Meter = Meter::new(options).unwrap();
        let (vrfs, records) = (Vec::new(), Vec::new());
        Self { meter, grouping, vrfs, sequence: 0, clock_ns: 0, records, before: Default::default() }
    }

    /// Observes a chunk of these packets; returns its clock, which goes back if theirs was set back by a minute.
    fn observe(&mut self, samples: &[Sample]) -> u64 {
        let first_ns = samples.first().map_or(self.clock_ns, |sample| sample.arrival_ns);
        if first_ns + 60 * SECOND_NS <= self.clock_ns {
            self.clock_ns = first_ns;
        }
        let mut chunk = testing::chunk(self.sequence, self.clock_ns, samples);
        self.sequence += 1;
        self.clock_ns = chunk.clock_ns;
        for (packet, frame) in chunk.whole().0.frames() {
            self.meter.label(packet, frame);
        }
        let vrfs = PortVrfs(&self.vrfs);
        self.meter.resolve_fragments_in(vrfs, &mut chunk, |packet, frame| self.meter.label(packet, frame));
        let (meter, records) = (&self.meter, &mut self.records);
        let mut out = |record: &FlowRecord| records.push(*record);
        match self.grouping {
            Grouping::Whole => meter.observe_in(vrfs, &mut chunk, 0..1, 1, &mut out),
            Grouping::Groups { count, with_index } => {
                let group = |packet: &Packet| (packet.index, meter.group_of(packet.shard, count));
                let members: Vec<_> = chunk.packets().iter().map(group).collect();
                if with_index {
                    chunk.shard_index.build(count, &members);
                }
                for group in (0..count).rev() {
                    meter.observe_in(vrfs, &mut chunk, group..group + 1, count, &mut out);
                }
            }
            Grouping::Split(parts) => {
                let owner = |packet: &Packet| usize::from(meter.group_of(packet.shard, parts));
                for (n, part) in chunk.split(parts, owner).iter_mut().enumerate() {
                    meter.observe_in(vrfs, part, n..n + 1, parts, &mut out);
                }
            }
        }
        self.check();
        self.clock_ns
    }

    fn flush(&mut self) {
        for shard in 0..self.meter.shard_count() {
            let records = &mut self.records;
            self.meter.flush(shard, EndReason::ForcedEnd, &mut |record| records.push(*record));
        }
        self.check();
        assert_eq!((self.meter.totals().cached, self.meter.totals().flows_cached), Default::default());
    }

    /// Checks the balance, and that the totals agree with the records and the cache.
    fn check(&self) {
        let totals = self.meter.totals();
        assert!(totals.holds(), "{totals:?}");
        assert_eq!(totals.exported, self.before.0 + sum(&self.records));
        assert_eq!(totals.records_sum(), self.before.1 + self.records.len() as u64);
        let cached = self.cached();
        assert_eq!(totals.cached, sum(&cached));
        assert!(cached.len() as u64 <= totals.flows_cached);
    }

    /// Takes the records made so far.
    fn take(&mut self) -> Vec<FlowRecord> {
        let records = std::mem::take(&mut self.records);
        self.before.0 += sum(&records);
        self.before.1 += records.len() as u64;
        records
    }

    fn cached(&self) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        for shard in 0..self.meter.shard_count() {
            let mut from = Some(0);
            while let Some(at) = from {
                from = self.meter.snapshot(shard, at, &mut |record| records.push(*record));
            }
        }
        records
    }
}

fn sum(records: &[FlowRecord]) -> Amount {
    records.iter().fold(Amount::default(), |sum, record| sum + Amount::of(record))
}

/// Records in an order independent of the meter's.
fn sorted(records: &[FlowRecord]) -> Vec<String> {
    let mut lines: Vec<_> = records.iter().map(|record| format!("{record:?}")).collect();
    lines.sort();
    lines
}

/// Random traffic of few flows, so that each has many packets, with pauses in which flows end.
struct Source {
    rng: XorShift64Star,
    clock_ns: u64,
    hosts: u32,
    /// Whether the clock is sometimes set back or forward, by minutes to decades.
    clock_is_set: bool,
}

impl Source {
    fn new(seed: u64, hosts: u32) -> Self {
        let rng = XorShift64Star::new(seed.max(1));
        Self { rng, clock_ns: START_NS, hosts, clock_is_set: false }
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.rng.below(count) == 0
    }

    fn host(&mut self, ipv6: bool) -> IpAddr {
        let number = 1 + self.rng.below(self.hosts);
        let address = if ipv6 { format!("2001:db8::{number:x}") } else { format!("10.0.0.{number}") };
        address.parse().unwrap()
    }

    fn sample(&mut self) -> Sample {
        // Mostly milliseconds, sometimes seconds, seldom longer than any timeout.
        let gap_ns = match self.rng.below(100) {
            0 => 40 * SECOND_NS,
            1..=9 => 2 * SECOND_NS,
            10..=20 => 0,
            _ => SECOND_NS / 100,
        };
        self.clock_ns += u64::from(self.rng.below(1000)) * gap_ns / 1000;
        if self.clock_is_set && self.one_in(400) {
            let step_s = [440, 7_200, 86_400, 1_000_000_000][self.rng.below(4) as usize];
            let back_ns = self.clock_ns.saturating_sub(step_s * SECOND_NS);
            let stays_far = back_ns > 10_000 * SECOND_NS;
            self.clock_ns =
                if stays_far && self.one_in(2) { back_ns } else { self.clock_ns + step_s * SECOND_NS };
        }
        let ipv6 = self.one_in(3);
        let (src, dst) = (self.host(ipv6), self.host(ipv6));
        let ports = |rng: &mut XorShift64Star| 1000 + rng.below(2) as u16;
        let endpoints = ((src, ports(&mut self.rng)), (dst, ports(&mut self.rng)));
        let mut sample = Sample::tcp(endpoints.0, endpoints.1);
        sample.protocol = [6, 6, 6, 17, 1, 47][self.rng.below(6) as usize];
        if sample.protocol == 1 && ipv6 {
            sample.protocol = 58;
        }
        if sample.protocol == 47 {
            (sample.src_port, sample.dst_port) = (0, 0);
        } else if sample.protocol != 6 && sample.protocol != 17 {
            (sample.src_port, sample.dst_port) = (0, [0, 0x800, 0x301][self.rng.below(3) as usize]);
        }
        if sample.protocol == 6 {
            sample.tcp_flags = [2, 18, 16, 16, 16, 24, 17, 17, 4][self.rng.below(9) as usize];
        }
        sample.arrival_ns = self.clock_ns;
        sample.payload = self.rng.below(1200) as u16;
        sample.ttl = 60 + self.rng.below(5) as u8;
        sample.traffic_class = if self.one_in(10) { 0xb8 } else { 0 };
        sample.ingress = self.rng.below(2) as u16;
        sample.vlan = if self.one_in(10) { 7 } else { 0 };
        sample.label = if self.one_in(20) { Some(16) } else { None };
        sample.drop = match self.rng.below(40) {
            0 => Some(DropReason::NoRoute),
            1 => Some(DropReason::AclDenied),
            2 => Some(DropReason::NotIp),
            3 => Some(DropReason::TransportTruncated),
            _ => None,
        };
        sample
    }

    fn chunk(&mut self, packets: usize) -> Vec<Sample> {
        (0..packets).map(|_| self.sample()).collect()
    }
}

/// Compares the meter with its reference on the same traffic, in chunks of different sizes.
fn agree(options: &MeterOptions, grouping: Grouping, seed: u64, chunks: usize) {
    agree_on(Source::new(seed, 4), options, grouping, chunks);
}

/// The same for this traffic; returns the number of flows that ended because the clock went back.
fn agree_on(mut source: Source, options: &MeterOptions, grouping: Grouping, chunks: usize) -> u64 {
    let longest_ns = options.active_timeout_ns;
    let (mut run, mut reference) = (Run::new(options, grouping), Reference::new(options));
    for _ in 0..chunks {
        let packets = 1 + source.rng.below(150) as usize;
        let samples = source.chunk(packets);
        let clock_ns = run.observe(&samples);
        reference.observe(&samples, clock_ns);
        let records = run.take();
        let is_short = |record: &FlowRecord| record.counters.last_ns - record.counters.first_ns < longest_ns;
        assert!(records.iter().all(is_short), "no record is longer than the active timeout");
        assert_eq!(sorted(&records), sorted(&std::mem::take(&mut reference.records)));
        assert_eq!(sorted(&run.cached()), sorted(&reference.cached()));
    }
    run.flush();
    reference.flush();
    assert_eq!(sorted(&run.records), sorted(&reference.records));
    assert_eq!(run.meter.totals().flows_set_back, reference.set_back);
    reference.set_back
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_its_reference(
        seed: u64,
        biflow: bool,
        key_bits in 0u8..64,
        frame: bool,
        fates: bool,
        groups in 1usize..6,
    ) {
        let bit = |n: u8| key_bits & 1 << n != 0 || key_bits & 32 != 0;
        let key = KeyFields { ports: bit(0), traffic_class: bit(1), ingress: bit(2), vlan: bit(3), mpls: bit(4) };
        let count = if frame { Bytes::Frame } else { Bytes::Ip };
        let options = MeterOptions { key, biflow, count, fates, ..options() };
        let groupings = [
            Grouping::Whole,
            Grouping::Groups { count: groups, with_index: true },
            Grouping::Groups { count: groups, with_index: false },
            Grouping::Split(groups),
        ];
        agree(&options, groupings[(seed % 4) as usize], seed, 30);
    }
}

/// Most packets take the short way, and both ways read the same.
#[test]
fn usual_packets_have_the_same_facts_on_both_ways() {
    let mut ways = [0; 2];
    for (biflow, ports, count) in
        [(false, true, Bytes::Ip), (true, true, Bytes::Frame), (false, false, Bytes::Ip)]
    {
        let key = KeyFields { ports, ..KeyFields::default() };
        let rules = KeyRules::new(&MeterOptions { biflow, key, count, ..options() });
        let mut source = Source::new(4, 50);
        for sequence in 0..20 {
            let mut chunk = testing::chunk(sequence, 1, &source.chunk(100));
            for (packet, frame) in chunk.whole().0.frames() {
                let [mut usual, mut any] = [Facts::NONE; 2];
                let is_usual = rules.read_usual(packet, frame, &mut usual);
                ways[usize::from(is_usual)] += 1;
                if is_usual {
                    assert_eq!(rules.read_any(packet, frame, None, &mut any), Ok(()));
                    assert_eq!(format!("{usual:?}"), format!("{any:?}"));
                }
            }
        }
    }
    assert!(ways.iter().all(|packets| *packets > 1000), "{ways:?}");
}

#[test]
fn a_shard_that_somebody_works_on_is_not_waited_for() {
    let meter: Meter = Meter::new(&MeterOptions { shards: 1, ..options() }).unwrap();
    let observe = |at_s, out: &mut RecordSink<'_>| {
        let sample = tcp("10.0.0.1:1", "10.0.0.2:2", 16, at_s);
        let mut chunk = testing::chunk(at_s, 0, &[sample]);
        meter.observe(&mut chunk, 0..1, 1, out);
    };
    observe(0, &mut |_| {});
    assert_eq!((meter.try_records(), meter.try_snapshot(0, 0, &mut |_| {})), (Some(0), Ok(None)));
    let mut asked = 0;
    observe(100, &mut |_| {
        asked += 1;
        assert_eq!((meter.try_records(), meter.try_snapshot(0, 0, &mut |_| {})), (None, Err(ShardBusy)));
    });
    assert_eq!(asked, 1);
    assert_eq!(meter.try_records(), Some(1));
}

#[test]
fn clocks_that_are_set_make_no_long_records() {
    let mut set_back = 0;
    for seed in 1..60 {
        let options = MeterOptions { biflow: seed % 2 == 0, ..options() };
        let source = Source { clock_is_set: true, ..Source::new(seed, 4) };
        let grouping = Grouping::Groups { count: 1 + seed as usize % 5, with_index: seed % 3 == 0 };
        set_back += agree_on(source, &options, grouping, 40);
    }
    assert!(set_back > 100, "{set_back}: clocks went back");
}

fn tcp(from: &str, to: &str, flags: u8, at_s: u64) -> Sample {
    let endpoint = |text: &str| {
        let address: std::net::SocketAddr = text.parse().unwrap();
        (address.ip(), address.port())
    };
    Sample {
        tcp_flags: flags,
        arrival_ns: START_NS + at_s * SECOND_NS,
        ..Sample::tcp(endpoint(from), endpoint(to))
    }
}

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "10.9.0.1:80";

#[test]
fn a_connection_is_one_biflow_and_ends_when_both_have_said_so() {
    let options = MeterOptions { biflow: true, ..options() };
    for (client, server) in
        [(CLIENT, SERVER), (SERVER, CLIENT), ("[::2]:9", "[::1]:9"), ("[::1]:9", "[::2]:9")]
    {
        let mut run = Run::new(&options, Grouping::Whole);
        run.observe(&[
            tcp(client, server, 2, 0),
            tcp(server, client, 18, 0),
            tcp(client, server, 17, 1),
            tcp(server, client, 17, 1),
            tcp(client, server, 16, 1),
            // A new connection between the same endpoints.
            tcp(client, server, 2, 2),
        ]);
        assert_eq!(run.records.len(), 1);
        let first = run.take()[0];
        assert_eq!(
            (first.key.src_port, first.end_reason),
            (client.rsplit_once(':').unwrap().1.parse().unwrap(), Some(EndReason::EndDetected))
        );
        assert_eq!(first.counters.packets, 3);
        assert_eq!(first.reverse.unwrap().packets, 2);
        assert_eq!(first.counters.last_ns, START_NS + SECOND_NS);
        run.observe(&[tcp(client, server, 4, 3)]);
        run.observe(&[tcp("10.7.7.7:7", SERVER, 16, 6)]);
        let records = run.take();
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!((records[0].counters.tcp_flags, records[0].reverse), (Some(6), None));
        assert_eq!(records[0].end_reason, Some(EndReason::EndDetected));
    }
}

#[test]
fn a_flow_that_goes_on_is_reported_in_parts_that_add_up() {
    let mut run = Run::new(&options(), Grouping::Whole);
    for second in 0..=200 {
        run.observe(&[tcp(CLIENT, SERVER, 16, second)]);
    }
    let parts: Vec<_> =
        run.records.iter().map(|record| (record.end_reason, record.counters.packets)).collect();
    assert_eq!(parts, [(Some(EndReason::ActiveTimeout), 60); 3]);
    assert_eq!(run.records[1].counters.first_ns, START_NS + 60 * SECOND_NS);
    assert_eq!(run.records[1].counters.last_ns, START_NS + 119 * SECOND_NS);
    run.flush();
    assert_eq!(run.records.iter().map(FlowRecord::packets).sum::<u64>(), 201);
}

#[test]
fn silence_is_reported_without_any_packet() {
    let mut run = Run::new(&options(), Grouping::Whole);
    run.observe(&[tcp(CLIENT, SERVER, 16, 0)]);
    for (second, expected) in [(10, 0), (16, 1), (100, 1)] {
        for shard in 0..run.meter.shard_count() {
            let records = &mut run.records;
            run.meter.advance(shard, START_NS + second * SECOND_NS, &mut |record| records.push(*record));
        }
        assert_eq!(run.records.len(), expected);
    }
    assert_eq!(run.records[0].end_reason, Some(EndReason::IdleTimeout));
    run.check();
}

#[test]
fn a_clock_that_jumps_or_goes_back_loses_nothing() {
    let mut source = Source::new(11, 30);
    let mut run = Run::new(&options(), Grouping::Whole);
    let mut seen = 0;
    for round in 0..60u64 {
        let mut samples = source.chunk(100);
        let jump = match round % 6 {
            0 => u64::MAX / 2,
            1 => 0,
            2 => u64::MAX - START_NS * 2,
            _ => round * SECOND_NS,
        };
        samples.iter_mut().for_each(|sample| sample.arrival_ns = sample.arrival_ns.wrapping_add(jump));
        seen += samples.len() as u64;
        run.observe(&samples);
    }
    assert_eq!(run.meter.totals().seen.packets, seen);
    run.flush();
}

#[test]
fn later_fragments_go_with_their_first_and_without_it_have_no_ports() {
    let part = |sample: Sample, id, later| Sample { fragment: Some((id, later)), payload: 64, ..sample };
    for (client, server) in [(CLIENT, SERVER), ("[2001:db8::1]:4000", "[2001:db8::2]:80")] {
        for protocol in [6, 17] {
            let sample = Sample { protocol, ..tcp(client, server, 0, 0) };
            let mut run = Run::new(&options(), Grouping::Whole);
            // A later fragment before its first in the same chunk, one without a first, one in the next chunk,
            // one too late.
            run.observe(&[part(sample, 1, true), part(sample, 2, true), part(sample, 1, false)]);
            run.observe(&[part(sample, 1, true)]);
            run.observe(&[tcp("10.7.7.7:7", SERVER, 16, 31)]);
            run.observe(&[part(Sample { arrival_ns: START_NS + 31 * SECOND_NS, ..sample }, 1, true)]);
            run.flush();
            let totals = run.meter.totals();
            assert_eq!((totals.fragments_matched, totals.fragments_unmatched), (2, 2));
            let packets = |port| -> u64 {
                let of_port =
                    |record: &&FlowRecord| record.key.src_port == port && record.key.protocol == protocol;
                run.records
                    .iter()
                    .filter(of_port)
                    .filter(|r| r.key.src_port != 7)
                    .map(FlowRecord::packets)
                    .sum()
            };
            assert_eq!((packets(4000), packets(0)), (3, 2), "{:?}", run.records);
        }
    }
}

#[test]
fn sampled_packets_alone_are_metered_and_the_others_counted() {
    for sampling in [Sampling::Count { interval: 10 }, Sampling::Random { interval: 10, seed: 1 }] {
        let options = MeterOptions { sampling, ..options() };
        let mut results = Vec::new();
        for grouping in [Grouping::Whole, Grouping::Groups { count: 3, with_index: true }, Grouping::Split(2)]
        {
            let mut source = Source::new(3, 8);
            let mut run = Run::new(&options, grouping);
            for _ in 0..50 {
                run.observe(&source.chunk(200));
            }
            run.flush();
            let totals = run.meter.totals();
            assert_eq!(totals.seen.packets, 10_000);
            let looked_at = 10_000 - totals.unsampled.packets;
            // Exact except for the beginning and end of five shards; or within six standard deviations.
            let allowed = if matches!(sampling, Sampling::Count { .. }) { 5 } else { 180 };
            assert!(looked_at.abs_diff(1000) <= allowed, "{looked_at}");
            assert!(run.records.iter().all(|record| record.sampling_interval == 10));
            results.push((sorted(&run.records), totals));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "the same whatever the grouping");
    }
}

#[test]
fn what_cannot_be_read_is_counted_by_its_reason() {
    let good = tcp(CLIENT, SERVER, 16, 0);
    let bad = |reason| Sample { drop: Some(reason), ..good };
    let mut run = Run::new(&MeterOptions { fates: true, ..options() }, Grouping::Whole);
    run.observe(&[good, bad(DropReason::NotIp), bad(DropReason::Ipv6Extension), bad(DropReason::NoRoute)]);
    // Without any facts, and with an incomplete header.
    let mut chunk = testing::chunk(1, run.clock_ns, &[good, good]);
    chunk.packets_mut()[0].ip_len = 0;
    chunk.packets_mut()[1].l3_offset = 55;
    run.meter.observe(&mut chunk, 0..1, 1, &mut |_| ());
    let totals = run.meter.totals();
    let not_metered: Vec<_> = totals.not_metered().map(|(reason, amount)| (reason, amount.packets)).collect();
    assert_eq!(not_metered, [(DropReason::NotIp, 3), (DropReason::Ipv6Extension, 1)]);
    run.flush();
    let [record] = run.records[..] else { panic!("{:?}", run.records) };
    assert_eq!((record.counters.packets, record.drops.packets(), record.drops.bytes), (2, 1, 40));
}

#[test]
fn a_counter_that_is_full_is_reported_first() {
    let mut run = Run::new(&options(), Grouping::Whole);
    let sample = Sample { payload: 0, ..tcp(CLIENT, SERVER, 16, 0) };
    run.observe(&[sample]);
    for shard in &run.meter.shards {
        shard.enter().pretend_packets(u32::MAX);
    }
    run.observe(&[sample, sample]);
    run.flush();
    let parts: Vec<_> =
        run.records.iter().map(|record| (record.end_reason, record.counters.packets)).collect();
    assert_eq!(
        parts,
        [(Some(EndReason::ActiveTimeout), u64::from(u32::MAX)), (Some(EndReason::ForcedEnd), 2)]
    );
}

#[test]
fn options_that_make_no_sense_are_refused_in_words() {
    let refused = |change: &dyn Fn(&mut MeterOptions)| {
        let mut options = options();
        change(&mut options);
        Meter::<OneThread>::new(&options).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(refused(&|o| o.shards = 0), "0 shards: there must be 1 to 4096");
    assert_eq!(
        refused(&|o| o.flows_max = 20),
        "20 flows in 5 shards: each shard must have 16 to 1073741824 flows"
    );
    assert_eq!(refused(&|o| o.idle_timeout_ns = 0), "the idle timeout must not be 0");
    assert_eq!(
        refused(&|o| o.sampling = Sampling::Count { interval: 0 }),
        "sampling one packet in 0: the interval must be at least 1"
    );
}
