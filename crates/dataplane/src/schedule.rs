//! The order of service within a chunk.
//!
//! Strict classes come first, by level; packets of one level keep their order of arrival. The other classes share
//! the rest by weight, in bytes: deficit round robin (Shreedhar and Varghese, 1995) with a quantum of one full
//! frame per unit of weight. It starts again with each chunk, so that a chunk's order depends on nothing outside it
//! and the stage has no state. Packets of one class never overtake one another.

use std::fmt;

use thalweg_base::{Chunk, Packet};

/// Bytes that a class may send per round and unit of weight: at least the largest common packet, so that each round
/// serves each class that has packets.
const QUANTUM_BYTES: u64 = 1514;

/// How a class is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Before all weighted classes; lower levels first.
    Strict(u8),
    /// Weight in the rate that strict classes leave; 0 counts as 1.
    Weight(u16),
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict(level) => write!(f, "strict, level {level}"),
            Self::Weight(weight) => write!(f, "weight {weight}"),
        }
    }
}

/// The scheduler: one entry per class.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Rank of each class: strict levels by order, then one rank for all weighted classes.
    ranks: Vec<usize>,
    rank_count: usize,
    weights: Vec<u64>,
    weighted_classes: usize,
}

impl Scheduler {
    /// Takes each class's service, in class order.
    pub fn new(services: &[Service]) -> Self {
        let mut levels: Vec<u8> = services
            .iter()
            .filter_map(|s| match s {
                Service::Strict(level) => Some(*level),
                Service::Weight(_) => None,
            })
            .collect();
        levels.sort_unstable();
        levels.dedup();
        let ranks = services.iter().map(|s| match s {
            Service::Strict(level) => levels.partition_point(|l| l < level),
            Service::Weight(_) => levels.len(),
        });
        let weights = services.iter().map(|s| match s {
            Service::Strict(_) => 0,
            Service::Weight(w) => u64::from(*w).max(1),
        });
        let weights: Vec<u64> = weights.collect();
        Self {
            ranks: ranks.collect(),
            rank_count: levels.len() + 1,
            weighted_classes: weights.iter().filter(|w| **w > 0).count(),
            weights,
        }
    }

    /// Whether packets are served as they arrive, because no class overtakes another.
    pub fn keeps_arrival_order(&self) -> bool {
        self.rank_count == 1 && self.weighted_classes <= 1
    }

    /// Sorts a chunk's live packets into order of service, and dropped ones after them. `spare` is memory to sort
    /// into, which the caller reuses from chunk to chunk.
    pub fn process(&self, chunk: &mut Chunk, spare: &mut Vec<Packet>) {
        let last = self.rank_count - 1;
        let rank =
            |p: &Packet| p.is_alive().then(|| self.ranks.get(usize::from(p.class)).copied().unwrap_or(last));
        chunk.schedule(self.rank_count, rank, spare);
        if self.weighted_classes > 1 {
            self.share(chunk, spare);
        }
    }

    /// Deficit round robin over the packets of the last rank.
    fn share(&self, chunk: &mut Chunk, spare: &mut Vec<Packet>) {
        let live = chunk.live_len();
        let packets = &chunk.packets()[..live];
        let from = packets.partition_point(|p| self.ranks[usize::from(p.class)] + 1 < self.rank_count);
        let mut queues: Vec<Vec<u16>> = vec![Vec::new(); self.weights.len()];
        for (position, packet) in (from as u16..).zip(&packets[from..]) {
            queues[usize::from(packet.class)].push(position);
        }
        if queues.iter().filter(|q| !q.is_empty()).count() < 2 {
            return;
        }
        let mut order: Vec<u16> = (0..from as u16).collect();
        let mut heads = vec![0usize; queues.len()];
        let mut deficits = vec![0u64; queues.len()];
        while order.len() < live {
            for class in 0..queues.len() {
                let queue = &queues[class];
                if heads[class] == queue.len() {
                    continue;
                }
                deficits[class] += self.weights[class] * QUANTUM_BYTES;
                while let Some(&position) = queue.get(heads[class]) {
                    let bytes = packets[usize::from(position)].wire_ip_bytes();
                    if bytes > deficits[class] {
                        break;
                    }
                    deficits[class] -= bytes;
                    heads[class] += 1;
                    order.push(position);
                }
            }
        }
        chunk.schedule_by(&order, spare);
    }
}

#[cfg(test)]
mod tests;
