//! `thalweg lab`: experiments. A table on the terminal, `report.html` and `results.json` in a folder.

mod bgp;
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

use serde::Serialize;
use thalweg_lab::report::Report;
use thalweg_text::{Table, wrap};

use crate::cli::{Experiment, Format, LabArgs};
use crate::tables::width;
use crate::{Failure, print};

/// An experiment that came to nothing.
fn failed(error: impl fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

pub(crate) fn run(args: &LabArgs, format: Format) -> Result<(), Failure> {
    match &args.experiment {
        Experiment::Models(args) => models::run(args, format),
        Experiment::Predict(args) => predict::run(args, format),
        Experiment::Lpm(args) => lpm::run(args, format),
        Experiment::Bgp(args) => bgp::run(args, format),
        Experiment::Forwarding(args) => forwarding::run(args, format),
        Experiment::Stages(args) => stages::run(args, format),
        Experiment::Nat(args) => nat::run(args, format),
        Experiment::Network(args) => network::run(args, format),
        Experiment::Seeds(args) => seeds::run(args, format),
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
