//! Reports what was read and what was wrong with it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Issues kept in full; all are counted.
pub const ISSUES_KEPT: usize = 10;

/// The position of an issue in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line and a column of a text trace, both from 1.
    Line {
        line: u64,
        /// In bytes.
        column: usize,
    },
    /// A byte of a capture.
    Byte {
        /// Offset in the uncompressed stream, from 0.
        offset: u64,
        /// The packet of this input that begins there, from 1, if one does.
        packet: Option<u64>,
    },
}

/// An issue in an input. Displays as one line: `trace.txt:17:23: expected ...` or `x.pcap: byte 1234, packet
/// 17: expected ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    pub input: Arc<str>,
    pub place: Place,
    /// Short name that counts such issues.
    pub reason: &'static str,
    /// What was expected.
    pub message: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Line { line, column } => write!(f, "{}:{line}:{column}: {}", self.input, self.message),
            Place::Byte { offset, packet: None } => {
                write!(f, "{}: byte {offset}: {}", self.input, self.message)
            }
            Place::Byte { offset, packet: Some(packet) } => {
                write!(f, "{}: byte {offset}, packet {packet}: {}", self.input, self.message)
            }
        }
    }
}

/// The totals of all input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputReport {
    /// Inputs begun.
    pub files: u64,
    /// Lines of text traces, including blank ones and comments.
    pub lines: u64,
    /// Records or blocks of captures, including those without a packet.
    pub records: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Bytes after decompression.
    pub bytes: u64,
    /// The count of each kind of issue.
    pub issues: BTreeMap<&'static str, u64>,
    /// The first [`ISSUES_KEPT`] issues.
    pub first_issues: Vec<Issue>,
    /// Useless inputs with the reason: they are empty, or have an error and gave no packet. A valid capture
    /// without packets does not count.
    pub useless: Vec<String>,
}

impl InputReport {
    /// Adds a useless input once.
    pub fn note_useless(&mut self, why: String) {
        if !self.useless.contains(&why) {
            self.useless.push(why);
        }
    }

    /// The number of all issues.
    pub fn issue_count(&self) -> u64 {
        self.issues.values().sum()
    }
}

/// Why input cannot be opened or read further.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{input}: {error}")]
    Open {
        input: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// `port=PATH` with a port that is not configured.
    #[error("{port}={input}: expected the name of a configured port, found \"{port}\"")]
    NoSuchPort { input: String, port: String },
    /// The first issue, with `strict`.
    #[error("{0}")]
    Strict(Issue),
    /// The reader's thread could not be started, or died.
    #[error("reader thread: {0}")]
    Thread(#[source] io::Error),
}

/// The progress of reading, for other threads.
#[derive(Debug)]
pub struct Progress {
    bytes_read: AtomicU64,
    packets: AtomicU64,
    bytes_total: Option<u64>,
}

impl Progress {
    /// Bytes read from files, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Bytes of all files, before decompression; `None` if one is a pipe.
    pub fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    /// Packets delivered.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Collects the report while files are read.
pub(super) struct Reporter {
    report: InputReport,
    progress: Arc<Progress>,
    strict: bool,
    fatal: Option<Issue>,
    current: Option<Current>,
}

/// The input that is being read.
struct Current {
    /// Packets delivered before it.
    packets: u64,
    /// Why it is useless if it gives no packet.
    why: Option<String>,
}

impl Reporter {
    pub(super) fn new(strict: bool, bytes_total: Option<u64>) -> Self {
        let progress = Progress { bytes_read: AtomicU64::new(0), packets: AtomicU64::new(0), bytes_total };
        let report = InputReport::default();
        Self { report, progress: Arc::new(progress), strict, fatal: None, current: None }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    pub(super) fn report(&self) -> &InputReport {
        &self.report
    }

    pub(super) fn into_report(self) -> InputReport {
        self.report
    }

    pub(super) fn start_file(&mut self) {
        self.report.files += 1;
        self.current = Some(Current { packets: self.report.packets, why: None });
    }

    /// Notes that the current input is empty.
    pub(super) fn found_empty(&mut self, input: &Arc<str>) {
        if let Some(current) = &mut self.current {
            current.why = Some(format!("{input}: it is empty"));
        }
    }

    /// Ends the current input.
    pub(super) fn end_file(&mut self) {
        let Some(Current { packets, why: Some(why) }) = self.current.take() else { return };
        if self.report.packets == packets {
            self.report.note_useless(why);
        }
    }

    pub(super) fn add(&mut self, lines: u64, records: u64, bytes: u64, packets: usize) {
        self.report.lines += lines;
        self.report.records += records;
        self.report.bytes += bytes;
        self.report.packets += packets as u64;
        self.progress.packets.fetch_add(packets as u64, Ordering::Relaxed);
    }

    /// Whether reading must stop here.
    pub(super) fn is_fatal(&self) -> bool {
        self.fatal.is_some()
    }

    pub(super) fn take_fatal(&mut self) -> Option<Issue> {
        self.fatal.take()
    }

    #[cold]
    pub(super) fn bad_line(
        &mut self,
        input: &Arc<str>,
        line: u64,
        column: usize,
        reason: &'static str,
        what: &dyn fmt::Display,
    ) {
        self.issue(input, Place::Line { line, column }, reason, what);
    }

    #[cold]
    pub(super) fn damage(
        &mut self,
        input: &Arc<str>,
        offset: u64,
        packet: Option<u64>,
        reason: &'static str,
        what: &dyn fmt::Display,
    ) {
        self.issue(input, Place::Byte { offset, packet }, reason, what);
    }

    fn issue(&mut self, input: &Arc<str>, place: Place, reason: &'static str, what: &dyn fmt::Display) {
        *self.report.issues.entry(reason).or_default() += 1;
        let kept = self.report.first_issues.len();
        let wanted = self.strict && self.fatal.is_none();
        let is_first = self.current.as_ref().is_some_and(|current| current.why.is_none());
        if kept >= ISSUES_KEPT && !wanted && !is_first {
            return;
        }
        let issue = Issue { input: Arc::clone(input), place, reason, message: what.to_string() };
        if let Some(current) = self.current.as_mut().filter(|_| is_first) {
            current.why = Some(format!(
                "{issue}; there is no packet in it: expected a capture (pcap, pcapng) or a text trace (docs/formats.md)"
            ));
        }
        if wanted {
            self.fatal = Some(issue.clone());
        }
        if kept < ISSUES_KEPT {
            self.report.first_issues.push(issue);
        }
    }
}
