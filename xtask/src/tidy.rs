//! Checks the rules of this repository that no compiler checks.
//!
//! | rule | where it is written down |
//! |---|---|
//! | a crate uses only the crates its manifest names | `[package.metadata.thalweg] may-use` (and `may-use-in-tests`) |
//! | modules use each other in no circle | [`circles`], `[workspace.metadata.thalweg] circle-arrows` |
//! | a `.rs` file has at most [`FILE_LINES_MAX`] lines; a function beyond [`FUNCTION_LINES_WARN`] is a warning | here |
//! | no unfinished or silenced code | [`source`] |
//! | the wall clock is read only where a date is wanted | [`source`] |
//! | no thread, clock, file, socket or lock in base, wire, dataplane, bgp, flow | [`purity`] |
//! | casts to narrow types only become fewer | [`casts`], `[package.metadata.thalweg] casts-max` |
//! | `unsafe` stands only in the files listed, and every listed file has some | `[workspace.metadata.thalweg] unsafe-files` |
//! | each thing has one name, in one spelling; documents and the console too | [`words`], `docs/glossary.md` |
//! | what is public is documented; a field's or variant's comment does not repeat its name | [`docs`] |
//! | ARCHITECTURE.md mentions every crate | here |
//! | every file of `tests/` belongs to a test program | here |
//! | the console's libraries are the files that their lock names | [`vendored`], `crates/web/assets/vendor.lock` |
//!
//! A rule is a function from the tree to findings; it neither prints nor stops. It does not use Git, so an
//! unpacked archive can be checked too.

mod arrows;
mod casts;
mod circles;
mod code;
mod docs;
mod purity;
mod source;
mod vendored;
mod words;

pub(crate) use purity::PURE;

use std::fmt;
use std::path::{Path, PathBuf};

/// The most lines of a file. A longer one usually contains a module of its own.
const FILE_LINES_MAX: usize = 800;
/// The most lines of a function without a warning.
const FUNCTION_LINES_WARN: usize = 100;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    fails: bool,
    file: PathBuf,
    /// From 1; 0 when the finding is about the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn failure(file: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { fails: true, file: file.to_path_buf(), line, message: message.into() }
    }

    fn warning(file: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { fails: false, ..Self::failure(file, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.fails { "error" } else { "warning" };
        write!(f, "{kind}: {}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Checks the tree and prints the findings.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let findings = check(root)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    let failures = findings.iter().filter(|f| f.fails).count();
    let warnings = findings.len() - failures;
    match failures {
        0 => {
            println!("tidy: no errors, {warnings} warnings");
            Ok(())
        }
        n => Err(format!("tidy found {n} errors and {warnings} warnings")),
    }
}

/// All findings, by file and line.
fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let workspace = read(root, Path::new("Cargo.toml"))?;
    let workspace: toml::Table = workspace.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let crates = arrows::crates(root)?;

    let mut findings = arrows::check(&crates);
    findings.extend(map_mentions_crates(root, &crates));
    findings.extend(tests_without_a_program(root, &crates)?);
    findings.extend(vendored::check(root)?);
    let folders: Vec<PathBuf> = crates.iter().map(|each| each.folder.clone()).collect();
    findings.extend(circles::check(root, &folders, &workspace)?);
    let mut casts = casts::Casts::default();
    let mut unsafe_files = source::UnsafeFiles::new(&workspace)?;
    for file in documents(root)?.into_iter().chain(vendored::own_files(root)?) {
        findings.extend(words::check(&file, &read(root, &file)?));
    }
    for file in rust_files(root)? {
        let text = read(root, &file)?;
        findings.extend(words::check(&file, &text));
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            let message = format!("{lines} lines; a file has at most {FILE_LINES_MAX}");
            findings.push(Finding::failure(&file, 0, message));
        }
        let code = code::blank(&text);
        findings.extend(source::forbidden_words(&file, &code));
        findings.extend(source::wall_clock(&file, &code));
        findings.extend(docs::check(&file, &text, &code));
        findings.extend(purity::check(&file, &code));
        casts.count(&file, &code);
        findings.extend(source::long_functions(&file, &code, FUNCTION_LINES_WARN));
        findings.extend(unsafe_files.check(&file, &code));
    }
    findings.extend(unsafe_files.stale());
    findings.extend(casts.check(&crates));
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(findings)
}

/// ARCHITECTURE.md must mention every crate.
fn map_mentions_crates(root: &Path, crates: &[arrows::Crate]) -> Vec<Finding> {
    let map = Path::new("ARCHITECTURE.md");
    let text = std::fs::read_to_string(root.join(map)).unwrap_or_default();
    let missing = crates.iter().filter(|c| !text.contains(&format!("{}", c.folder.display())));
    missing.map(|c| Finding::failure(map, 0, format!("does not mention `{}`", c.folder.display()))).collect()
}

/// Whether it is product code; files of tests and benchmarks have names of their own.
fn is_product(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    parts.any(|part| part == "src")
        && !parts.any(|part| matches!(&*part, "tests" | "tests.rs" | "testing" | "testing.rs"))
}

/// A file without its tests.
fn without_tests(code: &str) -> &str {
    code.find("#[cfg(test)]\nmod ").map_or(code, |end| &code[..end])
}

/// If the manifest lists test programs, cargo does not notice a file that belongs to none.
fn tests_without_a_program(root: &Path, crates: &[arrows::Crate]) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (each, listed) in crates.iter().filter_map(|each| Some((each, each.listed_tests()?))) {
        let folder = each.folder.join("tests");
        let main = read(root, &folder.join("main.rs"))?;
        for (path, is_folder) in entries(root, &folder)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_known = listed.contains(&&*name) || main.contains(&format!("mod {name};"));
            if !is_folder && path.extension().is_some_and(|e| e == "rs") && !is_known {
                let message = format!("is in no test program: write `mod {name};` in tests/main.rs");
                findings.push(Finding::failure(&path, 0, message));
            }
        }
    }
    Ok(findings)
}

fn read(root: &Path, file: &Path) -> Result<String, String> {
    std::fs::read_to_string(root.join(file)).map_err(|error| format!("{}: {error}", file.display()))
}

/// Every `.rs` file of the repository, relative to `root`, sorted.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["crates", "xtask", "fuzz"].map(PathBuf::from).into();
    while let Some(folder) = folders.pop() {
        if !root.join(&folder).is_dir() {
            continue;
        }
        for (path, is_folder) in entries(root, &folder)? {
            let name = path.file_name().unwrap_or_default();
            if is_folder && name != "target" && name != "corpus" && name != "artifacts" {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Every document of the repository: at the root and in `docs`.
fn documents(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for folder in [Path::new(""), Path::new("docs")] {
        if root.join(folder).is_dir() {
            files.extend(entries(root, folder)?.into_iter().map(|(path, _)| path));
        }
    }
    files.retain(|path| path.extension().is_some_and(|e| e == "md"));
    Ok(files)
}

/// The entries of a folder (relative to `root`), and whether each is a folder.
fn entries(root: &Path, folder: &Path) -> Result<Vec<(PathBuf, bool)>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        found.push((folder.join(entry.file_name()), entry.file_type().map_err(fail)?.is_dir()));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
