//! Small plots as SVG: lines with markers and error bars, areas, horizontal bars with a marker, space-time diagrams, time lines.
//!
//! A plot is data first: a [`LineChart`], [`BarChart`], [`SpaceTime`] or [`TimeLine`] is filled in and then
//! drawn. Drawing produces text. There is no canvas, no font and no measuring of text: widths are estimated generously, and only
//! the space for labels depends on them.
//!
//! Colors are those of M. Okabe and K. Ito ("Color Universal Design", 2008), which people with any of the common
//! kinds of color blindness can distinguish; markers also differ in shape. Colors become darker or lighter with
//! the background: the style follows the reader's light or dark setting (`prefers-color-scheme`). Each mark has a
//! `<title>` with its value, which browsers show on hovering.
//!
//! Error bars are ranges, smallest to largest. Axes of quantities begin at zero unless they are logarithmic.
//!
//! Missing: stacked bars. They come with the experiment that needs them.

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
