//! Sampling selects the packets that a meter examines (RFC 5475, 5.2.1 systematic count-based and 5.2.2.2
//! uniform probabilistic).
//!
//! Each shard samples its own packets, so the result does not depend on which thread works on which shard.

use thalweg_base::XorShift64Star;

/// Which packets are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    #[default]
    All,
    /// Every Nth packet.
    Count {
        /// 1 samples all packets.
        interval: u32,
    },
    /// Each packet with the same probability.
    Random {
        /// The reciprocal of the probability.
        interval: u32,
        /// The seed of the generator.
        seed: u64,
    },
}

impl Sampling {
    /// One packet in this many is sampled.
    pub fn interval(self) -> u32 {
        match self {
            Self::All => 1,
            Self::Count { interval } | Self::Random { interval, .. } => interval,
        }
    }
}

/// Decides for each packet whether it is sampled.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    All,
    /// Skips `left` more packets.
    Count {
        left: u32,
        interval: u32,
    },
    Random {
        interval: u32,
        rng: XorShift64Star,
    },
}

impl Sampler {
    /// Shards begin at different offsets, so that many shards with few packets each do not sample too many.
    pub(crate) fn new(sampling: Sampling, shard: u16) -> Self {
        match sampling {
            Sampling::All | Sampling::Count { interval: 1 } | Sampling::Random { interval: 1, .. } => {
                Self::All
            }
            Sampling::Count { interval } => {
                Self::Count { left: u32::from(shard) % interval.max(1), interval }
            }
            Sampling::Random { interval, seed } => {
                let seed = thalweg_base::mix64(seed ^ u64::from(shard).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                Self::Random { interval, rng: XorShift64Star::new(seed) }
            }
        }
    }

    #[inline(always)]
    pub(crate) fn takes(&mut self) -> bool {
        match self {
            Self::All => true,
            Self::Count { left: 0, interval } => {
                *self = Self::Count { left: *interval - 1, interval: *interval };
                true
            }
            Self::Count { left, .. } => {
                *left -= 1;
                false
            }
            Self::Random { interval, rng } => rng.below(*interval) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sampler: &mut Sampler, packets: usize) -> usize {
        (0..packets).filter(|_| sampler.takes()).count()
    }

    #[test]
    fn counting_takes_exactly_one_in_so_many() {
        for interval in [1, 2, 7, 100] {
            for shard in [0, 1, 5, 250] {
                let mut sampler = Sampler::new(Sampling::Count { interval }, shard);
                for _ in 0..5 {
                    assert_eq!(taken(&mut sampler, interval as usize), 1);
                }
            }
        }
    }

    #[test]
    fn chance_takes_about_one_in_so_many_and_repeats_by_its_seed() {
        let sampling = Sampling::Random { interval: 10, seed: 3 };
        let count = taken(&mut Sampler::new(sampling, 1), 100_000);
        // Five standard deviations of a binomial distribution around 10,000.
        assert!((9_525..=10_475).contains(&count), "{count}");
        assert_eq!(count, taken(&mut Sampler::new(sampling, 1), 100_000));
        assert_ne!(count, taken(&mut Sampler::new(sampling, 2), 100_000));
    }
}
