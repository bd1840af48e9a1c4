//! The command line of `thalweg lab qos`.

use clap::Args;

use super::lab::{LabRouterArgs, LabRunArgs, RouterArg};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab qos --quick                                  under two minutes, to see that it works
  thalweg lab qos --rate 20 --overload 4 --runs 10
It makes network namespaces of its own, which needs root, touches nothing outside them and removes them at the end.
Defaults: 3 rounds, trials of 4 s, run-to-completion; with --quick 1 round, 1 s.")]
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
    pub(crate) subjects: Vec<RouterArg>,
    /// The port's rate, Mbit/s
    #[arg(long, value_name = "MBIT", default_value = "100", value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub(crate) rate: u32,
    /// What is offered, as a multiple of the rate
    #[arg(long, value_name = "TIMES", default_value = "2", value_parser = overload)]
    pub(crate) overload: f64,
    /// Calls; each is 50 packets of 200 bytes a second
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) calls: u16,
    #[command(flatten)]
    pub(crate) router: LabRouterArgs,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

fn overload(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if (0.1..=10.0).contains(&times) => Ok(times),
        _ => Err(format!("{text:?}: expected a number from 0.1 to 10")),
    }
}
