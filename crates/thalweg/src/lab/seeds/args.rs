//! The command line of `thalweg lab seeds`.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::lab::args::number;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab seeds                                    2,000 networks and as many routers with their packets
  thalweg lab seeds --side packets --count 10000       routers with their packets alone
  thalweg lab seeds --count 1000000 --hours 3          as many as there is time for
  thalweg lab seeds --seed 4711                        one of them again, with all that happened
  thalweg lab seeds --seed 4711 --shrink --keep found  the smallest network that still fails, as a file
  thalweg lab seeds --scenario found/4711.toml         plays that file
A seed that breaks an invariant makes the command fail.")]
pub(crate) struct LabSeedsArgs {
    /// What seeds draw: networks that speak BGP, routers with their packets, or each of them both [default: both; of one
    /// seed: bgp]
    #[arg(long, value_name = "SIDE", conflicts_with = "scenario")]
    pub(crate) side: Option<SeedSide>,
    /// How many seeds
    #[arg(long, value_name = "N", default_value = "2000")]
    pub(crate) count: NonZeroU64,
    /// The first one
    #[arg(long, value_name = "SEED", default_value = "0")]
    pub(crate) first: u64,
    /// End after so many hours
    #[arg(long, value_name = "H", value_parser = hours)]
    pub(crate) hours: Option<f64>,
    /// End after so many failures
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) failures: NonZeroUsize,
    /// Play this seed alone and show what happens
    #[arg(long, value_name = "SEED", conflicts_with_all = ["count", "first", "hours"])]
    pub(crate) seed: Option<u64>,
    /// Play this scenario file and show what happens
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "count", "first", "hours"])]
    pub(crate) scenario: Option<PathBuf>,
    /// Make what fails as small as it still fails [always, with several seeds]
    #[arg(long)]
    pub(crate) shrink: bool,
    /// Write what fails to this folder, a scenario file for each
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Threads, each with seeds of its own [default: the number of cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Folder for report.html and results.json
    #[arg(long, value_name = "DIR", default_value = "lab-seeds")]
    pub(crate) output: PathBuf,
}

/// What seeds draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeedSide {
    /// Networks that speak BGP
    Bgp,
    /// Routers with their packets
    Packets,
    /// Both
    Both,
}

fn hours(text: &str) -> Result<f64, String> {
    number(text, 0.0001..=10_000.0)
}
