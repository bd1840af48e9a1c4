//! Sets of policies: prefixes, AS numbers, AS paths and communities, by name or inline.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use thalweg_bgp::policy::{
    AsPathPattern, CommunityPattern, CommunitySet, NumberSet, PrefixEntry, PrefixSet, community_names,
};
use toml::de::DeValue;

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::key::U32;
use crate::reader::{Item, Reader};

const NAME_MAX: usize = 64;

/// The sets that rules refer to by name. A set with errors exists but is empty.
#[derive(Default)]
pub(crate) struct Sets {
    pub(crate) prefixes: BTreeMap<String, Arc<PrefixSet>>,
    pub(crate) numbers: BTreeMap<String, Arc<NumberSet>>,
    pub(crate) paths: BTreeMap<String, Arc<[AsPathPattern]>>,
    pub(crate) communities: BTreeMap<String, Arc<[CommunityPattern]>>,
}

/// Names of sets, rule sets and groups begin with a letter, which distinguishes them from values.
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

/// The position of a part of a string; the whole string if it was written with escapes.
pub(crate) fn inside(reader: &Reader, item: &Item<'_>, text: &str, part: &Range<usize>) -> Range<usize> {
    let raw = reader.source.raw(item.span.clone());
    let plain = raw.len() == text.len() + 2 && raw.get(1..raw.len() - 1) == Some(text);
    if plain {
        let start = item.span.start + 1;
        // An empty part is marked at the following character, or at the closing quote.
        return start + part.start..start + part.end.max(part.start + 1);
    }
    item.span.clone()
}

/// `10.0.0.0/8 ge 16 le 24`
pub(crate) fn prefix_entry(reader: &mut Reader, item: &Item<'_>) -> Option<PrefixEntry> {
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
        let number: u32 = reader.integer(item, 0..=U32, "or a range, such as \"64512-65534\"")?;
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

pub(crate) fn as_path(reader: &mut Reader, item: &Item<'_>) -> Option<AsPathPattern> {
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

/// The expected form of a community.
pub(crate) const COMMUNITY: &str =
    "a community, such as \"64500:100\", \"rt:64500:1\", \"64500:1:2\" or \"no-export\"";

pub(crate) fn community(reader: &mut Reader, item: &Item<'_>) -> Option<CommunityPattern> {
    community_value(reader, item, COMMUNITY)
}

/// A community or a pattern of communities, parsed to `T`.
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
    /// A set of prefixes: by name, or inline entries.
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

    /// Communities, patterns of them, and names of sets.
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

/// Reports an undefined name.
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
