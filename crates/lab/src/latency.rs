//! The experiment on latency: how long frames take through a router, by load and by how its threads get a core.
//!
//! One flow of the smallest frames goes from tester-a to tester-b. A frame's time is from the clock just before its
//! send call to the kernel's stamp at its arrival (`forwarding/tester.rs`), so no receiver has to wake up. Each router
//! is measured alone: idle, at shares of the fastest rate that it passes without loss, and with few frames while
//! ordinary programs want the cores. The kernel's forwarding is measured in the same rounds, and so is a [`relay`],
//! which shows what this machine adds by waking a thread.
//!
//! ```text
//!   rounds x (routers, shuffled)
//!     set up -> verify -> idle: processor time -> lossless rate -> (loads, shuffled): latency, processor time, loss
//! ```
//!
//! Few frames come from a sender at real-time priority that sleeps between them; at higher rates it keeps a core busy.
//!
//! Missing: traffic in both directions, IPv6, NAT.

mod others;
pub mod relay;
pub mod render;
mod schedule;

pub use schedule::Schedule;

use crate::forwarding::attempts::{Attempts, attempts};
use crate::forwarding::experiment::verify;
use crate::forwarding::frame::FrameSize;
use crate::forwarding::latency::Percentiles;
use crate::forwarding::load::{Scenario, flows};
use crate::forwarding::method::{self, SearchOptions, Trial};
use crate::forwarding::subject::{Label, Subject, Task};
use crate::forwarding::tester::{Offer, Tagged, Tester, Way, mask_for};
use crate::forwarding::topology::Topology;
use crate::forwarding::{ForwardingError, wait};
use crate::stats::{Summary, shuffle};
use others::beside_others;
use serde::Serialize;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use thalweg_base::XorShift64Star;
use thalweg_exec::{Priority, Rank};

/// The links' MTU.
const MTU: usize = 1500;
/// How long a router may take to start forwarding.
const START_WAIT: Duration = Duration::from_secs(20);
/// Frames per second where frames are few.
const FEW_PPS: f64 = 1000.0;
/// How long the generator alone is measured, as a share of a trial.
const CEILING_SHARE: f64 = 0.2;
/// How long other programs run before they count.
const SETTLE: Duration = Duration::from_millis(300);

thalweg_base::words! {
    /// The load on the router and the machine.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Load {
        /// Few frames, nothing else.
        Idle => "idle",
        /// A tenth of the lossless rate.
        Tenth => "tenth",
        /// Half of it.
        Half => "half",
        /// Nine tenths of it.
        NineTenths => "nine-tenths",
        /// Few frames, and programs that want each core a tenth of the time.
        Wanted => "wanted",
        /// Few frames, and programs that want all cores all the time.
        Busy => "busy",
    }
}

impl Load {
    /// The share of the lossless rate; `None` if frames are few.
    fn share(self) -> Option<f64> {
        match self {
            Self::Tenth => Some(0.1),
            Self::Half => Some(0.5),
            Self::NineTenths => Some(0.9),
            Self::Idle | Self::Wanted | Self::Busy => None,
        }
    }

    /// The share of each core that other programs want.
    fn wanted(self) -> f64 {
        match self {
            Self::Wanted => 0.1,
            Self::Busy => 1.0,
            _ => 0.0,
        }
    }
}

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    pub loads: Vec<Load>,
    pub size: FrameSize,
    /// How long a load lasts, in seconds.
    pub trial_s: f64,
    /// How long a trial of the search for the lossless rate lasts, and the search itself.
    pub search_s: f64,
    pub search: SearchOptions,
    pub runs: usize,
    /// The seed of the orders.
    pub seed: u64,
}

/// A router's result under one load.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyResult {
    #[serde(flatten)]
    pub label: Label,
    pub load: Load,
    pub packets_per_second: Summary,
    /// From one tester to the other: medians of the rounds.
    pub one_way: Percentiles,
    /// The 99th percentile in each round, in nanoseconds.
    pub p99_ns: Summary,
    /// The 99.9th.
    pub p999_ns: Summary,
    /// The longest time of all rounds.
    pub longest_ns: u64,
    /// The ratio of the 99th percentile to the kernel's under this load.
    pub native_ratio: Option<f64>,
    /// Cores that the router's own processes kept busy.
    pub cores: Summary,
    pub sent: u64,
    pub lost: u64,
}

/// What holds for a router whatever the load.
#[derive(Clone, Debug, Serialize)]
pub struct RouterResult {
    #[serde(flatten)]
    pub label: Label,
    /// The fastest rate without loss.
    pub lossless_pps: Summary,
    /// Its ratio to the one of the same router with threads of ordinary priority that do not poll.
    pub normal_ratio: Option<f64>,
    /// Cores that its processes keep busy without a packet.
    pub idle_cores: Summary,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    pub trial_s: f64,
    /// Includes the check sequence.
    pub frame_bytes: usize,
    pub routers: Vec<RouterResult>,
    /// One entry per router and load.
    pub cells: Vec<LatencyResult>,
    /// Who was left out, and why.
    pub left_out: Vec<String>,
}

/// One round of one router.
#[derive(Clone, Debug)]
struct Run {
    idle_cores: f64,
    lossless_pps: f64,
    loads: Vec<LoadRun>,
}

#[derive(Clone, Debug)]
struct LoadRun {
    load: Load,
    rate_pps: f64,
    trial: Trial,
    percentiles: Percentiles,
    cores: f64,
}

/// Measures all routers. Calls `step` with the number of steps done, their total and the next one. A router that
/// cannot be set up or does not forward is left out from then on.
pub fn run(
    routers: &mut [Box<dyn Subject>],
    options: &Options,
    stop: &AtomicBool,
    step: &mut dyn FnMut(usize, usize, &str),
) -> Result<Outcome, ForwardingError> {
    let mut rng = XorShift64Star::new(options.seed);
    let labels: Vec<Label> = routers.iter().map(|router| router.label().clone()).collect();
    let names: Vec<String> = labels.iter().map(Label::to_string).collect();
    let once = |at: usize| {
        let mut loads = options.loads.clone();
        shuffle(&mut loads, &mut rng);
        once(routers[at].as_mut(), &loads, options, stop)
    };
    let Attempts { runs, left_out } = attempts((options.runs, options.seed), &names, step, once)?;
    let measured: Vec<(Label, Vec<Run>)> = labels.into_iter().zip(runs).collect();
    let cells = sum_up(&measured, &options.loads);
    if cells.is_empty() {
        return Err(ForwardingError::Nothing(left_out));
    }
    let (runs, trial_s, frame_bytes) = (options.runs, options.trial_s, options.size.wire_bytes());
    Ok(Outcome { runs, trial_s, frame_bytes, routers: sum_up_routers(&measured), cells, left_out })
}

/// Measures one router once, in a topology of its own.
fn once(
    subject: &mut dyn Subject,
    loads: &[Load],
    options: &Options,
    stop: &AtomicBool,
) -> Result<Run, ForwardingError> {
    let task = Task { nat: false, table: &[], mtu: MTU };
    if let Some(said) = subject.refuses(&task) {
        return Err(ForwardingError::Command { command: subject.label().to_string(), said });
    }
    let topology = Topology::new(MTU)?;
    let ran =
        subject.set_up(&topology, &task).and_then(|()| measure(&topology, subject, loads, options, stop));
    subject.tear_down();
    ran
}

fn measure(
    topology: &Topology,
    subject: &dyn Subject,
    loads: &[Load],
    options: &Options,
    stop: &AtomicBool,
) -> Result<Run, ForwardingError> {
    let flows = flows(&Scenario { nat: false, full_table: false, flows: 1 }, &[], options.seed);
    let mut tester = Tester::new(topology, Way::Router, options.size, &flows, stop)?;
    verify(&mut tester, flows.len(), START_WAIT, subject)?;
    let (idle, idle_cores) = cores_of(subject, || wait(Duration::from_secs_f64(options.trial_s), stop));
    idle?;
    let mut direct = Tester::new(topology, Way::Direct, options.size, &flows, stop)?;
    let ceiling = direct.trial(Offer::flood(options.search_s * CEILING_SHARE), &|| 0.0)?;
    let found = method::throughput(ceiling.received_pps(), &options.search, |rate| {
        tester.trial(Offer::paced(rate, options.search_s), &|| 0.0)
    })?;
    let mut run = Run { idle_cores, lossless_pps: found.rate_pps, loads: Vec::new() };
    for &load in loads {
        let rate_pps = load.share().map_or(FEW_PPS, |share| (share * found.rate_pps).max(1.0));
        let ((trial, tagged), cores) = under(load, rate_pps, &mut tester, subject, options, stop)?;
        if let Some(percentiles) = Percentiles::of(tagged.latencies_ns) {
            run.loads.push(LoadRun { load, rate_pps, trial, percentiles, cores });
        }
    }
    Ok(run)
}

/// What a load comes to, and how many cores the router kept busy under it.
fn under(
    load: Load,
    rate_pps: f64,
    tester: &mut Tester<'_>,
    subject: &dyn Subject,
    options: &Options,
    stop: &AtomicBool,
) -> Result<((Trial, Tagged), f64), ForwardingError> {
    let (offer, mask) = (Offer::paced(rate_pps, options.trial_s), mask_for(rate_pps, options.trial_s));
    if load.share().is_some() {
        let (trial, cores) = cores_of(subject, || tester.tagged(offer, mask, &|| 0.0));
        return Ok((trial?, cores));
    }
    beside_others(load.wanted(), || {
        if load != Load::Idle {
            wait(SETTLE, stop)?;
        }
        // The one who measures does not wait for a core.
        let send = || {
            let _rank = Rank::take(Priority::RealTime);
            tester.tagged(offer.sleeping(), mask, &|| 0.0)
        };
        let (trial, cores) = cores_of(subject, || std::thread::scope(|scope| scope.spawn(send).join()));
        let ended = |_| ForwardingError::System {
            what: "sending test frames".to_owned(),
            source: io::Error::other("the thread ended early"),
        };
        Ok((trial.map_err(ended)??, cores))
    })
}

/// What work comes to, and how many cores the router's processes kept busy meanwhile.
fn cores_of<R>(subject: &dyn Subject, work: impl FnOnce() -> R) -> (R, f64) {
    let (begin, before_s) = (Instant::now(), subject.cpu_s());
    let result = work();
    let used_s = (subject.cpu_s() - before_s).max(0.0);
    (result, used_s / begin.elapsed().as_secs_f64())
}

/// The results under each load, each compared with the kernel's.
fn sum_up(measured: &[(Label, Vec<Run>)], loads: &[Load]) -> Vec<LatencyResult> {
    let mut cells = Vec::new();
    for (label, runs) in measured {
        for load in loads {
            let here: Vec<&LoadRun> =
                runs.iter().flat_map(|run| &run.loads).filter(|run| run.load == *load).collect();
            let summary = |value: fn(&LoadRun) -> f64| {
                Summary::of(&here.iter().map(|run| value(run)).collect::<Vec<_>>())
            };
            let rounds: Vec<Percentiles> = here.iter().map(|run| run.percentiles).collect();
            let (Some(packets_per_second), Some(one_way), Some(p99_ns), Some(p999_ns), Some(cores)) = (
                summary(|run| run.rate_pps),
                Percentiles::median_of(&rounds),
                summary(|run| run.percentiles.p99_ns as f64),
                summary(|run| run.percentiles.p999_ns as f64),
                summary(|run| run.cores),
            ) else {
                continue;
            };
            cells.push(LatencyResult {
                label: label.clone(),
                load: *load,
                packets_per_second,
                one_way,
                p99_ns,
                p999_ns,
                longest_ns: rounds.iter().map(|round| round.max_ns).max().unwrap_or(0),
                native_ratio: None,
                cores,
                sent: here.iter().map(|run| run.trial.sent).sum(),
                lost: here.iter().map(|run| run.trial.sent.saturating_sub(run.trial.received)).sum(),
            });
        }
    }
    let native = cells.iter().filter(|cell| cell.label.is_native());
    let native: Vec<(Load, f64)> = native.map(|cell| (cell.load, cell.p99_ns.median)).collect();
    for cell in &mut cells {
        let kernel = native.iter().find(|(load, median)| *load == cell.load && *median > 0.0);
        cell.native_ratio = kernel.map(|(_, median)| cell.p99_ns.median / median);
    }
    cells
}

fn sum_up_routers(measured: &[(Label, Vec<Run>)]) -> Vec<RouterResult> {
    let summary =
        |runs: &[Run], value: fn(&Run) -> f64| Summary::of(&runs.iter().map(value).collect::<Vec<_>>());
    let result = |(label, runs): &(Label, Vec<Run>)| {
        let lossless_pps = summary(runs, |run| run.lossless_pps)?;
        let is_normal =
            |other: &Label| other.change == Priority::Normal.name() && other.unchanged() == label.unchanged();
        let normal = measured.iter().find(|(other, _)| is_normal(other));
        let normal = normal.and_then(|(_, runs)| summary(runs, |run| run.lossless_pps));
        let normal = normal.filter(|normal| normal.median > 0.0);
        Some(RouterResult {
            label: label.clone(),
            lossless_pps,
            normal_ratio: normal.map(|normal| lossless_pps.median / normal.median),
            idle_cores: summary(runs, |run| run.idle_cores)?,
        })
    };
    measured.iter().filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(subject: &str, change: &str) -> Label {
        Label { change: change.to_owned(), ..Label::new(subject, "driver", "") }
    }

    fn round(lossless_pps: f64, p99_ns: u64, cores: f64) -> Run {
        let percentiles =
            Percentiles { p99_ns, p999_ns: 2 * p99_ns, max_ns: 3 * p99_ns, ..Percentiles::default() };
        let trial = Trial { sent: 10, received: 9, ..Trial::default() };
        let run = LoadRun { load: Load::Tenth, rate_pps: lossless_pps / 10.0, trial, percentiles, cores };
        Run { idle_cores: cores / 10.0, lossless_pps, loads: vec![run] }
    }

    #[test]
    fn routers_are_compared_with_the_kernel_and_with_themselves() {
        let measured = [
            (label("linux", ""), vec![round(1e6, 10, 0.0), round(1e6, 30, 0.0), round(1e6, 20, 0.0)]),
            (label("thalweg", "normal"), vec![round(4e5, 50, 0.5)]),
            (label("thalweg", "nice"), vec![round(3e5, 40, 0.25), round(5e5, 40, 0.75)]),
            (label("absent", ""), Vec::new()),
        ];
        let cells = sum_up(&measured, &[Load::Idle, Load::Tenth]);
        assert_eq!(cells.len(), 3, "nobody was measured idle, and one router never");
        let ratios: Vec<Option<f64>> = cells.iter().map(|cell| cell.native_ratio).collect();
        assert_eq!(ratios, [Some(1.0), Some(2.5), Some(2.0)]);
        assert_eq!((cells[0].p99_ns.min, cells[0].p99_ns.max, cells[0].longest_ns), (10.0, 30.0, 90));
        assert_eq!((cells[0].sent, cells[0].lost, cells[2].cores.median), (30, 3, 0.5));
        let routers = sum_up_routers(&measured);
        let ratios: Vec<Option<f64>> = routers.iter().map(|router| router.normal_ratio).collect();
        assert_eq!(ratios, [None, Some(1.0), Some(1.0)]);
        assert_eq!((routers[2].lossless_pps.min, routers[2].idle_cores.median), (3e5, 0.05));
        assert!(sum_up(&measured[..0], &Load::ALL).is_empty() && sum_up_routers(&measured[3..]).is_empty());
    }
}
