//! Small plots as SVG: lines with markers and error bars, horizontal bars with a marker, space-time diagrams, time lines.
//!
//! A plot is data first: a [`LineChart`], [`BarChart`], [`SpaceTime`] or [`TimeLine`] is filled in and then drawn. Drawing is pure text,
//! there is no canvas, no font and no measuring of text (widths are estimated on the generous side, and
//! nothing depends on them but the room left for labels).
//!
//! Colors are those of M. Okabe and K. Ito ("Color Universal Design", 2008), which people with any of the
//! common kinds of color blindness tell apart; markers differ in shape besides. They are darkened or
//! lightened where the paper asks for it: the style follows the reader's light or dark setting
//! (`prefers-color-scheme`). Values stand in a `<title>` of each mark, which browsers show on hovering.
//!
//! Error bars are ranges, smallest to largest. Axes of quantities begin at zero unless they are logarithmic.
//!
//! Missing: stacked bars, areas. They come with the experiment that needs them.

mod axis;
mod bars;
mod lines;
mod space_time;
mod svg;
mod time_line;

pub use axis::{Axis, Scale};
pub use bars::{Bar, BarChart, BarGroup};
pub use lines::{LineChart, Point, Series, SeriesKind};
pub use space_time::{SpaceTime, Spot};
pub use svg::{PALETTE_LEN, STYLE, standalone};
pub use time_line::{TimeLine, Work};
