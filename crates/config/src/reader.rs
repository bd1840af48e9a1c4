//! Reads values of a parsed TOML document and keeps their places, so that an error names its line and column.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use crate::diagnostic::{Diagnostic, ErrorKind, Severity, SourceText, nearest, one_of};

/// Findings of one kind of mistake repeated over a large file stop here.
const FINDINGS_MAX: usize = 100;

/// The file being read and what was found in it so far.
pub(crate) struct Reader {
    pub(crate) source: SourceText,
    pub(crate) findings: Vec<(usize, Diagnostic)>,
    /// What paths are relative to.
    folder: PathBuf,
}

impl Reader {
    pub(crate) fn new(source: SourceText, folder: &Path) -> Self {
        Self { source, findings: Vec::new(), folder: folder.to_owned() }
    }

    /// Records an error and hands it out for advice to be added.
    pub(crate) fn error(
        &mut self,
        kind: ErrorKind,
        span: &Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> &mut Diagnostic {
        let diagnostic = self.source.error(kind, span.clone(), message, expected);
        self.push(span.start, diagnostic)
    }

    /// Records a warning.
    pub(crate) fn warning(
        &mut self,
        kind: ErrorKind,
        span: &Range<usize>,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> &mut Diagnostic {
        let diagnostic = self.source.error(kind, span.clone(), message, expected).into_warning();
        self.push(span.start, diagnostic)
    }

    /// Records a finding of another file at the place that names the file. Beyond the limit the last
    /// one is overwritten, so that memory stays bounded whatever the file says.
    pub(crate) fn push(&mut self, at: usize, diagnostic: Diagnostic) -> &mut Diagnostic {
        if self.findings.len() >= FINDINGS_MAX {
            self.findings.truncate(FINDINGS_MAX - 1);
        }
        self.findings.push((at, diagnostic));
        let last = self.findings.len() - 1;
        &mut self.findings[last].1
    }

    /// "line 7": where something was first said.
    pub(crate) fn line(&self, span: &Range<usize>) -> String {
        format!("line {}", self.source.line_of(span.start))
    }

    /// All findings in file order, and whether one is an error.
    pub(crate) fn finish(mut self) -> (Vec<Diagnostic>, bool) {
        self.findings.sort_by_key(|(at, _)| *at);
        let failed = self.findings.iter().any(|(_, d)| d.severity == Severity::Error);
        (self.findings.into_iter().map(|(_, d)| d).collect(), failed)
    }

    /// Reads a string by `parse`, which answers with what it expected.
    pub(crate) fn parse<T>(
        &mut self,
        item: &Item<'_>,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Option<At<T>> {
        let text = self.string(item, parse("").err().unwrap_or("a string"))?;
        match parse(text) {
            Ok(value) => Some(At { value, span: item.span.clone() }),
            Err(expected) => {
                self.error(
                    ErrorKind::BadValue,
                    &item.span,
                    format!("bad value `{text}` for `{}`", item.key),
                    expected,
                );
                None
            }
        }
    }

    /// A string.
    pub(crate) fn string<'a>(&mut self, item: &Item<'a>, expected: &str) -> Option<&'a str> {
        match item.value {
            DeValue::String(text) => Some(text),
            _ => self.wrong_type(item, expected),
        }
    }

    /// A path; a relative one begins at the configuration.
    pub(crate) fn path(&mut self, item: &Item<'_>) -> Option<PathBuf> {
        let text = self.string(item, "a path")?;
        if text.is_empty() || text.contains('\0') {
            let message = format!("bad path for `{}`", item.key);
            self.error(ErrorKind::BadValue, &item.span, message, "a path");
            return None;
        }
        Some(self.folder.join(text))
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, item: &Item<'_>) -> Option<bool> {
        match item.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.wrong_type(item, "true or false"),
        }
    }

    /// An integer in a range; `unit` follows the limits in what was expected ("seconds").
    pub(crate) fn integer<N: TryFrom<u64>>(
        &mut self,
        item: &Item<'_>,
        range: std::ops::RangeInclusive<u64>,
        unit: &str,
    ) -> Option<N> {
        let mut expected = format!("a whole number from {} to {}", range.start(), range.end());
        if !unit.is_empty() {
            expected = format!("{expected} {unit}");
        }
        match integer_of(item.value) {
            Some(n) if range.contains(&n) => N::try_from(n).ok(),
            _ if matches!(item.value, DeValue::Integer(_)) => {
                self.error(
                    ErrorKind::BadValue,
                    &item.span,
                    format!("`{}` is out of range", item.key),
                    expected,
                );
                None
            }
            _ => self.wrong_type(item, &expected),
        }
    }

    /// One of a few words.
    pub(crate) fn word<T: Clone>(&mut self, item: &Item<'_>, words: &[(&str, T)]) -> Option<T> {
        let expected = one_of(words.iter().map(|(word, _)| *word));
        let text = self.string(item, &expected)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(value.clone());
        }
        let suggestion = nearest(text, words.iter().map(|(word, _)| *word));
        let finding = self.error(
            ErrorKind::BadValue,
            &item.span,
            format!("unknown value `{text}` for `{}`", item.key),
            expected,
        );
        finding.help = suggestion.map(|s| format!("did you mean `{s}`?"));
        None
    }

    /// The entries of an array; a value that is no array counts as an array of one.
    pub(crate) fn list<'a>(&mut self, item: &Item<'a>) -> Vec<Item<'a>> {
        match item.value {
            DeValue::Array(entries) => entries
                .iter()
                .map(|entry| Item { key: item.key, value: entry.get_ref(), span: entry.span() })
                .collect(),
            _ => vec![item.clone()],
        }
    }

    /// The entries of an array that must have one.
    pub(crate) fn filled_list<'a>(&mut self, item: &Item<'a>) -> Vec<Item<'a>> {
        let entries = self.list(item);
        if entries.is_empty() {
            self.error(
                ErrorKind::BadValue,
                &item.span,
                format!("`{}` is empty", item.key),
                "at least one entry",
            );
        }
        entries
    }

    /// The values of a list that must have one; a value that is no list counts as a list of one.
    pub(crate) fn all<T>(
        &mut self,
        item: &Item<'_>,
        read: fn(&mut Reader, &Item<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let entries = self.filled_list(item);
        Some(entries.iter().filter_map(|entry| read(self, entry)).collect())
    }

    pub(crate) fn wrong_type<T>(&mut self, item: &Item<'_>, expected: &str) -> Option<T> {
        let found = match item.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let message = format!("`{}` cannot be {found}", item.key);
        self.error(ErrorKind::WrongType, &item.span, message, expected);
        None
    }
}

/// A non-negative integer value.
pub(crate) fn integer_of(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
        _ => None,
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// A value in the document, with the key it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a DeValue<'a>,
    pub(crate) span: Range<usize>,
}
