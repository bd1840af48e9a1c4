//! Feeds chunks from live ports to the model, as its source.
//!
//! The ports' rings are where packets wait if the workers are slower than the senders. Rings absorb bursts; a queue
//! that stands in them only delays every packet. So CoDel watches them: packets in the rings have come after the
//! moment when the ports last ran dry, and if that does not happen for an interval, the longest packet of a chunk is
//! dropped (`queue-managed`), as a signal to a sender of much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_base::{Chunk, DropReason};
use thalweg_dataplane::egress::{Aqm, Codel};
use thalweg_exec::Source;
use thalweg_ports::live::LiveSource;

use crate::counters::Counters;
use crate::halves::HalvesSlot;
use crate::lanes::LaneNumber;
use crate::offload::Sampler;
use crate::packets::Exchange;
use crate::received::Received;

/// How long the source waits for packets between checks of its stop flag.
const WAIT: Duration = Duration::from_millis(100);

/// Chunks between two reads of the drivers' counters.
const CHUNKS_BETWEEN: u32 = 256;

/// The longest time between two moments at which the rings are empty that is no standing queue yet, within intervals
/// as RFC 8289 section 4.3 recommends them. Packets are dropped, not marked: how long each has waited is not known.
const STANDING: Aqm = Aqm { target_us: 1_000, interval_ms: 100, ecn: false };

/// See the module.
pub(crate) struct Feed {
    lane: LaneNumber,
    source: LiveSource,
    /// Port and number of each of the source's queues.
    queues: Vec<(u16, u16)>,
    /// Queues that a reload adds and removes; applied between two plans.
    halves: HalvesSlot,
    stop: Arc<AtomicBool>,
    received: Arc<Received>,
    exchange: Arc<Exchange>,
    chunks: u32,
    sampler: Option<Sampler>,
    standing: Codel,
    /// Used for the ports' names.
    counters: Arc<Counters>,
    /// Chunks since the model started: each model's input begins with number 0.
    sequence: u64,
    has_ended: bool,
}

impl Feed {
    /// A feed that ends when `stop` is set, and pauses while plans are exchanged.
    pub(crate) fn new(
        lane: LaneNumber,
        ((source, queues), halves): ((LiveSource, Vec<(u16, u16)>), HalvesSlot),
        stop: Arc<AtomicBool>,
        received: Arc<Received>,
        exchange: Arc<Exchange>,
        sampler: Option<Sampler>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            lane,
            source,
            queues,
            halves,
            stop,
            received,
            exchange,
            chunks: 0,
            sampler,
            standing: Codel::new(STANDING),
            counters,
            sequence: 0,
            has_ended: false,
        }
    }

    /// Ends the model's input; the next call begins a new one.
    fn end(&mut self) -> Option<Chunk> {
        self.publish();
        (self.sequence, self.has_ended) = (0, true);
        None
    }

    fn publish(&mut self) {
        self.chunks = 0;
        let polled = self.source.found_by_polling();
        let halves = self.source.counters().zip(&self.queues);
        let counters = halves.map(|((port, counters), &(_, queue))| (port, queue, counters));
        self.received.set(self.lane.index, counters, polled);
    }

    fn report_changes(&mut self) {
        while let Some(change) = self.source.poll_change() {
            let port = self.counters.name(change.port);
            match change.failed {
                Some(error) => tracing::warn!(port, "cannot receive: {error}"),
                None => tracing::info!(port, "receives again"),
            }
        }
    }
}

impl Source<Chunk> for Feed {
    fn next(&mut self) -> Option<Chunk> {
        loop {
            if self.stop.load(Ordering::Acquire) || self.exchange.is_wanted() {
                return self.end();
            }
            if std::mem::take(&mut self.has_ended) {
                self.halves.apply(&mut self.source, &mut self.queues);
                self.exchange.resumes();
            }
            // Captures show packets as on a wire.
            self.source.take_merged(self.exchange.takes_merged() && !self.counters.taps.are_watched());
            let next = self.source.next_chunk(WAIT);
            self.report_changes();
            match next {
                Ok(Some(mut chunk)) => {
                    chunk.sequence = self.sequence;
                    chunk.first_packet_number = self.lane.of_packet(chunk.first_packet_number);
                    self.sequence += 1;
                    let now_ns = self.source.clock().now_ns();
                    let waits_ns = now_ns.saturating_sub(self.source.dry_ns());
                    if self.standing.signal(now_ns, waits_ns, u64::MAX, 0) {
                        drop_longest(&mut chunk);
                    }
                    self.exchange.gives(chunk.packets().len());
                    if let Some(sampler) = &mut self.sampler {
                        sampler.look_at(&chunk, self.lane.of_chunk(chunk.sequence));
                    }
                    self.chunks += 1;
                    if self.chunks >= CHUNKS_BETWEEN {
                        self.publish();
                    }
                    return Some(chunk);
                }
                Ok(None) => self.publish(),
                Err(error) => {
                    tracing::error!("receiving: {error}");
                    std::thread::sleep(WAIT);
                }
            }
        }
    }
}

/// Drops the longest packet of a chunk: most likely one of a flow that fills the rings.
fn drop_longest(chunk: &mut Chunk) {
    if let Some(packet) = chunk.packets_mut().iter_mut().max_by_key(|packet| packet.wire_len) {
        packet.drop_for(DropReason::QueueManaged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::{ChunkBuilder, LinkType};

    #[test]
    fn the_longest_packet_is_the_signal() {
        let mut builder = ChunkBuilder::with_capacity(8192);
        for bytes in [60, 1514, 98] {
            builder.push(builder.next_frame_offset(), bytes, bytes as u32, 0, LinkType::Ethernet, 0, 0);
        }
        let mut chunk = builder.finish(0, 1, 0);
        drop_longest(&mut chunk);
        let fates: Vec<_> = chunk.packets().iter().map(thalweg_base::Packet::drop_reason).collect();
        assert_eq!(fates, [None, Some(DropReason::QueueManaged), None]);
    }
}
