//! Policies known from theory, each with many random latencies: which runs end, in which state, and which never
//! do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use thalweg_config::RouterConfig;
use thalweg_node::control::{BgpRequest, RouteFilter, RouteView};
use thalweg_sim::gadgets::{Fate, GADGETS, Gadget, State};
use thalweg_sim::oscillation::{Cycle, Settled, settle};
use thalweg_sim::policy::address;
use thalweg_sim::watch::Watch;
use thalweg_sim::{Link, Network, NetworkOptions, Random, SimError, Start};

use super::{Claim, Findings, Options, Part, median};
use crate::network::NetworkError;

const SOURCE: &str = "Griffin, Shepherd, Wilfong 2002";
const QUIET_US: u64 = 3_000_000;
const LIMIT_US: u64 = 60_000_000;

/// The end of a run.
pub(super) enum End {
    State(State),
    Oscillating(Cycle),
    Restless,
}

/// All runs of a gadget.
struct Runs {
    gadget: Gadget,
    states: BTreeMap<State, usize>,
    cycles: Vec<Cycle>,
    restless: usize,
}

pub(super) fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Findings, NetworkError> {
    let seeds = if options.quick { 10 } else { 1000 };
    let mut all = Vec::new();
    for gadget in GADGETS {
        progress(gadget.name);
        let mut runs = Runs { gadget, states: BTreeMap::new(), cycles: Vec::new(), restless: 0 };
        for seed in 0..seeds {
            match end_of(&gadget, &latencies_us(&gadget, options.seed + seed))? {
                End::State(state) => *runs.states.entry(state).or_default() += 1,
                End::Oscillating(cycle) => runs.cycles.push(cycle),
                End::Restless => runs.restless += 1,
            }
        }
        all.push(runs);
    }
    Ok(findings(&all, seeds))
}

/// 1 to 50 ms for each link.
fn latencies_us(gadget: &Gadget, seed: u64) -> Vec<u64> {
    let mut random = Random::of(seed, 0x6761_6467);
    gadget.links().iter().map(|_| 1000 + random.below(49_000) as u64).collect()
}

/// Starts all routers at once and waits.
pub(super) fn end_of(gadget: &Gadget, latencies_us: &[u64]) -> Result<End, NetworkError> {
    let mut network = Network::new(NetworkOptions::default())?;
    for node in 0..gadget.routers() {
        network.add_router(address(node));
    }
    for ((a, b), latency_us) in gadget.links().into_iter().zip(latencies_us) {
        network.set_link(a, b, Link { latency_us: *latency_us, ..Link::default() });
    }
    let watches: Vec<Watch> = (0..gadget.routers()).map(|node| Watch::new(network.clock(node))).collect();
    for (node, watch) in watches.iter().enumerate() {
        let refused = |reason: String| SimError::Refused { router: node, reason };
        let text = gadget.configuration(node);
        let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
        let config = config.map_err(|errors| refused(errors.to_string()))?;
        let config = config.bgp.ok_or_else(|| refused("no [bgp]".to_owned()))?;
        let start = Start { watch: vec![Box::new(watch.clone())], ..Start::default() };
        network.start(node, Arc::new(config), start)?;
    }
    Ok(match settle(&mut network, &watches, QUIET_US, LIMIT_US)? {
        Settled::Quiet(_) => End::State(state(gadget, &network)?),
        Settled::Oscillating(cycle) => End::Oscillating(cycle),
        Settled::Restless(_) => End::Restless,
    })
}

/// The best paths of all routers.
fn state(gadget: &Gadget, network: &Network) -> Result<State, SimError> {
    let of = |node: usize| {
        let routes: Vec<RouteView> = network.ask(node, &BgpRequest::Routes(RouteFilter::default()))?;
        let best = routes.iter().find(|route| route.best);
        Ok(best.and_then(|route| gadget.path(node, &route.as_path)).unwrap_or_default().to_owned())
    };
    (1..gadget.routers()).map(of).collect()
}

fn findings(all: &[Runs], seeds: u64) -> Findings {
    let about = format!(
        "Each router ranks a few paths by import policy and rejects the others; {seeds} draws of latencies each. The stable \
         states are found by trying all."
    );
    let columns =
        ["stable states", "runs that end in one", "in another", "oscillating", "neither", "period, s"];
    let mut findings = Findings::new(Part::Gadgets, about, &columns);
    for runs in all {
        let solutions = runs.gadget.solutions();
        let stable: usize =
            runs.states.iter().filter(|(state, _)| solutions.contains(state)).map(|(_, count)| count).sum();
        let other = runs.states.values().sum::<usize>() - stable;
        let mut periods: Vec<f64> = runs.cycles.iter().map(|cycle| cycle.period_us as f64 / 1e6).collect();
        let counts = [solutions.len(), stable, other, runs.cycles.len(), runs.restless];
        let values = counts.map(|count| count as f64).into_iter().chain([median(&mut periods)]);
        findings.row(runs.gadget.name, values.collect::<Vec<f64>>());
        findings.claims.push(claim(runs, stable, other));
        if let Some(cycle) = runs.cycles.first() {
            findings.remarks.push(format!(
                "{} oscillates: {cycle}: {}",
                runs.gadget.name,
                round(&runs.gadget, cycle)
            ));
        }
    }
    findings
}

/// One round in the paper's notation.
fn round(gadget: &Gadget, cycle: &Cycle) -> String {
    let step = |step: &thalweg_sim::oscillation::Step| {
        let path = step.path.as_deref().and_then(|path| gadget.path(step.router, path));
        format!("{} takes {}", step.router, path.unwrap_or("nothing"))
    };
    cycle.steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

fn claim(runs: &Runs, stable: usize, other: usize) -> Claim {
    let total = stable + other + runs.cycles.len() + runs.restless;
    let ends = format!("{stable} of {total} runs end in a stable state, {} oscillate", runs.cycles.len());
    let clean = other == 0 && runs.restless == 0;
    let (paper, holds) = match runs.gadget.fate {
        Fate::Settles => ("One stable state, and every run ends in it", clean && runs.cycles.is_empty()),
        Fate::Either => {
            ("Two stable states; which one a run ends in depends on timing", clean && runs.states.len() == 2)
        }
        Fate::MayDiverge => ("One stable state, which a run need not reach", clean && stable > 0),
        Fate::Never => ("No stable state: never ends", clean && stable == 0 && total > 0),
    };
    Claim { here: format!("{}: {ends}", runs.gadget.name), ..Claim::new(SOURCE, paper, String::new(), holds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gadget(name: &str) -> Gadget {
        *GADGETS.iter().find(|gadget| gadget.name == name).unwrap()
    }

    /// BAD has no stable state; the report shows a round in which every router but the owner takes part.
    #[test]
    fn what_never_ends_is_named() {
        for seed in 0..5 {
            let bad = gadget("BAD");
            let End::Oscillating(cycle) = end_of(&bad, &latencies_us(&bad, seed)).unwrap() else {
                panic!("seed {seed} ends");
            };
            assert_eq!((cycle.prefix, cycle.routers()), (Gadget::prefix(), vec![1, 2, 3, 4]), "seed {seed}");
            assert!((1_000..1_000_000).contains(&cycle.period_us), "{cycle}");
            let recurs_us = cycle.recurs_us.expect("a state that recurs");
            assert!(recurs_us % cycle.period_us == 0 && cycle.to_string().contains("for ever"), "{cycle}");
        }
    }

    /// The same routers with another ranking of one path end in the stable state.
    #[test]
    fn what_ends_is_not_named() {
        for name in ["GOOD", "SHORTEST"] {
            let gadget = gadget(name);
            for seed in 0..5 {
                let End::State(state) = end_of(&gadget, &latencies_us(&gadget, seed)).unwrap() else {
                    panic!("{name} does not end");
                };
                assert_eq!([state], gadget.solutions()[..], "{name}, seed {seed}");
            }
        }
    }

    /// Two routers prefer each other's path: if their messages cross, they oscillate for ever; otherwise the
    /// faster one decides.
    #[test]
    fn messages_that_cross_go_on_for_ever() {
        let disagree = gadget("DISAGREE");
        assert!(matches!(end_of(&disagree, &[10_000; 3]).unwrap(), End::Oscillating(_)));
        let mut ends = Vec::new();
        for latencies_us in [[5_000, 40_000, 10_000], [40_000, 5_000, 10_000]] {
            match end_of(&disagree, &latencies_us).unwrap() {
                End::State(state) => ends.push(state),
                _ => panic!("where nothing crosses it ends"),
            }
        }
        assert_ne!(ends[0], ends[1]);
        assert!(ends.iter().all(|state| disagree.solutions().contains(state)));
    }
}
