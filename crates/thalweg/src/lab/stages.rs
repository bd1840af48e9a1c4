//! `thalweg lab stages`: cycles per packet by stage, without interfaces.

use thalweg_lab::forwarding::load::RouteTable;
use thalweg_lab::report::Origin;
use thalweg_lab::stages::{self, Bed, Options, Workload, render};

use super::{command_line, failed, show};
use crate::Failure;
use crate::cli::{Format, LabStagesArgs};
use crate::progress::Steps;

const RUNS_QUICK: usize = 5;
const WORKLOADS_QUICK: [Workload; 3] = [Workload::OneRoute, Workload::FullTable, Workload::Nat(4_000)];

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
