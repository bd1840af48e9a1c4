//! Builds the path attributes that a neighbor is sent for a route.
//!
//! Stored attributes are canonical (see [`crate::attrs`]), so most are copied unchanged, in runs. The table of path
//! attributes decides which neighbor gets which (`crates/wire/src/bgp/attributes.rs`). This module changes and adds
//! attributes (RFC 4271 5, 4456 8, 5065 4, 6793 4, 9234 5).

use thalweg_wire::bgp::{
    AsPath, Attribute, Export, Family, NextHop, PeerSide, SegmentKind, attribute as code, narrow_as_path,
    prepend_as, recognized_attribute, write_attribute,
};

use super::origins::{Origins, is_control_function, next_hop};
use super::view::ExportView;
use crate::attrs::{Attrs, flag};
use crate::peer::{PeerKind, Role};
use crate::session::config::PrivateAs;

const OPTIONAL: u8 = code::FLAG_OPTIONAL;
const TRANSITIVE: u8 = code::FLAG_TRANSITIVE;

/// Encoded path attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Block {
    /// All except MP_REACH_NLRI.
    pub(super) bytes: Vec<u8>,
    /// For MP_REACH_NLRI. If its length is 0, the next hop is in `bytes`.
    pub(super) next_hop: [u8; 32],
    pub(super) next_hop_length: u8,
}

/// Builds the attributes of an exported route.
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
    let as4_path = as_path(view, attrs, origins.prepend, out);
    block.next_hop_length = 0;
    match next_hop(view, family, attrs, origins) {
        Some(NextHop::V4(address)) => {
            let [a, b, c, d] = address.octets();
            out.extend_from_slice(&[TRANSITIVE, code::NEXT_HOP, 4, a, b, c, d]);
        }
        Some(NextHop::V6 { global, link_local }) => {
            block.next_hop[..16].copy_from_slice(&global.octets());
            block.next_hop_length = 16;
            if let Some(address) = link_local {
                block.next_hop[16..].copy_from_slice(&address.octets());
                block.next_hop_length = 32;
            }
        }
        // The rules reject such a route.
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
    let reflects = view.kind.is_internal() && origins.is_internal();
    let control_as = view.route_server.and_then(|rules| rules.control_as);
    Rest { view, attrs, origins, side: view.kind.side(), reflects, control_as, as4_path }.write(out);
}

/// Whether a route with `old` and one with `new` look the same to neighbors. Most changed routes differ in origin
/// or path, so these are compared before anything is built.
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

/// MULTI_EXIT_DISC is sent within our AS and confederation, and to others only if it is ours: set by policy, or of
/// a route that originates here (RFC 4271 5.1.4). A route server passes it on.
fn med(view: &ExportView, attrs: &Attrs, origins: Origins) -> Option<u32> {
    let passes = view.kind != PeerKind::External
        || view.route_server.is_some()
        || origins.changed.med
        || origins.kind.is_none();
    attrs.med().filter(|_| passes)
}

/// Writes AS_PATH. Returns the AS4_PATH that must accompany it, or nothing.
fn as_path(view: &ExportView, attrs: &Attrs, prepend: u8, out: &mut Vec<u8>) -> Vec<u8> {
    let old = attrs.as_path().value();
    let external = view.kind == PeerKind::External;
    let plain = external
        && view.route_server.is_none()
        && view.codec.four_octet_as
        && view.private_as == PrivateAs::Keep
        && !view.as_override
        && !attrs.has(flag::CONFEDERATION);
    // By far the most frequent case: prepend our AS to the first sequence.
    if let (true, Some((&[kind, count], members))) = (plain, old.split_first_chunk::<2>())
        && kind == SegmentKind::Sequence as u8
        && count < u8::MAX
        && let Ok(length) = u8::try_from(old.len() + 4)
    {
        let [a, b, c, d] = view.local_as.to_be_bytes();
        out.extend_from_slice(&[TRANSITIVE, code::AS_PATH, length, kind, count + 1, a, b, c, d]);
        out.extend_from_slice(members);
        return Vec::new();
    }
    let mut value = Vec::with_capacity(old.len() + 8);
    path_value(view, attrs, prepend, &mut value);
    let mut as4_path = Vec::new();
    if !view.codec.four_octet_as {
        let whole = std::mem::take(&mut value);
        narrow_as_path(AsPath::new(&whole), &mut value, &mut as4_path);
    }
    write_attribute(out, TRANSITIVE, code::AS_PATH, &value);
    as4_path
}

/// The outgoing path in four-octet form. A route server prepends the AS of the client that sent the route.
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
        prepend_as(out, asn, kind);
    }
}

/// An AS of the path as an external neighbor sees it; `None` removes it.
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

/// The attributes after LOCAL_PREF.
struct Rest<'a> {
    view: &'a ExportView,
    attrs: &'a Attrs,
    origins: Origins,
    side: PeerSide,
    /// The route goes from one internal neighbor to another.
    reflects: bool,
    /// The AS whose communities control a route server.
    control_as: Option<u32>,
    as4_path: Vec<u8>,
}

impl Rest<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let encoded = self.attrs.encoded();
        let mut added = self.added();
        // A run of unchanged attributes: from..to.
        let (mut from, mut to) = (0, 0);
        for each in self.attrs.attributes() {
            if added.trailing_zeros() <= u32::from(each.code) {
                out.extend_from_slice(&encoded[from..to]);
                from = to;
                self.add_up_to(each.code, &mut added, out);
            }
            let end = to + each.whole.len();
            let export = self.export(each);
            if export != Export::Keep {
                out.extend_from_slice(&encoded[from..to]);
                from = end;
            }
            if export == Export::Rewrite {
                self.rewrite(each, out);
            }
            to = end;
        }
        out.extend_from_slice(&encoded[from..to]);
        if added != 0 {
            self.add_up_to(u8::MAX, &mut added, out);
        }
    }

    /// Decides what happens to an attribute that the route has.
    #[inline]
    fn export(&self, each: Attribute<'_>) -> Export {
        let Some(row) = recognized_attribute(each.code) else {
            // RFC 4271 section 5: an unrecognized attribute is passed on with PARTIAL if it is transitive,
            // otherwise dropped.
            return match (each.flags & OPTIONAL != 0, each.flags & TRANSITIVE != 0) {
                (false, _) => Export::Keep,
                (true, true) => Export::Rewrite,
                (true, false) => Export::Drop,
            };
        };
        match row.export_to(self.side) {
            Export::Keep if !self.view.codec.four_octet_as && row.encode_two_octet().is_some() => {
                Export::Rewrite
            }
            Export::Rewrite => self.export_by_options(each),
            export => export,
        }
    }

    #[inline]
    fn export_by_options(&self, each: Attribute<'_>) -> Export {
        let send = self.view.send_communities;
        let (sent, control) = match each.code {
            code::COMMUNITIES => (send.standard, self.control_as),
            code::LARGE_COMMUNITIES => (send.large, self.control_as),
            // RFC 4360 section 6: some are not for other ASes, such as validity (RFC 8097).
            code::EXTENDED_COMMUNITIES
                if send.extended
                    && self.side == PeerSide::External
                    && !each.value.as_chunks::<8>().0.iter().all(is_transitive) =>
            {
                return Export::Rewrite;
            }
            code::EXTENDED_COMMUNITIES | code::IPV6_EXTENDED_COMMUNITIES => (send.extended, None),
            code::ORIGINATOR_ID => (true, None),
            // The list extended by our cluster is in `added`.
            code::CLUSTER_LIST => (!self.reflects, None),
            // AS_PATH is written first.
            _ => (false, None),
        };
        match (sent, control) {
            (false, _) => Export::Drop,
            (true, None) => Export::Keep,
            (true, Some(_)) => Export::Rewrite,
        }
    }

    fn rewrite(&self, each: Attribute<'_>, out: &mut Vec<u8>) {
        match (each.code, self.control_as) {
            (code::EXTENDED_COMMUNITIES, _) => retain(each, out, is_transitive),
            (code::COMMUNITIES, Some(asn)) => retain(each, out, |four: &[u8; 4]| {
                let high = u32::from(u16::from_be_bytes([four[0], four[1]]));
                high != 0 && high != asn
            }),
            (code::LARGE_COMMUNITIES, Some(asn)) => {
                retain(each, out, |&[a, b, c, d, e, f, g, h, ..]: &[u8; 12]| {
                    [a, b, c, d] != asn.to_be_bytes()
                        || !is_control_function(u32::from_be_bytes([e, f, g, h]))
                })
            }
            (code, _) => match recognized_attribute(code).and_then(|row| row.encode_two_octet()) {
                Some(encode) => {
                    let mut value = Vec::with_capacity(each.value.len());
                    encode(each.value, &mut value);
                    write_attribute(out, each.flags, code, &value);
                }
                None => write_attribute(out, each.flags | code::FLAG_PARTIAL, code, each.value),
            },
        }
    }

    /// The codes of attributes to add, a bit for each.
    #[inline]
    fn added(&self) -> u64 {
        let mut added = 0;
        if self.reflects {
            added |= 1 << code::CLUSTER_LIST;
            added |= u64::from(self.attrs.originator_id().is_none()) << code::ORIGINATOR_ID;
        }
        if !self.view.codec.four_octet_as {
            added |= 1 << code::AS4_PATH | 1 << code::AS4_AGGREGATOR;
        }
        // RFC 9234 section 5, egress rule 1.
        if self.side == PeerSide::External
            && matches!(self.view.role, Some(Role::Customer | Role::Peer | Role::RouteServerClient))
            && !self.attrs.has(flag::ONLY_TO_CUSTOMER)
        {
            added |= 1 << code::ONLY_TO_CUSTOMER;
        }
        added
    }

    /// Writes the additions up to this code.
    #[cold]
    fn add_up_to(&self, code: u8, added: &mut u64, out: &mut Vec<u8>) {
        while *added != 0 && added.trailing_zeros() <= u32::from(code) {
            self.add(added.trailing_zeros() as u8, out);
            *added &= *added - 1;
        }
    }

    fn add(&self, code: u8, out: &mut Vec<u8>) {
        match code {
            code::ORIGINATOR_ID => write_attribute(out, OPTIONAL, code, &self.origins.router_id.octets()),
            code::CLUSTER_LIST => {
                let old = if self.attrs.has(flag::REFLECTED) { self.attrs.get(code) } else { None };
                let list = [&self.view.cluster_id.octets(), old.unwrap_or(&[])].concat();
                write_attribute(out, OPTIONAL, code, &list);
            }
            // The path with AS numbers that two bytes cannot hold (RFC 6793 4.2.2).
            code::AS4_PATH if !self.as4_path.is_empty() => {
                write_attribute(out, OPTIONAL | TRANSITIVE, code, &self.as4_path);
            }
            code::AS4_AGGREGATOR => match self.attrs.get(code::AGGREGATOR) {
                Some(value) if !value.starts_with(&[0, 0]) => {
                    write_attribute(out, OPTIONAL | TRANSITIVE, code, value);
                }
                _ => {}
            },
            code::ONLY_TO_CUSTOMER => {
                write_attribute(out, OPTIONAL | TRANSITIVE, code, &self.view.local_as.to_be_bytes());
            }
            _ => {}
        }
    }
}

/// Whether an extended community goes on to other ASes.
fn is_transitive(community: &[u8; 8]) -> bool {
    community[0] & 0x40 == 0
}

/// Writes a list without some of its values.
fn retain<const N: usize>(each: Attribute<'_>, out: &mut Vec<u8>, keep: impl Fn(&[u8; N]) -> bool) {
    let kept: Vec<[u8; N]> =
        each.value.as_chunks::<N>().0.iter().filter(|item| keep(item)).copied().collect();
    if !kept.is_empty() {
        write_attribute(out, each.flags, each.code, kept.as_flattened());
    }
}
