//! The command line of `thalweg lab seeds`.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::lab::args::number;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab seeds                                    2,000 networks and as many routers with packets
  thalweg lab seeds --side packets --count 10000       only routers with packets
  thalweg lab seeds --count 1000000 --hours 3          for three hours at most
  thalweg lab seeds --seed 4711                        one of them again, with every event
  thalweg lab seeds --seed 4711 --shrink --keep found  the smallest network that still fails, as a file
  thalweg lab seeds --scenario found/4711.toml         runs that file
The command fails if a seed breaks an invariant.")]
pub(crate) struct LabSeedsArgs {
    /// What a seed generates: BGP networks, routers with packets, or both [default: both; with --seed bgp]
    #[arg(long, value_name = "SIDE", conflicts_with = "scenario")]
    pub(crate) side: Option<SeedSide>,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value = "2000")]
    pub(crate) count: NonZeroU64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value = "0")]
    pub(crate) first: u64,
    /// Stop after this many hours
    #[arg(long, value_name = "H", value_parser = number(0.0001..=10_000.0))]
    pub(crate) hours: Option<f64>,
    /// Stop after this many failures
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) failures: NonZeroUsize,
    /// Run only this seed and print what happens
    #[arg(long, value_name = "SEED", conflicts_with_all = ["count", "first", "hours"])]
    pub(crate) seed: Option<u64>,
    /// Run this scenario file and print what happens
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "count", "first", "hours"])]
    pub(crate) scenario: Option<PathBuf>,
    /// Shrink a failure to the smallest scenario that still fails [always on with several seeds]
    #[arg(long)]
    pub(crate) shrink: bool,
    /// Write a scenario file for each failure to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Threads to use [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Folder for report.html and results.json
    #[arg(long, value_name = "DIR", default_value = "lab-seeds")]
    pub(crate) output: PathBuf,
}

/// What seeds draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeedSide {
    /// BGP networks
    Bgp,
    /// Routers with packets
    Packets,
    /// Both
    Both,
}
