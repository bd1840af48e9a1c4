use super::live::SetUp;
use super::*;

fn clock() -> Calibration {
    Calibration { ticks_per_ns: 2.0, core_cycles_per_ns: Some(4.0), reading_ticks: 0.0 }
}

fn memory_run(set_up_ticks: f64) -> MemoryRun {
    MemoryRun {
        set_up_ticks,
        set_up_all_ticks: set_up_ticks + 50.0,
        established_ticks: 40.0,
        established_all_ticks: 90.0,
        tear_down_s: 0.5,
        bytes_per_session: Some(90.0),
    }
}

pub(super) fn outcome() -> Outcome {
    let labels = [Label::new("linux", "nftables", ""), Label::new("thalweg", "af_xdp", "run-to-completion")];
    let set_up = |valid_pps| SetUp { counted_pps: 500_000.0, valid_pps };
    let linux = LiveRuns {
        set_up: vec![set_up(100_000.0), set_up(200_000.0), set_up(300_000.0)],
        established: vec![(1_000, 400_000.0), (10, 1.0), (1_000, 400_000.0)],
        tear_down: vec![2e6],
        capacity: Some((262_000, false)),
    };
    let ours = LiveRuns {
        set_up: vec![set_up(400_000.0)],
        established: vec![(1_000, 800_000.0)],
        tear_down: Vec::new(),
        capacity: Some((300_000, true)),
    };
    Outcome {
        runs: 3,
        stage: "nat",
        clock: clock(),
        ceiling_per_second: Summary::of(&[900_000.0]),
        memory: sum_up_memory(
            Workload::Nat(4_000),
            &[memory_run(200.0), memory_run(100.0), memory_run(400.0)],
            &clock(),
        )
        .into_iter()
        .collect(),
        fill: Some(FillResult { room: 64, before_first_refusal: 50, held: 64 }),
        live: sum_up_live(&labels, &[linux, ours], 40_000),
        left_out: vec!["xdp: not here".to_owned()],
    }
}

#[test]
fn rounds_become_medians_in_units_of_time() {
    let result = &outcome().memory[0];
    // 200 ticks at two ticks per nanosecond.
    assert_eq!((result.set_up_ns, result.set_up_per_second.median), (100.0, 1e7));
    assert_eq!((result.set_up_all_ns, result.established_ns, result.established_all_ns), (125.0, 20.0, 45.0));
    assert_eq!((result.tear_down_per_second.median, result.bytes_per_session), (8_000.0, Some(90.0)));
    assert_eq!(sum_up_memory(Workload::Nat(1), &[], &clock()), None);
}

#[test]
fn live_results_are_compared_with_the_kernels() {
    let live = outcome().live;
    let names: Vec<String> =
        live.iter().map(|r| format!("{} {} {}", r.label.subject, r.measure.name(), r.sessions)).collect();
    assert_eq!(
        names,
        [
            "linux set-up 40000",
            "linux established 10",
            "linux established 1000",
            "linux tear-down 40000",
            "linux capacity 262000",
            "thalweg set-up 40000",
            "thalweg established 1000",
            "thalweg capacity 300000",
        ]
    );
    assert_eq!((live[0].native_ratio, live[0].counted_per_second), (Some(1.0), Some(500_000.0)));
    assert_eq!(live[0].per_second.map(|s| (s.min, s.median, s.max)), Some((100_000.0, 200_000.0, 300_000.0)));
    assert_eq!(
        (live[5].native_ratio, live[6].native_ratio, live[7].native_ratio),
        (Some(2.0), Some(2.0), None)
    );
    assert_eq!((live[4].at_least, live[7].at_least), (false, true));
}

#[test]
fn a_firewall_is_compared_with_the_one_of_as_many_rules() {
    let label =
        |subject: &str, rules: u32| Label { change: subject::rules_of(rules), ..Label::new(subject, "", "") };
    let labels =
        [("linux", 10), ("linux", 9), ("thalweg", 10), ("thalweg", 9)].map(|(of, rules)| label(of, rules));
    let runs = [1e5, 5e4, 2e5, 2e5].map(|pps| LiveRuns {
        set_up: vec![SetUp { counted_pps: pps, valid_pps: pps }],
        ..LiveRuns::default()
    });
    let ratios: Vec<_> = sum_up_live(&labels, &runs, 100).iter().map(|result| result.native_ratio).collect();
    assert_eq!(ratios, [Some(1.0), Some(1.0), Some(2.0), Some(4.0)]);
    let memory = [(10, 100.0), (1000, 120.0)].map(|(rules, ticks)| {
        let workload = Workload::Firewall { rules, states: 4_000 };
        sum_up_memory(workload, &[memory_run(ticks)], &clock()).unwrap()
    });
    let outcome = Outcome { stage: "firewall", memory: memory.to_vec(), live: Vec::new(), ..outcome() };
    let text: String = render::tables(&outcome).iter().map(ToString::to_string).collect();
    assert!(text.contains("Firewall in memory") && text.contains("1,000"), "{text}");
    // All stages: 150 ticks against 170; the established packet is the same.
    let said = render::lead(&outcome);
    assert!(said.contains("With 1,000 rules instead of 10") && said.contains("1.13"), "{said}");
}

#[test]
fn results_are_objects_and_tables() {
    let outcome = outcome();
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["live"][6]["measure"], "established");
    assert_eq!(json["live"][6]["subject"], "thalweg");
    assert_eq!(json["live"][6]["per_second"]["median"], 800_000.0);
    assert_eq!(json["memory"][0]["sessions"], 4_000);
    let tables = render::tables(&outcome);
    assert_eq!(tables.len(), 2);
    let text: String = tables.iter().map(ToString::to_string).collect();
    assert!(text.contains("thalweg af_xdp") && text.contains("at least 300,000"), "{text}");
    let page = render::report(&outcome, crate::report::Origin::here("test", "test")).html();
    assert!(page.contains("<svg") && page.contains("xdp: not here"));
}

#[test]
fn in_memory_alone_needs_nobody() {
    let options = Options {
        parts: vec![Part::Memory],
        memory_sessions: vec![200, 3_000],
        memory_packets: 1_600,
        fill_room: 1_280,
        runs: 2,
        ..Options::default()
    };
    let mut steps = Vec::new();
    let outcome =
        run(&mut [], &options, &AtomicBool::new(false), &mut |done, total, _| steps.push((done, total)));
    let outcome = outcome.unwrap();
    assert_eq!(steps, [(0, 4), (1, 4), (2, 4), (3, 4)]);
    assert_eq!(outcome.memory.iter().map(|m| m.sessions).collect::<Vec<_>>(), [200, 3_000]);
    assert!(outcome.live.is_empty() && outcome.ceiling_per_second.is_none());
    let firewall = Options { firewall_rules: vec![2, 300], runs: 1, ..options.clone() };
    let of_firewall = run(&mut [], &firewall, &AtomicBool::new(false), &mut |_, _, _| {}).unwrap();
    let cells: Vec<_> = of_firewall.memory.iter().map(|cell| (cell.sessions, cell.rules)).collect();
    assert_eq!(cells, [(200, Some(2)), (200, Some(300)), (3_000, Some(2)), (3_000, Some(300))]);
    assert_eq!(of_firewall.stage, "firewall");
    assert!(
        outcome.fill.is_some_and(|fill| fill.held <= fill.room && fill.before_first_refusal <= fill.held)
    );
    let stopped = run(&mut [], &options, &AtomicBool::new(true), &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(stopped, NatError::Live(ForwardingError::Interrupted)));
}
