//! `thalweg lab bgp`: compares schedulings of the daemon under the same loads.
//!
//! The daemon is this program (`thalweg run`) in a separate process: see [`schedulings`].

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use thalweg_exec::control_plane::SchedulingKind;
use thalweg_lab::bgp::caches::marks_address;
use thalweg_lab::bgp::daemon::Advertise;
use thalweg_lab::bgp::experiment::{self, Part, RunOptions};
use thalweg_lab::bgp::replay::Replay;
use thalweg_lab::bgp::schedulings::{self, Setting};
use thalweg_lab::bgp::table::Neighbors;
use thalweg_lab::cores::Cores;
use thalweg_lab::report::Origin;

use super::args::{LabRunArgs, VARY, numbers, or_usual};
use super::{command_line, failed, forwarding, measured, show_all};
use crate::cli::{Format, SCHEDULINGS, one_of};
use crate::{Failure, print};

/// Prefixes that every neighbor announces on up to four cores (in proportion on more: a shorter run would measure its
/// beginning and end), and those of Wu's loads.
const PREFIXES: usize = 50_000;
const PREFIXES_QUICK: usize = 20_000;
const PREFIXES_FOR_CORES: usize = 4;
const WU_PREFIXES: usize = 100_000;
const WU_PREFIXES_QUICK: usize = 50_000;
/// With twelve neighbors this gives 1000 UPDATEs, as many as the thesis timed.
const CACHE_PREFIXES: usize = 400;
const RUNS: usize = 5;
const RUNS_QUICK: usize = 3;
/// The most messages of a file, usually a gigabyte.
const REPLAY_MESSAGES_MAX: usize = 4_000_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab bgp                                             everything, on a generated table
  thalweg lab bgp --only speed-up --cores 1,2,4 --threads-per-core 1,2
  thalweg lab bgp --only mixes,functions --advertise monitor  with the cost of announcing
  thalweg lab bgp --trace updates.20260222.1530.bz2           the peers of an MRT file
  thalweg lab bgp --quick                                     under two minutes, to see that it works
Default of --runs: 5; 3 with --quick.")]
pub(crate) struct LabBgpArgs {
    /// Announce what the peers of this MRT file announced, instead of a generated table
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Parts of the experiment [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = VARY)]
    pub(crate) only: Vec<Part>,
    /// Schedulings to compare
    #[arg(
        long,
        value_parser = one_of(SCHEDULINGS),
        value_delimiter = ',',
        value_name = "SCHEDULINGS",
        default_value = "serial,per-peer,dynamic,sharded",
        help_heading = VARY
    )]
    pub(crate) schedulings: Vec<SchedulingKind>,
    /// Numbers of cores for the daemon; parts that do not vary it take the largest [default: 1, each power of two, all]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = VARY)]
    pub(crate) cores: Vec<NonZeroUsize>,
    /// Threads per core of dynamic and sharded (per-peer has one per neighbor)
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "COUNTS",
        default_value = "1,2,4",
        help_heading = VARY
    )]
    pub(crate) threads_per_core: Vec<NonZeroUsize>,
    /// Who receives the daemon's best routes [default: monitor for ways and wu, none for the others]
    #[arg(long, value_enum, value_name = "RECEIVER")]
    pub(crate) advertise: Option<Advertise>,
    /// Messages per turn, where neighbors take turns
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) turn: NonZeroUsize,
    /// Number of neighbors that announce routes
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) neighbors: NonZeroUsize,
    /// Prefixes per neighbor [default: 50000, in proportion on more than 4 cores, and 100000 in Wu's loads; 20000 and 50000
    /// with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) prefixes: Option<NonZeroUsize>,
    /// What `caches` runs under valgrind: one thread takes every neighbor's turns
    #[arg(long, hide = true)]
    pub(crate) alone: bool,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabBgpArgs, format: Format) -> Result<(), Failure> {
    if args.alone {
        return alone(args);
    }
    let setting = setting(args)?;
    let cells = schedulings::cells(&setting);
    let total = setting.runs.total(cells.len());
    let mut outcome =
        measured(|steps| schedulings::run(&setting, &cells, |done, what| steps.of(done, total, what)))?;
    if setting.parts.contains(&Part::Receive) {
        measured(|steps| {
            schedulings::receive(&setting, args.run.quick, &mut outcome, |done, what| steps.at(done, what))
        })?;
    }
    if setting.parts.contains(&Part::Caches) {
        measured(|steps| {
            steps.at(0, "recording what a thread touches");
            schedulings::caches(&setting, &mut outcome)
        })?;
    }
    outcome.finish();
    let origin = Origin::here(command_line(), schedulings::describe(&setting));
    let report = experiment::report(&outcome, schedulings::lead(&outcome), origin);
    show_all(&report, &outcome, &experiment::tables(&outcome), &args.run.output("lab-bgp"), format)
}

/// Prints the address of the marks, plays the load, and prints the number of UPDATEs.
fn alone(args: &LabBgpArgs) -> Result<(), Failure> {
    let prefixes = args.prefixes.map_or(CACHE_PREFIXES, NonZeroUsize::get);
    // In one write and on a line of its own, because valgrind writes to the same stream.
    let marks = format!("\nmarks {}\n", marks_address());
    std::io::stderr().write_all(marks.as_bytes()).map_err(failed)?;
    let updates = schedulings::alone(neighbors(args), prefixes, args.run.seed(1)).map_err(failed)?;
    print(&format!("{updates}\n"))
}

fn neighbors(args: &LabBgpArgs) -> Neighbors {
    let address = std::net::Ipv4Addr::new(127, 0, 1, 1);
    Neighbors { count: args.neighbors.get(), address, as_number: 64_600 }
}

fn setting(args: &LabBgpArgs) -> Result<Setting, Failure> {
    let cores = Cores::here().map_err(failed)?;
    let core_counts = or_usual(&numbers(&args.cores), &cores.steps());
    if let Some(many) = core_counts.iter().find(|count| **count > cores.count()) {
        let have = cores.count();
        return Err(Failure::Usage(format!("--cores {many}: this process may use only {have} cores")));
    }
    let replay = match &args.trace {
        None => None,
        Some(path) => {
            let replay = Replay::read(path, REPLAY_MESSAGES_MAX).map_err(failed)?;
            Some((path.display().to_string(), replay))
        }
    };
    let quick = args.run.quick;
    let or = |given: Option<NonZeroUsize>, normal, few| {
        given.map_or(if quick { few } else { normal }, |n| n.get())
    };
    let most = core_counts.iter().copied().max().unwrap_or(1);
    let times = (most / PREFIXES_FOR_CORES).max(1);
    Ok(Setting {
        parts: or_usual(&args.only, &Part::ALL),
        schedulings: args.schedulings.iter().map(|scheduling| scheduling.name().to_owned()).collect(),
        cores,
        core_counts,
        threads_per_core: numbers(&args.threads_per_core),
        advertise: args.advertise,
        turn: args.turn.get(),
        neighbors: neighbors(args),
        cache_prefixes: args.prefixes.map_or(CACHE_PREFIXES, NonZeroUsize::get),
        prefixes: or(args.prefixes, PREFIXES * times, PREFIXES_QUICK * times),
        wu_prefixes: or(args.prefixes, WU_PREFIXES, WU_PREFIXES_QUICK),
        runs: RunOptions {
            runs: args.run.runs(RUNS, RUNS_QUICK),
            warm_ups: usize::from(!quick),
            seed: args.run.seed(1),
        },
        replay,
        program: forwarding::own_program()?,
        folder: args.run.output("lab-bgp").join("daemon"),
    })
}
