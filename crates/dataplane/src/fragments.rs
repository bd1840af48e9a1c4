//! Virtual reassembly: gives later fragments the ports that only their first fragment carries, so that NAT can find
//! their session. Nothing is reassembled or held back.
//!
//! One table serves all packets ([`AgedSets`]), in order of arrival (scope `Ordered`), because a later fragment's
//! shard is unknown before its ports are. An entry lives for 30 s of packet time, the middle of the range that RFC
//! 791 allows for reassembly; early evictions are counted.
//!
//! Fragments of one chunk may come in any order. A later fragment whose first fragment comes in a later chunk stays
//! without ports, and NAT drops it by name. RFC 4787 REQ-14 wants it held: on live ports the router as a host keeps
//! it and injects it again.

use crate::nat::NatProtocol;
use thalweg_base::{AgedSets, Chunk, Packet, PacketFlags, mix64};

const SETS: usize = 1024;
const LIFETIME_NS: u64 = 30_000_000_000;

/// Identifies a datagram (RFC 791 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Datagram {
    src: u32,
    dst: u32,
    id: u16,
    protocol: u8,
}

/// Counters of the tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// Datagrams whose first fragment was recorded.
    pub datagrams: u64,
    /// Later fragments that got their ports.
    pub matched: u64,
    /// Later fragments that arrived before their first.
    pub unmatched: u64,
    /// Entries evicted early because their set was full.
    pub evicted: u64,
}

/// The table of datagrams whose first fragment has been seen. IPv4 only, because IPv6 is not translated.
#[derive(Clone, Debug)]
pub struct FragmentTracker {
    ports: AgedSets<Datagram, (u16, u16)>,
    counts: FragmentCounts,
}

impl Default for FragmentTracker {
    fn default() -> Self {
        Self { ports: AgedSets::new(SETS, LIFETIME_NS), counts: FragmentCounts::default() }
    }
}

impl FragmentTracker {
    /// Counters so far.
    pub fn counts(&self) -> FragmentCounts {
        self.counts
    }

    /// Records first fragments and resolves later ones in a chunk that has not been scheduled yet.
    pub fn process(&mut self, chunk: &mut Chunk) {
        let now_ns = chunk.clock_ns;
        let (mut batch, _) = chunk.whole();
        for later in [false, true] {
            for i in 0..batch.len() {
                let (packet, l3) = batch.packet_and_l3(i);
                let fragment = packet.flags.has(PacketFlags::FRAGMENT) && !packet.is_ipv6();
                if fragment && packet.is_alive() && packet.flags.has(PacketFlags::LATER_FRAGMENT) == later {
                    self.visit(packet, l3, now_ns);
                }
            }
        }
    }

    fn visit(&mut self, packet: &mut Packet, l3: &[u8], now_ns: u64) {
        if !NatProtocol::translates(packet.protocol) {
            // Its fragments need no ports.
            return;
        }
        let Some(header) = l3.first_chunk::<20>() else { return };
        let datagram = Datagram {
            src: u32::from_be_bytes([header[12], header[13], header[14], header[15]]),
            dst: u32::from_be_bytes([header[16], header[17], header[18], header[19]]),
            id: u16::from_be_bytes([header[4], header[5]]),
            protocol: packet.protocol,
        };
        let hash = datagram.hash();
        if !packet.flags.has(PacketFlags::LATER_FRAGMENT) {
            if packet.flags.has(PacketFlags::HAS_PORTS) {
                let ports = (packet.src_port, packet.dst_port);
                self.counts.evicted += u64::from(self.ports.insert(hash, datagram, ports, now_ns));
                self.counts.datagrams += 1;
            }
        } else if let Some(&(src_port, dst_port)) = self.ports.get(hash, &datagram, now_ns) {
            packet.src_port = src_port;
            packet.dst_port = dst_port;
            packet.flags.set(PacketFlags::HAS_PORTS);
            self.counts.matched += 1;
        } else {
            self.counts.unmatched += 1;
        }
    }
}

impl Datagram {
    fn hash(&self) -> u64 {
        let pair = u64::from(self.src) << 32 | u64::from(self.dst);
        mix64(pair ^ u64::from(self.id) << 24 ^ u64::from(self.protocol))
    }
}

#[cfg(test)]
mod tests;
