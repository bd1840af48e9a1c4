//! `thalweg lab forwarding`: measures routers between two testers in network namespaces.

mod args;

use std::path::{Path, PathBuf};

use thalweg_lab::forwarding::ablation;
use thalweg_lab::forwarding::application::{MTUS, message_bytes};
use thalweg_lab::forwarding::experiment::{self, Options, Part, Progress};
use thalweg_lab::forwarding::frame::{FRAME_SIZES, FrameSize};
use thalweg_lab::forwarding::load::{RouteTable, Scenario};
use thalweg_lab::forwarding::method::{BurstOptions, SearchOptions};
use thalweg_lab::forwarding::ports::PORTS;
use thalweg_lab::forwarding::subject::Subject;
use thalweg_lab::forwarding::subject::bridge::Bridge;
use thalweg_lab::forwarding::subject::linux::Linux;
use thalweg_lab::forwarding::subject::thalweg::{DRIVERS, Thalweg};
use thalweg_lab::forwarding::subject::xdp::XdpForward;
use thalweg_lab::forwarding::{ForwardingError, is_root, render};
use thalweg_lab::report::Origin;

pub(super) use args::{LabForwardingArgs, SubjectArg};

use super::args::{LabRunArgs, or_usual};
use super::{command_line, failed, measured, show_all};
use crate::Failure;
use crate::cli::Format;
use crate::signals::stop_on_signals;

const RUNS: usize = 3;
const RUNS_QUICK: usize = 1;
const TRIAL_S: f64 = 1.0;
const TRIAL_S_QUICK: f64 = 0.1;
const BURSTS: usize = 5;
const BURSTS_QUICK: usize = 1;
/// A search stops this close to the answer, as a fraction of the ceiling.
const WIDTH: f64 = 0.01;
const WIDTH_QUICK: f64 = 0.04;
const FRAMES_QUICK: [usize; 2] = [64, 1518];
/// As many as a configuration can name.
const CORES_MAX: usize = 1024;
/// The two models that seed document 004 compares.
const MODELS: [&str; 2] = ["run-to-completion", "pipeline"];
const SCENARIOS: [&str; 5] = ["one:1", "one:10000", "full:60000", "nat:1", "nat:10000"];
const SCENARIOS_QUICK: [&str; 3] = ["one:1", "full:60000", "nat:10000"];

pub(super) fn run(args: &LabForwardingArgs, format: Format) -> Result<(), Failure> {
    if !is_root() {
        return Err(failed(ForwardingError::NotRoot));
    }
    let options = options(args);
    let stop = stop_on_signals()?;
    let wants_table = options.scenarios.iter().any(|scenario| scenario.full_table);
    let table = route_table(args.prefixes.as_deref(), wants_table, &args.run)?;
    let mut subjects = subjects(args)?;
    let outcome = measured(|steps| {
        experiment::run(&mut subjects, &options, &table, &stop, &mut |Progress { done, total, next }| {
            steps.of(done, total, &next);
        })
    })?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", table.description, args.run.seed(1)));
    let report = render::report(&outcome, origin);
    show_all(&report, &outcome, &render::tables(&outcome), &args.run.output("lab-forwarding"), format)
}

/// The table of a file, or a generated one.
pub(super) fn route_table(
    file: Option<&Path>,
    is_wanted: bool,
    run: &LabRunArgs,
) -> Result<RouteTable, Failure> {
    match file {
        _ if !is_wanted => Ok(RouteTable { prefixes: Vec::new(), description: "no table".to_owned() }),
        Some(path) => RouteTable::read(path).map_err(failed),
        None => Ok(RouteTable::made(run.seed(1), run.quick)),
    }
}

/// This program's path, for running it again as a router.
pub(super) fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|source| {
        failed(ForwardingError::System { what: "this program's own path".to_owned(), source })
    })
}

/// The last core that this process may use.
fn last_core() -> usize {
    (0..CORES_MAX).rev().find(|core| thalweg_exec::core_is_usable(*core).is_ok()).unwrap_or(0)
}

fn options(args: &LabForwardingArgs) -> Options {
    let quick = args.run.quick;
    let frames: &[usize] = if quick { &FRAMES_QUICK } else { &FRAME_SIZES };
    let scenarios: &[&str] = if quick { &SCENARIOS_QUICK } else { &SCENARIOS };
    let sizes: Vec<FrameSize> = frames.iter().filter_map(|bytes| FrameSize::new(*bytes).ok()).collect();
    let usual: Vec<Scenario> = scenarios.iter().filter_map(|text| text.parse().ok()).collect();
    let trial_s = args.router.trial.unwrap_or(if quick { TRIAL_S_QUICK } else { TRIAL_S });
    let repeats = args.bursts.map_or(if quick { BURSTS_QUICK } else { BURSTS }, |n| n.get());
    Options {
        parts: or_usual(&args.only, &Part::ALL),
        frames: or_usual(&args.frames, &sizes),
        scenarios: or_usual(&args.scenarios, &usual),
        all_frames: args.all_frames,
        runs: args.run.runs(RUNS, RUNS_QUICK),
        trial_s,
        search: SearchOptions {
            loss_max: args.loss,
            width: if quick { WIDTH_QUICK } else { WIDTH },
            ..SearchOptions::default()
        },
        bursts: BurstOptions { repeats, longest_s: trial_s },
        ports: or_usual(&args.ports, &PORTS),
        message_bytes: message_bytes(&MTUS, quick),
        seed: args.run.seed(1),
        ..Options::default()
    }
}

fn subjects(args: &LabForwardingArgs) -> Result<Vec<Box<dyn Subject>>, Failure> {
    let program = own_program()?;
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for subject in &args.subjects {
        match subject {
            SubjectArg::Linux => subjects.push(Box::new(Linux::default())),
            SubjectArg::Bridge => subjects.push(Box::new(Bridge::default())),
            SubjectArg::XdpForward => subjects.push(Box::new(XdpForward::default())),
            SubjectArg::Thalweg => {
                let folder = args.run.output("lab-forwarding");
                if !args.ablate.is_empty() {
                    for (driver, model) in args.router.shapes(&DRIVERS[..2], &MODELS[..1])? {
                        let routers =
                            ablation::routers(&program, driver, model, &args.ablate, last_core(), &folder);
                        subjects
                            .extend(routers.into_iter().map(|router| Box::new(router) as Box<dyn Subject>));
                    }
                    continue;
                }
                let usual = &MODELS[..if args.run.quick { 1 } else { MODELS.len() }];
                for (driver, model) in args.router.shapes(&DRIVERS, usual)? {
                    subjects.push(Box::new(Thalweg::new(&program, driver, model, &folder)));
                }
            }
        }
    }
    Ok(subjects)
}
