//! The counters of a class at a port.

use hdrhistogram::Histogram;

/// Longer waits count as this: a minute.
pub const SOJOURN_NS_MAX: u64 = 60_000_000_000;

/// Counters of a class's packets. At every moment `enqueued = sent + dropped_full + dropped_managed + purged +
/// waiting_packets`.
#[derive(Clone, Debug)]
pub struct ClassCounters {
    /// Packets handed in, refused ones included.
    pub enqueued: u64,
    pub sent: u64,
    /// Bytes sent, without the line's overhead.
    pub bytes: u64,
    /// Packets refused because the queue was at its limit (`queue-full`).
    pub dropped_full: u64,
    /// Packets dropped by active queue management (`queue-managed`).
    pub dropped_managed: u64,
    /// Packets removed when the queues were emptied, for instance because the port went away.
    pub purged: u64,
    /// Packets marked as having met congestion; they are among the sent.
    pub marked: u64,
    pub waiting_packets: u64,
    pub waiting_bytes: u64,
    /// The most packets that ever waited.
    pub highest_packets: u64,
    /// The most bytes that ever waited.
    pub highest_bytes: u64,
    /// The wait of sent packets in nanoseconds, to two digits, at most [`SOJOURN_NS_MAX`].
    pub sojourn_ns: Histogram<u64>,
}

impl Default for ClassCounters {
    fn default() -> Self {
        Self {
            enqueued: 0,
            sent: 0,
            bytes: 0,
            dropped_full: 0,
            dropped_managed: 0,
            purged: 0,
            marked: 0,
            waiting_packets: 0,
            waiting_bytes: 0,
            highest_packets: 0,
            highest_bytes: 0,
            sojourn_ns: sojourn_histogram(),
        }
    }
}

impl ClassCounters {
    /// Whether every packet is accounted for.
    pub fn is_conserved(&self) -> bool {
        let gone = self.sent + self.dropped_full + self.dropped_managed + self.purged;
        self.enqueued == gone + self.waiting_packets
    }

    /// Counts a packet that was enqueued.
    #[inline]
    pub(super) fn kept(&mut self, bytes: u64) {
        self.waiting_packets += 1;
        self.waiting_bytes += bytes;
        self.highest_packets = self.highest_packets.max(self.waiting_packets);
        self.highest_bytes = self.highest_bytes.max(self.waiting_bytes);
    }

    /// Counts a packet that was removed from the queue.
    #[inline]
    pub(super) fn taken(&mut self, bytes: u64) {
        self.waiting_packets -= 1;
        self.waiting_bytes -= bytes;
    }

    /// Counts a packet that left after `sojourn_ns`.
    #[inline]
    pub(super) fn left(&mut self, bytes: u64, sojourn_ns: u64) {
        self.sent += 1;
        self.bytes += bytes;
        self.sojourn_ns.saturating_record(sojourn_ns);
    }

    /// Takes over the counters of a removed class, together with its waiting packets.
    pub(super) fn migrate_from(&mut self, other: &ClassCounters) {
        self.enqueued += other.enqueued;
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.dropped_full += other.dropped_full;
        self.dropped_managed += other.dropped_managed;
        self.purged += other.purged;
        self.marked += other.marked;
        self.waiting_packets += other.waiting_packets;
        self.waiting_bytes += other.waiting_bytes;
        self.highest_packets = self.highest_packets.max(self.waiting_packets);
        self.highest_bytes = self.highest_bytes.max(self.waiting_bytes);
        // Adding cannot fail: the histograms have the same bounds.
        let _ = self.sojourn_ns.add(&other.sojourn_ns);
    }
}

fn sojourn_histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, SOJOURN_NS_MAX, 2) {
        Ok(histogram) => histogram,
        Err(_) => unreachable!("the bounds are constants in range"),
    }
}
