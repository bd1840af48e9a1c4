//! Simple statistics for few measurements: medians and ranges, and a seeded shuffle of the run order.
//!
//! With five runs on a machine that others use too, a mean mostly reports the worst of them. Results give the
//! median and the whole range, smallest to largest: it hides nothing and needs no assumption about a distribution.
//! Two results whose ranges overlap are not different.

use serde::Serialize;
use thalweg_base::XorShift64Star;

/// The distribution of a few measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub count: usize,
    pub min: f64,
    pub lower_quartile: f64,
    pub median: f64,
    pub upper_quartile: f64,
    pub max: f64,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none or one is not finite.
    pub fn of(values: &[f64]) -> Option<Summary> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Summary {
            count: sorted.len(),
            min: sorted[0],
            lower_quartile: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper_quartile: quantile(&sorted, 0.75),
            max: sorted[sorted.len() - 1],
        })
    }

    /// Largest minus smallest, as a share of the median; 0 for a median of 0.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median.abs() }
    }

    /// The same measurements in another unit. `factor` must be positive.
    pub fn scaled(&self, factor: f64) -> Summary {
        Summary {
            count: self.count,
            min: self.min * factor,
            lower_quartile: self.lower_quartile * factor,
            median: self.median * factor,
            upper_quartile: self.upper_quartile * factor,
            max: self.max * factor,
        }
    }
}

/// The value a share `p` of the way through sorted values, interpolated between neighbors (type 7 of
/// Hyndman and Fan, "Sample quantiles in statistical packages", 1996). `sorted` must not be empty.
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let place = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let part = place - below as f64;
    // Rounding must not lead outside the two neighbors, or quartiles could come out of order.
    (sorted[below] * (1.0 - part) + sorted[above] * part).clamp(sorted[below], sorted[above])
}

/// Shuffles `items` by the generator alone (Fisher and Yates).
pub fn shuffle<T>(items: &mut [T], rng: &mut XorShift64Star) {
    for last in (1..items.len()).rev() {
        let other = rng.below(u32::try_from(last + 1).unwrap_or(u32::MAX)) as usize;
        items.swap(last, other);
    }
}

/// The distinct values, in the order in which they first occur.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The index of the first item that `is_it`; `new` is appended if there is none.
pub(crate) fn place<T>(items: &mut Vec<T>, is_it: impl FnMut(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    items.iter().position(is_it).unwrap_or_else(|| {
        items.push(new());
        items.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        let s = Summary::of(&[9.0, 1.0, 5.0, 3.0, 7.0]).unwrap();
        assert_eq!((s.count, s.min, s.median, s.max), (5, 1.0, 5.0, 9.0));
        assert_eq!((s.lower_quartile, s.upper_quartile), (3.0, 7.0));
        assert_eq!(s.spread(), 8.0 / 5.0);
        let s = Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.lower_quartile, s.median, s.upper_quartile), (1.75, 2.5, 3.25));
        let s = Summary::of(&[2.0]).unwrap();
        assert_eq!((s.min, s.median, s.max, s.spread()), (2.0, 2.0, 2.0, 0.0));
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().spread(), 0.0);
    }

    #[test]
    fn no_summary_of_nothing_or_of_no_number() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn a_seed_gives_one_order_and_another_seed_another() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..50).collect();
            shuffle(&mut items, &mut XorShift64Star::new(seed));
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_ne!(order(1), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn every_place_is_reached_about_as_often() {
        // Where item 0 of five ends up over 5000 shuffles: 1000 each, give or take five deviations (28 each).
        let mut rng = XorShift64Star::new(11);
        let mut places = [0u32; 5];
        for _ in 0..5000 {
            let mut items = [0, 1, 2, 3, 4];
            shuffle(&mut items, &mut rng);
            places[items.iter().position(|&i| i == 0).unwrap()] += 1;
        }
        assert!(places.iter().all(|n| (860..1140).contains(n)), "{places:?}");
    }

    proptest! {
        #[test]
        fn a_summary_is_in_order_and_does_not_depend_on_the_order(
            mut values in prop::collection::vec(-1e12f64..1e12, 1..40), seed: u64,
        ) {
            let s = Summary::of(&values).unwrap();
            let five = [s.min, s.lower_quartile, s.median, s.upper_quartile, s.max];
            prop_assert!(five.is_sorted(), "{five:?}");
            let below = values.iter().filter(|v| **v <= s.median).count();
            prop_assert!(below * 2 >= values.len(), "half of the values are at or below the median");
            shuffle(&mut values, &mut XorShift64Star::new(seed));
            prop_assert_eq!(Summary::of(&values).unwrap(), s);
        }

        #[test]
        fn a_shuffle_keeps_every_item(len in 0usize..60, seed: u64) {
            let mut items: Vec<usize> = (0..len).collect();
            shuffle(&mut items, &mut XorShift64Star::new(seed));
            items.sort_unstable();
            prop_assert_eq!(items, (0..len).collect::<Vec<_>>());
        }
    }
}
