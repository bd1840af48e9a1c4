//! The smallest Ethernet frames, and chunks of them in memory, laid out as by a reader.
//!
//! A frame is 60 bytes here and 64 on the wire, where the check sequence follows: Ethernet, IPv4, UDP and 18
//! bytes of payload, or TCP and 6. Checksums are valid, so that nothing is dropped for the wrong reason.

use thalweg_base::{Chunk, ChunkBuilder, LinkType};
use thalweg_wire::ethernet::{EthernetRepr, HEADER_BYTES as ETHERNET};
use thalweg_wire::ip_protocol::{TCP, UDP};
use thalweg_wire::ipv4::{self, Ipv4Repr};
use thalweg_wire::tcp::{self, TcpRepr};
use thalweg_wire::udp::{self, UdpRepr};
use thalweg_wire::{EtherType, MacAddr, checksum};

/// Bytes of a frame, without the check sequence.
pub const FRAME_BYTES: usize = 60;
/// Bytes of a frame's IP packet.
pub const IP_BYTES: usize = FRAME_BYTES - ETHERNET;
/// The bytes of a frame.
pub type Frame = [u8; FRAME_BYTES];

/// The arrival of the first packet: 2026-01-01, in nanoseconds since 1970.
pub const FIRST_ARRIVAL_NS: u64 = 1_767_225_600_000_000_000;

const TRANSPORT_AT: usize = ETHERNET + ipv4::HEADER_BYTES;

/// An endless source of frames.
pub trait FrameSource {
    /// Writes the next frame; returns the port on which it arrives.
    fn next_frame(&mut self, frame: &mut Frame) -> u16;
}

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub address: u32,
    /// UDP or TCP port.
    pub port: u16,
}

/// Writes a UDP packet from one endpoint to the other. `number` fills the payload, so that no two packets need
/// be equal.
pub fn udp(frame: &mut Frame, from: Endpoint, to: Endpoint, number: u64) {
    let mut payload = [0; IP_BYTES - ipv4::HEADER_BYTES - udp::HEADER_BYTES];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    let header = UdpRepr { source_port: from.port, destination_port: to.port };
    let pseudo = headers(frame, UDP, from, to);
    write_transport(frame, &header.encode(&payload, pseudo), &payload);
}

/// Writes a TCP packet in the middle of a connection: an ACK with a few bytes of payload. `number` is its
/// position.
pub fn tcp(frame: &mut Frame, from: Endpoint, to: Endpoint, number: u64) {
    let payload = [0; IP_BYTES - ipv4::HEADER_BYTES - tcp::HEADER_BYTES];
    let header = TcpRepr {
        source_port: from.port,
        destination_port: to.port,
        sequence: number as u32,
        acknowledgment: 0,
        flags: tcp::ACK,
        window: u16::MAX,
    };
    let pseudo = headers(frame, TCP, from, to);
    write_transport(frame, &header.encode(&payload, pseudo), &payload);
}

/// Writes Ethernet and IPv4 headers; returns the sum of the pseudo header.
fn headers(frame: &mut Frame, protocol: u8, from: Endpoint, to: Endpoint) -> u32 {
    // Locally administered addresses; the router's own side ends in 01.
    let ethernet = EthernetRepr {
        destination: MacAddr([2, 0, 0, 0, 0, 1]),
        source: MacAddr([2, 0, 0, 0, 0, 2]),
        ether_type: EtherType::IPV4,
    };
    let length = IP_BYTES - ipv4::HEADER_BYTES;
    let ip = Ipv4Repr {
        flags_and_offset: ipv4::DONT_FRAGMENT,
        ..Ipv4Repr::new(from.address.into(), to.address.into(), protocol, length)
    };
    frame[..ETHERNET].copy_from_slice(&ethernet.encode());
    frame[ETHERNET..TRANSPORT_AT].copy_from_slice(&ip.encode());
    checksum::pseudo_ipv4(from.address, to.address, protocol, length as u16)
}

fn write_transport(frame: &mut Frame, header: &[u8], payload: &[u8]) {
    let (at, rest) = frame[TRANSPORT_AT..].split_at_mut(header.len());
    at.copy_from_slice(header);
    rest.copy_from_slice(payload);
}

/// Source and destination of an IPv4 and UDP frame without options.
pub fn ends_of(frame: &[u8]) -> Option<(Endpoint, Endpoint)> {
    let ends: &[u8; 12] = frame.get(26..)?.first_chunk()?;
    let [a0, a1, a2, a3, b0, b1, b2, b3, p0, p1, q0, q1] = *ends;
    let end =
        |address, port| Endpoint { address: u32::from_be_bytes(address), port: u16::from_be_bytes(port) };
    Some((end([a0, a1, a2, a3], [p0, p1]), end([b0, b1, b2, b3], [q0, q1])))
}

/// Chunks of the next `packets` frames of a source, one at a time.
#[derive(Debug)]
pub struct Chunks<'a, S> {
    source: &'a mut S,
    left: u64,
    chunk_packets: usize,
    gap_ns: u64,
    sequence: u64,
    next_number: u64,
    clock_ns: u64,
}

impl<'a, S: FrameSource> Chunks<'a, S> {
    /// `packets` packets, `gap_ns` apart, in chunks of `chunk_packets` (limited to the possible sizes).
    pub fn new(source: &'a mut S, packets: u64, chunk_packets: usize, gap_ns: u64) -> Self {
        let chunk_packets = chunk_packets.clamp(1, ChunkBuilder::PACKETS_MAX);
        Self { source, left: packets, chunk_packets, gap_ns, sequence: 0, next_number: 1, clock_ns: 0 }
    }
}

impl<S: FrameSource> Iterator for Chunks<'_, S> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let packets = self.left.min(self.chunk_packets as u64) as usize;
        if packets == 0 {
            return None;
        }
        let mut builder = ChunkBuilder::with_capacity(packets * (ChunkBuilder::HEADROOM + FRAME_BYTES));
        builder.reserve_packets(packets);
        let first = self.next_number;
        let mut arrival_ns = 0;
        let mut frame = [0; FRAME_BYTES];
        for i in 0..packets as u64 {
            let port_in = self.source.next_frame(&mut frame);
            let offset = builder.next_frame_offset();
            builder.buffer_mut()[offset..offset + FRAME_BYTES].copy_from_slice(&frame);
            arrival_ns = FIRST_ARRIVAL_NS + (first - 1 + i) * self.gap_ns;
            let len = FRAME_BYTES;
            builder.push(offset, len, len as u32, arrival_ns, LinkType::Ethernet, port_in, 0);
        }
        let chunk = builder.finish(self.sequence, first, self.clock_ns);
        self.left -= packets as u64;
        self.sequence += 1;
        self.next_number += packets as u64;
        self.clock_ns = arrival_ns;
        Some(chunk)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses a frame by the RFCs' definitions, without the code that writes frames: the sum of 16-bit words must
    /// be 0xffff over the header, and over pseudo header and datagram.
    pub(crate) fn parse(frame: &[u8]) -> Option<(Endpoint, Endpoint)> {
        let ip = frame.get(14..)?;
        let ones = |words: &[u8]| {
            let total: u32 = words.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            (total & 0xffff) + (total >> 16)
        };
        let sound =
            frame[12..14] == [8, 0] && ip[0] == 0x45 && ip[2..4] == [0, 46] && ones(&ip[..20]) == 0xffff;
        let mut pseudo = ip[12..20].to_vec();
        pseudo.extend([0, 17, 0, 26]);
        pseudo.extend(&ip[20..46]);
        if !sound || ip[24..26] != [0, 26] || ones(&pseudo) != 0xffff {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
        let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let from = Endpoint { address: word(12), port: port(20) };
        Some((from, Endpoint { address: word(16), port: port(22) }))
    }

    struct Numbers(u64);

    impl FrameSource for Numbers {
        fn next_frame(&mut self, frame: &mut Frame) -> u16 {
            self.0 += 1;
            let end = |address| Endpoint { address, port: 9 };
            udp(frame, end(0x0a00_0001), end(self.0 as u32), self.0);
            (self.0 % 3) as u16
        }
    }

    proptest! {
        #[test]
        fn frames_are_valid(a: u32, b: u32, port_a: u16, port_b: u16, number: u64) {
            let (from, to) = (Endpoint { address: a, port: port_a }, Endpoint { address: b, port: port_b });
            let mut frame = [0xee; FRAME_BYTES];
            udp(&mut frame, from, to, number);
            prop_assert_eq!(parse(&frame), Some((from, to)));
        }

        #[test]
        fn chunks_hold_every_packet_once_in_order(packets in 0u64..500, chunk_packets in 0usize..120) {
            let mut source = Numbers(0);
            let chunks: Vec<Chunk> = Chunks::new(&mut source, packets, chunk_packets, 1000).collect();
            let mut next = 1;
            let mut clock_ns = 0;
            for (sequence, chunk) in (0..).zip(&chunks) {
                prop_assert_eq!(chunk.sequence, sequence);
                prop_assert_eq!(chunk.first_packet_number, next);
                prop_assert!(chunk.clock_ns >= clock_ns);
                clock_ns = chunk.clock_ns;
                for (i, packet) in chunk.packets().iter().enumerate() {
                    let (_, to) = parse(chunk.frame(i)).unwrap();
                    prop_assert_eq!(u64::from(to.address), next);
                    prop_assert_eq!(u64::from(packet.port_in), next % 3);
                    prop_assert_eq!(packet.arrival_ns, FIRST_ARRIVAL_NS + (next - 1) * 1000);
                    prop_assert_eq!((packet.captured_len(), packet.wire_len), (60, 60));
                    next += 1;
                }
            }
            prop_assert_eq!(next - 1, packets);
            prop_assert_eq!(chunks.len() as u64, packets.div_ceil(chunk_packets.max(1) as u64));
        }
    }
}
