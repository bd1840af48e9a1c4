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

/// The graph as a separate file, with `below` as the other direction. A step that is only partly covered by records is
/// left out: it would look like a dip.
pub(super) fn svg(answer: &Graph, below: Option<&Graph>, by: Metric, stacked: bool) -> String {
    let (rate, factor) = rate_of(by);
    let step_s = answer.step_ns as f64 / SECOND_NS as f64;
    let steps: Vec<(u64, bool)> = answer.steps().collect();
    let is_whole = |step: &(u64, bool)| step.1;
    // If no step is complete, all are shown.
    let shows_all = !steps.iter().any(is_whole);
    let shown = steps.iter().enumerate().filter(|(_, step)| shows_all || is_whole(step));
    let shown: Vec<(usize, f64)> = shown.map(|(place, (from_ns, _))| (place, seconds(*from_ns))).collect();
    let curves = Curves { above: answer, shown, by, factor: factor / step_s, stacked };
    let mut series = curves.of(answer, 1.0);
    series.extend(below.into_iter().flat_map(|below| curves.of(below, -1.0)));
    let first_ns = steps.first().map_or(answer.from_ns, |step| step.0);
    let last_ns = steps.last().map_or(answer.from_ns, |step| step.0);
    let left_out = match steps.iter().filter(|step| !is_whole(step)).count() {
        0 => "",
        _ if shows_all => "; incomplete",
        1 => "; 1 incomplete step is left out",
        _ => "; 2 incomplete steps are left out",
    };
    let y = Axis::new(rate, Unit::Count, Scale::Linear);
    let chart = LineChart {
        title: format!(
            "Traffic from {} to {}, steps of {step_s} s{left_out}",
            whole_seconds(first_ns),
            whole_seconds(last_ns.saturating_add(answer.step_ns))
        ),
        x: Axis::of_times("time (UTC) at which a step begins", ticks(first_ns, last_ns), place_name),
        y: match below {
            Some(_) => Axis { label: format!("{rate}; below: the other direction"), mirrored: true, ..y },
            None => y,
        },
        series,
    };
    standalone(&chart.svg())
}

struct Curves<'a> {
    /// It decides about colors.
    above: &'a Graph,
    /// The steps to show, each with its time in seconds.
    shown: Vec<(usize, f64)>,
    by: Metric,
    /// From the sum of a step to a rate.
    factor: f64,
    stacked: bool,
}

impl Curves<'_> {
    /// The curves of a graph, or its areas from the axis outward; `sign` says on which side of it.
    fn of(&self, graph: &Graph, sign: f64) -> Vec<Series> {
        let mut heights = vec![0.0; self.shown.len()];
        let mut points = |of: &thalweg_store::query::Series| {
            let shown = self.shown.iter().zip(&mut heights);
            let point = |((place, x), height): (&(usize, f64), &mut f64)| {
                let sum = of.steps.get(*place).map_or(0, |sums| sums.of(self.by));
                let y = sign * sum as f64 * self.factor;
                let from = *height;
                *height += y;
                let edges = (from.min(*height), from.max(*height));
                Point { x: *x, y, range: self.stacked.then_some(edges) }
            };
            shown.map(point).collect()
        };
        let color = |of: &thalweg_store::query::Series| {
            let place = self.above.series.iter().position(|series| series.key == of.key);
            place.unwrap_or(self.above.series.len())
        };
        let kind = |of: &thalweg_store::query::Series| match (self.stacked, &of.key) {
            (true, _) => SeriesKind::Area(color(of)),
            (false, Some(_)) => SeriesKind::Measured(color(of)),
            (false, None) => SeriesKind::Reference,
        };
        graph.series.iter().map(|of| Series { name: title(of), kind: kind(of), points: points(of) }).collect()
    }
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
        let svg = svg(&graph, None, Metric::Bytes, false);
        assert!(svg.contains("2 incomplete steps are left out"), "{svg}");
        assert!(svg.contains("05:01") && svg.contains("time (UTC)") && !svg.contains("since then"), "{svg}");
        assert!(svg.contains("at 2026-11-22T05:01:00Z: 133") && !svg.contains("05:00:00Z: 0"), "{svg}");
        let stacked = super::svg(&graph, None, Metric::Bytes, true);
        assert_eq!(stacked.matches("class=\"area").count(), 2);
        assert!(stacked.contains("500 at 2026-11-22T05:01:00Z: 66.7"), "{stacked}");
        // The second lies on the first: its lower edge is the other's upper one.
        let corners = |class: &str| {
            let begin = format!("class=\"area {class}\" points=\"");
            let points =
                stacked.split(&begin).nth(1).and_then(|rest| rest.split('"').next()).expect("an area");
            points.split(' ').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(corners("s1")[2..], [corners("s0")[1].clone(), corners("s0")[0].clone()]);
        let both = super::svg(&graph, Some(&graph), Metric::Bytes, true);
        assert_eq!(both.matches("class=\"area").count(), 4);
        assert!(both.contains("below: the other direction") && !both.contains("Z: -"), "{both}");
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
