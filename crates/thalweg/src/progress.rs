//! A progress bar for long work, shown only on a terminal, and only when the work takes a while.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use thalweg_probe::ProbeProgress;
use thalweg_replay::ReplayProgress;
use thalweg_text::units::count;

/// Shorter work needs no bar.
const QUIET_TIME: Duration = Duration::from_millis(500);
/// The bar's length: thousandths of the input.
const PARTS: u64 = 1000;

/// A bar, which may be hidden.
pub(crate) struct Bar {
    bar: ProgressBar,
    started: Instant,
}

impl Bar {
    /// A bar on standard error if that is a terminal.
    pub(crate) fn on_terminal() -> Self {
        let bar = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(PARTS), ProgressDrawTarget::stderr_with_hz(5));
            if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {percent:>3}%  {msg}  {eta} left") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        } else {
            ProgressBar::hidden()
        };
        Self { bar, started: Instant::now() }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl ReplayProgress for Bar {
    fn advanced(&self, packets: u64, fraction: Option<f64>) {
        self.show(packets, fraction);
    }
}

impl ProbeProgress for Bar {
    fn advanced(&self, packets: u64, fraction: Option<f64>) {
        self.show(packets, fraction);
    }

    fn notice(&self, text: &str) {
        self.print_line(&format!("warning: {text}"));
    }

    fn note(&self, text: &str) {
        self.print_line(&format!("note: {text}"));
    }
}

impl Bar {
    /// Prints a line above the bar.
    fn print_line(&self, line: &str) {
        self.bar.suspend(|| {
            // Without standard error nobody reads it.
            let _ = writeln!(std::io::stderr(), "{line}");
        });
    }

    fn show(&self, packets: u64, fraction: Option<f64>) {
        let elapsed = self.started.elapsed();
        if elapsed < QUIET_TIME || self.bar.is_hidden() {
            return;
        }
        let mpps = packets as f64 / elapsed.as_secs_f64() / 1e6;
        self.bar.set_message(format!("{} packets  {mpps:.2} Mpps", count(packets)));
        match fraction {
            Some(fraction) => self.bar.set_position((fraction.clamp(0.0, 1.0) * PARTS as f64) as u64),
            None => {
                // A pipe has no size, so there is neither a fraction nor a remaining time.
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                    self.bar.set_style(style);
                }
                self.bar.tick();
            }
        }
    }
}

/// Shows the named steps of an experiment.
pub(crate) struct Steps(ProgressBar);

impl Steps {
    /// On standard error if that is a terminal.
    pub(crate) fn on_terminal() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let steps = Self(bar);
        steps.look("{spinner} {msg}");
        steps
    }

    fn look(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style.progress_chars("=> "));
        }
    }

    /// Shows the current step after `done` steps.
    pub(crate) fn at(&self, done: usize, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.set_position(done as u64);
    }

    /// Shows the current step after `done` of `total` steps.
    pub(crate) fn of(&self, done: usize, total: usize, what: &str) {
        if self.0.length() != Some(total as u64) {
            self.0.set_length(total as u64);
            self.look("[{bar:30}] {pos}/{len}  {msg}  {eta} left");
        }
        self.at(done, what);
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
