//! Makes chunks: numbers them, advances the packet clock, and provides their memory.

use super::InputOptions;
use super::report::Reporter;
use crate::slab_pool::SlabPool;
use thalweg_base::{Chunk, ChunkBuilder};

/// Bytes of a slab before anything is known about the input. It grows as needed and stays grown.
const SLAB_BYTES_START: usize = 128 * 1024;

pub(super) struct Chunks {
    pool: Option<SlabPool>,
    /// Packets of a full chunk.
    pub(super) packets_max: usize,
    /// The most bytes from the start of a chunk's first record to the end of its last.
    pub(super) bytes_max: usize,
    /// The latest arrival in all earlier chunks.
    pub(super) clock_ns: u64,
    /// Includes the field order of traces, and the times of their packets.
    pub(super) options: InputOptions,
    /// Packets of traces so far.
    pub(super) trace_packets: u64,
    sequence: u64,
    next_packet_number: u64,
}

impl Chunks {
    pub(super) fn new(options: &InputOptions) -> Self {
        Self {
            pool: Some(SlabPool::new(options.slabs, SLAB_BYTES_START)),
            packets_max: options.packets(),
            bytes_max: options.slab_bytes(),
            clock_ns: 0,
            options: options.clone(),
            trace_packets: 0,
            sequence: 0,
            next_packet_number: 1,
        }
    }

    /// From now on, chunks own their memory and are trimmed to size.
    pub(super) fn keep_in_memory(&mut self) {
        self.pool = None;
    }

    /// Begins a chunk; waits for a slab if all are in flight.
    pub(super) fn builder(&self) -> ChunkBuilder {
        let mut builder = match &self.pool {
            Some(pool) => pool.builder(),
            None => ChunkBuilder::with_capacity(SLAB_BYTES_START),
        };
        builder.reserve_packets(self.packets_max);
        builder
    }

    /// The finished chunk; `None` if it has no packets. `latest_ns` is the latest arrival in it.
    pub(super) fn finish(
        &mut self,
        mut builder: ChunkBuilder,
        latest_ns: u64,
        reporter: &mut Reporter,
    ) -> Option<Chunk> {
        let packets = builder.len();
        reporter.add(0, 0, 0, packets);
        if packets == 0 {
            builder.discard();
            return None;
        }
        if self.pool.is_none() {
            builder.shrink_to(builder.next_frame_offset() - ChunkBuilder::HEADROOM);
        }
        let chunk = builder.finish(self.sequence, self.next_packet_number, self.clock_ns);
        self.sequence += 1;
        self.next_packet_number += packets as u64;
        self.clock_ns = self.clock_ns.max(latest_ns);
        Some(chunk)
    }
}
