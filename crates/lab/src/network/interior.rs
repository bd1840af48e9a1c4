//! The routers of one AS: a full mesh of sessions compared with route reflectors, on a network of the Topology
//! Zoo.

use std::path::{Path, PathBuf};

use serde::Serialize;
use thalweg_sim::interior::{Ibgp, Interior};
use thalweg_sim::oscillation::{Settled, settle};
use thalweg_sim::topology::read_zoo;
use thalweg_sim::{LinkState, NetworkOptions};
use thalweg_text::Table;
use thalweg_text::units::{Unit, count, share};

use super::NetworkError;
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};

const QUIET_US: u64 = 5_000_000;
const LIMIT_US: u64 = 3_600_000_000;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// A file of the Topology Zoo.
    pub zoo: PathBuf,
    /// Kinds of internal sessions, one after another.
    pub ibgp: Vec<Ibgp>,
    /// The number of routers with an external neighbor.
    pub exits: usize,
    /// Prefixes that all external neighbors announce.
    pub prefixes: usize,
    /// Threads that run routers.
    pub threads: usize,
    /// The seed that chooses the exits.
    pub seed: u64,
}

/// An event and its effects.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// The kind of internal sessions.
    pub ibgp: &'static str,
    /// The event.
    pub name: String,
    /// Sessions inside the AS.
    pub sessions: usize,
    /// UPDATEs sent.
    pub updates: u64,
    /// Seconds until the last UPDATE.
    pub time_s: f64,
    /// Best paths that changed.
    pub changed: usize,
    /// Best paths of the AS's routers.
    pub routes: usize,
    /// How many of these use the nearest exit.
    pub nearest: usize,
    /// How much farther the exits of the others are on average, in microseconds.
    pub detour_us: f64,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The network's name.
    pub name: String,
    /// Routers of the AS.
    pub routers: usize,
    /// Links between them.
    pub cables: usize,
    /// Names of the exits.
    pub exits: Vec<String>,
    pub phases: Vec<Phase>,
}

/// Runs the network once for each kind of internal sessions.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Outcome, NetworkError> {
    let zoo = read_zoo(&options.zoo)?;
    let mut outcome = Outcome {
        name: if zoo.name.is_empty() { file_name(&options.zoo) } else { zoo.name.clone() },
        routers: 0,
        cables: zoo.links.len(),
        exits: Vec::new(),
        phases: Vec::new(),
    };
    for &ibgp in &options.ibgp {
        let network = NetworkOptions { threads: options.threads, seed: options.seed, ..Default::default() };
        let interior = Interior::new(zoo.clone(), ibgp, options.exits, options.prefixes, network)?;
        outcome.routers = interior.routers();
        outcome.exits = interior.exits().into_iter().map(str::to_owned).collect();
        outcome.phases.extend(phases(interior, ibgp, progress)?);
    }
    Ok(outcome)
}

fn file_name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn phases(mut interior: Interior, ibgp: Ibgp, progress: &dyn Fn(&str)) -> Result<Vec<Phase>, NetworkError> {
    let mut phases = Vec::new();
    let mut phase =
        |interior: &mut Interior, name: &str, act: &dyn Fn(&mut Interior) -> Result<(), NetworkError>| {
            progress(&format!("{}: {name}", ibgp.name()));
            interior.watches.iter().for_each(|watch| drop(watch.take()));
            let (begun_us, before) = (interior.network.now_us(), interior.network.traffic().updates);
            act(interior)?;
            let last_us = match settle(&mut interior.network, &interior.watches, QUIET_US, LIMIT_US)? {
                Settled::Quiet(quiet) => quiet.last_update_us,
                Settled::Oscillating(cycle) => return Err(NetworkError::Oscillating(cycle.to_string())),
                Settled::Restless(quiet) => return Err(NetworkError::Restless(quiet.sessions_down)),
            };
            let used = interior.used()?;
            let own = &interior.watches[..interior.routers()];
            phases.push(Phase {
                ibgp: ibgp.name(),
                name: name.to_owned(),
                sessions: interior.sessions().len(),
                updates: interior.network.traffic().updates - before,
                time_s: last_us.saturating_sub(begun_us) as f64 / 1e6,
                changed: own.iter().map(|watch| watch.take().prefixes().count()).sum(),
                routes: used.routes,
                nearest: used.nearest,
                detour_us: used.detour_us as f64 / (used.routes - used.nearest).max(1) as f64,
            });
            Ok(())
        };
    phase(&mut interior, "cold start", &|interior| Ok(interior.start()?))?;
    phase(&mut interior, "an exit's neighbor goes", &|interior| Ok(interior.set_exit(0, LinkState::Down)?))?;
    phase(&mut interior, "and comes back", &|interior| Ok(interior.set_exit(0, LinkState::Up)?))?;
    phase(&mut interior, "a cable fails", &|interior| {
        // A link whose loss does not cut the network in two, if there is one.
        for cable in interior.cables() {
            if interior.fail_cable(cable)? {
                break;
            }
        }
        Ok(())
    })?;
    Ok(phases)
}

/// The phases as a table.
pub fn table(outcome: &Outcome) -> Table {
    let title = format!(
        "{}: {} routers, {} cables, exits at {}",
        outcome.name,
        outcome.routers,
        outcome.cables,
        outcome.exits.join(", ")
    );
    Table::of(title, &outcome.phases)
        .words("sessions", |phase| phase.ibgp.to_owned())
        .number("", |phase| count(phase.sessions as u64))
        .words("what happened", |phase| phase.name.clone())
        .number("UPDATEs", |phase| count(phase.updates))
        .number("until quiet, s", |phase| format!("{:.3}", phase.time_s))
        .number("best paths changed", |phase| count(phase.changed as u64))
        .number("by the nearest exit", |phase| share(phase.nearest as u64, phase.routes as u64))
        .number("others farther by", |phase| Unit::Nanoseconds.format(phase.detour_us * 1e3))
        .table()
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let lead =
        format!("{} routers of one AS, {} of them with a neighbor.", outcome.routers, outcome.exits.len());
    let mut report = Report::new(format!("Inside {}", outcome.name), lead, origin);
    report.table(table(outcome));
    let bars = outcome
        .phases
        .iter()
        .map(|phase| (phase.name.clone(), phase.ibgp.to_owned(), Bar::at(phase.updates as f64)));
    let axis = Axis::new("UPDATEs", Unit::Count, Scale::Linear);
    report.plot(
        BarChart::of("UPDATEs by what happened", axis, Vec::new(), bars).svg(),
        "A mesh has more sessions; reflectors tell each client their own best path only.",
    );
    report.notes([
        "All neighbors announce the same prefixes at the same length: a router should use the exit that is nearest by the \
         IGP. A client of route reflectors hears what is nearest to these.",
        "The IGP is at rest at once: its metrics follow from the cables that are up.",
    ]);
    report
}
