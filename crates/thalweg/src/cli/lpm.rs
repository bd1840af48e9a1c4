//! Arguments of `thalweg lab lpm`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab lpm full-table.txt.gz --output report     a table of your own
  thalweg lab lpm --quick                               a made-up table, to see that it works")]
pub(crate) struct LabLpmArgs {
    /// Prefixes, the first word of each line, plain or compressed [default: a made-up table]
    #[arg(value_name = "PREFIXES")]
    pub(crate) prefixes: Option<PathBuf>,
    /// Passes over the addresses that count, structures taking turns [default: 7; 3 with --quick]
    #[arg(long, alias = "runs", value_name = "N")]
    pub(crate) passes: Option<NonZeroUsize>,
    /// Folder for report.html and results.json
    #[arg(long, value_name = "DIR", default_value = "lab-lpm")]
    pub(crate) output: PathBuf,
    /// A tenth of the work, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the made-up table
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) seed: u64,
}
