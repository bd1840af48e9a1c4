//! The examples through the real binary. Counts are exact, so a packet that is suddenly dropped or passed fails a
//! test.

use crate::support::{root, thalweg};

/// Replays with `--format json` and checks that every packet is accounted for.
fn replay(input: &str, example: &str, more: &[&str]) -> serde_json::Value {
    let config = format!("examples/{example}/router.toml");
    let mut arguments = vec!["replay", input, "-c", &config, "--format", "json"];
    arguments.extend(more);
    let output = thalweg(&arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let dropped: u64 =
        summary["dropped"].as_object().expect("drops").values().filter_map(|n| n.as_u64()).sum();
    let number = |key: &str| summary[key].as_u64().expect(key);
    assert_eq!(number("packets_in"), number("packets_out") + dropped, "{text}");
    let by = |group: &str, key: &str| -> u64 {
        summary[group].as_object().expect(group).values().filter_map(|one| one[key].as_u64()).sum()
    };
    assert_eq!(by("ports", "packets_in"), number("packets_in"), "every packet came in somewhere: {text}");
    assert_eq!(by("ports", "packets_out"), number("packets_out"), "every packet went out somewhere: {text}");
    assert_eq!(by("classes", "packets"), number("packets_out"), "every packet out has a class: {text}");
    summary
}

fn counts(summary: &serde_json::Value) -> (u64, u64) {
    (summary["packets_in"].as_u64().unwrap_or(0), summary["packets_out"].as_u64().unwrap_or(0))
}

#[test]
fn small_office_capture() {
    for model in ["serial", "run-to-completion", "pipeline", "replicated", "tokens", "farm", "chain"] {
        let summary = replay("examples/small-office/office.pcapng", "small-office", &["--model", model]);
        assert_eq!(counts(&summary), (557, 526), "{model}");
        let dropped = serde_json::json!({ "not-unicast": 20, "not-ip": 10, "nat-no-mapping": 1 });
        assert_eq!(summary["dropped"], dropped, "{model}");
        assert_eq!(summary["classes"]["voice"]["packets"], 300, "{model}: the call's packets");
        assert_eq!(summary["nat"]["sessions"], 27, "{model}");
        assert_eq!(summary["input_issues"]["total"], 0);
        assert_eq!(summary["model"], model);
    }
}

/// Before each packet that must not pass, the trace has a comment with the drop reason.
#[test]
fn small_office_trace_drops_what_its_comments_say() {
    let trace = std::fs::read_to_string(root().join("examples/small-office/trace.txt")).expect("the trace");
    let mut expected = serde_json::Map::new();
    let lines =
        trace.lines().skip_while(|line| !line.starts_with("# ") || !line.contains("nat-no-mapping: "));
    let mut packets = 0;
    for line in lines {
        match line.strip_prefix("# ").and_then(|comment| comment.split_once(": ")) {
            Some((reason, _)) => {
                let count = expected.get(reason).and_then(|n| n.as_u64()).unwrap_or(0) + 1;
                expected.insert(reason.to_owned(), count.into());
            }
            None => packets += usize::from(!line.trim().is_empty() && !line.starts_with('#')),
        }
    }
    assert_eq!(packets, 11, "one packet for each comment at the end of the trace");
    let summary = replay("examples/small-office/trace.txt", "small-office", &[]);
    assert_eq!(counts(&summary), (385, 374));
    assert_eq!(summary["dropped"], serde_json::Value::Object(expected));
    assert_eq!(summary["nat"]["hairpinned"], 2);
}

#[test]
fn article_trace() {
    let summary = replay("examples/article/trace.txt", "article", &["--model", "tokens", "--tokens", "24"]);
    assert_eq!(counts(&summary), (1000, 991));
    assert_eq!(summary["dropped"], serde_json::json!({ "nat-no-mapping": 9 }));
    let served = ["rtp", "sip", "http", "default"].map(|class| summary["classes"][class]["packets"].as_u64());
    assert_eq!(served, [195, 111, 348, 337].map(Some));
}

#[test]
fn full_table_forwards_by_its_prefixes() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.txt");
    // Longest match: the first four prefixes of the file, each with its own next hop; then the blackhole within a
    // /26, and an address without a route.
    let destinations =
        ["198.19.200.1", "198.18.1.1", "198.18.200.1", "198.19.0.1", "203.0.113.255", "8.8.8.8"];
    let text: String = destinations.iter().map(|to| format!("eth0 {to} 192.0.2.77 53 4000 dns\n")).collect();
    std::fs::write(&trace, text).expect("writing");
    let input = format!("core={}", trace.display());
    let summary = replay(&input, "full-table", &[]);
    assert_eq!(counts(&summary), (6, 4));
    assert_eq!(summary["dropped"], serde_json::json!({ "no-route": 1, "blackhole": 1 }));
    assert_eq!(summary["ports"]["core"]["packets_out"], 2, "only the first two next hops of the list");
    assert_eq!(summary["ports"]["edge"]["packets_out"], 2, "the other two");
    assert_eq!(summary["nat"], serde_json::Value::Null);
}

#[test]
fn output_files_are_named_and_can_be_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let out = out.to_str().expect("a path");
    let summary = replay("examples/small-office/office.pcapng", "small-office", &["--output", out]);
    let files: Vec<&str> =
        summary["outputs"].as_array().expect("files").iter().filter_map(|file| file.as_str()).collect();
    assert_eq!(files.len(), 4, "one for each port: {files:?}");
    for (file, port) in files.iter().zip(["wan", "office", "voice", "guest"]) {
        let again = replay(file, "small-office", &[]);
        assert_eq!(again["packets_in"], summary["ports"][port]["packets_out"], "{file}");
        assert_eq!(again["input_issues"]["total"], 0, "{file}");
    }
}

#[test]
fn a_missing_input_exits_with_1() {
    let output = thalweg(&["replay", "no/such.pcap", "-c", "examples/small-office/router.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("no/such.pcap"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn packets_stops_after_whole_chunks() {
    for how in [&["--preload"][..], &[][..]] {
        let more = [&["--packets", "100", "--chunk", "64"][..], how].concat();
        let summary = replay("examples/article/trace.txt", "article", &more);
        assert_eq!(summary["packets_in"], 128, "{how:?}");
    }
}

/// Tables fit the terminal and break no number: each number in piped output is whole at every width.
#[test]
fn tables_fit_every_terminal() {
    let run = |arguments: &[&str], columns: Option<usize>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments).current_dir(root()).env_remove("COLUMNS");
        if let Some(width) = columns {
            command.env("COLUMNS", width.to_string());
        }
        String::from_utf8(command.output().expect("the binary runs").stdout).expect("text")
    };
    let config = "examples/small-office/router.toml";
    let commands: [&[&str]; 3] = [
        &["replay", "examples/small-office/office.pcapng", "-c", config],
        &["check", "--offline", config],
        &["probe", "examples/small-office/office.pcapng"],
    ];
    for command in commands {
        let natural = run(command, None);
        let is_number = |word: &&str| word.chars().all(|c| c.is_ascii_digit() || ",.:/".contains(c));
        let is_address = |word: &&str| word.contains('/') || word.matches('.').count() == 3;
        // Times and rates differ from run to run.
        let numbers: Vec<&str> = natural.split_whitespace().filter(is_number).collect();
        let stable: Vec<&str> =
            numbers.into_iter().filter(|word| word.contains(',') || is_address(word)).collect();
        assert!(!stable.is_empty(), "{command:?}: {natural}");
        for width in [60, 80, 100, 200] {
            let text = run(command, Some(width));
            let tables: Vec<&str> =
                text.lines().filter(|line| line.trim_start().contains("  ") || line.contains('─')).collect();
            let long = tables.iter().find(|line| line.chars().count() > width);
            assert!(long.is_none(), "{command:?} at {width}: {long:?}");
            let words: std::collections::HashSet<&str> = text.split_whitespace().collect();
            let broken = stable.iter().find(|word| !words.contains(*word));
            assert!(broken.is_none(), "{command:?} at {width}: {broken:?} is not whole in\n{text}");
        }
    }
}

/// The output in README must be what the command prints, except times.
#[test]
fn the_readme_shows_this_output() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let command =
        readme.lines().find_map(|line| line.strip_prefix("cargo run --release -p thalweg -- replay "));
    let arguments: Vec<&str> = command.expect("a replay command").split_whitespace().collect();
    let output = thalweg(&[&["replay"], &arguments[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let timeless = |line: &&str| !["pps", " s", " ms", " µs", " ns"].iter().any(|unit| line.contains(unit));
    // Times influence the width of columns, so compare words.
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = readme.lines().map(words).collect();
    let mut compared = 0;
    for line in text.lines().filter(timeless).filter(|line| line.chars().any(char::is_alphabetic)) {
        assert!(shown.contains(&words(line)), "the README lacks: {line}");
        compared += 1;
    }
    // Two headings, four ports, three drop reasons and NAT's counters.
    assert!(compared >= 10, "{compared} lines of\n{text}");
}
