//! The command line of `thalweg lab nat`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_lab::forwarding::tester::CAPTURE_MAX;
use thalweg_lab::nat::Part;
use thalweg_lab::stages::SESSIONS_MAX;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab nat --quick                                  under two minutes, to see that it works
  thalweg lab nat --only memory --sessions 10000000        needs nobody's permission
  thalweg lab nat --only set-up,established --subjects linux,thalweg --drivers af_xdp
Live parts make network namespaces of their own, which needs root, touch nothing outside them and remove them at the end.")]
pub(crate) struct LabNatArgs {
    /// Parts of the experiment; memory is without interfaces, the others are live [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS", help_heading = "What to vary")]
    pub(crate) only: Vec<Part>,
    /// Numbers of sessions in memory [default: 4000,100000,1000000,10000000; 4000,100000 with --quick]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SESSIONS_MAX)),
        help_heading = "What to vary"
    )]
    pub(crate) sessions: Vec<u32>,
    /// Numbers of sessions that throughput is searched over, live [default: 1000,10000,100000; 10000 with --quick]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=500_000),
        help_heading = "What to vary"
    )]
    pub(crate) live_sessions: Vec<u32>,
    /// Sessions of a set-up and of a tear-down trial, live [default: 40000; 10000 with --quick]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(100..=i64::from(CAPTURE_MAX)),
        help_heading = "What to vary"
    )]
    pub(crate) set_up_sessions: Option<u32>,
    /// The most sessions that are tried at once, live [default: 300000; 40000 with --quick]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "What to vary"
    )]
    pub(crate) capacity_limit: Option<u32>,
    /// Who is measured live
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SUBJECTS",
        default_value = "linux,thalweg",
        help_heading = "What to vary"
    )]
    pub(crate) subjects: Vec<NatSubjectArg>,
    /// Drivers of thalweg
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "DRIVERS",
        default_value = "af_packet,af_xdp,af_xdp+offload",
        value_parser = thalweg_lab::forwarding::subject::thalweg::DRIVERS,
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
    /// Seconds of a trial over established sessions [default: 0.5; 0.1 with --quick]
    #[arg(long, value_name = "S", value_parser = super::forwarding::seconds)]
    pub(crate) trial: Option<f64>,
    /// Rounds, each with everything in shuffled order [default: 3; 1 with --quick]
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<NonZeroUsize>,
    /// Folder for report.html, results.json and thalweg's files
    #[arg(long, value_name = "DIR", default_value = "lab-nat")]
    pub(crate) output: PathBuf,
    /// Few sessions and short trials, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of sessions and of the order of runs
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

/// Who translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NatSubjectArg {
    /// The kernel, by nftables
    Linux,
    /// This program
    Thalweg,
}
