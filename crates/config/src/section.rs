//! Sections: tables whose keys are taken one by one.
//!
//! A section reader [takes](Section::take) the keys of its [`Table`]; [`Section::finish`] then reports the
//! remaining keys as unknown and absent required ones as missing. A misspelled required key is one finding,
//! not two: a missing key is not reported if an unknown one nearly spells it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::key::{Key, Row, Sub, Table, Value};
use crate::reader::{At, Item, Reader};

impl Reader {
    /// The section in an item.
    pub(crate) fn section<'a>(&mut self, item: &Item<'a>, table: &'static Table) -> Option<Section<'a>> {
        self.section_called(item, table, table.title.to_owned())
    }

    /// The section in an item, with its own title.
    pub(crate) fn section_called<'a>(
        &mut self,
        item: &Item<'a>,
        table: &'static Table,
        title: String,
    ) -> Option<Section<'a>> {
        match item.value {
            DeValue::Table(entries) => Some(Section::new(entries, table, title, item.span.clone())),
            _ => self.wrong_type(item, "a table"),
        }
    }

    /// The entries of a table whose keys are names, in file order, each with the position of its name.
    pub(crate) fn names<'a>(&mut self, item: &Item<'a>) -> Option<Vec<(Range<usize>, Item<'a>)>> {
        match item.value {
            DeValue::Table(table) => {
                Some(entries_of(table).map(|entry| (entry.key_span, entry.item)).collect())
            }
            _ => self.wrong_type(item, "a table"),
        }
    }
}

struct Entry<'a> {
    key_span: Range<usize>,
    item: Item<'a>,
    taken: bool,
}

/// The entries of a table. The parser sorts them by name; ports and findings need file order.
fn entries_of<'a>(table: &'a DeTable<'a>) -> impl Iterator<Item = Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = table
        .iter()
        .map(|(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| Entry {
            key_span: key.span(),
            item: Item { key: key.get_ref(), value: value.get_ref(), span: value.span() },
            taken: false,
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    entries.into_iter()
}

/// A table whose keys are being taken.
pub(crate) struct Section<'a> {
    /// The name in findings: `[ports.wan]`.
    pub(crate) title: String,
    /// The position of its header, or of the braces of an inline table.
    pub(crate) span: Range<usize>,
    is_there: bool,
    table: &'static Table,
    entries: Vec<Entry<'a>>,
    known: Vec<&'static str>,
    missing: Vec<(&'static str, &'static str)>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(
        entries: &'a DeTable<'a>,
        table: &'static Table,
        title: String,
        span: Range<usize>,
    ) -> Self {
        let entries = entries_of(entries).collect();
        let (known, missing) = (Vec::new(), Vec::new());
        Self { title, span, is_there: true, table, entries, known, missing }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether all its entries have been taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.entries.iter().all(|entry| entry.taken)
    }

    /// Whether a key exists, taken or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.item.key == key)
    }

    /// The item of a key, if present. A missing required key is reported.
    pub(crate) fn take(&mut self, key: &'static dyn Row) -> Option<Item<'a>> {
        debug_assert!(self.table.has(key.name()), "{} has no row `{}`", self.title, key.name());
        self.known.push(key.name());
        let place = |name: &str| self.entries.iter().position(|entry| entry.item.key == name);
        let place = place(key.name()).or_else(|| key.former().and_then(place));
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            if key.is_required() {
                self.missing.push((key.name(), key.example()));
            }
            return None;
        };
        entry.taken = true;
        Some(entry.item.clone())
    }

    /// [`Self::take`] for a key that other keys make required.
    pub(crate) fn require(&mut self, key: &'static dyn Row) -> Option<Item<'a>> {
        let item = self.take(key);
        if item.is_none() {
            self.missing.push((key.name(), key.example()));
        }
        item
    }

    /// The section that begins at a key, if present.
    pub(crate) fn section(&mut self, reader: &mut Reader, key: &'static Key<Sub>) -> Option<Section<'a>> {
        let (item, table) = (self.take(key)?, key.table()?);
        reader.section(&item, table)
    }

    /// The section that begins at a key; an empty one if missing.
    pub(crate) fn section_or_empty(&mut self, reader: &mut Reader, key: &'static Key<Sub>) -> Section<'a> {
        let table = key.table().unwrap_or(self.table);
        self.section(reader, key).unwrap_or_else(|| Self {
            title: String::new(),
            span: 0..0,
            is_there: false,
            table,
            entries: Vec::new(),
            known: Vec::new(),
            missing: Vec::new(),
        })
    }

    /// The sections that begin at a key.
    pub(crate) fn sections(&mut self, reader: &mut Reader, key: &'static Key<Sub>) -> Vec<Section<'a>> {
        let (Some(item), Some(table)) = (self.take(key), key.table()) else { return Vec::new() };
        let entries = reader.list(&item);
        entries.iter().filter_map(|entry| reader.section(entry, table)).collect()
    }

    /// The value of a key in the section with its position, if present and valid.
    pub(crate) fn read<T: Value>(&mut self, reader: &mut Reader, key: &'static Key<T>) -> Option<At<T>> {
        let item = self.take(key)?;
        Some(At { value: key.value(reader, &item)?, span: item.span })
    }

    /// The value of a key in the section, otherwise the row's default.
    pub(crate) fn get<T: Value>(&mut self, reader: &mut Reader, key: &'static Key<T>) -> Option<T> {
        self.read(reader, key).map(|at| at.value).or_else(|| key.default_value(reader))
    }

    /// Stores the value of a key; `place` is unchanged if neither section nor row has one.
    pub(crate) fn set<T: Value>(&mut self, reader: &mut Reader, key: &'static Key<T>, place: &mut T) {
        if let Some(value) = self.get(reader, key) {
            *place = value;
        }
    }

    /// Reports keys that were not taken and keys that are missing. Returns the position of the section, if
    /// present.
    pub(crate) fn finish(self, reader: &mut Reader) -> Option<Range<usize>> {
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
        self.is_there.then_some(self.span)
    }
}
