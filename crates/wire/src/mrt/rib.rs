//! Tables: TABLE_DUMP (RFC 6396 4.2, and the batched layout) and TABLE_DUMP_V2 (4.3; RFC 8050 4).

use super::bytes::Bytes;
use super::nlri::{prefix, prefix_from};
use super::{AsSize, Expected, Fault, PathView, Peer, PeerIndex, RecordType};
use std::net::Ipv4Addr;
use thalweg_base::IpPrefix;

/// The routes of one record: all of one prefix, except in the batched layout of TABLE_DUMP.
#[derive(Clone, Copy, Debug)]
pub struct Rib<'a> {
    pub kind: RecordType,
    /// The number of the record in its table; wraps.
    pub sequence: u32,
    /// The routes are of the multicast topology.
    pub multicast: bool,
    layout: Layout<'a>,
    entries: Bytes<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Layout<'a> {
    /// TABLE_DUMP.
    V1 { six: bool, four_octet_as: bool },
    /// TABLE_DUMP_V2.
    V2 { prefix: IpPrefix, add_path: bool, peers: &'a [Peer] },
}

impl<'a> Rib<'a> {
    /// The routes, in order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { layout: self.layout, rest: self.entries }
    }

    /// Whether routes have path identifiers (RFC 7911).
    pub fn add_path(&self) -> bool {
        matches!(self.layout, Layout::V2 { add_path: true, .. })
    }
}

/// A route of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RibEntry<'a> {
    /// The neighbor that sent it.
    pub peer: Peer,
    /// The peer's number in the table of peers; TABLE_DUMP_V2 only.
    pub peer_index: Option<u16>,
    /// Arrival in seconds since the epoch.
    pub originated_s: u32,
    pub prefix: IpPrefix,
    pub path_id: Option<u32>,
    /// Path attributes in BGP's format, unchecked. In TABLE_DUMP_V2, MP_REACH_NLRI is mostly only the next
    /// hop.
    pub attributes: &'a [u8],
    /// The size of AS numbers in the attributes.
    pub as_size: AsSize,
    /// Position of the attributes in the record.
    at: usize,
}

impl<'a> RibEntry<'a> {
    /// Makes a route that is in no record; `peer_index` is the peer's number among the sources of such
    /// routes.
    pub fn new(
        peer: Peer,
        peer_index: u16,
        route: (IpPrefix, Option<u32>),
        attributes: &'a [u8],
        as_size: AsSize,
    ) -> Self {
        let (prefix, path_id) = route;
        Self {
            peer,
            peer_index: Some(peer_index),
            originated_s: 0,
            prefix,
            path_id,
            attributes,
            as_size,
            at: 0,
        }
    }

    /// Decodes the attributes.
    #[inline]
    pub fn path(&self) -> PathView<'a> {
        PathView::at(Bytes::new(self.attributes, self.at), self.as_size)
    }
}

/// Iterates over the routes of a record.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    layout: Layout<'a>,
    rest: Bytes<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = RibEntry<'a>;

    /// The record was checked when it was decoded, so this ends where the record does.
    #[inline]
    fn next(&mut self) -> Option<RibEntry<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        match self.layout {
            Layout::V2 { prefix, add_path, peers } => {
                entry_v2(&mut self.rest, prefix, add_path, peers).ok().map(|(entry, _)| entry)
            }
            Layout::V1 { six, four_octet_as } => entry_v1(&mut self.rest, six, four_octet_as).ok(),
        }
    }
}

pub(super) fn peer_index_table(mut body: Bytes<'_>) -> Result<PeerIndex, Fault> {
    const SIX: u8 = 1;
    const FOUR_OCTET_AS: u8 = 2;
    let collector = Ipv4Addr::from(body.u32("the collector's identifier")?);
    let length = body.u16("the view name's length")?;
    let view = body.take(usize::from(length), "the view's name")?;
    let view = String::from_utf8_lossy(view.rest()).into_owned();
    let count = body.u16("the number of peers")?;
    // A peer takes at least 11 bytes: allocate no more than the record can fill.
    let mut peers = Vec::with_capacity(usize::from(count).min(body.len() / 11));
    for _ in 0..count {
        let flags = body.u8("a peer's type")?;
        let id = Ipv4Addr::from(body.u32("a peer's identifier")?);
        let address = body.address(flags & SIX != 0, "a peer's address")?;
        let asn = body.asn(flags & FOUR_OCTET_AS != 0, "a peer's AS")?;
        peers.push(Peer { id, address, asn });
    }
    end(body)?;
    Ok(PeerIndex { collector, view, peers })
}

fn end(rest: Bytes<'_>) -> Result<(), Fault> {
    match rest.len() {
        0 => Ok(()),
        left => Err(Fault { at: rest.at(), expected: Expected::End { left } }),
    }
}

/// A RIB record; `None` for an unsupported family.
pub(super) fn table_dump_v2<'a>(
    kind: RecordType,
    mut body: Bytes<'a>,
    peers: &'a PeerIndex,
) -> Result<Option<Rib<'a>>, Fault> {
    let (six, multicast, add_path) = match kind.subtype {
        2 => (false, false, false),
        3 => (false, true, false),
        4 => (true, false, false),
        5 => (true, true, false),
        8 => (false, false, true),
        9 => (false, true, true),
        10 => (true, false, true),
        11 => (true, true, true),
        6 => return generic(kind, body, peers, false),
        12 => return generic(kind, body, peers, true),
        _ => return Err(Fault { at: 6, expected: Expected::Type { found: kind } }),
    };
    let sequence = body.u32("a sequence number")?;
    let prefix = prefix(&mut body, six)?;
    rib_v2(kind, sequence, multicast, prefix, add_path, body, peers).map(Some)
}

/// RIB_GENERIC names its family.
fn generic<'a>(
    kind: RecordType,
    mut body: Bytes<'a>,
    peers: &'a PeerIndex,
    add_path: bool,
) -> Result<Option<Rib<'a>>, Fault> {
    let sequence = body.u32("a sequence number")?;
    let family = body.u16("an address family")?;
    let (six, multicast) = match (family, body.u8("a subsequent address family")?) {
        (1, safi @ (1 | 2)) => (false, safi == 2),
        (2, safi @ (1 | 2)) => (true, safi == 2),
        _ => return Ok(None),
    };
    let mut after = body;
    let read = prefix(&mut after, six)
        .and_then(|prefix| rib_v2(kind, sequence, multicast, prefix, add_path, after, peers));
    if add_path && read.is_err() {
        let mut after = body;
        let in_nlri = after
            .u32("a path identifier")
            .and_then(|_| prefix(&mut after, six))
            .and_then(|prefix| rib_v2(kind, sequence, multicast, prefix, false, after, peers));
        if in_nlri.is_ok() {
            return in_nlri.map(Some);
        }
    }
    read.map(Some)
}

fn rib_v2<'a>(
    kind: RecordType,
    sequence: u32,
    multicast: bool,
    prefix: IpPrefix,
    add_path: bool,
    mut body: Bytes<'a>,
    peers: &'a PeerIndex,
) -> Result<Rib<'a>, Fault> {
    let peers = peers.peers.as_slice();
    let count = body.u16("the number of entries")?;
    let entries = body;
    for _ in 0..count {
        let at = body.at();
        let (_, index) = entry_v2(&mut body, prefix, add_path, peers)?;
        if usize::from(index) >= peers.len() {
            return Err(Fault { at, expected: Expected::Peer { found: index, peers: peers.len() } });
        }
    }
    end(body)?;
    Ok(Rib { kind, sequence, multicast, layout: Layout::V2 { prefix, add_path, peers }, entries })
}

/// An entry and its peer's number; if the peer does not exist, all its values are zero.
#[inline]
fn entry_v2<'a>(
    bytes: &mut Bytes<'a>,
    prefix: IpPrefix,
    add_path: bool,
    peers: &[Peer],
) -> Result<(RibEntry<'a>, u16), Fault> {
    const NOBODY: Peer =
        Peer { id: Ipv4Addr::UNSPECIFIED, address: std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), asn: 0 };
    let index = bytes.u16("a peer's number")?;
    let originated_s = bytes.u32("a time")?;
    let path_id = if add_path { Some(bytes.u32("a path identifier")?) } else { None };
    let length = bytes.u16("the attributes' length")?;
    let taken = bytes.take(usize::from(length), "attributes")?;
    let (attributes, at) = (taken.rest(), taken.at());
    let peer = peers.get(usize::from(index)).copied().unwrap_or(NOBODY);
    let peer_index = Some(index);
    let as_size = AsSize::Four;
    Ok((RibEntry { peer, peer_index, originated_s, prefix, path_id, attributes, as_size, at }, index))
}

fn layout_v1(subtype: u16) -> Option<(bool, bool)> {
    Some(match subtype {
        1 => (false, false),
        2 => (true, false),
        3 => (false, true),
        4 => (true, true),
        _ => return None,
    })
}

/// Whether `body` is a view, a sequence number, and entries up to its end.
pub(super) fn is_table_dump(subtype: u16, body: &[u8]) -> bool {
    let Some((six, four_octet_as)) = layout_v1(subtype) else { return false };
    let mut rest = Bytes::new(body, 0);
    if rest.u32("").is_err() || rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        if entry_v1(&mut rest, six, four_octet_as).is_err() {
            return false;
        }
    }
    true
}

pub(super) fn table_dump(kind: RecordType, mut body: Bytes<'_>) -> Result<Rib<'_>, Fault> {
    let Some((six, four_octet_as)) = layout_v1(kind.subtype) else {
        return Err(Fault { at: 6, expected: Expected::Type { found: kind } });
    };
    let _view = body.u16("a view number")?;
    let sequence = u32::from(body.u16("a sequence number")?);
    let entries = body;
    entry_v1(&mut body, six, four_octet_as)?;
    while !body.is_empty() {
        entry_v1(&mut body, six, four_octet_as)?;
    }
    let layout = Layout::V1 { six, four_octet_as };
    Ok(Rib { kind, sequence, multicast: false, layout, entries })
}

#[inline]
fn entry_v1<'a>(bytes: &mut Bytes<'a>, six: bool, four_octet_as: bool) -> Result<RibEntry<'a>, Fault> {
    let address = bytes.address(six, "a prefix")?;
    let length_at = bytes.at();
    let length = bytes.u8("a prefix length")?;
    let prefix = prefix_from(address, length, length_at)?;
    let _status = bytes.u8("a status")?;
    let originated_s = bytes.u32("a time")?;
    let address = bytes.address(six, "a peer's address")?;
    let asn = bytes.asn(four_octet_as, "a peer's AS")?;
    let length = bytes.u16("the attributes' length")?;
    let taken = bytes.take(usize::from(length), "attributes")?;
    let (attributes, at) = (taken.rest(), taken.at());
    let as_size = if four_octet_as { AsSize::Four } else { AsSize::Two };
    let peer = Peer { id: Ipv4Addr::UNSPECIFIED, address, asn };
    Ok(RibEntry { peer, peer_index: None, originated_s, prefix, path_id: None, attributes, as_size, at })
}
