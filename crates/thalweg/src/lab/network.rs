//! `thalweg lab network`: simulated networks.

mod args;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;

use thalweg_lab::network::fixpoint::{self, Question};
use thalweg_lab::network::{GraphSource, answers, interior, render, sessions};
use thalweg_lab::report::Origin;
use thalweg_sim::churn::Load;
use thalweg_sim::interior::Ibgp;
use thalweg_sim::prefixes::PrefixPlan;
use thalweg_sim::topology::Growth;

pub(super) use args::{Grow, IbgpArg, LabNetworkArgs, NetworkEngine, ProcessingArg};

use super::{command_line, failed, measured, show_all};
use crate::Failure;
use crate::cli::Format;

const ASES: usize = 1000;
const ASES_QUICK: usize = 100;
const EVENTS_QUICK: usize = 20;

pub(super) fn run(args: &LabNetworkArgs, format: Format) -> Result<(), Failure> {
    if let Some(zoo) = &args.zoo {
        return run_interior(args, zoo, format);
    }
    match args.engine {
        NetworkEngine::Sessions => run_sessions(args, format),
        NetworkEngine::Fixpoint => run_fixpoint(args, format),
    }
}

fn graph(args: &LabNetworkArgs) -> GraphSource {
    let usual = if args.run.quick { ASES_QUICK } else { ASES };
    let ases = args.ases.map_or(usual, |ases| ases as usize);
    // Each link counts for two ASes.
    let links = args.degree.map_or(2, |degree| degree.get().div_ceil(2));
    match (&args.caida, &args.brite, args.grow) {
        (Some(path), ..) => GraphSource::Caida(path.clone()),
        (_, Some(path), _) => GraphSource::Brite(path.clone()),
        (_, _, Some(Grow::Waxman)) => {
            GraphSource::Grown(ases, Growth::Waxman { links, alpha: 0.15, beta: 0.2 })
        }
        (_, _, Some(Grow::Glp)) => GraphSource::Grown(ases, Growth::Glp { links, more: 0.45, beta: 0.64 }),
        (_, _, Some(Grow::Preferential)) => GraphSource::Grown(ases, Growth::Preferential { links }),
        (_, _, None) if args.degree.is_some() => GraphSource::Grown(ases, Growth::Preferential { links }),
        (_, _, None) => GraphSource::Internet(ases),
    }
}

fn threads(args: &LabNetworkArgs) -> usize {
    args.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// Refuses the first given option that belongs to the other engine.
fn refuse(options: &[(bool, &str)], engine: &str) -> Result<(), Failure> {
    match options.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(Failure::Usage(format!("{option} goes with --engine {engine}"))),
        None => Ok(()),
    }
}

fn run_sessions(args: &LabNetworkArgs, format: Format) -> Result<(), Failure> {
    let of_fixpoint = [
        (args.origin.is_some(), "--origin"),
        (args.hijack.is_some(), "--hijack"),
        (args.leak.is_some(), "--leak"),
        (args.rov > 0.0, "--rov"),
        (args.aspa > 0.0, "--aspa"),
    ];
    refuse(&of_fixpoint, "fixpoint")?;
    thalweg_sim::restart_with_huge_pages();
    let load = match (args.load, args.run.quick) {
        (None, true) => Some((Load::Links, EVENTS_QUICK)),
        (load, _) => load.map(|load| (load, args.events.get())),
    };
    let options = sessions::Options {
        graph: graph(args),
        policy: args.policy,
        mrai_s: args.mrai,
        mrai_withdrawals: !args.withdrawals_at_once,
        prefixes: args.prefixes,
        load,
        collect: args.collect.clone(),
        configurations: args.configurations.clone(),
        processing: (args.processing == ProcessingArg::Measured).then_some(args.processing_scale),
        packets: args.packets.map(NonZeroU64::get),
        threads: threads(args),
        seed: args.run.seed(1),
    };
    let folder = args.run.output("lab-network");
    let outcome = measured(|steps| sessions::run(&options, &folder, &|what| steps.at(0, what)))?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", outcome.graph.source, options.seed));
    let report = render::report(&outcome, origin);
    let mut tables = vec![render::phases(&outcome)];
    if !outcome.collected.is_empty() {
        tables.push(render::collected(&outcome));
    }
    show_all(&report, &outcome, &tables, &folder, format)?;
    match outcome.phases.iter().find(|phase| !phase.is_quiet) {
        None => Ok(()),
        Some(sessions::Phase { name, oscillation: Some(oscillation), .. }) => {
            Err(Failure::Run(format!("{name}: {oscillation}")))
        }
        Some(phase) => Err(Failure::Run(format!(
            "{}: the network did not converge; {} sessions are down",
            phase.name, phase.sessions_down
        ))),
    }
}

/// The experiment with the routers of one AS.
fn run_interior(args: &LabNetworkArgs, zoo: &Path, format: Format) -> Result<(), Failure> {
    let others = [
        (args.engine == NetworkEngine::Fixpoint, "--engine fixpoint"),
        (args.load.is_some(), "--load"),
        (!args.collect.is_empty(), "--collect"),
        (args.mrai > 0, "--mrai"),
        (args.configurations.is_some(), "--configurations"),
        (args.processing == ProcessingArg::Measured, "--processing"),
        (args.origin.is_some() || args.hijack.is_some() || args.leak.is_some(), "an origin or attack"),
    ];
    if let Some((_, option)) = others.iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::Usage(format!(
            "{option} does not go with --zoo, which has the routers of one AS"
        )));
    }
    let PrefixPlan::Each(prefixes) = args.prefixes else {
        return Err(Failure::Usage("with --zoo, --prefixes must be a plain number".to_owned()));
    };
    let ibgp = |way: &IbgpArg| match way {
        IbgpArg::Mesh => Ibgp::Mesh,
        IbgpArg::Reflectors => Ibgp::Reflectors,
    };
    let options = interior::Options {
        zoo: zoo.to_path_buf(),
        ibgp: args.ibgp.iter().map(ibgp).collect(),
        exits: args.exits.get(),
        prefixes,
        threads: threads(args),
        seed: args.run.seed(1),
    };
    let outcome = measured(|steps| interior::run(&options, &|what| steps.at(0, what)))?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", zoo.display(), options.seed));
    let report = interior::report(&outcome, origin);
    show_all(&report, &outcome, &[interior::table(&outcome)], &args.run.output("lab-network"), format)
}

fn run_fixpoint(args: &LabNetworkArgs, format: Format) -> Result<(), Failure> {
    let of_sessions = [
        (args.load.is_some(), "--load"),
        (!args.collect.is_empty(), "--collect"),
        (args.mrai > 0, "--mrai"),
        (args.configurations.is_some(), "--configurations"),
        (args.processing == ProcessingArg::Measured, "--processing"),
        (args.packets.is_some(), "--packets"),
    ];
    refuse(&of_sessions, "sessions")?;
    let (source, folder) = (graph(args), args.run.output("lab-network"));
    let is_made = matches!(source, GraphSource::Internet(_) | GraphSource::Grown(..));
    std::fs::create_dir_all(&folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    let question = Question {
        source,
        origin: args.hijack.map(|(victim, _)| victim).or(args.origin),
        hijacker: args.hijack.map(|(_, attacker)| attacker),
        leaker: args.leak,
        rov: args.rov,
        aspa: args.aspa,
        threads: threads(args),
        seed: args.run.seed(1),
        write: is_made.then(|| folder.join("relationships.txt")),
    };
    let answer = measured(|steps| {
        steps.at(0, "reading or making the graph");
        fixpoint::ask(&question, &|done| steps.at(done, &format!("{done} origins done")))
    })?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", answer.graph.source, question.seed));
    let report = answers::report(&answer, origin);
    show_all(&report, &answer, &answers::tables(&answer), &folder, format)
}
