//! Space-time diagrams: one vertical line per place, time running down, one row per event.

use super::svg::{Anchor, Svg, WIDTH};

const ROW: f64 = 17.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 50.0;
/// Space for text on the right.
const WORDS: f64 = 360.0;
/// Letters that fit into it.
const LETTERS: usize = 58;

/// Where an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Everywhere: an event from outside.
    All,
    /// Everywhere: a pause.
    Rest,
    /// At the first place; it concerns the second one. The third number is the series that gives the color.
    At(usize, usize, usize),
}

/// A space-time diagram.
#[derive(Clone, Debug)]
pub struct SpaceTime {
    pub title: String,
    /// The number of places.
    pub places: usize,
    /// Time in seconds, place and description of each event, in order.
    pub moments: Vec<(f64, Spot, String)>,
}

impl SpaceTime {
    /// The diagram as SVG.
    pub fn svg(&self) -> String {
        let mut svg = Svg::default();
        let right = WIDTH - WORDS;
        let step = (right - LEFT) / self.places.max(2).saturating_sub(1) as f64;
        let x = |place: usize| LEFT + step * place as f64;
        let height = TOP + ROW * (self.moments.len() as f64 + 0.5);
        svg.text("title", (12.0, 20.0), Anchor::Start, &self.title);
        for place in 0..self.places {
            svg.line("axis", (x(place), TOP - 6.0), (x(place), height - 6.0));
            svg.text("muted", (x(place), TOP - 12.0), Anchor::Middle, &place.to_string());
        }
        for (row, (at_s, spot, words)) in self.moments.iter().enumerate() {
            let y = TOP + ROW * (row as f64 + 0.5);
            svg.text("muted", (LEFT - 14.0, y + 4.0), Anchor::End, &format!("{at_s:.3} s"));
            match *spot {
                Spot::All => svg.raw(&format!(
                    "<polyline class=\"curve s1\" points=\"{:.1},{y:.1} {:.1},{y:.1}\"/>",
                    LEFT - 6.0,
                    right + 6.0
                )),
                Spot::Rest => svg.line("grid", (LEFT - 6.0, y), (right + 6.0, y)),
                Spot::At(place, other, series) => {
                    let toward = x(place) + (x(other) - x(place)) / 3.0;
                    svg.raw(&format!("<g class=\"s{series}\">"));
                    svg.polyline("curve", &[(x(place), y), (toward, y)]);
                    svg.raw("</g>");
                    svg.marker(series, (x(place), y), words);
                }
            }
            svg.text("", (right + 14.0, y + 4.0), Anchor::Start, &short(words));
        }
        svg.finish(&self.title, height)
    }
}

fn short(words: &str) -> String {
    match words.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_has_a_row() {
        let moments = vec![
            (0.5, Spot::At(0, 2, 2), "up".to_owned()),
            (1.25, Spot::All, "link <1> down".to_owned()),
            (2.0, Spot::Rest, "a".repeat(200)),
        ];
        let svg = SpaceTime { title: "three".to_owned(), places: 3, moments }.svg();
        assert!(svg.contains("0.500 s") && svg.contains("1.250 s") && svg.contains("2.000 s"), "{svg}");
        assert!(svg.contains("link &lt;1&gt; down") && !svg.contains("<1>"), "texts are escaped: {svg}");
        assert!(svg.contains(&format!("{}…", "a".repeat(LETTERS))), "long words are cut: {svg}");
        assert_eq!(svg.matches("class=\"axis\"").count(), 3);
    }
}
