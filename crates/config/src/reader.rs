//! Walking a parsed TOML document without losing places.
//!
//! A section reader [takes](Section::take) the keys it knows; [`Section::finish`] then reports the rest
//! as unknown and the required ones that were not there as missing. One misspelt required key is one
//! finding, not two: a missing key that an unknown one nearly spells is not reported again.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, ErrorKind, Severity, SourceText, nearest, one_of};

/// Findings of one kind of mistake repeated over a large file stop here.
const FINDINGS_MAX: usize = 100;

/// The file being read and what was found in it so far.
pub(crate) struct Reader {
    pub(crate) source: SourceText,
    pub(crate) findings: Vec<(usize, Diagnostic)>,
}

impl Reader {
    pub(crate) fn new(source: SourceText) -> Self {
        Self { source, findings: Vec::new() }
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

    /// True or false.
    pub(crate) fn boolean(&mut self, item: &Item<'_>) -> Option<bool> {
        match item.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.wrong_type(item, "true or false"),
        }
    }

    /// An integer in a range; `unit` follows the limits in what was expected ("seconds").
    pub(crate) fn integer(
        &mut self,
        item: &Item<'_>,
        range: std::ops::RangeInclusive<u64>,
        unit: &str,
    ) -> Option<u64> {
        let mut expected = format!("a whole number from {} to {}", range.start(), range.end());
        if !unit.is_empty() {
            expected = format!("{expected} {unit}");
        }
        match integer_of(item.value) {
            Some(n) if range.contains(&n) => Some(n),
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

    /// The table in an item.
    pub(crate) fn section<'a>(&mut self, item: &Item<'a>, title: String) -> Option<Section<'a>> {
        match item.value {
            DeValue::Table(table) => Some(Section::new(table, title, item.span.clone())),
            _ => self.wrong_type(item, "a table"),
        }
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

struct Entry<'a> {
    key_span: Range<usize>,
    item: Item<'a>,
    taken: bool,
}

/// A table whose keys are being taken.
pub(crate) struct Section<'a> {
    /// How findings name it: `[ports.wan]`.
    pub(crate) title: String,
    /// Where it begins: its header, or the braces of an inline table.
    pub(crate) span: Range<usize>,
    entries: Vec<Entry<'a>>,
    known: Vec<&'static str>,
    missing: Vec<(&'static str, &'static str)>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(table: &'a DeTable<'a>, title: String, span: Range<usize>) -> Self {
        let mut entries: Vec<Entry<'a>> = table
            .iter()
            .map(|(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| Entry {
                key_span: key.span(),
                item: Item { key: key.get_ref(), value: value.get_ref(), span: value.span() },
                taken: false,
            })
            .collect();
        // The parser keeps keys sorted by name; ports and findings want the order of the file.
        entries.sort_by_key(|entry| entry.key_span.start);
        Self { title, span, entries, known: Vec::new(), missing: Vec::new() }
    }

    /// Every entry in file order: for tables whose keys are names. The span is the key's.
    pub(crate) fn into_names(self) -> Vec<(Range<usize>, Item<'a>)> {
        self.entries.into_iter().map(|entry| (entry.key_span, entry.item)).collect()
    }

    /// Whether nothing stands in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether everything in it has been taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.entries.iter().all(|entry| entry.taken)
    }

    /// Whether a key is there, taken or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.item.key == key)
    }

    /// The value of a key, if it is there.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Item<'a>> {
        self.known.push(key);
        let entry = self.entries.iter_mut().find(|entry| entry.item.key == key)?;
        entry.taken = true;
        Some(entry.item.clone())
    }

    /// The value of a key that had another name, which is still read.
    pub(crate) fn take_renamed(&mut self, key: &'static str, before: &str) -> Option<Item<'a>> {
        self.take(key).or_else(|| {
            let entry = self.entries.iter_mut().find(|entry| entry.item.key == before)?;
            entry.taken = true;
            Some(entry.item.clone())
        })
    }

    /// The value of a key that must be there; `example` shows what to write.
    pub(crate) fn require(&mut self, key: &'static str, example: &'static str) -> Option<Item<'a>> {
        let item = self.take(key);
        if item.is_none() {
            self.missing.push((key, example));
        }
        item
    }

    /// Reports keys that nobody took and keys that were missed.
    pub(crate) fn finish(self, reader: &mut Reader) {
        let mut explained = Vec::new();
        for entry in self.entries.iter().filter(|entry| !entry.taken) {
            let name = entry.item.key;
            let free = self.known.iter().copied().filter(|k| self.missing.iter().any(|(m, _)| m == k));
            let suggestion = nearest(name, free).or_else(|| nearest(name, self.known.iter().copied()));
            explained.extend(suggestion);
            let message = format!("unknown key `{name}` in {}", self.title);
            let finding = reader.error(
                ErrorKind::UnknownKey,
                &entry.key_span,
                message,
                one_of(self.known.iter().copied()),
            );
            finding.help = suggestion.map(|s| format!("did you mean `{s}`?"));
        }
        for (key, example) in &self.missing {
            if !explained.contains(key) {
                let message = format!("{} lacks `{key}`", self.title);
                reader.error(ErrorKind::MissingKey, &self.span, message, format!("`{key} = {example}`"));
            }
        }
    }
}
