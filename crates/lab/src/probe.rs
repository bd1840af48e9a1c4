//! The experiment on the flow probe: ffProbe's table, kinds of traffic, and other probes on the same file.
//!
//! | part | question | how |
//! |---|---|---|
//! | `table` | how many packets does a configuration process, and how much memory does it take? | the first kind of traffic under every configuration: from memory with records going nowhere, and from a file with records to a collector by IPFIX over TCP |
//! | `traffic` | what do many flows, export and a flood cost? | every kind of traffic under a few configurations; a million live flows to the collector over UDP and TCP |
//! | `flows` | how does the number of live flows matter? | evenly spread packets, one thread |
//! | `rivals` | how do other probes process the same file? | softflowd, nfpcapd and pmacctd, and this program with records to the same kind of place |
//!
//! Every run is a process of its own: `thalweg probe`, or a rival. So memory is that of one configuration, and
//! the measured command is what a user would type. Captures are generated from a seed ([`traffic`]), so their
//! contents are known: each run's packets, bytes and flows, as counted by the *receiver* of the records, are
//! compared with the file's. Records that arrived at the collector have a fingerprint, which must be the same
//! under every configuration.
//!
//! All cells run once a round, in shuffled order. From memory, time runs from the first packet to the last record
//! delivered; from a file it is that of the whole process, for all subjects alike.
//!
//! Missing: packets from interfaces (that is `thalweg probe --interface` between namespaces), IPv6, rivals under
//! a flood.

pub mod child;
pub mod collector;
mod outcome;
pub mod render;
pub mod samples;
pub mod shape;
pub mod subject;
pub mod traffic;

pub use outcome::{CellResult, Difference, Outcome, SameRecords};

use crate::rounds::{RunOptions, Turn};
use crate::stats::distinct;
use crate::workload::flows::Spread;
use collector::Transport;
use serde::{Serialize, Serializer};
use shape::Configuration;
use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use subject::{Ground, Run, RunError};
use thalweg_dataplane::queens::Boards;
use traffic::{Capture, Scratch};

/// Numbers of live flows.
pub const FLOWS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Kinds of traffic, the usual one first.
pub const TRAFFIC: [Spread; 3] = [Spread::Zipf(200_000), Spread::Uniform(1_000_000), Spread::Unique];

thalweg_base::words! {
    /// A part of the experiment.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Part {
        /// ffProbe's table: configurations from memory and from a file.
        Table => "table",
        /// Kinds of traffic under a few configurations, with export.
        Traffic => "traffic",
        /// Synthetic work for each packet: how speed-up grows with the grain.
        Grain => "grain",
        /// The number of live flows.
        Flows => "flows",
        /// Other probes on the same file.
        Rivals => "rivals",
    }
}

thalweg_base::words! {
    /// A probe to measure.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Subject {
        /// This program.
        Thalweg => "thalweg",
        /// softflowd, NetFlow 9 to a collector.
        Softflowd => "softflowd",
        /// nfdump's probe, to files of its own.
        Nfpcapd => "nfpcapd",
        /// pmacct's probe, to a text file.
        Pmacctd => "pmacctd",
    }
}

impl Subject {
    /// The kind of place to which its records go.
    fn destination(self) -> Destination {
        match self {
            Subject::Thalweg => Destination::Nowhere,
            Subject::Softflowd => Destination::NetFlow9,
            Subject::Nfpcapd => Destination::Files,
            Subject::Pmacctd => Destination::Csv,
        }
    }
}

thalweg_base::words! {
    /// The source of packets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Input {
        /// Memory, filled before the clock starts.
        Memory => "memory",
        /// A capture file, in the system's cache.
        File => "file",
    }
}

thalweg_base::words! {
    /// The destination of records.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Destination {
        /// Records are made, counted and dropped.
        Nowhere => "none",
        /// IPFIX over UDP.
        IpfixUdp => "ipfix+udp",
        /// IPFIX over TCP.
        IpfixTcp => "ipfix+tcp",
        /// NetFlow 9 over UDP.
        NetFlow9 => "v9+udp",
        /// Text.
        Csv => "csv",
        /// The probe's own kind of files: nfdump's, or a dataset.
        Files => "files",
    }
}

impl Destination {
    /// The transport to the collector, if there is one.
    fn transport(self) -> Option<Transport> {
        match self {
            Destination::Nowhere | Destination::Csv | Destination::Files => None,
            Destination::IpfixUdp | Destination::NetFlow9 => Some(Transport::Udp),
            Destination::IpfixTcp => Some(Transport::Tcp),
        }
    }

    /// The scheme of the collector's address for `--export`.
    fn scheme(self) -> &'static str {
        match self {
            Destination::IpfixTcp => "ipfix+tcp",
            Destination::NetFlow9 => "v9",
            _ => "ipfix",
        }
    }

    /// Whether records carry all fields of the fingerprint.
    fn is_ipfix(self) -> bool {
        matches!(self, Destination::IpfixUdp | Destination::IpfixTcp)
    }
}

macro_rules! serialize_as_name {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )*};
}
serialize_as_name!(Part, Subject, Input, Destination);

/// A combination to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    pub part: Part,
    pub subject: Subject,
    /// The configuration of Thalweg; none for other probes.
    pub configuration: Option<Configuration>,
    pub traffic: Spread,
    pub from: Input,
    pub to: Destination,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject.name())?;
        if let Some(configuration) = self.configuration {
            write!(f, " {configuration}")?;
        }
        write!(f, ", {} from {}, records to {}", self.traffic, self.from.name(), self.to.name())
    }
}

/// The settings of the experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// In any order.
    pub parts: Vec<Part>,
    pub subjects: Vec<Subject>,
    /// Configurations of `table`; the first is also used for `flows` and `rivals`.
    pub configurations: Vec<Configuration>,
    /// Configurations of `traffic`.
    pub traffic_configurations: Vec<Configuration>,
    /// Configurations of `grain`.
    pub grain_configurations: Vec<Configuration>,
    /// Work of `grain`.
    pub work: Vec<Option<Boards>>,
    /// Kinds of traffic. The first is used for `table` and `rivals`, and is the one that others are compared
    /// with.
    pub traffic: Vec<Spread>,
    /// Numbers of live flows.
    pub flows: Vec<u32>,
    /// Packets of a capture.
    pub packets: u64,
    /// Rounds.
    pub runs: usize,
    /// Seed of captures and of the order of runs.
    pub seed: u64,
    /// The `thalweg` program.
    pub program: PathBuf,
}

/// The reasons for which there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ProbeLabError {
    /// A capture or folder cannot be made.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    /// The user interrupted the experiment.
    #[error("interrupted")]
    Interrupted,
    /// No subject could be measured; the reasons, one for each.
    #[error("{}", nothing(.0))]
    Nothing(Vec<String>),
}

fn nothing(why: &[String]) -> String {
    match why {
        [] => "there is nothing to measure in what was asked for".to_owned(),
        why => format!("nothing was measured: {}", why.join("; ")),
    }
}

/// All cells that the options request, each once.
pub fn cells(options: &Options) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let has = |subject| options.subjects.contains(&subject);
    let usual = options.traffic.first().copied();
    let first = options.configurations.first().copied();
    for part in Part::ALL.into_iter().filter(|part| options.parts.contains(part)) {
        let own = |configuration, traffic, from, to| {
            let subject = Subject::Thalweg;
            Cell { part, subject, configuration: Some(configuration), traffic, from, to }
        };
        if has(Subject::Thalweg) {
            match part {
                Part::Table => {
                    for (configuration, traffic) in options.configurations.iter().zip(usual.iter().cycle()) {
                        cells.push(own(*configuration, *traffic, Input::Memory, Destination::Nowhere));
                        cells.push(own(*configuration, *traffic, Input::File, Destination::IpfixTcp));
                    }
                }
                Part::Traffic => {
                    for traffic in &options.traffic {
                        for configuration in &options.traffic_configurations {
                            cells.extend(
                                ways(*traffic).map(|(from, to)| own(*configuration, *traffic, from, to)),
                            );
                        }
                    }
                }
                Part::Grain => {
                    let works = options.work.iter().zip(usual.iter().cycle());
                    cells.extend(works.flat_map(|(work, traffic)| {
                        let configurations = options.grain_configurations.iter();
                        configurations.map(|one| {
                            own(one.with_work(*work), *traffic, Input::Memory, Destination::Nowhere)
                        })
                    }));
                }
                Part::Flows => cells.extend(first.iter().flat_map(|first| {
                    let spreads = options.flows.iter().map(|flows| Spread::Uniform(*flows));
                    spreads.map(|spread| own(*first, spread, Input::Memory, Destination::Nowhere))
                })),
                Part::Rivals => cells.extend(first.zip(usual).into_iter().flat_map(|(first, usual)| {
                    let places = Subject::ALL.map(Subject::destination);
                    places.map(|to| own(first, usual, Input::File, to))
                })),
            }
        }
        if let (Part::Rivals, Some(traffic)) = (part, usual) {
            let rivals = options.subjects.iter().filter(|subject| **subject != Subject::Thalweg);
            cells.extend(rivals.map(|subject| {
                let to = subject.destination();
                Cell { part, subject: *subject, configuration: None, traffic, from: Input::File, to }
            }));
        }
    }
    let mut known = HashSet::new();
    cells.retain(|cell| known.insert(*cell));
    cells
}

/// The inputs and destinations with which this kind of traffic is measured. Export matters most if there are
/// many records.
fn ways(traffic: Spread) -> impl Iterator<Item = (Input, Destination)> {
    let many = matches!(traffic, Spread::Uniform(_));
    let exported = [(Input::Memory, Destination::IpfixUdp), (Input::Memory, Destination::IpfixTcp)];
    let always = [(Input::Memory, Destination::Nowhere), (Input::File, Destination::IpfixTcp)];
    always.into_iter().chain(exported.into_iter().filter(move |_| many))
}

/// Measures all cells. `step` receives the number of finished steps, the number of all steps and the name of
/// the next one. A cell that fails is left out from then on.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    step: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, ProbeLabError> {
    let system = |what| move |source| ProbeLabError::System { what, source };
    let mut cells = cells(options);
    let mut left_out: Vec<String> = Vec::new();
    for subject in Subject::ALL {
        let here = cells.len();
        if let Some(why) = subject::missing(subject) {
            cells.retain(|cell| cell.subject != subject);
            if cells.len() < here {
                left_out.push(format!("skipped: {why}"));
            }
        }
    }
    let scratch = Scratch::new().map_err(system("cannot make a folder for captures"))?;
    let folder = scratch.path().join("run");
    fs::create_dir(&folder).map_err(system("cannot make a folder"))?;
    let spreads = spreads(&cells);
    let total = spreads.len() + cells.len() * options.runs;
    let mut captures = Vec::new();
    for spread in spreads {
        step(captures.len(), total, &format!("making {spread}"));
        let made = Capture::make(spread, options.packets, options.seed, scratch.path());
        captures.push(made.map_err(system("cannot make a capture"))?);
        if stop.load(Ordering::Relaxed) {
            return Err(ProbeLabError::Interrupted);
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let ground = Ground { program: &options.program, cores, stop, folder: &folder };
    let mut rounds = Rounds { cells, captures, ground, runs: Vec::new(), failed: Vec::new() };
    rounds.run(options, total, step)?;
    let Rounds { cells, captures, runs, failed, .. } = rounds;
    left_out.extend(
        cells.iter().zip(&failed).filter_map(|(cell, why)| Some(format!("{cell}: {}", why.as_ref()?))),
    );
    outcome::sum_up(&cells, &runs, &captures, options.runs, left_out)
}

/// The kinds of traffic of cells, each once.
fn spreads(cells: &[Cell]) -> Vec<Spread> {
    distinct(cells.iter().map(|cell| cell.traffic))
}

/// The state of the experiment.
struct Rounds<'a> {
    cells: Vec<Cell>,
    captures: Vec<Capture>,
    ground: Ground<'a>,
    /// By cell.
    runs: Vec<Vec<Run>>,
    /// By cell: why it is no longer measured, if so.
    failed: Vec<Option<String>>,
}

impl Rounds<'_> {
    fn run(
        &mut self,
        options: &Options,
        total: usize,
        step: &mut dyn FnMut(usize, usize, &str),
    ) -> Result<(), ProbeLabError> {
        let made = self.captures.len();
        self.runs = vec![Vec::new(); self.cells.len()];
        self.failed = vec![None; self.cells.len()];
        let order = RunOptions { runs: options.runs, warm_ups: 0, seed: options.seed };
        order.rounds(self.cells.len(), |Turn { at, done, .. }| {
            let cell = self.cells[at];
            step(made + done, total, &cell.to_string());
            if self.failed[at].is_some() {
                return Ok(());
            }
            match self.once(&cell) {
                Ok(run) => self.runs[at].push(run),
                Err(RunError::Child(child::ChildError::Interrupted)) => {
                    return Err(ProbeLabError::Interrupted);
                }
                Err(error) => self.failed[at] = Some(error.to_string()),
            }
            Ok(())
        })
    }

    fn once(&self, cell: &Cell) -> Result<Run, RunError> {
        let capture = self.captures.iter().find(|capture| capture.spread == cell.traffic);
        let Some(capture) = capture else {
            return Err(RunError::Answer { who: "nobody", said: "there is no such capture".to_owned() });
        };
        match cell.configuration {
            Some(configuration) => self.ground.own(&configuration, capture, cell.from, cell.to),
            None => self.ground.rival(cell.subject, capture),
        }
    }
}

#[cfg(test)]
mod tests;
