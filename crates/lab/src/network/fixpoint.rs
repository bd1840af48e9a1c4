//! Computes the stable state of routes on a graph of ASes, up to the whole Internet ([`thalweg_sim::fixpoint`]).
//!
//! A question names an origin, or asks about all of them, and may add a hijacker, a leaker, and shares of ASes that
//! check origins (ROV) or paths (ASPA). The answer counts ASes in steps: without an attack, under attack, and with
//! checks.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use thalweg_sim::fixpoint::{Deployment, Engine, Scenario, Solver, Summary, sweep};
use thalweg_sim::topology::{AsGraph, write_caida};

use super::{GraphFacts, GraphSource, NetworkError, node};

/// Points of a curve: tenths of all ASes.
const TENTHS: u32 = 10;
/// How often a stable state is computed for its median time.
const TIMES: usize = 5;
/// Random sets of deploying ASes per point of a curve.
const DRAWS: u64 = 5;

/// A question; ASes are AS numbers.
#[derive(Clone, Debug)]
pub struct Question {
    pub source: GraphSource,
    /// The AS that owns the prefix; `None`: all ASes in turn.
    pub origin: Option<u32>,
    pub leaker: Option<u32>,
    /// An AS that announces the origin's prefix too.
    pub hijacker: Option<u32>,
    /// The share of ASes that check origins, 0 to 1.
    pub rov: f64,
    /// The share of ASes that publish their providers and check paths, 0 to 1.
    pub aspa: f64,
    /// Seed of the graph and of the ASes that check.
    pub seed: u64,
    /// Threads for a question about all origins.
    pub threads: usize,
    /// Where to write the graph for other programs.
    pub write: Option<PathBuf>,
}

/// One prefix under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The conditions, in words.
    pub what: String,
    /// Seconds to find the stable state: the median of several times.
    pub seconds: f64,
    pub summary: Summary,
}

/// ASes that chose the wrong route, by deployment.
#[derive(Clone, Debug, Serialize)]
pub struct Deployed {
    /// The share of ASes that check.
    pub share: f64,
    /// Wrong ASes of each random set, ascending.
    pub wrong: Vec<u32>,
}

/// The sums over all origins.
#[derive(Clone, Debug, Serialize)]
pub struct Totals {
    pub origins: usize,
    pub threads: usize,
    /// Elapsed seconds.
    pub seconds: f64,
    /// Pairs of an AS and an origin that it reaches, including itself.
    pub routes: u64,
    /// Routes by class: provider, peer, customer, own.
    pub by_class: [u64; 4],
    /// Routes through the leak.
    pub leaked: u64,
    /// Links of all routes.
    pub links: u64,
    pub longest: u32,
    /// Mean length of the routes to each origin, ascending.
    #[serde(skip)]
    pub means: Vec<f64>,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub graph: GraphFacts,
    /// Seconds to prepare the graph for questions.
    pub prepare_s: f64,
    /// Present for one origin.
    pub steps: Vec<Step>,
    /// Present under attack: the effect of ROV (on a hijack) or ASPA (on a leak).
    pub curve: Vec<Deployed>,
    /// Present for all origins.
    pub totals: Option<Totals>,
}

/// Answers a question. For all origins, calls `progress` with the number of origins done.
pub fn ask(question: &Question, progress: &(dyn Fn(usize) + Sync)) -> Result<Answer, NetworkError> {
    let (graph, facts) = question.source.graph(question.seed)?;
    if let Some(path) = &question.write {
        write_caida(&graph, path)?;
    }
    let started = Instant::now();
    let engine = Engine::new(&graph)?;
    let prepare_s = started.elapsed().as_secs_f64();
    let node = |asn: u32| node(&graph, asn);
    let attacked = Scenario {
        origins: question.origin.into_iter().chain(question.hijacker).map(node).collect::<Result<_, _>>()?,
        leaker: question.leaker.map(node).transpose()?,
        rov: Deployment::share(&graph, question.rov, question.seed),
        aspa: Deployment::share(&graph, question.aspa, question.seed),
    };
    if question.origin.is_none() {
        let totals = totals(&engine, &attacked, question.threads, progress);
        return Ok(Answer {
            graph: facts,
            prepare_s,
            steps: Vec::new(),
            curve: Vec::new(),
            totals: Some(totals),
        });
    }
    let mut solver = Solver::new(&engine);
    let steps = steps(&mut solver, question, &attacked);
    let curve = curve(&mut solver, &graph, question, &attacked);
    Ok(Answer { graph: facts, prepare_s, steps, curve, totals: None })
}

/// The steps that the question asks for: without attack, under attack, with checks.
fn steps(solver: &mut Solver<'_>, question: &Question, attacked: &Scenario) -> Vec<Step> {
    let mut scenarios = vec![("as announced".to_owned(), Scenario::announced_by(attacked.origins[0]))];
    let attack: Vec<String> = question
        .hijacker
        .iter()
        .map(|asn| format!("AS{asn} hijacks"))
        .chain(question.leaker.iter().map(|asn| format!("AS{asn} leaks")))
        .collect();
    if !attack.is_empty() {
        let unchecked =
            Scenario { rov: Deployment::default(), aspa: Deployment::default(), ..attacked.clone() };
        scenarios.push((attack.join(", "), unchecked));
        let checks: Vec<String> = [("ROV", question.rov), ("ASPA", question.aspa)]
            .into_iter()
            .filter(|(_, share)| *share > 0.0)
            .map(|(name, share)| format!("{name} at {:.0} %", share * 100.0))
            .collect();
        if !checks.is_empty() {
            scenarios.push((format!("{}; {}", attack.join(", "), checks.join(", ")), attacked.clone()));
        }
    }
    let mut step = |(what, scenario): (String, Scenario)| {
        let mut time = || {
            let started = Instant::now();
            solver.solve(&scenario);
            started.elapsed().as_secs_f64()
        };
        let mut times = [0.0; TIMES].map(|_| time());
        times.sort_unstable_by(f64::total_cmp);
        Step { what, seconds: times[TIMES / 2], summary: solver.summary() }
    };
    scenarios.into_iter().map(&mut step).collect()
}

/// The effect of the check that helps, at each share.
fn curve(
    solver: &mut Solver<'_>,
    graph: &AsGraph,
    question: &Question,
    attacked: &Scenario,
) -> Vec<Deployed> {
    if question.hijacker.is_none() && question.leaker.is_none() {
        return Vec::new();
    }
    let mut at = |tenths: u32| {
        let share = f64::from(tenths) / f64::from(TENTHS);
        let mut draw = |number: u64| {
            let some = Deployment::share(graph, share, question.seed + number);
            let (rov, aspa) = match question.hijacker {
                Some(_) => (some, attacked.aspa.clone()),
                None => (attacked.rov.clone(), some),
            };
            solver.solve(&Scenario { rov, aspa, ..attacked.clone() });
            let summary = solver.summary();
            if question.hijacker.is_some() { summary.hijacked } else { summary.leaked }
        };
        let mut wrong: Vec<u32> = (0..DRAWS).map(&mut draw).collect();
        wrong.sort_unstable();
        Deployed { share, wrong }
    };
    (0..=TENTHS).map(&mut at).collect()
}

fn totals(engine: &Engine, scenario: &Scenario, threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Totals {
    let origins: Vec<usize> = (0..engine.len()).collect();
    let started = Instant::now();
    let all = sweep(engine, scenario, &origins, threads, progress);
    let mut totals = Totals {
        origins: all.len(),
        threads,
        seconds: started.elapsed().as_secs_f64(),
        routes: 0,
        by_class: [0; 4],
        leaked: 0,
        links: 0,
        longest: 0,
        means: Vec::with_capacity(all.len()),
    };
    for summary in &all {
        totals.routes += u64::from(summary.reached);
        totals.leaked += u64::from(summary.leaked);
        totals.links += summary.links;
        totals.longest = totals.longest.max(summary.longest);
        for (sum, count) in totals.by_class.iter_mut().zip(summary.by_class) {
            *sum += u64::from(count);
        }
        totals.means.push(summary.links as f64 / f64::from(summary.reached.max(1)));
    }
    totals.means.sort_unstable_by(f64::total_cmp);
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(origin: Option<u32>) -> Question {
        Question {
            source: GraphSource::Internet(400),
            origin,
            leaker: None,
            hijacker: None,
            rov: 0.0,
            aspa: 0.0,
            seed: 1,
            threads: 2,
            write: None,
        }
    }

    #[test]
    fn checks_help_against_hijacks() {
        let asked = Question { hijacker: Some(350), rov: 0.5, ..question(Some(300)) };
        let answer = ask(&asked, &|_| {}).unwrap();
        let wrong: Vec<u32> = answer.steps.iter().map(|step| step.summary.hijacked).collect();
        assert!(wrong[0] == 0 && wrong[1] > wrong[2] && wrong[2] > 0, "{wrong:?}");
        assert_eq!(answer.curve.len(), 11);
        assert_eq!(answer.curve[0].wrong, vec![wrong[1]; 5]);
        assert_eq!(answer.curve[10].wrong, [1; 5], "the hijacker itself");
    }

    #[test]
    fn all_origins_reach_all_ases() {
        let totals = ask(&question(None), &|_| {}).unwrap().totals.unwrap();
        assert_eq!((totals.origins, totals.routes, totals.by_class[3]), (400, 160_000, 400));
        assert_eq!(totals.by_class.iter().sum::<u64>(), totals.routes);
    }

    #[test]
    fn unknown_ases_are_named() {
        let error = ask(&question(Some(9999)), &|_| {}).unwrap_err();
        assert_eq!(error.to_string(), "AS 9999 is not in the graph: it has 400 ASes, among them 1, 2, 3");
    }
}
