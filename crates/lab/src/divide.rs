//! The experiment on a farm with feedback: FastFlow's micro-benchmarks on [`thalweg_exec::divide_and_conquer`],
//! with FastFlow's published speed-ups beside ours.
//!
//! | problem | a task | divided into |
//! |---|---|---|
//! | matrix product | some rows of the product | nothing: a farm without feedback |
//! | quicksort | a part of the numbers | the smaller numbers and the others, down to [`SORT_ALONE`] |
//! | Fibonacci | a number of the sequence | the two before it, down to [`FIBONACCI_ALONE`] |
//!
//! The reference is the same work in one thread without tasks. Every run must give the reference's answer: the
//! product's checksum, the sorted numbers, the number of the sequence. All cells are run in rounds of shuffled
//! order.
//!
//! Missing: runs of FastFlow itself. Its sizes take minutes on one core (fib(50) has 4 * 10^10 calls), so sizes
//! here are smaller.

mod problems;

use crate::claims;
use crate::figures::{or_dash, percent, seconds, times};
use crate::plot::{Axis, LineChart, Point, Scale, Series};
use crate::report::{Origin, Report};
use crate::rounds::RunOptions;
use crate::stats::Summary;
use problems::{Solved, solve};
use serde::Serialize;
use thalweg_exec::ExecError;
use thalweg_text::Table;
use thalweg_text::units::{Unit, count};

pub use problems::{FIBONACCI_ALONE, SORT_ALONE};

thalweg_base::words! {
    /// The problems that are divided.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Problem {
        /// Multiplies two square matrices.
        MatrixProduct => "matrix-product",
        /// Sorts random numbers.
        Quicksort => "quicksort",
        /// Computes a Fibonacci number by its definition.
        Fibonacci => "fibonacci",
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker counts; the reference is always measured.
    pub workers: Vec<usize>,
    pub matrix_rows: usize,
    pub numbers: usize,
    /// The index of the Fibonacci number.
    pub fibonacci: u32,
    pub runs: usize,
    /// Seed of the numbers and of the order of runs.
    pub seed: u64,
}

impl Options {
    fn size(&self, problem: Problem) -> u64 {
        match problem {
            Problem::MatrixProduct => self.matrix_rows as u64,
            Problem::Quicksort => self.numbers as u64,
            Problem::Fibonacci => self.fibonacci.into(),
        }
    }
}

/// Why the experiment has no results.
#[derive(Debug, thiserror::Error)]
pub enum DivideError {
    /// The farm failed.
    #[error("{problem} with {workers} workers: {source}")]
    Farm { problem: Problem, workers: usize, source: ExecError },
    /// A run's answer differs from the reference's.
    #[error("{problem} with {workers} workers: another answer than the reference's")]
    Answer { problem: Problem, workers: usize },
    /// A run took no measurable time.
    #[error("{problem}: took no time: choose a larger one")]
    NoTime { problem: Problem },
}

/// A cell's results.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    pub problem: Problem,
    /// Rows, numbers, or the index of the Fibonacci number.
    pub size: u64,
    /// 0 for the reference.
    pub workers: usize,
    pub elapsed_s: Summary,
    /// Tasks of a run, including divided ones.
    pub tasks: u64,
    /// The reference's median time over this cell's.
    pub speed_up: f64,
    /// Speed-up per worker.
    pub efficiency: f64,
}

/// The results of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub runs: usize,
    pub cells: Vec<CellResult>,
}

/// Measures all cells; `progress` is called before each run.
pub fn run(options: &Options, mut progress: impl FnMut(usize, &str)) -> Result<Outcome, DivideError> {
    let counts: Vec<usize> = std::iter::once(0).chain(options.workers.iter().copied()).collect();
    let cells: Vec<(Problem, usize)> = Problem::ALL
        .into_iter()
        .flat_map(|problem| counts.iter().map(move |count| (problem, *count)))
        .collect();
    let mut solved: Vec<(Problem, usize, Solved)> = Vec::new();
    RunOptions { runs: options.runs, warm_ups: 1, seed: options.seed }.rounds(
        cells.len(),
        |turn| -> Result<(), DivideError> {
            let (problem, workers) = cells[turn.at];
            progress(turn.done, &format!("{problem}, {workers} workers"));
            let run = solve(problem, options, workers).map_err(|source| DivideError::Farm {
                problem,
                workers,
                source,
            })?;
            if turn.counts {
                solved.push((problem, workers, run));
            }
            Ok(())
        },
    )?;
    let mut results: Vec<CellResult> = Vec::new();
    for (problem, workers) in cells {
        let of = |count: usize| {
            solved.iter().filter(move |(p, w, _)| (*p, *w) == (problem, count)).map(|(.., run)| run)
        };
        let elapsed = |count| Summary::of(&of(count).map(|run| run.elapsed_s).collect::<Vec<_>>());
        let reference = elapsed(0).filter(|reference| reference.min > 0.0);
        let both = reference.zip(elapsed(workers).filter(|elapsed| elapsed.min > 0.0));
        let (reference, elapsed_s) = both.ok_or(DivideError::NoTime { problem })?;
        let answer = of(0).next().map(|run| run.answer);
        if of(workers).any(|run| Some(run.answer) != answer) {
            return Err(DivideError::Answer { problem, workers });
        }
        let speed_up = reference.median / elapsed_s.median;
        results.push(CellResult {
            problem,
            size: options.size(problem),
            workers,
            elapsed_s,
            tasks: of(workers).map(|run| run.tasks).max().unwrap_or_default(),
            speed_up,
            efficiency: speed_up / workers.max(1) as f64,
        });
    }
    Ok(Outcome { runs: options.runs, cells: results })
}

/// The published speed-up of FastFlow on eight cores.
fn published(problem: Problem) -> Option<f64> {
    claims::series("001/fastflow").get(problem.name())?.first().copied()
}

/// The tables of the report: measurements and the paper's figures.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    let caption = format!(
        "A farm with feedback: median of {} runs over the same work in one thread; FastFlow's figures are of 8 cores",
        outcome.runs
    );
    let table = Table::of(caption, &outcome.cells)
        .words("problem", |cell| cell.problem.to_string())
        .number("size", |cell| count(cell.size))
        .words(
            "workers",
            |cell| if cell.workers == 0 { "no farm".to_owned() } else { cell.workers.to_string() },
        )
        .number("tasks", |cell| count(cell.tasks))
        .number("time", |cell| seconds(cell.elapsed_s.median))
        .number("spread", |cell| percent(cell.elapsed_s.spread()))
        .number("speed-up", |cell| times(cell.speed_up))
        .number("per worker", |cell| times(cell.efficiency))
        .number("FastFlow", |cell| or_dash(published(cell.problem).map(times)))
        .number("per core", |cell| or_dash(published(cell.problem).map(|speed_up| times(speed_up / 8.0))));
    std::iter::once(table.table()).chain(claims::judged("divide", outcome)).collect()
}

/// The report with all tables and the plot.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("A farm with feedback", lead(outcome), origin);
    report.plot(
        plot(outcome).svg(),
        "The median time of the same work without a farm over each cell's. Error bars: fastest and slowest run. Diamonds: \
         FastFlow on 8 cores, as published.",
    );
    report.tables(tables(outcome));
    report.heading("How to read this");
    report.notes([
        "Without a farm, one thread does the same work by recursion or in a loop. Tasks are divided until they are small, so a \
         farm with one worker shows what dividing costs.",
        "FastFlow's sizes were larger (1024 rows, 50 million numbers, fib(50)), and its eight cores may have had two hardware \
         threads each: 9.21 of 8 is not possible otherwise.",
    ]);
    report
}

fn lead(outcome: &Outcome) -> String {
    let best = outcome.cells.iter().max_by(|a, b| a.speed_up.total_cmp(&b.speed_up));
    best.map_or_else(String::new, |best| {
        format!(
            "Every run gave the answer of the one without a farm. The best: {} with {} workers, {:.2} times as fast.",
            best.problem, best.workers, best.speed_up
        )
    })
}

fn plot(outcome: &Outcome) -> LineChart {
    let points = outcome.cells.iter().filter(|cell| cell.workers > 0).filter_map(|cell| {
        let is_reference = |other: &&CellResult| other.problem == cell.problem && other.workers == 0;
        let reference = outcome.cells.iter().find(is_reference)?.elapsed_s.median;
        let range = Some((reference / cell.elapsed_s.max, reference / cell.elapsed_s.min));
        let point = Point { x: cell.workers as f64, y: cell.speed_up, range };
        Some((cell.problem.to_string(), point))
    });
    let mut series = Series::each(Problem::ALL.map(Problem::name), points);
    series.push(Series::ideal(&series));
    let theirs = Problem::ALL.into_iter().filter_map(|problem| Some((8.0, published(problem)?)));
    series.push(Series::published("FastFlow", theirs));
    LineChart {
        title: "Speed-up by workers".to_owned(),
        x: Axis::at_data("workers", Unit::Plain, Scale::Log),
        y: Axis::new("times one thread without a farm", Unit::Plain, Scale::Linear),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { workers: vec![1, 3], matrix_rows: 40, numbers: 20_000, fibonacci: 23, runs: 1, seed: 4 }
    }

    /// The number of tasks depends on the problem's size, not on the number of workers; answers depend on neither
    /// workers nor farm.
    #[test]
    fn tasks_grow_with_the_problem_and_not_with_workers() {
        let outcome = run(&options(), |_, _| {}).unwrap();
        assert_eq!(outcome.cells.len(), 3 * 3);
        let larger = Options { matrix_rows: 80, numbers: 60_000, fibonacci: 25, ..options() };
        let larger = run(&larger, |_, _| {}).unwrap();
        for problem in Problem::ALL {
            let tasks = |outcome: &Outcome, workers: usize| {
                let is_it = |cell: &&CellResult| cell.problem == problem && cell.workers == workers;
                outcome.cells.iter().find(is_it).unwrap().tasks
            };
            assert_eq!(tasks(&outcome, 0), 0, "no farm");
            assert!(tasks(&outcome, 1) > 1 && tasks(&outcome, 1) == tasks(&outcome, 3), "{problem}");
            assert!(tasks(&larger, 1) > tasks(&outcome, 1), "{problem}");
        }
    }

    /// The verdict follows the measurement, and is given only with as many workers as in the paper.
    #[test]
    fn what_fastflow_says_is_judged_for_eight_workers() {
        let cell = |workers: usize, speed_up: f64| CellResult {
            problem: Problem::Quicksort,
            size: 10,
            workers,
            elapsed_s: Summary::of(&[1.0]).unwrap(),
            tasks: 9,
            speed_up,
            efficiency: speed_up / 8.0,
        };
        let judged = |cells: Vec<CellResult>| {
            let results = serde_json::to_value(Outcome { runs: 1, cells }).unwrap();
            let judged = claims::judge("divide", &results);
            judged.into_iter().find(|claim| claim.id == "001/fastflow/quicksort").unwrap().here
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let expected = if cores >= 8 { vec![6.5] } else { vec![] };
        assert_eq!(judged(vec![cell(2, 1.9), cell(8, 6.5)]), expected);
        assert_eq!(judged(vec![cell(2, 1.9)]), Vec::<f64>::new());
    }
}
