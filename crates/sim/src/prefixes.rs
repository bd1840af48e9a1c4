//! How many prefixes an AS announces, and which.

use ipnet::Ipv4Net;
use thalweg_base::{IpPrefix, Prefix};

use crate::chance::Random;

/// The distribution of prefixes over ASes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixPlan {
    /// Every AS has the same number.
    Each(usize),
    /// So many in all, at ASes that chance picks: none has two before each has one.
    Total(usize),
    /// As on the Internet in 2014 and 2015: half of all ASes have one or two, one in a hundred more than 150.
    Measured,
}

/// Quantiles of the number of prefixes of an AS, from tables of 2014 and 2015. Beyond the last one, the tail
/// falls with a power that gives the measured mean of 12 and the largest AS a few thousand.
const QUANTILES: [(f64, f64); 5] = [(0.39, 1.0), (0.5, 2.0), (0.75, 4.5), (0.9, 16.0), (0.99, 150.0)];
const TAIL: f64 = 1.2;
/// The stream of chance that picks ASes.
const TOTAL: u64 = 0x746f_7461;
const PREFIXES_MAX: f64 = 4000.0;

impl PrefixPlan {
    /// The number of prefixes of each of `ases` ASes.
    pub fn counts(self, ases: usize, seed: u64) -> Vec<usize> {
        match self {
            Self::Each(count) => vec![count; ases],
            Self::Total(total) => {
                let mut order: Vec<usize> = (0..ases).collect();
                Random::of(seed, TOTAL).shuffle(&mut order);
                let mut counts = vec![0; ases];
                order.iter().cycle().take(total).for_each(|node| counts[*node] += 1);
                counts
            }
            Self::Measured => (0..ases).map(|node| measured(Random::of(seed, node as u64).share())).collect(),
        }
    }
}

/// The number at a quantile.
fn measured(share: f64) -> usize {
    let (mut low_share, mut low) = (0.0, 1.0_f64);
    for (high_share, high) in QUANTILES {
        if share <= high_share {
            let part = (share - low_share) / (high_share - low_share);
            return (low * (high / low).powf(part)).round() as usize;
        }
        (low_share, low) = (high_share, high);
    }
    (low * ((1.0 - low_share) / (1.0 - share)).powf(1.0 / TAIL)).min(PREFIXES_MAX) as usize
}

/// The prefix with this number: each is a /24, from 20.0.0.0 on.
pub fn prefix(number: usize) -> IpPrefix {
    let address = (20 << 24) + (number as u32) * 256;
    IpPrefix::V4(Prefix::from(Ipv4Net::new_assert(address.into(), 24)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_counts_have_the_quantiles_that_were_measured() {
        let mut counts = PrefixPlan::Measured.counts(40_000, 1);
        let total: usize = counts.iter().sum();
        counts.sort_unstable();
        let at = |share: f64| counts[(40_000.0 * share) as usize];
        let ones = counts.iter().filter(|count| **count == 1).count() as f64 / 40_000.0;
        assert!((0.36..0.48).contains(&ones), "{ones}");
        assert_eq!((at(0.5), at(0.9)), (2, 16));
        assert!((130..170).contains(&at(0.99)), "{}", at(0.99));
        let mean = total as f64 / 40_000.0;
        assert!((9.0..14.0).contains(&mean), "{mean}");
        let top: usize = counts[39_600..].iter().sum();
        assert!((0.35..0.55).contains(&(top as f64 / total as f64)), "{}", top as f64 / total as f64);
    }

    #[test]
    fn prefixes_follow_each_other() {
        assert_eq!(
            (prefix(0).to_string(), prefix(257).to_string()),
            ("20.0.0.0/24".into(), "20.1.1.0/24".into())
        );
        assert_eq!(PrefixPlan::Each(3).counts(2, 1), [3, 3]);
    }

    #[test]
    fn so_many_in_all_are_spread() {
        let counts = PrefixPlan::Total(20).counts(1000, 1);
        assert_eq!((counts.iter().sum::<usize>(), counts.iter().max()), (20, Some(&1)));
        assert_ne!(counts, PrefixPlan::Total(20).counts(1000, 2), "a seed decides where they are");
        let mut counts = PrefixPlan::Total(5).counts(3, 1);
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 2]);
    }
}
