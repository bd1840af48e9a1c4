//! The command line of `thalweg lab predict`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use thalweg_replay::Work;

use super::lab::LabRunArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab predict                                          measures this machine, then predicts
  thalweg lab predict --cores 2,24,64 --work queens:8
  thalweg lab predict --costs lab-predict/costs.json           the same prediction again, elsewhere, unmeasured
  thalweg lab predict --quick                                  a minute, to see that it works
Rounds: 5; 3 with --quick.")]
pub(crate) struct LabPredictArgs {
    /// Cores to predict for, 1 to 64 [default: 1,2,3,4,6,8,12,16,24,32,48,64; 1,2,4,16,64 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", value_parser = clap::value_parser!(u8).range(1..=64), help_heading = "What to vary")]
    pub(crate) cores: Vec<u8>,
    /// Synthetic work per packet and stage: `none`, `queens:N`
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "WORK",
        default_value = "none,queens:8",
        help_heading = "What to vary"
    )]
    pub(crate) work: Vec<Work>,
    /// Costs that an earlier prediction wrote (costs.json); nothing is measured then, so nothing is validated
    #[arg(long, value_name = "FILE", conflicts_with = "work")]
    pub(crate) costs: Option<PathBuf>,
    /// Packets of a chunk
    #[arg(long, value_name = "PACKETS", default_value = "1600")]
    pub(crate) chunk: std::num::NonZeroU16,
    /// Chunks in flight in the tokens model [default: 24, or as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(crate) tokens: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
