//! The sums of a query.

use super::Metric;

/// Sums over records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Both directions.
    pub packets: u64,
    /// Both directions.
    pub bytes: u64,
    /// Records.
    pub flows: u64,
}

impl Sums {
    /// The value of a metric.
    pub fn of(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Packets => self.packets,
            Metric::Bytes => self.bytes,
            Metric::Flows => self.flows,
        }
    }

    /// Adds another sum.
    pub fn add(&mut self, other: Sums) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.flows += other.flows;
    }
}
