//! `thalweg lab divide`: a farm with feedback, on FastFlow's micro-benchmarks.

use std::num::NonZeroUsize;

use clap::Args;
use thalweg_lab::cores::Cores;
use thalweg_lab::divide::{self, Options, Problem};
use thalweg_lab::report::Origin;

use super::args::{LabRunArgs, VARY, numbers, or_usual};
use super::{command_line, failed, measured, show_all};
use crate::Failure;
use crate::cli::Format;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab divide --quick                               seconds, to see that it works
  thalweg lab divide                                       1024 rows, 10 million numbers, fib(40)
  thalweg lab divide --numbers 50000000 --fibonacci 50     FastFlow's sizes: minutes for each run
Default of --runs: 5; 3 with --quick.")]
pub(crate) struct LabDivideArgs {
    /// Numbers of workers [default: 1, each power of two, all cores]
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", help_heading = VARY)]
    workers: Vec<NonZeroUsize>,
    /// Rows and columns of the matrices [default: 1024; with --quick 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8192))]
    rows: Option<u16>,
    /// Numbers to sort [default: 10000000; with --quick 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    numbers: Option<u32>,
    /// Place in the Fibonacci sequence [default: 40; with --quick 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=60))]
    fibonacci: Option<u32>,
    #[command(flatten)]
    run: LabRunArgs,
}

pub(super) fn run(args: &LabDivideArgs, format: Format) -> Result<(), Failure> {
    let quick = args.run.quick;
    let workers = or_usual(&numbers(&args.workers), &Cores::here().map_err(failed)?.steps());
    let options = Options {
        matrix_rows: args.rows.unwrap_or(if quick { 256 } else { 1024 }).into(),
        numbers: args.numbers.unwrap_or(if quick { 1_000_000 } else { 10_000_000 }) as usize,
        fibonacci: args.fibonacci.unwrap_or(if quick { 32 } else { 40 }),
        runs: args.run.runs(5, 3),
        seed: args.run.seed(1),
        workers,
    };
    let total = Problem::ALL.len() * (options.workers.len() + 1) * (options.runs + 1);
    let outcome = measured(|steps| divide::run(&options, |done, what| steps.of(done, total, what)))?;
    let Options { matrix_rows, numbers, fibonacci, seed, .. } = options;
    let input = format!(
        "{matrix_rows} x {matrix_rows} matrices, {numbers} random numbers, fib({fibonacci}); seed {seed}"
    );
    let report = divide::report(&outcome, Origin::here(command_line(), input));
    show_all(&report, &outcome, &divide::tables(&outcome), &args.run.output("lab-divide"), format)
}
