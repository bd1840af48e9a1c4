//! Files that come from elsewhere are the files of their lock: none missing, none unknown, none changed.
//!
//! The program contains the console's libraries byte by byte. Nobody reads minified code in a review, so a checksum
//! says that a file is the one its package published.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Finding, entries, read};

/// The folder of the console, and the folder and the lock of its libraries in it.
const ASSETS: &str = "crates/web/assets";
const FOLDER: &str = "vendor";
const LOCK: &str = "vendor.lock";
/// The texts of the libraries' licenses, which the lock does not list.
const LICENSES: &str = "vendor/LICENSES.txt";
/// What the lock says of each file.
const KEYS: [&str; 6] = ["name", "package", "version", "source", "license", "sha512"];

/// Compares the folder with its lock. A tree without a console has no findings.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let assets = Path::new(ASSETS);
    if !root.join(assets).is_dir() {
        return Ok(Vec::new());
    }
    let lock = assets.join(LOCK);
    let table: toml::Table =
        read(root, &lock)?.parse().map_err(|error| format!("{}: {error}", lock.display()))?;
    let mut findings = Vec::new();
    let mut listed: Vec<PathBuf> = vec![assets.join(LICENSES)];
    for file in table.get("file").and_then(toml::Value::as_array).into_iter().flatten() {
        let value = |key| file.get(key).and_then(toml::Value::as_str).filter(|text| !text.is_empty());
        let name = value("name").unwrap_or("a file without a name");
        let missing = KEYS.into_iter().filter(|key| value(key).is_none());
        findings.extend(missing.map(|key| Finding::failure(&lock, 0, format!("{name}: no `{key}`"))));
        let path = assets.join(name);
        if let Some(expected) = value("sha512") {
            match sha512(&root.join(&path)) {
                Ok(found) if found == expected => {}
                Ok(found) => findings.push(Finding::failure(&path, 0, format!("its sha512 is {found}"))),
                Err(error) => findings.push(Finding::failure(&path, 0, error)),
            }
        }
        listed.push(path);
    }
    let present = entries(root, &assets.join(FOLDER))?;
    let unknown = present.into_iter().filter(|(path, _)| !listed.contains(path));
    findings.extend(unknown.map(|(path, _)| Finding::failure(&path, 0, format!("is not in {LOCK}"))));
    Ok(findings)
}

/// The console's own code: everything but its libraries.
pub(super) fn own_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(ASSETS)];
    while let Some(folder) = folders.pop().filter(|folder| root.join(folder).is_dir()) {
        for (path, is_folder) in entries(root, &folder)? {
            match is_folder {
                true if path.ends_with(FOLDER) => {}
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    Ok(files)
}

/// A file's SHA-512 in hexadecimal, by coreutils: xtask needs no cryptography of its own.
fn sha512(path: &Path) -> Result<String, String> {
    let output =
        Command::new("sha512sum").arg(path).output().map_err(|error| format!("sha512sum: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_whitespace().next().filter(|_| output.status.success()) {
        Some(sum) => Ok(sum.to_owned()),
        None => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
