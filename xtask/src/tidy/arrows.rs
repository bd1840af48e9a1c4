//! Checks the dependencies between crates: a manifest names the crates that its crate may use, and no others
//! may be among its dependencies. Short names: `base` is the package `thalweg-base`.

use super::{Finding, entries, read};
use std::path::{Path, PathBuf};

const PREFIX: &str = "thalweg-";
/// The program is the only package without the prefix.
const PROGRAM: &str = "thalweg";

/// A crate of the workspace with its manifest.
#[derive(Debug)]
pub(super) struct Crate {
    /// Relative to the root.
    pub(super) folder: PathBuf,
    name: String,
    manifest: toml::Table,
}

impl Crate {
    /// The test programs that the manifest lists, if cargo does not look for them by itself.
    pub(super) fn listed_tests(&self) -> Option<Vec<&str>> {
        if self.manifest.get("package")?.get("autotests")?.as_bool()? {
            return None;
        }
        let listed = self.manifest.get("test").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
        Some(listed.iter().filter_map(|test| test.get("name")?.as_str()).collect())
    }
}

/// The crates of the tree: every folder of `crates/`, and `xtask`.
pub(super) fn crates(root: &Path) -> Result<Vec<Crate>, String> {
    let mut folders: Vec<PathBuf> = entries(root, Path::new("crates"))?
        .into_iter()
        .filter(|(_, is_folder)| *is_folder)
        .map(|e| e.0)
        .collect();
    if root.join("xtask").is_dir() {
        folders.push("xtask".into());
    }
    folders.into_iter().map(|folder| one(root, folder)).collect()
}

fn one(root: &Path, folder: PathBuf) -> Result<Crate, String> {
    let path = folder.join("Cargo.toml");
    let manifest: toml::Table =
        read(root, &path)?.parse().map_err(|error| format!("{}: {error}", path.display()))?;
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name")?.as_str())
        .ok_or_else(|| format!("{}: no package name", path.display()))?;
    Ok(Crate { name: short(name).unwrap_or(name).to_owned(), folder, manifest })
}

/// Every dependency must be allowed, and every allowance must name a crate that exists.
pub(super) fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in crates {
        let file = one.folder.join("Cargo.toml");
        let name = &one.name;
        let Some(may_use) = one.allowed("may-use") else {
            let message = "states no [package.metadata.thalweg] may-use = [...]: whom may this crate use?";
            findings.push(Finding::failure(&file, 0, message));
            continue;
        };
        let in_tests = one.allowed("may-use-in-tests").unwrap_or_default();
        for used in one.dependencies(&["dependencies", "build-dependencies"]) {
            if !may_use.contains(&used) {
                let message =
                    format!("{name} may use: {}, but its manifest depends on {used}", list(&may_use));
                findings.push(Finding::failure(&file, 0, message));
            }
        }
        for used in one.dependencies(&["dev-dependencies"]) {
            if !may_use.contains(&used) && !in_tests.contains(&used) {
                let both: Vec<String> = may_use.iter().chain(&in_tests).cloned().collect();
                let message =
                    format!("{name}'s tests may use: {}, but its manifest depends on {used}", list(&both));
                findings.push(Finding::failure(&file, 0, message));
            }
        }
        for allowed in may_use.iter().chain(&in_tests) {
            if !crates.iter().any(|c| c.name == *allowed) {
                let message = format!("{name} may use {allowed}, which does not exist");
                findings.push(Finding::warning(&file, 0, message));
            }
        }
    }
    findings
}

impl Crate {
    /// The list under `[package.metadata.thalweg]`, if it is there and a list of names.
    fn allowed(&self, key: &str) -> Option<Vec<String>> {
        let list = self.manifest.get("package")?.get("metadata")?.get("thalweg")?.get(key)?.as_array()?;
        list.iter().map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// The number under `[package.metadata.thalweg]`.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        let number = self.manifest.get("package")?.get("metadata")?.get("thalweg")?.get(key)?.as_integer()?;
        u64::try_from(number).ok()
    }

    /// The short names of our crates in tables of these kinds, for any platform.
    fn dependencies(&self, kinds: &[&str]) -> Vec<String> {
        let platforms = self.manifest.get("target").and_then(toml::Value::as_table);
        let platforms = platforms.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table);
        let mut found = Vec::new();
        for table in std::iter::once(&self.manifest).chain(platforms) {
            for dependencies in kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()) {
                for (key, value) in dependencies {
                    // A dependency can be renamed; then `package` has its name.
                    let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                    found.extend(short(package).map(str::to_owned));
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }
}

fn short(package: &str) -> Option<&str> {
    if package == PROGRAM { Some(package) } else { package.strip_prefix(PREFIX) }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none of ours".to_owned() } else { names.join(", ") }
}
