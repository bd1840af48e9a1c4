//! `lab convergence`: what is known of how BGP converges, found again with routers that run the shipped code.
//!
//! | part | question | known from |
//! |---|---|---|
//! | [`Part::Cliques`] | How long does a withdrawal take where everybody is linked to everybody? | Labovitz et al. 2000 |
//! | [`Part::Events`] | Which kind of event takes longest? | Labovitz et al. 2000, Oliveira et al. 2006 |
//! | [`Part::Gadgets`] | Which policies end in a stable state? | Griffin, Shepherd, Wilfong 2002 |
//! | [`Part::Damping`] | Does damping punish a single flap? | Mao et al. 2002, RFC 7196 |
//! | [`Part::Mrai`] | Which interval between advertisements is best? | Griffin, Premore 2001 |
//! | [`Part::Beacons`] | What do prefixes that come and go every two hours show? | Mao et al. 2003 |
//! | [`Part::Surges`] | What does a multiple of the usual load do? | paper 003: a worm's 24 times, peaks of 1000 times |
//! | [`Part::Growth`] | How does churn grow with the network? | Elmokashfi et al. 2010, 2012 |
//!
//! A part gives [`Findings`]: measured rows, curves, and [`Claim`]s, each with what was published, what was found and a
//! verdict that a predicate over the rows decides. Times are virtual: the machine has no part in them.

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

/// A part of the experiment.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A withdrawal in cliques, by size and MRAI
    Cliques,
    /// A prefix that is announced, gets a shorter path, a longer one, and is withdrawn
    Events,
    /// SHORTEST, GOOD, NAUGHTY, DISAGREE, BAD: policies with one stable state, two or none
    Gadgets,
    /// One flap under the old damping parameters and those of RFC 7196
    Damping,
    /// The best MRAI
    Mrai,
    /// Prefixes that are announced and withdrawn every two hours
    Beacons,
    /// The usual load, and 24 to 1000 times as much
    Surges,
    /// Churn by size of the network
    Growth,
}

impl Part {
    /// All of them, in the order of the report.
    pub const ALL: [Part; 8] = [
        Part::Cliques,
        Part::Events,
        Part::Gadgets,
        Part::Damping,
        Part::Mrai,
        Part::Beacons,
        Part::Surges,
        Part::Growth,
    ];
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which parts.
    pub parts: Vec<Part>,
    /// Small networks and few runs.
    pub quick: bool,
    /// Threads that run routers; the answer is the same.
    pub threads: usize,
    /// Decides what is left to chance.
    pub seed: u64,
}

/// A published statement beside what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// Where it was published.
    pub source: &'static str,
    /// What it says.
    pub paper: &'static str,
    /// What was found.
    pub here: String,
    /// Whether both agree.
    pub verdict: Verdict,
}

impl Claim {
    fn new(source: &'static str, paper: &'static str, here: String, holds: bool) -> Self {
        let verdict = if holds { Verdict::Reproduced } else { Verdict::Differs };
        Self { source, paper, here, verdict }
    }
}

/// What was measured under one set of circumstances.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The circumstances.
    pub what: String,
    /// A number for each of the columns.
    pub values: Vec<f64>,
}

/// Lines over a common axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curves {
    /// What they show.
    pub title: &'static str,
    /// How to read them.
    pub caption: &'static str,
    /// Along the bottom.
    pub x: &'static str,
    /// Along the side.
    pub y: &'static str,
    /// The side is logarithmic.
    pub log_y: bool,
    /// Name and points of each.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// What a part found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Which part.
    pub part: Part,
    /// What was done.
    pub about: String,
    /// Names of the numbers.
    pub columns: Vec<&'static str>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Plots.
    pub curves: Vec<Curves>,
    /// Published, and found.
    pub claims: Vec<Claim>,
    /// What else is worth knowing.
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

/// Runs the parts. `progress` hears of what is going on.
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

/// The value at a share of all, once they are sorted; 0 of none.
fn at_share(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * share).round() as usize).copied().unwrap_or(0.0)
}

fn median(values: &mut [f64]) -> f64 {
    at_share(values, 0.5)
}

/// A distribution as points: value, share of all that are not larger.
fn distribution(values: &mut [f64]) -> Vec<(f64, f64)> {
    (0..=50).map(|step| f64::from(step) / 50.0).map(|share| (at_share(values, share), share)).collect()
}
