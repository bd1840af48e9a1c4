//! `lab convergence`: repeats published findings on BGP's convergence with routers that run the shipped code.
//!
//! | part | question | known from |
//! |---|---|---|
//! | [`Part::Cliques`] | How long does a withdrawal take in a full mesh? | Labovitz et al. 2000 |
//! | [`Part::Events`] | Which kind of event takes longest? | Labovitz et al. 2000, Oliveira et al. 2006 |
//! | [`Part::Gadgets`] | Which policies end in a stable state? | Griffin, Shepherd, Wilfong 2002 |
//! | [`Part::Damping`] | Does damping punish a single flap? | Mao et al. 2002, RFC 7196 |
//! | [`Part::Mrai`] | Which interval between advertisements is best? | Griffin, Premore 2001 |
//! | [`Part::Beacons`] | What do prefixes show that are withdrawn every two hours? | Mao et al. 2003 |
//! | [`Part::Surges`] | What does a multiple of the usual load cause? | paper 003: a worm's 24 times, peaks of 1000 times |
//! | [`Part::Growth`] | How does churn grow with the network? | Elmokashfi et al. 2010, 2012 |
//!
//! A part gives [`Findings`]: measured rows, curves, and [`Claim`]s, each with what was published, what was found
//! and a verdict that a predicate over the rows decides. Times are virtual and do not depend on the machine.

mod bed;
mod cliques;
mod damping;
mod events;
mod gadgets;
mod growth;
mod intervals;
mod render;
mod surges;

use serde::Serialize;

use crate::claims::Verdict;
use crate::network::NetworkError;
pub use render::{report, tables};

thalweg_base::words! {
    /// A part of the experiment.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Part {
        /// A withdrawal in cliques, by size and MRAI
        Cliques => "Cliques",
        /// A prefix that is announced, gets a shorter path, a longer one, and is withdrawn
        Events => "Kinds of events",
        /// SHORTEST, GOOD, NAUGHTY, DISAGREE, BAD: policies with one stable state, two or none
        Gadgets => "Policies",
        /// One flap under the old damping parameters and those of RFC 7196
        Damping => "Damping",
        /// The best MRAI
        Mrai => "The best interval",
        /// Prefixes that are announced and withdrawn every two hours
        Beacons => "Beacons",
        /// The usual load, and 24 to 1000 times as much
        Surges => "Surges",
        /// Churn by size of the network
        Growth => "Growth",
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    pub parts: Vec<Part>,
    /// Use small networks and few runs.
    pub quick: bool,
    /// Threads that run routers; they do not affect the answer.
    pub threads: usize,
    /// The seed of all chance.
    pub seed: u64,
}

/// A published statement beside the finding here.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Where it was published.
    pub source: &'static str,
    /// The statement.
    pub paper: &'static str,
    /// The finding here, in words.
    pub here: String,
    pub verdict: Verdict,
}

impl Claim {
    fn new(source: &'static str, paper: &'static str, here: String, holds: bool) -> Self {
        let verdict = if holds { Verdict::Reproduced } else { Verdict::Differs };
        Self { source, paper, here, verdict }
    }
}

/// The measurements under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The conditions.
    pub what: String,
    /// One number per column.
    pub values: Vec<f64>,
}

/// Lines over a common axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curves {
    pub title: &'static str,
    pub caption: &'static str,
    /// The label of the x axis.
    pub x: &'static str,
    /// The label of the y axis.
    pub y: &'static str,
    /// Whether the y axis is logarithmic.
    pub log_y: bool,
    /// Each line's name and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// The results of a part.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    pub part: Part,
    /// What was run.
    pub about: String,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    pub rows: Vec<Row>,
    pub curves: Vec<Curves>,
    pub claims: Vec<Claim>,
    /// Anything else worth knowing.
    pub remarks: Vec<String>,
}

impl Findings {
    fn new(part: Part, about: impl Into<String>, columns: &[&'static str]) -> Self {
        Self {
            part,
            about: about.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            curves: Vec::new(),
            claims: Vec::new(),
            remarks: Vec::new(),
        }
    }

    fn row(&mut self, what: impl Into<String>, values: impl Into<Vec<f64>>) {
        self.rows.push(Row { what: what.into(), values: values.into() });
    }
}

/// Runs the parts. Calls `progress` with what happens next.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Vec<Findings>, NetworkError> {
    let run = |part: &Part| match part {
        Part::Cliques => cliques::run(options, progress),
        Part::Events => events::run(options, progress),
        Part::Gadgets => gadgets::run(options, progress),
        Part::Damping => damping::run(options, progress),
        Part::Mrai => intervals::run(options, progress),
        Part::Beacons => events::beacons(options, progress),
        Part::Surges => surges::run(options, progress),
        Part::Growth => growth::run(options, progress),
    };
    options.parts.iter().map(run).collect()
}

/// A quantile of the values, which it sorts; 0 if there are none.
fn at_share(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * share).round() as usize).copied().unwrap_or(0.0)
}

fn median(values: &mut [f64]) -> f64 {
    at_share(values, 0.5)
}

/// A distribution as points: a value, and the share of values up to it.
fn distribution(values: &mut [f64]) -> Vec<(f64, f64)> {
    (0..=50).map(|step| f64::from(step) / 50.0).map(|share| (at_share(values, share), share)).collect()
}
