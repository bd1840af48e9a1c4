//! The meter: packets in, flow records out.
//!
//! ```text
//! label            any batch   flow hash, shard
//! resolve_fragments  in order  later fragments get their ports, and with them their shard
//! learn_names      in order    what DNS responses call addresses, if names are looked for
//! observe          per shard   counts, reports flows that ended
//! ```
//!
//! `observe` processes packets in blocks and in four steps, each a block behind the previous one:
//!
//! ```text
//! read    block n        makes the key, prefetches its first bucket
//! seek    block n - 1    prefetches the entry that the bucket names, or else the second bucket
//! second  block n - 2    prefetches the entry that the second bucket names
//! count   block n - 3    finds the flow and counts
//! ```
//!
//! So memory has the time of a whole block, some hundreds of nanoseconds, to answer, and requests are spread
//! evenly. What is prefetched is a guess: earlier packets may create or evict the flow meanwhile, so the last step
//! compares the key, and looks again if the flow is another one.
//!
//! Every packet is counted once, in the totals of the shard that it is labeled with; one without a label
//! belongs to the first shard.

pub(crate) mod fragments;
pub(crate) mod options;
pub(crate) mod totals;

use crate::cache::{NO_SLOT, Shard};
use crate::key::{Facts, KeyRules, Outcome, PortVrfs, fold, secret};
use crate::names::Payload;
use crate::names::resolved::{self, Known, Relation, Resolved, address_hash};
use crate::parse::addresses_of;
use crate::record::is_icmp;
use crate::record::{EndReason, FlowRecord};
use crate::watch::Watch;
use fragments::Fragments;
use options::{MeterError, MeterOptions};
use std::ops::{DerefMut, Range};
use thalweg_base::{Batch, Chunk, Exclusion, Exclusive, Name, OneThread, Packet, Translated};
use totals::MeterTotals;

/// Packets in a block.
const BLOCK: usize = 16;
/// Blocks in flight, one for each step.
const BLOCKS: usize = 4;
/// How many packets ahead a frame is prefetched.
const AHEAD_FRAME: usize = 16;

/// A callback that takes records one at a time.
pub type RecordSink<'a> = dyn FnMut(&FlowRecord) + 'a;

/// The shard is in use by another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardBusy;

/// A flow meter: shards of a flow cache behind a table of fragments.
///
/// All methods take `&self`: shards are in cells ([`Exclusion`]), and the crate that spreads the work over
/// threads chooses their kind.
#[derive(Debug)]
pub struct Meter<E: Exclusion = OneThread> {
    shards: Box<[E::Cell<Shard>]>,
    fragments: E::Cell<Fragments>,
    /// What DNS responses call addresses, in parts by hash; empty unless that is looked for.
    resolved: Box<[E::Cell<Resolved>]>,
    /// Their addresses.
    known: Option<Known>,
    rules: KeyRules,
    secret: [u64; 6],
    with_ports: bool,
    with_fates: bool,
    with_names: bool,
}

impl<E: Exclusion> Meter<E> {
    /// Makes a meter. All memory is reserved now and taken as flows arrive.
    pub fn new(options: &MeterOptions) -> Result<Self, MeterError> {
        options.validate()?;
        let shards = Shard::all(options)?.into_iter().map(Exclusive::new).collect();
        // Different from the caches' secret: knowing a flow's shard must not reveal its place there.
        let [a, b] = options.hash_key;
        let secret = secret([!b, a]);
        Ok(Self {
            shards,
            fragments: Exclusive::new(Fragments::new(secret)),
            resolved: (0..if options.names.dns { resolved::PARTS } else { 0 })
                .map(|_| Exclusive::new(Resolved::new()))
                .collect(),
            known: options.names.dns.then(Known::new),
            rules: KeyRules::new(options),
            secret,
            with_ports: options.key.ports,
            with_fates: options.fates,
            with_names: options.names.any(),
        })
    }

    /// The number of shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The group that owns a shard when `group_count` groups share the shards; used for a chunk's shard
    /// index.
    pub fn group_of(&self, shard: u16, group_count: usize) -> u16 {
        let (shard, shards) = (usize::from(shard), self.shards.len());
        let shard = if shard < shards { shard } else { 0 };
        (((shard + 1) * group_count.max(1) - 1) / shards) as u16
    }

    /// The first shard of a group: the inverse of [`Self::group_of`].
    fn group_start(&self, group: usize, group_count: usize) -> usize {
        group.min(group_count) * self.shards.len() / group_count.max(1)
    }

    /// Sets the packet's `flow_hash` and `shard`, even if it was dropped. Both directions of a flow get the
    /// same values. The packet must be parsed; later fragments are labeled again by
    /// [`Self::resolve_fragments`].
    #[inline]
    pub fn label(&self, packet: &mut Packet, frame: &[u8]) {
        label(self.secret, self.with_ports, self.shards.len() as u32, packet, frame);
    }

    /// Gives later fragments the ports of their first fragment and labels them. Needs chunks in sequence
    /// (scope `Ordered`); does nothing for a chunk without fragments.
    pub fn resolve_fragments(&self, chunk: &mut Chunk) {
        self.resolve_fragments_in(PortVrfs::default(), chunk, |packet, frame| self.label(packet, frame));
    }

    /// [`Self::resolve_fragments`] in a router that may have VRFs, with the caller's labeling: `label` is called for
    /// every later fragment, whether its ports are known or not.
    pub fn resolve_fragments_in(
        &self,
        vrfs: PortVrfs<'_>,
        chunk: &mut Chunk,
        label: impl FnMut(&mut Packet, &[u8]),
    ) {
        self.fragments.enter().resolve(vrfs, chunk, label);
    }

    /// Learns what DNS responses call addresses. Needs chunks in sequence (scope `Ordered`), before [`Self::observe`];
    /// does nothing unless names in DNS are looked for.
    pub fn learn_names(&self, chunk: &mut Chunk) {
        let Some(known) = &self.known else { return };
        let (mut batch, _) = chunk.whole();
        for (packet, frame) in batch.frames() {
            resolved::read(packet, frame, |address, name, lifetime_s| {
                let hash_of = |address| address_hash(address, self.secret);
                let client = addresses_of(packet, frame).map(|(_, client)| hash_of(client));
                let address = hash_of(address);
                known.note(address);
                for relation in [Relation(client, address), Relation(None, address)] {
                    let hash = relation.hash(self.secret);
                    self.resolved_part(hash).enter().learn(hash, name, lifetime_s, packet.arrival_ns);
                }
            });
        }
    }

    /// What an earlier DNS response called one of a packet's addresses.
    fn resolved_name(&self, packet: &Packet, frame: &[u8]) -> Name {
        let (Some(known), Some((src, dst))) = (&self.known, addresses_of(packet, frame)) else {
            return Name::NONE;
        };
        let [src, dst] = [src, dst].map(|address| address_hash(address, self.secret));
        let [has_src, has_dst] = [src, dst].map(|hash| known.may_have(hash));
        let may_be = |relation: &Relation| if relation.1 == dst { has_dst } else { has_src };
        let found = Relation::of_flow(src, dst).into_iter().filter(may_be).find_map(|relation| {
            let hash = relation.hash(self.secret);
            self.resolved_part(hash).enter().find(hash, packet.arrival_ns)
        });
        found.unwrap_or_default()
    }

    /// The part of a hash; its lower bits are the place there.
    fn resolved_part(&self, hash: u64) -> &E::Cell<Resolved> {
        let part = usize::try_from(hash >> 60).unwrap_or(0);
        &self.resolved[part % self.resolved.len()]
    }

    /// Counts the packets of `groups` out of `group_count`, and passes `out` the records of flows that ended
    /// or are due by the chunk's clock. Each group needs its chunks in sequence (scope `PerShard`).
    ///
    /// It follows the chunk's shard index if that was built for `group_count` groups and only some of them
    /// are wanted; otherwise it walks the chunk and skips the packets of other groups.
    pub fn observe(
        &self,
        chunk: &mut Chunk,
        groups: Range<usize>,
        group_count: usize,
        out: &mut RecordSink<'_>,
    ) {
        self.observe_in(PortVrfs::default(), chunk, groups, group_count, out);
    }

    /// [`Self::observe`] in a router that may have VRFs: the same packets in two of them are two flows.
    pub fn observe_in(
        &self,
        vrfs: PortVrfs<'_>,
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
            vrfs,
            shard_count: self.shards.len(),
            origins: &[],
            with_fates: self.with_fates,
            with_names: self.with_names,
            resolved_name: &|packet, frame| self.resolved_name(packet, frame),
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

    /// Reports the flows of a shard that have expired or are due by this clock, for shards without packets.
    pub fn advance(&self, shard: usize, clock_ns: u64, out: &mut RecordSink<'_>) {
        if let Some(shard) = self.shards.get(shard) {
            shard.enter().advance(clock_ns, out);
        }
    }

    /// Reports all flows of a shard and removes them.
    pub fn flush(&self, shard: usize, reason: EndReason, out: &mut RecordSink<'_>) {
        if let Some(shard) = self.shards.get(shard) {
            shard.enter().flush(reason, out);
        }
    }

    /// Tells a watcher for each shard what flows count from now on ([`MeterOptions::watched`]).
    pub fn watch(&self, mut watcher: impl FnMut() -> Option<Box<dyn Watch>>) {
        self.shards.iter().for_each(|shard| shard.enter().set_watch(watcher()));
    }

    /// Drops the watchers.
    pub fn end_watch(&self) {
        self.shards.iter().for_each(|shard| shard.enter().set_watch(None));
    }

    /// The number of records made, or `None` if a shard is in use.
    pub fn try_records(&self) -> Option<u64> {
        self.shards.iter().map(|shard| Some(shard.try_enter()?.totals().records_sum())).sum()
    }

    /// The totals of all shards. They balance whenever no shard is in use.
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
        for part in self.resolved.iter().map(Exclusive::enter) {
            sum.names.resolved_evicted += part.evicted;
            sum.memory_bytes += part.memory_bytes() as u64;
        }
        sum.memory_bytes += self.known.as_ref().map_or(0, Known::memory_bytes) as u64;
        sum
    }

    /// Emits a slice of a shard's unreported flows, from place `from` on, and returns where the next slice
    /// begins, if there is one. The call holds the shard for some tens of microseconds.
    pub fn snapshot(&self, shard: usize, from: usize, out: &mut RecordSink<'_>) -> Option<usize> {
        self.shards.get(shard)?.enter().snapshot(from, out)
    }

    /// [`Self::snapshot`], unless the shard is in use.
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

/// See [`Meter::label`]. The hash is keyed: a sender who could predict it could fill one shard alone.
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

/// A packet in flight, before it is counted.
#[derive(Clone, Copy)]
struct Ahead {
    facts: Facts,
    hash: u64,
    /// Index into the walk's list of shards.
    shard: u16,
    /// Place in the chunk.
    place: u16,
    /// Packets that the frame merges; each is counted by itself.
    segments: u32,
    /// Where the flow probably is.
    guess: u32,
}

impl Ahead {
    const NONE: Self = Self { facts: Facts::NONE, hash: 0, shard: 0, place: 0, segments: 1, guess: NO_SLOT };
}

/// Packets that move through the steps together; only those to be counted.
struct Block {
    packets: [Ahead; BLOCK],
    count: usize,
    /// Packets that were not in their first bucket, by place in the block.
    missed: [u8; BLOCK],
    misses: usize,
}

impl Block {
    const EMPTY: Self = Self { packets: [Ahead::NONE; BLOCK], count: 0, missed: [0; BLOCK], misses: 0 };
}

/// One walk over the packets of some shards.
struct Walk<'a, G> {
    first: usize,
    shards: Vec<G>,
    rules: &'a KeyRules,
    vrfs: PortVrfs<'a>,
    shard_count: usize,
    /// Packets before NAT, by place; empty if none were kept.
    origins: &'a [Translated],
    with_fates: bool,
    with_names: bool,
    resolved_name: &'a dyn Fn(&Packet, &[u8]) -> Name,
    ahead: [Block; BLOCKS],
}

impl<G: DerefMut<Target = Shard>> Walk<'_, G> {
    #[inline(always)]
    fn run(
        &mut self,
        batch: &mut Batch<'_>,
        count: usize,
        place: impl Fn(usize) -> usize,
        out: &mut RecordSink<'_>,
    ) {
        let blocks = count.div_ceil(BLOCK);
        // The previous packets have all been counted; empty blocks cost nothing.
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

    /// First step: reads the packet at `i` into place `n` of a block; returns whether to count it.
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
        let segments = packet.wire_packets();
        if segments > 1 {
            owner.sees_further(segments - 1, self.rules.wire_bytes_of(packet) - u64::from(bytes));
        }
        let ahead = &mut self.ahead[block].packets[n];
        match self.rules.read(packet, frame, self.origins.get(i).map(|nat| &nat.origin), &mut ahead.facts) {
            Ok(()) => {
                (ahead.shard, ahead.place, ahead.segments) = (at as u16, i as u16, segments);
                ahead.facts.set_vrf(self.vrfs.of(packet));
                ahead.hash = owner.hash(&ahead.facts);
                owner.prefetch_bucket(ahead.hash);
                true
            }
            Err(reason) => {
                owner.count_unmetered(reason, u64::from(segments), self.rules.wire_bytes_of(packet));
                false
            }
        }
    }

    /// Second step.
    #[inline(always)]
    fn seek(&mut self, block: usize) {
        let Block { packets, count, missed, misses } = &mut self.ahead[block];
        for (n, ahead) in packets[..*count].iter_mut().enumerate() {
            let guess = self.shards[usize::from(ahead.shard)].prefetch_entry(ahead.hash);
            ahead.guess = guess.unwrap_or(NO_SLOT);
            missed[*misses] = n as u8;
            *misses += usize::from(guess.is_none());
        }
    }

    /// Third step.
    #[inline(always)]
    fn seek_second(&mut self, block: usize) {
        let Block { packets, missed, misses, .. } = &mut self.ahead[block];
        for n in &missed[..*misses] {
            let ahead = &mut packets[usize::from(*n)];
            let guess = self.shards[usize::from(ahead.shard)].prefetch_second(ahead.hash);
            ahead.guess = guess.unwrap_or(NO_SLOT);
        }
    }

    /// Last step.
    #[inline(always)]
    fn count(&mut self, batch: &mut Batch<'_>, block: usize, out: &mut RecordSink<'_>) {
        let Block { packets, count, .. } = &self.ahead[block];
        for ahead in &packets[..*count] {
            let i = usize::from(ahead.place);
            let outcome = self.with_fates.then(|| {
                let (packet, frame) = batch.packet_and_frame(i);
                Outcome::of(packet, frame, self.origins.get(i).map(|nat| &nat.origin), ahead.facts.bytes)
            });
            let shard = &mut self.shards[usize::from(ahead.shard)];
            let slot = match ahead.segments {
                1 => shard.count((ahead.hash, ahead.guess), &ahead.facts, outcome.as_ref(), out),
                _ => count_segments(shard, self.rules, &batch.packets()[i], ahead, outcome, out),
            };
            if let (true, Some(slot)) = (self.with_names, slot)
                && shard.wants_names(slot)
            {
                let (packet, frame) = batch.packet_and_frame(i);
                if let Some(payload) = Payload::of(packet, frame, ahead.facts.backward) {
                    shard.look(slot, &payload, &|| (self.resolved_name)(packet, frame));
                }
            }
        }
    }
}

/// Counts each packet that a frame merges; returns their flow's slot.
#[cold]
#[inline(never)]
fn count_segments(
    shard: &mut Shard,
    rules: &KeyRules,
    packet: &Packet,
    ahead: &Ahead,
    mut outcome: Option<Outcome>,
    out: &mut RecordSink<'_>,
) -> Option<u32> {
    let mut slot = None;
    for nth in 0..ahead.segments {
        let facts = rules.of_segment(packet, nth, &ahead.facts);
        if let Some(outcome) = &mut outcome {
            outcome.bytes = facts.bytes;
        }
        slot = shard.count((ahead.hash, ahead.guess), &facts, outcome.as_ref(), out);
    }
    slot
}

#[cfg(test)]
mod tests;
