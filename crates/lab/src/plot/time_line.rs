//! Who did what when: a row for each unit, time to the right.

use super::svg::{Anchor, Svg, WIDTH, color_class};
use thalweg_text::units::duration;

const ROW: f64 = 30.0;
const BAR: f64 = 20.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 26.0;
/// A bar this wide has room for a number.
const NUMBERED: f64 = 18.0;
/// Marks on the axis.
const TICKS: u64 = 4;

/// A unit's work on one thing.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its row.
    pub unit: usize,
    /// On what; decides the color, and is written on the bar.
    pub what: usize,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Said of the bar that is pointed at.
    pub words: String,
}

/// A time line.
#[derive(Clone, Debug)]
pub struct TimeLine {
    pub title: String,
    pub units: Vec<String>,
    pub work: Vec<Work>,
}

impl TimeLine {
    /// The drawing.
    pub fn svg(&self) -> String {
        let mut svg = Svg::default();
        let end_ns = self.work.iter().map(|work| work.end_ns).max().unwrap_or(0).max(1);
        let x = |ns: u64| LEFT + (WIDTH - LEFT - RIGHT) * ns as f64 / end_ns as f64;
        let bottom = TOP + ROW * self.units.len() as f64;
        svg.text("title", (12.0, 20.0), Anchor::Start, &self.title);
        for tick in 0..=TICKS {
            let at_ns = end_ns * tick / TICKS;
            svg.line("grid", (x(at_ns), TOP - 4.0), (x(at_ns), bottom));
            svg.text("muted", (x(at_ns), bottom + 16.0), Anchor::Middle, &duration(at_ns));
        }
        for (row, unit) in self.units.iter().enumerate() {
            let y = TOP + ROW * row as f64 + ROW / 2.0;
            svg.text("", (LEFT - 10.0, y + 4.0), Anchor::End, unit);
        }
        for work in &self.work {
            let y = TOP + ROW * work.unit as f64 + (ROW - BAR) / 2.0;
            let (from, to) = (x(work.begin_ns), x(work.end_ns));
            svg.raw(&format!("<g class=\"{}\">", color_class(work.what, false)));
            svg.rect("bar", (from, y), (to - from - 0.5, BAR), &work.words);
            svg.raw("</g>");
            if to - from >= NUMBERED {
                svg.text("", ((from + to) / 2.0, y + BAR - 6.0), Anchor::Middle, &work.what.to_string());
            }
        }
        svg.finish(&self.title, bottom + BOTTOM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_work_is_a_bar_in_its_unit_s_row() {
        let work = |unit, what, begin_ns, end_ns| Work {
            unit,
            what,
            begin_ns,
            end_ns,
            words: format!("chunk {what}, <route>"),
        };
        let units = vec!["worker 0".to_owned(), "worker 1".to_owned()];
        let line = TimeLine {
            title: "pipeline".to_owned(),
            units,
            work: vec![work(0, 0, 0, 500), work(1, 0, 500, 990), work(0, 1, 500, 1000)],
        };
        let svg = line.svg();
        assert_eq!(svg.matches("class=\"bar\"").count(), 3, "{svg}");
        assert!(svg.contains("worker 1") && svg.contains("chunk 1, &lt;route&gt;"), "{svg}");
        let empty = TimeLine { work: Vec::new(), ..line }.svg();
        assert!(
            empty.contains("worker 0") && !empty.contains("class=\"bar\"") && !empty.contains("NaN"),
            "{empty}"
        );
    }
}
