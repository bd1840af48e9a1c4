//! The plots.

use super::{scenarios, who};
use crate::figures::percent;
use crate::forwarding::experiment::{ApplicationResult, CellResult, LatencyResult, Outcome};
use crate::forwarding::ports::PortsResult;
use crate::forwarding::subject::Label;
use crate::plot::{Axis, Bar, BarChart, LineChart, Point, Scale, Series};
use crate::stats::{Summary, distinct};
use thalweg_text::units::Unit;

/// Plots with a caption each; those without data are not there.
pub(super) fn plots(outcome: &Outcome) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    let routers = routers(outcome);
    let Some(first) = scenarios(outcome).first().copied() else {
        applications(outcome, &mut plots);
        several_ports(outcome, &mut plots);
        return plots;
    };
    let here: Vec<&CellResult> = outcome.cells.iter().filter(|cell| cell.scenario == first).collect();
    let share =
        |cell: &CellResult| Some((cell.ceiling_share, range(&cell.packets_per_second, cell.ceiling_share)));
    plots.push((
        by_frame(
            format!("Share of the ceiling by frame size, {first}"),
            "of the ceiling",
            &here,
            &routers,
            share,
        )
        .svg(),
        "Throughput over what the generator alone sends at that frame size. Ranges: slowest and fastest run."
            .to_owned(),
    ));
    if here.iter().any(|cell| cell.native_ratio.is_some()) && routers.len() > 1 {
        let ratio = |cell: &CellResult| cell.native_ratio.map(|r| (r, range(&cell.packets_per_second, r)));
        plots.push((
            by_frame(
                format!("Times the native router by frame size, {first}"),
                "times native",
                &here,
                &routers,
                ratio,
            )
            .svg(),
            "Median throughput over that of the kernel's own forwarding in the same run.".to_owned(),
        ));
    }
    plots.push((
        smallest(
            outcome,
            &routers,
            "Throughput with the smallest frame",
            Axis::new("frames per second", Unit::Count, Scale::Linear),
            |cell| Some(&cell.packets_per_second),
        )
        .svg(),
        "Median throughput by scenario. Ranges: slowest and fastest run.".to_owned(),
    ));
    if outcome.cells.iter().any(|cell| cell.cost.is_some()) {
        plots.push((
            smallest(
                outcome,
                &routers,
                "Added processor time per frame",
                Axis::new("added", Unit::Nanoseconds, Scale::Linear),
                |cell| cell.cost.as_ref().map(|cost| &cost.added_ns_per_packet),
            )
            .svg(),
            "Processor time of the whole path less that of the generator alone, at 90 % of throughput. Shorter is better."
                .to_owned(),
        ));
    }
    let frame = here.iter().map(|cell| cell.frame_bytes).min();
    let smallest: Vec<&CellResult> = here.iter().copied().filter(|c| Some(c.frame_bytes) == frame).collect();
    latency(&smallest, first, &mut plots);
    loss(&smallest, first, &routers, &mut plots);
    applications(outcome, &mut plots);
    several_ports(outcome, &mut plots);
    plots
}

/// As the white paper's figures 5 to 7, for each number of ports.
fn several_ports(outcome: &Outcome, plots: &mut Vec<(String, String)>) {
    let name = |result: &PortsResult| result.label.as_ref().map(Label::to_string);
    let routers = distinct(outcome.ports.iter().filter_map(name));
    for ports in distinct(outcome.ports.iter().map(|result| result.ports)) {
        let here = outcome.ports.iter().filter(|result| result.ports == ports);
        let bars = here.filter_map(|result| {
            let range = range(&result.packets_per_second, result.share_of_1g);
            let bar = Bar { range, ..Bar::at(result.share_of_1g) };
            Some((format!("{} bytes", result.frame_bytes), name(result)?, bar))
        });
        let title = format!("Share of {ports} ports of 1 Gbit/s by frame size, both directions");
        let axis = Axis::new("of line rate", Unit::Plain, Scale::Linear);
        plots.push((
            BarChart::of(title, axis, routers.clone(), bars).svg(),
            "Throughput of all ports over what as many ports of 1 Gbit/s carry: arithmetic, as virtual links have no \
             rate."
                .to_owned(),
        ));
    }
}

/// Names of all routers; the place of one is its color in every plot.
fn routers(outcome: &Outcome) -> Vec<String> {
    distinct(outcome.cells.iter().map(|cell| cell.label.to_string()))
}

/// The range of a summary, scaled as its median was to `value`.
fn range(summary: &Summary, value: f64) -> Option<(f64, f64)> {
    let factor = value / summary.median;
    factor.is_finite().then_some((summary.min * factor, summary.max * factor))
}

type Value = Option<(f64, Option<(f64, f64)>)>;

/// Bars by router, count by frame size.
fn by_frame(
    title: String,
    axis: &str,
    cells: &[&CellResult],
    routers: &[String],
    value: impl Fn(&CellResult) -> Value,
) -> BarChart {
    let mut cells = cells.to_vec();
    cells.sort_by_key(|cell| cell.frame_bytes);
    let bars = cells.into_iter().filter_map(|cell| {
        let (value, range) = value(cell)?;
        let bar = Bar { range, ..Bar::at(value) };
        Some((format!("{} bytes", cell.frame_bytes), cell.label.to_string(), bar))
    });
    BarChart::of(title, Axis::new(axis, Unit::Plain, Scale::Linear), routers.to_vec(), bars)
}

/// Bars by router with the smallest frame, count by scenario.
fn smallest(
    outcome: &Outcome,
    routers: &[String],
    title: &str,
    axis: Axis,
    value: impl Fn(&CellResult) -> Option<&Summary>,
) -> BarChart {
    let is_smallest = |cell: &&CellResult| {
        let same = outcome.cells.iter().filter(|other| other.scenario == cell.scenario);
        same.map(|other| other.frame_bytes).min() == Some(cell.frame_bytes)
    };
    let mut cells: Vec<&CellResult> = outcome.cells.iter().filter(is_smallest).collect();
    cells.sort_by_key(|cell| scenarios(outcome).iter().position(|scenario| *scenario == cell.scenario));
    let bars = cells
        .into_iter()
        .filter_map(|cell| Some((cell.scenario.clone(), cell.label.to_string(), Bar::of(value(cell)?))));
    BarChart::of(title, axis, routers.to_vec(), bars)
}

fn latency(cells: &[&CellResult], scenario: &str, plots: &mut Vec<(String, String)>) {
    let Some(most) = cells.iter().max_by_key(|cell| cell.latency.len()).filter(|c| !c.latency.is_empty())
    else {
        return;
    };
    let load = |at: &LatencyResult| format!("{} of throughput", percent(at.share_of_throughput));
    let bars = cells.iter().flat_map(|cell| {
        cell.latency.iter().map(|at| {
            let range = Some((at.p50_range_ns.0 as f64, at.p50_range_ns.1 as f64));
            let bar = Bar { range, ..Bar::at(at.percentiles.p50_ns as f64) };
            (cell.label.to_string(), load(at), bar.marked(Some(at.percentiles.p99_ns as f64)))
        })
    });
    let title = format!("Latency by load: median and 99th percentile, {scenario}");
    let axis = Axis::new("latency", Unit::Nanoseconds, Scale::Log);
    let chart = BarChart::of(title, axis, most.latency.iter().map(load).collect(), bars);
    plots.push((
        BarChart { ordered: true, ..chart.marked("99th percentile") }.svg(),
        "With the smallest frame; each router at shares of its own throughput. The tester's calls and links are included."
            .to_owned(),
    ));
}

fn loss(cells: &[&CellResult], scenario: &str, routers: &[String], plots: &mut Vec<(String, String)>) {
    let points = cells.iter().flat_map(|cell| {
        let points = cell.loss_curve.iter();
        points.map(|point| (cell.label.to_string(), Point::at(point.intended_pps, point.loss * 100.0)))
    });
    let series = Series::each(routers, points);
    if series.is_empty() {
        return;
    }
    let chart = LineChart {
        title: format!("Frame loss rate, {scenario}"),
        x: Axis::new("intended frames per second", Unit::Count, Scale::Linear),
        y: Axis::new("per cent lost", Unit::Plain, Scale::Linear),
        series,
    };
    plots.push((
        chart.svg(),
        "With the smallest frame. What could not be sent in time is lost as well.".to_owned(),
    ));
}

fn applications(outcome: &Outcome, plots: &mut Vec<(String, String)>) {
    let results: Vec<&ApplicationResult> = outcome.applications.iter().filter(|result| !result.nat).collect();
    let name = |result: &ApplicationResult| format!("{}, MTU {}", who(result.label.as_ref()), result.mtu);
    let chart = |title: &str, y: Axis, value: &dyn Fn(&ApplicationResult) -> Option<Summary>| {
        let points = results.iter().filter_map(|result| {
            Some((name(result), Point::of(result.message_bytes as f64, &value(result)?, 1.0)))
        });
        LineChart {
            title: title.to_owned(),
            x: Axis::at_data("bytes of a message", Unit::Plain, Scale::Log),
            y,
            series: Series::each(distinct(results.iter().map(|result| name(result))), points),
        }
    };
    let charts = [
        chart(
            "Half of the round-trip time of a program",
            Axis::new("half round trip", Unit::Nanoseconds, Scale::Log),
            &|result| Some(result.half_round_trip_p50_ns),
        ),
        chart(
            "What a router adds to half of the round-trip time",
            Axis::new("added over the direct link", Unit::Nanoseconds, Scale::Linear),
            &|result| result.added_ns,
        ),
        chart("Throughput of a program", Axis::new("bytes per second", Unit::Bytes, Scale::Log), &|result| {
            Some(result.bytes_per_second)
        }),
    ];
    for chart in charts.into_iter().filter(|chart| !chart.series.is_empty()) {
        plots.push((
            chart.svg(),
            "Over TCP, one connection, segments no longer than a frame. Median of the runs; error bars: all runs."
                .to_owned(),
        ));
    }
}
