//! UPDATE messages, written as fast as memory takes them.
//!
//! Attributes are kept canonical (see [`crate::attrs`]), so most of them are copied as they are, in runs; what the
//! rules of [RFC 4271 5, 4456 8, 5065 4, 6793 4, 7606 5, 9234 5] change is changed on the way. The attributes of
//! a pack are put together once, in a [`Block`], and copied into each of its messages.
//!
//! Messages are written into a buffer that is longer than any message can still need, so that writing a prefix
//! is one store of eight bytes and an addition.

use thalweg_wire::bgp::{AS_TRANS, Attribute, Codec, Family, SegmentKind, attribute as code};

use super::audience::Audience;
use super::log::Segment;
use super::origins::{Origins, is_control_function, next_hop};
use super::view::ExportView;
use crate::attrs::{AsPath, Attrs, NextHop, flag};
use crate::peer::{PeerKind, Role};
use crate::route::RouteAddress;
use crate::session::config::PrivateAs;
use thalweg_base::Prefix;

const OPTIONAL: u8 = code::FLAG_OPTIONAL;
const TRANSITIVE: u8 = code::FLAG_TRANSITIVE;
const HEADER: usize = 19;
/// Header and the lengths of withdrawn routes and attributes.
const FIXED: usize = HEADER + 4;
/// MP_UNREACH_NLRI before its prefixes, its header's length being two.
const MP_UNREACH: usize = 4 + 3;
const UPDATE: u8 = 2;

/// A chunk is closed when it has this many bytes.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
const MESSAGE_MAX: usize = 65_535;
/// More than a prefix takes: path identifier, length, 16 bytes, and what an eight-byte store overhangs.
const SLACK: usize = 64;

/// Path attributes that are ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Block {
    /// All of them but MP_REACH_NLRI.
    bytes: Vec<u8>,
    /// Next hop for MP_REACH_NLRI; length 0: the next hop is in `bytes`.
    next_hop: [u8; 32],
    next_hop_length: u8,
}

impl Block {
    /// Bytes of MP_REACH_NLRI before its prefixes, its header's length being two.
    fn mp_overhead(&self) -> usize {
        if self.next_hop_length == 0 { 0 } else { 4 + 5 + usize::from(self.next_hop_length) }
    }

    /// The attributes but MP_REACH_NLRI.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of a message with one prefix.
    pub(super) fn message_length_min(&self, family: Family) -> usize {
        let prefix = if family == Family::Ipv4 { 9 } else { 21 };
        FIXED + self.bytes.len() + self.mp_overhead() + prefix
    }
}

/// Puts the attributes of an exported route together.
pub(super) fn attributes(
    view: &ExportView,
    family: Family,
    attrs: &Attrs,
    origins: Origins,
    block: &mut Block,
) {
    let out = &mut block.bytes;
    out.clear();
    out.extend_from_slice(&[TRANSITIVE, code::ORIGIN, 1, attrs.origin as u8]);
    let path_needs_four = as_path(view, attrs, origins.prepend, out);
    block.next_hop_length = 0;
    match next_hop(view, family, attrs, origins) {
        Some(NextHop::V4(address)) => {
            out.extend_from_slice(&[TRANSITIVE, code::NEXT_HOP, 4]);
            out.extend_from_slice(&address.octets());
        }
        Some(NextHop::V6 { global, link_local }) => {
            block.next_hop[..16].copy_from_slice(&global.octets());
            block.next_hop_length = 16;
            if let Some(address) = link_local {
                block.next_hop[16..].copy_from_slice(&address.octets());
                block.next_hop_length = 32;
            }
        }
        // The rules keep such a route back.
        None => {}
    }
    if let Some(med) = med(view, attrs, origins) {
        out.extend_from_slice(&[OPTIONAL, code::MED, 4]);
        out.extend_from_slice(&med.to_be_bytes());
    }
    if view.kind != PeerKind::External {
        out.extend_from_slice(&[TRANSITIVE, code::LOCAL_PREF, 4]);
        out.extend_from_slice(&attrs.local_pref.to_be_bytes());
    }
    let mut rest = Rest { view, attrs, origins, path_needs_four, added: 0 };
    rest.write(out);
}

/// Whether a route looks the same to neighbors with either of these attributes. Routes that differ in origin or path,
/// as nearly all do that change, are told apart before anything is put together.
#[inline]
pub(super) fn same(view: &ExportView, family: Family, old: &Attrs, new: &Attrs, origins: Origins) -> bool {
    if old.origin != new.origin || old.as_path().value() != new.as_path().value() {
        return false;
    }
    let (mut block, mut other) = (Block::default(), Block::default());
    attributes(view, family, old, origins, &mut block);
    attributes(view, family, new, origins, &mut other);
    block == other
}

/// MULTI_EXIT_DISC goes to our own AS and confederation, and to others only if it is ours: set by policy, or of a
/// route that originates here (RFC 4271 5.1.4). A route server passes it on.
fn med(view: &ExportView, attrs: &Attrs, origins: Origins) -> Option<u32> {
    let passes = view.kind != PeerKind::External
        || view.route_server.is_some()
        || origins.changed.med
        || origins.kind.is_none();
    attrs.med().filter(|_| passes)
}

/// What stands after LOCAL_PREF: copied in runs, with attributes left out, changed and added in their place.
struct Rest<'a> {
    view: &'a ExportView,
    attrs: &'a Attrs,
    origins: Origins,
    path_needs_four: bool,
    /// All additions up to this code are done.
    added: u8,
}

impl Rest<'_> {
    fn write(&mut self, out: &mut Vec<u8>) {
        let encoded = self.attrs.encoded();
        // A run of attributes that go out as they are: from..to.
        let (mut from, mut to) = (0, 0);
        for each in self.attrs.attributes() {
            let end = to + each.whole.len();
            let adds = self.adds_before(each.code);
            if adds || !self.passes_unchanged(each) {
                out.extend_from_slice(&encoded[from..to]);
                from = end;
                self.add_before(each.code, out);
                if self.passes_unchanged(each) {
                    out.extend_from_slice(each.whole);
                } else {
                    self.write_changed(each, out);
                }
            }
            to = end;
        }
        out.extend_from_slice(&encoded[from..to]);
        self.add_before(u8::MAX, out);
    }

    fn passes_unchanged(&self, each: Attribute<'_>) -> bool {
        let send = self.view.send_communities;
        let control = self.view.route_server.is_some_and(|rules| rules.control_as.is_some());
        match each.code {
            code::ATOMIC_AGGREGATE | code::ONLY_TO_CUSTOMER => true,
            code::AGGREGATOR => self.view.codec.four_octet_as,
            code::COMMUNITIES => send.standard && !control,
            code::LARGE_COMMUNITIES => send.large && !control,
            code::EXTENDED_COMMUNITIES => send.extended,
            _ => false,
        }
    }

    fn write_changed(&self, each: Attribute<'_>, out: &mut Vec<u8>) {
        let send = self.view.send_communities;
        match each.code {
            code::AGGREGATOR => write_aggregator_two(each, out),
            code::COMMUNITIES if send.standard => self.write_communities(each, out),
            code::LARGE_COMMUNITIES if send.large => self.write_large_communities(each, out),
            code::ORIGINATOR_ID | code::CLUSTER_LIST => {
                // A list that is to be longer by our cluster was written by `add_before`.
                let reflected = self.reflects();
                let keeps = self.view.kind.is_internal() && !(reflected && each.code == code::CLUSTER_LIST);
                if keeps {
                    out.extend_from_slice(each.whole);
                }
            }
            code::AS_PATH
            | code::AS4_PATH
            | code::AS4_AGGREGATOR
            | code::COMMUNITIES
            | code::EXTENDED_COMMUNITIES
            | code::LARGE_COMMUNITIES => {}
            // RFC 4271 section 5: what we do not know goes on with PARTIAL if it is transitive, else not at all.
            _ if each.flags & OPTIONAL == 0 => out.extend_from_slice(each.whole),
            _ if each.flags & TRANSITIVE != 0 => {
                out.push(each.flags | code::FLAG_PARTIAL);
                out.extend_from_slice(&each.whole[1..]);
            }
            _ => {}
        }
    }

    /// Whether the route is reflected: from one internal neighbor to another.
    fn reflects(&self) -> bool {
        self.view.kind.is_internal() && self.origins.is_internal()
    }

    fn adds_otc(&self) -> bool {
        // RFC 9234 section 5, egress rule 1.
        self.view.kind == PeerKind::External
            && matches!(self.view.role, Some(Role::Customer | Role::Peer | Role::RouteServerClient))
            && !self.attrs.has(flag::ONLY_TO_CUSTOMER)
    }

    fn four_octet_extra(&self) -> bool {
        !self.view.codec.four_octet_as
    }

    #[inline]
    fn adds_before(&self, next: u8) -> bool {
        (self.reflects() && self.added < code::CLUSTER_LIST && next >= code::ORIGINATOR_ID)
            || (self.four_octet_extra() && self.added < code::AS4_AGGREGATOR && next >= code::AS4_PATH)
            || (self.adds_otc() && self.added < code::ONLY_TO_CUSTOMER && next >= code::ONLY_TO_CUSTOMER)
    }

    /// Writes additions whose place is before an attribute of this code.
    fn add_before(&mut self, next: u8, out: &mut Vec<u8>) {
        if self.reflects() && self.added < code::ORIGINATOR_ID && next >= code::ORIGINATOR_ID {
            if self.attrs.originator_id().is_none() {
                write_attribute(OPTIONAL, code::ORIGINATOR_ID, &self.origins.router_id.octets(), out);
            }
            self.added = code::ORIGINATOR_ID;
        }
        if self.reflects() && self.added < code::CLUSTER_LIST && next >= code::CLUSTER_LIST {
            let old = if self.attrs.has(flag::REFLECTED) { self.attrs.get(code::CLUSTER_LIST) } else { None };
            let mut list = self.view.cluster_id.octets().to_vec();
            list.extend_from_slice(old.unwrap_or(&[]));
            write_attribute(OPTIONAL, code::CLUSTER_LIST, &list, out);
            self.added = code::CLUSTER_LIST;
        }
        if self.four_octet_extra() && self.added < code::AS4_AGGREGATOR && next >= code::AS4_PATH {
            self.add_four_octet(out);
            self.added = code::AS4_AGGREGATOR;
        }
        if self.adds_otc() && self.added < code::ONLY_TO_CUSTOMER && next >= code::ONLY_TO_CUSTOMER {
            let asn = self.view.local_as.to_be_bytes();
            write_attribute(OPTIONAL | TRANSITIVE, code::ONLY_TO_CUSTOMER, &asn, out);
            self.added = code::ONLY_TO_CUSTOMER;
        }
    }

    /// What two bytes cannot say (RFC 6793 4.2.2). Confederation segments have no place in AS4_PATH.
    fn add_four_octet(&self, out: &mut Vec<u8>) {
        if self.path_needs_four {
            let mut whole = Vec::new();
            path_value(self.view, self.attrs, self.origins.prepend, &mut whole);
            let mut value = Vec::with_capacity(whole.len());
            for segment in AsPath::new(&whole).segments().filter(|each| !each.kind.is_confederation()) {
                value.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
                segment.asns().for_each(|asn| value.extend_from_slice(&asn.to_be_bytes()));
            }
            write_attribute(OPTIONAL | TRANSITIVE, code::AS4_PATH, &value, out);
        }
        if let Some(value) = self.attrs.get(code::AGGREGATOR)
            && value.first_chunk::<2>().is_some_and(|high| *high != [0, 0])
        {
            write_attribute(OPTIONAL | TRANSITIVE, code::AS4_AGGREGATOR, value, out);
        }
    }

    /// Without communities that were for us, the route server.
    fn write_communities(&self, each: Attribute<'_>, out: &mut Vec<u8>) {
        let Some(asn) = self.view.route_server.and_then(|rules| rules.control_as) else { return };
        let kept = each.value.as_chunks::<4>().0.iter().filter(|four| {
            let high = u32::from(u16::from_be_bytes([four[0], four[1]]));
            high != 0 && high != asn
        });
        let value: Vec<u8> = kept.flatten().copied().collect();
        if !value.is_empty() {
            write_attribute(each.flags, each.code, &value, out);
        }
    }

    fn write_large_communities(&self, each: Attribute<'_>, out: &mut Vec<u8>) {
        let Some(asn) = self.view.route_server.and_then(|rules| rules.control_as) else { return };
        let kept = each.value.as_chunks::<12>().0.iter().filter(|twelve| {
            let [function, ..] = twelve[4..8].as_chunks::<4>().0 else { return true };
            let function = u32::from_be_bytes(*function);
            twelve[..4] != asn.to_be_bytes() || !is_control_function(function)
        });
        let value: Vec<u8> = kept.flatten().copied().collect();
        if !value.is_empty() {
            write_attribute(each.flags, each.code, &value, out);
        }
    }
}

/// AGGREGATOR with an AS number of two bytes.
fn write_aggregator_two(each: Attribute<'_>, out: &mut Vec<u8>) {
    let Some((asn, address)) = each.value.split_first_chunk::<4>() else { return };
    let mut value = two_bytes(u32::from_be_bytes(*asn)).to_be_bytes().to_vec();
    value.extend_from_slice(address);
    write_attribute(each.flags, each.code, &value, out);
}

fn two_bytes(asn: u32) -> u16 {
    u16::try_from(asn).unwrap_or(AS_TRANS)
}

/// Appends an attribute; one too long to be one is cut off by the check of the message's length.
fn write_attribute(flags: u8, code: u8, value: &[u8], out: &mut Vec<u8>) {
    write_header(flags, code, value.len(), out);
    out.extend_from_slice(value);
}

fn write_header(flags: u8, code: u8, length: usize, out: &mut Vec<u8>) {
    let flags = flags & !code::FLAG_EXTENDED;
    match u8::try_from(length) {
        Ok(length) => out.extend_from_slice(&[flags, code, length]),
        Err(_) => {
            out.extend_from_slice(&[flags | code::FLAG_EXTENDED, code]);
            out.extend_from_slice(&(length.min(MESSAGE_MAX) as u16).to_be_bytes());
        }
    }
}

/// Writes AS_PATH. Whether it has numbers that two bytes could not hold, where they are to.
fn as_path(view: &ExportView, attrs: &Attrs, prepend: u8, out: &mut Vec<u8>) -> bool {
    let old = attrs.as_path().value();
    let external = view.kind == PeerKind::External;
    let plain = external
        && view.route_server.is_none()
        && view.codec.four_octet_as
        && view.private_as == PrivateAs::Keep
        && !view.as_override
        && !attrs.has(flag::CONFEDERATION);
    // By far the most frequent: our AS before the first sequence.
    if let (true, Some((&[kind, count], members))) = (plain, old.split_first_chunk::<2>())
        && kind == SegmentKind::Sequence as u8
        && count < u8::MAX
    {
        write_header(TRANSITIVE, code::AS_PATH, old.len() + 4, out);
        out.extend_from_slice(&[kind, count + 1]);
        out.extend_from_slice(&view.local_as.to_be_bytes());
        out.extend_from_slice(members);
        return false;
    }
    let mut value = Vec::with_capacity(old.len() + 8);
    path_value(view, attrs, prepend, &mut value);
    if view.codec.four_octet_as {
        write_attribute(TRANSITIVE, code::AS_PATH, &value, out);
        return false;
    }
    let mut short = Vec::with_capacity(value.len());
    let mut needs_four = false;
    for segment in AsPath::new(&value).segments() {
        short.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
        for asn in segment.asns() {
            needs_four |= asn > u32::from(u16::MAX) && !segment.kind.is_confederation();
            short.extend_from_slice(&two_bytes(asn).to_be_bytes());
        }
    }
    write_attribute(TRANSITIVE, code::AS_PATH, &short, out);
    needs_four
}

/// The path as it goes out, in four bytes. A route server prepends the AS of the
/// client that sent the route.
fn path_value(view: &ExportView, attrs: &Attrs, prepend: u8, out: &mut Vec<u8>) {
    let path = attrs.as_path();
    let (count, asn, kind) = match view.kind {
        PeerKind::External if view.route_server.is_some() => {
            (prepend, attrs.neighbor_as, SegmentKind::Sequence)
        }
        PeerKind::External => (1, view.local_as, SegmentKind::Sequence),
        PeerKind::Confederation => (1, view.local_as, SegmentKind::ConfederationSequence),
        PeerKind::Internal | PeerKind::InternalClient => (0, view.local_as, SegmentKind::Sequence),
    };
    if view.kind == PeerKind::External {
        for segment in path.segments().filter(|each| !each.kind.is_confederation()) {
            let asns: Vec<u32> = segment.asns().filter_map(|asn| external_as(view, asn)).collect();
            if !asns.is_empty() {
                out.extend_from_slice(&[segment.kind as u8, asns.len() as u8]);
                asns.iter().for_each(|asn| out.extend_from_slice(&asn.to_be_bytes()));
            }
        }
    } else {
        out.extend_from_slice(path.value());
    }
    for _ in 0..count {
        prepend_one(asn, kind, out);
    }
}

/// Into the first segment where it fits, else into a new one.
fn prepend_one(asn: u32, kind: SegmentKind, out: &mut Vec<u8>) {
    match out.first_chunk::<2>() {
        Some(&[first, count]) if first == kind as u8 && count < u8::MAX => {
            out[1] = count + 1;
            out.splice(2..2, asn.to_be_bytes());
        }
        _ => {
            let [a, b, c, d] = asn.to_be_bytes();
            out.splice(0..0, [kind as u8, 1, a, b, c, d]);
        }
    }
}

/// An AS of the path as an external neighbor sees it.
fn external_as(view: &ExportView, asn: u32) -> Option<u32> {
    const PRIVATE_TWO: std::ops::RangeInclusive<u32> = 64_512..=65_534;
    const PRIVATE_FOUR: std::ops::RangeInclusive<u32> = 4_200_000_000..=4_294_967_294;
    if view.as_override && view.remote_as == Some(asn) {
        return Some(view.local_as);
    }
    match PRIVATE_TWO.contains(&asn) || PRIVATE_FOUR.contains(&asn) {
        true if view.private_as == PrivateAs::Remove => None,
        true if view.private_as == PrivateAs::Replace => Some(view.local_as),
        _ => Some(asn),
    }
}

/// Writing a prefix of either family; `out` has room for [`SLACK`] bytes.
pub(super) trait NlriAddress: RouteAddress {
    /// Writes it at the beginning of `out`; how many bytes it takes.
    fn put(prefix: Prefix<Self>, out: &mut [u8]) -> usize
    where
        Self: Sized;
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

/// Messages and whom they are for.
pub(super) type Written = (Box<[u8]>, Box<[Segment]>);

/// Writes messages, one after the other, and remembers whom they are for.
pub(super) struct Encoder {
    /// Grows with what is written and becomes the chunk, so that an idle encoder holds none: there may be
    /// hundreds of groups.
    buffer: Vec<u8>,
    at: usize,
    /// The last chunk was a full one: the next may be too.
    busy: bool,
    segments: Vec<Segment>,
    limit: usize,
    add_path: [bool; 2],
    /// Messages written, ever.
    pub(super) messages: u64,
}

impl Encoder {
    pub(super) fn new(codec: Codec, limit: usize) -> Self {
        let add_path = codec.add_path_send;
        Self { buffer: Vec::new(), at: 0, busy: false, segments: Vec::new(), limit, add_path, messages: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.at >= CHUNK_BYTES
    }

    /// What was written, and an empty buffer again.
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

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Makes room for a message of this many bytes, or as many as messages have.
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        let needed = self.at + bytes.min(self.limit) + 2 * SLACK;
        if self.buffer.len() < needed {
            self.grow(needed);
        }
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let most = CHUNK_BYTES + self.limit + 2 * SLACK;
        let length = if self.busy { most } else { (2 * self.buffer.len()).min(most) };
        let length = length.max(needed);
        if self.buffer.is_empty() {
            // Comes zeroed from the allocator, at no cost where it is large.
            self.buffer = vec![0; length];
        } else {
            self.buffer.resize(length, 0);
        }
    }

    /// Bytes that these prefixes take at most.
    #[inline]
    fn bytes_max<A: NlriAddress>(prefixes: &impl Iterator<Item = Nlri<A>>) -> usize {
        let each = if A::FAMILY == Family::Ipv4 { 9 } else { 21 };
        prefixes.size_hint().1.map_or(usize::MAX, |count| count.saturating_mul(each))
    }

    /// One message that announces prefixes, as many of them as it holds.
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
            self.put(&[OPTIONAL | code::FLAG_EXTENDED, code::MP_REACH_NLRI, 0, 0]);
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

    /// One message that withdraws prefixes, as many of them as it holds.
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

    /// End-of-RIB (RFC 4724 section 2).
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

    /// ROUTE-REFRESH of a subtype: 1 BoRR, 2 EoRR (RFC 7313).
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
        self.put(&[OPTIONAL | code::FLAG_EXTENDED, code::MP_UNREACH_NLRI, 0, 0]);
        self.put(&afi.to_be_bytes());
        self.put(&[safi]);
        mp
    }

    /// Header and an empty list of withdrawn routes.
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

    /// Sets the length of the MP attribute that begins at `mp`. Up to 255 bytes take the short form, as RFC 4271
    /// 4.3 says.
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

    /// Ends a message; `updates`: whether it is an UPDATE.
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
