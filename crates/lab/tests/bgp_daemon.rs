//! The laboratory's clock and loads with a router that is known to be right: BIRD 2, behind a script that accepts
//! the daemon's command line and configuration.
//!
//! This tests the laboratory: every load must reach its goal, and the reported figures must be plausible.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use thalweg_lab::bgp::bench::{BenchError, Feed, Run, RunSpec, measure};
use thalweg_lab::bgp::daemon::{Advertise, DaemonSpec};
use thalweg_lab::bgp::order::{Mix, Way};
use thalweg_lab::bgp::scenario::Scenario;
use thalweg_lab::bgp::table::{Neighbors, Packing};

/// Translates `run CONFIG ..` for BIRD: one passive neighbor for each `[[bgp.neighbor]]`, with exports by group.
const SCRIPT: &str = r#"#!/bin/sh
set -e
config=$2
awk '
{ gsub(/[]["]/, "") }
/^as = / && !as { as = $3 }
/^router_id/ { printf "log stderr all;\nrouter id %s;\nprotocol device {}\n", $3 }
/^listen/ { split($3, at, ":"); address = at[1]; port = at[2] }
/^bgp.neighbor/ { inside = 1 }
inside && /^address/ { neighbor = $3 }
inside && /^as = / { number = $3 }
inside && /^group/ {
    out = $3 == "monitor" ? "all" : "none"
    printf "protocol bgp p%d { local %s port %s as %s; ", ++n, address, port, as
    printf "neighbor %s as %s; multihop 2; passive yes; ", neighbor, number
    printf "ipv4 { import all; export %s; gateway recursive; }; }\n", out
}' "$config" > "$config.bird"
exec bird -f -c "$config.bird" -s "$config.ctl"
"#;

/// The script; `None` if BIRD is not installed.
fn program(folder: &Path) -> Option<PathBuf> {
    if Command::new("bird").arg("--version").output().is_err() {
        thalweg_testdata::skipped(
            "bird2 is not installed: the laboratory's loads were not tried on a real router",
        );
        return None;
    }
    let path = folder.join("bird.sh");
    fs::write(&path, SCRIPT).expect("writing");
    let made = Command::new("chmod").arg("755").arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()));
    Some(path)
}

/// Each test has its own addresses, because BIRD treats a new connection of a known neighbor as a collision.
fn neighbors(third: u8, count: usize) -> Neighbors {
    Neighbors { count, address: Ipv4Addr::new(127, 0, third, 1), as_number: 64_600 }
}

fn run(program: &Path, folder: &Path, feed: Feed, scenario: &Scenario) -> Result<Run, BenchError> {
    let daemon = DaemonSpec {
        program: program.to_path_buf(),
        scheduling: "serial".into(),
        threads: 1,
        cores: None,
        advertise: Advertise::Monitor,
        profile: false,
        folder: folder.to_path_buf(),
    };
    measure(&RunSpec { daemon, feed, seed: 3, timeout: Duration::from_secs(60) }, scenario, &mut |_| {})
}

#[test]
fn wus_loads_reach_their_goals() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    for number in 1..=8 {
        let scenario = Scenario::wu(number, 3000, neighbors(41, 2), 5);
        let run = run(&program, folder.path(), Feed::Live(Way::ThreadPerPeer), &scenario)
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        assert!(run.elapsed_s > 0.0 && run.cpu_s > 0.0 && run.rss_peak_bytes > 1 << 20, "{run:?}");
        let told = if number == 5 || number == 6 { 1 } else { 3000 };
        assert!(run.told >= told, "{number}: {run:?}");
    }
}

#[test]
fn mixes_and_preloading_reach_their_goals() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = program(folder.path()) else { return };
    let scenario = Scenario::overlap(1000, Packing::Real, neighbors(42, 6), 5);
    let mut digests = Vec::new();
    for mix in Mix::ALL {
        let run = run(&program, folder.path(), Feed::Live(mix.way()), &scenario).expect("a measurement");
        assert_eq!(run.prefixes, 6000);
        digests.push(run.digest);
    }
    let run = run(&program, folder.path(), Feed::Preloaded, &scenario).expect("a measurement");
    assert!(run.preloaded_share > 0.5, "{run:?}");
    digests.push(run.digest);
    digests.dedup();
    assert_eq!(digests.len(), 1, "the same routes in the end");
}
