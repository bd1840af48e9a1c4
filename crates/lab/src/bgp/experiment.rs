//! The experiment on schedulings of a BGP daemon: the thesis's figures and tables, measured again on a
//! current daemon.
//!
//! | part | the thesis | what is varied |
//! |---|---|---|
//! | [`Part::SpeedUp`] | figures 4.3, 4.9 | scheduling, cores, threads per core |
//! | [`Part::Functions`] | table 4.2, figures 4.4, 4.5 | scheduling; processor time per UPDATE by function |
//! | [`Part::OneCore`] | figure 4.6 | the same on one core |
//! | [`Part::Mixes`] | table 4.3, figure 4.7 | scheduling and traffic mix |
//! | [`Part::Blocks`] | figure 4.8 | scheduling and table; time of every 500 UPDATEs along a long trace |
//! | [`Part::Ways`] | section 4.1.2 | the client's three ways of sending |
//! | [`Part::Ablations`] | section 3.3 | where a thread per neighbor polls, and where its table has locks |
//! | [`Part::Caches`] | figure 5.1 | size of a core's cache, by a model |
//! | [`Part::Wu`] | table 2.1 | scheduling and the eight loads of Wu et al. |
//!
//! As in [`crate::models`], the caller's closure runs a cell. All cells of a part are run in rounds of
//! shuffled order, of which the first ones warm up, and medians are reported with their range. Every run of a
//! load must send as many UPDATEs as every other and end with the same routes, which the measurement checks:
//! a scheduling with another answer gets no figure.
//!
//! Speed-up is the serial cell's median time over this cell's, same load.

mod render;
mod worth;

pub use render::{report, tables};
pub use worth::Worth;

use super::bench::Run;
use super::caches::Curve;
use super::functions::{HEADER_READ_SHARE, PAYLOAD_READ_SHARE};
use super::locks::Locked;
use super::receive::{Received, Strategy};
pub use crate::rounds::RunOptions;
use crate::stats::Summary;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The scheduling that others are compared with.
pub const SERIAL: &str = "serial";

thalweg_base::words! {
    /// A part of the experiment.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Part {
        /// Time by scheduling, cores and threads per core.
        SpeedUp => "Speed-up by scheduling, cores and threads",
        /// Processor time per UPDATE by function.
        Functions => "Time by function",
        /// Time by scheduling on one core.
        OneCore => "Time by function on one core",
        /// Time by traffic mix.
        Mixes => "Traffic mixes",
        /// Time by how the client sends: bursts, turns and so on.
        Ways => "Ways of sending",
        /// Time per 500 UPDATEs along a long trace.
        Blocks => "Along a long trace",
        /// Time of per-peer with one poller for all, and of tables with other locks.
        Ablations => "A thread per neighbor without its optimizations",
        /// The eight loads of Wu et al.
        Wu => "Eight loads",
        /// Time by how messages are received, without a daemon.
        Receive => "Receiving",
        /// Cache misses by cache size, by a model (needs valgrind).
        Caches => "Cache misses by cache size",
    }
}

/// One way to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    pub part: Part,
    pub scheduling: String,
    /// The cores that the daemon may use.
    pub cores: usize,
    /// None if the scheduling itself decides on the number of threads.
    pub threads_per_core: Option<usize>,
    /// The load, mix or way of sending that the part varies.
    pub load: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { scheduling, cores, threads_per_core, load, .. } = self;
        write!(f, "{scheduling} on {cores} of the cores, ")?;
        if let Some(threads) = threads_per_core {
            write!(f, "{threads} threads for each, ")?;
        }
        f.write_str(load)
    }
}

/// The results of a cell, over its counted runs.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    /// The cell.
    pub cell: Cell,
    /// The UPDATEs of each run.
    pub updates: u64,
    /// The prefixes of each run.
    pub prefixes: u64,
    /// The time until convergence, in seconds.
    pub elapsed_s: Summary,
    /// The daemon's processor time, in seconds.
    pub cpu_s: Summary,
    /// The most threads that served in any run.
    pub threads: usize,
    /// The daemon's largest memory in any run, in bytes.
    pub rss_peak_bytes: u64,
    /// The smallest share of the load that was in buffers when the clock started.
    pub preloaded_share: f64,
    /// The median number of prefixes announced to the monitor.
    pub told: f64,
    /// The serial cell's time over this one's; none without a serial cell of this load.
    pub speed_up: Option<f64>,
    /// By function: nanoseconds of processor time per UPDATE, summed over threads.
    pub functions_ns: BTreeMap<String, Summary>,
    /// By function: calls per UPDATE, median.
    pub function_calls: BTreeMap<String, f64>,
    /// By function: serial's time over this one, shared by the threads that can work at a time.
    pub function_speed_ups: BTreeMap<String, f64>,
    /// Shares of the functions that the thesis's figure 4.4 shows, in its groups.
    pub shares: Option<Shares>,
    /// Prefixes per second, which Wu et al. call transactions.
    pub prefixes_per_second: f64,
    pub blocks: Option<Blocks>,
}

/// The shares of the work on an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Parsing headers and payloads, and the table.
    pub parse_and_table: f64,
    /// Reading from TCP.
    pub reads: f64,
    /// Housekeeping.
    pub housekeeping: f64,
    /// The time of reading per UPDATE, in the unit of the given times.
    pub reads_ns: f64,
}

impl Shares {
    /// Shares of times by function. Functions for which the thesis has no line (export, writing) are left
    /// out.
    pub fn of(times: &BTreeMap<String, f64>) -> Option<Shares> {
        let sum = |names: &[&str]| names.iter().filter_map(|name| times.get(*name)).sum::<f64>();
        let parts = [
            sum(&["header_parse", "payload_parse", "table_update"]),
            sum(&["read", "header_read", "payload_read", HEADER_READ_SHARE, PAYLOAD_READ_SHARE]),
            sum(&["housekeeping"]),
        ];
        let all: f64 = parts.iter().sum();
        let [parse_and_table, reads, housekeeping] = parts.map(|part: f64| part / all);
        (all > 0.0).then_some(Shares { parse_and_table, reads, housekeeping, reads_ns: parts[1] })
    }
}

/// Blocks of UPDATEs along a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blocks {
    /// The median time of each block, in seconds.
    pub median_s: Vec<f64>,
    /// Their mean.
    pub mean_s: f64,
    /// The longest.
    pub largest_s: f64,
    /// Mean of the last quarter over that of the first: 1 if the table's growth does not matter.
    pub drift: Option<f64>,
}

impl Blocks {
    /// Summarizes median times; none without a block.
    pub fn of(median_s: Vec<f64>) -> Option<Blocks> {
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let quarter = median_s.len() / 4;
        let (first, last) = (mean(&median_s[..quarter]), mean(&median_s[median_s.len() - quarter..]));
        let drift = (first > 0.0).then(|| last / first);
        let largest_s = median_s.iter().copied().reduce(f64::max)?;
        Some(Blocks { mean_s: mean(&median_s), largest_s, drift, median_s })
    }
}

impl CellResult {
    /// Median UPDATEs per second.
    pub fn updates_per_second(&self) -> f64 {
        self.updates as f64 / self.elapsed_s.median
    }

    /// Whether a speaker read and decoded the UPDATEs, not a table alone.
    fn updates_are_read(&self) -> bool {
        Locked::ALL.iter().all(|locked| locked.name() != self.cell.load)
    }

    /// How many threads can work at the same time.
    pub fn at_once(&self) -> usize {
        self.threads.min(self.cell.cores).max(1)
    }
}

/// The results of one way to receive.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiveResult {
    /// The way.
    pub strategy: Strategy,
    /// The stream: `small` or `large`.
    pub load: String,
    /// Messages of every run.
    pub messages: u64,
    /// System calls per message, median.
    pub calls_per_message: f64,
    /// Processor time of the receiver per message, nanoseconds.
    pub cpu_ns: Summary,
    /// Bytes per second, wall-clock.
    pub bytes_per_second: Summary,
}

/// The results of the experiment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Runs of each cell.
    pub runs: usize,
    /// UPDATEs of a block in [`Part::Blocks`].
    pub block_updates: usize,
    /// In the order the cells were given.
    pub cells: Vec<CellResult>,
    pub receive: Vec<ReceiveResult>,
    /// What a way to receive is worth for the whole daemon.
    pub worth: Vec<Worth>,
    /// Misses by cache size.
    pub caches: Vec<Curve>,
    /// What could not be measured, and why.
    pub left_out: Vec<String>,
}

impl Outcome {
    /// Computes what follows from several parts, once all of them are measured.
    pub fn finish(&mut self) {
        self.worth = worth::worth(self);
    }

    /// Cells of a part.
    pub fn of(&self, part: Part) -> impl Iterator<Item = &CellResult> {
        self.cells.iter().filter(move |result| result.cell.part == part)
    }
}

/// The reasons for which there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError<E> {
    /// There is no cell or no run.
    #[error("nothing to run: no cells or no runs")]
    Nothing,
    /// A run failed.
    #[error("{cell}: {source}")]
    Run { cell: Cell, source: E },
    /// A run differs from earlier ones with the same load in its UPDATEs or its final routes, or took no
    /// time.
    #[error("{cell}: cannot be a measurement: {what}")]
    Measurement { cell: Cell, what: String },
}

/// Runs all cells. `measure` runs one; `progress` is called before each run, with the number of all runs.
pub fn run<E>(
    cells: &[Cell],
    options: &RunOptions,
    mut measure: impl FnMut(&Cell) -> Result<Run, E>,
    mut progress: impl FnMut(usize, usize, &Cell),
) -> Result<Vec<CellResult>, ExperimentError<E>> {
    if options.runs == 0 {
        return Err(ExperimentError::Nothing);
    }
    let mut measured: Vec<Vec<Run>> = vec![Vec::with_capacity(options.runs); cells.len()];
    let mut answers: HashMap<(Part, String), (u64, u64)> = HashMap::new();
    options.rounds(cells.len(), |turn| {
        let cell = &cells[turn.at];
        progress(turn.done, turn.total, cell);
        let run = measure(cell).map_err(|source| ExperimentError::Run { cell: cell.clone(), source })?;
        let answer = (run.updates, run.digest);
        let expected = *answers.entry((cell.part, cell.load.clone())).or_insert(answer);
        if answer != expected || run.updates == 0 {
            let what = format!("(UPDATEs, routes) are {answer:?} where runs before had {expected:?}");
            return Err(ExperimentError::Measurement { cell: cell.clone(), what });
        }
        if turn.counts {
            measured[turn.at].push(run);
        }
        Ok(())
    })?;
    let mut results = Vec::with_capacity(cells.len());
    for (cell, runs) in cells.iter().zip(&measured) {
        results.push(sum_up(cell, runs).ok_or_else(|| ExperimentError::Measurement {
            cell: cell.clone(),
            what: format!("{:?}", runs.first()),
        })?);
    }
    compare(&mut results);
    Ok(results)
}

fn sum_up(cell: &Cell, runs: &[Run]) -> Option<CellResult> {
    let of = |value: &dyn Fn(&Run) -> f64| Summary::of(&runs.iter().map(value).collect::<Vec<_>>());
    let elapsed_s = of(&|r| r.elapsed_s).filter(|s| s.min > 0.0)?;
    let first = runs.first()?;
    let updates = first.updates as f64;
    let time = |r: &Run, name: &str| r.functions.get(name).copied().unwrap_or_default();
    let mut functions_ns = BTreeMap::new();
    let mut function_calls = BTreeMap::new();
    for name in first.functions.keys() {
        functions_ns.insert(name.clone(), of(&|r| time(r, name).ns as f64 / updates)?);
        function_calls.insert(name.clone(), of(&|r| time(r, name).calls as f64 / updates)?.median);
    }
    let blocks = runs.iter().map(|r| r.blocks_s.len()).min().unwrap_or(0);
    let block = |at: usize| of(&|r| r.blocks_s.get(at).copied().unwrap_or(f64::NAN)).map(|s| s.median);
    Some(CellResult {
        cell: cell.clone(),
        updates: first.updates,
        prefixes: first.prefixes,
        cpu_s: of(&|r| r.cpu_s)?,
        threads: runs.iter().map(|r| r.threads).max()?,
        rss_peak_bytes: runs.iter().map(|r| r.rss_peak_bytes).max()?,
        preloaded_share: of(&|r| r.preloaded_share)?.min,
        told: of(&|r| r.told as f64)?.median,
        speed_up: None,
        shares: Shares::of(&functions_ns.iter().map(|(name, ns)| (name.clone(), ns.median)).collect()),
        functions_ns,
        function_calls,
        function_speed_ups: BTreeMap::new(),
        prefixes_per_second: first.prefixes as f64 / elapsed_s.median,
        elapsed_s,
        blocks: Blocks::of((0..blocks).filter_map(block).collect()),
    })
}

/// The serial cell with the same load. It has one thread, so its number of cores does not matter.
fn serial_of<'a>(results: &'a [CellResult], cell: &Cell) -> Option<&'a CellResult> {
    results
        .iter()
        .find(|r| r.cell.scheduling == SERIAL && r.cell.part == cell.part && r.cell.load == cell.load)
}

fn compare(results: &mut [CellResult]) {
    for at in 0..results.len() {
        let Some(serial) = serial_of(results, &results[at].cell) else { continue };
        let result = &results[at];
        let speed_up = serial.elapsed_s.median / result.elapsed_s.median;
        let of_function = |(name, ns): (&String, &Summary)| {
            let each = ns.median / result.at_once() as f64;
            let serial = serial.functions_ns.get(name)?.median;
            (each > 0.0).then(|| (name.clone(), serial / each))
        };
        let function_speed_ups = result.functions_ns.iter().filter_map(of_function).collect();
        results[at].speed_up = Some(speed_up);
        results[at].function_speed_ups = function_speed_ups;
    }
}

/// Summarizes the runs of one way to receive one stream; `None` without runs.
pub fn sum_up_receive(strategy: Strategy, load: &str, runs: &[Received]) -> Option<ReceiveResult> {
    let of = |value: &dyn Fn(&Received) -> f64| Summary::of(&runs.iter().map(value).collect::<Vec<_>>());
    Some(ReceiveResult {
        strategy,
        load: load.to_owned(),
        messages: runs.first()?.messages,
        calls_per_message: of(&|r| r.system_calls as f64 / r.messages as f64)?.median,
        cpu_ns: of(&|r| r.cpu_s * 1e9 / r.messages as f64)?,
        bytes_per_second: of(&|r| r.bytes as f64 / r.elapsed_s)?,
    })
}

#[cfg(test)]
mod tests;
