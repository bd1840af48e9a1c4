//! The experiment on failover as a table, charts and a report.

use super::{FailoverResult, Failure, Outcome, RouterKind};
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};
use crate::stats::Summary;
use thalweg_text::Table;
use thalweg_text::units::{Unit, count};

fn ms(value: f64) -> String {
    Unit::Nanoseconds.format(value * 1e6)
}

fn packets(value: f64) -> String {
    format!("{value:.0}")
}

fn range(summary: &Summary, form: fn(f64) -> String) -> String {
    format!("{} to {}", form(summary.min), form(summary.max))
}

/// All failures, for every router.
pub fn table(outcome: &Outcome) -> Table {
    let caption = format!(
        "Failover with {} prefixes, {} datagrams/s: median of {} rounds",
        count(outcome.prefixes.into()),
        count(outcome.rate.into()),
        outcome.runs
    );
    let back =
        |cell: &FailoverResult| cell.lost_back.map_or_else(|| "–".to_owned(), |lost| packets(lost.median));
    Table::of(caption, &outcome.cells)
        .words("router", |cell| cell.router.name().to_owned())
        .words("failure", |cell| cell.failure.name().to_owned())
        .number("gap", |cell| ms(cell.gap_ms.median))
        .number("range", |cell| range(&cell.gap_ms, ms))
        .number("lost", |cell| packets(cell.lost.median))
        .number("lost range", |cell| range(&cell.lost, packets))
        .number("lost coming back", back)
        .number("connections lost", |cell| {
            let lost = |lost: Summary| format!("{} of {}", packets(lost.median), outcome.connections);
            cell.connections_lost.map_or_else(|| "–".to_owned(), lost)
        })
        .number("gap without a failure", |cell| ms(cell.quiet_ms.median))
        .table()
}

fn chart(outcome: &Outcome, title: &str, axis: Axis, value: fn(&FailoverResult) -> Summary) -> BarChart {
    let bar = |cell: &FailoverResult| {
        (cell.failure.name().to_owned(), cell.router.name().to_owned(), Bar::of(&value(cell)))
    };
    let routers = RouterKind::ALL.iter().map(|router| router.name().to_owned()).collect();
    BarChart::of(title, axis, routers, outcome.cells.iter().map(bar))
}

/// The findings: a link that goes down and a router that dies, with each router.
pub(super) fn lead(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (failure, what) in [
        (Failure::Link, "The link to one of two transits goes down"),
        (Failure::Router, "The first of two routers dies"),
    ] {
        let cells = outcome.cells.iter().filter(|cell| cell.failure == failure);
        let said: Vec<String> = cells
            .map(|cell| {
                format!("{} {}, {} lost", cell.router, ms(cell.gap_ms.median), packets(cell.lost.median))
            })
            .collect();
        if !said.is_empty() {
            text += &format!("{what}: {}. ", said.join("; "));
        }
    }
    if text.is_empty() { "Measured as asked for.".to_owned() } else { text.trim_end().to_owned() }
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Failover", lead(outcome), origin);
    let gap = Axis::new("longest gap", Unit::Nanoseconds, Scale::Log);
    report.plot(
        chart(outcome, "Gap by failure", gap, |cell| cell.gap_ms.scaled(1e6)).svg(),
        "Of the destination that waited longest. Shorter is better.",
    );
    report.table(table(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    report.notes([
        "A gap reaches from a destination's last packet before the failure to its first one behind it. Without a failure \
         there are gaps too: those of the stream, and of a machine on which everything shares a few cores.",
        "Our process forwards itself, and nobody does between two of them. A kernel forwards without its daemon; but BIRD, \
         started again without graceful restart, takes its predecessor's routes out until it has learned them anew.",
        "kernel-group has half of the flows by each transit, and only those of the dead one wait.",
        "Routers of a pair advertise every 0.1 s, so the second one takes over after 0.3 to 0.4 s.",
        "Pairs with state translate and filter. A connection is lost if, after the first router's death, its far end \
         speaks and is not heard, or the client is not.",
        "A gateway that falls silent is noticed by a health check (thalweg-check), the BGP hold time (9 s), or ARP.",
    ]);
    report
}
