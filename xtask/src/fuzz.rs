//! Runs the fuzz targets of `fuzz/` one after the other for some time each, to find new paths. The test
//! `crates/thalweg/tests/fuzz.rs` checks that they compile and hold.
//!
//! `cargo fuzz` wants sanitizer flags that only nightly accepts; `RUSTC_BOOTSTRAP=1` lets the pinned stable
//! compiler take them, so that a finding is one of the compiler we ship with.

use std::path::Path;
use std::process::Stdio;

use crate::cargo::cargo_command;
use crate::options::Options;

pub(crate) const SECONDS_DEFAULT: u64 = 60;
const INSTALL: &str = "cargo install --locked cargo-fuzz";

/// Runs the chosen targets, or all.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let manifest = root.join("fuzz/Cargo.toml");
    let text = std::fs::read_to_string(&manifest)
        .map_err(|error| format!("{}: {error}: there is nothing to fuzz", manifest.display()))?;
    let targets = choose(&targets(&text)?, &options.names)?;
    if !is_installed() {
        return Err(format!("cargo-fuzz is not installed. Install it with\n\n    {INSTALL}\n"));
    }
    for (number, target) in (1..).zip(&targets) {
        println!("==> {number}/{} {target}, {} s", targets.len(), options.number);
        // Findings go to the first folder and seeds are read from the second, so the seeds stay few.
        let found = root.join("fuzz/target/corpus").join(target);
        std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        let status = cargo_command()
            .current_dir(root)
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["fuzz", "run", target])
            .arg(found)
            .arg(root.join("fuzz/corpus").join(target))
            .arg("--")
            .arg(format!("-max_total_time={}", options.number))
            .status()
            .map_err(|error| format!("cargo did not start: {error}"))?;
        if !status.success() {
            return Err(format!(
                "{target}: {status}. The input that did it is under fuzz/artifacts/{target}/; run it again \
                 with\n\n    RUSTC_BOOTSTRAP=1 cargo fuzz run {target} fuzz/artifacts/{target}/FILE\n"
            ));
        }
    }
    println!("==> {} targets, no finding", targets.len());
    Ok(())
}

fn is_installed() -> bool {
    let mut command = cargo_command();
    command.args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Names of the `[[bin]]` targets of a fuzz crate.
fn targets(manifest: &str) -> Result<Vec<String>, String> {
    let table: toml::Table = manifest.parse().map_err(|error| format!("fuzz/Cargo.toml: {error}"))?;
    let bins = table.get("bin").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let names = bins.iter().filter_map(|bin| bin.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

fn choose(known: &[String], wanted: &[String]) -> Result<Vec<String>, String> {
    if known.is_empty() {
        return Err("fuzz/Cargo.toml names no [[bin]] target".to_owned());
    }
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(format!("no fuzz target `{unknown}`; there are: {}", known.join(", ")));
    }
    Ok(if wanted.is_empty() { known.to_vec() } else { wanted.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| w.to_string()).collect()
    }

    #[test]
    fn targets_come_from_the_manifest() {
        let manifest = "[package]\nname='f'\n[[bin]]\nname='a'\npath='x'\n[[bin]]\nname='b'\n";
        let known = targets(manifest).unwrap();
        assert_eq!(known, ["a", "b"]);
        assert_eq!(choose(&known, &[]).unwrap(), ["a", "b"]);
        assert_eq!(choose(&known, &words(&["b"])).unwrap(), ["b"]);
        assert!(choose(&known, &words(&["c"])).unwrap_err().contains("a, b"));
        assert!(choose(&[], &[]).is_err());
        assert!(targets("[[bin").is_err());
    }
}
