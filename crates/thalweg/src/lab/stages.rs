//! `thalweg lab stages`: measures cycles per packet by stage, without interfaces.

use std::path::PathBuf;

use clap::Args;
use thalweg_lab::report::Origin;
use thalweg_lab::stages::{self, Bed, Load, Options, Workload, render};

use super::args::{LabRunArgs, VARY, or_usual};
use super::forwarding::route_table;
use super::{command_line, measured, show};
use crate::Failure;
use crate::cli::Format;

const RUNS_QUICK: usize = 5;
const WORKLOADS_QUICK: [Workload; 3] = [Workload::OneRoute, Workload::FullTable, Workload::Nat(4_000)];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab stages --prefixes full-table.txt.gz              everything, with your own table
  thalweg lab stages --workloads one,nat:4000 --runs 50
  thalweg lab stages --workloads nat:4000@flows,nat:4000@sflow:100   what samples for sFlow cost
  thalweg lab stages --quick                                   a small generated table, to see that it works
Default of --runs: 15; 5 with --quick.")]
pub(crate) struct LabStagesArgs {
    /// Workloads: one route, the full table (uniform or Zipf addresses), NAT over N established sessions,
    /// firewall:RULES:STATES (so many rules, so many connections); behind one, @flows meters flows and @sflow:N also samples one packet in N [default:
    /// one,full,full-zipf,nat:4000,nat:100000,nat:1000000; one,full,nat:4000 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "WORKLOADS", help_heading = VARY)]
    pub(crate) workloads: Vec<Load>,
    /// Packets per chunk, at most 65535
    #[arg(long, value_name = "PACKETS", default_value = "1600", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) chunk: u16,
    /// Table of prefixes, the first word of each line, plain or compressed [default: a generated table]
    #[arg(long, value_name = "FILE")]
    pub(crate) prefixes: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabStagesArgs, format: Format) -> Result<(), Failure> {
    let usual = Options::default();
    let quick = WORKLOADS_QUICK.map(Load::from);
    let all = if args.run.quick { &quick[..] } else { &usual.workloads };
    let workloads = or_usual(&args.workloads, all);
    let runs = args.run.runs(usual.runs, RUNS_QUICK);
    let options =
        Options { workloads, runs, chunk_packets: usize::from(args.chunk), seed: args.run.seed(1), ..usual };
    let wants_table = |load: &Load| matches!(load.workload, Workload::FullTable | Workload::FullTableZipf);
    let wants_table = options.workloads.iter().any(wants_table);
    let table = route_table(args.prefixes.as_deref(), wants_table, &args.run)?;
    let folder = args.run.output("lab-stages");
    let outcome = measured(|steps| {
        let build = |load: &Load| {
            steps.at(0, &format!("building the router of {load}"));
            Bed::new(*load, &table.prefixes, options.seed, &folder)
        };
        let mut beds = options.workloads.iter().map(build).collect::<Result<Vec<_>, _>>()?;
        let total = beds.len() * (options.runs + 1);
        stages::run(&mut beds, &options, &mut |done, what| steps.of(done, total, what))
    })?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", table.description, args.run.seed(1)));
    let report = render::report(&outcome, origin);
    show(&report, &outcome, &render::table(&outcome), &folder, format)
}
