//! Decides which trial of RFC 2544's benchmarks comes next, and what the results of trials mean.
//!
//! The caller's closure makes a trial, so tests run these searches against routers of known limits.
//!
//! **Throughput** (RFC 2544 section 26.1): the fastest rate at which no frame is lost. A binary search between
//! nothing and the generator's ceiling; after a failure the rate that came through is tried next, which is often
//! near the answer. On a machine that others use, a trial may fail because of them. So a rate that failed is tried
//! again, [`SearchOptions::attempts`] times in all, and passes if half of the trials do (with two: if one does).
//! That is the exceed ratio of 0.5 of RFC 9971.
//!
//! **Loss** counts against what was *intended*. A virtual link has no rate of its own: where the whole path runs in
//! the sender's context, an overloaded router does not lose frames but holds the sender back. A frame that could
//! not be sent in time is one the router did not forward, so it is lost; [`Trial`] tells the two apart (RFC 2285
//! calls them intended and offered load).
//!
//! **Frame loss rate** (section 26.3): from the ceiling down in tenths, until two trials in a row lose nothing.
//!
//! **Back-to-back** (section 26.4 as updated by RFC 9004): the longest burst at the ceiling without loss, by binary
//! search, several times; from the mean follows how much time the router's buffers hold, corrected for the frames
//! that are forwarded meanwhile. Only where throughput is below the ceiling.
//!
//! Missing: the RFC's "system recovery" and "reset".

use serde::Serialize;

/// The counts of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Trial {
    pub intended: u64,
    pub sent: u64,
    /// Sent frames that the interface refused.
    pub refused: u64,
    /// Frames that arrived at the receiver.
    pub received: u64,
    /// From the first frame to the last, seconds.
    pub elapsed_s: f64,
    /// Processor time of the sending thread: inside `sendmmsg` if that was measured, else in total; seconds.
    pub sender_cpu_s: f64,
    /// Processor time of the router's own processes; seconds.
    pub subject_cpu_s: f64,
    /// Processor time of the kernel's softirq threads; seconds.
    pub softirq_cpu_s: f64,
}

impl Trial {
    /// The share of intended frames that did not arrive.
    pub fn loss(&self) -> f64 {
        if self.intended == 0 {
            return 0.0;
        }
        1.0 - self.received.min(self.intended) as f64 / self.intended as f64
    }

    /// Frames received per second.
    pub fn received_pps(&self) -> f64 {
        if self.elapsed_s > 0.0 { self.received as f64 / self.elapsed_s } else { 0.0 }
    }

    /// Processor time of the whole path per frame received, in nanoseconds; `None` if none was.
    pub fn cpu_ns(&self) -> Option<f64> {
        let cpu_s = self.sender_cpu_s + self.subject_cpu_s + self.softirq_cpu_s;
        (self.received > 0).then(|| cpu_s * 1e9 / self.received as f64)
    }

    /// The sender's part of [`cpu_ns`](Self::cpu_ns).
    pub fn sender_cpu_ns(&self) -> Option<f64> {
        (self.received > 0).then(|| self.sender_cpu_s * 1e9 / self.received as f64)
    }
}

/// How to search for throughput.
#[derive(Clone, Copy, Debug)]
pub struct SearchOptions {
    /// The share of frames that may be lost; 0 in the RFC.
    pub loss_max: f64,
    /// The search stops when the passing and the failing rate are this share of the failing one apart, or of a
    /// sixteenth of the ceiling.
    pub width: f64,
    /// Trials at a rate before it counts as failed.
    pub attempts: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { loss_max: 0.0, width: 0.01, attempts: 2 }
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The fastest rate that passed, frames per second; 0 if none did.
    pub rate_pps: f64,
    /// The slowest that failed; `None` if even the ceiling passed.
    pub failed_pps: Option<f64>,
    /// The share lost in the trial that passed.
    pub loss: f64,
    pub trials: usize,
}

/// A router slower than the ceiling by more than this factor is measured less precisely than others.
const SLOW: f64 = 16.0;

/// Searches for throughput up to `ceiling`. `measure` makes a trial at a rate.
pub fn throughput<E>(
    ceiling_pps: f64,
    options: &SearchOptions,
    mut measure: impl FnMut(f64) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut found = Found { rate_pps: 0.0, failed_pps: None, loss: 0.0, trials: 0 };
    let mut rate = ceiling_pps;
    loop {
        let (passed, best) = attempt(rate, options, &mut found.trials, &mut measure)?;
        if passed {
            found.rate_pps = rate;
            found.loss = best.loss();
        } else {
            found.failed_pps = Some(rate);
        }
        let Some(high) = found.failed_pps else { return Ok(found) };
        let width = (options.width * high.max(ceiling_pps / SLOW)).max(1.0);
        if high - found.rate_pps <= width {
            return Ok(found);
        }
        let middle = (found.rate_pps + high) / 2.0;
        // What arrived of too high a rate is only a guess, and used once: an overloaded router may forward less
        // than it could.
        let first_failure = !passed && rate == ceiling_pps;
        let guess = best.received_pps();
        let inside = guess > found.rate_pps + width && guess < high - width;
        rate = if first_failure && inside { guess } else { middle };
    }
}

/// Tries a rate; returns whether it passed, and the best trial.
fn attempt<E>(
    rate: f64,
    options: &SearchOptions,
    trials: &mut usize,
    measure: &mut impl FnMut(f64) -> Result<Trial, E>,
) -> Result<(bool, Trial), E> {
    let attempts = options.attempts.max(1);
    let mut best: Option<Trial> = None;
    let mut passed = 0;
    for _ in 0..attempts {
        let trial = measure(rate)?;
        *trials += 1;
        passed += usize::from(trial.loss() <= options.loss_max);
        if best.is_none_or(|best| trial.loss() < best.loss()) {
            best = Some(trial);
        }
        // A clear failure is not repeated: other programs do not cost a tenth of the frames.
        if passed * 2 >= attempts || trial.loss() > options.loss_max + 0.1 {
            break;
        }
    }
    Ok((passed * 2 >= attempts, best.unwrap_or_default()))
}

/// A point of the frame loss curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPoint {
    /// The intended rate as a share of the ceiling.
    pub share: f64,
    pub intended_pps: f64,
    pub sent_pps: f64,
    pub received_pps: f64,
    /// The share of intended frames that did not arrive.
    pub loss: f64,
}

/// The frame loss rate from the ceiling down in tenths, until two trials in a row lose no more than `loss_max`.
pub fn loss_curve<E>(
    ceiling_pps: f64,
    loss_max: f64,
    mut measure: impl FnMut(f64) -> Result<Trial, E>,
) -> Result<Vec<LossPoint>, E> {
    let mut points: Vec<LossPoint> = Vec::new();
    for tenths in (1..=10).rev() {
        let share = f64::from(tenths) / 10.0;
        let trial = measure(share * ceiling_pps)?;
        let per_second = |frames: u64| frames as f64 / trial.elapsed_s.max(f64::MIN_POSITIVE);
        points.push(LossPoint {
            share,
            intended_pps: share * ceiling_pps,
            sent_pps: per_second(trial.sent),
            received_pps: per_second(trial.received),
            loss: trial.loss(),
        });
        if points.len() >= 2 && points.iter().rev().take(2).all(|point| point.loss <= loss_max) {
            break;
        }
    }
    Ok(points)
}

/// How to search for bursts.
#[derive(Clone, Copy, Debug)]
pub struct BurstOptions {
    /// Searches to take the mean of; the RFC wants at least 50.
    pub repeats: usize,
    /// The longest burst, in seconds at the ceiling.
    pub longest_s: f64,
}

impl Default for BurstOptions {
    fn default() -> Self {
        Self { repeats: 5, longest_s: 2.0 }
    }
}

/// The resolution of burst lengths, in frames.
const BURST_STEP: u64 = 32;

/// The results of bursts (RFC 9004).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackToBack {
    /// The longest burst without loss, by search, in frames.
    pub bursts: Vec<u64>,
    pub mean_frames: f64,
    /// The longest burst tried.
    pub longest_frames: u64,
    /// Whether even the longest burst passed in every search, so no limit was found.
    pub no_limit: bool,
    /// The mean burst's duration at the ceiling, in seconds.
    pub implied_buffer_s: f64,
    /// The same without frames forwarded meanwhile: what the buffers hold.
    pub corrected_buffer_s: f64,
}

/// Searches for the longest burst without loss. `measure` sends a burst of so many frames.
pub fn back_to_back<E>(
    ceiling_pps: f64,
    throughput_pps: f64,
    options: &BurstOptions,
    mut measure: impl FnMut(u64) -> Result<Trial, E>,
) -> Result<BackToBack, E> {
    let longest = ((ceiling_pps * options.longest_s) as u64).max(BURST_STEP);
    let mut bursts = Vec::new();
    for _ in 0..options.repeats.max(1) {
        bursts.push(longest_burst(longest, &mut measure)?);
    }
    let mean_frames = bursts.iter().sum::<u64>() as f64 / bursts.len() as f64;
    let no_limit = bursts.iter().all(|burst| *burst == longest);
    let (implied_buffer_s, corrected_buffer_s) = buffer_s(mean_frames, ceiling_pps, throughput_pps);
    Ok(BackToBack {
        bursts,
        mean_frames,
        longest_frames: longest,
        no_limit,
        implied_buffer_s,
        corrected_buffer_s,
    })
}

fn longest_burst<E>(longest: u64, measure: &mut impl FnMut(u64) -> Result<Trial, E>) -> Result<u64, E> {
    let mut passes = |frames| measure(frames).map(|trial| trial.received >= frames);
    if passes(longest)? {
        return Ok(longest);
    }
    let (mut low, mut high) = (0, longest);
    // A hundredth of the answer is precise enough, and so is a batch.
    while high - low > BURST_STEP.max(high / 100) {
        let middle = low + (high - low) / 2;
        if passes(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// RFC 9004: the implied buffer time, and the one corrected by the frames forwarded meanwhile.
pub fn buffer_s(mean_frames: f64, ceiling_pps: f64, throughput_pps: f64) -> (f64, f64) {
    if ceiling_pps <= 0.0 {
        return (0.0, 0.0);
    }
    let implied = mean_frames / ceiling_pps;
    let forwarded = implied * (throughput_pps / ceiling_pps).clamp(0.0, 1.0);
    (implied, implied - forwarded)
}

#[cfg(test)]
mod tests;
