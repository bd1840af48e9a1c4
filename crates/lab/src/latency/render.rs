//! The experiment on latency as tables, charts and a report.

use super::{LatencyResult, Load, Outcome, RouterResult};
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};
use crate::stats::Summary;
use thalweg_text::Table;
use thalweg_text::units::Unit;

fn ns(value: f64) -> String {
    Unit::Nanoseconds.format(value)
}

fn range(ns_of: &Summary) -> String {
    format!("{} to {}", ns(ns_of.min), ns(ns_of.max))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn percent(cores: f64) -> String {
    format!("{:.1} %", cores * 100.0)
}

/// Latency under all loads, and what holds for each router.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    let caption = format!(
        "One-way latency, frames of {} bytes, one flow: {} s, median of {} rounds",
        outcome.frame_bytes, outcome.trial_s, outcome.runs
    );
    let latency = Table::of(caption, &outcome.cells)
        .words("router", |cell: &LatencyResult| cell.label.to_string())
        .words("load", |cell| cell.load.name().to_owned())
        .number("packets/s", |cell| Unit::Count.format(cell.packets_per_second.median))
        .number("p50", |cell| ns(cell.one_way.p50_ns as f64))
        .number("p99", |cell| ns(cell.p99_ns.median))
        .number("p99 range", |cell| range(&cell.p99_ns))
        .number("of the kernel's", |cell| ratio(cell.native_ratio))
        .number("p99.9", |cell| ns(cell.p999_ns.median))
        .number("p99.9 range", |cell| range(&cell.p999_ns))
        .number("longest", |cell| ns(cell.longest_ns as f64))
        .number("of a core", |cell| percent(cell.cores.median))
        .number("lost", |cell| cell.lost.to_string())
        .optional(&["p99.9 range", "p99 range", "longest", "packets/s"])
        .table();
    let routers =
        Table::of("Routers: the fastest rate without loss, and work without packets", &outcome.routers)
            .words("router", |router: &RouterResult| router.label.to_string())
            .number("packets/s", |router| Unit::Count.format(router.lossless_pps.median))
            .number("range", |router| {
                let Summary { min, max, .. } = router.lossless_pps;
                format!("{} to {}", Unit::Count.format(min), Unit::Count.format(max))
            })
            .number("of `normal`", |router| ratio(router.normal_ratio))
            .number("idle, of a core", |router| percent(router.idle_cores.median))
            .table();
    vec![latency, routers]
}

fn chart(outcome: &Outcome) -> BarChart {
    let axis = Axis::new("one-way latency, 99th percentile", Unit::Nanoseconds, Scale::Log);
    let bar = |cell: &LatencyResult| {
        let bar = Bar::of(&cell.p99_ns).marked(Some(cell.p999_ns.median));
        (cell.label.to_string(), cell.load.name().to_owned(), bar)
    };
    let measured = Load::ALL.iter().filter(|load| outcome.cells.iter().any(|cell| cell.load == **load));
    let loads = measured.map(|load| load.name().to_owned()).collect();
    BarChart::of("Latency by load", axis, loads, outcome.cells.iter().map(bar)).marked("99.9th percentile")
}

fn rates(outcome: &Outcome) -> BarChart {
    let axis = Axis::new("packets per second without loss", Unit::Count, Scale::Linear);
    let bar = |router: &RouterResult| {
        (router.label.to_string(), "lossless rate".to_owned(), Bar::of(&router.lossless_pps))
    };
    BarChart::of("Lossless rate", axis, Vec::new(), outcome.routers.iter().map(bar))
}

/// The findings: the longest of a thousand on a machine whose cores others want, else the first load measured.
fn lead(outcome: &Outcome) -> String {
    let has = |load: Load| outcome.cells.iter().any(|cell| cell.load == load);
    let first = outcome.cells.first().map_or(Load::Idle, |cell| cell.load);
    let load = if has(Load::Busy) { Load::Busy } else { first };
    let said: Vec<String> = outcome
        .cells
        .iter()
        .filter(|cell| cell.load == load)
        .map(|cell| format!("{} {}", cell.label, ns(cell.p999_ns.median)))
        .collect();
    let left_out = match outcome.left_out.as_slice() {
        [] => String::new(),
        left_out => format!(" Left out: {}.", left_out.join("; ")),
    };
    format!("999 of 1000 frames, load {}, took at most: {}.{left_out}", load.name(), said.join("; "))
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Latency", lead(outcome), origin);
    report.plot(chart(outcome).svg(), "From tester-a to tester-b. Shorter is better.");
    report.plot(rates(outcome).svg(), "Longer is better.");
    report.tables(tables(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    report.notes([
        "The kernel forwards in the sender's own call and wakes nobody. The relay is one real-time thread that only passes \
         frames on: what it adds to the kernel's time is the price of waking a thread on this machine.",
        "Shares of a rate are shares of the router's own lossless rate. `idle`, `wanted` and `busy` are 1,000 frames a second; \
         in `wanted` and `busy` a thread of ordinary priority wants each core a tenth of the time, or all of it.",
        "A relay with a planted time holds each frame back by it. If the table does not show that time, do not believe the \
         rest.",
        "The sender keeps a core busy at shares of a rate, so on a machine with few cores a router that polls takes what the \
         sender needs.",
    ]);
    report
}
