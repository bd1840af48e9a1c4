//! Accounting: the fate of every packet. Each worker counts for itself; the sums of all workers obey the
//! conservation law `packets in = packets out + sum of drops`.

use hdrhistogram::Histogram;
use thalweg_base::{Batch, DropReason, NO_CLASS, Packet};

/// The Ethernet header of every outgoing packet.
const ETHERNET_HEADER: u64 = 14;
/// Residence times are recorded to about one percent, up to a minute.
const RESIDENCE_NS_MAX: u64 = 60_000_000_000;

/// The most ports and classes that are tallied per batch: with more, adding up the tallies would cost more than
/// they save.
const TALLIED: usize = 16;
/// A tally has packets above this bit and bytes below: 256 packets of 2^32 bytes are fewer than 2^41.
const BYTES_BITS: u32 = 48;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;
const ONE_PACKET: u64 = 1 << BYTES_BITS;

/// What a batch adds to the counters, in few words. Counting each packet in memory would make it wait for the write
/// of the packet before. For the same reason there are two tallies, which packets use in turn.
#[derive(Clone, Copy, Default)]
struct Tally {
    ports_in: [u64; TALLIED],
    ports_out: [u64; TALLIED],
    classes: [u64; TALLIED],
}

impl Tally {
    fn add(&mut self, other: &Self) {
        let fields = [
            (&mut self.ports_in, &other.ports_in),
            (&mut self.ports_out, &other.ports_out),
            (&mut self.classes, &other.classes),
        ];
        for (own, other) in fields {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }
}

/// The index in a tally. Numbers past the end are counted in the last entry, with everything unknown.
#[inline(always)]
fn slot(number: u16) -> usize {
    usize::from(number).min(TALLIED - 1)
}

/// Packets and bytes of a port, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Packets that arrived.
    pub packets_in: u64,
    /// Bytes on the wire.
    pub bytes_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Bytes, Ethernet header included.
    pub bytes_out: u64,
    /// Packets that arrived here and were dropped.
    pub dropped: u64,
}

/// The packets of a class, and how long they stayed.
#[derive(Clone, Debug)]
pub struct ClassCounts {
    /// Packets forwarded.
    pub packets: u64,
    /// Bytes of forwarded packets, Ethernet header included.
    pub bytes: u64,
    /// Packets dropped after they were classified.
    pub dropped: u64,
    /// Time in nanoseconds from the moment when the model accepted the chunk to the packet's departure.
    pub residence_ns: Histogram<u64>,
}

/// One worker's counters.
#[derive(Clone, Debug)]
pub struct Account {
    pub packets_in: u64,
    pub packets_out: u64,
    /// Indexed by reason code.
    pub dropped: [u64; DropReason::CODES],
    /// Indexed by port; the last entry is for packets of unknown ports.
    pub ports: Vec<PortCounts>,
    /// Indexed by class.
    pub classes: Vec<ClassCounts>,
}

impl Account {
    /// Counters at zero for this many ports and classes.
    pub fn new(ports: usize, classes: usize) -> Self {
        let class = ClassCounts { packets: 0, bytes: 0, dropped: 0, residence_ns: residence_histogram() };
        Self {
            packets_in: 0,
            packets_out: 0,
            dropped: [0; DropReason::CODES],
            ports: vec![PortCounts::default(); ports + 1],
            classes: vec![class; classes.max(1)],
        }
    }

    /// Counts packets that were dropped before scheduling.
    pub fn count_dropped(&mut self, packets: &[Packet]) {
        for packet in packets {
            self.count_arrival(packet);
            self.count_drop(packet);
        }
    }

    /// Counts a batch at its end: forwarded packets with `residence_ns`, the others by reason.
    pub fn count(&mut self, batch: &Batch<'_>, residence_ns: u64) {
        let value = residence_ns.clamp(1, RESIDENCE_NS_MAX);
        if self.ports.len() > TALLIED || self.classes.len() > TALLIED {
            batch.packets().iter().for_each(|packet| self.count_one(packet, value));
            return;
        }
        match self.classes.len() {
            1 => self.count_in_tallies::<true>(batch.packets(), value),
            _ => self.count_in_tallies::<false>(batch.packets(), value),
        }
    }

    /// Counts packets by way of tallies. With one class, the packets that leave are its packets.
    fn count_in_tallies<const ONE_CLASS: bool>(&mut self, packets: &[Packet], residence_ns: u64) {
        let [mut even, mut odd] = [Tally::default(); 2];
        let (pairs, last) = packets.as_chunks::<2>();
        for [one, other] in pairs {
            self.tally::<ONE_CLASS>(&mut even, one, residence_ns);
            self.tally::<ONE_CLASS>(&mut odd, other, residence_ns);
        }
        last.iter().for_each(|packet| self.tally::<ONE_CLASS>(&mut even, packet, residence_ns));
        even.add(&odd);
        if ONE_CLASS {
            even.classes[0] = even.ports_out.iter().sum();
        }
        self.count_tally(&even, residence_ns);
    }

    #[inline(always)]
    fn tally<const ONE_CLASS: bool>(&mut self, tally: &mut Tally, packet: &Packet, residence_ns: u64) {
        if packet.segment_bytes().is_some() {
            return self.count_merged(packet, residence_ns);
        }
        tally.ports_in[slot(packet.port_in)] += ONE_PACKET + u64::from(packet.wire_len);
        if packet.is_alive() {
            let leaves = ONE_PACKET + ETHERNET_HEADER + u64::from(packet.ip_len);
            tally.ports_out[slot(packet.port_out)] += leaves;
            if !ONE_CLASS {
                tally.classes[slot(packet.class.into())] += leaves;
            }
        } else {
            self.count_drop(packet);
        }
    }

    /// A frame that merges several is more packets than a tally has room for.
    #[cold]
    fn count_merged(&mut self, packet: &Packet, residence_ns: u64) {
        self.count_one(packet, residence_ns);
    }

    fn count_one(&mut self, packet: &Packet, residence_ns: u64) {
        self.count_arrival(packet);
        match packet.is_alive() {
            true => self.count_departure(packet, residence_ns),
            false => self.count_drop(packet),
        }
    }

    fn count_tally(&mut self, tally: &Tally, residence_ns: u64) {
        let last = self.ports.len() - 1;
        for (slot, (&came, &left)) in tally.ports_in.iter().zip(&tally.ports_out).enumerate() {
            let port = &mut self.ports[slot.min(last)];
            port.packets_in += came >> BYTES_BITS;
            port.bytes_in += came & BYTES_MASK;
            port.packets_out += left >> BYTES_BITS;
            port.bytes_out += left & BYTES_MASK;
            self.packets_in += came >> BYTES_BITS;
            self.packets_out += left >> BYTES_BITS;
        }
        let last = self.classes.len() - 1;
        for (slot, &left) in tally.classes.iter().enumerate().filter(|(_, left)| **left > 0) {
            let class = &mut self.classes[slot.min(last)];
            class.packets += left >> BYTES_BITS;
            class.bytes += left & BYTES_MASK;
            class.residence_ns.saturating_record_n(residence_ns, left >> BYTES_BITS);
        }
    }

    fn count_departure(&mut self, packet: &Packet, residence_ns: u64) {
        let packets = u64::from(packet.wire_packets());
        let bytes = packets * ETHERNET_HEADER + packet.wire_ip_bytes();
        self.packets_out += packets;
        let last = self.ports.len() - 1;
        let port = &mut self.ports[usize::from(packet.port_out).min(last)];
        port.packets_out += packets;
        port.bytes_out += bytes;
        let last = self.classes.len() - 1;
        let class = &mut self.classes[usize::from(packet.class).min(last)];
        class.packets += packets;
        class.bytes += bytes;
        class.residence_ns.saturating_record_n(residence_ns, packets);
    }

    #[inline(always)]
    fn count_arrival(&mut self, packet: &Packet) {
        let packets = u64::from(packet.wire_packets());
        self.packets_in += packets;
        let last = self.ports.len() - 1;
        let port = &mut self.ports[usize::from(packet.port_in).min(last)];
        port.packets_in += packets;
        port.bytes_in += u64::from(packet.wire_len);
    }

    #[inline(never)]
    fn count_drop(&mut self, packet: &Packet) {
        let Some(reason) = packet.drop_reason() else { return };
        let packets = u64::from(packet.wire_packets());
        self.dropped[reason as usize] += packets;
        let last = self.ports.len() - 1;
        self.ports[usize::from(packet.port_in).min(last)].dropped += packets;
        if packet.class != NO_CLASS {
            let last = self.classes.len() - 1;
            self.classes[usize::from(packet.class).min(last)].dropped += packets;
        }
    }

    /// Adds another worker's counters.
    pub fn merge(&mut self, other: &Account) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        for (a, b) in self.dropped.iter_mut().zip(&other.dropped) {
            *a += b;
        }
        for (a, b) in self.ports.iter_mut().zip(&other.ports) {
            a.packets_in += b.packets_in;
            a.bytes_in += b.bytes_in;
            a.packets_out += b.packets_out;
            a.bytes_out += b.bytes_out;
            a.dropped += b.dropped;
        }
        for (a, b) in self.classes.iter_mut().zip(&other.classes) {
            a.packets += b.packets;
            a.bytes += b.bytes;
            a.dropped += b.dropped;
            // Both histograms have the same bounds, so adding cannot fail; if it did, only the percentiles would
            // lack these packets.
            let _ = a.residence_ns.add(&b.residence_ns);
        }
    }

    /// Sum of all drops.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

fn residence_histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, RESIDENCE_NS_MAX, 2) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("constant bounds are valid: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::{ChunkBuilder, LinkType};

    #[test]
    fn every_packet_is_booked_once_and_merging_adds_up() {
        let mut builder = ChunkBuilder::with_capacity(1024);
        for _ in 0..5 {
            builder.push(builder.next_frame_offset(), 40, 60, 0, LinkType::RawIp, 1, 0);
        }
        let mut chunk = builder.finish(0, 1, 0);
        chunk.packets_mut()[1].drop_for(DropReason::NotIp);
        chunk.packets_mut()[2].class = 0;
        chunk.packets_mut()[2].drop_for(DropReason::TtlExpired);
        chunk.packets_mut()[2].drop_for(DropReason::NoRoute);
        chunk.packets_mut()[3].port_out = 0;
        chunk.packets_mut()[3].class = 0;
        chunk.schedule(1, |p| (p.drop_reason() != Some(DropReason::NotIp)).then_some(0), &mut Vec::new());

        let mut a = Account::new(2, 1);
        a.count_dropped(&chunk.packets()[chunk.live_len()..]);
        let mut b = Account::new(2, 1);
        b.count(&chunk.batch(0), 1500);
        a.merge(&b);
        assert_eq!((a.packets_in, a.packets_out, a.dropped_total()), (5, 3, 2));
        assert_eq!(a.dropped[DropReason::TtlExpired as usize], 1);
        assert_eq!(a.dropped[DropReason::NotIp as usize], 1);
        assert_eq!(a.ports[1].packets_in, 5);
        assert_eq!((a.ports[1].dropped, a.classes[0].dropped), (2, 1));
        assert_eq!(a.ports[1].bytes_in, 300);
        assert_eq!(a.ports[0].packets_out, 1);
        let p50 = a.classes[0].residence_ns.value_at_quantile(0.5);
        assert!((1485..=1515).contains(&p50), "{p50}");
    }

    /// A tally and counting one by one give the same sums.
    #[test]
    fn tallies_come_to_what_packets_add_up_to() {
        let mut builder = ChunkBuilder::with_capacity(100_000);
        let mut rng = thalweg_base::XorShift64Star::new(5);
        for _ in 0..501 {
            let wire_len = if rng.below(9) == 0 { u32::MAX } else { 60 + rng.below(1500) };
            let port_in = [0, 1, 2, thalweg_base::UNKNOWN_PORT][rng.below(4) as usize];
            builder.push(builder.next_frame_offset(), 40, wire_len, 0, LinkType::RawIp, port_in, 0);
        }
        let mut chunk = builder.finish(0, 1, 0);
        for packet in chunk.packets_mut() {
            packet.port_out = rng.below(3) as u16;
            packet.class = rng.below(2) as u8;
            packet.ip_len = 20 + rng.below(65_000);
            if rng.below(5) == 0 {
                packet.drop_for(DropReason::TtlExpired);
            }
        }
        let (mut few, mut many) = (Account::new(3, 2), Account::new(TALLIED + 3, TALLIED + 3));
        for k in 0..chunk.batch_count() {
            few.count(&chunk.batch(k), 1500);
            many.count(&chunk.batch(k), 1500);
        }
        let sums = |a: &Account| (a.packets_in, a.packets_out, a.dropped);
        assert_eq!(sums(&few), sums(&many));
        assert_eq!(few.ports[..3], many.ports[..3]);
        assert_eq!(few.ports.last(), many.ports.last());
        for (few, many) in few.classes.iter().zip(&many.classes) {
            assert_eq!((few.packets, few.bytes, few.dropped), (many.packets, many.bytes, many.dropped));
            assert_eq!(few.residence_ns, many.residence_ns);
            assert_eq!(few.residence_ns.len(), few.packets);
        }
    }
}
