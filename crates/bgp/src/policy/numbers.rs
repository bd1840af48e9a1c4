//! Sets of AS numbers: sorted ranges of 8 bytes each, looked up by binary search.

use std::ops::RangeInclusive;

/// A set of numbers in ranges that neither touch nor overlap, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumberSet {
    ranges: Box<[(u32, u32)]>,
}

impl NumberSet {
    /// The set of all numbers.
    pub fn all() -> Self {
        Self { ranges: [(0, u32::MAX)].into() }
    }

    /// Makes the set of the numbers in these ranges; empty ranges add nothing.
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Self {
        let mut all: Vec<(u32, u32)> =
            ranges.into_iter().filter(|each| !each.is_empty()).map(RangeInclusive::into_inner).collect();
        all.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self { ranges: merged.into() }
    }

    /// The set of the numbers that are not in this one.
    pub fn complement(&self) -> Self {
        let mut from = Some(0u32);
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        for &(first, last) in &self.ranges {
            if let Some(start) = from
                && first > start
            {
                ranges.push((start, first - 1));
            }
            from = last.checked_add(1);
        }
        ranges.extend(from.map(|start| (start, u32::MAX)));
        Self { ranges: ranges.into() }
    }

    /// Whether the set contains the number.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= number);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|range| number <= range.1)
    }

    /// Whether the set contains no number.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The first and last number of each range.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_is_the_union_of_its_ranges(
            ranges in prop::collection::vec((0u32..40, 0u32..12), 0..8),
            high in any::<bool>(),
        ) {
            let base = if high { u32::MAX - 51 } else { 0 };
            let ranges: Vec<_> = ranges.into_iter().map(|(a, n)| base + a..=base + a + n).collect();
            let set = NumberSet::new(ranges.clone());
            let rest = set.complement();
            for number in (0..=60).chain(u32::MAX - 60..=u32::MAX) {
                let expected = ranges.iter().any(|range| range.contains(&number));
                prop_assert_eq!(set.contains(number), expected, "{}", number);
                prop_assert_eq!(rest.contains(number), !expected, "{}", number);
            }
            prop_assert!(set.ranges().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }
    }
}
