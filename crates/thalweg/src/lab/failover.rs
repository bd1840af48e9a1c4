//! `thalweg lab failover`: measures what is lost when a link, a gateway, a session or the process fails.

use clap::Args;
use thalweg_lab::failover::{self, Failure as Fault, Options, RouterKind, render};
use thalweg_lab::forwarding::{ForwardingError, is_root, namespace};
use thalweg_lab::report::Origin;

use super::args::{LabRunArgs, VARY, number, or_usual};
use super::{command_line, failed, forwarding, show};
use crate::Failure;
use crate::cli::Format;
use crate::progress::Steps;
use crate::signals::stop_on_signals;

const PREFIXES_QUICK: u32 = 1000;
const WATCH_S_QUICK: f64 = 1.0;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab failover --quick                             some minutes, to see that it works
  thalweg lab failover --failures link,gateway --runs 5
It runs in its own network namespaces, which needs root, and removes them at the end. thalweg-bgp, thalweg-saved and bird
need BIRD, keepalived itself, and conntrackd.
Defaults: 5 rounds, 200,000 prefixes; with --quick 1 round, 1,000 prefixes.")]
pub(crate) struct LabFailoverArgs {
    /// Routers to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROUTERS", help_heading = VARY)]
    pub(crate) routers: Vec<RouterKind>,
    /// What fails [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FAILURES", help_heading = VARY)]
    pub(crate) failures: Vec<Fault>,
    /// Prefixes of the table [default: see below]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_100_000), help_heading = VARY)]
    pub(crate) prefixes: Option<u32>,
    /// Datagrams a second
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub(crate) rate: u32,
    /// Driver of thalweg
    #[arg(long, value_name = "DRIVER", default_value = "af_packet", value_parser = ["af_packet", "af_xdp"])]
    pub(crate) driver: String,
    /// When a router counts as not recovering, in seconds
    #[arg(long, value_name = "S", default_value = "120", value_parser = number(1.0..=600.0))]
    pub(crate) limit: f64,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabFailoverArgs, format: Format) -> Result<(), Failure> {
    if !is_root() {
        return Err(failed(ForwardingError::NotRoot));
    }
    let (usual, quick) = (Options::default(), args.run.quick);
    let folder = args.run.output("lab-failover");
    let options = Options {
        routers: or_usual(&args.routers, &usual.routers),
        failures: or_usual(&args.failures, &usual.failures),
        prefixes: args.prefixes.unwrap_or(if quick { PREFIXES_QUICK } else { usual.prefixes }),
        rate: args.rate,
        watch_s: if quick { WATCH_S_QUICK } else { usual.watch_s },
        limit_s: args.limit,
        runs: args.run.runs(usual.runs, 1),
        seed: args.run.seed(1),
        program: forwarding::own_program()?,
        driver: args.driver.clone(),
        folder: folder.clone(),
    };
    let stop = stop_on_signals()?;
    namespace::sweep();
    let steps = Steps::on_terminal();
    let outcome = failover::run(&options, &stop, &mut |done, total, what| steps.of(done, total, what));
    steps.finish();
    let outcome = outcome.map_err(failed)?;
    let input = format!(
        "{} datagrams/s to 16 destinations in {} prefixes, by one of two transits; seed {}",
        options.rate, options.prefixes, options.seed
    );
    let report = render::report(&outcome, Origin::here(command_line(), input));
    show(&report, &outcome, &render::table(&outcome), &folder, format)
}
