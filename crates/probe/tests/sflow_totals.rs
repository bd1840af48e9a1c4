//! What sampling makes of known flows: a capture through the probe, its samples through the import.
//!
//! Each packet is sampled with the chance 1/N, independently of others. So the estimate of a sum of sizes has the variance
//! (N - 1) * (the sum of their squares), and none may be off by more than five standard deviations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::common::{Key, Traffic, folder, options, records, sums, write};
use crate::sflow::{Collected, collected};
use thalweg_probe::{
    EnrichFiles, ExporterNames, ImportOptions, ImportSource, ImportSummary, KeepOptions, import,
};
use thalweg_store::query::{Metric, Query, top};
use thalweg_store::{Dataset, Filter, Window};
use thalweg_wire::testing;

const PACKETS: usize = 120_000;
const FLOWS: u32 = 9;
const DEVIATIONS: f64 = 5.0;

/// Flows of which each has half as many packets as the one before, and its own size.
fn halving() -> Traffic {
    let mut rng = thalweg_base::XorShift64Star::new(11);
    let mut traffic = Traffic::default();
    for n in 0..PACKETS {
        let flow = rng.next_u64().trailing_zeros().min(FLOWS - 1);
        let at = 1_700_000_000_000_000_000 + n as u64 * 100_000;
        let ports = (5000 + flow as u16, 443);
        traffic.push_datagram(at, ports, &vec![0; 20 + 150 * (flow as usize % 4)]);
    }
    traffic
}

/// Imports the datagrams of a collector as `thalweg flows import` does from a capture.
fn imported(all: &Collected, into: &Path) -> ImportSummary {
    let capture = into.join("datagrams.pcap");
    let frame = |datagram: &Vec<u8>| {
        (0, testing::frame(&testing::udp(([192, 0, 2, 7], 9999), ([192, 0, 2, 9], 6343), datagram)))
    };
    let frames: Vec<(u64, Vec<u8>)> = all.datagrams.iter().map(frame).collect();
    write(&capture, frames.iter());
    let options = ImportOptions {
        sources: vec![ImportSource::File(capture)],
        names: ExporterNames::default(),
        snmp: None,
        port: None,
        seconds: None,
        store: Some(into.join("store")),
        json: Some(into.join("imported.json")),
        csv: None,
        keep: KeepOptions::default(),
        enrich: EnrichFiles::default(),
    };
    let summary = import(&options, &Arc::new(AtomicBool::new(false)), &()).expect("it can be imported");
    assert!(summary.conserved && summary.sequence_gaps == 0, "{summary:?}");
    summary
}

/// Fails if an estimate of `count` packets of `size` bytes each is off by too much.
fn assert_near(what: &str, estimate: u64, terms: &[(u64, u64)], rate: u64) {
    let sum: u64 = terms.iter().map(|(count, size)| count * size).sum();
    let squares: f64 = terms.iter().map(|(count, size)| *count as f64 * (*size as f64).powi(2)).sum();
    let deviation = ((rate - 1) as f64 * squares).sqrt();
    let off = (estimate as f64 - sum as f64).abs();
    assert!(
        off <= DEVIATIONS * deviation,
        "1 in {rate}, {what}: {estimate} for {sum}, deviation {deviation}"
    );
}

#[test]
fn totals_from_samples_are_as_near_as_chance_allows() {
    let traffic = halving();
    let (folder, capture, lines) = folder(&traffic);
    for rate in [2, 10, 50, 200] {
        let (_, all) = collected(options(&capture, &lines), rate);
        let (_, again) = collected(options(&capture, &lines), rate);
        assert!(all.headers == again.headers && !all.headers.is_empty(), "the seed decides which packets");

        let into = folder.path().join(rate.to_string());
        std::fs::create_dir(&into).expect("a folder");
        let summary = imported(&all, &into);
        let samples = all.headers.len() as u64;
        assert_eq!((summary.records, summary.packets, summary.records_sampled), (samples, samples, samples));
        assert_eq!(summary.samplers_unknown, 0);
        let rate = u64::from(rate);
        let found = sums(&records(&into.join("imported.json")));

        let terms = |(packets, bytes): (u64, u64)| (packets, bytes / packets);
        let flows: Vec<(Key, (u64, u64))> =
            traffic.sums.iter().map(|(key, sum)| (*key, terms(*sum))).collect();
        assert!(flows.len() == FLOWS as usize && found.keys().all(|key| traffic.sums.contains_key(key)));
        for (key, (count, size)) in &flows {
            let (packets, bytes) = found.get(key).copied().unwrap_or_default();
            assert_near(&format!("packets of {key:?}"), rate * packets, &[(*count, 1)], rate);
            assert_near(&format!("bytes of {key:?}"), rate * bytes, &[(*count, *size)], rate);
        }
        let counts: Vec<(u64, u64)> = flows.iter().map(|(_, terms)| *terms).collect();
        assert_near("all packets", rate * summary.packets, &[(PACKETS as u64, 1)], rate);
        assert_near("all bytes", rate * summary.bytes, &counts, rate);
        assert_ranking(&into, rate);
    }
}

/// The largest flows of the dataset, which multiplies by the rate itself, are in their order as far as chance cannot
/// exchange two of them.
fn assert_ranking(into: &Path, rate: u64) {
    let view = Dataset::open(&into.join("store")).and_then(|set| set.view(Window::ALL)).expect("a dataset");
    let query = Query::new(Window::ALL, Filter::default());
    let answer = top(&view, &query, &["src-port".parse().expect("a key")], Metric::Packets, 20);
    let answer = answer.expect("an answer");
    assert!(answer.scanned.sampled && answer.scanned.sampling_unknown == 0);
    let ports: Vec<String> = answer.rows.iter().map(|row| row.key[0].to_string()).collect();
    // Flow n has 2^-(n + 1) of the packets.
    let expected = |flow: u32| PACKETS as f64 / f64::from(2_u32 << flow);
    let is_apart = |flow: &u32| {
        let (more, less) = (expected(*flow), expected(flow + 1));
        more - less > DEVIATIONS * ((rate - 1) as f64 * (more + less)).sqrt()
    };
    let sure = (0..FLOWS - 1).take_while(is_apart).count();
    assert!(sure >= 2, "1 in {rate}: {sure}");
    let largest: Vec<String> = (0..sure).map(|flow| (5000 + flow).to_string()).collect();
    assert_eq!(ports[..sure], largest, "1 in {rate}");
    for (flow, row) in (0..sure as u32).zip(&answer.rows) {
        let off = (row.sums.packets as f64 - expected(flow)).abs();
        // The traffic itself was drawn.
        let deviation = (rate as f64 * expected(flow)).sqrt();
        assert!(off <= DEVIATIONS * deviation, "1 in {rate}, flow {flow}: {}", row.sums.packets);
    }
}
