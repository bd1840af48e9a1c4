//! Command-line arguments that experiments share.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
pub(crate) use thalweg_lab::experiment::RunArgs as LabRunArgs;
use thalweg_lab::forwarding::subject::thalweg::DRIVERS;
use thalweg_replay::Work;

use crate::Failure;

/// The heading of the options that an experiment varies.
pub(crate) const VARY: &str = "What to vary";

/// The routers to measure, for experiments with one rival.
#[derive(Debug, Args)]
pub(crate) struct LabSubjectsArgs {
    /// Routers to measure on live interfaces
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SUBJECTS",
        default_value = "linux,thalweg",
        help_heading = VARY
    )]
    pub(crate) subjects: Vec<RouterArg>,
}

/// The synthetic work of stages.
#[derive(Debug, Args)]
pub(crate) struct LabWorkArgs {
    /// Synthetic work per packet and stage: `none`; `queens:N`; `queens:4-10`, random per packet; `queens:6/8/6/10`, by
    /// stage
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "WORK",
        default_value = "none,queens:8",
        help_heading = VARY
    )]
    pub(crate) work: Vec<Work>,
}

/// This program as a router under test.
#[derive(Debug, Args)]
pub(crate) struct LabRouterArgs {
    /// Drivers of thalweg to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "DRIVERS", value_parser = DRIVERS, help_heading = VARY)]
    drivers: Vec<String>,
    /// Execution models of thalweg to measure [default: see below]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "MODELS",
        value_parser = ["run-to-completion", "pipeline", "farm"],
        help_heading = VARY
    )]
    models: Vec<String>,
    /// Length of a trial, in seconds [default: see below]
    #[arg(long, value_name = "S", value_parser = number(0.01..=600.0))]
    pub(crate) trial: Option<f64>,
}

impl LabRouterArgs {
    /// Each driver with each model: the given ones, otherwise all that the experiment supports.
    pub(crate) fn shapes<'a>(
        &'a self,
        drivers: &[&'a str],
        models: &[&'a str],
    ) -> Result<Vec<(&'a str, &'a str)>, Failure> {
        let or = |given: &'a [String], usual: &[&'a str]| {
            or_usual(&given.iter().map(String::as_str).collect::<Vec<_>>(), usual)
        };
        let models = or(&self.models, models);
        let mut shapes = Vec::new();
        for driver in or(&self.drivers, drivers) {
            if !drivers.contains(&driver) {
                let expected = drivers.join(", ");
                return Err(Failure::Usage(format!(
                    "--drivers: this experiment does not measure {driver}; expected {expected}"
                )));
            }
            shapes.extend(models.iter().map(|model| (driver, *model)));
        }
        Ok(shapes)
    }
}

/// A router under test, for experiments with one rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouterArg {
    /// The Linux kernel: nftables, or each of its queueing disciplines
    Linux,
    /// This program
    Thalweg,
}

/// What was given, or what is usual.
pub(crate) fn or_usual<T: Clone>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given.to_vec() }
}

/// Numbers of cores, workers and the like.
pub(crate) fn numbers(given: &[NonZeroUsize]) -> Vec<usize> {
    given.iter().map(|number| number.get()).collect()
}

/// Takes a number within bounds.
pub(crate) fn number(
    within: std::ops::RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
        let (least, most) = (within.start(), within.end());
        if within.contains(&number) { Ok(number) } else { Err(format!("expected {least} to {most}")) }
    }
}
