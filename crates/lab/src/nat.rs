//! The experiment on address translation, or the stateful firewall in its place: set-up rate, capacity, tear-down and
//! established throughput by number of sessions, as defined by RFC 9693; in memory ([`memory`]) and live beside the
//! kernel's own translation or filtering ([`live`]).
//!
//! ```text
//!   rounds x (memory: numbers of sessions, shuffled)
//!   rounds x (routers, shuffled): set-up rate, established by sessions, tear-down; capacity in the last round
//! ```
//!
//! The firewall has connections where NAT has sessions, and is measured once for each number of rules; all but the last
//! match nothing. The kernel has the same rules in nftables.
//!
//! Every figure is of *valid* sessions: their replies arrived at the right host. If sessions are invalid in
//! memory, there is no result at all; live, the search finds a lower rate or number. Medians and ranges of
//! rounds are given.
//!
//! Missing: traffic both ways at once, TCP, IPv6, RFC 9693's variation of port ranges.

pub mod live;
pub mod memory;
pub mod render;
pub mod subject;

use crate::forwarding::ForwardingError;
use crate::forwarding::method::SearchOptions;
use crate::forwarding::subject::{Label, Subject};
use crate::forwarding::topology::Topology;
use crate::stages::Workload;
use crate::stages::clock::Calibration;
use crate::stats::{Summary, shuffle};
use memory::{Fill, MemoryError, MemoryRun};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_base::XorShift64Star;

thalweg_base::words! {
    /// What is measured.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Part {
        /// Set-up, established, tear-down and bytes without interfaces, by number of sessions.
        Memory => "memory",
        /// The highest rate of valid new sessions.
        SetUp => "set-up",
        /// Throughput over established sessions.
        Established => "established",
        /// How fast one command clears all sessions.
        TearDown => "tear-down",
        /// The number of concurrent sessions.
        Capacity => "capacity",
    }
}

/// The settings of the experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which parts.
    pub parts: Vec<Part>,
    /// Numbers of rules of a firewall to measure instead of NAT.
    pub firewall_rules: Vec<u32>,
    /// Numbers of sessions in memory.
    pub memory_sessions: Vec<u32>,
    /// Packets over established sessions in memory.
    pub memory_packets: u64,
    /// The size of the table that is filled to see how much of it can be used.
    pub fill_room: u32,
    /// Sessions of a set-up trial; at most [`crate::forwarding::tester::CAPTURE_MAX`].
    pub set_up_sessions: u32,
    /// Numbers of sessions for which throughput is searched, live.
    pub live_sessions: Vec<u32>,
    /// The most sessions that are tried at once, live.
    pub capacity_limit: u32,
    /// Rounds.
    pub runs: usize,
    /// How long a trial over established sessions sends, seconds.
    pub trial_s: f64,
    /// How rates are searched.
    pub search: SearchOptions,
    /// Seed of sessions and orders.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parts: Part::ALL.to_vec(),
            firewall_rules: Vec::new(),
            memory_sessions: vec![4_000, 100_000, 1_000_000, 10_000_000],
            memory_packets: 320_000,
            fill_room: 1 << 20,
            set_up_sessions: 40_000,
            live_sessions: vec![1_000, 10_000, 100_000],
            capacity_limit: 300_000,
            runs: 3,
            trial_s: 0.5,
            search: SearchOptions { width: 0.02, ..SearchOptions::default() },
            seed: XorShift64Star::DEFAULT_SEED,
        }
    }
}

impl Options {
    /// Whether a part was selected.
    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// What is measured in memory.
    fn workloads(&self) -> Vec<Workload> {
        let all = |sessions: &u32| -> Vec<Workload> {
            let states = *sessions;
            match self.firewall_rules.as_slice() {
                [] => vec![Workload::Nat(states)],
                rules => rules.iter().map(|rules| Workload::Firewall { rules: *rules, states }).collect(),
            }
        };
        let sessions = self.memory_sessions.iter().filter(|_| self.has(Part::Memory));
        sessions.flat_map(all).collect()
    }

    /// Whether anything is to be measured live.
    pub fn is_live(&self) -> bool {
        self.parts.iter().any(|part| *part != Part::Memory)
    }
}

/// The results in memory for one number of sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryResult {
    pub sessions: u32,
    /// The rules of a firewall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<u32>,
    /// Sessions opened per second by the stage alone.
    pub set_up_per_second: Summary,
    /// The nanoseconds of the stage per opened session.
    pub set_up_ns: f64,
    /// The same of the whole router.
    pub set_up_all_ns: f64,
    /// The ticks of the time stamp counter that the stage takes for a packet of an established session.
    pub established_tsc_cycles: Summary,
    /// The same in nanoseconds.
    pub established_ns: f64,
    /// The same of the whole router.
    pub established_all_ns: f64,
    /// Sessions removed per second when all have expired at once.
    pub tear_down_per_second: Summary,
    /// Bytes per session that the table has room for; the maximum over the rounds.
    pub bytes_per_session: Option<f64>,
}

/// A live result of one router and measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveResult {
    #[serde(flatten)]
    pub label: Label,
    pub measure: Part,
    /// The sessions of a trial, or those that throughput is measured over; for capacity, the sessions that
    /// were held.
    pub sessions: u32,
    /// Sessions or packets per second; none for capacity.
    pub per_second: Option<Summary>,
    /// For set-up: the rate at which all frames arrived, before their sessions were validated.
    pub counted_per_second: Option<f64>,
    /// The ratio of the median to the kernel's.
    pub native_ratio: Option<f64>,
    /// For capacity: whether the search reached its limit, so that there may be room for more.
    pub at_least: bool,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Rounds.
    pub runs: usize,
    /// The stage that has the sessions: `nat` or `firewall`.
    pub stage: &'static str,
    /// The calibration of the time stamp counter.
    pub clock: Calibration,
    /// The generator alone with the smallest frame, in frames per second; live only.
    pub ceiling_per_second: Option<Summary>,
    /// One object for each number of sessions in memory.
    pub memory: Vec<MemoryResult>,
    /// How much of a table can be used.
    pub fill: Option<FillResult>,
    /// One object for each router and figure.
    pub live: Vec<LiveResult>,
    /// Subjects that were left out, and why.
    pub left_out: Vec<String>,
}

/// The result for a table that was offered more than it has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FillResult {
    /// The number of sessions that it has room for.
    pub room: u32,
    /// Sessions opened before the first was refused.
    pub before_first_refusal: u32,
    /// The sessions held at the end.
    pub held: u32,
}

impl From<Fill> for FillResult {
    fn from(fill: Fill) -> Self {
        Self { room: fill.room, before_first_refusal: fill.before_first_refusal, held: fill.held }
    }
}

/// The reasons for which there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NatError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Live(#[from] ForwardingError),
}

/// The live results of one router, round by round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveRuns {
    /// Set-up searches.
    pub set_up: Vec<live::SetUp>,
    /// A number of sessions, and the throughput over them.
    pub established: Vec<(u32, f64)>,
    /// Sessions removed per second.
    pub tear_down: Vec<f64>,
    /// The sessions held, and whether the search reached its limit.
    pub capacity: Option<(u32, bool)>,
}

/// Runs the whole experiment. `step` receives the number of finished steps, the number of all steps and the
/// name of the next one.
pub fn run(
    subjects: &mut [Box<dyn Subject>],
    options: &Options,
    stop: &AtomicBool,
    step: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, NatError> {
    let clock = Calibration::measure();
    let mut rng = XorShift64Star::new(options.seed);
    let workloads = options.workloads();
    let (cells, translates) = (workloads.len(), options.firewall_rules.is_empty());
    let routers = if options.is_live() { subjects.len() } else { 0 };
    let total = options.runs * (cells + routers);
    let mut done = 0;
    let mut step = |what: &str| {
        step(done, total, what);
        done += 1;
    };

    let mut memory: Vec<(Workload, Vec<MemoryRun>)> =
        workloads.iter().map(|workload| (*workload, Vec::new())).collect();
    let mut fill = None;
    let mut left_out = Vec::new();
    let mut ceilings = Vec::new();
    let mut runs: Vec<LiveRuns> = vec![LiveRuns::default(); subjects.len()];
    let mut absent = vec![false; subjects.len()];
    for round in 0..options.runs {
        let mut order: Vec<usize> = (0..cells).collect();
        shuffle(&mut order, &mut rng);
        for at in order {
            let (workload, runs) = &mut memory[at];
            step(&format!("in memory, {workload}"));
            runs.push(memory::measure(*workload, options.memory_packets, rng.next_u64(), &clock)?);
            if stop.load(Ordering::Relaxed) {
                return Err(ForwardingError::Interrupted.into());
            }
        }
        if let Some(like) = workloads.first().filter(|_| round == 0) {
            fill = Some(memory::fill(*like, options.fill_room, options.seed, &clock)?.into());
        }
        if !options.is_live() {
            continue;
        }
        let ceiling = live::ceiling(&Topology::new(1500)?, options.trial_s, stop)?;
        ceilings.push(ceiling);
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        shuffle(&mut order, &mut rng);
        for at in order {
            let subject = subjects[at].as_mut();
            let label = subject.label().clone();
            step(&label.to_string());
            if absent[at] {
                continue;
            }
            let last = round + 1 == options.runs;
            match live_round((subject, translates), options, ceiling, last, stop, &mut runs[at]) {
                Ok(()) => {}
                Err(ForwardingError::Interrupted) => return Err(ForwardingError::Interrupted.into()),
                Err(error) => {
                    absent[at] = true;
                    left_out.push(format!("{label}: {error}"));
                }
            }
        }
    }
    let labels: Vec<Label> = subjects.iter().map(|subject| subject.label().clone()).collect();
    Ok(Outcome {
        runs: options.runs,
        stage: if translates { "nat" } else { "firewall" },
        clock,
        ceiling_per_second: Summary::of(&ceilings),
        memory: memory.iter().filter_map(|(workload, runs)| sum_up_memory(*workload, runs, &clock)).collect(),
        fill,
        live: sum_up_live(&labels, &runs, options.set_up_sessions),
        left_out,
    })
}

/// Measures one router in one round. Each part starts a router without sessions.
fn live_round(
    (subject, translates): (&mut dyn Subject, bool),
    options: &Options,
    ceiling_pps: f64,
    last: bool,
    stop: &AtomicBool,
    runs: &mut LiveRuns,
) -> Result<(), ForwardingError> {
    if options.has(Part::SetUp) {
        let sessions = options.set_up_sessions;
        let found = live::with_router((subject, translates), stop, |bench| {
            bench.set_up_rate(sessions, ceiling_pps, &options.search)
        })?;
        runs.set_up.push(found);
    }
    if options.has(Part::Established) {
        for &sessions in &options.live_sessions {
            let pps = live::with_router((subject, translates), stop, |bench| {
                bench.established(sessions, ceiling_pps, options.trial_s, &options.search)
            })?;
            runs.established.push((sessions, pps));
        }
    }
    if options.has(Part::TearDown) {
        let rate = live::with_router((subject, translates), stop, |bench| {
            bench.tear_down_rate(options.set_up_sessions)
        })?;
        runs.tear_down.extend(rate);
    }
    if options.has(Part::Capacity) && last {
        let first = options.set_up_sessions.min(options.capacity_limit);
        let found = live::capacity(first, options.capacity_limit, |sessions| {
            live::with_router((subject, translates), stop, |bench| bench.holds(sessions))
        })?;
        runs.capacity = Some(found);
    }
    Ok(())
}

fn sum_up_memory(workload: Workload, runs: &[MemoryRun], clock: &Calibration) -> Option<MemoryResult> {
    let of = |value: &dyn Fn(&MemoryRun) -> f64| Summary::of(&runs.iter().map(value).collect::<Vec<_>>());
    let ns = |value: &dyn Fn(&MemoryRun) -> f64| Some(clock.ns(of(value)?.median));
    let bytes: Vec<f64> = runs.iter().filter_map(|run| run.bytes_per_session).collect();
    let sessions = workload.sessions();
    Some(MemoryResult {
        sessions,
        rules: if let Workload::Firewall { rules, .. } = workload { Some(rules) } else { None },
        set_up_per_second: of(&|run| 1e9 / clock.ns(run.set_up_ticks).max(f64::MIN_POSITIVE))?,
        set_up_ns: ns(&|run| run.set_up_ticks)?,
        set_up_all_ns: ns(&|run| run.set_up_all_ticks)?,
        established_tsc_cycles: of(&|run| run.established_ticks)?,
        established_ns: ns(&|run| run.established_ticks)?,
        established_all_ns: ns(&|run| run.established_all_ticks)?,
        tear_down_per_second: of(&|run| f64::from(sessions) / run.tear_down_s.max(1e-9))?,
        // Memory freed in an earlier round may be reused, so a later round may see less: the maximum is
        // right.
        bytes_per_session: Summary::of(&bytes).map(|summary| summary.max),
    })
}

/// The results of all routers, each compared with the kernel's.
fn sum_up_live(labels: &[Label], runs: &[LiveRuns], set_up_sessions: u32) -> Vec<LiveResult> {
    let mut results = Vec::new();
    for (label, runs) in labels.iter().zip(runs) {
        let result = |measure, sessions, values: &[f64]| {
            let per_second = Some(Summary::of(values)?);
            let label = label.clone();
            let (counted_per_second, native_ratio) = (None, None);
            Some(LiveResult {
                label,
                measure,
                sessions,
                per_second,
                counted_per_second,
                native_ratio,
                at_least: false,
            })
        };
        let valid: Vec<f64> = runs.set_up.iter().map(|run| run.valid_pps).collect();
        let counted: Vec<f64> = runs.set_up.iter().map(|run| run.counted_pps).collect();
        let counted = Summary::of(&counted).map(|summary| summary.median);
        results.extend(
            result(Part::SetUp, set_up_sessions, &valid)
                .map(|result| LiveResult { counted_per_second: counted, ..result }),
        );
        let mut numbers: Vec<u32> = runs.established.iter().map(|(sessions, _)| *sessions).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for sessions in numbers {
            let here = runs.established.iter().filter(|(n, _)| *n == sessions);
            let values: Vec<f64> = here.map(|(_, pps)| *pps).collect();
            results.extend(result(Part::Established, sessions, &values));
        }
        results.extend(result(Part::TearDown, set_up_sessions, &runs.tear_down));
        results.extend(runs.capacity.map(|(sessions, at_least)| LiveResult {
            label: label.clone(),
            measure: Part::Capacity,
            sessions,
            per_second: None,
            counted_per_second: None,
            native_ratio: None,
            at_least,
        }));
    }
    compare(&mut results);
    results
}

fn compare(results: &mut [LiveResult]) {
    let native: Vec<LiveResult> = results.iter().filter(|r| r.label.is_native()).cloned().collect();
    for result in results {
        let same = |other: &&LiveResult| {
            let same = other.measure == result.measure && other.sessions == result.sessions;
            same && other.label.change == result.label.change && other.per_second.is_some()
        };
        let kernel = native.iter().find(same).and_then(|other| other.per_second);
        result.native_ratio = kernel
            .zip(result.per_second)
            .filter(|(kernel, _)| kernel.median > 0.0)
            .map(|(kernel, own)| own.median / kernel.median);
    }
}

#[cfg(test)]
mod tests;
