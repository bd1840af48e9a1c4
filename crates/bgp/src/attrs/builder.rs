//! Builds attribute sets, from a message or from another set that a policy changes.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use thalweg_wire::bgp::{
    AsPath, Attribute, Attributes, Origin, SegmentKind, attribute, community, prepend_as, write_attribute,
};

use super::{Attrs, Head, LOCAL_PREF_DEFAULT, NextHop, flag};

/// Builds an attribute set. Each worker keeps one and reuses it, so building does not allocate; an
/// [`Interner`](super::Interner) turns the result into an [`AttrRef`](super::AttrRef).
#[derive(Clone, Debug)]
pub struct AttrsBuilder {
    pub origin: Origin,
    /// NEXT_HOP, or the next hop of MP_REACH_NLRI.
    pub next_hop: NextHop,
    pub med: Option<u32>,
    pub local_pref: Option<u32>,
    /// Preference local to this router.
    pub weight: u32,
    /// The router discards traffic for the route.
    pub discard: bool,
    /// Attributes in canonical wire form, ascending, without those in fields.
    encoded: Vec<u8>,
    last_code: u8,
    /// Next hop and attributes together, as they are stored.
    stored: Vec<u8>,
}

/// Why attributes cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttrsError {
    /// A value is longer than an attribute can be.
    #[error("attribute {code} would take {length} bytes; an attribute has at most 65535")]
    TooLong {
        /// The attribute.
        code: u8,
        length: usize,
    },
}

impl Default for AttrsBuilder {
    fn default() -> Self {
        Self {
            origin: Origin::Igp,
            next_hop: NextHop::V4(std::net::Ipv4Addr::UNSPECIFIED),
            med: None,
            local_pref: None,
            weight: 0,
            discard: false,
            encoded: Vec::new(),
            last_code: 0,
            stored: Vec::new(),
        }
    }
}

impl AttrsBuilder {
    /// Resets the builder: ORIGIN IGP, no next hop, no other attributes.
    pub fn clear(&mut self) {
        let (mut encoded, stored) = (std::mem::take(&mut self.encoded), std::mem::take(&mut self.stored));
        encoded.clear();
        *self = Self { encoded, stored, ..Self::default() };
    }

    /// Copies an existing set into the builder.
    pub fn load(&mut self, attrs: &Attrs) {
        self.origin = attrs.origin;
        self.next_hop = attrs.next_hop();
        self.med = attrs.med();
        self.local_pref = attrs.local_pref();
        self.weight = attrs.weight;
        self.discard = attrs.has(flag::DISCARD);
        self.encoded.clear();
        self.encoded.extend_from_slice(attrs.encoded());
        self.last_code = attrs.attributes().last().map_or(0, |last| last.code);
    }

    /// The encoded attributes so far, in order of type.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::new(&self.encoded)
    }

    /// The value of an encoded attribute.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.attributes().find(|each| each.code == code).map(|each| each.value)
    }

    /// The AS_PATH so far.
    pub fn as_path(&self) -> AsPath<'_> {
        AsPath::new(self.get(attribute::AS_PATH).unwrap_or(&[]))
    }

    /// Sets or replaces an attribute. The length determines the extended-length flag.
    pub fn set(&mut self, flags: u8, code: u8, value: &[u8]) -> Result<(), AttrsError> {
        if value.len() > usize::from(u16::MAX) {
            return Err(AttrsError::TooLong { code, length: value.len() });
        }
        if code > self.last_code || self.encoded.is_empty() {
            write_attribute(&mut self.encoded, flags, code, value);
            self.last_code = code;
            return Ok(());
        }
        let at = self.remove_and_place(code);
        let mut whole = Vec::with_capacity(value.len() + 4);
        write_attribute(&mut whole, flags, code, value);
        self.encoded.splice(at..at, whole);
        self.last_code = self.last_code.max(code);
        Ok(())
    }

    /// Removes an attribute, if present.
    pub fn remove(&mut self, code: u8) {
        if code > self.last_code {
            return;
        }
        self.remove_and_place(code);
        self.last_code = self.attributes().last().map_or(0, |last| last.code);
    }

    /// Prepends `asn` to the AS_PATH `count` times, as a sequence or a confederation sequence.
    pub fn prepend(&mut self, asn: u32, count: usize, kind: SegmentKind) -> Result<(), AttrsError> {
        let mut path = self.get(attribute::AS_PATH).unwrap_or(&[]).to_vec();
        for _ in 0..count {
            prepend_as(&mut path, asn, kind);
        }
        self.set(attribute::FLAG_TRANSITIVE, attribute::AS_PATH, &path)
    }

    /// Replaces all communities; an empty list removes the attribute.
    pub fn set_communities(&mut self, communities: &[u32]) -> Result<(), AttrsError> {
        self.set_list(attribute::COMMUNITIES, communities.iter().flat_map(|each| each.to_be_bytes()))
    }

    /// Replaces all extended communities; an empty list removes the attribute.
    pub fn set_extended_communities(&mut self, communities: &[u64]) -> Result<(), AttrsError> {
        self.set_list(attribute::EXTENDED_COMMUNITIES, communities.iter().flat_map(|each| each.to_be_bytes()))
    }

    /// Replaces all large communities; an empty list removes the attribute.
    pub fn set_large_communities(&mut self, communities: &[[u32; 3]]) -> Result<(), AttrsError> {
        let bytes = communities.iter().flatten().flat_map(|each| each.to_be_bytes());
        self.set_list(attribute::LARGE_COMMUNITIES, bytes)
    }

    fn set_list(&mut self, code: u8, bytes: impl Iterator<Item = u8>) -> Result<(), AttrsError> {
        let value: Vec<u8> = bytes.collect();
        if value.is_empty() {
            self.remove(code);
            return Ok(());
        }
        self.set(attribute::FLAG_OPTIONAL | attribute::FLAG_TRANSITIVE, code, &value)
    }

    /// Removes the attribute and returns the offset where one with this code belongs.
    fn remove_and_place(&mut self, code: u8) -> usize {
        let mut at = 0;
        for each in Attributes::new(&self.encoded) {
            let length = each.whole.len();
            if each.code == code {
                self.encoded.drain(at..at + length);
                return at;
            }
            if each.code > code {
                return at;
            }
            at += length;
        }
        at
    }

    /// Completes the set: its head, with the hash, and the bytes to store.
    pub(super) fn seal(&mut self, seed: u64) -> (Head, &[u8]) {
        self.stored.clear();
        match self.next_hop {
            NextHop::V4(address) => self.stored.extend_from_slice(&address.octets()),
            NextHop::V6 { global, link_local } => {
                self.stored.extend_from_slice(&global.octets());
                if let Some(address) = link_local {
                    self.stored.extend_from_slice(&address.octets());
                }
            }
        }
        let next_hop_length = self.stored.len() as u8;
        self.stored.extend_from_slice(&self.encoded);
        let mut head = Head {
            hash: 0,
            weight: self.weight,
            local_pref: self.local_pref.unwrap_or(LOCAL_PREF_DEFAULT),
            med: self.med.unwrap_or(0),
            neighbor_as: 0,
            origin_as: 0,
            path_length: 0,
            flags: 0,
            origin: self.origin,
            next_hop_length,
            // 255 attributes of 64 KiB fit.
            length: u32::try_from(self.stored.len()).unwrap_or(u32::MAX),
        };
        head.flags |= if self.med.is_some() { flag::MED } else { 0 };
        head.flags |= if self.local_pref.is_some() { flag::LOCAL_PREF } else { 0 };
        head.flags |= if self.discard { flag::DISCARD } else { 0 };
        for each in Attributes::new(&self.encoded) {
            describe(&mut head, each);
        }
        let mut hasher = FixedState::with_seed(seed).build_hasher();
        hasher.write(&self.stored);
        hasher.write_u64(u64::from(head.weight) << 32 | u64::from(head.local_pref));
        hasher.write_u64(u64::from(head.med) << 32 | u64::from(head.flags) << 8 | head.origin as u64);
        head.hash = hasher.finish();
        (head, &self.stored)
    }
}

/// Derives the head's fields from an attribute.
fn describe(head: &mut Head, each: Attribute<'_>) {
    match each.code {
        attribute::AS_PATH => describe_path(head, AsPath::new(each.value)),
        attribute::COMMUNITIES => {
            head.flags |= flag::COMMUNITIES;
            for four in each.value.as_chunks::<4>().0 {
                head.flags |= match u32::from_be_bytes(*four) {
                    community::NO_EXPORT => flag::NO_EXPORT,
                    community::NO_ADVERTISE => flag::NO_ADVERTISE,
                    community::NO_EXPORT_SUBCONFED => flag::NO_EXPORT_SUBCONFED,
                    community::GRACEFUL_SHUTDOWN => flag::GRACEFUL_SHUTDOWN,
                    community::BLACKHOLE => flag::BLACKHOLE,
                    _ => 0,
                };
            }
        }
        attribute::EXTENDED_COMMUNITIES => head.flags |= flag::EXTENDED_COMMUNITIES,
        attribute::LARGE_COMMUNITIES => head.flags |= flag::LARGE_COMMUNITIES,
        attribute::ORIGINATOR_ID | attribute::CLUSTER_LIST => head.flags |= flag::REFLECTED,
        attribute::ONLY_TO_CUSTOMER => head.flags |= flag::ONLY_TO_CUSTOMER,
        _ => {}
    }
    if each.flags & attribute::FLAG_OPTIONAL != 0 && each.flags & attribute::FLAG_TRANSITIVE == 0 {
        head.flags |= flag::NON_TRANSITIVE;
    }
}

fn describe_path(head: &mut Head, path: AsPath<'_>) {
    let mut neighbor = None;
    for segment in path.segments() {
        let mut asns = segment.asns();
        if segment.kind.is_confederation() {
            head.flags |= flag::CONFEDERATION;
        } else {
            let counted = if segment.kind.is_set() { 1 } else { asns.len() as u16 };
            head.path_length = head.path_length.saturating_add(counted);
            let (first, last) = match segment.kind.is_set() {
                true => (0, 0),
                false => (segment.asns().next().unwrap_or(0), asns.next_back().unwrap_or(0)),
            };
            neighbor = neighbor.or(Some(first));
            head.origin_as = last;
        }
        head.flags |= if segment.kind.is_set() { flag::AS_SET } else { 0 };
    }
    head.neighbor_as = neighbor.unwrap_or(0);
}
