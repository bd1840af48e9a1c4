//! The experiment's plots, each with a sentence on how to read it.

use super::super::{CellResult, Outcome, Part, SERIAL};
use super::tables::{function_names, heading};
use crate::bgp::schedulings::FOUR_TIMES;
use crate::claims;
use crate::plot::{Axis, Bar, BarChart, BarGroup, LineChart, Point, Scale, Series, SeriesKind};
use crate::stats::distinct;
use thalweg_text::units::Unit;

const RANGE: &str = "Error bars: fastest and slowest run.";

/// Schedulings in the order of their first run; the index of one is its color in every plot.
fn schedulings(outcome: &Outcome) -> Vec<&str> {
    distinct(outcome.cells.iter().map(|cell| cell.cell.scheduling.as_str()))
}

fn color(outcome: &Outcome, scheduling: &str) -> usize {
    schedulings(outcome).iter().position(|name| *name == scheduling).unwrap_or(0)
}

pub(super) fn plots(outcome: &Outcome, part: Part) -> Vec<(String, String)> {
    match part {
        Part::SpeedUp => speed_ups(outcome),
        Part::Functions | Part::OneCore => vec![(
            by_function(outcome, part).svg(),
            "Processor time per UPDATE in each function, threads added up.".to_owned(),
        )],
        Part::Mixes | Part::Ways | Part::Wu => {
            vec![(by_load(outcome, part).svg(), format!("Time until all was dealt with, median. {RANGE}"))]
        }
        Part::Blocks => along(outcome),
        Part::Ablations => Vec::new(),
        Part::Caches => vec![(
            by_cache_size(outcome).svg(),
            "Misses per UPDATE in caches of each size, by the model.".to_owned(),
        )],
        Part::Receive => vec![(
            by_strategy(outcome).svg(),
            "Processor time of the receiving thread per message. Error bars: smallest and largest run."
                .to_owned(),
        )],
    }
}

/// A plot over cores for each load, and one over threads per core.
fn speed_ups(outcome: &Outcome) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    for load in distinct(outcome.of(Part::SpeedUp).map(|cell| cell.cell.load.as_str())) {
        let cells = || outcome.of(Part::SpeedUp).filter(|c| c.cell.load == load);
        let Some(serial) = cells().find(|c| c.cell.scheduling == SERIAL) else { continue };
        let point = |x: usize, cell: &CellResult| {
            let times = |s: f64| serial.elapsed_s.median / s;
            let range = Some((times(cell.elapsed_s.max), times(cell.elapsed_s.min)));
            Point { x: x as f64, y: times(cell.elapsed_s.median), range }
        };
        let series = |scheduling: &str, points: Vec<Point>| {
            Series::measured(scheduling, color(outcome, scheduling), points)
        };
        let (mut by_cores, mut by_threads) = (Vec::new(), Vec::new());
        for scheduling in schedulings(outcome) {
            let of = || cells().filter(|c| c.cell.scheduling == scheduling);
            let one_each = of().filter(|c| c.cell.threads_per_core.is_none_or(|threads| threads == 1));
            by_cores.push(series(scheduling, one_each.map(|c| point(c.cell.cores, c)).collect()));
            let most = of().map(|c| c.cell.cores).max().unwrap_or(1);
            let on_all = of().filter(|c| c.cell.cores == most);
            let threads = on_all.filter_map(|c| Some(point(c.cell.threads_per_core?, c)));
            by_threads.push(series(scheduling, threads.collect()));
        }
        by_cores.push(Series::ideal(&by_cores));
        let published = claims::series("003/fig-4.3").iter();
        let published = published.filter_map(|(cores, values)| Some((cores.parse().ok()?, *values.first()?)));
        by_cores.push(Series::published("PBTS in the thesis (below the first, above the second)", published));
        plots.push((
            chart(format!("Speed-up by cores, {load}"), "cores", by_cores).svg(),
            format!("The median time of serial on one core over each cell's, one thread for each core (per-peer: one for each neighbor). {RANGE}"),
        ));
        by_threads.retain(|series: &Series| series.points.len() > 1);
        if !by_threads.is_empty() {
            plots.push((
                chart(format!("Speed-up by threads for each core, {load}"), "threads per core", by_threads)
                    .svg(),
                format!("The same on all cores. {RANGE}"),
            ));
        }
    }
    plots
}

fn chart(title: String, x: &str, series: Vec<Series>) -> LineChart {
    LineChart {
        title,
        x: Axis::at_data(x, Unit::Plain, Scale::Log),
        y: Axis::new("times serial", Unit::Plain, Scale::Linear),
        series,
    }
}

fn by_load(outcome: &Outcome, part: Part) -> BarChart {
    let loads = distinct(outcome.of(part).map(|cell| cell.cell.load.as_str()));
    let groups = loads.into_iter().map(|load| BarGroup {
        label: load.to_owned(),
        bars: outcome
            .of(part)
            .filter(|c| c.cell.load == load)
            .map(|c| Bar::of(color(outcome, &c.cell.scheduling), &c.elapsed_s.scaled(1e9)))
            .collect(),
    });
    let series = schedulings(outcome).iter().map(|n| (*n).to_owned()).collect();
    let axis = Axis::new("time until all was dealt with", Unit::Nanoseconds, Scale::Linear);
    BarChart::new(heading(part), axis, series, groups.collect())
}

fn by_function(outcome: &Outcome, part: Part) -> BarChart {
    let cells: Vec<&CellResult> = outcome.of(part).collect();
    let groups = function_names(&cells).into_iter().map(|(key, name)| BarGroup {
        label: name.to_owned(),
        bars: cells
            .iter()
            .filter_map(|c| Some(Bar::of(color(outcome, &c.cell.scheduling), c.functions_ns.get(key)?)))
            .collect(),
    });
    let series = schedulings(outcome).iter().map(|n| (*n).to_owned()).collect();
    let axis = Axis::new("processor time per UPDATE", Unit::Nanoseconds, Scale::Linear);
    BarChart::new(heading(part), axis, series, groups.collect())
}

/// A plot along the trace for each table.
fn along(outcome: &Outcome) -> Vec<(String, String)> {
    let loads = distinct(outcome.of(Part::Blocks).map(|cell| cell.cell.load.as_str()));
    let plot = |load: &str| {
        let series = outcome.of(Part::Blocks).filter(|c| c.cell.load == load).map(|cell| Series {
            name: cell.cell.scheduling.clone(),
            kind: SeriesKind::Measured(color(outcome, &cell.cell.scheduling)),
            points: cell
                .blocks
                .iter()
                .flat_map(|blocks| blocks.median_s.iter().enumerate())
                .map(|(at, s)| Point { x: (at * outcome.block_updates) as f64, y: s * 1e9, range: None })
                .collect(),
        });
        LineChart {
            title: format!("Time of {} UPDATEs along the trace, {load}", outcome.block_updates),
            x: Axis::new("UPDATEs so far", Unit::Count, Scale::Linear),
            y: Axis::new("time of a block", Unit::Nanoseconds, Scale::Linear),
            series: series.collect(),
        }
    };
    let caption = |load: &str| {
        let larger =
            if load == FOUR_TIMES { ", each neighbor announcing four times as many prefixes" } else { "" };
        format!("As the daemon's own clock has it, median of the runs{larger}.")
    };
    loads.into_iter().map(|load| (plot(load).svg(), caption(load))).collect()
}

fn by_cache_size(outcome: &Outcome) -> LineChart {
    let series = outcome.caches.iter().enumerate().map(|(color, curve)| {
        let points = curve.points.iter().map(|point| Point {
            x: point.bank_bytes as f64,
            y: point.misses_per_update,
            range: None,
        });
        let name = format!("{} ({} cores)", curve.scheduling, curve.cores);
        Series { name, kind: SeriesKind::Predicted(color), points: points.collect() }
    });
    LineChart {
        title: "Misses by the size of each core's cache".to_owned(),
        x: Axis::at_data("bytes of one core's cache", Unit::Bytes, Scale::Log),
        y: Axis::new("misses per UPDATE", Unit::Plain, Scale::Linear),
        series: series.collect(),
    }
}

fn by_strategy(outcome: &Outcome) -> BarChart {
    let loads = distinct(outcome.receive.iter().map(|row| row.load.as_str()));
    let names = distinct(outcome.receive.iter().map(|row| row.strategy.to_string()));
    let groups: Vec<BarGroup> = loads
        .into_iter()
        .map(|load| BarGroup {
            label: load.to_owned(),
            bars: outcome
                .receive
                .iter()
                .filter(|row| row.load == load)
                .map(|row| {
                    let series = names.iter().position(|n| *n == row.strategy.to_string()).unwrap_or(0);
                    Bar::of(series, &row.cpu_ns)
                })
                .collect(),
        })
        .collect();
    let axis = Axis::new("CPU per message", Unit::Nanoseconds, Scale::Linear);
    BarChart::new("Receiving a message", axis, names, groups)
}
