//! Path attributes as the RIB keeps them: decoded once, immutable, shared by every route that has them.
//!
//! ```text
//! AttrRef ──> count  hash  weight  local_pref  med  neighbor_as  origin_as  path_length  flags  origin  length
//!   8 B       48 B   [next hop 4|16|32][AS_PATH][AGGREGATOR][COMMUNITIES]...
//! ```
//!
//! Plain fields hold what decisions and most policies read. Everything else stays in its encoded
//! form, made canonical: attributes in ascending order of type, four-octet AS numbers, the extended-length flag
//! only where the length needs it. ORIGIN, NEXT_HOP, MULTI_EXIT_DISC, LOCAL_PREF and the MP attributes are left
//! out; they are fields or belong to the message. So equal attributes are equal bytes, and an [`Interner`] keeps
//! one copy of each: comparing two [`AttrRef`]s compares two addresses.
//!
//! An attribute set costs 48 bytes, its encoded bytes and the overhead of one allocation.

mod builder;
mod interner;
mod shared;

use std::fmt;
use std::net::Ipv4Addr;

use thalweg_wire::bgp::Origin;

pub use builder::{AttrsBuilder, AttrsError};
pub use interner::{Interner, InternerCounters};
pub use shared::AttrRef;
pub use thalweg_wire::bgp::{AsPath, AsSegment, Attribute, Attributes, NextHop, SegmentKind};

/// LOCAL_PREF of a route that carries none.
pub const LOCAL_PREF_DEFAULT: u32 = 100;

/// Bits of [`Head::flags`]. They spare readers a search of the encoded attributes.
pub mod flag {
    pub const MED: u16 = 1 << 0;
    pub const LOCAL_PREF: u16 = 1 << 1;
    pub const COMMUNITIES: u16 = 1 << 2;
    pub const EXTENDED_COMMUNITIES: u16 = 1 << 3;
    pub const LARGE_COMMUNITIES: u16 = 1 << 4;
    /// ORIGINATOR_ID or CLUSTER_LIST is present.
    pub const REFLECTED: u16 = 1 << 5;
    pub const ONLY_TO_CUSTOMER: u16 = 1 << 6;
    pub const NO_EXPORT: u16 = 1 << 7;
    pub const NO_ADVERTISE: u16 = 1 << 8;
    pub const NO_EXPORT_SUBCONFED: u16 = 1 << 9;
    pub const GRACEFUL_SHUTDOWN: u16 = 1 << 10;
    pub const BLACKHOLE: u16 = 1 << 11;
    /// The AS_PATH has an AS_SET or AS_CONFED_SET.
    pub const AS_SET: u16 = 1 << 12;
    /// The AS_PATH has a confederation segment, be it behind one that a policy prepended.
    pub const CONFEDERATION: u16 = 1 << 13;
    /// A non-transitive optional attribute is present; it is not passed on.
    pub const NON_TRANSITIVE: u16 = 1 << 14;
    /// The router discards traffic for this route (RFC 7999, or by policy). Local to this router and never sent.
    pub const DISCARD: u16 = 1 << 15;
}

/// The attributes that decisions and most policies read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Covers the whole set.
    pub(crate) hash: u64,
    /// Local to this router and never sent; higher is preferred. 0 unless policy sets it.
    pub weight: u32,
    /// LOCAL_PREF, or [`LOCAL_PREF_DEFAULT`].
    pub local_pref: u32,
    /// MULTI_EXIT_DISC, or 0.
    pub med: u32,
    /// The neighboring AS: the first of the AS_PATH outside confederation segments, or 0.
    pub neighbor_as: u32,
    /// The originating AS: the last of the AS_PATH; 0 if the path is empty or ends in a set.
    pub origin_as: u32,
    /// The length of the AS_PATH in decisions: a set counts 1, confederation segments count 0.
    pub path_length: u16,
    /// Bits of [`flag`].
    pub flags: u16,
    pub origin: Origin,
    /// The number of leading bytes that are the next hop: 4, 16 or 32.
    pub(crate) next_hop_length: u8,
    /// The number of bytes: the next hop and the encoded attributes.
    pub(crate) length: u32,
}

impl Head {
    pub(crate) fn bytes(&self) -> usize {
        self.length as usize
    }

    /// Whether all of these bits of [`flag`] are set.
    #[inline]
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

/// The path attributes of a route, canonical and immutable. [`AttrsBuilder`] makes them; the plain fields are those
/// of [`Head`].
#[repr(C)]
pub struct Attrs {
    head: Head,
    bytes: [u8],
}

impl std::ops::Deref for Attrs {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Attrs {
    /// The next hop, decoded from its stored bytes.
    pub fn next_hop(&self) -> NextHop {
        next_hop(&self.bytes[..usize::from(self.next_hop_length)])
    }

    /// The encoded attributes, canonical, as they are sent.
    #[inline]
    pub fn encoded(&self) -> &[u8] {
        &self.bytes[usize::from(self.next_hop_length)..]
    }

    /// Iterates over the encoded attributes in order of type.
    #[inline]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(self.encoded())
    }

    /// The AS_PATH, which is always the first of [`Self::attributes`].
    #[inline]
    pub fn as_path(&self) -> AsPath<'_> {
        match self.attributes().next() {
            Some(first) if first.code == thalweg_wire::bgp::attribute::AS_PATH => AsPath::new(first.value),
            _ => AsPath::new(&[]),
        }
    }

    /// Whether the AS is anywhere in the AS_PATH, including sets and confederation segments.
    pub fn path_contains(&self, asn: u32) -> bool {
        self.as_path().segments().any(|segment| segment.asns().any(|each| each == asn))
    }

    /// The value of an encoded attribute.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.attributes().find(|each| each.code == code).map(|each| each.value)
    }

    /// MULTI_EXIT_DISC, if present.
    pub fn med(&self) -> Option<u32> {
        self.has(flag::MED).then_some(self.med)
    }

    /// LOCAL_PREF, if present.
    pub fn local_pref(&self) -> Option<u32> {
        self.has(flag::LOCAL_PREF).then_some(self.local_pref)
    }

    /// COMMUNITIES, in order.
    pub fn communities(&self) -> impl Iterator<Item = u32> + '_ {
        let value = self.get_if(flag::COMMUNITIES, thalweg_wire::bgp::attribute::COMMUNITIES);
        value.as_chunks::<4>().0.iter().map(|four| u32::from_be_bytes(*four))
    }

    /// EXTENDED COMMUNITIES, in order.
    pub fn extended_communities(&self) -> impl Iterator<Item = u64> + '_ {
        let code = thalweg_wire::bgp::attribute::EXTENDED_COMMUNITIES;
        let value = self.get_if(flag::EXTENDED_COMMUNITIES, code);
        value.as_chunks::<8>().0.iter().map(|eight| u64::from_be_bytes(*eight))
    }

    /// LARGE_COMMUNITY, in order.
    pub fn large_communities(&self) -> impl Iterator<Item = [u32; 3]> + '_ {
        let value = self.get_if(flag::LARGE_COMMUNITIES, thalweg_wire::bgp::attribute::LARGE_COMMUNITIES);
        value.as_chunks::<12>().0.iter().map(|twelve| {
            let part =
                |at: usize| u32::from_be_bytes([twelve[at], twelve[at + 1], twelve[at + 2], twelve[at + 3]]);
            [part(0), part(4), part(8)]
        })
    }

    /// ORIGINATOR_ID, if present.
    pub fn originator_id(&self) -> Option<Ipv4Addr> {
        let value = self.get_if(flag::REFLECTED, thalweg_wire::bgp::attribute::ORIGINATOR_ID);
        <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
    }

    /// CLUSTER_LIST, nearest first.
    pub fn cluster_list(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let value = self.get_if(flag::REFLECTED, thalweg_wire::bgp::attribute::CLUSTER_LIST);
        value.as_chunks::<4>().0.iter().map(|four| Ipv4Addr::from(*four))
    }

    /// ONLY_TO_CUSTOMER, if present.
    pub fn only_to_customer(&self) -> Option<u32> {
        let value = self.get_if(flag::ONLY_TO_CUSTOMER, thalweg_wire::bgp::attribute::ONLY_TO_CUSTOMER);
        <[u8; 4]>::try_from(value).ok().map(u32::from_be_bytes)
    }

    /// Bytes of memory that the set takes, including the allocator's overhead.
    pub fn memory_bytes(&self) -> usize {
        const ALLOCATION_OVERHEAD: usize = 16;
        const COUNT: usize = 8;
        COUNT + size_of_val(self) + ALLOCATION_OVERHEAD
    }

    fn get_if(&self, bit: u16, code: u8) -> &[u8] {
        if self.flags & bit == 0 { &[] } else { self.get(code).unwrap_or(&[]) }
    }
}

impl fmt::Debug for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attrs")
            .field("origin", &self.origin)
            .field("as_path", &self.as_path().to_string())
            .field("next_hop", &self.next_hop())
            .field("med", &self.med())
            .field("local_pref", &self.local_pref())
            .field("weight", &self.weight)
            .field("attributes", &self.attributes().collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for AttrRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Decodes a next hop of 4, 16 or 32 bytes; other lengths are never stored.
fn next_hop(bytes: &[u8]) -> NextHop {
    NextHop::from_bytes(bytes).unwrap_or(NextHop::V4(Ipv4Addr::UNSPECIFIED))
}

#[cfg(test)]
mod tests;
