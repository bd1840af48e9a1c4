//! The way in: live chunks as a model's source.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_base::Chunk;
use thalweg_exec::Source;
use thalweg_ports::live::{LiveSource, RxCounters};

use crate::offload::Sampler;
use crate::packets::Exchange;

/// How long the source waits before it looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(100);

/// What drivers have counted, by port: brought up to date whenever nothing comes, and every so many chunks.
#[derive(Debug, Default)]
pub(crate) struct Received(Mutex<Vec<(u16, RxCounters)>>);

/// Chunks between two looks at the drivers' counters.
const CHUNKS_BETWEEN: u32 = 256;

impl Received {
    /// The sum over a port's halves.
    pub(crate) fn of(&self, port: u16) -> RxCounters {
        let all = self.lock();
        all.iter().filter(|(of, _)| *of == port).fold(RxCounters::default(), |sum, (_, half)| RxCounters {
            frames: sum.frames + half.frames,
            octets: sum.octets + half.octets,
            missed: sum.missed + half.missed,
            refused: sum.refused + half.refused,
            foreign: sum.foreign + half.foreign,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u16, RxCounters)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub(crate) struct Feed {
    source: LiveSource,
    stop: Arc<AtomicBool>,
    received: Arc<Received>,
    exchange: Arc<Exchange>,
    chunks: u32,
    sampler: Option<Sampler>,
    /// Chunks given since the model began: to each model its input begins with number 0.
    sequence: u64,
    has_ended: bool,
}

impl Feed {
    /// A feed that ends when `stop` is set, and for a while when plans are exchanged.
    pub(crate) fn new(
        source: LiveSource,
        stop: Arc<AtomicBool>,
        received: Arc<Received>,
        exchange: Arc<Exchange>,
        sampler: Option<Sampler>,
    ) -> Self {
        Self { source, stop, received, exchange, chunks: 0, sequence: 0, has_ended: false, sampler }
    }

    /// Says that this is all, until it is asked again.
    fn end(&mut self) -> Option<Chunk> {
        self.publish();
        (self.sequence, self.has_ended) = (0, true);
        None
    }

    fn publish(&mut self) {
        self.chunks = 0;
        let counters = self.source.counters().collect();
        *self.received.lock() = counters;
    }

    fn tell_changes(&mut self) {
        while let Some(change) = self.source.poll_change() {
            match change.failed {
                Some(error) => tracing::warn!(port = change.port, "nothing comes in: {error}"),
                None => tracing::info!(port = change.port, "receives again"),
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
                self.exchange.resumes();
            }
            let next = self.source.next_chunk(WAIT);
            self.tell_changes();
            match next {
                Ok(Some(mut chunk)) => {
                    chunk.sequence = self.sequence;
                    self.sequence += 1;
                    self.exchange.gives(chunk.packets().len());
                    if let Some(sampler) = &mut self.sampler {
                        sampler.look_at(&chunk);
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
