use super::*;
use crate::report::{Machine, Origin};
use std::collections::HashMap;
use std::convert::Infallible;

fn grid() -> Grid {
    Grid {
        models: vec!["serial".into(), "farm".into(), "tokens".into()],
        workers: vec![1, 2],
        chunk_packets: vec![256, 1600],
        work: vec!["none".into(), "queens:8".into()],
    }
}

/// A run whose time follows from the cell: serial takes 1 s, others 1.25 s over their workers.
fn made_up(cell: &Cell) -> CellRun {
    let elapsed_s = if cell.model == SERIAL { 1.0 } else { 1.25 / cell.workers as f64 };
    CellRun {
        packets: 1_000_000,
        elapsed_s,
        cpu_s: elapsed_s * cell.workers as f64,
        residence_p50_ns: 10_000.0,
        residence_p99_ns: 90_000.0,
        max_rss_bytes: 1 << 20,
        samples: vec![Sample { elapsed_s, cpu_s: elapsed_s * cell.workers as f64 * 0.9 }],
    }
}

fn outcome() -> Outcome {
    run(&grid().cells(), &RunOptions::default(), |c| Ok::<_, Infallible>(made_up(c)), |_| ()).unwrap()
}

#[test]
fn the_grid_runs_the_serial_model_with_one_worker_only() {
    let cells = grid().cells();
    assert_eq!(cells.len(), 2 * 2 * (1 + 2 + 2));
    assert!(cells.iter().all(|c| c.model != SERIAL || c.workers == 1));
    let twice = Grid { workers: vec![1, 1], ..grid() };
    assert_eq!(twice.cells().len(), 2 * 2 * 3, "each cell once");
}

#[test]
fn speed_up_and_efficiency_come_from_medians() {
    for result in &outcome().cells {
        let (expected, workers) = match (result.cell.model.as_str(), result.cell.workers) {
            (SERIAL, _) => (1.0, 1.0),
            (_, n) => (n as f64 / 1.25, n as f64),
        };
        assert!((result.speed_up.unwrap() - expected).abs() < 1e-9, "{}", result.cell);
        assert!((result.efficiency.unwrap() - expected / workers).abs() < 1e-9);
        assert_eq!(result.packets_per_second.count, 5);
    }
}

#[test]
fn without_a_serial_cell_there_is_no_speed_up() {
    let cells = Grid { models: vec!["farm".into()], ..grid() }.cells();
    let outcome = run(&cells, &RunOptions::default(), |c| Ok::<_, Infallible>(made_up(c)), |_| ()).unwrap();
    assert!(outcome.cells.iter().all(|r| r.speed_up.is_none() && r.efficiency.is_none()));
    assert!(table(&outcome).rows().iter().all(|row| row[6] == "–"));
    assert!(plots(&outcome).iter().all(|(svg, _)| !svg.contains("Speed-up")));
}

#[test]
fn each_round_runs_every_cell_once_in_an_order_of_its_own() {
    let cells = grid().cells();
    let mut order = Vec::new();
    let mut seen = Vec::new();
    let options = RunOptions { runs: 3, warm_ups: 1, seed: 5 };
    let measure = |cell: &Cell| {
        order.push(cells.iter().position(|c| c == cell).unwrap());
        Ok::<_, Infallible>(made_up(cell))
    };
    run(&cells, &options, measure, |p| seen.push((p.done, p.total))).unwrap();
    let rounds: Vec<&[usize]> = order.chunks(cells.len()).collect();
    assert_eq!(rounds.len(), 4);
    for round in &rounds {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..cells.len()).collect::<Vec<_>>());
    }
    assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(seen, (0..80).map(|done| (done, 80)).collect::<Vec<_>>());
}

#[test]
fn warm_ups_do_not_count() {
    let cells = grid().cells();
    let mut runs: HashMap<Cell, usize> = HashMap::new();
    let measure = |cell: &Cell| {
        let nth = runs.entry(cell.clone()).or_default();
        *nth += 1;
        let slow = if *nth == 1 { 100.0 } else { 1.0 };
        Ok::<_, Infallible>(CellRun { elapsed_s: slow, ..made_up(cell) })
    };
    let outcome = run(&cells, &RunOptions::default(), measure, |_| ()).unwrap();
    assert!(outcome.cells.iter().all(|r| r.packets_per_second.min == 1_000_000.0));
}

#[test]
fn runs_that_do_not_take_the_same_packets_are_an_error() {
    let cells = grid().cells();
    let measure = |cell: &Cell| {
        let lost = u64::from(cell.model == "tokens" && cell.workers == 2);
        Ok::<_, Infallible>(CellRun { packets: 1000 - lost, ..made_up(cell) })
    };
    match run(&cells, &RunOptions::default(), measure, |_| ()) {
        Err(error @ ModelsError::PacketTotals { packets: 999, expected: 1000, .. })
        | Err(error @ ModelsError::PacketTotals { packets: 1000, expected: 999, .. }) => {
            assert!(error.to_string().contains("nothing to compare"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_or_senseless_run_ends_the_experiment_and_is_named() {
    let cells = grid().cells();
    let options = RunOptions::default();
    let error = run(&cells, &options, |_| Err("no such file"), |_| ()).unwrap_err();
    assert!(error.to_string().contains("workers") && error.to_string().contains("no such file"));
    for bad in [0.0, -1.0, f64::NAN] {
        let measure = |c: &Cell| Ok::<_, Infallible>(CellRun { elapsed_s: bad, ..made_up(c) });
        assert!(matches!(run(&cells, &options, measure, |_| ()), Err(ModelsError::Measurement { .. })));
    }
    let none = run(&[], &options, |c| Ok::<_, Infallible>(made_up(c)), |_| ());
    assert!(matches!(none, Err(ModelsError::Nothing)));
}

#[test]
fn table_plots_and_report_show_every_model() {
    let outcome = outcome();
    assert_eq!(table(&outcome).rows().len(), outcome.cells.len());
    let drawn = plots(&outcome);
    assert_eq!(drawn.len(), 2 * 3, "three plots per work setting");
    for (svg, _) in &drawn {
        for model in ["farm", "tokens"] {
            assert!(svg.contains(model), "{model}");
        }
        assert!(!svg.contains("NaN"));
    }
    let origin = Origin {
        machine: Machine::unknown(),
        commit: "unknown".into(),
        command: "thalweg lab models".into(),
        input: "made up".into(),
        measured_at: "never".into(),
    };
    let html = report(&outcome, "Made up.", origin).html();
    assert_eq!(html.matches("<svg").count(), drawn.len());
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["cells"][0]["cell"]["model"], "serial");
    assert!(json["cells"][0]["packets_per_second"]["median"].is_f64());
}
