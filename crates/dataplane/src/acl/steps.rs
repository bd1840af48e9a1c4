//! Steps: a function of a number that is constant on intervals.
//!
//! The starts of the intervals are sorted in blocks of sixteen; above them are the first starts of each block,
//! again in blocks of sixteen, up to a single block. A look-up counts in one block per level how many starts are
//! not above the number: sixteen comparisons without a branch, which the compiler turns into vector instructions.
//! Two thousand intervals take three levels and 9 KB.

/// Starts in a block: a cache line of 32-bit ones.
const BLOCK: usize = 16;

/// A key as stored in blocks. Signed, because vector units compare signed numbers best.
trait StepKey: Copy + Ord {
    /// Fills up the last block; not less than any start.
    const LAST: Self;
    /// How many starts are not above `at`. Counted in lanes as wide as the key; otherwise the vector units would
    /// spend their time on widening.
    fn not_above(block: &[Self; BLOCK], at: Self) -> usize;
}

impl StepKey for i32 {
    const LAST: Self = i32::MAX;

    #[inline(always)]
    fn not_above(block: &[Self; BLOCK], at: Self) -> usize {
        block.iter().map(|start| i32::from(*start <= at)).sum::<i32>() as usize
    }
}

impl StepKey for i64 {
    const LAST: Self = i64::MAX;

    #[inline(always)]
    fn not_above(block: &[Self; BLOCK], at: Self) -> usize {
        block.iter().map(|start| i64::from(*start <= at)).sum::<i64>() as usize
    }
}

/// A level: the index of its first block, and the number of its last.
#[derive(Clone, Copy, Debug)]
struct Level {
    first: usize,
    last: usize,
}

#[derive(Clone, Debug)]
struct Steps<K> {
    /// All levels, top first.
    blocks: Vec<[K; BLOCK]>,
    levels: Vec<Level>,
    /// Indexed by interval.
    values: Vec<u32>,
}

impl<K: StepKey> Steps<K> {
    /// Takes the starts of all intervals, ascending, and their values. The first interval extends down to the least
    /// number. Panics if there is none.
    fn new(steps: &[(K, u32)]) -> Self {
        assert!(!steps.is_empty(), "a function has a value everywhere");
        let mut levels_up: Vec<Vec<K>> = vec![steps.iter().map(|s| s.0).collect()];
        while let Some(starts) = levels_up.last().filter(|starts| starts.len() > BLOCK) {
            let above = starts.iter().step_by(BLOCK).copied().collect();
            levels_up.push(above);
        }
        let mut blocks = Vec::new();
        let mut levels = Vec::new();
        for starts in levels_up.iter().rev() {
            let first = blocks.len();
            blocks.extend(starts.chunks(BLOCK).map(|some| {
                let mut block = [K::LAST; BLOCK];
                block[..some.len()].copy_from_slice(some);
                block
            }));
            levels.push(Level { first, last: blocks.len() - 1 - first });
        }
        Self { blocks, levels, values: steps.iter().map(|s| s.1).collect() }
    }

    #[inline(always)]
    fn value(&self, at: K) -> u32 {
        let mut place = 0;
        for level in &self.levels {
            // Only the greatest number is not below the filling, and it belongs to the last interval.
            let block = place.min(level.last);
            let not_above = K::not_above(&self.blocks[level.first + block], at);
            place = block * BLOCK + not_above.saturating_sub(1);
        }
        self.values[place.min(self.values.len() - 1)]
    }

    fn memory_bytes(&self) -> usize {
        self.blocks.len() * size_of::<[K; BLOCK]>() + self.values.len() * 4
    }
}

/// A number over which rules have intervals.
pub(super) trait StepNumber: Copy + Ord {
    /// The steps over such numbers.
    type Steps: StepFunction<Self>;
    /// The least of them.
    const ZERO: Self;
    /// The next one.
    fn successor(self) -> Option<Self>;
}

/// Steps over numbers `N`.
pub(super) trait StepFunction<N>: std::fmt::Debug + Clone + Send + Sync {
    /// Takes the starts of all intervals, ascending from zero, and their values (below 2^31).
    fn build(steps: &[(N, u32)]) -> Self;
    /// The value of the interval that holds `at`.
    fn value_at(&self, at: N) -> u32;
    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// Steps over 32-bit numbers.
#[derive(Clone, Debug)]
pub(super) struct Steps32(Steps<i32>);

/// Preserves order: the least unsigned number becomes the least signed one.
#[inline(always)]
fn signed32(n: u32) -> i32 {
    (n ^ 0x8000_0000) as i32
}

#[inline(always)]
fn signed64(n: u64) -> i64 {
    (n ^ (1 << 63)) as i64
}

impl StepFunction<u32> for Steps32 {
    fn build(steps: &[(u32, u32)]) -> Self {
        let signed: Vec<(i32, u32)> = steps.iter().map(|&(start, value)| (signed32(start), value)).collect();
        Self(Steps::new(&signed))
    }

    #[inline(always)]
    fn value_at(&self, at: u32) -> u32 {
        self.0.value(signed32(at))
    }

    fn bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// Steps over 128-bit numbers: by the upper half, and by the lower half for the few upper halves within which the
/// value changes.
#[derive(Clone, Debug)]
pub(super) struct Steps128 {
    upper: Steps<i64>,
    lower: Vec<Steps<i64>>,
}

/// Marks a value of the upper half as an index into `lower`.
const LOWER: u32 = 1 << 31;

impl StepFunction<u128> for Steps128 {
    fn build(steps: &[(u128, u32)]) -> Self {
        let mut upper: Vec<(i64, u32)> = Vec::new();
        let mut lower = Vec::new();
        let mut before = steps.first().map_or(0, |s| s.1);
        let halves = |n: u128| ((n >> 64) as u64, n as u64);
        let groups: Vec<&[(u128, u32)]> = steps.chunk_by(|a, b| a.0 >> 64 == b.0 >> 64).collect();
        for (g, group) in groups.iter().enumerate() {
            let (high, first_low) = halves(group[0].0);
            let after = group[group.len() - 1].1;
            if let ([(_, value)], 0) = (group, first_low) {
                upper.push((signed64(high), *value));
            } else {
                let mut low: Vec<(i64, u32)> = Vec::new();
                if first_low != 0 {
                    low.push((signed64(0), before));
                }
                low.extend(group.iter().map(|&(start, value)| (signed64(halves(start).1), value)));
                upper.push((signed64(high), LOWER | lower.len() as u32));
                lower.push(Steps::new(&low));
                let next = groups.get(g + 1).map(|next| halves(next[0].0).0);
                if let Some(above) = high.checked_add(1).filter(|above| next != Some(*above)) {
                    upper.push((signed64(above), after));
                }
            }
            before = after;
        }
        Self { upper: Steps::new(&upper), lower }
    }

    #[inline(always)]
    fn value_at(&self, at: u128) -> u32 {
        let value = self.upper.value(signed64((at >> 64) as u64));
        if value & LOWER == 0 {
            return value;
        }
        self.lower[(value & !LOWER) as usize].value(signed64(at as u64))
    }

    fn bytes(&self) -> usize {
        self.upper.memory_bytes() + self.lower.iter().map(Steps::memory_bytes).sum::<usize>()
    }
}

impl StepNumber for u32 {
    type Steps = Steps32;
    const ZERO: Self = 0;
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl StepNumber for u128 {
    type Steps = Steps128;
    const ZERO: Self = 0;
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The value, found by testing all steps.
    fn plainly<N: StepNumber>(steps: &[(N, u32)], at: N) -> u32 {
        steps.iter().rfind(|s| s.0 <= at).expect("steps begin at zero").1
    }

    fn agree<N: StepNumber + std::fmt::Debug>(mut starts: Vec<N>, probes: &[N]) {
        starts.push(N::ZERO);
        starts.sort();
        starts.dedup();
        let steps: Vec<(N, u32)> = (0..).zip(starts).map(|(value, start)| (start, value)).collect();
        let function = N::Steps::build(&steps);
        let borders = steps.iter().flat_map(|s| [Some(s.0), s.0.successor()]).flatten();
        for at in borders.chain(probes.iter().copied()) {
            assert_eq!(function.value_at(at), plainly(&steps, at), "{at:?} among {steps:?}");
        }
        assert!(function.bytes() > 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn numbers_of_32_bits(
            starts in prop::collection::vec(any::<u32>(), 0..700),
            close in prop::collection::vec(0u32..50, 0..40),
            probes in prop::collection::vec(any::<u32>(), 0..100),
        ) {
            let ends = [u32::MAX, u32::MAX - 1, 0, 1];
            agree([starts.clone(), close].concat(), &[&probes[..], &ends].concat());
            agree([&starts[..], &ends].concat(), &[&probes[..], &ends].concat());
        }

        #[test]
        fn numbers_of_128_bits(
            highs in prop::collection::vec(0u64..40, 0..300),
            lows in prop::collection::vec(prop_oneof![Just(0u64), Just(1), Just(u64::MAX), any::<u64>()], 300),
            top in any::<bool>(),
        ) {
            // Few upper halves, so that some are shared and some are neighbors; at either end of the range.
            let high = |n: u64| if top { u64::MAX - n } else { n };
            let starts: Vec<u128> =
                highs.iter().zip(&lows).map(|(h, l)| u128::from(high(*h)) << 64 | u128::from(*l)).collect();
            let probes: Vec<u128> = (0..45u64)
                .flat_map(|h| [0, 1, 77, u64::MAX].map(|l| u128::from(high(h)) << 64 | u128::from(l)))
                .collect();
            agree(starts, &probes);
        }
    }

    #[test]
    fn every_number_of_levels() {
        for count in [1u32, 2, 15, 16, 17, 255, 256, 257, 4096, 4097, 5000] {
            agree((0..count).map(|n| n * 3).collect(), &[u32::MAX, 7]);
        }
    }
}
