//! The binary as people and scripts use it: its output, where it goes, and its exit codes.

use crate::support::{root, thalweg};
use std::process::{Command, Output, Stdio};

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&out(output)).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

#[test]
fn every_example_is_valid_without_a_warning_that_it_does_not_mean() {
    let mut seen = 0;
    for folder in std::fs::read_dir(root().join("examples")).expect("examples") {
        let folder = folder.expect("an entry");
        let name = folder.file_name().to_string_lossy().into_owned();
        // An example with a graph of networks has no router.toml.
        if folder.path().join("relationships.txt").is_file() {
            continue;
        }
        let output = thalweg(&["check", "--offline", &format!("examples/{name}/router.toml")]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", err(&output));
        let said = err(&output);
        let warnings: Vec<&str> = said.lines().filter(|line| line.starts_with("warning: ")).collect();
        // Its IPv4 address comes by DHCP.
        let expected = ["warning: port wan has no IPv4 address: NAT waits for one on its mirror tw-wan"];
        assert_eq!(warnings, expected[..usize::from(name == "home")], "{name}: {said}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen} examples");
}

#[test]
fn check_prints_the_plan() {
    let output = thalweg(&["check", "examples/small-office/router.toml"]);
    let text = out(&output);
    let plan =
        ["203.0.113.2/30", "via 203.0.113.1 on wan", "strict, level 0", "1 Mbit/s", "tcp 203.0.113.2 80"];
    let queues = ["Queues of wan: at most 48 Mbit/s / 6,000 B", "CoDel 5 ms / 100 ms, ECN"];
    for word in plan.into_iter().chain(queues) {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    let output = thalweg(&["check", "examples/small-office/router.toml", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let plan = json(&output);
    assert_eq!(plan["valid"], true);
    assert_eq!(plan["ports"][0]["name"], "wan");
    assert_eq!(plan["nat"]["outside"], "wan");
    assert_eq!(plan["routes"]["sources"]["connected"], 8);
    assert_eq!(plan["classes"].as_array().map(Vec::len), Some(4));
    assert_eq!(plan["egress"][0]["rate_bps"], 48_000_000);
    assert_eq!(plan["egress"][0]["classes"][3]["aqm"]["target_us"], 5_000);
    assert_eq!(plan["egress"].as_array().map(Vec::len), Some(1));
}

/// A file for `thalweg web` alone, the package's: as it is, and with a token that is not there.
#[test]
fn check_knows_a_file_without_a_router() {
    let example = thalweg(&["check", "packaging/web.toml"]);
    let text = out(&example);
    for words in ["valid configuration for `thalweg web`", "127.0.0.1:8080", "/var/lib/thalweg/flows"] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let write = |more: &str| {
        let path = folder.path().join("web.toml");
        std::fs::write(&path, format!("[web]\nlisten = \"127.0.0.1:8080\"\n{more}")).expect("a file");
        path.display().to_string()
    };
    let path = write("[[web.token]]\nname = \"a\"\nfile = \"a.token\"\n");
    let said = json(&thalweg(&["check", &path, "--format", "json"]));
    let token = folder.path().join("a.token").display().to_string();
    assert_eq!(said["web"]["listen"], serde_json::json!(["127.0.0.1:8080"]), "{said}");
    assert_eq!(said["web"]["reads"][0]["path"], token.as_str(), "{said}");
    assert!(
        said["web"]["reads"][0]["error"].as_str().is_some_and(|why| why.contains("No such file")),
        "{said}"
    );
    let wrong = thalweg(&["check", &write("hots = \"a\"\n")]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(err(&wrong).contains("did you mean `hosts`"), "{}", err(&wrong));
    // With ports it would be a router's.
    let router = thalweg(&["check", &write("[ports.lan]\n")]);
    assert!(router.status.code() == Some(2) && err(&router).contains("lan"), "{}", err(&router));
}

#[test]
fn a_wrong_configuration_exits_with_2_and_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wrong.toml");
    std::fs::write(&path, "[ports.wan]\nmac = \"02:00:00:00:00:01\"\nadresses = []\n").expect("writing");
    let path = path.to_str().expect("a path");
    for command in [vec!["check", path], vec!["replay", "x.pcap", "-c", path]] {
        let output = thalweg(&command);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(out(&output), "");
        let text = err(&output);
        assert!(text.contains("wrong.toml:3:1") && text.contains("did you mean `addresses`?"), "{text}");
    }
    let output = thalweg(&["check", path, "--format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let finding = &json(&output)["diagnostics"][0];
    assert_eq!(
        (&finding["kind"], &finding["line"], &finding["column"]),
        (&"unknown-key".into(), &3.into(), &1.into())
    );
}

#[test]
fn a_missing_configuration_exits_with_2() {
    let output = thalweg(&["check", "no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("cannot read no/such/file.toml"), "{}", err(&output));
    let output = thalweg(&["check", "examples"]);
    assert_eq!(output.status.code(), Some(2), "a folder is no configuration");
}

#[test]
fn bad_usage_exits_with_2() {
    let config = "examples/article/router.toml";
    for arguments in [
        vec![],
        vec!["rout"],
        vec!["check"],
        vec!["replay", "-c", config],
        vec!["replay", "x", "-c", config, "--model", "magic"],
        vec!["replay", "x", "-c", config, "--work", "queens:0"],
        vec!["replay", "x", "-c", config, "--model", "serial", "--workers", "2"],
        vec!["check", config, "--format", "xml"],
    ] {
        let output = thalweg(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!err(&output).is_empty() && out(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_and_version_exit_with_0() {
    for arguments in
        [vec!["--help"], vec!["--version"], vec!["replay", "--help"], vec!["lab", "models", "-h"]]
    {
        let output = thalweg(&arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!out(&output).is_empty());
    }
    assert!(out(&thalweg(&["replay", "--help"])).contains("Examples:"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["check", "examples/small-office/router.toml"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(!err(&output).contains("panicked"), "{}", err(&output));
    assert_eq!(output.status.code(), Some(0));
}

/// An unknown key in each section makes the error messages list all known keys. The documentation must have each
/// of them.
#[test]
fn every_key_is_in_the_documentation() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("unknown.toml");
    let text = "zz = 1\n[ports.wan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/24\"]\nzz = 1\n\
                [[neighbors]]\nzz = 1\n[routing]\nzz = 1\n[[routes]]\nzz = 1\n[nat]\nzz = 1\n[nat.timeouts]\nzz = 1\n\
                [[nat.forwards]]\nzz = 1\n[qos]\nzz = 1\n[[qos.classes]]\nname = \"a\"\nmatch = [{ zz = 1 }]\nzz = 1\n\
                [qos.classes.policer]\nzz = 1\n[validate]\nzz = 1\n\
                [control]\nzz = 1\n[bgp]\nas = 1\nzz = 1\nconfederation = { zz = 1 }\ndamping = { zz = 1 }\n\
                [bgp.mrt]\nzz = 1\n[bgp.seed]\nzz = 1\n[[bgp.group]]\nzz = 1\n[[bgp.neighbor]]\nzz = 1\n\
                max_prefixes = { zz = 1 }\nadd_path = { zz = 1 }\ngraceful_restart = { zz = 1 }\n\
                [policy]\nzz = 1\n[policy.prefix_sets.a]\nzz = 1\n[[policy.rules.a]]\nmatch = { zz = 1 }\n\
                set = { zz = 1, prepend = { zz = 1 } }\nzz = 1\n[[policy.test]]\nzz = 1\nroute = { zz = 1 }\n\
                expect = { zz = 1 }\n";
    std::fs::write(&path, text).expect("writing");
    let output = thalweg(&["check", path.to_str().expect("a path"), "--format", "json"]);
    let page = std::fs::read_to_string(root().join("docs/configuration.md")).expect("the page");
    let findings = json(&output)["diagnostics"].as_array().cloned().expect("findings");
    let mut keys = 0;
    for finding in findings.iter().filter(|finding| finding["kind"] == "unknown-key") {
        let known = finding["expected"].as_str().expect("known keys").replace(" or ", ", ");
        for key in known.split(", ") {
            let named = ["`{}`", "[{}", ".{}]", "{ {} = ", ", {} = "].map(|form| form.replacen("{}", key, 1));
            assert!(named.iter().any(|name| page.contains(name)), "{key} is not in docs/configuration.md");
            keys += 1;
        }
    }
    assert!(keys >= 200, "{keys} keys; every section should have named its own");
}

#[test]
fn keys_of_configurations_are_listed() {
    let text = out(&thalweg(&["config", "keys", "nat.timeouts"]));
    assert!(
        text.contains("[nat.timeouts]") && text.contains("tcp_aborted_s") && !text.contains("hairpin"),
        "{text}"
    );
    let sections = json(&thalweg(&["config", "keys", "--format", "json"]));
    let sections = sections.as_array().expect("sections");
    let flows = sections.iter().find(|section| section["section"] == "flows").expect("[flows]");
    let key = flows["keys"].as_array().and_then(|keys| keys.iter().find(|key| key["key"] == "flows_max"));
    let key = key.expect("flows_max");
    assert_eq!((&key["value"]["least"], &key["default"]), (&65_536.into(), &"1048576".into()));
    assert_eq!(thalweg(&["config", "keys", "nowhere"]).status.code(), Some(2));
}

#[test]
fn a_packet_is_traced_through_a_file() {
    let config = "examples/small-office/router.toml";
    let packet = "office ip 192.168.10.10 -> 8.8.8.8 udp 53";
    let output = thalweg(&["trace", "packet", packet, "--config", config]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    for word in ["ingress", "new session", "via 203.0.113.1 on wan", "sent by wan"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    let output = thalweg(&["trace", "packet", packet, "--config", config, "--format", "json"]);
    let view = json(&output);
    assert_eq!((&view["outcome"], &view["reason"]), (&"sent".into(), &serde_json::Value::Null));
    assert_eq!(view["steps"][0]["stage"], "ingress");
    // An error in the packet's text is shown at its position.
    let output = thalweg(&["trace", "packet", "office ip 192.168.10.10 -> 8.8.8 udp 53", "--config", config]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("column 28: `8.8.8`, expected an IPv4 or IPv6 address"),
        "{}",
        err(&output)
    );
}

/// Tables and the text around them.
#[test]
fn check_and_trace_fit_the_terminal() {
    let home = "examples/home/router.toml";
    let packet = "wan ip 8.8.8.8 -> 203.0.113.2 tcp 443";
    let commands: [&[&str]; 4] = [
        &["check", "--offline", home],
        &["check", "--offline", "examples/live-transit/router.toml"],
        &["check", "--offline", "examples/small-office/router.toml"],
        &["trace", "packet", packet, "--config", home],
    ];
    for (arguments, columns) in commands.into_iter().flat_map(|each| [(each, 70), (each, 80), (each, 200)]) {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(arguments)
            .current_dir(root())
            .env("COLUMNS", columns.to_string())
            .output()
            .expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let long = text.lines().find(|line| line.chars().count() > columns);
        assert!(
            output.status.success() && text.lines().count() > 5 && long.is_none(),
            "{columns}: {long:?}\n{text}"
        );
    }
}

const OFFICE: &str = "examples/small-office/office.pcapng";
const CONFIG: &str = "examples/small-office/router.toml";

/// For every kind of useless input, every command names the file and the mistake, and fails: exit code 2 for a
/// configuration, otherwise 1.
#[test]
fn input_of_no_use_is_told_and_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("binary"), (0..=255).cycle().skip(7).take(5_000).collect::<Vec<u8>>())
        .expect("a file");
    std::fs::write(path("prose.txt"), "this is no trace\nnor is this, \u{1b}[31m\n").expect("a file");
    std::fs::write(path("empty"), "").expect("a file");
    std::fs::create_dir(path("folder")).expect("a folder");
    let inputs = ["binary", "prose.txt", "empty", "folder", "absent"];
    let trace = ["trace", "packet", "office ip 192.168.10.10 -> 8.8.8.8 udp 53", "--config"];
    let models =
        ["lab", "models", "--quick", "-c", "examples/article/router.toml", "--output", &path("report")];
    let cases: [(&[&str], &[&str], i32); 12] = [
        (&["probe"], &[], 1),
        (&["probe", OFFICE], &[], 1),
        (&["replay", "-c", CONFIG], &[], 1),
        (&["replay", "-c", CONFIG, "--preload"], &[], 1),
        (&["mrt"], &[], 1),
        (&["flows", "import"], &["--no-store"], 1),
        (&["flows", "stats", "--data"], &[], 1),
        (&["flows", "compact", "--data"], &[], 1),
        (&models, &[], 1),
        (&["lab", "lpm", "--quick"], &["--output", &path("report")], 1),
        (&["check"], &[], 2),
        (&trace, &[], 2),
    ];
    for (before, after, code) in cases {
        for input in inputs {
            let input = path(input);
            let arguments = [before, &[input.as_str()], after].concat();
            let output = thalweg(&arguments);
            let said = err(&output);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
            assert!(said.contains(&input) && !said.contains("panicked"), "{arguments:?}: {said}");
            assert!(!said.contains('\u{1b}'), "{arguments:?}: {said:?}");
        }
    }
}

/// Everything before the cut is processed, the cut is named, and that is no success: the same in all commands.
#[test]
fn a_file_that_is_cut_short_is_used_as_far_as_it_goes_and_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("cut.pcapng").display().to_string();
    let whole =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small-office/office.pcapng"));
    let whole = whole.expect("the example");
    std::fs::write(&cut, &whole[..whole.len() - 9]).expect("a file");
    for command in
        [&["probe", &cut][..], &["replay", "-c", CONFIG, &cut], &["replay", "-c", CONFIG, "--preload", &cut]]
    {
        let output = thalweg(command);
        let said = err(&output);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(&format!("error: {cut}: byte ")), "{command:?}: {said}");
        assert!(out(&output).contains("1 place in the input"), "{command:?}: {}", out(&output));
    }
    // A file of messages; a capture of them is read as the other captures are.
    let messages = folder.path().join("cut.v5").display().to_string();
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..2 {
        bytes.extend([0, 5, 0, 1].iter().chain(&[0; 20]).chain(&[0; 48]));
    }
    std::fs::write(&messages, &bytes[..bytes.len() - 5]).expect("a file");
    let output = thalweg(&["flows", "import", "--no-store", &messages]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("byte 72: the file ends within a message"), "{}", err(&output));
}

#[test]
fn no_rounds_are_refused_in_words() {
    let output = thalweg(&["lab", "models", "--runs", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("expected a whole number from 1"), "{}", err(&output));
}

/// Good input is processed although other input is bad.
#[test]
fn good_input_beside_bad_is_delivered_and_no_success() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("bad.txt"), "this is no trace\n").expect("a file");
    let probe = |inputs: &[&str], code: i32| {
        let output = thalweg(&[&["probe", "--json", "-"], inputs].concat());
        assert_eq!(output.status.code(), Some(code), "{inputs:?}: {}", err(&output));
        (out(&output).lines().count(), err(&output))
    };
    let (alone, _) = probe(&[OFFICE], 0);
    assert!(alone > 0);
    for inputs in [[OFFICE, &path("bad.txt")], [&path("bad.txt"), OFFICE]] {
        let (records, said) = probe(&inputs, 1);
        assert_eq!(records, alone);
        let line = said.lines().find(|line| line.starts_with("error: ")).expect("an error");
        assert!(line.contains("bad.txt:1:6") && line.contains("there is no packet in it"), "{line}");
    }
    let replay = |inputs: &[&str]| {
        let output = thalweg(&[&["replay", "-c", CONFIG, "--format", "json"], inputs].concat());
        (output.status.code(), json(&output)["packets_in"].as_u64())
    };
    let (code, packets) = replay(&[OFFICE]);
    assert_eq!(code, Some(0));
    assert_eq!(replay(&[OFFICE, &path("bad.txt")]), (Some(1), packets));
}

/// Standard output or a file on a full disk.
#[test]
fn output_that_cannot_be_written_is_told_and_no_success() {
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("the device");
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("flows").display().to_string();
    assert_eq!(thalweg(&["probe", OFFICE, "--store", &store]).status.code(), Some(0));
    let trace = ["trace", "packet", "office ip 192.168.10.10 -> 8.8.8.8 udp 53", "--config", CONFIG];
    let printing: [&[&str]; 12] = [
        &["--help"],
        &["--version"],
        &["flows", "top", "--help"],
        &["check", CONFIG],
        &["check", CONFIG, "--format", "json"],
        &["probe", OFFICE],
        &["probe", OFFICE, "--json", "-"],
        &["replay", OFFICE, "-c", CONFIG],
        &["flows", "top", "src", "--data", &store],
        &["flows", "list", "--data", &store],
        &["flows", "stats", "--data", &store],
        &trace,
    ];
    for arguments in printing {
        let run = |stdout: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
            command.args(arguments).current_dir(root()).stdout(stdout).stderr(Stdio::piped());
            command.spawn().expect("the binary runs")
        };
        let output = run(full().into()).wait_with_output().expect("it ends");
        let said = err(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("standard output: No space left on device"), "{arguments:?}: {said}");
        // A reader that closes the pipe is not an error.
        let mut child = run(Stdio::piped());
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert!(!err(&output).contains("panicked"), "{arguments:?}: {}", err(&output));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", err(&output));
    }
    let to_files: [&[&str]; 4] = [
        &["probe", OFFICE, "--json", "/dev/full"],
        &["probe", OFFICE, "--csv", "/dev/full"],
        &["replay", OFFICE, "-c", CONFIG, "--output", "/dev/full"],
        &["flows", "graph", "--data", &store, "--svg", "/dev/full"],
    ];
    for arguments in to_files {
        let output = thalweg(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains("/dev/full"), "{arguments:?}: {}", err(&output));
    }
}
