//! The payload of a packet, and what changes with it: lengths, checksums, sequence numbers.

use super::stream::Way;
use crate::records::place;
use std::ops::Range;
use thalweg_base::{Chunk, Packet, PacketFlags};
use thalweg_wire::checksum::{ChecksumDelta, fold, sum};
use thalweg_wire::{ip_protocol, tcp};

/// The longest IP packet that a new text in a TCP segment may lead to. A segment that fits no link on the way would be
/// sent again and again.
pub(crate) const LONGEST: usize = 1400;

const UDP_HEADER: usize = 8;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;
const TCP_SEQUENCE: usize = 4;
const TCP_ACKNOWLEDGMENT: usize = 8;
const TCP_CHECKSUM: usize = 16;
const IPV4_LENGTH: usize = 2;
const IPV4_CHECKSUM: usize = 10;
/// Selective acknowledgments (RFC 2018).
const SACK: u8 = 5;

/// The bytes behind the TCP or UDP header; `None` if not all of them are there, or it is a part of a datagram.
pub(crate) fn range(packet: &Packet, l3: &[u8]) -> Option<Range<usize>> {
    if packet.flags.has(PacketFlags::FRAGMENT) || packet.segment_bytes().is_some() {
        return None;
    }
    let l4 = usize::from(packet.l4_offset.checked_sub(packet.l3_offset)?);
    let header = match packet.protocol {
        ip_protocol::TCP => (usize::from(l3.get(l4 + 12)? >> 4) * 4).max(tcp::HEADER_BYTES),
        _ => UDP_HEADER,
    };
    let (start, end) = (l4 + header, place(packet.ip_len));
    (start <= end && end <= l3.len()).then_some(start..end)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(word) = bytes.get_mut(at..at + 2) {
        word.copy_from_slice(&value.to_be_bytes());
    }
}

/// Applies a change to the checksum at `at`. A UDP checksum of zero says that there is none.
fn update(bytes: &mut [u8], at: usize, change: ChecksumDelta, is_udp: bool) {
    match word(bytes, at) {
        None => {}
        Some(0) if is_udp => {}
        Some(old) => match change.apply(old) {
            0 if is_udp => put(bytes, at, 0xffff),
            new => put(bytes, at, new),
        },
    }
}

/// Gives an IPv4 packet of a chunk another payload. Returns false, and changes nothing, if it cannot have one.
pub(crate) fn replace(chunk: &mut Chunk, i: usize, range: &Range<usize>, new: &[u8]) -> bool {
    let packet = &chunk.packets()[i];
    let (l3, l4) = (usize::from(packet.l3_offset), usize::from(packet.l4_offset));
    let is_udp = packet.protocol == ip_protocol::UDP;
    let Some(old) = chunk.frame(i).get(l3 + range.start..l3 + range.end) else { return false };
    let before = fold(sum(old, 0));
    let lengths = [range.end, range.start + new.len()].map(u16::try_from);
    let [Ok(old_len), Ok(new_len)] = lengths else { return false };
    if !chunk.replace_tail(i, l3 + range.start, new) {
        return false;
    }
    let mut payload = ChecksumDelta::default();
    payload.replace_u16(before, fold(sum(new, 0)));
    // The length is part of the pseudo header, and of UDP's own.
    for _ in 0..1 + u8::from(is_udp) {
        payload.replace_u16(old_len, new_len);
    }
    let mut header = ChecksumDelta::default();
    header.replace_u16(old_len, new_len);
    let (mut batch, _) = chunk.whole();
    let (packet, bytes) = batch.packet_and_l3(i);
    packet.ip_len = new_len.into();
    put(bytes, IPV4_LENGTH, new_len);
    update(bytes, IPV4_CHECKSUM, header, false);
    let segment = &mut bytes[l4 - l3..];
    if is_udp {
        let length = usize::from(new_len) - (l4 - l3);
        put(segment, UDP_LENGTH, u16::try_from(length).unwrap_or(u16::MAX));
    }
    update(segment, if is_udp { UDP_CHECKSUM } else { TCP_CHECKSUM }, payload, is_udp);
    true
}

/// The sequence number of a segment, and its flags.
pub(crate) fn sequence_and_flags(packet: &Packet, l3: &[u8]) -> Option<(u32, u8)> {
    let segment = l3.get(usize::from(packet.l4_offset.checked_sub(packet.l3_offset)?)..)?;
    Some((long(segment, TCP_SEQUENCE)?, *segment.get(tcp::FLAGS_AT)?))
}

/// Writes the numbers of a segment as its receiver counts: its own by `mine`, those that it acknowledges by `theirs`.
pub(crate) fn renumber(packet: &Packet, l3: &mut [u8], mine: &Way, theirs: &Way) {
    let start = packet.l4_offset.checked_sub(packet.l3_offset).map(usize::from);
    let Some(segment) = start.and_then(|start| l3.get_mut(start..)) else { return };
    let (Some(flags), Some(offset)) = (segment.get(tcp::FLAGS_AT).copied(), segment.get(12).copied()) else {
        return;
    };
    let mut change = ChecksumDelta::default();
    let mut renumber = |segment: &mut [u8], at: usize, number: &dyn Fn(u32) -> u32| {
        let Some(old) = long(segment, at) else { return };
        let new = number(old);
        if new != old
            && let Some(field) = segment.get_mut(at..at + 4)
        {
            field.copy_from_slice(&new.to_be_bytes());
            // In an odd place a value lies across words of the sum, so its bytes change places.
            let turned = |value: u32| if at % 2 == 0 { value } else { value.rotate_left(8) };
            change.replace_u32(turned(old), turned(new));
        }
    };
    renumber(segment, TCP_SEQUENCE, &|number| mine.after(number));
    if flags & tcp::ACK != 0 {
        renumber(segment, TCP_ACKNOWLEDGMENT, &|number| theirs.before(number));
        let end = usize::from(offset >> 4) * 4;
        let mut at = tcp::HEADER_BYTES;
        while at < end {
            let length = match (segment.get(at), segment.get(at + 1)) {
                (Some(1), _) => 1,
                (Some(2..), Some(length @ 2..)) => usize::from(*length),
                _ => break,
            };
            if segment[at] == SACK {
                for edge in (at + 2..(at + length).min(end).saturating_sub(3)).step_by(4) {
                    renumber(segment, edge, &|number| theirs.before(number));
                }
            }
            at += length;
        }
    }
    update(segment, TCP_CHECKSUM, change, false);
}
