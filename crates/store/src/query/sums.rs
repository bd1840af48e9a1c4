//! What questions add up.

use super::Metric;

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Packets, of both directions.
    pub packets: u64,
    /// Bytes, of both directions.
    pub bytes: u64,
    /// Records.
    pub flows: u64,
}

impl Sums {
    /// The one by which is ranked.
    pub fn of(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Packets => self.packets,
            Metric::Bytes => self.bytes,
            Metric::Flows => self.flows,
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: Sums) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.flows += other.flows;
    }
}
