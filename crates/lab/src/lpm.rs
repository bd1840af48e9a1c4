//! The experiment on longest-prefix match: look-up structures on one table.
//!
//! [`mod@bench`] has the table, `lpm/measure.rs` measures with the published addresses, `lpm/rte_fib.rs` has DPDK's
//! structure in the same rounds; tables and report show the resulting rows.

pub mod bench;
mod measure;
mod rte_fib;

use std::path::PathBuf;

use self::bench::{BenchError, BenchTable};
use self::measure::{DEFAULT_MODE, Options, measure};
use self::rte_fib::{Program, RTE_FIB};
use crate::experiment::{Experiment, RunArgs};
use crate::figures::{or_dash, range, seconds};
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};
use crate::stats::{Summary, distinct};
use clap::Args;
use serde::Serialize;
use thalweg_text::Table;
use thalweg_text::units::Unit;

/// Default number of counted passes.
const PASSES: usize = 7;
const PASSES_QUICK: usize = 3;

/// The arguments of `thalweg lab lpm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg lab lpm full-table.txt.gz --output report     your own table
  thalweg lab lpm --quick                               a generated table, to see that it works
DPDK's rte_fib takes part where libdpdk, its headers and a C compiler are installed (Debian: libdpdk-dev).
Default of --runs, passes over the addresses: 7; 3 with --quick.")]
pub struct Lpm {
    /// Table of prefixes, the first word of each line, plain or compressed [default: a generated table]
    #[arg(value_name = "PREFIXES")]
    prefixes: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

/// Rows, a description of the table of routes, and what was left out.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct LpmResults {
    rows: Vec<LpmRow>,
    #[serde(skip)]
    table: String,
    #[serde(skip)]
    left_out: Vec<String>,
}

impl Experiment for Lpm {
    const NAME: &'static str = "lpm";
    type Results = LpmResults;
    type Error = BenchError;

    fn run_args(&self) -> &RunArgs {
        &self.run
    }

    fn measure(&self, step: &mut dyn FnMut(&str)) -> Result<LpmResults, BenchError> {
        step("reading the table");
        let table = match &self.prefixes {
            Some(path) => BenchTable::read(path)?,
            None => BenchTable::made(self.run.seed(0), self.run.quick),
        };
        let options = Options::new(self.run.runs(PASSES, PASSES_QUICK), self.run.quick);
        let folder = self.run.output(&format!("lab-{}", Self::NAME)).join("rte_fib");
        step("compiling rte_fib's program");
        let results = measure(&table.routes, &options, Program::compile(&folder), step)?;
        Ok(LpmResults { table: table.description, ..results })
    }

    fn input(&self, results: &LpmResults) -> String {
        results.table.clone()
    }

    fn report(&self, results: &LpmResults, origin: Origin) -> Report {
        let mut report = report(&results.rows, lead(results), origin);
        report.left_out(&results.left_out);
        report
    }

    fn tables(&self, results: &LpmResults) -> Vec<Table> {
        vec![table(&results.rows)]
    }
}

/// One measured look-up structure on one kind of addresses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LpmRow {
    /// The structure: `poptrie`, `dir-24-8`, ...
    pub structure: String,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// How addresses were drawn: `random`, `inside`, `zipf`.
    pub kind: String,
    /// How they were looked up: `one`, `batch`, `avx512`, ...
    pub mode: String,
    /// Million look-ups per second of wall-clock time.
    pub mlps: Summary,
    /// Million look-ups per second of the thread's processor time; compare these on a busy machine.
    pub cpu_mlps: f64,
    /// Memory of the structure, bytes.
    pub memory_bytes: u64,
    /// Time to build it from the whole table, seconds.
    pub build_s: f64,
    /// Updates per second while another thread reads, where measured.
    pub updates_per_s: Option<f64>,
}

/// One row per measurement.
pub fn table(rows: &[LpmRow]) -> Table {
    let number = |value: f64| Unit::Plain.format(value);
    Table::of("Look-ups: median of the passes, slowest to fastest, and per second of processor time", rows)
        .words("family", |row| row.family.clone())
        .words("addresses", |row| row.kind.clone())
        .words("structure", |row| row.structure.clone())
        .words("mode", |row| row.mode.clone())
        .number("M/s", |row| number(row.mlps.median))
        .number("range", |row| range(&row.mlps, number))
        .number("M/CPU s", |row| number(row.cpu_mlps))
        .number("memory", |row| Unit::Bytes.format(row.memory_bytes as f64))
        .number("build", |row| seconds(row.build_s))
        .number("updates/s", |row| or_dash(row.updates_per_s.map(|updates| Unit::Count.format(updates))))
        .number("over rte_fib", |row| or_dash(over_rte_fib(row, rows).map(|ratio| format!("{ratio:.2}"))))
        .table()
}

/// A row's look-ups per second of processor time over those of the fastest `rte_fib` on the same addresses.
fn over_rte_fib(row: &LpmRow, rows: &[LpmRow]) -> Option<f64> {
    let rivals = rows.iter().filter(|rival| rival.structure == RTE_FIB);
    let same = rivals.filter(|rival| (&rival.family, &rival.kind) == (&row.family, &row.kind));
    let best = same.map(|rival| rival.cpu_mlps).max_by(f64::total_cmp)?;
    Some(row.cpu_mlps / best)
}

/// The report: per family, look-ups by kind of addresses, then memory.
pub fn report(rows: &[LpmRow], lead: impl Into<String>, origin: Origin) -> Report {
    let mut report = Report::new("Longest-prefix match", lead, origin);
    report.heading("Plots");
    for family in distinct(rows.iter().map(|row| row.family.as_str())) {
        let of_family: Vec<&LpmRow> = rows.iter().filter(|r| r.family == family).collect();
        report.plot(
            speed(family, &of_family).svg(),
            "Median million look-ups per second on one core. Error bars: slowest and fastest pass.",
        );
        report.plot(memory(family, &of_family).svg(), "Memory of each structure with the whole table in it.");
    }
    report.heading("All measurements");
    report.table(table(rows));
    report.heading("How to read this");
    report.notes([
        "random: any address, most of them in the table's larger holes and blocks. inside: a prefix chosen evenly, \
         then an address in it. zipf: 65,536 inside addresses, the k-th drawn about 1/k as often as the first.",
        "On a machine that others use, compare look-ups per second of processor time.",
    ]);
    report
}

/// The findings, in a sentence or two for each family.
fn lead(LpmResults { rows, table, left_out }: &LpmResults) -> String {
    let mut text = format!("Look-ups on one core: {table}.");
    for (family, structure) in [("IPv4", "fib4"), ("IPv6", "fib6")] {
        let best = |kind: &str| {
            let of_kind = rows.iter().filter(|r| r.family == family && r.kind == kind);
            of_kind.max_by(|a, b| a.cpu_mlps.total_cmp(&b.cpu_mlps))
        };
        if let (Some(inside), Some(random)) = (best("inside"), best("random")) {
            text += &format!(
                " {family}: {:.0} million a second for addresses inside the table ({}, {}), {:.0} for random ones.",
                inside.cpu_mlps, inside.structure, inside.mode, random.cpu_mlps
            );
        }
        let routers = |row: &&LpmRow| row.structure == structure && row.mode == DEFAULT_MODE;
        let ratios: Vec<String> = (rows.iter().filter(routers))
            .filter_map(|row| Some(format!("{} {:.2}", row.kind, over_rte_fib(row, rows)?)))
            .collect();
        if !ratios.is_empty() {
            text += &format!(" The router's {structure} over DPDK's rte_fib: {}.", ratios.join(", "));
        }
    }
    text += " All structures found the same next hops.";
    if !left_out.is_empty() {
        text += &format!(" Left out: {}.", left_out.join("; "));
    }
    text
}

/// Bars by mode of look-up, grouped by kind of addresses.
fn speed(family: &str, rows: &[&LpmRow]) -> BarChart {
    let bars = rows
        .iter()
        .map(|row| (row.kind.clone(), format!("{}, {}", row.structure, row.mode), Bar::of(&row.mlps)));
    let axis = Axis::new("million look-ups per second", Unit::Plain, Scale::Linear);
    BarChart::of(format!("{family} look-ups"), axis, Vec::new(), bars)
}

fn memory(family: &str, rows: &[&LpmRow]) -> BarChart {
    let structures = distinct(rows.iter().map(|row| (&row.structure, row.memory_bytes)));
    let bars = structures
        .into_iter()
        .map(|(structure, bytes)| (structure.clone(), "memory".to_owned(), Bar::at(bytes as f64)));
    BarChart::of(
        format!("{family} memory"),
        Axis::new("memory", Unit::Bytes, Scale::Linear),
        Vec::new(),
        bars,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;

    fn row(structure: &str, family: &str, kind: &str, median: f64) -> LpmRow {
        LpmRow {
            structure: structure.into(),
            family: family.into(),
            kind: kind.into(),
            mode: "batch".into(),
            mlps: Summary::of(&[median * 0.9, median, median * 1.1]).unwrap(),
            cpu_mlps: median,
            memory_bytes: 43_000_000,
            build_s: 0.25,
            updates_per_s: (structure == "dir-24-8").then_some(1.5e6),
        }
    }

    #[test]
    fn one_plot_of_speed_and_one_of_memory_per_family() {
        let rows = [
            row("dir-24-8", "IPv4", "random", 150.0),
            row("poptrie", "IPv4", "random", 120.0),
            row("dir-24-8", "IPv4", "inside", 160.0),
            row("poptrie", "IPv6", "inside", 70.0),
        ];
        let table = table(&rows);
        assert_eq!(table.rows()[0][4..], ["150", "135 to 165", "150", "43.0 MB", "250 ms", "1.50 M", "–"]);
        assert_eq!(table.rows()[1][9], "–");
        let origin = Origin {
            machine: Machine::unknown(),
            commit: "unknown".into(),
            command: "thalweg lab lpm".into(),
            input: "made up".into(),
            measured_at: "never".into(),
        };
        let html = report(&rows, "Made up.", origin).html();
        assert_eq!(html.matches("<svg").count(), 4);
        assert!(html.contains("IPv6 look-ups") && html.contains("dir-24-8, batch"));
        assert!(speed("IPv4", &[&rows[0], &rows[1], &rows[2]]).groups.len() == 2);
    }
    #[test]
    fn ratios_are_over_the_fastest_rival_on_the_same_addresses() {
        let rival = |kind: &str, family: &str, mode: &str, median: f64| LpmRow {
            mode: mode.into(),
            ..row(RTE_FIB, family, kind, median)
        };
        let own = |kind: &str, median: f64| LpmRow {
            mode: DEFAULT_MODE.into(),
            ..row("fib4", "IPv4", kind, median)
        };
        let rows = vec![
            own("random", 300.0),
            own("zipf", 90.0),
            rival("random", "IPv4", "avx512, 4 KiB pages", 100.0),
            rival("random", "IPv4", "avx512, 2 MiB pages", 120.0),
            rival("random", "IPv6", "avx512, 2 MiB pages", 900.0),
        ];
        assert_eq!(over_rte_fib(&rows[0], &rows), Some(2.5));
        assert_eq!(over_rte_fib(&rows[1], &rows), None);
        let left_out = vec!["rte_fib, IPv6, 4 KiB pages: why".to_owned()];
        let text = lead(&LpmResults { rows, table: "made up".into(), left_out });
        assert!(text.contains("The router's fib4 over DPDK's rte_fib: random 2.50."), "{text}");
        assert!(text.ends_with("Left out: rte_fib, IPv6, 4 KiB pages: why."), "{text}");
    }
}
