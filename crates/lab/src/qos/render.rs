//! The experiment on overload as a table, charts and a report.

use super::shaper::QueueTimes;
use super::{CLASSES, Outcome, QosResult};
use crate::figures::{ns, or_dash, range};
use crate::forwarding::latency::Percentiles;
use crate::plot::{Axis, Bar, BarChart, Scale};
use crate::report::{Origin, Report};
use thalweg_text::Table;
use thalweg_text::units::Unit;

fn mbit(bits: f64) -> String {
    format!("{:.1}", bits / 1e6)
}

/// Both classes, for every router.
pub fn table(outcome: &Outcome) -> Table {
    let caption = format!(
        "A port of {} Mbit/s offered {} times as much: latency end to end, wait in the queue by its own counters, {} s, \
         median of {} runs",
        mbit(outcome.rate_bits),
        outcome.overload,
        outcome.trial_s,
        outcome.runs
    );
    let latency = |cell: &QosResult, value: fn(&Percentiles) -> u64| {
        or_dash(cell.latency.as_ref().map(|latency| ns(value(latency) as f64)))
    };
    let wait = |cell: &QosResult, value: fn(&QueueTimes) -> f64| {
        or_dash(cell.sojourn.as_ref().map(|times| ns(value(times) * 1000.0)))
    };
    Table::of(caption, &outcome.cells)
        .words("router", |cell| cell.label.to_string())
        .words("class", |cell| cell.class.clone())
        .number("Mbit/s", |cell| mbit(cell.line_bits_per_second.median))
        .number("lost", |cell| format!("{:.1} %", cell.loss.median * 100.0))
        .number("p50", |cell| latency(cell, |l| l.p50_ns))
        .number("p99", |cell| latency(cell, |l| l.p99_ns))
        .number("p99 range", |cell| or_dash(cell.latency_p99_ns.map(|p99| range(&p99, ns))))
        .number("p99.9", |cell| latency(cell, |l| l.p999_ns))
        .number("wait p50", |cell| wait(cell, |t| t.p50_us))
        .number("p99", |cell| wait(cell, |t| t.p99_us))
        .number("p99.9", |cell| wait(cell, |t| t.p999_us))
        .table()
}

fn chart(outcome: &Outcome, title: &str, axis: Axis, value: impl Fn(&QosResult) -> Option<Bar>) -> BarChart {
    let bars = outcome.cells.iter();
    let bars = bars.filter_map(|cell| Some((cell.label.to_string(), cell.class.clone(), value(cell)?)));
    BarChart::of(title, axis, CLASSES.map(str::to_owned).to_vec(), bars)
}

/// The findings: voice and bulk with each router.
pub fn lead(outcome: &Outcome) -> String {
    let voice = outcome.cells.iter().filter(|cell| cell.class == CLASSES[0]);
    let said: Vec<String> = voice
        .filter_map(|cell| {
            let latency = cell.latency?;
            let wait = cell
                .sojourn
                .map_or(String::new(), |times| format!(" ({} in the queue)", ns(times.p99_us * 1e3)));
            Some(format!("{} {}{wait}", cell.label, ns(latency.p99_ns as f64)))
        })
        .collect();
    let left_out = match outcome.left_out.as_slice() {
        [] => String::new(),
        left_out => format!(" Left out: {}.", left_out.join("; ")),
    };
    format!(
        "99th percentile of voice under {} times overload of {} Mbit/s: {}. Voice leaves {} Mbit/s to bulk.{left_out}",
        outcome.overload,
        mbit(outcome.rate_bits),
        said.join("; "),
        mbit(outcome.rest_bits)
    )
}

/// The report.
pub fn report(outcome: &Outcome, origin: Origin) -> Report {
    let mut report = Report::new("Overload", lead(outcome), origin);
    let latency = Axis::new("latency, 99th percentile", Unit::Nanoseconds, Scale::Log);
    report.plot(
        chart(outcome, "Latency by class", latency, |cell| {
            Some(Bar::of(&cell.latency_p99_ns?).marked(Some(cell.latency?.p999_ns as f64)))
        })
        .marked("99.9th percentile")
        .svg(),
        "From the sender's call to the receiver's interface. Shorter is better.",
    );
    let line = Axis::new("bit/s on the line", Unit::Count, Scale::Linear);
    let shares =
        chart(outcome, "What came through, by class", line, |cell| Some(Bar::of(&cell.line_bits_per_second)));
    report.plot(shares.svg(), "Bulk should get what voice leaves of the port's rate.");
    report.table(table(outcome));
    report.left_out(&outcome.left_out);
    report.heading("How to read this");
    report.notes([
        "Latency runs from the sender's call to the receiver's interface, and holds the links, the router and what other \
         programs on this machine took from them. The wait in the queue is the router's own histogram, over all packets since its \
         start.",
        "Rates are those of the line: 24 bytes a frame are added to what the interface sees, by all routers.",
        "Neither stream slows down when packets are lost. With senders that do, bulk waits less.",
    ]);
    report
}
