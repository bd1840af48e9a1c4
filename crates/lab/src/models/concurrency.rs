//! How many cores are in use over the time of a run: what VTune's histogram of concurrency shows.
//!
//! A thread beside the run looks at the process's processor time every few milliseconds, less its own, and notes how much
//! was used in how long. So a sample is a mean over its interval, and all samples together are the whole time and all
//! of the processor time: their weighted mean *is* processor time over elapsed time.

use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use thalweg_replay::ReplayProgress;

use crate::cpu_time::{process_cpu_s, thread_cpu_s};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(2);

/// An interval, and the processor time used in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its length, seconds.
    pub elapsed_s: f64,
    /// Processor time of the run's threads, seconds.
    pub cpu_s: f64,
}

/// How long how many cores were in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Concurrency {
    /// Cores in use on average.
    pub mean: f64,
    /// The same as a share of the workers.
    pub share_of_workers: f64,
    /// Shares of the time in which about 0, 1, 2 .. cores were in use.
    pub time_shares: Vec<f64>,
}

impl Concurrency {
    /// Of the samples of one or more runs with so many workers; none without any.
    pub(super) fn of(samples: &[Sample], workers: usize) -> Option<Concurrency> {
        let elapsed_s: f64 = samples.iter().map(|sample| sample.elapsed_s).sum();
        let cpu_s: f64 = samples.iter().map(|sample| sample.cpu_s).sum();
        if elapsed_s <= 0.0 {
            return None;
        }
        let mut time_shares = vec![0.0];
        for sample in samples.iter().filter(|sample| sample.elapsed_s > 0.0) {
            let cores = (sample.cpu_s / sample.elapsed_s).round().max(0.0) as usize;
            if time_shares.len() <= cores {
                time_shares.resize(cores + 1, 0.0);
            }
            time_shares[cores] += sample.elapsed_s / elapsed_s;
        }
        let mean = cpu_s / elapsed_s;
        Some(Concurrency { mean, share_of_workers: mean / workers.max(1) as f64, time_shares })
    }
}

/// The thread that looks, while something is measured.
#[derive(Default)]
pub(super) struct Sampler {
    running: Mutex<Option<Looking>>,
    samples: Mutex<Vec<Sample>>,
}

struct Looking {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// What was seen.
    pub(super) fn samples(self) -> Vec<Sample> {
        self.samples.into_inner().unwrap_or_default()
    }
}

impl ReplayProgress for Sampler {
    fn advanced(&self, _: u64, _: Option<f64>) {}

    fn measuring(&self, begins: bool) {
        let Ok(mut running) = self.running.lock() else { return };
        if begins {
            let (stop, stopped) = channel();
            let thread = std::thread::spawn(move || {
                let others = || process_cpu_s() - thread_cpu_s();
                let mut samples = Vec::new();
                let (mut at, mut used) = (Instant::now(), others());
                loop {
                    let goes_on = stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout);
                    let (now, cpu_s) = (Instant::now(), others());
                    samples
                        .push(Sample { elapsed_s: (now - at).as_secs_f64(), cpu_s: (cpu_s - used).max(0.0) });
                    (at, used) = (now, cpu_s);
                    if !goes_on {
                        return samples;
                    }
                }
            });
            *running = Some(Looking { stop, thread });
        } else if let Some(Looking { stop, thread }) = running.take() {
            drop(stop);
            if let (Ok(seen), Ok(mut samples)) = (thread.join(), self.samples.lock()) {
                samples.extend(seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_and_the_mean_are_of_the_same_time() {
        let sample = |elapsed_s, cpu_s| Sample { elapsed_s, cpu_s };
        // Half of the time four cores, a quarter two, a quarter none.
        let samples = [sample(2.0, 8.0), sample(1.0, 2.1), sample(1.0, 0.1)];
        let found = Concurrency::of(&samples, 4).unwrap();
        assert_eq!(found.time_shares, [0.25, 0.0, 0.25, 0.0, 0.5]);
        assert!(
            (found.mean - 10.2 / 4.0).abs() < 1e-12 && (found.share_of_workers - 10.2 / 16.0).abs() < 1e-12
        );
        assert!((found.time_shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(Concurrency::of(&[], 4), None);
        assert_eq!(Concurrency::of(&[sample(0.0, 0.0)], 4), None);
    }

    /// What two threads use is seen, and what is used before and after is not.
    #[test]
    fn the_sampler_sees_what_is_used_meanwhile() {
        let work = |seconds: f64| {
            let start = thread_cpu_s();
            while thread_cpu_s() - start < seconds {
                std::hint::black_box(thalweg_base::mix64(7));
            }
        };
        let sampler = Sampler::default();
        work(0.02);
        sampler.measuring(true);
        std::thread::scope(|scope| {
            scope.spawn(|| work(0.03));
            work(0.03);
        });
        sampler.measuring(false);
        let samples = sampler.samples();
        // Other tests run in this process too: there may be more, never less.
        assert!(samples.iter().map(|sample| sample.cpu_s).sum::<f64>() >= 0.055, "{samples:?}");
    }
}
