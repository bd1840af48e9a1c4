//! Arguments of `thalweg lab lpm`.

use std::path::PathBuf;

use clap::Args;

use super::lab::LabRunArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab lpm full-table.txt.gz --output report     a table of your own
  thalweg lab lpm --quick                               a made-up table, to see that it works
Rounds are passes over the addresses: 7; 3 with --quick.")]
pub(crate) struct LabLpmArgs {
    /// Prefixes, the first word of each line, plain or compressed [default: a made-up table]
    #[arg(value_name = "PREFIXES")]
    pub(crate) prefixes: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
