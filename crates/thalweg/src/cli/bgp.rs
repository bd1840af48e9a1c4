//! The command line of `thalweg lab bgp`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use thalweg_exec::control::SchedulingKind;
use thalweg_lab::bgp::experiment::Part;

use super::choices::{SCHEDULINGS, one_of};

use super::lab::LabRunArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab bgp                                             everything, on a made-up table
  thalweg lab bgp --only speed-up,functions --threads 1,2,4
  thalweg lab bgp --trace updates.20260222.1530.bz2           the peers of an MRT file
  thalweg lab bgp --quick                                     under two minutes, to see that it works
Rounds: 5; 3 with --quick.")]
pub(crate) struct LabBgpArgs {
    /// An MRT file whose peers announce, instead of a made-up table
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Parts of the experiment [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = "What to vary")]
    pub(crate) only: Vec<Part>,
    /// Schedulings to compare
    #[arg(
        long,
        value_parser = one_of(SCHEDULINGS),
        value_delimiter = ',',
        value_name = "SCHEDULINGS",
        default_value = "serial,per-peer,dynamic,sharded",
        help_heading = "What to vary"
    )]
    pub(crate) schedulings: Vec<SchedulingKind>,
    /// Thread counts [default: 1 and each power of two up to the number of cores]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = "What to vary")]
    pub(crate) threads: Vec<NonZeroUsize>,
    /// Neighbors that announce
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) neighbors: NonZeroUsize,
    /// Prefixes that each neighbor announces [default: 50000, 100000 in Wu's loads; 20000, 50000 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) prefixes: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
