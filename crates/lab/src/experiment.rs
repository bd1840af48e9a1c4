//! The interface between the program and an experiment.
//!
//! The arguments of an [`Experiment`] are its options. So a new one is a module here, its line in `lib.rs`, and
//! its row in the program's list of experiments.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use thalweg_text::Table;

use crate::report::{Origin, Report};

/// An experiment whose arguments are its options.
pub trait Experiment: Args {
    /// Its name on the command line.
    const NAME: &'static str;
    type Results: Serialize;
    type Error: std::error::Error;

    fn run_args(&self) -> &RunArgs;

    /// Measures. Calls `step` with what is done next.
    fn measure(&self, step: &mut dyn FnMut(&str)) -> Result<Self::Results, Self::Error>;

    /// A few words for the report about what was measured.
    fn input(&self, results: &Self::Results) -> String;

    fn report(&self, results: &Self::Results, origin: Origin) -> Report;

    /// The tables for the terminal.
    fn tables(&self, results: &Self::Results) -> Vec<Table>;
}

/// What all experiments take on the command line.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Measured rounds, each in random order [default: see below]
    #[arg(long, alias = "passes", value_name = "N", value_parser = rounds)]
    pub runs: Option<NonZeroUsize>,
    /// Folder for report.html, results.json and generated files [default: lab-EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Run a short version of everything, to see that it works
    #[arg(long)]
    pub quick: bool,
    /// Seed for generated input and for the order of runs [default: 1; in models and lpm 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn rounds(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a whole number from 1")
}

impl RunArgs {
    /// The arguments to run another experiment in the same way; its folder is separate.
    pub fn passed_on(&self) -> Vec<String> {
        let option = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
        let quick = self.quick.then(|| "--quick".to_owned());
        let runs = option("runs", self.runs.map(|runs| runs.to_string()));
        quick.into_iter().chain(runs).chain(option("seed", self.seed.map(|seed| seed.to_string()))).collect()
    }

    /// The folder; `usual` if none was given.
    pub fn output(&self, usual: &str) -> PathBuf {
        self.output.clone().unwrap_or_else(|| usual.into())
    }

    /// The seed; `usual` if none was given.
    pub fn seed(&self, usual: u64) -> u64 {
        self.seed.unwrap_or(usual)
    }

    /// The number of rounds. If none was given: `quick` with `--quick`, else `usual`.
    pub fn runs(&self, usual: usize, quick: usize) -> usize {
        self.runs.map_or(if self.quick { quick } else { usual }, NonZeroUsize::get)
    }
}
