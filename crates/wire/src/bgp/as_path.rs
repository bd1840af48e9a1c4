//! AS_PATH between two and four bytes (RFC 6793), and whether one is well-formed.
//!
//! ```text
//! segments, each: type | number of ASes | ASes of two or four bytes
//! ```
//!
//! RFC 4271 4.3, RFC 5065 (confederations), RFC 6793 (AS_TRANS, AS4_PATH), RFC 7606 7.2, RFC 7607 (AS 0).

use super::open::AS_TRANS;
use super::view::{AsPath, SegmentKind};

/// ASes that an AS_PATH may have. No route in use comes near it; a path of a thousand does not fit into a
/// message of 4096 bytes any more, so a longer one could hardly be sent on. Routes with more are treated as
/// withdrawn.
pub const AS_PATH_ASNS_MAX: usize = 2000;

/// What is wrong with an AS_PATH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AsPathError {
    /// A segment of a type that is not known.
    #[error("segment of type {0}")]
    SegmentType(u8),
    /// A segment without an AS.
    #[error("segment without an AS")]
    EmptySegment,
    /// A segment is longer than what is left.
    #[error("segment longer than the path")]
    Overrun,
    /// One byte is left after the last segment.
    #[error("a byte after the last segment")]
    Underrun,
    /// AS 0 (RFC 7607).
    #[error("AS 0")]
    AsZero,
    /// A confederation segment where none may be (RFC 5065 5).
    #[error("confederation segment from outside a confederation")]
    Confederation,
    /// Another member AS of the confederation did not put itself first (RFC 5065 5).
    #[error("no confederation segment first")]
    NoConfederationFirst,
    /// More than [`AS_PATH_ASNS_MAX`].
    #[error("{0} ASes, above {AS_PATH_ASNS_MAX}")]
    TooLong(usize),
}

/// What a well-formed path has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathFacts {
    /// A confederation segment somewhere.
    pub(super) confederation: bool,
    /// A confederation sequence first.
    pub(super) confederation_first: bool,
}

/// Checks a path from end to end.
#[inline]
pub(super) fn check<const WIDTH: usize>(value: &[u8]) -> Result<PathFacts, AsPathError> {
    let mut facts = PathFacts::default();
    let mut rest = value;
    let mut total = 0;
    while let Some((&[kind, count], after)) = rest.split_first_chunk::<2>() {
        let Some(segment) = SegmentKind::from_byte(kind) else { return Err(AsPathError::SegmentType(kind)) };
        if count == 0 {
            return Err(AsPathError::EmptySegment);
        }
        let Some((asns, after)) = after.split_at_checked(usize::from(count) * WIDTH) else {
            return Err(AsPathError::Overrun);
        };
        if asns.as_chunks::<WIDTH>().0.contains(&[0; WIDTH]) {
            return Err(AsPathError::AsZero);
        }
        if segment.is_confederation() {
            facts.confederation = true;
            facts.confederation_first |= total == 0 && segment == SegmentKind::ConfederationSequence;
        }
        total += usize::from(count);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(AsPathError::Underrun);
    }
    if total > AS_PATH_ASNS_MAX {
        return Err(AsPathError::TooLong(total));
    }
    Ok(facts)
}

/// Appends a checked path of two bytes as one of four.
pub(super) fn widen(two_octet: &[u8], out: &mut Vec<u8>) {
    for (kind, asns) in segments::<2>(two_octet) {
        out.extend_from_slice(&[kind, asns.len() as u8]);
        for &[high, low] in asns {
            out.extend_from_slice(&[0, 0, high, low]);
        }
    }
}

/// Puts together the path that a neighbor with AS numbers of two bytes meant (RFC 6793 4.2.3): as much of
/// AS_PATH as AS4_PATH lacks, then AS4_PATH. Both are checked.
pub(super) fn merge(two_octet: &[u8], as4_path: &[u8], out: &mut Vec<u8>) {
    let (have, real) = (counted::<2>(two_octet), counted::<4>(as4_path));
    if have < real {
        return widen(two_octet, out);
    }
    let mut lacking = have - real;
    for (kind, asns) in segments::<2>(two_octet) {
        let confederation = SegmentKind::from_byte(kind).is_some_and(SegmentKind::is_confederation);
        // Confederation segments count nothing: those before and between what is taken come along.
        let take = match kind {
            _ if confederation => asns.len(),
            _ if lacking == 0 => break,
            SET => asns.len(),
            _ => asns.len().min(lacking),
        };
        if !confederation {
            lacking -= if kind == SET { 1 } else { take };
        }
        out.extend_from_slice(&[kind, take as u8]);
        for &[high, low] in &asns[..take] {
            out.extend_from_slice(&[0, 0, high, low]);
        }
        if take < asns.len() {
            break;
        }
    }
    for (kind, asns) in segments::<4>(as4_path) {
        // They do not belong there and are left out (RFC 6793 6).
        if SegmentKind::from_byte(kind).is_some_and(|kind| !kind.is_confederation()) {
            out.extend_from_slice(&[kind, asns.len() as u8]);
            out.extend_from_slice(asns.as_flattened());
        }
    }
}

const SET: u8 = SegmentKind::Set as u8;

/// Length of a path as decisions count it: a set is one, confederation segments are nothing.
fn counted<const WIDTH: usize>(value: &[u8]) -> usize {
    segments::<WIDTH>(value)
        .map(|(kind, asns)| match SegmentKind::from_byte(kind) {
            Some(SegmentKind::Sequence) => asns.len(),
            Some(SegmentKind::Set) => 1,
            _ => 0,
        })
        .sum()
}

/// Type and ASes of each segment.
fn segments<const WIDTH: usize>(value: &[u8]) -> impl Iterator<Item = (u8, &[[u8; WIDTH]])> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let (&[kind, count], after) = rest.split_first_chunk::<2>()?;
        let (asns, after) = after.split_at_checked(usize::from(count) * WIDTH)?;
        rest = after;
        Some((kind, asns.as_chunks::<WIDTH>().0))
    })
}

/// What a neighbor with AS numbers of two bytes gets (RFC 6793 4.2.2): appends to `two_octet` the path with
/// AS_TRANS for what does not fit and, only if an AS outside confederation segments did not, to `as4_path` the real one
/// without those segments. Says whether AS4_PATH is to be sent.
pub fn narrow_as_path(path: AsPath<'_>, two_octet: &mut Vec<u8>, as4_path: &mut Vec<u8>) -> bool {
    let mut lossy = false;
    for segment in path.segments() {
        two_octet.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
        for asn in segment.asns() {
            let narrow = u16::try_from(asn).unwrap_or(AS_TRANS);
            lossy |= u32::from(narrow) != asn && !segment.kind.is_confederation();
            two_octet.extend_from_slice(&narrow.to_be_bytes());
        }
    }
    if lossy {
        for segment in path.segments().filter(|segment| !segment.kind.is_confederation()) {
            as4_path.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
            segment.asns().for_each(|asn| as4_path.extend_from_slice(&asn.to_be_bytes()));
        }
    }
    lossy
}

/// Puts an AS number before a path of four bytes: into its first segment if that is of the kind and has room.
pub fn prepend_as(path: &mut Vec<u8>, asn: u32, kind: SegmentKind) {
    match path.first_chunk::<2>() {
        Some(&[first, count]) if first == kind as u8 && count < u8::MAX => {
            path[1] = count + 1;
            path.splice(2..2, asn.to_be_bytes());
        }
        _ => {
            let [a, b, c, d] = asn.to_be_bytes();
            path.splice(0..0, [kind as u8, 1, a, b, c, d]);
        }
    }
}
