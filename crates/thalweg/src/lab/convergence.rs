//! `thalweg lab convergence`: reproduces published results on BGP convergence.

use std::num::NonZeroUsize;

use clap::Args;
use thalweg_lab::convergence::{self, Options, Part};
use thalweg_lab::report::Origin;

use super::args::{LabRunArgs, or_usual};
use super::{command_line, measured, show_all};
use crate::Failure;
use crate::cli::Format;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab convergence --quick                      a short version of everything
  thalweg lab convergence --only gadgets,cliques
  thalweg lab convergence --threads 2 --output conv    all of it: minutes
A result that is not reproduced is reported, and is not an error.")]
pub(crate) struct LabConvergenceArgs {
    /// Parts of the experiment [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    pub(crate) only: Vec<Part>,
    /// Threads to use; results do not depend on it [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabConvergenceArgs, format: Format) -> Result<(), Failure> {
    thalweg_sim::restart_with_huge_pages();
    let cores = std::thread::available_parallelism().ok();
    let options = Options {
        parts: or_usual(&args.only, &Part::ALL),
        quick: args.run.quick,
        threads: args.threads.or(cores).map_or(1, NonZeroUsize::get),
        seed: args.run.seed(1),
    };
    let findings = measured(|steps| convergence::run(&options, &|what| steps.at(0, what)))?;
    let origin = Origin::here(command_line(), format!("simulated networks; seed {}", options.seed));
    let report = convergence::report(&findings, origin);
    let tables = convergence::tables(&findings);
    show_all(&report, &findings, &tables, &args.run.output("lab-convergence"), format)
}
