//! Percentiles of latency.
//!
//! Samples are kept one by one: a trial tags tens of thousands of frames at most, so there is no need for a histogram
//! and its rounding. Percentiles are by nearest rank: each is a latency that some frame had.

use crate::stats::Summary;
use serde::Serialize;

/// Samples a trial keeps; what comes later is counted and left out.
pub const SAMPLES_MAX: usize = 1 << 20;

/// How long frames were under way, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How many frames were timed.
    pub samples: usize,
    /// The shortest time.
    pub min_ns: u64,
    /// Half of the frames were faster.
    pub p50_ns: u64,
    /// Nine in ten were.
    pub p90_ns: u64,
    /// 99 in a hundred were.
    pub p99_ns: u64,
    /// 999 in a thousand were.
    pub p999_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Percentiles {
    /// Of samples in any order; `None` without any.
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let (&min_ns, &max_ns) = (samples.first()?, samples.last()?);
        let rank = |per_mille: usize| {
            let rank = (samples.len() * per_mille).div_ceil(1000).max(1);
            samples.get(rank - 1).copied().unwrap_or(max_ns)
        };
        Some(Self {
            samples: samples.len(),
            min_ns,
            p50_ns: rank(500),
            p90_ns: rank(900),
            p99_ns: rank(990),
            p999_ns: rank(999),
            max_ns,
        })
    }

    /// Each percentile the median of several rounds'; `None` of none.
    pub fn median_of(rounds: &[Self]) -> Option<Self> {
        let of = |value: fn(&Self) -> u64| {
            let values: Vec<f64> = rounds.iter().map(|round| value(round) as f64).collect();
            Summary::of(&values).map(|summary| summary.median as u64)
        };
        Some(Self {
            samples: rounds.iter().map(|round| round.samples).sum(),
            min_ns: of(|p| p.min_ns)?,
            p50_ns: of(|p| p.p50_ns)?,
            p90_ns: of(|p| p.p90_ns)?,
            p99_ns: of(|p| p.p99_ns)?,
            p999_ns: of(|p| p.p999_ns)?,
            max_ns: of(|p| p.max_ns)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        let of = |samples: Vec<u64>| Percentiles::of(samples).unwrap();
        let thousand = of((1..=1000).rev().collect());
        assert_eq!((thousand.min_ns, thousand.p50_ns, thousand.p90_ns), (1, 500, 900));
        assert_eq!((thousand.p99_ns, thousand.p999_ns, thousand.max_ns), (990, 999, 1000));
        let one = of(vec![7]);
        assert_eq!((one.samples, one.min_ns, one.p50_ns, one.p999_ns, one.max_ns), (1, 7, 7, 7, 7));
        assert_eq!(of(vec![4, 1]).p50_ns, 1, "nearest rank: the first of two");
        assert_eq!(Percentiles::of(Vec::new()), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_in_order_and_are_samples(samples in prop::collection::vec(any::<u64>(), 1..300)) {
            let p = Percentiles::of(samples.clone()).unwrap();
            let all = [p.min_ns, p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.max_ns];
            prop_assert!(all.is_sorted());
            prop_assert!(all.iter().all(|ns| samples.contains(ns)));
            let at_most = samples.iter().filter(|s| **s <= p.p90_ns).count();
            prop_assert!(at_most * 10 >= samples.len() * 9);
        }
    }
}
