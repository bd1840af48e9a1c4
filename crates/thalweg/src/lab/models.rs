//! `thalweg lab models`: compares execution models on one input.
//!
//! [`thalweg_lab::models::replayed`] describes how a cell is run.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use thalweg_config::RouterConfig;
use thalweg_lab::models::replayed::{RunError, Runs};
use thalweg_lab::models::{self, Grid, ModelsError, Progress, RunOptions};
use thalweg_lab::report::Origin;
use thalweg_lab::workload::generate::{self, GenerateError, Generated};
use thalweg_replay::{ModelKind, Prepared, ReplayError, ReplayOptions, Work};
use thalweg_text::units::count;

use super::args::{LabRunArgs, LabWorkArgs, VARY, numbers, or_usual};
use super::{command_line, failed, show_all};
use crate::cli::{Format, MODELS, one_of};
use crate::progress::Steps;
use crate::{Failure, load_config};

const CHUNKS: [usize; 3] = [64, 256, 1600];
const CHUNKS_QUICK: [usize; 2] = [256, 1600];
const RUNS: usize = 5;
const RUNS_QUICK: usize = 3;
/// Packets of a run, without and with synthetic work. A packet with `queens:8` costs about as much as a
/// thousand without.
const PACKETS: u64 = 1_000_000;
const PACKETS_QUICK: u64 = 200_000;
const WORK_PACKETS: u64 = 20_000;
const WORK_PACKETS_QUICK: u64 = 3_200;
/// The fewest chunks for each worker: with fewer, some workers have nothing to do at the end of a run, and the
/// speed-up is that of the input.
const CHUNKS_PER_WORKER: usize = 8;
const CHUNKS_PER_WORKER_QUICK: usize = 2;

/// The input of all runs.
struct Input {
    config: RouterConfig,
    files: Vec<PathBuf>,
    description: String,
}

/// The parameters derived from the arguments.
struct Setting {
    grid: Grid,
    packets: u64,
    work_packets: u64,
    runs: RunOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab models                                          the article's trace, generated
  thalweg lab models --generate flood -c router.toml          64-byte packets over your routes
  thalweg lab models trace.txt -c router.toml --workers 1,2 --work none,queens:8 --output report
  thalweg lab models --models serial,run-to-completion,replicated --coprocessor 1000,200000
  thalweg lab models --quick                                  under a minute, to see that it works
Default of --runs: 5; 3 with --quick.")]
pub(crate) struct LabModelsArgs {
    /// Captures and text traces that every run processes, repeated if they are short
    #[arg(value_name = "INPUT", requires = "config", conflicts_with = "generate")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Configuration file; with `--generate flood`, packets go to its routes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Generate the input (and, without -c, the configuration) [default: trace]
    #[arg(long, value_enum, value_name = "WORKLOAD")]
    pub(crate) generate: Option<Generated>,
    /// Models to compare [default: all]
    #[arg(long, value_parser = one_of(MODELS), value_delimiter = ',', value_name = "MODELS", help_heading = VARY)]
    pub(crate) models: Vec<ModelKind>,
    /// Worker counts [default: 1 and each power of two up to the number of cores]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = VARY)]
    pub(crate) workers: Vec<NonZeroUsize>,
    /// Chunk sizes in packets [default: 64,256,1600; 256,1600 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "SIZES", help_heading = VARY)]
    pub(crate) chunks: Vec<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) work: LabWorkArgs,
    /// Chunks in flight in the tokens model
    #[arg(long, value_name = "N", default_value = "24")]
    pub(crate) tokens: NonZeroUsize,
    /// Reader threads of the farm model
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) readers: NonZeroUsize,
    /// Also run all cells of the smallest chunks with a coprocessor that all workers share and that serves one packet at
    /// a time, for each of these service times in nanoseconds
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NS",
        value_parser = clap::value_parser!(u64).range(1..=10_000_000),
        help_heading = VARY
    )]
    pub(crate) coprocessor: Vec<u64>,
    /// Packets per run without synthetic work [default: 1000000; 200000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) packets: Option<u64>,
    /// Packets per run with synthetic work [default: 20000, but at least 8 chunks for each worker; 3200 and 2 with
    /// --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) work_packets: Option<u64>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabModelsArgs, format: Format) -> Result<(), Failure> {
    let setting = setting(args)?;
    let input = input(args, setting.packets)?;
    let prepared = Prepared::new(&input.config).map_err(Failure::Replay)?;
    let base = ReplayOptions {
        inputs: input.files.clone(),
        tokens: args.tokens.get(),
        readers: args.readers.get(),
        preload: true,
        ..ReplayOptions::default()
    };
    let once = once(&prepared, &base, &setting)?;
    let cells = setting.grid.cells();
    let mut runs = Runs::new(&prepared, base, [setting.packets, setting.work_packets], once);
    let steps = Steps::on_terminal();
    let outcome = models::run(
        &cells,
        &setting.runs,
        |cell| runs.measure(cell),
        |Progress { done, total, cell }| steps.of(done, total, &cell.to_string()),
    );
    steps.finish();
    let mut outcome = outcome.map_err(of_models)?;
    let chunk = setting.grid.chunk_packets.iter().copied().max().unwrap_or(1);
    for work in &setting.grid.work {
        outcome.hot_spots.extend(runs.hot_spots(work, chunk).map_err(failed)?);
    }
    let grid = &setting.grid;
    let least = grid.chunk_packets.iter().copied().min().unwrap_or(1);
    let workers = grid.workers.iter().copied().max().unwrap_or(1);
    for model in grid.models.iter().filter(|model| *model != models::SERIAL) {
        let work = grid.work.last().cloned().unwrap_or_default();
        let cell = models::Cell { model: model.clone(), workers, chunk_packets: least, work };
        outcome.time_lines.push(runs.time_line(&cell).map_err(failed)?);
    }
    let with_unit: Vec<_> = cells.iter().filter(|cell| cell.chunk_packets == least).cloned().collect();
    outcome.coprocessor = runs.coprocessor(&with_unit, &args.coprocessor, &setting.runs).map_err(failed)?;
    let description = describe(&input, once, &setting);
    let origin = Origin::here(command_line(), description);
    let report = models::report(&outcome, models::lead(&outcome), origin);
    show_all(&report, &outcome, &models::tables(&outcome), &args.run.output("lab-models"), format)
}

/// Errors that other arguments would avoid are usage errors.
fn of_models(error: ModelsError<RunError>) -> Failure {
    match &error {
        ModelsError::Nothing | ModelsError::Run { source: RunError::Replay(ReplayError::Options(_)), .. } => {
            Failure::Usage(error.to_string())
        }
        _ => failed(error),
    }
}

/// The failure of an experiment on generated input.
fn of_generated(error: GenerateError) -> Failure {
    match error {
        GenerateError::NoRoutes => Failure::Usage(error.to_string()),
        _ => failed(error),
    }
}

fn setting(args: &LabModelsArgs) -> Result<Setting, Failure> {
    let quick = args.run.quick;
    let usual: &[usize] = if quick { &CHUNKS_QUICK } else { &CHUNKS };
    let chunks = or_usual(&numbers(&args.chunks), usual);
    if let Some(chunk) = chunks.iter().find(|n| **n > usize::from(u16::MAX)) {
        return Err(Failure::Usage(format!("--chunks {chunk} is more than 65535 packets")));
    }
    if args.inputs.iter().any(|input| input.as_os_str() == "-") {
        return Err(Failure::Usage("standard input can be read only once: name a file".to_owned()));
    }
    let models = or_usual(&args.models, &ModelKind::ALL);
    let workers = or_usual(&numbers(&args.workers), &powers_of_two());
    let usual_work = if quick {
        WORK_PACKETS_QUICK.max(least_packets(&chunks, &workers, CHUNKS_PER_WORKER_QUICK))
    } else {
        WORK_PACKETS.max(least_packets(&chunks, &workers, CHUNKS_PER_WORKER))
    };
    Ok(Setting {
        grid: Grid {
            models: models.iter().map(|model| model.name().to_owned()).collect(),
            workers,
            chunk_packets: chunks,
            work: args.work.work.iter().map(Work::to_string).collect(),
        },
        packets: args.packets.unwrap_or(if quick { PACKETS_QUICK } else { PACKETS }),
        work_packets: args.work_packets.unwrap_or(usual_work),
        runs: RunOptions { runs: args.run.runs(RUNS, RUNS_QUICK), warm_ups: 1, seed: args.run.seed(0) },
    })
}

/// Packets that give each worker so many chunks, in every cell.
fn least_packets(chunks: &[usize], workers: &[usize], chunks_per_worker: usize) -> u64 {
    let most = |counts: &[usize]| counts.iter().copied().max().unwrap_or(1);
    (most(chunks) * most(workers) * chunks_per_worker) as u64
}

/// 1, 2, 4 ... up to the number of cores.
fn powers_of_two() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::iter::successors(Some(1), |n: &usize| n.checked_mul(2)).take_while(|n| *n <= cores).collect()
}

/// The given or generated files.
fn input(args: &LabModelsArgs, packets: u64) -> Result<Input, Failure> {
    if !args.inputs.is_empty() {
        let Some(config) = &args.config else {
            return Err(Failure::Usage("an input needs a configuration: -c FILE".to_owned()));
        };
        let names: Vec<String> = args.inputs.iter().map(|path| path.display().to_string()).collect();
        return Ok(Input {
            config: load_config(config)?,
            files: args.inputs.clone(),
            description: format!("{} through {}", names.join(", "), config.display()),
        });
    }
    let kind = args.generate.unwrap_or(Generated::Trace);
    match (&args.config, kind) {
        (Some(path), Generated::Flood) => {
            let config = load_config(path)?;
            let made =
                generate::flood_for(&config, packets, args.run.seed(0), &args.run.output("lab-models"))
                    .map_err(of_generated)?;
            let description = format!("{}, through {}", made.description, path.display());
            Ok(Input { config, files: vec![made.input], description })
        }
        (Some(_), kind) => Err(Failure::Usage(format!(
            "the {} workload has its own configuration: leave out -c, name an input, or choose --generate flood",
            kind.name()
        ))),
        (None, kind) => {
            let made = generate::generate(kind, packets, args.run.seed(0), &args.run.output("lab-models"))
                .map_err(of_generated)?;
            let config = load_config(&made.config.unwrap_or_default())?;
            Ok(Input { config, files: vec![made.input], description: made.description })
        }
    }
}

/// Packets in one pass over the input, at most as many as a run needs.
fn once(prepared: &Prepared<'_>, base: &ReplayOptions, setting: &Setting) -> Result<u64, Failure> {
    let packets_max = Some(setting.packets.max(setting.work_packets));
    let options = ReplayOptions { model: ModelKind::Serial, packets_max, ..base.clone() };
    let summary = prepared.replay(&options, &()).map_err(Failure::Replay)?;
    match summary.packets_in {
        _ if !summary.input_issues.useless.is_empty() => {
            Err(Failure::Incomplete(summary.input_issues.useless))
        }
        0 => Err(failed("the input has no packets")),
        packets => Ok(packets),
    }
}

/// Describes the input and how often a run repeats it.
fn describe(input: &Input, once: u64, setting: &Setting) -> String {
    let mut text = input.description.clone();
    let longest = setting.packets.max(setting.work_packets);
    if once < longest {
        text += &format!("; {} packets, over and over", count(once));
        if setting.grid.chunk_packets.iter().any(|chunk| *chunk as u64 > once) {
            text += " (no chunk is larger than the input)";
        }
    }
    text + ", in memory before the clock starts"
}
