//! Compares patterns with a text oracle: the same pattern as a regular expression over "64500 64501 ".

use proptest::prelude::*;
use regex_lite::Regex;

use super::*;
use crate::attrs::SegmentKind;

/// The value of an AS_PATH: sequences in segments of at most 255.
fn path(asns: &[u32]) -> Vec<u8> {
    segments(&asns.chunks(255).map(|part| (SegmentKind::Sequence, part.to_vec())).collect::<Vec<_>>())
}

fn segments(segments: &[(SegmentKind, Vec<u32>)]) -> Vec<u8> {
    let mut value = Vec::new();
    for (kind, asns) in segments {
        value.extend_from_slice(&[*kind as u8, asns.len() as u8]);
        value.extend(asns.iter().flat_map(|asn| asn.to_be_bytes()));
    }
    value
}

fn matches(pattern: &str, asns: &[u32]) -> bool {
    AsPathPattern::new(pattern).expect(pattern).matches(AsPath::new(&path(asns)))
}

/// A pattern in two forms: ours, and the oracle's, where every number ends with a blank.
fn pattern() -> impl Strategy<Value = (String, String)> {
    let number = |n: u32| (n.to_string(), format!(r"(?:\b{n} )"));
    let any = r"(?:\b[0-9]+ )";
    let leaf = prop_oneof![
        6 => (1u32..5).prop_map(number),
        2 => Just((".".to_owned(), any.to_owned())),
        1 => Just(("[0-9]+".to_owned(), any.to_owned())),
        1 => Just(("[2-3]".to_owned(), r"(?:\b[23] )".to_owned())),
        1 => Just(("[^1 3]".to_owned(), r"(?:\b(?:2|4|77) )".to_owned())),
        2 => Just(("_".to_owned(), "(?:)".to_owned())),
        1 => Just(("^".to_owned(), "^".to_owned())),
        1 => Just(("$".to_owned(), "$".to_owned())),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| {
                let ours: Vec<String> = parts.iter().map(|part| part.0.clone()).collect();
                (ours.join(" "), parts.into_iter().map(|part| part.1).collect())
            }),
            1 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| {
                let (ours, theirs): (Vec<String>, Vec<String>) = parts.into_iter().unzip();
                (format!("({})", ours.join("|")), format!("(?:{})", theirs.join("|")))
            }),
            1 => (inner, prop::sample::select(vec!["*", "+", "?"]))
                .prop_map(|((ours, theirs), sign)| (format!("({ours}){sign}"), format!("(?:{theirs}){sign}"))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn patterns_find_what_text_patterns_find(
        pattern in pattern(),
        paths in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![1u32, 2, 3, 4, 77]), 0..6), 1..12),
    ) {
        let ours = AsPathPattern::new(&pattern.0).unwrap();
        let oracle = Regex::new(&pattern.1).unwrap();
        for asns in paths {
            let text: String = asns.iter().map(|asn| format!("{asn} ")).collect();
            prop_assert_eq!(
                ours.matches(AsPath::new(&path(&asns))), oracle.is_match(&text),
                "{} ({}) on {}", pattern.0, pattern.1, text
            );
        }
    }

    #[test]
    fn no_text_panics(text in r"[0-9_.*+?|()\[\]^$, -]{0,30}|\PC{0,10}", asns in prop::collection::vec(0u32..9, 0..5)) {
        match AsPathPattern::new(&text) {
            Ok(pattern) => { pattern.matches(AsPath::new(&path(&asns))); }
            Err(error) => prop_assert!(error.at.end <= text.len() && text.is_char_boundary(error.at.start)),
        }
    }
}

#[test]
fn patterns_as_operators_write_them() {
    for (pattern, yes, no) in [
        ("^64500_", &[64500u32, 1][..], &[164500u32, 1][..]),
        ("_64500$", &[1, 64500], &[64500, 1]),
        ("_64500_", &[1, 64500, 2], &[1, 2]),
        ("^64500$", &[64500], &[64500, 64500]),
        ("^64500(_64500)*$", &[64500, 64500, 64500], &[64500, 1]),
        ("^(64500_)+64501$", &[64500, 64500, 64501], &[64501]),
        ("^$", &[], &[1]),
        (".*", &[], &[]),
        ("^[0-9]+$", &[7], &[7, 7]),
        ("^[0-9]*$", &[], &[7, 7]),
        ("(^|_)64500(_|$)", &[1, 64500], &[645, 0]),
        ("^(1|2|3_4)$", &[3, 4], &[3]),
        ("_[64512-65534]_", &[1, 64600, 2], &[1, 65535, 2]),
        ("_[64512-65534 4200000000-4294967294]$", &[4_200_000_001], &[4_294_967_295]),
        ("^64500 .* 64501$", &[64500, 64501], &[64500]),
        ("^.? 5$", &[1, 5], &[1, 1, 5]),
        ("^[^1]+$", &[2, 3], &[2, 1]),
    ] {
        assert!(matches(pattern, yes), "{pattern} on {yes:?}");
        assert!(pattern == ".*" || !matches(pattern, no), "{pattern} on {no:?}");
    }
}

#[test]
fn a_set_fits_if_a_member_does() {
    let with_set = segments(&[
        (SegmentKind::ConfederationSequence, vec![65001]),
        (SegmentKind::Sequence, vec![1, 2]),
        (SegmentKind::Set, vec![3, 4]),
    ]);
    for (pattern, expected) in [
        ("_4$", true),
        ("_3$", true),
        ("_2_3_4$", false),
        ("^65001_1_2_3$", true),
        ("^1", false),
        ("_5_", false),
    ] {
        let pattern = AsPathPattern::new(pattern).unwrap();
        assert_eq!(pattern.matches(AsPath::new(&with_set)), expected, "{}", pattern.text());
    }
}

/// A backtracking engine needs exponential time for these.
#[test]
fn greedy_patterns_end() {
    let long = vec![1u32; 4000];
    assert!(!matches("^(1+)+(1+)+(1|1_1)*2$", &long));
    assert!(!matches("^(1?_1?_1?_1?_1?_1?_1?_1?)*2$", &long));
    let numbers: Vec<String> = (0..8000).map(|n| (n * 2).to_string()).collect();
    let list = format!("_({})$", numbers.join("|"));
    assert!(matches(&list, &[1, 15_998]) && !matches(&list, &[1, 15_999]));
    let row: Vec<String> = (1..=POSITIONS_MAX).map(|n| n.to_string()).collect();
    let asns: Vec<u32> = (1..=POSITIONS_MAX as u32).collect();
    assert!(matches(&format!("^{}$", row.join("_")), &asns));
    assert!(!matches(&format!("^{}$", row.join("_")), &asns[1..]));
}

#[test]
fn mistakes_are_named_where_they_are() {
    use AsPathProblem::*;
    let nested = format!("{}1{}", "(".repeat(51), ")".repeat(51));
    let long = "1_".repeat(257);
    for (pattern, at, problem) in [
        ("", 0..0, Empty),
        ("^64a00_", 3..4, Unexpected('a')),
        ("^4294967296$", 1..11, NumberTooLarge),
        ("*64500", 0..1, NothingToRepeat),
        ("^(1|2", 1..2, GroupOpen),
        ("^1)", 2..3, GroupNotOpen),
        ("_[1-3_", 1..2, ClassOpen),
        ("_[]_", 1..3, ClassEmpty),
        ("_[5-3]_", 2..5, RangeReversed),
        ("_645[0-9]_", 1..5, DigitByDigit),
        ("_[0-9]_", 1..6, DigitByDigit),
        ("_[0-9]5_", 1..6, DigitByDigit),
        ("[1-a]", 3..4, Unexpected('a')),
        ("[1-]", 3..4, Unexpected(']')),
        ("é", 0..2, Unexpected('é')),
        (&nested, 50..51, TooDeep),
        (&long, 0..514, TooManyPositions),
    ] {
        assert_eq!(AsPathPattern::new(pattern), Err(AsPathError { at, problem }), "{pattern}");
    }
    assert!(matches!(
        AsPathPattern::new(&"1".repeat(PATTERN_MAX_BYTES + 1)),
        Err(AsPathError { problem: TooLong, .. })
    ));
}
