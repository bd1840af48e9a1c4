//! Reads MRT, the file format of routing tables and BGP messages (RFC 6396, RFC 8050).
//!
//! ```text
//! bytes --frame--> Record (time, type, body) --Decoder--> Content
//!                                                           Peers        the table of peers
//!                                                           Rib          entries of a table dump
//!                                                           Message      a BGP message and its two ends
//!                                                           StateChange  a session's new state
//!                                                           Skipped      a known type that is not needed here
//! ```
//!
//! Everything is a view of the caller's bytes; only the table of peers is stored, because later records refer
//! to it by number. A record is checked when it is decoded, so iterating over its content cannot fail. Path
//! attributes are returned undecoded, with the size of their AS numbers; [`PathView`] reads them as leniently
//! as old files require.
//!
//! # What is read
//! | type | subtypes |
//! |---|---|
//! | BGP (5) | UPDATE, STATE_CHANGE, OPEN, NOTIFY, KEEPALIVE: messages without BGP's header |
//! | TABLE_DUMP (12) | AFI_IPv4, AFI_IPv6, both with four-octet AS numbers too, and the batched layout below |
//! | TABLE_DUMP_V2 (13) | PEER_INDEX_TABLE, RIB_*, RIB_GENERIC of unicast and multicast, all with ADDPATH |
//! | BGP4MP (16), BGP4MP_ET (17) | MESSAGE and STATE_CHANGE, with AS4, LOCAL, ADDPATH |
//!
//! Other registered types (and GEO_PEER_TABLE, RFC 6397) are skipped by name; an unregistered type is a
//! [`Fault`], because it most likely means that the position in the file is lost.
//!
//! # The batched layout
//! Collectors of early 2000 put many entries into one TABLE_DUMP record: view and sequence once, then entry
//! after entry. Their length field leaves out those first four bytes. Such a record is recognized by its
//! entries, which must fill it exactly; see [`frame`].
//!
//! # Quirks that are accepted
//! - BGP4MP STATE_CHANGE of 8 bytes, without addresses, and OPEN messages without interface and addresses
//!   (both written by early Zebra): the addresses read as 0.0.0.0.
//! - MP_REACH_NLRI of TABLE_DUMP_V2 in full instead of next hop only (RFC 6396 4.3.4 wants the latter).
//! - BGP4MP messages with path identifiers whose subtype says that they have none (BIRD before RFC 8050),
//!   where the NLRI makes no sense otherwise.
//! - RIB_GENERIC_ADDPATH with the path identifier in each entry or in the NLRI: whichever fills the record.
//!
//! Missing: RIB_GENERIC of other families than IPv4 and IPv6 unicast and multicast (skipped by name).

mod bytes;
mod message;
mod nlri;
mod path;
mod rib;
mod text;
mod write;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;

pub use message::{Direction, Endpoint, Message, StateChange, UpdateParts};
pub use nlri::Prefixes;
pub use path::{MpReach, MpUnreach, PathEnds, PathView};
pub use rib::{Entries, Rib, RibEntry};
pub use text::{Action, Change, Civil, Lines, Style, visit_changes, write_lines};
pub use write::{
    MessageForm, RibRecord, Timestamp, WriteError, write_message, write_peer_index_table, write_state_change,
};

/// Bytes of every record's header.
pub const HEADER_BYTES: usize = 12;

/// The longest record that is accepted. The longest real ones are RIB entries of busy collectors (70 kB seen)
/// and tables of 65,535 peers (1.7 MB); a longer one means that the position in the file is lost.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// The size of AS numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsSize {
    /// As before RFC 6793.
    Two,
    Four,
}

impl AsSize {
    pub const fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// Type and subtype of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType {
    pub kind: u16,
    pub subtype: u16,
}

impl RecordType {
    pub(crate) const BGP: u16 = 5;
    pub(crate) const TABLE_DUMP: u16 = 12;
    pub(crate) const TABLE_DUMP_V2: u16 = 13;
    pub(crate) const BGP4MP: u16 = 16;
    pub(crate) const BGP4MP_ET: u16 = 17;

    /// Whether microseconds precede the body.
    fn is_extended(self) -> bool {
        matches!(self.kind, Self::BGP4MP_ET | 33 | 49)
    }

    /// The registered name of the type.
    pub fn kind_name(self) -> Option<&'static str> {
        Some(match self.kind {
            0 => "NULL",
            1 => "START",
            2 => "DIE",
            3 => "I_AM_DEAD",
            4 => "PEER_DOWN",
            5 => "BGP",
            6 => "RIP",
            7 => "IDRP",
            8 => "RIPNG",
            9 => "BGP4PLUS",
            10 => "BGP4PLUS_01",
            11 => "OSPFv2",
            12 => "TABLE_DUMP",
            13 => "TABLE_DUMP_V2",
            16 => "BGP4MP",
            17 => "BGP4MP_ET",
            32 => "ISIS",
            33 => "ISIS_ET",
            48 => "OSPFv3",
            49 => "OSPFv3_ET",
            _ => return None,
        })
    }

    /// The registered name of the subtype, if this module knows the type.
    pub fn subtype_name(self) -> Option<&'static str> {
        const BGP: &[&str] =
            &["NULL", "UPDATE", "PREF_UPDATE", "STATE_CHANGE", "SYNC", "OPEN", "NOTIFY", "KEEPALIVE"];
        const TABLE_DUMP: &[&str] = &["", "AFI_IPv4", "AFI_IPv6", "AFI_IPv4_32BIT_AS", "AFI_IPv6_32BIT_AS"];
        const TABLE_DUMP_V2: &[&str] = &[
            "",
            "PEER_INDEX_TABLE",
            "RIB_IPV4_UNICAST",
            "RIB_IPV4_MULTICAST",
            "RIB_IPV6_UNICAST",
            "RIB_IPV6_MULTICAST",
            "RIB_GENERIC",
            "GEO_PEER_TABLE",
            "RIB_IPV4_UNICAST_ADDPATH",
            "RIB_IPV4_MULTICAST_ADDPATH",
            "RIB_IPV6_UNICAST_ADDPATH",
            "RIB_IPV6_MULTICAST_ADDPATH",
            "RIB_GENERIC_ADDPATH",
        ];
        const BGP4MP: &[&str] = &[
            "STATE_CHANGE",
            "MESSAGE",
            "ENTRY",
            "SNAPSHOT",
            "MESSAGE_AS4",
            "STATE_CHANGE_AS4",
            "MESSAGE_LOCAL",
            "MESSAGE_AS4_LOCAL",
            "MESSAGE_ADDPATH",
            "MESSAGE_AS4_ADDPATH",
            "MESSAGE_LOCAL_ADDPATH",
            "MESSAGE_AS4_LOCAL_ADDPATH",
        ];
        let names = match self.kind {
            Self::BGP => BGP,
            Self::TABLE_DUMP => TABLE_DUMP,
            Self::TABLE_DUMP_V2 => TABLE_DUMP_V2,
            Self::BGP4MP | Self::BGP4MP_ET => BGP4MP,
            _ => return None,
        };
        names.get(usize::from(self.subtype)).copied().filter(|name| !name.is_empty())
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind_name(), self.subtype_name()) {
            (Some(kind), Some(subtype)) => write!(f, "{kind}/{subtype}"),
            (Some(kind), None) => write!(f, "{kind}/{}", self.subtype),
            (None, _) => write!(f, "type {}/{}", self.kind, self.subtype),
        }
    }
}

/// A record of the file; its header is decoded, its body is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Seconds since the epoch.
    pub time_s: u32,
    /// For types that have them.
    pub microseconds: Option<u32>,
    pub kind: RecordType,
    body: Bytes<'a>,
}

impl<'a> Record<'a> {
    /// The bytes behind the header (and the microseconds).
    pub fn body(&self) -> &'a [u8] {
        self.body.rest()
    }

    /// The BGP message of the record, if its type has one. Needs no [`Decoder`], so messages of a file in
    /// memory can be kept.
    pub fn message(&self) -> Result<Option<Message<'a>>, Fault> {
        let content = match self.kind.kind {
            RecordType::BGP4MP | RecordType::BGP4MP_ET => message::bgp4mp(self.kind, self.body)?,
            RecordType::BGP => message::bgp(self.kind, self.body)?,
            _ => return Ok(None),
        };
        Ok(if let Content::Message(message) = content { Some(message) } else { None })
    }
}

/// The records of an uncompressed file in memory. The iterator ends where no whole record follows;
/// [`Records::rest`] then has the remaining bytes, none if the file is whole.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Iterates over the records in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let (record, length) = frame(self.rest).ok()??;
        self.rest = self.rest.get(length..)?;
        Some(record)
    }
}

/// A record longer than [`RECORD_BYTES_MAX`]: the position of the next one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a record of at most {RECORD_BYTES_MAX} bytes, found {kind} of {length} bytes")]
pub struct TooLong {
    /// According to its header.
    pub kind: RecordType,
    pub length: u32,
}

/// The first record in `bytes` and its length; `None` if `bytes` end inside it.
///
/// The length of a TABLE_DUMP record is its length field, unless its entries fit only with four bytes more.
pub fn frame(bytes: &[u8]) -> Result<Option<(Record<'_>, usize)>, TooLong> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let kind = RecordType { kind: half(4), subtype: half(6) };
    let length = word(8);
    if length as usize > RECORD_BYTES_MAX {
        return Err(TooLong { kind, length });
    }
    let mut end = HEADER_BYTES + length as usize;
    let Some(body) = bytes.get(HEADER_BYTES..end) else { return Ok(None) };
    if kind.kind == RecordType::TABLE_DUMP && !rib::is_table_dump(kind.subtype, body) {
        const LEFT_OUT: usize = 4;
        match bytes.get(HEADER_BYTES..end + LEFT_OUT) {
            Some(longer) if rib::is_table_dump(kind.subtype, longer) => end += LEFT_OUT,
            Some(_) => {}
            None => return Ok(None),
        }
    }
    let body = bytes.get(HEADER_BYTES..end).unwrap_or_default();
    let (microseconds, body, at) = match body.split_first_chunk::<4>() {
        Some((four, rest)) if kind.is_extended() => (Some(u32::from_be_bytes(*four)), rest, HEADER_BYTES + 4),
        _ => (None, body, HEADER_BYTES),
    };
    Ok(Some((Record { time_s: word(0), microseconds, kind, body: Bytes::new(body, at) }, end)))
}

/// A malformed record, and where the error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} at byte {at} of the record")]
pub struct Fault {
    /// Bytes from the record's beginning, including the header.
    pub at: usize,
    pub expected: Expected,
}

/// What was expected instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// More bytes than are left.
    Bytes {
        what: &'static str,
        /// The bytes needed.
        wanted: usize,
        left: usize,
    },
    /// The end of the record instead of `left` more bytes.
    End { left: usize },
    /// A prefix length that is valid for the family.
    PrefixLength {
        /// The length read.
        found: u8,
        max: u8,
    },
    /// A peer in the table of peers.
    Peer {
        /// The peer's number.
        found: u16,
        /// The number of peers.
        peers: usize,
    },
    /// A PEER_INDEX_TABLE before the first RIB record.
    PeerIndexTable,
    /// Address family 1 or 2.
    AddressFamily {
        /// The family read.
        found: u16,
    },
    /// Sixteen bytes of ones before a BGP message.
    Marker,
    /// A length of the BGP message that fits its record.
    MessageLength {
        found: u16,
        /// The bytes available.
        there: usize,
    },
    /// An AS_PATH of whole segments.
    AsPath,
    /// A registered type.
    Type {
        /// The type read.
        found: RecordType,
    },
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { what, wanted, left } => {
                write!(f, "expected {wanted} bytes of {what}, found {left}")
            }
            Self::End { left } => write!(f, "expected the record's end, found {left} more bytes"),
            Self::PrefixLength { found, max } => {
                write!(f, "expected a prefix length of at most {max}, found {found}")
            }
            Self::Peer { found, peers } => {
                write!(f, "expected a peer number below {peers}, found {found}")
            }
            Self::PeerIndexTable => write!(f, "expected a PEER_INDEX_TABLE before the first RIB record"),
            Self::AddressFamily { found } => write!(f, "expected address family 1 or 2, found {found}"),
            Self::Marker => write!(f, "expected the marker of a BGP message"),
            Self::MessageLength { found, there } => {
                write!(f, "expected a BGP message of 19 to {there} bytes, found a length of {found}")
            }
            Self::AsPath => write!(f, "expected an AS_PATH of whole segments"),
            Self::Type { found } => {
                write!(f, "expected a registered record type, found {}/{}", found.kind, found.subtype)
            }
        }
    }
}

/// One end of a recorded session, in the table of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The BGP identifier; 0.0.0.0 if unknown.
    pub id: Ipv4Addr,
    pub address: IpAddr,
    pub asn: u32,
}

/// A PEER_INDEX_TABLE (RFC 6396 4.3.1): the peers that RIB records refer to by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIndex {
    /// The collector's BGP identifier.
    pub collector: Ipv4Addr,
    /// Mostly empty.
    pub view: String,
    pub peers: Vec<Peer>,
}

/// The decoded content of a record.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A table of peers for the following RIB records.
    Peers(&'a PeerIndex),
    Rib(Rib<'a>),
    Message(Message<'a>),
    StateChange(StateChange),
    /// A record of a known type without routes.
    Skipped,
}

/// Decodes the records of one file, in order.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    peers: Option<PeerIndex>,
}

impl Decoder {
    /// Makes a decoder for the beginning of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// The latest table of peers.
    pub fn peers(&self) -> Option<&PeerIndex> {
        self.peers.as_ref()
    }

    /// Decodes a record.
    pub fn decode<'a>(&'a mut self, record: &Record<'a>) -> Result<Content<'a>, Fault> {
        let RecordType { kind, subtype } = record.kind;
        let body = record.body;
        match kind {
            RecordType::TABLE_DUMP_V2 => match subtype {
                1 => Ok(Content::Peers(self.peers.insert(rib::peer_index_table(body)?))),
                7 => Ok(Content::Skipped),
                _ => {
                    let missing = Fault { at: 0, expected: Expected::PeerIndexTable };
                    let rib = rib::table_dump_v2(record.kind, body, self.peers.as_ref().ok_or(missing)?)?;
                    Ok(rib.map_or(Content::Skipped, Content::Rib))
                }
            },
            RecordType::TABLE_DUMP => Ok(Content::Rib(rib::table_dump(record.kind, body)?)),
            RecordType::BGP4MP | RecordType::BGP4MP_ET => message::bgp4mp(record.kind, body),
            RecordType::BGP => message::bgp(record.kind, body),
            _ if record.kind.kind_name().is_some() => Ok(Content::Skipped),
            _ => Err(Fault { at: 4, expected: Expected::Type { found: record.kind } }),
        }
    }
}
