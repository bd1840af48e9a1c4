//! `thalweg lab bulk`: measures bulk TCP through NAT, with pings beside it.

use clap::Args;
use thalweg_lab::bulk::{self, Load, Options, Router, render};
use thalweg_lab::forwarding::subject::linux::Linux;
use thalweg_lab::forwarding::subject::thalweg::{DRIVERS, Thalweg};
use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::report::Origin;

use super::args::{LabRouterArgs, LabRunArgs, LabSubjectsArgs, RouterArg, VARY};
use super::{command_line, failed, forwarding, show};
use crate::Failure;
use crate::cli::Format;
use crate::progress::Steps;
use crate::signals::stop_on_signals;

const TRIAL_S_QUICK: f64 = 1.0;
const WARM_UP_S_QUICK: f64 = 0.3;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab bulk --quick                                 about half a minute, to see that it works
  thalweg lab bulk --drivers af_packet --loads up,down --runs 5
It runs in its own network namespaces, which needs root, and removes them at the end.
Defaults: 3 rounds, trials of 5 s, run-to-completion; with --quick 1 round, 1 s.")]
pub(crate) struct LabBulkArgs {
    #[command(flatten)]
    pub(crate) subjects: LabSubjectsArgs,
    /// Loads to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LOADS", help_heading = VARY)]
    pub(crate) loads: Vec<Load>,
    /// Do not translate addresses
    #[arg(long, help_heading = VARY)]
    pub(crate) no_nat: bool,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabBulkArgs, format: Format) -> Result<(), Failure> {
    if !is_root() {
        return Err(failed(ForwardingError::NotRoot));
    }
    let (usual, quick) = (Options::default(), args.run.quick);
    let options = Options {
        loads: if args.loads.is_empty() { usual.loads.clone() } else { args.loads.clone() },
        nat: !args.no_nat,
        warm_up_s: if quick { WARM_UP_S_QUICK } else { usual.warm_up_s },
        trial_s: args.router.trial.unwrap_or(if quick { TRIAL_S_QUICK } else { usual.trial_s }),
        runs: args.run.runs(usual.runs, 1),
        seed: args.run.seed(1),
    };
    let stop = stop_on_signals()?;
    let mut routers = routers(args)?;
    namespace::sweep();
    let steps = Steps::on_terminal();
    let outcome =
        bulk::run(&mut routers, &options, &stop, &mut |done, total, what| steps.of(done, total, what));
    steps.finish();
    let outcome = outcome.map_err(failed)?;
    let input = format!("TCP from tester to tester, blocks of 128 KiB; seed {}", args.run.seed(1));
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show(&report, &outcome, &render::table(&outcome), &args.run.output("lab-bulk"), format)
}

fn routers(args: &LabBulkArgs) -> Result<Vec<Router>, Failure> {
    let program = forwarding::own_program()?;
    let mut routers = Vec::new();
    for subject in &args.subjects.subjects {
        match subject {
            RouterArg::Linux => {
                let linux = |single_frames| Router { subject: Box::new(Linux::default()), single_frames };
                routers.extend([false, true].map(linux));
            }
            RouterArg::Thalweg => {
                for (driver, model) in args.router.shapes(&DRIVERS, &["run-to-completion"])? {
                    let thalweg = Thalweg::new(&program, driver, model, &args.run.output("lab-bulk"));
                    // The mode that AF_XDP's offload takes on virtual links gets no merged segments.
                    let single_frames = driver == "af_xdp+offload";
                    routers.push(Router { subject: Box::new(thalweg), single_frames });
                }
            }
        }
    }
    Ok(routers)
}
