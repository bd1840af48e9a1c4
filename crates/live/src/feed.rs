//! Feeds chunks from live ports to the model, as its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_base::Chunk;
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
