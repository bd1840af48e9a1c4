//! `[policy]`: sets, rules and their tests; see `docs/policy.md`.

use std::path::Path;
use std::sync::Arc;

use thalweg_bgp::policy::{NumberSet, PrefixEntry, PrefixSet, RuleLibrary};
use toml::de::DeValue;

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Row, Sub, table};
use crate::policy_sets::{Sets, as_path, as_range, check_name, community, prefix_entry};
use crate::reader::{Item, Reader};
use crate::section::Section;
use crate::text_file::read_text;
use crate::{policy_rules, policy_test};

pub(crate) static POLICY: Key<Sub> =
    Key::section("policy", &TABLE).help("sets, rules and tests of BGP's policy: [policy.md](policy.md)");
table! {
    static TABLE: "policy", "[policy]";

    static PREFIX_SETS: Key<Sub> =
        Key::named_sections("prefix_sets", &PREFIX_SET_TABLE).help("`NAME = [\"10.0.0.0/8 le 24\"]`, or a table");
    static AS_SETS: Key<Sub> =
        Key::named_sections("as_sets", &SET_TABLE).help("`NAME = [64496, \"64500-64510\"]`, or a table");
    static AS_PATH_SETS: Key<Sub> =
        Key::named_sections("as_path_sets", &SET_TABLE).help("`NAME = [\"^64496_.*_64500$\"]`, or a table");
    static COMMUNITY_SETS: Key<Sub> = Key::named_sections("community_sets", &SET_TABLE)
        .help("`NAME = [\"blackhole\", \"64500:666\"]`, or a table");
    row policy_rules::RULES;
    row policy_test::TEST;
}

table! {
    static PREFIX_SET_TABLE: "policy.prefix_sets.NAME", "[policy.prefix_sets.NAME]";

    static ENTRIES: Key<()> = Key::raw("entries", "an entry or a list").help("entries of the set");
    static FILES: Key<()> =
        Key::raw("files", "a path or a list").help("file with more entries, one per line, relative to this file");
}
table! {
    static SET_TABLE: "policy.as_sets.NAME", "[policy.as_sets.NAME], as_path_sets and community_sets";

    row ENTRIES;
}

/// The most entries of one set: several times the Internet's table.
const ENTRIES_MAX: usize = 4 << 20;

/// The content of `[policy]`.
#[derive(Default)]
pub(crate) struct Policies<'a> {
    pub(crate) library: RuleLibrary,
    /// Tests, which are run when the neighbors are known.
    pub(crate) tests: Vec<Item<'a>>,
}

/// Reads `[policy]` without its tests. `groups` are those that neighbor patterns may name.
pub(crate) fn read<'a>(
    reader: &mut Reader,
    root: &mut Section<'a>,
    folder: &Path,
    groups: &policy_rules::Groups,
) -> Policies<'a> {
    let mut policies = Policies::default();
    let Some(mut section) = root.section(reader, &POLICY) else { return policies };
    let mut sets = Sets::default();
    for (name, entries) in named_sets(reader, &mut section, &PREFIX_SETS, Some(folder)) {
        sets.prefixes.insert(name, Arc::new(PrefixSet::new(entries.iter().filter_map(|e| e.prefix(reader)))));
    }
    for (name, entries) in named_sets(reader, &mut section, &AS_SETS, None) {
        let ranges: Vec<_> = entries.iter().filter_map(|entry| as_range(reader, &entry.item)).collect();
        sets.numbers.insert(name, Arc::new(NumberSet::new(ranges)));
    }
    for (name, entries) in named_sets(reader, &mut section, &AS_PATH_SETS, None) {
        let patterns = entries.iter().filter_map(|entry| as_path(reader, &entry.item)).collect();
        sets.paths.insert(name, patterns);
    }
    for (name, entries) in named_sets(reader, &mut section, &COMMUNITY_SETS, None) {
        let patterns = entries.iter().filter_map(|entry| community(reader, &entry.item)).collect();
        sets.communities.insert(name, patterns);
    }
    if let Some(item) = section.take(&policy_rules::RULES) {
        policies.library = policy_rules::read(reader, &item, &sets, groups);
    }
    policies.tests = section.take(&policy_test::TEST).map(|item| reader.list(&item)).unwrap_or_default();
    section.finish(reader);
    policies
}

/// An entry of a set, from the configuration or from a file.
struct SetEntry<'a> {
    item: Item<'a>,
    from_file: Option<PrefixEntry>,
}

impl SetEntry<'_> {
    fn prefix(&self, reader: &mut Reader) -> Option<PrefixEntry> {
        self.from_file.or_else(|| prefix_entry(reader, &self.item))
    }
}

/// The sets of one kind with their entries; `folder` is set if files are allowed.
fn named_sets<'a>(
    reader: &mut Reader,
    section: &mut Section<'a>,
    key: &'static Key<Sub>,
    folder: Option<&Path>,
) -> Vec<(String, Vec<SetEntry<'a>>)> {
    let (Some(item), Some(table)) = (section.take(key), key.table()) else { return Vec::new() };
    let Some(names) = reader.names(&item) else { return Vec::new() };
    let mut sets = Vec::new();
    for (span, item) in names {
        check_name(reader, item.key, &span);
        let mut entries = Vec::new();
        if let DeValue::Table(_) = item.value {
            let title = format!("[policy.{}.{}]", key.name(), item.key);
            let Some(mut set) = reader.section_called(&item, table, title) else { continue };
            let listed = set.take(&ENTRIES);
            let files = folder.and_then(|_| set.take(&FILES));
            if let (None, None) = (&listed, &files) {
                let expected = if folder.is_some() { "`entries` or `files`" } else { "`entries`" };
                reader.error(ErrorKind::MissingKey, &set.span.clone(), "a set without entries", expected);
            }
            entries.extend(listed.iter().flat_map(|item| reader.list(item)).map(SetEntry::from));
            if let (Some(files), Some(folder)) = (files, folder) {
                for file in reader.list(&files) {
                    read_prefix_file(reader, &file, folder, &mut entries);
                }
            }
            set.finish(reader);
        } else {
            entries.extend(reader.list(&item).into_iter().map(SetEntry::from));
        }
        if entries.len() > ENTRIES_MAX {
            let expected = format!("at most {ENTRIES_MAX}");
            reader.error(
                ErrorKind::TooMany,
                &span,
                format!("set `{}` has too many entries", item.key),
                expected,
            );
            entries.clear();
        }
        sets.push((item.key.to_owned(), entries));
    }
    sets
}

impl<'a> From<Item<'a>> for SetEntry<'a> {
    fn from(item: Item<'a>) -> Self {
        Self { item, from_file: None }
    }
}

/// Reads a file with one entry per line; `#` begins a comment.
fn read_prefix_file<'a>(
    reader: &mut Reader,
    item: &Item<'a>,
    folder: &Path,
    entries: &mut Vec<SetEntry<'a>>,
) {
    let Some(name) = reader.string(item, "the path of a file with prefixes") else { return };
    let path = folder.join(name);
    reader.files.read.insert(path.clone());
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(why) => {
            let finding =
                reader.error(ErrorKind::File, &item.span, why.to_string(), "a readable file of prefixes");
            finding.help = Some("paths are relative to the configuration".to_owned());
            return;
        }
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        match line.parse() {
            Ok(entry) => entries.push(SetEntry { item: item.clone(), from_file: Some(entry) }),
            Err(error) => {
                let message = format!("line {} of {name}: {error}", number + 1);
                reader.error(ErrorKind::Syntax, &item.span, message, "a file of prefixes, one a line");
                return;
            }
        }
    }
}
