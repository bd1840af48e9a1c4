//! Runs a network of routers with real sessions: a cold start, a load, and what the recorded ASes received.
//!
//! A prefix has converged at a router when its best path changes for the last time; convergence time counts from
//! the last event before. UPDATEs are counted over all routers, when sent. Virtual time comes from latencies alone,
//! not from how long the machine computes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use thalweg_node::ProcessFacts;
use thalweg_sim::churn::{Load, events};
use thalweg_sim::oscillation::{Cycle, Settled, Step};
use thalweg_sim::policy::{Policy, Timers};
use thalweg_sim::prefixes::PrefixPlan;
use thalweg_sim::topology::{AsGraph, write_caida};
use thalweg_sim::{NetworkOptions, Quiet, Recorder, STEP_US, Scenario, Simulation, dump_table};

use super::processing::Processing;
use super::{GraphFacts, GraphSource, NetworkError, node, packets};
use crate::cpu_time::process_cpu_s;

/// A network without UPDATEs for this long, beyond the MRAI, is quiet.
const QUIET_US: u64 = 5_000_000;
/// A network that is not quiet after this time counts as unstable.
const LIMIT_US: u64 = 4 * 3_600_000_000;

/// ASes to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// An AS with about this many neighbors.
    Neighbors(usize),
    As(u32),
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    pub graph: GraphSource,
    pub policy: Policy,
    /// The least interval between advertisements (MRAI), in seconds.
    pub mrai_s: u32,
    /// Whether the MRAI also delays withdrawals.
    pub mrai_withdrawals: bool,
    pub prefixes: PrefixPlan,
    /// The load after the cold start, and how often it happens.
    pub load: Option<(Load, usize)>,
    pub collect: Vec<Collect>,
    /// A folder with configurations that replace the policy's for some ASes: `ASN-router.toml`.
    pub configurations: Option<PathBuf>,
    /// Virtual time of computing, as a multiple of the time it takes here; `None`: no time.
    pub processing: Option<f64>,
    /// Packets in each recorded AS's trace.
    pub packets: Option<u64>,
    pub threads: usize,
    /// The seed of all chance.
    pub seed: u64,
}

/// A cold start or a load.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub name: String,
    pub events: usize,
    pub is_quiet: bool,
    /// Why it never gets quiet, if the policies have no stable state.
    pub oscillation: Option<Oscillation>,
    /// Sessions that could be up at the end but are down.
    pub sessions_down: usize,
    /// Virtual time from the start to the last UPDATE, in seconds.
    pub virtual_s: f64,
    pub updates: u64,
    pub bytes: u64,
    pub cpu_s: f64,
    /// Elapsed time, in seconds.
    pub wall_s: f64,
    /// Pairs of prefix and router whose best path changed at least once.
    pub changed: u64,
    /// Convergence times of these pairs: median, 90th and 99th percentile, maximum; in seconds.
    pub converged_s: [f64; 4],
    /// The same as a curve: seconds, share.
    pub convergence: Vec<(f64, f64)>,
    /// Number of changes, and the pairs that had so many.
    pub changes: Vec<(u32, u64)>,
    /// UPDATEs over time: seconds since the start, UPDATEs per second.
    pub updates_over_time: Vec<(f64, f64)>,
    /// The share of pairs with a best path, over time.
    pub reached_over_time: Vec<(f64, f64)>,
}

/// Changes of best paths that repeat forever.
#[derive(Clone, Debug, Serialize)]
pub struct Oscillation {
    /// The prefix whose best paths change.
    pub prefix: String,
    pub ases: Vec<u32>,
    pub period_s: f64,
    /// The time in seconds after which all tables and all messages in flight had recurred twice, which proves the
    /// cycle.
    pub recurs_s: Option<f64>,
    /// The changes of one round: seconds since its first, the AS, its new path.
    pub round: Vec<(f64, u32, Option<String>)>,
}

impl Oscillation {
    fn of(cycle: &Cycle, graph: &AsGraph) -> Self {
        let begun_us = cycle.steps.first().map_or(0, |step| step.at_us);
        let step =
            |step: &Step| ((step.at_us - begun_us) as f64 / 1e6, graph.asn(step.router), step.path.clone());
        Self {
            prefix: cycle.prefix.to_string(),
            ases: cycle.routers().into_iter().map(|router| graph.asn(router)).collect(),
            period_s: cycle.period_us as f64 / 1e6,
            recurs_s: cycle.recurs_us.map(|us| us as f64 / 1e6),
            round: cycle.steps.iter().map(step).collect(),
        }
    }
}

impl fmt::Display for Oscillation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        let ases: Vec<String> = self.ases.iter().take(SHOWN).map(|asn| format!("AS{asn}")).collect();
        let more = self.ases.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        write!(
            f,
            "oscillating: the best paths to {} at {}{more} change {} times every {:.3} s, in the same order each time: ",
            self.prefix,
            ases.join(", "),
            self.round.len(),
            self.period_s
        )?;
        let step = |(_, asn, path): &(f64, u32, Option<String>)| match path {
            Some(path) => format!("AS{asn} takes {path}"),
            None => format!("AS{asn} has none"),
        };
        let steps: Vec<String> = self.round.iter().take(SHOWN).map(step).collect();
        let more = if self.round.len() > SHOWN { "; and so on" } else { "" };
        write!(f, "{}{more}. ", steps.join("; "))?;
        match self.recurs_s {
            Some(seconds) => write!(
                f,
                "All tables and all messages under way were the same again after {seconds:.3} s, so this never ends: the \
                 policies leave no stable state, or messages that cross never let the network reach one"
            ),
            None => write!(
                f,
                "It was seen four times in a row, which is no proof: intervals or other timers have a part in it"
            ),
        }
    }
}

/// What one AS received.
#[derive(Clone, Debug, Serialize)]
pub struct Collected {
    pub asn: u32,
    pub neighbors: usize,
    pub updates: u64,
    /// Runs of consecutive UPDATEs from one neighbor: length, number.
    pub runs: Vec<(u64, u64)>,
    pub prefixes: u64,
    pub routes: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub graph: GraphFacts,
    /// The policy's name.
    pub policy: String,
    /// Prefixes at the start.
    pub prefixes: usize,
    pub threads: usize,
    /// What UPDATEs cost in virtual time.
    pub processing: Option<Processing>,
    pub phases: Vec<Phase>,
    pub collected: Vec<Collected>,
    /// The process's peak memory.
    pub memory_bytes: u64,
    /// A hash of all bytes with their times: equal for equal seeds.
    pub digest: String,
}

/// Runs the network and writes its records into `folder`. Calls `progress` with what happens next.
pub fn run(
    options: &Options,
    folder: &Path,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Outcome, NetworkError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| NetworkError::File { path: folder.to_path_buf(), source })?;
    progress("making the graph");
    let (graph, facts) = options.graph.graph(options.seed)?;
    write_caida(&graph, &folder.join("relationships.txt"))?;
    let chosen = choose(&graph, &options.collect)?;
    let scenario = Scenario {
        graph: graph.clone(),
        policy: options.policy,
        timers: Timers {
            mrai_s: options.mrai_s,
            mrai_withdrawals: options.mrai_withdrawals,
            ..Timers::default()
        },
        keys: String::new(),
        configurations: configurations(&graph, options.configurations.as_deref())?,
        prefixes: options.prefixes,
        seed: options.seed,
    };
    progress("starting routers");
    let mut simulation =
        Simulation::new(scenario, NetworkOptions { threads: options.threads, ..NetworkOptions::default() })?;
    let processing = match options.processing {
        None => None,
        Some(scale) => {
            progress("timing a small network");
            let measured = Processing::measure(scale)?;
            simulation.network.set_costs(Some(&measured.costs()));
            Some(measured)
        }
    };
    let mut recorders: BTreeMap<usize, Arc<Recorder>> = BTreeMap::new();
    for &node in &chosen {
        let path = folder.join(format!("AS{}-updates.mrt", graph.asn(node)));
        let file = File::create(&path).map_err(|source| NetworkError::File { path, source })?;
        recorders.insert(node, Recorder::new(simulation.network.clock(node), Box::new(BufWriter::new(file))));
    }
    let prefixes = simulation.owners().len();
    let mut tracker = Tracker { total: (prefixes * graph.len()) as f64, reached: 0 };
    let quiet_us = QUIET_US + 1_000_000 * u64::from(options.mrai_s);
    let cold = tracker.phase("cold start", &mut simulation, &[0], quiet_us, progress, |simulation| {
        Ok(simulation.start(|node, _| recorders.get(&node).cloned())?)
    })?;
    // In a network that oscillates, a load would show nothing.
    let load = options.load.filter(|_| cold.oscillation.is_none());
    let mut phases = vec![cold];
    if let Some((load, count)) = load {
        let script = events(load, count, &graph, simulation.owners(), options.seed);
        let times: Vec<u64> = script.iter().map(|event| event.0).collect();
        phases.push(tracker.phase(
            load.name(),
            &mut simulation,
            &times,
            quiet_us,
            progress,
            |simulation| {
                let of = script.len();
                Ok(simulation.play(&script, |number| progress(&format!("event {number} of {of}")))?)
            },
        )?);
    }
    let mut collected = Vec::new();
    for (node, recorder) in &recorders {
        collected.push(finish(&simulation, *node, recorder, folder)?);
        if let Some(count) = options.packets {
            progress("writing packets");
            packets::write(&simulation, *node, count, folder)?;
        }
    }
    Ok(Outcome {
        graph: facts,
        policy: format!("{:?}", options.policy).to_lowercase(),
        prefixes,
        threads: options.threads,
        processing,
        phases,
        collected,
        memory_bytes: ProcessFacts::read().resident_peak,
        digest: format!("{:032x}", simulation.network.digest()),
    })
}

/// The configurations in a folder, by node.
fn configurations(
    graph: &AsGraph,
    folder: Option<&Path>,
) -> Result<BTreeMap<usize, (String, String)>, NetworkError> {
    let Some(folder) = folder else { return Ok(BTreeMap::new()) };
    let failed = |path: &Path, source| NetworkError::File { path: path.to_path_buf(), source };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        let path = entry.map_err(|source| failed(folder, source))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let asn = name.strip_prefix("AS").and_then(|name| name.strip_suffix("-router.toml"));
        let Some(asn) = asn.and_then(|asn| asn.parse().ok()) else { continue };
        let text = std::fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
        found.insert(node(graph, asn)?, (path.display().to_string(), text));
    }
    if found.is_empty() {
        let error = std::io::Error::new(std::io::ErrorKind::NotFound, "no file named ASN-router.toml");
        return Err(failed(folder, error));
    }
    Ok(found)
}

fn choose(graph: &AsGraph, collect: &[Collect]) -> Result<Vec<usize>, NetworkError> {
    let choose = |collect: &Collect| match *collect {
        Collect::As(asn) => node(graph, asn),
        Collect::Neighbors(wanted) => {
            Ok((0..graph.len()).min_by_key(|node| graph.degree(*node).abs_diff(wanted)).unwrap_or_default())
        }
    };
    collect.iter().map(choose).collect()
}

/// Completes a recording with its table and configuration.
fn finish(
    simulation: &Simulation,
    node: usize,
    recorder: &Recorder,
    folder: &Path,
) -> Result<Collected, NetworkError> {
    let graph = &simulation.scenario().graph;
    let asn = graph.asn(node);
    let at = |name: &str| folder.join(format!("AS{asn}-{name}"));
    let failed = |path, source| NetworkError::File { path, source };
    recorder.finish().map_err(|error| failed(at("updates.mrt"), error))?;
    let table = at("rib.mrt");
    let counters = File::create(&table).and_then(|file| {
        let mut out = BufWriter::new(file);
        let speaker = simulation.network.speaker(node).map_err(std::io::Error::other)?;
        let counters = dump_table(&speaker, simulation.network.now_us(), &mut out)?;
        out.into_inner()?;
        Ok(counters)
    });
    let counters = counters.map_err(|error| failed(table, error))?;
    let written = std::fs::write(at("router.toml"), simulation.config_text(node));
    written.map_err(|error| failed(at("router.toml"), error))?;
    let heard = recorder.heard();
    Ok(Collected {
        asn,
        neighbors: graph.degree(node),
        updates: heard.updates,
        runs: heard.runs.into_iter().collect(),
        prefixes: counters.prefixes,
        routes: counters.routes,
    })
}

/// State kept from phase to phase.
struct Tracker {
    /// Pairs of prefix and router.
    total: f64,
    /// Pairs with a best path.
    reached: i64,
}

impl Tracker {
    /// Makes something happen, waits until the network is quiet, and measures. `events_us` are times since the
    /// start.
    fn phase(
        &mut self,
        name: &str,
        simulation: &mut Simulation,
        events_us: &[u64],
        quiet_us: u64,
        progress: &(dyn Fn(&str) + Sync),
        body: impl FnOnce(&mut Simulation) -> Result<(), NetworkError>,
    ) -> Result<Phase, NetworkError> {
        let begun_us = simulation.network.now_us();
        let before = simulation.network.traffic();
        let (cpu_s, wall) = (process_cpu_s(), Instant::now());
        body(simulation)?;
        progress(&format!("{name}: until it is quiet"));
        let (quiet, oscillation) = match simulation.settle(quiet_us, LIMIT_US)? {
            Settled::Quiet(quiet) | Settled::Restless(quiet) => (quiet, None),
            Settled::Oscillating(cycle) => {
                let last_update_us = simulation.network.last_update_us();
                let sessions_down = simulation.network.sessions_down()?;
                let quiet = Quiet { is_quiet: false, last_update_us, sessions_down };
                (quiet, Some(Oscillation::of(&cycle, &simulation.scenario().graph)))
            }
        };
        let (cpu_s, wall_s) = (process_cpu_s() - cpu_s, wall.elapsed().as_secs_f64());
        let after = simulation.network.traffic();
        let mut seen = Seen::default();
        for node in 0..simulation.network.len() {
            seen.take(&simulation.watch(node).take(), events_us, begun_us);
        }
        seen.times_us.sort_unstable();
        let updates = simulation.network.take_update_steps();
        let seconds = |step: u64| (step * STEP_US).saturating_sub(begun_us) as f64 / 1e6;
        let per_second = 1e6 / STEP_US as f64;
        let by_time: Vec<(f64, f64)> =
            updates.into_iter().map(|(step, updates)| (seconds(step), updates as f64 * per_second)).collect();
        let mut reached_over_time = vec![(0.0, self.reached as f64 / self.total)];
        for (step, delta) in &seen.reached {
            self.reached += delta;
            reached_over_time.push((seconds(*step), self.reached as f64 / self.total));
        }
        let convergence = seen.curve();
        Ok(Phase {
            name: name.to_owned(),
            events: events_us.len(),
            is_quiet: quiet.is_quiet,
            oscillation,
            sessions_down: quiet.sessions_down,
            virtual_s: quiet.last_update_us.saturating_sub(begun_us) as f64 / 1e6,
            updates: after.updates - before.updates,
            bytes: after.bytes - before.bytes,
            cpu_s,
            wall_s,
            changed: seen.times_us.len() as u64,
            converged_s: [0.5, 0.9, 0.99, 1.0].map(|share| seen.at(share)),
            convergence,
            changes: seen.changes.into_iter().collect(),
            updates_over_time: thinned(by_time, f64::max),
            reached_over_time: thinned(reached_over_time, f64::min),
        })
    }
}

/// Changes of all routers' best paths.
#[derive(Default)]
struct Seen {
    /// The convergence time of each pair.
    times_us: Vec<u64>,
    changes: BTreeMap<u32, u64>,
    reached: BTreeMap<u64, i64>,
}

impl Seen {
    fn take(&mut self, watched: &thalweg_sim::watch::Watched, events_us: &[u64], begun_us: u64) {
        for (_, each) in watched.prefixes() {
            let at_us = each.last_us.saturating_sub(begun_us);
            let event = events_us.partition_point(|event_us| *event_us <= at_us);
            let since_us = event.checked_sub(1).and_then(|event| events_us.get(event)).copied().unwrap_or(0);
            self.times_us.push(at_us - since_us);
            *self.changes.entry(each.changes).or_default() += 1;
        }
        for (step, delta) in &watched.reached {
            *self.reached.entry(*step).or_default() += delta;
        }
    }

    /// The time at a share of all pairs, in seconds; needs sorted times.
    fn at(&self, share: f64) -> f64 {
        let at = (self.times_us.len().saturating_sub(1) as f64 * share) as usize;
        self.times_us.get(at).map_or(0.0, |us| *us as f64 / 1e6)
    }

    fn curve(&self) -> Vec<(f64, f64)> {
        if self.times_us.is_empty() {
            return Vec::new();
        }
        (0..=100).map(|percent| f64::from(percent) / 100.0).map(|share| (self.at(share), share)).collect()
    }
}

/// Thins a curve; each point has the extreme value of those it replaces.
fn thinned(points: Vec<(f64, f64)>, extreme: fn(f64, f64) -> f64) -> Vec<(f64, f64)> {
    const POINTS_MAX: usize = 240;
    let each = points.len().div_ceil(POINTS_MAX).max(1);
    let thin = |part: &[(f64, f64)]| {
        let value = part.iter().map(|point| point.1).reduce(extreme).unwrap_or(0.0);
        (part[0].0, value)
    };
    points.chunks(each).map(thin).collect()
}
