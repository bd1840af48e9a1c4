use super::*;
use proptest::prelude::*;
use std::convert::Infallible;
use thalweg_base::XorShift64Star;

/// A router that forwards `capacity` frames a second and has room for `buffer` frames.
#[derive(Clone, Copy)]
struct Fake {
    capacity: f64,
    buffer: f64,
    /// Whether it holds the sender back instead of losing frames.
    holds_back: bool,
}

impl Fake {
    fn trial(&self, rate: f64, seconds: f64) -> Trial {
        let intended = (rate * seconds).round();
        let through = (self.capacity * seconds + self.buffer).min(intended);
        Trial {
            intended: intended as u64,
            sent: if self.holds_back { through } else { intended } as u64,
            received: through as u64,
            elapsed_s: seconds,
            ..Trial::default()
        }
    }

    fn burst(&self, frames: u64, ceiling: f64) -> Trial {
        let arrived_meanwhile = frames as f64 * self.capacity / ceiling;
        let received = (arrived_meanwhile + self.buffer).min(frames as f64);
        Trial {
            intended: frames,
            sent: frames,
            received: received as u64,
            elapsed_s: 0.1,
            ..Trial::default()
        }
    }
}

fn found(fake: Fake, ceiling: f64, options: &SearchOptions) -> Found {
    throughput(ceiling, options, |rate| Ok::<_, Infallible>(fake.trial(rate, 1.0))).unwrap()
}

proptest! {
    #[test]
    fn the_limit_is_found(capacity in 1_000.0f64..900_000.0, holds_back: bool, width in 0.002f64..0.05) {
        let ceiling = 1e6;
        let options = SearchOptions { width, ..SearchOptions::default() };
        let found = found(Fake { capacity, buffer: 0.0, holds_back }, ceiling, &options);
        // A frame a second is within rounding.
        prop_assert!(found.rate_pps <= capacity + 1.0, "{found:?}");
        let failed = found.failed_pps.unwrap();
        prop_assert!(found.rate_pps >= capacity - width * failed.max(ceiling / SLOW) - 1.0, "{found:?}");
        prop_assert!(failed > capacity - 1.0);
        prop_assert_eq!(found.loss, 0.0);
        prop_assert!(found.trials <= 2 * 14, "{}", found.trials);
    }

    #[test]
    fn some_loss_may_be_tolerated(capacity in 100_000.0f64..900_000.0, loss_max in 0.01f64..0.1) {
        let options = SearchOptions { loss_max, width: 0.002, ..SearchOptions::default() };
        let found = found(Fake { capacity, buffer: 0.0, holds_back: false }, 1e6, &options);
        let limit = (capacity / (1.0 - loss_max)).min(1e6);
        prop_assert!((limit - 2_100.0..limit + 2.0).contains(&found.rate_pps), "{} {found:?}", limit);
        prop_assert!(found.loss <= loss_max);
    }

    #[test]
    fn trials_that_fail_for_no_fault_of_the_router_are_made_up_for(seed: u64, capacity in 100_000.0f64..900_000.0) {
        // One trial in five loses a frame whatever the rate. Two attempts fail together once in 25.
        let mut rng = XorShift64Star::new(seed);
        let fake = Fake { capacity, buffer: 0.0, holds_back: false };
        let mut disturbed = 0;
        let found = throughput(1e6, &SearchOptions::default(), |rate| {
            let mut trial = fake.trial(rate, 1.0);
            if rng.below(5) == 0 {
                disturbed += 1;
                trial.received = trial.received.saturating_sub(1);
            }
            Ok::<_, Infallible>(trial)
        })
        .unwrap();
        prop_assert!(found.rate_pps <= capacity + 1.0, "no disturbance makes a router faster");
        prop_assert!(disturbed <= found.trials);
        // Whatever was rejected was rejected by two trials in a row.
        if disturbed < 2 {
            prop_assert!(found.rate_pps >= capacity - 0.01 * 1e6 - 1.0, "{found:?}");
        }
    }

    #[test]
    fn a_burst_fills_the_buffer(capacity in 0.0f64..0.9, buffer in 100.0f64..50_000.0) {
        let ceiling = 1e6;
        let fake = Fake { capacity: capacity * ceiling, buffer, holds_back: false };
        let options = BurstOptions { repeats: 3, longest_s: 2.0 };
        let result = back_to_back(ceiling, fake.capacity, &options, |frames| {
            Ok::<_, Infallible>(fake.burst(frames, ceiling))
        })
        .unwrap();
        // Frames in the buffer at the end of a burst of n: n - n * capacity.
        let limit = buffer / (1.0 - capacity);
        prop_assert_eq!(result.bursts.len(), 3);
        prop_assert!(!result.no_limit);
        prop_assert!(result.mean_frames <= limit + 2.0, "{} {result:?}", limit);
        prop_assert!(result.mean_frames >= limit * 0.985 - 40.0, "{} {result:?}", limit);
        let held = result.corrected_buffer_s * ceiling;
        prop_assert!((held - buffer).abs() <= buffer * 0.02 + 40.0, "{held} of {buffer}");
    }
}

#[test]
fn a_router_faster_than_the_generator_passes_at_once() {
    let fast = Fake { capacity: 2e6, buffer: 0.0, holds_back: false };
    let found = found(fast, 1e6, &SearchOptions::default());
    assert_eq!((found.rate_pps, found.failed_pps, found.trials), (1e6, None, 1));
}

#[test]
fn a_router_that_forwards_nothing_ends_the_search() {
    let dead = Fake { capacity: 0.0, buffer: 0.0, holds_back: false };
    let found = found(dead, 1e6, &SearchOptions::default());
    assert_eq!(found.rate_pps, 0.0);
    assert!(found.failed_pps.unwrap() <= 10_000.0 && found.trials < 20);
}

#[test]
fn an_error_ends_the_search() {
    let failed = throughput(1e6, &SearchOptions::default(), |_| Err::<Trial, _>("no"));
    assert_eq!(failed, Err("no"));
    assert_eq!(loss_curve(1e6, 0.0, |_| Err::<Trial, _>("no")), Err("no"));
    assert_eq!(back_to_back(1e6, 0.0, &BurstOptions::default(), |_| Err::<Trial, _>("no")), Err("no"));
}

#[test]
fn the_loss_curve_ends_with_two_trials_without_loss() {
    let fake = Fake { capacity: 450_000.0, buffer: 0.0, holds_back: false };
    let curve = |fake: Fake| loss_curve(1e6, 0.0, |rate| Ok::<_, Infallible>(fake.trial(rate, 1.0))).unwrap();
    let points = curve(fake);
    let shares: Vec<f64> = points.iter().map(|p| p.share).collect();
    assert_eq!(shares, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]);
    for point in &points {
        let expected = (1.0 - 450_000.0 / point.intended_pps).max(0.0);
        assert!((point.loss - expected).abs() < 1e-5, "{point:?}");
    }
    assert_eq!(curve(Fake { capacity: 2e6, ..fake }).len(), 2);
    assert_eq!(curve(Fake { capacity: 0.0, ..fake }).len(), 10, "down to a tenth, not to nothing");
    let held = curve(Fake { holds_back: true, ..fake });
    assert!(held[0].sent_pps < held[0].intended_pps && held[0].loss > 0.5, "{:?}", held[0]);
}

#[test]
fn buffer_time_by_hand() {
    // 64-byte frames at 10 Gigabit Ethernet, 14,880,952 a second, and bursts of 26,000 frames: 1747 µs. Meanwhile
    // 11,701,000 frames a second are forwarded, so the buffers hold what is left: 373 µs.
    let (implied, corrected) = buffer_s(26_000.0, 14_880_952.0, 11_701_000.0);
    assert!((implied * 1e6 - 1747.2).abs() < 0.1, "{implied}");
    assert!((corrected * 1e6 - 373.4).abs() < 0.1, "{corrected}");
    assert_eq!(buffer_s(100.0, 0.0, 0.0), (0.0, 0.0));
    assert_eq!(buffer_s(100.0, 1e6, 2e6).1, 0.0, "never below nothing");
}

#[test]
fn no_limit_is_said() {
    let fake = Fake { capacity: 1e6, buffer: 1.0, holds_back: true };
    let result = back_to_back(1e6, 1e6, &BurstOptions { repeats: 2, longest_s: 0.5 }, |frames| {
        Ok::<_, Infallible>(fake.burst(frames, 1e6))
    })
    .unwrap();
    assert!(result.no_limit);
    assert_eq!(result.bursts, [500_000, 500_000]);
}

#[test]
fn loss_is_a_share_of_what_was_intended() {
    let trial = |intended, received| Trial { intended, received, elapsed_s: 2.0, ..Trial::default() };
    assert_eq!(trial(100, 75).loss(), 0.25);
    assert_eq!(trial(100, 101).loss(), 0.0, "a duplicate makes up for nothing, but is no gain");
    assert_eq!(trial(0, 0).loss(), 0.0);
    assert_eq!(trial(100, 50).received_pps(), 25.0);
    assert_eq!(trial(100, 0).cpu_ns(), None);
    let costly = Trial { sender_cpu_s: 1e-6, subject_cpu_s: 2e-6, softirq_cpu_s: 1e-6, ..trial(4, 4) };
    assert_eq!(costly.cpu_ns(), Some(1000.0));
    assert_eq!(costly.sender_cpu_ns(), Some(250.0));
}
