//! Compares with a model that remembers the whole history and searches it for every packet.

use super::*;
use proptest::prelude::*;

const LARGE: u64 = 1_514;
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Step {
    now_ns: u64,
    sojourn_ns: u64,
    behind: u64,
}

fn fast(aqm: Aqm, steps: &[Step]) -> Vec<bool> {
    let mut codel = Codel::new(aqm);
    steps.iter().map(|s| codel.signal(s.now_ns, s.sojourn_ns, s.behind, LARGE)).collect()
}

/// The signals of a series, in episodes: a period in which the queue stands, with a signal at its first packet and
/// then at every packet when one is due.
fn slow(aqm: Aqm, steps: &[Step]) -> Vec<bool> {
    let interval = u64::from(aqm.interval_ms) * MS;
    let is_bad = |s: &Step| s.sojourn_ns >= u64::from(aqm.target_us) * 1_000 && s.behind > LARGE;
    let stands: Vec<bool> = (0..steps.len())
        .map(|i| {
            let good = steps[..=i].iter().rposition(|s| !is_bad(s)).map_or(0, |last| last + 1);
            good <= i && steps[i].now_ns >= steps[good].now_ns + interval
        })
        .collect();
    let mut signals = vec![false; steps.len()];
    // First count, last count, and next due signal of the previous episode.
    let mut before: Option<(u64, u64, u64)> = None;
    let mut i = 0;
    while i < steps.len() {
        if !stands[i] {
            i += 1;
            continue;
        }
        let start = steps[i].now_ns;
        let first = match before {
            Some((first, last, due)) if last - first > 1 && start.saturating_sub(due) < 16 * interval => {
                last - first
            }
            _ => 1,
        };
        signals[i] = true;
        let (mut count, mut due) = (first, start + root_of_ratio(interval, first));
        i += 1;
        while i < steps.len() && stands[i] {
            if steps[i].now_ns >= due {
                signals[i] = true;
                count += 1;
                due += root_of_ratio(interval, count);
            }
            i += 1;
        }
        before = Some((first, count, due));
    }
    signals
}

/// The largest integer not above interval / sqrt(count), by trial.
fn root_of_ratio(interval: u64, count: u64) -> u64 {
    let (mut low, mut high) = (0u128, u128::from(interval) + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if middle * middle * u128::from(count) <= u128::from(interval).pow(2) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low as u64
}

fn steady(gap_ns: u64, count: u64, sojourn_ns: u64) -> Vec<Step> {
    (0..count).map(|i| Step { now_ns: i * gap_ns, sojourn_ns, behind: 100 * LARGE }).collect()
}

#[test]
fn a_standing_queue_is_told_faster_and_faster() {
    let steps = steady(MS, 600, 20 * MS);
    let signals = fast(Aqm::default(), &steps);
    let at: Vec<u64> = (0u64..).zip(&signals).filter(|(_, signal)| **signal).map(|(ms, _)| ms).collect();
    // 100, then 100 + 100/sqrt(1), + 100/sqrt(2), ..., each rounded up to the next packet.
    assert_eq!(at, [100, 200, 271, 329, 379, 424, 464, 502, 538, 571]);
}

#[test]
fn a_burst_that_is_gone_within_the_interval_is_let_be() {
    let mut steps = steady(MS, 99, 80 * MS);
    steps.push(Step { now_ns: 99 * MS, sojourn_ns: 4 * MS, behind: 100 * LARGE });
    steps.extend(steady(MS, 99, 80 * MS).iter().map(|s| Step { now_ns: s.now_ns + 100 * MS, ..*s }));
    assert!(fast(Aqm::default(), &steps).iter().all(|signal| !signal));
}

#[test]
fn one_packet_behind_is_no_standing_queue() {
    // 64 kbit/s: each packet waits 190 ms for the one before it, and dropping it would not help.
    let steps: Vec<Step> =
        steady(190 * MS, 100, 190 * MS).into_iter().map(|s| Step { behind: LARGE, ..s }).collect();
    assert!(fast(Aqm::default(), &steps).iter().all(|signal| !signal));
}

#[test]
fn marks_end_where_the_wait_is_longer_than_an_interval() {
    let codel = Codel::new(Aqm::default());
    assert!(codel.may_mark(100 * MS));
    assert!(!codel.may_mark(100 * MS + 1));
    assert!(!Codel::new(Aqm { ecn: false, ..Aqm::default() }).may_mark(0));
}

fn series() -> impl Strategy<Value = Vec<Step>> {
    // Runs of good or bad packets, so that episodes begin, end and begin again.
    let stretch = (any::<bool>(), 0u64..40 * MS, 1usize..60);
    proptest::collection::vec(stretch, 1..20).prop_map(|stretches| {
        let mut steps = Vec::new();
        let mut now_ns = 0;
        for (is_bad, gap_ns, count) in stretches {
            for i in 0..count as u64 {
                now_ns += gap_ns / (1 + i % 3);
                let sojourn_ns = if is_bad { 5 * MS + i } else { i * MS / 8 };
                let behind = if is_bad || i % 2 == 0 { LARGE + 1 } else { LARGE };
                steps.push(Step { now_ns, sojourn_ns, behind });
            }
        }
        steps
    })
}

proptest! {
    #[test]
    fn agrees_with_the_model_that_looks_back(steps in series(), interval_ms in 1u32..300) {
        let aqm = Aqm { interval_ms, ..Aqm::default() };
        prop_assert_eq!(fast(aqm, &steps), slow(aqm, &steps));
    }

    #[test]
    fn no_number_overflows(target_us: u32, interval_ms: u32, steps in proptest::collection::vec(any::<(u64, u64, u64, u64)>(), 0..50)) {
        let mut codel = Codel::new(Aqm { target_us, interval_ms, ecn: true });
        for (now, sojourn, behind, large) in steps { codel.signal(now, sojourn, behind, large); }
    }
}
