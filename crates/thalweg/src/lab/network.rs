//! `thalweg lab network`: simulated networks.

use std::num::NonZeroUsize;

use thalweg_lab::network::{GraphSource, fixpoint, render, sessions};
use thalweg_lab::report::Origin;
use thalweg_sim::churn::Load;

use super::{command_line, failed, show, show_all};
use crate::Failure;
use crate::cli::{Format, LabNetworkArgs, NetworkEngine};
use crate::progress::Steps;

const ASES: usize = 1000;
const ASES_QUICK: usize = 100;
const EVENTS_QUICK: usize = 20;

pub(super) fn run(args: &LabNetworkArgs, format: Format) -> Result<(), Failure> {
    match args.engine {
        NetworkEngine::Sessions => run_sessions(args, format),
        NetworkEngine::Fixpoint => run_fixpoint(args, format),
    }
}

fn graph(args: &LabNetworkArgs) -> GraphSource {
    let usual = if args.run.quick { ASES_QUICK } else { ASES };
    let ases = args.ases.map_or(usual, |ases| ases as usize);
    match (&args.caida, args.degree) {
        (Some(path), _) => GraphSource::Relationships(path.clone()),
        // Each link counts for two.
        (None, Some(degree)) => GraphSource::Preferential(ases, degree.get().div_ceil(2)),
        (None, None) => GraphSource::Internet(ases),
    }
}

fn threads(args: &LabNetworkArgs) -> usize {
    args.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

fn run_sessions(args: &LabNetworkArgs, format: Format) -> Result<(), Failure> {
    if let Some(option) = [
        args.origin.map(|_| "--origin"),
        args.hijack.map(|_| "--hijack"),
        args.leak.map(|_| "--leak"),
        (args.rov > 0.0).then_some("--rov"),
        (args.aspa > 0.0).then_some("--aspa"),
    ]
    .into_iter()
    .flatten()
    .next()
    {
        return Err(Failure::Usage(format!("{option} goes with --engine fixpoint")));
    }
    let load = match (args.load, args.run.quick) {
        (None, true) => Some((Load::Links, EVENTS_QUICK)),
        (load, _) => load.map(|load| (load, args.events.get())),
    };
    let options = sessions::Options {
        graph: graph(args),
        policy: args.policy,
        mrai_s: args.mrai,
        prefixes: args.prefixes,
        load,
        collect: args.collect.clone(),
        threads: threads(args),
        seed: args.run.seed(1),
    };
    let folder = args.run.output("lab-network");
    let steps = Steps::on_terminal(None);
    let outcome = sessions::run(&options, &folder, &|what| steps.at(0, what));
    steps.finish();
    let outcome = outcome.map_err(failed)?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", outcome.graph.source, options.seed));
    let report = render::sessions(&outcome, origin);
    let mut tables = vec![render::phases(&outcome)];
    if !outcome.collected.is_empty() {
        tables.push(render::collected(&outcome));
    }
    show_all(&report, &outcome, &tables, &folder, format)?;
    match outcome.phases.iter().find(|phase| !phase.is_quiet) {
        None => Ok(()),
        Some(phase) => Err(Failure::Run(format!(
            "{}: the network did not come to rest; {} sessions are down",
            phase.name, phase.sessions_down
        ))),
    }
}

fn run_fixpoint(args: &LabNetworkArgs, format: Format) -> Result<(), Failure> {
    if let Some(option) = [
        args.load.map(|_| "--load"),
        (!args.collect.is_empty()).then_some("--collect"),
        (args.mrai > 0).then_some("--mrai"),
    ]
    .into_iter()
    .flatten()
    .next()
    {
        return Err(Failure::Usage(format!("{option} goes with --engine sessions")));
    }
    let options = fixpoint::Options {
        graph: graph(args),
        origin: args.hijack.map(|(victim, _)| victim).or(args.origin),
        hijacker: args.hijack.map(|(_, attacker)| attacker),
        leaker: args.leak,
        rov: args.rov,
        aspa: args.aspa,
        threads: threads(args),
        seed: args.run.seed(1),
    };
    let steps = Steps::on_terminal(None);
    let outcome = fixpoint::run(&options, &|done, of| {
        if done % 100 == 0 {
            steps.at(done, &format!("{done} of {of} prefixes"));
        }
    });
    steps.finish();
    let outcome = outcome.map_err(failed)?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", outcome.graph.source, options.seed));
    let report = render::fixpoint(&outcome, origin);
    show(&report, &outcome, &render::found(&outcome), &args.run.output("lab-network"), format)
}
