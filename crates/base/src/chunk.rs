//! Chunks, which a source delivers and a model schedules, and batches, which a stage sees.
//!
//! A chunk is also the unit of meaning: priorities are served within one chunk, and the packet clock
//! advances from chunk to chunk. The chunk size is therefore part of the configuration of a run, the
//! same for every execution model, and results depend on it; they never depend on the model.
#![allow(unsafe_code)]

use crate::slab::HEADROOM;
use crate::{LinkType, NO_CLASS, NO_PORT, NO_SHARD, Packet, PacketFlags, Slab, SlabHome};
use std::sync::Arc;

/// Packets a stage is given at a time, at most. 256 descriptors and the first line of their frames are
/// 32 KiB: what fits a first-level cache and still shares each instruction miss among many packets.
pub const BATCH_PACKETS: usize = 256;

/// Packets in a chunk unless configured otherwise.
pub const CHUNK_PACKETS_DEFAULT: usize = 1600;

/// Which packets of a chunk belong to which group of shards, in order of service. Built once per chunk
/// so that work on one group does not walk the others' packets.
#[derive(Debug, Default)]
pub struct ShardIndex {
    order: Vec<u16>,
    starts: Vec<u32>,
}

impl ShardIndex {
    /// Sorts `members` (packet position and group, in order of service) into `groups` lists.
    pub fn build(&mut self, groups: usize, members: &[(u16, u16)]) {
        self.starts.clear();
        self.starts.resize(groups + 1, 0);
        for &(_, group) in members {
            self.starts[usize::from(group) + 1] += 1;
        }
        for group in 0..groups {
            self.starts[group + 1] += self.starts[group];
        }
        self.order.clear();
        self.order.resize(members.len(), 0);
        for &(position, group) in members {
            let slot = &mut self.starts[usize::from(group)];
            self.order[*slot as usize] = position;
            *slot += 1;
        }
        // Each start has moved to its group's end, which is the next group's start: shift back.
        self.starts.copy_within(0..groups, 1);
        self.starts[0] = 0;
    }

    /// Groups it was built for; 0 if it was not.
    pub fn groups(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Positions of the packets of `group`, in order of service.
    pub fn group(&self, group: usize) -> &[u16] {
        match (self.starts.get(group), self.starts.get(group + 1)) {
            (Some(&from), Some(&to)) => &self.order[from as usize..to as usize],
            _ => &[],
        }
    }
}

/// Addresses and ports of an IPv4 packet as it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Source address, network order.
    pub src: [u8; 4],
    /// Destination address, network order.
    pub dst: [u8; 4],
    /// Source port or echo identifier.
    pub src_port: u16,
    /// Destination port or echo identifier.
    pub dst_port: u16,
}

/// Consecutive packets of the input, or (in a farm) the part of them that one worker owns.
#[derive(Debug)]
pub struct Chunk {
    /// Place of the chunk in the input, from 0.
    pub sequence: u64,
    /// Number of the chunk's first packet in the input, from 1.
    pub first_packet_number: u64,
    /// The packet clock at the start of this chunk: the latest arrival seen before it or with its first
    /// packet, so it never goes back.
    pub clock_ns: u64,
    /// When the execution model took the chunk on, by the model's own clock.
    pub admitted_ns: u64,
    /// Whether some packet needs two shards, so that the stages with shards must not interleave this
    /// chunk with others.
    pub crosses_shards: bool,
    /// Whether some packet is a fragment.
    pub has_fragments: bool,
    /// Lists of packets by shard group.
    pub shard_index: ShardIndex,
    /// The stage that they were made for.
    pub indexed_stage: Option<usize>,
    /// What packets were before they were translated, by place; empty unless somebody has to know.
    pub origins: Vec<Origin>,
    packets: Vec<Packet>,
    live: usize,
    slab: Arc<Slab>,
}

impl Chunk {
    /// All packets: those still in service in order, then those dropped before the chunk was scheduled.
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// All packets, to be changed.
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Packets that were alive when the chunk was scheduled; they come first.
    pub fn live_len(&self) -> usize {
        self.live
    }

    /// Batches that cover the packets in service.
    pub fn batch_count(&self) -> usize {
        self.live.div_ceil(BATCH_PACKETS)
    }

    /// Batch `k` of those.
    pub fn batch(&mut self, k: usize) -> Batch<'_> {
        let from = (k * BATCH_PACKETS).min(self.live);
        let to = (from + BATCH_PACKETS).min(self.live);
        Batch { slab: &self.slab, packets: &mut self.packets[from..to] }
    }

    /// All packets in service, as one view (for stages that follow a list of positions).
    pub fn whole(&mut self) -> (Batch<'_>, &ShardIndex) {
        (Batch { slab: &self.slab, packets: &mut self.packets[..self.live] }, &self.shard_index)
    }

    /// The frame of packet `i` as it lies in memory now.
    pub fn frame(&self, i: usize) -> &[u8] {
        let p = &self.packets[i];
        // SAFETY: the span is that of a packet borrowed with `self`.
        unsafe { self.slab.span(p.slab_tag, p.offset as usize, p.len as usize) }
    }

    /// What goes out for packet `i`: an Ethernet header of 14 bytes (written by the last stage) and the
    /// IP packet, without the link layer it arrived with and without its padding.
    pub fn egress_frame(&self, i: usize) -> &[u8] {
        let p = &self.packets[i];
        assert!(usize::from(p.l3_offset) <= p.len as usize);
        let start = (p.offset as usize + usize::from(p.l3_offset)) - ETHERNET_HEADER;
        // SAFETY: starts in the packet's headroom at the earliest and ends with its frame.
        unsafe { self.slab.span(p.slab_tag, start, ETHERNET_HEADER + p.l3_captured_len()) }
    }

    /// Puts the packets in order of service: by `rank`, lower first and arrival order within a rank;
    /// `None` takes a packet out of service. `ranks` is how many ranks there are, 254 at most. `spare` is
    /// memory to sort into; what it was before comes back in it, for the next chunk.
    pub fn schedule(
        &mut self,
        ranks: usize,
        rank: impl Fn(&Packet) -> Option<usize>,
        spare: &mut Vec<Packet>,
    ) {
        assert!((1..255).contains(&ranks), "more ranks than classes");
        let mut starts = [0u16; 256];
        let mut sorted = true;
        let mut last = 0;
        for p in &mut self.packets {
            // The bucket behind all ranks is for what is out of service. It waits in `position`.
            let bucket = rank(p).map_or(ranks, |r| r.min(ranks - 1));
            p.position = bucket as u16;
            starts[bucket + 1] += 1;
            sorted &= bucket >= last;
            last = bucket;
        }
        for b in 0..=ranks {
            starts[b + 1] += starts[b];
        }
        self.live = usize::from(starts[ranks]);
        for p in &mut self.packets {
            let next = &mut starts[usize::from(p.position)];
            p.position = *next;
            *next += 1;
        }
        if !sorted {
            self.reorder(spare);
        }
    }

    /// Puts the packets in the order given: `order[i]` is the present place of the packet to be served
    /// `i`-th; packets not named go behind, out of service. Panics unless the places are distinct.
    pub fn schedule_by(&mut self, order: &[u16], spare: &mut Vec<Packet>) {
        for p in &mut self.packets {
            p.position = u16::MAX;
        }
        for (position, &from) in (0u16..).zip(order) {
            let p = &mut self.packets[usize::from(from)];
            assert!(p.position == u16::MAX, "a packet is scheduled twice");
            p.position = position;
        }
        self.live = order.len();
        let behind = self.packets.iter_mut().filter(|p| p.position == u16::MAX);
        for (position, p) in (order.len() as u16..).zip(behind) {
            p.position = position;
        }
        self.reorder(spare);
    }

    /// Moves every packet to its position, into a second list: each is read and written once, where
    /// swapping in place would do both twice. Panics unless the positions are a permutation.
    fn reorder(&mut self, spare: &mut Vec<Packet>) {
        let count = self.packets.len();
        spare.clear();
        spare.reserve(count);
        let mut taken = [0u64; Self::POSITIONS / 64];
        for p in &self.packets {
            let (position, bit) = (usize::from(p.position), 1u64 << (p.position % 64));
            assert!(position < count && taken[position / 64] & bit == 0, "not a permutation");
            taken[position / 64] |= bit;
        }
        // SAFETY: the positions are each of 0..count once, as just checked, and `spare` has room for
        // them. Every packet is moved: the old list forgets them all before the new one owns any, and
        // nothing between can panic.
        unsafe {
            self.packets.set_len(0);
            let from = self.packets.as_ptr();
            let to = spare.as_mut_ptr();
            for i in 0..count {
                let position = usize::from((*from.add(i)).position);
                std::ptr::copy_nonoverlapping(from.add(i), to.add(position), 1);
            }
            spare.set_len(count);
        }
        std::mem::swap(&mut self.packets, spare);
    }

    /// Positions a packet can have.
    const POSITIONS: usize = u16::MAX as usize + 1;

    /// All packets as one view, those out of service too, with what they were before NAT where that is kept.
    pub fn all_with_origins(&mut self) -> (Batch<'_>, &ShardIndex, &[Origin]) {
        (Batch { slab: &self.slab, packets: &mut self.packets }, &self.shard_index, &self.origins)
    }

    /// Gives up the descriptors and keeps the bytes: for a sink that has seen the packets but must not free
    /// their memory yet.
    pub fn forget_packets(&mut self) {
        self.live = 0;
        self.packets = Vec::new();
    }

    /// Keeps what IPv4 packets are before they are translated. `which` says of those in service who may be. Wanted once
    /// for a chunk, or for each part of a split one.
    pub fn keep_origins(&mut self, which: impl Fn(&Packet) -> bool) {
        let mut origins = std::mem::take(&mut self.origins);
        origins.clear();
        origins.extend((0..self.live).map(|place| {
            let packet = &self.packets[place];
            if !which(packet) {
                return Origin::default();
            }
            let l3 = self.frame(place).get(usize::from(packet.l3_offset)..).unwrap_or_default();
            let address =
                |at: usize| l3.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
            let (src_port, dst_port) = (packet.src_port, packet.dst_port);
            Origin { src: address(12), dst: address(16), src_port, dst_port }
        }));
        self.origins = origins;
    }

    /// Splits the chunk by owner. The parts share the slab; together they hold every packet once.
    pub fn split(mut self, parts: usize, owner: impl Fn(&Packet) -> usize) -> Vec<Chunk> {
        let live = self.live;
        let mut out: Vec<Chunk> = (0..parts)
            .map(|_| {
                let mut part = self.header();
                part.packets.reserve(self.packets.len() / parts + 16);
                part
            })
            .collect();
        for (i, packet) in self.packets.drain(..).enumerate() {
            let part = &mut out[owner(&packet).min(parts - 1)];
            part.live += usize::from(i < live);
            part.packets.push(packet);
        }
        out
    }

    /// Puts split parts together again, in order of service. Panics if `parts` is empty or if they are
    /// not of one chunk.
    pub fn merge(parts: Vec<Chunk>) -> Chunk {
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else { panic!("merge of no parts") };
        for mut part in parts {
            assert!(Arc::ptr_eq(&whole.slab, &part.slab), "merge of parts of different chunks");
            whole.live += part.live;
            whole.packets.append(&mut part.packets);
        }
        whole.packets.sort_unstable_by_key(|p| p.position);
        // By place in a part.
        whole.origins.clear();
        whole
    }

    /// A chunk of the same input without packets.
    fn header(&self) -> Chunk {
        Chunk {
            sequence: self.sequence,
            first_packet_number: self.first_packet_number,
            clock_ns: self.clock_ns,
            admitted_ns: self.admitted_ns,
            crosses_shards: self.crosses_shards,
            has_fragments: self.has_fragments,
            shard_index: ShardIndex::default(),
            indexed_stage: None,
            origins: Vec::new(),
            packets: self.slab.home().map(SlabHome::take_list).unwrap_or_default(),
            live: 0,
            slab: Arc::clone(&self.slab),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let (Some(home), true) = (self.slab.home(), self.packets.capacity() > 0) {
            home.put_list(std::mem::take(&mut self.packets));
        }
    }
}

const ETHERNET_HEADER: usize = 14;

/// Up to [`BATCH_PACKETS`] packets and their bytes, as a stage sees them.
#[derive(Debug)]
pub struct Batch<'a> {
    slab: &'a Slab,
    packets: &'a mut [Packet],
}

impl Batch<'_> {
    /// Packets in the batch, dropped ones included.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The descriptors.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        self.packets
    }

    /// The descriptors, to be changed.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        self.packets
    }

    /// Descriptor and frame of packet `i`.
    #[inline(always)]
    pub fn packet_and_frame(&mut self, i: usize) -> (&mut Packet, &mut [u8]) {
        let p = &mut self.packets[i];
        // SAFETY: `p` is borrowed mutably for as long as the bytes are.
        let frame = unsafe { self.slab.span_mut(p.slab_tag, p.offset as usize, p.len as usize) };
        (p, frame)
    }

    /// Descriptors and frames of all packets in turn.
    #[inline(always)]
    pub fn frames(&mut self) -> impl Iterator<Item = (&mut Packet, &mut [u8])> {
        let window = self.slab.window();
        self.packets.iter_mut().map(move |p| {
            // SAFETY: `p` is borrowed mutably for as long as the bytes are.
            let frame = unsafe { window.span_mut(p.slab_tag, p.offset as usize, p.len as usize) };
            (p, frame)
        })
    }

    /// Calls `each` for all packets in turn that have `N` bytes from their IP header on at hand, with the packet's
    /// place.
    #[inline(always)]
    pub fn each_ip_header<const N: usize>(&mut self, each: impl FnMut(usize, &mut Packet, &mut [u8; N])) {
        self.each_header::<N, 0>(each);
    }

    /// The same with `N` bytes of what will go out: 14 for the Ethernet header, then the IP packet.
    #[inline(always)]
    pub fn each_egress_header<const N: usize>(&mut self, each: impl FnMut(usize, &mut Packet, &mut [u8; N])) {
        self.each_header::<N, ETHERNET_HEADER>(each);
    }

    /// `N` bytes, of which `BEFORE` lie before the IP header.
    #[inline(always)]
    fn each_header<const N: usize, const BEFORE: usize>(
        &mut self,
        mut each: impl FnMut(usize, &mut Packet, &mut [u8; N]),
    ) {
        const { assert!(BEFORE <= N && BEFORE <= HEADROOM) };
        let window = self.slab.window();
        for (i, p) in self.packets.iter_mut().enumerate() {
            let l3 = usize::from(p.l3_offset);
            if l3 + N <= p.len as usize + BEFORE {
                let start = p.offset as usize + l3 - BEFORE;
                // SAFETY: starts in the packet's headroom at the earliest, which is this packet's alone, and ends
                // inside its frame, as just checked; `p` is borrowed mutably for as long as the bytes are.
                let bytes = unsafe { window.array_mut(p.slab_tag, start) };
                each(i, p, bytes);
            }
        }
    }

    /// Descriptor of packet `i` and its frame from the IP header on.
    #[inline(always)]
    pub fn packet_and_l3(&mut self, i: usize) -> (&mut Packet, &mut [u8]) {
        let p = &mut self.packets[i];
        let l3 = usize::from(p.l3_offset);
        assert!(l3 <= p.len as usize);
        // SAFETY: inside the span of `p`, which is borrowed mutably for as long as the bytes are.
        let bytes = unsafe { self.slab.span_mut(p.slab_tag, p.offset as usize + l3, p.len as usize - l3) };
        (p, bytes)
    }

    /// Descriptor of packet `i` and the frame that will go out for it: 14 bytes for the Ethernet header,
    /// then the IP packet.
    #[inline(always)]
    pub fn packet_and_egress(&mut self, i: usize) -> (&mut Packet, &mut [u8]) {
        let p = &mut self.packets[i];
        assert!(usize::from(p.l3_offset) <= p.len as usize);
        let start = p.offset as usize + usize::from(p.l3_offset) - ETHERNET_HEADER;
        let len = ETHERNET_HEADER + p.l3_captured_len();
        // SAFETY: the builder left HEADROOM (more than an Ethernet header) before the frame, which is
        // this packet's alone; the end is that of its frame at the latest.
        let bytes = unsafe { self.slab.span_mut(p.slab_tag, start, len) };
        (p, bytes)
    }

    /// Asks the cache for the headers of packet `i`'s frame, which may lie on two lines; nothing for an
    /// `i` past the end.
    #[inline(always)]
    pub fn prefetch_frame(&self, i: usize) {
        if let Some(p) = self.packets.get(i) {
            self.slab.prefetch(p.offset as usize);
            self.slab.prefetch(p.offset as usize + 48);
        }
    }
}

/// Lays out a chunk: the source puts bytes into the buffer and names the frames among them.
#[derive(Debug)]
pub struct ChunkBuilder {
    buffer: Vec<u8>,
    packets: Vec<Packet>,
    used: usize,
    home: Option<Arc<dyn SlabHome>>,
}

impl ChunkBuilder {
    /// Bytes before every frame that must be left to it.
    pub const HEADROOM: usize = HEADROOM;
    /// More packets than any chunk may hold.
    pub const PACKETS_MAX: usize = u16::MAX as usize;

    /// A builder over a buffer that goes back to its home.
    pub fn from_home(buffer: Vec<u8>, home: Arc<dyn SlabHome>) -> Self {
        Self { buffer, packets: home.take_list(), used: 0, home: Some(home) }
    }

    /// A builder over memory of its own, for preloaded input and tests.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self { buffer: vec![0; capacity_bytes], packets: Vec::new(), used: 0, home: None }
    }

    /// Gives up: the buffer goes back to its pool.
    pub fn discard(self) {
        if let Some(pool) = self.home {
            pool.put(self.buffer);
        }
    }

    /// The buffer, to be filled. Bytes of frames already named may be overwritten, but stay theirs.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Makes the buffer at least this large, keeping its content.
    pub fn grow(&mut self, capacity_bytes: usize) {
        if self.buffer.len() < capacity_bytes {
            self.buffer.resize(capacity_bytes, 0);
        }
    }

    /// Frees the slack behind the last frame; for chunks that are kept a while.
    pub fn shrink_to(&mut self, used_bytes: usize) {
        if used_bytes >= self.used {
            self.buffer.truncate(used_bytes);
            self.buffer.shrink_to_fit();
        }
    }

    /// Makes room for this many packets at once.
    pub fn reserve_packets(&mut self, packets: usize) {
        self.packets.reserve(packets);
    }

    /// Packets named so far.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Where the next frame may begin at the earliest.
    pub fn next_frame_offset(&self) -> usize {
        self.used + HEADROOM
    }

    /// Names `len` bytes at `offset` of the buffer a frame. Panics if it overlaps the one before or its
    /// own headroom, does not fit the buffer, or is one packet too many for a chunk: those are errors of
    /// the source, not of its input.
    #[inline]
    #[allow(clippy::too_many_arguments)] // one flat call per packet on the reader's hot path
    pub fn push(
        &mut self,
        offset: usize,
        len: usize,
        wire_len: u32,
        arrival_ns: u64,
        link: LinkType,
        port_in: u16,
        application: u8,
    ) {
        assert!(offset >= self.used + HEADROOM, "frame overlaps the one before");
        assert!(len <= self.buffer.len() && offset <= self.buffer.len() - len, "frame outside the buffer");
        assert!(self.packets.len() < Self::PACKETS_MAX, "too many packets for a chunk");
        assert!(self.buffer.len() <= u32::MAX as usize, "buffer too large");
        let index = self.packets.len() as u16;
        self.used = offset + len;
        self.packets.push(Packet {
            arrival_ns,
            offset: offset as u32,
            len: len as u32,
            slab_tag: 0,
            wire_len,
            flow_hash: 0,
            ip_len: 0,
            next_hop: 0,
            index,
            position: index,
            l3_offset: 0,
            l4_offset: 0,
            src_port: 0,
            dst_port: 0,
            port_in,
            port_out: NO_PORT,
            shard: NO_SHARD,
            crossing_shard: NO_SHARD,
            drop_code: 0,
            link,
            flags: PacketFlags::default(),
            protocol: 0,
            traffic_class: 0,
            class: NO_CLASS,
            application,
        });
    }

    /// The finished chunk. `clock_before_ns` is the packet clock after the chunk before; the new chunk's
    /// clock is that or its first packet's arrival, whichever is later.
    pub fn finish(mut self, sequence: u64, first_packet_number: u64, clock_before_ns: u64) -> Chunk {
        let clock_ns = self.packets.first().map_or(clock_before_ns, |p| p.arrival_ns.max(clock_before_ns));
        let slab = Slab::new(self.buffer, self.home);
        for p in &mut self.packets {
            p.slab_tag = slab.tag();
        }
        Chunk {
            sequence,
            first_packet_number,
            clock_ns,
            admitted_ns: 0,
            crosses_shards: false,
            has_fragments: false,
            shard_index: ShardIndex::default(),
            indexed_stage: None,
            origins: Vec::new(),
            live: self.packets.len(),
            packets: self.packets,
            slab: Arc::new(slab),
        }
    }
}

#[cfg(test)]
mod tests;
