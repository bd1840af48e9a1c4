//! Sampling: which packets a meter looks at (RFC 5475, 5.2.1 systematic count-based and 5.2.2.2 uniform probabilistic).
//!
//! Each shard samples what it is given by itself, so what is sampled does not depend on who works on which shard.

use thalweg_base::XorShift64Star;

/// Which packets are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    #[default]
    All,
    /// Every so-many-th.
    Count {
        /// One in so many.
        interval: u32,
    },
    /// Each with the same chance, by a generator with this seed.
    Random {
        /// One in so many on average.
        interval: u32,
        /// Of the generator.
        seed: u64,
    },
}

impl Sampling {
    /// One packet in so many.
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
    /// So many more are passed over, of so many each time.
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
    /// Shards begin at different places, so that many shards with few packets each do not sample too many.
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

    /// Whether the next packet is sampled.
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
