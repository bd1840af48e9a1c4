//! How long packets stay in the router: from the receive ring to the queue of the port by which they leave, whose own
//! time is its sojourn.
//!
//! One chunk of [`ONE_IN`] is measured, by the clock that its sink has read anyway. A chunk costs a division and then,
//! rarely, a look at each packet; so it matters little that lanes share a port's counters.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::Chunk;
use thalweg_node::control::SojournView;

const ONE_IN: u64 = 64;
const BOUNDS: usize = SojournView::BOUNDS_US.len();

/// The times of packets that left by a port.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    /// Packets by the first bound that they kept; those that kept none come last.
    packets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// Takes the times of a chunk's packets that leave, unless the chunk is one that is not measured. `of` is where a port
/// has its times.
pub(crate) fn measure<'c>(chunk: &Chunk, now_ns: u64, of: impl Fn(u16) -> &'c OnceLock<Box<Residence>>) {
    if !chunk.sequence.is_multiple_of(ONE_IN) {
        return;
    }
    for packet in chunk.packets().iter().filter(|packet| packet.is_alive()) {
        let residence = of(packet.port_out).get_or_init(Box::default);
        residence.add(u64::from(packet.wire_packets()), now_ns.saturating_sub(packet.arrival_ns));
    }
}

impl Residence {
    fn add(&self, packets: u64, time_ns: u64) {
        let kept = |bound: &u32| u64::from(*bound) * 1000 < time_ns;
        self.packets[SojournView::BOUNDS_US.partition_point(kept)].fetch_add(packets, Ordering::Relaxed);
        self.sum_ns.fetch_add(time_ns.saturating_mul(packets), Ordering::Relaxed);
    }

    /// The times of some ports together.
    pub(crate) fn view<'r>(ports: impl Iterator<Item = &'r Self>) -> SojournView {
        let mut sum = SojournView { within: vec![0; BOUNDS], ..SojournView::default() };
        let mut sum_ns = 0;
        for Self { packets, sum_ns: of_port } in ports {
            let mut seen = 0;
            for (bound, packets) in packets.iter().enumerate() {
                seen += packets.load(Ordering::Relaxed);
                sum.within.get_mut(bound).into_iter().for_each(|within| *within += seen);
            }
            sum.packets += seen;
            sum_ns += of_port.load(Ordering::Relaxed);
        }
        SojournView { sum_us: sum_ns as f64 / 1000.0, ..sum }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_base::{ChunkBuilder, DropReason, LinkType};

    use super::*;
    use crate::counters::Counters;

    /// Packets that leave by a port.
    fn chunk(sequence: u64, port: u16, arrivals_ns: &[u64]) -> Chunk {
        let mut builder = ChunkBuilder::with_capacity(4096);
        for arrival_ns in arrivals_ns {
            builder.push(builder.next_frame_offset(), 60, 60, *arrival_ns, LinkType::Ethernet, 0, 0);
        }
        let mut chunk = builder.finish(sequence, 1, 0);
        chunk.packets_mut().iter_mut().for_each(|packet| packet.port_out = port);
        chunk
    }

    #[test]
    fn one_chunk_of_many_is_measured_and_what_was_dropped_is_not() {
        let counters = Counters::new(3);
        let now_ns = 5_000_000_000;
        // A microsecond, a little more, ten milliseconds, two seconds; and one from the future.
        let times = [1_000, 1_001, 10_000_000, 2_000_000_000];
        let mut arrivals: Vec<u64> = times.iter().map(|time| now_ns - time).collect();
        arrivals.push(now_ns + 7);
        for sequence in 0..ONE_IN {
            measure(&chunk(sequence, 0, &arrivals), now_ns, |port| &counters.port(port).residence);
        }
        let mut dropped = chunk(2 * ONE_IN, 2, &arrivals);
        dropped.packets_mut()[0].drop_for(DropReason::NoRoute);
        measure(&dropped, now_ns, |port| &counters.port(port).residence);

        let of = |ports: &[u16]| {
            Residence::view(
                ports.iter().filter_map(|port| counters.port(*port).residence.get().map(|each| &**each)),
            )
        };
        assert_eq!([0, 1, 2].map(|port| of(&[port]).packets), [5, 0, 4]);
        assert_eq!(of(&[1]).within, vec![0; BOUNDS], "all bounds from the start");
        let SojournView { within, packets, sum_us } = of(&[0, 1, 2]);
        assert_eq!(packets, 9);
        let sum_ns = 2 * times.iter().sum::<u64>() - times[0];
        assert!((sum_us - sum_ns as f64 / 1000.0).abs() < 0.001, "{sum_us}");
        let expected = SojournView::BOUNDS_US.map(|bound| {
            let counts = |time: &u64| *time <= u64::from(bound) * 1000;
            let all = times.iter().chain(&[0]).filter(|time| counts(time)).count() as u64;
            2 * all - u64::from(counts(&times[0]))
        });
        assert_eq!(within, expected);
    }
}
