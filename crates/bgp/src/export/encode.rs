//! Writes UPDATE messages as fast as memory allows. The attributes of a pack are built once, in a [`Block`], and
//! copied into each of its messages.
//!
//! The buffer is longer than any message can still need, so writing a prefix is one store of eight bytes and an
//! addition.

use thalweg_base::Prefix;
use thalweg_wire::bgp::{Codec, Family, attribute as code};

use super::attributes::Block;
use super::audience::Audience;
use super::log::Segment;
use crate::route::RouteAddress;

const HEADER: usize = 19;
/// The header and the lengths of withdrawn routes and attributes.
const FIXED: usize = HEADER + 4;
/// MP_UNREACH_NLRI before its prefixes, with an extended length.
const MP_UNREACH: usize = 4 + 3;
const UPDATE: u8 = 2;

/// A block with this many bytes is closed.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// More than a prefix takes: path identifier, length, 16 bytes, and the overhang of an eight-byte store.
const SLACK: usize = 64;

impl Block {
    /// Bytes of MP_REACH_NLRI before its prefixes, with an extended length.
    fn mp_overhead(&self) -> usize {
        if self.next_hop_length == 0 { 0 } else { 4 + 5 + usize::from(self.next_hop_length) }
    }

    /// The length of a message with one prefix.
    pub(super) fn message_length_min(&self, family: Family) -> usize {
        let prefix = if family == Family::Ipv4 { 9 } else { 21 };
        FIXED + self.bytes.len() + self.mp_overhead() + prefix
    }
}

/// Writes a prefix of either family into a buffer with [`SLACK`] bytes.
pub(super) trait NlriAddress: RouteAddress {
    /// Writes the prefix at the beginning of `out`; returns its length.
    fn put(prefix: Prefix<Self>, out: &mut [u8]) -> usize;
}

impl NlriAddress for u32 {
    #[inline(always)]
    fn put(prefix: Prefix<u32>, out: &mut [u8]) -> usize {
        let word = u64::from(prefix.length()) << 56 | u64::from(prefix.address()) << 24;
        out[..8].copy_from_slice(&word.to_be_bytes());
        1 + usize::from(prefix.length()).div_ceil(8)
    }
}

impl NlriAddress for u128 {
    #[inline(always)]
    fn put(prefix: Prefix<u128>, out: &mut [u8]) -> usize {
        out[0] = prefix.length();
        out[1..17].copy_from_slice(&prefix.address().to_be_bytes());
        1 + usize::from(prefix.length()).div_ceil(8)
    }
}

/// A prefix to announce or withdraw, with its path identifier.
pub(super) type Nlri<A> = (Prefix<A>, u32);

/// Messages and their audiences.
pub(super) type Written = (Box<[u8]>, Box<[Segment]>);

/// Writes messages one after the other, with their audiences.
pub(super) struct Encoder {
    /// Grows with the messages and becomes the block, so that an idle encoder holds no memory: there may be
    /// hundreds of groups.
    buffer: Vec<u8>,
    at: usize,
    /// The last block was full, so the next one may be too.
    busy: bool,
    segments: Vec<Segment>,
    limit: usize,
    add_path: [bool; 2],
    /// The number of messages ever written.
    pub(super) messages: u64,
}

impl Encoder {
    pub(super) fn new(codec: Codec, limit: usize) -> Self {
        let add_path = codec.add_path_send;
        Self { buffer: Vec::new(), at: 0, busy: false, segments: Vec::new(), limit, add_path, messages: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.at >= BLOCK_BYTES
    }

    /// Takes the written messages and leaves an empty buffer.
    pub(super) fn take(&mut self) -> Option<Written> {
        if self.at == 0 {
            return None;
        }
        self.busy = self.is_full();
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.truncate(self.at);
        self.at = 0;
        Some((bytes.into(), std::mem::take(&mut self.segments).into()))
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reserves memory for a message of this many bytes, or of the negotiated maximum.
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        let needed = self.at + bytes.min(self.limit) + 2 * SLACK;
        if self.buffer.len() < needed {
            self.grow(needed);
        }
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let most = BLOCK_BYTES + self.limit + 2 * SLACK;
        let length = if self.busy { most } else { (2 * self.buffer.len()).min(most) };
        let length = length.max(needed);
        if self.buffer.is_empty() {
            // The allocator returns zeroed memory, at no cost for large buffers.
            self.buffer = vec![0; length];
        } else {
            self.buffer.resize(length, 0);
        }
    }

    /// The most bytes that these prefixes take.
    #[inline]
    fn bytes_max<A: NlriAddress>(prefixes: &impl Iterator<Item = Nlri<A>>) -> usize {
        let each = if A::FAMILY == Family::Ipv4 { 9 } else { 21 };
        prefixes.size_hint().1.map_or(usize::MAX, |count| count.saturating_mul(each))
    }

    /// Writes one message that announces as many of the prefixes as it holds.
    pub(super) fn announce<A: NlriAddress>(
        &mut self,
        block: &Block,
        prefixes: &mut std::iter::Peekable<impl Iterator<Item = Nlri<A>>>,
        audience: &Audience,
    ) {
        let start = self.at;
        let attributes = block.bytes.len() + block.mp_overhead();
        self.reserve((FIXED + attributes).saturating_add(Self::bytes_max(prefixes)));
        self.begin();
        self.at += 2;
        let attributes = self.at;
        let mut mp = None;
        if block.next_hop_length == 0 {
            self.put(&block.bytes);
            self.put_u16(attributes - 2, self.at - attributes);
        } else {
            mp = Some(self.at);
            let (afi, safi) = A::FAMILY.afi_safi();
            self.put(&[code::FLAG_OPTIONAL | code::FLAG_EXTENDED, code::MP_REACH_NLRI, 0, 0]);
            self.put(&afi.to_be_bytes());
            self.put(&[safi, block.next_hop_length]);
            self.put(&block.next_hop[..usize::from(block.next_hop_length)]);
            self.put(&[0]);
        }
        let end = start + self.limit - if mp.is_some() { block.bytes.len() } else { 0 };
        self.put_prefixes(prefixes, end);
        if let Some(mp) = mp {
            self.close_mp(mp);
            self.put(&block.bytes);
            self.put_u16(attributes - 2, self.at - attributes);
        }
        self.end(start, 1, audience);
    }

    /// Writes one message that withdraws as many of the prefixes as it holds.
    pub(super) fn withdraw<A: NlriAddress>(
        &mut self,
        prefixes: &mut std::iter::Peekable<impl Iterator<Item = Nlri<A>>>,
        audience: &Audience,
    ) {
        let start = self.at;
        self.reserve((FIXED + MP_UNREACH).saturating_add(Self::bytes_max(prefixes)));
        self.begin();
        let end = start + self.limit;
        if A::FAMILY == Family::Ipv4 {
            let withdrawn = self.at;
            self.put_prefixes(prefixes, end - 2);
            self.put_u16(withdrawn - 2, self.at - withdrawn);
            self.put(&[0, 0]);
        } else {
            self.at += 2;
            let mp = self.begin_mp_unreach(A::FAMILY);
            self.put_prefixes(prefixes, end);
            self.close_mp(mp);
            self.put_u16(mp - 2, self.at - mp);
        }
        self.end(start, 1, audience);
    }

    /// Writes End-of-RIB (RFC 4724 section 2).
    pub(super) fn end_of_rib(&mut self, family: Family, audience: &Audience) {
        let start = self.at;
        self.reserve(FIXED + MP_UNREACH);
        self.begin();
        self.put(&[0, 0]);
        if family == Family::Ipv6 {
            let mp = self.begin_mp_unreach(family);
            self.close_mp(mp);
            self.put_u16(mp - 2, self.at - mp);
        }
        self.end(start, 1, audience);
    }

    /// Writes a ROUTE-REFRESH with a subtype: 1 BoRR, 2 EoRR (RFC 7313).
    pub(super) fn refresh(&mut self, family: Family, subtype: u8, audience: &Audience) {
        let start = self.at;
        let (afi, safi) = family.afi_safi();
        self.reserve(FIXED);
        self.put(&[0xff; 16]);
        self.put(&[0, 23, 5]);
        self.put(&afi.to_be_bytes());
        self.put(&[subtype, safi]);
        self.end(start, 0, audience);
    }

    fn begin_mp_unreach(&mut self, family: Family) -> usize {
        let mp = self.at;
        let (afi, safi) = family.afi_safi();
        self.put(&[code::FLAG_OPTIONAL | code::FLAG_EXTENDED, code::MP_UNREACH_NLRI, 0, 0]);
        self.put(&afi.to_be_bytes());
        self.put(&[safi]);
        mp
    }

    /// Writes the header and an empty list of withdrawn routes.
    #[inline]
    fn begin(&mut self) {
        const BEGIN: [u8; HEADER + 2] = {
            let mut begin = [0xff; HEADER + 2];
            (begin[16], begin[17], begin[18], begin[19], begin[20]) = (0, 0, UPDATE, 0, 0);
            begin
        };
        self.put(&BEGIN);
        self.messages += 1;
    }

    #[inline]
    fn put_prefixes<A: NlriAddress>(
        &mut self,
        prefixes: &mut std::iter::Peekable<impl Iterator<Item = Nlri<A>>>,
        end: usize,
    ) {
        let add_path = self.add_path[A::FAMILY.index()];
        let mut at = self.at;
        while let Some(&(prefix, path_id)) = prefixes.peek() {
            let length = 1 + usize::from(prefix.length()).div_ceil(8) + if add_path { 4 } else { 0 };
            if at + length > end {
                break;
            }
            if add_path {
                self.buffer[at..at + 4].copy_from_slice(&path_id.to_be_bytes());
                at += 4;
            }
            at += A::put(prefix, &mut self.buffer[at..at + SLACK]);
            prefixes.next();
        }
        self.at = at;
    }

    /// Sets the length of the MP attribute that begins at `mp`. Up to 255 bytes use the short form, as RFC 4271 4.3
    /// says.
    fn close_mp(&mut self, mp: usize) {
        let length = self.at - mp - 4;
        if let Ok(short) = u8::try_from(length) {
            self.buffer.copy_within(mp + 4..self.at, mp + 3);
            self.buffer[mp] &= !code::FLAG_EXTENDED;
            self.buffer[mp + 2] = short;
            self.at -= 1;
        } else {
            self.put_u16(mp + 2, length);
        }
    }

    /// Ends a message; `updates` is 1 for an UPDATE.
    fn end(&mut self, start: usize, updates: u32, audience: &Audience) {
        debug_assert!(self.at - start <= self.limit, "{} bytes", self.at - start);
        self.put_u16(start + 16, self.at - start);
        match self.segments.last_mut() {
            Some(last) if last.audience == *audience => {
                last.end = self.at as u32;
                last.updates += updates;
            }
            _ => self.segments.push(Segment { updates, end: self.at as u32, audience: audience.clone() }),
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    fn put_u16(&mut self, at: usize, value: usize) {
        self.buffer[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
    }
}
