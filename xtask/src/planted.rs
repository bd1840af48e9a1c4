//! Proves that seeds find faults: each patch of `xtask/planted` puts a fault into the router, and seeds must
//! find it.
//!
//! Only a copy of the repository gets the fault, so the product needs no switch for it. `cargo xtask ci`
//! checks that the patches fit the code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use crate::cargo::{cargo_command, git};
use crate::options::Options;

/// The most seeds that are run to find a fault.
pub(crate) const SEEDS_DEFAULT: u64 = 10_000;

/// Faults in these folders are searched with seeds of packets.
const PACKETS: [&str; 3] = ["crates/dataplane/", "crates/flow/", "crates/node/src/plan"];

/// A fault to plant.
struct Fault {
    name: String,
    /// What the router does wrong.
    what: String,
    patch: PathBuf,
    /// The test whose seeds must find it.
    test: &'static str,
}

fn faults(root: &Path) -> Result<Vec<Fault>, String> {
    let folder = root.join("xtask/planted");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut faults = Vec::new();
    for patch in entries.flatten().map(|entry| entry.path()) {
        let text = fs::read_to_string(&patch).map_err(|error| format!("{}: {error}", patch.display()))?;
        let name = patch.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let what = text.lines().next().unwrap_or_default().to_owned();
        let is_of_packets = PACKETS.iter().any(|path| text.contains(path));
        let test = if is_of_packets { "the_first_seeds_of_packets_hold" } else { "the_first_seeds_hold" };
        faults.push(Fault { name, what, patch, test });
    }
    faults.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(faults)
}

/// Checks that all patches still fit the code.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    for fault in faults(root)? {
        git(root, &["apply", "--check", &fault.patch.display().to_string()])
            .map_err(|error| format!("{} does not fit the code any more: {error}", fault.patch.display()))?;
    }
    Ok(())
}

/// Plants the faults one after the other in a copy, and counts the seeds until each is found.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let all = faults(root)?;
    if let Some(unknown) = options.names.iter().find(|name| all.iter().all(|fault| fault.name != **name)) {
        return Err(format!("there is no xtask/planted/{unknown}.patch"));
    }
    let wanted = |fault: &&Fault| options.names.is_empty() || options.names.contains(&fault.name);
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let copy = copy(root, &root.join("target/planted/copy"), commit.trim())?;
    let mut missed = Vec::new();
    println!("{:<32} {:>6} {:>7}  {:<42} what is wrong", "fault", "seed", "s", "broken invariant");
    for fault in all.iter().filter(wanted) {
        git(&copy, &["apply", &fault.patch.display().to_string()])?;
        let begun = Instant::now();
        let found = hunt(root, &copy, fault.test, options.number);
        git(&copy, &["checkout", "--quiet", "--", "."])?;
        let seconds = begun.elapsed().as_secs();
        match found? {
            Some((seed, invariant)) => {
                println!("{:<32} {seed:>6} {seconds:>7}  {invariant:<42} {}", fault.name, fault.what);
            }
            None => {
                println!("{:<32} {:>6} {seconds:>7}  {:<42} {}", fault.name, "-", "none", fault.what);
                missed.push(fault.name.as_str());
            }
        }
    }
    match missed.as_slice() {
        [] => Ok(()),
        missed => Err(format!("not found in {} seeds: {}", options.number, missed.join(", "))),
    }
}

/// Copies a commit to a folder.
pub(crate) fn copy(root: &Path, copy: &Path, commit: &str) -> Result<PathBuf, String> {
    let path = copy.display().to_string();
    if copy.join("Cargo.toml").is_file() {
        git(copy, &["checkout", "--quiet", "--force", "--detach", commit])?;
    } else {
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--quiet", "--detach", &path, commit])?;
    }
    Ok(copy.to_owned())
}

/// The first seed that finds a fault, and the invariant that it breaks.
fn hunt(root: &Path, copy: &Path, test: &str, seeds: u64) -> Result<Option<(u64, String)>, String> {
    let output = cargo_command()
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", root.join("target/planted/target"))
        .env("THALWEG_SEEDS", seeds.to_string())
        .args(["test", "--quiet", "--locked", "-p", "thalweg-sim", "--test", "seeds", "--"])
        .args(["--nocapture", "--exact", test])
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cargo did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("seed ")?.1.split_once(" broke: "));
    match line {
        Some((seed, invariant)) => {
            let seed = seed.parse().map_err(|_| format!("no seed: {seed}"))?;
            Ok(Some((seed, invariant.to_owned())))
        }
        None if output.status.success() => Ok(None),
        None => Err(format!("the test did not run:\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}
