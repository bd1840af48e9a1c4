//! Draws traffic over time as SVG.

use thalweg_lab::plot::{Axis, LineChart, Point, Scale, Series, SeriesKind, standalone};
use thalweg_store::query::{Graph, Metric};
use thalweg_text::calendar::{Moment, SECOND_NS, format_time};
use thalweg_text::units::Unit;

use super::{rate_of, title};

/// The approximate maximum of ticks on a time axis.
const TICKS_MAX: u64 = 12;
/// Readable tick distances in seconds. Longer ones are whole weeks.
const TICK_LENGTHS_S: [u64; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400];
const DAY_S: u64 = 86_400;
const WEEK_S: u64 = 604_800;

/// The graph as a separate file. A step that is only partly covered by records is left out: it would look
/// like a dip.
pub(super) fn svg(answer: &Graph, by: Metric) -> String {
    let (rate, factor) = rate_of(by);
    let step_s = answer.step_ns as f64 / SECOND_NS as f64;
    let steps: Vec<(u64, bool)> = answer.steps().collect();
    let is_whole = |step: &(u64, bool)| step.1;
    // If no step is complete, all are shown.
    let shows_all = !steps.iter().any(is_whole);
    let series = answer.series.iter().enumerate().map(|(place, series)| {
        let shown = steps.iter().zip(&series.steps).filter(|(step, _)| shows_all || is_whole(step));
        let point = |((from_ns, _), sums): (&(u64, bool), &thalweg_store::query::Sums)| Point {
            x: seconds(*from_ns),
            y: sums.of(by) as f64 * factor / step_s,
            range: None,
        };
        Series {
            name: title(series),
            kind: if series.key.is_some() { SeriesKind::Measured(place) } else { SeriesKind::Reference },
            points: shown.map(point).collect(),
        }
    });
    let first_ns = steps.first().map_or(answer.from_ns, |step| step.0);
    let last_ns = steps.last().map_or(answer.from_ns, |step| step.0);
    let left_out = match steps.iter().filter(|step| !is_whole(step)).count() {
        0 => "",
        _ if shows_all => "; incomplete",
        1 => "; 1 incomplete step is left out",
        _ => "; 2 incomplete steps are left out",
    };
    let chart = LineChart {
        title: format!(
            "Traffic from {} to {}, steps of {step_s} s{left_out}",
            whole_seconds(first_ns),
            whole_seconds(last_ns.saturating_add(answer.step_ns))
        ),
        x: Axis::of_times("time (UTC) at which a step begins", ticks(first_ns, last_ns), place_name),
        y: Axis::new(rate, Unit::Count, Scale::Linear),
        series: series.collect(),
    };
    standalone(&chart.svg())
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / SECOND_NS as f64
}

fn whole_seconds(time_ns: u64) -> String {
    format_time(time_ns / SECOND_NS * SECOND_NS)
}

/// The label of a tick.
fn place_name(seconds: f64) -> String {
    // Times are positive, and far below the limit of 64 bits.
    format_time((seconds.max(0.0) * 1e3).round() as u64 * (SECOND_NS / 1000))
}

/// Round times of this span, each with the distinguishing part of its label: the time of day, or the date.
fn ticks(first_ns: u64, last_ns: u64) -> Vec<(f64, String)> {
    let (first_s, last_s) = (first_ns / SECOND_NS, last_ns / SECOND_NS);
    let wanted = (last_s.saturating_sub(first_s) / TICKS_MAX).max(1);
    let fitting = TICK_LENGTHS_S.into_iter().find(|length| *length >= wanted);
    let length = fitting.unwrap_or_else(|| wanted.div_ceil(WEEK_S) * WEEK_S);
    let mut ticks = Vec::new();
    let mut at = first_s.div_ceil(length).saturating_mul(length);
    while at <= last_s && ticks.len() as u64 <= 2 * TICKS_MAX {
        ticks.push((at as f64, label(at, length)));
        at = at.saturating_add(length);
    }
    ticks
}

fn label(at_s: u64, length_s: u64) -> String {
    let m = Moment::of(at_s.saturating_mul(SECOND_NS));
    match length_s {
        _ if at_s.is_multiple_of(DAY_S) => format!("{:04}-{:02}-{:02}", m.year, m.month, m.day),
        ..60 => format!("{:02}:{:02}:{:02}", m.hour, m.minute, m.second),
        _ => format!("{:02}:{:02}", m.hour, m.minute),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_store::query::Sums;

    /// 2026-11-22T05:00:00Z.
    const START_NS: u64 = 1_795_323_600 * SECOND_NS;

    fn labels(from_s: u64, to_s: u64) -> Vec<String> {
        let at = |seconds| START_NS + seconds * SECOND_NS;
        ticks(at(from_s), at(to_s)).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_times_of_day_and_dates() {
        assert_eq!(
            labels(0, 40),
            [
                "05:00:00", "05:00:05", "05:00:10", "05:00:15", "05:00:20", "05:00:25", "05:00:30",
                "05:00:35", "05:00:40"
            ]
        );
        assert_eq!(
            labels(130, 3_600),
            [
                "05:05", "05:10", "05:15", "05:20", "05:25", "05:30", "05:35", "05:40", "05:45", "05:50",
                "05:55", "06:00"
            ]
        );
        assert_eq!(
            labels(0, 24 * 3_600),
            [
                "06:00",
                "08:00",
                "10:00",
                "12:00",
                "14:00",
                "16:00",
                "18:00",
                "20:00",
                "22:00",
                "2026-11-23",
                "02:00",
                "04:00"
            ]
        );
        let days = labels(0, 7 * DAY_S);
        assert_eq!((days.len(), days.first().map(String::as_str)), (7, Some("2026-11-23")));
    }

    #[test]
    fn marks_stand_at_their_times_and_parts_of_steps_are_left_out() {
        let steps = |bytes: [u64; 4]| bytes.map(|bytes| Sums { packets: 1, bytes, flows: 1 }).to_vec();
        let series = [[1, 1000, 1000, 1], [1, 500, 500, 1]];
        let series = series.map(|bytes| thalweg_store::query::Series {
            key: Some(vec![thalweg_store::query::KeyValue::Number(bytes[1] as u32)]),
            total: Sums::default(),
            steps: steps(bytes),
        });
        let graph = Graph {
            from_ns: START_NS,
            step_ns: 60 * SECOND_NS,
            covered: (START_NS + 50 * SECOND_NS, START_NS + 190 * SECOND_NS),
            series: series.to_vec(),
            ..Graph::default()
        };
        let svg = svg(&graph, Metric::Bytes);
        assert!(svg.contains("2 incomplete steps are left out"), "{svg}");
        assert!(svg.contains("05:01") && svg.contains("time (UTC)") && !svg.contains("since then"), "{svg}");
        assert!(svg.contains("at 2026-11-22T05:01:00Z: 133") && !svg.contains("05:00:00Z: 0"), "{svg}");
        // Both series have their marks at the same places.
        let places = |class: &str| {
            let begin = format!("class=\"curve {class}\" points=\"");
            let points = svg.split(&begin).nth(1).and_then(|rest| rest.split('"').next()).expect("a curve");
            points.split(' ').filter_map(|point| point.split(',').next()).collect::<Vec<_>>()
        };
        assert_eq!(places("s0"), places("s1"), "{svg}");
        assert_eq!(places("s0").len(), 2);
    }
}
