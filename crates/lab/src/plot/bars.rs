//! Horizontal bar charts: groups of bars with a range, and a marker for a second value.

use super::axis::{Axis, Fitted};
use super::svg::{Anchor, Key, Svg, WIDTH, color_class, legend, text_width};
use crate::stats::{Summary, place};

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The index in the chart's `series`, which gives the color.
    pub series: usize,
    /// The length of the bar, usually a median.
    pub value: f64,
    /// The smallest and the largest measurement, drawn over the end of the bar.
    pub range: Option<(f64, f64)>,
    /// A second value on the same axis, such as a 99th percentile, drawn as a marker.
    pub mark: Option<f64>,
}

impl Bar {
    /// A value without a range.
    pub(crate) fn at(value: f64) -> Self {
        Self { series: 0, value, range: None, mark: None }
    }

    /// A median with its range.
    pub(crate) fn of(summary: &Summary) -> Self {
        Self { range: Some((summary.min, summary.max)), ..Self::at(summary.median) }
    }

    /// The bar with a marker.
    pub(crate) fn marked(self, mark: Option<f64>) -> Self {
        Self { mark, ..self }
    }
}

/// Adjacent bars.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// What these bars have in common.
    pub label: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// A chart of bars along a common axis. On a logarithmic axis the length of a bar has no meaning: compare the
/// ends.
#[derive(Clone, Debug)]
pub struct BarChart {
    pub title: String,
    /// The axis along the bottom.
    pub values: Axis,
    /// The meanings of the colors. A single one needs no legend.
    pub series: Vec<String>,
    /// Whether the series have an order (1, 2, 4 workers) and so are shades of one hue.
    pub ordered: bool,
    /// The meaning of the marker.
    pub mark_name: Option<String>,
    pub groups: Vec<BarGroup>,
}

impl BarChart {
    /// A chart of bars with the names of their groups and series. Groups are in order of appearance, series in that
    /// of `series`, then of appearance.
    pub(crate) fn of(
        title: impl Into<String>,
        values: Axis,
        series: Vec<String>,
        bars: impl IntoIterator<Item = (String, String, Bar)>,
    ) -> Self {
        let (title, groups) = (title.into(), Vec::new());
        let mut chart = Self { title, values, series, ordered: false, mark_name: None, groups };
        for (label, name, bar) in bars {
            let series = place(&mut chart.series, |series| *series == name, || name.clone());
            let new = || BarGroup { label: label.clone(), bars: Vec::new() };
            let group = place(&mut chart.groups, |group| group.label == label, new);
            chart.groups[group].bars.push(Bar { series, ..bar });
        }
        chart.groups.iter_mut().for_each(|group| group.bars.sort_by_key(|bar| bar.series));
        chart
    }

    /// The chart with a meaning of its markers.
    pub(crate) fn marked(self, name: &str) -> Self {
        Self { mark_name: Some(name.to_owned()), ..self }
    }
}

const BAR: f64 = 18.0;
const BAR_GAP: f64 = 4.0;
const GROUP_GAP: f64 = 16.0;
/// A wider label stands in two lines.
const LABEL_MAX: f64 = 300.0;
const LINE: f64 = 15.0;

impl BarChart {
    /// The chart as SVG, for a page that contains [`super::STYLE`].
    pub fn svg(&self) -> String {
        let mut svg = Svg::default();
        svg.text("title", (16.0, 26.0), Anchor::Start, &self.title);
        let bars = || self.groups.iter().flat_map(|g| &g.bars);
        let range = |b: &Bar| b.range.map_or([b.value; 2], |(low, high)| [low, high]);
        let values = bars().flat_map(|b| [b.value, b.mark.unwrap_or(b.value)].into_iter().chain(range(b)));
        let Some(axis) = Fitted::to(&self.values, values) else {
            svg.text("muted", (16.0, 52.0), Anchor::Start, "no data");
            return svg.finish(&self.title, 70.0);
        };
        let top = 44.0 + legend(&mut svg, 16.0, 38.0, &self.legend_entries()) + 6.0;

        let lines = self.groups.iter().flat_map(|g| in_lines(&g.label));
        let left = 16.0 + lines.map(text_width).fold(0.0, f64::max) + 10.0;
        let widest_value = bars().map(|b| text_width(&self.value_label(b))).fold(0.0, f64::max);
        let right = WIDTH - widest_value - 26.0;
        let x = |value: f64| left + axis.place(value) * (right - left);

        let count = bars().count() as f64;
        let between = (self.groups.len() as f64 - 1.0) * GROUP_GAP;
        let bottom = top + count * (BAR + BAR_GAP) + between + 8.0;
        for (tick, label) in axis.ticks(right - left) {
            svg.line("grid", (x(tick), top), (x(tick), bottom));
            svg.text("muted", (x(tick), bottom + 18.0), Anchor::Middle, &label);
        }
        let mut y = top + 6.0;
        for group in &self.groups {
            let height = group.bars.len() as f64 * (BAR + BAR_GAP) - BAR_GAP;
            let lines = in_lines(&group.label);
            let mut base = y + height / 2.0 + 4.0 - (lines.len() as f64 - 1.0) * LINE / 2.0;
            for line in lines {
                svg.text("", (left - 10.0, base), Anchor::End, line);
                base += LINE;
            }
            for bar in &group.bars {
                self.draw(&mut svg, &axis, &x, group, bar, y);
                y += BAR + BAR_GAP;
            }
            y += GROUP_GAP;
        }
        svg.line("axis", (left, top), (left, bottom));
        svg.text("muted", ((left + right) / 2.0, bottom + 40.0), Anchor::Middle, &self.values.label);
        svg.finish(&self.title, bottom + 54.0)
    }

    fn draw(
        &self,
        svg: &mut Svg,
        axis: &Fitted,
        x: &dyn Fn(f64) -> f64,
        group: &BarGroup,
        bar: &Bar,
        y: f64,
    ) {
        if !axis.shows(bar.value) {
            svg.text("muted", (x(axis.low()) + 6.0, y + BAR / 2.0 + 4.0), Anchor::Start, "not measured");
            return;
        }
        let from = x(axis.low().max(0.0));
        let color = color_class(bar.series, self.ordered);
        let middle = y + BAR / 2.0;
        let series = self.series.get(bar.series).map_or("", String::as_str);
        let title = format!("{} {series}: {}", group.label, self.value_label(bar));
        let mut end = x(bar.value);
        svg.rect(&format!("bar {color}"), (from, y), (end - from, BAR), &title);
        if let Some((low, high)) = bar.range {
            svg.line("range", (x(low), middle), (x(high), middle));
            for edge in [x(low), x(high)] {
                svg.line("range", (edge, middle - 4.0), (edge, middle + 4.0));
            }
            end = end.max(x(high));
        }
        if let Some(mark) = bar.mark.filter(|m| axis.shows(*m)) {
            svg.line(&format!("tail {color}"), (end, middle), (x(mark), middle));
            let name = self.mark_name.as_deref().unwrap_or("mark");
            // Always a diamond, in any color, because the legend explains one shape.
            svg.raw(&format!("<g class=\"{color}\">"));
            svg.diamond((x(mark), middle), &format!("{title}, {name}"));
            svg.raw("</g>");
            end = end.max(x(mark) + 5.0);
        }
        svg.text("", (end + 8.0, middle + 4.0), Anchor::Start, &self.value_label(bar));
    }

    fn value_label(&self, bar: &Bar) -> String {
        let value = self.values.unit.format(bar.value);
        match bar.mark {
            Some(mark) => format!("{value} / {}", self.values.unit.format(mark)),
            None => value,
        }
    }

    fn legend_entries(&self) -> Vec<(Key, &str)> {
        let named = if self.series.len() > 1 || self.mark_name.is_some() { &self.series[..] } else { &[] };
        let mut entries: Vec<(Key, &str)> =
            named.iter().enumerate().map(|(i, name)| (Key::Swatch(i, self.ordered), name.as_str())).collect();
        entries.extend(self.mark_name.iter().map(|name| (Key::Diamond, name.as_str())));
        entries
    }
}

/// A label as it stands beside its bars, divided at a space so that the first line is as long as fits.
fn in_lines(label: &str) -> Vec<&str> {
    let mut two = label.match_indices(' ').map(|(at, _)| label.split_at(at));
    let fits = two.rfind(|(first, _)| text_width(first) <= LABEL_MAX);
    match fits {
        Some((first, rest)) if text_width(label) > LABEL_MAX => vec![first, rest.trim_start()],
        _ => vec![label],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Scale;
    use thalweg_text::units::Unit;

    fn chart(bars: Vec<Bar>) -> String {
        let chart = BarChart {
            title: "Residence time".into(),
            values: Axis::new("time", Unit::Nanoseconds, Scale::Log),
            series: vec!["1 worker".into(), "2 <workers>".into()],
            ordered: true,
            mark_name: Some("99th percentile".into()),
            groups: vec![BarGroup { label: "farm".into(), bars }],
        };
        chart.svg()
    }

    #[test]
    fn bars_ranges_and_marks() {
        let bar = |series, value, mark| Bar { series, value, range: Some((value * 0.9, value * 1.2)), mark };
        let svg = chart(vec![bar(0, 1200.0, Some(90_000.0)), bar(1, 1500.0, None)]);
        assert_eq!(svg.matches("<rect class=\"bar").count(), 2 + 2, "legend and bars");
        assert_eq!(svg.matches("class=\"range\"").count(), 2 * 3);
        assert_eq!(svg.matches("class=\"tail").count(), 1);
        assert!(svg.contains("1.20 µs / 90.0 µs") && svg.contains("2 &lt;workers&gt;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_label_wider_than_its_place_stands_in_two_lines() {
        let label = "thalweg af_xdp+offload run-to-completion, single frames";
        let lines = in_lines(label);
        assert_eq!(lines.join(" "), label);
        assert!(lines.len() == 2 && lines.iter().all(|line| text_width(line) <= LABEL_MAX), "{lines:?}");
        assert_eq!(in_lines("farm of 2 workers"), ["farm of 2 workers"]);
        assert_eq!(in_lines(&"x".repeat(100)).len(), 1, "without a space");
    }

    #[test]
    fn a_value_the_axis_cannot_show_is_named_not_drawn() {
        let bar = |value| Bar { series: 0, value, range: None, mark: None };
        let svg = chart(vec![bar(5.0), bar(0.0)]);
        assert!(svg.contains("not measured"));
        assert!(chart(vec![bar(0.0)]).contains("no data"));
    }
}
