//! sFlow 5: samples of packets and counters of interfaces for collectors, beside the flow records.
//!
//! ```text
//! worker: PacketSampler (counts down to its next sample) ──> bounded queue ──> Agent: datagrams ──> collectors
//!                                         counters of interfaces, now and then ──^
//! ```
//!
//! Packets of files wait for room in the queue. Those of interfaces do not: the sample is lost, and told in `drops`.

mod agent;
mod counters;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use thalweg_base::{Packet, PacketSample};
use thalweg_flow::{PacketSampler, PacketSamplers, PacketSampling};

pub(crate) use agent::{Agent, AgentOptions};
pub use agent::{CompleteSample, SampledWay};
pub(crate) use counters::CountersInterval;
pub use counters::{PortCount, ReadCounters, kernel_counters};

/// The capacity of the queue: 1 MiB of usual samples.
const QUEUE_SAMPLES: usize = 4096;
/// A fixed seed makes the probe sample the same packets of a file in every run with one worker.
const SEED: u64 = 1;

/// The sending end.
#[derive(Clone)]
pub(crate) struct SampleQueue {
    samples: Sender<PacketSample>,
    waits: bool,
    untold: Arc<Untold>,
}

impl SampleQueue {
    /// Makes a queue; with `waits`, samples wait for room.
    fn new(waits: bool) -> (Self, Receiver<PacketSample>) {
        let (samples, arrivals) = bounded(QUEUE_SAMPLES);
        (Self { samples, waits, untold: Arc::default() }, arrivals)
    }

    pub(crate) fn send(&self, sample: PacketSample) {
        let result = match self.waits {
            // Without a receiver the run is about to fail.
            true => self.samples.send(sample).map_err(|error| error.0),
            false => self.samples.try_send(sample).map_err(|error| error.into_inner()),
        };
        if let Err(lost) = result {
            self.untold.add(lost.port_in, Counted { pool: lost.pool, drops: 1 });
        }
    }

    /// Adds packets that no sample tells.
    pub(crate) fn add_pool(&self, port: u16, pool: u32) {
        self.untold.add(port, Counted { pool, drops: 0 });
    }
}

/// Packets of a pool, and samples that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    pool: u32,
    drops: u32,
}

/// What no sample could tell, until the agent takes it.
#[derive(Debug, Default)]
struct Untold {
    has_some: AtomicBool,
    by_port: Mutex<BTreeMap<u16, Counted>>,
    /// Samples that found the queue full.
    lost: AtomicU64,
}

impl Untold {
    #[cold]
    fn add(&self, port: u16, more: Counted) {
        self.lost.fetch_add(more.drops.into(), Ordering::Relaxed);
        let mut by_port = self.by_port.lock();
        let counted = by_port.entry(port).or_default();
        counted.pool = counted.pool.wrapping_add(more.pool);
        counted.drops = counted.drops.wrapping_add(more.drops);
        self.has_some.store(true, Ordering::Release);
    }

    /// Takes everything.
    fn take(&self) -> BTreeMap<u16, Counted> {
        match self.has_some.load(Ordering::Acquire) {
            false => BTreeMap::new(),
            true => {
                let mut by_port = self.by_port.lock();
                self.has_some.store(false, Ordering::Release);
                std::mem::take(&mut by_port)
            }
        }
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Gives every worker of a probe its own sampler.
#[derive(Clone)]
pub(crate) struct Samplers {
    queue: SampleQueue,
    samplers: PacketSamplers,
}

impl Samplers {
    pub(crate) fn new(queue: SampleQueue, sampling: PacketSampling) -> Self {
        // Senders of packets must not be able to predict which are seen.
        let seed = if queue.waits { SEED } else { RandomState::new().build_hasher().finish() };
        Self { queue, samplers: PacketSamplers::new(sampling, seed) }
    }

    pub(crate) fn sampler(&self) -> Sampler {
        Sampler { sampler: self.samplers.another(), queue: self.queue.clone() }
    }
}

/// A probe's worker's end.
pub(crate) struct Sampler {
    sampler: PacketSampler,
    queue: SampleQueue,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sampler.fmt(f)
    }
}

impl Sampler {
    #[inline]
    pub(crate) fn pass(&mut self, packet: &Packet, frame: &[u8]) {
        self.sampler.pass(packet, frame, &mut |sample| self.queue.send(sample));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_the_queue_full_is_told_later() {
        let (queue, arrivals) = SampleQueue::new(false);
        let sample = |port_in| PacketSample { index: 0, port_in, pool: 5, rate: 5, start: None, fate: None };
        for number in 0..QUEUE_SAMPLES + 7 {
            queue.send(sample(u16::from(number % 2 == 1)));
        }
        assert_eq!((arrivals.len(), queue.untold.lost()), (QUEUE_SAMPLES, 7));
        queue.add_pool(1, 9);
        let of = |pool, drops| Counted { pool, drops };
        assert_eq!(queue.untold.take(), [(0, of(20, 4)), (1, of(24, 3))].into());
        assert_eq!(queue.untold.take(), BTreeMap::new());
    }
}
