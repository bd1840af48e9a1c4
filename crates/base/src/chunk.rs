//! Chunks, the unit that a source delivers and a model schedules, and batches, the view of packets that a
//! stage gets.
//!
//! A chunk is also the unit of meaning: priorities are served within one chunk, and the packet clock advances
//! from chunk to chunk. So results depend on the chunk size, which is part of a run's configuration, and
//! never on the execution model.
#![allow(unsafe_code)]

use crate::slab::{HEADROOM, Window};
use crate::{LinkType, NO_CLASS, NO_PORT, NO_SHARD, Packet, PacketFlags, Slab, SlabHome};
use std::fmt;
use std::sync::Arc;

mod notes;

use notes::SampleOwners;
pub use notes::{Expected, Origin, PacketFate, PacketSample, PacketStart, StartLink, Translated};

/// The most packets that a stage gets at a time. 256 descriptors and the first line of their frames are 32
/// KiB, which fits a first-level cache and still shares each instruction miss among many packets.
pub const BATCH_PACKETS: usize = 256;

/// Packets in a chunk unless configured otherwise.
pub const CHUNK_PACKETS_DEFAULT: usize = 1600;

/// The packets of a chunk by group of shards, in order of service. It is built once per chunk so that work on
/// one group does not walk the packets of the others.
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
        // Each start has moved to the end of its group, which is the start of the next: shift back.
        self.starts.copy_within(0..groups, 1);
        self.starts[0] = 0;
    }

    /// The number of groups that the index was built for; 0 before the first build.
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

/// Finds the packets in bytes that a source has only cut off, on whatever thread runs the chunk.
pub trait Parse: Send + Sync + fmt::Debug {
    /// Names the packets. May write to the builder's buffer, and need not name any.
    fn parse(self: Box<Self>, builder: &mut ChunkBuilder);
}

/// Consecutive packets of the input or, in a farm, the part of them that one worker owns.
#[derive(Debug)]
pub struct Chunk {
    /// From 0.
    pub sequence: u64,
    /// Counted over the whole input, from 1.
    pub first_packet_number: u64,
    /// The packet clock at the start of this chunk: the latest arrival seen before it or with its first
    /// packet, so it never goes back.
    pub clock_ns: u64,
    /// By the model's own clock.
    pub admitted_ns: u64,
    /// Some packet needs two shards, so stages with shards must not interleave this chunk with others.
    pub crosses_shards: bool,
    pub has_fragments: bool,
    pub shard_index: ShardIndex,
    /// The stage that `shard_index` was built for.
    pub indexed_stage: Option<usize>,
    /// What packets were before translation, by place in the chunk; empty unless a later stage needs it.
    pub origins: Vec<Translated>,
    /// What packets of this chunk have announced, as NAT has found it.
    pub expected: Vec<Expected>,
    /// Samples of its packets whose fate is not known yet.
    pub samples: Vec<PacketSample>,
    packets: Vec<Packet>,
    live: usize,
    slab: Arc<Slab>,
    /// What must happen before there are packets.
    parser: Option<Box<dyn Parse>>,
}

impl Chunk {
    /// Finds the packets of a chunk that is not [parsed](ChunkBuilder::finish_unparsed) yet.
    pub fn parse(&mut self) {
        let Some(parser) = self.parser.take() else { return };
        // Nobody else has the slab: a chunk is not split before it has packets.
        let (buffer, home) = Arc::get_mut(&mut self.slab).map(Slab::take).unwrap_or_default();
        let packets = std::mem::take(&mut self.packets);
        let mut builder =
            ChunkBuilder { buffer, packets, used: 0, end: usize::MAX, takes_merged: false, home };
        parser.parse(&mut builder);
        let mut parsed = builder.finish(self.sequence, self.first_packet_number, self.clock_ns);
        parsed.admitted_ns = self.admitted_ns;
        *self = parsed;
    }

    /// Makes room for this many bytes more, for packets that will [grow](Batch::grow_l3). Does nothing for a part of a
    /// chunk.
    pub fn make_room(&mut self, bytes: usize) {
        if let Some(slab) = Arc::get_mut(&mut self.slab) {
            slab.make_room(bytes);
        }
    }

    /// All packets: first those in service, in order, then those dropped before the chunk was scheduled.
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// [`Self::packets`] for changes.
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// The number of packets that were alive when the chunk was scheduled; they come first.
    pub fn live_len(&self) -> usize {
        self.live
    }

    /// The number of batches that cover the packets in service.
    pub fn batch_count(&self) -> usize {
        self.live.div_ceil(BATCH_PACKETS)
    }

    /// Batch `k` of the packets in service.
    pub fn batch(&mut self, k: usize) -> Batch<'_> {
        let from = (k * BATCH_PACKETS).min(self.live);
        let to = (from + BATCH_PACKETS).min(self.live);
        Batch { window: self.slab.window(), packets: &mut self.packets[from..to] }
    }

    /// All packets in service as one view, for stages that follow a list of positions.
    pub fn whole(&mut self) -> (Batch<'_>, &ShardIndex) {
        (Batch { window: self.slab.window(), packets: &mut self.packets[..self.live] }, &self.shard_index)
    }

    /// The frame of packet `i` as it lies in memory now.
    pub fn frame(&self, i: usize) -> &[u8] {
        let p = &self.packets[i];
        // SAFETY: the span is that of a packet borrowed with `self`.
        unsafe { self.slab.span(p.slab_tag, p.offset as usize, p.len as usize) }
    }

    /// The frame that goes out for packet `i`: an Ethernet header of 14 bytes (written by the last stage) and
    /// the IP packet, without its original link layer and padding.
    pub fn egress_frame(&self, i: usize) -> &[u8] {
        let p = &self.packets[i];
        assert!(usize::from(p.l3_offset) <= p.len as usize);
        let start = (p.start() + usize::from(p.l3_offset)) - ETHERNET_HEADER;
        // SAFETY: starts in the packet's headroom at the earliest and ends with its frame.
        unsafe { self.slab.span(p.slab_tag, start, ETHERNET_HEADER + p.l3_captured_len()) }
    }

    /// Puts the packets in order of service: by `rank`, lowest first, in arrival order within a rank; `None`
    /// takes a packet out of service. `ranks` is the number of ranks, at most 254. `spare` is memory to sort
    /// into; the old list comes back in it, for the next chunk.
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
            // The bucket behind all ranks is for packets out of service. `position` holds the bucket for now.
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

    /// Puts the packets in the given order: `order[i]` is the present place of the packet to serve `i`-th.
    /// Packets that it does not name go to the end, out of service. Panics unless the places are distinct.
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

    /// Moves every packet to its position in a second list, so that each is read and written once; swapping
    /// in place would do both twice. Panics unless the positions are a permutation.
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

    const POSITIONS: usize = u16::MAX as usize + 1;

    /// All packets as one view, including those out of service, with their origins if these were kept.
    pub fn all_with_origins(&mut self) -> (Batch<'_>, &ShardIndex, &[Translated]) {
        let window = self.slab.window();
        (Batch { window, packets: &mut self.packets }, &self.shard_index, &self.origins)
    }

    /// All packets in service as one view, with their origins, if these were kept, for NAT to complete.
    pub fn whole_with_origins(&mut self) -> (Batch<'_>, &ShardIndex, &mut [Translated]) {
        let packets = &mut self.packets[..self.live];
        (Batch { window: self.slab.window(), packets }, &self.shard_index, &mut self.origins)
    }

    /// Gives packet `i` other bytes from offset `from` of its frame on. A frame that becomes longer moves behind all
    /// others. Returns false, and changes nothing, if the chunk was split, or the packet merges several.
    pub fn replace_tail(&mut self, i: usize, from: usize, tail: &[u8]) -> bool {
        let Some(slab) = Arc::get_mut(&mut self.slab) else { return false };
        let packet = &mut self.packets[i];
        assert!(packet.slab_tag == slab.tag(), "packet used with the slab of another chunk");
        let (start, len, new) = (packet.start(), packet.captured_len(), from + tail.len());
        if packet.segment_bytes != 0 || from > len {
            return false;
        }
        let mut at = start;
        if new > len {
            // What frames have grown by is bounded by a chunk's packets; the next chunk in this memory overwrites it.
            slab.make_room(HEADROOM + new);
            let Some(room) = slab.window().claim(HEADROOM + new) else { return false };
            at = room + HEADROOM;
        }
        let (Ok(offset), Ok(new_len)) = (u32::try_from(at), u32::try_from(new)) else { return false };
        let bytes = slab.bytes_mut();
        if at != start {
            bytes.copy_within(start..start + from, at);
        }
        bytes[at + from..at + new].copy_from_slice(tail);
        let wire_len = packet.wire_len.saturating_sub(packet.len).saturating_add(new_len);
        (packet.offset, packet.len, packet.wire_len) = (offset, new_len, wire_len);
        true
    }

    /// Drops the descriptors and keeps the bytes, for a sink that has seen the packets but must not free
    /// their memory yet.
    pub fn forget_packets(&mut self) {
        self.live = 0;
        self.packets = Vec::new();
    }

    /// Records addresses and ports of the IPv4 packets in service that `which` selects, before NAT changes
    /// them. Call it once per chunk, or once for each part of a split chunk.
    pub fn keep_origins(&mut self, which: impl Fn(&Packet) -> bool) {
        let mut origins = std::mem::take(&mut self.origins);
        origins.clear();
        origins.extend((0..self.live).map(|place| {
            let packet = &self.packets[place];
            if !which(packet) {
                return Translated::default();
            }
            let l3 = self.frame(place).get(usize::from(packet.l3_offset)..).unwrap_or_default();
            let address =
                |at: usize| l3.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
            let (src_port, dst_port) = (packet.src_port, packet.dst_port);
            let origin = Origin { src: address(12), dst: address(16), src_port, dst_port };
            Translated { origin, ..Translated::default() }
        }));
        self.origins = origins;
    }

    /// Splits the chunk by owner. The parts share the slab, and each packet is in one of them.
    pub fn split(mut self, parts: usize, owner: impl Fn(&Packet) -> usize) -> Vec<Chunk> {
        assert!(self.parser.is_none(), "a chunk is split before it is parsed");
        let live = self.live;
        let mut samples = SampleOwners::of(std::mem::take(&mut self.samples), self.packets.len());
        let mut out: Vec<Chunk> = (0..parts)
            .map(|_| {
                let mut part = self.header();
                part.packets.reserve(self.packets.len() / parts + 16);
                part
            })
            .collect();
        for (i, packet) in self.packets.drain(..).enumerate() {
            let part = owner(&packet).min(parts - 1);
            samples.note(&packet, part);
            out[part].live += usize::from(i < live);
            out[part].packets.push(packet);
        }
        samples.each(|part, sample| out[part].samples.push(sample));
        out
    }

    /// Joins split parts again, in order of service. Panics if `parts` is empty or if they are parts of
    /// different chunks.
    pub fn merge(parts: Vec<Chunk>) -> Chunk {
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else { panic!("merge of no parts") };
        for mut part in parts {
            assert!(Arc::ptr_eq(&whole.slab, &part.slab), "merge of parts of different chunks");
            whole.live += part.live;
            whole.packets.append(&mut part.packets);
            whole.samples.append(&mut part.samples);
        }
        whole.packets.sort_unstable_by_key(|p| p.position);
        // Origins are indexed by place in a part, which is no longer known.
        whole.origins.clear();
        whole
    }

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
            expected: Vec::new(),
            samples: Vec::new(),
            packets: self.slab.home().map(SlabHome::take_list).unwrap_or_default(),
            live: 0,
            slab: Arc::clone(&self.slab),
            parser: None,
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
    window: Window<'a>,
    packets: &'a mut [Packet],
}

impl Batch<'_> {
    /// The number of packets, including dropped ones.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the batch has no packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The descriptors of all packets.
    #[inline(always)]
    pub fn packets(&self) -> &[Packet] {
        self.packets
    }

    /// [`Self::packets`] for changes.
    #[inline(always)]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        self.packets
    }

    /// Descriptor and frame of packet `i`.
    #[inline(always)]
    pub fn packet_and_frame(&mut self, i: usize) -> (&mut Packet, &mut [u8]) {
        let p = &mut self.packets[i];
        // SAFETY: `p` is borrowed mutably for as long as the bytes are.
        let frame = unsafe { self.window.span_mut(p.slab_tag, p.offset as usize, p.len as usize) };
        (p, frame)
    }

    /// Descriptors and frames of all packets, in order.
    #[inline(always)]
    pub fn frames(&mut self) -> impl Iterator<Item = (&mut Packet, &mut [u8])> {
        let window = self.window;
        self.packets.iter_mut().map(move |p| {
            // SAFETY: `p` is borrowed mutably for as long as the bytes are.
            let frame = unsafe { window.span_mut(p.slab_tag, p.offset as usize, p.len as usize) };
            (p, frame)
        })
    }

    /// Calls `each` for every packet of which at least `N` bytes from the IP header on were captured, with
    /// its place in the batch.
    #[inline(always)]
    pub fn each_ip_header<const N: usize>(&mut self, each: impl FnMut(usize, &mut Packet, &mut [u8; N])) {
        self.each_header::<N, 0>(each);
    }

    /// [`Self::each_ip_header`] with `N` bytes of the outgoing frame: 14 for the Ethernet header, then the IP
    /// packet.
    #[inline(always)]
    pub fn each_egress_header<const N: usize>(&mut self, each: impl FnMut(usize, &mut Packet, &mut [u8; N])) {
        self.each_header::<N, ETHERNET_HEADER>(each);
    }

    /// Passes `N` bytes, of which `BEFORE` lie before the IP header.
    #[inline(always)]
    fn each_header<const N: usize, const BEFORE: usize>(
        &mut self,
        mut each: impl FnMut(usize, &mut Packet, &mut [u8; N]),
    ) {
        let window = self.window;
        for (i, p) in self.packets.iter_mut().enumerate() {
            if let Some((p, bytes)) = header_of::<N, BEFORE>(window, p) {
                each(i, p, bytes);
            }
        }
    }

    /// Descriptor of packet `i` and `N` bytes from its IP header on, if as many were captured.
    #[inline(always)]
    pub fn packet_and_ip_header<const N: usize>(&mut self, i: usize) -> Option<(&mut Packet, &mut [u8; N])> {
        header_of::<N, 0>(self.window, &mut self.packets[i])
    }

    /// Descriptor of packet `i` and its frame from the IP header on.
    #[inline(always)]
    pub fn packet_and_l3(&mut self, i: usize) -> (&mut Packet, &mut [u8]) {
        let p = &mut self.packets[i];
        let l3 = usize::from(p.l3_offset);
        assert!(l3 <= p.len as usize);
        // SAFETY: inside the span of `p`, which is borrowed mutably for as long as the bytes are.
        let bytes = unsafe { self.window.span_mut(p.slab_tag, p.offset as usize + l3, p.len as usize - l3) };
        (p, bytes)
    }

    /// Descriptor of packet `i` and its outgoing frame: 14 bytes for the Ethernet header, then the IP packet.
    #[inline(always)]
    pub fn packet_and_egress(&mut self, i: usize) -> (&mut Packet, &mut [u8]) {
        let p = &mut self.packets[i];
        assert!(usize::from(p.l3_offset) <= p.len as usize);
        let start = p.offset as usize + usize::from(p.l3_offset) - ETHERNET_HEADER;
        let len = ETHERNET_HEADER + p.l3_captured_len();
        // SAFETY: the builder left HEADROOM (more than an Ethernet header) before the frame, which is
        // this packet's alone; the end is that of its frame at the latest.
        let bytes = unsafe { self.window.span_mut(p.slab_tag, start, len) };
        (p, bytes)
    }

    /// Makes packet `i`'s IP packet begin `by` bytes earlier, for a longer header; the new bytes hold anything. The frame
    /// moves to the room behind all frames. Returns `false`, without any change, if there is none
    /// ([`Chunk::make_room`] makes it).
    pub fn grow_l3(&mut self, i: usize, by: usize) -> bool {
        let window = self.window;
        let (p, old) = self.packet_and_frame(i);
        let (l3, further) = (usize::from(p.l3_offset), p.further_segments());
        let before = l3 + p.l3_captured_len();
        // A frame that does not merge segments has no headers to note.
        let headers = if p.segment_bytes == 0 { 0 } else { usize::from(p.segment_headers) + by };
        let (Ok(len), Ok(headers)) = (u32::try_from(before + by), u8::try_from(headers)) else {
            return false;
        };
        let Some(start) = window.claim(HEADROOM + before + by).map(|room| room + HEADROOM) else {
            return false;
        };
        let Ok(offset) = u32::try_from(start) else { return false };
        // SAFETY: the span was claimed for this packet alone, which is borrowed mutably.
        let new = unsafe { window.span_mut(p.slab_tag, start, before + by) };
        new[..l3].copy_from_slice(&old[..l3]);
        new[l3 + by..].copy_from_slice(&old[l3..before]);
        p.wire_len = len + if headers == 0 { p.wire_len - p.len } else { further * u32::from(headers) };
        (p.offset, p.len, p.segment_headers) = (offset, len, headers);
        true
    }

    /// Prefetches the headers of packet `i`'s frame, which may span two cache lines; does nothing for an `i`
    /// past the end.
    #[inline(always)]
    pub fn prefetch_frame(&self, i: usize) {
        if let Some(p) = self.packets.get(i) {
            self.window.prefetch(p.offset as usize);
            self.window.prefetch(p.offset as usize + 48);
        }
    }
}

/// `N` bytes of a packet, of which `BEFORE` lie before its IP header; `None` if the capture ends inside them.
#[inline(always)]
fn header_of<'a, const N: usize, const BEFORE: usize>(
    window: Window<'a>,
    p: &'a mut Packet,
) -> Option<(&'a mut Packet, &'a mut [u8; N])> {
    const { assert!(BEFORE <= N && BEFORE <= HEADROOM) };
    let l3 = usize::from(p.l3_offset);
    if l3 + N > p.len as usize + BEFORE {
        return None;
    }
    // SAFETY: starts in the packet's headroom at the earliest, which is this packet's alone, and ends inside its frame,
    // as just checked; `p` is borrowed mutably for as long as the bytes are.
    let bytes = unsafe { window.array_mut(p.slab_tag, p.offset as usize + l3 - BEFORE) };
    Some((p, bytes))
}

/// Builds a chunk: the source writes bytes into the buffer and names the frames among them.
#[derive(Debug)]
pub struct ChunkBuilder {
    buffer: Vec<u8>,
    packets: Vec<Packet>,
    used: usize,
    /// Where the part of the buffer ends that may be filled.
    end: usize,
    takes_merged: bool,
    home: Option<Arc<dyn SlabHome>>,
}

impl ChunkBuilder {
    /// Bytes that the source must leave free before every frame.
    pub const HEADROOM: usize = HEADROOM;
    /// The most packets that a chunk may hold.
    pub const PACKETS_MAX: usize = u16::MAX as usize;

    /// Makes a builder over a buffer that returns to its pool when the chunk is gone.
    pub fn from_home(buffer: Vec<u8>, home: Arc<dyn SlabHome>) -> Self {
        Self {
            buffer,
            packets: home.take_list(),
            used: 0,
            end: usize::MAX,
            takes_merged: false,
            home: Some(home),
        }
    }

    /// Makes a builder over its own memory, for preloaded input and tests.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self {
            buffer: vec![0; capacity_bytes],
            packets: Vec::new(),
            used: 0,
            end: usize::MAX,
            takes_merged: false,
            home: None,
        }
    }

    /// Sets whether frames that merge several segments may stay whole. If not, as at first, the source cuts them.
    pub fn take_merged(&mut self, takes: bool) {
        self.takes_merged = takes;
    }

    /// Whether frames that merge several segments may stay whole.
    pub fn takes_merged(&self) -> bool {
        self.takes_merged
    }

    /// Abandons the chunk: the buffer goes back to its pool.
    pub fn discard(self) {
        if let Some(pool) = self.home {
            pool.put(self.buffer);
        }
    }

    /// Lets frames take up only this many bytes of the buffer, headroom included.
    pub fn fill_up_to(&mut self, bytes: usize) {
        self.end = bytes;
    }

    /// The buffer to fill. Bytes of frames already named may be overwritten, but still belong to them.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        let end = self.end.min(self.buffer.len());
        &mut self.buffer[..end]
    }

    /// Grows the buffer to at least this size and keeps its content.
    pub fn grow(&mut self, capacity_bytes: usize) {
        if self.buffer.len() < capacity_bytes {
            self.buffer.resize(capacity_bytes, 0);
        }
    }

    /// Frees the memory behind `used_bytes`, for chunks that are kept a while.
    pub fn shrink_to(&mut self, used_bytes: usize) {
        if used_bytes >= self.used {
            self.buffer.truncate(used_bytes);
            self.buffer.shrink_to_fit();
        }
    }

    /// Reserves room for this many packets.
    pub fn reserve_packets(&mut self, packets: usize) {
        self.packets.reserve(packets);
    }

    /// The number of packets named so far.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether no packet has been named yet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The earliest offset at which the next frame may begin.
    pub fn next_frame_offset(&self) -> usize {
        self.used + HEADROOM
    }

    /// Names `len` bytes at `offset` of the buffer as a frame. Panics if the frame overlaps the previous one
    /// or its own headroom, does not fit the buffer, or exceeds a chunk's packets: those are errors of the
    /// source, not of its input.
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
            segment_bytes: 0,
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
            segment_headers: 0,
            link,
            flags: PacketFlags::default(),
            protocol: 0,
            traffic_class: 0,
            class: NO_CLASS,
            application,
        });
    }

    /// Makes the last frame longer by the next `bytes` of the buffer. Panics if no frame was named, or they do not
    /// fit.
    pub fn extend_last(&mut self, bytes: usize) {
        let Some(packet) = self.packets.last_mut() else { panic!("no frame to extend") };
        assert!(bytes <= self.buffer.len() - self.used, "frame outside the buffer");
        self.used += bytes;
        // Buffers are no longer than this type allows; `push` has checked that.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        (packet.len, packet.wire_len) = (packet.len + bytes, packet.wire_len + bytes);
    }

    /// Says that the last frame merges segments of a TCP flow: each has the frame's first `headers` bytes, adapted,
    /// and the next `segment_bytes` of what follows them; the last may have fewer. Counters count them as a wire
    /// would carry them. The transport checksum of such a frame means nothing; it is computed when the frame is sent
    /// or cut.
    ///
    /// The frame must end with its payload. Panics if no frame was named, or it is shorter than its headers.
    pub fn merge_last(&mut self, headers: u8, segment_bytes: u16) {
        let Some(packet) = self.packets.last_mut() else { panic!("no frame to merge segments in") };
        assert!(
            headers > 0 && segment_bytes > 0 && packet.len >= u32::from(headers),
            "segments without bytes"
        );
        let segments = (packet.len - u32::from(headers)).div_ceil(u32::from(segment_bytes));
        if segments > 1 {
            packet.wire_len = packet.len + (segments - 1) * u32::from(headers);
            (packet.segment_headers, packet.segment_bytes) = (headers, segment_bytes);
        }
    }

    /// Finishes the chunk. `clock_before_ns` is the packet clock after the previous chunk; the clock of the
    /// new one is the later of that and its first packet's arrival.
    pub fn finish(mut self, sequence: u64, first_packet_number: u64, clock_before_ns: u64) -> Chunk {
        let clock_ns = self.packets.first().map_or(clock_before_ns, |p| p.arrival_ns.max(clock_before_ns));
        let slab = Slab::new(self.buffer, self.used, self.home);
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
            expected: Vec::new(),
            samples: Vec::new(),
            live: self.packets.len(),
            packets: self.packets,
            slab: Arc::new(slab),
            parser: None,
        }
    }

    /// Finishes a chunk without packets; [`Chunk::parse`] has `parser` find them.
    pub fn finish_unparsed(
        self,
        sequence: u64,
        first_packet_number: u64,
        clock_before_ns: u64,
        parser: Box<dyn Parse>,
    ) -> Chunk {
        let mut chunk = self.finish(sequence, first_packet_number, clock_before_ns);
        chunk.parser = Some(parser);
        chunk
    }
}

#[cfg(test)]
mod tests;
