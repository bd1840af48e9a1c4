//! UPDATE: withdrawn and announced routes, and the path attributes of the latter.
//!
//! ```text
//! length | withdrawn prefixes | length | path attributes | announced prefixes
//! ```
//!
//! [`Update::parse`] checks everything once and decides (RFC 7606): the session ends (`Err`), the announced
//! routes are withdrawn ([`Verdict::TreatAsWithdraw`]), or they are used, perhaps without some attributes
//! ([`Update::discards`]). The result borrows the message; nothing is copied or allocated, and reading from
//! it cannot fail.

mod print;
mod problem;
mod reader;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

pub use problem::{AttributeProblem, Discards, Fault};

use super::attribute as a;
use super::notification::{Notification, error, update_error};
use super::view::{Attribute, Attributes};
use super::{AfiSafi, Codec, Family, NextHop, Nlri, Origin, as_path};

/// A neighbor's relation to our AS, which decides about valid attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerSide {
    /// In another AS, and not in our confederation.
    #[default]
    External,
    /// In another member AS of our confederation (RFC 5065).
    Confederation,
    /// In our (member) AS.
    Internal,
}

/// A set of attribute type codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeSet([u64; 4]);

impl CodeSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// Adds a code to a copy of the set.
    #[must_use]
    pub const fn with(mut self, code: u8) -> Self {
        self.0[(code >> 6) as usize] |= 1 << (code & 63);
        self
    }

    /// Whether the set contains the code.
    #[inline]
    pub const fn contains(&self, code: u8) -> bool {
        self.0[(code >> 6) as usize] >> (code & 63) & 1 != 0
    }

    /// Adds a code; returns whether it is new.
    #[inline]
    pub fn insert(&mut self, code: u8) -> bool {
        let new = !self.contains(code);
        *self = self.with(code);
        new
    }
}

/// Facts about the neighbor that affect how its messages are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeerFacts {
    pub side: PeerSide,
    /// This router is a member of a confederation.
    pub in_confederation: bool,
    /// Attributes that the operator wants ignored, whatever their value: protection for a network that an
    /// unneeded attribute harms. Attributes that carry prefixes, and ORIGIN, AS_PATH and NEXT_HOP, are never
    /// ignored.
    pub discard: CodeSet,
}

/// What happens to the routes that a message announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// They are used.
    #[default]
    Good,
    /// All of them are withdrawn instead; the attributes have no meaning.
    TreatAsWithdraw(AttributeProblem),
}

/// Prefixes of a family whose routes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpNlri<'a> {
    Ipv4(Nlri<'a, u32>),
    Ipv6(Nlri<'a, u128>),
}

impl MpNlri<'_> {
    /// The family.
    pub fn family(&self) -> Family {
        match self {
            Self::Ipv4(_) => Family::Ipv4,
            Self::Ipv6(_) => Family::Ipv6,
        }
    }

    /// The number of prefixes.
    pub fn len(&self) -> usize {
        match self {
            Self::Ipv4(routes) => routes.len(),
            Self::Ipv6(routes) => routes.len(),
        }
    }

    /// Whether there are no prefixes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// MP_REACH_NLRI of a family whose routes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpReach<'a> {
    pub next_hop: NextHop,
    pub routes: MpNlri<'a>,
}

/// AGGREGATOR with a four-octet AS number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aggregator {
    /// The AS that made the aggregate.
    pub asn: u32,
    /// The router that made the aggregate.
    pub address: Ipv4Addr,
}

impl Aggregator {
    /// The attribute's value with four-octet AS numbers.
    pub fn to_bytes(self) -> [u8; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (self.asn.to_be_bytes(), self.address.octets());
        [a, b, c, d, e, f, g, h]
    }
}

/// A checked UPDATE.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    /// Withdrawn IPv4 prefixes. They precede all announcements.
    pub withdrawn: Nlri<'a, u32>,
    /// IPv4 prefixes announced with NEXT_HOP.
    pub reach_v4: Nlri<'a, u32>,
    /// Prefixes withdrawn by MP_UNREACH_NLRI.
    pub mp_unreach: Option<MpNlri<'a>>,
    /// Prefixes announced by MP_REACH_NLRI.
    pub mp_reach: Option<MpReach<'a>>,
    pub verdict: Verdict,
    pub origin: Origin,
    /// NEXT_HOP; present whenever `reach_v4` is not empty and the verdict is good.
    pub next_hop: Option<Ipv4Addr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF; never from external neighbors.
    pub local_pref: Option<u32>,
    /// Discarded attributes, and why.
    pub discards: Discards,
    /// Families of MP_REACH_NLRI and MP_UNREACH_NLRI whose routes are not stored; their prefixes are
    /// unchecked.
    pub foreign_reach: Option<AfiSafi>,
    pub foreign_unreach: Option<AfiSafi>,
    /// The path attributes field, as far as it is readable.
    field: &'a [u8],
    /// Codes that [`Self::attributes`] skips.
    left_out: CodeSet,
    four_octet_as: bool,
    pub(super) as_path: &'a [u8],
    pub(super) as4_path: Option<&'a [u8]>,
    pub(super) aggregator: Option<Aggregator>,
}

impl<'a> Update<'a> {
    /// Decodes and checks the body of a message. An error ends the session.
    #[inline]
    pub fn parse(body: &'a [u8], codec: &Codec, peer: &PeerFacts) -> Result<Self, Notification> {
        let Some((withdrawn, attributes, reach)) = split(body) else {
            return Err(Notification::new(error::UPDATE, update_error::MALFORMED_ATTRIBUTE_LIST));
        };
        reader::read(withdrawn, attributes, reach, codec, peer)
    }

    /// Decodes the three fields of an UPDATE that were stored apart, as MRT files do for a route's
    /// attributes.
    pub fn from_parts(
        withdrawn: &'a [u8],
        attributes: &'a [u8],
        reach: &'a [u8],
        codec: &Codec,
        peer: &PeerFacts,
    ) -> Result<Self, Notification> {
        reader::read(withdrawn, attributes, reach, codec, peer)
    }

    /// The checked attributes in the order of the message, each code once. Discarded ones are skipped, and so
    /// are MP_REACH_NLRI, MP_UNREACH_NLRI, AS4_PATH and AS4_AGGREGATOR, which have their own fields. Values
    /// are undecoded: AS_PATH and AGGREGATOR have two-octet AS numbers if the codec says so, see
    /// [`Self::as_path`] and [`Self::aggregator`]. Flags are normalized: without FLAG_EXTENDED and unused
    /// bits, and FLAG_PARTIAL only where it is valid.
    #[inline]
    pub fn attributes(&self) -> RawAttributes<'a> {
        RawAttributes { inner: Attributes::new(self.field), seen: self.left_out }
    }

    /// The path with four-octet AS numbers: a part of the message, or built in `scratch`.
    #[inline]
    pub fn as_path<'s>(&self, scratch: &'s mut Vec<u8>) -> &'s [u8]
    where
        'a: 's,
    {
        if self.four_octet_as {
            return self.as_path;
        }
        scratch.clear();
        match self.as4_path {
            Some(as4_path) => as_path::merge(self.as_path, as4_path, scratch),
            None => as_path::widen(self.as_path, scratch),
        }
        scratch
    }

    /// The undecoded path attributes field.
    pub fn field(&self) -> &'a [u8] {
        self.field
    }

    /// AGGREGATOR, or AS4_AGGREGATOR in its place (RFC 6793 4.2.3).
    pub fn aggregator(&self) -> Option<Aggregator> {
        self.aggregator
    }

    /// The family of an End-of-RIB marker (RFC 4724 2), if this is one.
    pub fn end_of_rib(&self) -> Option<Family> {
        let plain = self.withdrawn.is_empty() && self.reach_v4.is_empty();
        if !plain || self.verdict != Verdict::Good || self.mp_reach.is_some() {
            return None;
        }
        if self.field.is_empty() {
            return Some(Family::Ipv4);
        }
        // Only an empty MP_UNREACH_NLRI.
        let mut attributes = Attributes::new(self.field);
        let only = attributes.next()?.code == a::MP_UNREACH_NLRI && attributes.next().is_none();
        self.mp_unreach.filter(|routes| only && routes.is_empty()).map(|routes| routes.family())
    }

    /// Whether it announces any route of a stored family.
    #[inline]
    pub fn announces(&self) -> bool {
        !self.reach_v4.is_empty() || self.mp_reach.is_some_and(|reach| !reach.routes.is_empty())
    }
}

#[inline]
fn split(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let (withdrawn, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (attributes, reach) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((withdrawn, attributes, reach))
}

/// Iterates over the attributes of an UPDATE; see [`Update::attributes`].
#[derive(Clone, Debug)]
pub struct RawAttributes<'a> {
    inner: Attributes<'a>,
    seen: CodeSet,
}

impl<'a> Iterator for RawAttributes<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        loop {
            let attribute = self.inner.next()?;
            if self.seen.insert(attribute.code) {
                return Some(Attribute { flags: clean_flags(attribute.flags), ..attribute });
            }
        }
    }
}

/// Keeps meaningful flags: PARTIAL is valid only for optional transitive attributes.
#[inline]
const fn clean_flags(flags: u8) -> u8 {
    const BOTH: u8 = a::FLAG_OPTIONAL | a::FLAG_TRANSITIVE;
    if flags & BOTH == BOTH { flags & (BOTH | a::FLAG_PARTIAL) } else { flags & BOTH }
}
