//! Measures how quiet the machine is: repeats the same work and looks at how evenly it runs.
//!
//! Taken before and after a long run, because a spread that the machine itself has is not the subject's.

use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;

/// Laps per measurement.
const LAPS: usize = 500;
/// Steps of a lap: about a millisecond.
const STEPS: u64 = 400_000;
/// A lap that takes this many times the median was disturbed.
const DISTURBED: f64 = 1.1;

/// The result of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// The median time of a lap.
    pub median_ns: f64,
    /// The 99th percentile over the median.
    pub p99_ratio: f64,
    /// The share of laps that took at least a tenth longer than the median.
    pub disturbed_share: f64,
}

impl Noise {
    /// Measures on the calling thread, for about half a second.
    pub fn measure() -> Noise {
        let lap = |_| {
            let begin = Instant::now();
            let mut state = black_box(1u64);
            for _ in 0..STEPS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            black_box(state);
            begin.elapsed().as_nanos() as f64
        };
        Self::of((0..LAPS).map(lap).collect())
    }

    fn of(mut laps_ns: Vec<f64>) -> Noise {
        laps_ns.sort_by(f64::total_cmp);
        let at = |share: usize| laps_ns.get(laps_ns.len() * share / 100).copied().unwrap_or(0.0);
        let median_ns = at(50);
        let disturbed = laps_ns.iter().filter(|lap| **lap > median_ns * DISTURBED).count();
        Noise {
            median_ns,
            p99_ratio: if median_ns > 0.0 { at(99) / median_ns } else { 1.0 },
            disturbed_share: disturbed as f64 / laps_ns.len().max(1) as f64,
        }
    }

    /// A sentence for a report.
    pub fn says(&self, when: &str) -> String {
        format!(
            "{when}, {:.1} % of {LAPS} laps of the same work took a tenth longer than the median, or more; the 99th percentile was \
             {:.2} times the median.",
            100.0 * self.disturbed_share,
            self.p99_ratio
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_what_takes_longer_than_usual() {
        let even = Noise::of(vec![100.0; 200]);
        assert_eq!(even, Noise { median_ns: 100.0, p99_ratio: 1.0, disturbed_share: 0.0 });
        let mut laps = vec![100.0; 90];
        laps.extend([150.0; 10]);
        let uneven = Noise::of(laps);
        assert_eq!((uneven.p99_ratio, uneven.disturbed_share), (1.5, 0.1));
        assert!(uneven.says("Before").contains("10.0 %"), "{}", uneven.says("Before"));
        assert_eq!(Noise::of(Vec::new()).disturbed_share, 0.0);
    }
}
