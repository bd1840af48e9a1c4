//! `[policy]`: sets, rules and their tests. What they mean is in `docs/policy.md`.
//!
//! ```toml
//! [policy.prefix_sets.customers]
//! entries = ["198.18.0.0/15 le 24", "2001:db8::/32 ge 48 le 48"]
//! files = ["customers.txt"]            # more entries, one a line; relative to this file
//!
//! [policy.as_sets]                     # a set that has entries only can be written in one line
//! transits = [64496, "64500-64510"]
//! [policy.as_path_sets]
//! long = ["^64496_.*_64500$"]
//! [policy.community_sets]
//! blackholes = ["blackhole", "64500:666", "64500:666:*"]
//!
//! [[policy.rules.customers-in]]        # see `policy_rules`
//! [[policy.test]]                      # see `policy_test`
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use thalweg_bgp::policy::{
    AsPathPattern, CommunityPattern, CommunitySet, NumberSet, PrefixEntry, PrefixSet, RuleLibrary,
    community_names,
};
use toml::de::DeValue;

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::reader::{Item, Reader, Section};
use crate::{policy_rules, read_text};

/// Entries of one set at most: several times the Internet's table.
const ENTRIES_MAX: usize = 4 << 20;
const NAME_MAX: usize = 64;
/// AS numbers and ranges of them.
const AS_MAX: u64 = u32::MAX as u64;

/// The sets that rules refer to by name. One that has mistakes is there and empty.
#[derive(Default)]
pub(crate) struct Sets {
    prefixes: BTreeMap<String, Arc<PrefixSet>>,
    numbers: BTreeMap<String, Arc<NumberSet>>,
    paths: BTreeMap<String, Arc<[AsPathPattern]>>,
    communities: BTreeMap<String, Arc<[CommunityPattern]>>,
}

/// What `[policy]` says.
#[derive(Default)]
pub(crate) struct Policies<'a> {
    pub(crate) library: RuleLibrary,
    /// Tests, to be read when neighbors are known.
    pub(crate) tests: Vec<Item<'a>>,
}

/// Reads `[policy]` but for its tests. `groups` are those that neighbor patterns may name.
pub(crate) fn read<'a>(
    reader: &mut Reader,
    root: &mut Section<'a>,
    folder: &Path,
    groups: &policy_rules::Groups,
) -> Policies<'a> {
    let mut policies = Policies::default();
    let Some(item) = root.take("policy") else { return policies };
    let Some(mut section) = reader.section(&item, "[policy]".to_owned()) else { return policies };
    let mut sets = Sets::default();
    for (name, entries) in named_sets(reader, &mut section, "prefix_sets", Some(folder)) {
        sets.prefixes.insert(name, Arc::new(PrefixSet::new(entries.iter().filter_map(|e| e.prefix(reader)))));
    }
    for (name, entries) in named_sets(reader, &mut section, "as_sets", None) {
        let ranges: Vec<_> = entries.iter().filter_map(|entry| as_range(reader, &entry.item)).collect();
        sets.numbers.insert(name, Arc::new(NumberSet::new(ranges)));
    }
    for (name, entries) in named_sets(reader, &mut section, "as_path_sets", None) {
        let patterns = entries.iter().filter_map(|entry| as_path(reader, &entry.item)).collect();
        sets.paths.insert(name, patterns);
    }
    for (name, entries) in named_sets(reader, &mut section, "community_sets", None) {
        let patterns = entries.iter().filter_map(|entry| community(reader, &entry.item)).collect();
        sets.communities.insert(name, patterns);
    }
    if let Some(item) = section.take("rules") {
        policies.library = policy_rules::read(reader, &item, &sets, groups);
    }
    policies.tests = section.take("test").map(|item| reader.list(&item)).unwrap_or_default();
    section.finish(reader);
    policies
}

/// An entry of a set, of the configuration or (`Err`: the place of the file's name) of a file.
struct SetEntry<'a> {
    item: Item<'a>,
    from_file: Option<PrefixEntry>,
}

impl SetEntry<'_> {
    fn prefix(&self, reader: &mut Reader) -> Option<PrefixEntry> {
        self.from_file.or_else(|| prefix_entry(reader, &self.item))
    }
}

/// The sets of one kind with their entries; `folder` where files are allowed.
fn named_sets<'a>(
    reader: &mut Reader,
    section: &mut Section<'a>,
    kind: &'static str,
    folder: Option<&Path>,
) -> Vec<(String, Vec<SetEntry<'a>>)> {
    let Some(item) = section.take(kind) else { return Vec::new() };
    let Some(section) = reader.section(&item, format!("[policy.{kind}]")) else { return Vec::new() };
    let mut sets = Vec::new();
    for (span, item) in section.into_names() {
        check_name(reader, item.key, &span);
        let mut entries = Vec::new();
        if let DeValue::Table(_) = item.value {
            let Some(mut set) = reader.section(&item, format!("[policy.{kind}.{}]", item.key)) else {
                continue;
            };
            let listed = set.take("entries");
            let files = folder.and_then(|_| set.take("files"));
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

/// One entry a line, `#` begins a comment.
fn read_prefix_file<'a>(
    reader: &mut Reader,
    item: &Item<'a>,
    folder: &Path,
    entries: &mut Vec<SetEntry<'a>>,
) {
    let Some(name) = reader.string(item, "the path of a file with prefixes") else { return };
    let text = match read_text(&folder.join(name)) {
        Ok(text) => text,
        Err(what) => {
            let finding = reader.error(ErrorKind::File, &item.span, what, "a readable file of prefixes");
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

/// Names of sets, rule sets and groups begin with a letter, so that they cannot be taken for values.
pub(crate) fn check_name(reader: &mut Reader, name: &str, span: &Range<usize>) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = name.len() <= NAME_MAX && name.starts_with(|c: char| c.is_ascii_alphabetic());
    let fits = fits && name.chars().all(is_allowed);
    if !fits {
        let expected = "up to 64 letters, digits, `_`, `-` and `.`, beginning with a letter";
        reader.error(ErrorKind::BadValue, span, format!("bad name `{name}`"), expected);
    }
    fits
}

/// A part of a string's text as a place in the file; the whole string if it was written with escapes.
pub(crate) fn inside(reader: &Reader, item: &Item<'_>, text: &str, part: &Range<usize>) -> Range<usize> {
    let raw = reader.source.raw(item.span.clone());
    let plain = raw.len() == text.len() + 2 && raw.get(1..raw.len() - 1) == Some(text);
    if plain {
        let start = item.span.start + 1;
        // An empty part is shown as the character that follows, or the closing quote.
        return start + part.start..start + part.end.max(part.start + 1);
    }
    item.span.clone()
}

/// `10.0.0.0/8 ge 16 le 24`
fn prefix_entry(reader: &mut Reader, item: &Item<'_>) -> Option<PrefixEntry> {
    const EXPECTED: &str = "a prefix, such as \"10.0.0.0/8\" or \"10.0.0.0/8 ge 16 le 24\"";
    let text = reader.string(item, EXPECTED)?;
    match text.parse::<PrefixEntry>() {
        Ok(entry) => Some(entry),
        Err(error) => {
            let span = inside(reader, item, text, &error.at);
            reader.error(ErrorKind::BadValue, &span, error.to_string(), EXPECTED);
            None
        }
    }
}

/// `64500` or `"64500-64510"`
pub(crate) fn as_range(reader: &mut Reader, item: &Item<'_>) -> Option<std::ops::RangeInclusive<u32>> {
    const EXPECTED: &str = "an AS number or a range, such as \"64512-65534\"";
    let DeValue::String(text) = item.value else {
        let number = reader.integer(item, 0..=AS_MAX, "or a range, such as \"64512-65534\"")? as u32;
        return Some(number..=number);
    };
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Some(first..=last),
        _ => {
            reader.error(ErrorKind::BadValue, &item.span, format!("bad AS number `{text}`"), EXPECTED);
            None
        }
    }
}

fn as_path(reader: &mut Reader, item: &Item<'_>) -> Option<AsPathPattern> {
    const EXPECTED: &str = "an AS-path pattern, such as \"^64500_\"";
    let text = reader.string(item, EXPECTED)?;
    match AsPathPattern::new(text) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let span = inside(reader, item, text, &error.at);
            let finding = reader.error(ErrorKind::BadValue, &span, error.problem.to_string(), EXPECTED);
            finding.help = error.problem.help().map(str::to_owned);
            None
        }
    }
}

/// What a community is expected to look like.
pub(crate) const COMMUNITY: &str =
    "a community, such as \"64500:100\", \"rt:64500:1\", \"64500:1:2\" or \"no-export\"";

fn community(reader: &mut Reader, item: &Item<'_>) -> Option<CommunityPattern> {
    community_value(reader, item, COMMUNITY)
}

/// A community or a pattern of communities, as `T` wants it.
pub(crate) fn community_value<T>(reader: &mut Reader, item: &Item<'_>, expected: &str) -> Option<T>
where
    T: std::str::FromStr<Err = thalweg_bgp::policy::CommunityError>,
{
    let text = reader.string(item, expected)?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let span = inside(reader, item, text, &error.at);
            let message = format!("bad community `{text}`: {error}");
            let finding = reader.error(ErrorKind::BadValue, &span, message, expected);
            finding.help = nearest(text, community_names()).map(|name| format!("did you mean `{name}`?"));
            None
        }
    }
}

impl Sets {
    /// A set of prefixes: by name, or entries that stand here.
    pub(crate) fn prefixes(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Arc<PrefixSet>> {
        if let DeValue::String(text) = item.value
            && is_name(text)
        {
            return named(reader, item, text, &self.prefixes, "prefix set", "[policy.prefix_sets]");
        }
        let entries = reader.filled_list(item);
        let entries: Vec<_> = entries.iter().filter_map(|entry| prefix_entry(reader, entry)).collect();
        Some(Arc::new(PrefixSet::new(entries)))
    }

    /// AS numbers: ranges and names of sets.
    pub(crate) fn numbers(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Arc<NumberSet>> {
        if let DeValue::String(text) = item.value
            && is_name(text)
        {
            return named(reader, item, text, &self.numbers, "AS set", "[policy.as_sets]");
        }
        let mut ranges = Vec::new();
        for entry in reader.filled_list(item) {
            match entry.value {
                DeValue::String(text) if is_name(text) => {
                    let set = named(reader, &entry, text, &self.numbers, "AS set", "[policy.as_sets]")?;
                    ranges.extend(set.ranges().iter().map(|(first, last)| *first..=*last));
                }
                _ => ranges.push(as_range(reader, &entry)?),
            }
        }
        Some(Arc::new(NumberSet::new(ranges)))
    }

    /// AS-path patterns and names of sets of them.
    pub(crate) fn paths(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Arc<[AsPathPattern]>> {
        let mut patterns = Vec::new();
        for entry in reader.filled_list(item) {
            match entry.value {
                DeValue::String(text) if is_name(text) => {
                    let set =
                        named(reader, &entry, text, &self.paths, "AS-path set", "[policy.as_path_sets]")?;
                    patterns.extend(set.iter().cloned());
                }
                _ => patterns.push(as_path(reader, &entry)?),
            }
        }
        Some(patterns.into())
    }

    /// Communities, patterns of them and names of sets.
    pub(crate) fn communities(&self, reader: &mut Reader, item: &Item<'_>) -> Option<Arc<CommunitySet>> {
        let mut patterns = Vec::new();
        for entry in reader.filled_list(item) {
            match entry.value {
                DeValue::String(text) if is_name(text) && text.parse::<CommunityPattern>().is_err() => {
                    let sets = &self.communities;
                    let names =
                        sets.keys().map(String::as_str).chain(community_names().map(|name| name as &str));
                    let Some(set) = sets.get(&**text) else {
                        unknown(reader, &entry, text, "community set", "[policy.community_sets]", names);
                        return None;
                    };
                    patterns.extend(set.iter().copied());
                }
                _ => patterns.push(community(reader, &entry)?),
            }
        }
        Some(Arc::new(CommunitySet::new(patterns)))
    }
}

/// Names begin with a letter; prefixes, patterns, numbers and most communities do not (IPv6 prefixes that do
/// have a `:`).
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.contains(':')
}

fn named<T: Clone>(
    reader: &mut Reader,
    item: &Item<'_>,
    name: &str,
    sets: &BTreeMap<String, T>,
    what: &str,
    place: &str,
) -> Option<T> {
    if let Some(set) = sets.get(name) {
        return Some(set.clone());
    }
    unknown(reader, item, name, what, place, sets.keys().map(String::as_str));
    None
}

/// Says that nothing has this name.
pub(crate) fn unknown<'n>(
    reader: &mut Reader,
    item: &Item<'_>,
    name: &str,
    what: &str,
    place: &str,
    names: impl Iterator<Item = &'n str>,
) {
    const SHOWN: usize = 8;
    let names: Vec<&str> = names.collect();
    let expected = match names.len() {
        0 => format!("a name that {place} defines"),
        n if n <= SHOWN => one_of(names.iter().copied()),
        _ => format!("one of {place}"),
    };
    let message = format!("there is no {what} `{name}`");
    let finding = reader.error(ErrorKind::UnknownName, &item.span, message, expected);
    finding.help = nearest(name, names).map(|name| format!("did you mean `{name}`?"));
}
