//! Converts AS_PATH between two and four bytes an AS (RFC 6793), and checks whether it is well-formed.
//!
//! ```text
//! segments, each: type | number of ASes | ASes of two or four bytes
//! ```
//!
//! RFC 4271 4.3, RFC 5065 (confederations), RFC 6793 (AS_TRANS, AS4_PATH), RFC 7606 7.2, RFC 7607 (AS 0).

use super::open::AS_TRANS;
use super::view::{AsPath, SegmentKind};

/// The most ASes in an AS_PATH. No route in use comes near it, and a path of a thousand no longer fits a
/// message of 4096 bytes. Routes with longer paths are treated as withdrawn.
pub const AS_PATH_ASNS_MAX: usize = 2000;

/// Why an AS_PATH is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AsPathError {
    #[error("segment of type {0}")]
    SegmentType(u8),
    #[error("segment without an AS")]
    EmptySegment,
    #[error("segment longer than the path")]
    Overrun,
    #[error("a byte after the last segment")]
    Underrun,
    /// AS 0 (RFC 7607).
    #[error("AS 0")]
    AsZero,
    /// A confederation segment that is not allowed (RFC 5065 5).
    #[error("confederation segment from outside a confederation")]
    Confederation,
    /// The path does not begin with a confederation sequence, although another member AS sent it (RFC 5065
    /// 5).
    #[error("no confederation segment first")]
    NoConfederationFirst,
    /// More than [`AS_PATH_ASNS_MAX`].
    #[error("{0} ASes, above {AS_PATH_ASNS_MAX}")]
    TooLong(usize),
}

/// Facts about a well-formed path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathFacts {
    /// Has a confederation segment.
    pub(super) confederation: bool,
    /// Begins with a confederation sequence.
    pub(super) confederation_first: bool,
}

/// Checks a whole path.
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

/// Converts a checked path from two to four bytes an AS and appends it.
pub(super) fn widen(two_octet: &[u8], out: &mut Vec<u8>) {
    for (kind, asns) in segments::<2>(two_octet) {
        out.extend_from_slice(&[kind, asns.len() as u8]);
        for &[high, low] in asns {
            out.extend_from_slice(&[0, 0, high, low]);
        }
    }
}

/// Reconstructs the path from a neighbor with two-octet AS numbers (RFC 6793 4.2.3): the part of AS_PATH that
/// AS4_PATH lacks, then AS4_PATH. Both must be checked.
pub(super) fn merge(two_octet: &[u8], as4_path: &[u8], out: &mut Vec<u8>) {
    let (have, real) = (counted::<2>(two_octet), counted::<4>(as4_path));
    if have < real {
        return widen(two_octet, out);
    }
    let mut lacking = have - real;
    for (kind, asns) in segments::<2>(two_octet) {
        let confederation = SegmentKind::from_byte(kind).is_some_and(SegmentKind::is_confederation);
        // Confederation segments do not count: those before and between the taken ones are kept.
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
        // Confederation segments are not allowed in AS4_PATH and are removed (RFC 6793 6).
        if SegmentKind::from_byte(kind).is_some_and(|kind| !kind.is_confederation()) {
            out.extend_from_slice(&[kind, asns.len() as u8]);
            out.extend_from_slice(asns.as_flattened());
        }
    }
}

const SET: u8 = SegmentKind::Set as u8;

/// The path length for route selection: a set counts one, confederation segments count zero.
fn counted<const WIDTH: usize>(value: &[u8]) -> usize {
    segments::<WIDTH>(value)
        .map(|(kind, asns)| match SegmentKind::from_byte(kind) {
            Some(SegmentKind::Sequence) => asns.len(),
            Some(SegmentKind::Set) => 1,
            _ => 0,
        })
        .sum()
}

fn segments<const WIDTH: usize>(value: &[u8]) -> impl Iterator<Item = (u8, &[[u8; WIDTH]])> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let (&[kind, count], after) = rest.split_first_chunk::<2>()?;
        let (asns, after) = after.split_at_checked(usize::from(count) * WIDTH)?;
        rest = after;
        Some((kind, asns.as_chunks::<WIDTH>().0))
    })
}

/// Converts a path for a neighbor with two-octet AS numbers (RFC 6793 4.2.2). Appends the path to
/// `two_octet`, with AS_TRANS for larger numbers. If an AS outside confederation segments needed that,
/// appends the real path without those segments to `as4_path`. Returns whether AS4_PATH must be sent.
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

/// Prepends an AS number to a path with four-octet numbers: to its first segment if that has this kind and
/// room.
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
