//! Sets of prefixes with `ge` and `le`: 300,000 entries load in milliseconds and match in a probe or two.
//!
//! An entry is a prefix and a range of lengths. A route matches if the entry's prefix covers it and its length is
//! in the range. Each family has a hash table from prefix to the lengths that it admits (a bit for each). For each
//! length of a route, a list has the lengths of the entries that may admit it. So a /24 route costs one probe in a
//! set of exact entries, and routes of a length that no entry admits cost none. An IPv4 entry takes about 14 bytes,
//! an IPv6 entry about 55.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use thalweg_base::{Address, IpPrefix, Prefix, PrefixTextError};

/// An entry: prefixes that `prefix` covers and whose length is from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixEntry {
    pub prefix: IpPrefix,
    /// At least the prefix's own length.
    pub min: u8,
    /// At least `min`, at most the family's number of bits.
    pub max: u8,
}

impl PrefixEntry {
    /// Matches only the prefix itself.
    pub fn exact(prefix: IpPrefix) -> Self {
        Self { prefix, min: prefix.length(), max: prefix.length() }
    }

    /// Matches the prefix and everything inside it.
    pub fn or_longer(prefix: IpPrefix) -> Self {
        Self { prefix, min: prefix.length(), max: family_bits(prefix) }
    }

    /// Whether the entry matches this prefix.
    pub fn contains(&self, prefix: IpPrefix) -> bool {
        let covers = match (self.prefix, prefix) {
            (IpPrefix::V4(outer), IpPrefix::V4(inner)) => outer.covers(inner),
            (IpPrefix::V6(outer), IpPrefix::V6(inner)) => outer.covers(inner),
            _ => false,
        };
        covers && (self.min..=self.max).contains(&prefix.length())
    }
}

impl fmt::Display for PrefixEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, bits) = (self.prefix.length(), family_bits(self.prefix));
        write!(f, "{}", self.prefix)?;
        if self.min != length || (self.max == bits && self.max != self.min) {
            write!(f, " ge {}", self.min)?;
        }
        if self.max != self.min && self.max != bits || self.min != length && self.max == self.min {
            write!(f, " le {}", self.max)?;
        }
        Ok(())
    }
}

fn family_bits(prefix: IpPrefix) -> u8 {
    match prefix {
        IpPrefix::V4(_) => 32,
        IpPrefix::V6(_) => 128,
    }
}

/// The kinds of errors in the text of an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixEntryProblem {
    /// The prefix is malformed.
    #[error(transparent)]
    Prefix(PrefixTextError),
    /// Something other than `ge N` or `le N` follows, or one of them twice.
    #[error("a prefix may be followed by `ge N` and `le N`, each once")]
    Shape,
    #[error("length {given} is shorter than the prefix ({length}): nothing can match")]
    BelowLength {
        given: u8,
        /// The prefix's length.
        length: u8,
    },
    #[error("`le {le}` is below `ge {ge}`: nothing can match")]
    Reversed {
        /// The lower limit.
        ge: u8,
        le: u8,
    },
    #[error("length {given} is above {bits}")]
    AboveFamily {
        given: u8,
        /// The family's number of bits.
        bits: u8,
    },
}

/// An error in the text of an entry, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct PrefixEntryError {
    /// Byte offsets in the text.
    pub at: std::ops::Range<usize>,
    pub problem: PrefixEntryProblem,
}

impl FromStr for PrefixEntry {
    type Err = PrefixEntryError;

    /// Parses `10.0.0.0/8`, `10.0.0.0/8 le 24`, `10.0.0.0/8 ge 16`, `10.0.0.0/8 ge 16 le 24`.
    fn from_str(text: &str) -> Result<Self, PrefixEntryError> {
        let mut words = words(text);
        let (at, first) = words.next().unwrap_or((0..text.len(), ""));
        let wrong = |at, problem| Err(PrefixEntryError { at, problem });
        let prefix: IpPrefix = match first.parse() {
            Ok(prefix) => prefix,
            Err(error) => return wrong(at, PrefixEntryProblem::Prefix(error)),
        };
        let (length, bits) = (prefix.length(), family_bits(prefix));
        let (mut ge, mut le) = (None, None);
        while let Some((at, word)) = words.next() {
            let limit = match word {
                "ge" if ge.is_none() => &mut ge,
                "le" if le.is_none() => &mut le,
                _ => return wrong(at, PrefixEntryProblem::Shape),
            };
            let Some((at, number)) = words.next() else { return wrong(at, PrefixEntryProblem::Shape) };
            let Ok(given) = number.parse::<u8>() else { return wrong(at, PrefixEntryProblem::Shape) };
            if given < length {
                return wrong(at, PrefixEntryProblem::BelowLength { given, length });
            }
            if given > bits {
                return wrong(at, PrefixEntryProblem::AboveFamily { given, bits });
            }
            *limit = Some((given, at));
        }
        let entry = match (ge, le) {
            (None, None) => Self::exact(prefix),
            (Some((ge, _)), None) => Self { prefix, min: ge, max: bits },
            (None, Some((le, _))) => Self { prefix, min: length, max: le },
            (Some((ge, _)), Some((le, at))) if le < ge => {
                return wrong(at, PrefixEntryProblem::Reversed { ge, le });
            }
            (Some((ge, _)), Some((le, _))) => Self { prefix, min: ge, max: le },
        };
        Ok(entry)
    }
}

/// Splits at blanks; returns the words with their places.
pub(super) fn words(text: &str) -> impl Iterator<Item = (std::ops::Range<usize>, &str)> {
    text.split([' ', '\t'])
        .scan(0, |next, word| {
            let start = *next;
            *next = start + word.len() + 1;
            Some((start..start + word.len(), word))
        })
        .filter(|(_, word)| !word.is_empty())
}

/// A set of prefixes of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixSet {
    v4: Table<u32>,
    v6: Table<u128>,
    entries: usize,
}

impl PrefixSet {
    /// Makes a set of these entries; duplicates count once.
    pub fn new(entries: impl IntoIterator<Item = PrefixEntry>) -> Self {
        let mut set = Self::default();
        for entry in entries {
            set.entries += 1;
            match entry.prefix {
                IpPrefix::V4(prefix) => set.v4.insert(prefix, entry.min, entry.max),
                IpPrefix::V6(prefix) => set.v6.insert(prefix, entry.min, entry.max),
            }
        }
        set.v4.finish();
        set.v6.finish();
        set
    }

    /// Whether an entry matches the prefix.
    #[inline]
    pub fn contains(&self, prefix: IpPrefix) -> bool {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.contains(prefix),
            IpPrefix::V6(prefix) => self.v6.contains(prefix),
        }
    }

    /// Whether the prefix of an entry contains the address, whatever lengths it admits.
    pub fn covers_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.covers(u32::from(address)),
            IpAddr::V6(address) => self.v6.covers(u128::from(address)),
        }
    }

    /// The number of entries, without duplicates.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether the set has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

/// A bit for each length from 1 on: `u32` for IPv4, `u128` for IPv6. Length 0 is stored separately.
trait Lengths: Address + Default {
    /// The bits of the lengths from `min` to `max`, without 0.
    fn range(min: u8, max: u8) -> Self;
    /// Whether `length`, at least 1, is included.
    fn has(self, length: u8) -> bool;
    fn or(self, other: Self) -> Self;
}

macro_rules! lengths {
    ($number:ty) => {
        impl Lengths for $number {
            #[inline]
            fn range(min: u8, max: u8) -> Self {
                let upto = |last: u8| match u32::from(last) {
                    0 => 0,
                    n => <$number>::MAX >> (<$number>::BITS - n.min(<$number>::BITS)),
                };
                upto(max) & !upto(min.max(1) - 1)
            }

            #[inline]
            fn has(self, length: u8) -> bool {
                self >> (length - 1) & 1 == 1
            }

            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }
        }
    };
}

lengths!(u32);
lengths!(u128);

/// The entries of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table<A: Lengths> {
    admitted: HashMap<(A, u8), A, FixedState>,
    /// By a route's length: the lengths of entries that may admit it, longest first.
    probes: Vec<Vec<u8>>,
    lengths: Vec<u8>,
    /// The entry 0/0 admits length 0.
    zero: bool,
}

impl<A: Lengths> Default for Table<A> {
    fn default() -> Self {
        let admitted = HashMap::with_hasher(FixedState::with_seed(0x7468_616c));
        Self { admitted, probes: Vec::new(), lengths: Vec::new(), zero: false }
    }
}

impl<A: Lengths> Table<A> {
    fn insert(&mut self, prefix: Prefix<A>, min: u8, max: u8) {
        self.zero |= min == 0;
        let lengths = self.admitted.entry((prefix.address(), prefix.length())).or_default();
        *lengths = lengths.or(A::range(min, max));
    }

    fn finish(&mut self) {
        self.admitted.shrink_to_fit();
        let mut by_length = [A::default(); 129];
        let mut present = [false; 129];
        for (&(_, length), lengths) in &self.admitted {
            present[usize::from(length)] = true;
            by_length[usize::from(length)] = by_length[usize::from(length)].or(*lengths);
        }
        self.lengths = (0..=A::BITS).rev().filter(|length| present[usize::from(*length)]).collect();
        if self.admitted.is_empty() {
            return;
        }
        self.probes = (0..=A::BITS)
            .map(|wanted| {
                let admits =
                    |entry: &u8| wanted > 0 && *entry <= wanted && by_length[usize::from(*entry)].has(wanted);
                self.lengths.iter().copied().filter(admits).collect()
            })
            .collect();
    }

    #[inline]
    fn contains(&self, prefix: Prefix<A>) -> bool {
        let length = prefix.length();
        if length == 0 {
            return self.zero;
        }
        let Some(probes) = self.probes.get(usize::from(length)) else { return false };
        probes.iter().any(|&entry| {
            let key = (prefix.address().truncate(entry), entry);
            self.admitted.get(&key).is_some_and(|lengths| lengths.has(length))
        })
    }

    fn covers(&self, address: A) -> bool {
        self.lengths.iter().any(|&entry| self.admitted.contains_key(&(address.truncate(entry), entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Entries in a small corner of the address space, so that they meet.
    fn entry() -> impl Strategy<Value = PrefixEntry> {
        (any::<bool>(), 0u8..16, 0u8..=12, 0u8..=12, 0u8..=12).prop_map(|(four, bits, length, a, b)| {
            let prefix = corner(four, bits, length);
            let length = prefix.length();
            let top = family_bits(prefix);
            let (a, b) = (length + a.min(top - length), length + b.min(top - length));
            PrefixEntry { prefix, min: a.min(b), max: a.max(b) }
        })
    }

    fn corner(four: bool, bits: u8, length: u8) -> IpPrefix {
        if four {
            Prefix::new(u32::from(bits) << 28 | u32::from(bits) << 20, length * 2 + length / 3)
                .unwrap()
                .into()
        } else {
            Prefix::new(u128::from(bits) << 124 | u128::from(bits), length * 10 + length / 2).unwrap().into()
        }
    }

    proptest! {
        #[test]
        fn a_set_says_what_its_entries_say(
            entries in prop::collection::vec(entry(), 0..12),
            queries in prop::collection::vec((any::<bool>(), 0u8..16, 0u8..=12), 1..40),
        ) {
            let set = PrefixSet::new(entries.clone());
            for (four, bits, length) in queries {
                let prefix = corner(four, bits, length);
                let expected = entries.iter().any(|entry| entry.contains(prefix));
                prop_assert_eq!(set.contains(prefix), expected, "{}", prefix);
                let covered = entries.iter().any(|entry| PrefixEntry::or_longer(entry.prefix)
                    .contains(match prefix.address() {
                        IpAddr::V4(address) => Prefix::new(u32::from(address), 32).unwrap().into(),
                        IpAddr::V6(address) => Prefix::new(u128::from(address), 128).unwrap().into(),
                    }));
                prop_assert_eq!(set.covers_address(prefix.address()), covered);
            }
        }

        #[test]
        fn text_and_entry_say_the_same(entry in entry()) {
            prop_assert_eq!(entry.to_string().parse::<PrefixEntry>(), Ok(entry));
        }
    }

    #[test]
    fn the_ends_of_the_families() {
        let set = PrefixSet::new(
            ["0.0.0.0/0", "::/0 le 128", "192.0.2.1/32", "10.0.0.0/8 ge 32"]
                .map(|text| text.parse().unwrap()),
        );
        let has = |text: &str| set.contains(text.parse().unwrap());
        assert!(
            has("0.0.0.0/0") && has("::/0") && has("::1/128") && has("192.0.2.1/32") && has("10.1.2.3/32")
        );
        assert!(!has("128.0.0.0/1") && !has("192.0.2.0/32") && !has("10.0.0.0/31") && !has("10.0.0.0/8"));
    }

    #[test]
    fn wrong_entries_are_named_where_they_are_wrong() {
        let problem = |text: &str| text.parse::<PrefixEntry>().map_err(|e| (e.at, e.problem));
        use PrefixEntryProblem::*;
        assert_eq!(problem("10.0.0.0/8 ge 7"), Err((14..15, BelowLength { given: 7, length: 8 })));
        assert_eq!(problem("10.0.0.0/8 ge 24 le 16"), Err((20..22, Reversed { ge: 24, le: 16 })));
        assert_eq!(problem("10.0.0.0/8 le 33"), Err((14..16, AboveFamily { given: 33, bits: 32 })));
        assert_eq!(problem("10.0.0.0/8 lt 24"), Err((11..13, Shape)));
        assert_eq!(problem("10.0.0.0/8 le"), Err((11..13, Shape)));
        assert_eq!(problem("10.0.0.0"), Err((0..8, Prefix(PrefixTextError::Shape))));
        assert_eq!(problem(""), Err((0..0, Prefix(PrefixTextError::Shape))));
    }
}
