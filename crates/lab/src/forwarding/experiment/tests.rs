use super::*;
use crate::forwarding::method::{BackToBack, Found, LossPoint, Trial};
use crate::forwarding::render;
use crate::report::{Machine, Origin};

struct Nobody(Label);

impl Subject for Nobody {
    fn label(&self) -> &Label {
        &self.0
    }

    fn set_up(&mut self, _: &Topology, _: &Task<'_>) -> Result<(), ForwardingError> {
        Ok(())
    }
}

fn subjects() -> Vec<Box<dyn Subject>> {
    let labels = [Label::new("linux", "kernel", ""), Label::new("thalweg", "af_xdp", "pipeline")];
    labels.into_iter().map(|label| Box::new(Nobody(label)) as Box<dyn Subject>).collect()
}

fn options(scenarios: &[&str]) -> Options {
    Options { scenarios: scenarios.iter().map(|text| text.parse().unwrap()).collect(), ..Options::default() }
}

#[test]
fn every_cell_belongs_to_one_set_up() {
    let options = options(&["one:1", "full:60000", "one:100", "nat:1", "one:1"]);
    let (cells, set_ups) = plan(&subjects(), &options);
    // Seven sizes of the first scenario, one of the three others; the last is the first again.
    assert_eq!(cells.len(), 2 * (7 + 3));
    assert_eq!(set_ups.len(), 2 * 3, "one route, full table, NAT");
    let mut places: Vec<usize> = set_ups.iter().flat_map(|set_up| set_up.cells.clone()).collect();
    places.sort_unstable();
    assert_eq!(places, (0..cells.len()).collect::<Vec<_>>());
    for set_up in &set_ups {
        for at in &set_up.cells {
            assert_eq!(cells[*at].label, set_up.label);
            assert!(cells[*at].scenario.same_set_up(&set_up.scenario));
        }
    }
    let all = Options { all_frames: true, ..options.clone() };
    assert_eq!(plan(&subjects(), &all).0.len(), 2 * 4 * 7);
    let applications = Options { parts: vec![Part::Application], ..options };
    let (cells, set_ups) = plan(&subjects(), &applications);
    assert_eq!((cells.len(), set_ups.len()), (0, 4), "applications look up no table");
}

fn trial(frames: u64, sender_ns: f64, subject_ns: f64) -> Trial {
    let cpu = |ns: f64| ns * frames as f64 / 1e9;
    Trial {
        intended: frames,
        sent: frames,
        received: frames,
        elapsed_s: 1.0,
        sender_cpu_s: cpu(sender_ns),
        subject_cpu_s: cpu(subject_ns),
        ..Trial::default()
    }
}

/// A run of a router with a throughput, `added` nanoseconds of them in the sender's time.
pub(super) fn cell_run(pps: f64, sender_ns: f64, subject_ns: f64) -> CellRun {
    let percentiles = Percentiles::of((1..=1000).map(|i| i * 10).collect());
    let point = |share: f64, loss| LossPoint {
        share,
        intended_pps: share * 1e6,
        sent_pps: share * 1e6,
        received_pps: share * 1e6 * (1.0 - loss),
        loss,
    };
    CellRun {
        ceiling_pps: 1e6,
        throughput: Found { rate_pps: pps, failed_pps: Some(pps * 1.01), loss: 0.0, trials: 9 },
        latency: vec![(0.5, LatencyRun { rate_pps: pps / 2.0, trial: trial(1000, 0.0, 0.0), percentiles })],
        loss: vec![point(1.0, 0.25), point(0.9, 0.125), point(0.8, 0.0), point(0.7, 0.0)],
        back_to_back: Some(BackToBack {
            bursts: vec![900, 1100],
            mean_frames: 1000.0,
            longest_frames: 1_000_000,
            no_limit: false,
            implied_buffer_s: 0.001,
            corrected_buffer_s: 0.0005,
        }),
        cost: Some(CostRun {
            path: trial(1000, 1000.0 + sender_ns, subject_ns),
            alone: trial(1000, 1000.0, 0.0),
        }),
    }
}

fn measured() -> Measured {
    let size = FrameSize::new(64).unwrap();
    let (cells, _) = plan(&subjects(), &Options { frames: vec![size], ..options(&["one:1", "full:10"]) });
    let runs = |cell: &Cell| match cell.label.subject.as_str() {
        "linux" => [1.0, 1.1, 0.9].map(|f| cell_run(500_000.0 * f, 800.0, 0.0)).to_vec(),
        _ => [1.0, 1.2, 1.1].map(|f| cell_run(800_000.0 * f, 100.0, 300.0)).to_vec(),
    };
    let ceiling =
        |pps| CeilingRun { size, pps, cpu_ns: 1000.0, latency: Percentiles::of(vec![900, 1000, 1100]) };
    let exchange = |bytes, per_second, half_ns| Exchange {
        mtu: 1500,
        message_bytes: bytes,
        half_round_trip: Percentiles::of(vec![half_ns; 3]).unwrap(),
        bytes_per_second: per_second,
    };
    let linux = Some(Label::new("linux", "kernel", ""));
    Measured {
        ceilings: [0.99e6, 1e6, 1.01e6].map(ceiling).to_vec(),
        cells: cells
            .into_iter()
            .map(|cell| {
                let runs = runs(&cell);
                (cell, runs)
            })
            .collect(),
        applications: vec![
            (None, false, exchange(1, 1e6, 10_000)),
            (None, false, exchange(1, 1e6, 30_000)),
            (None, false, exchange(64_000, 1e9, 90_000)),
            (linux.clone(), false, exchange(1, 0.8e6, 15_000)),
            (linux.clone(), false, exchange(1, 0.6e6, 37_000)),
            (linux.clone(), false, Exchange { mtu: 1436, ..exchange(1, 0.6e6, 37_000) }),
            (linux, false, exchange(64_000, 0.5e9, 100_000)),
        ],
        left_out: vec!["xdp-forward xdp, one route: <not here>".to_owned()],
        ..Measured::default()
    }
}

fn table() -> RouteTable {
    RouteTable { prefixes: vec!["1.0.0.0/24".parse().unwrap(); 3], description: "made up".to_owned() }
}

#[test]
fn medians_shares_and_ratios() {
    let options = options(&["one:1", "full:10"]);
    let outcome = sum_up(&measured(), &options, &table()).unwrap();
    assert_eq!(outcome.cells.len(), 4);
    let of = |subject: &str, scenario: &str| {
        outcome.cells.iter().find(|c| c.label.subject == subject && c.scenario == scenario).unwrap()
    };
    let native = of("linux", "one:1");
    assert_eq!(native.packets_per_second.median, 500_000.0);
    assert_eq!(
        (native.ceiling_share, native.native_ratio, native.generator_limited),
        (0.5, Some(1.0), false)
    );
    assert_eq!((native.routes, of("linux", "full:10").routes), (1, 4));
    let ours = of("thalweg", "one:1");
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * b, "{a} is not {b}");
    near(ours.native_ratio.unwrap(), 1.76);
    let cost = ours.cost.as_ref().unwrap();
    near(cost.added_ns_per_packet.median, 400.0);
    near(cost.sender_added_ns_per_packet.median, 100.0);
    near(cost.added_native_ratio.unwrap(), 0.5);
    near(ours.cpu_s.unwrap(), 1400.0 * 1000.0 / 1e9);
    assert_eq!(ours.latency[0].percentiles.p99_ns, 9900);
    assert_eq!(ours.loss_curve.len(), 4);
    assert_eq!(ours.loss_curve[1].loss, 0.125);
    let stream = outcome.applications.iter().find(|a| a.label.is_some() && a.message_bytes == 1).unwrap();
    assert_eq!((stream.bytes_per_second.median, stream.bytes_per_second.count), (0.7e6, 2));
    // Added in the same round: 5 and 7 µs, although the second round was slower.
    let added = stream.added_ns.as_ref().unwrap();
    assert_eq!((added.min, added.max), (5_000.0, 7_000.0));
    let is_without = |a: &&ApplicationResult| a.added_ns.is_none();
    let without: Vec<_> = outcome.applications.iter().filter(is_without).collect();
    assert_eq!(without.len(), 3, "the direct link, and an MTU without one: {without:?}");
}

#[test]
fn a_cell_is_one_flat_object() {
    let outcome = sum_up(&measured(), &options(&["one:1", "full:10"]), &table()).unwrap();
    let json = serde_json::to_value(&outcome).unwrap();
    let cell = &json["cells"][0];
    for key in [
        "subject",
        "driver",
        "model",
        "frame_bytes",
        "routes",
        "flows",
        "packets_per_second",
        "loss",
        "cpu_s",
    ] {
        assert!(!cell[key].is_null(), "{key}: {cell}");
    }
    assert_eq!(cell["latency"][0]["p99_ns"], 9900);
    assert_eq!(json["parts"][3], "back-to-back");
}

#[test]
fn nothing_measured_is_no_outcome() {
    let mut measured = measured();
    measured.applications.retain(|(label, ..)| label.is_none());
    measured.cells.iter_mut().for_each(|(_, runs)| runs.clear());
    assert!(sum_up(&measured, &Options::default(), &table()).is_none());
}

#[test]
fn the_report_shows_everything() {
    let outcome = sum_up(&measured(), &options(&["one:1", "full:10"]), &table()).unwrap();
    let tables = render::tables(&outcome);
    assert_eq!(tables.len(), 8);
    let rows: Vec<usize> = tables.iter().map(|table| table.rows().len()).collect();
    assert_eq!(rows, [1, 4, 4, 16, 4, 4, 5, 5]);
    assert_eq!(tables[1].rows()[0][..3], ["one:1", "64", "linux kernel"]);
    assert_eq!(tables[1].rows()[0][3..], ["500 k", "20 %", "50 %", "1.00", "router"]);
    let origin = Origin {
        machine: Machine::unknown(),
        commit: "unknown".into(),
        command: "thalweg lab forwarding".into(),
        input: "made up".into(),
        measured_at: "never".into(),
    };
    let html = render::report(&outcome, origin).html();
    // Share, ratio, by scenario, added, latency, loss, three of applications.
    assert_eq!(html.matches("<svg").count(), 9);
    assert!(html.contains("&lt;not here&gt;") && !html.contains("no data") && !html.contains("NaN"));
    let lead = render::lead(&outcome);
    assert!(
        lead.contains("one:1, 64 bytes: linux kernel 0.50 Mpps, 800 ns added per frame; thalweg"),
        "{lead}"
    );
}
