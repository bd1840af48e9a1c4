//! SVG as text, and the style all plots share.

use crate::markup::escape;
use std::fmt::Write;

/// The number of series colors; further series start again with the first.
pub const PALETTE_LEN: usize = 10;

/// The number of shades for ordered series; further series use the last.
const SHADES_LEN: usize = 5;

/// The class that gives series `index` its color: one of the palette, or a shade of one hue if the series have an
/// order (1, 2, 4 workers).
pub(super) fn color_class(index: usize, ordered: bool) -> String {
    if ordered { format!("q{}", index.min(SHADES_LEN - 1)) } else { format!("s{}", index % PALETTE_LEN) }
}

/// The width of every plot. Reports scale it to the page.
pub(super) const WIDTH: f64 = 720.0;

/// The style sheet of all plots. A report contains it once; a standalone plot contains its own copy.
pub const STYLE: &str = "\
.tw-plot{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;max-width:100%;height:auto;color:#24292f}
.tw-plot text{fill:#24292f;font-size:12px}
.tw-plot .title{font-size:15px;font-weight:600}
.tw-plot .muted{fill:#59636e}
.tw-plot .paper{fill:#fff}
.tw-plot .grid{stroke:#e3e7eb;stroke-width:1}
.tw-plot .axis{stroke:#8c959f;stroke-width:1}
.tw-plot .curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.tw-plot .reference{color:#818b95;stroke-width:1.5;stroke-dasharray:6 4}
.tw-plot .whisker{fill:none;stroke:currentColor;stroke-width:1.5}
.tw-plot .mark{fill:currentColor;stroke:#fff;stroke-width:1}
.tw-plot .bar{fill:currentColor}
.tw-plot .area{fill:currentColor;fill-opacity:.85}
.tw-plot .spot{stroke:transparent;stroke-width:9}
.tw-plot .range{fill:none;stroke:#24292f;stroke-width:1.25}
.tw-plot .dashed{stroke-dasharray:6 4}
.tw-plot .tail{stroke:currentColor;stroke-width:1.5;stroke-dasharray:2 3}
.tw-plot .s0{color:#0072b2}.tw-plot .s1{color:#d55e00}.tw-plot .s2{color:#009e73}.tw-plot .s3{color:#b35a8c}
.tw-plot .s4{color:#c98a00}.tw-plot .s5{color:#3f9fd6}.tw-plot .s6{color:#444c56}.tw-plot .s7{color:#990000}
.tw-plot .s8{color:#3d2bdc}.tw-plot .s9{color:#451277}
.tw-plot .q0{color:#9ecbe6}.tw-plot .q1{color:#5aa7d6}.tw-plot .q2{color:#2a7fb8}.tw-plot .q3{color:#0b5a94}
.tw-plot .q4{color:#07365c}
@media (prefers-color-scheme:dark){
.tw-plot{color:#e6edf3}
.tw-plot text{fill:#e6edf3}
.tw-plot .muted{fill:#9da7b1}
.tw-plot .paper{fill:#12161c}
.tw-plot .grid{stroke:#262d36}
.tw-plot .axis{stroke:#6e7681}
.tw-plot .reference{color:#8b949e}
.tw-plot .mark{stroke:#12161c}
.tw-plot .range{stroke:#e6edf3}
.tw-plot .s0{color:#3d9be0}.tw-plot .s1{color:#ee7733}.tw-plot .s2{color:#1fbf92}.tw-plot .s3{color:#dc8fbd}
.tw-plot .s4{color:#e6a91a}.tw-plot .s5{color:#7cc7f0}.tw-plot .s6{color:#b1bac4}.tw-plot .s7{color:#d8352a}
.tw-plot .s8{color:#6f63ff}.tw-plot .s9{color:#8f5a6c}
.tw-plot .q0{color:#1f5f8f}.tw-plot .q1{color:#2f83bf}.tw-plot .q2{color:#56a8dc}.tw-plot .q3{color:#8ecaf0}
.tw-plot .q4{color:#cbe7fa}
}
";

/// A plot as a file of its own, with the style sheet and the XML namespace, which a page does not need.
pub fn standalone(svg: &str) -> String {
    let style = format!("<style>\n{STYLE}</style>\n");
    match svg.strip_prefix("<svg").and_then(|rest| rest.split_once('>')) {
        Some((attributes, body)) => {
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\"{attributes}>\n{style}{}", body.trim_start())
        }
        None => svg.to_owned(),
    }
}

/// The point of a text that its position refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing in progress.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// Adds an element. `element` may contain only our own text and numbers; other text goes through
    /// [`Svg::text`].
    pub(super) fn raw(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.raw(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    pub(super) fn titled_line(
        &mut self,
        class: &str,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        title: &str,
    ) {
        let title = escape(title);
        self.raw(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\">\
             <title>{title}</title></line>"
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = at;
        let text = escape(text);
        self.raw(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(super) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), title: &str) {
        let ((x, y), (w, h)) = (at, (size.0.max(0.0), size.1.max(0.0)));
        let title = escape(title);
        self.raw(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"1.5\">\
             <title>{title}</title></rect>"
        ));
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        self.raw(&format!("<polyline class=\"{class}\" points=\"{}\"/>", corners(points)));
    }

    pub(super) fn polygon(&mut self, class: &str, points: &[(f64, f64)], title: &str) {
        let title = escape(title);
        let points = corners(points);
        self.raw(&format!("<polygon class=\"{class}\" points=\"{points}\"><title>{title}</title></polygon>"));
    }

    /// A marker with the shape and color of a series.
    pub(super) fn marker(&mut self, series: usize, at: (f64, f64), title: &str) {
        let (x, y) = at;
        let polygon = |from_center: &[(f64, f64)]| {
            let points: Vec<(f64, f64)> = from_center.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
            format!("<polygon points=\"{}\"/>", corners(&points))
        };
        let shape = match series % PALETTE_LEN {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.6\"/>"),
            1 => polygon(&[(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)]),
            2 => polygon(&[(0.0, -5.6), (5.2, 4.0), (-5.2, 4.0)]),
            3 => polygon(&[(0.0, -5.8), (5.8, 0.0), (0.0, 5.8), (-5.8, 0.0)]),
            4 => polygon(&[(0.0, 5.6), (5.2, -4.0), (-5.2, -4.0)]),
            5 => polygon(&[(-2.5, -5.0), (2.5, -5.0), (5.2, 0.0), (2.5, 5.0), (-2.5, 5.0), (-5.2, 0.0)]),
            6 => polygon(&[(-5.6, 0.0), (4.0, -5.2), (4.0, 5.2)]),
            7 => polygon(&[(5.6, 0.0), (-4.0, -5.2), (-4.0, 5.2)]),
            8 => polygon(&[(-5.2, -5.2), (5.2, -5.2), (-5.2, 5.2), (5.2, 5.2)]),
            _ => polygon(&[(-5.2, -5.2), (5.2, 5.2), (5.2, -5.2), (-5.2, 5.2)]),
        };
        let title = escape(title);
        self.raw(&format!("<g class=\"mark s{}\"><title>{title}</title>{shape}</g>", series % PALETTE_LEN));
    }

    /// A diamond in the color of its group.
    pub(super) fn diamond(&mut self, at: (f64, f64), title: &str) {
        let (x, y) = at;
        self.polygon("mark", &[(x, y - 5.5), (x + 5.5, y), (x, y + 5.5), (x - 5.5, y)], title);
    }

    /// The whole drawing.
    pub(super) fn finish(self, title: &str, height: f64) -> String {
        let title = escape(title);
        format!(
            "<svg class=\"tw-plot\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{title}\">\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// Points as an attribute.
fn corners(points: &[(f64, f64)]) -> String {
    let mut list = String::new();
    for (x, y) in points {
        // Writing to a string cannot fail.
        let _ = write!(list, "{x:.1},{y:.1} ");
    }
    list.truncate(list.trim_end().len());
    list
}

/// The estimated width of `text` at 12 pixels, on the generous side.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if matches!(c, 'm' | 'w' | 'M' | 'W' | '—' | '→') { 10.5 } else { 7.2 }).sum()
}

/// The symbol beside a name in a legend.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    Line(usize),
    Reference,
    Swatch(usize, bool),
    Diamond,
}

/// Draws a legend that begins at `top`, wrapped to the width; returns its height.
pub(super) fn legend(svg: &mut Svg, left: f64, top: f64, entries: &[(Key, &str)]) -> f64 {
    const ROW: f64 = 20.0;
    const KEY: f64 = 30.0;
    const GAP: f64 = 18.0;
    let (mut x, mut row) = (left, 0.0);
    for (key, name) in entries {
        let width = KEY + text_width(name);
        if x > left && x + width > WIDTH - 12.0 {
            (x, row) = (left, row + 1.0);
        }
        let y = top + row * ROW + ROW / 2.0;
        match key {
            Key::Line(series) => {
                let class = format!("curve s{}", series % PALETTE_LEN);
                svg.line(&class, (x, y), (x + 24.0, y));
                svg.marker(*series, (x + 12.0, y), name);
            }
            Key::Reference => svg.line("curve reference", (x, y), (x + 24.0, y)),
            Key::Swatch(series, ordered) => {
                let class = format!("bar {}", color_class(*series, *ordered));
                svg.rect(&class, (x + 6.0, y - 6.0), (14.0, 12.0), name);
            }
            Key::Diamond => svg.diamond((x + 12.0, y), name),
        }
        svg.text("", (x + KEY, y + 4.0), Anchor::Start, name);
        x += width + GAP;
    }
    if entries.is_empty() { 0.0 } else { (row + 1.0) * ROW }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::RouterKind;

    /// Red, green and blue as light, not as numbers in a file.
    fn light(color: &str) -> [f64; 3] {
        [0, 2, 4].map(|at| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).expect("hexadecimal")) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// The contrast of WCAG 2.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |color| {
            let [red, green, blue] = light(color);
            0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
        };
        let (one, other): (f64, f64) = (luminance(one), luminance(other));
        one.max(other) / one.min(other)
    }

    /// The colors of the palette in each scheme, with the paper's.
    fn schemes() -> [(&'static str, Vec<&'static str>); 2] {
        let (bright, dark) = STYLE.split_once("@media").expect("two schemes");
        [("ffffff", bright), ("12161c", dark)].map(|(paper, style)| {
            let of = |index| {
                let (_, rest) = style.split_once(&format!(".s{index}{{color:#"))?;
                Some(&rest[..6])
            };
            (paper, (0..).map_while(of).collect())
        })
    }

    #[test]
    fn series_have_colors_of_their_own_that_can_be_seen() {
        assert!(PALETTE_LEN >= RouterKind::ALL.len(), "the largest plot has a series for each router");
        for (paper, colors) in schemes() {
            assert_eq!(colors.len(), PALETTE_LEN);
            for (at, color) in colors.iter().enumerate() {
                assert!(contrast(color, paper) > 2.9, "{color} on {paper}");
                let alike = |other: &&&str| {
                    let pairs = light(color).into_iter().zip(light(other));
                    pairs.map(|(one, other)| (one.cbrt() - other.cbrt()).powi(2)).sum::<f64>().sqrt() < 0.15
                };
                assert_eq!(colors[..at].iter().find(alike), None, "{color}");
            }
        }
    }
}
