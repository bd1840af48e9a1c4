//! `lab forwarding` between namespaces, as the document prints it and at its smallest size. Others use this machine: how
//! fast anything was is nobody's business here, only what was measured and that the figures belong together.

use serde_json::Value;

/// The command of the document that has these words, with options that make it short.
fn run(words: &str, short: &str) -> Option<Value> {
    if !thalweg_lab::forwarding::is_root() {
        thalweg_testdata::skipped(&format!("lab forwarding {words}: not root"));
        return None;
    }
    let text = std::fs::read_to_string(crate::of_repository("docs/forwarding-bench.md")).expect("a document");
    let text = text.replace("\\\n", " ");
    let is_it = |line: &&str| line.trim_start().starts_with("thalweg lab forwarding") && line.contains(words);
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no command with {words}"));
    let command = line.split('#').next().unwrap_or_default();
    let arguments: Vec<&str> = command.split_whitespace().skip(1).chain(short.split_whitespace()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let output = crate::experiment(&arguments, folder.path());
    let json = crate::results(&output, folder.path());
    for why in json["results"]["left_out"].as_array().expect("a list") {
        println!("{words}: left out: {why}");
    }
    Some(json["results"].clone())
}

fn rows<'j>(results: &'j Value, name: &str) -> &'j [Value] {
    results[name].as_array().expect("a list")
}

/// Whether a router of the subject was left out. A machine without a driver's means leaves it out; the kernel is always
/// there.
fn is_left_out(results: &Value, name: &str) -> bool {
    rows(results, "left_out").iter().any(|why| why.as_str().is_some_and(|why| why.starts_with(name)))
}

fn number(row: &Value, path: &str) -> f64 {
    row.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}: {row}"))
}

#[test]
fn several_ports_in_both_directions() {
    let short = "--quick --trial 0.05 --subjects linux,thalweg --drivers af_packet";
    let Some(results) = run("--only ports", short) else { return };
    let ports = rows(&results, "ports");
    assert!(rows(&results, "cells").is_empty() && rows(&results, "ceilings").is_empty());
    for (count, frame) in [2, 4, 6].iter().flat_map(|count| [64, 128, 256, 1024].map(|frame| (*count, frame)))
    {
        let here = || ports.iter().filter(|row| row["ports"] == count && row["frame_bytes"] == frame);
        let of = |subject: &str| here().find(|row| row["subject"] == subject);
        let alone = here().find(|row| row["subject"].is_null()).expect("the generator alone");
        let native = of("linux").unwrap_or_else(|| panic!("the kernel: {ports:?}"));
        // On a busy machine a trial this short may pass nothing, and then there is no ratio.
        let passed = |row: &Value| number(row, "/packets_per_second/median") > 0.0;
        let of_itself = if passed(native) { 1.0.into() } else { Value::Null };
        assert_eq!((&native["native_ratio"], &alone["native_ratio"]), (&of_itself, &Value::Null), "{native}");
        let ours = of("thalweg");
        assert!(ours.is_some() || is_left_out(&results, "thalweg"), "{count} ports: {ports:?}");
        let line_pps = f64::from(count) * 1e9 / 8.0 / f64::from(frame + 20);
        for row in here() {
            let pps = number(row, "/packets_per_second/median");
            for (share, rate) in [("/share_of_1g", 1.0), ("/share_of_10g", 10.0)] {
                assert!((number(row, share) - (pps / line_pps / rate).min(1.0)).abs() < 1e-9, "{row}");
            }
        }
        if let Some(ours) = ours.filter(|_| passed(native)) {
            let ratio =
                number(ours, "/packets_per_second/median") / number(native, "/packets_per_second/median");
            assert!((number(ours, "/native_ratio") - ratio).abs() < 1e-9, "{ours} {native}");
        }
    }
}

/// Every change of the document is seen in the router that ran with it, and in no other.
#[test]
fn each_technique_is_changed_alone() {
    let short = "--quick --trial 0.05 --drivers af_packet,af_xdp --scenarios one:1";
    let Some(results) = run("--ablate polling,huge-pages,copies,affinity,batch", short) else { return };
    let (changes, cells) = (rows(&results, "changes"), rows(&results, "cells"));
    let shown = |change: &Value, driver: &Value| {
        let is_it = |row: &&Value| row["change"] == *change && row["driver"] == *driver;
        rows(&results, "shown").iter().find(is_it).unwrap_or_else(|| panic!("{driver} {change}: {results}"))
    };
    let drivers =
        ["af_packet", "af_xdp"].iter().filter(|driver| !is_left_out(&results, &format!("thalweg {driver}")));
    for (driver, count) in drivers.map(|driver| (*driver, if *driver == "af_xdp" { 7 } else { 5 })) {
        let here: Vec<&Value> = changes.iter().filter(|row| row["driver"] == driver).collect();
        // On a busy machine a trial this short may pass nothing, and then there is nothing to compare with.
        let passed = cells.iter().any(|cell| {
            cell["driver"] == driver
                && cell["change"].is_null()
                && number(cell, "/packets_per_second/median") > 0.0
        });
        assert_eq!(here.len(), if passed { count } else { 0 }, "{changes:?}");
        let usual = shown(&Value::Null, &driver.into());
        assert_eq!((&usual["polled"], &usual["huge_pages_allowed"]), (&0.into(), &true.into()), "{usual}");
        let cores = usual["cores"].as_str().expect("cores");
        assert!(
            !usual["mode"].as_str().is_some_and(|mode| mode.contains("generic") || mode.contains("offload"))
        );
        for row in here {
            let changed = shown(&row["change"], &row["driver"]);
            let change = row["change"].as_str().expect("a change");
            // No worker polls while others want its core, as they do beside other tests: then the row says so.
            let has_effect = change != "busy polling" || changed["polled"] != 0;
            assert_eq!(row["took_effect"], has_effect, "{row}: {changed}");
            // Nothing else was changed.
            assert!(changed["polled"] == 0 || change == "busy polling", "{changed}");
            assert_eq!(changed["huge_pages_allowed"], change != "no huge pages", "{changed}");
            assert_eq!(
                changed["cores"] == cores,
                !change.starts_with("on core") || !cores.contains(['-', ',']),
                "{changed}"
            );
            assert_eq!(changed["mode"] == usual["mode"], !change.contains("copy"), "{changed}");
        }
    }
    for row in changes {
        let of = |change: &Value| {
            let is_it = |cell: &&Value| cell["driver"] == row["driver"] && cell["change"] == *change;
            number(cells.iter().find(is_it).expect("a cell"), "/packets_per_second/median")
        };
        let ratio = of(&row["change"]) / of(&Value::Null);
        assert!((number(row, "/throughput_ratio/median") - ratio).abs() < 1e-9, "one round: {row}");
    }
}

#[test]
fn programs_over_a_router_a_switch_and_nothing() {
    let short = "--quick --subjects linux,bridge,thalweg --drivers af_packet";
    let Some(results) = run("--only application", short) else { return };
    let applications = rows(&results, "applications");
    let sizes = [1, 1384, 1385, 1448, 1449, 64_000];
    for (mtu, bytes) in [1436, 1500].iter().flat_map(|mtu| sizes.map(|bytes| (*mtu, bytes))) {
        let of = |subject: &Value| {
            let is_it = |row: &&Value| {
                row["mtu"] == mtu && row["message_bytes"] == bytes && row["subject"] == *subject
            };
            applications.iter().find(is_it)
        };
        let direct = of(&Value::Null).unwrap_or_else(|| panic!("the direct link, {mtu}, {bytes}: {results}"));
        assert_eq!(direct["added_ns"], Value::Null);
        for subject in ["linux", "bridge", "thalweg"] {
            let Some(row) = of(&subject.into()) else {
                assert!(subject == "thalweg" && is_left_out(&results, subject), "{subject}: {results}");
                continue;
            };
            let half = |row| number(row, "/half_round_trip_p50_ns/median");
            assert!(
                (number(row, "/added_ns/median") - (half(row) - half(direct))).abs() < 1e-6,
                "{row} {direct}"
            );
        }
    }
    assert!(rows(&results, "cells").is_empty(), "a switch is no router: {results}");
}
