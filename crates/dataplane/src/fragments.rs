//! Virtual reassembly: gives later fragments the ports that only their first fragment carries, so that NAT and the
//! firewall can find their session or state. Nothing is reassembled or held back.
//!
//! One table serves all packets ([`AgedSets`]) of all VRFs, in order of arrival (scope `Ordered`), because a later fragment's
//! shard is unknown before its ports are. An entry lives for 30 s of packet time, the middle of the range that RFC
//! 791 allows for reassembly; early evictions are counted.
//!
//! Fragments of one chunk may come in any order. A later fragment whose first fragment comes in a later chunk stays
//! without ports, and NAT and the firewall drop it by name. RFC 4787 REQ-14 wants it held: on live ports the router as a host keeps
//! it and injects it again.

use thalweg_base::{AgedSets, Chunk, Packet, PacketFlags, mix64};
use thalweg_wire::ip_protocol;
use thalweg_wire::ipv6::Extensions;

const SETS: usize = 1024;
const LIFETIME_NS: u64 = 30_000_000_000;

/// Identifies a datagram (RFC 791 3.2, RFC 8200 4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Datagram {
    src: u128,
    dst: u128,
    id: u32,
    protocol: u8,
    is_ipv6: bool,
    /// Two VRFs may have hosts of one address.
    vrf: u16,
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

/// The table of datagrams whose first fragment has been seen.
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

    /// Records first fragments and resolves later ones in a chunk that has not been scheduled yet; those of IPv6,
    /// which NAT does not touch, only if `with_ipv6`. `vrf_of` tells the VRF of a port.
    pub fn process(&mut self, chunk: &mut Chunk, with_ipv6: bool, vrf_of: impl Fn(u16) -> u16) {
        let now_ns = chunk.clock_ns;
        let (mut batch, _) = chunk.whole();
        for later in [false, true] {
            for i in 0..batch.len() {
                let (packet, l3) = batch.packet_and_l3(i);
                let fragment = packet.flags.has(PacketFlags::FRAGMENT) && (with_ipv6 || !packet.is_ipv6());
                if fragment && packet.is_alive() && packet.flags.has(PacketFlags::LATER_FRAGMENT) == later {
                    self.visit(packet, l3, vrf_of(packet.port_in), now_ns);
                }
            }
        }
    }

    fn visit(&mut self, packet: &mut Packet, l3: &[u8], vrf: u16, now_ns: u64) {
        let Some(datagram) = Datagram::of(packet, l3, vrf) else { return };
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
    /// `None` for a protocol whose fragments need no ports.
    fn of(packet: &Packet, l3: &[u8], vrf: u16) -> Option<Self> {
        use ip_protocol::{ICMP, TCP, UDP};
        let protocol = packet.protocol;
        if packet.is_ipv6() {
            let header: &[u8; 40] = l3.first_chunk()?;
            let address = |at| crate::ingress::be128(header, at);
            let mut extensions = Extensions::new(l3, l3.len(), header[6]);
            let fragment = extensions.find(|extension| extension.kind == ip_protocol::FRAGMENT)?;
            let id = u32::from_be_bytes(*l3.get(fragment.at + 4..)?.first_chunk()?);
            // The protocol of a later fragment may be that of an extension header, so it does not count.
            return Some(Self { src: address(8), dst: address(24), id, protocol: 0, is_ipv6: true, vrf });
        }
        let header: &[u8; 20] = l3.first_chunk()?;
        let word = |at: usize| {
            u128::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
        };
        let id = u32::from(u16::from_be_bytes([header[4], header[5]]));
        let this = Self { src: word(12), dst: word(16), id, protocol, is_ipv6: false, vrf };
        matches!(protocol, TCP | UDP | ICMP).then_some(this)
    }

    fn hash(&self) -> u64 {
        let fold = |address: u128| mix64((address >> 64) as u64) ^ address as u64;
        let pair = fold(self.src) << 32 ^ fold(self.src) >> 32 ^ fold(self.dst);
        mix64(pair ^ u64::from(self.id) << 24 ^ u64::from(self.vrf) << 8 ^ u64::from(self.protocol))
    }
}

#[cfg(test)]
mod tests;
