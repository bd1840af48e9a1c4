//! The queue of records from workers to the delivery thread.
//!
//! ```text
//! worker: batch ──full──> bounded queue ──> delivery
//!           ^                                  │
//!           └───────── empty batches <─────────┘
//! ```
//!
//! A record is written once into a batch, packed ([`Packed`]), and the batch is passed on. Some batches circulate, so
//! that nothing is allocated as long as the reader keeps up; a burst's others are freed, because each would in time have
//! the room of the largest records.
//!
//! **A full queue.** Packets of a file can wait, so their worker waits and nothing is lost. Packets of an
//! interface cannot: a worker waits only as long as the interface's ring can hold what arrives meanwhile;
//! then the batch is lost, and counted by record, packet and byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::Amount;

use crate::packed::Packed;

/// Records in a batch: 16 KiB of plain ones, which stay in a second-level cache until the batch is passed on.
pub(crate) const BATCH_RECORDS: usize = 256;
/// The capacity of the queue: 1 MiB of plain records, 7 MiB of others, more if batches are larger.
const QUEUE_BATCHES: usize = 64;
/// Batches that are not full are put into the queue only while fewer than this wait: else chunks of a few records each
/// would use it up, and a burst after them would be lost with room for most of it.
const SMALL_BATCHES: usize = QUEUE_BATCHES / 4;
/// Empty batches that wait for use: as many as come within a nap at 4 million records a second.
const SPARE_BATCHES: usize = 16;
/// A reader that finds the queue empty looks again after this time: a wake-up for every batch would cost both
/// ends more than the batch. The queue has room for 12,000 records meanwhile.
const NAP: Duration = Duration::from_millis(1);

/// Makes a queue and its two ends.
pub(crate) fn queue() -> (RecordQueue, Arrivals) {
    let (full, arrivals) = bounded(QUEUE_BATCHES);
    let (returned, empty) = bounded(SPARE_BATCHES);
    let passage = Arc::new(Passage::default());
    (RecordQueue { full, empty, passage: Arc::clone(&passage) }, Arrivals { arrivals, returned, passage })
}

/// Counts records that left the queue; the meters' total minus this is the number on their way.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    through: AtomicU64,
}

impl Passage {
    /// Adds delivered or lost records.
    pub(crate) fn add(&self, records: usize) {
        self.through.fetch_add(records as u64, Ordering::Release);
    }

    /// Delivered and lost records.
    pub(crate) fn through(&self) -> u64 {
        self.through.load(Ordering::Acquire)
    }
}

/// The sending end, from which every worker gets its own sender.
#[derive(Clone)]
pub(crate) struct RecordQueue {
    full: Sender<Packed>,
    empty: Receiver<Packed>,
    passage: Arc<Passage>,
}

impl RecordQueue {
    /// An empty batch, reused if possible.
    pub(crate) fn empty_batch(&self) -> Packed {
        self.empty.try_recv().unwrap_or_else(|_| Packed::with_capacity(BATCH_RECORDS))
    }

    pub(crate) fn passage(&self) -> &Arc<Passage> {
        &self.passage
    }

    /// Passes on a batch, or returns it if there is no room or no receiver.
    pub(crate) fn try_send(&self, batch: Packed) -> Result<(), Packed> {
        self.full.try_send(batch).map_err(TrySendError::into_inner)
    }

    /// A sender that waits for `timeout` while the queue is full; `None` waits forever.
    pub(crate) fn sender(&self, timeout: Option<Duration>) -> RecordSender {
        RecordSender { queue: self.clone(), timeout, batch: Packed::default(), lost: Amount::default() }
    }
}

/// A worker's end. Dropping it loses its gathered records: send them first.
pub(crate) struct RecordSender {
    queue: RecordQueue,
    timeout: Option<Duration>,
    batch: Packed,
    lost: Amount,
}

impl RecordSender {
    /// Takes a record, and passes on a full batch.
    #[inline]
    pub(crate) fn put(&mut self, record: &FlowRecord) {
        self.batch.push(record);
        if self.batch.len() >= BATCH_RECORDS {
            self.send();
        }
    }

    /// Passes on the gathered records, unless many batches already wait: then more are gathered, until a batch is full.
    pub(crate) fn send_soon(&mut self) {
        if !self.batch.is_empty() && self.queue.full.len() < SMALL_BATCHES {
            self.send();
        }
    }

    /// Passes on the gathered records.
    #[cold]
    pub(crate) fn send(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let next = self.queue.empty_batch();
        let batch = std::mem::replace(&mut self.batch, next);
        let refused = match self.queue.full.try_send(batch) {
            Ok(()) => return,
            Err(TrySendError::Disconnected(batch)) => Some(batch),
            Err(TrySendError::Full(batch)) => match self.timeout {
                None => self.queue.full.send(batch).err().map(|error| error.0),
                Some(timeout) => {
                    self.queue.full.send_timeout(batch, timeout).err().map(|error| match error {
                        SendTimeoutError::Timeout(batch) | SendTimeoutError::Disconnected(batch) => batch,
                    })
                }
            },
        };
        if let Some(batch) = refused {
            self.queue.passage.add(batch.len());
            self.lost += batch.amount();
        }
    }

    /// Records that found no room in time.
    pub(crate) fn lost(&self) -> Amount {
        self.lost
    }
}

impl std::fmt::Debug for RecordSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordSender").field("waiting", &self.batch.len()).field("lost", &self.lost).finish()
    }
}

/// The receiving end.
pub(crate) struct Arrivals {
    arrivals: Receiver<Packed>,
    returned: Sender<Packed>,
    passage: Arc<Passage>,
}

/// The result of waiting.
pub(crate) enum Arrival {
    /// A batch, which must be returned.
    Batch(Packed),
    /// None arrived in time.
    Nothing,
    /// No more will arrive.
    End,
}

impl Arrivals {
    pub(crate) fn next(&self, timeout: Duration) -> Arrival {
        if let Ok(batch) = self.arrivals.try_recv() {
            return Arrival::Batch(batch);
        }
        std::thread::sleep(NAP);
        match self.arrivals.recv_timeout(timeout) {
            Ok(batch) => Arrival::Batch(batch),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => Arrival::Nothing,
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => Arrival::End,
        }
    }

    /// Counts delivered records.
    pub(crate) fn delivered(&self, records: usize) {
        self.passage.add(records);
    }

    /// Returns a batch for reuse.
    pub(crate) fn give_back(&self, mut batch: Packed) {
        batch.clear();
        // A router's batch may be larger, and those do not circulate.
        if batch.capacity() > 2 * BATCH_RECORDS {
            return;
        }
        // It is freed if enough wait.
        let _ = self.returned.try_send(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_flow::{Counters, EndReason, FlowKey};

    fn record(packets: u64) -> FlowRecord {
        let key = FlowKey {
            src: "192.0.2.1".parse().expect("an address"),
            dst: "192.0.2.2".parse().expect("an address"),
            src_port: 1,
            dst_port: 2,
            protocol: 6,
            traffic_class: 0,
            ingress: 0,
            vlan: 0,
            mpls_label: None,
        };
        FlowRecord::new(
            key,
            Counters { packets, bytes: 10 * packets, ..Default::default() },
            EndReason::ForcedEnd,
        )
    }

    #[test]
    fn everything_put_in_comes_out_once() {
        let (way, arrivals) = queue();
        let received = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let mut all = Amount::default();
                loop {
                    match arrivals.next(Duration::from_secs(60)) {
                        Arrival::Batch(batch) => {
                            all += batch.amount();
                            arrivals.give_back(batch);
                        }
                        Arrival::Nothing => panic!("the sender is there and sends nothing"),
                        Arrival::End => return all,
                    }
                }
            });
            for worker in 0..3 {
                let mut sender = way.sender(None);
                scope.spawn(move || {
                    (0..20_000 + worker).for_each(|_| sender.put(&record(3)));
                    sender.send();
                    assert_eq!(sender.lost(), Amount::default());
                });
            }
            drop(way);
            receiver.join().expect("it adds up")
        });
        assert_eq!(received, Amount { records: 60_003, packets: 180_009, bytes: 1_800_090 });
    }

    /// As many records as full batches hold, from chunks of one record each.
    #[test]
    fn small_batches_do_not_use_up_the_queue() {
        let (way, arrivals) = queue();
        let mut sender = way.sender(Some(Duration::ZERO));
        let room = SMALL_BATCHES + (QUEUE_BATCHES - SMALL_BATCHES) * BATCH_RECORDS;
        for _ in 0..room {
            sender.put(&record(1));
            sender.send_soon();
        }
        assert_eq!((sender.lost(), way.full.len()), (Amount::default(), QUEUE_BATCHES));
        let mut received = 0;
        while let Arrival::Batch(batch) = arrivals.next(Duration::ZERO) {
            received += batch.len();
        }
        assert_eq!(received, room);
        sender.put(&record(1));
        sender.send_soon();
        assert!(matches!(arrivals.next(Duration::ZERO), Arrival::Batch(batch) if batch.len() == 1));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (way, arrivals) = queue();
        let mut sender = way.sender(Some(Duration::ZERO));
        let room = (QUEUE_BATCHES * BATCH_RECORDS) as u64;
        (0..room + 5).for_each(|_| sender.put(&record(2)));
        sender.send();
        assert_eq!(sender.lost(), Amount { records: 5, packets: 10, bytes: 100 });
        drop(arrivals);
        sender.put(&record(1));
        sender.send();
        assert_eq!(sender.lost().records, 6, "nobody is there any more");
    }
}
