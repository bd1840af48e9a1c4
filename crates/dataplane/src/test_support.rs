//! Packets for tests, built by an independent library.

use etherparse::PacketBuilder;
use thalweg_base::{Chunk, ChunkBuilder, LinkType};
use thalweg_wire::{EtherType, testing};

pub(crate) use thalweg_wire::testing::with_ipv4_field;

/// A frame as a source delivers it.
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) link: LinkType,
    pub(crate) port_in: u16,
    pub(crate) arrival_ns: u64,
    pub(crate) wire_len: Option<u32>,
    pub(crate) application: u8,
}

impl Frame {
    pub(crate) fn new(bytes: Vec<u8>, link: LinkType) -> Self {
        Self { bytes, link, port_in: 0, arrival_ns: 0, wire_len: None, application: 0 }
    }

    pub(crate) fn raw(bytes: Vec<u8>) -> Self {
        Self::new(bytes, LinkType::RawIp)
    }

    pub(crate) fn at(mut self, arrival_ns: u64) -> Self {
        self.arrival_ns = arrival_ns;
        self
    }

    pub(crate) fn on_port(mut self, port: u16) -> Self {
        self.port_in = port;
        self
    }
}

pub(crate) fn chunk(frames: Vec<Frame>) -> Chunk {
    let bytes: usize = frames.iter().map(|f| f.bytes.len() + 64).sum();
    let mut builder = ChunkBuilder::with_capacity(bytes);
    for f in frames {
        let at = builder.next_frame_offset();
        builder.buffer_mut()[at..at + f.bytes.len()].copy_from_slice(&f.bytes);
        let wire_len = f.wire_len.unwrap_or(f.bytes.len() as u32);
        builder.push(at, f.bytes.len(), wire_len, f.arrival_ns, f.link, f.port_in, f.application);
    }
    builder.finish(0, 1, 0)
}

pub(crate) fn udp4(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let built = PacketBuilder::ipv4(src, dst, 64).udp(src_port, dst_port).write(&mut out, payload);
    assert!(built.is_ok(), "{built:?}");
    out
}

pub(crate) fn udp6(src: [u8; 16], dst: [u8; 16], src_port: u16, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let built = PacketBuilder::ipv6(src, dst, 64).udp(src_port, dst_port).write(&mut out, payload);
    assert!(built.is_ok(), "{built:?}");
    out
}

/// An IP packet after an Ethernet header with the given tags and type.
pub(crate) fn ethernet(tags: &[u16], ethertype: u16, ip: &[u8]) -> Vec<u8> {
    [&testing::ethernet_header(tags, EtherType(ethertype))[..], ip].concat()
}
