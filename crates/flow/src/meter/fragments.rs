//! Gives later fragments the ports that only their first fragment carries. Nothing is reassembled or delayed.
//!
//! There is one table ([`AgedSets`]) for all packets, in order of arrival. An entry lives for 30 s of packet
//! time, the middle of the range that RFC 791 allows for reassembly; an earlier eviction is counted. The key
//! is a keyed 64-bit hash of the datagram's VRF, addresses, protocol and identification; a collision is less
//! likely than a memory error.
//!
//! Fragments of one chunk may be in any order. A later fragment belongs to a flow without ports if its first
//! fragment comes in a later chunk or never.

use crate::key::{PortVrfs, fold, ports};
use thalweg_base::{AgedSets, Chunk, Packet, PacketFlags};
use thalweg_wire::ip_protocol;
use thalweg_wire::ipv6::Extensions;

const SETS: usize = 1024;
const LIFETIME_NS: u64 = 30_000_000_000;

/// Later fragments with and without a known first fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FragmentCounts {
    pub(crate) matched: u64,
    pub(crate) unmatched: u64,
    pub(crate) evicted: u64,
}

/// The table; see the module documentation.
#[derive(Debug)]
pub(crate) struct Fragments {
    /// By the datagram's hash.
    ports: AgedSets<u64, (u16, u16)>,
    secret: [u64; 6],
    pub(crate) counts: FragmentCounts,
}

impl Fragments {
    pub(crate) fn new(secret: [u64; 6]) -> Self {
        Self { ports: AgedSets::new(SETS, LIFETIME_NS), secret, counts: FragmentCounts::default() }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.ports.memory_bytes()
    }

    /// Gives later fragments their ports; calls `then` for each of them, whether its ports are known or not.
    pub(crate) fn resolve(
        &mut self,
        vrfs: PortVrfs<'_>,
        chunk: &mut Chunk,
        mut then: impl FnMut(&mut Packet, &[u8]),
    ) {
        let now_ns = chunk.clock_ns;
        let (mut batch, _) = chunk.whole();
        for later in [false, true] {
            for (packet, frame) in batch.frames() {
                let is_fragment = packet.flags.has(PacketFlags::FRAGMENT);
                if !is_fragment || packet.flags.has(PacketFlags::LATER_FRAGMENT) != later {
                    continue;
                }
                match self.hash(vrfs.of(packet), packet, frame) {
                    Some(hash) if later => self.find(packet, hash, now_ns),
                    Some(hash) => self.record(packet, frame, hash, now_ns),
                    None => {}
                }
                if later {
                    then(packet, frame);
                }
            }
        }
    }

    fn record(&mut self, packet: &Packet, frame: &[u8], hash: u64, now_ns: u64) {
        let had_to_go = self.ports.insert(hash, hash, ports(packet, frame), now_ns);
        self.counts.evicted += u64::from(had_to_go);
    }

    fn find(&mut self, packet: &mut Packet, hash: u64, now_ns: u64) {
        if packet.flags.has(PacketFlags::HAS_PORTS) {
            return;
        }
        match self.ports.get(hash, &hash, now_ns) {
            Some((src_port, dst_port)) => {
                (packet.src_port, packet.dst_port) = (*src_port, *dst_port);
                packet.flags.set(PacketFlags::HAS_PORTS);
                self.counts.matched += 1;
            }
            None => self.counts.unmatched += 1,
        }
    }

    /// The hash of the datagram that a fragment belongs to: in each VRF another.
    fn hash(&self, vrf: Option<u16>, packet: &Packet, frame: &[u8]) -> Option<u64> {
        let vrf = u64::from(vrf.unwrap_or(0)) << 32;
        let l3 = frame.get(usize::from(packet.l3_offset)..)?;
        let word = |at: usize| l3.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let [a, b, c, d, e, f] = self.secret;
        let hash = if packet.is_ipv6() {
            // RFC 8200, 4.5: addresses and identification.
            let id = u64::from(identification6(l3)?) | vrf;
            let (src, dst) = (fold(word(8)? ^ a, word(16)? ^ b), fold(word(24)? ^ c, word(32)? ^ d));
            fold(src ^ e, dst.rotate_left(29) ^ id ^ f)
        } else {
            // RFC 791, 3.2: addresses, protocol and identification.
            let id = u64::from(u16::from_be_bytes([*l3.get(4)?, *l3.get(5)?]));
            fold(fold(word(12)? ^ f, id << 8 ^ u64::from(packet.protocol) ^ vrf ^ e) ^ d, c)
        };
        Some(hash)
    }
}

fn identification6(l3: &[u8]) -> Option<u32> {
    let mut extensions = Extensions::new(l3, l3.len(), *l3.get(6)?);
    let fragment = extensions.find(|extension| extension.kind == ip_protocol::FRAGMENT)?;
    l3.get(fragment.at + 4..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
