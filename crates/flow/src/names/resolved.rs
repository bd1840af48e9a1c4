//! What DNS responses call addresses, for later flows to them.
//!
//! Responses are read in the order of packets, before the shards get them ([`Meter::learn_names`]); a shard asks with
//! a flow's first payload. An answer belongs to the client that asked, and to everybody: a client behind a resolver
//! that asks for it gets the name that anybody asked for last. With several workers the reader is some chunks ahead
//! of the shards; so an entry has the time of its packet and the name before, and a flow gets what was said before
//! its own packet. Records are the same for any number of workers, unless a name changed twice in that time.
//!
//! An entry lives as long as the answer, at least [`LIFETIME_MIN_S`] (programs keep addresses longer than they may)
//! and at most [`LIFETIME_MAX_S`]. The table has a fixed size; an entry that goes early is counted. A key is a keyed
//! 64-bit hash of both addresses; a collision is less likely than a memory error. Most flows are of addresses that no
//! response named: [`Known`] says so in the second-level cache, where the table is in memory.
//!
//! [`Meter::learn_names`]: crate::Meter::learn_names

use crate::key::fold;
use crate::parse::payload_of;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use thalweg_base::{AgedSets, Name, Packet, PacketFlags};
use thalweg_wire::dns::{Answer, DnsView};
use thalweg_wire::ip_protocol::UDP;

/// Parts of the table, which different threads may use.
pub(crate) const PARTS: usize = 16;
/// Sets of four entries in a part: 262,144 entries in all, 15 MB.
const SETS: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;
const LIFETIME_MIN_S: u64 = 300;
const LIFETIME_MAX_S: u64 = 3600;
const DNS_PORT: u16 = 53;
/// Words of one of [`Known`]'s generations: 128 KB, of which an eighth of the bits is set at most.
const KNOWN_WORDS: usize = 1 << 14;
const KNOWN_MAX: usize = KNOWN_WORDS * 64 / 8;

/// What was said about an address.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    name: Name,
    from_ns: u64,
    until_ns: u64,
    /// What was said before, and since when.
    before: Name,
    before_ns: u64,
}

/// A part of the table; see the module documentation.
#[derive(Debug)]
pub(crate) struct Resolved {
    said: AgedSets<u64, Said>,
    pub(crate) evicted: u64,
}

impl Resolved {
    pub(crate) fn new() -> Self {
        Self { said: AgedSets::new(SETS, LIFETIME_MAX_S * SECOND_NS), evicted: 0 }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.said.memory_bytes()
    }

    pub(crate) fn learn(&mut self, hash: u64, name: Name, lifetime_s: u32, now_ns: u64) {
        let lifetime_s = u64::from(lifetime_s).clamp(LIFETIME_MIN_S, LIFETIME_MAX_S);
        let until_ns = now_ns.saturating_add(lifetime_s * SECOND_NS);
        let said = match self.said.get(hash, &hash, now_ns).copied() {
            Some(said) if said.name == name => Said { until_ns, ..said },
            Some(said) => {
                Said { name, from_ns: now_ns, until_ns, before: said.name, before_ns: said.from_ns }
            }
            None => Said { name, from_ns: now_ns, until_ns, ..Said::default() },
        };
        self.evicted += u64::from(self.said.insert(hash, hash, said, now_ns));
    }

    /// The name at this time.
    pub(crate) fn find(&self, hash: u64, at_ns: u64) -> Option<Name> {
        let said = self.said.get(hash, &hash, at_ns)?;
        let (name, from_ns) =
            if said.from_ns <= at_ns { (said.name, said.from_ns) } else { (said.before, said.before_ns) };
        (from_ns <= at_ns && at_ns < said.until_ns && name != Name::NONE).then_some(name)
    }
}

/// The addresses that responses named, by a hash: no says that the table does not have it, yes that it may. One thread
/// at a time notes, many ask; a thread that asks about a packet was handed it after those before it were noted.
#[derive(Debug)]
pub(crate) struct Known {
    generations: [Box<[AtomicU64]>; 2],
    /// Which of them takes notes. The other one has the addresses before, and is cleared when this one is full.
    present: AtomicUsize,
    noted: AtomicUsize,
}

impl Known {
    pub(crate) fn new() -> Self {
        let empty = || (0..KNOWN_WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { generations: [empty(), empty()], present: AtomicUsize::new(0), noted: AtomicUsize::new(0) }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.generations.iter().map(|words| size_of_val(&**words)).sum()
    }

    /// The word of a hash, and its bit there.
    fn place(hash: u64) -> (usize, u64) {
        (usize::try_from(hash >> 6).unwrap_or(0) % KNOWN_WORDS, 1 << (hash % 64))
    }

    pub(crate) fn note(&self, hash: u64) {
        let (word, bit) = Self::place(hash);
        let mut present = self.present.load(Relaxed);
        if self.generations[present][word].load(Relaxed) & bit != 0 {
            return;
        }
        if self.noted.fetch_add(1, Relaxed) >= KNOWN_MAX {
            present = 1 - present;
            self.generations[present].iter().for_each(|word| word.store(0, Relaxed));
            self.present.store(present, Relaxed);
            self.noted.store(1, Relaxed);
        }
        self.generations[present][word].fetch_or(bit, Relaxed);
    }

    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = Self::place(hash);
        self.generations.iter().any(|words| words[word].load(Relaxed) & bit != 0)
    }
}

/// A keyed hash of an address.
pub(crate) fn address_hash(address: IpAddr, [a, b, ..]: [u64; 6]) -> u64 {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let [high, low] = [bits >> 64, bits & u128::from(u64::MAX)];
    fold(u64::try_from(high).unwrap_or(0) ^ a, u64::try_from(low).unwrap_or(0) ^ b)
}

/// A client that asked, or all of them, and an address in the answer, each by its [`address_hash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relation(pub(crate) Option<u64>, pub(crate) u64);

impl Relation {
    /// Whose names a flow between these addresses may have, best first, whichever end began it.
    pub(crate) fn of_flow(src: u64, dst: u64) -> [Self; 4] {
        [Self(Some(src), dst), Self(Some(dst), src), Self(None, dst), Self(None, src)]
    }

    pub(crate) fn hash(&self, [.., c, d, e, f]: [u64; 6]) -> u64 {
        fold(self.0.map_or(e, |client| client ^ c), self.1 ^ d) ^ f
    }
}

/// Calls `learn` with each address in a DNS response, the name that it was asked for, and its lifetime in seconds.
pub(crate) fn read(packet: &Packet, frame: &[u8], mut learn: impl FnMut(IpAddr, Name, u32)) {
    let is_from_server = packet.src_port == DNS_PORT && packet.protocol == UDP;
    if !is_from_server || !packet.flags.has(PacketFlags::HAS_PORTS) {
        return;
    }
    let Some(view) = DnsView::new(payload_of(frame, packet)).filter(DnsView::is_response) else { return };
    let Some(question) = view.question() else { return };
    let name = Name::passing(&question.name);
    for (answer, lifetime_s) in view.answers() {
        if let Answer::Address(address) = answer {
            learn(address, name, lifetime_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_gets_what_was_said_before_it() {
        let mut resolved = Resolved::new();
        let (old, new) = (Name::passing("old.example"), Name::passing("new.example"));
        let s = |seconds: u64| seconds * SECOND_NS;
        resolved.learn(7, old, 0, s(100));
        resolved.learn(7, old, 0, s(200));
        assert_eq!(
            [99, 100, 450, 499, 500].map(|at| resolved.find(7, s(at))),
            [None, Some(old), Some(old), Some(old), None]
        );
        resolved.learn(7, new, 1000, s(300));
        assert_eq!(
            [99, 150, 299, 300, 1299, 1300].map(|at| resolved.find(7, s(at))),
            [None, Some(old), Some(old), Some(new), Some(new), None]
        );
        resolved.learn(8, new, u32::MAX, s(1000));
        assert_eq!([4599, 4600].map(|at| resolved.find(8, s(at))), [Some(new), None], "an hour at most");
        assert_eq!((resolved.find(9, s(1000)), resolved.evicted), (None, 0));
    }

    #[test]
    fn an_address_is_known_for_as_long_as_the_table_could_have_it() {
        let known = Known::new();
        let hash = |n: u64| fold(n + 1, 0x9e37_79b9_7f4a_7c15);
        assert!(!(0..1000).any(|n| known.may_have(hash(n))));
        let count = 3 * KNOWN_MAX as u64;
        for n in 0..count {
            known.note(hash(n));
            let kept = n.saturating_sub(KNOWN_MAX as u64 - 1);
            assert!([n, kept].iter().all(|n| known.may_have(hash(*n))), "{n}");
        }
        let wrong = (count..2 * count).filter(|n| known.may_have(hash(*n))).count();
        assert!(wrong < count as usize / 4, "{wrong} of {count}");
        assert!(known.memory_bytes() == 256 << 10);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut resolved = Resolved::new();
        let name = Name::passing("www.example");
        (0..6).for_each(|n| resolved.learn(n * SETS as u64, name, 300, SECOND_NS + n));
        assert_eq!(resolved.evicted, 2);
        assert!(resolved.memory_bytes() <= 1 << 20);
    }

    #[test]
    fn relations_have_their_own_places() {
        let secret = crate::key::secret([1, 2]);
        let address = |n: u8| address_hash(IpAddr::from([192, 0, 2, n]), secret);
        let mut hashes: Vec<u64> =
            Relation::of_flow(address(1), address(2)).map(|of| of.hash(secret)).to_vec();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 4);
    }
}
