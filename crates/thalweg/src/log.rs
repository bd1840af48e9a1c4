//! Log lines on standard error: for people, for programs, or for the journal of systemd, which has times of its own.

use std::io::{self, IsTerminal, StderrLock, Write};
use std::os::unix::fs::MetadataExt;
use std::{env, fs};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::Failure;
use crate::cli::{LogFormat, RunArgs};
use crate::screen::has_color;

pub(crate) fn to_stderr(args: &RunArgs) -> Result<(), Failure> {
    let level: LevelFilter = args.log.parse().map_err(|_| {
        Failure::Usage(format!("--log {}: expected error, warn, info, debug, trace or off", args.log))
    })?;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_target(false);
    match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).with_writer(io::stderr).init(),
        LogFormat::Text if is_journal() => {
            builder.with_writer(Journal).without_time().with_level(false).with_ansi(false).init();
        }
        LogFormat::Text => {
            builder.with_ansi(has_color(io::stderr().is_terminal())).with_writer(io::stderr).init()
        }
    }
    Ok(())
}

/// Whether standard error leads to the journal: `JOURNAL_STREAM` has the numbers of that stream (systemd.exec(5)).
fn is_journal() -> bool {
    let stream = env::var("JOURNAL_STREAM");
    let ours = fs::metadata("/proc/self/fd/2").map(|stream| format!("{}:{}", stream.dev(), stream.ino()));
    stream.is_ok_and(|stream| ours.is_ok_and(|ours| ours == stream))
}

/// Writes lines with the priority in front that sd-daemon(3) wants.
struct Journal;

impl<'w> MakeWriter<'w> for Journal {
    type Writer = StderrLock<'static>;

    fn make_writer(&'w self) -> Self::Writer {
        io::stderr().lock()
    }

    fn make_writer_for(&'w self, about: &tracing::Metadata<'_>) -> Self::Writer {
        let priority = match *about.level() {
            tracing::Level::ERROR => 3,
            tracing::Level::WARN => 4,
            tracing::Level::INFO => 6,
            _ => 7,
        };
        // Locked until the rest of the line is written.
        let mut stderr = io::stderr().lock();
        // A log that cannot be written has nowhere to say so.
        let _ = write!(stderr, "<{priority}>");
        stderr
    }
}
