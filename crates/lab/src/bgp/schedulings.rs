//! The experiment on schedulings: our daemon under loads that all schedulings get.
//!
//! The daemon is `thalweg run`, in a process of its own; neighbors and monitor are the laboratory's, in this process.
//! What compares schedulings without anything that would share their cores is run in memory (`bgp/in_memory.rs`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use thalweg_text::units::count;

use crate::bgp::bench::{BenchError, Feed, Run, RunSpec, measure};
use crate::bgp::daemon::DaemonSpec;
use crate::bgp::experiment::{self, Cell, ExperimentError, Outcome, Part, RunOptions, SERIAL};
use crate::bgp::in_memory;
use crate::bgp::message::Stream;
use crate::bgp::monitor::Goal;
use crate::bgp::order::{Mix, Way};
use crate::bgp::receive::{self, Received, Strategy};
use crate::bgp::replay::Replay;
use crate::bgp::scenario::{Scenario, with_marks};
use crate::bgp::table::{Neighbors, Packing, PathKind, Table};
use crate::stats::shuffle;

/// UPDATEs of a block along a trace, as in the thesis.
const BLOCK: usize = 500;
/// The way with turns of several messages.
const TURN: usize = 16;
/// A load that takes longer than this has failed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Where the load of the first part comes from.
const IN_MEMORY: &str = "in memory";
const IN_BUFFERS: &str = "in the kernel's buffers";

/// Why the experiment came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum BgpError {
    /// A measurement failed.
    #[error(transparent)]
    Experiment(Box<ExperimentError<MeasureError>>),
    /// Receiving failed.
    #[error("receiving over loopback: {0}")]
    Receive(std::io::Error),
}

/// Why a run gave no number.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The daemon in a process of its own.
    #[error(transparent)]
    Daemon(BenchError),
    /// The speaker in this process.
    #[error("in memory: {0}")]
    InMemory(String),
}

/// What is measured, and how.
pub struct Setting {
    /// What is measured.
    pub parts: Vec<Part>,
    /// Scheduling and threads.
    pub ways: Vec<(String, usize)>,
    /// Neighbors that announce; the monitor comes on top.
    pub neighbors: Neighbors,
    /// Prefixes that each neighbor announces.
    pub prefixes: usize,
    /// Prefixes of Wu's loads.
    pub wu_prefixes: usize,
    /// How often, and in which order.
    pub runs: RunOptions,
    /// A trace in place of made-up prefixes, and its name.
    pub replay: Option<(String, Replay)>,
    /// Our own program, whose `run` is the daemon.
    pub program: PathBuf,
    /// Where the daemon has its configuration and socket.
    pub folder: PathBuf,
}

/// Measures the cells of all parts but [`Part::Receive`]. `progress` hears of each run before it begins: how many are done,
/// and what comes now.
pub fn run(
    setting: &Setting,
    cells: &[Cell],
    mut progress: impl FnMut(usize, &str),
) -> Result<Outcome, BgpError> {
    let mut loads = Loads::default();
    let results = experiment::run(
        cells,
        &setting.runs,
        |cell| loads.measure(setting, cell),
        |done, _, cell| progress(done, &format!("{:?}: {cell}", cell.part)),
    );
    let cells = results.map_err(|error| BgpError::Experiment(Box::new(error)))?;
    Ok(Outcome { runs: setting.runs.runs, block_updates: BLOCK, cells, ..Outcome::default() })
}

/// Each part's cells. All but the first look at each scheduling with its largest number of threads only.
pub fn cells(setting: &Setting) -> Vec<Cell> {
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
        (Part::Blocks, Some((name, replay))) => {
            Scenario::replayed_in_blocks(name, replay, neighbors.count, neighbors, BLOCK)
        }
        (Part::Blocks, None) => {
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

/// Measures ways to receive, in this process, into the outcome.
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
        ("as in a table", Packing::Real),
        ("500 prefixes each", Packing::Large),
    ]
    .map(|(name, packing)| {
        (name, Table::made(prefixes, packing, one, setting.runs.seed).announce(0, PathKind::Any, true))
    });
    let traced = setting.replay.iter().map(|(_, replay)| ("the trace", one_after_the_other(replay, one)));
    let streams: Vec<(&str, Stream)> = made.into_iter().chain(traced).collect();
    // So often that a run is some tens of megabytes: less is over before a clock has ticked.
    let bytes = if quick { 8 << 20 } else { 64 << 20 };
    let mut order: Vec<(usize, Strategy)> =
        (0..streams.len()).flat_map(|at| Strategy::ALL.map(|strategy| (at, strategy))).collect();
    let mut rng = thalweg_base::XorShift64Star::new(setting.runs.seed);
    let mut measured: HashMap<(usize, Strategy), Vec<Received>> = HashMap::new();
    for round in 0..setting.runs.runs + 1 {
        shuffle(&mut order, &mut rng);
        for &(at, strategy) in &order {
            progress(round, &format!("receiving: {strategy}"));
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
                Err(error) => return Err(BgpError::Receive(error)),
            }
        }
    }
    for (at, (name, _)) in streams.iter().enumerate() {
        for strategy in Strategy::ALL {
            let runs = measured.remove(&(at, strategy)).unwrap_or_default();
            outcome.receive.extend(experiment::sum_up_receive(strategy, name, &runs));
        }
    }
    Ok(())
}

/// All messages of a trace, peer after peer.
fn one_after_the_other(replay: &Replay, receiver: Neighbors) -> Stream {
    let mut all = Stream::default();
    for stream in (0..replay.peers.len()).map(|peer| replay.stream(peer, receiver.hops_of(0))) {
        all.ends.extend(stream.ends.iter().map(|end| all.bytes.len() + end));
        all.bytes.extend_from_slice(&stream.bytes);
        all.prefixes += stream.prefixes;
    }
    all
}

/// The load in words, for the report.
pub fn describe(setting: &Setting) -> String {
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
pub fn lead(outcome: &Outcome) -> String {
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
