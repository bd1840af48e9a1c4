//! `thalweg lab`: experiments. A table on the terminal, `report.html` and `results.json` in a folder.

mod bgp;
mod forwarding;
mod lpm;
mod models;
mod nat;
mod probe;
mod qos;
mod stages;

use std::fmt;
use std::path::Path;

use serde::Serialize;
use thalweg_lab::bgp::schedulings::BgpError;
use thalweg_lab::forwarding::ForwardingError;
use thalweg_lab::lpm::bench::BenchError;
use thalweg_lab::models::ModelsError;
use thalweg_lab::models::replayed::RunError;
use thalweg_lab::nat::NatError;
use thalweg_lab::probe::ProbeLabError;
use thalweg_lab::report::{Report, ReportError};
use thalweg_lab::stages::StageError;
use thalweg_lab::workload::generate::GenerateError;
use thalweg_replay::ReplayError;
use thalweg_text::{Table, wrap};

use crate::cli::{Experiment, Format, LabArgs};
use crate::tables::width;
use crate::{Failure, print};

/// Why an experiment came to nothing.
#[derive(Debug)]
pub(crate) enum LabError {
    /// The input or configuration cannot be made.
    Generate(GenerateError),
    /// The input has no packets, so there is nothing to measure.
    NoPackets,
    /// The experiment on models failed.
    Models(Box<ModelsError<RunError>>),
    /// The experiment on BGP schedulings failed.
    Bgp(BgpError),
    /// The experiment on forwarding failed.
    Forwarding(ForwardingError),
    /// The experiment on look-ups failed.
    Lpm(BenchError),
    /// The experiment on translation failed.
    Nat(NatError),
    /// The experiment on the flow probe failed.
    Probe(ProbeLabError),
    /// The experiment on stages failed.
    Stages(StageError),
    /// The report cannot be written.
    Report(ReportError),
}

impl LabError {
    /// Whether asking for something else would help.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            LabError::Generate(GenerateError::NoRoutes) => true,
            LabError::Models(error) => match error.as_ref() {
                ModelsError::Nothing => true,
                ModelsError::Run { source, .. } => {
                    matches!(source, RunError::Replay(ReplayError::Options(_)))
                }
                _ => false,
            },
            _ => false,
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Generate(error) => write!(f, "{error}"),
            LabError::NoPackets => write!(f, "the input has no packets"),
            LabError::Models(error) => write!(f, "{error}"),
            LabError::Bgp(error) => write!(f, "{error}"),
            LabError::Forwarding(error) => write!(f, "{error}"),
            LabError::Lpm(error) => write!(f, "{error}"),
            LabError::Nat(error) => write!(f, "{error}"),
            LabError::Probe(error) => write!(f, "{error}"),
            LabError::Stages(error) => write!(f, "{error}"),
            LabError::Report(error) => write!(f, "{error}"),
        }
    }
}

pub(crate) fn run(args: &LabArgs, format: Format) -> Result<(), Failure> {
    match &args.experiment {
        Experiment::Models(args) => models::run(args, format),
        Experiment::Lpm(args) => lpm::run(args, format),
        Experiment::Bgp(args) => bgp::run(args, format),
        Experiment::Forwarding(args) => forwarding::run(args, format),
        Experiment::Stages(args) => stages::run(args, format),
        Experiment::Nat(args) => nat::run(args, format),
        Experiment::Qos(args) => qos::run(args, format),
        Experiment::Probe(args) => probe::run(args, format),
    }
}

/// Writes the report and shows what people or machines read of it.
fn show(
    report: &Report,
    results: &impl Serialize,
    table: &Table,
    folder: &Path,
    format: Format,
) -> Result<(), Failure> {
    show_all(report, results, std::slice::from_ref(table), folder, format)
}

/// The same with several tables.
fn show_all(
    report: &Report,
    results: &impl Serialize,
    tables: &[Table],
    folder: &Path,
    format: Format,
) -> Result<(), Failure> {
    let failed = |error| Failure::Lab(LabError::Report(error));
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

/// The command line as it was typed, for the report; the program by its name.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.to_string_lossy().into_owned();
        if word.contains([' ', '\'', '"']) { format!("{word:?}") } else { word }
    });
    std::iter::once("thalweg".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
