//! `thalweg whatif` on its example, and its error messages.

use std::process::Output;

use crate::support::{root, thalweg};

const OLD: &str = "examples/what-if/router.toml";
const NEW: &str = "examples/what-if/new.toml";
const TABLE: &str = "examples/what-if/table.mrt";

fn what_if(arguments: &[&str]) -> Output {
    thalweg(&[&["whatif"], arguments].concat())
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = what_if(&[arguments, &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_example_in_words_and_numbers() {
    let output = what_if(&[OLD, NEW, "--table", TABLE]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let page = std::fs::read_to_string(root().join("docs/what-if.md")).expect("the page");
    let text = out(&output);
    assert!(page.contains(text.trim_end()), "the page shows what is printed:\n{text}");

    let report = json(&[OLD, NEW, "--table", TABLE]);
    assert_eq!((&report["prefixes"]["moved"], &report["prefixes"]["lost"]), (&16.into(), &4.into()));
    assert_eq!(report["exports_total"]["leaks"], 32);
    assert_eq!(report["examples"], serde_json::json!([]));
    let why = out(&what_if(&[OLD, NEW, "--table", TABLE, "--why"]));
    assert!(why.contains("20.101.0.0/16 (lost)") && why.contains("there is no neighbor transit-2"), "{why}");
}

#[test]
fn failures_of_one_and_of_each() {
    let report = json(&[OLD, "--table", TABLE, "--fail", "each"]);
    let failures = report["failures"].as_array().expect("failures");
    assert_eq!(failures.len(), 4);
    let lost = |at: usize| failures[at]["counts"]["after"]["lost"].as_u64().expect("a number");
    assert_eq!([lost(0), lost(1), lost(2), lost(3)], [8, 4, 0, 0]);
    let one = out(&what_if(&[OLD, NEW, "--table", TABLE, "--fail", "transit-2"]));
    let gone = |line: &str| ["transit-2", "the new", "not up"].iter().all(|words| line.contains(words));
    assert!(one.lines().any(gone), "{one}");
}

#[test]
fn peers_of_the_table_are_neighbors_as_said() {
    let mapped = json(&[OLD, NEW, "--table", TABLE, "--map", "192.0.2.5=transit-1"]);
    let peer = &mapped["table"]["mapped"][1];
    assert_eq!(peer["neighbor"], serde_json::json!({ "before": "transit-1", "after": "transit-1" }));
    // Another AS than the neighbor's: the report shows import's rejection.
    assert_eq!(mapped["imports"][0]["rejected"]["first_as"]["after"], 34);
    let said = json(&[OLD, NEW, "--table", TABLE, "--role", "peer-3=customer"]);
    assert_eq!(said["exports_total"]["leaks"], 0, "a customer gets all routes");
}

#[test]
fn conditions_end_with_an_exit_code() {
    let held = what_if(&[OLD, NEW, "--table", TABLE, "--fail-on", "lost>0,leak>0,new>0"]);
    assert_eq!(held.status.code(), Some(1));
    let text = err(&held);
    assert!(text.contains("lost>0 holds: it is 4") && text.contains("leak>0 holds: it is 32"), "{text}");
    assert!(!text.contains("new>0"), "{text}");
    let fine = what_if(&[OLD, NEW, "--table", TABLE, "--fail-on", "lost>4"]);
    assert_eq!(fine.status.code(), Some(0), "{}", err(&fine));
    for (condition, says) in [
        ("bytes-lost>5%", "needs --flows"),
        ("fail-lost>0", "needs --fail"),
        ("found>0", "expected one of lost, new"),
        ("lost>many", "expected a number"),
    ] {
        let refused = what_if(&[OLD, NEW, "--table", TABLE, "--fail-on", condition]);
        assert!(
            refused.status.code() == Some(2) && err(&refused).contains(says),
            "{condition}: {}",
            err(&refused)
        );
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.to_str().expect("a path").to_owned()
    };
    let whole = std::fs::read(root().join(TABLE)).expect("the table");
    let torn = file("torn.mrt", &whole[..whole.len() - 10]);
    let output = what_if(&[OLD, NEW, "--table", &torn]);
    assert!(
        output.status.code() == Some(1) && err(&output).contains("the table is damaged: 1 error"),
        "{}",
        err(&output)
    );
    assert!(out(&output).contains("prefixes"), "readable records are reported");

    let router = std::fs::read_to_string(root().join(OLD)).expect("a configuration");
    let other = file("other.toml", router.replace("192.0.2.", "198.51.100.").as_bytes());
    let without = "examples/small-office/router.toml";
    let empty = file("empty.mrt", b"");
    let cases: [(&[&str], i32, &str); 7] = [
        (&[OLD, "--table", TABLE], 2, "--fail each"),
        (&[OLD, NEW, "--table", TABLE, "--fail", "transit-9"], 2, "transit-1"),
        (&[OLD, NEW, "--table", TABLE, "--map", "192.0.2.1=nobody"], 2, "no neighbor is called nobody"),
        (&[&other, &other, "--table", TABLE], 1, "--map ADDRESS=NEIGHBOR"),
        (&[without, NEW, "--table", TABLE], 2, "has no [bgp] section"),
        (&[OLD, NEW, "--table", &empty], 1, "no routes"),
        (
            &[OLD, NEW, "--table", TABLE, "--flows", folder.path().to_str().expect("a path")],
            1,
            "not a dataset",
        ),
    ];
    for (arguments, code, says) in cases {
        let output = what_if(arguments);
        assert!(
            output.status.code() == Some(code) && err(&output).contains(says),
            "{arguments:?}: {:?} {}",
            output.status.code(),
            err(&output)
        );
    }
}
