//! The free public ports of one shard: one bit each, in bitmaps of one protocol, address and parity. A search starts
//! at a port chosen by the session's hash and tests 64 ports at a time, so the cost does not grow with the ports in
//! use (a full bitmap is recognized by its count).

use super::config::{NatConfig, NatProtocol};
use super::layout::Layout;
use std::ops::Range;

/// Free ports of one shard. Takes `bitmap_ports / 8` bytes per bitmap: 128 bytes with 64 shards.
#[derive(Clone, Debug)]
pub(crate) struct PortPool {
    free: Box<[u64]>,
    counts: Box<[u32]>,
    bitmap_words: usize,
}

impl PortPool {
    /// All ports of the range that `shard` owns, except forwarded ones.
    pub(crate) fn new(layout: &Layout, shard: u16, config: &NatConfig) -> Self {
        let bitmap_words = layout.bitmap_ports() / 64;
        let mut pool = Self {
            free: vec![0; layout.bitmaps() * bitmap_words].into_boxed_slice(),
            counts: vec![0; layout.bitmaps()].into_boxed_slice(),
            bitmap_words,
        };
        // The bitmaps of one parity start out equal, so one is computed and copied.
        for parity in 0..2 {
            let mut words = vec![0u64; bitmap_words];
            let mut count = 0;
            for place in layout.bitmap_places(&config.port_range) {
                if config.port_range.contains(&layout.bitmap_port(shard, parity, place)) {
                    words[place / 64] |= 1 << (place % 64);
                    count += 1;
                }
            }
            for protocol in NatProtocol::ALL {
                for address in 0..layout.addresses.len() {
                    let bitmap = layout.bitmap(protocol, address, parity);
                    pool.free[bitmap * bitmap_words..][..bitmap_words].copy_from_slice(&words);
                    pool.counts[bitmap] = count;
                }
            }
        }
        for f in config.each_forward().filter(|f| layout.port_shard(f.public_port) == shard) {
            let bitmap = layout.bitmap(f.protocol, f.public_address, f.public_port & 1);
            pool.take(bitmap, layout.bitmap_place(f.public_port));
        }
        pool
    }

    /// Takes a port if it is free.
    pub(crate) fn take(&mut self, bitmap: usize, place: usize) -> bool {
        let word = &mut self.free[bitmap * self.bitmap_words + place / 64];
        let bit = 1 << (place % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.counts[bitmap] -= 1;
        true
    }

    /// Takes the first free port of a bitmap at or after `start`, with wraparound.
    pub(crate) fn take_from(&mut self, bitmap: usize, start: usize) -> Option<usize> {
        if self.counts[bitmap] == 0 {
            return None;
        }
        let words = &self.free[bitmap * self.bitmap_words..][..self.bitmap_words];
        let first = start / 64 % self.bitmap_words;
        let not_before = u64::MAX << (start % 64);
        let found = |word: usize, mask: u64| {
            let bits = words[word] & mask;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        };
        let place = found(first, not_before)
            .or_else(|| (1..self.bitmap_words).find_map(|n| found((first + n) % self.bitmap_words, u64::MAX)))
            .or_else(|| found(first, !not_before))?;
        self.take(bitmap, place).then_some(place)
    }

    /// Takes the first free port of `places` at or after `start`, with wraparound.
    pub(crate) fn take_within(&mut self, bitmap: usize, places: Range<usize>, start: usize) -> Option<usize> {
        if self.counts[bitmap] == 0 {
            return None;
        }
        let words = &self.free[bitmap * self.bitmap_words..][..self.bitmap_words];
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
        self.take(bitmap, place).then_some(place)
    }

    /// The number of free ports in a bitmap.
    pub(crate) fn free_in(&self, bitmap: usize) -> u32 {
        self.counts[bitmap]
    }

    pub(crate) fn release(&mut self, bitmap: usize, place: usize) {
        let word = &mut self.free[bitmap * self.bitmap_words + place / 64];
        debug_assert!(*word & 1 << (place % 64) == 0, "port released twice");
        *word |= 1 << (place % 64);
        self.counts[bitmap] += 1;
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
        let bitmap = layout.bitmap(NatProtocol::Tcp, 0, 1);
        // Port 5 * 2 + 1 = 11 at index 0, then every 256: indexes 0..=3 are below 1024.
        let expected: Vec<usize> = (100..256).chain(4..100).collect();
        let found: Vec<usize> = std::iter::from_fn(|| pool.take_from(bitmap, 100)).collect();
        assert_eq!(found, expected);
        pool.release(bitmap, 77);
        assert_eq!(pool.take_from(bitmap, 200), Some(77));
        assert_eq!(pool.take_from(bitmap, 77), None);
        // Within a range: neither before nor after it, with wraparound, across words.
        for place in [40, 60, 63, 64, 70, 71] {
            pool.release(bitmap, place);
        }
        let within: Vec<usize> = std::iter::from_fn(|| pool.take_within(bitmap, 48..71, 62)).collect();
        assert_eq!(within, [63, 64, 70, 60]);
        assert_eq!(pool.take_from(bitmap, 0), Some(40));
    }
}
