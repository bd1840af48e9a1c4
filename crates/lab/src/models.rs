//! Compares execution models: models x workers x chunk sizes x work, on one input.
//!
//! A [`Cell`] is one way to run; the caller's closure runs it, so this module knows no router. All cells are run
//! once to warm up, then `runs` times in rounds: each round runs every cell once, in an order of its own, shuffled
//! by the seed. A disturbance that lasts a minute then touches all cells alike instead of all runs of one.
//!
//! Speed-up is the median throughput of a cell over that of the serial cell with the same chunk size and work;
//! efficiency is speed-up per worker. A serial cell is [`SERIAL`] with one worker.
//!
//! Runs with the same chunk size and work must count the same packets. A run that counts others has not done the
//! same work: the experiment ends with [`ModelsError::PacketTotals`]. Cells with costly synthetic work may take
//! fewer packets than the others; they are not compared with them.

mod around;
mod concurrency;
mod coprocessor;
mod hot_spots;
mod render;
pub mod replayed;
mod time_line;

pub use concurrency::{Concurrency, Sample};
pub use coprocessor::CoprocessorResult;
pub use hot_spots::HotSpot;
pub use render::{lead, plots, report, table, tables};
pub use time_line::{Span, TimeLine};

pub use crate::rounds::RunOptions;
use crate::stats::Summary;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

/// The model that others are compared with.
pub const SERIAL: &str = "serial";

/// One way to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    pub model: String,
    pub workers: usize,
    pub chunk_packets: usize,
    /// Synthetic work as on the command line: `none`, `queens:8`.
    pub work: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { model, workers, chunk_packets, work } = self;
        write!(f, "{model}, {workers} workers, chunks of {chunk_packets}, work {work}")
    }
}

/// What to vary.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Execution models; [`SERIAL`] is run with one worker whatever `workers` says.
    pub models: Vec<String>,
    pub workers: Vec<usize>,
    pub chunk_packets: Vec<usize>,
    pub work: Vec<String>,
}

impl Grid {
    /// All combinations, each once, ordered by work, chunk size, model and workers.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for work in &self.work {
            for &chunk_packets in &self.chunk_packets {
                for model in &self.models {
                    let one = [1];
                    let workers = if model == SERIAL { &one[..] } else { &self.workers[..] };
                    for &workers in workers {
                        let cell = Cell { model: model.clone(), workers, chunk_packets, work: work.clone() };
                        if !cells.contains(&cell) {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        cells
    }
}

/// The measurements of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRun {
    pub packets: u64,
    /// Wall-clock time, seconds.
    pub elapsed_s: f64,
    /// Processor time of all threads, seconds.
    pub cpu_s: f64,
    /// Median residence time of a packet, nanoseconds.
    pub residence_p50_ns: f64,
    /// 99th percentile of it.
    pub residence_p99_ns: f64,
    /// Largest resident memory so far, bytes; 0 if not known.
    pub max_rss_bytes: u64,
    /// Samples of processor time over the run.
    pub samples: Vec<Sample>,
}

/// A step of the experiment, for a progress display.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    pub done: usize,
    pub total: usize,
    /// The cell to run next.
    pub cell: &'a Cell,
}

/// A cell's results.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    pub cell: Cell,
    /// Packets of each run.
    pub packets: u64,
    /// Wall-clock time, seconds.
    pub elapsed_s: Summary,
    /// Processor time of all threads, seconds.
    pub cpu_s: Summary,
    /// Cores in use over time, of all runs.
    pub concurrency: Option<Concurrency>,
    /// Packets per second of wall-clock time.
    pub packets_per_second: Summary,
    /// Processor time per packet over all threads, nanoseconds.
    pub cpu_ns_per_packet: Summary,
    /// Medians of residence time, nanoseconds.
    pub residence_p50_ns: Summary,
    /// 99th percentiles of residence time, nanoseconds.
    pub residence_p99_ns: Summary,
    /// Largest resident memory of any run, bytes.
    pub max_rss_bytes: u64,
    /// Median throughput over the serial one; `None` without a serial cell of this chunk size and work.
    pub speed_up: Option<f64>,
    /// Speed-up per worker.
    pub efficiency: Option<f64>,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    /// In the order given.
    pub cells: Vec<CellResult>,
    /// Where a serial run spends its time, for each work.
    pub hot_spots: Vec<HotSpot>,
    /// What the units of each model did over time.
    pub time_lines: Vec<TimeLine>,
    /// Cells with a coprocessor that all units share.
    pub coprocessor: Vec<CoprocessorResult>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError<E> {
    /// There are no cells or no runs.
    #[error("nothing to run: no cells or no runs")]
    Nothing,
    /// A run failed.
    #[error("{cell}: {source}")]
    Run { cell: Cell, source: E },
    /// A run took another number of packets than earlier runs.
    #[error(
        "{cell}: took {packets} packets where runs before took {expected}: not the same work, so there is \
         nothing to compare"
    )]
    PacketTotals {
        cell: Cell,
        packets: u64,
        /// The packets of earlier runs with the same chunk size and work.
        expected: u64,
    },
    /// A run took no time or no packets, or a measurement is not finite.
    #[error("{cell}: cannot be a measurement: {run:?}")]
    Measurement {
        cell: Cell,
        /// What it measured.
        run: Box<CellRun>,
    },
}

/// Runs the experiment. `measure` runs a cell; `progress` is called before each run.
pub fn run<E>(
    cells: &[Cell],
    options: &RunOptions,
    mut measure: impl FnMut(&Cell) -> Result<CellRun, E>,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Outcome, ModelsError<E>> {
    if cells.is_empty() || options.runs == 0 {
        return Err(ModelsError::Nothing);
    }
    let mut measured: Vec<Vec<CellRun>> = vec![Vec::with_capacity(options.runs); cells.len()];
    let mut expected = Totals::new();
    options.rounds(cells.len(), |turn| -> Result<(), ModelsError<E>> {
        let cell = &cells[turn.at];
        progress(Progress { done: turn.done, total: turn.total, cell });
        let run = measure(cell).map_err(|source| ModelsError::Run { cell: cell.clone(), source })?;
        check(cell, &run, &mut expected)?;
        if turn.counts {
            measured[turn.at].push(run);
        }
        Ok(())
    })?;
    let mut results = Vec::with_capacity(cells.len());
    for (cell, runs) in cells.iter().zip(&measured) {
        let first = || Box::new(runs[0].clone()); // `options.runs` is at least one
        let summed = sum_up(cell, runs);
        results.push(summed.ok_or_else(|| ModelsError::Measurement { cell: cell.clone(), run: first() })?);
    }
    compare(&mut results);
    Ok(Outcome {
        runs: options.runs,
        cells: results,
        hot_spots: Vec::new(),
        time_lines: Vec::new(),
        coprocessor: Vec::new(),
    })
}

/// Packets per run, by chunk size and work.
type Totals = HashMap<(usize, String), u64>;

fn check<E>(cell: &Cell, run: &CellRun, expected: &mut Totals) -> Result<(), ModelsError<E>> {
    let times = [run.elapsed_s, run.cpu_s, run.residence_p50_ns, run.residence_p99_ns];
    let sound = times.iter().all(|t| t.is_finite() && *t >= 0.0) && run.elapsed_s > 0.0 && run.packets > 0;
    if !sound {
        return Err(ModelsError::Measurement { cell: cell.clone(), run: Box::new(run.clone()) });
    }
    let alike = (cell.chunk_packets, cell.work.clone());
    let expected = *expected.entry(alike).or_insert(run.packets);
    if run.packets != expected {
        return Err(ModelsError::PacketTotals { cell: cell.clone(), packets: run.packets, expected });
    }
    Ok(())
}

fn sum_up(cell: &Cell, runs: &[CellRun]) -> Option<CellResult> {
    let of = |value: &dyn Fn(&CellRun) -> f64| Summary::of(&runs.iter().map(value).collect::<Vec<_>>());
    Some(CellResult {
        cell: cell.clone(),
        packets: runs.first()?.packets,
        elapsed_s: of(&|r| r.elapsed_s)?,
        cpu_s: of(&|r| r.cpu_s)?,
        concurrency: {
            let samples: Vec<Sample> = runs.iter().flat_map(|r| r.samples.iter().copied()).collect();
            Concurrency::of(&samples, cell.workers)
        },
        packets_per_second: of(&|r| r.packets as f64 / r.elapsed_s)?,
        cpu_ns_per_packet: of(&|r| r.cpu_s * 1e9 / r.packets as f64)?,
        residence_p50_ns: of(&|r| r.residence_p50_ns)?,
        residence_p99_ns: of(&|r| r.residence_p99_ns)?,
        max_rss_bytes: runs.iter().map(|r| r.max_rss_bytes).max()?,
        speed_up: None,
        efficiency: None,
    })
}

/// The serial cell with the same chunk size and work.
fn serial_of<'a>(results: &'a [CellResult], cell: &Cell) -> Option<&'a CellResult> {
    results.iter().find(|r| {
        r.cell.model == SERIAL
            && r.cell.workers == 1
            && r.cell.chunk_packets == cell.chunk_packets
            && r.cell.work == cell.work
    })
}

fn compare(results: &mut [CellResult]) {
    for at in 0..results.len() {
        let cell = &results[at].cell;
        let Some(serial) = serial_of(results, cell) else { continue };
        let speed_up = results[at].packets_per_second.median / serial.packets_per_second.median;
        let workers = cell.workers.max(1) as f64;
        results[at].speed_up = Some(speed_up);
        results[at].efficiency = Some(speed_up / workers);
    }
}

#[cfg(test)]
mod tests;
