//! Runs what takes long, with a release build: a million seeds on all cores, or a router under faults.

use std::path::Path;

use crate::cargo::cargo;

/// The default options.
const USUAL: [&str; 2] = ["--count", "1000000"];

/// Runs seeds; `options` are those of `thalweg lab seeds`. Failures are kept in `target/soak`. With `--minutes N`, puts a
/// live router through faults for so long instead, which needs root.
pub(crate) fn run(root: &Path, options: &[String]) -> Result<(), String> {
    let options: Vec<&str> = match options {
        [] => USUAL.to_vec(),
        [word, minutes] if word == "--minutes" => return live(root, minutes),
        options => options.iter().map(String::as_str).collect(),
    };
    let start = ["run", "--release", "--locked", "-p", "thalweg", "--", "lab", "seeds"];
    let folders = ["--keep", "target/soak", "--output", "target/soak/report"];
    cargo(root, &[&start[..], &folders, &options].concat(), &[])
        .map_err(|why| format!("{why}: what failed is under target/soak, a scenario file each"))
}

fn live(root: &Path, minutes: &str) -> Result<(), String> {
    let is_time = minutes.parse::<f64>().is_ok_and(|minutes| minutes > 0.0);
    if !is_time {
        return Err(format!("--minutes {minutes}: expected a number above zero"));
    }
    let test =
        ["test", "--release", "--locked", "-p", "thalweg", "--test", "live", "soak::", "--", "--nocapture"];
    cargo(root, &test, &[("THALWEG_SOAK_MINUTES", minutes)])
}
