//! Reads the processor's time stamp counter, and calibrates its ticks.
//!
//! The counter runs at a rate of its own (constant and the same on every core since about 2008), the core at
//! another that depends on load and temperature. Papers on packet processing count ticks, such as VPP's "clocks".
//! So the results have ticks, and also nanoseconds and core cycles:
//!
//! - *ticks per nanosecond*: the counter read at the ends of `WINDOW` by the monotonic clock;
//! - *core cycles per nanosecond*: a chain of dependent steps, each an exclusive-or and a multiplication, which
//!   take 1 + 3 cycles on every x86-64 core of the last fifteen years (Fog, "Instruction tables"). The fastest of
//!   `CHAINS` gives the rate of an undisturbed core.
//!
//! Reading the counter does not wait for instructions before it, so a reading is off by some tens of ticks. Stages
//! are timed over batches of up to 256 packets, where that is a fraction of a tick per packet. The cost of a
//! reading is subtracted.
//!
//! On other processors the monotonic clock replaces the counter, and a tick is a nanosecond.
//!
//! `unsafe` is for one instruction: a reading of the monotonic clock costs four times as much, and two readings per
//! stage and batch would distort the measurement.
#![allow(unsafe_code)]

use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long the two clocks are compared.
const WINDOW: Duration = Duration::from_millis(50);
/// How often the chain is run, and its length.
const CHAINS: usize = 40;
const CHAIN_STEPS: u64 = 50_000;
const CYCLES_PER_STEP: f64 = 4.0;

/// Ticks so far.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since the first call.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The rates of counter and core, and the cost of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Ticks per nanosecond: the counter's rate in GHz.
    pub ticks_per_ns: f64,
    /// Cycles of an undisturbed core per nanosecond: its rate in GHz. `None` if the cycles per step are unknown.
    pub core_cycles_per_ns: Option<f64>,
    /// Ticks between two consecutive readings.
    pub reading_ticks: f64,
}

impl Calibration {
    /// Measures all three, in about a tenth of a second.
    pub fn measure() -> Self {
        let (begin, first) = (Instant::now(), ticks());
        while begin.elapsed() < WINDOW {
            std::hint::spin_loop();
        }
        // Read the clock last at both ends, so that the same work lies between the readings.
        let (last, elapsed) = (ticks(), begin.elapsed());
        let ticks_per_ns = last.wrapping_sub(first) as f64 / elapsed.as_nanos().max(1) as f64;
        let core_cycles_per_ns = cfg!(target_arch = "x86_64").then(core_rate);
        Self { ticks_per_ns, core_cycles_per_ns, reading_ticks: reading() }
    }

    /// Converts ticks to nanoseconds.
    pub fn ns(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns
    }

    /// Converts ticks to core cycles; `None` if the core's rate is unknown.
    pub fn core_cycles(&self, ticks: f64) -> Option<f64> {
        self.core_cycles_per_ns.map(|rate| self.ns(ticks) * rate)
    }
}

fn core_rate() -> f64 {
    let factor = black_box(0x9e37_79b9_7f4a_7c15u64);
    let fastest_ns = (0..CHAINS).map(|_| {
        let begin = Instant::now();
        let mut x = black_box(1u64);
        for _ in 0..CHAIN_STEPS {
            x = (x ^ factor).wrapping_mul(factor);
        }
        black_box(x);
        begin.elapsed().as_nanos().max(1) as f64
    });
    CHAIN_STEPS as f64 * CYCLES_PER_STEP / fastest_ns.fold(f64::INFINITY, f64::min)
}

fn reading() -> f64 {
    let mut pairs: Vec<u64> =
        (0..1001).map(|_| ticks().wrapping_sub(black_box(ticks())).wrapping_neg()).collect();
    pairs.sort_unstable();
    pairs[pairs.len() / 2] as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_processors() {
        let c = Calibration::measure();
        // From a tenth of a GHz (an emulator) to ten.
        assert!((0.1..10.0).contains(&c.ticks_per_ns), "{c:?}");
        assert!(c.core_cycles_per_ns.is_none_or(|rate| rate > 0.0 && rate < 20.0), "{c:?}");
        assert!(c.reading_ticks >= 0.0 && c.reading_ticks < 1e6, "{c:?}");
    }

    #[test]
    fn ticks_are_turned_into_time_and_cycles() {
        let c = Calibration { ticks_per_ns: 2.5, core_cycles_per_ns: Some(4.0), reading_ticks: 20.0 };
        assert_eq!((c.ns(50.0), c.core_cycles(50.0)), (20.0, Some(80.0)));
        let unknown = Calibration { core_cycles_per_ns: None, ..c };
        assert_eq!(unknown.core_cycles(50.0), None);
    }
}
