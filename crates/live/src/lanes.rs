//! Assigns receive queues to workers.
//!
//! Under run-to-completion with several workers, if a port has several receive queues, each worker has a *lane*: a
//! share of the queues, a source that cuts chunks from them, and a sink. Queue `q` of a port with several belongs
//! to lane `q` modulo the number of lanes: the kernel's flow hash is the same in both directions, so on ports with
//! equally many queues one worker gets both directions of an untranslated flow. Ports with one queue are assigned
//! in turn. The configuration may assign each queue (`queue_workers`).
//!
//! There are as many lanes as the port with the most queues has queues, or as the highest configured worker
//! requires, but no more than workers. If no port has several queues and no worker is configured, and under all
//! other models, there is one lane, and the model spreads its chunks as it does those of a file.

use thalweg_config::RouterConfig;
use thalweg_exec::{ModelKind, ModelOptions};
use thalweg_ports::live::PortRx;

use crate::open::OpenError;

/// A receiving half: one queue of a port.
pub(crate) struct QueueRx {
    pub(crate) port: u16,
    /// The queue's number on its port, from 0.
    pub(crate) queue: u16,
    /// The number of the port's queues.
    pub(crate) of: u16,
    /// The worker that the configuration assigns.
    pub(crate) worker: Option<usize>,
    pub(crate) rx: Box<dyn PortRx>,
}

/// Bits of a packet's number within its lane. 2^48 packets take a month at a hundred million per second; after that,
/// captures may mix up chunks that are in the plan at the same time.
const LANE_SHIFT: u32 = 48;

/// A lane's number and the number of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneNumber {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl LaneNumber {
    /// A chunk's number, unique over all lanes.
    pub(crate) fn of_chunk(self, sequence: u64) -> u64 {
        sequence * self.of as u64 + self.index as u64
    }

    /// A packet's number, unique over all lanes, from its number in the lane; captures identify chunks by it.
    pub(crate) fn of_packet(self, number: u64) -> u64 {
        number + ((self.index as u64) << LANE_SHIFT)
    }
}

/// The most lanes that a model can use.
pub(crate) fn lanes_wanted(model: &ModelOptions) -> usize {
    if model.kind.has_lanes() { model.workers.max(1) } else { 1 }
}

/// Refuses a configuration that assigns queues to workers that do not exist.
pub(crate) fn check_named(config: &RouterConfig, model: &ModelOptions) -> Result<(), OpenError> {
    let ports = config.ports.iter().filter(|port| !port.is_vacant());
    let named = ports.filter_map(|port| Some((port.name.clone(), port.last_worker()?)));
    let Some((port, worker)) = named.max_by_key(|(_, worker)| *worker) else { return Ok(()) };
    match (model.kind.has_lanes(), model.workers) {
        (false, _) => {
            Err(OpenError::SharedQueues { port, model: model.kind, other: ModelKind::RunToCompletion })
        }
        (true, workers) if worker >= workers => Err(OpenError::NoSuchWorker { port, worker, workers }),
        (true, _) => Ok(()),
    }
}

/// Assigns queues to at most `wanted` lanes.
pub(crate) fn deal(queues: Vec<QueueRx>, wanted: usize) -> Vec<Vec<QueueRx>> {
    let needed = |queue: &QueueRx| queue.worker.map_or(usize::from(queue.of), |worker| worker + 1);
    let most = queues.iter().map(needed).max().unwrap_or(1);
    deal_out(queues, wanted.min(most).max(1), 0)
}

/// Assigns queues to `count` lanes, starting with lane `turn` for ports with one queue.
pub(crate) fn deal_out(queues: Vec<QueueRx>, count: usize, mut turn: usize) -> Vec<Vec<QueueRx>> {
    let mut lanes: Vec<Vec<QueueRx>> = (0..count).map(|_| Vec::new()).collect();
    for queue in queues {
        let lane = match (queue.worker, queue.of) {
            (Some(worker), _) => worker,
            (None, 1) => {
                turn += 1;
                turn - 1
            }
            (None, _) => usize::from(queue.queue),
        };
        lanes[lane % count].push(queue);
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io;
    use std::os::fd::RawFd;
    use thalweg_base::ChunkBuilder;
    use thalweg_ports::live::RxCounters;

    struct Nothing;

    impl PortRx for Nothing {
        fn receive(&mut self, _: u16, _: u64, _: usize, _: &mut ChunkBuilder) -> io::Result<usize> {
            Ok(0)
        }

        fn fd(&self) -> RawFd {
            -1
        }

        fn counters(&mut self) -> RxCounters {
            RxCounters::default()
        }
    }

    fn dealt(ports: &[u16], wanted: usize) -> Vec<Vec<(u16, u16)>> {
        dealt_as_said(&ports.iter().map(|of| vec![None; usize::from(*of)]).collect::<Vec<_>>(), wanted)
    }

    fn dealt_as_said(ports: &[Vec<Option<usize>>], wanted: usize) -> Vec<Vec<(u16, u16)>> {
        let queues = (0..).zip(ports).flat_map(|(port, workers)| {
            let of = workers.len() as u16;
            let queue = move |(queue, worker): (u16, &Option<usize>)| QueueRx {
                port,
                queue,
                of,
                worker: *worker,
                rx: Box::new(Nothing),
            };
            (0..).zip(workers).map(queue)
        });
        let lanes = deal(queues.collect(), wanted);
        lanes.iter().map(|lane| lane.iter().map(|queue| (queue.port, queue.queue)).collect()).collect()
    }

    #[test]
    fn queues_of_one_number_meet_in_one_lane() {
        assert_eq!(dealt(&[2, 2], 2), [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]);
        assert_eq!(dealt(&[3, 2], 2), [vec![(0, 0), (0, 2), (1, 0)], vec![(0, 1), (1, 1)]]);
        assert_eq!(
            dealt(&[1, 4, 1], 8),
            [vec![(0, 0), (1, 0)], vec![(1, 1), (2, 0)], vec![(1, 2)], vec![(1, 3)]]
        );
        assert_eq!(dealt(&[4], 1), [[(0, 0), (0, 1), (0, 2), (0, 3)]]);
        assert_eq!(dealt(&[1, 1], 2), [[(0, 0), (1, 0)]], "workers share the chunks of single queues");
        assert_eq!(dealt(&[], 2), [[]], "somebody has to take what is put in");
    }

    #[test]
    fn a_queue_goes_to_the_worker_that_is_named() {
        let lan = vec![Some(1), Some(0)];
        assert_eq!(dealt_as_said(&[lan.clone(), vec![Some(1)]], 2), [vec![(0, 1)], vec![(0, 0), (1, 0)]]);
        assert_eq!(
            dealt_as_said(&[vec![Some(0)], vec![Some(1)]], 2),
            [[(0, 0)], [(1, 0)]],
            "single queues too"
        );
        assert_eq!(
            dealt_as_said(&[vec![Some(2)], vec![None, None], vec![None]], 4),
            [vec![(1, 0), (2, 0)], vec![(1, 1)], vec![(0, 0)]],
            "others as ever"
        );
    }

    #[test]
    fn chunks_of_all_lanes_have_different_numbers() {
        let mut numbers: Vec<u64> = (0..3)
            .flat_map(|index| (0..9).map(move |sequence| LaneNumber { index, of: 3 }.of_chunk(sequence)))
            .collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..27));
        let [first, second] = [0, 1].map(|index| LaneNumber { index, of: 2 });
        assert_eq!(first.of_packet(7), 7);
        assert!(first.of_packet(1 << 40) < second.of_packet(1));
        assert_eq!(LaneNumber { index: 0, of: 1 }.of_chunk(7), 7);
    }
}
