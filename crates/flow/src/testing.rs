//! Packets for tests and benchmarks: made from a description, described as parsing would.

use std::net::IpAddr;
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, PacketFlags};

/// A packet to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Source port, if the protocol has ports.
    pub src_port: u16,
    /// Destination port; type and code of ICMP.
    pub dst_port: u16,
    /// Transport protocol.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Flags of TCP.
    pub tcp_flags: u8,
    /// Bytes behind the transport header.
    pub payload: u16,
    /// VLAN tag, if not 0.
    pub vlan: u16,
    /// MPLS label.
    pub label: Option<u32>,
    /// Port it came in by.
    pub ingress: u16,
    /// Arrival.
    pub arrival_ns: u64,
    /// Why a router dropped it.
    pub drop: Option<DropReason>,
    /// Identification of a fragment, and whether it is a later one.
    pub fragment: Option<(u16, bool)>,
}

impl Sample {
    /// A TCP acknowledgement without payload.
    pub fn tcp(src: (IpAddr, u16), dst: (IpAddr, u16)) -> Self {
        Self {
            src: src.0,
            dst: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            protocol: 6,
            traffic_class: 0,
            ttl: 64,
            tcp_flags: 16,
            payload: 0,
            vlan: 0,
            label: None,
            ingress: 0,
            arrival_ns: 0,
            drop: None,
            fragment: None,
        }
    }

    fn has_ports(&self) -> bool {
        matches!(self.protocol, 6 | 17)
    }

    fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|(_, later)| later)
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(self.payload)];
        if self.is_later_fragment() {
            return bytes;
        }
        let mut header = match self.protocol {
            6 => vec![0; 20],
            _ => vec![0; 8],
        };
        if self.has_ports() {
            header[..2].copy_from_slice(&self.src_port.to_be_bytes());
            header[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        } else {
            header[..2].copy_from_slice(&self.dst_port.to_be_bytes());
        }
        if self.protocol == 6 {
            (header[12], header[13]) = (0x50, self.tcp_flags);
        }
        header.append(&mut bytes);
        header
    }

    /// The IP packet.
    fn packet(&self) -> Vec<u8> {
        let transport = self.transport();
        let (id, later) = self.fragment.unwrap_or_default();
        let mut bytes;
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes = vec![0x45, self.traffic_class];
                bytes.extend((20 + transport.len() as u16).to_be_bytes());
                bytes.extend(id.to_be_bytes());
                let offset = if later { 100u16 } else { 0 } | u16::from(self.fragment.is_some()) << 13;
                bytes.extend(offset.to_be_bytes());
                bytes.extend([self.ttl, self.protocol, 0, 0]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let fragment = if self.fragment.is_some() { 8 } else { 0 };
                let (class, length) = (self.traffic_class, transport.len() as u16 + fragment);
                bytes = vec![0x60 | class >> 4, class << 4, 0, 0];
                bytes.extend(length.to_be_bytes());
                bytes.extend([if fragment > 0 { 44 } else { self.protocol }, self.ttl]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
                if fragment > 0 {
                    bytes.extend([self.protocol, 0, if later { 3 } else { 0 }, 1, 0, 0]);
                    bytes.extend(id.to_be_bytes());
                }
            }
            _ => panic!("addresses of two families"),
        }
        bytes.extend(transport);
        bytes
    }

    /// Bytes of the IP packet.
    pub fn octets(&self) -> u64 {
        self.packet().len() as u64
    }

    /// The frame, and where the IP packet begins in it.
    fn frame(&self) -> (Vec<u8>, u16) {
        let ethertype: u16 = if self.src.is_ipv4() { 0x0800 } else { 0x86dd };
        let mut bytes = vec![2; 12];
        if self.vlan != 0 {
            bytes.extend([0x81, 0x00]);
            bytes.extend(self.vlan.to_be_bytes());
        }
        match self.label {
            Some(label) => {
                bytes.extend([0x88, 0x47]);
                bytes.extend((label << 12 | 1 << 8 | 64).to_be_bytes());
            }
            None => bytes.extend(ethertype.to_be_bytes()),
        }
        let l3_offset = bytes.len() as u16;
        bytes.extend(self.packet());
        bytes.resize(bytes.len().max(60), 0);
        (bytes, l3_offset)
    }
}

/// A chunk of these packets, described as parsing would.
pub fn chunk(sequence: u64, clock_before_ns: u64, samples: &[Sample]) -> Chunk {
    let frames: Vec<_> = samples.iter().map(Sample::frame).collect();
    let bytes: usize = frames.iter().map(|(frame, _)| frame.len() + ChunkBuilder::HEADROOM).sum();
    let mut builder = ChunkBuilder::with_capacity(bytes);
    for (sample, (frame, _)) in samples.iter().zip(&frames) {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + frame.len()].copy_from_slice(frame);
        let len = frame.len();
        builder.push(at, len, len as u32, sample.arrival_ns, LinkType::Ethernet, sample.ingress, 0);
    }
    let mut chunk = builder.finish(sequence, 1, clock_before_ns);
    for ((packet, sample), (_, l3_offset)) in chunk.packets_mut().iter_mut().zip(samples).zip(&frames) {
        packet.l3_offset = *l3_offset;
        packet.ip_len = sample.octets() as u32;
        packet.protocol = sample.protocol;
        packet.traffic_class = sample.traffic_class;
        let header = if sample.src.is_ipv4() { 20 } else { 40 };
        packet.l4_offset = l3_offset + header;
        if sample.src.is_ipv6() {
            packet.flags.set(PacketFlags::IPV6);
            packet.l4_offset += if sample.fragment.is_some() { 8 } else { 0 };
        }
        if sample.fragment.is_some() {
            packet.flags.set(PacketFlags::FRAGMENT);
        }
        if sample.is_later_fragment() {
            packet.flags.set(PacketFlags::LATER_FRAGMENT);
        } else if sample.has_ports() {
            packet.flags.set(PacketFlags::HAS_PORTS);
            (packet.src_port, packet.dst_port) = (sample.src_port, sample.dst_port);
        }
        if let Some(reason) = sample.drop {
            packet.drop_for(reason);
        }
    }
    chunk.has_fragments = samples.iter().any(|sample| sample.fragment.is_some());
    chunk
}
