//! Counters of packets and ports, updated while packets pass.
//!
//! The sink sums over a chunk before it adds to the shared counters, so atomics cost per chunk, not per packet.
//! Each packet that a driver received, or that the router made itself (answers, errors, ARP and ND requests, frames
//! from mirrors, each fragment but the first), is in exactly one place:
//!
//! ```text
//! received + own = sent + queued + waiting for a neighbor + to the router itself + dropped{reason} + in flight
//! ```
//!
//! Packets in stages and in the queues to the host thread are in flight; without traffic there are none. A packet
//! that leaves the fast path is counted when the host thread has decided: as for the router itself (ARP, Neighbor
//! Discovery, what it answered, what the mirror took), as dropped for the punt's reason, or as sent.

use parking_lot::{Mutex, MutexGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::DropReason;

use crate::capture::{Seen, Taps};
use crate::residence::Residence;

/// A count of packets and of their bytes.
#[derive(Debug, Default)]
pub struct Traffic {
    pub packets: AtomicU64,
    /// Bytes of whole frames.
    pub bytes: AtomicU64,
}

impl Traffic {
    /// Adds packets and their bytes.
    pub fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets and bytes so far.
    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Counters of one port.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Packets that arrived and passed the stages; for the router itself, those it made.
    pub received: Traffic,
    /// Frames that the port's driver took.
    pub sent: Traffic,
    /// Packets that arrived here and were for the router itself.
    pub to_host: Traffic,
    /// Packets that arrived here and were dropped.
    pub dropped: Traffic,
    /// How long packets that left here stayed; made for the first.
    pub(crate) residence: OnceLock<Box<Residence>>,
}

/// Ports that reloads may add. A port that returns under its name gets its number back, and counts once.
pub(crate) const ADDED_MAX: usize = 4096;

/// A router's counters.
#[derive(Debug)]
pub struct Counters {
    /// By port, with room for ports that reloads add; the last is for packets that the router itself injects.
    /// Counters of removed ports stay, because the sums include their packets.
    pub ports: Vec<PortCounters>,
    names: Mutex<Vec<String>>,
    dropped: Vec<AtomicU64>,
    to_host: Vec<AtomicU64>,
    /// Captures tap packets where they are counted.
    pub(crate) taps: Taps,
}

impl Counters {
    /// For ports with these names, and room for `more`.
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

    #[cfg(test)]
    pub(crate) fn new(ports: usize) -> Self {
        Self::named((0..ports).map(|port| port.to_string()).collect(), 0)
    }

    pub(crate) fn ports_max(&self) -> usize {
        self.ports.len() - 1
    }

    /// A port's name in the configuration; a removed port keeps its last name.
    pub(crate) fn name(&self, port: u16) -> String {
        self.names().get(usize::from(port)).map_or("?", String::as_str).to_owned()
    }

    /// Sets the names of all ports. An empty name marks a removed port, and leaves its last name.
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

    /// A port's counters; a number without a port gives those of the router itself.
    pub fn port(&self, port: u16) -> &PortCounters {
        self.ports.get(usize::from(port)).unwrap_or_else(|| &self.ports[self.ports.len() - 1])
    }

    /// Counts a packet that the router made itself.
    pub fn add_own(&self, bytes: u64) {
        self.port(thalweg_base::NO_PORT).received.add(1, bytes);
    }

    /// Counts dropped packets.
    pub fn add_dropped(&self, reason: DropReason, packets: u64) {
        self.dropped[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts a dropped packet and shows it to captures.
    pub(crate) fn drop_seen(&self, reason: DropReason, seen: &Seen<'_>) {
        self.add_dropped(reason, 1);
        self.taps.dropped(reason, seen);
    }

    /// Counts packets handed to the router itself.
    pub fn add_to_host(&self, reason: DropReason, packets: u64) {
        self.to_host[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Dropped packets by reason, without zeros.
    pub fn dropped(&self) -> Vec<(DropReason, u64)> {
        nonzero(&self.dropped)
    }

    /// Packets handed to the router itself by reason, without zeros.
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
