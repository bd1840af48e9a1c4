//! Predicts the execution models and the schedulings of BGP (`bgp`) on more cores than this machine has.
//!
//! A serial run is recorded by chunk and stage ([`thalweg_exec::record`]), hand-over is measured between two cores,
//! and contention with two copies of the serial run at once. Then the models as shipped run on virtual cores
//! ([`thalweg_exec::imitate`]), which spend the recorded costs. [`calibrate`] measures; [`predict`] needs no clock:
//! the same [`CostsFile`] gives the same prediction on any machine.
//!
//! The runs that [`validate`] measures are held out: nothing of a run with several workers enters the costs. A
//! prediction without a measurement beside it says that it is not validated.
//!
//! Missing: caches shared by more than two cores, memory bandwidth, sockets. Contention of more than two cores is
//! extrapolated linearly from two, which is a guess.

pub(crate) mod bgp;
mod fit;
mod render;

pub use bgp::calibrate as calibrate_bgp;
pub use bgp::{BgpCosts, BgpOutcome, Load, Thesis};
pub use fit::Fit;
pub use render::{report, tables};

use crate::models::replayed::{RunError, Runs};
use crate::models::{self, Cell, ModelsError, RunOptions, SERIAL};
use crate::stats::Summary;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use thalweg_exec::{
    Costs, ExecError, MachineCosts, ModelKind, ModelOptions, RunReport, Scope, TOKENS_DEFAULT,
};
use thalweg_replay::{Prepared, ReplayError, ReplayOptions};

/// Cores to extrapolate contention to.
const CORES_MAX: u64 = 64;
/// Chunks per core, so that a curve shows the model and not the end of the input.
const CHUNKS_PER_CORE: usize = 40;
/// The fewest chunks of a measured run for each worker: with fewer, the speed-up is that of the input.
const CHUNKS_PER_WORKER: usize = 8;
/// Paper 000: the packets of its trace, its cores, and the speed-up it found.
const ARTICLE: (u64, usize, f64) = (113_405, 24, 19.0);
/// A model saturates on a part that is busy for this share of the time.
const SATURATED: f64 = 0.95;

/// What to predict, and how to measure.
#[derive(Clone, Debug)]
pub struct Options {
    pub cores: Vec<usize>,
    /// Tokens in flight; by default 24, or the number of cores if that is larger.
    pub tokens: Option<usize>,
    pub runs: usize,
    pub seed: u64,
}

/// The measured costs that predictions are made from, as a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostsFile {
    /// What was recorded, in words.
    pub input: String,
    /// Hand-over costs; contention differs by work, and is in `works`.
    pub machine: MachineCosts,
    /// One entry for each setting of synthetic work.
    pub works: Vec<WorkCosts>,
    /// The BGP daemon's work.
    pub bgp: Option<BgpCosts>,
}

/// One setting of synthetic work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkCosts {
    /// The setting, as on the command line.
    pub work: String,
    /// Shard groups that the router makes for each worker.
    pub groups_per_worker: usize,
    /// The most shard groups that it makes.
    pub groups_max: usize,
    /// The cost of work while 1, 2, ... cores work, in thousandths of its cost on one.
    pub contention_permille: Vec<u64>,
    /// The recorded costs of a serial run.
    pub costs: Costs,
}

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// A file of costs that cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A model failed on virtual cores.
    #[error("{model} on {cores} virtual cores: {source}")]
    Model { model: &'static str, cores: usize, source: ExecError },
    /// The BGP daemon failed, or a scheduling on virtual cores.
    #[error("BGP: {0}")]
    Bgp(String),
    /// A measurement failed.
    #[error(transparent)]
    Measure(Box<ModelsError<RunError>>),
}

impl CostsFile {
    /// Reads a file that [`write`](Self::write) has written.
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

    /// Writes the costs as JSON.
    pub fn write(&self, path: &Path) -> Result<(), PredictError> {
        let wrong = |reason: String| PredictError::File { path: path.to_owned(), reason };
        let text = serde_json::to_string(self).map_err(|error| wrong(error.to_string()))?;
        fs::write(path, text).map_err(|error| wrong(error.to_string()))
    }
}

/// One point of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Predicted {
    pub work: String,
    pub model: String,
    /// Virtual cores, including the farm's reader.
    pub cores: usize,
    /// Packets, or UPDATEs of BGP.
    pub per_second: f64,
    /// Speed relative to the serial model.
    pub speed_up: f64,
    /// What the model saturates on; `None` if more workers would help.
    pub saturated_on: Option<String>,
}

/// The laws fitted to one curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    pub work: String,
    pub model: String,
    /// Amdahl's law.
    pub amdahl: Fit,
    /// Gunther's universal scalability law.
    pub usl: Fit,
}

/// A measurement that no cost was taken from, beside its prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    pub work: String,
    pub model: String,
    /// Workers, not counting the farm's reader.
    pub workers: usize,
    /// Predicted speed relative to the serial model.
    pub predicted: f64,
    pub measured: Summary,
    /// Predicted speed over the measured median, minus one.
    pub error: f64,
}

/// A result of paper 000 beside the prediction for it.
#[derive(Clone, Debug, Serialize)]
pub struct Article {
    pub work: String,
    /// Cores, which are also the tokens.
    pub cores: usize,
    /// The article's speed-up.
    pub found: f64,
    /// The predicted speed-up for as many packets.
    pub predicted: f64,
}

/// The results of the experiment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    pub machine: MachineCosts,
    pub points: Vec<Predicted>,
    /// Laws fitted to the points.
    pub curves: Vec<Curve>,
    pub article: Vec<Article>,
    /// Empty if nothing was measured.
    pub validation: Vec<Validation>,
    pub bgp: Option<BgpOutcome>,
}

/// Measures what predictions of models need beside hand-over: serial runs, alone and beside a copy.
pub fn calibrate(
    prepared: &Prepared<'_>,
    runs: &[ReplayOptions],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<WorkCosts>, ReplayError> {
    let mut works = Vec::new();
    for run in runs {
        progress(&format!("recording work {}", run.work));
        // Elapsed time would include waiting for a core, which is not contention for memory.
        let record = |_| prepared.record(run).map(|(cpu, costs)| (cpu.as_secs_f64(), costs));
        let panicked = || ReplayError::Options("a copy panicked".to_owned());
        let (records, contention_permille) = recorded(options.runs, record, panicked)?;
        let nothing = || ReplayError::Options("the input has no packets".to_owned());
        let costs = Costs::median(&records).filter(|costs| costs.total_ns() > 0).ok_or_else(nothing)?;
        works.push(WorkCosts {
            work: run.work.to_string(),
            groups_per_worker: prepared.shard_groups(run, 1)?,
            groups_max: prepared.shard_groups(run, usize::from(u16::MAX))?,
            contention_permille,
            costs,
        });
    }
    Ok(works)
}

/// Records alone, with `false`, and each time 2, 4, 8 .. copies beside each other, with `true`, on as many cores as
/// there are. Returns what was recorded alone, and the cost of work while 1, 2, ... cores work, in thousandths: a straight
/// line between the measured counts, and on beyond the last two.
fn recorded<T: Send, E: Send>(
    runs: usize,
    record: impl Fn(bool) -> Result<(f64, T), E> + Sync,
    panicked: impl Fn() -> E,
) -> Result<(Vec<T>, Vec<u64>), E> {
    record(false)?;
    let counts = core_counts();
    let (mut alone, mut records, mut beside) = (Vec::new(), Vec::new(), vec![Vec::new(); counts.len()]);
    for _ in 0..runs {
        let (seconds, costs) = record(false)?;
        alone.push(seconds);
        records.push(costs);
        for (count, beside) in counts.iter().zip(&mut beside) {
            let all: Vec<_> = thread::scope(|scope| {
                let copies: Vec<_> = (0..*count).map(|_| scope.spawn(|| record(true))).collect();
                copies.into_iter().map(thread::ScopedJoinHandle::join).collect()
            });
            for copy in all {
                beside.push(copy.map_err(|_| panicked())??.0);
            }
        }
    }
    let seconds = |times: &[f64]| Summary::of(times).map_or(0.0, |times| times.median);
    let of = |(count, beside): (&usize, &Vec<f64>)| (*count, (seconds(beside) / seconds(&alone)).max(1.0));
    Ok((records, inflation(&counts.iter().zip(&beside).map(of).collect::<Vec<_>>())))
}

/// The powers of two up to the number of cores here, from 2; without a second core also 2.
fn core_counts() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, usize::from).max(2);
    std::iter::successors(Some(2), |n: &usize| n.checked_mul(2)).take_while(|n| *n <= cores).collect()
}

/// The cost of work while 1, 2, ... cores work, in thousandths, from some measured ratios: by straight lines.
fn inflation(measured: &[(usize, f64)]) -> Vec<u64> {
    let points: Vec<(f64, f64)> = std::iter::once((1.0, 1.0))
        .chain(measured.iter().map(|(cores, ratio)| (*cores as f64, *ratio)))
        .collect();
    let at = |cores: u64| {
        let cores = cores as f64;
        let line = points.windows(2).find(|line| cores <= line[1].0).or(points.windows(2).last());
        let Some([(from, low), (to, high)]) = line else { return 1.0 };
        (low + (cores - from) * (high - low) / (to - from)).max(1.0)
    };
    (1..=CORES_MAX).map(|cores| (at(cores) * 1000.0).round() as u64).collect()
}

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

/// Runs every model with every core count over the costs.
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
    if let Some(bgp) = &file.bgp {
        outcome.bgp = Some(bgp::predict(bgp, &file.machine, options, progress)?);
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
        per_second: costs.packets() as f64 * 1e9 / elapsed_ns,
        speed_up: costs.total_ns() as f64 / elapsed_ns,
        saturated_on: saturated_on(&costs, &report),
    })
}

/// The part that only one core at a time can do and that is busy nearly all the time.
fn saturated_on(costs: &Costs, report: &RunReport<()>) -> Option<String> {
    let elapsed_ns = report.elapsed.as_nanos().max(1) as f64;
    let sum = |of: &dyn Fn(&thalweg_exec::JobCost) -> u64| costs.jobs.iter().map(of).sum::<u64>() as f64;
    let mut parts = Vec::new();
    match report.kind {
        ModelKind::Pipeline | ModelKind::Replicated => {
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

/// Measures the schedulings of BGP beside the predictions for them.
pub fn validate_bgp(
    outcome: &mut Outcome,
    file: &CostsFile,
    load: Load,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(), PredictError> {
    match (&mut outcome.bgp, &file.bgp) {
        (Some(outcome), Some(costs)) => {
            bgp::validate(outcome, (costs, &file.machine), load, options, progress)
        }
        _ => Ok(()),
    }
}

/// Measures the models with as many workers as this machine has cores for, in rounds, beside predictions for the
/// same input, workers and cores. With one core there is nothing to measure.
pub fn validate(
    outcome: &mut Outcome,
    file: &CostsFile,
    prepared: &Prepared<'_>,
    runs: &[ReplayOptions],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(), PredictError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 {
        return Ok(());
    }
    let counts = core_counts();
    let chunks = counts.last().map_or(0, |most| most * CHUNKS_PER_WORKER);
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
        let costs = work.costs.repeated(work.costs.jobs.len().max(chunks));
        let mut measured = Runs::new(prepared, run.clone(), [costs.packets(); 2], work.costs.packets());
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
            let report = imitate(&file.machine, work, &costs, &model, cores)?;
            let predicted = costs.total_ns() as f64 / report.elapsed.as_nanos().max(1) as f64;
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
        CostsFile {
            input: "made up".to_owned(),
            machine: MachineCosts::default(),
            works: vec![work],
            bgp: None,
        }
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
    fn work_costs_more_beside_more_cores_by_straight_lines() {
        let permille = inflation(&[(2, 1.1), (4, 1.2), (8, 2.0)]);
        assert_eq!(permille.len() as u64, CORES_MAX);
        let at = |cores: usize| permille[cores - 1];
        assert_eq!([at(1), at(2), at(3), at(4), at(6), at(8)], [1000, 1100, 1150, 1200, 1600, 2000]);
        assert_eq!(at(16), 3600, "on along the last line");
        assert_eq!(inflation(&[(2, 1.0)])[63], 1000);
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
