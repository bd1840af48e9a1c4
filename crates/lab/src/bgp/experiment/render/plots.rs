//! The experiment's plots, each with a sentence on how to read it.

use super::super::{CellResult, Outcome, Part, SERIAL};
use super::tables::function_names;
use crate::bgp::schedulings::FOUR_TIMES;
use crate::claims;
use crate::plot::{Axis, Bar, BarChart, LineChart, Point, Scale, Series, SeriesKind};
use crate::stats::distinct;
use thalweg_text::units::Unit;

const RANGE: &str = "Error bars: fastest and slowest run.";

/// Schedulings in the order of their first run; the index of one is its color in every plot.
fn schedulings(outcome: &Outcome) -> Vec<&str> {
    distinct(outcome.cells.iter().map(|cell| cell.cell.scheduling.as_str()))
}

fn names(outcome: &Outcome) -> Vec<String> {
    schedulings(outcome).into_iter().map(str::to_owned).collect()
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
        let one_each = cells().filter(|c| c.cell.threads_per_core.is_none_or(|threads| threads == 1));
        let one_each = one_each.map(|c| (c.cell.scheduling.clone(), point(c.cell.cores, c)));
        let mut by_cores = Series::each(names(outcome), one_each);
        let most = |c: &CellResult| {
            let same = cells().filter(|other| other.cell.scheduling == c.cell.scheduling);
            same.map(|other| other.cell.cores).max()
        };
        let on_all = cells().filter(|c| most(c) == Some(c.cell.cores));
        let by_threads =
            on_all.filter_map(|c| Some((c.cell.scheduling.clone(), point(c.cell.threads_per_core?, c))));
        let mut by_threads = Series::each(names(outcome), by_threads);
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
    let bars = outcome
        .of(part)
        .map(|c| (c.cell.load.clone(), c.cell.scheduling.clone(), Bar::of(&c.elapsed_s.scaled(1e9))));
    let axis = Axis::new("time until all was dealt with", Unit::Nanoseconds, Scale::Linear);
    BarChart::of(part.name(), axis, names(outcome), bars)
}

fn by_function(outcome: &Outcome, part: Part) -> BarChart {
    let cells: Vec<&CellResult> = outcome.of(part).collect();
    let functions = function_names(&cells);
    let bars = functions.iter().flat_map(|(key, name)| {
        cells.iter().filter_map(move |c| {
            Some(((*name).to_owned(), c.cell.scheduling.clone(), Bar::of(c.functions_ns.get(*key)?)))
        })
    });
    let axis = Axis::new("processor time per UPDATE", Unit::Nanoseconds, Scale::Linear);
    BarChart::of(part.name(), axis, names(outcome), bars)
}

/// A plot along the trace for each table.
fn along(outcome: &Outcome) -> Vec<(String, String)> {
    let loads = distinct(outcome.of(Part::Blocks).map(|cell| cell.cell.load.as_str()));
    let plot = |load: &str| {
        let points = outcome.of(Part::Blocks).filter(|c| c.cell.load == load).flat_map(|cell| {
            let blocks = cell.blocks.iter().flat_map(|blocks| blocks.median_s.iter().enumerate());
            blocks.map(|(at, s)| {
                (cell.cell.scheduling.clone(), Point::at((at * outcome.block_updates) as f64, s * 1e9))
            })
        });
        LineChart {
            title: format!("Time of {} UPDATEs along the trace, {load}", outcome.block_updates),
            x: Axis::new("UPDATEs so far", Unit::Count, Scale::Linear),
            y: Axis::new("time of a block", Unit::Nanoseconds, Scale::Linear),
            series: Series::each(names(outcome), points),
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
        let points = curve.points.iter();
        let points = points.map(|point| Point::at(point.bank_bytes as f64, point.misses_per_update));
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
    let bars = outcome.receive.iter();
    let bars = bars.map(|row| (row.load.clone(), row.strategy.to_string(), Bar::of(&row.cpu_ns)));
    let axis = Axis::new("CPU per message", Unit::Nanoseconds, Scale::Linear);
    BarChart::of("Receiving a message", axis, Vec::new(), bars)
}
