//! `thalweg lab bgp`: schedulings of the daemon under the same loads.
//!
//! The daemon is this program itself (`thalweg run`), in a process of its own; neighbors and monitor are the
//! laboratory's, in this process. What compares schedulings without anything that would share their cores is run
//! [in memory](in_memory).

mod in_memory;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_lab::bgp::bench::{BenchError, Feed, Run, RunSpec, measure};
use thalweg_lab::bgp::daemon::DaemonSpec;
use thalweg_lab::bgp::experiment::{self, Cell, ExperimentError, Outcome, Part, RunOptions, SERIAL};
use thalweg_lab::bgp::monitor::Goal;
use thalweg_lab::bgp::order::{Mix, Way};
use thalweg_lab::bgp::receive::{self, Received, Strategy};
use thalweg_lab::bgp::replay::{Replay, ReplayError};
use thalweg_lab::bgp::scenario::{Scenario, with_marks};
use thalweg_lab::bgp::table::{Neighbors, Packing, PathKind, Table};
use thalweg_lab::report::Origin;
use thalweg_lab::stats::shuffle;
use thalweg_text::units::count;

use super::{LabError, command_line, show_all};
use crate::Failure;
use crate::cli::{Format, LabBgpArgs};
use crate::progress::Steps;

/// Prefixes that every neighbor announces, and those of Wu's loads.
const PREFIXES: usize = 50_000;
const PREFIXES_QUICK: usize = 20_000;
const WU_PREFIXES: usize = 100_000;
const WU_PREFIXES_QUICK: usize = 50_000;
const RUNS: usize = 5;
const RUNS_QUICK: usize = 3;
/// UPDATEs of a block along a trace, as in the thesis.
const BLOCK: usize = 500;
/// The way with turns of several messages.
const TURN: usize = 16;
/// A load that takes longer than this has failed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Messages of a file at most: a gigabyte of them, as a rule.
const REPLAY_MESSAGES_MAX: usize = 4_000_000;
/// Where the load of the first part comes from.
const IN_MEMORY: &str = "in memory";
const IN_BUFFERS: &str = "in the kernel's buffers";

/// Why the experiment came to nothing.
#[derive(Debug)]
pub(crate) enum BgpError {
    /// The trace cannot be read.
    Replay(ReplayError),
    /// A measurement failed.
    Experiment(Box<ExperimentError<MeasureError>>),
    /// Receiving failed.
    Receive(std::io::Error),
    /// Where this program is, the system does not say.
    Program(std::io::Error),
}

impl fmt::Display for BgpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BgpError::Replay(error) => write!(f, "{error}"),
            BgpError::Experiment(error) => write!(f, "{error}"),
            BgpError::Receive(error) => write!(f, "receiving over loopback: {error}"),
            BgpError::Program(error) => write!(f, "where is this program? {error}"),
        }
    }
}

/// Why a run gave no number.
#[derive(Debug)]
pub(crate) enum MeasureError {
    /// The daemon in a process of its own.
    Daemon(BenchError),
    /// The speaker in this process.
    InMemory(String),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon(error) => write!(f, "{error}"),
            Self::InMemory(error) => write!(f, "in memory: {error}"),
        }
    }
}

fn failed(error: BgpError) -> Failure {
    Failure::Lab(LabError::Bgp(error))
}

/// What the arguments come to.
struct Setting {
    parts: Vec<Part>,
    /// Scheduling and threads.
    ways: Vec<(String, usize)>,
    neighbors: Neighbors,
    prefixes: usize,
    wu_prefixes: usize,
    runs: RunOptions,
    replay: Option<(String, Replay)>,
    program: PathBuf,
    folder: PathBuf,
}

pub(super) fn run(args: &LabBgpArgs, format: Format) -> Result<(), Failure> {
    let setting = setting(args)?;
    let mut loads = Loads::default();
    let cells = cells(&setting);
    let steps = Steps::on_terminal(Some(cells.len() * (setting.runs.runs + setting.runs.warm_ups)));
    let results = experiment::run(
        &cells,
        &setting.runs,
        |cell| loads.measure(&setting, cell),
        |done, _, cell| steps.at(done, &format!("{:?}: {cell}", cell.part)),
    );
    steps.finish();
    let results = results.map_err(|error| failed(BgpError::Experiment(Box::new(error))))?;
    let mut outcome =
        Outcome { runs: setting.runs.runs, block_updates: BLOCK, cells: results, ..Outcome::default() };
    if setting.parts.contains(&Part::Receive) {
        receive(&setting, args.run.quick, &mut outcome)?;
    }
    let origin = Origin::here(command_line(), describe(&setting));
    let report = experiment::report(&outcome, lead(&outcome), origin);
    show_all(&report, &outcome, &experiment::tables(&outcome), &args.run.output("lab-bgp"), format)
}

fn setting(args: &LabBgpArgs) -> Result<Setting, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads: Vec<usize> = if args.threads.is_empty() {
        std::iter::successors(Some(1), |n: &usize| n.checked_mul(2)).take_while(|n| *n <= cores).collect()
    } else {
        args.threads.iter().map(|n| n.get()).collect()
    };
    let mut ways = Vec::new();
    for scheduling in &args.schedulings {
        let scheduling = scheduling.name().to_owned();
        let of: &[usize] = if scheduling == SERIAL { &[1] } else { &threads };
        ways.extend(of.iter().map(|threads| (scheduling.clone(), *threads)));
    }
    let replay = match &args.trace {
        None => None,
        Some(path) => {
            let replay = Replay::read(path, REPLAY_MESSAGES_MAX).map_err(|e| failed(BgpError::Replay(e)))?;
            Some((path.display().to_string(), replay))
        }
    };
    let parts = if args.only.is_empty() { Part::ALL.to_vec() } else { args.only.clone() };
    let quick = args.run.quick;
    let or = |given: Option<NonZeroUsize>, normal, few| {
        given.map_or(if quick { few } else { normal }, |n| n.get())
    };
    Ok(Setting {
        parts,
        ways,
        neighbors: Neighbors {
            count: args.neighbors.get(),
            address: std::net::Ipv4Addr::new(127, 0, 1, 1),
            as_number: 64_600,
        },
        prefixes: or(args.prefixes, PREFIXES, PREFIXES_QUICK),
        wu_prefixes: or(args.prefixes, WU_PREFIXES, WU_PREFIXES_QUICK),
        runs: RunOptions {
            runs: args.run.runs(RUNS, RUNS_QUICK),
            warm_ups: usize::from(!quick),
            seed: args.run.seed(1),
        },
        replay,
        program: std::env::current_exe().map_err(|error| failed(BgpError::Program(error)))?,
        folder: args.run.output("lab-bgp").join("daemon"),
    })
}

/// Each part's cells. All but the first look at each scheduling with its largest number of threads only.
fn cells(setting: &Setting) -> Vec<Cell> {
    let most = setting.ways.iter().map(|(_, threads)| *threads).max().unwrap_or(1);
    let mut cells = Vec::new();
    for &part in &setting.parts {
        for load in loads_of(setting, part) {
            for (scheduling, threads) in &setting.ways {
                if part == Part::SpeedUp || scheduling == SERIAL || *threads == most {
                    let (scheduling, threads, load) = (scheduling.clone(), *threads, load.clone());
                    cells.push(Cell { part, scheduling, threads, load });
                }
            }
        }
    }
    cells
}

fn loads_of(setting: &Setting, part: Part) -> Vec<String> {
    match part {
        Part::SpeedUp => vec![IN_MEMORY.to_owned(), IN_BUFFERS.to_owned()],
        Part::Functions => vec![IN_BUFFERS.to_owned()],
        Part::Blocks => vec!["table".to_owned()],
        Part::Mixes => Mix::ALL.iter().map(Mix::to_string).collect(),
        Part::Ways => ways().into_iter().map(|(name, _)| name).collect(),
        Part::Wu => (1..=8).map(|n| Scenario::wu(n, 1, setting.neighbors, setting.runs.seed).name).collect(),
        Part::Receive => Vec::new(),
    }
}

fn ways() -> [(String, Way); 3] {
    [
        ("file order".to_owned(), Way::FileOrder),
        (format!("turns of {TURN}"), Way::RoundRobin(TURN)),
        ("thread per neighbor".to_owned(), Way::ThreadPerPeer),
    ]
}

/// Loads that have been made, by part and name.
#[derive(Default)]
struct Loads(HashMap<(Part, String), Scenario>);

impl Loads {
    fn measure(&mut self, setting: &Setting, cell: &Cell) -> Result<Run, MeasureError> {
        // Parts that differ in how they send, not in what, share a load.
        let key = match cell.part {
            Part::Wu | Part::Blocks => (cell.part, cell.load.clone()),
            _ => (Part::SpeedUp, String::new()),
        };
        let scenario = self.0.entry(key).or_insert_with(|| scenario(setting, cell));
        if cell.load == IN_MEMORY {
            let spec = in_memory::Spec {
                scheduling: cell.scheduling.parse().map_err(|e| MeasureError::InMemory(format!("{e}")))?,
                threads: cell.threads,
                timeout: TIMEOUT,
            };
            return in_memory::measure(&spec, scenario).map_err(MeasureError::InMemory);
        }
        let feed = match cell.part {
            Part::SpeedUp | Part::Functions => Feed::Preloaded,
            Part::Mixes => {
                let mix = Mix::ALL.into_iter().find(|mix| mix.to_string() == cell.load);
                Feed::Live(mix.unwrap_or(Mix::Mix1).way())
            }
            Part::Ways => {
                let way = ways().into_iter().find(|(name, _)| *name == cell.load);
                Feed::Live(way.map_or(Way::FileOrder, |(_, way)| way))
            }
            Part::Wu | Part::Receive => Feed::Live(Way::ThreadPerPeer),
            Part::Blocks => Feed::Live(Way::RoundRobin(1)),
        };
        let daemon = DaemonSpec {
            program: setting.program.clone(),
            scheduling: cell.scheduling.clone(),
            threads: cell.threads,
            profile: cell.part == Part::Functions,
            folder: setting.folder.clone(),
        };
        let spec = RunSpec { daemon, feed, seed: setting.runs.seed, timeout: TIMEOUT };
        measure(&spec, scenario).map_err(MeasureError::Daemon)
    }
}

fn scenario(setting: &Setting, cell: &Cell) -> Scenario {
    let (neighbors, seed) = (setting.neighbors, setting.runs.seed);
    match (cell.part, &setting.replay) {
        (Part::Wu, _) => {
            let number = cell.load.split(':').next().and_then(|n| n.parse().ok()).unwrap_or(1);
            Scenario::wu(number, setting.wu_prefixes, neighbors, seed)
        }
        (Part::Blocks, _) => {
            let mut scenario = Scenario::overlap(setting.prefixes, Packing::Real, neighbors, seed);
            if let Some(phase) = scenario.phases.last_mut() {
                let (streams, blocks) = with_marks(&phase.streams, BLOCK, &neighbors);
                phase.marks = blocks * streams.len();
                phase.goal = Goal::Marks(phase.marks);
                phase.streams = streams;
            }
            scenario
        }
        (_, Some((name, replay))) => Scenario::replayed(name, replay, neighbors.count, neighbors),
        (_, None) => Scenario::overlap(setting.prefixes, Packing::Real, neighbors, seed),
    }
}

/// Ways to receive, in this process.
fn receive(setting: &Setting, quick: bool, outcome: &mut Outcome) -> Result<(), Failure> {
    let prefixes = if quick { 20_000 } else { 100_000 };
    let one = Neighbors { count: 1, ..setting.neighbors };
    let streams = [
        ("one prefix each", Packing::Small),
        ("as in a table", Packing::Real),
        ("500 prefixes each", Packing::Large),
    ]
    .map(|(name, packing)| {
        (name, Table::made(prefixes, packing, one, setting.runs.seed).announce(0, PathKind::Any, true))
    });
    // So often that a run is some tens of megabytes: less is over before a clock has ticked.
    let bytes = if quick { 8 << 20 } else { 64 << 20 };
    let steps = Steps::on_terminal(None);
    let mut order: Vec<(usize, Strategy)> =
        (0..streams.len()).flat_map(|at| Strategy::ALL.map(|strategy| (at, strategy))).collect();
    let mut rng = thalweg_base::XorShift64Star::new(setting.runs.seed);
    let mut measured: HashMap<(usize, Strategy), Vec<Received>> = HashMap::new();
    for round in 0..setting.runs.runs + 1 {
        shuffle(&mut order, &mut rng);
        for &(at, strategy) in &order {
            steps.at(round, &format!("receiving: {strategy}"));
            let rounds = (bytes / streams[at].1.bytes.len().max(1)).max(1);
            match receive::measure(strategy, &streams[at].1, rounds) {
                Ok(received) if round > 0 => measured.entry((at, strategy)).or_default().push(received),
                Ok(_) => {}
                // Containers forbid it; the other ways still count.
                Err(error) if strategy == Strategy::Uring => {
                    let what = format!("io_uring: {error}");
                    if !outcome.left_out.contains(&what) {
                        outcome.left_out.push(what);
                    }
                }
                Err(error) => return Err(failed(BgpError::Receive(error))),
            }
        }
    }
    steps.finish();
    for (at, (name, _)) in streams.iter().enumerate() {
        for strategy in Strategy::ALL {
            let runs = measured.remove(&(at, strategy)).unwrap_or_default();
            outcome.receive.extend(experiment::sum_up_receive(strategy, name, &runs));
        }
    }
    Ok(())
}

fn describe(setting: &Setting) -> String {
    let neighbors = setting.neighbors.count;
    let mut text = match &setting.replay {
        Some((name, _)) => format!("the {neighbors} largest peers of {name}"),
        None => format!(
            "{neighbors} neighbors announce the same {} made-up prefixes each, one of them the best path",
            count(setting.prefixes as u64)
        ),
    };
    text += &format!("; seed {}", setting.runs.seed);
    if setting.parts.contains(&Part::Wu) {
        text += &format!("; {} prefixes in Wu's loads", count(setting.wu_prefixes as u64));
    }
    text
}

/// What was found: the best speed-up, and what receiving costs.
fn lead(outcome: &Outcome) -> String {
    let mut text = String::new();
    let best = outcome
        .of(Part::SpeedUp)
        .filter(|r| r.cell.scheduling != SERIAL)
        .filter_map(|r| Some((r, r.speed_up?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((best, speed_up)) = best {
        text += &format!(
            "The same load under every scheduling, with the same routes in the end. {} with {} threads, the load {}, came \
             to {speed_up:.2} times serial. ",
            best.cell.scheduling, best.cell.threads, best.cell.load
        );
    }
    let cost = |strategy| outcome.receive.iter().find(|r| r.strategy == strategy).map(|r| r.cpu_ns.median);
    if let (Some(two), Some(large)) = (cost(Strategy::TwoReads), cost(Strategy::Buffered)) {
        text += &format!(
            "Receiving a small UPDATE costs {two:.0} ns with two reads for each message and {large:.0} ns with large ones. "
        );
    }
    if text.is_empty() { "Measured as asked for.".to_owned() } else { text.trim_end().to_owned() }
}
