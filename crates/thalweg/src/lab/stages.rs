//! `thalweg lab stages`: measures cycles per packet by stage, without interfaces.

use std::path::PathBuf;

use clap::Args;
use thalweg_lab::forwarding::load::RouteTable;
use thalweg_lab::report::Origin;
use thalweg_lab::stages::{self, Bed, Options, Workload, render};

use super::args::{LabRunArgs, VARY};
use super::{command_line, failed, show};
use crate::Failure;
use crate::cli::Format;
use crate::progress::Steps;

const RUNS_QUICK: usize = 5;
const WORKLOADS_QUICK: [Workload; 3] = [Workload::OneRoute, Workload::FullTable, Workload::Nat(4_000)];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab stages --prefixes full-table.txt.gz              everything, with your own table
  thalweg lab stages --workloads one,nat:4000 --runs 50
  thalweg lab stages --quick                                   a small generated table, to see that it works
Default of --runs: 15; 5 with --quick.")]
pub(crate) struct LabStagesArgs {
    /// Workloads: one route, the full table (uniform or Zipf addresses), NAT over N established sessions [default:
    /// one,full,full-zipf,nat:4000,nat:100000,nat:1000000; one,full,nat:4000 with --quick]
    #[arg(long, value_delimiter = ',', value_name = "WORKLOADS", help_heading = VARY)]
    pub(crate) workloads: Vec<Workload>,
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
    let workloads = match (args.workloads.as_slice(), args.run.quick) {
        ([], true) => WORKLOADS_QUICK.to_vec(),
        ([], false) => usual.workloads.clone(),
        (given, _) => given.to_vec(),
    };
    let runs = args.run.runs(usual.runs, RUNS_QUICK);
    let options =
        Options { workloads, runs, chunk_packets: usize::from(args.chunk), seed: args.run.seed(1), ..usual };
    let wants_table = |workload: &Workload| matches!(workload, Workload::FullTable | Workload::FullTableZipf);
    let table = match (&args.prefixes, options.workloads.iter().any(wants_table)) {
        (_, false) => RouteTable { prefixes: Vec::new(), description: "no table".to_owned() },
        (Some(path), true) => RouteTable::read(path).map_err(failed)?,
        (None, true) => RouteTable::made(args.run.seed(1), args.run.quick),
    };
    let steps = Steps::on_terminal(Some(options.workloads.len() * (options.runs + 1)));
    let mut beds = Vec::new();
    for workload in &options.workloads {
        steps.at(0, &format!("building the router of {workload}"));
        beds.push(
            Bed::new(*workload, &table.prefixes, args.run.seed(1), &args.run.output("lab-stages"))
                .map_err(failed)?,
        );
    }
    let outcome = stages::run(&mut beds, &options, &mut |done, what| steps.at(done, what));
    steps.finish();
    let outcome = outcome.map_err(failed)?;
    let origin = Origin::here(command_line(), format!("{}; seed {}", table.description, args.run.seed(1)));
    let report = render::report(&outcome, origin);
    show(&report, &outcome, &render::table(&outcome), &args.run.output("lab-stages"), format)
}
