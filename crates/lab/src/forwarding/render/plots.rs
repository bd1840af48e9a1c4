//! The plots.

use super::{scenarios, who};
use crate::forwarding::experiment::{ApplicationResult, CellResult, Outcome};
use crate::forwarding::ports::PortsResult;
use crate::forwarding::subject::Label;
use crate::plot::{Axis, Bar, BarChart, BarGroup, LineChart, Point, Scale, Series};
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
            "frames per second",
            Unit::Count,
            |cell| Some(&cell.packets_per_second),
        )
        .svg(),
        "Median throughput by scenario. Ranges: slowest and fastest run.".to_owned(),
    ));
    if outcome.cells.iter().any(|cell| cell.cost.is_some()) {
        plots.push((
            smallest(outcome, &routers, "Added processor time per frame", "added", Unit::Nanoseconds, |cell| {
                cell.cost.as_ref().map(|cost| &cost.added_ns_per_packet)
            })
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
        let here = || outcome.ports.iter().filter(move |result| result.ports == ports);
        let group = |frame_bytes: usize| {
            let bar = |result: &PortsResult| {
                let series = routers.iter().position(|router| name(result).as_ref() == Some(router))?;
                let value = result.share_of_1g;
                Some(Bar { series, value, range: range(&result.packets_per_second, value), mark: None })
            };
            let of_size = here().filter(|result| result.frame_bytes == frame_bytes);
            BarGroup { label: format!("{frame_bytes} bytes"), bars: of_size.filter_map(bar).collect() }
        };
        let groups = distinct(here().map(|result| result.frame_bytes)).into_iter().map(group).collect();
        let title = format!("Share of {ports} ports of 1 Gbit/s by frame size, both directions");
        let chart = BarChart::new(
            title,
            Axis::new("of line rate", Unit::Plain, Scale::Linear),
            routers.clone(),
            groups,
        );
        plots.push((
            chart.svg(),
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

fn color(routers: &[String], cell: &CellResult) -> usize {
    let name = cell.label.to_string();
    routers.iter().position(|router| *router == name).unwrap_or(0)
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
    let mut sizes: Vec<usize> = cells.iter().map(|cell| cell.frame_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let group = |size: usize| {
        let here = cells.iter().filter(|cell| cell.frame_bytes == size);
        let mut bars: Vec<Bar> = here
            .filter_map(|cell| {
                let (value, range) = value(cell)?;
                Some(Bar { series: color(routers, cell), value, range, mark: None })
            })
            .collect();
        bars.sort_by_key(|bar| bar.series);
        BarGroup { label: format!("{size} bytes"), bars }
    };
    let groups = sizes.into_iter().map(group).collect();
    BarChart::new(title, Axis::new(axis, Unit::Plain, Scale::Linear), routers.to_vec(), groups)
}

/// Bars by router with the smallest frame, count by scenario.
fn smallest(
    outcome: &Outcome,
    routers: &[String],
    title: &str,
    axis: &str,
    unit: Unit,
    value: impl Fn(&CellResult) -> Option<&Summary>,
) -> BarChart {
    let group = |scenario: &str| {
        let here = || outcome.cells.iter().filter(|cell| cell.scenario == scenario);
        let frame = here().map(|cell| cell.frame_bytes).min();
        let mut bars: Vec<Bar> = here()
            .filter(|cell| Some(cell.frame_bytes) == frame)
            .filter_map(|cell| Some(Bar::of(color(routers, cell), value(cell)?)))
            .collect();
        bars.sort_by_key(|bar| bar.series);
        BarGroup { label: scenario.to_owned(), bars }
    };
    let groups = scenarios(outcome).into_iter().map(group).collect();
    BarChart::new(title, Axis::new(axis, unit, Scale::Linear), routers.to_vec(), groups)
}

fn latency(cells: &[&CellResult], scenario: &str, plots: &mut Vec<(String, String)>) {
    let Some(most) = cells.iter().max_by_key(|cell| cell.latency.len()).filter(|c| !c.latency.is_empty())
    else {
        return;
    };
    let shares: Vec<f64> = most.latency.iter().map(|at| at.share_of_throughput).collect();
    let group = |cell: &&CellResult| {
        let bars = cell.latency.iter().map(|at| Bar {
            series: shares.iter().position(|share| *share == at.share_of_throughput).unwrap_or(0),
            value: at.percentiles.p50_ns as f64,
            range: Some((at.p50_range_ns.0 as f64, at.p50_range_ns.1 as f64)),
            mark: Some(at.percentiles.p99_ns as f64),
        });
        BarGroup { label: cell.label.to_string(), bars: bars.collect() }
    };
    let chart = BarChart {
        title: format!("Latency by load: median and 99th percentile, {scenario}"),
        values: Axis::new("latency", Unit::Nanoseconds, Scale::Log),
        groups: cells.iter().map(group).collect(),
        series: shares.iter().map(|share| format!("{} of throughput", super::percent(*share))).collect(),
        ordered: true,
        mark_name: Some("99th percentile".to_owned()),
    };
    plots.push((
        chart.svg(),
        "With the smallest frame; each router at shares of its own throughput. The tester's calls and links are included."
            .to_owned(),
    ));
}

fn loss(cells: &[&CellResult], scenario: &str, routers: &[String], plots: &mut Vec<(String, String)>) {
    let series: Vec<Series> = cells
        .iter()
        .filter(|cell| !cell.loss_curve.is_empty())
        .map(|cell| {
            let points =
                cell.loss_curve.iter().map(|p| Point { x: p.intended_pps, y: p.loss * 100.0, range: None });
            Series::measured(cell.label.to_string(), color(routers, cell), points)
        })
        .collect();
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
    if results.is_empty() {
        return;
    }
    let name = |result: &ApplicationResult| format!("{}, MTU {}", who(result.label.as_ref()), result.mtu);
    let names = distinct(results.iter().map(|result| name(result)));
    let series = |value: &dyn Fn(&ApplicationResult) -> Option<Summary>| -> Vec<Series> {
        let of_name = |(at, wanted): (usize, &String)| {
            let here = results.iter().filter(|result| name(result) == *wanted);
            let point = |result: &&ApplicationResult| {
                Some(Point::of(result.message_bytes as f64, &value(result)?, 1.0))
            };
            Series::measured(wanted.as_str(), at, here.filter_map(point))
        };
        names.iter().enumerate().map(of_name).filter(|series| !series.points.is_empty()).collect()
    };
    let x = || Axis::at_data("bytes of a message", Unit::Plain, Scale::Log);
    let charts = [
        LineChart {
            title: "Half of the round-trip time of a program".to_owned(),
            x: x(),
            y: Axis::new("half round trip", Unit::Nanoseconds, Scale::Log),
            series: series(&|result| Some(result.half_round_trip_p50_ns)),
        },
        LineChart {
            title: "What a router adds to half of the round-trip time".to_owned(),
            x: x(),
            y: Axis::new("added over the direct link", Unit::Nanoseconds, Scale::Linear),
            series: series(&|result| result.added_ns),
        },
        LineChart {
            title: "Throughput of a program".to_owned(),
            x: x(),
            y: Axis::new("bytes per second", Unit::Bytes, Scale::Log),
            series: series(&|result| Some(result.bytes_per_second)),
        },
    ];
    for chart in charts.into_iter().filter(|chart| !chart.series.is_empty()) {
        plots.push((
            chart.svg(),
            "Over TCP, one connection, segments no longer than a frame. Median of the runs; error bars: all runs."
                .to_owned(),
        ));
    }
}
