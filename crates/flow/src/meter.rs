//! The meter: packets in, flow records out.
//!
//! ```text
//! label            any batch   flow hash, shard
//! resolve_fragments  in order  later fragments get their ports, and with them their shard
//! observe          per shard   counts, reports what is over
//! ```
//!
//! `observe` goes over a block of packets several times, so that what a packet needs from memory comes while others are
//! dealt with: the first time its key is read and its bucket asked for, then the entry that the bucket names (or the other
//! bucket and its entry), and the last time it is counted. A flow that the block itself makes is found by the packets
//! behind: the last pass looks again.
//!
//! Every packet is in the books once, of the shard it is labelled with; one without a label is the first shard's.

pub(crate) mod fragments;
pub(crate) mod options;
pub(crate) mod totals;

use crate::cache::Shard;
use crate::key::{Facts, KeyRules, fold, is_icmp, secret};
use crate::record::{EndReason, FlowRecord};
use fragments::Fragments;
use options::{MeterError, MeterOptions};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thalweg_base::{Batch, Chunk, Packet};
use totals::MeterTotals;

/// Packets that are gone over at a time.
const BLOCK: usize = 32;
/// Packets between asking for a frame and reading it.
const AHEAD_FRAME: usize = 16;

/// Takes records one after another.
pub type RecordSink<'a> = dyn FnMut(&FlowRecord) + 'a;

/// A flow meter: shards of a flow cache, and the table of fragments before them.
///
/// All methods take `&self`: shards are behind locks that are never waited for, as an execution model runs a group of
/// shards in one place at a time.
#[derive(Debug)]
pub struct Meter {
    shards: Box<[Mutex<Shard>]>,
    fragments: Mutex<Fragments>,
    rules: KeyRules,
    secret: [u64; 6],
    with_ports: bool,
}

impl Meter {
    /// A meter; memory is reserved in full and taken as flows come.
    pub fn new(options: &MeterOptions) -> Result<Self, MeterError> {
        options.validate()?;
        let shards: Result<_, _> =
            (0..options.shards).map(|n| Shard::new(options, n).map(Mutex::new)).collect();
        // Others than those of the caches: who knows what shard a flow is in learns nothing of its place there.
        let [a, b] = options.hash_key;
        let secret = secret([!b, a]);
        Ok(Self {
            shards: shards?,
            fragments: Mutex::new(Fragments::new(secret)),
            rules: KeyRules::new(options),
            secret,
            with_ports: options.key.ports,
        })
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The group that owns a shard when `group_count` groups share the shards: for the index of a chunk's packets.
    pub fn group_of(&self, shard: u16, group_count: usize) -> u16 {
        let (shard, shards) = (usize::from(shard), self.shards.len());
        let shard = if shard < shards { shard } else { 0 };
        (((shard + 1) * group_count.max(1) - 1) / shards) as u16
    }

    /// The shards of a group: the inverse of [`Self::group_of`].
    fn group_start(&self, group: usize, group_count: usize) -> usize {
        group.min(group_count) * self.shards.len() / group_count.max(1)
    }

    /// Sets the packet's `flow_hash` and `shard`, dropped ones too. Both directions of a flow get the same. Needs what
    /// parsing says of the packet; later fragments get theirs again from [`Self::resolve_fragments`].
    #[inline]
    pub fn label(&self, packet: &mut Packet, frame: &[u8]) {
        label(self.secret, self.with_ports, self.shards.len() as u32, packet, frame);
    }

    /// Gives later fragments the ports of their first and labels them. Wants chunks in sequence (scope `Ordered`);
    /// nothing to do for a chunk without fragments.
    pub fn resolve_fragments(&self, chunk: &mut Chunk) {
        lock(&self.fragments).resolve(chunk, |packet, frame| self.label(packet, frame));
    }

    /// Counts the packets of `groups` out of `group_count` and gives `out` the records of flows that are over or due by
    /// the chunk's clock. Wants chunks in sequence to each group (scope `PerShard`).
    ///
    /// Follows the chunk's shard index if that was built for `group_count` groups and not all of them are asked for, else
    /// walks the chunk and skips the packets of others.
    pub fn observe(
        &self,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        out: &mut RecordSink<'_>,
    ) {
        let first = self.group_start(groups.start, group_count);
        let end = self.group_start(groups.end, group_count).max(first);
        let mut walk = Walk {
            first,
            shards: self.shards[first..end].iter().map(lock).collect(),
            rules: &self.rules,
            shard_count: self.shards.len(),
            ahead: [Ahead::NONE; BLOCK],
        };
        walk.shards.iter_mut().for_each(|shard| shard.advance(chunk.clock_ns, out));
        let everything = first == 0 && end == self.shards.len();
        let (mut batch, index) = chunk.whole();
        if everything || index.groups() != group_count {
            let count = batch.len();
            return walk.run(&mut batch, count, |n| n, out);
        }
        for group in groups {
            let list = index.group(group);
            walk.run(&mut batch, list.len(), |n| usize::from(list[n]), out);
        }
    }

    /// Reports what is over or due in a shard by this clock: for shards that see no packets.
    pub fn advance(&self, shard: usize, clock_ns: u64, out: &mut RecordSink<'_>) {
        if let Some(shard) = self.shards.get(shard) {
            lock(shard).advance(clock_ns, out);
        }
    }

    /// Reports everything in a shard and empties it.
    pub fn flush(&self, shard: usize, reason: EndReason, out: &mut RecordSink<'_>) {
        if let Some(shard) = self.shards.get(shard) {
            lock(shard).flush(reason, out);
        }
    }

    /// The books of all shards together. They balance whenever no shard is being worked on.
    pub fn totals(&self) -> MeterTotals {
        let fragments = lock(&self.fragments);
        let mut sum = MeterTotals {
            fragments_matched: fragments.counts.matched,
            fragments_unmatched: fragments.counts.unmatched,
            fragments_evicted: fragments.counts.evicted,
            memory_octets: fragments.memory_octets() as u64,
            ..MeterTotals::default()
        };
        self.shards.iter().for_each(|shard| sum.add(&lock(shard).totals()));
        sum
    }

    /// Shows what is in a shard's cache and not reported yet: a slice from place `from` on. Where the next slice begins,
    /// if there is one. The shard is locked for some tens of microseconds.
    pub fn snapshot(&self, shard: usize, from: usize, out: &mut RecordSink<'_>) -> Option<usize> {
        lock(self.shards.get(shard)?).snapshot(from, out)
    }
}

/// A poisoned lock means that a thread died with it in hand, which is reported where it happened; what it guards is whole
/// between packets.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`Meter::label`]. A hash that is keyed, because who could foresee it could fill one shard alone.
#[inline(always)]
fn label(secret: [u64; 6], with_ports: bool, shards: u32, packet: &mut Packet, frame: &[u8]) {
    let [a, b, c, d, e, f] = secret;
    let l3 = frame.get(usize::from(packet.l3_offset)..).unwrap_or_default();
    let (src_port, dst_port) = match with_ports && !is_icmp(packet.protocol) {
        true => (u64::from(packet.src_port), u64::from(packet.dst_port)),
        false => (0, 0),
    };
    let endpoints = if packet.ip_len == 0 {
        None
    } else if packet.is_ipv6() {
        l3.first_chunk::<40>().map(|header| {
            let ([.., s0, s1, d0, d1], _) = header.as_chunks::<8>() else { return (0, 0) };
            let [s0, s1, d0, d1] = [s0, s1, d0, d1].map(|word| u64::from_be_bytes(*word));
            (fold(s0 ^ c, s1 ^ d) ^ src_port, fold(d0 ^ c, d1 ^ d) ^ dst_port)
        })
    } else {
        l3.first_chunk::<20>().map(|header| {
            let ([.., src, dst], _) = header.as_chunks::<4>() else { return (0, 0) };
            let [src, dst] = [src, dst].map(|word| u64::from(u32::from_be_bytes(*word)));
            (src << 16 | src_port, dst << 16 | dst_port)
        })
    };
    let Some((one, other)) = endpoints else {
        (packet.flow_hash, packet.shard) = (0, 0);
        return;
    };
    let (low, high) = (one.min(other), one.max(other));
    let hash = fold(fold(low ^ a, high ^ b) ^ u64::from(packet.protocol), e);
    packet.flow_hash = ((hash ^ f) >> 32) as u32;
    packet.shard = ((u64::from(packet.flow_hash) * u64::from(shards)) >> 32) as u16;
}

/// What is known of a packet before it is counted.
#[derive(Clone, Copy)]
struct Ahead {
    /// Its shard, by place in the walk's list; [`NOT_OURS`] if it is not to be counted.
    shard: usize,
    hash: u64,
    facts: Facts,
}

/// No shard of this walk, or a packet that belongs to no flow.
const NOT_OURS: usize = usize::MAX;

impl Ahead {
    const NONE: Self = Self { shard: NOT_OURS, hash: 0, facts: Facts::NONE };
}

/// One walk over packets of some shards.
struct Walk<'a> {
    first: usize,
    shards: Vec<MutexGuard<'a, Shard>>,
    rules: &'a KeyRules,
    shard_count: usize,
    ahead: [Ahead; BLOCK],
}

impl Walk<'_> {
    /// Counts the packets at `place(0)`, `place(1)`, ... `place(count - 1)`.
    #[inline(always)]
    fn run(
        &mut self,
        batch: &mut Batch<'_>,
        count: usize,
        place: impl Fn(usize) -> usize,
        out: &mut RecordSink<'_>,
    ) {
        for from in (0..count).step_by(BLOCK) {
            let block = BLOCK.min(count - from);
            for n in 0..block {
                if from + n + AHEAD_FRAME < count {
                    batch.prefetch_frame(place(from + n + AHEAD_FRAME));
                }
                self.read(batch, place(from + n), n);
            }
            let (mut missed, mut misses) = ([0; BLOCK], 0);
            for (n, ahead) in self.ahead[..block].iter().enumerate() {
                if let Some(shard) = self.shards.get(ahead.shard) {
                    missed[misses] = n;
                    misses += usize::from(!shard.prefetch_entry(ahead.hash));
                }
            }
            for &n in &missed[..misses] {
                let ahead = &self.ahead[n];
                if let Some(shard) = self.shards.get(ahead.shard) {
                    shard.prefetch_second(ahead.hash);
                }
            }
            for ahead in &self.ahead[..block] {
                if let Some(shard) = self.shards.get_mut(ahead.shard) {
                    shard.count(ahead.hash, &ahead.facts, out);
                }
            }
        }
    }

    /// The first pass, for the packet at `i`: what it is, into place `n` of the block.
    #[inline(always)]
    fn read(&mut self, batch: &mut Batch<'_>, i: usize, n: usize) {
        let (packet, frame) = batch.packet_and_frame(i);
        let ahead = &mut self.ahead[n];
        ahead.shard = NOT_OURS;
        let shard = usize::from(packet.shard);
        let shard = if shard < self.shard_count { shard } else { 0 };
        let at = shard.wrapping_sub(self.first);
        let Some(owner) = self.shards.get_mut(at) else { return };
        let octets = self.rules.octets(packet);
        if !owner.sees(octets) {
            return;
        }
        match self.rules.read(packet, frame, &mut ahead.facts) {
            Ok(()) => {
                ahead.shard = at;
                ahead.hash = owner.hash(&ahead.facts);
                owner.prefetch_bucket(ahead.hash);
            }
            Err(reason) => owner.count_unmetered(reason, octets),
        }
    }
}

#[cfg(test)]
mod tests;
