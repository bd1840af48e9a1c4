//! `thalweg lab models`: execution models on one input.
//!
//! A run is a replay with its input in memory, in this process: tables are built once, everything that
//! remembers packets is new for each run. Whatever else a run counts must be the same in every run with
//! the same chunk size and as many packets; if it is not, there is no report but an error.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use thalweg_config::RouterConfig;
use thalweg_lab::models::{self, Cell, CellRun, Grid, Outcome, Progress, RunOptions, SERIAL};
use thalweg_lab::report::Origin;
use thalweg_lab::workload::generate::{self, Generated};
use thalweg_replay::summary::{ClassSummary, NatSummary, PortSummary};
use thalweg_replay::{ModelKind, Prepared, ReplayError, ReplayOptions, ReplaySummary, Work};
use thalweg_text::units::count;

use super::{LabError, command_line, show};
use crate::cli::{Format, LabModelsArgs, ModelArg};
use crate::progress::Steps;
use crate::{Failure, load_config};

const CHUNKS: [usize; 3] = [64, 256, 1600];
const CHUNKS_QUICK: [usize; 2] = [256, 1600];
const RUNS: usize = 5;
const RUNS_QUICK: usize = 3;
/// Packets of a run, without synthetic work and with. A packet with `queens:8` costs about as much as a thousand
/// without.
const PACKETS: u64 = 1_000_000;
const PACKETS_QUICK: u64 = 200_000;
const WORK_PACKETS: u64 = 20_000;
const WORK_PACKETS_QUICK: u64 = 3_200;

/// Why a run does not count.
#[derive(Debug)]
pub(crate) enum RunError {
    /// It failed.
    Replay(ReplayError),
    /// It lost or invented packets: a mistake in this program.
    Conservation(Box<ReplaySummary>),
    /// It gave another answer than a run before: a mistake in this program.
    Answer {
        /// What differs, and how.
        difference: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Replay(error) => write!(f, "{error}"),
            RunError::Conservation(s) => {
                let dropped = s.dropped_total();
                write!(f, "{} packets in, but {} out and {dropped} dropped", s.packets_in, s.packets_out)
            }
            RunError::Answer { difference } => write!(f, "not the answer of the runs before: {difference}"),
        }
    }
}

impl std::error::Error for RunError {}

/// The input of all runs.
struct Input {
    config: RouterConfig,
    files: Vec<PathBuf>,
    description: String,
}

/// What the arguments come to.
struct Setting {
    grid: Grid,
    packets: u64,
    work_packets: u64,
    runs: RunOptions,
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
    let mut runs = Runs { prepared: &prepared, base, setting: &setting, once, answers: HashMap::new() };
    let steps = Steps::on_terminal(Some(cells.len() * (setting.runs.runs + setting.runs.warm_ups)));
    let outcome = models::run(
        &cells,
        &setting.runs,
        |cell| runs.measure(cell),
        |Progress { done, cell, .. }| steps.at(done, &cell.to_string()),
    );
    steps.finish();
    let outcome = outcome.map_err(|error| Failure::Lab(LabError::Models(Box::new(error))))?;
    let description = describe(&input, once, &setting);
    let origin = Origin::here(command_line(), description);
    let report = models::report(&outcome, lead(&outcome), origin);
    show(&report, &outcome, &models::table(&outcome), &args.output, format)
}

fn setting(args: &LabModelsArgs) -> Result<Setting, Failure> {
    let numbers = |given: &[NonZeroUsize]| given.iter().map(|n| n.get()).collect::<Vec<_>>();
    let or = |given: Vec<usize>, default: &[usize]| if given.is_empty() { default.to_vec() } else { given };
    let quick = args.quick;
    let chunks = or(numbers(&args.chunks), if quick { &CHUNKS_QUICK } else { &CHUNKS });
    if let Some(chunk) = chunks.iter().find(|n| **n > usize::from(u16::MAX)) {
        return Err(Failure::Usage(format!("--chunks {chunk} is more than 65535 packets")));
    }
    if args.inputs.iter().any(|input| input.as_os_str() == "-") {
        return Err(Failure::Usage("standard input cannot be read more than once: name a file".to_owned()));
    }
    let models: Vec<ModelKind> = match args.models.as_slice() {
        [] => ModelKind::ALL.to_vec(),
        given => given.iter().map(|model: &ModelArg| ModelKind::from(*model)).collect(),
    };
    Ok(Setting {
        grid: Grid {
            models: models.iter().map(|model| model.name().to_owned()).collect(),
            workers: or(numbers(&args.workers), &powers_of_two()),
            chunk_packets: chunks,
            work: args.work.iter().map(Work::to_string).collect(),
        },
        packets: args.packets.unwrap_or(if quick { PACKETS_QUICK } else { PACKETS }),
        work_packets: args.work_packets.unwrap_or(if quick { WORK_PACKETS_QUICK } else { WORK_PACKETS }),
        runs: RunOptions {
            runs: args.runs.map_or(if quick { RUNS_QUICK } else { RUNS }, NonZeroUsize::get),
            warm_ups: 1,
            seed: args.seed,
        },
    })
}

/// 1, 2, 4 ... up to the number of cores.
fn powers_of_two() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::iter::successors(Some(1), |n: &usize| n.checked_mul(2)).take_while(|n| *n <= cores).collect()
}

/// The files named, or those made.
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
    let failed = |error| Failure::Lab(LabError::Generate(error));
    let kind = args.generate.map_or(Generated::Trace, Generated::from);
    match (&args.config, kind) {
        (Some(path), Generated::Flood) => {
            let config = load_config(path)?;
            let made = generate::flood_for(&config, packets, args.seed, &args.output).map_err(failed)?;
            let description = format!("{}, through {}", made.description, path.display());
            Ok(Input { config, files: vec![made.input], description })
        }
        (Some(_), kind) => Err(Failure::Usage(format!(
            "-c without an input: the {} workload brings its own configuration; name an input or --generate flood",
            kind.name()
        ))),
        (None, kind) => {
            let made = generate::generate(kind, packets, args.seed, &args.output).map_err(failed)?;
            let config = load_config(&made.config.unwrap_or_default())?;
            Ok(Input { config, files: vec![made.input], description: made.description })
        }
    }
}

/// Packets of one time through the input, at most as many as a run wants.
fn once(prepared: &Prepared<'_>, base: &ReplayOptions, setting: &Setting) -> Result<u64, Failure> {
    let packets_max = Some(setting.packets.max(setting.work_packets));
    let options = ReplayOptions { model: ModelKind::Serial, packets_max, ..base.clone() };
    let summary = prepared.replay(&options, &()).map_err(Failure::Replay)?;
    match summary.packets_in {
        _ if !summary.input_issues.useless.is_empty() => {
            Err(Failure::Incomplete(summary.input_issues.useless))
        }
        0 => Err(Failure::Lab(LabError::NoPackets)),
        packets => Ok(packets),
    }
}

/// Everything that does not change from run to run, and the answers so far.
struct Runs<'a> {
    prepared: &'a Prepared<'a>,
    base: ReplayOptions,
    setting: &'a Setting,
    once: u64,
    answers: HashMap<(usize, u64), Answer>,
}

impl Runs<'_> {
    fn measure(&mut self, cell: &Cell) -> Result<CellRun, RunError> {
        let refused = |what: String| RunError::Replay(ReplayError::Options(what));
        let model = ModelKind::ALL.into_iter().find(|model| model.name() == cell.model);
        let model = model.ok_or_else(|| refused(format!("no model {}", cell.model)))?;
        let work: Work = cell.work.parse().map_err(refused)?;
        let packets = if work == Work::None { self.setting.packets } else { self.setting.work_packets };
        let options = ReplayOptions {
            model,
            workers: cell.workers,
            chunk_packets: cell.chunk_packets,
            work,
            packets_max: Some(packets),
            loops: u32::try_from(packets.div_ceil(self.once)).unwrap_or(u32::MAX),
            ..self.base.clone()
        };
        let summary = self.prepared.replay(&options, &()).map_err(RunError::Replay)?;
        if !summary.is_conserved() {
            return Err(RunError::Conservation(Box::new(summary)));
        }
        self.compare(cell, &summary)?;
        Ok(CellRun {
            packets: summary.packets_in,
            elapsed_s: summary.elapsed_s,
            cpu_s: summary.cpu_s,
            residence_p50_ns: summary.latency.latency_ns_p50 as f64,
            residence_p99_ns: summary.latency.latency_ns_p99 as f64,
            // Runs share this process, so its memory says nothing about one of them.
            max_rss_bytes: 0,
        })
    }

    fn compare(&mut self, cell: &Cell, summary: &ReplaySummary) -> Result<(), RunError> {
        let answer = Answer::of(summary);
        let before =
            self.answers.entry((cell.chunk_packets, summary.packets_in)).or_insert_with(|| answer.clone());
        match before.difference(&answer) {
            None => Ok(()),
            Some(difference) => Err(RunError::Answer { difference }),
        }
    }
}

/// What must not depend on model, workers or work: everything counted but time.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    packets_out: u64,
    bytes_out: u64,
    dropped: BTreeMap<String, u64>,
    ports: Vec<(String, PortSummary)>,
    classes: Vec<(String, ClassSummary)>,
    nat: Option<NatSummary>,
}

impl Answer {
    fn of(summary: &ReplaySummary) -> Self {
        let timeless = |(name, class): (&str, &ClassSummary)| {
            (name.to_owned(), ClassSummary { latency: Default::default(), ..class.clone() })
        };
        Answer {
            packets_out: summary.packets_out,
            bytes_out: summary.bytes_out,
            dropped: summary.dropped.clone(),
            ports: summary.ports.0.clone(),
            classes: summary.classes.iter().map(timeless).collect(),
            nat: summary.nat,
        }
    }

    /// The first part in which the two differ.
    fn difference(&self, other: &Answer) -> Option<String> {
        let differs = |what: &str, before: &dyn fmt::Debug, now: &dyn fmt::Debug| {
            Some(format!("{what} were {before:?} and are {now:?}"))
        };
        match () {
            () if self.dropped != other.dropped => differs("drops", &self.dropped, &other.dropped),
            () if self.packets_out != other.packets_out => {
                differs("packets out", &self.packets_out, &other.packets_out)
            }
            () if self.bytes_out != other.bytes_out => {
                differs("bytes out", &self.bytes_out, &other.bytes_out)
            }
            () if self.classes != other.classes => differs("classes", &self.classes, &other.classes),
            () if self.ports != other.ports => differs("ports", &self.ports, &other.ports),
            () if self.nat != other.nat => differs("NAT counters", &self.nat, &other.nat),
            () => None,
        }
    }
}

/// The input, and how often a run goes through it.
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

/// What was found: each work setting's best speed-up.
fn lead(outcome: &Outcome) -> String {
    let mut text = String::from("The same packets under every execution model, with the same answer.");
    let mut works: Vec<&str> = Vec::new();
    for result in &outcome.cells {
        if !works.contains(&result.cell.work.as_str()) {
            works.push(&result.cell.work);
        }
    }
    for work in works {
        let parallel = outcome.cells.iter().filter(|r| r.cell.work == work && r.cell.model != SERIAL);
        let best = parallel.max_by(|a, b| a.speed_up.unwrap_or(0.0).total_cmp(&b.speed_up.unwrap_or(0.0)));
        let Some((best, speed_up)) = best.and_then(|best| Some((best, best.speed_up?))) else { continue };
        let with = if work == "none" { "Without synthetic work".to_owned() } else { format!("With {work}") };
        let workers = if best.cell.workers == 1 { "worker" } else { "workers" };
        text += &format!(
            " {with}, {} with {} {workers} and chunks of {} came to {speed_up:.2} times serial.",
            best.cell.model, best.cell.workers, best.cell.chunk_packets
        );
    }
    text + &disturbance(outcome)
}

/// Runs of one cell differ by this much of their median, in half of the cells, when the machine has other things
/// to do.
const SPREAD_DISTURBED: f64 = 0.25;

/// A warning if the numbers are not worth much.
fn disturbance(outcome: &Outcome) -> String {
    let mut spreads: Vec<f64> = outcome.cells.iter().map(|r| r.packets_per_second.spread()).collect();
    spreads.sort_by(f64::total_cmp);
    match spreads.get(spreads.len() / 2) {
        Some(&spread) if spread > SPREAD_DISTURBED => format!(
            " But the machine was disturbed: in half of the cells, runs differ by {:.0} % of their median or \
             more. Measure again when it is quiet.",
            spread * 100.0
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_differ_in_counts_but_not_in_time() {
        let class = ClassSummary { packets: 7, ..Default::default() };
        let mut summary = ReplaySummary {
            packets_in: 10,
            packets_out: 7,
            dropped: BTreeMap::from([("no-route".to_owned(), 3)]),
            classes: [("default".to_owned(), class)].into_iter().collect(),
            ..Default::default()
        };
        let answer = Answer::of(&summary);
        summary.elapsed_s = 3.0;
        summary.classes.0[0].1.latency.latency_ns_p50 = 99;
        assert_eq!(answer.difference(&Answer::of(&summary)), None);
        summary.dropped = BTreeMap::from([("blackhole".to_owned(), 3)]);
        let difference = answer.difference(&Answer::of(&summary)).expect("drops differ");
        assert!(difference.contains("no-route") && difference.contains("blackhole"), "{difference}");
        summary.dropped = answer.dropped.clone();
        summary.classes.0[0].1.bytes = 1;
        assert!(answer.difference(&Answer::of(&summary)).is_some_and(|d| d.starts_with("classes")));
    }
}
