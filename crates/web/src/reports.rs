//! Reports of the laboratory: the folders of one folder, each with `report.html` and `results.json`.
//!
//! A report is a file of somebody else: it is served in a sandbox, without scripts and without anything from elsewhere.
//! Names are one part of a path, and no link is followed, so nothing outside of the folder is served.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use thalweg_text::calendar::format_time;

use crate::answer::Outlet;
use crate::limits::PIECE_BYTES;
use crate::problem::{Problem, ProblemKind};

/// The page of a report, and its numbers.
pub(crate) const PAGE: &str = "report.html";
pub(crate) const RESULTS: &str = "results.json";

/// What a report may do: look like itself.
pub(crate) const SANDBOX: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'";

const NAME_MAX: usize = 100;
/// Entries of the folder that are looked at.
const LISTED_MAX: usize = 1_000;

/// The reports in a folder, the latest first: the body of a thread.
pub(crate) fn list(folder: &Path, mut outlet: Outlet) {
    let result = fs::read_dir(folder).map_err(|error| Problem::failed(format!("reports: {error}")));
    let result = result.map(|entries| {
        let names = entries.take(LISTED_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut reports: Vec<(u64, Value)> = names.filter_map(|name| report(folder, &name)).collect();
        reports.sort_by_key(|(written_ns, _)| Reverse(*written_ns));
        let items: Vec<Value> = reports.into_iter().map(|(_, report)| report).collect();
        // Who is gone needs no answer.
        let _ = outlet.write(json!({ "items": items, "cursor": null }).to_string());
    });
    outlet.end(result);
}

/// When a report was written, and what is said of it; `None` if there is no page of this name.
fn report(folder: &Path, name: &str) -> Option<(u64, Value)> {
    let page = find(folder, name, PAGE)?.metadata().ok()?;
    let age = page.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let written_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    let has_results = find(folder, name, RESULTS).is_some();
    let view = json!({
        "name": name,
        "written": format_time(written_ns / 1_000_000_000 * 1_000_000_000),
        "bytes": page.len(),
        "results": has_results,
    });
    Some((written_ns, view))
}

/// Sends a file of a report: the body of a thread.
pub(crate) fn send(folder: &Path, name: &str, file: &str, mut outlet: Outlet) {
    let found = find(folder, name, file).and_then(|path| File::open(path).ok());
    let found = found.ok_or_else(|| Problem::new(ProblemKind::NotFound, "there is no such report"));
    let result = found.and_then(|mut file| {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece).map_err(Problem::failed)? {
                0 => return Ok(()),
                length if outlet.write(&piece[..length]).is_err() => return Ok(()),
                _ => {}
            }
        }
    });
    outlet.end(result);
}

/// Where a file of a report is, if that is what the name says.
fn find(folder: &Path, name: &str, file: &str) -> Option<PathBuf> {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('.') || !name.chars().all(is_safe) {
        return None;
    }
    let direct = folder.canonicalize().ok()?.join(name).join(file);
    // A link anywhere behind the folder makes a difference.
    let real = direct.canonicalize().ok()?;
    (real == direct && real.is_file()).then_some(real)
}
