//! Reads path attributes as leniently as old files require: everything readable is used, and the first fault
//! is stored.
//!
//! Sessions apply RFC 7606 to attributes; a reader of files has no neighbor to notify. An attribute of the
//! wrong length is left out; of two with the same code the first counts.

use super::bytes::Bytes;
use super::nlri::Prefixes;
use super::{AsSize, Expected, Fault};
use crate::bgp::attribute;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const AS_SET: u8 = 1;
const AS_SEQUENCE: u8 = 2;

/// The ends of an AS_PATH, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathEnds {
    /// The AS next to the route's sender or, if the path begins with a set or is empty, 0.
    pub neighbor: u32,
    /// The AS that announced the prefix; 0 if the path ends with a set or is empty.
    pub origin: u32,
    /// A set counts one.
    pub hops: usize,
}

/// Replaces an AS number that needs four bytes (RFC 6793).
const AS_TRANS: u32 = 23456;

/// The attributes of a route or message.
#[derive(Clone, Copy, Debug)]
pub struct PathView<'a> {
    /// The size of AS numbers in AS_PATH and AGGREGATOR.
    pub as_size: AsSize,
    /// ORIGIN, whatever its value.
    pub origin: Option<u8>,
    /// Undecoded; see [`Self::four_octet_path`].
    pub as_path: Option<&'a [u8]>,
    /// Undecoded.
    pub as4_path: Option<&'a [u8]>,
    pub next_hop: Option<Ipv4Addr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    pub local_pref: Option<u32>,
    pub atomic_aggregate: bool,
    /// From AS4_AGGREGATOR if that applies.
    pub aggregator: Option<(u32, Ipv4Addr)>,
    /// Undecoded, four bytes each.
    pub communities: &'a [u8],
    /// Undecoded, eight bytes each.
    pub extended_communities: &'a [u8],
    /// Undecoded, twelve bytes each.
    pub large_communities: &'a [u8],
    pub mp_reach: Option<MpReach<'a>>,
    pub mp_unreach: Option<MpUnreach<'a>>,
    /// The first thing that could not be read.
    pub fault: Option<Fault>,
}

/// MP_REACH_NLRI (RFC 4760): complete or, in TABLE_DUMP_V2, only the next hop.
#[derive(Clone, Copy, Debug)]
pub struct MpReach<'a> {
    /// AFI and SAFI; `None` if there is only the next hop.
    pub family: Option<(u16, u8)>,
    /// Undecoded.
    pub next_hop: &'a [u8],
    nlri: Bytes<'a>,
}

impl<'a> MpReach<'a> {
    /// The next hop's address; the global one if there is a link-local one too.
    pub fn next_hop_address(&self) -> Option<IpAddr> {
        match *self.next_hop {
            [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d).into()),
            _ => self.next_hop.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into()),
        }
    }

    /// The routes; `None` for families whose NLRI is not prefixes.
    pub fn prefixes(&self, add_path: bool) -> Option<Prefixes<'a>> {
        prefixes(self.family?, self.nlri, add_path)
    }
}

/// MP_UNREACH_NLRI (RFC 4760).
#[derive(Clone, Copy, Debug)]
pub struct MpUnreach<'a> {
    /// AFI and SAFI.
    pub family: (u16, u8),
    nlri: Bytes<'a>,
}

impl<'a> MpUnreach<'a> {
    /// The routes; `None` for families whose NLRI is not prefixes.
    pub fn prefixes(&self, add_path: bool) -> Option<Prefixes<'a>> {
        prefixes(self.family, self.nlri, add_path)
    }
}

/// SAFI 3 was "unicast and multicast" in RFC 2858.
fn prefixes((afi, safi): (u16, u8), nlri: Bytes<'_>, add_path: bool) -> Option<Prefixes<'_>> {
    match (afi, safi) {
        (1, 1..=3) => Some(Prefixes::new(nlri, false, add_path)),
        (2, 1..=3) => Some(Prefixes::new(nlri, true, add_path)),
        _ => None,
    }
}

impl<'a> PathView<'a> {
    /// Reads attributes; positions of faults count from their beginning.
    pub fn new(attributes: &'a [u8], as_size: AsSize) -> Self {
        Self::at(Bytes::new(attributes, 0), as_size)
    }

    #[inline]
    pub(super) fn at(attributes: Bytes<'a>, as_size: AsSize) -> Self {
        let mut view = Self {
            as_size,
            origin: None,
            as_path: None,
            as4_path: None,
            next_hop: None,
            med: None,
            local_pref: None,
            atomic_aggregate: false,
            aggregator: None,
            communities: &[],
            extended_communities: &[],
            large_communities: &[],
            mp_reach: None,
            mp_unreach: None,
            fault: None,
        };
        let mut rest = attributes;
        let mut as4_aggregator = None;
        while !rest.is_empty() {
            let read =
                attribute_of(&mut rest).and_then(|(code, value)| view.take(code, value, &mut as4_aggregator));
            if let Err(fault) = read {
                view.fault.get_or_insert(fault);
            }
        }
        view.settle_as4(as4_aggregator);
        view
    }

    /// RFC 6793 4.2.3: AS4_AGGREGATOR applies if AGGREGATOR has AS_TRANS; otherwise neither AS4_AGGREGATOR
    /// nor AS4_PATH does.
    fn settle_as4(&mut self, as4_aggregator: Option<(u32, Ipv4Addr)>) {
        if self.as_size == AsSize::Four {
            self.as4_path = None;
        } else if let (Some((asn, _)), Some(_)) = (self.aggregator, as4_aggregator) {
            if asn == AS_TRANS {
                self.aggregator = as4_aggregator;
            } else {
                self.as4_path = None;
            }
        }
    }

    fn take(
        &mut self,
        code: u8,
        mut value: Bytes<'a>,
        as4_aggregator: &mut Option<(u32, Ipv4Addr)>,
    ) -> Result<(), Fault> {
        match code {
            attribute::ORIGIN => first(&mut self.origin, value.u8("ORIGIN")?),
            attribute::AS_PATH => {
                first(&mut self.as_path, value.rest());
                if !self.is_path_whole() {
                    return Err(Fault { at: value.at(), expected: Expected::AsPath });
                }
            }
            attribute::AS4_PATH => first(&mut self.as4_path, value.rest()),
            attribute::NEXT_HOP => first(&mut self.next_hop, value.array::<4>("NEXT_HOP")?.into()),
            attribute::MED => first(&mut self.med, value.u32("MULTI_EXIT_DISC")?),
            attribute::LOCAL_PREF => first(&mut self.local_pref, value.u32("LOCAL_PREF")?),
            attribute::ATOMIC_AGGREGATE => self.atomic_aggregate = true,
            attribute::AGGREGATOR => {
                // Its length decides its form, whatever the record says about AS numbers.
                let asn = value.asn(value.len() != 6, "AGGREGATOR")?;
                first(&mut self.aggregator, (asn, value.array::<4>("AGGREGATOR")?.into()));
            }
            attribute::AS4_AGGREGATOR => {
                let asn = value.u32("AS4_AGGREGATOR")?;
                first(as4_aggregator, (asn, value.array::<4>("AS4_AGGREGATOR")?.into()));
            }
            attribute::COMMUNITIES if self.communities.is_empty() => self.communities = value.rest(),
            attribute::EXTENDED_COMMUNITIES if self.extended_communities.is_empty() => {
                self.extended_communities = value.rest();
            }
            attribute::LARGE_COMMUNITIES if self.large_communities.is_empty() => {
                self.large_communities = value.rest();
            }
            attribute::MP_REACH_NLRI => first(&mut self.mp_reach, mp_reach(value)?),
            attribute::MP_UNREACH_NLRI => {
                let family = (value.u16("MP_UNREACH_NLRI")?, value.u8("MP_UNREACH_NLRI")?);
                first(&mut self.mp_unreach, MpUnreach { family, nlri: value });
            }
            _ => {}
        }
        Ok(())
    }

    /// AS_PATH with four-octet numbers and AS4_PATH merged in (RFC 6793 4.2.3); `scratch` holds the result if
    /// it is not a part of the record. A malformed path is cut at the error.
    pub fn four_octet_path<'s>(&self, scratch: &'s mut Vec<u8>) -> Option<&'s [u8]>
    where
        'a: 's,
    {
        let path = self.as_path?;
        if self.as_size == AsSize::Four {
            return Some(path);
        }
        scratch.clear();
        let hops = |kind: u8, count: usize| if is_set(kind) { 1 } else { count };
        let length: usize = segments(path, 2).map(|(kind, asns)| hops(kind, asns.len() / 2)).sum();
        let newer = self.as4_path.unwrap_or_default();
        let newer_length: usize = segments(newer, 4).map(|(kind, asns)| hops(kind, asns.len() / 4)).sum();
        // The older path contributes the first hops, which the newer one lacks.
        let (mut left, newer) =
            if newer_length <= length { (length - newer_length, newer) } else { (length, &[][..]) };
        let whole = newer.is_empty();
        for (kind, asns) in segments(path, 2) {
            if left == 0 && !whole {
                break;
            }
            let count = asns.len() / 2;
            let taken = if is_set(kind) { count } else { count.min(left) };
            left -= hops(kind, taken).min(left);
            scratch.extend([kind, taken as u8]);
            for asn in asns.as_chunks::<2>().0.iter().take(taken) {
                scratch.extend([0, 0, asn[0], asn[1]]);
            }
        }
        scratch.extend_from_slice(newer);
        Some(scratch)
    }

    /// What route selection and records of flows use of AS_PATH. Confederation segments do not count.
    pub fn ends(&self, scratch: &mut Vec<u8>) -> PathEnds {
        let mut ends = PathEnds::default();
        for (kind, asns) in segments(self.four_octet_path(scratch).unwrap_or_default(), 4) {
            let asns = asns.as_chunks::<4>().0;
            match kind {
                AS_SET => (ends.hops, ends.origin) = (ends.hops + 1, 0),
                AS_SEQUENCE => {
                    let number = |asn: Option<&[u8; 4]>| asn.map_or(0, |asn| u32::from_be_bytes(*asn));
                    if ends.hops == 0 {
                        ends.neighbor = number(asns.first());
                    }
                    (ends.hops, ends.origin) = (ends.hops + asns.len(), number(asns.last()));
                }
                _ => {}
            }
        }
        ends
    }

    /// Whether AS_PATH consists of whole segments.
    pub fn is_path_whole(&self) -> bool {
        let bytes = self.as_size.bytes();
        let path = self.as_path.unwrap_or_default();
        segments(path, bytes).map(|(_, asns)| 2 + asns.len()).sum::<usize>() == path.len()
    }
}

fn is_set(kind: u8) -> bool {
    matches!(kind, 1 | 4)
}

/// Segments as type and AS numbers; ends at the first malformed one.
pub(super) fn segments(path: &[u8], bytes: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (&[kind, count], after) = rest.split_first_chunk::<2>()?;
        let (asns, after) = after.split_at_checked(usize::from(count) * bytes)?;
        if !(1..=4).contains(&kind) {
            return None;
        }
        rest = after;
        Some((kind, asns))
    })
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

/// The next attribute's code and value. A truncated one is the last.
#[inline]
fn attribute_of<'a>(rest: &mut Bytes<'a>) -> Result<(u8, Bytes<'a>), Fault> {
    let mut read = || {
        let flags = rest.u8("an attribute's flags")?;
        let code = rest.u8("an attribute's code")?;
        let length = if flags & attribute::FLAG_EXTENDED == 0 {
            usize::from(rest.u8("an attribute's length")?)
        } else {
            usize::from(rest.u16("an attribute's length")?)
        };
        Ok((code, rest.take(length, "an attribute")?))
    };
    let result = read();
    if result.is_err() {
        *rest = Bytes::new(&[], 0);
    }
    result
}

fn mp_reach(mut value: Bytes<'_>) -> Result<MpReach<'_>, Fault> {
    const WHAT: &str = "MP_REACH_NLRI";
    // No AFI here exceeds 255, and no next hop is empty: the first byte distinguishes the forms.
    if value.rest().first().is_some_and(|length| *length != 0) {
        let length = value.u8(WHAT)?;
        let next_hop = value.take(usize::from(length), "a next hop")?.rest();
        return Ok(MpReach { family: None, next_hop, nlri: value });
    }
    let family = (value.u16(WHAT)?, value.u8(WHAT)?);
    let length = value.u8(WHAT)?;
    let next_hop = value.take(usize::from(length), "a next hop")?.rest();
    // SNPAs were never used; RFC 4760 made their count a reserved byte.
    let at = value.at();
    for _ in 0..value.u8(WHAT)? {
        let length = value.u8(WHAT)?;
        let bytes = usize::from(length).div_ceil(2);
        if bytes > value.len() {
            let expected = Expected::Bytes { what: WHAT, wanted: bytes, left: value.len() };
            return Err(Fault { at, expected });
        }
        value.take(bytes, WHAT)?;
    }
    Ok(MpReach { family: Some(family), next_hop, nlri: value })
}
