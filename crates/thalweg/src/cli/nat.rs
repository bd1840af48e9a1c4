//! The command line of `thalweg lab nat`.

use clap::Args;
use thalweg_lab::forwarding::tester::CAPTURE_MAX;
use thalweg_lab::nat::Part;
use thalweg_lab::stages::SESSIONS_MAX;

use super::lab::{LabRouterArgs, LabRunArgs, RouterArg};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab nat --quick                                  under two minutes, to see that it works
  thalweg lab nat --only memory --sessions 10000000        needs nobody's permission
  thalweg lab nat --only set-up,established --subjects linux,thalweg --drivers af_xdp
Live parts make network namespaces of their own, which needs root, touch nothing outside them and remove them at the end.
Defaults: 3 rounds, trials of 0.5 s, run-to-completion; with --quick 1 round, 0.1 s.")]
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
    pub(crate) subjects: Vec<RouterArg>,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}
