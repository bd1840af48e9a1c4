//! Builds packets for tests and benchmarks, with the descriptors that parsing would make, and sorts records.

use crate::record::FlowRecord;
use std::net::IpAddr;
use thalweg_base::{Chunk, ChunkBuilder, DropReason, LinkType, PacketFlags};
use thalweg_wire::ipv4::{Ipv4Repr, MORE_FRAGMENTS};
use thalweg_wire::ipv6::{FragmentRepr, Ipv6Repr};
use thalweg_wire::testing::{ethernet_header, ipv4};
use thalweg_wire::{EtherType, ip_protocol};

/// The description of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub src: IpAddr,
    /// Of the same family as `src`.
    pub dst: IpAddr,
    /// Ignored if the protocol has no ports.
    pub src_port: u16,
    /// Type and code for ICMP.
    pub dst_port: u16,
    pub protocol: u8,
    pub traffic_class: u8,
    pub ttl: u8,
    pub tcp_flags: u8,
    /// Bytes behind the transport header.
    pub payload: u16,
    /// 0 for no tag.
    pub vlan: u16,
    pub label: Option<u32>,
    pub ingress: u16,
    pub arrival_ns: u64,
    /// The reason of a router's drop.
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

    fn packet(&self) -> Vec<u8> {
        let transport = self.transport();
        let (id, later) = self.fragment.unwrap_or_default();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let more = if self.fragment.is_some() { MORE_FRAGMENTS } else { 0 };
                let header = Ipv4Repr {
                    ttl: self.ttl,
                    traffic_class: self.traffic_class,
                    identification: id,
                    flags_and_offset: more | if later { 100 } else { 0 },
                    ..Ipv4Repr::new(src, dst, self.protocol, transport.len())
                };
                ipv4(header, &transport)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (next_header, payload) = match self.fragment {
                    None => (self.protocol, transport),
                    Some(_) => {
                        let field = if later { 0x0301 } else { 1 };
                        let fragment =
                            FragmentRepr { next_header: self.protocol, field, identification: id.into() };
                        (ip_protocol::FRAGMENT, [&fragment.encode()[..], &transport].concat())
                    }
                };
                let header = Ipv6Repr {
                    hop_limit: self.ttl,
                    traffic_class: self.traffic_class,
                    ..Ipv6Repr::new(src, dst, next_header, payload.len())
                };
                [&header.encode()[..], &payload].concat()
            }
            _ => panic!("addresses of two families"),
        }
    }

    /// Bytes of the IP packet.
    pub fn bytes(&self) -> u64 {
        self.packet().len() as u64
    }

    /// The frame, and the offset of the IP packet.
    fn frame(&self) -> (Vec<u8>, u16) {
        let packet = self.packet();
        let ether_type = match self.label {
            Some(_) => EtherType::MPLS,
            None => EtherType::of_packet(&packet),
        };
        let tags = if self.vlan != 0 { &[self.vlan][..] } else { &[] };
        let mut bytes = ethernet_header(tags, ether_type);
        if let Some(label) = self.label {
            bytes.extend((label << 12 | 1 << 8 | 64).to_be_bytes());
        }
        let l3_offset = bytes.len() as u16;
        bytes.extend(packet);
        bytes.resize(bytes.len().max(60), 0);
        (bytes, l3_offset)
    }
}

/// A chunk of these packets, with descriptors as parsing would make them.
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
        packet.ip_len = sample.bytes() as u32;
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

/// Sorts records in an order that does not depend on who reported first. Two records of one key may differ in their
/// translation alone: behind NAT, a key without ports and ICMP errors have packets in several shards.
pub fn sort_records(records: &mut [FlowRecord]) {
    let place = |record: &FlowRecord| (record.key, record.counters.first_ns, record.counters.packets);
    let words = |record: &FlowRecord| format!("{record:?}");
    records.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| words(a).cmp(&words(b))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Counters, EndReason, FlowKey, Translation};

    #[test]
    fn the_order_of_records_does_not_depend_on_who_reported_first() {
        let (src, dst) = (IpAddr::from([10, 0, 0, 10]), IpAddr::from([203, 0, 113, 10]));
        let key = FlowKey {
            src,
            dst,
            src_port: 0,
            dst_port: 0,
            protocol: ip_protocol::UDP,
            traffic_class: 0,
            ingress: 1,
            vlan: 0,
            mpls_label: None,
        };
        let counters = Counters { packets: 1, bytes: 32, first_ns: 1, last_ns: 1, ..Counters::default() };
        let by_port = |src_port| {
            let translation = Some(Translation { src, dst, src_port, dst_port: 53 });
            FlowRecord { translation, ..FlowRecord::new(key, counters, EndReason::ActiveTimeout) }
        };
        let mut one = [by_port(4000), by_port(4007)];
        let mut other = [by_port(4007), by_port(4000)];
        sort_records(&mut one);
        sort_records(&mut other);
        assert_eq!(one, other);
    }
}
