//! `thalweg probe` as people and scripts use it.

use std::process::Command;

use crate::support::{root, thalweg};

const OFFICE: &str = "examples/small-office/office.pcapng";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn the_summary_adds_up_for_people_and_for_machines() {
    let output = thalweg(&["probe", OFFICE, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let number = |name: &str| summary[name].as_u64().expect(name);
    assert!(number("packets_seen") > 0 && number("records_exported") > 0 && number("rss_peak_bytes") > 0);
    let dropped: u64 =
        summary["dropped"].as_object().expect("reasons").values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(number("packets_seen"), number("packets_exported") + number("packets_cached") + dropped);
    assert_eq!(summary["conserved"], true);
    assert!(summary["elapsed_s"].as_f64() > Some(0.0) && summary["packets_per_second"].as_f64() > Some(0.0));
    let output = thalweg(&["probe", OFFICE, "--readers", "1", "--workers", "2"]);
    let table = text(&output.stdout);
    assert!(table.contains("farm, 1 reader, 2 workers"), "{table}");
    assert!(table.contains(&format!("packets: {} seen = ", number("packets_seen"))), "{table}");
}

#[test]
fn the_summary_fits_the_terminal() {
    let said = |width: usize, arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(arguments)
            .current_dir(root())
            .env("COLUMNS", width.to_string())
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let words = |text: &str| text.split_whitespace().count();
    let probe = ["probe", OFFICE, "--sample", "1:2", "--names", "dns", "--flows-max", "256"];
    for width in [80, 60, 45] {
        let narrow = said(width, &probe);
        let long: Vec<&str> = narrow.lines().filter(|line| line.chars().count() > width).collect();
        assert!(long.is_empty() && words(&narrow) > 50, "{width}: {long:#?}");
    }
}

/// The rules of the example find a real scan, and nothing where there is nothing.
#[test]
fn example_alarms_find_a_scan_and_leave_an_office_alone() {
    let rules = "examples/small-office/alarms.toml";
    let alarms = |capture: &str| -> serde_json::Value {
        let output = thalweg(&["probe", capture, "--alarms", rules, "--format", "json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
        summary["alarms"].clone()
    };
    let mut quiet = vec![OFFICE.to_owned()];
    for capture in ["snabb/sanitized4k.pcap.gz", "ndpi/skype.pcap", "ndpi/sip.pcap", "ndpi/http_ipv6.pcap"] {
        quiet.extend(
            thalweg_testdata::shared(&format!("pcap/{capture}")).map(|path| path.display().to_string()),
        );
    }
    for capture in quiet {
        let alarms = alarms(&capture);
        assert_eq!(alarms["events"], serde_json::json!([]), "{capture}");
    }
    let Some(scan) = thalweg_testdata::shared("pcap/ndpi/synscan.pcap") else { return };
    let alarms = alarms(&scan.display().to_string());
    let raised = |event: &&serde_json::Value| event["event"] == "raised";
    let events: Vec<_> = alarms["events"].as_array().expect("events").iter().filter(raised).collect();
    assert_eq!(events.len(), 1, "{alarms}");
    assert_eq!((&events[0]["rule"], &events[0]["of"]), (&"port-scan".into(), &"172.16.0.8".into()));
    let output = thalweg(&["probe", OFFICE, "--alarms", "examples/small-office/router.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the file of alarms"), "{}", text(&output.stderr));
}

#[test]
fn records_on_standard_output_stand_alone() {
    let output = thalweg(&["probe", OFFICE, "--json", "-", "--model", "serial"]);
    assert_eq!(output.status.code(), Some(0));
    let records: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert!(!records.is_empty() && records.iter().all(|record| record["packets"].as_u64() > Some(0)));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("{} records exported", records.len())), "{said}");
}

/// A record has the same names, values and order whether the probe prints it or a dataset does.
#[test]
fn probe_and_dataset_print_the_same_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (json, csv, store) = (path("flows.json"), path("flows.csv"), path("store"));
    let output = thalweg(&["probe", OFFICE, "--biflow", "--json", &json, "--csv", &csv, "--store", &store]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // A file has no names of interfaces, so both print numbers.
    let sorted = |lines: &str| {
        let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    for (written, form) in [(&json, &["--format", "json"][..]), (&csv, &["--csv"])] {
        let list = thalweg(&[&["flows", "--data", &store, "list", "-n", "1000"], form].concat());
        let written = std::fs::read_to_string(written).expect("lines");
        let (written, listed) = (sorted(&written), sorted(&text(&list.stdout)));
        assert!(written.len() > 50, "{written:?}");
        assert_eq!(written, listed);
    }
}

#[test]
fn mistakes_exit_with_2_and_say_what_was_expected() {
    let wrong: [(&[&str], &str); 12] = [
        (&[], "or an interface with --interface (here: "),
        (&[OFFICE, "--sample", "2:10"], "1:N"),
        (&[OFFICE, "--idle-timeout", "0"], "seconds above 0"),
        (&[OFFICE, "--key", "none,ports"], "excludes other fields"),
        (&[OFFICE, "--readers", "1", "--model", "tokens"], "--readers"),
        (&[OFFICE, "--export", "v7://x"], "v7://x"),
        (&[OFFICE, "--export", "v9://x?options=in-domain"], "column 7"),
        (&[OFFICE, "--applications", "guess"], "payload"),
        (&[OFFICE, "--export", "kafka://x:9092/t?acks=2"], "column 23: expected all, 1 or 0"),
        (&[OFFICE, "--interface", "eth0"], "--interface"),
        (&[OFFICE, "--flows-max", "1"], "flows"),
        (&["-", "--loop", "2"], "only once"),
    ];
    for (arguments, word) in wrong {
        let output = thalweg(&[&["probe"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(word), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
    let output = thalweg(&["probe", "no/such.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no/such.pcap"), "{}", text(&output.stderr));
}

fn summary(output: &std::process::Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// A missing collector: nothing is delivered, and every record is accounted for.
#[test]
fn a_collector_that_is_not_there_is_no_success() {
    for (url, why) in [
        ("ipfix+tcp://127.0.0.1:1", "Connection refused"),
        ("ipfix://127.0.0.1:1", "nobody listens there"),
        ("v9://[::1]:1", "nobody listens there"),
    ] {
        let output = thalweg(&["probe", OFFICE, "--format", "json", "--export", url]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{url}: {said}");
        assert!(said.contains(url) && said.contains(why), "{url}: {said}");
        let summary = summary(&output);
        assert_eq!(summary["conserved"], true, "{summary}");
        if url.starts_with("ipfix+tcp") {
            assert_eq!((&summary["records_exported"], &summary["packets_exported"]), (&0.into(), &0.into()));
            assert_eq!(summary["outlets"][0]["records"], 0, "{summary}");
            assert!(summary["dropped"]["undelivered"].as_u64() > Some(0), "{summary}");
        } else {
            assert!(summary["outlets"][0]["datagrams_refused"].as_u64() > Some(0), "{summary}");
        }
        // A file beside it gets everything, but the collector's failure is still reported.
        let folder = tempfile::tempdir().expect("a folder");
        let lines = folder.path().join("flows.json").display().to_string();
        let output = thalweg(&["probe", OFFICE, "--format", "json", "--export", url, "--json", &lines]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        let count = std::fs::read_to_string(&lines).expect("lines").lines().count() as u64;
        assert_eq!(self::summary(&output)["records_exported"], count, "{url}");
    }
}

#[test]
fn input_without_a_packet_is_no_success_unless_it_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let prose = file("prose.txt", b"this is no trace\nnor is this\n");
    let binary = file("binary", &(0..=255).cycle().take(5_000).collect::<Vec<u8>>());
    for input in [&prose, &binary] {
        let output = thalweg(&["probe", input]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{input}: {said}");
        assert!(said.contains("expected") && said.contains("pcap"), "{input}: {said}");
    }
    let mut empty: Vec<u8> = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1] {
        empty.extend(word.to_le_bytes());
    }
    let output = thalweg(&["probe", &file("empty.pcap", &empty)]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// The command line sets a dataset's limits, too.
#[test]
fn a_dataset_is_kept_within_its_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("flows").display().to_string();
    let output = thalweg(&["probe", OFFICE, "--keep", "30d"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("add --store DIR"), "{}", text(&output.stderr));
    let output = thalweg(&["probe", OFFICE, "--store", &store, "--keep-bytes", "20 GB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("such as \"500MB\""), "{}", text(&output.stderr));
    let files = || {
        let output = thalweg(&["flows", "--data", &store, "stats", "--format", "json"]);
        summary(&output)["files"].as_u64().expect("a number")
    };
    for _ in 0..3 {
        assert_eq!(thalweg(&["probe", OFFICE, "--store", &store]).status.code(), Some(0));
    }
    let before = files();
    assert!(before >= 3, "{before}");
    let output = thalweg(&["probe", OFFICE, "--store", &store, "--keep-bytes", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("were removed, the oldest first"), "{}", text(&output.stderr));
    assert_eq!(files(), 1, "the newest file stays");
}

#[cfg_attr(not(feature = "kafka"), test)]
#[cfg_attr(feature = "kafka", allow(dead_code))]
fn kafka_that_is_not_built_in_says_how_to_build_it_in() {
    let output = thalweg(&["probe", OFFICE, "--export", "kafka://192.0.2.1:9092/flows"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("cargo build --release --features kafka"),
        "{}",
        text(&output.stderr)
    );
}
