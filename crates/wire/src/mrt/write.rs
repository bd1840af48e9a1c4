//! Writes MRT: table dumps as TABLE_DUMP_V2 (RFC 6396 4.3, RFC 8050 4), messages and states as BGP4MP_ET with
//! four-octet AS numbers (4.4, RFC 8050 3).
//!
//! Each function appends one whole record to a `Vec`, or nothing.

use super::{AsSize, Direction, Endpoint, HEADER_BYTES, PeerIndex, RECORD_BYTES_MAX, RecordType};
use std::net::IpAddr;
use thalweg_base::IpPrefix;

/// Why a record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A count or length exceeds its field.
    #[error("{found} {what}, more than {max}")]
    TooMany {
        what: &'static str,
        found: usize,
        /// The limit.
        max: usize,
    },
    /// The two ends of a session have addresses of different families.
    #[error("the ends of a session have addresses of different families")]
    MixedFamilies,
}

fn within(what: &'static str, found: usize, max: usize) -> Result<(), WriteError> {
    if found <= max { Ok(()) } else { Err(WriteError::TooMany { what, found, max }) }
}

/// The time of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub seconds: u32,
    /// Below a million.
    pub microseconds: u32,
}

/// Begins a record; its length is filled in at the end.
fn begin(out: &mut Vec<u8>, time_s: u32, kind: u16, subtype: u16) -> usize {
    let start = out.len();
    out.extend_from_slice(&time_s.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&subtype.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    start
}

/// No record exceeds [`RECORD_BYTES_MAX`], so the length fits.
fn end(out: &mut [u8], start: usize) {
    let length = (out.len() - start - HEADER_BYTES) as u32;
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

fn push_prefix(out: &mut Vec<u8>, prefix: IpPrefix) {
    out.push(prefix.length());
    let bytes = usize::from(prefix.length().div_ceil(8));
    match prefix.address() {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()[..bytes]),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()[..bytes]),
    }
}

/// Appends a PEER_INDEX_TABLE, which must precede the RIB records that refer to its peers.
pub fn write_peer_index_table(out: &mut Vec<u8>, time_s: u32, table: &PeerIndex) -> Result<(), WriteError> {
    const SIX: u8 = 1;
    const FOUR_OCTET_AS: u8 = 2;
    const MAX: usize = u16::MAX as usize;
    within("bytes of view name", table.view.len(), MAX)?;
    within("peers", table.peers.len(), MAX)?;
    let start = begin(out, time_s, RecordType::TABLE_DUMP_V2, 1);
    out.extend_from_slice(&table.collector.octets());
    out.extend_from_slice(&(table.view.len() as u16).to_be_bytes());
    out.extend_from_slice(table.view.as_bytes());
    out.extend_from_slice(&(table.peers.len() as u16).to_be_bytes());
    for peer in &table.peers {
        out.push(FOUR_OCTET_AS | if peer.address.is_ipv6() { SIX } else { 0 });
        out.extend_from_slice(&peer.id.octets());
        push_address(out, peer.address);
        out.extend_from_slice(&peer.asn.to_be_bytes());
    }
    end(out, start);
    Ok(())
}

/// A RIB record under construction: one prefix, then its routes. Dropped without [`finish`](Self::finish), it
/// leaves nothing behind.
#[derive(Debug)]
pub struct RibRecord<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    count_at: usize,
    count: u16,
    add_path: bool,
    finished: bool,
}

impl<'o> RibRecord<'o> {
    /// Begins a unicast record; with `add_path` every entry has a path identifier.
    pub fn begin(out: &'o mut Vec<u8>, time_s: u32, sequence: u32, prefix: IpPrefix, add_path: bool) -> Self {
        let subtype = match (prefix, add_path) {
            (IpPrefix::V4(_), false) => 2,
            (IpPrefix::V6(_), false) => 4,
            (IpPrefix::V4(_), true) => 8,
            (IpPrefix::V6(_), true) => 10,
        };
        let start = begin(out, time_s, RecordType::TABLE_DUMP_V2, subtype);
        out.extend_from_slice(&sequence.to_be_bytes());
        push_prefix(out, prefix);
        let count_at = out.len();
        out.extend_from_slice(&[0; 2]);
        Self { out, start, count_at, count: 0, add_path, finished: false }
    }

    /// Adds a route. `attributes` are in BGP's format with four-octet AS numbers, and MP_REACH_NLRI (if any)
    /// has only the next hop; `path_id` is used only with `add_path`. On an error the record is unchanged: it
    /// is full, or the attributes are too long.
    pub fn push(
        &mut self,
        peer_index: u16,
        originated_s: u32,
        path_id: u32,
        attributes: &[u8],
    ) -> Result<(), WriteError> {
        within("bytes of attributes", attributes.len(), u16::MAX.into())?;
        within("routes of a prefix", usize::from(self.count) + 1, u16::MAX.into())?;
        let length = self.out.len() - self.start + 12 + attributes.len();
        within("bytes of a record", length, RECORD_BYTES_MAX)?;
        self.out.extend_from_slice(&peer_index.to_be_bytes());
        self.out.extend_from_slice(&originated_s.to_be_bytes());
        if self.add_path {
            self.out.extend_from_slice(&path_id.to_be_bytes());
        }
        self.out.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
        self.out.extend_from_slice(attributes);
        self.count += 1;
        Ok(())
    }

    /// Completes the record and returns its number of routes. A record without routes is not written.
    pub fn finish(mut self) -> u16 {
        if self.count > 0 {
            self.out[self.count_at..self.count_at + 2].copy_from_slice(&self.count.to_be_bytes());
            end(self.out, self.start);
            self.finished = true;
        }
        self.count
    }
}

impl Drop for RibRecord<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

/// Appends the header, and the ends of the session.
fn begin_session(
    out: &mut Vec<u8>,
    time: Timestamp,
    subtype: u16,
    peer: Endpoint,
    local: Endpoint,
    as_size: AsSize,
) -> Result<usize, WriteError> {
    if peer.address.is_ipv6() != local.address.is_ipv6() {
        return Err(WriteError::MixedFamilies);
    }
    let start = begin(out, time.seconds, RecordType::BGP4MP_ET, subtype);
    out.extend_from_slice(&time.microseconds.to_be_bytes());
    for asn in [peer.asn, local.asn] {
        match as_size {
            AsSize::Four => out.extend_from_slice(&asn.to_be_bytes()),
            AsSize::Two => {
                out.extend_from_slice(&u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes());
            }
        }
    }
    let family: u16 = if peer.address.is_ipv6() { 2 } else { 1 };
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&family.to_be_bytes());
    push_address(out, peer.address);
    push_address(out, local.address);
    Ok(start)
}

/// Replaces an AS number that needs four bytes (RFC 6793).
const AS_TRANS: u16 = 23456;

/// The encoding of a session's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageForm {
    pub direction: Direction,
    /// The size of its AS numbers.
    pub as_size: AsSize,
    /// Whether its NLRI has path identifiers.
    pub add_path: bool,
}

/// Appends a BGP message of a session; `message` begins with its marker.
pub fn write_message(
    out: &mut Vec<u8>,
    time: Timestamp,
    peer: Endpoint,
    local: Endpoint,
    form: MessageForm,
    message: &[u8],
) -> Result<(), WriteError> {
    within("bytes of a message", message.len(), u16::MAX.into())?;
    let subtype = match (form.as_size, form.direction, form.add_path) {
        (AsSize::Two, Direction::Received, false) => 1,
        (AsSize::Two, Direction::Sent, false) => 6,
        (AsSize::Two, Direction::Received, true) => 8,
        (AsSize::Two, Direction::Sent, true) => 10,
        (AsSize::Four, Direction::Received, false) => 4,
        (AsSize::Four, Direction::Sent, false) => 7,
        (AsSize::Four, Direction::Received, true) => 9,
        (AsSize::Four, Direction::Sent, true) => 11,
    };
    let start = begin_session(out, time, subtype, peer, local, form.as_size)?;
    out.extend_from_slice(message);
    end(out, start);
    Ok(())
}

/// Appends a change of a session's state (RFC 4271 8.2.2: 1 Idle to 6 Established).
pub fn write_state_change(
    out: &mut Vec<u8>,
    time: Timestamp,
    peer: Endpoint,
    local: Endpoint,
    old: u16,
    new: u16,
) -> Result<(), WriteError> {
    let start = begin_session(out, time, 5, peer, local, AsSize::Four)?;
    out.extend_from_slice(&old.to_be_bytes());
    out.extend_from_slice(&new.to_be_bytes());
    end(out, start);
    Ok(())
}
