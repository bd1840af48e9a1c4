//! Gives later fragments the ports that only their first fragment carries. Nothing is reassembled or held back.
//!
//! One table for all packets, in order of arrival. It is a fixed number of four-way sets; a full set gives up its oldest
//! entry, counted. An entry lives for 30 s of packet time, the middle of the range that RFC 791 allows for reassembly. A
//! datagram is known by a keyed hash of 64 bits over its addresses, protocol and identification: that two meet
//! is less likely than a broken memory.
//!
//! Fragments of one chunk may come in any order. A later fragment whose first comes only in a later chunk, or never,
//! belongs to a flow without ports.

use crate::key::{fold, ports};
use thalweg_base::{Chunk, Packet, PacketFlags};

const SETS: usize = 1024;
const WAYS: usize = 4;
const LIFETIME_NS: u64 = 30_000_000_000;

/// Extension headers of IPv6 that are followed to the fragment header.
const HEADERS_MAX: usize = 8;
/// The header that says what fragment it is (RFC 8200, 4.5).
const FRAGMENT_HEADER: u8 = 44;

/// A datagram whose first fragment was seen. Hash 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u64,
    seen_ns: u64,
    src_port: u16,
    dst_port: u16,
}

impl Entry {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.seen_ns) > LIFETIME_NS
    }
}

/// Fragments that found what they sought, and that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FragmentCounts {
    pub(crate) matched: u64,
    pub(crate) unmatched: u64,
    pub(crate) evicted: u64,
}

/// See the head of this file. The table is made when the first fragment comes.
#[derive(Debug)]
pub(crate) struct Fragments {
    sets: Vec<[Entry; WAYS]>,
    secret: [u64; 6],
    pub(crate) counts: FragmentCounts,
}

impl Fragments {
    pub(crate) fn new(secret: [u64; 6]) -> Self {
        Self { sets: Vec::new(), secret, counts: FragmentCounts::default() }
    }

    pub(crate) fn memory_octets(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Gives later fragments their ports; `then` is told of each of them, found or not.
    pub(crate) fn resolve(&mut self, chunk: &mut Chunk, mut then: impl FnMut(&mut Packet, &[u8])) {
        let now_ns = chunk.clock_ns;
        let (mut batch, _) = chunk.whole();
        for later in [false, true] {
            for (packet, frame) in batch.frames() {
                let is_fragment = packet.flags.has(PacketFlags::FRAGMENT);
                if !is_fragment || packet.flags.has(PacketFlags::LATER_FRAGMENT) != later {
                    continue;
                }
                match self.hash(packet, frame) {
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
        if self.sets.is_empty() {
            self.sets = vec![[Entry::default(); WAYS]; SETS];
        }
        let set = &mut self.sets[hash as usize % SETS];
        let free = |entry: &Entry| entry.hash == 0 || entry.hash == hash || entry.is_over(now_ns);
        let way = set.iter().position(free).unwrap_or_else(|| {
            self.counts.evicted += 1;
            (0..WAYS).min_by_key(|&way| set[way].seen_ns).unwrap_or(0)
        });
        let (src_port, dst_port) = ports(packet, frame);
        set[way] = Entry { hash, seen_ns: now_ns, src_port, dst_port };
    }

    fn find(&mut self, packet: &mut Packet, hash: u64, now_ns: u64) {
        if packet.flags.has(PacketFlags::HAS_PORTS) {
            return;
        }
        let set = self.sets.get(hash as usize % SETS);
        let is = |entry: &&Entry| entry.hash == hash && !entry.is_over(now_ns);
        match set.and_then(|set| set.iter().find(is)) {
            Some(first) => {
                packet.src_port = first.src_port;
                packet.dst_port = first.dst_port;
                packet.flags.set(PacketFlags::HAS_PORTS);
                self.counts.matched += 1;
            }
            None => self.counts.unmatched += 1,
        }
    }

    /// Of the datagram that a fragment is a part of. Never 0.
    fn hash(&self, packet: &Packet, frame: &[u8]) -> Option<u64> {
        let l3 = frame.get(usize::from(packet.l3_offset)..)?;
        let word = |at: usize| l3.get(at..at + 8)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let [a, b, c, d, e, f] = self.secret;
        let hash = if packet.is_ipv6() {
            // RFC 8200, 4.5: addresses and identification.
            let id = u64::from(identification6(l3)?);
            let (src, dst) = (fold(word(8)? ^ a, word(16)? ^ b), fold(word(24)? ^ c, word(32)? ^ d));
            fold(src ^ e, dst.rotate_left(29) ^ id ^ f)
        } else {
            // RFC 791, 3.2: addresses, protocol and identification.
            let id = u64::from(u16::from_be_bytes([*l3.get(4)?, *l3.get(5)?]));
            fold(fold(word(12)? ^ f, id << 8 ^ u64::from(packet.protocol) ^ e) ^ d, c)
        };
        Some(hash.max(1))
    }
}

/// The identification in the fragment header of an IPv6 packet.
fn identification6(l3: &[u8]) -> Option<u32> {
    let (mut header, mut at) = (*l3.get(6)?, 40);
    for _ in 0..HEADERS_MAX {
        if header == FRAGMENT_HEADER {
            return l3.get(at + 4..at + 8)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        }
        header = *l3.get(at)?;
        at += usize::from(*l3.get(at + 1)?) * 8 + 8;
    }
    None
}
