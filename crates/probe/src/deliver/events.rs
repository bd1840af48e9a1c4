//! The queue of NAT events from workers to the delivery thread, beside that of records.
//!
//! The sending thread gathers events into batches; the delivery thread takes them between batches of records.
//! A full queue never blocks: events that find no room are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use thalweg_flow::export::NatEvent;

const BATCH_EVENTS: usize = 512;
/// The capacity of the queue in batches: enough for a million sessions per second between two visits of the
/// delivery thread, 9 MiB.
const QUEUE_BATCHES: usize = 256;

/// The sending end.
pub(crate) struct EventWay {
    queue: Sender<Vec<NatEvent>>,
    gathered: Vec<NatEvent>,
    counts: Arc<EventCounts>,
}

/// The receiving end.
pub(crate) struct EventArrivals {
    queue: Receiver<Vec<NatEvent>>,
    counts: Arc<EventCounts>,
}

/// Counts of events.
#[derive(Debug, Default)]
pub(crate) struct EventCounts {
    handed_over: AtomicU64,
    lost: AtomicU64,
}

impl EventCounts {
    /// Events that were passed on.
    pub(crate) fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Events that found no room, here or at their source.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts events that found no room.
    pub(crate) fn lose(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
    }
}

/// Makes a queue and its two ends.
pub(crate) fn event_queue() -> (EventWay, EventArrivals) {
    let (sender, queue) = bounded(QUEUE_BATCHES);
    let counts = Arc::new(EventCounts::default());
    let way = EventWay { queue: sender, gathered: Vec::new(), counts: Arc::clone(&counts) };
    (way, EventArrivals { queue, counts })
}

impl EventWay {
    pub(crate) fn counts(&self) -> &Arc<EventCounts> {
        &self.counts
    }

    /// Takes all events from the list.
    pub(crate) fn take(&mut self, events: &mut Vec<NatEvent>) {
        self.gathered.append(events);
        if self.gathered.len() >= BATCH_EVENTS {
            self.send();
        }
    }

    /// Passes on all gathered events.
    pub(crate) fn send(&mut self) {
        while !self.gathered.is_empty() {
            let rest = self.gathered.split_off(self.gathered.len().min(BATCH_EVENTS));
            let batch = std::mem::replace(&mut self.gathered, rest);
            let count = batch.len() as u64;
            match self.queue.try_send(batch) {
                Ok(()) => self.counts.handed_over.fetch_add(count, Ordering::Relaxed),
                Err(_) => self.counts.lost.fetch_add(count, Ordering::Relaxed),
            };
        }
    }
}

impl EventArrivals {
    /// The waiting batches.
    pub(crate) fn batches(&self) -> impl Iterator<Item = Vec<NatEvent>> {
        self.queue.try_iter().take(QUEUE_BATCHES)
    }

    /// Events that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_the_rest_arrives_in_order() {
        let (mut way, arrivals) = event_queue();
        let room = (QUEUE_BATCHES * BATCH_EVENTS) as u64;
        let event = |n| NatEvent::AddressesExhausted { time_ns: n, pool: 0 };
        way.take(&mut (0..room + 7).map(event).collect());
        way.send();
        assert_eq!((way.counts().handed_over(), arrivals.lost()), (room, 7));
        let arrived: Vec<NatEvent> = arrivals.batches().flatten().collect();
        assert_eq!(arrived, (0..room).map(event).collect::<Vec<_>>());
        way.take(&mut vec![event(1)]);
        assert_eq!(arrivals.batches().count(), 0, "it is gathered");
        way.send();
        assert_eq!(arrivals.batches().count(), 1);
        drop(arrivals);
        way.take(&mut vec![event(2)]);
        way.send();
        assert_eq!(way.counts().lost(), 8, "nobody is there any more");
    }
}
