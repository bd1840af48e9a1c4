//! BGP in capture files: frames, TCP segments, streams. As simple as possible.

use std::collections::BTreeMap;

use thalweg_wire::pcap::{FILE_HEADER_LEN, FileHeader, RecordHeader};

/// One direction of a connection: addresses and ports as in the packets, and its bytes without gaps.
pub(crate) struct Stream {
    pub(crate) key: Key,
    next_sequence: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Source and destination, each an address and a port.
pub(crate) type Key = (Vec<u8>, u16, Vec<u8>, u16);

/// Streams to or from port 179, and the number of other packets.
pub(crate) fn streams(file: &[u8]) -> (Vec<Stream>, usize) {
    let mut streams: Vec<Stream> = Vec::new();
    let mut others = 0;
    let mut open: BTreeMap<Key, usize> = BTreeMap::new();
    for (link, frame) in frames(file) {
        let Some((key, sequence, payload)) = ip(link, &frame).and_then(tcp) else {
            others += 1;
            continue;
        };
        if payload.is_empty() || (key.1 != 179 && key.3 != 179) {
            others += 1;
            continue;
        }
        let current = open.get(&key).map(|&index| &mut streams[index]);
        match current.filter(|stream| stream.takes(sequence, payload)) {
            Some(stream) => {
                let old = stream.next_sequence.wrapping_sub(sequence) as usize;
                stream.bytes.extend_from_slice(payload.get(old..).unwrap_or(&[]));
                stream.next_sequence = stream.next_sequence.max(sequence.wrapping_add(payload.len() as u32));
            }
            None => {
                open.insert(key.clone(), streams.len());
                let next_sequence = sequence.wrapping_add(payload.len() as u32);
                streams.push(Stream { key, next_sequence, bytes: payload.to_vec() });
            }
        }
    }
    (streams, others)
}

impl Stream {
    /// Whether the segment continues the stream or repeats a part of it.
    fn takes(&self, sequence: u32, payload: &[u8]) -> bool {
        let old = self.next_sequence.wrapping_sub(sequence) as usize;
        let from = self.bytes.len().checked_sub(old);
        from.is_some_and(|from| {
            let shared = old.min(payload.len());
            self.bytes[from..from + shared] == payload[..shared]
        })
    }
}

/// Link type and bytes of each frame.
fn frames(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        // pcapng, little-endian: enhanced packet blocks; all interfaces here are Ethernet.
        let number =
            |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("a complete message")) as usize;
        let mut at = 0;
        while at + 12 <= file.len() {
            if number(at) == 6 {
                found.push((1, file[at + 28..at + 28 + number(at + 20)].to_vec()));
            }
            at += number(at + 4);
        }
        return found;
    }
    let header = FileHeader::parse(file[..FILE_HEADER_LEN].try_into().expect("a complete message"))
        .expect("a capture");
    let mut rest = &file[FILE_HEADER_LEN..];
    while let Some((record, after)) = rest.split_first_chunk() {
        let record = RecordHeader::parse(&header, record).expect("a record");
        let (frame, after) = after.split_at(record.captured_len as usize);
        found.push((header.link_code, frame.to_vec()));
        rest = after;
    }
    found
}

/// The IP packet in a frame.
fn ip(link: u32, frame: &[u8]) -> Option<&[u8]> {
    match link {
        1 => {
            let kind = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
            // Behind a VLAN tag, perhaps.
            let at = if kind(12)? == 0x8100 { 16 } else { 12 };
            matches!(kind(at)?, 0x0800 | 0x86dd).then(|| &frame[at + 2..])
        }
        101 | 12 => Some(frame),
        113 => frame.get(16..),
        // Juniper's header comes before the Ethernet header.
        178 => frame.windows(3).position(|three| three == [8, 0, 0x45]).map(|at| &frame[at + 2..]),
        _ => None,
    }
}

/// Endpoints, sequence number (of the first byte) and payload of a TCP packet.
fn tcp(packet: &[u8]) -> Option<(Key, u32, &[u8])> {
    let (from, to, segment) = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&6) => {
            let header = usize::from(packet[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]])).min(packet.len());
            (&packet[12..16], &packet[16..20], packet.get(header..total)?)
        }
        6 if packet.get(6) == Some(&6) => {
            let total = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            (&packet[8..24], &packet[24..40], packet.get(40..total.min(packet.len()))?)
        }
        _ => return None,
    };
    let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let payload = segment.get(usize::from(segment.get(12)? >> 4) * 4..)?;
    let sequence = u32::from_be_bytes(segment[4..8].try_into().ok()?);
    let syn = u32::from(segment[13] >> 1 & 1);
    let key = (from.to_vec(), port(0), to.to_vec(), port(2));
    Some((key, sequence.wrapping_add(syn), payload))
}
