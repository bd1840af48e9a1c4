//! `thalweg lab lpm`: compares look-up structures on one table.

use std::path::PathBuf;

use clap::Args;
use thalweg_lab::lpm::{self, LpmRow, bench};
use thalweg_lab::report::Origin;

use super::args::LabRunArgs;
use super::{command_line, failed, show};
use crate::Failure;
use crate::cli::Format;
use crate::progress::Steps;

/// The default number of counted passes.
const PASSES: usize = 7;
const PASSES_QUICK: usize = 3;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab lpm full-table.txt.gz --output report     your own table
  thalweg lab lpm --quick                               a generated table, to see that it works
Default of --runs, passes over the addresses: 7; 3 with --quick.")]
pub(crate) struct LabLpmArgs {
    /// Table of prefixes, the first word of each line, plain or compressed [default: a generated table]
    #[arg(value_name = "PREFIXES")]
    pub(crate) prefixes: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabLpmArgs, format: Format) -> Result<(), Failure> {
    let steps = Steps::on_terminal(None);
    steps.at(0, "reading the table");
    let table = match &args.prefixes {
        Some(path) => bench::BenchTable::read(path).map_err(failed)?,
        None => bench::BenchTable::made(args.run.seed(0), args.run.quick),
    };
    let passes = args.run.runs(PASSES, PASSES_QUICK);
    let options = bench::BenchOptions { passes, quick: args.run.quick };
    let mut done = 0;
    let rows = bench::bench(&table, &options, &mut |what| {
        done += 1;
        steps.at(done, what);
    });
    steps.finish();
    let rows = rows.map_err(failed)?;
    let origin = Origin::here(command_line(), table.description.clone());
    let report = lpm::report(&rows, lead(&rows, &table.description), origin);
    show(&report, &rows, &lpm::table(&rows), &args.run.output("lab-lpm"), format)
}

/// The results, in a sentence per family.
fn lead(rows: &[LpmRow], table: &str) -> String {
    let mut text = format!("Look-ups on one core: {table}.");
    for family in ["IPv4", "IPv6"] {
        let best = |kind: &str| {
            let of_kind = rows.iter().filter(|r| r.family == family && r.kind == kind);
            of_kind.max_by(|a, b| a.cpu_mlps.total_cmp(&b.cpu_mlps))
        };
        if let (Some(inside), Some(random)) = (best("inside"), best("random")) {
            text += &format!(
                " {family}: {:.0} million a second for addresses inside the table ({}, {}), {:.0} for random ones.",
                inside.cpu_mlps, inside.structure, inside.mode, random.cpu_mlps
            );
        }
    }
    text + " All structures found the same next hops."
}
