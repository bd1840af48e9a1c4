//! The binary as people and scripts use it: what it prints where, and its exit codes.

mod support;

use std::process::{Command, Output, Stdio};
use support::{root, thalweg};

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
fn every_example_is_valid_without_warnings() {
    let mut seen = 0;
    for folder in std::fs::read_dir(root().join("examples")).expect("examples") {
        let name = folder.expect("an entry").file_name().to_string_lossy().into_owned();
        let output = thalweg(&["check", &format!("examples/{name}/router.toml")]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", err(&output));
        assert_eq!(err(&output), "", "{name}");
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn check_prints_the_plan() {
    let output = thalweg(&["check", "examples/small-office/router.toml"]);
    let text = out(&output);
    let plan =
        ["203.0.113.2/30", "via 203.0.113.1 on wan", "strict, level 0", "1 Mbit/s", "tcp 203.0.113.2 80"];
    let queues = ["Queues of wan: at most 48 Mbit/s / 6000 B", "CoDel 5 ms / 100 ms, ECN"];
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

/// A key that no section has makes each name the keys it does have. All of them are documented.
#[test]
fn every_key_is_in_the_documentation() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("unknown.toml");
    let text = "zz = 1\n[ports.wan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/24\"]\nzz = 1\n\
                [[neighbours]]\nzz = 1\n[routing]\nzz = 1\n[[routes]]\nzz = 1\n[nat]\nzz = 1\n[nat.timeouts]\nzz = 1\n\
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
    // What is wrong with the packet is shown where it is wrong.
    let output = thalweg(&["trace", "packet", "office ip 192.168.10.10 -> 8.8.8 udp 53", "--config", config]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("column 28: `8.8.8`, expected an IPv4 or IPv6 address"),
        "{}",
        err(&output)
    );
}
