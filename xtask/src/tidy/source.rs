//! Rules about the text of one source file. All of them work on blanked code (see `code.rs`).

use super::Finding;
use super::code::is_word;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Macros that say "not finished" or "not meant to stay".
const FORBIDDEN_MACROS: &[(&str, &str)] = &[
    ("todo", "finish it, or say what is missing in the file's head"),
    ("unimplemented", "return an error that names what is not supported"),
    ("dbg", "left over from a search for a bug"),
];

/// Unfinished code and silenced tests.
pub(super) fn forbidden_words(file: &Path, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, why) in FORBIDDEN_MACROS {
        for (at, after) in words(code, name) {
            if after.starts_with('!') {
                let message = format!("{name}! is not for committed code: {why}");
                findings.push(Finding::failure(file, line_of(code, at), message));
            }
        }
    }
    for (at, attribute) in attributes(code) {
        let ignores = attribute.starts_with("ignore")
            || attribute.starts_with("cfg_attr") && words(attribute, "ignore").next().is_some();
        if ignores {
            let message = "#[ignore]: a test that does not run proves nothing; make it run or delete it";
            findings.push(Finding::failure(file, line_of(code, at), message));
        }
    }
    findings
}

/// The files that may read the wall clock: for the start of live packets' time, time stamps of files, the date of
/// a report, and the dates at which VRPs in files expire.
const WALL_CLOCK_FILES: [&str; 4] = [
    "crates/ports/src/live/clock.rs",
    "crates/daemon/src/mrt.rs",
    "crates/daemon/src/rpki/file.rs",
    "crates/lab/src/report/origin.rs",
];

/// Reads of the wall clock elsewhere. It is set and jumps, so timers that use it would fire early, late or
/// never; durations are measured with `Instant`.
pub(super) fn wall_clock(file: &Path, code: &str) -> Vec<Finding> {
    if WALL_CLOCK_FILES.iter().any(|may| file == Path::new(may)) {
        return Vec::new();
    }
    let message = "the wall clock jumps: use `Instant`, or the time that you are given";
    let found = words(code, "SystemTime").chain(words(code, "CLOCK_REALTIME"));
    found.map(|(at, _)| Finding::failure(file, line_of(code, at), message.to_owned())).collect()
}

/// Functions of more than `lines_max` lines, as warnings.
pub(super) fn long_functions(file: &Path, code: &str, lines_max: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, after) in words(code, "fn") {
        let name: String = after.trim_start().chars().take_while(|&c| is_word(c)).collect();
        let Some(body) = body(after) else { continue };
        let lines = body.lines().count();
        if !name.is_empty() && lines > lines_max {
            let message = format!("fn {name} has {lines} lines; does it do one thing?");
            findings.push(Finding::warning(file, line_of(code, at), message));
        }
    }
    findings
}

/// The function whose signature begins `after` the word `fn`, up to its closing brace; `None` if it has
/// no body or the braces do not match.
fn body(after: &str) -> Option<&str> {
    let mut parentheses = 0i32;
    let mut braces = 0i32;
    for (at, c) in after.char_indices() {
        match c {
            '(' | '[' => parentheses += 1,
            ')' | ']' => parentheses -= 1,
            ';' if braces == 0 && parentheses == 0 => return None,
            // `fn` as the type of a parameter ends with the parameter.
            _ if braces == 0 && parentheses < 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(&after[..=at]),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

/// The files that may hold `unsafe`, and whether each one does.
pub(super) struct UnsafeFiles {
    used: BTreeMap<PathBuf, bool>,
}

impl UnsafeFiles {
    /// Reads `[workspace.metadata.thalweg] unsafe-files`; no list means none.
    pub(super) fn new(workspace: &toml::Table) -> Result<Self, String> {
        let list =
            workspace.get("workspace").and_then(|w| w.get("metadata")?.get("thalweg")?.get("unsafe-files"));
        let files = match list {
            None => Some(Vec::new()),
            Some(list) => list.as_array().and_then(|l| l.iter().map(toml::Value::as_str).collect()),
        };
        let files = files.ok_or("Cargo.toml: unsafe-files is not a list of file names")?;
        Ok(Self { used: files.into_iter().map(|file| (PathBuf::from(file), false)).collect() })
    }

    /// Unsafe code, or a lint that allows it, in a file that is not on the list.
    pub(super) fn check(&mut self, file: &Path, code: &str) -> Option<Finding> {
        let first = words(code, "unsafe").next();
        if let Some(used) = self.used.get_mut(file) {
            *used = first.is_some();
            return None;
        }
        let allowed = attributes(code).find(|(_, a)| a.starts_with("allow") && a.contains("unsafe_code"));
        let (at, what) = match (first, allowed) {
            (Some((at, _)), _) => (at, "unsafe code"),
            (None, Some((at, _))) => (at, "allow(unsafe_code)"),
            (None, None) => return None,
        };
        let message = format!(
            "{what} in a file that is not on the list: do without, or add the file to unsafe-files in \
             Cargo.toml with the measurement that pays for it"
        );
        Some(Finding::failure(file, line_of(code, at), message))
    }

    /// Entries of the list that name no file with unsafe code.
    pub(super) fn stale(&self) -> Vec<Finding> {
        let unused = self.used.iter().filter(|(_, used)| !**used);
        let message =
            |file: &Path| format!("unsafe-files lists {}, which has no unsafe code", file.display());
        unused.map(|(file, _)| Finding::failure(Path::new("Cargo.toml"), 0, message(file))).collect()
    }
}

/// Every place where `word` occurs as a whole word, with the code after it.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    code.match_indices(word).filter_map(move |(at, _)| {
        let after = &code[at + word.len()..];
        let joined = code[..at].ends_with(is_word) || after.starts_with(is_word);
        (!joined).then_some((at, after))
    })
}

/// Every attribute (outer and inner): where it begins, and its text after the bracket.
fn attributes(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.match_indices('#').filter_map(move |(at, _)| {
        let rest = code[at + 1..].trim_start();
        let rest = rest.strip_prefix('!').unwrap_or(rest).trim_start().strip_prefix('[')?;
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth == 0
        });
        Some((at, rest[..end.unwrap_or(rest.len())].trim_start()))
    })
}

pub(super) fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}
