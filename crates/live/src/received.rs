//! Receive counters of the drivers.
use parking_lot::Mutex;

use thalweg_ports::live::RxCounters;

/// What drivers have counted, by lane and queue: brought up to date whenever nothing comes, and every so many chunks.
#[derive(Debug)]
pub(crate) struct Received(Mutex<Vec<Vec<QueueCounters>>>);

/// What the driver has counted at a queue of a port.
#[derive(Clone, Copy, Debug)]
struct QueueCounters {
    port: u16,
    queue: u16,
    counters: RxCounters,
}

impl Received {
    /// For so many lanes.
    pub(crate) fn new(lanes: usize) -> Self {
        Self(Mutex::new(vec![Vec::new(); lanes]))
    }

    /// Of each of a port's queues, in order.
    pub(crate) fn of(&self, port: u16) -> Vec<RxCounters> {
        let all = self.0.lock();
        let mut queues: Vec<_> = all.iter().flatten().filter(|queue| queue.port == port).collect();
        queues.sort_unstable_by_key(|queue| queue.queue);
        queues.into_iter().map(|queue| queue.counters).collect()
    }

    /// What a lane has now, by port and queue.
    pub(crate) fn set(&self, lane: usize, counters: impl Iterator<Item = (u16, u16, RxCounters)>) {
        let counters =
            counters.map(|(port, queue, counters)| QueueCounters { port, queue, counters }).collect();
        if let Some(own) = self.0.lock().get_mut(lane) {
            *own = counters;
        }
    }
}

/// What was received by several queues together.
pub(crate) fn sum_of(queues: &[RxCounters]) -> RxCounters {
    queues.iter().fold(RxCounters::default(), |sum, queue| RxCounters {
        frames: sum.frames + queue.frames,
        bytes: sum.bytes + queue.bytes,
        missed: sum.missed + queue.missed,
        refused: sum.refused + queue.refused,
        foreign: sum.foreign + queue.foreign,
    })
}
