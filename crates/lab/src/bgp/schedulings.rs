//! Compares schedulings of Thalweg's BGP daemon under the same loads.
//!
//! The daemon is `thalweg run` in a process of its own; neighbors and monitor run in this process. Comparisons
//! without anything that shares the daemon's cores or sets its pace run in memory (`bgp/in_memory.rs`). In both
//! cases, what is measured is limited to the cell's cores.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_text::units::count;

use crate::bgp::bench::{BenchError, Feed, Run, RunSpec, measure};
use crate::bgp::caches::{self, RecordError};
use crate::bgp::daemon::{Advertise, DaemonSpec};
use crate::bgp::experiment::{self, Cell, ExperimentError, Outcome, Part, RunOptions, SERIAL};
use crate::bgp::in_memory::{self, InMemoryError};
use crate::bgp::locks::{self, Locked};
use crate::bgp::message::Stream;
use crate::bgp::order::{Mix, Way};
use crate::bgp::receive::{self, Received, Strategy};
use crate::bgp::replay::Replay;
use crate::bgp::scenario::Scenario;
use crate::bgp::table::{Neighbors, Packing, PathKind, Table};
use crate::cores::Cores;

/// UPDATEs per timed block of a trace, as in the thesis.
const BLOCK: usize = 500;
/// How many times larger the second table along a trace is, as in the thesis.
const LARGER: usize = 4;
/// The longest time for a load.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Where the first part's load comes from.
pub(crate) const IN_MEMORY: &str = "in memory";
pub(crate) const IN_BUFFERS: &str = "in the kernel's buffers";
pub(crate) const ONCE: &str = "1x prefixes";
pub(crate) const FOUR_TIMES: &str = "4x prefixes";
/// Whether threads per neighbor poll separately.
pub(crate) const OWN_POLLER: &str = "a poller for each thread";
pub(crate) const COMMON_POLLER: &str = "one common poller";
pub(crate) const AS_IN_A_TABLE: &str = "as in a table";
/// The scheduling with one thread per neighbor, whatever the number of cores.
pub(crate) const PER_PEER: &str = "per-peer";

/// Why the experiment has no results.
#[derive(Debug, thiserror::Error)]
pub enum BgpError {
    #[error(transparent)]
    Experiment(Box<ExperimentError<MeasureError>>),
    #[error("receiving over loopback: {0}")]
    Receive(std::io::Error),
    #[error(transparent)]
    Caches(RecordError),
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The daemon in a process of its own failed.
    #[error(transparent)]
    Daemon(BenchError),
    /// The speaker in this process failed.
    #[error("in memory: {0}")]
    InMemory(#[from] InMemoryError),
}

/// What to measure, and how.
pub struct Setting {
    pub parts: Vec<Part>,
    pub schedulings: Vec<String>,
    /// The cores of this machine.
    pub cores: Cores,
    /// Numbers of cores; parts that do not vary them use the largest.
    pub core_counts: Vec<usize>,
    /// Threads per core, for schedulings with a choice.
    pub threads_per_core: Vec<usize>,
    /// Who receives the daemon's routes; `None`: as each part needs.
    pub advertise: Option<Advertise>,
    /// Messages per turn when neighbors send in turn.
    pub turn: usize,
    /// Neighbors that announce, not counting the monitor.
    pub neighbors: Neighbors,
    pub prefixes: usize,
    /// Prefixes per neighbor when memory accesses are recorded.
    pub cache_prefixes: usize,
    /// Prefixes of Wu's loads.
    pub wu_prefixes: usize,
    pub runs: RunOptions,
    /// A trace that replaces generated prefixes, and its name.
    pub replay: Option<(String, Replay)>,
    /// The `thalweg` program, whose `run` is the daemon.
    pub program: PathBuf,
    /// The folder for the daemon's configuration and socket.
    pub folder: PathBuf,
}

/// Measures the cells of all parts except [`Part::Receive`]. Calls `progress` before each run with the number done
/// and what comes next.
pub fn run(
    setting: &Setting,
    cells: &[Cell],
    progress: impl FnMut(usize, &str),
) -> Result<Outcome, BgpError> {
    let mut loads = Loads::default();
    // With the number done, which only one of the two below is told.
    let progress = RefCell::new((0, progress));
    let tell = |done: Option<usize>, what: &str| {
        let (known, progress) = &mut *progress.borrow_mut();
        *known = done.unwrap_or(*known);
        progress(*known, what);
    };
    let results = experiment::run(
        cells,
        &setting.runs,
        |cell| loads.measure(setting, cell, &mut |said| tell(None, said)),
        |done, _, cell| tell(Some(done), &format!("{:?}: {cell}", cell.part)),
    );
    let cells = results.map_err(|error| BgpError::Experiment(Box::new(error)))?;
    Ok(Outcome { runs: setting.runs.runs, block_updates: BLOCK, cells, ..Outcome::default() })
}

/// Each part's cells. Only the first part varies cores and threads.
pub fn cells(setting: &Setting) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &part in &setting.parts {
        for load in loads_of(setting, part) {
            let all = setting.schedulings.iter();
            // The ablations are of the thesis's PBTS.
            for scheduling in all.filter(|scheduling| part != Part::Ablations || *scheduling == PER_PEER) {
                for (cores, threads_per_core) in shapes(setting, part, scheduling) {
                    let (scheduling, load) = (scheduling.clone(), load.clone());
                    cells.push(Cell { part, scheduling, cores, threads_per_core, load });
                }
            }
        }
    }
    cells
}

/// Numbers of cores, and of threads per core where there is a choice.
fn shapes(setting: &Setting, part: Part, scheduling: &str) -> Vec<(usize, Option<usize>)> {
    let most = setting.core_counts.iter().copied().max().unwrap_or(1);
    let counts = match part {
        // One thread needs one core.
        Part::SpeedUp if scheduling == SERIAL => vec![1],
        Part::SpeedUp => setting.core_counts.clone(),
        Part::OneCore => vec![1],
        _ => vec![most],
    };
    let one = [1];
    let per_core = if part == Part::SpeedUp { &setting.threads_per_core[..] } else { &one[..] };
    let chosen = |cores: usize| per_core.iter().map(move |threads| (cores, Some(*threads)));
    match scheduling {
        SERIAL | PER_PEER => counts.into_iter().map(|cores| (cores, None)).collect(),
        _ => counts.into_iter().flat_map(chosen).collect(),
    }
}

fn loads_of(setting: &Setting, part: Part) -> Vec<String> {
    match part {
        Part::SpeedUp => vec![IN_MEMORY.to_owned(), IN_BUFFERS.to_owned()],
        Part::Functions | Part::OneCore => vec![IN_BUFFERS.to_owned()],
        Part::Blocks => match &setting.replay {
            None => vec![ONCE.to_owned(), FOUR_TIMES.to_owned()],
            Some(_) => vec!["the trace".to_owned()],
        },
        Part::Mixes => Mix::ALL.iter().map(Mix::to_string).collect(),
        Part::Ways => ways(setting).into_iter().map(|(name, _)| name).collect(),
        Part::Wu => (1..=8).map(|n| Scenario::wu(n, 1, setting.neighbors, setting.runs.seed).name).collect(),
        Part::Ablations => {
            let tables = Locked::ALL.iter().map(Locked::to_string);
            [OWN_POLLER, COMMON_POLLER].map(str::to_owned).into_iter().chain(tables).collect()
        }
        Part::Receive | Part::Caches => Vec::new(),
    }
}

fn ways(setting: &Setting) -> [(String, Way); 3] {
    [
        ("file order".to_owned(), Way::FileOrder),
        (format!("turns of {}", setting.turn), Way::RoundRobin(setting.turn)),
        ("thread per neighbor".to_owned(), Way::ThreadPerPeer),
    ]
}

/// Who receives the daemon's routes in a part: nobody if the thesis had nobody.
fn advertise(setting: &Setting, part: Part) -> Advertise {
    setting.advertise.unwrap_or(match part {
        Part::Ways | Part::Wu => Advertise::Monitor,
        _ => Advertise::None,
    })
}

/// Loads already made, by part and name.
#[derive(Default)]
struct Loads(HashMap<(Part, String), Scenario>);

impl Loads {
    fn measure(
        &mut self,
        setting: &Setting,
        cell: &Cell,
        say: &mut dyn FnMut(&str),
    ) -> Result<Run, MeasureError> {
        // Parts that differ only in how they send share a load.
        let key = match cell.part {
            Part::Wu => (cell.part, cell.load.clone()),
            Part::Blocks if cell.load == FOUR_TIMES => (cell.part, cell.load.clone()),
            _ => (Part::SpeedUp, String::new()),
        };
        let scenario = self.0.entry(key).or_insert_with(|| scenario(setting, cell));
        let threads = cell.threads_per_core.map_or(1, |each| each * cell.cores);
        let cores = setting.cores.first(cell.cores);
        let advertise = advertise(setting, cell.part);
        let way = match cell.part {
            Part::Mixes => Mix::ALL.into_iter().find(|mix| mix.to_string() == cell.load).map(Mix::way),
            Part::Ways => ways(setting).into_iter().find(|(name, _)| *name == cell.load).map(|(_, way)| way),
            Part::Blocks => Some(Mix::Mix1.way()),
            _ => None,
        };
        if let Some(locked) = Locked::ALL.into_iter().find(|locked| locked.name() == cell.load) {
            return Ok(locks::measure(locked, scenario, &cores)?);
        }
        if cell.load == IN_MEMORY || matches!(cell.part, Part::Mixes | Part::Blocks | Part::Ablations) {
            let spec = in_memory::Spec {
                scheduling: cell.scheduling.parse().map_err(InMemoryError::Scheduling)?,
                threads,
                common_poller: cell.load == COMMON_POLLER,
                cores,
                advertise,
                way,
                block: if cell.part == Part::Blocks { BLOCK } else { 0 },
                seed: setting.runs.seed,
                timeout: TIMEOUT,
            };
            return Ok(in_memory::measure(&spec, scenario)?);
        }
        let feed = match cell.load.as_str() {
            IN_BUFFERS => Feed::Preloaded,
            _ => Feed::Live(way.unwrap_or(Way::ThreadPerPeer)),
        };
        let daemon = DaemonSpec {
            program: setting.program.clone(),
            scheduling: cell.scheduling.clone(),
            threads,
            cores: Some(cores),
            advertise,
            profile: matches!(cell.part, Part::Functions | Part::OneCore),
            folder: setting.folder.clone(),
        };
        let spec = RunSpec { daemon, feed, seed: setting.runs.seed, timeout: TIMEOUT };
        measure(&spec, scenario, say).map_err(MeasureError::Daemon)
    }
}

fn scenario(setting: &Setting, cell: &Cell) -> Scenario {
    let (neighbors, seed) = (setting.neighbors, setting.runs.seed);
    if cell.part == Part::Wu {
        let number = cell.load.split(':').next().and_then(|n| n.parse().ok()).unwrap_or(1);
        return Scenario::wu(number, setting.wu_prefixes, neighbors, seed);
    }
    match &setting.replay {
        Some((name, replay)) => Scenario::replayed(name, replay, neighbors.count, neighbors),
        None => {
            let times = if cell.load == FOUR_TIMES { LARGER } else { 1 };
            Scenario::overlap(setting.prefixes * times, Packing::Real, neighbors, seed)
        }
    }
}

/// Measures ways to receive, in this process.
pub fn receive(
    setting: &Setting,
    quick: bool,
    outcome: &mut Outcome,
    mut progress: impl FnMut(usize, &str),
) -> Result<(), BgpError> {
    let prefixes = if quick { 20_000 } else { 100_000 };
    let one = Neighbors { count: 1, ..setting.neighbors };
    let made = [
        ("one prefix each", Packing::Small),
        (AS_IN_A_TABLE, Packing::Real),
        ("500 prefixes each", Packing::Large),
    ]
    .map(|(name, packing)| {
        (name, Table::made(prefixes, packing, one, setting.runs.seed).announce(0, PathKind::Any, true))
    });
    let traced = setting.replay.iter().map(|(_, replay)| ("the trace", one_after_the_other(replay, one)));
    let streams: Vec<(&str, Stream)> = made.into_iter().chain(traced).collect();
    // Repeated until a run has tens of megabytes: less ends within one tick of the clock.
    let bytes = if quick { 8 << 20 } else { 64 << 20 };
    let cells: Vec<(usize, Strategy)> =
        (0..streams.len()).flat_map(|at| Strategy::ALL.map(|strategy| (at, strategy))).collect();
    let mut measured: HashMap<(usize, Strategy), Vec<Received>> = HashMap::new();
    RunOptions { warm_ups: 1, ..setting.runs }.rounds(cells.len(), |turn| {
        let (at, strategy) = cells[turn.at];
        progress(turn.done, &format!("receiving: {strategy}"));
        let rounds = (bytes / streams[at].1.bytes.len().max(1)).max(1);
        match receive::measure(strategy, &streams[at].1, rounds) {
            Ok(received) if turn.counts => measured.entry((at, strategy)).or_default().push(received),
            Ok(_) => {}
            // Containers forbid io_uring; the other ways still count.
            Err(error) if strategy == Strategy::Uring => {
                let what = format!("io_uring: {error}");
                if !outcome.left_out.contains(&what) {
                    outcome.left_out.push(what);
                }
            }
            Err(error) => return Err(BgpError::Receive(error)),
        }
        Ok(())
    })?;
    for (at, (name, _)) in streams.iter().enumerate() {
        for strategy in Strategy::ALL {
            let runs = measured.remove(&(at, strategy)).unwrap_or_default();
            outcome.receive.extend(experiment::sum_up_receive(strategy, name, &runs));
        }
    }
    Ok(())
}

/// Records what a thread touches, and computes cache misses from it.
pub fn caches(setting: &Setting, outcome: &mut Outcome) -> Result<(), BgpError> {
    let neighbors = setting.neighbors.count;
    let numbers = [
        ("neighbors", neighbors.to_string()),
        ("prefixes", setting.cache_prefixes.to_string()),
        ("seed", setting.runs.seed.to_string()),
    ];
    let options = numbers.map(|(name, value)| format!("--{name}={value}"));
    let words: Vec<String> =
        ["lab", "bgp", "--alone"].map(str::to_owned).into_iter().chain(options).collect();
    match caches::record(&setting.program, &words, neighbors) {
        Ok(curves) => outcome.caches = curves,
        Err(error @ RecordError::NoValgrind(_)) => outcome.left_out.push(error.to_string()),
        Err(error) => return Err(BgpError::Caches(error)),
    }
    Ok(())
}

/// Plays what all neighbors send by one thread, to be recorded for the cache model; returns the number of UPDATEs.
pub fn alone(neighbors: Neighbors, prefixes: usize, seed: u64) -> Result<u64, InMemoryError> {
    in_memory::alone(&Scenario::overlap(prefixes, Packing::Real, neighbors, seed), seed)
}

/// All messages of a trace, neighbor after neighbor.
fn one_after_the_other(replay: &Replay, receiver: Neighbors) -> Stream {
    let mut all = Stream::default();
    for stream in (0..replay.peers.len()).map(|peer| replay.stream(peer, receiver.hops_of(0))) {
        all.ends.extend(stream.ends.iter().map(|end| all.bytes.len() + end));
        all.bytes.extend_from_slice(&stream.bytes);
        all.prefixes += stream.prefixes;
    }
    all
}

/// Describes the load, for the report.
pub fn describe(setting: &Setting) -> String {
    let neighbors = setting.neighbors.count;
    let mut text = match &setting.replay {
        Some((name, _)) => format!("the {neighbors} largest peers of {name}"),
        None => format!(
            "{neighbors} neighbors announce the same {} generated prefixes each, one of them the best path",
            count(setting.prefixes as u64)
        ),
    };
    text += &format!("; seed {}", setting.runs.seed);
    if let Some(advertise) = setting.advertise {
        text += &format!("; announced to: {}", advertise.name());
    }
    let physical = setting.cores.physical();
    if physical < setting.cores.count() {
        text += &format!("; cores are hardware threads here, and from {} on share a core", physical + 1);
    }
    if setting.parts.contains(&Part::Wu) {
        text += &format!("; {} prefixes in Wu's loads", count(setting.wu_prefixes as u64));
    }
    text
}

/// The main findings: the best speed-up, and what receiving costs.
pub fn lead(outcome: &Outcome) -> String {
    let mut text = String::new();
    let best = outcome
        .of(Part::SpeedUp)
        .filter(|r| r.cell.scheduling != SERIAL)
        .filter_map(|r| Some((r, r.speed_up?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((best, speed_up)) = best {
        text += &format!(
            "The same load under every scheduling, with the same routes in the end. {} on {} cores with {} threads, the load \
             {}, came to {speed_up:.2} times serial. ",
            best.cell.scheduling, best.cell.cores, best.threads, best.cell.load
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
