//! Stages as a table, a chart and a report.

use super::{ALL_STAGES, Outcome, StageResult};
use crate::plot::{Axis, Bar, BarChart, BarGroup, Scale};
use crate::report::{Origin, Report};
use crate::stats::distinct;
use thalweg_text::Table;
use thalweg_text::units::{Unit, count};

/// All stages of all workloads.
pub fn table(outcome: &Outcome) -> Table {
    Table::of(
        format!(
            "Cycles per packet by stage, one core, no interfaces: chunks of {}, median of {} rounds",
            outcome.chunk_packets, outcome.runs
        ),
        &outcome.cells,
    )
    .words("workload", |cell| cell.workload.clone())
    .number("routes", |cell| count(cell.routes as u64))
    .number("sessions", |cell| if cell.sessions == 0 { "–".to_owned() } else { count(cell.sessions.into()) })
    .words("stage", |cell| cell.stage.clone())
    .number("TSC cycles", |cell| format!("{:.1}", cell.tsc_cycles_per_packet.median))
    .number("range", |cell| {
        format!("{:.1} to {:.1}", cell.tsc_cycles_per_packet.min, cell.tsc_cycles_per_packet.max)
    })
    .number("core cycles", |cell| {
        cell.core_cycles_per_packet.map_or_else(|| "–".to_owned(), |cycles| format!("{cycles:.1}"))
    })
    .number("ns", |cell| format!("{:.1}", cell.ns_per_packet))
    .table()
}

/// The stages of each workload side by side.
fn chart(outcome: &Outcome) -> BarChart {
    let series = distinct(outcome.cells.iter().map(|cell| cell.stage.clone()));
    let workloads = distinct(outcome.cells.iter().map(|cell| cell.workload.as_str()));
    let bar = |cell: &StageResult| {
        let place = series.iter().position(|stage| *stage == cell.stage).unwrap_or(0);
        Bar::of(place, &cell.tsc_cycles_per_packet)
    };
    let group = |workload: &&str| BarGroup {
        label: (*workload).to_owned(),
        bars: outcome.cells.iter().filter(|cell| cell.workload == *workload).map(bar).collect(),
    };
    let groups = workloads.iter().map(group).collect();
    let axis = Axis::new("time stamp counter cycles per packet", Unit::Plain, Scale::Linear);
    BarChart::new("Cycles per packet by stage", axis, series, groups)
}

/// The findings in a sentence or two.
pub fn lead(outcome: &Outcome) -> String {
    let all: Vec<String> = outcome
        .cells
        .iter()
        .filter(|cell| cell.stage == ALL_STAGES)
        .map(|cell| format!("{} {:.0}", cell.workload, cell.tsc_cycles_per_packet.median))
        .collect();
    let clock = &outcome.clock;
    let core = clock.core_cycles_per_ns.map_or(String::new(), |rate| format!(", the core at {rate:.2} GHz"));
    format!(
        "Cycles per packet of the whole router in memory: {}. The counter runs at {:.2} GHz{core}.",
        all.join(", "),
        clock.ticks_per_ns
    )
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Stages in memory", lead(outcome), origin);
    report.plot(
        chart(outcome).svg(),
        "Each bar a stage; the last of a group is all of them. Ranges: the fastest and the slowest round.",
    );
    report.table(table(outcome));
    report.heading("How to read this");
    report.notes([
        "TSC cycles are ticks of the time stamp counter, which papers count; its rate was measured against the \
         monotonic clock. Core cycles are those of an undisturbed core, whose rate was measured with a chain of \
         instructions of known length. A core that runs faster than its counter needs more cycles than ticks.",
        "A figure of a round is the median over its chunks; a packet's share of reading the clock is taken off.",
        "Frames of 64 bytes, made by the same core just before: they are in its caches.",
        "Validation, flow hash, class and NAT's label are part of `ingress`; policing and fragments of `arrival`; the \
         counters of `egress`.",
    ]);
    report
}
