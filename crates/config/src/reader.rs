//! Reads values of a parsed TOML document and keeps their positions, so that errors have line and column.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use crate::diagnostic::{Diagnostic, ErrorKind, Severity, SourceText, nearest, one_of};
use crate::files::Files;
use crate::types::NamedSet;

/// The most findings; a large file may repeat one error many times.
const FINDINGS_MAX: usize = 100;

/// The file being read and the findings so far.
pub(crate) struct Reader {
    pub(crate) source: SourceText,
    pub(crate) findings: Vec<(usize, Diagnostic)>,
    /// What rules may refer to by name.
    pub(crate) sets: BTreeMap<String, NamedSet>,
    /// Files and folders that the configuration names.
    pub(crate) files: Files,
    /// Paths are relative to it.
    folder: PathBuf,
}

impl Reader {
    pub(crate) fn new(source: SourceText, folder: &Path) -> Self {
        let (findings, sets, files) = (Vec::new(), BTreeMap::new(), Files::default());
        Self { source, findings, sets, files, folder: folder.to_owned() }
    }

    /// Records an error and returns it, so that advice can be added.
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

    /// Records a finding about another file, at the position of that file's name. Beyond the limit it
    /// overwrites the last one, so that memory stays bounded whatever the file contains.
    pub(crate) fn push(&mut self, at: usize, diagnostic: Diagnostic) -> &mut Diagnostic {
        if self.findings.len() >= FINDINGS_MAX {
            self.findings.truncate(FINDINGS_MAX - 1);
        }
        self.findings.push((at, diagnostic));
        let last = self.findings.len() - 1;
        &mut self.findings[last].1
    }

    /// "line 7": where something was first defined.
    pub(crate) fn line(&self, span: &Range<usize>) -> String {
        format!("line {}", self.source.line_of(span.start))
    }

    /// All findings in file order, and whether one is an error.
    pub(crate) fn finish(mut self) -> (Vec<Diagnostic>, bool) {
        self.findings.sort_by_key(|(at, _)| *at);
        let failed = self.findings.iter().any(|(_, d)| d.severity == Severity::Error);
        (self.findings.into_iter().map(|(_, d)| d).collect(), failed)
    }

    /// Reads a string with `parse`, whose error is what it expected.
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

    pub(crate) fn string<'a>(&mut self, item: &Item<'a>, expected: &str) -> Option<&'a str> {
        match item.value {
            DeValue::String(text) => Some(text),
            _ => self.wrong_type(item, expected),
        }
    }

    /// The path of a file that is read; a relative one starts at the configuration's folder.
    pub(crate) fn path(&mut self, item: &Item<'_>) -> Option<PathBuf> {
        let path = self.any_path(item)?;
        self.files.read.insert(path.clone());
        Some(path)
    }

    /// An address, `SCHEME://PLACE?KEY=VALUE&..`, in which these keys have files that are read: their paths, too, start at
    /// the configuration's folder, because a service's working directory is `/`.
    pub(crate) fn address_with_files(&mut self, address: &str, keys: &[&str]) -> String {
        let Some((place, options)) = address.split_once('?') else { return address.to_owned() };
        let option = |option: &str| match option.split_once('=') {
            Some((key, path)) if keys.contains(&key) && !path.is_empty() => {
                let path = self.folder.join(path);
                let option = format!("{key}={}", path.display());
                self.files.read.insert(path);
                option
            }
            _ => option.to_owned(),
        };
        let options: Vec<String> = options.split('&').map(option).collect();
        format!("{place}?{}", options.join("&"))
    }

    /// The path of a file or socket that the router makes. In a pattern, `%` begins what depends on the time.
    pub(crate) fn made_path(&mut self, item: &Item<'_>) -> Option<PathBuf> {
        let path = self.any_path(item)?;
        let is_fixed = |part: &&Path| !part.to_string_lossy().contains('%');
        self.files.written.extend(path.ancestors().skip(1).find(is_fixed).map(Path::to_owned));
        Some(path)
    }

    /// The path of a folder in which the router makes files.
    pub(crate) fn made_folder(&mut self, item: &Item<'_>) -> Option<PathBuf> {
        let path = self.any_path(item)?;
        self.files.written.insert(path.clone());
        Some(path)
    }

    fn any_path(&mut self, item: &Item<'_>) -> Option<PathBuf> {
        let text = self.string(item, "a path")?;
        if text.is_empty() || text.contains('\0') {
            let message = format!("bad path for `{}`", item.key);
            self.error(ErrorKind::BadValue, &item.span, message, "a path");
            return None;
        }
        Some(self.folder.join(text))
    }

    pub(crate) fn boolean(&mut self, item: &Item<'_>) -> Option<bool> {
        match item.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.wrong_type(item, "true or false"),
        }
    }

    /// An integer in a range; `unit` follows the limits in error messages ("seconds").
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

    /// One of several words.
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

    /// The entries of an array; a value that is not an array counts as an array of one.
    pub(crate) fn list<'a>(&mut self, item: &Item<'a>) -> Vec<Item<'a>> {
        match item.value {
            DeValue::Array(entries) => entries
                .iter()
                .map(|entry| Item { key: item.key, value: entry.get_ref(), span: entry.span() })
                .collect(),
            _ => vec![item.clone()],
        }
    }

    /// The entries of an array that must not be empty.
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

    /// The values of a list that must not be empty; a value that is not a list counts as a list of one.
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

pub(crate) fn integer_of(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
        _ => None,
    }
}

/// A value with its position.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// A value in the document, with its key.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a DeValue<'a>,
    pub(crate) span: Range<usize>,
}
