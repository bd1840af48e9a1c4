//! Runs a million seeds on all cores, with a release build.

use std::path::Path;

use crate::cargo::cargo;

/// The default options.
const USUAL: [&str; 2] = ["--count", "1000000"];

/// Runs seeds with a release build; `options` are those of `thalweg lab seeds`. Failures are kept in
/// `target/soak`.
pub(crate) fn run(root: &Path, options: &[String]) -> Result<(), String> {
    let options: Vec<&str> = match options {
        [] => USUAL.to_vec(),
        options => options.iter().map(String::as_str).collect(),
    };
    let start = ["run", "--release", "--locked", "-p", "thalweg", "--", "lab", "seeds"];
    let folders = ["--keep", "target/soak", "--output", "target/soak/report"];
    cargo(root, &[&start[..], &folders, &options].concat(), &[])
        .map_err(|why| format!("{why}: what failed is under target/soak, a scenario file each"))
}
