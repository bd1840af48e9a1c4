//! Line charts: one line per series, with markers and error bars; or areas, which the caller stacks.

use super::axis::{Axis, Fitted};
use super::svg::{Anchor, Key, Svg, WIDTH, color_class, legend, text_width};
use crate::stats::{Summary, place};

/// One measured point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    /// Usually a median.
    pub y: f64,
    /// The smallest and the largest measurement, drawn as an error bar; of an area, its lower and upper edge.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// A value without a range.
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Self { x, y, range: None }
    }

    /// A median with its range, both multiplied by `factor`.
    pub(crate) fn of(x: f64, y: &Summary, factor: f64) -> Self {
        Self { x, y: y.median * factor, range: Some((y.min * factor, y.max * factor)) }
    }
}

/// The kind of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// Measurements, with the color and marker of this index. The same subject has the same index in every plot.
    Measured(usize),
    /// Predictions: the color and marker of this index, dashed.
    Predicted(usize),
    /// A reference: gray and dashed, without markers.
    Reference,
    /// Published points: gray diamonds without a line, because nobody measured between them.
    Published,
    /// The area between the edges of its points, in the color of this index.
    Area(usize),
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    pub kind: SeriesKind,
    /// Ascending by `x`.
    pub points: Vec<Point>,
}

impl Series {
    /// Measurements with the color of this index. Points may be in any order.
    pub(crate) fn measured(
        name: impl Into<String>,
        color: usize,
        points: impl IntoIterator<Item = Point>,
    ) -> Self {
        let mut points: Vec<Point> = points.into_iter().collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Self { name: name.into(), kind: SeriesKind::Measured(color), points }
    }

    /// Measurements with the names of their series. Colors follow `names`, then the order of appearance.
    pub(crate) fn each(
        names: impl IntoIterator<Item = impl Into<String>>,
        points: impl IntoIterator<Item = (String, Point)>,
    ) -> Vec<Self> {
        let mut all: Vec<(String, Vec<Point>)> =
            names.into_iter().map(|name| (name.into(), Vec::new())).collect();
        for (name, point) in points {
            let at = place(&mut all, |(known, _)| *known == name, || (name.clone(), Vec::new()));
            all[at].1.push(point);
        }
        let series = all.into_iter().enumerate().filter(|(_, (_, points))| !points.is_empty());
        series.map(|(color, (name, points))| Self::measured(name, color, points)).collect()
    }

    /// Published values.
    pub(crate) fn published(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point::at(x, y)).collect();
        Self { name: name.into(), kind: SeriesKind::Published, points }
    }

    /// Speed-ups equal to the number of threads, for all numbers of threads in `series`.
    pub(crate) fn ideal(series: &[Series]) -> Self {
        let mut threads: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).collect();
        threads.sort_unstable_by(f64::total_cmp);
        threads.dedup();
        let points = threads.iter().map(|&t| Point::at(t, t)).collect();
        Self { name: "ideal".to_owned(), kind: SeriesKind::Reference, points }
    }
}

/// A chart of lines over a common axis.
#[derive(Clone, Debug)]
pub struct LineChart {
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    pub series: Vec<Series>,
}

const PLOT_HEIGHT: f64 = 280.0;
const LEFT_MIN: f64 = 46.0;
const RIGHT: f64 = 24.0;

impl LineChart {
    /// The chart as SVG, for a page that contains [`super::STYLE`].
    pub fn svg(&self) -> String {
        let mut svg = Svg::default();
        let points = || self.series.iter().flat_map(|s| &s.points);
        let xs = points().map(|p| p.x);
        let ys = self.series.iter().flat_map(|series| {
            let of_area = matches!(series.kind, SeriesKind::Area(_));
            series.points.iter().flat_map(move |p| {
                let y = (!of_area).then_some(p.y);
                y.into_iter().chain(p.range.iter().flat_map(|r| [r.0, r.1]))
            })
        });
        svg.text("title", (16.0, 26.0), Anchor::Start, &self.title);
        let (Some(x), Some(y)) = (Fitted::to(&self.x, xs), Fitted::to(&self.y, ys)) else {
            svg.text("muted", (16.0, 52.0), Anchor::Start, "no data");
            return svg.finish(&self.title, 70.0);
        };
        let mut entries: Vec<(Key, &str)> = Vec::new();
        for (key, series) in self.keys().zip(&self.series) {
            // A subject may have a series on both sides of an axis.
            if entries.iter().all(|(_, name)| *name != series.name) {
                entries.push((key, &series.name));
            }
        }
        let top = 40.0 + legend(&mut svg, 16.0, 38.0, &entries) + 34.0;

        let ticks = y.stacked_ticks();
        let widest = ticks.iter().map(|(_, label)| text_width(label)).fold(0.0, f64::max);
        let frame = Frame {
            left: (16.0 + widest + 8.0).max(LEFT_MIN),
            right: WIDTH - RIGHT,
            top,
            bottom: top + PLOT_HEIGHT,
        };
        svg.text("muted", (16.0, top - 12.0), Anchor::Start, &self.y.label);
        for (tick, label) in ticks {
            let at = frame.y(&y, tick);
            svg.line("grid", (frame.left, at), (frame.right, at));
            svg.text("muted", (frame.left - 8.0, at + 4.0), Anchor::End, &label);
        }
        svg.line("axis", (frame.left, frame.bottom), (frame.right, frame.bottom));
        for (tick, label) in x.ticks(frame.right - frame.left) {
            let at = frame.x(&x, tick);
            svg.line("axis", (at, frame.bottom), (at, frame.bottom + 5.0));
            svg.text("muted", (at, frame.bottom + 20.0), Anchor::Middle, &label);
        }
        let middle = (frame.left + frame.right) / 2.0;
        svg.text("muted", (middle, frame.bottom + 42.0), Anchor::Middle, &self.x.label);

        for series in self.series.iter().filter(|s| s.kind == SeriesKind::Published) {
            for point in series.points.iter().filter(|p| x.shows(p.x) && y.shows(p.y)) {
                let (place, value) = (self.x.place_name(point.x), self.y.value(point.y));
                let at = (frame.x(&x, point.x), frame.y(&y, point.y));
                svg.diamond(at, &format!("{} at {place}: {value}", series.name));
            }
        }
        for series in &self.series {
            if let SeriesKind::Area(color) = series.kind {
                self.area(&mut svg, &frame, (&x, &y), series, color);
            }
        }
        // References are drawn first, so measurements are on top.
        for series in self.series.iter().filter(|s| s.kind == SeriesKind::Reference) {
            svg.polyline("curve reference", &frame.points(&x, &y, series, 0.0));
        }
        let measured = || {
            self.series.iter().filter_map(|s| match s.kind {
                SeriesKind::Measured(color) | SeriesKind::Predicted(color) => Some((s, color)),
                SeriesKind::Reference | SeriesKind::Published | SeriesKind::Area(_) => None,
            })
        };
        let middle = (measured().count() as f64 - 1.0) / 2.0;
        // Error bars of several series at the same x would hide each other, so each series is shifted a little.
        // Without error bars nothing is shifted.
        let aside =
            if measured().any(|(s, _)| s.points.iter().any(|p| p.range.is_some())) { 4.0 } else { 0.0 };
        for (nth, (series, color)) in measured().enumerate() {
            self.draw(&mut svg, &frame, (&x, &y), series, color, (nth as f64 - middle) * aside);
        }
        svg.finish(&self.title, frame.bottom + 56.0)
    }

    fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.series.iter().map(|series| match series.kind {
            SeriesKind::Reference => Key::Reference,
            SeriesKind::Published => Key::Diamond,
            SeriesKind::Measured(color) | SeriesKind::Predicted(color) => Key::Line(color),
            SeriesKind::Area(color) => Key::Swatch(color, false),
        })
    }

    /// The upper edge from left to right, then the lower one back; each point has a title on a line between both.
    fn area(&self, svg: &mut Svg, frame: &Frame, (x, y): (&Fitted, &Fitted), series: &Series, color: usize) {
        let edges = || series.points.iter().filter_map(|point| Some((point, point.range?)));
        let at = |point: &Point, edge: f64| (frame.x(x, point.x), frame.y(y, edge));
        let upper = edges().map(|(point, (_, high))| at(point, high));
        let lower = edges().rev().map(|(point, (low, _))| at(point, low));
        let corners: Vec<(f64, f64)> = upper.chain(lower).collect();
        svg.polygon(&format!("area {}", color_class(color, false)), &corners, &series.name);
        for (point, (low, high)) in edges() {
            let title =
                format!("{} at {}: {}", series.name, self.x.place_name(point.x), self.y.value(point.y));
            svg.titled_line("spot", at(point, low), at(point, high), &title);
        }
    }

    fn draw(
        &self,
        svg: &mut Svg,
        frame: &Frame,
        axes: (&Fitted, &Fitted),
        series: &Series,
        color: usize,
        aside: f64,
    ) {
        let (x, y) = axes;
        let dashed = if matches!(series.kind, SeriesKind::Predicted(_)) { " dashed" } else { "" };
        let class = format!("curve {}{dashed}", color_class(color, false));
        svg.polyline(&class, &frame.points(x, y, series, aside));
        let shown = || series.points.iter().filter(|p| x.shows(p.x) && y.shows(p.y));
        for point in shown() {
            let Some((low, high)) = point.range else { continue };
            let (at, low, high) = (frame.x(x, point.x) + aside, frame.y(y, low), frame.y(y, high));
            let class = format!("whisker {}", color_class(color, false));
            svg.line(&class, (at, low), (at, high));
            svg.line(&class, (at - 4.0, low), (at + 4.0, low));
            svg.line(&class, (at - 4.0, high), (at + 4.0, high));
        }
        for point in shown() {
            let mut title =
                format!("{} at {}: {}", series.name, self.x.place_name(point.x), self.y.value(point.y));
            if let Some((low, high)) = point.range {
                title.push_str(&format!(" ({} to {})", self.y.unit.format(low), self.y.unit.format(high)));
            }
            svg.marker(color, (frame.x(x, point.x) + aside, frame.y(y, point.y)), &title);
        }
    }
}

/// The rectangle of the data.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn x(&self, axis: &Fitted, value: f64) -> f64 {
        self.left + axis.place(value) * (self.right - self.left)
    }

    fn y(&self, axis: &Fitted, value: f64) -> f64 {
        self.bottom - axis.place(value) * (self.bottom - self.top)
    }

    fn points(&self, x: &Fitted, y: &Fitted, series: &Series, aside: f64) -> Vec<(f64, f64)> {
        let shown = series.points.iter().filter(|p| x.shows(p.x) && y.shows(p.y));
        shown.map(|p| (self.x(x, p.x) + aside, self.y(y, p.y))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Scale;
    use thalweg_text::units::Unit;

    fn chart(points: &[Point]) -> LineChart {
        LineChart {
            title: "Speed <up> & \"more\"".into(),
            x: Axis::at_data("workers", Unit::Plain, Scale::Linear),
            y: Axis::new("times serial", Unit::Plain, Scale::Linear),
            series: vec![
                Series { name: "ideal".into(), kind: SeriesKind::Reference, points: points.to_vec() },
                Series { name: "farm".into(), kind: SeriesKind::Measured(0), points: points.to_vec() },
            ],
        }
    }

    #[test]
    fn a_marker_and_an_error_bar_for_each_point() {
        let at = |x, y, range| Point { x, y, range };
        let svg =
            chart(&[at(1.0, 1.0, Some((0.9, 1.1))), at(2.0, 1.9, Some((1.8, 2.0))), at(4.0, 3.5, None)])
                .svg();
        assert_eq!(svg.matches("class=\"mark s0\"").count(), 1 + 3, "legend and points");
        assert_eq!(svg.matches("class=\"whisker s0\"").count(), 2 * 3);
        assert!(svg.contains("<title>farm at 2: 1.90 (1.80 to 2.00)</title>"));
        assert!(svg.contains("Speed &lt;up&gt; &amp; &quot;more&quot;") && !svg.contains("<up>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn published_points_have_no_line() {
        let mut chart = chart(&[Point { x: 1.0, y: 1.0, range: None }]);
        chart.series.push(Series::published("paper", [(1.0, 1.0), (16.0, 5.5)]));
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 2, "the other two");
        assert!(svg.contains("<title>paper at 16: 5.50</title>"), "{svg}");
    }

    #[test]
    fn areas_lie_between_their_edges_and_below_zero_is_another_direction() {
        let area = |color, edges: [(f64, f64); 2]| Series {
            name: format!("area {color}"),
            kind: SeriesKind::Area(color),
            points: edges
                .iter()
                .zip([1.0, 2.0])
                .map(|(edge, x)| Point { x, y: edge.1 - edge.0, range: Some(*edge) })
                .collect(),
        };
        let mut chart = chart(&[]);
        chart.series = vec![area(0, [(0.0, 4e6), (0.0, 2e6)]), area(1, [(-1e6, 0.0), (-3e6, 0.0)])];
        chart.y = Axis { mirrored: true, ..Axis::new("bit/s", Unit::Count, Scale::Linear) };
        let svg = chart.svg();
        assert!(svg.contains("<title>area 1 at 2: 3.00 M</title>"), "{svg}");
        assert_eq!(svg.matches("<polygon class=\"area").count(), 2, "{svg}");
        assert!(svg.contains(">2 M<") && !svg.contains(">-2"), "{svg}");
        // The first begins at the line where the second ends.
        let zero = |class: &str, corner: usize| {
            let corners = svg.split(&format!("class=\"area {class}\" points=\"")).nth(1).expect("an area");
            let corners = corners.split('"').next().expect("corners");
            corners.split(' ').nth(corner).and_then(|at| at.split(',').nth(1)).map(str::to_owned)
        };
        assert!(zero("s0", 3).is_some());
        assert_eq!(zero("s0", 3), zero("s1", 0));
    }

    #[test]
    fn no_data_says_so() {
        assert!(chart(&[]).svg().contains("no data"));
        let nothing = Point { x: 1.0, y: f64::NAN, range: None };
        assert!(chart(&[nothing]).svg().contains("no data"));
    }

    #[test]
    fn on_its_own_a_plot_carries_its_style() {
        let svg = crate::plot::standalone(&chart(&[Point { x: 1.0, y: 1.0, range: None }]).svg());
        assert!(
            svg.starts_with("<svg xmlns=") && svg.contains("<style>") && svg.contains("prefers-color-scheme")
        );
        assert!(svg.trim_end().ends_with("</svg>"));
    }
}
