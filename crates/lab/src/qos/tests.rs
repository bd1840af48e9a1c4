use super::*;

#[test]
fn offered_rates_add_up_to_the_overload() {
    let options = Options::default();
    let [voice, bulk] = options.offered_pps();
    let bits = voice * line_bits(VOICE_PACKET_BYTES) + bulk * line_bits(BULK_PACKET_BYTES);
    assert!((bits - 200e6).abs() < 1.0, "{bits}");
    // 5000 packets of 238 bytes on the line.
    assert_eq!((line_bits(VOICE_PACKET_BYTES), line_bits(BULK_PACKET_BYTES)), (1904.0, 12_304.0));
    assert_eq!(options.rest_bits(), 100e6 - 9.52e6);
    let little = Options { rate_bits: 1e6, ..options };
    assert_eq!((little.offered_pps()[1], little.rest_bits()), (0.0, 0.0), "voice alone is more than that");
}

fn run_of(voice_p99_ns: u64, queue: bool) -> Run {
    let received = |received, p99_ns| Received {
        sent: 20_000,
        received,
        came: received,
        latency: Some(Percentiles { samples: 10, p99_ns, ..Percentiles::default() }),
    };
    let times = QueueTimes { p50_us: 10.0, p99_us: 200.0, p999_us: 300.0 };
    Run {
        classes: [received(20_000, voice_p99_ns), received(10_000, 9_000_000)],
        queue: queue.then_some([times; 2]),
    }
}

pub(super) fn outcome() -> Outcome {
    let options = Options::default();
    let ours = Label::new("thalweg", "af_xdp", "run-to-completion");
    let kernel = Label::new("linux", "tbf", "");
    let mut cells =
        sum_up(&ours, &[run_of(400_000, true), run_of(200_000, true), run_of(900_000, true)], &options);
    cells.extend(sum_up(&kernel, &[run_of(50_000_000, false)], &options));
    cells.extend(sum_up(&kernel, &[], &options));
    Outcome {
        runs: 3,
        trial_s: options.trial_s,
        rate_bits: options.rate_bits,
        overload: options.overload,
        rest_bits: options.rest_bits(),
        cells,
        left_out: vec!["linux tbf+prio: unknown qdisc".to_owned()],
    }
}

#[test]
fn rounds_become_medians_by_class() {
    let cells = outcome().cells;
    let names: Vec<String> =
        cells.iter().map(|cell| format!("{} {}", cell.label.subject, cell.class)).collect();
    assert_eq!(names, ["thalweg voice", "thalweg bulk", "linux voice", "linux bulk"]);
    let voice = &cells[0];
    assert_eq!(voice.latency.map(|latency| latency.p99_ns), Some(400_000));
    assert_eq!(voice.latency_p99_ns.map(|p99| (p99.min, p99.max)), Some((200_000.0, 900_000.0)));
    // 20,000 packets of 1904 bits in four seconds; half of bulk is lost.
    assert_eq!(voice.line_bits_per_second.median, 9.52e6);
    assert_eq!((voice.loss.median, cells[1].loss.median), (0.0, 0.5));
    assert_eq!((voice.sojourn.map(|times| times.p99_us), cells[2].sojourn), (Some(200.0), None));
}

#[test]
fn results_are_objects_and_a_table() {
    let outcome = outcome();
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["cells"][0]["subject"], "thalweg");
    assert_eq!(json["cells"][0]["class"], "voice");
    assert_eq!(json["cells"][0]["sojourn"]["p999_us"], 300.0);
    let text = render::table(&outcome).to_string();
    assert!(text.contains("linux tbf") && text.contains("50.0 ms"), "{text}");
    let page = render::report(&outcome, crate::report::Origin::here("test", "test")).html();
    assert!(page.contains("unknown qdisc") && page.contains("<svg"));
}
