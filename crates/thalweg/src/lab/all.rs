//! `thalweg lab all`: the experiments that the papers' claims need, one after the other, and a verdict on each claim.
//!
//! Each experiment is this program again, in a process of its own, with a folder of its own below the report's. One
//! that fails is told, and the others go on.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use clap::builder::PossibleValuesParser;
use thalweg_lab::all;
use thalweg_lab::claims::Step;
use thalweg_lab::report::Origin;

use super::args::LabRunArgs;
use super::{command_line, failed, forwarding, show};
use crate::Failure;
use crate::cli::Format;
use crate::progress::Steps;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab all --quick             minutes: a short version of every experiment
  thalweg lab all --only 003          the claims of the thesis on parallel BGP
The report of each experiment is in DIR/PAPER-EXPERIMENT. Each experiment has its own default of --runs.")]
pub(crate) struct LabAllArgs {
    /// Only these papers, by number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "PAPERS", value_parser = PossibleValuesParser::new(thalweg_lab::all::papers()))]
    pub(crate) only: Vec<String>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

pub(super) fn run(args: &LabAllArgs, format: Format) -> Result<(), Failure> {
    let steps = all::steps(&args.only);
    let folder = args.run.output("lab-all");
    let progress = Steps::on_terminal(Some(steps.len()));
    let mut results = BTreeMap::new();
    let mut broken = Vec::new();
    for (done, step) in steps.iter().enumerate() {
        progress.at(done, &format!("paper {}: lab {}", step.paper, step.experiment));
        match measure(step, args, &folder.join(format!("{}-{}", step.paper, step.experiment)))? {
            Ok(found) => drop(results.insert((step.paper.clone(), step.experiment.clone()), found)),
            Err(why) => broken.push(format!("lab {} for paper {}: {why}", step.experiment, step.paper)),
        }
    }
    progress.finish();
    let outcome = all::judge(&args.only, &results, broken);
    let papers = if args.only.is_empty() { all::papers().join(", ") } else { args.only.join(", ") };
    let quick = if args.run.quick { ", as little as shows that it works" } else { "" };
    let origin = Origin::here(command_line(), format!("what the claims of papers {papers} need{quick}"));
    let report = all::report(&outcome, origin);
    show(&report, &outcome, &all::table(&outcome), &folder, format)?;
    if outcome.failed.is_empty() { Ok(()) } else { Err(Failure::Incomplete(outcome.failed)) }
}

/// Runs one experiment; its results, or what it said.
fn measure(
    step: &Step,
    args: &LabAllArgs,
    folder: &Path,
) -> Result<Result<serde_json::Value, String>, Failure> {
    let mut command = Command::new(forwarding::own_program()?);
    command.args(["lab", &step.experiment]).args(&step.arguments).arg("--output").arg(folder);
    command.args(args.run.passed_on());
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().map_err(failed)?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let text = std::fs::read_to_string(folder.join("results.json")).map_err(failed)?;
    let mut written: serde_json::Value = serde_json::from_str(&text).map_err(failed)?;
    Ok(Ok(written["results"].take()))
}
