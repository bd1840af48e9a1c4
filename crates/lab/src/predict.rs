//! The execution models on cores that this machine does not have.
//!
//! A serial run is recorded chunk by chunk and stage by stage ([`thalweg_exec::record`]), hand-over is measured between two
//! cores, and contention by two copies of the serial run at once. Then the models as shipped run on virtual cores
//! ([`thalweg_exec::imitate`]), which spend the recorded costs. [`calibrate`] measures, [`predict`] needs no clock: the same
//! [`CostsFile`] gives the same prediction on any machine.
//!
//! **Guilty until proven.** The runs that [`validate`] measures are held out: nothing of a run with several workers goes into
//! the costs. Where no measurement stands beside it, a prediction says that it is not validated.
//!
//! Missing: caches that cores share beyond two, memory bandwidth, sockets. Contention of more than two cores is extended in
//! a straight line from two, which is a guess.

mod fit;
mod render;

pub use fit::Fit;
pub use render::{report, tables};

use crate::models::replayed::{RunError, Runs};
use crate::models::{self, Cell, ModelsError, RunOptions, SERIAL};
use crate::stats::Summary;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use thalweg_exec::{
    Costs, ExecError, MachineCosts, ModelKind, ModelOptions, RunReport, Scope, TOKENS_DEFAULT,
};
use thalweg_replay::{Prepared, ReplayError, ReplayOptions};

/// Cores that contention is extended to.
const CORES_MAX: u64 = 64;
/// Chunks of a prediction for each core, so that a curve shows the model and not the end of the input.
const CHUNKS_PER_CORE: usize = 40;
/// The packets of paper 000's trace, its cores, and how much faster it found them.
const ARTICLE: (u64, usize, f64) = (113_405, 24, 19.0);
/// A part of a model is what it saturates on if it is busy for this share of the time.
const SATURATED: f64 = 0.95;

/// What to predict, and how to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Core counts, 1 to 64.
    pub cores: Vec<usize>,
    /// Tokens in flight; 24, or as many as there are cores, if none are given.
    pub tokens: Option<usize>,
    /// Rounds of each measurement.
    pub runs: usize,
    /// Seed of the order of runs.
    pub seed: u64,
}

/// What a prediction is made from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostsFile {
    /// What was recorded.
    pub input: String,
    /// Hand-over. Contention is that of each work.
    pub machine: MachineCosts,
    /// Each setting of synthetic work.
    pub works: Vec<WorkCosts>,
}

/// One setting of synthetic work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkCosts {
    /// As on the command line.
    pub work: String,
    /// Shard groups that the router has for each worker.
    pub groups_per_worker: usize,
    /// Shard groups that it has at most.
    pub groups_max: usize,
    /// Thousandths of its cost that work takes while 1, 2, .. cores work.
    pub contention_permille: Vec<u64>,
    /// What a serial run costs.
    pub costs: Costs,
}

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The file of costs.
    #[error("{path}: {reason}")]
    File {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A model failed on virtual cores.
    #[error("{model} on {cores} virtual cores: {source}")]
    Model { model: &'static str, cores: usize, source: ExecError },
    /// A measurement failed.
    #[error(transparent)]
    Measure(Box<ModelsError<RunError>>),
}

impl CostsFile {
    /// Reads one that was written.
    pub fn read(path: &Path) -> Result<Self, PredictError> {
        let wrong = |reason: String| PredictError::File { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let file: CostsFile = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for work in &file.works {
            let stages = work.costs.stages.len();
            let whole = work.costs.jobs.iter().all(|job| job.stages_ns.len() == stages);
            if work.costs.total_ns() == 0 || work.groups_per_worker == 0 || work.groups_max == 0 || !whole {
                return Err(wrong(format!("work {}: chunks or costs are missing", work.work)));
            }
        }
        Ok(file)
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<(), PredictError> {
        let wrong = |reason: String| PredictError::File { path: path.to_owned(), reason };
        let text = serde_json::to_string(self).map_err(|error| wrong(error.to_string()))?;
        fs::write(path, text).map_err(|error| wrong(error.to_string()))
    }
}

/// One point of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Predicted {
    /// Synthetic work.
    pub work: String,
    /// Execution model.
    pub model: String,
    /// Virtual cores; of the farm's, one has the reader.
    pub cores: usize,
    pub packets_per_second: f64,
    /// Times the serial model.
    pub speed_up: f64,
    /// What the model saturates on; none if its workers are what it wants more of.
    pub saturated_on: Option<String>,
}

/// The laws fitted to one curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Synthetic work.
    pub work: String,
    /// Execution model.
    pub model: String,
    /// Amdahl's.
    pub amdahl: Fit,
    /// Gunther's.
    pub usl: Fit,
}

/// A cell that was held out.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// Synthetic work.
    pub work: String,
    /// Execution model.
    pub model: String,
    /// Workers, besides the farm's reader.
    pub workers: usize,
    /// Predicted times the serial model.
    pub predicted: f64,
    pub measured: Summary,
    /// Predicted over the measured median, less one.
    pub error: f64,
}

/// What paper 000 found, and what is predicted.
#[derive(Clone, Debug, Serialize)]
pub struct Article {
    /// Synthetic work.
    pub work: String,
    /// Cores and tokens.
    pub cores: usize,
    /// Times the serial model in the article.
    pub found: f64,
    /// Predicted with as many packets.
    pub predicted: f64,
}

/// What the experiment came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Costs of handing over.
    pub machine: MachineCosts,
    /// All points.
    pub points: Vec<Predicted>,
    /// What fits them.
    pub curves: Vec<Curve>,
    /// Beside an article.
    pub article: Vec<Article>,
    /// What was held out; empty if nothing was measured.
    pub validation: Vec<Validation>,
}

/// Measures what a prediction needs: serial runs, alone and beside a copy, and hand-over.
pub fn calibrate(
    prepared: &Prepared<'_>,
    runs: &[ReplayOptions],
    input: &str,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<CostsFile, ReplayError> {
    progress("measuring hand-over");
    let machine = thalweg_exec::measure_machine();
    let mut works = Vec::new();
    for run in runs {
        progress(&format!("recording work {}", run.work));
        prepared.record(run)?;
        let (mut alone, mut records, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.runs {
            let (cpu, costs) = prepared.record(run)?;
            alone.push(cpu);
            records.push(costs);
            let both: Vec<_> = thread::scope(|scope| {
                let copies: Vec<_> = (0..2).map(|_| scope.spawn(|| prepared.record(run))).collect();
                copies.into_iter().map(|copy| copy.join()).collect()
            });
            for copy in both {
                let copy = copy.map_err(|_| ReplayError::Options("a copy panicked".to_owned()))?;
                beside.push(copy?.0);
            }
        }
        let nothing = || ReplayError::Options("the input has no packets".to_owned());
        let costs = Costs::median(&records).filter(|costs| costs.total_ns() > 0).ok_or_else(nothing)?;
        let extra = (middle_ns(beside) * 1000 / middle_ns(alone).max(1)).saturating_sub(1000);
        works.push(WorkCosts {
            work: run.work.to_string(),
            groups_per_worker: prepared.shard_groups(run, 1)?,
            groups_max: prepared.shard_groups(run, usize::from(u16::MAX))?,
            contention_permille: (0..CORES_MAX).map(|others| 1000 + extra * others).collect(),
            costs,
        });
    }
    Ok(CostsFile { input: input.to_owned(), machine, works })
}

/// The middle one of processor times. Not of elapsed times: a thread that waits for a core is not slowed by its neighbor's
/// memory traffic, which is all that contention is here.
fn middle_ns(mut times: Vec<Duration>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Runs a model over the costs of a work.
fn imitate(
    machine: &MachineCosts,
    work: &WorkCosts,
    costs: &Costs,
    options: &ModelOptions,
    cores: usize,
) -> Result<RunReport<()>, PredictError> {
    let mut machine = machine.clone();
    machine.hand_over.contention_permille.clone_from(&work.contention_permille);
    let groups = (work.groups_per_worker * options.workers).min(work.groups_max);
    thalweg_exec::imitate(costs, &machine, cores, groups, options).map_err(|source| PredictError::Model {
        model: options.kind.name(),
        cores,
        source,
    })
}

fn model_options(kind: ModelKind, workers: usize, options: &Options) -> ModelOptions {
    let tokens = options.tokens.unwrap_or(TOKENS_DEFAULT.max(workers));
    ModelOptions { tokens, ..ModelOptions::new(kind, workers) }
}

/// Every model and core count over the costs.
pub fn predict(
    file: &CostsFile,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome, PredictError> {
    let mut outcome = Outcome { machine: file.machine.clone(), ..Outcome::default() };
    for work in &file.works {
        for kind in ModelKind::ALL.into_iter().filter(|kind| *kind != ModelKind::Serial) {
            let mut curve = Vec::new();
            for &cores in &options.cores {
                progress(&format!("{kind} on {cores} virtual cores, work {}", work.work));
                let point = point(file, work, kind, cores, options)?;
                curve.push((cores as f64, point.speed_up));
                outcome.points.push(point);
            }
            let (work, model) = (work.work.clone(), kind.name().to_owned());
            outcome.curves.push(Curve { work, model, amdahl: Fit::amdahl(&curve), usl: Fit::usl(&curve) });
        }
        if work.work != "none" {
            outcome.article.push(article(file, work)?);
        }
    }
    Ok(outcome)
}

fn point(
    file: &CostsFile,
    work: &WorkCosts,
    kind: ModelKind,
    cores: usize,
    options: &Options,
) -> Result<Predicted, PredictError> {
    let workers = if kind.has_readers() { (cores - 1).max(1) } else { cores };
    let costs = work.costs.repeated(work.costs.jobs.len().max(cores * CHUNKS_PER_CORE));
    let report = imitate(&file.machine, work, &costs, &model_options(kind, workers, options), cores)?;
    let elapsed_ns = report.elapsed.as_nanos().max(1) as f64;
    Ok(Predicted {
        work: work.work.clone(),
        model: kind.name().to_owned(),
        cores,
        packets_per_second: costs.packets() as f64 * 1e9 / elapsed_ns,
        speed_up: costs.total_ns() as f64 / elapsed_ns,
        saturated_on: saturated_on(&costs, &report),
    })
}

/// The part that can only be done by one core at a time and is busy nearly all the time.
fn saturated_on(costs: &Costs, report: &RunReport<()>) -> Option<String> {
    let elapsed_ns = report.elapsed.as_nanos().max(1) as f64;
    let sum = |of: &dyn Fn(&thalweg_exec::JobCost) -> u64| costs.jobs.iter().map(of).sum::<u64>() as f64;
    let mut parts = Vec::new();
    match report.kind {
        ModelKind::Pipeline => {
            let line = report.threads.iter().filter(|thread| thread.role == "worker");
            for (thread, stages) in line.zip(&report.grouping) {
                let names: Vec<&str> =
                    costs.stages[stages.clone()].iter().map(|(name, _)| name.as_str()).collect();
                parts.push((format!("stages {}", names.join(" + ")), thread.busy.as_nanos() as f64));
            }
        }
        ModelKind::Farm | ModelKind::Chain => {
            let readers = report.threads.iter().filter(|thread| thread.role == "reader");
            parts.extend(
                readers.map(|thread| {
                    ("the reader".to_owned(), (thread.busy + thread.in_source).as_nanos() as f64)
                }),
            );
        }
        ModelKind::Serial | ModelKind::RunToCompletion | ModelKind::Tokens => {
            let ordered = costs.stages.iter().enumerate().filter(|(_, (_, scope))| *scope == Scope::Ordered);
            parts.extend(
                ordered.map(|(at, (name, _))| (format!("the turn of {name}"), sum(&|job| job.stages_ns[at]))),
            );
            parts.push(("the source".to_owned(), sum(&|job| job.source_ns)));
            parts.push(("the sink".to_owned(), sum(&|job| job.sink_ns)));
        }
    }
    let (name, busy) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (busy / elapsed_ns >= SATURATED).then_some(name)
}

fn article(file: &CostsFile, work: &WorkCosts) -> Result<Article, PredictError> {
    let (packets, cores, found) = ARTICLE;
    let per_chunk = (work.costs.packets() / work.costs.jobs.len() as u64).max(1);
    let costs = work.costs.repeated(usize::try_from(packets.div_ceil(per_chunk)).unwrap_or(usize::MAX));
    let options = ModelOptions { tokens: cores, ..ModelOptions::new(ModelKind::Tokens, cores) };
    let report = imitate(&file.machine, work, &costs, &options, cores)?;
    let predicted = costs.total_ns() as f64 / report.elapsed.as_nanos().max(1) as f64;
    Ok(Article { work: work.work.clone(), cores, found, predicted })
}

/// Measures the models with as many workers as this machine has cores for, in rounds, and puts the results beside
/// predictions for the same input, workers and cores. On one core there is nothing to measure.
pub fn validate(
    outcome: &mut Outcome,
    file: &CostsFile,
    prepared: &Prepared<'_>,
    runs: &[ReplayOptions],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(), PredictError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> = [2, 4, 8, 16, 32].into_iter().filter(|workers| *workers <= cores).collect();
    if counts.is_empty() {
        return Ok(());
    }
    for (run, work) in runs.iter().zip(&file.works) {
        let cell = |model: &str, workers| Cell {
            model: model.to_owned(),
            workers,
            chunk_packets: run.chunk_packets,
            work: work.work.clone(),
        };
        let mut cells = vec![cell(SERIAL, 1)];
        for kind in ModelKind::ALL.into_iter().filter(|kind| *kind != ModelKind::Serial) {
            cells.extend(counts.iter().map(|workers| cell(kind.name(), *workers)));
        }
        let packets = work.costs.packets();
        let mut measured = Runs::new(prepared, run.clone(), [packets; 2], packets);
        let run_options = RunOptions { runs: options.runs, warm_ups: 1, seed: options.seed };
        let results = models::run(
            &cells,
            &run_options,
            |cell| measured.measure(cell),
            |step| progress(&format!("measuring {}", step.cell)),
        )
        .map_err(|error| PredictError::Measure(Box::new(error)))?;
        let serial = results.cells[0].packets_per_second.median;
        for result in &results.cells[1..] {
            let Some(kind) = ModelKind::ALL.into_iter().find(|kind| kind.name() == result.cell.model) else {
                continue;
            };
            let mut model = ModelOptions::new(kind, result.cell.workers);
            model.tokens = run.tokens;
            let report = imitate(&file.machine, work, &work.costs, &model, cores)?;
            let predicted = work.costs.total_ns() as f64 / report.elapsed.as_nanos().max(1) as f64;
            let measured = result.packets_per_second.scaled(1.0 / serial);
            outcome.validation.push(Validation {
                work: work.work.clone(),
                model: result.cell.model.clone(),
                workers: result.cell.workers,
                predicted,
                measured,
                error: predicted / measured.median - 1.0,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_exec::JobCost;

    /// Five hundred chunks with a stage in order that is a tenth of the work.
    fn file() -> CostsFile {
        let stages = vec![("arrival".to_owned(), Scope::Ordered), ("route".to_owned(), Scope::Whole)];
        let job = JobCost { packets: 100, stages_ns: vec![1_000, 9_000], ..JobCost::default() };
        let costs = Costs { stages, first_split_stage: 2, jobs: vec![job; 500] };
        let work = WorkCosts {
            work: "none".to_owned(),
            groups_per_worker: 2,
            groups_max: 64,
            contention_permille: vec![1000],
            costs,
        };
        CostsFile { input: "made up".to_owned(), machine: MachineCosts::default(), works: vec![work] }
    }

    fn options(cores: &[usize]) -> Options {
        Options { cores: cores.to_vec(), tokens: None, runs: 1, seed: 1 }
    }

    #[test]
    fn curves_end_at_what_one_core_must_do() {
        let outcome = predict(&file(), &options(&[1, 2, 4, 16, 64]), &mut |_| ()).unwrap();
        let at = |model: &str, cores| {
            outcome.points.iter().find(|point| point.model == model && point.cores == cores).unwrap()
        };
        for model in ["run-to-completion", "tokens"] {
            assert!((at(model, 2).speed_up - 2.0).abs() < 0.02, "{model}: {:?}", at(model, 2));
            assert!((at(model, 64).speed_up - 10.0).abs() < 0.2, "{model}: {:?}", at(model, 64));
            assert_eq!(at(model, 64).saturated_on.as_deref(), Some("the turn of arrival"), "{model}");
            assert_eq!(at(model, 2).saturated_on, None, "{model}");
        }
        let pipeline = at("pipeline", 64);
        assert!((pipeline.speed_up - 10.0 / 9.0).abs() < 0.02, "{pipeline:?}");
        assert_eq!(pipeline.saturated_on.as_deref(), Some("stages route"));
    }

    #[test]
    fn a_file_of_costs_gives_the_same_prediction_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.json");
        file().write(&path).unwrap();
        let again = CostsFile::read(&path).unwrap();
        let json = |file: &CostsFile| {
            serde_json::to_string(&predict(file, &options(&[3, 7]), &mut |_| ()).unwrap()).unwrap()
        };
        assert_eq!(json(&again), json(&file()));
        fs::write(&path, "{}").unwrap();
        assert!(CostsFile::read(&path).is_err());
    }
}
