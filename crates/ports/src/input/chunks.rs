//! Makes chunks: numbers them, advances the packet clock, and provides their memory.

use super::InputOptions;
use crate::slab_pool::SlabPool;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_base::{Chunk, ChunkBuilder, Parse};

/// Bytes of a slab before anything is known about the input. It grows as needed and stays grown.
const SLAB_BYTES_START: usize = 128 * 1024;

/// Text that has become packets, to read the next into: as many as there were chunks at once.
pub(super) type TextPool = Arc<Mutex<Vec<Vec<u8>>>>;

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
    pub(super) texts: TextPool,
    /// Packets of traces so far, and malformed lines.
    trace_packets: u64,
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
            texts: TextPool::default(),
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

    /// Arrival of the first of these next packets of traces.
    pub(super) fn next_arrival(&mut self, packets: usize) -> u64 {
        let passed_ns = self.trace_packets.saturating_mul(self.options.trace_step_ns);
        self.trace_packets += packets as u64;
        self.options.trace_start_ns.saturating_add(passed_ns)
    }

    /// Packets so far, and malformed lines.
    pub(super) fn packets(&self) -> u64 {
        self.next_packet_number - 1
    }

    /// The chunk of these lines, parsed at once or by its model; `None` if it is parsed and has no packets. `packets`
    /// and `latest_ns` are as for [`Self::finish`].
    pub(super) fn of_lines(
        &mut self,
        lines: Box<dyn Parse>,
        packets: usize,
        latest_ns: u64,
        at_once: bool,
    ) -> Option<Chunk> {
        let mut builder = self.builder();
        if at_once {
            lines.parse(&mut builder);
            return self.finish(builder, packets, latest_ns, None);
        }
        self.finish(builder, packets, latest_ns, Some(lines))
    }

    /// The finished chunk; `None` if it has and will have no packets. `packets` is their number, malformed lines
    /// included, and `latest_ns` the latest arrival.
    pub(super) fn finish(
        &mut self,
        mut builder: ChunkBuilder,
        packets: usize,
        latest_ns: u64,
        parser: Option<Box<dyn Parse>>,
    ) -> Option<Chunk> {
        let (sequence, number, clock_ns) = (self.sequence, self.next_packet_number, self.clock_ns);
        self.next_packet_number += packets as u64;
        self.clock_ns = self.clock_ns.max(latest_ns);
        if builder.is_empty() && parser.is_none() {
            builder.discard();
            return None;
        }
        if self.pool.is_none() {
            builder.shrink_to(builder.next_frame_offset() - ChunkBuilder::HEADROOM);
        }
        self.sequence += 1;
        Some(match parser {
            Some(parser) => builder.finish_unparsed(sequence, number, clock_ns, parser),
            None => builder.finish(sequence, number, clock_ns),
        })
    }
}
