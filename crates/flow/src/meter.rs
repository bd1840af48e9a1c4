//! The meter: packets in, flow records out.
//!
//! ```text
//! label            any batch   flow hash, shard
//! resolve_fragments  in order  later fragments get their ports, and with them their shard
//! observe          per shard   counts, reports what is over
//! ```
//!
//! `observe` goes over packets in four steps, a block of them at a time, and each step is a block behind the one before:
//!
//! ```text
//! read    block n        the key; its first bucket is asked for
//! seek    block n - 1    the entry that the bucket names is asked for, or else the second bucket
//! second  block n - 2    of those, the entry that the second bucket names
//! count   block n - 3
//! ```
//!
//! So whatever a packet needs from memory has the time of a whole block to come, some hundreds of nanoseconds, and memory is
//! asked evenly instead of in bursts. What is asked for is a guess: a flow that packets in front make, or drive out, is found
//! or missed by the last step, which looks again.
//!
//! Every packet is in the totals once, of the shard it is labeled with; one without a label is the first shard's.

pub(crate) mod fragments;
pub(crate) mod options;
pub(crate) mod totals;

use crate::cache::Shard;
use crate::key::{Facts, KeyRules, Outcome, fold, secret};
use crate::record::is_icmp;
use crate::record::{EndReason, FlowRecord};
use fragments::Fragments;
use options::{MeterError, MeterOptions};
use std::ops::{DerefMut, Range};
use thalweg_base::{Batch, Chunk, Exclusion, Exclusive, OneThread, Origin, Packet};
use totals::MeterTotals;

/// Packets of a block.
const BLOCK: usize = 16;
/// Blocks at hand: one in each step.
const BLOCKS: usize = 4;
/// Packets between asking for a frame and reading it.
const AHEAD_FRAME: usize = 16;

/// Takes records one after another.
pub type RecordSink<'a> = dyn FnMut(&FlowRecord) + 'a;

/// Somebody works on a shard just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardBusy;

/// A flow meter: shards of a flow cache, and the table of fragments before them.
///
/// All methods take `&self`: shards sit in cells ([`Exclusion`]), which are chosen where the work is spread over threads.
#[derive(Debug)]
pub struct Meter<E: Exclusion = OneThread> {
    shards: Box<[E::Cell<Shard>]>,
    fragments: E::Cell<Fragments>,
    rules: KeyRules,
    secret: [u64; 6],
    with_ports: bool,
    with_fates: bool,
}

impl<E: Exclusion> Meter<E> {
    /// A meter; memory is reserved in full and taken as flows come.
    pub fn new(options: &MeterOptions) -> Result<Self, MeterError> {
        options.validate()?;
        let shards = Shard::all(options)?.into_iter().map(Exclusive::new).collect();
        // Others than those of the caches: who knows what shard a flow is in learns nothing of its place there.
        let [a, b] = options.hash_key;
        let secret = secret([!b, a]);
        Ok(Self {
            shards,
            fragments: Exclusive::new(Fragments::new(secret)),
            rules: KeyRules::new(options),
            secret,
            with_ports: options.key.ports,
            with_fates: options.fates,
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
        self.resolve_fragments_and(chunk, |packet, frame| self.label(packet, frame));
    }

    /// The same where somebody else labels: `label` is told of every later fragment, whether its ports are known or not.
    pub fn resolve_fragments_and(&self, chunk: &mut Chunk, label: impl FnMut(&mut Packet, &[u8])) {
        self.fragments.enter().resolve(chunk, label);
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
            shards: self.shards[first..end].iter().map(Exclusive::enter).collect(),
            rules: &self.rules,
            shard_count: self.shards.len(),
            origins: &[],
            with_fates: self.with_fates,
            ahead: [const { Block::EMPTY }; BLOCKS],
        };
        walk.shards.iter_mut().for_each(|shard| shard.advance(chunk.clock_ns, out));
        let everything = first == 0 && end == self.shards.len();
        let (mut batch, index, origins) = chunk.all_with_origins();
        walk.origins = origins;
        if everything || index.groups() != group_count {
            let count = batch.len();
            return walk.run(&mut batch, count, |n| n, out);
        }
        for group in groups {
            let list = index.group(group);
            walk.run(&mut batch, list.len(), |n| usize::from(list[n]), out);
        }
    }

    /// Reports the flows of a shard that have expired or are due by this clock: for shards that see no packets.
    pub fn advance(&self, shard: usize, clock_ns: u64, out: &mut RecordSink<'_>) {
        if let Some(shard) = self.shards.get(shard) {
            shard.enter().advance(clock_ns, out);
        }
    }

    /// Reports everything in a shard and empties it.
    pub fn flush(&self, shard: usize, reason: EndReason, out: &mut RecordSink<'_>) {
        if let Some(shard) = self.shards.get(shard) {
            shard.enter().flush(reason, out);
        }
    }

    /// How many records were made, if nobody works on the shards just now.
    pub fn try_records(&self) -> Option<u64> {
        self.shards.iter().map(|shard| Some(shard.try_enter()?.totals().records_sum())).sum()
    }

    /// The totals of all shards together. They balance whenever no shard is being worked on.
    pub fn totals(&self) -> MeterTotals {
        let fragments = self.fragments.enter();
        let mut sum = MeterTotals {
            fragments_matched: fragments.counts.matched,
            fragments_unmatched: fragments.counts.unmatched,
            fragments_evicted: fragments.counts.evicted,
            memory_bytes: fragments.memory_bytes() as u64,
            ..MeterTotals::default()
        };
        self.shards.iter().for_each(|shard| sum.add(&shard.enter().totals()));
        sum
    }

    /// Shows what is in a shard's cache and not reported yet: a slice from place `from` on. Where the next slice begins,
    /// if there is one. Nobody else is in the shard meanwhile, for some tens of microseconds.
    pub fn snapshot(&self, shard: usize, from: usize, out: &mut RecordSink<'_>) -> Option<usize> {
        self.shards.get(shard)?.enter().snapshot(from, out)
    }

    /// The same, if nobody works on the shard just now.
    pub fn try_snapshot(
        &self,
        shard: usize,
        from: usize,
        out: &mut RecordSink<'_>,
    ) -> Result<Option<usize>, ShardBusy> {
        match self.shards.get(shard) {
            Some(shard) => shard.try_enter().map(|shard| shard.snapshot(from, out)).ok_or(ShardBusy),
            None => Ok(None),
        }
    }
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
    facts: Facts,
    hash: u64,
    /// Its shard, by place in the walk's list.
    shard: u32,
    /// Its place in the chunk.
    place: u32,
}

impl Ahead {
    const NONE: Self = Self { facts: Facts::NONE, hash: 0, shard: 0, place: 0 };
}

/// Packets on their way through the steps: those that are to be counted.
struct Block {
    packets: [Ahead; BLOCK],
    count: usize,
    /// Those that were not found in their first bucket, by place in the block.
    missed: [u8; BLOCK],
    misses: usize,
}

impl Block {
    const EMPTY: Self = Self { packets: [Ahead::NONE; BLOCK], count: 0, missed: [0; BLOCK], misses: 0 };
}

/// One walk over packets of some shards.
struct Walk<'a, G> {
    first: usize,
    shards: Vec<G>,
    rules: &'a KeyRules,
    shard_count: usize,
    /// What packets were before NAT, by place; empty where there is none.
    origins: &'a [Origin],
    with_fates: bool,
    ahead: [Block; BLOCKS],
}

impl<G: DerefMut<Target = Shard>> Walk<'_, G> {
    /// Counts the packets at `place(0)`, `place(1)`, ... `place(count - 1)`.
    #[inline(always)]
    fn run(
        &mut self,
        batch: &mut Batch<'_>,
        count: usize,
        place: impl Fn(usize) -> usize,
        out: &mut RecordSink<'_>,
    ) {
        let blocks = count.div_ceil(BLOCK);
        // Whatever is in the blocks from before has been counted; empty ones cost nothing.
        self.ahead.iter_mut().for_each(|block| (block.count, block.misses) = (0, 0));
        for n in 0..blocks + BLOCKS - 1 {
            let end = ((n + 1) * BLOCK).min(count);
            let mut read = 0;
            for at in (n * BLOCK).min(count)..end {
                if at + AHEAD_FRAME < count {
                    batch.prefetch_frame(place(at + AHEAD_FRAME));
                }
                read += usize::from(self.read(batch, place(at), n % BLOCKS, read));
            }
            (self.ahead[n % BLOCKS].count, self.ahead[n % BLOCKS].misses) = (read, 0);
            self.seek((n + BLOCKS - 1) % BLOCKS);
            self.seek_second((n + BLOCKS - 2) % BLOCKS);
            self.count(batch, (n + BLOCKS - 3) % BLOCKS, out);
        }
    }

    /// The first step, for the packet at `i`: what it is, into place `n` of a block; whether it is to be counted.
    #[inline(always)]
    fn read(&mut self, batch: &mut Batch<'_>, i: usize, block: usize, n: usize) -> bool {
        let (packet, frame) = batch.packet_and_frame(i);
        let shard = usize::from(packet.shard);
        let shard = if shard < self.shard_count { shard } else { 0 };
        let at = shard.wrapping_sub(self.first);
        let Some(owner) = self.shards.get_mut(at) else { return false };
        let bytes = self.rules.bytes_of(packet);
        if !owner.sees(bytes) {
            return false;
        }
        let ahead = &mut self.ahead[block].packets[n];
        match self.rules.read(packet, frame, self.origins.get(i), &mut ahead.facts) {
            Ok(()) => {
                (ahead.shard, ahead.place) = (at as u32, i as u32);
                ahead.hash = owner.hash(&ahead.facts);
                owner.prefetch_bucket(ahead.hash);
                true
            }
            Err(reason) => {
                owner.count_unmetered(reason, bytes);
                false
            }
        }
    }

    /// The second step.
    #[inline(always)]
    fn seek(&mut self, block: usize) {
        let Block { packets, count, missed, misses } = &mut self.ahead[block];
        for (n, ahead) in packets[..*count].iter().enumerate() {
            missed[*misses] = n as u8;
            *misses += usize::from(!self.shards[ahead.shard as usize].prefetch_entry(ahead.hash));
        }
    }

    /// The third step.
    #[inline(always)]
    fn seek_second(&mut self, block: usize) {
        let Block { packets, missed, misses, .. } = &self.ahead[block];
        for n in &missed[..*misses] {
            let ahead = &packets[usize::from(*n)];
            self.shards[ahead.shard as usize].prefetch_second(ahead.hash);
        }
    }

    /// The last step.
    #[inline(always)]
    fn count(&mut self, batch: &mut Batch<'_>, block: usize, out: &mut RecordSink<'_>) {
        let Block { packets, count, .. } = &self.ahead[block];
        for ahead in &packets[..*count] {
            let outcome = self.with_fates.then(|| {
                let i = ahead.place as usize;
                let (packet, frame) = batch.packet_and_frame(i);
                Outcome::of(packet, frame, self.origins.get(i), ahead.facts.bytes)
            });
            self.shards[ahead.shard as usize].count(ahead.hash, &ahead.facts, outcome.as_ref(), out);
        }
    }
}

#[cfg(test)]
mod tests;
