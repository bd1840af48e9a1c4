//! `thalweg lab`: experiments. Each prints a table on the terminal, and writes `report.html` and
//! `results.json` to a folder.

mod all;
mod args;
mod bgp;
mod bulk;
mod convergence;
mod divide;
mod failover;
mod forwarding;
mod latency;
mod models;
mod nat;
mod network;
mod predict;
mod probe;
mod qos;
mod seeds;
mod stages;

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;
use thalweg_lab::experiment::Experiment;
use thalweg_lab::lpm::Lpm;
use thalweg_lab::report::{Origin, Report};
use thalweg_text::{Table, wrap};

use crate::cli::Format;
use crate::progress::Steps;
use crate::tables::width;
use crate::{Failure, print};

/// The error of a failed experiment.
fn failed(error: impl fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each experiment prints tables and writes DIR/report.html and DIR/results.json; DIR is lab-NAME, or --output. Measure with \
a release build on an idle machine.

Examples:
  thalweg lab models --quick     under a minute, to see that it works
  thalweg lab models             minutes: every model, worker count, chunk size
  sudo thalweg lab nat --quick   with interfaces, in its own network namespaces")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    experiment: Command,
}

/// A row is an experiment: its help, name, arguments, and the function that runs it, which is [`run_experiment`] unless there
/// is more to do.
macro_rules! experiments {
    ($(#[doc = $help:literal] $name:ident($args:ty) => $run:path,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $(#[doc = $help] $name(Box<$args>),)*
        }

        pub(crate) fn run(args: &LabArgs, format: Format) -> Result<(), Failure> {
            match &args.experiment {
                $(Command::$name(args) => $run(&**args, format),)*
            }
        }
    };
}

experiments! {
    /// Run all experiments that the papers' claims need, and judge each claim
    All(all::LabAllArgs) => all::run,
    /// Compare execution models on one input: throughput, speed-up, residence time
    Models(models::LabModelsArgs) => models::run,
    /// Predict execution models on more cores than this machine has
    Predict(predict::LabPredictArgs) => predict::run,
    /// Measure a farm with feedback: matrix product, quicksort, Fibonacci, compared with FastFlow
    Divide(divide::LabDivideArgs) => divide::run,
    /// Compare longest-prefix-match structures: lookups, memory, build time, concurrent updates
    Lpm(Lpm) => run_experiment,
    /// Compare schedulings of the BGP daemon: speed-up, time by function, traffic mixes
    Bgp(bgp::LabBgpArgs) => bgp::run,
    /// Measure routers in network namespaces by RFC 2544: throughput, latency, loss (needs root)
    Forwarding(forwarding::LabForwardingArgs) => forwarding::run,
    /// Measure cycles per packet by stage, without interfaces
    Stages(stages::LabStagesArgs) => stages::run,
    /// Measure NAT by RFC 9693, in memory and live (live parts need root)
    Nat(nat::LabNatArgs) => nat::run,
    /// Measure voice calls on an overloaded port, against the kernel's qdiscs (needs root)
    Qos(qos::LabQosArgs) => qos::run,
    /// Measure bulk TCP through NAT with pings beside it, against the kernel (needs root)
    Bulk(bulk::LabBulkArgs) => bulk::run,
    /// Measure latency by load and schedule, against the kernel and what the machine adds (needs root)
    Latency(latency::LabLatencyArgs) => latency::run,
    /// Measure what is lost when links, gateways, sessions or the process fail, against BIRD (needs root)
    Failover(failover::LabFailoverArgs) => failover::run,
    /// Simulate networks of BGP routers, or compute the routes of the whole Internet
    Network(network::LabNetworkArgs) => network::run,
    /// Reproduce published results on BGP convergence: cliques, policies, damping, MRAI, surges, growth
    Convergence(convergence::LabConvergenceArgs) => convergence::run,
    /// Run random networks and routers with faults, and check invariants
    Seeds(seeds::LabSeedsArgs) => seeds::run,
    /// Measure the flow probe: ffProbe's table, many flows, floods, other probes on the same file
    Probe(probe::LabProbeArgs) => probe::run,
}

/// Measures, with the step on the terminal, and shows the results.
fn run_experiment<E: Experiment>(experiment: &E, format: Format) -> Result<(), Failure> {
    let mut done = 0;
    let results = measured(|steps| {
        experiment.measure(&mut |what| {
            steps.at(done, what);
            done += 1;
        })
    })?;
    let report = experiment.report(&results, Origin::here(command_line(), experiment.input(&results)));
    let folder = experiment.run_args().output(&format!("lab-{}", E::NAME));
    show_all(&report, &results, &experiment.tables(&results), &folder, format)
}

/// Measures and shows progress on the terminal meanwhile.
fn measured<R, E: fmt::Display>(measure: impl FnOnce(&Steps) -> Result<R, E>) -> Result<R, Failure> {
    let steps = Steps::on_terminal();
    let results = measure(&steps);
    steps.finish();
    results.map_err(failed)
}

/// Writes the report and prints the results for people or programs.
fn show(
    report: &Report,
    results: &impl Serialize,
    table: &Table,
    folder: &Path,
    format: Format,
) -> Result<(), Failure> {
    show_all(report, results, std::slice::from_ref(table), folder, format)
}

/// Writes the report and shows several tables, or JSON.
fn show_all(
    report: &Report,
    results: &impl Serialize,
    tables: &[Table],
    folder: &Path,
    format: Format,
) -> Result<(), Failure> {
    let page = report.write(folder, results).map_err(failed)?;
    match format {
        Format::Human => print(&format!(
            "{}\n{}\n\nwrote {}\nwrote {}\n",
            tables.iter().map(|table| table.render(width())).collect::<Vec<_>>().join("\n"),
            wrap(report.lead(), width().unwrap_or(usize::MAX)).join("\n"),
            page.display(),
            folder.join("results.json").display()
        )),
        Format::Json => print(&report.json(results).map_err(failed)?),
    }
}

/// The command line as typed, for the report, with only the program's name.
fn command_line() -> String {
    command_line_of(std::env::args_os().skip(1))
}

/// `thalweg` with these arguments.
fn command_line_of(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let words = arguments.into_iter().map(|word| {
        let word = word.as_ref().to_string_lossy().into_owned();
        if word.contains([' ', '\'', '"']) { format!("{word:?}") } else { word }
    });
    std::iter::once("thalweg".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
