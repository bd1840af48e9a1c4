//! Messages and states of sessions: BGP4MP (RFC 6396 4.4, RFC 8050 3) and the older type BGP (5.1).

use super::bytes::Bytes;
use super::nlri::{Prefixes, is_nlri};
use super::{AsSize, Content, Expected, Fault, RecordType};
use crate::bgp::{Attributes, Codec, attribute};
use std::net::{IpAddr, Ipv4Addr};

const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Bytes of marker, length and type before a BGP message's body.
const BGP_HEADER_BYTES: usize = 19;
const MARKER: [u8; 16] = [0xff; 16];

/// One end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// 0.0.0.0 if the file does not say.
    pub address: IpAddr,
    pub asn: u32,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer to the collector.
    Received,
    /// From the collector to the peer (the LOCAL subtypes of RFC 6396).
    Sent,
}

/// A BGP message and its session.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub kind: RecordType,
    /// The other router.
    pub peer: Endpoint,
    /// The collector.
    pub local: Endpoint,
    /// Index of the interface, mostly 0.
    pub interface: u16,
    pub direction: Direction,
    /// BGP message type: 1 OPEN, 2 UPDATE, 3 NOTIFICATION, 4 KEEPALIVE, 5 ROUTE-REFRESH.
    pub message_type: u8,
    /// The size of its AS numbers.
    pub as_size: AsSize,
    /// Whether its NLRI has path identifiers.
    pub add_path: bool,
    whole: Option<&'a [u8]>,
    body: Bytes<'a>,
}

impl<'a> Message<'a> {
    /// The message with its header, as on the wire; `None` for MRT type BGP, which omits the header.
    pub fn whole(&self) -> Option<&'a [u8]> {
        self.whole
    }

    /// The bytes behind BGP's header.
    pub fn body(&self) -> &'a [u8] {
        self.body.rest()
    }

    /// Appends the message as on the wire.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self.whole {
            Some(whole) => out.extend_from_slice(whole),
            None => {
                out.extend_from_slice(&MARKER);
                // A record of type BGP holds no more; no UPDATE above 64 KiB was ever sent.
                let length = u16::try_from(BGP_HEADER_BYTES + self.body.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&length.to_be_bytes());
                out.push(self.message_type);
                out.extend_from_slice(self.body.rest());
            }
        }
    }

    /// The codec that the two ends negotiated, as far as the record says: path identifiers are in all
    /// families or none.
    pub fn codec(&self) -> Codec {
        Codec {
            four_octet_as: self.as_size == AsSize::Four,
            extended_messages: true,
            add_path_receive: [self.add_path; 2],
            add_path_send: [self.add_path; 2],
            extended_next_hop: true,
        }
    }

    /// The three parts of an UPDATE; `None` for other messages.
    pub fn update(&self) -> Result<Option<UpdateParts<'a>>, Fault> {
        const UPDATE: u8 = 2;
        if self.message_type != UPDATE {
            return Ok(None);
        }
        let mut rest = self.body;
        let length = rest.u16("the withdrawn routes' length")?;
        let withdrawn = rest.take(usize::from(length), "withdrawn routes")?;
        let length = rest.u16("the attributes' length")?;
        let attributes = rest.take(usize::from(length), "attributes")?;
        let (add_path, as_size) = (self.add_path, self.as_size);
        Ok(Some(UpdateParts { withdrawn, attributes, announced: rest, add_path, as_size }))
    }

    /// Whether the NLRI of an UPDATE is valid only with path identifiers although the record's subtype
    /// excludes them, as in files of BIRD before it knew the subtypes of RFC 8050.
    fn hides_path_ids(&self) -> bool {
        let Ok(Some(update)) = self.update() else { return false };
        !update.all_nlri(|nlri, bits| is_nlri(nlri, bits, false))
            && update.all_nlri(|nlri, bits| is_nlri(nlri, bits, true))
    }
}

/// The parts of an UPDATE (RFC 4271 4.3); their content is unchecked.
#[derive(Clone, Copy, Debug)]
pub struct UpdateParts<'a> {
    pub(super) withdrawn: Bytes<'a>,
    pub(super) attributes: Bytes<'a>,
    pub(super) announced: Bytes<'a>,
    pub(super) add_path: bool,
    /// The size of AS numbers in the attributes.
    pub as_size: AsSize,
}

impl<'a> UpdateParts<'a> {
    /// Withdrawn IPv4 routes.
    pub fn withdrawn(&self) -> Prefixes<'a> {
        Prefixes::new(self.withdrawn, false, self.add_path)
    }

    /// Path attributes, undecoded.
    pub fn attributes(&self) -> &'a [u8] {
        self.attributes.rest()
    }

    /// Announced IPv4 routes.
    pub fn announced(&self) -> Prefixes<'a> {
        Prefixes::new(self.announced, false, self.add_path)
    }

    /// Whether `holds` is true for each NLRI field, with the prefix length limit of its family.
    fn all_nlri(&self, mut holds: impl FnMut(&[u8], u8) -> bool) -> bool {
        holds(self.withdrawn.rest(), 32)
            && holds(self.announced.rest(), 32)
            && Attributes::new(self.attributes.rest()).all(|each| {
                let nlri_at = match each.code {
                    // AFI, SAFI, next hop with its length, a reserved byte.
                    attribute::MP_REACH_NLRI => 5 + each.value.get(3).copied().map_or(0, usize::from),
                    attribute::MP_UNREACH_NLRI => 3,
                    _ => return true,
                };
                let bits = match each.value.first_chunk::<3>() {
                    Some([0, 1, 1..=3]) => 32,
                    Some([0, 2, 1..=3]) => 128,
                    _ => return true,
                };
                holds(each.value.get(nlri_at..).unwrap_or_default(), bits)
            })
    }
}

/// A change of a session's state (RFC 4271 8.2.2: 1 Idle to 6 Established; some writers also use 7 Clearing,
/// 8 Deleted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    pub kind: RecordType,
    /// The other router.
    pub peer: Endpoint,
    /// The collector.
    pub local: Endpoint,
    /// Index of the interface, mostly 0.
    pub interface: u16,
    pub old: u16,
    pub new: u16,
}

/// A record of type BGP4MP or BGP4MP_ET.
pub(super) fn bgp4mp(kind: RecordType, body: Bytes<'_>) -> Result<Content<'_>, Fault> {
    use AsSize::{Four, Two};
    use Direction::{Received, Sent};
    let (as_size, direction, add_path) = match kind.subtype {
        0 => return state_change(kind, body, Two),
        5 => return state_change(kind, body, Four),
        1 => (Two, Received, false),
        4 => (Four, Received, false),
        6 => (Two, Sent, false),
        7 => (Four, Sent, false),
        8 => (Two, Received, true),
        9 => (Four, Received, true),
        10 => (Two, Sent, true),
        11 => (Four, Sent, true),
        // ENTRY and SNAPSHOT: deprecated, never seen.
        2 | 3 => return Ok(Content::Skipped),
        _ => return Err(Fault { at: 6, expected: Expected::Type { found: kind } }),
    };
    let (peer, local, interface, message) = ends(body, as_size)?;
    let (message_type, whole, body) = bgp_message(message)?;
    let whole = Some(whole);
    let mut message =
        Message { kind, peer, local, interface, direction, message_type, as_size, add_path, whole, body };
    message.add_path = add_path || message.hides_path_ids();
    Ok(Content::Message(message))
}

/// Reads the ends that begin messages and states; returns the rest.
fn ends(mut body: Bytes<'_>, as_size: AsSize) -> Result<(Endpoint, Endpoint, u16, Bytes<'_>), Fault> {
    let four = as_size == AsSize::Four;
    let peer = body.asn(four, "the peer's AS")?;
    let local = body.asn(four, "the local AS")?;
    // Early Zebra's OPEN has the message here.
    if body.rest().starts_with(&MARKER) {
        let end = |asn| Endpoint { address: NOWHERE, asn };
        return Ok((end(peer), end(local), 0, body));
    }
    let interface = body.u16("an interface's index")?;
    let at = body.at();
    let six = match body.u16("an address family")? {
        1 => false,
        2 => true,
        found => return Err(Fault { at, expected: Expected::AddressFamily { found } }),
    };
    let peer = Endpoint { address: body.address(six, "the peer's address")?, asn: peer };
    let local = Endpoint { address: body.address(six, "the local address")?, asn: local };
    Ok((peer, local, interface, body))
}

/// Type, whole and body of a BGP message. Bytes behind it are ignored.
fn bgp_message(message: Bytes<'_>) -> Result<(u8, &[u8], Bytes<'_>), Fault> {
    let mut rest = message;
    let at = rest.at();
    if rest.array::<16>("a BGP message's marker")? != MARKER {
        return Err(Fault { at, expected: Expected::Marker });
    }
    let at = rest.at();
    let found = rest.u16("a BGP message's length")?;
    let message_type = rest.u8("a BGP message's type")?;
    let there = message.len();
    let fault = Fault { at, expected: Expected::MessageLength { found, there } };
    let length = usize::from(found);
    let whole = message.rest().get(..length).ok_or(fault)?;
    let body = length.checked_sub(BGP_HEADER_BYTES).ok_or(fault)?;
    Ok((message_type, whole, rest.take(body, "a BGP message")?))
}

fn state_change(kind: RecordType, body: Bytes<'_>, as_size: AsSize) -> Result<Content<'_>, Fault> {
    let (peer, local, interface, mut rest) = if body.len() == 2 * as_size.bytes() + 4 {
        let mut rest = body;
        let peer = rest.asn(as_size == AsSize::Four, "the peer's AS")?;
        let local = rest.asn(as_size == AsSize::Four, "the local AS")?;
        let end = |asn| Endpoint { address: NOWHERE, asn };
        (end(peer), end(local), 0, rest)
    } else {
        ends(body, as_size)?
    };
    let old = rest.u16("a state")?;
    let new = rest.u16("a state")?;
    Ok(Content::StateChange(StateChange { kind, peer, local, interface, old, new }))
}

/// A record of type BGP: messages without their headers, of IPv4 peers with two-octet AS numbers.
pub(super) fn bgp(kind: RecordType, mut body: Bytes<'_>) -> Result<Content<'_>, Fault> {
    let message_type = match kind.subtype {
        1 => 2,
        5 => 1,
        6 => 3,
        7 => 4,
        3 => {
            let asn = body.asn(false, "the peer's AS")?;
            let peer = Endpoint { address: body.address(false, "the peer's address")?, asn };
            let (old, new) = (body.u16("a state")?, body.u16("a state")?);
            let local = Endpoint { address: NOWHERE, asn: 0 };
            return Ok(Content::StateChange(StateChange { kind, peer, local, interface: 0, old, new }));
        }
        // NULL, and PREF_UPDATE and SYNC, which occur in no known file.
        0 | 2 | 4 => return Ok(Content::Skipped),
        _ => return Err(Fault { at: 6, expected: Expected::Type { found: kind } }),
    };
    let asn = body.asn(false, "the peer's AS")?;
    let peer = Endpoint { address: body.address(false, "the peer's address")?, asn };
    let asn = body.asn(false, "the local AS")?;
    let local = Endpoint { address: body.address(false, "the local address")?, asn };
    Ok(Content::Message(Message {
        kind,
        peer,
        local,
        interface: 0,
        direction: Direction::Received,
        message_type,
        as_size: AsSize::Two,
        add_path: false,
        whole: None,
        body,
    }))
}
