//! Builds UPDATEs piece by piece. Everything appends to a buffer; lengths are filled in at the end of each
//! piece.
//!
//! ```text
//! let message = begin_update(out);
//! write_nlri(out, ..);                                  withdrawn IPv4 prefixes
//! let attributes = begin_attributes(out, message);
//! write_attribute(out, ..); begin_mp_reach(out, ..) .. finish_attribute(out, ..);
//! finish_attributes(out, attributes);
//! write_nlri(out, ..);                                  announced IPv4 prefixes
//! finish_message(out, message)
//! ```

use super::header::{HEADER_LENGTH, MessageKind, begin_message, finish_message};
use super::{AfiSafi, Family, NextHop, attribute};

/// Begins an UPDATE; withdrawn IPv4 prefixes may follow. Returns the argument for [`finish_message`].
pub fn begin_update(out: &mut Vec<u8>) -> usize {
    let start = begin_message(out, MessageKind::Update);
    out.extend_from_slice(&[0; 2]);
    start
}

/// Ends the withdrawn prefixes of the UPDATE that began at `message`; attributes may follow. Returns the
/// argument for [`finish_attributes`].
pub fn begin_attributes(out: &mut Vec<u8>, message: usize) -> usize {
    put_length(out, message + HEADER_LENGTH);
    let start = out.len();
    out.extend_from_slice(&[0; 2]);
    start
}

/// Ends the attributes that began at `start`; announced IPv4 prefixes may follow.
pub fn finish_attributes(out: &mut [u8], start: usize) {
    put_length(out, start);
}

/// Appends an attribute. The length takes two bytes if the value needs it. A value above 65,535 bytes fits no
/// message: the sender checks the message's length.
pub fn write_attribute(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    let flags = flags & !attribute::FLAG_EXTENDED;
    match u8::try_from(value.len()) {
        Ok(length) => out.extend_from_slice(&[flags, code, length]),
        Err(_) => {
            let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&[flags | attribute::FLAG_EXTENDED, code]);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

/// Begins an MP_REACH_NLRI; prefixes follow. Returns the argument for [`finish_attribute`].
pub fn begin_mp_reach(out: &mut Vec<u8>, family: Family, next_hop: NextHop) -> usize {
    let start = begin_long_attribute(out, attribute::MP_REACH_NLRI, family.into());
    match next_hop {
        NextHop::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        NextHop::V6 { global, link_local } => {
            out.push(if link_local.is_some() { 32 } else { 16 });
            out.extend_from_slice(&global.octets());
            if let Some(address) = link_local {
                out.extend_from_slice(&address.octets());
            }
        }
    }
    out.push(0);
    start
}

/// Begins an MP_UNREACH_NLRI; prefixes follow. Returns the argument for [`finish_attribute`].
pub fn begin_mp_unreach(out: &mut Vec<u8>, family: Family) -> usize {
    begin_long_attribute(out, attribute::MP_UNREACH_NLRI, family.into())
}

fn begin_long_attribute(out: &mut Vec<u8>, code: u8, family: AfiSafi) -> usize {
    let start = out.len();
    out.extend_from_slice(&[attribute::FLAG_OPTIONAL | attribute::FLAG_EXTENDED, code, 0, 0]);
    out.extend_from_slice(&family.afi.to_be_bytes());
    out.push(family.safi);
    start
}

/// Ends the attribute that began at `start`.
pub fn finish_attribute(out: &mut [u8], start: usize) {
    put_length(out, start + 2);
}

/// Appends an End-of-RIB (RFC 4724 2).
pub fn write_end_of_rib(out: &mut Vec<u8>, family: Family) {
    let message = begin_update(out);
    let attributes = begin_attributes(out, message);
    if family != Family::Ipv4 {
        let (afi, safi) = family.afi_safi();
        let [high, low] = afi.to_be_bytes();
        write_attribute(out, attribute::FLAG_OPTIONAL, attribute::MP_UNREACH_NLRI, &[high, low, safi]);
    }
    finish_attributes(out, attributes);
    // A few bytes are not too long.
    let _ = finish_message(out, message);
}

/// Writes the number of bytes behind the field at `at` into it.
fn put_length(out: &mut [u8], at: usize) {
    let length = out.len().saturating_sub(at + 2);
    debug_assert!(length <= usize::from(u16::MAX));
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&(length as u16).to_be_bytes());
    }
}
