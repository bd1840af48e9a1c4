//! A graph of traffic as SVG.

use thalweg_lab::plot::{Axis, LineChart, Point, Scale, Series, SeriesKind, standalone};
use thalweg_store::calendar::{SECOND_NS, format_time};
use thalweg_store::query::{Graph, Metric};
use thalweg_text::units::Unit;

use super::{rate_of, title};

/// Seconds in units of time, and from how many seconds on each is used.
const UNITS: [(&str, f64, f64); 4] = [
    ("days", 86_400.0, 172_800.0),
    ("hours", 3_600.0, 7_200.0),
    ("minutes", 60.0, 120.0),
    ("seconds", 1.0, 0.0),
];

/// The graph as a file of its own.
pub(super) fn svg(answer: &Graph, by: Metric) -> String {
    let (rate, factor) = rate_of(by);
    let step_s = answer.step_ns as f64 / SECOND_NS as f64;
    let steps = answer.series.iter().map(|series| series.steps.len()).max().unwrap_or(0);
    let span_s = step_s * steps as f64;
    let (unit, unit_s, _) = UNITS.into_iter().find(|(.., from)| span_s >= *from).unwrap_or(UNITS[3]);
    let series = answer.series.iter().enumerate().map(|(place, series)| Series {
        name: title(series),
        kind: if series.key.is_some() { SeriesKind::Measured(place) } else { SeriesKind::Reference },
        points: (0..)
            .zip(&series.steps)
            .map(|(step, sums): (u32, _)| Point {
                x: f64::from(step) * step_s / unit_s,
                y: sums.of(by) as f64 * factor / step_s,
                range: None,
            })
            .collect(),
    });
    let chart = LineChart {
        title: format!("Traffic from {}, steps of {step_s} s", format_time(answer.from_ns)),
        x: Axis::new(format!("{unit} since then (UTC)"), Unit::Plain, Scale::Linear),
        y: Axis::new(rate, Unit::Count, Scale::Linear),
        series: series.collect(),
    };
    standalone(&chart.svg())
}
