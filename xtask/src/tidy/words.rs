//! Refuses words that the glossary replaces (`docs/glossary.md`), and other than American spelling.

use std::path::Path;

use super::Finding;

/// The beginning of a word in lower case, and its replacement.
const WORDS: &[(&str, &str)] = &[
    ("neighbour", "neighbor"),
    ("colour", "color"),
    ("behaviour", "behavior"),
    ("honour", "honor"),
    ("labelled", "labeled"),
    ("labeller", "labeler"),
    ("cancelled", "canceled"),
    ("signalling", "signaling"),
    ("recognis", "recogniz"),
    ("prioritis", "prioritiz"),
    ("station", "neighbor"),
    ("octets", "bytes"),
    ("keep_house", "housekeeping"),
    ("whoever", "who it is"),
    ("outlook", "preflight"),
    ("in_step", "kernel_sync"),
    ("books", "counters"),
    ("chores", "background work"),
    ("errand", "request"),
    ("crew", "threads"),
    ("twin", "reference"),
    ("heed", "track"),
    ("unsayable", "unexportable"),
    ("towards", "toward"),
    ("made-up", "generated"),
];

/// Exceptions that contain such a word: names given by others, and names that are still read for one version.
const ALLOWED: &[&str] = &[
    ".octets()",
    "::octets)",
    "virtualStation",
    "VIRTUAL_STATION",
    "Octets\"",
    "_OCTETS",
    "\"octets\"",
    "_octets\"",
    "\"neighbours\"",
    "[[neighbours]]",
    "(formerly `neighbours`)",
    "`colour_aware`",
    "\"colour_aware\"",
    "four-octet",
    "*octet*",
    "cflow.octets",
    "| octets |",
    "aria-labelledby",
];

/// Finds lines with such words. The list itself, its tests and the fuzz corpus are skipped.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    if ["tidy/words.rs", "tidy/tests.rs"].iter().any(|list| file.ends_with(list)) {
        return Vec::new();
    }
    let findings = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let rest = ALLOWED.iter().fold(line.to_owned(), |line, allowed| line.replace(allowed, ""));
        let rest = rest.to_ascii_lowercase();
        let (word, instead) = WORDS.iter().find(|(word, _)| begins_a_word(&rest, word))?;
        Some(Finding::failure(file, number, format!("`{word}`: say `{instead}` (docs/glossary.md)")))
    });
    findings.collect()
}

fn begins_a_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric()))
}
