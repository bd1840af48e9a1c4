//! Stages as a table, a chart and a report.

use super::{ALL_STAGES, Outcome};
use crate::figures::{or_dash, range};
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};
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
    .number("TSC cycles", |cell| cycles(cell.tsc_cycles_per_packet.median))
    .number("range", |cell| range(&cell.tsc_cycles_per_packet, cycles))
    .number("core cycles", |cell| or_dash(cell.core_cycles_per_packet.map(cycles)))
    .number("ns", |cell| format!("{:.1}", cell.ns_per_packet))
    .table()
}

/// The stages of each workload side by side.
fn cycles(value: f64) -> String {
    format!("{value:.1}")
}

fn chart(outcome: &Outcome) -> BarChart {
    let bars = outcome
        .cells
        .iter()
        .map(|cell| (cell.workload.clone(), cell.stage.clone(), Bar::of(&cell.tsc_cycles_per_packet)));
    let axis = Axis::new("time stamp counter cycles per packet", Unit::Plain, Scale::Linear);
    BarChart::of("Cycles per packet by stage", axis, Vec::new(), bars)
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
