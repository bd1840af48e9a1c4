//! How long packets stay in the router: from the receive ring to their port's queue, whose own time is its sojourn.
//!
//! One chunk of [`ONE_IN`] is measured, by the clock that its sink has read anyway. A chunk costs a division and then,
//! rarely, a look at each packet; the counters of a lane have one writer.

use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_base::Chunk;
use thalweg_node::control::SojournView;

const ONE_IN: u64 = 64;
const BOUNDS: usize = SojournView::BOUNDS_US.len();

/// The times of a lane's packets.
#[derive(Default)]
pub(crate) struct Residence {
    /// Packets by the first bound that they kept; those that kept none come last.
    packets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

impl Residence {
    /// Takes the times of a chunk's packets that leave, unless the chunk is one that is not measured.
    pub(crate) fn add(&self, chunk: &Chunk, now_ns: u64) {
        if !chunk.sequence.is_multiple_of(ONE_IN) {
            return;
        }
        for packet in chunk.packets().iter().filter(|packet| packet.is_alive()) {
            let (packets, time_ns) =
                (u64::from(packet.wire_packets()), now_ns.saturating_sub(packet.arrival_ns));
            let kept = |bound: &u32| u64::from(*bound) * 1000 < time_ns;
            self.packets[SojournView::BOUNDS_US.partition_point(kept)].fetch_add(packets, Ordering::Relaxed);
            self.sum_ns.fetch_add(time_ns.saturating_mul(packets), Ordering::Relaxed);
        }
    }

    /// The times of all lanes together.
    pub(crate) fn view(lanes: &[Self]) -> SojournView {
        let sum = |of: &dyn Fn(&Self) -> &AtomicU64| -> u64 {
            lanes.iter().map(|lane| of(lane).load(Ordering::Relaxed)).sum()
        };
        let mut seen = 0;
        let mut within: Vec<u64> = Vec::with_capacity(BOUNDS + 1);
        for place in 0..=BOUNDS {
            seen += sum(&|lane| &lane.packets[place]);
            within.push(seen);
        }
        within.pop();
        SojournView { within, packets: seen, sum_us: sum(&|lane| &lane.sum_ns) as f64 / 1000.0 }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_base::{ChunkBuilder, DropReason, LinkType};

    use super::*;

    fn chunk(sequence: u64, arrivals_ns: &[u64]) -> Chunk {
        let mut builder = ChunkBuilder::with_capacity(4096);
        for arrival_ns in arrivals_ns {
            builder.push(builder.next_frame_offset(), 60, 60, *arrival_ns, LinkType::Ethernet, 0, 0);
        }
        builder.finish(sequence, 1, 0)
    }

    #[test]
    fn one_chunk_of_many_is_measured_and_what_was_dropped_is_not() {
        let lanes = [Residence::default(), Residence::default()];
        let now_ns = 5_000_000_000;
        // A microsecond, a little more, ten milliseconds, two seconds; and one from the future.
        let times = [1_000, 1_001, 10_000_000, 2_000_000_000];
        let mut arrivals: Vec<u64> = times.iter().map(|time| now_ns - time).collect();
        arrivals.push(now_ns + 7);
        for sequence in 0..ONE_IN {
            lanes[0].add(&chunk(sequence, &arrivals), now_ns);
        }
        let mut dropped = chunk(2 * ONE_IN, &arrivals);
        dropped.packets_mut()[0].drop_for(DropReason::NoRoute);
        lanes[1].add(&dropped, now_ns);

        let SojournView { within, packets, sum_us } = Residence::view(&lanes);
        assert_eq!(packets, 9, "five of the first, four of the other");
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
