//! Captures through the probe: the right flows in any shape, and every packet in the totals.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Traffic, folder, options, records, run, sums};
use thalweg_flow::application::Labeling;
use thalweg_flow::{Bytes, KeyFields, MeterOptions, Sampling};
use thalweg_probe::summary::UNSAMPLED;
use thalweg_probe::{Deal, FileInput, Input, ModelKind, ProbeError, ProbeOptions, Shape, probe};

fn shape(model: ModelKind, workers: usize) -> Shape {
    Shape { model, workers, ..Shape::default() }
}

#[test]
fn the_flows_are_those_that_were_made() {
    let traffic = Traffic::mixed(20_000, 700, 1);
    let (_folder, capture, lines) = folder(&traffic);
    let summary = run(&options(&capture, &lines));
    let records = records(&lines);
    assert_eq!(sums(&records), traffic.sums);
    assert_eq!(summary.packets_seen, traffic.frames.len() as u64);
    assert_eq!(summary.packets_exported, traffic.ip_packets());
    assert_eq!(summary.bytes_exported, traffic.ip_bytes());
    assert_eq!(summary.records_exported, records.len() as u64);
    assert_eq!(summary.dropped.get("not-ip"), Some(&traffic.not_ip));
    assert_eq!(summary.dropped_total(), traffic.not_ip);
    let frame_bytes: usize = traffic.frames.iter().map(|(_, frame)| frame.len()).sum();
    assert_eq!(summary.frame_bytes_seen, frame_bytes as u64);
    assert_eq!(summary.outlets[0].records, summary.records_exported);
    assert!(summary.elapsed_s > 0.0 && summary.packets_per_second > 0.0 && summary.rss_peak_bytes > 0);
}

/// Synthetic work is done once per packet in every shape, and changes no record.
#[test]
fn work_is_the_same_in_every_shape() {
    let traffic = Traffic::mixed(5000, 200, 3);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    assert_eq!(run(&options).queens_solutions, 0);
    let mut varied = Vec::new();
    for (model, workers) in [
        (ModelKind::Serial, 1),
        (ModelKind::RunToCompletion, 3),
        (ModelKind::Pipeline, 3),
        (ModelKind::Tokens, 2),
        (ModelKind::Farm, 3),
        (ModelKind::Chain, 3),
    ] {
        options.shape = shape(model, workers);
        options.work = "4".parse().ok();
        let summary = run(&options);
        assert_eq!(summary.queens_solutions, 2 * traffic.frames.len() as u64, "{model}");
        assert_eq!(sums(&records(&lines)), traffic.sums, "{model}");
        // Random boards depend only on the packet.
        options.work = "4-7".parse().ok();
        varied.push(run(&options).queens_solutions);
    }
    assert!(varied.iter().all(|sum| *sum == varied[0] && *sum > 5000 * 2), "{varied:?}");
}

#[test]
fn applications_are_named_by_what_was_asked_for() {
    let mut traffic = Traffic::default();
    let invite = b"INVITE sip:bob@example.net SIP/2.0\r\n";
    // Not by ports; something else by ports; nothing by payload; too late.
    for n in 0..20 {
        let late: &[u8] = if n < 10 { b"\0" } else { invite };
        for (port, payload) in [(40_001, &invite[..]), (53, invite), (123, b"\0"), (40_002, late)] {
            traffic.push_datagram(1_000_000_000 + n, (40_000, port), payload);
        }
    }
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    for (labeling, expected) in [
        (Labeling::Ports, [None, Some("dns"), Some("ntp"), None]),
        (Labeling::Payload, [Some("sip"), Some("sip"), Some("ntp"), None]),
        (Labeling::None, [None; 4]),
    ] {
        options.meter.labeling = labeling;
        for model in [ModelKind::Serial, ModelKind::RunToCompletion, ModelKind::Farm, ModelKind::Chain] {
            options.shape = shape(model, 1);
            run(&options);
            let records = records(&lines);
            let named = [40_001, 53, 123, 40_002].map(|port| {
                let record = records.iter().find(|record| record["dst_port"] == port).expect("a record");
                record.get("application").and_then(|name| name.as_str())
            });
            assert_eq!(named, expected, "{labeling:?} {model}");
        }
    }
}

#[test]
fn records_are_the_same_under_every_shape() {
    let traffic = Traffic::mixed(30_000, 3_000, 2);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    // Short enough for flows to end in every possible way.
    options.meter = MeterOptions {
        idle_timeout_ns: 3_000_000_000,
        active_timeout_ns: 5_000_000_000,
        ..MeterOptions::default()
    };
    options.chunk_packets = Some(500);
    options.shape = shape(ModelKind::Serial, 1);
    let reference = run(&options);
    let expected = records(&lines);
    assert_eq!(sums(&expected), traffic.sums);
    assert!(reference.records_by_reason.len() == 4, "{:?}", reference.records_by_reason);
    let farm = |pipelines, readers, workers| Shape { pipelines, readers, ..shape(ModelKind::Farm, workers) };
    let shapes = [
        shape(ModelKind::RunToCompletion, 1),
        shape(ModelKind::RunToCompletion, 3),
        shape(ModelKind::Pipeline, 2),
        shape(ModelKind::Pipeline, 3),
        shape(ModelKind::Tokens, 2),
        farm(1, 1, 1),
        farm(1, 1, 2),
        farm(1, 2, 3),
        farm(2, 1, 1),
        farm(3, 2, 2),
        Shape { pipelines: 2, ..shape(ModelKind::Serial, 1) },
        Shape { pipelines: 2, ..shape(ModelKind::RunToCompletion, 2) },
        Shape { pin_cores: vec![0], ..farm(2, 1, 1) },
    ];
    for shape in shapes {
        options.shape = shape;
        let summary = run(&options);
        assert!(records(&lines) == expected, "{:?}", options.shape);
        assert_eq!(summary.records_by_reason, reference.records_by_reason, "{:?}", options.shape);
        assert_eq!(summary.dropped, reference.dropped, "{:?}", options.shape);
        assert_eq!(summary.bytes_seen, reference.bytes_seen, "{:?}", options.shape);
    }
}

#[test]
fn a_file_for_each_pipeline_is_as_one_after_the_other() {
    let (one, other) = (Traffic::mixed(5_000, 100, 3), Traffic::mixed(7_000, 100, 4));
    let (folder, _, lines) = folder(&one);
    let files = [(&one, "lan.pcap"), (&other, "wan.pcap")].map(|(traffic, name)| {
        traffic.write(&folder.path().join(name));
        PathBuf::from(format!("{}={}", &name[..3], folder.path().join(name).display()))
    });
    let files = FileInput { deal: Deal::Files, ..FileInput::new(files.to_vec()) };
    let mut options = options(Path::new("-"), &lines);
    options.input = Input::Files(files.clone());
    options.shape = Shape { pipelines: 2, ..shape(ModelKind::Farm, 1) };
    let side_by_side = run(&options);
    let expected = records(&lines);
    assert!(expected.iter().all(|record| record["ingress_name"] == "lan" || record["ingress_name"] == "wan"));
    // As with two receive queues at different speeds: another order, but the same flows.
    options.input = Input::Files(FileInput { deal: Deal::Hash, ..files.clone() });
    options.shape = shape(ModelKind::Serial, 1);
    let in_turn = run(&options);
    assert_eq!(sums(&records(&lines)), sums(&expected));
    assert_eq!(in_turn.packets_seen, side_by_side.packets_seen);
    options.input = Input::Files(files);
    options.shape = Shape { pipelines: 3, ..shape(ModelKind::Farm, 1) };
    let error = probe(&options, &Arc::default(), &()).expect_err("two files for three pipelines");
    assert!(error.is_usage() && error.to_string().contains("2 inputs for 3 pipelines"), "{error}");
}

#[test]
fn biflows_have_both_directions_and_half_the_records() {
    let traffic = Traffic::mixed(10_000, 300, 5);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    options.meter.idle_timeout_ns = 60_000_000_000;
    let one_way = run(&options);
    options.meter.biflow = true;
    let both = run(&options);
    let records = records(&lines);
    assert_eq!(sums(&records), traffic.sums);
    assert!(records.iter().any(|record| record.get("reverse_packets").is_some()));
    assert!(both.records_exported * 3 < one_way.records_exported * 2, "{}", both.records_exported);
}

/// A line's time, in nanoseconds since the epoch.
fn time_ns(value: &serde_json::Value) -> u64 {
    let (seconds, fraction) = value.as_str().and_then(|text| text.split_once('.')).expect("nine digits");
    let fraction_ns: u64 = fraction.trim_end_matches('Z').parse().expect("digits");
    thalweg_text::calendar::parse_time(seconds).expect("a time") + fraction_ns
}

#[test]
fn going_through_it_again_goes_on() {
    let traffic = Traffic::mixed(4_000, 50, 6);
    let (_folder, capture, lines) = folder(&traffic);
    let mut once = options(&capture, &lines);
    once.meter.active_timeout_ns = 600_000_000_000;
    once.meter.idle_timeout_ns = 60_000_000_000;
    run(&once);
    // Only the end of the run ends these.
    let datagrams = |records: &[serde_json::Value]| records.iter().filter(|r| r["protocol"] == 17).count();
    let flows = datagrams(&records(&lines));
    for preload in [false, true] {
        let files = FileInput { loops: 3, preload, ..FileInput::new(vec![capture.clone()]) };
        once.input = Input::Files(files);
        for pipelines in [1, 2] {
            once.shape.pipelines = pipelines;
            let summary = run(&once);
            assert_eq!(summary.packets_seen, 3 * traffic.frames.len() as u64);
            let records = records(&lines);
            assert_eq!(datagrams(&records), flows, "the same flows, not new ones");
            for (key, (packets, bytes)) in sums(&records) {
                let (each, each_bytes) = traffic.sums[&key];
                assert_eq!((packets, bytes), (3 * each, 3 * each_bytes), "{key:?}");
            }
            // Half a minute per pass.
            let longest = records.iter().map(|r| time_ns(&r["flow_end"]) - time_ns(&r["flow_start"]));
            assert!(longest.max().unwrap() > 85_000_000_000);
        }
    }
}

#[test]
fn what_sampling_skips_is_counted() {
    let traffic = Traffic::mixed(20_000, 200, 7);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    for sampling in [Sampling::Count { interval: 10 }, Sampling::Random { interval: 10, seed: 1 }] {
        options.meter.sampling = sampling;
        let summary = run(&options);
        let unsampled = summary.dropped[UNSAMPLED] as f64 / summary.packets_seen as f64;
        assert!((0.85..0.95).contains(&unsampled), "{unsampled}");
        assert!(records(&lines).iter().all(|record| record["sampling_interval"] == 10));
    }
}

#[test]
fn fewer_fields_make_fewer_flows_and_a_full_cache_reports_early() {
    let traffic = Traffic::mixed(20_000, 2_000, 8);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    let all = run(&options);
    let none = KeyFields { ports: false, traffic_class: false, ingress: false, vlan: false, mpls: false };
    options.meter.key = none;
    let fewer = run(&options);
    assert!(fewer.flows < all.flows, "{} {}", fewer.flows, all.flows);
    assert!(records(&lines).iter().all(|record| record["src_port"] == 0));
    options.meter = MeterOptions { flows_max: 256, ..MeterOptions::default() };
    let full = run(&options);
    assert!(full.flows_evicted > 0 && full.records_by_reason["lack-of-resources"] == full.flows_evicted);
    assert_eq!(sums(&records(&lines)), traffic.sums, "nothing is lost by it");
}

#[test]
fn frames_can_be_counted_instead_of_packets() {
    let traffic = Traffic::mixed(3_000, 40, 9);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    options.meter.count = Bytes::Frame;
    let summary = run(&options);
    assert_eq!(summary.bytes_seen, summary.frame_bytes_seen);
    assert_eq!(summary.bytes_exported + summary.dropped_bytes["not-ip"], summary.frame_bytes_seen);
}

#[test]
fn csv_says_the_same_as_json() {
    let traffic = Traffic::mixed(2_000, 60, 10);
    let (folder, capture, lines) = folder(&traffic);
    let table = folder.path().join("records.csv");
    let options = ProbeOptions { csv: Some(table.clone()), ..options(&capture, &lines) };
    let summary = run(&options);
    let text = std::fs::read_to_string(table).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let column = |name| header.split(',').position(|field| field == name).unwrap();
    let packets = column("packets");
    let sum: u64 = rows.lines().map(|row| row.split(',').nth(packets).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, summary.packets_exported);
    assert_eq!(rows.lines().count(), records(&lines).len());
}

#[test]
fn counters_of_a_stopped_probe_add_up() {
    let traffic = Traffic::mixed(4_000, 50, 11);
    let (_folder, capture, lines) = folder(&traffic);
    let mut options = options(&capture, &lines);
    // Four thousand packets at one per second: only stopping ends this run.
    options.input = Input::Files(FileInput { rate_pps: Some(1), ..FileInput::new(vec![capture]) });
    let stop = Arc::new(AtomicBool::new(false));
    struct AfterSome(Arc<AtomicBool>);
    impl thalweg_probe::ProbeProgress for AfterSome {
        fn advanced(&self, packets: u64, _fraction: Option<f64>) {
            self.0.store(packets > 0, Ordering::Relaxed);
        }
    }
    for pipelines in [1, 2] {
        stop.store(false, Ordering::Relaxed);
        options.shape = Shape { pipelines, ..shape(ModelKind::Farm, 1) };
        let summary =
            probe(&options, &stop, &AfterSome(Arc::clone(&stop))).expect("the probe ends without an error");
        assert!(summary.conserved && summary.packets_seen > 0, "{summary:?}");
        assert!(summary.packets_seen < traffic.frames.len() as u64);
    }
}

#[test]
fn what_cannot_be_read_or_written_is_said() {
    let traffic = Traffic::mixed(300, 5, 12);
    let (folder, capture, lines) = folder(&traffic);
    let fails = |options: &ProbeOptions| probe(options, &Arc::default(), &()).expect_err("it cannot");
    let missing = fails(&options(&folder.path().join("no.pcap"), &lines));
    assert!(matches!(&missing, ProbeError::Input(_)) && missing.to_string().contains("no.pcap"), "{missing}");
    assert!(!lines.exists(), "nothing was written before the input was there");
    let nowhere = fails(&options(&capture, &folder.path().join("no/such/folder")));
    assert!(matches!(&nowhere, ProbeError::Output { .. }), "{nowhere}");
    if Path::new("/dev/full").exists() {
        let full = fails(&options(&capture, Path::new("/dev/full")));
        assert!(full.to_string().contains("/dev/full"), "{full}");
    }
    // Damaged in the middle: everything before counts, and the damage is reported.
    let mut bytes = std::fs::read(&capture).unwrap();
    bytes.truncate(bytes.len() - 7);
    std::fs::write(&capture, bytes).unwrap();
    let mut damaged = options(&capture, &lines);
    let summary = run(&damaged);
    assert_eq!(summary.packets_seen, traffic.frames.len() as u64 - 1);
    assert_eq!(summary.input_issues.total, 1);
    if let Input::Files(files) = &mut damaged.input {
        files.strict = true;
    }
    let strict = fails(&damaged);
    assert!(strict.issue().is_some() && strict.to_string().contains("--strict"), "{strict}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let lines = Path::new("-");
    let refused = |options: ProbeOptions, word: &str| {
        let error = probe(&options, &Arc::default(), &()).expect_err(word);
        assert!(error.is_usage() && error.to_string().contains(word), "{word}: {error}");
    };
    let usual = options(Path::new("x.pcap"), lines);
    refused(ProbeOptions { csv: Some("-".into()), ..usual.clone() }, "JSON or CSV");
    refused(ProbeOptions { chunk_packets: Some(0), ..usual.clone() }, "chunks of 0");
    refused(ProbeOptions { shape: shape(ModelKind::Serial, 2), ..usual.clone() }, "one worker");
    let none = Shape { pipelines: 0, ..Shape::default() };
    refused(ProbeOptions { shape: none, ..usual.clone() }, "0 pipelines");
    let twice = FileInput { loops: 2, ..FileInput::new(vec!["lan=-".into()]) };
    refused(ProbeOptions { input: Input::Files(twice), ..usual.clone() }, "only once");
    let mut small = usual;
    small.input = Input::Files(FileInput::new(vec!["/dev/null".into()]));
    small.meter.flows_max = 1;
    small.json = None;
    refused(small, "flows");
}

/// Every available capture, real or malformed: no panic, and the counters balance.
#[test]
fn every_capture_is_conserved() {
    let Some(root) = thalweg_testdata::shared("pcap") else {
        return thalweg_testdata::skipped("no captures to read");
    };
    let mut folders = vec![root];
    let mut captures = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let is_capture = |path: &Path| {
                let name = path.to_string_lossy();
                ["pcap", "pcapng", "cap", "pcap.gz", "trace"]
                    .iter()
                    .any(|end| name.ends_with(&format!(".{end}")))
            };
            match path.is_dir() {
                true => folders.push(path),
                false if is_capture(&path) => captures.push(path),
                false => {}
            }
        }
    }
    captures.sort();
    assert!(captures.len() > 100, "{}", captures.len());
    let (mut seen, mut metered) = (0, 0);
    for (number, capture) in captures.iter().enumerate() {
        let mut options = ProbeOptions::new(Input::Files(FileInput::new(vec![capture.clone()])));
        options.parsing.tunnels = number % 2 == 0;
        options.meter.biflow = number % 3 == 0;
        options.shape =
            Shape { pipelines: 1 + number % 2, ..shape(ModelKind::ALL[number % ModelKind::ALL.len()], 1) };
        let summary =
            probe(&options, &Arc::default(), &()).unwrap_or_else(|error| panic!("{capture:?}: {error}"));
        assert!(summary.conserved, "{capture:?}: {summary:?}");
        seen += summary.packets_seen;
        metered += summary.packets_exported;
    }
    println!("{} captures, {seen} packets, {metered} metered", captures.len());
    assert!(metered * 10 > seen * 8, "{metered} of {seen}");
}
