//! `thalweg lab latency`: measures latency by load and by the schedule of worker threads.

use std::time::Duration;

use clap::{Args, ValueEnum};
use thalweg_lab::forwarding::frame::FrameSize;
use thalweg_lab::forwarding::method::SearchOptions;
use thalweg_lab::forwarding::subject::Subject;
use thalweg_lab::forwarding::subject::linux::Linux;
use thalweg_lab::forwarding::subject::thalweg::{DRIVERS, Thalweg};
use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::latency::relay::Relay;
use thalweg_lab::latency::{self, Load, Options, Schedule, render};
use thalweg_lab::report::Origin;

use super::args::{LabRouterArgs, LabRunArgs, VARY, or_usual};
use super::{command_line, failed, forwarding, measured, show_all};
use crate::Failure;
use crate::cli::Format;
use crate::signals::stop_on_signals;

const TRIAL_S: f64 = 3.0;
const TRIAL_S_QUICK: f64 = 1.0;
/// A trial of the search for the lossless rate.
const SEARCH_S: f64 = 0.5;
const WIDTH: f64 = 0.02;
const WIDTH_QUICK: f64 = 0.1;

/// A router under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SubjectArg {
    /// The Linux kernel
    Linux,
    /// This program
    Thalweg,
    /// A thread that only passes frames on
    Relay,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab latency --quick                              about a minute, to see that it works
  thalweg lab latency --drivers af_packet --schedules normal,nice,realtime,nice-poll50 --runs 5
  thalweg lab latency --subjects relay --plant 1000        what is planted must show up
It runs in its own network namespaces, which needs root and the right to real-time priority, and removes them at the end.
Defaults: 3 rounds, trials of 3 s, run-to-completion, all schedules; with --quick 1 round, 1 s, the usual schedule.")]
pub(crate) struct LabLatencyArgs {
    /// Routers to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SUBJECTS",
        default_value = "linux,thalweg,relay",
        help_heading = VARY
    )]
    pub(crate) subjects: Vec<SubjectArg>,
    /// Loads to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LOADS", help_heading = VARY)]
    pub(crate) loads: Vec<Load>,
    /// Schedules of thalweg's workers: `usual`, or a priority, also with polling: `nice-poll50` [default: see below]
    #[arg(long, value_delimiter = ',', value_name = "SCHEDULES", help_heading = VARY)]
    pub(crate) schedules: Vec<Schedule>,
    /// Also measure a relay that holds each frame back by so many microseconds
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u32).range(1..=50_000), help_heading = VARY)]
    pub(crate) plant: Option<u32>,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabLatencyArgs, format: Format) -> Result<(), Failure> {
    if !is_root() {
        return Err(failed(ForwardingError::NotRoot));
    }
    let quick = args.run.quick;
    let trial_s = args.router.trial.unwrap_or(if quick { TRIAL_S_QUICK } else { TRIAL_S });
    let options = Options {
        loads: or_usual(&args.loads, &Load::ALL),
        size: FrameSize::SMALLEST,
        trial_s,
        search_s: trial_s.min(SEARCH_S),
        search: SearchOptions { width: if quick { WIDTH_QUICK } else { WIDTH }, ..SearchOptions::default() },
        runs: args.run.runs(3, 1),
        seed: args.run.seed(1),
    };
    let stop = stop_on_signals()?;
    let mut routers = routers(args, options.size)?;
    namespace::sweep();
    let outcome = measured(|steps| {
        latency::run(&mut routers, &options, &stop, &mut |done, total, what| steps.of(done, total, what))
    })?;
    let input =
        format!("one flow of UDP, frames of {} bytes; seed {}", options.size.wire_bytes(), options.seed);
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show_all(&report, &outcome, &render::tables(&outcome), &args.run.output("lab-latency"), format)
}

fn routers(args: &LabLatencyArgs, size: FrameSize) -> Result<Vec<Box<dyn Subject>>, Failure> {
    let (program, folder) = (forwarding::own_program()?, args.run.output("lab-latency"));
    let usual: &[&str] = if args.run.quick {
        &["usual"]
    } else {
        &["normal", "nice", "nice-poll100", "realtime", "realtime-poll100"]
    };
    let usual = usual.iter().filter_map(|text| text.parse().ok());
    let schedules = or_usual(&args.schedules, &usual.collect::<Vec<Schedule>>());
    let mut routers: Vec<Box<dyn Subject>> = Vec::new();
    for subject in &args.subjects {
        match subject {
            SubjectArg::Linux => routers.push(Box::new(Linux::default())),
            SubjectArg::Relay => routers.push(Box::new(Relay::new(size, Duration::ZERO))),
            SubjectArg::Thalweg => {
                for (driver, model) in args.router.shapes(&DRIVERS, &["run-to-completion"])? {
                    routers.extend(schedules.iter().map(|Schedule { name, workers }| {
                        let router = Thalweg::new(&program, driver, model, &folder);
                        Box::new(router.named(name).with(workers)) as Box<dyn Subject>
                    }));
                }
            }
        }
    }
    let planted = args.plant.map(|us| Relay::new(size, Duration::from_micros(us.into())));
    routers.extend(planted.map(|relay| Box::new(relay) as Box<dyn Subject>));
    Ok(routers)
}
