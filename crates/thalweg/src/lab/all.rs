//! `thalweg lab all`: runs the experiments behind the papers' claims, and gives a verdict on each claim.
//!
//! Each experiment is this program in a separate process, with its own folder below the report's. A failing
//! experiment is reported, and the others continue. `--resume` uses results in such a folder instead of running the
//! experiment again, if they are of this program and machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg_lab::all::{self, Agenda, Outcome, Results, Task, Written};
use thalweg_lab::claims::Step;
use thalweg_lab::forwarding::is_root;
use thalweg_lab::noise::Noise;
use thalweg_lab::report::{Origin, Report};

use super::args::{LabRunArgs, number};
use super::{command_line, command_line_of, failed, forwarding, show};
use crate::Failure;
use crate::cli::Format;
use crate::progress::Steps;
use crate::signals::stop_on_signals;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab all --quick                      minutes: a short version of every experiment
  thalweg lab all --only 003                   the claims of the thesis on parallel BGP
  thalweg lab all --hours 8                    a night: passes over all experiments, medians over the passes
  thalweg lab all --resume                     go on after an interruption
  thalweg lab all --merge here/lab-all there   reports of several machines side by side
The report of each experiment is in DIR/PAPER-EXPERIMENT, and in DIR/pass-N from the second pass on. \
Each experiment has its own default of --runs; with --hours it is 1. Experiments that
make network namespaces are left out without root.")]
pub(crate) struct LabAllArgs {
    /// Only these papers, by number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "PAPERS", value_parser = PossibleValuesParser::new(thalweg_lab::all::PAPERS))]
    pub(crate) only: Vec<String>,
    /// Repeat everything for this many hours; an experiment that would exceed them is not started
    #[arg(long, value_name = "H", value_parser = number(0.001..=1000.0))]
    pub(crate) hours: Option<f64>,
    /// Other programs to measure beside: those that are installed, or none
    #[arg(long, value_enum, value_name = "WHICH", default_value = "auto")]
    rivals: Rivals,
    /// Keep the results in the folder that are of this program, machine and options, and run only what is missing
    #[arg(long)]
    pub(crate) resume: bool,
    /// Run nothing: compare the reports in these folders
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["only", "resume", "hours"])]
    pub(crate) merge: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) run: LabRunArgs,
}

/// Which other programs stand beside.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivals {
    Auto,
    None,
}

/// The result of an experiment.
enum Ended {
    Results(Value),
    Failed(String),
    LeftOut(&'static str),
}

pub(super) fn run(args: &LabAllArgs, format: Format) -> Result<(), Failure> {
    let folder = args.run.output("lab-all");
    if !args.merge.is_empty() {
        return merge(&args.merge, &folder, format);
    }
    let steps = all::steps(&args.only);
    let stop = stop_on_signals()?;
    let mut noise = vec![Noise::measure()];
    let progress = Steps::on_terminal();
    let (mut passes, mut broken, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let mut agenda = Agenda::new(steps.len(), args.hours.map(|hours| hours * 3600.0), args.run.seed(1));
    let begun = Instant::now();
    while let Some(Task { step, pass }) = agenda.next(begun.elapsed().as_secs_f64()) {
        let (nth, step) = (step, steps[step]);
        let name = format!("lab {} for paper {}", step.experiment, step.paper);
        progress.at(0, &format!("pass {pass}: {name}{}", to_go(&agenda, begun)));
        let folder = folder_of(&folder, step, pass);
        let started = Instant::now();
        let mut command = command(step, args, &folder)?;
        let ended = match written(&folder) {
            Ok(mut found) if args.resume && is_current(&found["origin"], &command) => {
                Ended::Results(found["results"].take())
            }
            _ if stop.load(Relaxed) => Ended::LeftOut("interrupted"),
            _ if step.root && !is_root() => Ended::LeftOut("needs root"),
            _ => measure(&mut command, &folder)?,
        };
        match ended {
            Ended::Results(found) => {
                agenda.took(nth, started.elapsed().as_secs_f64());
                passes.resize_with(pass.max(passes.len()), Results::new);
                passes[pass - 1].insert(key(step), found);
            }
            // Ctrl-C reaches the experiment, too.
            Ended::Failed(_) if stop.load(Relaxed) => left_out.push(format!("{name}: interrupted")),
            Ended::Failed(why) => broken.push(format!("{name}: {why}")),
            Ended::LeftOut(why) => left_out.push(format!("{name}: {why}")),
        }
        if passes.get(pass - 1).is_none_or(|results| !results.contains_key(&key(step))) {
            agenda.retire(nth);
        }
    }
    progress.finish();
    noise.push(Noise::measure());
    let claims = all::judge(&args.only, &passes);
    let outcome = Outcome { claims, failed: broken, left_out, passes: passes.len(), noise };
    let papers = if args.only.is_empty() { all::PAPERS.join(", ") } else { args.only.join(", ") };
    let quick = if args.run.quick { ", as little as shows that it works" } else { "" };
    let often = if args.hours.is_some() { format!(", in {} passes", passes.len()) } else { String::new() };
    let origin =
        Origin::here(command_line(), format!("what the claims of papers {papers} need{quick}{often}"));
    let report = all::report(&outcome, origin);
    show(&report, &outcome, &all::table(&outcome), &folder, format)?;
    let mut incomplete = outcome.failed;
    if stop.load(Relaxed) {
        incomplete.push("interrupted: `--resume` runs the rest".to_owned());
    }
    if incomplete.is_empty() { Ok(()) } else { Err(Failure::Incomplete(incomplete)) }
}

fn key(step: &Step) -> (String, String) {
    (step.paper.clone(), step.experiment.clone())
}

/// The folder of an experiment's report; the first pass uses that of a single run.
fn folder_of(output: &Path, step: &Step, pass: usize) -> PathBuf {
    let name = format!("{}-{}", step.paper, step.experiment);
    if pass == 1 { output.join(name) } else { output.join(format!("pass-{pass}")).join(name) }
}

/// The remaining time, for the progress line.
fn to_go(agenda: &Agenda, begun: Instant) -> String {
    match agenda.left_s(begun.elapsed().as_secs_f64()) {
        Some(seconds) if seconds >= 90.0 => format!(", about {:.0} minutes left", seconds / 60.0),
        Some(seconds) => format!(", about {seconds:.0} seconds left"),
        None => String::new(),
    }
}

/// What measures a step.
fn command(step: &Step, args: &LabAllArgs, folder: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(forwarding::own_program()?);
    command.args(["lab", &step.experiment]).args(&step.arguments).arg("--output").arg(folder);
    if args.rivals == Rivals::None {
        command.args(&step.without_rivals);
    }
    command.args(args.run.passed_on());
    if args.hours.is_some() && args.run.runs.is_none() {
        // Passes replace repetitions.
        command.arg("--runs=1");
    }
    Ok(command)
}

/// Whether results are those that a command would find now: of this program, here. The report has one origin for all.
fn is_current(origin: &Value, command: &Command) -> bool {
    let here = Origin::here(command_line_of(command.get_args()), "");
    origin["commit"] == here.commit
        && origin["command"] == here.command
        && origin["machine"] == json!(here.machine)
}

fn measure(command: &mut Command, folder: &Path) -> Result<Ended, Failure> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().map_err(failed)?;
    if !output.status.success() {
        return Ok(Ended::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(Ended::Results(written(folder)?["results"].take()))
}

/// The results in a folder.
fn written(folder: &Path) -> Result<Value, Failure> {
    let path = folder.join("results.json");
    let unreadable = |why: String| Failure::Run(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
}

fn merge(folders: &[PathBuf], output: &Path, format: Format) -> Result<(), Failure> {
    let machine = |folder: &PathBuf| {
        let written = written(folder)?;
        match written["results"]["claims"].is_array() {
            true => Ok(Written { name: folder.display().to_string(), written }),
            false => Err(Failure::Run(format!("{} is no report of `thalweg lab all`", folder.display()))),
        }
    };
    let machines = folders.iter().map(machine).collect::<Result<Vec<_>, _>>()?;
    let table = all::side_by_side(&machines);
    let lead = format!("{} reports of `thalweg lab all` side by side.", machines.len());
    let mut report = Report::new(
        "What the papers say, on several machines",
        lead,
        Origin::here(command_line(), "reports"),
    );
    report.table(table.clone());
    report.notes(all::origins(&machines));
    let results: Vec<&Value> = machines.iter().map(|machine| &machine.written).collect();
    show(&report, &results, &table, output, format)
}
