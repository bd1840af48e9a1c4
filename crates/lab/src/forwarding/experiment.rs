//! Runs the forwarding experiment: rounds of set-ups of cells.
//!
//! A *cell* is one router with one driver and model, one scenario and one frame size. Cells that need the same
//! start of the same router share a *set-up*, with a topology of its own. Each round goes through all set-ups in
//! shuffled order, and in each through its cells in shuffled order, so that a disturbance touches all alike. Each
//! round begins with the generator alone.
//!
//! A router that cannot be set up, does not forward or forwards wrongly is left out from then on, and the results
//! give the reason. Any other failure ends the experiment.

mod cell;
mod changed;
mod outcome;

pub(crate) use cell::verify;
pub use cell::{CellRun, CostRun, LatencyRun};
pub use changed::ChangeResult;
pub use outcome::{ApplicationResult, CeilingResult, CellResult, CostResult, LatencyResult, Outcome, sum_up};

use super::ForwardingError;
use super::application::{self, Exchange, MTUS, message_bytes};
use super::frame::{FRAME_SIZES, FrameSize};
use super::latency::Percentiles;
use super::load::{RouteTable, Scenario, flows};
use super::method::{BurstOptions, SearchOptions};
use super::ports::{self, PORTS, PortsOptions, PortsRun};
use super::subject::seen::Seen;
use super::subject::{Label, Subject, Task};
use super::tester::{Offer, Tester, Way};
use super::topology::Topology;
use crate::stats::shuffle;
use ipnet::Ipv4Net;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use thalweg_base::XorShift64Star;

thalweg_base::words! {
    /// What is measured. Throughput always is: the others need it.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Part {
        /// The fastest rate without loss.
        Throughput => "throughput",
        /// Latency of frames.
        Latency => "latency",
        /// Loss by rate.
        Loss => "loss",
        /// The longest burst without loss.
        BackToBack => "back-to-back",
        /// Processor time per frame.
        Cost => "cost",
        /// Throughput and latency (half of the round-trip time) of TCP, by message size.
        Application => "application",
        /// Routers with several ports and flows in both directions, beside what ports of 1 and 10 Gbit/s carry.
        Ports => "ports",
    }
}

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub parts: Vec<Part>,
    /// Frame sizes. Scenarios after the first use only the smallest, unless `all_frames` is set.
    pub frames: Vec<FrameSize>,
    pub scenarios: Vec<Scenario>,
    /// Use all frame sizes in all scenarios.
    pub all_frames: bool,
    pub runs: usize,
    /// How long a trial sends, in seconds; 60 in the RFC.
    pub trial_s: f64,
    pub search: SearchOptions,
    pub bursts: BurstOptions,
    /// Rates for latency, as shares of the throughput.
    pub latency_shares: Vec<f64>,
    /// Message sizes for applications.
    pub message_bytes: Vec<usize>,
    /// MTUs of the testers' interfaces for applications.
    pub mtus: Vec<usize>,
    /// How many ports routers have in [`Part::Ports`].
    pub ports: Vec<usize>,
    /// How long a router may take to start forwarding.
    pub start_wait: Duration,
    /// Seed of flows and orders.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        let scenario = Scenario { nat: false, full_table: false, flows: 1 };
        Self {
            parts: Part::ALL.to_vec(),
            frames: FRAME_SIZES.iter().filter_map(|bytes| FrameSize::new(*bytes).ok()).collect(),
            scenarios: vec![scenario],
            all_frames: false,
            runs: 3,
            trial_s: 1.0,
            search: SearchOptions::default(),
            bursts: BurstOptions::default(),
            latency_shares: vec![0.1, 0.5, 0.9],
            message_bytes: message_bytes(&MTUS, false),
            mtus: MTUS.to_vec(),
            ports: PORTS.to_vec(),
            start_wait: Duration::from_secs(20),
            seed: XorShift64Star::DEFAULT_SEED,
        }
    }
}

impl Options {
    /// Whether a part is to be measured.
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Whether any part but applications is wanted.
    fn has_frames(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part, Part::Application | Part::Ports))
    }

    /// Whether the routers between two testers are measured.
    fn has_pairs(&self) -> bool {
        self.has_frames() || self.has(Part::Application)
    }

    fn mtu(&self) -> usize {
        self.frames.iter().map(|size| size.packet_bytes()).max().unwrap_or(0).max(1500)
    }

    fn of_ports(&self) -> PortsOptions<'_> {
        PortsOptions {
            ports: &self.ports,
            frames: &self.frames,
            mtu: self.mtu(),
            trial_s: self.trial_s,
            search: self.search,
            start_wait: self.start_wait,
        }
    }
}

/// One router, one scenario, one frame size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The router under test.
    pub label: Label,
    pub scenario: Scenario,
    pub size: FrameSize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} bytes", self.label, self.scenario, self.size.wire_bytes())
    }
}

/// One start of one router.
#[derive(Clone, Debug)]
struct SetUp {
    subject: usize,
    label: Label,
    scenario: Scenario,
    /// Indexes into the list of cells.
    cells: Vec<usize>,
    /// Why it was left out.
    left_out: Option<String>,
}

impl SetUp {
    fn name(&self) -> String {
        let what = match (self.scenario.nat, self.scenario.full_table) {
            (true, _) => "nat",
            (false, true) => "full table",
            (false, false) => "one route",
        };
        format!("{}, {what}", self.label)
    }
}

/// The generator alone in one round, with one frame size.
#[derive(Clone, Copy, Debug)]
pub struct CeilingRun {
    pub size: FrameSize,
    /// Frames per second over a direct link.
    pub pps: f64,
    /// Processor time per frame, in nanoseconds.
    pub cpu_ns: f64,
    /// Latency at a tenth of that rate.
    pub latency: Option<Percentiles>,
}

/// The measurements of all rounds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The generator alone, by round.
    pub ceilings: Vec<CeilingRun>,
    pub cells: Vec<(Cell, Vec<CellRun>)>,
    /// What could be seen of routers when they last ran.
    pub shown: Vec<Shown>,
    /// Routers with several ports.
    pub ports: Vec<PortsRun>,
    /// Applications: the router (`None`: the direct link), whether it translated, the exchange.
    pub applications: Vec<(Option<Label>, bool, Exchange)>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// What a router showed while it ran.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub label: Label,
    #[serde(flatten)]
    pub seen: Seen,
    /// Whether its change took effect; `None` if it has none, or if that could not be read.
    pub took_effect: Option<bool>,
}

/// A step of the experiment, for a progress display.
#[derive(Clone, Debug)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
    pub next: String,
}

/// What stays the same over all rounds.
struct Experiment<'a> {
    options: &'a Options,
    table: &'a [Ipv4Net],
    stop: &'a AtomicBool,
}

/// Runs the experiment; it ends early once `stop` is set.
pub fn run(
    subjects: &mut [Box<dyn Subject>],
    options: &Options,
    table: &RouteTable,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, ForwardingError> {
    super::namespace::sweep();
    let (cells, mut set_ups) = plan(subjects, options);
    let mut measured =
        Measured { cells: cells.into_iter().map(|cell| (cell, Vec::new())).collect(), ..Measured::default() };
    let experiment = Experiment { options, table: &table.prefixes, stop };
    let mut rng = XorShift64Star::new(options.seed);
    if !options.has_pairs() {
        set_ups.clear();
    }
    let steps = set_ups.iter().map(|s| s.cells.len().max(1)).sum::<usize>();
    let total = options.runs * (steps + 1 + usize::from(options.has(Part::Ports)));
    let mut done = 0;
    let mut step = |next: String, steps: usize| {
        progress(Progress { done, total, next });
        done += steps;
    };
    for _ in 0..options.runs {
        step("the generator alone".to_owned(), 1);
        let ceilings = experiment.ceilings(&mut measured)?;
        shuffle(&mut set_ups, &mut rng);
        for set_up in &mut set_ups {
            let Some(subject) = subjects.get_mut(set_up.subject) else { continue };
            if set_up.left_out.is_some() {
                step(set_up.name(), set_up.cells.len().max(1));
                continue;
            }
            shuffle(&mut set_up.cells, &mut rng);
            let ran = experiment.set_up(subject.as_mut(), set_up, &ceilings, &mut measured, &mut step);
            match ran {
                Ok(()) => {}
                Err(ForwardingError::Interrupted) => return Err(ForwardingError::Interrupted),
                Err(error) => set_up.left_out = Some(error.to_string()),
            }
        }
        if options.has(Part::Ports) {
            step("routers with several ports".to_owned(), 1);
            let Measured { ports, left_out, .. } = &mut measured;
            ports::round(subjects, options.of_ports(), &mut rng, stop, ports, left_out)?;
        }
    }
    let why = set_ups.iter().filter_map(|s| Some(format!("{}: {}", s.name(), s.left_out.as_ref()?)));
    measured.left_out.extend(why);
    measured.left_out.sort();
    measured.left_out.dedup();
    sum_up(&measured, options, table).ok_or(ForwardingError::Nothing(measured.left_out))
}

/// All cells, and the set-ups that group them.
fn plan(subjects: &[Box<dyn Subject>], options: &Options) -> (Vec<Cell>, Vec<SetUp>) {
    let (mut cells, mut set_ups): (Vec<Cell>, Vec<SetUp>) = (Vec::new(), Vec::new());
    for (at, subject) in subjects.iter().enumerate() {
        let label = subject.label();
        for (nth, scenario) in options.scenarios.iter().enumerate() {
            let alike = |s: &&mut SetUp| s.subject == at && s.scenario.same_set_up(scenario);
            if set_ups.iter_mut().find(alike).is_none() {
                let scenario = *scenario;
                let label = label.clone();
                set_ups.push(SetUp { subject: at, label, scenario, cells: Vec::new(), left_out: None });
            }
            let smallest = options.frames.iter().min();
            for size in options.frames.iter().filter(|_| options.has_frames() && !subject.is_switch()) {
                if nth > 0 && !options.all_frames && Some(size) != smallest {
                    continue;
                }
                let cell = Cell { label: label.clone(), scenario: *scenario, size: *size };
                if cells.contains(&cell) {
                    continue;
                }
                if let Some(set_up) = set_ups.iter_mut().find(alike) {
                    set_up.cells.push(cells.len());
                }
                cells.push(cell);
            }
        }
    }
    // Without frames, only applications remain, and they do not use the full table.
    set_ups.retain(|set_up| {
        !set_up.cells.is_empty() || options.has(Part::Application) && !set_up.scenario.full_table
    });
    (cells, set_ups)
}

type Step<'a> = dyn FnMut(String, usize) + 'a;

impl Experiment<'_> {
    /// Measures the generator alone with every frame size, and applications over the direct link.
    fn ceilings(&self, measured: &mut Measured) -> Result<Vec<CeilingRun>, ForwardingError> {
        let options = self.options;
        let topology = Topology::new(options.mtu())?;
        let mut ceilings = Vec::new();
        let one = Scenario { nat: false, full_table: false, flows: 1 };
        let flows = flows(&one, &[], options.seed);
        for &size in options.frames.iter().filter(|_| options.has_frames()) {
            let mut tester = Tester::new(&topology, Way::Direct, size, &flows, self.stop)?;
            // The first frames pay for pages and caches.
            tester.trial(Offer::flood(options.trial_s / 10.0), &|| 0.0)?;
            let trial = tester.trial(Offer::flood(options.trial_s), &|| 0.0)?;
            let (pps, Some(cpu_ns)) = (trial.received_pps(), trial.cpu_ns()) else {
                return Err(ForwardingError::NoGenerator);
            };
            let latency = match options.has(Part::Latency) {
                true => cell::latency(&mut tester, pps / 10.0, options.trial_s, &|| 0.0)?.percentiles,
                false => None,
            };
            ceilings.push(CeilingRun { size, pps, cpu_ns, latency });
        }
        measured.ceilings.extend(&ceilings);
        if options.has(Part::Application) {
            let exchanges = self.applications(&topology, Way::Direct)?;
            measured.applications.extend(exchanges.into_iter().map(|exchange| (None, false, exchange)));
        }
        Ok(ceilings)
    }

    /// Exchanges messages of all sizes with each MTU.
    fn applications(&self, topology: &Topology, way: Way) -> Result<Vec<Exchange>, ForwardingError> {
        let options = self.options;
        let mut exchanges = Vec::new();
        for &mtu in &options.mtus {
            topology.set_tester_mtu(mtu)?;
            exchanges.extend(application::exchange(topology, way, mtu, &options.message_bytes, self.stop)?);
        }
        topology.set_tester_mtu(options.mtu())?;
        Ok(exchanges)
    }

    /// Measures a set-up's cells in their order.
    fn set_up(
        &self,
        subject: &mut dyn Subject,
        set_up: &SetUp,
        ceilings: &[CeilingRun],
        measured: &mut Measured,
        step: &mut Step<'_>,
    ) -> Result<(), ForwardingError> {
        let Scenario { nat, full_table, .. } = set_up.scenario;
        let table = if full_table { self.table } else { &[] };
        let task = Task { nat, table, mtu: self.options.mtu() };
        if let Some(why) = subject.refuses(&task) {
            step(set_up.name(), set_up.cells.len().max(1));
            return Err(ForwardingError::Command { command: subject.label().to_string(), said: why });
        }
        let topology = Topology::new(self.options.mtu())?;
        let ran = subject
            .set_up(&topology, &task)
            .and_then(|()| self.cells(&topology, subject, set_up, ceilings, measured, step));
        if let Some(seen) = subject.seen() {
            let took_effect = subject.sign().and_then(|sign| sign.is_shown_by(&seen));
            measured.shown.retain(|shown| shown.label != set_up.label);
            measured.shown.push(Shown { label: set_up.label.clone(), seen, took_effect });
        }
        // Before its interfaces are removed.
        subject.tear_down();
        ran
    }

    fn cells(
        &self,
        topology: &Topology,
        subject: &dyn Subject,
        set_up: &SetUp,
        ceilings: &[CeilingRun],
        measured: &mut Measured,
        step: &mut Step<'_>,
    ) -> Result<(), ForwardingError> {
        let Scenario { nat, full_table, .. } = set_up.scenario;
        let table = if full_table { self.table } else { &[] };
        let bench = cell::Bench { topology, options: self.options, stop: self.stop };
        for &at in &set_up.cells {
            let Some((cell, runs)) = measured.cells.get_mut(at) else { continue };
            step(cell.to_string(), 1);
            let ceiling = ceilings.iter().find(|ceiling| ceiling.size == cell.size);
            let Some(ceiling) = ceiling else { continue };
            let flows = flows(&cell.scenario, table, self.options.seed);
            runs.push(bench.run(cell, ceiling.pps, &flows, subject)?);
        }
        if self.options.has(Part::Application) && !full_table {
            if set_up.cells.is_empty() {
                step(format!("{}, applications", set_up.label), 1);
                if !subject.is_switch() {
                    bench.wait_until_it_forwards(&set_up.scenario, subject)?;
                }
            }
            let exchanges = self.applications(topology, Way::Router)?;
            let who = Some(set_up.label.clone());
            measured.applications.extend(exchanges.into_iter().map(|exchange| (who.clone(), nat, exchange)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
