//! The experiment on bulk TCP as a table, charts and a report.

use super::{BulkResult, Load, Outcome};
use crate::forwarding::latency::Percentiles;
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};
use crate::stats::Summary;
use thalweg_text::Table;
use thalweg_text::units::Unit;

fn gbit(bits: f64) -> String {
    format!("{:.1}", bits / 1e9)
}

fn ns(value: f64) -> String {
    Unit::Nanoseconds.format(value)
}

/// All loads, for every router.
pub fn table(outcome: &Outcome) -> Table {
    let caption = format!(
        "Bulk TCP {}, Gbit/s of payload, with pings beside it: {} s, median of {} rounds",
        if outcome.nat { "through NAT" } else { "without NAT" },
        outcome.trial_s,
        outcome.runs
    );
    let dash = || "–".to_owned();
    let ping = |cell: &BulkResult, value: fn(&Percentiles) -> u64| {
        cell.ping.as_ref().map_or_else(dash, |ping| ns(value(ping) as f64))
    };
    let range = |bits: &Summary| format!("{} to {}", gbit(bits.min), gbit(bits.max));
    let p99_range = |p99: Summary| format!("{} to {}", ns(p99.min), ns(p99.max));
    Table::of(caption, &outcome.cells)
        .words("router", |cell| cell.label.to_string())
        .words("load", |cell| cell.load.name().to_owned())
        .number("Gbit/s", |cell| gbit(cell.bits_per_second.median))
        .number("range", |cell| range(&cell.bits_per_second))
        .number("of the kernel's", |cell| cell.native_ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")))
        .number("ping p50", |cell| ping(cell, |l| l.p50_ns))
        .number("p99", |cell| ping(cell, |l| l.p99_ns))
        .number("p99 range", |cell| cell.ping_p99_ns.map_or_else(dash, p99_range))
        .table()
}

fn chart(
    outcome: &Outcome,
    title: &str,
    axis: Axis,
    value: impl Fn(&BulkResult) -> Option<Summary>,
) -> BarChart {
    let bar = |cell: &BulkResult| {
        let summary = value(cell)?;
        Some((cell.label.to_string(), cell.load.name().to_owned(), Bar::of(&summary)))
    };
    let loads = Load::ALL.iter().map(|load| load.name().to_owned()).collect();
    BarChart::of(title, axis, loads, outcome.cells.iter().filter_map(bar))
}

/// The findings: one connection up with each router.
fn lead(outcome: &Outcome) -> String {
    let up = outcome.cells.iter().filter(|cell| cell.load == Load::Up);
    let said: Vec<String> =
        up.map(|cell| format!("{} {} Gbit/s", cell.label, gbit(cell.bits_per_second.median))).collect();
    let left_out = match outcome.left_out.as_slice() {
        [] => String::new(),
        left_out => format!(" Left out: {}.", left_out.join("; ")),
    };
    format!("One TCP connection from inside to outside: {}.{left_out}", said.join("; "))
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Bulk TCP", lead(outcome), origin);
    let rate = Axis::new("payload, bit/s", Unit::Count, Scale::Linear);
    report.plot(
        chart(outcome, "Throughput by load", rate, |cell| Some(cell.bits_per_second)).svg(),
        "Longer is better.",
    );
    let latency = Axis::new("round trip, 99th percentile", Unit::Nanoseconds, Scale::Log);
    report.plot(
        chart(outcome, "Pings beside the load", latency, |cell| cell.ping_p99_ns).svg(),
        "From tester-a to tester-b and back. Shorter is better.",
    );
    report.table(table(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    report.notes([
        "The testers are hosts whose kernels hand over merged segments of up to 64 KiB, and take them. \"Single frames\" is \
         the kernel between hosts that do not: what is left if frames are cut.",
        "Senders, receivers, kernel and router share the machine's cores, so a router that needs less leaves more to the \
         others.",
        "Pings wait where packets wait: in receiving rings, in queues, and for a core.",
    ]);
    report
}
