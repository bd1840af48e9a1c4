//! Findings in a configuration or a route file, and how they look on a terminal and in JSON.
//!
//! ```text
//! error: unknown key `adresses` in [ports.wan]
//!   --> router.toml:3:1
//!    |
//!  3 | adresses = ["203.0.113.2/30"]
//!    | ^^^^^^^^ expected mac, addresses, mtu, trace_name or default_mac
//!    |
//!    = help: did you mean `addresses`?
//! ```
//!
//! Lines and columns count from 1, columns in characters. Of a long line, the part around the mark is shown.
//! Passwords are masked character by character, because findings go to terminals, logs and tickets.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but is probably not what was intended.
    Warning,
}

/// The kind of a finding, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// A file cannot be opened or read.
    File,
    /// Not TOML, or a malformed line of a route file.
    Syntax,
    /// An unknown key or section.
    UnknownKey,
    /// A required key is missing.
    MissingKey,
    /// For example a string where a number belongs.
    WrongType,
    /// The right type but an invalid value.
    BadValue,
    /// A name that is not defined.
    UnknownName,
    /// The same item occurs twice.
    Duplicate,
    /// Prefixes or port ranges overlap that must not.
    Overlap,
    /// A next hop, neighbor or gateway on no connected network.
    NotConnected,
    /// Keys that exclude each other, or values that contradict each other.
    Conflict,
    /// More than the router can hold.
    TooMany,
    /// A policy differs from its test.
    TestFailed,
}

/// A finding with its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    pub kind: ErrorKind,
    /// One line.
    pub message: String,
    /// The file as it was named.
    pub file: String,
    /// From 1; 0 if the file could not be read at all.
    pub line: usize,
    /// In characters, from 1; 0 if the file could not be read at all.
    pub column: usize,
    /// Characters that the mark covers.
    pub length: usize,
    /// The text of the line.
    pub text: String,
    /// What was expected here; may be empty.
    pub expected: String,
    /// Advice, if there is any.
    pub help: Option<String>,
}

/// All findings of an unusable configuration: at least one error, and the warnings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigErrors {
    /// In file order.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigErrors {
    /// The number of errors among the findings.
    pub fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.severity == Severity::Error).count()
    }
}

impl std::error::Error for ConfigErrors {}

impl ConfigErrors {
    /// The findings without the word `error` before the first, for callers that print it themselves.
    pub fn without_severity(&self) -> String {
        let text = self.to_string();
        text.strip_prefix("error: ").unwrap_or(&text).to_owned()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        match self.error_count() {
            1 => write!(f, "1 error in the configuration"),
            n => write!(f, "{n} errors in the configuration"),
        }
    }
}

/// The most characters of a source line that are shown.
const SHOWN_MAX: usize = 100;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{severity}: {}", printable(&self.message))?;
        if self.line == 0 {
            writeln!(f, "  --> {}", self.file)?;
        } else {
            let number = self.line.to_string();
            let gutter = " ".repeat(number.len());
            writeln!(f, " {gutter}--> {}:{}:{}", self.file, self.line, self.column)?;
            let (shown, mark_at) = self.shown();
            writeln!(f, " {gutter} |")?;
            writeln!(f, " {number} | {shown}")?;
            let mark = "^".repeat(self.length.clamp(1, shown.chars().count().saturating_sub(mark_at).max(1)));
            let expected = match printable(&self.expected) {
                nothing if nothing.is_empty() => nothing,
                expected => format!(" expected {expected}"),
            };
            writeln!(f, " {gutter} | {}{mark}{expected}", " ".repeat(mark_at))?;
        }
        if let Some(help) = &self.help {
            writeln!(f, "   = help: {}", printable(help))?;
        }
        Ok(())
    }
}

/// Messages quote the file: control characters are replaced, and long text is cut.
fn printable(text: &str) -> String {
    const MESSAGE_MAX: usize = 400;
    let mut shown: String = text
        .chars()
        .take(MESSAGE_MAX)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(MESSAGE_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

impl Diagnostic {
    /// The part of the line to show, and the position of the mark in it. Control characters such as tabs
    /// become spaces, so that the mark stays in place and nothing controls the terminal.
    fn shown(&self) -> (String, usize) {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let at = self.column.saturating_sub(1);
        let count = self.text.chars().count();
        if count <= SHOWN_MAX {
            return (self.text.chars().map(clean).collect(), at);
        }
        let start = at.saturating_sub(SHOWN_MAX / 3).min(count - SHOWN_MAX);
        let part: String = self.text.chars().skip(start).take(SHOWN_MAX).map(clean).collect();
        let before = if start > 0 { "..." } else { "" };
        let after = if start + SHOWN_MAX < count { "..." } else { "" };
        (format!("{before}{part}{after}"), at - start + before.len())
    }

    /// The finding as a warning.
    pub(crate) fn into_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }
}

/// A file's name and text, from which findings derive their positions.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    file: Arc<str>,
    text: Arc<str>,
    lines: Arc<[Line]>,
}

/// A line. The lines are found once: a file of many routes may have as many findings, each of which needs its
/// position.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    /// It begins within a multi-line string.
    is_in_string: bool,
}

impl Line {
    fn all(text: &str) -> Vec<Self> {
        let (mut lines, mut start, mut is_open) = (Vec::new(), 0, [false; 2]);
        for line in text.split_inclusive('\n') {
            lines.push(Self { start, is_in_string: is_open.contains(&true) });
            start += line.len();
            for (is_open, quotes) in is_open.iter_mut().zip(["\"\"\"", "'''"]) {
                *is_open ^= line.matches(quotes).count() % 2 == 1;
            }
        }
        if start == 0 || text.ends_with('\n') {
            lines.push(Self { start, is_in_string: is_open.contains(&true) });
        }
        lines
    }
}

impl SourceText {
    /// The text at a range of bytes as in the file, including quotes.
    pub(crate) fn raw(&self, span: Range<usize>) -> &str {
        self.text.get(span).unwrap_or("")
    }

    pub(crate) fn new(file: &str, text: &str) -> Self {
        Self { file: file.into(), text: text.into(), lines: Line::all(text).into() }
    }

    /// An error at a range of bytes.
    pub(crate) fn error(
        &self,
        kind: ErrorKind,
        span: Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Diagnostic {
        let (line, column, length, text) = self.locate(span);
        Diagnostic {
            severity: Severity::Error,
            kind,
            message: message.into(),
            file: self.file.to_string(),
            line,
            column,
            length,
            text: without_secrets(text, self.lines[line - 1].is_in_string),
            expected: expected.into(),
            help: None,
        }
    }

    /// The line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.locate(at..at).0
    }

    /// Line, column, number of characters to mark on that line, and the line without its end.
    fn locate(&self, span: Range<usize>) -> (usize, usize, usize, &str) {
        let text = &*self.text;
        let start = text.floor_char_boundary(span.start);
        let line = self.lines.partition_point(|line| line.start <= start);
        let line_start = self.lines[line - 1].start;
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let end = text.floor_char_boundary(span.end.clamp(start, line_end));
        let column = text[line_start..start].chars().count() + 1;
        (line, column, text[start..end].chars().count(), text[line_start..line_end].trim_end_matches('\r'))
    }
}

/// A line with passwords masked: values of keys that are, or seem to be meant as, a password; and all of a
/// line that begins within a multi-line string, because its key is not on it.
fn without_secrets(line: &str, is_in_string: bool) -> String {
    if is_in_string {
        return line.chars().map(|_| '*').collect();
    }
    let mut shown = String::with_capacity(line.len());
    let (mut quote, mut secret, mut escaped, mut depth) = (None, false, false, 0_i32);
    for (at, c) in line.char_indices() {
        let ends = match quote {
            Some(_) if escaped => false,
            Some(open) => c == open,
            None => matches!(c, ',' | '}' | '#') && (depth <= 0 || c == '#'),
        };
        escaped = quote == Some('"') && c == '\\' && !escaped;
        match quote {
            Some(_) if ends => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if c == '=' => secret |= is_secret(key_before(&line[..at])),
            None if ends => secret = false,
            None if secret => depth += i32::from(c == '[') - i32::from(c == ']'),
            _ => {}
        }
        let masked = secret && c != '=' && !c.is_whitespace() || secret && quote.is_some();
        shown.push(if masked { '*' } else { c });
    }
    shown
}

/// The key of the next `=`: the last word, without quotes and dotted prefixes.
fn key_before(line: &str) -> &str {
    let line = line.trim_end().trim_end_matches(['"', '\'']);
    line.rsplit([' ', '\t', ',', '{', '.', '"', '\'']).next().unwrap_or(line)
}

/// Whether a key is a password, or a misspelling of one.
fn is_secret(key: &str) -> bool {
    let lower = key.to_lowercase();
    ["pass", "secret", "pwd", "md5"].iter().any(|part| lower.contains(part))
        || nearest(key, ["password"]).is_some()
}

/// The known name closest to a misspelled one, if it is close enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (edit_distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The optimal string alignment distance: edits (insert, delete, replace, swap neighbors) that turn `a` into
/// `b`. Long names are cut; a name of 64 letters is no misspelling of a known one.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

/// "a, b or c".
pub(crate) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("addresses", "adresses"), 1);
        assert_eq!(edit_distance("ports", "prots"), 1);
        assert_eq!(edit_distance("mtu", "mac"), 2);
        assert_eq!(nearest("adresses", ["mac", "addresses"]), Some("addresses"));
        assert_eq!(nearest("color", ["mac", "addresses"]), None);
    }

    #[test]
    fn passwords_are_not_shown() {
        let lines = [
            "password = \"hunter2\"",
            "pasword = \"hunter2\" # for R2",
            "pass = 'hunter2'",
            "  { address = \"192.0.2.1\", password = \"hunter2\", as = 1 }",
            "password = \"hunter2",
            "password = hunter2",
            "password = \"with \\\" hunter2\"",
            "\"password\" = \"hunter2\"",
            "bgp.md5_key=\"hunter2\"",
            "password = \"\"\"\nhunter2\"\"\"",
            "password = '''\na\nhunter2\n'''",
            "passwrod = [\"x\", \"hunter2\"]",
            "password = { value = \"hunter2\" }",
        ];
        for text in lines {
            let source = SourceText::new("f", text);
            for at in 0..text.len() {
                let finding = source.error(ErrorKind::BadValue, at..at + 1, "m", "");
                assert!(!finding.to_string().contains("hunter2"), "{finding}");
                assert!(!finding.text.contains("hunter2"), "{}", finding.text);
            }
        }
        let line = "{ password = \"é2\", as = 64500, name = \"a = b\" } # password";
        let shown = SourceText::new("f", line).error(ErrorKind::BadValue, 0..1, "m", "").text;
        assert_eq!(shown, "{ password = ****, as = 64500, name = \"a = b\" } # password");
    }

    #[test]
    fn places_count_characters_and_survive_any_range() {
        let text = "a = 1\r\nbé = \"x\"\n";
        let source = SourceText::new("f", text);
        assert_eq!(source.locate(7..10), (2, 1, 2, "bé = \"x\""));
        assert_eq!(source.locate(13..16), (2, 6, 3, "bé = \"x\""));
        assert_eq!(source.locate(99..99), (3, 1, 0, ""));
        for start in 0..text.len() + 3 {
            for end in 0..text.len() + 3 {
                let (line, column, length, shown) = source.locate(start..end);
                assert_eq!(line, text[..text.floor_char_boundary(start)].matches('\n').count() + 1);
                assert!(column >= 1 && column + length <= shown.chars().count() + 3);
            }
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_mark() {
        let source = SourceText::new("f", &format!("{}X{}", "a".repeat(300), "b".repeat(300)));
        let shown = source.error(ErrorKind::BadValue, 300..301, "m", "").to_string();
        let lines: Vec<&str> = shown.lines().collect();
        let at = lines[3].find('X').expect("the marked character is shown");
        assert_eq!(lines[4].find('^'), Some(at));
        assert!(lines[3].len() < 120, "{}", lines[3].len());
    }
}
