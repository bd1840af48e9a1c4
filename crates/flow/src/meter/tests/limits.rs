//! Limits under overload and attack.

use super::*;

fn flow(n: u32) -> Sample {
    let address = |net: u8, n: u32| IpAddr::from([net, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    let tcp = Sample::tcp((address(10, n / 7), 1024 + (n % 7) as u16), (address(11, n), 443));
    Sample { arrival_ns: START_NS + u64::from(n), ..tcp }
}

/// Each evicted flow is reported, and the cache stays bounded.
#[test]
fn a_flood_is_bounded_evicted_and_counted() {
    for biflow in [false, true] {
        let options = MeterOptions { flows_max: 4000, shards: 4, biflow, ..MeterOptions::default() };
        let mut run = Run::new(&options, Grouping::Whole);
        for first in (0..40_000).step_by(1000) {
            run.observe(&(first..first + 1000).map(flow).collect::<Vec<_>>());
        }
        let totals = run.meter.totals();
        assert!(totals.flows_cached <= 4000 && totals.flows_cached > 3900, "{totals:?}");
        assert_eq!(totals.flows_created, 40_000);
        assert_eq!(totals.evicted(), 40_000 - totals.flows_cached);
        assert_eq!(totals.records(EndReason::LackOfResources), 40_000 - totals.flows_cached);
        let bytes_a_flow = totals.memory_bytes / totals.flows_cached;
        assert!(
            bytes_a_flow <= if biflow { 128 } else { 96 } + 12,
            "{bytes_a_flow}: small shards have wheels too"
        );
        run.flush();
        assert_eq!(run.records.len(), 40_000, "every flow has its one record");
    }
}

#[test]
fn flows_that_go_on_outlive_a_flood() {
    let options = MeterOptions { flows_max: 1024, shards: 1, ..MeterOptions::default() };
    let mut run = Run::new(&options, Grouping::Whole);
    for round in 0..200 {
        let flood = (0..200).map(|n| flow(1_000_000 + round * 200 + n));
        let steady = (0..20).map(flow);
        let samples: Vec<_> = flood
            .chain(steady)
            .map(|sample| Sample { arrival_ns: START_NS + u64::from(round), ..sample })
            .collect();
        run.observe(&samples);
    }
    let whole = run.cached().iter().filter(|record| record.counters.packets == 200).count();
    assert_eq!(whole, 20, "each flow of 200 packets is one flow");
}

/// Most flows of a flood are not admitted. A flow that continues is; until then each of its packets is a record.
#[test]
fn flows_that_begin_in_a_flood_are_let_in() {
    for (fates, biflow) in [(false, false), (true, false), (false, true)] {
        let options = MeterOptions { flows_max: 1024, shards: 1, fates, biflow, ..MeterOptions::default() };
        let mut run = Run::new(&options, Grouping::Whole);
        let at = |round: u32, sample: Sample| Sample { arrival_ns: START_NS + u64::from(round), ..sample };
        for round in 0..400 {
            let flood = (0..200).map(|n| flow(1_000_000 + round * 200 + n));
            let begun = if round < 100 { 0..0 } else { 0..20 };
            run.observe(&flood.chain(begun.map(flow)).map(|sample| at(round, sample)).collect::<Vec<_>>());
        }
        let totals = run.meter.totals();
        assert!(totals.holds());
        assert!(totals.passed_by > 60_000 && totals.evicted_cache_full > 8_000, "{totals:?}");
        assert_eq!(totals.evicted(), totals.records(EndReason::LackOfResources));
        let let_in: Vec<_> = run
            .cached()
            .iter()
            .map(|record| record.counters.packets)
            .filter(|packets| *packets > 1)
            .collect();
        assert_eq!(let_in.len(), 20, "{let_in:?}");
        assert!(let_in.iter().all(|packets| *packets > 200), "{let_in:?}");
        run.flush();
        let ends: Vec<_> =
            (0..20).map(flow).map(|sample| (sample.src, sample.src_port, sample.dst)).collect();
        let steady =
            |record: &&FlowRecord| ends.contains(&(record.key.src, record.key.src_port, record.key.dst));
        let packets: u64 = run.records.iter().filter(steady).map(|record| record.packets()).sum();
        assert_eq!(packets, 20 * 300);
    }
}

#[test]
fn memory_of_a_million_flows_is_within_its_bound() {
    let options = MeterOptions { flows_max: 1 << 20, shards: 16, ..MeterOptions::default() };
    let meter: Meter = Meter::new(&options).unwrap();
    for first in (0..1_000_000).step_by(50_000) {
        let samples: Vec<_> = (first..first + 50_000).map(flow).collect();
        let mut chunk = testing::chunk(0, START_NS, &samples);
        for (packet, frame) in chunk.whole().0.frames() {
            meter.label(packet, frame);
        }
        meter.observe(&mut chunk, 0..1, 1, &mut |_| ());
    }
    let totals = meter.totals();
    assert_eq!(totals.evicted_bucket_full, 0);
    assert!(totals.flows_cached > 990_000);
    assert!(totals.memory_bytes <= 96 * totals.flows_cached, "{totals:?}");
}

/// An attacker who knows everything but the key makes flows that would all share a bucket under another key.
#[test]
fn flows_made_to_collide_do_not_under_another_key() {
    let shard_of = |meter: &Meter, sample: Sample| {
        let mut chunk = testing::chunk(0, START_NS, &[sample]);
        let (mut batch, _) = chunk.whole();
        let (packet, frame) = batch.packet_and_frame(0);
        meter.label(packet, frame);
        packet.shard
    };
    let known =
        MeterOptions { flows_max: 16 * 1024, shards: 16, hash_key: [1, 2], ..MeterOptions::default() };
    let secret = MeterOptions { hash_key: [0x5eed, 0xfeed], ..known.clone() };
    let (known_meter, secret_meter) = (Meter::new(&known).unwrap(), Meter::new(&secret).unwrap());
    let crafted: Vec<_> =
        (0..200_000).map(flow).filter(|sample| shard_of(&known_meter, *sample) == 3).collect();
    assert!(crafted.len() > 10_000);
    let mut load = [0u32; 16];
    crafted.iter().for_each(|sample| load[usize::from(shard_of(&secret_meter, *sample))] += 1);
    let mean = crafted.len() as u32 / 16;
    assert!(load.iter().all(|count| (mean * 3 / 4..mean * 5 / 4).contains(count)), "{load:?}");

    // The same for buckets: flows whose first and second bucket is among the first 16 of the index.
    let matching = |options: &MeterOptions| crate::key::Matching::new(options);
    let bucket_of = |options: &MeterOptions, n: u64| {
        let hash =
            crate::key::Key([0x0a00_0000_0b00_0000 | n << 32 | n >> 20, n << 48 | 443 << 32 | 6 << 24, 0])
                .hash(&matching(options));
        [hash as u32 >> 22, (hash >> 54) as u32]
    };
    let crafted: Vec<_> =
        (0..2_000_000).filter(|n| bucket_of(&known, *n).iter().all(|at| *at < 32)).collect();
    assert!(crafted.len() > 1000, "{}", crafted.len());
    let again = crafted.iter().filter(|n| bucket_of(&secret, **n).iter().all(|at| *at < 32)).count();
    assert!(again * 100 < crafted.len(), "{again} of {}", crafted.len());
}

#[test]
fn neighboring_keys_spread_evenly() {
    let matching = crate::key::Matching::new(&options());
    let mut halves = [[0u32; 256]; 2];
    let count = 1 << 20;
    for n in 0..count {
        // Consecutive ports and hosts, as scanners use.
        let hash = crate::key::Key([(10 << 24 | n >> 10) << 32 | 0x0b00_0001, (n & 1023) << 48 | 6 << 24, 0])
            .hash(&matching);
        halves[0][(hash as u32 >> 24) as usize] += 1;
        halves[1][(hash >> 56) as usize] += 1;
    }
    let mean = (count / 256) as u32;
    // Eight standard deviations of a binomial distribution.
    let allowed = 8 * (f64::from(mean)).sqrt() as u32;
    for load in halves.iter().flatten() {
        assert!(load.abs_diff(mean) < allowed, "{load} instead of {mean}");
    }
}
