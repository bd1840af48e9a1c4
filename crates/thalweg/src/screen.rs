//! Output that is drawn again and again, in place of what was there.

use std::env;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_text::units::counted;

use crate::{Failure, print};

/// How often a waiting program looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(50);
/// The size of a terminal that does not tell its own.
pub(crate) const SIZE: (usize, usize) = (80, 24);

/// Whether output has colors: on a terminal, unless its user wants none (no-color.org).
pub(crate) fn has_color(is_terminal: bool) -> bool {
    is_terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Waits for an interval, or until it is told to stop.
pub(crate) fn wait(stop: &AtomicBool, interval: Duration) {
    let end = Instant::now() + interval;
    while Instant::now() < end && !stop.load(Ordering::Acquire) {
        thread::sleep(LOOK);
    }
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    terminal_size::terminal_size_of(io::stdout())
        .map_or(SIZE, |(width, height)| (usize::from(width.0), usize::from(height.0)))
}

/// The terminal's second screen; the first one comes back at the end.
pub(crate) struct Screen;

impl Screen {
    pub(crate) fn enter() -> Result<Self, Failure> {
        print("\x1b[?1049h\x1b[?25l")?;
        Ok(Self)
    }

    /// Writes these lines over those before.
    pub(crate) fn draw(&self, lines: &[Line], height: usize) -> Result<(), Failure> {
        let room = height.saturating_sub(1).max(1);
        let has_color = has_color(true);
        let mut text = "\x1b[H".to_owned();
        for line in lines.iter().take(room) {
            let style = if has_color { line.style } else { "" };
            text += &format!("{style}{}\x1b[0m\x1b[K\r\n", line.text);
        }
        if lines.len() > room {
            text += &format!("\x1b[2m{} below\x1b[0m\x1b[K", counted((lines.len() - room) as u64, "line"));
        }
        print(&(text + "\x1b[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
    }
}

/// A line, and the control sequence of its color.
pub(crate) struct Line {
    pub(crate) style: &'static str,
    pub(crate) text: String,
}

impl Line {
    /// Neighbors write parts of it, which must not control the terminal.
    pub(crate) fn new(style: &'static str, text: &str) -> Self {
        let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        Self { style, text: text.chars().map(clean).collect() }
    }

    pub(crate) fn bad(text: String) -> Self {
        Self::new("\x1b[31m", &text)
    }
}
