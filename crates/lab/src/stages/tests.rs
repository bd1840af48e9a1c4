use super::measure::medians;
use super::*;
use proptest::prelude::*;

#[test]
fn workloads_are_written_as_they_are_read() {
    for text in ["one", "full", "full-zipf", "nat:1", "nat:4000", "nat:10000000", "firewall:10:4000"] {
        for more in ["", "@flows", "@sflow:1", "@sflow:100000000"] {
            let text = text.to_owned() + more;
            assert_eq!(text.parse::<Load>().map(|load| load.to_string()), Ok(text));
        }
    }
    for bad in ["one@", "one@sflow", "one@sflow:0", "one@sflow:100000001", "one@flow", "nat@flows"] {
        assert!(bad.parse::<Load>().is_err(), "{bad}");
    }
    let bad = ["firewall:0:1", "firewall:1:0", "firewall:1", "firewall:50001:1"];
    for bad in bad.into_iter().chain(["", "nat", "nat:", "nat:0", "nat:10000001", "nat:-1", "fully"]) {
        assert!(bad.parse::<Workload>().is_err(), "{bad}");
    }
}

#[test]
fn a_round_is_the_median_of_its_chunks() {
    let round = medians(&[vec![1.0, 10.0], vec![3.0, 30.0], vec![900.0, 20.0]]);
    assert_eq!(round, StageTicks { stages: vec![3.0, 20.0], all: 33.0 });
    assert_eq!(medians(&[]), StageTicks { stages: Vec::new(), all: 0.0 });
}

#[test]
fn every_stage_of_every_workload_has_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let table: Vec<_> = crate::workload::prefixes::v4(500, 3);
    let options = Options {
        workloads: [
            Workload::OneRoute,
            Workload::FullTable,
            Workload::FullTableZipf,
            Workload::Nat(900),
            Workload::Firewall { rules: 20, states: 900 },
        ]
        .map(Load::from)
        .to_vec(),
        runs: 2,
        chunks: 2,
        chunk_packets: 300,
        seed: 5,
    };
    let mut beds: Vec<Bed> = options
        .workloads
        .iter()
        .map(|workload| Bed::new(*workload, &table, options.seed, folder.path()).unwrap())
        .collect();
    let mut steps = 0;
    let outcome = run(&mut beds, &options, &mut |done, _| {
        assert_eq!(done, steps);
        steps += 1;
    })
    .unwrap();
    assert_eq!(steps, 3 * 5, "a round to warm up, and two");
    let names = |workload: &str| {
        let here = outcome.cells.iter().filter(|cell| cell.workload == workload);
        here.map(|cell| cell.stage.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(names("one"), ["ingress", "route", "egress", ALL_STAGES]);
    assert_eq!(names("full"), names("one"));
    assert_eq!(names("nat:900"), ["ingress", "arrival", "nat", "route", "egress", ALL_STAGES]);
    assert_eq!(names("firewall:20:900"), ["ingress", "arrival", "route", "firewall", "egress", ALL_STAGES]);
    for cell in &outcome.cells {
        assert_eq!(cell.tsc_cycles_per_packet.count, 2, "{cell:?}");
        assert!(cell.tsc_cycles_per_packet.min >= 0.0 && cell.ns_per_packet >= 0.0, "{cell:?}");
        let routes = if cell.workload.starts_with("full") { 500 } else { 1 };
        assert_eq!((cell.routes, cell.sessions > 0), (routes, cell.workload.contains(":900")));
    }
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["cells"].as_array().unwrap().len(), 4 + 4 + 4 + 6 + 6);
    for key in ["workload", "stage", "tsc_cycles_per_packet", "core_cycles_per_packet", "ns_per_packet"] {
        assert!(json["cells"][0].get(key).is_some(), "{key}");
    }
    let table = render::table(&outcome).to_string();
    assert!(table.contains("nat:900") && table.contains("ingress"), "{table}");
    let origin = crate::report::Origin::here("test", "test");
    assert!(render::report(&outcome, origin).html().contains("<svg"));
}

/// Each packet that is sampled is told where the plan ends, so the samples of a round are those of its rate.
#[test]
fn a_router_that_samples_has_the_meters_stage_and_samples_at_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    let bed = |text: &str| Bed::new(text.parse::<Load>().unwrap(), &[], 1, folder.path()).unwrap();
    let options = Options { chunks: 4, chunk_packets: 1000, ..Options::default() };
    let samples = |text: &str| {
        let mut bed = bed(text);
        let before = bed.samples();
        bed.round(&options, 0.0, 1).unwrap();
        bed.samples() - before
    };
    assert_eq!(bed("one@flows").stages(), ["ingress", "arrival", "route", "egress", "flows"]);
    assert_eq!(bed("one@sflow:10").stages(), bed("one@flows").stages());
    assert_eq!((samples("one"), samples("one@flows"), samples("one@sflow:1")), (0, 0, 4000));
    // The seed is fixed, and the number with it.
    let [ten, hundred] = ["nat:900@sflow:10", "nat:900@sflow:100"].map(samples);
    assert!((300..500).contains(&ten) && (10..80).contains(&hundred), "{ten}, {hundred}");
}

#[test]
fn packets_that_are_dropped_are_no_result() {
    let folder = tempfile::tempdir().unwrap();
    // Without an IPv4 prefix to draw from, every packet goes to 0.0.0.0.
    let mut bed = Bed::new(Workload::FullTable, &["20.0.0.0/8".parse().unwrap()], 1, folder.path()).unwrap();
    bed.round(&Options { chunks: 1, ..Options::default() }, 0.0, 1).unwrap();
    let mut empty = Bed::new(Workload::FullTable, &[], 1, folder.path()).unwrap();
    let error = empty.round(&Options { chunks: 1, ..Options::default() }, 0.0, 1).unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
}

proptest! {
    #[test]
    fn a_median_is_a_value_of_some_chunk(chunks in prop::collection::vec(prop::collection::vec(0.0f64..1e6, 3), 1..30)) {
        let round = medians(&chunks);
        for at in 0..3 {
            prop_assert!(chunks.iter().any(|chunk| chunk[at] == round.stages[at]));
        }
        let sums: Vec<f64> = chunks.iter().map(|chunk| chunk.iter().sum()).collect();
        prop_assert!(sums.contains(&round.all));
    }
}
