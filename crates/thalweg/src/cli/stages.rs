//! The command line of `thalweg lab stages`.

use std::path::PathBuf;

use clap::Args;
use thalweg_lab::stages::Workload;

use super::lab::LabRunArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab stages --prefixes full-table.txt.gz              everything, with a table of your own
  thalweg lab stages --workloads one,nat:4000 --runs 50
  thalweg lab stages --quick                                   a small made-up table, to see that it works
Rounds: 15; 5 with --quick.")]
pub(crate) struct LabStagesArgs {
    /// What the packets want: one route, the full table (addresses drawn evenly or few of them often), NAT over so
    /// many established sessions [default: one,full,full-zipf,nat:4000,nat:100000,nat:1000000; the first, the second and
    /// nat:4000 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "WORKLOADS", help_heading = "What to vary")]
    pub(crate) workloads: Vec<Workload>,
    /// Packets of a chunk, at most 65535
    #[arg(long, value_name = "PACKETS", default_value = "1600", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) chunk: u16,
    /// The full table: prefixes, the first word of each line, plain or compressed [default: a made-up table]
    #[arg(long, value_name = "FILE")]
    pub(crate) prefixes: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
