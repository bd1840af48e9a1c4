//! Parses and matches communities of all three kinds: text forms, patterns, and sets of patterns.
//!
//! ```text
//! standard (RFC 1997)   64500:100   no-export   blackhole          pattern: 64500:*  *:666  64500:100-199
//! extended (RFC 4360)   rt:64500:100  ro:192.0.2.1:7  0x030c000000000064   rt:*:100  rt:64500:*  0x030c*
//! large    (RFC 8092)   64500:1:2                                  pattern: 64500:*:1-9
//! ```
//!
//! A set keeps exact communities in sorted arrays and tries its patterns one by one.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::str::FromStr;

use thalweg_wire::bgp::{Attributes, attribute, community};

/// A community of one of the three kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Community {
    Standard(u32),
    Extended(u64),
    Large([u32; 3]),
}

/// Names of well-known standard communities (IANA's registry).
const NAMES: &[(&str, u32)] = &[
    ("no-export", community::NO_EXPORT),
    ("no-advertise", community::NO_ADVERTISE),
    ("no-export-subconfed", community::NO_EXPORT_SUBCONFED),
    ("no-peer", 0xffff_ff04),
    ("graceful-shutdown", community::GRACEFUL_SHUTDOWN),
    ("accept-own", 0xffff_0001),
    ("llgr-stale", 0xffff_0006),
    ("no-llgr", 0xffff_0007),
    ("blackhole", community::BLACKHOLE),
];

/// Route target and route origin (RFC 4360): names and sub-types.
const SUB_TYPES: &[(&str, u8)] = &[("rt", 2), ("ro", 3), ("soo", 3)];

const TWO_OCTET_AS: u8 = 0x00;
const IPV4_ADDRESS: u8 = 0x01;
const FOUR_OCTET_AS: u8 = 0x02;

/// The names of standard communities.
pub fn community_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// First and last number.
type Span = (u32, u32);

const ANY: Span = (0, u32::MAX);

#[inline]
fn within(number: u32, span: Span) -> bool {
    span.0 <= number && number <= span.1
}

/// A pattern that matches communities of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommunityPattern {
    /// Standard, with each half in a range.
    Standard([Span; 2]),
    /// Extended with this sub-type, and with administrator and number in a range.
    Administered {
        /// A bit for each type: two-octet AS, IPv4 address, four-octet AS.
        types: u8,
        sub_type: u8,
        /// The AS number or the address.
        administrator: Span,
        /// The number that the administrator assigned.
        number: Span,
    },
    /// Extended, with `value` in the bits under `mask`.
    Masked {
        /// The bits that count.
        mask: u64,
        value: u64,
    },
    /// Large, with each part in a range.
    Large([Span; 3]),
}

impl CommunityPattern {
    /// Whether the pattern matches the community.
    pub fn matches(&self, community: Community) -> bool {
        match (self, community) {
            (Self::Standard([high, low]), Community::Standard(c)) => {
                within(c >> 16, *high) && within(c & 0xffff, *low)
            }
            (Self::Administered { types, sub_type, administrator, number }, Community::Extended(c)) => {
                let [kind, sub, ..] = c.to_be_bytes();
                let (who, what) = match kind {
                    TWO_OCTET_AS => ((c >> 32) as u32 & 0xffff, c as u32),
                    IPV4_ADDRESS | FOUR_OCTET_AS => ((c >> 16) as u32, c as u32 & 0xffff),
                    _ => return false,
                };
                types >> kind & 1 == 1
                    && sub == *sub_type
                    && within(who, *administrator)
                    && within(what, *number)
            }
            (Self::Masked { mask, value }, Community::Extended(c)) => c & mask == *value,
            (Self::Large(spans), Community::Large(parts)) => {
                parts.iter().zip(spans).all(|(part, span)| within(*part, *span))
            }
            _ => false,
        }
    }

    /// The community that it matches, if it matches only one.
    pub fn exact(&self) -> Option<Community> {
        let one = |span: Span| (span.0 == span.1).then_some(span.0);
        match self {
            Self::Standard([high, low]) => Some(Community::Standard(one(*high)? << 16 | one(*low)?)),
            Self::Masked { mask: u64::MAX, value } => Some(Community::Extended(*value)),
            Self::Masked { .. } => None,
            Self::Large([a, b, c]) => Some(Community::Large([one(*a)?, one(*b)?, one(*c)?])),
            Self::Administered { types, sub_type, administrator, number } => {
                let (who, what) = (u64::from(one(*administrator)?), u64::from(one(*number)?));
                // An AS number of two bytes takes the two-octet form; the four-octet form means the same and is
                // rare.
                let (kind, shift) = match types {
                    0b001 | 0b101 => (TWO_OCTET_AS, 32),
                    0b010 => (IPV4_ADDRESS, 16),
                    0b100 => (FOUR_OCTET_AS, 16),
                    _ => return None,
                };
                Some(Community::Extended(
                    u64::from(kind) << 56 | u64::from(*sub_type) << 48 | who << shift | what,
                ))
            }
        }
    }

    fn is_exact(&self) -> bool {
        let both_forms = matches!(self, Self::Administered { types, .. } if types.count_ones() > 1);
        !both_forms && self.exact().is_some()
    }
}

/// An error in the text of a community, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct CommunityError {
    /// Byte offsets in the text.
    pub at: Range<usize>,
    pub problem: CommunityProblem,
}

/// The kinds of errors in the text of a community.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommunityProblem {
    #[error("not a community")]
    Shape,
    #[error("no community has this name")]
    Name,
    /// The number is too large for this part.
    #[error("the number is above {max}")]
    TooLarge {
        /// The largest.
        max: u32,
    },
    #[error("not a number, a range or `*`")]
    Number,
    #[error("the range ends before it begins")]
    Reversed,
    #[error("a pattern where one community is needed")]
    NotExact,
}

fn wrong<T>(at: Range<usize>, problem: CommunityProblem) -> Result<T, CommunityError> {
    Err(CommunityError { at, problem })
}

impl FromStr for CommunityPattern {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        if let Some((_, community)) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            let (high, low) = (community >> 16, community & 0xffff);
            return Ok(Self::Standard([(high, high), (low, low)]));
        }
        if let Some(digits) = text.strip_prefix("0x") {
            return masked(digits);
        }
        let mut parts = Parts { text, at: 0 };
        let (at, first) = parts.next().unwrap_or((0..0, ""));
        if first.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let Some((_, sub_type)) = SUB_TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(first))
            else {
                return wrong(at, CommunityProblem::Name);
            };
            return administered(*sub_type, parts);
        }
        let count = text.split(':').count();
        let max = match count {
            2 => 0xffff,
            3 => u32::MAX,
            _ => return wrong(0..text.len(), CommunityProblem::Shape),
        };
        let mut spans = [ANY; 3];
        for (span, (at, part)) in spans.iter_mut().zip(Parts { text, at: 0 }) {
            *span = number_span(at, part, max)?;
        }
        let [a, b, c] = spans;
        Ok(if count == 2 { Self::Standard([a, b]) } else { Self::Large([a, b, c]) })
    }
}

impl FromStr for Community {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        let pattern: CommunityPattern = text.parse()?;
        pattern.exact().ok_or(CommunityError { at: 0..text.len(), problem: CommunityProblem::NotExact })
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Standard(c) => match NAMES.iter().find(|(_, known)| *known == c) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{}:{}", c >> 16, c & 0xffff),
            },
            Self::Large([a, b, c]) => write!(f, "{a}:{b}:{c}"),
            Self::Extended(c) => {
                let [kind, sub, ..] = c.to_be_bytes();
                let (who, what) = ((c >> 16) as u32, c as u32 & 0xffff);
                match SUB_TYPES.iter().find(|(_, sub_type)| *sub_type == sub).map(|(name, _)| name) {
                    Some(name) if kind == TWO_OCTET_AS => {
                        write!(f, "{name}:{}:{}", c >> 32 & 0xffff, c as u32)
                    }
                    Some(name) if kind == IPV4_ADDRESS => write!(f, "{name}:{}:{what}", Ipv4Addr::from(who)),
                    // The four-octet form of a small AS number is another community than the two-octet form.
                    Some(name) if kind == FOUR_OCTET_AS && who > 0xffff => write!(f, "{name}:{who}:{what}"),
                    _ => write!(f, "0x{c:016x}"),
                }
            }
        }
    }
}

/// The parts between colons, with their places.
struct Parts<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = (Range<usize>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..)?;
        let length = rest.find(':').unwrap_or(rest.len());
        let start = self.at;
        self.at = start + length + 1;
        Some((start..start + length, &rest[..length]))
    }
}

/// Parses a number up to `max`, `*`, or a range.
fn number_span(at: Range<usize>, text: &str, max: u32) -> Result<Span, CommunityError> {
    if text == "*" {
        return Ok((0, max));
    }
    let number = |text: &str| match text {
        _ if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) => {
            wrong(at.clone(), CommunityProblem::Number)
        }
        _ => match text.parse::<u32>() {
            Ok(number) if number <= max => Ok(number),
            _ => wrong(at.clone(), CommunityProblem::TooLarge { max }),
        },
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let span = (number(first)?, number(last)?);
    if span.0 > span.1 { wrong(at, CommunityProblem::Reversed) } else { Ok(span) }
}

/// Parses what follows `rt:` or `ro:`.
fn administered(sub_type: u8, mut parts: Parts<'_>) -> Result<CommunityPattern, CommunityError> {
    let whole = 0..parts.text.len();
    let (Some((who_at, who)), Some((what_at, what)), None) = (parts.next(), parts.next(), parts.next())
    else {
        return wrong(whole, CommunityProblem::Shape);
    };
    let (types, administrator, max) = if let Ok(address) = who.parse::<Ipv4Addr>() {
        (0b010, (u32::from(address), u32::from(address)), 0xffff)
    } else if who == "*" {
        (0b111, ANY, u32::MAX)
    } else {
        let span = number_span(who_at, who, u32::MAX)?;
        if span.0 > 0xffff { (0b100, span, 0xffff) } else { (0b101, span, u32::MAX) }
    };
    let number = number_span(what_at, what, max)?;
    // Only the two-octet AS form has room for a number of more than 16 bits.
    let types = if number.0 > 0xffff { types & 0b001 } else { types };
    Ok(CommunityPattern::Administered { types, sub_type, administrator, number })
}

/// Parses 16 hexadecimal digits, or fewer and a `*`.
fn masked(digits: &str) -> Result<CommunityPattern, CommunityError> {
    let at = 0..digits.len() + 2;
    let (digits, open) = match digits.strip_suffix('*') {
        Some(digits) => (digits, true),
        None => (digits, false),
    };
    let fits = digits.len() == 16 || open && digits.len() < 16;
    if !fits || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return wrong(at, CommunityProblem::Shape);
    }
    let shift = 4 * (16 - digits.len() as u32);
    let value = u64::from_str_radix(digits, 16).unwrap_or(0).checked_shl(shift).unwrap_or(0);
    Ok(CommunityPattern::Masked { mask: u64::MAX.checked_shl(shift).unwrap_or(0), value })
}

/// Communities to add, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommunityList {
    pub(super) standard: Vec<u32>,
    pub(super) extended: Vec<u64>,
    pub(super) large: Vec<[u32; 3]>,
}

impl FromIterator<Community> for CommunityList {
    fn from_iter<I: IntoIterator<Item = Community>>(communities: I) -> Self {
        let mut list = Self::default();
        for community in communities {
            match community {
                Community::Standard(c) => list.standard.push(c),
                Community::Extended(c) => list.extended.push(c),
                Community::Large(c) => list.large.push(c),
            }
        }
        list
    }
}

/// Communities of all kinds, and patterns of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommunitySet {
    exact: Box<[Community]>,
    patterns: Box<[CommunityPattern]>,
    has_extended: bool,
    has_large: bool,
    has_standard: bool,
}

impl CommunitySet {
    /// Makes the set of everything that one of the patterns matches.
    pub fn new(patterns: impl IntoIterator<Item = CommunityPattern>) -> Self {
        let (exact, patterns): (Vec<_>, Vec<_>) = patterns.into_iter().partition(CommunityPattern::is_exact);
        let kind_of = |pattern: &CommunityPattern| match pattern {
            CommunityPattern::Standard(_) => 0,
            CommunityPattern::Administered { .. } | CommunityPattern::Masked { .. } => 1,
            CommunityPattern::Large(_) => 2,
        };
        let has = |kind| exact.iter().chain(&patterns).any(|pattern| kind_of(pattern) == kind);
        let (has_standard, has_extended, has_large) = (has(0), has(1), has(2));
        let mut exact: Vec<Community> = exact.iter().filter_map(CommunityPattern::exact).collect();
        exact.sort_unstable();
        exact.dedup();
        Self { exact: exact.into(), patterns: patterns.into(), has_extended, has_large, has_standard }
    }

    /// Whether the set contains the community.
    #[inline]
    pub fn contains(&self, community: Community) -> bool {
        let exact = match &*self.exact {
            [] => false,
            [one] => *one == community,
            many => many.binary_search(&community).is_ok(),
        };
        exact || self.patterns.iter().any(|pattern| pattern.matches(community))
    }

    /// The number of communities and patterns.
    pub fn len(&self) -> usize {
        self.exact.len() + self.patterns.len()
    }

    /// Whether the set has neither communities nor patterns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the route has a community of the set.
    #[inline]
    pub(super) fn any(&self, route: &CommunityViews<'_>) -> bool {
        self.has_standard && route.standard().any(|c| self.contains(c))
            || self.has_extended && route.extended().any(|c| self.contains(c))
            || self.has_large && route.large().any(|c| self.contains(c))
    }

    /// Whether the route has a community for each entry of the set.
    pub(super) fn all(&self, route: &CommunityViews<'_>) -> bool {
        self.exact.iter().all(|wanted| route.all().any(|c| c == *wanted))
            && self.patterns.iter().all(|pattern| route.all().any(|c| pattern.matches(c)))
    }
}

/// The communities of a route, as its attributes encode them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommunityViews<'a> {
    pub(super) standard: &'a [u8],
    pub(super) extended: &'a [u8],
    pub(super) large: &'a [u8],
}

impl<'a> CommunityViews<'a> {
    /// Collects the communities among these attributes.
    #[inline]
    pub(super) fn of(attributes: Attributes<'a>) -> Self {
        let mut views = Self::default();
        for each in attributes {
            match each.code {
                attribute::COMMUNITIES => views.standard = each.value,
                attribute::EXTENDED_COMMUNITIES => views.extended = each.value,
                attribute::LARGE_COMMUNITIES => views.large = each.value,
                _ => {}
            }
        }
        views
    }

    #[inline]
    pub(super) fn standard(&self) -> impl Iterator<Item = Community> + use<'a> {
        self.standard.as_chunks::<4>().0.iter().map(|four| Community::Standard(u32::from_be_bytes(*four)))
    }

    #[inline]
    pub(super) fn extended(&self) -> impl Iterator<Item = Community> + use<'a> {
        self.extended.as_chunks::<8>().0.iter().map(|eight| Community::Extended(u64::from_be_bytes(*eight)))
    }

    #[inline]
    pub(super) fn large(&self) -> impl Iterator<Item = Community> + use<'a> {
        let parts = self.large.as_chunks::<4>().0.as_chunks::<3>().0;
        parts.iter().map(|three| Community::Large(three.map(u32::from_be_bytes)))
    }

    fn all(&self) -> impl Iterator<Item = Community> + use<'a> {
        self.standard().chain(self.extended()).chain(self.large())
    }

    /// The number of communities of all kinds.
    pub(super) fn count(&self) -> u32 {
        (self.standard.len() / 4 + self.extended.len() / 8 + self.large.len() / 12) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> CommunityPattern {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn community(text: &str) -> Community {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    proptest! {
        #[test]
        fn text_and_community_say_the_same(kind in 0..3, a: u32, b: u32, c: u32, low in 0u64..4) {
            let community = match kind {
                0 => Community::Standard(a),
                1 => Community::Extended(low << 56 | 2 << 48 | u64::from(a) << 16 | u64::from(b) & 0xffff),
                _ => Community::Large([a, b, c]),
            };
            prop_assert_eq!(community.to_string().parse::<Community>(), Ok(community));
        }

        #[test]
        fn no_text_panics(text in r"[0-9a-frtox:*.-]{0,24}|\PC{0,12}") {
            if let Err(error) = text.parse::<CommunityPattern>() {
                prop_assert!(error.at.end <= text.len());
            }
        }
    }

    #[test]
    fn patterns_match_what_they_say() {
        for (text, yes, no) in [
            ("64500:100", "64500:100", "64500:101"),
            ("64500:*", "64500:7", "64501:7"),
            ("*:666", "1:666", "1:667"),
            ("64500:100-199", "64500:199", "64500:200"),
            ("no-export", "65535:65281", "65535:65282"),
            ("rt:64500:100", "rt:64500:100", "ro:64500:100"),
            ("rt:64500:100", "0x0202 0000fbf40064", "rt:64501:100"),
            ("rt:64500:*", "rt:64500:100000", "rt:192.0.2.1:1"),
            ("rt:*:100", "rt:192.0.2.1:100", "rt:192.0.2.1:101"),
            ("rt:4200000000:1", "rt:4200000000:1", "rt:4200000001:1"),
            ("0x030c*", "0x030c000000000001", "0x030b000000000001"),
            ("64500:*:1-9", "64500:77:9", "64500:77:10"),
            ("*:*", "1:1", "1:1:1"),
        ] {
            assert!(pattern(text).matches(community(&yes.replace(' ', ""))), "{text} on {yes}");
            assert!(!pattern(text).matches(community(no)), "{text} on {no}");
        }
    }

    #[test]
    fn wrong_text_is_named_where_it_is_wrong() {
        use CommunityProblem::*;
        for (text, at, problem) in [
            ("65536:1", 0..5, TooLarge { max: 65535 }),
            ("64500:70000", 6..11, TooLarge { max: 65535 }),
            ("64500:1:4294967296", 8..18, TooLarge { max: u32::MAX }),
            ("64500:", 6..6, Number),
            ("64500:x", 6..7, Number),
            ("64500:9-1", 6..9, Reversed),
            ("64500", 0..5, Shape),
            ("1:2:3:4", 0..7, Shape),
            ("", 0..0, Shape),
            ("no-exprot", 0..9, Name),
            ("xt:1:2", 0..2, Name),
            ("rt:1", 0..4, Shape),
            ("rt:70000:70000", 9..14, TooLarge { max: 65535 }),
            ("0x12", 0..4, Shape),
        ] {
            assert_eq!(text.parse::<CommunityPattern>(), Err(CommunityError { at, problem }), "{text}");
        }
        assert_eq!("64500:*".parse::<Community>(), Err(CommunityError { at: 0..7, problem: NotExact }));
    }
}
