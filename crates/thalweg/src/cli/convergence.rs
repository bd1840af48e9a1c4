//! The command line of `thalweg lab convergence`.

use std::num::NonZeroUsize;

use clap::Args;
use thalweg_lab::convergence::Part;

use super::lab::LabRunArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab convergence --quick                      a little of everything
  thalweg lab convergence --only gadgets,cliques
  thalweg lab convergence --threads 2 --output conv    all of it: minutes
A statement that is not found again is part of the result, not an error.")]
pub(crate) struct LabConvergenceArgs {
    /// Parts to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    pub(crate) only: Vec<Part>,
    /// Threads that run routers; the answer is the same for any number [default: the number of cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
