//! The command line of `thalweg lab bgp`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use thalweg_exec::control::SchedulingKind;
use thalweg_lab::bgp::daemon::Advertise;
use thalweg_lab::bgp::experiment::Part;

use super::choices::{SCHEDULINGS, one_of};

use super::lab::LabRunArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab bgp                                             everything, on a made-up table
  thalweg lab bgp --only speed-up --cores 1,2,4 --threads-per-core 1,2
  thalweg lab bgp --only mixes,functions --advertise monitor  with what announcing costs
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
    /// Cores that the daemon may use; what does not vary them takes the largest [default: 1, each power of two, all]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = "What to vary")]
    pub(crate) cores: Vec<NonZeroUsize>,
    /// Threads for each core, of dynamic and sharded; per-peer has one for each neighbor
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "COUNTS",
        default_value = "1,2,4",
        help_heading = "What to vary"
    )]
    pub(crate) threads_per_core: Vec<NonZeroUsize>,
    /// Whom the daemon announces to [default: none where the thesis had nobody; monitor for ways and wu]
    #[arg(long, value_enum, value_name = "WHOM")]
    pub(crate) advertise: Option<Advertise>,
    /// Messages of a neighbor's turn, where neighbors send in turns
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) turn: NonZeroUsize,
    /// Neighbors that announce
    #[arg(long, value_name = "N", default_value = "12")]
    pub(crate) neighbors: NonZeroUsize,
    /// Prefixes that each neighbor announces [default: 50000, 100000 in Wu's loads; 20000, 50000 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) prefixes: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
