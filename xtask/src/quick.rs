//! The checks after each change: format, tidy, clippy, and the tests of the changed crates.
//!
//! Clippy follows a change into every crate that depends on it; tests run only in the changed crates. They
//! run beside all other steps, because they have a profile and so a build folder of their own. It keeps what
//! rustc can reuse, which makes the first build slow and later ones fast.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use crate::cargo::{cargo, git};
use crate::tidy;

/// Its integration tests take minutes; `cargo xtask test` runs them.
const PROGRAM: &str = "thalweg";

/// Checks the crates with uncommitted changes; if there are none, those of the last commit.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let status = git(root, &["status", "--porcelain", "--untracked-files=all", "--no-renames"])?;
    let mut changed = crates_of(status.lines().filter_map(|line| line.get(3..)));
    if status.is_empty() {
        changed = crates_of(git(root, &["diff", "--name-only", "HEAD~1"])?.lines());
    }
    println!("==> changed: {}", if changed.is_empty() { "no crate".to_owned() } else { names(&changed) });
    thread::scope(|scope| {
        let tests = scope.spawn(|| tests(root, changed));
        let checks = checks(root);
        let tests = tests.join().map_err(|_| "the tests' thread panicked".to_owned())?;
        checks.and(tests.map_err(|why| format!("tests: {why}")))
    })?;
    println!("==> good; `cargo xtask test` runs everything");
    Ok(())
}

fn checks(root: &Path) -> Result<(), String> {
    cargo(root, &["fmt", "--all", "--check"], &[]).map_err(|why| format!("{why}: run `cargo fmt --all`"))?;
    tidy::run(root)?;
    let clippy = ["clippy", "--workspace", "--lib", "--bins", "--locked", "--", "-D", "warnings"];
    cargo(root, &clippy, &[]).map_err(|why| format!("clippy: {why}"))
}

fn tests(root: &Path, mut changed: BTreeSet<String>) -> Result<(), String> {
    const TEST: [&str; 5] = ["test", "--locked", "--quiet", "--profile", "inner-loop"];
    let has_program = changed.remove(PROGRAM);
    if !changed.is_empty() {
        let packages: Vec<&str> = changed.iter().flat_map(|package| ["-p", package]).collect();
        cargo(root, &[&TEST[..], &packages].concat(), &[])?;
    }
    if has_program {
        cargo(root, &[&TEST[..], &["-p", PROGRAM, "--bins"]].concat(), &[])?;
    }
    Ok(())
}

fn names(packages: &BTreeSet<String>) -> String {
    packages.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The packages of these files.
fn crates_of<'a>(files: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let of = |file: &str| {
        let mut parts = file.split('/');
        match (parts.next()?, parts.next()?) {
            ("crates", PROGRAM) => Some(PROGRAM.to_owned()),
            ("crates", folder) => Some(format!("thalweg-{folder}")),
            ("xtask", _) => Some("xtask".to_owned()),
            _ => None,
        }
    };
    files.filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_belong_to_packages() {
        let files = [
            "crates/bgp/src/rib.rs",
            "crates/thalweg/src/main.rs",
            "docs/bgp.md",
            "xtask/src/ci.rs",
            "README.md",
        ];
        let packages = super::crates_of(files.into_iter());
        assert_eq!(super::names(&packages), "thalweg, thalweg-bgp, xtask");
    }
}
