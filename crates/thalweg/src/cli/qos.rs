//! The command line of `thalweg lab qos`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab qos --quick                                  under two minutes, to see that it works
  thalweg lab qos --rate 20 --overload 4 --runs 10
It makes network namespaces of its own, which needs root, touches nothing outside them and removes them at the end.")]
pub(crate) struct LabQosArgs {
    /// Who shapes
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SUBJECTS",
        default_value = "linux,thalweg",
        help_heading = "What to vary"
    )]
    pub(crate) subjects: Vec<QosSubjectArg>,
    /// Drivers of thalweg
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "DRIVERS",
        default_value = "af_packet,af_xdp",
        value_parser = ["af_packet", "af_xdp"],
        help_heading = "What to vary"
    )]
    pub(crate) drivers: Vec<String>,
    /// Execution models of thalweg
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MODELS",
        default_value = "run-to-completion",
        value_parser = ["run-to-completion", "pipeline", "farm"],
        help_heading = "What to vary"
    )]
    pub(crate) models: Vec<String>,
    /// The port's rate, Mbit/s
    #[arg(long, value_name = "MBIT", default_value = "100", value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub(crate) rate: u32,
    /// What is offered, as a multiple of the rate
    #[arg(long, value_name = "TIMES", default_value = "2", value_parser = overload)]
    pub(crate) overload: f64,
    /// Calls; each is 50 packets of 200 bytes a second
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) calls: u16,
    /// Seconds of a trial, after a second in which queues fill [default: 4; 1 with --quick]
    #[arg(long, value_name = "S", value_parser = super::forwarding::seconds)]
    pub(crate) trial: Option<f64>,
    /// Rounds, each with every router in shuffled order [default: 3; 1 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<NonZeroUsize>,
    /// Folder for report.html, results.json and thalweg's files
    #[arg(long, value_name = "DIR", default_value = "lab-qos")]
    pub(crate) output: PathBuf,
    /// One short round, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the order of runs
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

/// Who shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QosSubjectArg {
    /// The kernel with each discipline that it has
    Linux,
    /// This program
    Thalweg,
}

fn overload(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if (0.1..=10.0).contains(&times) => Ok(times),
        _ => Err(format!("{text:?}: expected a number from 0.1 to 10")),
    }
}
