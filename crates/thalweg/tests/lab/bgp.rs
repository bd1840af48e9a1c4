//! `lab bgp`.

use super::{experiment, report, results};

#[test]
fn receiving_bgp_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = experiment(&["lab", "bgp", "--quick", "--only", "receive"], folder.path());
    let json = results(&output, folder.path());
    let rows = json["results"]["receive"].as_array().expect("rows");
    for strategy in ["two-reads", "buffered"] {
        let calls: Vec<f64> = rows
            .iter()
            .filter(|row| row["strategy"] == strategy)
            .filter_map(|row| row["calls_per_message"].as_f64())
            .collect();
        assert_eq!(calls.len(), 3, "three sizes of UPDATEs: {json}");
        assert!(calls.iter().all(|calls| (*calls >= 2.0) == (strategy == "two-reads")), "{calls:?}");
    }
    let table = String::from_utf8_lossy(&output.stdout);
    for line in table.lines().filter(|line| !line.starts_with("wrote")) {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[test]
fn schedulings_of_the_bgp_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let parts = "speed-up,functions,one-core,mixes,ways,blocks,wu,ablations,receive";
    let few = ["--prefixes", "300", "--neighbors", "3", "--runs", "1", "--threads-per-core", "1,2"];
    let few = [&["--only", parts][..], &few].concat();
    let output = experiment(&[&["lab", "bgp", "--quick"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    let cores = thalweg_lab::cores::Cores::here().expect("cores");
    let (steps, all) = (cores.steps().len(), cores.count() as u64);
    // Two loads. Each has serial once, and for each number of cores per-peer and two schedulings with one and
    // with two threads per core.
    let speed_ups = 2 * (1 + steps * (1 + 2 * 2));
    // Four schedulings each for: functions, functions on one core, five mixes, three ways, two tables, eight
    // loads. In addition, per-peer with two pollers and with four tables.
    assert_eq!(cells.len(), speed_ups + 4 * (2 + 5 + 3 + 2 + 8) + 2 + 4, "{json}");
    for cell in cells {
        let (part, scheduling) = (&cell["cell"]["part"], cell["cell"]["scheduling"].as_str().unwrap_or(""));
        let at = |name: &str| cell["cell"][name].as_u64();
        assert!(cell["elapsed_s"]["median"].as_f64().is_some_and(|s| s > 0.0), "{cell}");
        assert_eq!(cell["speed_up"].as_f64().is_some_and(|s| s > 0.0), part != "ablations", "{cell}");
        assert!(at("cores") <= Some(all) && at("cores") >= Some(1), "{cell}");
        let threads = match (scheduling, at("threads_per_core")) {
            ("serial", None) => 1,
            // A master, the neighbors and the monitor. The eight loads have two neighbors.
            ("per-peer", None) => {
                let is_table = cell["cell"]["load"]
                    .as_str()
                    .is_some_and(|load| load.starts_with("tr") || load == "the RIB");
                match part.as_str() {
                    Some("wu") => 4,
                    Some("ablations") if is_table => 3,
                    _ => 5,
                }
            }
            ("dynamic", Some(each)) => 1 + at("cores").unwrap_or(0) * each,
            (_, each) => at("cores").unwrap_or(0) * each.expect("a number"),
        };
        assert_eq!(cell["threads"].as_u64(), Some(threads), "threads are counted: {cell}");
        let nobody_is_told = part != "wu" && part != "ways";
        assert_eq!(cell["told"] == 0.0, nobody_is_told, "{cell}");
        if part == "functions" || part == "one-core" {
            assert!(cell["functions_ns"]["table_update"].is_object() && cell["shares"].is_object(), "{cell}");
        }
        if part == "blocks" {
            let blocks = cell["blocks"]["median_s"].as_array().map_or(0, Vec::len) as u64;
            assert_eq!(Some(blocks), cell["updates"].as_u64().map(|updates| updates / 500), "{cell}");
        }
    }
    let worth = json["results"]["worth"].as_array().expect("a list");
    assert_eq!(worth.len() % 4, 0, "each way under each of four schedulings: {json}");
    assert!(worth.iter().all(|worth| worth["gain"].is_f64()) && !worth.is_empty(), "{json}");
    let text = String::from_utf8_lossy(&output.stdout);
    for verdict in ["reproduced", "figure 4.9", "not run (needs 16 cores)", "Pentium III", "cycles (thesis)"]
    {
        assert!(
            text.contains(verdict) || (cores.count() >= 8 && verdict.contains("not run")),
            "{verdict} in {text}"
        );
    }
    let html = std::fs::read_to_string(report(folder.path()).join("report.html")).expect("a page");
    for load in ["in memory", "in the kernel&#39;s buffers"] {
        assert!(html.contains(&format!("Speed-up by cores, {load}")), "a plot for each load: {load}");
    }

    let refused = experiment(&["lab", "bgp", "--cores", "5000"], folder.path());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && text.contains("this process may use"), "{text}");

    let Some(trace) = thalweg_testdata::shared("mrt/updates.ris-rrc06.20150401.0000.gz") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let trace = trace.to_str().expect("a path");
    let few = ["--only", "mixes,blocks", "--runs", "1", "--trace", trace, "--advertise", "monitor"];
    let output = experiment(&[&["lab", "bgp", "--quick"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 4 * (5 + 1), "{json}");
    assert!(cells.iter().all(|cell| cell["told"].as_f64() > Some(0.0)), "{json}");
    let along = cells.iter().filter(|cell| cell["cell"]["part"] == "blocks");
    assert!(along.map(|cell| &cell["blocks"]["median_s"]).all(serde_json::Value::is_array), "{json}");
}

/// Figure 5.1. Every address goes through a pipe, those of the program's start too: few prefixes suffice.
#[test]
fn misses_by_the_size_of_a_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--only", "caches", "--prefixes", "20", "--neighbors", "3"];
    let output = experiment(&[&["lab", "bgp", "--quick"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let left_out = json["results"]["left_out"].as_array().expect("a list");
    match json["results"]["caches"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => {
            let said = left_out.iter().find_map(|why| why.as_str().filter(|why| why.starts_with("valgrind")));
            thalweg_testdata::skipped(said.expect("the reason for missing caches"));
        }
        curves => {
            let misses = |curve: &serde_json::Value| -> Vec<f64> {
                let points = curve["points"].as_array().expect("points");
                points.iter().filter_map(|point| point["misses_per_update"].as_f64()).collect()
            };
            assert_eq!(curves.len(), 3, "{json}");
            for curve in curves {
                let misses = misses(curve);
                assert!(misses.len() > 10 && misses.is_sorted_by(|a, b| a >= b), "{curve}");
                assert!(misses[0] > *misses.last().expect("one"), "the smallest cache misses most: {curve}");
                assert!(curve["accesses_per_update"].as_f64() > Some(100.0), "{curve}");
            }
            // One core and three cores touch the same bytes, but each of the three must fetch what the others
            // write.
            assert_eq!(curves[0]["touched_bytes"], curves[1]["touched_bytes"], "{json}");
            let unavoidable = |at: usize| curves[at]["unavoidable_per_update"].as_f64();
            assert!(unavoidable(1) > unavoidable(0), "{json}");
        }
    }
}
