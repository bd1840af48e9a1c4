//! What passed, counted while it passes.
//!
//! The sink adds up a chunk and then adds that to the shared counters, so an atomic costs a chunk, not a packet. Every
//! packet that a driver handed up, and every one that the router made itself (answers, errors, questions for neighbors,
//! frames of the system's by mirrors, each piece but the first of a packet that was cut), is in exactly one place:
//!
//! ```text
//! received + own = sent + queued + waiting for a neighbor + to the router itself + dropped{reason} + on their way
//! ```
//!
//! On their way are those in the stages and in the queues to the host thread; when nothing moves, none are. A packet that
//! leaves the fast path is counted when the host thread has decided: as the router's own to have (ARP, a neighbor's word,
//! what it answered, what the mirror took), as dropped for the reason it left for, or when it is sent after all.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::DropReason;

use crate::capture::{Seen, Taps};

/// Packets and bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    pub packets: AtomicU64,
    /// Bytes of their frames.
    pub bytes: AtomicU64,
}

impl Traffic {
    /// Counts one or several.
    pub fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets and bytes now.
    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Counters of one port.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Came in and went through the stages; of the router itself: what it made.
    pub received: Traffic,
    /// Was given to the port's driver.
    pub sent: Traffic,
    /// Came in here and was handed to the router itself.
    pub to_host: Traffic,
    /// Came in here and was dropped.
    pub dropped: Traffic,
}

/// Ports that reloads may bring beside those of the start. One that comes back under its name has its number again.
pub(crate) const ADDED_MAX: usize = 4096;

/// Counters of a router.
#[derive(Debug)]
pub struct Counters {
    /// By port, those that may still come included; the last is what the router itself put in. Those of a port that is
    /// gone stay: its packets were received and sent.
    pub ports: Vec<PortCounters>,
    /// What the configuration calls the ports, for the log.
    names: Mutex<Vec<String>>,
    dropped: Vec<AtomicU64>,
    to_host: Vec<AtomicU64>,
    /// Captures of what is counted.
    pub(crate) taps: Taps,
}

impl Counters {
    /// For the ports with these names, and `more`.
    pub(crate) fn named(names: Vec<String>, more: usize) -> Self {
        let zeros = || (0..DropReason::CODES).map(|_| AtomicU64::new(0)).collect();
        Self {
            ports: (0..=names.len() + more).map(|_| PortCounters::default()).collect(),
            names: Mutex::new(names),
            dropped: zeros(),
            to_host: zeros(),
            taps: Taps::default(),
        }
    }

    /// For so many ports that have numbers for names.
    #[cfg(test)]
    pub(crate) fn new(ports: usize) -> Self {
        Self::named((0..ports).map(|port| port.to_string()).collect(), 0)
    }

    /// How many ports there may be.
    pub(crate) fn ports_max(&self) -> usize {
        self.ports.len() - 1
    }

    /// What the configuration calls a port; of one that is gone, what it was called.
    pub(crate) fn name(&self, port: u16) -> String {
        self.names().get(usize::from(port)).map_or("?", String::as_str).to_owned()
    }

    /// The ports are called this from now on. One that is gone has an empty name.
    pub(crate) fn set_names(&self, names: impl IntoIterator<Item = String>) {
        let mut known = self.names();
        for (place, name) in names.into_iter().enumerate() {
            match known.get_mut(place) {
                Some(_) if name.is_empty() => {}
                Some(known) => *known = name,
                None => known.push(name),
            }
        }
    }

    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.names.lock()
    }

    /// The port's counters; what has no port belongs to the router itself.
    pub fn port(&self, port: u16) -> &PortCounters {
        self.ports.get(usize::from(port)).unwrap_or_else(|| &self.ports[self.ports.len() - 1])
    }

    /// Counts a packet that the router made itself.
    pub fn add_own(&self, bytes: u64) {
        self.port(thalweg_base::NO_PORT).received.add(1, bytes);
    }

    /// Counts packets dropped for a reason.
    pub fn add_dropped(&self, reason: DropReason, packets: u64) {
        self.dropped[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts a packet dropped for a reason, for captures to see.
    pub(crate) fn drop_seen(&self, reason: DropReason, seen: &Seen<'_>) {
        self.add_dropped(reason, 1);
        self.taps.dropped(reason, seen);
    }

    /// Counts packets handed to the router itself for a reason.
    pub fn add_to_host(&self, reason: DropReason, packets: u64) {
        self.to_host[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Packets dropped by reason, those that are not zero.
    pub fn dropped(&self) -> Vec<(DropReason, u64)> {
        nonzero(&self.dropped)
    }

    /// Packets handed to the router itself by reason, those that are not zero.
    pub fn to_host(&self) -> Vec<(DropReason, u64)> {
        nonzero(&self.to_host)
    }
}

fn nonzero(counts: &[AtomicU64]) -> Vec<(DropReason, u64)> {
    let count = |reason: &DropReason| counts[*reason as usize].load(Ordering::Relaxed);
    DropReason::ALL.iter().map(|reason| (*reason, count(reason))).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_port_belongs_to_the_router() {
        let counters = Counters::new(2);
        counters.port(1).received.add(3, 300);
        counters.port(7).received.add(1, 60);
        counters.port(thalweg_base::NO_PORT).received.add(1, 60);
        let received: Vec<_> = counters.ports.iter().map(|port| port.received.get()).collect();
        assert_eq!(received, [(0, 0), (3, 300), (2, 120)]);
        counters.add_dropped(DropReason::NoRoute, 2);
        assert_eq!((counters.dropped(), counters.to_host()), (vec![(DropReason::NoRoute, 2)], vec![]));
    }
}
