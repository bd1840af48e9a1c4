//! `thalweg lab`: experiments. Each prints a table on the terminal, and writes `report.html` and
//! `results.json` to a folder.

mod all;
mod args;
mod bgp;
mod convergence;
mod forwarding;
mod lpm;
mod models;
mod nat;
mod network;
mod predict;
mod probe;
mod qos;
mod seeds;
mod stages;

use std::fmt;
use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;
use thalweg_lab::report::Report;
use thalweg_text::{Table, wrap};

use crate::cli::Format;
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
    experiment: Experiment,
}

/// A row is an experiment: its help, its name, and its module's arguments, which that module's `run` takes.
macro_rules! experiments {
    ($(#[doc = $help:literal] $name:ident => $module:ident::$args:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Experiment {
            $(#[doc = $help] $name(Box<$module::$args>),)*
        }

        pub(crate) fn run(args: &LabArgs, format: Format) -> Result<(), Failure> {
            match &args.experiment {
                $(Experiment::$name(args) => $module::run(args, format),)*
            }
        }
    };
}

experiments! {
    /// Run all experiments that the papers' claims need, and judge each claim
    All => all::LabAllArgs,
    /// Compare execution models on one input: throughput, speed-up, residence time
    Models => models::LabModelsArgs,
    /// Predict execution models on more cores than this machine has
    Predict => predict::LabPredictArgs,
    /// Compare longest-prefix-match structures: lookups, memory, build time, concurrent updates
    Lpm => lpm::LabLpmArgs,
    /// Compare schedulings of the BGP daemon: speed-up, time by function, traffic mixes
    Bgp => bgp::LabBgpArgs,
    /// Measure routers in network namespaces by RFC 2544: throughput, latency, loss (needs root)
    Forwarding => forwarding::LabForwardingArgs,
    /// Measure cycles per packet by stage, without interfaces
    Stages => stages::LabStagesArgs,
    /// Measure NAT by RFC 9693, in memory and live (live parts need root)
    Nat => nat::LabNatArgs,
    /// Measure voice calls on an overloaded port, against the kernel's qdiscs (needs root)
    Qos => qos::LabQosArgs,
    /// Simulate networks of BGP routers, or compute the routes of the whole Internet
    Network => network::LabNetworkArgs,
    /// Reproduce published results on BGP convergence: cliques, policies, damping, MRAI, surges, growth
    Convergence => convergence::LabConvergenceArgs,
    /// Run random networks and routers with faults, and check invariants
    Seeds => seeds::LabSeedsArgs,
    /// Measure the flow probe: ffProbe's table, many flows, floods, other probes on the same file
    Probe => probe::LabProbeArgs,
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

/// [`finish`] with several tables.
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
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        if word.contains([' ', '\'', '"']) { format!("{word:?}") } else { word }
    });
    std::iter::once("thalweg".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
