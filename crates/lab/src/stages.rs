//! Measures what each stage costs without receiving and sending: cycles per packet and stage, on one core.
//!
//! The router is the one that `replay` and `run` build, its stages driven as the serial model drives them: batches
//! of up to 256 packets, neighboring stages over batches in turn for each batch. Frames are the smallest, laid out
//! in memory by the same core just before, so they are in its second- and third-level cache, about where a network
//! card's would be. Compared with a live figure, this separates the work on packets from that on interfaces.
//!
//! A *workload* ([`Workload`]) is a table of routes or a number of NAT sessions; a router may meter its flows and sample
//! its packets besides ([`Load`]), for records and samples that go nowhere. In every round each workload gets
//! new frames, in shuffled order; a stage's figure is the *median over chunks*, so another program's time slice
//! affects only the chunks it falls into. The results are medians and ranges over rounds. See [`clock`] for the
//! clock.
//!
//! Invariants: every packet of every round is forwarded, or there is no result; sessions are opened before anything
//! is timed and none expires.

pub mod clock;
pub(crate) mod measure;
pub mod render;

pub use measure::{Bed, StageError, StageTicks};

use crate::rounds::RunOptions;
use crate::stats::Summary;
use crate::unexpected::Unexpected;
use clock::Calibration;
use serde::Serialize;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use thalweg_base::{CHUNK_PACKETS_DEFAULT, XorShift64Star};
use thalweg_flow::PacketSampling;

/// The name of the sum of all stages.
pub const ALL_STAGES: &str = "all";
/// The most sessions of a workload, which fit 256 public addresses.
pub const SESSIONS_MAX: u32 = 10_000_000;
/// The most rules of the firewall.
pub const RULES_MAX: u32 = 50_000;

/// What the packets need of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// IPv4 with only a default route.
    OneRoute,
    /// IPv4 with the whole table; each packet has its own address, drawn evenly over the prefixes.
    FullTable,
    /// IPv4 with the whole table; few addresses occur often and many seldom.
    FullTableZipf,
    /// NAT, in both directions over this many established sessions, at random.
    Nat(u32),
    /// The firewall, in both directions over this many connections, at random.
    Firewall { rules: u32, states: u32 },
}

impl Workload {
    /// The sessions of NAT, or the connections of the firewall.
    pub fn sessions(self) -> u32 {
        match self {
            Workload::Nat(sessions) => sessions,
            Workload::Firewall { states, .. } => states,
            Workload::OneRoute | Workload::FullTable | Workload::FullTableZipf => 0,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::OneRoute => f.write_str("one"),
            Workload::FullTable => f.write_str("full"),
            Workload::FullTableZipf => f.write_str("full-zipf"),
            Workload::Nat(sessions) => write!(f, "nat:{sessions}"),
            Workload::Firewall { rules, states } => write!(f, "firewall:{rules}:{states}"),
        }
    }
}

/// As on the command line: `one`, `full`, `full-zipf`, `nat:SESSIONS` or `firewall:RULES:STATES`.
impl FromStr for Workload {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        match text {
            "one" => return Ok(Workload::OneRoute),
            "full" => return Ok(Workload::FullTable),
            "full-zipf" => return Ok(Workload::FullTableZipf),
            _ => {}
        }
        let firewall = text.strip_prefix("firewall:").and_then(|numbers| {
            let (rules, states) = numbers.split_once(':')?;
            Some((rules.parse().ok()?, states.parse().ok()?))
        });
        if let Some((rules, states)) = firewall {
            if (1..=RULES_MAX).contains(&rules) && (1..=SESSIONS_MAX).contains(&states) {
                return Ok(Workload::Firewall { rules, states });
            }
            let expected = format!("1 to {RULES_MAX} rules and 1 to {SESSIONS_MAX} connections");
            return Err(Unexpected::new(text, expected));
        }
        let sessions = text.strip_prefix("nat:").and_then(|number| number.parse().ok());
        match sessions {
            Some(sessions) if (1..=SESSIONS_MAX).contains(&sessions) => Ok(Workload::Nat(sessions)),
            Some(_) => Err(Unexpected::new(text, format!("1 to {SESSIONS_MAX} sessions"))),
            None => {
                let expected =
                    "one, full, full-zipf, nat:SESSIONS or firewall:RULES:STATES, such as nat:4000";
                Err(Unexpected::new(text, expected))
            }
        }
    }
}

/// What the router does with packets besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metering {
    #[default]
    None,
    Flows,
    /// Flows, and samples of one packet in so many for sFlow: a router has no samples without flows.
    Sflow(NonZeroU32),
}

/// A workload, and what is metered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    pub workload: Workload,
    pub metering: Metering,
}

impl From<Workload> for Load {
    fn from(workload: Workload) -> Self {
        Self { workload, metering: Metering::None }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metering {
            Metering::None => self.workload.fmt(f),
            Metering::Flows => write!(f, "{}@flows", self.workload),
            Metering::Sflow(one_in) => write!(f, "{}@sflow:{one_in}", self.workload),
        }
    }
}

/// A workload, alone or with `@flows` or `@sflow:N` behind it.
impl FromStr for Load {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let Some((workload, metering)) = text.split_once('@') else {
            return Ok(Self::from(text.parse::<Workload>()?));
        };
        let rate = metering.strip_prefix("sflow:").and_then(one_in);
        let metering = match (metering, rate) {
            ("flows", _) => Metering::Flows,
            (_, Some(rate)) => Metering::Sflow(rate),
            (_, None) => {
                let expected = "@flows, or @sflow:N for samples of one packet in N, behind a workload";
                return Err(Unexpected::new(text, expected));
            }
        };
        Ok(Self { workload: workload.parse()?, metering })
    }
}

/// A rate of samples: one packet in so many.
pub(crate) fn one_in(digits: &str) -> Option<NonZeroU32> {
    digits.parse().ok().filter(|rate: &NonZeroU32| rate.get() <= PacketSampling::RATE_MAX)
}

/// What to measure, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    pub workloads: Vec<Load>,
    pub runs: usize,
    /// Chunks per round and workload.
    pub chunks: usize,
    pub chunk_packets: usize,
    /// Seed of addresses, sessions and orders.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workloads: [
                Workload::OneRoute,
                Workload::FullTable,
                Workload::FullTableZipf,
                Workload::Nat(4_000),
                Workload::Nat(100_000),
                Workload::Nat(1_000_000),
            ]
            .map(Load::from)
            .to_vec(),
            runs: 15,
            chunks: 40,
            chunk_packets: CHUNK_PACKETS_DEFAULT,
            seed: XorShift64Star::DEFAULT_SEED,
        }
    }
}

/// What a stage costs per packet of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageResult {
    pub workload: String,
    pub routes: usize,
    pub sessions: u32,
    /// The stage's name, or [`ALL_STAGES`].
    pub stage: String,
    /// Ticks of the time stamp counter.
    pub tsc_cycles_per_packet: Summary,
    /// Cycles of an undisturbed core, for the median.
    pub core_cycles_per_packet: Option<f64>,
    /// Nanoseconds, for the median.
    pub ns_per_packet: f64,
}

/// The results of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub runs: usize,
    pub chunk_packets: usize,
    /// The length of a tick.
    pub clock: Calibration,
    /// One entry per workload and stage.
    pub cells: Vec<StageResult>,
}

/// Measures all workloads. `beds` has a router for each, in the same order; `step` is called with what comes next.
pub fn run(
    beds: &mut [Bed],
    options: &Options,
    step: &mut dyn FnMut(usize, &str),
) -> Result<Outcome, StageError> {
    let clock = Calibration::measure();
    let mut rng = XorShift64Star::new(options.seed);
    let mut rounds: Vec<Vec<StageTicks>> = beds.iter().map(|_| Vec::new()).collect();
    // The first round warms up.
    let order = RunOptions { runs: options.runs, warm_ups: 1, seed: options.seed };
    order.rounds(beds.len(), |turn| -> Result<(), StageError> {
        let bed = &mut beds[turn.at];
        step(turn.done, &bed.load().to_string());
        let ticks = bed.round(options, clock.reading_ticks, rng.next_u64())?;
        if turn.counts {
            rounds[turn.at].push(ticks);
        }
        Ok(())
    })?;
    let cells = beds.iter().zip(&rounds).flat_map(|(bed, rounds)| sum_up(bed, rounds, &clock)).collect();
    Ok(Outcome { runs: options.runs, chunk_packets: options.chunk_packets, clock, cells })
}

/// A result per stage, and one for their sum.
fn sum_up(bed: &Bed, rounds: &[StageTicks], clock: &Calibration) -> Vec<StageResult> {
    let sessions = bed.load().workload.sessions();
    let result = |stage: &str, ticks: &[f64]| {
        let summary = Summary::of(ticks)?;
        Some(StageResult {
            workload: bed.load().to_string(),
            routes: bed.routes(),
            sessions,
            stage: stage.to_owned(),
            tsc_cycles_per_packet: summary,
            core_cycles_per_packet: clock.core_cycles(summary.median),
            ns_per_packet: clock.ns(summary.median),
        })
    };
    let of_stage = |at: usize| rounds.iter().map(|round| round.stages[at]).collect::<Vec<f64>>();
    let all: Vec<f64> = rounds.iter().map(|round| round.all).collect();
    let stages = bed.stages();
    let each = stages.iter().enumerate().filter_map(|(at, stage)| result(stage, &of_stage(at)));
    each.chain(result(ALL_STAGES, &all)).collect()
}

#[cfg(test)]
mod tests;
