//! Merges segments of a TCP flow that arrive one behind the other, for drivers whose frames come single.
//!
//! ```text
//! |Ethernet|IP|TCP| payload |   |Ethernet|IP|TCP| payload |     two frames, the second not yet in the chunk
//!                           <──────────────────── payload       it continues the first
//! ```
//!
//! The rules are stricter than those of the kernel's GRO: cutting the merged frame ([`super::segment`]) gives the same
//! frames again, byte for byte. So headers must be equal, options and window included; sequence numbers and IPv4
//! identifications must continue; checksums must be right, or left unfinished by a local sender; and only the last
//! segment may be shorter than the first, or have PSH. Frames with VLAN tags are left alone.
//!
//! Pure: no clock, no socket, and no bytes make it panic.

use std::ops::Range;

use thalweg_base::ChunkBuilder;
use thalweg_wire::ethernet::HEADER_BYTES as ETHERNET;
use thalweg_wire::ip_protocol::TCP;
use thalweg_wire::{EtherType, checksum, checksum_offload, ipv4, ipv6, tcp};

/// Flags that all segments have in common, and PSH.
const FLAGS: u8 = tcp::ACK | tcp::PSH | 0x40;
/// The longest IP packet.
const IP_BYTES_MAX: usize = 0xffff;

/// The segments that are being merged: the last frame of a chunk.
#[derive(Debug, Default)]
pub(super) struct Merging(Option<Run>);

#[derive(Debug)]
struct Run {
    /// The first segment.
    first: Segment,
    /// Where the frame is in the chunk's buffer.
    place: Range<usize>,
    count: usize,
    next_sequence: u32,
    next_identification: u16,
    /// The last segment was shorter than the first, or has PSH.
    is_closed: bool,
    has_push: bool,
}

/// A segment that may be merged.
#[derive(Clone, Copy, Debug)]
struct Segment {
    v6: bool,
    transport: usize,
    headers: usize,
    payload: usize,
    sequence: u32,
    identification: u16,
    has_push: bool,
    is_unfinished: bool,
}

impl Merging {
    /// Takes a frame that lies where the chunk's next frame begins. Returns whether it has become a part of the last
    /// one; otherwise the caller adds it to the chunk. With `unfinished`, local senders leave checksums unfinished;
    /// those of frames taken here are finished.
    pub(super) fn take(&mut self, into: &mut ChunkBuilder, place: Range<usize>, unfinished: bool) -> bool {
        let Some(segment) = Segment::of(&into.buffer_mut()[place.clone()], unfinished) else {
            self.end(into);
            if unfinished {
                checksum_offload::complete_frame(&mut into.buffer_mut()[place]);
            }
            return false;
        };
        if let Some(run) = &mut self.0
            && run.is_continued_by(into.buffer_mut(), &place, &segment)
        {
            let payload = place.start + segment.headers..place.end;
            into.buffer_mut().copy_within(payload, run.place.end);
            into.extend_last(segment.payload);
            run.append(&segment);
            return true;
        }
        self.end(into);
        self.0 = Some(Run {
            first: segment,
            place,
            count: 1,
            next_sequence: segment.next_sequence(),
            next_identification: segment.identification.wrapping_add(1),
            is_closed: segment.has_push,
            has_push: segment.has_push,
        });
        false
    }

    /// Completes the last frame. Call it before the chunk gets other frames, and at the end.
    pub(super) fn end(&mut self, into: &mut ChunkBuilder) {
        let Some(run) = self.0.take() else { return };
        let frame = &mut into.buffer_mut()[run.place.clone()];
        if run.count == 1 {
            if run.first.is_unfinished {
                checksum_offload::complete_frame(frame);
            }
            return;
        }
        let Segment { v6, transport, headers, payload, .. } = run.first;
        let bytes = frame.len() - ETHERNET;
        // `is_continued_by` has kept both within their fields, and headers are far shorter.
        let (Ok(length), Ok(payload), Ok(headers)) = (
            u16::try_from(if v6 { bytes - ipv6::HEADER_BYTES } else { bytes }),
            u16::try_from(payload),
            u8::try_from(headers),
        ) else {
            return;
        };
        let at = ETHERNET + if v6 { 4 } else { 2 };
        frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
        if !v6 {
            ipv4::write_checksum(&mut frame[ETHERNET..transport]);
        }
        if run.has_push {
            frame[transport + tcp::FLAGS_AT] |= tcp::PSH;
        }
        into.merge_last(headers, payload);
    }
}

impl Run {
    fn is_continued_by(&self, buffer: &[u8], place: &Range<usize>, next: &Segment) -> bool {
        let Run { first, .. } = self;
        let is_next = !self.is_closed
            && (next.v6, next.transport, next.headers) == (first.v6, first.transport, first.headers)
            && next.payload <= first.payload
            && next.sequence == self.next_sequence
            && (next.v6 || next.identification == self.next_identification)
            && self.place.len() - ETHERNET + next.payload <= IP_BYTES_MAX;
        let (mine, other) = (&buffer[self.place.clone()], &buffer[place.clone()]);
        let same = |range: Range<usize>| mine[range.clone()] == other[range];
        let t = first.transport;
        let same_network = || match first.v6 {
            // All but the payload length.
            true => same(0..ETHERNET + 4) && same(ETHERNET + 6..t),
            // All but total length, identification and checksum.
            false => same(0..ETHERNET + 2) && same(ETHERNET + 6..ETHERNET + 10) && same(ETHERNET + 12..t),
        };
        let flags_differ = |at: usize| (mine[at] ^ other[at]) & !tcp::PSH != 0;
        // All but the sequence number, PSH and the checksum.
        is_next
            && same_network()
            && same(t..t + 4)
            && same(t + 8..t + tcp::FLAGS_AT)
            && !flags_differ(t + tcp::FLAGS_AT)
            && same(t + 14..t + 16)
            && same(t + 18..first.headers)
    }

    fn append(&mut self, next: &Segment) {
        self.place.end += next.payload;
        self.count += 1;
        self.next_sequence = next.next_sequence();
        self.next_identification = next.identification.wrapping_add(1);
        self.is_closed = next.has_push || next.payload < self.first.payload;
        self.has_push = next.has_push;
    }
}

impl Segment {
    fn of(frame: &[u8], unfinished: bool) -> Option<Self> {
        let ether_type = EtherType::from_be_bytes(*frame.get(12..)?.first_chunk()?);
        let packet = frame.get(ETHERNET..)?;
        let (v6, network_bytes, addresses, identification) = if ether_type == EtherType::IPV4 {
            let header: &[u8; ipv4::HEADER_BYTES] = packet.first_chunk()?;
            let is_plain = header[0] == 0x45
                && be16(header, 2)? == packet.len()
                && be16(header, 6)? & 0xbfff == 0
                && header[9] == TCP
                && checksum::fold(checksum::sum(header, 0)) == 0xffff;
            (is_plain.then_some(false)?, header.len(), 12..20, u16::from_be_bytes([header[4], header[5]]))
        } else {
            let header: &[u8; ipv6::HEADER_BYTES] = packet.first_chunk()?;
            let is_plain = ether_type == EtherType::IPV6
                && header[0] >> 4 == 6
                && be16(header, 4)? + ipv6::HEADER_BYTES == packet.len()
                && header[6] == TCP;
            (is_plain.then_some(true)?, header.len(), 8..40, 0)
        };
        let segment = &packet[network_bytes..];
        let header: &[u8; tcp::HEADER_BYTES] = segment.first_chunk()?;
        let tcp_bytes = usize::from(header[12] >> 4) * 4;
        let payload = segment.len().checked_sub(tcp_bytes).filter(|payload| *payload > 0)?;
        if tcp_bytes < tcp::HEADER_BYTES || header[tcp::FLAGS_AT] & !FLAGS != 0 {
            return None;
        }
        let length = u32::try_from(segment.len()).ok()?;
        let pseudo = checksum::sum(&packet[addresses], u32::from(TCP) + length);
        let is_unfinished = unfinished && be16(header, 16)? == usize::from(checksum::fold(pseudo));
        if !is_unfinished && checksum::fold(checksum::sum(segment, pseudo)) != 0xffff {
            return None;
        }
        let transport = ETHERNET + network_bytes;
        Some(Self {
            v6,
            transport,
            headers: transport + tcp_bytes,
            payload,
            sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            identification,
            has_push: header[tcp::FLAGS_AT] & tcp::PSH != 0,
            is_unfinished,
        })
    }

    fn next_sequence(&self) -> u32 {
        // An IP packet is shorter than 64 KiB.
        self.sequence.wrapping_add(u32::try_from(self.payload).unwrap_or(u32::MAX))
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::segment::Segments;
    use proptest::prelude::*;
    use thalweg_base::{Chunk, LinkType};
    use thalweg_wire::ipv4::Ipv4Repr;
    use thalweg_wire::testing;

    /// Adds frames to a chunk as a driver does.
    fn merged(frames: &[Vec<u8>], unfinished: bool) -> Chunk {
        let mut builder = ChunkBuilder::with_capacity(1 << 21);
        let mut merging = Merging::default();
        for frame in frames {
            let at = builder.next_frame_offset();
            builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
            if !merging.take(&mut builder, at..at + frame.len(), unfinished) {
                builder.push(at, frame.len(), frame.len() as u32, 0, LinkType::Ethernet, 0, 0);
            }
        }
        merging.end(&mut builder);
        builder.finish(0, 1, 0)
    }

    /// The frames of a chunk as on a wire.
    fn cut(chunk: &Chunk) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for (at, packet) in chunk.packets().iter().enumerate() {
            let frame = chunk.frame(at);
            let before = frames.len();
            match packet.segment_bytes() {
                None => frames.push(frame.to_vec()),
                Some(bytes) => {
                    let mut segments = Segments::of_tcp(frame, ETHERNET, bytes).unwrap();
                    while let Some(bytes) = segments.next_bytes() {
                        let mut into = vec![0; bytes];
                        segments.write_next(frame, &mut into);
                        frames.push(into);
                    }
                }
            }
            assert_eq!(packet.wire_packets() as usize, frames.len() - before);
            assert_eq!(packet.wire_len as usize, frames[before..].iter().map(Vec::len).sum::<usize>());
        }
        frames
    }

    fn segment(v6: bool, flow: u8, sequence: u32, identification: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (from, to): (std::net::SocketAddr, std::net::SocketAddr) = if v6 {
            (format!("[2001:db8::{flow}]:7").parse().unwrap(), "[2001:db8::ff]:80".parse().unwrap())
        } else {
            (([10, 0, 0, flow], 7).into(), ([10, 0, 0, 255], 80).into())
        };
        let segment = testing::tcp_segment(from, to, flags, [sequence, 5], payload);
        let packet = match (from.ip(), to.ip()) {
            (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) => {
                let mut header = Ipv4Repr::new(from, to, TCP, segment.len());
                header.identification = identification;
                testing::ipv4(header, &segment)
            }
            _ => testing::ip(from.ip(), to.ip(), TCP, &segment),
        };
        testing::frame(&packet)
    }

    /// Segments of a few flows in bursts, some of which do not continue.
    fn bursts() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let burst = (any::<bool>(), 1..4_u8, 1..1400_usize, 1..60_usize, any::<u32>(), 0..8_u8, any::<u16>());
        prop::collection::vec(burst, 1..8).prop_map(|bursts| {
            let mut frames = Vec::new();
            for (v6, flow, size, count, start, oddity, odd_at) in bursts {
                let (mut sequence, odd_at) = (start, usize::from(odd_at) % count);
                for nth in 0..count {
                    let is_odd = nth == odd_at;
                    let bytes = if is_odd && oddity == 0 { 1 + size / 2 } else { size };
                    let flags = match oddity {
                        1 if is_odd => tcp::ACK | tcp::PSH,
                        2 if is_odd => tcp::ACK | tcp::FIN,
                        _ => tcp::ACK,
                    };
                    let id = if is_odd && oddity == 3 { 7 } else { nth as u16 };
                    let payload: Vec<u8> = (0..bytes).map(|at| at as u8 ^ nth as u8).collect();
                    let mut frame = segment(v6, flow, sequence, id, flags, &payload);
                    let end = frame.len() - 1;
                    match oddity {
                        // A damaged byte, and padding.
                        4 if is_odd => frame[end] ^= 1,
                        5 if is_odd => frame.push(0),
                        6 if is_odd => sequence = sequence.wrapping_add(1),
                        _ => {}
                    }
                    frames.push(frame);
                    sequence = sequence.wrapping_add(bytes as u32);
                }
            }
            frames
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn cutting_what_was_merged_gives_the_same_frames(frames in bursts()) {
            prop_assert_eq!(cut(&merged(&frames, false)), frames);
        }

        /// A local sender's frames are merged without their checksums, and come out with them.
        #[test]
        fn unfinished_checksums_are_finished(frames in bursts()) {
            let unfinished: Vec<Vec<u8>> = frames
                .iter()
                .map(|frame| {
                    let mut frame = frame.clone();
                    if let Some(Segment { v6, transport, .. }) = Segment::of(&frame, false) {
                        let addresses = if v6 { ETHERNET + 8..ETHERNET + 40 } else { ETHERNET + 12..ETHERNET + 20 };
                        let length = (frame.len() - transport) as u32;
                        let pseudo = checksum::fold(checksum::sum(&frame[addresses], u32::from(TCP) + length));
                        frame[transport + 16..transport + 18].copy_from_slice(&pseudo.to_be_bytes());
                    }
                    frame
                })
                .collect();
            prop_assert_eq!(cut(&merged(&unfinished, true)), frames);
        }

        #[test]
        fn no_bytes_make_it_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
            prop_assert_eq!(cut(&merged(&frames, false)), frames);
        }
    }

    #[test]
    fn a_flow_becomes_few_frames() {
        let payload = [5; 1448];
        let frames: Vec<Vec<u8>> =
            (0..100).map(|nth| segment(false, 1, nth * 1448, nth as u16, tcp::ACK, &payload)).collect();
        let chunk = merged(&frames, false);
        assert_eq!(chunk.packets().len(), 3, "45 segments fit an IP packet");
        assert_eq!(cut(&chunk), frames);
    }
}
