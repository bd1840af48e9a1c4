//! Views of attributes that were checked before. Nothing here fails; truncated bytes just end.

use std::fmt;

use super::attribute::FLAG_EXTENDED;

/// One attribute in its wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub flags: u8,
    pub code: u8,
    pub value: &'a [u8],
    /// Flags, code, length and value, undecoded.
    pub whole: &'a [u8],
}

/// Iterates over attributes in wire form.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Iterates over these bytes; an incomplete attribute ends the iteration.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The remaining bytes: at the end, those of an incomplete attribute.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        let (&[flags, code], rest) = self.rest.split_first_chunk::<2>()?;
        let (header, length) = if flags & FLAG_EXTENDED == 0 {
            (3, usize::from(*rest.first()?))
        } else {
            (4, usize::from(u16::from_be_bytes(*rest.first_chunk::<2>()?)))
        };
        let (whole, rest) = self.rest.split_at_checked(header + length)?;
        self.rest = rest;
        Some(Attribute { flags, code, value: &whole[header..], whole })
    }
}

/// The type of an AS_PATH segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SegmentKind {
    /// AS_SET: unordered.
    Set = 1,
    Sequence = 2,
    /// AS_CONFED_SEQUENCE (RFC 5065).
    ConfederationSequence = 3,
    /// AS_CONFED_SET (RFC 5065).
    ConfederationSet = 4,
}

impl SegmentKind {
    /// The kind with this type byte.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Set),
            2 => Some(Self::Sequence),
            3 => Some(Self::ConfederationSequence),
            4 => Some(Self::ConfederationSet),
            _ => None,
        }
    }

    /// Whether its members are ASes of a confederation.
    pub const fn is_confederation(self) -> bool {
        matches!(self, Self::ConfederationSequence | Self::ConfederationSet)
    }

    /// Whether its members have no order.
    pub const fn is_set(self) -> bool {
        matches!(self, Self::Set | Self::ConfederationSet)
    }
}

/// One segment of an AS_PATH with four-octet numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsSegment<'a> {
    pub kind: SegmentKind,
    members: &'a [[u8; 4]],
}

impl<'a> AsSegment<'a> {
    /// The AS numbers of the segment.
    pub fn asns(self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + 'a {
        self.members.iter().map(|four| u32::from_be_bytes(*four))
    }
}

/// An AS_PATH with four-octet numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsPath<'a> {
    value: &'a [u8],
}

impl<'a> AsPath<'a> {
    /// Views the value of an attribute.
    #[inline]
    pub fn new(value: &'a [u8]) -> Self {
        Self { value }
    }

    /// The value of the attribute.
    pub fn value(self) -> &'a [u8] {
        self.value
    }

    /// The segments in order.
    pub fn segments(self) -> impl Iterator<Item = AsSegment<'a>> {
        let mut rest = self.value;
        std::iter::from_fn(move || {
            let (&[kind, count], after) = rest.split_first_chunk::<2>()?;
            let (members, after) = after.split_at_checked(usize::from(count) * 4)?;
            rest = after;
            Some(AsSegment { kind: SegmentKind::from_byte(kind)?, members: members.as_chunks::<4>().0 })
        })
    }
}

impl fmt::Display for AsPath<'_> {
    /// As operators write it: `64496 64497 {64498,64499} (65001 65002) [65003,65004]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            let (open, between, close) = match segment.kind {
                SegmentKind::Sequence => ("", " ", ""),
                SegmentKind::Set => ("{", ",", "}"),
                SegmentKind::ConfederationSequence => ("(", " ", ")"),
                SegmentKind::ConfederationSet => ("[", ",", "]"),
            };
            f.write_str(open)?;
            for (place, asn) in segment.asns().enumerate() {
                if place > 0 {
                    f.write_str(between)?;
                }
                write!(f, "{asn}")?;
            }
            f.write_str(close)?;
        }
        Ok(())
    }
}
