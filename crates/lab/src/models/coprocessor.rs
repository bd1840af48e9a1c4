//! A coprocessor that all units share, as on the PowerNP (seed document 004): many processors compete for it.
//!
//! In the router's look-up stage each packet asks a unit that serves one request at a time, in lock-step: the worker waits
//! until it is served. The unit is a lock, held for the service time; so a worker that waits for the unit, or is served,
//! holds its core. Requests are not served in the order in which they came. What the unit does changes no packet, and
//! every run must give the same answer.

use parking_lot::Mutex;
use serde::Serialize;
use std::time::{Duration, Instant};
use thalweg_base::Chunk;
use thalweg_exec::{ExecError, ModelOptions, Plan};

use super::Cell;
use super::around::{self, Beside, Digest};
use crate::stats::Summary;

/// The stage whose packets ask.
const STAGE: &str = "route";

/// The unit.
struct Coprocessor {
    /// The number of the stage that asks.
    stage: usize,
    service: Duration,
    unit: Mutex<()>,
}

/// What a thread knows of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) count: u64,
    pub(super) waited: Duration,
    pub(super) served: Duration,
}

impl Beside for Coprocessor {
    type Notes = Requests;

    fn stage(
        &self,
        stage: usize,
        chunk: &mut Chunk,
        packets: usize,
        requests: &mut Requests,
        work: impl FnOnce(&mut Chunk),
    ) {
        if stage == self.stage {
            (0..packets).for_each(|_| self.ask(requests));
        }
        work(chunk);
    }
}

impl Coprocessor {
    fn ask(&self, requests: &mut Requests) {
        let asked = Instant::now();
        let _unit = self.unit.lock();
        let begun = Instant::now();
        while begun.elapsed() < self.service {
            std::hint::spin_loop();
        }
        requests.count += 1;
        requests.waited += begun - asked;
        requests.served += begun.elapsed();
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CoprocessorRun {
    pub(super) elapsed_s: f64,
    pub(super) requests: Requests,
    pub(super) digest: Digest,
}

/// Runs chunks under a model, with such a unit.
pub(super) fn run<P: Plan<Job = Chunk>>(
    plan: &P,
    chunks: Vec<Chunk>,
    service: Duration,
    options: &ModelOptions,
) -> Result<CoprocessorRun, ExecError> {
    let stage = plan.stages().iter().position(|stage| stage.name == STAGE).unwrap_or(0);
    let mut digest = Digest::default();
    let unit = Coprocessor { stage, service, unit: Mutex::default() };
    let report = around::run(plan, &unit, chunks, &mut digest, options)?;
    let requests = report.scratches.iter().fold(Requests::default(), |sum, scratch| Requests {
        count: sum.count + scratch.notes.count,
        waited: sum.waited + scratch.notes.waited,
        served: sum.served + scratch.notes.served,
    });
    Ok(CoprocessorRun { elapsed_s: report.elapsed.as_secs_f64(), requests, digest })
}

/// The results of a cell with such a unit.
#[derive(Clone, Debug, Serialize)]
pub struct CoprocessorResult {
    pub cell: Cell,
    pub service_ns: u64,
    /// Requests of a run.
    pub requests: u64,
    pub packets_per_second: Summary,
    /// How long a request waits for the unit, on average over a run.
    pub wait_ns: Summary,
    /// The share of a run in which the unit serves.
    pub busy_share: Summary,
    /// Median throughput over that of the serial model with the same work and unit.
    pub speed_up: Option<f64>,
}

impl CoprocessorResult {
    /// Summarizes the runs of a cell; `None` without runs.
    pub(super) fn of(cell: &Cell, service_ns: u64, runs: &[CoprocessorRun]) -> Option<Self> {
        let of = |value: &dyn Fn(&CoprocessorRun) -> f64| {
            Summary::of(&runs.iter().map(|run| value(run) / run.elapsed_s.max(1e-9)).collect::<Vec<_>>())
        };
        let wait =
            |run: &CoprocessorRun| run.requests.waited.as_nanos() as f64 / run.requests.count.max(1) as f64;
        Some(Self {
            cell: cell.clone(),
            service_ns,
            requests: runs.first()?.requests.count,
            packets_per_second: of(&|run| run.digest.packets as f64)?,
            wait_ns: Summary::of(&runs.iter().map(wait).collect::<Vec<_>>())?,
            busy_share: of(&|run| run.requests.served.as_secs_f64())?,
            speed_up: None,
        })
    }
}

/// Fills in what each is over the serial model.
pub(super) fn compare(results: &mut [CoprocessorResult]) {
    for at in 0..results.len() {
        let CoprocessorResult { cell, service_ns, .. } = &results[at];
        let is_serial = |other: &&CoprocessorResult| {
            let alike = (&other.cell.work, other.cell.chunk_packets) == (&cell.work, cell.chunk_packets);
            other.cell.model == super::SERIAL && alike && other.service_ns == *service_ns
        };
        let serial = results.iter().find(is_serial).map(|serial| serial.packets_per_second.median);
        let own = results[at].packets_per_second.median;
        results[at].speed_up = serial.map(|serial| own / serial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_is_served_at_a_time() {
        let unit = Coprocessor { stage: 0, service: Duration::from_micros(200), unit: Mutex::default() };
        let ready = std::sync::Barrier::new(2);
        let began = Instant::now();
        let ask = || {
            let mut requests = Requests::default();
            ready.wait();
            (0..50).for_each(|_| unit.ask(&mut requests));
            requests
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(ask);
            [ask(), other.join().unwrap()]
        });
        let elapsed = began.elapsed();
        let served = both[0].served + both[1].served;
        assert_eq!(both.map(|requests| requests.count), [50, 50]);
        assert!(served >= 100 * unit.service && served <= elapsed, "one at a time: {both:?} in {elapsed:?}");
        let each = both.map(|requests| requests.served + requests.waited);
        assert!(each.iter().all(|each| *each <= elapsed), "{both:?} in {elapsed:?}");
    }

    #[test]
    fn figures_follow_from_the_runs() {
        let cell = |model: &str| Cell {
            model: model.to_owned(),
            workers: 2,
            chunk_packets: 64,
            work: "none".to_owned(),
        };
        let run = |elapsed_s, waited_us, served_ms| CoprocessorRun {
            elapsed_s,
            requests: Requests {
                count: 1000,
                waited: Duration::from_micros(waited_us),
                served: Duration::from_millis(served_ms),
            },
            digest: Digest { packets: 2000, ..Digest::default() },
        };
        let mut results = vec![
            CoprocessorResult::of(&cell("serial"), 500, &[run(2.0, 0, 1000)]).unwrap(),
            CoprocessorResult::of(&cell("tokens"), 500, &[run(1.0, 7000, 900)]).unwrap(),
            CoprocessorResult::of(&cell("tokens"), 900, &[run(1.0, 7000, 900)]).unwrap(),
        ];
        compare(&mut results);
        assert_eq!(
            results.iter().map(|result| result.speed_up).collect::<Vec<_>>(),
            [Some(1.0), Some(2.0), None]
        );
        assert_eq!((results[1].wait_ns.median, results[1].busy_share.median), (7000.0, 0.9));
        assert_eq!((results[0].packets_per_second.median, results[0].requests), (1000.0, 1000));
        assert!(CoprocessorResult::of(&cell("tokens"), 1, &[]).is_none());
    }
}
