//! More load than usual: many prefixes flap within a minute. The usual number, the multiple caused by a worm, and
//! that of a peak.

use std::sync::Arc;

use thalweg_node::control::{BgpNeighborView, BgpRequest};
use thalweg_sim::Costs;
use thalweg_sim::churn::{Change, Event, Load, events};
use thalweg_sim::policy::{Policy, Timers};
use thalweg_sim::topology::internet;

use super::bed::{Bed, Seen, Setup};
use super::{Claim, Curves, Findings, Options, Part};
use crate::network::NetworkError;

const WORM: &str = "Lad, Zhao, Zhang, Massey, Zhang 2003 (paper 003, chapter 2.3)";
const PEAK: &str = "Labovitz 1997 (paper 003, chapter 2.3)";
/// The processing cost of an UPDATE, in nanoseconds.
const COSTS_NS: [(&str, u64); 3] =
    [("no cost", 0), ("10 ms an UPDATE", 10_000_000), ("100 ms an UPDATE", 100_000_000)];
/// Changes within the minute at the usual load.
const USUAL: usize = 4;
const MINUTE_US: u64 = 60_000_000;
const FACTORS: [usize; 6] = [1, 4, 24, 100, 300, 1000];

/// One multiple of the load.
struct Cell {
    factor: usize,
    events: usize,
    seen: Seen,
    /// Seconds from the last event to the last change.
    late_s: f64,
    /// Sessions lost.
    lost: u64,
}

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let (ases, most) = if options.quick { (25, 24) } else { (60, 1000) };
    let about = format!(
        "{ases} ASes like the Internet; {USUAL} changes of prefixes in a minute, and multiples of that. An UPDATE costs a \
         router nothing, 10 ms, or 100 ms: a slow one."
    );
    let columns =
        ["events", "UPDATEs", "UPDATEs an event", "at rest after the last event, s", "sessions lost"];
    let mut findings = Findings::new(Part::Surges, about, &columns);
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for (name, cost_ns) in COSTS_NS {
        let costs: Option<Costs> = (cost_ns > 0).then(|| Arc::from([cost_ns]));
        let mut cells = Vec::new();
        for factor in FACTORS.into_iter().filter(|factor| *factor <= most) {
            progress(&format!("{factor} times the usual load, {name}"));
            let cell = surge(ases, factor, costs.as_ref(), options)?;
            let updates = cell.seen.updates as f64;
            let values =
                [cell.events as f64, updates, updates / cell.events as f64, cell.late_s, cell.lost as f64];
            findings.row(format!("x{factor}, {name}"), values);
            cells.push(cell);
        }
        lines.push((name.to_owned(), cells.iter().map(|cell| (cell.factor as f64, cell.late_s)).collect()));
        all.push(cells);
    }
    findings.claims = claims(&all[0], &all[2]);
    findings.remarks.push(
        "A busy router takes in together what arrived meanwhile and tells its neighbors the last state only: the more load, the \
         fewer UPDATEs an event."
            .to_owned(),
    );
    findings.curves.push(Curves {
        title: "Surges",
        caption: "How long the network needs after the last event of the minute.",
        x: "times the usual load",
        y: "seconds",
        log_y: true,
        lines,
    });
    Ok(findings)
}

/// A script of flaps within a minute.
fn script(load: usize, graph: &thalweg_sim::topology::AsGraph, owners: &[usize], seed: u64) -> Vec<Event> {
    let mut script = events(Load::Surge, load, graph, owners, seed);
    let last = script.last().map_or(1, |event| event.0.max(1));
    script.iter_mut().for_each(|event| event.0 = (event.0 as f64 / last as f64 * MINUTE_US as f64) as u64);
    script
}

fn surge(ases: usize, factor: usize, costs: Option<&Costs>, options: &Options) -> Result<Cell, NetworkError> {
    const PREFIXES: usize = 8;
    let graph = internet(ases, options.seed)?;
    let owners: Vec<usize> = (0..PREFIXES * ases).map(|prefix| prefix / PREFIXES).collect();
    // With a hold time, which routers miss if they are busy for longer.
    let timers = Timers::default();
    let setup = Setup { threads: options.threads, timers, ..Setup::of(graph.clone(), options.seed) };
    let mut bed = Bed::new(Setup { policy: Policy::Relationships, costs: None, ..setup })?;
    let announced: Vec<Change> =
        owners.iter().enumerate().map(|(prefix, &node)| Change::Announce { node, prefix }).collect();
    bed.happen(&announced)?;
    bed.simulation.network.set_costs(costs);
    let flaps_before = flaps(&bed)?;
    let script = script(USUAL * factor, &graph, &owners, options.seed);
    let last_s = script.last().map_or(0.0, |event| event.0 as f64 / 1e6);
    let seen = bed.observe(|simulation| simulation.play(&script, |_| {}))?;
    let late_s = (seen.time_s - last_s).max(0.0);
    Ok(Cell { factor, events: script.len(), seen, late_s, lost: flaps(&bed)? - flaps_before })
}

fn flaps(bed: &Bed) -> Result<u64, NetworkError> {
    let mut flaps = 0;
    for node in 0..bed.simulation.network.len() {
        let neighbors: Vec<BgpNeighborView> = bed.simulation.network.ask(node, &BgpRequest::Neighbors)?;
        flaps += neighbors.iter().map(|neighbor| neighbor.flaps).sum::<u64>();
    }
    Ok(flaps)
}

fn claims(free: &[Cell], costly: &[Cell]) -> Vec<Claim> {
    let at = |cells: &[Cell], factor: usize| {
        cells.iter().find(|cell| cell.factor == factor).map_or((0.0, 0), |cell| (cell.late_s, cell.lost))
    };
    let largest = costly.iter().map(|cell| cell.factor).max().unwrap_or(1);
    let (usual, worm, peak) = (at(costly, 1), at(costly, 24), at(costly, largest));
    let free_peak = at(free, largest);
    vec![
        Claim::new(
            WORM,
            "A worm's 24 times the usual load made routers unresponsive",
            format!(
                "slow routers are done {:.1} s after it (usual load: {:.1} s) and lose {} sessions",
                worm.0, usual.0, worm.1
            ),
            worm.1 > 0,
        ),
        Claim::new(
            PEAK,
            "Load reaches 1000 times the average; a router needs to be fast enough for it",
            format!(
                "at {largest} times slow routers are {:.1} s late, those without cost {:.1} s",
                peak.0, free_peak.0
            ),
            peak.0 > 2.0 * usual.0 && peak.0 > 2.0 * free_peak.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A multiple of the load delays slow routers, but not routers that need no time.
    #[test]
    fn only_what_costs_piles_up() {
        let options = Options { parts: Vec::new(), quick: true, threads: 1, seed: 1 };
        let late = |factor, costs: Option<&Costs>| surge(15, factor, costs, &options).unwrap().late_s;
        let slow: Costs = Arc::from([200_000_000_u64]);
        let (little, much) = (late(1, Some(&slow)), late(100, Some(&slow)));
        assert!(much > 3.0 * little, "{little} {much}");
        assert!(late(100, None) < 2.0);
    }
}
