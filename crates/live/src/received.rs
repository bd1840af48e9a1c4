//! Counters of what drivers received.
use parking_lot::Mutex;

use thalweg_ports::live::RxCounters;

/// The drivers' counters by lane and queue. Feeds update them whenever no packet arrives, and every so many chunks.
#[derive(Debug)]
pub(crate) struct Received(Mutex<Vec<Lane>>);

#[derive(Clone, Debug, Default)]
struct Lane {
    queues: Vec<QueueCounters>,
    polled: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueueCounters {
    port: u16,
    queue: u16,
    counters: RxCounters,
}

impl Received {
    pub(crate) fn new(lanes: usize) -> Self {
        Self(Mutex::new(vec![Lane::default(); lanes]))
    }

    /// By queue of the port, in order.
    pub(crate) fn of(&self, port: u16) -> Vec<RxCounters> {
        let all = self.0.lock();
        let queues = all.iter().flat_map(|lane| &lane.queues);
        let mut queues: Vec<_> = queues.filter(|queue| queue.port == port).collect();
        queues.sort_unstable_by_key(|queue| queue.queue);
        queues.into_iter().map(|queue| queue.counters).collect()
    }

    /// How often polling before a sleep found packets for a lane.
    pub(crate) fn polled(&self, lane: usize) -> Option<u64> {
        Some(self.0.lock().get(lane)?.polled)
    }

    /// Sets a lane's counters: those of its queues by port and queue, and how often polling found packets.
    pub(crate) fn set(
        &self,
        lane: usize,
        counters: impl Iterator<Item = (u16, u16, RxCounters)>,
        polled: u64,
    ) {
        let of_queue = |(port, queue, counters)| QueueCounters { port, queue, counters };
        let queues = counters.map(of_queue).collect();
        if let Some(own) = self.0.lock().get_mut(lane) {
            *own = Lane { queues, polled };
        }
    }
}

/// The sum over several queues.
pub(crate) fn sum_of(queues: &[RxCounters]) -> RxCounters {
    queues.iter().fold(RxCounters::default(), |sum, queue| RxCounters {
        frames: sum.frames + queue.frames,
        bytes: sum.bytes + queue.bytes,
        missed: sum.missed + queue.missed,
        refused: sum.refused + queue.refused,
        foreign: sum.foreign + queue.foreign,
    })
}
