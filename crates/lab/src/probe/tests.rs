use super::collector::Collected;
use super::subject::Run;
use super::traffic::Totals;
use super::*;
use crate::plot;
use crate::report::Origin;
use std::path::Path;

fn options() -> Options {
    Options {
        parts: Part::ALL.to_vec(),
        subjects: Subject::ALL.to_vec(),
        configurations: Configuration::table(),
        traffic_configurations: Configuration::few(),
        grain_configurations: Configuration::grained(),
        work: vec![None, "6".parse().ok()],
        traffic: TRAFFIC.to_vec(),
        flows: FLOWS.to_vec(),
        packets: 1_000,
        runs: 2,
        seed: 1,
        program: PathBuf::from("thalweg"),
    }
}

#[test]
fn every_cell_is_asked_for_once() {
    let all = cells(&options());
    // Two cells per configuration; four configurations with 2, 4 and 2 ways of traffic; three configurations with
    // two kinds of work; numbers of flows; three rivals, and ourselves four times.
    assert_eq!(all.len(), 2 * 19 + (2 + 4 + 2) * 4 + 2 * 3 + 4 + 4 + 3);
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    let count = |options: &Options| cells(options).len();
    assert_eq!(count(&Options { subjects: vec![Subject::Pmacctd], ..options() }), 1);
    assert_eq!(
        count(&Options { subjects: vec![Subject::Thalweg], parts: vec![Part::Rivals], ..options() }),
        4
    );
    assert_eq!(count(&Options { parts: vec![Part::Table, Part::Flows], traffic: vec![], ..options() }), 4);
    assert_eq!(count(&Options { parts: vec![], ..options() }), 0);
    let twice = Options {
        parts: vec![Part::Table, Part::Table],
        configurations: vec![Configuration::SERIAL; 2],
        ..options()
    };
    assert_eq!(count(&twice), 2);
    // The cell that a rival is compared with exists.
    for rival in all.iter().filter(|cell| cell.subject != Subject::Thalweg) {
        let ours = Cell { subject: Subject::Thalweg, configuration: Some(Configuration::SERIAL), ..*rival };
        assert!(all.contains(&ours), "{rival}");
    }
}

#[test]
fn who_cannot_be_run_is_left_out_and_named() {
    let few = Options {
        parts: vec![Part::Rivals],
        subjects: vec![Subject::Thalweg],
        program: PathBuf::from("/no/such/thalweg"),
        ..options()
    };
    let error = super::run(&few, &AtomicBool::new(false), &mut |_, _, _| {}).unwrap_err();
    let ProbeLabError::Nothing(why) = error else { panic!("{error}") };
    assert_eq!(why.len(), 4);
    assert!(
        why[0].starts_with("thalweg serial, zipf:200000 from file") && why[0].contains("cannot be run"),
        "{why:?}"
    );
    let nothing = Options { parts: vec![], ..options() };
    let error = super::run(&nothing, &AtomicBool::new(false), &mut |_, _, _| {}).unwrap_err();
    assert!(error.to_string().contains("nothing to measure"), "{error}");
    let stopped = super::run(&few, &AtomicBool::new(true), &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(stopped, ProbeLabError::Interrupted));
}

const FILE: Totals = Totals { packets: 1_000, bytes: 46_000, flows: 200 };

fn capture(spread: Spread) -> Capture {
    Capture { spread, path: Path::new("x").to_path_buf(), totals: FILE }
}

fn run_of(elapsed_s: f64, counted: Totals) -> Run {
    Run {
        elapsed_s,
        cpu_s: 2.0 * elapsed_s,
        rss_peak_bytes: 50_000_000,
        cache_bytes: Some(10_000_000),
        counted,
        sent: Some(FILE.flows),
        evicted: 0,
        conserved: Some(true),
        collected: Some(Collected { fingerprint: 7, ..Collected::default() }),
        samples: None,
    }
}

/// Everything measured once or twice: serial takes 4 ms, other configurations 2; rivals take 40 and four times
/// the memory.
fn outcome() -> Outcome {
    let cells = cells(&options());
    let captures: Vec<Capture> = super::spreads(&cells).into_iter().map(capture).collect();
    let serial = Some(Configuration::SERIAL);
    let runs = cells.iter().map(|cell| {
        let work = cell.configuration.and_then(|configuration| configuration.work());
        let plain = cell.configuration.map(|configuration| configuration.with_work(None));
        let own = if plain == serial { 0.004 } else { 0.002 };
        // Two threads share the work that one thread has alone.
        let own = own
            + if work.is_none() {
                0.0
            } else if plain == serial {
                0.996
            } else {
                0.3
            };
        match cell.subject {
            Subject::Thalweg => vec![run_of(own, FILE), run_of(own * 1.5, FILE)],
            _ => vec![Run { rss_peak_bytes: 200_000_000, conserved: None, ..run_of(0.04, FILE) }],
        }
    });
    let runs: Vec<Vec<Run>> = runs.collect();
    outcome::sum_up(&cells, &runs, &captures, 2, vec!["skipped: softflowd is not here".to_owned()]).unwrap()
}

#[test]
fn cells_are_compared_with_what_they_are_to_be_compared_with() {
    let outcome = outcome();
    let cells = |part| outcome.cells.iter().filter(move |cell| cell.part == part);
    let farm = cells(Part::Table).find(|cell| cell.configuration == "1R+1W").unwrap();
    assert_eq!((farm.speed_up, farm.published.map(|p| p.mpps)), (Some(2.0), Some(6.45)));
    assert!((farm.published_speed_up.unwrap() - 6.45 / 3.76).abs() < 1e-9);
    assert_eq!(farm.packets_per_second.count, 2);
    assert!((farm.packets_per_second.max - 500_000.0).abs() < 1.0);
    assert!(cells(Part::Traffic).all(|cell| cell.published.is_none()));
    // Each kind of work has its own serial cell; the verdict depends on the grain.
    let grained = |work: &str| {
        let chain = cells(Part::Grain).find(|cell| cell.configuration == "2x(1R>1W)" && cell.work == work);
        chain.unwrap().speed_up.unwrap()
    };
    assert!((grained("none") - 2.0).abs() < 1e-9 && (grained("queens:6") - 1.0 / 0.302).abs() < 1e-9);
    let judged = crate::claims::judge("probe", &serde_json::to_value(&outcome).unwrap());
    let grain = judged.iter().find(|judged| judged.id == "001/grain").unwrap();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    assert_eq!(grain.here.len(), if cores >= 2 { 2 } else { 0 });
    assert!(grain.here.iter().all(|over_none| (over_none - 0.5 / 0.302).abs() < 1e-9), "{grain:?}");
    let flood = cells(Part::Traffic).find(|cell| cell.traffic == "unique").unwrap();
    assert_eq!(flood.normal_ratio, Some(1.0));
    let udp = cells(Part::Traffic).find(|cell| cell.to == Destination::IpfixUdp).unwrap();
    assert_eq!(udp.normal_ratio, None, "normal traffic does not go there");
    let softflowd = cells(Part::Rivals).find(|cell| cell.subject == Subject::Softflowd).unwrap();
    // 40 ms compared with a median of 5.
    assert!((softflowd.ours_ratio.unwrap() - 8.0).abs() < 0.5, "{softflowd:?}");
    assert_eq!((softflowd.memory_ratio, softflowd.speed_up), (Some(4.0), None));
    assert!(outcome.cells.iter().all(|cell| cell.equal && cell.conserved && cell.lost == 0));
}

#[test]
fn what_differs_is_said_and_what_was_lost_is_counted() {
    let serial = Cell {
        part: Part::Traffic,
        subject: Subject::Thalweg,
        configuration: Some(Configuration::SERIAL),
        traffic: Spread::Unique,
        from: Input::Memory,
        to: Destination::IpfixUdp,
    };
    let other = Cell { configuration: Configuration::table().get(1).copied(), ..serial };
    let rival = Cell {
        part: Part::Rivals,
        subject: Subject::Nfpcapd,
        configuration: None,
        from: Input::File,
        to: Destination::Files,
        ..serial
    };
    let fewer = Totals { packets: 990, bytes: 45_540, flows: 198 };
    let losing = Run {
        collected: Some(Collected { missing: 2, fingerprint: 8, ..Collected::default() }),
        ..run_of(0.1, fewer)
    };
    let stranger =
        Run { collected: Some(Collected { fingerprint: 9, ..Collected::default() }), ..run_of(0.1, FILE) };
    let more = Run { conserved: None, sent: None, ..run_of(0.1, Totals { flows: 203, ..FILE }) };
    let sum_up = |cells: &[Cell], runs: &[Vec<Run>]| {
        outcome::sum_up(cells, runs, &[capture(Spread::Unique)], 2, Vec::new()).unwrap()
    };
    let outcome = sum_up(
        &[serial, other, rival],
        &[vec![run_of(0.1, FILE), losing], vec![stranger.clone()], vec![more]],
    );
    let [losing, stranger_result, nfpcapd] = outcome.cells.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((losing.lost, losing.missing, losing.equal, &losing.fingerprint), (2, 2, false, &None));
    assert_eq!(losing.difference, Difference { packets: -10, bytes: -460, flows: -2 });
    assert!(stranger_result.equal && stranger_result.fingerprint.is_some());
    assert!(!nfpcapd.equal && !nfpcapd.conserved);
    let text = render::lead(&outcome);
    assert!(
        text.contains("in 1 of them datagrams were lost") && text.contains("All 1 cells whose"),
        "{text}"
    );
    let table = render::tables(&outcome).iter().map(ToString::to_string).collect::<String>();
    assert!(table.contains("+3 flows"), "{table}");

    let outcome = sum_up(&[serial, other], &[vec![run_of(0.1, FILE)], vec![stranger]]);
    assert!(render::lead(&outcome).contains("Records DIFFER between configurations: unique"), "{outcome:?}");
    let outcome = sum_up(&[serial], &[vec![Run { conserved: Some(false), ..run_of(0.1, fewer) }]]);
    assert!(
        render::lead(&outcome).contains("NOT EQUAL to the file: serial unique (-10 packets"),
        "{outcome:?}"
    );
}

#[test]
fn samples_are_compared_with_the_same_shape_without_them() {
    let shape = |text: &str| Some(text.parse::<Configuration>().unwrap());
    let plain = Cell {
        part: Part::Table,
        subject: Subject::Thalweg,
        configuration: shape("serial"),
        traffic: Spread::Unique,
        from: Input::Memory,
        to: Destination::Nowhere,
    };
    let sampling = Cell { configuration: shape("serial@sflow:100"), ..plain };
    let sampled = |cpu_s| Run { cpu_s, samples: Some(11), ..run_of(0.1, FILE) };
    let cells = [plain, sampling, Cell { configuration: shape("1R+1W@sflow:100"), ..plain }];
    let runs = [vec![run_of(0.1, FILE)], vec![sampled(0.25)], vec![sampled(0.25)]];
    let outcome = outcome::sum_up(&cells, &runs, &[capture(Spread::Unique)], 1, Vec::new()).unwrap();
    let more = |cell: &CellResult| (cell.samples, cell.sflow_cpu_ns.map(f64::round));
    // 1,000 packets in 0.2 and in 0.25 seconds.
    let all: Vec<_> = outcome.cells.iter().map(more).collect();
    assert_eq!(all, [(None, None), (Some(11), Some(50_000.0)), (Some(11), None)]);
    let table = render::tables(&outcome).iter().map(ToString::to_string).collect::<String>();
    assert!(table.contains("Samples for sFlow") && table.contains("+50000.0"), "{table}");
}

/// Whether all elements are closed in the right order and attributes are quoted, as an XML parser requires.
fn is_well_formed(xml: &str) -> bool {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some((text, tail)) = rest.split_once('<') {
        let Some((tag, behind)) = tail.split_once('>') else { return false };
        let bad_text = text.contains('>') || text.split('&').skip(1).any(|part| !part.contains(';'));
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        if bad_text || name.is_empty() || tag.matches('"').count() % 2 != 0 {
            return false;
        }
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = behind;
    }
    open.is_empty()
}

#[test]
fn results_are_objects_tables_and_drawings() {
    let outcome = outcome();
    let json = serde_json::to_value(&outcome).unwrap();
    let cell = &json["cells"][0];
    for name in [
        "subject",
        "configuration",
        "readers",
        "workers",
        "pipelines",
        "traffic",
        "packets",
        "flows",
        "packets_per_second",
        "packets_per_cpu_second",
        "rss_peak_bytes",
        "records",
        "lost",
        "conserved",
    ] {
        assert!(!cell[name].is_null(), "{name} in {cell}");
    }
    assert_eq!(
        (cell["part"].as_str(), cell["from"].as_str(), cell["to"].as_str()),
        (Some("table"), Some("memory"), Some("none"))
    );
    assert_eq!(json["same_records"][0]["different"], 1);
    let manual = include_str!("../../../../docs/probe-bench.md");
    for name in cell.as_object().unwrap().keys().chain(json.as_object().unwrap().keys()) {
        assert!(manual.contains(&format!("`{name}`")), "{name} is not in docs/probe-bench.md");
    }

    let tables = render::tables(&outcome);
    assert_eq!(tables.len(), 5);
    let text: String = tables.iter().map(ToString::to_string).collect();
    for line in text.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
    assert!(text.contains("2x(1R+1W)") && text.contains("10.15") && text.contains("softflowd"), "{text}");

    let page = render::report(&outcome, Origin::here("test", "test")).html();
    let drawings: Vec<&str> =
        page.split("<svg").skip(1).filter_map(|rest| rest.split("</svg>").next()).collect();
    assert_eq!(drawings.len(), 5);
    for drawing in drawings {
        let alone = plot::standalone(&format!("<svg{drawing}</svg>\n"));
        assert!(is_well_formed(&alone) && !alone.contains("NaN"), "{alone}");
    }
    assert!(!is_well_formed("<a><b></a></b>") && !is_well_formed("<a>") && !is_well_formed("<a x=\"1>y</a>"));
    assert!(page.contains("softflowd is not here"));
}
