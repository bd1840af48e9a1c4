//! The public ports of one shard that are free: one bit each, in lanes of one protocol, address and
//! parity. A port is found 64 at a time, from a place the session's hash names, so the cost does not
//! grow with the ports in use (a full lane is known by its count).

use super::config::{NatConfig, NatProtocol};
use super::layout::Layout;
use std::ops::Range;

/// Free ports of one shard. `lane_ports / 8` bytes a lane: 128 bytes at 64 shards.
#[derive(Clone, Debug)]
pub(crate) struct PortPool {
    free: Box<[u64]>,
    counts: Box<[u32]>,
    lane_words: usize,
}

impl PortPool {
    /// All ports of the range that `shard` owns, less those that are forwarded.
    pub(crate) fn new(layout: &Layout, shard: u16, config: &NatConfig) -> Self {
        let lane_words = layout.lane_ports() / 64;
        let mut pool = Self {
            free: vec![0; layout.lanes() * lane_words].into_boxed_slice(),
            counts: vec![0; layout.lanes()].into_boxed_slice(),
            lane_words,
        };
        // The lanes of one parity begin alike, so one is drawn up and the others are copies of it.
        for parity in 0..2 {
            let mut words = vec![0u64; lane_words];
            let mut count = 0;
            for place in layout.lane_places(&config.port_range) {
                if config.port_range.contains(&layout.lane_port(shard, parity, place)) {
                    words[place / 64] |= 1 << (place % 64);
                    count += 1;
                }
            }
            for protocol in NatProtocol::ALL {
                for address in 0..layout.addresses.len() {
                    let lane = layout.lane(protocol, address, parity);
                    pool.free[lane * lane_words..][..lane_words].copy_from_slice(&words);
                    pool.counts[lane] = count;
                }
            }
        }
        for f in config.each_forward().filter(|f| layout.port_shard(f.public_port) == shard) {
            let lane = layout.lane(f.protocol, f.public_address, f.public_port & 1);
            pool.take(lane, layout.lane_place(f.public_port));
        }
        pool
    }

    /// Takes a port if it is free.
    pub(crate) fn take(&mut self, lane: usize, place: usize) -> bool {
        let word = &mut self.free[lane * self.lane_words + place / 64];
        let bit = 1 << (place % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.counts[lane] -= 1;
        true
    }

    /// Takes the first free port of a lane at or after `start`, around the end.
    pub(crate) fn take_from(&mut self, lane: usize, start: usize) -> Option<usize> {
        if self.counts[lane] == 0 {
            return None;
        }
        let words = &self.free[lane * self.lane_words..][..self.lane_words];
        let first = start / 64 % self.lane_words;
        let not_before = u64::MAX << (start % 64);
        let found = |word: usize, mask: u64| {
            let bits = words[word] & mask;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        };
        let place = found(first, not_before)
            .or_else(|| (1..self.lane_words).find_map(|n| found((first + n) % self.lane_words, u64::MAX)))
            .or_else(|| found(first, !not_before))?;
        self.take(lane, place).then_some(place)
    }

    /// Takes the first free port of `places` at or after `start`, around their end.
    pub(crate) fn take_within(&mut self, lane: usize, places: Range<usize>, start: usize) -> Option<usize> {
        if self.counts[lane] == 0 {
            return None;
        }
        let words = &self.free[lane * self.lane_words..][..self.lane_words];
        let first_of = |range: Range<usize>| {
            let mut at = range.start;
            while at < range.end {
                let bits = words[at / 64] >> (at % 64);
                let found = at + bits.trailing_zeros() as usize;
                if bits != 0 {
                    return (found < range.end).then_some(found);
                }
                at = (at / 64 + 1) * 64;
            }
            None
        };
        let place = first_of(start..places.end).or_else(|| first_of(places.start..start))?;
        self.take(lane, place).then_some(place)
    }

    /// Gives a port back.
    pub(crate) fn release(&mut self, lane: usize, place: usize) {
        let word = &mut self.free[lane * self.lane_words + place / 64];
        debug_assert!(*word & 1 << (place % 64) == 0, "port released twice");
        *word |= 1 << (place % 64);
        self.counts[lane] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_port_once_and_in_order_from_the_start() {
        let config = NatConfig {
            shards: 128,
            public_addresses: vec![[192, 0, 2, 1].into()],
            port_range: 1024..=65535,
            ..NatConfig::default()
        };
        let layout = Layout::new(&config);
        let mut pool = PortPool::new(&layout, 5, &config);
        let lane = layout.lane(NatProtocol::Tcp, 0, 1);
        // Port 5 * 2 + 1 = 11 at place 0, then every 256: places 0..=3 are below 1024.
        let expected: Vec<usize> = (100..256).chain(4..100).collect();
        let found: Vec<usize> = std::iter::from_fn(|| pool.take_from(lane, 100)).collect();
        assert_eq!(found, expected);
        pool.release(lane, 77);
        assert_eq!(pool.take_from(lane, 200), Some(77));
        assert_eq!(pool.take_from(lane, 77), None);
        // Within a range: neither before nor behind it, around its end, over the edge of a word.
        for place in [40, 60, 63, 64, 70, 71] {
            pool.release(lane, place);
        }
        let within: Vec<usize> = std::iter::from_fn(|| pool.take_within(lane, 48..71, 62)).collect();
        assert_eq!(within, [63, 64, 70, 60]);
        assert_eq!(pool.take_from(lane, 0), Some(40));
    }
}
